/* members.h - lists of nodes. */
#ifndef SL_LEASE_MEMBERS_H
#define SL_LEASE_MEMBERS_H

#include "lease/message.h"

/* The place of a node in a list, or -1. */
int sl_members_find(const struct sl_members *l, sl_node_id id);

/* How many of a list are a majority. */
uint32_t sl_members_majority(const struct sl_members *l);

bool sl_members_equal(const struct sl_members *a, const struct sl_members *b);

/* The list with one more, or without one. False: it is there already, or not there; it is
 * full, or the last one; that is no id or no address. *why says so. */
bool sl_members_add(const struct sl_members *l, sl_node_id id, const char *address,
                    struct sl_members *out, const char **why); /* Without a birth. */
bool sl_members_remove(const struct sl_members *l, sl_node_id id,
                       struct sl_members *out, const char **why);

/* Whether b may follow a: one version later, by one node. */
bool sl_members_follow(const struct sl_members *a, const struct sl_members *b);

/* a is smaller: -1; equal: 0; larger: 1. */
int sl_ballot_compare(struct sl_ballot a, struct sl_ballot b);

#endif /* SL_LEASE_MEMBERS_H */
