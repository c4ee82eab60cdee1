/* write.c - uncommitted writes of transactions.
 *
 * A write is found by its transaction, table and key, because a transaction reads
 * its own writes. */
#include <stdlib.h>
#include <string.h>

#include "tx/manager_internal.h"

struct write_name {
    const struct sl_tx *tx;
    struct sl_bytes table, key;
};

static uint64_t hash_names(const struct write_name *w, struct sl_hash_key key)
{
    key.a ^= sl_hash(key, &w->tx, sizeof w->tx);
    key.a ^= sl_hash(key, w->table.at, w->table.n);
    return sl_hash(key, w->key.at, w->key.n);
}

static struct write_name name_of(const struct sl_tx_write *w)
{
    return (struct write_name){
        w->tx, {w->name, w->table_n}, {w->name + w->table_n, w->key_n}};
}

static uint64_t hash_write(const void *item, const struct sl_index *x)
{
    const struct write_name n = name_of(item);
    return hash_names(&n, x->key);
}

static bool same_write(const void *item, struct sl_bytes key)
{
    const struct write_name a = name_of(item), *b = (const void *)key.at;
    return a.tx == b->tx && a.table.n == b->table.n && a.key.n == b->key.n &&
           memcmp(a.table.at, b->table.at, a.table.n) == 0 &&
           memcmp(a.key.at, b->key.at, a.key.n) == 0;
}

const struct sl_index_kind sl_tx_writes_kind = {.hash = hash_write, .same = same_write};

struct sl_tx_write *sl_tx_write_find(const struct sl_tx_manager *m,
                                     const struct sl_tx *t, struct sl_bytes table,
                                     struct sl_bytes key)
{
    const struct write_name n = {t, table, key};
    return sl_index_find(&m->writes, (struct sl_bytes){(const char *)&n, sizeof n},
                         hash_names(&n, m->writes.key));
}

static void count_bytes(struct sl_tx_manager *m, struct sl_tx *t, size_t more,
                        size_t less)
{
    t->write_bytes += more;
    t->write_bytes -= less;
    m->write_bytes += more;
    m->write_bytes -= less;
}

static void drop_write(struct sl_tx_manager *m, struct sl_tx_write *w)
{
    sl_index_remove(&m->writes, w, hash_write(w, &m->writes));
    sl_list_remove(&w->in_tx);
    w->tx->write_count--;
    count_bytes(m, w->tx, 0, w->table_n + w->key_n + w->value_n);
    free(w->value);
    free(w);
}

void sl_tx_write_drop_all(struct sl_tx_manager *m, struct sl_tx *t)
{
    while (!sl_list_empty(&t->writes))
        drop_write(m, sl_container_of(t->writes.next, struct sl_tx_write, in_tx));
}

static struct sl_tx_write *make_write(struct sl_tx_manager *m, struct sl_tx *t,
                                      struct sl_bytes table, struct sl_bytes key)
{
    if (sl_index_reserve(&m->writes) != SLUICE_OK) return NULL;
    struct sl_tx_write *w = calloc(1, sizeof *w + table.n + key.n);
    if (w == NULL) return NULL;
    w->tx = t;
    w->table_n = (uint32_t)table.n;
    w->key_n = (uint32_t)key.n;
    memcpy(w->name, table.at, table.n);
    if (key.n > 0) memcpy(w->name + table.n, key.at, key.n);
    sl_list_append(&t->writes, &w->in_tx);
    t->write_count++;
    count_bytes(m, t, table.n + key.n, 0);
    sl_index_put(&m->writes, w, hash_write(w, &m->writes));
    return w;
}

int sl_tx_write_put(struct sl_tx_manager *m, struct sl_tx *t, struct sl_bytes table,
                    struct sl_bytes key, struct sl_bytes value, bool deleted)
{
    struct sl_tx_write *w = sl_tx_write_find(m, t, table, key);
    size_t more = value.n + (w == NULL ? table.n + key.n : 0);
    size_t less = w == NULL ? 0 : w->value_n;
    if (w == NULL && t->write_count >= m->limits.writes_max) return SLUICE_EWRITES;
    if (t->write_bytes - less + more > m->limits.bytes_max) return SLUICE_EWRITES;
    if (m->limits.total_bytes_max > 0 && more > less &&
        m->write_bytes - less + more > m->limits.total_bytes_max)
        return SLUICE_ETRANSACTIONS;
    char *copy = malloc(value.n + 1);
    if (copy == NULL) return SLUICE_ENOMEM;
    if (w == NULL) w = make_write(m, t, table, key);
    if (w == NULL) {
        free(copy);
        return SLUICE_ENOMEM;
    }
    if (value.n > 0) memcpy(copy, value.at, value.n);
    count_bytes(m, t, value.n, w->value_n);
    free(w->value);
    w->value = copy;
    w->value_n = (uint32_t)value.n;
    w->deleted = deleted;
    return SLUICE_OK;
}
