#include "cli/child.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "cli/clock.h"
#include "cli/descendants.h"
#include "cli/exits.h"
#include "cli/message.h"
#include "cli/terminal.h"
#include "cli/text.h"

/* How often the wrapper checks that the lock is still held. */
#define CHECK_MS 1000

/* How often to check whether the other processes of a command have ended. */
#define LOOK_MS 20

static const int passed_on[] = {SIGINT,  SIGTERM,  SIGHUP,  SIGQUIT, SIGUSR1,
                                SIGUSR2, SIGWINCH, SIGTSTP, SIGCONT};

/* The command that runs under the lock. */
struct child {
    const struct cli_job *job;
    const struct cli_guarding *guard; /* NULL: none. */
    pid_t pid;                        /* This is also the id of its process group. */
    struct cli_terminal terminal;
    sigset_t heeded; /* Signals that the wrapper waits for. */
    sigset_t typed; /* Signals that arrived while our process group had the terminal. */
    sigset_t mask;  /* The signal mask before we changed it. */
    struct sigaction on_child;
    int64_t check_at_ms; /* When to check the lock next. */
    int64_t kill_at_ms;  /* When to send SIGKILL (again), after the lock was lost. */
    bool lost, killed;
    bool ended;
    int stopped_by; /* The signal that stopped the command last. */
    unsigned asked_in_vain;
    bool powerless; /* We may not signal the command, and have reported that. */
    /* A pipe that carries the errno if the command could not be executed. */
    int failure;
    int status; /* From waitpid(). */
    bool had_terminal;
};

/* --- Starting ------------------------------------------------------------- */

/* Signals that were ignored when we started stay ignored: we do not wait for them, because the
 * kernel would queue them. */
void cli_heed_signals(sigset_t *heeded, sigset_t *mask)
{
    sigset_t blocked;
    sigemptyset(heeded);
    for (size_t i = 0; i < sizeof passed_on / sizeof *passed_on; i++) {
        struct sigaction now;
        sigaction(passed_on[i], NULL, &now);
        if (now.sa_handler != SIG_IGN) sigaddset(heeded, passed_on[i]);
    }
    sigaddset(heeded, SIGCHLD);
    blocked = *heeded;
    sigaddset(&blocked,
              SIGTTOU); /* We set the foreground process group from the background. */
    sigaddset(
        &blocked,
        /* A closed standard error must not kill the wrapper before its command. */
        SIGPIPE);
    sigprocmask(SIG_BLOCK, &blocked, mask);
}

/* Prepare the signals, so that sigtimedwait() can take them one by one. A guard has inherited
 * blocked signals. */
static void heed_signals(struct child *c)
{
    const struct sigaction usual = {.sa_handler = SIG_DFL};
    sigemptyset(&c->typed);
    cli_heed_signals(&c->heeded, &c->mask);
    if (c->guard != NULL) {
        c->mask = c->guard->mask;
        sigaddset(&c->heeded, c->guard->not_stopped);
        sigaddset(&c->heeded, c->guard->wake);
    }
    /* Reset SIGCHLD: if it is ignored, children leave no exit status. */
    sigaction(SIGCHLD, &usual, &c->on_child);
    if (c->guard != NULL) c->on_child = c->guard->on_child;
}

static int exit_of_errno(int e)
{
    return e == ENOENT || e == ENOTDIR ? CLI_EXIT_NOT_FOUND : CLI_EXIT_CANNOT_EXECUTE;
}

static int report_exec_failure(const char *command, int e)
{
    char shown[CLI_SAFE_SIZE];
    cli_message("cannot execute %s: %s", cli_safe_text(command, shown, sizeof shown),
                strerror(e));
    return exit_of_errno(e);
}

/* Execute the command; called in the child. This restores everything except the process
 * group. */
static void execute(const struct child *c, int failure)
{
    setpgid(0, 0);
    if (c->terminal.wanted) cli_terminal_give(&c->terminal, getpid());
    sigaction(SIGCHLD, &c->on_child, NULL);
    sigprocmask(SIG_SETMASK, &c->mask, NULL);
    if (c->guard != NULL) c->guard->in_child(c->job->context);
    execvp(c->job->argv[0], c->job->argv);
    int e = errno;
    ssize_t told = write(failure, &e, sizeof e);
    (void)told;
    _exit(exit_of_errno(e));
}

/* Start the command. Returns 0 or an exit status. The wrapper learns whether exec()
 * succeeded only when the command has ended. Until then the command can be stopped like
 * any other. */
static int start(struct child *c)
{
    int failure[2];
    if (pipe2(failure, O_CLOEXEC) != 0) {
        cli_message("cannot create a pipe: %s", strerror(errno));
        return CLI_EXIT_SYSTEM;
    }
    heed_signals(c);
    c->pid = fork();
    if (c->pid < 0) {
        cli_message("cannot fork: %s", strerror(errno));
        return CLI_EXIT_SYSTEM;
    }
    if (c->pid == 0) execute(c, failure[1]);
    /* Parent and child both do this, because either may run first. */
    setpgid(c->pid, c->pid);
    if (c->terminal.wanted) cli_terminal_give(&c->terminal, c->pid);
    close(failure[1]);
    c->failure = failure[0];
    return 0;
}

/* Return the errno of a failed exec(), or 0. */
static int failed_to_execute(const struct child *c)
{
    int e;
    return read(c->failure, &e, sizeof e) == sizeof e ? e : 0;
}

/* --- Stopping and continuing ---------------------------------------------- */

bool cli_stop_job(int sig, bool group)
{
    const struct sigaction usual = {.sa_handler = SIG_DFL};
    struct sigaction before;
    sigset_t only, was, pending;
    /* The shell has already continued the job. A stop would discard its SIGCONT. */
    if (sigpending(&pending) == 0 && sigismember(&pending, SIGCONT) == 1) return true;
    sigaction(sig, &usual, &before);
    kill(group ? 0 : getpid(), sig);
    sigemptyset(&only);
    sigaddset(&only, sig);
    sigprocmask(SIG_UNBLOCK, &only, &was); /* We are stopped and continued here. */
    sigprocmask(SIG_SETMASK, &was, NULL);
    sigaction(sig, &before, NULL);
    /* The SIGCONT that continued us is pending. */
    return sigpending(&pending) == 0 && sigismember(&pending, SIGCONT) == 1;
}

/* Stop our job with the signal that stopped the command. Returns false if it cannot be
 * stopped. */
static bool stop_with(struct child *c, int sig, bool had_terminal)
{
    if (c->terminal.fd < 0) return false;
    /* A SIGSTOP to the command stops only the command. But if the command had the
     * terminal, the shell must notice the stop, so we stop ourselves with SIGTSTP.
     * SIGSTOP would stop us even where no shell can continue us. */
    bool job = sig != SIGSTOP;
    int ours = job ? sig : SIGTSTP;
    if (!job && !had_terminal) return false;
    if (c->guard != NULL) return c->guard->stop(c->job->context, ours, job);
    return cli_stop_job(ours, job);
}

/* Send a signal to the command's process group. */
static void send(struct child *c, int sig)
{
    if (kill(-c->pid, sig) == 0 || errno != EPERM || c->powerless) return;
    c->powerless = true;
    cli_message("cannot send %s to the command: it runs as another user",
                sigabbrev_np(sig));
}

static void go_on(struct child *c)
{
    if (c->terminal.wanted) cli_terminal_give(&c->terminal, c->pid);
    send(c, SIGCONT);
}

/* End a command that waits for a terminal that it will never get. Send SIGHUP, as the
 * kernel does to the stopped jobs of a closed terminal, and then SIGTERM. */
static void end_asking(struct child *c)
{
    if (c->asked_in_vain >= 2) return;
    send(c, c->asked_in_vain++ == 0 ? SIGHUP : SIGTERM);
    go_on(c);
    if (c->asked_in_vain < 2) return;
    cli_message(
        "the command tried to use the terminal, but the terminal is not available; "
        "sluice run has sent it SIGTERM; redirect the command's input and output, or "
        "run it in the foreground of a terminal");
}

static bool asks_for_terminal(int sig)
{
    return sig == SIGTTIN || sig == SIGTTOU;
}

/* No shell can continue us, so no one would continue the command. Without the
 * wrapper, the kernel would not have let Ctrl-Z stop the command, and its read from
 * the terminal would have failed. */
static void on_not_stopped(struct child *c)
{
    if (c->terminal.fd < 0) return;
    if (asks_for_terminal(c->stopped_by)) end_asking(c);
    else if (c->stopped_by == SIGTSTP) go_on(c);
}

static void on_stopped(struct child *c, int sig)
{
    bool asks = asks_for_terminal(sig);
    c->stopped_by = sig;
    if (asks) c->terminal.wanted = true;
    if (asks && cli_terminal_give(&c->terminal, c->pid)) {
        send(c, SIGCONT);
        return;
    }
    bool had = cli_terminal_take(&c->terminal, c->pid);
    if (!stop_with(c, sig, had)) on_not_stopped(c);
}

/* --- Waiting for the command ---------------------------------------------- */

static void on_child_changed(struct child *c)
{
    int status;
    /* A guard inherits the orphans among its descendants. */
    pid_t which = c->guard != NULL ? -1 : c->pid;
    for (;;) {
        pid_t pid = waitpid(which, &status, WNOHANG | WUNTRACED);
        if (pid < 0 && errno == EINTR) continue;
        if (pid <= 0) return;
        if (pid != c->pid) continue;
        if (WIFSTOPPED(status)) {
            on_stopped(c, WSTOPSIG(status));
            continue;
        }
        c->ended = true;
        c->status = status;
        c->had_terminal = cli_terminal_take(&c->terminal, c->pid);
        return;
    }
}

static void on_signal(struct child *c, int sig)
{
    if (sig == SIGCHLD) on_child_changed(c);
    else if (sig == SIGCONT) go_on(c);
    else if (c->guard != NULL && sig == c->guard->not_stopped) on_not_stopped(c);
    else if (c->guard != NULL && sig == c->guard->wake) c->check_at_ms = 0;
    else {
        if (cli_terminal_ours(&c->terminal)) sigaddset(&c->typed, sig);
        send(c, sig);
    }
}

static bool check_lock(struct child *c)
{
    c->lost = c->job->lost(c->job->context);
    return c->lost;
}

/* Ask the command to end, because the lock is lost. SIGCONT lets a stopped command handle SIGTERM. A guard
 * sends both to all descendants, even if they have left the process group. */
static void terminate(struct child *c)
{
    if (c->guard != NULL) c->guard->terminate(c->job->context);
    else {
        send(c, SIGTERM);
        send(c, SIGCONT);
    }
}

static void kill_all(struct child *c)
{
    c->killed = true;
    if (c->guard == NULL) send(c, SIGKILL);
    else {
        c->guard->kill_all(c->job->context);
        c->ended = true;
        /* kill_all() has reaped the command, so on_child_changed() does not take the terminal back. */
        c->had_terminal = cli_terminal_take(&c->terminal, c->pid);
    }
}

/* Check the lock. If it is lost, terminate the command, and kill it after the grace
 * period. */
static void on_time(struct child *c)
{
    int64_t now = cli_boot_ms();
    if (!c->lost && now >= c->check_at_ms) {
        if (check_lock(c)) {
            terminate(c);
            c->job->report_lost(c->job->context, false);
        }
        c->check_at_ms = c->guard != NULL ? c->guard->check_at(c->job->context)
                                          : now + CHECK_MS;
        c->kill_at_ms = c->guard != NULL ? c->guard->kill_at(c->job->context)
                                         : now + c->job->grace_ms;
    }
    if (c->lost && !c->killed && now >= c->kill_at_ms) kill_all(c);
}

static struct timespec until_next(const struct child *c)
{
    int64_t now = cli_boot_ms(), at = c->lost ? now + CHECK_MS : c->check_at_ms;
    if (c->lost && !c->killed && c->kill_at_ms < at) at = c->kill_at_ms;
    int64_t ms = at > now ? at - now : 0;
    return (struct timespec){.tv_sec = (time_t)(ms / 1000),
                             .tv_nsec = (long)(ms % 1000) * 1000000};
}

static void supervise(struct child *c)
{
    c->check_at_ms = c->guard != NULL ? c->guard->check_at(c->job->context)
                                      : cli_boot_ms() + CHECK_MS;
    while (!c->ended) {
        struct timespec wait = until_next(c);
        int sig = sigtimedwait(&c->heeded, NULL, &wait);
        if (sig > 0) on_signal(c, sig);
        on_time(c);
    }
}

/* End the other processes of a command that has ended after the lock was lost. Give them the
 * rest of the grace period, then kill them. */
static void end_others(struct child *c)
{
    const struct timespec moment = {.tv_nsec = LOOK_MS * 1000000};
    if (c->guard != NULL) {
        while (!c->killed && cli_boot_ms() < c->kill_at_ms) {
            while (waitpid(-1, NULL, WNOHANG) > 0) {}
            if (!cli_has_child()) return;
            nanosleep(&moment, NULL);
        }
        if (!c->killed) kill_all(c);
        return;
    }
    while (!c->killed && cli_boot_ms() < c->kill_at_ms && kill(-c->pid, 0) == 0)
        nanosleep(&moment, NULL);
    kill(-c->pid, SIGKILL);
}

void cli_end_by(int sig)
{
    const struct sigaction usual = {.sa_handler = SIG_DFL};
    const struct rlimit none = {0, 0};
    sigset_t only;
    setrlimit(RLIMIT_CORE, &none); /* One core file is enough. */
    sigaction(sig, &usual, NULL);
    sigemptyset(&only);
    sigaddset(&only, sig);
    raise(sig);
    sigprocmask(SIG_UNBLOCK, &only, NULL);
}

int cli_end_alike(const struct cli_end *end)
{
    if (end->to_group) {
        const struct sigaction ignore = {.sa_handler = SIG_IGN};
        sigaction(end->sig, &ignore, NULL);
        kill(0, end->sig);
    }
    if (end->sig != 0) cli_end_by(end->sig);
    return end->status;
}

/* Return how to end after the command was killed by a signal. Ctrl-C is meant for the whole job: a
 * script that runs us must end as well. The script ends if it receives the signal and
 * sees that the signal killed us. If the command's group had the terminal, the script
 * did not receive the signal, so we forward it. If our group had the terminal, the
 * script received the signal when we did. */
static struct cli_end after_signal(const struct child *c, int sig)
{
    struct cli_end end = {.status = CLI_EXIT_SIGNALLED + sig};
    if (sig != SIGINT && sig != SIGQUIT) return end;
    end.to_group = c->had_terminal;
    if (c->had_terminal || sigismember(&c->typed, sig)) end.sig = sig;
    return end;
}

static struct cli_end end_of(const struct child *c)
{
    if (c->lost) return (struct cli_end){.status = CLI_EXIT_LOST};
    if (WIFEXITED(c->status)) return (struct cli_end){.status = WEXITSTATUS(c->status)};
    return after_signal(c, WTERMSIG(c->status));
}

/* Run the command until it has ended. */
static struct cli_end run(struct child *c)
{
    int failed = start(c);
    if (failed != 0) return (struct cli_end){.status = failed};
    supervise(c);
    int e = failed_to_execute(c);
    if (c->lost) end_others(c);
    else if (e == 0 && check_lock(c)) /* Was the lock held until the command ended? */
        c->job->report_lost(c->job->context, true);
    if (e != 0)
        return (struct cli_end){.status = report_exec_failure(c->job->argv[0], e)};
    return end_of(c);
}

int cli_child(const struct cli_job *job, void (*before_end)(void *))
{
    struct child c = {.job = job, .terminal = cli_terminal_open()};
    struct cli_end end = run(&c);
    before_end(job->context);
    return cli_end_alike(&end);
}

struct cli_end cli_child_guarded(const struct cli_job *job)
{
    struct child c = {
        .job = job, .guard = job->guarding, .terminal = job->guarding->terminal};
    return run(&c);
}

int cli_exec(char **argv)
{
    execvp(argv[0], argv);
    return report_exec_failure(argv[0], errno);
}
