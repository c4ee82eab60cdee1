/* members.h - lists of nodes. */
#ifndef SL_MAJORITY_MEMBERSHIP_H
#define SL_MAJORITY_MEMBERSHIP_H

#include "majority/message.h"

/* The place of a node in a list, or -1. */
int sl_membership_find(const struct sl_membership *l, sl_node_id id);

/* How many of a list are a majority. */
uint32_t sl_membership_majority(const struct sl_membership *l);

bool sl_membership_equal(const struct sl_membership *a, const struct sl_membership *b);

/* The list with one more, or without one. False: it is there already, or not there; it is
 * full, or the last one; that is no id or no address. *why says so. */
bool sl_membership_add(const struct sl_membership *l, sl_node_id id,
                       const char *address, struct sl_membership *out,
                       const char **why); /* Without a birth. */
bool sl_membership_remove(const struct sl_membership *l, sl_node_id id,
                          struct sl_membership *out, const char **why);

/* Whether b may follow a: one version later, by one node. */
bool sl_membership_follow(const struct sl_membership *a, const struct sl_membership *b);

/* a is smaller: -1; equal: 0; larger: 1. */
int sl_ballot_compare(struct sl_ballot a, struct sl_ballot b);

#endif /* SL_MAJORITY_MEMBERSHIP_H */
