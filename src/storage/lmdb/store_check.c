/* store_check.c - every invariant of the file. */
#include "storage/lmdb/store.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "sluice.h"

struct look {
    const struct sl_store *store;
    MDB_txn *txn;
    struct sl_store_counts *counts;
    struct sl_bytes table; /* Of the record before. */
    sl_ms time_ms;         /* Of the request before. */
    char *why;
    size_t why_bytes;
};

__attribute__((format(printf, 2, 3))) static int broken(struct look *l,
                                                        const char *format, ...)
{
    va_list args;
    va_start(args, format);
    vsnprintf(l->why, l->why_bytes, format, args);
    va_end(args);
    return MDB_CORRUPTED;
}

/* --- One of each ------------------------------------------------------------- */

static int look_at_record(struct look *l, const MDB_val *k, const MDB_val *v)
{
    struct sl_bytes table, key, value;
    uint64_t revision, n = l->counts->keys++;
    if (!sl_store_names(k, &table, &key))
        return broken(l, "data: record %" PRIu64 " has no name", n);
    if (!sl_store_record(k, v, &revision, &value))
        return broken(l, "data: record %" PRIu64 " is damaged: its sum is wrong", n);
    if (revision == 0 || revision > l->counts->revision)
        return broken(l, "data: record %" PRIu64 " is of revision %" PRIu64, n,
                      revision);
    if (n == 0 || table.n != l->table.n || memcmp(table.at, l->table.at, table.n) != 0)
        l->counts->tables++;
    l->table = table; /* The map stays while the transaction does. */
    l->counts->value_bytes += value.n;
    return 0;
}

static int look_at_request(struct look *l, const MDB_val *k, const MDB_val *v)
{
    uint64_t n = l->counts->requests++;
    if (v->mv_size != 16) return broken(l, "requests: %" PRIu64 " is damaged", n);
    MDB_val revision = {8, v->mv_data}, request;
    int rc = mdb_get(l->txn, l->store->order, &revision, &request);
    if (rc == MDB_NOTFOUND ||
        (rc == 0 && mdb_cmp(l->txn, l->store->requests, k, &request)))
        return broken(l, "requests: %" PRIu64 " has no place in their order", n);
    return rc;
}

static int look_at_order(struct look *l, const MDB_val *k, const MDB_val *v)
{
    struct sl_store_request r;
    if (k->mv_size != 8) return broken(l, "order: a revision is damaged");
    uint64_t revision = sl_store_get_u64(k->mv_data);
    int rc = sl_store_request(l->store, l->txn,
                              (struct sl_bytes){v->mv_data, v->mv_size}, &r);
    if (rc == MDB_NOTFOUND || (rc == 0 && r.revision != revision))
        return broken(l, "order: revision %" PRIu64 " has no request", revision);
    if (rc != 0) return rc;
    if (revision == 0 || revision > l->counts->revision)
        return broken(l, "order: a request of revision %" PRIu64, revision);
    if (r.time_ms < l->time_ms)
        return broken(l, "order: time goes back at revision %" PRIu64, revision);
    l->time_ms = r.time_ms;
    return 0;
}

static int look_at_bar(struct look *l, const MDB_val *k, const MDB_val *v)
{
    l->counts->barred++;
    if (k->mv_size != 16 || v->mv_size != 0) return broken(l, "barred: one is damaged");
    uint64_t term = sl_store_get_u64(k->mv_data);
    if (term != l->counts->term) return broken(l, "barred: one of term %" PRIu64, term);
    return 0;
}

/* --- All --------------------------------------------------------------------- */

static int look_at_all(struct look *l, MDB_dbi dbi, const char *name,
                       int (*one)(struct look *, const MDB_val *, const MDB_val *))
{
    MDB_cursor *c;
    MDB_stat stat;
    MDB_val k, v;
    size_t n = 0;
    int rc = mdb_stat(l->txn, dbi, &stat);
    if (rc == 0) rc = mdb_cursor_open(l->txn, dbi, &c);
    if (rc != 0) return rc;
    while ((rc = mdb_cursor_get(c, &k, &v, MDB_NEXT)) == 0 &&
           (rc = one(l, &k, &v)) == 0)
        n++;
    mdb_cursor_close(c);
    if (rc != MDB_NOTFOUND) return rc;
    if (n != stat.ms_entries)
        return broken(l, "%s: there are %zu, and should be %zu", name, n,
                      stat.ms_entries);
    return 0;
}

static int entries(struct look *l, MDB_dbi dbi, size_t *out)
{
    MDB_stat stat;
    int rc = mdb_stat(l->txn, dbi, &stat);
    *out = stat.ms_entries;
    return rc;
}

static int look_at_meta(struct look *l)
{
    size_t n;
    int rc = entries(l, l->store->meta, &n);
    if (rc != 0) return rc;
    if (n != 3) return broken(l, "meta: there are %zu numbers", n);
    rc = sl_store_number(l->store, l->txn, SL_STORE_TERM, &l->counts->term);
    if (rc == 0)
        rc = sl_store_number(l->store, l->txn, SL_STORE_REVISION, &l->counts->revision);
    if (rc == 0 && l->counts->term == 0 && l->counts->revision != 0)
        return broken(l, "meta: revision %" PRIu64 " before the first term",
                      l->counts->revision);
    return rc;
}

static int look_at_store(struct look *l)
{
    const struct sl_store *s = l->store;
    size_t requests, order;
    int rc = look_at_meta(l);
    if (rc == 0) rc = look_at_all(l, s->data, "data", look_at_record);
    if (rc == 0) rc = look_at_all(l, s->requests, "requests", look_at_request);
    if (rc == 0) rc = look_at_all(l, s->order, "order", look_at_order);
    if (rc == 0) rc = look_at_all(l, s->barred, "barred", look_at_bar);
    if (rc == 0) rc = entries(l, s->requests, &requests);
    if (rc == 0) rc = entries(l, s->order, &order);
    if (rc == 0 && requests != order)
        return broken(l, "requests: there are %zu, and %zu in their order", requests,
                      order);
    return rc;
}

int sl_store_check(const struct sl_store *s, struct sl_store_counts *out, char *why,
                   size_t why_bytes)
{
    struct look l = {.store = s, .counts = out, .why = why, .why_bytes = why_bytes};
    memset(out, 0, sizeof *out);
    *why = '\0';
    int rc = mdb_txn_begin(s->env, NULL, MDB_RDONLY, &l.txn);
    if (rc == 0) {
        rc = look_at_store(&l);
        mdb_txn_abort(l.txn);
    }
    if (rc != 0 && *why == '\0')
        snprintf(why, why_bytes, "it cannot be read: %s", mdb_strerror(rc));
    return sl_store_status(rc);
}
