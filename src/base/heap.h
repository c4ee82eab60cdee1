/* heap.h - a 4-ary heap that returns the item that is due first.
 *
 * Items with equal times come out in an unspecified order, but the order is
 * deterministic. The heap tells each owner the slot of its item, so that the owner
 * can remove or move the item. */
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
    void (*placed)(void *owner, uint32_t slot); /* Slot SL_HEAP_NONE: removed. */
};

void sl_heap_init(struct sl_heap *h, void (*placed)(void *owner, uint32_t slot));
void sl_heap_free(struct sl_heap *h);

/* Reserve memory for this many more items. Returns SLUICE_OK or SLUICE_ENOMEM. */
int sl_heap_reserve(struct sl_heap *h, uint32_t more);

void sl_heap_put(struct sl_heap *h, sl_ms at, void *owner);
void sl_heap_move(struct sl_heap *h, uint32_t slot, sl_ms at);
void sl_heap_remove(struct sl_heap *h, uint32_t slot);

/* Free memory if the heap has much more than its items and `spare` further items
 * need. */
void sl_heap_trim(struct sl_heap *h, uint32_t spare);

#endif /* SL_BASE_HEAP_H */
