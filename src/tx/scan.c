/* scan.c - the rows of a table as a transaction sees them: the rows of the storage,
 * which are sorted by key, merged with the transaction's own writes. */
#include <stdlib.h>
#include <string.h>

#include "tx/manager_internal.h"

static int compare_keys(struct sl_bytes a, struct sl_bytes b)
{
    size_t n = a.n < b.n ? a.n : b.n;
    int c = n == 0 ? 0 : memcmp(a.at, b.at, n);
    return c != 0 ? c : (a.n > b.n) - (a.n < b.n);
}

static struct sl_bytes key_of(const struct sl_tx_write *w)
{
    return (struct sl_bytes){w->name + w->table_n, w->key_n};
}

static void sink(const struct sl_tx_write **of, uint32_t at, uint32_t n)
{
    for (uint32_t child; (child = 2 * at + 1) < n; at = child) {
        if (child + 1 < n && compare_keys(key_of(of[child]), key_of(of[child + 1])) < 0)
            child++;
        if (compare_keys(key_of(of[at]), key_of(of[child])) >= 0) return;
        const struct sl_tx_write *w = of[at];
        of[at] = of[child];
        of[child] = w;
    }
}

/* Sort by key. This is a heap sort, because pure code does not call qsort(). */
static void sort_writes(const struct sl_tx_write **of, uint32_t n)
{
    for (uint32_t i = n / 2; i > 0; i--) sink(of, i - 1, n);
    for (uint32_t i = n; i > 1; i--) {
        const struct sl_tx_write *w = of[0];
        of[0] = of[i - 1];
        of[i - 1] = w;
        sink(of, 0, i - 1);
    }
}

/* Two inputs to merge, both sorted by key. */
struct merge {
    const struct sl_storage_row *row, *rows_end;
    const struct sl_tx_write **own, **own_end;
};

/* Get the next row. A write of the transaction replaces the row in the storage.
 * Returns false at the end. */
static bool next_row(struct merge *merge, struct sl_storage_row *out)
{
    for (;;) {
        int c = merge->row == merge->rows_end ? 1
                : merge->own == merge->own_end
                    ? -1
                    : compare_keys(merge->row->key, key_of(*merge->own));
        if (c > 0 && merge->own == merge->own_end) return false;
        if (c < 0) {
            *out = *merge->row++;
            return true;
        }
        const struct sl_tx_write *w = *merge->own++;
        if (c == 0) merge->row++;
        if (w->deleted) continue;
        *out = (struct sl_storage_row){key_of(w), {w->value, w->value_n}};
        return true;
    }
}

/* Collect and sort the writes of t to the table of its request. Returns their
 * number. */
static uint32_t own_writes(const struct sl_tx *t, const struct sl_tx_write **out)
{
    struct sl_bytes table = sl_tx_arg_table(t);
    uint32_t n = 0;
    for (const struct sl_list *i = t->writes.next; i != &t->writes; i = i->next) {
        const struct sl_tx_write *w = sl_container_of(i, struct sl_tx_write, in_tx);
        if (w->table_n == table.n && memcmp(w->name, table.at, table.n) == 0)
            out[n++] = w;
    }
    sort_writes(out, n);
    return n;
}

static char *copy_bytes(char *at, struct sl_bytes *b)
{
    if (b->n > 0) memcpy(at, b->at, b->n);
    b->at = at;
    return at + b->n;
}

/* Count the rows in a first pass, and copy them in a second if they are within the
 * limits. Returns SLUICE_OK, ETOOBIG or ENOMEM. */
static int fill_rows(struct sl_tx_manager *m, struct sl_tx_reply *r,
                     const struct merge *merged)
{
    const struct sl_tx_manager_limits *l = &m->limits;
    struct merge merge = *merged;
    struct sl_storage_row row;
    size_t n = 0, bytes = 0;
    while (next_row(&merge, &row)) {
        n++;
        bytes += row.key.n + row.value.n;
    }
    if (n > l->rows_max || (l->scan_bytes_max > 0 && bytes > l->scan_bytes_max))
        return SLUICE_ETOOBIG;
    struct sl_storage_row *rows = sl_tx_reply_bytes(m, r, n * sizeof *rows + bytes);
    if (rows == NULL) return SLUICE_ENOMEM;
    char *at = (char *)(rows + n);
    merge = *merged;
    for (struct sl_storage_row *to = rows; next_row(&merge, to); to++)
        at = copy_bytes(copy_bytes(at, &to->key), &to->value);
    r->answer.rows = rows;
    r->answer.row_count = (uint32_t)n;
    return SLUICE_OK;
}

int sl_tx_scan_fill(struct sl_tx_manager *m, struct sl_tx *t,
                    const struct sl_storage_result *done)
{
    if (t->reply == NULL) return SLUICE_OK; /* The client has disconnected. */
    const struct sl_tx_write **own = malloc((t->write_count + 1) * sizeof *own);
    if (own == NULL) return SLUICE_ENOMEM;
    uint32_t n = own_writes(t, own);
    const struct merge merge = {done->rows, done->rows + done->row_count, own, own + n};
    int status = fill_rows(m, t->reply, &merge);
    free(own);
    return status;
}
