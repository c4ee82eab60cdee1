/* term.c - runs the election (failover/election.h): connects it with the clock, the storage and
 * the links, and carries out its orders. Here a node becomes the keeper, or steps down. */
#include <assert.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "majority/membership.h"
#include "server/arbiter/local.h"
#include "server/arbiter/majority.h"
#include "server/arbiter/remote.h"
#include "server/arbiter/router.h"
#include "server/arbiter/state.h"
#include "server/arbiter/transactions.h"
#include "server/forward/forward_internal.h"
#include "server/observe/log.h"

#define LOCKS_A_STEP 64

/* --- Operations of the storage -------------------------------------------------------------- */

static void log_trouble(struct server *s, int status)
{
    static struct sl_log_kind kind;
    if (status != SLUICE_EIO && status != SLUICE_ENOSPC) return;
    sl_log_often(&kind, s->now.ms, SL_LOG_ERROR,
                 "etcd does not answer; the node keeps retrying", "error",
                 sl_transactions_trouble(s), NULL);
}

static void term_read(struct sl_storage_op *op)
{
    struct server *s = op->owner;
    struct sl_term_op *d = &s->forward->read_term;
    d->busy = false;
    log_trouble(s, op->result.status);
    sl_election_term_read(s->forward->election, s->now.ms, d->asked_ms, &op->result);
}

static void claimed(struct sl_storage_op *op)
{
    struct server *s = op->owner;
    struct sl_term_op *d = &s->forward->claim;
    d->busy = false;
    /* Count the wait of a new keeper from now. This process may have been suspended since this
     * callback began, and the claim may have succeeded only after that. */
    sl_server_read_clock(s);
    log_trouble(s, op->result.status);
    sl_election_claimed(s->forward->election, s->now.ms, d->asked_ms, &op->result);
}

static void renewed(struct sl_storage_op *op)
{
    struct server *s = op->owner;
    struct sl_forward *f = s->forward;
    struct sl_election_view v;
    bool ok = op->result.status == SLUICE_OK;
    f->renew.busy = false;
    log_trouble(s, op->result.status);
    sl_election_renewed(f->election, s->now.ms, f->renew.asked_ms, &op->result);
    sl_election_view(f->election, &v);
    if (!f->route.leads) return;
    sl_table_set_authority(s->table, v.authority_end_ms);
    if (f->renew.has_state && op->term == f->guests.term) sl_state_written(s, ok);
}

static void submit_op(struct server *s, struct sl_term_op *d,
                      enum sl_storage_op_type type, const struct sl_election_order *o,
                      void (*done)(struct sl_storage_op *op))
{
    assert(!d->busy); /* The election orders one operation at a time. */
    d->asked_ms = s->now.ms;
    d->op = (struct sl_storage_op){.type = type,
                                   .term = o->term,
                                   .heartbeat = o->heartbeat,
                                   .node = (uint32_t)s->settings->node,
                                   .fence_limit = s->forward->fence_limit,
                                   .longest_ms = s->forward->longest_ms,
                                   .owner = s,
                                   .done = done};
    d->busy = sl_transactions_submit_op(s, &d->op);
}

bool sl_forward_write_state(struct server *s, sl_fence fence_limit, sl_ms longest_ms)
{
    struct sl_forward *f = s->forward;
    if (f == NULL || !f->route.leads) return false;
    f->fence_limit = fence_limit;
    f->longest_ms = longest_ms;
    f->state_wanted = true;
    sl_election_hurries(f->election, s->now.ms);
    return true;
}

static void renew(struct server *s, const struct sl_election_order *o)
{
    struct sl_forward *f = s->forward;
    f->renew.has_state = f->state_wanted;
    f->state_wanted = false;
    submit_op(s, &f->renew, SL_STORAGE_RENEW, o, renewed);
}

static void term_changed(void *owner, const struct sl_storage_term *term)
{
    struct server *s = owner;
    sl_election_term_changed(s->forward->election, s->now.ms, term);
}

void sl_forward_term_rejected(struct server *s, uint64_t term)
{
    if (s->forward != NULL) sl_election_refused(s->forward->election, s->now.ms, term);
}

/* --- A term begins and ends ------------------------------------------------------------------- */

static void log_term(enum sl_log_level level, const char *what, uint64_t term,
                     const char *name, int64_t number)
{
    char t[24], n[24];
    snprintf(t, sizeof t, "%" PRIu64, term);
    snprintf(n, sizeof n, "%" PRId64, number);
    sl_log(level, what, "term", t, name, n, NULL);
}

static void export(struct server *s, struct sl_bytes key, const struct sl_grant_view *v)
{
    const struct session *n = sl_server_session(s, v->session_id);
    struct conn *c = n == NULL || n->guest != NULL ? NULL : n->conn;
    if (v->broken || (!v->leased && c == NULL)) return;
    sl_ms end_ms = v->leased ? sl_ms_after(s->now.ms, v->left_ms) : SL_NEVER;
    const struct sl_record x = sl_record_of(key, v, c != NULL ? v->session_id : 0,
                                            end_ms);
    struct sl_route_session *holder = c == NULL ? NULL : sl_forward_session_make(c);
    if (c != NULL && holder == NULL) return; /* Out of memory: the grant is lost. */
    sl_ledger_put(&s->forward->route.ledger, &x, holder != NULL ? &holder->held : NULL);
}

/* Copy as many grants of the table to the ledger as the budget of this loop iteration allows, for
 * the next keeper. Returns true when all are copied and the table is empty. */
static bool export_more(struct server *s)
{
    struct sl_forward *f = s->forward;
    struct sl_lock_view at[LOCKS_A_STEP];
    do {
        if (s->effects_left < LOCKS_A_STEP) return false;
        size_t n = sl_table_scan(s->table, s->now, &f->export_cursor, at, LOCKS_A_STEP);
        s->effects_left -= LOCKS_A_STEP;
        for (size_t i = 0; i < n; i++) {
            struct sl_grant_view v;
            uint64_t each = 0;
            while (sl_table_each(s->table, s->now, at[i].key, &each, &v) && !v.waits)
                export(s, at[i].key, &v);
        }
    } while (f->export_cursor != 0);
    sl_route_exported(&f->route);
    sl_table_reset(s->table);
    s->drain_words = 0;
    return true;
}

/* --- The clients of this node, when it becomes the keeper or steps down ------------------------ */

/* Add the grants in the ledger to the table of this node, which is the keeper now, as many as the
 * budget of this loop iteration allows. Returns true if there are no more. */
static bool reclaim_own(struct server *s)
{
    struct sl_ledger *l = &s->forward->route.ledger;
    while (!sl_list_empty(&l->all)) {
        struct sl_record *x = sl_container_of(l->all.next, struct sl_record, all);
        struct session *n = x->session == 0 ? NULL : sl_server_session(s, x->session);
        const struct sl_grant_view v = sl_record_view(x, s->now.ms);
        if (s->effects_left == 0) return false;
        s->effects_left--;
        if (x->end_ms > s->now.ms && !x->unwanted &&
            (x->leased || (n != NULL && n->conn != NULL)))
            sl_forward_reclaim(s, n, &v, x->key);
        sl_ledger_drop(l, x);
    }
    return true;
}

/* Forward a request that waited in the table of this node, which is no longer the keeper. */
static void move_out(struct request *r)
{
    struct sl_route_session *n = sl_forward_session_make(r->c);
    if (n == NULL) {
        sl_request_answer_status(r, SLUICE_ENOMEM);
        return;
    }
    r->arbiter = r->s->arbiters.remote;
    sl_forward_enqueue(r, n);
}

static bool has_tx_request(const struct conn *c)
{
    for (const struct sl_list *i = c->requests.next; i != &c->requests; i = i->next) {
        const struct request *r = sl_container_of(i, const struct request, of_conn);
        if (r->verb == SL_VERB_TX && r->arbiter == c->server->arbiters.local)
            return true; /* sl_transactions_depose() answers this request. */
    }
    return false;
}

/* Abort the transactions of this node's clients, and queue their requests for the next keeper. */
static void move_clients(struct server *s)
{
    for (struct sl_list *n = s->conns.next; n != &s->conns; n = n->next) {
        struct conn *c = sl_container_of(n, struct conn, all);
        bool here = c->tx != NULL && c->tx->id != 0;
        if (c->proxy != NULL || has_tx_request(c)) continue;
        bool there = c->forwarded != NULL && sl_route_tx_ended(&c->forwarded->route);
        if (here || there) sl_transactions_lost(c);
    }
    sl_local_move_waiters(s, move_out);
}

static void end_term(struct server *s, uint64_t term)
{
    struct sl_forward *f = s->forward;
    struct sl_table_stats table;
    if (!f->route.leads) return;
    sl_table_stats(s->table, &table);
    log_term(SL_LOG_WARN, "this node is no longer the keeper", term, "keys",
             (int64_t)table.keys);
    sl_route_step_down(&f->route, s->now.ms);
    f->export_cursor = 0;
    sl_guests_stop(&f->guests);
    sl_proxy_carry_out(s);
    move_clients(s);
    sl_table_set_authority(s->table, 0);
    sl_transactions_depose(s, term);
    sl_state_end_term(s);
    sl_server_go_on(s);
}

static void begin_term(struct server *s, const struct sl_election_order *o)
{
    struct sl_forward *f = s->forward;
    struct sl_election_view v;
    log_term(SL_LOG_INFO, "this node is the keeper", o->term, "locks_wait_ms",
             o->quiet_ms);
    uint32_t left = s->effects_left;
    s->effects_left = UINT32_MAX; /* The table must be empty now. */
    if (f->route.exporting) export_more(s);
    s->effects_left = left;
    sl_route_lead(&f->route, s->now.ms, (uint32_t)s->settings->node, o->term);
    sl_forward_carry_out(s); /* Answer what the last keeper left behind. */
    f->fence_limit = o->before.fence_limit;
    f->longest_ms = o->before.longest_ms;
    sl_election_view(f->election, &v);
    sl_table_set_authority(s->table, v.authority_end_ms);
    if (o->quiet_ms > 0) sl_table_recover(s->table, s->now.ms + o->quiet_ms);
    sl_state_begin_term(s, o->before.fence_limit, o->before.longest_ms);
    sl_guests_lead(&f->guests, s->now.ms, o->term, o->quiet_ms > 0, sl_proxy_linked(s));
    sl_transactions_lead(s, o->term);
    /* Run the queued requests here. Those that need the reports are queued again. */
    sl_route_resume(&f->route);
    sl_forward_carry_out(s);
    sl_server_go_on(s);
}

static void set_keeper(struct server *s, const struct sl_election_order *o)
{
    struct sl_forward *f = s->forward;
    if (f->route.leads) return;
    if (o->node != 0)
        log_term(SL_LOG_INFO, "another node is the keeper", o->term, "node", o->node);
    sl_route_keeper(&f->route, s->now.ms, o->node, o->term);
    sl_forward_carry_out(s);
}

static void send_doubt(struct server *s, const struct sl_election_order *o)
{
    const struct sl_failover_message m = {
        .type = SL_FAILOVER_DOUBT, .term = o->term, .sight = o->sight};
    struct sl_member peers[2 * SL_NODES_MAX];
    uint32_t n = sl_node_peers(sl_majority_node(s), peers);
    for (uint32_t i = 0; i < n; i++) {
        if (peers[i].id == (sl_node_id)s->settings->node) continue;
        sl_forward_send(s, peers[i].id, &m);
    }
}

static void carry_out(struct server *s, const struct sl_election_order *o)
{
    struct sl_forward *f = s->forward;
    switch (o->type) {
        case SL_ELECTION_ORDER_READ_TERM:
            submit_op(s, &f->read_term, SL_STORAGE_READ_TERM, o, term_read);
            break;
        case SL_ELECTION_ORDER_CLAIM:
            submit_op(s, &f->claim, SL_STORAGE_CLAIM, o, claimed);
            break;
        case SL_ELECTION_ORDER_RENEW: renew(s, o); break;
        case SL_ELECTION_ORDER_DOUBT: send_doubt(s, o); break;
        case SL_ELECTION_ORDER_LEAD: begin_term(s, o); break;
        case SL_ELECTION_ORDER_STOP: end_term(s, o->term); break;
        case SL_ELECTION_ORDER_KEEPER: set_keeper(s, o); break;
    }
}

/* Continue work that is done in batches. Returns true if there is no more. */
static bool continue_work(struct server *s)
{
    struct sl_forward *f = s->forward;
    if (f->route.exporting && !export_more(s)) return false;
    if (f->route.leads && !reclaim_own(s)) return false;
    if (sl_guests_reports_end(&f->guests, s->now.ms)) sl_route_resume(&f->route);
    return sl_forward_carry_out(s);
}

bool sl_forward_pump(struct arbiter *a)
{
    struct server *s = a->s;
    struct sl_forward *f = s->forward;
    struct sl_election_order o;
    if (sl_election_due(f->election) <= s->now.ms)
        sl_election_tick(f->election, s->now.ms);
    if (sl_route_due(&f->route) <= s->now.ms) sl_route_tick(&f->route, s->now.ms);
    sl_forward_carry_out(s);
    sl_proxy_carry_out(s);
    while (sl_election_next(f->election, &o)) carry_out(s, &o);
    return continue_work(s);
}

sl_ms sl_forward_due(const struct arbiter *a)
{
    const struct server *s = a->s;
    sl_ms due = sl_election_due(s->forward->election);
    if (sl_route_due(&s->forward->route) < due) due = sl_route_due(&s->forward->route);
    sl_ms reports = sl_guests_due(&s->forward->guests);
    return reports < due ? reports : due;
}

/* --- Start and stop -------------------------------------------------------------------------- */

void sl_forward_members(struct server *s)
{
    uint32_t ids[SL_NODES_MAX];
    if (s->forward == NULL) return;
    const struct sl_membership *list = sl_node_membership(sl_majority_node(s));
    for (uint32_t i = 0; i < list->count; i++) ids[i] = list->at[i].id;
    sl_election_members(s->forward->election, s->now.ms, ids, list->count);
}

static const struct sl_local_observer observer = {.held = sl_forward_held,
                                                  .gone = sl_forward_gone};

struct arbiter *sl_forward_start(struct server *s)
{
    struct arbiter *a = sl_remote_new(s);
    struct sl_election_settings set = sl_election_settings_default;
    struct sl_forward *f;
    set.self = (uint32_t)s->settings->node;
    f = s->forward = calloc(1, sizeof *f);
    if (a == NULL || f == NULL ||
        (f->election = sl_election_new(&set, s->now.ms)) == NULL ||
        sl_router_read_keys(s) != SLUICE_OK) {
        sl_log(SL_LOG_ERROR, "cannot start", "error", "out of memory", NULL);
        return NULL;
    }
    const struct sl_route_settings route = {
        .keeper_wait_ms = s->settings->keeper_wait_ms,
        .hash_key = s->hash_key,
        .election = f->election};
    sl_route_init(&f->route, &route, s->now.ms);
    sl_list_init(&f->stalled);
    sl_guests_init(&f->guests, s->table, s->hash_key);
    sl_transactions_watch(s, term_changed);
    sl_forward_members(s);
    sl_local_of(s)->observer = &observer;
    sl_local_of(s)->reclaims = true;
    return a;
}

void sl_forward_stop(struct server *s)
{
    struct sl_forward *f = s->forward;
    if (f == NULL) return;
    sl_election_free(f->election);
    f->election = NULL;
}

/* --- Inspection ------------------------------------------------------------------------------- */

const char *sl_forward_why_not(const struct server *s)
{
    static char text[400];
    const struct sl_forward *f = s->forward;
    const char *trouble = sl_transactions_trouble(s);
    if (f->route.leads)
        snprintf(text, sizeof text,
                 "node %" PRId64 " is the keeper, but etcd has not confirmed it in "
                 "time (%s), so nothing is granted; retry",
                 s->settings->node,
                 *trouble != '\0' ? trouble : "it answers too slowly");
    else if (f->route.keeper != 0)
        snprintf(text, sizeof text,
                 "node %u is the keeper, but this node cannot reach it; retry, or use "
                 "another node",
                 f->route.keeper);
    else if (*trouble != '\0')
        snprintf(text, sizeof text, "there is no keeper: %s; retry", trouble);
    else snprintf(text, sizeof text, "no node has become the keeper yet; retry");
    return text;
}

size_t sl_forward_bytes(const struct server *s)
{
    return s->forward == NULL ? 0 : s->forward->route.ledger.bytes;
}

void sl_forward_view(const struct server *s, struct sl_forward_view *out)
{
    const struct sl_forward *f = s->forward;
    struct sl_election_view v;
    *out = (struct sl_forward_view){0};
    if (f == NULL) return;
    sl_election_view(f->election, &v);
    const struct sl_route *r = &f->route;
    *out = (struct sl_forward_view){.keeper = r->keeper,
                                    .term = r->leads ? f->guests.term : r->keeper_term,
                                    .leads = r->leads,
                                    .open = r->open,
                                    .authority_ms = v.authority_end_ms > s->now.ms
                                                        ? v.authority_end_ms - s->now.ms
                                                        : 0,
                                    .queued = r->queued_count,
                                    .sent = r->sent_count,
                                    .proxies = f->guests.by_client.count,
                                    .records = r->ledger.by_fence.count,
                                    .forwarded = r->forwarded,
                                    .served = f->guests.served,
                                    .reclaimed = f->guests.reclaimed,
                                    .refused = f->guests.refused + r->refused,
                                    .claims = v.claims,
                                    .routes = r->number};
}
