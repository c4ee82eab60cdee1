/* trio.h - three servers that are one cluster: nodes of ours, or members of etcd. */
#ifndef BENCH_TRIO_H
#define BENCH_TRIO_H

#include "relay.h"
#include "subject.h"

#define TRIO 3u

struct trio {
    enum subject_kind kind; /* NODE or ETCD. */
    struct subject members[TRIO];
    uint32_t best; /* Whom a single client asks: etcd's leader; of ours any. */
};

/* Start three of a kind and wait until they grant locks. With `relay` the nodes reach each
 * other through its first three ways; it is started here. NULL, or what went wrong. */
const char *trio_start(struct trio *t, enum subject_kind kind, const char *program,
                       struct relay *relay, int64_t delay_ns);

/* Also of one that was never started. */
void trio_stop(struct trio *t);

/* Of all three together. */
struct subject_time trio_time(const struct trio *t);

#endif /* BENCH_TRIO_H */
