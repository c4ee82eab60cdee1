/* request.h - a command that an arbiter decides, from its arguments to its reply.
 *
 *     command/   parses the arguments into a struct request on the stack and submits it
 *     router     chooses the arbiter (arbiter/router.h)
 *     arbiter    answers at once, or keeps the request and answers later
 *     command/   writes the reply, one function per verb (command/reply.c)
 *
 * Most requests are answered before sl_request_submit() returns and never leave the stack. A
 * request that is not answered at once is *kept*: it moves to the heap with its arguments, and
 * its connection runs no other command until the request is answered. This works the same way for
 * all reasons to wait: the disk, a holder, other nodes, the keeper, or a delay after wrong
 * passwords. A kept request with NOTIFY does not block its connection: the client receives QUEUED,
 * and later the reply as part of a push message. `place` links a kept request into at
 * most one list of requests that wait for the same event. */
#ifndef SL_SERVER_REQUEST_H
#define SL_SERVER_REQUEST_H

#include "failover/route.h"
#include "locks/table.h"
#include "majority/node.h"
#include "server/command/dispatch.h"
#include "tx/manager.h"

enum sl_verb {
    SL_VERB_NONE, /* No arbiter: AUTH and RESET, which can be kept as well. */
    SL_VERB_ACQUIRE,
    SL_VERB_RELEASE,
    SL_VERB_CANCEL,
    SL_VERB_EXTEND,
    SL_VERB_CHECK,
    SL_VERB_READ,
    SL_VERB_AWAIT,
    SL_VERB_EXPLAIN,
    SL_VERB_LOCKS,
    SL_VERB_BREAK,
    SL_VERB_DRAIN,
    SL_VERB_NODES,
    SL_VERB_TX,
    SL_VERB_TX_EXPLAIN,
    SL_VERB_TX_LOCKS,
    SL_VERBS
};

struct arbiter;
struct sl_guess;

/* The transaction of a connection. */
struct sl_tx_session {
    uint64_t id;        /* The transaction id; 0: no transaction. */
    const char *failed; /* The first command of the transaction that failed. */
    const char *error;  /* The error code of that command; NULL: no command failed. */
    /* The keeper failed, which aborted the transaction; the client does not know it
     * yet. */
    bool lost;
};

struct sl_inspection;

/* The options of LOCKS, which returns one page of keys per call. */
struct sl_page {
    struct sl_bytes match; /* The pattern of MATCH; at NULL: all keys. */
    struct sl_glob *glob;  /* The compiled pattern. */
    uint64_t cursor;
    int64_t count;
    bool majority; /* LOCKS MAJORITY: list the keys that a majority decides. */
    bool waited; /* LOCKS WAITED: list the keys with waiters, the longest wait first. */
    uint64_t
        client; /* LOCKS CLIENT: list the keys that this client holds or waits for; 0: all. */
};

struct request {
    struct server *s;
    struct conn *c;
    const struct command *command;
    struct call *call;       /* The call that runs; NULL: the request is kept. */
    struct arbiter *arbiter; /* The arbiter of this request; NULL: none. */
    /* The arguments, starting with the command name; borrowed unless kept. */
    const struct sl_bytes *at;
    size_t n;
    struct sl_bytes key; /* n 0: the request has no key. */
    struct sl_bytes id;  /* ACQUIRE ... REQUEST, CANCEL; n 0: none. */
    /* Bytes that sl_request_keep() copies for the arbiter; at NULL: none. */
    struct sl_bytes extra;
    uint64_t ticket; /* Identifies the request to its arbiter; 0: not assigned yet. */
    sl_ms arrived_ms;
    sl_ms
        came_ms; /* When it arrived at this node; a forwarded one arrived at another node before. */
    uint64_t arrival; /* Of a forwarded one: `number` in struct sl_want. */
    enum sl_verb verb;
    bool answered;
    bool kept;
    bool waits;   /* Its options allow a long wait. */
    bool notify;  /* ACQUIRE ... NOTIFY */
    bool queued;  /* It was answered with QUEUED. */
    bool begun;   /* `extra` is the whole push message (call.begun). */
    bool settles; /* TX.OUTCOME, sent in place of a TX.COMMIT whose reply was lost. */

    /* The options of each verb. Bytes are borrowed, and valid until the request is kept. */
    union {
        struct sl_want want;     /* ACQUIRE */
        struct sl_tx_request tx; /* TX.BEGIN to TX.OUTCOME */
        struct sl_page page;     /* LOCKS, LOCKS TX */
        struct {
            sl_fence fence;
            sl_ms ms; /* EXTEND: the lease. AWAIT: the timeout. */
            struct sl_bytes value;
            bool yes; /* READ MAJORITY, AWAIT FREE, BREAK NOW, DRAIN ON, NODES ADD */
        };
        struct {
            sl_node_id node; /* NODES */
            struct sl_bytes address;
            bool add, remove, resign;
        };
        struct {
            struct sl_bytes table; /* EXPLAIN TX */
            const struct sl_bytes *item;
        };
    };

    /* Valid only in a kept request. */
    struct sl_list place;   /* In a list of requests that wait for the same event. */
    struct sl_list of_conn; /* In conn.requests or conn.notifies. */
    struct sl_bytes bytes;  /* The encoded command, as `remote` forwards it. */
    size_t size;            /* Bytes that this request uses, including its arguments. */
    /* Only without an arbiter: called when the client has left. */
    void (*dropped)(struct request *r);
    union {      /* Private data of the arbiter. */
        struct { /* Fields of `local`: */
            /* The step of lease lengths in which state.h counts this waiter; 0: not
             * counted. */
            uint8_t lease_step;
            bool in_table; /* The request waits in the lock table. */
            /* The request is on a list of state.h, until a write or the next loop iteration. */
            bool on_disk;
            uint8_t outcome; /* One of enum sl_parked: what the arbiter has decided. */
            uint8_t parks;   /* How often it was parked before it ran again. */
            bool
                noted; /* It waits, or has waited, for another node (sl_state_noted()). */
            uint64_t position; /* The position that it waits for. */
            union {
                struct sl_grant grant; /* ACQUIRE */
                struct {               /* EXTEND: the expiry before, and after it. */
                    sl_ms before_ms, end_ms;
                };
            };
            int64_t number;
        };
        struct sl_route_request remote; /* Of `remote`. */
        struct session *resets;         /* RESET: the session that must end first. */
        struct { /* AUTH that is delayed after wrong passwords: */
            struct sl_guess *guess;
            uint32_t heap_place;
        };
    };
};

/* The answer of an arbiter to a request. */
struct answer {
    int status;
    /* The error code, if `text` is set; NULL: the code of the status. */
    const char *code;
    const char *text; /* The error text; NULL: the text of the status. */
    int64_t number;   /* RELEASE, EXTEND, CHECK, AWAIT, BREAK, DRAIN, NODES */
    const struct sl_grant *grant;       /* ACQUIRE */
    const struct sl_grant_view *newest; /* READ; NULL: not held. */
    const struct sl_inspection
        *inspection;               /* EXPLAIN, LOCKS, NODES, DRAIN without arguments */
    const struct sl_tx_answer *tx; /* TX.* */
};

/* Set when the request of this call arrived: it runs again, or another node forwarded it. */
void sl_request_take_arrival(struct request *r, const struct call *call);

/* Initialize a request for this call. The caller fills in the options; sl_request_keep() fills in
 * the fields that only a kept request has. */
static inline void sl_request_init(struct request *r, struct call *call,
                                   enum sl_verb verb)
{
    bool plain = call->resumed == NULL && call->c->proxy == NULL;
    r->s = call->s;
    r->c = call->c;
    r->command = call->command;
    r->call = call;
    r->arbiter = NULL;
    r->at = call->at;
    r->n = call->n;
    r->key = r->id = r->extra = (struct sl_bytes){NULL, 0};
    r->ticket = 0;
    r->came_ms = r->arrived_ms = call->s->now.ms;
    r->arrival = 0;
    if (!plain) sl_request_take_arrival(r, call);
    r->verb = verb;
    r->answered = r->kept = r->waits = r->notify = r->begun = false;
    r->queued = call->queued != NULL;
    r->settles = call->resumed != NULL && call->resumed->settles;
}

/* Choose the arbiter and pass it the request. The arbiter answers the request, or keeps it and
 * answers later. */
void sl_request_submit(struct request *r);

/* Reserve memory, so that sl_request_keep() cannot fail. Returns false if there is not enough
 * memory; the request has then been answered with an error. */
bool sl_request_reserve(struct request *r);

/* Move the request to the heap, to answer it later. If it is a new request with NOTIFY, reply
 * QUEUED; for a forwarded request, sl_request_queue() does that when the keeper has queued it.
 * Returns the kept request. Answer only this one: the original is no longer valid. Returns NULL if
 * out of memory; the request has then been answered with an error. A request that is already kept
 * is returned unchanged. */
struct request *sl_request_keep(struct request *r);

/* Replace a kept request with another command of the same connection. The new request keeps the
 * arrival time; the old one is freed. Returns NULL if out of memory; then nothing has changed. */
struct request *sl_request_replace(struct request *r, const struct sl_bytes *at,
                                   size_t n);

/* Write the reply. If the request is kept, also free it and let its connection run the next
 * command. */
void sl_request_answer(struct request *r, const struct answer *a);
void sl_request_answer_status(struct request *r, int status);
void sl_request_answer_number(struct request *r, int64_t number);

/* The keeper has queued a kept request with NOTIFY: answer it with QUEUED, if that was not done, and let
 * its connection run the next command. */
void sl_request_queue(struct request *r);

/* Begin to write the reply of a kept request, and return the writer. Call sl_request_end() next. */
struct sl_resp_writer *sl_request_out(struct request *r);

/* Return the number by which an arbiter finds the request again. The first call assigns it. */
uint64_t sl_request_ticket(struct request *r);

/* End a request whose reply the caller has written to the output of the connection. */
void sl_request_end(struct request *r);

/* Run a kept request again from its arguments: it no longer has to wait, or another arbiter is
 * responsible now. Frees the request. */
void sl_request_resume(struct request *r);

/* Call this when the arbiter has granted a kept ACQUIRE. If the client has already closed its
 * connection, this function returns the grant to the arbiter, closes the connection, frees the
 * request and returns true. */
bool sl_request_came_too_late(struct request *r, const struct sl_grant *g);

/* Find the kept request with this ticket. Returns NULL if the request was answered or withdrawn. */
struct request *sl_request_find(const struct server *s, uint64_t ticket);

/* Find the request of a connection that waits with NOTIFY and this id. Returns NULL if there is
 * none. */
struct request *sl_request_find_notify(const struct conn *c, struct sl_bytes key,
                                       struct sl_bytes id);

/* A CANCEL has succeeded: drop the request of its connection that waits with NOTIFY and the same id.
 * The reply to CANCEL is its outcome. */
void sl_request_cancelled(const struct request *cancel);

/* Initialize the indexes of kept requests. */
void sl_request_setup(struct server *s);

/* Free all kept requests of a connection without a reply, because the client has left or has
 * already received another reply. */
void sl_request_withdraw_all(struct conn *c);

/* When the server stops: answer the requests of a connection with SHUTDOWN, except those that their
 * arbiter must finish. */
void sl_request_refuse_all(struct conn *c);

/* Whether the connection has pending requests and all of them will be answered soon. If so, the
 * server still answers them after the client has shut down its side of the connection. */
bool sl_request_all_brief(const struct conn *c);

/* Return the time since the request arrived at this node, or at the node that forwarded it. */
sl_ms sl_request_age_ms(const struct request *r);

/* Call pump() of the arbiters that have work due. The server calls this before the first command of
 * every millisecond. */
void sl_request_pump_due(struct server *s);

/* Record that a command of the connection's transaction failed with this error code. */
void sl_request_tx_failed(struct conn *c, const char *name, const char *code);

/* Parse the table and key of EXPLAIN TX (command/tx.c). Returns false after replying with an
 * error. */
bool sl_tx_parse_explain(struct call *call, struct request *r);

/* Return a call for the reply of a kept request. */
struct call sl_request_call(const struct request *r);

/* Assert the invariants of all kept requests. The server calls this every second. It walks over all
 * connections. */
void sl_request_check(const struct server *s);

#endif /* SL_SERVER_REQUEST_H */
