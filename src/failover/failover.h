/* failover.h - a node of a cluster on etcd: the election, the route to the keeper, and the guests
 * of a keeper, as one state machine.
 *
 *     messages, links -------+             +--> orders of the route   (sl_route_next())
 *     answers of the storage +-> failover -+--> orders of the guests  (sl_guests_next())
 *     requests, time --------+             +--> all other orders      (sl_failover_next())
 *
 *     FOLLOWS --LEAD--> LEADS --STOP--> EXPORTS --the table is copied to the ledger--> FOLLOWS
 *
 * While a node follows, its clients use the keeper through the route. While it leads, its lock
 * table decides, and it serves the guests. After each call, fetch the orders of the guests and of
 * the route, then the others. README.md states the rules. */
#ifndef SL_FAILOVER_FAILOVER_H
#define SL_FAILOVER_FAILOVER_H

#include "failover/guests.h"
#include "failover/keeper_journal.h"
#include "failover/route.h"

struct sl_failover_settings {
    uint32_t self; /* The id of this node. */
    sl_ms keeper_wait_ms;
    struct sl_hash_key hash_key;
    struct sl_table *table; /* Borrowed. Empty unless this node leads or exports. */
    sl_ms volatile_ms;      /* lease-volatile */
    /* The limits of one write to the journal: the number of entries, and their bytes. */
    uint32_t entries_max;
    size_t entry_bytes_max;
};

struct sl_failover {
    struct sl_failover_settings settings;
    struct sl_election *election; /* Owned. */
    struct sl_route route;
    struct sl_guests guests;
    struct sl_keeper_journal journal;
    sl_ms claimed_ms; /* The journal time in the last claim. */
    sl_ms journal_ms; /* As the keeper: the journal time when the term began, */
    sl_ms
        quiet_until_ms; /* until when unknown leases of earlier keepers may be valid, */
    sl_ms authority_until_ms; /* and until when the previous keeper may still grant. */
    bool ends_early;          /* The wait can end before quiet_until_ms (takeover.c). */
    bool
        incomplete; /* The journal, or the ledger of this node, has not been read completely. */
    /* The nodes in sl_storage_term.ledgers of this term: those that the storage certainly has, those of
     * the renewal under way; and whether the storage certainly has none. */
    uint32_t ledgers, ledgers_sent;
    bool no_ledgers;
    sl_ms alone_until_ms; /* Until then, only this node may know a valid lease. */
    /* If there is no witness, continue without one at this time; 0: not set. */
    sl_ms alone_at_ms;
    bool alone_asked; /* The election was asked for a renewal because of that. */
    bool reading;  /* A read of the journal is under way, perhaps of an earlier term. */
    sl_ms read_ms; /* Do not read the journal before this time. */
    bool
        unreadable; /* The journal has an invalid entry, so this keeper grants nothing. */
    uint64_t export_cursor; /* The table is copied to the ledger up to this cursor. */
    /* The limits to write with the next renewal. */
    sl_fence fence_limit;
    sl_ms longest_ms;
    bool limits_wanted; /* The caller waits until these limits are written. */
    bool limits_sent;   /* The renewal under way writes them. */
    /* As the keeper: it resigns. Private to resign.c. */
    bool resigning;
    bool recorded; /* All leases have records, which may not be durable yet. */
    /* Stop without RESIGN if no record becomes durable until the first time, or if not all are durable
     * until the second time. */
    sl_ms resign_until_ms, resign_end_ms;
    struct sl_table_walk walk;
};

enum sl_failover_order_type {
    /* Orders to the storage. Report the result with the function of the same name. */
    SL_FAILOVER_ORDER_READ_TERM, /* sl_failover_term_read() */
    SL_FAILOVER_ORDER_CLAIM,     /* sl_failover_claimed() */
    SL_FAILOVER_ORDER_RENEW,     /* sl_failover_renewed() */
    SL_FAILOVER_ORDER_RESIGN,    /* Do not report the result: it does not matter. */
    SL_FAILOVER_ORDER_RECORD,    /* sl_failover_recorded() */
    SL_FAILOVER_ORDER_JOURNAL,   /* sl_failover_journal_read() */
    SL_FAILOVER_ORDER_DOUBT,     /* Send `message` to all other nodes. */
    SL_FAILOVER_ORDER_LEAD, /* This node is the keeper of `term`. Export the rest of the table,
                                * call sl_failover_lead(), fetch all orders, begin the term with
                                * the limits in `before`, and call sl_route_resume(). */
    SL_FAILOVER_ORDER_STOP, /* This node is not the keeper of `term` any more. Fetch the orders
                                * of the guests, end the term, begin a session of the route for
                                * each client of this node, and submit their requests to it. */
    SL_FAILOVER_ORDER_KEEPER, /* `node` is the keeper of `term`; 0: none is known. */
};

struct sl_failover_order {
    enum sl_failover_order_type type;
    uint64_t term, heartbeat; /* As in struct sl_election_order. */
    uint32_t node;
    struct sl_storage_term before;
    sl_ms quiet_ms;
    sl_ms authority_ms;
    uint32_t ledgers;     /* RENEW and RESIGN: write this, too. */
    sl_fence fence_limit; /* RENEW, RESIGN and CLAIM: the limits to write. */
    sl_ms longest_ms;
    sl_ms clock_ms; /* RENEW, RESIGN and CLAIM: the journal time to write. */
    /* RECORD: the entries to write, borrowed until sl_failover_recorded(). JOURNAL: read the entries
     * after this key, borrowed until sl_failover_journal_read(). */
    const struct sl_storage_write *writes;
    uint32_t write_count;
    struct sl_bytes after;
    struct sl_failover_message message;
};

/* Initialize a node. Returns false if out of memory. */
bool sl_failover_init(struct sl_failover *f, const struct sl_failover_settings *s,
                      sl_ms now_ms);
void sl_failover_free(struct sl_failover *f);

/* --- Messages, links, time ----------------------------------------------------------------- */

/* Handle a message from another node. `name` and `address` are those of the client of m->session,
 * if it is a client of this node; HELD needs them. If sl_guests_lacks() returns true, open the guest
 * first. Bit n of `linked` says whether there is a link to node n; READY and CLOCK need it. */
void sl_failover_receive(struct sl_failover *f, struct sl_now now, uint32_t from,
                         const struct sl_failover_message *m, struct sl_bytes name,
                         struct sl_bytes address, uint32_t linked);

/* A link has begun or ended; or (`sight`) the state of the connection to a node has changed. */
void sl_failover_linked(struct sl_failover *f, sl_ms now_ms, uint32_t node);
void sl_failover_unlinked(struct sl_failover *f, sl_ms now_ms, uint32_t node);
void sl_failover_sight(struct sl_failover *f, sl_ms now_ms, uint32_t node,
                       enum sl_peer_state sight);

void sl_failover_tick(struct sl_failover *f, sl_ms now_ms);
sl_ms sl_failover_due(const struct sl_failover *f);
bool sl_failover_next(struct sl_failover *f, sl_ms now_ms,
                      struct sl_failover_order *out);

/* --- The storage ---------------------------------------------------------------------------- */

/* asked_ms is the time of the request to the storage. */
void sl_failover_term_read(struct sl_failover *f, sl_ms now_ms, sl_ms asked_ms,
                           const struct sl_storage_result *d);
void sl_failover_claimed(struct sl_failover *f, sl_ms now_ms, sl_ms asked_ms,
                         const struct sl_storage_result *d);
/* `term` is the term that was renewed. Returns true if this renewal was to write the limits
 * of sl_failover_write_limits(); d->status says whether it did. */
bool sl_failover_renewed(struct sl_failover *f, sl_ms now_ms, sl_ms asked_ms,
                         uint64_t term, const struct sl_storage_result *d);

/* `term` is the term of the order. Returns true if more changes are durable (sl_journal_durable()). */
bool sl_failover_recorded(struct sl_failover *f, sl_ms now_ms, uint64_t term,
                          const struct sl_storage_result *d);

/* Returns SLUICE_OK; or SLUICE_EINVAL if the entry *bad is invalid: then this keeper grants nothing. */
int sl_failover_journal_read(struct sl_failover *f, struct sl_now now, uint64_t term,
                             const struct sl_storage_result *d, uint32_t *bad);

/* As the keeper: renew the term now, and write these limits with the renewal. sl_failover_renewed()
 * reports the result, unless the term ends. Returns false if this node is not the keeper. */
bool sl_failover_write_limits(struct sl_failover *f, sl_ms now_ms, sl_fence fence_limit,
                              sl_ms longest_ms);

/* --- A term begins and ends -------------------------------------------------------------------- */

/* Carry out LEAD, when nothing is left to export. */
void sl_failover_lead(struct sl_failover *f, sl_ms now_ms,
                      const struct sl_failover_order *o, uint32_t linked);

/* After STOP: copy a part of the table to the ledger, for the next keeper. Reduces *budget. Returns
 * true when all is copied and the table is empty. */
bool sl_failover_export(struct sl_failover *f, struct sl_now now, uint32_t *budget);

/* As the keeper: move the next grant from the ledger to the table. If this adds a lease to the
 * table, or may lengthen one, set *given_ms to the time left of the lease; otherwise to 0. Returns
 * false if there are no more. */
bool sl_failover_reclaim_own(struct sl_failover *f, struct sl_now now, sl_ms *given_ms);

/* --- The witness ------------------------------------------------------------------------------- */

/* As the keeper: a client of this node took or extended a grant, and the journal does not delay its
 * acknowledgement. Returns the number of a note: the caller acknowledges the grant when
 * sl_failover_noted() has reached it; 0: at once; SL_NOTE_FAILED: out of memory, so undo the change. */
#define SL_NOTE_FAILED UINT64_MAX
uint64_t sl_failover_note(struct sl_failover *f, struct sl_now now, struct sl_bytes key,
                          sl_fence fence);
uint64_t sl_failover_noted(const struct sl_failover *f);

/* As the keeper: send the leases of one key to a node whose ledger lacks them, because it was started
 * recently. `able`: the nodes whose links can take more messages, as bits. Calls `send` for each message.
 * Returns false if there is nothing to send now. */
typedef void sl_failover_send(void *arg, uint32_t to,
                              const struct sl_failover_message *m);
bool sl_failover_fill(struct sl_failover *f, struct sl_now now, uint32_t able,
                      sl_failover_send *send, void *arg);

/* --- Resignation (resign.c) ---------------------------------------------------------------------- */

/* As the keeper: hand the term over to another node, which need not wait for the leases of this one.
 * From now on, the table grants and extends nothing, and the caller must answer no request that
 * needs authority. The caller must end the grants without a lease of the clients of this node before it
 * fetches the next order. The orders RESIGN and STOP follow when all leases are recorded; or STOP
 * alone, if the storage does not answer. Returns false if this node is not the keeper, or is still
 * waiting for the leases of earlier keepers. */
bool sl_failover_resign(struct sl_failover *f, sl_ms now_ms);

/* Abort and name the invariant if one is violated. */
void sl_failover_check(const struct sl_failover *f);

#endif /* SL_FAILOVER_FAILOVER_H */
