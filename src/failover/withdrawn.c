/* withdrawn.c - stores withdrawals, by origin. */
#include "failover/withdrawn.h"

#include <stdlib.h>
#include <string.h>

static uint64_t hash_entry(const void *item, const struct sl_index *x)
{
    return sl_hash_u64(((const struct sl_withdrawal *)item)->origin, x->seed);
}

static bool same_origin(const void *item, struct sl_bytes key)
{
    return memcmp(&((const struct sl_withdrawal *)item)->origin, key.at, key.n) == 0;
}

static const struct sl_index_kind by_origin = {.hash = hash_entry, .same = same_origin};

void sl_withdrawn_init(struct sl_withdrawn *w, struct sl_hash_key key)
{
    sl_index_init(&w->by_origin, &by_origin, key);
    sl_list_init(&w->all);
}

static struct sl_withdrawal *find(const struct sl_withdrawn *w, uint64_t origin)
{
    const struct sl_bytes key = {(const char *)&origin, sizeof origin};
    return sl_index_find(&w->by_origin, key, sl_hash_u64(origin, w->by_origin.seed));
}

static void drop(struct sl_withdrawn *w, struct sl_withdrawal *x)
{
    sl_index_remove(&w->by_origin, x, hash_entry(x, &w->by_origin));
    sl_list_remove(&x->all);
    free(x);
}

void sl_withdrawn_clear(struct sl_withdrawn *w)
{
    while (!sl_list_empty(&w->all))
        drop(w, sl_container_of(w->all.next, struct sl_withdrawal, all));
}

void sl_withdrawn_free(struct sl_withdrawn *w)
{
    sl_withdrawn_clear(w);
    sl_index_free(&w->by_origin);
}

bool sl_withdrawn_add(struct sl_withdrawn *w, uint64_t origin, struct sl_bytes key,
                      sl_fence fence, sl_ms until_ms)
{
    if (find(w, origin) != NULL) return true;
    if (w->by_origin.count >= SL_WITHDRAWN_MAX) return false;
    struct sl_withdrawal *x = malloc(sizeof *x + key.n);
    if (x == NULL || sl_index_reserve(&w->by_origin) != SLUICE_OK) {
        free(x);
        return false;
    }
    *x = (struct sl_withdrawal){.origin = origin,
                                .fence = fence,
                                .until_ms = until_ms,
                                .key_bytes = (uint32_t)key.n};
    memcpy(x->key, key.at, key.n);
    sl_list_append(w->all.next, &x->all);
    sl_index_put(&w->by_origin, x, hash_entry(x, &w->by_origin));
    return true;
}

bool sl_withdrawn_has(const struct sl_withdrawn *w, struct sl_bytes key,
                      const struct sl_grant_view *v)
{
    const struct sl_withdrawal *x = v->origin == 0 ? NULL : find(w, v->origin);
    return x != NULL && x->key_bytes == key.n && memcmp(x->key, key.at, key.n) == 0 &&
           sl_withdrawal_matches(x->origin, x->fence, v);
}

void sl_withdrawn_sweep(struct sl_withdrawn *w, sl_ms now_ms)
{
    struct sl_list *next;
    for (struct sl_list *i = w->all.next; i != &w->all; i = next) {
        struct sl_withdrawal *x = sl_container_of(i, struct sl_withdrawal, all);
        next = i->next;
        if (x->until_ms <= now_ms) drop(w, x);
    }
}
