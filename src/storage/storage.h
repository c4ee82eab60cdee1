/* storage.h - the data that survives a restart: the current term, commits, and bars.
 *
 * One interface, two implementations: LMDB in a file of the data directory, for one server; etcd,
 * for a cluster. A caller submits operations, and sl_storage_work() reports their results later,
 * on the caller's thread: the storage works on threads of its own or waits for a network, and
 * the caller has an event loop that must not wait.
 *
 *     commit:  was this request committed before?   then it succeeds, and nothing is done again
 *              is the term the current one?         else ESTALE, with the current one
 *              is the transaction barred?           then EBARRED
 *              else it is applied, with its request, at the next revision
 *
 * in this order: a client that lost an answer repeats its request, perhaps to the keeper of the
 * next term, and must learn that it was committed. A *bar* makes sure that a transaction does
 * not commit any more, although its commit may be on its way.
 *
 * The storage does operations in the order of submission. It does those that wait together in
 * one write, with one sync, where each succeeds or fails alone. A result is durable before it is
 * reported. Revisions never decrease. On etcd they are etcd's own, and operations that were done
 * together have the same one. READ and SCAN do not wait for other operations: they see what was
 * reported before they were submitted, and perhaps more. */
#ifndef SL_STORAGE_STORAGE_H
#define SL_STORAGE_STORAGE_H

#include "base/hash.h"
#include "base/types.h"
#include "sluice.h"

struct sl_storage; /* Opaque. */

/* Longer names are ETOOBIG: table and key together; a request. */
#define SL_STORAGE_NAME_BYTES_MAX 509
#define SL_STORAGE_REQUEST_BYTES_MAX 511

enum sl_storage_op_type {
    /* Begin the next term, for this node, if `term` is still the current one and, unless it is
     * 0, `heartbeat` is current as well. Drops bars of older terms. LMDB compares nothing, since
     * only one server uses it. */
    SL_STORAGE_CLAIM,
    SL_STORAGE_READ_TERM, /* Read the current term. Only on etcd, like the next one. */
    /* term, fence_limit, longest_ms: if the node is still the keeper, store both limits and a new
     * heartbeat. */
    SL_STORAGE_RENEW,
    SL_STORAGE_COMMIT,  /* term, id, request, writes; without writes it only checks. */
    SL_STORAGE_BAR,     /* term, id */
    SL_STORAGE_OUTCOME, /* request: was it committed? */
    SL_STORAGE_READ,    /* table, key */
    SL_STORAGE_SCAN,    /* table, rows_max */
};

struct sl_storage_write {
    struct sl_bytes table, key;
    struct sl_bytes value; /* at NULL: delete the key. */
};

struct sl_storage_row {
    struct sl_bytes key, value;
};

/* The record of the current term. */
struct sl_storage_term {
    uint64_t term;        /* 0: there was none yet. */
    uint32_t node;        /* The keeper. */
    uint64_t heartbeat;   /* Increases with each renewal. */
    sl_fence fence_limit; /* The keeper gives no fence above this one, */
    sl_ms longest_ms;     /* and no longer lease. */
};

/* The result of an operation. */
struct sl_storage_result {
    int status; /* OK; ESTALE: `term` is the current one; EBARRED; ENOSPC, EIO, ENOMEM. */
    uint64_t term;
    uint64_t revision; /* COMMIT, OUTCOME. */
    bool found;        /* READ, OUTCOME. */
    struct sl_bytes value;
    const struct sl_storage_row
        *rows; /* SCAN: in the order of memcmp() of their keys. */
    uint32_t row_count;
    /* READ_TERM: the record. CLAIM that succeeded: the previous record, with the new term.
     * ESTALE: the current record. */
    struct sl_storage_term term_record;
};

/* An operation. The storage borrows it, with everything it points to, until it calls `done`.
 * After ENOSPC, EIO, ENOMEM and ETOOBIG nothing was done, and nothing will be. ECLOSED, after
 * sl_storage_hurry(): it may have been done; SL_STORAGE_OUTCOME will tell. */
struct sl_storage_op {
    enum sl_storage_op_type type;
    uint64_t term, id;
    struct sl_bytes request; /* n 0: none. */
    struct sl_bytes table, key;
    const struct sl_storage_write *writes;
    uint32_t write_count;
    uint32_t rows_max;    /* SCAN: more rows are ETOOBIG, */
    size_t bytes_max;     /* and so are more bytes; 0: no limit. */
    uint32_t node;        /* CLAIM. */
    uint64_t heartbeat;   /* CLAIM. */
    sl_fence fence_limit; /* RENEW. */
    sl_ms longest_ms;     /* RENEW. */

    void (*done)(struct sl_storage_op *op);
    void *owner;
    struct sl_storage_result result; /* Its bytes are valid until `done` returns. */
    struct sl_list place;            /* The storage's. */
};

struct sl_storage_settings {
    const char *directory; /* The directory of the store. */
    size_t bytes_max;      /* The store grows up to this size; then ENOSPC. */
    sl_ms dedup_keep_ms;   /* The storage remembers a request for so long. */
    uint32_t group_max;    /* Commits with one sync; 1: each has its own. */
};

/* How to reach etcd. Texts are copied. */
struct sl_etcd_settings {
    const char *members;         /* "http://a:2379,http://b:2379"; one is enough. */
    const char *prefix;          /* Of all keys, so that clusters can share etcd. */
    const char *user, *password; /* "": none. */
    const char *ca, *cert, *key; /* Files, for https; "": none. */
    sl_ms answer_ms;             /* How long to wait for an answer of a member. */
    uint32_t ops_max;            /* Operations of one transaction (--max-txn-ops), */
    size_t request_bytes_max;    /* and its bytes (--max-request-bytes). */
    sl_ms dedup_keep_ms;         /* As above. */
    uint32_t group_max;
};

/* Sends nothing yet, so it does not fail if etcd cannot be reached. NULL: `why` says what is wrong
 * with the settings. */
struct sl_storage *sl_storage_open_etcd(const struct sl_etcd_settings *s, char *why,
                                        size_t why_bytes);

/* Check each page and each record of the store in a directory, within most_ms. The check runs in
 * a child process, which a damaged file may kill. Call it before the store is opened, and before
 * the caller has threads. SLUICE_OK; ENOENT: there is no store; ETRUNCATED: it is damaged, or
 * could not be checked in time; EFOREIGN, EVERSION, EACCES, ENOMEM, EIO. Unless it is OK or
 * ENOENT, `why` says what is wrong, and what to do. */
#define SL_STORAGE_WHY_BYTES 400u
int sl_storage_try_lmdb(const char *directory, sl_ms most_ms, char *why,
                        size_t why_bytes);

/* NULL: `why` says what is wrong, and what to do. */
struct sl_storage *sl_storage_open_lmdb(const struct sl_storage_settings *s, char *why,
                                        size_t why_bytes);

/* The server is about to stop: from now on, an operation whose outcome cannot be found out within
 * about two seconds is ECLOSED. Before, it waits until the disk or etcd works again. */
void sl_storage_hurry(struct sl_storage *s);

/* Finishes submitted operations first, as after sl_storage_hurry(). Their `done` must not submit
 * another one. NULL is allowed. */
void sl_storage_close(struct sl_storage *s);

void sl_storage_submit(struct sl_storage *s, struct sl_storage_op *op);

/* The descriptor is readable while results are there. sl_storage_work() then calls `done` for at
 * most this many operations. True: there are more. */
int sl_storage_fd(const struct sl_storage *s);
bool sl_storage_work(struct sl_storage *s, size_t most);

/* From now on sl_storage_work() calls `changed` with the record of the current term, when it has
 * changed, and when etcd can be reached again after it could not. */
void sl_storage_watch(struct sl_storage *s,
                      void (*changed)(void *owner, const struct sl_storage_term *term),
                      void *owner);

/* Why the storage does not work, for an operator; "" if it works. It also says why operations are
 * not answered: a commit that may have been done is tried again until that is known. */
const char *sl_storage_trouble(const struct sl_storage *s);

struct sl_storage_stats {
    uint64_t term, revision;
    uint64_t commits, duplicates, groups, errors;
    uint64_t keys, bytes_used, bytes_max;
    size_t waiting; /* Operations that are not reported yet. */
};
void sl_storage_stats(struct sl_storage *s, struct sl_storage_stats *out);

/* Check the invariants: each operation is in exactly one queue or task, and so on. For tests. */
void sl_storage_check(struct sl_storage *s);

#endif /* SL_STORAGE_STORAGE_H */
