#include "locks/requests.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "sluice.h"

/* The maximum number of acquisitions that one call of sl_requests_expire() handles. */
#define EXPIRE_MAX 16u

/* The name of an acquisition, as sl_index_find() passes it to same_name(). */
struct name {
    uint32_t user;
    struct sl_bytes key, id;
};

static uint64_t hash_name(const struct sl_index *x, const struct name *n)
{
    uint64_t h = sl_hash(x->key, n->key.at, n->key.n) ^ n->user;
    const struct sl_hash_key key = {x->key.a ^ h, x->key.b};
    return sl_hash(key, n->id.at, n->id.n);
}

static struct name name_of(const struct sl_acquisition *a)
{
    return (struct name){a->user, sl_acquisition_key(a), sl_acquisition_id(a)};
}

static uint64_t hash_of(const void *item, const struct sl_index *x)
{
    const struct name n = name_of(item);
    return hash_name(x, &n);
}

static bool same_name(const void *item, struct sl_bytes key)
{
    const struct sl_acquisition *a = item;
    const struct name *n = (const void *)key.at;
    return a->user == n->user && sl_bytes_equal(sl_acquisition_key(a), n->key) &&
           sl_bytes_equal(sl_acquisition_id(a), n->id);
}

static const struct sl_index_kind acquisitions = {.hash = hash_of, .same = same_name};

void sl_requests_init(struct sl_requests *r, struct sl_hash_key key, sl_ms keep_ms)
{
    *r = (struct sl_requests){.keep_ms = keep_ms};
    sl_index_init(&r->index, &acquisitions, key);
    sl_list_init(&r->absent);
    sl_list_init(&r->ended);
}

void sl_requests_empty(struct sl_requests *r)
{
    sl_index_empty(&r->index, free);
    sl_list_init(&r->absent);
    sl_list_init(&r->ended);
    r->text_bytes = 0;
}

struct sl_acquisition *sl_requests_find(const struct sl_requests *r, uint32_t user,
                                        struct sl_bytes key, struct sl_bytes id)
{
    const struct name n = {user, key, id};
    const struct sl_bytes sought = {(const char *)&n, sizeof n};
    return sl_index_find(&r->index, sought, hash_name(&r->index, &n));
}

struct sl_acquisition *sl_requests_add(struct sl_requests *r, uint32_t user,
                                       struct sl_bytes key, struct sl_bytes id,
                                       uint64_t digest)
{
    assert(key.n <= UINT16_MAX && id.n > 0 && id.n <= SL_REQUEST_ID_MAX);
    struct sl_acquisition *a = malloc(sizeof *a + key.n + id.n);
    if (a == NULL || sl_index_reserve(&r->index) != SLUICE_OK) {
        free(a);
        return NULL;
    }
    *a = (struct sl_acquisition){.digest = digest,
                                 .user = user,
                                 .id_bytes = (uint8_t)id.n,
                                 .key_bytes = (uint16_t)key.n};
    memcpy(a->text, key.at, key.n);
    memcpy(a->text + key.n, id.at, id.n);
    sl_list_init(&a->joined);
    sl_list_init(&a->to_answer);
    sl_list_init(&a->in_list);
    sl_index_put(&r->index, a, hash_of(a, &r->index));
    r->text_bytes += key.n + id.n;
    return a;
}

/* Add to a list that is ordered by until_ms. */
static void remember(struct sl_list *list, struct sl_acquisition *a, sl_ms until_ms)
{
    struct sl_list *at = list->prev;
    while (at != list &&
           sl_container_of(at, struct sl_acquisition, in_list)->until_ms > until_ms)
        at = at->prev;
    a->until_ms = until_ms;
    sl_list_remove(&a->in_list);
    sl_list_append(at->next, &a->in_list);
}

void sl_requests_end(struct sl_requests *r, struct sl_acquisition *a, sl_ms now_ms)
{
    a->entry = NULL;
    a->ended = true;
    remember(&r->ended, a, sl_ms_after(now_ms, r->keep_ms));
}

void sl_requests_lose(struct sl_requests *r, struct sl_acquisition *a, sl_ms until_ms)
{
    assert(!a->ended);
    a->entry = NULL;
    remember(&r->absent, a, until_ms);
}

void sl_requests_revive(struct sl_acquisition *a)
{
    a->ended = a->cancelled = a->known = false;
    sl_list_remove(&a->in_list);
}

void sl_requests_forget(struct sl_requests *r, struct sl_acquisition *a)
{
    assert(sl_list_empty(&a->joined));
    sl_list_remove(&a->in_list);
    sl_list_remove(&a->to_answer);
    sl_index_remove(&r->index, a, hash_of(a, &r->index));
    r->text_bytes -= (size_t)a->key_bytes + a->id_bytes;
    free(a);
}

bool sl_requests_forget_oldest(struct sl_requests *r)
{
    if (sl_list_empty(&r->ended)) return false;
    struct sl_acquisition *a = sl_container_of(r->ended.next, struct sl_acquisition,
                                               in_list);
    if (!sl_list_empty(&a->joined))
        return false; /* The table must answer them first. */
    sl_requests_forget(r, a);
    return true;
}

/* Returns the first acquisition of a list if it is due, or NULL. */
static struct sl_acquisition *first_due(const struct sl_list *list, sl_ms now_ms)
{
    if (sl_list_empty(list)) return NULL;
    struct sl_acquisition *a = sl_container_of(list->next, struct sl_acquisition,
                                               in_list);
    return a->until_ms <= now_ms && sl_list_empty(&a->joined) ? a : NULL;
}

bool sl_requests_expire(struct sl_requests *r, sl_ms now_ms)
{
    for (unsigned i = 0; i < EXPIRE_MAX; i++) {
        struct sl_acquisition *a = first_due(&r->absent, now_ms);
        if (a != NULL) sl_requests_end(r, a, now_ms);
        else if ((a = first_due(&r->ended, now_ms)) != NULL) sl_requests_forget(r, a);
        else return i > 0;
    }
    return true;
}

sl_ms sl_requests_due(const struct sl_requests *r)
{
    const struct sl_list *lists[] = {&r->absent, &r->ended};
    sl_ms due = SL_NEVER;
    for (size_t i = 0; i < 2; i++) {
        if (sl_list_empty(lists[i])) continue;
        sl_ms until =
            sl_container_of(lists[i]->next, struct sl_acquisition, in_list)->until_ms;
        if (until < due) due = until;
    }
    return due;
}

size_t sl_requests_bytes(const struct sl_requests *r)
{
    return r->text_bytes + sl_index_bytes(&r->index) +
           r->index.count * (sizeof(struct sl_acquisition) + SL_MALLOC_BYTES);
}
