/* table_restart.c - whether the table may grant: the fence limit, the recovery after a
 * crash, and the authority of a keeper. */
#include <assert.h>

#include "locks/table_internal.h"

/* Make sl_table_next() recheck all rosters with waiters or watchers, a few in each
 * call. */
static void recheck_all(struct sl_table *t)
{
    t->recheck_left = t->awaited_count;
}

void sl_table_set_fences(struct sl_table *t, sl_fence floor, sl_fence limit)
{
    assert(floor <= SL_FENCE_MAX);
    if (floor > t->fence) t->fence = floor;
    t->fence_limit = limit < SL_FENCE_MAX ? limit : SL_FENCE_MAX;
    if (t->fence_limit < t->fence) t->fence_limit = t->fence;
    if (t->short_of_fences) recheck_all(t);
    t->short_of_fences = false;
}

sl_fence sl_table_fences_left(const struct sl_table *t)
{
    return t->short_of_fences ? 0 : t->fence_limit - t->fence;
}

void sl_table_set_rival(struct sl_table *t, sl_ms until_ms)
{
    t->rival_until_ms = until_ms;
}

void sl_table_recover(struct sl_table *t, sl_ms until_ms)
{
    t->recovering_until_ms = until_ms;
    if (until_ms <= 0) {
        t->recovering_until_ms = 0;
        recheck_all(t);
    }
}

bool sl_table_has_authority(const struct sl_table *t, struct sl_now now)
{
    sl_ms late = t->limits.grain_ms > 0 ? t->limits.grain_ms - 1
                                        : 0; /* `now` lags by at most this much. */
    return t->authority_until_ms == SL_NEVER || now.ms < t->authority_until_ms - late;
}

void sl_table_set_authority(struct sl_table *t, sl_ms until_ms)
{
    bool later = until_ms > t->authority_until_ms;
    t->authority_until_ms = until_ms;
    if (!later || !t->lacks_authority) return;
    t->lacks_authority = false;
    recheck_all(t);
}

void sl_table_end_recovery(struct sl_table *t, struct sl_now now)
{
    if (t->recovering_until_ms != 0 && now.ms >= t->recovering_until_ms)
        sl_table_recover(t, 0);
}
