/* main.c - sluice-offline: commands that work on the files of a server, without the
 * server.
 *
 * `sluice store ...` executes this program, as `sluice serve` executes the server. So
 * `sluice` itself does not need LMDB or other large libraries. */
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
     offline_store_check},
    {"store", "dump", "print the transaction store as text", offline_store_dump},
    {"store", "load", "create a transaction store from a dump on standard input",
     offline_store_load},
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

/* --- The command line -------------------------------------------------------- */

static int finish_output(void)
{
    if (fflush(stdout) == 0 && !ferror(stdout)) return 0;
    offline_say("cannot write to standard output: %s", strerror(errno));
    return EX_OSERR;
}

static int print_help(void)
{
    const char *lead = "usage:";
    fputs("sluice-offline - check, dump and load the files of a server\n\n", stdout);
    for (int i = 0; i < COMMANDS; i++, lead = "")
        printf("%-6s sluice-offline %s %s DIRECTORY\n", lead, commands[i].noun,
               commands[i].verb);
    fputs("       sluice-offline --help | --version\n\n", stdout);
    for (int i = 0; i < COMMANDS; i++)
        printf("  %s %-6s %s\n", commands[i].noun, commands[i].verb,
               commands[i].summary);
    fputs("\nDIRECTORY is the data directory of a server (its setting \"data\").\n"
          "You can run check and dump while a server uses the store.\n"
          "load needs a directory that contains no store.\n"
          "\n\"sluice store COMMAND\" runs \"sluice-offline store COMMAND\".\n"
          "\nSave the store of a server, and create a copy of it:\n"
          "  sluice-offline store dump /var/lib/sluice >saved\n"
          "  sluice-offline store load /var/lib/restored <saved\n"
          "\nExit status: 0, or\n"
          "    64  the command line is invalid\n"
          "    65  the store is damaged, or the input of load is not a complete dump\n"
          "    66  the directory contains no store\n"
          "    71  the operating system reported an error\n"
          "    73  the directory already contains a store (only load)\n"
          "    73  the temporary file cannot be created (only dump)\n"
          "    77  no permission\n"
          "\nMore: man sluice-store\n",
          stdout);
    return finish_output();
}

static int print_version(void)
{
    printf("sluice-offline %s\n", SLUICE_VERSION);
    return finish_output();
}

static bool has_option(int argc, char **argv, const char *name, const char *letter)
{
    for (int i = 1; i < argc; i++)
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
    if (argc > 2)
        offline_say(
            "unknown command \"%s %s\"; the commands are store check, store dump "
            "and store load",
            argv[1], argv[2]);
    else if (argc > 1 && argv[1][0] == '-')
        offline_say("unknown option \"%s\"", argv[1]);
    else offline_say("a command is missing: store check, store dump or store load");
    fputs("Try: sluice-offline --help\n", stderr);
    return EX_USAGE;
}

int main(int argc, char **argv)
{
    enum { NOUN = 1, VERB, DIRECTORY, ARGUMENTS };
    signal(SIGXFSZ, SIG_IGN); /* A write beyond the limit then fails with EFBIG. */
    if (has_option(argc, argv, "--help", "-h")) return print_help();
    if (has_option(argc, argv, "--version", "-V")) return print_version();
    if (argc > VERB) current = find_command(argv[NOUN], argv[VERB]);
    if (current == NULL) return fail_to_find(argc, argv);
    if (argc > DIRECTORY && argv[DIRECTORY][0] == '-') {
        offline_say("unknown option \"%s\"", argv[DIRECTORY]);
        return EX_USAGE;
    }
    if (argc != ARGUMENTS || argv[DIRECTORY][0] == '\0') {
        offline_say("usage: sluice %s %s DIRECTORY, the data directory of a server",
                    current->noun, current->verb);
        return EX_USAGE;
    }
    return current->run(argv[DIRECTORY]);
}
