/* descendants.h - signals all descendants of a process, wherever they are.
 *
 * A process can leave its process group and its session, and a daemon leaves its parent. But if an
 * ancestor is a child subreaper (prctl(2)), its descendants stay its descendants. This module finds
 * them in /proc. It allocates no memory. */
#ifndef SL_CLI_DESCENDANTS_H
#define SL_CLI_DESCENDANTS_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

/* Send a signal to the descendants of `root`, except the processes of `except` (which ends with 0)
 * and their descendants. Returns the number of those that received it and have not ended; at least
 * 1 if this is not certain, because a process ended meanwhile. Call it again until it returns 0.
 * Signal 0 only counts them, and includes those of other users. If another signal is not permitted,
 * stores the id of such a process in *foreign. */
size_t cli_signal_descendants(pid_t root, const pid_t *except, int sig, pid_t *foreign);

/* Return how long to wait before SIGKILL is sent again, after a wait of `ms` (0: none). The waits
 * grow, because a search costs processor time that the killed processes need in order to end. */
static inline int64_t cli_kill_pause(int64_t ms)
{
    return ms == 0 ? 5 : ms < 40 ? 2 * ms : ms;
}

#endif /* SL_CLI_DESCENDANTS_H */
