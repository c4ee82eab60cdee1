/* waits.h - groups of waits, ordered by the start of the oldest wait in each group.
 *
 * A lock is a group, and its waiters are the waits. LOCKS WAITED lists the groups in
 * pages, longest wait first. The structs are members of the caller's structs, so
 * nothing here allocates memory. Adding or removing a wait takes O(log n) time for n
 * waits. */
#ifndef SL_BASE_WAITS_H
#define SL_BASE_WAITS_H

#include "base/tree.h"

struct sl_waits {
    struct sl_tree_node *groups; /* The groups that have waits. */
    uint64_t seed;               /* Random; never changes. */
};

/* A group that is all zero has no waits. */
struct sl_wait_group {
    struct sl_tree_node by_age;
    struct sl_tree_node *waits;
    struct sl_wait *oldest; /* NULL: no waits. */
};

struct sl_wait {
    struct sl_tree_node by_age;
    sl_ms since_ms;  /* When the wait began. Older waits come first. */
    uint64_t number; /* Unique. Orders waits that began at the same time. */
};

/* Add a wait to a group, or remove it. Set since_ms and number before you add the
 * wait, and do not change them while the wait is in a group. */
void sl_waits_add(struct sl_waits *w, struct sl_wait_group *g, struct sl_wait *wait);
void sl_waits_remove(struct sl_waits *w, struct sl_wait_group *g, struct sl_wait *wait);

/* Returns the first group after *cursor, in the order of their oldest waits, and
 * sets *cursor to that group. Set *cursor to 0 to start. Returns NULL if there are
 * no more groups. */
struct sl_wait_group *sl_waits_after(const struct sl_waits *w, uint64_t *cursor);

/* Abort if the group is not at the position of its oldest wait. Returns the number
 * of waits in the group. */
size_t sl_wait_group_check(const struct sl_waits *w, const struct sl_wait_group *g);

#endif /* SL_BASE_WAITS_H */
