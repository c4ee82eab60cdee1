/* manager.c - creation and destruction of the manager, storage results, time. */
#include <stdlib.h>
#include <string.h>

#include "tx/manager_internal.h"

/* --- Storage results -------------------------------------------------------------- */

static void claimed(struct sl_tx_manager *m, sl_ms now,
                    const struct sl_storage_result *done)
{
    if (m->state != SL_TX_MANAGER_CANDIDATE) return;
    if (done->status == SLUICE_OK) {
        m->state = SL_TX_MANAGER_CURRENT;
        m->term = done->term;
    } else m->claim_ms = sl_ms_after(now, SL_TX_RETRY_MS);
}

static void answer_outcome(struct sl_tx_manager *m, struct sl_tx_op *op,
                           const struct sl_storage_result *done)
{
    struct sl_tx_reply *r = op->reply;
    if (r == NULL) return;
    op->reply = NULL;
    r->has_op = false;
    r->answer.found = done->found;
    r->answer.revision = done->revision;
    sl_tx_reply_status(m, r, done->status);
}

void sl_tx_manager_done(struct sl_tx_manager *m, sl_ms now, uint64_t number,
                        const struct sl_storage_result *done)
{
    struct sl_tx_op *op = sl_tx_op_find(m, number);
    if (op == NULL) return;
    assert(sl_tx_op_is_fetched(op));
    sl_tx_op_remove(m, op);
    /* Stop first, so that no other transaction gets the locks of this one. */
    if (done->status == SLUICE_ESTALE) sl_tx_manager_stop(m, now, done->term);
    if (op->type == SL_TX_ORDER_CLAIM) claimed(m, now, done);
    else if (op->type == SL_TX_ORDER_OUTCOME) answer_outcome(m, op, done);
    else if (op->tx != NULL) sl_tx_storage_done(m, now, op->tx, done);
    sl_tx_op_free(m, op);
    sl_tx_run_ready(m, now);
}

/* Whether the storage may have received the transaction's commit. */
static bool commit_is_in_flight(const struct sl_tx *t)
{
    return t->state == SL_TX_COMMITTING && sl_tx_op_is_fetched(t->op);
}

static void drop_claims(struct sl_tx_manager *m)
{
    struct sl_list *next;
    for (struct sl_list *i = m->orders.next; i != &m->orders; i = next) {
        struct sl_tx_op *op = sl_container_of(i, struct sl_tx_op, in_orders);
        next = i->next;
        if (op->type == SL_TX_ORDER_CLAIM) sl_tx_op_drop(m, op);
    }
}

/* Pending requests are answered with STALE, which promises that nothing was
 * committed. So a commit that was sent to the storage is answered only when the storage
 * has answered. */
void sl_tx_manager_stop(struct sl_tx_manager *m, sl_ms now, uint64_t term)
{
    if (m->state == SL_TX_MANAGER_STOPPED) return;
    m->state = SL_TX_MANAGER_STOPPED;
    drop_claims(m);
    struct sl_list *next;
    for (struct sl_list *i = m->transactions.next; i != &m->transactions; i = next) {
        struct sl_tx *t = sl_container_of(i, struct sl_tx, all);
        next = i->next;
        if (commit_is_in_flight(t)) continue;
        if (t->reply != NULL) {
            t->reply->answer.term = term;
            sl_tx_reply_status(m, t->reply, SLUICE_ESTALE);
            t->reply = NULL;
        }
        sl_tx_end(m, t);
    }
    sl_tx_run_ready(m, now); /* Nothing is ready; this only resets ready_ms. */
}

/* --- Time ----------------------------------------------------------------------------- */

/* Order bars again that the storage rejected, or for which there was no memory. */
static void retry_bars(struct sl_tx_manager *m, sl_ms now)
{
    m->bar_ms = SL_NEVER;
    for (struct sl_list *i = m->transactions.next; i != &m->transactions; i = i->next) {
        struct sl_tx *t = sl_container_of(i, struct sl_tx, all);
        if (t->state == SL_TX_BARRED && t->op == NULL) sl_tx_bar(m, now, t);
    }
}

void sl_tx_manager_tick(struct sl_tx_manager *m, sl_ms now)
{
    if (m->bar_ms <= now) retry_bars(m, now);
    if (m->state == SL_TX_MANAGER_CANDIDATE && m->claim_ms <= now) {
        m->claim_ms = SL_NEVER;
        if (sl_tx_op_new(m, SL_TX_ORDER_CLAIM, NULL, sl_tx_none, sl_tx_none,
                         sl_tx_none) == NULL)
            m->claim_ms = sl_ms_after(now, SL_TX_RETRY_MS);
    }
    uint64_t end = m->stats.steps + SL_TX_STEPS_MAX;
    while (m->ages.count > 0 && m->ages.items[0].at <= now && m->stats.steps < end) {
        struct sl_tx *t = m->ages.items[0].owner;
        m->stats.steps++;
        sl_heap_remove(&m->ages, t->age_slot);
        sl_tx_restart(m, t, SLUICE_EAGE);
    }
    while (m->deadlines.count > 0 && m->deadlines.items[0].at <= now &&
           m->stats.steps < end) {
        m->stats.steps++;
        sl_tx_wait_timed_out(m, m->deadlines.items[0].owner);
    }
    sl_tx_run_ready(m, now);
}

sl_ms sl_tx_manager_due(const struct sl_tx_manager *m)
{
    sl_ms due = m->bar_ms < m->ready_ms ? m->bar_ms : m->ready_ms;
    if (m->state == SL_TX_MANAGER_CANDIDATE && m->claim_ms < due) due = m->claim_ms;
    if (m->ages.count > 0 && m->ages.items[0].at < due) due = m->ages.items[0].at;
    if (m->deadlines.count > 0 && m->deadlines.items[0].at < due)
        due = m->deadlines.items[0].at;
    return due;
}

/* --- Creation and destruction ----------------------------------------------------- */

static void age_moved(void *owner, uint32_t place)
{
    ((struct sl_tx *)owner)->age_slot = place;
}

static void deadline_moved(void *owner, uint32_t place)
{
    ((struct sl_tx *)owner)->deadline_slot = place;
}

struct sl_tx_manager *sl_tx_manager_new(const struct sl_tx_manager_limits *limits,
                                        struct sl_hash_key key)
{
    struct sl_tx_manager *m = calloc(1, sizeof *m);
    if (m == NULL) return NULL;
    assert(limits->age_ms_max > 0);
    m->limits = *limits;
    sl_index_init(&m->items, &sl_tx_items_kind, key);
    sl_index_init(&m->locks, &sl_tx_locks_kind, key);
    sl_index_init(&m->writes, &sl_tx_writes_kind, key);
    sl_index_init(&m->by_session, &sl_tx_sessions_kind, key);
    sl_index_init(&m->ops, &sl_tx_ops_kind, key);
    sl_index_init(&m->unanswered, &sl_tx_replies_kind, key);
    sl_heap_init(&m->ages, age_moved);
    sl_heap_init(&m->deadlines, deadline_moved);
    sl_list_init(&m->transactions);
    sl_list_init(&m->ready);
    sl_list_init(&m->orders);
    sl_list_init(&m->replies);
    m->bar_ms = m->ready_ms = SL_NEVER;
    return m;
}

/* Free an order and its reply, which has no bytes. */
static void drop_op(void *item)
{
    struct sl_tx_op *op = item;
    free(op->reply);
    free(op);
}

void sl_tx_manager_free(struct sl_tx_manager *m)
{
    if (m == NULL) return;
    sl_tx_manager_stop(m, 0, 0);
    while (!sl_list_empty(&m->transactions))
        sl_tx_end(m, sl_container_of(m->transactions.next, struct sl_tx, all));
    while (!sl_list_empty(&m->replies))
        sl_tx_reply_free(
            m, sl_container_of(m->replies.next, struct sl_tx_reply, in_replies));
    sl_index_empty(&m->ops, drop_op);
    sl_tx_reply_free(m, m->fetched);
    sl_index_free(&m->ops);
    sl_index_free(&m->unanswered);
    sl_index_free(&m->items);
    sl_index_free(&m->locks);
    sl_index_free(&m->writes);
    sl_index_free(&m->by_session);
    sl_heap_free(&m->ages);
    sl_heap_free(&m->deadlines);
    free(m->commit_writes);
    free(m);
}
