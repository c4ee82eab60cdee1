/* transactions.h - the transactions of this server: the manager, its storage, and its clients.
 *
 * The manager (tx/manager.h) makes the decisions, and the storage (storage/storage.h) keeps the
 * data. This module passes the current time to the manager, passes the manager's orders to the
 * storage, and answers requests.
 *
 *     request -> sl_transactions_submit() -> manager -> orders -> storage, on its own threads
 *     reply   <- sl_request_answer() <- manager <- results <- storage, by its descriptor
 *
 * Most requests are answered before sl_transactions_submit() returns. A connection has at most
 * one transaction. The manager identifies its session by the number of the connection. */
#ifndef SL_SERVER_ARBITER_TRANSACTIONS_H
#define SL_SERVER_ARBITER_TRANSACTIONS_H

#include "server/request.h"
#include "storage/storage.h"
#include "tx/manager.h"

/* Open the storage and, on a single server, claim the next term. Returns 0, even if the settings
 * disable transactions, or -1 after logging the reason. This waits for the disk, so call it after
 * the data directory is locked and before the server accepts clients. */
int sl_transactions_start(struct server *s);

/* Stop waiting for a failing disk, because the server is shutting down. */
void sl_transactions_hurry(struct server *s);

/* Finish the pending orders of the storage, and close it. Call this when the loop has ended. */
void sl_transactions_stop(struct server *s);

/* Carry out orders of the manager, within the budget of this loop iteration. Returns true if
 * there are no more. */
bool sl_transactions_pump(struct server *s);

/* Return when the manager next has work that no request triggers, or SL_NEVER. */
sl_ms sl_transactions_due(const struct server *s);

/* --- In a cluster on etcd (forward/term.c) --------------------------------------------- */

/* sl_transactions_watch() calls `changed` when the term in the storage changes;
 * sl_transactions_submit_op() submits an operation, and returns false if the storage is closing. */
void sl_transactions_watch(struct server *s,
                           void (*changed)(void *owner,
                                           const struct sl_storage_term *term));
bool sl_transactions_submit_op(struct server *s, struct sl_storage_op *op);

/* The limits of one write to the keeper's journal. */
void sl_transactions_record_limits(const struct server *s,
                                   struct sl_storage_record_limits *out);

/* Return why the storage does not answer; "": it answers, or is closed. */
const char *sl_transactions_trouble(const struct server *s);

/* Begin this term as the keeper; or end it, because this node is no longer the keeper. */
void sl_transactions_lead(struct server *s, uint64_t term);
void sl_transactions_depose(struct server *s, uint64_t term);

/* --- Requests ------------------------------------------------------------------------ */

/* Submit TX.BEGIN to TX.OUTCOME, EXPLAIN TX and LOCKS TX. */
void sl_transactions_submit(struct request *r);

/* Record that a command of the connection's transaction failed. TX.COMMIT will then abort the
 * transaction and report this command; otherwise a pipeline would commit only the commands that did
 * not fail. */
void sl_transactions_failed(struct conn *c, const char *name, const char *code);

/* sl_transactions_lost() records that the keeper has failed, which aborted the connection's
 * transaction. sl_transactions_answers_lost() answers the next command of that transaction with
 * this error and returns true. */
#define SL_LOST_TX \
    "the keeper failed and the transaction was aborted; retry from TX.BEGIN"
void sl_transactions_lost(struct conn *c);
bool sl_transactions_answers_lost(struct request *r);

/* Abort the connection's transaction, because the connection has closed or begins a new session. */
void sl_transactions_leave(struct conn *c);

/* Whether the request will be answered soon, because it waits for no lock. */
bool sl_transactions_is_brief(const struct request *r);

/* Whether the storage has a commit that is not finished. */
bool sl_transactions_is_busy(const struct server *s);

/* --- Inspection ----------------------------------------------------------------------- */

/* Return the text of the error NOKEEPER, which says why transactions are not available here or at
 * present. */
const char *sl_transactions_why_not(const struct server *s);

struct sl_transactions_view {
    const char *storage, *state;
    struct sl_tx_manager_stats manager;
    struct sl_storage_stats storage_stats;
};
void sl_transactions_inspect(const struct server *s, struct sl_transactions_view *out);

/* Return the number of bytes that the manager uses for transactions. */
size_t sl_transactions_bytes(const struct server *s);

/* The last deadlocks that the manager resolved, newest first. */
#define SL_DEADLOCK_SHOWN 16u
struct sl_deadlock {
    sl_ms at_ms;
    uint64_t victim; /* The transaction that must restart. */
    uint32_t count;  /* The number of its transactions; `of` has the first of them. */
    uint64_t of[SL_DEADLOCK_SHOWN];
};
const struct sl_deadlock *sl_transactions_deadlock(const struct server *s,
                                                   /* Returns NULL if there are no
                                                    * more. */
                                                   uint32_t i);

/* Format a deadlock as "7 waits for 9 waits for 7". */
#define SL_DEADLOCK_TEXT_BYTES 640u
void sl_deadlock_text(const uint64_t *of, uint32_t count,
                      char out[SL_DEADLOCK_TEXT_BYTES]);

#endif /* SL_SERVER_ARBITER_TRANSACTIONS_H */
