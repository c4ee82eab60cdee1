/* node_inspect.c - queries. */
#include "majority/acceptor.h"
#include "majority/proposer.h"

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
                                 .broken = k->broken_fence == l->fence,
                                 .reserved = k->reserved.live,
                                 .wanted = k->reserved.priority};
    if (!out->held) return;
    out->owner = l->owner;
    out->fence = l->fence;
    out->priority = l->priority;
    out->session = l->session;
    out->left_ms = sl_node_lease_left_ms(l, now);
    out->value = sl_node_text_bytes(l->value);
    out->note = sl_node_text_bytes(l->note);
    out->client = sl_node_text_bytes(l->client);
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

bool sl_node_uses(const struct sl_node *n, struct sl_bytes key, uint64_t session)
{
    const struct sl_node_key *k = sl_node_key_find(n, key);
    if (k == NULL || session == 0) return false;
    if (k->lease.live && k->lease.session == session) return true;
    for (const struct sl_list *i = k->waiters.next; i != &k->waiters; i = i->next)
        if (sl_container_of(i, const struct sl_proposer_request, key_link)->session ==
            session)
            return true;
    return false;
}

static void view_key(struct sl_node *n, struct sl_now now, struct sl_node_key *k,
                     struct sl_lease_view *out)
{
    sl_acceptor_settle(n, now, k);
    const struct sl_wait *oldest = k->by_age.oldest;
    *out = (struct sl_lease_view){
        .key = sl_node_key_bytes(k),
        .waiters = k->waiter_count,
        .waited_ms = oldest == NULL ? -1 : now.ms - oldest->since_ms};
    fill_copy(n, now, k, &out->copy);
}

size_t sl_node_scan(struct sl_node *n, struct sl_now now, uint64_t *cursor,
                    struct sl_lease_view *out, size_t max)
{
    void *items[64];
    size_t found = sl_index_scan(&n->keys, cursor, items, max < 64 ? max : 64);
    size_t count = 0;
    for (size_t i = 0; i < found; i++) {
        struct sl_node_key *k = items[i];
        view_key(n, now, k, &out[count]);
        if (out[count].copy.held || k->waiter_count > 0) count++;
    }
    return count;
}

size_t sl_node_scan_waited(struct sl_node *n, struct sl_now now, uint64_t *cursor,
                           struct sl_lease_view *out, size_t max)
{
    size_t count = 0;
    for (; count < max; count++) {
        struct sl_wait_group *g = sl_waits_after(&n->waits, cursor);
        if (g == NULL) {
            *cursor = 0;
            break;
        }
        view_key(n, now, sl_container_of(g, struct sl_node_key, by_age), &out[count]);
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
    return sl_node_max_ms(r->wait_end_ms - SL_NODE_GRAIN_MS - now.ms, 0);
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

/* Returns an upper bound of the time during which this node may lack leases that other
 * members have. The result is 0 as soon as all of them have taught this node their
 * leases. */
static sl_ms learning_ms(const struct sl_node *n, struct sl_now now)
{
    bool all = now.ms >= n->silent_ms && n->deferred_count == 0;
    for (uint32_t i = 0; i < n->kept.force.count; i++) {
        const struct sl_node_peer *p = sl_node_find_peer(n, n->kept.force.at[i].id);
        if (n->kept.force.at[i].id != n->id && (p == NULL || !p->taught)) all = false;
    }
    return all || now.ms >= n->learn_ms ? 0 : n->learn_ms - now.ms;
}

void sl_node_stats(struct sl_node *n, struct sl_now now, struct sl_node_stats *out)
{
    *out = (struct sl_node_stats){
        .silent_ms = n->silent_ms > now.ms ? n->silent_ms - now.ms : 0,
        .learning_ms = learning_ms(n, now),
        .keys = n->keys.count,
        .leases = n->lease_count,
        .ended = n->ended.index.count,
        .requests = n->request_count,
        .answer_ms = sl_node_answer_ms(n),
        .fence_last = n->fence_last,
        .fence_limit = n->kept.fence_limit,
        .lease_longest_ms = sl_acceptor_longest_lease(n, now),
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
    return n->block_bytes + n->record_bytes + sl_index_bytes(&n->keys) +
           sl_index_bytes(&n->by_ticket) + sl_index_bytes(&n->by_round) +
           heap_bytes(&n->key_timers) + heap_bytes(&n->request_timers);
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
