/* reader.c - the reading thread: reads single rows and scans tables of committed
 * data. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "storage/lmdb/lmdb_internal.h"

#define BEGIN_TRIES 1000 /* One millisecond apart; see begin_reading(). */

/* These functions return 0 or an error of LMDB. After 0, op->result contains the
 * answer. */

static int read_row(struct sl_lmdb *l, MDB_txn *txn, struct sl_storage_op *op)
{
    struct sl_store_key key;
    struct sl_bytes value;
    uint64_t revision;
    MDB_val v;
    sl_store_key_of(&key, op->table, op->key);
    MDB_val k = {key.n, key.bytes};
    int rc = mdb_get(txn, l->store.data, &k, &v);
    if (rc == MDB_NOTFOUND) return 0;
    if (rc != 0) return rc;
    if (!sl_store_read_record(&k, &v, &revision, &value)) return MDB_CORRUPTED;
    char *copy = malloc(value.n + 1); /* Not NULL even for an empty value. */
    if (copy == NULL) return ENOMEM;
    memcpy(copy, value.at, value.n);
    op->result.found = true;
    op->result.revision = revision;
    op->result.value = (struct sl_bytes){copy, value.n};
    return 0;
}

/* --- Scans ------------------------------------------------------------------- */

struct scan {
    MDB_cursor *cursor;
    struct sl_store_key prefix; /* Prefix of all keys of the table. */
    bool begun;
};

/* Read the next row of the table. Returns MDB_NOTFOUND after the last row. */
static int next_row(struct scan *s, struct sl_storage_row *row)
{
    MDB_val k = {s->prefix.n, s->prefix.bytes}, v;
    struct sl_bytes table;
    uint64_t revision;
    int rc = mdb_cursor_get(s->cursor, &k, &v, s->begun ? MDB_NEXT : MDB_SET_RANGE);
    if (rc != 0) return rc;
    s->begun = true;
    if (k.mv_size < s->prefix.n || memcmp(k.mv_data, s->prefix.bytes, s->prefix.n) != 0)
        return MDB_NOTFOUND;
    if (!sl_store_names_of(&k, &table, &row->key)) return MDB_CORRUPTED;
    return sl_store_read_record(&k, &v, &revision, &row->value) ? 0 : MDB_CORRUPTED;
}

static char *copy_to(char *to, struct sl_bytes *b)
{
    memcpy(to, b->at, b->n);
    b->at = to;
    return to + b->n;
}

/* Count the rows first, then copy all of them into one allocation: rows, then bytes. */
static int copy_rows(struct scan *s, struct sl_storage_op *op)
{
    struct sl_storage_row row, *rows;
    size_t bytes = 0;
    uint32_t n = 0;
    int rc;
    while ((rc = next_row(s, &row)) == 0) {
        if (n == op->rows_max) return sl_lmdb_answer(op, SLUICE_ETOOBIG);
        bytes += row.key.n + row.value.n;
        if (op->bytes_max > 0 && bytes > op->bytes_max)
            return sl_lmdb_answer(op, SLUICE_ETOOBIG);
        n++;
    }
    if (rc != MDB_NOTFOUND) return rc;
    rows = malloc(n * sizeof *rows + bytes + 1);
    if (rows == NULL) return ENOMEM;
    char *at = (char *)(rows + n);
    s->begun = false;
    for (uint32_t i = 0; i < n; i++) {
        if ((rc = next_row(s, &rows[i])) != 0) {
            free(rows);
            return rc == MDB_NOTFOUND ? MDB_CORRUPTED : rc;
        }
        at = copy_to(at, &rows[i].key);
        at = copy_to(at, &rows[i].value);
    }
    op->result.rows = rows;
    op->result.row_count = n;
    return 0;
}

static int scan_table(struct sl_lmdb *l, MDB_txn *txn, struct sl_storage_op *op)
{
    struct scan s = {.begun = false};
    sl_store_key_of(&s.prefix, op->table, (struct sl_bytes){NULL, 0});
    int rc = mdb_cursor_open(txn, l->store.data, &s.cursor);
    if (rc != 0) return rc;
    rc = copy_rows(&s, op);
    mdb_cursor_close(s.cursor);
    return rc;
}

/* --- A group ----------------------------------------------------------------- */

/* Lock `map` and begin a read transaction. `map` stays locked even if this fails. If a
 * commit has failed in its last step, LMDB rejects readers until the writer reopens the
 * store, which the writer does at once. So this function retries. */
static int begin_reading(struct sl_lmdb *l, MDB_txn **txn)
{
    for (int tries = 1;; tries++) {
        pthread_mutex_lock(&l->map);
        int rc = l->store.env != NULL ? 0 : EIO;
        if (rc == 0) rc = mdb_txn_begin(l->store.env, NULL, MDB_RDONLY, txn);
        if (rc != MDB_PANIC || tries == BEGIN_TRIES) return rc;
        pthread_mutex_unlock(&l->map);
        sl_lmdb_sleep_ms(1);
    }
}

void sl_lmdb_read_group(struct sl_lmdb *l, struct sl_list *group)
{
    struct sl_storage_op *op = NULL;
    MDB_txn *txn = NULL;
    int begun = begin_reading(l, &txn);
    while ((op = sl_storage_op_after(group, op)) != NULL) {
        int rc = begun;
        memset(&op->result, 0, sizeof op->result);
        if (!sl_storage_names_fit(op)) op->result.status = SLUICE_ETOOBIG;
        else if (rc == 0 && op->type == SL_STORAGE_READ) rc = read_row(l, txn, op);
        else if (rc == 0) rc = scan_table(l, txn, op);
        if (rc != 0) sl_lmdb_fail(l, op, sl_lmdb_status(l, rc));
    }
    mdb_txn_abort(txn);
    pthread_mutex_unlock(&l->map);
}
