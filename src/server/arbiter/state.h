/* state.h - what survives a restart, and who waits until it is written down.
 *
 * The rule: what a later server has to know is on the disk before it is relied on; or, if an
 * engine keeps it, what a later keeper has to know is in the engine.
 *
 *   - No fence is given above fence_limit. When half of a block of fences is used the next
 *     one is written, on a worker thread, while grants go on.
 *   - No lease is given that is longer than lease_longest_ms. It is written in steps (2, 5,
 *     10, 30 seconds, ...), so that is rare; and it falls again when the leases of that
 *     length have ended.
 *   - A clean stop writes down the grants with leases. The file says "clean" only while
 *     nobody serves.
 *
 * A command that needs what is not written yet is deferred: its words are kept with its
 * connection, and it is dispatched again when the write is done, in order of arrival. If the
 * disk refuses, such commands are refused; all others go on, and it is tried again every
 * second. So it is with an engine that does not answer.
 *
 *     start:  nothing there        a first start; it waits for nothing
 *             clean                grants are put back; fences go on above the last
 *             not clean            a crash: nothing is granted for lease_longest_ms, and
 *                                  fences go on above fence_limit
 *             lost, damaged, ...   refused, with words
 *
 *     engine:  start, and nothing is granted --reign--> keeper --idle--> nothing is granted
 */
#ifndef SL_SERVER_ARBITER_STATE_H
#define SL_SERVER_ARBITER_STATE_H

#include "server/request.h"

/* Take possession of the folder, and begin where the last server ended. 0, or -1: it was
 * said in the log. To be called when all else is ready to serve. */
int sl_state_start(struct server *s);

/* The same for one that keeps nothing here: a node, which has its own file. */
int sl_state_start_without(struct server *s);

/* The same for a node whose cluster has an engine, which keeps it. `write` orders that, and
 * returns whether it could; sl_state_written() says what became of it, also from inside, and
 * there is one of them at a time. Until it reigns the table has no authority. */
typedef bool sl_state_write(struct server *s, sl_fence fence_limit, sl_ms longest_ms);
int sl_state_start_engine(struct server *s, sl_state_write *write);

/* This node has become the keeper. No fence is given but above what the engine knows as
 * limit, and no lease longer than it knows, before more is written, which begins at once.
 * When the leases of the last keeper have to be waited for, sl_table_recover() is due in the
 * same turn: while it is quiet the longest does not fall, as the keeper after this one may
 * have to wait for them as well. Authority is the caller's to set. */
void sl_state_begin_term(struct server *s, sl_fence fence_limit, sl_ms longest_ms);

/* What `write` ordered last is done; or it is not known to be. Not to be called for what an
 * earlier reign has ordered. */
void sl_state_written(struct server *s, bool ok);

/* It is the keeper no more: the table has no authority, and what was deferred is dispatched
 * again, a turn later. To be called also when it stops being certain of that for good. */
void sl_state_end_term(struct server *s);

/* The loop has ended: write down what is held. 0, or -1: it was said in the log. */
int sl_state_stop(struct server *s);

/* Whether leased grants outlive a stop: they will be written down, or the next keeper hears
 * of them from the nodes. */
bool sl_state_keeps(const struct server *s);

/* Whether a lease of this length may be given now. False: the request was parked or
 * answered. */
bool sl_state_may_lease(struct request *r, sl_ms lease_ms);

/* Whether a lease so long may be given without writing anything. */
bool sl_state_knows_lease(const struct server *s, sl_ms lease_ms);

/* One was, and it ends by then at the latest; or it may be, to one who waits. */
void sl_state_leased(struct server *s, sl_ms lease_ms, sl_ms end_ms);

/* Such a lease is given now. */
void sl_state_given(struct server *s, sl_ms lease_ms);

/* A kept request waits for a grant with such a lease; and no more, however that ended. */
void sl_state_waits(struct request *r, sl_ms lease_ms);
void sl_state_waited(struct request *r);

/* Run it again in the next turn. */
void sl_state_again(struct request *r);

/* There was no fence for this request: it is parked or rejected, as one that asks for a lease. */
void sl_state_lack_fence(struct request *r);

/* The request does not wait for the disk any more. */
void sl_state_forget(struct request *r);

/* Dispatch again what was deferred and need not be any more, as much as this turn allows.
 * Whether there is more. */
void sl_state_resume(struct server *s);

bool sl_state_has_more(const struct server *s);

/* Write what will be needed soon: at the end of every callback; and every second. */
void sl_state_write_ahead(struct server *s);
void sl_state_second(struct server *s);

struct sl_state_view {
    const char *directory; /* "": none. */
    sl_ms recovering_ms;
    sl_fence fence_limit;   /* 0: none. */
    sl_ms lease_longest_ms; /* -1: any. */
    uint64_t writes, errors;
    uint64_t restored;
    size_t deferred;
};
void sl_state_inspect(const struct server *s, struct sl_state_view *out);

#endif /* SL_SERVER_ARBITER_STATE_H */
