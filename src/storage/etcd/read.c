/* read.c - reads rows, outcomes and terms. It combines many reads into one etcd
 * transaction, which is linearizable. */
#include <stdlib.h>
#include <string.h>

#include "storage/etcd/etcd_internal.h"

#define TOGETHER_MAX 64

/* Copy the value of a key. Returns OK, ENOMEM, or EIO if the value is not base64. */
static int value_of(const json_t *kv, struct sl_bytes *out)
{
    const char *text = json_string_value(json_object_get(kv, "value"));
    if (text == NULL) text = "";
    char *bytes = malloc(strlen(text) + 1); /* Not NULL even for an empty value. */
    if (bytes == NULL) return SLUICE_ENOMEM;
    if (!sl_etcd_base64_read(text, bytes, &out->n)) {
        free(bytes);
        return SLUICE_EIO;
    }
    out->at = bytes;
    return SLUICE_OK;
}

/* --- Reads in one transaction ------------------------------------------------ */

static void build_reads(struct sl_etcd_reading *r)
{
    struct sl_etcd *e = r->task.e;
    struct sl_etcd_text *t = &r->task.body;
    struct sl_etcd_key k;
    sl_etcd_text_clear(t);
    sl_etcd_txn_begin(t);
    sl_etcd_txn_then(t);
    for (struct sl_storage_op *op = NULL;
         (op = sl_storage_op_after(&r->ops, op)) != NULL;) {
        if (op->type == SL_STORAGE_READ_TERM) {
            sl_etcd_op_read_term(t, e);
            sl_etcd_key_of(e, &k, "format");
            sl_etcd_op_range(t, &k, NULL, SL_ETCD_RANGE_ALL);
        } else if (op->type == SL_STORAGE_OUTCOME) {
            sl_etcd_key_request(e, &k, op->request);
            sl_etcd_op_range(t, &k, NULL, SL_ETCD_RANGE_KEYS);
        } else {
            sl_etcd_key_data(e, &k, op->table, op->key);
            sl_etcd_op_range(t, &k, NULL, SL_ETCD_RANGE_ALL);
        }
    }
    sl_etcd_txn_end(t);
}

static void end_reading(struct sl_etcd_reading *r, int status)
{
    sl_etcd_ops_fail(r->task.e, &r->ops, status);
    sl_etcd_task_end(&r->task);
}

static void answer_term(struct sl_etcd *e, struct sl_storage_op *op, const json_t *txn,
                        size_t at)
{
    sl_etcd_json_term(e, sl_etcd_json_keys(txn, at), &op->result.term_record, NULL);
    if (!sl_etcd_format_is_ours(e, sl_etcd_json_keys(txn, at + 1))) {
        sl_etcd_op_fail(e, op, SLUICE_EIO);
        return;
    }
    op->result.term = op->result.term_record.term;
    sl_etcd_note_term(e, &op->result.term_record);
    sl_etcd_op_done(e, op, SLUICE_OK);
}

static void answer_read(struct sl_etcd *e, struct sl_storage_op *op, const json_t *txn,
                        size_t at)
{
    const json_t *keys = sl_etcd_json_keys(txn, at);
    int status = SLUICE_OK;
    if (json_array_size(keys) > 0) {
        const json_t *kv = json_array_get(keys, 0);
        op->result.found = true;
        op->result.revision = sl_etcd_json_number(kv, "mod_revision");
        if (op->type == SL_STORAGE_READ) status = value_of(kv, &op->result.value);
    }
    if (status == SLUICE_OK) sl_etcd_op_done(e, op, SLUICE_OK);
    else sl_etcd_op_fail(e, op, status);
}

static void answer_reads(struct sl_etcd_reading *r, const json_t *txn)
{
    struct sl_storage_op *op;
    size_t at = 0;
    sl_etcd_note_revision(r->task.e, sl_etcd_json_revision(txn));
    while ((op = sl_storage_op_after(&r->ops, NULL)) != NULL) {
        bool term = op->type == SL_STORAGE_READ_TERM;
        if (term) answer_term(r->task.e, op, txn, at);
        else answer_read(r->task.e, op, txn, at);
        at += term ? 2 : 1;
    }
    sl_etcd_task_end(&r->task);
}

/* Put the operations back at the head of the queue, to read each one alone, because the
 * answer to all of them together is too long. */
static void read_one_by_one(struct sl_etcd_reading *r)
{
    struct sl_etcd *e = r->task.e;
    while (!sl_list_empty(&r->ops)) {
        struct sl_list *last = r->ops.prev;
        sl_list_remove(last);
        sl_list_append(e->reads.next, last);
        e->reads_alone++;
    }
    sl_etcd_task_end(&r->task);
}

static void on_reads(struct sl_etcd_call *call)
{
    struct sl_etcd_reading *r = call->owner;
    int status = SLUICE_EIO;
    enum sl_etcd_outcome outcome = sl_etcd_outcome_of(&r->task, &status);
    json_t *txn = NULL;
    if (call->too_big && r->count > 1) {
        read_one_by_one(r);
        return;
    }
    if (call->too_big) status = SLUICE_ETOOBIG;
    else if (outcome == SL_ETCD_OUTCOME_ANSWER) {
        txn = sl_etcd_json_of(call->answer);
        if (txn != NULL) answer_reads(r, txn);
        json_decref(txn);
    }
    if (txn == NULL) end_reading(r, status);
}

static void start_reading(struct sl_etcd *e, struct sl_etcd_reading *r)
{
    struct sl_storage_op *op;
    uint32_t most = e->settings.ops_max / 2;
    if (most > TOGETHER_MAX) most = TOGETHER_MAX;
    if (e->reads_alone > 0) {
        e->reads_alone--;
        most = 1;
    }
    r->count = 0;
    while (r->count < most && (op = sl_storage_op_after(&e->reads, NULL)) != NULL) {
        sl_list_remove(&op->place);
        sl_list_append(&r->ops, &op->place);
        r->count++;
    }
    sl_etcd_task_begin(&r->task);
    build_reads(r);
    if (r->task.body.failed) end_reading(r, SLUICE_ENOMEM);
    else sl_etcd_task_send(&r->task);
}

/* --- The queue --------------------------------------------------------------- */

/* Release OUTCOME operations whose request is not being committed. The others wait
 * until the commit has ended. */
static void release_held(struct sl_etcd *e)
{
    struct sl_storage_op *op, *after;
    for (op = sl_storage_op_after(&e->held, NULL); op != NULL; op = after) {
        after = sl_storage_op_after(&e->held, op);
        if (sl_etcd_request_in_flight(e, op->request)) continue;
        sl_list_remove(&op->place);
        sl_list_append(&e->reads, &op->place);
    }
}

void sl_etcd_reads_submit(struct sl_etcd *e, struct sl_storage_op *op)
{
    struct sl_list *to = &e->reads;
    if (op->type == SL_STORAGE_SCAN || op->type == SL_STORAGE_JOURNAL) to = &e->scans;
    if (op->type == SL_STORAGE_OUTCOME) to = &e->held;
    sl_list_append(to, &op->place);
    if (!sl_storage_names_fit(op)) sl_etcd_op_done(e, op, SLUICE_ETOOBIG);
    else if (op->type == SL_STORAGE_OUTCOME && op->request.n == 0)
        sl_etcd_op_done(e, op, SLUICE_OK); /* No request, so not found. */
}

void sl_etcd_reads_pump(struct sl_etcd *e, sl_ms now)
{
    release_held(e);
    for (int i = 0; i < SL_ETCD_READ_SLOTS && !sl_list_empty(&e->reads); i++)
        if (!e->readings[i].task.busy) start_reading(e, &e->readings[i]);
    if (!sl_etcd_is_silent(e, now)) return;
    sl_etcd_ops_fail(e, &e->reads, SLUICE_EIO);
    sl_etcd_ops_fail(e, &e->held, SLUICE_EIO);
    e->reads_alone = 0;
}

void sl_etcd_reads_hurry(struct sl_etcd *e, sl_ms now)
{
    for (int i = 0; i < SL_ETCD_READ_SLOTS; i++) {
        struct sl_etcd_reading *r = &e->readings[i];
        if (!sl_etcd_task_is_overdue(&r->task, now)) continue;
        sl_etcd_note_silence(e, e->hurry_since_ms);
        sl_etcd_ops_fail(e, &r->ops, SLUICE_EIO);
    }
}

void sl_etcd_reads_init(struct sl_etcd *e)
{
    for (int i = 0; i < SL_ETCD_READ_SLOTS; i++) {
        struct sl_etcd_reading *r = &e->readings[i];
        sl_etcd_task_init(e, &r->task, "/v3/kv/txn", on_reads, r);
        r->task.call.repeatable = true;
        sl_list_init(&r->ops);
    }
}

void sl_etcd_reads_free(struct sl_etcd *e)
{
    for (int i = 0; i < SL_ETCD_READ_SLOTS; i++)
        sl_etcd_text_free(&e->readings[i].task.body);
}
