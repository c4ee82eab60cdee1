/* trio.h - a cluster of three servers: nodes of Sluice, or members of etcd. Nodes may use such
 * members: then one of the nodes is the keeper. */
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
    const struct trio *etcd; /* The members that they use; */
    const char *prefix;      /* what their keys there begin with; */
    const char *const
        *options; /* further arguments for each, ended by NULL; or NULL. */
};

/* Their addresses, as passed to each of them. */
struct trio_places {
    int ports[TRIO], node_ports[TRIO];
    char list[256]; /* The members. */
    char urls[256]; /* Of the etcd that they use. */
};

struct trio {
    struct trio_want want;
    struct trio_places places;
    struct subject members[TRIO];
    uint32_t
        best; /* The server for a single client: etcd's leader; the keeper; else any. */
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
