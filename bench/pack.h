/* pack.h - the clients of a cluster: one process, one thread, epoll; the same for Sluice and
 * for etcd.
 *
 * Each client has its own connection to one of the three servers, and repeatedly acquires and
 * releases one lock. It waits for the lock in its acquire. */
#ifndef BENCH_PACK_H
#define BENCH_PACK_H

#include "times.h"
#include "trial.h"
#include "trio.h"

struct pack; /* Opaque. */

/* The servers to which clients connect: all three in turn, or one of them. */
enum pack_at { PACK_ALL, PACK_BEST, PACK_ANOTHER };

struct pack_want {
    uint32_t clients;
    uint32_t lease_ms; /* The LEASE of an ACQUIRE. etcd has its own; see pack.c. */
    bool one_key; /* All clients acquire the same lock; otherwise each has its own. */
    enum pack_at at;
};

/* Connect the clients. Returns NULL, or an error message. */
const char *pack_open(struct pack **out, struct trio *t, const struct pack_want *want);
void pack_close(struct pack *p); /* NULL is allowed. */

/* Run for this time, and complete the pairs in progress. Commands that fail with NOQUORUM or
 * NOKEEPER are sent again. Returns NULL, or an error message; a lock that was not granted or
 * not released is an error too. */
const char *pack_run(struct pack *p, int64_t run_ns, struct trial_result *out);

#endif /* BENCH_PACK_H */
