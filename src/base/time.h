/* time.h - times and durations. Pure code does not read the clock: every call
 * receives the time as an argument. */
#ifndef SL_BASE_TIME_H
#define SL_BASE_TIME_H

#include <stdint.h>

/* Milliseconds of a monotonic clock, or a duration in milliseconds. */
typedef int64_t sl_ms;
#define SL_NEVER INT64_MAX

/* Returns t + d, but at most SL_NEVER, and SL_NEVER if d is. t may be negative: the clock of a time
 * namespace may have an offset. */
static inline sl_ms sl_ms_after(sl_ms t, sl_ms d)
{
    return d == SL_NEVER || (t > 0 && d > SL_NEVER - t) ? SL_NEVER : t + d;
}

struct sl_now {
    sl_ms ms;         /* Monotonic clock. */
    uint64_t wall_us; /* Microseconds since 1970; may jump. Basis of fences. */
};

#endif /* SL_BASE_TIME_H */
