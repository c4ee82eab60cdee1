/* manager_inspect.c - queries for operators, and the invariants. */
#include <assert.h>

#include "tx/manager_internal.h"

void sl_tx_manager_stats(const struct sl_tx_manager *m, struct sl_tx_manager_stats *out)
{
    *out = m->stats;
    out->state = m->state;
    out->term = m->term;
    out->transactions = m->transaction_count;
    out->locks = m->locks.count - m->remembered;
    out->remembered = m->remembered;
    out->waiting = m->waiting;
}

size_t sl_tx_manager_bytes(const struct sl_tx_manager *m)
{
    return m->write_bytes + m->reply_bytes + m->name_bytes +
           m->transaction_count * (sizeof(struct sl_tx) + SL_MALLOC_BYTES) +
           m->locks.count * (sizeof(struct sl_tx_lock) + SL_MALLOC_BYTES) +
           m->items.count * (sizeof(struct sl_tx_item) + SL_MALLOC_BYTES) +
           m->writes.count * (sizeof(struct sl_tx_write) + 2 * SL_MALLOC_BYTES) +
           m->unanswered.count * (sizeof(struct sl_tx_reply) + SL_MALLOC_BYTES) +
           m->ops.count * (sizeof(struct sl_tx_op) + SL_MALLOC_BYTES) +
           sl_index_bytes(&m->locks) + sl_index_bytes(&m->items) +
           sl_index_bytes(&m->writes);
}

static void fill(sl_ms now, const struct sl_tx_lock *l, struct sl_tx_view *out)
{
    const struct sl_tx *before = l->wanted == SL_TX_MODE_NONE ? NULL
                                                              : sl_tx_lock_blocker(l);
    *out = (struct sl_tx_view){.id = l->tx->id,
                               .session = l->tx->session,
                               .mode = l->mode,
                               .wanted = l->wanted,
                               .since_ms = now - l->tx->begun_ms,
                               .waits_for = before == NULL ? 0 : before->id};
}

bool sl_tx_manager_holder(const struct sl_tx_manager *m, sl_ms now,
                          struct sl_bytes table, struct sl_bytes key, uint32_t i,
                          struct sl_tx_view *out)
{
    const struct sl_tx_item *item = sl_tx_item_find(m, table, key);
    if (item == NULL) return false;
    for (const struct sl_list *at = item->locks.next; at != &item->locks;
         at = at->next) {
        const struct sl_tx_lock *l = sl_container_of(at, struct sl_tx_lock, in_item);
        if (i-- > 0) continue;
        fill(now, l, out);
        return true;
    }
    for (const struct sl_list *at = item->queue.next; at != &item->queue;
         at = at->next) {
        const struct sl_tx_lock *l = sl_container_of(at, struct sl_tx_lock, in_queue);
        if (l->mode != SL_TX_MODE_NONE) continue; /* Listed as a holder. */
        if (i-- > 0) continue;
        fill(now, l, out);
        return true;
    }
    return false;
}

static void fill_item(const struct sl_tx_item *i, struct sl_tx_item_view *out)
{
    *out = (struct sl_tx_item_view){.table = {i->name, i->table_n},
                                    .holders = i->lock_count,
                                    .waiters = i->waiter_count};
    if (i->parent != NULL) out->key = (struct sl_bytes){i->name + i->table_n, i->key_n};
}

bool sl_tx_manager_item(const struct sl_tx_manager *m, struct sl_bytes table,
                        struct sl_bytes key, struct sl_tx_item_view *out)
{
    const struct sl_tx_item *i = sl_tx_item_find(m, table, key);
    if (i == NULL || i->lock_count + i->waiter_count == 0) return false;
    fill_item(i, out);
    return true;
}

size_t sl_tx_manager_scan(const struct sl_tx_manager *m, uint64_t *cursor,
                          struct sl_tx_item_view *out, size_t max)
{
    void *items[64];
    size_t found = sl_index_scan(&m->items, cursor, items, max < 64 ? max : 64);
    for (size_t n = 0; n < found; n++) fill_item(items[n], &out[n]);
    return found;
}

/* --- Invariants ------------------------------------------------------------------------- */

#define must(so, what) assert((so) && what)

/* Whether the lock, if it is on a key, has the intention lock on the table that it
 * needs. */
static bool is_intended(const struct sl_tx_manager *m, const struct sl_tx_lock *l)
{
    if (l->item->parent == NULL) return true;
    const struct sl_tx_lock *parent = sl_tx_lock_find(m, l->tx, l->item->parent);
    enum sl_tx_mode needed = l->mode == SL_TX_MODE_W ? SL_TX_MODE_IW : SL_TX_MODE_IR;
    return parent != NULL && sl_tx_mode_both(parent->mode, needed) == parent->mode;
}

/* Check a queue. Returns its length. */
static uint32_t check_queue(const struct sl_tx_item *i)
{
    const struct sl_tx_lock *before = NULL;
    uint32_t count = 0;
    for (const struct sl_list *a = i->queue.next; a != &i->queue; a = a->next) {
        const struct sl_tx_lock *l = sl_container_of(a, struct sl_tx_lock, in_queue);
        must(l->wanted != SL_TX_MODE_NONE && l->tx->waits_for == l,
             "a waiter has one queue");
        must(l->tx->state == SL_TX_RUNNING, "only running transactions wait");
        if (before == NULL)
            must(!sl_tx_lock_fits(l), "the head of a queue does not fit");
        else must(sl_tx_lock_precedes(before, l), "a queue is in order");
        before = l;
        count++;
    }
    return count;
}

static void check_item(const struct sl_tx_manager *m, const struct sl_tx_item *i)
{
    uint32_t count[SL_TX_MODES] = {0}, holders = 0, waiters = check_queue(i);
    for (const struct sl_list *a = i->locks.next; a != &i->locks; a = a->next) {
        const struct sl_tx_lock *l = sl_container_of(a, struct sl_tx_lock, in_item);
        count[l->mode]++;
        holders++;
        must(is_intended(m, l), "a lock on a key has an intention on its table");
        for (const struct sl_list *b = a->next; b != &i->locks; b = b->next)
            must(sl_tx_mode_fits(l->mode,
                                 sl_container_of(b, struct sl_tx_lock, in_item)->mode),
                 "holders of an item are compatible");
    }
    for (int mode = SL_TX_MODE_IR; mode < SL_TX_MODES; mode++)
        must(count[mode] == i->count[mode], "holders are counted by mode");
    must(holders == i->lock_count && waiters == i->waiter_count,
         "holders and waiters are counted");
    must(holders + waiters + i->references + i->remembered > 0,
         "an item without holders, waiters and references is freed");
}

static void check_retakes(const struct sl_tx_manager *m, const struct sl_tx *t)
{
    uint32_t count = 0;
    for (const struct sl_list *i = t->retake.next; i != &t->retake; i = i->next) {
        const struct sl_tx_lock *l = sl_container_of(i, struct sl_tx_lock, in_tx);
        must(l->mode == SL_TX_MODE_NONE && l->retake != SL_TX_MODE_NONE,
             "a lock to be retaken is not held");
        must(l->wanted == SL_TX_MODE_NONE || l == t->waits_for,
             "a transaction waits for one lock at a time");
        count++;
    }
    must(count == t->retake_count, "locks to be retaken are counted");
    must(count == 0 || t->state == SL_TX_RUNNING || t->state == SL_TX_RESTARTING,
         "an ending transaction retakes nothing");
    must(t->state != SL_TX_RUNNING || t->deadline_slot == SL_HEAP_NONE ||
             t->reply != NULL,
         "a deadline belongs to a request");
    must(t->deadline_slot == SL_HEAP_NONE ||
             m->deadlines.items[t->deadline_slot].owner == t,
         "the heap of deadlines knows its slots");
}

static void check_tx(const struct sl_tx_manager *m, const struct sl_tx *t)
{
    uint32_t locks = 0, writes = 0;
    size_t bytes = 0;
    for (const struct sl_list *i = t->locks.next; i != &t->locks; i = i->next) locks++;
    for (const struct sl_list *i = t->writes.next; i != &t->writes; i = i->next) {
        const struct sl_tx_write *w = sl_container_of(i, struct sl_tx_write, in_tx);
        writes++;
        bytes += w->table_n + w->key_n + w->value_n;
    }
    must(locks == t->lock_count, "locks of a transaction are counted");
    check_retakes(m, t);
    must(writes == t->write_count && bytes == t->write_bytes,
         "writes of a transaction are counted");
    must(t->state != SL_TX_RESTARTING || (locks == 0 && writes == 0),
         "a restarted transaction has no locks and no writes");
    must(t->waits_for == NULL || t->reply != NULL,
         "a waiting transaction has a request");
    must(t->waits_for == NULL || t->op == NULL,
         "a transaction waits for a lock or for the storage, not both");
    bool ready = !sl_list_empty(&t->ready);
    must(t->reply == NULL || t->waits_for != NULL || t->op != NULL || ready,
         "a request waits for a lock or the storage, or is ready");
    must(!ready ||
             (t->state == SL_TX_RUNNING && t->waits_for == NULL && t->reply != NULL),
         "a ready transaction runs a request and waits for no lock");
    must(t->op == NULL || t->op->tx == t, "an order knows its transaction");
    must(t->age_slot == SL_HEAP_NONE || m->ages.items[t->age_slot].owner == t,
         "the heap of ages knows its slots");
    must(t->age_slot == SL_HEAP_NONE || t->state == SL_TX_RUNNING ||
             t->state == SL_TX_RESTARTING,
         "a transaction that ends has no age limit");
    must(!t->disconnected || t->state == SL_TX_COMMITTING || t->state == SL_TX_BARRED,
         "a disconnected transaction commits or is barred");
    must(t->disconnected ? t->reply == NULL : sl_tx_find(m, t->session) == t,
         "a session finds its transaction");
    must(t->state != SL_TX_COMMITTING || t->op != NULL,
         "a committing transaction waits for the storage");
    must(m->state == SL_TX_MANAGER_CURRENT || t->state == SL_TX_COMMITTING,
         "only the current manager runs transactions");
}

void sl_tx_manager_check(const struct sl_tx_manager *m)
{
    uint64_t cursor = 0;
    void *items[64];
    uint32_t count = 0, waiting = 0;
    size_t bytes = 0, remembered = 0;
    do {
        size_t found = sl_index_scan(&m->items, &cursor, items, 64);
        for (size_t i = 0; i < found; i++) check_item(m, items[i]);
    } while (cursor != 0);
    for (const struct sl_list *i = m->transactions.next; i != &m->transactions;
         i = i->next) {
        const struct sl_tx *t = sl_container_of(i, struct sl_tx, all);
        check_tx(m, t);
        count++;
        bytes += t->write_bytes;
        remembered += t->retake_count;
        waiting += t->waits_for != NULL ? 1 : 0;
    }
    must(count == m->transaction_count && waiting == m->waiting,
         "transactions and waiting transactions are counted");
    must(bytes == m->write_bytes, "bytes of all writes are counted");
    must(remembered == m->remembered, "all locks to be retaken are counted");
    must(sl_list_empty(&m->ready) == (m->ready_ms == SL_NEVER),
         "ready transactions are due");
}
