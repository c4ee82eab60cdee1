/* keeper_checker.h - checks what the clients of a keeper cluster see. The checker records every
 * answer to a client, with its time. It never asks a node for the holder of a key, and shares no
 * code with the nodes. It reports these violations:
 *
 *     - Clients with leases hold more than the capacity of a key at the same time. A client counts
 *       as holder from the arrival of the answer until its own deadline, its release, or the
 *       message that its grant was stolen. A grant that is marked as overlapping is an exception.
 *     - A fence is not higher than all fences that clients had received before the request.
 *     - A client extends a grant of an exclusive key, although another client had received a
 *       higher fence before.
 *     - Two leases of one acquisition are held at the same time.
 *     - The keeper that granted or extended a lease says that it is not held.
 *     - A client receives a reply to another request. */
#ifndef SL_SIM_KEEPER_CHECKER_H
#define SL_SIM_KEEPER_CHECKER_H

#include <stdbool.h>
#include <stdint.h>

#include "base/types.h"
#include "sim/clock.h"

#define KSIM_KEYS 4
#define KSIM_CLIENTS 12 /* The last ones act only after the faults have ended. */

enum ksim_key_kind { KSIM_MUTEX, KSIM_COUNTS, KSIM_SHARES };

#define KSIM_CAPACITY 3u /* Of a key that counts. */

static inline enum ksim_key_kind ksim_kind_of(uint32_t key)
{
    return key == 2 ? KSIM_COUNTS : key == 3 ? KSIM_SHARES : KSIM_MUTEX;
}

/* A grant that a client has received. */
struct ksim_grant {
    uint32_t key, client;
    sl_fence fence;
    uint64_t id; /* Of its acquisition; 0: it has no REQUEST id. */
    uint32_t units;
    bool shared, leased, overlapping;
    bool held; /* The client believes that it holds the grant. */
    bool
        closing; /* Without a lease: its connection is closed, and its client will notice. */
    bool touched;  /* A client has sent RELEASE or BREAK, or the grant was stolen. */
    bool revoked;  /* A client has sent BREAK, which ends it at once. */
    bool given_up; /* Its client has sent RELEASE. */
    int64_t received_us;
    const struct sim_clock *clock;
    int64_t until_us; /* The deadline, on the client's clock. */
    sl_ms lease_ms;   /* The last one. */
    uint64_t term;    /* The term in which it was granted or last extended. */
    uint32_t node;    /* The node through which the client learned that, */
    uint64_t life;    /* and the life of that node. */
    int64_t acked_us; /* When the client learned that, in real time. */
    bool at_keeper;   /* That node was the keeper. */
    bool
        elsewhere; /* Other ledgers may have it: it was extended through another node, or the
                       * node was the keeper. */
    bool ended; /* A client has released it, through this node: */
    uint32_t ended_node;
    uint64_t ended_life;
};

struct ksim_checker {
    struct ksim_grant *grants; /* In the order of the answers. */
    uint32_t count, size;
    sl_fence highest[KSIM_KEYS]; /* The highest fence that a client has received, */
    /* and the highest one of a grant that is not marked as overlapping. */
    sl_fence highest_alone[KSIM_KEYS];
    sl_fence overlapping[KSIM_KEYS]; /* The highest fence of an overlapping grant. */
    bool without_clocks;             /* Clocks stop: do not check leases. */
    bool checks_loose;               /* Overlaps without a lease are violations, too. */
    /* Grants without a lease that were held together with another grant. They do not count as a
     * violation: a keeper that is cut off keeps the connections of its own clients while its
     * successor grants these locks; and after an outage of the storage that is longer than the
     * linger time, a keeper grants such locks before the node of their holder closes its
     * connection. docs/cluster.md promises one holder only for leases. */
    uint64_t overlaps;
    char wrong[400]; /* The first violation; empty: none. */
    bool is_stuck;
};

void ksim_checker_clear(struct ksim_checker *k);
void ksim_checker_free(struct ksim_checker *k);
void ksim_checker_wrong(struct ksim_checker *k, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
void ksim_checker_stuck(struct ksim_checker *k, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* A client receives a grant. `floor` is the highest fence that clients had received when it sent
 * the request. */
void ksim_checker_granted(struct ksim_checker *k, const struct ksim_grant *g,
                          sl_fence floor, int64_t now_us);

/* A client receives a grant again that it knows. If it still holds the grant, it counts on the expiry in
 * this reply. `g`: as in ksim_checker_extended(). */
void ksim_checker_repeated(struct ksim_checker *k, const struct ksim_grant *g,
                           int64_t now_us);

/* A client learns that its lease was extended. `floor`: as above, but of grants that are not marked
 * as overlapping. `g` has fence, until_us, lease_ms, term, node and life. Only the holder counts on
 * the new expiry (`believes`). */
void ksim_checker_extended(struct ksim_checker *k, const struct ksim_grant *g,
                           bool believes, sl_fence floor, int64_t now_us);

/* A client learns that the keeper of this term does not know its grant. */
void ksim_checker_lost(struct ksim_checker *k, sl_fence fence, uint64_t term,
                       int64_t now_us);

/* A node has closed the connection of a grant without a lease. */
void ksim_checker_closing(struct ksim_checker *k, sl_fence fence);

/* A client has released the grant through this node. */
void ksim_checker_released(struct ksim_checker *k, sl_fence fence, uint32_t node,
                           uint64_t life);

/* A client does not believe any more that it holds the grant. `touched`: it may have ended before
 * its lease. */
void ksim_checker_doubt(struct ksim_checker *k, sl_fence fence, bool touched);

struct ksim_grant *ksim_checker_find(const struct ksim_checker *k, sl_fence fence);
bool ksim_checker_holds(const struct ksim_grant *g, int64_t now_us);
/* Return how much of a lease is left for its holder, in milliseconds of its clock. */
sl_ms ksim_checker_left(const struct ksim_grant *g, int64_t now_us);

#endif /* SL_SIM_KEEPER_CHECKER_H */
