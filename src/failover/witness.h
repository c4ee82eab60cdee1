/* witness.h - on the keeper: reports to other nodes about leases of the keeper's own clients, and
 * about grants that have ended.
 *
 * The keeper reports a lease of a client of its own node to one other node, the witness, so that
 * the lease survives if the keeper fails (NOTE). It reports every grant that has ended to all
 * nodes, because the grant may be in any ledger (GONE). It collects reports for a few
 * milliseconds: most locks are released within that time, and their grants need no report. */
#ifndef SL_FAILOVER_WITNESS_H
#define SL_FAILOVER_WITNESS_H

#include "failover/message.h"

/* Another node, as the keeper sees it. */
struct sl_guest_node {
    bool open;    /* The node has a route to this keeper. */
    bool ready;   /* The node has reported its ledger. */
    bool listens; /* The node has subscribers. */
    /* A lower bound of the node's clock at the time clock_at_ms of our clock; 0: unknown. */
    sl_ms clock_ms;
    sl_ms clock_at_ms; /* When our clock was read for clock_ms. */
    size_t count;      /* The number of open guests of this node. */
    bool asked;        /* The node has sent a request on this route, */
    sl_ms arrived_ms;  /* which arrived there at this time. */
    struct sl_noted_client noted;
};

#define SL_NOTES_MAX 256u

struct sl_witness {
    sl_ms due_ms; /* When to send the reports; SL_NEVER: there are none. */
    size_t note_count, gone_count;
    size_t notes_sent;  /* The number of notes that were sent, */
    bool named;         /* whether the client of the next one was sent, */
    uint32_t gone_sent; /* and the last node to which GONE was sent. */
    struct sl_note {
        sl_fence fence;
        char *key; /* Owned. */
        size_t n;
    } notes[SL_NOTES_MAX];
    sl_fence gone[SL_GONE_MAX];
};

void sl_witness_init(struct sl_witness *w);

/* Record that a client of this node took or extended a grant with a lease. Copies the key. If there
 * is no memory for it, the grant has no witness. */
void sl_witness_note(struct sl_witness *w, sl_ms now_ms, struct sl_bytes key,
                     sl_fence fence);

/* Record that a grant has ended. `at_once`: the holder may not know that, so the report is due
 * now. */
void sl_witness_gone(struct sl_witness *w, sl_ms now_ms, sl_fence fence, bool at_once);

/* Get the next message to send, if reports are due, and set *to to its receiver. Call this after
 * every call of the functions above, and at due_ms, until it returns false. `nodes` is indexed by
 * node id; bit n of `linked` says whether there is a link to node n. The bytes of the message are
 * borrowed until the next call. */
bool sl_witness_next(struct sl_witness *w, struct sl_now now,
                     const struct sl_table *table,
                     const struct sl_guest_node nodes[SL_ELECTION_NODES_MAX],
                     uint32_t linked, uint32_t *to, struct sl_failover_message *out);

/* Drop all reports, because this node is no longer the keeper. */
void sl_witness_forget(struct sl_witness *w);

#endif /* SL_FAILOVER_WITNESS_H */
