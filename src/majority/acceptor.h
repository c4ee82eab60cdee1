/* acceptor.h - the acceptor of a node: it records at most one lease per key, and
 * votes. */
#ifndef SL_MAJORITY_ACCEPTOR_H
#define SL_MAJORITY_ACCEPTOR_H

#include "majority/node_internal.h"

/* --- acceptor.c ------------------------------------------------------------------- */

void sl_acceptor_receive(struct sl_node *n, struct sl_now now, sl_node_id from,
                         const struct sl_message *m);

/* Whether the stealing request of another owner has reserved the key, so that a request
 * of this owner and priority must be rejected. */
bool sl_acceptor_is_reserved(const struct sl_node_key *k, struct sl_attempt_id owner,
                             int32_t priority);

/* --- acceptor_lease.c ------------------------------------------------------------- */

/* End the lease and the reservation of this key if they have expired. */
void sl_acceptor_settle(struct sl_node *n, struct sl_now now, struct sl_node_key *k);
void sl_acceptor_tick(struct sl_node *n, struct sl_now now);

/* Record a lease. Returns false when out of memory; then nothing has changed. */
bool sl_acceptor_record(struct sl_node *n, struct sl_now now, struct sl_node_key *k,
                        const struct sl_message *m, bool overlapping);
bool sl_acceptor_set_texts(struct sl_node *n, struct sl_node_lease *l,
                           const struct sl_message *m);

/* Do not extend the recorded lease any more, because an operator has broken it. */
void sl_acceptor_break(struct sl_node *n, struct sl_now now, struct sl_node_key *k);

/* Mark the recorded lease as agreed: a majority has granted it. */
void sl_acceptor_agree(struct sl_node *n, struct sl_now now, struct sl_node_key *k,
                       bool overlapping);

/* sl_acceptor_set_aside() moves the lease to `overlapped` before a stealing request
 * is recorded; it returns false when out of memory. sl_acceptor_restore() moves it
 * back after the stealing request has ended; it returns false if there is no such lease
 * that is still valid. */
bool sl_acceptor_set_aside(struct sl_node *n, struct sl_node_key *k);
bool sl_acceptor_restore(struct sl_node *n, struct sl_now now, struct sl_node_key *k);

/* End the lease. `given_up` says that its proposer gave the attempt up, so it was
 * never granted. */
void sl_acceptor_end_lease(struct sl_node *n, struct sl_now now, struct sl_node_key *k,
                           bool given_up);
void sl_acceptor_end_reservation(struct sl_node *n, struct sl_now now,
                                 struct sl_node_key *k);

/* Whether the lease belongs to the acquisition with this id. */
static inline bool sl_acceptor_is_of_acquisition(const struct sl_node_lease *l,
                                                 struct sl_bytes request)
{
    return l != NULL && request.n > 0 && l->request != NULL &&
           sl_bytes_equal(sl_node_text_bytes(l->request), request);
}

/* Remember that an acquisition has ended, so that no attempt is granted. The lease of
 * `owner` has ended; epoch 0: a client has released or cancelled the acquisition. If it is
 * not sure that the lease was granted, `owner` may make more attempts. Returns false when
 * out of memory. */
bool sl_acceptor_remember_ended(struct sl_node *n, struct sl_bytes key,
                                struct sl_bytes request, struct sl_attempt_id owner,
                                bool sure);
/* Do so for the acquisition of a lease that ends. */
void sl_acceptor_end_acquisition(struct sl_node *n, const struct sl_node_key *k,
                                 const struct sl_node_lease *l);
/* Return the acquisition if an attempt of this owner must be rejected, because it has
 * ended; else NULL. */
const struct sl_node_acquisition *sl_acceptor_find_ended(const struct sl_node *n,
                                                         struct sl_bytes key,
                                                         struct sl_bytes request,
                                                         struct sl_attempt_id owner);
/* Whether a client has released or cancelled the acquisition. */
bool sl_acceptor_is_cancelled(const struct sl_node *n, struct sl_bytes key,
                              struct sl_bytes request);

/* Count the lease under its length, that is, the longest length for which this acceptor
 * has voted under the lease's fence. */
void sl_acceptor_count_length(struct sl_node *n, struct sl_node_lease *l,
                              sl_ms lease_ms);

/* Returns the length of the longest lease that is valid here, rounded up. */
sl_ms sl_acceptor_longest_lease(const struct sl_node *n, struct sl_now now);

/* --- acceptor_teach.c ------------------------------------------------------------- */

void sl_acceptor_receive_teach(struct sl_node *n, struct sl_now now, sl_node_id from,
                               const struct sl_message *m);

/* Record that a node has taught this node all its leases. */
void sl_acceptor_receive_taught(struct sl_node *n, struct sl_now now, sl_node_id from,
                                const struct sl_message *m);

/* After an attempt was given up: record the lease that was agreed meanwhile, if any. */
void sl_acceptor_take_learned(struct sl_node *n, struct sl_now now,
                              struct sl_node_key *k);

/* --- acceptor_report.c ------------------------------------------------------------ */

/* Publish an event about the lease of a key. */
void sl_acceptor_publish(struct sl_node *n, struct sl_now now,
                         const struct sl_node_key *k, enum sl_node_event_type type);
/* Publish what a TEACH reports: a grant, and whether it was extended. */
void sl_acceptor_publish_taught(struct sl_node *n, struct sl_node_key *k,
                                const struct sl_message *m);
void sl_acceptor_publish_end(struct sl_node *n, struct sl_now now,
                             struct sl_node_key *k, sl_fence fence,
                             enum sl_node_event_type how);
/* Publish that an operator has broken a lease; `at_once`: and ended it. `again`: it was
 * broken before. */
void sl_acceptor_publish_broken(struct sl_node *n, struct sl_now now,
                                struct sl_node_key *k, sl_fence fence, bool at_once,
                                bool again);
/* Publish the expiry of a copied lease that expired here, if no node has reported an
 * extension. Call this when the key is forgotten, or when a later lease of the key is
 * agreed. */
void sl_acceptor_publish_lapse(struct sl_node *n, struct sl_now now,
                               struct sl_node_key *k);
/* Publish that a stealing request overlaps the lease in `overlapped`. */
void sl_acceptor_publish_stolen(struct sl_node *n, const struct sl_node_key *k);

/* sl_acceptor_is_over() says whether a grant is known to have ended;
 * sl_acceptor_is_released() says whether its holder released it. */
bool sl_acceptor_is_over(const struct sl_node_key *k, sl_fence fence);
bool sl_acceptor_is_released(const struct sl_node_key *k, sl_fence fence);

#endif /* SL_MAJORITY_ACCEPTOR_H */
