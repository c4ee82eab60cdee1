/* client.h - sends requests to etcd through its HTTP gateway and reports their
 * outcomes.
 *
 * The client has one file descriptor (an epoll instance with curl's sockets and a
 * timer) and does all its work in sl_etcd_client_work(). It never blocks and has no
 * thread. It reuses connections. The client sends a request to the member that leads etcd,
 * or, until it knows the leader, to the first member; if that member fails, to the next one.
 * The outcome of a request is one of:
 *
 *     ANSWERED   etcd answered, or returned an error with a code and a message
 *     LOST       the client sent at least a part of it, but etcd did not answer: etcd may
 *                have executed it
 *     UNSENT     the client reached no member: etcd has not executed it
 *
 * A request that only reads may be `repeatable`: the client sends it to one member
 * after the other until one answers. The client sends any other request to the next
 * member only if it is still UNSENT. The client skips a member that has failed for two
 * seconds, as long as there are other members.
 *
 * After some errors, etcd may have executed the request: the gRPC codes 1, 2, 4, 13 and
 * 14 ("no leader", "leader changed", "request timed out"), and HTTP 5xx from a server
 * that is not etcd. Such a request is LOST, with status, code and message; the client
 * sends a repeatable request to the next member instead. The same applies to HTTP 200
 * without a complete JSON object.
 *
 * If there are a user and a password, the client exchanges them for a token when it
 * needs one, and again when etcd rejects the token. The caller does not see such a
 * rejection: etcd has not executed the request, and the client sends it once more. If
 * the password is wrong, calls are ANSWERED with code 16 and "wrong user or password",
 * and the client requests a token at most once a second. If authentication is disabled
 * in etcd, the client sends no token.
 *
 * The client does not limit the rate of requests: a caller whose call fails immediately
 * should pause before it sends another. The client follows no redirects and uses no
 * proxy. The process must ignore SIGPIPE. */
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
    bool too_big;           /* ANSWERED and executed, but the answer is missing. */
    int http_status;        /* 0: no answer. */
    int code;               /* gRPC code of an error of etcd; 0: no error. */
    struct sl_bytes answer; /* JSON, or an error message; valid until `done` returns. */
    struct sl_list place;   /* Used by the client, like the next field. */
    void *inside;
};

/* Create a client. Copies the settings. On failure, returns NULL and writes the reason
 * to `why`. */
struct sl_etcd_client *sl_etcd_client_new(const struct sl_etcd_settings *s, char *why,
                                          size_t why_bytes);

/* Free the client. Calls without an answer become LOST or UNSENT, and the client calls
 * `done` for each of them. If `done` sends a new call, that call is UNSENT at once and
 * must not be sent again. A watch ends without a callback. NULL is allowed. */
void sl_etcd_client_free(struct sl_etcd_client *c);

int sl_etcd_client_fd(const struct sl_etcd_client *c);

/* Handle answers that have arrived and timeouts that are due. Calls `done` for at most
 * `most` calls. Returns true if there is more to do immediately. */
bool sl_etcd_client_work(struct sl_etcd_client *c, size_t most);

/* Send a call. Never calls `done` itself. The number of connections is limited; further
 * calls wait in a queue. */
void sl_etcd_client_send(struct sl_etcd_client *c, struct sl_etcd_call *call);

/* Set a timer: at this time of the boot-time clock, the file descriptor becomes
 * readable and sl_etcd_client_work() calls `woken`. SL_NEVER cancels the timer. */
void sl_etcd_client_wake_at(struct sl_etcd_client *c, sl_ms at_ms,
                            void (*woken)(void *owner), void *owner);

/* A watch of the keys from `key` up to `end`, from a revision on (0: from now).
 * `on_object` receives each JSON object as it arrives; the first says that the watch
 * was created. When the stream ends, for whatever reason, the client calls `on_end`
 * once, with the message of etcd or "". The client ends the stream when etcd cancels
 * the watch (`on_object` receives that object first), when an object has more than 16
 * MB, and when the member is silent for answer_ms and then fails to execute a
 * linearizable read within answer_ms.
 *
 * A client has at most one watch: a new watch replaces the old one without a call of
 * `on_end`. You may start a new watch in `on_end`; it then begins a fifth of a second
 * later. */
struct sl_etcd_watch {
    struct sl_bytes key, end; /* Borrowed until the watch ends. */
    uint64_t from;
    void (*on_object)(void *owner, struct sl_bytes json);
    void (*on_end)(void *owner, const char *why);
    void *owner;
};
int sl_etcd_client_watch(struct sl_etcd_client *c,
                         const struct sl_etcd_watch *w); /* Returns OK or ENOMEM. */
void sl_etcd_client_unwatch(struct sl_etcd_client *c);   /* Does not call `on_end`. */

/* Return the current problem with etcd, as a text for the operator. Examples: "etcd: no
 * member answers (http://...: Connection refused)", "etcd: wrong user or password". The
 * text is "" if the last request was answered, unless a permission was missing. It
 * contains no secrets. */
const char *sl_etcd_client_trouble(const struct sl_etcd_client *c);

/* --- Base64 and ranges (base64.c) -------------------------------------------- */

size_t sl_etcd_base64_bytes(size_t n); /* Size of n bytes as base64, with '\0'. */
void sl_etcd_base64_write(char *out, struct sl_bytes b);
/* `out` may be `text`. */
bool sl_etcd_base64_read(const char *text, char *out, size_t *n);

/* Compute the end of the range of all keys with a prefix: remove trailing bytes 255
 * from the prefix, then add one to the last byte. `out` has prefix.n bytes. Returns
 * false if all bytes are 255, because then the range has no end. */
bool sl_etcd_prefix_end(struct sl_bytes prefix, char *out, size_t *n);

#endif /* SL_STORAGE_ETCD_CLIENT_H */
