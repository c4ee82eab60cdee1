/* keeper_tx.c - transactions at the keeper: passes commands to the transaction manager
 * (tx/manager.h) and carries out its orders. Follows src/server/arbiter/transactions.c. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "sim/keeper.h"

static const struct sl_tx_manager_limits limits = {.transactions_max = 64,
                                                   .locks_max = 64,
                                                   .writes_max = 64,
                                                   .bytes_max = 65536,
                                                   .age_ms_max = SL_NEVER,
                                                   .name_bytes_max = 64,
                                                   .value_bytes_max = 256,
                                                   .request_bytes_max = 64,
                                                   .rows_max = 64};

/* The manager of a term. It outlives the term until the storage has answered all its orders. */
struct ksim_manager {
    struct sl_list all; /* In node.managers; the first one is the newest. */
    struct sl_tx_manager *tx;
    uint64_t term;
    uint32_t ordered;
    bool stopped;
};

static const char table[] = "t";

bool ksim_is_tx(const struct ksim_command *m)
{
    return m->verb >= KSIM_TX_BEGIN && m->verb != KSIM_TX_OUTCOME;
}

static struct ksim_manager *current(const struct ksim_node *n)
{
    if (sl_list_empty(&n->managers)) return NULL;
    struct ksim_manager *x = sl_container_of(n->managers.next, struct ksim_manager,
                                             all);
    return x->stopped ? NULL : x;
}

static void end(struct ksim_manager *x)
{
    sl_list_remove(&x->all);
    sl_tx_manager_free(x->tx);
    free(x);
}

void ksim_tx_free(struct ksim_node *n)
{
    while (!sl_list_empty(&n->managers))
        end(sl_container_of(n->managers.next, struct ksim_manager, all));
}

/* ---- replies ---- */

static enum sl_tx_verb verb_of(uint32_t verb)
{
    switch (verb) {
        case KSIM_TX_BEGIN: return SL_TX_BEGIN;
        case KSIM_TX_GET: return SL_TX_GET;
        case KSIM_TX_PUT: return SL_TX_PUT;
        case KSIM_TX_COMMIT: return SL_TX_COMMIT;
        case KSIM_TX_ABORT: return SL_TX_ABORT;
        default: return SL_TX_OUTCOME;
    }
}

/* Return the transaction of the connection after this answer; 0: none. */
static uint64_t transaction_of(const struct ksim_request *q,
                               const struct sl_tx_answer *a)
{
    const struct ksim_conn *c = q->c;
    uint32_t verb = q->command.verb;
    bool restarts = a->status == SLUICE_ERESTART || a->status == SLUICE_EAGE;
    if (verb == KSIM_TX_BEGIN) return a->status == SLUICE_OK ? a->id : c->tx_id;
    if (verb == KSIM_TX_OUTCOME) return c->tx_id;
    if (verb == KSIM_TX_COMMIT && !restarts) return 0;
    if (verb == KSIM_TX_ABORT && a->status == SLUICE_OK) return 0;
    return a->status == SLUICE_ESTALE ? 0 : c->tx_id;
}

static void answer(struct ksim_world *w, uint32_t i, uint64_t ticket,
                   const struct sl_tx_answer *a)
{
    struct ksim_conn *c = ksim_conn_of_session(w, i, ticket);
    struct ksim_request *q = c == NULL ? NULL : c->request;
    char text[160];
    if (q == NULL || q->place != KSIM_IN_TX) return; /* The client has left. */
    uint32_t verb = q->command.verb;
    c->tx_id = transaction_of(q, a);
    if (a->status != SLUICE_OK && q->command.settles != 0)
        snprintf(text, sizeof text,
                 "-UNKNOWN\r\n"); /* The commit may have succeeded. */
    else if (a->status != SLUICE_OK)
        snprintf(text, sizeof text, "-%s %" PRIu64 "\r\n",
                 sluice_status_word(a->status), w->nodes[i].f.guests.term);
    else if (verb == KSIM_TX_BEGIN)
        snprintf(text, sizeof text, "*2\r\n:%" PRIu64 "\r\n:%" PRIu64 "\r\n", a->term,
                 a->id);
    else if (verb == KSIM_TX_COMMIT || (verb == KSIM_TX_OUTCOME && a->found))
        snprintf(text, sizeof text, ":%" PRIu64 "\r\n", a->revision);
    else if (verb == KSIM_TX_OUTCOME && q->command.settles != 0)
        snprintf(text, sizeof text, "-STALE\r\n");
    else if (verb == KSIM_TX_GET && a->found)
        snprintf(text, sizeof text, "$%.*s", (int)a->value.n, a->value.at);
    else if (verb == KSIM_TX_GET || verb == KSIM_TX_OUTCOME)
        snprintf(text, sizeof text, "$-1\r\n");
    else snprintf(text, sizeof text, "+OK\r\n");
    ksim_reply(w, i, q, (struct sl_bytes){text, strlen(text)});
}

/* ---- orders ---- */

static enum sl_storage_op_type type_of(enum sl_tx_order_type type)
{
    switch (type) {
        case SL_TX_ORDER_COMMIT: return SL_STORAGE_COMMIT;
        case SL_TX_ORDER_BAR: return SL_STORAGE_BAR;
        case SL_TX_ORDER_READ: return SL_STORAGE_READ;
        case SL_TX_ORDER_SCAN: return SL_STORAGE_SCAN;
        default: return SL_STORAGE_OUTCOME;
    }
}

static void order(struct ksim_world *w, uint32_t i, struct ksim_manager *x,
                  const struct sl_tx_order *o)
{
    if (o->type == SL_TX_ORDER_CLAIM) { /* The election has claimed the term. */
        const struct sl_storage_result mine = {.term = x->term};
        sl_tx_manager_done(x->tx, ksim_node_now(w, i).ms, o->op, &mine);
        return;
    }
    const struct sl_storage_op op = {.type = type_of(o->type),
                                     .term = o->term,
                                     .id = o->id,
                                     .request = o->request,
                                     .table = o->table,
                                     .key = o->key,
                                     .writes = o->writes,
                                     .write_count = o->write_count,
                                     .rows_max = 64};
    struct ksim_op *k = ksim_etcd_submit(w, i, &op, ksim_node_now(w, i).ms);
    k->tag = o->op;
    k->tag_term = x->term;
    x->ordered++;
}

static void carry_out(struct ksim_world *w, uint32_t i, struct ksim_manager *x)
{
    struct sl_tx_order o;
    while (sl_tx_manager_next(x->tx, &o)) {
        ksim_mix(w, (uint64_t)o.type << 40 ^ o.id);
        if (o.type == SL_TX_ORDER_ANSWER) answer(w, i, o.ticket, o.answer);
        else if (!x->stopped) order(w, i, x, &o);
    }
}

void ksim_tx_pump(struct ksim_world *w, uint32_t i)
{
    struct ksim_manager *x = current(&w->nodes[i]);
    sl_ms now_ms = ksim_node_now(w, i).ms;
    if (x == NULL) return;
    if (sl_tx_manager_due(x->tx) <= now_ms) sl_tx_manager_tick(x->tx, now_ms);
    carry_out(w, i, x);
    sl_tx_manager_check(x->tx);
}

sl_ms ksim_tx_due(const struct ksim_node *n)
{
    const struct ksim_manager *x = current(n);
    return x == NULL ? SL_NEVER : sl_tx_manager_due(x->tx);
}

void ksim_tx_done(struct ksim_world *w, uint32_t i, const struct ksim_op *op)
{
    struct ksim_node *n = &w->nodes[i];
    for (struct sl_list *l = n->managers.next; l != &n->managers; l = l->next) {
        struct ksim_manager *x = sl_container_of(l, struct ksim_manager, all);
        if (x->term != op->tag_term) continue;
        x->ordered--;
        sl_tx_manager_done(x->tx, ksim_node_now(w, i).ms, op->tag, &op->op.result);
        carry_out(w, i, x);
        if (!x->stopped && op->op.result.status == SLUICE_ESTALE)
            sl_election_refused(n->f.election, ksim_node_now(w, i).ms,
                                op->op.result.term);
        if (x->stopped && x->ordered == 0) end(x);
        return;
    }
}

/* ---- terms ---- */

void ksim_tx_lead(struct ksim_world *w, uint32_t i, uint64_t term)
{
    struct ksim_manager *x = calloc(1, sizeof *x);
    if (x == NULL) abort();
    x->tx = sl_tx_manager_new(&limits, (struct sl_hash_key){7, 0});
    if (x->tx == NULL) abort();
    x->term = term;
    sl_list_append(w->nodes[i].managers.next, &x->all);
    sl_tx_manager_tick(x->tx, ksim_node_now(w, i).ms); /* It orders the claim. */
    carry_out(w, i, x);
}

void ksim_tx_depose(struct ksim_world *w, uint32_t i, uint64_t term)
{
    struct ksim_manager *x = current(&w->nodes[i]);
    if (x == NULL) return;
    sl_tx_manager_stop(x->tx, ksim_node_now(w, i).ms, term + 1);
    x->stopped = true;
    carry_out(w, i, x);
    if (x->ordered == 0) end(x);
}

/* ---- connections ---- */

void ksim_tx_lost(struct ksim_conn *c)
{
    c->tx_id = 0;
    c->tx_lost = true;
}

bool ksim_tx_answers_lost(struct ksim_world *w, uint32_t i, struct ksim_request *q)
{
    struct ksim_conn *c = q->c;
    if (!c->tx_lost || !ksim_is_tx(&q->command)) return false;
    c->tx_lost = false;
    if (q->command.verb == KSIM_TX_BEGIN || q->command.verb == KSIM_TX_ABORT)
        return false;
    ksim_reply(w, i, q, (struct sl_bytes){"-STALE\r\n", 8});
    return true;
}

void ksim_tx_leave(struct ksim_world *w, uint32_t i, struct ksim_conn *c)
{
    struct ksim_manager *x = current(&w->nodes[i]);
    c->tx_id = 0;
    if (x != NULL) sl_tx_manager_leave(x->tx, ksim_node_now(w, i).ms, c->s.id);
}

void ksim_tx_serve(struct ksim_world *w, uint32_t i, struct ksim_request *q)
{
    struct ksim_manager *x = current(&w->nodes[i]);
    const struct ksim_command *m = &q->command;
    char key[8];
    if (x == NULL) {
        ksim_reply(w, i, q, (struct sl_bytes){"-NOKEEPER\r\n", 11});
        return;
    }
    int n = snprintf(key, sizeof key, "r%u", m->key);
    const struct sl_tx_request request = {.type = verb_of(m->verb),
                                          .session = q->c->s.id,
                                          .request = {m->id, strlen(m->id)},
                                          .table = {table, 1},
                                          .key = {key, (size_t)n},
                                          .value = {m->value, strlen(m->value)}};
    q->place = KSIM_IN_TX;
    if (sl_tx_manager_submit(x->tx, ksim_node_now(w, i).ms, q->c->s.id, &request) !=
        SLUICE_OK)
        abort();
    carry_out(w, i, x);
}
