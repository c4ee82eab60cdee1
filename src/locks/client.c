/* client.c - the names and addresses of clients, shared by their grants. */
#include "locks/client.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

static uint64_t hash_of(const void *item, const struct sl_index *x)
{
    const struct sl_client *c = item;
    return sl_hash(x->key, c->text, (size_t)c->name_bytes + c->address_bytes) ^
           sl_hash_u64(c->origin, x->seed);
}

/* Compare a client with the client that `key` points to. */
static bool same(const void *item, struct sl_bytes key)
{
    const struct sl_client *a = item, *b = (const void *)key.at;
    return a->origin == b->origin && a->name_bytes == b->name_bytes &&
           a->address_bytes == b->address_bytes &&
           memcmp(a->text, b->text, (size_t)a->name_bytes + a->address_bytes) == 0;
}

static const struct sl_index_kind shared = {.hash = hash_of, .same = same};

void sl_clients_init(struct sl_clients *cs, struct sl_hash_key key)
{
    *cs = (struct sl_clients){0};
    sl_list_init(&cs->all);
    sl_index_init(&cs->shared, &shared, key);
}

void sl_clients_free(struct sl_clients *cs)
{
    while (!sl_list_empty(&cs->all)) {
        struct sl_client *c = sl_container_of(cs->all.next, struct sl_client, all);
        sl_list_remove(&c->all);
        free(c);
    }
    sl_index_free(&cs->shared);
}

size_t sl_clients_bytes(const struct sl_clients *cs)
{
    return cs->count * (sizeof(struct sl_client) + SL_MALLOC_BYTES) + cs->text_bytes +
           sl_index_bytes(&cs->shared);
}

static struct sl_bytes at_most(struct sl_bytes b, size_t n)
{
    return (struct sl_bytes){b.at, b.n < n ? b.n : n};
}

static struct sl_client *make(uint64_t session_id, uint64_t origin,
                              struct sl_bytes name, struct sl_bytes address)
{
    name = at_most(name, SL_CLIENT_NAME_MAX);
    address = at_most(address, SL_CLIENT_ADDRESS_MAX);
    struct sl_client *c = malloc(sizeof *c + name.n + address.n);
    if (c == NULL) return NULL;
    *c = (struct sl_client){.session_id = session_id,
                            .origin = origin,
                            .refs = 1,
                            .name_bytes = (uint8_t)name.n,
                            .address_bytes = (uint8_t)address.n};
    if (name.n > 0) memcpy(c->text, name.at, name.n);
    if (address.n > 0) memcpy(c->text + name.n, address.at, address.n);
    return c;
}

struct sl_client *sl_client_get(struct sl_clients *cs, uint64_t session_id,
                                uint64_t origin, struct sl_bytes name,
                                struct sl_bytes address)
{
    struct sl_client *c = make(session_id, origin, name, address);
    if (c == NULL) return NULL;
    if (session_id == 0) {
        uint64_t hash = hash_of(c, &cs->shared);
        struct sl_client *old = sl_index_find(
            &cs->shared, (struct sl_bytes){(const char *)c, sizeof *c}, hash);
        if (old != NULL || sl_index_reserve(&cs->shared) != 0) {
            free(c);
            return sl_client_ref(old);
        }
        sl_index_put(&cs->shared, c, hash);
    }
    c->of = cs;
    sl_list_append(&cs->all, &c->all);
    cs->count++;
    cs->text_bytes += (size_t)c->name_bytes + c->address_bytes;
    return c;
}

void sl_client_unref(struct sl_client *c)
{
    if (c == NULL) return;
    struct sl_clients *cs = c->of;
    assert(c->refs > 0);
    if (--c->refs > 0) return;
    if (c->session_id == 0) sl_index_remove(&cs->shared, c, hash_of(c, &cs->shared));
    cs->count--;
    cs->text_bytes -= (size_t)c->name_bytes + c->address_bytes;
    sl_list_remove(&c->all);
    free(c);
}
