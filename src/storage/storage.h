/* storage.h - the data that survives a restart: the current term, commits, and bars.
 *
 * The interface has two implementations: LMDB, in a file of the data directory, for a
 * single server; and etcd, for a cluster. A caller submits operations, and
 * sl_storage_work() reports their results later, on the caller's thread. The storage
 * runs its own threads or waits for a network, so that it never blocks the caller's
 * event loop.
 *
 * For a commit, the storage checks in this order:
 *
 *     1. The request was committed before: report success, and write nothing again.
 *     2. The term is not the current one: ESTALE, with the current term.
 *     3. The transaction is barred: EBARRED.
 *     4. Otherwise, store the writes and the request at the next revision.
 *
 * The order matters: a client that lost the connection repeats its request, perhaps to
 * the keeper of the next term, and must learn that the request was committed. A *bar*
 * makes sure that a transaction can no longer commit, even if its commit has already
 * been sent.
 *
 * The storage executes operations in the order of submission. It groups waiting
 * operations into one write with one sync; each operation still succeeds or fails
 * separately. The storage makes a result durable before it reports it. Revisions never
 * decrease. On etcd they are etcd's own revisions, and all operations of one group have
 * the same revision. READ, SCAN and JOURNAL do not wait for other operations: they see
 * all changes that were reported before they were submitted, and perhaps newer ones.
 *
 * On etcd, the storage also keeps the keeper's *journal*: a set of rows that only the
 * keeper of the current term changes, with RECORD. The storage does not interpret
 * them. */
#ifndef SL_STORAGE_STORAGE_H
#define SL_STORAGE_STORAGE_H

#include "base/hash.h"
#include "base/types.h"
#include "sluice.h"

struct sl_storage; /* Opaque. */

/* Limits for the length of a table name plus a key, and of a request. Longer names fail
 * with ETOOBIG. */
#define SL_STORAGE_NAME_BYTES_MAX 509
#define SL_STORAGE_REQUEST_BYTES_MAX 511

/* The limit for the length of a key of the journal, which has at least one byte. */
#define SL_STORAGE_JOURNAL_KEY_BYTES_MAX 1100

enum sl_storage_op_type {
    /* Begin the next term with this node as the keeper, if `term` is still the current
     * term. If `heartbeat` is not 0, it must be current too. The new term is not
     * resigned, and has no ledgers. Removes bars of older terms. LMDB does not compare
     * anything, because only one server uses it. */
    SL_STORAGE_CLAIM,
    SL_STORAGE_READ_TERM, /* Read the current term. Only on etcd, like RENEW. */
    /* term, fence_limit, longest_ms, clock_ms, ledgers: store these values and a new
     * heartbeat, if `term` is the current term and not resigned; otherwise ESTALE. */
    SL_STORAGE_RENEW,
    /* The same, and mark the term as resigned. From then on, every RENEW of this term
     * fails with ESTALE, even one that was sent earlier. RESIGN overtakes operations
     * that wait, so wait for the results of all RECORD operations first. After EIO and
     * ENOSPC, RESIGN may have been executed, or may still be; it can be repeated, and
     * succeeds if the term is resigned already. Only on etcd. */
    SL_STORAGE_RESIGN,
    SL_STORAGE_COMMIT,  /* term, id, request, writes; without writes: only check. */
    SL_STORAGE_BAR,     /* term, id */
    SL_STORAGE_OUTCOME, /* request: return whether it was committed. */
    SL_STORAGE_READ,    /* table, key */
    SL_STORAGE_SCAN,    /* table, rows_max */
    /* term, writes: change rows of the journal, all or none, if `term` is the current
     * term; without writes: only check. `table` of a write is unused. No two writes may
     * have the same key. An operation that exceeds sl_storage_record_limits() fails
     * with ETOOBIG. Operations with a key in common keep their order. Only on etcd. */
    SL_STORAGE_RECORD,
    /* key, rows_max, bytes_max: read the next rows of the journal, those after `key` (n
     * 0: from the beginning), in the order of their keys. There may be fewer rows than
     * rows_max; `more` tells whether rows follow. A single row may exceed bytes_max. One
     * request to etcd reads up to bytes_max, at most 4 MB (0: 256 KB); parsing 1 MB of
     * answer blocks the caller for some 30 ms. Only on etcd. */
    SL_STORAGE_JOURNAL,
};

struct sl_storage_write {
    struct sl_bytes table, key;
    struct sl_bytes value; /* `at` is NULL: delete the key. */
};

struct sl_storage_row {
    struct sl_bytes key, value;
};

/* The record of the current term. */
struct sl_storage_term {
    uint64_t term;        /* 0: no term has begun yet. */
    uint32_t node;        /* The keeper. */
    uint64_t heartbeat;   /* Increases with each renewal. */
    sl_fence fence_limit; /* The keeper issues no higher fence, */
    sl_ms longest_ms;     /* and grants no longer lease without a record. */
    /* Journal time (failover/keeper_journal.h) when the keeper sent its claim or its last
     * renewal. 0: not known. */
    sl_ms clock_ms;
    /* The nodes whose ledgers together have all leases without a record (failover/takeover.c): bit
     * n for node n; 0: some leases may be in no ledger, as after a claim. If the keeper has resigned:
     * the nodes whose clients may hold locks without a lease. */
    uint32_t ledgers;
    bool resigned; /* The keeper has ended its term with RESIGN. */
};

/* The result of an operation. */
struct sl_storage_result {
    /* OK; ESTALE, with the current term in `term`; EBARRED, ENOSPC, EIO or ENOMEM. */
    int status;
    uint64_t term;
    uint64_t revision; /* COMMIT, OUTCOME, RECORD. */
    bool found;        /* READ, OUTCOME. */
    struct sl_bytes value;
    /* SCAN, JOURNAL: sorted by key, as memcmp() compares. */
    const struct sl_storage_row *rows;
    uint32_t row_count;
    bool more; /* JOURNAL: there are rows after these. */
    /* After READ_TERM: the record of the current term. After a CLAIM that succeeded:
     * the previous record, but with the new term. After ESTALE: the current record. */
    struct sl_storage_term term_record;
};

/* An operation. The storage borrows the operation and everything that it points to,
 * until it calls `done`. After ENOSPC, EIO, ENOMEM and ETOOBIG, the operation has had
 * no effect and never will. After ECLOSED, which occurs only after sl_storage_hurry(),
 * the operation may have been executed; use SL_STORAGE_OUTCOME to find out (for RECORD,
 * read the journal). RENEW and RESIGN are exceptions: after EIO and ENOSPC, they may
 * have been executed, or may still be. */
struct sl_storage_op {
    enum sl_storage_op_type type;
    uint64_t term, id;
    struct sl_bytes request; /* n 0: none. */
    struct sl_bytes table, key;
    const struct sl_storage_write *writes;
    uint32_t write_count;
    uint32_t rows_max;    /* SCAN: more rows fail with ETOOBIG, */
    size_t bytes_max;     /* and so do more bytes; 0: no limit. JOURNAL: see above. */
    uint32_t node;        /* CLAIM. */
    uint64_t heartbeat;   /* CLAIM. */
    sl_fence fence_limit; /* RENEW, RESIGN. */
    sl_ms longest_ms;     /* RENEW, RESIGN. */
    sl_ms clock_ms;       /* CLAIM, RENEW, RESIGN: journal time now. */
    uint32_t ledgers;     /* RENEW, RESIGN. */

    void (*done)(struct sl_storage_op *op);
    void *owner;
    struct sl_storage_result result; /* Its bytes stay valid until `done` returns. */
    struct sl_list place;            /* Used by the storage. */
};

struct sl_storage_settings {
    const char *directory; /* The directory of the store. */
    size_t bytes_max;      /* The store grows up to this size; beyond it, ENOSPC. */
    sl_ms dedup_keep_ms;   /* How long the storage remembers a request. */
    uint32_t group_max;    /* How many commits may share a sync; 1: none. */
};

/* How to reach etcd. The storage copies the strings. */
struct sl_etcd_settings {
    const char *members; /* "http://a:2379,http://b:2379"; one is enough. */
    const char *prefix;  /* Prefix of all keys, so that clusters can share etcd. */
    const char *user, *password; /* "": none. */
    const char *ca, *cert, *key; /* Files, for https; "": none. */
    sl_ms answer_ms;             /* How long to wait for a member's answer. */
    uint32_t ops_max;         /* Limit of operations per transaction (--max-txn-ops), */
    size_t request_bytes_max; /* and of bytes per request (--max-request-bytes). */
    sl_ms dedup_keep_ms;      /* How long the storage remembers a request. */
    uint32_t group_max;
};

/* Open a storage on etcd. This sends nothing yet, so it succeeds even if etcd cannot be
 * reached. Returns NULL if a setting is invalid, with the reason in `why`. */
struct sl_storage *sl_storage_open_etcd(const struct sl_etcd_settings *s, char *why,
                                        size_t why_bytes);

/* Check each page and each record of the store in a directory, within most_ms. The
 * check runs in a child process, because a damaged file may kill the process that reads
 * it. Call this before opening the store and before starting threads. Returns
 * SLUICE_OK; ENOENT if there is no store; ETRUNCATED if the store is damaged or the
 * check took too long; EFOREIGN, EVERSION, EACCES, ENOMEM or EIO. Except after OK and
 * ENOENT, `why` contains the reason and the remedy. */
#define SL_STORAGE_WHY_BYTES 400u
int sl_storage_try_lmdb(const char *directory, sl_ms most_ms, char *why,
                        size_t why_bytes);

/* Open the store in s->directory; create it if it does not exist. On failure, returns
 * NULL and writes the reason and the remedy to `why`. */
struct sl_storage *sl_storage_open_lmdb(const struct sl_storage_settings *s, char *why,
                                        size_t why_bytes);

/* Prepare for shutdown. Without this call, an operation whose outcome is unknown waits
 * until the disk or etcd works again. From now on, it fails with ECLOSED after about
 * two seconds. */
void sl_storage_hurry(struct sl_storage *s);

/* Close the storage. This finishes submitted operations first, as after
 * sl_storage_hurry(). Their `done` functions must not submit new operations. NULL is
 * allowed. */
void sl_storage_close(struct sl_storage *s);

void sl_storage_submit(struct sl_storage *s, struct sl_storage_op *op);

/* The limits of one RECORD operation: it has at most `writes` writes, and the sum of
 * their keys and values, plus `bytes_per_write` for each, is at most `bytes`. All are 0
 * if the storage has no journal. */
struct sl_storage_record_limits {
    uint32_t writes;
    size_t bytes, bytes_per_write;
};
void sl_storage_record_limits(const struct sl_storage *s,
                              struct sl_storage_record_limits *out);

/* sl_storage_fd() returns a descriptor that is readable while there are results to
 * report. sl_storage_work() then calls `done` for at most `most` operations. It returns
 * true if there are more. */
int sl_storage_fd(const struct sl_storage *s);
bool sl_storage_work(struct sl_storage *s, size_t most);

/* Watch the current term: from now on, sl_storage_work() calls `changed` with the term
 * record whenever it has changed, and whenever etcd becomes reachable again. */
void sl_storage_watch(struct sl_storage *s,
                      void (*changed)(void *owner, const struct sl_storage_term *term),
                      void *owner);

/* Return the reason why the storage does not work, as a text for the operator; "" if it
 * works. The text also explains why operations are delayed: the storage retries a
 * commit whose outcome is unknown until it knows the outcome. */
const char *sl_storage_trouble(const struct sl_storage *s);

struct sl_storage_stats {
    uint64_t term, revision;
    uint64_t commits, duplicates, groups, errors;
    uint64_t records; /* Rows of the journal that RECORD has written or deleted. */
    uint64_t keys, bytes_used, bytes_max;
    size_t waiting; /* Operations that have not been reported yet. */
};
void sl_storage_stats(struct sl_storage *s, struct sl_storage_stats *out);

/* Check the invariants; for example, each operation is in exactly one queue or task.
 * For tests. */
void sl_storage_check(struct sl_storage *s);

#endif /* SL_STORAGE_STORAGE_H */
