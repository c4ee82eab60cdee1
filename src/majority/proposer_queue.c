/* proposer_queue.c - the queue of this node's requests that wait for a key. */
#include <assert.h>

#include "majority/proposer.h"

struct sl_proposer_request *sl_proposer_queue_head(const struct sl_node_key *k)
{
    if (sl_list_empty(&k->waiters)) return NULL;
    return sl_container_of(k->waiters.next, struct sl_proposer_request, key_link);
}

bool sl_proposer_queue_is_first(const struct sl_proposer_request *r)
{
    return !r->waits || r->type != SL_NODE_ACQUIRE ||
           sl_proposer_queue_head(r->key) == r;
}

/* Whether the request comes after the new request in the queue, which is ordered by
 * priority, then by position. */
static bool comes_after(const struct sl_list *at,
                        const struct sl_proposer_request *next)
{
    const struct sl_proposer_request *r = sl_container_of(
        at, const struct sl_proposer_request, key_link);
    if (r->priority != next->priority) return r->priority < next->priority;
    return r->place > next->place;
}

void sl_proposer_queue_join(struct sl_node *n, struct sl_node_key *k,
                            struct sl_proposer_request *r)
{
    struct sl_list *at = k->waiters.prev;
    assert(r->key == k && r->waits && sl_list_empty(&r->key_link));
    if (sl_proposer_queue_head(k) != NULL &&
        sl_proposer_queue_head(k)->priority < r->priority)
        at = &k->waiters;
    while (at != &k->waiters && comes_after(at, r)) at = at->prev;
    r->key_link.prev = at;
    r->key_link.next = at->next;
    at->next->prev = &r->key_link;
    at->next = &r->key_link;
    k->waiter_count++;
    r->by_age.since_ms = r->since_ms;
    r->by_age.number = r->owner.number;
    sl_waits_add(&n->waits, &k->by_age, &r->by_age);
}

/* Wake the request that is now the first. */
static void wake_new_head(struct sl_node *n, struct sl_now now, struct sl_node_key *k)
{
    struct sl_proposer_request *r = sl_proposer_queue_head(k);
    if (!k->lease.live) sl_proposer_wake(n, now, k);
    else if (r != NULL && !r->in_round && r->try_ms == SL_NEVER) {
        /* The expiry of the lease wakes the request, but the message about it may be
         * lost. */
        r->try_ms = now.ms + SL_PROPOSER_RETRY_MS +
                    sl_random_below(&n->random, SL_PROPOSER_RETRY_MS);
        sl_proposer_schedule(n, r);
    }
}

void sl_proposer_queue_leave(struct sl_node *n, struct sl_now now,
                             struct sl_proposer_request *r)
{
    struct sl_node_key *k = r->key;
    if (k == NULL) return;
    assert(k->request_count > 0);
    bool first = r->waits && sl_proposer_queue_head(k) == r;
    if (r->waits && r->type == SL_NODE_ACQUIRE && !sl_list_empty(&r->key_link)) {
        k->waiter_count--;
        sl_waits_remove(&n->waits, &k->by_age, &r->by_age);
    }
    sl_list_remove(&r->key_link);
    r->key = NULL;
    k->request_count--;
    if (k->request_count == 0 && !k->lease.live && !k->reserved.live)
        k->idle_ms = now.ms;
    if (first) wake_new_head(n, now, k);
    sl_node_key_schedule(n, k);
}

/* Let the first waiter try soon, but after a random delay, because the first waiters
 * of other nodes also try. */
static void wake_first(struct sl_node *n, struct sl_now now, struct sl_node_key *k)
{
    struct sl_proposer_request *r = sl_proposer_queue_head(k);
    if (r == NULL || r->in_round) return;
    sl_ms at = now.ms + sl_random_below(&n->random, 2);
    if (at >= r->try_ms) return;
    r->try_ms = at;
    sl_proposer_schedule(n, r);
}

bool sl_proposer_is_awaited(const struct sl_node_key *k,
                            const struct sl_proposer_request *r)
{
    bool held = k->lease.live && k->lease.agreed;
    return held != r->want_free;
}

void sl_proposer_wake(struct sl_node *n, struct sl_now now, struct sl_node_key *k)
{
    for (struct sl_list *i = k->watchers.next, *next; i != &k->watchers; i = next) {
        struct sl_proposer_request *r = sl_container_of(i, struct sl_proposer_request,
                                                        key_link);
        next = i->next;
        if (sl_proposer_is_awaited(k, r)) sl_proposer_finish_with(n, now, r, 1);
    }
    if (!k->lease.live) wake_first(n, now, k);
}
