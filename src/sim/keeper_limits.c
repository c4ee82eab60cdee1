/* keeper_limits.c - the limits of a keeper for fences and leases, which must be durable before the
 * keeper uses them. Follows src/server/arbiter/state.c. */
#include "sim/keeper.h"

/* Return the part of a lease for which a limit is needed. The journal has the rest. */
static sl_ms unrecorded_ms(const struct ksim_node *n, sl_ms lease_ms)
{
    sl_ms most = n->f.settings.volatile_ms;
    return lease_ms > most ? most : lease_ms;
}

static sl_ms longest(const struct ksim_node *n, sl_ms now_ms)
{
    const struct ksim_limits *x = &n->limits;
    sl_ms most = x->wanted_ms, given = sl_longest_now(&x->given, now_ms);
    if (given > most) most = given;
    if (x->inherited_ms > most) most = x->inherited_ms;
    for (size_t i = 0; i < SL_LENGTHS; i++)
        if (x->waiting[i] > 0 && sl_length_ms(i) > most) most = sl_length_ms(i);
    return sl_longest_round_up(most, SL_NEVER);
}

static void start_writing(struct ksim_world *w, uint32_t i)
{
    struct ksim_node *n = &w->nodes[i];
    struct ksim_limits *x = &n->limits;
    struct sl_table_stats stats;
    struct sl_now now = ksim_node_now(w, i);
    if (!x->current || x->writing) return;
    sl_table_stats(n->table, &stats);
    x->next_fence = x->fence;
    sl_fence limit = sl_fence_limit_above(stats.fence_last, now.wall_us);
    if (limit > x->next_fence) x->next_fence = limit;
    x->next_longest_ms = longest(n, now.ms);
    x->wanted_ms = 0;
    x->writing = true;
    KSIM_TRACE(w, "n%u writes its limits: fence %llu, leases up to %lld ms", i + 1,
               (unsigned long long)x->next_fence, (long long)x->next_longest_ms);
    if (!sl_failover_write_limits(&n->f, now.ms, x->next_fence, x->next_longest_ms))
        ksim_limits_written(w, i, false);
}

void ksim_limits_begin(struct ksim_world *w, uint32_t i, sl_fence fence,
                       sl_ms longest_ms)
{
    struct ksim_limits *x = &w->nodes[i].limits;
    *x = (struct ksim_limits){.current = true,
                              .fence = fence,
                              .longest_ms = longest_ms,
                              .inherited_ms = longest_ms};
    sl_table_set_fences(w->nodes[i].table, fence, fence);
    start_writing(w, i);
}

void ksim_limits_end(struct ksim_world *w, uint32_t i)
{
    struct ksim_limits *x = &w->nodes[i].limits;
    x->current = x->writing = x->failed = false;
    x->all_position = 0;
    ksim_serve_resume_deferred(w, i);
}

void ksim_limits_written(struct ksim_world *w, uint32_t i, bool ok)
{
    struct ksim_limits *x = &w->nodes[i].limits;
    if (!x->writing) return;
    KSIM_TRACE(w, "n%u %s its limits", i + 1, ok ? "has written" : "could not write");
    x->writing = false;
    x->failed = !ok;
    if (ok) {
        x->fence = x->next_fence;
        x->longest_ms = x->next_longest_ms;
        sl_table_set_fences(w->nodes[i].table, 0, x->fence);
    } else {
        sl_ms was = x->longest_ms, would = x->next_longest_ms;
        x->longest_ms = sl_longest_sure(was, would);
        if (would > was && would > x->wanted_ms) x->wanted_ms = would;
    }
    ksim_serve_resume_deferred(w, i);
}

void ksim_limits_second(struct ksim_world *w, uint32_t i)
{
    struct ksim_node *n = &w->nodes[i];
    struct ksim_limits *x = &n->limits;
    struct sl_now now = ksim_node_now(w, i);
    struct sl_table_stats stats;
    sl_table_stats(n->table, &stats);
    if (stats.recovering_until_ms <= now.ms) x->inherited_ms = 0;
    if (!x->current || x->writing) return;
    bool low = sl_fence_limit_is_low(stats.fence_limit, now.wall_us);
    if (x->failed || longest(n, now.ms) < x->longest_ms || low) start_writing(w, i);
}

void ksim_limits_ahead(struct ksim_world *w, uint32_t i)
{
    const struct ksim_limits *x = &w->nodes[i].limits;
    if (x->current && !x->writing && !x->failed &&
        sl_table_fences_left(w->nodes[i].table) < SL_FENCE_BLOCK / 2)
        start_writing(w, i);
}

bool ksim_limits_know(const struct ksim_node *n, sl_ms lease_ms)
{
    const struct ksim_limits *x = &n->limits;
    if (!x->current) return false;
    sl_ms most = x->longest_ms;
    if (x->writing) most = sl_longest_sure(most, x->next_longest_ms);
    return unrecorded_ms(n, lease_ms) <= most;
}

void ksim_limits_want(struct ksim_world *w, uint32_t i, sl_ms lease_ms)
{
    struct ksim_limits *x = &w->nodes[i].limits;
    lease_ms = unrecorded_ms(&w->nodes[i], lease_ms);
    if (lease_ms > x->wanted_ms) x->wanted_ms = lease_ms;
    start_writing(w, i);
}

void ksim_limits_given(struct ksim_node *n, sl_ms now_ms, sl_ms lease_ms)
{
    lease_ms = unrecorded_ms(n, lease_ms);
    sl_longest_given(&n->limits.given, lease_ms, now_ms + lease_ms + 4);
}

void ksim_limits_count(struct ksim_node *n, struct ksim_request *q, sl_ms lease_ms)
{
    size_t step = sl_length_of(unrecorded_ms(n, lease_ms));
    n->limits.waiting[step]++;
    q->length = (uint32_t)step + 1;
}

void ksim_limits_uncount(struct ksim_node *n, struct ksim_request *q)
{
    if (q->length == 0) return;
    if (n->limits.waiting[q->length - 1] > 0) n->limits.waiting[q->length - 1]--;
    q->length = 0;
}
