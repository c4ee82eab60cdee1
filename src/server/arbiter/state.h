/* state.h - the durable state of the lock table.
 *
 * A single server with a data directory records every lease in its journal (journal/journal.h), and
 * restores them at a start. A clean stop adds nothing but a mark. In a cluster on etcd, the keeper
 * writes two limits to etcd, so that the next keeper can read them:
 *
 *   - The server gives no fence above fence_limit. When half of a block of fences is used, it
 *     writes the next limit while it continues to grant. (A single server writes this limit to its
 *     journal.)
 *   - The keeper gives no lease that is longer than lease_longest_ms, except leases longer than
 *     lease-volatile, which are in its journal (failover/keeper_journal.h). It writes this limit in steps
 *     (2, 5, 10 seconds, ...), so such writes are rare. The limit falls again when all leases
 *     of that length have expired.
 *
 * If a request needs a higher limit, the server keeps it until the new limit is written. Then it
 * runs these requests again, in order of arrival. If the write fails, the server rejects such
 * requests, serves all others, and retries the write every second.
 *
 * A change that must be durable before it is acknowledged takes effect in the table at once. Its
 * request is *parked* until the journal is durable; if the journal fails, the server undoes the
 * change. The keeper also parks the request of a client of its own node until another node has
 * recorded the lease. Until then, requests that would show the change are parked, too. The server
 * answers any other change at once, and sends the reply when the record is written. If the write
 * fails, the server undoes this change, too.
 *
 *     storage: start (no authority) -- begin_term --> keeper -- end_term --> no authority
 */
#ifndef SL_SERVER_ARBITER_STATE_H
#define SL_SERVER_ARBITER_STATE_H

#include "failover/keeper_journal.h"
#include "locks/undo.h"
#include "server/observe/events.h"
#include "server/request.h"

/* Read the journal in the data directory, and continue from the state of the last server. Returns 0,
 * or -1 after logging the reason. Call this when everything else is ready to serve. */
int sl_state_start(struct server *s);

/* Start without durable state, for a node of a majority cluster, which has its own file. */
int sl_state_start_without(struct server *s);

/* Start as a node of a cluster whose storage keeps the limits. `write` starts one write at a time
 * and returns whether it could. sl_state_written() reports the result, and may be called from
 * inside `write`. The table has no authority until this node is the keeper. */
typedef bool sl_state_write(struct server *s, sl_fence fence_limit, sl_ms longest_ms);
int sl_state_start_storage(struct server *s, sl_state_write *write);

/* Use this journal of the keeper from now on. */
void sl_state_set_keeper(struct server *s, struct sl_keeper_journal *k);

/* Call this when this node has become the keeper. It gives only fences above fence_limit, and
 * immediately starts to write a higher limit. Until that write is done, it gives no fence and no
 * lease longer than longest_ms. If leases of the previous keeper may still be valid, the caller also
 * calls sl_table_recover() in the same loop iteration. Until they have expired, the longest lease
 * is not lowered, because the keeper after this one may have to wait for the same leases. The
 * caller sets the authority of the table. */
void sl_state_begin_term(struct server *s, sl_fence fence_limit, sl_ms longest_ms);

/* Report the result of the last write: it succeeded (`ok`), or it failed or its result is unknown.
 * Do not call this for a write of an earlier term. */
void sl_state_written(struct server *s, bool ok);

/* Call this when this node is no longer the keeper. The table loses its authority, and requests
 * that wait for a write run again in the next loop iteration. The server takes back every grant that
 * was not acknowledged, and calls `unwanted` for it, because it may be in the journal of the keeper. */
void sl_state_end_term(struct server *s,
                       void (*unwanted)(struct request *r, const struct sl_grant *g));

/* Write the mark of a clean stop. Call this when the loop has ended. Returns 0, or -1 after logging
 * the reason. */
int sl_state_stop(struct server *s);

/* Whether grants with leases survive a stop of the server. They do if the server writes them, or if
 * the nodes report them to the next keeper. */
bool sl_state_keeps(const struct server *s);

/* Whether the server may give a lease of this length now. If it returns false, the request has been
 * kept until a write is done, or answered with an error. */
bool sl_state_may_lease(struct request *r, sl_ms lease_ms);

/* Whether the server may give a lease of this length without a write. */
bool sl_state_knows_lease(const struct server *s, sl_ms lease_ms);

/* Record a lease of this length that begins now. */
void sl_state_given(struct server *s, sl_ms lease_ms);

/* sl_state_count_waiter() counts a kept request that waits for a lease of this length;
 * sl_state_uncount_waiter() removes it from the count, whether or not it was granted. */
void sl_state_count_waiter(struct request *r, sl_ms lease_ms);
void sl_state_uncount_waiter(struct request *r);

/* Keep the request until this position of the journal is durable; or, if it is SL_STATE_NOTE plus a number,
 * until sl_state_noted() reports the number. Then it runs again, or, if its
 * outcome is known, sl_local_deliver() answers it; the caller stores the outcome in the kept
 * request. Returns NULL if out of memory; then the request has been answered with an error. */
enum sl_parked {
    SL_PARKED_TO_RUN,
    SL_PARKED_GRANT,     /* request.grant */
    SL_PARKED_EXTENSION, /* request.number: the remaining lease; .extra: the old value */
    SL_PARKED_NUMBER,    /* request.number */
    SL_PARKED_REPLY,     /* request.extra: the reply, which shows changes of others */
    SL_PARKED_UNDONE,    /* The journal has failed, and the change was undone. */
    SL_PARKED_EVENT,     /* Not a request: an event, see sl_state_publish(). */
    SL_PARKED_LEFT       /* Not a request: an extension whose client has left. */
};
#define SL_STATE_NOTE (1ull << 63)
struct request *sl_state_park(struct request *r, uint64_t position,
                              enum sl_parked outcome);

/* Another node has recorded the leases of all notes up to this number: answer the requests that wait for
 * it. Do not park a request for a lower number than that of the last one. */
void sl_state_noted(struct server *s, uint64_t number);

/* The client of a parked extension has disconnected. Its extension stays: the reply to a later EXTEND
 * may show it, and its record will be in the journal. If the journal fails first, the extension is
 * undone, in order with the other changes. */
void sl_state_leave(struct request *r);

/* All positions up to this one are durable; or those that are not will never be, and the changes
 * that wait for them are undone now. */
void sl_state_durable(struct server *s, uint64_t position);
void sl_state_lost(struct server *s);

/* Reject a request, because a write has failed. */
void sl_state_refuse(struct request *r);

/* --- The journal: of a single server, or of the keeper (state_changes.c) ----- */

/* Call sl_state_change() before a change of the table, and sl_state_need() after it. The latter
 * returns the position that must be durable before the change is acknowledged; 0: none; or
 * SL_STATE_FAILED: undo the change, and reject the request. */
#define SL_STATE_FAILED UINT64_MAX
void sl_state_change(struct server *s);
uint64_t sl_state_need(const struct server *s);

/* Returns the position that makes all changes so far durable; 0 if there is no journal; or
 * SL_STATE_FAILED. Until then, requests about this key wait; with an empty key: requests about any
 * key. */
uint64_t sl_state_need_all(struct server *s, struct sl_bytes key);

/* Returns the position for which a request about this key must wait, because it would show a change
 * that is not acknowledged yet; 0: none. With an empty key: for requests about all keys. */
uint64_t sl_state_pending(const struct server *s, struct sl_bytes key);

/* Call this before a change that needs no position (0) is acknowledged. The reply leaves when the
 * record is written. If the write fails, the reply does not leave, and the server undoes the change.
 * Returns 0, or SL_STATE_FAILED if out of memory. */
uint64_t sl_state_answers(struct server *s, const struct sl_undo_change *c);

/* Publish an event when this position is durable, in order with the replies that wait; 0: now. If BREAK
 * NOW has ended the grant (`ends`), the other nodes learn of the end at the same time, and not before:
 * until then, the next keeper must learn of the grant from them. If the journal fails first, the event is
 * published when the journal works again, because its new file has the change; but asked, withdrawn and
 * waits at once, unless the grant has ended. */
void sl_state_publish(struct server *s, const struct sl_event *e, uint64_t position);

/* Whether leases, BREAK and DRAIN must be rejected, because the journal has failed. */
bool sl_state_has_failed(const struct server *s);

/* Whether the server restores leases from a journal. */
bool sl_state_journals(const struct server *s);

/* Keep the request, and run it again in the next loop iteration. */
void sl_state_run_next_turn(struct request *r);

/* Keep or reject this request, because the table has no fence left. A kept request waits until a
 * higher limit is written. */
void sl_state_lack_fence(struct request *r);

/* Remove a kept request from the lists of this module. */
void sl_state_forget(struct request *r);

/* Run again the requests that no longer have to wait, as many as the budget of this loop iteration
 * allows. */
void sl_state_resume(struct server *s);

/* Whether more such requests are left for the next loop iteration. */
bool sl_state_has_more(const struct server *s);

/* Write the limits that will be needed soon. The server calls sl_state_write_ahead() at the end of
 * every callback, and sl_state_second() every second. */
void sl_state_write_ahead(struct server *s);
void sl_state_second(struct server *s);

/* Return for how much longer the table grants nothing; 0: it grants. */
sl_ms sl_state_quiet_ms(const struct server *s);

struct sl_state_view {
    const char *directory; /* "": no data directory. */
    sl_ms recovering_ms;
    sl_fence fence_limit;   /* 0: no limit. */
    sl_ms lease_longest_ms; /* -1: no limit. */
    uint64_t writes, errors;
    uint64_t restored;
    size_t deferred;
};
void sl_state_inspect(const struct server *s, struct sl_state_view *out);

#endif /* SL_SERVER_ARBITER_STATE_H */
