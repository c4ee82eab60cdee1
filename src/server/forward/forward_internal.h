/* forward_internal.h - shared by the files of forward/. failover/message.h describes the messages
 * between nodes. */
#ifndef SL_SERVER_FORWARD_FORWARD_INTERNAL_H
#define SL_SERVER_FORWARD_FORWARD_INTERNAL_H

#include "failover/witness.h"
#include "server/forward/forward.h"
#include "server/net/links.h"
#include "storage/storage.h"

#define SL_FORWARD_PIECE \
    32768u /* Maximum bytes of a command or reply in one message. */
#define SL_FORWARD_HIGH \
    ((size_t)1 << 20) /* Send no more on a link that has this many unsent bytes. */

/* State of a connection that has forwarded a request to the keeper. */
struct sl_forward_session {
    struct sl_list held; /* The connection's records in the ledger (ledger.h). */
    /* The route on which the node last sent a request of this connection. */
    uint64_t route;
    uint64_t described_route; /* The route on which the node last sent CLIENT. */
    sl_fence unanswered; /* A grant of the keeper whose reply has not arrived yet. */
    uint64_t tx;         /* Its transaction at the keeper; 0: none. */
    struct sl_bytes request; /* The REQUEST id of its TX.BEGIN; owned; n 0: none. */
    bool half_replied;       /* The client has received part of a reply. */
};

struct sl_forward {
    struct sl_election *election;
    bool leads;
    uint64_t term;     /* The last term in which this node was the keeper. */
    sl_node_id keeper; /* 0: unknown. */
    uint64_t keeper_term;
    /* When the last route was lost; SL_NEVER: a route exists. */
    sl_ms without_since_ms;
    /* The term in the storage when the last route was lost. */
    struct sl_storage_term lost;
    /* At least until this time, the keeper grants no other client the locks that clients here hold
     * without a lease. */
    sl_ms certain_ms;
    sl_ms read_again_ms; /* When to read the term from the storage again. */

    uint64_t route; /* The number of the current route, or of the last one. */
    sl_ms again_ms; /* When to send COME again, or SL_NEVER. */
    bool open;      /* The ledger is handed over, so requests may be sent. */
    bool handing;   /* The node is handing over its ledger. */
    bool listens;   /* The keeper knows that this node has subscribers. */
    struct sl_ledger ledger;
    struct sl_noted_client noted; /* The last CLIENT 0 from the keeper. */
    struct sl_list queued, sent;  /* Requests, in order of arrival. */
    size_t queued_count, sent_count;

    /* This node was the keeper, and is copying its table to the ledger. */
    bool exporting;
    uint64_t export_cursor; /* The table is copied up to this cursor. */
    /* As a new keeper: until when to wait for reports; 0: not waiting. */
    sl_ms reports_until_ms;

    struct sl_index proxies; /* Proxies, by node and session. */
    struct sl_list stalled;  /* Proxies whose output waits for space on the link. */
    struct sl_guest_node nodes[SL_ELECTION_NODES_MAX];

    struct sl_witness witness;

    struct sl_term_op { /* At most one storage operation of each kind at a time. */
        struct sl_storage_op op;
        bool busy;
        sl_ms asked_ms;
        bool has_state;
    } read_term, claim, renew;
    sl_fence fence_limit; /* The limits to write with the next renewal. */
    sl_ms longest_ms;
    bool state_wanted; /* state.h waits for the write of these limits. */
    struct {
        uint64_t forwarded, served, reclaimed, refused;
    } counts;
};

/* --- forward.c ------------------------------------------------------------------------- */

/* Return the forward session of a connection, creating it if necessary. Returns NULL if out of
 * memory. */
struct sl_forward_session *sl_forward_session_make(struct conn *c);

/* Return the connection's request that the remote arbiter handles, or NULL. */
struct request *sl_forward_request_of(const struct conn *c);

/* Insert a request into the queue, in order of arrival. */
void sl_forward_enqueue(struct request *r);

/* Whether the link to the keeper has fewer than SL_FORWARD_HIGH unsent bytes. */
bool sl_forward_link_has_space(struct server *s);

/* Send queued requests while the link has space. */
void sl_forward_send_queued(struct server *s);

/* Send the name and address of a client to the keeper, unless the keeper already has them. */
void sl_forward_describe(struct conn *c);

/* Remove a request from the queue, or from the sent requests. */
void sl_forward_unlist(struct request *r);

/* Answer a request with an error. */
void sl_forward_answer_problem(struct request *r, const char *code, const char *text);

/* Record that the connection's transaction at the keeper has ended; or that it was lost, because
 * the keeper failed. */
void sl_forward_tx_ended(struct conn *c);
void sl_forward_tx_lost(struct conn *c);

/* Ask the keeper to release a grant that no client knows of, and drop its record. */
void sl_forward_drop(struct server *s, struct sl_record *x);

/* Handle a message from the keeper. */
void sl_forward_from_keeper(struct server *s, const struct sl_failover_message *m);

/* --- route.c ---------------------------------------------------------------------------- */

/* Handle HERE: the keeper accepts this node. */
void sl_forward_welcomed(struct server *s, uint64_t term);

/* sl_forward_send_listening() reports to the keeper whether this node has subscribers, if that has
 * changed; sl_forward_send_clock() reports this node's clock. */
void sl_forward_send_listening(struct server *s);
void sl_forward_send_clock(struct server *s);

/* sl_forward_change_route() ends the old route, and begins a new one if there is a keeper and a
 * link. sl_forward_end_route() either answers the requests that were sent on the old route, or
 * queues them again. */
void sl_forward_change_route(struct server *s);
void sl_forward_end_route(struct server *s);
void sl_forward_begin_route(struct server *s);

/* Without a route, the keeper may soon grant to others the locks that clients here hold without a
 * lease. sl_forward_close_unleased() closes the connections of those clients in time;
 * sl_forward_close_due() returns when that is due, or SL_NEVER. */
void sl_forward_close_unleased(struct server *s);
sl_ms sl_forward_close_due(const struct server *s);

/* Hand over as much of the ledger as the budget of this loop iteration allows. Returns true if
 * there is no more to do now. */
bool sl_forward_hand_over(struct server *s);

/* For a node that has become the keeper: sl_forward_take_over() runs the queued requests here.
 * sl_forward_reclaim_own() adds the grants of its ledger to its table, as many as the budget of
 * this loop iteration allows, and returns true if there are no more. */
void sl_forward_take_over(struct server *s);
bool sl_forward_reclaim_own(struct server *s);

/* Run the requests that waited for reports, because all linked nodes have reported. */
void sl_forward_reports_complete(struct server *s);

/* Stop being the keeper: queue the requests of this node's clients for the next keeper, and abort
 * their transactions. */
void sl_forward_step_down(struct server *s);

/* --- proxy.c ---------------------------------------------------------------------------- */

void sl_proxy_init(struct server *s);
void sl_proxy_received(struct server *s, sl_node_id from,
                       const struct sl_failover_message *m);

/* Close the proxies of a node (0: of all nodes), because the link has ended or this node is no
 * longer the keeper. */
void sl_proxy_close_all(struct server *s, sl_node_id node);

/* Whether all linked nodes have reported their ledgers. */
bool sl_proxy_all_ready(const struct server *s);

/* As keeper, add a reported grant to the table. `n` is the session of its holder; NULL: the
 * holder has left. Returns false if the grant can no longer be held. */
bool sl_forward_reclaim(struct server *s, struct session *n,
                        const struct sl_grant_view *v, struct sl_bytes key);

/* Callbacks of the local arbiter (arbiter/local.h). */
void sl_forward_held(struct conn *c, struct sl_bytes key, sl_fence fence, bool fresh);
void sl_forward_gone(struct server *s, sl_fence fence, bool at_once);

/* As keeper, send the reports to other nodes that are due. */
void sl_forward_send_reports(struct server *s);

/* --- Messages -------------------------------------------------------------------------- */

/* Send a message. Returns false if there is no link. */
bool sl_forward_send(struct server *s, sl_node_id to,
                     const struct sl_failover_message *m);

/* Send CLIENT. */
void sl_forward_send_client(struct server *s, sl_node_id to, uint64_t session,
                            struct sl_bytes name, struct sl_bytes address);

#endif /* SL_SERVER_FORWARD_FORWARD_INTERNAL_H */
