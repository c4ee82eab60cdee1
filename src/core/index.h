/* index.h - from a key to what is known of it: open addressing, eight bytes a slot.
 *
 * A slot is a pointer with 16 bits of the key's hash on top; the place is given by other
 * bits of it, the highest, so that a table of any size has its items in the order of their
 * hashes. That is what a scan goes by: it survives growth, shrinking and moving.
 *
 * It grows and shrinks in steps: for a while there are two tables, each change moves a
 * few items over, and nobody waits for all of them. What is looked up is compared by the
 * owner of the items (struct sl_index_kind), who also knows their hashes. */
#ifndef SL_CORE_INDEX_H
#define SL_CORE_INDEX_H

#include "core/types.h"

struct sl_index_kind {
    uint64_t (*hash)(const void *item, uint64_t seed);
    bool (*same)(const void *item, struct sl_bytes key);
};

struct sl_index_table {
    uint64_t *slots;
    uint32_t bits; /* 2^bits slots. */
    size_t used;   /* Slots that are not empty, those of removed items included. */
};

struct sl_index {
    const struct sl_index_kind *kind;
    uint64_t seed;
    size_t count;                 /* Items. */
    struct sl_index_table now;    /* Where new ones go. */
    struct sl_index_table before; /* Being emptied; no slots: none. */
    size_t moved;                 /* Slots of `before` that are done. */
};

/* Borrows kind for life. The seed should be a random number: else who chooses the keys
 * chooses the collisions. */
void sl_index_init(struct sl_index *x, const struct sl_index_kind *kind, uint64_t seed);
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
 * leaves 0. Fills at most max items and returns how many. What is there all the while is
 * seen at least once. An item must not be freed before it is removed. */
size_t sl_index_scan(const struct sl_index *x, uint64_t *cursor, void **out,
                     size_t max);

/* Bytes that it takes. */
size_t sl_index_bytes(const struct sl_index *x);

#endif /* SL_CORE_INDEX_H */
