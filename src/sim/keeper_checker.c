#include "sim/keeper_checker.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void ksim_checker_clear(struct ksim_checker *k)
{
    struct ksim_grant *grants = k->grants;
    uint32_t size = k->size;
    memset(k, 0, sizeof *k);
    k->grants = grants;
    k->size = size;
}

void ksim_checker_free(struct ksim_checker *k)
{
    free(k->grants);
    memset(k, 0, sizeof *k);
}

void ksim_checker_wrong(struct ksim_checker *k, const char *format, ...)
{
    va_list args;
    if (k->wrong[0] != '\0') return;
    va_start(args, format);
    vsnprintf(k->wrong, sizeof k->wrong, format, args);
    va_end(args);
}

void ksim_checker_stuck(struct ksim_checker *k, const char *format, ...)
{
    va_list args;
    if (k->wrong[0] != '\0') return;
    k->is_stuck = true;
    va_start(args, format);
    vsnprintf(k->wrong, sizeof k->wrong, format, args);
    va_end(args);
}

struct ksim_grant *ksim_checker_find(const struct ksim_checker *k, sl_fence fence)
{
    for (uint32_t i = k->count; i > 0; i--)
        if (k->grants[i - 1].fence == fence) return &k->grants[i - 1];
    return NULL;
}

sl_ms ksim_checker_left(const struct ksim_grant *g, int64_t now_us)
{
    if (!g->leased) return SL_NEVER;
    return (g->until_us - sim_clock_us(g->clock, now_us)) / 1000;
}

bool ksim_checker_holds(const struct ksim_grant *g, int64_t now_us)
{
    return g->held && (!g->leased || sim_clock_us(g->clock, now_us) < g->until_us);
}

/* ---- capacity ---- */

/* Whether the two grants may be held together, apart from their units. */
static bool may_coexist(const struct ksim_grant *a, const struct ksim_grant *b)
{
    const struct ksim_grant *later = a->fence > b->fence ? a : b;
    return later->overlapping || (a->shared && b->shared);
}

/* Check the capacity of a key, when a client begins to hold `g` or holds it for longer. */
static void check_capacity(struct ksim_checker *k, const struct ksim_grant *g,
                           int64_t now_us)
{
    uint32_t capacity = ksim_kind_of(g->key) == KSIM_COUNTS ? KSIM_CAPACITY : 1;
    uint32_t leased = g->units, all = g->units;
    const struct ksim_grant *other = NULL, *loose = NULL;
    if (!ksim_checker_holds(g, now_us)) return; /* The answer was late. */
    if ((!g->leased && g->closing) || g->revoked) return;
    for (uint32_t i = 0; i < k->count; i++) {
        const struct ksim_grant *x = &k->grants[i];
        if (!x->held || x->key != g->key || x->fence == g->fence ||
            !ksim_checker_holds(x, now_us) || may_coexist(g, x))
            continue;
        if ((!x->leased && x->closing) || x->revoked) continue;
        all += x->units;
        loose = x;
        if (!x->leased) continue;
        leased += x->units;
        other = x;
    }
    if (all <= capacity) return;
    if (!g->leased || leased <= capacity || k->without_clocks) {
        k->overlaps++;
        if (!k->checks_loose) return;
        other = loose;
        leased = all;
    }
    ksim_checker_wrong(k,
                       "k%u: c%u (fence %" PRIu64 ") and c%u (fence %" PRIu64
                       ") hold %u of %u units together",
                       g->key, g->client + 1, g->fence, other->client + 1, other->fence,
                       leased, capacity);
}

/* ---- answers ---- */

/* An acquisition has one grant. */
static void check_id(struct ksim_checker *k, const struct ksim_grant *g, int64_t now_us)
{
    if (g->id == 0 || !g->leased || k->without_clocks) return;
    for (uint32_t i = 0; i < k->count; i++) {
        const struct ksim_grant *x = &k->grants[i];
        if (x->id == g->id && x->fence != g->fence && x->leased && !x->touched &&
            ksim_checker_holds(x, now_us))
            ksim_checker_wrong(k,
                               "k%u: c%u holds the fences %" PRIu64 " and %" PRIu64
                               " for one acquisition",
                               g->key, g->client + 1, x->fence, g->fence);
    }
}

static void note_highest(struct ksim_checker *k, const struct ksim_grant *g)
{
    if (g->fence > k->highest[g->key]) k->highest[g->key] = g->fence;
    if (g->overlapping) {
        if (g->fence > k->overlapping[g->key]) k->overlapping[g->key] = g->fence;
    } else if (g->fence > k->highest_alone[g->key]) k->highest_alone[g->key] = g->fence;
}

/* Whether the grant was made by a keeper of an earlier term than the fence `floor`, while its clock had stopped. By
 * that clock, it still had authority. A grant without a lease needs no write to etcd. */
static bool is_late(const struct ksim_checker *k, const struct ksim_grant *g,
                    sl_fence floor)
{
    const struct ksim_grant *x = ksim_checker_find(k, floor);
    return k->without_clocks && !g->leased && x != NULL && g->term < x->term;
}

void ksim_checker_granted(struct ksim_checker *k, const struct ksim_grant *g,
                          sl_fence floor, int64_t now_us)
{
    if (ksim_checker_find(k, g->fence) != NULL)
        ksim_checker_wrong(k, "k%u: the fence %" PRIu64 " is granted twice", g->key,
                           g->fence);
    if (g->fence <= floor && !is_late(k, g, floor))
        ksim_checker_wrong(k,
                           "k%u: c%u is granted fence %" PRIu64
                           " although clients had received fence %" PRIu64,
                           g->key, g->client + 1, g->fence, floor);
    if (k->count == k->size) {
        k->size = k->size == 0 ? 256 : 2 * k->size;
        k->grants = realloc(k->grants, k->size * sizeof *k->grants);
        if (k->grants == NULL) abort();
    }
    k->grants[k->count++] = *g;
    k->grants[k->count - 1].acked_us = now_us;
    note_highest(k, g);
    check_capacity(k, g, now_us);
    check_id(k, g, now_us);
}

/* The holder relies on the expiry in a reply. */
static void hold_longer(struct ksim_checker *k, struct ksim_grant *x,
                        const struct ksim_grant *g, int64_t now_us)
{
    if (x->node != g->node || g->elsewhere) x->elsewhere = true;
    if (g->until_us > x->until_us) {
        x->until_us = g->until_us;
        x->lease_ms = g->lease_ms;
        x->term = g->term;
        x->node = g->node;
        x->life = g->life;
        x->acked_us = now_us;
        x->at_keeper = g->at_keeper;
    }
    check_capacity(k, x, now_us);
}

void ksim_checker_repeated(struct ksim_checker *k, const struct ksim_grant *g,
                           int64_t now_us)
{
    struct ksim_grant *x = ksim_checker_find(k, g->fence);
    if (x == NULL || !x->held) return;
    if (!x->leased) {
        x->node = g->node;
        x->life = g->life;
        x->closing = g->closing;
    }
    hold_longer(k, x, g, now_us);
}

void ksim_checker_extended(struct ksim_checker *k, const struct ksim_grant *g,
                           bool believes, sl_fence floor, int64_t now_us)
{
    struct ksim_grant *x = ksim_checker_find(k, g->fence);
    if (x == NULL) {
        ksim_checker_wrong(k, "an unknown grant is extended: fence %" PRIu64, g->fence);
        return;
    }
    if (floor > x->fence && ksim_kind_of(x->key) == KSIM_MUTEX && !x->revoked &&
        !k->without_clocks)
        ksim_checker_wrong(k,
                           "k%u: c%u extends fence %" PRIu64
                           " although a client had received fence %" PRIu64,
                           x->key, x->client + 1, x->fence, floor);
    if (!believes || !x->held) return;
    hold_longer(k, x, g, now_us);
}

void ksim_checker_lost(struct ksim_checker *k, sl_fence fence, uint64_t term,
                       int64_t now_us)
{
    const struct ksim_grant *x = ksim_checker_find(k, fence);
    if (x == NULL || x->touched || !ksim_checker_holds(x, now_us) || x->term != term ||
        k->overlapping[x->key] > fence || k->without_clocks)
        return;
    ksim_checker_wrong(k,
                       "k%u: the keeper of term %" PRIu64
                       " says that c%u does not hold fence %" PRIu64
                       ", which it granted or extended",
                       x->key, term, x->client + 1, fence);
}

void ksim_checker_closing(struct ksim_checker *k, sl_fence fence)
{
    struct ksim_grant *x = ksim_checker_find(k, fence);
    if (x != NULL) x->closing = true;
}

void ksim_checker_released(struct ksim_checker *k, sl_fence fence, uint32_t node,
                           uint64_t life)
{
    struct ksim_grant *x = ksim_checker_find(k, fence);
    if (x == NULL || x->ended) return;
    x->ended = true;
    x->ended_node = node;
    x->ended_life = life;
}

void ksim_checker_doubt(struct ksim_checker *k, sl_fence fence, bool touched)
{
    struct ksim_grant *x = ksim_checker_find(k, fence);
    if (x == NULL) return;
    x->held = false;
    if (touched) x->touched = true;
}
