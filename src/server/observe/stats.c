#include "server/observe/stats.h"

#include <time.h>

static unsigned bucket_of(uint64_t ms)
{
    if (ms == 0) return 0;
    unsigned up = ms == 1 ? 1 : 65u - (unsigned)__builtin_clzll(ms - 1);
    return up < SL_BUCKETS - 1 ? up : SL_BUCKETS - 1;
}

void sl_histogram_add(struct sl_histogram *h, sl_ms ms)
{
    uint64_t n = ms > 0 ? (uint64_t)ms : 0;
    h->buckets[bucket_of(n)]++;
    h->count++;
    h->sum += n;
    if (n > h->max) h->max = n;
}

uint64_t sl_histogram_at(const struct sl_histogram *h, double share)
{
    uint64_t seen = 0;
    for (unsigned i = 0; i < SL_BUCKETS - 1; i++) {
        seen += h->buckets[i];
        if (seen > 0 && (double)seen >= share * (double)h->count) {
            uint64_t end = i == 0 ? 0 : 1ull << (i - 1);
            return end < h->max ? end : h->max;
        }
    }
    return h->max;
}

void sl_stats_turn(struct sl_stats *s)
{
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    uint64_t ns = (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
    uint64_t us = s->cpu_ns == 0 ? 0 : (ns - s->cpu_ns) / 1000;
    s->cpu_ns = ns;
    s->turns++;
    s->turn_us_total += us;
    if (us > s->turn_us_max) s->turn_us_max = us;
    if (us > s->turn_us_recent[0]) s->turn_us_recent[0] = us;
}
