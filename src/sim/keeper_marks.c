/* keeper_marks.c - checks how long overlap marks last. When BREAK ... NOW has ended a lease during the wait of
 * a new keeper, nodes may still report a later expiry. The mark of the key lasts until then, because the
 * former holder may rely on its lease. */
#include <inttypes.h>
#include <string.h>

#include "sim/keeper.h"

/* The mark that is looked for. */
struct marks_search {
    struct sl_bytes key;
    sl_ms end_ms; /* When it ends; 0: there is none. */
};

static bool ignore_grant(void *arg, const struct sl_grant_change *c)
{
    (void)arg, (void)c;
    return false;
}

static bool see_mark(void *arg, struct sl_bytes key, sl_ms end_ms, sl_ms before_ms,
                     bool is_long)
{
    struct marks_search *s = arg;
    (void)before_ms;
    if (key.n == s->key.n && memcmp(key.at, s->key.at, key.n) == 0) s->end_ms = end_ms;
    return is_long;
}

static void ignore_drain(void *arg, struct sl_bytes glob, bool on)
{
    (void)arg, (void)glob, (void)on;
}

static sl_ms mark_end(struct ksim_world *w, uint32_t i, uint32_t key)
{
    struct marks_search s = {.key = ksim_key(key)};
    const struct sl_table_recorder all = {
        .arg = &s, .put = ignore_grant, .mark = see_mark, .drain = ignore_drain};
    struct sl_table_walk walk = {0};
    while (sl_table_walk(w->nodes[i].table, ksim_node_now(w, i), &walk, &all, 64) > 0)
        continue;
    sl_table_walk_end(&walk);
    return s.end_ms;
}

/* Whether this keeper must know the last expiry of the lease. */
static bool is_reported(const struct ksim_world *w, const struct ksim_grant *g,
                        uint32_t from)
{
    const struct ksim_node *n = &w->nodes[g->node];
    return from == g->node && n->up && n->life == g->life &&
           (w->faults & 1ull << KSIM_FAULT_MEMORY) == 0;
}

void ksim_marks_reported(struct ksim_world *w, uint32_t i, uint32_t from)
{
    const struct ksim_node *n = &w->nodes[i];
    struct sl_grant_view v;
    for (uint32_t k = 0; k < KSIM_BROKEN; k++) {
        const struct ksim_broken *b = &w->admin.broken[k];
        if (b->fence == 0 || b->ended_life != n->life ||
            b->ended_term != n->f.guests.term ||
            b->at_count != w->admin.granted[b->key])
            continue;
        const struct ksim_grant *g = ksim_checker_find(&w->checker, b->fence);
        if (g == NULL || !g->leased || !ksim_checker_holds(g, w->now_us) ||
            g->term == n->f.guests.term || !is_reported(w, g, from) ||
            sl_table_inspect_grant(n->table, ksim_node_now(w, i), ksim_key(b->key),
                                   b->fence, &v))
            continue;
        sl_ms left_ms = mark_end(w, i, b->key) - ksim_node_now(w, i).ms;
        sl_ms lasts_ms = ksim_checker_left(g, w->now_us);
        if (left_ms + g->lease_ms / 100 + 50 < lasts_ms)
            KSIM_WRONG(w,
                       "k%u: the mark at n%u ends in %" PRId64 " ms, but fence %" PRIu64
                       ", which was broken, lasts for another %" PRId64 " ms",
                       b->key, i + 1, left_ms, b->fence, lasts_ms);
    }
}
