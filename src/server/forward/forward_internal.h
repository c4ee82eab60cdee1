/* forward_internal.h - shared by the files of forward/, and the frames between nodes.
 *
 * A frame on a link is a command of the Redis protocol. A route begins with R.COME. If the keeper
 * answers R.HERE, the node sends the grants in its ledger, then R.READY, then requests.
 *
 *     to the keeper                        from the keeper
 *     R.COME term                          R.HERE term, or R.NOT term: it is not the keeper
 *     R.RECLAIM session RECORD             R.LOST session fence    the keeper rejects this grant
 *     R.READY
 *     R.DO session waited_ms resp3 last bytes     R.SAY session what tx bytes
 *     R.CLIENT session name address        R.CLIENT 0 name address
 *     R.END session cut                    R.CUT session
 *     R.DROP session key fence             R.HELD session fresh age_ms RECORD
 *     R.FAIL session command               the node rejected this command of a transaction
 *     R.LISTEN yes                         R.EVENT channel text
 *     R.CLOCK ms                           R.NOTE ms RECORD: ms is a time of the receiver's clock
 *                                          R.GONE fence ...
 *     between all nodes: R.DOUBT term sight
 *
 *     R.CLIENT names the client of a session. With session 0 it is about the RECORD in the next frame
 *     of that kind: R.NOTE, R.RECLAIM 0, or R.HELD of an extension.
 *     age_ms: since the R.DO arrived. tx: the transaction that the session has now, 0: none.
 *     RECORD: record.h */
#ifndef SL_SERVER_FORWARD_FORWARD_INTERNAL_H
#define SL_SERVER_FORWARD_FORWARD_INTERNAL_H

#include "locks/client.h"
#include "server/forward/forward.h"
#include "server/forward/record.h"
#include "server/net/links.h"
#include "storage/storage.h"

#define SL_FORWARD_PIECE 32768u /* Bytes of a command or reply in one frame. */
#define SL_FORWARD_HIGH \
    ((size_t)1 << 20) /* A link with this many unsent bytes gets no more. */

/* `what` of R.SAY: these bytes complete the reply; or more bytes of the reply or push follow. */
#define SL_SAY_LAST 1u
#define SL_SAY_MORE 2u

/* A node has one for each connection that has forwarded a request. */
struct sl_forward_session {
    struct sl_list held; /* Its records in the ledger (ledger.h). */
    uint64_t route;      /* The route on which the node last sent a request of it, */
    uint64_t described_route; /* and the one on which it last sent R.CLIENT. */
    sl_fence unanswered; /* The keeper has granted it, and the reply is under way. */
    uint64_t tx;         /* Its transaction at the keeper; 0: none. */
    struct sl_bytes request; /* The id of its TX.BEGIN REQUEST; owned; n 0: none. */
    bool half_replied;       /* The client has got a part of a reply. */
};

/* The last R.CLIENT of session 0. */
struct sl_frame_client {
    size_t name_bytes, address_bytes;
    char text[SL_CLIENT_NAME_MAX + SL_CLIENT_ADDRESS_MAX];
};

/* The keeper has one for each other node. */
struct sl_proxy_node {
    bool open;         /* It has a route to this keeper. */
    bool ready;        /* It has reported its ledger. */
    bool listens;      /* It has subscribers. */
    sl_ms clock_ms;    /* Its clock when our own showed clock_at_ms, or earlier; */
    sl_ms clock_at_ms; /* clock_ms 0: unknown. */
    size_t count;      /* Proxies of its clients. */
    struct sl_frame_client noted;
};

#define SL_NOTES_MAX 256u
#define SL_GONE_MAX 60u /* A frame has at most this many arguments. */

/* Reports to the ledgers of other nodes (witness.c). */
struct sl_witness {
    sl_ms due_ms; /* When to send them; SL_NEVER: there are none. */
    size_t note_count, gone_count;
    struct sl_note {
        sl_fence fence;
        char *key;
        size_t n;
    } notes[SL_NOTES_MAX];
    sl_fence gone[SL_GONE_MAX];
};

struct sl_forward {
    struct sl_election *election;
    bool leads;
    uint64_t term;     /* The last term in which this node was the keeper. */
    sl_node_id keeper; /* 0: unknown. */
    uint64_t keeper_term;
    sl_ms without_since_ms; /* When the last route was lost; SL_NEVER: there is one. */
    struct sl_storage_term lost; /* The term in the storage at that time. */
    sl_ms certain_ms; /* Until then at least, nobody was granted what clients here hold
                          * without a lease. */
    sl_ms read_again_ms; /* When to read the term again. */

    uint64_t route; /* The number of the current or last route. */
    sl_ms again_ms; /* When to send R.COME again, or SL_NEVER. */
    bool open;      /* The ledger is handed over, requests may follow. */
    bool handing;   /* The node hands its ledger over. */
    bool listens;   /* The keeper knows that this node has subscribers. */
    struct sl_ledger ledger;
    struct sl_frame_client noted; /* From the keeper. */
    struct sl_list queued, sent;  /* Requests, in order of arrival. */
    size_t queued_count, sent_count;

    bool exporting; /* It was the keeper, and copies its table into the ledger: */
    uint64_t export_cursor; /* up to here. */
    sl_ms
        reports_until_ms; /* As a new keeper: how long it waits for reports; 0: no more. */

    struct sl_index proxies; /* By node and session. */
    struct sl_list stalled;  /* Proxies with output that waits for their link. */
    struct sl_proxy_node nodes[SL_NODE_ID_MAX + 1];

    struct sl_witness witness;

    struct sl_term_op { /* One operation of the storage of each kind at a time. */
        struct sl_storage_op op;
        bool busy;
        sl_ms asked_ms;
        bool has_state;
    } read_term, claim, renew;
    sl_fence fence_limit; /* Limits for the next renewal to write. */
    sl_ms longest_ms;
    bool state_wanted; /* state.h waits for that write. */
    struct {
        uint64_t forwarded, served, reclaimed, refused;
    } counts;
};

/* --- forward.c ------------------------------------------------------------------------- */

/* The forward session of a connection, made if there is none. NULL: out of memory. */
struct sl_forward_session *sl_forward_session_make(struct conn *c);

/* The request of a connection that the remote arbiter decides; NULL: none. */
struct request *sl_forward_request_of(const struct conn *c);

/* Put a request into the queue, by time of arrival. */
void sl_forward_enqueue(struct request *r);

/* Whether the link to the keeper has fewer than SL_FORWARD_HIGH unsent bytes. */
bool sl_forward_link_has_space(struct server *s);

/* Send queued requests while the link has space. */
void sl_forward_send_queued(struct server *s);

/* Send the name and address of a client to the keeper, unless it has them. */
void sl_forward_describe(struct conn *c);

/* Remove a request from the queue, or from the sent requests. */
void sl_forward_unlist(struct request *r);

/* Answer a request with an error. */
void sl_forward_answer_problem(struct request *r, const char *code, const char *text);

/* The transaction that a connection had at the keeper has ended; or it was lost with the keeper. */
void sl_forward_tx_ended(struct conn *c);
void sl_forward_tx_lost(struct conn *c);

/* Let the keeper release a grant that no client knows of, and drop its record. */
void sl_forward_drop(struct server *s, struct sl_record *x);

/* Handle a frame from the keeper. */
void sl_forward_from_keeper(struct server *s, const struct sl_args *a);

/* Whether a frame has this name and this many arguments. */
bool sl_forward_frame_is(const struct sl_args *a, const char *name, size_t n);

/* --- route.c ---------------------------------------------------------------------------- */

/* R.HERE: the keeper accepts this node. */
void sl_forward_welcomed(struct server *s, const struct sl_args *a);

/* Report to the keeper whether this node has subscribers, if that has changed; and its clock. */
void sl_forward_send_listening(struct server *s);
void sl_forward_send_clock(struct server *s);

/* The route has changed: end the old one, which settles its requests or queues them again, and
 * begin a new one if there is a keeper and a link. */
void sl_forward_change_route(struct server *s);
void sl_forward_end_route(struct server *s);
void sl_forward_begin_route(struct server *s);

/* Without a route, the keeper may soon grant to others what clients here hold without a lease:
 * close the connections of those clients in time. When that is due, or SL_NEVER. */
void sl_forward_close_unleased(struct server *s);
sl_ms sl_forward_close_due(const struct server *s);

/* Hand the ledger over, as much as this turn allows. True: there is no more to do now. */
bool sl_forward_hand_over(struct server *s);

/* This node has become the keeper: run queued requests here; and put the grants of its ledger into
 * its table, as many as this turn allows. True: there are no more. */
void sl_forward_take_over(struct server *s);
bool sl_forward_reclaim_own(struct server *s);

/* All nodes that this one is linked with have reported: run the requests that waited for that. */
void sl_forward_reports_complete(struct server *s);

/* This node is not the keeper any more: queue the requests of its clients for the next keeper, and
 * abort their transactions. */
void sl_forward_step_down(struct server *s);

/* --- proxy.c ---------------------------------------------------------------------------- */

void sl_proxy_init(struct server *s);
void sl_proxy_received(struct server *s, sl_node_id from, const struct sl_args *args);

/* Close the proxies of a node, or of all nodes (0): the link has ended, or this node is not the
 * keeper any more. */
void sl_proxy_close_all(struct server *s, sl_node_id node);

/* Whether all nodes that this one is linked with have reported their ledgers. */
bool sl_proxy_all_ready(const struct server *s);

/* As keeper, put a reported grant into the table. `n`: the session of its holder; NULL: the holder
 * has left. False: the grant cannot be held any more. */
bool sl_forward_reclaim(struct server *s, struct session *n,
                        const struct sl_grant_view *v, struct sl_bytes key);

/* --- witness.c ----------------------------------------------------------------------------- */

void sl_witness_init(struct sl_witness *witness);

/* A client of this node, which is the keeper, took or extended a grant with a lease. */
void sl_witness_note(struct server *s, struct sl_bytes key, sl_fence fence);

/* The observers of the local arbiter (arbiter/local.h), in proxy.c and witness.c. */
void sl_forward_held(struct conn *c, struct sl_bytes key, sl_fence fence, bool fresh);
void sl_forward_gone(struct server *s, sl_fence fence, bool at_once);

/* Send the reports that are due; or drop them, because this node is not the keeper any more. */
void sl_witness_send(struct server *s);
void sl_witness_forget(struct server *s);

/* --- frames ---------------------------------------------------------------------------- */

/* Begin a frame with this many arguments, which the caller writes; NULL: there is no link. */
struct sl_resp_writer *sl_frame(struct server *s, sl_node_id to, const char *name,
                                size_t fields);

/* R.CLIENT: send it; keep the one of session 0 for the next record; and move it there. */
void sl_frame_client(struct server *s, sl_node_id to, uint64_t session,
                     struct sl_bytes name, struct sl_bytes address);
void sl_frame_client_keep(struct sl_frame_client *n, const struct sl_args *a);
void sl_frame_client_take(struct sl_frame_client *n, struct sl_grant_view *v);

#endif /* SL_SERVER_FORWARD_FORWARD_INTERNAL_H */
