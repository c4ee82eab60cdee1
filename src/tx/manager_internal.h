/* manager_internal.h - the transaction manager as its own files see it.
 *
 *     manager.c          life, stop, storage results, time
 *     reply.c            answers to clients and orders to the storage
 *     transaction.c      one transaction: begin, restart, bar, end
 *     request.c          one request of a client, from its arguments to its answer
 *     write.c            writes that are not committed yet
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
    struct sl_list locks;        /* Of its holders. */
    struct sl_list queue;        /* Locks of its waiters, in the order of grants. */
    uint32_t count[SL_TX_MODES]; /* Holders by mode. */
    uint32_t lock_count, waiter_count;
    struct sl_tx_item *parent; /* The table of a key; NULL: this is a table. */
    uint32_t references;       /* Keys of a table, and calls that are using the item. */
    uint32_t remembered;       /* Locks that restarted transactions will take again. */
    uint64_t number; /* Rises with each new item: a table comes before its keys. */
    uint64_t search; /* The last deadlock search that came here. Its cursors: */
    struct sl_list *next_holder[SL_TX_MODES]; /* in `locks`, by the wanted mode, */
    struct sl_list *next_waiter;              /* and in `queue`. */
    uint32_t table_n, key_n;
    char name[]; /* Table, then key. */
};

/* What one transaction holds of one item, waits for, or will take again. */
struct sl_tx_lock {
    struct sl_list in_item; /* In the item's locks. */
    struct sl_list
        in_queue; /* In the item's queue. A holder that needs more is in both. */
    struct sl_list in_tx; /* In the transaction's locks or retakes. */
    struct sl_tx *tx;
    struct sl_tx_item *item;
    enum sl_tx_mode mode;   /* NONE: not held. */
    enum sl_tx_mode wanted; /* NONE: not waiting. */
    enum sl_tx_mode retake; /* To be taken again after a restart; NONE. */
};

/* What a deadlock search knows about a transaction. */
enum sl_tx_mark {
    SL_TX_MARK_OPEN,    /* It is on the path that is being followed. */
    SL_TX_MARK_CLEAR,   /* No path leads from it to the start. */
    SL_TX_MARK_REACHES, /* It waits for the start, by way of `next`. */
    SL_TX_MARK_VICTIM,  /* It will restart. */
};

enum sl_tx_state {
    SL_TX_RUNNING,
    SL_TX_RESTARTING, /* It has lost its locks. Every request fails until BEGIN. */
    SL_TX_COMMITTING,
    SL_TX_BARRED, /* Its client is gone. Its locks are released after the bar. */
};

/* A write that is not committed yet. */
struct sl_tx_write {
    struct sl_list in_tx;
    struct sl_tx *tx;
    uint32_t table_n, key_n, value_n;
    bool deleted;
    char *value; /* Owned. */
    char name[]; /* Table, then key. */
};

/* An answer, and all that it points to. */
struct sl_tx_reply {
    struct sl_list in_replies; /* Of those to be fetched; or alone. */
    uint64_t ticket;           /* 0: the client is gone, or has the answer. */
    uint64_t session;
    bool has_op; /* An order owns it until the storage answers. */
    struct sl_tx_answer answer;
    void *bytes; /* Values, rows or a cycle; owned. */
    size_t size; /* Of bytes. */
};

/* An order to the storage. */
struct sl_tx_op {
    struct sl_list in_orders; /* Of those to be fetched; or alone. */
    uint64_t number;
    enum sl_tx_order_type type;
    struct sl_tx *tx;          /* NULL: none, or it no longer wants the result. */
    struct sl_tx_reply *reply; /* Of OUTCOME, which needs no transaction; owned. */
    uint64_t id;
    uint32_t request_n, table_n, key_n;
    char bytes[];
};

struct sl_tx {
    struct sl_list all;
    uint64_t id, session;
    enum sl_tx_state state;
    int why; /* Of RESTARTING: ERESTART or EAGE. */
    sl_ms begun_ms;
    uint32_t age_slot; /* In the heap of ages. */
    bool disconnected;
    char *request; /* The idempotency key; owned; NULL: none. */
    uint32_t request_n;

    struct sl_list locks;
    uint32_t lock_count;
    struct sl_tx_lock *waits_for; /* NULL: it does not wait for a lock. */
    struct sl_list retake; /* Locks that it lost in a restart and will take again. */
    uint32_t retake_count;
    struct sl_list writes; /* In the order in which keys were first written. */
    uint32_t write_count;
    size_t write_bytes;

    /* The request that is not answered yet. */
    struct sl_tx_reply
        *reply; /* Made with the request, so that answering cannot fail. */
    enum sl_tx_verb verb;
    struct sl_tx_op *op; /* It waits for the storage; NULL: it does not. */
    char *args;          /* Table, key, value; owned. */
    uint32_t table_n, key_n, value_n;
    bool whole_table, write;
    sl_ms wait_until;           /* SL_NEVER: without a deadline. */
    uint32_t deadline_slot;     /* In the heap of deadlines. */
    enum sl_tx_mode table_mode; /* With a deadline: what it held of the table before, */
    bool table_mode_known;      /* once that was looked up. */

    struct sl_list ready; /* It got the lock that it waited for, and is to run. */
    uint64_t search;      /* The last deadlock search that came here. Its notes: */
    enum sl_tx_mark mark;
    struct sl_tx *parent; /* OPEN: the one that waits for it on the path. */
    struct sl_tx *next;   /* REACHES: the one it waits for; VICTIM: the last victim. */
    struct sl_tx *youngest; /* OPEN: of the path up to it; REACHES: from it on. */
};

struct sl_tx_manager {
    struct sl_tx_manager_limits limits;
    enum sl_tx_manager_state state;
    uint64_t term;
    uint64_t last_id, last_op, last_item;
    uint64_t searches; /* Number of the last deadlock search. */
    struct sl_index items, locks, writes, by_session, ops;
    struct sl_index unanswered; /* Replies of connected clients, by session. */
    struct sl_list transactions;
    uint32_t transaction_count, waiting;
    size_t remembered;  /* Locks that restarted transactions will take again. */
    size_t write_bytes; /* Of all transactions. */
    size_t reply_bytes; /* Of answers that wait to be fetched. */
    size_t name_bytes;  /* Of locked items, and of arguments of waiting requests. */
    struct sl_heap ages;
    struct sl_heap deadlines;
    struct sl_list ready; /* Transactions that got the lock that they waited for. */
    sl_ms ready_ms;       /* Since when some of them wait to run; SL_NEVER. */
    struct sl_list orders, replies;
    struct sl_storage_write *commit_writes; /* Of the commit that was fetched last; */
    uint32_t commit_writes_max;             /* large enough for any ordered commit. */
    struct sl_tx_reply *fetched;
    sl_ms claim_ms; /* When the next claim is due; SL_NEVER. */
    sl_ms bar_ms;   /* When failed bars are tried again; SL_NEVER. */
    struct sl_tx_manager_stats stats;
};

static const struct sl_bytes sl_tx_none = {NULL, 0};

/* About how many locks one call visits for transactions that are ready or too old. */
#define SL_TX_STEPS_MAX 1000u

/* The delay before a rejected claim or bar is tried again. */
#define SL_TX_RETRY_MS 100

/* --- locks.c ------------------------------------------------------------------------ */

extern const struct sl_index_kind sl_tx_items_kind, sl_tx_locks_kind;

/* Take a lock, or join the queue. SLUICE_OK; SL_TX_WAITS; ELOCKS, ETRANSACTIONS, ENOMEM. */
#define SL_TX_WAITS 1
int sl_tx_lock_take(struct sl_tx_manager *m, struct sl_tx *t, struct sl_bytes table,
                    struct sl_bytes key, enum sl_tx_mode mode);

/* Whether the wanted mode is compatible with all other holders of the item. */
bool sl_tx_lock_fits(const struct sl_tx_lock *l);

/* The order of a queue. */
bool sl_tx_lock_precedes(const struct sl_tx_lock *a, const struct sl_tx_lock *b);

/* NULL: the transaction has no lock on the item. */
struct sl_tx_lock *sl_tx_lock_find(const struct sl_tx_manager *m, const struct sl_tx *t,
                                   const struct sl_tx_item *i);

/* The transaction stops waiting, or releases all it has. Waiters that are granted a lock by
 * this become ready. */
void sl_tx_lock_leave_queue(struct sl_tx_manager *m, struct sl_tx *t);
void sl_tx_lock_release_all(struct sl_tx_manager *m, struct sl_tx *t);

/* Reduce a lock to a weaker mode, or release it. */
void sl_tx_lock_weaken(struct sl_tx_manager *m, struct sl_tx_lock *l,
                       enum sl_tx_mode mode);

/* Restarts: a restarted transaction releases its locks and remembers those for writing. When it
 * runs again, it sorts them and takes them before anything else; it forgets them when it ends.
 * These functions allocate nothing. SLUICE_OK; SL_TX_WAITS: some are still to be taken. */
void sl_tx_lock_release_for_restart(struct sl_tx_manager *m, struct sl_tx *t);
void sl_tx_lock_sort_retakes(struct sl_tx_manager *m, struct sl_tx *t);
int sl_tx_lock_retake(struct sl_tx_manager *m, struct sl_tx *t);
void sl_tx_lock_forget_retakes(struct sl_tx_manager *m, struct sl_tx *t);

/* The first transaction that a waiter waits for. */
const struct sl_tx *sl_tx_lock_blocker(const struct sl_tx_lock *l);

struct sl_tx_item *sl_tx_item_find(const struct sl_tx_manager *m, struct sl_bytes table,
                                   struct sl_bytes key);

/* --- deadlock.c --------------------------------------------------------------------- */

/* t has begun to wait. Of each cycle that this closes in the wait-for graph, the youngest
 * transaction is the victim: it restarts, and its answer names the cycle. t itself may be a
 * victim. */
void sl_tx_deadlock_break(struct sl_tx_manager *m, struct sl_tx *t);

/* --- write.c ------------------------------------------------------------------------ */

extern const struct sl_index_kind sl_tx_writes_kind;

/* NULL: the transaction has not written this key. */
struct sl_tx_write *sl_tx_write_find(const struct sl_tx_manager *m,
                                     const struct sl_tx *t, struct sl_bytes table,
                                     struct sl_bytes key);

/* Remember a write, or a deletion. EWRITES, ETRANSACTIONS, ENOMEM. */
int sl_tx_write_put(struct sl_tx_manager *m, struct sl_tx *t, struct sl_bytes table,
                    struct sl_bytes key, struct sl_bytes value, bool deleted);
void sl_tx_write_drop_all(struct sl_tx_manager *m, struct sl_tx *t);

/* --- scan.c ------------------------------------------------------------------------- */

/* Put the rows of t's table into its reply: those of the storage, with t's own writes. */
int sl_tx_scan_fill(struct sl_tx_manager *m, struct sl_tx *t,
                    const struct sl_storage_result *done);

/* --- transaction.c ------------------------------------------------------------------ */

extern const struct sl_index_kind sl_tx_sessions_kind;

/* NULL: the session has no transaction. */
struct sl_tx *sl_tx_find(const struct sl_tx_manager *m, uint64_t session);

/* Answer BEGIN. */
void sl_tx_begin(struct sl_tx_manager *m, sl_ms now, struct sl_tx_reply *r,
                 const struct sl_tx_request *req);

/* Answer the request of t, if a client still waits for it. */
void sl_tx_answer(struct sl_tx_manager *m, struct sl_tx *t, int status);
void sl_tx_answer_value(struct sl_tx_manager *m, struct sl_tx *t, bool found,
                        struct sl_bytes value);

/* Remove its deadline, if it has one. */
void sl_tx_deadline_remove(struct sl_tx_manager *m, struct sl_tx *t);

/* Remove it from the heap of ages, if it is there. */
void sl_tx_age_remove(struct sl_tx_manager *m, struct sl_tx *t);

void sl_tx_args_free(struct sl_tx_manager *m, struct sl_tx *t);

/* Release everything it has, and free it. */
void sl_tx_end(struct sl_tx_manager *m, struct sl_tx *t);

/* It loses its locks and writes. Its current request, or the next one, is answered with why. */
void sl_tx_restart(struct sl_tx_manager *m, struct sl_tx *t, int why);

/* Order a bar for a transaction whose client is gone; without memory, later. */
void sl_tx_bar(struct sl_tx_manager *m, sl_ms now, struct sl_tx *t);

/* --- request.c ---------------------------------------------------------------------- */

/* The arguments of t's request. The key of a whole table is sl_tx_none. */
struct sl_bytes sl_tx_arg_table(const struct sl_tx *t);
struct sl_bytes sl_tx_arg_key(const struct sl_tx *t);

/* Transactions that got the lock that they waited for continue with their request, some of
 * them in each call. Every public function does this last: such a transaction may have to
 * wait again, or to restart others. */
void sl_tx_run_ready(struct sl_tx_manager *m, sl_ms now);

/* The storage has carried out the order of t, or rejected it. */
void sl_tx_storage_done(struct sl_tx_manager *m, sl_ms now, struct sl_tx *t,
                        const struct sl_storage_result *done);

/* The deadline of t's request has passed. */
void sl_tx_wait_timed_out(struct sl_tx_manager *m, struct sl_tx *t);

/* --- reply.c ------------------------------------------------------------------------ */

extern const struct sl_index_kind sl_tx_ops_kind, sl_tx_replies_kind;

/* NULL when out of memory. */
struct sl_tx_reply *sl_tx_reply_new(struct sl_tx_manager *m, uint64_t ticket,
                                    uint64_t session);
void sl_tx_reply_free(struct sl_tx_manager *m,
                      struct sl_tx_reply *r); /* NULL is allowed. */

/* Memory for what the answer points to. NULL when out of memory: r is unchanged. */
void *sl_tx_reply_bytes(struct sl_tx_manager *m, struct sl_tx_reply *r, size_t bytes);

/* The answer is complete: it can be fetched. */
void sl_tx_reply_status(struct sl_tx_manager *m, struct sl_tx_reply *r, int status);

/* The client of this session is gone: none of its answers is given to anyone. */
void sl_tx_reply_forget(struct sl_tx_manager *m, uint64_t session);

/* A new order. NULL when out of memory. */
struct sl_tx_op *sl_tx_op_new(struct sl_tx_manager *m, enum sl_tx_order_type type,
                              struct sl_tx *t, struct sl_bytes request,
                              struct sl_bytes table, struct sl_bytes key);

/* NULL: no order with this number is outstanding. */
struct sl_tx_op *sl_tx_op_find(const struct sl_tx_manager *m, uint64_t number);

/* Remove an order that was carried out, and free it. */
void sl_tx_op_remove(struct sl_tx_manager *m, struct sl_tx_op *op);
void sl_tx_op_free(struct sl_tx_manager *m, struct sl_tx_op *op);

/* Its result is not needed: the order is not given out, or its result is ignored. */
void sl_tx_op_drop(struct sl_tx_manager *m, struct sl_tx_op *op);
bool sl_tx_op_is_fetched(const struct sl_tx_op *op);

/* Memory for the writes of a commit to come. False: out of memory. */
bool sl_tx_op_reserve_writes(struct sl_tx_manager *m, uint32_t writes);

#endif /* SL_TX_MANAGER_INTERNAL_H */
