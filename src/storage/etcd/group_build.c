/* group_build.c - builds the etcd transaction of a group.
 *
 *     together:   if   the term, the slot unchanged, all requests absent, all bars absent
 *                 then all writes, all requests, the slot's new number
 *     else each:  if   the slot unchanged
 *                 then for each: if its own comparisons then its writes else the reasons;
 *                      the slot's new number
 *
 * For a group of one operation, the first transaction already reads the reasons. */
#include <assert.h>
#include <inttypes.h>
#include <stdio.h>

#include "storage/etcd/etcd_internal.h"

static void own_ifs(struct sl_etcd_text *t, const struct sl_etcd *e,
                    const struct sl_storage_op *op)
{
    struct sl_etcd_key k;
    if (op->type != SL_STORAGE_COMMIT) return;
    if (op->request.n > 0) {
        sl_etcd_key_request(e, &k, op->request);
        sl_etcd_if_absent(t, &k);
    }
    sl_etcd_key_bar(e, &k, op->term, op->id);
    sl_etcd_if_absent(t, &k);
}

static void own_writes(struct sl_etcd_text *t, const struct sl_etcd *e,
                       const struct sl_storage_op *op, int64_t lease)
{
    struct sl_etcd_key k;
    char value[64];
    if (op->type == SL_STORAGE_BAR) {
        sl_etcd_key_bar(e, &k, op->term, op->id);
        sl_etcd_op_put(t, &k, (struct sl_bytes){"", 0}, lease);
        return;
    }
    for (uint32_t i = 0; i < op->write_count; i++) {
        const struct sl_storage_write *w = &op->writes[i];
        if (sl_etcd_is_overwritten(op, i)) continue;
        sl_etcd_key_of_write(e, &k, op, i);
        if (w->value.at != NULL) sl_etcd_op_put(t, &k, w->value, 0);
        else sl_etcd_op_delete(t, &k, NULL);
    }
    if (!sl_etcd_keeps_request(op)) return;
    int n = snprintf(value, sizeof value, "%" PRIu64 " %" PRIu64, op->term, op->id);
    sl_etcd_key_request(e, &k, op->request);
    sl_etcd_op_put(t, &k, (struct sl_bytes){value, (size_t)n}, lease);
}

/* Add the reads that show why an operation failed. judge() in group.c relies on their
 * order: term, bar, request. */
static void own_reasons(struct sl_etcd_text *t, const struct sl_etcd *e,
                        const struct sl_storage_op *op)
{
    struct sl_etcd_key k;
    sl_etcd_op_read_term(t, e);
    if (op->type != SL_STORAGE_COMMIT) return;
    sl_etcd_key_bar(e, &k, op->term, op->id);
    sl_etcd_op_range(t, &k, NULL, SL_ETCD_RANGE_COUNT);
    if (op->request.n == 0) return;
    sl_etcd_key_request(e, &k, op->request);
    sl_etcd_op_range(t, &k, NULL, SL_ETCD_RANGE_KEYS);
}

static void put_number(struct sl_etcd_text *t, const struct sl_etcd_key *k,
                       uint64_t number, int64_t lease)
{
    char value[32];
    int n = snprintf(value, sizeof value, "%" PRIu64, number);
    sl_etcd_op_put(t, k, (struct sl_bytes){value, (size_t)n}, lease);
}

/* Compare the revision of the slot's key. Each try of a group also changes this key, so
 * only one try succeeds. */
static void slot_if(struct sl_etcd_text *t, const struct sl_etcd_key *slot,
                    uint64_t revision)
{
    sl_etcd_if_revision(t, slot, revision);
}

static void build_together(struct sl_etcd_group *g, int64_t lease)
{
    struct sl_etcd_text *t = &g->task.body;
    const struct sl_etcd *e = g->task.e;
    struct sl_storage_op *op;
    struct sl_etcd_key slot;
    sl_etcd_key_slot(e, &slot, g->index);
    sl_etcd_txn_begin(t);
    sl_etcd_if_term(t, e, g->term);
    if (g->task.writes) slot_if(t, &slot, g->slot_revision);
    for (op = NULL; (op = sl_storage_op_after(&g->ops, op)) != NULL;) own_ifs(t, e, op);
    sl_etcd_txn_then(t);
    for (op = NULL; (op = sl_storage_op_after(&g->ops, op)) != NULL;)
        own_writes(t, e, op, lease);
    if (g->task.writes) put_number(t, &slot, g->number, lease);
    sl_etcd_txn_else(t);
    if (g->task.writes) sl_etcd_op_range(t, &slot, NULL, SL_ETCD_RANGE_ALL);
    if (g->count == 1) own_reasons(t, e, sl_storage_op_after(&g->ops, NULL));
    sl_etcd_txn_end(t);
}

static void build_inner(struct sl_etcd_group *g, const struct sl_storage_op *op,
                        uint32_t i, int64_t lease)
{
    struct sl_etcd_text *t = &g->task.body;
    const struct sl_etcd *e = g->task.e;
    struct sl_etcd_key part;
    sl_etcd_txn_inner(t);
    sl_etcd_if_term(t, e, g->term);
    own_ifs(t, e, op);
    sl_etcd_txn_then(t);
    own_writes(t, e, op, lease);
    if (op->type == SL_STORAGE_BAR || op->write_count > 0) {
        sl_etcd_key_part(e, &part, g->index, i);
        put_number(t, &part, g->number, lease);
    }
    sl_etcd_txn_else(t);
    own_reasons(t, e, op);
    sl_etcd_txn_inner_end(t);
}

static void slot_range(struct sl_etcd_text *t, const struct sl_etcd_group *g)
{
    struct sl_etcd_key slot, end;
    sl_etcd_key_slot(g->task.e, &slot, g->index);
    end = slot;
    end.at[end.n++] = '/' + 1; /* Sorts after the keys of the parts. */
    sl_etcd_op_range(t, &slot, &end, SL_ETCD_RANGE_ALL);
}

static void build_each(struct sl_etcd_group *g, int64_t lease)
{
    struct sl_etcd_text *t = &g->task.body;
    const struct sl_etcd *e = g->task.e;
    struct sl_etcd_key slot;
    uint32_t i = 0;
    sl_etcd_key_slot(e, &slot, g->index);
    sl_etcd_txn_begin(t);
    if (g->task.writes) slot_if(t, &slot, g->slot_revision);
    sl_etcd_txn_then(t);
    for (struct sl_storage_op *op = NULL;
         (op = sl_storage_op_after(&g->ops, op)) != NULL;)
        build_inner(g, op, i++, lease);
    if (g->task.writes) put_number(t, &slot, g->number, lease);
    sl_etcd_txn_else(t);
    if (g->task.writes) slot_range(t, g);
    sl_etcd_txn_end(t);
}

void sl_etcd_group_build_slot_read(struct sl_etcd_group *g)
{
    struct sl_etcd_text *t = &g->task.body;
    sl_etcd_text_clear(t);
    sl_etcd_txn_begin(t);
    sl_etcd_txn_then(t);
    slot_range(t, g);
    sl_etcd_txn_end(t);
}

void sl_etcd_group_build(struct sl_etcd_group *g, int64_t lease)
{
    assert(g->count > 0 && (lease != 0 || !g->task.writes));
    sl_etcd_text_clear(&g->task.body);
    if (g->inner) build_each(g, lease);
    else build_together(g, lease);
}
