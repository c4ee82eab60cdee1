/* store_dump.c - writes a store as text. */
#include "offline/store_text.h"

#include <inttypes.h>

#include "sluice.h"

struct dump {
    const struct sl_store *store;
    MDB_txn *txn;
    FILE *to;
    uint64_t lines, lost;
};

static void put_bytes(FILE *to, struct sl_bytes b)
{
    fputs(" \"", to);
    for (size_t i = 0; i < b.n; i++) {
        unsigned char c = (unsigned char)b.at[i];
        if (c < ' ' || c > '~' || c == '"' || c == '\\') fprintf(to, "\\x%02x", c);
        else putc(c, to);
    }
    putc('"', to);
}

/* Each put_ function returns 0 or an error of LMDB. It counts and skips damaged
 * records. */

static int put_record(struct dump *d, const MDB_val *k, const MDB_val *v)
{
    struct sl_bytes table, key, value;
    uint64_t revision;
    if (!sl_store_names_of(k, &table, &key) ||
        !sl_store_read_record(k, v, &revision, &value)) {
        d->lost++;
        return 0;
    }
    fputs("data", d->to);
    put_bytes(d->to, table);
    put_bytes(d->to, key);
    fprintf(d->to, " %" PRIu64, revision);
    put_bytes(d->to, value);
    putc('\n', d->to);
    d->lines++;
    return 0;
}

static int put_request(struct dump *d, const MDB_val *k, const MDB_val *v)
{
    struct sl_bytes name = {v->mv_data, v->mv_size};
    struct sl_store_request r;
    int rc = sl_store_get_request(d->store, d->txn, name, &r);
    (void)k; /* The revision, which is in r as well. */
    if (rc != 0) {
        d->lost++;
        return rc == MDB_NOTFOUND || rc == MDB_CORRUPTED ? 0 : rc;
    }
    fputs("request", d->to);
    put_bytes(d->to, name);
    fprintf(d->to, " %" PRIu64 " %" PRId64 "\n", r.revision, r.time_ms);
    d->lines++;
    return 0;
}

static int put_bar(struct dump *d, const MDB_val *k, const MDB_val *v)
{
    (void)v;
    if (k->mv_size != 16) {
        d->lost++;
        return 0;
    }
    fprintf(d->to, "barred %" PRIu64 " %" PRIu64 "\n", sl_store_get_u64(k->mv_data),
            sl_store_get_u64((const char *)k->mv_data + 8));
    d->lines++;
    return 0;
}

static int put_all(struct dump *d, MDB_dbi dbi,
                   int (*one)(struct dump *, const MDB_val *, const MDB_val *))
{
    MDB_cursor *c;
    MDB_val k, v;
    int rc = mdb_cursor_open(d->txn, dbi, &c);
    if (rc != 0) return rc;
    while ((rc = mdb_cursor_get(c, &k, &v, MDB_NEXT)) == 0 &&
           (rc = one(d, &k, &v)) == 0) {}
    mdb_cursor_close(c);
    return rc == MDB_NOTFOUND ? 0 : rc;
}

static int put_store(struct dump *d)
{
    uint64_t term, revision;
    int rc = sl_store_get_number(d->store, d->txn, SL_STORE_TERM, &term);
    if (rc == 0)
        rc = sl_store_get_number(d->store, d->txn, SL_STORE_REVISION, &revision);
    if (rc != 0) return rc;
    fprintf(d->to, "sluice store %u\nterm %" PRIu64 "\nrevision %" PRIu64 "\n",
            SL_STORE_FORMAT, term, revision);
    rc = put_all(d, d->store->data, put_record);
    if (rc == 0) rc = put_all(d, d->store->order, put_request);
    if (rc == 0) rc = put_all(d, d->store->barred, put_bar);
    if (rc == 0) fprintf(d->to, "end %" PRIu64 "\n", d->lines);
    return rc;
}

int offline_store_write_text(const struct sl_store *s, FILE *to, uint64_t *lost,
                             char *why, size_t why_bytes)
{
    struct dump d = {.store = s, .to = to};
    int rc = mdb_txn_begin(s->env, NULL, MDB_RDONLY, &d.txn);
    if (rc == 0) {
        rc = put_store(&d);
        mdb_txn_abort(d.txn);
    }
    *lost = d.lost;
    if (rc != 0) {
        snprintf(
            why, why_bytes,
            "the dump is incomplete, because the rest of the store cannot be read: %s",
            mdb_strerror(rc));
        return SLUICE_ETRUNCATED;
    }
    if (fflush(to) == 0 && !ferror(to)) return SLUICE_OK;
    snprintf(why, why_bytes, "cannot write the dump");
    return SLUICE_EIO;
}
