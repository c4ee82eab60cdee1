/* store.c - reads and writes each kind of record in the store. */
#include <assert.h>
#include <errno.h>
#include <string.h>
#define XXH_INLINE_ALL
#include <xxhash.h>

#include "sluice.h"
#include "storage/lmdb/store.h"

enum { SUM_BYTES = 8, HEAD_BYTES = 16, TABLE_BYTES = 2 };

/* --- Numbers and names ------------------------------------------------------- */

uint64_t sl_store_get_u64(const void *at)
{
    const unsigned char *b = at;
    uint64_t n = 0;
    for (int i = 0; i < 8; i++) n = n << 8 | b[i];
    return n;
}

void sl_store_set_u64(void *at, uint64_t n)
{
    unsigned char *b = at;
    for (int i = 8; i-- > 0; n >>= 8) b[i] = (unsigned char)(n & 0xff);
}

static MDB_val val(const void *at, size_t n)
{
    return (MDB_val){n, (void *)at}; /* LMDB does not write to these bytes. */
}

int sl_store_get_number(const struct sl_store *s, MDB_txn *txn, const char *name,
                        uint64_t *out)
{
    MDB_val k = val(name, strlen(name)), v;
    int rc = mdb_get(txn, s->meta, &k, &v);
    if (rc != 0) return rc == MDB_NOTFOUND ? MDB_CORRUPTED : rc;
    if (v.mv_size != 8) return MDB_CORRUPTED;
    *out = sl_store_get_u64(v.mv_data);
    return 0;
}

int sl_store_put_number(const struct sl_store *s, MDB_txn *txn, const char *name,
                        uint64_t n)
{
    char bytes[8];
    MDB_val k = val(name, strlen(name)), v = val(bytes, sizeof bytes);
    sl_store_set_u64(bytes, n);
    return mdb_put(txn, s->meta, &k, &v, 0);
}

void sl_store_key_of(struct sl_store_key *out, struct sl_bytes table,
                     struct sl_bytes key)
{
    assert(table.n <= SL_STORE_KEY_MAX - TABLE_BYTES &&
           key.n <= SL_STORE_KEY_MAX - TABLE_BYTES - table.n);
    out->bytes[0] = (char)(table.n >> 8);
    out->bytes[1] = (char)(table.n & 0xff);
    if (table.n > 0) memcpy(out->bytes + TABLE_BYTES, table.at, table.n);
    if (key.n > 0) memcpy(out->bytes + TABLE_BYTES + table.n, key.at, key.n);
    out->n = TABLE_BYTES + table.n + key.n;
}

bool sl_store_names_of(const MDB_val *of, struct sl_bytes *table, struct sl_bytes *key)
{
    const char *at = of->mv_data;
    if (of->mv_size < TABLE_BYTES) return false;
    size_t n = (size_t)(unsigned char)at[0] << 8 | (unsigned char)at[1];
    if (of->mv_size - TABLE_BYTES < n) return false;
    *table = (struct sl_bytes){at + TABLE_BYTES, n};
    *key = (struct sl_bytes){at + TABLE_BYTES + n, of->mv_size - TABLE_BYTES - n};
    return true;
}

/* --- Records ----------------------------------------------------------------- */

static uint64_t sum_of(const void *key, size_t key_bytes, const void *rest,
                       size_t rest_bytes)
{
    return XXH3_64bits_withSeed(rest, rest_bytes, XXH3_64bits(key, key_bytes));
}

int sl_store_put_record(const struct sl_store *s, MDB_txn *txn,
                        const struct sl_store_key *key, uint64_t revision,
                        struct sl_bytes value)
{
    MDB_val k = val(key->bytes, key->n), v = {HEAD_BYTES + value.n, NULL};
    assert(value.n == 0 || value.at != NULL);
    int rc = mdb_put(txn, s->data, &k, &v, MDB_RESERVE);
    if (rc != 0) return rc;
    char *at = v.mv_data;
    sl_store_set_u64(at + SUM_BYTES, revision);
    if (value.n > 0) memcpy(at + HEAD_BYTES, value.at, value.n);
    sl_store_set_u64(at, sum_of(key->bytes, key->n, at + SUM_BYTES,
                                HEAD_BYTES - SUM_BYTES + value.n));
    return 0;
}

bool sl_store_read_record(const MDB_val *key, const MDB_val *of, uint64_t *revision,
                          struct sl_bytes *value)
{
    const char *at = of->mv_data;
    if (of->mv_size < HEAD_BYTES) return false;
    if (sl_store_get_u64(at) !=
        sum_of(key->mv_data, key->mv_size, at + SUM_BYTES, of->mv_size - SUM_BYTES))
        return false;
    *revision = sl_store_get_u64(at + SUM_BYTES);
    *value = (struct sl_bytes){at + HEAD_BYTES, of->mv_size - HEAD_BYTES};
    return true;
}

/* --- Requests ---------------------------------------------------------------- */

int sl_store_get_request(const struct sl_store *s, MDB_txn *txn,
                         struct sl_bytes request, struct sl_store_request *out)
{
    MDB_val k = val(request.at, request.n), v;
    int rc = mdb_get(txn, s->requests, &k, &v);
    if (rc != 0) return rc;
    if (v.mv_size != 16) return MDB_CORRUPTED;
    out->revision = sl_store_get_u64(v.mv_data);
    out->time_ms = (sl_ms)sl_store_get_u64((char *)v.mv_data + 8);
    return 0;
}

int sl_store_put_request(const struct sl_store *s, MDB_txn *txn,
                         struct sl_bytes request, struct sl_store_request what)
{
    char bytes[16];
    MDB_val r = val(request.at, request.n), v = val(bytes, 16), n = val(bytes, 8);
    assert(request.n > 0 && request.n <= SL_STORE_KEY_MAX && what.time_ms >= 0);
    sl_store_set_u64(bytes, what.revision);
    sl_store_set_u64(bytes + 8, (uint64_t)what.time_ms);
    int rc = mdb_put(txn, s->requests, &r, &v, 0);
    return rc != 0 ? rc : mdb_put(txn, s->order, &n, &r, MDB_APPEND);
}

int sl_store_last_time(const struct sl_store *s, MDB_txn *txn, sl_ms *out)
{
    MDB_cursor *c;
    MDB_val k, v;
    struct sl_store_request last = {0};
    int rc = mdb_cursor_open(txn, s->order, &c);
    if (rc != 0) return rc;
    rc = mdb_cursor_get(c, &k, &v, MDB_LAST);
    if (rc == 0) {
        rc = sl_store_get_request(s, txn, (struct sl_bytes){v.mv_data, v.mv_size},
                                  &last);
        if (rc == MDB_NOTFOUND) rc = MDB_CORRUPTED;
    } else if (rc == MDB_NOTFOUND) rc = 0;
    mdb_cursor_close(c);
    *out = last.time_ms;
    return rc;
}

/* Remove the oldest request, if its time is not after `until`. */
static int forget_one(const struct sl_store *s, MDB_txn *txn, MDB_cursor *c,
                      sl_ms until)
{
    MDB_val k, v;
    struct sl_store_request r;
    char copy[SL_STORE_KEY_MAX];
    int rc = mdb_cursor_get(c, &k, &v, MDB_FIRST);
    if (rc != 0) return rc;
    if (v.mv_size > sizeof copy) return MDB_CORRUPTED;
    struct sl_bytes request = {copy, v.mv_size};
    memcpy(copy, v.mv_data, v.mv_size); /* Deleting a record may move the original. */
    rc = sl_store_get_request(s, txn, request, &r);
    if (rc != 0) return rc == MDB_NOTFOUND ? MDB_CORRUPTED : rc;
    if (r.time_ms > until) return MDB_NOTFOUND;
    MDB_val own = val(copy, request.n);
    rc = mdb_del(txn, s->requests, &own, NULL);
    return rc != 0 ? rc : mdb_cursor_del(c, 0);
}

int sl_store_forget_requests(const struct sl_store *s, MDB_txn *txn, sl_ms until,
                             unsigned most, unsigned *removed)
{
    MDB_cursor *c;
    int rc = mdb_cursor_open(txn, s->order, &c);
    *removed = 0;
    if (rc != 0) return rc;
    while (*removed < most && (rc = forget_one(s, txn, c, until)) == 0) ++*removed;
    mdb_cursor_close(c);
    return rc == MDB_NOTFOUND ? 0 : rc;
}

/* --- Bars -------------------------------------------------------------------- */

static void barred_key(char bytes[16], uint64_t term, uint64_t id)
{
    sl_store_set_u64(bytes, term);
    sl_store_set_u64(bytes + 8, id);
}

int sl_store_bar(const struct sl_store *s, MDB_txn *txn, uint64_t term, uint64_t id)
{
    char bytes[16];
    MDB_val k = val(bytes, sizeof bytes), v = val("", 0);
    barred_key(bytes, term, id);
    return mdb_put(txn, s->barred, &k, &v, 0);
}

/* All bars belong to one term, so the first key has the lowest id. */
int sl_store_unbar_oldest(const struct sl_store *s, MDB_txn *txn, size_t most)
{
    MDB_stat stat;
    MDB_cursor *cursor;
    MDB_val k, v;
    int rc = mdb_stat(txn, s->barred, &stat);
    if (rc != 0 || stat.ms_entries <= most) return rc;
    rc = mdb_cursor_open(txn, s->barred, &cursor);
    if (rc != 0) return rc;
    rc = mdb_cursor_get(cursor, &k, &v, MDB_FIRST);
    if (rc == 0) rc = mdb_cursor_del(cursor, 0);
    mdb_cursor_close(cursor);
    return rc;
}

int sl_store_is_barred(const struct sl_store *s, MDB_txn *txn, uint64_t term,
                       uint64_t id, bool *out)
{
    char bytes[16];
    MDB_val k = val(bytes, sizeof bytes), v;
    barred_key(bytes, term, id);
    int rc = mdb_get(txn, s->barred, &k, &v);
    *out = rc == 0;
    return rc == MDB_NOTFOUND ? 0 : rc;
}

/* --- Errors ------------------------------------------------------------------ */

int sl_store_status(int rc)
{
    switch (rc) {
        case 0: return SLUICE_OK;
        case MDB_MAP_FULL:
        case ENOSPC:
        case EDQUOT:
        case EFBIG: return SLUICE_ENOSPC;
        case ENOMEM: return SLUICE_ENOMEM;
        case MDB_TXN_FULL: return SLUICE_ETOOBIG;
        case EACCES:
        case EPERM:
        case EROFS: return SLUICE_EACCES;
        case ENOENT: return SLUICE_ENOENT;
        case MDB_INVALID: return SLUICE_EFOREIGN;
        case MDB_VERSION_MISMATCH: return SLUICE_EVERSION;
        case MDB_CORRUPTED:
        case MDB_PAGE_NOTFOUND: return SLUICE_ETRUNCATED;
        default: return SLUICE_EIO;
    }
}
