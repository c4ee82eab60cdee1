#include "cli/renewer.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include "cli/clock.h"
#include "cli/exits.h"
#include "cli/message.h"
#include "cli/text.h"

/* How long to wait before printing a message about the holders. */
#define REPORT_MS 1000

/* How long to try to reach a server. */
#define RETRY_MS 10000

/* How often to copy the expiry of the leases to the shared page: this part of a lease, within
 * limits. */
#define TICKS_PER_LEASE 24
#define TICK_MS_MIN 10
#define TICK_MS_MAX 1000

/* How long a wrapper that is stopped can have the locks without running the command. */
#define UNUSED_MS 1000

/* If a lease was not extended and --max-hold ends within this part of a lease, then --max-hold is the
 * reason. */
#define MAX_HOLD_PART 4

#define NAMED_MAX 3u /* The maximum number of holders that a message names. */
#define VIEWS 200u   /* A server shows at most 100 holders and 100 waiters. */

struct renewer {
    const struct cli_lease_request *r;
    struct cli_shared *shared;
    pid_t wrapper;
    int life, signals, done;
    char name[SLUICE_CLIENT_BYTES_MAX + 1];
    struct sluice *service;
    struct sluice_request request;
    struct sluice_cancel cancel;
    struct sluice_locks *locks;
    struct sluice_grant slot;
    char slot_key[SLUICE_KEY_BYTES_MAX + 1];
    int64_t granted_at_ms;

    /* The thread that waits for the locks writes the status, and then `done`. */
    int status;

    /* The callback waits until the command has ended. */
    pthread_mutex_t mutex;
    pthread_cond_t changed;
    bool ended;
};

/* --- Events of the grants ----------------------------------------------------- */

static enum cli_loss loss_of(const struct renewer *x, enum sluice_event_type type)
{
    int64_t most = x->request.max_hold_ms;
    /* The library counts from before the request, so allow for the time that it took. */
    bool held_long = most > 0 && cli_boot_ms() + x->request.margin_ms +
                                         x->request.lease_ms / MAX_HOLD_PART >=
                                     x->granted_at_ms + most;
    switch (type) {
        case SLUICE_EVENT_STOLEN: return CLI_LOSS_STOLEN;
        case SLUICE_EVENT_BROKEN: return CLI_LOSS_BROKEN;
        case SLUICE_EVENT_UNREACHABLE: return CLI_LOSS_UNREACHABLE;
        default: return held_long ? CLI_LOSS_MAX_HOLD : CLI_LOSS_EXPIRED;
    }
}

static void wake_guard(const struct renewer *x)
{
    pid_t guard = atomic_load_explicit(&x->shared->guard, memory_order_acquire);
    if (guard > 0) kill(guard, CLI_SIGNAL_WAKE);
}

static void on_asked(struct renewer *x, const struct sluice_event *e)
{
    char key[CLI_SAFE_SIZE], left[32];
    cli_safe_text(e->key, key, sizeof key);
    cli_format_duration(e->left_ms, left, sizeof left);
    if (!x->r->quiet)
        cli_message("a client with a higher priority needs \"%s\"; the lease cannot be "
                    "extended, and expires in %s",
                    key, left);
    cli_tell_wrapper(x->wrapper, CLI_NOTICE_ASKED);
}

/* A thread of the library calls this. When it returns, the library releases the other locks, so
 * it returns only when the command has ended. */
static void on_event(void *arg, const struct sluice_event *e)
{
    struct renewer *x = arg;
    char key[CLI_SAFE_SIZE];
    int expected = CLI_LOSS_NONE;
    if (e->type == SLUICE_EVENT_ASKED) {
        on_asked(x, e);
        return;
    }
    if (e->type == SLUICE_EVENT_WITHDRAWN) {
        if (!x->r->quiet)
            cli_message("no other client needs \"%s\" any more",
                        cli_safe_text(e->key, key, sizeof key));
        return;
    }
    atomic_compare_exchange_strong(&x->shared->loss, &expected,
                                   (int)loss_of(x, e->type));
    wake_guard(x);
    pthread_mutex_lock(&x->mutex);
    while (!x->ended) pthread_cond_wait(&x->changed, &x->mutex);
    pthread_mutex_unlock(&x->mutex);
}

/* --- Acquiring ---------------------------------------------------------------- */

static void *acquire(void *arg)
{
    struct renewer *x = arg;
    struct sluice_request *want = &x->request;
    x->status = sluice_acquire_all(x->service, x->r->keys, x->r->count, want,
                                   &x->locks);
    if (x->status == SLUICE_EMAJORITY && x->r->whole) {
        /* Elsewhere, an exclusive run requests the whole capacity, so that it excludes runs
         * with -j. A majority cluster has no counting locks, so a plain request is enough. */
        want->per = want->buckets = want->units = 0;
        x->status = sluice_acquire_all(x->service, x->r->keys, x->r->count, want,
                                       &x->locks);
    }
    eventfd_write(x->done, 1);
    return NULL;
}

static int report_no_slot(const struct renewer *x, const char *reason)
{
    char key[CLI_SAFE_SIZE];
    if (!x->r->quiet)
        cli_message("\"%s\": %s; SLUICE_LOCK_SLOT is not set",
                    cli_safe_text(x->r->keys[0], key, sizeof key), reason);
    return SLUICE_OK;
}

/* Take the lowest free slot number, from 1 to the capacity. Each number is a lock of its own, whose
 * key is derived from the key of the run. Right after a holder has failed, its number may be taken
 * for longer than its unit, so try for the time of two leases. */
static int take_slot(struct renewer *x)
{
    uint64_t capacity = (uint64_t)x->request.per * x->request.buckets;
    struct sluice_request want = {.lease_ms = x->request.lease_ms,
                                  .keep_alive = 1,
                                  .margin_ms = x->request.margin_ms,
                                  .on_event = on_event,
                                  .arg = x,
                                  .note = "slot of sluice run"};
    int64_t until = cli_boot_ms() + 2 * x->request.lease_ms;
    do {
        for (uint32_t i = 1; i <= capacity; i++) {
            int n = snprintf(x->slot_key, sizeof x->slot_key, "%s#%u", x->r->keys[0],
                             i);
            if (n >= (int)sizeof x->slot_key)
                return report_no_slot(x, "the key is too long for slot numbers");
            int status = sluice_acquire(x->service, x->slot_key, &want, &x->slot);
            if (status == SLUICE_OK) x->shared->slot = i;
            if (status != SLUICE_EFULL) return status;
        }
        poll(NULL, 0, 50);
    } while (cli_boot_ms() < until);
    return report_no_slot(x, "other clients hold all slot numbers");
}

/* --- Messages ------------------------------------------------------------------- */

static void keys_of(const struct cli_lease_request *r, char *out, size_t size)
{
    size_t n = 0;
    out[0] = '\0';
    for (size_t i = 0; i < r->count && n < size; i++)
        n += (size_t)snprintf(out + n, size - n, "%s%s", i > 0 ? ", " : "", r->keys[i]);
}

/* Return whether a client is the `sluice run` that has started us, as SLUICE_LOCK_SESSION says. */
static bool runs_us(const char *client)
{
    char host[64], suffix[128];
    const char *outer = getenv("SLUICE_LOCK_SESSION");
    if (outer == NULL) return false;
    snprintf(suffix, sizeof suffix, "[%.20s]@%s", outer,
             cli_host_name(host, sizeof host));
    const char *at = strrchr(client, '[');
    return at != NULL && strcmp(at, suffix) == 0;
}

/* Append a holder: "backup[17]@db1 (127.0.0.1:4242, "nightly") for 12 s, since 14:03:07". */
static void describe(const struct sluice_view *v, char *out, size_t size)
{
    char client[200], address[200], note[300], ago[32], clock[32];
    snprintf(out, size, "%s (%s%s%s%s) for %s, since %s%s",
             cli_safe_text(v->client[0] != '\0' ? v->client : "a client without a name",
                           client, sizeof client),
             cli_safe_text(v->address[0] != '\0' ? v->address : "not connected",
                           address, sizeof address),
             v->note[0] != '\0' ? ", \"" : "",
             cli_safe_text(v->note, note, sizeof note), v->note[0] != '\0' ? "\"" : "",
             cli_format_duration(v->since_ms, ago, sizeof ago),
             cli_format_time(cli_wall_ms() - v->since_ms, clock, sizeof clock),
             runs_us(v->client) ? "; it is waiting for this command: deadlock" : "");
}

/* Print the holders of a key and our position in its queue. Returns false if we do not wait for
 * this key. */
static bool report_holders(const struct renewer *x, const char *key,
                           const struct sluice_view *views, size_t count)
{
    char who[NAMED_MAX * 800] = "", one[800], shown[CLI_SAFE_SIZE], more[64] = "";
    size_t holders = 0, waiters = 0, position = 0;
    for (size_t i = 0; i < count; i++) {
        if (views[i].waits) {
            waiters++;
            if (strcmp(views[i].client, x->name) == 0) position = waiters;
            continue;
        }
        if (holders++ >= NAMED_MAX) continue;
        describe(&views[i], one, sizeof one);
        size_t n = strlen(who);
        snprintf(who + n, sizeof who - n, "%s%s", n > 0 ? "; " : "", one);
    }
    if (position == 0 && (waiters > 0 || holders == 0)) return false;
    if (holders == 0) snprintf(who, sizeof who, "a client that has just released it");
    if (holders > NAMED_MAX)
        snprintf(more, sizeof more, " and %zu more", holders - NAMED_MAX);
    cli_safe_text(key, shown, sizeof shown);
    /* A node of a majority cluster does not show its waiters. */
    if (position == 0)
        cli_message("waiting for \"%s\": held by %s%s", shown, who, more);
    else
        cli_message(
            "waiting for \"%s\": held by %s%s; position %zu of %zu in the queue", shown,
            who, more, position, waiters);
    return true;
}

static void report_waiting(struct renewer *x)
{
    struct sluice_view *views = calloc(VIEWS, sizeof *views);
    char shown[CLI_SAFE_SIZE], error[512];
    bool reported = false;
    if (views == NULL) return;
    for (size_t i = 0; i < x->r->count && !reported; i++) {
        int64_t n = sluice_inspect(x->service, x->r->keys[i], views, VIEWS);
        if (n < 0) {
            sluice_error(x->service, error, sizeof error);
            cli_message("waiting for the server: %s; still trying",
                        cli_safe_text(error, shown, sizeof shown));
            break;
        }
        reported = report_holders(x, x->r->keys[i], views,
                                  n < (int64_t)VIEWS ? (size_t)n : VIEWS);
    }
    free(views);
}

/* Return the exit status for a failed acquisition, after a message. */
static int report_failure(struct renewer *x, int status)
{
    char keys[CLI_SAFE_SIZE], error[512];
    keys_of(x->r, keys, sizeof keys);
    sluice_error(x->service, error, sizeof error);
    const struct cli_refusal refusal = {.keys = keys,
                                        .status = status,
                                        .error = error,
                                        .wait_ms = x->request.wait_ms,
                                        .quiet = x->r->quiet};
    int exit_status = cli_server_refused(x->r->server, &refusal);
    return status == SLUICE_EFULL ? x->r->conflict : exit_status;
}

/* --- Waiting ---------------------------------------------------------------------- */

/* Wait until the thread has a result. After a second, print who holds the locks. SIGTERM, and the
 * end of the wrapper, cancel the wait. */
static void wait_for_locks(struct renewer *x)
{
    int64_t report_at = cli_boot_ms() + REPORT_MS;
    int64_t wait_ms = x->request.wait_ms;
    /* Do not print a message shortly before the timeout. */
    bool quiet = x->r->quiet || (wait_ms >= 0 && wait_ms <= REPORT_MS + REPORT_MS / 10);
    for (;;) {
        struct pollfd p[] = {{.fd = x->done, .events = POLLIN},
                             {.fd = x->signals, .events = POLLIN},
                             {.fd = x->life, .events = POLLIN}};
        int64_t left = report_at - cli_boot_ms();
        int n = poll(p, 3, quiet ? -1 : left > 0 ? (int)left : 0);
        if (n < 0 && errno != EINTR) return;
        if (n > 0 && p[0].revents != 0) return;
        if (n > 0 && (p[1].revents != 0 || p[2].revents != 0)) {
            sluice_cancel(x->service, &x->cancel);
            while (poll(p, 1, -1) < 0 && errno == EINTR) {}
            return;
        }
        if (!quiet && n == 0) {
            report_waiting(x);
            quiet = true;
        }
    }
}

/* --- Renewing --------------------------------------------------------------------- */

static void raise_to(_Atomic int64_t *at, int64_t ms)
{
    if (ms > atomic_load_explicit(at, memory_order_relaxed))
        atomic_store_explicit(at, ms, memory_order_release);
}

/* Copy the expiry of the leases to the shared page. */
static void copy_expiry(struct renewer *x)
{
    /* Read the clock first: if this process is stopped between the two calls, the result is
     * too early, not too late. */
    int64_t now = cli_boot_ms();
    int64_t left = sluice_locks_left(x->locks);
    if (x->slot.fence != 0) {
        int64_t slot = sluice_left(x->service, x->slot_key, x->slot.fence);
        if (slot < left) left = slot;
    }
    if (left <= 0) return;
    /* The later time first: the guard never sees it before the earlier one. */
    raise_to(&x->shared->kill_at_ms,
             now + left + x->request.margin_ms - x->r->kill_margin_ms);
    raise_to(&x->shared->ask_at_ms, now + left);
}

/* Whether the wrapper has not used the locks for so long that the renewer releases them. */
static bool gives_up(const struct renewer *x)
{
    int none = CLI_CLAIM_NONE;
    return cli_boot_ms() >= x->granted_at_ms + UNUSED_MS &&
           atomic_compare_exchange_strong(&x->shared->claim, &none, CLI_CLAIM_GIVEN_UP);
}

/* Replace a stream by /dev/null: a process that reads from this pipe must not wait for us. */
static void leave_stream(int fd)
{
    int null = open("/dev/null", O_RDWR | O_CLOEXEC);
    if (null >= 0) dup2(null, fd);
    if (null > STDERR_FILENO) close(null);
}

/* Extend the leases until the wrapper and the guard have both ended, or until the wrapper has not
 * used the locks for too long. SIGTERM means that the wrapper has ended, and that nobody reads
 * messages any more. */
static void renew(struct renewer *x)
{
    int64_t tick = x->request.lease_ms / TICKS_PER_LEASE;
    tick = tick < TICK_MS_MIN ? TICK_MS_MIN : tick > TICK_MS_MAX ? TICK_MS_MAX : tick;
    for (;;) {
        struct pollfd p[] = {{.fd = x->life, .events = POLLIN},
                             {.fd = x->signals, .events = POLLIN}};
        int n = poll(p, 2, (int)tick);
        if (p[0].revents != 0 || (n < 0 && errno != EINTR) || gives_up(x)) return;
        if (n > 0 && p[1].revents != 0) {
            struct signalfd_siginfo info;
            if (read(x->signals, &info, sizeof info) > 0) leave_stream(STDERR_FILENO);
        }
        copy_expiry(x);
    }
}

static void end_callbacks(struct renewer *x)
{
    pthread_mutex_lock(&x->mutex);
    x->ended = true;
    pthread_cond_broadcast(&x->changed);
    pthread_mutex_unlock(&x->mutex);
}

/* --- The process -------------------------------------------------------------------- */

static int start(struct renewer *x)
{
    const struct sluice_options options = {
        .password = x->r->server->password, .name = x->name, .retry_ms = RETRY_MS};
    sigset_t all, heeded;
    sigfillset(&all);
    sigprocmask(SIG_BLOCK, &all, NULL);
    sigemptyset(&heeded);
    sigaddset(&heeded, SIGTERM);
    prctl(PR_SET_NAME, "sluice-renewer");
    cli_message_never_waits();
    leave_stream(STDIN_FILENO);
    leave_stream(STDOUT_FILENO);
    x->signals = signalfd(-1, &heeded, SFD_CLOEXEC);
    x->done = eventfd(0, EFD_CLOEXEC);
    if (x->signals < 0 || x->done < 0) return SLUICE_EIO;
    return sluice_open(x->r->server->addresses, &options, &x->service);
}

/* Acquire the locks. If they are not granted, returns false, prints a message and sets the exit
 * status, which can be 0 (-E 0). */
static bool acquire_locks(struct renewer *x, int *exit_status)
{
    struct sluice_wire *wire;
    pthread_t thread;
    /* Once, without the retries of the library: a wrong address is reported at once. */
    *exit_status = cli_server_connect(x->r->server,
                                      (struct sluice_wire_options){.resp = 3}, &wire);
    if (*exit_status != 0) return false;
    sluice_wire_close(wire);
    if (pthread_create(&thread, NULL, acquire, x) != 0) {
        *exit_status = report_failure(x, SLUICE_ENOMEM);
        return false;
    }
    wait_for_locks(x);
    pthread_join(thread, NULL);
    x->granted_at_ms = cli_boot_ms();
    int status = x->status;
    if (status == SLUICE_OK && x->r->numbered) status = take_slot(x);
    if (status == SLUICE_OK) return true;
    if (status == SLUICE_ECANCELLED)
        *exit_status = CLI_EXIT_TAKEN; /* By the wrapper. */
    else *exit_status = report_failure(x, status);
    return false;
}

int cli_renewer(const struct cli_lease_request *r, struct cli_shared *shared,
                pid_t wrapper, int life)
{
    struct renewer *x = calloc(1, sizeof *x);
    if (x == NULL) return cli_status_error("sluice run", SLUICE_ENOMEM);
    *x = (struct renewer){.r = r,
                          .shared = shared,
                          .wrapper = wrapper,
                          .life = life,
                          .request = r->request,
                          .mutex = PTHREAD_MUTEX_INITIALIZER,
                          .changed = PTHREAD_COND_INITIALIZER};
    x->request.on_event = on_event;
    x->request.arg = x;
    x->request.cancel = &x->cancel;
    cli_client_name(r->program, wrapper, x->name, sizeof x->name);
    int status = start(x);
    if (status != SLUICE_OK) {
        atomic_store_explicit(&shared->refused, true, memory_order_release);
        return cli_server_failed(r->server->addresses, status,
                                 sluice_status_text(status));
    }
    int exit_status = 0;
    if (!acquire_locks(x, &exit_status)) {
        atomic_store_explicit(&shared->refused, true, memory_order_release);
        end_callbacks(x);
        sluice_close(x->service); /* This also ends the grants, if there are some. */
        return exit_status;
    }
    if (r->whole && r->count == 1) shared->slot = 1;
    for (size_t i = 0; i < r->count; i++)
        shared->fences[i] = sluice_locks_fence(x->locks, i);
    copy_expiry(x);
    cli_tell_wrapper(wrapper, CLI_NOTICE_GRANTED);
    renew(x);
    end_callbacks(x);
    /* If the wrapper and the guard were killed while the command ran, descendants may still run:
     * do not release. */
    if (atomic_load_explicit(&shared->guard, memory_order_acquire) == 0 ||
        atomic_load_explicit(&shared->phase, memory_order_acquire) == CLI_PHASE_DONE)
        sluice_close(x->service);
    return 0;
}
