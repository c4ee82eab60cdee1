/* keeper.h - transactions: this server's keeper, its store, and the way between them.
 *
 * The keeper (tx/manager.h) decides and the engine (storage/storage.h) keeps. Here are their
 * clock, their clients and their log.
 *
 *     command -> sl_transactions_ask() -> keeper -> orders -> engine, on threads of its own
 *     reply   <- sl_transactions_reply() <- keeper <- done <- its descriptor, on the loop
 *
 * A connection whose command asks the keeper waits, as in ACQUIRE, until it is answered; most
 * are before the command returns. Its number is that of its transaction's session, and of its
 * request: there is one of each at a time. */
#ifndef SL_SERVER_ARBITER_TRANSACTIONS_H
#define SL_SERVER_ARBITER_TRANSACTIONS_H

#include "server/request.h"
#include "storage/storage.h"
#include "tx/manager.h"

/* Open the store in the server's folder, and claim the next term. 0, also where there are no
 * transactions; or -1: it was said in the log. It waits for the disk: to be called when the
 * folder is ours and nobody is served yet. */
int sl_transactions_start(struct server *s);

/* The server stops: a disk that fails is not waited for any longer. */
void sl_transactions_hurry(struct server *s);

/* The loop has ended: what was ordered is done, then the store is closed. */
void sl_transactions_stop(struct server *s);

/* Tell what follows, as much as this turn allows. True: there is no more. */
bool sl_transactions_pump(struct server *s);

/* When the keeper has something to do by itself, or SL_NEVER. */
sl_ms sl_transactions_due(const struct server *s);

/* --- In a cluster (reign.c) ------------------------------------------------------------ */

/* Of the engine. What is submitted while it closes is not taken: false. */
void sl_transactions_watch(struct server *s,
                           void (*told)(void *owner,
                                        const struct sl_storage_term *reign));
bool sl_transactions_submit_op(struct server *s, struct sl_storage_op *op);
const char *sl_transactions_trouble(
    const struct server *s); /* "": none, or it is closed. */

/* This node is the keeper of this term now; and no more, as another one is current. */
void sl_transactions_lead(struct server *s, uint64_t term);
void sl_transactions_depose(struct server *s, uint64_t term);

/* --- Requests ------------------------------------------------------------------------ */

/* TX.*, EXPLAIN TX and LOCKS TX. */
void sl_transactions_submit(struct request *r);

/* A command of the connection's transaction failed: then TX.COMMIT aborts the transaction, if
 * there is one, and says so. Otherwise a pipeline would commit the half that did not fail. */
void sl_transactions_failed(struct conn *c, const char *name, const char *word);

/* The keeper of the connection's transaction is lost, and the transaction with it. The next
 * command of the transaction is answered so. */
#define SL_LOST_TX "its keeper was lost, and it with it: TX.BEGIN again"
void sl_transactions_lose(struct conn *c);
bool sl_transactions_answers_lost(struct request *r);

/* The connection is gone, or begins a new session: its transaction is aborted. */
void sl_transactions_leave(struct conn *c);

/* Whether the request is answered soon: it waits for no lock. */
bool sl_transactions_is_brief(const struct request *r);

/* Whether a commit is under way. */
bool sl_transactions_is_busy(const struct server *s);

/* --- Ask ------------------------------------------------------------------------------ */

/* NULL: there are no transactions here. */
const struct sl_tx_manager *sl_transactions_manager(const struct server *s);

/* Why there are none, or none at present. */
const char *sl_transactions_why_not(const struct server *s);

struct sl_transactions_view {
    const char *engine, *state;
    struct sl_tx_manager_stats keeper;
    struct sl_storage_stats engine_stats;
};
void sl_transactions_inspect(const struct server *s, struct sl_transactions_view *out);

/* Bytes that transactions make it keep. */
size_t sl_transactions_bytes(const struct server *s);

/* The last cycles that were broken, the newest first. */
#define SL_DEADLOCK_SHOWN 16u
struct sl_deadlock {
    sl_ms at_ms;
    uint64_t loser; /* The transaction that was told to restart. */
    uint32_t count; /* Of those in it; the first so many are in `of`. */
    uint64_t of[SL_DEADLOCK_SHOWN];
};
const struct sl_deadlock *sl_transactions_deadlock(const struct server *s,
                                                   uint32_t i); /* Or NULL. */

/* "7 waits for 9 waits for 7". */
#define SL_DEADLOCK_TEXT_BYTES 640u
void sl_deadlock_text(const uint64_t *of, uint32_t count,
                      char out[SL_DEADLOCK_TEXT_BYTES]);

#endif /* SL_SERVER_ARBITER_TRANSACTIONS_H */
