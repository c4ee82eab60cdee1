/* pack.h - the clients of a cluster: one process, one thread, epoll; the same for ours and
 * for etcd's lock.
 *
 * Each client has a connection of its own to one of the three, and takes one lock, gives it
 * back, and begins anew. Who has to wait for a lock waits in its acquire. */
#ifndef BENCH_PACK_H
#define BENCH_PACK_H

#include "times.h"
#include "trio.h"

struct pack; /* Opaque. */

struct pack_result {
    uint64_t pairs;
    int64_t ns;
    double acquire_median_us, median_us, p99_us; /* Of acquires alone; of pairs. */
    uint64_t again; /* Commands that were sent again: too few nodes had answered. */
};

/* Connect so many, in turns to all three; a single one to the best. `one_key`: all want the
 * same lock, otherwise each has its own. NULL, or what went wrong. */
const char *pack_open(struct pack **out, struct trio *t, uint32_t clients,
                      bool one_key);
void pack_close(struct pack *p); /* NULL is allowed. */

/* Run for so long, and to the end of what was begun. NULL, or what went wrong; it is wrong
 * as well when a lock was not granted or not given back. */
const char *pack_run(struct pack *p, int64_t run_ns, struct pack_result *out);

#endif /* BENCH_PACK_H */
