/* stats.h - counters and histograms of the server, which INFO shows. */
#ifndef SL_SERVER_OBSERVE_STATS_H
#define SL_SERVER_OBSERVE_STATS_H

#include "base/types.h"
#include "client/answers.h"

/* Upper bounds of the buckets: 0, 1, 2, 4, ... 2^21 ms, and infinity. */
#define SL_BUCKETS 24

/* A histogram of durations. Bucket i counts the durations of at most 2^(i-1) ms that no lower
 * bucket counts. */
struct sl_histogram {
    uint64_t buckets[SL_BUCKETS];
    uint64_t count, sum;
    uint64_t max;
};

/* X-macro of all counters: the name in INFO and the field. */
#define SL_COUNTERS(X)                          \
    X(total_connections_received, connections)  \
    X(rejected_connections, rejected)           \
    X(total_commands_processed, commands)       \
    X(total_reads_processed, reads)             \
    X(total_errors_replied, errors)             \
    X(grants, grants)                           \
    X(grants_after_wait, grants_after_wait)     \
    X(refusals, refusals)                       \
    X(waits, waits)                             \
    X(waits_timed_out, waits_timed_out)         \
    X(waits_abandoned, waits_abandoned)         \
    X(extends, extends)                         \
    X(releases, releases)                       \
    X(expiries, expiries)                       \
    X(disconnect_releases, disconnect_releases) \
    X(breaks, breaks)                           \
    X(asks, asks)                               \
    X(withdrawals, withdrawals)                 \
    X(steals, steals)                           \
    X(overlaps, overlaps)                       \
    X(events_published, events)                 \
    X(output_limit_closes, output_closes)       \
    X(memory_closes, memory_closes)             \
    X(memory_rejections, memory_rejections)     \
    X(idle_closes, idle_closes)                 \
    X(auth_failures, auth_failures)             \
    X(auth_delays, auth_delays)

struct sl_stats {
#define X(name, field) uint64_t field;
    SL_COUNTERS(X)
#undef X
    struct sl_histogram wait_ms, hold_ms;
    struct sl_answers answers;
    uint64_t turns, turn_us_total, turn_us_max;
    /* The longest loop iteration of the current ten seconds, and of the ten before. */
    uint64_t turn_us_recent[2];
    uint64_t cpu_ns;        /* CPU time of the thread when it was last read. */
    sl_ms turns_counted_ms; /* When the current ten seconds began. */
    sl_ms started_ms;
};

void sl_histogram_add(struct sl_histogram *h, sl_ms ms);

/* Return the upper bound of the bucket that contains this quantile (0 to 1) of the durations. */
uint64_t sl_histogram_at(const struct sl_histogram *h, double share);

/* Record a loop iteration that lasted from begin_ns (0: it did nothing) to end_ns. If it seems long,
 * count only the CPU time since the last reading: the process may have been suspended. */
void sl_stats_turn(struct sl_stats *s, uint64_t begin_ns, uint64_t end_ns);

#endif /* SL_SERVER_OBSERVE_STATS_H */
