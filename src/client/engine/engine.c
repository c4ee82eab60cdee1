/* engine.c - timers, tickets and events of the engine; its beginning and its end. */
#include "client/engine/engine.h"

#include <assert.h>
#include <stdlib.h>

#include "client/engine/internal.h"

/* --- Timers ------------------------------------------------------------------ */

static void timer_placed(void *owner, uint32_t slot)
{
    ((struct sl_timer *)owner)->slot = slot;
}

void sl_timer_init(struct sl_timer *t, enum sl_timer_type type)
{
    *t = (struct sl_timer){.type = type, .slot = SL_HEAP_NONE};
}

void sl_timer_set(struct sl_engine *e, struct sl_timer *t, sl_ms at)
{
    if (at == SL_NEVER) {
        if (t->slot != SL_HEAP_NONE) sl_heap_remove(&e->timers, t->slot);
    } else if (t->slot != SL_HEAP_NONE) sl_heap_move(&e->timers, t->slot, at);
    else sl_heap_put(&e->timers, at, t);
}

int sl_engine_add_object(struct sl_engine *e)
{
    if (sl_heap_reserve(&e->timers, e->objects - e->timers.count + 1) != SLUICE_OK)
        return SLUICE_ENOMEM;
    e->objects++;
    return SLUICE_OK;
}

void sl_engine_remove_object(struct sl_engine *e, struct sl_timer *t)
{
    sl_timer_set(e, t, SL_NEVER);
    assert(e->objects > 0);
    e->objects--;
}

static void timer_due(struct sl_engine *e, struct sl_timer *t)
{
    sl_timer_set(e, t, SL_NEVER);
    switch (t->type) {
        case SL_TIMER_LINK:
            sl_link_due(e, sl_container_of(t, struct sl_engine_link, timer));
            break;
        case SL_TIMER_CALL:
            sl_call_due(e, sl_container_of(t, struct sl_call, timer));
            break;
        case SL_TIMER_ACQUISITION:
            sl_acquisition_due(e,
                               sl_container_of(t, struct sl_client_acquisition, timer));
            break;
        case SL_TIMER_HOLD:
            sl_hold_due(e, sl_container_of(t, struct sl_hold, timer));
            break;
    }
}

void sl_engine_advance(struct sl_engine *e, sl_ms now)
{
    e->now_ms = now;
    while (e->timers.count > 0 && e->timers.items[0].at <= now)
        timer_due(e, e->timers.items[0].owner);
}

sl_ms sl_engine_due(const struct sl_engine *e)
{
    return e->timers.count > 0 ? e->timers.items[0].at : SL_NEVER;
}

sl_ms sl_engine_backoff(struct sl_engine *e, unsigned failures)
{
    sl_ms mean = SL_ENGINE_BACKOFF_MS_MIN;
    while (failures-- > 1 && mean < SL_ENGINE_BACKOFF_MS_MAX) mean *= 2;
    if (mean > SL_ENGINE_BACKOFF_MS_MAX) mean = SL_ENGINE_BACKOFF_MS_MAX;
    return sl_random_between(&e->random, mean / 2, mean + mean / 2);
}

/* --- Tickets ------------------------------------------------------------------ */

void sl_ticket_finish(struct sl_engine *e, struct sl_ticket *t, int status)
{
    if (t == NULL) return;
    assert(!t->done);
    t->done = true;
    t->status = status;
    sl_list_append(&e->done, &t->node);
}

struct sl_ticket *sl_engine_next_ticket(struct sl_engine *e)
{
    if (sl_list_empty(&e->done)) return NULL;
    struct sl_ticket *t = sl_container_of(e->done.next, struct sl_ticket, node);
    sl_list_remove(&t->node);
    return t;
}

void sl_ticket_reported(struct sl_ticket *t)
{
    if (t->watch != NULL) t->watch->ticket = NULL;
    t->watch = NULL;
}

void sl_engine_note(struct sl_engine *e, const char *message)
{
    size_t n = strnlen(message, sizeof e->last_error - 1);
    memcpy(e->last_error, message, n);
    e->last_error[n] = '\0';
}

/* --- Events ------------------------------------------------------------------- */

struct sl_client_watch *sl_engine_next_event(struct sl_engine *e)
{
    assert(e->running == NULL);
    while (!sl_list_empty(&e->events)) {
        struct sl_client_watch *w = sl_container_of(e->events.next,
                                                    struct sl_client_watch, queue);
        sl_list_remove(&w->queue);
        /* ASKED may have been withdrawn before it was reported. */
        if (!sl_client_watch_has_event(w)) continue;
        e->running = w;
        return w;
    }
    return NULL;
}

void sl_engine_reported(struct sl_engine *e, struct sl_client_watch *w)
{
    assert(e->running == w);
    e->running = NULL;
    if (w->dropped) free(w);
    else if (sl_client_watch_has_event(w)) sl_list_append(&e->events, &w->queue);
    else if (w->over) free(w);
}

/* --- The beginning and the end --------------------------------------------------- */

int sl_engine_init(struct sl_engine *e, const struct sl_engine_options *options,
                   struct sl_hash_key key)
{
    assert(options->addresses > 0 && options->addresses <= SL_ENGINE_ADDRESSES_MAX);
    *e = (struct sl_engine){.options = *options, .link_status = SLUICE_EUNREACHABLE};
    sl_random_seed(&e->random, options->seed);
    sl_heap_init(&e->timers, timer_placed);
    sl_index_init(&e->by_id, &sl_acquisition_index_kind, key);
    sl_index_init(&e->by_fence, &sl_hold_index_kind, key);
    sl_list_init(&e->acquisitions);
    sl_list_init(&e->holds);
    sl_list_init(&e->paused);
    sl_list_init(&e->done);
    sl_list_init(&e->events);
    for (unsigned i = 0; i < SL_ENGINE_LINKS; i++) sl_link_init(&e->links[i]);
    for (unsigned i = 0; i < SL_ENGINE_LINKS; i++)
        if (sl_engine_add_object(e) != SLUICE_OK) {
            sl_heap_free(&e->timers);
            return SLUICE_ENOMEM;
        }
    return SLUICE_OK;
}

void sl_engine_free(struct sl_engine *e)
{
    for (unsigned i = 0; i < SL_ENGINE_LINKS; i++) sl_link_free(e, &e->links[i]);
    while (!sl_list_empty(&e->paused)) {
        struct sl_call *c = sl_container_of(e->paused.next, struct sl_call, node);
        sl_list_remove(&c->node);
        if (c->hold != NULL) c->hold->call = NULL;
        sl_call_free(e, c);
    }
    while (!sl_list_empty(&e->acquisitions))
        sl_acquisition_free(e, sl_container_of(e->acquisitions.next,
                                               struct sl_client_acquisition, node));
    while (!sl_list_empty(&e->holds))
        sl_hold_free(e, sl_container_of(e->holds.next, struct sl_hold, node));
    while (!sl_list_empty(&e->events)) {
        struct sl_client_watch *w = sl_container_of(e->events.next,
                                                    struct sl_client_watch, queue);
        sl_list_remove(&w->queue);
        free(w);
    }
    sl_index_free(&e->by_id);
    sl_index_free(&e->by_fence);
    sl_heap_free(&e->timers);
}

#define RELEASE_MS 10000 /* How long a client that closes tries to release a grant. */

/* Release a grant that ends with this client. Without memory, the grant ends with its
 * connection, or when its lease expires. */
static void release_at_end(struct sl_engine *e, struct sl_hold *h)
{
    struct sl_bytes key = {h->key, h->key_bytes};
    struct sl_call *c = NULL;
    if (h->lease_ms == 0)
        c = sl_call_new(e, SL_CALL_RELEASE, SL_ENGINE_SESSIONS, key, h->fence);
    else if (h->keep_alive)
        c = sl_call_new(e, SL_CALL_RELEASE, SL_ENGINE_LEASES, key, h->fence);
    if (c != NULL) {
        c->give_up_ms = sl_ms_after(e->now_ms, RELEASE_MS);
        sl_call_submit(e, c);
    }
    sl_hold_free(e, h);
}

void sl_engine_close(struct sl_engine *e, sl_ms now)
{
    e->now_ms = now;
    e->closing = true;
    for (struct sl_list *n = e->acquisitions.next, *next; n != &e->acquisitions;
         n = next) {
        struct sl_client_acquisition *a = sl_container_of(
            n, struct sl_client_acquisition, node);
        next = n->next;
        if (a->state != SL_ACQUISITION_CANCELS)
            sl_acquisition_abandon(e, a, SLUICE_ECLOSED);
    }
    for (struct sl_list *n = e->holds.next, *next; n != &e->holds; n = next) {
        next = n->next;
        release_at_end(e, sl_container_of(n, struct sl_hold, node));
    }
    for (unsigned i = 0; i < SL_ENGINE_LINKS; i++) sl_link_close_calls(e, &e->links[i]);
    for (struct sl_list *n = e->paused.next; n != &e->paused; n = n->next)
        sl_call_finish(e, sl_container_of(n, struct sl_call, node), SLUICE_ECLOSED);
}

bool sl_engine_is_closed(const struct sl_engine *e)
{
    if (!sl_list_empty(&e->acquisitions) || !sl_list_empty(&e->paused)) return false;
    for (unsigned i = 0; i < SL_ENGINE_LINKS; i++) {
        const struct sl_engine_link *l = &e->links[i];
        if (!sl_list_empty(&l->unsent) || l->sent_count > 0) return false;
    }
    return true;
}

/* --- Invariants --------------------------------------------------------------------- */

static void check_acquisition(const struct sl_engine *e,
                              const struct sl_client_acquisition *a)
{
    bool calls = a->state == SL_ACQUISITION_ASKS;
    assert(!calls || (a->call != NULL && a->call->type == SL_CALL_ACQUIRE));
    assert(a->call == NULL || (a->call->acquisition == a && a->call->link == a->link));
    assert((a->ticket == NULL) == (a->state == SL_ACQUISITION_CANCELS));
    assert((a->state == SL_ACQUISITION_CONFIRMS) ==
           (a->hold != NULL && a->hold->fence != 0));
    assert(sl_index_find(&e->by_id, (struct sl_bytes){a->id, SL_ENGINE_ID_BYTES},
                         sl_hash(e->by_id.key, a->id, SL_ENGINE_ID_BYTES)) == a);
}

static void check_link(const struct sl_engine *e, const struct sl_engine_link *l)
{
    assert(l->sent_count <= l->sent_size && l->out_from <= l->out_used);
    assert(l->sent_count == 0 || l->state >= SL_LINK_GREETS);
    for (size_t i = 0; i < l->sent_count; i++)
        assert(l->sent[(l->sent_from + i) & (l->sent_size - 1)]->state == SL_CALL_SENT);
    for (const struct sl_list *n = l->unsent.next; n != &l->unsent; n = n->next)
        assert(sl_container_of(n, struct sl_call, node)->state == SL_CALL_UNSENT);
    (void)e;
}

void sl_engine_check(const struct sl_engine *e)
{
    size_t acquisitions = 0, holds = 0;
    uint32_t sessions = 0;
    for (const struct sl_list *n = e->acquisitions.next; n != &e->acquisitions;
         n = n->next, acquisitions++)
        check_acquisition(e, sl_container_of(n, struct sl_client_acquisition, node));
    for (const struct sl_list *n = e->holds.next; n != &e->holds;
         n = n->next, holds++) {
        const struct sl_hold *h = sl_container_of(n, struct sl_hold, node);
        assert(h->fence != 0 && (h->call == NULL || h->call->hold == h));
        assert(sl_hold_find(e, (struct sl_bytes){h->key, h->key_bytes}, h->fence) == h);
        sessions += h->lease_ms == 0;
    }
    assert(e->by_id.count == acquisitions && e->by_fence.count == holds);
    assert(e->links[SL_ENGINE_SESSIONS].holds == sessions);
    assert(e->links[SL_ENGINE_LEASES].holds == 0);
    for (unsigned i = 0; i < SL_ENGINE_LINKS; i++) check_link(e, &e->links[i]);
}
