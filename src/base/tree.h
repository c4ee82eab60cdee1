/* tree.h - things in an order, found by it: a treap whose nodes stand in the things.
 *
 * In order by what `before` says, and a heap by numbers that nobody can guess: so it needs
 * no memory of its own, and its depth is that of a random tree whatever peers do. */
#ifndef SL_BASE_TREE_H
#define SL_BASE_TREE_H

#include "base/types.h"

struct sl_tree_node {
    struct sl_tree_node *left, *right;
};

struct sl_tree_kind {
    bool (*before)(const struct sl_tree_node *a,
                   const struct sl_tree_node *b);     /* Strictly. */
    uint64_t (*number)(const struct sl_tree_node *n); /* Different for each. */
};

/* The seed is a random number that is always the same for a tree. */
void sl_tree_put(struct sl_tree_node **root, struct sl_tree_node *n,
                 const struct sl_tree_kind *kind, uint64_t seed);
void sl_tree_remove(struct sl_tree_node **root, struct sl_tree_node *n,
                    const struct sl_tree_kind *kind, uint64_t seed); /* It is there. */

struct sl_tree_node *sl_tree_first(
    struct sl_tree_node *root); /* NULL: the tree is empty. */
struct sl_tree_node *sl_tree_last(struct sl_tree_node *root);

/* The one behind a node that is there; NULL: it is the last. */
struct sl_tree_node *sl_tree_after(struct sl_tree_node *root,
                                   const struct sl_tree_node *n,
                                   const struct sl_tree_kind *kind);

#endif /* SL_BASE_TREE_H */
