#include "base/durable.h"

#define SECOND ((sl_ms)1000)
#define MINUTE (60 * SECOND)
#define HOUR (60 * MINUTE)
#define DAY (24 * HOUR)

static const sl_ms lengths[] = {
    2 * SECOND, 5 * SECOND,  10 * SECOND, 30 * SECOND, MINUTE,    2 * MINUTE,
    5 * MINUTE, 10 * MINUTE, 30 * MINUTE, HOUR,        2 * HOUR,  5 * HOUR,
    10 * HOUR,  DAY,         7 * DAY,     30 * DAY,    365 * DAY, SL_NEVER};
_Static_assert(sizeof lengths / sizeof *lengths == SL_LENGTHS, "one end for each");

sl_fence sl_fence_limit_above(sl_fence fence, uint64_t wall_us)
{
    if (wall_us <= SL_WALL_US_MAX && wall_us > fence) fence = wall_us;
    return fence < SL_FENCE_MAX - SL_FENCE_BLOCK ? fence + SL_FENCE_BLOCK
                                                 : SL_FENCE_MAX;
}

size_t sl_length_of(sl_ms lease_ms)
{
    size_t i = 0;
    while (lengths[i] < lease_ms) i++;
    return i;
}

sl_ms sl_length_ms(size_t i)
{
    return lengths[i];
}

sl_ms sl_longest_round_up(sl_ms lease_ms, sl_ms most)
{
    if (lease_ms == 0) return 0;
    sl_ms length = lengths[sl_length_of(lease_ms)];
    return length < most ? length : most;
}

void sl_longest_given(struct sl_longest *x, sl_ms lease_ms, sl_ms end_ms)
{
    sl_ms *end = &x->ends_ms[sl_length_of(lease_ms)];
    if (end_ms > *end) *end = end_ms;
}

sl_ms sl_longest_now(const struct sl_longest *x, sl_ms now_ms)
{
    sl_ms most = 0;
    for (size_t i = 0; i < SL_LENGTHS; i++) {
        if (x->ends_ms[i] == 0) continue;
        sl_ms left = sl_ms_after(x->ends_ms[i], SL_FOLLOW_MS) - now_ms;
        if (left > lengths[i]) left = lengths[i];
        if (left > most) most = left;
    }
    return most;
}
