/* client.h - requests to etcd through its HTTP gateway: sent, answered, lost.
 *
 * The client has one descriptor (an epoll with curl's sockets and a timer in it) and does
 * everything in sl_etcd_client_work(): it never blocks and has no thread. It keeps connections
 * and uses them again. A request goes to the member that answered last; if that fails, to the
 * next one. In the end a request is one of
 *
 *     ANSWERED   etcd answered, or returned an error with a code and a message
 *     LOST       at least a part of it was sent, and no answer came: it may have been done
 *     UNSENT     no member was reached: it was not done
 *
 * A request that only reads may be `repeatable`: the client sends it to one member after the
 * other until one answers. Any other request goes to the next member only while it is UNSENT. A
 * member that has failed is skipped for two seconds, as long as there are others.
 *
 * After some errors of etcd the request may have been done: gRPC's 1, 2, 4, 13 and 14 ("no
 * leader", "leader changed", "request timed out"), and HTTP 5xx from something that is not etcd.
 * Such a request is LOST (a repeatable one goes to the next member), with status, code and
 * message. The same holds for HTTP 200 without a complete JSON object.
 *
 * If there are a user and a password, the client exchanges them for a token when it needs one,
 * and again when etcd rejects the token. The caller does not see such an answer: the request was
 * not done, and is sent again, once. If the password is wrong, calls are ANSWERED with code 16
 * and "wrong user or password", and the client asks etcd at most once a second. If etcd has no
 * users, the client sends no token.
 *
 * The client does not pace requests: a caller whose call fails at once should pause before it
 * sends another. The client follows no redirects and uses no proxy. The process must ignore
 * SIGPIPE. */
#ifndef SL_STORAGE_ETCD_CLIENT_H
#define SL_STORAGE_ETCD_CLIENT_H

#include "storage/storage.h"

struct sl_etcd_client; /* Opaque. */

enum sl_etcd_fate { SL_ETCD_ANSWERED, SL_ETCD_LOST, SL_ETCD_UNSENT };

/* The client borrows a call until it calls `done`. */
struct sl_etcd_call {
    const char *path;     /* "/v3/kv/txn" */
    struct sl_bytes body; /* JSON. */
    bool repeatable;
    size_t answer_bytes_max; /* A longer answer is `too_big`; 0: 64 MB. */
    void (*done)(struct sl_etcd_call *call);
    void *owner;

    enum sl_etcd_fate fate;
    bool too_big;           /* ANSWERED and done, but without the answer. */
    int http_status;        /* 0: there was no answer. */
    int code;               /* Of an error of etcd (gRPC's numbers); 0: none. */
    struct sl_bytes answer; /* JSON, or a message if it failed; until `done` returns. */
    struct sl_list place;   /* The client's, like the next field. */
    void *inside;
};

/* Copies the settings. NULL: `why` says what is wrong. */
struct sl_etcd_client *sl_etcd_client_new(const struct sl_etcd_settings *s, char *why,
                                          size_t why_bytes);

/* Calls that are not answered yet are LOST or UNSENT, and `done` is called for each of them. A
 * call that is sent from there is UNSENT at once, and must not be sent again. A watch ends
 * without a callback. NULL is allowed. */
void sl_etcd_client_free(struct sl_etcd_client *c);

int sl_etcd_client_fd(const struct sl_etcd_client *c);

/* Handle what has arrived and what is due. Calls at most this many `done`; true: there is more to
 * do at once. */
bool sl_etcd_client_work(struct sl_etcd_client *c, size_t most);

/* Never calls `done` from inside. The number of connections is limited; other calls wait in a
 * queue. */
void sl_etcd_client_send(struct sl_etcd_client *c, struct sl_etcd_call *call);

/* At this time of the boot-time clock the descriptor becomes readable, and
 * sl_etcd_client_work() calls `woken`. SL_NEVER: cancel that. */
void sl_etcd_client_wake_at(struct sl_etcd_client *c, sl_ms at_ms,
                            void (*woken)(void *owner), void *owner);

/* A watch of the keys from `key` up to `end`, from a revision on (0: from now). `on_object`
 * receives each JSON object as it arrives; the first says that the watch was created. When the
 * stream ends, for whatever reason, `on_end` is called once, with the message of etcd or "". It
 * also ends when etcd cancels the watch (`on_object` receives that object first), when an object
 * has more than 16 MB, and when the member is silent for answer_ms and then fails to do a
 * linearizable read within answer_ms.
 *
 * There is one watch at a time: a new one replaces the old one without a call of `on_end`. It
 * may be started in `on_end`, and then begins a fifth of a second later. */
struct sl_etcd_watch {
    struct sl_bytes key, end; /* Borrowed while the watch lasts. */
    uint64_t from;
    void (*on_object)(void *owner, struct sl_bytes json);
    void (*on_end)(void *owner, const char *why);
    void *owner;
};
int sl_etcd_client_watch(struct sl_etcd_client *c,
                         const struct sl_etcd_watch *w); /* OK or ENOMEM. */
void sl_etcd_client_unwatch(struct sl_etcd_client *c);   /* Does not call `on_end`. */

/* What is wrong, for an operator: "" if the last request was answered, unless a permission was
 * missing. "etcd: no member answers (http://...: Connection refused)", "etcd: wrong user or
 * password". It contains no secrets. */
const char *sl_etcd_client_trouble(const struct sl_etcd_client *c);

/* --- Base64 and ranges (base64.c) -------------------------------------------- */

size_t sl_etcd_base64_bytes(size_t n); /* For n bytes, with the '\0'. */
void sl_etcd_base64_write(char *out, struct sl_bytes b);
bool sl_etcd_base64_read(const char *text, char *out, size_t *n); /* Also in place. */

/* The end of the range of all keys with a prefix: the prefix without trailing bytes 255, and its
 * last byte plus one. `out` has prefix.n bytes. False: all bytes are 255, there is no end. */
bool sl_etcd_prefix_end(struct sl_bytes prefix, char *out, size_t *n);

#endif /* SL_STORAGE_ETCD_CLIENT_H */
