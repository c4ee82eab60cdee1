/* waits.c - groups of waits, as a tree of trees. */
#include "base/waits.h"

#include <assert.h>

static struct sl_wait *wait_of(const struct sl_tree_node *n)
{
    return sl_container_of(n, struct sl_wait, by_age);
}

static struct sl_wait_group *group_of(const struct sl_tree_node *n)
{
    return sl_container_of(n, struct sl_wait_group, by_age);
}

static bool is_older(const struct sl_wait *a, const struct sl_wait *b)
{
    return a->since_ms != b->since_ms ? a->since_ms < b->since_ms
                                      : a->number < b->number;
}

static bool wait_before(const struct sl_tree_node *a, const struct sl_tree_node *b)
{
    return is_older(wait_of(a), wait_of(b));
}

static bool group_before(const struct sl_tree_node *a, const struct sl_tree_node *b)
{
    return is_older(group_of(a)->oldest, group_of(b)->oldest);
}

static uint64_t wait_number(const struct sl_tree_node *n)
{
    return wait_of(n)->number;
}

static uint64_t group_number(const struct sl_tree_node *n)
{
    return group_of(n)->oldest->number;
}

static const struct sl_tree_kind waits = {wait_before, wait_number};
static const struct sl_tree_kind groups = {group_before, group_number};

/* Set the oldest wait of a group, which determines the position of the group in the
 * tree. */
static void set_oldest(struct sl_waits *w, struct sl_wait_group *g,
                       struct sl_wait *wait)
{
    if (g->oldest != NULL) sl_tree_remove(&w->groups, &g->by_age, &groups, w->seed);
    g->oldest = wait;
    if (wait != NULL) sl_tree_put(&w->groups, &g->by_age, &groups, w->seed);
}

void sl_waits_add(struct sl_waits *w, struct sl_wait_group *g, struct sl_wait *wait)
{
    sl_tree_put(&g->waits, &wait->by_age, &waits, w->seed);
    if (g->oldest == NULL || is_older(wait, g->oldest)) set_oldest(w, g, wait);
}

void sl_waits_remove(struct sl_waits *w, struct sl_wait_group *g, struct sl_wait *wait)
{
    sl_tree_remove(&g->waits, &wait->by_age, &waits, w->seed);
    if (g->oldest != wait) return;
    struct sl_tree_node *first = sl_tree_first(g->waits);
    set_oldest(w, g, first == NULL ? NULL : wait_of(first));
}

/* A cursor contains the start of the wait and the lowest bits of its number. The
 * start may be earlier than time 0 of the clock, so BEFORE_MS is added to it. */
#define NUMBER_BITS 22
#define BEFORE_MS ((sl_ms)1 << 40)

static uint64_t cursor_of(const struct sl_wait *wait)
{
    uint64_t ms = wait->since_ms < -BEFORE_MS ? 0
                                              : (uint64_t)(wait->since_ms + BEFORE_MS);
    return 1 + (ms << NUMBER_BITS | (wait->number & ((1u << NUMBER_BITS) - 1)));
}

struct sl_wait_group *sl_waits_after(const struct sl_waits *w, uint64_t *cursor)
{
    struct sl_wait_group *found = NULL;
    for (struct sl_tree_node *n = w->groups; n != NULL;) {
        bool after = cursor_of(group_of(n)->oldest) > *cursor;
        if (after) found = group_of(n);
        n = after ? n->left : n->right;
    }
    if (found != NULL) *cursor = cursor_of(found->oldest);
    return found;
}

size_t sl_wait_group_check(const struct sl_waits *w, const struct sl_wait_group *g)
{
    const struct sl_tree_node *n = w->groups;
    const struct sl_wait *last = NULL;
    size_t count = 0;
    assert((g->oldest == NULL) == (g->waits == NULL));
    if (g->oldest == NULL) return 0;
    while (n != NULL && n != &g->by_age)
        n = group_before(n, &g->by_age) ? n->right : n->left;
    assert(n != NULL && "a group with waits is where its oldest wait belongs");
    for (n = sl_tree_first(g->waits); n != NULL;
         n = sl_tree_after(g->waits, n, &waits)) {
        assert((last != NULL || wait_of(n) == g->oldest) &&
               "the first wait is the oldest");
        assert((last == NULL || is_older(last, wait_of(n))) && "waits are in order");
        last = wait_of(n);
        count++;
    }
    return count;
}
