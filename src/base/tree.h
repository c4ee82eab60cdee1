/* tree.h - an intrusive ordered tree: its nodes are members of the structs that it
 * orders.
 *
 * The tree is a treap: a search tree by `before`, and a heap by hashes that clients
 * cannot guess. So it allocates no memory, and its depth is that of a random tree,
 * whatever clients do. */
#ifndef SL_BASE_TREE_H
#define SL_BASE_TREE_H

#include "base/types.h"

struct sl_tree_node {
    struct sl_tree_node *left, *right;
};

struct sl_tree_kind {
    bool (*before)(const struct sl_tree_node *a,
                   const struct sl_tree_node *b);     /* A strict order. */
    uint64_t (*number)(const struct sl_tree_node *n); /* Unique for each node. */
};

/* sl_tree_put() adds a node; sl_tree_remove() removes a node, which must be in the
 * tree. Choose a random seed for each tree, and pass the same seed in every call. */
void sl_tree_put(struct sl_tree_node **root, struct sl_tree_node *n,
                 const struct sl_tree_kind *kind, uint64_t seed);
void sl_tree_remove(struct sl_tree_node **root, struct sl_tree_node *n,
                    const struct sl_tree_kind *kind,
                    uint64_t seed); /* n must be in the tree. */

struct sl_tree_node *sl_tree_first(
    struct sl_tree_node *root); /* NULL if the tree is empty. */
struct sl_tree_node *sl_tree_last(struct sl_tree_node *root);

/* Returns the node after n, which must be in the tree, or NULL if n is the last. */
struct sl_tree_node *sl_tree_after(struct sl_tree_node *root,
                                   const struct sl_tree_node *n,
                                   const struct sl_tree_kind *kind);

#endif /* SL_BASE_TREE_H */
