/* trio.h - a cluster of three servers: nodes of Sluice, or members of etcd. Nodes may use such
 * members: then one of the nodes is the keeper. */
#ifndef BENCH_TRIO_H
#define BENCH_TRIO_H

#include "relay.h"
#include "subject.h"
#include "trial.h"

#define TRIO 3u

/* The servers to start. All pointers are borrowed while they run. */
struct trio_want {
    enum subject_kind kind; /* NODE or ETCD. */
    const char *program;
    /* NODE only: */
    /* The nodes reach each other through its first three ways; trio_start() starts it. */
    struct relay *relay;
    int64_t delay_ns;
    const struct trio *etcd;    /* The members of etcd that the nodes use; */
    const char *prefix;         /* the prefix of their keys; */
    const char *const *options; /* further arguments, ending with NULL; or NULL. */
};

/* Their addresses, as passed to each of them. */
struct trio_places {
    int ports[TRIO], node_ports[TRIO];
    char list[256]; /* Of the members. */
    char urls[256]; /* Of the etcd that they use. */
};

struct trio {
    struct trio_want want;
    struct trio_places places;
    struct subject members[TRIO];
    uint32_t best; /* The server for a single client: the leader or keeper, if any. */
};

/* Start three servers of a kind and wait until they grant locks. Returns NULL, or an
 * error message. */
const char *trio_start(struct trio *t, const struct trio_want *want);

/* Nodes on etcd: wait until all three know the same keeper and can reach it. `best`
 * is then the keeper. Returns NULL, or an error message. */
const char *trio_agree(struct trio *t);

/* Restart a node that was killed (subject_kill()). Returns NULL, or an error
 * message. */
const char *trio_restart(struct trio *t, uint32_t i);

/* Also if the servers were never started. */
void trio_stop(struct trio *t);

/* Make all three the servers of this side. */
void trio_serve(const struct trio *t, struct side *side);

#endif /* BENCH_TRIO_H */
