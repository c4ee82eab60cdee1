/* engine.h - a client of a server or a cluster, without sockets, threads or clocks.
 *
 *     requests of the program       struct sl_engine          the caller (src/client/remote/)
 *     -----------------------       ----------------          -------------------------------
 *     acquire, release, ...  ---->  acquisitions, calls  ---->  orders: connect, send, close
 *     tickets: results       <----  grants, their leases <----  connected, replies, time
 *     events of grants       <----
 *
 * The engine decides which command to send on which connection, when to repeat it, when to
 * extend a lease, and when its holder must stop. README.md has the rules. The caller passes
 * in the time (in milliseconds of CLOCK_BOOTTIME), opens and closes connections, and moves
 * bytes. No function calls back: results and events are in queues, which the caller empties
 * after each call. */
#ifndef SL_CLIENT_ENGINE_H
#define SL_CLIENT_ENGINE_H

#include "base/heap.h"
#include "base/index.h"
#include "base/random.h"
#include "base/types.h"
#include "client/watch.h"
#include "sluice.h"

/* --- Limits ------------------------------------------------------------------ */

#define SL_ENGINE_ADDRESSES_MAX 16u
#define SL_ENGINE_REPLY_MS \
    5000 /* If a server does not reply for this long, close the connection. */
#define SL_ENGINE_EXTEND_MS_MAX \
    2000 /* The same, for the extension of a lease: at most this, */
#define SL_ENGINE_EXTEND_MS_MIN \
    50                         /* at least this, and otherwise a sixth of the lease. */
#define SL_ENGINE_PING_MS 2000 /* Send PING after this long without a reply. */
#define SL_ENGINE_BACKOFF_MS_MIN \
    20 /* The mean pause doubles with each failure, from this */
#define SL_ENGINE_BACKOFF_MS_MAX 2000 /* to this. */
#define SL_ENGINE_MARGIN_MS_MAX \
    5000 /* The margin is a tenth of the lease, and at most this. */
#define SL_ENGINE_WAIT_MS_MAX (INT64_C(1) << 52) /* WAIT, if there is no timeout. */
#define SL_ENGINE_ID_BYTES 48u                   /* The length of a REQUEST id. */
#define SL_ENGINE_ERROR_BYTES 300u /* The longest error message that is kept. */

/* --- Tickets: how a request of the program ends -------------------------------- */

/* The caller owns a ticket and keeps it until `done`. */
struct sl_ticket {
    struct sl_list node; /* In the list of done tickets; the caller removes it. */
    bool done;
    int status; /* The result of the call; for break: 1 or 2. */
    struct sluice_grant grant;
    int64_t number;             /* EXTEND: the remaining lease. */
    struct sluice_reply *reply; /* INSPECT: the reply; the caller frees it. */
    /* ACQUIRE: the watch of the grant, until sl_ticket_reported(). */
    struct sl_client_watch *watch;
};

/* --- Timers -------------------------------------------------------------------- */

enum sl_timer_type {
    SL_TIMER_LINK,
    SL_TIMER_CALL,
    SL_TIMER_ACQUISITION,
    SL_TIMER_HOLD
};

struct sl_timer {
    enum sl_timer_type type;
    uint32_t slot; /* In the heap, or SL_HEAP_NONE. */
};

/* --- Calls: commands to the server ------------------------------------------------ */

enum sl_call_type {
    SL_CALL_HELLO,
    SL_CALL_PING,
    SL_CALL_ACQUIRE,
    SL_CALL_CANCEL,
    SL_CALL_RELEASE,
    SL_CALL_EXTEND,
    SL_CALL_CHECK,
    SL_CALL_BREAK,
    SL_CALL_INSPECT
};

enum sl_call_state { SL_CALL_UNSENT, SL_CALL_SENT, SL_CALL_PAUSES };

/* A call is in the queue of its link (UNSENT), waits for a reply (SENT), or waits until it is
 * sent again (PAUSES). It belongs to an acquisition, a hold or a ticket. If it belongs
 * to none of them, the engine ignores its reply. */
struct sl_call {
    struct sl_list node; /* In the queue of its link, or in the list of paused calls. */
    struct sl_timer timer;
    enum sl_call_type type;
    enum sl_call_state state;
    uint8_t link;
    bool repeated; /* An earlier attempt may have been executed. */
    bool at_once;  /* BREAK ... NOW. */
    bool was_held; /* RELEASE: the lease had not expired when the call began. */
    unsigned failures;
    int last_status; /* Of the last failure. */
    sl_ms sent_ms, give_up_ms;
    int64_t lease_ms;
    sl_fence fence;
    struct sl_client_acquisition *acquisition;
    struct sl_hold *hold;
    struct sl_ticket *ticket;
    size_t key_bytes;
    char key[];
};

/* --- Acquisitions ------------------------------------------------------------------ */

enum sl_client_acquisition_state {
    SL_ACQUISITION_ASKS,     /* Its ACQUIRE is unsent, or waits for a reply. */
    SL_ACQUISITION_QUEUED,   /* The server has replied QUEUED. */
    SL_ACQUISITION_PAUSES,   /* It failed for now, and is sent again later. */
    SL_ACQUISITION_CONFIRMS, /* Granted, but the lease must be extended first. */
    SL_ACQUISITION_CANCELS, /* The program has given up: CANCEL must reach the server. */
};

struct sl_client_acquisition {
    struct sl_list node; /* In the list of all acquisitions. */
    struct sl_timer timer;
    enum sl_client_acquisition_state state;
    uint8_t link;
    bool
        uncertain; /* An attempt with this id may have been granted, or may be later. */
    unsigned failures;
    char id[SL_ENGINE_ID_BYTES + 1];
    struct sluice_request request; /* Its strings are borrowed from `text`. */
    sl_ms sent_ms;                 /* When the last ACQUIRE was sent; -1: never. */
    sl_ms wait_end_ms, give_up_ms;
    sl_ms retry_ms; /* PAUSES, CANCELS: when to send the command again. */
    int last_status;
    struct sl_call *call; /* The ACQUIRE or CANCEL in flight, or NULL. */
    struct sl_hold *hold; /* Allocated before the request is sent. */
    struct sl_ticket *ticket;
    struct sluice_cancel *cancel;
    struct sl_bytes key;
    char text[];
};

/* --- Holds: the grants of this client ------------------------------------------------ */

struct sl_hold {
    struct sl_list node; /* In the list of holds. */
    struct sl_timer timer;
    sl_fence fence; /* 0: not granted yet. */
    bool keep_alive, asked;
    bool unreachable; /* The last attempt to extend the lease had no reply. */
    int64_t lease_ms; /* 0: the grant belongs to the connection. */
    int64_t margin_ms;
    sl_ms end_ms;     /* When the lease expires, at the earliest; SL_NEVER: no lease. */
    sl_ms max_end_ms; /* The lease is not extended beyond this. */
    sl_ms renew_ms;   /* When to extend it. */
    int32_t tid;      /* The thread that acquired it. */
    unsigned failures;
    struct sl_call *call;                      /* The EXTEND in flight, or NULL. */
    struct sl_client_watch *watch;             /* NULL: no callback. */
    struct sl_client_acquisition *acquisition; /* While it CONFIRMS. */
    size_t key_bytes;
    char key[];
};

/* --- Links: connections ---------------------------------------------------------------- */

/* A client has two connections. Grants without a lease belong to their connection, so that one
 * stays open as long as the server answers. The other one carries everything else. It can be
 * replaced at any time, for example by a connection to another node, and no grant is lost. */
enum { SL_ENGINE_LEASES, SL_ENGINE_SESSIONS, SL_ENGINE_LINKS };

enum sl_link_state { SL_LINK_DOWN, SL_LINK_CONNECTS, SL_LINK_GREETS, SL_LINK_UP };

struct sl_engine_link {
    enum sl_link_state state;
    struct sl_timer timer;
    bool connect, close; /* Orders to the caller. */
    uint32_t at;         /* The number of the address. */
    unsigned failures;
    sl_ms connect_ms; /* DOWN: not before this. CONNECTS, GREETS: the deadline. */
    bool served;      /* A command had a reply. */
    sl_ms heard_ms;   /* When the last reply arrived. */
    sl_ms moved_ms;   /* When the client last left a node that could not serve it. */
    uint32_t holds;   /* Grants without a lease. */
    struct sl_list unsent; /* Calls. */
    /* The calls that wait for a reply, in order: a ring. */
    struct sl_call **sent;
    size_t sent_size, sent_from, sent_count;
    /* Bytes for the server. */
    char *out;
    size_t out_size, out_from, out_used;
};

/* --- The engine -------------------------------------------------------------------------- */

struct sl_engine_options {
    uint32_t addresses;
    const char *password; /* Borrowed; NULL: none. */
    const char *name;     /* Borrowed; NULL: none. */
    int64_t retry_ms, connect_ms;
    uint64_t seed;
    char id_prefix[33]; /* 32 random hexadecimal digits. */
};

struct sl_engine {
    struct sl_engine_options options;
    struct sl_random random;
    sl_ms now_ms;
    uint64_t ids;
    struct sl_heap timers;
    uint32_t objects; /* Objects that have a timer. */
    struct sl_engine_link links[SL_ENGINE_LINKS];
    struct sl_list acquisitions;
    struct sl_index by_id;
    struct sl_list holds;
    struct sl_index by_fence;
    struct sl_list paused;           /* Calls. */
    struct sl_list done;             /* Tickets. */
    struct sl_list events;           /* Watches with an event to report. */
    struct sl_client_watch *running; /* The watch whose callback runs. */
    bool closing;
    int link_status; /* Why the last connection failed. */
    /* The message of the last failure of a connection or a command. */
    char last_error[SL_ENGINE_ERROR_BYTES];
};

/* Initialize an engine. Borrows the strings of the options. Returns SLUICE_OK or
 * SLUICE_ENOMEM. */
int sl_engine_init(struct sl_engine *e, const struct sl_engine_options *options,
                   struct sl_hash_key key);

/* Free everything. Tickets that are not done are forgotten. */
void sl_engine_free(struct sl_engine *e);

/* --- Requests of the program. Each of these fails without a change, or begins a request whose
 * ticket becomes done later, or at once. They copy the key and the request. */

/* The request is sent after delay_ms. */
int sl_engine_acquire(struct sl_engine *e, sl_ms now, const char *key,
                      const struct sluice_request *r, sl_ms delay_ms, int32_t tid,
                      struct sl_ticket *t);

/* End all acquisitions that have this token: their status is SLUICE_ECANCELLED. */
void sl_engine_cancel(struct sl_engine *e, sl_ms now,
                      const struct sluice_cancel *token);

/* Fence 0: the newest grant of the key that this thread acquired. */
int sl_engine_release(struct sl_engine *e, sl_ms now, const char *key, sl_fence fence,
                      int32_t tid, struct sl_ticket *t);
int sl_engine_extend(struct sl_engine *e, sl_ms now, const char *key, sl_fence fence,
                     int64_t lease_ms, struct sl_ticket *t);
/* CHECK, BREAK and INSPECT. */
int sl_engine_ask(struct sl_engine *e, sl_ms now, enum sl_call_type type,
                  const char *key, sl_fence fence, bool at_once, struct sl_ticket *t);

/* How long the grant lasts: milliseconds, SLUICE_FOREVER, or SLUICE_ELOST. */
int64_t sl_engine_left(const struct sl_engine *e, sl_ms now, const char *key,
                       sl_fence fence);

/* Returns the hold, or NULL. */
struct sl_hold *sl_engine_hold(const struct sl_engine *e, const char *key,
                               sl_fence fence);

/* Report ASKED again, if the holder is still asked to release the grant. */
void sl_engine_remind(struct sl_engine *e, const char *key, sl_fence fence);

/* Begin to close: all requests of the program end with SLUICE_ECLOSED, acquisitions are
 * cancelled, and grants with keep_alive or without a lease are released. */
void sl_engine_close(struct sl_engine *e, sl_ms now);

/* Returns whether commands are left that a server should still execute. */
bool sl_engine_is_closed(const struct sl_engine *e);

/* --- Input ------------------------------------------------------------------------------- */

void sl_engine_connected(struct sl_engine *e, sl_ms now, unsigned link);

/* A whole reply or push message has arrived. The engine frees it. */
void sl_engine_received(struct sl_engine *e, sl_ms now, unsigned link,
                        struct sluice_reply *reply);

/* The connection is closed, or could not be opened. Copies the message. */
void sl_engine_disconnected(struct sl_engine *e, sl_ms now, unsigned link, int status,
                            const char *message);

/* Do what is due. */
void sl_engine_advance(struct sl_engine *e, sl_ms now);

/* --- Output ------------------------------------------------------------------------------ */

/* Returns when sl_engine_advance() must be called, at the latest. */
sl_ms sl_engine_due(const struct sl_engine *e);

/* Orders for a link: to close its connection, then to open one to address `at`. Each is
 * returned once. */
bool sl_engine_wants_close(struct sl_engine *e, unsigned link);
bool sl_engine_wants_connect(struct sl_engine *e, unsigned link, uint32_t *at);

/* Prepare commands, and return the bytes to send. Call sl_engine_sent() when they were sent,
 * or a part of them. */
struct sl_bytes sl_engine_output(struct sl_engine *e, sl_ms now, unsigned link);
void sl_engine_sent(struct sl_engine *e, unsigned link, size_t n);

/* Take the next ticket that is done, or NULL. */
struct sl_ticket *sl_engine_next_ticket(struct sl_engine *e);

/* The program learns the result of a ticket now. Call this before the ticket is freed. */
void sl_ticket_reported(struct sl_ticket *t);

/* Take the next watch that has an event, or NULL. If it has a ticket, report that first: the
 * program must learn of a grant before its events. When the callback has returned, or if the
 * watch has no event any more, pass it to sl_engine_reported(). */
struct sl_client_watch *sl_engine_next_event(struct sl_engine *e);
void sl_engine_reported(struct sl_engine *e, struct sl_client_watch *w);

/* Returns the status of an error reply. */
int sl_call_status(const struct sluice_reply *r);

/* Check the invariants. */
void sl_engine_check(const struct sl_engine *e);

#endif /* SL_CLIENT_ENGINE_H */
