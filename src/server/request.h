/* request.h - a command that an arbiter decides, from its arguments to its reply.
 *
 *     command/   parses the arguments into a struct request on the stack and submits it
 *     router     chooses the arbiter (arbiter/router.h)
 *     arbiter    answers at once, or keeps the request and answers later
 *     command/   writes the reply, one function per verb (command/reply.c)
 *
 * Most requests are answered before sl_request_submit() returns and never leave the stack. One
 * that is not answered at once is *kept*: it moves to the heap with its arguments, and
 * its connection does not run other commands until it is answered. Whatever a request waits for
 * (the disk, a holder, other nodes, the keeper, a delay after wrong passwords), it is kept in the
 * same way and stands on at most one list, `place`. */
#ifndef SL_SERVER_REQUEST_H
#define SL_SERVER_REQUEST_H

#include "locks/table.h"
#include "majority/node.h"
#include "server/command/dispatch.h"
#include "tx/manager.h"

enum sl_verb {
    SL_VERB_NONE, /* Not for an arbiter: AUTH and RESET are kept as well. */
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
    const char *failed; /* The first command of it that failed, */
    const char *error;  /* and the word of its error; NULL: none did. */
    bool lost;          /* It went with its keeper, and the client was not told yet. */
};

struct sl_inspection;

/* A page of LOCKS. */
struct sl_page {
    struct sl_bytes match; /* at NULL: all. */
    struct sl_glob *glob;  /* The same, compiled. */
    uint64_t cursor;
    int64_t count;
    bool majority; /* LOCKS MAJORITY: keys that a majority decides. */
};

struct request {
    struct server *s;
    struct conn *c;
    const struct command *command;
    struct call *call;         /* While its command runs; NULL: it is kept. */
    struct arbiter *arbiter;   /* The arbiter that has it; NULL: none. */
    const struct sl_bytes *at; /* Arguments, the name first; borrowed unless kept. */
    size_t n;
    struct sl_bytes key; /* n 0: it has none. */
    uint64_t ticket;     /* Identifies it while it is kept. */
    sl_ms arrived_ms;
    enum sl_verb verb;
    bool answered;
    bool kept;
    bool waits;   /* By its options it may wait for long. */
    bool settles; /* TX.OUTCOME in place of a TX.COMMIT whose answer was lost. */

    /* Options. Bytes are borrowed; valid until the request is kept. */
    union {
        struct sl_want want;     /* ACQUIRE */
        struct sl_tx_request tx; /* TX.* */
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

    /* Of a kept request. */
    struct sl_list place;   /* In the list of what it waits for. */
    struct sl_list of_conn; /* In conn.requests. */
    struct sl_bytes bytes;  /* The command in the protocol, to be forwarded. */
    size_t size;            /* Of its memory. */
    void (*dropped)(struct request *r); /* Without an arbiter: its client is gone. */
    union {                             /* Notes of the arbiter that has it. */
        struct {                        /* local: */
            uint8_t
                lease_step; /* It waits for a lease of this step (state.h); 0: none. */
            bool in_table;  /* It waits for a lock. */
            bool on_disk;   /* It waits for a write, or for the next turn. */
        };
        struct { /* remote: */
            bool sent;
            bool had;          /* RELEASE: the ledger had its grant. */
            sl_fence releases; /* RELEASE: this grant. */
            sl_ms sent_ms;
        };
        struct session *resets; /* RESET: the session that ends. */
        struct {                /* AUTH that is delayed: */
            struct sl_guess *guess;
            uint32_t heap_place;
        };
    };
};

/* What an arbiter answers. */
struct answer {
    int status;
    const char *word; /* Of an error with a text; NULL: the word of the status. */
    const char *text; /* Of an error; NULL: the text of the status. */
    int64_t number;   /* RELEASE, EXTEND, CHECK, AWAIT, BREAK, DRAIN, NODES */
    const struct sl_grant *grant;       /* ACQUIRE */
    const struct sl_grant_view *newest; /* READ; NULL: not held. */
    const struct sl_inspection
        *inspection;               /* EXPLAIN, LOCKS, DRAIN without arguments */
    const struct sl_tx_answer *tx; /* TX.* */
};

/* When the request of this call arrived: now, unless it runs again or was forwarded. */
sl_ms sl_request_arrival_ms(const struct call *call);

/* A request for this call. Its options are the caller's to fill in; what only a kept request has
 * is filled in when it is kept. */
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

/* Give it to its arbiter. */
void sl_request_submit(struct request *r);

/* Make sure that sl_request_keep() does not fail. False: out of memory; it is answered. */
bool sl_request_reserve(struct request *r);

/* Keep it: it is answered later. Returns the kept request; the given one is only a copy from now
 * on. NULL: out of memory; it is answered. A kept request is returned as it is. */
struct request *sl_request_keep(struct request *r);

/* Another command in the place of a kept request, of the same connection and age. NULL: out of
 * memory, and nothing has changed. */
struct request *sl_request_replace(struct request *r, const struct sl_bytes *at,
                                   size_t n);

/* Write the reply. A kept request is freed, and its connection goes on. */
void sl_request_answer(struct request *r, const struct answer *a);
void sl_request_answer_status(struct request *r, int status);
void sl_request_answer_number(struct request *r, int64_t number);

/* The number by which an arbiter refers to it. */
uint64_t sl_request_ticket(struct request *r);

/* The reply is in the output of its connection already. */
void sl_request_end(struct request *r);

/* Run it again from its arguments: what it waited for has happened, or another arbiter decides
 * now. Frees it. */
void sl_request_resume(struct request *r);

/* It was granted. If its client has hung up, nobody will learn of the grant: then the arbiter
 * gets the grant back, the connection is closed, and this is true. */
bool sl_request_came_too_late(struct request *r, const struct sl_grant *g);

/* The request of a ticket; NULL: it was withdrawn. */
struct request *sl_request_find(const struct server *s, uint64_t ticket);

/* The requests of a connection that is gone, or that were told something else. */
void sl_request_withdraw_all(struct conn *c);

/* The server stops: answer the requests of a connection with SHUTDOWN, unless their outcome is
 * about to be known. */
void sl_request_refuse_all(struct conn *c);

/* Whether all outstanding requests of a connection will be answered soon, so that they are
 * served though the client has ended its stream. */
bool sl_request_all_brief(const struct conn *c);

/* How long it has been under way. */
sl_ms sl_request_age_ms(const struct request *r);

/* The table and key of EXPLAIN TX (command/tx.c). False: it was answered. */
bool sl_tx_names_of_explain(struct call *call, struct request *r);

/* The call that its reply is written with. */
struct call sl_request_call(const struct request *r);

#endif /* SL_SERVER_REQUEST_H */
