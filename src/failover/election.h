/* office.h - who is the keeper of a cluster, as one node sees it; and whether it is this one.
 *
 * An office is a value: time, what the engine says and what is seen of other nodes come in;
 * orders come out of sl_election_next(). What counts is the engine's: terms rise there, one
 * keeper a term. Here is decided when to ask, and for how long an answer is good.
 *
 *     WATCHES --a reason--> CLAIMS --confirmed--> LEADS --refused, deposed--> WATCHES
 *                              \--refused--> WATCHES
 *
 * Reasons to claim the next term, each with what the claim compares:
 *
 *     there was never a keeper                               the term
 *     it is this node, which does not lead: it was restarted  the term
 *     a majority of nodes finds its connection closed         the term, at once
 *     a majority has not heard of it for `silence_ms`         the term
 *     it has not renewed for `silence_ms`, though the engine answers   term and beat
 *
 * so one node, or one client, that cannot reach a keeper does not depose it. A keeper that
 * renews in the last moment is not deposed for its silence.
 *
 * Authority. What a keeper grants outside of transactions guards things that know no term,
 * so it grants only until `authority_ms` after it *asked* for the last renewal that was
 * confirmed; who claims the next term waits for that, and for the longest lease that may
 * have been given before, by clocks that differ by up to 1 in 500 (A10). If its
 * renewals fail it stops granting, and goes on when one succeeds, if its term is current
 * still. README.md has the argument. */
#ifndef SL_FAILOVER_ELECTION_H
#define SL_FAILOVER_ELECTION_H

#include "storage/storage.h"

struct sl_election; /* Opaque. */

#define SL_ELECTION_NODES_MAX 16u /* Numbers of nodes are below. */

struct sl_election_settings {
    uint32_t self;
    sl_ms authority_ms; /* 2000 */
    sl_ms beat_ms;      /* 500: a keeper renews so often. */
    sl_ms silence_ms;   /* 3000 */
};
extern const struct sl_election_settings sl_election_settings_default;

/* What this node sees of its connection with another one. */
enum sl_peer_state { SL_PEER_UP, SL_PEER_SILENT, SL_PEER_CLOSED };

enum sl_election_order_type {
    SL_ELECTION_ORDER_READ_TERM, /* Of the engine: who is the keeper? */
    SL_ELECTION_ORDER_CLAIM,     /* term, and beat unless it is 0: to be compared. */
    SL_ELECTION_ORDER_RENEW,     /* term */
    SL_ELECTION_ORDER_DOUBT, /* Tell all nodes: what this one sees of the keeper of this term; a
                   * silence only once it has lasted for silence_ms, UP until then. */
    SL_ELECTION_ORDER_LEAD, /* This node is the keeper: of this term, after that reign. */
    SL_ELECTION_ORDER_STOP, /* It is no more; which one is may be told next, or later. */
    SL_ELECTION_ORDER_KEEPER, /* The keeper is this node now; 0: none is known. */
};

struct sl_election_order {
    enum sl_election_order_type type;
    uint64_t term;
    uint64_t beat;
    uint32_t node;
    enum sl_peer_state sight;      /* DOUBT. */
    struct sl_storage_term before; /* LEAD: fences go on above its limit; */
    sl_ms quiet_ms;                /* and so long, from the answer on, nothing but
                                * transactions and reclaims are granted. */
};

struct sl_election *sl_election_new(const struct sl_election_settings *s, sl_ms now);
void sl_election_free(struct sl_election *o); /* NULL is allowed. */

/* --- What happens ------------------------------------------------------------------ */

/* All nodes of the cluster, this one too if it is one of them. */
void sl_election_members(struct sl_election *o, sl_ms now, const uint32_t *ids,
                         size_t n);

/* The connection with another node has changed. At first all are silent. */
void sl_election_peer_changed(struct sl_election *o, sl_ms now, uint32_t node,
                              enum sl_peer_state sight);

/* Another node says what it sees of the keeper of this term. */
void sl_election_peer_doubts(struct sl_election *o, sl_ms now, uint32_t from,
                             uint64_t term, enum sl_peer_state sight);

/* What the engine says: of LOOK, CLAIM, RENEW, asked for at that time. EIO, ENOMEM ...:
 * it is not known. And what its watch tells. */
void sl_election_term_read(struct sl_election *o, sl_ms now, sl_ms asked_ms,
                           const struct sl_storage_result *d);
void sl_election_claimed(struct sl_election *o, sl_ms now, sl_ms asked_ms,
                         const struct sl_storage_result *d);
void sl_election_renewed(struct sl_election *o, sl_ms now, sl_ms asked_ms,
                         const struct sl_storage_result *d);
void sl_election_term_changed(struct sl_election *o, sl_ms now,
                              const struct sl_storage_term *r);

/* The engine has refused something, as this term is current. */
void sl_election_refused(struct sl_election *o, sl_ms now, uint64_t term);

/* A request finds no keeper, or cannot reach it. */
void sl_election_read_soon(struct sl_election *o, sl_ms now);

/* A keeper has something to be kept with its next renewal, which is wanted at once. */
void sl_election_hurries(struct sl_election *o, sl_ms now);

void sl_election_tick(struct sl_election *o, sl_ms now);
sl_ms sl_election_due(const struct sl_election *o);
bool sl_election_next(struct sl_election *o, struct sl_election_order *out);

/* --- Ask --------------------------------------------------------------------------- */

enum sl_election_state {
    SL_ELECTION_WATCHING,
    SL_ELECTION_CLAIMING,
    SL_ELECTION_LEADING
};

struct sl_election_view {
    enum sl_election_state state;
    struct sl_storage_term reign; /* The last that is known. */
    sl_ms authority_end_ms;       /* LEADS: nothing is granted from then on. */
    sl_ms looked_ms;              /* The reign was so at this time, at least. */
    uint32_t doubts; /* Nodes that do not see the keeper now, this one too. */
    uint64_t claims, refused;
};
void sl_election_view(const struct sl_election *o, struct sl_election_view *out);

/* Abort, naming the invariant, if one is broken. */
void sl_election_check(const struct sl_election *o);

#endif /* SL_FAILOVER_ELECTION_H */
