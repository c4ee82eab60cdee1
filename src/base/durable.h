/* durable.h - the limits of fences and leases that a server stores durably for its
 * successor.
 *
 * A server must not rely on a limit that its successor would not know. So a server
 * stores two limits durably before it uses them:
 *
 *   - The highest fence that it may grant. The limit is one block of fences above the last
 *     fence and above the clock. The server stores the next limit when half of the block is
 *     used, and continues to grant meanwhile.
 *   - The longest lease that it may grant. The limit is one of a few lengths (2, 5, 10, 30
 *     seconds, ...), so that it rarely rises. It falls again when the leases of that length
 *     have expired.
 *
 * While a write is in progress, or after a write has failed, either the old or the
 * new limit may be on disk, so the lower of the two applies. A single server stores
 * the limits in its file, a keeper in the storage of its cluster, and a node of a
 * majority cluster in its own file. */
#ifndef SL_BASE_DURABLE_H
#define SL_BASE_DURABLE_H

#include "base/types.h"

/* For this long after the last grant, the fence limit follows the clock and the
 * lease limit does not fall. So a client that acquires a lock every minute never
 * waits for the disk. */
#define SL_FOLLOW_MS 60000

/* --- Fences ------------------------------------------------------------------ */

/* A fence is a number of microseconds, so a block covers 20 seconds. The server stores a
 * new limit when half of a block is used, that is, every ten seconds. */
#define SL_FENCE_BLOCK 20000000u

/* Returns the next limit: one block above this fence and above the clock. */
sl_fence sl_fence_limit_above(sl_fence fence, uint64_t wall_us);

/* Whether less than half a block of fences is left below the limit. */
static inline bool sl_fence_limit_is_low(sl_fence limit, sl_fence fence)
{
    return limit < SL_FENCE_MAX && fence + SL_FENCE_BLOCK / 2 > limit;
}

/* Whether the limit must follow the clock because a lock was granted recently.
 * Otherwise the clock could pass the limit before the next grant. */
static inline bool sl_fence_limit_follows(struct sl_now now, sl_ms granted_ms)
{
    return now.ms - granted_ms <= SL_FOLLOW_MS && now.wall_us <= SL_WALL_US_MAX;
}

/* --- Leases ------------------------------------------------------------------ */

#define SL_LENGTHS 18

struct sl_longest {
    sl_ms ends_ms[SL_LENGTHS]; /* When the last lease of each length expires, or 0. */
};

/* sl_length_of() returns the index of the shortest length that is at least lease_ms;
 * sl_length_ms() returns the length at that index. */
size_t sl_length_of(sl_ms lease_ms);
sl_ms sl_length_ms(size_t i);

/* Round up to one of the lengths, but to no more than `most`. Returns 0 for 0. */
sl_ms sl_longest_round_up(sl_ms lease_ms, sl_ms most);

/* Record that a lease of this length was granted, and expires at end_ms. */
void sl_longest_given(struct sl_longest *x, sl_ms lease_ms, sl_ms end_ms);

/* Returns the length of the longest lease that is valid or is likely to be granted
 * soon, not rounded. */
sl_ms sl_longest_now(const struct sl_longest *x, sl_ms now_ms);

/* Returns the lease limit to rely on while either of these two limits may be on
 * disk. */
static inline sl_ms sl_longest_sure(sl_ms kept_ms, sl_ms written_ms)
{
    return kept_ms < written_ms ? kept_ms : written_ms;
}

#endif /* SL_BASE_DURABLE_H */
