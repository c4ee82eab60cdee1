/* node_acquisition.c - what a node remembers about acquisitions with a REQUEST id that have
 * no lease here: those that have ended, and those whose client left while they waited. */
#include <stdlib.h>
#include <string.h>

#include "majority/node_internal.h"

/* What identifies an acquisition. */
struct acquisition_name {
    struct sl_bytes key, request;
};

static uint64_t hash_of(const struct sl_index *x, const struct acquisition_name *n)
{
    return sl_hash(x->key, n->key.at, n->key.n) ^
           sl_hash_u64(sl_hash(x->key, n->request.at, n->request.n), x->seed);
}

static struct acquisition_name name_of(const struct sl_node_acquisition *a)
{
    return (struct acquisition_name){{a->text, a->key_n},
                                     {a->text + a->key_n, a->request_n}};
}

static uint64_t hash_acquisition(const void *item, const struct sl_index *x)
{
    const struct acquisition_name n = name_of(item);
    return hash_of(x, &n);
}

static bool same_acquisition(const void *item, struct sl_bytes key)
{
    const struct acquisition_name n = name_of(item), *other = (const void *)key.at;
    return sl_bytes_equal(n.key, other->key) &&
           sl_bytes_equal(n.request, other->request);
}

static const struct sl_index_kind kind = {.hash = hash_acquisition,
                                          .same = same_acquisition};

static size_t bytes_of(const struct sl_node_acquisition *a)
{
    return sizeof *a + a->key_n + a->request_n;
}

struct sl_node_acquisition *sl_node_acquisition_find(
    const struct sl_node_acquisitions *s, struct sl_bytes key, struct sl_bytes request)
{
    const struct acquisition_name n = {key, request};
    if (request.n == 0 || s->index.count == 0) return NULL;
    return sl_index_find(&s->index, (struct sl_bytes){(const char *)&n, sizeof n},
                         hash_of(&s->index, &n));
}

struct sl_node_acquisition *sl_node_acquisition_keep(struct sl_node *n,
                                                     struct sl_node_acquisitions *s,
                                                     struct sl_bytes key,
                                                     struct sl_bytes request,
                                                     sl_ms until_ms)
{
    struct sl_node_acquisition *a = sl_node_acquisition_find(s, key, request);
    if (a == NULL) {
        if (sl_index_reserve(&s->index) != SLUICE_OK) return NULL;
        a = sl_node_block_new(n, sizeof *a + key.n + request.n);
        if (a == NULL) return NULL;
        a->key_n = (uint32_t)key.n;
        a->request_n = (uint32_t)request.n;
        memcpy(a->text, key.at, key.n);
        memcpy(a->text + key.n, request.at, request.n);
        sl_list_init(&a->link);
        sl_index_put(&s->index, a, hash_acquisition(a, &s->index));
    }
    a->until_ms = until_ms;
    sl_list_remove(&a->link);
    sl_list_append(&s->list, &a->link);
    return a;
}

void sl_node_acquisition_forget(struct sl_node *n, struct sl_node_acquisitions *s,
                                struct sl_node_acquisition *a)
{
    sl_list_remove(&a->link);
    sl_index_remove(&s->index, a, hash_acquisition(a, &s->index));
    sl_node_block_free(n, a, bytes_of(a));
}

void sl_node_acquisition_forget_oldest(struct sl_node *n,
                                       struct sl_node_acquisitions *s)
{
    if (sl_list_empty(&s->list)) return;
    sl_node_acquisition_forget(
        n, s, sl_container_of(s->list.next, struct sl_node_acquisition, link));
}

/* How many to forget in one iteration of the server's event loop. */
#define FORGOTTEN_PER_TICK 1000

static void tick(struct sl_node *n, struct sl_now now, struct sl_node_acquisitions *s)
{
    for (int i = 0; i < FORGOTTEN_PER_TICK && !sl_list_empty(&s->list); i++) {
        struct sl_node_acquisition *a = sl_container_of(
            s->list.next, struct sl_node_acquisition, link);
        if (now.ms < a->until_ms) return;
        sl_node_acquisition_forget(n, s, a);
    }
}

void sl_node_acquisitions_tick(struct sl_node *n, struct sl_now now)
{
    sl_index_step(&n->ended.index);
    sl_index_step(&n->absent.index);
    tick(n, now, &n->ended);
    tick(n, now, &n->absent);
}

void sl_node_acquisitions_init(struct sl_node *n, struct sl_hash_key hash_key)
{
    struct sl_node_acquisitions *all[] = {&n->ended, &n->absent};
    for (size_t i = 0; i < 2; i++) {
        sl_index_init(&all[i]->index, &kind, hash_key);
        sl_list_init(&all[i]->list);
    }
}

void sl_node_acquisitions_free(struct sl_node *n)
{
    struct sl_node_acquisitions *all[] = {&n->ended, &n->absent};
    for (size_t i = 0; i < 2; i++) {
        sl_index_empty(&all[i]->index, free);
        sl_index_free(&all[i]->index);
    }
}
