/* election.h - which node is the keeper of the cluster, as one node sees it.
 *
 * An election is a value: the time, results of the storage and the states of other nodes go in;
 * orders come out of sl_election_next(). The storage decides: terms rise there, and each has one
 * keeper. This module decides when to ask the storage, and for how long an answer is valid.
 *
 *     WATCHING --a reason--> CLAIMING --confirmed--> LEADING --a newer term--> WATCHING
 *                                \--refused--> WATCHING
 *
 * Reasons to claim the next term, with what the storage compares:
 *
 *     there was never a keeper                                          the term
 *     the keeper is this node, which does not lead: it was restarted    the term
 *     a majority of nodes finds its connection with it closed           the term
 *     a majority of nodes has not heard of it for silence_ms            the term
 *     no heartbeat for silence_ms, though the storage answers           term and heartbeat
 *
 * So one node, or one client, that cannot reach the keeper does not depose it. A keeper that
 * sends a heartbeat at the last moment is not deposed for its silence.
 *
 * Authority. Locks outside of transactions guard resources that know no term. So a keeper
 * grants only until authority_ms after it *asked* for its last confirmed heartbeat. The next
 * keeper waits for that, and for the longest lease that may have been granted before, assuming
 * that clocks run at rates that differ by at most 1 in 500. A keeper whose heartbeats fail
 * stops granting. It grants again when one succeeds, if its term is still current. README.md
 * has the argument. */
#ifndef SL_FAILOVER_ELECTION_H
#define SL_FAILOVER_ELECTION_H

#include "storage/storage.h"

struct sl_election; /* Opaque. */

#define SL_ELECTION_NODES_MAX 16u /* Ids of nodes are from 1 to one less. */

struct sl_election_settings {
    uint32_t self;
    sl_ms authority_ms; /* How long a heartbeat lets the keeper grant. */
    sl_ms heartbeat_ms; /* The interval between heartbeats. */
    sl_ms silence_ms;   /* After how much silence others claim. */
};
extern const struct sl_election_settings sl_election_settings_default;

/* The state of the connection with another node. */
enum sl_peer_state { SL_PEER_UP, SL_PEER_SILENT, SL_PEER_CLOSED };

enum sl_election_order_type {
    /* To the storage: */
    SL_ELECTION_ORDER_READ_TERM, /* Read the current term. */
    SL_ELECTION_ORDER_CLAIM, /* Claim the term after `term`; compare `heartbeat`, unless 0. */
    SL_ELECTION_ORDER_RENEW, /* Send a heartbeat of `term`. */
    /* To all nodes: `sight` is what this node sees of the keeper of `term`. A silence is UP
     * until it has lasted for silence_ms. */
    SL_ELECTION_ORDER_DOUBT,
    /* To this server: */
    SL_ELECTION_ORDER_LEAD, /* This node is the keeper of `term`, which follows `before`. */
    SL_ELECTION_ORDER_STOP, /* It is the keeper no longer. KEEPER follows, maybe later. */
    SL_ELECTION_ORDER_KEEPER, /* `node` is the keeper of `term`; 0: none is known. */
};

struct sl_election_order {
    enum sl_election_order_type type;
    uint64_t term;
    uint64_t heartbeat; /* CLAIM: the heartbeat to compare. */
    uint32_t node;
    enum sl_peer_state sight;      /* DOUBT. */
    struct sl_storage_term before; /* LEAD: fences must be above its limit. */
    sl_ms
        quiet_ms; /* LEAD: until so long after the claim was answered, the keeper serves
                     * transactions and reclaims only. */
};

struct sl_election *sl_election_new(const struct sl_election_settings *s, sl_ms now);
void sl_election_free(struct sl_election *e); /* NULL is allowed. */

/* --- Events ------------------------------------------------------------------------ */

/* The ids of all nodes of the cluster, with this one if it is a member. */
void sl_election_members(struct sl_election *e, sl_ms now, const uint32_t *ids,
                         size_t n);

/* The connection with another node has changed. Initially all are silent. */
void sl_election_peer_changed(struct sl_election *e, sl_ms now, uint32_t node,
                              enum sl_peer_state sight);

/* Another node reports what it sees of the keeper of this term. */
void sl_election_peer_doubts(struct sl_election *e, sl_ms now, uint32_t from,
                             uint64_t term, enum sl_peer_state sight);

/* Results of READ_TERM, CLAIM and RENEW, which was asked for at asked_ms. With EIO or ENOMEM
 * nothing is known. */
void sl_election_term_read(struct sl_election *e, sl_ms now, sl_ms asked_ms,
                           const struct sl_storage_result *d);
void sl_election_claimed(struct sl_election *e, sl_ms now, sl_ms asked_ms,
                         const struct sl_storage_result *d);
void sl_election_renewed(struct sl_election *e, sl_ms now, sl_ms asked_ms,
                         const struct sl_storage_result *d);

/* The storage's watch reports the current term. */
void sl_election_term_changed(struct sl_election *e, sl_ms now,
                              const struct sl_storage_term *r);

/* The storage has rejected an operation, because this term is current. */
void sl_election_refused(struct sl_election *e, sl_ms now, uint64_t term);

/* A request finds no keeper, or cannot reach it: read the term soon. */
void sl_election_read_soon(struct sl_election *e, sl_ms now);

/* The keeper has something to store with its next heartbeat: send it at once. */
void sl_election_hurries(struct sl_election *e, sl_ms now);

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
    sl_ms authority_end_ms;         /* LEADING: nothing is granted from then on. */
    sl_ms known_ms; /* The storage had this term at this time, or later. */
    uint64_t claims, refused;
};
void sl_election_view(const struct sl_election *e, struct sl_election_view *out);

/* Aborts, naming the invariant, if one is broken. */
void sl_election_check(const struct sl_election *e);

#endif /* SL_FAILOVER_ELECTION_H */
