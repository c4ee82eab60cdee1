/* proposer_round.c - a round: one message to all acceptors, and their votes. */
#include <assert.h>

#include "majority/proposer.h"

#define STRANGER_MS 20 /* A node that lags learns the membership within this time. */

void sl_proposer_forget_votes(struct sl_node *n, struct sl_proposer_request *r)
{
    for (size_t i = 0; i < SL_NODES_MAX; i++) {
        sl_node_text_free(n, r->votes[i].value);
        sl_node_text_free(n, r->votes[i].note);
        sl_node_text_free(n, r->votes[i].client);
        sl_node_text_free(n, r->votes[i].request);
        r->votes[i] = (struct sl_proposer_vote){.verdict = SL_VERDICT_NONE};
    }
}

void sl_proposer_end_round(struct sl_node *n, struct sl_proposer_request *r)
{
    if (!r->in_round) return;
    sl_index_remove(&n->by_round, r, sl_hash_u64(r->round, n->by_round.seed));
    r->in_round = r->recheck = false;
}

struct sl_message sl_proposer_message(const struct sl_proposer_request *r)
{
    struct sl_message m = {.round = r->round,
                           .owner = r->owner,
                           .fence = r->fence,
                           .lease_ms = r->lease_ms,
                           .priority = r->priority,
                           .stamp = r->stamp,
                           .value = sl_node_text_bytes(r->value),
                           .note = sl_node_text_bytes(r->note),
                           .client = sl_node_text_bytes(r->client),
                           .request = sl_node_text_bytes(r->request),
                           .digest = r->digest};
    if (r->key != NULL) m.key = sl_node_key_bytes(r->key);
    return m;
}

static enum sl_message_type message_for(const struct sl_proposer_request *r)
{
    switch (r->type) {
        case SL_NODE_ACQUIRE:
            return r->looks    ? SL_MESSAGE_LOOK
                   : r->adopts ? SL_MESSAGE_ADOPT
                               : SL_MESSAGE_ACQUIRE;
        case SL_NODE_CANCEL: return SL_MESSAGE_END;
        case SL_NODE_DRAIN: return SL_MESSAGE_DRAIN;
        case SL_NODE_BREAK: return r->at_once ? SL_MESSAGE_RELEASE : SL_MESSAGE_BREAK;
        case SL_NODE_EXTEND: return SL_MESSAGE_RENEW;
        case SL_NODE_RELEASE: return SL_MESSAGE_RELEASE;
        default: return SL_MESSAGE_LOOK;
    }
}

static uint32_t flags_for(const struct sl_proposer_request *r, struct sl_now now)
{
    uint32_t flags = 0;
    if (r->type == SL_NODE_RELEASE) flags = SL_FLAG_FINAL;
    if (r->type == SL_NODE_BREAK && r->at_once) flags = SL_FLAG_FINAL | SL_FLAG_BROKEN;
    if (r->type == SL_NODE_EXTEND && r->new_value) flags = SL_FLAG_VALUE;
    if (r->type == SL_NODE_DRAIN && r->on) flags = SL_FLAG_ON;
    if (r->type == SL_NODE_ACQUIRE && r->steal) {
        flags = SL_FLAG_STEAL;
        if (now.ms >= r->force_ms) flags |= SL_FLAG_FORCE;
    }
    return flags;
}

void sl_proposer_start_round(struct sl_node *n, struct sl_now now,
                             struct sl_proposer_request *r)
{
    const struct sl_membership *list = &n->kept.force;
    bool member = sl_node_is_member(n);
    sl_proposer_end_round(n, r);
    sl_proposer_forget_votes(n, r);
    if (!member || sl_index_reserve(&n->by_round) != SLUICE_OK) {
        sl_proposer_finish(n, now, r, member ? SLUICE_ENOMEM : SLUICE_ENOQUORUM);
        return;
    }
    assert(!r->in_round);
    r->round = ++n->last_round;
    sl_index_put(&n->by_round, r, sl_hash_u64(r->round, n->by_round.seed));
    r->in_round = true;
    r->disk_ms = 0;
    r->tries++;
    if (r->new_value) {
        sl_fence stamp = sl_proposer_next_fence(n, now);
        if (stamp <= SL_FENCE_MAX) n->fence_last = stamp;
        r->stamp = n->fence_last;
    }
    r->sent_ms = now.ms;
    r->end_ms = sl_ms_after(now.ms, sl_node_shrink_ms(r->lease_ms));
    /* Clocks are rounded down, so the real wait may be almost a millisecond shorter. */
    r->waited_ms = now.ms - r->since_ms - SL_NODE_GRAIN_MS;
    if (r->waited_ms < 0) r->waited_ms = 0;
    r->votes_end_ms = sl_ms_after(now.ms, sl_node_answer_ms(n));
    r->hard_end_ms = r->votes_end_ms;
    /* A waiting request will soon begin another round anyway. Other requests give a slow
     * node more time. */
    if (!r->waits &&
        r->hard_end_ms < now.ms + SL_PROPOSER_PATIENCE * n->limits.answer_ms)
        r->hard_end_ms = now.ms + SL_PROPOSER_PATIENCE * n->limits.answer_ms;
    for (uint32_t i = 0; i < list->count; i++)
        r->votes[i].gone = !sl_node_can_reach(n, list->at[i].id);
    sl_proposer_schedule(n, r);
    struct sl_message m = sl_proposer_message(r);
    m.type = message_for(r);
    m.flags = flags_for(r, now);
    sl_node_broadcast(n, now, &m);
}

/* A message that arrives twice does no harm. */
void sl_proposer_ask_again(struct sl_node *n, struct sl_now now,
                           struct sl_proposer_request *r)
{
    const struct sl_membership *list = &n->kept.force;
    struct sl_message m = sl_proposer_message(r);
    m.type = message_for(r);
    m.flags = flags_for(r, now);
    r->votes_end_ms = sl_ms_after(now.ms, sl_node_answer_ms(n));
    if (r->votes_end_ms > r->hard_end_ms) r->votes_end_ms = r->hard_end_ms;
    sl_proposer_schedule(n, r);
    for (uint32_t i = 0; i < list->count; i++)
        if (r->votes[i].verdict == SL_VERDICT_NONE && list->at[i].id != n->id)
            sl_node_send(n, now, list->at[i].id, &m);
}

/* --- Counting votes --------------------------------------------------------------- */

uint32_t sl_proposer_same_fence(const struct sl_proposer_request *r, uint32_t members,
                                sl_fence fence)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < members; i++)
        if (r->votes[i].verdict != SL_VERDICT_NONE && r->votes[i].fence == fence) n++;
    return n;
}

static void count_held(const struct sl_proposer_request *r,
                       const struct sl_proposer_vote *v, struct sl_proposer_count *c)
{
    uint32_t same = v->fence == 0 ? 0 : sl_proposer_same_fence(r, c->members, v->fence);
    if (same > c->most) {
        c->most = same;
        c->most_fence = v->fence;
    }
    if (v->left_ms > c->left_ms) c->left_ms = v->left_ms;
    if ((v->flags & SL_FLAG_AGREED) != 0) {
        if (same > c->granted) c->granted = same;
        return;
    }
    /* A vote does not name the owner of a reservation, but that owner has a better
     * rank than the request that the vote rejects. */
    bool known = v->verdict == SL_VERDICT_HELD || (v->flags & SL_FLAG_TURN) != 0;
    const struct sl_attempt_rank rival = {v->priority, v->owner},
                                 mine = {r->priority, r->owner};
    c->rivals++;
    if (!known || sl_attempt_comes_before(rival, mine)) c->yields = true;
}

/* Count the nodes that have a lease of the acquisition of the request. */
static void count_mine(const struct sl_proposer_request *r,
                       const struct sl_proposer_vote *v, struct sl_proposer_count *c)
{
    uint32_t same = sl_proposer_same_fence(r, c->members, v->fence);
    bool agreed = (v->flags & SL_FLAG_AGREED) != 0;
    bool better = agreed != c->mine_agreed ? agreed : same > c->mine;
    if (c->mine > 0 && !better && v->fence != c->mine_fence) return;
    c->mine = same;
    c->mine_fence = v->fence;
    c->mine_agreed = c->mine_agreed || agreed;
    c->mismatch = (v->flags & SL_FLAG_MISMATCH) != 0;
}

struct sl_proposer_count sl_proposer_count_votes(const struct sl_node *n,
                                                 const struct sl_proposer_request *r)
{
    struct sl_proposer_count c = {.members = n->kept.force.count,
                                  .majority = sl_membership_majority(&n->kept.force),
                                  .yes_left_ms = SL_NEVER};
    for (uint32_t i = 0; i < c.members; i++) {
        const struct sl_proposer_vote *v = &r->votes[i];
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
            case SL_VERDICT_NAMES: c.names++; break;
            case SL_VERDICT_DRAINED: c.drained++; break;
            case SL_VERDICT_ENDED:
                c.ended++;
                if ((v->flags & SL_FLAG_SURE) != 0) c.ended_surely = true;
                break;
            case SL_VERDICT_SILENT:
                c.silent++;
                if (v->left_ms > c.silent_ms) c.silent_ms = v->left_ms;
                break;
            default: /* No vote, or a verdict that does not apply to this request. */
                if (v->gone || v->verdict != SL_VERDICT_NONE) c.missing++;
                else c.open++;
        }
        if (v->verdict == SL_VERDICT_HELD || v->verdict == SL_VERDICT_RESERVED)
            count_held(r, v, &c);
        if ((v->flags & SL_FLAG_MINE) != 0) count_mine(r, v, &c);
    }
    return c;
}

static void note_votes(struct sl_node_answer *a, const struct sl_proposer_count *c)
{
    a->can_vote = c->members - c->missing - c->silent - c->stranger;
    a->answered = a->can_vote - c->open;
    a->have = c->yes;
    a->lack = c->lacks + c->held;
    a->silent = c->silent;
    a->left_ms = c->silent_ms;
}

void sl_proposer_note_votes(struct sl_proposer_request *r,
                            const struct sl_proposer_count *c)
{
    note_votes(&r->answer, c);
}

/* Returns the status of a request that too few nodes can decide. The order in which votes arrive
 * must not change the status, so a vote that may still arrive counts as if it had arrived. */
static int status_without_quorum(const struct sl_node *n,
                                 const struct sl_node_answer *a)
{
    bool wait = a->silent > 0 &&
                a->can_vote + a->silent >= sl_membership_majority(&n->kept.force);
    return wait ? SLUICE_ERECOVERING : SLUICE_ENOQUORUM;
}

static void finish_noted(struct sl_node *n, struct sl_now now,
                         struct sl_proposer_request *r)
{
    sl_proposer_finish(n, now, r, status_without_quorum(n, &r->answer));
}

/* Returns how long a member does not vote, according to its last heartbeat. */
static sl_ms silent_ms_of(const struct sl_node *n, struct sl_now now, sl_node_id id)
{
    const struct sl_node_peer *p = sl_node_find_peer(n, id);
    sl_ms until_ms = id == n->id ? n->silent_ms : p == NULL ? 0 : p->silent_ms;
    return sl_node_max_ms(until_ms - now.ms, 0);
}

int sl_node_quorum(const struct sl_node *n, struct sl_now now,
                   struct sl_node_answer *out)
{
    const struct sl_membership *list = &n->kept.force;
    struct sl_proposer_count c = {.members = list->count,
                                  .majority = sl_membership_majority(list)};
    for (uint32_t i = 0; i < list->count; i++) {
        sl_ms silent_ms = silent_ms_of(n, now, list->at[i].id);
        if (!sl_node_can_reach(n, list->at[i].id)) c.missing++;
        else if (silent_ms == 0) c.open++;
        else {
            c.silent++;
            c.silent_ms = sl_node_max_ms(c.silent_ms, silent_ms);
        }
    }
    *out = (struct sl_node_answer){.members = c.members, .needed = c.majority};
    note_votes(out, &c);
    return c.open >= c.majority ? SLUICE_OK : status_without_quorum(n, out);
}

void sl_proposer_finish_no_quorum(struct sl_node *n, struct sl_now now,
                                  struct sl_proposer_request *r,
                                  const struct sl_proposer_count *c)
{
    sl_proposer_note_votes(r, c);
    finish_noted(n, now, r);
}

void sl_proposer_finish_like(struct sl_node *n, struct sl_now now,
                             struct sl_proposer_request *r,
                             const struct sl_proposer_request *first)
{
    r->answer = first->answer;
    finish_noted(n, now, r);
}

bool sl_proposer_retry_for_membership(struct sl_node *n, struct sl_now now,
                                      struct sl_proposer_request *r,
                                      const struct sl_proposer_count *c)
{
    if (c->stranger == 0 || r->tries > SL_PROPOSER_ROUNDS_MAX) return false;
    sl_proposer_try_again(n, r, now.ms + STRANGER_MS);
    return true;
}

/* --- Receiving votes -------------------------------------------------------------- */

/* Continue above the fences that other nodes have seen, unless their clocks were
 * days ahead. */
static void hear_fence(struct sl_node *n, struct sl_now now, sl_fence ceiling)
{
    if (ceiling > n->fence_last && ceiling <= sl_node_fence_max(n, now) &&
        ceiling < SL_FENCE_MAX)
        n->fence_last = ceiling;
}

void sl_proposer_receive_vote(struct sl_node *n, struct sl_now now, sl_node_id from,
                              const struct sl_message *m)
{
    struct sl_proposer_request *r = sl_proposer_find(&n->by_round, m->round);
    int at = sl_membership_find(&n->kept.force, from);
    if (r == NULL || at < 0) return;
    hear_fence(n, now, m->ceiling);
    if (m->verdict == SL_VERDICT_FENCE && sl_node_knows_time(n) &&
        !sl_node_is_plausible(n, now, m->ceiling))
        r->ran_away = true;
    struct sl_proposer_vote *v = &r->votes[at];
    if (v->verdict != SL_VERDICT_NONE) return;
    if (!sl_node_text_set(n, &v->value, m->value) ||
        !sl_node_text_set(n, &v->note, m->note) ||
        !sl_node_text_set(n, &v->client, m->client) ||
        !sl_node_text_set(n, &v->request, m->request))
        return; /* Out of memory: treat the vote as lost. */
    v->verdict = m->verdict;
    v->flags = m->flags;
    v->owner = m->owner;
    v->fence = m->fence;
    v->priority = m->priority;
    v->wanted = m->wanted;
    v->left_ms = m->left_ms;
    v->stamp = m->stamp;
    v->digest = m->digest;
    sl_proposer_evaluate(n, now, r);
}
