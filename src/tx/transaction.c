/* transaction.c - one transaction: begin, restart, bar, end. */
#include <stdlib.h>
#include <string.h>

#include "tx/manager_internal.h"

/* --- Sessions ---------------------------------------------------------------------- */

static uint64_t hash_session(const void *item, const struct sl_index *x)
{
    const struct sl_tx *t = item;
    return sl_hash(x->key, &t->session, sizeof t->session);
}

static bool same_session(const void *item, struct sl_bytes key)
{
    return memcmp(&((const struct sl_tx *)item)->session, key.at, key.n) == 0;
}

const struct sl_index_kind sl_tx_sessions_kind = {.hash = hash_session,
                                                  .same = same_session};

struct sl_tx *sl_tx_find(const struct sl_tx_manager *m, uint64_t session)
{
    return sl_index_find(&m->by_session,
                         (struct sl_bytes){(const char *)&session, sizeof session},
                         sl_hash(m->by_session.key, &session, sizeof session));
}

bool sl_tx_manager_waits(const struct sl_tx_manager *m, uint64_t session)
{
    const struct sl_tx *t = sl_tx_find(m, session);
    return t != NULL && t->waits_for != NULL;
}

/* --- Answers ----------------------------------------------------------------------- */

void sl_tx_deadline_remove(struct sl_tx_manager *m, struct sl_tx *t)
{
    if (t->deadline_slot != SL_HEAP_NONE)
        sl_heap_remove(&m->deadlines, t->deadline_slot);
}

void sl_tx_age_remove(struct sl_tx_manager *m, struct sl_tx *t)
{
    if (t->age_slot != SL_HEAP_NONE) sl_heap_remove(&m->ages, t->age_slot);
}

void sl_tx_args_free(struct sl_tx_manager *m, struct sl_tx *t)
{
    if (t->args == NULL) return;
    m->name_bytes -= (size_t)t->table_n + t->key_n + t->value_n;
    free(t->args);
    t->args = NULL;
}

void sl_tx_answer(struct sl_tx_manager *m, struct sl_tx *t, int status)
{
    struct sl_tx_reply *r = t->reply;
    sl_tx_args_free(m, t);
    sl_tx_deadline_remove(m, t);
    if (r == NULL) return; /* The client has disconnected. */
    t->reply = NULL;
    sl_tx_reply_status(m, r, status);
}

/* Answer with a copy of the value, or with ENOMEM. */
void sl_tx_answer_value(struct sl_tx_manager *m, struct sl_tx *t, bool found,
                        struct sl_bytes value)
{
    struct sl_tx_reply *r = t->reply;
    if (r == NULL) return;
    char *bytes = sl_tx_reply_bytes(m, r, value.n);
    if (bytes == NULL) {
        sl_tx_answer(m, t, SLUICE_ENOMEM);
        return;
    }
    if (value.n > 0) memcpy(bytes, value.at, value.n);
    r->answer.found = found;
    if (found) r->answer.value = (struct sl_bytes){bytes, value.n};
    sl_tx_answer(m, t, SLUICE_OK);
}

/* --- Beginning and ending ------------------------------------------------------------ */

void sl_tx_end(struct sl_tx_manager *m, struct sl_tx *t)
{
    sl_tx_write_drop_all(m, t);
    if (t->op != NULL) sl_tx_op_drop(m, t->op);
    t->op = NULL;
    sl_list_remove(&t->ready);
    sl_tx_lock_release_all(m, t);
    sl_tx_age_remove(m, t);
    sl_tx_deadline_remove(m, t);
    if (!t->disconnected)
        sl_index_remove(&m->by_session, t, hash_session(t, &m->by_session));
    sl_list_remove(&t->all);
    m->transaction_count--;
    sl_tx_reply_free(m, t->reply);
    sl_tx_args_free(m, t);
    free(t->request);
    free(t);
}

void sl_tx_restart(struct sl_tx_manager *m, struct sl_tx *t, int why)
{
    assert(t->state == SL_TX_RUNNING || t->state == SL_TX_RESTARTING);
    t->state = SL_TX_RESTARTING;
    t->why = why;
    m->stats.restarted++;
    sl_tx_write_drop_all(m, t);
    if (t->op != NULL) sl_tx_op_drop(m, t->op);
    t->op = NULL;
    sl_list_remove(&t->ready);
    if (t->reply != NULL) sl_tx_answer(m, t, why);
    if (why == SLUICE_EAGE) sl_tx_lock_release_all(m, t);
    else sl_tx_lock_release_for_restart(m, t);
}

static struct sl_tx *make_tx(struct sl_tx_manager *m, sl_ms now, uint64_t session)
{
    uint32_t out = m->transaction_count - m->ages.count;
    if (sl_index_reserve(&m->by_session) != SLUICE_OK ||
        sl_heap_reserve(&m->ages, out + 1) != SLUICE_OK)
        return NULL;
    struct sl_tx *t = calloc(1, sizeof *t);
    if (t == NULL) return NULL;
    sl_list_init(&t->locks);
    sl_list_init(&t->retake);
    sl_list_init(&t->writes);
    sl_list_init(&t->ready);
    t->id = ++m->last_id;
    t->session = session;
    t->begun_ms = now;
    t->age_slot = t->deadline_slot = SL_HEAP_NONE;
    t->wait_until = SL_NEVER;
    sl_list_append(&m->transactions, &t->all);
    m->transaction_count++;
    sl_index_put(&m->by_session, t, hash_session(t, &m->by_session));
    return t;
}

static void set_age(struct sl_tx_manager *m, sl_ms now, struct sl_tx *t)
{
    sl_ms end = sl_ms_after(now, m->limits.age_ms_max);
    if (end == SL_NEVER) return;
    if (t->age_slot == SL_HEAP_NONE) sl_heap_put(&m->ages, end, t);
    else sl_heap_move(&m->ages, t->age_slot, end);
}

static bool set_request(struct sl_tx *t, struct sl_bytes request)
{
    char *copy = NULL;
    if (request.n > 0) {
        copy = malloc(request.n);
        if (copy == NULL) return false;
        memcpy(copy, request.at, request.n);
    }
    free(t->request);
    t->request = copy;
    t->request_n = (uint32_t)request.n;
    return true;
}

/* A restarted transaction begins again with its old number, so it keeps its age. */
void sl_tx_begin(struct sl_tx_manager *m, sl_ms now, struct sl_tx_reply *r,
                 const struct sl_tx_request *req)
{
    struct sl_tx *t = sl_tx_find(m, req->session);
    int status = SLUICE_OK;
    bool fresh = t == NULL;
    if (t != NULL && t->state != SL_TX_RESTARTING) status = SLUICE_ENOTX;
    else if (t == NULL && m->transaction_count >= m->limits.transactions_max)
        status = SLUICE_ETRANSACTIONS;
    else if (t == NULL) t = make_tx(m, now, req->session);
    if (status == SLUICE_OK && (t == NULL || !set_request(t, req->request))) {
        if (t != NULL && fresh) sl_tx_end(m, t);
        status = SLUICE_ENOMEM;
    }
    if (status == SLUICE_OK) {
        t->state = SL_TX_RUNNING;
        sl_tx_lock_sort_retakes(m, t);
        set_age(m, now, t);
        m->stats.begun++;
        r->answer.term = m->term;
        r->answer.id = t->id;
    }
    sl_tx_reply_status(m, r, status);
}

/* --- A client disconnects --------------------------------------------------------- */

void sl_tx_bar(struct sl_tx_manager *m, sl_ms now, struct sl_tx *t)
{
    sl_ms retry = sl_ms_after(now, SL_TX_RETRY_MS);
    t->op = sl_tx_op_new(m, SL_TX_ORDER_BAR, t, sl_tx_none, sl_tx_none, sl_tx_none);
    if (t->op == NULL && retry < m->bar_ms) m->bar_ms = retry;
}

/* Handle a transaction whose client has disconnected. Its commit may still be on its
 * way to the storage, so the transaction keeps its locks until the storage knows
 * that it must not commit. */
static void disconnect(struct sl_tx_manager *m, sl_ms now, struct sl_tx *t)
{
    t->reply = NULL; /* sl_tx_reply_forget() freed it. */
    sl_index_remove(&m->by_session, t, hash_session(t, &m->by_session));
    t->disconnected = true;
    if (t->state == SL_TX_COMMITTING) return; /* The result of the commit ends it. */
    m->stats.aborted++;
    sl_tx_lock_leave_queue(m, t);
    sl_tx_lock_forget_retakes(m, t);
    sl_tx_deadline_remove(m, t);
    sl_list_remove(&t->ready);
    if (t->op != NULL) sl_tx_op_drop(m, t->op);
    t->op = NULL;
    if (t->lock_count > 0 && m->state == SL_TX_MANAGER_CURRENT) {
        t->state = SL_TX_BARRED;
        sl_tx_age_remove(m, t);
        m->stats.barred++;
        sl_tx_bar(m, now, t);
        return;
    }
    sl_tx_end(m, t);
}

void sl_tx_manager_leave(struct sl_tx_manager *m, sl_ms now, uint64_t session)
{
    struct sl_tx *t = sl_tx_find(m, session);
    sl_tx_reply_forget(m, session);
    if (t == NULL) return;
    disconnect(m, now, t);
    sl_tx_run_ready(m, now);
}
