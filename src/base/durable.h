/* durable.h - the limits of fences and leases that a later server, keeper or node has to know.
 *
 * A server must not rely on limits that its successor would not know. So it stores two limits
 * durably before it uses them:
 *
 *   - No fence is granted above a limit. The limit is a block of fences above the last one and
 *     above the clock; the next block is written when half of it is used, while grants continue.
 *   - No lease is longer than a limit. The limit is one of a few lengths (2, 5, 10, 30 seconds,
 *     ...), so that it rarely rises; it falls again when the leases of a length have expired.
 *
 * While a write is under way, or after one has failed, either value may be on disk: so the lower
 * one counts. A single server writes them to its file, a keeper to the storage of its cluster, a
 * node to its own file. */
#ifndef SL_BASE_DURABLE_H
#define SL_BASE_DURABLE_H

#include "base/types.h"

/* For so long after the last grant the limits follow the clock and stay as they are: a client that
 * takes a lock every minute never waits for the disk. */
#define SL_FOLLOW_MS 60000

/* --- Fences ------------------------------------------------------------------ */

/* Fences are microseconds: twenty seconds of them, so there is a write every ten seconds. */
#define SL_FENCE_BLOCK 20000000u

/* The next limit: a block above this fence and above the clock. */
sl_fence sl_fence_limit_above(sl_fence fence, uint64_t wall_us);

/* Whether less than half a block is left above this fence. */
static inline bool sl_fence_limit_is_low(sl_fence limit, sl_fence fence)
{
    return limit < SL_FENCE_MAX && fence + SL_FENCE_BLOCK / 2 > limit;
}

/* Whether the limit has to follow the clock, because there was a grant not long ago: the next one
 * must not find the clock beyond the limit. */
static inline bool sl_fence_limit_follows(struct sl_now now, sl_ms granted_ms)
{
    return now.ms - granted_ms <= SL_FOLLOW_MS && now.wall_us <= SL_WALL_US_MAX;
}

/* --- Leases ------------------------------------------------------------------ */

#define SL_LENGTHS 18

struct sl_longest {
    sl_ms ends_ms[SL_LENGTHS]; /* Until when leases of each length may run; 0: none. */
};

/* Which of the lengths this one is rounded up to, and how long that is. */
size_t sl_length_of(sl_ms lease_ms);
sl_ms sl_length_ms(size_t i);

/* The length to which this one is rounded up, at most `most`; 0 stays 0. */
sl_ms sl_longest_round_up(sl_ms lease_ms, sl_ms most);

/* A lease of this length was granted, and expires by then. */
void sl_longest_given(struct sl_longest *x, sl_ms lease_ms, sl_ms end_ms);

/* The length of the longest lease that may run, or is expected; not rounded. */
sl_ms sl_longest_now(const struct sl_longest *x, sl_ms now_ms);

/* Either of the two may be on disk: which leases are certain to be covered. */
static inline sl_ms sl_longest_sure(sl_ms kept_ms, sl_ms written_ms)
{
    return kept_ms < written_ms ? kept_ms : written_ms;
}

#endif /* SL_BASE_DURABLE_H */
