/* exits.h - the exit statuses. Most of them are those of sysexits.h. */
#ifndef SL_CLI_EXITS_H
#define SL_CLI_EXITS_H

#include <stdint.h>
#include <sysexits.h>

enum {
    CLI_EXIT_TAKEN = 1,
    CLI_EXIT_USAGE = EX_USAGE,
    CLI_EXIT_DATA = EX_DATAERR,
    CLI_EXIT_NO_INPUT = EX_NOINPUT,
    CLI_EXIT_UNAVAILABLE = EX_UNAVAILABLE,
    CLI_EXIT_SYSTEM = EX_OSERR,
    CLI_EXIT_EXISTS = EX_CANTCREAT,
    CLI_EXIT_NO_PERMISSION = EX_NOPERM,
    /* Neither programs nor sysexits.h nor shells use this number. */
    CLI_EXIT_LOST = 79,
    CLI_EXIT_CANNOT_EXECUTE = 126,
    CLI_EXIT_NOT_FOUND = 127,
    CLI_EXIT_SIGNALLED = 128,
};

/* Convert a status of the library to an exit status. */
int cli_exit_of(int64_t status);

#endif /* SL_CLI_EXITS_H */
