/* request.h - a command that an arbiter decides, from its arguments to its reply.
 *
 *     command/   parses the arguments into a struct request on the stack and submits it
 *     router     chooses the arbiter (arbiter/router.h)
 *     arbiter    answers at once, or keeps the request and answers later
 *     command/   writes the reply, one function per verb (command/reply.c)
 *
 * Most requests are answered before sl_request_submit() returns and never leave the stack. A
 * request that is not answered at once is *kept*: it moves to the heap with its arguments, and
 * its connection runs no other command until the request is answered. A request is kept in the
 * same way whether it waits for the disk, a holder, other nodes, the keeper, or a delay after
 * wrong passwords. `place` puts it on at most one list of requests that wait for the same. */
#ifndef SL_SERVER_REQUEST_H
#define SL_SERVER_REQUEST_H

#include "locks/table.h"
#include "majority/node.h"
#include "server/command/dispatch.h"
#include "tx/manager.h"

enum sl_verb {
    SL_VERB_NONE, /* No arbiter decides it: AUTH and RESET, which can be kept as well. */
    SL_VERB_ACQUIRE,
    SL_VERB_RELEASE,
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
    uint64_t id;        /* 0: none. */
    const char *failed; /* The first command in it that failed, */
    const char *error;  /* and the code of that error; NULL: no command failed. */
    bool lost; /* The keeper failed and aborted it, and no reply has said so yet. */
};

struct sl_inspection;

/* A page of LOCKS. */
struct sl_page {
    struct sl_bytes match; /* at NULL: all keys. */
    struct sl_glob *glob;  /* The same, compiled. */
    uint64_t cursor;
    int64_t count;
    bool majority; /* LOCKS MAJORITY: keys that a majority decides. */
    bool waited;   /* LOCKS WAITED: keys with waiters, the longest wait first. */
};

struct request {
    struct server *s;
    struct conn *c;
    const struct command *command;
    struct call *call;         /* While its command runs; NULL: the request is kept. */
    struct arbiter *arbiter;   /* The arbiter that decides it; NULL: none. */
    const struct sl_bytes *at; /* Arguments, the name first; borrowed unless kept. */
    size_t n;
    struct sl_bytes key; /* n 0: it has no key. */
    uint64_t ticket;     /* Identifies it for its arbiter; 0: not assigned yet. */
    sl_ms arrived_ms;
    enum sl_verb verb;
    bool answered;
    bool kept;
    bool waits;   /* Its options allow it to wait for long. */
    bool settles; /* TX.OUTCOME, sent in place of a TX.COMMIT whose reply was lost. */

    /* Options, by verb. Bytes are borrowed, and valid until the request is kept. */
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
            bool add, remove;
        };
        struct {
            struct sl_bytes table; /* EXPLAIN TX */
            const struct sl_bytes *item;
        };
    };

    /* Valid only in a kept request. */
    struct sl_list place;   /* In a list of requests that wait for the same. */
    struct sl_list of_conn; /* In conn.requests. */
    struct sl_bytes bytes;  /* The command in the protocol, as `remote` forwards it. */
    size_t size;            /* Bytes of its memory, arguments included. */
    void (*dropped)(
        struct request *r); /* Without an arbiter: called when its client left. */
    union {                 /* Belongs to the arbiter that decides it. */
        struct {            /* local: */
            uint8_t
                lease_step; /* state.h counts it as a waiter with this step; 0: no. */
            bool in_table;  /* It waits in the lock table. */
            bool on_disk;   /* It is on a list of state.h, until a write or a turn. */
        };
        struct {                     /* remote: */
            bool sent;               /* The keeper has it. */
            bool had_record;         /* RELEASE: the ledger had its grant. */
            sl_fence released_fence; /* RELEASE: the grant; 0: unknown. */
            sl_ms sent_ms;
        };
        struct session *resets; /* RESET: the session that must end first. */
        struct {                /* AUTH, delayed after wrong passwords: */
            struct sl_guess *guess;
            uint32_t heap_place;
        };
    };
};

/* What an arbiter answers. */
struct answer {
    int status;
    const char *code; /* Of an error that has a text; NULL: the code of the status. */
    const char *text; /* Of an error; NULL: the text of the status. */
    int64_t number;   /* RELEASE, EXTEND, CHECK, AWAIT, BREAK, DRAIN, NODES */
    const struct sl_grant *grant;       /* ACQUIRE */
    const struct sl_grant_view *newest; /* READ; NULL: not held. */
    const struct sl_inspection
        *inspection;               /* EXPLAIN, LOCKS, NODES, DRAIN without arguments */
    const struct sl_tx_answer *tx; /* TX.* */
};

/* When the request of this call arrived. It is now, unless the request runs again or another node
 * forwarded it. */
sl_ms sl_request_arrival_ms(const struct call *call);

/* Begin a request for this call. The caller fills in its options; sl_request_keep() fills in the
 * fields that only a kept request has. */
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
    r->key = (struct sl_bytes){NULL, 0};
    r->ticket = 0;
    r->arrived_ms = plain ? call->s->now.ms : sl_request_arrival_ms(call);
    r->verb = verb;
    r->answered = r->kept = r->waits = false;
    r->settles = call->resumed != NULL && call->resumed->settles;
}

/* Let its arbiter decide it. The arbiter answers it, or keeps it and answers later. */
void sl_request_submit(struct request *r);

/* Reserve memory, so that sl_request_keep() cannot fail. False: out of memory; the request is
 * answered. */
bool sl_request_reserve(struct request *r);

/* Keep the request, to answer it later. Returns the kept request; the given one is a copy that
 * must not be answered. NULL: out of memory; the request is answered. Returns a request that is
 * already kept as it is. */
struct request *sl_request_keep(struct request *r);

/* Replace a kept request by another command of the same connection and arrival time. Frees the
 * old request. NULL: out of memory, and nothing has changed. */
struct request *sl_request_replace(struct request *r, const struct sl_bytes *at,
                                   size_t n);

/* Write the reply. This frees a kept request and lets its connection run the next command. */
void sl_request_answer(struct request *r, const struct answer *a);
void sl_request_answer_status(struct request *r, int status);
void sl_request_answer_number(struct request *r, int64_t number);

/* The number by which an arbiter finds the request again; assigned on the first call. */
uint64_t sl_request_ticket(struct request *r);

/* End a request whose reply the caller has written to the output of the connection. */
void sl_request_end(struct request *r);

/* Run a kept request again from its arguments, because its reason to wait is gone or another
 * arbiter decides now. Frees it. */
void sl_request_resume(struct request *r);

/* The arbiter has granted a kept ACQUIRE. If the client has already closed its connection, it
 * will never learn of the grant: then this gives the grant back to the arbiter, closes the
 * connection, frees the request and returns true. */
bool sl_request_came_too_late(struct request *r, const struct sl_grant *g);

/* The kept request with this ticket; NULL: it was answered or withdrawn. */
struct request *sl_request_find(const struct server *s, uint64_t ticket);

/* Free all kept requests of a connection without a reply: the client has left, or it has got
 * another reply. */
void sl_request_withdraw_all(struct conn *c);

/* The server stops: answer the requests of a connection with SHUTDOWN, except those whose
 * arbiter must finish them. */
void sl_request_refuse_all(struct conn *c);

/* Whether the connection has outstanding requests and all of them will be answered soon. Then
 * the server answers them although the client has ended its stream. */
bool sl_request_all_brief(const struct conn *c);

/* How long ago it arrived, at this node or at the node that forwarded it. */
sl_ms sl_request_age_ms(const struct request *r);

/* Do what has become due; the server calls it before the first command of every millisecond. */
void sl_request_pump_due(struct server *s);

/* A command of the transaction of a connection failed with this error code. */
void sl_request_tx_failed(struct conn *c, const char *name, const char *code);

/* Parse the table and key of EXPLAIN TX (command/tx.c). False: it is answered with an error. */
bool sl_tx_parse_explain(struct call *call, struct request *r);

/* A call with which the reply of a kept request is written. */
struct call sl_request_call(const struct request *r);

/* Assert the invariants of all kept requests. The server calls it every second; the cost is that of
 * a walk over all connections. */
void sl_request_check(const struct server *s);

#endif /* SL_SERVER_REQUEST_H */
