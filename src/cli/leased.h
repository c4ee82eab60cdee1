/* leased.h - `sluice run` with locks on a server: starts the processes that hold the locks and run
 * the command (shared.h), and ends as the command has ended. */
#ifndef SL_CLI_LEASED_H
#define SL_CLI_LEASED_H

#include <stdbool.h>
#include <stdint.h>

#include "cli/renewer.h"

struct cli_leased {
    struct cli_lease_request lease;
    char **argv; /* The command. */
    int64_t grace_ms;
    bool close; /* Release the locks when the command ends, even if descendants run. */
    bool verbose;
    const char *on_lost; /* Shell commands; NULL: none. */
    const char *on_asked;
};

/* Acquire the locks, run the command, and release the locks. Returns an exit status. If a signal
 * killed the command, this process may kill itself with the same signal instead. */
int cli_leased(const struct cli_leased *o);

#endif /* SL_CLI_LEASED_H */
