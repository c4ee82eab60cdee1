/* witness.h - on the keeper: reports to other nodes about leases of the keeper's own clients, and
 * about grants that have ended.
 *
 * The keeper reports a lease of a client of its own node to another node, the witness, before the
 * client learns of the lease (NOTE). So the lease survives if the keeper fails. Notes are numbered.
 * The witness answers MARK with NOTED when it has recorded all notes before it. If the witness is
 * lost, another node becomes the witness, and the keeper sends it the notes that are not confirmed.
 *
 * The keeper reports every grant that has ended to all nodes, because the grant may be in any ledger
 * (GONE). It collects these reports for a few milliseconds. If it sends a note before that, the witness receives
 * them with the note. */
#ifndef SL_FAILOVER_WITNESS_H
#define SL_FAILOVER_WITNESS_H

#include "failover/message.h"

/* Another node, as the keeper sees it. */
struct sl_guest_node {
    bool open;        /* The node has a route to this keeper. */
    sl_ms here_ms;    /* When the route began. */
    bool ready;       /* The node has reported its ledger. */
    bool listens;     /* The node has subscribers. */
    bool lacks;       /* Its ledger may lack leases; */
    uint64_t filled;  /* the keeper has sent those of the keys up to this cursor, */
    uint64_t filling; /* and, of the next key, which has this hash, */
    sl_fence filled_fence; /* those up to this fence. */
    /* Until then, the node may be the only one that has a lease in its ledger. */
    sl_ms until_ms;
    /* A lower bound of the node's clock at the time clock_at_ms of our clock; 0: unknown. */
    sl_ms clock_ms;
    sl_ms clock_at_ms; /* When our clock was read for clock_ms. */
    size_t count;      /* The number of open guests of this node. */
    bool asked;        /* The node has sent a request on this route, */
    sl_ms arrived_ms;  /* which arrived there at this time. */
    struct sl_noted_client noted;
};

struct sl_witness {
    uint32_t node;         /* The witness; 0: none. */
    uint64_t last;         /* The number of the last note. */
    uint64_t noted;        /* Up to this number, the notes are recorded. */
    uint64_t sent, marked; /* Up to these numbers, notes and MARK were sent. */
    uint64_t
        searched; /* When the last note was this one, no node could be the witness. */
    bool named;   /* The client of the next note was sent. */
    struct sl_note {
        sl_fence fence;
        char *key; /* Owned. */
        size_t n;
    } * notes;     /* A ring: note i is at i % size. Owned. */
    uint64_t size; /* A power of two; 0: no memory yet. */
    sl_ms due_ms;  /* When to send GONE; SL_NEVER: there is nothing to send. */
    size_t gone_count;
    size_t gone_told;   /* So many of them were already sent to the witness. */
    uint32_t gone_sent; /* The last node to which GONE was sent. */
    sl_fence gone[SL_GONE_MAX];
};

void sl_witness_init(struct sl_witness *w);

/* Add a note: a client of this node took or extended a grant with a lease. Copies the key. Returns its
 * number, or 0 if out of memory. */
uint64_t sl_witness_note(struct sl_witness *w, struct sl_bytes key, sl_fence fence);

/* Up to this number, the notes are recorded, or need not be. */
void sl_witness_noted(struct sl_witness *w, uint64_t number);

/* The route of a node has ended. */
void sl_witness_lost(struct sl_witness *w, uint32_t node);

/* Whether there are notes, and no node can record them. */
bool sl_witness_is_missing(const struct sl_witness *w);

/* Record that a grant has ended. `at_once`: the holder may not know that, so the report is due
 * now. */
void sl_witness_gone(struct sl_witness *w, sl_ms now_ms, sl_fence fence, bool at_once);

/* Whether sl_witness_next() may have a message now. */
bool sl_witness_is_due(const struct sl_witness *w, sl_ms now_ms);

/* Get the next message to send, and set *to to its receiver. Call this after every call of the
 * functions above, and at due_ms, until it returns false. `nodes` is indexed by node id; bit n of
 * `linked` says whether there is a link to node n. The bytes of the message are borrowed until the
 * next call. */
bool sl_witness_next(struct sl_witness *w, struct sl_now now,
                     const struct sl_table *table,
                     const struct sl_guest_node nodes[SL_ELECTION_NODES_MAX],
                     uint32_t linked, uint32_t *to, struct sl_failover_message *out);

/* Return the note of a grant for a node whose clock is known. The time is by the clock of that node, so
 * a message that arrives late does not make the lease longer. */
struct sl_failover_message sl_note_for(const struct sl_guest_node *node, sl_ms now_ms,
                                       struct sl_bytes key,
                                       const struct sl_grant_view *v);

/* Drop all reports, because this node is no longer the keeper. */
void sl_witness_forget(struct sl_witness *w);
void sl_witness_free(struct sl_witness *w);

#endif /* SL_FAILOVER_WITNESS_H */
