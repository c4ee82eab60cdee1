/* look.c - what a node is asked about itself, and what must be true of it. */
#include <assert.h>
#include <string.h>

#include "majority/acceptor.h"
#include "majority/proposer.h"

uint64_t sl_node_birth(const struct sl_node *n)
{
    return n->kept.birth;
}

const struct sl_membership *sl_node_membership(const struct sl_node *n)
{
    return &n->kept.force;
}

static uint32_t put_member(struct sl_member *out, uint32_t count, sl_node_id self,
                           const struct sl_member *m)
{
    if (m->id == 0 || m->id == self || count >= 2 * SL_NODES_MAX) return count;
    for (uint32_t i = 0; i < count; i++)
        if (out[i].id == m->id) return count;
    out[count] = *m;
    return count + 1;
}

uint32_t sl_node_peers(const struct sl_node *n, struct sl_member out[2 * SL_NODES_MAX])
{
    const struct sl_membership *lists[] = {&n->kept.force, &n->next.stored,
                                           &n->next.vote};
    uint32_t count = 0;
    if (n->kept.birth == 0) return 0;
    for (size_t i = 0; i < sizeof lists / sizeof *lists; i++)
        for (uint32_t k = 0; k < lists[i]->count; k++)
            count = put_member(out, count, n->id, &lists[i]->at[k]);
    return put_member(out, count, n->id, &n->joining);
}

static void fill_copy(const struct sl_node *n, struct sl_now now,
                      const struct sl_node_key *k, struct sl_node_copy *out)
{
    const struct sl_node_lease *l = &k->lease;
    *out = (struct sl_node_copy){.node = n->id,
                                 .verdict = SL_VERDICT_YES,
                                 .held = l->live && l->agreed,
                                 .agreed = l->agreed,
                                 .reserved = k->reserved.live,
                                 .wanted = k->reserved.priority};
    if (!out->held) return;
    out->owner = l->owner;
    out->fence = l->fence;
    out->priority = l->priority;
    sl_ms left = l->end_ms - SL_NODE_GRAIN_MS - now.ms;
    out->left_ms = left > 0 ? left : 0;
    out->value = sl_node_text_bytes(l->value);
    out->note = sl_node_text_bytes(l->note);
}

bool sl_node_copy(struct sl_node *n, struct sl_now now, struct sl_bytes key,
                  struct sl_node_copy *out)
{
    struct sl_node_key *k = sl_node_key_find(n, key);
    if (k == NULL) return false;
    sl_acceptor_settle(n, now, k);
    fill_copy(n, now, k, out);
    return out->held;
}

size_t sl_node_scan(struct sl_node *n, struct sl_now now, uint64_t *cursor,
                    struct sl_lease_view *out, size_t max)
{
    void *items[64];
    size_t found = sl_index_scan(&n->keys, cursor, items, max < 64 ? max : 64);
    size_t count = 0;
    for (size_t i = 0; i < found; i++) {
        struct sl_node_key *k = items[i];
        sl_acceptor_settle(n, now, k);
        out[count].key = sl_node_key_bytes(k);
        out[count].waiters = k->waiter_count;
        fill_copy(n, now, k, &out[count].copy);
        if (out[count].copy.held || k->waiter_count > 0) count++;
    }
    return count;
}

uint32_t sl_node_waiters(const struct sl_node *n, struct sl_bytes key)
{
    const struct sl_node_key *k = sl_node_key_find(n, key);
    return k == NULL ? 0 : k->waiter_count;
}

static sl_ms left_of_wait(const struct sl_proposer_request *r, struct sl_now now)
{
    if (r->wait_end_ms == SL_NEVER) return SL_NEVER;
    sl_ms left = r->wait_end_ms - SL_NODE_GRAIN_MS - now.ms;
    return left > 0 ? left : 0;
}

bool sl_node_waiter(struct sl_node *n, struct sl_now now, struct sl_bytes key,
                    uint32_t i, struct sl_waiter_view *out)
{
    const struct sl_node_key *k = sl_node_key_find(n, key);
    if (k == NULL || i >= k->waiter_count) return false;
    const struct sl_list *at = k->waiters.next;
    while (i-- > 0) at = at->next;
    const struct sl_proposer_request *r = sl_container_of(
        at, struct sl_proposer_request, key_link);
    *out = (struct sl_waiter_view){.session = r->session,
                                   .priority = r->priority,
                                   .steals = r->steal,
                                   .since_ms = now.ms - r->since_ms,
                                   .left_ms = left_of_wait(r, now),
                                   .note = sl_node_text_bytes(r->note)};
    return true;
}

/* For how long this node may lack leases that others have, at most: until all other members
 * have taught it what they know. */
static sl_ms learning_ms(const struct sl_node *n, struct sl_now now)
{
    bool all = now.ms >= n->silent_ms && n->deferred_count == 0;
    for (uint32_t i = 0; i < n->kept.force.count; i++) {
        const struct sl_node_peer *p = sl_node_find_peer(n, n->kept.force.at[i].id);
        if (n->kept.force.at[i].id != n->id && (p == NULL || !p->taught)) all = false;
    }
#ifdef MUT_UNTAUGHT
    all = now.ms >= n->silent_ms;
#endif
    return all || now.ms >= n->learn_ms ? 0 : n->learn_ms - now.ms;
}

void sl_node_stats(struct sl_node *n, struct sl_now now, struct sl_node_stats *out)
{
    *out = (struct sl_node_stats){
        .silent_ms = n->silent_ms > now.ms ? n->silent_ms - now.ms : 0,
        .learning_ms = learning_ms(n, now),
        .keys = n->keys.count,
        .leases = n->lease_count,
        .requests = n->request_count,
        .answer_ms = sl_node_answer_ms(n),
        .fence_last = n->fence_last,
        .fence_limit = n->kept.fence_limit,
        .lease_longest_ms = n->kept.lease_longest_ms,
        .attempts = n->attempts,
        .grants = n->grants,
        .splits = n->splits,
        .timeouts = n->timeouts,
        .taught = n->taught,
        .changing = n->change.phase != SL_CHANGE_NONE ||
                    n->kept.stored.version > n->kept.force.version};
}

static size_t heap_bytes(const struct sl_heap *h)
{
    return h->size * sizeof *h->items;
}

size_t sl_node_bytes(const struct sl_node *n)
{
    return n->block_bytes + sl_index_bytes(&n->keys) + sl_index_bytes(&n->by_ticket) +
           sl_index_bytes(&n->by_round) + heap_bytes(&n->key_timers) +
           heap_bytes(&n->request_timers);
}

void sl_node_peer(const struct sl_node *n, sl_node_id id, struct sl_peer_view *out)
{
    const struct sl_node_peer *p = sl_node_find_peer(n, id);
    *out = (struct sl_peer_view){.rtt_ms = -1};
    if (p == NULL) return;
    out->linked = p->linked;
    out->rtt_ms = p->srtt8 < 0 ? -1 : p->srtt8 / 8;
    out->version = p->version;
}

/* --- Invariants ------------------------------------------------------------------------- */

#define must(so, what) assert((so) && what)

static size_t block_bytes(size_t bytes)
{
    return bytes + SL_MALLOC_BYTES;
}

static size_t text_bytes(const struct sl_node_text *t)
{
    return t == NULL ? 0 : block_bytes(sizeof *t + t->n);
}

/* One that is a block of its own; NULL: none. */
static size_t lease_bytes(const struct sl_node_lease *l)
{
    if (l == NULL) return 0;
    return block_bytes(sizeof *l) + text_bytes(l->value) + text_bytes(l->note);
}

static size_t place_bytes(const struct sl_node_key *k)
{
    return block_bytes(sizeof *k + k->key_n) + text_bytes(k->lease.value) +
           text_bytes(k->lease.note) + lease_bytes(k->overlapped) +
           lease_bytes(k->learned);
}

static size_t request_bytes(const struct sl_proposer_request *r)
{
    size_t bytes = block_bytes(sizeof *r) + text_bytes(r->value) + text_bytes(r->note);
    for (size_t i = 0; i < SL_NODES_MAX; i++)
        bytes += text_bytes(r->votes[i].value) + text_bytes(r->votes[i].note);
    return bytes;
}

static size_t order_bytes(const struct sl_node_queued_order *o)
{
    return o->is_request
               ? request_bytes(sl_container_of(o, struct sl_proposer_request, order))
               : block_bytes(sizeof *o + o->bytes);
}

/* Of all but places and requests that are not answered. */
static size_t waiting_bytes(const struct sl_node *n)
{
    size_t bytes = n->fetched == NULL ? 0 : order_bytes(n->fetched);
    for (const struct sl_list *i = n->orders.next; i != &n->orders; i = i->next)
        bytes += order_bytes(sl_container_of(i, struct sl_node_queued_order, link));
    for (const struct sl_list *i = n->deferred.next; i != &n->deferred; i = i->next)
        bytes += block_bytes(sl_node_deferred_bytes(
            &sl_container_of(i, struct sl_node_deferred, link)->m));
    return bytes;
}

static void check_place(const struct sl_node *n, const struct sl_node_key *k)
{
    uint32_t waiters = 0;
    for (const struct sl_list *i = k->waiters.next; i != &k->waiters; i = i->next) {
        const struct sl_proposer_request *r = sl_container_of(
            i, struct sl_proposer_request, key_link);
        must(r->key == k, "who waits knows for what");
        if (i->next != &k->waiters)
            must(r->priority >=
                     sl_container_of(i->next, struct sl_proposer_request, key_link)
                         ->priority,
                 "a line is in order of priority");
        waiters++;
    }
    must(waiters == k->waiter_count, "waiters are counted");
    must(waiters <= k->request_count, "all requests about a key are counted");
    must(!k->lease.live || k->lease.fence <= k->seen_fence, "a lease's fence was seen");
    must(!k->lease.live || k->lease.fence <= n->kept.fence_limit,
         "no fence above the limit on the disk");
    must(!k->lease.live || k->timer != SL_HEAP_NONE, "a lease ends");
    must(k->lease.live || (k->lease.value == NULL && k->lease.note == NULL),
         "nothing is left of a lease that ended");
}

void sl_node_check(const struct sl_node *n)
{
    uint64_t cursor = 0;
    void *items[64];
    uint32_t count = 0;
    size_t bytes = waiting_bytes(n);
    do {
        size_t found = sl_index_scan(&n->keys, &cursor, items, 64);
        for (size_t i = 0; i < found; i++) {
            check_place(n, items[i]);
            bytes += place_bytes(items[i]);
        }
    } while (cursor != 0);
    for (const struct sl_list *i = n->requests.next; i != &n->requests; i = i->next) {
        const struct sl_proposer_request *r = sl_container_of(
            i, struct sl_proposer_request, all);
        bool change = r->type == SL_NODE_ADD || r->type == SL_NODE_REMOVE;
        must(change || r->timer != SL_HEAP_NONE || r->waits || r->type == SL_NODE_AWAIT,
             "every request ends");
        bytes += request_bytes(r);
        count++;
    }
    must(count == n->request_count, "requests are counted");
    must(bytes == n->block_bytes, "all memory is counted");
    must(n->kept.lease_longest_ms >= n->longest_sure_ms,
         "the longest lease that is sure is on the disk");
}
