/* etcd_inside.h - the parts of the client of etcd.
 *
 *     etcd_client.c   calls, members, the token: what becomes of a request
 *     etcd_http.c     curl: one attempt at one member; sockets, the timer
 *     etcd_watch.c    the stream of a watch
 *
 * A request is in a slot, with an attempt at one member at a time:
 *
 *     line -> FREE -> WAITS (for a token) -> RUNS -> ENDED -> `done` -> FREE
 *                       ^------ refused token ---/ \-> RUNS, with the next member
 *
 * No function of a caller's is ever called from inside of curl, which does not bear that. */
#ifndef SL_STORAGE_ETCD_CLIENT_INTERNAL_H
#define SL_STORAGE_ETCD_CLIENT_INTERNAL_H

#include <curl/curl.h>

#include "storage/etcd/client.h"

#define SL_ETCD_CONNECTIONS_MAX 32
#define SL_ETCD_CALLS_MAX \
    (SL_ETCD_CONNECTIONS_MAX - 3) /* Besides: token, watch, probe. */
#define SL_ETCD_MEMBERS_MAX 32
#define SL_ETCD_PASS_OVER_MS 2000 /* A member that failed is not asked for so long, */
#define SL_ETCD_REFUSED_MS 1000   /* and a wrong password is not tried again. */
#define SL_ETCD_WHOLE_TIMES \
    8 /* An answer that drips: whole within so many answer_ms. */
#define SL_ETCD_ANSWER_BYTES_MAX ((size_t)64 << 20)
#define SL_ETCD_OBJECT_BYTES_MAX ((size_t)16 << 20) /* Of a watch. */
#define SL_ETCD_WATCH_PAUSE_MS \
    200 /* After one that ended, the next begins no sooner. */
#define SL_ETCD_WORDS_BYTES 300

/* The numbers of grpc that have a meaning here. */
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
    struct sl_etcd *c;
    enum sl_etcd_slot_state state;
    struct sl_list place; /* ENDED: in c->ended. */
    CURL *easy;           /* Made when it is first needed; kept. */
    struct curl_slist *headers;
    uint64_t headers_of; /* The number of the token in them. */
    char error[CURL_ERROR_SIZE];

    /* What is asked. */
    struct sl_etcd_call *call;            /* NULL: one of the client's own; */
    void (*over)(struct sl_etcd_slot *s); /* then this is called when it is ENDED. */
    const char *path;
    struct sl_bytes body;
    bool repeatable, without_token;
    bool stream; /* Its bytes are looked at while they come. */
    bool pinned; /* To `member`; no other. */
    size_t bytes_max;

    /* The attempts so far. */
    size_t member;
    uint32_t tried;   /* One bit for each member. */
    bool was_sent;    /* One of them, at least in part. */
    bool asked_again; /* After a token that was refused. */

    /* This attempt. */
    bool issued, heard, too_big, no_memory;
    sl_ms begun_ms, heard_ms;
    char *answer;
    size_t answer_bytes, answer_room; /* There is always a '\0' behind it. */

    /* What is known at its end. */
    enum sl_etcd_fate fate;
    int http_status, code;
    char words[SL_ETCD_WORDS_BYTES];
};

struct sl_etcd_member {
    char *url; /* Without a '/' at its end. */
    sl_ms passed_until_ms;
};

struct sl_etcd_stream {
    struct sl_etcd_watch is;
    bool on;
    bool over;       /* `ended` is due, with slot.words. */
    uint64_t number; /* Another one: what was said to the last is of no interest. */
    sl_ms not_before_ms;
    sl_ms probe_ms; /* When it is asked whether it is still there. */
    char *body, *probe_body;
    struct sl_etcd_slot slot, probe;
};

struct sl_etcd {
    CURLM *multi;
    int epoll, timer;
    sl_ms armed_ms;    /* The timer; SL_NEVER: it is not, or has been. */
    sl_ms curl_due_ms; /* What curl wants. */
    sl_ms wake_ms;
    void (*woken)(void *owner);
    void *wake_owner;
    bool closing;

    struct sl_etcd_member members[SL_ETCD_MEMBERS_MAX];
    size_t member_count, current;
    sl_ms answer_ms;
    char *ca, *cert, *key; /* NULL: none. */

    char *auth_body; /* NULL: there is no user. */
    char *token;     /* NULL: none, or none yet. */
    uint64_t token_number;
    bool no_auth; /* etcd has said that it wants none. */
    sl_ms refused_until_ms;
    struct sl_etcd_slot auth;

    struct sl_list line;  /* Of calls that have no slot. */
    struct sl_list ended; /* Of slots whose `done` is due. */
    struct sl_etcd_slot slots[SL_ETCD_CALLS_MAX];
    struct sl_etcd_stream watch;
    char trouble[SL_ETCD_WORDS_BYTES + 130];
};

/* --- etcd_http.c --------------------------------------------------------------- */

sl_ms sl_etcd_now(void); /* Of the boot-time clock. */

bool sl_etcd_http_open(struct sl_etcd *c); /* Descriptors, curl. False: errno. */
void sl_etcd_http_close(struct sl_etcd *c);
void sl_etcd_http_close_slot(struct sl_etcd_slot *s);

/* An attempt at its member; false: no memory. */
bool sl_etcd_http_begin(struct sl_etcd_slot *s);

/* The attempt ends here; whether something was sent. */
bool sl_etcd_http_end(struct sl_etcd_slot *s);
int sl_etcd_http_status(const struct sl_etcd_slot *s);

/* Why curl has failed. */
void sl_etcd_http_words(struct sl_etcd_slot *s, CURLcode rc);

/* A long answer is given back. */
void sl_etcd_http_free_answer(struct sl_etcd_slot *s);

/* What the sockets have. `over` is called for each attempt that has ended. */
void sl_etcd_http_turn(struct sl_etcd *c,
                       void (*over)(struct sl_etcd_slot *s, CURLcode rc));
void sl_etcd_http_arm(struct sl_etcd *c, sl_ms due_ms);

/* --- etcd_client.c ------------------------------------------------------------- */

void sl_etcd_slot_start(
    struct sl_etcd_slot *s); /* With a token, if there must be one. */
void sl_etcd_slot_stop(
    struct sl_etcd_slot *s); /* Of the client's own: as if it was never asked. */
bool sl_etcd_slot_silent(const struct sl_etcd_slot *s, sl_ms now);
sl_ms sl_etcd_slot_due(const struct sl_etcd_slot *s);
void sl_etcd_member_failed(struct sl_etcd *c, size_t member);

/* An error as etcd has it: its words into s->words, its code; false: it is none. */
bool sl_etcd_read_error(struct sl_etcd_slot *s, const char *text, size_t n);
bool sl_etcd_token_refused(const struct sl_etcd_slot *s);
bool sl_etcd_token_again(
    struct sl_etcd_slot *s); /* It waits for another; false: not twice. */

/* Copied as one line without control characters, cut if need be. */
void sl_etcd_words(char *out, size_t bytes, const char *text, size_t n);

/* --- etcd_watch.c -------------------------------------------------------------- */

void sl_etcd_watch_attempt_over(struct sl_etcd *c, CURLcode rc);
void sl_etcd_watch_work(struct sl_etcd *c);
sl_ms sl_etcd_watch_due(const struct sl_etcd *c);
void sl_etcd_watch_close(struct sl_etcd *c);

#endif /* SL_STORAGE_ETCD_CLIENT_INTERNAL_H */
