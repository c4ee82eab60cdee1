/* node_clock.c - the time according to the clocks of all members, and the fences that
 * are plausible at that time. */
#include <assert.h>

#include "majority/node_internal.h"

/* Collect the wall clocks of this node and of the linked members. Returns their
 * number. */
static uint32_t list_clocks(const struct sl_node *n, struct sl_now now,
                            uint64_t out[SL_NODE_PEERS_MAX + 1])
{
    uint32_t count = 0;
    out[count++] = now.wall_us;
    for (size_t i = 0; i < SL_NODE_PEERS_MAX; i++) {
        const struct sl_node_peer *p = &n->peers[i];
        if (p->id == 0 || !p->linked || p->wall_ms == 0 ||
            sl_membership_find(&n->kept.force, p->id) < 0)
            continue;
        sl_ms ago = now.ms > p->wall_ms ? now.ms - p->wall_ms : 0;
        out[count++] = p->wall_us + (uint64_t)ago * 1000;
    }
    return count;
}

/* If the number of clocks is even, use the earlier of the two in the middle. */
struct sl_now sl_node_median_time(struct sl_node *n, struct sl_now now)
{
    uint64_t clocks[SL_NODE_PEERS_MAX + 1];
    uint32_t count = list_clocks(n, now, clocks);
    assert(now.ms >= n->now_ms && "the clock never goes back");
    for (uint32_t i = 1; i < count; i++)
        for (uint32_t k = i; k > 0 && clocks[k] < clocks[k - 1]; k--) {
            uint64_t other = clocks[k];
            clocks[k] = clocks[k - 1];
            clocks[k - 1] = other;
        }
    n->own_wall_us = now.wall_us;
    now.wall_us = clocks[(count - 1) / 2];
    n->now_ms = now.ms;
    return now;
}

bool sl_node_knows_time(const struct sl_node *n)
{
    uint64_t clocks[SL_NODE_PEERS_MAX + 1];
    struct sl_now any = {.ms = n->now_ms};
    return list_clocks(n, any, clocks) >= sl_membership_majority(&n->kept.force);
}

sl_fence sl_node_fence_max(const struct sl_node *n, struct sl_now now)
{
    sl_fence most = n->kept.fence_limit;
    if (now.wall_us <= SL_WALL_US_MAX && now.wall_us + SL_NODE_FENCE_DAY > most)
        most = now.wall_us + SL_NODE_FENCE_DAY;
    return most < SL_FENCE_MAX ? most : SL_FENCE_MAX;
}

/* If an acceptor accepted the fences of a clock that is days ahead, it would reject the
 * fences of all other nodes for days. */
bool sl_node_is_plausible(const struct sl_node *n, struct sl_now now, sl_fence fence)
{
    sl_fence most = n->kept.fence_limit;
    if (n->floor > most) most = n->floor;
    if (now.wall_us <= SL_WALL_US_MAX && now.wall_us > most) most = now.wall_us;
    return fence <= SL_FENCE_MAX && fence <= most + SL_NODE_FENCE_DAY;
}
