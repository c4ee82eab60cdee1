/* route.h - a node whose clients are served by the keeper on another node.
 *
 * A *route* is a period in which this node can send requests to one keeper over one link. A new
 * keeper or a new link means a new route.
 *
 *     NONE --COME, answered HERE--> HANDING --all records sent, READY--> OPEN
 *       ^-------------- the link ends, NOT, or another keeper ---------------+
 *
 * A route has no side effects. Its inputs are the time, messages of the keeper, requests of
 * clients, links and the election; its outputs are the orders that sl_route_next() returns.
 * README.md states the rules.
 *
 * The caller owns sessions and requests and embeds these structs in its own, so the route needs no
 * memory for them, and an order cannot fail. A session has at most one request without NOTIFY. The keeper
 * replies to the requests of a session in the order in which they were sent.
 *
 * Calls that the caller makes while it carries out an order add orders to the same sequence: fetch
 * them in the same loop, not in a nested one. */
#ifndef SL_FAILOVER_ROUTE_H
#define SL_FAILOVER_ROUTE_H

#include "failover/ledger.h"
#include "failover/message.h"
#include "failover/withdrawn.h"

#define SL_ROUTE_PIECE 32768u /* Maximum bytes of a command in one message. */

/* The kind of a request, as far as a change of the route depends on it. */
enum sl_route_verb {
    SL_ROUTE_OTHER, /* It may run twice. */
    SL_ROUTE_ACQUIRE,
    SL_ROUTE_EXTEND,
    SL_ROUTE_RELEASE,
    SL_ROUTE_TX_BEGIN,
    SL_ROUTE_TX_COMMIT,
    SL_ROUTE_TX_ABORT,
    SL_ROUTE_TX, /* Another command of a transaction. */
};

/* Why a request is answered without the keeper. */
enum sl_route_answer {
    SL_ROUTE_NO_ANSWER,
    SL_ROUTE_ABORTED, /* TX.ABORT: the keeper's failure has aborted the transaction: OK. */
    SL_ROUTE_STALE, /* The keeper failed, which aborted the transaction. */
    /* The keeper failed during the commit, so the outcome is unknown: */
    SL_ROUTE_UNKNOWN, /* the transaction has no REQUEST id, so TX.OUTCOME cannot help; */
    SL_ROUTE_ASK,     /* TX.OUTCOME can tell; */
    SL_ROUTE_ASK_LATER, /* TX.OUTCOME can tell when there is a keeper. */
    SL_ROUTE_NO_KEEPER,
};

struct sl_route_request {
    /* The caller sets these before sl_route_submit(). Bytes are borrowed until the request ends. */
    enum sl_route_verb verb;
    bool waits;   /* Its options allow a long wait. */
    bool resp3;   /* The reply is in the format of RESP3. */
    bool settles; /* TX.OUTCOME, sent in place of a TX.COMMIT whose reply was lost. */
    sl_ms arrived_ms;
    struct sl_bytes bytes; /* The encoded command. */
    struct sl_bytes id;    /* TX_BEGIN: the REQUEST id; n 0: none. */
    bool named;            /* ACQUIRE with a lease and a REQUEST id. */
    bool notify;           /* ACQUIRE ... NOTIFY */
    struct sl_bytes key;   /* ACQUIRE */
    sl_ms lease_ms;        /* ACQUIRE; 0: without a lease. */
    sl_fence fence; /* EXTEND, RELEASE: the fence that the client gave; 0: none. */
    sl_fence released_fence; /* RELEASE: the result of sl_route_released(). */

    /* Private. */
    struct sl_route_session *session;
    struct sl_list place; /* In one of the lists of the route. */
    struct sl_list asked; /* In session.asked, while the keeper has not replied. */
    uint64_t number;      /* The order of sl_route_submit(). */
    bool sent;   /* The request was sent to the keeper, which has not replied. */
    bool queued; /* The keeper has replied QUEUED. */
    sl_fence unanswered; /* A grant of the keeper whose reply has not arrived yet. */
    enum sl_route_answer answer;
    bool had_record; /* RELEASE: the grant was in the ledger. */
    size_t sent_bytes;
    sl_ms sent_ms;
};

/* Why the connection of a client is closed. */
enum sl_route_close {
    SL_ROUTE_STAYS,
    SL_ROUTE_HALF_REPLIED, /* The client has received a part of a reply, and would take the next
                            * reply for the rest. */
    SL_ROUTE_CUT_OFF, /* The client holds a lock without a lease, and a keeper may soon grant
                            * the lock to another client. */
    SL_ROUTE_CLOSED, /* The keeper has closed the session, or rejected its grant. */
};

/* A client of this node. */
struct sl_route_session {
    uint64_t id;                /* Private, like all fields. */
    struct sl_session *session; /* The client, if this node becomes the keeper. */
    bool known;                 /* In the index of sessions. */
    uint64_t
        route; /* The route on which the node last sent a request of this session. */
    uint64_t described_route; /* The route on which the node last sent CLIENT. */
    uint64_t origin_route;    /* The route on which the node last sent ORIGIN. */
    uint64_t origin;          /* 0: not drawn yet. */
    sl_fence known_fence;     /* The highest fence that the client knows. */
    struct sl_list all;       /* In route.sessions. */
    struct sl_list held;      /* Its records in the ledger. */
    size_t requests;          /* How many requests it has. */
    struct sl_route_request *request; /* The one without NOTIFY; NULL: none. */
    struct sl_list
        asked; /* Requests to which the keeper has not replied, in the order of sending. */
    uint64_t tx;                /* Its transaction at the keeper; 0: none. */
    struct sl_bytes tx_request; /* The REQUEST id of its TX.BEGIN; owned; n 0: none. */
    bool half_replied;          /* The client has received part of a reply. */
    /* Orders that are due. */
    struct sl_list due; /* In route.due. */
    bool tx_lost, settle;
    enum sl_route_close close;
};

enum sl_route_order_type {
    SL_ROUTE_ORDER_NONE,     /* Nothing: a record needed no message. */
    SL_ROUTE_ORDER_SEND,     /* Send `message` to the keeper; it may be lost. */
    SL_ROUTE_ORDER_DESCRIBE, /* Send CLIENT with the name and address of `session`. */
    SL_ROUTE_ORDER_REPLY, /* The reply to `request` is `bytes`. `late`: it is a grant after a
                              * wait, with this fence; if the client has left meanwhile, call
                              * sl_route_take_back() instead. */
    SL_ROUTE_ORDER_QUEUED, /* The keeper has queued `request`, which has NOTIFY. Its reply follows later. */
    SL_ROUTE_ORDER_ANSWER,  /* Answer `request` for the reason `answer`. */
    SL_ROUTE_ORDER_SETTLE,  /* Replace `request` with TX.OUTCOME `bytes`, and call
                              * sl_route_settle(). */
    SL_ROUTE_ORDER_RESUME,  /* Run `request` again: this node is the keeper. */
    SL_ROUTE_ORDER_PUSH,    /* Write `bytes` to the client of `session`. */
    SL_ROUTE_ORDER_TX_LOST, /* The transaction of `session` was lost with its keeper. */
    SL_ROUTE_ORDER_CLOSE, /* Close the connection of `session`, for the reason `close`. */
    SL_ROUTE_ORDER_BEGUN, /* A route to the keeper has begun; events before it may be missing. */
    SL_ROUTE_ORDER_LOST, /* The keeper rejects a grant of a client of this node: log it. */
    SL_ROUTE_ORDER_PUBLISH, /* Publish the event in `message`. */
};

/* All pointers are borrowed until the next call. */
struct sl_route_order {
    enum sl_route_order_type type;
    struct sl_route_session *session;
    struct sl_route_request *request;
    enum sl_route_answer answer;
    enum sl_route_close close;
    bool late;
    sl_fence fence;
    struct sl_bytes bytes;
    struct sl_failover_message message;
};

struct sl_route_settings {
    sl_ms keeper_wait_ms; /* How long a request waits for a route. */
    struct sl_hash_key hash_key;
    struct sl_election *election; /* Borrowed. */
};

struct sl_route {
    struct sl_route_settings settings;
    bool leads; /* This node is the keeper. */
    bool
        exporting; /* This node was the keeper, and is copying its table to the ledger. */
    /* Since this node stepped down, it has closed the connections of clients that hold grants without a lease. */
    bool cut_off;
    uint32_t keeper; /* 0: unknown. */
    uint64_t keeper_term;
    /* When the last route was lost; SL_NEVER: a route exists. */
    sl_ms without_since_ms;
    sl_ms leads_since_ms; /* When this node last became the keeper. */
    /* The term in the storage when the last route was lost; 0: this node was the keeper. */
    struct sl_storage_term lost;
    /* At this time, no keeper could yet grant to others the locks that clients here hold without a
     * lease. */
    sl_ms certain_ms;
    sl_ms read_again_ms; /* When to read the term from the storage again. */

    uint64_t number; /* The number of the current route, or of the last one. */
    sl_ms again_ms;  /* When to send COME again, or SL_NEVER. */
    bool open;       /* The ledger was sent, so requests may be sent, */
    bool confirmed;  /* and the keeper has received it. */
    bool handing;    /* The node is handing over its ledger. */
    sl_ms here_ms;   /* When HERE arrived. */
    bool listens;    /* The keeper knows that this node has subscribers. */
    bool heard;      /* This node has subscribers. */
    /* Until when the keeper grants nothing, as far as this node knows; 0: it grants. */
    sl_ms quiet_until_ms;
    sl_ms quiet_at_ms; /* When the keeper last said so; it repeats that every second. */
    uint32_t quiet_node; /* The node for whose report it waits; 0: none. */
    struct sl_ledger ledger;
    /* Since then, the ledger has had all records that a keeper sent. */
    sl_ms complete_ms;
    bool has_lost;                 /* Since READY, there was no memory for a record. */
    struct sl_withdrawn withdrawn; /* Requests whose outcome is unknown. */
    uint64_t origins;              /* How many origins were drawn. */
    struct sl_noted_client noted;  /* The last CLIENT 0 from the keeper. */

    struct sl_index by_id;                 /* Sessions. */
    struct sl_list sessions;               /* The same. */
    struct sl_list due;                    /* Sessions with orders. */
    struct sl_list queued, sent, resuming; /* Requests, in order of arrival. */
    struct sl_list waiting;   /* Requests with NOTIFY that the keeper has queued. */
    struct sl_list answering; /* Requests that are answered without the keeper. */
    /* queued_count includes resuming requests. */
    size_t queued_count, sent_count, waiting_count;
    uint64_t submitted; /* The number of the last request. */

    /* Messages that are due, besides those of records and requests. */
    bool come_due, clock_due, listen_due;
    uint64_t mark; /* Answer MARK with this number; 0: nothing to answer. */
    struct sl_record *described; /* The record whose client was sent; NULL: none. */
    bool has_order;              /* `order` comes before all others. */
    struct sl_route_order order;
    uint64_t forwarded, refused; /* Counters. */
};

void sl_route_init(struct sl_route *r, const struct sl_route_settings *s, sl_ms now_ms);
void sl_route_free(struct sl_route *r);

/* --- Sessions and requests --------------------------------------------------------------- */

/* Begin to use a zeroed session, or one that has left, for this session of the table. Does nothing
 * if it is in use. Returns SLUICE_OK or SLUICE_ENOMEM. */
int sl_route_session_begin(struct sl_route *r, struct sl_route_session *n,
                           struct sl_session *session);

/* The session has ended: its client has left, or the connection begins another session. `cut`: the
 * connection broke. Returns true if the caller must send *out to the keeper. */
bool sl_route_leave(struct sl_route *r, struct sl_route_session *n, bool cut,
                    struct sl_failover_message *out);

/* Find a session by id. Returns NULL if there is none. */
struct sl_route_session *sl_route_session_find(const struct sl_route *r, uint64_t id);

/* The name of the client has changed. */
void sl_route_renamed(struct sl_route_session *n);

/* Whether the keeper has granted this session a lock without a lease. */
bool sl_route_holds_unleased(const struct sl_route_session *n);

/* Return for how long the keeper grants nothing, as far as this node knows. */
sl_ms sl_route_quiet_ms(const struct sl_route *r, sl_ms now_ms);

/* Whether a request that arrives now is answered with NOKEEPER, because there has been no route for
 * too long. */
bool sl_route_gives_up(struct sl_route *r, sl_ms now_ms);

/* Return the fence of the grant that the keeper will release for a RELEASE; 0: unknown. `fence` is
 * the one that the client gave; 0: none. */
sl_fence sl_route_released(const struct sl_route *r, const struct sl_route_session *n,
                           struct sl_bytes key, sl_fence fence);

/* Queue a request of a session, which has no other request without NOTIFY. */
void sl_route_submit(struct sl_route *r, struct sl_route_session *n,
                     struct sl_route_request *q);

/* End a request without a reply. The caller calls sl_route_leave() next. If the keeper may have
 * granted a lease for it, the node withdraws the grant. */
void sl_route_withdraw(struct sl_route *r, sl_ms now_ms, struct sl_route_request *q);

/* Draw an origin that no client of any node has had. */
uint64_t sl_route_draw_origin(struct sl_route *r);

/* This node was the keeper, and may have recorded a grant that it did not acknowledge to the client of
 * this session: withdraw it. The session gets another origin; then the caller describes its client again
 * (sl_table_describe()). */
void sl_route_withdraw_own(struct sl_route *r, sl_ms now_ms, struct sl_session *s,
                           struct sl_bytes key, sl_fence fence, sl_ms lease_ms);

/* The client of the session knows the grant with this fence. */
void sl_route_knows(struct sl_route_session *n, sl_fence fence);

/* The client has left before the reply to this request, which is a grant with this fence: withdraw the grant.
 * The caller calls sl_route_leave() next. */
void sl_route_take_back(struct sl_route *r, sl_ms now_ms, struct sl_route_request *q,
                        sl_fence fence);

/* This node has rejected a command of the session's transaction. Returns true if the caller must
 * send *out to the keeper. Borrows the name. */
bool sl_route_failed(const struct sl_route *r, const struct sl_route_session *n,
                     const char *name, struct sl_failover_message *out);

/* The caller has replaced a commit with TX.OUTCOME (SL_ROUTE_ORDER_SETTLE), and `next` is set up
 * for sl_route_submit(). NULL: the caller could not do so, and the route answers UNKNOWN. */
void sl_route_settle(struct sl_route *r, struct sl_route_session *n,
                     struct sl_route_request *next);

/* Forget the transaction of a session. Returns whether it had one. */
bool sl_route_tx_ended(struct sl_route_session *n);

/* --- The keeper, and this node as the keeper ------------------------------------------------ */

/* `keeper` is the keeper of this term; 0: unknown. */
void sl_route_keeper(struct sl_route *r, sl_ms now_ms, uint32_t keeper, uint64_t term);

/* The link to the keeper has begun or ended. */
void sl_route_link(struct sl_route *r, sl_ms now_ms);

/* This node is the keeper: end the route. Fetch the orders, set up the table, and then call
 * sl_route_resume() to run the queued requests here. */
void sl_route_lead(struct sl_route *r, sl_ms now_ms, uint32_t self, uint64_t term);

void sl_route_resume(struct sl_route *r);

/* This node is no longer the keeper, and copies its table to the ledger. When that is done, call
 * sl_route_exported(). */
void sl_route_step_down(struct sl_route *r, sl_ms now_ms);
void sl_route_exported(struct sl_route *r);

/* --- Messages, time, orders ----------------------------------------------------------------- */

/* Handle a message from the keeper. `name` and `address` are those of the client of
 * m->session; HELD needs them. */
void sl_route_receive(struct sl_route *r, sl_ms now_ms, uint32_t from,
                      const struct sl_failover_message *m, struct sl_bytes name,
                      struct sl_bytes address);

/* Call this every second. `listens`: this node has subscribers. */
void sl_route_second(struct sl_route *r, sl_ms now_ms, bool listens);

/* Do the work that is due by now; return when to call sl_route_tick() next, or SL_NEVER. */
void sl_route_tick(struct sl_route *r, sl_ms now_ms);
sl_ms sl_route_due(const struct sl_route *r);

/* Get the next order. `has_space`: the link to the keeper can take more messages. Returns false if
 * there is none. Each record of the ledger costs the caller one order; it may stop at any time and
 * continue later. */
bool sl_route_next(struct sl_route *r, sl_ms now_ms, bool has_space,
                   struct sl_route_order *out);

/* Abort and name the invariant if one is violated. */
void sl_route_check(const struct sl_route *r);

#endif /* SL_FAILOVER_ROUTE_H */
