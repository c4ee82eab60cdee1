/* checker.h - the checker records every answer to a client, with its time, and reports
 * violations. It observes the cluster from outside and never asks a node for the holder
 * of a key. It reports these violations:
 *
 *     - Two clients hold a key at the same time. A client counts as holder from the
 *       arrival of the answer until its own deadline, its release, or the event that it
 *       lost the key. Two holders are allowed if the later one was notified that its
 *       grant overlaps another.
 *     - A fence does not rise from grant to grant, or an extension changes it.
 *     - A client extends an old grant after another client was granted the key.
 *     - A node replies to a holder that it does not hold the key.
 *     - An acquisition with a REQUEST id gets two leases, or is granted after its client has
 *       released or cancelled it (unless nodes have forgotten that in a restart, or are new).
 *     - A lease is extended, although an operator has broken it. (Not checked after a change of
 *       the membership: new nodes may not know it.)
 *     - A key is granted although it matches a pattern that an operator drains.
 *     - A node answers a request twice, or publishes an event twice.
 *     - Two memberships have the same version, or differ by more than one node.
 *     - A node goes back to an older membership. */
#ifndef SL_SIM_CHECKER_H
#define SL_SIM_CHECKER_H

#include <stdbool.h>
#include <stdint.h>

#include "majority/node.h"
#include "sim/clock.h"

#define SIM_KEYS 4
#define SIM_CLIENTS 12 /* The last ones act only after the faults have ended. */
#define SIM_NODES 7

struct sim_grant_record {
    sl_fence fence;
    int64_t asked_us, granted_us;
    bool overlapping;
    bool released;     /* The holder has sent a release, or an operator BREAK NOW. */
    bool breaks;       /* An operator has sent BREAK. */
    int64_t broken_us; /* When the first BREAK was answered; 0: none was. */
    uint32_t broken_memberships; /* How many memberships there were. */
    /* The last acknowledged expiry of the lease; clock NULL: the client did not wait for it. */
    const struct sim_clock *clock;
    int64_t until_us; /* The deadline, on the client's own clock. */
    bool is_long;     /* It must survive power failures. */
    uint64_t version; /* The membership that agreed on it. */
};

struct sim_key_record {
    struct sim_grant_record *grants; /* In the order of the answers. */
    uint32_t count, size;
    bool forced; /* A client was granted the key by force, while another held it. */
    bool broken; /* An operator has sent BREAK NOW. */
    sl_fence highest; /* The highest fence of all grants. */
    /* The highest fence of an overlapping grant. Holders with lower fences may overlap
     * that grant. */
    sl_fence overlapped_below;
};

/* An acquisition with a REQUEST id. */
struct sim_acquisition_record {
    sl_fence fence; /* The first lease that was granted to it; 0: none. */
    uint64_t digest;
    uint64_t granted_past, ended_past; /* What had happened before (past_of()). */
    int64_t ended_us; /* When the first RELEASE or CANCEL was answered; 0: none was. */
    bool received;    /* Its client has received the lease. */
    bool cancels;     /* Its client has sent CANCEL, and ignores grants. */
};

/* A pattern of DRAIN. */
#define SIM_PATTERNS 4
struct sim_pattern_record {
    int64_t on_us;    /* When DRAIN ON was answered; 0: not drained, or perhaps not. */
    uint32_t pending; /* Requests that are not answered, or whose outcome is unknown. */
    bool mixed;       /* Several commands were pending at the same time. */
    bool may_be_on;   /* Since the last OFF was answered, a client has sent ON. */
    int64_t off_us;   /* When that OFF was answered. */
};

struct sim_belief {
    bool is; /* The client believes that it is the holder. */
    uint32_t key;
    sl_fence fence;
    bool overlapping;
    int64_t since_us; /* Holds without interruption since then. */
    int64_t until_us; /* The deadline, on the client's own clock. */
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
    uint32_t pattern;    /* DRAIN: which pattern, */
    bool on;             /* and whether it is turned on. */
    uint64_t id, digest; /* The REQUEST id, also of RELEASE; 0: none. */
    int64_t sent_us;
    uint64_t life; /* The life of the node. */
    int64_t arrived_us;
    uint64_t version; /* The membership of the node at that time. */
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
    uint32_t members; /* One bit for each node id. */
};

struct sim_checker {
    struct sim_key_record keys[SIM_KEYS];
    struct sim_belief beliefs[SIM_CLIENTS];
    struct sim_request_record *requests; /* By number. */
    uint64_t request_count, request_size;
    struct sim_acquisition_record *acquisitions; /* By id. */
    uint64_t acquisition_count, acquisition_size;
    uint64_t starts; /* Of nodes. */
    struct sim_pattern_record patterns[SIM_PATTERNS];
    /* In the order in which the checker first saw them. */
    struct sim_membership_record *memberships;
    uint32_t membership_count, membership_size;
    uint64_t newest_version[SIM_NODES]; /* By node. */
    struct sim_report_record reports[SIM_NODES]
                                    [SIM_REPORTS]; /* The last events of this life. */
    uint32_t report_count[SIM_NODES];
    char wrong[400]; /* The first violation; empty: none. */
    bool is_stuck;   /* The violation is a lack of progress, not an inconsistency. */
};

void sim_checker_clear(struct sim_checker *b);
void sim_checker_free(struct sim_checker *b);

/* Report a violation or a lack of progress. The checker keeps only the first report. */
void sim_checker_wrong(struct sim_checker *b, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
void sim_checker_stuck(struct sim_checker *b, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* Record that a client sends a request, that the request arrives at a node, or that the
 * client withdraws it. For sim_checker_request(), the caller fills in client, type,
 * key, fence and sent_us; the function returns the number of the request. */
uint64_t sim_checker_request(struct sim_checker *b,
                             const struct sim_request_record *row);
void sim_checker_arrived(struct sim_checker *b, uint64_t request, uint32_t node,
                         uint64_t life, int64_t now_us);
/* False: already answered. */
bool sim_checker_withdraw(struct sim_checker *b, uint64_t request);

/* Record that a node answers. Returns the request, or NULL if the answer is a
 * violation. */
const struct sim_request_record *sim_checker_answered(struct sim_checker *b,
                                                      uint64_t request, uint32_t node,
                                                      uint64_t life,
                                                      const struct sl_node_answer *a,
                                                      int64_t now_us);

/* Return the id of a new acquisition. Record that its client sends CANCEL, and does not use the
 * lease any more; and that it has received the lease. */
uint64_t sim_checker_acquisition(struct sim_checker *b);
void sim_checker_cancels(struct sim_checker *b, uint32_t key, uint64_t id);
void sim_checker_received(struct sim_checker *b, uint64_t id, sl_fence fence);

/* Return the text of a pattern, and whether a key matches it. */
struct sl_bytes sim_pattern_bytes(uint32_t pattern);
bool sim_pattern_matches(uint32_t pattern, uint32_t key);

/* Record that an operator sends BREAK, or BREAK NOW. */
void sim_checker_breaks(struct sim_checker *b, uint32_t key, sl_fence fence,
                        bool at_once);

/* Record that a client sends a release. From then on the checker ignores the answers to
 * its pending extensions. */
void sim_checker_released(struct sim_checker *b, uint32_t key, sl_fence fence);

/* Record that a client believes that it holds a key, until a time on its own clock; or
 * that it no longer believes so. */
void sim_checker_believe(struct sim_checker *b, uint32_t client,
                         const struct sim_belief *belief, int64_t now_us);
void sim_checker_doubt(struct sim_checker *b, uint32_t client);
bool sim_checker_believes(const struct sim_checker *b, uint32_t client, int64_t now_us);

/* Record that a node starts, or that it publishes an event. */
void sim_checker_started(struct sim_checker *b, uint32_t node);
void sim_checker_published(struct sim_checker *b, uint32_t node,
                           const struct sim_report_record *row);

/* Record that a node uses this membership. */
void sim_checker_membership(struct sim_checker *b, uint32_t node,
                            const struct sl_membership *m);

/* Return a grant that was answered, or NULL. */
struct sim_grant_record *sim_checker_grant(struct sim_checker *b, uint32_t key,
                                           sl_fence fence);

/* Return the newest membership that any node has used, or NULL; and its nodes, with one bit for
 * each id. */
const struct sim_membership_record *sim_checker_newest(const struct sim_checker *b);
uint32_t sim_checker_newest_members(const struct sim_checker *b);

/* Return a request that its node has not answered, or 0 if there is none. `lives` has
 * the current life of each node, or 0 if the node is down; requests to an earlier life
 * do not count. */
uint64_t sim_checker_open(const struct sim_checker *b, const uint64_t lives[SIM_NODES]);

#endif /* SL_SIM_CHECKER_H */
