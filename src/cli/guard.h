/* guard.h - the process that stops the command of `sluice run` before the lease on the server
 * expires.
 *
 * The guard is the parent of the command, and inherits the orphans among its descendants. The
 * renewer writes into the shared page until when the locks are held. If that time comes, the
 * guard asks all descendants to stop, and then kills them until none is left. It needs no other
 * process for this: the renewer, the wrapper, the server and the network may all have failed. */
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
    bool close; /* The locks end with the command, even if descendants still run. */
    struct cli_terminal terminal;
    sigset_t mask;             /* The signal mask of the command. */
    struct sigaction on_child; /* Its SIGCHLD. */
};

/* Do the work of the guard, in a process of its own. */
void cli_guard(struct cli_guard *g);

/* Ask all descendants of a process that are not excepted to stop, and kill them until none is left.
 * Reaps children of this process meanwhile. */
void cli_kill_descendants(pid_t root, const pid_t *except);

#endif /* SL_CLI_GUARD_H */
