/* locks.c - items, who has them, and who waits for them in which order. */
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
    return SL_TX_MODE_RIW; /* Of IW, R and RIW any two. */
}

const char *sl_tx_mode_name(enum sl_tx_mode m)
{
    static const char *const names[SL_TX_MODES] = {"none",
                                                   "intends to read",
                                                   "intends to write",
                                                   "reads",
                                                   "reads, and intends to write",
                                                   "writes"};
    return names[m];
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
    return i->above == NULL ? (struct sl_bytes){NULL, 0}
                            : (struct sl_bytes){i->name + i->table_n, i->key_n};
}

static uint64_t hash_item(const void *item, const struct sl_index *x)
{
    return hash_name(table_of(item), key_of(item), x->key);
}

/* What is looked for: both names, and whether there is a key. */
struct item_name {
    struct sl_bytes table, key;
};

static bool same_item(const void *item, struct sl_bytes name)
{
    const struct sl_tx_item *i = item;
    const struct item_name *w = (const void *)name.at;
    return (i->above == NULL) == (w->key.at == NULL) && i->table_n == w->table.n &&
           memcmp(i->name, w->table.at, w->table.n) == 0 &&
           (w->key.at == NULL ||
            (i->key_n == w->key.n &&
             memcmp(i->name + i->table_n, w->key.at, w->key.n) == 0));
}

const struct sl_index_kind sl_items_kind = {.hash = hash_item, .same = same_item};

struct sl_tx_item *sl_tx_item_find(const struct sl_tx_manager *k, struct sl_bytes table,
                                   struct sl_bytes key)
{
    const struct item_name name = {table, key};
    return sl_index_find(&k->items, (struct sl_bytes){(const char *)&name, sizeof name},
                         hash_name(table, key, k->items.key));
}

static struct sl_tx_item *get_item(struct sl_tx_manager *k, struct sl_bytes table,
                                   struct sl_bytes key)
{
    struct sl_tx_item *i = sl_tx_item_find(k, table, key), *above = NULL;
    if (i != NULL) return i;
    if (key.at != NULL) above = sl_tx_item_find(k, table, (struct sl_bytes){NULL, 0});
    if (sl_index_reserve(&k->items) != SLUICE_OK) return NULL;
    i = calloc(1, sizeof *i + table.n + key.n);
    if (i == NULL) return NULL;
    sl_list_init(&i->locks);
    sl_list_init(&i->line);
    i->table_n = (uint32_t)table.n;
    i->key_n = (uint32_t)key.n;
    memcpy(i->name, table.at, table.n);
    if (key.n > 0) memcpy(i->name + table.n, key.at, key.n);
    i->number = ++k->last_item;
    i->above = above;
    if (above != NULL) above->below++;
    sl_index_put(&k->items, i, hash_item(i, &k->items));
    k->name_bytes += table.n + key.n;
    return i;
}

/* An item that nobody has or waits for is not here; a table stays as long as a key of it. */
static void drop_item(struct sl_tx_manager *k, struct sl_tx_item *i)
{
    if (i->lock_count > 0 || i->waiter_count > 0 || i->below > 0 || i->remembered > 0)
        return;
    struct sl_tx_item *above = i->above;
    sl_index_remove(&k->items, i, hash_item(i, &k->items));
    k->name_bytes -= (size_t)i->table_n + i->key_n;
    free(i);
    if (above == NULL) return;
    above->below--;
    drop_item(k, above);
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

const struct sl_index_kind sl_locks_kind = {.hash = hash_lock, .same = same_lock};

struct sl_tx_lock *sl_tx_lock_find(const struct sl_tx_manager *k, const struct sl_tx *t,
                                   const struct sl_tx_item *i)
{
    const struct lock_name name = {t, i};
    return sl_index_find(&k->locks, (struct sl_bytes){(const char *)&name, sizeof name},
                         sl_hash(k->locks.key, &name, sizeof name));
}

static struct sl_tx_lock *make_lock(struct sl_tx_manager *k, struct sl_tx *t,
                                    struct sl_tx_item *i)
{
    if (sl_index_reserve(&k->locks) != SLUICE_OK) return NULL;
    struct sl_tx_lock *l = calloc(1, sizeof *l);
    if (l == NULL) return NULL;
    sl_list_init(&l->in_item);
    sl_list_init(&l->in_line);
    l->tx = t;
    l->item = i;
    sl_list_append(&t->locks, &l->in_tx);
    t->lock_count++;
    sl_index_put(&k->locks, l, hash_lock(l, &k->locks));
    return l;
}

/* Remember a lock that was lost in a restart, to take it again. */
static void remember(struct sl_tx_manager *k, struct sl_tx_lock *l,
                     enum sl_tx_mode mode)
{
    l->again = mode;
    l->item->remembered++;
    k->remembered++;
    l->tx->lock_count--;
    l->tx->again_count++;
    sl_list_remove(&l->in_tx);
    sl_list_append(&l->tx->again, &l->in_tx);
}

/* Forget that the lock is to be taken again. */
static void unremember(struct sl_tx_manager *k, struct sl_tx_lock *l)
{
    l->again = SL_TX_MODE_NONE;
    l->item->remembered--;
    k->remembered--;
    l->tx->lock_count++;
    l->tx->again_count--;
    sl_list_remove(&l->in_tx);
    sl_list_append(&l->tx->locks, &l->in_tx);
}

/* Neither has it nor waits for it. */
static void drop_lock(struct sl_tx_manager *k, struct sl_tx_lock *l)
{
    struct sl_tx_item *i = l->item;
    sl_index_remove(&k->locks, l, hash_lock(l, &k->locks));
    sl_list_remove(&l->in_tx);
    l->tx->lock_count--;
    free(l);
    drop_item(k, i);
}

static bool fits_others(const struct sl_tx_lock *l, enum sl_tx_mode wanted)
{
    for (int m = SL_TX_MODE_IR; m < SL_TX_MODES; m++) {
        uint32_t others = l->item->count[m] - (l->mode == (enum sl_tx_mode)m ? 1u : 0u);
        if (others > 0 && !sl_tx_mode_fits(wanted, (enum sl_tx_mode)m)) return false;
    }
    return true;
}

bool sl_tx_lock_may_have(const struct sl_tx_lock *l)
{
    return fits_others(l, l->wanted);
}

static void grant(struct sl_tx_manager *k, struct sl_tx_lock *l, enum sl_tx_mode mode)
{
    struct sl_tx_item *i = l->item;
    if (l->again != SL_TX_MODE_NONE) unremember(k, l);
    if (l->mode == SL_TX_MODE_NONE) {
        sl_list_append(&i->locks, &l->in_item);
        i->lock_count++;
    } else i->count[l->mode]--;
    l->mode = mode;
    i->count[mode]++;
}

/* Who has something of the item already comes before those who have nothing; then age. */
bool sl_tx_lock_comes_before(const struct sl_tx_lock *a, const struct sl_tx_lock *b)
{
#ifndef MUT_HASLAST
    bool a_has = a->mode != SL_TX_MODE_NONE, b_has = b->mode != SL_TX_MODE_NONE;
    if (a_has != b_has) return a_has;
#endif
#ifdef MUT_NOAGE
    return true;
#endif
    return a->tx->id < b->tx->id;
}

static struct sl_tx_lock *first_in_line(const struct sl_tx_item *i)
{
    if (sl_list_empty(&i->line)) return NULL;
    return sl_container_of(i->line.next, struct sl_tx_lock, in_line);
}

/* From the end: most who come are the youngest, and a line may be long. */
static void stand_in_line(struct sl_tx_manager *k, struct sl_tx_lock *l,
                          enum sl_tx_mode wanted)
{
    struct sl_list *head = &l->item->line, *at = head;
#ifdef MUT_LINEHEAD
    for (at = head->next;
         at != head &&
         sl_tx_lock_comes_before(sl_container_of(at, struct sl_tx_lock, in_line), l);
         at = at->next)
        k->stats.steps++;
#endif
    while (at->prev != head &&
           sl_tx_lock_comes_before(
               l, sl_container_of(at->prev, struct sl_tx_lock, in_line))) {
        at = at->prev;
        k->stats.steps++;
    }
    sl_list_append(at, &l->in_line); /* Before it. */
    l->wanted = wanted;
    l->item->waiter_count++;
    l->tx->waits = l;
    k->waiting++;
}

/* The memory of the lock exists already, so this cannot run out of memory. */
static int take(struct sl_tx_manager *k, struct sl_tx_lock *l, enum sl_tx_mode mode)
{
    enum sl_tx_mode wanted = sl_tx_mode_both(l->mode, mode);
#ifdef MUT_NOBOTH
    if (wanted != l->mode) wanted = mode;
#endif
    if (wanted == l->mode) return SLUICE_OK;
    const struct sl_tx_lock *first = first_in_line(l->item);
#ifdef MUT_NOWAITLINE
    first = NULL;
#endif
    if (fits_others(l, wanted) &&
        (first == NULL || sl_tx_lock_comes_before(l, first))) {
        grant(k, l, wanted);
        return SLUICE_OK;
    }
    stand_in_line(k, l, wanted);
    return SL_TX_WAITS;
}

int sl_tx_lock_take(struct sl_tx_manager *k, struct sl_tx *t, struct sl_bytes table,
                    struct sl_bytes key, enum sl_tx_mode mode)
{
    struct sl_tx_item *i = get_item(k, table, key);
    if (i == NULL) return SLUICE_ENOMEM;
    struct sl_tx_lock *l = sl_tx_lock_find(k, t, i);
    if (l == NULL && t->lock_count + t->again_count >= k->limits.locks_max) {
        drop_item(k, i);
        return SLUICE_ELOCKS;
    }
#ifndef MUT_NOTOTALLOCKS
    if (l == NULL && k->limits.total_locks_max > 0 &&
        k->locks.count >= k->limits.total_locks_max) {
        drop_item(k, i);
        return SLUICE_ETRANSACTIONS;
    }
#endif
    if (l == NULL) l = make_lock(k, t, i);
    if (l == NULL) {
        drop_item(k, i);
        return SLUICE_ENOMEM;
    }
    return take(k, l, mode);
}

/* --- Going on ---------------------------------------------------------------------- */

static void step_out(struct sl_tx_manager *k, struct sl_tx_lock *l)
{
    k->waiting--;
    sl_list_remove(&l->in_line);
    l->item->waiter_count--;
    l->wanted = SL_TX_MODE_NONE;
    l->tx->waits = NULL;
}

/* Those whose turn it is have it now, in order, up to the first that does not fit. They are
 * put into a list, as what they do next may change the line. */
static void serve(struct sl_tx_manager *k, struct sl_tx_item *i)
{
    for (;;) {
        struct sl_tx_lock *l = first_in_line(i);
        if (l == NULL || !sl_tx_lock_may_have(l)) return;
        enum sl_tx_mode wanted = l->wanted;
        struct sl_tx *t = l->tx;
        step_out(k, l);
        grant(k, l, wanted);
        sl_list_append(&k->going_on, &t->going_on);
    }
}

void sl_tx_lock_leave_line(struct sl_tx_manager *k, struct sl_tx *t)
{
    struct sl_tx_lock *l = t->waits;
    if (l == NULL) return;
    struct sl_tx_item *i = l->item;
    step_out(k, l);
    i->below++; /* It stays until its line was served. */
    if (l->mode == SL_TX_MODE_NONE && l->again == SL_TX_MODE_NONE) drop_lock(k, l);
#ifndef MUT_NOSERVE
    serve(k, i);
#endif
    i->below--;
    drop_item(k, i);
}

/* Release a lock, and remember it unless `again` is SL_TX_MODE_NONE. */
static void free_one(struct sl_tx_manager *k, struct sl_tx_lock *l,
                     enum sl_tx_mode again)
{
    struct sl_tx_item *i = l->item;
    if (l->mode != SL_TX_MODE_NONE) {
        i->count[l->mode]--;
        i->lock_count--;
        sl_list_remove(&l->in_item);
        l->mode = SL_TX_MODE_NONE;
    }
    i->below++;
    if (again == SL_TX_MODE_NONE) drop_lock(k, l);
    else remember(k, l, again);
    serve(k, i);
    i->below--;
    drop_item(k, i);
}

void sl_tx_lock_free_all(struct sl_tx_manager *k, struct sl_tx *t)
{
    struct sl_tx_lock *waits = t->waits;
    k->stats.steps += t->lock_count;
    if (waits != NULL) step_out(k, waits);
    while (!sl_list_empty(&t->locks))
        free_one(k, sl_container_of(t->locks.next, struct sl_tx_lock, in_tx),
                 SL_TX_MODE_NONE);
    sl_tx_lock_forget(k, t);
}

void sl_tx_lock_weaken(struct sl_tx_manager *k, struct sl_tx_lock *l,
                       enum sl_tx_mode mode)
{
    if (l->mode == mode) return;
    if (mode == SL_TX_MODE_NONE) {
        free_one(k, l, SL_TX_MODE_NONE);
        return;
    }
    l->item->count[l->mode]--;
    l->mode = mode;
    l->item->count[mode]++;
    serve(k, l->item);
}

/* --- Restarts ---------------------------------------------------------------------- */

static bool is_to_write(enum sl_tx_mode m)
{
    return m == SL_TX_MODE_IW || m == SL_TX_MODE_RIW || m == SL_TX_MODE_W;
}

/* Whether any of the locks that it has, wants, or will take again is one to write. */
static bool has_one_to_write(const struct sl_tx *t)
{
    if (!sl_list_empty(&t->again)) return true;
    for (const struct sl_list *i = t->locks.next; i != &t->locks; i = i->next) {
        const struct sl_tx_lock *l = sl_container_of(i, struct sl_tx_lock, in_tx);
        if (is_to_write(l->mode) || is_to_write(l->wanted)) return true;
    }
    return false;
}

/* What a restart interrupted. NULL: it waited for nothing, or for a table. */
struct lost {
    const struct sl_tx_item *waited, *above;
    bool writes;
};

/* How a lock that is lost in a restart is taken again: NONE, if it was only read. But the item
 * that it waited for closed the cycle, and is taken again in any case, with the intention on
 * its table. One that writes takes such a key for writing: most who read a key that others
 * fight for write it next, and two who both took it for reading would meet again there. */
static enum sl_tx_mode mode_again(const struct sl_tx_lock *l, enum sl_tx_mode mode,
                                  const struct lost *lost)
{
#ifdef MUT_AGAINREADS
    if (mode == SL_TX_MODE_W) return SL_TX_MODE_R;
#endif
    if (is_to_write(mode)) return mode;
    if (l->item != lost->waited && l->item != lost->above) return SL_TX_MODE_NONE;
#ifdef MUT_AGAINWAITED
    return SL_TX_MODE_NONE;
#endif
#ifndef MUT_AGAINONLYREADS
    if (!lost->writes) return mode;
#endif
    if (lost->above == NULL) return mode;
    return l->item == lost->waited ? SL_TX_MODE_W : SL_TX_MODE_IW;
}

void sl_tx_lock_lose_all(struct sl_tx_manager *k, struct sl_tx *t)
{
    struct sl_tx_lock *waits = t->waits;
    enum sl_tx_mode wanted = waits == NULL ? SL_TX_MODE_NONE : waits->wanted;
    const struct lost lost = {.waited = waits == NULL ? NULL : waits->item,
                              .above = waits == NULL ? NULL : waits->item->above,
                              .writes = has_one_to_write(t)};
#ifdef MUT_NOAGAIN
    sl_tx_lock_free_all(k, t);
    return;
#endif
    k->stats.steps += t->lock_count;
    if (waits != NULL) step_out(k, waits);
    if (waits != NULL && waits->again != SL_TX_MODE_NONE) serve(k, waits->item);
#ifdef MUT_AGAINLOST
    sl_tx_lock_forget(k, t);
#endif
    while (!sl_list_empty(&t->locks)) {
        struct sl_tx_lock *l = sl_container_of(t->locks.next, struct sl_tx_lock, in_tx);
        enum sl_tx_mode mode = l == waits ? wanted : l->mode;
        free_one(k, l, mode_again(l, mode, &lost));
    }
}

void sl_tx_lock_forget(struct sl_tx_manager *k, struct sl_tx *t)
{
#ifdef MUT_AGAINKEPT
    if (t->state == SL_TX_RUNNING || t->state == SL_TX_COMMITTING) return;
#endif
    k->stats.steps += t->again_count;
    while (!sl_list_empty(&t->again)) {
        struct sl_tx_lock *l = sl_container_of(t->again.next, struct sl_tx_lock, in_tx);
        unremember(k, l);
        free_one(k, l, SL_TX_MODE_NONE);
    }
}

static uint64_t number_of(const struct sl_list *in_tx)
{
    return sl_container_of(in_tx, struct sl_tx_lock, in_tx)->item->number;
}

/* Merge sort of the first n locks from *at on, by item number, into a chain that ends with NULL;
 * moves *at behind them. It allocates nothing, and recurses log n deep. */
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

void sl_tx_lock_sort_again(struct sl_tx_manager *k, struct sl_tx *t)
{
    struct sl_list *at = t->again.next, *next;
    k->stats.steps += t->again_count;
#ifdef MUT_AGAINORDER
    return;
#endif
    if (t->again_count < 2) return;
    at = sorted(&at, t->again_count);
    sl_list_init(&t->again);
    for (; at != NULL; at = next) {
        next = at->next;
        sl_list_append(&t->again, at);
    }
}

int sl_tx_lock_take_again(struct sl_tx_manager *k, struct sl_tx *t)
{
    while (!sl_list_empty(&t->again)) {
        struct sl_tx_lock *l = sl_container_of(t->again.next, struct sl_tx_lock, in_tx);
        k->stats.steps++;
        int status = take(k, l, l->again);
        if (status != SLUICE_OK) return status;
    }
    return SLUICE_OK;
}

/* --- In the way -------------------------------------------------------------------- */

const struct sl_tx *sl_tx_lock_blocker(const struct sl_tx_lock *l)
{
    const struct sl_tx_item *i = l->item;
    for (const struct sl_list *a = i->locks.next; a != &i->locks; a = a->next) {
        const struct sl_tx_lock *o = sl_container_of(a, struct sl_tx_lock, in_item);
        if (o != l && !sl_tx_mode_fits(l->wanted, o->mode)) return o->tx;
    }
    const struct sl_tx_lock *first = first_in_line(i);
    return first == l ? NULL : first->tx;
}
