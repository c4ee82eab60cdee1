/* keeper.h - the keeper: who may read and write what, and what may commit.
 *
 * A keeper is a value, as the lock table is: time, what clients ask and what the engine has
 * done come in; orders come out of sl_tx_manager_next(). It remembers locks and what a
 * transaction has written so far; nothing of that survives it. What lasts - terms, commits,
 * transactions that may commit no more - is the engine's (storage/storage.h), and is ordered
 * from there. README.md has the rules and why they are serializable.
 *
 *     CANDIDATE --claim confirmed--> LEADER --refused, or its term is over--> STOPPED
 *
 *     BEGIN -> runs --COMMIT--> commits --> (gone)
 *               | ^                 \--> refused: STALE, BARRED, no room ... (gone)
 *     a cycle   v | BEGIN
 *            restarts                       its connection ends: is barred --> (gone)
 *
 * Locks are held to the end (strict two-phase locking), on tables and on keys in them, with
 * intentions on the table, so that the two meet without a search. A transaction waits for
 * one lock at a time. Who waits stands in line by age, but one that has a lesser lock on the
 * item already before all others. A cycle is found when it closes; its youngest is told to
 * restart: it loses its locks, keeps its number, and so grows old and wins.
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

/* Intention to read or write below; read, read all and write some, write. */
enum sl_tx_mode {
    SL_TX_MODE_NONE,
    SL_TX_MODE_IR,
    SL_TX_MODE_IW,
    SL_TX_MODE_R,
    SL_TX_MODE_RIW,
    SL_TX_MODE_W
};

/* Whether two transactions may have these on one item; and the least that is both. */
bool sl_tx_mode_fits(enum sl_tx_mode a, enum sl_tx_mode b);
enum sl_tx_mode sl_tx_mode_both(enum sl_tx_mode a, enum sl_tx_mode b);
const char *sl_tx_mode_name(enum sl_tx_mode m);

/* --- Limits, each an option of the server ------------------------------------- */

struct sl_tx_manager_limits {
    uint32_t transactions_max;
    uint32_t locks_max;     /* Of one transaction; */
    size_t total_locks_max; /* those of all; 0: any number. A search looks at each. */
    uint32_t writes_max;    /* Of one; */
    size_t bytes_max;       /* their bytes together. */
    size_t total_bytes_max; /* Those of all transactions; 0: any number. */
    sl_ms age_ms_max;       /* A transaction is aborted after that; SL_NEVER. */
    size_t name_bytes_max;  /* Table and key together, for what the engine takes. */
    size_t value_bytes_max;
    size_t request_bytes_max;
    uint32_t rows_max;     /* Of a scan; */
    size_t scan_bytes_max; /* their keys and values together; 0: any number. */
};

/* --- What clients ask ----------------------------------------------------------- */

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
    struct sl_bytes request; /* BEGIN, OUTCOME; n 0: none. */
    bool write;              /* LOCK. */
    struct sl_bytes table;
    struct sl_bytes key; /* LOCK: at NULL: the whole table. */
    struct sl_bytes value;
    bool bounded; /* LOCK: it waits at most wait_ms; 0: not at all. */
    sl_ms wait_ms;
};

/* What a transaction is told. ENOTX: it has none, or has one, or was not answered yet; EINVAL:
 * an empty name; EFULL: a bounded wait is over; ERESTART: its locks are gone, BEGIN again (`cycle` says why, if it waited);
 * ESTALE: another keeper is current; EBARRED: it was given up; ENOKEEPER: not yet, or no more;
 * ETOOBIG, ELOCKS, EWRITES, EAGE, ETRANSACTIONS: limits; ENOSPC, EIO, ENOMEM. It runs on after
 * all but ERESTART, EAGE (both until BEGIN), ESTALE, EBARRED; and a COMMIT is always the end. */
struct sl_tx_answer {
    int status;
    uint64_t term, id; /* BEGIN; of ESTALE the term that is current. */
    uint64_t revision; /* COMMIT, OUTCOME. */
    bool found;        /* GET, DEL, OUTCOME: there is one. */
    struct sl_bytes value;
    const struct sl_storage_row *rows; /* SCAN, by key. */
    uint32_t row_count;
    const uint64_t *cycle; /* Numbers of transactions, each waits for the next. */
    uint32_t cycle_count;
};

/* --- What follows ---------------------------------------------------------------- */

enum sl_tx_order_type {
    SL_TX_ORDER_ANSWER,
    SL_TX_ORDER_CLAIM,   /* Of the engine: make this keeper current. */
    SL_TX_ORDER_COMMIT,  /* Of term and id, with its writes; none: it only read. */
    SL_TX_ORDER_BAR,     /* This id commits no more. */
    SL_TX_ORDER_READ,    /* table, key */
    SL_TX_ORDER_SCAN,    /* table */
    SL_TX_ORDER_OUTCOME, /* request */
};

struct sl_tx_order {
    enum sl_tx_order_type type;
    uint64_t ticket; /* ANSWER. */
    const struct sl_tx_answer *answer;
    uint64_t op; /* All others: under this number sl_tx_manager_done() is due. */
    uint64_t term, id;
    struct sl_bytes request;
    struct sl_bytes table, key;
    const struct sl_storage_write *writes;
    uint32_t write_count;
}; /* All is borrowed until the next call. */

/* --- Life ------------------------------------------------------------------------- */

/* A candidate: its first order is a claim. NULL when out of memory. */
struct sl_tx_manager *sl_tx_manager_new(const struct sl_tx_manager_limits *limits,
                                        struct sl_hash_key key);
void sl_tx_manager_free(struct sl_tx_manager *k); /* NULL is allowed. */

/* --- Change ----------------------------------------------------------------------- */

/* SLUICE_OK: exactly one answer with this ticket (not 0) follows; ENOMEM: none does. */
int sl_tx_manager_submit(struct sl_tx_manager *k, sl_ms now, uint64_t ticket,
                         const struct sl_tx_request *ask);

/* The connection is gone: its request is not answered, its transaction is barred in the
 * engine, and then its locks are freed. */
void sl_tx_manager_leave(struct sl_tx_manager *k, sl_ms now, uint64_t session);

/* What was ordered under this number is done, or was refused. */
void sl_tx_manager_done(struct sl_tx_manager *k, sl_ms now, uint64_t op,
                        const struct sl_storage_result *done);

/* Another keeper is current: nothing is granted or ordered any more. What the engine has is
 * still to be answered with sl_tx_manager_done(). */
void sl_tx_manager_stop(struct sl_tx_manager *k, sl_ms now, uint64_t term);

/* No call takes long, however many get their turn: those who are left go on in the next
 * tick, which is due at once then. */
void sl_tx_manager_tick(struct sl_tx_manager *k, sl_ms now);
sl_ms sl_tx_manager_due(const struct sl_tx_manager *k);
bool sl_tx_manager_next(struct sl_tx_manager *k, struct sl_tx_order *out);

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
    uint64_t steps; /* Locks that were looked at, in lines and for cycles. */
};
void sl_tx_manager_stats(const struct sl_tx_manager *k,
                         struct sl_tx_manager_stats *out);

/* Bytes of all that it keeps for transactions, as near as it is known at once. */
size_t sl_tx_manager_bytes(const struct sl_tx_manager *k);

/* One that holds a lock, or waits for it: for EXPLAIN and LOCKS. */
struct sl_tx_view {
    uint64_t id, session;
    enum sl_tx_mode mode;   /* What it has, */
    enum sl_tx_mode wanted; /* and waits for; NONE: nothing. */
    sl_ms since_ms;         /* The transaction began so long ago. */
    uint64_t waits_for;     /* The first that is in its way; 0. */
};

/* The i-th of an item (key.at NULL: the table), from 0: who has it, then who waits. */
bool sl_tx_manager_holder(const struct sl_tx_manager *k, sl_ms now,
                          struct sl_bytes table, struct sl_bytes key, uint32_t i,
                          struct sl_tx_view *out);

/* Whether its request waits for a lock. */
bool sl_tx_manager_waits(const struct sl_tx_manager *k, uint64_t session);

/* All items, as sl_table_scan(). */
struct sl_tx_item_view {
    struct sl_bytes table, key; /* key.at NULL: the table. */
    uint32_t holders, waiters;
};
size_t sl_tx_manager_scan(const struct sl_tx_manager *k, uint64_t *cursor,
                          struct sl_tx_item_view *out, size_t max);

/* One of them. False: nobody has it or waits for it. */
bool sl_tx_manager_item(const struct sl_tx_manager *k, struct sl_bytes table,
                        struct sl_bytes key, struct sl_tx_item_view *out);

/* Abort, naming the invariant, if one is broken. */
void sl_tx_manager_check(const struct sl_tx_manager *k);

#endif /* SL_TX_MANAGER_H */
