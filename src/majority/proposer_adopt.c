/* proposer_adopt.c - acquisitions with a REQUEST id. An attempt that repeats another one adopts its
 * lease, keeps its position in the queue, or fails because the acquisition has ended. Also CANCEL. */
#include "majority/acceptor.h"
#include "majority/proposer.h"

/* --- Adopting a lease ------------------------------------------------------------- */

/* Ask all acceptors to keep the lease of this acquisition. The request has no attempt of
 * its own any more. */
static void adopt(struct sl_node *n, struct sl_now now, struct sl_proposer_request *r,
                  const struct sl_proposer_count *c)
{
    if (r->outstanding) sl_proposer_give_up(n, now, r);
    r->looks = false;
    r->adopts = true;
    r->adopts_grant = c->mine_agreed;
    r->fence = c->mine_fence;
    sl_proposer_start_round(n, now, r);
}

/* Whether a majority has the lease that most nodes have for this acquisition, or may have
 * it. */
static bool may_have_majority(const struct sl_proposer_count *c)
{
    return c->mine > 0 && c->mine + c->open + c->missing + c->silent >= c->majority;
}

/* Whether the votes show a lease of this acquisition that should be adopted. */
static bool should_adopt(const struct sl_proposer_request *r,
                         const struct sl_proposer_count *c)
{
    return c->mine_fence != r->lacked_fence &&
           (c->mine_agreed || c->mine >= c->majority);
}

/* Whether the votes show that the acquisition has ended. If an acceptor is not certain, the
 * attempt that it knows may not have been granted; but a majority of such acceptors may have
 * granted it. */
static bool has_ended(const struct sl_proposer_count *c)
{
    if (c->ended == 0 || may_have_majority(c)) return false;
    return c->ended_surely || c->ended + c->missing + c->silent >= c->majority;
}

bool sl_proposer_repeats(struct sl_node *n, struct sl_now now,
                         struct sl_proposer_request *r,
                         const struct sl_proposer_count *c)
{
    if (c->mine > 0 && should_adopt(r, c)) {
        if (c->mismatch) sl_proposer_finish(n, now, r, SLUICE_EMISMATCH);
        else adopt(n, now, r, c);
        return true;
    }
    if (c->yes + c->open >= c->majority || !has_ended(c)) return false;
    sl_proposer_cancel(n, now, r);
    sl_proposer_finish(n, now, r, SLUICE_EENDED);
    return true;
}

/* The lease was adopted by a majority, so it stays until its expiry, its release, or
 * CANCEL. All nodes had it after the round began, so it lasts for at least the shortest
 * time that they reported, from the beginning of the round. */
static void adopted(struct sl_node *n, struct sl_now now, struct sl_proposer_request *r,
                    sl_ms left_ms)
{
    const struct sl_proposer_vote *v = sl_proposer_vote_with_lease(n, r);
    r->adopts = false;
    r->lease_ms = left_ms;
    r->answer.grant = (struct sl_grant){
        .fence = r->fence,
        .held = 1,
        .lease_ms = left_ms,
        .waited_ms = r->waited_ms,
        .overlapping = (v->flags & SL_FLAG_OVERLAPPING) != 0,
        .replay = true};
    sl_proposer_announce_vote(n, now, r, v, SL_FLAG_ADOPTED);
    sl_proposer_note_grant(n, r);
    sl_proposer_finish(n, now, r, SLUICE_OK);
}

/* Too few nodes answered. A request that waits asks again. */
static void no_quorum(struct sl_node *n, struct sl_now now,
                      struct sl_proposer_request *r, const struct sl_proposer_count *c)
{
    r->outcome = SL_OUTCOME_NOQUORUM;
    sl_proposer_note_votes(r, c);
    if (sl_proposer_retry_for_membership(n, now, r, c)) return;
    bool over = !r->waits || now.ms >= r->wait_end_ms;
    if (over && c->yes >= c->majority)
        sl_proposer_finish_because(n, now, r, SLUICE_ENOQUORUM, SL_PROPOSER_MAY_HOLD);
    else if (over) sl_proposer_finish_no_quorum(n, now, r, c);
    else sl_proposer_try_again(n, r, now.ms + SL_PROPOSER_RETRY_MS / 2);
}

void sl_proposer_evaluate_adopt(struct sl_node *n, struct sl_now now,
                                struct sl_proposer_request *r,
                                const struct sl_proposer_count *c)
{
    if (c->yes >= c->majority) {
        r->end_ms = sl_ms_after(r->sent_ms, sl_node_shrink_ms(c->yes_left_ms));
        if (now.ms < r->end_ms) {
            adopted(n, now, r, c->yes_left_ms);
            return;
        }
    } else if (c->yes + c->open >= c->majority) return;
    bool queued = !r->waits || !sl_list_empty(&r->key_link);
    if (c->yes < c->majority && c->lacks <= c->members - c->majority) {
        r->adopts = !queued; /* Else it makes another attempt. */
        no_quorum(n, now, r, c);
        return;
    }
    /* The lease has ended; or it was an attempt that its proposer has given up. */
    r->adopts = false;
    r->lacked_fence = r->fence;
    if (r->adopts_grant) {
        sl_proposer_cancel(n, now, r);
        sl_proposer_finish(n, now, r, SLUICE_EENDED);
    } else if (!queued) {
        r->last = false;
        sl_proposer_end_round(n, r);
        sl_proposer_ask_acquire(n, now, r);
    } else sl_proposer_try_again(n, r, now.ms);
}

/* --- Looking for a lease ---------------------------------------------------------- */

void sl_proposer_evaluate_look(struct sl_node *n, struct sl_now now,
                               struct sl_proposer_request *r,
                               const struct sl_proposer_count *c)
{
    if (sl_proposer_repeats(n, now, r, c)) return;
    /* If the acquisition had an agreed lease, one node of any majority would have it. If a node has a lease of it,
     * the votes that are still open may show that it is agreed. */
    bool may_be_held = may_have_majority(c);
    if (may_be_held && c->open > 0) return;
    if (c->yes >= c->majority && !may_be_held) {
        r->looks = r->last = false;
        sl_proposer_end_round(n, r);
        sl_proposer_ask_acquire(n, now, r);
    } else if (may_be_held || c->yes + c->open < c->majority) no_quorum(n, now, r, c);
}

/* --- The position in the queue ----------------------------------------------------- */

void sl_proposer_keep_place(struct sl_node *n, struct sl_now now,
                            const struct sl_proposer_request *r)
{
    if (r->request == NULL || !r->waits || n->limits.linger_ms == 0) return;
    if (n->absent.index.count >= n->limits.requests_max) return;
    struct sl_node_acquisition *a = sl_node_acquisition_keep(
        n, &n->absent, sl_node_key_bytes(r->key), sl_node_text_bytes(r->request),
        sl_ms_after(now.ms, n->limits.linger_ms));
    if (a != NULL) a->place = r->place;
}

bool sl_proposer_take_place(struct sl_node *n, struct sl_proposer_request *r)
{
    if (r->request == NULL) return true;
    for (const struct sl_list *i = r->key->waiters.next; i != &r->key->waiters;
         i = i->next) {
        const struct sl_proposer_request *w = sl_container_of(
            i, const struct sl_proposer_request, key_link);
        if (!sl_proposer_same_acquisition(w, r)) continue;
        if (w->digest != r->digest) return false;
        r->place = w->place;
    }
    struct sl_node_acquisition *a = sl_node_acquisition_find(
        &n->absent, sl_node_key_bytes(r->key), sl_node_text_bytes(r->request));
    if (a == NULL) return true;
    if (a->place < r->place && n->now_ms < a->until_ms) r->place = a->place;
    sl_node_acquisition_forget(n, &n->absent, a);
    return true;
}

/* --- CANCEL ------------------------------------------------------------------------ */

void sl_proposer_ask_cancel(struct sl_node *n, struct sl_now now,
                            struct sl_proposer_request *r)
{
    struct sl_node_acquisition *a = sl_node_acquisition_find(
        &n->absent, sl_node_key_bytes(r->key), sl_node_text_bytes(r->request));
    if (a != NULL) {
        r->withdrew = now.ms < a->until_ms;
        sl_node_acquisition_forget(n, &n->absent, a);
    }
    for (struct sl_list *i = r->key->waiters.next, *next; i != &r->key->waiters;
         i = next) {
        struct sl_proposer_request *w = sl_container_of(i, struct sl_proposer_request,
                                                        key_link);
        next = i->next;
        if (!sl_proposer_same_acquisition(w, r)) continue;
        sl_proposer_cancel(n, now, w);
        sl_proposer_finish(n, now, w, SLUICE_EENDED);
        r->withdrew = true;
    }
    sl_proposer_start_round(n, now, r);
}

void sl_proposer_evaluate_cancel(struct sl_node *n, struct sl_now now,
                                 struct sl_proposer_request *r,
                                 const struct sl_proposer_count *c)
{
    uint32_t answered = c->yes + c->lacks;
    bool held = false;
    for (uint32_t i = 0; i < c->members; i++) {
        const struct sl_proposer_vote *v = &r->votes[i];
        if (v->verdict != SL_VERDICT_YES) continue;
        if ((v->flags & SL_FLAG_AGREED) != 0 ||
            sl_proposer_same_fence(r, c->members, v->fence) >= c->majority)
            held = true;
    }
    if (answered >= c->majority)
        sl_proposer_finish_with(n, now, r,
                                held                        ? 2
                                : c->yes > 0 || r->withdrew ? 1
                                                            : 0);
    else if (answered + c->open >= c->majority) return;
    else if (c->names > c->members - c->majority)
        sl_proposer_finish(n, now, r, SLUICE_EREQUESTS);
    else if (!sl_proposer_retry_for_membership(n, now, r, c))
        sl_proposer_finish_no_quorum(n, now, r, c);
}

/* --- Grants that no client has received --------------------------------------------- */

void sl_proposer_take_back(struct sl_node *n, struct sl_now now,
                           struct sl_proposer_request *r)
{
    struct sl_message m = sl_proposer_message(r);
    m.type = SL_MESSAGE_RELEASE;
    m.flags = SL_FLAG_UNLESS_ADOPTED;
    sl_node_broadcast(n, now, &m);
    sl_proposer_finish(n, now, r, SLUICE_OK);
}
