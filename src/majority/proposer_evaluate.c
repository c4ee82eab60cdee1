/* proposer_evaluate.c - evaluates the votes of a round, for all requests except
 * ACQUIRE, which is in proposer_attempt.c. */
#include <assert.h>

#include "majority/proposer.h"

const struct sl_proposer_vote *sl_proposer_vote_with_lease(
    const struct sl_node *n, const struct sl_proposer_request *r)
{
    const struct sl_proposer_vote *best = NULL;
    for (uint32_t i = 0; i < n->kept.force.count; i++) {
        const struct sl_proposer_vote *v = &r->votes[i];
        if (v->verdict == SL_VERDICT_YES && (best == NULL || v->stamp > best->stamp))
            best = v;
    }
    return best;
}

void sl_proposer_announce_vote(struct sl_node *n, struct sl_now now,
                               struct sl_proposer_request *r,
                               const struct sl_proposer_vote *v, uint32_t flags)
{
    struct sl_message m = sl_proposer_message(r);
    m.owner = v->owner;
    m.priority = v->priority;
    m.note = sl_node_text_bytes(v->note);
    m.client = sl_node_text_bytes(v->client);
    m.value = sl_node_text_bytes(v->value);
    m.request = sl_node_text_bytes(v->request);
    m.digest = v->digest;
    m.stamp = v->stamp;
    m.left_ms = r->end_ms - now.ms;
    m.flags = flags | (v->flags & SL_FLAG_OVERLAPPING);
    sl_proposer_announce(n, now, r, &m);
    sl_proposer_note_grant(n, r);
}

static void extended(struct sl_node *n, struct sl_now now,
                     struct sl_proposer_request *r, const struct sl_proposer_count *c)
{
    const struct sl_proposer_vote *v = sl_proposer_vote_with_lease(n, r);
    if (v != NULL) sl_proposer_announce_vote(n, now, r, v, SL_FLAG_EXTENDED);
    sl_proposer_finish_with(n, now, r, c->yes_left_ms);
}

static void evaluate_extend(struct sl_node *n, struct sl_now now,
                            struct sl_proposer_request *r, struct sl_proposer_count *c)
{
    if (c->yes >= c->majority && now.ms < r->end_ms) {
        extended(n, now, r, c);
        return;
    }
    if (c->yes + c->open >= c->majority && now.ms < r->end_ms) return;
    uint32_t lost = c->lacks + c->held;
    /* If the lease was agreed under the previous membership, fewer than a majority
     * of the current nodes may have it, but every majority contains at least one
     * node that does. */
    if (lost >= c->majority) sl_proposer_finish(n, now, r, SLUICE_ELOST);
    else if (c->reserved > 0 && c->yes + c->reserved >= c->majority)
        sl_proposer_finish(n, now, r, SLUICE_EASKED);
    else if (c->fence > 0 && r->tries <= SL_PROPOSER_TRIES_MAX)
        sl_proposer_try_again(n, r,
                              now.ms); /* With a stamp above that of the newer value. */
    else if (c->open > 0 && now.ms < r->end_ms) return; /* Wait for more votes. */
    else if (!sl_proposer_retry_for_membership(n, now, r, c))
        sl_proposer_finish_no_quorum(n, now, r, c);
}

/* If there was a lease, every majority contains a node that had it. */
static void evaluate_release(struct sl_node *n, struct sl_now now,
                             struct sl_proposer_request *r,
                             const struct sl_proposer_count *c)
{
    uint32_t answered = c->yes + c->lacks;
    int64_t was = r->type == SL_NODE_BREAK ? 2 : 1;
    if (answered >= c->majority)
        sl_proposer_finish_with(n, now, r, c->yes > 0 ? was : 0);
    else if (answered + c->open < c->majority &&
             !sl_proposer_retry_for_membership(n, now, r, c))
        sl_proposer_finish_no_quorum(n, now, r, c);
}

/* If a majority does not extend the lease, nobody can extend it. Tell the other nodes, because
 * the membership may change. */
static void evaluate_break(struct sl_node *n, struct sl_now now,
                           struct sl_proposer_request *r,
                           const struct sl_proposer_count *c)
{
    if (c->yes >= c->majority) {
        const struct sl_proposer_vote *v = sl_proposer_vote_with_lease(n, r);
        r->end_ms = sl_ms_after(r->sent_ms, sl_node_shrink_ms(c->yes_left_ms));
        r->lease_ms = c->yes_left_ms;
        if (v->fence == r->fence && now.ms < r->end_ms)
            sl_proposer_announce_vote(n, now, r, v, SL_FLAG_BROKEN);
        sl_proposer_finish_with(n, now, r, 1);
    } else if (c->lacks >= c->majority) sl_proposer_finish_with(n, now, r, 0);
    else if (c->open == 0 && !sl_proposer_retry_for_membership(n, now, r, c))
        sl_proposer_finish_no_quorum(n, now, r, c);
}

static void evaluate_drain(struct sl_node *n, struct sl_now now,
                           struct sl_proposer_request *r,
                           const struct sl_proposer_count *c)
{
    bool changed = false;
    for (uint32_t i = 0; i < c->members; i++)
        if (r->votes[i].verdict == SL_VERDICT_YES &&
            (r->votes[i].flags & SL_FLAG_CHANGED) != 0)
            changed = true;
    if (c->yes >= c->majority) sl_proposer_finish_with(n, now, r, changed ? 1 : 0);
    else if (c->yes + c->open >= c->majority) return;
    else if (c->full > 0) sl_proposer_finish(n, now, r, SLUICE_EFULL);
    else if (c->clock > c->members - c->majority)
        sl_proposer_finish(n, now, r, SLUICE_EFENCES);
    else if (c->fence > 0 && r->tries <= SL_PROPOSER_TRIES_MAX)
        sl_proposer_try_again(n, r, now.ms); /* With a higher stamp. */
    else if (!sl_proposer_retry_for_membership(n, now, r, c))
        sl_proposer_finish_no_quorum(n, now, r, c);
}

static void evaluate_check(struct sl_node *n, struct sl_now now,
                           struct sl_proposer_request *r,
                           const struct sl_proposer_count *c)
{
    uint32_t have = 0;
    for (uint32_t i = 0; i < c->members; i++)
        if (r->votes[i].verdict == SL_VERDICT_YES && r->votes[i].fence == r->fence)
            have++;
    uint32_t lack = c->yes - have;
    if (have >= c->majority) sl_proposer_finish_with(n, now, r, 1);
    else if (lack >= c->majority) sl_proposer_finish_with(n, now, r, 0);
    else if (c->open == 0 && !sl_proposer_retry_for_membership(n, now, r, c)) {
        struct sl_proposer_count said = *c;
        said.yes = have;
        said.lacks = lack;
        sl_proposer_finish_no_quorum(n, now, r, &said);
    }
}

static void copy_vote(const struct sl_node *n, struct sl_proposer_request *r,
                      uint32_t i, struct sl_node_copy *out)
{
    const struct sl_proposer_vote *v = &r->votes[i];
    *out = (struct sl_node_copy){.node = n->kept.force.at[i].id,
                                 .verdict = v->verdict,
                                 .held = v->verdict == SL_VERDICT_YES && v->fence != 0,
                                 .agreed = (v->flags & SL_FLAG_AGREED) != 0,
                                 .broken = (v->flags & SL_FLAG_BROKEN) != 0,
                                 .reserved = (v->flags & SL_FLAG_RESERVED) != 0,
                                 .wanted = v->wanted,
                                 .owner = v->owner,
                                 .fence = v->fence,
                                 .priority = v->priority,
                                 .left_ms = v->left_ms,
                                 .value = sl_node_text_bytes(v->value),
                                 .note = sl_node_text_bytes(v->note),
                                 .client = sl_node_text_bytes(v->client)};
}

static void evaluate_votes(struct sl_node *n, struct sl_now now,
                           struct sl_proposer_request *r,
                           const struct sl_proposer_count *c)
{
    if (c->open > 0) return;
    for (uint32_t i = 0; i < c->members; i++) copy_vote(n, r, i, &r->copies[i]);
    r->answer.copies = r->copies;
    r->answer.copy_count = c->members;
    r->answer.answered = c->yes;
    sl_proposer_finish(n, now, r, SLUICE_OK);
}

/* Returns the position of the vote with the lease that a majority has, or may have
 * if some nodes do not answer. Returns -1 if there is none. */
static int find_held(const struct sl_proposer_request *r,
                     const struct sl_proposer_count *c)
{
    int best = -1;
    uint32_t mute = c->members - c->yes;
    for (uint32_t i = 0; i < c->members; i++) {
        const struct sl_proposer_vote *v = &r->votes[i];
        if (v->verdict != SL_VERDICT_YES || v->fence == 0) continue;
        uint32_t same = sl_proposer_same_fence(r, c->members, v->fence);
        bool may = (v->flags & SL_FLAG_AGREED) != 0 && same + mute >= c->majority;
        if (same < c->majority && !(c->open == 0 && may)) continue;
        /* Of several copies of a lease, use the one with the newest value. */
        const struct sl_proposer_vote *b = best < 0 ? NULL : &r->votes[best];
        if (b == NULL || v->fence > b->fence ||
            (v->fence == b->fence && v->stamp > b->stamp))
            best = (int)i;
    }
    return best;
}

static void evaluate_read(struct sl_node *n, struct sl_now now,
                          struct sl_proposer_request *r,
                          const struct sl_proposer_count *c)
{
    int held = find_held(r, c);
    if (held < 0 && c->open > 0) return;
    if (held < 0 && c->yes < c->majority) {
        if (!sl_proposer_retry_for_membership(n, now, r, c))
            sl_proposer_finish_no_quorum(n, now, r, c);
        return;
    }
    if (held >= 0 && c->yes < c->majority) {
        if (c->open > 0) return;
        sl_proposer_finish_no_quorum(n, now, r, c);
        return;
    }
    if (held >= 0) {
        copy_vote(n, r, (uint32_t)held, &r->copies[0]);
        r->answer.copies = r->copies;
        r->answer.copy_count = 1;
    }
    sl_proposer_finish(n, now, r, SLUICE_OK);
}

void sl_proposer_evaluate(struct sl_node *n, struct sl_now now,
                          struct sl_proposer_request *r)
{
    struct sl_proposer_count c = sl_proposer_count_votes(n, r);
    assert(r->in_round);
    switch (r->type) {
        case SL_NODE_ACQUIRE:
            if (r->looks) sl_proposer_evaluate_look(n, now, r, &c);
            else if (r->adopts) sl_proposer_evaluate_adopt(n, now, r, &c);
            else sl_proposer_evaluate_acquire(n, now, r, &c);
            break;
        case SL_NODE_DRAIN: evaluate_drain(n, now, r, &c); break;
        case SL_NODE_BREAK:
            if (r->at_once) evaluate_release(n, now, r, &c);
            else evaluate_break(n, now, r, &c);
            break;
        case SL_NODE_CANCEL: sl_proposer_evaluate_cancel(n, now, r, &c); break;
        case SL_NODE_EXTEND: evaluate_extend(n, now, r, &c); break;
        case SL_NODE_RELEASE: evaluate_release(n, now, r, &c); break;
        case SL_NODE_CHECK: evaluate_check(n, now, r, &c); break;
        case SL_NODE_READ: evaluate_read(n, now, r, &c); break;
        case SL_NODE_VOTES: evaluate_votes(n, now, r, &c); break;
        default: break;
    }
}
