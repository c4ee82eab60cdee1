/* seeker.c - what clients want: rounds of votes, waiting and trying again. */
#include <string.h>

#include "majority/node_internal.h"

#define TRIES_MAX 6   /* Of one whose fences are too low, without a pause. */
#define ROUNDS_MAX 24 /* Of one request that does not wait, in all. */
#define PATIENCE 3 /* Times the time for answers: then a node that hangs is given up. */
#define RETRY_MS 250     /* Who waits asks again after that, and as much by chance, */
#define SPLIT_MS_MAX 256 /* after split votes at most so much later: */
#define SPLITS_MAX 8     /* the pause doubles so often. */
#define STRANGER_MS 20   /* Until the news of another list have come. */
#define DISK_MS 2        /* Until something is written, maybe; */
#define DISK_MS_MAX 2000 /* who does not wait is refused after that. */

static void attempt(struct sl_node *n, struct sl_now now, struct sl_node_pending *r);
static void start_round(struct sl_node *n, struct sl_now now,
                        struct sl_node_pending *r);
static sl_fence next_fence(const struct sl_node *n, struct sl_now now);
static void evaluate(struct sl_node *n, struct sl_now now, struct sl_node_pending *r);
static void cancel(struct sl_node *n, struct sl_now now,
                   const struct sl_node_pending *r);
static void give_up(struct sl_node *n, struct sl_now now, struct sl_node_pending *r);

/* --- Requests ---------------------------------------------------------------------- */

static void schedule(struct sl_node *n, struct sl_node_pending *r)
{
    sl_ms due = r->in_round ? r->votes_end_ms : r->try_ms;
    if (r->in_round && r->recheck) due = r->sent_ms;
    if (r->waits && !r->last && r->wait_end_ms < due) due = r->wait_end_ms;
    if (r->due != SL_HEAP_NONE && due == SL_NEVER)
        sl_heap_remove(&n->request_ends, r->due);
    else if (r->due != SL_HEAP_NONE) sl_heap_move(&n->request_ends, r->due, due);
    else if (due != SL_NEVER) sl_heap_put(&n->request_ends, due, r);
}

static void forget_votes(struct sl_node *n, struct sl_node_pending *r)
{
    for (size_t i = 0; i < SL_NODES_MAX; i++) {
        sl_node_text_drop(n, r->votes[i].value);
        sl_node_text_drop(n, r->votes[i].note);
        r->votes[i] = (struct sl_vote){.verdict = SL_VERDICT_NONE};
    }
    r->counted = 0;
}

void sl_node_pending_free(struct sl_node *n, struct sl_node_pending *r)
{
    forget_votes(n, r);
    sl_node_text_drop(n, r->value);
    sl_node_text_drop(n, r->note);
    sl_block_free(n, r, sizeof *r);
}

static void end_round(struct sl_node *n, struct sl_node_pending *r)
{
    if (!r->in_round) return;
    sl_index_remove(&n->by_round, r, sl_hash_u64(r->round, n->by_round.seed));
    r->in_round = r->recheck = false;
}

static struct sl_node_pending *head_of(const struct sl_node_key *p)
{
    if (sl_list_empty(&p->waiters)) return NULL;
    return sl_container_of(p->waiters.next, struct sl_node_pending, in_place);
}

/* Another is first in line now. */
static void hand_on(struct sl_node *n, struct sl_now now, struct sl_node_key *p)
{
    struct sl_node_pending *r = head_of(p);
    if (!p->lease.live) sl_proposer_wake(n, now, p);
    else if (r != NULL && !r->in_round && r->try_ms == SL_NEVER) {
        /* It will be woken; but that news may be lost. */
        r->try_ms = now.ms + RETRY_MS + (sl_ms)sl_chance(n, RETRY_MS);
        schedule(n, r);
    }
}

/* Out of the line; the next one may try. */
static void leave_place(struct sl_node *n, struct sl_now now, struct sl_node_pending *r)
{
    struct sl_node_key *p = r->place;
    if (p == NULL) return;
    bool first = r->waits && head_of(p) == r;
    if (r->waits && r->type == SL_NODE_ACQUIRE && !sl_list_empty(&r->in_place))
        p->waiter_count--;
    sl_list_remove(&r->in_place);
    r->place = NULL;
    p->requests--;
    if (p->requests == 0 && !p->lease.live && !p->reserved.live) p->idle_ms = now.ms;
    if (first) hand_on(n, now, p);
    sl_node_key_schedule(n, now, p);
}

/* Neither waits nor asks any more. */
static void retire(struct sl_node *n, struct sl_now now, struct sl_node_pending *r)
{
#ifndef MUT_DESERT
    if (r->stands) give_up(n, now, r);
#endif
    end_round(n, r);
    if (r->due != SL_HEAP_NONE) sl_heap_remove(&n->request_ends, r->due);
    if (r->ticket != 0)
        sl_index_remove(&n->by_ticket, r, sl_hash_u64(r->ticket, n->by_ticket.seed));
    sl_list_remove(&r->all);
    n->request_count--;
    leave_place(n, now, r);
}

void sl_finish(struct sl_node *n, struct sl_now now, struct sl_node_pending *r,
               int status)
{
    r->answer.status = status;
    r->answer.members = n->kept.force.count;
    r->answer.needed = sl_membership_majority(&n->kept.force);
    retire(n, now, r);
    sl_order_answer(n, r);
}

static void finish_with(struct sl_node *n, struct sl_now now, struct sl_node_pending *r,
                        int64_t number)
{
    r->answer.number = number;
    sl_finish(n, now, r, SLUICE_OK);
}

/* --- A round ----------------------------------------------------------------------- */

static struct sl_message message_of(const struct sl_node *n,
                                    const struct sl_node_pending *r)
{
    struct sl_message m = {.round = r->round,
                           .owner = r->owner,
                           .fence = r->fence,
                           .lease_ms = r->lease_ms,
                           .priority = r->priority,
                           .stamp = r->stamp,
                           .value = sl_node_text_bytes(r->value),
                           .note = sl_node_text_bytes(r->note)};
    (void)n;
    if (r->place != NULL) m.key = sl_node_key_key(r->place);
    return m;
}

static enum sl_message_type message_for(const struct sl_node_pending *r)
{
    switch (r->type) {
        case SL_NODE_ACQUIRE: return SL_MESSAGE_ACQUIRE;
        case SL_NODE_EXTEND: return SL_MESSAGE_RENEW;
        case SL_NODE_RELEASE: return SL_MESSAGE_RELEASE;
        default: return SL_MESSAGE_LOOK;
    }
}

static uint32_t flags_for(const struct sl_node_pending *r, struct sl_now now)
{
    uint32_t flags = 0;
    if (r->type == SL_NODE_RELEASE) flags = SL_FLAG_FINAL;
    if (r->type == SL_NODE_EXTEND && r->new_value) flags = SL_FLAG_VALUE;
    if (r->type == SL_NODE_ACQUIRE && r->steal) {
        flags = SL_FLAG_STEAL;
        if (now.ms >= r->force_ms) flags |= SL_FLAG_FORCE;
    }
    return flags;
}

/* Ask all nodes. The request may be over when this returns: it votes itself. */
static void start_round(struct sl_node *n, struct sl_now now, struct sl_node_pending *r)
{
    const struct sl_membership *list = &n->kept.force;
    bool member = sl_is_member(n);
    end_round(n, r);
    forget_votes(n, r);
    if (!member || sl_index_reserve(&n->by_round) != SLUICE_OK) {
        sl_finish(n, now, r, member ? SLUICE_ENOMEM : SLUICE_ENOQUORUM);
        return;
    }
    r->round = ++n->last_round;
    sl_index_put(&n->by_round, r, sl_hash_u64(r->round, n->by_round.seed));
    r->in_round = true;
    r->disk_ms = 0;
    r->tries++;
    if (r->new_value) {
        sl_fence stamp = next_fence(n, now);
        if (stamp <= SL_FENCE_MAX) n->fence_last = stamp;
        r->stamp = n->fence_last;
    }
    r->sent_ms = now.ms;
    r->end_ms = sl_ms_after(now.ms, sl_shrink(r->lease_ms));
    /* Clocks are rounded down: it may have been one less. */
    r->waited_ms = now.ms - r->since_ms - SL_GRAIN_MS;
#ifdef MUT_GRAIN
    r->waited_ms += SL_GRAIN_MS;
#endif
    if (r->waited_ms < 0) r->waited_ms = 0;
    r->votes_end_ms = sl_ms_after(now.ms, sl_answer_ms(n));
    r->hard_end_ms = r->votes_end_ms;
    /* Who waits begins another round; others wait until a node that hangs is given up. */
    if (!r->waits && r->hard_end_ms < now.ms + PATIENCE * n->limits.answer_ms)
        r->hard_end_ms = now.ms + PATIENCE * n->limits.answer_ms;
    for (uint32_t i = 0; i < list->count; i++)
        r->votes[i].gone = !sl_can_reach(n, list->at[i].id);
    schedule(n, r);
    struct sl_message m = message_of(n, r);
    m.type = message_for(r);
    m.flags = flags_for(r, now);
    sl_send_all(n, now, &m);
}

/* Ask those again who have not answered. What comes twice does no harm. */
static void ask_again(struct sl_node *n, struct sl_now now, struct sl_node_pending *r)
{
    const struct sl_membership *list = &n->kept.force;
    struct sl_message m = message_of(n, r);
    m.type = message_for(r);
    m.flags = flags_for(r, now);
    r->votes_end_ms = sl_ms_after(now.ms, sl_answer_ms(n));
    if (r->votes_end_ms > r->hard_end_ms) r->votes_end_ms = r->hard_end_ms;
    schedule(n, r);
    for (uint32_t i = 0; i < list->count; i++)
        if (r->votes[i].verdict == SL_VERDICT_NONE && list->at[i].id != n->id)
            sl_send(n, now, list->at[i].id, &m);
}

/* What the votes of a round come to. */
struct count {
    uint32_t members, majority;
    uint32_t yes, held, reserved, lacks, fence, clock, silent, full, big, stranger;
    uint32_t granted;    /* Of a lease that is known to be a grant: so many have it. */
    uint32_t rivals;     /* Are kept by competing attempts, or for one; */
    bool yields;         /* and one of those comes before this one. */
    uint32_t open;       /* May still come. */
    uint32_t missing;    /* Do not come. */
    sl_fence most_fence; /* Of the lease that most have, */
    uint32_t most;       /* so many. */
    sl_ms left_ms;       /* The longest that is left of those; */
    sl_ms yes_left_ms;   /* the shortest of those that said yes; */
    sl_ms silent_ms;     /* and of silences the longest. */
};

static uint32_t same_fence(const struct sl_node_pending *r, uint32_t members,
                           sl_fence fence)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < members; i++)
        if (r->votes[i].verdict != SL_VERDICT_NONE && r->votes[i].fence == fence) n++;
    return n;
}

static void count_held(const struct sl_node_pending *r, const struct sl_vote *v,
                       struct count *c)
{
    uint32_t same = v->fence == 0 ? 0 : same_fence(r, c->members, v->fence);
    if (same > c->most) {
        c->most = same;
        c->most_fence = v->fence;
    }
    if (v->left_ms > c->left_ms) c->left_ms = v->left_ms;
    if ((v->flags & SL_FLAG_AGREED) != 0) {
        if (same > c->granted) c->granted = same;
        return;
    }
    /* A thief's reservation does not name its owner; a request that it rejects comes after it. */
    bool known = v->verdict == SL_VERDICT_HELD || (v->flags & SL_FLAG_TURN) != 0;
    const struct sl_rank rival = {v->priority, v->owner},
                         mine = {r->priority, r->owner};
    c->rivals++;
    if (!known || sl_comes_before(rival, mine)) c->yields = true;
}

static struct count count_votes(const struct sl_node *n,
                                const struct sl_node_pending *r)
{
    struct count c = {.members = n->kept.force.count,
                      .majority = sl_membership_majority(&n->kept.force),
                      .yes_left_ms = SL_NEVER};
    for (uint32_t i = 0; i < c.members; i++) {
        const struct sl_vote *v = &r->votes[i];
        switch (v->verdict) {
            case SL_VERDICT_YES:
                c.yes++;
                if (v->left_ms < c.yes_left_ms) c.yes_left_ms = v->left_ms;
                break;
            case SL_VERDICT_HELD: c.held++; break;
            case SL_VERDICT_RESERVED:
                if ((v->flags & SL_FLAG_TURN) == 0) c.reserved++;
                break;
            case SL_VERDICT_LACKS: c.lacks++; break;
            case SL_VERDICT_FENCE: c.fence++; break;
            case SL_VERDICT_CLOCK: c.clock++; break;
            case SL_VERDICT_FULL: c.full++; break;
            case SL_VERDICT_BIG: c.big++; break;
            case SL_VERDICT_STRANGER: c.stranger++; break;
            case SL_VERDICT_SILENT:
                c.silent++;
                if (v->left_ms > c.silent_ms) c.silent_ms = v->left_ms;
                break;
            default: /* Nothing; or what is no answer to this. */
                if (v->gone || v->verdict != SL_VERDICT_NONE) c.missing++;
                else c.open++;
        }
        if (v->verdict == SL_VERDICT_HELD || v->verdict == SL_VERDICT_RESERVED)
            count_held(r, v, &c);
    }
#ifdef MUT_M6
    c.yes = r->counted;
#endif
    return c;
}

/* Too few nodes have said anything. */
static void finish_without(struct sl_node *n, struct sl_now now,
                           struct sl_node_pending *r, const struct count *c)
{
    uint32_t answered = c->members - c->open - c->missing - c->silent - c->stranger;
    r->answer.answered = answered;
    r->answer.have = c->yes;
    r->answer.lack = c->lacks + c->held;
    r->answer.left_ms = c->silent_ms;
    bool wait = c->silent > 0 && answered + c->silent >= c->majority;
    sl_finish(n, now, r, wait ? SLUICE_ERECOVERING : SLUICE_ENOQUORUM);
}

static void finish_for_size(struct sl_node *n, struct sl_now now,
                            struct sl_node_pending *r)
{
    static const char why[] = "other nodes have a smaller lease-max, or key-bytes-max";
    memcpy(r->answer.reason, why, sizeof why);
    sl_finish(n, now, r, SLUICE_ETOOBIG);
}

/* Begin another round a little later. */
static void try_again(struct sl_node *n, struct sl_node_pending *r, sl_ms at_ms)
{
    end_round(n, r);
    r->try_ms = at_ms;
    schedule(n, r);
}

/* The list is being changed: asking again will help. False: it was asked often enough. */
static bool ask_again_for_list(struct sl_node *n, struct sl_now now,
                               struct sl_node_pending *r, const struct count *c)
{
    if (c->stranger == 0 || r->tries > ROUNDS_MAX) return false;
    try_again(n, r, now.ms + STRANGER_MS);
    return true;
}

/* --- What is agreed is taught ---------------------------------------------------------- */

/* To those who said yes in short, to the others whole. */
static void teach(struct sl_node *n, struct sl_now now, const struct sl_node_pending *r,
                  struct sl_message *m)
{
    const struct sl_membership *list = &n->kept.force;
    uint32_t flags = m->flags;
    struct sl_bytes value = m->value, note = m->note;
    int self = -1;
    m->type = SL_MESSAGE_TEACH;
    m->round = 0;
    for (uint32_t i = 0; i <= list->count; i++) {
        /* Itself last: then its order of events is that of the others. */
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
        sl_send(n, now, list->at[at].id, m);
    }
}

/* Who took it is known here, for its pushes and for RELEASE without a fence; and until when
 * it may be taught. */
static void sign(const struct sl_node_pending *r)
{
    struct sl_node_key *p = r->place;
    struct sl_node_lease *l = &p->lease;
    if (r->type == SL_NODE_ACQUIRE) {
        p->taken_fence = r->fence;
        p->taken_session = r->session;
        p->taken_sure_ms = r->end_ms;
    }
    if (!l->live || l->fence != r->fence) return;
    if (r->type == SL_NODE_ACQUIRE) l->session = r->session;
    if (r->end_ms > l->sure_ms) l->sure_ms = r->end_ms;
}

/* A node that was away may lack what was agreed here in the meantime. */
static void teach_one(struct sl_node *n, struct sl_now now, struct sl_node_key *p,
                      sl_node_id to)
{
    const struct sl_node_lease *l = &p->lease;
    sl_ms left = l->sure_ms - now.ms, end = l->end_ms - SL_GRAIN_MS - now.ms;
    if (!l->live || !l->agreed || left <= 0) return;
    struct sl_message m = {.type = SL_MESSAGE_TEACH,
                           .key = sl_node_key_key(p),
                           .owner = l->owner,
                           .fence = l->fence,
                           .lease_ms = left > end ? left : end,
                           .left_ms = left,
                           .priority = l->priority,
                           .stamp = l->stamp,
                           .flags = SL_FLAG_WHOLE | SL_FLAG_COPY |
                                    (l->overlapping ? SL_FLAG_OVERLAPPING : 0),
                           .value = sl_node_text_bytes(l->value),
                           .note = sl_node_text_bytes(l->note)};
    sl_send(n, now, to, &m);
}

/* So much at a time, one beat after the other: other messages stand behind it. */
#define LESSONS 64
#define LESSON_BYTES 65536

static size_t lesson_bytes(const struct sl_node_key *p)
{
    return p->key_n + sl_node_text_bytes(p->lease.value).n +
           sl_node_text_bytes(p->lease.note).n;
}

void sl_proposer_teach(struct sl_node *n, struct sl_now now, struct sl_peer *peer)
{
    void *items[LESSONS];
    size_t bytes = 0;
    if (peer->silent_ms > now.ms) { /* It learns nothing yet. */
        peer->teach_ms = sl_ms_after(peer->silent_ms, n->limits.beat_ms);
        return;
    }
    do {
        size_t found = sl_index_scan(&n->places, &peer->lesson, items, 1);
        for (size_t i = 0; i < found; i++) {
            teach_one(n, now, items[i], peer->id);
            bytes += lesson_bytes(items[i]) + LESSON_BYTES / LESSONS;
        }
    } while (peer->lesson != 0 && bytes < LESSON_BYTES);
    if (peer->lesson != 0) {
        peer->teach_ms = now.ms + n->limits.beat_ms;
        return;
    }
    struct sl_message m = {.type = SL_MESSAGE_TAUGHT};
    peer->teach_ms = SL_NEVER;
    sl_send(n, now, peer->id, &m);
}

/* --- ACQUIRE ----------------------------------------------------------------------- */

/* Microseconds, of which the last four bits are the node's number: no two attempts have the
 * same fence, whoever makes them. */
#define SLOTS 16u
_Static_assert(SL_NODE_ID_MAX < SLOTS, "a slot for each node");

static sl_fence fence_above(const struct sl_node *n, sl_fence floor)
{
#ifdef MUT_SLOT
    return floor + 1;
#endif
    sl_fence fence = floor / SLOTS * SLOTS + n->id;
    return fence > floor ? fence : fence + SLOTS;
}

static sl_fence next_fence(const struct sl_node *n, struct sl_now now)
{
    sl_fence floor = n->fence_last > n->floor ? n->fence_last : n->floor;
    if (now.wall_us <= SL_WALL_US_MAX && now.wall_us > floor) floor = now.wall_us;
    return fence_above(n, floor);
}

/* Requests that yield raise the fences that voters have seen. The first request must get above
 * them, so from the third round on it adds four times as much in each round. */
static sl_fence fence_of_attempt(const struct sl_node *n, struct sl_now now,
                                 const struct sl_node_pending *r)
{
    sl_fence fence = next_fence(n, now);
#ifndef MUT_NOLEAP
    if (r->stands && r->splits > 1)
        fence += SLOTS << 2 * (r->splits < SPLITS_MAX ? r->splits : SPLITS_MAX);
#endif
    return fence;
}

static void finish_for_fences(struct sl_node *n, struct sl_now now,
                              struct sl_node_pending *r, const char *why)
{
    size_t length = strlen(why), most = sizeof r->answer.reason - 1;
    memcpy(r->answer.reason, why, length < most ? length : most);
    cancel(n, now, r);
    sl_finish(n, now, r, SLUICE_EFENCES);
}

static void finish_for_disk(struct sl_node *n, struct sl_now now,
                            struct sl_node_pending *r)
{
    static const char why[] = "the data folder of this node cannot be written";
    memcpy(r->answer.reason, why, sizeof why);
    cancel(n, now, r);
    sl_finish(n, now, r, SLUICE_EIO);
}

static uint32_t reachable_members(const struct sl_node *n)
{
    uint32_t reach = 0;
    for (uint32_t i = 0; i < n->kept.force.count; i++)
        if (sl_can_reach(n, n->kept.force.at[i].id)) reach++;
    return reach;
}

static bool is_time_over(const struct sl_node_pending *r, struct sl_now now)
{
    return !r->waits || now.ms >= r->wait_end_ms;
}

/* No fence is used up where nothing can come of it, nor before it is known what time it
 * is. False: it has been told so, or tries again. */
static bool can_agree(struct sl_node *n, struct sl_now now, struct sl_node_pending *r)
{
    uint32_t reach = reachable_members(n);
    bool few = reach < sl_membership_majority(&n->kept.force);
    if (!few && sl_knows_time(n)) return true;
    bool over = is_time_over(r, now);
#ifdef MUT_FEWFOREVER
    over = !r->waits;
#endif
    if (!over || !few) {
        if (few) r->outcome = SL_OUT_NOQUORUM;
        try_again(n, r, now.ms + (few ? RETRY_MS / 2 : DISK_MS));
        return false;
    }
    r->answer.answered = reach;
    sl_finish(n, now, r, SLUICE_ENOQUORUM);
    return false;
}

/* A fence is taken only below the limit on the disk: after a restart, which begins above it,
 * none is taken again. */
static void attempt(struct sl_node *n, struct sl_now now, struct sl_node_pending *r)
{
    sl_fence fence = fence_of_attempt(n, now, r);
    if (!can_agree(n, now, r)) return;
    if (fence > sl_highest_fence(n, now)) {
        finish_for_fences(n, now, r,
                          "the fences of this node are days ahead of the time: its "
                          "clock was wrong; NODES REMOVE it, and ADD it again");
        return;
    }
    if (!sl_may_vote(n, now, fence, 0)) {
        if (r->disk_ms == 0) r->disk_ms = now.ms;
        bool hopeless = n->write_again_ms != 0 || now.ms - r->disk_ms > DISK_MS_MAX;
        if (hopeless) r->outcome = SL_OUT_DISK;
        if (is_time_over(r, now) && hopeless) finish_for_disk(n, now, r);
        else try_again(n, r, now.ms + (hopeless ? RETRY_MS : DISK_MS));
        return;
    }
    r->fence = n->fence_last = fence;
    r->stands = true;
    n->attempts++;
    start_round(n, now, r);
}

/* An attempt that came to nothing. Its votes must not keep others out. */
static void give_up(struct sl_node *n, struct sl_now now, struct sl_node_pending *r)
{
    struct sl_message m = message_of(n, r);
    r->stands = false;
    m.type = SL_MESSAGE_RELEASE;
    m.round = 0;
    sl_send_all(n, now, &m);
}

/* A thief goes away: who was asked may stay. */
static void cancel(struct sl_node *n, struct sl_now now,
                   const struct sl_node_pending *r)
{
    struct sl_message m = message_of(n, r);
    if (!r->steal) return;
    m.type = SL_MESSAGE_CANCEL;
    m.round = 0;
    sl_send_all(n, now, &m);
}

static void granted(struct sl_node *n, struct sl_now now, struct sl_node_pending *r)
{
    struct sl_message m = message_of(n, r);
    bool overlapping = false;
    for (uint32_t i = 0; i < n->kept.force.count; i++)
        if (r->votes[i].verdict == SL_VERDICT_YES &&
            (r->votes[i].flags & SL_FLAG_OVERLAPPING) != 0)
            overlapping = true;
#ifdef MUT_M1
    r->waited_ms = now.ms - r->since_ms;
#endif
    r->answer.grant = (struct sl_grant){.fence = r->fence,
                                        .held = 1,
                                        .lease_ms = r->lease_ms,
                                        .waited_ms = r->waited_ms,
                                        .overlapping = overlapping};
    r->stands = false;
    n->grants++;
    m.waited_ms = r->waited_ms;
    m.left_ms = r->end_ms - now.ms;
    m.flags = overlapping ? SL_FLAG_OVERLAPPING : 0;
    sign(r);
    teach(n, now, r, &m);
    sign(r); /* It may have been taught itself. */
    sl_finish(n, now, r, SLUICE_OK);
}

/* Competing attempts are settled within a few rounds if their proposers are alive. Until then we
 * do not know whether the key is taken. */
static bool is_contest_open(const struct sl_node *n, struct sl_now now,
                            const struct sl_node_pending *r)
{
    sl_ms answer = sl_answer_ms(n);
    if (answer < n->limits.answer_ms) answer = n->limits.answer_ms;
#ifdef MUT_HASTY
    answer = 0;
#endif
    return r->contest_ms == SL_NEVER || now.ms - r->contest_ms < PATIENCE * answer;
}

/* Why a round failed. */
static enum sl_outcome outcome_of(const struct sl_node *n, struct sl_now now,
                                  const struct sl_node_pending *r,
                                  const struct count *c)
{
    uint32_t mute = c->missing + c->silent + c->stranger;
    if (c->members - mute < c->majority) return SL_OUT_NOQUORUM;
    if (c->most >= c->majority) return SL_OUT_TAKEN;
    if (c->reserved > c->members - c->majority) return SL_OUT_TAKEN;
    mute += c->open;
    if (c->granted > 0 && c->granted + mute >= c->majority) return SL_OUT_TAKEN;
    if (c->most > 0 && c->most + mute >= c->majority && !is_contest_open(n, now, r))
        return SL_OUT_TAKEN;
    return SL_OUT_UNCLEAR;
}

/* The thief hears whom it waits for, once. */
static void tell_thief(struct sl_node *n, struct sl_node_pending *r,
                       const struct count *c)
{
    if (!r->steal || r->told_whom || r->session == 0 || c->most == 0) return;
    for (uint32_t i = 0; i < c->members; i++) {
        const struct sl_vote *v = &r->votes[i];
        if (v->verdict != SL_VERDICT_HELD || v->fence != c->most_fence) continue;
        struct sl_node_event e = {.type = SL_NODE_EVENT_WAITS,
                                  .key = sl_node_key_key(r->place),
                                  .fence = v->fence,
                                  .session = r->session,
                                  .left_ms = v->left_ms,
                                  .asked_ms = -1,
                                  .note = sl_node_text_bytes(v->note)};
        sl_tell(n, &e);
        r->told_whom = true;
        return;
    }
}

static sl_ms sooner(sl_ms a, sl_ms b)
{
    return a < b ? a : b;
}

/* When to try again after a split vote. The first request in the order asks again at once, since
 * the others have seen it and withdraw. After that each pause is longer than the one before.
 * Requests that withdrew also wait for the round of the first one. */
static sl_ms after_split(struct sl_node *n, struct sl_now now,
                         struct sl_node_pending *r, const struct count *c)
{
    sl_ms base = c->yields ? sl_rtt_ms(n) + 1 : 1;
    sl_ms pause = base << (r->splits < SPLITS_MAX ? r->splits : SPLITS_MAX);
    if (pause > SPLIT_MS_MAX) pause = SPLIT_MS_MAX;
    n->splits++;
    if (r->splits++ == 0 && !c->yields) return now.ms;
    return now.ms + pause + (sl_ms)sl_chance(n, (uint64_t)pause / 2 + 1);
}

static sl_ms when_to_retry(struct sl_node *n, struct sl_now now,
                           struct sl_node_pending *r, const struct count *c)
{
    sl_ms retry = RETRY_MS + (sl_ms)sl_chance(n, RETRY_MS);
    if (r->outcome == SL_OUT_UNCLEAR) {
        if (c->fence > 0 && c->held + c->reserved == 0 && r->tries <= TRIES_MAX) {
            r->splits++;
            return now.ms; /* Its fence was too low; now it knows. */
        }
        return after_split(n, now, r, c);
    }
    if (r->outcome == SL_OUT_TAKEN) {
        r->splits = 0;
        r->contest_ms = SL_NEVER;
        /* A thief has to ask again before its reservation ends. */
        if (r->steal) retry = n->limits.answer_ms / 2;
        if (c->left_ms > 0) retry = sooner(retry, c->left_ms + 2);
        retry += (sl_ms)sl_chance(n, 4);
    } else retry = sooner(retry, n->limits.answer_ms);
    sl_ms at = now.ms + retry;
    if (r->steal && r->force_ms > now.ms) at = sooner(at, r->force_ms);
    return at;
}

static void give_no_more(struct sl_node *n, struct sl_now now,
                         struct sl_node_pending *r, const struct count *c)
{
    bool taken = c->reserved > 0 || r->outcome == SL_OUT_TAKEN;
#ifdef MUT_FALSENIL
    if (c->held > 0) taken = true;
#endif
    if (r->outcome == SL_OUT_DISK) {
        finish_for_disk(n, now, r);
        return;
    }
    if (!taken && r->ran_away && r->outcome == SL_OUT_UNCLEAR) {
        finish_for_fences(n, now, r,
                          "the fences of another node are days ahead: its clock was "
                          "wrong; NODES REMOVE it, and ADD it again");
        return;
    }
    cancel(n, now, r);
    if (!taken && r->outcome == SL_OUT_UNCLEAR) {
        static const char why[] = "the votes were split between several who asked at "
                                  "once; ask again, or WAIT";
        memcpy(r->answer.reason, why, sizeof why);
        sl_finish(n, now, r, SLUICE_ENOQUORUM);
    } else if (r->outcome == SL_OUT_NOQUORUM) finish_without(n, now, r, c);
    else sl_finish(n, now, r, SLUICE_EFULL);
}

/* The first of the competing requests keeps its votes: its next attempt replaces this one, so no
 * other request can take them. All others yield. */
static bool keeps_votes(const struct sl_node_pending *r, const struct count *c)
{
#ifdef MUT_NOYIELD
    return r->outcome == SL_OUT_UNCLEAR && c->stranger == 0;
#endif
#ifdef MUT_NOKEEP
    return false;
#endif
    return r->outcome == SL_OUT_UNCLEAR && !c->yields && c->stranger == 0;
}

/* Whether the key may be free: then the request must not be told that it is taken. */
static bool is_undecided(const struct sl_node *n, struct sl_now now,
                         const struct sl_node_pending *r)
{
    if (r->outcome == SL_OUT_NONE) return !r->place->lease.live;
    if (r->outcome != SL_OUT_UNCLEAR) return false;
    return r->contest_ms == SL_NEVER ? r->tries < TRIES_MAX
                                     : is_contest_open(n, now, r);
}

/* All competing requests have gone and no lease is known, so the key may be free. The request asks
 * again, however long the contest has lasted. */
static bool has_outlasted_rivals(const struct sl_node_pending *r, const struct count *c)
{
    return r->outcome == SL_OUT_UNCLEAR && r->contest_ms != SL_NEVER &&
           c->rivals == 0 && c->granted == 0 && r->tries < ROUNDS_MAX;
}

static void failed(struct sl_node *n, struct sl_now now, struct sl_node_pending *r,
                   const struct count *c)
{
    if (c->rivals > 0 && r->contest_ms == SL_NEVER) r->contest_ms = now.ms;
    r->outcome = outcome_of(n, now, r, c);
    if (!keeps_votes(r, c)) give_up(n, now, r);
    if (r->outcome == SL_OUT_TAKEN) tell_thief(n, r, c);
    if (c->clock > c->members - c->majority) {
        finish_for_fences(
            n, now, r,
            "the clock of this node is days ahead of those of others: set "
            "it, or ask another node");
    } else if (c->big > c->members - c->majority) finish_for_size(n, now, r);
    else if (c->full > c->members - c->majority) sl_finish(n, now, r, SLUICE_EKEYS);
    else if (c->stranger > 0 && ask_again_for_list(n, now, r, c)) return;
    else if (is_time_over(r, now) && !is_undecided(n, now, r) &&
             !has_outlasted_rivals(r, c))
        give_no_more(n, now, r, c);
    else try_again(n, r, when_to_retry(n, now, r, c));
}

/* Whether the contest is over and the missing votes decide whether a lease may be in force. */
static bool missing_votes_decide(const struct sl_node *n, struct sl_now now,
                                 const struct sl_node_pending *r, const struct count *c)
{
    return c->open > 0 && c->rivals > 0 && !is_contest_open(n, now, r);
}

static void evaluate_acquire(struct sl_node *n, struct sl_now now,
                             struct sl_node_pending *r, const struct count *c)
{
#ifdef MUT_M1
    r->end_ms = now.ms + 1;
#endif
    if (c->yes >= c->majority && now.ms < r->end_ms) granted(n, now, r);
    else if (now.ms >= r->end_ms ||
             (c->yes + c->open < c->majority && !missing_votes_decide(n, now, r, c)))
        failed(n, now, r, c);
}

/* --- EXTEND ------------------------------------------------------------------------ */

/* With its newest value. */
static const struct sl_vote *vote_with_lease(const struct sl_node *n,
                                             const struct sl_node_pending *r)
{
    const struct sl_vote *best = NULL;
    for (uint32_t i = 0; i < n->kept.force.count; i++) {
        const struct sl_vote *v = &r->votes[i];
        if (v->verdict == SL_VERDICT_YES && (best == NULL || v->stamp > best->stamp))
            best = v;
    }
    return best;
}

static void extended(struct sl_node *n, struct sl_now now, struct sl_node_pending *r,
                     const struct count *c)
{
    struct sl_message m = message_of(n, r);
    const struct sl_vote *v = vote_with_lease(n, r);
    if (v != NULL) {
        m.owner = v->owner;
        m.priority = v->priority;
        m.note = sl_node_text_bytes(v->note);
        m.value = sl_node_text_bytes(v->value);
        m.stamp = v->stamp;
        m.left_ms = r->end_ms - now.ms;
        m.flags = SL_FLAG_EXTENDED | (v->flags & SL_FLAG_OVERLAPPING);
        teach(n, now, r, &m);
        sign(r);
    }
    finish_with(n, now, r, c->yes_left_ms);
}

static void evaluate_extend(struct sl_node *n, struct sl_now now,
                            struct sl_node_pending *r, struct count *c)
{
#ifdef MUT_TAUGHT
    c->yes += c->lacks;
    c->lacks = 0;
    if (c->yes_left_ms == SL_NEVER) c->yes_left_ms = r->lease_ms;
#endif
    if (c->yes >= c->majority && now.ms < r->end_ms) {
        extended(n, now, r, c);
        return;
    }
    if (c->yes + c->open >= c->majority && now.ms < r->end_ms) return;
#ifdef MUT_M8
    give_up(n, now, r);
#endif
    uint32_t lost = c->lacks + c->held;
    /* Of a lease that was agreed under the list before, fewer than a majority may know: but
     * there is one of them in every majority. */
    if (lost >= c->majority) sl_finish(n, now, r, SLUICE_ELOST);
    else if (c->reserved > 0 && c->yes + c->reserved >= c->majority)
        sl_finish(n, now, r, SLUICE_EASKED);
    else if (c->fence > 0 && r->tries <= TRIES_MAX)
        try_again(n, r, now.ms); /* Above the value that came first. */
    else if (c->open > 0 && now.ms < r->end_ms) return; /* It may tell why. */
    else if (!ask_again_for_list(n, now, r, c)) finish_without(n, now, r, c);
}

/* --- RELEASE, CHECK, READ, VOTES -------------------------------------------------------- */

/* Any majority has somebody who had the lease, if there was one. */
static void evaluate_release(struct sl_node *n, struct sl_now now,
                             struct sl_node_pending *r, const struct count *c)
{
    uint32_t answered = c->yes + c->lacks;
    if (answered >= c->majority) finish_with(n, now, r, c->yes > 0 ? 1 : 0);
    else if (answered + c->open < c->majority && !ask_again_for_list(n, now, r, c))
        finish_without(n, now, r, c);
}

static void evaluate_check(struct sl_node *n, struct sl_now now,
                           struct sl_node_pending *r, const struct count *c)
{
    uint32_t have = 0;
    for (uint32_t i = 0; i < c->members; i++)
        if (r->votes[i].verdict == SL_VERDICT_YES && r->votes[i].fence == r->fence)
            have++;
    uint32_t lack = c->yes - have;
    if (have >= c->majority) finish_with(n, now, r, 1);
    else if (lack >= c->majority) finish_with(n, now, r, 0);
    else if (c->open == 0 && !ask_again_for_list(n, now, r, c)) {
        struct count said = *c;
        said.yes = have;
        said.lacks = lack;
        finish_without(n, now, r, &said);
    }
}

static void copy_vote(const struct sl_node *n, struct sl_node_pending *r, uint32_t i,
                      struct sl_node_copy *out)
{
    const struct sl_vote *v = &r->votes[i];
    *out = (struct sl_node_copy){.node = n->kept.force.at[i].id,
                                 .verdict = v->verdict,
                                 .held = v->verdict == SL_VERDICT_YES && v->fence != 0,
                                 .agreed = (v->flags & SL_FLAG_AGREED) != 0,
                                 .reserved = (v->flags & SL_FLAG_RESERVED) != 0,
                                 .wanted = v->wanted,
                                 .owner = v->owner,
                                 .fence = v->fence,
                                 .priority = v->priority,
                                 .left_ms = v->left_ms,
                                 .value = sl_node_text_bytes(v->value),
                                 .note = sl_node_text_bytes(v->note)};
}

static void evaluate_votes(struct sl_node *n, struct sl_now now,
                           struct sl_node_pending *r, const struct count *c)
{
    if (c->open > 0) return;
    for (uint32_t i = 0; i < c->members; i++) copy_vote(n, r, i, &r->copies[i]);
    r->answer.copies = r->copies;
    r->answer.copy_count = c->members;
    r->answer.answered = c->yes;
    sl_finish(n, now, r, SLUICE_OK);
}

/* The lease that a majority has; or, when not all answer, one that it may have. */
static int find_held(const struct sl_node_pending *r, const struct count *c)
{
    int best = -1;
    uint32_t mute = c->members - c->yes;
    for (uint32_t i = 0; i < c->members; i++) {
        const struct sl_vote *v = &r->votes[i];
        if (v->verdict != SL_VERDICT_YES || v->fence == 0) continue;
        uint32_t same = same_fence(r, c->members, v->fence);
        bool may = (v->flags & SL_FLAG_AGREED) != 0 && same + mute >= c->majority;
        if (same < c->majority && !(c->open == 0 && may)) continue;
        /* Of copies of one lease the one with the newest value. */
        const struct sl_vote *b = best < 0 ? NULL : &r->votes[best];
        if (b == NULL || v->fence > b->fence ||
            (v->fence == b->fence && v->stamp > b->stamp))
            best = (int)i;
    }
    return best;
}

static void evaluate_read(struct sl_node *n, struct sl_now now,
                          struct sl_node_pending *r, const struct count *c)
{
    int held = find_held(r, c);
    if (held < 0 && c->open > 0) return;
    if (held < 0 && c->yes < c->majority) {
        if (!ask_again_for_list(n, now, r, c)) finish_without(n, now, r, c);
        return;
    }
    if (held >= 0 && c->yes < c->majority) {
        if (c->open > 0) return;
        finish_without(n, now, r, c);
        return;
    }
    if (held >= 0) {
        copy_vote(n, r, (uint32_t)held, &r->copies[0]);
        r->answer.copies = r->copies;
        r->answer.copy_count = 1;
    }
    sl_finish(n, now, r, SLUICE_OK);
}

static void evaluate(struct sl_node *n, struct sl_now now, struct sl_node_pending *r)
{
    struct count c = count_votes(n, r);
    switch (r->type) {
        case SL_NODE_ACQUIRE: evaluate_acquire(n, now, r, &c); break;
        case SL_NODE_EXTEND: evaluate_extend(n, now, r, &c); break;
        case SL_NODE_RELEASE: evaluate_release(n, now, r, &c); break;
        case SL_NODE_CHECK: evaluate_check(n, now, r, &c); break;
        case SL_NODE_READ: evaluate_read(n, now, r, &c); break;
        case SL_NODE_VOTES: evaluate_votes(n, now, r, &c); break;
        default: break;
    }
}

/* --- Votes come in --------------------------------------------------------------------- */

/* Fences that others have seen; but not of one whose clock was days ahead. */
static void hear_fence(struct sl_node *n, struct sl_now now, sl_fence ceiling)
{
    if (ceiling > n->fence_last && ceiling <= sl_highest_fence(n, now) &&
        ceiling < SL_FENCE_MAX)
        n->fence_last = ceiling;
}

void sl_proposer_vote(struct sl_node *n, struct sl_now now, sl_node_id from,
                      const struct sl_message *m)
{
    const struct sl_bytes key = {(const char *)&m->round, sizeof m->round};
    struct sl_node_pending *r = sl_index_find(&n->by_round, key,
                                              sl_hash_u64(m->round, n->by_round.seed));
    int at = sl_membership_find(&n->kept.force, from);
    if (r == NULL || at < 0) return;
    hear_fence(n, now, m->ceiling);
    if (m->verdict == SL_VERDICT_FENCE && sl_knows_time(n) &&
        !sl_is_believable(n, now, m->ceiling))
        r->ran_away = true;
    struct sl_vote *v = &r->votes[at];
    if (m->verdict == SL_VERDICT_YES) r->counted++;
#ifndef MUT_M6
    if (v->verdict != SL_VERDICT_NONE) return;
#endif
    if (!sl_node_text_set(n, &v->value, m->value) ||
        !sl_node_text_set(n, &v->note, m->note))
        return; /* As if it were lost: what is taught on must be whole. */
    v->verdict = m->verdict;
    v->flags = m->flags;
    v->owner = m->owner;
    v->fence = m->fence;
    v->priority = m->priority;
    v->wanted = m->wanted;
    v->left_ms = m->left_ms;
    v->stamp = m->stamp;
    evaluate(n, now, r);
}

void sl_proposer_lost(struct sl_node *n, struct sl_now now, sl_node_id id)
{
    int at = sl_membership_find(&n->kept.force, id);
    if (at < 0) return;
    for (struct sl_list *i = n->requests.next; i != &n->requests; i = i->next) {
        struct sl_node_pending *r = sl_container_of(i, struct sl_node_pending, all);
        if (!r->in_round || r->votes[at].verdict != SL_VERDICT_NONE) continue;
        r->votes[at].gone = r->recheck = true;
        schedule(n, r); /* For the next tick. */
    }
    sl_proposer_tick(n, now);
}

/* Votes of the old list do not count in the new one. */
void sl_proposer_list_changed(struct sl_node *n, struct sl_now now)
{
    for (struct sl_list *i = n->requests.next; i != &n->requests; i = i->next) {
        struct sl_node_pending *r = sl_container_of(i, struct sl_node_pending, all);
        if (r->stands) give_up(n, now, r);
        if (!r->in_round) continue;
        try_again(n, r, now.ms);
    }
}

/* --- Time ----------------------------------------------------------------------------- */

static bool is_first(const struct sl_node_pending *r)
{
    return !r->waits || r->type != SL_NODE_ACQUIRE || head_of(r->place) == r;
}

static void time_is_over(struct sl_node *n, struct sl_now now,
                         struct sl_node_pending *r)
{
    if (r->type == SL_NODE_AWAIT) {
        finish_with(n, now, r, 0);
        return;
    }
    if (r->in_round) { /* That it may come to its end. */
        r->last = true;
        schedule(n, r);
        return;
    }
#ifndef MUT_CUTSHORT
    if (is_first(r) && is_undecided(n, now, r) && r->try_ms != SL_NEVER) {
        r->last = true; /* It ends when that is clear. */
        schedule(n, r);
        return;
    }
#endif
    struct count c = count_votes(n, r);
    bool few = reachable_members(n) < c.majority;
    if (!is_first(r)) r->outcome = head_of(r->place)->outcome;
    /* The head may not have tried since it became the head. */
    if (few && !r->place->lease.live) r->outcome = SL_OUT_NOQUORUM;
    if (!is_first(r) && r->outcome == SL_OUT_UNCLEAR) r->outcome = SL_OUT_TAKEN;
#ifdef MUT_UNTRIED
    if (r->outcome == SL_OUT_NONE && is_first(r)) r->outcome = SL_OUT_NOQUORUM;
#endif
    if (r->outcome == SL_OUT_NONE) /* It has not tried. */
        r->outcome = is_first(r) && !r->place->lease.live ? SL_OUT_NOQUORUM
                                                          : SL_OUT_TAKEN;
    give_no_more(n, now, r, &c);
}

/* Settle a contest without the vote of a node that does not answer, as the competing requests do.
 * False: there is no contest. */
static bool settle_contest(struct sl_node *n, struct sl_now now,
                           struct sl_node_pending *r)
{
    struct count c = count_votes(n, r);
    if (r->type != SL_NODE_ACQUIRE || c.rivals == 0) return false;
    failed(n, now, r, &c);
    return true;
}

static void on_time(struct sl_node *n, struct sl_now now, struct sl_node_pending *r)
{
    if (r->waits && !r->last && now.ms >= r->wait_end_ms) time_is_over(n, now, r);
    else if (r->in_round && r->recheck) {
        r->recheck = false;
        schedule(n, r);
        evaluate(n, now, r);
    } else if (r->in_round && now.ms < r->hard_end_ms) {
        if (!settle_contest(n, now, r)) ask_again(n, now, r);
    } else if (r->in_round) {
        n->timeouts++;
        for (uint32_t i = 0; i < n->kept.force.count; i++)
            if (r->votes[i].verdict == SL_VERDICT_NONE) r->votes[i].gone = true;
        evaluate(n, now, r);
    } else if (!is_first(r)) {
        r->try_ms = SL_NEVER; /* Until it is. */
        schedule(n, r);
    } else if (r->type == SL_NODE_ACQUIRE) attempt(n, now, r);
    else start_round(n, now, r);
}

#define TIMES_A_TICK 500 /* The rest is due still. */

void sl_proposer_tick(struct sl_node *n, struct sl_now now)
{
    for (int i = 0; i < TIMES_A_TICK && n->request_ends.count > 0 &&
                    n->request_ends.items[0].at <= now.ms;
         i++)
        on_time(n, now, n->request_ends.items[0].owner);
}

/* The first in line tries soon: not at once, as those of other nodes do, too. */
static void wake_first(struct sl_node *n, struct sl_now now, struct sl_node_key *p)
{
    struct sl_node_pending *r = head_of(p);
    if (r == NULL || r->in_round) return;
    sl_ms at = now.ms + (sl_ms)sl_chance(n, 2);
    if (at >= r->try_ms) return;
    r->try_ms = at;
    schedule(n, r);
}

static bool is_seen(const struct sl_node_key *p, const struct sl_node_pending *r)
{
    bool held = p->lease.live && p->lease.agreed;
    return held != r->want_free;
}

void sl_proposer_wake(struct sl_node *n, struct sl_now now, struct sl_node_key *p)
{
    for (struct sl_list *i = p->watchers.next, *next; i != &p->watchers; i = next) {
        struct sl_node_pending *r = sl_container_of(i, struct sl_node_pending,
                                                    in_place);
        next = i->next;
        if (is_seen(p, r)) finish_with(n, now, r, 1);
    }
    if (!p->lease.live) wake_first(n, now, p);
}

/* --- A client asks --------------------------------------------------------------------- */

/* By priority, then by arrival. */
static void stand_in_line(struct sl_node_key *p, struct sl_node_pending *r)
{
    struct sl_list *at = p->waiters.prev;
    if (head_of(p) != NULL && head_of(p)->priority < r->priority) at = &p->waiters;
    while (at != &p->waiters &&
           sl_container_of(at, struct sl_node_pending, in_place)->priority <
               r->priority)
        at = at->prev;
    r->in_place.prev = at;
    r->in_place.next = at->next;
    at->next->prev = &r->in_place;
    at->next = &r->in_place;
    p->waiter_count++;
}

/* Another comes first now. */
static void step_back(struct sl_node *n, struct sl_now now, struct sl_node_pending *r)
{
    if (r->stands) give_up(n, now, r);
    try_again(n, r, SL_NEVER);
}

static void ask_acquire(struct sl_node *n, struct sl_now now, struct sl_node_pending *r)
{
    struct sl_node_key *p = r->place;
    if (r->waits) {
        if (p->waiter_count >= n->limits.waiters_max) {
            sl_finish(n, now, r, SLUICE_EWAITERS);
            return;
        }
        struct sl_node_pending *before = head_of(p);
        stand_in_line(p, r);
        schedule(n, r);
        if (head_of(p) != r) return;
        if (before != NULL) step_back(n, now, before);
    } else if (head_of(p) != NULL && head_of(p)->priority >= r->priority) {
        bool none = head_of(p)->outcome == SL_OUT_NOQUORUM;
        /* Who waits comes first. */
        sl_finish(n, now, r, none ? SLUICE_ENOQUORUM : SLUICE_EFULL);
        return;
    }
    attempt(n, now, r);
}

static void ask_release(struct sl_node *n, struct sl_now now, struct sl_node_pending *r)
{
    struct sl_node_key *p = r->place;
    bool own = r->session != 0 && p->taken_session == r->session;
    if (r->fence == 0 && (!own || p->taken_fence == 0)) {
        finish_with(n, now, r, 0);
        return;
    }
    if (r->fence == 0) r->fence = p->taken_fence;
    if (r->fence == p->taken_fence) p->taken_fence = 0;
    start_round(n, now, r);
}

static void ask_await(struct sl_node *n, struct sl_now now, struct sl_node_pending *r)
{
    if (r->want_free && now.ms < n->silent_ms) { /* What is free is not known here. */
        r->answer.left_ms = n->silent_ms - now.ms;
        sl_finish(n, now, r, SLUICE_ERECOVERING);
    } else if (is_seen(r->place, r)) finish_with(n, now, r, 1);
    else if (!r->waits) finish_with(n, now, r, 0);
    else {
        sl_list_append(&r->place->watchers, &r->in_place);
        sl_node_key_schedule(n, now, r->place);
        r->try_ms = SL_NEVER;
        schedule(n, r);
    }
}

static void begin(struct sl_node *n, struct sl_now now, struct sl_node_pending *r)
{
    sl_node_key_settle(n, now, r->place);
    switch (r->type) {
        case SL_NODE_ACQUIRE: ask_acquire(n, now, r); break;
        case SL_NODE_RELEASE: ask_release(n, now, r); break;
        case SL_NODE_AWAIT: ask_await(n, now, r); break;
        case SL_NODE_ADD:
        case SL_NODE_REMOVE: break;
        default: start_round(n, now, r); break;
    }
}

static int check(const struct sl_node *n, const struct sl_node_request *a)
{
    const struct sl_node_limits *l = &n->limits;
    bool leased = a->type == SL_NODE_ACQUIRE || a->type == SL_NODE_EXTEND;
    if (a->type == SL_NODE_ADD || a->type == SL_NODE_REMOVE) return SLUICE_OK;
    if (a->key.n == 0 || (leased && a->lease_ms <= 0)) return SLUICE_EINVAL;
    if (a->key.n > l->key_bytes_max || a->value.n > l->value_bytes_max ||
        a->note.n > l->value_bytes_max)
        return SLUICE_ETOOBIG;
    if (leased && (a->lease_ms < l->lease_min_ms || a->lease_ms > l->lease_max_ms))
        return SLUICE_ETOOBIG;
    if (a->fence > SL_FENCE_MAX || a->wait_ms < 0) return SLUICE_EINVAL;
    return SLUICE_OK;
}

/* Of two requests, at whatever nodes, the older one has the lower number. */
static uint64_t next_number(struct sl_node *n, struct sl_now now)
{
    n->last_number++;
    if (now.wall_us <= SL_WALL_US_MAX && now.wall_us > n->last_number)
        n->last_number = now.wall_us;
    return n->last_number;
}

static struct sl_node_pending *make_request(struct sl_node *n, struct sl_now now,
                                            uint64_t ticket,
                                            const struct sl_node_request *a)
{
    uint32_t out = n->request_count - n->request_ends.count;
    if (sl_heap_reserve(&n->request_ends, out + 1) != SLUICE_OK ||
        sl_index_reserve(&n->by_ticket) != SLUICE_OK)
        return NULL;
    struct sl_node_pending *r = sl_block_new(n, sizeof *r);
    if (r == NULL) return NULL;
    r->value = sl_node_text_new(n, a->value);
    r->note = sl_node_text_new(n, a->note);
    if ((a->value.n > 0 && r->value == NULL) || (a->note.n > 0 && r->note == NULL)) {
        sl_node_pending_free(n, r);
        return NULL;
    }
    r->out.is_request = true;
    r->out.type = SL_NODE_ORDER_ANSWER;
    sl_list_init(&r->in_place);
    r->type = a->type;
    r->ticket = ticket;
    r->session = a->session;
    r->owner = (struct sl_attempt_id){n->epoch, next_number(n, now)};
    r->fence = a->fence;
    r->lease_ms = a->lease_ms > 0 ? a->lease_ms : n->limits.lease_max_ms;
    r->since_ms = now.ms;
    r->waits = a->wait_ms > 0 &&
               (a->type == SL_NODE_ACQUIRE || a->type == SL_NODE_AWAIT);
    /* The clock is rounded down: the wait may have begun almost a millisecond later. */
    r->wait_end_ms = sl_ms_after(sl_ms_after(now.ms, a->wait_ms), SL_GRAIN_MS);
#ifdef MUT_WAITGRAIN
    r->wait_end_ms = sl_ms_after(now.ms, a->wait_ms);
#endif
    r->force_ms = a->steal ? sl_ms_after(now.ms, a->force_ms) : SL_NEVER;
    r->priority = a->priority;
    r->steal = a->steal;
    r->want_free = a->want_free;
    r->new_value = a->type == SL_NODE_EXTEND && a->value.at != NULL;
    r->try_ms = r->contest_ms = SL_NEVER;
    r->due = SL_HEAP_NONE;
    sl_list_append(&n->requests, &r->all);
    n->request_count++;
    if (ticket != 0)
        sl_index_put(&n->by_ticket, r, sl_hash_u64(ticket, n->by_ticket.seed));
    return r;
}

int sl_node_submit(struct sl_node *n, struct sl_now now, uint64_t ticket,
                   const struct sl_node_request *ask)
{
    int status = check(n, ask);
    now = sl_believe(n, now);
    struct sl_node_pending *r = make_request(n, now, ticket, ask);
    if (r == NULL) return SLUICE_ENOMEM;
    if (status == SLUICE_OK &&
        (ask->type == SL_NODE_ADD || ask->type == SL_NODE_REMOVE)) {
        sl_membership_change_begin(n, now, r, ask);
        return SLUICE_OK;
    }
    if (status == SLUICE_OK) r->place = sl_node_key_get(n, now, ask->key, &status);
    if (r->place != NULL) r->place->requests++;
    if (status == SLUICE_OK && !sl_is_member(n)) status = SLUICE_ENOQUORUM;
    if (status != SLUICE_OK) sl_finish(n, now, r, status);
    else begin(n, now, r);
    return SLUICE_OK;
}

void sl_node_withdraw(struct sl_node *n, struct sl_now now, uint64_t ticket)
{
    const struct sl_bytes key = {(const char *)&ticket, sizeof ticket};
    struct sl_node_pending *r = sl_index_find(&n->by_ticket, key,
                                              sl_hash_u64(ticket, n->by_ticket.seed));
    now = sl_believe(n, now);
    if (r == NULL) return;
    if (r->type == SL_NODE_ADD || r->type == SL_NODE_REMOVE)
        sl_membership_change_withdraw(n, r);
    if (r->type == SL_NODE_ACQUIRE) {
        if (r->stands) give_up(n, now, r);
        cancel(n, now, r);
    }
    retire(n, now, r);
    sl_node_pending_free(n, r);
}
