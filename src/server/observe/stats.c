#include "server/observe/stats.h"

#include <time.h>

#define LONG_TURN_NS 1000000u
#define TURNS_A_READING 16u

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

static uint64_t cpu_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

void sl_stats_turn(struct sl_stats *s, uint64_t begin_ns, uint64_t end_ns)
{
    /* The start of the server is not a loop iteration. */
    uint64_t ns = begin_ns == 0 || s->turns == 0 ? 0 : end_ns - begin_ns;
    s->turns++;
    /* Reading the CPU clock is a system call. A short loop iteration need not know it. */
    if (ns > LONG_TURN_NS || s->turns % TURNS_A_READING == 0) {
        uint64_t cpu = cpu_ns(), used = cpu - s->cpu_ns;
        s->cpu_ns = cpu;
        if (ns > used) ns = used;
    }
    uint64_t us = ns / 1000;
    s->turn_us_total += us;
    if (us > s->turn_us_max) s->turn_us_max = us;
    if (us > s->turn_us_recent[0]) s->turn_us_recent[0] = us;
}
