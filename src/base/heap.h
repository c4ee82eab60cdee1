/* heap.h - what is due first: a heap of four children a node. What is due at the same
 * time comes in any order, though always in the same after the same history.
 *
 * Each item is told its place, so that it can be taken out or moved when its time
 * changes. */
#ifndef SL_BASE_HEAP_H
#define SL_BASE_HEAP_H

#include "base/types.h"

#define SL_HEAP_NONE UINT32_MAX

struct sl_heap_item {
    sl_ms at;
    void *owner;
};

struct sl_heap {
    struct sl_heap_item *items;
    uint32_t count, size;
    void (*placed)(void *owner, uint32_t place); /* SL_HEAP_NONE: it is out. */
};

void sl_heap_init(struct sl_heap *h, void (*placed)(void *owner, uint32_t place));
void sl_heap_free(struct sl_heap *h);

/* Make sure that so many more can be put. SLUICE_ENOMEM. */
int sl_heap_reserve(struct sl_heap *h, uint32_t more);

void sl_heap_put(struct sl_heap *h, sl_ms at, void *owner);
void sl_heap_move(struct sl_heap *h, uint32_t place, sl_ms at);
void sl_heap_remove(struct sl_heap *h, uint32_t place);

/* Give memory back, if there is much more than for what is there and `spare`. */
void sl_heap_trim(struct sl_heap *h, uint32_t spare);

#endif /* SL_BASE_HEAP_H */
