/* clock.h - a clock that runs a little fast or slow, at a rate that may change. "Real
 * time" means the time of the simulated world, in microseconds. */
#ifndef SL_SIM_CLOCK_H
#define SL_SIM_CLOCK_H

#include <stdint.h>

#define SIM_DRIFT_PPM 1000 /* The maximum that the protocol allows. */

struct sim_clock {
    int64_t since_us; /* The real time at which this rate began, */
    int64_t began_us; /* and what the clock showed then. */
    int64_t ppm;      /* Faster than real time by this many millionths. */
};

static inline int64_t sim_clock_us(const struct sim_clock *c, int64_t real_us)
{
    int64_t d = real_us - c->since_us;
    return c->began_us + d + d * c->ppm / 1000000;
}

/* Return the real time at which the clock will show this time, rounded up. */
static inline int64_t sim_clock_when(const struct sim_clock *c, int64_t shows_us)
{
    int64_t d = shows_us - c->began_us;
    return c->since_us + d - d * c->ppm / (1000000 + c->ppm) + 2;
}

static inline void sim_clock_rate(struct sim_clock *c, int64_t real_us, int64_t ppm)
{
    int64_t shows = sim_clock_us(c, real_us);
    *c = (struct sim_clock){.since_us = real_us, .began_us = shows, .ppm = ppm};
}

#endif /* SL_SIM_CLOCK_H */
