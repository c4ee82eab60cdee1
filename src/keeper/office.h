/* office.h - who is the keeper of a cluster, as one node sees it; and whether it is this one.
 *
 * An office is a value: time, what the engine says and what is seen of other nodes come in;
 * orders come out of sl_office_next(). What counts is the engine's: terms rise there, one
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
#ifndef SL_KEEPER_OFFICE_H
#define SL_KEEPER_OFFICE_H

#include "keeper/keeper.h"

struct sl_office; /* Opaque. */

#define SL_OFFICE_NODES_MAX 16u /* Numbers of nodes are below. */

struct sl_office_settings {
    uint32_t self;
    sl_ms authority_ms; /* 2000 */
    sl_ms beat_ms;      /* 500: a keeper renews so often. */
    sl_ms silence_ms;   /* 3000 */
};
extern const struct sl_office_settings sl_office_settings_default;

/* What this node sees of its connection with another one. */
enum sl_sight { SL_IS_UP, SL_IS_SILENT, SL_IS_CLOSED };

enum sl_office_order_type {
    SL_OO_LOOK,   /* Of the engine: who is the keeper? */
    SL_OO_CLAIM,  /* term, and beat unless it is 0: to be compared. */
    SL_OO_RENEW,  /* term */
    SL_OO_DOUBT,  /* Tell all nodes: what this one sees of the keeper of this term; a
                   * silence only once it has lasted for silence_ms, UP until then. */
    SL_OO_LEAD,   /* This node is the keeper: of this term, after that reign. */
    SL_OO_STOP,   /* It is no more; which one is may be told next, or later. */
    SL_OO_KEEPER, /* The keeper is this node now; 0: none is known. */
};

struct sl_office_order {
    enum sl_office_order_type type;
    uint64_t term;
    uint64_t beat;
    uint32_t node;
    enum sl_sight sight;    /* DOUBT. */
    struct sl_reign before; /* LEAD: fences go on above its limit; */
    sl_ms quiet_ms;         /* and so long, from the answer on, nothing but
                                * transactions and reclaims are granted. */
};

struct sl_office *sl_office_new(const struct sl_office_settings *s, sl_ms now);
void sl_office_free(struct sl_office *o); /* NULL is allowed. */

/* --- What happens ------------------------------------------------------------------ */

/* All nodes of the cluster, this one too if it is one of them. */
void sl_office_members(struct sl_office *o, sl_ms now, const uint32_t *ids, size_t n);

/* The connection with another node has changed. At first all are silent. */
void sl_office_sees(struct sl_office *o, sl_ms now, uint32_t node, enum sl_sight sight);

/* Another node says what it sees of the keeper of this term. */
void sl_office_hears(struct sl_office *o, sl_ms now, uint32_t from, uint64_t term,
                     enum sl_sight sight);

/* What the engine says: of LOOK, CLAIM, RENEW, asked for at that time. EIO, ENOMEM ...:
 * it is not known. And what its watch tells. */
void sl_office_looked(struct sl_office *o, sl_ms now, sl_ms asked_ms,
                      const struct sl_done *d);
void sl_office_claimed(struct sl_office *o, sl_ms now, sl_ms asked_ms,
                       const struct sl_done *d);
void sl_office_renewed(struct sl_office *o, sl_ms now, sl_ms asked_ms,
                       const struct sl_done *d);
void sl_office_told(struct sl_office *o, sl_ms now, const struct sl_reign *r);

/* The engine has refused something, as this term is current. */
void sl_office_refused(struct sl_office *o, sl_ms now, uint64_t term);

/* A request finds no keeper, or cannot reach it. */
void sl_office_needs(struct sl_office *o, sl_ms now);

/* A keeper has something to be kept with its next renewal, which is wanted at once. */
void sl_office_hurries(struct sl_office *o, sl_ms now);

void sl_office_tick(struct sl_office *o, sl_ms now);
sl_ms sl_office_due(const struct sl_office *o);
bool sl_office_next(struct sl_office *o, struct sl_office_order *out);

/* --- Ask --------------------------------------------------------------------------- */

enum sl_office_state { SL_WATCHES, SL_CLAIMS, SL_LEADS };

struct sl_office_view {
    enum sl_office_state state;
    struct sl_reign reign;  /* The last that is known. */
    sl_ms authority_end_ms; /* LEADS: nothing is granted from then on. */
    sl_ms looked_ms;        /* The reign was so at this time, at least. */
    uint32_t doubts;        /* Nodes that do not see the keeper now, this one too. */
    uint64_t claims, refused;
};
void sl_office_look(const struct sl_office *o, struct sl_office_view *out);

/* Abort, naming the invariant, if one is broken. */
void sl_office_check(const struct sl_office *o);

#endif /* SL_KEEPER_OFFICE_H */
