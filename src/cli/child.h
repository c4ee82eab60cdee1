/* child.h - runs the command under a lock, until it ends.
 *
 * The wrapper forwards signals to the command's process group. If the command stops,
 * the wrapper and its job stop too; if the wrapper is continued, so is the command.
 * The wrapper never ends before the command. */
#ifndef SL_CLI_CHILD_H
#define SL_CLI_CHILD_H

#include <stdbool.h>
#include <stdint.h>

struct cli_job {
    char **argv;          /* The command and its arguments, then NULL. */
    int64_t grace_ms;     /* From SIGTERM to SIGKILL, after the lock was lost. */
    bool (*lost)(void *); /* Called once a second: is the lock lost? */
    void (*report_lost)(void *, bool ended);
    void *context;
};

/* Run the command to its end. Returns an exit status. If Ctrl-C or Ctrl-\ ended the
 * command, this process may die of the same signal. `before_end` is called before
 * that and before any return. */
int cli_child(const struct cli_job *job, void (*before_end)(void *));

/* Execute the command in this process. Returns only if that fails: an exit status,
 * after a message. */
int cli_exec(char **argv);

#endif /* SL_CLI_CHILD_H */
