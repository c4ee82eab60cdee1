/* guard.h - the process that stops the command of `sluice run` before the lease on the server
 * expires.
 *
 * The guard is the parent of the command, and inherits the orphans among its descendants. The
 * renewer writes into the shared page when the leases expire. Shortly before that time, the guard
 * sends SIGTERM to all descendants, and then kills them until none is left. It needs no other process
 * for this: the renewer, the wrapper, the server and the network may all have failed. */
#ifndef SL_CLI_GUARD_H
#define SL_CLI_GUARD_H

#include <stdbool.h>

#include "cli/shared.h"
#include "cli/terminal.h"

struct cli_guard {
    struct cli_shared *shared;
    pid_t wrapper;
    const char *keys; /* For messages. */
    char **argv;      /* The command. */
    int64_t grace_ms; /* From SIGTERM to SIGKILL, at most. */
    bool close; /* Release the locks when the command ends, even if descendants run. */
    struct cli_terminal terminal;
    sigset_t mask;             /* The signal mask of the command. */
    struct sigaction on_child; /* Its SIGCHLD. */
};

/* Do the work of the guard, in a process of its own. */
void cli_guard(struct cli_guard *g);

/* Kill the descendants of this process, which is a child subreaper, until none is left. Also reaps
 * its children. */
void cli_kill_descendants(void);

#endif /* SL_CLI_GUARD_H */
