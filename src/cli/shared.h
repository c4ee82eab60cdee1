/* shared.h - what the processes of `sluice run` with a server share.
 *
 *     wrapper ---- the process that the user has started; the shell waits for it
 *       |--- renewer: acquires the locks, extends their leases, releases them (renewer.h)
 *       `--- guard: the parent of the command (guard.h)
 *              `--- command
 *
 * They share a page of memory, in which each field has one writer, and wake each other with
 * signals. All times are by CLOCK_BOOTTIME, which counts while the machine is suspended. */
#ifndef SL_CLI_SHARED_H
#define SL_CLI_SHARED_H

#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "cli/child.h"
#include "sluice.h"

/* Why the locks are lost. */
enum cli_loss {
    CLI_LOSS_NONE,
    CLI_LOSS_EXPIRED,     /* A lease was not extended in time. */
    CLI_LOSS_UNREACHABLE, /* The same, and no server answered. */
    CLI_LOSS_MAX_HOLD,    /* --max-hold has passed. */
    CLI_LOSS_BROKEN,      /* An operator or another client has ended the grant. */
    CLI_LOSS_STOLEN,      /* The server has granted the lock to a client with STEAL. */
};

/* Whether the wrapper has begun to run the command. It does not if it is stopped. */
enum cli_claim {
    CLI_CLAIM_NONE,
    CLI_CLAIM_RUN,      /* The wrapper starts the guard. */
    CLI_CLAIM_GIVEN_UP, /* The renewer releases the locks, and ends. */
};

/* What the guard has done. */
enum cli_phase {
    CLI_PHASE_RUNS,
    CLI_PHASE_ENDED, /* The command has ended; `end` is set. Descendants may still run. */
    CLI_PHASE_DONE, /* No descendant is left, or none needs the locks. */
};

struct cli_shared {
    /* Written by the wrapper or by the renewer, whichever is first. */
    _Atomic int claim; /* An enum cli_claim. */

    /* Written by the renewer. */

    /* When to send SIGTERM to the descendants, and when to kill them. Each only rises. */
    _Atomic int64_t ask_at_ms, kill_at_ms;
    _Atomic int loss;     /* An enum cli_loss. */
    _Atomic bool refused; /* Not granted: `sluice run` exits as the renewer does. */
    uint32_t slot;        /* The number of the slot; 0: none. Set before GRANTED. */
    uint64_t
        fences[SLUICE_KEYS_AT_ONCE_MAX]; /* Of the keys in order. Set before GRANTED. */

    /* Written by the guard, or by the wrapper in its place. */
    _Atomic int phase; /* An enum cli_phase. */
    struct cli_end end;
    _Atomic pid_t guard; /* 0: not started. */
};

/* The signal that carries a notice to the wrapper, and the signal that wakes the guard. */
#define CLI_SIGNAL_NOTICE SIGRTMIN
#define CLI_SIGNAL_WAKE (SIGRTMIN + 1)

/* Notices to the wrapper: the value of the signal. */
enum {
    CLI_NOTICE_GRANTED = 1, /* The renewer has acquired the locks. */
    CLI_NOTICE_ASKED,       /* A client with a higher priority needs a lock. */
    CLI_NOTICE_ENDED,       /* The command has ended, but descendants still run. */
    CLI_NOTICE_LOST,        /* The locks are lost; the guard stops the command. */
    /* Stop with a signal: plus its number, plus CLI_NOTICE_STOP_JOB if the whole process group is
     * to stop. */
    CLI_NOTICE_STOP = 256,
    CLI_NOTICE_STOP_JOB = 1024,
};

/* Send a notice to the wrapper. */
static inline void cli_tell_wrapper(pid_t wrapper, int notice)
{
    sigqueue(wrapper, CLI_SIGNAL_NOTICE, (union sigval){.sival_int = notice});
}

#endif /* SL_CLI_SHARED_H */
