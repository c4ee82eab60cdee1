/* inspect.c - sl_in_memory_inspect(): the holders and waiters of a key. */
#include <string.h>

#include "client/memory/memory.h"

static void copy_text(char *out, struct sl_bytes text)
{
    if (text.n > 0) memcpy(out, text.at, text.n);
    out[text.n] = '\0';
}

static void fill_view(const struct sl_grant_view *v, struct sluice_view *out)
{
    *out = (struct sluice_view){.fence = v->fence,
                                .tid = sl_client_session_tid(v->session_id),
                                .waits = v->waits,
                                .shared = v->shared,
                                .asked = v->asked,
                                .steals = v->steals,
                                .broken = v->broken,
                                .units = v->units,
                                .capacity = {v->per, v->buckets},
                                .priority = v->priority,
                                .left_ms = v->left_ms,
                                .since_ms = v->since_ms};
    if (v->left_ms == SL_NEVER) out->left_ms = SLUICE_FOREVER;
    copy_text(out->value, v->value);
    copy_text(out->note, v->note);
}

int64_t sl_in_memory_inspect(struct sluice *service, const char *key,
                             struct sluice_view *out, size_t max)
{
    struct sl_memory *s = sl_memory_of(service);
    struct sl_bytes k = {key, strlen(key)};
    struct sl_grant_view v;
    uint64_t cursor = 0;
    size_t n = 0;
    int status = sl_client_enter(s);
    if (status != SLUICE_OK) return status;
    for (; sl_table_each(s->table, s->now, k, &cursor, &v); n++)
        if (n < max) fill_view(&v, &out[n]);
    sl_client_leave(s);
    return (int64_t)n;
}
