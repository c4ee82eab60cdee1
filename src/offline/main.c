/* main.c - sluice-offline: commands that work on the files of a server, without the
 * server.
 *
 * `sluice store ...` and `sluice journal ...` execute this program, as `sluice serve` executes the
 * server. So `sluice` itself does not need LMDB or other large libraries. */
#include <errno.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sysexits.h>

#include "offline/offline.h"
#include "sluice.h"

static const struct offline_command commands[] = {
    {"store", "check", "check every record of the transaction store and print counts",
     .run = offline_store_check},
    {"store", "dump", "print the transaction store as text", .run = offline_store_dump},
    {"store", "load", "create a transaction store from a dump on standard input",
     .run = offline_store_load},
    {"journal", "show", "print the leases and limits in the journal",
     .run = offline_journal_show, .has_json = true},
    {"journal", "check", "check every record of the journal and print counts",
     .run = offline_journal_check},
    {"journal", "forget",
     "end all leases in the journal of a stopped server, or those of KEY",
     .run = offline_journal_forget, .has_key = true, .has_yes = true},
};

enum { COMMANDS = sizeof commands / sizeof *commands };

static const struct offline_command *current; /* NULL: not found yet. */

void offline_say(const char *format, ...)
{
    va_list args;
    va_start(args, format);
    if (current == NULL) fputs("sluice-offline: ", stderr);
    else fprintf(stderr, "sluice %s %s: ", current->noun, current->verb);
    vfprintf(stderr, format, args);
    fputc('\n', stderr);
    va_end(args);
}

int offline_exit_status(int status)
{
    switch (status) {
        case SLUICE_OK: return 0;
        case SLUICE_EINVAL:
        case SLUICE_EFOREIGN:
        case SLUICE_EVERSION:
        case SLUICE_ETRUNCATED: return EX_DATAERR;
        case SLUICE_ENOENT: return EX_NOINPUT;
        case SLUICE_EACCES: return EX_NOPERM;
        default: return EX_OSERR;
    }
}

int offline_exit_status_of_errno(int error)
{
    switch (error) {
        case 0: return 0;
        case ENOENT:
        case ENOTDIR: return EX_NOINPUT;
        case EACCES:
        case EPERM:
        case EROFS: return EX_NOPERM;
        default: return EX_OSERR;
    }
}

int offline_flush(void)
{
    if (fflush(stdout) == 0 && !ferror(stdout)) return 0;
    offline_say("cannot write to standard output: %s", strerror(errno));
    return EX_OSERR;
}

/* --- The command line -------------------------------------------------------- */

static const char help_tail[] =
    "\nDIRECTORY is the data directory of a server (its setting \"data\").\n"
    "You can run check, dump and show while a server uses the directory.\n"
    "load needs a directory that contains no store. forget needs a stopped server.\n"
    "\n\"sluice store COMMAND\" runs \"sluice-offline store COMMAND\", and\n"
    "\"sluice journal COMMAND\" runs \"sluice-offline journal COMMAND\".\n"
    "\nSave the store of a server, and create a copy of it:\n"
    "  sluice-offline store dump /var/lib/sluice >saved\n"
    "  sluice-offline store load /var/lib/restored <saved\n"
    "Show the leases that a server would hold after a restart:\n"
    "  sluice-offline journal show /var/lib/sluice\n"
    "\nExit status: 0, or\n"
    "     1  the key has no lease, or you did not confirm (only forget)\n"
    "    64  the command line is invalid\n"
    "    65  the file is damaged, or the input of load is not a complete dump\n"
    "    66  the directory does not exist, or does not contain the file\n"
    "    69  a server uses the directory (only forget)\n"
    "    71  the operating system reported an error\n"
    "    73  the directory already contains a store (only load)\n"
    "    73  the temporary file cannot be created (only dump)\n"
    "    77  no permission\n"
    "\nMore: man sluice-store, man sluice-journal\n";

static const char *synopsis_of(const struct offline_command *c)
{
    if (c->has_yes) return "[--yes] DIRECTORY [KEY]";
    return c->has_json ? "[--json] DIRECTORY" : "DIRECTORY";
}

static int print_help(void)
{
    const char *lead = "usage:";
    fputs("sluice-offline - commands that work on the files of a server\n\n", stdout);
    for (int i = 0; i < COMMANDS; i++, lead = "")
        printf("%-6s sluice-offline %s %s %s\n", lead, commands[i].noun,
               commands[i].verb, synopsis_of(&commands[i]));
    fputs("       sluice-offline --help | --version\n\n", stdout);
    for (int i = 0; i < COMMANDS; i++)
        printf("  %-7s %-6s %s\n", commands[i].noun, commands[i].verb,
               commands[i].summary);
    fputs(help_tail, stdout);
    return offline_flush();
}

static int print_version(void)
{
    printf("sluice-offline %s\n", SLUICE_VERSION);
    return offline_flush();
}

static bool has_option(int argc, char **argv, const char *name, const char *letter)
{
    for (int i = 1; i < argc && strcmp(argv[i], "--") != 0; i++)
        if (strcmp(argv[i], name) == 0 || strcmp(argv[i], letter) == 0) return true;
    return false;
}

static const struct offline_command *find_command(const char *noun, const char *verb)
{
    for (int i = 0; i < COMMANDS; i++)
        if (strcmp(commands[i].noun, noun) == 0 && strcmp(commands[i].verb, verb) == 0)
            return &commands[i];
    return NULL;
}

/* Report a command line that names no command. */
static int fail_to_find(int argc, char **argv)
{
    static const char list[] = "store check, store dump, store load, journal show, "
                               "journal check and journal forget";
    if (argc > 2)
        offline_say("unknown command \"%s %s\"; the commands are %s", argv[1], argv[2],
                    list);
    else if (argc > 1 && argv[1][0] == '-')
        offline_say("unknown option \"%s\"", argv[1]);
    else offline_say("a command is missing; the commands are %s", list);
    fputs("Try: sluice-offline --help\n", stderr);
    return EX_USAGE;
}

static bool take_option(struct offline_arguments *a, const char *option)
{
    if (current->has_json && strcmp(option, "--json") == 0) return a->json = true;
    if (current->has_yes && strcmp(option, "--yes") == 0) return a->yes = true;
    offline_say("unknown option \"%s\"", option);
    return false;
}

/* Parse what follows the name of the command. Returns 0 or an exit status. */
static int parse(int argc, char **argv, struct offline_arguments *a)
{
    const char *words[2];
    int count = 0, most = current->has_key ? 2 : 1;
    bool options = true;
    *a = (struct offline_arguments){0};
    for (int i = 0; i < argc; i++) {
        if (options && strcmp(argv[i], "--") == 0) options = false;
        else if (options && argv[i][0] == '-') {
            if (!take_option(a, argv[i])) return EX_USAGE;
        } else if (count++ < most) words[count - 1] = argv[i];
    }
    if (count < 1 || count > most || words[0][0] == '\0') {
        offline_say(
            "usage: sluice %s %s %s; DIRECTORY is the data directory of a server",
            current->noun, current->verb, synopsis_of(current));
        return EX_USAGE;
    }
    a->directory = words[0];
    a->key = count > 1 ? words[1] : NULL;
    return 0;
}

int main(int argc, char **argv)
{
    enum { NOUN = 1, VERB, REST };
    struct offline_arguments a;
    signal(SIGXFSZ, SIG_IGN); /* A write beyond the limit then fails with EFBIG. */
    if (has_option(argc, argv, "--help", "-h")) return print_help();
    if (has_option(argc, argv, "--version", "-V")) return print_version();
    if (argc > VERB) current = find_command(argv[NOUN], argv[VERB]);
    if (current == NULL) return fail_to_find(argc, argv);
    int status = parse(argc - REST, argv + REST, &a);
    return status != 0 ? status : current->run(&a);
}
