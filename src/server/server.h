/* server.h - one server: a lock table, its connections, and the event loop that runs them.
 *
 * There is one thread and one libuv loop. All work happens in callbacks of the loop. Each callback
 * ends with sl_server_settle(), which lets the arbiters do the work that is due ("pumps" them) and
 * sends output. One iteration of the loop (a "turn" in names such as turn_ns) does a bounded amount
 * of work and leaves the rest to the next iteration. So other clients are not delayed even if a
 * million leases expire at once.
 *
 *     bytes -> net/conn.c -> command/ -> request.c -> arbiter/
 *                                                        |
 *     bytes <- net/conn.c <- command/reply.c <- request.c +-> observe/events.c
 */
#ifndef SL_SERVER_SERVER_H
#define SL_SERVER_SERVER_H

#include <uv.h>

#include "base/index.h"
#include "locks/table.h"
#include "resp/reader.h"
#include "resp/writer.h"
#include "server/data/directory.h"
#include "server/net/input.h"
#include "server/observe/pubsub.h"
#include "server/observe/stats.h"
#include "server/settings.h"

#define SL_LISTENERS_MAX 16

struct arbiter;
struct conn;
struct request;
struct sl_auth;
struct sl_glob;
struct sl_majority;
struct sl_transactions;
struct sl_links;
struct sl_forward;
struct sl_recorder;

/* The arbiters decide requests (arbiter/arbiter.h). Only main() creates them, and only the router
 * chooses between them. */
struct arbiters {
    /* All arbiters, in the order in which their pump() is called. */
    struct arbiter *at[3];
    size_t n;
    /* NULL: this deployment has no such arbiter. */
    struct arbiter *local, *majority, *remote;
    /* In a cluster on etcd: the patterns of the setting majority-keys. */
    struct sl_glob **majority_keys;
    size_t majority_key_count;
};

struct server {
    uv_loop_t *loop;
    struct sl_settings *settings; /* Borrowed. */
    /* The data directory; locked before clients can connect. */
    struct sl_directory directory;
    bool has_directory;
    struct sl_table *table; /* Owned. */
    struct sl_now now;      /* The time at which the current callback began. */
    uint64_t now_ns;        /* The same time in nanoseconds. */
    uint64_t seed;          /* The seed for random delays. */
    /* The key of the hash tables; must stay secret from clients. */
    struct sl_hash_key hash_key;
    uint64_t last_id;      /* The last number given to a connection. */
    struct sl_index by_id; /* Sessions, by id. */
    struct sl_list conns;  /* All open connections. */
    /* Connections that have not authenticated, oldest first. */
    struct sl_list unauthed;
    size_t conn_count;
    /* The one extra connection above connections-max; NULL: none. */
    struct conn *reserved;
    size_t blocked_count;     /* Kept requests that block their connection. */
    struct sl_index requests; /* Kept requests, by ticket. */
    struct sl_index
        notifies;         /* Kept requests with NOTIFY, by connection, key and id. */
    uint64_t last_ticket; /* The last ticket given to a request. */
    void *spare_request;  /* Memory for the next kept request. */
    size_t spare_request_bytes;
    /* Lingering sessions, in the order in which they will end. */
    struct sl_list lingering;
    struct sl_list dirty;   /* Connections with unsent output. */
    struct sl_list leaving; /* Connections to be closed in the next loop iterations. */
    struct sl_list ready;   /* Connections with commands that can run now. */
    struct sl_pubsub pubsub;
    /* The cost of matching one byte of a key against all patterns of DRAIN. */
    size_t drain_words;
    /* Bytes of partial commands and unsent output of all connections. */
    size_t buffer_bytes;
    /* The peak memory use for clients since memory was last trimmed. */
    size_t memory_peak;
    sl_ms trimmed_ms; /* When memory was last trimmed. */
    bool memory_due;  /* Check memory-max in the next loop iteration. */
    bool memory_full; /* The server rejects commands that create state. */
    struct sl_stats stats;

    /* The connections from which the server reads. */
    struct sl_input_set input[SL_INPUT_CLASSES];
    uint64_t inputs; /* The number of reads from clients so far. */
    /* An epoll set that tells which holders have closed their connections (input.h). */
    int holders_fd;
    uint64_t holders_asked; /* The value of `inputs` when this set was last polled. */
    size_t left_count;      /* Number of holders that have closed their connections. */
    /* The value of `inputs` when we last found that no holder had closed its connection. */
    uint64_t all_stay;
    /* When the first callback of this loop iteration began; 0: none has run yet. */
    uint64_t turn_ns;
    /* These five are the remaining budget of this loop iteration. */
    uint32_t effects_left;
    uint32_t flushes_left;
    uint32_t commands_left;
    uint32_t accepts_left;
    uint32_t closes_left;
    uv_prepare_t prepare;
    uv_idle_t idle; /* Active while there is more work. */
    uv_timer_t second;
    uv_poll_t clock; /* A timerfd on CLOCK_BOOTTIME. */
    int clock_fd;
    sl_ms clock_at_ms; /* When the timerfd expires, or SL_NEVER. */
    uv_signal_t sigterm, sigint;

    struct sl_resp_limits limits; /* The limits for commands of a client. */
    /* The limits for commands of a client that has not authenticated. */
    struct sl_resp_limits early_limits;
    /* A reader for the next connection that needs one. */
    struct sl_resp_reader *spare_reader;
    char *spare_buffer; /* A buffer for the next connection that writes. */
    size_t spare_size;

    uv_handle_t *listeners[SL_LISTENERS_MAX];
    size_t listener_count;
    bool accept_pending; /* Accept more connections in the next loop iteration. */
    /* Accept more connections in a second, when memory may be available. */
    bool accept_retry;
    int port;                     /* The port of the first TCP listener. */
    struct sl_auth *auth;         /* Counts wrong passwords (auth.h). */
    struct sl_state *state;       /* The state that survives a restart (state.h). */
    struct sl_recorder *recorder; /* The journal (recorder.h); NULL: none. */
    struct arbiters arbiters;
    sl_ms pumped_ms; /* When the arbiters with due work were last pumped. */
    struct sl_majority *majority; /* NULL: a single server. */
    struct sl_links *links;       /* Links to other nodes; NULL: a single server. */
    struct sl_transactions *transactions; /* NULL: no transactions. */
    struct sl_forward *forward;           /* NULL: not a cluster on etcd. */
    bool signaled;                        /* SIGTERM or SIGINT was received. */
    bool stopping;
    bool stopped; /* All holders have been notified. */
    uint64_t stop_cursor;
    uv_timer_t stop_timer;
};

/* The time that one loop iteration spends on connections that have sent more than their share. It
 * may spend the same time again on slow connections (input.h). Other clients may have to wait for
 * both. */
#define SL_SHARE_NS 100000u

/* --- server.c ------------------------------------------------------------- */

/* Start everything except listeners and arbiters. Returns 0, or -1 after logging the reason.
 * Borrows settings. */
int sl_server_start(struct server *s, struct sl_settings *settings);

/* Read the clocks. Every callback of the loop calls this first. */
void sl_server_read_clock(struct server *s);

/* Pump the arbiters, send output, and set the timer for the next due work. Every callback of the
 * loop calls this last. */
void sl_server_settle(struct server *s);

/* Whether this loop iteration has taken so long that the remaining work should wait for the next
 * loop iteration. */
bool sl_server_turn_is_long(const struct server *s);

/* Use one step of the budget of this loop iteration for effects. `costly`: also check the elapsed
 * time now. */
void sl_server_count_effect(struct server *s, bool costly);

/* Run another loop iteration at once, because there is more to do. */
void sl_server_go_on(struct server *s);

/* Charge the budget of this loop iteration for steps of pattern matching, or for bytes read or
 * written. */
void sl_server_spend(struct server *s, size_t steps);
#define SL_STEPS_A_COMMAND 512u /* This many steps cost as much as a small command. */

/* --- listen.c ------------------------------------------------------------- */

/* Check that the addresses are valid, and safe to listen on with these settings. Returns 0, or -1
 * after logging the reason. */
int sl_listen_check(struct sl_settings *set);

int sl_server_listen(struct server *s);
void sl_server_stop_listening(struct server *s);

/* Log all addresses. Call this when the server has started completely. */
void sl_server_log_listening(const struct server *s);

/* Log `what` and the address of a listener. */
void sl_listen_log_tcp(const char *what, const uv_tcp_t *tcp);

/* Call `what` for each address of a list, until a call returns -1. The prefix "-" marks an address
 * as optional. */
int sl_each_address(const char *bind_list, void *arg,
                    int (*what)(void *arg, const char *address));

/* Parse "127.0.0.1", "::1" or "*". Returns false if the text is not an address. */
bool sl_parse_address(const char *text, int port, struct sockaddr_storage *out);

/* Return the port that the system chose. */
int sl_got_port(const uv_tcp_t *tcp);

/* Accept connections that the last loop iteration left in the backlog. */
void sl_listen_go_on(struct server *s);

/* --- stop.c --------------------------------------------------------------- */

/* Begin to stop the server: close the listeners, reject requests, notify holders. */
void sl_server_stop(struct server *s, const char *why);

/* Notify some more holders. Returns true when all holders have been notified. */
bool sl_stop_step(struct server *s);

#endif /* SL_SERVER_SERVER_H */
