/* election.h - which node is the keeper of the cluster, as one node sees it.
 *
 * An election has no side effects. Its inputs are the time, storage results and the
 * states of other nodes; its outputs are the orders that sl_election_next() returns.
 * The storage decides: it assigns terms in increasing order, and each term has one
 * keeper. This module decides when to ask the storage, and for how long an answer is
 * valid.
 *
 *     WATCHING --a reason--> CLAIMING --confirmed--> LEADING --a newer term--> WATCHING
 *                                \--rejected--> WATCHING
 *
 * Reasons to claim the next term, and what the storage compares before it accepts
 * the claim:
 *
 *     there was never a keeper                                          the term
 *     the keeper is this node, which does not lead: it was restarted    the term
 *     the keeper is another node, and has resigned                      the term
 *     a majority of nodes finds its connection to the keeper closed     the term
 *     a majority of nodes has not heard from it for silence_ms          the term
 *     no heartbeat for silence_ms, although the storage answers         term and heartbeat
 *
 * A node that has resigned claims only for the last of these reasons, until there is
 * another keeper.
 *
 * So a single node or client that cannot reach the keeper does not depose it. A
 * keeper that sends a heartbeat at the last moment is not deposed for its silence.
 *
 * Authority. Locks outside of transactions guard resources that do not know terms.
 * So a keeper grants only until authority_ms after it *requested* its last confirmed
 * heartbeat. The next keeper waits for that time, and for the longest lease that it may
 * not know, assuming that the rates of two clocks differ by at most 1 in 500. A keeper
 * whose heartbeats fail stops granting. It grants again after a heartbeat has succeeded,
 * if its term is still current. README.md explains why this is safe. */
#ifndef SL_FAILOVER_ELECTION_H
#define SL_FAILOVER_ELECTION_H

#include "storage/storage.h"

struct sl_election; /* Opaque. */

#define SL_ELECTION_NODES_MAX 16u /* Node ids are from 1 to 15. */

struct sl_election_settings {
    uint32_t self;
    sl_ms authority_ms; /* How long a keeper may grant after a heartbeat. */
    sl_ms heartbeat_ms; /* The interval between heartbeats. */
    sl_ms silence_ms;   /* How long the keeper must be silent before others claim. */
};
extern const struct sl_election_settings sl_election_settings_default;

/* The state of the connection to another node. */
enum sl_peer_state { SL_PEER_UP, SL_PEER_SILENT, SL_PEER_CLOSED };

enum sl_election_order_type {
    /* Orders to the storage. */
    SL_ELECTION_ORDER_READ_TERM, /* Read the current term. */
    SL_ELECTION_ORDER_CLAIM,     /* Claim the term after `term`. */
    SL_ELECTION_ORDER_RENEW,     /* Send a heartbeat for `term`. */
    SL_ELECTION_ORDER_RESIGN, /* Mark `term` as resigned. The result does not matter. */
    /* An order to all nodes: tell them how this node sees the keeper of `term`.
     * `sight` is UP until the keeper has been silent for silence_ms. */
    SL_ELECTION_ORDER_DOUBT,
    /* Orders to this server. After STOP, KEEPER follows, maybe later. */
    SL_ELECTION_ORDER_LEAD,   /* This node is the keeper of `term`. */
    SL_ELECTION_ORDER_STOP,   /* This node is not the keeper any more. */
    SL_ELECTION_ORDER_KEEPER, /* `node` is the keeper of `term`; 0: none is known. */
};

struct sl_election_order {
    enum sl_election_order_type type;
    uint64_t term;
    uint64_t heartbeat; /* CLAIM: the heartbeat to compare; 0: none. */
    uint32_t node;
    enum sl_peer_state sight;      /* DOUBT. */
    struct sl_storage_term before; /* LEAD: the last term. New fences exceed its
                                    * limit. */
    sl_ms quiet_ms;     /* LEAD: for this long after the claim was answered, serve only
                     * transactions and reclaims; */
    sl_ms authority_ms; /* for this long, the previous keeper may still grant. */
};

struct sl_election *sl_election_new(const struct sl_election_settings *s, sl_ms now);
void sl_election_free(struct sl_election *e); /* NULL is allowed. */

/* --- Events ------------------------------------------------------------------------ */

/* Set the ids of all members of the cluster, including this node if it is a member. */
void sl_election_members(struct sl_election *e, sl_ms now, const uint32_t *ids,
                         size_t n);

/* Report that the connection to another node has changed. Initially all nodes are
 * silent. */
void sl_election_peer_changed(struct sl_election *e, sl_ms now, uint32_t node,
                              enum sl_peer_state sight);

/* Report how another node sees the keeper of this term. */
void sl_election_peer_doubts(struct sl_election *e, sl_ms now, uint32_t from,
                             uint64_t term, enum sl_peer_state sight);

/* Report the result of READ_TERM, CLAIM or RENEW. asked_ms is the time of the
 * request to the storage; `term` is that of the order. If the status is EIO or ENOMEM, the outcome is unknown. */
void sl_election_term_read(struct sl_election *e, sl_ms now, sl_ms asked_ms,
                           const struct sl_storage_result *d);
void sl_election_claimed(struct sl_election *e, sl_ms now, sl_ms asked_ms,
                         const struct sl_storage_result *d);
void sl_election_renewed(struct sl_election *e, sl_ms now, sl_ms asked_ms,
                         uint64_t term, const struct sl_storage_result *d);

/* Report the current term, which a watch of the storage has delivered. */
void sl_election_term_changed(struct sl_election *e, sl_ms now,
                              const struct sl_storage_term *r);

/* Report that the storage has rejected an operation because this term is current. */
void sl_election_refused(struct sl_election *e, sl_ms now, uint64_t term);

/* Read the term soon, because a request has no known keeper or cannot reach it. */
void sl_election_read_soon(struct sl_election *e, sl_ms now);

/* Send a heartbeat immediately, because the keeper has something to store with it. */
void sl_election_hurries(struct sl_election *e, sl_ms now);

/* As the keeper: stop leading, forever in this term. `mark`: order RESIGN first, so that another
 * node claims the next term at once. */
void sl_election_resign(struct sl_election *e, sl_ms now, bool mark);

void sl_election_tick(struct sl_election *e, sl_ms now);
sl_ms sl_election_due(const struct sl_election *e);
bool sl_election_next(struct sl_election *e, struct sl_election_order *out);

/* --- Queries ----------------------------------------------------------------------- */

enum sl_election_state {
    SL_ELECTION_WATCHING,
    SL_ELECTION_CLAIMING,
    SL_ELECTION_LEADING
};

struct sl_election_view {
    enum sl_election_state state;
    struct sl_storage_term current; /* The last known term. */
    sl_ms authority_end_ms;         /* LEADING: grant nothing from this time on. */
    sl_ms known_ms; /* When the last answered READ_TERM was requested. */
    uint64_t claims, refused;
};
void sl_election_view(const struct sl_election *e, struct sl_election_view *out);

bool sl_election_has_member(const struct sl_election *e, uint32_t node);

/* Abort and name the invariant if one is violated. */
void sl_election_check(const struct sl_election *e);

#endif /* SL_FAILOVER_ELECTION_H */
