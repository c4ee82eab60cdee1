/* child.h - runs the command while the lock is held.
 *
 * The wrapper forwards signals to the command's process group. If the command is
 * stopped, the wrapper stops itself and its job as well. When the wrapper is continued,
 * it continues the command. The wrapper never exits before the command. */
#ifndef SL_CLI_CHILD_H
#define SL_CLI_CHILD_H

#include <stdbool.h>
#include <stdint.h>

struct cli_job {
    char **argv;          /* The command and its arguments, then NULL. */
    int64_t grace_ms;     /* From SIGTERM to SIGKILL, after the lock was lost. */
    bool (*lost)(void *); /* Called once a second: return whether the lock is lost. */
    void (*report_lost)(void *, bool ended);
    void *context;
};

/* Run the command and wait until it ends. Returns an exit status. If Ctrl-C or Ctrl-\
 * killed the command, this process may kill itself with the same signal instead. Calls
 * `before_end` first in both cases. */
int cli_child(const struct cli_job *job, void (*before_end)(void *));

/* Execute the command in this process. Returns only on failure: prints a message and
 * returns an exit status. */
int cli_exec(char **argv);

#endif /* SL_CLI_CHILD_H */
