/* acceptor_teach.c - learns leases that were agreed without this acceptor. */
#include <assert.h>

#include "majority/acceptor.h"

/* Whether a message was sent recently, after this node started, and after its silence. The
 * message contains the last epoch and the last reading of our clock that its sender
 * had when it sent the message. */
static bool is_fresh(const struct sl_node *n, struct sl_now now, sl_node_id from,
                     const struct sl_message *m)
{
    if (from == n->id) return true;
    return m->heard_epoch == n->epoch && m->heard_ms >= n->silent_ms &&
           m->heard_ms <= now.ms && now.ms - m->heard_ms <= n->limits.forget_ms / 2;
}

/* Make way for a later lease that is agreed. Unless the later lease overlaps the
 * recorded one, the recorded lease has ended, and the message about its end has not
 * arrived yet. Returns false when out of memory. */
static bool make_way(struct sl_node *n, struct sl_now now, struct sl_node_key *k,
                     bool overlapping)
{
    if (overlapping) return sl_acceptor_set_aside(n, k);
    /* This node does not know how the lease ended. If it was about to expire, assume
     * that it expired; otherwise, that it was released. */
    bool near = k->lease.end_ms - now.ms <= n->limits.answer_ms;
    if (k->lease.agreed)
        sl_acceptor_publish_end(n, now, k, k->lease.fence,
                                near ? SL_NODE_EVENT_EXPIRED : SL_NODE_EVENT_RELEASED);
    if (k->overlapped != NULL) sl_acceptor_end_acquisition(n, k, k->overlapped);
    sl_node_lease_free(n, &k->overlapped);
    sl_acceptor_end_lease(n, now, k, false);
    return true;
}

/* Whether a message says that a client has received the lease: one that extends it has. */
static bool is_adopted(const struct sl_message *m)
{
    return (m->flags & (SL_FLAG_ADOPTED | SL_FLAG_EXTENDED)) != 0;
}

/* Keep an agreed lease, because this acceptor has voted for a later attempt, which
 * will be given up. When out of memory, treat the message as lost. */
static void keep_for_later(struct sl_node *n, struct sl_now now, struct sl_node_key *k,
                           const struct sl_message *m)
{
    if (k->learned != NULL && k->learned->fence >= m->fence) return;
    sl_node_lease_free(n, &k->learned);
    struct sl_node_lease *l = sl_node_block_new(n, sizeof *l);
    if (l == NULL) return;
    *l = (struct sl_node_lease){.owner = m->owner,
                                .fence = m->fence,
                                .priority = m->priority,
                                .end_ms = sl_ms_after(now.ms, m->lease_ms),
                                .stamp = m->stamp,
                                .copied = (m->flags & SL_FLAG_COPY) != 0,
                                .adopted = is_adopted(m),
                                .overlapping = (m->flags & SL_FLAG_OVERLAPPING) != 0};
    k->learned = l;
    if (!sl_acceptor_set_texts(n, l, m)) sl_node_lease_free(n, &k->learned);
}

void sl_acceptor_take_learned(struct sl_node *n, struct sl_now now,
                              struct sl_node_key *k)
{
    struct sl_node_lease *l = k->learned;
    assert(!k->lease.live);
    if (l == NULL) return;
    struct sl_message m = {.owner = l->owner,
                           .fence = l->fence,
                           .priority = l->priority,
                           .lease_ms = l->end_ms - now.ms,
                           .stamp = l->stamp,
                           .value = sl_node_text_bytes(l->value),
                           .note = sl_node_text_bytes(l->note),
                           .client = sl_node_text_bytes(l->client),
                           .request = sl_node_text_bytes(l->request),
                           .digest = l->digest};
    bool late = m.lease_ms <= 0 || m.fence < k->past_fence ||
                m.fence <= k->released_fence;
    if (!late && sl_node_may_vote(n, now, m.fence) &&
        sl_acceptor_record(n, now, k, &m, l->overlapping)) {
        k->lease.copied = l->copied;
        k->lease.adopted = l->adopted;
        n->taught++;
        sl_acceptor_agree(n, now, k, l->overlapping);
    }
    sl_node_lease_free(n, &k->learned);
}

/* Record an agreed lease that this acceptor lacks. Returns NULL if it does not
 * record it. */
static struct sl_node_key *learn(struct sl_node *n, struct sl_now now, sl_node_id from,
                                 const struct sl_message *m)
{
    int status;
    if ((m->flags & SL_FLAG_WHOLE) == 0 || !is_fresh(n, now, from, m)) return NULL;
    if (!sl_node_is_plausible(n, now, m->fence)) return NULL;
    struct sl_node_key *k = sl_node_key_get(n, now, m->key, &status);
    if (k == NULL || m->fence < k->past_fence || sl_acceptor_is_released(k, m->fence))
        return NULL;
    /* A lease that was cancelled does not return; one that expired here may. */
    if (sl_acceptor_is_cancelled(n, m->key, m->request)) return NULL;
    if (k->lease.live && !k->lease.agreed && m->fence < k->lease.fence)
        keep_for_later(n, now, k, m);
    if (k->lease.live ? m->fence < k->lease.fence
                      : sl_acceptor_is_reserved(k, m->owner, m->priority))
        return NULL;
    if (!sl_node_may_vote(n, now, m->fence)) {
        sl_node_defer(n, from, m);
        return NULL;
    }
    bool overlapping = (m->flags & SL_FLAG_OVERLAPPING) != 0;
    if (k->lease.live && !make_way(n, now, k, overlapping)) return NULL;
    if (!sl_acceptor_record(n, now, k, m, overlapping)) {
        if (!k->lease.live && sl_acceptor_restore(n, now, k))
            sl_node_key_schedule(n, k);
        return NULL;
    }
    k->lease.copied = (m->flags & SL_FLAG_COPY) != 0;
    if (k->lapsed_fence == m->fence) k->lapsed_fence = 0;
    n->taught++;
    return k;
}

/* Learn the extension of a lease that this acceptor has. */
static void learn_extension(struct sl_node *n, struct sl_now now, sl_node_id from,
                            struct sl_node_key *k, const struct sl_message *m)
{
    struct sl_node_lease *l = &k->lease;
    sl_ms end_ms = sl_ms_after(now.ms, m->lease_ms + SL_NODE_GRAIN_MS);
    if ((m->flags & SL_FLAG_WHOLE) == 0 || l->stolen || !is_fresh(n, now, from, m))
        return;
    if (m->stamp > l->stamp && sl_node_text_set(n, &l->value, m->value))
        l->stamp = m->stamp;
    if (!l->agreed) return; /* The message reports the grant, not an extension. */
    if (end_ms <= l->end_ms) return;
    l->end_ms = end_ms;
    l->lease_ms = m->lease_ms;
    if ((m->flags & SL_FLAG_COPY) == 0) l->copied = false;
    sl_acceptor_count_length(n, l, m->lease_ms);
    sl_node_key_schedule(n, k);
}

/* Compute the time on our clock until which the lease is known to be agreed. After that
 * time we must not teach it. The time left in the message counts from the moment at
 * which it was sent. At that moment our clock showed at least the reading that the
 * sender had last received. */
static void rely_on(struct sl_node_lease *l, const struct sl_message *m)
{
    sl_ms left = m->left_ms < m->lease_ms ? m->left_ms : m->lease_ms;
    sl_ms sure_ms = m->heard_ms + sl_node_shrink_ms(left) - SL_NODE_GRAIN_MS;
    if (left > 0) l->sure_ms = sl_node_max_ms(l->sure_ms, sure_ms);
}

void sl_acceptor_receive_teach(struct sl_node *n, struct sl_now now, sl_node_id from,
                               const struct sl_message *m)
{
    struct sl_node_key *k = sl_node_key_find(n, m->key);
    if (k != NULL) sl_acceptor_settle(n, now, k);
    bool had = sl_node_key_has(k, m->fence);
    if (had) learn_extension(n, now, from, k, m);
    bool here = had || learn(n, now, from, m) != NULL;
    k = sl_node_key_find(n, m->key);
    /* If the message is old, its event may have been published already, although the
     * record of the publication was dropped. */
    if (k == NULL || (!here && !is_fresh(n, now, from, m))) return;
    bool overlapping = (m->flags & SL_FLAG_OVERLAPPING) != 0;
    if (here && overlapping && k->overlapped != NULL) sl_acceptor_publish_stolen(n, k);
    if (here && from != n->id && is_fresh(n, now, from, m)) rely_on(&k->lease, m);
    if (here && is_adopted(m)) k->lease.adopted = true;
    if (here && (m->flags & SL_FLAG_BROKEN) != 0) sl_acceptor_break(n, now, k);
    if (k->lapsed_fence < m->fence) sl_acceptor_publish_lapse(n, now, k);
    sl_acceptor_publish_taught(n, k, m);
    if (here) sl_acceptor_agree(n, now, k, overlapping);
}

/* All earlier messages from this node have been handled, or wait for the disk. */
void sl_acceptor_receive_taught(struct sl_node *n, struct sl_now now, sl_node_id from,
                                const struct sl_message *m)
{
    struct sl_node_peer *p = sl_node_find_peer(n, from);
    if (p != NULL && is_fresh(n, now, from, m)) p->taught = true;
}
