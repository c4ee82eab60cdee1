/* local.c - the arbiter `local`: passes requests to the lock table, and handles the effects of its
 * changes. */
#include "server/arbiter/local.h"

#include <assert.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/glob.h"
#include "server/arbiter/state.h"
#include "server/arbiter/transactions.h"
#include "server/observe/events.h"
#include "server/observe/inspection.h"

struct sl_local *sl_local_of(const struct server *s)
{
    return sl_container_of(s->arbiters.local, struct sl_local, arbiter);
}

static void notify_held(struct request *r, sl_fence fence, bool fresh)
{
    const struct sl_local_observer *o = sl_local_of(r->s)->observer;
    if (o != NULL) o->held(r->c, r->key, fence, fresh);
}

static void notify_gone(struct server *s, sl_fence fence, bool at_once)
{
    const struct sl_local_observer *o = sl_local_of(s)->observer;
    if (o != NULL) o->gone(s, fence, at_once);
}

/* Publish an event. If a change of its key is not acknowledged yet, the event waits for the same
 * position: it may show that change. */
static void publish(struct server *s, const struct sl_event *e)
{
    if (e->session == 0 && sl_pubsub_unheard(&s->pubsub)) return;
    sl_state_publish(s, e, sl_state_pending(s, e->key));
}

/* --- Errors ------------------------------------------------------------------- */

const char *sl_local_why_not(const struct server *s, int status)
{
    static char text[200];
    struct sl_table_stats table;
    if (status == SLUICE_ENOKEEPER) return sl_transactions_why_not(s);
    if (status != SLUICE_ERECOVERING) return NULL;
    sl_table_stats(s->table, &table);
    snprintf(text, sizeof text,
             sl_local_of(s)->reclaims
                 ? "the keeper has just taken over and waits %" PRId64
                   " ms for earlier leases to be reclaimed or to expire; retry then, "
                   "or use WAIT"
                 : "the server is recovering after a power failure or a move of its "
                   "data; leases that it does not know will have expired in %" PRId64
                   " ms; retry then, or use WAIT",
             table.recovering_until_ms - s->now.ms);
    return text;
}

static void refuse(struct request *r, int status)
{
    const struct answer a = {.status = status, .text = sl_local_why_not(r->s, status)};
    sl_request_answer(r, &a);
}

/* If the table is recovering, reply RECOVERING and return true. The table does not know the fence
 * of this request, but another node may still report its holder. So the server cannot say that the
 * grant is not held. */
static bool may_be_reported(struct request *r)
{
    struct server *s = r->s;
    struct sl_table_stats table;
    if (!sl_local_of(s)->reclaims || r->fence == 0) return false;
    sl_table_stats(s->table, &table);
    if (table.recovering_until_ms <= s->now.ms ||
        sl_table_holds(s->table, s->now, r->key, r->fence))
        return false;
    refuse(r, SLUICE_ERECOVERING);
    return true;
}

/* If the table recovers and the server has a journal, reply RECOVERING and return true. A lease that
 * the journal lost may still be valid, so the server cannot say that the key is free. */
static bool may_be_lost(struct request *r)
{
    struct server *s = r->s;
    struct sl_table_stats table;
    if (!sl_state_journals(s)) return false;
    sl_table_stats(s->table, &table);
    if (table.recovering_until_ms <= s->now.ms) return false;
    refuse(r, SLUICE_ERECOVERING);
    return true;
}

/* --- The journal ----------------------------------------------------------------- */

/* How often a request is parked because of changes of others. A key that changes all the time must
 * not delay it forever. So in the end the request runs, and its reply is parked. */
#define PARKS_MAX 8

/* If the request would show a change that is not acknowledged yet, park the request until it is,
 * and return true. */
static bool waits_for_others(struct request *r)
{
    uint64_t position = sl_state_pending(r->s, r->key);
    if (position == 0) return false;
    uint8_t parks = r->call != NULL && r->call->resumed != NULL
                        ? r->call->resumed->parks
                        : 0;
    if (parks >= PARKS_MAX) {
        r->position = position; /* submit() parks the reply. */
        return false;
    }
    struct request *k = sl_state_park(r, position, SL_PARKED_TO_RUN);
    if (k != NULL) k->parks = (uint8_t)(parks + 1);
    return true;
}

/* Remove the reply from the output, which begins at `from`, and send it when all changes that it
 * shows are durable. */
static void park_reply(struct request *r, size_t from)
{
    struct sl_resp_writer *out = &r->c->out;
    if (out->spilt) return; /* The connection will be closed. */
    r->extra = (struct sl_bytes){out->buffer + from, out->n - from};
    out->n = from;
    r->answered = false;
    sl_state_park(r, r->position, SL_PARKED_REPLY);
}

/* If the journal has failed, reject a request that needs a record, and return true. */
static bool lacks_journal(struct request *r)
{
    if (!sl_state_has_failed(r->s)) return false;
    sl_state_refuse(r);
    return true;
}

/* Answer with a number when this position is durable. */
static void answer_durably(struct request *r, uint64_t position, enum sl_parked outcome,
                           int64_t number)
{
    if (position == SL_STATE_FAILED) {
        sl_state_refuse(r);
        return;
    }
    struct request *k = sl_state_park(r, position, outcome);
    if (k != NULL) k->number = number;
}

/* --- ACQUIRE -------------------------------------------------------------------- */

/* Keep a request that the table has queued. The caller has reserved its memory. */
static void wait_in_table(struct request *r, sl_ms lease_ms)
{
    struct request *k = sl_request_keep(r);
    assert(k != NULL);
    k->lease_step = 0;
    k->on_disk = false;
    k->in_table = true;
    k->outcome = SL_PARKED_TO_RUN;
    if (lease_ms > 0) sl_state_count_waiter(k, lease_ms);
    k->s->stats.waits++;
}

/* Return what is left of a wait of this length, which began when the request arrived. */
static sl_ms wait_left_ms(const struct request *r, sl_ms wait_ms)
{
    sl_ms age_ms = sl_request_age_ms(r);
    if (wait_ms == SL_NEVER || age_ms <= 0) return wait_ms;
    return wait_ms > age_ms ? wait_ms - age_ms : 0;
}

/* Count the time since the request arrived as part of its wait. */
static void count_age(const struct request *r, struct sl_want *w)
{
    w->waited_ms = sl_request_age_ms(r);
    w->wait_ms = wait_left_ms(r, w->wait_ms);
}

/* Whether the request may get its lease now. A lease longer than all previous leases must be
 * written to the disk first. A request that the table rejects does not need the write. */
static bool may_lease(struct request *r)
{
    struct server *s = r->s;
    if (sl_state_knows_lease(s, r->want.lease_ms)) return true;
    int status = sl_table_judge(s->table, s->now, &r->c->session->s, &r->want);
    if (status != SLUICE_OK && status != SL_WAITS) return true;
    return sl_state_may_lease(r, r->want.lease_ms);
}

/* The cost of checking one holder, in steps of the budget of a loop iteration. */
#define STEPS_A_HOLDER 64

/* Whether a holder without a lease has closed its connection, so that the server will soon release
 * its grant. */
static bool has_leaving_holder(const struct request *r)
{
    struct server *s = r->s;
    struct sl_grant_view v;
    uint64_t cursor = 0;
    while (sl_table_each(s->table, s->now, r->key, &cursor, &v) && !v.waits) {
        sl_server_spend(s, STEPS_A_HOLDER);
        if (v.leased) continue;
        const struct session *n = sl_server_session(s, v.session_id);
        if (n == NULL || n->conn == r->c) continue;
        if (n->s.ended) return true;
        if (n->conn != NULL && sl_conn_gives_back(n->conn)) return true;
    }
    return false;
}

/* Called if the key is held. If a holder has closed its connection, but the server has not noticed
 * that yet or has not yet released the holder's grants, run the request again in the next loop
 * iteration and return true. So no reply says that a key is held after its holder has closed its
 * connection. */
static bool retries(struct request *r)
{
    struct server *s = r->s;
    if (s->all_stay == s->inputs) return false;
    if (!sl_input_holders_left(s) && sl_list_empty(&s->leaving) &&
        !sl_table_ends_sessions(s->table)) {
        s->all_stay = s->inputs;
        return false;
    }
    if (!has_leaving_holder(r)) return false;
    sl_state_run_next_turn(r);
    return true;
}

static void take_back_grant(const struct request *r, const struct sl_grant *g)
{
    sl_table_take_back(r->s->table, r->s->now, &r->c->session->s, r->key, g);
}

/* Returns the key of a request for an event that follows the answer, which frees a kept request. */
static struct sl_bytes key_for_event(const struct request *r)
{
    static char copy[UINT16_MAX];
    if (!r->kept || r->key.n == 0 || sl_pubsub_unheard(&r->s->pubsub)) return r->key;
    assert(r->key.n <= sizeof copy);
    memcpy(copy, r->key.at, r->key.n);
    return (struct sl_bytes){copy, r->key.n};
}

/* Acknowledge a grant. */
static void answer_grant(struct request *r, const struct sl_grant *g)
{
    struct server *s = r->s;
    s->stats.grants++;
    if (g->lease_ms > 0) sl_state_given(s, g->lease_ms);
    notify_held(r, g->fence, true);
    const struct answer a = {.status = SLUICE_OK, .grant = g};
    struct sl_bytes key = key_for_event(r);
    sl_request_answer(r, &a);
    sl_event_granted(s, key, g);
}

/* Acknowledge a grant when the journal allows it. */
static void granted(struct request *r, const struct sl_grant *g)
{
    uint64_t need = sl_state_need(r->s);
    if (g->lease_ms == 0) sl_input_holds(r->c);
    if (need == 0) {
        answer_grant(r, g);
        return;
    }
    if (need == SL_STATE_FAILED) {
        take_back_grant(r, g);
        sl_state_refuse(r);
        return;
    }
    const struct request given = *r;
    struct request *k = sl_state_park(r, need, SL_PARKED_GRANT);
    if (k != NULL) k->grant = *g;
    else take_back_grant(&given, g);
}

static void acquire(struct request *r)
{
    struct server *s = r->s;
    struct sl_grant g;
    count_age(r, &r->want);
    if (r->want.lease_ms > 0 && lacks_journal(r)) return;
    if (!may_lease(r)) return;
    if (r->want.wait_ms > 0 && !sl_request_reserve(r)) return;
    if (s->drain_words > 0) sl_server_spend(s, s->drain_words * r->key.n);
    if (r->c->session->s.client == NULL && sl_conn_describe(r->c) != SLUICE_OK) {
        refuse(r, SLUICE_ENOMEM);
        return;
    }
    sl_state_change(s);
    int status = sl_table_acquire(s->table, s->now, &r->c->session->s, &r->want, &g);
    if (status == SLUICE_OK) granted(r, &g);
    else if (status == SL_WAITS) wait_in_table(r, r->want.lease_ms);
    else if (status == SLUICE_EFENCES) sl_state_lack_fence(r);
    else if (status == SLUICE_EFULL && (waits_for_others(r) || retries(r))) return;
    else if (status == SLUICE_EDRAINED && waits_for_others(r)) return;
    else {
        const struct answer taken = {.status = SLUICE_EFULL};
        s->stats.refusals++;
        if (status == SLUICE_EFULL) sl_request_answer(r, &taken);
        else refuse(r, status);
    }
}

/* --- RELEASE, EXTEND, CHECK, READ, AWAIT ------------------------------------------- */

/* Count the end of a grant for which a thief waited, and publish it when this position is
 * durable. */
static void count_stolen(struct server *s, struct sl_bytes key,
                         const struct sl_ended *past, bool answered, uint64_t position)
{
    if (past->asked_ms < 0) return;
    if (answered) sl_answers_add(&s->stats.answers, past->asked_ms);
    s->stats.steals++;
    sl_state_publish(
        s,
        &(struct sl_event){.type = SL_EVENT_STOLEN, .key = key, .fence = past->fence},
        position);
}

static void release(struct request *r)
{
    struct server *s = r->s;
    struct sl_ended past;
    int n = sl_table_release(s->table, s->now, &r->c->session->s, r->key, r->fence,
                             &past);
    if (n == 0 && (may_be_reported(r) || waits_for_others(r))) return;
    if (n == 1) {
        s->stats.releases++;
        sl_histogram_add(&s->stats.hold_ms, past.held_ms);
        if (!sl_pubsub_unheard(&s->pubsub))
            publish(s, &(struct sl_event){.type = SL_EVENT_RELEASED,
                                          .key = r->key,
                                          .fence = past.fence});
        count_stolen(s, r->key, &past, true, sl_state_pending(s, r->key));
        /* Report the end of the grant to other nodes. A node knows of the release only if its own
         * client took the grant and named the fence. The node of a client that extended the lease
         * does not know. */
        if (past.leased || past.session_id != sl_conn_id(r->c) || r->fence == 0)
            notify_gone(s, past.fence, false);
    }
    sl_request_answer_number(r, n);
}

/* Acknowledge an extension. */
static void answer_extended(struct request *r, sl_ms left)
{
    struct server *s = r->s;
    struct sl_bytes key = key_for_event(r);
    sl_fence fence = r->fence;
    s->stats.extends++;
    notify_held(r, fence, false);
    sl_request_answer_number(r, left);
    publish(s, &(struct sl_event){.type = SL_EVENT_EXTENDED,
                                  .key = key,
                                  .fence = fence,
                                  .lease_ms = left});
}

static void undo_extension(struct request *r)
{
    sl_table_undo_extend(r->s->table, r->s->now, r->key, r->fence, r->end_ms,
                         r->before_ms, r->extra);
}

/* Answer an extension when this position is durable. */
static void park_extension(struct request *r, uint64_t position, sl_ms left)
{
    struct sl_grant_view v;
    sl_table_inspect_grant(r->s->table, r->s->now, r->key, r->fence, &v);
    r->end_ms = v.end_ms;
    struct request extended = *r;
    if (position == SL_STATE_FAILED) {
        undo_extension(&extended);
        sl_state_refuse(r);
        return;
    }
    struct request *k = sl_state_park(r, position, SL_PARKED_EXTENSION);
    if (k != NULL) k->number = left;
    else undo_extension(&extended);
}

/* Copy the value of a grant that an EXTEND is about to replace. */
static struct sl_bytes copy_value(const struct sl_grant_view *v)
{
    static char copy[UINT16_MAX + 1];
    assert(v->value.n < sizeof copy);
    if (v->value.n > 0) memcpy(copy, v->value.at, v->value.n);
    return (struct sl_bytes){copy, v->value.n};
}

static void extend(struct request *r)
{
    struct server *s = r->s;
    struct sl_grant_view before;
    sl_ms left;
    bool held = sl_table_inspect_grant(s->table, s->now, r->key, r->fence, &before);
    /* If the client does not hold the grant, it gets the error without a write. */
    if (held && !sl_state_may_lease(r, r->ms)) return;
    if (lacks_journal(r)) return;
    r->before_ms = held ? before.end_ms : 0;
    if (held && r->value.at != NULL && sl_state_journals(s))
        r->extra = copy_value(&before);
    sl_state_change(s);
    int status = sl_table_extend(s->table, s->now, &r->c->session->s, r->key, r->fence,
                                 r->ms, r->value, &left);
    if (status == SLUICE_ELOST && (may_be_reported(r) || waits_for_others(r))) return;
    if (status != SLUICE_OK) {
        refuse(r, status);
        return;
    }
    sl_state_given(s, r->ms);
    uint64_t need = sl_state_need(s);
    if (need == 0) need = sl_state_pending(s, r->key);
    if (need == 0) answer_extended(r, left);
    else park_extension(r, need, left);
}

static void check(struct request *r)
{
    if (waits_for_others(r)) return;
    bool held = sl_table_holds(r->s->table, r->s->now, r->key, r->fence);
    if (!held && (may_be_reported(r) || may_be_lost(r))) return;
    sl_request_answer_number(r, held ? 1 : 0);
}

static void read_newest(struct request *r)
{
    struct sl_grant_view v;
    if (waits_for_others(r)) return;
    bool held = sl_table_newest(r->s->table, r->s->now, r->key, &v);
    if (!held && may_be_lost(r)) return;
    const struct answer a = {.status = SLUICE_OK, .newest = held ? &v : NULL};
    sl_request_answer(r, &a);
}

static void await(struct request *r)
{
    struct server *s = r->s;
    if (waits_for_others(r)) return;
    sl_ms wait_ms = wait_left_ms(r, r->ms);
    if (wait_ms > 0 && !sl_request_reserve(r)) return;
    int status = sl_table_await(s->table, s->now, &r->c->session->s, r->key, r->yes,
                                wait_ms);
    if (status == SLUICE_EFULL && r->yes && retries(r)) return;
    if (status == SL_WAITS) wait_in_table(r, 0);
    else if (status == SLUICE_OK || status == SLUICE_EFULL)
        sl_request_answer_number(r, status == SLUICE_OK ? 1 : 0);
    else refuse(r, status);
}

/* --- BREAK, DRAIN -------------------------------------------------------------------- */

/* Publish what BREAK has done: now, or when this position is durable. */
static void publish_broken(const struct request *r, int n, const struct sl_ended *past,
                           uint64_t position)
{
    struct server *s = r->s;
    struct sl_event e = {
        .type = SL_EVENT_RELEASED, .key = r->key, .fence = r->fence, .why = "break"};
    if (n == 2 && past->broken) sl_state_publish(s, &e, position);
    if (past->broken) return;
    s->stats.breaks++;
    e.type = SL_EVENT_BROKEN;
    e.why = n == 1 ? "last-lease" : NULL;
    e.session = past->session_id;
    sl_state_publish(s, &e, position);
    if (n == 2) count_stolen(s, r->key, past, false, position);
}

static void break_grant(struct request *r)
{
    struct server *s = r->s;
    struct sl_ended past;
    if (lacks_journal(r)) return;
    int n = sl_table_break(s->table, s->now, r->key, r->fence, r->yes, &past);
    if (n == 0) {
        if (!waits_for_others(r)) sl_request_answer_number(r, 0);
        return;
    }
    if (n == 2) sl_histogram_add(&s->stats.hold_ms, past.held_ms);
    notify_gone(s, r->fence, true);
    uint64_t need = sl_state_need_all(s, r->key);
    publish_broken(r, n, &past, need);
    if (need == 0) sl_request_answer_number(r, n);
    else answer_durably(r, need, SL_PARKED_NUMBER, n);
}

size_t sl_local_drain_words(struct sl_bytes glob)
{
    return sl_glob_words(glob.n);
}

static void list_drains(struct request *r)
{
    const struct answer a = {.status = SLUICE_OK,
                             .inspection = sl_inspection_new(r->s, SL_INSPECT_DRAINS)};
    sl_request_answer(r, &a);
}

static void drain(struct request *r)
{
    struct server *s = r->s;
    if (r->key.n == 0) {
        if (!waits_for_others(r)) list_drains(r);
        return;
    }
    if (lacks_journal(r)) return;
    sl_server_spend(s, SL_GLOB_COMPILE_STEPS * r->key.n);
    int status = sl_table_drain(s->table, r->key, r->yes);
    size_t words = sl_local_drain_words(r->key);
    if (status == SLUICE_OK && r->yes) s->drain_words += words;
    else if (status == SLUICE_OK) s->drain_words -= words;
    uint64_t need = sl_state_need_all(s, (struct sl_bytes){NULL, 0});
    int64_t number = status == SLUICE_OK ? 1 : 0;
    if (status != SLUICE_OK && status != SLUICE_ENOENT) refuse(r, status);
    else if (need == 0) sl_request_answer_number(r, number);
    else answer_durably(r, need, SL_PARKED_NUMBER, number);
}

/* --- EXPLAIN ---------------------------------------------------------------------------- */

static void explain(struct request *r)
{
    if (waits_for_others(r)) return;
    struct sl_inspection *i = sl_inspection_new(r->s, SL_INSPECT_LOCK);
    const struct answer a = {.status = SLUICE_OK, .inspection = i};
    i->key = r->key;
    sl_local_inspect(r->arbiter, i);
    struct call call = sl_request_call(r);
    sl_call_cost(&call, 50 + i->lock.holders / 16);
    sl_request_answer(r, &a);
}

static void refuse_nodes(struct request *r)
{
    const struct answer a = {
        .status = SLUICE_ENODES,
        .text =
            "this server is not a node of a cluster; start it with --node and --peers"};
    sl_request_answer(r, &a);
}

/* --- The arbiter ------------------------------------------------------------------------ */

static void submit(struct arbiter *a, struct request *r)
{
    size_t written = r->c->out.n;
    assert(r->arbiter == a);
    r->position = 0;
    switch (r->verb) {
        case SL_VERB_ACQUIRE: acquire(r); break;
        case SL_VERB_RELEASE: release(r); break;
        case SL_VERB_EXTEND: extend(r); break;
        case SL_VERB_CHECK: check(r); break;
        case SL_VERB_READ: read_newest(r); break;
        case SL_VERB_AWAIT: await(r); break;
        case SL_VERB_EXPLAIN: explain(r); break;
        case SL_VERB_LOCKS:
            if (!waits_for_others(r)) sl_inspection_list(r);
            break;
        case SL_VERB_BREAK: break_grant(r); break;
        case SL_VERB_DRAIN: drain(r); break;
        case SL_VERB_NODES: refuse_nodes(r); break;
        case SL_VERB_TX:
        case SL_VERB_TX_EXPLAIN:
        case SL_VERB_TX_LOCKS: sl_transactions_submit(r); break;
        case SL_VERB_NONE:
        case SL_VERBS: assert(false); break; /* These verbs are never submitted. */
    }
    if (r->position != 0 && r->answered) park_reply(r, written);
}

static void leave_table(struct request *r)
{
    assert(r->kept && r->in_table != r->on_disk);
    sl_state_uncount_waiter(r);
    if (r->on_disk) sl_state_forget(r);
    if (r->outcome == SL_PARKED_GRANT || r->position != 0) sl_local_undo(r);
    if (r->in_table) sl_table_withdraw(r->s->table, &r->c->session->s);
}

static void withdraw(struct arbiter *a, struct request *r)
{
    (void)a;
    if (r->verb < SL_VERB_TX) leave_table(r);
}

static void take_back(struct arbiter *a, struct request *r, const struct sl_grant *g)
{
    (void)a;
    take_back_grant(r, g);
}

static bool is_brief(const struct arbiter *a, const struct request *r)
{
    (void)a;
    return r->verb >= SL_VERB_TX ? sl_transactions_is_brief(r) : r->on_disk;
}

static void leave(struct arbiter *a, struct conn *c, enum sl_parting how)
{
    (void)a;
    (void)how;
    sl_transactions_leave(c);
}

void sl_local_move_waiters(struct server *s, void (*move)(struct request *r))
{
    for (struct sl_list *n = s->conns.next; n != &s->conns; n = n->next) {
        struct conn *c = sl_container_of(n, struct conn, all);
        struct sl_list *next;
        if (c->proxy != NULL)
            continue; /* The client's node sends the request to the next keeper. */
        for (struct sl_list *i = c->requests.next; i != &c->requests; i = next) {
            struct request *r = sl_container_of(i, struct request, of_conn);
            next = i->next;
            if (r->arbiter != s->arbiters.local || r->verb >= SL_VERB_TX ||
                !r->in_table)
                continue;
            leave_table(r);
            move(r);
        }
    }
}

/* --- Effects of changes in the table ---------------------------------------------------- */

/* Return the request with which a session waits in the table, or NULL. */
static struct request *waiter_of(const struct session *n)
{
    if (n->conn == NULL) return NULL;
    const struct sl_list *all = &n->conn->requests;
    for (struct sl_list *i = all->next; i != all; i = i->next) {
        struct request *r = sl_container_of(i, struct request, of_conn);
        if (r->arbiter == r->s->arbiters.local && r->verb < SL_VERB_TX && r->in_table)
            return r;
    }
    return NULL;
}

/* Return the status of a request that has timed out. A null reply would say that the lock is held;
 * while the table grants nothing at all, the server does not know that. */
static int status_of_timeout(const struct server *s)
{
    struct sl_table_stats table;
    sl_table_stats(s->table, &table);
    if (table.authority_until_ms <= s->now.ms) return SLUICE_ENOKEEPER;
    if (table.recovering_until_ms > s->now.ms) return SLUICE_ERECOVERING;
    return SLUICE_EFULL;
}

static void answer_waiter(struct server *s, const struct session *n,
                          const struct sl_effect *e)
{
    struct request *r = waiter_of(n);
    if (r == NULL) return;
    sl_state_uncount_waiter(r);
    if (e->type == SL_EFFECT_TIMED_OUT) s->stats.waits_timed_out++;
    uint64_t pending = sl_state_pending(s, e->key);
    if (e->type == SL_EFFECT_SEEN && pending != 0)
        answer_durably(r, pending, SL_PARKED_NUMBER, 1);
    else if (e->type == SL_EFFECT_SEEN) sl_request_answer_number(r, 1);
    else if (e->type == SL_EFFECT_REFUSED && pending != 0)
        sl_state_park(r, pending, SL_PARKED_TO_RUN); /* DRAIN is not durable yet. */
    else if (e->type == SL_EFFECT_REFUSED) refuse(r, SLUICE_EDRAINED);
    else if (r->verb == SL_VERB_AWAIT) sl_request_answer_number(r, 0);
    else refuse(r, status_of_timeout(s));
}

static void answer_granted(struct server *s, struct session *n,
                           const struct sl_effect *e)
{
    struct request *r = waiter_of(n);
    if (r == NULL) {
        sl_table_take_back(s->table, s->now, &n->s, e->key, &e->grant);
        return;
    }
    assert(r->verb == SL_VERB_ACQUIRE);
    sl_state_uncount_waiter(r);
    if (sl_request_came_too_late(r, &e->grant)) return;
    s->stats.grants_after_wait++;
    sl_histogram_add(&s->stats.wait_ms, e->grant.waited_ms);
    granted(r, &e->grant);
}

void sl_local_undo(struct request *r)
{
    if (r->outcome == SL_PARKED_GRANT) take_back_grant(r, &r->grant);
    else if (r->outcome == SL_PARKED_EXTENSION) undo_extension(r);
    else return;
    r->outcome = SL_PARKED_UNDONE;
}

void sl_local_deliver(struct request *r, bool durable)
{
    switch ((enum sl_parked)r->outcome) {
        case SL_PARKED_TO_RUN: assert(false); break;
        case SL_PARKED_GRANT: {
            const struct sl_grant g = r->grant;
            assert(durable);
            r->outcome = SL_PARKED_TO_RUN;
            answer_grant(r, &g);
            break;
        }
        case SL_PARKED_EXTENSION:
            assert(durable);
            answer_extended(r, r->number);
            break;
        case SL_PARKED_NUMBER:
            if (durable) sl_request_answer_number(r, r->number);
            else if (r->verb == SL_VERB_AWAIT)
                sl_request_resume(r); /* The change that it saw has been undone. */
            else sl_state_refuse(r);
            break;
        case SL_PARKED_REPLY:
            if (durable) {
                sl_resp_raw(sl_conn_out(r->c), r->extra.at, r->extra.n);
                sl_request_end(r);
            } else sl_request_resume(r); /* What it shows has been undone. */
            break;
        case SL_PARKED_UNDONE: sl_state_refuse(r); break;
        case SL_PARKED_EVENT: assert(false); break;
    }
}

static void publish_ended(struct server *s, const struct sl_effect *e)
{
    struct sl_event event = {.key = e->key, .fence = e->past.fence};
    sl_histogram_add(&s->stats.hold_ms, e->past.held_ms);
    if (e->type == SL_EFFECT_EXPIRED) {
        s->stats.expiries++;
        event.type = SL_EVENT_EXPIRED;
        event.session = e->past.session_id;
    } else {
        s->stats.disconnect_releases++;
        event.type = SL_EVENT_RELEASED;
        event.why = "disconnect";
    }
    publish(s, &event);
    count_stolen(s, e->key, &e->past, e->type == SL_EFFECT_ENDED,
                 sl_state_pending(s, e->key));
}

static void publish_waits(struct server *s, const struct sl_effect *e)
{
    publish(s, &(struct sl_event){.type = SL_EVENT_WAITS,
                                  .key = e->key,
                                  .fence = e->past.fence,
                                  .session = e->session->id,
                                  .left_ms = e->left_ms,
                                  .note = e->note});
}

static void publish_asked(struct server *s, const struct sl_effect *e)
{
    s->stats.asks++;
    if (e->session != NULL) publish_waits(s, e);
    publish(s, &(struct sl_event){.type = SL_EVENT_ASKED,
                                  .key = e->key,
                                  .fence = e->past.fence,
                                  .session = e->past.session_id,
                                  .priority = e->priority,
                                  .left_ms = e->left_ms});
}

static void publish_victim(struct server *s, const struct sl_effect *e)
{
    bool stolen = e->type == SL_EFFECT_STOLEN;
    if (stolen) {
        s->stats.overlaps++;
        s->stats.steals++;
        /* At once, so that the next keeper restores the thief's grant and not the victim's. */
        notify_gone(s, e->past.fence, true);
    } else s->stats.withdrawals++;
    publish(s, &(struct sl_event){.type = stolen ? SL_EVENT_STOLEN : SL_EVENT_WITHDRAWN,
                                  .key = e->key,
                                  .fence = e->past.fence,
                                  .session = e->past.session_id,
                                  .overlapping = stolen});
}

static void end_session(struct server *s, struct session *n)
{
    struct request *r = n->resets;
    if (r != NULL) {
        sl_resp_simple(sl_conn_out(r->c), "RESET");
        sl_request_end(r);
    }
    sl_list_remove(&n->lingering);
    sl_index_remove(&s->by_id, n, s->by_id.kind->hash(n, &s->by_id));
    free(n);
}

static void apply(struct server *s, const struct sl_effect *e)
{
    struct session *n = e->session == NULL
                            ? NULL
                            : sl_container_of(e->session, struct session, s);
    switch (e->type) {
        case SL_EFFECT_NOTHING: break;
        case SL_EFFECT_GRANTED: answer_granted(s, n, e); break;
        case SL_EFFECT_TIMED_OUT:
        case SL_EFFECT_REFUSED:
        case SL_EFFECT_SEEN: answer_waiter(s, n, e); break;
        case SL_EFFECT_EXPIRED:
        case SL_EFFECT_ENDED: publish_ended(s, e); break;
        case SL_EFFECT_ASKED: publish_asked(s, e); break;
        case SL_EFFECT_WITHDRAWN:
        case SL_EFFECT_STOLEN: publish_victim(s, e); break;
        case SL_EFFECT_THIEF_WAITS: publish_waits(s, e); break;
        case SL_EFFECT_SESSION_OVER: end_session(s, n); break;
    }
}

static sl_ms due(const struct arbiter *a)
{
    sl_ms table = sl_table_due(a->s->table);
    if (a->s->transactions == NULL) return table;
    sl_ms tx = sl_transactions_due(a->s);
    return tx < table ? tx : table;
}

bool sl_local_pump_table(struct server *s)
{
    struct sl_effect e;
    while (s->effects_left > 0) {
        sl_state_change(s);
        if (!sl_table_next(s->table, s->now, &e)) return true;
        sl_server_count_effect(s, e.type == SL_EFFECT_NOTHING);
        apply(s, &e);
    }
    return false;
}

static bool pump(struct arbiter *a)
{
    bool empty = sl_local_pump_table(a->s);
    return sl_transactions_pump(a->s) && empty;
}

static void tx_failed(struct arbiter *a, struct conn *c, const char *name,
                      const char *code)
{
    (void)a;
    sl_transactions_failed(c, name, code);
}

/* Whether the server must wait for this request. The storage may still be writing its commit, so
 * the outcome is not known yet. */
static bool must_finish(const struct arbiter *a, const struct request *r)
{
    (void)a;
    return (r->command->flags & SL_COMMITS) != 0;
}

static void every_second(struct arbiter *a)
{
    sl_state_second(a->s);
}

static const struct arbiter_kind local = {.name = "local",
                                          .submit = submit,
                                          .withdraw = withdraw,
                                          .take_back = take_back,
                                          .is_brief = is_brief,
                                          .leave = leave,
                                          .due = due,
                                          .pump = pump,
                                          .tx_failed = tx_failed,
                                          .must_finish = must_finish,
                                          .second = every_second,
                                          .inspect = sl_local_inspect};

struct arbiter *sl_local_new(struct server *s)
{
    struct sl_local *l = calloc(1, sizeof *l);
    if (l == NULL) return NULL;
    l->arbiter = (struct arbiter){.kind = &local, .s = s};
    return &l->arbiter;
}
