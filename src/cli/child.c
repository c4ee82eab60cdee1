#include "cli/child.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "cli/exits.h"
#include "cli/say.h"
#include "cli/terminal.h"

/* How often we look whether the lock is still one. */
#define LOOK_MS 1000

static const int passed_on[] = {SIGINT,  SIGTERM,  SIGHUP,  SIGQUIT, SIGUSR1,
                                SIGUSR2, SIGWINCH, SIGTSTP, SIGCONT};

/* A command that runs. */
struct child {
    const struct cli_job *job;
    pid_t pid; /* Also the number of its group. */
    struct cli_terminal terminal;
    sigset_t heeded; /* What we wait for. */
    sigset_t typed;  /* What came while our group had the terminal. */
    sigset_t mask;   /* As it was before us. */
    struct sigaction on_child;
    int64_t look_at_ms; /* When to look at the lock again. */
    int64_t kill_at_ms; /* When SIGKILL is due; 0: no. */
    bool lost;
    bool ended;
    unsigned asked_in_vain;
    bool powerless; /* We may not send signals to it, and have said so. */
    int failure;    /* A pipe; what is in it kept the command from being executed. */
    int status;     /* As of waitpid(). */
    bool had_terminal;
};

/* --- Starting ------------------------------------------------------------- */

/* From here on signals wait until we ask for them. Those that are ignored stay so: they
 * are not blocked, or the kernel would keep them for us. */
static void heed_signals(struct child *c)
{
    sigset_t blocked;
    sigemptyset(&c->heeded);
    sigemptyset(&c->typed);
    for (size_t i = 0; i < sizeof passed_on / sizeof *passed_on; i++) {
        struct sigaction now;
        sigaction(passed_on[i], NULL, &now);
        if (now.sa_handler != SIG_IGN) sigaddset(&c->heeded, passed_on[i]);
    }
    sigaddset(&c->heeded, SIGCHLD);
    blocked = c->heeded;
    sigaddset(&blocked, SIGTTOU); /* We change the terminal from the background. */
    sigaddset(&blocked,
              SIGPIPE); /* Nobody listening is no reason to leave a command. */
    sigprocmask(SIG_BLOCK, &blocked, &c->mask);
    /* Where it is ignored, children leave no status behind. */
    const struct sigaction usual = {.sa_handler = SIG_DFL};
    sigaction(SIGCHLD, &usual, &c->on_child);
}

static int exit_of_errno(int e)
{
    return e == ENOENT || e == ENOTDIR ? EXIT_NOT_FOUND : EXIT_CANNOT_EXECUTE;
}

static int say_cannot_execute(const char *command, int e)
{
    char shown[CLI_SHOWN_SIZE];
    cli_say("cannot execute %s: %s", cli_shown(command, shown, sizeof shown),
            strerror(e));
    return exit_of_errno(e);
}

/* In the child. Everything is as we found it, but for the group. */
static void execute(const struct child *c, int failure)
{
    setpgid(0, 0);
    if (c->terminal.wanted) cli_terminal_give(&c->terminal, getpid());
    sigaction(SIGCHLD, &c->on_child, NULL);
    sigprocmask(SIG_SETMASK, &c->mask, NULL);
    execvp(c->job->argv[0], c->job->argv);
    int e = errno;
    ssize_t told = write(failure, &e, sizeof e);
    (void)told;
    _exit(exit_of_errno(e));
}

/* Start it. 0, or an exit status. Whether it could be executed is seen when it has ended:
 * until then it may be stopped as any command. */
static int start(struct child *c)
{
    int failure[2];
    if (pipe2(failure, O_CLOEXEC) != 0) {
        cli_say("cannot make a pipe: %s", strerror(errno));
        return EXIT_SYSTEM;
    }
    heed_signals(c);
    c->pid = fork();
    if (c->pid < 0) {
        cli_say("cannot fork: %s", strerror(errno));
        return EXIT_SYSTEM;
    }
    if (c->pid == 0) execute(c, failure[1]);
    /* Both of us do this, as neither knows who is first. */
    setpgid(c->pid, c->pid);
    if (c->terminal.wanted) cli_terminal_give(&c->terminal, c->pid);
    close(failure[1]);
    c->failure = failure[0];
    return 0;
}

/* Why it could not be executed; 0: it was. */
static int failed_to_execute(const struct child *c)
{
    int e;
    return read(c->failure, &e, sizeof e) == sizeof e ? e : 0;
}

/* --- Stopping and going on ------------------------------------------------ */

/* Stop the job that we are part of, as the command was stopped, until it is continued.
 * Where no shell does job control the kernel lets us not stop: then false. */
static bool stop_with(struct child *c, int sig, bool had_terminal)
{
#ifdef MUT_NOSTOP
    return false;
#endif
    if (c->terminal.fd < 0) return false;
    /* SIGSTOP was meant for the command alone. But if that had the terminal, somebody has
     * to see that it has stopped. SIGTSTP, as SIGSTOP would stop us also where nobody could
     * continue us. */
    bool job = sig != SIGSTOP;
    int ours = job ? sig : SIGTSTP;
    if (!job && !had_terminal) return false;
    const struct sigaction usual = {.sa_handler = SIG_DFL};
    struct sigaction before;
    sigset_t only, was, pending;
    sigaction(ours, &usual, &before);
    kill(job ? 0 : getpid(), ours);
    sigemptyset(&only);
    sigaddset(&only, ours);
    sigprocmask(SIG_UNBLOCK, &only, &was); /* Here we stop, and here we go on. */
    sigprocmask(SIG_SETMASK, &was, NULL);
    sigaction(ours, &before, NULL);
    /* What continued us is waiting for us. */
    return sigpending(&pending) == 0 && sigismember(&pending, SIGCONT) == 1;
}

/* To the command and all of its group. */
static void send(struct child *c, int sig)
{
    if (kill(-c->pid, sig) == 0 || errno != EPERM || c->powerless) return;
    c->powerless = true;
    cli_say("cannot send %s to the command: it has become another user's",
            sigabbrev_np(sig));
}

static void go_on(struct child *c)
{
    if (c->terminal.wanted) cli_terminal_give(&c->terminal, c->pid);
    send(c, SIGCONT);
}

/* It waits for a terminal that it will never have. The kernel ends the stopped jobs of a
 * terminal that is gone in the same way; who ignores that is asked once more. */
static void end_asking(struct child *c)
{
    if (c->asked_in_vain >= 2) return;
    send(c, c->asked_in_vain++ == 0 ? SIGHUP : SIGTERM);
    go_on(c);
    if (c->asked_in_vain < 2) return;
    cli_say("the command wants a terminal that it cannot have, and may be stopped for "
            "good");
}

static void on_stopped(struct child *c, int sig)
{
    bool asks = sig == SIGTTIN || sig == SIGTTOU;
    if (asks) c->terminal.wanted = true;
    if (asks && cli_terminal_give(&c->terminal, c->pid)) {
        send(c, SIGCONT);
        return;
    }
#ifdef MUT_NOTAKE
    bool had = false;
#else
    bool had = cli_terminal_take(&c->terminal, c->pid);
#endif
    if (stop_with(c, sig, had) || c->terminal.fd < 0) return;
    /* Nobody could continue us, so nobody would continue it. Without us the kernel would not
     * have let Ctrl-Z stop it, and its reading from the terminal would have failed. */
    if (asks) end_asking(c);
    else if (sig == SIGTSTP) go_on(c);
}

/* --- Minding it ----------------------------------------------------------- */

static void on_child_changed(struct child *c)
{
    int status;
    for (;;) {
        pid_t pid = waitpid(c->pid, &status, WNOHANG | WUNTRACED);
        if (pid < 0 && errno == EINTR) continue;
        if (pid <= 0) return;
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
    else {
        if (cli_terminal_ours(&c->terminal)) sigaddset(&c->typed, sig);
#ifndef MUT_NOPASS
        send(c, sig);
#endif
    }
}

/* Whether the lock is lost; then that is said. */
static bool look_at_lock(struct child *c)
{
    c->lost = c->job->lost(c->job->context);
    if (c->lost) c->job->say_lost(c->job->context, c->ended);
    return c->lost;
}

/* Look whether the lock is lost; then the command is asked to end, and then made to. A
 * stopped one is continued, or it could not. */
static void on_time(struct child *c)
{
    int64_t now = cli_now_ms();
    if (!c->lost && now >= c->look_at_ms) {
        c->look_at_ms = now + LOOK_MS;
        if (look_at_lock(c)) {
            send(c, SIGTERM);
            send(c, SIGCONT);
            c->kill_at_ms = now + c->job->grace_ms;
        }
    }
    if (c->kill_at_ms != 0 && now >= c->kill_at_ms) {
        send(c, SIGKILL);
        c->kill_at_ms = 0;
    }
}

static struct timespec until_next(const struct child *c)
{
    int64_t now = cli_now_ms(), at = c->lost ? now + LOOK_MS : c->look_at_ms;
    if (c->kill_at_ms != 0 && c->kill_at_ms < at) at = c->kill_at_ms;
    int64_t ms = at > now ? at - now : 0;
    return (struct timespec){.tv_sec = (time_t)(ms / 1000),
                             .tv_nsec = (long)(ms % 1000) * 1000000};
}

static void mind(struct child *c)
{
    c->look_at_ms = cli_now_ms() + LOOK_MS;
    while (!c->ended) {
        struct timespec wait = until_next(c);
        int sig = sigtimedwait(&c->heeded, NULL, &wait);
        if (sig > 0) on_signal(c, sig);
        on_time(c);
    }
}

/* The command is gone and the lock is lost: what else is in its group gets the rest of
 * the grace, and no more. */
static void end_group(const struct child *c)
{
    const struct timespec moment = {.tv_nsec = 20000000};
    while (c->kill_at_ms != 0 && cli_now_ms() < c->kill_at_ms && kill(-c->pid, 0) == 0)
        nanosleep(&moment, NULL);
    kill(-c->pid, SIGKILL);
}

/* Die of the signal that ended the command. */
static void end_by(int sig)
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

/* Ctrl-C is for the whole job: a script around us is to end as well. It does if it gets
 * the signal and sees us die of it. If the command's group had the terminal, the script
 * did not get it, and we pass it on; if ours had, we came by it together. */
static void end_alike(const struct child *c, int sig)
{
    if (sig != SIGINT && sig != SIGQUIT) return;
    if (c->had_terminal) {
        const struct sigaction ignore = {.sa_handler = SIG_IGN};
        sigaction(sig, &ignore, NULL);
        kill(0, sig);
    } else if (!sigismember(&c->typed, sig)) return;
    end_by(sig);
}

/* What is to be told of a command that has ended. */
static int exit_of(struct child *c)
{
    if (c->lost) return EXIT_LOST;
    if (WIFEXITED(c->status)) return WEXITSTATUS(c->status);
    end_alike(c, WTERMSIG(c->status));
    return EXIT_SIGNALLED + WTERMSIG(c->status);
}

int cli_child(const struct cli_job *job, void (*before_end)(void *))
{
    struct child c = {.job = job, .terminal = cli_terminal_open()};
    int failed = start(&c), e = 0;
#ifdef MUT_EARLYEND
    before_end(job->context);
    if (failed == 0) mind(&c);
    return failed != 0 ? failed : exit_of(&c);
#endif
    if (failed == 0) {
        mind(&c);
        e = failed_to_execute(&c);
        if (c.lost) end_group(&c);
        else if (e == 0) look_at_lock(&c); /* It counts until the very end. */
    }
    before_end(job->context);
    if (failed != 0) return failed;
    return e != 0 ? say_cannot_execute(job->argv[0], e) : exit_of(&c);
}

int cli_become(char **argv)
{
    execvp(argv[0], argv);
    return say_cannot_execute(argv[0], errno);
}
