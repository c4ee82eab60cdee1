/* load.h - the client: one process, one thread, epoll.
 *
 * The same for every server. Each connection acquires `depth` locks with one write, waits
 * for all replies, releases the locks with one write, waits again, and repeats. Depth 1 is
 * one at a time. (Sluice returns the fences in the replies, so the releases cannot be in the
 * same write; the other servers get the same commands.) */
#ifndef BENCH_LOAD_H
#define BENCH_LOAD_H

#include "subject.h"

#define LOAD_DEPTH_MAX 32u
#define LOAD_KEY_BYTES 17
#define LOAD_VALUE_BYTES 22

struct load; /* Opaque. */

/* What a run did. */
struct load_result {
    uint64_t pairs;
    int64_t ns;
    double median_us,
        p99_us; /* From the first byte sent to the last reply of a pair, or
                               * of `depth` pairs that went together. */
};

/* Open this many connections. With `fresh` each lock has a key that was not used before, so
 * that nothing of it is in a cache. Returns NULL, or an error message. */
const char *load_open(struct load **out, const struct subject *s, uint32_t connections,
                      uint32_t depth, bool fresh);
void load_close(struct load *l); /* NULL is allowed. */

/* Request leases of this length; the default is 30 s. */
void load_lease(struct load *l, int64_t lease_ms);

/* Run for this time, and complete the pairs in progress. Returns NULL, or an error message;
 * a lock that was not granted or not released is an error too. */
const char *load_run(struct load *l, int64_t run_ns, struct load_result *out);

/* Acquire locks number `from` to `to` and keep them. Their leases expire at until_ns
 * (now_ns()), or lease_ms after the acquire. */
struct load_fill {
    uint64_t from, to;
    int64_t until_ns; /* 0: lease_ms. */
    int64_t lease_ms;
};
const char *load_fill(struct subject *s, const struct load_fill *f);

/* The key of such a lock. */
void load_key(char out[LOAD_KEY_BYTES + 1], uint64_t number);

#endif /* BENCH_LOAD_H */
