/* node_peers.c - the other nodes: links, round-trip times, and the data directory of
 * each.
 *
 * A node that starts with an empty data directory draws a random number, its birth.
 * A member that reconnects with a different birth has lost its promises, so the
 * others ignore it. */
#include "majority/acceptor.h"
#include "majority/proposer.h"

#define TELL_MS 50    /* Send a node the membership at most this often. */
#define LEARN_MS 2000 /* Time to connect, and to learn leases from other nodes. */

struct sl_node_peer *sl_node_find_peer(const struct sl_node *n, sl_node_id id)
{
    for (size_t i = 0; i < SL_NODE_PEERS_MAX; i++)
        if (n->peers[i].id == id && id != 0) return (struct sl_node_peer *)&n->peers[i];
    return NULL;
}

/* Find or create the entry of a node. Returns NULL if linked nodes use all entries. */
static struct sl_node_peer *make_peer(struct sl_node *n, sl_node_id id)
{
    struct sl_node_peer *p = sl_node_find_peer(n, id);
    for (size_t i = 0; p == NULL && i < SL_NODE_PEERS_MAX; i++)
        if (n->peers[i].id == 0) p = &n->peers[i];
    for (size_t i = 0; p == NULL && i < SL_NODE_PEERS_MAX; i++)
        if (!n->peers[i].linked) p = &n->peers[i];
    if (p != NULL && p->id != id)
        *p = (struct sl_node_peer){.id = id,
                                   .srtt8 = -1,
                                   .membership_sent_ms = -TELL_MS,
                                   .teach_ms = SL_NEVER};
    return p;
}

bool sl_node_can_reach(const struct sl_node *n, sl_node_id id)
{
    const struct sl_node_peer *p = sl_node_find_peer(n, id);
    return id == n->id || (p != NULL && p->linked);
}

sl_ms sl_node_rtt_ms(const struct sl_node *n)
{
    sl_ms most = 0;
    for (size_t i = 0; i < SL_NODE_PEERS_MAX; i++) {
        const struct sl_node_peer *p = &n->peers[i];
        if (p->id != 0 && p->linked && p->srtt8 / 8 > most) most = p->srtt8 / 8;
    }
    return most;
}

sl_ms sl_node_answer_ms(const struct sl_node *n)
{
    sl_ms most = -1;
    for (size_t i = 0; i < SL_NODE_PEERS_MAX; i++) {
        const struct sl_node_peer *p = &n->peers[i];
        if (p->id == 0 || !p->linked || p->srtt8 < 0) continue;
        sl_ms ms = p->srtt8 / 8 + p->rttvar4 + 1;
        if (ms > most) most = ms;
    }
    if (most < 0) return n->limits.answer_ms;
    return sl_node_clamp_ms(2 * most, n->limits.answer_min_ms, n->limits.answer_max_ms);
}

/* Smooth the round-trip time as TCP does. Late answers count as well. */
static void sample(struct sl_node_peer *p, sl_ms rtt)
{
    if (p->srtt8 < 0) {
        p->srtt8 = rtt * 8;
        p->rttvar4 = rtt * 2;
        return;
    }
    sl_ms off = rtt - p->srtt8 / 8;
    p->srtt8 += off;
    if (p->srtt8 < 0) p->srtt8 = 0;
    p->rttvar4 += (off < 0 ? -off : off) - p->rttvar4 / 4;
}

/* Handle a heartbeat. A silent node has forgotten its leases and ignores every
 * TEACH. This node teaches it as soon as a heartbeat says that the silence has
 * ended. */
static void hear_heartbeat(const struct sl_node *n, struct sl_now now,
                           struct sl_node_peer *p, sl_ms left_ms)
{
    p->silent_ms = sl_ms_after(now.ms, left_ms);
    if (!p->linked) return;
    if (left_ms > 0) {
        p->teach_cursor = 0;
        p->teach_ms = sl_ms_after(p->silent_ms, n->limits.heartbeat_ms);
    } else if (p->teach_cursor == 0 && p->teach_ms != SL_NEVER) p->teach_ms = now.ms;
}

void sl_node_hear(struct sl_node *n, struct sl_now now, sl_node_id from,
                  const struct sl_message *m)
{
    struct sl_node_peer *p = make_peer(n, from);
    if (p == NULL) return;
    if (p->epoch != m->epoch || m->sent_ms > p->stamp_ms) {
        p->epoch = m->epoch;
        p->stamp_ms = m->sent_ms;
    }
    p->version = m->version;
    p->wall_us = m->wall_us;
    p->wall_ms = now.ms;
    if (m->type == SL_MESSAGE_BEAT) {
        hear_heartbeat(n, now, p, m->left_ms);
        sl_node_hear_journal(n, from, m);
        if (m->digest != sl_node_drain_digest(n)) sl_node_tell_drains(n, now, from);
    }
    sl_membership_change_linked(n, now, from);
    if (m->type == SL_MESSAGE_VOTE && m->heard_epoch == n->epoch &&
        m->heard_ms <= now.ms)
        sample(p, now.ms - m->heard_ms);
    if (m->version < n->kept.force.version &&
        now.ms - p->membership_sent_ms >= TELL_MS) {
        p->membership_sent_ms = now.ms;
        sl_membership_change_tell(n, now, from);
    }
}

/* --- Links ------------------------------------------------------------------------ */

/* Returns the birth of a member, from the membership or from its first link, or 0 if
 * it is not known yet. */
static uint64_t birth_of(const struct sl_node_durable *d, sl_node_id id)
{
    int at = sl_membership_find(&d->force, id);
    if (at >= 0 && d->force.at[at].birth != 0) return d->force.at[at].birth;
    for (size_t i = 0; i < SL_NODES_MAX; i++)
        if (d->births[i].id == id) return d->births[i].birth;
    return 0;
}

static void note_birth(struct sl_node *n, sl_node_id id, uint64_t birth)
{
    for (size_t i = 0; i < SL_NODES_MAX; i++)
        if (n->next.births[i].id == 0) {
            n->next.births[i] = (struct sl_node_birth){id, birth};
            sl_node_want_write(n);
            return;
        }
}

/* Whether a member has lost its data directory. Its birth is known after its first
 * link, as long as it is a member. */
static bool is_another(struct sl_node *n, sl_node_id id, uint64_t birth)
{
    uint64_t known = birth_of(&n->next, id);
    if (sl_membership_find(&n->next.force, id) < 0) return false;
    if (known == 0) note_birth(n, id, birth);
    return known != 0 && known != birth;
}

/* Set the time until which this node may lack leases. If no other node teaches it a
 * lease, the lease expires within the length of the longest lease, or the holder
 * extends it, and then this node learns it from the extension. */
static void learn_until(struct sl_node *n, sl_ms from_ms, sl_ms longest_ms)
{
    sl_ms until = sl_ms_after(from_ms, longest_ms > LEARN_MS ? longest_ms : LEARN_MS);
    if (until > n->learn_ms) n->learn_ms = until;
}

void sl_node_be_silent_until(struct sl_node *n, struct sl_now now, sl_ms until_ms)
{
    n->silent_ms = until_ms;
    learn_until(n, until_ms, until_ms - now.ms);
    for (size_t i = 0; i < SL_NODE_PEERS_MAX; i++) n->peers[i].taught = false;
}

static void link_up(struct sl_node *n, struct sl_now now, struct sl_node_peer *p)
{
    struct sl_message m = {.type = SL_MESSAGE_BEAT,
                           .left_ms = sl_node_max_ms(n->silent_ms - now.ms, 0)};
    sl_node_report_journal(n, &m);
    /* The birth of the other node must be on disk before we link it. Otherwise this
     * node could crash, and not notice that the other node restarted with an empty
     * data directory. */
    p->link_pending = sl_membership_find(&n->kept.force, p->id) >= 0 &&
                      birth_of(&n->kept, p->id) == 0;
    if (p->link_pending || p->linked) return;
    p->linked = true;
    p->taught = false; /* This node may also lack leases. */
    learn_until(n, now.ms, sl_node_stretch_ms(sl_acceptor_longest_lease(n, now)));
    p->teach_cursor = 0;
    p->teach_ms = now.ms + n->limits.heartbeat_ms; /* By then we know its clock. */
    sl_node_send(n, now, p->id, &m);               /* Tells it our clock. */
    sl_membership_change_linked(n, now, p->id);
}

void sl_node_link_known(struct sl_node *n, struct sl_now now)
{
    for (size_t i = 0; i < SL_NODE_PEERS_MAX; i++)
        if (n->peers[i].id != 0 && n->peers[i].link_pending)
            link_up(n, now, &n->peers[i]);
}

static void link_down(struct sl_node *n, struct sl_now now, struct sl_node_peer *p)
{
    bool was = p->linked;
    p->linked = p->link_pending = false;
    p->wall_ms = 0;
    p->teach_ms = SL_NEVER;
    if (was) sl_proposer_lost(n, now, p->id);
}

static bool refuse(const char **why, const char *text)
{
    *why = text;
    return false;
}

bool sl_node_link(struct sl_node *n, struct sl_now now, sl_node_id id, bool up,
                  const struct sl_node_identity *states, const char **why)
{
    *why = "";
    now = sl_node_median_time(n, now);
    if (id == n->id)
        return refuse(why, "the connecting node has the same id as this node; each "
                           "node needs its own id");
    if (up && n->kept.birth == 0) return refuse(why, "this node is not ready yet");
    if (up && is_another(n, id, states->birth))
        return refuse(why,
                      "this node has lost its data directory; remove it with NODES "
                      "REMOVE, and add it again with NODES ADD");
    if (up && sl_node_went_back(n, id, states))
        return refuse(why,
                      "the data directory of this node is an old copy; NODES REMOVE "
                      "the node, empty its directory, and NODES ADD it again");
    struct sl_node_peer *p = make_peer(n, id);
    if (p == NULL) return refuse(why, "there are too many nodes");
    if (up) {
        p->birth = states->birth;
        sl_node_meet_journal(n, id, states);
        link_up(n, now, p);
    } else link_down(n, now, p);
    return true;
}
