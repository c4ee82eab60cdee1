/* service.c - the background work of a service: advances the time, applies the effects
 * of the table, and calls callbacks. */
#include <assert.h>
#include <stdlib.h>
#include <time.h>

#include "client/memory/memory.h"

/* --- Time ------------------------------------------------------------------- */

static uint64_t read_clock(clockid_t id, uint64_t per_second)
{
    struct timespec t;
    clock_gettime(id, &t);
    return (uint64_t)t.tv_sec * per_second +
           (uint64_t)t.tv_nsec / (1000000000u / per_second);
}

void sl_client_read_clock(struct sl_memory *s)
{
    /* CLOCK_BOOTTIME continues while the machine is suspended, and cannot be set. */
    s->now = (struct sl_now){.ms = (sl_ms)read_clock(CLOCK_BOOTTIME, 1000),
                             .wall_us = read_clock(CLOCK_REALTIME, 1000000)};
}

/* The longest sleep of the clock thread. A condition variable cannot wait by
 * CLOCK_BOOTTIME, and CLOCK_MONOTONIC stops while the machine is suspended. With this
 * limit, the thread soon notices leases that expired during a suspend. */
#define WAIT_MS_MAX 1000

static void wait_for_ms(struct sl_memory *s, sl_ms ms)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    if (ms > WAIT_MS_MAX) ms = WAIT_MS_MAX;
    if (ms < 1) ms = 1;
    t.tv_sec += (time_t)(ms / 1000);
    t.tv_nsec += (long)(ms % 1000) * 1000000;
    if (t.tv_nsec >= 1000000000) {
        t.tv_sec++;
        t.tv_nsec -= 1000000000;
    }
    pthread_cond_timedwait(&s->clock_wake, &s->mutex, &t);
}

void *sl_client_clock_thread(void *arg)
{
    struct sl_memory *s = arg;
    pthread_mutex_lock(&s->mutex);
    while (!s->closing) {
        sl_client_read_clock(s);
        sl_client_settle(s);
        s->clock_at_ms = sl_table_due(s->table);
        if (s->clock_at_ms == SL_NEVER) pthread_cond_wait(&s->clock_wake, &s->mutex);
        else wait_for_ms(s, s->clock_at_ms - s->now.ms);
    }
    pthread_mutex_unlock(&s->mutex);
    return NULL;
}

/* --- Effects of the table ---------------------------------------------------- */

static void queue_event(struct sl_memory *s, struct sl_client_watch *w)
{
    /* If the callback of this watch is running, the callback thread checks the watch
     * again afterwards. */
    if (s->running == w || !sl_list_empty(&w->queue) || !sl_client_watch_has_event(w))
        return;
    sl_list_append(&s->watches.queue, &w->queue);
    pthread_cond_signal(&s->event_ready);
}

/* Free the watch of an ended grant if no event is left to report. */
static void settle_watch(struct sl_memory *s, struct sl_client_watch *w)
{
    queue_event(s, w);
    if (s->running == w || !w->over || sl_client_watch_has_event(w)) return;
    sl_client_watches_remove(&s->watches, w);
    free(w);
}

void sl_client_drop_watch(struct sl_memory *s, struct sl_client_watch *w)
{
    sl_client_watches_remove(&s->watches, w);
    w->dropped = true;
    if (s->running != w) free(w); /* Otherwise the callback thread frees it. */
}

void sl_client_report(struct sl_memory *s, sl_fence fence, enum sluice_event_type what,
                      bool over)
{
    struct sl_client_watch *w = sl_client_watches_find(&s->watches, fence);
    if (w == NULL) return;
    w->events |= 1u << what;
    w->over = over;
    settle_watch(s, w);
}

static void apply_asked(struct sl_memory *s, const struct sl_effect *e)
{
    struct sl_client_watch *w = sl_client_watches_find(&s->watches, e->past.fence);
    if (w == NULL) return;
    w->asked = e->type == SL_EFFECT_ASKED;
    w->priority = e->priority;
    w->end_ms = sl_ms_after(s->now.ms, e->left_ms);
    queue_event(s, w);
}

static void answer(struct sl_memory *s, struct sl_session *session, int status,
                   const struct sl_grant *grant)
{
    struct sl_client_session *p = sl_container_of(session, struct sl_client_session,
                                                  table_session);
    assert(p->answer == SL_CLIENT_WAITING && status != SL_CLIENT_WAITING);
    p->answer = status;
    if (status == SLUICE_OK) sl_client_granted(s, p, grant);
    pthread_cond_signal(&p->answered);
}

void sl_client_granted(struct sl_memory *s, struct sl_client_session *p,
                       const struct sl_grant *grant)
{
    p->grant = *grant;
    if (p->watch != NULL)
        sl_client_watches_put(&s->watches, p->watch, grant->fence, p->table_session.id);
    p->watch = NULL;
}

void sl_in_memory_remind(struct sluice *service, const char *key, uint64_t fence)
{
    struct sl_memory *s = sl_memory_of(service);
    (void)key;
    if (sl_client_enter(s) != SLUICE_OK) return;
    struct sl_client_watch *w = sl_client_watches_find(&s->watches, fence);
    if (w != NULL) {
        w->asked_reported = false;
        queue_event(s, w);
    }
    sl_client_leave(s);
}

static void apply_ended(struct sl_memory *s, const struct sl_effect *e)
{
    struct sl_client_watch *w = sl_client_watches_find(&s->watches, e->past.fence);
    if (w != NULL) sl_client_drop_watch(s, w);
}

static void apply_effect(struct sl_memory *s, const struct sl_effect *e)
{
    switch (e->type) {
        case SL_EFFECT_NOTHING:
        case SL_EFFECT_THIEF_WAITS: break;
        case SL_EFFECT_GRANTED: answer(s, e->session, SLUICE_OK, &e->grant); break;
        case SL_EFFECT_TIMED_OUT: answer(s, e->session, SLUICE_EFULL, NULL); break;
        case SL_EFFECT_REFUSED: answer(s, e->session, SLUICE_EDRAINED, NULL); break;
        case SL_EFFECT_ASKED:
        case SL_EFFECT_WITHDRAWN: apply_asked(s, e); break;
        case SL_EFFECT_STOLEN:
            sl_client_report(s, e->past.fence, SLUICE_EVENT_STOLEN, false);
            break;
        case SL_EFFECT_EXPIRED:
            sl_client_report(s, e->past.fence, SLUICE_EVENT_EXPIRED, true);
            break;
        case SL_EFFECT_ENDED: apply_ended(s, e); break;
        /* A service in memory has no AWAIT and no REQUEST, so its table has no such effects. */
        case SL_EFFECT_SEEN:
        case SL_EFFECT_CANCELLED: break;
        case SL_EFFECT_SESSION_OVER: sl_client_session_over(e->session); break;
    }
}

void sl_client_settle(struct sl_memory *s)
{
    struct sl_effect e;
    while (sl_table_next(s->table, s->now, &e)) apply_effect(s, &e);
    sl_ms due = sl_table_due(s->table);
    if (due >= s->clock_at_ms) return;
    s->clock_at_ms = due;
    pthread_cond_signal(&s->clock_wake);
}

/* --- Calls ------------------------------------------------------------------- */

int sl_client_enter(struct sl_memory *s)
{
    if (s->fork_era != sl_client_fork_era) return SLUICE_EFORKED;
    pthread_mutex_lock(&s->mutex);
    if (s->closing) {
        pthread_mutex_unlock(&s->mutex);
        return SLUICE_ECLOSED;
    }
    sl_client_read_clock(s);
    sl_client_settle(s);
    return SLUICE_OK;
}

void sl_client_leave(struct sl_memory *s)
{
    sl_client_settle(s);
    pthread_mutex_unlock(&s->mutex);
}

void sl_client_sleep(struct sl_memory *s, pthread_cond_t *until)
{
    int cancel;
    /* Disable cancellation: a thread that is cancelled here would leave the mutex
     * locked. */
    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &cancel);
    s->sleepers++;
    pthread_cond_wait(until, &s->mutex);
    assert(s->sleepers > 0);
    if (--s->sleepers == 0 && s->closing) pthread_cond_broadcast(&s->sleepers_gone);
    pthread_setcancelstate(cancel, NULL);
    sl_client_read_clock(s);
}

void sl_client_await_callback(struct sl_memory *s, const struct sl_client_watch *w)
{
    uint64_t before = s->callbacks_done;
    if (s->running != w || pthread_equal(pthread_self(), s->callback_thread)) return;
    while (s->callbacks_done == before) sl_client_sleep(s, &s->callback_done);
}

/* --- Callbacks ---------------------------------------------------------------- */

/* Report one event of the first watch in the queue. This unlocks the mutex during the
 * callback. */
static void run_callback(struct sl_memory *s)
{
    struct sl_client_watch *w = sl_container_of(s->watches.queue.next,
                                                struct sl_client_watch, queue);
    sl_list_remove(&w->queue);
    if (!sl_client_watch_has_event(w))
        return; /* ASKED was withdrawn before it was reported. */
    sl_client_read_clock(s);
    const struct sluice_event e = sl_client_watch_next_event(w, s->now.ms);
    s->running = w;
    pthread_mutex_unlock(&s->mutex);
    w->on_event(w->arg, &e);
    pthread_mutex_lock(&s->mutex);
    s->running = NULL;
    s->callbacks_done++;
    pthread_cond_broadcast(&s->callback_done);
    if (w->dropped) free(w);
    else settle_watch(s, w);
}

void *sl_client_callback_thread(void *arg)
{
    struct sl_memory *s = arg;
    pthread_mutex_lock(&s->mutex);
    while (!s->closing) {
        if (sl_list_empty(&s->watches.queue))
            pthread_cond_wait(&s->event_ready, &s->mutex);
        else run_callback(s);
    }
    bool mine = s->closed_in_callback;
    pthread_mutex_unlock(&s->mutex);
    if (mine) sl_client_free(s);
    return NULL;
}

/* --- Invariants --------------------------------------------------------------- */

void sl_client_check(const struct sluice *service)
{
    const struct sl_memory *s = sl_container_of(service, struct sl_memory, base);
    uint64_t sessions = 0;
    sl_table_check(s->table);
    sl_client_watches_check(&s->watches, s->running);
    for (const struct sl_list *n = s->sessions.next; n != &s->sessions; n = n->next) {
        const struct sl_client_session *p = sl_container_of(n, struct sl_client_session,
                                                            of_service);
        assert(p->s == s && sl_client_session_tid(p->table_session.id) > 0);
        /* After a grant, the session no longer has the watch. */
        assert(p->watch == NULL || p->answer != SLUICE_OK);
        assert(++sessions <= s->sessions_made);
    }
}
