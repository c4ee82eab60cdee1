/* acceptor.c - how an acceptor votes. README.md states the rules and why they are
 * safe. */
#include <assert.h>

#include "majority/acceptor.h"
#include "majority/proposer.h"

/* --- Votes ------------------------------------------------------------------------ */

static void vote(struct sl_node *n, struct sl_now now, sl_node_id to,
                 const struct sl_message *m, struct sl_message *v,
                 enum sl_vote_verdict verdict)
{
    if (m->round == 0) return; /* The proposer does not want a vote. */
    v->type = SL_MESSAGE_VOTE;
    v->key = m->key; /* Not sent: the vote waits for the record of this key. */
    v->round = m->round;
    v->verdict = verdict;
    sl_node_send(n, now, to, v);
}

/* Fill in a vote with the state of a key at this acceptor. */
static void fill(const struct sl_node *n, struct sl_now now,
                 const struct sl_node_key *k, struct sl_message *v, bool with_texts)
{
    v->ceiling = n->floor;
    if (k == NULL) return;
    const struct sl_node_lease *l = &k->lease;
    if (k->seen_fence > v->ceiling) v->ceiling = k->seen_fence;
    if (k->reserved.live) {
        v->flags |= SL_FLAG_RESERVED;
        v->wanted = k->reserved.priority;
    }
    if (!l->live) return;
    v->fence = l->fence;
    v->owner = l->owner;
    v->priority = l->priority;
    v->left_ms = sl_node_lease_left_ms(l, now);
    if (l->agreed) v->flags |= SL_FLAG_AGREED;
    if (l->overlapping) v->flags |= SL_FLAG_OVERLAPPING;
    if (k->broken_fence == l->fence) v->flags |= SL_FLAG_BROKEN;
    if (!with_texts) return;
    v->stamp = l->stamp;
    v->value = sl_node_text_bytes(l->value);
    v->note = sl_node_text_bytes(l->note);
    v->client = sl_node_text_bytes(l->client);
    v->request = sl_node_text_bytes(l->request);
    v->digest = l->digest;
}

/* Say whether the lease of a key belongs to the acquisition of a message. */
static void fill_mine(const struct sl_node_key *k, const struct sl_message *m,
                      struct sl_message *v)
{
    if (k == NULL || !k->lease.live ||
        !sl_acceptor_is_of_acquisition(&k->lease, m->request))
        return;
    v->flags |= SL_FLAG_MINE;
    if (k->lease.digest != m->digest) v->flags |= SL_FLAG_MISMATCH;
}

/* Fill in a vote with the request that has the turn, instead of a lease. */
static void fill_turn(struct sl_now now, const struct sl_node_key *k,
                      struct sl_message *v)
{
    v->flags = SL_FLAG_TURN;
    v->fence = 0;
    v->owner = k->turn.rank.owner;
    v->priority = k->turn.rank.priority;
    v->left_ms = k->turn.end_ms - now.ms;
}

/* Returns how long a reservation lasts after the lease has ended. The stealing request
 * needs this time to ask again. */
static sl_ms reservation_ms(const struct sl_node *n)
{
    return 2 * sl_node_max_ms(sl_node_answer_ms(n), n->limits.answer_ms);
}

bool sl_acceptor_is_reserved(const struct sl_node_key *k, struct sl_attempt_id owner,
                             int32_t priority)
{
    return k->reserved.live && !sl_attempt_same(k->reserved.owner, owner) &&
           k->reserved.priority >= priority;
}

/* --- ACQUIRE ---------------------------------------------------------------------- */

/* Reserve the key for a stealing request that waits for a lease with a lower
 * priority. */
static void reserve(struct sl_node *n, struct sl_now now, struct sl_node_key *k,
                    const struct sl_message *m)
{
    struct sl_acceptor_reservation *r = &k->reserved;
    bool mine = r->live && sl_attempt_same(r->owner, m->owner);
    if (r->live && !mine && m->priority <= r->priority) return;
    sl_ms end_ms = sl_ms_after(k->lease.end_ms, reservation_ms(n));
    *r = (struct sl_acceptor_reservation){
        .live = true,
        .owner = m->owner,
        .priority = m->priority,
        .end_ms = mine ? sl_node_max_ms(end_ms, r->end_ms) : end_ms};
    if (k->lease.asked_ms < 0) {
        k->lease.asked_ms = now.ms;
        if (k->lease.agreed) sl_acceptor_publish(n, now, k, SL_NODE_EVENT_ASKED);
    }
    sl_node_key_schedule(n, k);
}

static bool outranks(const struct sl_message *m, const struct sl_node_lease *l)
{
    return m->priority > l->priority;
}

/* Whether this attempt asks the holder to release. An attempt that was given up does
 * not. */
static bool asks_holder(const struct sl_node_key *k, const struct sl_message *m,
                        sl_fence ceiling)
{
    if ((m->flags & SL_FLAG_STEAL) == 0 || !outranks(m, &k->lease)) return false;
    return m->fence > ceiling;
}

/* Whether a stealing request may overlap the holder's lease. */
static bool may_overlap(const struct sl_node_key *k, const struct sl_message *m)
{
    return (m->flags & SL_FLAG_FORCE) != 0 && (m->flags & SL_FLAG_STEAL) != 0 &&
           outranks(m, &k->lease);
}

static bool has_turn(const struct sl_node_key *k, struct sl_now now)
{
    return now.ms < k->turn.end_ms;
}

static struct sl_attempt_rank rank_of(const struct sl_message *m)
{
    return (struct sl_attempt_rank){m->priority, m->owner};
}

/* Handle a request that this acceptor rejects because of an attempt that may fail.
 * The request gets the turn if its rank is better than that of the attempt and of
 * all other requests that were rejected. */
static void take_turn(struct sl_node *n, struct sl_now now, struct sl_node_key *k,
                      const struct sl_message *m)
{
    const struct sl_node_lease *l = &k->lease;
    const struct sl_attempt_rank mine = rank_of(m);
    if (l->agreed ||
        !sl_attempt_comes_before(mine,
                                 (struct sl_attempt_rank){l->priority, l->owner}) ||
        (has_turn(k, now) && sl_attempt_comes_before(k->turn.rank, mine)))
        return;
    k->turn = (struct sl_acceptor_turn){mine, sl_ms_after(now.ms, reservation_ms(n))};
}

static bool is_turn_of_another(const struct sl_node_key *k, struct sl_now now,
                               const struct sl_message *m)
{
    return has_turn(k, now) && sl_attempt_comes_before(k->turn.rank, rank_of(m));
}

static void end_turn(struct sl_node_key *k, struct sl_attempt_id owner)
{
    if (sl_attempt_same(k->turn.rank.owner, owner)) k->turn.end_ms = 0;
}

/* Whether the attempt is already recorded. If so, do not record it again, because that
 * would undo later changes to the lease. */
static bool is_recorded(const struct sl_node_key *k, const struct sl_message *m)
{
    const struct sl_node_lease *l = &k->lease;
    return l->live && l->fence == m->fence && sl_attempt_same(l->owner, m->owner);
}

/* Whether the lease is a grant, or another proposer's attempt, of the acquisition for which
 * the message makes an attempt. A grant is not replaced, even by its own owner: the owner
 * does not know yet that the attempt was adopted. */
static bool repeats(const struct sl_node_lease *l, const struct sl_message *m)
{
    if (!l->live || !sl_acceptor_is_of_acquisition(l, m->request)) return false;
    if (!sl_attempt_same(l->owner, m->owner)) return true;
    return l->fence != m->fence && (l->agreed || l->adopted);
}

/* Whether the acquisition for which the message makes an attempt has ended here. If so,
 * says in the vote whether that is certain. */
static bool has_ended(const struct sl_node *n, const struct sl_node_key *k,
                      const struct sl_message *m, struct sl_message *v)
{
    if (k != NULL && k->lease.live &&
        sl_acceptor_is_of_acquisition(&k->lease, m->request))
        return false;
    bool stolen = k != NULL && sl_acceptor_is_of_acquisition(k->overlapped, m->request);
    const struct sl_node_acquisition *a = sl_acceptor_find_ended(n, m->key, m->request,
                                                                 m->owner);
    if (stolen || (a != NULL && a->sure)) v->flags |= SL_FLAG_SURE;
    return stolen || a != NULL;
}

/* Decide how to vote on an attempt. Sets *overlapping if it would overlap the lease
 * of another owner, and *turn if it is rejected because another request has the
 * turn. */
static enum sl_vote_verdict judge(struct sl_node *n, struct sl_now now,
                                  struct sl_node_key *k, const struct sl_message *m,
                                  struct sl_message *v, bool *overlapping, bool *turn)
{
    const struct sl_node_lease *l = &k->lease;
    sl_fence ceiling = k->seen_fence > n->floor ? k->seen_fence : n->floor;
    if (repeats(l, m)) {
        take_turn(n, now, k, m);
        return SL_VERDICT_HELD;
    }
    if (has_ended(n, k, m, v)) return SL_VERDICT_ENDED;
    if (!is_recorded(k, m) && sl_node_is_drained(n, m->key)) return SL_VERDICT_DRAINED;
    if (sl_acceptor_is_reserved(k, m->owner, m->priority)) return SL_VERDICT_RESERVED;
    if (k->reserved.live && sl_attempt_same(k->reserved.owner, m->owner)) {
        k->reserved.end_ms = sl_node_max_ms(k->reserved.end_ms,
                                            sl_ms_after(now.ms, reservation_ms(n)));
        sl_node_key_schedule(n, k);
    }
    if (l->live && !sl_attempt_same(l->owner, m->owner)) {
        if (asks_holder(k, m, ceiling)) reserve(n, now, k, m);
        if (!may_overlap(k, m)) {
            take_turn(n, now, k, m);
            return SL_VERDICT_HELD;
        }
        *overlapping = true;
    }
    if (is_recorded(k, m)) return SL_VERDICT_YES;
    if (is_turn_of_another(k, now, m)) {
        *turn = true;
        return SL_VERDICT_RESERVED;
    }
    if (m->fence <= ceiling || sl_acceptor_is_over(k, m->fence))
        return SL_VERDICT_FENCE;
    if (m->request.n > 0 && n->limits.requests_max == 0) return SL_VERDICT_NAMES;
    return SL_VERDICT_YES;
}

static void on_acquire(struct sl_node *n, struct sl_now now, sl_node_id from,
                       const struct sl_message *m)
{
    struct sl_message v = {0};
    int status;
    bool overlapping = false, turn = false;
    if (!sl_node_is_plausible(n, now, m->fence)) {
        vote(n, now, from, m, &v, SL_VERDICT_CLOCK);
        return;
    }
    struct sl_node_key *k = sl_node_key_get(n, now, m->key, &status);
    if (k == NULL) {
        vote(n, now, from, m, &v, SL_VERDICT_FULL);
        return;
    }
    sl_acceptor_settle(n, now, k);
    enum sl_vote_verdict verdict = judge(n, now, k, m, &v, &overlapping, &turn);
    bool recorded = is_recorded(k, m);
    if (verdict == SL_VERDICT_YES) {
        if (!recorded && !sl_node_may_vote(n, now, m->fence)) {
            sl_node_defer(n, from, m);
            return;
        }
        if (overlapping && !sl_acceptor_set_aside(n, k))
            return; /* Treat the message as lost. */
        if (!recorded && !sl_acceptor_record(n, now, k, m, overlapping)) {
            if (overlapping && sl_acceptor_restore(n, now, k))
                sl_node_key_schedule(n, k);
            return;
        }
        end_turn(k, m->owner);
        if (k->lease.overlapping) v.flags |= SL_FLAG_OVERLAPPING;
        v.ceiling = k->seen_fence;
    } else fill(n, now, k, &v, (m->flags & SL_FLAG_STEAL) != 0);
    if (verdict == SL_VERDICT_HELD) fill_mine(k, m, &v);
    if (turn) fill_turn(now, k, &v);
    vote(n, now, from, m, &v, verdict);
}

/* --- RENEW, ADOPT, RELEASE, CANCEL, END ------------------------------------------------------- */

/* Whether the lease with this fence is overlapped by a stealing request, which may not
 * be granted yet. */
static bool is_overlapped(const struct sl_node_key *k, sl_fence fence)
{
    return k != NULL && k->overlapped != NULL && k->overlapped->fence == fence;
}

/* Whether the holder was asked to release. */
static bool is_asked(const struct sl_node_key *k)
{
    return sl_acceptor_is_reserved(k, k->lease.owner, k->lease.priority);
}

/* Extend the lease. Returns false when out of memory; then nothing has changed. */
static bool extend(struct sl_node *n, struct sl_now now, struct sl_node_key *k,
                   const struct sl_message *m)
{
    struct sl_node_lease *l = &k->lease;
    sl_ms end_ms = sl_ms_after(now.ms, m->lease_ms + SL_NODE_GRAIN_MS);
    if ((m->flags & SL_FLAG_VALUE) != 0) {
        if (!sl_node_text_set(n, &l->value, m->value)) return false;
        l->stamp = m->stamp;
    }
    l->end_ms = sl_node_max_ms(l->end_ms, end_ms);
    l->lease_ms = m->lease_ms;
    l->copied = false;
    l->adopted = true; /* A client that extends it has received it. */
    sl_acceptor_count_length(n, l, m->lease_ms);
    sl_node_key_schedule(n, k);
    return true;
}

/* Whether a newer value arrived before this one. */
static bool is_old_value(const struct sl_node_key *k, const struct sl_message *m)
{
    return (m->flags & SL_FLAG_VALUE) != 0 && m->stamp < k->lease.stamp;
}

/* Whether an operator has broken the lease with this fence. */
static bool is_broken(const struct sl_node_key *k, sl_fence fence)
{
    return k != NULL && k->broken_fence == fence;
}

static void on_renew(struct sl_node *n, struct sl_now now, sl_node_id from,
                     const struct sl_message *m)
{
    struct sl_message v = {0};
    enum sl_vote_verdict verdict = SL_VERDICT_YES;
    struct sl_node_key *k = sl_node_key_find(n, m->key);
    if (k != NULL) sl_acceptor_settle(n, now, k);
    if (is_broken(k, m->fence)) verdict = SL_VERDICT_LACKS;
    else if (is_overlapped(k, m->fence)) verdict = SL_VERDICT_RESERVED;
    else if (!sl_node_key_has(k, m->fence)) verdict = SL_VERDICT_LACKS;
    else if (k->lease.stolen) verdict = SL_VERDICT_RESERVED;
    else if (is_asked(k)) verdict = SL_VERDICT_RESERVED;
    else if (is_old_value(k, m)) verdict = SL_VERDICT_FENCE;
    else if (!extend(n, now, k, m)) return; /* Treat the message as lost. */
    fill(n, now, k, &v, verdict == SL_VERDICT_YES);
    if (verdict == SL_VERDICT_FENCE && k->lease.stamp > v.ceiling)
        v.ceiling = k->lease.stamp;
    vote(n, now, from, m, &v, verdict);
}

/* Whether the recorded lease is an earlier attempt of the owner that gives up the attempt
 * in `m`. Giving up an attempt also gives up the owner's earlier attempts. */
static bool is_earlier_attempt(const struct sl_node_key *k, const struct sl_message *m)
{
    const struct sl_node_lease *l = &k->lease;
    return (m->flags & SL_FLAG_FINAL) == 0 && l->live && !l->agreed && !l->adopted &&
           sl_attempt_same(l->owner, m->owner) && l->fence < m->fence;
}

/* Whether the message ends the recorded lease. An attempt that its proposer gives up may
 * have been agreed or adopted by another proposer; then it continues. */
static bool is_named(const struct sl_node_key *k, const struct sl_message *m)
{
    bool final = (m->flags & SL_FLAG_FINAL) != 0,
         unless_adopted = (m->flags & SL_FLAG_UNLESS_ADOPTED) != 0;
    if (!sl_node_key_has(k, m->fence)) return k != NULL && is_earlier_attempt(k, m);
    if (final || k->lease.request == NULL) return true;
    return !k->lease.adopted && (unless_adopted || !k->lease.agreed);
}

/* Remember the fence of an attempt that was given up, so that the acceptor rejects
 * the attempt if it arrives later. */
static void remember_given_up(struct sl_node *n, struct sl_now now,
                              const struct sl_message *m)
{
    int status;
    struct sl_node_key *k = sl_node_key_get(n, now, m->key, &status);
    if (k == NULL || !sl_node_is_plausible(n, now, m->fence)) return;
    end_turn(k, m->owner);
    if (m->fence > k->seen_fence) k->seen_fence = m->fence;
}

/* The request whose stealing reservation this is now has a lease that ends. */
static void end_own_reservation(struct sl_node_key *k)
{
    if (k->reserved.live && sl_attempt_same(k->reserved.owner, k->lease.owner))
        k->reserved.live = false;
}

/* A client has released the lease, or its acquisition: no attempt may be granted. */
static void end_for_good(struct sl_node *n, const struct sl_node_key *k,
                         const struct sl_node_lease *l)
{
    const struct sl_attempt_id none = {0};
    if (l->request != NULL)
        sl_acceptor_remember_ended(n, sl_node_key_bytes(k),
                                   sl_node_text_bytes(l->request), none, true);
}

/* An operator ends a lease. Its holder may still use the resource. */
static void break_now(struct sl_node_key *k, const struct sl_node_lease *l)
{
    k->overlaps_until_ms = sl_node_max_ms(k->overlaps_until_ms, l->end_ms);
}

static void publish_release(struct sl_node *n, struct sl_now now, struct sl_node_key *k,
                            sl_fence fence, bool broken)
{
    if (broken) sl_acceptor_publish_broken(n, now, k, fence, true, is_broken(k, fence));
    else sl_acceptor_publish_end(n, now, k, fence, SL_NODE_EVENT_RELEASED);
}

static void on_release(struct sl_node *n, struct sl_now now, sl_node_id from,
                       const struct sl_message *m)
{
    struct sl_message v = {0};
    int status;
    bool final = (m->flags & SL_FLAG_FINAL) != 0,
         unless_adopted = (m->flags & SL_FLAG_UNLESS_ADOPTED) != 0,
         broken = final && (m->flags & SL_FLAG_BROKEN) != 0;
    /* The release may arrive before the attempt that it releases. */
    struct sl_node_key *k = sl_node_key_get(n, now, m->key, &status);
    if (k != NULL) sl_acceptor_settle(n, now, k);
    bool was = is_named(k, m);
    if (was) {
        if (broken) break_now(k, &k->lease);
        if (final || unless_adopted) publish_release(n, now, k, m->fence, broken);
        if (final) end_own_reservation(k);
        if (final) end_for_good(n, k, &k->lease);
        sl_acceptor_end_lease(n, now, k, !final && !unless_adopted);
        sl_node_key_schedule(n, k);
    } else if (final && is_overlapped(k, m->fence)) {
        was = true;
        if (broken) break_now(k, k->overlapped);
        publish_release(n, now, k, m->fence, broken);
        if (m->fence > k->past_fence) k->past_fence = m->fence;
        end_for_good(n, k, k->overlapped);
        sl_node_lease_free(n, &k->overlapped);
    } else if (k != NULL && final) {
        publish_release(n, now, k, m->fence, broken);
        if (m->fence == k->lapsed_fence) k->lapsed_fence = 0;
        sl_proposer_wake(n, now, k);
    }
    if (!final) remember_given_up(n, now, m);
    else if (k != NULL && m->fence <= k->seen_fence && m->fence > k->released_fence)
        k->released_fence = m->fence;
    vote(n, now, from, m, &v, was ? SL_VERDICT_YES : SL_VERDICT_LACKS);
}

static void on_cancel(struct sl_node *n, struct sl_now now, const struct sl_message *m)
{
    struct sl_node_key *k = sl_node_key_find(n, m->key);
    if (k == NULL || !k->reserved.live || !sl_attempt_same(k->reserved.owner, m->owner))
        return;
    sl_acceptor_end_reservation(n, now, k);
    sl_node_key_schedule(n, k);
    sl_proposer_wake(n, now, k);
}

/* An operator breaks a lease: from now on, this acceptor does not extend it. */
static void on_break(struct sl_node *n, struct sl_now now, sl_node_id from,
                     const struct sl_message *m)
{
    struct sl_message v = {0};
    struct sl_node_key *k = sl_node_key_find(n, m->key);
    if (k != NULL) sl_acceptor_settle(n, now, k);
    bool has = sl_node_key_has(k, m->fence);
    if (has) sl_acceptor_break(n, now, k);
    bool was = has || is_overlapped(k, m->fence);
    fill(n, now, k, &v, has);
    vote(n, now, from, m, &v, was ? SL_VERDICT_YES : SL_VERDICT_LACKS);
}

/* A repeated request has found this lease, which belongs to another attempt of the same
 * acquisition. From now on, the lease does not end if the proposer gives up that attempt. */
static void on_adopt(struct sl_node *n, struct sl_now now, sl_node_id from,
                     const struct sl_message *m)
{
    struct sl_message v = {0};
    struct sl_node_key *k = sl_node_key_find(n, m->key);
    if (k != NULL) sl_acceptor_settle(n, now, k);
    bool has = sl_node_key_has(k, m->fence);
    if (has) k->lease.adopted = true;
    fill(n, now, k, &v, has);
    vote(n, now, from, m, &v, has ? SL_VERDICT_YES : SL_VERDICT_LACKS);
}

/* End the lease of an acquisition, and fill in the vote with it. Returns false if there is
 * none. */
static bool end_lease_of(struct sl_node *n, struct sl_now now, struct sl_node_key *k,
                         struct sl_bytes request, struct sl_message *v)
{
    bool is_lease = k->lease.live && sl_acceptor_is_of_acquisition(&k->lease, request);
    const struct sl_node_lease *l = is_lease ? &k->lease : k->overlapped;
    if (!is_lease && !sl_acceptor_is_of_acquisition(k->overlapped, request))
        return false;
    v->fence = l->fence;
    if (l->agreed) v->flags |= SL_FLAG_AGREED;
    sl_acceptor_publish_end(n, now, k, v->fence, SL_NODE_EVENT_RELEASED);
    if (is_lease) {
        end_own_reservation(k);
        sl_acceptor_end_lease(n, now, k, false);
        sl_node_key_schedule(n, k);
    } else {
        if (v->fence > k->past_fence) k->past_fence = v->fence;
        sl_node_lease_free(n, &k->overlapped);
    }
    if (v->fence > k->released_fence) k->released_fence = v->fence;
    return true;
}

/* The client has cancelled an acquisition. The acceptor remembers that even if it knows
 * nothing of the acquisition, because an attempt may arrive later. */
static void on_end(struct sl_node *n, struct sl_now now, sl_node_id from,
                   const struct sl_message *m)
{
    const struct sl_attempt_id none = {0};
    struct sl_message v = {0};
    struct sl_node_key *k = sl_node_key_find(n, m->key);
    if (m->request.n == 0) return;
    if (k != NULL) sl_acceptor_settle(n, now, k);
    if (n->limits.requests_max == 0) {
        vote(n, now, from, m, &v, SL_VERDICT_NAMES);
        return;
    }
    if (!sl_acceptor_remember_ended(n, m->key, m->request, none, true))
        return; /* Treat the message as lost. */
    if (k != NULL && sl_acceptor_is_of_acquisition(k->learned, m->request))
        sl_node_lease_free(n, &k->learned);
    bool was = k != NULL && end_lease_of(n, now, k, m->request, &v);
    vote(n, now, from, m, &v, was ? SL_VERDICT_YES : SL_VERDICT_LACKS);
}

static void on_look(struct sl_node *n, struct sl_now now, sl_node_id from,
                    const struct sl_message *m)
{
    struct sl_message v = {0};
    struct sl_node_key *k = sl_node_key_find(n, m->key);
    if (k != NULL) sl_acceptor_settle(n, now, k);
    bool ended = has_ended(n, k, m, &v);
    fill(n, now, k, &v, true);
    fill_mine(k, m, &v);
    vote(n, now, from, m, &v, ended ? SL_VERDICT_ENDED : SL_VERDICT_YES);
}

/* --- Receiving a message ---------------------------------------------------------- */

static bool is_silent(const struct sl_node *n, struct sl_now now)
{
    return now.ms < n->silent_ms;
}

/* Whether this acceptor votes on this message at all. If not, tells the proposer
 * why. */
static bool takes_part(struct sl_node *n, struct sl_now now, sl_node_id from,
                       const struct sl_message *m)
{
    struct sl_message v = {0};
    bool known = sl_node_is_member(n) && sl_membership_find(&n->kept.force, from) >= 0;
    /* Giving up an attempt is safe under any membership. */
    bool given_up = m->type == SL_MESSAGE_RELEASE && (m->flags & SL_FLAG_FINAL) == 0;
    known = known && (given_up || m->version == n->kept.force.version);
    if (!known) vote(n, now, from, m, &v, SL_VERDICT_STRANGER);
    else if (is_silent(n, now)) {
        v.left_ms = n->silent_ms - now.ms;
        vote(n, now, from, m, &v, SL_VERDICT_SILENT);
    } else return true;
    return false;
}

/* Handle a message about a key in which this acceptor takes part. */
static void handle(struct sl_node *n, struct sl_now now, sl_node_id from,
                   const struct sl_message *m)
{
    switch (m->type) {
        case SL_MESSAGE_ACQUIRE: on_acquire(n, now, from, m); break;
        case SL_MESSAGE_RENEW: on_renew(n, now, from, m); break;
        case SL_MESSAGE_RELEASE: on_release(n, now, from, m); break;
        case SL_MESSAGE_CANCEL: on_cancel(n, now, m); break;
        case SL_MESSAGE_TEACH: sl_acceptor_receive_teach(n, now, from, m); break;
        case SL_MESSAGE_ADOPT: on_adopt(n, now, from, m); break;
        case SL_MESSAGE_BREAK: on_break(n, now, from, m); break;
        case SL_MESSAGE_END: on_end(n, now, from, m); break;
        case SL_MESSAGE_LOOK: on_look(n, now, from, m); break;
        default: break;
    }
}

void sl_acceptor_receive(struct sl_node *n, struct sl_now now, sl_node_id from,
                         const struct sl_message *m)
{
    if (m->key.n == 0 || m->lease_ms < 0) return;
    if (!takes_part(n, now, from, m)) return;
    if (m->key.n > n->limits.key_bytes_max || m->lease_ms > n->limits.lease_max_ms ||
        m->request.n > SL_NODE_REQUEST_BYTES_MAX) {
        struct sl_message v = {0};
        vote(n, now, from, m, &v, SL_VERDICT_BIG);
        return;
    }
    /* Without a record there is no vote. The proposer treats the message as lost. */
    if (sl_node_cannot_record(n)) return;
    struct sl_node_key *k = sl_node_key_find(n, m->key);
    if (k != NULL && k->deferred_count > 0 && m->type != SL_MESSAGE_LOOK) {
        sl_node_defer(n, from, m); /* After the earlier ones. */
        return;
    }
    /* An answer may leave while the message is handled, so mark the key before and after. */
    if (k != NULL) sl_node_key_changed(n, k);
    handle(n, now, from, m);
    k = sl_node_key_find(n, m->key);
    if (k != NULL) sl_node_key_changed(n, k);
}
