/* keeper_etcd_data.c - the data in the model of etcd: rows, requests and bars of transactions, and
 * the journal of the keeper. */
#include <stdlib.h>
#include <string.h>

#include "sim/keeper.h"

/* ---- copies ---- */

static struct sl_bytes take(char **at, struct sl_bytes b)
{
    struct sl_bytes out = {b.at == NULL ? NULL : *at, b.n};
    if (b.n > 0) memcpy(*at, b.at, b.n);
    *at += b.n;
    return out;
}

void ksim_op_copy(struct ksim_op *x)
{
    struct sl_storage_op *op = &x->op;
    size_t bytes = op->request.n + op->table.n + op->key.n;
    size_t head = op->write_count * sizeof *op->writes;
    for (uint32_t i = 0; i < op->write_count; i++)
        bytes += op->writes[i].table.n + op->writes[i].key.n + op->writes[i].value.n;
    x->copy = malloc(head + bytes + 1);
    if (x->copy == NULL) abort();
    char *at = x->copy + head;
    struct sl_storage_write *writes = (struct sl_storage_write *)(void *)x->copy;
    op->request = take(&at, op->request);
    op->table = take(&at, op->table);
    op->key = take(&at, op->key);
    for (uint32_t i = 0; i < op->write_count; i++)
        writes[i] = (struct sl_storage_write){.table = take(&at, op->writes[i].table),
                                              .key = take(&at, op->writes[i].key),
                                              .value = take(&at, op->writes[i].value)};
    op->writes = writes;
}

/* Copy rows of a map to the result. */
static void give_rows(struct ksim_op *x, const struct ksim_map *m, size_t from,
                      size_t count, size_t prefix)
{
    struct sl_storage_result *r = &x->op.result;
    size_t bytes = 0;
    for (size_t i = from; i < from + count; i++)
        bytes += m->items[i].key.n + m->items[i].value.n;
    free(x->rows);
    x->rows = malloc(count * sizeof *x->rows + bytes + 1);
    if (x->rows == NULL) abort();
    char *at = (char *)(x->rows + count);
    for (size_t i = 0; i < count; i++) {
        struct sl_bytes key = m->items[from + i].key;
        key.at += prefix;
        key.n -= prefix;
        x->rows[i].key = take(&at, key);
        x->rows[i].value = take(&at, m->items[from + i].value);
    }
    r->rows = x->rows;
    r->row_count = (uint32_t)count;
}

/* ---- rows ---- */

#define NAME_BYTES 600

static struct sl_bytes name_of(struct sl_bytes table, struct sl_bytes key,
                               char out[NAME_BYTES])
{
    if (table.n + key.n + 1 > NAME_BYTES) abort();
    memcpy(out, table.at, table.n);
    out[table.n] = '\0';
    if (key.n > 0) memcpy(out + table.n + 1, key.at, key.n);
    return (struct sl_bytes){out, table.n + key.n + 1};
}

static void read_row(struct ksim_world *w, struct ksim_op *x)
{
    const struct ksim_map *m = &w->etcd.rows;
    char name[NAME_BYTES];
    bool found;
    size_t i = ksim_map_find(m, name_of(x->op.table, x->op.key, name), &found);
    x->op.result.found = found;
    if (!found) return;
    give_rows(x, m, i, 1, 0);
    x->op.result.value = x->rows[0].value;
    x->op.result.row_count = 0;
}

static void scan(struct ksim_world *w, struct ksim_op *x)
{
    const struct ksim_map *m = &w->etcd.rows;
    char name[NAME_BYTES];
    bool found;
    struct sl_bytes prefix = name_of(x->op.table, (struct sl_bytes){NULL, 0}, name);
    size_t from = ksim_map_find(m, prefix, &found), end = from;
    while (end < m->count && m->items[end].key.n >= prefix.n &&
           memcmp(m->items[end].key.at, prefix.at, prefix.n) == 0)
        end++;
    if (end - from > x->op.rows_max) x->op.result.status = SLUICE_ETOOBIG;
    else give_rows(x, m, from, end - from, prefix.n);
}

/* ---- commits ---- */

static struct sl_bytes id_of(const struct ksim_op *x)
{
    return (struct sl_bytes){(const char *)&x->op.id, sizeof x->op.id};
}

static void find_request(struct ksim_world *w, struct ksim_op *x)
{
    size_t i = ksim_map_find(&w->etcd.requests, x->op.request, &x->op.result.found);
    if (x->op.result.found) x->op.result.revision = w->etcd.requests.items[i].revision;
}

/* In this order: the request, the term, the bar. */
static void commit(struct ksim_world *w, struct ksim_op *x)
{
    struct sl_storage_result *r = &x->op.result;
    char name[NAME_BYTES];
    bool barred;
    if (x->op.request.n > 0) find_request(w, x);
    if (r->found) return;
    ksim_map_find(&w->etcd.bars, id_of(x), &barred);
    if (x->op.term != w->etcd.term.term) {
        r->status = SLUICE_ESTALE;
        r->term = w->etcd.term.term;
        r->term_record = w->etcd.term;
        return;
    }
    if (barred) {
        r->status = SLUICE_EBARRED;
        return;
    }
    r->revision = ++w->etcd.revision;
    ksim_audit_commit(w, x);
    for (uint32_t i = 0; i < x->op.write_count; i++) {
        const struct sl_storage_write *o = &x->op.writes[i];
        ksim_map_put(&w->etcd.rows, name_of(o->table, o->key, name), o->value,
                     r->revision);
    }
    if (x->op.request.n > 0)
        ksim_map_put(&w->etcd.requests, x->op.request, (struct sl_bytes){"", 0},
                     r->revision);
}

static void bar(struct ksim_world *w, const struct ksim_op *x)
{
    ksim_map_put(&w->etcd.bars, id_of(x), (struct sl_bytes){"", 0}, 0);
}

/* ---- the journal ---- */

/* Etcd rejects a transaction that contains a key twice. */
static void check_twice(struct ksim_world *w, const struct sl_storage_op *op)
{
    for (uint32_t i = 0; i < op->write_count; i++)
        for (uint32_t k = 0; k < i; k++)
            if (op->writes[i].key.n == op->writes[k].key.n &&
                memcmp(op->writes[i].key.at, op->writes[k].key.at,
                       op->writes[i].key.n) == 0)
                KSIM_WRONG(w, "a transaction of etcd contains a key twice");
}

static void record(struct ksim_world *w, struct ksim_op *x)
{
    struct sl_storage_result *r = &x->op.result;
    if (x->op.term != w->etcd.term.term) {
        r->status = SLUICE_ESTALE;
        r->term = w->etcd.term.term;
        r->term_record = w->etcd.term;
        return;
    }
    check_twice(w, &x->op);
    r->revision = ++w->etcd.revision;
    for (uint32_t i = 0; i < x->op.write_count; i++) {
        const struct ksim_item entry = {.key = x->op.writes[i].key,
                                        .value = x->op.writes[i].value};
        KSIM_TRACE(w, "etcd: n%u %s %.*s", x->node + 1,
                   entry.value.at == NULL ? "deletes" : "records", (int)entry.key.n,
                   entry.key.at);
        ksim_journal_writes(w, &entry);
        ksim_map_put(&w->etcd.journal, x->op.writes[i].key, x->op.writes[i].value,
                     r->revision);
        ksim_leases_recorded(w, &entry);
    }
    w->counts.records += x->op.write_count;
}

static void read_journal(struct ksim_world *w, struct ksim_op *x)
{
    const struct ksim_map *m = &w->etcd.journal;
    bool found = false;
    size_t from = x->op.key.n == 0 ? 0 : ksim_map_find(m, x->op.key, &found);
    if (found) from++;
    size_t count = m->count - from;
    uint32_t most = 1 + sl_random_below(&w->random, 4); /* There may be fewer rows. */
    if (x->op.rows_max > 0 && most > x->op.rows_max) most = x->op.rows_max;
    x->op.result.more = count > most;
    give_rows(x, m, from, count > most ? most : count, 0);
}

/* ---- all operations ---- */

bool ksim_etcd_data(struct ksim_world *w, struct ksim_op *x)
{
    switch (x->op.type) {
        case SL_STORAGE_COMMIT: commit(w, x); break;
        case SL_STORAGE_BAR: bar(w, x); break;
        case SL_STORAGE_OUTCOME: find_request(w, x); break;
        case SL_STORAGE_READ: read_row(w, x); break;
        case SL_STORAGE_SCAN: scan(w, x); break;
        case SL_STORAGE_RECORD: record(w, x); break;
        case SL_STORAGE_JOURNAL: read_journal(w, x); break;
        default: return false;
    }
    return true;
}
