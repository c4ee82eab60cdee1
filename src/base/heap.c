/* heap.c - a heap in which each node has four children. */
#include "base/heap.h"

#include <assert.h>
#include <stdlib.h>

#include "sluice.h"

#define CHILDREN 4u
#define SIZE_MIN 4u

void sl_heap_init(struct sl_heap *h, void (*placed)(void *owner, uint32_t slot))
{
    *h = (struct sl_heap){.placed = placed};
}

void sl_heap_free(struct sl_heap *h)
{
    free(h->items);
    sl_heap_init(h, h->placed);
}

static int resize(struct sl_heap *h, uint32_t size)
{
    struct sl_heap_item *items = realloc(h->items, size * sizeof *items);
    if (items == NULL) return SLUICE_ENOMEM;
    h->items = items;
    h->size = size;
    return SLUICE_OK;
}

int sl_heap_reserve(struct sl_heap *h, uint32_t more)
{
    if (more <= h->size - h->count) return SLUICE_OK;
    if (h->count > UINT32_MAX / 2 - more) return SLUICE_ENOMEM;
    uint32_t want = h->count + more, size = h->size + h->size / 2;
    if (size < SIZE_MIN) size = SIZE_MIN;
    return resize(h, size > want ? size : want);
}

void sl_heap_trim(struct sl_heap *h, uint32_t spare)
{
    if (h->size <= SIZE_MIN || h->count + spare >= h->size / 4) return;
    (void)resize(h, h->size / 2); /* On failure, the array stays large. */
}

static void place(struct sl_heap *h, uint32_t at, struct sl_heap_item item)
{
    h->items[at] = item;
    h->placed(item.owner, at);
}

static void sift_up(struct sl_heap *h, uint32_t at, struct sl_heap_item item)
{
    while (at > 0) {
        uint32_t parent = (at - 1) / CHILDREN;
        if (h->items[parent].at <= item.at) break;
        place(h, at, h->items[parent]);
        at = parent;
    }
    place(h, at, item);
}

static void sift_down(struct sl_heap *h, uint32_t at, struct sl_heap_item item)
{
    for (;;) {
        uint64_t first = (uint64_t)at * CHILDREN + 1;
        if (first >= h->count) break;
        uint32_t least = (uint32_t)first;
        for (uint64_t c = first + 1; c < first + CHILDREN && c < h->count; c++)
            if (h->items[c].at < h->items[least].at) least = (uint32_t)c;
        if (h->items[least].at >= item.at) break;
        place(h, at, h->items[least]);
        at = least;
    }
    place(h, at, item);
}

void sl_heap_put(struct sl_heap *h, sl_ms at, void *owner)
{
    assert(h->count < h->size);
    sift_up(h, h->count++, (struct sl_heap_item){.at = at, .owner = owner});
}

void sl_heap_move(struct sl_heap *h, uint32_t slot, sl_ms at)
{
    assert(slot < h->count);
    struct sl_heap_item item = {.at = at, .owner = h->items[slot].owner};
    if (at < h->items[slot].at) sift_up(h, slot, item);
    else sift_down(h, slot, item);
}

void sl_heap_remove(struct sl_heap *h, uint32_t slot)
{
    assert(slot < h->count);
    void *owner = h->items[slot].owner;
    struct sl_heap_item last = h->items[--h->count];
    if (slot < h->count) {
        if (last.at < h->items[slot].at) sift_up(h, slot, last);
        else sift_down(h, slot, last);
    }
    h->placed(owner, SL_HEAP_NONE);
}
