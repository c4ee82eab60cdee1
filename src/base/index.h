/* index.h - a hash table from keys to items: open addressing, eight bytes per slot.
 *
 * Each item has a number while it is in the index. Chunks of pointers lead from numbers to items.
 * A slot has the upper half of the key's hash and the item's number. That half, as a fraction of
 * the table, is where a search for it begins.
 *
 * A scan follows the numbers. So it survives growing, shrinking and moving, and the order that a
 * client sees says nothing about hashes: a client that knew which keys have similar hashes could
 * send many keys that begin in one slot.
 *
 * The index grows and shrinks in steps: for a while there are two tables, and each change moves a
 * few items, so no call takes long. The owner of the items compares keys (struct
 * sl_index_kind), and knows their hashes. */
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
    size_t used; /* Slots that are not empty, with those of removed items. */
};

#define SL_INDEX_CHUNK 64u
struct sl_index_chunk {
    uint64_t used;       /* A bit for each item. */
    uint32_t next, prev; /* In the list of chunks that are not full. */
    void *items[SL_INDEX_CHUNK];
};

struct sl_index {
    const struct sl_index_kind *kind;
    struct sl_hash_key key;       /* For sl_hash(), */
    uint64_t seed;                /* and for sl_hash_u64(). */
    size_t count;                 /* Items. */
    struct sl_index_table now;    /* For new items. */
    struct sl_index_table before; /* Being emptied; slots NULL: there is none. */
    size_t moved;                 /* Slots of `before` that are done. */
    /* Items by number. All empty chunks but one are freed. */
    struct sl_index_chunk **chunks; /* An element may be NULL. */
    uint32_t chunk_count, chunk_max, chunks_live;
    uint32_t first_hole; /* No chunk before this one is NULL. */
    uint32_t open;       /* The first chunk that is not full; or none. */
    uint32_t empty;      /* The chunk without items; or none. */
};

/* Borrows kind. The key must be random and secret: otherwise clients can choose keys that
 * collide. */
void sl_index_init(struct sl_index *x, const struct sl_index_kind *kind,
                   struct sl_hash_key key);
void sl_index_free(struct sl_index *x); /* But not the items. */

/* Remove all items. let_go() may free them. */
void sl_index_empty(struct sl_index *x, void (*let_go)(void *item));

/* Memory for one more item. SLUICE_ENOMEM. */
int sl_index_reserve(struct sl_index *x);

/* Add an item whose key is not in the index, after sl_index_reserve(). */
void sl_index_put(struct sl_index *x, void *item, uint64_t hash);

/* The item with this key and hash, or NULL. */
void *sl_index_find(const struct sl_index *x, struct sl_bytes key, uint64_t hash);

/* Remove an item, which is in the index. */
void sl_index_remove(struct sl_index *x, const void *item, uint64_t hash);

/* Move some more slots, if there are two tables. */
void sl_index_step(struct sl_index *x);

/* Visit all items: set *cursor to 0, and call until *cursor is 0 again. Fills at most max items,
 * maybe none, and returns how many. Items that are there all the time are returned exactly once.
 * Any cursor is valid. */
size_t sl_index_scan(const struct sl_index *x, uint64_t *cursor, void **out,
                     size_t max);

/* Its memory, in bytes. */
size_t sl_index_bytes(const struct sl_index *x);

#endif /* SL_BASE_INDEX_H */
