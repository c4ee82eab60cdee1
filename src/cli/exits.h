/* exits.h - the exit statuses, which are those of sysexits.h where it has one. */
#ifndef SL_CLI_EXITS_H
#define SL_CLI_EXITS_H

#include <stdint.h>
#include <sysexits.h>

enum {
    EXIT_TAKEN = 1,
    EXIT_USAGE = EX_USAGE,
    EXIT_DATA = EX_DATAERR,
    EXIT_NO_INPUT = EX_NOINPUT,
    EXIT_UNAVAILABLE = EX_UNAVAILABLE,
    EXIT_SYSTEM = EX_OSERR,
    EXIT_EXISTS = EX_CANTCREAT,
    EXIT_NO_PERMISSION = EX_NOPERM,
    EXIT_LOST = 79, /* Outside of what programs, sysexits.h and shells use. */
    EXIT_CANNOT_EXECUTE = 126,
    EXIT_NOT_FOUND = 127,
    EXIT_SIGNALLED = 128,
};

/* The exit status for a status of the library. */
int cli_exit_of(int64_t status);

#endif /* SL_CLI_EXITS_H */
