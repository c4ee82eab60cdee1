#include "cli/guard.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "cli/child.h"
#include "cli/clock.h"
#include "cli/descendants.h"
#include "cli/exits.h"
#include "cli/message.h"
#include "cli/text.h"

/* How often to look for descendants of a command that has ended. */
#define LOOK_MS 500

/* The nice value of the guard, if the user may have that. The command does not inherit it. */
#define PRIORITY (-20)

/* The time in which the renewer can say why the locks are lost. It learns of an expiry when the
 * guard does. */
#define REASON_MS 20

/* The guard of this process. */
struct guard {
    const struct cli_guard *g;
    timer_t timer;
    pid_t self;
    int64_t lost_at_ms; /* 0: not lost. */
};

static const char *reason_of(int loss)
{
    switch (loss) {
        case CLI_LOSS_EXPIRED: return "its lease was not extended in time";
        case CLI_LOSS_UNREACHABLE:
            return "no server answers, so its lease cannot be extended";
        case CLI_LOSS_MAX_HOLD: return "--max-hold has passed";
        case CLI_LOSS_BROKEN:
            return "an operator has revoked it, or another client has released it";
        case CLI_LOSS_STOLEN: return "a client with a higher priority has taken it";
        default:
            return "the process that extends its lease was stopped or killed, or had "
                   "no processor time";
    }
}

/* --- The lock --------------------------------------------------------------- */

static bool is_lost(void *context)
{
    struct guard *x = context;
    const struct cli_shared *s = x->g->shared;
    if (x->lost_at_ms == 0 &&
        (atomic_load_explicit(&s->loss, memory_order_acquire) != CLI_LOSS_NONE ||
         cli_boot_ms() >= atomic_load_explicit(&s->ask_at_ms, memory_order_acquire)))
        x->lost_at_ms = cli_boot_ms();
    return x->lost_at_ms != 0;
}

/* Also set the timer. sigtimedwait() alone would wait for too long after the machine was
 * suspended. */
static int64_t check_at(void *context)
{
    struct guard *x = context;
    int64_t at = atomic_load_explicit(&x->g->shared->ask_at_ms, memory_order_acquire);
    const struct itimerspec when = {
        .it_value = {.tv_sec = (time_t)(at / 1000),
                     .tv_nsec = (long)(at % 1000) * 1000000}};
    timer_settime(x->timer, TIMER_ABSTIME, &when, NULL);
    return at;
}

static int64_t kill_at(void *context)
{
    struct guard *x = context;
    int64_t at = atomic_load_explicit(&x->g->shared->kill_at_ms, memory_order_acquire);
    int64_t latest = x->lost_at_ms + x->g->grace_ms;
    return at < latest ? at : latest;
}

static void report_lost(void *context, bool ended)
{
    struct guard *x = context;
    char shown[CLI_SAFE_SIZE];
    const struct timespec moment = {.tv_nsec = REASON_MS * 1000000};
    if (atomic_load_explicit(&x->g->shared->loss, memory_order_acquire) ==
        CLI_LOSS_NONE)
        nanosleep(&moment, NULL);
    int loss = atomic_load_explicit(&x->g->shared->loss, memory_order_acquire);
    cli_message("lost the lock \"%s\": %s; %s",
                cli_safe_text(x->g->keys, shown, sizeof shown), reason_of(loss),
                ended ? "the command has already ended" : "stopping the command");
    cli_tell_wrapper(x->g->wrapper, CLI_NOTICE_LOST);
}

/* --- The command ------------------------------------------------------------ */

/* Send a signal to all descendants, and report once if one of them cannot be stopped. */
static size_t signal_all(int sig)
{
    static bool reported;
    pid_t foreign;
    size_t count = cli_signal_descendants(sig, &foreign);
    if (foreign != 0 && !reported) {
        reported = true;
        cli_message("cannot stop process %d: it runs as another user; stop it "
                    "yourself, because "
                    "another client may be granted the lock",
                    (int)foreign);
    }
    return count;
}

static void terminate(void *context)
{
    (void)context;
    signal_all(SIGTERM);
}

static void kill_all(void *context)
{
    (void)context;
    cli_kill_descendants();
}

static bool stop(void *context, int sig, bool job)
{
    const struct guard *x = context;
    if (getppid() != x->g->wrapper) return false;
    cli_tell_wrapper(x->g->wrapper,
                     CLI_NOTICE_STOP + sig + (job ? CLI_NOTICE_STOP_JOB : 0));
    return true;
}

/* The kernel kills the command if the guard is killed. */
static void in_child(void *context)
{
    const struct guard *x = context;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != x->self) _exit(CLI_EXIT_LOST);
}

/* Reap the children that have ended. */
static void reap(void)
{
    while (waitpid(-1, NULL, WNOHANG) > 0) {}
}

/* How often to search /proc for descendants to kill. A search costs processor time that the killed
 * processes need in order to end. */
#define SEARCH_MS 100
#define KILL_PAUSE_MS_MAX 16

void cli_kill_descendants(void)
{
    int64_t search_at = cli_boot_ms() + (cli_lists_children() ? SEARCH_MS : 0);
    for (int64_t pause_ms = 1; cli_kill_children();) {
        const struct timespec pause = {.tv_nsec = (long)pause_ms * 1000000};
        nanosleep(&pause, NULL);
        reap();
        if (pause_ms < KILL_PAUSE_MS_MAX) pause_ms *= 2;
        if (cli_boot_ms() < search_at) continue;
        if (signal_all(SIGKILL) == 0)
            return; /* Or those that are left run as another user. */
        search_at = cli_boot_ms() + SEARCH_MS;
    }
}

/* The command has ended, but descendants still run: hold the locks until they have ended, too. */
static void await_others(struct guard *x)
{
    sigset_t heeded;
    bool asked = false;
    sigemptyset(&heeded);
    sigaddset(&heeded, SIGCHLD);
    sigaddset(&heeded, CLI_SIGNAL_WAKE);
    for (; cli_has_child(); reap()) {
        int64_t now = cli_boot_ms();
        int64_t at = asked ? kill_at(x) : check_at(x), wait = at - now;
        wait = wait < 0 ? 0 : wait < LOOK_MS ? wait : LOOK_MS;
        const struct timespec t = {.tv_nsec = (long)wait * 1000000};
        sigtimedwait(&heeded, NULL, &t);
        if (!asked && is_lost(x)) {
            asked = true;
            terminate(x);
            report_lost(x, false);
        }
        if (asked && cli_boot_ms() >= kill_at(x)) cli_kill_descendants();
    }
}

/* Ignore failures: the guard still works, but may be late if the machine has no memory or no
 * processor time. It does not use real-time priority: while another process reads /proc, the kernel can
 * busy-wait for that process as it reaps a child (Linux 6.18), and with real-time priority it would wait until the
 * limit for real-time tasks is reached, for 0.95 s. */
static void prepare(struct guard *x)
{
    const struct sched_param usual = {.sched_priority = 0};
    struct sigevent wake = {.sigev_notify = SIGEV_SIGNAL,
                            .sigev_signo = CLI_SIGNAL_WAKE};
    cli_message_never_waits();
    prctl(PR_SET_CHILD_SUBREAPER, 1);
    prctl(PR_SET_NAME, "sluice-guard");
    mlockall(MCL_CURRENT | MCL_FUTURE);
    sched_setscheduler(0, SCHED_OTHER | SCHED_RESET_ON_FORK, &usual);
    setpriority(PRIO_PROCESS, 0, PRIORITY);
    timer_create(CLOCK_BOOTTIME, &wake, &x->timer);
}

void cli_guard(struct cli_guard *g)
{
    struct guard x = {.g = g, .self = getpid()};
    struct cli_shared *s = g->shared;
    const struct cli_guarding guarding = {.terminal = g->terminal,
                                          .check_at = check_at,
                                          .kill_at = kill_at,
                                          .terminate = terminate,
                                          .kill_all = kill_all,
                                          .stop = stop,
                                          .not_stopped = CLI_SIGNAL_NOTICE,
                                          .in_child = in_child,
                                          .wake = CLI_SIGNAL_WAKE,
                                          .mask = g->mask,
                                          .on_child = g->on_child};
    const struct cli_job job = {.argv = g->argv,
                                .grace_ms = g->grace_ms,
                                .lost = is_lost,
                                .report_lost = report_lost,
                                .context = &x,
                                .guarding = &guarding};
    prepare(&x);
    atomic_store_explicit(&s->guard, x.self, memory_order_release);
    s->end = cli_child_guarded(&job);
    atomic_store_explicit(&s->phase, CLI_PHASE_ENDED, memory_order_release);
    reap();
    if (!g->close && cli_has_child()) {
        /* Otherwise a process that reads from a pipe of the command would wait for us. */
        int null = open("/dev/null", O_RDWR | O_CLOEXEC);
        for (int fd = STDIN_FILENO; null >= 0 && fd <= STDERR_FILENO; fd++)
            dup2(null, fd);
        cli_tell_wrapper(g->wrapper, CLI_NOTICE_ENDED);
        await_others(&x);
    }
    atomic_store_explicit(&s->phase, CLI_PHASE_DONE, memory_order_release);
}
