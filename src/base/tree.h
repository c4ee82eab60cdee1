/* tree.h - an ordered tree whose nodes stand in the structs that it orders.
 *
 * It is a treap: ordered by `before`, and a heap by hashes that clients cannot guess. So it needs
 * no memory of its own, and it is as deep as a random tree, whatever clients do. */
#ifndef SL_BASE_TREE_H
#define SL_BASE_TREE_H

#include "base/types.h"

struct sl_tree_node {
    struct sl_tree_node *left, *right;
};

struct sl_tree_kind {
    bool (*before)(const struct sl_tree_node *a,
                   const struct sl_tree_node *b);     /* A strict order. */
    uint64_t (*number)(const struct sl_tree_node *n); /* Different for each. */
};

/* The seed is a random number, always the same one for a tree. */
void sl_tree_put(struct sl_tree_node **root, struct sl_tree_node *n,
                 const struct sl_tree_kind *kind, uint64_t seed);
void sl_tree_remove(struct sl_tree_node **root, struct sl_tree_node *n,
                    const struct sl_tree_kind *kind,
                    uint64_t seed); /* It is in the tree. */

struct sl_tree_node *sl_tree_first(
    struct sl_tree_node *root); /* NULL: the tree is empty. */
struct sl_tree_node *sl_tree_last(struct sl_tree_node *root);

/* The node after n, which is in the tree; NULL: n is the last. */
struct sl_tree_node *sl_tree_after(struct sl_tree_node *root,
                                   const struct sl_tree_node *n,
                                   const struct sl_tree_kind *kind);

#endif /* SL_BASE_TREE_H */
