/* membership.h - functions on memberships. struct sl_membership, the list of nodes
 * of a cluster, is in message.h. */
#ifndef SL_MAJORITY_MEMBERSHIP_H
#define SL_MAJORITY_MEMBERSHIP_H

#include "majority/message.h"

/* Returns the position of a node in a membership, or -1. */
int sl_membership_find(const struct sl_membership *l, sl_node_id id);

/* Returns how many nodes are a majority. */
uint32_t sl_membership_majority(const struct sl_membership *l);

bool sl_membership_equal(const struct sl_membership *a, const struct sl_membership *b);

/* Make a membership with one more node, whose birth is 0, or with one node less.
 * Returns false and sets *why if that is not possible. */
bool sl_membership_add(const struct sl_membership *l, sl_node_id id,
                       const char *address, struct sl_membership *out,
                       const char **why);
bool sl_membership_remove(const struct sl_membership *l, sl_node_id id,
                          struct sl_membership *out, const char **why);

/* Whether b may follow a: it is one version later, and has one node more or less. */
bool sl_membership_follow(const struct sl_membership *a, const struct sl_membership *b);

/* Whether a membership is well-formed: sorted by id, with addresses. */
bool sl_membership_is_valid(const struct sl_membership *l);

/* Returns -1 if a is smaller, 0 if they are equal, 1 if a is larger. */
int sl_ballot_compare(struct sl_ballot a, struct sl_ballot b);

#endif /* SL_MAJORITY_MEMBERSHIP_H */
