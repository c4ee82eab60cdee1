/* server.h - one server: a lock table, its connections, and the loop that runs them.
 *
 * There is one thread and one libuv loop. Everything happens in callbacks of the loop, each of which
 * ends with sl_server_settle(): the arbiters do what has become due, and output is sent. A turn of
 * the loop does a bounded amount of work and leaves the rest to the next turn, so that other clients
 * are not delayed when a million leases expire at once.
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

/* What decides requests (arbiter/arbiter.h). Only main() makes them, and only the router chooses
 * between them. */
struct arbiters {
    struct arbiter *at[3]; /* All, in the order in which a turn pumps them. */
    size_t n;
    struct arbiter *local, *majority, *remote; /* NULL: the deployment has none. */
    struct sl_glob **majority_keys;            /* Where there is a keeper. */
    size_t majority_key_count;
};

struct server {
    uv_loop_t *loop;
    struct sl_settings *settings;  /* Borrowed. */
    struct sl_directory directory; /* Locked before clients can connect. */
    bool has_directory;
    struct sl_table *table;      /* Owned. */
    struct sl_now now;           /* As of the callback that runs. */
    uint64_t now_ns;             /* The same, more precisely. */
    uint64_t seed;               /* Of random delays. */
    struct sl_hash_key hash_key; /* Of hash tables; must stay secret from clients. */
    uint64_t last_id;            /* Of connections. */
    struct sl_index by_id;       /* Sessions. */
    struct sl_list conns;        /* All that are open. */
    struct sl_list unauthed;     /* Those that have not authenticated, oldest first. */
    size_t conn_count;
    struct conn *reserved; /* The connection above connections-max; NULL: none. */
    size_t blocked_count;  /* Kept requests. */
    void *spare_request;   /* Memory for the next kept request. */
    size_t spare_request_bytes;
    struct sl_list lingering; /* Sessions, in the order in which they will end. */
    struct sl_list dirty;     /* Connections with output that has not been sent. */
    struct sl_list leaving;   /* Connections to be closed in the next turns. */
    struct sl_list ready;     /* Connections with commands that can be run now. */
    struct sl_pubsub pubsub;
    size_t
        drain_words; /* Of all patterns of DRAIN: steps that a byte of a key takes. */
    size_t buffer_bytes; /* Of connections: partial commands and unread output. */
    size_t memory_peak;  /* The most kept for clients since memory was last trimmed. */
    sl_ms trimmed_ms;    /* When it was. */
    bool memory_due;     /* Check memory-max in the next turn. */
    bool memory_full;    /* Commands that create state are rejected. */
    struct sl_stats stats;

    struct sl_input_set input[SL_INPUT_CLASSES]; /* Connections with input. */
    uint64_t inputs;                             /* Number of reads from clients. */
    int holders_fd;         /* Which holders have closed their connection (input.h), */
    uint64_t holders_asked; /* as of this read; */
    size_t left_count;      /* the number of these connections. */
    uint64_t all_stay;      /* As of this read, no holder has closed its connection. */
    uint64_t turn_ns; /* When the first callback of this turn began; 0: none has. */
    uint32_t effects_left; /* The budget of this turn; so are the next four. */
    uint32_t flushes_left;
    uint32_t commands_left;
    uint32_t accepts_left;
    uint32_t closes_left;
    uv_prepare_t prepare;
    uv_idle_t idle; /* Runs while there is more to do. */
    uv_timer_t second;
    uv_poll_t clock; /* A timerfd on CLOCK_BOOTTIME. */
    int clock_fd;
    sl_ms clock_at_ms; /* When it expires, or SL_NEVER. */
    uv_signal_t sigterm, sigint;

    struct sl_resp_limits limits;        /* Of the commands of a client, */
    struct sl_resp_limits early_limits;  /* and before it has authenticated. */
    struct sl_resp_reader *spare_reader; /* For the next connection that reads. */
    char *spare_buffer;                  /* For the next connection that writes. */
    size_t spare_size;

    uv_handle_t *listeners[SL_LISTENERS_MAX];
    size_t listener_count;
    bool accept_pending;    /* Accept more connections in the next turn, */
    bool accept_retry;      /* or in a second, when there may be memory. */
    int port;               /* Of the first TCP listener. */
    struct sl_auth *auth;   /* Wrong passwords (auth.h). */
    struct sl_state *state; /* What survives a restart (state.h). */
    struct arbiters arbiters;
    sl_ms pumped_ms;              /* When those that were due were last pumped. */
    struct sl_majority *majority; /* As a node; NULL: it is alone. */
    struct sl_links *links;       /* To other nodes; NULL: it is alone. */
    struct sl_transactions *transactions; /* NULL: there are none. */
    struct sl_forward *forward; /* A keeper among nodes; NULL: there is none. */
    bool stopping;
    bool stopped; /* All holders were notified. */
    uint64_t stop_cursor;
    uv_timer_t stop_timer;
};

/* How long a turn serves connections that have sent more than their share, and as long again
 * those that are slow (input.h). Other clients may have to wait for both. */
#define SL_SHARE_NS 100000u

/* --- server.c ------------------------------------------------------------- */

/* Start everything but listeners and arbiters. 0, or -1: the log says why. Borrows settings. */
int sl_server_start(struct server *s, struct sl_settings *settings);

/* Read the clocks. Every callback of the loop begins with it. */
void sl_server_read_clock(struct server *s);

/* Pump the arbiters, send output, and set the timer for what is due next. Every callback of the
 * loop ends with it. */
void sl_server_settle(struct server *s);

/* Whether this turn has taken so long that the rest should wait for the next turn. */
bool sl_server_turn_is_long(const struct server *s);

/* One step of the turn's budget for effects is used. `costly`: check the time now. */
void sl_server_count_effect(struct server *s, bool costly);

/* There is more to do: run another turn at once. */
void sl_server_go_on(struct server *s);

/* Charge the turn for steps of pattern matching, or for bytes read or written. */
void sl_server_spend(struct server *s, size_t steps);
#define SL_STEPS_A_COMMAND 512u /* This many cost as much as a small command. */

/* --- listen.c ------------------------------------------------------------- */

/* Whether the addresses are valid, and safe to listen on with these settings. 0, or -1: the log
 * says why not. */
int sl_listen_check(struct sl_settings *set);

int sl_server_listen(struct server *s);
void sl_server_stop_listening(struct server *s);

/* Log all addresses, when the server has started completely. */
void sl_server_log_listening(const struct server *s);

/* Log `what` and the address of a listener. */
void sl_listen_log_tcp(const char *what, const uv_tcp_t *tcp);

/* Call `what` for each address of a list, until one returns -1. '-' before an address marks it as
 * optional. */
int sl_each_address(const char *bind_list, void *arg,
                    int (*what)(void *arg, const char *address));

/* "127.0.0.1", "::1" or "*". False: it is no address. */
bool sl_parse_address(const char *text, int port, struct sockaddr_storage *out);

/* The port that the system chose. */
int sl_got_port(const uv_tcp_t *tcp);

/* Accept connections that are left from the last turn. */
void sl_listen_go_on(struct server *s);

/* --- stop.c --------------------------------------------------------------- */

/* Begin to stop: close the listeners, reject requests, notify holders. */
void sl_server_stop(struct server *s, const char *why);

/* Notify some more holders. True: all were notified. */
bool sl_stop_step(struct server *s);

#endif /* SL_SERVER_SERVER_H */
