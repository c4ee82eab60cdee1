/* group_limits.c - decides which operations may be in one group. They must fit into one
 * etcd transaction, and must not conflict with each other or with an unfinished
 * group. */
#include <assert.h>
#include <string.h>
#define XXH_INLINE_ALL
#include <xxhash.h>

#include "storage/etcd/etcd_internal.h"

/* Upper bounds for the bytes that etcd adds to keys and values, and for our
 * comparisons. */
#define BYTES_OF_GROUP 2048
#define BYTES_OF_OP 512
#define BYTES_OF_WRITE 48

/* --- Conflicts --------------------------------------------------------------- */

/* The kinds of names that can conflict. Names are compared by hash; a collision only
 * delays an operation. */
enum name_kind { NAME_REQUEST, NAME_DATA, NAME_BARRED, NAME_COMMITS };

static uint64_t name_of(enum name_kind kind, const void *at, size_t n)
{
    return XXH3_64bits_withSeed(at, n, (uint64_t)kind);
}

static uint64_t name_of_id(enum name_kind kind, uint64_t id)
{
    return name_of(kind, &id, sizeof id);
}

void sl_etcd_key_of_write(const struct sl_etcd *e, struct sl_etcd_key *k,
                          const struct sl_storage_op *op, uint32_t i)
{
    const struct sl_storage_write *w = &op->writes[i];
    if (op->type == SL_STORAGE_RECORD) sl_etcd_key_journal(e, k, w->key);
    else sl_etcd_key_data(e, k, w->table, w->key);
}

static uint64_t name_of_write(const struct sl_etcd *e, const struct sl_storage_op *op,
                              uint32_t i)
{
    struct sl_etcd_key k;
    sl_etcd_key_of_write(e, &k, op, i);
    return name_of(NAME_DATA, k.at, k.n);
}

static bool is_taken(const struct sl_etcd *e, uint64_t name)
{
    for (uint32_t s = 0; s < e->slot_count; s++)
        for (size_t i = 0; i < e->slots[s].name_count; i++)
            if (e->slots[s].names[i] == name) return true;
    return false;
}

/* etcd evaluates all comparisons of a transaction before it writes, and rejects a
 * transaction that writes a key twice. So operations on the same request, key or
 * transaction must not be in one group, and no group may overtake another group that it
 * conflicts with. */
bool sl_etcd_op_conflicts(const struct sl_etcd *e, const struct sl_storage_op *op)
{
    if (op->type == SL_STORAGE_BAR)
        return is_taken(e, name_of_id(NAME_BARRED, op->id)) ||
               is_taken(e, name_of_id(NAME_COMMITS, op->id));
    if (op->type == SL_STORAGE_COMMIT) {
        if (is_taken(e, name_of_id(NAME_BARRED, op->id))) return true;
        if (op->request.n > 0 &&
            is_taken(e, name_of(NAME_REQUEST, op->request.at, op->request.n)))
            return true;
    }
    for (uint32_t i = 0; i < op->write_count; i++)
        if (is_taken(e, name_of_write(e, op, i))) return true;
    return false;
}

bool sl_etcd_group_has_names_left(const struct sl_etcd_group *g,
                                  const struct sl_storage_op *op)
{
    return 2 + (size_t)op->write_count <= g->name_capacity - g->name_count;
}

static void take_name(struct sl_etcd_group *g, uint64_t name)
{
    assert(g->name_count < g->name_capacity);
    g->names[g->name_count++] = name;
}

void sl_etcd_group_take_names(struct sl_etcd_group *g, const struct sl_storage_op *op)
{
    if (op->type == SL_STORAGE_BAR) {
        take_name(g, name_of_id(NAME_BARRED, op->id));
        return;
    }
    if (op->type == SL_STORAGE_COMMIT) {
        take_name(g, name_of_id(NAME_COMMITS, op->id));
        if (op->request.n > 0)
            take_name(g, name_of(NAME_REQUEST, op->request.at, op->request.n));
    }
    for (uint32_t i = 0; i < op->write_count; i++)
        take_name(g, name_of_write(g->task.e, op, i));
}

static bool same(struct sl_bytes a, struct sl_bytes b)
{
    return a.n == b.n && (a.n == 0 || memcmp(a.at, b.at, a.n) == 0);
}

bool sl_etcd_request_in_flight(const struct sl_etcd *e, struct sl_bytes request)
{
    const struct sl_storage_op *op = NULL;
    if (request.n == 0) return false;
    if (is_taken(e, name_of(NAME_REQUEST, request.at, request.n))) return true;
    while ((op = sl_storage_op_after(&e->writes, op)) != NULL)
        if (op->type == SL_STORAGE_COMMIT && same(op->request, request)) return true;
    return false;
}

/* --- Limits of a transaction ------------------------------------------------- */

bool sl_etcd_is_overwritten(const struct sl_storage_op *op, uint32_t i)
{
    if (op->type == SL_STORAGE_RECORD) return false; /* Each key occurs once. */
    for (uint32_t j = i + 1; j < op->write_count; j++)
        if (same(op->writes[i].table, op->writes[j].table) &&
            same(op->writes[i].key, op->writes[j].key))
            return true;
    return false;
}

bool sl_etcd_keeps_request(const struct sl_storage_op *op)
{
    return op->type == SL_STORAGE_COMMIT && op->request.n > 0 && op->write_count > 0;
}

static size_t bytes_of_op(const struct sl_etcd *e)
{
    return BYTES_OF_OP + 8 * e->prefix.n;
}

static size_t bytes_per_record(const struct sl_etcd *e)
{
    return BYTES_OF_WRITE + e->prefix.n + strlen("journal/");
}

void sl_etcd_record_limits(const struct sl_etcd *e,
                           struct sl_storage_record_limits *out)
{
    out->writes = e->settings.ops_max - 1; /* One operation writes the slot's key. */
    out->bytes = e->settings.request_bytes_max - BYTES_OF_GROUP - bytes_of_op(e);
    out->bytes_per_write = bytes_per_record(e);
}

static struct sl_etcd_cost cost_of_record(const struct sl_etcd *e,
                                          const struct sl_storage_op *op)
{
    struct sl_etcd_cost c = {0, op->write_count, bytes_of_op(e)};
    for (uint32_t i = 0; i < op->write_count; i++)
        c.bytes += bytes_per_record(e) + op->writes[i].key.n + op->writes[i].value.n;
    return c;
}

struct sl_etcd_cost sl_etcd_cost_of(const struct sl_etcd *e,
                                    const struct sl_storage_op *op)
{
    if (op->type == SL_STORAGE_RECORD) return cost_of_record(e, op);
    struct sl_etcd_cost c = {0, 1, bytes_of_op(e)};
    if (op->type == SL_STORAGE_BAR) return c;
    c.ifs = op->request.n > 0 ? 2 : 1;
    c.ops = sl_etcd_keeps_request(op) ? 1 : 0;
    c.bytes += 3 * op->request.n;
    for (uint32_t i = 0; i < op->write_count; i++) {
        const struct sl_storage_write *w = &op->writes[i];
        if (sl_etcd_is_overwritten(op, i)) continue;
        c.ops++;
        c.bytes += BYTES_OF_WRITE + e->prefix.n + w->table.n + w->key.n + w->value.n;
    }
    return c;
}

int sl_etcd_fits_alone(const struct sl_etcd *e, const struct sl_storage_op *op)
{
    if (op->type == SL_STORAGE_BAR) return SLUICE_OK;
    if (!sl_storage_names_fit(op)) return SLUICE_ETOOBIG;
    if (op->type == SL_STORAGE_RECORD && op->write_count >= e->settings.ops_max)
        return SLUICE_ETOOBIG;
    if (op->write_count > SL_ETCD_WRITES_FACTOR * e->settings.ops_max)
        return SLUICE_EWRITES;
    struct sl_etcd_cost c = sl_etcd_cost_of(e, op);
    if (c.ops + 1 > e->settings.ops_max) return SLUICE_EWRITES;
    return c.bytes + BYTES_OF_GROUP > e->settings.request_bytes_max ? SLUICE_ETOOBIG
                                                                    : SLUICE_OK;
}

bool sl_etcd_costs_fit(const struct sl_etcd *e, const struct sl_etcd_cost *sum)
{
    return sum->ifs + 3 <= e->settings.ops_max && sum->ops + 1 <= e->settings.ops_max &&
           sum->bytes + BYTES_OF_GROUP <= e->settings.request_bytes_max;
}

/* Return the number of operations that etcd counts for an inner transaction. etcd adds
 * the operations of the outer transaction. */
static uint32_t inner_ops(const struct sl_etcd_cost *c)
{
    uint32_t most = c->ifs + 2 > c->ops + 1 ? c->ifs + 2 : c->ops + 1;
    return most > 3 ? most : 3;
}

void sl_etcd_group_count(struct sl_etcd_group *g)
{
    struct sl_storage_op *op = NULL;
    g->count = 0;
    g->task.writes = false;
    while ((op = sl_storage_op_after(&g->ops, op)) != NULL) {
        g->count++;
        if (op->type == SL_STORAGE_BAR || op->write_count > 0) g->task.writes = true;
    }
}

/* The storage sends the remaining operations later from the same slot, because etcd may
 * still execute a lost try that contains all of them. */
void sl_etcd_group_split(struct sl_etcd_group *g)
{
    const struct sl_etcd *e = g->task.e;
    struct sl_list all;
    uint32_t most = 0, n = 0;
    size_t bytes = BYTES_OF_GROUP;
    sl_list_init(&all);
    sl_storage_move_ops(&g->ops, &all, SIZE_MAX);
    sl_storage_move_ops(&g->later, &all, SIZE_MAX);
    while (!sl_list_empty(&all)) {
        struct sl_storage_op *op = sl_storage_op_after(&all, NULL);
        struct sl_etcd_cost c = sl_etcd_cost_of(e, op);
        uint32_t own = inner_ops(&c) > most ? inner_ops(&c) : most;
        if (n > 0 && (own + n + 2 > e->settings.ops_max ||
                      bytes + c.bytes > e->settings.request_bytes_max))
            break;
        most = own;
        bytes += c.bytes;
        n++;
        sl_list_remove(&op->place);
        sl_list_append(&g->ops, &op->place);
    }
    sl_storage_move_ops(&all, &g->later, SIZE_MAX);
    sl_etcd_group_count(g);
    g->inner = g->count > 1;
}
