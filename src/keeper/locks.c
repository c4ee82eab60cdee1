/* locks.c - items, who has them, who waits for them in which order, and cycles. */
#include <stdlib.h>
#include <string.h>

#include "keeper/keeper_inside.h"

/* --- Modes ------------------------------------------------------------------------- */

bool sl_mode_fits(enum sl_mode a, enum sl_mode b)
{
    static const bool fits[SL_MODES][SL_MODES] = {
        /*            NONE  IR    IW    R     RIW    W */
        /* NONE */ {true, true, true, true, true, true},
        /* IR */ {true, true, true, true, true, false},
        /* IW */ {true, true, true, false, false, false},
        /* R */ {true, true, false, true, false, false},
        /* RIW */ {true, true, false, false, false, false},
        /* W */ {true, false, false, false, false, false}};
    return fits[a][b];
}

enum sl_mode sl_mode_both(enum sl_mode a, enum sl_mode b)
{
    if (a == b || b == SL_MODE_NONE) return a;
    if (a == SL_MODE_NONE) return b;
    if (a == SL_MODE_W || b == SL_MODE_W) return SL_MODE_W;
    if (a == SL_MODE_IR) return b;
    if (b == SL_MODE_IR) return a;
    return SL_MODE_RIW; /* Of IW, R and RIW any two. */
}

const char *sl_mode_name(enum sl_mode m)
{
    static const char *const names[SL_MODES] = {"none",
                                                "intends to read",
                                                "intends to write",
                                                "reads",
                                                "reads, and intends to write",
                                                "writes"};
    return names[m];
}

/* --- Items ------------------------------------------------------------------------- */

static uint64_t hash_name(struct sl_bytes table, struct sl_bytes key, uint64_t seed)
{
    uint64_t h = sl_keeper_hash(table.at, table.n, seed);
    return key.at == NULL ? h : sl_keeper_hash(key.at, key.n, h ^ seed);
}

static struct sl_bytes table_of(const struct sl_item *i)
{
    return (struct sl_bytes){i->name, i->table_n};
}

static struct sl_bytes key_of(const struct sl_item *i)
{
    return i->above == NULL ? (struct sl_bytes){NULL, 0}
                            : (struct sl_bytes){i->name + i->table_n, i->key_n};
}

static uint64_t hash_item(const void *item, uint64_t seed)
{
    return hash_name(table_of(item), key_of(item), seed);
}

/* What is looked for: both names, and whether there is a key. */
struct item_name {
    struct sl_bytes table, key;
};

static bool same_item(const void *item, struct sl_bytes name)
{
    const struct sl_item *i = item;
    const struct item_name *w = (const void *)name.at;
    return (i->above == NULL) == (w->key.at == NULL) && i->table_n == w->table.n &&
           memcmp(i->name, w->table.at, w->table.n) == 0 &&
           (w->key.at == NULL ||
            (i->key_n == w->key.n &&
             memcmp(i->name + i->table_n, w->key.at, w->key.n) == 0));
}

const struct sl_index_kind sl_items_kind = {.hash = hash_item, .same = same_item};

struct sl_item *sl_item_find(const struct sl_keeper *k, struct sl_bytes table,
                             struct sl_bytes key)
{
    const struct item_name name = {table, key};
    return sl_index_find(&k->items, (struct sl_bytes){(const char *)&name, sizeof name},
                         hash_name(table, key, k->items.seed));
}

static struct sl_item *get_item(struct sl_keeper *k, struct sl_bytes table,
                                struct sl_bytes key)
{
    struct sl_item *i = sl_item_find(k, table, key), *above = NULL;
    if (i != NULL) return i;
    if (key.at != NULL) above = sl_item_find(k, table, (struct sl_bytes){NULL, 0});
    if (sl_index_reserve(&k->items) != SLUICE_OK) return NULL;
    i = calloc(1, sizeof *i + table.n + key.n);
    if (i == NULL) return NULL;
    sl_list_init(&i->locks);
    sl_list_init(&i->line);
    i->table_n = (uint32_t)table.n;
    i->key_n = (uint32_t)key.n;
    memcpy(i->name, table.at, table.n);
    if (key.n > 0) memcpy(i->name + table.n, key.at, key.n);
    i->above = above;
    if (above != NULL) above->below++;
    sl_index_put(&k->items, i, hash_item(i, k->items.seed));
    return i;
}

/* An item that nobody has or waits for is not here; a table stays as long as a key of it. */
static void drop_item(struct sl_keeper *k, struct sl_item *i)
{
    if (i->lock_count > 0 || i->waiter_count > 0 || i->below > 0) return;
    struct sl_item *above = i->above;
    sl_index_remove(&k->items, i, hash_item(i, k->items.seed));
    free(i);
    if (above == NULL) return;
    above->below--;
    drop_item(k, above);
}

/* --- Locks ------------------------------------------------------------------------- */

struct lock_name {
    const struct sl_tx *tx;
    const struct sl_item *item;
};

static uint64_t hash_lock(const void *item, uint64_t seed)
{
    const struct sl_lock *l = item;
    const struct lock_name name = {l->tx, l->item};
    return sl_keeper_hash(&name, sizeof name, seed);
}

static bool same_lock(const void *item, struct sl_bytes name)
{
    const struct sl_lock *l = item;
    const struct lock_name *w = (const void *)name.at;
    return l->tx == w->tx && l->item == w->item;
}

const struct sl_index_kind sl_locks_kind = {.hash = hash_lock, .same = same_lock};

struct sl_lock *sl_lock_find(const struct sl_keeper *k, const struct sl_tx *t,
                             const struct sl_item *i)
{
    const struct lock_name name = {t, i};
    return sl_index_find(&k->locks, (struct sl_bytes){(const char *)&name, sizeof name},
                         sl_keeper_hash(&name, sizeof name, k->locks.seed));
}

static struct sl_lock *make_lock(struct sl_keeper *k, struct sl_tx *t,
                                 struct sl_item *i)
{
    if (sl_index_reserve(&k->locks) != SLUICE_OK) return NULL;
    struct sl_lock *l = calloc(1, sizeof *l);
    if (l == NULL) return NULL;
    sl_list_init(&l->in_item);
    sl_list_init(&l->in_line);
    l->tx = t;
    l->item = i;
    sl_list_append(&t->locks, &l->in_tx);
    t->lock_count++;
    sl_index_put(&k->locks, l, hash_lock(l, k->locks.seed));
    return l;
}

/* Neither has it nor waits for it. */
static void drop_lock(struct sl_keeper *k, struct sl_lock *l)
{
    struct sl_item *i = l->item;
    sl_index_remove(&k->locks, l, hash_lock(l, k->locks.seed));
    sl_list_remove(&l->in_tx);
    l->tx->lock_count--;
    free(l);
    drop_item(k, i);
}

static bool fits_others(const struct sl_lock *l, enum sl_mode wanted)
{
    for (int m = SL_MODE_IR; m < SL_MODES; m++) {
        uint32_t others = l->item->count[m] - (l->mode == (enum sl_mode)m ? 1u : 0u);
        if (others > 0 && !sl_mode_fits(wanted, (enum sl_mode)m)) return false;
    }
    return true;
}

bool sl_lock_may_have(const struct sl_lock *l)
{
    return fits_others(l, l->wanted);
}

static void grant(struct sl_lock *l, enum sl_mode mode)
{
    struct sl_item *i = l->item;
    if (l->mode == SL_MODE_NONE) {
        sl_list_append(&i->locks, &l->in_item);
        i->lock_count++;
    } else i->count[l->mode]--;
    l->mode = mode;
    i->count[mode]++;
}

/* Who has something of the item already comes before those who have nothing; then age. */
bool sl_lock_comes_before(const struct sl_lock *a, const struct sl_lock *b)
{
#ifndef MUT_HASLAST
    bool a_has = a->mode != SL_MODE_NONE, b_has = b->mode != SL_MODE_NONE;
    if (a_has != b_has) return a_has;
#endif
#ifdef MUT_NOAGE
    return true;
#endif
    return a->tx->id < b->tx->id;
}

static struct sl_lock *first_in_line(const struct sl_item *i)
{
    if (sl_list_empty(&i->line)) return NULL;
    return sl_entry_of(i->line.next, struct sl_lock, in_line);
}

static void stand_in_line(struct sl_lock *l, enum sl_mode wanted)
{
    struct sl_list *head = &l->item->line, *at = head->next;
    while (at != head &&
           sl_lock_comes_before(sl_entry_of(at, struct sl_lock, in_line), l))
        at = at->next;
    sl_list_append(at, &l->in_line); /* Before it. */
    l->wanted = wanted;
    l->item->waiter_count++;
    l->tx->waits = l;
}

int sl_lock_take(struct sl_keeper *k, struct sl_tx *t, struct sl_bytes table,
                 struct sl_bytes key, enum sl_mode mode)
{
    struct sl_item *i = get_item(k, table, key);
    if (i == NULL) return SLUICE_ENOMEM;
    struct sl_lock *l = sl_lock_find(k, t, i);
    if (l == NULL && t->lock_count >= k->limits.locks_max) {
        drop_item(k, i);
        return SLUICE_ELOCKS;
    }
    if (l == NULL) l = make_lock(k, t, i);
    if (l == NULL) {
        drop_item(k, i);
        return SLUICE_ENOMEM;
    }
    enum sl_mode wanted = sl_mode_both(l->mode, mode);
#ifdef MUT_NOBOTH
    if (wanted != l->mode) wanted = mode;
#endif
    if (wanted == l->mode) return SLUICE_OK;
    const struct sl_lock *first = first_in_line(i);
#ifdef MUT_NOWAITLINE
    first = NULL;
#endif
    if (fits_others(l, wanted) && (first == NULL || sl_lock_comes_before(l, first))) {
        grant(l, wanted);
        return SLUICE_OK;
    }
    stand_in_line(l, wanted);
    return SL_TX_WAITS;
}

/* --- Going on ---------------------------------------------------------------------- */

static void step_out(struct sl_lock *l)
{
    sl_list_remove(&l->in_line);
    l->item->waiter_count--;
    l->wanted = SL_MODE_NONE;
    l->tx->waits = NULL;
}

/* Those whose turn it is have it now, in order, up to the first that does not fit. They are
 * put into a list, as what they do next may change the line. */
static void serve(struct sl_keeper *k, sl_ms now, struct sl_item *i)
{
    for (;;) {
        struct sl_lock *l = first_in_line(i);
        if (l == NULL || !sl_lock_may_have(l)) return;
        enum sl_mode wanted = l->wanted;
        struct sl_tx *t = l->tx;
        step_out(l);
        grant(l, wanted);
        sl_list_append(&k->going_on, &t->going_on);
        (void)now;
    }
}

static void go_on_all(struct sl_keeper *k, sl_ms now)
{
    if (k->is_going_on) return; /* Whoever does is not done yet. */
    k->is_going_on = true;
    while (!sl_list_empty(&k->going_on)) {
        struct sl_tx *t = sl_entry_of(k->going_on.next, struct sl_tx, going_on);
        sl_list_remove(&t->going_on);
        sl_tx_go_on(k, now, t);
    }
    k->is_going_on = false;
}

void sl_lock_leave_line(struct sl_keeper *k, sl_ms now, struct sl_tx *t)
{
    struct sl_lock *l = t->waits;
    if (l == NULL) return;
    struct sl_item *i = l->item;
    step_out(l);
    i->below++; /* It stays until its line was served. */
    if (l->mode == SL_MODE_NONE) drop_lock(k, l);
#ifndef MUT_NOSERVE
    serve(k, now, i);
#endif
    i->below--;
    drop_item(k, i);
    go_on_all(k, now);
}

static void free_one(struct sl_keeper *k, sl_ms now, struct sl_lock *l)
{
    struct sl_item *i = l->item;
    if (l->mode != SL_MODE_NONE) {
        i->count[l->mode]--;
        i->lock_count--;
        sl_list_remove(&l->in_item);
    }
    i->below++;
    drop_lock(k, l);
    serve(k, now, i);
    i->below--;
    drop_item(k, i);
}

void sl_lock_free_all(struct sl_keeper *k, sl_ms now, struct sl_tx *t)
{
    struct sl_lock *waits = t->waits;
    if (waits != NULL) step_out(waits);
    while (!sl_list_empty(&t->locks))
        free_one(k, now, sl_entry_of(t->locks.next, struct sl_lock, in_tx));
    go_on_all(k, now);
}

/* --- Cycles ------------------------------------------------------------------------ */

/* Those in the way of one who waits: who has what does not fit, and who stands before it. */
static struct sl_look look_at_all(const struct sl_lock *l)
{
    return (struct sl_look){.at = &l->item->locks, .line = &l->item->line};
}

/* NULL: that was all. */
static struct sl_tx *next_blocker(const struct sl_lock *l, struct sl_look *look)
{
    for (;;) {
        look->at = look->at->next;
        if (!look->in_line && look->at == &l->item->locks) {
            look->in_line = true;
            look->at = look->line->next;
        }
        if (look->in_line) {
            struct sl_lock *o = sl_entry_of(look->at, struct sl_lock, in_line);
            return o == l ? NULL : o->tx;
        }
        struct sl_lock *o = sl_entry_of(look->at, struct sl_lock, in_item);
        if (o != l && !sl_mode_fits(l->wanted, o->mode)) return o->tx;
    }
}

const struct sl_tx *sl_lock_blocker(const struct sl_lock *l)
{
    struct sl_look look = look_at_all(l);
    return next_blocker(l, &look);
}

/* Who has an item is looked at once in a search for each mode that is wanted, and each of a
 * line once: those before the last that was reached are looked at by that one, if not now
 * then later. Else a long line would take the square of its length. */
static struct sl_look look_at_rest(struct sl_keeper *k, struct sl_lock *l)
{
    struct sl_item *i = l->item;
    struct sl_look look = look_at_all(l);
#ifdef MUT_LONGLOOK
    return look;
#endif
    if (i->search != k->search) {
        i->search = k->search;
        i->looked = 0;
        i->last = NULL;
    }
    bool is_last = i->last == NULL || sl_lock_comes_before(i->last, l);
    if (i->last != NULL) look.line = is_last ? &i->last->in_line : l->in_line.prev;
    if (is_last) i->last = l;
    if (i->looked & 1u << l->wanted) {
        look.in_line = true;
        look.at = look.line;
    }
    i->looked |= 1u << l->wanted;
    return look;
}

/* A search in depth, without recursion: each knows from whom it was reached and how far its
 * blockers were looked at. */
struct sl_tx *sl_lock_cycle(struct sl_keeper *k, struct sl_tx *t)
{
    uint64_t search = ++k->search;
    struct sl_tx *x = t;
    t->seen = search;
    t->from = NULL;
    t->look = look_at_all(t->waits); /* But not at itself: that is left to others. */
#ifdef MUT_SKIPFIRST
    t->look = look_at_rest(k, t->waits);
#endif
    while (x != NULL) {
        struct sl_tx *y = x->waits == NULL ? NULL : next_blocker(x->waits, &x->look);
        if (y == NULL) {
            x = x->from; /* No way on from here. */
            continue;
        }
        if (y == t) {
            struct sl_tx *youngest = x;
            for (struct sl_tx *z = x; z != NULL; z = z->from)
#ifdef MUT_YOUNGEST
                if (z->id < youngest->id) youngest = z;
#else
                if (z->id > youngest->id) youngest = z;
#endif
            k->cycle_end = x;
            return youngest;
        }
        if (y->seen == search) continue;
        y->seen = search;
        y->from = x;
        if (y->waits != NULL) y->look = look_at_rest(k, y->waits);
        x = y;
    }
    return NULL;
}
