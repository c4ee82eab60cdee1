/* pages.c - generates the man pages, the completions and the server's config file from
 * the table, when Sluice is built.
 *
 *     pages TEMPLATE
 *
 * prints a template with its markers filled in. A marker is a line "@name@" or "@name
 * argument@"; the array `markers` below lists them. The program copies all other lines,
 * including the examples of a man page between ".Bd -literal" and ".Ed". The build
 * fails if a marker is unknown, or if it names something that is not in the table.
 *
 * This program uses only the C library, because it runs on the build machine. */
#include <ctype.h>
#include <errno.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/pages.h"

#define LINE_SIZE 1024
#define COLUMNS 80 /* Column where text from the table is wrapped. */

void pages_fail(const char *format, ...)
{
    va_list args;
    va_start(args, format);
    fputs("pages: ", stderr);
    vfprintf(stderr, format, args);
    fputc('\n', stderr);
    va_end(args);
    exit(1);
}

/* --- The table ------------------------------------------------------------ */

const struct cli_command *pages_find(const char *name)
{
    for (size_t i = 0; i < CLI_COMMANDS; i++)
        if (strcmp(cli_commands[i].name, name) == 0) return &cli_commands[i];
    pages_fail("there is no command \"%s\"", name);
}

const char *pages_next_word(const char **at, size_t *n)
{
    const char *word = *at + strspn(*at, " ");
    *n = strcspn(word, " ");
    *at = word + *n;
    return *n > 0 ? word : NULL;
}

bool pages_group_of(const struct cli_command *c, char group[PAGES_NAME_SIZE])
{
    size_t n = strcspn(c->name, " ");
    if (c->name[n] == '\0') return false;
    if (n >= PAGES_NAME_SIZE) pages_fail("\"%s\" is too long", c->name);
    memcpy(group, c->name, n);
    group[n] = '\0';
    return true;
}

bool pages_begins_group(const struct cli_command *c, char group[PAGES_NAME_SIZE])
{
    char other[PAGES_NAME_SIZE];
    if (!pages_group_of(c, group)) return false;
    for (const struct cli_command *d = cli_commands; d < c; d++)
        if (pages_group_of(d, other) && strcmp(group, other) == 0) return false;
    return true;
}

const struct cli_command *pages_next_of(const char *group, const struct cli_command *c)
{
    char own[PAGES_NAME_SIZE];
    for (; c < cli_commands + CLI_COMMANDS; c++)
        if (pages_group_of(c, own) && strcmp(own, group) == 0) return c;
    return NULL;
}

const char *pages_last_word(const struct cli_command *c)
{
    const char *blank = strrchr(c->name, ' ');
    return blank != NULL ? blank + 1 : c->name;
}

const char *pages_kind_name(enum cli_arg_kind kind)
{
    switch (kind) {
        case CLI_ARG_NONE: return "none";
        case CLI_ARG_TEXT: return "text";
        case CLI_ARG_KEY: return "key";
        case CLI_ARG_PATTERN: return "pattern";
        case CLI_ARG_STATE: return "state";
        case CLI_ARG_SEGMENT: return "segment";
        case CLI_ARG_COMMAND: return "command";
        case CLI_ARG_TOPIC: return "topic";
        case CLI_ARG_SERVER: return "server";
        case CLI_ARG_FILE: return "file";
        case CLI_ARG_CHOICE: return "choice";
    }
    pages_fail("a word of an unknown kind, %d", (int)kind);
}

size_t pages_count_words(const struct cli_command *c, bool *again)
{
    size_t n = 0;
    while (n < sizeof c->args / sizeof *c->args && c->args[n] != CLI_ARG_NONE) n++;
    *again = strstr(c->synopsis, "...") != NULL;
    return n;
}

/* --- Man pages ------------------------------------------------------------ */

/* Print prose as mdoc: begin with a capital letter, end with a full stop, and begin
 * each sentence on a new line. Text such as "local: ..." (a value and its meaning)
 * keeps its first letter. */
static void put_prose(const char *text)
{
    bool value = text[strcspn(text, " :")] == ':';
    size_t column = 0;
    char before = ' ';
    for (const char *p = text; *p != '\0'; before = *p++) {
        if (*p == ' ') {
            bool sentence = before == '.' && isupper((unsigned char)p[1]);
            if (sentence || column + 1 + strcspn(p + 1, " ") > COLUMNS) {
                putchar('\n');
                column = 0;
                continue;
            }
        }
        /* An option begins with a minus sign, not a hyphen. */
        bool minus = *p == '-' && strchr(" (-", before) != NULL;
        if (column == 0 && (*p == '.' || *p == '\'')) fputs("\\&", stdout);
        if (minus) fputs("\\-", stdout);
        else if (*p == '\\') fputs("\\e", stdout);
        else putchar(p == text && !value ? toupper((unsigned char)*p) : *p);
        column += minus || *p == '\\' ? 2 : 1;
    }
    puts(before == '.' ? "" : ".");
}

static void put_names(const struct cli_option *o)
{
    const char *names = o->names, *name, *comma = "";
    size_t n;
    fputs(".It", stdout);
    for (const char *l = o->letters; *l != '\0'; l++, comma = " ,")
        printf("%s Fl %c", comma, *l);
    for (; (name = pages_next_word(&names, &n)) != NULL; comma = " ,")
        printf("%s Fl Fl %.*s", comma, (int)n, name);
    if (o->arg != NULL) printf(" Ar %s", o->arg);
    putchar('\n');
}

/* Print the default of a setting and its range. */
static void put_setting(const struct cli_setting *s)
{
    bool counts = strcmp(s->kind, "NUMBER") == 0 || strcmp(s->kind, "SIZE") == 0;
    if (s->given[0] != '\0') printf("The default is\n.Cm %s .\n", s->given);
    if (counts) printf("It can be from %lld to %lld.\n", s->min, s->max);
    if (strcmp(s->kind, "TIME") == 0)
        printf("It can be from %lld to %lld milliseconds.\n", s->min, s->max);
}

static void mdoc_options(const char *name)
{
    puts(".Bl -tag -width Ds");
    for (const struct cli_option *o = pages_find(name)->options; o->id != 0; o++) {
        const struct cli_setting *s = cli_setting_of(o);
        put_names(o);
        if (o->more != NULL) puts(o->more);
        else put_prose(o->help);
        if (s != NULL) put_setting(s);
    }
    puts(".El");
}

/* Print the options that "[options]" stands for: first all letters without a value
 * together, then the others. */
static void put_options(const struct cli_command *c)
{
    fputs(".Op Fl ", stdout);
    for (const struct cli_option *o = c->options; o->id != 0; o++)
        if (o->arg == NULL) fputs(o->letters, stdout);
    putchar('\n');
    for (const struct cli_option *o = c->options; o->id != 0; o++) {
        if (o->arg == NULL && o->letters[0] != '\0') continue;
        if (o->letters[0] != '\0') printf(".Op Fl %c", o->letters[0]);
        else printf(".Op Fl Fl %.*s", (int)strcspn(o->names, " "), o->names);
        if (o->arg != NULL) printf(" Ar %s", o->arg);
        putchar('\n');
    }
}

/* Print one word of a synopsis: KEY, NAME..., -q, --json, --, 'SHELL COMMAND'.
 * Returns its length. */
static size_t put_word(const char *lead, const char *p)
{
    const char *close = p[0] == '\'' ? strchr(p + 1, '\'') : NULL;
    size_t all = close != NULL ? (size_t)(close - p) + 1 : strcspn(p, " []\n");
    bool dots = all > 3 && strncmp(p + all - 3, "...", 3) == 0;
    size_t n = dots ? all - 3 : all;
    if (n >= 2 && p[0] == '-' && p[1] == '-')
        printf("%sFl Fl%s%.*s", lead, n > 2 ? " " : "", (int)n - 2, p + 2);
    else if (p[0] == '-') printf("%sFl %.*s", lead, (int)n - 1, p + 1);
    else if (close != NULL) printf("%sAr \\(aq%.*s\\(aq", lead, (int)n - 2, p + 1);
    else printf("%sAr %.*s", lead, (int)n, p);
    if (dots) fputs(" ...", stdout);
    return all;
}

/* Print one form of a command: a line for each word and for each outermost bracket. */
static void put_form(const struct cli_command *c, const char *p, bool expand)
{
    static const char options[] = "[options]";
    int depth = 0;
    printf(".Nm sluice %s\n", c->name);
    while (*p != '\0' && *p != '\n') {
        const char *lead = depth > 0 ? " " : ".";
        if (*p == ' ') {
            p++;
            continue;
        }
        if (expand && strncmp(p, options, strlen(options)) == 0) {
            put_options(c);
            p += strlen(options);
            continue;
        }
        if (*p == '[') {
            printf("%sOp", lead);
            depth++, p++;
            continue;
        }
        if (*p == ']') depth--, p++;
        else p += put_word(lead, p);
        if (depth == 0) putchar('\n');
    }
    if (depth != 0) pages_fail("the brackets of \"%s\" do not match", c->name);
}

/* Print the synopsis of a command. The first form shows all options. */
static void mdoc_synopsis(const char *name)
{
    const struct cli_command *c = pages_find(name);
    const char *form = c->synopsis;
    put_form(c, form, true);
    while ((form = strchr(form, '\n')) != NULL) put_form(c, ++form, false);
}

static void mdoc_commands(const char *unused)
{
    (void)unused;
    puts(".Bl -tag -width Ds");
    for (const struct cli_command *c = cli_commands; c < cli_commands + CLI_COMMANDS;
         c++) {
        printf(".It Cm %s\n", c->name);
        put_prose(c->summary);
    }
    puts(".El");
}

/* Print the error codes of the server that have a status. */
static void put_errors(const char *errors)
{
    const char *word;
    size_t n;
    printf("Also for the error%s\n", strchr(errors, ' ') != NULL ? "s" : "");
    while ((word = pages_next_word(&errors, &n)) != NULL)
        printf(".Ql %.*s %s\n", (int)n, word, *errors != '\0' ? "," : ".");
}

/* Return whether one of these commands, separated by spaces, can exit with this status. */
static bool is_exit_of_any(const struct cli_exit *e, const char *commands)
{
    const char *name;
    char word[PAGES_NAME_SIZE];
    size_t n;
    while ((name = pages_next_word(&commands, &n)) != NULL) {
        snprintf(word, sizeof word, "%.*s", (int)n, name);
        if (cli_exit_is_of(e, word)) return true;
    }
    return false;
}

/* Print the exit statuses of a command; or those of several or all commands, with their names. */
static void mdoc_exits(const char *command)
{
    static const char plus[] = "plus n: ";
    bool all = command[0] == '\0' || strchr(command, ' ') != NULL;
    int last = 0;
    puts(".Bl -tag -width Ds");
    for (const struct cli_exit *e = cli_exits; e->when != NULL; e++) {
        bool added = strncmp(e->when, plus, strlen(plus)) == 0;
        const char *at = e->commands, *name, *comma = "";
        size_t n;
        if (command[0] != '\0' && !is_exit_of_any(e, command)) continue;
        if (e->status != last)
            printf(added ? ".It %d + Ar n\n" : ".It %d\n", e->status);
        else puts(".br");
        last = e->status;
        if (all) fputs(".Cm ", stdout);
        while (all && (name = pages_next_word(&at, &n)) != NULL) {
            printf("%s%.*s", comma, (int)n, name);
            comma = " , ";
        }
        if (all) puts(" :");
        put_prose(added ? e->when + strlen(plus) : e->when);
        if (!all && e->errors != NULL) put_errors(e->errors);
    }
    puts(".El");
    if (last == 0) pages_fail("no command \"%s\" has exit statuses", command);
}

static void put_variables(const struct cli_variable *v)
{
    puts(".Bl -tag -width Ds");
    for (; v->name != NULL; v++) {
        printf(".It Ev %s\n", v->name);
        put_prose(v->what);
    }
    puts(".El");
}

static void mdoc_reads(const char *unused)
{
    (void)unused;
    put_variables(cli_reads);
}

static void mdoc_given(const char *unused)
{
    (void)unused;
    put_variables(cli_given);
}

/* --- The server's config file --------------------------------------------- */

/* Print a comment, wrapped. */
static void put_comment(const char *text)
{
    size_t column = 0, n;
    const char *word;
    while ((word = pages_next_word(&text, &n)) != NULL) {
        if (column > 0 && column + 1 + n > COLUMNS) {
            putchar('\n');
            column = 0;
        }
        column += (size_t)printf(column == 0 ? "# %.*s" : " %.*s", (int)n, word);
    }
    putchar('\n');
}

/* Print each setting of the config file as a comment, with its default. For a setting
 * without a default, print the name of its value. */
static void conf_settings(const char *unused)
{
    (void)unused;
    for (const struct cli_setting *s = cli_settings; s->name != NULL; s++) {
        if (strcmp(s->name, "config") == 0) continue; /* The file cannot name itself. */
        putchar('\n');
        put_comment(s->help);
        printf("#%s = %s\n", s->name, s->given[0] != '\0' ? s->given : s->arg);
    }
}

/* --- Templates ------------------------------------------------------------ */

static const struct marker {
    const char *name;
    void (*fill)(const char *argument);
} markers[] = {
    {"synopsis", mdoc_synopsis}, /* of a command */
    {"options", mdoc_options},   /* of a command */
    {"commands", mdoc_commands}, /* all commands */
    {"exits", mdoc_exits},       /* exit statuses: all, or those of some commands */
    {"reads", mdoc_reads},       /* variables that we read */
    {"given", mdoc_given},       /* variables that a command sees */
    {"bash-commands", pages_bash_commands},  /* cases of first and of second words */
    {"bash-table", pages_bash_table},        /* cases of commands */
    {"bash-server", pages_bash_server},      /* cases of the server's commands */
    {"bash-options", pages_bash_options_of}, /* of a command */
    {"zsh-commands", pages_zsh_commands},
    {"zsh-table", pages_zsh_table},
    {"zsh-server", pages_zsh_server},
    {"zsh-options", pages_zsh_options_of},
    {"settings", conf_settings}, /* lines of the server's config file */
};

/* Return whether a line is a marker. Splits it into name and argument. */
static bool is_marker(char *line, char **argument)
{
    size_t n = strlen(line);
    if (n < 3 || line[0] != '@' || line[n - 1] != '@') return false;
    line[n - 1] = '\0';
    *argument = line + strcspn(line, " ");
    if (**argument != '\0') *(*argument)++ = '\0';
    return true;
}

static void fill(const char *name, const char *argument)
{
    for (size_t i = 0; i < sizeof markers / sizeof *markers; i++) {
        if (strcmp(markers[i].name, name) != 0) continue;
        markers[i].fill(argument);
        return;
    }
    pages_fail("there is no marker \"%s\"", name);
}

/* Print a line of an example so that users can copy it from the man page and paste
 * it. */
static void put_code(const char *line)
{
    if (line[0] == '.') fputs("\\&", stdout);
    for (const char *p = line; *p != '\0'; p++) {
        switch (*p) {
            case '-': fputs("\\-", stdout); break;
            case '\'': fputs("\\(aq", stdout); break;
            case '`': fputs("\\(ga", stdout); break;
            case '^': fputs("\\(ha", stdout); break;
            case '~': fputs("\\(ti", stdout); break;
            case '\\': fputs("\\e", stdout); break;
            default: putchar(*p);
        }
    }
    putchar('\n');
}

int main(int argc, char **argv)
{
    char line[LINE_SIZE], *argument;
    bool code = false;
    if (argc != 2) pages_fail("usage: pages TEMPLATE");
    FILE *in = fopen(argv[1], "r");
    if (in == NULL) pages_fail("cannot open %s", argv[1]);
    while (fgets(line, sizeof line, in) != NULL) {
        size_t n = strcspn(line, "\n");
        if (line[n] == '\0')
            pages_fail("%s: a line is too long, or has no end", argv[1]);
        line[n] = '\0';
        if (code && strcmp(line, ".Ed") == 0) code = false;
        if (code) put_code(line);
        else if (is_marker(line, &argument)) fill(line + 1, argument);
        else puts(line);
        if (strncmp(line, ".Bd -literal", 12) == 0) code = true;
    }
    if (ferror(in)) pages_fail("cannot read %s", argv[1]);
    fclose(in);
    if (fflush(stdout) != 0 || ferror(stdout))
        pages_fail("cannot write to standard output: %s", strerror(errno));
    return 0;
}
