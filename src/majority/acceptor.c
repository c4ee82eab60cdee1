/* voter.c - what is known of each key, and what a voter says. The rules are those of
 * README.md; where one is left out in a build for tests, MUT_ says which. */
#include <string.h>

#include "majority/node_internal.h"

/* --- Places ------------------------------------------------------------------------ */

struct sl_bytes sl_node_key_key(const struct sl_node_key *p)
{
    return (struct sl_bytes){p->key, p->key_n};
}

static uint64_t hash_place(const void *item, const struct sl_index *x)
{
    const struct sl_node_key *p = item;
    return sl_hash(x->key, p->key, p->key_n);
}

static bool same_place(const void *item, struct sl_bytes key)
{
    const struct sl_node_key *p = item;
    return p->key_n == key.n && memcmp(p->key, key.at, key.n) == 0;
}

const struct sl_index_kind sl_places_kind = {.hash = hash_place, .same = same_place};

struct sl_node_key *sl_node_key_find(const struct sl_node *n, struct sl_bytes key)
{
    return sl_index_find(&n->places, key, sl_hash(n->places.key, key.at, key.n));
}

static struct sl_node_key *make_place(struct sl_node *n, struct sl_now now,
                                      struct sl_bytes key)
{
    uint32_t out = (uint32_t)n->places.count - n->place_ends.count;
    if (sl_index_reserve(&n->places) != SLUICE_OK ||
        sl_heap_reserve(&n->place_ends, out + 1) != SLUICE_OK)
        return NULL;
    struct sl_node_key *p = sl_block_new(n, sizeof *p + key.n);
    if (p == NULL) return NULL;
    sl_list_init(&p->waiters);
    sl_list_init(&p->watchers);
    p->due = SL_HEAP_NONE;
    p->idle_ms = now.ms;
    p->lease.asked_ms = -1;
    p->key_n = (uint32_t)key.n;
    memcpy(p->key, key.at, key.n);
    sl_index_put(&n->places, p, hash_place(p, &n->places));
    sl_node_key_schedule(n, now, p);
    return p;
}

struct sl_node_key *sl_node_key_get(struct sl_node *n, struct sl_now now,
                                    struct sl_bytes key, int *status)
{
    struct sl_node_key *p = sl_node_key_find(n, key);
    *status = SLUICE_OK;
    if (p != NULL) return p;
    *status = SLUICE_EKEYS;
    if (n->places.count >= n->limits.keys_max) return NULL;
    *status = SLUICE_ENOMEM;
    p = make_place(n, now, key);
    if (p != NULL) *status = SLUICE_OK;
    return p;
}

static void free_lease(struct sl_node *n, struct sl_node_lease *l)
{
    sl_node_text_drop(n, l->value);
    sl_node_text_drop(n, l->note);
    *l = (struct sl_node_lease){.asked_ms = -1};
}

static void drop(struct sl_node *n, struct sl_node_lease **l)
{
    if (*l == NULL) return;
    if ((*l)->length > 0) n->lengths[(*l)->length - 1]--;
    free_lease(n, *l);
    sl_block_free(n, *l, sizeof **l);
    *l = NULL;
}

/* Nobody acts beside any more. */
static void drop_beside(struct sl_node *n, struct sl_node_key *p)
{
    drop(n, &p->beside);
}

static void tell_lapsed(struct sl_node *n, struct sl_now now, struct sl_node_key *p);

void sl_node_key_free(struct sl_node *n, struct sl_now now, struct sl_node_key *p)
{
    tell_lapsed(n, now, p);
    if (p->due != SL_HEAP_NONE) sl_heap_remove(&n->place_ends, p->due);
    if (p->seen > n->floor) n->floor = p->seen;
    free_lease(n, &p->lease);
    drop(n, &p->beside);
    drop(n, &p->lesson);
    sl_index_remove(&n->places, p, hash_place(p, &n->places));
    sl_block_free(n, p, sizeof *p + p->key_n);
}

static sl_ms due_of(const struct sl_node *n, const struct sl_node_key *p)
{
    sl_ms due = SL_NEVER;
    if (p->lease.live) due = p->lease.end_ms;
    if (p->reserved.live && p->reserved.end_ms < due) due = p->reserved.end_ms;
    if (due != SL_NEVER || p->requests > 0 || p->stashed > 0) return due;
    bool unused = p->seen == 0 && p->past == 0 && p->told_next == 0;
    return unused ? p->idle_ms : sl_ms_after(p->idle_ms, n->limits.forget_ms);
}

void sl_node_key_schedule(struct sl_node *n, struct sl_now now, struct sl_node_key *p)
{
    sl_ms due = due_of(n, p);
    (void)now;
    if (p->due != SL_HEAP_NONE && due == SL_NEVER)
        sl_heap_remove(&n->place_ends, p->due);
    else if (p->due != SL_HEAP_NONE) sl_heap_move(&n->place_ends, p->due, due);
    else if (due != SL_NEVER) sl_heap_put(&n->place_ends, due, p);
}

/* --- How long leases are ------------------------------------------------------------- */

/* A lease counts as long as the longest that was voted for under its fence. */
static void count_length(struct sl_node *n, struct sl_node_lease *l, sl_ms lease_ms)
{
    size_t length = sl_length_of(lease_ms) + 1;
    if (length <= l->length) return;
    if (l->length > 0) n->lengths[l->length - 1]--;
    n->lengths[length - 1]++;
    l->length = length;
}

/* It has ended, or was given back: nobody relies on it any more. */
static void uncount_length(struct sl_node *n, struct sl_now now,
                           struct sl_node_lease *l)
{
    if (l->length == 0) return;
    n->lengths[l->length - 1]--;
    n->lengths_ms[l->length - 1] = now.ms;
    l->length = 0;
}

/* After a short one another as short is expected; a long one is not. */
sl_ms sl_longest_lease(const struct sl_node *n, struct sl_now now)
{
    sl_ms most = 0;
    for (size_t i = 0; i < SL_LENGTHS; i++) {
        bool lately = n->lengths_ms[i] != 0 && sl_length_ms(i) <= SL_FOLLOW_MS &&
                      now.ms - n->lengths_ms[i] < SL_FOLLOW_MS;
        if (n->lengths[i] > 0 || lately) most = sl_length_ms(i);
    }
    return most;
}

/* --- Leases and reservations come and go ---------------------------------------------- */

/* As its holder counts it. */
static sl_ms left_of(const struct sl_node_lease *l, struct sl_now now)
{
    sl_ms left = l->end_ms - SL_GRAIN_MS - now.ms;
    return left > 0 ? left : 0;
}

static void tell(struct sl_node *n, struct sl_now now, const struct sl_node_key *p,
                 enum sl_node_event_type type)
{
    const struct sl_node_lease *l = &p->lease;
    struct sl_node_event e = {.type = type,
                              .key = sl_node_key_key(p),
                              .fence = l->fence,
                              .session = l->session,
                              .lease_ms = l->lease_ms,
                              .left_ms = left_of(l, now),
                              .asked_ms = l->asked_ms < 0 ? -1 : now.ms - l->asked_ms,
                              .priority = p->reserved.priority,
                              .overlapping = l->overlapping};
    sl_tell(n, &e);
}

static struct sl_told *told_of(struct sl_node_key *p, sl_fence fence)
{
    for (size_t i = 0; i < SL_TOLD; i++)
        if (p->told[i].fence == fence) return &p->told[i];
    struct sl_told *t = &p->told[p->told_next++ % SL_TOLD];
    *t = (struct sl_told){.fence = fence};
    return t;
}

/* Whether it is known to be over: what comes late of it is of no use. */
static bool is_over(const struct sl_node_key *p, sl_fence fence)
{
    for (size_t i = 0; i < SL_TOLD; i++)
        if (p->told[i].fence == fence) return p->told[i].over;
    return false;
}

static struct sl_node_event event_of(const struct sl_node_key *p, sl_fence fence,
                                     enum sl_node_event_type type)
{
    struct sl_node_event e = {
        .type = type, .key = sl_node_key_key(p), .fence = fence, .asked_ms = -1};
    if (p->lease.live && p->lease.fence == fence) e.session = p->lease.session;
    else if (p->taken_fence == fence) e.session = p->taken_session;
    return e;
}

/* It was granted, says this lesson; its end may be known before that. */
static void tell_granted(struct sl_node *n, struct sl_node_key *p,
                         const struct sl_message *m)
{
    struct sl_told *t = told_of(p, m->fence);
    struct sl_node_event e = event_of(p, m->fence, SL_NODE_EVENT_GRANTED);
    if (t->granted) return;
    t->granted = true;
    e.lease_ms = m->lease_ms;
    e.waited_ms = m->waited_ms;
    e.overlapping = (m->flags & SL_FLAG_OVERLAPPING) != 0;
    sl_tell(n, &e);
    e.type = t->how;
    if (t->over) sl_tell(n, &e);
}

static void tell_over(struct sl_node *n, struct sl_now now, struct sl_node_key *p,
                      sl_fence fence, enum sl_node_event_type how)
{
    struct sl_told *t = told_of(p, fence);
    struct sl_node_event e = event_of(p, fence, how);
    const struct sl_node_lease *l = &p->lease;
    if (t->over) return;
    t->over = true;
    t->how = how;
    if (l->live && l->fence == fence && l->asked_ms >= 0)
        e.asked_ms = now.ms - l->asked_ms;
    if (t->granted) sl_tell(n, &e);
}

/* Publish the expiry of a copied lease that expired here, if no extension was reported since: now
 * we forget the key, or a later lease of it is agreed. */
static void tell_lapsed(struct sl_node *n, struct sl_now now, struct sl_node_key *p)
{
    if (p->lapsed != 0) tell_over(n, now, p, p->lapsed, SL_NODE_EVENT_EXPIRED);
    p->lapsed = 0;
}

/* The thief's lease is over, or was given up: who was there before it may act still. */
static bool put_back(struct sl_node *n, struct sl_now now, struct sl_node_key *p)
{
    if (p->beside == NULL) return false;
    bool over = now.ms >= p->beside->end_ms;
#ifdef MUT_ROBBED
    over = true;
#endif
    if (over) {
        drop_beside(n, p);
        return false;
    }
    p->lease = *p->beside;
    sl_block_free(n, p->beside, sizeof *p->beside);
    p->beside = NULL;
    n->lease_count++;
    return true;
}

static void take_lesson(struct sl_node *n, struct sl_now now, struct sl_node_key *p);

/* There is no lease any more. If it was not given up it may have been a grant, whoever knows
 * of it. */
static void end_lease(struct sl_node *n, struct sl_now now, struct sl_node_key *p,
                      bool given_up)
{
    struct sl_node_lease *l = &p->lease;
    l->overlapping = false; /* Nobody entered beside this one. */
    if (l->agreed && l->asked_ms >= 0 && !l->stolen)
        tell(n, now, p, SL_NODE_EVENT_STOLEN);
    if (!given_up && l->fence > p->past) p->past = l->fence;
    n->lease_count--;
    uncount_length(n, now, l);
    free_lease(n, l);
    p->idle_ms = now.ms;
    if (put_back(n, now, p)) return;
    if (given_up) take_lesson(n, now, p);
    sl_proposer_wake(n, now, p);
}

static void end_reservation(struct sl_node *n, struct sl_now now, struct sl_node_key *p)
{
    p->reserved.live = false;
    p->idle_ms = now.ms;
    if (!p->lease.live || p->lease.asked_ms < 0) return;
    if (p->lease.agreed) tell(n, now, p, SL_NODE_EVENT_WITHDRAWN);
    p->lease.asked_ms = -1;
}

/* The lease expires here. If the voter has it only from the copy of another node, it may still be
 * in force elsewhere: that node may have missed an extension. */
static void expire(struct sl_node *n, struct sl_now now, struct sl_node_key *p)
{
    bool copied = p->lease.copied;
#ifdef MUT_HEARSAY
    copied = false;
#endif
    if (p->lease.agreed && !p->lease.stolen) {
        if (copied) p->lapsed = p->lease.fence;
        else tell_over(n, now, p, p->lease.fence, SL_NODE_EVENT_EXPIRED);
    }
    end_lease(n, now, p, false);
}

void sl_node_key_settle(struct sl_node *n, struct sl_now now, struct sl_node_key *p)
{
    bool changed = false;
    if (p->lease.live && now.ms >= p->lease.end_ms) {
        expire(n, now, p);
        changed = true;
    }
    if (p->reserved.live && now.ms >= p->reserved.end_ms) {
        end_reservation(n, now, p);
        changed = true;
    }
    if (changed) sl_node_key_schedule(n, now, p);
}

/* As many as fit into a turn of a server's loop: the rest is due still. */
#define ENDS_A_TICK 1000

void sl_acceptor_tick(struct sl_node *n, struct sl_now now)
{
    for (int i = 0; i < ENDS_A_TICK && n->place_ends.count > 0 &&
                    n->place_ends.items[0].at <= now.ms;
         i++) {
        struct sl_node_key *p = n->place_ends.items[0].owner;
        sl_node_key_settle(n, now, p);
        if (due_of(n, p) > now.ms) sl_node_key_schedule(n, now, p);
        else if (!p->lease.live && !p->reserved.live) sl_node_key_free(n, now, p);
    }
}

/* --- Votes ------------------------------------------------------------------------- */

static void vote(struct sl_node *n, struct sl_now now, sl_node_id to,
                 const struct sl_message *m, struct sl_message *v,
                 enum sl_vote_verdict verdict)
{
    if (m->round == 0) return;
    v->type = SL_MESSAGE_VOTE;
    v->round = m->round;
    v->verdict = verdict;
    sl_send(n, now, to, v);
}

/* What stands here, into a vote. */
static void fill(const struct sl_node *n, struct sl_now now,
                 const struct sl_node_key *p, struct sl_message *v, bool with_texts)
{
    v->ceiling = n->floor;
    if (p == NULL) return;
    const struct sl_node_lease *l = &p->lease;
    if (p->seen > v->ceiling) v->ceiling = p->seen;
    if (p->reserved.live) {
        v->flags |= SL_FLAG_RESERVED;
        v->wanted = p->reserved.priority;
    }
    if (!l->live) return;
    v->fence = l->fence;
    v->owner = l->owner;
    v->priority = l->priority;
    v->left_ms = left_of(l, now);
    if (l->agreed) v->flags |= SL_FLAG_AGREED;
    if (l->overlapping) v->flags |= SL_FLAG_OVERLAPPING;
    if (!with_texts) return;
    v->stamp = l->stamp;
    v->value = sl_node_text_bytes(l->value);
    v->note = sl_node_text_bytes(l->note);
}

/* Report the request that has the turn, instead of a lease. */
static void fill_turn(struct sl_now now, const struct sl_node_key *p,
                      struct sl_message *v)
{
    v->flags = SL_FLAG_TURN;
    v->fence = 0;
    v->owner = p->turn.rank.owner;
    v->priority = p->turn.rank.priority;
    v->left_ms = p->turn.end_ms - now.ms;
}

/* How long a reservation outlives what it waits for: long enough to ask again. */
static sl_ms reservation_ms(const struct sl_node *n)
{
    sl_ms answer = sl_answer_ms(n);
    return 2 * (answer > n->limits.answer_ms ? answer : n->limits.answer_ms);
}

static bool is_reserved_for_another(const struct sl_node_key *p,
                                    struct sl_attempt_id owner, int32_t priority)
{
    return p->reserved.live && !sl_owner_is(p->reserved.owner, owner) &&
           p->reserved.priority >= priority;
}

/* Bytes of a message are its caller's, and may be this place's own. */
static bool set_texts(struct sl_node *n, struct sl_node_lease *l,
                      const struct sl_message *m)
{
    struct sl_node_text *value = sl_node_text_new(n, m->value),
                        *note = sl_node_text_new(n, m->note);
    if ((m->value.n > 0 && value == NULL) || (m->note.n > 0 && note == NULL)) {
        sl_node_text_drop(n, value);
        sl_node_text_drop(n, note);
        return false;
    }
    sl_node_text_drop(n, l->value);
    sl_node_text_drop(n, l->note);
    l->value = value;
    l->note = note;
    return true;
}

static sl_ms later(sl_ms a, sl_ms b)
{
    return a > b ? a : b;
}

/* A lease stands here from now on. False: no memory, and nothing has changed. */
static bool record(struct sl_node *n, struct sl_now now, struct sl_node_key *p,
                   const struct sl_message *m, bool overlapping)
{
    struct sl_node_lease *l = &p->lease;
    sl_ms end_ms = sl_ms_after(now.ms, m->lease_ms + SL_GRAIN_MS);
#ifdef MUT_EARLY
    end_ms = sl_ms_after(now.ms, sl_shrink(m->lease_ms));
#endif
    if (!set_texts(n, l, m)) return false;
    if (l->live && sl_owner_is(l->owner, m->owner)) end_ms = later(end_ms, l->end_ms);
    bool same = l->live && l->fence == m->fence;
    if (p->beside != NULL && now.ms < p->beside->end_ms) overlapping = true;
    if (!l->live) n->lease_count++;
    l->live = true;
    l->agreed = same && l->agreed;
    l->overlapping = overlapping || (same && l->overlapping);
    l->owner = m->owner;
    l->fence = m->fence;
    l->priority = m->priority;
    l->lease_ms = m->lease_ms;
    l->stamp = m->stamp > 0 ? m->stamp : m->fence;
    l->end_ms = end_ms;
    if (!same) {
        bool taken = m->fence == p->taken_fence; /* While the disk was slow. */
        l->asked_ms = -1;
        l->stolen = l->copied = false;
        l->sure_ms = taken ? p->taken_sure_ms : 0;
        l->session = taken ? p->taken_session : 0;
    }
    if (m->fence > p->seen) p->seen = m->fence;
    if (!same) uncount_length(n, now, l);
    count_length(n, l, m->lease_ms);
    n->voted_ms = now.ms;
    sl_node_key_schedule(n, now, p);
    return true;
}

/* --- What is agreed ----------------------------------------------------------------- */

/* A thief has entered beside. */
static void tell_stolen(struct sl_node *n, const struct sl_node_key *p)
{
    struct sl_node_lease *l = p->beside;
    struct sl_node_event e = {.type = SL_NODE_EVENT_STOLEN,
                              .key = sl_node_key_key(p),
                              .fence = l->fence,
                              .session = l->session,
                              .asked_ms = -1,
                              .overlapping = true};
    if (l->agreed && !l->stolen) sl_tell(n, &e);
    l->stolen = true;
}

/* What stands here is known to be a grant. */
static void agree(struct sl_node *n, struct sl_now now, struct sl_node_key *p,
                  bool overlapping)
{
    struct sl_node_lease *l = &p->lease;
    bool news = !l->agreed;
    l->agreed = true;
    p->turn.end_ms = 0;
    if (overlapping) l->overlapping = true;
    /* The thief has what it waited for. */
    if (p->reserved.live && sl_owner_is(p->reserved.owner, l->owner))
        p->reserved.live = false;
    if (news && p->beside != NULL && l->overlapping) tell_stolen(n, p);
    if (news && l->asked_ms >= 0) tell(n, now, p, SL_NODE_EVENT_ASKED);
    sl_node_key_schedule(n, now, p);
    if (news) sl_proposer_wake(n, now, p);
}

/* An attempt has come to nothing: what was agreed meanwhile stands here now. */
static void take_lesson(struct sl_node *n, struct sl_now now, struct sl_node_key *p)
{
    struct sl_node_lease *l = p->lesson;
    if (l == NULL) return;
    struct sl_message m = {.owner = l->owner,
                           .fence = l->fence,
                           .priority = l->priority,
                           .lease_ms = l->end_ms - now.ms,
                           .stamp = l->stamp,
                           .value = sl_node_text_bytes(l->value),
                           .note = sl_node_text_bytes(l->note)};
    bool late = m.lease_ms <= 0 || m.fence < p->past || m.fence <= p->ended;
    if (!late && sl_may_vote(n, now, m.fence, m.lease_ms) &&
        record(n, now, p, &m, l->overlapping)) {
        p->lease.copied = l->copied;
        n->taught++;
        agree(n, now, p, l->overlapping);
    }
    drop(n, &p->lesson);
}

/* --- ACQUIRE ----------------------------------------------------------------------- */

/* A thief stands before a lease of less priority. */
static void reserve(struct sl_node *n, struct sl_now now, struct sl_node_key *p,
                    const struct sl_message *m)
{
    struct sl_reservation *r = &p->reserved;
    bool mine = r->live && sl_owner_is(r->owner, m->owner);
    if (r->live && !mine && m->priority <= r->priority) return;
    sl_ms end_ms = sl_ms_after(p->lease.end_ms, reservation_ms(n));
    *r = (struct sl_reservation){.live = true,
                                 .owner = m->owner,
                                 .priority = m->priority,
                                 .end_ms = mine ? later(end_ms, r->end_ms) : end_ms};
    if (p->lease.asked_ms < 0) {
        p->lease.asked_ms = now.ms;
        if (p->lease.agreed) tell(n, now, p, SL_NODE_EVENT_ASKED);
    }
    sl_node_key_schedule(n, now, p);
}

static bool outranks(const struct sl_message *m, const struct sl_node_lease *l)
{
#ifdef MUT_EQUALSTEALS
    return m->priority >= l->priority;
#endif
    return m->priority > l->priority;
}

/* Whether this attempt asks the one who holds to go: not, if it has been given up. */
static bool asks_to_go(const struct sl_node_key *p, const struct sl_message *m,
                       sl_fence ceiling)
{
    if ((m->flags & SL_FLAG_STEAL) == 0 || !outranks(m, &p->lease)) return false;
#ifdef MUT_GHOST
    return true;
#endif
    return m->fence > ceiling;
}

/* Whether a thief may enter beside the one who holds. */
static bool enters_beside(const struct sl_node_key *p, const struct sl_message *m)
{
#ifdef MUT_M3
    if (m->priority > p->lease.priority) return true;
#endif
    return (m->flags & SL_FLAG_FORCE) != 0 && (m->flags & SL_FLAG_STEAL) != 0 &&
           outranks(m, &p->lease);
}

/* Make room for a thief that enters beside. Of two that were there before, the one that
 * ends later keeps others out. False: no memory. */
static bool step_aside(struct sl_node *n, struct sl_node_key *p)
{
    struct sl_node_lease *l = &p->lease;
    if (p->beside == NULL) {
        p->beside = sl_block_new(n, sizeof *p->beside);
        if (p->beside == NULL) return false;
    } else if (p->beside->end_ms >= l->end_ms) {
        if (l->fence > p->past) p->past = l->fence;
        if (l->length > 0) n->lengths[l->length - 1]--;
        free_lease(n, l);
        n->lease_count--;
        return true;
    } else {
        if (p->beside->fence > p->past) p->past = p->beside->fence;
        if (p->beside->length > 0) n->lengths[p->beside->length - 1]--;
        free_lease(n, p->beside);
    }
    *p->beside = *l;
    *l = (struct sl_node_lease){.asked_ms = -1};
    n->lease_count--;
    return true;
}

static bool has_turn(const struct sl_node_key *p, struct sl_now now)
{
    return now.ms < p->turn.end_ms;
}

static struct sl_rank rank_of(const struct sl_message *m)
{
    return (struct sl_rank){m->priority, m->owner};
}

/* The voter rejects this request for an attempt that may fail. The request gets the turn if it
 * comes before that attempt and before all others that were rejected. */
static void take_turn(struct sl_node *n, struct sl_now now, struct sl_node_key *p,
                      const struct sl_message *m)
{
    const struct sl_node_lease *l = &p->lease;
    const struct sl_rank mine = rank_of(m);
    if (l->agreed || !sl_comes_before(mine, (struct sl_rank){l->priority, l->owner}) ||
        (has_turn(p, now) && sl_comes_before(p->turn.rank, mine)))
        return;
    p->turn = (struct sl_turn){mine, sl_ms_after(now.ms, reservation_ms(n))};
}

static bool is_turn_of_another(const struct sl_node_key *p, struct sl_now now,
                               const struct sl_message *m)
{
#ifdef MUT_NOTURN
    return false;
#endif
    return has_turn(p, now) && sl_comes_before(p->turn.rank, rank_of(m));
}

static void end_turn(struct sl_node_key *p, struct sl_attempt_id owner)
{
    if (sl_owner_is(p->turn.rank.owner, owner)) p->turn.end_ms = 0;
}

/* It stands here already: what has changed since must not be undone. */
static bool came_twice(const struct sl_node_key *p, const struct sl_message *m)
{
    const struct sl_node_lease *l = &p->lease;
    return l->live && l->fence == m->fence && sl_owner_is(l->owner, m->owner);
}

static enum sl_vote_verdict judge(struct sl_node *n, struct sl_now now,
                                  struct sl_node_key *p, const struct sl_message *m,
                                  bool *overlapping, bool *turn)
{
    const struct sl_node_lease *l = &p->lease;
    sl_fence ceiling = p->seen > n->floor ? p->seen : n->floor;
#ifndef MUT_PASSRESERVED
    if (is_reserved_for_another(p, m->owner, m->priority)) return SL_VERDICT_RESERVED;
#endif
    if (p->reserved.live && sl_owner_is(p->reserved.owner, m->owner)) {
        p->reserved.end_ms = later(p->reserved.end_ms,
                                   sl_ms_after(now.ms, reservation_ms(n)));
        sl_node_key_schedule(n, now, p);
    }
    if (l->live && !sl_owner_is(l->owner, m->owner)) {
        if (asks_to_go(p, m, ceiling)) reserve(n, now, p, m);
        if (!enters_beside(p, m)) {
            take_turn(n, now, p, m);
            return SL_VERDICT_HELD;
        }
        *overlapping = true;
    }
    if (came_twice(p, m)) return SL_VERDICT_YES;
    if (is_turn_of_another(p, now, m)) {
        *turn = true;
        return SL_VERDICT_RESERVED;
    }
#ifndef MUT_M12
    if (m->fence <= ceiling || is_over(p, m->fence)) return SL_VERDICT_FENCE;
#endif
    return SL_VERDICT_YES;
}

static void on_acquire(struct sl_node *n, struct sl_now now, sl_node_id from,
                       const struct sl_message *m)
{
    struct sl_message v = {0};
    int status;
    bool overlapping = false, turn = false;
    if (!sl_is_believable(n, now, m->fence)) {
        vote(n, now, from, m, &v, SL_VERDICT_CLOCK);
        return;
    }
    struct sl_node_key *p = sl_node_key_get(n, now, m->key, &status);
    if (p == NULL) {
        vote(n, now, from, m, &v, SL_VERDICT_FULL);
        return;
    }
    sl_node_key_settle(n, now, p);
    enum sl_vote_verdict verdict = judge(n, now, p, m, &overlapping, &turn);
    bool stands = came_twice(p, m);
#ifdef MUT_TWICE
    stands = false;
#endif
    if (verdict == SL_VERDICT_YES) {
        if (!stands && !sl_may_vote(n, now, m->fence, m->lease_ms)) {
            sl_stash(n, from, m);
            return;
        }
        if (overlapping && !step_aside(n, p)) return; /* As if it were lost. */
        if (!stands && !record(n, now, p, m, overlapping)) {
            if (overlapping && put_back(n, now, p)) sl_node_key_schedule(n, now, p);
            return;
        }
        end_turn(p, m->owner);
        if (p->lease.overlapping) v.flags |= SL_FLAG_OVERLAPPING;
        v.ceiling = p->seen;
    } else fill(n, now, p, &v, (m->flags & SL_FLAG_STEAL) != 0);
    if (turn) fill_turn(now, p, &v);
    vote(n, now, from, m, &v, verdict);
}

/* --- RENEW, RELEASE, CANCEL ----------------------------------------------------------- */

static bool has(const struct sl_node_key *p, sl_fence fence)
{
    return p != NULL && p->lease.live && p->lease.fence == fence;
}

/* The one beside which a thief has entered, or is about to. */
static bool is_beside(const struct sl_node_key *p, sl_fence fence)
{
    return p != NULL && p->beside != NULL && p->beside->fence == fence;
}

static bool is_asked(const struct sl_node_key *p)
{
#ifdef MUT_M13
    return false;
#endif
    return is_reserved_for_another(p, p->lease.owner, p->lease.priority);
}

/* False: no memory, and nothing has changed. */
static bool extend(struct sl_node *n, struct sl_now now, struct sl_node_key *p,
                   const struct sl_message *m)
{
    struct sl_node_lease *l = &p->lease;
    sl_ms end_ms = sl_ms_after(now.ms, m->lease_ms + SL_GRAIN_MS);
    if ((m->flags & SL_FLAG_VALUE) != 0) {
        if (!sl_node_text_set(n, &l->value, m->value)) return false;
        l->stamp = m->stamp;
    }
#ifdef MUT_M16
    l->end_ms = end_ms;
#endif
    l->end_ms = later(l->end_ms, end_ms);
    l->lease_ms = m->lease_ms;
    l->copied = false;
    count_length(n, l, m->lease_ms);
    sl_node_key_schedule(n, now, p);
    return true;
}

/* Another value came first that is newer. */
static bool is_old_value(const struct sl_node_key *p, const struct sl_message *m)
{
#ifdef MUT_STAMP
    return false;
#endif
    return (m->flags & SL_FLAG_VALUE) != 0 && m->stamp < p->lease.stamp;
}

static void on_renew(struct sl_node *n, struct sl_now now, sl_node_id from,
                     const struct sl_message *m)
{
    struct sl_message v = {0};
    enum sl_vote_verdict verdict = SL_VERDICT_YES;
    struct sl_node_key *p = sl_node_key_find(n, m->key);
    if (p != NULL) sl_node_key_settle(n, now, p);
    if (is_beside(p, m->fence)) verdict = SL_VERDICT_RESERVED;
    else if (!has(p, m->fence)) verdict = SL_VERDICT_LACKS;
    else if (p->lease.stolen) verdict = SL_VERDICT_RESERVED;
    else if (is_asked(p)) verdict = SL_VERDICT_RESERVED;
    else if (is_old_value(p, m)) verdict = SL_VERDICT_FENCE;
    else if (!sl_may_vote(n, now, 0, m->lease_ms)) {
        sl_stash(n, from, m);
        return;
    } else if (!extend(n, now, p, m)) return; /* As if it were lost. */
    fill(n, now, p, &v, verdict == SL_VERDICT_YES);
    if (verdict == SL_VERDICT_FENCE && p->lease.stamp > v.ceiling)
        v.ceiling = p->lease.stamp;
    vote(n, now, from, m, &v, verdict);
}

/* An owner that gives up an attempt has given up all that it made before. */
static bool is_earlier_attempt(const struct sl_node_key *p, const struct sl_message *m)
{
    const struct sl_node_lease *l = &p->lease;
#ifdef MUT_LEFTOVER
    return false;
#endif
    return (m->flags & SL_FLAG_FINAL) == 0 && l->live && !l->agreed &&
           sl_owner_is(l->owner, m->owner) && l->fence < m->fence;
}

static bool is_named(const struct sl_node_key *p, const struct sl_message *m)
{
#ifdef MUT_M5
    if (p != NULL && p->lease.live && sl_owner_is(p->lease.owner, m->owner))
        return true;
#endif
#ifdef MUT_ANYFENCE
    if (p != NULL && p->lease.live) return true;
#endif
    return has(p, m->fence) || (p != NULL && is_earlier_attempt(p, m));
}

/* Should it come after its own end, an attempt is refused by its fence. */
static void remember_given_up(struct sl_node *n, struct sl_now now,
                              const struct sl_message *m)
{
    int status;
    struct sl_node_key *p = sl_node_key_get(n, now, m->key, &status);
    if (p == NULL || !sl_is_believable(n, now, m->fence)) return;
    end_turn(p, m->owner);
    if (m->fence > p->seen) p->seen = m->fence;
#ifdef MUT_M17
    if (p->reserved.live && sl_owner_is(p->reserved.owner, m->owner))
        end_reservation(n, now, p);
#endif
}

static void on_release(struct sl_node *n, struct sl_now now, sl_node_id from,
                       const struct sl_message *m)
{
    struct sl_message v = {0};
    int status;
    bool final = (m->flags & SL_FLAG_FINAL) != 0;
    /* It may have overtaken what it releases. */
    struct sl_node_key *p = sl_node_key_get(n, now, m->key, &status);
    if (p != NULL) sl_node_key_settle(n, now, p);
    bool was = is_named(p, m);
    if (was) {
        if (final) tell_over(n, now, p, m->fence, SL_NODE_EVENT_RELEASED);
        if (final && p->reserved.live && sl_owner_is(p->reserved.owner, p->lease.owner))
            p->reserved.live = false;
        end_lease(n, now, p, !final);
        sl_node_key_schedule(n, now, p);
    } else if (final && is_beside(p, m->fence)) {
        was = true;
        tell_over(n, now, p, m->fence, SL_NODE_EVENT_RELEASED);
        if (m->fence > p->past) p->past = m->fence;
        drop_beside(n, p);
    } else if (p != NULL && final) {
        tell_over(n, now, p, m->fence, SL_NODE_EVENT_RELEASED);
        if (m->fence == p->lapsed) p->lapsed = 0;
        sl_proposer_wake(n, now, p);
    }
    if (!final) remember_given_up(n, now, m);
    else if (p != NULL && m->fence <= p->seen && m->fence > p->ended)
        p->ended = m->fence;
    vote(n, now, from, m, &v, was ? SL_VERDICT_YES : SL_VERDICT_LACKS);
}

static void on_cancel(struct sl_node *n, struct sl_now now, const struct sl_message *m)
{
    struct sl_node_key *p = sl_node_key_find(n, m->key);
#ifdef MUT_NOCANCEL
    return;
#endif
    if (p == NULL || !p->reserved.live || !sl_owner_is(p->reserved.owner, m->owner))
        return;
    end_reservation(n, now, p);
    sl_node_key_schedule(n, now, p);
    sl_proposer_wake(n, now, p);
}

/* --- TEACH ------------------------------------------------------------------------- */

/* Whether it was sent after our silence, and lately: it tells our clock, as its sender saw
 * it last. */
static bool is_fresh(const struct sl_node *n, struct sl_now now, sl_node_id from,
                     const struct sl_message *m)
{
#ifdef MUT_STALE
    return true;
#endif
    if (from == n->id) return true;
    return m->heard_epoch == n->epoch && m->heard_ms >= n->silent_ms &&
           m->heard_ms <= now.ms && now.ms - m->heard_ms <= n->limits.forget_ms / 2;
}

/* A later one is agreed: so this one is over, unless a thief has entered beside it; only the
 * news have not come. False: no memory. */
static bool make_way(struct sl_node *n, struct sl_now now, struct sl_node_key *p,
                     bool overlapping)
{
    if (overlapping) return step_aside(n, p);
    /* How it ended is not known here; if its end was near, by that. */
    bool near = p->lease.end_ms - now.ms <= n->limits.answer_ms;
    if (p->lease.agreed)
        tell_over(n, now, p, p->lease.fence,
                  near ? SL_NODE_EVENT_EXPIRED : SL_NODE_EVENT_RELEASED);
    drop_beside(n, p);
    end_lease(n, now, p, false);
    return true;
}

/* This voter has said yes to a later attempt, and stands by it until it is given up, which
 * it will be: then it takes the lesson. (Without memory it is as if it were lost.) */
static void keep_lesson(struct sl_node *n, struct sl_now now, struct sl_node_key *p,
                        const struct sl_message *m)
{
    if (p->lesson != NULL && p->lesson->fence >= m->fence) return;
    drop(n, &p->lesson);
    struct sl_node_lease *l = sl_block_new(n, sizeof *l);
    if (l == NULL) return;
    *l = (struct sl_node_lease){.owner = m->owner,
                                .fence = m->fence,
                                .priority = m->priority,
                                .end_ms = sl_ms_after(now.ms, m->lease_ms),
                                .stamp = m->stamp,
                                .copied = (m->flags & SL_FLAG_COPY) != 0,
                                .overlapping = (m->flags & SL_FLAG_OVERLAPPING) != 0};
    p->lesson = l;
    if (!set_texts(n, l, m)) drop(n, &p->lesson);
}

/* Whether the holder has released it. A lease that only expired here may have been extended
 * elsewhere, and then is still agreed. */
static bool is_released(const struct sl_node_key *p, sl_fence fence)
{
    if (fence <= p->ended) return true;
#ifdef MUT_LAPSED
    return is_over(p, fence);
#endif
#ifdef MUT_RELEASED
    return false;
#endif
    for (size_t i = 0; i < SL_TOLD; i++)
        if (p->told[i].fence == fence)
            return p->told[i].over && p->told[i].how == SL_NODE_EVENT_RELEASED;
    return false;
}

/* A lease that is agreed, and that we lack. */
static struct sl_node_key *learn(struct sl_node *n, struct sl_now now, sl_node_id from,
                                 const struct sl_message *m)
{
    int status;
    if ((m->flags & SL_FLAG_WHOLE) == 0 || !is_fresh(n, now, from, m)) return NULL;
    if (!sl_is_believable(n, now, m->fence)) return NULL;
    struct sl_node_key *p = sl_node_key_get(n, now, m->key, &status);
    if (p == NULL || m->fence < p->past || is_released(p, m->fence)) return NULL;
    if (p->lease.live && !p->lease.agreed && m->fence < p->lease.fence)
        keep_lesson(n, now, p, m);
    if (p->lease.live ? m->fence < p->lease.fence
                      : is_reserved_for_another(p, m->owner, m->priority))
        return NULL;
    if (!sl_may_vote(n, now, m->fence, m->lease_ms)) {
        sl_stash(n, from, m);
        return NULL;
    }
    bool overlapping = (m->flags & SL_FLAG_OVERLAPPING) != 0;
    if (p->lease.live && !make_way(n, now, p, overlapping)) return NULL;
    if (!record(n, now, p, m, overlapping)) return NULL;
    p->lease.copied = (m->flags & SL_FLAG_COPY) != 0;
    if (p->lapsed == m->fence) p->lapsed = 0;
    n->taught++;
    return p;
}

/* A lease that we have, but whose extension we may have missed. */
static void learn_more(struct sl_node *n, struct sl_now now, sl_node_id from,
                       struct sl_node_key *p, const struct sl_message *m)
{
    struct sl_node_lease *l = &p->lease;
    sl_ms end_ms = sl_ms_after(now.ms, m->lease_ms + SL_GRAIN_MS);
    if ((m->flags & SL_FLAG_WHOLE) == 0 || l->stolen || !is_fresh(n, now, from, m))
        return;
    if (m->stamp > l->stamp && sl_node_text_set(n, &l->value, m->value))
        l->stamp = m->stamp;
    if (!l->agreed) return; /* It is the attempt itself that was granted. */
    if (end_ms <= l->end_ms || !sl_may_vote(n, now, 0, m->lease_ms)) return;
    l->end_ms = end_ms;
    l->lease_ms = m->lease_ms;
    if ((m->flags & SL_FLAG_COPY) == 0) l->copied = false;
    count_length(n, l, m->lease_ms);
    sl_node_key_schedule(n, now, p);
}

/* Compute until when, by our clock, the lease is certainly agreed; after that we must not teach it.
 * The sender counted from the time of sending. Our clock then showed at least the reading that
 * the sender had last received. */
static void rely_on(struct sl_node_lease *l, const struct sl_message *m,
                    struct sl_now now)
{
    sl_ms left = m->left_ms < m->lease_ms ? m->left_ms : m->lease_ms;
    sl_ms sure_ms = m->heard_ms + sl_shrink(left) - SL_GRAIN_MS;
#ifdef MUT_FARSURE
    sure_ms = now.ms + left;
#endif
    (void)now;
#ifndef MUT_OWNSURE
    if (left > 0) l->sure_ms = later(l->sure_ms, sure_ms);
#endif
}

static void on_teach(struct sl_node *n, struct sl_now now, sl_node_id from,
                     const struct sl_message *m)
{
    struct sl_node_key *p = sl_node_key_find(n, m->key);
    if (p != NULL) sl_node_key_settle(n, now, p);
    bool had = has(p, m->fence);
    if (had) learn_more(n, now, from, p, m);
    bool here = had || learn(n, now, from, m) != NULL;
    p = sl_node_key_find(n, m->key);
    /* News of long ago may have been told, and forgotten. */
    if (p == NULL || (!here && !is_fresh(n, now, from, m))) return;
    bool overlapping = (m->flags & SL_FLAG_OVERLAPPING) != 0;
    if (here && overlapping && p->beside != NULL) tell_stolen(n, p);
    if (here && from != n->id && is_fresh(n, now, from, m)) rely_on(&p->lease, m, now);
    if (p->lapsed < m->fence) tell_lapsed(n, now, p);
    tell_granted(n, p, m);
    if ((m->flags & SL_FLAG_EXTENDED) != 0 && !told_of(p, m->fence)->over) {
        struct sl_node_event e = event_of(p, m->fence, SL_NODE_EVENT_EXTENDED);
        e.lease_ms = m->lease_ms;
        sl_tell(n, &e);
    }
    if (here) agree(n, now, p, overlapping);
}

/* All earlier messages of this node have been handled, or wait for the disk. */
void sl_acceptor_taught(struct sl_node *n, struct sl_now now, sl_node_id from,
                        const struct sl_message *m)
{
    struct sl_peer *p = sl_peer(n, from);
    if (p != NULL && is_fresh(n, now, from, m)) p->taught = true;
}

static void on_look(struct sl_node *n, struct sl_now now, sl_node_id from,
                    const struct sl_message *m)
{
    struct sl_message v = {0};
    struct sl_node_key *p = sl_node_key_find(n, m->key);
    if (p != NULL) sl_node_key_settle(n, now, p);
    fill(n, now, p, &v, true);
    vote(n, now, from, m, &v, SL_VERDICT_YES);
}

/* --- A message ------------------------------------------------------------------------ */

static bool is_silent(const struct sl_node *n, struct sl_now now)
{
#ifdef MUT_M2
    return false;
#endif
    return now.ms < n->silent_ms;
}

/* Whether it takes part in this at all; if not, it has said so. */
static bool takes_part(struct sl_node *n, struct sl_now now, sl_node_id from,
                       const struct sl_message *m)
{
    struct sl_message v = {0};
    bool known = sl_is_member(n) && sl_membership_find(&n->kept.force, from) >= 0;
    /* An attempt that is given up may be, whatever the list is now. */
    bool given_up = m->type == SL_MESSAGE_RELEASE && (m->flags & SL_FLAG_FINAL) == 0;
#ifndef MUT_VERSION
    known = known && (given_up || m->version == n->kept.force.version);
#endif
    if (!known) vote(n, now, from, m, &v, SL_VERDICT_STRANGER);
    else if (is_silent(n, now)) {
        v.left_ms = n->silent_ms - now.ms;
        vote(n, now, from, m, &v, SL_VERDICT_SILENT);
    } else return true;
    return false;
}

void sl_acceptor_receive(struct sl_node *n, struct sl_now now, sl_node_id from,
                         const struct sl_message *m)
{
    if (m->key.n == 0 || m->lease_ms < 0) return;
    if (!takes_part(n, now, from, m)) return;
    if (m->key.n > n->limits.key_bytes_max || m->lease_ms > n->limits.lease_max_ms) {
        struct sl_message v = {0};
        vote(n, now, from, m, &v, SL_VERDICT_BIG);
        return;
    }
    const struct sl_node_key *p = sl_node_key_find(n, m->key);
    if (p != NULL && p->stashed > 0 && m->type != SL_MESSAGE_LOOK) {
        sl_stash(n, from, m); /* Behind those that came before. */
        return;
    }
    switch (m->type) {
        case SL_MESSAGE_ACQUIRE: on_acquire(n, now, from, m); break;
        case SL_MESSAGE_RENEW: on_renew(n, now, from, m); break;
        case SL_MESSAGE_RELEASE: on_release(n, now, from, m); break;
        case SL_MESSAGE_CANCEL: on_cancel(n, now, m); break;
        case SL_MESSAGE_TEACH: on_teach(n, now, from, m); break;
        case SL_MESSAGE_LOOK: on_look(n, now, from, m); break;
        default: break;
    }
}
