/* relay.h - a proxy that simulates a distance between nodes: it delays all data by some ms.
 *
 * It is a separate process that listens on ports of loopback and forwards each connection to
 * another port, with a delay in both directions, in order and without a limit. A port may also
 * lead to an echo in the proxy itself: that is a round trip by the same path, for comparison. */
#ifndef BENCH_RELAY_H
#define BENCH_RELAY_H

#include <stdint.h>
#include <sys/types.h>

#define RELAY_WAYS_MAX 8u

struct relay {
    pid_t pid; /* 0: not running. */
    uint32_t ways;
    int from[RELAY_WAYS_MAX]; /* The ports of the proxy; set by relay_start(). */
    int to[RELAY_WAYS_MAX];   /* 0: to the echo. */
};

/* Start the proxy; the caller sets `ways` and `to`. Returns NULL, or an error
 * message. */
const char *relay_start(struct relay *r, int64_t delay_ns);
void relay_stop(struct relay *r);

/* Measure the time of a message of this many bytes and its echo on that way, in us:
 * the median of `times`. Returns NULL, or an error message. */
const char *relay_round_trip(const struct relay *r, uint32_t way, uint32_t bytes,
                             uint32_t times, double *median_us);

#endif /* BENCH_RELAY_H */
