/* node.c - the doors of a node: what comes in, what goes out, and what is on the disk. */
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "majority/node_internal.h"

#define SECOND_MS 1000
#define TELL_MS 50 /* A node is not told of the list more often. */
#define LEARN_MS \
    2000 /* Until links are made, and others have taught a node that started. */

const struct sl_node_limits sl_node_limits_default = {
    .keys_max = 20000000,
    .waiters_max = 131072,
    .key_bytes_max = 1024,
    .value_bytes_max = 4096,
    .lease_min_ms = 50,
    .lease_max_ms = 24 * 3600 * 1000,
    .beat_ms = 150,
    .answer_ms = 250,
    .answer_min_ms = 50,
    .answer_max_ms = 10000,
    .forget_ms = 10000,
    .waiting_messages_max = 10000,
};

/* --- Small things ---------------------------------------------------------------------- */

void *sl_block_new(struct sl_node *n, size_t bytes)
{
    void *block = calloc(1, bytes);
    if (block != NULL) n->block_bytes += bytes + SL_MALLOC_BYTES;
    return block;
}

void sl_block_free(struct sl_node *n, void *block, size_t bytes)
{
    if (block == NULL) return;
    n->block_bytes -= bytes + SL_MALLOC_BYTES;
    free(block);
}

struct sl_node_text *sl_node_text_new(struct sl_node *n, struct sl_bytes b)
{
    if (b.n == 0) return NULL;
    struct sl_node_text *t = sl_block_new(n, sizeof *t + b.n);
    if (t == NULL) return NULL;
    t->n = b.n;
    memcpy(t->at, b.at, b.n);
    return t;
}

void sl_node_text_drop(struct sl_node *n, struct sl_node_text *t)
{
    if (t != NULL) sl_block_free(n, t, sizeof *t + t->n);
}

bool sl_node_text_set(struct sl_node *n, struct sl_node_text **t, struct sl_bytes b)
{
    struct sl_node_text *text = sl_node_text_new(n, b);
    if (b.n > 0 && text == NULL) return false;
#ifdef MUT_UNCOUNTED
    free(*t);
    *t = NULL;
#endif
    sl_node_text_drop(n, *t);
    *t = text;
    return true;
}

static uint64_t hash_ticket(const void *item, const struct sl_index *x)
{
    return sl_hash_u64(((const struct sl_node_pending *)item)->ticket, x->seed);
}

static bool same_ticket(const void *item, struct sl_bytes key)
{
    return memcmp(&((const struct sl_node_pending *)item)->ticket, key.at, key.n) == 0;
}

static uint64_t hash_round(const void *item, const struct sl_index *x)
{
    return sl_hash_u64(((const struct sl_node_pending *)item)->round, x->seed);
}

static bool same_round(const void *item, struct sl_bytes key)
{
    return memcmp(&((const struct sl_node_pending *)item)->round, key.at, key.n) == 0;
}

const struct sl_index_kind sl_tickets_kind = {.hash = hash_ticket, .same = same_ticket};
const struct sl_index_kind sl_rounds_kind = {.hash = hash_round, .same = same_round};

uint64_t sl_chance(struct sl_node *n, uint64_t below)
{
    n->chance ^= n->chance << 13;
    n->chance ^= n->chance >> 7;
    n->chance ^= n->chance << 17;
    return below == 0 ? 0 : (n->chance * 0x2545f4914f6cdd1du >> 11) % below;
}

bool sl_is_member(const struct sl_node *n)
{
    return sl_membership_find(&n->kept.force, n->id) >= 0;
}

/* --- What time it is ------------------------------------------------------------------ */

/* The clocks of the members that are linked, and the own one. Returns how many. */
static uint32_t list_clocks(const struct sl_node *n, struct sl_now now,
                            uint64_t out[SL_PEERS + 1])
{
    uint32_t count = 0;
    out[count++] = now.wall_us;
    for (size_t i = 0; i < SL_PEERS; i++) {
        const struct sl_peer *p = &n->peers[i];
        if (p->id == 0 || !p->linked || p->wall_ms == 0 ||
            sl_membership_find(&n->kept.force, p->id) < 0)
            continue;
        sl_ms ago = now.ms > p->wall_ms ? now.ms - p->wall_ms : 0;
        out[count++] = p->wall_us + (uint64_t)ago * 1000;
    }
    return count;
}

/* The one in the middle; of two in the middle the earlier. */
struct sl_now sl_believe(struct sl_node *n, struct sl_now now)
{
    uint64_t clocks[SL_PEERS + 1];
    uint32_t count = list_clocks(n, now, clocks);
    for (uint32_t i = 1; i < count; i++)
        for (uint32_t k = i; k > 0 && clocks[k] < clocks[k - 1]; k--) {
            uint64_t other = clocks[k];
            clocks[k] = clocks[k - 1];
            clocks[k - 1] = other;
        }
#ifndef MUT_OWNCLOCK
    n->own_wall_us = now.wall_us;
    now.wall_us = clocks[(count - 1) / 2];
#else
    n->own_wall_us = now.wall_us;
#endif
    n->now_ms = now.ms;
    return now;
}

bool sl_knows_time(const struct sl_node *n)
{
    uint64_t clocks[SL_PEERS + 1];
    struct sl_now any = {.ms = n->now_ms};
    return list_clocks(n, any, clocks) >= sl_membership_majority(&n->kept.force);
}

sl_fence sl_highest_fence(const struct sl_node *n, struct sl_now now)
{
    sl_fence most = n->kept.fence_limit;
    if (now.wall_us <= SL_WALL_US_MAX && now.wall_us + SL_FENCE_DAY > most)
        most = now.wall_us + SL_FENCE_DAY;
    return most < SL_FENCE_MAX ? most : SL_FENCE_MAX;
}

/* A fence from a clock that is days ahead would end all fences. */
bool sl_is_believable(const struct sl_node *n, struct sl_now now, sl_fence fence)
{
    sl_fence most = n->kept.fence_limit;
    if (n->floor > most) most = n->floor;
    if (now.wall_us <= SL_WALL_US_MAX && now.wall_us > most) most = now.wall_us;
    return fence <= SL_FENCE_MAX && fence <= most + SL_FENCE_DAY;
}

/* --- Other nodes ------------------------------------------------------------------------ */

struct sl_peer *sl_peer(const struct sl_node *n, sl_node_id id)
{
    for (size_t i = 0; i < SL_PEERS; i++)
        if (n->peers[i].id == id && id != 0) return (struct sl_peer *)&n->peers[i];
    return NULL;
}

/* The place of a node, made if there is none; NULL: all are taken by those linked. */
static struct sl_peer *make_peer(struct sl_node *n, sl_node_id id)
{
    struct sl_peer *p = sl_peer(n, id);
    for (size_t i = 0; p == NULL && i < SL_PEERS; i++)
        if (n->peers[i].id == 0) p = &n->peers[i];
    for (size_t i = 0; p == NULL && i < SL_PEERS; i++)
        if (!n->peers[i].linked) p = &n->peers[i];
    if (p != NULL && p->id != id)
        *p = (struct sl_peer){
            .id = id, .srtt8 = -1, .told_ms = -TELL_MS, .teach_ms = SL_NEVER};
    return p;
}

bool sl_can_reach(const struct sl_node *n, sl_node_id id)
{
    const struct sl_peer *p = sl_peer(n, id);
    return id == n->id || (p != NULL && p->linked);
}

static sl_ms within(sl_ms x, sl_ms least, sl_ms most)
{
    return x < least ? least : x > most ? most : x;
}

sl_ms sl_rtt_ms(const struct sl_node *n)
{
    sl_ms most = 0;
    for (size_t i = 0; i < SL_PEERS; i++) {
        const struct sl_peer *p = &n->peers[i];
        if (p->id != 0 && p->linked && p->srtt8 / 8 > most) most = p->srtt8 / 8;
    }
    return most;
}

sl_ms sl_answer_ms(const struct sl_node *n)
{
    sl_ms most = -1;
    for (size_t i = 0; i < SL_PEERS; i++) {
        const struct sl_peer *p = &n->peers[i];
        if (p->id == 0 || !p->linked || p->srtt8 < 0) continue;
        sl_ms ms = p->srtt8 / 8 + p->rttvar4 + 1;
        if (ms > most) most = ms;
    }
    if (most < 0) return n->limits.answer_ms;
    return within(2 * most, n->limits.answer_min_ms, n->limits.answer_max_ms);
}

/* How long its answers take, late ones included; as TCP does it. */
static void sample(struct sl_peer *p, sl_ms rtt)
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

/* A silent node has forgotten its leases and ignores every TEACH. We teach it as soon as it says
 * that its silence is over. */
static void hear_beat(const struct sl_node *n, struct sl_now now, struct sl_peer *p,
                      sl_ms left_ms)
{
    p->silent_ms = sl_ms_after(now.ms, left_ms);
    if (!p->linked) return;
    if (left_ms > 0) {
        p->lesson = 0;
        p->teach_ms = sl_ms_after(p->silent_ms, n->limits.beat_ms);
    } else if (p->lesson == 0 && p->teach_ms != SL_NEVER) p->teach_ms = now.ms;
}

static void hear(struct sl_node *n, struct sl_now now, sl_node_id from,
                 const struct sl_message *m)
{
    struct sl_peer *p = make_peer(n, from);
    if (p == NULL) return;
    if (p->epoch != m->epoch || m->sent_ms > p->stamp_ms) {
        p->epoch = m->epoch;
        p->stamp_ms = m->sent_ms;
    }
    p->version = m->version;
    p->wall_us = m->wall_us;
    p->wall_ms = now.ms;
    if (m->type == SL_MESSAGE_BEAT) hear_beat(n, now, p, m->left_ms);
    sl_membership_change_linked(n, now, from);
    if (m->type == SL_MESSAGE_VOTE && m->heard_epoch == n->epoch &&
        m->heard_ms <= now.ms)
        sample(p, now.ms - m->heard_ms);
    if (m->version < n->kept.force.version && now.ms - p->told_ms >= TELL_MS) {
        p->told_ms = now.ms;
        sl_membership_change_tell(n, now, from);
    }
}

/* Which folder a member has: the list says so, or who met it first; 0: not known yet. */
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
            sl_want_write(n);
            return;
        }
}

/* Who it is, is known from the first meeting on, as long as it is on the list. */
static bool is_another(struct sl_node *n, sl_node_id id, uint64_t birth)
{
    uint64_t known = birth_of(&n->next, id);
    if (sl_membership_find(&n->next.force, id) < 0) return false;
    if (known == 0) note_birth(n, id, birth);
#ifdef MUT_BIRTH
    return false;
#endif
    return known != 0 && known != birth;
}

/* A lease that no other node teaches us either expires within the longest lease, or its holder
 * extends it, which teaches us. */
static void learn_until(struct sl_node *n, sl_ms from_ms, sl_ms longest_ms)
{
    sl_ms until = sl_ms_after(from_ms, longest_ms > LEARN_MS ? longest_ms : LEARN_MS);
    if (until > n->learn_ms) n->learn_ms = until;
}

static void link_up(struct sl_node *n, struct sl_now now, struct sl_peer *p)
{
    sl_ms silent = n->silent_ms - now.ms;
    struct sl_message m = {.type = SL_MESSAGE_BEAT, .left_ms = silent > 0 ? silent : 0};
    /* It is written down first: else it might come with another folder after a crash of
     * ours, and nobody would know. */
    p->meets = sl_membership_find(&n->kept.force, p->id) >= 0 &&
               birth_of(&n->kept, p->id) == 0;
    if (p->meets || p->linked) return;
    p->linked = true;
    p->taught = false; /* We may have missed something, too. */
    learn_until(n, now.ms, sl_stretch(n->kept.lease_longest_ms));
    p->lesson = 0;
    p->teach_ms = now.ms + n->limits.beat_ms; /* When we know its clock. */
    sl_send(n, now, p->id, &m);               /* So that it knows ours. */
    sl_membership_change_linked(n, now, p->id);
}

static void link_down(struct sl_node *n, struct sl_now now, struct sl_peer *p)
{
    bool was = p->linked;
    p->linked = p->meets = false;
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
                  uint64_t birth, const char **why)
{
    *why = "";
    now = sl_believe(n, now);
    if (id == n->id) return refuse(why, "this is the number of the node itself");
    if (up && n->kept.birth == 0) return refuse(why, "this node is not ready yet");
    if (up && is_another(n, id, birth))
        return refuse(why, "this node has lost its data folder: NODES REMOVE it, and "
                           "ADD it again");
    struct sl_peer *p = make_peer(n, id);
    if (p == NULL) return refuse(why, "there are too many nodes");
    if (up) {
        p->birth = birth;
        link_up(n, now, p);
    } else link_down(n, now, p);
    return true;
}

/* --- Messages out ----------------------------------------------------------------------- */

static char *put(char *at, struct sl_bytes *b)
{
    if (b->n == 0) {
        *b = (struct sl_bytes){NULL, 0};
        return at;
    }
    memcpy(at, b->at, b->n);
    b->at = at;
    return at + b->n;
}

static struct sl_out *new_out(struct sl_node *n, enum sl_node_order_type type,
                              size_t bytes)
{
    struct sl_out *o = sl_block_new(n, sizeof *o + bytes);
    if (o == NULL) return NULL;
    o->type = type;
    o->bytes = bytes;
    sl_list_append(&n->orders, &o->place);
    return o;
}

/* A copy of a message among the orders. NULL: no memory; it is lost. */
static struct sl_out *order_message(struct sl_node *n, const struct sl_message *m)
{
    struct sl_out *o = new_out(n, SL_NODE_ORDER_SEND,
                               m->key.n + m->value.n + m->note.n);
    if (o == NULL) return NULL;
    char *at = (char *)(o + 1);
    o->u.message = *m;
    o->u.message.cluster = n->kept.force.cluster;
    o->u.message.version = n->kept.force.version;
    at = put(at, &o->u.message.key);
    at = put(at, &o->u.message.value);
    put(at, &o->u.message.note);
    return o;
}

static void dispatch(struct sl_node *n, struct sl_now now, sl_node_id from,
                     const struct sl_message *m);

/* What it last heard of the other's clock. Of a message to one node this is as of when it
 * was made: it was not sent before. */
static void stamp(const struct sl_node *n, struct sl_message *m, sl_node_id to)
{
    const struct sl_peer *p = sl_peer(n, to);
    m->heard_epoch = p != NULL ? p->epoch : 0;
    m->heard_ms = p != NULL ? p->stamp_ms : 0;
}

/* As the last thing that somebody does: the answer may come back at once. */
static void to_itself(struct sl_node *n, struct sl_now now, struct sl_message *m)
{
    m->cluster = n->kept.force.cluster;
    m->version = n->kept.force.version;
    m->epoch = m->heard_epoch = n->epoch;
    m->sent_ms = m->heard_ms = now.ms;
    dispatch(n, now, n->id, m);
}

void sl_send(struct sl_node *n, struct sl_now now, sl_node_id to, struct sl_message *m)
{
    if (to == n->id) {
        to_itself(n, now, m);
        return;
    }
    if (!sl_can_reach(n, to)) return;
    struct sl_out *o = order_message(n, m);
    if (o == NULL) return;
    o->to[o->to_count++] = to;
    stamp(n, &o->u.message, to);
}

void sl_send_all(struct sl_node *n, struct sl_now now, struct sl_message *m)
{
    const struct sl_membership list = n->kept.force;
    bool self = false;
    struct sl_out *o = NULL;
    for (uint32_t i = 0; i < list.count; i++) {
        if (list.at[i].id == n->id) {
            self = true;
            continue;
        }
        if (!sl_can_reach(n, list.at[i].id)) continue;
        if (o == NULL) o = order_message(n, m);
        if (o != NULL) o->to[o->to_count++] = list.at[i].id;
    }
    if (self) to_itself(n, now, m);
}

void sl_tell(struct sl_node *n, const struct sl_node_event *e)
{
    struct sl_out *o = new_out(n, SL_NODE_ORDER_EVENT, e->key.n + e->note.n);
    if (o == NULL) return;
    o->u.event = *e;
    put(put((char *)(o + 1), &o->u.event.key), &o->u.event.note);
}

void sl_log_line(struct sl_node *n, const char *text)
{
    struct sl_out *o = new_out(n, SL_NODE_ORDER_LOG, 0);
    size_t most = sizeof o->u.text - 1;
    if (o == NULL) return;
    size_t length = strlen(text);
    memcpy(o->u.text, text, length < most ? length : most);
}

void sl_order_answer(struct sl_node *n, struct sl_node_pending *r)
{
    if (r->ticket == 0) sl_node_pending_free(n, r);
    else sl_list_append(&n->orders, &r->out.place);
}

/* --- Orders ----------------------------------------------------------------------------- */

static void free_out(struct sl_node *n, struct sl_out *o)
{
    if (o == NULL) return;
    if (o->is_request)
        sl_node_pending_free(n, sl_container_of(o, struct sl_node_pending, out));
    else sl_block_free(n, o, sizeof *o + o->bytes);
}

/* For the next of those it goes to. */
static void address(struct sl_node *n, struct sl_out *o, struct sl_node_order *out)
{
    struct sl_message *m = &o->u.message;
    out->to = o->to[o->to_done++];
    m->epoch = n->epoch;
    m->sent_ms = n->now_ms;
    m->wall_us = n->own_wall_us;
    if (o->to_count > 1) stamp(n, m, out->to);
    out->message = m;
}

static bool order_write(struct sl_node *n, struct sl_node_order *out)
{
    if (!n->write_due || n->is_writing || n->write_again_ms != 0) return false;
    n->write_due = false;
    n->is_writing = true;
    n->writing = n->next;
    if (n->writing.lease_longest_ms < n->longest_sure_ms)
        n->longest_sure_ms = n->writing.lease_longest_ms;
    *out = (struct sl_node_order){.type = SL_NODE_ORDER_WRITE, .durable = &n->writing};
    return true;
}

bool sl_node_next(struct sl_node *n, struct sl_node_order *out)
{
    free_out(n, n->fetched);
    n->fetched = NULL;
    if (order_write(n, out)) return true;
    if (n->links_due) {
        n->links_due = false;
        *out = (struct sl_node_order){.type = SL_NODE_ORDER_LINKS};
        return true;
    }
    if (sl_list_empty(&n->orders)) return false;
    struct sl_out *o = sl_container_of(n->orders.next, struct sl_out, place);
    *out = (struct sl_node_order){.type = o->type};
    if (o->type == SL_NODE_ORDER_SEND) {
        address(n, o, out);
        if (o->to_done < o->to_count) return true;
    } else if (o->type == SL_NODE_ORDER_EVENT) out->event = &o->u.event;
    else if (o->type == SL_NODE_ORDER_LOG) out->text = o->u.text;
    else {
        struct sl_node_pending *r = sl_container_of(o, struct sl_node_pending, out);
        out->ticket = r->ticket;
        out->answer = &r->answer;
    }
    sl_list_remove(&o->place);
    n->fetched = o;
    return true;
}

/* --- The disk --------------------------------------------------------------------------- */

void sl_want_write(struct sl_node *n)
{
    n->write_due = true;
}

static sl_fence limit_above(sl_fence fence, struct sl_now now)
{
    if (now.wall_us <= SL_WALL_US_MAX && now.wall_us > fence) fence = now.wall_us;
    return fence < SL_FENCE_MAX - SL_FENCE_BLOCK ? fence + SL_FENCE_BLOCK
                                                 : SL_FENCE_MAX;
}

static void raise_limit(struct sl_node *n, struct sl_now now, sl_fence fence)
{
    if (fence + SL_FENCE_BLOCK / 2 <= n->next.fence_limit ||
        n->next.fence_limit == SL_FENCE_MAX)
        return;
    n->next.fence_limit = limit_above(fence, now);
    sl_want_write(n);
}

bool sl_may_vote(struct sl_node *n, struct sl_now now, sl_fence fence, sl_ms lease_ms)
{
    if (fence > 0) raise_limit(n, now, fence);
    if (lease_ms > n->next.lease_longest_ms) {
        n->next.lease_longest_ms = within(sl_longest_round_up(lease_ms), lease_ms,
                                          n->limits.lease_max_ms);
        sl_want_write(n);
    }
#ifdef MUT_LONGEST
    return fence <= n->kept.fence_limit;
#endif
#ifdef MUT_LIMIT
    return lease_ms <= n->longest_sure_ms;
#endif
    return fence <= n->kept.fence_limit && lease_ms <= n->longest_sure_ms;
}

/* Every second: the clock is followed for a while after a vote, so that the next one need
 * not wait; and the longest lease falls when it has ended. */
static void look_ahead(struct sl_node *n, struct sl_now now)
{
    if (n->is_writing || n->write_due || n->kept.force.version == 0) return;
    if (n->voted_ms != 0 && now.ms - n->voted_ms <= SL_FOLLOW_MS &&
        now.wall_us <= SL_WALL_US_MAX && sl_knows_time(n))
        raise_limit(n, now, now.wall_us);
    if (now.ms < n->silent_ms) return; /* What went before is not known here. */
    sl_ms longest = sl_longest_lease(n, now);
    if (longest > n->limits.lease_max_ms) longest = n->limits.lease_max_ms;
    if (longest >= n->kept.lease_longest_ms) return;
    n->next.lease_longest_ms = longest;
    sl_want_write(n);
}

void sl_stash(struct sl_node *n, sl_node_id from, const struct sl_message *m)
{
    if (n->stash_count >= n->limits.waiting_messages_max) return;
    struct sl_stashed *s = sl_block_new(n, sl_stashed_bytes(m));
    if (s == NULL) return;
    char *at = (char *)(s + 1);
    s->from = from;
    s->m = *m;
    at = put(at, &s->m.key);
    at = put(at, &s->m.value);
    put(at, &s->m.note);
    struct sl_node_key *p = sl_node_key_find(n, m->key);
    if (p != NULL) p->stashed++;
    sl_list_append(&n->stash, &s->place);
    n->stash_count++;
}

/* Take the stash apart, in order: what is handled again may be put there again, and what is
 * about the same key behind it. */
static void empty_stash(struct sl_node *n, struct sl_now now, bool handle)
{
    uint32_t count = n->stash_count;
    for (struct sl_list *i = n->stash.next; i != &n->stash; i = i->next) {
        struct sl_bytes key = sl_container_of(i, struct sl_stashed, place)->m.key;
        struct sl_node_key *p = sl_node_key_find(n, key);
        if (p == NULL) continue;
        p->stashed = 0;
        sl_node_key_schedule(n, now, p);
    }
    while (count-- > 0) {
        struct sl_stashed *s = sl_container_of(n->stash.next, struct sl_stashed, place);
        sl_list_remove(&s->place);
        n->stash_count--;
        if (handle) dispatch(n, now, s->from, &s->m);
        sl_block_free(n, s, sl_stashed_bytes(&s->m));
    }
}

/* Whoever waits for that is linked. */
static void look_at_births(struct sl_node *n, struct sl_now now)
{
    for (size_t i = 0; i < SL_PEERS; i++)
        if (n->peers[i].id != 0 && n->peers[i].meets) link_up(n, now, &n->peers[i]);
}

/* It has forgotten its leases. After the silence it learns what the others know. */
static void be_silent_until(struct sl_node *n, struct sl_now now, sl_ms until_ms)
{
    n->silent_ms = until_ms;
    learn_until(n, until_ms, until_ms - now.ms);
    for (size_t i = 0; i < SL_PEERS; i++) n->peers[i].taught = false;
}

/* A list has come into force here. */
static void go_by_new_list(struct sl_node *n, struct sl_now now, bool was_member)
{
    const struct sl_membership *list = &n->kept.force;
    n->soon_ms = sl_ms_after(now.ms, sl_stretch(n->kept.lease_longest_ms));
#ifndef MUT_EMPTIED
    if (!was_member && now.ms + sl_stretch(n->kept.lease_longest_ms) > n->silent_ms)
        be_silent_until(n, now, n->soon_ms);
#else
    (void)was_member;
#endif
    if (n->asked_for.id != 0 && sl_membership_find(list, n->asked_for.id) >= 0)
        n->asked_for = (struct sl_member){0};
    n->links_due = true;
    sl_proposer_list_changed(n, now);
}

void sl_node_written(struct sl_node *n, struct sl_now now, bool ok)
{
    uint64_t version = n->kept.force.version;
    bool was_member = sl_is_member(n);
    now = sl_believe(n, now);
    n->is_writing = false;
    if (!ok) {
        n->write_due = true;
        n->write_again_ms = now.ms + SECOND_MS;
        empty_stash(n, now, false);
        return;
    }
    if (n->kept.birth == 0) n->links_due = true;
    n->kept = n->writing;
    n->longest_sure_ms = n->kept.lease_longest_ms;
    if (n->kept.force.version != version) go_by_new_list(n, now, was_member);
    look_at_births(n, now);
    empty_stash(n, now, true);
    sl_membership_change_tick(n, now);
}

/* --- In --------------------------------------------------------------------------------- */

static void dispatch(struct sl_node *n, struct sl_now now, sl_node_id from,
                     const struct sl_message *m)
{
    switch (m->type) {
        case SL_MESSAGE_BEAT:
        case SL_MESSAGE_NONE:
        case SL_MESSAGE_COUNT: break;
        case SL_MESSAGE_VOTE: sl_proposer_vote(n, now, from, m); break;
        case SL_MESSAGE_TAUGHT: sl_acceptor_taught(n, now, from, m); break;
        case SL_MESSAGE_ACQUIRE:
        case SL_MESSAGE_RENEW:
        case SL_MESSAGE_RELEASE:
        case SL_MESSAGE_CANCEL:
        case SL_MESSAGE_TEACH:
        case SL_MESSAGE_LOOK: sl_acceptor_receive(n, now, from, m); break;
        default: sl_membership_change_receive(n, now, from, m); break;
    }
}

/* Lists that began differently have nothing to do with each other, whatever they say. */
static bool is_foreign(struct sl_node *n, sl_node_id from, const struct sl_message *m)
{
    uint64_t ours = n->kept.force.cluster;
    static const char text[] = "node NN is of another cluster: they began with another "
                               "list of peers; nothing is done with it";
    char line[sizeof text];
    if (ours == 0 || m->cluster == 0 || m->cluster == ours) return false;
    if (n->said_foreign) return true;
    memcpy(line, text, sizeof text);
    line[5] = from < 10 ? ' ' : '1';
    line[6] = (char)('0' + from % 10);
    sl_log_line(n, line);
    n->said_foreign = true;
    return true;
}

void sl_node_receive(struct sl_node *n, struct sl_now now, sl_node_id from,
                     const struct sl_message *m)
{
    const struct sl_now own = now;
    if (from == n->id || from == 0 || from > SL_NODE_ID_MAX) return;
    now = sl_believe(n, own);
    if (is_foreign(n, from, m)) return;
    hear(n, now, from, m);
    now = sl_believe(n, own); /* The clock that it tells counts for it already. */
    dispatch(n, now, from, m);
}

static void beat(struct sl_node *n)
{
    sl_ms silent = n->silent_ms - n->now_ms;
    struct sl_message m = {.type = SL_MESSAGE_BEAT, .left_ms = silent > 0 ? silent : 0};
    struct sl_out *o = NULL;
    for (size_t i = 0; i < SL_PEERS; i++) {
        if (n->peers[i].id == 0 || !n->peers[i].linked) continue;
        if (o == NULL) o = order_message(n, &m);
        if (o != NULL) o->to[o->to_count++] = n->peers[i].id;
    }
}

void sl_node_tick(struct sl_node *n, struct sl_now now)
{
    now = sl_believe(n, now);
    if (n->write_again_ms != 0 && now.ms >= n->write_again_ms) n->write_again_ms = 0;
    if (now.ms >= n->beat_ms) {
        n->beat_ms = now.ms + n->limits.beat_ms;
        /* The others are told at once when the silence is over: then they teach. */
        if (now.ms < n->silent_ms && n->silent_ms < n->beat_ms)
            n->beat_ms = n->silent_ms;
        beat(n);
    }
    if (now.ms >= n->second_ms) {
        n->second_ms = now.ms + SECOND_MS;
        look_ahead(n, now);
    }
    for (size_t i = 0; i < SL_PEERS; i++)
        if (n->peers[i].id != 0 && n->peers[i].teach_ms <= now.ms)
            sl_proposer_teach(n, now, &n->peers[i]);
    sl_index_step(&n->places);
    sl_acceptor_tick(n, now);
    sl_proposer_tick(n, now);
    sl_membership_change_tick(n, now);
}

static sl_ms sooner(sl_ms a, sl_ms b)
{
    return a < b ? a : b;
}

sl_ms sl_node_due(const struct sl_node *n)
{
    sl_ms due = sooner(n->beat_ms, n->second_ms);
    if (n->place_ends.count > 0) due = sooner(due, n->place_ends.items[0].at);
    if (n->request_ends.count > 0) due = sooner(due, n->request_ends.items[0].at);
    if (n->write_again_ms != 0) due = sooner(due, n->write_again_ms);
    for (size_t i = 0; i < SL_PEERS; i++)
        if (n->peers[i].id != 0) due = sooner(due, n->peers[i].teach_ms);
    return sooner(due, sl_membership_change_due(n));
}

/* --- Life ------------------------------------------------------------------------------- */

static void place_placed(void *owner, uint32_t place)
{
    ((struct sl_node_key *)owner)->due = place;
}

static void request_placed(void *owner, uint32_t place)
{
    ((struct sl_node_pending *)owner)->due = place;
}

/* All who begin with one list are one cluster (FNV-1a of it). */
static uint64_t name_cluster(const struct sl_membership *list)
{
    uint64_t h = 0xcbf29ce484222325u;
    for (uint32_t i = 0; i < list->count; i++) {
        h = (h ^ list->at[i].id) * 0x100000001b3u;
        for (const char *c = list->at[i].address; *c != '\0'; c++)
            h = (h ^ (unsigned char)*c) * 0x100000001b3u;
    }
    return h | 1;
}

/* The first start of all, or of this folder. */
static void be_born(struct sl_node *n, const struct sl_node_start *start)
{
    n->next.birth = start->birth;
    n->next.id = start->id;
    if (start->bootstrap.count > 0) {
        n->next.force = start->bootstrap;
        n->next.force.cluster = name_cluster(&start->bootstrap);
    }
    sl_want_write(n);
}

/* What is known of an earlier life, as one server, is to be known after the next start. */
static void be_silent(struct sl_node *n, const struct sl_node_start *start,
                      struct sl_now now)
{
    sl_ms most = start->silence_ms;
    if (start->floor > n->next.fence_limit || most > n->next.lease_longest_ms) {
        if (start->floor > n->next.fence_limit) n->next.fence_limit = start->floor;
        if (most > n->next.lease_longest_ms) n->next.lease_longest_ms = most;
        sl_want_write(n);
    }
    if (n->kept.force.version > 0 && n->kept.lease_longest_ms > most)
        most = n->kept.lease_longest_ms;
    n->soon_ms = most > 0 ? sl_ms_after(now.ms, sl_stretch(most)) : now.ms;
    be_silent_until(n, now, n->soon_ms);
}

struct sl_node *sl_node_new(const struct sl_node_start *start, struct sl_now now)
{
    struct sl_node *n = calloc(1, sizeof *n);
    if (n == NULL) return NULL;
    n->id = start->id;
    n->epoch = start->epoch;
    n->chance = start->seed | 1;
    n->limits = start->limits;
    n->kept = n->next = start->kept;
    n->longest_sure_ms = n->kept.lease_longest_ms;
    n->now_ms = n->beat_ms = n->second_ms = now.ms;
    n->own_wall_us = now.wall_us;
    n->finish_ms = SL_NEVER;
#ifndef MUT_ROUND
    /* A vote for an earlier life of this node must not count in this one. */
    n->last_round = sl_hash_u64(start->epoch, 0) >> 2;
#endif
    n->floor = n->kept.fence_limit;
#ifdef MUT_M15
    n->floor = 0;
#endif
    if (start->floor > n->floor) n->floor = start->floor;
    n->fence_last = n->floor;
    sl_list_init(&n->stash);
    sl_list_init(&n->requests);
    sl_list_init(&n->orders);
    sl_index_init(&n->places, &sl_places_kind, start->hash_key);
    sl_index_init(&n->by_ticket, &sl_tickets_kind, start->hash_key);
    sl_index_init(&n->by_round, &sl_rounds_kind, start->hash_key);
    sl_heap_init(&n->place_ends, place_placed);
    sl_heap_init(&n->request_ends, request_placed);
    be_silent(n, start, now);
    if (n->kept.birth == 0) be_born(n, start);
    else n->links_due = true;
    return n;
}

/* The node goes with it: nothing is counted any more. */
static void free_place(void *item)
{
    struct sl_node_key *p = item;
    free(p->lease.value);
    free(p->lease.note);
    struct sl_node_lease *others[] = {p->beside, p->lesson};
    for (size_t i = 0; i < 2; i++) {
        if (others[i] == NULL) continue;
        free(others[i]->value);
        free(others[i]->note);
        free(others[i]);
    }
    free(p);
}

void sl_node_free(struct sl_node *n)
{
    if (n == NULL) return;
    free_out(n, n->fetched);
    while (!sl_list_empty(&n->orders)) {
        struct sl_out *o = sl_container_of(n->orders.next, struct sl_out, place);
        sl_list_remove(&o->place);
        free_out(n, o);
    }
    while (!sl_list_empty(&n->requests)) {
        struct sl_node_pending *r = sl_container_of(n->requests.next,
                                                    struct sl_node_pending, all);
        sl_list_remove(&r->all);
        sl_node_pending_free(n, r);
    }
    empty_stash(n, (struct sl_now){0}, false);
    sl_index_empty(&n->places, free_place);
    sl_index_free(&n->places);
    sl_index_free(&n->by_ticket);
    sl_index_free(&n->by_round);
    sl_heap_free(&n->place_ends);
    sl_heap_free(&n->request_ends);
    free(n);
}
