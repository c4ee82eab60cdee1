/* manager_internal.h - the transaction manager, as the files that implement it see
 * it.
 *
 *     manager.c          creation and destruction, stop, storage results, time
 *     reply.c            answers to clients and orders to the storage
 *     transaction.c      one transaction: begin, restart, bar, end
 *     request.c          one client request, from its arguments to its answer
 *     write.c            uncommitted writes
 *     scan.c             rows of the storage merged with a transaction's own writes
 *     locks.c            items, lock modes, queues
 *     deadlock.c         deadlock detection in the wait-for graph
 *     manager_inspect.c  queries and invariants */
#ifndef SL_TX_MANAGER_INTERNAL_H
#define SL_TX_MANAGER_INTERNAL_H

#include <assert.h>

#include "base/heap.h"
#include "base/index.h"
#include "tx/manager.h"

#define SL_TX_MODES 6

struct sl_tx;

/* A table, or a key of a table. */
struct sl_tx_item {
    struct sl_list locks;        /* The holders' locks. */
    struct sl_list queue;        /* The waiters' locks, in the order of grants. */
    uint32_t count[SL_TX_MODES]; /* Number of holders by mode. */
    uint32_t lock_count, waiter_count;
    struct sl_tx_item *parent; /* The table of a key; NULL for a table. */
    uint32_t references;       /* Keys of a table, and calls that use the item. */
    uint32_t remembered;       /* Locks that restarted transactions will take again. */
    uint64_t number; /* Increases with each new item; a table precedes its keys. */
    uint64_t search; /* The last deadlock search that visited the item. */
    struct sl_list *next_holder[SL_TX_MODES]; /* Cursors in `locks`, by wanted mode. */
    struct sl_list *next_waiter;              /* The cursor in `queue`. */
    uint32_t table_n, key_n;
    char name[]; /* Table, then key. */
};

/* The lock of one transaction on one item: held, waited for, or to be taken again. */
struct sl_tx_lock {
    struct sl_list in_item;  /* In the item's locks. */
    struct sl_list in_queue; /* In the item's queue; a holder may be in both. */
    struct sl_list in_tx;    /* In the transaction's locks or retakes. */
    struct sl_tx *tx;
    struct sl_tx_item *item;
    enum sl_tx_mode mode;   /* NONE: not held. */
    enum sl_tx_mode wanted; /* NONE: not waiting. */
    enum sl_tx_mode retake; /* Mode to take again after a restart, or NONE. */
};

/* What a deadlock search knows about a transaction. */
enum sl_tx_mark {
    SL_TX_MARK_OPEN,    /* On the path that the search is following. */
    SL_TX_MARK_CLEAR,   /* No path leads from it to the start. */
    SL_TX_MARK_REACHES, /* A path leads to the start, by way of `next`. */
    SL_TX_MARK_VICTIM,  /* It will restart. */
};

enum sl_tx_state {
    SL_TX_RUNNING,
    SL_TX_RESTARTING, /* Lost its locks. All requests fail until BEGIN. */
    SL_TX_COMMITTING,
    SL_TX_BARRED, /* Its client disconnected. Keeps its locks until barred. */
};

/* An uncommitted write. */
struct sl_tx_write {
    struct sl_list in_tx;
    struct sl_tx *tx;
    uint32_t table_n, key_n, value_n;
    bool deleted;
    char *value; /* Owned. */
    char name[]; /* Table, then key. */
};

/* An answer, and everything that it points to. */
struct sl_tx_reply {
    struct sl_list in_replies; /* In the list of answers to fetch, or in no list. */
    uint64_t ticket;           /* 0: no client waits for the answer. */
    uint64_t session;
    bool has_op; /* An order owns it until the storage answers. */
    struct sl_tx_answer answer;
    void *bytes; /* Values, rows or a cycle; owned. */
    size_t size; /* The size of `bytes`. */
};

/* An order to the storage. */
struct sl_tx_op {
    struct sl_list in_orders; /* In the list of orders to fetch, or in no list. */
    uint64_t number;
    enum sl_tx_order_type type;
    struct sl_tx *tx;          /* NULL: none, or the result is not needed. */
    struct sl_tx_reply *reply; /* The reply to OUTCOME, or NULL; owned. */
    uint64_t id;
    uint32_t request_n, table_n, key_n;
    char bytes[];
};

struct sl_tx {
    struct sl_list all;
    uint64_t id, session;
    enum sl_tx_state state;
    int why; /* RESTARTING: ERESTART or EAGE. */
    sl_ms begun_ms;
    uint32_t age_slot; /* Slot in the heap of ages. */
    bool disconnected;
    char *request; /* The idempotency key; owned; NULL: none. */
    uint32_t request_n;

    struct sl_list locks;
    uint32_t lock_count;
    struct sl_tx_lock *waits_for; /* NULL: it does not wait for a lock. */
    struct sl_list retake;        /* Locks lost in a restart, to be taken again. */
    uint32_t retake_count;
    struct sl_list writes; /* In the order in which the keys were first written. */
    uint32_t write_count;
    size_t write_bytes;

    /* The request that has not been answered yet. */
    /* Allocated with the request, so answering cannot fail. */
    struct sl_tx_reply *reply;
    enum sl_tx_verb verb;
    struct sl_tx_op *op; /* The order it waits for; NULL: none. */
    char *args;          /* Table, key, value; owned. */
    uint32_t table_n, key_n, value_n;
    bool whole_table, write;
    sl_ms wait_until;           /* SL_NEVER: no deadline. */
    uint32_t deadline_slot;     /* Slot in the heap of deadlines. */
    enum sl_tx_mode table_mode; /* The mode on the table before the request. */
    bool table_mode_known;      /* Whether table_mode is set; only with a deadline. */

    struct sl_list ready; /* In the manager's list of transactions that can run. */
    uint64_t search;      /* The last deadlock search that visited the transaction. */
    enum sl_tx_mark mark;
    struct sl_tx *parent;   /* OPEN: the transaction before it on the path. */
    struct sl_tx *next;     /* REACHES: next on the path; VICTIM: previous victim. */
    struct sl_tx *youngest; /* OPEN: youngest before it; REACHES: youngest after it. */
};

struct sl_tx_manager {
    struct sl_tx_manager_limits limits;
    enum sl_tx_manager_state state;
    uint64_t term;
    uint64_t last_id, last_op, last_item;
    uint64_t searches; /* The number of the last deadlock search. */
    struct sl_index items, locks, writes, by_session, ops;
    struct sl_index unanswered; /* Replies for connected clients, by session. */
    struct sl_list transactions;
    uint32_t transaction_count, waiting;
    size_t remembered;  /* Locks that restarted transactions will take again. */
    size_t write_bytes; /* Size of the writes of all transactions. */
    size_t reply_bytes; /* Size of answers that have not been fetched. */
    size_t name_bytes;  /* Size of locked names and of arguments of waiting requests. */
    struct sl_heap ages;
    struct sl_heap deadlines;
    struct sl_list ready; /* Transactions that got the lock they waited for. */
    sl_ms ready_ms;       /* When some of them became ready, or SL_NEVER. */
    struct sl_list orders, replies;
    struct sl_storage_write *commit_writes; /* The writes of the last fetched commit. */
    uint32_t commit_writes_max;             /* Large enough for any ordered commit. */
    struct sl_tx_reply *fetched;
    sl_ms claim_ms; /* When the next claim is due, or SL_NEVER. */
    sl_ms bar_ms;   /* When to retry failed bars, or SL_NEVER. */
    struct sl_tx_manager_stats stats;
};

static const struct sl_bytes sl_tx_none = {NULL, 0};

/* Approximately how many locks one call visits for transactions that are ready or
 * too old. */
#define SL_TX_STEPS_MAX 1000u

/* The delay before a rejected claim or bar is ordered again. */
#define SL_TX_RETRY_MS 100

/* --- locks.c ------------------------------------------------------------------------ */

extern const struct sl_index_kind sl_tx_items_kind, sl_tx_locks_kind;

/* Take a lock, or join the queue. Returns SLUICE_OK; SL_TX_WAITS if queued; or
 * ELOCKS, ETRANSACTIONS, ENOMEM. */
#define SL_TX_WAITS 1
int sl_tx_lock_take(struct sl_tx_manager *m, struct sl_tx *t, struct sl_bytes table,
                    struct sl_bytes key, enum sl_tx_mode mode);

/* Whether the wanted mode is compatible with all other holders of the item. */
bool sl_tx_lock_fits(const struct sl_tx_lock *l);

/* Whether a comes before b in a queue. */
bool sl_tx_lock_precedes(const struct sl_tx_lock *a, const struct sl_tx_lock *b);

/* Returns the transaction's lock on the item, or NULL. */
struct sl_tx_lock *sl_tx_lock_find(const struct sl_tx_manager *m, const struct sl_tx *t,
                                   const struct sl_tx_item *i);

/* sl_tx_lock_leave_queue() makes the transaction stop waiting;
 * sl_tx_lock_release_all() releases all its locks. Waiters that get a lock because
 * of this become ready. */
void sl_tx_lock_leave_queue(struct sl_tx_manager *m, struct sl_tx *t);
void sl_tx_lock_release_all(struct sl_tx_manager *m, struct sl_tx *t);

/* Reduce a lock to a weaker mode, or release it. */
void sl_tx_lock_weaken(struct sl_tx_manager *m, struct sl_tx_lock *l,
                       enum sl_tx_mode mode);

/* Restarts. A restarted transaction releases its locks and remembers its write
 * locks. When it runs again, it sorts them and takes them before anything else. When
 * it ends, it forgets them. These functions allocate nothing. sl_tx_lock_retake()
 * returns SLUICE_OK, or SL_TX_WAITS if some locks are still missing. */
void sl_tx_lock_release_for_restart(struct sl_tx_manager *m, struct sl_tx *t);
void sl_tx_lock_sort_retakes(struct sl_tx_manager *m, struct sl_tx *t);
int sl_tx_lock_retake(struct sl_tx_manager *m, struct sl_tx *t);
void sl_tx_lock_forget_retakes(struct sl_tx_manager *m, struct sl_tx *t);

/* Returns the first transaction that a waiter waits for, or NULL. */
const struct sl_tx *sl_tx_lock_blocker(const struct sl_tx_lock *l);

struct sl_tx_item *sl_tx_item_find(const struct sl_tx_manager *m, struct sl_bytes table,
                                   struct sl_bytes key);

/* --- deadlock.c --------------------------------------------------------------------- */

/* Break all cycles in the wait-for graph that t closed when it began to wait. The
 * youngest transaction of each cycle is the victim: it restarts, and its answer
 * names the cycle. t itself may be a victim. */
void sl_tx_deadlock_break(struct sl_tx_manager *m, struct sl_tx *t);

/* --- write.c ------------------------------------------------------------------------ */

extern const struct sl_index_kind sl_tx_writes_kind;

/* Returns the transaction's write to this key, or NULL. */
struct sl_tx_write *sl_tx_write_find(const struct sl_tx_manager *m,
                                     const struct sl_tx *t, struct sl_bytes table,
                                     struct sl_bytes key);

/* Store an uncommitted write or deletion. Returns SLUICE_OK, EWRITES, ETRANSACTIONS
 * or ENOMEM. */
int sl_tx_write_put(struct sl_tx_manager *m, struct sl_tx *t, struct sl_bytes table,
                    struct sl_bytes key, struct sl_bytes value, bool deleted);
void sl_tx_write_drop_all(struct sl_tx_manager *m, struct sl_tx *t);

/* --- scan.c ------------------------------------------------------------------------- */

/* Store the rows of t's table in its reply: the rows of the storage, merged with t's
 * own writes. Returns SLUICE_OK, ETOOBIG or ENOMEM. */
int sl_tx_scan_fill(struct sl_tx_manager *m, struct sl_tx *t,
                    const struct sl_storage_result *done);

/* --- transaction.c ------------------------------------------------------------------ */

extern const struct sl_index_kind sl_tx_sessions_kind;

/* Returns the session's transaction, or NULL. */
struct sl_tx *sl_tx_find(const struct sl_tx_manager *m, uint64_t session);

/* Handle and answer BEGIN. */
void sl_tx_begin(struct sl_tx_manager *m, sl_ms now, struct sl_tx_reply *r,
                 const struct sl_tx_request *req);

/* Answer t's request, if a client still waits for the answer. */
void sl_tx_answer(struct sl_tx_manager *m, struct sl_tx *t, int status);
void sl_tx_answer_value(struct sl_tx_manager *m, struct sl_tx *t, bool found,
                        struct sl_bytes value);

/* Remove the deadline of t's request, if it has one. */
void sl_tx_deadline_remove(struct sl_tx_manager *m, struct sl_tx *t);

/* Remove t from the heap of ages, if it is there. */
void sl_tx_age_remove(struct sl_tx_manager *m, struct sl_tx *t);

void sl_tx_args_free(struct sl_tx_manager *m, struct sl_tx *t);

/* Release all locks and writes of t, and free it. */
void sl_tx_end(struct sl_tx_manager *m, struct sl_tx *t);

/* Restart t: drop its locks and writes. Its current request, or else the next one,
 * is answered with `why`. */
void sl_tx_restart(struct sl_tx_manager *m, struct sl_tx *t, int why);

/* Order a bar for a transaction whose client has disconnected. When out of memory, a
 * later tick retries. */
void sl_tx_bar(struct sl_tx_manager *m, sl_ms now, struct sl_tx *t);

/* --- request.c ---------------------------------------------------------------------- */

/* Return the arguments of t's request. For a whole table, the key is sl_tx_none. */
struct sl_bytes sl_tx_arg_table(const struct sl_tx *t);
struct sl_bytes sl_tx_arg_key(const struct sl_tx *t);

/* Let transactions that got the lock they waited for continue with their requests,
 * some of them in each call. Every public function does this last, because such a
 * transaction may have to wait again, or to restart others. */
void sl_tx_run_ready(struct sl_tx_manager *m, sl_ms now);

/* Handle the result of t's order, which the storage has executed or rejected. */
void sl_tx_storage_done(struct sl_tx_manager *m, sl_ms now, struct sl_tx *t,
                        const struct sl_storage_result *done);

/* End the wait of t's request, because its deadline has passed. */
void sl_tx_wait_timed_out(struct sl_tx_manager *m, struct sl_tx *t);

/* --- reply.c ------------------------------------------------------------------------ */

extern const struct sl_index_kind sl_tx_ops_kind, sl_tx_replies_kind;

/* Create a reply. Returns NULL when out of memory. */
struct sl_tx_reply *sl_tx_reply_new(struct sl_tx_manager *m, uint64_t ticket,
                                    uint64_t session);
void sl_tx_reply_free(struct sl_tx_manager *m,
                      struct sl_tx_reply *r); /* NULL is allowed. */

/* Allocate memory for what the answer points to. When out of memory, returns NULL
 * and does not change r. */
void *sl_tx_reply_bytes(struct sl_tx_manager *m, struct sl_tx_reply *r, size_t bytes);

/* Complete the answer with this status, so that it can be fetched. */
void sl_tx_reply_status(struct sl_tx_manager *m, struct sl_tx_reply *r, int status);

/* Drop all answers for this session, because its client has disconnected. */
void sl_tx_reply_forget(struct sl_tx_manager *m, uint64_t session);

/* Queue a new order. Returns NULL when out of memory. */
struct sl_tx_op *sl_tx_op_new(struct sl_tx_manager *m, enum sl_tx_order_type type,
                              struct sl_tx *t, struct sl_bytes request,
                              struct sl_bytes table, struct sl_bytes key);

/* Returns the outstanding order with this number, or NULL. */
struct sl_tx_op *sl_tx_op_find(const struct sl_tx_manager *m, uint64_t number);

/* Remove an order that was executed, and free it. */
void sl_tx_op_remove(struct sl_tx_manager *m, struct sl_tx_op *op);
void sl_tx_op_free(struct sl_tx_manager *m, struct sl_tx_op *op);

/* Drop an order whose result is not needed. If it was already fetched, its result is
 * ignored. */
void sl_tx_op_drop(struct sl_tx_manager *m, struct sl_tx_op *op);
bool sl_tx_op_is_fetched(const struct sl_tx_op *op);

/* Reserve memory for the writes of a future commit. Returns false when out of
 * memory. */
bool sl_tx_op_reserve_writes(struct sl_tx_manager *m, uint32_t writes);

#endif /* SL_TX_MANAGER_INTERNAL_H */
