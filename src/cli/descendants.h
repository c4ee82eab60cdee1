/* descendants.h - signals all descendants of this process, wherever they are.
 *
 * A process can leave its process group and its session, and a daemon leaves its parent. But if an
 * ancestor is a child subreaper (prctl(2)), its descendants stay its descendants. This module finds
 * them in /proc. A process that forks and ends while we read /proc can escape a search. But a subreaper
 * without children has no descendants, so the last search is certain. Allocates no memory. */
#ifndef SL_CLI_DESCENDANTS_H
#define SL_CLI_DESCENDANTS_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

/* Search /proc for the descendants of this process, which is a child subreaper, and send them SIGKILL, or
 * SIGTERM and SIGCONT. Returns the number of those that received it and have not ended; at least 1 if there
 * may be others. Reap the children that have ended, and call it again until it returns 0. If the signal is
 * not permitted, stores the id of such a process in *foreign, and does not count it. */
size_t cli_signal_descendants(int sig, pid_t *foreign);

/* Return whether this process has children, possibly some that have ended and were not reaped. If not, it
 * has no descendants. */
bool cli_has_child(void);

/* Send SIGKILL to the children of this process. Returns whether there are any, as cli_has_child().
 * This takes much less time than a search of /proc. It is sufficient for processes that fork and end again
 * and again: they are orphans, and so children of this process. It does nothing if the
 * kernel does not list children (CONFIG_PROC_CHILDREN). */
bool cli_kill_children(void);

/* Return whether the kernel lists the children of a process. */
bool cli_lists_children(void);

/* Return whether the descendants of a process can be found: /proc is mounted. */
bool cli_can_find_descendants(void);

#endif /* SL_CLI_DESCENDANTS_H */
