/* heap.h - a heap that finds the item that is due first. Each node has four children.
 *
 * Items of the same time come in any order, but always in the same order after the same history.
 * Each owner learns the slot of its item, so that it can remove or move it. */
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
    void (*placed)(void *owner, uint32_t slot); /* SL_HEAP_NONE: it was removed. */
};

void sl_heap_init(struct sl_heap *h, void (*placed)(void *owner, uint32_t slot));
void sl_heap_free(struct sl_heap *h);

/* Memory for this many more items. SLUICE_ENOMEM. */
int sl_heap_reserve(struct sl_heap *h, uint32_t more);

void sl_heap_put(struct sl_heap *h, sl_ms at, void *owner);
void sl_heap_move(struct sl_heap *h, uint32_t slot, sl_ms at);
void sl_heap_remove(struct sl_heap *h, uint32_t slot);

/* Free memory, if there is much more than the items and `spare` need. */
void sl_heap_trim(struct sl_heap *h, uint32_t spare);

#endif /* SL_BASE_HEAP_H */
