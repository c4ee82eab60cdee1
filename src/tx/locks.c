/* locks.c - items (tables and keys), the modes in which transactions lock them, and
 * their queues. */
#include <stdlib.h>
#include <string.h>

#include "tx/manager_internal.h"

/* --- Modes ------------------------------------------------------------------------- */

bool sl_tx_mode_fits(enum sl_tx_mode a, enum sl_tx_mode b)
{
    static const bool fits[SL_TX_MODES][SL_TX_MODES] = {
        /*            NONE  IR    IW    R     RIW    W */
        /* NONE */ {true, true, true, true, true, true},
        /* IR */ {true, true, true, true, true, false},
        /* IW */ {true, true, true, false, false, false},
        /* R */ {true, true, false, true, false, false},
        /* RIW */ {true, true, false, false, false, false},
        /* W */ {true, false, false, false, false, false}};
    return fits[a][b];
}

enum sl_tx_mode sl_tx_mode_both(enum sl_tx_mode a, enum sl_tx_mode b)
{
    if (a == b || b == SL_TX_MODE_NONE) return a;
    if (a == SL_TX_MODE_NONE) return b;
    if (a == SL_TX_MODE_W || b == SL_TX_MODE_W) return SL_TX_MODE_W;
    if (a == SL_TX_MODE_IR) return b;
    if (b == SL_TX_MODE_IR) return a;
    return SL_TX_MODE_RIW; /* Any two of IW, R and RIW. */
}

const char *sl_tx_mode_name(enum sl_tx_mode mode)
{
    static const char *const names[SL_TX_MODES] = {"none",
                                                   "intends to read",
                                                   "intends to write",
                                                   "reads",
                                                   "reads, and intends to write",
                                                   "writes"};
    return names[mode];
}

/* --- Items ------------------------------------------------------------------------- */

static uint64_t hash_name(struct sl_bytes table, struct sl_bytes key,
                          struct sl_hash_key secret)
{
    uint64_t h = sl_hash(secret, table.at, table.n);
    secret.a ^= h;
    return key.at == NULL ? h : sl_hash(secret, key.at, key.n);
}

static struct sl_bytes table_of(const struct sl_tx_item *i)
{
    return (struct sl_bytes){i->name, i->table_n};
}

static struct sl_bytes key_of(const struct sl_tx_item *i)
{
    return i->parent == NULL ? (struct sl_bytes){NULL, 0}
                             : (struct sl_bytes){i->name + i->table_n, i->key_n};
}

static uint64_t hash_item(const void *item, const struct sl_index *x)
{
    return hash_name(table_of(item), key_of(item), x->key);
}

/* What a search for an item looks for. key.at is NULL for a table. */
struct item_name {
    struct sl_bytes table, key;
};

static bool same_item(const void *item, struct sl_bytes name)
{
    const struct sl_tx_item *i = item;
    const struct item_name *w = (const void *)name.at;
    return (i->parent == NULL) == (w->key.at == NULL) && i->table_n == w->table.n &&
           memcmp(i->name, w->table.at, w->table.n) == 0 &&
           (w->key.at == NULL ||
            (i->key_n == w->key.n &&
             memcmp(i->name + i->table_n, w->key.at, w->key.n) == 0));
}

const struct sl_index_kind sl_tx_items_kind = {.hash = hash_item, .same = same_item};

struct sl_tx_item *sl_tx_item_find(const struct sl_tx_manager *m, struct sl_bytes table,
                                   struct sl_bytes key)
{
    const struct item_name name = {table, key};
    return sl_index_find(&m->items, (struct sl_bytes){(const char *)&name, sizeof name},
                         hash_name(table, key, m->items.key));
}

static struct sl_tx_item *get_item(struct sl_tx_manager *m, struct sl_bytes table,
                                   struct sl_bytes key)
{
    struct sl_tx_item *i = sl_tx_item_find(m, table, key), *parent = NULL;
    if (i != NULL) return i;
    if (key.at != NULL) parent = sl_tx_item_find(m, table, (struct sl_bytes){NULL, 0});
    if (sl_index_reserve(&m->items) != SLUICE_OK) return NULL;
    i = calloc(1, sizeof *i + table.n + key.n);
    if (i == NULL) return NULL;
    sl_list_init(&i->locks);
    sl_list_init(&i->queue);
    i->table_n = (uint32_t)table.n;
    i->key_n = (uint32_t)key.n;
    memcpy(i->name, table.at, table.n);
    if (key.n > 0) memcpy(i->name + table.n, key.at, key.n);
    i->number = ++m->last_item;
    i->parent = parent;
    if (parent != NULL) parent->references++;
    sl_index_put(&m->items, i, hash_item(i, &m->items));
    m->name_bytes += table.n + key.n;
    return i;
}

/* Free an item if it has no holders, waiters or references, and then its table if the
 * same is true of it. */
static void drop_item(struct sl_tx_manager *m, struct sl_tx_item *i)
{
    if (i->lock_count > 0 || i->waiter_count > 0 || i->references > 0 ||
        i->remembered > 0)
        return;
    struct sl_tx_item *parent = i->parent;
    sl_index_remove(&m->items, i, hash_item(i, &m->items));
    m->name_bytes -= (size_t)i->table_n + i->key_n;
    free(i);
    if (parent == NULL) return;
    parent->references--;
    drop_item(m, parent);
}

/* --- Locks ------------------------------------------------------------------------- */

struct lock_name {
    const struct sl_tx *tx;
    const struct sl_tx_item *item;
};

static uint64_t hash_lock(const void *item, const struct sl_index *x)
{
    const struct sl_tx_lock *l = item;
    const struct lock_name name = {l->tx, l->item};
    return sl_hash(x->key, &name, sizeof name);
}

static bool same_lock(const void *item, struct sl_bytes name)
{
    const struct sl_tx_lock *l = item;
    const struct lock_name *w = (const void *)name.at;
    return l->tx == w->tx && l->item == w->item;
}

const struct sl_index_kind sl_tx_locks_kind = {.hash = hash_lock, .same = same_lock};

struct sl_tx_lock *sl_tx_lock_find(const struct sl_tx_manager *m, const struct sl_tx *t,
                                   const struct sl_tx_item *i)
{
    const struct lock_name name = {t, i};
    return sl_index_find(&m->locks, (struct sl_bytes){(const char *)&name, sizeof name},
                         sl_hash(m->locks.key, &name, sizeof name));
}

static struct sl_tx_lock *make_lock(struct sl_tx_manager *m, struct sl_tx *t,
                                    struct sl_tx_item *i)
{
    if (sl_index_reserve(&m->locks) != SLUICE_OK) return NULL;
    struct sl_tx_lock *l = calloc(1, sizeof *l);
    if (l == NULL) return NULL;
    sl_list_init(&l->in_item);
    sl_list_init(&l->in_queue);
    l->tx = t;
    l->item = i;
    sl_list_append(&t->locks, &l->in_tx);
    t->lock_count++;
    sl_index_put(&m->locks, l, hash_lock(l, &m->locks));
    return l;
}

/* Remember a lock that the transaction lost in a restart and will take again. */
static void remember(struct sl_tx_manager *m, struct sl_tx_lock *l,
                     enum sl_tx_mode mode)
{
    assert(l->mode == SL_TX_MODE_NONE && mode != SL_TX_MODE_NONE);
    l->retake = mode;
    l->item->remembered++;
    m->remembered++;
    l->tx->lock_count--;
    l->tx->retake_count++;
    sl_list_remove(&l->in_tx);
    sl_list_append(&l->tx->retake, &l->in_tx);
}

/* Forget that the transaction will take this lock again. */
static void unremember(struct sl_tx_manager *m, struct sl_tx_lock *l)
{
    l->retake = SL_TX_MODE_NONE;
    l->item->remembered--;
    m->remembered--;
    l->tx->lock_count++;
    l->tx->retake_count--;
    sl_list_remove(&l->in_tx);
    sl_list_append(&l->tx->locks, &l->in_tx);
}

/* Free a lock that the transaction neither holds nor waits for. */
static void drop_lock(struct sl_tx_manager *m, struct sl_tx_lock *l)
{
    struct sl_tx_item *i = l->item;
    sl_index_remove(&m->locks, l, hash_lock(l, &m->locks));
    sl_list_remove(&l->in_tx);
    l->tx->lock_count--;
    free(l);
    drop_item(m, i);
}

static bool fits_others(const struct sl_tx_lock *l, enum sl_tx_mode wanted)
{
    for (int mode = SL_TX_MODE_IR; mode < SL_TX_MODES; mode++) {
        uint32_t others = l->item->count[mode] -
                          (l->mode == (enum sl_tx_mode)mode ? 1u : 0u);
        if (others > 0 && !sl_tx_mode_fits(wanted, (enum sl_tx_mode)mode)) return false;
    }
    return true;
}

bool sl_tx_lock_fits(const struct sl_tx_lock *l)
{
    return fits_others(l, l->wanted);
}

static void grant(struct sl_tx_manager *m, struct sl_tx_lock *l, enum sl_tx_mode mode)
{
    struct sl_tx_item *i = l->item;
    if (l->retake != SL_TX_MODE_NONE) unremember(m, l);
    if (l->mode == SL_TX_MODE_NONE) {
        sl_list_append(&i->locks, &l->in_item);
        i->lock_count++;
    } else i->count[l->mode]--;
    l->mode = mode;
    i->count[mode]++;
    assert(l->wanted == SL_TX_MODE_NONE && mode != SL_TX_MODE_NONE);
}

/* A waiter that already holds a weaker mode of the item comes first, then the older
 * transaction. */
bool sl_tx_lock_precedes(const struct sl_tx_lock *a, const struct sl_tx_lock *b)
{
    bool a_has = a->mode != SL_TX_MODE_NONE, b_has = b->mode != SL_TX_MODE_NONE;
    if (a_has != b_has) return a_has;
    return a->tx->id < b->tx->id;
}

static struct sl_tx_lock *queue_head(const struct sl_tx_item *i)
{
    if (sl_list_empty(&i->queue)) return NULL;
    return sl_container_of(i->queue.next, struct sl_tx_lock, in_queue);
}

/* Add a waiter to the queue. Search from the end, because most new waiters are the
 * youngest and a queue may be long. */
static void enqueue(struct sl_tx_manager *m, struct sl_tx_lock *l,
                    enum sl_tx_mode wanted)
{
    struct sl_list *head = &l->item->queue, *at = head;
    while (at->prev != head &&
           sl_tx_lock_precedes(
               l, sl_container_of(at->prev, struct sl_tx_lock, in_queue))) {
        at = at->prev;
        m->stats.steps++;
    }
    assert(l->wanted == SL_TX_MODE_NONE && l->tx->waits_for == NULL);
    sl_list_append(at, &l->in_queue); /* Inserts before `at`. */
    l->wanted = wanted;
    l->item->waiter_count++;
    l->tx->waits_for = l;
    m->waiting++;
}

/* Take a lock, or join the queue. The lock is already allocated, so this cannot run
 * out of memory. */
static int take(struct sl_tx_manager *m, struct sl_tx_lock *l, enum sl_tx_mode mode)
{
    enum sl_tx_mode wanted = sl_tx_mode_both(l->mode, mode);
    if (wanted == l->mode) return SLUICE_OK;
    const struct sl_tx_lock *first = queue_head(l->item);
    if (fits_others(l, wanted) && (first == NULL || sl_tx_lock_precedes(l, first))) {
        grant(m, l, wanted);
        return SLUICE_OK;
    }
    enqueue(m, l, wanted);
    return SL_TX_WAITS;
}

int sl_tx_lock_take(struct sl_tx_manager *m, struct sl_tx *t, struct sl_bytes table,
                    struct sl_bytes key, enum sl_tx_mode mode)
{
    struct sl_tx_item *i = get_item(m, table, key);
    if (i == NULL) return SLUICE_ENOMEM;
    struct sl_tx_lock *l = sl_tx_lock_find(m, t, i);
    if (l == NULL && t->lock_count + t->retake_count >= m->limits.locks_max) {
        drop_item(m, i);
        return SLUICE_ELOCKS;
    }
    if (l == NULL && m->limits.total_locks_max > 0 &&
        m->locks.count >= m->limits.total_locks_max) {
        drop_item(m, i);
        return SLUICE_ETRANSACTIONS;
    }
    if (l == NULL) l = make_lock(m, t, i);
    if (l == NULL) {
        drop_item(m, i);
        return SLUICE_ENOMEM;
    }
    return take(m, l, mode);
}

/* --- Queues ------------------------------------------------------------------------ */

static void dequeue(struct sl_tx_manager *m, struct sl_tx_lock *l)
{
    m->waiting--;
    sl_list_remove(&l->in_queue);
    l->item->waiter_count--;
    l->wanted = SL_TX_MODE_NONE;
    l->tx->waits_for = NULL;
}

/* Grant locks to waiters from the head of the queue, up to the first that does not fit. Only
 * mark their transactions as ready: running them here could change the queue. */
static void serve(struct sl_tx_manager *m, struct sl_tx_item *i)
{
    for (;;) {
        struct sl_tx_lock *l = queue_head(i);
        if (l == NULL || !sl_tx_lock_fits(l)) return;
        enum sl_tx_mode wanted = l->wanted;
        struct sl_tx *t = l->tx;
        dequeue(m, l);
        grant(m, l, wanted);
        sl_list_append(&m->ready, &t->ready);
    }
}

void sl_tx_lock_leave_queue(struct sl_tx_manager *m, struct sl_tx *t)
{
    struct sl_tx_lock *l = t->waits_for;
    if (l == NULL) return;
    struct sl_tx_item *i = l->item;
    dequeue(m, l);
    i->references++; /* Keep the item until its queue is served. */
    if (l->mode == SL_TX_MODE_NONE && l->retake == SL_TX_MODE_NONE) drop_lock(m, l);
    serve(m, i);
    i->references--;
    drop_item(m, i);
}

/* Release a lock. Remember it, unless `retake` is SL_TX_MODE_NONE. */
static void release_one(struct sl_tx_manager *m, struct sl_tx_lock *l,
                        enum sl_tx_mode retake)
{
    struct sl_tx_item *i = l->item;
    if (l->mode != SL_TX_MODE_NONE) {
        i->count[l->mode]--;
        i->lock_count--;
        sl_list_remove(&l->in_item);
        l->mode = SL_TX_MODE_NONE;
    }
    i->references++;
    if (retake == SL_TX_MODE_NONE) drop_lock(m, l);
    else remember(m, l, retake);
    serve(m, i);
    i->references--;
    drop_item(m, i);
}

void sl_tx_lock_release_all(struct sl_tx_manager *m, struct sl_tx *t)
{
    struct sl_tx_lock *awaited = t->waits_for;
    m->stats.steps += t->lock_count;
    if (awaited != NULL) dequeue(m, awaited);
    while (!sl_list_empty(&t->locks))
        release_one(m, sl_container_of(t->locks.next, struct sl_tx_lock, in_tx),
                    SL_TX_MODE_NONE);
    sl_tx_lock_forget_retakes(m, t);
}

void sl_tx_lock_weaken(struct sl_tx_manager *m, struct sl_tx_lock *l,
                       enum sl_tx_mode mode)
{
    if (l->mode == mode) return;
    assert(sl_tx_mode_both(l->mode, mode) == l->mode);
    if (mode == SL_TX_MODE_NONE) {
        release_one(m, l, SL_TX_MODE_NONE);
        return;
    }
    l->item->count[l->mode]--;
    l->mode = mode;
    l->item->count[mode]++;
    serve(m, l->item);
}

/* --- Restarts ---------------------------------------------------------------------- */

static bool is_write_mode(enum sl_tx_mode mode)
{
    return mode == SL_TX_MODE_IW || mode == SL_TX_MODE_RIW || mode == SL_TX_MODE_W;
}

/* Whether the transaction holds, wants or will retake a lock for writing. */
static bool has_write_lock(const struct sl_tx *t)
{
    if (!sl_list_empty(&t->retake)) return true;
    for (const struct sl_list *i = t->locks.next; i != &t->locks; i = i->next) {
        const struct sl_tx_lock *l = sl_container_of(i, struct sl_tx_lock, in_tx);
        if (is_write_mode(l->mode) || is_write_mode(l->wanted)) return true;
    }
    return false;
}

/* What the transaction was doing when it was restarted. */
struct lost {
    const struct sl_tx_item *waited; /* NULL: it did not wait. */
    const struct sl_tx_item *parent; /* NULL: it did not wait for a key. */
    bool writes;
};

/* Returns the mode in which a restarted transaction takes a lock again:
 * SL_TX_MODE_NONE for most read locks. The transaction always retakes the item that
 * it waited for, because that item closed the cycle; for a key, also the intention
 * lock on its table. A transaction that writes takes that key for writing: most
 * transactions that read a contended key write it next, and two transactions that
 * took it for reading would deadlock again. */
static enum sl_tx_mode retake_mode(const struct sl_tx_lock *l, enum sl_tx_mode mode,
                                   const struct lost *lost)
{
    if (is_write_mode(mode)) return mode;
    if (l->item != lost->waited && l->item != lost->parent) return SL_TX_MODE_NONE;
    if (!lost->writes) return mode;
    if (lost->parent == NULL) return mode;
    return l->item == lost->waited ? SL_TX_MODE_W : SL_TX_MODE_IW;
}

void sl_tx_lock_release_for_restart(struct sl_tx_manager *m, struct sl_tx *t)
{
    struct sl_tx_lock *awaited = t->waits_for;
    enum sl_tx_mode wanted = awaited == NULL ? SL_TX_MODE_NONE : awaited->wanted;
    const struct lost lost = {.waited = awaited == NULL ? NULL : awaited->item,
                              .parent = awaited == NULL ? NULL : awaited->item->parent,
                              .writes = has_write_lock(t)};
    m->stats.steps += t->lock_count;
    if (awaited != NULL) dequeue(m, awaited);
    if (awaited != NULL && awaited->retake != SL_TX_MODE_NONE) serve(m, awaited->item);
    while (!sl_list_empty(&t->locks)) {
        struct sl_tx_lock *l = sl_container_of(t->locks.next, struct sl_tx_lock, in_tx);
        enum sl_tx_mode mode = l == awaited ? wanted : l->mode;
        release_one(m, l, retake_mode(l, mode, &lost));
    }
}

void sl_tx_lock_forget_retakes(struct sl_tx_manager *m, struct sl_tx *t)
{
    m->stats.steps += t->retake_count;
    while (!sl_list_empty(&t->retake)) {
        struct sl_tx_lock *l = sl_container_of(t->retake.next, struct sl_tx_lock,
                                               in_tx);
        unremember(m, l);
        release_one(m, l, SL_TX_MODE_NONE);
    }
}

static uint64_t number_of(const struct sl_list *in_tx)
{
    return sl_container_of(in_tx, struct sl_tx_lock, in_tx)->item->number;
}

/* Sort n locks, beginning with *at, by item number, into a chain that ends with
 * NULL, and move *at past them. This merge sort allocates nothing and recurses log n
 * deep. */
static struct sl_list *sorted(struct sl_list **at, uint32_t n)
{
    struct sl_list first, *last = &first, *a, *b;
    if (n == 1) {
        a = *at;
        *at = a->next;
        a->next = NULL;
        return a;
    }
    a = sorted(at, n / 2);
    b = sorted(at, n - n / 2);
    while (a != NULL && b != NULL) {
        struct sl_list **least = number_of(a) < number_of(b) ? &a : &b;
        last->next = *least;
        last = *least;
        *least = last->next;
    }
    last->next = a != NULL ? a : b;
    return first.next;
}

void sl_tx_lock_sort_retakes(struct sl_tx_manager *m, struct sl_tx *t)
{
    struct sl_list *at = t->retake.next, *next;
    m->stats.steps += t->retake_count;
    if (t->retake_count < 2) return;
    at = sorted(&at, t->retake_count);
    sl_list_init(&t->retake);
    for (; at != NULL; at = next) {
        next = at->next;
        sl_list_append(&t->retake, at);
    }
}

int sl_tx_lock_retake(struct sl_tx_manager *m, struct sl_tx *t)
{
    while (!sl_list_empty(&t->retake)) {
        struct sl_tx_lock *l = sl_container_of(t->retake.next, struct sl_tx_lock,
                                               in_tx);
        m->stats.steps++;
        int status = take(m, l, l->retake);
        if (status != SLUICE_OK) return status;
    }
    return SLUICE_OK;
}

/* --- Blockers ---------------------------------------------------------------------- */

const struct sl_tx *sl_tx_lock_blocker(const struct sl_tx_lock *l)
{
    const struct sl_tx_item *i = l->item;
    for (const struct sl_list *a = i->locks.next; a != &i->locks; a = a->next) {
        const struct sl_tx_lock *o = sl_container_of(a, struct sl_tx_lock, in_item);
        if (o != l && !sl_tx_mode_fits(l->wanted, o->mode)) return o->tx;
    }
    const struct sl_tx_lock *first = queue_head(i);
    return first == l ? NULL : first->tx;
}
