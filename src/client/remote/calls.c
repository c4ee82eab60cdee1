/* calls.c - the public functions, on a service of a server or a cluster. */
#include <stdio.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "client/remote/remote.h"

static int32_t thread_id(void)
{
    return (int32_t)syscall(SYS_gettid);
}

/* --- Calls ------------------------------------------------------------------- */

static int enter(struct sl_remote *s)
{
    if (s->fork_era != sl_client_fork_era) return SLUICE_EFORKED;
    pthread_mutex_lock(&s->mutex);
    if (!s->closing) return SLUICE_OK;
    pthread_mutex_unlock(&s->mutex);
    return SLUICE_ECLOSED;
}

static void leave(struct sl_remote *s)
{
    sl_remote_settle(s);
    pthread_mutex_unlock(&s->mutex);
}

void sl_remote_sleep(struct sl_remote *s, pthread_cond_t *until)
{
    int cancel;
    /* A thread that is cancelled here would leave the mutex locked. */
    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &cancel);
    s->sleepers++;
    pthread_cond_wait(until, &s->mutex);
    if (--s->sleepers == 0 && s->closing) pthread_cond_broadcast(&s->sleepers_gone);
    pthread_setcancelstate(cancel, NULL);
}

/* A call that waits for its result. */
struct blocking {
    struct sl_remote_call call;
    pthread_cond_t wakes;
};

/* Begin a blocking call. */
static int begin(struct sl_remote *s, struct blocking *b)
{
    if (s->event_loop) return SLUICE_EINVAL;
    *b = (struct blocking){0};
    sl_list_init(&b->call.ticket.node);
    if (sl_client_condition_init(&b->wakes) != SLUICE_OK) return SLUICE_ENOMEM;
    b->call.wakes = &b->wakes;
    int status = enter(s);
    if (status != SLUICE_OK) pthread_cond_destroy(&b->wakes);
    return status;
}

/* Wait for the result, unless the call failed to start. Unlocks the mutex. */
static int finish(struct sl_remote *s, struct blocking *b, int started)
{
    sl_remote_settle(s);
    if (started == SLUICE_OK)
        while (!b->call.ticket.done) sl_remote_sleep(s, &b->wakes);
    pthread_mutex_unlock(&s->mutex);
    pthread_cond_destroy(&b->wakes);
    return started == SLUICE_OK ? b->call.ticket.status : started;
}

static bool is_cancelled(const struct sluice_request *r)
{
    return r->cancel != NULL && r->cancel->cancelled != 0;
}

static int acquire(struct sluice *service, const char *key,
                   const struct sluice_request *r, struct sluice_grant *out)
{
    struct sl_remote *s = sl_remote_of(service);
    struct blocking b;
    int status = begin(s, &b);
    if (status != SLUICE_OK) return status;
    status = is_cancelled(r) ? SLUICE_ECANCELLED
                             : sl_engine_acquire(&s->engine, sl_remote_now(), key, r, 0,
                                                 thread_id(), &b.call.ticket);
    status = finish(s, &b, status);
    if (status == SLUICE_OK) *out = b.call.ticket.grant;
    return status;
}

static int cancel(struct sluice *service, struct sluice_cancel *token)
{
    struct sl_remote *s = sl_remote_of(service);
    int status = enter(s);
    if (status != SLUICE_OK) return status;
    token->cancelled = 1;
    sl_engine_cancel(&s->engine, sl_remote_now(), token);
    leave(s);
    return SLUICE_OK;
}

/* Wait until the callback of a grant that was released has returned, unless this thread is in
 * it. */
static void await_callback(struct sl_remote *s)
{
    uint64_t before = s->callbacks_done;
    if (s->event_loop || pthread_equal(pthread_self(), s->callback_thread)) return;
    while (s->engine.running != NULL && s->engine.running->dropped &&
           s->callbacks_done == before)
        sl_remote_sleep(s, &s->callback_done);
}

static int release(struct sluice *service, const char *key, uint64_t fence)
{
    struct sl_remote *s = sl_remote_of(service);
    struct blocking b;
    int status = begin(s, &b);
    if (status != SLUICE_OK) return status;
    status = sl_engine_release(&s->engine, sl_remote_now(), key, fence, thread_id(),
                               &b.call.ticket);
    sl_remote_settle(s); /* The next holder need not wait for the callback. */
    await_callback(s);
    return finish(s, &b, status);
}

static int extend(struct sluice *service, const char *key, uint64_t fence,
                  int64_t lease_ms)
{
    struct sl_remote *s = sl_remote_of(service);
    struct blocking b;
    int status = begin(s, &b);
    if (status != SLUICE_OK) return status;
    status = sl_engine_extend(&s->engine, sl_remote_now(), key, fence, lease_ms,
                              &b.call.ticket);
    return finish(s, &b, status);
}

static int64_t left(struct sluice *service, const char *key, uint64_t fence)
{
    struct sl_remote *s = sl_remote_of(service);
    int status = enter(s);
    if (status != SLUICE_OK) return status;
    int64_t left_ms = sl_engine_left(&s->engine, sl_remote_now(), key, fence);
    pthread_mutex_unlock(&s->mutex);
    return left_ms;
}

static int ask(struct sl_remote *s, struct blocking *b, enum sl_call_type type,
               const char *key, uint64_t fence, bool at_once)
{
    int status = begin(s, b);
    if (status != SLUICE_OK) return status;
    status = sl_engine_ask(&s->engine, sl_remote_now(), type, key, fence, at_once,
                           &b->call.ticket);
    return finish(s, b, status);
}

static int check(struct sluice *service, const char *key, uint64_t fence)
{
    struct sl_remote *s = sl_remote_of(service);
    struct blocking b;
    int status = ask(s, &b, SL_CALL_CHECK, key, fence, false);
    if (status != SLUICE_OK || enter(s) != SLUICE_OK) return status;
    const struct sl_hold *h = sl_engine_hold(&s->engine, key, fence);
    if (h != NULL && h->asked) status = SLUICE_EASKED;
    pthread_mutex_unlock(&s->mutex);
    return status;
}

static int break_grant(struct sluice *service, const char *key, uint64_t fence,
                       bool at_once)
{
    struct blocking b;
    return ask(sl_remote_of(service), &b, SL_CALL_BREAK, key, fence, at_once);
}

static int64_t inspect(struct sluice *service, const char *key, struct sluice_view *out,
                       size_t max)
{
    struct blocking b;
    int status = ask(sl_remote_of(service), &b, SL_CALL_INSPECT, key, 0, false);
    if (status != SLUICE_OK) return status;
    int64_t n = sl_remote_views(b.call.ticket.reply, out, max);
    sluice_reply_free(b.call.ticket.reply);
    return n;
}

static void remind(struct sluice *service, const char *key, uint64_t fence)
{
    struct sl_remote *s = sl_remote_of(service);
    if (enter(s) != SLUICE_OK) return;
    sl_engine_remind(&s->engine, key, fence);
    leave(s);
}

static void error(struct sluice *service, char *out, size_t size)
{
    struct sl_remote *s = sl_remote_of(service);
    if (enter(s) != SLUICE_OK) return;
    snprintf(out, size, "%s", s->engine.last_error);
    pthread_mutex_unlock(&s->mutex);
}

/* --- Calls with a callback ------------------------------------------------------- */

/* Begin a call that has a callback. On success, the mutex is locked. */
static int begin_start(struct sl_remote *s, sluice_done_fn *on_done, void *arg,
                       bool acquires, struct sl_remote_call **out)
{
    struct sl_remote_call *c = calloc(1, sizeof *c);
    if (c == NULL) return SLUICE_ENOMEM;
    *c = (struct sl_remote_call){.on_done = on_done, .arg = arg, .acquires = acquires};
    sl_list_init(&c->ticket.node);
    sl_list_init(&c->node);
    int status = enter(s);
    if (status == SLUICE_OK) *out = c;
    else free(c);
    return status;
}

/* Return the status of the start of a call that has a callback. Frees a call that failed to
 * start, and unlocks the mutex. */
static int started(struct sl_remote *s, struct sl_remote_call *c, int status)
{
    if (status != SLUICE_OK) free(c);
    leave(s);
    return status;
}

static int acquire_start(struct sluice *service, const char *key,
                         const struct sluice_request *r, int64_t delay_ms,
                         sluice_done_fn *on_done, void *arg)
{
    struct sl_remote *s = sl_remote_of(service);
    struct sl_remote_call *c;
    int status = begin_start(s, on_done, arg, true, &c);
    if (status != SLUICE_OK) return status;
    status = is_cancelled(r) ? SLUICE_ECANCELLED
                             : sl_engine_acquire(&s->engine, sl_remote_now(), key, r,
                                                 delay_ms, thread_id(), &c->ticket);
    return started(s, c, status);
}

static int release_start(struct sluice *service, const char *key, uint64_t fence,
                         sluice_done_fn *on_done, void *arg)
{
    struct sl_remote *s = sl_remote_of(service);
    struct sl_remote_call *c;
    int status = begin_start(s, on_done, arg, false, &c);
    if (status != SLUICE_OK) return status;
    status = sl_engine_release(&s->engine, sl_remote_now(), key, fence, thread_id(),
                               &c->ticket);
    return started(s, c, status);
}

static int extend_start(struct sluice *service, const char *key, uint64_t fence,
                        int64_t lease_ms, sluice_done_fn *on_done, void *arg)
{
    struct sl_remote *s = sl_remote_of(service);
    struct sl_remote_call *c;
    int status = begin_start(s, on_done, arg, false, &c);
    if (status != SLUICE_OK) return status;
    status = sl_engine_extend(&s->engine, sl_remote_now(), key, fence, lease_ms,
                              &c->ticket);
    return started(s, c, status);
}

/* --- Event loops --------------------------------------------------------------------- */

static bool runs_event_loop(const struct sluice *service)
{
    return sl_container_of(service, struct sl_remote, base)->event_loop;
}

static int fd(struct sluice *service)
{
    struct sl_remote *s = sl_remote_of(service);
    return s->event_loop ? s->epoll : SLUICE_EINVAL;
}

static int timeout_ms(struct sluice *service)
{
    struct sl_remote *s = sl_remote_of(service);
    if (enter(s) != SLUICE_OK) return -1;
    sl_ms due = sl_remote_has_callbacks(s) ? 0 : sl_engine_due(&s->engine);
    pthread_mutex_unlock(&s->mutex);
    if (due == SL_NEVER) return -1;
    sl_ms left_ms = due - sl_remote_now();
    return left_ms <= 0 ? 0 : left_ms < INT32_MAX ? (int)left_ms : INT32_MAX;
}

static int step(struct sluice *service)
{
    struct sl_remote *s = sl_remote_of(service);
    if (!s->event_loop) return SLUICE_EINVAL;
    int count = enter(s);
    if (count != SLUICE_OK) return count;
    sl_remote_poll(s);
    count = sl_remote_run_callbacks(s, SL_REMOTE_STEP_MAX);
    leave(s);
    return count;
}

/* --- Connections for transactions ------------------------------------------------------- */

static int open_wire(struct sluice *service, unsigned attempt, struct sluice_wire **out)
{
    struct sl_remote *s = sl_remote_of(service);
    struct sluice_wire_options o = {.password = s->password,
                                    .connect_ms = s->engine.options.connect_ms,
                                    .reply_ms = SL_REMOTE_TX_REPLY_MS};
    int status = enter(s);
    if (status != SLUICE_OK) return status;
    struct sluice_wire *idle = attempt == 0 && s->idle > 0 ? s->wires[--s->idle] : NULL;
    pthread_mutex_unlock(&s->mutex);
    if (idle != NULL) {
        *out = idle;
        return SLUICE_OK;
    }
    return sluice_wire_open(s->texts[attempt % s->engine.options.addresses], &o, out);
}

static void keep_wire(struct sluice *service, struct sluice_wire *w)
{
    struct sl_remote *s = sl_remote_of(service);
    if (enter(s) == SLUICE_OK) {
        if (s->idle < SL_REMOTE_WIRES_MAX) {
            s->wires[s->idle++] = w;
            w = NULL;
        }
        pthread_mutex_unlock(&s->mutex);
    }
    sluice_wire_close(w);
}

static int64_t retry_ms(const struct sluice *service)
{
    return sl_container_of(service, struct sl_remote, base)->engine.options.retry_ms;
}

const struct sl_client_kind sl_remote_kind = {.close = sl_remote_close,
                                              .acquire = acquire,
                                              .cancel = cancel,
                                              .release = release,
                                              .extend = extend,
                                              .left = left,
                                              .check = check,
                                              .revoke = break_grant,
                                              .inspect = inspect,
                                              .remind = remind,
                                              .error = error,
                                              .runs_event_loop = runs_event_loop,
                                              .fd = fd,
                                              .timeout_ms = timeout_ms,
                                              .step = step,
                                              .acquire_start = acquire_start,
                                              .release_start = release_start,
                                              .extend_start = extend_start,
                                              .open_wire = open_wire,
                                              .keep_wire = keep_wire,
                                              .retry_ms = retry_ms};
