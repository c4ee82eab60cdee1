/* pack.h - the clients of a cluster: one process, one thread, epoll; the same for ours and
 * for etcd's lock.
 *
 * Each client has a connection of its own to one of the three, and takes one lock, gives it
 * back, and begins anew. Who has to wait for a lock waits in its acquire. */
#ifndef BENCH_PACK_H
#define BENCH_PACK_H

#include "times.h"
#include "trial.h"
#include "trio.h"

struct pack; /* Opaque. */

/* Whom they are connected to: all three in turns, or one of them. */
enum pack_at { PACK_ALL, PACK_BEST, PACK_ANOTHER };

struct pack_want {
    uint32_t clients;
    bool one_key; /* All want the same lock; otherwise each has its own. */
    enum pack_at at;
};

/* Connect them. NULL, or what went wrong. */
const char *pack_open(struct pack **out, struct trio *t, const struct pack_want *want);
void pack_close(struct pack *p); /* NULL is allowed. */

/* Run for so long, and to the end of what was begun. A command that too few nodes have
 * answered, or no keeper, is sent again. NULL, or what went wrong; it is wrong as well when a
 * lock was not granted or not given back. */
const char *pack_run(struct pack *p, int64_t run_ns, struct trial_result *out);

#endif /* BENCH_PACK_H */
