/* times.h - a histogram of durations, with buckets less than 1 % wide, and its
 * quantiles. */
#ifndef BENCH_TIMES_H
#define BENCH_TIMES_H

#include <stdint.h>

/* A bucket is an exponent and this many bits of the mantissa. */
#define TIMES_BITS 7u
#define TIMES_CLASSES ((64u - TIMES_BITS) << TIMES_BITS)

struct times {
    uint32_t classes[TIMES_CLASSES];
};

void times_clear(struct times *t);
void times_add(struct times *t, int64_t ns);
void times_join(struct times *t, const struct times *more);

/* The quantile of this share, in us; 0 if there are no values. */
double times_us(const struct times *t, double share);

#endif /* BENCH_TIMES_H */
