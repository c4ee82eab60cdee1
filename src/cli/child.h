/* child.h - runs the command while the lock is held.
 *
 * The wrapper forwards signals to the command's process group. If the command is
 * stopped, the wrapper stops itself and its job as well. When the wrapper is continued,
 * it continues the command. The wrapper never exits before the command.
 *
 * If the lock is on a server, a guard does this in place of the wrapper (guard.h). */
#ifndef SL_CLI_CHILD_H
#define SL_CLI_CHILD_H

#include <signal.h>
#include <stdbool.h>
#include <stdint.h>

#include "cli/terminal.h"

struct cli_job {
    char **argv;          /* The command and its arguments, then NULL. */
    int64_t grace_ms;     /* From SIGTERM to SIGKILL, after the lock was lost. */
    bool (*lost)(void *); /* Return whether the lock is lost. Called once a second. */
    void (*report_lost)(void *, bool ended);
    void *context;

    /* NULL: this process is the one that the user has started. */
    const struct cli_guarding *guarding;
};

/* The functions of a guard: a process that the user's process has started, and that is the parent
 * of the command. Times are by cli_boot_ms(). */
struct cli_guarding {
    struct cli_terminal terminal; /* As the user's process has opened it. */
    int64_t (*check_at)(void *);  /* When to call lost(), in place of once a second. */
    int64_t (*kill_at)(void *);   /* When to send SIGKILL, after the lock was lost. */

    /* Send SIGTERM and SIGCONT to all descendants of the guard. */
    void (*terminate)(void *);

    /* Kill all descendants of the guard until none is left. */
    void (*kill_all)(void *);

    /* Tell the user's process to stop itself, or its whole job, with a signal. Returns false if
     * that is impossible. If it was not stopped, the guard receives `not_stopped`. */
    bool (*stop)(void *, int sig, bool job);
    int not_stopped;

    void (*in_child)(void *);  /* Called in the command's process before exec(). */
    int wake;                  /* A signal after which to call lost() at once. */
    sigset_t mask;             /* The signal mask of the command. */
    struct sigaction on_child; /* Its SIGCHLD. */
};

/* How the command has ended, and how the user's process ends because of it. */
struct cli_end {
    int status;    /* Its exit status. */
    int sig;       /* A signal that it dies of instead; 0: none. */
    bool to_group; /* It first sends the signal to its process group. */
};

/* Run the command and wait until it ends. Returns an exit status. If Ctrl-C or Ctrl-\
 * killed the command, this process may kill itself with the same signal instead. Calls
 * `before_end` first in both cases. */
int cli_child(const struct cli_job *job, void (*before_end)(void *));

/* The same for a guard: returns how the user's process ends. */
struct cli_end cli_child_guarded(const struct cli_job *job);

/* End this process as the command has ended. Returns an exit status, or does not return. */
int cli_end_alike(const struct cli_end *end);

/* Kill this process with a signal. */
void cli_end_by(int sig);

/* Block the signals that are forwarded to the command. Stores the signals to wait for in *heeded:
 * those, except the ones that are ignored, and SIGCHLD. Stores the old mask in *mask. */
void cli_heed_signals(sigset_t *heeded, sigset_t *mask);

/* Stop this process, or its whole process group, with a signal, and wait until it is continued.
 * Returns false if the kernel does not stop it, which happens without a job-control shell. */
bool cli_stop_job(int sig, bool group);

/* Execute the command in this process. Returns only on failure: prints a message and
 * returns an exit status. */
int cli_exec(char **argv);

#endif /* SL_CLI_CHILD_H */
