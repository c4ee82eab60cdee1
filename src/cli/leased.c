#include "cli/leased.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "cli/child.h"
#include "cli/clock.h"
#include "cli/descendants.h"
#include "cli/exits.h"
#include "cli/guard.h"
#include "cli/message.h"
#include "cli/shell.h"
#include "cli/text.h"

/* How often to check that the guard works. The wrapper kills the command if the guard has not done
 * so when this part of the time between kill_at_ms and the expiry has passed. */
#define CHECK_MS 500
#define GUARD_LATE 4
#define KILL_WAIT_MS 10

/* How long to wait for the renewer: for the reply of the server to a release or CANCEL. */
#define RENEWER_MS 2000

/* The wrapper: the process that the user has started. */
struct wrapper {
    const struct cli_leased *o;
    struct cli_shared *shared;
    struct cli_terminal terminal;
    sigset_t heeded, mask;
    struct sigaction on_child; /* Before we changed it. */
    int life[2]; /* A pipe; the wrapper and the guard have its write end. */
    pid_t self, renewer, guard;
    int renewer_status; /* From waitpid(), when `renewer` is 0. */
    bool granted, ended, lost, guard_ended;
    int quit; /* A signal that ends the wait for the locks; 0: none. */
};

/* --- The processes ------------------------------------------------------------ */

static int cannot(const char *what)
{
    cli_message("cannot %s: %s", what, strerror(errno));
    return CLI_EXIT_SYSTEM;
}

/* The renewer has a session of its own, so that Ctrl-C and Ctrl-Z do not reach it. */
static int start_renewer(struct wrapper *x)
{
    x->renewer = fork();
    if (x->renewer < 0) return cannot("fork");
    if (x->renewer > 0) return 0;
    setsid();
    close(x->life[1]);
    _exit(cli_renewer(&x->o->lease, x->shared, x->self, x->life[0]));
}

/* Form a list with one element in each line. The caller frees it. */
static char *lines_of(const struct cli_lease_request *r, const uint64_t *fences)
{
    size_t size = r->count * (SLUICE_KEY_BYTES_MAX + 24), n = 0;
    char *out = malloc(size);
    for (size_t i = 0; out != NULL && i < r->count; i++) {
        const char *end = i > 0 ? "\n" : "";
        if (fences == NULL)
            n += (size_t)snprintf(out + n, size - n, "%s%s", end, r->keys[i]);
        else
            n += (size_t)snprintf(out + n, size - n, "%s%llu", end,
                                  (unsigned long long)fences[i]);
    }
    return out;
}

static void set_number(const char *name, int64_t value)
{
    char text[32];
    snprintf(text, sizeof text, "%lld", (long long)value);
    setenv(name, text, 1);
}

/* Set the variables of the command, and remove those of an outer lock. Returns false if out of
 * memory. */
static bool set_environment(const struct wrapper *x)
{
    const struct cli_lease_request *r = &x->o->lease;
    char *keys = lines_of(r, NULL), *fences = lines_of(r, x->shared->fences);
    bool enough = keys != NULL && fences != NULL;
    if (enough) {
        cli_shell_forget();
        setenv("SLUICE_LOCK_KEY", keys, 1);
        setenv("SLUICE_LOCK_FENCE", fences, 1);
        setenv("SLUICE_LOCK_HELD", "1", 1);
        setenv("SLUICE_LOCK_WHERE", "server", 1);
        setenv("SLUICE_LOCK_SERVER", r->server->addresses, 1);
        set_number("SLUICE_LOCK_SESSION", x->self);
        if (x->shared->slot != 0) set_number("SLUICE_LOCK_SLOT", x->shared->slot);
    }
    free(keys);
    free(fences);
    return enough;
}

static void keys_of(const struct cli_lease_request *r, char *out, size_t size)
{
    size_t n = 0;
    for (size_t i = 0; i < r->count && n < size; i++)
        n += (size_t)snprintf(out + n, size - n, "%s%s", i > 0 ? "\", \"" : "",
                              r->keys[i]);
}

/* Run the guard in a process of its own. It has a process group of its own, because the whole group
 * of the wrapper is stopped by Ctrl-Z. */
static int start_guard(struct wrapper *x)
{
    char keys[CLI_SAFE_SIZE];
    keys_of(&x->o->lease, keys, sizeof keys);
    x->guard = fork();
    if (x->guard < 0) return cannot("fork");
    if (x->guard > 0) return 0;
    setpgid(0, 0);
    close(x->life[0]);
    struct cli_guard g = {.shared = x->shared,
                          .wrapper = x->self,
                          .keys = keys,
                          .argv = x->o->argv,
                          .grace_ms = x->o->grace_ms,
                          .close = x->o->close,
                          .terminal = x->terminal,
                          .mask = x->mask,
                          .on_child = x->on_child};
    cli_guard(&g);
    _exit(0);
}

/* Run a shell command of the user. No process waits for it. */
static void run_hook(const struct wrapper *x, const char *hook)
{
    if (hook == NULL) return;
    pid_t pid = fork();
    if (pid < 0) cannot("fork");
    if (pid != 0) return;
    setpgid(0, 0);
    sigaction(SIGCHLD, &x->on_child, NULL);
    sigprocmask(SIG_SETMASK, &x->mask, NULL);
    execl("/bin/sh", "sh", "-c", hook, (char *)NULL);
    cannot("execute /bin/sh");
    _exit(CLI_EXIT_CANNOT_EXECUTE);
}

/* --- Events ------------------------------------------------------------------- */

/* Wait for a signal, at most this long. Returns 0 if there was none. */
static int next_signal(const struct wrapper *x, int64_t ms, siginfo_t *info)
{
    const struct timespec t = {.tv_sec = (time_t)(ms / 1000),
                               .tv_nsec = (long)(ms % 1000) * 1000000};
    int sig = sigtimedwait(&x->heeded, info, &t);
    return sig > 0 ? sig : 0;
}

static void on_child(struct wrapper *x)
{
    int status;
    for (;;) {
        pid_t pid = waitpid(-1, &status, WNOHANG);
        if (pid < 0 && errno == EINTR) continue;
        if (pid <= 0) return;
        if (pid == x->renewer) {
            x->renewer = 0;
            x->renewer_status = status;
        } else if (pid == x->guard) x->guard_ended = true;
    }
}

/* Stop this process, or the whole job, because the command was stopped. */
static void stop(const struct wrapper *x, int notice)
{
    bool job = (notice & CLI_NOTICE_STOP_JOB) != 0;
    int sig = notice & (CLI_NOTICE_STOP - 1);
    if (!cli_stop_job(sig, job)) kill(x->guard, CLI_SIGNAL_NOTICE);
}

static void on_notice(struct wrapper *x, int notice)
{
    switch (notice) {
        case CLI_NOTICE_GRANTED: x->granted = true; return;
        case CLI_NOTICE_ASKED: run_hook(x, x->o->on_asked); return;
        case CLI_NOTICE_ENDED: x->ended = true; return;
        case CLI_NOTICE_LOST:
            x->lost = true;
            run_hook(x, x->o->on_lost);
            return;
        default:
            if (notice > CLI_NOTICE_STOP) stop(x, notice);
    }
}

/* --- Waiting for the locks ---------------------------------------------------- */

static void on_signal_in_wait(struct wrapper *x, int sig)
{
    switch (sig) {
        case SIGTSTP: cli_stop_job(sig, false); return;
        case 0:
        case SIGCONT:
        case SIGWINCH: return;
        default: x->quit = sig;
    }
}

/* Wait until the renewer has ended. If it takes long, because no server answers, kill it: the
 * server then ends the grants when the connection is lost, or when the leases expire. */
static void await_renewer(struct wrapper *x)
{
    int64_t until = cli_boot_ms() + RENEWER_MS;
    siginfo_t info;
    while (x->renewer != 0) {
        int64_t left = until - cli_boot_ms();
        if (left <= 0) {
            kill(x->renewer, SIGKILL);
            return;
        }
        if (next_signal(x, left, &info) == SIGCHLD) on_child(x);
    }
}

static bool has_given_up(const struct wrapper *x)
{
    return atomic_load_explicit(&x->shared->claim, memory_order_acquire) ==
           CLI_CLAIM_GIVEN_UP;
}

/* Wait for the locks once. Returns true if they were granted; the renewer may have given them up
 * since. Otherwise sets the exit status and returns false, or ends this process with a signal. */
static bool wait_once(struct wrapper *x, int *exit_status)
{
    siginfo_t info;
    while (!x->granted && x->renewer != 0 && x->quit == 0) {
        int sig = next_signal(x, CHECK_MS, &info);
        if (sig == SIGCHLD) on_child(x);
        else if (sig != CLI_SIGNAL_NOTICE) on_signal_in_wait(x, sig);
        else if (info.si_pid == x->renewer) on_notice(x, info.si_value.sival_int);
    }
    if (x->quit != 0) {
        if (x->renewer != 0) kill(x->renewer, SIGTERM);
        close(x->life[1]); /* If it was granted meanwhile, it is released. */
        await_renewer(x);
        cli_end_by(x->quit);
        *exit_status = CLI_EXIT_SIGNALLED + x->quit;
        return false;
    }
    *exit_status = CLI_EXIT_SYSTEM;
    if (x->granted || has_given_up(x)) return true;
    if (WIFEXITED(x->renewer_status) &&
        atomic_load_explicit(&x->shared->refused, memory_order_acquire)) {
        *exit_status = WEXITSTATUS(x->renewer_status);
        return false;
    }
    cli_message("the process that acquires the lock was killed");
    return false;
}

/* Wait until the locks are granted and not yet given up. Returns as wait_once(). */
static bool wait_for_locks(struct wrapper *x, int *exit_status)
{
    for (;;) {
        int none = CLI_CLAIM_NONE;
        *exit_status = start_renewer(x);
        if (*exit_status != 0 || !wait_once(x, exit_status)) return false;
        if (atomic_compare_exchange_strong(&x->shared->claim, &none, CLI_CLAIM_RUN))
            return true;
        /* This process was stopped for so long that the renewer has released the locks. */
        await_renewer(x);
        *x->shared = (struct cli_shared){0};
        x->granted = false;
    }
}

/* --- While the command runs ---------------------------------------------------- */

/* When to kill the command if the guard has not done so. */
static int64_t replace_at(const struct wrapper *x)
{
    return atomic_load_explicit(&x->shared->kill_at_ms, memory_order_acquire) +
           x->o->lease.kill_margin_ms / GUARD_LATE;
}

/* If the guard was killed or is stopped, kill the command in its place. Returns whether that was
 * necessary. This also kills the renewer: without a child, this process is certain that no descendant of
 * the command is left. So the locks are not released, and their leases expire. */
static bool replaced_guard(struct wrapper *x)
{
    struct cli_shared *s = x->shared;
    bool done = atomic_load_explicit(&s->phase, memory_order_acquire) == CLI_PHASE_DONE;
    if (done || (!x->guard_ended && cli_boot_ms() < replace_at(x))) return false;
    cli_kill_descendants();
    x->renewer = 0;
    if (x->guard_ended) {
        cli_message(
            "the guard of the command was killed; the command was killed as well");
        run_hook(x, x->o->on_lost);
    }
    atomic_store_explicit(&s->phase, CLI_PHASE_DONE, memory_order_release);
    return true;
}

static int end(struct wrapper *x)
{
    close(x->life[1]);
    await_renewer(x);
    return cli_end_alike(&x->shared->end);
}

static int supervise(struct wrapper *x)
{
    siginfo_t info;
    for (;;) {
        int64_t left = replace_at(x) - cli_boot_ms();
        int sig = next_signal(x,
                              left < KILL_WAIT_MS ? KILL_WAIT_MS
                              : left < CHECK_MS   ? left
                                                  : CHECK_MS,
                              &info);
        if (sig == CLI_SIGNAL_NOTICE) on_notice(x, info.si_value.sival_int);
        else if (sig == SIGCHLD) on_child(x);
        else if (sig != 0) kill(x->guard, sig);
        if (replaced_guard(x)) return CLI_EXIT_LOST;
        if (x->guard_ended) {
            while ((sig = next_signal(x, 0, &info)) != 0)
                if (sig == CLI_SIGNAL_NOTICE) on_notice(x, info.si_value.sival_int);
            return end(x);
        }
        /* The guard and the renewer hold the locks for the other processes. */
        if (x->ended) {
            if (x->renewer != 0) kill(x->renewer, SIGTERM);
            return cli_end_alike(&x->shared->end);
        }
    }
}

/* --- Start --------------------------------------------------------------------- */

static int prepare(struct wrapper *x)
{
    const struct sigaction usual = {.sa_handler = SIG_DFL};
    sigset_t notices;
    x->shared = mmap(NULL, sizeof *x->shared, PROT_READ | PROT_WRITE,
                     MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (x->shared == MAP_FAILED) return cannot("map memory");
    if (pipe2(x->life, O_CLOEXEC) != 0) return cannot("create a pipe");
    if (!cli_can_find_descendants()) {
        cli_message(
            "cannot read /proc, which is necessary to stop the command in time: %s",
            strerror(errno));
        return CLI_EXIT_SYSTEM;
    }
    if (prctl(PR_SET_CHILD_SUBREAPER, 1) != 0) return cannot("become a subreaper");
    x->terminal = cli_terminal_open();
    cli_heed_signals(&x->heeded, &x->mask);
    sigaction(SIGCHLD, &usual, &x->on_child);
    sigemptyset(&notices);
    sigaddset(&notices, CLI_SIGNAL_NOTICE);
    sigaddset(&notices, CLI_SIGNAL_WAKE); /* In the guard. */
    sigaddset(&notices, SIGTTIN);
    sigprocmask(SIG_BLOCK, &notices, NULL);
    sigaddset(&x->heeded, CLI_SIGNAL_NOTICE);
    return 0;
}

int cli_leased(const struct cli_leased *o)
{
    struct wrapper x = {.o = o, .self = getpid()};
    int64_t began = cli_boot_ms();
    int status = prepare(&x);
    if (status != 0 || !wait_for_locks(&x, &status)) return status;
    if (o->verbose) {
        char shown[CLI_SAFE_SIZE];
        cli_message("acquiring the lock took %.3f seconds",
                    (double)(cli_boot_ms() - began) / 1000);
        cli_message("executing %s", cli_safe_text(o->argv[0], shown, sizeof shown));
    }
    if (!set_environment(&x)) status = cli_status_error("sluice run", SLUICE_ENOMEM);
    else status = start_guard(&x);
    if (status != 0) {
        close(x.life[1]);
        await_renewer(&x);
        return status;
    }
    return supervise(&x);
}
