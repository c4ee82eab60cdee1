/* node_memory.c - allocates the memory of a node, and counts every byte. */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "majority/node_internal.h"

void *sl_node_block_new(struct sl_node *n, size_t bytes)
{
    void *block = calloc(1, bytes);
    if (block != NULL) n->block_bytes += bytes + SL_MALLOC_BYTES;
    return block;
}

void sl_node_block_free(struct sl_node *n, void *block, size_t bytes)
{
    if (block == NULL) return;
    assert(n->block_bytes >= bytes + SL_MALLOC_BYTES);
    n->block_bytes -= bytes + SL_MALLOC_BYTES;
    free(block);
}

struct sl_node_text *sl_node_text_new(struct sl_node *n, struct sl_bytes b)
{
    if (b.n == 0) return NULL;
    struct sl_node_text *t = sl_node_block_new(n, sizeof *t + b.n);
    if (t == NULL) return NULL;
    t->n = b.n;
    memcpy(t->at, b.at, b.n);
    return t;
}

void sl_node_text_free(struct sl_node *n, struct sl_node_text *t)
{
    if (t != NULL) sl_node_block_free(n, t, sizeof *t + t->n);
}

bool sl_node_text_set(struct sl_node *n, struct sl_node_text **t, struct sl_bytes b)
{
    struct sl_node_text *text = sl_node_text_new(n, b);
    if (b.n > 0 && text == NULL) return false;
    sl_node_text_free(n, *t);
    *t = text;
    return true;
}

void sl_node_put_message(char *at, struct sl_message *m)
{
    at = sl_node_put_bytes(at, &m->key);
    at = sl_node_put_bytes(at, &m->value);
    at = sl_node_put_bytes(at, &m->note);
    at = sl_node_put_bytes(at, &m->client);
    sl_node_put_bytes(at, &m->request);
}

char *sl_node_put_bytes(char *at, struct sl_bytes *b)
{
    if (b->n == 0) {
        *b = (struct sl_bytes){NULL, 0};
        return at;
    }
    memcpy(at, b->at, b->n);
    b->at = at;
    return at + b->n;
}
