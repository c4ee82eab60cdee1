/* local.c - the arbiter `local`: passes requests to the lock table. */
#include <assert.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/glob.h"
#include "server/arbiter/local_internal.h"
#include "server/arbiter/transactions.h"
#include "server/observe/inspection.h"

struct sl_local *sl_local_of(const struct server *s)
{
    return sl_container_of(s->arbiters.local, struct sl_local, arbiter);
}

/* --- Errors ------------------------------------------------------------------- */

const char *sl_local_why_not(const struct server *s, int status)
{
    static char text[200];
    if (status == SLUICE_ENOKEEPER) return sl_transactions_why_not(s);
    if (status != SLUICE_ERECOVERING) return NULL;
    snprintf(text, sizeof text,
             sl_local_of(s)->reclaims
                 ? "the keeper has just taken over and waits %" PRId64
                   " ms for earlier leases to be reclaimed or to expire; retry then, "
                   "or use WAIT"
                 : "the server is recovering after a power failure or a move of its "
                   "data; leases that it does not know will have expired in %" PRId64
                   " ms; retry then, or use WAIT",
             sl_state_quiet_ms(s));
    return text;
}

void sl_local_refuse(struct request *r, int status)
{
    const struct answer a = {.status = status, .text = sl_local_why_not(r->s, status)};
    sl_request_answer(r, &a);
}

/* If the table does not know the fence of this request, but the grant may be held all the same, reply
 * with an error and return true. While the table is recovering, another node may still report the
 * holder. Without authority, the next keeper may have made the grant, or extended it. */
static bool may_be_held(struct request *r)
{
    struct server *s = r->s;
    struct sl_table_stats table;
    if (!sl_local_of(s)->reclaims || r->fence == 0) return false;
    sl_table_stats(s->table, &table);
    bool has_authority = sl_table_has_authority(s->table, s->now);
    if ((has_authority && table.recovering_until_ms <= s->now.ms) ||
        sl_table_holds(s->table, s->now, r->key, r->fence))
        return false;
    sl_local_refuse(r, has_authority ? SLUICE_ERECOVERING : SLUICE_ENOKEEPER);
    return true;
}

/* If this is a keeper without authority, reply NOKEEPER and return true. The next keeper may have ended
 * any grant since, and this one cannot record a change. */
static bool lacks_authority(struct request *r)
{
    struct server *s = r->s;
    if (!sl_local_of(s)->reclaims || sl_table_has_authority(s->table, s->now))
        return false;
    sl_local_refuse(r, SLUICE_ENOKEEPER);
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
    sl_local_refuse(r, SLUICE_ERECOVERING);
    return true;
}

/* If the journal has failed, reject a request that needs a record, and return true. */
static bool lacks_journal(struct request *r)
{
    if (!sl_state_has_failed(r->s)) return false;
    sl_state_refuse(r);
    return true;
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
    w->number = r->arrival;
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

/* Describe the client of a connection for its grants. Returns false if out of memory. */
static bool describe(struct conn *c)
{
    const struct sl_local_observer *o = sl_local_of(c->server)->observer;
    if (o != NULL) o->described(c);
    return sl_conn_describe(c) == SLUICE_OK;
}

/* Whether a request with an id must run again later. Ask this before the request changes the table:
 *
 *     it would be answered with nil   The table ends the acquisition then, but the key may be free later.
 *     it repeats a grant              A grant without a lease moves to the connection that is answered, and
 *                                     only then may the nodes learn of the move. */
static bool runs_later(struct request *r)
{
    struct server *s = r->s;
    if (sl_table_repeats(s->table, &r->c->session->s, &r->want))
        return sl_local_waits_for_others(r);
    if (r->want.request.n == 0 || r->want.wait_ms > 0 ||
        sl_table_judge(s->table, s->now, &r->c->session->s, &r->want) != SLUICE_EFULL)
        return false;
    return sl_local_waits_for_others(r) || retries(r);
}

static void acquire(struct request *r)
{
    struct server *s = r->s;
    struct sl_grant g;
    count_age(r, &r->want);
    if (r->want.lease_ms > 0 && lacks_journal(r)) return;
    if (!may_lease(r) || runs_later(r)) return;
    if (r->want.wait_ms > 0 && !sl_request_reserve(r)) return;
    if (s->drain_words > 0) sl_server_spend(s, s->drain_words * r->key.n);
    if (r->c->session->s.client == NULL && !describe(r->c)) {
        sl_local_refuse(r, SLUICE_ENOMEM);
        return;
    }
    sl_state_change(s);
    r->want.ticket = sl_request_ticket(r);
    int status = sl_table_acquire(s->table, s->now, &r->c->session->s, &r->want, &g);
    if (status == SLUICE_OK) sl_local_granted(r, &g);
    else if (status == SL_WAITS) wait_in_table(r, r->want.lease_ms);
    else if (status == SLUICE_EFENCES) sl_state_lack_fence(r);
    else if (status == SLUICE_EFULL && (sl_local_waits_for_others(r) || retries(r)))
        return;
    else if (status == SLUICE_EDRAINED && sl_local_waits_for_others(r)) return;
    else {
        const struct answer taken = {.status = SLUICE_EFULL};
        s->stats.refusals++;
        if (status == SLUICE_EFULL) sl_request_answer(r, &taken);
        else sl_local_refuse(r, status);
    }
}

/* --- RELEASE, EXTEND, CHECK, READ, AWAIT ------------------------------------------- */

/* A client has released a grant. */
static void released(const struct request *r, const struct sl_ended *past)
{
    struct server *s = r->s;
    s->stats.releases++;
    sl_histogram_add(&s->stats.hold_ms, past->held_ms);
    if (!sl_pubsub_unheard(&s->pubsub))
        sl_local_publish(s, &(struct sl_event){.type = SL_EVENT_RELEASED,
                                               .key = r->key,
                                               .fence = past->fence});
    sl_local_count_stolen(s, r->key, past, true, sl_state_pending(s, r->key));
}

static void release(struct request *r)
{
    struct server *s = r->s;
    struct sl_ended past;
    int n = sl_table_release(s->table, s->now, &r->c->session->s, r->key, r->fence,
                             &past);
    if (n == 0 && (may_be_held(r) || sl_local_waits_for_others(r))) return;
    /* A node knows of the release only if its own client took the grant and named the fence. The
     * node of a client that extended the lease does not know. */
    if (n == 1) released(r, &past);
    if (n == 1 && (past.leased || past.session_id != sl_conn_id(r->c) || r->fence == 0))
        sl_local_notify_gone(s, past.fence, false);
    sl_request_answer_number(r, n);
}

static void cancel(struct request *r)
{
    struct server *s = r->s;
    struct sl_ended past;
    if (lacks_authority(r)) return;
    sl_state_change(s);
    int n = sl_table_cancel(s->table, s->now, &r->c->session->s, r->key, r->id, &past);
    if (n < 0) {
        sl_local_refuse(r, n);
        return;
    }
    if (n == 2) {
        released(r, &past);
        /* Report the end before the reply: the holder's node has a record. If the keeper failed first, the next
         * keeper would hold a grant without a lease until the holder's connection closes. */
        sl_local_notify_gone(s, past.fence, true);
    }
    sl_request_cancelled(r);
    sl_request_answer_number(r, n);
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
    if (held && r->value.at != NULL) r->extra = copy_value(&before);
    sl_state_change(s);
    int status = sl_table_extend(s->table, s->now, &r->c->session->s, r->key, r->fence,
                                 r->ms, r->value, &left);
    if (status == SLUICE_ELOST && (may_be_held(r) || sl_local_waits_for_others(r)))
        return;
    if (status != SLUICE_OK) {
        sl_local_refuse(r, status);
        return;
    }
    sl_state_given(s, r->ms);
    uint64_t need = sl_state_need(s);
    if (need == 0) need = sl_state_pending(s, r->key);
    sl_local_extended(r, need, left);
}

static void check(struct request *r)
{
    if (lacks_authority(r) || sl_local_waits_for_others(r)) return;
    bool held = sl_table_holds(r->s->table, r->s->now, r->key, r->fence);
    if (!held && (may_be_held(r) || may_be_lost(r))) return;
    sl_request_answer_number(r, held ? 1 : 0);
}

static void read_newest(struct request *r)
{
    struct sl_grant_view v;
    if (sl_local_waits_for_others(r)) return;
    bool held = sl_table_newest(r->s->table, r->s->now, r->key, &v);
    if (!held && may_be_lost(r)) return;
    const struct answer a = {.status = SLUICE_OK, .newest = held ? &v : NULL};
    sl_request_answer(r, &a);
}

static void await(struct request *r)
{
    struct server *s = r->s;
    if (sl_local_waits_for_others(r)) return;
    sl_ms wait_ms = wait_left_ms(r, r->ms);
    if (wait_ms > 0 && !sl_request_reserve(r)) return;
    int status = sl_table_await(s->table, s->now, &r->c->session->s, r->key, r->yes,
                                wait_ms, sl_request_ticket(r));
    if (status == SLUICE_EFULL && r->yes && retries(r)) return;
    if (status == SL_WAITS) wait_in_table(r, 0);
    else if (status == SLUICE_OK || status == SLUICE_EFULL)
        sl_request_answer_number(r, status == SLUICE_OK ? 1 : 0);
    else sl_local_refuse(r, status);
}

/* --- BREAK, DRAIN -------------------------------------------------------------------- */

/* Publish what BREAK has done: now, or when this position is durable. */
static void publish_broken(const struct request *r, int n, const struct sl_ended *past,
                           uint64_t position)
{
    struct server *s = r->s;
    struct sl_event e = {.type = SL_EVENT_RELEASED,
                         .key = r->key,
                         .fence = r->fence,
                         .why = "break",
                         .ends = n == 2};
    if (n == 2 && past->broken) sl_state_publish(s, &e, position);
    if (past->broken) return;
    s->stats.breaks++;
    e.type = SL_EVENT_BROKEN;
    e.why = n == 1 ? "last-lease" : NULL;
    e.session = past->session_id;
    sl_state_publish(s, &e, position);
    if (n == 2) sl_local_count_stolen(s, r->key, past, false, position);
}

static void break_grant(struct request *r)
{
    struct server *s = r->s;
    struct sl_ended past;
    if (lacks_authority(r) || lacks_journal(r)) return;
    int n = sl_table_break(s->table, s->now, r->key, r->fence, r->yes, &past);
    if (n == 0) {
        if (!may_be_held(r) && !sl_local_waits_for_others(r))
            sl_request_answer_number(r, 0);
        return;
    }
    if (n == 2) sl_histogram_add(&s->stats.hold_ms, past.held_ms);
    sl_local_notify_broke(s, r->fence, n == 2);
    uint64_t need = sl_state_need_all(s, r->key);
    publish_broken(r, n, &past, need);
    if (need == 0) sl_request_answer_number(r, n);
    else sl_local_answer_durably(r, need, SL_PARKED_NUMBER, n);
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
        if (!sl_local_waits_for_others(r)) list_drains(r);
        return;
    }
    if (lacks_authority(r) || lacks_journal(r)) return;
    sl_server_spend(s, SL_GLOB_COMPILE_STEPS * r->key.n);
    int status = sl_table_drain(s->table, r->key, r->yes);
    size_t words = sl_local_drain_words(r->key);
    if (status == SLUICE_OK && r->yes) s->drain_words += words;
    else if (status == SLUICE_OK) s->drain_words -= words;
    uint64_t need = sl_state_need_all(s, (struct sl_bytes){NULL, 0});
    int64_t number = status == SLUICE_OK ? 1 : 0;
    if (status != SLUICE_OK && status != SLUICE_ENOENT) sl_local_refuse(r, status);
    else if (need == 0) sl_request_answer_number(r, number);
    else sl_local_answer_durably(r, need, SL_PARKED_NUMBER, number);
}

/* --- EXPLAIN ---------------------------------------------------------------------------- */

static void explain(struct request *r)
{
    if (sl_local_waits_for_others(r)) return;
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
        case SL_VERB_CANCEL: cancel(r); break;
        case SL_VERB_EXTEND: extend(r); break;
        case SL_VERB_CHECK: check(r); break;
        case SL_VERB_READ: read_newest(r); break;
        case SL_VERB_AWAIT: await(r); break;
        case SL_VERB_EXPLAIN: explain(r); break;
        case SL_VERB_LOCKS:
            if (!sl_local_waits_for_others(r)) sl_inspection_list(r);
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
    if (r->position != 0 && r->answered) sl_local_park_reply(r, written);
}

static void leave_table(struct request *r)
{
    assert(r->kept && r->in_table != r->on_disk);
    sl_state_uncount_waiter(r);
    if (r->outcome == SL_PARKED_EXTENSION && r->position != 0) sl_state_leave(r);
    if (r->on_disk) sl_state_forget(r);
    if (r->outcome == SL_PARKED_GRANT) sl_local_undo(r);
    if (r->in_table)
        sl_table_lose(r->s->table, r->s->now, &r->c->session->s, r->ticket, r->key,
                      r->id);
}

static void withdraw(struct arbiter *a, struct request *r)
{
    (void)a;
    if (r->verb < SL_VERB_TX) leave_table(r);
}

static void take_back(struct arbiter *a, struct request *r, const struct sl_grant *g)
{
    (void)a;
    sl_local_take_back(r, g);
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

static void move_waiters(const struct server *s, const struct sl_list *all,
                         void (*move)(struct request *r))
{
    struct sl_list *next;
    for (struct sl_list *i = all->next; i != all; i = next) {
        struct request *r = sl_container_of(i, struct request, of_conn);
        next = i->next;
        if (r->arbiter != s->arbiters.local || r->verb >= SL_VERB_TX || !r->in_table)
            continue;
        leave_table(r);
        move(r);
    }
}

void sl_local_move_waiters(struct server *s, void (*move)(struct request *r))
{
    for (struct sl_list *n = s->conns.next; n != &s->conns; n = n->next) {
        struct conn *c = sl_container_of(n, struct conn, all);
        if (c->proxy != NULL)
            continue; /* The client's node sends the request to the next keeper. */
        move_waiters(s, &c->notifies, move); /* They are older. */
        move_waiters(s, &c->requests, move);
    }
}

static sl_ms due(const struct arbiter *a)
{
    sl_ms table = sl_table_due(a->s->table);
    if (a->s->transactions == NULL) return table;
    sl_ms tx = sl_transactions_due(a->s);
    return tx < table ? tx : table;
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
