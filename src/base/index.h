/* index.h - from a key to what is known of it: open addressing, eight bytes a slot.
 *
 * Each item has a number as long as it is here. Numbers lead to items through chunks of
 * pointers. A slot is the upper half of the key's hash and the item's number; that half,
 * as a fraction of the table, says where a search for it begins.
 *
 * A scan goes through the numbers. So it survives growth, shrinking and moving, and what
 * it shows to a client says nothing about hashes: a client that knew which keys have
 * similar ones could send many that begin in one place.
 *
 * It grows and shrinks in steps: for a while there are two tables, each change moves a
 * few items over, and nobody waits for all of them. The owner of the items compares what
 * is looked up (struct sl_index_kind), and knows their hashes. */
#ifndef SL_BASE_INDEX_H
#define SL_BASE_INDEX_H

#include "base/hash.h"
#include "base/types.h"

struct sl_index;

struct sl_index_kind {
    uint64_t (*hash)(const void *item, const struct sl_index *x);
    bool (*same)(const void *item, struct sl_bytes key);
};

struct sl_index_table {
    uint64_t *slots;
    size_t size; /* Slots. */
    size_t used; /* Slots that are not empty, those of removed items included. */
};

#define SL_INDEX_CHUNK 64u
struct sl_index_chunk {
    uint64_t used;       /* A bit for each item. */
    uint32_t next, prev; /* In the list of chunks that are not full. */
    void *items[SL_INDEX_CHUNK];
};

struct sl_index {
    const struct sl_index_kind *kind;
    struct sl_hash_key key;       /* For hashes of what clients choose, */
    uint64_t seed;                /* and of numbers that we draw ourselves. */
    size_t count;                 /* Items. */
    struct sl_index_table now;    /* Where new ones go. */
    struct sl_index_table before; /* Being emptied; no slots: none. */
    size_t moved;                 /* Slots of `before` that are done. */
    /* Items by number. A chunk without items is freed, but for one. */
    struct sl_index_chunk **chunks; /* NULL: there is none of this number. */
    uint32_t chunk_count, chunk_max, chunks_live;
    uint32_t first_hole; /* No chunk before this one is NULL. */
    uint32_t open;       /* The first that is not full; or none. */
    uint32_t empty;      /* The one without items; or none. */
};

/* Borrows kind for life. The key must be random and secret: otherwise clients can
 * choose keys that collide. */
void sl_index_init(struct sl_index *x, const struct sl_index_kind *kind,
                   struct sl_hash_key key);
void sl_index_free(struct sl_index *x); /* Not the items. */

/* Let go of all items, each of which may be freed. */
void sl_index_empty(struct sl_index *x, void (*let_go)(void *item));

/* Make sure that one more item can be put. SLUICE_ENOMEM. */
int sl_index_reserve(struct sl_index *x);

/* Put an item whose key is not there, after sl_index_reserve(). */
void sl_index_put(struct sl_index *x, void *item, uint64_t hash);

/* The item with this key and hash, or NULL. */
void *sl_index_find(const struct sl_index *x, struct sl_bytes key, uint64_t hash);

/* Take an item out. It must be there. */
void sl_index_remove(struct sl_index *x, const void *item, uint64_t hash);

/* Move some more slots, if there are two tables. */
void sl_index_step(struct sl_index *x);

/* Go through all items: call with *cursor 0, and with what it left there, until it
 * leaves 0. Fills at most max items, maybe none, and returns how many. What is there all
 * the while is seen exactly once. Takes any cursor. */
size_t sl_index_scan(const struct sl_index *x, uint64_t *cursor, void **out,
                     size_t max);

/* Bytes that it takes. */
size_t sl_index_bytes(const struct sl_index *x);

#endif /* SL_BASE_INDEX_H */
