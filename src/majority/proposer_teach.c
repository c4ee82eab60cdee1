/* proposer_teach.c - teaches agreed leases to the nodes that may lack them. */
#include "majority/proposer.h"

void sl_proposer_announce(struct sl_node *n, struct sl_now now,
                          const struct sl_proposer_request *r, struct sl_message *m)
{
    const struct sl_membership *list = &n->kept.force;
    uint32_t flags = m->flags;
    struct sl_bytes value = m->value, note = m->note, client = m->client,
                    request = m->request;
    int self = -1;
    m->type = SL_MESSAGE_TEACH;
    m->round = 0;
    for (uint32_t i = 0; i <= list->count; i++) {
        /* This node is last, so that it publishes events in the same order as the
         * others. */
        if (i < list->count && list->at[i].id == n->id) {
            self = (int)i;
            continue;
        }
        if (i == list->count && self < 0) break;
        uint32_t at = i < list->count ? i : (uint32_t)self;
        bool yes = r->votes[at].verdict == SL_VERDICT_YES;
        m->flags = yes ? flags : flags | SL_FLAG_WHOLE;
        m->value = yes ? (struct sl_bytes){0} : value;
        m->note = yes ? (struct sl_bytes){0} : note;
        m->client = yes ? (struct sl_bytes){0} : client;
        m->request = yes ? (struct sl_bytes){0} : request;
        sl_node_send(n, now, list->at[at].id, m);
    }
}

/* The session is needed for events that are pushed to the client, and for RELEASE
 * without a fence. */
void sl_proposer_note_grant(struct sl_node *n, const struct sl_proposer_request *r)
{
    struct sl_node_key *k = r->key;
    struct sl_node_lease *l = &k->lease;
    if (r->type == SL_NODE_ACQUIRE) {
        k->taken_fence = r->fence;
        k->taken_session = r->session;
        k->taken_sure_ms = r->end_ms;
    }
    if (!l->live || l->fence != r->fence) return;
    if (r->type == SL_NODE_ACQUIRE) l->session = r->session;
    if (r->end_ms > l->sure_ms) l->sure_ms = r->end_ms;
    sl_node_key_changed(n, k);
}

/* Teach a lease if it is known to be agreed now. */
static void teach_one(struct sl_node *n, struct sl_now now, struct sl_node_key *k,
                      sl_node_id to)
{
    const struct sl_node_lease *l = &k->lease;
    sl_ms left = l->sure_ms - now.ms, end = l->end_ms - SL_NODE_GRAIN_MS - now.ms;
    if (!l->live || !l->agreed || left <= 0) return;
    struct sl_message m = {.type = SL_MESSAGE_TEACH,
                           .key = sl_node_key_bytes(k),
                           .owner = l->owner,
                           .fence = l->fence,
                           .lease_ms = left > end ? left : end,
                           .left_ms = left,
                           .priority = l->priority,
                           .stamp = l->stamp,
                           .flags = SL_FLAG_WHOLE | SL_FLAG_COPY |
                                    (l->overlapping ? SL_FLAG_OVERLAPPING : 0) |
                                    (l->adopted ? SL_FLAG_ADOPTED : 0) |
                                    (k->broken_fence == l->fence ? SL_FLAG_BROKEN : 0),
                           .value = sl_node_text_bytes(l->value),
                           .note = sl_node_text_bytes(l->note),
                           .client = sl_node_text_bytes(l->client),
                           .request = sl_node_text_bytes(l->request),
                           .digest = l->digest};
    sl_node_send(n, now, to, &m);
}

/* Limits per heartbeat, because other messages queue behind these. Each lease counts
 * BATCH_BYTES / BATCH_LEASES bytes in addition to its texts. */
#define BATCH_LEASES 64
#define BATCH_BYTES 65536

static size_t text_bytes(const struct sl_node_key *k)
{
    return k->key_n + sl_node_text_bytes(k->lease.value).n +
           sl_node_text_bytes(k->lease.note).n + sl_node_text_bytes(k->lease.client).n;
}

void sl_proposer_teach_peer(struct sl_node *n, struct sl_now now,
                            struct sl_node_peer *peer)
{
    void *k;
    size_t bytes = 0;
    if (peer->silent_ms > now.ms) { /* The peer would ignore the message. */
        peer->teach_ms = sl_ms_after(peer->silent_ms, n->limits.heartbeat_ms);
        return;
    }
    do {
        if (sl_index_scan(&n->keys, &peer->teach_cursor, &k, 1) == 0) continue;
        teach_one(n, now, k, peer->id);
        bytes += text_bytes(k) + BATCH_BYTES / BATCH_LEASES;
    } while (peer->teach_cursor != 0 && bytes < BATCH_BYTES);
    if (peer->teach_cursor != 0) {
        peer->teach_ms = now.ms + n->limits.heartbeat_ms;
        return;
    }
    struct sl_message m = {.type = SL_MESSAGE_TAUGHT};
    peer->teach_ms = SL_NEVER;
    sl_node_send(n, now, peer->id, &m);
}
