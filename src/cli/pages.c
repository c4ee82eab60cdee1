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

#include "cli/table.h"

#define LINE_SIZE 1024
#define NAME_SIZE 64
#define COLUMNS 80 /* Column where text from the table is wrapped. */

__attribute__((format(printf, 1, 2), noreturn)) static void fail(const char *format,
                                                                 ...)
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

static const struct cli_command *find(const char *name)
{
    for (size_t i = 0; i < CLI_COMMANDS; i++)
        if (strcmp(cli_commands[i].name, name) == 0) return &cli_commands[i];
    fail("there is no command \"%s\"", name);
}

/* Return the next word of a list separated by spaces, set *n to its length, and advance
 * *at. Returns NULL at the end. */
static const char *next_word(const char **at, size_t *n)
{
    const char *word = *at + strspn(*at, " ");
    *n = strcspn(word, " ");
    *at = word + *n;
    return *n > 0 ? word : NULL;
}

/* Get the group of a command: "canal" for "canal ls". Returns false for a command of
 * one word. */
static bool group_of(const struct cli_command *c, char group[NAME_SIZE])
{
    size_t n = strcspn(c->name, " ");
    if (c->name[n] == '\0') return false;
    if (n >= NAME_SIZE) fail("\"%s\" is too long", c->name);
    memcpy(group, c->name, n);
    group[n] = '\0';
    return true;
}

/* Return whether a command is the first of its group. The group is listed at that
 * place. */
static bool begins_group(const struct cli_command *c, char group[NAME_SIZE])
{
    char other[NAME_SIZE];
    if (!group_of(c, group)) return false;
    for (const struct cli_command *d = cli_commands; d < c; d++)
        if (group_of(d, other) && strcmp(group, other) == 0) return false;
    return true;
}

/* Return the next command of a group, starting with c; NULL if there is none. */
static const struct cli_command *next_of(const char *group, const struct cli_command *c)
{
    char own[NAME_SIZE];
    for (; c < cli_commands + CLI_COMMANDS; c++)
        if (group_of(c, own) && strcmp(own, group) == 0) return c;
    return NULL;
}

/* Return the last word of a command's name: "ls" for "canal ls". */
static const char *last_word(const struct cli_command *c)
{
    const char *blank = strrchr(c->name, ' ');
    return blank != NULL ? blank + 1 : c->name;
}

static const char *kind_name(enum cli_arg_kind kind)
{
    switch (kind) {
        case CLI_ARG_NONE: return "none";
        case CLI_ARG_TEXT: return "text";
        case CLI_ARG_KEY: return "key";
        case CLI_ARG_SEGMENT: return "segment";
        case CLI_ARG_COMMAND: return "command";
        case CLI_ARG_TOPIC: return "topic";
        case CLI_ARG_SERVER: return "server";
        case CLI_ARG_FILE: return "file";
        case CLI_ARG_CHOICE: return "choice";
    }
    fail("a word of an unknown kind, %d", (int)kind);
}

/* Return the number of arguments of a command. Sets *again if the last one can be
 * repeated ("NAME..."). */
static size_t count_words(const struct cli_command *c, bool *again)
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
    for (; (name = next_word(&names, &n)) != NULL; comma = " ,")
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
    for (const struct cli_option *o = find(name)->options; o->id != 0; o++) {
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
    if (depth != 0) fail("the brackets of \"%s\" do not match", c->name);
}

/* Print the synopsis of a command. The first form shows all options. */
static void mdoc_synopsis(const char *name)
{
    const struct cli_command *c = find(name);
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
    while ((word = next_word(&errors, &n)) != NULL)
        printf(".Ql %.*s %s\n", (int)n, word, *errors != '\0' ? "," : ".");
}

/* Print the exit statuses of a command, or of all commands with their names. */
static void mdoc_exits(const char *command)
{
    static const char plus[] = "plus n: ";
    bool all = command[0] == '\0';
    int last = 0;
    puts(".Bl -tag -width Ds");
    for (const struct cli_exit *e = cli_exits; e->when != NULL; e++) {
        bool added = strncmp(e->when, plus, strlen(plus)) == 0;
        const char *at = e->commands, *name, *comma = "";
        size_t n;
        if (!all && !cli_exit_is_of(e, command)) continue;
        if (e->status != last)
            printf(added ? ".It %d + Ar n\n" : ".It %d\n", e->status);
        else puts(".br");
        last = e->status;
        if (all) fputs(".Cm ", stdout);
        while (all && (name = next_word(&at, &n)) != NULL) {
            printf("%s%.*s", comma, (int)n, name);
            comma = " , ";
        }
        if (all) puts(" :");
        put_prose(added ? e->when + strlen(plus) : e->when);
        if (!all && e->errors != NULL) put_errors(e->errors);
    }
    puts(".El");
    if (last == 0) fail("no command \"%s\" has exit statuses", command);
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

/* --- Completion ----------------------------------------------------------- */

/* Print all names of an option, letters first. */
static void put_all_names(const struct cli_option *o, const char *between,
                          const char *behind_letter, const char *behind_name)
{
    const char *names = o->names, *name;
    size_t n, count = 0;
    for (const char *l = o->letters; *l != '\0'; l++)
        printf("%s-%c%s", count++ > 0 ? between : "", *l, behind_letter);
    while ((name = next_word(&names, &n)) != NULL)
        printf("%s--%.*s%s", count++ > 0 ? between : "", (int)n, name, behind_name);
}

/* Print the first word of each command. */
static void put_first_words(void (*put)(const struct cli_command *, const char *))
{
    char group[NAME_SIZE];
    for (const struct cli_command *c = cli_commands; c < cli_commands + CLI_COMMANDS;
         c++) {
        if (!group_of(c, group)) put(c, NULL);
        else if (begins_group(c, group)) put(c, group);
    }
}

/* --- Commands of the server ----------------------------------------------- */

/* Return whether a word of a syntax is in capitals, which means that it is an option
 * and not a value. */
static bool is_keyword(const char *word, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (!isupper((unsigned char)word[i]) && word[i] != '-') return false;
    return n > 1;
}

/* Return whether a whole word occurs in the syntax before `end`. */
static bool occurs_before(const char *syntax, const char *end, const char *word,
                          size_t n)
{
    for (const char *p = syntax; p < end; p += strspn(p, " []|")) {
        size_t length = strcspn(p, " []|");
        if (p < end && length == n && strncmp(p, word, n) == 0) return true;
        p += length;
    }
    return false;
}

/* Print each option in the syntax of a command once. */
static void put_keywords(const struct cli_server_command *c)
{
    const char *at = c->syntax + strcspn(c->syntax, " ");
    const char *first = at;
    while (*(at += strspn(at, " []|")) != '\0') {
        size_t n = strcspn(at, " []|");
        if (is_keyword(at, n) && !occurs_before(first, at, at, n))
            printf(" %.*s", (int)n, at);
        at += n;
    }
}

/* Return the number of values that precede the options of a command: 1 for "ACQUIRE key
 * [WAIT ms]". */
static int count_values(const struct cli_server_command *c)
{
    const char *at = c->syntax + strcspn(c->syntax, " ");
    int values = 0;
    while (islower((unsigned char)*(at += strspn(at, " ")))) {
        at += strcspn(at, " []|");
        if (at[strspn(at, " ")] == '|') return 0;
        values++;
    }
    return values;
}

static void bash_server(const char *unused)
{
    (void)unused;
    fputs("        '') found=(", stdout);
    for (const struct cli_server_command *c = cli_server_commands; c->name != NULL; c++)
        printf(" %s", c->name);
    puts(" ) ;;");
    for (const struct cli_server_command *c = cli_server_commands; c->name != NULL;
         c++) {
        printf("        %s) least=%d found=(", c->name, count_values(c));
        put_keywords(c);
        puts(" ) ;;");
    }
}

static void put_zsh(const char *text);

static void zsh_server(const char *unused)
{
    (void)unused;
    puts("    ('')\n      found=(");
    for (const struct cli_server_command *c = cli_server_commands; c->name != NULL;
         c++) {
        printf("      '%s:", c->name);
        put_zsh(c->summary);
        puts("'");
    }
    puts("      ) ;;");
    for (const struct cli_server_command *c = cli_server_commands; c->name != NULL;
         c++) {
        printf("    (%s) least=%d found=(", c->name, count_values(c));
        put_keywords(c);
        puts(" ) ;;");
    }
}

/* --- bash ----------------------------------------------------------------- */

/* Print a word in quotes, because "do" is a keyword of the shell. */
static void bash_word(const struct cli_command *c, const char *group)
{
    printf(" '%s'", group != NULL ? group : c->name);
}

/* Print the words after "sluice", and those that follow the first word of a group. */
static void bash_commands(const char *unused)
{
    char group[NAME_SIZE];
    (void)unused;
    fputs("        '') found=(", stdout);
    put_first_words(bash_word);
    puts(" ) ;;");
    for (const struct cli_command *c = cli_commands; c < cli_commands + CLI_COMMANDS;
         c++) {
        if (!begins_group(c, group)) continue;
        printf("        %s) found=(", group);
        for (const struct cli_command *d = c; (d = next_of(group, d)) != NULL; d++)
            printf(" %s", last_word(d));
        puts(" ) ;;");
    }
}

/* Print the options of a command. Completion offers letters and first names, and
 * completes other names when the user types their beginning. */
static void bash_options(const struct cli_command *c)
{
    size_t n;
    fputs("            options=(", stdout);
    for (const struct cli_option *o = c->options; o->id != 0; o++) {
        if (o->letters[0] != '\0') printf(" -%c", o->letters[0]);
        printf(" --%.*s", (int)strcspn(o->names, " "), o->names);
    }
    puts(" )");
    fputs("            others=(", stdout);
    for (const struct cli_option *o = c->options; o->id != 0; o++) {
        const char *names = o->names, *name;
        if (o->letters[0] != '\0')
            for (const char *l = o->letters + 1; *l != '\0'; l++) printf(" -%c", *l);
        next_word(&names, &n);
        while ((name = next_word(&names, &n)) != NULL) printf(" --%.*s", (int)n, name);
    }
    puts(" )");
    fputs("            values=(", stdout);
    for (const struct cli_option *o = c->options; o->id != 0; o++) {
        char behind[NAME_SIZE];
        if (o->arg == NULL) continue;
        bool choice = o->arg_kind == CLI_ARG_CHOICE;
        snprintf(behind, sizeof behind, "=%s%s%s%s", kind_name(o->arg_kind),
                 choice ? "':" : "", choice ? o->arg : "", choice ? "'" : "");
        putchar(' ');
        put_all_names(o, " ", behind, behind);
    }
    puts(" )");
}

static void bash_options_of(const char *name)
{
    bash_options(find(name));
}

static void bash_table(const char *unused)
{
    (void)unused;
    for (const struct cli_command *c = cli_commands; c < cli_commands + CLI_COMMANDS;
         c++) {
        bool again;
        size_t n = count_words(c, &again);
        printf("        '%s')\n", c->name);
        bash_options(c);
        fputs("            words=(", stdout);
        for (size_t i = 0; i < n; i++) printf(" %s", kind_name(c->args[i]));
        puts(" )");
        printf("            again=%s\n            ;;\n", again ? "yes" : "");
    }
}

/* --- zsh ------------------------------------------------------------------ */

/* Print text between single quotes. Escape the characters that are special to zsh's
 * functions. */
static void put_zsh(const char *text)
{
    for (const char *p = text; *p != '\0'; p++) {
        if (*p == '\'') fputs("'\\''", stdout);
        else if (strchr("[]:\\", *p) != NULL) printf("\\%c", *p);
        else putchar(*p);
    }
}

static void zsh_word(const struct cli_command *c, const char *group)
{
    const char *comma = "";
    if (group == NULL) {
        printf("      '%s:", c->name);
        put_zsh(c->summary);
    } else {
        printf("      '%s:", group);
        for (const struct cli_command *d = c; (d = next_of(group, d)) != NULL; d++) {
            printf("%s%s", comma, last_word(d));
            comma = ", ";
        }
    }
    puts("'");
}

static void zsh_commands(const char *unused)
{
    char group[NAME_SIZE];
    (void)unused;
    puts("    ('')\n      found=(");
    put_first_words(zsh_word);
    puts("      ) ;;");
    for (const struct cli_command *c = cli_commands; c < cli_commands + CLI_COMMANDS;
         c++) {
        if (!begins_group(c, group)) continue;
        printf("    (%s)\n      found=(\n", group);
        for (const struct cli_command *d = c; (d = next_of(group, d)) != NULL; d++) {
            printf("      '%s:", last_word(d));
            put_zsh(d->summary);
            puts("'");
        }
        puts("      ) ;;");
    }
}

/* Print the zsh action that completes an argument. Free text has only a description. A
 * choice is one of the alternatives in arg, which are separated by bars. */
static void put_zsh_action(enum cli_arg_kind kind, const char *arg)
{
    switch (kind) {
        case CLI_ARG_NONE:
        case CLI_ARG_TEXT: fputs(": ", stdout); break;
        case CLI_ARG_FILE: fputs(":_files", stdout); break;
        case CLI_ARG_CHOICE:
            fputs(":(", stdout);
            for (const char *p = arg; *p != '\0'; p++) putchar(*p == '|' ? ' ' : *p);
            putchar(')');
            break;
        default: printf(":_sluice_%ss", kind_name(kind));
    }
    puts("'");
}

/* Print an option in the format of _arguments: (excluded
 * options){names}[help]:value:action. */
static void zsh_option(const struct cli_option *o)
{
    bool single = o->letters[0] == '\0' && strchr(o->names, ' ') == NULL;
    fputs("        '", stdout);
    if (o->id == CLI_OPT_HELP)
        fputs("(- *)", stdout); /* --help excludes everything else. */
    else if (!single) {
        putchar('(');
        put_all_names(o, " ", "", "");
        putchar(')');
    }
    if (!single) fputs("'{", stdout);
    put_all_names(o, ",", o->arg != NULL ? "+" : "", o->arg != NULL ? "=" : "");
    if (!single) fputs("}'", stdout);
    putchar('[');
    put_zsh(o->help);
    if (o->arg == NULL) {
        puts("]'");
        return;
    }
    fputs("]:", stdout);
    put_zsh(o->arg_kind == CLI_ARG_TEXT ? o->help : o->arg);
    put_zsh_action(o->arg_kind, o->arg);
}

static void zsh_options_of(const char *name)
{
    for (const struct cli_option *o = find(name)->options; o->id != 0; o++)
        zsh_option(o);
}

static void zsh_table(const char *unused)
{
    (void)unused;
    for (const struct cli_command *c = cli_commands; c < cli_commands + CLI_COMMANDS;
         c++) {
        bool again;
        size_t n = count_words(c, &again);
        printf("    ('%s')\n      specs=(\n", c->name);
        for (const struct cli_option *o = c->options; o->id != 0; o++) zsh_option(o);
        for (size_t i = 0; i < n; i++) {
            /* Complete all arguments of a command or a topic together. */
            bool rest = c->args[i] == CLI_ARG_COMMAND || c->args[i] == CLI_ARG_TOPIC ||
                        c->args[i] == CLI_ARG_SERVER;
            const char *kind = kind_name(c->args[i]);
            printf("        '%s%s",
                   rest                  ? "*:::"
                   : again && i + 1 == n ? "*:"
                                         : ":",
                   kind);
            put_zsh_action(c->args[i], NULL);
        }
        puts("      ) ;;");
    }
}

/* --- The server's config file --------------------------------------------- */

/* Print a comment, wrapped. */
static void put_comment(const char *text)
{
    size_t column = 0, n;
    const char *word;
    while ((word = next_word(&text, &n)) != NULL) {
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
    {"synopsis", mdoc_synopsis},       /* of a command */
    {"options", mdoc_options},         /* of a command */
    {"commands", mdoc_commands},       /* all commands */
    {"exits", mdoc_exits},             /* exit statuses: all, or those of a command */
    {"reads", mdoc_reads},             /* variables that we read */
    {"given", mdoc_given},             /* variables that a command sees */
    {"bash-commands", bash_commands},  /* cases of first and of second words */
    {"bash-table", bash_table},        /* cases of commands */
    {"bash-server", bash_server},      /* cases of the server's commands */
    {"bash-options", bash_options_of}, /* of a command */
    {"zsh-commands", zsh_commands},
    {"zsh-table", zsh_table},
    {"zsh-server", zsh_server},
    {"zsh-options", zsh_options_of},
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
    fail("there is no marker \"%s\"", name);
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
    if (argc != 2) fail("usage: pages TEMPLATE");
    FILE *in = fopen(argv[1], "r");
    if (in == NULL) fail("cannot open %s", argv[1]);
    while (fgets(line, sizeof line, in) != NULL) {
        size_t n = strcspn(line, "\n");
        if (line[n] == '\0') fail("%s: a line is too long, or has no end", argv[1]);
        line[n] = '\0';
        if (code && strcmp(line, ".Ed") == 0) code = false;
        if (code) put_code(line);
        else if (is_marker(line, &argument)) fill(line + 1, argument);
        else puts(line);
        if (strncmp(line, ".Bd -literal", 12) == 0) code = true;
    }
    if (ferror(in)) fail("cannot read %s", argv[1]);
    fclose(in);
    if (fflush(stdout) != 0 || ferror(stdout))
        fail("cannot write to standard output: %s", strerror(errno));
    return 0;
}
