/* manager.h - the transaction manager: which transaction may read, write and commit what.
 *
 * The manager is a value, as the lock table is: the time, requests of clients and results of
 * the storage go in; orders come out of sl_tx_manager_next(). It keeps locks, and writes that
 * are not committed yet; none of this survives it. What lasts (terms, commits, bars) is in the
 * storage (storage/storage.h), to which the manager gives orders. README.md states the rules,
 * and why they are serializable.
 *
 *     CANDIDATE --claim confirmed--> CURRENT --another term is current--> STOPPED
 *
 *     BEGIN -> running --COMMIT--> committing --> (gone)
 *               | ^                      \--> refused: STALE, BARRED, NOSPC ... (gone)
 *     deadlock  v | BEGIN
 *           restarting                    its client disconnects: barred --> (gone)
 *
 * Locks are held to the end (strict two-phase locking), on tables and on keys in them, with
 * intention locks on the table of a key, so that locks on tables and on keys meet there. A
 * transaction waits for one lock at a time. Queues are ordered by age, but a transaction that
 * holds a weaker lock on the item comes first. A deadlock is detected when it arises. Its
 * youngest transaction is the victim, and restarts: it loses its locks and keeps its number,
 * so it grows older and finally wins.
 *
 * Not thread-safe. */
#ifndef SL_TX_MANAGER_H
#define SL_TX_MANAGER_H

#include "base/hash.h"
#include "base/types.h"
#include "sluice.h"
#include "storage/storage.h"

struct sl_tx_manager; /* Opaque. */

/* --- Locks ------------------------------------------------------------------ */

enum sl_tx_mode {
    SL_TX_MODE_NONE,
    SL_TX_MODE_IR,  /* Intention on a table: to read keys of it. */
    SL_TX_MODE_IW,  /* To write keys of it. */
    SL_TX_MODE_R,   /* Read the key, or the whole table. */
    SL_TX_MODE_RIW, /* Read the whole table, and write keys of it. */
    SL_TX_MODE_W    /* Write the key, or the whole table. */
};

/* Whether two transactions may hold these modes of one item; and the weakest mode that
 * includes both. */
bool sl_tx_mode_fits(enum sl_tx_mode a, enum sl_tx_mode b);
enum sl_tx_mode sl_tx_mode_both(enum sl_tx_mode a, enum sl_tx_mode b);
const char *sl_tx_mode_name(enum sl_tx_mode mode);

/* --- Limits -------------------------------------------------------------------- */

struct sl_tx_manager_limits {
    uint32_t transactions_max;
    uint32_t locks_max;     /* Of one transaction. */
    size_t total_locks_max; /* Of all; 0: no limit. A deadlock search may visit each. */
    uint32_t writes_max;    /* Of one transaction. */
    size_t bytes_max;       /* Of the writes of one transaction. */
    size_t total_bytes_max; /* Of the writes of all; 0: no limit. */
    sl_ms age_ms_max;       /* An older transaction is aborted; SL_NEVER: no limit. */
    size_t name_bytes_max;  /* Table and key together: what the storage accepts. */
    size_t value_bytes_max;
    size_t request_bytes_max;
    uint32_t rows_max;     /* Of one scan. */
    size_t scan_bytes_max; /* Keys and values of one scan; 0: no limit. */
};

/* --- Requests ------------------------------------------------------------------- */

enum sl_tx_verb {
    SL_TX_BEGIN,
    SL_TX_LOCK,
    SL_TX_GET,
    SL_TX_PUT,
    SL_TX_DEL,
    SL_TX_SCAN,
    SL_TX_COMMIT,
    SL_TX_ABORT,
    SL_TX_OUTCOME,
};

struct sl_tx_request {
    enum sl_tx_verb type;
    uint64_t session;        /* Has one transaction at a time. */
    struct sl_bytes request; /* BEGIN, OUTCOME: the idempotency key; n 0: none. */
    bool write;              /* LOCK. */
    struct sl_bytes table;
    struct sl_bytes key; /* LOCK: at is NULL for the whole table. */
    struct sl_bytes value;
    bool bounded; /* LOCK: it waits at most wait_ms, which may be 0. */
    sl_ms wait_ms;
};

/* The answer to a request. Its status:
 *
 *     ENOTX        the session has no transaction; or, at BEGIN, has one; or its last request
 *                  is not answered yet
 *     EINVAL       an empty name
 *     EFULL        the lock was not granted within wait_ms
 *     ERESTART     the transaction was restarted, BEGIN again; `cycle` names the deadlock
 *     ESTALE       another keeper is current
 *     EBARRED      the transaction was given up
 *     ENOKEEPER    this manager is not current yet, or no longer
 *     ETOOBIG, ELOCKS, EWRITES, EAGE, ETRANSACTIONS    a limit is exceeded
 *     ENOSPC, EIO, ENOMEM
 *
 * The transaction continues after all of these but ERESTART and EAGE, which need BEGIN, and
 * ESTALE and EBARRED. A COMMIT always ends it. */
struct sl_tx_answer {
    int status;
    uint64_t term, id; /* BEGIN; with ESTALE, the term that is current. */
    uint64_t revision; /* COMMIT, OUTCOME. */
    bool found;        /* GET, DEL, OUTCOME. */
    struct sl_bytes value;
    const struct sl_storage_row *rows; /* SCAN, by key. */
    uint32_t row_count;
    const uint64_t *cycle; /* Transactions; each waits for the next. */
    uint32_t cycle_count;
};

/* --- Orders ---------------------------------------------------------------------- */

enum sl_tx_order_type {
    SL_TX_ORDER_ANSWER,
    /* To the storage: */
    SL_TX_ORDER_CLAIM,   /* Make this manager current. */
    SL_TX_ORDER_COMMIT,  /* term and id; without writes, it only read. */
    SL_TX_ORDER_BAR,     /* The transaction with this id must not commit. */
    SL_TX_ORDER_READ,    /* table, key */
    SL_TX_ORDER_SCAN,    /* table */
    SL_TX_ORDER_OUTCOME, /* request */
};

struct sl_tx_order {
    enum sl_tx_order_type type;
    uint64_t ticket; /* ANSWER. */
    const struct sl_tx_answer *answer;
    uint64_t op; /* All others: the number for sl_tx_manager_done(). */
    uint64_t term, id;
    struct sl_bytes request;
    struct sl_bytes table, key;
    const struct sl_storage_write *writes;
    uint32_t write_count;
}; /* All pointers are borrowed until the next call. */

/* --- Life ------------------------------------------------------------------------- */

/* A candidate: its first order is a claim. NULL when out of memory. */
struct sl_tx_manager *sl_tx_manager_new(const struct sl_tx_manager_limits *limits,
                                        struct sl_hash_key key);
void sl_tx_manager_free(struct sl_tx_manager *m); /* NULL is allowed. */

/* --- Change ----------------------------------------------------------------------- */

/* SLUICE_OK: exactly one answer with this ticket, which is not 0, follows. ENOMEM: none does. */
int sl_tx_manager_submit(struct sl_tx_manager *m, sl_ms now, uint64_t ticket,
                         const struct sl_tx_request *req);

/* The client of the session is gone: its request is not answered, its transaction is barred in
 * the storage, and then its locks are released. */
void sl_tx_manager_leave(struct sl_tx_manager *m, sl_ms now, uint64_t session);

/* The storage has carried out the order with this number, or rejected it. */
void sl_tx_manager_done(struct sl_tx_manager *m, sl_ms now, uint64_t op,
                        const struct sl_storage_result *done);

/* Another keeper is current: nothing is granted or ordered any more. The results of orders that
 * were fetched are still due. */
void sl_tx_manager_stop(struct sl_tx_manager *m, sl_ms now, uint64_t term);

/* Every call does a bounded amount of work. What is left is done in the next tick, which is then
 * due at once. */
void sl_tx_manager_tick(struct sl_tx_manager *m, sl_ms now);
sl_ms sl_tx_manager_due(const struct sl_tx_manager *m);
bool sl_tx_manager_next(struct sl_tx_manager *m, struct sl_tx_order *out);

/* --- Ask -------------------------------------------------------------------------- */

enum sl_tx_manager_state {
    SL_TX_MANAGER_CANDIDATE,
    SL_TX_MANAGER_CURRENT,
    SL_TX_MANAGER_STOPPED
};

struct sl_tx_manager_stats {
    enum sl_tx_manager_state state;
    uint64_t term;
    size_t transactions, locks, waiting;
    size_t remembered; /* Locks that restarted transactions will take again. */
    uint64_t begun, committed, aborted, restarted, barred, cycles;
    uint64_t steps; /* Locks visited in queues and in deadlock searches. */
};
void sl_tx_manager_stats(const struct sl_tx_manager *m,
                         struct sl_tx_manager_stats *out);

/* The approximate memory of all transactions, in bytes. */
size_t sl_tx_manager_bytes(const struct sl_tx_manager *m);

/* A holder or a waiter of an item, for EXPLAIN and LOCKS. */
struct sl_tx_view {
    uint64_t id, session;
    enum sl_tx_mode mode;   /* NONE: it only waits. */
    enum sl_tx_mode wanted; /* NONE: it does not wait. */
    sl_ms since_ms;         /* The age of the transaction. */
    uint64_t waits_for;     /* The first transaction that blocks it; 0: none. */
};

/* The holder or waiter at position i, from 0, of an item: holders first, then waiters in the
 * order of the queue. key.at NULL: the table. */
bool sl_tx_manager_holder(const struct sl_tx_manager *m, sl_ms now,
                          struct sl_bytes table, struct sl_bytes key, uint32_t i,
                          struct sl_tx_view *out);

/* Whether the request of the session waits for a lock. */
bool sl_tx_manager_waits(const struct sl_tx_manager *m, uint64_t session);

/* All items that are locked. Call it as sl_index_scan(). */
struct sl_tx_item_view {
    struct sl_bytes table, key; /* key.at NULL: the table. */
    uint32_t holders, waiters;
};
size_t sl_tx_manager_scan(const struct sl_tx_manager *m, uint64_t *cursor,
                          struct sl_tx_item_view *out, size_t max);

/* One item. False: it has neither holders nor waiters. */
bool sl_tx_manager_item(const struct sl_tx_manager *m, struct sl_bytes table,
                        struct sl_bytes key, struct sl_tx_item_view *out);

/* Aborts, naming the invariant, if one is broken. For tests: it visits everything. */
void sl_tx_manager_check(const struct sl_tx_manager *m);

#endif /* SL_TX_MANAGER_H */
