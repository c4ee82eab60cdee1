/* child.h - start the command under a lock, and stay with it to its end.
 *
 * Signals that are meant for the command come to us, its parent: they are passed on to
 * its group. If it stops, so do we, and so does the job that we are part of; if we are
 * continued, so is it. We never end before it does. */
#ifndef SL_CLI_CHILD_H
#define SL_CLI_CHILD_H

#include <stdbool.h>
#include <stdint.h>

struct cli_job {
    char **argv;          /* The command and its arguments, and NULL. */
    int64_t grace_ms;     /* From SIGTERM to SIGKILL, once `lost` says so. */
    bool (*lost)(void *); /* Asked once a second: is the lock lost? */
    void (*say_lost)(void *, bool ended);
    void *context;
};

/* Run it to its end: an exit status. What ends the command by Ctrl-C or Ctrl-\ may end
 * this process in the same way; `before_end` is called before that and before any
 * return. */
int cli_child(const struct cli_job *job, void (*before_end)(void *));

/* Become the command. Returns only if that fails: an exit status, all having been said. */
int cli_become(char **argv);

#endif /* SL_CLI_CHILD_H */
