/* proposer.c - clients' requests, from arrival to answer. */
#include <assert.h>
#include <string.h>

#include "majority/acceptor.h"
#include "majority/proposer.h"

static uint64_t hash_ticket(const void *item, const struct sl_index *x)
{
    return sl_hash_u64(((const struct sl_proposer_request *)item)->ticket, x->seed);
}

static bool same_ticket(const void *item, struct sl_bytes key)
{
    return memcmp(&((const struct sl_proposer_request *)item)->ticket, key.at, key.n) ==
           0;
}

static uint64_t hash_round(const void *item, const struct sl_index *x)
{
    return sl_hash_u64(((const struct sl_proposer_request *)item)->round, x->seed);
}

static bool same_round(const void *item, struct sl_bytes key)
{
    return memcmp(&((const struct sl_proposer_request *)item)->round, key.at, key.n) ==
           0;
}

static const struct sl_index_kind tickets_kind = {.hash = hash_ticket,
                                                  .same = same_ticket};
static const struct sl_index_kind rounds_kind = {.hash = hash_round,
                                                 .same = same_round};

struct sl_proposer_request *sl_proposer_find(const struct sl_index *x, uint64_t number)
{
    const struct sl_bytes key = {(const char *)&number, sizeof number};
    return sl_index_find(x, key, sl_hash_u64(number, x->seed));
}

static void timer_moved(void *owner, uint32_t place)
{
    ((struct sl_proposer_request *)owner)->timer = place;
}

void sl_proposer_init(struct sl_node *n, struct sl_hash_key hash_key)
{
    sl_list_init(&n->requests);
    sl_index_init(&n->by_ticket, &tickets_kind, hash_key);
    sl_index_init(&n->by_round, &rounds_kind, hash_key);
    n->waits.seed = n->by_round.seed;
    sl_heap_init(&n->request_timers, timer_moved);
}

void sl_proposer_free(struct sl_node *n)
{
    while (!sl_list_empty(&n->requests)) {
        struct sl_proposer_request *r = sl_container_of(
            n->requests.next, struct sl_proposer_request, all);
        sl_list_remove(&r->all);
        sl_proposer_request_free(n, r);
    }
    sl_index_free(&n->by_ticket);
    sl_index_free(&n->by_round);
    sl_heap_free(&n->request_timers);
}

/* --- Requests --------------------------------------------------------------------- */

void sl_proposer_schedule(struct sl_node *n, struct sl_proposer_request *r)
{
    sl_ms due = r->in_round ? r->votes_end_ms : r->try_ms;
    if (r->in_round && r->recheck) due = r->sent_ms;
    if (r->waits && !r->last && r->wait_end_ms < due) due = r->wait_end_ms;
    if (r->timer != SL_HEAP_NONE && due == SL_NEVER)
        sl_heap_remove(&n->request_timers, r->timer);
    else if (r->timer != SL_HEAP_NONE) sl_heap_move(&n->request_timers, r->timer, due);
    else if (due != SL_NEVER) sl_heap_put(&n->request_timers, due, r);
}

void sl_proposer_request_free(struct sl_node *n, struct sl_proposer_request *r)
{
    sl_proposer_forget_votes(n, r);
    sl_node_text_free(n, r->value);
    sl_node_text_free(n, r->note);
    sl_node_text_free(n, r->client);
    sl_node_text_free(n, r->request);
    sl_node_text_free(n, r->held_key);
    sl_node_block_free(n, r, sizeof *r);
}

/* End a request, with or without an answer. */
static void retire(struct sl_node *n, struct sl_now now, struct sl_proposer_request *r)
{
    if (r->outstanding) sl_proposer_give_up(n, now, r);
    sl_proposer_end_round(n, r);
    if (r->timer != SL_HEAP_NONE) sl_heap_remove(&n->request_timers, r->timer);
    if (r->ticket != 0)
        sl_index_remove(&n->by_ticket, r, sl_hash_u64(r->ticket, n->by_ticket.seed));
    sl_list_remove(&r->all);
    n->request_count--;
    sl_proposer_queue_leave(n, now, r);
}

/* Release a lease that this node was granted, but whose client does not receive it. If
 * the request has an id, another attempt may have received the lease, or may soon. */
static void take_back(struct sl_node *n, struct sl_now now,
                      const struct sl_proposer_request *r, struct sl_bytes key,
                      sl_ms linger_ms)
{
    if (r->type != SL_NODE_ACQUIRE || r->answer.status != SLUICE_OK || key.n == 0)
        return;
    const struct sl_node_request release = {
        .type = r->request != NULL ? SL_NODE_TAKE_BACK : SL_NODE_RELEASE,
        .key = key,
        .fence = r->fence,
        .wait_ms = linger_ms};
    now.wall_us = n->own_wall_us;
    sl_node_submit(n, now, 0, &release); /* If this fails, the lease expires. */
}

/* Whether the acceptor on this node is one of those that voted YES. */
static bool has_own_vote(const struct sl_node *n, const struct sl_proposer_request *r)
{
    int self = sl_membership_find(&n->kept.force, n->id);
    return self >= 0 && r->votes[self].verdict == SL_VERDICT_YES;
}

/* The answer would show a state of the key that could not be recorded. */
static void cannot_record(struct sl_node *n, struct sl_now now,
                          struct sl_proposer_request *r)
{
    static const char why[] =
        "the journal of this node cannot be written; see its log, "
        "or use another node";
    r->order.position = 0;
    if (r->answer.status != SLUICE_OK) return;
    if (r->key != NULL) take_back(n, now, r, sl_node_key_bytes(r->key), 0);
    r->answer.status = SLUICE_EIO;
    memcpy(r->answer.reason, why, sizeof why);
}

void sl_proposer_finish(struct sl_node *n, struct sl_now now,
                        struct sl_proposer_request *r, int status)
{
    assert(r->order.is_request && sl_list_empty(&r->order.link));
    r->order.position = r->type == SL_NODE_DRAIN ? sl_node_drain_position(n)
                                                 : sl_node_position(n, r->key);
    r->answer.status = status;
    if (r->order.position == SL_JOURNAL_FAILED && has_own_vote(n, r))
        cannot_record(n, now, r);
    else if (r->order.position == SL_JOURNAL_FAILED) r->order.position = 0;
    else if (r->order.position > 0 && r->key != NULL)
        r->held_key = sl_node_text_new(n, sl_node_key_bytes(r->key));
    r->answer.members = n->kept.force.count;
    r->answer.needed = sl_membership_majority(&n->kept.force);
    retire(n, now, r);
    sl_node_queue_answer(n, r);
}

void sl_proposer_finish_because(struct sl_node *n, struct sl_now now,
                                struct sl_proposer_request *r, int status,
                                const char *reason)
{
    size_t length = strlen(reason), most = sizeof r->answer.reason - 1;
    memcpy(r->answer.reason, reason, length < most ? length : most);
    sl_proposer_finish(n, now, r, status);
}

void sl_proposer_finish_with(struct sl_node *n, struct sl_now now,
                             struct sl_proposer_request *r, int64_t number)
{
    r->answer.number = number;
    sl_proposer_finish(n, now, r, SLUICE_OK);
}

void sl_proposer_try_again(struct sl_node *n, struct sl_proposer_request *r,
                           sl_ms at_ms)
{
    sl_proposer_end_round(n, r);
    r->try_ms = at_ms;
    sl_proposer_schedule(n, r);
}

/* --- Time ------------------------------------------------------------------------- */

static void on_time(struct sl_node *n, struct sl_now now, struct sl_proposer_request *r)
{
    if (r->waits && !r->last && now.ms >= r->wait_end_ms)
        sl_proposer_wait_over(n, now, r);
    else if (r->in_round && r->recheck) {
        r->recheck = false;
        sl_proposer_schedule(n, r);
        sl_proposer_evaluate(n, now, r);
    } else if (r->in_round && now.ms < r->hard_end_ms) {
        if (!sl_proposer_settle_contest(n, now, r)) sl_proposer_ask_again(n, now, r);
    } else if (r->in_round) {
        n->timeouts++;
        for (uint32_t i = 0; i < n->kept.force.count; i++)
            if (r->votes[i].verdict == SL_VERDICT_NONE) r->votes[i].gone = true;
        sl_proposer_evaluate(n, now, r);
    } else if (r->type == SL_NODE_TAKE_BACK) sl_proposer_take_back(n, now, r);
    else if (r->looks || r->adopts) sl_proposer_start_round(n, now, r);
    else if (!sl_proposer_queue_is_first(r)) {
        r->try_ms = SL_NEVER; /* Until it is the first waiter. */
        sl_proposer_schedule(n, r);
    } else if (r->type == SL_NODE_ACQUIRE) sl_proposer_attempt(n, now, r);
    else sl_proposer_start_round(n, now, r);
}

#define TIMERS_PER_TICK 500 /* The other timers stay due. */

void sl_proposer_tick(struct sl_node *n, struct sl_now now)
{
    for (int i = 0; i < TIMERS_PER_TICK && n->request_timers.count > 0 &&
                    n->request_timers.items[0].at <= now.ms;
         i++)
        on_time(n, now, n->request_timers.items[0].owner);
}

void sl_proposer_lost(struct sl_node *n, struct sl_now now, sl_node_id id)
{
    int at = sl_membership_find(&n->kept.force, id);
    if (at < 0) return;
    for (struct sl_list *i = n->requests.next; i != &n->requests; i = i->next) {
        struct sl_proposer_request *r = sl_container_of(i, struct sl_proposer_request,
                                                        all);
        if (!r->in_round || r->votes[at].verdict != SL_VERDICT_NONE) continue;
        r->votes[at].gone = r->recheck = true;
        sl_proposer_schedule(n, r); /* The tick below evaluates it. */
    }
    sl_proposer_tick(n, now);
}

/* Votes under the old membership do not count under the new one. */
void sl_proposer_membership_changed(struct sl_node *n, struct sl_now now)
{
    for (struct sl_list *i = n->requests.next; i != &n->requests; i = i->next) {
        struct sl_proposer_request *r = sl_container_of(i, struct sl_proposer_request,
                                                        all);
        if (r->outstanding) sl_proposer_give_up(n, now, r);
        if (!r->in_round) continue;
        sl_proposer_try_again(n, r, now.ms);
    }
}

/* --- Arrival of requests ---------------------------------------------------------- */

/* Pause a request, because a request with a higher priority is now the first. */
static void step_back(struct sl_node *n, struct sl_now now,
                      struct sl_proposer_request *r)
{
    if (r->outstanding) sl_proposer_give_up(n, now, r);
    sl_proposer_try_again(n, r, SL_NEVER);
}

/* A request that repeats another one must not wait behind other requests for a lease that
 * it has already. */
static void look_first(struct sl_node *n, struct sl_now now,
                       struct sl_proposer_request *r)
{
    if (r->request == NULL || sl_proposer_queue_head(r->key) == NULL)
        sl_proposer_ask_acquire(n, now, r);
    else {
        r->looks = true;
        sl_proposer_start_round(n, now, r);
    }
}

void sl_proposer_ask_acquire(struct sl_node *n, struct sl_now now,
                             struct sl_proposer_request *r)
{
    struct sl_node_key *k = r->key;
    if (r->waits) {
        if (k->waiter_count >= n->limits.waiters_max) {
            sl_proposer_finish(n, now, r, SLUICE_EWAITERS);
            return;
        }
        struct sl_proposer_request *before = sl_proposer_queue_head(k);
        if (!sl_proposer_take_place(n, r)) {
            sl_proposer_finish(n, now, r, SLUICE_EMISMATCH);
            return;
        }
        sl_proposer_queue_join(n, k, r);
        sl_proposer_schedule(n, r);
        if (sl_proposer_queue_head(k) != r) return;
        if (before != NULL) step_back(n, now, before);
    } else if (sl_proposer_queue_head(k) != NULL &&
               sl_proposer_queue_head(k)->priority >= r->priority) {
        /* Waiters with the same or a higher priority come first. */
        const struct sl_proposer_request *first = sl_proposer_queue_head(k);
        if (first->outcome == SL_OUTCOME_NOQUORUM)
            sl_proposer_finish_like(n, now, r, first);
        else sl_proposer_finish(n, now, r, SLUICE_EFULL);
        return;
    }
    sl_proposer_attempt(n, now, r);
}

static void ask_release(struct sl_node *n, struct sl_now now,
                        struct sl_proposer_request *r)
{
    struct sl_node_key *k = r->key;
    bool own = r->session != 0 && k->taken_session == r->session;
    if (r->fence == 0 && (!own || k->taken_fence == 0)) {
        sl_proposer_finish_with(n, now, r, 0);
        return;
    }
    if (r->fence == 0) r->fence = k->taken_fence;
    if (r->fence == k->taken_fence) k->taken_fence = 0;
    sl_proposer_start_round(n, now, r);
}

static void ask_await(struct sl_node *n, struct sl_now now,
                      struct sl_proposer_request *r)
{
    /* While it is silent, a node does not know which keys are free. */
    if (r->want_free && now.ms < n->silent_ms) {
        r->answer.left_ms = n->silent_ms - now.ms;
        sl_proposer_finish(n, now, r, SLUICE_ERECOVERING);
    } else if (sl_proposer_is_awaited(r->key, r)) sl_proposer_finish_with(n, now, r, 1);
    else if (!r->waits) sl_proposer_finish_with(n, now, r, 0);
    else {
        sl_list_append(&r->key->watchers, &r->key_link);
        sl_node_key_schedule(n, r->key);
        r->try_ms = SL_NEVER;
        sl_proposer_schedule(n, r);
    }
}

static void begin(struct sl_node *n, struct sl_now now, struct sl_proposer_request *r)
{
    if (r->key != NULL) sl_acceptor_settle(n, now, r->key);
    switch (r->type) {
        case SL_NODE_ACQUIRE: look_first(n, now, r); break;
        case SL_NODE_CANCEL: sl_proposer_ask_cancel(n, now, r); break;
        case SL_NODE_TAKE_BACK:
            r->try_ms = r->wait_end_ms;
            sl_proposer_schedule(n, r);
            break;
        case SL_NODE_RELEASE: ask_release(n, now, r); break;
        case SL_NODE_AWAIT: ask_await(n, now, r); break;
        case SL_NODE_ADD:
        case SL_NODE_REMOVE: break;
        default: sl_proposer_start_round(n, now, r); break;
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
    if (a->request.n > SL_NODE_REQUEST_BYTES_MAX ||
        (a->type == SL_NODE_CANCEL && a->request.n == 0))
        return SLUICE_EINVAL;
    return SLUICE_OK;
}

/* Returns the number of a new request. Of two requests, even at different nodes, the
 * older one has the lower number. */
static uint64_t next_number(struct sl_node *n, struct sl_now now)
{
    n->last_number++;
    if (now.wall_us <= SL_WALL_US_MAX && now.wall_us > n->last_number)
        n->last_number = now.wall_us;
    return n->last_number;
}

static struct sl_proposer_request *make_request(struct sl_node *n, struct sl_now now,
                                                uint64_t ticket,
                                                const struct sl_node_request *a)
{
    uint32_t out = n->request_count - n->request_timers.count;
    if (sl_heap_reserve(&n->request_timers, out + 1) != SLUICE_OK ||
        sl_index_reserve(&n->by_ticket) != SLUICE_OK)
        return NULL;
    assert(ticket == 0 || sl_proposer_find(&n->by_ticket, ticket) == NULL);
    struct sl_proposer_request *r = sl_node_block_new(n, sizeof *r);
    if (r == NULL) return NULL;
    r->value = sl_node_text_new(n, a->type == SL_NODE_DRAIN ? a->key : a->value);
    r->note = sl_node_text_new(n, a->note);
    r->client = sl_node_text_new(n, a->client);
    r->request = sl_node_text_new(n, a->request);
    if ((a->value.n > 0 && r->value == NULL) ||
        (a->type == SL_NODE_DRAIN && r->value == NULL) ||
        (a->note.n > 0 && r->note == NULL) || (a->client.n > 0 && r->client == NULL) ||
        (a->request.n > 0 && r->request == NULL)) {
        sl_proposer_request_free(n, r);
        return NULL;
    }
    sl_list_init(&r->order.link);
    r->order.is_request = true;
    r->order.type = SL_NODE_ORDER_ANSWER;
    sl_list_init(&r->key_link);
    r->type = a->type;
    r->ticket = ticket;
    r->session = a->session;
    r->owner = (struct sl_attempt_id){n->epoch, next_number(n, now)};
    r->place = r->owner.number;
    r->digest = a->digest;
    r->fence = a->fence;
    r->lease_ms = a->lease_ms > 0 ? a->lease_ms : n->limits.lease_max_ms;
    r->since_ms = now.ms;
    r->waits = a->wait_ms > 0 &&
               (a->type == SL_NODE_ACQUIRE || a->type == SL_NODE_AWAIT);
    /* The clock is rounded down, so the wait may have begun almost a millisecond
     * later. */
    r->wait_end_ms = sl_ms_after(sl_ms_after(now.ms, a->wait_ms), SL_NODE_GRAIN_MS);
    r->force_ms = a->steal ? sl_ms_after(now.ms, a->force_ms) : SL_NEVER;
    r->priority = a->priority;
    r->steal = a->steal;
    r->want_free = a->want_free;
    r->at_once = a->at_once;
    r->on = a->on;
    r->new_value = a->type == SL_NODE_DRAIN ||
                   (a->type == SL_NODE_EXTEND && a->value.at != NULL);
    r->try_ms = r->contest_ms = SL_NEVER;
    r->timer = SL_HEAP_NONE;
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
    now = sl_node_median_time(n, now);
    struct sl_proposer_request *r = make_request(n, now, ticket, ask);
    if (r == NULL) return SLUICE_ENOMEM;
    if (status == SLUICE_OK &&
        (ask->type == SL_NODE_ADD || ask->type == SL_NODE_REMOVE)) {
        sl_membership_change_begin(n, now, r, ask);
        return SLUICE_OK;
    }
    if (status == SLUICE_OK && ask->type != SL_NODE_DRAIN)
        r->key = sl_node_key_get(n, now, ask->key, &status);
    if (r->key != NULL) r->key->request_count++;
    if (status == SLUICE_OK && !sl_node_is_member(n)) status = SLUICE_ENOQUORUM;
    if (status != SLUICE_OK) sl_proposer_finish(n, now, r, status);
    else begin(n, now, r);
    return SLUICE_OK;
}

void sl_node_withdraw(struct sl_node *n, struct sl_now now, uint64_t ticket)
{
    struct sl_proposer_request *r = sl_proposer_find(&n->by_ticket, ticket);
    now = sl_node_median_time(n, now);
    if (r == NULL) {
        /* The answer may be waiting for the journal. */
        r = sl_node_take_held(n, ticket);
        if (r == NULL) return;
        take_back(n, now, r, sl_node_text_bytes(r->held_key), n->limits.linger_ms);
        sl_proposer_request_free(n, r);
        return;
    }
    if (r->type == SL_NODE_ADD || r->type == SL_NODE_REMOVE)
        sl_membership_change_withdraw(n, r);
    if (r->type == SL_NODE_ACQUIRE) {
        if (r->outstanding) sl_proposer_give_up(n, now, r);
        sl_proposer_cancel(n, now, r);
        sl_proposer_keep_place(n, now, r);
    }
    retire(n, now, r);
    sl_proposer_request_free(n, r);
}
