/* acceptor_lease.c - starts and ends the leases and reservations of an acceptor. */
#include <assert.h>

#include "majority/acceptor.h"
#include "majority/proposer.h"

/* --- The lengths of leases -------------------------------------------------------- */

void sl_acceptor_count_length(struct sl_node *n, struct sl_node_lease *l,
                              sl_ms lease_ms)
{
    size_t length = sl_length_of(lease_ms) + 1;
    if (length <= l->length) return;
    if (l->length > 0) n->lengths[l->length - 1]--;
    n->lengths[length - 1]++;
    l->length = length;
}

/* Stop counting the length of a lease that has ended. No client relies on it any
 * more. */
static void uncount_length(struct sl_node *n, struct sl_node_lease *l)
{
    if (l->length == 0) return;
    n->lengths[l->length - 1]--;
    l->length = 0;
}

/* While the acceptor is silent, it does not know the leases that end with the silence. */
sl_ms sl_acceptor_longest_lease(const struct sl_node *n, struct sl_now now)
{
    size_t i = SL_LENGTHS;
    sl_ms silent = sl_node_max_ms(n->silent_ms - now.ms, 0);
    while (i > 0 && n->lengths[i - 1] == 0) i--;
    sl_ms longest = i == 0 ? 0 : sl_length_ms(i - 1);
    return sl_node_min_ms(sl_node_max_ms(longest, silent), n->limits.lease_max_ms);
}

/* --- Start of a lease ------------------------------------------------------------- */

/* The message may point to the texts of this same lease, so free the old texts last. */
bool sl_acceptor_set_texts(struct sl_node *n, struct sl_node_lease *l,
                           const struct sl_message *m)
{
    struct sl_node_text *value = sl_node_text_new(n, m->value),
                        *note = sl_node_text_new(n, m->note),
                        *client = sl_node_text_new(n, m->client),
                        *request = sl_node_text_new(n, m->request);
    if ((m->value.n > 0 && value == NULL) || (m->note.n > 0 && note == NULL) ||
        (m->client.n > 0 && client == NULL) || (m->request.n > 0 && request == NULL)) {
        sl_node_text_free(n, value);
        sl_node_text_free(n, note);
        sl_node_text_free(n, client);
        sl_node_text_free(n, request);
        return false;
    }
    sl_node_text_free(n, l->value);
    sl_node_text_free(n, l->note);
    sl_node_text_free(n, l->client);
    sl_node_text_free(n, l->request);
    l->value = value;
    l->note = note;
    l->client = client;
    l->request = request;
    l->digest = m->digest;
    return true;
}

bool sl_acceptor_record(struct sl_node *n, struct sl_now now, struct sl_node_key *k,
                        const struct sl_message *m, bool overlapping)
{
    struct sl_node_lease *l = &k->lease;
    sl_ms end_ms = sl_ms_after(now.ms, m->lease_ms + SL_NODE_GRAIN_MS);
    assert(m->fence > 0 && m->lease_ms >= 0);
    if (!sl_acceptor_set_texts(n, l, m)) return false;
    if (l->live && sl_attempt_same(l->owner, m->owner))
        end_ms = sl_node_max_ms(end_ms, l->end_ms);
    bool same = l->live && l->fence == m->fence;
    if (k->overlapped != NULL && now.ms < k->overlapped->end_ms) overlapping = true;
    if (!same && now.ms < k->overlaps_until_ms) overlapping = true;
    if (!l->live) n->lease_count++;
    l->live = true;
    l->agreed = same && l->agreed;
    l->overlapping = overlapping || (same && l->overlapping);
    l->owner = m->owner;
    l->fence = m->fence;
    l->priority = m->priority;
    l->lease_ms = m->lease_ms;
    l->stamp = m->stamp > 0 ? m->stamp : m->fence;
    l->end_ms = end_ms;
    if (!same) {
        /* The lease may have been granted while this acceptor waited for its disk. */
        bool taken = m->fence == k->taken_fence;
        l->asked_ms = -1;
        l->stolen = l->copied = l->adopted = false;
        l->sure_ms = taken ? k->taken_sure_ms : 0;
        l->session = taken ? k->taken_session : 0;
    }
    if (m->fence > k->seen_fence) k->seen_fence = m->fence;
    if (!same) uncount_length(n, l);
    sl_acceptor_count_length(n, l, m->lease_ms);
    n->voted_ms = now.ms;
    sl_node_key_schedule(n, k);
    return true;
}

void sl_acceptor_break(struct sl_node *n, struct sl_now now, struct sl_node_key *k)
{
    assert(k->lease.live);
    bool again = k->broken_fence == k->lease.fence;
    k->broken_fence = k->lease.fence;
    if (!again) sl_acceptor_publish_broken(n, now, k, k->lease.fence, false, false);
}

void sl_acceptor_agree(struct sl_node *n, struct sl_now now, struct sl_node_key *k,
                       bool overlapping)
{
    struct sl_node_lease *l = &k->lease;
    bool first = !l->agreed;
    assert(l->live);
    l->agreed = true;
    k->turn.end_ms = 0;
    if (overlapping) l->overlapping = true;
    /* The stealing request now has the lease that it waited for. */
    if (k->reserved.live && sl_attempt_same(k->reserved.owner, l->owner))
        k->reserved.live = false;
    if (first && k->overlapped != NULL && l->overlapping)
        sl_acceptor_publish_stolen(n, k);
    if (first && l->asked_ms >= 0) sl_acceptor_publish(n, now, k, SL_NODE_EVENT_ASKED);
    sl_node_key_schedule(n, k);
    if (first) sl_proposer_wake(n, now, k);
}

/* If there is already an overlapped lease, keep the one that ends later, because it
 * blocks others for longer. */
bool sl_acceptor_set_aside(struct sl_node *n, struct sl_node_key *k)
{
    struct sl_node_lease *l = &k->lease;
    assert(l->live);
    if (k->overlapped == NULL) {
        k->overlapped = sl_node_block_new(n, sizeof *k->overlapped);
        if (k->overlapped == NULL) return false;
    } else if (k->overlapped->end_ms >= l->end_ms) {
        if (l->fence > k->past_fence) k->past_fence = l->fence;
        if (l->length > 0) n->lengths[l->length - 1]--;
        sl_acceptor_end_acquisition(n, k, l);
        sl_node_lease_clear(n, l);
        n->lease_count--;
        return true;
    } else {
        if (k->overlapped->fence > k->past_fence) k->past_fence = k->overlapped->fence;
        sl_acceptor_end_acquisition(n, k, k->overlapped);
        if (k->overlapped->length > 0) n->lengths[k->overlapped->length - 1]--;
        sl_node_lease_clear(n, k->overlapped);
    }
    *k->overlapped = *l;
    *l = (struct sl_node_lease){.asked_ms = -1};
    n->lease_count--;
    return true;
}

/* --- Acquisitions with a REQUEST id ----------------------------------------------- */

bool sl_acceptor_remember_ended(struct sl_node *n, struct sl_bytes key,
                                struct sl_bytes request, struct sl_attempt_id owner,
                                bool sure)
{
    const struct sl_node_acquisition *was = sl_node_acquisition_find(&n->ended, key,
                                                                     request);
    if (was != NULL && was->owner.epoch == 0) owner = was->owner;
    if (was == NULL && n->ended.index.count >= n->limits.requests_max)
        sl_node_acquisition_forget_oldest(n, &n->ended);
    struct sl_node_acquisition *a = sl_node_acquisition_keep(
        n, &n->ended, key, request, sl_ms_after(n->now_ms, n->limits.request_keep_ms));
    if (a == NULL) return false;
    a->owner = owner;
    a->sure = a->sure || sure;
    return true;
}

/* When out of memory, the acceptor forgets the acquisition, as after a restart. */
void sl_acceptor_end_acquisition(struct sl_node *n, const struct sl_node_key *k,
                                 const struct sl_node_lease *l)
{
    if (l->request == NULL) return;
    sl_acceptor_remember_ended(n, sl_node_key_bytes(k), sl_node_text_bytes(l->request),
                               l->owner, l->agreed || l->adopted);
}

const struct sl_node_acquisition *sl_acceptor_find_ended(const struct sl_node *n,
                                                         struct sl_bytes key,
                                                         struct sl_bytes request,
                                                         struct sl_attempt_id owner)
{
    const struct sl_node_acquisition *a = sl_node_acquisition_find(&n->ended, key,
                                                                   request);
    bool ended = a != NULL && n->now_ms < a->until_ms;
    return ended && (a->sure || !sl_attempt_same(a->owner, owner)) ? a : NULL;
}

bool sl_acceptor_is_cancelled(const struct sl_node *n, struct sl_bytes key,
                              struct sl_bytes request)
{
    const struct sl_attempt_id any = {0};
    const struct sl_node_acquisition *a = sl_acceptor_find_ended(n, key, request, any);
    return a != NULL && a->owner.epoch == 0;
}

/* --- Release and expiry ----------------------------------------------------------- */

bool sl_acceptor_restore(struct sl_node *n, struct sl_now now, struct sl_node_key *k)
{
    assert(!k->lease.live);
    if (k->overlapped == NULL) return false;
    bool over = now.ms >= k->overlapped->end_ms;
    if (over) {
        sl_acceptor_end_acquisition(n, k, k->overlapped);
        sl_node_lease_free(n, &k->overlapped);
        return false;
    }
    k->lease = *k->overlapped;
    sl_node_block_free(n, k->overlapped, sizeof *k->overlapped);
    k->overlapped = NULL;
    n->lease_count++;
    return true;
}

void sl_acceptor_end_lease(struct sl_node *n, struct sl_now now, struct sl_node_key *k,
                           bool given_up)
{
    struct sl_node_lease *l = &k->lease;
    assert(l->live);
    /* In an event, `overlapping` would mean that another lease overlaps this one. */
    l->overlapping = false;
    if (l->agreed && l->asked_ms >= 0 && !l->stolen)
        sl_acceptor_publish(n, now, k, SL_NODE_EVENT_STOLEN);
    if (!given_up && l->fence > k->past_fence) k->past_fence = l->fence;
    if (!given_up) sl_acceptor_end_acquisition(n, k, l);
    n->lease_count--;
    uncount_length(n, l);
    sl_node_lease_clear(n, l);
    k->idle_ms = now.ms;
    if (sl_acceptor_restore(n, now, k)) return;
    if (given_up) sl_acceptor_take_learned(n, now, k);
    sl_proposer_wake(n, now, k);
}

void sl_acceptor_end_reservation(struct sl_node *n, struct sl_now now,
                                 struct sl_node_key *k)
{
    k->reserved.live = false;
    k->idle_ms = now.ms;
    if (!k->lease.live || k->lease.asked_ms < 0) return;
    if (k->lease.agreed) sl_acceptor_publish(n, now, k, SL_NODE_EVENT_WITHDRAWN);
    k->lease.asked_ms = -1;
}

/* Expire the lease of a key. If the acceptor learned the lease only from the copy of
 * another node, the lease may still be valid elsewhere, because that node may have
 * missed an extension. */
static void expire(struct sl_node *n, struct sl_now now, struct sl_node_key *k)
{
    bool copied = k->lease.copied;
    if (k->lease.agreed && !k->lease.stolen) {
        if (copied) k->lapsed_fence = k->lease.fence;
        else sl_acceptor_publish_end(n, now, k, k->lease.fence, SL_NODE_EVENT_EXPIRED);
    }
    sl_acceptor_end_lease(n, now, k, false);
}

void sl_acceptor_settle(struct sl_node *n, struct sl_now now, struct sl_node_key *k)
{
    bool changed = false;
    if (k->lease.live && now.ms >= k->lease.end_ms) {
        expire(n, now, k);
        changed = true;
    }
    if (k->reserved.live && now.ms >= k->reserved.end_ms) {
        sl_acceptor_end_reservation(n, now, k);
        changed = true;
    }
    if (!changed) return;
    sl_node_key_changed(n, k);
    sl_node_key_schedule(n, k);
}

/* How many keys to process in one iteration of the server's event loop. The others
 * stay due. */
#define ENDS_PER_TICK 1000

void sl_acceptor_tick(struct sl_node *n, struct sl_now now)
{
    for (int i = 0; i < ENDS_PER_TICK && n->key_timers.count > 0 &&
                    n->key_timers.items[0].at <= now.ms;
         i++) {
        struct sl_node_key *k = n->key_timers.items[0].owner;
        sl_acceptor_settle(n, now, k);
        if (sl_node_key_due(n, k) > now.ms) sl_node_key_schedule(n, k);
        else if (!k->lease.live && !k->reserved.live) sl_node_key_free(n, now, k);
    }
}
