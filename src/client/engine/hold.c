/* hold.c - the grants of a client: extends their leases, and tells the holder in time that a
 * grant is lost. */
#include <assert.h>
#include <stdlib.h>

#include "client/engine/internal.h"

/* --- The index by fence and key -------------------------------------------------------- */

struct grant_name {
    sl_fence fence;
    struct sl_bytes key;
};

static uint64_t hash_of(const void *item, const struct sl_index *x)
{
    return sl_hash_u64(((const struct sl_hold *)item)->fence, x->seed);
}

static bool is_same(const void *item, struct sl_bytes name)
{
    const struct grant_name *n = (const void *)name.at;
    const struct sl_hold *h = item;
    return n->fence == h->fence &&
           sl_bytes_equal(n->key, (struct sl_bytes){h->key, h->key_bytes});
}

const struct sl_index_kind sl_hold_index_kind = {hash_of, is_same};

struct sl_hold *sl_hold_find(const struct sl_engine *e, struct sl_bytes key,
                             sl_fence fence)
{
    struct grant_name name = {fence, key};
    return sl_index_find(&e->by_fence,
                         (struct sl_bytes){(const void *)&name, sizeof name},
                         sl_hash_u64(fence, e->by_fence.seed));
}

struct sl_hold *sl_hold_newest(const struct sl_engine *e, struct sl_bytes key,
                               int32_t tid)
{
    for (struct sl_list *n = e->holds.prev; n != &e->holds; n = n->prev) {
        struct sl_hold *h = sl_container_of(n, struct sl_hold, node);
        if (h->tid == tid && h->acquisition == NULL &&
            sl_bytes_equal(key, (struct sl_bytes){h->key, h->key_bytes}))
            return h;
    }
    return NULL;
}

struct sl_hold *sl_engine_hold(const struct sl_engine *e, const char *key,
                               sl_fence fence)
{
    return sl_hold_find(e, (struct sl_bytes){key, strlen(key)}, fence);
}

/* --- Creating and freeing ----------------------------------------------------------------- */

static int64_t margin_of(const struct sluice_request *r)
{
    if (r->margin_ms != 0) return r->margin_ms;
    return r->lease_ms / 10 < SL_ENGINE_MARGIN_MS_MAX ? r->lease_ms / 10
                                                      : SL_ENGINE_MARGIN_MS_MAX;
}

struct sl_hold *sl_hold_new(struct sl_engine *e, struct sl_bytes key,
                            const struct sluice_request *r, int32_t tid)
{
    struct sl_hold *h = calloc(1, sizeof *h + key.n + 1);
    if (h == NULL) return NULL;
    /* Reserve now: a grant must not fail for lack of memory. */
    if (sl_engine_add_object(e) != SLUICE_OK) {
        free(h);
        return NULL;
    }
    sl_timer_init(&h->timer, SL_TIMER_HOLD);
    sl_list_init(&h->node);
    h->keep_alive = r->keep_alive != 0;
    h->lease_ms = r->lease_ms;
    h->margin_ms = margin_of(r);
    h->end_ms = h->renew_ms = SL_NEVER;
    h->max_end_ms = r->max_hold_ms; /* A duration until the grant. */
    h->tid = tid;
    h->key_bytes = key.n;
    memcpy(h->key, key.at, key.n);
    if (r->on_event == NULL) return h;
    h->watch = sl_client_watch_new(key, r->on_event, r->arg);
    if (h->watch != NULL) return h;
    sl_hold_free(e, h);
    return NULL;
}

static void drop_watch(struct sl_engine *e, struct sl_client_watch *w)
{
    if (w->ticket != NULL) sl_ticket_reported(w->ticket);
    w->dropped = true;
    sl_list_remove(&w->queue);
    if (e->running != w) free(w);
}

void sl_hold_free(struct sl_engine *e, struct sl_hold *h)
{
    if (h->fence != 0) {
        sl_index_remove(&e->by_fence, h, hash_of(h, &e->by_fence));
        if (h->lease_ms == 0) e->links[SL_ENGINE_SESSIONS].holds--;
    }
    if (h->call != NULL) {
        h->call->hold = NULL;
        sl_call_orphan(e, h->call);
    }
    if (h->watch != NULL) drop_watch(e, h->watch);
    sl_list_remove(&h->node);
    sl_engine_remove_object(e, &h->timer);
    free(h);
}

/* --- Time ------------------------------------------------------------------------------------ */

/* The clocks of the client and the server may each be wrong by 1/1000. */
sl_ms sl_hold_end(sl_ms sent_ms, int64_t ms)
{
    return ms < 0 ? sent_ms : sl_ms_after(sent_ms, ms - ms / 500 - 1);
}

static void set_timer(struct sl_engine *e, struct sl_hold *h)
{
    /* Before the acquisition is confirmed, the program does not rely on the lease. */
    bool relies = h->end_ms != SL_NEVER && h->acquisition == NULL;
    sl_ms stop_ms = relies ? h->end_ms - h->margin_ms : SL_NEVER;
    sl_ms renew_ms = h->call == NULL ? h->renew_ms : SL_NEVER;
    sl_timer_set(e, &h->timer, renew_ms < stop_ms ? renew_ms : stop_ms);
}

/* The next extension is due after a third of the lease. */
static void plan(struct sl_engine *e, struct sl_hold *h, sl_ms sent_ms)
{
    h->renew_ms = SL_NEVER;
    if (h->keep_alive && h->end_ms < h->max_end_ms)
        h->renew_ms = sl_ms_after(sent_ms, h->lease_ms / 3);
    set_timer(e, h);
}

void sl_hold_begin(struct sl_engine *e, struct sl_hold *h, sl_fence fence, sl_ms end_ms)
{
    h->fence = fence;
    h->end_ms = end_ms;
    h->max_end_ms = h->max_end_ms > 0 ? sl_ms_after(e->now_ms, h->max_end_ms)
                                      : SL_NEVER;
    sl_index_put(&e->by_fence, h, hash_of(h, &e->by_fence));
    sl_list_append(&e->holds, &h->node);
    if (h->lease_ms == 0) e->links[SL_ENGINE_SESSIONS].holds++;
    if (h->watch != NULL) h->watch->fence = fence;
    plan(e, h, e->now_ms);
}

void sl_hold_renew(struct sl_engine *e, struct sl_hold *h)
{
    int64_t ms = h->lease_ms;
    assert(h->call == NULL && h->lease_ms > 0);
    if (h->max_end_ms != SL_NEVER && h->max_end_ms - e->now_ms < ms)
        ms = h->max_end_ms - e->now_ms;
    h->call = ms > 0 ? sl_call_new(e, SL_CALL_EXTEND, SL_ENGINE_LEASES,
                                   (struct sl_bytes){h->key, h->key_bytes}, h->fence)
                     : NULL;
    if (h->call == NULL) { /* No memory, or no time. */
        h->renew_ms = ms > 0 ? sl_ms_after(e->now_ms, h->lease_ms / 12 + 1) : SL_NEVER;
    } else {
        h->call->hold = h;
        h->call->lease_ms = ms;
        sl_call_submit(e, h->call);
    }
    set_timer(e, h);
}

void sl_hold_due(struct sl_engine *e, struct sl_hold *h)
{
    bool relies = h->end_ms != SL_NEVER && h->acquisition == NULL;
    if (!relies || e->now_ms < h->end_ms - h->margin_ms) sl_hold_renew(e, h);
    else
        sl_hold_lose(e, h,
                     h->unreachable ? SLUICE_EVENT_UNREACHABLE : SLUICE_EVENT_EXPIRED);
}

/* --- Replies and events ------------------------------------------------------------------------- */

static void extension_failed(struct sl_engine *e, struct sl_hold *h)
{
    sl_ms pause = h->lease_ms / 12, backoff = sl_engine_backoff(e, ++h->failures);
    h->unreachable = true;
    h->renew_ms = sl_ms_after(e->now_ms, backoff < pause ? backoff : pause + 1);
    set_timer(e, h);
}

void sl_hold_answered(struct sl_engine *e, struct sl_hold *h, sl_ms sent_ms, int status,
                      int64_t left_ms)
{
    if (status == SLUICE_OK) {
        sl_ms end_ms = sl_hold_end(sent_ms, left_ms);
        if (end_ms > h->end_ms) h->end_ms = end_ms;
        h->unreachable = false;
        h->failures = 0;
        sl_hold_ask(e, h, false);
        if (h->acquisition != NULL) sl_acquisition_confirmed(e, h->acquisition);
        plan(e, h, sent_ms);
    } else if (status == SLUICE_EASKED && h->acquisition == NULL) {
        h->unreachable = false;
        sl_hold_ask(e, h, true);
        plan(e, h, e->now_ms);
    } else if (status == SLUICE_EASKED) {
        sl_acquisition_unconfirmed(e, h->acquisition);
    } else if (status == SLUICE_ELOST || status == SLUICE_ENOLEASE) {
        if (h->acquisition != NULL) sl_acquisition_unconfirmed(e, h->acquisition);
        else sl_hold_lose(e, h, SLUICE_EVENT_BROKEN);
    } else extension_failed(e, h);
}

static void queue_event(struct sl_engine *e, struct sl_client_watch *w)
{
    if (e->running != w && sl_list_empty(&w->queue) && sl_client_watch_has_event(w))
        sl_list_append(&e->events, &w->queue);
}

void sl_hold_ask(struct sl_engine *e, struct sl_hold *h, bool asked)
{
    h->asked = asked;
    if (h->watch == NULL) return;
    h->watch->asked = asked;
    h->watch->end_ms = h->end_ms;
    queue_event(e, h->watch);
}

void sl_engine_remind(struct sl_engine *e, const char *key, sl_fence fence)
{
    struct sl_hold *h = sl_engine_hold(e, key, fence);
    if (h == NULL || h->watch == NULL) return;
    h->watch->asked_reported = false;
    queue_event(e, h->watch);
}

void sl_hold_lose(struct sl_engine *e, struct sl_hold *h, enum sluice_event_type why)
{
    struct sl_client_watch *w = h->watch;
    if (h->acquisition != NULL) return; /* The program does not know of the grant. */
    h->watch = NULL;
    if (w != NULL) {
        w->events |= 1u << why;
        w->over = true;
        queue_event(e, w);
    }
    sl_hold_free(e, h);
}

void sl_hold_silence(struct sl_engine *e, struct sl_bytes key, sl_fence fence)
{
    struct sl_client_watch *w = e->running;
    if (w != NULL && w->fence == fence && strlen(w->key) == key.n &&
        memcmp(w->key, key.at, key.n) == 0)
        w->dropped = true;
    for (struct sl_list *n = e->events.next, *next; n != &e->events; n = next) {
        w = sl_container_of(n, struct sl_client_watch, queue);
        next = n->next;
        if (w->over && w->fence == fence && strlen(w->key) == key.n &&
            memcmp(w->key, key.at, key.n) == 0)
            drop_watch(e, w);
    }
}

/* --- Requests of the program about a grant ---------------------------------------------------------- */

int64_t sl_engine_left(const struct sl_engine *e, sl_ms now, const char *key,
                       sl_fence fence)
{
    const struct sl_hold *h = sl_engine_hold(e, key, fence);
    if (h == NULL) return SLUICE_ELOST;
    if (h->end_ms == SL_NEVER) return SLUICE_FOREVER;
    return now < h->end_ms - h->margin_ms ? h->end_ms - h->margin_ms - now
                                          : SLUICE_ELOST;
}

static int submit(struct sl_engine *e, struct sl_call *c, struct sl_ticket *t)
{
    if (c == NULL) return SLUICE_ENOMEM;
    c->ticket = t;
    c->give_up_ms = sl_ms_after(e->now_ms, e->options.retry_ms);
    sl_call_submit(e, c);
    return SLUICE_OK;
}

int sl_engine_release(struct sl_engine *e, sl_ms now, const char *key, sl_fence fence,
                      int32_t tid, struct sl_ticket *t)
{
    struct sl_bytes k = {key, strlen(key)};
    e->now_ms = now;
    struct sl_hold *h = fence == 0 ? sl_hold_newest(e, k, tid)
                                   : sl_hold_find(e, k, fence);
    if (h == NULL && fence == 0) return SLUICE_ENOTHELD;
    if (h != NULL && h->acquisition != NULL) h = NULL;
    if (h != NULL) fence = h->fence;
    struct sl_call *c = sl_call_new(e, SL_CALL_RELEASE,
                                    h != NULL && h->lease_ms == 0 ? SL_ENGINE_SESSIONS
                                                                  : SL_ENGINE_LEASES,
                                    k, fence);
    if (c == NULL) return SLUICE_ENOMEM;
    c->was_held = h != NULL && now < h->end_ms;
    sl_hold_silence(e, k, fence);
    if (h != NULL) sl_hold_free(e, h);
    return submit(e, c, t);
}

int sl_engine_extend(struct sl_engine *e, sl_ms now, const char *key, sl_fence fence,
                     int64_t lease_ms, struct sl_ticket *t)
{
    struct sl_bytes k = {key, strlen(key)};
    e->now_ms = now;
    struct sl_hold *h = sl_hold_find(e, k, fence);
    if (h != NULL && h->lease_ms == 0) return SLUICE_ENOLEASE;
    struct sl_call *c = sl_call_new(e, SL_CALL_EXTEND, SL_ENGINE_LEASES, k, fence);
    if (c != NULL) c->lease_ms = lease_ms;
    return submit(e, c, t);
}

int sl_engine_ask(struct sl_engine *e, sl_ms now, enum sl_call_type type,
                  const char *key, sl_fence fence, bool at_once, struct sl_ticket *t)
{
    struct sl_bytes k = {key, strlen(key)};
    e->now_ms = now;
    struct sl_call *c = sl_call_new(e, type, SL_ENGINE_LEASES, k, fence);
    if (c != NULL) c->at_once = at_once;
    return submit(e, c, t);
}
