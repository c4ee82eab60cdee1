/* keeper.c - the keeper's life, its orders, and what the engine says. */
#include <stdlib.h>
#include <string.h>

#include "tx/manager_internal.h"

/* --- Answers ----------------------------------------------------------------------- */

static uint64_t hash_asker(const void *item, const struct sl_index *x)
{
    const struct sl_tx_reply *r = item;
    return sl_hash(x->key, &r->session, sizeof r->session);
}

static bool same_asker(const void *item, struct sl_bytes key)
{
    return memcmp(&((const struct sl_tx_reply *)item)->session, key.at, key.n) == 0;
}

/* A session may have several: one of them is found. */
const struct sl_index_kind sl_asked_kind = {.hash = hash_asker, .same = same_asker};

struct sl_tx_reply *sl_tx_reply_new(struct sl_tx_manager *k, uint64_t ticket,
                                    uint64_t session)
{
    if (sl_index_reserve(&k->asked) != SLUICE_OK) return NULL;
    struct sl_tx_reply *r = calloc(1, sizeof *r);
    if (r == NULL) return NULL;
    sl_list_init(&r->place);
    r->ticket = ticket;
    r->session = session;
    sl_index_put(&k->asked, r, hash_asker(r, &k->asked));
    return r;
}

/* Nobody is to be told. */
static void let_go(struct sl_tx_manager *k, struct sl_tx_reply *r)
{
    if (r->ticket == 0) return;
    r->ticket = 0;
    sl_index_remove(&k->asked, r, hash_asker(r, &k->asked));
}

void sl_tx_reply_free(struct sl_tx_manager *k, struct sl_tx_reply *r)
{
    if (r == NULL) return;
    let_go(k, r);
    sl_list_remove(&r->place);
    k->reply_bytes -= r->size;
    free(r->bytes);
    free(r);
}

void *sl_tx_reply_bytes(struct sl_tx_manager *k, struct sl_tx_reply *r, size_t bytes)
{
    void *more = realloc(r->bytes, bytes + 1);
    if (more == NULL) return NULL;
    k->reply_bytes += bytes + 1 - r->size;
    r->size = bytes + 1;
    r->bytes = more;
    return more;
}

void sl_tx_reply_put(struct sl_tx_manager *k, struct sl_tx_reply *r)
{
    if (r->ticket == 0) sl_tx_reply_free(k, r);
    else sl_list_append(&k->replies, &r->place);
}

/* That of an order is kept until the engine has answered. */
void sl_tx_reply_forget(struct sl_tx_manager *k, uint64_t session)
{
    const struct sl_bytes key = {(const char *)&session, sizeof session};
    uint64_t hash = sl_hash(k->asked.key, key.at, key.n);
    struct sl_tx_reply *r;
    while ((r = sl_index_find(&k->asked, key, hash)) != NULL) {
        if (r->ordered) let_go(k, r);
        else sl_tx_reply_free(k, r);
    }
}

void sl_tx_reply_status(struct sl_tx_manager *k, struct sl_tx_reply *r, int status)
{
    r->answer.status = status;
    sl_tx_reply_put(k, r);
}

/* --- Orders ------------------------------------------------------------------------ */

static uint64_t hash_op(const void *item, const struct sl_index *x)
{
    const struct sl_tx_op *op = item;
    return sl_hash(x->key, &op->number, sizeof op->number);
}

static bool same_op(const void *item, struct sl_bytes key)
{
    return memcmp(&((const struct sl_tx_op *)item)->number, key.at, key.n) == 0;
}

const struct sl_index_kind sl_ops_kind = {.hash = hash_op, .same = same_op};

static char *copy(char *at, struct sl_bytes b)
{
    if (b.n > 0) memcpy(at, b.at, b.n);
    return at + b.n;
}

struct sl_tx_op *sl_order(struct sl_tx_manager *k, enum sl_tx_order_type type,
                          struct sl_tx *t, struct sl_bytes request,
                          struct sl_bytes table, struct sl_bytes key)
{
    if (sl_index_reserve(&k->ops) != SLUICE_OK) return NULL;
    struct sl_tx_op *op = calloc(1, sizeof *op + request.n + table.n + key.n);
    if (op == NULL) return NULL;
    op->number = ++k->last_op;
    op->type = type;
    op->tx = t;
    op->id = t == NULL ? 0 : t->id;
    op->request_n = (uint32_t)request.n;
    op->table_n = (uint32_t)table.n;
    op->key_n = (uint32_t)key.n;
    copy(copy(copy(op->bytes, request), table), key);
    sl_index_put(&k->ops, op, hash_op(op, &k->ops));
    sl_list_append(&k->orders, &op->place);
    return op;
}

bool sl_order_was_fetched(const struct sl_tx_op *op)
{
    return sl_list_empty(&op->place);
}

void sl_order_drop(struct sl_tx_manager *k, struct sl_tx_op *op)
{
    op->tx = NULL;
#ifndef MUT_GHOSTORDER
    if (sl_order_was_fetched(op)) return;
    sl_index_remove(&k->ops, op, hash_op(op, &k->ops));
    sl_list_remove(&op->place);
    free(op);
#endif
}

bool sl_order_reserve(struct sl_tx_manager *k, uint32_t writes)
{
    if (writes <= k->ordered_max) return true;
    struct sl_storage_write *more = realloc(k->ordered, writes * sizeof *more);
    if (more == NULL) return false;
    k->ordered = more;
    k->ordered_max = writes;
    return true;
}

/* The writes of a commit, as the engine takes them. */
static void list_writes(struct sl_tx_manager *k, const struct sl_tx *t,
                        struct sl_tx_order *out)
{
    uint32_t n = 0;
    for (const struct sl_list *i = t->writes.next; i != &t->writes; i = i->next) {
        const struct sl_tx_written *w = sl_container_of(i, struct sl_tx_written, in_tx);
        k->ordered[n++] = (struct sl_storage_write){
            {w->name, w->table_n},
            {w->name + w->table_n, w->key_n},
            w->deleted ? (struct sl_bytes){NULL, 0}
                       : (struct sl_bytes){w->value, w->value_n}};
    }
    out->writes = k->ordered;
    out->write_count = n;
}

static bool fetch_order(struct sl_tx_manager *k, struct sl_tx_order *out)
{
    if (sl_list_empty(&k->orders)) return false;
    struct sl_tx_op *op = sl_container_of(k->orders.next, struct sl_tx_op, place);
    const char *at = op->bytes;
    *out = (struct sl_tx_order){.type = op->type,
                                .op = op->number,
                                .term = k->term,
                                .id = op->id,
                                .request = {at, op->request_n},
                                .table = {at + op->request_n, op->table_n},
                                .key = {at + op->request_n + op->table_n, op->key_n}};
    if (op->type == SL_TX_ORDER_COMMIT && op->tx != NULL) list_writes(k, op->tx, out);
    sl_list_remove(&op->place);
    return true;
}

bool sl_tx_manager_next(struct sl_tx_manager *k, struct sl_tx_order *out)
{
    sl_tx_reply_free(k, k->fetched);
    k->fetched = NULL;
    if (fetch_order(k, out)) return true;
    if (sl_list_empty(&k->replies)) return false;
    struct sl_tx_reply *r = sl_container_of(k->replies.next, struct sl_tx_reply, place);
    *out = (struct sl_tx_order){
        .type = SL_TX_ORDER_ANSWER, .ticket = r->ticket, .answer = &r->answer};
    sl_list_remove(&r->place);
    let_go(k, r);
    k->fetched = r;
    return true;
}

/* --- What the engine did ---------------------------------------------------------------- */

static void claimed(struct sl_tx_manager *k, sl_ms now,
                    const struct sl_storage_result *done)
{
#ifndef MUT_LEADSTOPPED
    if (k->state != SL_TX_MANAGER_CANDIDATE) return;
#endif
    if (done->status == SLUICE_OK) {
        k->state = SL_TX_MANAGER_CURRENT;
        k->term = done->term;
    } else k->claim_ms = sl_ms_after(now, SL_TRY_AGAIN_MS);
}

static void free_op(struct sl_tx_manager *k, struct sl_tx_op *op)
{
    sl_tx_reply_free(k, op->reply);
    free(op);
}

static void tell_outcome(struct sl_tx_manager *k, struct sl_tx_op *op,
                         const struct sl_storage_result *done)
{
    struct sl_tx_reply *r = op->reply;
    if (r == NULL) return;
    op->reply = NULL;
    r->ordered = false;
    r->answer.found = done->found;
    r->answer.revision = done->revision;
    sl_tx_reply_status(k, r, done->status);
}

void sl_tx_manager_done(struct sl_tx_manager *k, sl_ms now, uint64_t number,
                        const struct sl_storage_result *done)
{
    struct sl_tx_op *op = sl_index_find(
        &k->ops, (struct sl_bytes){(const char *)&number, sizeof number},
        sl_hash(k->ops.key, &number, sizeof number));
    if (op == NULL) return;
    sl_index_remove(&k->ops, op, hash_op(op, &k->ops));
    sl_list_remove(&op->place);
    /* First of all: what this one had is for nobody else then. */
    if (done->status == SLUICE_ESTALE) sl_tx_manager_stop(k, now, done->term);
    if (op->type == SL_TX_ORDER_CLAIM) claimed(k, now, done);
    else if (op->type == SL_TX_ORDER_OUTCOME) tell_outcome(k, op, done);
    else if (op->tx != NULL) sl_tx_engine_did(k, now, op->tx, done);
    free_op(k, op);
    sl_tx_go_on(k, now);
}

/* The engine has its commit, or may have it. */
static bool is_on_its_way(const struct sl_tx *t)
{
#ifdef MUT_STOPFORGETS
    return false;
#endif
    return t->state == SL_TX_COMMITTING && sl_order_was_fetched(t->op);
}

static void drop_claims(struct sl_tx_manager *k)
{
    struct sl_list *next;
    for (struct sl_list *i = k->orders.next; i != &k->orders; i = next) {
        struct sl_tx_op *op = sl_container_of(i, struct sl_tx_op, place);
        next = i->next;
        if (op->type == SL_TX_ORDER_CLAIM) sl_order_drop(k, op);
    }
}

/* Who waits is told; what was written is gone; and nothing is granted any more. But STALE
 * says that nothing was committed: a commit on its way is waited for. */
void sl_tx_manager_stop(struct sl_tx_manager *k, sl_ms now, uint64_t term)
{
    if (k->state == SL_TX_MANAGER_STOPPED) return;
    k->state = SL_TX_MANAGER_STOPPED;
    drop_claims(k);
    struct sl_list *next;
    for (struct sl_list *i = k->transactions.next; i != &k->transactions; i = next) {
        struct sl_tx *t = sl_container_of(i, struct sl_tx, all);
        next = i->next;
        if (is_on_its_way(t)) continue;
        if (t->reply != NULL) {
            t->reply->answer.term = term;
            sl_tx_reply_status(k, t->reply, SLUICE_ESTALE);
            t->reply = NULL;
        }
        sl_tx_end(k, t);
    }
    sl_tx_go_on(k, now); /* Nobody. */
}

/* --- Time ----------------------------------------------------------------------------- */

/* Those who left, and there was no memory to say so, or the engine refused. */
static void bar_again(struct sl_tx_manager *k, sl_ms now)
{
    k->bar_ms = SL_NEVER;
    for (struct sl_list *i = k->transactions.next; i != &k->transactions; i = i->next) {
        struct sl_tx *t = sl_container_of(i, struct sl_tx, all);
        if (t->state == SL_TX_BARRED && t->op == NULL) sl_tx_bar(k, now, t);
    }
}

void sl_tx_manager_tick(struct sl_tx_manager *k, sl_ms now)
{
    const struct sl_bytes none = {NULL, 0};
    if (k->bar_ms <= now) bar_again(k, now);
    if (k->state == SL_TX_MANAGER_CANDIDATE && k->claim_ms <= now) {
        k->claim_ms = SL_NEVER;
        if (sl_order(k, SL_TX_ORDER_CLAIM, NULL, none, none, none) == NULL)
            k->claim_ms = sl_ms_after(now, SL_TRY_AGAIN_MS);
    }
    uint64_t end = k->stats.steps + SL_STEPS_MAX;
    while (k->ages.count > 0 && k->ages.items[0].at <= now && k->stats.steps < end) {
        struct sl_tx *t = k->ages.items[0].owner;
        k->stats.steps++;
        sl_heap_remove(&k->ages, t->due);
        sl_tx_restart(k, t, SLUICE_EAGE);
    }
    while (k->waits.count > 0 && k->waits.items[0].at <= now && k->stats.steps < end) {
        k->stats.steps++;
        sl_tx_wait_ended(k, k->waits.items[0].owner);
    }
    sl_tx_go_on(k, now);
}

sl_ms sl_tx_manager_due(const struct sl_tx_manager *k)
{
    sl_ms due = k->bar_ms < k->going_on_ms ? k->bar_ms : k->going_on_ms;
    if (k->state == SL_TX_MANAGER_CANDIDATE && k->claim_ms < due) due = k->claim_ms;
    if (k->ages.count > 0 && k->ages.items[0].at < due) due = k->ages.items[0].at;
    if (k->waits.count > 0 && k->waits.items[0].at < due) due = k->waits.items[0].at;
    return due;
}

/* --- Life ------------------------------------------------------------------------------- */

static void placed(void *owner, uint32_t place)
{
    ((struct sl_tx *)owner)->due = place;
}

static void wait_placed(void *owner, uint32_t place)
{
    ((struct sl_tx *)owner)->wait_due = place;
}

struct sl_tx_manager *sl_tx_manager_new(const struct sl_tx_manager_limits *limits,
                                        struct sl_hash_key key)
{
    struct sl_tx_manager *k = calloc(1, sizeof *k);
    if (k == NULL) return NULL;
    k->limits = *limits;
    sl_index_init(&k->items, &sl_items_kind, key);
    sl_index_init(&k->locks, &sl_locks_kind, key);
    sl_index_init(&k->writes, &sl_writes_kind, key);
    sl_index_init(&k->by_session, &sl_sessions_kind, key);
    sl_index_init(&k->ops, &sl_ops_kind, key);
    sl_index_init(&k->asked, &sl_asked_kind, key);
    sl_heap_init(&k->ages, placed);
    sl_heap_init(&k->waits, wait_placed);
    sl_list_init(&k->transactions);
    sl_list_init(&k->going_on);
    sl_list_init(&k->orders);
    sl_list_init(&k->replies);
    k->bar_ms = k->going_on_ms = SL_NEVER;
    return k;
}

/* At the end. A reply of an order points to nothing. */
static void drop_op(void *item)
{
    struct sl_tx_op *op = item;
    free(op->reply);
    free(op);
}

void sl_tx_manager_free(struct sl_tx_manager *k)
{
    if (k == NULL) return;
    sl_tx_manager_stop(k, 0, 0);
    while (!sl_list_empty(&k->transactions))
        sl_tx_end(k, sl_container_of(k->transactions.next, struct sl_tx, all));
    while (!sl_list_empty(&k->replies))
        sl_tx_reply_free(k,
                         sl_container_of(k->replies.next, struct sl_tx_reply, place));
    sl_index_empty(&k->ops, drop_op);
    sl_tx_reply_free(k, k->fetched);
    sl_index_free(&k->ops);
    sl_index_free(&k->asked);
    sl_index_free(&k->items);
    sl_index_free(&k->locks);
    sl_index_free(&k->writes);
    sl_index_free(&k->by_session);
    sl_heap_free(&k->ages);
    sl_heap_free(&k->waits);
    free(k->ordered);
    free(k);
}
