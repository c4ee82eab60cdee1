/* store_check.c - checks every invariant of the store (store.h). */
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "sluice.h"
#include "storage/lmdb/store.h"

struct check {
    const struct sl_store *store;
    MDB_txn *txn;
    struct sl_store_counts *counts;
    struct sl_bytes table; /* Table of the previous record. */
    sl_ms time_ms;         /* Time of the previous request. */
    char *why;
    size_t why_bytes;
};

__attribute__((format(printf, 2, 3))) static int broken(struct check *c,
                                                        const char *format, ...)
{
    va_list args;
    va_start(args, format);
    vsnprintf(c->why, c->why_bytes, format, args);
    va_end(args);
    return MDB_CORRUPTED;
}

/* --- One record -------------------------------------------------------------- */

static int check_record(struct check *c, const MDB_val *k, const MDB_val *v)
{
    struct sl_bytes table, key, value;
    uint64_t revision, n = c->counts->keys++;
    if (!sl_store_names_of(k, &table, &key))
        return broken(c, "database \"data\": record %" PRIu64 " has no name", n);
    if (!sl_store_read_record(k, v, &revision, &value))
        return broken(c, "database \"data\": record %" PRIu64 " has a wrong checksum",
                      n);
    if (revision == 0 || revision > c->counts->revision)
        return broken(c,
                      "database \"data\": record %" PRIu64
                      " has the invalid revision %" PRIu64,
                      n, revision);
    if (n == 0 || table.n != c->table.n || memcmp(table.at, c->table.at, table.n) != 0)
        c->counts->tables++;
    c->table = table; /* Valid until the transaction ends. */
    c->counts->value_bytes += value.n;
    return 0;
}

static int check_request(struct check *c, const MDB_val *k, const MDB_val *v)
{
    uint64_t n = c->counts->requests++;
    if (v->mv_size != 16)
        return broken(c, "database \"requests\": record %" PRIu64 " is damaged", n);
    MDB_val revision = {8, v->mv_data}, request;
    int rc = mdb_get(c->txn, c->store->order, &revision, &request);
    if (rc == MDB_NOTFOUND ||
        (rc == 0 && mdb_cmp(c->txn, c->store->requests, k, &request)))
        return broken(c,
                      "database \"requests\": record %" PRIu64
                      " is missing in the database \"order\"",
                      n);
    return rc;
}

static int check_order(struct check *c, const MDB_val *k, const MDB_val *v)
{
    struct sl_store_request r;
    if (k->mv_size != 8)
        return broken(c,
                      "database \"order\": a key is not a revision (8 bytes expected)");
    uint64_t revision = sl_store_get_u64(k->mv_data);
    int rc = sl_store_get_request(c->store, c->txn,
                                  (struct sl_bytes){v->mv_data, v->mv_size}, &r);
    if (rc == MDB_NOTFOUND || (rc == 0 && r.revision != revision))
        return broken(c, "database \"order\": revision %" PRIu64 " has no request",
                      revision);
    if (rc != 0) return rc;
    if (revision == 0 || revision > c->counts->revision)
        return broken(c, "database \"order\": revision %" PRIu64 " is out of range",
                      revision);
    if (r.time_ms < c->time_ms)
        return broken(c,
                      "database \"order\": revision %" PRIu64
                      " has an earlier time than the revision before it",
                      revision);
    c->time_ms = r.time_ms;
    return 0;
}

static int check_bar(struct check *c, const MDB_val *k, const MDB_val *v)
{
    c->counts->barred++;
    if (k->mv_size != 16 || v->mv_size != 0)
        return broken(c, "database \"barred\": a record is damaged");
    uint64_t term = sl_store_get_u64(k->mv_data);
    if (term != c->counts->term)
        return broken(c, "database \"barred\": a record has the wrong term %" PRIu64,
                      term);
    return 0;
}

/* --- The whole store --------------------------------------------------------- */

static int check_all(struct check *c, MDB_dbi dbi, const char *name,
                     int (*one)(struct check *, const MDB_val *, const MDB_val *))
{
    MDB_cursor *cursor;
    MDB_stat stat;
    MDB_val k, v;
    size_t n = 0;
    int rc = mdb_stat(c->txn, dbi, &stat);
    if (rc == 0) rc = mdb_cursor_open(c->txn, dbi, &cursor);
    if (rc != 0) return rc;
    while ((rc = mdb_cursor_get(cursor, &k, &v, MDB_NEXT)) == 0 &&
           (rc = one(c, &k, &v)) == 0)
        n++;
    mdb_cursor_close(cursor);
    if (rc != MDB_NOTFOUND) return rc;
    if (n != stat.ms_entries)
        return broken(c, "database \"%s\": %zu records found, %zu expected", name, n,
                      stat.ms_entries);
    return 0;
}

static int entries(struct check *c, MDB_dbi dbi, size_t *out)
{
    MDB_stat stat;
    int rc = mdb_stat(c->txn, dbi, &stat);
    *out = stat.ms_entries;
    return rc;
}

static int check_meta(struct check *c)
{
    size_t n;
    int rc = entries(c, c->store->meta, &n);
    if (rc != 0) return rc;
    if (n != 3) return broken(c, "database \"meta\": %zu numbers found, 3 expected", n);
    rc = sl_store_get_number(c->store, c->txn, SL_STORE_TERM, &c->counts->term);
    if (rc == 0)
        rc = sl_store_get_number(c->store, c->txn, SL_STORE_REVISION,
                                 &c->counts->revision);
    if (rc == 0 && c->counts->term == 0 && c->counts->revision != 0)
        return broken(
            c, "database \"meta\": there is a revision (%" PRIu64 "), but no term",
            c->counts->revision);
    return rc;
}

static int check_store(struct check *c)
{
    const struct sl_store *s = c->store;
    size_t requests, order;
    int rc = check_meta(c);
    if (rc == 0) rc = check_all(c, s->data, "data", check_record);
    if (rc == 0) rc = check_all(c, s->requests, "requests", check_request);
    if (rc == 0) rc = check_all(c, s->order, "order", check_order);
    if (rc == 0) rc = check_all(c, s->barred, "barred", check_bar);
    if (rc == 0) rc = entries(c, s->requests, &requests);
    if (rc == 0) rc = entries(c, s->order, &order);
    if (rc == 0 && requests != order)
        return broken(c,
                      "database \"requests\": %zu records found, but %zu in the "
                      "database \"order\"",
                      requests, order);
    return rc;
}

int sl_store_check(const struct sl_store *s, struct sl_store_counts *out, char *why,
                   size_t why_bytes)
{
    struct check c = {.store = s, .counts = out, .why = why, .why_bytes = why_bytes};
    memset(out, 0, sizeof *out);
    *why = '\0';
    int rc = mdb_txn_begin(s->env, NULL, MDB_RDONLY, &c.txn);
    if (rc == 0) {
        rc = check_store(&c);
        mdb_txn_abort(c.txn);
    }
    if (rc != 0 && *why == '\0')
        snprintf(why, why_bytes, "the store cannot be read: %s", mdb_strerror(rc));
    return sl_store_status(rc);
}
