/* etcd_group.c - commits and bars on etcd: many in one transaction, each of which stands or
 * falls alone, and what becomes of those whose answer is lost.
 *
 *     together:   if   the term, all requests absent, all bars absent, the slot as it was
 *                 then all writes, all requests, the slot's new number
 *     else each:  if   the slot as it was
 *                 then for each: if its own comparisons then its writes else why not;
 *                      the slot's new number
 *
 * A group of one says "why not" at once. Every try of a group compares the revision of its
 * slot's key, and changes it: so one of them is done at most, however late they come, and
 * the number in it says which it was. */
#include "storage/etcd/etcd.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#define XXH_INLINE_ALL
#include <xxhash.h>

#define SLOTS 4
#define SLOTS_UNGROUPED 64
#define NAMES_OF_ONE 4 /* As many writes as etcd takes, so many times; then EWRITES. */

/* What etcd's own count adds to keys and values, and what we compare besides: generous. */
#define BYTES_OF_GROUP 2048
#define BYTES_OF_OP 512
#define BYTES_OF_WRITE 48

/* --- Names: what must not meet ------------------------------------------------ */

enum name_kind { NAME_REQUEST, NAME_DATA, NAME_BARRED, NAME_COMMITS };

static uint64_t name_of(enum name_kind kind, const void *at, size_t n)
{
    return XXH3_64bits_withSeed(at, n, (uint64_t)kind);
}

static uint64_t name_of_id(enum name_kind kind, uint64_t id)
{
    return name_of(kind, &id, sizeof id);
}

static uint64_t name_of_write(const struct sl_storage *e,
                              const struct sl_storage_write *w)
{
    struct sl_etcd_key k;
    sl_etcd_key_data(e, &k, w->table, w->key);
    return name_of(NAME_DATA, k.at, k.n);
}

static bool is_taken(const struct sl_storage *e, uint64_t name)
{
    for (uint32_t s = 0; s < e->slot_count; s++)
        for (size_t i = 0; i < e->slots[s].name_count; i++)
            if (e->slots[s].names[i] == name) return true;
    return false;
}

/* A transaction of etcd's compares before it writes, and takes no key twice: so what one
 * needs of another must be done before. */
static bool meets_another(const struct sl_storage *e, const struct sl_storage_op *op)
{
    if (op->type == SL_STORAGE_BAR)
        return is_taken(e, name_of_id(NAME_BARRED, op->id)) ||
               is_taken(e, name_of_id(NAME_COMMITS, op->id));
    if (is_taken(e, name_of_id(NAME_BARRED, op->id))) return true;
    if (op->request.n > 0 &&
        is_taken(e, name_of(NAME_REQUEST, op->request.at, op->request.n)))
        return true;
    for (uint32_t i = 0; i < op->write_count; i++)
        if (is_taken(e, name_of_write(e, &op->writes[i]))) return true;
    return false;
}

static void take_names(struct sl_etcd_group *g, const struct sl_storage_op *op)
{
    if (op->type == SL_STORAGE_BAR) {
        g->names[g->name_count++] = name_of_id(NAME_BARRED, op->id);
        return;
    }
    g->names[g->name_count++] = name_of_id(NAME_COMMITS, op->id);
    if (op->request.n > 0)
        g->names[g->name_count++] = name_of(NAME_REQUEST, op->request.at,
                                            op->request.n);
    for (uint32_t i = 0; i < op->write_count; i++)
        g->names[g->name_count++] = name_of_write(g->ask.e, &op->writes[i]);
}

static bool same(struct sl_bytes a, struct sl_bytes b)
{
    return a.n == b.n && (a.n == 0 || memcmp(a.at, b.at, a.n) == 0);
}

bool sl_etcd_request_in_flight(const struct sl_storage *e, struct sl_bytes request)
{
    const struct sl_storage_op *op = NULL;
    if (request.n == 0) return false;
    if (is_taken(e, name_of(NAME_REQUEST, request.at, request.n))) return true;
    while ((op = sl_etcd_op_after(&e->writes, (struct sl_storage_op *)op)) != NULL)
        if (op->type == SL_STORAGE_COMMIT && same(op->request, request)) return true;
    return false;
}

/* --- What fits ---------------------------------------------------------------- */

/* A later write to the same key is the one that counts. */
static bool is_written_again(const struct sl_storage_op *op, uint32_t i)
{
    for (uint32_t j = i + 1; j < op->write_count; j++)
        if (same(op->writes[i].table, op->writes[j].table) &&
            same(op->writes[i].key, op->writes[j].key))
            return true;
    return false;
}

struct cost {
    uint32_t ifs, ops;
    size_t bytes;
};

static bool keeps_request(const struct sl_storage_op *op)
{
    return op->request.n > 0 && op->write_count > 0;
}

static struct cost cost_of(const struct sl_storage *e, const struct sl_storage_op *op)
{
    struct cost c = {0, 1, BYTES_OF_OP + 8 * e->prefix.n};
    if (op->type == SL_STORAGE_BAR) return c;
    c.ifs = op->request.n > 0 ? 2 : 1;
    c.ops = keeps_request(op) ? 1 : 0;
    c.bytes += 3 * op->request.n;
    for (uint32_t i = 0; i < op->write_count; i++) {
        const struct sl_storage_write *w = &op->writes[i];
        if (is_written_again(op, i)) continue;
        c.ops++;
        c.bytes += BYTES_OF_WRITE + e->prefix.n + w->table.n + w->key.n + w->value.n;
    }
    return c;
}

static bool names_fit(const struct sl_storage_op *op)
{
    if (op->request.n > SL_STORAGE_REQUEST_BYTES_MAX) return false;
    for (uint32_t i = 0; i < op->write_count; i++) {
        const struct sl_storage_write *w = &op->writes[i];
        if (w->table.n > SL_STORAGE_NAME_BYTES_MAX ||
            w->key.n > SL_STORAGE_NAME_BYTES_MAX - w->table.n)
            return false;
    }
    return true;
}

/* Alone: else the status. */
static int fits_alone(const struct sl_storage *e, const struct sl_storage_op *op)
{
    if (op->type == SL_STORAGE_BAR) return SLUICE_OK;
    if (!names_fit(op)) return SLUICE_ETOOBIG;
    if (op->write_count > NAMES_OF_ONE * e->settings.ops_max) return SLUICE_EWRITES;
    struct cost c = cost_of(e, op);
    if (c.ops + 1 > e->settings.ops_max) return SLUICE_EWRITES;
    return c.bytes + BYTES_OF_GROUP > e->settings.request_bytes_max ? SLUICE_ETOOBIG
                                                                    : SLUICE_OK;
}

static bool fit_together(const struct sl_storage *e, const struct cost *a)
{
    return a->ifs + 3 <= e->settings.ops_max && a->ops + 1 <= e->settings.ops_max &&
           a->bytes + BYTES_OF_GROUP <= e->settings.request_bytes_max;
}

/* Of an inner transaction: etcd counts it, and all of the outer one on top. */
static uint32_t inner_ops(const struct cost *c)
{
    uint32_t most = c->ifs + 2 > c->ops + 1 ? c->ifs + 2 : c->ops + 1;
    return most > 3 ? most : 3;
}

static void append_all(struct sl_list *from, struct sl_list *to)
{
    while (!sl_list_empty(from)) {
        struct sl_list *first = from->next;
        sl_list_remove(first);
        sl_list_append(to, first);
    }
}

static void count_group(struct sl_etcd_group *g)
{
    struct sl_storage_op *op = NULL;
    g->count = 0;
    g->ask.writes = false;
    while ((op = sl_etcd_op_after(&g->ops, op)) != NULL) {
        g->count++;
        if (op->type == SL_STORAGE_BAR || op->write_count > 0) g->ask.writes = true;
    }
}

/* The first ones that fit as inner transactions stay; the others are sent after them, from
 * this slot: a lost try might still do them all. */
static void split(struct sl_etcd_group *g)
{
    const struct sl_storage *e = g->ask.e;
    struct sl_list all;
    uint32_t most = 0, n = 0;
    size_t bytes = BYTES_OF_GROUP;
    sl_list_init(&all);
    append_all(&g->ops, &all);
    append_all(&g->later, &all);
    while (!sl_list_empty(&all)) {
        struct sl_storage_op *op = sl_etcd_op_after(&all, NULL);
        struct cost c = cost_of(e, op);
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
    append_all(&all, &g->later);
    count_group(g);
    g->inner = g->count > 1;
}

/* --- The request --------------------------------------------------------------- */

static void own_ifs(struct sl_etcd_text *t, const struct sl_storage *e,
                    const struct sl_storage_op *op)
{
    struct sl_etcd_key k;
    if (op->type == SL_STORAGE_BAR) return;
    if (op->request.n > 0) {
        sl_etcd_key_request(e, &k, op->request);
        sl_etcd_if_absent(t, &k);
    }
#ifdef MUT_EBAR
    return;
#endif
#ifdef MUT_EROBAR
    if (op->write_count == 0) return;
#endif
    sl_etcd_key_bar(e, &k, op->term, op->id);
    sl_etcd_if_absent(t, &k);
}

static void own_writes(struct sl_etcd_text *t, const struct sl_storage *e,
                       const struct sl_storage_op *op, int64_t lease)
{
    struct sl_etcd_key k;
    char words[64];
    if (op->type == SL_STORAGE_BAR) {
        sl_etcd_key_bar(e, &k, op->term, op->id);
        sl_etcd_op_put(t, &k, (struct sl_bytes){"", 0}, lease);
        return;
    }
    for (uint32_t i = 0; i < op->write_count; i++) {
        const struct sl_storage_write *w = &op->writes[i];
        if (is_written_again(op, i)) continue;
        sl_etcd_key_data(e, &k, w->table, w->key);
        if (w->value.at != NULL) sl_etcd_op_put(t, &k, w->value, 0);
        else sl_etcd_op_delete(t, &k, NULL);
    }
    if (!keeps_request(op)) return;
    int n = snprintf(words, sizeof words, "%" PRIu64 " %" PRIu64, op->term, op->id);
    sl_etcd_key_request(e, &k, op->request);
    sl_etcd_op_put(t, &k, (struct sl_bytes){words, (size_t)n}, lease);
}

/* In this order judge() has it. */
static void own_reasons(struct sl_etcd_text *t, const struct sl_storage *e,
                        const struct sl_storage_op *op)
{
    struct sl_etcd_key k;
    sl_etcd_op_reign(t, e);
    if (op->type == SL_STORAGE_BAR) return;
    sl_etcd_key_bar(e, &k, op->term, op->id);
    sl_etcd_op_range(t, &k, NULL, SL_ETCD_RANGE_COUNT);
    if (op->request.n == 0) return;
    sl_etcd_key_request(e, &k, op->request);
    sl_etcd_op_range(t, &k, NULL, SL_ETCD_RANGE_KEYS);
}

static void put_number(struct sl_etcd_text *t, const struct sl_etcd_key *k,
                       uint64_t number, int64_t lease)
{
    char words[32];
    int n = snprintf(words, sizeof words, "%" PRIu64, number);
    sl_etcd_op_put(t, k, (struct sl_bytes){words, (size_t)n}, lease);
}

/* No other try of this group, and nobody's before it, has come in between. */
static void slot_if(struct sl_etcd_text *t, const struct sl_etcd_key *slot,
                    uint64_t revision)
{
#ifdef MUT_ESLOT
    return;
#endif
    sl_etcd_if_revision(t, slot, revision);
}

static void build_together(struct sl_etcd_group *g, int64_t lease)
{
    struct sl_etcd_text *t = &g->ask.body;
    const struct sl_storage *e = g->ask.e;
    struct sl_storage_op *op;
    struct sl_etcd_key slot;
    sl_etcd_key_slot(e, &slot, g->index);
    sl_etcd_txn_begin(t);
    sl_etcd_if_term(t, e, g->term);
    if (g->ask.writes) slot_if(t, &slot, g->slot_revision);
    for (op = NULL; (op = sl_etcd_op_after(&g->ops, op)) != NULL;) own_ifs(t, e, op);
    sl_etcd_txn_then(t);
    for (op = NULL; (op = sl_etcd_op_after(&g->ops, op)) != NULL;)
        own_writes(t, e, op, lease);
    if (g->ask.writes) put_number(t, &slot, g->number, lease);
    sl_etcd_txn_else(t);
    if (g->ask.writes) sl_etcd_op_range(t, &slot, NULL, SL_ETCD_RANGE_ALL);
    if (g->count == 1) own_reasons(t, e, sl_etcd_op_after(&g->ops, NULL));
    sl_etcd_txn_end(t);
}

static void build_inner(struct sl_etcd_group *g, const struct sl_storage_op *op,
                        uint32_t i, int64_t lease)
{
    struct sl_etcd_text *t = &g->ask.body;
    const struct sl_storage *e = g->ask.e;
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
    sl_etcd_key_slot(g->ask.e, &slot, g->index);
    end = slot;
    end.at[end.n++] = '/' + 1; /* Behind its parts. */
    sl_etcd_op_range(t, &slot, &end, SL_ETCD_RANGE_ALL);
}

static void build_each(struct sl_etcd_group *g, int64_t lease)
{
    struct sl_etcd_text *t = &g->ask.body;
    const struct sl_storage *e = g->ask.e;
    struct sl_etcd_key slot;
    uint32_t i = 0;
    sl_etcd_key_slot(e, &slot, g->index);
    sl_etcd_txn_begin(t);
    if (g->ask.writes) slot_if(t, &slot, g->slot_revision);
    sl_etcd_txn_then(t);
    for (struct sl_storage_op *op = NULL; (op = sl_etcd_op_after(&g->ops, op)) != NULL;)
        build_inner(g, op, i++, lease);
    if (g->ask.writes) put_number(t, &slot, g->number, lease);
    sl_etcd_txn_else(t);
    if (g->ask.writes) slot_range(t, g);
    sl_etcd_txn_end(t);
}

static void build_look(struct sl_etcd_group *g)
{
    struct sl_etcd_text *t = &g->ask.body;
    sl_etcd_text_clear(t);
    sl_etcd_txn_begin(t);
    sl_etcd_txn_then(t);
    slot_range(t, g);
    sl_etcd_txn_end(t);
}

/* --- The end of a group --------------------------------------------------------- */

static void end_group(struct sl_etcd_group *g)
{
    g->name_count = 0;
    g->count = 0;
    g->flat_number = g->number = 0;
    g->looking = false;
    sl_etcd_task_end(&g->ask);
}

static void fail_list(struct sl_storage *e, struct sl_list *list, int status)
{
    struct sl_storage_op *op;
    while ((op = sl_etcd_op_after(list, NULL)) != NULL) {
        e->stats.errors++;
        sl_etcd_op_done(e, op, status);
    }
}

static void fail_group(struct sl_etcd_group *g, int status)
{
    fail_list(g->ask.e, &g->ops, status);
    fail_list(g->ask.e, &g->later, status);
    end_group(g);
}

static void op_is_done(struct sl_etcd_group *g, struct sl_storage_op *op,
                       uint64_t revision)
{
    if (op->type == SL_STORAGE_COMMIT) op->result.revision = revision;
    if (op->type == SL_STORAGE_COMMIT && op->write_count > 0) g->ask.e->stats.commits++;
    sl_etcd_op_done(g->ask.e, op, SLUICE_OK);
}

static void all_are_done(struct sl_etcd_group *g, uint64_t revision)
{
    struct sl_storage_op *op;
    while ((op = sl_etcd_op_after(&g->ops, NULL)) != NULL) op_is_done(g, op, revision);
}

static void send_group(struct sl_etcd_group *g);

/* Those that were asked for are answered: what about the others? */
static void go_on(struct sl_etcd_group *g)
{
    g->number = 0;
    if (sl_list_empty(&g->ops) && sl_list_empty(&g->later)) {
        end_group(g);
        return;
    }
    split(g);
    g->unbuilt = true;
    send_group(g);
}

/* --- Sending --------------------------------------------------------------------- */

/* False: not now. */
static bool build(struct sl_etcd_group *g)
{
    struct sl_storage *e = g->ask.e;
    int64_t lease = 0;
    if (g->ask.writes) lease = sl_etcd_lease_take(e, 2 * (uint64_t)g->count + 1);
    if (g->ask.writes && lease == 0) return false;
    sl_etcd_text_clear(&g->ask.body);
    if (g->number == 0)
        g->number = ++e->number; /* A try like the one before has its own. */
    if (g->flat_number == 0) g->flat_number = g->number;
    g->lease = lease;
    if (g->inner) build_each(g, lease);
    else build_together(g, lease);
    g->unbuilt = false;
    return true;
}

static void send_group(struct sl_etcd_group *g)
{
    if (g->looking) build_look(g);
    else if (g->unbuilt && !build(g)) return;
    g->ask.looks = g->looking;
    if (!g->ask.body.failed) {
        sl_etcd_task_send(&g->ask);
        return;
    }
    g->unbuilt = true;
    if (g->ask.lost || g->looking) sl_etcd_task_later(&g->ask);
    else fail_group(g, SLUICE_ENOMEM);
}

/* --- The answer -------------------------------------------------------------------- */

static bool is_known(struct sl_storage *e, struct sl_storage_op *op, const json_t *txn,
                     size_t at)
{
    if (op->type != SL_STORAGE_COMMIT || op->request.n == 0) return false;
    const json_t *keys = sl_etcd_json_keys(txn, at + 2);
    if (json_array_size(keys) == 0) return false;
    e->stats.duplicates++;
    op->result.revision = sl_etcd_json_number(json_array_get(keys, 0), "mod_revision");
    sl_etcd_op_done(e, op, SLUICE_OK);
    return true;
}

static bool is_stale(struct sl_storage *e, struct sl_storage_op *op, const json_t *txn,
                     size_t at)
{
    sl_etcd_json_reign(e, sl_etcd_json_keys(txn, at), &op->result.term_record, NULL);
    if (op->result.term_record.term != 0 && op->result.term_record.term == op->term) {
        memset(&op->result, 0, sizeof op->result);
        return false;
    }
    op->result.term = op->result.term_record.term;
    sl_etcd_note_reign(e, &op->result.term_record);
    sl_etcd_op_done(e, op, SLUICE_ESTALE);
    return true;
}

/* Why was it not done? It is answered; false: there is no reason, so it may be asked again. */
static bool judge(struct sl_storage *e, struct sl_storage_op *op, const json_t *txn,
                  size_t at)
{
#ifdef MUT_EDEDUP
    if (is_stale(e, op, txn, at)) return true;
#endif
    if (is_known(e, op, txn, at)) return true;
    if (is_stale(e, op, txn, at)) return true;
    if (op->type != SL_STORAGE_COMMIT || sl_etcd_json_count(txn, at + 1) == 0)
        return false;
    sl_etcd_op_done(e, op, SLUICE_EBARRED);
    return true;
}

/* The number under a key, and its revision; 0: there is none. */
static uint64_t number_in(const json_t *keys, const struct sl_etcd_key *k,
                          uint64_t *revision)
{
    char words[32];
    *revision = 0;
    for (size_t i = 0; i < json_array_size(keys); i++) {
        const json_t *kv = json_array_get(keys, i);
        if (!sl_etcd_json_is(kv, k)) continue;
        *revision = sl_etcd_json_number(kv, "mod_revision");
        sl_etcd_json_text(kv, words, sizeof words);
        return strtoull(words, NULL, 10);
    }
    return 0;
}

/* An earlier try has done some of them: those are answered. */
static void settle_parts(struct sl_etcd_group *g, const json_t *keys)
{
    struct sl_storage_op *op, *after;
    struct sl_etcd_key part;
    uint64_t revision;
    uint32_t i = 0;
    for (op = sl_etcd_op_after(&g->ops, NULL); op != NULL; op = after, i++) {
        after = sl_etcd_op_after(&g->ops, op);
        sl_etcd_key_part(g->ask.e, &part, g->index, i);
        if (number_in(keys, &part, &revision) == g->number) op_is_done(g, op, revision);
    }
}

/* No earlier try can be done any more. */
static void slot_has_changed(struct sl_etcd_group *g, uint64_t revision)
{
    if (!g->ask.writes) return;
    g->slot_revision = revision;
    g->ask.lost = false;
    g->ask.e->stats.groups++;
}

/* What does the slot say: was an earlier try done? Then what is known by that is answered. */
static bool is_settled(struct sl_etcd_group *g, const json_t *keys)
{
    struct sl_etcd_key slot;
    sl_etcd_key_slot(g->ask.e, &slot, g->index);
    uint64_t number = number_in(keys, &slot, &g->slot_revision);
    if (number == 0) return false;
    if (number == g->flat_number) append_all(&g->later, &g->ops);
    else if (number != g->number) return false;
    slot_has_changed(g, g->slot_revision);
    if (g->inner && number == g->number) settle_parts(g, keys);
    else all_are_done(g, g->slot_revision);
    return true;
}

static void judge_each(struct sl_etcd_group *g, const json_t *txn, uint64_t revision)
{
    struct sl_storage_op *op, *after;
    size_t i = 0;
    for (op = sl_etcd_op_after(&g->ops, NULL); op != NULL; op = after, i++) {
        after = sl_etcd_op_after(&g->ops, op);
        const json_t *inner = sl_etcd_json_inner(txn, i);
        if (sl_etcd_json_succeeded(inner)) op_is_done(g, op, revision);
        else judge(g->ask.e, op, inner, 0);
    }
}

/* Whoever is not answered by this is asked for again, alone. */
static void on_answer(struct sl_etcd_group *g, const json_t *txn)
{
    uint64_t revision = sl_etcd_json_revision(txn);
    sl_etcd_note_revision(g->ask.e, revision);
    if (sl_etcd_json_succeeded(txn)) {
        slot_has_changed(g, revision);
        if (g->inner) judge_each(g, txn, revision);
        else all_are_done(g, revision);
    } else if (!g->ask.writes || !is_settled(g, sl_etcd_json_keys(txn, 0))) {
        if (g->count == 1)
            judge(g->ask.e, sl_etcd_op_after(&g->ops, NULL), txn,
                  g->ask.writes ? 1 : 0);
    }
    go_on(g);
}

/* etcd takes less at a time than we were told. */
static void ask_one_by_one(struct sl_etcd_group *g)
{
    struct sl_storage *e = g->ask.e;
    struct sl_list all;
    sl_list_init(&all);
    append_all(&g->ops, &all);
    append_all(&g->later, &all);
    for (struct sl_storage_op *op = NULL; (op = sl_etcd_op_after(&all, op)) != NULL;)
        e->alone++;
    append_all(&e->writes, &all);
    append_all(&all, &e->writes);
    end_group(g);
}

/* etcd may say that there is no room, and yet have done it: it did so on the last of it. It
 * is over, in any case, so that the slot says what it was. */
static void on_look(struct sl_etcd_group *g, enum sl_etcd_outcome verdict)
{
    json_t *txn = verdict == SL_ETCD_OUTCOME_ANSWER
                      ? sl_etcd_json_of(g->ask.call.answer)
                      : NULL;
    if (txn == NULL) {
        sl_etcd_task_later(&g->ask);
        return;
    }
    g->looking = false;
    g->unbuilt = true;
    if (is_settled(g, sl_etcd_json_keys(txn, 0))) go_on(g);
    else if (g->ask.lost)
        sl_etcd_task_later(&g->ask); /* An earlier try may come yet. */
    else fail_group(g, SLUICE_ENOSPC);
    json_decref(txn);
}

static void on_refusal(struct sl_etcd_group *g, int status)
{
    bool too_much = status == SLUICE_ETOOBIG || status == SLUICE_EWRITES;
    bool may_be_done = status == SLUICE_ENOSPC && g->ask.writes;
    if (may_be_done) {
        g->looking = true;
        send_group(g);
    } else if (g->ask.lost) sl_etcd_task_later(&g->ask);
    else if (too_much && g->count > 1) ask_one_by_one(g);
    else fail_group(g, status);
}

static void on_unknown(struct sl_etcd_group *g)
{
#ifdef MUT_ELOSTNO
    fail_group(g, SLUICE_EIO);
    return;
#endif
#ifdef MUT_ELOSTYES
    all_are_done(g, 1);
    go_on(g);
    return;
#endif
    g->ask.lost = true;
    sl_etcd_task_later(&g->ask);
}

static void on_done(struct sl_etcd_call *call)
{
    struct sl_etcd_group *g = call->owner;
    struct sl_storage *e = g->ask.e;
    int status = SLUICE_EIO;
    enum sl_etcd_outcome verdict = sl_etcd_outcome_of(&g->ask, &status);
    if (g->ask.gone) {
        end_group(g);
        return;
    }
    if (g->looking) {
        on_look(g, verdict);
        return;
    }
    switch (verdict) {
        case SL_ETCD_OUTCOME_ANSWER: {
            json_t *txn = sl_etcd_json_of(call->answer);
            if (txn != NULL) on_answer(g, txn);
            else on_unknown(g);
            json_decref(txn);
            break;
        }
        case SL_ETCD_OUTCOME_UNKNOWN: on_unknown(g); break;
        case SL_ETCD_OUTCOME_UNSENT:
            if (!g->ask.lost && sl_etcd_is_silent(e, sl_etcd_now()))
                fail_group(g, SLUICE_EIO);
            else sl_etcd_task_later(&g->ask);
            break;
        case SL_ETCD_OUTCOME_BUSY: sl_etcd_task_later(&g->ask); break;
        case SL_ETCD_OUTCOME_NO_LEASE:
            sl_etcd_lease_drop(e, g->lease);
            g->unbuilt = true;
            break;
        case SL_ETCD_OUTCOME_REFUSED: on_refusal(g, status); break;
    }
}

/* --- Groups are made ------------------------------------------------------------- */

static bool takes_one_more(struct sl_etcd_group *g, const struct sl_storage_op *op,
                           struct cost *sum)
{
    const struct sl_storage *e = g->ask.e;
    struct cost c = cost_of(e, op);
    if (g->count > 0 && (op->term != g->term || e->alone > 0)) return false;
    if (g->count >= e->settings.group_max || meets_another(e, op)) return false;
    c.ifs += sum->ifs;
    c.ops += sum->ops;
    c.bytes += sum->bytes;
    if (g->count > 0 && !fit_together(e, &c)) return false;
    *sum = c;
    return true;
}

/* From the head of those that wait, as many as can be done together. */
static void fill(struct sl_etcd_group *g)
{
    struct sl_storage *e = g->ask.e;
    struct sl_storage_op *op;
    struct cost sum = {0, 0, 0};
    g->count = 0;
    while ((op = sl_etcd_op_after(&e->writes, NULL)) != NULL &&
           op->type != SL_STORAGE_CLAIM) {
        int status = fits_alone(e, op);
        if (status != SLUICE_OK) {
            sl_etcd_op_done(e, op, status);
            continue;
        }
        if (!takes_one_more(g, op, &sum)) break;
        g->term = op->term;
        sl_list_remove(&op->place);
        sl_list_append(&g->ops, &op->place);
        take_names(g, op);
        g->count++;
    }
    if (e->alone > 0 && g->count > 0) e->alone--;
}

static bool start_group(struct sl_storage *e, struct sl_etcd_group *g)
{
    fill(g);
    if (g->count == 0) return false;
    count_group(g);
    g->inner = false;
    g->unbuilt = true;
    sl_etcd_task_begin(&g->ask);
    send_group(g);
    (void)e;
    return true;
}

static struct sl_etcd_group *free_slot(struct sl_storage *e)
{
    for (uint32_t i = 0; i < e->slot_count; i++)
        if (!e->slots[i].ask.busy) return &e->slots[i];
    return NULL;
}

/* A claim is not to overtake what was submitted before; but it does not wait for what nobody
 * knows the fate of. */
static bool may_claim(const struct sl_storage *e)
{
    for (uint32_t i = 0; i < e->slot_count; i++)
        if (e->slots[i].ask.busy && !e->slots[i].ask.lost) return false;
    return true;
}

static void start_waiting(struct sl_storage *e)
{
    struct sl_storage_op *op;
    while (!e->claim.ask.busy && (op = sl_etcd_op_after(&e->writes, NULL)) != NULL) {
        if (op->type == SL_STORAGE_CLAIM) {
            if (!may_claim(e)) return;
            sl_list_remove(&op->place);
            sl_etcd_term_claim(e, op);
            continue;
        }
        struct sl_etcd_group *g = free_slot(e);
        if (g == NULL || !start_group(e, g)) return;
    }
}

/* There is no lease for them, and will be none. */
void sl_etcd_groups_refuse(struct sl_storage *e, int status)
{
    for (uint32_t i = 0; i < e->slot_count; i++) {
        struct sl_etcd_group *g = &e->slots[i];
        if (g->ask.busy && !g->ask.flying && !g->ask.lost && !g->looking && g->unbuilt)
            fail_group(g, status);
    }
}

void sl_etcd_groups_pump(struct sl_storage *e, sl_ms now)
{
    for (uint32_t i = 0; i < e->slot_count; i++) {
        struct sl_etcd_group *g = &e->slots[i];
        if (g->ask.busy && !g->ask.flying &&
            (sl_etcd_task_is_due(&g->ask, now) ||
             (g->unbuilt && g->ask.retry_at == SL_NEVER)))
            send_group(g);
    }
    start_waiting(e);
    /* Who cannot even be sent. */
    if (!sl_etcd_is_silent(e, now)) return;
    fail_list(e, &e->writes, SLUICE_EIO);
    e->alone = 0;
    sl_etcd_groups_refuse(e, SLUICE_EIO);
}

void sl_etcd_groups_hurry(struct sl_storage *e, sl_ms now)
{
    for (uint32_t i = 0; i < e->slot_count; i++) {
        struct sl_etcd_group *g = &e->slots[i];
        sl_ms since = g->ask.since > e->hurry_since ? g->ask.since : e->hurry_since;
        if (!g->ask.busy || g->ask.gone || now < since + SL_HURRY_MS) continue;
        bool unknown = g->ask.lost || g->ask.flying || g->looking;
        int status = unknown ? SLUICE_ECLOSED : SLUICE_EIO;
        sl_etcd_note_silence(e, e->hurry_since);
        if (g->ask.flying) {
            g->ask.gone = true;
            fail_list(e, &g->ops, status);
            fail_list(e, &g->later, status);
        } else fail_group(g, status);
    }
}

/* --- Life ------------------------------------------------------------------------- */

int sl_etcd_groups_init(struct sl_storage *e)
{
    size_t names = (3 + NAMES_OF_ONE) * (size_t)e->settings.ops_max;
    e->slot_count = e->settings.group_max == 1 ? SLOTS_UNGROUPED : SLOTS;
    e->slots = calloc(e->slot_count, sizeof *e->slots);
    if (e->slots == NULL) return SLUICE_ENOMEM;
    for (uint32_t i = 0; i < e->slot_count; i++) {
        struct sl_etcd_group *g = &e->slots[i];
        sl_etcd_task_init(e, &g->ask, "/v3/kv/txn", on_done, g);
        sl_list_init(&g->ops);
        sl_list_init(&g->later);
        g->index = i;
        g->names = calloc(names, sizeof *g->names);
        if (g->names == NULL) return SLUICE_ENOMEM;
    }
    return SLUICE_OK;
}

void sl_etcd_groups_free(struct sl_storage *e)
{
    for (uint32_t i = 0; e->slots != NULL && i < e->slot_count; i++) {
        free(e->slots[i].names);
        sl_etcd_text_free(&e->slots[i].ask.body);
    }
    free(e->slots);
}
