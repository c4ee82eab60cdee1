/* group.c - executes many commits, bars and records in one etcd transaction, where each
 * succeeds or fails separately. This file also finds out the outcome of groups whose
 * answer was lost.
 *
 * Every try of a group compares the revision of its slot's key, and changes that key.
 * So at most one try succeeds, however late the others arrive, and the number in the
 * key shows which one. */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "storage/etcd/etcd_internal.h"

#define SLOTS 4
#define SLOTS_UNGROUPED 64

/* --- The end of a group --------------------------------------------------------- */

static void end_group(struct sl_etcd_group *g)
{
    assert(sl_list_empty(&g->ops) && sl_list_empty(&g->later));
    g->name_count = 0;
    g->count = 0;
    g->flat_number = g->number = 0;
    g->reads_slot = false;
    sl_etcd_task_end(&g->task);
}

static void fail_group(struct sl_etcd_group *g, int status)
{
    sl_etcd_ops_fail(g->task.e, &g->ops, status);
    sl_etcd_ops_fail(g->task.e, &g->later, status);
    end_group(g);
}

static void op_is_done(struct sl_etcd_group *g, struct sl_storage_op *op,
                       uint64_t revision)
{
    if (op->type != SL_STORAGE_BAR) op->result.revision = revision;
    if (op->type == SL_STORAGE_COMMIT && op->write_count > 0)
        g->task.e->stats.commits++;
    if (op->type == SL_STORAGE_RECORD) g->task.e->stats.records += op->write_count;
    sl_etcd_op_done(g->task.e, op, SLUICE_OK);
}

static void all_are_done(struct sl_etcd_group *g, uint64_t revision)
{
    struct sl_storage_op *op;
    while ((op = sl_storage_op_after(&g->ops, NULL)) != NULL)
        op_is_done(g, op, revision);
}

static void send_group(struct sl_etcd_group *g);

/* Send the unanswered operations again, each as an inner transaction. */
static void continue_group(struct sl_etcd_group *g)
{
    g->number = 0;
    if (sl_list_empty(&g->ops) && sl_list_empty(&g->later)) {
        end_group(g);
        return;
    }
    sl_etcd_group_split(g);
    g->unbuilt = true;
    send_group(g);
}

/* --- Sending --------------------------------------------------------------------- */

/* Build the body. Returns false if there is no lease yet. */
static bool build(struct sl_etcd_group *g)
{
    struct sl_etcd *e = g->task.e;
    int64_t lease = 0;
    if (g->task.writes) lease = sl_etcd_lease_take(e, 2 * (uint64_t)g->count + 1);
    if (g->task.writes && lease == 0) return false;
    /* A retry keeps its number. */
    if (g->number == 0) g->number = ++e->number;
    if (g->flat_number == 0) g->flat_number = g->number;
    g->lease = lease;
    sl_etcd_group_build(g, lease);
    g->unbuilt = false;
    return true;
}

static void send_group(struct sl_etcd_group *g)
{
    if (g->reads_slot) sl_etcd_group_build_slot_read(g);
    else if (g->unbuilt && !build(g)) return;
    g->task.only_reads = g->reads_slot;
    if (!g->task.body.failed) {
        sl_etcd_task_send(&g->task);
        return;
    }
    g->unbuilt = true;
    if (g->task.lost || g->reads_slot) sl_etcd_task_later(&g->task);
    else fail_group(g, SLUICE_ENOMEM);
}

/* --- The answer -------------------------------------------------------------------- */

static bool is_known(struct sl_etcd *e, struct sl_storage_op *op, const json_t *txn,
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

static bool is_stale(struct sl_etcd *e, struct sl_storage_op *op, const json_t *txn,
                     size_t at)
{
    sl_etcd_json_term(e, sl_etcd_json_keys(txn, at), &op->result.term_record, NULL);
    if (op->result.term_record.term != 0 && op->result.term_record.term == op->term) {
        memset(&op->result, 0, sizeof op->result);
        return false;
    }
    op->result.term = op->result.term_record.term;
    sl_etcd_note_term(e, &op->result.term_record);
    sl_etcd_op_done(e, op, SLUICE_ESTALE);
    return true;
}

/* Find out why etcd did not execute the operation, and answer the operation. Returns
 * false if there is no reason, so that the operation may be sent again. */
static bool judge(struct sl_etcd *e, struct sl_storage_op *op, const json_t *txn,
                  size_t at)
{
    if (is_known(e, op, txn, at)) return true;
    if (is_stale(e, op, txn, at)) return true;
    if (op->type != SL_STORAGE_COMMIT || sl_etcd_json_count(txn, at + 1) == 0)
        return false;
    sl_etcd_op_done(e, op, SLUICE_EBARRED);
    return true;
}

/* Return the number that is the value of a key, and set *revision to the key's
 * revision. Both are 0 if the key is absent. */
static uint64_t number_in(const json_t *keys, const struct sl_etcd_key *k,
                          uint64_t *revision)
{
    char value[32];
    *revision = 0;
    for (size_t i = 0; i < json_array_size(keys); i++) {
        const json_t *kv = json_array_get(keys, i);
        if (!sl_etcd_json_is(kv, k)) continue;
        *revision = sl_etcd_json_number(kv, "mod_revision");
        sl_etcd_json_text(kv, value, sizeof value);
        return strtoull(value, NULL, 10);
    }
    return 0;
}

/* Answer the operations that an earlier try has executed. */
static void settle_parts(struct sl_etcd_group *g, const json_t *keys)
{
    struct sl_storage_op *op, *after;
    struct sl_etcd_key part;
    uint64_t revision;
    uint32_t i = 0;
    for (op = sl_storage_op_after(&g->ops, NULL); op != NULL; op = after, i++) {
        after = sl_storage_op_after(&g->ops, op);
        sl_etcd_key_part(g->task.e, &part, g->index, i);
        if (number_in(keys, &part, &revision) == g->number) op_is_done(g, op, revision);
    }
}

/* Record that the slot's key has changed: from now on, no earlier try can succeed. */
static void slot_has_changed(struct sl_etcd_group *g, uint64_t revision)
{
    if (!g->task.writes) return;
    g->slot_revision = revision;
    g->task.lost = false;
    g->task.e->stats.groups++;
}

/* Return whether the slot's key shows that an earlier try succeeded. If so, answer the
 * operations of that try. */
static bool is_settled(struct sl_etcd_group *g, const json_t *keys)
{
    struct sl_etcd_key slot;
    sl_etcd_key_slot(g->task.e, &slot, g->index);
    uint64_t number = number_in(keys, &slot, &g->slot_revision);
    if (number == 0) return false;
    if (number == g->flat_number) sl_storage_move_ops(&g->later, &g->ops, SIZE_MAX);
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
    for (op = sl_storage_op_after(&g->ops, NULL); op != NULL; op = after, i++) {
        after = sl_storage_op_after(&g->ops, op);
        const json_t *inner = sl_etcd_json_inner(txn, i);
        if (sl_etcd_json_succeeded(inner)) op_is_done(g, op, revision);
        else judge(g->task.e, op, inner, 0);
    }
}

static void on_answer(struct sl_etcd_group *g, const json_t *txn)
{
    uint64_t revision = sl_etcd_json_revision(txn);
    sl_etcd_note_revision(g->task.e, revision);
    if (sl_etcd_json_succeeded(txn)) {
        slot_has_changed(g, revision);
        if (g->inner) judge_each(g, txn, revision);
        else all_are_done(g, revision);
    } else if (!g->task.writes || !is_settled(g, sl_etcd_json_keys(txn, 0))) {
        if (g->count == 1)
            judge(g->task.e, sl_storage_op_after(&g->ops, NULL), txn,
                  g->task.writes ? 1 : 0);
    }
    continue_group(g);
}

/* Send each operation alone, because etcd's limits are lower than our settings. */
static void send_one_by_one(struct sl_etcd_group *g)
{
    struct sl_etcd *e = g->task.e;
    struct sl_list all;
    sl_list_init(&all);
    sl_storage_move_ops(&g->ops, &all, SIZE_MAX);
    sl_storage_move_ops(&g->later, &all, SIZE_MAX);
    for (struct sl_storage_op *op = NULL; (op = sl_storage_op_after(&all, op)) != NULL;)
        e->alone++;
    sl_storage_move_ops(&e->writes, &all, SIZE_MAX);
    sl_storage_move_ops(&all, &e->writes, SIZE_MAX);
    end_group(g);
}

/* Handle the answer to a read of the slot's key. etcd may report "no space" for a
 * request that it has executed with its last space. The request is no longer pending,
 * so the slot's key shows whether etcd has executed it. */
static void on_slot_read(struct sl_etcd_group *g, enum sl_etcd_outcome outcome)
{
    json_t *txn = outcome == SL_ETCD_OUTCOME_ANSWER
                      ? sl_etcd_json_of(g->task.call.answer)
                      : NULL;
    if (txn == NULL) {
        sl_etcd_task_later(&g->task);
        return;
    }
    g->reads_slot = false;
    g->unbuilt = true;
    if (is_settled(g, sl_etcd_json_keys(txn, 0))) continue_group(g);
    else if (g->task.lost)
        sl_etcd_task_later(&g->task); /* An earlier try may still arrive. */
    else fail_group(g, SLUICE_ENOSPC);
    json_decref(txn);
}

static void on_refusal(struct sl_etcd_group *g, int status)
{
    bool too_much = status == SLUICE_ETOOBIG || status == SLUICE_EWRITES;
    bool may_be_done = status == SLUICE_ENOSPC && g->task.writes;
    if (may_be_done) {
        g->reads_slot = true;
        send_group(g);
    } else if (g->task.lost) sl_etcd_task_later(&g->task);
    else if (too_much && g->count > 1) send_one_by_one(g);
    else if (too_much && sl_storage_op_after(&g->ops, NULL)->type == SL_STORAGE_RECORD)
        fail_group(g, SLUICE_ETOOBIG);
    else fail_group(g, status);
}

static void on_unknown(struct sl_etcd_group *g)
{
    g->task.lost = true;
    sl_etcd_task_later(&g->task);
}

static void on_done(struct sl_etcd_call *call)
{
    struct sl_etcd_group *g = call->owner;
    struct sl_etcd *e = g->task.e;
    int status = SLUICE_EIO;
    enum sl_etcd_outcome outcome = sl_etcd_outcome_of(&g->task, &status);
    if (g->task.abandoned) {
        end_group(g);
        return;
    }
    if (g->reads_slot) {
        on_slot_read(g, outcome);
        return;
    }
    switch (outcome) {
        case SL_ETCD_OUTCOME_ANSWER: {
            json_t *txn = sl_etcd_json_of(call->answer);
            if (txn != NULL) on_answer(g, txn);
            else on_unknown(g);
            json_decref(txn);
            break;
        }
        case SL_ETCD_OUTCOME_UNKNOWN: on_unknown(g); break;
        case SL_ETCD_OUTCOME_UNSENT:
            if (!g->task.lost && sl_etcd_is_silent(e, sl_etcd_now()))
                fail_group(g, SLUICE_EIO);
            else sl_etcd_task_later(&g->task);
            break;
        case SL_ETCD_OUTCOME_BUSY: sl_etcd_task_later(&g->task); break;
        case SL_ETCD_OUTCOME_NO_LEASE:
            sl_etcd_lease_drop(e, g->lease);
            g->unbuilt = true;
            break;
        case SL_ETCD_OUTCOME_REFUSED: on_refusal(g, status); break;
    }
}

/* --- New groups -------------------------------------------------------------- */

static bool takes_one_more(struct sl_etcd_group *g, const struct sl_storage_op *op,
                           struct sl_etcd_cost *sum)
{
    const struct sl_etcd *e = g->task.e;
    struct sl_etcd_cost c = sl_etcd_cost_of(e, op);
    if (g->count > 0 && (op->term != g->term || e->alone > 0)) return false;
    if (g->count >= e->settings.group_max || sl_etcd_op_conflicts(e, op)) return false;
    if (!sl_etcd_group_has_names_left(g, op)) return false;
    c.ifs += sum->ifs;
    c.ops += sum->ops;
    c.bytes += sum->bytes;
    if (g->count > 0 && !sl_etcd_costs_fit(e, &c)) return false;
    *sum = c;
    return true;
}

/* Take operations from the head of the queue, as many as fit into one transaction. */
static void fill(struct sl_etcd_group *g)
{
    struct sl_etcd *e = g->task.e;
    struct sl_storage_op *op;
    struct sl_etcd_cost sum = {0, 0, 0};
    g->count = 0;
    while ((op = sl_storage_op_after(&e->writes, NULL)) != NULL &&
           op->type != SL_STORAGE_CLAIM) {
        int status = sl_etcd_fits_alone(e, op);
        if (status != SLUICE_OK) {
            sl_etcd_op_done(e, op, status);
            continue;
        }
        if (!takes_one_more(g, op, &sum)) break;
        g->term = op->term;
        sl_list_remove(&op->place);
        sl_list_append(&g->ops, &op->place);
        sl_etcd_group_take_names(g, op);
        g->count++;
    }
    if (e->alone > 0 && g->count > 0) e->alone--;
}

static bool start_group(struct sl_etcd_group *g)
{
    assert(!g->task.busy && sl_list_empty(&g->ops) && g->name_count == 0);
    fill(g);
    if (g->count == 0) return false;
    sl_etcd_group_count(g);
    g->inner = false;
    g->unbuilt = true;
    sl_etcd_task_begin(&g->task);
    send_group(g);
    return true;
}

static struct sl_etcd_group *free_slot(struct sl_etcd *e)
{
    for (uint32_t i = 0; i < e->slot_count; i++)
        if (!e->slots[i].task.busy) return &e->slots[i];
    return NULL;
}

/* Return whether a claim may be sent. A claim must not overtake operations that were
 * submitted before it, but it does not wait for groups whose answer was lost. */
static bool may_claim(const struct sl_etcd *e)
{
    for (uint32_t i = 0; i < e->slot_count; i++)
        if (e->slots[i].task.busy && !e->slots[i].task.lost) return false;
    return true;
}

static void start_waiting(struct sl_etcd *e)
{
    struct sl_storage_op *op;
    while (!e->claim.task.busy &&
           (op = sl_storage_op_after(&e->writes, NULL)) != NULL) {
        if (op->type == SL_STORAGE_CLAIM) {
            if (!may_claim(e)) return;
            sl_list_remove(&op->place);
            sl_etcd_term_claim(e, op);
            continue;
        }
        struct sl_etcd_group *g = free_slot(e);
        if (g == NULL || !start_group(g)) return;
    }
}

void sl_etcd_groups_refuse(struct sl_etcd *e, int status)
{
    for (uint32_t i = 0; i < e->slot_count; i++) {
        struct sl_etcd_group *g = &e->slots[i];
        if (g->task.busy && !g->task.in_flight && !g->task.lost && !g->reads_slot &&
            g->unbuilt)
            fail_group(g, status);
    }
}

void sl_etcd_groups_pump(struct sl_etcd *e, sl_ms now)
{
    for (uint32_t i = 0; i < e->slot_count; i++) {
        struct sl_etcd_group *g = &e->slots[i];
        if (g->task.busy && !g->task.in_flight &&
            (sl_etcd_task_is_due(&g->task, now) ||
             (g->unbuilt && g->task.retry_at_ms == SL_NEVER)))
            send_group(g);
    }
    start_waiting(e);
    if (!sl_etcd_is_silent(e, now)) return;
    sl_etcd_ops_fail(e, &e->writes, SLUICE_EIO);
    e->alone = 0;
    sl_etcd_groups_refuse(e, SLUICE_EIO);
}

void sl_etcd_groups_hurry(struct sl_etcd *e, sl_ms now)
{
    for (uint32_t i = 0; i < e->slot_count; i++) {
        struct sl_etcd_group *g = &e->slots[i];
        if (!sl_etcd_task_is_overdue(&g->task, now) || g->task.abandoned) continue;
        bool unknown = g->task.lost || g->task.in_flight || g->reads_slot;
        int status = unknown ? SLUICE_ECLOSED : SLUICE_EIO;
        sl_etcd_note_silence(e, e->hurry_since_ms);
        if (g->task.in_flight) {
            g->task.abandoned = true;
            sl_etcd_ops_fail(e, &g->ops, status);
            sl_etcd_ops_fail(e, &g->later, status);
        } else fail_group(g, status);
    }
}

/* --- Initialization --------------------------------------------------------------- */

int sl_etcd_groups_init(struct sl_etcd *e)
{
    size_t names = (3 + SL_ETCD_WRITES_FACTOR) * (size_t)e->settings.ops_max;
    e->slot_count = e->settings.group_max == 1 ? SLOTS_UNGROUPED : SLOTS;
    e->slots = calloc(e->slot_count, sizeof *e->slots);
    if (e->slots == NULL) return SLUICE_ENOMEM;
    for (uint32_t i = 0; i < e->slot_count; i++) {
        struct sl_etcd_group *g = &e->slots[i];
        sl_etcd_task_init(e, &g->task, "/v3/kv/txn", on_done, g);
        sl_list_init(&g->ops);
        sl_list_init(&g->later);
        g->index = i;
        g->name_capacity = names;
        g->names = calloc(names, sizeof *g->names);
        if (g->names == NULL) return SLUICE_ENOMEM;
    }
    return SLUICE_OK;
}

void sl_etcd_groups_free(struct sl_etcd *e)
{
    for (uint32_t i = 0; e->slots != NULL && i < e->slot_count; i++) {
        free(e->slots[i].names);
        sl_etcd_text_free(&e->slots[i].task.body);
    }
    free(e->slots);
}
