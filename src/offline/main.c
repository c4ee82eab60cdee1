/* main.c - sluice-offline: commands on the files of a stopped server.
 *
 * `sluice store ...` executes this program, as `sluice serve` executes the server. So `sluice`
 * itself links neither LMDB nor anything else that is large. */
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sysexits.h>

#include "offline/offline.h"
#include "sluice.h"

static const struct offline_command commands[] = {
    {"store", "check", "check every record of the store and print counts",
     offline_store_check},
    {"store", "dump", "print the store as text", offline_store_dump},
    {"store", "load", "create a store from the text of a dump (standard input)",
     offline_store_load},
};

enum { COMMANDS = sizeof commands / sizeof *commands };

static const struct offline_command *current; /* NULL: none is recognized yet. */

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

static int print_help(void)
{
    const char *lead = "usage:";
    for (int i = 0; i < COMMANDS; i++, lead = "")
        printf("%-6s sluice-offline %s %s DIRECTORY\n", lead, commands[i].noun,
               commands[i].verb);
    fputs("\nDIRECTORY is the data directory of a server (its --data).\n\n", stdout);
    for (int i = 0; i < COMMANDS; i++)
        printf("  %s %-8s %s\n", commands[i].noun, commands[i].verb,
               commands[i].summary);
    fputs("\nMore: man sluice-store\n", stdout);
    if (fflush(stdout) == 0) return 0;
    offline_say("the output could not be written");
    return EX_OSERR;
}

static bool asks_for_help(int argc, char **argv)
{
    for (int i = 1; i < argc; i++)
        if (strcmp(argv[i], "--help") == 0 || strcmp(argv[i], "-h") == 0) return true;
    return false;
}

static const struct offline_command *find_command(const char *noun, const char *verb)
{
    for (int i = 0; i < COMMANDS; i++)
        if (strcmp(commands[i].noun, noun) == 0 && strcmp(commands[i].verb, verb) == 0)
            return &commands[i];
    return NULL;
}

int main(int argc, char **argv)
{
    enum { NOUN = 1, VERB, DIRECTORY, WORDS };
    signal(SIGXFSZ, SIG_IGN); /* A write beyond the limit then fails with EFBIG. */
    if (asks_for_help(argc, argv)) return print_help();
    if (argc > VERB) current = find_command(argv[NOUN], argv[VERB]);
    if (current == NULL) {
        if (argc > VERB)
            offline_say("unknown command \"%s %s\"", argv[NOUN], argv[VERB]);
        else offline_say("a command is missing");
        fputs("Try: sluice-offline --help\n", stderr);
        return EX_USAGE;
    }
    if (argc > DIRECTORY && argv[DIRECTORY][0] == '-') {
        offline_say("unknown option \"%s\"", argv[DIRECTORY]);
        return EX_USAGE;
    }
    if (argc != WORDS || argv[DIRECTORY][0] == '\0') {
        offline_say("usage: sluice %s %s DIRECTORY", current->noun, current->verb);
        return EX_USAGE;
    }
    return current->run(argv[DIRECTORY]);
}
