/* list.h - an intrusive doubly linked list: its nodes are members of the linked
 * structs.
 *
 * The list is a ring. Its head is also a node, and is the only node of an empty
 * list. */
#ifndef SL_BASE_LIST_H
#define SL_BASE_LIST_H

#include <stdbool.h>
#include <stddef.h>

struct sl_list {
    struct sl_list *next, *prev;
};

/* Returns the struct that contains a node. */
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

/* Insert a node before the head, that is, at the end of the list. If `head` is
 * another node of the list, the new node is inserted before that node. */
static inline void sl_list_append(struct sl_list *head, struct sl_list *node)
{
    node->prev = head->prev;
    node->next = head;
    head->prev->next = node;
    head->prev = node;
}

/* Remove a node from its list. Does nothing if the node is in no list. */
static inline void sl_list_remove(struct sl_list *node)
{
    node->prev->next = node->next;
    node->next->prev = node->prev;
    sl_list_init(node);
}

#endif /* SL_BASE_LIST_H */
