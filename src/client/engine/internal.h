/* internal.h - shared by the files of the engine. */
#ifndef SL_CLIENT_ENGINE_INTERNAL_H
#define SL_CLIENT_ENGINE_INTERNAL_H

#include "client/engine/engine.h"

/* --- Timers (engine.c) ---------------------------------------------------------- */

/* Reserve memory for the timer of one more object. Returns SLUICE_OK or SLUICE_ENOMEM. */
int sl_engine_add_object(struct sl_engine *e);
void sl_engine_remove_object(struct sl_engine *e, struct sl_timer *t);
void sl_timer_init(struct sl_timer *t, enum sl_timer_type type);
/* SL_NEVER: stop the timer. */
void sl_timer_set(struct sl_engine *e, struct sl_timer *t, sl_ms at);

/* Returns a random pause after this many failures. */
sl_ms sl_engine_backoff(struct sl_engine *e, unsigned failures);

/* End a request of the program. NULL is allowed. */
void sl_ticket_finish(struct sl_engine *e, struct sl_ticket *t, int status);

/* Keep an error message for the program. */
void sl_engine_note(struct sl_engine *e, const char *message);

/* --- Calls (call.c) --------------------------------------------------------------- */

/* Create a call on a link, in no queue. Returns NULL if out of memory. */
struct sl_call *sl_call_new(struct sl_engine *e, enum sl_call_type type, unsigned link,
                            struct sl_bytes key, sl_fence fence);

/* Put a call into the queue of its link. */
void sl_call_submit(struct sl_engine *e, struct sl_call *c);

/* The call was written. */
void sl_call_sent(struct sl_engine *e, struct sl_call *c);

/* Returns how long the server may take to reply. */
sl_ms sl_call_reply_ms(const struct sl_call *c);

/* End the request of the program, if the call has one. */
void sl_call_finish(struct sl_engine *e, struct sl_call *c, int status);

/* Nobody needs the reply any more. Frees the call, unless a reply is still to come. */
void sl_call_orphan(struct sl_engine *e, struct sl_call *c);

/* Free a call that is in no queue and no ring. */
void sl_call_free(struct sl_engine *e, struct sl_call *c);

/* The connection of a call that was sent is lost: send it again later, or free it. */
void sl_call_interrupted(struct sl_engine *e, struct sl_call *c);

/* Append the command to the output of its link. Returns SLUICE_OK or SLUICE_ENOMEM. */
int sl_call_write(struct sl_engine *e, struct sl_call *c);

/* The reply has arrived. The call is in no queue any more, and this frees it. */
void sl_call_answered(struct sl_engine *e, struct sl_call *c,
                      struct sluice_reply **reply);
void sl_call_due(struct sl_engine *e, struct sl_call *c);

/* Returns whether the same command can succeed later or on another node. */
bool sl_call_is_transient(int status);

/* --- Links (link.c) ---------------------------------------------------------------- */

void sl_link_init(struct sl_engine_link *l);
void sl_link_free(struct sl_engine *e, struct sl_engine_link *l);
/* The link has a call to send: connect, if necessary. */
void sl_link_needed(struct sl_engine *e, unsigned link);
void sl_link_due(struct sl_engine *e, struct sl_engine_link *l);
/* Close the connection; the next one is to another address, if there is one. */
void sl_link_drop(struct sl_engine *e, unsigned link, int status, const char *why);
/* Returns why requests have no reply. */
int sl_link_status(const struct sl_engine *e, unsigned link);
/* This node cannot serve the client now: connect to the next address, if there is one. */
void sl_link_leave(struct sl_engine *e, unsigned link, const char *why);
/* The client closes: end the calls of the program. */
void sl_link_close_calls(struct sl_engine *e, struct sl_engine_link *l);
int sl_link_write(struct sl_engine_link *l, const char *bytes, size_t n);

/* --- Acquisitions (acquisition.c) --------------------------------------------------- */

int sl_acquisition_write(struct sl_engine *e, struct sl_client_acquisition *a);
/* The reply to ACQUIRE, or the outcome in a push message. */
void sl_acquisition_outcome(struct sl_engine *e, struct sl_client_acquisition *a,
                            const struct sluice_reply *r);
void sl_acquisition_cancelled(struct sl_engine *e, struct sl_client_acquisition *a,
                              const struct sluice_reply *r);
/* Its grant was confirmed, or has ended. */
void sl_acquisition_confirmed(struct sl_engine *e, struct sl_client_acquisition *a);
void sl_acquisition_unconfirmed(struct sl_engine *e, struct sl_client_acquisition *a);
void sl_acquisition_due(struct sl_engine *e, struct sl_client_acquisition *a);
/* The link is lost while an ACQUIRE had no reply, or the request waits: ask again. */
void sl_acquisition_interrupted(struct sl_engine *e, struct sl_client_acquisition *a);
/* The program gives up: tell it `status`, and cancel the request at the server. */
void sl_acquisition_abandon(struct sl_engine *e, struct sl_client_acquisition *a,
                            int status);
void sl_acquisition_free(struct sl_engine *e, struct sl_client_acquisition *a);

/* --- Holds (hold.c) ------------------------------------------------------------------- */

struct sl_hold *sl_hold_new(struct sl_engine *e, struct sl_bytes key,
                            const struct sluice_request *r, int32_t tid);
void sl_hold_free(struct sl_engine *e, struct sl_hold *h);
/* Returns the earliest expiry of a lease of `ms` that was counted from `sent_ms`. */
sl_ms sl_hold_end(sl_ms sent_ms, int64_t ms);
/* The request was granted: from now on, the hold is found by its fence. */
void sl_hold_begin(struct sl_engine *e, struct sl_hold *h, sl_fence fence,
                   sl_ms end_ms);
/* Extend the lease now. */
void sl_hold_renew(struct sl_engine *e, struct sl_hold *h);
void sl_hold_due(struct sl_engine *e, struct sl_hold *h);
/* The reply to an EXTEND of this hold, with the time when it was sent. */
void sl_hold_answered(struct sl_engine *e, struct sl_hold *h, sl_ms sent_ms, int status,
                      int64_t left_ms);
/* The grant is lost, or is about to be: report the event, and free the hold. */
void sl_hold_lose(struct sl_engine *e, struct sl_hold *h, enum sluice_event_type why);
/* The holder was asked to release, or not any more. */
void sl_hold_ask(struct sl_engine *e, struct sl_hold *h, bool asked);
struct sl_hold *sl_hold_find(const struct sl_engine *e, struct sl_bytes key,
                             sl_fence fence);
struct sl_hold *sl_hold_newest(const struct sl_engine *e, struct sl_bytes key,
                               int32_t tid);
/* Report no more events of a grant. */
void sl_hold_silence(struct sl_engine *e, struct sl_bytes key, sl_fence fence);
extern const struct sl_index_kind sl_hold_index_kind;
extern const struct sl_index_kind sl_acquisition_index_kind;

#endif /* SL_CLIENT_ENGINE_INTERNAL_H */
