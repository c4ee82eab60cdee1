/* calls.c - the public functions, on the table of a service in this process. */
#include <stdlib.h>
#include <string.h>

#include "client/memory/memory.h"

/* --- Arguments ----------------------------------------------------------------- */

static struct sl_bytes bytes_of(const char *text)
{
    return (struct sl_bytes){text, text != NULL ? strlen(text) : 0};
}

/* Return how long a thief waits before it is granted the lock while its victims still
 * hold it. */
static sl_ms force_ms_of(const struct sl_memory *s, const struct sluice_request *r)
{
    double early = r->steal_early;
    if (early == SLUICE_STEAL_AUTO) return sl_answers_force_ms(&s->answers);
    if (early <= 0) return SL_NEVER;
    if (early >= 1) return 0;
    if (r->wait_ms == SLUICE_FOREVER || r->wait_ms == 0) return SL_NEVER;
    /* At least 1 ms: only steal_early = 1 means immediately. */
    return 1 + (sl_ms)((1 - early) * (double)r->wait_ms);
}

/* Convert a request for the table, except for the time of a forced steal, which depends
 * on earlier measurements. */
static struct sl_want want_of(const char *key, const struct sluice_request *r)
{
    return (struct sl_want){.key = bytes_of(key),
                            .value = bytes_of(r->value),
                            .note = bytes_of(r->note),
                            .shared = r->shared != 0,
                            .per = r->per != 0 ? r->per : 1,
                            .buckets = r->buckets != 0 ? r->buckets : 1,
                            .units = r->units != 0 ? r->units : 1,
                            .priority = r->priority,
                            .wait_ms = r->wait_ms == SLUICE_FOREVER ? SL_NEVER
                                                                    : r->wait_ms,
                            .lease_ms = r->lease_ms,
                            .steal = r->steal != 0,
                            .force_ms = SL_NEVER};
}

/* --- Acquire -------------------------------------------------------------------- */

static void copy_grant(const struct sl_grant *g, struct sluice_grant *out)
{
    *out = (struct sluice_grant){.fence = g->fence,
                                 .held = g->held,
                                 .lease_ms = g->lease_ms,
                                 .waited_ms = g->waited_ms,
                                 .overlapping = g->overlapping};
}

/* Wait for the result of the request. */
static int wait_for_answer(struct sl_memory *s, struct sl_client_session *p)
{
    p->answer = SL_CLIENT_WAITING;
    sl_client_settle(s);
    while (p->answer == SL_CLIENT_WAITING) sl_client_sleep(s, &p->answered);
    return p->answer;
}

static int acquire(struct sl_memory *s, const struct sl_want *want,
                   const struct sluice_cancel *cancel, struct sl_client_watch *w,
                   struct sluice_grant *out)
{
    struct sl_client_session *p;
    struct sl_grant grant;
    int status = sl_client_session_of(s, &p);
    if (status != SLUICE_OK) return status;
    if (cancel != NULL && cancel->cancelled != 0) return SLUICE_ECANCELLED;
    p->watch = w;
    p->cancel = cancel;
    status = sl_table_acquire(s->table, s->now, &p->table_session, want, &grant);
    if (status == SLUICE_OK) sl_client_granted(s, p, &grant);
    else if (status == SL_WAITS) status = wait_for_answer(s, p);
    if (status == SLUICE_OK) copy_grant(&p->grant, out);
    p->watch =
        NULL; /* If the request was not granted, the caller still owns the watch. */
    p->cancel = NULL;
    return status;
}

int sl_in_memory_acquire(struct sluice *service, const char *key,
                         const struct sluice_request *r, struct sluice_grant *out)
{
    struct sl_memory *s = sl_memory_of(service);
    struct sl_want want = want_of(key, r);
    struct sl_client_watch *w = NULL;
    if (r->keep_alive != 0 || r->max_hold_ms != 0 || r->margin_ms != 0)
        return SLUICE_EINVAL;
    if (r->on_event != NULL) {
        w = sl_client_watch_new(want.key, r->on_event, r->arg);
        if (w == NULL) return SLUICE_ENOMEM;
    }
    int status = sl_client_enter(s);
    if (status == SLUICE_OK) {
        if (want.steal) want.force_ms = force_ms_of(s, r);
        status = acquire(s, &want, r->cancel, w, out);
        sl_client_leave(s);
    }
    if (status != SLUICE_OK) free(w);
    return status;
}

int sl_in_memory_cancel(struct sluice *service, struct sluice_cancel *token)
{
    struct sl_memory *s = sl_memory_of(service);
    int status = sl_client_enter(s);
    if (status != SLUICE_OK) return status;
    token->cancelled = 1;
    sl_client_answer_waiters(s, token, SLUICE_ECANCELLED);
    sl_client_leave(s);
    return SLUICE_OK;
}

/* --- Release --------------------------------------------------------------------- */

/* Stop reporting events of a grant. When this returns, its callback is not running. */
static void silence(struct sl_memory *s, sl_fence fence)
{
    struct sl_client_watch *w = sl_client_watches_find(&s->watches, fence);
    if (w == NULL) return;
    bool runs = s->running == w;
    sl_client_drop_watch(s, w);
    if (!runs) return;
    sl_client_settle(s); /* The next holder must not wait for the callback. */
    sl_client_await_callback(s, w);
}

static int release(struct sl_memory *s, struct sl_bytes key, sl_fence fence)
{
    struct sl_client_session *p;
    struct sl_ended ended;
    int status = sl_client_session_of(s, &p);
    if (status != SLUICE_OK) return status;
    if (sl_table_release(s->table, s->now, &p->table_session, key, fence, &ended) ==
        1) {
        if (ended.asked_ms >= 0) sl_answers_add(&s->answers, ended.asked_ms);
        silence(s, ended.fence);
        return SLUICE_OK;
    }
    if (fence == 0) return SLUICE_ENOTHELD;
    if (sl_table_holds(s->table, s->now, key, fence)) return SLUICE_ETHREAD;
    const struct sl_client_watch *w = sl_client_watches_find(&s->watches, fence);
    if (w != NULL && w->over) silence(s, fence); /* EXPIRED was not reported yet. */
    return SLUICE_ELOST;
}

int sl_in_memory_release(struct sluice *service, const char *key, uint64_t fence)
{
    struct sl_memory *s = sl_memory_of(service);
    int status = sl_client_enter(s);
    if (status != SLUICE_OK) return status;
    status = release(s, bytes_of(key), fence);
    sl_client_leave(s);
    return status;
}

/* --- Extend, check, break ---------------------------------------------------------- */

int sl_in_memory_extend(struct sluice *service, const char *key, uint64_t fence,
                        int64_t lease_ms)
{
    struct sl_memory *s = sl_memory_of(service);
    const struct sl_bytes same = {0};
    struct sl_client_session *p;
    sl_ms left;
    int status = sl_client_enter(s);
    if (status != SLUICE_OK) return status;
    status = sl_client_session_of(s, &p);
    if (status == SLUICE_OK)
        status = sl_table_extend(s->table, s->now, &p->table_session, bytes_of(key),
                                 fence, lease_ms, same, &left);
    sl_client_leave(s);
    return status;
}

/* Find a grant that is held. */
static bool find_grant(const struct sl_memory *s, struct sl_bytes key, sl_fence fence,
                       struct sl_grant_view *out)
{
    uint64_t cursor = 0;
    if (!sl_table_holds(s->table, s->now, key, fence)) return false;
    while (sl_table_each(s->table, s->now, key, &cursor, out) && !out->waits)
        if (out->fence == fence) return true;
    return false;
}

int sl_in_memory_check(struct sluice *service, const char *key, uint64_t fence)
{
    struct sl_memory *s = sl_memory_of(service);
    struct sl_grant_view v;
    int status = sl_client_enter(s);
    if (status != SLUICE_OK) return status;
    if (!find_grant(s, bytes_of(key), fence, &v)) status = SLUICE_ELOST;
    else if (v.asked) status = SLUICE_EASKED;
    sl_client_leave(s);
    return status;
}

int64_t sl_in_memory_left(struct sluice *service, const char *key, uint64_t fence)
{
    struct sl_memory *s = sl_memory_of(service);
    struct sl_grant_view v;
    int status = sl_client_enter(s);
    if (status != SLUICE_OK) return status;
    int64_t left_ms = SLUICE_ELOST;
    if (find_grant(s, bytes_of(key), fence, &v))
        left_ms = v.left_ms == SL_NEVER ? SLUICE_FOREVER : v.left_ms;
    sl_client_leave(s);
    return left_ms;
}

int sl_in_memory_break(struct sluice *service, const char *key, uint64_t fence,
                       bool at_once)
{
    struct sl_memory *s = sl_memory_of(service);
    struct sl_ended ended;
    int status = sl_client_enter(s);
    if (status != SLUICE_OK) return status;
    int n = sl_table_break(s->table, s->now, bytes_of(key), fence, at_once, &ended);
    if (n == 2 || (n == 1 && !ended.broken))
        sl_client_report(s, fence, SLUICE_EVENT_BROKEN, n == 2);
    sl_client_leave(s);
    return n > 0 ? n : SLUICE_ELOST;
}
