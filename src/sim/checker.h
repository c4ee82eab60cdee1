/* checker.h - the checker records every answer to a client, with its time. It observes the cluster
 * from outside and never asks a node for the holder of a key. It reports as wrong:
 *
 *     two holders of a key           a client believes that it holds a key from the arrival of
 *                                    the answer until its own deadline, its release, or a
 *                                    notice that it lost it; unless the later one was notified that
 *                                    it overlaps another
 *     a fence that does not rise     from grant to grant; or that changes with an extension
 *     an extension of an old grant   after another client was granted the key
 *     a holder that receives a reply that it does not hold
 *     a request that is answered twice, an event that is published twice
 *     two memberships of a version   or two that differ by more than one node, or a node that
 *                                    goes back to an older one */
#ifndef SL_SIM_CHECKER_H
#define SL_SIM_CHECKER_H

#include <stdbool.h>
#include <stdint.h>

#include "majority/node.h"
#include "sim/clock.h"

#define SIM_KEYS 4
#define SIM_CLIENTS 12 /* The last ones act when all faults are healed. */
#define SIM_NODES 7

struct sim_grant_record {
    sl_fence fence;
    int64_t asked_us, granted_us;
    bool overlapping;
    bool released; /* Its holder has sent a release. */
};

struct sim_key_record {
    struct sim_grant_record *grants; /* In the order of the answers. */
    uint32_t count, size;
    bool forced;               /* A client was allowed to overlap a holder. */
    sl_fence highest;          /* Of all grants. */
    sl_fence overlapped_below; /* The highest fence of an overlapping grant: holders of
                                * lower fences may overlap it. */
};

struct sim_belief {
    bool is; /* Until the deadline. */
    uint32_t key;
    sl_fence fence;
    bool overlapping;
    int64_t since_us; /* Without a break. */
    int64_t until_us; /* On its own clock. */
    const struct sim_clock *clock;
};

enum sim_request_state { SIM_REQUEST_SENT, SIM_REQUEST_ARRIVED, SIM_REQUEST_DONE };

struct sim_request_record {
    enum sim_request_state state;
    uint32_t node, client;
    enum sl_node_verb type;
    uint32_t key;
    sl_fence fence;
    bool steal, force;
    int64_t sent_us;
    uint64_t life; /* Of the node. */
    int64_t arrived_us;
};

/* An event that a node has published. */
struct sim_report_record {
    enum sl_node_event_type type;
    uint32_t key;
    sl_fence fence;
};

#define SIM_REPORTS 32

struct sim_membership_record {
    uint64_t version;
    uint32_t members; /* A bit for each id. */
};

struct sim_checker {
    struct sim_key_record keys[SIM_KEYS];
    struct sim_belief beliefs[SIM_CLIENTS];
    struct sim_request_record *requests; /* By number. */
    uint64_t request_count, request_size;
    struct sim_membership_record
        *memberships; /* In the order in which they were seen. */
    uint32_t membership_count, membership_size;
    uint64_t newest_version[SIM_NODES]; /* By node. */
    struct sim_report_record reports[SIM_NODES]
                                    [SIM_REPORTS]; /* The last of this life. */
    uint32_t report_count[SIM_NODES];
    char wrong[400]; /* What is wrong; empty: nothing. */
    bool is_stuck;   /* There is no progress, though nothing is inconsistent. */
};

void sim_checker_clear(struct sim_checker *b);
void sim_checker_free(struct sim_checker *b);

/* Report a violation, or a lack of progress. The first one is kept. */
void sim_checker_wrong(struct sim_checker *b, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
void sim_checker_stuck(struct sim_checker *b, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* A request is sent, arrives at a node, and is withdrawn or answered. The caller fills client,
 * type, key, fence and sent_us. Returns its number. */
uint64_t sim_checker_request(struct sim_checker *b,
                             const struct sim_request_record *row);
void sim_checker_arrived(struct sim_checker *b, uint64_t request, uint32_t node,
                         uint64_t life, int64_t now_us);
bool sim_checker_withdraw(struct sim_checker *b, uint64_t request); /* False: over. */

/* A node answers. Returns the request, or NULL if that was wrong. */
const struct sim_request_record *sim_checker_answered(struct sim_checker *b,
                                                      uint64_t request, uint32_t node,
                                                      uint64_t life,
                                                      const struct sl_node_answer *a,
                                                      int64_t now_us);

/* A client sends a release. Its extensions that are under way mean nothing from then on. */
void sim_checker_released(struct sim_checker *b, uint32_t key, sl_fence fence);

/* A client believes that it holds a key until a time on its own clock; or does not any more. */
void sim_checker_believe(struct sim_checker *b, uint32_t client,
                         const struct sim_belief *belief, int64_t now_us);
void sim_checker_doubt(struct sim_checker *b, uint32_t client);
bool sim_checker_believes(const struct sim_checker *b, uint32_t client, int64_t now_us);

/* A node starts; it publishes an event. */
void sim_checker_started(struct sim_checker *b, uint32_t node);
void sim_checker_published(struct sim_checker *b, uint32_t node,
                           const struct sim_report_record *row);

/* A node goes by this membership. */
void sim_checker_membership(struct sim_checker *b, uint32_t node,
                            const struct sl_membership *m);

/* The newest membership that any node went by, as bits of ids. */
uint32_t sim_checker_newest_members(const struct sim_checker *b);

/* A request that a node has not answered. A node counts if it has this life; 0: it is down.
 * Returns 0 if there is none. */
uint64_t sim_checker_open(const struct sim_checker *b, const uint64_t lives[SIM_NODES]);

#endif /* SL_SIM_CHECKER_H */
