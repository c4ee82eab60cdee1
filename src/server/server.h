/* server.h - one server: a lock table, its connections, and the loop that runs them.
 *
 * One thread, one libuv loop. Everything that happens begins in a callback of the loop and
 * ends with sl_server_settle(): the arbiters tell what follows from it, and what was
 * written is sent. A turn of the loop does a bounded amount of that; the rest is done in the
 * next one, so that a million leases that end at one instant keep nobody waiting.
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
    uint64_t seed;               /* Of what is left to chance. */
    struct sl_hash_key hash_key; /* Of hash tables; must stay secret from clients. */
    uint64_t last_id;            /* Of connections. */
    struct sl_index by_id;       /* Sessions. */
    struct sl_list conns;        /* All that are open. */
    struct sl_list unauthed;     /* Those that have not authenticated, oldest first. */
    size_t conn_count;
    struct conn *reserved; /* The one above connections-max; NULL: there is none. */
    size_t blocked_count;  /* Kept requests. */
    void *spare_request;   /* Memory for the next one. */
    size_t spare_request_bytes;
    struct sl_list lingering; /* Sessions, in the order in which they will end. */
    struct sl_list dirty;     /* Connections with output that has not been sent. */
    struct sl_list leaving;   /* Connections that have gone and are not closed. */
    struct sl_list ready;     /* Connections with input that can be looked at now. */
    struct sl_pubsub pubsub;
    size_t
        drain_words; /* Of all patterns of DRAIN: steps that a byte of a key takes. */
    size_t buffer_bytes; /* Of connections: partial commands and unread output. */
    size_t memory_peak;  /* The most kept for clients since memory was last trimmed. */
    sl_ms trimmed_ms;    /* When it was. */
    bool memory_due;     /* Check the limit in the next turn. */
    bool memory_full;    /* Commands that create state are rejected. */
    struct sl_stats stats;

    struct sl_input_set input[SL_INPUT_CLASSES]; /* What clients have sent. */
    uint64_t inputs;        /* How often something came from a client. */
    int holders_fd;         /* Which holders have left (input.h), */
    uint64_t holders_asked; /* as of this input; */
    size_t left_count;      /* so many, that are not closed yet. */
    uint64_t all_stay;      /* No holder has left, as of this input. */
    uint64_t turn_ns;       /* When the first thing of this turn began; 0: none has. */
    uint32_t effects_left;  /* In this turn; as those below. */
    uint32_t flushes_left;
    uint32_t commands_left;
    uint32_t accepts_left;
    uint32_t closes_left;
    uv_prepare_t prepare;
    uv_idle_t idle; /* Runs while there is more to do. */
    uv_timer_t second;
    uv_poll_t clock; /* A timerfd on the clock that the table goes by. */
    int clock_fd;
    sl_ms clock_at_ms; /* When it will ring, or SL_NEVER. */
    uv_signal_t sigterm, sigint;

    struct sl_resp_limits limits;        /* Of what a client sends; */
    struct sl_resp_limits early_limits;  /* and before it has authenticated. */
    struct sl_resp_reader *spare_reader; /* For whoever reads next. */
    char *spare_buffer;                  /* For whoever writes next. */
    size_t spare_size;

    uv_handle_t *listeners[SL_LISTENERS_MAX];
    size_t listener_count;
    bool door_is_full;      /* Somebody is to be let in in the next turn; */
    bool no_memory;         /* or in a second, when there may be memory for it. */
    int port;               /* The one it got. */
    struct sl_auth *auth;   /* Wrong passwords (auth.h). */
    struct sl_state *state; /* What survives a restart (state.h). */
    struct arbiters arbiters;
    sl_ms pumped_ms;              /* When those that were due were last pumped. */
    struct sl_majority *majority; /* As a node; NULL: it is alone. */
    struct sl_links *links;       /* To other nodes; NULL: it is alone. */
    struct sl_transactions *transactions; /* NULL: there are none. */
    struct sl_forward *forward; /* A keeper among nodes; NULL: there is none. */
    bool stopping;
    bool stopped; /* Everybody has been told. */
    uint64_t stop_cursor;
    uv_timer_t last_words;
};

/* How long a turn serves connections that have sent more than their share, and again as long
 * those that are slow (input.h). Other clients may have to wait that long. */
#define SL_SHARE_NS 100000u

/* --- server.c ------------------------------------------------------------- */

/* Everything but listening. 0, or -1: it was said in the log. Borrows settings. */
int sl_server_start(struct server *s, struct sl_settings *settings);

/* Read the clocks. Every callback of the loop begins with it. */
void sl_server_read_clock(struct server *s);

/* Tell what follows, send what was written, set the clock for what comes next. Every
 * callback of the loop ends with it. */
void sl_server_settle(struct server *s);

/* Whether this turn has gone on for so long that the rest should wait for the next. */
bool sl_server_turn_is_long(const struct server *s);

/* One step of the turn's budget for effects is used. `costly`: check the time now. */
void sl_server_count_effect(struct server *s, bool costly);

/* There is more to do than fits into this turn. */
void sl_server_go_on(struct server *s);

/* Charge the turn for steps of pattern matching, or for bytes read or written. */
void sl_server_spend(struct server *s, size_t steps);
#define SL_STEPS_A_COMMAND 512u /* This many cost as much as a small command. */

/* --- listen.c ------------------------------------------------------------- */

/* Whether the addresses are some, and may be listened on. 0, or -1: it was said. */
int sl_listen_check(struct sl_settings *set);

int sl_server_listen(struct server *s);
void sl_server_stop_listening(struct server *s);

/* Do something with each address of such a list; -1 as soon as one fails. One may have a
 * '-' before it. */
int sl_each_address(const char *bind_list, void *arg,
                    int (*what)(void *arg, const char *address));

/* "127.0.0.1", "::1" or "*". False: it is none of that. */
bool sl_parse_address(const char *text, int port, struct sockaddr_storage *out);

/* The port that it got. */
int sl_got_port(const uv_tcp_t *tcp);

/* Let those in for whom there was no time. */
void sl_listen_go_on(struct server *s);

/* --- stop.c --------------------------------------------------------------- */

/* Begin to leave: nothing new is taken, everybody is told. */
void sl_server_stop(struct server *s, const char *why);

/* Tell some more holders. True: there is no more. */
bool sl_stop_step(struct server *s);

#endif /* SL_SERVER_SERVER_H */
