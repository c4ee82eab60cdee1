/* clock.h - a clock of somebody's own, which runs a little fast or slow, by a rate that may
 * change. Real time is that of the world, in microseconds. */
#ifndef SL_SIM_CLOCK_H
#define SL_SIM_CLOCK_H

#include <stdint.h>

#define SL_DRIFT_PPM 1000 /* The most that the protocol allows for: rho = 0.001. */

struct clock {
    int64_t since_us; /* Real time at which this rate began, */
    int64_t began_us; /* and what the clock showed. */
    int64_t ppm;      /* Faster than real time by so many millionths. */
};

static inline int64_t sl_clock_us(const struct clock *c, int64_t real_us)
{
    int64_t d = real_us - c->since_us;
    return c->began_us + d + d * c->ppm / 1000000;
}

/* When the clock will show that much, not too early. */
static inline int64_t sl_clock_when(const struct clock *c, int64_t shows_us)
{
    int64_t d = shows_us - c->began_us;
    return c->since_us + d - d * c->ppm / (1000000 + c->ppm) + 2;
}

static inline void sl_clock_rate(struct clock *c, int64_t real_us, int64_t ppm)
{
    int64_t shows = sl_clock_us(c, real_us);
    *c = (struct clock){.since_us = real_us, .began_us = shows, .ppm = ppm};
}

#endif /* SL_SIM_CLOCK_H */
