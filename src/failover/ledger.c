/* ledger.c - stores records of grants, by fence and by connection. */
#include "failover/ledger.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#define NEWEST_STEPS_MAX 1024u

static uint64_t hash_record(const void *item, const struct sl_index *x)
{
    return sl_hash_u64(((const struct sl_record *)item)->fence, x->seed);
}

static bool same_fence(const void *item, struct sl_bytes key)
{
    return memcmp(&((const struct sl_record *)item)->fence, key.at, key.n) == 0;
}

static const struct sl_index_kind records = {.hash = hash_record, .same = same_fence};

void sl_ledger_init(struct sl_ledger *l, struct sl_hash_key key)
{
    sl_index_init(&l->by_fence, &records, key);
    sl_list_init(&l->all);
}

struct sl_record *sl_ledger_find(const struct sl_ledger *l, sl_fence fence)
{
    const struct sl_bytes key = {(const char *)&fence, sizeof fence};
    return sl_index_find(&l->by_fence, key, sl_hash_u64(fence, l->by_fence.seed));
}

static size_t bytes_of(const struct sl_record *r)
{
    return sizeof *r + SL_MALLOC_BYTES + r->key.n + r->value.n + r->note.n + r->name.n +
           r->address.n + r->request.n;
}

void sl_ledger_take(struct sl_ledger *l, struct sl_record *r)
{
    assert((r->leased || l->unleased > 0) && l->bytes >= bytes_of(r));
    sl_index_remove(&l->by_fence, r, hash_record(r, &l->by_fence));
    sl_list_remove(&r->all);
    sl_list_remove(&r->of_conn);
    if (!r->leased) l->unleased--;
    l->bytes -= bytes_of(r);
}

void sl_ledger_drop(struct sl_ledger *l, struct sl_record *r)
{
    sl_ledger_take(l, r);
    free(r);
}

static struct sl_bytes copy(char **at, struct sl_bytes b)
{
    const struct sl_bytes out = {*at, b.n};
    if (b.n > 0) memcpy(*at, b.at, b.n);
    *at += b.n;
    return out;
}

bool sl_ledger_put(struct sl_ledger *l, const struct sl_record *r,
                   struct sl_list *of_conn)
{
    struct sl_record *old = sl_ledger_find(l, r->fence);
    const struct sl_record *client = old != NULL && r->address.n == 0 ? old : r;
    struct sl_record *n = malloc(sizeof *n + r->key.n + r->value.n + r->note.n +
                                 client->name.n + client->address.n + r->request.n);
    if (n == NULL || sl_index_reserve(&l->by_fence) != 0) {
        free(n);
        return false;
    }
    char *at = (char *)(n + 1);
    *n = *r;
    n->key = copy(&at, r->key);
    n->value = copy(&at, r->value);
    n->note = copy(&at, r->note);
    n->name = copy(&at, client->name);
    n->address = copy(&at, client->address);
    n->request = copy(&at, r->request);
    sl_list_init(&n->of_conn);
    if (old != NULL) {
        n->session = old->session;
        n->unanswered = n->unanswered && old->unanswered;
        /* A lease never becomes shorter, and the report of an earlier extension may arrive late. */
        if (old->leased && n->leased && old->end_ms > n->end_ms)
            n->end_ms = old->end_ms;
        if (old->leased && n->leased && old->sure_ms > n->sure_ms)
            n->sure_ms = old->sure_ms;
        if (!sl_list_empty(&old->of_conn)) sl_list_append(&old->of_conn, &n->of_conn);
        sl_ledger_drop(l, old);
    } else if (of_conn != NULL) sl_list_append(of_conn, &n->of_conn);
    sl_index_put(&l->by_fence, n, hash_record(n, &l->by_fence));
    sl_list_append(&l->all, &n->all);
    if (!n->leased) l->unleased++;
    l->bytes += bytes_of(n);
    return true;
}

struct sl_record *sl_ledger_newest(const struct sl_list *of_conn, struct sl_bytes key)
{
    struct sl_record *best = NULL;
    size_t left = NEWEST_STEPS_MAX;
    for (struct sl_list *n = of_conn->prev; n != of_conn && left > 0;
         n = n->prev, left--) {
        struct sl_record *r = sl_container_of(n, struct sl_record, of_conn);
        if (r->key.n == key.n && memcmp(r->key.at, key.at, key.n) == 0 &&
            (best == NULL || r->fence > best->fence))
            best = r;
    }
    return best;
}

bool sl_ledger_holds_unleased(const struct sl_list *of_conn)
{
    for (const struct sl_list *n = of_conn->next; n != of_conn; n = n->next)
        if (!sl_container_of(n, struct sl_record, of_conn)->leased) return true;
    return false;
}

void sl_ledger_leave(struct sl_ledger *l, struct sl_list *of_conn)
{
    while (!sl_list_empty(of_conn)) {
        struct sl_record *r = sl_container_of(of_conn->next, struct sl_record, of_conn);
        if (r->leased) {
            sl_list_remove(&r->of_conn);
            r->session = 0;
        } else sl_ledger_drop(l, r);
    }
}

void sl_ledger_sweep(struct sl_ledger *l, sl_ms now_ms, size_t most)
{
    if (most > l->by_fence.count) most = l->by_fence.count; /* Each record once. */
    for (size_t i = 0; i < most; i++) {
        struct sl_record *r = sl_container_of(l->all.next, struct sl_record, all);
        sl_list_remove(&r->all);
        sl_list_append(&l->all, &r->all);
        if (r->end_ms <= now_ms) sl_ledger_drop(l, r);
    }
}

struct sl_record sl_record_of(struct sl_bytes key, const struct sl_grant_view *v,
                              uint64_t session, sl_ms end_ms, sl_ms sure_ms)
{
    return (struct sl_record){.session = session,
                              .fence = v->fence,
                              .origin = v->origin,
                              .shared = v->shared,
                              .leased = v->leased,
                              .units = v->units,
                              .per = v->per,
                              .buckets = v->buckets,
                              .priority = v->priority,
                              .end_ms = end_ms,
                              .sure_ms = sure_ms < end_ms ? sure_ms : end_ms,
                              .key = key,
                              .value = v->value,
                              .note = v->note,
                              .name = v->name,
                              .address = v->address,
                              .request = v->request,
                              .digest = v->digest};
}

struct sl_grant_view sl_record_view(const struct sl_record *r, sl_ms now_ms)
{
    return (struct sl_grant_view){.shared = r->shared,
                                  .leased = r->leased,
                                  .fence = r->fence,
                                  .session_id = r->session,
                                  .origin = r->origin,
                                  .units = r->units,
                                  .per = r->per,
                                  .buckets = r->buckets,
                                  .priority = r->priority,
                                  .left_ms = r->leased ? r->end_ms - now_ms : SL_NEVER,
                                  .unsure_ms = r->end_ms - r->sure_ms,
                                  .value = r->value,
                                  .note = r->note,
                                  .name = r->name,
                                  .address = r->address,
                                  .request = r->request,
                                  .digest = r->digest};
}
