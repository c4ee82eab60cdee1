#include "sim/queue.h"

#include <stdlib.h>
#include <string.h>

/* Exit if an allocation failed: the simulator cannot continue. */
static void *need(void *p)
{
    if (!p) abort();
    return p;
}

static void grow(struct sim_queue *q)
{
    uint32_t size = q->size ? q->size * 2 : 1024;
    q->items = need(realloc(q->items, size * sizeof *q->items));
    q->slots = need(realloc(q->slots, size * sizeof *q->slots));
    q->spare = need(realloc(q->spare, size * sizeof *q->spare));
    for (uint32_t i = size; i > q->size; i--) q->spare[q->spare_count++] = i - 1;
    q->size = size;
}

static bool before(const struct sim_queue_item *a, const struct sim_queue_item *b)
{
    return a->at_us < b->at_us || (a->at_us == b->at_us && a->order < b->order);
}

void sim_queue_put(struct sim_queue *q, const struct sim_event *e)
{
    if (q->count == q->size) grow(q);
    uint32_t slot = q->spare[--q->spare_count];
    q->slots[slot] = *e;
    struct sim_queue_item item = {.at_us = e->at_us, .order = q->order++, .slot = slot};
    uint32_t i = q->count++;
    while (i > 0) {
        uint32_t up = (i - 1) / 4;
        if (!before(&item, &q->items[up])) break;
        q->items[i] = q->items[up];
        i = up;
    }
    q->items[i] = item;
}

/* Return the position for the last item, after the first one was removed. Moves smaller
 * items up. */
static uint32_t sift(struct sim_queue *q, const struct sim_queue_item *item)
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

bool sim_queue_take(struct sim_queue *q, struct sim_event *out)
{
    if (q->count == 0) return false;
    uint32_t slot = q->items[0].slot;
    *out = q->slots[slot];
    q->spare[q->spare_count++] = slot;
    struct sim_queue_item last = q->items[--q->count];
    if (q->count > 0) q->items[sift(q, &last)] = last;
    return true;
}

void sim_queue_clear(struct sim_queue *q)
{
    struct sim_event e;
    while (sim_queue_take(q, &e)) {
        sim_packet_free(q, e.packet);
        free(e.bytes);
    }
    q->order = 0;
    /* The order of slots must not depend on the previous seed. */
    for (uint32_t i = 0; i < q->size; i++) q->spare[i] = q->size - 1 - i;
}

void sim_queue_free(struct sim_queue *q)
{
    sim_queue_clear(q);
    while (q->packets) {
        struct sim_packet *p = q->packets;
        q->packets = p->next;
        free(p);
    }
    free(q->items);
    free(q->slots);
    free(q->spare);
    memset(q, 0, sizeof *q);
}

struct sim_packet *sim_packet_new(struct sim_queue *q)
{
    struct sim_packet *p = q->packets;
    if (p) q->packets = p->next;
    else p = need(malloc(sizeof *p));
    p->next = NULL;
    return p;
}

void sim_packet_free(struct sim_queue *q, struct sim_packet *p)
{
    if (!p) return;
    p->next = q->packets;
    q->packets = p;
}
