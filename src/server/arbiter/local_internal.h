/* local_internal.h - shared by the files of local.h: local.c handles requests, local_parked.c those
 * that wait for the journal, local_effects.c the effects of changes in the table. */
#ifndef SL_SERVER_ARBITER_LOCAL_INTERNAL_H
#define SL_SERVER_ARBITER_LOCAL_INTERNAL_H

#include "server/arbiter/local.h"
#include "server/arbiter/state.h"

/* --- local.c ------------------------------------------------------------------- */

/* Answer with an error. */
void sl_local_refuse(struct request *r, int status);

/* --- local_parked.c -------------------------------------------------------------- */

/* If the request would show a change that is not acknowledged yet, park the request until it is,
 * and return true. If the request was parked too often, set r->position and return false: then the
 * caller runs the request, and parks its reply. */
bool sl_local_waits_for_others(struct request *r);

/* Remove the reply from the output, which begins at `from`, and send it when all changes that it
 * shows are durable. */
void sl_local_park_reply(struct request *r, size_t from);

/* Answer with a number when this position is durable. */
void sl_local_answer_durably(struct request *r, uint64_t position,
                             enum sl_parked outcome, int64_t number);

/* Acknowledge a grant when the journal allows it. */
void sl_local_granted(struct request *r, const struct sl_grant *g);

/* Acknowledge an extension when this position is durable; 0: now; SL_STATE_FAILED: undo it, and
 * reject the request. */
void sl_local_extended(struct request *r, uint64_t position, sl_ms left);

/* Release a grant that was not acknowledged. Another node may know it already, so report its end. */
void sl_local_take_back(const struct request *r, const struct sl_grant *g);

/* --- local_effects.c ------------------------------------------------------------- */

/* Report the end of a grant to the observer. */
void sl_local_notify_gone(struct server *s, sl_fence fence, bool at_once);

/* Report to the observer that a grant was broken or stolen. */
void sl_local_notify_broke(struct server *s, sl_fence fence, bool ended);

/* Publish an event. If a change of its key is not acknowledged yet, the event waits for the same
 * position: it may show that change. */
void sl_local_publish(struct server *s, const struct sl_event *e);

/* Count the end of a grant for which a thief waited, and publish it when this position is
 * durable. */
void sl_local_count_stolen(struct server *s, struct sl_bytes key,
                           const struct sl_ended *past, bool answered,
                           uint64_t position);

#endif /* SL_SERVER_ARBITER_LOCAL_INTERNAL_H */
