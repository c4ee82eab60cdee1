/* node_key.c - the state of a key, and when something about it is due. */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "majority/acceptor.h"

static uint64_t hash_key(const void *item, const struct sl_index *x)
{
    const struct sl_node_key *k = item;
    return sl_hash(x->key, k->key, k->key_n);
}

static bool same_key(const void *item, struct sl_bytes key)
{
    const struct sl_node_key *k = item;
    return k->key_n == key.n && memcmp(k->key, key.at, key.n) == 0;
}

static const struct sl_index_kind keys_kind = {.hash = hash_key, .same = same_key};

struct sl_node_key *sl_node_key_find(const struct sl_node *n, struct sl_bytes key)
{
    return sl_index_find(&n->keys, key, sl_hash(n->keys.key, key.at, key.n));
}

static struct sl_node_key *make_key(struct sl_node *n, struct sl_now now,
                                    struct sl_bytes key)
{
    uint32_t out = (uint32_t)n->keys.count - n->key_timers.count;
    assert(key.n > 0);
    if (sl_index_reserve(&n->keys) != SLUICE_OK ||
        sl_heap_reserve(&n->key_timers, out + 1) != SLUICE_OK)
        return NULL;
    struct sl_node_key *k = sl_node_block_new(n, sizeof *k + key.n);
    if (k == NULL) return NULL;
    sl_list_init(&k->waiters);
    sl_list_init(&k->watchers);
    sl_list_init(&k->changed);
    k->timer = SL_HEAP_NONE;
    k->idle_ms = now.ms;
    k->lease.asked_ms = -1;
    k->key_n = (uint32_t)key.n;
    memcpy(k->key, key.at, key.n);
    sl_index_put(&n->keys, k, hash_key(k, &n->keys));
    sl_node_key_changed(n, k);
    sl_node_key_schedule(n, k);
    return k;
}

struct sl_node_key *sl_node_key_get(struct sl_node *n, struct sl_now now,
                                    struct sl_bytes key, int *status)
{
    struct sl_node_key *k = sl_node_key_find(n, key);
    *status = SLUICE_OK;
    if (k != NULL) return k;
    assert(key.n <= n->limits.key_bytes_max);
    *status = SLUICE_EKEYS;
    if (n->keys.count >= n->limits.keys_max) return NULL;
    *status = SLUICE_ENOMEM;
    k = make_key(n, now, key);
    if (k != NULL) *status = SLUICE_OK;
    return k;
}

struct sl_node_key *sl_node_key_restore(struct sl_node *n, struct sl_now now,
                                        struct sl_bytes key)
{
    struct sl_node_key *k = sl_node_key_find(n, key);
    return k != NULL ? k : make_key(n, now, key);
}

void sl_node_lease_clear(struct sl_node *n, struct sl_node_lease *l)
{
    sl_node_text_free(n, l->value);
    sl_node_text_free(n, l->note);
    sl_node_text_free(n, l->client);
    sl_node_text_free(n, l->request);
    *l = (struct sl_node_lease){.asked_ms = -1};
}

void sl_node_lease_free(struct sl_node *n, struct sl_node_lease **l)
{
    if (*l == NULL) return;
    if ((*l)->length > 0) n->lengths[(*l)->length - 1]--;
    sl_node_lease_clear(n, *l);
    sl_node_block_free(n, *l, sizeof **l);
    *l = NULL;
}

void sl_node_key_free(struct sl_node *n, struct sl_now now, struct sl_node_key *k)
{
    assert(k->request_count == 0 && k->deferred_count == 0);
    assert(!k->lease.live && !k->reserved.live);
    sl_acceptor_publish_lapse(n, now, k);
    sl_node_record_forgotten(n, k);
    if (k->timer != SL_HEAP_NONE) sl_heap_remove(&n->key_timers, k->timer);
    if (k->seen_fence > n->floor) n->floor = k->seen_fence;
    sl_node_lease_clear(n, &k->lease);
    sl_node_lease_free(n, &k->overlapped);
    sl_node_lease_free(n, &k->learned);
    sl_index_remove(&n->keys, k, hash_key(k, &n->keys));
    sl_node_block_free(n, k, sizeof *k + k->key_n);
}

sl_ms sl_node_key_due(const struct sl_node *n, const struct sl_node_key *k)
{
    sl_ms due = SL_NEVER;
    if (k->lease.live) due = k->lease.end_ms;
    if (k->reserved.live && k->reserved.end_ms < due) due = k->reserved.end_ms;
    if (due != SL_NEVER || k->request_count > 0 || k->deferred_count > 0) return due;
    bool unused = k->seen_fence == 0 && k->past_fence == 0 && k->report_next == 0;
    if (unused) return k->idle_ms;
    return sl_node_max_ms(sl_ms_after(k->idle_ms, n->limits.forget_ms),
                          k->overlaps_until_ms);
}

void sl_node_key_schedule(struct sl_node *n, struct sl_node_key *k)
{
    sl_ms due = sl_node_key_due(n, k);
    if (k->timer != SL_HEAP_NONE && due == SL_NEVER)
        sl_heap_remove(&n->key_timers, k->timer);
    else if (k->timer != SL_HEAP_NONE) sl_heap_move(&n->key_timers, k->timer, due);
    else if (due != SL_NEVER) sl_heap_put(&n->key_timers, due, k);
}

static void timer_moved(void *owner, uint32_t place)
{
    ((struct sl_node_key *)owner)->timer = place;
}

void sl_node_keys_init(struct sl_node *n, struct sl_hash_key secret)
{
    sl_index_init(&n->keys, &keys_kind, secret);
    sl_heap_init(&n->key_timers, timer_moved);
}

/* Free a key without counting, because the node is freed as well. */
static void free_key(void *item)
{
    struct sl_node_key *k = item;
    free(k->lease.value);
    free(k->lease.note);
    free(k->lease.client);
    free(k->lease.request);
    struct sl_node_lease *others[] = {k->overlapped, k->learned};
    for (size_t i = 0; i < 2; i++) {
        if (others[i] == NULL) continue;
        free(others[i]->value);
        free(others[i]->note);
        free(others[i]->client);
        free(others[i]->request);
        free(others[i]);
    }
    free(k);
}

void sl_node_keys_free(struct sl_node *n)
{
    sl_index_empty(&n->keys, free_key);
    sl_index_free(&n->keys);
    sl_heap_free(&n->key_timers);
}
