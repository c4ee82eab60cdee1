/* acceptor.h - the acceptor of a node: it records at most one lease of a key, and votes. */
#ifndef SL_MAJORITY_ACCEPTOR_H
#define SL_MAJORITY_ACCEPTOR_H

#include "majority/node_internal.h"

/* --- acceptor.c ------------------------------------------------------------------- */

void sl_acceptor_receive(struct sl_node *n, struct sl_now now, sl_node_id from,
                         const struct sl_message *m);

/* Whether a stealing request of another owner keeps this one out. */
bool sl_acceptor_is_reserved(const struct sl_node_key *k, struct sl_attempt_id owner,
                             int32_t priority);

/* --- acceptor_lease.c ------------------------------------------------------------- */

/* Expire what of this key has expired by now. */
void sl_acceptor_settle(struct sl_node *n, struct sl_now now, struct sl_node_key *k);
void sl_acceptor_tick(struct sl_node *n, struct sl_now now);

/* Record a lease. False: out of memory, and nothing has changed. */
bool sl_acceptor_record(struct sl_node *n, struct sl_now now, struct sl_node_key *k,
                        const struct sl_message *m, bool overlapping);
bool sl_acceptor_set_texts(struct sl_node *n, struct sl_node_lease *l,
                           const struct sl_message *m);

/* The recorded lease is known to be a grant. */
void sl_acceptor_agree(struct sl_node *n, struct sl_now now, struct sl_node_key *k,
                       bool overlapping);

/* Move the lease to `overlapped`, for a stealing request that enters; and back, when that one
 * has ended. False: out of memory; there was none that still runs. */
bool sl_acceptor_set_aside(struct sl_node *n, struct sl_node_key *k);
bool sl_acceptor_restore(struct sl_node *n, struct sl_now now, struct sl_node_key *k);

/* End the lease. If it was not given up, it may have been a grant. */
void sl_acceptor_end_lease(struct sl_node *n, struct sl_now now, struct sl_node_key *k,
                           bool given_up);
void sl_acceptor_end_reservation(struct sl_node *n, struct sl_now now,
                                 struct sl_node_key *k);

/* A lease counts as long as the longest that was voted for under its fence. */
void sl_acceptor_count_length(struct sl_node *n, struct sl_node_lease *l,
                              sl_ms lease_ms);

/* The length of the longest lease that runs here, or is expected. */
sl_ms sl_acceptor_longest_lease(const struct sl_node *n, struct sl_now now);

/* --- acceptor_teach.c ------------------------------------------------------------- */

void sl_acceptor_receive_teach(struct sl_node *n, struct sl_now now, sl_node_id from,
                               const struct sl_message *m);

/* A node has taught all that it knows. */
void sl_acceptor_receive_taught(struct sl_node *n, struct sl_now now, sl_node_id from,
                                const struct sl_message *m);

/* An attempt was given up: take over the lease that was agreed meanwhile, if any. */
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
/* Publish the expiry of a copied lease that expired here, since no extension was reported:
 * the key is forgotten now, or a later lease of it is agreed. */
void sl_acceptor_publish_lapse(struct sl_node *n, struct sl_now now,
                               struct sl_node_key *k);
/* A stealing request overlaps the lease in `overlapped`. */
void sl_acceptor_publish_stolen(struct sl_node *n, const struct sl_node_key *k);

/* Whether a grant is known to have ended, and whether its holder released it. */
bool sl_acceptor_is_over(const struct sl_node_key *k, sl_fence fence);
bool sl_acceptor_is_released(const struct sl_node_key *k, sl_fence fence);

#endif /* SL_MAJORITY_ACCEPTOR_H */
