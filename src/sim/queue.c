#include "sim/queue.h"

#include <stdlib.h>
#include <string.h>

/* A simulator that is out of memory has nothing to say. */
static void *need(void *p)
{
    if (!p) abort();
    return p;
}

static void grow(struct queue *q)
{
    uint32_t size = q->size ? q->size * 2 : 1024;
    q->items = need(realloc(q->items, size * sizeof *q->items));
    q->slots = need(realloc(q->slots, size * sizeof *q->slots));
    q->spare = need(realloc(q->spare, size * sizeof *q->spare));
    for (uint32_t i = size; i > q->size; i--) q->spare[q->spare_count++] = i - 1;
    q->size = size;
}

static int before(const struct queue_item *a, const struct queue_item *b)
{
    return a->at_us < b->at_us || (a->at_us == b->at_us && a->order < b->order);
}

void sl_queue_put(struct queue *q, const struct happening *h)
{
    if (q->count == q->size) grow(q);
    uint32_t slot = q->spare[--q->spare_count];
    q->slots[slot] = *h;
    struct queue_item item = {.at_us = h->at_us, .order = q->order++, .slot = slot};
    uint32_t i = q->count++;
    while (i > 0) {
        uint32_t up = (i - 1) / 4;
        if (!before(&item, &q->items[up])) break;
        q->items[i] = q->items[up];
        i = up;
    }
    q->items[i] = item;
}

/* Where the last item may stand, once the first is gone. */
static uint32_t sift(struct queue *q, const struct queue_item *item)
{
    uint32_t i = 0;
    for (;;) {
        uint32_t child = 4 * i + 1, least = child;
        if (child >= q->count) return i;
        uint32_t end = child + 4 < q->count ? child + 4 : q->count;
        for (uint32_t c = child + 1; c < end; c++) {
            if (before(&q->items[c], &q->items[least])) least = c;
        }
        if (!before(&q->items[least], item)) return i;
        q->items[i] = q->items[least];
        i = least;
    }
}

int sl_queue_take(struct queue *q, struct happening *out)
{
    if (q->count == 0) return 0;
    uint32_t slot = q->items[0].slot;
    *out = q->slots[slot];
    q->spare[q->spare_count++] = slot;
    struct queue_item last = q->items[--q->count];
    if (q->count > 0) q->items[sift(q, &last)] = last;
    return 1;
}

void sl_queue_clear(struct queue *q)
{
    struct happening h;
    while (sl_queue_take(q, &h)) sl_parcel_free(q, h.parcel);
    q->order = 0;
    /* Where something lies must not depend on the seed before. */
    for (uint32_t i = 0; i < q->size; i++) q->spare[i] = q->size - 1 - i;
}

void sl_queue_free(struct queue *q)
{
    sl_queue_clear(q);
    while (q->parcels) {
        struct parcel *p = q->parcels;
        q->parcels = p->next;
        free(p);
    }
    free(q->items);
    free(q->slots);
    free(q->spare);
    memset(q, 0, sizeof *q);
}

struct parcel *sl_parcel_new(struct queue *q)
{
    struct parcel *p = q->parcels;
    if (p) q->parcels = p->next;
    else p = need(malloc(sizeof *p));
    p->next = NULL;
    return p;
}

void sl_parcel_free(struct queue *q, struct parcel *p)
{
    if (!p) return;
    p->next = q->parcels;
    q->parcels = p;
}
