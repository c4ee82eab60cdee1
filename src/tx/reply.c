/* reply.c - the output of the manager: answers to clients and orders to the storage. */
#include <stdlib.h>
#include <string.h>

#include "tx/manager_internal.h"

/* --- Replies ----------------------------------------------------------------------- */

static uint64_t hash_reply(const void *item, const struct sl_index *x)
{
    const struct sl_tx_reply *r = item;
    return sl_hash(x->key, &r->session, sizeof r->session);
}

static bool same_reply_session(const void *item, struct sl_bytes key)
{
    return memcmp(&((const struct sl_tx_reply *)item)->session, key.at, key.n) == 0;
}

/* A session may have several replies. A search finds any one of them. */
const struct sl_index_kind sl_tx_replies_kind = {.hash = hash_reply,
                                                 .same = same_reply_session};

struct sl_tx_reply *sl_tx_reply_new(struct sl_tx_manager *m, uint64_t ticket,
                                    uint64_t session)
{
    if (sl_index_reserve(&m->unanswered) != SLUICE_OK) return NULL;
    struct sl_tx_reply *r = calloc(1, sizeof *r);
    if (r == NULL) return NULL;
    sl_list_init(&r->in_replies);
    r->ticket = ticket;
    r->session = session;
    sl_index_put(&m->unanswered, r, hash_reply(r, &m->unanswered));
    return r;
}

/* Detach a reply from its client, which will not fetch it. */
static void detach_reply(struct sl_tx_manager *m, struct sl_tx_reply *r)
{
    if (r->ticket == 0) return; /* It is already detached. */
    r->ticket = 0;
    sl_index_remove(&m->unanswered, r, hash_reply(r, &m->unanswered));
}

void sl_tx_reply_free(struct sl_tx_manager *m, struct sl_tx_reply *r)
{
    if (r == NULL) return;
    detach_reply(m, r);
    sl_list_remove(&r->in_replies);
    m->reply_bytes -= r->size;
    free(r->bytes);
    free(r);
}

void *sl_tx_reply_bytes(struct sl_tx_manager *m, struct sl_tx_reply *r, size_t bytes)
{
    void *more = realloc(r->bytes, bytes + 1);
    if (more == NULL) return NULL;
    m->reply_bytes += bytes + 1 - r->size;
    r->size = bytes + 1;
    r->bytes = more;
    return more;
}

static void put(struct sl_tx_manager *m, struct sl_tx_reply *r)
{
    if (r->ticket == 0) sl_tx_reply_free(m, r);
    else sl_list_append(&m->replies, &r->in_replies);
}

/* A reply that belongs to an order stays until the storage answers. */
void sl_tx_reply_forget(struct sl_tx_manager *m, uint64_t session)
{
    const struct sl_bytes key = {(const char *)&session, sizeof session};
    uint64_t hash = sl_hash(m->unanswered.key, key.at, key.n);
    struct sl_tx_reply *r;
    while ((r = sl_index_find(&m->unanswered, key, hash)) != NULL) {
        if (r->has_op) detach_reply(m, r);
        else sl_tx_reply_free(m, r);
    }
}

void sl_tx_reply_status(struct sl_tx_manager *m, struct sl_tx_reply *r, int status)
{
    r->answer.status = status;
    put(m, r);
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

const struct sl_index_kind sl_tx_ops_kind = {.hash = hash_op, .same = same_op};

static char *copy(char *at, struct sl_bytes b)
{
    if (b.n > 0) memcpy(at, b.at, b.n);
    return at + b.n;
}

struct sl_tx_op *sl_tx_op_new(struct sl_tx_manager *m, enum sl_tx_order_type type,
                              struct sl_tx *t, struct sl_bytes request,
                              struct sl_bytes table, struct sl_bytes key)
{
    if (sl_index_reserve(&m->ops) != SLUICE_OK) return NULL;
    struct sl_tx_op *op = calloc(1, sizeof *op + request.n + table.n + key.n);
    if (op == NULL) return NULL;
    op->number = ++m->last_op;
    op->type = type;
    op->tx = t;
    op->id = t == NULL ? 0 : t->id;
    op->request_n = (uint32_t)request.n;
    op->table_n = (uint32_t)table.n;
    op->key_n = (uint32_t)key.n;
    copy(copy(copy(op->bytes, request), table), key);
    sl_index_put(&m->ops, op, hash_op(op, &m->ops));
    sl_list_append(&m->orders, &op->in_orders);
    return op;
}

struct sl_tx_op *sl_tx_op_find(const struct sl_tx_manager *m, uint64_t number)
{
    return sl_index_find(&m->ops,
                         (struct sl_bytes){(const char *)&number, sizeof number},
                         sl_hash(m->ops.key, &number, sizeof number));
}

void sl_tx_op_remove(struct sl_tx_manager *m, struct sl_tx_op *op)
{
    sl_index_remove(&m->ops, op, hash_op(op, &m->ops));
    sl_list_remove(&op->in_orders);
}

void sl_tx_op_free(struct sl_tx_manager *m, struct sl_tx_op *op)
{
    sl_tx_reply_free(m, op->reply);
    free(op);
}

bool sl_tx_op_is_fetched(const struct sl_tx_op *op)
{
    return sl_list_empty(&op->in_orders);
}

void sl_tx_op_drop(struct sl_tx_manager *m, struct sl_tx_op *op)
{
    assert(op->reply == NULL); /* Only OUTCOME has one, and is never dropped. */
    op->tx = NULL;
    if (sl_tx_op_is_fetched(op)) return;
    sl_tx_op_remove(m, op);
    free(op);
}

bool sl_tx_op_reserve_writes(struct sl_tx_manager *m, uint32_t writes)
{
    if (writes <= m->commit_writes_max) return true;
    struct sl_storage_write *more = realloc(m->commit_writes, writes * sizeof *more);
    if (more == NULL) return false;
    m->commit_writes = more;
    m->commit_writes_max = writes;
    return true;
}

/* List the writes of a commit in the format of the storage. */
static void list_writes(struct sl_tx_manager *m, const struct sl_tx *t,
                        struct sl_tx_order *out)
{
    uint32_t n = 0;
    for (const struct sl_list *i = t->writes.next; i != &t->writes; i = i->next) {
        const struct sl_tx_write *w = sl_container_of(i, struct sl_tx_write, in_tx);
        m->commit_writes[n++] = (struct sl_storage_write){
            {w->name, w->table_n},
            {w->name + w->table_n, w->key_n},
            w->deleted ? (struct sl_bytes){NULL, 0}
                       : (struct sl_bytes){w->value, w->value_n}};
    }
    out->writes = m->commit_writes;
    out->write_count = n;
}

static bool fetch_order(struct sl_tx_manager *m, struct sl_tx_order *out)
{
    if (sl_list_empty(&m->orders)) return false;
    struct sl_tx_op *op = sl_container_of(m->orders.next, struct sl_tx_op, in_orders);
    const char *at = op->bytes;
    *out = (struct sl_tx_order){.type = op->type,
                                .op = op->number,
                                .term = m->term,
                                .id = op->id,
                                .request = {at, op->request_n},
                                .table = {at + op->request_n, op->table_n},
                                .key = {at + op->request_n + op->table_n, op->key_n}};
    if (op->type == SL_TX_ORDER_COMMIT && op->tx != NULL) list_writes(m, op->tx, out);
    sl_list_remove(&op->in_orders);
    return true;
}

bool sl_tx_manager_next(struct sl_tx_manager *m, struct sl_tx_order *out)
{
    sl_tx_reply_free(m, m->fetched);
    m->fetched = NULL;
    if (fetch_order(m, out)) return true;
    if (sl_list_empty(&m->replies)) return false;
    struct sl_tx_reply *r = sl_container_of(m->replies.next, struct sl_tx_reply,
                                            in_replies);
    *out = (struct sl_tx_order){
        .type = SL_TX_ORDER_ANSWER, .ticket = r->ticket, .answer = &r->answer};
    sl_list_remove(&r->in_replies);
    detach_reply(m, r);
    m->fetched = r;
    return true;
}
