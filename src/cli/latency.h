/* latency.h - a histogram of times, for percentiles with an error of at most 1/32. */
#ifndef SL_CLI_LATENCY_H
#define SL_CLI_LATENCY_H

#include <stdint.h>

#define CLI_LATENCY_STEP_BITS 5 /* Each power of two has this many bits of buckets. */
#define CLI_LATENCY_STEPS (1u << CLI_LATENCY_STEP_BITS)
#define CLI_LATENCY_BITS 40 /* Longer times count as 2^40 microseconds, 12 days. */
#define CLI_LATENCY_BUCKETS \
    ((CLI_LATENCY_BITS - CLI_LATENCY_STEP_BITS + 2) * CLI_LATENCY_STEPS)

/* Zero-initialized, it is empty. */
struct cli_latency {
    uint64_t counts[CLI_LATENCY_BUCKETS];
    uint64_t count;
    uint64_t max_us;
};

void cli_latency_add(struct cli_latency *l, int64_t us);

/* Add all times of another histogram. */
void cli_latency_merge(struct cli_latency *l, const struct cli_latency *other);

/* Return the time in microseconds that this many of 1000 times do not exceed; 0 if there are
 * none. */
uint64_t cli_latency_at(const struct cli_latency *l, unsigned per_mille);

#endif /* SL_CLI_LATENCY_H */
