/* term.c - connects the node (failover/failover.h) with the clock, the storage and the links, and
 * carries out its orders: the node becomes the keeper, or steps down. */
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
#include "server/observe/events.h"
#include "server/observe/log.h"

static void log_term(enum sl_log_level level, const char *what, uint64_t term,
                     const char *name, int64_t number)
{
    char t[24], n[24];
    snprintf(t, sizeof t, "%" PRIu64, term);
    snprintf(n, sizeof n, "%" PRId64, number);
    sl_log(level, what, "term", t, name, n, NULL);
}

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
    sl_failover_term_read(&s->forward->node, s->now.ms, d->asked_ms, &op->result);
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
    sl_failover_claimed(&s->forward->node, s->now.ms, d->asked_ms, &op->result);
}

static void renewed(struct sl_storage_op *op)
{
    struct server *s = op->owner;
    struct sl_term_op *d = &s->forward->renew;
    d->busy = false;
    log_trouble(s, op->result.status);
    if (sl_failover_renewed(&s->forward->node, s->now.ms, d->asked_ms, op->term,
                            &op->result))
        sl_state_written(s, op->result.status == SLUICE_OK);
}

/* --- Resignation ------------------------------------------------------------------------------ */

#define RESIGN_MS 2000 /* How long a server that stops waits for the answer of etcd. */

static void resigned(struct sl_storage_op *op)
{
    struct server *s = op->owner;
    s->forward->resign.busy = false;
    log_trouble(s, op->result.status);
    if (op->result.status == SLUICE_OK)
        log_term(SL_LOG_INFO, "this node has resigned as the keeper", op->term,
                 "took_ms", s->now.ms - s->forward->resign.asked_ms);
    sl_server_go_on(s);
}

/* Close the connections of clients of this node that hold locks without a lease: they would not learn
 * that the next keeper grants these locks to others. */
static void close_unleased_holders(struct server *s)
{
    s->forward->holders_closed = true;
    for (struct sl_list *i = s->conns.next, *next; i != &s->conns; i = next) {
        struct conn *c = sl_container_of(i, struct conn, all);
        next = i->next;
        if (c->proxy == NULL && sl_session_holds(&c->session->s))
            sl_conn_close(c, SL_WAS_CUT);
    }
}

const char *sl_forward_resign(struct server *s)
{
    static char text[160];
    if (s->forward == NULL)
        return "only the keeper of a cluster on etcd can resign, and this cluster has "
               "none";
    struct sl_failover *f = &s->forward->node;
    if (f->resigning) return NULL;
    if (!f->route.leads && f->route.keeper != 0) {
        snprintf(text, sizeof text,
                 "this node is not the keeper; send NODES RESIGN to node %u",
                 f->route.keeper);
        return text;
    }
    if (!f->route.leads)
        return "this node is not the keeper, and does not know which node is; retry";
    if (!sl_failover_resign(f, s->now.ms))
        return "this node has become the keeper only recently, and still waits for "
               "leases of an earlier keeper; retry";
    sl_log(SL_LOG_INFO, "resigning as the keeper; recording all leases in etcd", NULL);
    s->forward->holders_closed = false;
    sl_server_go_on(s);
    return NULL;
}

bool sl_forward_resigns_first(struct server *s, const char *why)
{
    if (s->forward == NULL || s->forward->stop_why != NULL ||
        sl_forward_resign(s) != NULL)
        return false;
    s->forward->stop_why = why;
    return true;
}

/* Return when to stop, or SL_NEVER. */
static sl_ms stop_due(const struct server *s)
{
    const struct sl_forward *f = s->forward;
    if (f->stop_why == NULL || s->stopping || f->node.resigning) return SL_NEVER;
    return f->resign.busy ? f->resign.asked_ms + RESIGN_MS : 0;
}

/* --- The journal ------------------------------------------------------------------------------ */

#define PAGE_ROWS 1000u
#define PAGE_BYTES ((size_t)1 << 20)

static void recorded(struct sl_storage_op *op)
{
    struct server *s = op->owner;
    struct sl_failover *f = &s->forward->node;
    s->forward->record.busy = false;
    log_trouble(s, op->result.status);
    if (sl_failover_recorded(f, s->now.ms, op->term, &op->result))
        sl_state_durable(s, sl_journal_durable(f->journal.rules));
}

static void log_unreadable(const struct sl_storage_row *row)
{
    static const char digits[] = "0123456789abcdef";
    char text[2 * 32 + 1];
    size_t n = row->key.n < 32 ? row->key.n : 32;
    for (size_t i = 0; i < n; i++) {
        text[2 * i] = digits[(unsigned char)row->key.at[i] >> 4];
        text[2 * i + 1] = digits[(unsigned char)row->key.at[i] & 15];
    }
    text[2 * n] = '\0';
    sl_log(SL_LOG_ERROR,
           "the keeper's journal in etcd has an invalid entry, so this node grants "
           "nothing; "
           "start the version of Sluice that wrote it (docs/cluster.md)",
           "key", text, NULL);
}

static void journal_read(struct sl_storage_op *op)
{
    struct server *s = op->owner;
    uint32_t bad = 0;
    s->forward->journal.busy = false;
    log_trouble(s, op->result.status);
    if (sl_failover_journal_read(&s->forward->node, s->now, op->term, &op->result,
                                 &bad) != SLUICE_OK)
        log_unreadable(&op->result.rows[bad]);
    sl_server_go_on(s);
}

/* --- Submitting ------------------------------------------------------------------------------- */

static void submit_op(struct server *s, struct sl_term_op *d,
                      enum sl_storage_op_type type, const struct sl_failover_order *o,
                      void (*done)(struct sl_storage_op *op))
{
    assert(!d->busy); /* The election orders one operation at a time. */
    d->asked_ms = s->now.ms;
    d->op = (struct sl_storage_op){.type = type,
                                   .term = o->term,
                                   .heartbeat = o->heartbeat,
                                   .node = (uint32_t)s->settings->node,
                                   .fence_limit = o->fence_limit,
                                   .longest_ms = o->longest_ms,
                                   .clock_ms = o->clock_ms,
                                   .ledgers = o->ledgers,
                                   .writes = o->writes,
                                   .write_count = o->write_count,
                                   .key = o->after,
                                   .rows_max = PAGE_ROWS,
                                   .bytes_max = PAGE_BYTES,
                                   .owner = s,
                                   .done = done};
    d->busy = sl_transactions_submit_op(s, &d->op);
}

bool sl_forward_write_state(struct server *s, sl_fence fence_limit, sl_ms longest_ms)
{
    return s->forward != NULL && sl_failover_write_limits(&s->forward->node, s->now.ms,
                                                          fence_limit, longest_ms);
}

static void term_changed(void *owner, const struct sl_storage_term *term)
{
    struct server *s = owner;
    sl_election_term_changed(s->forward->node.election, s->now.ms, term);
}

void sl_forward_term_rejected(struct server *s, uint64_t term)
{
    if (s->forward != NULL)
        sl_election_refused(s->forward->node.election, s->now.ms, term);
}

/* --- A term begins and ends ------------------------------------------------------------------- */

/* Copy as many grants of the table to the ledger as the budget allows, for the next keeper. Returns
 * true when all are copied and the table is empty. */
static bool export_more(struct server *s, uint32_t *budget)
{
    if (!sl_failover_export(&s->forward->node, s->now, budget)) return false;
    s->drain_words = 0;
    return true;
}

/* Add the grants in the ledger to the table of this node, which is the keeper now, as many as the
 * budget of this loop iteration allows. Returns true if there are no more. */
static bool reclaim_own(struct server *s)
{
    sl_ms given_ms;
    while (s->effects_left > 0) {
        if (!sl_failover_reclaim_own(&s->forward->node, s->now, &given_ms)) return true;
        s->effects_left--;
        if (given_ms > 0) sl_state_given(s, given_ms);
    }
    return false;
}

/* --- The clients of this node, when it steps down ------------------------------------------- */

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

/* Abort the transactions of this node's clients, and queue their requests for the next keeper. Each
 * client gets a session of the route, which holds its records in the ledger. If there is no memory
 * for it, the client's grants without a lease are lost. */
static void move_clients(struct server *s)
{
    for (struct sl_list *n = s->conns.next; n != &s->conns; n = n->next) {
        struct conn *c = sl_container_of(n, struct conn, all);
        bool here = c->tx != NULL && c->tx->id != 0;
        if (c->proxy != NULL) continue;
        sl_forward_session_make(c);
        if (has_tx_request(c)) continue;
        bool there = c->forwarded != NULL && sl_route_tx_ended(&c->forwarded->route);
        if (here || there) sl_transactions_lost(c);
    }
    sl_local_move_waiters(s, move_out);
}

/* --- Orders ---------------------------------------------------------------------------------- */

/* A grant that was not acknowledged may be in the journal, so the next keeper must release it. If the
 * request has an id, the client may have repeated it through another node, so the grant stays. */
static void withdraw_own(struct request *r, const struct sl_grant *g)
{
    if (r->id.n > 0) return;
    struct session *n = r->c->session;
    sl_route_withdraw_own(&r->s->forward->node.route, r->s->now.ms, &n->s, r->key,
                          g->fence, g->lease_ms);
    if (sl_conn_describe(r->c) != SLUICE_OK) sl_conn_hang_up(r->c, SL_WAS_CUT);
}

static void end_term(struct server *s, uint64_t term)
{
    struct sl_table_stats table;
    sl_table_stats(s->table, &table);
    log_term(SL_LOG_WARN, "this node is no longer the keeper", term, "keys",
             (int64_t)table.keys);
    sl_proxy_carry_out(s);
    move_clients(s);
    sl_transactions_depose(s, term);
    sl_state_end_term(s, withdraw_own);
    sl_server_go_on(s);
}

static void begin_term(struct server *s, const struct sl_failover_order *o)
{
    struct sl_failover *f = &s->forward->node;
    uint32_t all = UINT32_MAX; /* No limit: the table must be empty before the term. */
    log_term(SL_LOG_INFO, "this node is the keeper", o->term, "locks_wait_ms",
             o->quiet_ms);
    if (f->route.exporting) export_more(s, &all);
    sl_failover_lead(f, s->now.ms, o, sl_proxy_linked(s));
    sl_forward_carry_out(s); /* End what depended on the previous keeper. */
    sl_state_begin_term(s, o->before.fence_limit, o->before.longest_ms);
    sl_transactions_lead(s, o->term);
    sl_event_keeper_changed(s, o->term, (uint32_t)s->settings->node);
    /* Run the queued requests here. Those that need the reports are queued again. */
    sl_route_resume(&f->route);
    sl_forward_carry_out(s);
    sl_server_go_on(s);
}

static void send_doubt(struct server *s, const struct sl_failover_message *m)
{
    struct sl_member peers[2 * SL_NODES_MAX];
    uint32_t n = sl_node_peers(sl_majority_node(s), peers);
    for (uint32_t i = 0; i < n; i++)
        if (peers[i].id != (sl_node_id)s->settings->node)
            sl_forward_send(s, peers[i].id, m);
}

static void carry_out(struct server *s, const struct sl_failover_order *o)
{
    struct sl_forward *f = s->forward;
    switch (o->type) {
        case SL_FAILOVER_ORDER_READ_TERM:
            submit_op(s, &f->read_term, SL_STORAGE_READ_TERM, o, term_read);
            break;
        case SL_FAILOVER_ORDER_CLAIM:
            submit_op(s, &f->claim, SL_STORAGE_CLAIM, o, claimed);
            break;
        case SL_FAILOVER_ORDER_RENEW:
            submit_op(s, &f->renew, SL_STORAGE_RENEW, o, renewed);
            break;
        case SL_FAILOVER_ORDER_RESIGN:
            /* If one of an earlier term is still under way, skip it: then the next keeper waits. */
            if (!f->resign.busy)
                submit_op(s, &f->resign, SL_STORAGE_RESIGN, o, resigned);
            break;
        case SL_FAILOVER_ORDER_RECORD:
            submit_op(s, &f->record, SL_STORAGE_RECORD, o, recorded);
            break;
        case SL_FAILOVER_ORDER_JOURNAL:
            submit_op(s, &f->journal, SL_STORAGE_JOURNAL, o, journal_read);
            break;
        case SL_FAILOVER_ORDER_DOUBT: send_doubt(s, &o->message); break;
        case SL_FAILOVER_ORDER_LEAD: begin_term(s, o); break;
        case SL_FAILOVER_ORDER_STOP: end_term(s, o->term); break;
        case SL_FAILOVER_ORDER_KEEPER:
            if (o->node != 0)
                log_term(SL_LOG_INFO, "another node is the keeper", o->term, "node",
                         o->node);
            sl_forward_carry_out(s);
            break;
    }
}

static void send_fill(void *arg, uint32_t to, const struct sl_failover_message *m)
{
    sl_forward_send(arg, to, m);
}

/* Complete the ledgers of nodes that were started recently, as the budget of this loop iteration and the
 * links allow. Returns false if there is more to send now. */
static bool fill_ledgers(struct server *s)
{
    uint32_t able = 0;
    for (sl_node_id i = 1; i <= SL_NODE_ID_MAX; i++)
        if (s->forward->node.guests.nodes[i].lacks && sl_links_are_up(s, i) &&
            sl_links_unsent(s, i) < SL_FORWARD_HIGH)
            able |= 1u << i;
    while (able != 0 && s->effects_left > 0) {
        if (!sl_failover_fill(&s->forward->node, s->now, able, send_fill, s))
            return true;
        s->effects_left--;
    }
    return able == 0;
}

/* Continue work that is done in batches. Returns true if there is no more. */
static bool continue_work(struct server *s)
{
    struct sl_failover *f = &s->forward->node;
    if (f->route.exporting && !export_more(s, &s->effects_left)) return false;
    if (f->route.leads && !reclaim_own(s)) return false;
    if (sl_guests_reports_end(&f->guests, s->now.ms)) sl_route_resume(&f->route);
    if (f->route.leads && !fill_ledgers(s)) return false;
    return sl_forward_carry_out(s);
}

bool sl_forward_pump(struct arbiter *a)
{
    struct server *s = a->s;
    struct sl_failover *f = &s->forward->node;
    struct sl_failover_order o;
    bool waited = f->ends_early;
    if (f->resigning && !s->forward->holders_closed) close_unleased_holders(s);
    sl_failover_tick(f, s->now.ms);
    if (waited && !f->ends_early)
        log_term(SL_LOG_INFO, "all other nodes have reported their locks",
                 f->guests.term, "locks_wait_ms",
                 f->quiet_until_ms > s->now.ms ? f->quiet_until_ms - s->now.ms : 0);
    sl_proxy_carry_out(s);
    sl_forward_carry_out(s);
    while (sl_failover_next(f, s->now.ms, &o)) carry_out(s, &o);
    if (f->route.leads) sl_state_noted(s, sl_failover_noted(f));
    bool all_done = continue_work(s);
    if (stop_due(s) <= s->now.ms) sl_server_stop(s, s->forward->stop_why);
    return all_done;
}

sl_ms sl_forward_due(const struct arbiter *a)
{
    sl_ms due = sl_failover_due(&a->s->forward->node), stop = stop_due(a->s);
    return stop < due ? stop : due;
}

/* --- Start and stop -------------------------------------------------------------------------- */

void sl_forward_members(struct server *s)
{
    uint32_t ids[SL_NODES_MAX];
    if (s->forward == NULL) return;
    const struct sl_membership *list = sl_node_membership(sl_majority_node(s));
    for (uint32_t i = 0; i < list->count; i++) ids[i] = list->at[i].id;
    sl_election_members(s->forward->node.election, s->now.ms, ids, list->count);
}

/* If a client of the keeper's own node may have a grant that it does not know of, the origin identifies
 * the grant. */
static void draw_origin(struct conn *c)
{
    struct sl_session *n = &c->session->s;
    if (c->proxy == NULL && n->origin == 0)
        n->origin = sl_route_draw_origin(&c->server->forward->node.route);
}

static const struct sl_local_observer observer = {.described = draw_origin,
                                                  .held = sl_forward_held,
                                                  .moved = sl_forward_moved,
                                                  .gone = sl_forward_gone,
                                                  .broke = sl_forward_broke};

struct arbiter *sl_forward_start(struct server *s)
{
    struct arbiter *a = sl_remote_new(s);
    struct sl_forward *f = s->forward = calloc(1, sizeof *f);
    struct sl_storage_record_limits limits;
    sl_ms volatile_ms = s->settings->lease_volatile_ms;
    sl_transactions_record_limits(s, &limits);
    const struct sl_failover_settings set = {
        .self = (uint32_t)s->settings->node,
        .keeper_wait_ms = s->settings->keeper_wait_ms,
        .hash_key = s->hash_key,
        .table = s->table,
        .volatile_ms = volatile_ms > 0 ? volatile_ms + SL_VOLATILE_EXTRA_MS : 0,
        .entries_max = limits.writes < SL_KEEPER_JOURNAL_ENTRIES_MAX
                           ? limits.writes
                           : SL_KEEPER_JOURNAL_ENTRIES_MAX,
        .entry_bytes_max = limits.bytes};
    if (a == NULL || f == NULL || !sl_failover_init(&f->node, &set, s->now.ms) ||
        sl_router_read_keys(s) != SLUICE_OK) {
        sl_log(SL_LOG_ERROR, "cannot start", "error", "out of memory", NULL);
        return NULL;
    }
    sl_list_init(&f->stalled);
    sl_state_set_keeper(s, &f->node.journal);
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
    sl_election_free(f->node.election);
    f->node.election = NULL;
}

/* --- Inspection ------------------------------------------------------------------------------- */

const char *sl_forward_why_not(const struct server *s)
{
    static char text[400];
    const struct sl_forward *f = s->forward;
    const char *trouble = sl_transactions_trouble(s);
    if (f->node.resigning)
        snprintf(text, sizeof text,
                 "node %" PRId64
                 " is the keeper, but hands over to another node; retry",
                 s->settings->node);
    else if (f->node.route.leads && f->node.guests.reads_journal)
        snprintf(text, sizeof text,
                 "node %" PRId64
                 " is the keeper, but has not read its journal in etcd (%s); "
                 "retry",
                 s->settings->node, *trouble != '\0' ? trouble : "see its log");
    else if (f->node.route.leads)
        snprintf(text, sizeof text,
                 "node %" PRId64 " is the keeper, but etcd has not confirmed it in "
                 "time (%s), so nothing is granted; retry",
                 s->settings->node,
                 *trouble != '\0' ? trouble : "it answers too slowly");
    else if (f->node.route.keeper != 0)
        snprintf(text, sizeof text,
                 "node %u is the keeper, but this node cannot reach it; retry, or use "
                 "another node",
                 f->node.route.keeper);
    else if (*trouble != '\0')
        snprintf(text, sizeof text, "there is no keeper: %s; retry", trouble);
    else snprintf(text, sizeof text, "no node has become the keeper yet; retry");
    return text;
}

size_t sl_forward_bytes(const struct server *s)
{
    return s->forward == NULL ? 0 : s->forward->node.route.ledger.bytes;
}

void sl_forward_view(const struct server *s, struct sl_forward_view *out)
{
    const struct sl_forward *f = s->forward;
    struct sl_election_view v;
    *out = (struct sl_forward_view){0};
    if (f == NULL) return;
    sl_election_view(f->node.election, &v);
    const struct sl_route *r = &f->node.route;
    uint32_t quiet_node = r->quiet_node;
    sl_ms quiet_ms = r->leads ? sl_guests_quiet_ms(&f->node.guests, s->now.ms,
                                                   sl_proxy_linked(s), &quiet_node)
                              : sl_route_quiet_ms(r, s->now.ms);
    *out = (struct sl_forward_view){
        .quiet_ms = quiet_ms,
        .reads_journal = r->leads && f->node.guests.reads_journal,
        .quiet_node = quiet_node,
        .keeper = r->keeper,
        .term = r->leads ? f->node.guests.term : r->keeper_term,
        .leads = r->leads,
        .resigning = f->node.resigning,
        .open = r->open,
        .known = r->leads ? f->node.ledgers != 0
                          : s->now.ms - r->complete_ms > f->node.settings.volatile_ms,
        .authority_ms = v.authority_end_ms > s->now.ms ? v.authority_end_ms - s->now.ms
                                                       : 0,
        .queued = r->queued_count,
        .sent = r->sent_count,
        .proxies = f->node.guests.by_client.count,
        .records = r->ledger.by_fence.count,
        .forwarded = r->forwarded,
        .served = f->node.guests.served,
        .reclaimed = f->node.guests.reclaimed,
        .refused = f->node.guests.refused + r->refused,
        .claims = v.claims,
        .routes = r->number};
}
