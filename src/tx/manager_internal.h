/* keeper_inside.h - the keeper as its own files see it.
 *
 *     keeper.c        its life, its orders, what the engine says
 *     transactions.c  what clients ask
 *     locks.c         items, lines
 *     cycles.c        who waits for each other, and gives way
 *     look.c          questions */
#ifndef SL_TX_MANAGER_INTERNAL_H
#define SL_TX_MANAGER_INTERNAL_H

#include "base/heap.h"
#include "base/index.h"
#include "tx/manager.h"

#define SL_TX_MODES 6

struct sl_tx;

/* A table, or a key of one. */
struct sl_tx_item {
    struct sl_list locks; /* Of those who have it. */
    struct sl_list line;  /* Of those who wait, in the order of their turn. */
    uint32_t count[SL_TX_MODES];
    uint32_t lock_count, waiter_count;
    struct sl_tx_item *above; /* The table of a key; NULL: it is one. */
    uint32_t below;           /* Keys of a table that are here. */
    uint32_t remembered;      /* Locks that restarted transactions will take again. */
    uint64_t number;          /* Rises with each new item: a table before its keys. */
    uint64_t search; /* Which was here last (cycles.c), and how far it has got: */
    struct sl_list *holder[SL_TX_MODES]; /* for each mode that is wanted, in `locks`, */
    struct sl_list *place;               /* and in `line`. */
    uint32_t table_n, key_n;
    char name[]; /* Table, then key. */
};

/* One transaction and one item. */
struct sl_tx_lock {
    struct sl_list in_item; /* Of locks; */
    struct sl_list in_line; /* of those who wait; one that has less may be in both. */
    struct sl_list in_tx;
    struct sl_tx *tx;
    struct sl_tx_item *item;
    enum sl_tx_mode mode, wanted; /* wanted NONE: it does not wait. */
    enum sl_tx_mode
        again; /* To be taken again after a restart, in sl_tx.again; NONE. */
};

/* What a search has found out about a transaction. */
enum sl_tx_mark {
    SL_TX_OPEN,    /* It is on the way that is being followed. */
    SL_TX_ENDING,  /* It waits for nobody who waits for the first. */
    SL_MARK_LEADS, /* It waits for the first, by way of `to`. */
    SL_MARK_LOSES, /* It will restart. */
};

enum sl_tx_state {
    SL_TX_RUNNING,
    SL_TX_RESTARTING, /* It has nothing any more, and is told so until it begins again. */
    SL_TX_COMMITTING,
    SL_TX_BARRED, /* When that is done its locks are freed. */
};

/* A write so far; its bytes stand behind it. */
struct sl_tx_written {
    struct sl_list in_tx;
    struct sl_tx *tx;
    uint32_t table_n, key_n, value_n;
    bool deleted;
    char *value; /* Owned. */
    char name[]; /* Table, then key. */
};

/* An answer that waits to be fetched, and all that it points to. */
struct sl_tx_reply {
    struct sl_list place; /* Of those to be fetched; or of none. */
    uint64_t ticket;      /* 0: nobody is there any more, or it was told. */
    uint64_t session;
    bool ordered; /* It is an order's, which has it until the engine answers. */
    struct sl_tx_answer answer;
    void *bytes; /* Values, rows, a cycle; owned. */
    size_t size; /* Of them. */
};

struct sl_tx_op {
    struct sl_list place; /* Of orders that wait to be fetched; then of none. */
    uint64_t number;
    enum sl_tx_order_type type;
    struct sl_tx *tx;          /* NULL: of none, or of none any more. */
    struct sl_tx_reply *reply; /* Of OUTCOME, which needs no transaction; owned. */
    uint64_t id;
    uint32_t request_n, table_n, key_n;
    char bytes[];
};

struct sl_tx {
    struct sl_list all;
    uint64_t id, session;
    enum sl_tx_state state;
    int why; /* Of RESTARTS: ERESTART, EAGE. */
    sl_ms begun_ms;
    uint32_t due;  /* In the heap of ages. */
    bool gone;     /* Its connection is. */
    char *request; /* Owned; NULL: none. */
    uint32_t request_n;

    struct sl_list locks;
    uint32_t lock_count;
    struct sl_tx_lock *waits; /* NULL: it does not. */
    struct sl_list again;     /* Locks that it lost in a restart and will take again. */
    uint32_t again_count;
    struct sl_list writes; /* In the order in which keys were first written. */
    uint32_t write_count;
    size_t write_bytes;

    /* What it was asked for, and is not answered. */
    struct sl_tx_reply
        *reply; /* Made when it was asked, so that it cannot fail; NULL: it was
                               not. */
    enum sl_tx_verb asked;
    struct sl_tx_op *op; /* It waits for the engine; NULL: it does not. */
    char *words;         /* Table, key, value of it; owned. */
    uint32_t table_n, key_n, value_n;
    bool whole, write;
    sl_ms wait_until;  /* SL_NEVER: without a bound. */
    uint32_t wait_due; /* In the heap of waits. */
    enum sl_tx_mode
        table_mode;      /* Of a bounded wait: what it had of the table before, */
    bool table_is_known; /* once that was looked up. */

    struct sl_list going_on; /* It has what it waited for. */
    uint64_t seen;           /* By which search for cycles; what follows is its. */
    enum sl_tx_mark mark;
    struct sl_tx *from;     /* OPEN: who waits for it, on the way. */
    struct sl_tx *to;       /* LEADS: for whom it waits; LOSES: who lost before. */
    struct sl_tx *youngest; /* OPEN: of the way up to it; LEADS: from it on. */
};

struct sl_tx_manager {
    struct sl_tx_manager_limits limits;
    enum sl_tx_manager_state state;
    uint64_t term;
    uint64_t last_id, last_op, last_item;
    uint64_t search; /* The number of the search for cycles; see cycles.c. */
    struct sl_index items, locks, writes, by_session, ops;
    struct sl_index asked; /* Replies, of whoever is still there, by session. */
    struct sl_list transactions;
    uint32_t transaction_count, waiting;
    size_t remembered;  /* Of all transactions, in their `again`. */
    size_t write_bytes; /* Of all of them. */
    size_t reply_bytes; /* Of answers that wait to be fetched. */
    size_t name_bytes;  /* Of what is locked, and of commands that wait. */
    struct sl_heap ages;
    struct sl_heap waits;    /* Bounded waits, by their deadline. */
    struct sl_list going_on; /* Those who have what they waited for. */
    sl_ms going_on_ms;       /* Some are left, since then; SL_NEVER. */
    struct sl_list orders, replies;
    struct sl_storage_write
        *ordered;         /* Of the commit that was fetched last; there is room for */
    uint32_t ordered_max; /* those of any that was ordered. */
    struct sl_tx_reply *fetched;
    sl_ms claim_ms; /* When the next claim is due; SL_NEVER. */
    sl_ms bar_ms;   /* When those are barred for whom that has failed; SL_NEVER. */
    struct sl_tx_manager_stats stats;
};

/* --- locks.c ------------------------------------------------------------------------ */

extern const struct sl_index_kind sl_items_kind, sl_locks_kind;

/* Take a lock, or stand in line. SLUICE_OK; SL_TX_WAITS; ELOCKS, ENOMEM. */
#define SL_TX_WAITS 1
int sl_tx_lock_take(struct sl_tx_manager *k, struct sl_tx *t, struct sl_bytes table,
                    struct sl_bytes key, enum sl_tx_mode mode);

/* Whether one that waits fits beside those who have the item; the order of a line; what a
 * transaction has of an item, or NULL. */
bool sl_tx_lock_may_have(const struct sl_tx_lock *l);
bool sl_tx_lock_comes_before(const struct sl_tx_lock *a, const struct sl_tx_lock *b);
struct sl_tx_lock *sl_tx_lock_find(const struct sl_tx_manager *k, const struct sl_tx *t,
                                   const struct sl_tx_item *i);

/* It waits no more; gives all back. Whoever has its turn then is among those who go on. */
void sl_tx_lock_leave_line(struct sl_tx_manager *k, struct sl_tx *t);
void sl_tx_lock_free_all(struct sl_tx_manager *k, struct sl_tx *t);

/* Reduce a lock to a weaker mode, or release it. */
void sl_tx_lock_weaken(struct sl_tx_manager *k, struct sl_tx_lock *l,
                       enum sl_tx_mode mode);

/* Restarts: a restarted transaction loses its locks and remembers those for writing. When it runs
 * again, it sorts them and takes them before anything else; it forgets them when it ends. These
 * functions allocate nothing. SLUICE_OK; SL_TX_WAITS: some are still to be taken. */
void sl_tx_lock_lose_all(struct sl_tx_manager *k, struct sl_tx *t);
void sl_tx_lock_sort_again(struct sl_tx_manager *k, struct sl_tx *t);
int sl_tx_lock_take_again(struct sl_tx_manager *k, struct sl_tx *t);
void sl_tx_lock_forget(struct sl_tx_manager *k, struct sl_tx *t);

/* The first that is in the way of one who waits. */
const struct sl_tx *sl_tx_lock_blocker(const struct sl_tx_lock *l);

struct sl_tx_item *sl_tx_item_find(const struct sl_tx_manager *k, struct sl_bytes table,
                                   struct sl_bytes key);

/* --- cycles.c ------------------------------------------------------------------------ */

/* It waits now: of each cycle that this closes the youngest restarts, and is told the cycle.
 * That may be t itself. */
void sl_tx_deadlock_break(struct sl_tx_manager *k, struct sl_tx *t);

/* --- transactions.c ------------------------------------------------------------------ */

extern const struct sl_index_kind sl_writes_kind, sl_sessions_kind;

/* Those who have the lock that they waited for do what they were asked for, some of them:
 * the last thing that a call does, as they may have to wait anew, or to restart others. */
void sl_tx_go_on(struct sl_tx_manager *k, sl_ms now);

void sl_tx_engine_did(struct sl_tx_manager *k, sl_ms now, struct sl_tx *t,
                      const struct sl_storage_result *done);

/* Its connection is gone: the engine is told so, now or when that is tried again. */
void sl_tx_bar(struct sl_tx_manager *k, sl_ms now, struct sl_tx *t);

/* Handle the timeout of a wait. */
void sl_tx_wait_ended(struct sl_tx_manager *k, struct sl_tx *t);

/* It is over. */
void sl_tx_end(struct sl_tx_manager *k, struct sl_tx *t);

/* It loses all, and is told why when it is asked next, or now. */
void sl_tx_restart(struct sl_tx_manager *k, struct sl_tx *t, int why);
void sl_tx_forget_writes(struct sl_tx_manager *k, struct sl_tx *t);

/* --- keeper.c ------------------------------------------------------------------------- */

extern const struct sl_index_kind sl_ops_kind, sl_asked_kind;

/* An answer to come. NULL when out of memory. */
struct sl_tx_reply *sl_tx_reply_new(struct sl_tx_manager *k, uint64_t ticket,
                                    uint64_t session);
void sl_tx_reply_free(struct sl_tx_manager *k,
                      struct sl_tx_reply *r); /* NULL is allowed. */

/* Room for what it points to. NULL when out of memory; then it is as it was. */
void *sl_tx_reply_bytes(struct sl_tx_manager *k, struct sl_tx_reply *r, size_t bytes);
void sl_tx_reply_put(struct sl_tx_manager *k, struct sl_tx_reply *r);
void sl_tx_reply_status(struct sl_tx_manager *k, struct sl_tx_reply *r, int status);

/* Whoever asked is gone: what is to be told to it is told to nobody. */
void sl_tx_reply_forget(struct sl_tx_manager *k, uint64_t session);

/* NULL when out of memory. */
struct sl_tx_op *sl_order(struct sl_tx_manager *k, enum sl_tx_order_type type,
                          struct sl_tx *t, struct sl_bytes request,
                          struct sl_bytes table, struct sl_bytes key);

/* Nobody wants it any more: it is not ordered, or what comes of it is not looked at. */
void sl_order_drop(struct sl_tx_manager *k, struct sl_tx_op *op);
bool sl_order_was_fetched(const struct sl_tx_op *op);

/* Room for the writes of a commit to come. False: out of memory. */
bool sl_order_reserve(struct sl_tx_manager *k, uint32_t writes);

/* About how many locks are looked at in one call for those who go on, or are too old. */
#define SL_STEPS_MAX 1000u

/* What the engine has refused is tried again after so long. */
#define SL_TRY_AGAIN_MS 100

#endif /* SL_TX_MANAGER_INTERNAL_H */
