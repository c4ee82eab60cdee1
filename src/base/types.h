/* types.h - the words of the pure folders: time, fences, bytes, lists. */
#ifndef SL_BASE_TYPES_H
#define SL_BASE_TYPES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Milliseconds of a clock that never steps. */
typedef int64_t sl_ms;
#define SL_NEVER INT64_MAX

/* Adds without passing SL_NEVER. */
static inline sl_ms sl_ms_after(sl_ms t, sl_ms d)
{
    return d >= SL_NEVER - t ? SL_NEVER : t + d;
}

/* A number that rises with every grant: microseconds of a hybrid clock. Below 2^53,
 * since JavaScript, Lua and many readers of JSON round above that. */
typedef uint64_t sl_fence;
#define SL_FENCE_MAX ((1ull << 53) - 1)

/* A clock beyond this, in the year 2112, is not believed: from wherever it jumps to there
 * must be fences left to count on. */
#define SL_WALL_US_MAX (SL_FENCE_MAX / 2)

/* What time it is. Every change is told. */
struct sl_now {
    sl_ms ms;         /* Since boot, say: it never steps. */
    uint64_t wall_us; /* Since 1970; may step. For fences, which do not. */
};

/* Bytes of somebody else's. */
struct sl_bytes {
    const char *at;
    size_t n;
};

/* A ring: the head is an element too, and alone when the list is empty. */
struct sl_list {
    struct sl_list *next, *prev;
};

#define sl_container_of(node, type, member) \
    ((type *)(void *)((char *)(node)-offsetof(type, member)))

static inline void sl_list_init(struct sl_list *l)
{
    l->next = l->prev = l;
}

static inline bool sl_list_empty(const struct sl_list *l)
{
    return l->next == l;
}

/* At the end, seen from the head. */
static inline void sl_list_append(struct sl_list *head, struct sl_list *node)
{
    node->prev = head->prev;
    node->next = head;
    head->prev->next = node;
    head->prev = node;
}

/* Also of one that is in no list. */
static inline void sl_list_remove(struct sl_list *node)
{
    node->prev->next = node->next;
    node->next->prev = node->prev;
    sl_list_init(node);
}

/* What malloc adds to a block, about. */
#define SL_MALLOC_BYTES 16u

#endif /* SL_BASE_TYPES_H */
