/* tree.h - which processes have inherited a tether. */
#ifndef SL_CLI_TREE_H
#define SL_CLI_TREE_H

#include <stddef.h>
#include <stdint.h>

/* The processes that have the tether of a slot in the segment at `path`: their number,
 * and the first `max` of them. Those of other users cannot be seen. */
size_t cli_tree(const char *path, uint32_t slot, int32_t *pids, size_t max);

/* The name of a process's program, safe to show. Returns out. */
const char *cli_tree_program(int32_t pid, char *out, size_t size);

#endif /* SL_CLI_TREE_H */
