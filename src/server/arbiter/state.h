/* state.h - the durable state of the lock table: the limits for fences and leases, and, after a
 * clean stop, the grants.
 *
 * The rule: a limit is on the disk before the server relies on it. In a cluster with a keeper it is
 * in the storage of the cluster instead, for the next keeper.
 *
 *   - The server gives no fence above fence_limit. When half of a block of fences is used, a
 *     worker thread writes the next limit while the server continues to grant.
 *   - The server gives no lease that is longer than lease_longest_ms. It writes this limit in steps
 *     (2, 5, 10, 30 seconds, ...), so such writes are rare. The limit falls again when all leases
 *     of that length have expired.
 *   - A clean stop writes the grants that have leases. The file says "clean" only while no server
 *     runs.
 *
 * A request that needs a higher limit is kept until the write is done; then the server runs it
 * again, in order of arrival. If the write fails, the server rejects such requests, serves all
 * others, and repeats the write every second.
 *
 *     start:   no file              the first start; the server grants at once
 *              clean                the server restores the grants, and continues above the last fence
 *              not clean            a crash: the server grants nothing for lease_longest_ms, and
 *                                   continues above fence_limit
 *              lost, damaged, ...   the server does not start; the log says why
 *
 *     storage: start (no authority) -- begin_term --> keeper -- end_term --> no authority
 */
#ifndef SL_SERVER_ARBITER_STATE_H
#define SL_SERVER_ARBITER_STATE_H

#include "server/request.h"

/* Read the file in the data directory, and continue where the last server ended. 0, or -1: the log
 * says why. Call it when everything else is ready to serve. */
int sl_state_start(struct server *s);

/* The same without durable state: for a node, which has its own file. */
int sl_state_start_without(struct server *s);

/* The same for a node of a cluster whose storage keeps the limits. `write` orders one write at a
 * time and returns whether it could; sl_state_written() reports the result, and may be called from
 * inside `write`. The table has no authority until this node is the keeper. */
typedef bool sl_state_write(struct server *s, sl_fence fence_limit, sl_ms longest_ms);
int sl_state_start_storage(struct server *s, sl_state_write *write);

/* This node has become the keeper. It gives only fences above fence_limit, and begins at once to
 * write a higher limit. Until that is done it gives no fence and no lease longer than longest_ms.
 * If the keeper must wait for leases of the last one, the caller calls sl_table_recover() in the
 * same turn; meanwhile the longest lease does not fall, because the keeper after this one may have
 * to wait for the same leases. The caller sets the authority of the table. */
void sl_state_begin_term(struct server *s, sl_fence fence_limit, sl_ms longest_ms);

/* The last write has succeeded; or it failed, or its result is not known. Do not call it for a write
 * of an earlier term. */
void sl_state_written(struct server *s, bool ok);

/* This node is not the keeper any more: the table has no authority, and requests that wait for a
 * write run again in the next turn. */
void sl_state_end_term(struct server *s);

/* Write the grants that have leases. Call it when the loop has ended. 0, or -1: the log says why. */
int sl_state_stop(struct server *s);

/* Whether grants with leases survive a stop: the server writes them, or the nodes report them to
 * the next keeper. */
bool sl_state_keeps(const struct server *s);

/* Whether the server may give a lease of this length now. False: the request is kept until a write
 * is done, or answered. */
bool sl_state_may_lease(struct request *r, sl_ms lease_ms);

/* Whether the server may give a lease of this length without a write. */
bool sl_state_knows_lease(const struct server *s, sl_ms lease_ms);

/* Record a lease of this length that ends at end_ms at the latest. */
void sl_state_leased(struct server *s, sl_ms lease_ms, sl_ms end_ms);

/* Record a lease of this length that begins now. */
void sl_state_given(struct server *s, sl_ms lease_ms);

/* Count a kept request that waits for a grant with such a lease; and stop counting it, whether it
 * was granted or not. */
void sl_state_count_waiter(struct request *r, sl_ms lease_ms);
void sl_state_uncount_waiter(struct request *r);

/* Keep the request, and run it again in the next turn. */
void sl_state_run_next_turn(struct request *r);

/* The table had no fence for this request: keep it until more are written, or reject it. */
void sl_state_lack_fence(struct request *r);

/* Remove a kept request from the lists of this module. */
void sl_state_forget(struct request *r);

/* Run again requests that need not wait any more, as many as the budget of this turn allows. */
void sl_state_resume(struct server *s);

/* Whether there are more of them for the next turn. */
bool sl_state_has_more(const struct server *s);

/* Write limits that will be needed soon. The server calls the first at the end of every callback,
 * the second every second. */
void sl_state_write_ahead(struct server *s);
void sl_state_second(struct server *s);

struct sl_state_view {
    const char *directory; /* "": there is none. */
    sl_ms recovering_ms;
    sl_fence fence_limit;   /* 0: no limit. */
    sl_ms lease_longest_ms; /* -1: no limit. */
    uint64_t writes, errors;
    uint64_t restored;
    size_t deferred;
};
void sl_state_inspect(const struct server *s, struct sl_state_view *out);

#endif /* SL_SERVER_ARBITER_STATE_H */
