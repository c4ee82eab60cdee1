/* manager.h - the transaction manager: which transaction may read, write and commit
 * what.
 *
 * The manager has no side effects, like the lock table. Its inputs are the time,
 * clients' requests and storage results; its outputs are the orders that
 * sl_tx_manager_next() returns. It keeps locks and uncommitted writes in memory
 * only. Everything durable (terms, commits, bars) is in the storage
 * (storage/storage.h), to which the manager gives orders. README.md states the rules
 * and why they are serializable.
 *
 *     CANDIDATE --claim confirmed--> CURRENT --another term is current--> STOPPED
 *
 *     BEGIN -> running --COMMIT--> committing --> (gone)
 *               | ^                      \--> refused: STALE, BARRED, NOSPC ... (gone)
 *     deadlock  v | BEGIN
 *           restarting                    its client disconnects: barred --> (gone)
 *
 * A transaction holds its locks until it ends (strict two-phase locking). Locks are
 * on tables and on keys. A lock on a key needs an intention lock on its table, so
 * that locks on tables and on keys conflict correctly. A transaction waits for one
 * lock at a time. Queues are ordered by age, but a transaction that already holds a
 * weaker lock on the item comes first. The manager detects a deadlock when a
 * transaction begins to wait. The youngest transaction of the cycle is the victim
 * and restarts: it loses its locks but keeps its number, so it grows older and
 * eventually wins.
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
    SL_TX_MODE_IR,  /* Intention lock on a table: reads keys. */
    SL_TX_MODE_IW,  /* Intention lock on a table: writes keys. */
    SL_TX_MODE_R,   /* Reads the key, or the whole table. */
    SL_TX_MODE_RIW, /* Reads the whole table and writes keys. */
    SL_TX_MODE_W    /* Writes the key, or the whole table. */
};

/* sl_tx_mode_fits() says whether two transactions may hold these modes of one item
 * at the same time. sl_tx_mode_both() returns the weakest mode that includes both. */
bool sl_tx_mode_fits(enum sl_tx_mode a, enum sl_tx_mode b);
enum sl_tx_mode sl_tx_mode_both(enum sl_tx_mode a, enum sl_tx_mode b);
const char *sl_tx_mode_name(enum sl_tx_mode mode);

/* --- Limits -------------------------------------------------------------------- */

struct sl_tx_manager_limits {
    uint32_t transactions_max;
    uint32_t locks_max;     /* Per transaction. */
    size_t total_locks_max; /* Total; 0: no limit. A deadlock search may visit all. */
    uint32_t writes_max;    /* Per transaction. */
    size_t bytes_max;       /* Size of one transaction's writes. */
    size_t total_bytes_max; /* Size of all writes; 0: no limit. */
    sl_ms age_ms_max;       /* Older transactions are aborted; SL_NEVER: no limit. */
    size_t name_bytes_max;  /* Table and key together; a limit of the storage. */
    size_t value_bytes_max;
    size_t request_bytes_max;
    uint32_t rows_max;     /* Per scan. */
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
    uint64_t session;        /* A session has one transaction at a time. */
    struct sl_bytes request; /* BEGIN, OUTCOME: the idempotency key; n 0: none. */
    bool write;              /* LOCK. */
    struct sl_bytes table;
    struct sl_bytes key; /* LOCK: at is NULL for the whole table. */
    struct sl_bytes value;
    bool bounded; /* LOCK: wait at most wait_ms. */
    sl_ms wait_ms;
};

/* The answer to a request. Its status:
 *
 *     ENOTX        the session has no transaction; or BEGIN, but it already has one; or its
 *                  last request has not been answered yet
 *     EINVAL       an empty name
 *     EFULL        the lock was not granted within wait_ms
 *     ERESTART     the transaction was restarted, BEGIN again; `cycle` names the deadlock
 *     ESTALE       another keeper is current
 *     EBARRED      the transaction was barred from committing
 *     ENOKEEPER    this manager is not current yet, or no longer
 *     ETOOBIG, ELOCKS, EWRITES, EAGE, ETRANSACTIONS    a limit is exceeded
 *     ENOSPC, EIO, ENOMEM
 *
 * After ERESTART and EAGE, the client must send BEGIN again. ESTALE and EBARRED end
 * the transaction. After all other errors it continues. A COMMIT always ends it. */
struct sl_tx_answer {
    int status;
    uint64_t term, id; /* BEGIN: term and id. ESTALE: the current term. */
    uint64_t revision; /* COMMIT, OUTCOME. */
    bool found;        /* GET, DEL, OUTCOME. */
    struct sl_bytes value;
    const struct sl_storage_row *rows; /* SCAN: sorted by key. */
    uint32_t row_count;
    const uint64_t *cycle; /* Transaction ids; each waits for the next. */
    uint32_t cycle_count;
};

/* --- Orders ---------------------------------------------------------------------- */

enum sl_tx_order_type {
    SL_TX_ORDER_ANSWER,
    /* All others are orders to the storage. */
    SL_TX_ORDER_CLAIM,   /* Make this manager current. */
    SL_TX_ORDER_COMMIT,  /* Commit with term and id; no writes if it only read. */
    SL_TX_ORDER_BAR,     /* Prevent the transaction with this id from committing. */
    SL_TX_ORDER_READ,    /* Read a key of a table. */
    SL_TX_ORDER_SCAN,    /* Read all rows of a table. */
    SL_TX_ORDER_OUTCOME, /* Read the outcome of a request. */
};

struct sl_tx_order {
    enum sl_tx_order_type type;
    uint64_t ticket; /* ANSWER. */
    const struct sl_tx_answer *answer;
    uint64_t op; /* All others: pass it to sl_tx_manager_done(). */
    uint64_t term, id;
    struct sl_bytes request;
    struct sl_bytes table, key;
    const struct sl_storage_write *writes;
    uint32_t write_count;
}; /* All pointers are borrowed until the next call. */

/* --- Creation and destruction -------------------------------------------------- */

/* Create a manager. It begins as a candidate, and its first order is a claim.
 * Returns NULL when out of memory. */
struct sl_tx_manager *sl_tx_manager_new(const struct sl_tx_manager_limits *limits,
                                        struct sl_hash_key key);
void sl_tx_manager_free(struct sl_tx_manager *m); /* NULL is allowed. */

/* --- Changes ---------------------------------------------------------------------- */

/* Submit a request. Returns SLUICE_OK if exactly one answer with this ticket
 * follows, or ENOMEM if none does. The ticket must not be 0. */
int sl_tx_manager_submit(struct sl_tx_manager *m, sl_ms now, uint64_t ticket,
                         const struct sl_tx_request *req);

/* Handle the disconnection of a session's client: drop its answer, bar its transaction
 * in the storage, then release its locks. */
void sl_tx_manager_leave(struct sl_tx_manager *m, sl_ms now, uint64_t session);

/* Report that the storage has executed or rejected the order with this number. */
void sl_tx_manager_done(struct sl_tx_manager *m, sl_ms now, uint64_t op,
                        const struct sl_storage_result *done);

/* Stop, because another keeper is current: grant and order nothing any more. The
 * caller must still report the results of orders that it has fetched. */
void sl_tx_manager_stop(struct sl_tx_manager *m, sl_ms now, uint64_t term);

/* sl_tx_manager_tick() handles timeouts. Every call does a bounded amount of work;
 * the rest is done in the next tick, which is then due immediately.
 * sl_tx_manager_due() returns when the next tick is due. sl_tx_manager_next()
 * returns the next order, or false if there is none. */
void sl_tx_manager_tick(struct sl_tx_manager *m, sl_ms now);
sl_ms sl_tx_manager_due(const struct sl_tx_manager *m);
bool sl_tx_manager_next(struct sl_tx_manager *m, struct sl_tx_order *out);

/* --- Queries ---------------------------------------------------------------------- */

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

/* Returns the approximate memory of all transactions in bytes. */
size_t sl_tx_manager_bytes(const struct sl_tx_manager *m);

/* A holder or a waiter of an item, for EXPLAIN and LOCKS. */
struct sl_tx_view {
    uint64_t id, session;
    enum sl_tx_mode mode;   /* NONE: it only waits. */
    enum sl_tx_mode wanted; /* NONE: it does not wait. */
    sl_ms since_ms;         /* The age of the transaction. */
    uint64_t waits_for;     /* The first transaction that blocks it; 0: none. */
};

/* Get the holder or waiter of an item at position i, from 0: holders first, then
 * waiters in the order of the queue. If key.at is NULL, the item is the table.
 * Returns false if there are no more. */
bool sl_tx_manager_holder(const struct sl_tx_manager *m, sl_ms now,
                          struct sl_bytes table, struct sl_bytes key, uint32_t i,
                          struct sl_tx_view *out);

/* Whether the session's request waits for a lock. */
bool sl_tx_manager_waits(const struct sl_tx_manager *m, uint64_t session);

/* Iterate over all locked items. Call it like sl_index_scan(). */
struct sl_tx_item_view {
    struct sl_bytes table, key; /* key.at NULL: the table. */
    uint32_t holders, waiters;
};
size_t sl_tx_manager_scan(const struct sl_tx_manager *m, uint64_t *cursor,
                          struct sl_tx_item_view *out, size_t max);

/* Get one item. Returns false if it has neither holders nor waiters. */
bool sl_tx_manager_item(const struct sl_tx_manager *m, struct sl_bytes table,
                        struct sl_bytes key, struct sl_tx_item_view *out);

/* Abort and name the invariant if one is violated. For tests: this visits the whole
 * manager. */
void sl_tx_manager_check(const struct sl_tx_manager *m);

#endif /* SL_TX_MANAGER_H */
