/* request.c - one client request: its locks, its execution, its answer. */
#include <stdlib.h>
#include <string.h>

#include "tx/manager_internal.h"

/* --- Arguments ------------------------------------------------------------------------ */

struct sl_bytes sl_tx_arg_table(const struct sl_tx *t)
{
    return (struct sl_bytes){t->args, t->table_n};
}

struct sl_bytes sl_tx_arg_key(const struct sl_tx *t)
{
    if (t->whole_table) return sl_tx_none;
    return (struct sl_bytes){t->args + t->table_n, t->key_n};
}

static struct sl_bytes arg_value(const struct sl_tx *t)
{
    return (struct sl_bytes){t->args + t->table_n + t->key_n, t->value_n};
}

/* Take the lock on the table first, then the lock on the key. */
static int take_locks(struct sl_tx_manager *m, struct sl_tx *t)
{
    enum sl_tx_mode mode = t->write ? SL_TX_MODE_W : SL_TX_MODE_R;
    if (t->whole_table)
        return sl_tx_lock_take(m, t, sl_tx_arg_table(t), sl_tx_none, mode);
    enum sl_tx_mode intends = t->write ? SL_TX_MODE_IW : SL_TX_MODE_IR;
    int status = sl_tx_lock_take(m, t, sl_tx_arg_table(t), sl_tx_none, intends);
    if (status != SLUICE_OK) return status;
    return sl_tx_lock_take(m, t, sl_tx_arg_table(t), sl_tx_arg_key(t), mode);
}

/* --- Executing a request that has all its locks ----------------------------------- */

static void order_storage(struct sl_tx_manager *m, struct sl_tx *t,
                          enum sl_tx_order_type type)
{
    struct sl_bytes request = {t->request, t->request_n};
    bool names = type == SL_TX_ORDER_READ || type == SL_TX_ORDER_SCAN;
    t->op = sl_tx_op_new(m, type, t, type == SL_TX_ORDER_COMMIT ? request : sl_tx_none,
                         names ? sl_tx_arg_table(t) : sl_tx_none,
                         type == SL_TX_ORDER_READ ? sl_tx_arg_key(t) : sl_tx_none);
    if (t->op == NULL) sl_tx_answer(m, t, SLUICE_ENOMEM);
}

static void get(struct sl_tx_manager *m, struct sl_tx *t)
{
    const struct sl_tx_write *w = sl_tx_write_find(m, t, sl_tx_arg_table(t),
                                                   sl_tx_arg_key(t));
    if (w == NULL) order_storage(m, t, SL_TX_ORDER_READ);
    else sl_tx_answer_value(m, t, !w->deleted, (struct sl_bytes){w->value, w->value_n});
}

/* Delete a key. `found` says whether the key existed, according to the transaction's
 * own writes or the storage. */
static void del_known(struct sl_tx_manager *m, struct sl_tx *t, bool found)
{
    int status = sl_tx_write_put(m, t, sl_tx_arg_table(t), sl_tx_arg_key(t),
                                 (struct sl_bytes){"", 0}, true);
    t->reply->answer.found = found && status == SLUICE_OK;
    sl_tx_answer(m, t, status);
}

static void del(struct sl_tx_manager *m, struct sl_tx *t)
{
    const struct sl_tx_write *w = sl_tx_write_find(m, t, sl_tx_arg_table(t),
                                                   sl_tx_arg_key(t));
    if (w == NULL) order_storage(m, t, SL_TX_ORDER_READ);
    else del_known(m, t, !w->deleted);
}

/* Order a commit. Every result of a commit ends the transaction. */
static void commit(struct sl_tx_manager *m, struct sl_tx *t)
{
    if (!sl_tx_op_reserve_writes(m, t->write_count)) sl_tx_answer(m, t, SLUICE_ENOMEM);
    else order_storage(m, t, SL_TX_ORDER_COMMIT);
    if (t->op == NULL) {
        m->stats.aborted++;
        sl_tx_end(m, t);
        return;
    }
    t->state = SL_TX_COMMITTING;
    sl_tx_lock_forget_retakes(m, t);
    sl_tx_age_remove(m, t);
}

static void execute(struct sl_tx_manager *m, struct sl_tx *t)
{
    switch (t->verb) {
        case SL_TX_GET: get(m, t); break;
        case SL_TX_SCAN: order_storage(m, t, SL_TX_ORDER_SCAN); break;
        case SL_TX_PUT:
            sl_tx_answer(m, t,
                         sl_tx_write_put(m, t, sl_tx_arg_table(t), sl_tx_arg_key(t),
                                         arg_value(t), false));
            break;
        case SL_TX_DEL: del(m, t); break;
        default: sl_tx_answer(m, t, SLUICE_OK); break;
    }
}

/* Time out a request. The transaction keeps the locks that it had before the
 * request. It gives up a new intention lock on the table, under which it has not
 * read or written anything. */
static void time_out(struct sl_tx_manager *m, struct sl_tx *t)
{
    sl_tx_lock_leave_queue(m, t);
    if (t->table_mode_known && !t->whole_table) {
        const struct sl_tx_item *i = sl_tx_item_find(m, sl_tx_arg_table(t), sl_tx_none);
        struct sl_tx_lock *l = i == NULL ? NULL : sl_tx_lock_find(m, t, i);
        if (l != NULL) sl_tx_lock_weaken(m, l, t->table_mode);
    }
    sl_tx_answer(m, t, SLUICE_EFULL);
}

static void note_table_mode(struct sl_tx_manager *m, struct sl_tx *t)
{
    const struct sl_tx_item *i = sl_tx_item_find(m, sl_tx_arg_table(t), sl_tx_none);
    const struct sl_tx_lock *l = i == NULL ? NULL : sl_tx_lock_find(m, t, i);
    t->table_mode = l == NULL ? SL_TX_MODE_NONE : l->mode;
    t->table_mode_known = true;
}

static void run(struct sl_tx_manager *m, sl_ms now, struct sl_tx *t)
{
    int status = sl_tx_lock_retake(m, t);
    if (status == SLUICE_OK && t->wait_until != SL_NEVER && !t->table_mode_known)
        note_table_mode(m, t);
    if (status == SLUICE_OK) status = take_locks(m, t);
    if (status == SLUICE_OK) execute(m, t);
    else if (status == SL_TX_WAITS && t->wait_until <= now) time_out(m, t);
    else if (status == SL_TX_WAITS) sl_tx_deadlock_break(m, t);
    else sl_tx_answer(m, t, status);
}

/* One release can make thousands of transactions ready, and each may start a
 * deadlock search, so one call runs only some of them. */
void sl_tx_run_ready(struct sl_tx_manager *m, sl_ms now)
{
    uint64_t end = m->stats.steps + SL_TX_STEPS_MAX;
    while (!sl_list_empty(&m->ready) && m->stats.steps < end) {
        struct sl_tx *t = sl_container_of(m->ready.next, struct sl_tx, ready);
        sl_list_remove(&t->ready);
        m->stats.steps++;
        run(m, now, t);
    }
    m->ready_ms = sl_list_empty(&m->ready) ? SL_NEVER : now;
}

void sl_tx_wait_timed_out(struct sl_tx_manager *m, struct sl_tx *t)
{
    sl_tx_deadline_remove(m, t);
    if (t->waits_for != NULL) time_out(m, t); /* Else it is ready. */
}

/* --- Storage results -------------------------------------------------------------- */

/* Handle the result of a commit. Every result ends the transaction. The locks are
 * released last. */
static void committed(struct sl_tx_manager *m, struct sl_tx *t,
                      const struct sl_storage_result *done)
{
    if (done->status == SLUICE_OK) m->stats.committed++;
    else m->stats.aborted++;
    if (t->reply != NULL) {
        t->reply->answer.revision = done->revision;
        t->reply->answer.term = done->term;
    }
    sl_tx_answer(m, t, done->status);
    sl_tx_end(m, t);
}

/* Handle the result of a bar: release the locks, or keep them and retry the bar
 * later. */
static void barred(struct sl_tx_manager *m, sl_ms now, struct sl_tx *t,
                   const struct sl_storage_result *done)
{
    if (done->status != SLUICE_OK) {
        sl_ms retry = sl_ms_after(now, SL_TX_RETRY_MS);
        if (retry < m->bar_ms) m->bar_ms = retry;
        return;
    }
    sl_tx_end(m, t);
}

void sl_tx_storage_done(struct sl_tx_manager *m, sl_ms now, struct sl_tx *t,
                        const struct sl_storage_result *done)
{
    t->op = NULL;
    if (t->state == SL_TX_COMMITTING) committed(m, t, done);
    else if (t->state == SL_TX_BARRED) barred(m, now, t, done);
    else if (done->status != SLUICE_OK) sl_tx_answer(m, t, done->status);
    else if (t->verb == SL_TX_SCAN) sl_tx_answer(m, t, sl_tx_scan_fill(m, t, done));
    else if (t->verb == SL_TX_DEL) del_known(m, t, done->found);
    else sl_tx_answer_value(m, t, done->found, done->value);
}

/* --- Submitting ----------------------------------------------------------------------- */

static int validate(const struct sl_tx_manager *m, const struct sl_tx_request *req)
{
    const struct sl_tx_manager_limits *l = &m->limits;
    bool names = req->type >= SL_TX_LOCK && req->type <= SL_TX_SCAN;
    if (m->state != SL_TX_MANAGER_CURRENT) return SLUICE_ENOKEEPER;
    if (req->request.n > l->request_bytes_max) return SLUICE_ETOOBIG;
    if (req->type == SL_TX_OUTCOME && req->request.n == 0) return SLUICE_EINVAL;
    if (!names) return SLUICE_OK;
    if (req->table.n == 0) return SLUICE_EINVAL;
    bool key = req->type != SL_TX_SCAN &&
               !(req->type == SL_TX_LOCK && req->key.at == NULL);
    if (key && req->key.n == 0) return SLUICE_EINVAL;
    if (req->table.n + req->key.n > l->name_bytes_max) return SLUICE_ETOOBIG;
    return req->value.n > l->value_bytes_max ? SLUICE_ETOOBIG : SLUICE_OK;
}

/* Copy the arguments and the deadline, because the request may have to wait. */
static bool keep_args(struct sl_tx_manager *m, sl_ms now, struct sl_tx *t,
                      const struct sl_tx_request *req)
{
    if (req->bounded && sl_heap_reserve(&m->deadlines, 1) != SLUICE_OK) return false;
    char *args = malloc(req->table.n + req->key.n + req->value.n + 1);
    if (args == NULL) return false;
    t->wait_until = req->bounded ? sl_ms_after(now, req->wait_ms) : SL_NEVER;
    t->table_mode_known = false;
    if (req->bounded && req->wait_ms > 0 && t->wait_until != SL_NEVER)
        sl_heap_put(&m->deadlines, t->wait_until, t);
    memcpy(args, req->table.at, req->table.n);
    if (req->key.n > 0) memcpy(args + req->table.n, req->key.at, req->key.n);
    if (req->value.n > 0)
        memcpy(args + req->table.n + req->key.n, req->value.at, req->value.n);
    sl_tx_args_free(m, t);
    t->args = args;
    t->table_n = (uint32_t)req->table.n;
    t->key_n = (uint32_t)req->key.n;
    t->value_n = (uint32_t)req->value.n;
    m->name_bytes += req->table.n + req->key.n + req->value.n;
    t->whole_table = req->type == SL_TX_SCAN ||
                     (req->type == SL_TX_LOCK && req->key.at == NULL);
    t->write = req->type == SL_TX_PUT || req->type == SL_TX_DEL ||
               (req->type == SL_TX_LOCK && req->write);
    return true;
}

static void order_outcome(struct sl_tx_manager *m, struct sl_tx_reply *r,
                          const struct sl_tx_request *req)
{
    struct sl_tx_op *op = sl_tx_op_new(m, SL_TX_ORDER_OUTCOME, NULL, req->request,
                                       sl_tx_none, sl_tx_none);
    if (op == NULL) {
        sl_tx_reply_status(m, r, SLUICE_ENOMEM);
        return;
    }
    op->reply = r;
    r->has_op = true;
}

static void abort_tx(struct sl_tx_manager *m, struct sl_tx *t, struct sl_tx_reply *r)
{
    m->stats.aborted++;
    sl_tx_end(m, t);
    sl_tx_reply_status(m, r, SLUICE_OK);
}

static void handle_request(struct sl_tx_manager *m, sl_ms now, struct sl_tx *t,
                           struct sl_tx_reply *r, const struct sl_tx_request *req)
{
    if (req->type == SL_TX_ABORT) {
        abort_tx(m, t, r);
        return;
    }
    if (t->state == SL_TX_RESTARTING) {
        sl_tx_reply_status(m, r, t->why);
        return;
    }
    t->reply = r;
    t->verb = req->type;
    if (req->type == SL_TX_COMMIT) commit(m, t);
    else if (!keep_args(m, now, t, req)) sl_tx_answer(m, t, SLUICE_ENOMEM);
    else run(m, now, t);
}

int sl_tx_manager_submit(struct sl_tx_manager *m, sl_ms now, uint64_t ticket,
                         const struct sl_tx_request *req)
{
    assert(ticket != 0 && req->type <= SL_TX_OUTCOME && req->wait_ms >= 0);
    struct sl_tx_reply *r = sl_tx_reply_new(m, ticket, req->session);
    if (r == NULL) return SLUICE_ENOMEM;
    int status = validate(m, req);
    struct sl_tx *t = sl_tx_find(m, req->session);
    if (status != SLUICE_OK) sl_tx_reply_status(m, r, status);
    else if (req->type == SL_TX_BEGIN) sl_tx_begin(m, now, r, req);
    else if (req->type == SL_TX_OUTCOME) order_outcome(m, r, req);
    else if (t == NULL || t->reply != NULL) sl_tx_reply_status(m, r, SLUICE_ENOTX);
    else handle_request(m, now, t, r, req);
    sl_tx_run_ready(m, now);
    return SLUICE_OK;
}
