#include "cli/holder.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cli/clock.h"
#include "cli/exits.h"
#include "cli/message.h"
#include "cli/shell.h"
#include "cli/text.h"

/* How long to wait before printing a message. */
#define REPORT_MS 1000

/* How long to try to reach a server. */
#define RETRY_MS 10000

struct holder {
    struct cli_script *o;
    struct sluice *service;
    struct sluice_request request;
    struct sluice_cancel cancel;
    struct sluice_grant grant;
    int signals; /* Receives the signals that end this process. */
    int followed; /* Becomes readable when the script has ended; -1: it is not followed. */
    int front;    /* A socket to the process in the foreground; -1: none. */
    bool background, done, lost;
    int status; /* Of the call that is done. */
    enum sluice_event_type why;

    /* Reasons to end, which wait_once() finds. */
    bool script_ended, front_ended, writable;
    int sig;
};

const char *cli_holder_name(uint64_t fence, char out[CLI_HOLDER_NAME_SIZE])
{
    snprintf(out, CLI_HOLDER_NAME_SIZE, "sluice:%08x", (unsigned)fence);
    return out;
}

static int cannot(const char *what)
{
    cli_message("cannot %s: %s", what, strerror(errno));
    return CLI_EXIT_SYSTEM;
}

/* --- Signals ---------------------------------------------------------------------- */

/* Block the signals that end this process, except those that are ignored. Returns a descriptor that
 * receives them, or -1. */
static int open_signals(void)
{
    static const int ends[] = {SIGHUP, SIGINT, SIGQUIT, SIGTERM};
    struct sigaction now;
    sigset_t set;
    sigemptyset(&set);
    for (size_t i = 0; i < sizeof ends / sizeof *ends; i++)
        if (sigaction(ends[i], NULL, &now) == 0 && now.sa_handler != SIG_IGN)
            sigaddset(&set, ends[i]);
    sigprocmask(SIG_BLOCK, &set, NULL);
    return signalfd(-1, &set, SFD_CLOEXEC);
}

static int read_signal(int fd)
{
    struct signalfd_siginfo info;
    return read(fd, &info, sizeof info) == sizeof info ? (int)info.ssi_signo : 0;
}

/* --- Events ------------------------------------------------------------------------- */

static void on_done(void *arg, int status, const struct sluice_grant *grant)
{
    struct holder *x = arg;
    x->done = true;
    x->status = status;
    if (grant != NULL) x->grant = *grant;
}

static void on_event(void *arg, const struct sluice_event *e)
{
    struct holder *x = arg;
    char key[CLI_SAFE_SIZE], left[32];
    cli_safe_text(e->key, key, sizeof key);
    if (e->type == SLUICE_EVENT_ASKED) {
        if (!x->o->quiet)
            cli_message(
                "a client with a higher priority needs \"%s\"; the lease cannot be "
                "extended, and expires in %s",
                key, cli_format_duration(e->left_ms, left, sizeof left));
    } else if (e->type == SLUICE_EVENT_WITHDRAWN) {
        if (!x->o->quiet) cli_message("no other client needs \"%s\" any more", key);
    } else {
        x->lost = true;
        x->why = e->type;
    }
}

static const char *reason_of(enum sluice_event_type why)
{
    switch (why) {
        case SLUICE_EVENT_STOLEN: return "a client with a higher priority has taken it";
        case SLUICE_EVENT_BROKEN:
            return "an operator has revoked it, or another client has released it";
        case SLUICE_EVENT_UNREACHABLE:
            return "no server answers, so its lease cannot be extended";
        default: return "its lease was not extended in time";
    }
}

static int report_lost(const struct holder *x)
{
    char key[CLI_SAFE_SIZE];
    cli_message("lost the lock \"%s\": %s", cli_safe_text(x->o->key, key, sizeof key),
                reason_of(x->why));
    return CLI_EXIT_LOST;
}

/* --- Waiting ------------------------------------------------------------------------ */

/* Read from the process in the foreground, which sends a byte before it prints the result. */
static void hear_front(struct holder *x)
{
    char byte;
    ssize_t n = recv(x->front, &byte, 1, 0);
    if (n < 0 && errno == EINTR) return;
    if (n == 1) {
        close(x->front);
        x->front = -1;
    } else x->front_ended = true;
}

/* Wait for something, at most until a time, and handle it. With `prints`, also wait until the result
 * can be printed. */
static void wait_once(struct holder *x, int64_t until_ms, bool prints)
{
    struct pollfd p[] = {{.fd = sluice_fd(x->service), .events = POLLIN},
                         {.fd = x->sig == 0 ? x->signals : -1, .events = POLLIN},
                         {.fd = x->script_ended ? -1 : x->followed, .events = POLLIN},
                         {.fd = x->front_ended ? -1 : x->front, .events = POLLIN},
                         {.fd = prints ? x->o->out : -1, .events = POLLOUT}};
    int timeout = sluice_timeout_ms(x->service);
    int64_t left = until_ms - cli_boot_ms();
    if (left < 0) left = 0;
    if (until_ms != INT64_MAX && (timeout < 0 || left < timeout)) timeout = (int)left;
    if (poll(p, sizeof p / sizeof *p, timeout) < 0 && errno != EINTR) abort();
    sluice_step(x->service);
    if (p[1].revents != 0) x->sig = read_signal(x->signals);
    if (p[2].revents != 0) x->script_ended = true;
    if (p[3].revents != 0) hear_front(x);
    x->writable = prints && p[4].revents != 0;
}

static bool must_end(const struct holder *x)
{
    return x->sig != 0 || x->script_ended || x->front_ended;
}

/* --- Acquiring ---------------------------------------------------------------------- */

static int start(struct holder *x)
{
    x->done = false;
    int status = sluice_acquire_start(x->service, x->o->key, &x->request, on_done, x);
    if (status != SLUICE_OK) on_done(x, status, NULL);
    return status;
}

/* Wait for the lock. The end of the script, and a signal, cancel the request. */
static void acquire(struct holder *x)
{
    char key[CLI_SAFE_SIZE];
    bool quiet = x->o->quiet ||
                 (x->request.wait_ms >= 0 && x->request.wait_ms <= 2 * REPORT_MS);
    int64_t report_at = quiet ? INT64_MAX : cli_boot_ms() + REPORT_MS;
    bool whole = !x->request.shared && x->request.per == 0;
    if (whole) x->request.per = x->request.units = SLUICE_UNITS_MAX;
    start(x);
    while (!x->done || (whole && x->status == SLUICE_EMAJORITY)) {
        if (x->done) {
            /* Elsewhere, an exclusive lock requests the whole capacity, so that it excludes
             * holders with -j. A majority cluster has no counting locks, so a plain request is
             * enough. */
            whole = false;
            x->request.per = x->request.units = 0;
            start(x);
            continue;
        }
        wait_once(x, report_at, false);
        if (must_end(x)) sluice_cancel(x->service, &x->cancel);
        if (cli_boot_ms() < report_at || x->done) continue;
        report_at = INT64_MAX;
        cli_message("waiting for \"%s\"", cli_safe_text(x->o->key, key, sizeof key));
    }
}

/* Return the exit status for a request that was not granted, after a message. */
static int report_failure(struct holder *x)
{
    char error[512];
    if (x->status == SLUICE_ECANCELLED) return CLI_EXIT_TAKEN;
    sluice_error(x->service, error, sizeof error);
    const struct cli_refusal refusal = {.keys = x->o->key,
                                        .status = x->status,
                                        .error = error,
                                        .wait_ms = x->request.wait_ms,
                                        .quiet = x->o->quiet};
    return cli_server_refused(&x->o->server, &refusal);
}

/* Release the lock. Returns 0; or prints a message and returns an exit status. */
static int release(struct holder *x)
{
    char key[CLI_SAFE_SIZE], error[512], reason[CLI_SAFE_SIZE];
    x->done = false;
    int status = sluice_release_start(x->service, x->o->key, x->grant.fence, on_done,
                                      x);
    if (status != SLUICE_OK) on_done(x, status, NULL);
    while (!x->done) wait_once(x, INT64_MAX, false);
    if (x->status == SLUICE_OK) return 0;
    cli_safe_text(x->o->key, key, sizeof key);
    if (x->status == SLUICE_ELOST) {
        cli_message("cannot release \"%s\": %s", key, sluice_status_text(x->status));
        return CLI_EXIT_LOST;
    }
    sluice_error(x->service, error, sizeof error);
    cli_message("cannot release \"%s\": %s; it may be held until its lease expires",
                key,
                error[0] != '\0' ? cli_safe_text(error, reason, sizeof reason)
                                 : sluice_status_text(x->status));
    return CLI_EXIT_UNAVAILABLE;
}

/* --- Printing the result -------------------------------------------------------------- */

static struct cli_shell_lock lock_of(const struct cli_script *o, uint64_t fence)
{
    return (struct cli_shell_lock){.key = o->key,
                                   .fence = fence,
                                   .servers = o->server.addresses,
                                   .lease_ms = o->want.lease_ms};
}

/* Print the result, or let the process in the foreground print it. Returns 0, or an exit status. */
static int tell(struct holder *x)
{
    char name[CLI_HOLDER_NAME_SIZE];
    if (x->o->id == CLI_HOLD) prctl(PR_SET_NAME, cli_holder_name(x->grant.fence, name));
    if (x->background) {
        uint64_t fence = x->grant.fence;
        ssize_t n = send(x->front, &fence, sizeof fence, MSG_NOSIGNAL);
        return n == sizeof fence ? 0 : CLI_EXIT_SYSTEM;
    }
    while (!x->writable && !x->lost && !must_end(x)) wait_once(x, INT64_MAX, true);
    if (x->lost || must_end(x)) return 0;
    struct cli_shell_lock lock = lock_of(x->o, x->grant.fence);
    int64_t now = cli_boot_ms(), left = sluice_left(x->service, x->o->key, lock.fence);
    if (left <= 0) {
        x->lost = true;
        x->why = SLUICE_EVENT_EXPIRED;
        return 0;
    }
    if (x->o->id == CLI_ACQUIRE) lock.until_ms = now + left;
    return cli_script_print(x->o, &lock);
}

/* --- The process that has the lock ---------------------------------------------------- */

/* Work after the grant, until the lock is lost or released. */
static int hold(struct holder *x)
{
    int status = tell(x);
    bool keeps = x->o->id == CLI_HOLD;
    while (status == 0 && keeps && !x->lost && !must_end(x))
        wait_once(x, INT64_MAX, false);
    if (x->lost) {
        if (x->o->kill) syscall(SYS_pidfd_send_signal, x->followed, SIGTERM, NULL, 0);
        return report_lost(x);
    }
    /* acquire leaves the lock held when the script knows of it. */
    if (status == 0 && !keeps && !must_end(x)) return 0;
    int released = release(x);
    return status != 0 ? status : released;
}

/* Return the exit status. */
static int work(struct holder *x)
{
    char name[SLUICE_CLIENT_BYTES_MAX + 1];
    struct sluice_wire *wire;
    struct cli_script *o = x->o;
    bool keeps = o->id == CLI_HOLD;
    if (keeps) cli_message_never_waits();
    cli_client_name(keeps ? "sluice-hold" : "sluice-acquire",
                    o->pid != 0 ? o->pid : getppid(), name, sizeof name);
    const struct sluice_options options = {.password = o->server.password,
                                           .name = name,
                                           .retry_ms = RETRY_MS,
                                           .event_loop = 1};
    /* Once, without the retries of the library: a wrong address is reported at once. */
    int exit_status = cli_server_connect(
        &o->server, (struct sluice_wire_options){.resp = 3}, &wire);
    if (exit_status != 0) return exit_status;
    sluice_wire_close(wire);
    int status = sluice_open(o->server.addresses, &options, &x->service);
    if (status != SLUICE_OK)
        return cli_server_failed(o->server.addresses, status,
                                 sluice_status_text(status));
    x->request = o->want;
    x->request.keep_alive = keeps;
    x->request.on_event = on_event;
    x->request.arg = x;
    x->request.cancel = &x->cancel;
    acquire(x);
    exit_status = x->status == SLUICE_OK ? hold(x) : report_failure(x);
    /* A grant of acquire has no keep_alive, so this does not end it. */
    sluice_close(x->service);
    return exit_status;
}

/* --- The process that the script has started -------------------------------------------- */

/* Follow a process. Returns 0; or prints a message and returns an exit status. */
static int follow(struct holder *x)
{
    pid_t parent = getppid(), pid = x->o->pid != 0 ? x->o->pid : parent;
    x->followed = (int)syscall(SYS_pidfd_open, pid, 0);
    if (x->followed < 0 && errno == ESRCH)
        return cli_usage_error("--pid: there is no process %d", (int)pid);
    if (x->followed < 0) return cannot("follow a process");
    /* If the parent has ended, another process may have its process id. */
    if (x->o->pid == 0 && getppid() != parent) x->script_ended = true;
    return 0;
}

/* Leave the session of the script, and close its files: a shell waits until the pipe of $(...) is
 * closed. */
static void detach(struct holder *x)
{
    int low = x->front < x->followed ? x->front : x->followed;
    int high = x->front < x->followed ? x->followed : x->front;
    int null = open("/dev/null", O_RDWR | O_CLOEXEC);
    setsid();
    dup2(null, STDIN_FILENO);
    dup2(null, STDOUT_FILENO);
    close(x->o->out);
    syscall(SYS_close_range, STDERR_FILENO + 1, low - 1, 0);
    syscall(SYS_close_range, low + 1, high - 1, 0);
    syscall(SYS_close_range, high + 1, ~0u, 0);
    x->signals = open_signals();
}

/* Wait until the background process has ended; returns its exit status. */
static int status_of(pid_t child)
{
    int status;
    while (waitpid(child, &status, 0) < 0)
        if (errno != EINTR) return CLI_EXIT_SYSTEM;
    if (WIFEXITED(status)) return WEXITSTATUS(status);
    cli_message("the process that acquires the lock was killed");
    return CLI_EXIT_SYSTEM;
}

/* Wait for the background process, and print the result. */
static int stand_in_front(struct holder *x, pid_t child, int back)
{
    uint64_t fence = 0;
    for (;;) {
        struct pollfd p[] = {{.fd = back, .events = POLLIN},
                             {.fd = x->signals, .events = POLLIN}};
        if (poll(p, 2, -1) < 0 && errno != EINTR) abort();
        if (p[1].revents != 0) {
            x->sig = read_signal(x->signals);
            kill(child, SIGTERM); /* It cancels the request, or releases the lock. */
            status_of(child);
            return CLI_EXIT_SIGNALLED + x->sig;
        }
        if (p[0].revents == 0) continue;
        /* From this byte on, the background process holds the lock until the script ends. */
        if (recv(back, &fence, sizeof fence, 0) != sizeof fence ||
            send(back, "", 1, MSG_NOSIGNAL) != 1) {
            int status = status_of(child);
            return status != 0 ? status : CLI_EXIT_LOST;
        }
        struct cli_shell_lock lock = lock_of(x->o, fence);
        lock.holder = child;
        int status = cli_script_print(x->o, &lock);
        if (status == 0) return 0;
        kill(child, SIGTERM);
        status_of(child);
        return status;
    }
}

static int work_in_background(struct holder *x)
{
    int ends[2];
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0)
        return cannot("create a socket");
    pid_t child = fork();
    if (child < 0) return cannot("fork");
    if (child > 0) {
        close(ends[1]);
        return stand_in_front(x, child, ends[0]);
    }
    close(ends[0]);
    close(x->signals);
    x->front = ends[1];
    x->background = true;
    detach(x);
    _exit(x->signals < 0 ? cannot("receive signals") : work(x));
}

int cli_holder(struct cli_script *o)
{
    struct holder x = {.o = o, .front = -1, .followed = -1};
    int status = o->id == CLI_HOLD ? follow(&x) : 0;
    if (status != 0) return status;
    x.signals = open_signals();
    if (x.signals < 0) return cannot("receive signals");
    if (o->id == CLI_HOLD && o->shell) status = work_in_background(&x);
    else status = work(&x);
    /* hold releases the lock after a signal, and that is its success. */
    if (x.sig != 0 && (o->id == CLI_ACQUIRE || o->shell || status == CLI_EXIT_TAKEN)) {
        o->sig = x.sig;
        return CLI_EXIT_SIGNALLED + x.sig;
    }
    return status;
}
