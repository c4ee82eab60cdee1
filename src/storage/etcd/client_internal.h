/* client_internal.h - internals of the etcd client.
 *
 *     client.c            calls, members, slots: the outcome of each request
 *     client_token.c      the token for a user and a password
 *     client_settings.c   members, files and user from the settings
 *     client_leader.c     the member that leads etcd
 *     client_http.c       one attempt at one member, with curl; sockets and timer
 *     client_watch.c      the stream of a watch
 *
 * A request is in a slot, and has an attempt at one member at a time:
 *
 *     waiting -> FREE -> WAITS (for a token) -> RUNS -> ENDED -> `done` -> FREE
 *                          ^--- token rejected ---/ \-> RUNS, with the next member
 *
 * The client never calls a caller's function from within a curl callback: callers may
 * send requests there, which curl does not allow. */
#ifndef SL_STORAGE_ETCD_CLIENT_INTERNAL_H
#define SL_STORAGE_ETCD_CLIENT_INTERNAL_H

#include <curl/curl.h>

#include "storage/etcd/client.h"

#define SL_ETCD_CONNECTIONS_MAX 32
#define SL_ETCD_CALLS_MAX \
    (SL_ETCD_CONNECTIONS_MAX - 4) /* The others: token, watch, probe, leader. */
#define SL_ETCD_MEMBERS_MAX 32
#define SL_ETCD_PASS_OVER_MS 2000 /* How long to skip a member that failed. */
#define SL_ETCD_REFUSED_MS 1000 /* How long to wait before retrying a wrong password. */
#define SL_ETCD_WHOLE_TIMES \
    8 /* A slow answer must be complete within this many times answer_ms. */
#define SL_ETCD_ANSWER_BYTES_MAX ((size_t)64 << 20)
#define SL_ETCD_OBJECT_BYTES_MAX \
    ((size_t)16 << 20)             /* Limit of one object in a watch. */
#define SL_ETCD_WATCH_PAUSE_MS 200 /* From the end of a watch to the next one. */
#define SL_ETCD_MESSAGE_BYTES 300

/* The gRPC error codes that matter here. */
enum {
    SL_ETCD_GRPC_CANCELED = 1,
    SL_ETCD_GRPC_UNKNOWN = 2,
    SL_ETCD_GRPC_INVALID = 3,
    SL_ETCD_GRPC_DEADLINE = 4,
    SL_ETCD_GRPC_DENIED = 7,
    SL_ETCD_GRPC_PRECONDITION = 9,
    SL_ETCD_GRPC_INTERNAL = 13,
    SL_ETCD_GRPC_UNAVAILABLE = 14,
    SL_ETCD_GRPC_UNAUTHENTICATED = 16,
};

enum sl_etcd_slot_state {
    SL_ETCD_SLOT_FREE,
    SL_ETCD_SLOT_WAITS,
    SL_ETCD_SLOT_RUNS,
    SL_ETCD_SLOT_ENDED
};

struct sl_etcd_slot {
    struct sl_etcd_client *c;
    enum sl_etcd_slot_state state;
    struct sl_list place; /* In c->ended, if ENDED. */
    CURL *easy;           /* Created on first use, then kept. */
    struct curl_slist *headers;
    uint64_t headers_of; /* Number of the token in the headers. */
    char error[CURL_ERROR_SIZE];

    /* The request. */
    struct sl_etcd_call *call;            /* NULL: a request of the client itself, */
    void (*over)(struct sl_etcd_slot *s); /* which calls this function at its end. */
    const char *path;
    struct sl_bytes body;
    bool repeatable, without_token;
    bool pinned; /* Try only `member`. */
    bool
        aside; /* The outcome does not show whether the member is good for other requests. */
    size_t bytes_max;

    /* The attempts so far. */
    size_t member;
    uint32_t tried;   /* One bit for each member. */
    bool was_sent;    /* At least a part of one attempt was sent. */
    bool asked_again; /* Sent again after etcd rejected the token. */

    /* The current attempt. */
    bool issued, heard, too_big, no_memory;
    sl_ms begun_ms, heard_ms;
    char *answer;
    size_t answer_bytes, answer_capacity; /* A '\0' follows the bytes. */

    /* The result. */
    enum sl_etcd_fate fate;
    int http_status, code;
    char message[SL_ETCD_MESSAGE_BYTES];
};

struct sl_etcd_member {
    char *url; /* Without a trailing '/'. */
    sl_ms passed_until_ms;
};

struct sl_etcd_stream {
    struct sl_etcd_watch is;
    bool on;
    bool over;       /* Call `on_end` with slot.message. */
    uint64_t number; /* Changes with each watch. */
    sl_ms not_before_ms;
    sl_ms probe_ms; /* When to probe the member next. */
    char *body, *probe_body;
    struct sl_etcd_slot slot, probe;
};

/* The search for the leader of etcd. */
struct sl_etcd_leader {
    struct sl_etcd_slot slot;
    sl_ms next_ms; /* When to ask the next member. */
    size_t first;  /* The member that is asked first. */
    size_t asked;  /* How many were asked in this search. */
};

struct sl_etcd_client {
    CURLM *multi;
    int epoll, timer;
    sl_ms armed_ms;    /* When the timer fires, or SL_NEVER. */
    sl_ms curl_due_ms; /* When curl wants to be called. */
    sl_ms wake_ms;
    void (*woken)(void *owner);
    void *wake_owner;
    bool closing;

    struct sl_etcd_member members[SL_ETCD_MEMBERS_MAX];
    size_t member_count;
    size_t current; /* The member that requests are sent to, unless it has failed. */
    sl_ms answer_ms;
    char *ca, *cert, *key; /* NULL: none. */

    char *auth_body; /* NULL: no user is set. */
    char *token;     /* NULL: no token, or not yet. */
    uint64_t token_number;
    bool no_auth; /* Authentication is disabled in etcd. */
    sl_ms refused_until_ms;
    struct sl_etcd_slot auth;

    struct sl_list waiting; /* Calls that have no slot yet. */
    struct sl_list ended;   /* Slots whose `done` must be called. */
    struct sl_etcd_slot slots[SL_ETCD_CALLS_MAX];
    struct sl_etcd_stream watch;
    struct sl_etcd_leader leader;
    char trouble[SL_ETCD_MESSAGE_BYTES + 130];
};

/* --- client_http.c ------------------------------------------------------------- */

sl_ms sl_etcd_now(void); /* CLOCK_BOOTTIME. */

bool sl_etcd_http_open(struct sl_etcd_client *c); /* False: failed, see errno. */
void sl_etcd_http_close(struct sl_etcd_client *c);
void sl_etcd_http_close_slot(struct sl_etcd_slot *s);

/* Begin an attempt at s->member. Returns false if out of memory. */
bool sl_etcd_http_begin(struct sl_etcd_slot *s);

/* End the attempt. Returns whether anything was sent. */
bool sl_etcd_http_end(struct sl_etcd_slot *s);
int sl_etcd_http_status(const struct sl_etcd_slot *s);

/* Set s->message to the reason why curl failed. */
void sl_etcd_http_message(struct sl_etcd_slot *s, CURLcode rc);

/* Free the buffer of a long answer. */
void sl_etcd_http_free_answer(struct sl_etcd_slot *s);

/* Handle the events of the sockets. Calls `over` for each attempt that has ended. */
void sl_etcd_http_turn(struct sl_etcd_client *c,
                       void (*over)(struct sl_etcd_slot *s, CURLcode rc));
void sl_etcd_http_arm(struct sl_etcd_client *c, sl_ms due_ms);

/* --- client.c ------------------------------------------------------------------ */

void sl_etcd_slot_start(struct sl_etcd_slot *s); /* Gets a token first, if needed. */
void sl_etcd_slot_end(struct sl_etcd_slot *s, enum sl_etcd_fate fate);

/* Stop a request of the client itself, without a result. */
void sl_etcd_slot_stop(struct sl_etcd_slot *s);
sl_ms sl_etcd_slot_due(const struct sl_etcd_slot *s);
void sl_etcd_member_failed(struct sl_etcd_client *c, size_t member);

/* Parse an error of etcd into message and code. Returns false if the text is not an
 * error. */
bool sl_etcd_read_error(struct sl_etcd_slot *s, const char *text, size_t n);

/* Copy a text as one line without control characters; truncate it if necessary. */
void sl_etcd_one_line(char *out, size_t bytes, const char *text, size_t n);

/* --- client_settings.c --------------------------------------------------------- */

/* Read the settings. On failure, returns false and writes the reason to `why`. */
bool sl_etcd_client_take_settings(struct sl_etcd_client *c,
                                  const struct sl_etcd_settings *s, char *why,
                                  size_t why_bytes);

/* --- client_token.c ------------------------------------------------------------ */

bool sl_etcd_token_needed(const struct sl_etcd_slot *s);
void sl_etcd_token_await(struct sl_etcd_slot *s); /* Starts or ends the slot later. */
bool sl_etcd_token_refused(
    const struct sl_etcd_slot *s); /* Judged by the error in the slot. */

/* Send the slot's request again with a new token. Returns false if the request was
 * already sent again, or uses no token. */
bool sl_etcd_token_again(struct sl_etcd_slot *s);

/* --- client_leader.c ----------------------------------------------------------- */

void sl_etcd_leader_init(struct sl_etcd_client *c);
void sl_etcd_leader_work(struct sl_etcd_client *c);
sl_ms sl_etcd_leader_due(const struct sl_etcd_client *c);
void sl_etcd_leader_close(struct sl_etcd_client *c);

/* --- client_watch.c ------------------------------------------------------------ */

void sl_etcd_stream_attempt_over(struct sl_etcd_client *c, CURLcode rc);
void sl_etcd_stream_work(struct sl_etcd_client *c);
sl_ms sl_etcd_stream_due(const struct sl_etcd_client *c);
void sl_etcd_stream_close(struct sl_etcd_client *c);

#endif /* SL_STORAGE_ETCD_CLIENT_INTERNAL_H */
