/* etcd_client.h - requests to an etcd through its HTTP gateway: sent, answered, lost.
 *
 * It has one descriptor (an epoll with curl's sockets and a timer in it) and does everything
 * in sl_etcd_work(): nothing blocks, nothing has a thread of ours. Connections are kept and
 * used again. Every request goes to the member that answered last; if it fails, to the next
 * one. What is known of a request is one of
 *
 *     ANSWERED   etcd said something: an answer, or an error with a code and words
 *     LOST       it was sent, at least in part, and no answer came: nobody knows
 *     UNSENT     no member was reached: it was not done
 *
 * A request that only reads may be `repeatable`: it is sent to the next member by the client
 * itself, until all were tried. Any other is tried with the next member only as long as it
 * is UNSENT. A member that has failed is passed over for two seconds, while there are others.
 *
 * Some errors of etcd do not say that a request was not done: grpc's 1, 2, 4, 13 and 14 ("no
 * leader", "leader changed", "request timed out"), and what a stranger answers with HTTP 5xx.
 * They are LOST (repeatable: the next member is asked), with status, code and words. So is
 * 200 without an object of JSON, whole.
 *
 * User and password, where there are any, are changed into a token when it is needed, and
 * again when etcd does not take the token any more (an answer that says so is not seen by
 * the caller: the request was not done, and is sent again, once). If they are wrong, a call is
 * ANSWERED with code 16 and "wrong user or password", without asking etcd more than once a
 * second. An etcd that has no users is asked without one.
 *
 * Nothing is paced here: a call that fails at once may be sent again at once, and should not
 * be. Redirects are not followed, proxies not used. The process ignores SIGPIPE. */
#ifndef SL_STORAGE_ETCD_CLIENT_H
#define SL_STORAGE_ETCD_CLIENT_H

#include "storage/storage.h"

struct sl_etcd; /* Opaque. */

enum sl_etcd_fate { SL_ETCD_ANSWERED, SL_ETCD_LOST, SL_ETCD_UNSENT };

/* The caller's, until `done` is called. */
struct sl_etcd_call {
    const char *path;     /* "/v3/kv/txn" */
    struct sl_bytes body; /* JSON; the caller's. */
    bool repeatable;
    size_t answer_bytes_max; /* More than that is `too_big`; 0: 64 MB. */
    void (*done)(struct sl_etcd_call *call);
    void *owner;

    enum sl_etcd_fate fate;
    bool too_big;           /* ANSWERED, and done; with no answer. */
    int http_status;        /* 200, or what went wrong; 0: there was no answer. */
    int code;               /* Of an error of etcd's (grpc's numbers); 0: none. */
    struct sl_bytes answer; /* JSON, until `done` returns. Of all that failed: words. */
    struct sl_list place;   /* The client's; as what follows. */
    void *inside;
};

/* Texts are copied. NULL: why says what is wrong. */
struct sl_etcd *sl_etcd_new(const struct sl_etcd_settings *s, char *why,
                            size_t why_bytes);

/* Calls under way are LOST or UNSENT: `done` is called for each; what is sent from there is
 * UNSENT at once, and must not be sent again. A watch does not say that it has ended. NULL is
 * allowed. */
void sl_etcd_free(struct sl_etcd *c);

int sl_etcd_fd(const struct sl_etcd *c);

/* What has come, what is due. At most so many `done`; true: there is more at once. */
bool sl_etcd_work(struct sl_etcd *c, size_t most);

/* `done` is never called from inside this. Connections at one time are bounded; who is one
 * too many waits in line. */
void sl_etcd_send(struct sl_etcd *c, struct sl_etcd_call *call);

/* A time to wake up at by itself, on the boot-time clock, besides its own: then the
 * descriptor is readable, and `woken` is called in sl_etcd_work(). SL_NEVER: none. */
void sl_etcd_wake_at(struct sl_etcd *c, sl_ms at_ms, void (*woken)(void *owner),
                     void *owner);

/* A watch of the keys from `key` up to `end`, from a revision on (0: from now): `told` has
 * each JSON object that comes, whole: the first says that it was created. When the stream
 * ends, by whatever, `ended` says so once, with etcd's words, or "": also when etcd cancels
 * the watch (that object is told before), when an object has more than 16 MB, and when the
 * member says nothing for answer_ms and then cannot read a key by majority within
 * answer_ms. One at a time: the next begins it anew, and the one before says nothing more;
 * it may be begun in `ended`, and then waits for a fifth of a second. */
struct sl_etcd_watch {
    struct sl_bytes key, end; /* The caller's, while it lasts. */
    uint64_t from;
    void (*told)(void *owner, struct sl_bytes json);
    void (*ended)(void *owner, const char *why);
    void *owner;
};
int sl_etcd_watch(struct sl_etcd *c, const struct sl_etcd_watch *w); /* OK or ENOMEM. */
void sl_etcd_unwatch(struct sl_etcd *c); /* `ended` is not called. */

/* What is wrong, in words: "" where the last request was answered, unless that was a want of
 * permission. "etcd: no member answers (http://...: Connection refused)", "etcd: wrong user or
 * password". There are no secrets in it. */
const char *sl_etcd_trouble(const struct sl_etcd *c);

/* --- Words of its protocol ---------------------------------------------------------- */

/* Base64, as the gateway has keys and values. */
size_t sl_base64_bytes(size_t n);                   /* Of so many, with the end. */
void sl_base64_write(char *out, struct sl_bytes b); /* With its end. */
bool sl_base64_read(const char *text, char *out, size_t *n); /* In place is allowed. */

/* The end of a range of all keys that begin so: the last byte one higher, without those of
 * 255 at its end. `out` has room for prefix.n. False: there is none (all bytes are 255). */
bool sl_prefix_end(struct sl_bytes prefix, char *out, size_t *n);

#endif /* SL_STORAGE_ETCD_CLIENT_H */
