/* trio.h - three servers that are one cluster: nodes of ours, or members of etcd. Nodes may
 * stand on such members: then one of them is the keeper. */
#ifndef BENCH_TRIO_H
#define BENCH_TRIO_H

#include "relay.h"
#include "subject.h"
#include "trial.h"

#define TRIO 3u

/* What is to be started. All is borrowed for as long as it runs. */
struct trio_want {
    enum subject_kind kind; /* NODE or ETCD. */
    const char *program;
    /* NODE only: */
    struct relay *relay; /* They reach each other through its first three ways; it is
                          * started here. */
    int64_t delay_ns;
    const struct trio *etcd;    /* The members they stand on; */
    const char *prefix;         /* what their keys there begin with; */
    const char *const *options; /* further words for each, ended by NULL; or NULL. */
};

/* Where they are, as each of them is told. */
struct trio_places {
    int ports[TRIO], node_ports[TRIO];
    char list[256]; /* Who belongs to it. */
    char urls[256]; /* Of the etcd they stand on. */
};

struct trio {
    struct trio_want want;
    struct trio_places places;
    struct subject members[TRIO];
    uint32_t best; /* Whom a single client asks: etcd's leader; the keeper; else any. */
};

/* Start three of a kind and wait until they grant locks. NULL, or what went wrong. */
const char *trio_start(struct trio *t, const struct trio_want *want);

/* Nodes on etcd: wait until all three know one keeper, and can ask it. It is the best. NULL,
 * or what went wrong. */
const char *trio_agree(struct trio *t);

/* Start a node again that was killed (subject_kill()). NULL, or what went wrong. */
const char *trio_restart(struct trio *t, uint32_t i);

/* Also of one that was never started. */
void trio_stop(struct trio *t);

/* All three are servers of this side. */
void trio_serve(const struct trio *t, struct side *side);

#endif /* BENCH_TRIO_H */
