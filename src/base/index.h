/* index.h - a hash table from keys to items, with open addressing and eight bytes
 * per slot.
 *
 * Each item has a number while it is in the index. Arrays of 64 pointers (chunks)
 * lead from numbers to items. A slot contains the upper half of the key's hash (the
 * tag) and the item's number. The tag, as a fraction of the table size, is the slot
 * where a search begins.
 *
 * A scan visits the items by number. So growing, shrinking and moving do not disturb
 * a scan, and the order of the items reveals nothing about their hashes. Otherwise a
 * client could find out which keys have similar hashes, and send many keys that fall
 * into one slot.
 *
 * The index grows and shrinks incrementally: for a while there are two tables, and
 * each change moves only a few items, so every call is short. The caller compares keys
 * (struct sl_index_kind) and computes their hashes. */
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
    size_t size; /* Number of slots. */
    size_t used; /* Slots that are not empty, including those of removed items. */
};

#define SL_INDEX_CHUNK 64u
struct sl_index_chunk {
    uint64_t used;       /* One bit for each item. */
    uint32_t next, prev; /* Links in the list of chunks that are not full. */
    void *items[SL_INDEX_CHUNK];
};

struct sl_index {
    const struct sl_index_kind *kind;
    struct sl_hash_key key;       /* For sl_hash(). */
    uint64_t seed;                /* For sl_hash_u64(). */
    size_t count;                 /* Number of items. */
    struct sl_index_table now;    /* New items go here. */
    struct sl_index_table before; /* The table that is being emptied, if any. */
    size_t moved;                 /* How many slots of `before` have been moved. */
    /* The items by number. The index keeps at most one empty chunk. */
    struct sl_index_chunk **chunks; /* An element may be NULL. */
    uint32_t chunk_count, chunk_max, chunks_live;
    uint32_t first_hole; /* No chunk before this one is NULL. */
    uint32_t open;       /* The first chunk that is not full, or UINT32_MAX. */
    uint32_t empty;      /* The chunk without items, or UINT32_MAX. */
};

/* Initialize an empty index. Borrows kind. The hash key must be random and secret;
 * otherwise clients could choose keys that collide. */
void sl_index_init(struct sl_index *x, const struct sl_index_kind *kind,
                   struct sl_hash_key key);
void sl_index_free(struct sl_index *x); /* Does not free the items. */

/* Remove all items, and call let_go() for each, which may free it. */
void sl_index_empty(struct sl_index *x, void (*let_go)(void *item));

/* Reserve memory for one more item. Returns SLUICE_OK or SLUICE_ENOMEM. */
int sl_index_reserve(struct sl_index *x);

/* Add an item whose key is not in the index. Call sl_index_reserve() first. */
void sl_index_put(struct sl_index *x, void *item, uint64_t hash);

/* Returns the item with this key and hash, or NULL. */
void *sl_index_find(const struct sl_index *x, struct sl_bytes key, uint64_t hash);

/* Remove an item. The item must be in the index. */
void sl_index_remove(struct sl_index *x, const void *item, uint64_t hash);

/* If there are two tables, move a few more slots. */
void sl_index_step(struct sl_index *x);

/* Iterate over all items. Set *cursor to 0 before the first call; the scan is
 * complete when *cursor is 0 again. Each call stores at most max items in out and
 * returns their number, which may be 0. An item that is in the index during the
 * whole scan is returned exactly once. Any cursor is valid. */
size_t sl_index_scan(const struct sl_index *x, uint64_t *cursor, void **out,
                     size_t max);

/* Returns the memory of the index in bytes. */
size_t sl_index_bytes(const struct sl_index *x);

#endif /* SL_BASE_INDEX_H */
