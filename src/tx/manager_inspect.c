/* look.c - what a keeper is asked about itself, and what must be true of it. */
#include <assert.h>

#include "tx/manager_internal.h"

void sl_tx_manager_stats(const struct sl_tx_manager *k, struct sl_tx_manager_stats *out)
{
    *out = k->stats;
    out->state = k->state;
    out->term = k->term;
    out->transactions = k->transaction_count;
    out->locks = k->locks.count - k->remembered;
    out->remembered = k->remembered;
    out->waiting = k->waiting;
}

size_t sl_tx_manager_bytes(const struct sl_tx_manager *k)
{
    return k->write_bytes + k->reply_bytes + k->name_bytes +
           k->transaction_count * (sizeof(struct sl_tx) + SL_MALLOC_BYTES) +
           k->locks.count * (sizeof(struct sl_tx_lock) + SL_MALLOC_BYTES) +
           k->items.count * (sizeof(struct sl_tx_item) + SL_MALLOC_BYTES) +
           k->writes.count * (sizeof(struct sl_tx_written) + 2 * SL_MALLOC_BYTES) +
           k->asked.count * (sizeof(struct sl_tx_reply) + SL_MALLOC_BYTES) +
           k->ops.count * (sizeof(struct sl_tx_op) + SL_MALLOC_BYTES) +
           sl_index_bytes(&k->locks) + sl_index_bytes(&k->items) +
           sl_index_bytes(&k->writes);
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

bool sl_tx_manager_holder(const struct sl_tx_manager *k, sl_ms now,
                          struct sl_bytes table, struct sl_bytes key, uint32_t i,
                          struct sl_tx_view *out)
{
    const struct sl_tx_item *item = sl_tx_item_find(k, table, key);
    if (item == NULL) return false;
    for (const struct sl_list *at = item->locks.next; at != &item->locks;
         at = at->next) {
        const struct sl_tx_lock *l = sl_container_of(at, struct sl_tx_lock, in_item);
        if (i-- > 0) continue;
        fill(now, l, out);
        return true;
    }
    for (const struct sl_list *at = item->line.next; at != &item->line; at = at->next) {
        const struct sl_tx_lock *l = sl_container_of(at, struct sl_tx_lock, in_line);
        if (l->mode != SL_TX_MODE_NONE) continue; /* It was among the first. */
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
    if (i->above != NULL) out->key = (struct sl_bytes){i->name + i->table_n, i->key_n};
}

bool sl_tx_manager_item(const struct sl_tx_manager *k, struct sl_bytes table,
                        struct sl_bytes key, struct sl_tx_item_view *out)
{
    const struct sl_tx_item *i = sl_tx_item_find(k, table, key);
    if (i == NULL || i->lock_count + i->waiter_count == 0) return false;
    fill_item(i, out);
    return true;
}

size_t sl_tx_manager_scan(const struct sl_tx_manager *k, uint64_t *cursor,
                          struct sl_tx_item_view *out, size_t max)
{
    void *items[64];
    size_t found = sl_index_scan(&k->items, cursor, items, max < 64 ? max : 64);
    for (size_t n = 0; n < found; n++) fill_item(items[n], &out[n]);
    return found;
}

/* --- Invariants ------------------------------------------------------------------------- */

#define must(so, what) assert((so) && what)

/* A lock on a key comes with an intention on its table, or with more. */
static bool is_intended(const struct sl_tx_manager *k, const struct sl_tx_lock *l)
{
    if (l->item->above == NULL) return true;
    const struct sl_tx_lock *above = sl_tx_lock_find(k, l->tx, l->item->above);
    enum sl_tx_mode needed = l->mode == SL_TX_MODE_W ? SL_TX_MODE_IW : SL_TX_MODE_IR;
    return above != NULL && sl_tx_mode_both(above->mode, needed) == above->mode;
}

/* How many stand in it. */
static uint32_t check_line(const struct sl_tx_item *i)
{
    const struct sl_tx_lock *before = NULL;
    uint32_t count = 0;
    for (const struct sl_list *a = i->line.next; a != &i->line; a = a->next) {
        const struct sl_tx_lock *l = sl_container_of(a, struct sl_tx_lock, in_line);
        must(l->wanted != SL_TX_MODE_NONE && l->tx->waits == l,
             "who waits knows for what");
        must(l->tx->state == SL_TX_RUNNING, "only who runs waits");
        if (before == NULL)
            must(!sl_tx_lock_may_have(l), "the first in line cannot have it");
        else must(sl_tx_lock_comes_before(before, l), "a line has its order");
        before = l;
        count++;
    }
    return count;
}

static void check_item(const struct sl_tx_manager *k, const struct sl_tx_item *i)
{
    uint32_t count[SL_TX_MODES] = {0}, holders = 0, waiters = check_line(i);
    for (const struct sl_list *a = i->locks.next; a != &i->locks; a = a->next) {
        const struct sl_tx_lock *l = sl_container_of(a, struct sl_tx_lock, in_item);
        count[l->mode]++;
        holders++;
        must(is_intended(k, l), "who has a key intends so on its table");
        for (const struct sl_list *b = a->next; b != &i->locks; b = b->next)
            must(sl_tx_mode_fits(l->mode,
                                 sl_container_of(b, struct sl_tx_lock, in_item)->mode),
                 "those who have an item fit beside each other");
    }
    for (int m = SL_TX_MODE_IR; m < SL_TX_MODES; m++)
        must(count[m] == i->count[m], "modes are counted");
    must(holders == i->lock_count && waiters == i->waiter_count, "locks are counted");
    must(holders + waiters + i->below + i->remembered > 0,
         "an item that nobody needs is gone");
}

static void check_again(const struct sl_tx_manager *k, const struct sl_tx *t)
{
    uint32_t count = 0;
    for (const struct sl_list *i = t->again.next; i != &t->again; i = i->next) {
        const struct sl_tx_lock *l = sl_container_of(i, struct sl_tx_lock, in_tx);
        must(l->mode == SL_TX_MODE_NONE && l->again != SL_TX_MODE_NONE,
             "what it will take again it does not have");
        must(l->wanted == SL_TX_MODE_NONE || l == t->waits,
             "it waits for one at a time");
        count++;
    }
    must(count == t->again_count, "what it will take again is counted");
    must(count == 0 || t->state == SL_TX_RUNNING || t->state == SL_TX_RESTARTING,
         "who ends remembers nothing");
    must(t->state != SL_TX_RUNNING || t->wait_due == SL_HEAP_NONE || t->reply != NULL,
         "a bounded wait is somebody's");
    must(t->wait_due == SL_HEAP_NONE || k->waits.items[t->wait_due].owner == t,
         "a bounded wait has its place");
}

static void check_tx(const struct sl_tx_manager *k, const struct sl_tx *t)
{
    uint32_t locks = 0, writes = 0;
    size_t bytes = 0;
    for (const struct sl_list *i = t->locks.next; i != &t->locks; i = i->next) locks++;
    for (const struct sl_list *i = t->writes.next; i != &t->writes; i = i->next) {
        const struct sl_tx_written *w = sl_container_of(i, struct sl_tx_written, in_tx);
        writes++;
        bytes += w->table_n + w->key_n + w->value_n;
    }
    must(locks == t->lock_count, "its locks are counted");
    check_again(k, t);
    must(writes == t->write_count && bytes == t->write_bytes, "its writes are counted");
    must(t->state != SL_TX_RESTARTING || (locks == 0 && writes == 0),
         "who restarts has nothing");
    must(t->waits == NULL || t->reply != NULL, "who waits was asked for something");
    must(t->waits == NULL || t->op == NULL, "who waits does not ask the engine");
    bool goes_on = !sl_list_empty(&t->going_on);
    must(t->reply == NULL || t->waits != NULL || t->op != NULL || goes_on,
         "who is not answered waits for somebody, or goes on");
    must(!goes_on ||
             (t->state == SL_TX_RUNNING && t->waits == NULL && t->reply != NULL),
         "who goes on has what it waited for");
    must(t->state != SL_TX_COMMITTING || t->op != NULL,
         "who commits waits for the engine");
    must(k->state == SL_TX_MANAGER_CURRENT || t->state == SL_TX_COMMITTING,
         "without a leader nobody runs");
}

void sl_tx_manager_check(const struct sl_tx_manager *k)
{
    uint64_t cursor = 0;
    void *items[64];
    uint32_t count = 0, waiting = 0;
    size_t bytes = 0, remembered = 0;
    do {
        size_t found = sl_index_scan(&k->items, &cursor, items, 64);
        for (size_t i = 0; i < found; i++) check_item(k, items[i]);
    } while (cursor != 0);
    for (const struct sl_list *i = k->transactions.next; i != &k->transactions;
         i = i->next) {
        const struct sl_tx *t = sl_container_of(i, struct sl_tx, all);
        check_tx(k, t);
        count++;
        bytes += t->write_bytes;
        remembered += t->again_count;
        waiting += t->waits != NULL ? 1 : 0;
    }
    must(count == k->transaction_count && waiting == k->waiting,
         "transactions are counted, and those who wait");
    must(bytes == k->write_bytes, "all writes are counted");
    must(remembered == k->remembered, "all that is remembered is counted");
    must(sl_list_empty(&k->going_on) == (k->going_on_ms == SL_NEVER),
         "who goes on is due");
}
