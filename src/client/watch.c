#include "client/watch.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#define SLOTS_MIN 16u

int sl_client_watches_init(struct sl_client_watches *x)
{
    *x = (struct sl_client_watches){.slots = calloc(SLOTS_MIN, sizeof *x->slots),
                                    .mask = SLOTS_MIN - 1};
    sl_list_init(&x->queue);
    return x->slots != NULL ? SLUICE_OK : SLUICE_ENOMEM;
}

void sl_client_watches_free(struct sl_client_watches *x)
{
    if (x->slots == NULL) return;
    for (uint32_t i = 0; i <= x->mask; i++)
        for (struct sl_client_watch *w = x->slots[i], *next; w != NULL; w = next) {
            next = w->chain;
            free(w);
        }
    free(x->slots);
}

struct sl_client_watch *sl_client_watch_new(struct sl_bytes key,
                                            sl_client_event_fn *on_event, void *arg)
{
    struct sl_client_watch *w = malloc(sizeof *w + key.n + 1);
    if (w == NULL) return NULL;
    *w = (struct sl_client_watch){.on_event = on_event, .arg = arg};
    sl_list_init(&w->queue);
    memcpy(w->key, key.at, key.n);
    w->key[key.n] = '\0';
    return w;
}

/* Return the slot for a fence. Fences are times in microseconds, so fences that follow
 * each other differ in their lowest bits. */
static struct sl_client_watch **slot_of(const struct sl_client_watches *x,
                                        sl_fence fence)
{
    return &x->slots[(fence ^ fence >> 16) & x->mask];
}

static void link_in(struct sl_client_watches *x, struct sl_client_watch *w)
{
    struct sl_client_watch **slot = slot_of(x, w->fence);
    w->chain = *slot;
    *slot = w;
}

/* Grow the table. If there is no memory, the table keeps its size and its chains become
 * longer. */
static void grow(struct sl_client_watches *x)
{
    struct sl_client_watches old = *x;
    struct sl_client_watch **slots = calloc(2 * ((size_t)old.mask + 1), sizeof *slots);
    if (slots == NULL) return;
    x->slots = slots;
    x->mask = 2 * old.mask + 1;
    for (uint32_t i = 0; i <= old.mask; i++)
        for (struct sl_client_watch *w = old.slots[i], *next; w != NULL; w = next) {
            next = w->chain;
            link_in(x, w);
        }
    free(old.slots);
}

void sl_client_watches_put(struct sl_client_watches *x, struct sl_client_watch *w,
                           sl_fence fence, uint64_t session_id)
{
    if (x->count > x->mask && x->mask < UINT32_MAX / 2) grow(x);
    assert(fence != 0 && sl_client_watches_find(x, fence) == NULL);
    w->fence = fence;
    w->session_id = session_id;
    link_in(x, w);
    x->count++;
}

struct sl_client_watch *sl_client_watches_find(const struct sl_client_watches *x,
                                               sl_fence fence)
{
    struct sl_client_watch *w = *slot_of(x, fence);
    while (w != NULL && w->fence != fence) w = w->chain;
    return w;
}

void sl_client_watches_remove(struct sl_client_watches *x, struct sl_client_watch *w)
{
    assert(x->count > 0);
    struct sl_client_watch **p = slot_of(x, w->fence);
    while (*p != w) p = &(*p)->chain;
    *p = w->chain;
    x->count--;
    sl_list_remove(&w->queue);
}

/* --- Events --------------------------------------------------------------- */

bool sl_client_watch_has_event(const struct sl_client_watch *w)
{
    if (w->dropped) return false;
    return w->events != 0 || (!w->over && w->asked != w->asked_reported);
}

static enum sluice_event_type next_type(struct sl_client_watch *w)
{
    static const enum sluice_event_type once[] = {
        SLUICE_EVENT_STOLEN, SLUICE_EVENT_BROKEN, SLUICE_EVENT_EXPIRED,
        SLUICE_EVENT_UNREACHABLE};
    if (!w->over && w->asked != w->asked_reported) {
        w->asked_reported = w->asked;
        return w->asked ? SLUICE_EVENT_ASKED : SLUICE_EVENT_WITHDRAWN;
    }
    assert(w->events != 0);
    size_t i = 0;
    while ((w->events & 1u << once[i]) == 0) i++;
    w->events &= ~(1u << once[i]);
    return once[i];
}

struct sluice_event sl_client_watch_next_event(struct sl_client_watch *w, sl_ms now_ms)
{
    struct sluice_event e = {
        .type = next_type(w), .key = w->key, .fence = w->fence, .left_ms = 0};
    if (e.type != SLUICE_EVENT_ASKED) return e;
    e.priority = w->priority;
    if (w->end_ms == SL_NEVER) e.left_ms = SLUICE_FOREVER;
    else if (w->end_ms > now_ms) e.left_ms = w->end_ms - now_ms;
    return e;
}

void sl_client_watches_check(const struct sl_client_watches *x,
                             const struct sl_client_watch *running)
{
    size_t count = 0;
    for (uint32_t i = 0; i <= x->mask; i++)
        for (struct sl_client_watch *w = x->slots[i]; w != NULL;
             w = w->chain, count++) {
            assert(slot_of(x, w->fence) == &x->slots[i] && !w->dropped);
            if (w == running) continue;
            /* A watch in the queue may have no event, if ASKED was withdrawn before it
             * was reported. */
            assert(!sl_client_watch_has_event(w) || !sl_list_empty(&w->queue));
            assert(!w->over || sl_client_watch_has_event(w));
        }
    assert(count == x->count);
}
