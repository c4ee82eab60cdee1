/* node_check.c - checks the invariants of a node, which are true between two calls. */
#include <assert.h>

#include "majority/acceptor.h"
#include "majority/proposer.h"

#define must(condition, invariant) assert((condition) && invariant)

/* The memory and the counters of a node, counted here to compare with the node's own
 * values. */
struct tally {
    size_t bytes, leases;
    uint32_t lengths[SL_LENGTHS];
    uint32_t deferred; /* Messages about keys. */
    uint32_t requests, tickets, rounds;
};

/* --- Memory ----------------------------------------------------------------------- */

static size_t block_bytes(size_t bytes)
{
    return bytes + SL_MALLOC_BYTES;
}

static size_t text_bytes(const struct sl_node_text *t)
{
    return t == NULL ? 0 : block_bytes(sizeof *t + t->n);
}

static size_t request_bytes(const struct sl_proposer_request *r)
{
    size_t bytes = block_bytes(sizeof *r) + text_bytes(r->value) + text_bytes(r->note) +
                   text_bytes(r->client) + text_bytes(r->request) +
                   text_bytes(r->held_key);
    for (size_t i = 0; i < SL_NODES_MAX; i++)
        bytes += text_bytes(r->votes[i].value) + text_bytes(r->votes[i].note) +
                 text_bytes(r->votes[i].client) + text_bytes(r->votes[i].request);
    return bytes;
}

static size_t order_bytes(const struct sl_node_queued_order *o)
{
    if (!o->is_request) return block_bytes(sizeof *o + o->bytes);
    return request_bytes(sl_container_of(o, struct sl_proposer_request, order));
}

static void tally_orders(const struct sl_node *n, struct tally *t)
{
    if (n->fetched != NULL) t->bytes += order_bytes(n->fetched);
    for (const struct sl_list *i = n->orders.next; i != &n->orders; i = i->next)
        t->bytes += order_bytes(sl_container_of(i, struct sl_node_queued_order, link));
    for (const struct sl_list *i = n->held.next; i != &n->held; i = i->next)
        t->bytes += order_bytes(sl_container_of(i, struct sl_node_queued_order, link));
}

static void check_deferred(const struct sl_node *n, struct tally *t)
{
    uint32_t count = 0;
    for (const struct sl_list *i = n->deferred.next; i != &n->deferred; i = i->next) {
        const struct sl_node_deferred *s = sl_container_of(i, struct sl_node_deferred,
                                                           link);
        t->bytes += block_bytes(sl_node_deferred_bytes(&s->m));
        count++;
    }
    must(count == n->deferred_count, "deferred messages are counted");
    must(count <= n->limits.waiting_messages_max, "deferred messages are limited");
    must(count == 0 || n->write_due || n->is_writing,
         "a deferred message waits for a write");
}

/* --- The acceptor ----------------------------------------------------------------- */

static void check_lease(const struct sl_node *n, const struct sl_node_key *k,
                        const struct sl_node_lease *l, struct tally *t)
{
    must(l->fence > 0 && l->fence <= k->seen_fence, "the fence of a lease was seen");
    must(l->fence <= n->kept.fence_limit, "no fence is above the limit on disk");
    must(l->length > 0 && l->lease_ms <= sl_length_ms(l->length - 1),
         "a lease counts as at least its length");
    t->lengths[l->length - 1]++;
    t->bytes += text_bytes(l->value) + text_bytes(l->note) + text_bytes(l->client) +
                text_bytes(l->request);
}

static void check_waiters(const struct sl_node *n, const struct sl_node_key *k)
{
    uint32_t waiters = 0;
    for (const struct sl_list *i = k->waiters.next; i != &k->waiters; i = i->next) {
        const struct sl_proposer_request *r = sl_container_of(
            i, struct sl_proposer_request, key_link);
        const struct sl_proposer_request *next = sl_container_of(
            i->next, struct sl_proposer_request, key_link);
        must(r->key == k && r->type == SL_NODE_ACQUIRE && r->waits,
             "a waiter waits for its key");
        must(i->next == &k->waiters || r->priority >= next->priority,
             "the queue is ordered by priority");
        must(waiters == 0 || (!r->in_round && !r->outstanding),
             "only the first waiter makes attempts");
        waiters++;
    }
    for (const struct sl_list *i = k->watchers.next; i != &k->watchers; i = i->next) {
        const struct sl_proposer_request *r = sl_container_of(
            i, struct sl_proposer_request, key_link);
        must(r->key == k && r->type == SL_NODE_AWAIT, "a watcher awaits its key");
    }
    must(waiters == k->waiter_count, "waiters are counted");
    must(sl_wait_group_check(&n->waits, &k->by_age) == waiters,
         "a key with waiters is in the order of waits");
    must(waiters <= k->request_count, "all requests about a key are counted");
}

static void check_key(const struct sl_node *n, const struct sl_node_key *k,
                      struct tally *t)
{
    const struct sl_node_lease *l = &k->lease;
    sl_ms due = sl_node_key_due(n, k);
    must(k->timer == SL_HEAP_NONE || n->key_timers.items[k->timer].owner == k,
         "a timer knows its key");
    must(due == SL_NEVER ||
             (k->timer != SL_HEAP_NONE && n->key_timers.items[k->timer].at <= due),
         "a timer is set for what is due");
    must(k->past_fence <= k->seen_fence && k->released_fence <= k->seen_fence,
         "a fence that ended was seen");
    must(l->live || (l->value == NULL && l->note == NULL && l->client == NULL &&
                     l->request == NULL && l->length == 0),
         "nothing is left of a lease that ended");
    must(l->live || k->overlapped == NULL, "only a lease overlaps another");
    t->bytes += block_bytes(sizeof *k + k->key_n);
    t->deferred += k->deferred_count;
    if (l->live) {
        check_lease(n, k, l, t);
        t->leases++;
    }
    if (k->overlapped != NULL) {
        must(k->overlapped->live, "an overlapped lease was a lease");
        t->bytes += block_bytes(sizeof *k->overlapped);
        check_lease(n, k, k->overlapped, t);
    }
    if (k->learned != NULL) {
        must(!k->learned->live && k->learned->length == 0,
             "a learned lease is not recorded yet");
        t->bytes += block_bytes(sizeof *k->learned) + text_bytes(k->learned->value) +
                    text_bytes(k->learned->note) + text_bytes(k->learned->client) +
                    text_bytes(k->learned->request);
    }
    check_waiters(n, k);
}

/* --- The proposer ----------------------------------------------------------------- */

static bool is_change(const struct sl_proposer_request *r)
{
    return r->type == SL_NODE_ADD || r->type == SL_NODE_REMOVE;
}

static void check_request(const struct sl_node *n, const struct sl_proposer_request *r,
                          struct tally *t)
{
    must(r->order.is_request && sl_list_empty(&r->order.link),
         "a request that is answered is in no list of requests");
    must(is_change(r) || r->type == SL_NODE_DRAIN || r->key != NULL,
         "a request is about a key, a pattern, or a change");
    must(is_change(r) || r->timer != SL_HEAP_NONE || r->waits, "every request ends");
    must(r->timer == SL_HEAP_NONE || n->request_timers.items[r->timer].owner == r,
         "a timer knows its request");
    must(r->ticket == 0 || sl_proposer_find(&n->by_ticket, r->ticket) == r,
         "a request is found by its ticket");
    must(!r->in_round || sl_proposer_find(&n->by_round, r->round) == r,
         "a request is found by its round");
    must(!r->in_round || (r->round <= n->last_round && r->sent_ms <= r->votes_end_ms &&
                          r->votes_end_ms <= r->hard_end_ms),
         "a round ends");
    must(!r->outstanding ||
             (r->type == SL_NODE_ACQUIRE && r->fence > 0 && r->fence <= n->fence_last &&
              r->fence <= n->kept.fence_limit),
         "an attempt has a fence that is on disk");
    for (uint32_t i = n->kept.force.count; r->in_round && i < SL_NODES_MAX; i++)
        must(r->votes[i].verdict == SL_VERDICT_NONE, "only members vote");
    t->bytes += request_bytes(r);
    t->requests++;
    if (r->ticket != 0) t->tickets++;
    if (r->in_round) t->rounds++;
}

static void check_requests(const struct sl_node *n, struct tally *t)
{
    for (const struct sl_list *i = n->requests.next; i != &n->requests; i = i->next)
        check_request(n, sl_container_of(i, struct sl_proposer_request, all), t);
    must(t->requests == n->request_count, "requests are counted");
    must(t->tickets == n->by_ticket.count, "tickets are those of requests");
    must(t->rounds == n->by_round.count, "rounds are those of requests");
}

/* --- Membership ------------------------------------------------------------------- */

static void check_durable(const struct sl_node_durable *d)
{
    must(sl_membership_is_valid(&d->force) && sl_membership_is_valid(&d->vote) &&
             sl_membership_is_valid(&d->stored),
         "memberships are well-formed");
    must(d->fence_limit <= SL_FENCE_MAX, "fences are below 2^53");
    must(sl_ballot_compare(d->accepted, d->promised) <= 0,
         "no vote is above the promise");
    must((d->vote.version == 0) == (d->accepted.number == 0), "a vote has its ballot");
    must(d->vote.version <= d->force.version + 1, "a vote is for the next membership");
}

static void check_change(const struct sl_node *n)
{
    const struct sl_membership_change *c = &n->change;
    must(c->phase != SL_CHANGE_NONE || c->request == NULL,
         "a request for a change has a change");
    must(c->request == NULL || is_change(c->request),
         "a change is of a request to add or remove");
    must(c->phase != SL_CHANGE_REACH || (n->joining.id != 0 && c->request != NULL),
         "the node to be added is known");
    must(c->phase < SL_CHANGE_PREPARE || c->phase > SL_CHANGE_STORE ||
             c->ballot.id == n->id,
         "a node uses its own ballots");
    must(c->yes_count <= SL_NODE_PEERS_MAX && c->soon_count <= SL_NODE_PEERS_MAX,
         "a node is counted once");
}

static void check_peers(const struct sl_node *n)
{
    for (size_t i = 0; i < SL_NODE_PEERS_MAX; i++) {
        const struct sl_node_peer *p = &n->peers[i];
        must(p->id != n->id, "a node is not its own peer");
        must(p->id != 0 || (!p->linked && !p->link_pending), "a link is with a node");
        must(!p->linked || !p->link_pending, "a linked node does not wait for it");
        must(p->id == 0 || sl_node_find_peer(n, p->id) == p, "a peer has one entry");
    }
}

/* --- Acquisitions with a REQUEST id ----------------------------------------------- */

static void check_acquisitions(const struct sl_node_acquisitions *s, struct tally *t)
{
    size_t count = 0;
    sl_ms until_ms = 0;
    for (const struct sl_list *i = s->list.next; i != &s->list; i = i->next) {
        const struct sl_node_acquisition *a = sl_container_of(
            i, struct sl_node_acquisition, link);
        const struct sl_bytes key = {a->text, a->key_n},
                              request = {a->text + a->key_n, a->request_n};
        must(sl_node_acquisition_find(s, key, request) == a,
             "an acquisition is found by its name");
        must(a->until_ms >= until_ms, "acquisitions are forgotten in order");
        until_ms = a->until_ms;
        t->bytes += block_bytes(sizeof *a + a->key_n + a->request_n);
        count++;
    }
    must(count == s->index.count, "each acquisition is remembered once");
}

/* --- The node --------------------------------------------------------------------- */

static void check_disk(const struct sl_node *n)
{
    check_durable(&n->kept);
    check_durable(&n->next);
    must(n->kept.fence_limit <= n->next.fence_limit, "the fence limit rises");
    must(n->kept.force.version <= n->next.force.version, "the version rises");
    must(!n->is_writing || (n->kept.fence_limit <= n->writing.fence_limit &&
                            n->writing.fence_limit <= n->next.fence_limit),
         "a write raises the fence limit");
}

void sl_node_check(const struct sl_node *n)
{
    struct tally t = {0};
    uint64_t cursor = 0;
    void *items[64];
    check_disk(n);
    check_peers(n);
    check_change(n);
    tally_orders(n, &t);
    check_deferred(n, &t);
    do {
        size_t found = sl_index_scan(&n->keys, &cursor, items, 64);
        for (size_t i = 0; i < found; i++) check_key(n, items[i], &t);
    } while (cursor != 0);
    check_requests(n, &t);
    check_acquisitions(&n->ended, &t);
    check_acquisitions(&n->absent, &t);
    t.bytes += sl_node_drains_bytes(n);
    must(t.bytes == n->block_bytes, "all memory is counted");
    must(t.leases == n->lease_count, "leases are counted");
    must(t.deferred <= n->deferred_count, "a key has no more messages than the node");
    for (size_t i = 0; i < SL_LENGTHS; i++)
        must(t.lengths[i] == n->lengths[i], "leases are counted by length");
}
