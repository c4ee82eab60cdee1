#include "cli/help.h"

#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "cli/exits.h"
#include "cli/find.h"
#include "cli/message.h"
#include "sluice.h"

#define COLUMN 30  /* Where the description of an option begins, */
#define COLUMNS 90 /* and where it is wrapped. */

/* Print text from COLUMN on, wrapped. */
static void put_text(const char *text)
{
    size_t room = COLUMNS - COLUMN;
    while (strlen(text) > room) {
        size_t n = room;
        while (n > 0 && text[n] != ' ') n--;
        if (n == 0) break; /* A word that is longer than a line. */
        printf("%.*s\n%*s", (int)n, text, COLUMN, "");
        text += n + 1;
    }
    puts(text);
}

static void put_option(const struct cli_option *o)
{
    char left[128], text[512];
    size_t n = strcspn(o->names, " ");
    const struct cli_setting *s = cli_setting_of(o);
    bool has_default = s != NULL && s->given[0] != '\0';
    snprintf(left, sizeof left, "%s%.1s%s--%.*s%s%s", o->letters[0] ? "-" : "  ",
             o->letters, o->letters[0] ? ", " : "  ", (int)n, o->names,
             o->arg != NULL ? " " : "", o->arg != NULL ? o->arg : "");
    if (strlen(left) <= COLUMN - 3) printf("  %-*s ", COLUMN - 3, left);
    else printf("  %s\n%*s", left, COLUMN, "");
    snprintf(text, sizeof text, has_default ? "%s (%s)" : "%s", o->help,
             has_default ? s->given : "");
    put_text(text);
}

static void put_synopsis(const struct cli_command *c)
{
    const char *lead = "usage:";
    for (const char *p = c->synopsis;; p++) {
        size_t n = strcspn(p, "\n");
        printf("%-6s sluice %s%s%.*s\n", lead, c->name, n > 0 ? " " : "", (int)n, p);
        lead = "";
        p += n;
        if (*p == '\0') break;
    }
}

static void put_run_more(void)
{
    fputs("\nExit status: the command's own, or\n", stdout);
    for (const struct cli_exit *e = cli_exits; e->when != NULL; e++)
        printf("  %4d  %s\n", e->status, e->when);
    fputs("\nOne backup at a time, and none that waits behind it:\n"
          "  sluice run -n backup -- /usr/local/bin/backup\n"
          "At most four conversions at once:\n"
          "  sluice run -j 4 convert -- convert in.png out.jpg\n"
          "\nMore: man sluice-run\n",
          stdout);
}

static void put_serve_more(void)
{
    fputs("\nTimes: 500ms, 5s, 2m, 1h; a bare number is ms. Sizes: 512, 64k, 8m.\n"
          "All but --config, --check, --version and --help may stand in a file:\n"
          "name = value\n"
          "\nA server for this machine, and a first lock:\n"
          "  sluice serve\n"
          "  redis-cli -p 5625 ACQUIRE backup LEASE 60000\n"
          "\nMore: man sluice-serve\n",
          stdout);
}

static void put_do_more(void)
{
    fputs("\nWORDs are a command of the server and what belongs to it. The password is "
          "never\n"
          "one of them: $SLUICE_PASSWORD or --password-file says it.\n"
          "\nA lock for a minute, and who has it:\n"
          "  sluice do ACQUIRE backup LEASE 60000 NOTE nightly\n"
          "  sluice do EXPLAIN backup\n"
          "\nMore: man sluice-do\n",
          stdout);
}

void cli_help(const struct cli_command *c)
{
    printf("sluice %s - %s\n\n", c->name, c->summary);
    put_synopsis(c);
    putchar('\n');
    for (const struct cli_option *o = c->options; o->id != 0; o++) put_option(o);
    if (c->id == CLI_RUN) put_run_more();
    if (c->id == CLI_SERVE) put_serve_more();
    if (c->id == CLI_DO) put_do_more();
}

void cli_help_all(void)
{
    printf("sluice %s - locks that count, and come back when their holder dies\n\n"
           "usage: sluice COMMAND [options] ...\n\n",
           SLUICE_VERSION);
    for (size_t i = 0; i < CLI_COMMANDS; i++)
        printf("  %-12s %s\n", cli_commands[i].name, cli_commands[i].summary);
    fputs("\nThe first lock:  sluice run backup -- sleep 10\n"
          "and meanwhile:   sluice run -n backup -- echo mine\n"
          "\nMore: sluice help COMMAND, man sluice\n",
          stdout);
}

/* Print the help of all commands of a group such as "canal". */
static int help_on_group(const char *group)
{
    size_t n = strlen(group);
    int found = 0;
    for (size_t i = 0; i < CLI_COMMANDS; i++) {
        const char *name = cli_commands[i].name;
        if (strncmp(name, group, n) != 0 || name[n] != ' ') continue;
        if (found++ > 0) putchar('\n');
        cli_help(&cli_commands[i]);
    }
    if (found > 0) printf("\nMore: man sluice-%s\n", group);
    return found;
}

int cli_help_on(int argc, char **argv)
{
    int words;
    if (argc == 0) {
        cli_help_all();
        return cli_flush_output(0);
    }
    const struct cli_command *c = cli_find_command(argc, argv, &words);
    if (c != NULL && words == argc) {
        cli_help(c);
        return cli_flush_output(0);
    }
    if (argc == 1 && help_on_group(argv[0]) > 0) return cli_flush_output(0);
    return cli_unknown_command(argc, argv);
}
