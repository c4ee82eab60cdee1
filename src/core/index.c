#include "core/index.h"

#include <assert.h>
#include <stdlib.h>

#include "sluice.h"

#define BITS_MIN 4u
#define STEP_SLOTS 16u

/* A slot: 0 is empty; GONE was an item once; else a tag and a pointer. */
#define POINTER_BITS 48u
#define POINTER_MASK ((1ull << POINTER_BITS) - 1)
#define GONE 1ull

static size_t slots_of(const struct sl_index_table *t)
{
    return t->slots == NULL ? 0 : (size_t)1 << t->bits;
}

static uint64_t tag_of(uint64_t hash)
{
    return hash << POINTER_BITS; /* The lowest bits; the place is in the highest. */
}

static void *item_of(uint64_t slot)
{
    return (void *)(uintptr_t)(slot & POINTER_MASK);
}

static bool is_item(uint64_t slot)
{
    return slot > GONE;
}

static size_t home_of(const struct sl_index_table *t, uint64_t hash)
{
    return (size_t)(hash >> (64 - t->bits));
}

/* --- Life ----------------------------------------------------------------- */

void sl_index_init(struct sl_index *x, const struct sl_index_kind *kind, uint64_t seed)
{
    *x = (struct sl_index){.kind = kind, .seed = seed};
}

void sl_index_free(struct sl_index *x)
{
    free(x->now.slots);
    free(x->before.slots);
    *x = (struct sl_index){.kind = x->kind, .seed = x->seed};
}

static void empty(struct sl_index_table *t, void (*let_go)(void *item))
{
    for (size_t at = 0; at < slots_of(t); at++)
        if (is_item(t->slots[at])) let_go(item_of(t->slots[at]));
}

void sl_index_empty(struct sl_index *x, void (*let_go)(void *item))
{
    empty(&x->now, let_go);
    empty(&x->before, let_go);
    sl_index_free(x);
}

/* --- One table ------------------------------------------------------------ */

static void put(struct sl_index_table *t, void *item, uint64_t hash)
{
    size_t mask = slots_of(t) - 1, at = home_of(t, hash);
    /* Not into the place of a removed one: it would have to be the first of its run. */
    while (t->slots[at] != 0) at = (at + 1) & mask;
    assert(((uintptr_t)item & ~POINTER_MASK) == 0);
    t->slots[at] = tag_of(hash) | (uintptr_t)item;
    t->used++;
}

/* The slot of a key, or of an item if that is given; NULL if it is not there. */
static uint64_t *find(const struct sl_index *x, const struct sl_index_table *t,
                      const struct sl_bytes *key, const void *item, uint64_t hash)
{
    if (t->slots == NULL) return NULL;
    size_t mask = slots_of(t) - 1, at = home_of(t, hash);
    uint64_t tag = tag_of(hash);
    for (; t->slots[at] != 0; at = (at + 1) & mask) {
        uint64_t slot = t->slots[at];
        if ((slot & ~POINTER_MASK) != tag || !is_item(slot)) continue;
        void *there = item_of(slot);
        if (item != NULL ? there == item : x->kind->same(there, *key))
            return &t->slots[at];
    }
    return NULL;
}

static uint64_t *find_item(const struct sl_index *x, const void *item, uint64_t hash)
{
    uint64_t *slot = find(x, &x->now, NULL, item, hash);
    return slot != NULL ? slot : find(x, &x->before, NULL, item, hash);
}

/* --- Two tables ----------------------------------------------------------- */

void sl_index_step(struct sl_index *x)
{
    size_t all = slots_of(&x->before);
    if (all == 0) return;
    for (unsigned i = 0; i < STEP_SLOTS && x->moved < all; i++, x->moved++) {
        uint64_t slot = x->before.slots[x->moved];
        if (!is_item(slot)) continue;
        void *item = item_of(slot);
        put(&x->now, item, x->kind->hash(item, x->seed));
        x->before.slots[x->moved] = GONE;
    }
    if (x->moved < all) return;
    free(x->before.slots);
    x->before = (struct sl_index_table){0};
}

/* Slots for the items that are there and those that may come until all are moved: at most
 * half full then. */
static uint32_t bits_for(size_t count, size_t slots_before)
{
    uint32_t bits = BITS_MIN;
    size_t coming = slots_before / STEP_SLOTS + 1;
    while (((size_t)1 << bits) / 2 < count + coming) bits++;
    return bits;
}

static int begin_move(struct sl_index *x)
{
    uint32_t bits = bits_for(x->count, slots_of(&x->now));
    uint64_t *slots = calloc((size_t)1 << bits, sizeof *slots);
    if (slots == NULL) return SLUICE_ENOMEM;
    x->before = x->now;
    x->moved = 0;
    x->now = (struct sl_index_table){.slots = slots, .bits = bits};
    if (x->before.slots == NULL) x->before = (struct sl_index_table){0};
    return SLUICE_OK;
}

/* Three quarters full counts as full; beyond that we go on only for want of memory. */
static bool is_full(const struct sl_index_table *t, size_t coming)
{
    size_t slots = slots_of(t);
    return t->used + coming + 1 > slots - slots / 4;
}

static bool is_sparse(const struct sl_index *x)
{
    return x->now.bits > BITS_MIN && x->count < slots_of(&x->now) / 8;
}

int sl_index_reserve(struct sl_index *x)
{
    if (x->before.slots != NULL) {
        /* Two tables: the new one was made large enough for all that is to be moved, and
         * each of us moves more than it puts. */
        return SLUICE_OK;
    }
    if (!is_full(&x->now, 0)) return SLUICE_OK;
    int status = begin_move(x);
    if (status == SLUICE_OK) return SLUICE_OK;
    /* An empty slot must stay, or a search would have no end. */
    return slots_of(&x->now) > x->now.used + 1 ? SLUICE_OK : status;
}

void sl_index_put(struct sl_index *x, void *item, uint64_t hash)
{
    sl_index_step(x);
    put(&x->now, item, hash);
    x->count++;
}

void *sl_index_find(const struct sl_index *x, struct sl_bytes key, uint64_t hash)
{
    uint64_t *slot = find(x, &x->now, &key, NULL, hash);
    if (slot == NULL) slot = find(x, &x->before, &key, NULL, hash);
    return slot == NULL ? NULL : item_of(*slot);
}

void sl_index_remove(struct sl_index *x, const void *item, uint64_t hash)
{
    uint64_t *slot = find_item(x, item, hash);
    assert(slot != NULL);
    *slot = GONE;
    x->count--;
    /* Where the next is empty, nobody's search goes through here: so it may be empty too. */
    if (slot >= x->now.slots && slot < x->now.slots + slots_of(&x->now)) {
        size_t mask = slots_of(&x->now) - 1, at = (size_t)(slot - x->now.slots);
        while (x->now.slots[at] == GONE && x->now.slots[(at + 1) & mask] == 0) {
            x->now.slots[at] = 0;
            x->now.used--;
            at = (at - 1) & mask;
        }
    }
    if (x->before.slots != NULL) sl_index_step(x);
    else if (is_sparse(x)) (void)begin_move(x); /* Without memory it stays large. */
}

/* --- Scanning ------------------------------------------------------------- */

/* A cursor is a hash: all items with a smaller one have been seen. */

/* The items of a table whose hash is in [from, to]; at most max. */
static size_t collect(const struct sl_index *x, const struct sl_index_table *t,
                      uint64_t from, uint64_t to, void **out, size_t max)
{
    size_t n = 0;
    if (t->slots == NULL) return 0;
    size_t mask = slots_of(t) - 1, last = home_of(t, to);
    bool past = false; /* Behind the last home a run may still go on. */
    for (size_t at = home_of(t, from);; at = (at + 1) & mask) {
        uint64_t slot = t->slots[at];
        if (past && slot == 0) return n;
        if (is_item(slot)) {
            uint64_t hash = x->kind->hash(item_of(slot), x->seed);
            if (hash >= from && hash <= to) {
                if (n < max) out[n] = item_of(slot);
                n++;
            }
        }
        if (at == last) past = true;
        if (past && at == ((home_of(t, from) - 1) & mask)) return n; /* Once around. */
    }
}

size_t sl_index_scan(const struct sl_index *x, uint64_t *cursor, void **out, size_t max)
{
    /* A range of hashes in which about half of max are to be expected; smaller, if it
     * holds too many. */
    uint64_t from = *cursor, width = UINT64_MAX;
    if (x->count > max / 2) width = UINT64_MAX / x->count * (max / 2 > 0 ? max / 2 : 1);
    for (;;) {
        uint64_t to = width > UINT64_MAX - from ? UINT64_MAX : from + width;
        size_t n = collect(x, &x->now, from, to, out, max);
        if (n <= max) n += collect(x, &x->before, from, to, out + n, max - n);
        if (n <= max || width == 0) {
            *cursor = to == UINT64_MAX ? 0 : to + 1;
            return n < max ? n : max;
        }
        width /= 2;
    }
}

size_t sl_index_bytes(const struct sl_index *x)
{
    return (slots_of(&x->now) + slots_of(&x->before)) * sizeof(uint64_t);
}
