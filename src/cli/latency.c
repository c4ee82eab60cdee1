#include "cli/latency.h"

static unsigned bucket_of(uint64_t us)
{
    if (us < CLI_LATENCY_STEPS) return (unsigned)us;
    unsigned power = 63u - (unsigned)__builtin_clzll(us);
    if (power > CLI_LATENCY_BITS) return CLI_LATENCY_BUCKETS - 1;
    unsigned shift = power - CLI_LATENCY_STEP_BITS;
    return shift * CLI_LATENCY_STEPS + (unsigned)(us >> shift);
}

/* Return the longest time that belongs to a bucket. */
static uint64_t longest_of(unsigned bucket)
{
    if (bucket < CLI_LATENCY_STEPS) return bucket;
    unsigned shift = bucket / CLI_LATENCY_STEPS - 1;
    uint64_t step = bucket % CLI_LATENCY_STEPS + CLI_LATENCY_STEPS;
    return ((step + 1) << shift) - 1;
}

void cli_latency_add(struct cli_latency *l, int64_t us)
{
    uint64_t n = us > 0 ? (uint64_t)us : 0;
    l->counts[bucket_of(n)]++;
    l->count++;
    if (n > l->max_us) l->max_us = n;
}

void cli_latency_merge(struct cli_latency *l, const struct cli_latency *other)
{
    for (unsigned i = 0; i < CLI_LATENCY_BUCKETS; i++) l->counts[i] += other->counts[i];
    l->count += other->count;
    if (other->max_us > l->max_us) l->max_us = other->max_us;
}

uint64_t cli_latency_at(const struct cli_latency *l, unsigned per_mille)
{
    uint64_t seen = 0, wanted = (l->count * per_mille + 999) / 1000;
    for (unsigned i = 0; i < CLI_LATENCY_BUCKETS; i++) {
        seen += l->counts[i];
        if (seen == 0 || seen < wanted) continue;
        uint64_t longest = longest_of(i);
        return longest < l->max_us ? longest : l->max_us;
    }
    return l->max_us;
}
