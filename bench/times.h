/* times.h - many times of one thing, in classes less than 1 % wide: its quantiles. */
#ifndef BENCH_TIMES_H
#define BENCH_TIMES_H

#include <stdint.h>

/* An exponent, and this many bits behind it. */
#define TIMES_BITS 7u
#define TIMES_CLASSES ((64u - TIMES_BITS) << TIMES_BITS)

struct times {
    uint32_t classes[TIMES_CLASSES];
};

void times_clear(struct times *t);
void times_add(struct times *t, int64_t ns);
void times_join(struct times *t, const struct times *more);

/* What this share of all is not above, in us; 0 if there are none. */
double times_us(const struct times *t, double share);

#endif /* BENCH_TIMES_H */
