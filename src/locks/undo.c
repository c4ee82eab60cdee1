/* undo.c - a stack of changes of the lock table, in one block of memory. */
#include "locks/undo.h"

#include <stdlib.h>
#include <string.h>

/* A block that has grown beyond this size is freed when it is empty. */
#define BYTES_KEPT (1u << 20)
#define BYTES_MIN 1024u

/* Followed by the key and the value. */
struct change {
    size_t before; /* The offset of the change before this one. */
    sl_fence fence;
    sl_ms before_ms;
    size_t key_bytes, value_bytes;
    bool has_value;
};

static bool grow(struct sl_undo *u, size_t bytes)
{
    size_t size = u->size < BYTES_MIN ? BYTES_MIN : u->size;
    while (size < bytes) size *= 2;
    char *at = realloc(u->at, size);
    if (at == NULL) return false;
    u->at = at;
    u->size = size;
    return true;
}

int sl_undo_add(struct sl_undo *u, const struct sl_undo_change *c)
{
    const struct change change = {.before = u->last,
                                  .fence = c->fence,
                                  .before_ms = c->before_ms,
                                  .key_bytes = c->key.n,
                                  .value_bytes = c->value.n,
                                  .has_value = c->value.at != NULL};
    size_t end = u->n + sizeof change + c->key.n + c->value.n;
    if (end > u->size && !grow(u, end)) return SLUICE_ENOMEM;
    char *to = u->at + u->n;
    memcpy(to, &change, sizeof change);
    memcpy(to + sizeof change, c->key.at, c->key.n);
    if (c->value.n > 0) memcpy(to + sizeof change + c->key.n, c->value.at, c->value.n);
    u->last = u->n;
    u->n = end;
    return SLUICE_OK;
}

void sl_undo_forget(struct sl_undo *u)
{
    if (u->size > BYTES_KEPT) sl_undo_free(u);
    u->n = u->last = 0;
}

static void undo(struct sl_table *t, struct sl_now now, const struct sl_undo_change *c)
{
    struct sl_grant_view v;
    if (c->before_ms == 0) sl_table_undo_grant(t, now, c->key, c->fence);
    /* All later extensions have been undone, so the present expiry is the one to undo. */
    else if (sl_table_inspect_grant(t, now, c->key, c->fence, &v))
        sl_table_undo_extend(t, now, c->key, c->fence, v.end_ms, c->before_ms,
                             c->value);
}

void sl_undo_all(struct sl_undo *u, struct sl_table *t, struct sl_now now)
{
    struct change change;
    while (u->n > 0) {
        const char *from = u->at + u->last;
        memcpy(&change, from, sizeof change);
        const char *key = from + sizeof change, *value = key + change.key_bytes;
        undo(t, now,
             &(struct sl_undo_change){
                 .key = {key, change.key_bytes},
                 .fence = change.fence,
                 .before_ms = change.before_ms,
                 .value = {change.has_value ? value : NULL, change.value_bytes}});
        u->n = u->last;
        u->last = change.before;
    }
    sl_undo_forget(u);
}

void sl_undo_free(struct sl_undo *u)
{
    free(u->at);
    *u = (struct sl_undo){0};
}
