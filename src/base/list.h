/* list.h - a doubly linked list whose nodes stand in the structs that it links.
 *
 * The list is a ring. Its head is a node too: the only one when the list is empty. */
#ifndef SL_BASE_LIST_H
#define SL_BASE_LIST_H

#include <stdbool.h>
#include <stddef.h>

struct sl_list {
    struct sl_list *next, *prev;
};

/* The struct in which a node stands. */
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

/* Puts a node before the head, that is, at the end of the list. With another node for a
 * head, puts it before that node. */
static inline void sl_list_append(struct sl_list *head, struct sl_list *node)
{
    node->prev = head->prev;
    node->next = head;
    head->prev->next = node;
    head->prev = node;
}

/* The node may be in no list. */
static inline void sl_list_remove(struct sl_list *node)
{
    node->prev->next = node->next;
    node->next->prev = node->prev;
    sl_list_init(node);
}

#endif /* SL_BASE_LIST_H */
