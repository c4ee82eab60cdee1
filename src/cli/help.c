#include "cli/help.h"

#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "base/duration.h"
#include "cli/exits.h"
#include "cli/find.h"
#include "cli/message.h"
#include "sluice.h"

#define COLUMN 30  /* The column where the description of an option begins, */
#define COLUMNS 90 /* and the column where it is wrapped. */

/* Print text that begins at a column, and wrap it. */
static void put_text(const char *text, int column)
{
    size_t width = (size_t)(COLUMNS - column);
    while (strlen(text) > width) {
        size_t n = width;
        while (n > 0 && text[n] != ' ') n--;
        if (n == 0) break; /* A word that is longer than a line. */
        printf("%.*s\n%*s", (int)n, text, column, "");
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
    snprintf(text, sizeof text, has_default ? "%s (default: %s)" : "%s", o->help,
             has_default ? s->given : "");
    put_text(text, COLUMN);
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

/* Format the reason for an exit status: "...; also for the errors NOAUTH, NOPERM". */
static void put_when(const struct cli_exit *e, char *out, size_t size)
{
    size_t n = (size_t)snprintf(out, size, "%s%s", e->when,
                                e->errors == NULL ? ""
                                : strchr(e->errors, ' ') == NULL
                                    ? "; also for the error "
                                    : "; also for the errors ");
    for (const char *p = e->errors; p != NULL && *p != '\0' && n + 2 < size; p++) {
        if (*p == ' ') out[n++] = ',';
        out[n++] = *p;
    }
    out[n] = '\0';
}

/* Print the exit statuses of a command. */
static void put_exits(const char *command, const char *lead)
{
    enum { EXIT_COLUMN = 8 };
    static const char plus[] = "plus n: ";
    char text[1024];
    printf("\n%s\n", lead);
    for (const struct cli_exit *e = cli_exits; e->when != NULL; e++) {
        bool added = strncmp(e->when, plus, strlen(plus)) == 0;
        if (!cli_exit_is_of(e, command)) continue;
        if (added) printf(" %d+n  ", e->status);
        else printf("%*d  ", EXIT_COLUMN - 2, e->status);
        put_when(e, text, sizeof text);
        put_text(added ? text + strlen(plus) : text, EXIT_COLUMN);
    }
}

/* Examples and notes below the options of a command. */
static const struct {
    enum cli_id id;
    const char *exits; /* The line above the exit statuses; NULL: print none. */
    const char *text;
} notes[] = {
    {CLI_RUN, "Exit status: the status of the command, or",
     "Run one backup at a time; exit at once if a backup is already running:\n"
     "  sluice run -n backup -- /usr/local/bin/backup\n"
     "Run at most four conversions at once:\n"
     "  sluice run -j 4 convert -- convert in.png out.jpg\n"
     "\nMore: man sluice-run\n"},
    {CLI_CANAL_SHOW, NULL,
     "Show all locks of the default segment, and then one of them:\n"
     "  sluice canal show\n"
     "  sluice canal show backup\n"},
    {CLI_SERVE, NULL,
     "TIME is a duration: " SL_DURATION_FORMS "; a plain number is in milliseconds.\n"
     "BYTES is a size: 64k, 8m or 1g; a plain number is in bytes.\n"
     "All options except --config, --check, --version and --help can also be lines in "
     "the\n"
     "configuration file: name = value\n"
     "\nStart a server for this machine, and acquire a lock:\n"
     "  sluice serve\n"
     "  sluice do ACQUIRE backup LEASE 60s\n"
     "\nMore: man sluice-serve\n"},
    {CLI_LS, "Exit status: 0, or",
     "Show the locks that clients wait for, and then why they wait for one of them:\n"
     "  sluice ls\n"
     "  sluice explain db:shop\n"
     "PATTERN selects keys: * matches any text, ? any character, [a-z] one of a "
     "range.\n"
     "\nMore: man sluice-ops\n"},
    {CLI_EXPLAIN, "Exit status: 0, or",
     "Show the holders and waiters of a lock:\n"
     "  sluice explain db:shop\n"
     "\nMore: man sluice-ops\n"},
    {CLI_WATCH, "Exit status: 0, or",
     "Print the events of all locks, and those of some locks:\n"
     "  sluice watch\n"
     "  sluice watch 'db:*'\n"
     "\nMore: man sluice-ops\n"},
    {CLI_BREAK, "Exit status: 0, or",
     "First try to make the holder release the lock. Then revoke its grant: the holder "
     "keeps the\n"
     "lock until its lease expires, or, with --now, loses it at once:\n"
     "  sluice break db:shop\n"
     "  sluice break --now db:shop\n"
     "\nMore: man sluice-ops\n"},
    {CLI_DRAIN, "Exit status: 0, or",
     "Grant no lock on some keys during maintenance; holders keep their locks:\n"
     "  sluice drain 'db:*' on\n"
     "  sluice drain 'db:*' off\n"
     "\nMore: man sluice-ops\n"},
    {CLI_NODES, "Exit status: 0, or",
     "Show a cluster, and ask each of its nodes whether it is ready:\n"
     "  sluice nodes --server db1,db2,db3\n"
     "\nMore: man sluice-ops\n"},
    {CLI_READY, "Exit status: 0 if the server is ready, or",
     "A health check:\n"
     "  sluice ready -q --timeout 2s\n"
     "\nMore: man sluice-ops\n"},
    {CLI_STORE_CHECK, NULL,
     "You can run this command while a server uses the store.\n"
     "  sluice store check /var/lib/sluice\n"},
    {CLI_STORE_DUMP, NULL,
     "You can run this command while a server uses the store.\n"
     "  sluice store dump /var/lib/sluice >saved\n"},
    {CLI_STORE_LOAD, NULL,
     "DIRECTORY must not contain a store. The command reads the dump from standard "
     "input.\n"
     "  sluice store load /var/lib/restored <saved\n"},
    {CLI_JOURNAL_SHOW, NULL,
     "You can run this command while a server uses the journal.\n"
     "  sluice journal show /var/lib/sluice\n"},
    {CLI_JOURNAL_CHECK, NULL,
     "You can run this command while a server uses the journal.\n"
     "  sluice journal check /var/lib/sluice\n"},
    {CLI_JOURNAL_FORGET, NULL,
     "The server must be stopped. A client that still holds one of the leases is not "
     "protected\n"
     "any more: another client can be granted the same lock.\n"
     "  sluice journal forget /var/lib/sluice backup\n"},
    {CLI_DO, "Exit status: 0 if the reply is neither nil nor an error, or",
     "Options precede COMMAND. \"sluice do COMMAND LIST\" lists the commands of the "
     "server.\n"
     "\nAcquire a lock for a minute, and show its holder:\n"
     "  sluice do ACQUIRE backup LEASE 60s NOTE nightly\n"
     "  sluice do EXPLAIN backup\n"
     "Show the holder of a lock on another machine, with a password:\n"
     "  SLUICE_PASSWORD=... sluice do -h locks.example -p 5625 EXPLAIN backup\n"
     "\nMore, including a script that runs a job under a lock: man sluice-do\n"},
    {CLI_ACQUIRE, "Exit status: 0 if the lock was granted, or",
     "In a script; the first line ends it if the lock is not granted for any "
     "reason:\n"
     "  lock=$(sluice acquire --shell --lease 60s backup) || exit\n"
     "  eval \"$lock\"\n"
     "  ...\n"
     "  sluice extend || exit\n"
     "  ...\n"
     "  sluice release\n"
     "\nMore: man sluice-acquire\n"},
    {CLI_EXTEND, "Exit status: 0 if the lease was extended, or",
     "Without KEY and FENCE, the variables that sluice acquire or sluice hold has set "
     "name the lock.\n"
     "\nMore: man sluice-acquire\n"},
    {CLI_RELEASE, "Exit status: 0 if the lock was held and is now released, or",
     "Without KEY and FENCE, the variables that sluice acquire or sluice hold has set "
     "name the lock.\n"
     "\nMore: man sluice-acquire\n"},
    {CLI_HOLD, "Exit status: 0 if the lock was granted and later released, or",
     "In a script; the lock is released when the script ends:\n"
     "  lock=$(sluice hold --shell --pid $$ --kill backup) || exit\n"
     "  eval \"$lock\"\n"
     "\nMore: man sluice-acquire\n"},
    {CLI_TOP, "Exit status: 0 if you quit, or",
     "On a terminal, press ? for help. Print the locks once, or twice as JSON:\n"
     "  sluice top --once\n"
     "  sluice top --count 2 --json\n"
     "\nMore: man sluice-top\n"},
    {CLI_BENCH, "Exit status: 0 if locks were granted and no error occurred, or",
     "Check a server for one second:\n"
     "  sluice bench --duration 1s --clients 4\n"
     "\nMore: man sluice-bench\n"},
};

static void put_notes(const struct cli_command *c)
{
    for (size_t i = 0; i < sizeof notes / sizeof *notes; i++) {
        if (notes[i].id != c->id) continue;
        if (notes[i].exits != NULL) put_exits(c->name, notes[i].exits);
        printf("\n%s", notes[i].text);
    }
}

/* Print the last part of the help of a group such as "canal", or of one of its commands. */
static void put_group_notes(const char *group, size_t n)
{
    char name[32], lead[80];
    snprintf(name, sizeof name, "%.*s", (int)n, group);
    snprintf(lead, sizeof lead, "Exit status of the %s commands: 0, or", name);
    put_exits(name, lead);
    printf("\nMore: man sluice-%s\n", name);
}

static void put_command(const struct cli_command *c)
{
    printf("sluice %s - %s\n\n", c->name, c->summary);
    put_synopsis(c);
    putchar('\n');
    for (const struct cli_option *o = c->options; o->id != 0; o++) put_option(o);
}

void cli_help(const struct cli_command *c)
{
    size_t n = strcspn(c->name, " ");
    put_command(c);
    put_notes(c);
    if (c->name[n] != '\0') put_group_notes(c->name, n);
}

void cli_help_all(void)
{
    printf("sluice %s - locks for commands and programs, on one machine or several\n\n"
           "usage: sluice COMMAND [options] ...\n\n",
           SLUICE_VERSION);
    for (size_t i = 0; i < CLI_COMMANDS; i++)
        printf("  %-14s %s\n", cli_commands[i].name, cli_commands[i].summary);
    fputs("\nHold a lock for ten seconds:       sluice run backup -- sleep 10\n"
          "Meanwhile, in another terminal:    sluice run -n backup -- echo mine\n"
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
        put_command(&cli_commands[i]);
    }
    if (found > 0) put_group_notes(group, n);
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
