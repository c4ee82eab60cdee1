/* waits.h - groups of waits, ordered by the start of the oldest wait of each group.
 *
 * A lock is a group, and its waiters are the waits. LOCKS WAITED lists groups from the longest wait
 * on, a page at a time. The structs stand in those of the owner, so nothing here allocates memory.
 * Adding or removing a wait takes time in proportion to the logarithm of the number of waits. */
#ifndef SL_BASE_WAITS_H
#define SL_BASE_WAITS_H

#include "base/tree.h"

struct sl_waits {
    struct sl_tree_node *groups; /* Those that have waits. */
    uint64_t seed;               /* A random number, always the same one. */
};

/* All zero: it has no waits. */
struct sl_wait_group {
    struct sl_tree_node by_age;
    struct sl_tree_node *waits;
    struct sl_wait *oldest; /* NULL: it has no waits. */
};

struct sl_wait {
    struct sl_tree_node by_age;
    sl_ms since_ms;  /* Older waits come first, */
    uint64_t number; /* then those with a lower number, which is unique. */
};

/* Set since_ms and number before, and do not change them while the wait is in a group. */
void sl_waits_add(struct sl_waits *w, struct sl_wait_group *g, struct sl_wait *wait);
void sl_waits_remove(struct sl_waits *w, struct sl_wait_group *g, struct sl_wait *wait);

/* The group with the oldest wait after this cursor, and its own cursor; 0: from the start. NULL:
 * there is none. */
struct sl_wait_group *sl_waits_after(const struct sl_waits *w, uint64_t *cursor);

/* Aborts if the group is not where its oldest wait belongs. Returns how many waits it has. */
size_t sl_wait_group_check(const struct sl_waits *w, const struct sl_wait_group *g);

#endif /* SL_BASE_WAITS_H */
