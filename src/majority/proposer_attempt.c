/* proposer_attempt.c - ACQUIRE: attempts to get a lease, each under its own fence. */
#include <assert.h>

#include "majority/acceptor.h"
#include "majority/proposer.h"

#define SPLIT_MS_MAX 256 /* The longest pause after split votes. */
#define SPLITS_MAX 8     /* The pause doubles at most this often. */
#define DISK_MS 2        /* How often a request checks whether the disk is ready. */
#define DISK_MS_MAX 2000 /* After this, a request that does not wait is rejected. */

/* A fence is a time in microseconds whose last four bits are the node id, so two
 * nodes never use the same fence. */
#define SLOTS 16u
_Static_assert(SL_NODE_ID_MAX < SLOTS, "a slot for each node");

static sl_fence fence_above(const struct sl_node *n, sl_fence floor)
{
    sl_fence fence = floor / SLOTS * SLOTS + n->id;
    return fence > floor ? fence : fence + SLOTS;
}

sl_fence sl_proposer_next_fence(const struct sl_node *n, struct sl_now now)
{
    sl_fence floor = n->fence_last > n->floor ? n->fence_last : n->floor;
    if (now.wall_us <= SL_WALL_US_MAX && now.wall_us > floor) floor = now.wall_us;
    return fence_above(n, floor);
}

/* Returns the fence for the next attempt. Requests that yield raise the fences that
 * acceptors have seen. The request with the best rank must use a higher fence than
 * those, so from the third round on it adds four times as much as in the previous
 * round. */
static sl_fence fence_of_attempt(const struct sl_node *n, struct sl_now now,
                                 const struct sl_proposer_request *r)
{
    sl_fence fence = sl_proposer_next_fence(n, now);
    if (r->outstanding && r->splits > 1)
        fence += SLOTS << 2 * (r->splits < SPLITS_MAX ? r->splits : SPLITS_MAX);
    return fence;
}

static void finish_for_fences(struct sl_node *n, struct sl_now now,
                              struct sl_proposer_request *r, const char *why)
{
    sl_proposer_cancel(n, now, r);
    sl_proposer_finish_because(n, now, r, SLUICE_EFENCES, why);
}

static void finish_for_disk(struct sl_node *n, struct sl_now now,
                            struct sl_proposer_request *r)
{
    sl_proposer_cancel(n, now, r);
    sl_proposer_finish_because(n, now, r, SLUICE_EIO,
                               "the data directory of this node cannot be written; see "
                               "its log, or use another node");
}

static uint32_t reachable_members(const struct sl_node *n)
{
    uint32_t reach = 0;
    for (uint32_t i = 0; i < n->kept.force.count; i++)
        if (sl_node_can_reach(n, n->kept.force.at[i].id)) reach++;
    return reach;
}

static bool is_time_over(const struct sl_proposer_request *r, struct sl_now now)
{
    return !r->waits || now.ms >= r->wait_end_ms;
}

/* Whether an attempt can succeed. Do not use up a fence if too few nodes are
 * reachable, or before the time is known. If this returns false, the request was
 * answered or retries later. */
static bool can_agree(struct sl_node *n, struct sl_now now,
                      struct sl_proposer_request *r)
{
    uint32_t reach = reachable_members(n);
    bool few = reach < sl_membership_majority(&n->kept.force);
    if (!few && sl_node_knows_time(n)) return true;
    bool over = is_time_over(r, now);
    if (few) r->answer = (struct sl_node_answer){.answered = reach, .can_vote = reach};
    if (!over || !few) {
        if (few) r->outcome = SL_OUTCOME_NOQUORUM;
        sl_proposer_try_again(n, r,
                              now.ms + (few ? SL_PROPOSER_RETRY_MS / 2 : DISK_MS));
        return false;
    }
    sl_proposer_finish(n, now, r, SLUICE_ENOQUORUM);
    return false;
}

/* The fence must be below the limit on disk. After a restart, fences begin above
 * that limit, so no fence is ever used twice. */
void sl_proposer_attempt(struct sl_node *n, struct sl_now now,
                         struct sl_proposer_request *r)
{
    sl_fence fence = fence_of_attempt(n, now, r);
    if (!can_agree(n, now, r)) return;
    if (fence > sl_node_fence_max(n, now)) {
        finish_for_fences(n, now, r,
                          "the fences of this node are days ahead because its clock "
                          "was wrong; remove that node with NODES REMOVE, and add it "
                          "again with NODES ADD");
        return;
    }
    if (!sl_node_may_vote(n, now, fence)) {
        if (r->disk_ms == 0) r->disk_ms = now.ms;
        bool hopeless = n->write_again_ms != 0 || now.ms - r->disk_ms > DISK_MS_MAX;
        if (hopeless) r->outcome = SL_OUTCOME_DISK;
        if (is_time_over(r, now) && hopeless) finish_for_disk(n, now, r);
        else
            sl_proposer_try_again(n, r,
                                  now.ms + (hopeless ? SL_PROPOSER_RETRY_MS : DISK_MS));
        return;
    }
    assert(fence > n->fence_last && fence <= n->kept.fence_limit);
    r->fence = n->fence_last = fence;
    r->outstanding = true;
    n->attempts++;
    sl_proposer_start_round(n, now, r);
}

void sl_proposer_give_up(struct sl_node *n, struct sl_now now,
                         struct sl_proposer_request *r)
{
    struct sl_message m = sl_proposer_message(r);
    r->outstanding = false;
    m.type = SL_MESSAGE_RELEASE;
    m.round = 0;
    sl_node_broadcast(n, now, &m);
}

/* The holder that was asked to release may keep its lease. */
void sl_proposer_cancel(struct sl_node *n, struct sl_now now,
                        const struct sl_proposer_request *r)
{
    struct sl_message m = sl_proposer_message(r);
    if (!r->steal) return;
    m.type = SL_MESSAGE_CANCEL;
    m.round = 0;
    sl_node_broadcast(n, now, &m);
}

static void granted(struct sl_node *n, struct sl_now now, struct sl_proposer_request *r)
{
    struct sl_message m = sl_proposer_message(r);
    bool overlapping = false;
    if (sl_acceptor_is_cancelled(n, m.key, m.request)) {
        sl_proposer_finish(n, now, r, SLUICE_EENDED); /* It was cancelled meanwhile. */
        return;
    }
    for (uint32_t i = 0; i < n->kept.force.count; i++)
        if (r->votes[i].verdict == SL_VERDICT_YES &&
            (r->votes[i].flags & SL_FLAG_OVERLAPPING) != 0)
            overlapping = true;
    r->answer.grant = (struct sl_grant){.fence = r->fence,
                                        .held = 1,
                                        .lease_ms = r->lease_ms,
                                        .waited_ms = r->waited_ms,
                                        .overlapping = overlapping};
    r->outstanding = false;
    n->grants++;
    m.waited_ms = r->waited_ms;
    m.left_ms = r->end_ms - now.ms;
    m.flags = overlapping ? SL_FLAG_OVERLAPPING : 0;
    sl_proposer_note_grant(n, r);
    sl_proposer_announce(n, now, r, &m);
    /* The acceptor on this node may have learned the lease just now. */
    sl_proposer_note_grant(n, r);
    sl_proposer_finish(n, now, r, SLUICE_OK);
}

/* --- After a failed attempt ------------------------------------------------------- */

/* Whether a contest with other requests may still be settled. If their proposers are
 * alive, that takes a few rounds. Until then, the proposer does not know whether the
 * key is taken. */
static bool is_contest_open(const struct sl_node *n, struct sl_now now,
                            const struct sl_proposer_request *r)
{
    sl_ms answer = sl_node_answer_ms(n);
    if (answer < n->limits.answer_ms) answer = n->limits.answer_ms;
    return r->contest_ms == SL_NEVER ||
           now.ms - r->contest_ms < SL_PROPOSER_PATIENCE * answer;
}

/* Returns why a round failed. */
static enum sl_proposer_outcome outcome_of(const struct sl_node *n, struct sl_now now,
                                           const struct sl_proposer_request *r,
                                           const struct sl_proposer_count *c)
{
    uint32_t mute = c->missing + c->silent + c->stranger;
    if (c->members < c->majority + mute + c->drained) return SL_OUTCOME_NOQUORUM;
    if (c->most >= c->majority) return SL_OUTCOME_TAKEN;
    if (c->reserved > c->members - c->majority) return SL_OUTCOME_TAKEN;
    mute += c->open;
    if (c->granted > 0 && c->granted + mute >= c->majority) return SL_OUTCOME_TAKEN;
    if (c->most > 0 && c->most + mute >= c->majority && !is_contest_open(n, now, r))
        return SL_OUTCOME_TAKEN;
    return SL_OUTCOME_UNCLEAR;
}

/* Tell the client of a stealing request once which holder it waits for. */
static void publish_holder(struct sl_node *n, struct sl_proposer_request *r,
                           const struct sl_proposer_count *c)
{
    if (!r->steal || r->told_holder || r->session == 0 || c->most == 0) return;
    for (uint32_t i = 0; i < c->members; i++) {
        const struct sl_proposer_vote *v = &r->votes[i];
        if (v->verdict != SL_VERDICT_HELD || v->fence != c->most_fence) continue;
        struct sl_node_event e = {.type = SL_NODE_EVENT_WAITS,
                                  .key = sl_node_key_bytes(r->key),
                                  .fence = v->fence,
                                  .session = r->session,
                                  .left_ms = v->left_ms,
                                  .asked_ms = -1,
                                  .note = sl_node_text_bytes(v->note)};
        sl_node_publish(n, &e);
        r->told_holder = true;
        return;
    }
}

/* Returns when to retry after split votes. The request with the best rank retries
 * immediately, because the others have seen it and yield. After that, each pause is
 * longer than the previous one. Requests that yielded also wait for one round of the
 * best request. */
static sl_ms after_split(struct sl_node *n, struct sl_now now,
                         struct sl_proposer_request *r,
                         const struct sl_proposer_count *c)
{
    sl_ms base = c->yields ? sl_node_rtt_ms(n) + 1 : 1;
    sl_ms pause = base << (r->splits < SPLITS_MAX ? r->splits : SPLITS_MAX);
    if (pause > SPLIT_MS_MAX) pause = SPLIT_MS_MAX;
    n->splits++;
    if (r->splits++ == 0 && !c->yields) return now.ms;
    return now.ms + pause + sl_random_below(&n->random, (uint32_t)pause / 2 + 1);
}

static sl_ms when_to_retry(struct sl_node *n, struct sl_now now,
                           struct sl_proposer_request *r,
                           const struct sl_proposer_count *c)
{
    sl_ms retry = SL_PROPOSER_RETRY_MS +
                  sl_random_below(&n->random, SL_PROPOSER_RETRY_MS);
    if (r->outcome == SL_OUTCOME_UNCLEAR) {
        if (c->fence > 0 && c->held + c->reserved == 0 &&
            r->tries <= SL_PROPOSER_TRIES_MAX) {
            r->splits++;
            return now.ms; /* The fence was too low; the next one is higher. */
        }
        return after_split(n, now, r, c);
    }
    if (r->outcome == SL_OUTCOME_TAKEN) {
        r->splits = 0;
        r->contest_ms = SL_NEVER;
        /* A stealing request must ask again before its reservation ends. */
        if (r->steal) retry = n->limits.answer_ms / 2;
        if (c->left_ms > 0) retry = sl_node_min_ms(retry, c->left_ms + 2);
        retry += sl_random_below(&n->random, 4);
    } else retry = sl_node_min_ms(retry, n->limits.answer_ms);
    sl_ms at = now.ms + retry;
    if (r->steal && r->force_ms > now.ms) at = sl_node_min_ms(at, r->force_ms);
    return at;
}

/* Reject a request. The outcome of its last round determines the answer. */
static void reject(struct sl_node *n, struct sl_now now, struct sl_proposer_request *r,
                   const struct sl_proposer_count *c)
{
    bool taken = c->reserved > 0 || r->outcome == SL_OUTCOME_TAKEN;
    if (r->outcome == SL_OUTCOME_DISK) {
        finish_for_disk(n, now, r);
        return;
    }
    if (!taken && r->ran_away && r->outcome == SL_OUTCOME_UNCLEAR) {
        finish_for_fences(n, now, r,
                          "the fences of another node are days ahead because its clock "
                          "was wrong; remove that node with NODES REMOVE, and add it "
                          "again with NODES ADD");
        return;
    }
    sl_proposer_cancel(n, now, r);
    if (!taken && r->outcome == SL_OUTCOME_UNCLEAR) {
        sl_proposer_finish_because(
            n, now, r, SLUICE_ENOQUORUM,
            "concurrent requests split the votes; retry, or use WAIT");
    } else if (c->mine > 0) {
        sl_proposer_finish_because(n, now, r, SLUICE_ENOQUORUM, SL_PROPOSER_MAY_HOLD);
    } else if (r->outcome == SL_OUTCOME_NOQUORUM && !sl_proposer_queue_is_first(r))
        sl_proposer_finish_like(n, now, r, sl_proposer_queue_head(r->key));
    else if (r->outcome == SL_OUTCOME_NOQUORUM)
        sl_proposer_finish_no_quorum(n, now, r, c);
    else sl_proposer_finish(n, now, r, SLUICE_EFULL);
}

/* Whether a request keeps its votes. The request with the best rank does: its next
 * attempt replaces this one, so no other request can take the votes. All other
 * requests yield. */
static bool keeps_votes(const struct sl_proposer_request *r,
                        const struct sl_proposer_count *c)
{
    return r->outcome == SL_OUTCOME_UNCLEAR && !c->yields && c->stranger == 0;
}

/* Whether the key may be free. If so, do not answer that it is taken. */
static bool is_undecided(const struct sl_node *n, struct sl_now now,
                         const struct sl_proposer_request *r)
{
    if (r->outcome == SL_OUTCOME_NONE) return !r->key->lease.live;
    if (r->outcome != SL_OUTCOME_UNCLEAR) return false;
    return r->contest_ms == SL_NEVER ? r->tries < SL_PROPOSER_TRIES_MAX
                                     : is_contest_open(n, now, r);
}

/* Whether all competing requests have ended and no lease is known, so that the key may
 * be free. If so, the request retries, however long the contest has lasted. */
static bool has_outlasted_rivals(const struct sl_proposer_request *r,
                                 const struct sl_proposer_count *c)
{
    return r->outcome == SL_OUTCOME_UNCLEAR && r->contest_ms != SL_NEVER &&
           c->rivals == 0 && c->granted == 0 && r->tries < SL_PROPOSER_ROUNDS_MAX;
}

/* Reject a request for a drained key, and all others that wait for it here. */
static void reject_drained(struct sl_node *n, struct sl_now now,
                           struct sl_proposer_request *r)
{
    for (struct sl_list *i = r->key->waiters.next, *next; i != &r->key->waiters;
         i = next) {
        struct sl_proposer_request *w = sl_container_of(i, struct sl_proposer_request,
                                                        key_link);
        next = i->next;
        if (w == r) continue;
        sl_proposer_cancel(n, now, w);
        sl_proposer_finish(n, now, w, SLUICE_EDRAINED);
    }
    sl_proposer_cancel(n, now, r);
    sl_proposer_finish(n, now, r, SLUICE_EDRAINED);
}

static void failed(struct sl_node *n, struct sl_now now, struct sl_proposer_request *r,
                   const struct sl_proposer_count *c)
{
    if (c->rivals > 0 && r->contest_ms == SL_NEVER) r->contest_ms = now.ms;
    r->outcome = outcome_of(n, now, r, c);
    if (r->outcome == SL_OUTCOME_NOQUORUM) sl_proposer_note_votes(r, c);
    if (!keeps_votes(r, c)) sl_proposer_give_up(n, now, r);
    if (r->outcome == SL_OUTCOME_TAKEN) publish_holder(n, r, c);
    if (c->drained > c->members - c->majority) reject_drained(n, now, r);
    else if (c->clock > c->members - c->majority) {
        finish_for_fences(n, now, r,
                          "the clock of this node is days ahead of the others; set it, "
                          "or use another node");
    } else if (c->big > c->members - c->majority)
        sl_proposer_finish_because(n, now, r, SLUICE_ETOOBIG,
                                   "other nodes have a smaller lease-max or "
                                   "key-bytes-max; use the same settings on all nodes");
    else if (c->full > c->members - c->majority)
        sl_proposer_finish(n, now, r, SLUICE_EKEYS);
    else if (c->names > c->members - c->majority)
        sl_proposer_finish(n, now, r, SLUICE_EREQUESTS);
    else if (c->stranger > 0 && sl_proposer_retry_for_membership(n, now, r, c)) return;
    else if (is_time_over(r, now) && !is_undecided(n, now, r) &&
             !has_outlasted_rivals(r, c))
        reject(n, now, r, c);
    else sl_proposer_try_again(n, r, when_to_retry(n, now, r, c));
}

/* Whether the contest has ended, and only the missing votes can tell whether a lease
 * is in force. */
static bool missing_votes_decide(const struct sl_node *n, struct sl_now now,
                                 const struct sl_proposer_request *r,
                                 const struct sl_proposer_count *c)
{
    return c->open > 0 && c->rivals > 0 && !is_contest_open(n, now, r);
}

void sl_proposer_evaluate_acquire(struct sl_node *n, struct sl_now now,
                                  struct sl_proposer_request *r,
                                  const struct sl_proposer_count *c)
{
    if (c->yes >= c->majority && now.ms < r->end_ms) granted(n, now, r);
    else if (r->request != NULL && sl_proposer_repeats(n, now, r, c)) return;
    else if (now.ms >= r->end_ms ||
             (c->yes + c->open < c->majority && !missing_votes_decide(n, now, r, c)))
        failed(n, now, r, c);
}

bool sl_proposer_settle_contest(struct sl_node *n, struct sl_now now,
                                struct sl_proposer_request *r)
{
    struct sl_proposer_count c = sl_proposer_count_votes(n, r);
    if (r->type != SL_NODE_ACQUIRE || r->looks || r->adopts || c.rivals == 0)
        return false;
    failed(n, now, r, &c);
    return true;
}

void sl_proposer_wait_over(struct sl_node *n, struct sl_now now,
                           struct sl_proposer_request *r)
{
    if (r->type == SL_NODE_AWAIT) {
        sl_proposer_finish_with(n, now, r, 0);
        return;
    }
    if (r->in_round) { /* The round may still succeed. */
        r->last = true;
        sl_proposer_schedule(n, r);
        return;
    }
    if (sl_proposer_queue_is_first(r) && is_undecided(n, now, r) &&
        r->try_ms != SL_NEVER) {
        r->last = true; /* Until the contest is decided. */
        sl_proposer_schedule(n, r);
        return;
    }
    struct sl_proposer_count c = sl_proposer_count_votes(n, r);
    if (r->looks || r->adopts) {
        sl_proposer_finish_no_quorum(n, now, r, &c);
        return;
    }
    bool few = reachable_members(n) < c.majority;
    if (!sl_proposer_queue_is_first(r))
        r->outcome = sl_proposer_queue_head(r->key)->outcome;
    /* The first waiter may not have tried yet since it became the first. */
    if (few && !r->key->lease.live) r->outcome = SL_OUTCOME_NOQUORUM;
    if (!sl_proposer_queue_is_first(r) && r->outcome == SL_OUTCOME_UNCLEAR)
        r->outcome = SL_OUTCOME_TAKEN;
    if (r->outcome == SL_OUTCOME_NONE) /* It never tried. */
        r->outcome = sl_proposer_queue_is_first(r) && !r->key->lease.live
                         ? SL_OUTCOME_NOQUORUM
                         : SL_OUTCOME_TAKEN;
    reject(n, now, r, &c);
}
