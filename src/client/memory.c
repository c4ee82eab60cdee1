/* memory.c - sluice_acquire(), sluice_release(), sluice_extend(), sluice_check() and
 * sluice_break() on the table of a service. */
#include <stdlib.h>
#include <string.h>

#include "client/internal.h"

/* The longest duration that these functions accept: 142,000 years. */
#define MS_MAX ((int64_t)1 << 52)

/* --- Arguments ----------------------------------------------------------------- */

static bool bytes_of(const char *text, size_t max, struct sl_bytes *out)
{
    *out = (struct sl_bytes){text, text != NULL ? strnlen(text, max + 1) : 0};
    return out->n <= max;
}

static int key_of(const char *key, struct sl_bytes *out)
{
    if (!bytes_of(key, SLUICE_KEY_BYTES_MAX, out) || out->n == 0) return SLUICE_EINVAL;
    return SLUICE_OK;
}

static bool times_are_valid(const struct sluice_request *r)
{
    if (r->wait_ms < SLUICE_FOREVER || r->wait_ms > MS_MAX) return false;
    if (r->lease_ms < 0 || r->lease_ms > MS_MAX) return false;
    double early = r->steal_early;
    return early == SLUICE_STEAL_AUTO || (early >= 0 && early <= 1);
}

/* Return how long a thief waits before it is granted the lock while its victims still
 * hold it. */
static sl_ms force_ms_of(const struct sluice *s, const struct sluice_request *r)
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
static int want_of(const char *key, const struct sluice_request *r, struct sl_want *out)
{
    if (r->shared != 0 && (r->per | r->buckets | r->units) != 0) return SLUICE_EINVAL;
    if (r->shared > 1 || r->steal > 1 || !times_are_valid(r)) return SLUICE_EINVAL;
    *out = (struct sl_want){.shared = r->shared != 0,
                            .per = r->per != 0 ? r->per : 1,
                            .buckets = r->buckets != 0 ? r->buckets : 1,
                            .units = r->units != 0 ? r->units : 1,
                            .priority = r->priority,
                            .wait_ms = r->wait_ms == SLUICE_FOREVER ? SL_NEVER
                                                                    : r->wait_ms,
                            .lease_ms = r->lease_ms,
                            .steal = r->steal != 0,
                            .force_ms = SL_NEVER};
    if (!bytes_of(r->value, SLUICE_VALUE_BYTES_MAX, &out->value) ||
        !bytes_of(r->note, SLUICE_VALUE_BYTES_MAX, &out->note))
        return SLUICE_ETOOBIG;
    return key_of(key, &out->key);
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
static int wait_for_answer(struct sluice *s, struct sl_client_session *p)
{
    p->answer = SL_CLIENT_WAITING;
    sl_client_settle(s);
    while (p->answer == SL_CLIENT_WAITING) sl_client_sleep(s, &p->answered);
    return p->answer;
}

static int acquire(struct sluice *s, const struct sl_want *want,
                   struct sl_client_watch *w, struct sluice_grant *out)
{
    struct sl_client_session *p;
    struct sl_grant grant;
    int status = sl_client_session_of(s, &p);
    if (status != SLUICE_OK) return status;
    p->watch = w;
    status = sl_table_acquire(s->table, s->now, &p->table_session, want, &grant);
    if (status == SLUICE_OK) sl_client_granted(s, p, &grant);
    else if (status == SL_WAITS) status = wait_for_answer(s, p);
    if (status == SLUICE_OK) copy_grant(&p->grant, out);
    p->watch =
        NULL; /* If the request was not granted, the caller still owns the watch. */
    return status;
}

int sluice_acquire(struct sluice *s, const char *key,
                   const struct sluice_request *request, struct sluice_grant *out)
{
    static const struct sluice_request defaults;
    const struct sluice_request *r = request != NULL ? request : &defaults;
    struct sl_client_watch *w = NULL;
    struct sl_want want;
    if (s == NULL || out == NULL) return SLUICE_EINVAL;
    int status = want_of(key, r, &want);
    if (status != SLUICE_OK) return status;
    if (r->on_event != NULL) {
        w = sl_client_watch_new(want.key, r->on_event, r->arg);
        if (w == NULL) return SLUICE_ENOMEM;
    }
    status = sl_client_enter(s);
    if (status == SLUICE_OK) {
        if (want.steal) want.force_ms = force_ms_of(s, r);
        status = acquire(s, &want, w, out);
        sl_client_leave(s);
    }
    if (status != SLUICE_OK) free(w);
    return status;
}

/* --- Release --------------------------------------------------------------------- */

/* Stop reporting events of a grant. When this returns, its callback is not running. */
static void silence(struct sluice *s, sl_fence fence)
{
    struct sl_client_watch *w = sl_client_watches_find(&s->watches, fence);
    if (w == NULL) return;
    bool runs = s->running == w;
    sl_client_drop_watch(s, w);
    if (!runs) return;
    sl_client_settle(s); /* The next holder must not wait for the callback. */
    sl_client_await_callback(s, w);
}

static int release(struct sluice *s, struct sl_bytes key, sl_fence fence)
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

int sluice_release(struct sluice *s, const char *key, uint64_t fence)
{
    struct sl_bytes k;
    int status = key_of(key, &k);
    if (status == SLUICE_OK) status = sl_client_enter(s);
    if (status != SLUICE_OK) return status;
    status = release(s, k, fence);
    sl_client_leave(s);
    return status;
}

/* --- Extend, check, break ---------------------------------------------------------- */

int sluice_extend(struct sluice *s, const char *key, uint64_t fence, int64_t lease_ms)
{
    const struct sl_bytes same = {0};
    struct sl_client_session *p;
    struct sl_bytes k;
    sl_ms left;
    int status = lease_ms > 0 && lease_ms <= MS_MAX ? key_of(key, &k) : SLUICE_EINVAL;
    if (status == SLUICE_OK) status = sl_client_enter(s);
    if (status != SLUICE_OK) return status;
    status = sl_client_session_of(s, &p);
    if (status == SLUICE_OK)
        status = sl_table_extend(s->table, s->now, &p->table_session, k, fence,
                                 lease_ms, same, &left);
    sl_client_leave(s);
    return status;
}

/* Return whether the holder of a grant was asked to release it. */
static bool is_asked(const struct sluice *s, struct sl_bytes key, sl_fence fence)
{
    struct sl_grant_view v;
    uint64_t cursor = 0;
    while (sl_table_each(s->table, s->now, key, &cursor, &v) && !v.waits)
        if (v.fence == fence) return v.asked;
    return false;
}

int sluice_check(struct sluice *s, const char *key, uint64_t fence)
{
    struct sl_bytes k;
    int status = key_of(key, &k);
    if (status == SLUICE_OK) status = sl_client_enter(s);
    if (status != SLUICE_OK) return status;
    if (!sl_table_holds(s->table, s->now, k, fence)) status = SLUICE_ELOST;
    else if (is_asked(s, k, fence)) status = SLUICE_EASKED;
    sl_client_leave(s);
    return status;
}

int sluice_break(struct sluice *s, const char *key, uint64_t fence, uint32_t at_once)
{
    struct sl_ended ended;
    struct sl_bytes k;
    int status = key_of(key, &k);
    if (status == SLUICE_OK) status = sl_client_enter(s);
    if (status != SLUICE_OK) return status;
    int n = sl_table_break(s->table, s->now, k, fence, at_once != 0, &ended);
    if (n == 2 || (n == 1 && !ended.broken))
        sl_client_report(s, fence, SLUICE_EVENT_BROKEN, n == 2);
    sl_client_leave(s);
    return n > 0 ? n : SLUICE_ELOST;
}
