/* guests.h - on the keeper: the other nodes, and the sessions of their clients.
 *
 * A *guest* is a session of a client of another node. The keeper runs its requests with its own
 * lock table, and sends the replies to that node. When the link to the node ends, the guest has no
 * connection any more, but its grants without a lease *linger* for a while: the node may return
 * and report them.
 *
 *     (none) --opened--> OPEN --END, or the link ends--> LINGERS --session over--> (none)
 *
 * Guests have no side effects, except in the lock table. Their inputs are the time, messages of the
 * nodes and events of the lock table; their outputs are the orders that sl_guests_next() returns.
 * README.md states the rules. The caller owns the guests. */
#ifndef SL_FAILOVER_GUESTS_H
#define SL_FAILOVER_GUESTS_H

#include "base/index.h"
#include "failover/withdrawn.h"
#include "failover/witness.h"

/* A new keeper waits at most this long for the reports of other nodes. Meanwhile, commands about locks
 * wait, except ACQUIRE without a REQUEST id. */
#define SL_REPORTS_MS 1000
/* When the link to a node ends, the grants without a lease of its clients linger for at least this
 * time. */
#define SL_ADRIFT_MS 2000
#define SL_GUESTS_MAX 200000u /* Maximum open guests of one node. */
#define SL_ENDED_MAX 131072u  /* Maximum grants in sl_guests.ended. */

struct sl_guest {
    uint32_t node; /* The node of the client. */
    uint64_t id;   /* The client's session on that node. */
    struct sl_session *session;
    bool open;        /* It has a connection. */
    bool partial;     /* A part of its last command has arrived. */
    sl_ms came_ms;    /* When its last command arrived at the keeper. */
    sl_ms arrived_ms; /* When its last command arrived at the client's node. */
    /* The client's node knows that the guest ends, or the link to the node has ended. */
    bool gone;
    bool adrift; /* The link to the node has ended. */
    /* Private. */
    struct sl_list all; /* In guests.all. */
    struct sl_list due; /* In guests.due: close it, or end its session. */
};

enum sl_guests_order_type {
    SL_GUESTS_ORDER_SEND, /* Send `message` to the node `to`; it may be lost. */
    SL_GUESTS_ORDER_RUN, /* Feed the bytes of `message` to `guest`; run them if they are the
                             * last of a command. */
    SL_GUESTS_ORDER_NAME, /* The client of `guest` has the name in `message`. */
    SL_GUESTS_ORDER_FAIL, /* Its node rejected a command of the transaction of `guest`. */
    SL_GUESTS_ORDER_CLOSE, /* Close the connection of `guest`; `cut`: it broke. */
    SL_GUESTS_ORDER_END,   /* End the session of `guest`, which lingers. */
    SL_GUESTS_ORDER_RELEASE, /* Release the grant of the key and the fence in `message`, which
                             * no client knows of. */
    SL_GUESTS_ORDER_GIVEN,  /* A lease was reclaimed that lasts for `ms`. */
    SL_GUESTS_ORDER_LISTEN, /* The set of nodes with subscribers has changed. */
};

/* All pointers are borrowed until the next call. */
struct sl_guests_order {
    enum sl_guests_order_type type;
    uint32_t to;
    struct sl_guest *guest;
    bool cut;
    sl_ms ms;
    struct sl_failover_message message;
};

struct sl_guests {
    struct sl_table *table; /* Borrowed. */
    bool leads;             /* This node is the keeper, */
    uint64_t term;          /* of this term. */
    bool stopping;          /* The server is shutting down; set by the caller. */
    struct sl_guest_node nodes[SL_ELECTION_NODES_MAX];
    struct sl_index by_client;  /* Open guests, by node and id. */
    struct sl_index by_session; /* All guests, by the id of their session. */
    struct sl_list all;
    struct sl_list due;
    struct sl_witness witness;
    /* Withdrawals of other nodes, while nodes still report grants. */
    struct sl_withdrawn withdrawn;
    const struct sl_withdrawn *own; /* Those of this node; borrowed; NULL: none. */
    /* During the wait of a new keeper: grants that have ended here, by fence. A node that does not know
     * of the end may still report such a grant. */
    struct sl_index ended;
    struct sl_list ended_all;
    /* As a new keeper: until when to wait for reports. 0: it no longer waits for the reports or the journal. */
    sl_ms reports_until_ms;
    /* During the wait of a new keeper: the previous keeper, which has resigned; 0: it has not. */
    uint32_t resigner;
    /* Nodes, as bits: those whose reports the wait needs (takeover.c); those that have reported in
     * this term; and those that may not begin a route, set by the caller. */
    uint32_t needed, reported, barred;
    sl_ms longest_ms; /* The longest lease of earlier keepers that has no record. */
    sl_ms
        complete_ms; /* From then on, no lease is missing in a ledger that was reported. */
    sl_ms volatile_ms;  /* lease-volatile; set by the caller. */
    bool reads_journal; /* As a new keeper: the journal has not been read yet. */
    bool listen_due;    /* The set of nodes with subscribers has changed. */
    uint32_t not_due; /* Nodes, as bits: tell them that this node is not the keeper. */
    sl_fence gone;    /* The fence that `order` borrows. */
    bool has_order;   /* `order` comes before all others. */
    struct sl_guests_order order;
    uint64_t served, reclaimed, refused; /* Counters. */
};

void sl_guests_init(struct sl_guests *g, struct sl_table *table,
                    struct sl_hash_key key);
void sl_guests_free(struct sl_guests *g);

/* --- This node becomes the keeper, or steps down ---------------------------------------- */

/* Bit n of `linked` says whether there is a link to node n. `quiet`: earlier keepers may have made
 * grants that nodes will report; longest_ms is the longest lease without a record. */
void sl_guests_lead(struct sl_guests *g, sl_ms now_ms, uint64_t term, bool quiet,
                    sl_ms longest_ms, uint32_t linked);
void sl_guests_stop(struct sl_guests *g);

/* All entries of the journal have been read. */
void sl_guests_journal_read(struct sl_guests *g);

/* Whether the wait for reports has just ended: all linked nodes have reported, or the wait has
 * timed out; and the journal has been read. */
bool sl_guests_reports_end(struct sl_guests *g, sl_ms now_ms);

/* As the keeper: return for how much longer it grants nothing, because leases of earlier keepers may
 * be valid; 0: it grants. If it waits for the report of a node, sets *node to that node, otherwise to
 * 0. */
sl_ms sl_guests_quiet_ms(const struct sl_guests *g, sl_ms now_ms, uint32_t linked,
                         uint32_t *node);

/* The ledger of this node, or of another one, has been complete only for this time, so it may lack
 * older records. */
void sl_guests_is_complete(struct sl_guests *g, sl_ms now_ms, sl_ms age_ms);

/* Return the nodes that may have leases in their ledgers that no other node has, besides `members`. */
uint32_t sl_guests_ledgers(const struct sl_guests *g, sl_ms now_ms, uint32_t members);

/* --- Guests -------------------------------------------------------------------------------- */

/* Whether this message needs a guest that does not exist. Then call sl_guests_open() first. */
bool sl_guests_lacks(const struct sl_guests *g, uint32_t from,
                     const struct sl_failover_message *m);

/* Begin to use a guest, whose session has begun. Returns SLUICE_OK; SLUICE_EFULL if the node
 * has too many guests; or SLUICE_ENOMEM. */
int sl_guests_open(struct sl_guests *g, struct sl_guest *n, uint32_t node, uint64_t id,
                   struct sl_session *session);

/* The connection of a guest is closed. Returns true if the caller must send *out to its node. */
bool sl_guests_closed(struct sl_guests *g, struct sl_guest *n,
                      struct sl_failover_message *out);

/* The session of a guest has ended: the caller frees it. */
void sl_guests_over(struct sl_guests *g, struct sl_guest *n);

/* Return how long the grants of a closed guest linger; `ms` is the setting. */
sl_ms sl_guest_linger_ms(const struct sl_guest *n, sl_ms ms);

/* Find an open guest. Returns NULL if there is none. */
struct sl_guest *sl_guests_find(const struct sl_guests *g, uint32_t node, uint64_t id);

/* The link to a node has ended: close its guests. */
void sl_guests_unlinked(struct sl_guests *g, sl_ms now_ms, uint32_t node);

/* --- The lock table --------------------------------------------------------------------------- */

/* A guest took (`fresh`) or extended a grant; its command arrived at the keeper at came_ms. Sets `out` to
 * the messages that the caller must send to the guest's node before the reply, and returns their
 * number. */
size_t sl_guests_held(struct sl_guests *g, struct sl_now now, const struct sl_guest *n,
                      sl_ms came_ms, struct sl_bytes key, sl_fence fence, bool fresh,
                      struct sl_failover_message out[2]);

/* A grant has ended. If the end must be durable, it is. `at_once`: the holder may not know of the end. */
void sl_guests_gone(struct sl_guests *g, sl_ms now_ms, sl_fence fence, bool at_once);

/* An operator has broken a grant, or a thief was granted the lock by force. `ended`: the grant has ended
 * with that (BREAK NOW). The ledgers of the nodes still have the grant. They drop it when
 * sl_guests_gone() is called, or its lease expires: before the record is durable, the next keeper must
 * learn of the grant from them. */
void sl_guests_broke(struct sl_guests *g, sl_ms now_ms, sl_fence fence, bool ended);

/* The journal says that this grant was stolen: a thief was granted the lock by force while it was held. If a node
 * reports the grant during the wait, the grant still cannot be extended. */
void sl_guests_stole(struct sl_guests *g, sl_ms now_ms, sl_fence fence);

/* A ledger has this grant. If BREAK NOW has ended it during the wait, the mark of its key lasts until
 * the reported expiry. Call this before sl_guests_withdrew(). */
void sl_guests_reported(struct sl_guests *g, struct sl_now now,
                        const struct sl_grant_view *v, struct sl_bytes key);

/* Add a reported grant to the table. `session` is that of its holder; NULL: the holder has left.
 * `guest` is the holder if it is a guest. Returns false if the grant can no longer be held. Sets
 * *added if the grant was not in the table before, or its lease may last longer now. */
bool sl_guests_reclaim(struct sl_guests *g, struct sl_now now,
                       struct sl_session *session, const struct sl_guest *guest,
                       const struct sl_grant_view *v, struct sl_bytes key, bool *added);

/* Whether this grant, which is about to be added to the table, has ended here, or a node has withdrawn
 * it. */
bool sl_guests_withdrew(const struct sl_guests *g, struct sl_bytes key,
                        const struct sl_grant_view *v);

/* --- Messages, time, orders ---------------------------------------------------------------- */

/* Handle a message from another node. For CLOCK, the caller reads `now` after the message has
 * arrived. */
void sl_guests_receive(struct sl_guests *g, struct sl_now now, uint32_t from,
                       const struct sl_failover_message *m, uint32_t linked);

/* Return when reports are due, or when the wait for reports ends; or SL_NEVER. */
sl_ms sl_guests_due(const struct sl_guests *g);

/* Get the next order. Returns false if there is none. */
bool sl_guests_next(struct sl_guests *g, struct sl_now now, uint32_t linked,
                    struct sl_guests_order *out);

/* Abort and name the invariant if one is violated. */
void sl_guests_check(const struct sl_guests *g);

#endif /* SL_FAILOVER_GUESTS_H */
