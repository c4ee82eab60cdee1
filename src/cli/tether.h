/* tether.h - finds the processes that have inherited a tether. */
#ifndef SL_CLI_TETHER_H
#define SL_CLI_TETHER_H

#include <stddef.h>
#include <stdint.h>

/* Find the processes that have the tether of a slot in the segment at `path`. Returns
 * their number and stores the first `max` of them in `pids`. Processes of other users
 * are not visible and not counted. */
size_t cli_tether_pids(const char *path, uint32_t slot, int32_t *pids, size_t max);

/* Get the name of a process's program, safe to print. Returns out. */
const char *cli_tether_program(int32_t pid, char *out, size_t size);

#endif /* SL_CLI_TETHER_H */
