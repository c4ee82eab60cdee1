/* engine_stage.h - clients (struct sl_engine) and a model of a server, with connections that
 * fail and a clock that the test sets.
 *
 * The server knows leases, grants without a lease, REQUEST, NOTIFY, CANCEL, RELEASE, EXTEND and
 * CHECK; every lock is exclusive, and its queue is in order of arrival. Like a majority cluster, it
 * forgets the id of a request whose outcome was nil. */
#ifndef SLUICE_TEST_ENGINE_STAGE_H
#define SLUICE_TEST_ENGINE_STAGE_H

#include "client/engine/engine.h"
#include "resp/reader.h"
#include "resp/writer.h"

#define STAGE_CLIENTS 3
#define STAGE_IDS 4096
#define STAGE_LATE 8
#define STAGE_LATE_MS 30000 /* No command is delayed for longer. */

/* A connection of a client, as the server has it. */
struct stage_conn {
    bool open;        /* The client has it open. */
    bool established; /* The server has accepted it. */
    bool cut;         /* Nothing passes any more, and neither side notices. */
    bool full;        /* The client cannot send. */
    uint64_t number;
    struct sl_resp_reader *reader;
    struct sl_resp_writer out; /* Replies that have not arrived yet. */
};

enum stage_state { STAGE_WAITS, STAGE_HELD, STAGE_ENDED };

/* An acquisition, as the server has it. */
struct stage_request {
    char id[SL_ENGINE_ID_BYTES + 1], key[8];
    enum stage_state state;
    uint64_t conn; /* The number of the connection that gets the outcome. */
    sl_ms arrived_ms, deadline_ms, end_ms; /* SL_NEVER: no lease. */
    int64_t lease_ms;
    uint64_t fence;
    bool asked, broken;
};

struct stage_client {
    struct sl_engine engine;
    struct stage_conn conns[SL_ENGINE_LINKS];
};

/* Commands of a closed connection that are still under way to the server. */
struct stage_late {
    struct sl_resp_reader *reader; /* NULL: none. */
    sl_ms until_ms;
};

struct stage {
    sl_ms now_ms;
    bool down; /* The server accepts no connection. */
    const char
        *error; /* The reply to ACQUIRE, EXTEND, RELEASE and CANCEL; NULL: none. */
    const char *denied; /* The reply to HELLO; NULL: none. */
    uint64_t conns, fences;
    struct stage_request requests[STAGE_IDS];
    size_t count;
    struct stage_late late[STAGE_LATE];
    struct stage_client clients[STAGE_CLIENTS];
    unsigned connects, commands; /* How often a client did this. */
    char log[16];                /* The first letters of the last commands. */
};

void stage_begin(struct stage *s, uint32_t addresses, uint64_t seed);
void stage_end(struct stage *s);

/* Carry out the orders of all engines. Returns whether there were any. */
bool stage_settle(struct stage *s);

/* The server reads and executes what has arrived on a connection. */
void stage_serve(struct stage *s, unsigned client, unsigned link);

/* The client receives all replies on a connection. */
void stage_deliver(struct stage *s, unsigned client, unsigned link);

/* Everything passes at once, in both directions, until nothing is left. */
void stage_run(struct stage *s);

/* Close a connection. Replies that are under way are lost. The server notices at once. */
void stage_break(struct stage *s, unsigned client, unsigned link);

/* The same, with the status that the engine receives. */
void stage_fail(struct stage *s, unsigned client, unsigned link, int status);

/* Close a connection for leases. Commands that the server has not executed are delayed until
 * stage_arrive(). */
void stage_delay(struct stage *s, unsigned client);

/* All delayed commands arrive. Nobody reads their replies. */
void stage_arrive(struct stage *s);

/* Advance the clock step by step, and let everything pass. */
void stage_pass(struct stage *s, sl_ms ms);

/* The server's holder of a key, or NULL. */
struct stage_request *stage_holder(struct stage *s, const char *key);

/* The server sends an event to the holder: "asked", "broken" ... */
void stage_push(struct stage *s, const struct stage_request *r, const char *event);

#endif /* SLUICE_TEST_ENGINE_STAGE_H */
