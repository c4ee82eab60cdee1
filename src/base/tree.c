/* tree.c - a treap. */
#include "base/tree.h"

#include "base/hash.h"

static uint64_t rank_of(const struct sl_tree_node *n, const struct sl_tree_kind *kind,
                        uint64_t seed)
{
    return sl_hash_u64(kind->number(n), seed);
}

void sl_tree_put(struct sl_tree_node **at, struct sl_tree_node *n,
                 const struct sl_tree_kind *kind, uint64_t seed)
{
    uint64_t rank = rank_of(n, kind, seed);
    while (*at != NULL && rank_of(*at, kind, seed) >= rank)
        at = kind->before(*at, n) ? &(*at)->right : &(*at)->left;
    /* Split the old subtree into the nodes before n and the nodes after n. */
    struct sl_tree_node *below = *at, **left = &n->left, **right = &n->right;
    *at = n;
    while (below != NULL) {
        struct sl_tree_node ***side = kind->before(below, n) ? &left : &right;
        struct sl_tree_node **inner = side == &left ? &below->right : &below->left;
        **side = below;
        *side = inner;
        below = *inner;
    }
    *left = *right = NULL;
}

void sl_tree_remove(struct sl_tree_node **at, struct sl_tree_node *n,
                    const struct sl_tree_kind *kind, uint64_t seed)
{
    while (*at != n) at = kind->before(*at, n) ? &(*at)->right : &(*at)->left;
    struct sl_tree_node *a = n->left, *b = n->right;
    while (a != NULL && b != NULL) {
        if (rank_of(a, kind, seed) >= rank_of(b, kind, seed)) {
            *at = a;
            at = &a->right;
            a = a->right;
        } else {
            *at = b;
            at = &b->left;
            b = b->left;
        }
    }
    *at = a != NULL ? a : b;
    n->left = n->right = NULL;
}

struct sl_tree_node *sl_tree_first(struct sl_tree_node *n)
{
    while (n != NULL && n->left != NULL) n = n->left;
    return n;
}

struct sl_tree_node *sl_tree_last(struct sl_tree_node *n)
{
    while (n != NULL && n->right != NULL) n = n->right;
    return n;
}

struct sl_tree_node *sl_tree_after(struct sl_tree_node *root,
                                   const struct sl_tree_node *n,
                                   const struct sl_tree_kind *kind)
{
    struct sl_tree_node *found = NULL;
    while (root != NULL) {
        if (kind->before(n, root)) {
            found = root;
            root = root->left;
        } else root = root->right;
    }
    return found;
}
