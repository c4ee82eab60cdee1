/* keeper_etcd.h - a model of etcd and of the storage clients of the nodes (storage/storage.h).
 *
 *     submit --delay--> executed, or not --delay--> done
 *
 * A struct sl_storage_op goes in, and its result comes out later, on its node. The model keeps the
 * promises of src/storage/README.md, and no others:
 *
 *     - An operation executes at one moment between submit and done. If the node is killed
 *       meanwhile, the operation may still execute, and its result is lost.
 *     - Commits, bars and records of a node are executed in the order of submission.
 *     - A renewal or RESIGN whose answer is lost fails with EIO, but may have been executed, or may be executed
 *       after that. It compares the heartbeat, so it never replaces a later one.
 *     - A claim, a commit, a bar or a record whose answer is lost is repeated until its outcome is known.
 *     - A read whose answer is lost fails with EIO. */
#ifndef SL_SIM_KEEPER_ETCD_H
#define SL_SIM_KEEPER_ETCD_H

#include "sim/keeper_map.h"
#include "sim/queue.h"
#include "storage/storage.h"

#define KSIM_NODES 7
#define KSIM_TERMS 512

struct ksim_world;

/* An operation that a node has submitted. */
struct ksim_op {
    struct sl_list all;
    uint64_t number;
    struct sl_storage_op op; /* With its result. */
    uint32_t node;
    uint64_t life;     /* The life of the node that submitted it. */
    sl_ms asked_ms;    /* By the clock of the node, */
    int64_t asked_us;  /* and in real time. */
    uint64_t expected; /* RENEW: the heartbeat to replace. */
    uint32_t repeats;  /* RENEW: how often its comparison has failed. */
    bool executed, answered, reported;
    uint64_t tag, tag_term;      /* Of the caller. */
    char *copy;                  /* The bytes of the operation; owned. */
    struct sl_storage_row *rows; /* The bytes of its result; owned. */
};

struct ksim_etcd {
    struct sl_storage_term term;
    /* By term: when its claim was executed, in real time. */
    int64_t claimed_us[KSIM_TERMS];
    bool resigned[KSIM_TERMS];   /* The term was marked as resigned, */
    uint64_t resigned_life;      /* the last one by a node in this life. */
    uint32_t nodes[KSIM_TERMS];  /* The keeper of each term. */
    int64_t sent_us[KSIM_TERMS]; /* When its last claim or renewal was sent. */
    int64_t renewed_us;          /* When the last one was executed. */
    int64_t journal_us;          /* At this time, journal time was this. */
    sl_ms journal_ms;
    int64_t down_us, slow_us; /* Until then, etcd is unavailable, or slow. */
    struct sl_list ops;
    uint64_t numbers, revision;
    struct ksim_map rows, requests, bars, journal;
};

void ksim_etcd_init(struct ksim_etcd *e);
void ksim_etcd_free(struct ksim_etcd *e);

/* Submit an operation of a node. Copies the bytes to which it refers. ksim_node_storage() receives
 * the result. */
struct ksim_op *ksim_etcd_submit(struct ksim_world *w, uint32_t node,
                                 const struct sl_storage_op *op, sl_ms asked_ms);
void ksim_etcd_event(struct ksim_world *w, const struct sim_event *e);

/* A report of the watch arrives at a node. */
void ksim_etcd_watched(struct ksim_world *w, const struct sim_event *e);
/* Call this regularly: a watch that missed something reports the current term later. */
void ksim_etcd_poll(struct ksim_world *w, uint32_t node);
bool ksim_etcd_reaches(const struct ksim_world *w, uint32_t node);

/* In keeper_etcd_data.c. Execute an operation on data. Returns false for other operations. */
bool ksim_etcd_data(struct ksim_world *w, struct ksim_op *x);
void ksim_op_copy(struct ksim_op *x);

#endif /* SL_SIM_KEEPER_ETCD_H */
