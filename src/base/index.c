/* index.c - a hash table that grows and shrinks incrementally. */
#include "base/index.h"

#include <assert.h>
#include <stdlib.h>

#include "sluice.h"

#define SLOTS_MIN 16u
#define SLOTS_SMALL \
    1024u /* Tables up to this size grow by doubling, because small tables are
           * resized often. */
#define STEP_SLOTS 16u

/* A slot is 0 if it is empty, GONE if its item was removed, and otherwise a tag and
 * the item's number + 2. */
#define NUMBER_MASK 0xffffffffull
#define SLOTS_MAX (1ull << 32) /* Tags have 32 bits. */
#define GONE 1ull
#define NUMBER_FIRST 2u

#define CHUNK SL_INDEX_CHUNK
#define NONE UINT32_MAX
#define CHUNKS_MAX (1u << 25) /* So that item numbers fit into a slot. */
#define CHUNKS_A_SCAN 256u    /* A scan call visits at most this many. */

static size_t slots_of(const struct sl_index_table *t)
{
    return t->size;
}

static uint64_t tag_of(uint64_t hash)
{
    return hash & ~NUMBER_MASK;
}

static uint32_t number_of(uint64_t slot)
{
    return (uint32_t)(slot & NUMBER_MASK) - NUMBER_FIRST;
}

static void *item_of(const struct sl_index *x, uint64_t slot)
{
    uint32_t number = number_of(slot);
    return x->chunks[number / CHUNK]->items[number % CHUNK];
}

static bool is_item(uint64_t slot)
{
    return slot > GONE;
}

/* The home slot depends only on the tag, so moving a slot to another table needs no
 * hash. */
static size_t home_of(const struct sl_index_table *t, uint64_t tag)
{
    return (size_t)((tag >> 32) * t->size >> 32);
}

static size_t after(const struct sl_index_table *t, size_t at)
{
    return at + 1 == t->size ? 0 : at + 1;
}

/* --- Creation and destruction ------------------------------------------------ */

void sl_index_init(struct sl_index *x, const struct sl_index_kind *kind,
                   struct sl_hash_key key)
{
    *x = (struct sl_index){.kind = kind,
                           .key = key,
                           .seed = sl_hash(key, NULL, 0),
                           .open = NONE,
                           .empty = NONE};
}

void sl_index_free(struct sl_index *x)
{
    for (uint32_t i = 0; i < x->chunk_count; i++) free(x->chunks[i]);
    free(x->chunks);
    free(x->now.slots);
    free(x->before.slots);
    sl_index_init(x, x->kind, x->key);
}

void sl_index_empty(struct sl_index *x, void (*let_go)(void *item))
{
    for (uint32_t i = 0; i < x->chunk_count; i++) {
        struct sl_index_chunk *c = x->chunks[i];
        for (uint64_t used = c == NULL ? 0 : c->used; used != 0; used &= used - 1)
            let_go(c->items[__builtin_ctzll(used)]);
    }
    sl_index_free(x);
}

/* --- Items by number ------------------------------------------------------- */

static void open_chunk(struct sl_index *x, uint32_t i)
{
    x->chunks[i]->prev = NONE;
    x->chunks[i]->next = x->open;
    if (x->open != NONE) x->chunks[x->open]->prev = i;
    x->open = i;
}

static void close_chunk(struct sl_index *x, uint32_t i)
{
    const struct sl_index_chunk *c = x->chunks[i];
    if (c->prev == NONE) x->open = c->next;
    else x->chunks[c->prev]->next = c->next;
    if (c->next != NONE) x->chunks[c->next]->prev = c->prev;
}

/* Reserve a number for one more item. Returns SLUICE_OK or SLUICE_ENOMEM. */
static int reserve_number(struct sl_index *x)
{
    if (x->open != NONE) return SLUICE_OK;
    uint32_t i = x->first_hole;
    while (i < x->chunk_count && x->chunks[i] != NULL) i++;
    if (i == x->chunk_max) {
        uint32_t max = i == 0 ? 1 : 2 * i;
        if (max > CHUNKS_MAX) return SLUICE_ENOMEM;
        struct sl_index_chunk **chunks = realloc(x->chunks, max * sizeof *chunks);
        if (chunks == NULL) return SLUICE_ENOMEM;
        x->chunks = chunks;
        x->chunk_max = max;
    }
    struct sl_index_chunk *c = malloc(sizeof *c);
    if (c == NULL) return SLUICE_ENOMEM;
    c->used = 0;
    x->chunks[i] = c;
    x->first_hole = i + 1;
    if (i == x->chunk_count) x->chunk_count++;
    x->chunks_live++;
    x->empty = i;
    open_chunk(x, i);
    return SLUICE_OK;
}

static uint32_t take_number(struct sl_index *x, void *item)
{
    uint32_t i = x->open;
    struct sl_index_chunk *c = x->chunks[i];
    uint32_t at = (uint32_t)__builtin_ctzll(~c->used);
    c->items[at] = item;
    c->used |= 1ull << at;
    if (x->empty == i) x->empty = NONE;
    if (~c->used == 0) close_chunk(x, i);
    return i * CHUNK + at;
}

static void give_number(struct sl_index *x, uint32_t number)
{
    uint32_t i = number / CHUNK;
    struct sl_index_chunk *c = x->chunks[i];
    if (~c->used == 0) open_chunk(x, i);
    c->used &= ~(1ull << number % CHUNK);
    if (c->used != 0) return;
    if (x->empty == NONE) {
        x->empty = i;
        return;
    }
    close_chunk(x, i);
    free(c);
    x->chunks[i] = NULL;
    x->chunks_live--;
    if (i < x->first_hole) x->first_hole = i;
    while (x->chunk_count > 0 && x->chunks[x->chunk_count - 1] == NULL)
        x->chunk_count--;
    uint32_t max = x->chunk_max;
    while (x->chunk_count < max / 4) max /= 2;
    if (max == x->chunk_max) return;
    struct sl_index_chunk **chunks = realloc(x->chunks, max * sizeof *chunks);
    if (chunks == NULL) return; /* The array stays large. */
    x->chunks = chunks;
    x->chunk_max = max;
}

/* --- One table ------------------------------------------------------------ */

static void put(struct sl_index_table *t, uint64_t slot)
{
    size_t at = home_of(t, slot);
    /* Reuse the slot of a removed item. Otherwise two keys that are often added and
     * removed would each take the slot behind the other, and leave ever more slots
     * of removed items for searches to visit. */
    while (is_item(t->slots[at])) at = after(t, at);
    if (t->slots[at] == 0) t->used++;
    t->slots[at] = slot;
}

/* Find the slot of an item, or the slot of a key if item is NULL. Returns NULL if
 * there is none. */
static uint64_t *find(const struct sl_index *x, const struct sl_index_table *t,
                      const struct sl_bytes *key, const void *item, uint64_t hash)
{
    if (t->slots == NULL) return NULL;
    size_t at = home_of(t, hash);
    uint64_t tag = tag_of(hash);
    for (; t->slots[at] != 0; at = after(t, at)) {
        uint64_t slot = t->slots[at];
        if ((slot & ~NUMBER_MASK) != tag || !is_item(slot)) continue;
        void *there = item_of(x, slot);
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
        put(&x->now, slot);
        x->before.slots[x->moved] = GONE;
    }
    if (x->moved < all) return;
    free(x->before.slots);
    x->before = (struct sl_index_table){0};
}

/* Returns the number of slots for all present items and all items that may be added
 * before the move ends. With this many slots, the table is at most half full. */
static size_t size_for(size_t count, size_t slots_before)
{
    size_t coming = slots_before / STEP_SLOTS + 1, want = 2 * (count + coming);
    size_t size = SLOTS_MIN;
    while (size < want && size < SLOTS_SMALL) size *= 2;
    if (want > SLOTS_MAX) return SLOTS_MAX;
    return want > size ? want : size;
}

static int begin_move(struct sl_index *x)
{
    size_t size = size_for(x->count, slots_of(&x->now));
    uint64_t *slots = calloc(size, sizeof *slots);
    if (slots == NULL) return SLUICE_ENOMEM;
    x->before = x->now;
    x->moved = 0;
    x->now = (struct sl_index_table){.slots = slots, .size = size};
    if (x->before.slots == NULL) x->before = (struct sl_index_table){0};
    return SLUICE_OK;
}

/* Whether the table is three quarters full. The table becomes fuller than that only
 * if there is no memory for a larger one. */
static bool is_full(const struct sl_index_table *t, size_t coming)
{
    size_t slots = slots_of(t);
    return t->used + coming + 1 > slots - slots / 4;
}

static bool is_sparse(const struct sl_index *x)
{
    return x->now.size > SLOTS_MIN && x->count < slots_of(&x->now) / 8;
}

int sl_index_reserve(struct sl_index *x)
{
    int status = reserve_number(x);
    if (status != SLUICE_OK) return status;
    if (x->before.slots != NULL) {
        /* The new table is large enough for all items that are still to be moved,
         * and each change moves more items than it adds. */
        return SLUICE_OK;
    }
    if (!is_full(&x->now, 0)) return SLUICE_OK;
    status = begin_move(x);
    if (status == SLUICE_OK) return SLUICE_OK;
    /* One slot must stay empty, or a search would never end. */
    return slots_of(&x->now) > x->now.used + 1 ? SLUICE_OK : status;
}

void sl_index_put(struct sl_index *x, void *item, uint64_t hash)
{
    assert(x->open != NONE && x->now.slots != NULL); /* Memory is reserved. */
    sl_index_step(x);
    put(&x->now, tag_of(hash) | ((uint64_t)take_number(x, item) + NUMBER_FIRST));
    x->count++;
}

void *sl_index_find(const struct sl_index *x, struct sl_bytes key, uint64_t hash)
{
    uint64_t *slot = find(x, &x->now, &key, NULL, hash);
    if (slot == NULL) slot = find(x, &x->before, &key, NULL, hash);
    return slot == NULL ? NULL : item_of(x, *slot);
}

void sl_index_remove(struct sl_index *x, const void *item, uint64_t hash)
{
    uint64_t *slot = find_item(x, item, hash);
    assert(slot != NULL);
    give_number(x, number_of(*slot));
    *slot = GONE;
    x->count--;
    /* If the next slot is empty, no search continues past this slot, so this slot can
     * become empty as well. */
    if (slot >= x->now.slots && slot < x->now.slots + slots_of(&x->now)) {
        size_t at = (size_t)(slot - x->now.slots);
        while (x->now.slots[at] == GONE && x->now.slots[after(&x->now, at)] == 0) {
            x->now.slots[at] = 0;
            x->now.used--;
            at = at == 0 ? x->now.size - 1 : at - 1;
        }
    }
    if (x->before.slots != NULL) sl_index_step(x);
    else if (is_sparse(x)) (void)begin_move(x); /* On failure, it stays large. */
}

/* --- Scanning ------------------------------------------------------------- */

/* The cursor is an item number. All items with smaller numbers have been returned. */

size_t sl_index_scan(const struct sl_index *x, uint64_t *cursor, void **out, size_t max)
{
    const uint64_t end = (uint64_t)x->chunk_count * CHUNK;
    uint64_t at = *cursor;
    size_t n = 0;
    for (unsigned i = 0; i < CHUNKS_A_SCAN && at < end && n < max; i++) {
        const struct sl_index_chunk *c = x->chunks[at / CHUNK];
        uint64_t left = c == NULL ? 0 : c->used & ~0ull << at % CHUNK;
        at -= at % CHUNK;
        for (; left != 0 && n < max; left &= left - 1)
            out[n++] = c->items[__builtin_ctzll(left)];
        at += left == 0 ? CHUNK : (uint64_t)__builtin_ctzll(left);
    }
    *cursor = at < end ? at : 0;
    return n;
}

size_t sl_index_bytes(const struct sl_index *x)
{
    return (slots_of(&x->now) + slots_of(&x->before)) * sizeof(uint64_t) +
           x->chunk_max * sizeof *x->chunks + x->chunks_live * sizeof **x->chunks;
}
