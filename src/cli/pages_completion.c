/* pages_completion.c - generates the completions for bash and zsh from the table. */
#include <ctype.h>
#include <stdio.h>
#include <string.h>

#include "cli/pages.h"

/* --- Completion ----------------------------------------------------------- */

/* Print all names of an option, letters first. */
static void put_all_names(const struct cli_option *o, const char *between,
                          const char *behind_letter, const char *behind_name)
{
    const char *names = o->names, *name;
    size_t n, count = 0;
    for (const char *l = o->letters; *l != '\0'; l++)
        printf("%s-%c%s", count++ > 0 ? between : "", *l, behind_letter);
    while ((name = pages_next_word(&names, &n)) != NULL)
        printf("%s--%.*s%s", count++ > 0 ? between : "", (int)n, name, behind_name);
}

/* Print the first word of each command. */
static void put_first_words(void (*put)(const struct cli_command *, const char *))
{
    char group[PAGES_NAME_SIZE];
    for (const struct cli_command *c = cli_commands; c < cli_commands + CLI_COMMANDS;
         c++) {
        if (!pages_group_of(c, group)) put(c, NULL);
        else if (pages_begins_group(c, group)) put(c, group);
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
 * [WAIT time]". */
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

void pages_bash_server(const char *unused)
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

void pages_zsh_server(const char *unused)
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
void pages_bash_commands(const char *unused)
{
    char group[PAGES_NAME_SIZE];
    (void)unused;
    fputs("        '') found=(", stdout);
    put_first_words(bash_word);
    puts(" ) ;;");
    for (const struct cli_command *c = cli_commands; c < cli_commands + CLI_COMMANDS;
         c++) {
        if (!pages_begins_group(c, group)) continue;
        printf("        %s) found=(", group);
        for (const struct cli_command *d = c; (d = pages_next_of(group, d)) != NULL;
             d++)
            printf(" %s", pages_last_word(d));
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
        pages_next_word(&names, &n);
        while ((name = pages_next_word(&names, &n)) != NULL)
            printf(" --%.*s", (int)n, name);
    }
    puts(" )");
    fputs("            values=(", stdout);
    for (const struct cli_option *o = c->options; o->id != 0; o++) {
        char behind[PAGES_NAME_SIZE];
        if (o->arg == NULL) continue;
        bool choice = o->arg_kind == CLI_ARG_CHOICE;
        snprintf(behind, sizeof behind, "=%s%s%s%s", pages_kind_name(o->arg_kind),
                 choice ? "':" : "", choice ? o->arg : "", choice ? "'" : "");
        putchar(' ');
        put_all_names(o, " ", behind, behind);
    }
    puts(" )");
}

void pages_bash_options_of(const char *name)
{
    bash_options(pages_find(name));
}

void pages_bash_table(const char *unused)
{
    (void)unused;
    for (const struct cli_command *c = cli_commands; c < cli_commands + CLI_COMMANDS;
         c++) {
        bool again;
        size_t n = pages_count_words(c, &again);
        printf("        '%s')\n", c->name);
        bash_options(c);
        fputs("            words=(", stdout);
        for (size_t i = 0; i < n; i++) printf(" %s", pages_kind_name(c->args[i]));
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
        for (const struct cli_command *d = c; (d = pages_next_of(group, d)) != NULL;
             d++) {
            printf("%s%s", comma, pages_last_word(d));
            comma = ", ";
        }
    }
    puts("'");
}

void pages_zsh_commands(const char *unused)
{
    char group[PAGES_NAME_SIZE];
    (void)unused;
    puts("    ('')\n      found=(");
    put_first_words(zsh_word);
    puts("      ) ;;");
    for (const struct cli_command *c = cli_commands; c < cli_commands + CLI_COMMANDS;
         c++) {
        if (!pages_begins_group(c, group)) continue;
        printf("    (%s)\n      found=(\n", group);
        for (const struct cli_command *d = c; (d = pages_next_of(group, d)) != NULL;
             d++) {
            printf("      '%s:", pages_last_word(d));
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
        default: printf(":_sluice_%ss", pages_kind_name(kind));
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

void pages_zsh_options_of(const char *name)
{
    for (const struct cli_option *o = pages_find(name)->options; o->id != 0; o++)
        zsh_option(o);
}

void pages_zsh_table(const char *unused)
{
    (void)unused;
    for (const struct cli_command *c = cli_commands; c < cli_commands + CLI_COMMANDS;
         c++) {
        bool again;
        size_t n = pages_count_words(c, &again);
        printf("    ('%s')\n      specs=(\n", c->name);
        for (const struct cli_option *o = c->options; o->id != 0; o++) zsh_option(o);
        for (size_t i = 0; i < n; i++) {
            /* Complete all arguments of a command or a topic together. */
            bool rest = c->args[i] == CLI_ARG_COMMAND || c->args[i] == CLI_ARG_TOPIC ||
                        c->args[i] == CLI_ARG_SERVER;
            const char *kind = pages_kind_name(c->args[i]);
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
