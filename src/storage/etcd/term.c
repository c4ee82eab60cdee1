/* term.c - claims the next term, renews the current one, and resigns it. */
#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "storage/etcd/etcd_internal.h"

#define RENEW_REPEATS_MAX 3

/* --- Claims -------------------------------------------------------------------- */

static void build_format_read(struct sl_etcd_text *t, const struct sl_etcd *e)
{
    struct sl_etcd_key k;
    sl_etcd_key_of(e, &k, "format");
    sl_etcd_text_clear(t);
    sl_etcd_txn_begin(t);
    sl_etcd_txn_then(t);
    sl_etcd_op_range(t, &k, NULL, SL_ETCD_RANGE_ALL);
    sl_etcd_txn_end(t);
}

static void claim_ifs(struct sl_etcd_text *t, const struct sl_etcd *e,
                      const struct sl_storage_op *op)
{
    struct sl_etcd_key k;
    sl_etcd_key_of(e, &k, "format");
    if (e->format == SL_ETCD_FORMAT_NONE) sl_etcd_if_absent(t, &k);
    else sl_etcd_if_value(t, &k, "EQUAL", (struct sl_bytes){SL_ETCD_FORMAT, 1});
    sl_etcd_key_of(e, &k, "keeper");
    if (op->term == 0) sl_etcd_if_absent(t, &k);
    else sl_etcd_if_term(t, e, op->term);
    sl_etcd_key_of(e, &k, "keeper/beat");
    if (op->heartbeat != 0) sl_etcd_if_revision(t, &k, op->heartbeat);
}

/* Delete the bars of older terms. Commits of those terms are rejected because of their
 * term. */
static void drop_bars(struct sl_etcd_text *t, const struct sl_etcd *e, uint64_t term)
{
    struct sl_etcd_key from, end;
    char name[32];
    sl_etcd_key_of(e, &from, "b/");
    snprintf(name, sizeof name, "b/%016" PRIx64, term);
    sl_etcd_key_of(e, &end, name);
    sl_etcd_op_delete(t, &from, &end);
}

static void build_claim(struct sl_etcd_text *t, const struct sl_etcd *e)
{
    const struct sl_storage_op *op = e->claim.op;
    struct sl_etcd_key k;
    char value[150];
    int n = snprintf(value, sizeof value, "%" PRIu64 " %" PRIu32 " %s %" PRId64,
                     op->term + 1, op->node, e->claim.nonce, op->clock_ms);
    sl_etcd_text_clear(t);
    sl_etcd_txn_begin(t);
    claim_ifs(t, e, op);
    sl_etcd_txn_then(t);
    sl_etcd_op_read_term(t, e); /* The previous term. */
    sl_etcd_key_of(e, &k, "keeper");
    sl_etcd_op_put(t, &k, (struct sl_bytes){value, (size_t)n}, 0);
    sl_etcd_key_of(e, &k, "format");
    sl_etcd_op_put(t, &k, (struct sl_bytes){SL_ETCD_FORMAT, 1}, 0);
    drop_bars(t, e, op->term + 1);
    sl_etcd_txn_else(t);
    sl_etcd_op_read_term(t, e);
    sl_etcd_op_range(t, &k, NULL, SL_ETCD_RANGE_ALL);
    sl_etcd_txn_end(t);
}

static void build_settling(struct sl_etcd_text *t, const struct sl_etcd *e)
{
    sl_etcd_text_clear(t);
    sl_etcd_txn_begin(t);
    sl_etcd_txn_then(t);
    sl_etcd_op_read_term(t, e);
    sl_etcd_txn_end(t);
}

static void end_claim(struct sl_etcd *e, int status)
{
    struct sl_storage_op *op = e->claim.op;
    e->claim.op = NULL;
    sl_etcd_task_end(&e->claim.task);
    if (op == NULL) return; /* hurry() has already failed it. */
    if (status != SLUICE_OK && status != SLUICE_ESTALE) e->stats.errors++;
    sl_etcd_op_done(e, op, status);
}

static void send_claim(struct sl_etcd *e)
{
    struct sl_etcd_claim *c = &e->claim;
    c->reads_format = e->format != SL_ETCD_FORMAT_NONE &&
                      e->format != SL_ETCD_FORMAT_OURS;
    if (c->settling) build_settling(&c->task.body, e);
    else if (c->reads_format) build_format_read(&c->task.body, e);
    else build_claim(&c->task.body, e);
    c->task.only_reads = c->settling || c->reads_format;
    if (!c->task.body.failed) sl_etcd_task_send(&c->task);
    else if (c->task.lost || c->settling) sl_etcd_task_later(&c->task);
    else end_claim(e, SLUICE_ENOMEM);
}

void sl_etcd_term_claim(struct sl_etcd *e, struct sl_storage_op *op)
{
    assert(op->type == SL_STORAGE_CLAIM && e->claim.op == NULL);
    e->claim.op = op;
    e->claim.settling = false;
    e->claim.seen = e->seen;
    snprintf(e->claim.nonce, sizeof e->claim.nonce, "%s.%" PRIu64, e->nonce,
             ++e->number);
    sl_etcd_task_begin(&e->claim.task);
    send_claim(e);
}

/* Report that the claim succeeded. `before` is the record of the previous term; its
 * term number is ignored. */
static void claimed(struct sl_etcd *e, const struct sl_storage_term *before)
{
    struct sl_storage_op *op = e->claim.op;
    op->result.term = op->term + 1;
    op->result.term_record = *before;
    op->result.term_record.term = op->term + 1;
    e->heartbeat = before->heartbeat;
    e->format = SL_ETCD_FORMAT_OURS;
    struct sl_storage_term now = *before;
    now.term = op->term + 1;
    now.node = op->node;
    now.clock_ms = op->clock_ms;
    now.ledgers = 0;
    now.resigned = false;
    sl_etcd_note_term(e, &now);
    sl_etcd_lease_take(e, 0); /* The first commit will need a lease. */
    end_claim(e, SLUICE_OK);
}

/* Return whether an earlier try of this claim succeeded; if so, report it. The claim has
 * overwritten the previous keeper's node and the clock of its claim, but not what its
 * renewals wrote. */
static bool is_ours(struct sl_etcd *e, const json_t *txn, struct sl_storage_term *now)
{
    const struct sl_storage_op *op = e->claim.op;
    const json_t *keys = sl_etcd_json_keys(txn, 0);
    char nonce[SL_ETCD_NONCE_BYTES];
    sl_etcd_json_term(e, keys, now, nonce);
    if (now->term != op->term + 1 || strcmp(nonce, e->claim.nonce) != 0) return false;
    struct sl_storage_term before = {.term = op->term};
    if (e->claim.seen.term == op->term) before = e->claim.seen;
    sl_etcd_json_beat(e, keys, &before);
    claimed(e, &before);
    return true;
}

static void claim_failed(struct sl_etcd *e, const json_t *txn)
{
    struct sl_storage_op *op = e->claim.op;
    struct sl_storage_term now;
    if (is_ours(e, txn, &now)) return;
    enum sl_etcd_format before = e->format;
    bool ours = sl_etcd_format_is_ours(e, sl_etcd_json_keys(txn, 1));
    sl_etcd_note_term(e, &now);
    if (!ours) {
        end_claim(e, SLUICE_EIO);
        return;
    }
    if (now.term == op->term &&
        (op->heartbeat == 0 || now.heartbeat == op->heartbeat) && e->format != before) {
        send_claim(e); /* Only the format differed from what we expected. */
        return;
    }
    op->result.term = now.term;
    op->result.term_record = now;
    end_claim(e, SLUICE_ESTALE);
}

static void on_claim_answer(struct sl_etcd *e, const json_t *txn)
{
    struct sl_storage_term now;
    sl_etcd_note_revision(e, sl_etcd_json_revision(txn));
    if (e->claim.settling) {
        e->claim.settling = false;
        if (is_ours(e, txn, &now)) return;
        if (!e->claim.task.lost) end_claim(e, SLUICE_ENOSPC);
        else sl_etcd_task_later(&e->claim.task);
        return;
    }
    if (e->claim.reads_format) {
        if (sl_etcd_format_is_ours(e, sl_etcd_json_keys(txn, 0))) send_claim(e);
        else end_claim(e, SLUICE_EIO);
        return;
    }
    if (sl_etcd_json_succeeded(txn)) {
        struct sl_storage_term before;
        sl_etcd_json_term(e, sl_etcd_json_keys(txn, 0), &before, NULL);
        claimed(e, &before);
    } else claim_failed(e, txn);
}

/* Handle an unknown outcome: send the claim again. A try that only reads the format
 * claims nothing, so it may simply fail. */
static void claim_is_unknown(struct sl_etcd *e)
{
    if (e->claim.settling) {
        sl_etcd_task_later(&e->claim.task);
        return;
    }
    if (e->claim.reads_format) {
        end_claim(e, SLUICE_EIO);
        return;
    }
    e->claim.task.lost = true;
    sl_etcd_task_later(&e->claim.task);
}

static void on_claim(struct sl_etcd_call *call)
{
    struct sl_etcd *e = call->owner;
    struct sl_etcd_task *a = &e->claim.task;
    int status = SLUICE_EIO;
    enum sl_etcd_outcome outcome = sl_etcd_outcome_of(a, &status);
    if (a->abandoned) {
        end_claim(e, status);
        return;
    }
    if (outcome == SL_ETCD_OUTCOME_ANSWER) {
        json_t *txn = sl_etcd_json_of(call->answer);
        if (txn != NULL) on_claim_answer(e, txn);
        else claim_is_unknown(e);
        json_decref(txn);
    } else if (outcome == SL_ETCD_OUTCOME_UNKNOWN || e->claim.settling)
        claim_is_unknown(e);
    else if (status == SLUICE_ENOSPC) {
        e->claim.settling =
            true; /* The claim may have succeeded; see on_refusal() in group.c. */
        send_claim(e);
    } else if (a->lost || outcome == SL_ETCD_OUTCOME_BUSY) sl_etcd_task_later(a);
    else end_claim(e, status);
}

/* --- Renewals and resignations ------------------------------------------------------ */

/* Build a renewal or a resignation. It compares the heartbeat: otherwise, a lost renewal
 * that arrives late would restore its older limits, or undo a resignation. */
static void build_renewal(struct sl_etcd_text *t, struct sl_etcd *e)
{
    const struct sl_storage_op *op = e->renewal.op;
    struct sl_etcd_key heartbeat;
    char value[150];
    int n = snprintf(value, sizeof value,
                     "%" PRIu64 " %" PRIu64 " %" PRId64 " %" PRIu64 " %" PRId64
                     " %" PRIu32 " %d",
                     ++e->number, op->fence_limit, op->longest_ms, op->term,
                     op->clock_ms, op->ledgers, op->type == SL_STORAGE_RESIGN);
    sl_etcd_key_of(e, &heartbeat, "keeper/beat");
    sl_etcd_text_clear(t);
    sl_etcd_txn_begin(t);
    sl_etcd_if_term(t, e, op->term);
    sl_etcd_if_revision(t, &heartbeat, e->heartbeat);
    sl_etcd_txn_then(t);
    sl_etcd_op_put(t, &heartbeat, (struct sl_bytes){value, (size_t)n}, 0);
    sl_etcd_op_read_term(t, e);
    sl_etcd_txn_else(t);
    sl_etcd_op_read_term(t, e);
    sl_etcd_txn_end(t);
}

static void end_renewal(struct sl_etcd *e, int status)
{
    struct sl_storage_op *op = e->renewal.op;
    e->renewal.op = NULL;
    sl_etcd_task_end(&e->renewal.task);
    if (op == NULL) return;
    if (status != SLUICE_OK && status != SLUICE_ESTALE) e->stats.errors++;
    sl_etcd_op_done(e, op, status);
}

static void send_renewal(struct sl_etcd *e)
{
    build_renewal(&e->renewal.task.body, e);
    if (e->renewal.task.body.failed) end_renewal(e, SLUICE_ENOMEM);
    else sl_etcd_task_send(&e->renewal.task);
}

static void on_renewal_answer(struct sl_etcd *e, const json_t *txn)
{
    struct sl_storage_op *op = e->renewal.op;
    struct sl_storage_term *term = &op->result.term_record;
    bool done = sl_etcd_json_succeeded(txn), resigns = op->type == SL_STORAGE_RESIGN;
    sl_etcd_note_revision(e, sl_etcd_json_revision(txn));
    sl_etcd_json_term(e, sl_etcd_json_keys(txn, done ? 1 : 0), term, NULL);
    sl_etcd_note_term(e, term);
    /* The key exists, so the comparison with 0 lets no renewal follow a resignation. */
    e->heartbeat = term->resigned ? 0 : term->heartbeat;
    op->result.term = term->term;
    bool current = term->term == op->term && op->term != 0;
    if (done || (current && resigns && term->resigned)) end_renewal(e, SLUICE_OK);
    else if (!current || term->resigned) end_renewal(e, SLUICE_ESTALE);
    else if (e->renewal.repeats++ < RENEW_REPEATS_MAX) {
        memset(&op->result, 0, sizeof op->result);
        /* An earlier renewal succeeded, but its reply was lost. Send this operation again,
         * and compare with the heartbeat that the earlier one wrote. */
        send_renewal(e);
    } else end_renewal(e, SLUICE_EIO);
}

/* Handle the answer to a renewal or a resignation. If its outcome is unknown, it counts as
 * failed: the keeper renews again anyway, and may resign again. */
static void on_renewal(struct sl_etcd_call *call)
{
    struct sl_etcd *e = call->owner;
    int status = SLUICE_EIO;
    enum sl_etcd_outcome outcome = sl_etcd_outcome_of(&e->renewal.task, &status);
    json_t *txn = NULL;
    if (outcome == SL_ETCD_OUTCOME_ANSWER && !e->renewal.task.abandoned)
        txn = sl_etcd_json_of(call->answer);
    if (txn != NULL) on_renewal_answer(e, txn);
    else end_renewal(e, outcome == SL_ETCD_OUTCOME_REFUSED ? status : SLUICE_EIO);
    json_decref(txn);
}

static void next_renewal(struct sl_etcd *e)
{
    struct sl_storage_op *op = sl_storage_op_after(&e->renewals, NULL);
    if (op == NULL || e->renewal.task.busy || e->claim.task.busy) return;
    assert(op->type == SL_STORAGE_RENEW || op->type == SL_STORAGE_RESIGN);
    assert(e->renewal.op == NULL);
    sl_list_remove(&op->place);
    e->renewal.op = op;
    e->renewal.repeats = 0;
    sl_etcd_task_begin(&e->renewal.task);
    send_renewal(e);
}

/* --- Initialization and timers --------------------------------------------------- */

void sl_etcd_term_pump(struct sl_etcd *e, sl_ms now)
{
    if (e->claim.op != NULL && sl_etcd_task_is_due(&e->claim.task, now))
        send_claim(e); /* Sends the same nonce again. */
    next_renewal(e);
    if (sl_etcd_is_silent(e, now)) sl_etcd_ops_fail(e, &e->renewals, SLUICE_EIO);
}

static void hurry_claim(struct sl_etcd *e)
{
    struct sl_etcd_claim *c = &e->claim;
    struct sl_storage_op *op = c->op;
    bool unknown = c->task.lost || c->task.in_flight || c->settling;
    int status = unknown ? SLUICE_ECLOSED : SLUICE_EIO;
    sl_etcd_note_silence(e, e->hurry_since_ms);
    if (!c->task.in_flight) {
        end_claim(e, status);
        return;
    }
    c->task.abandoned = true;
    c->op = NULL;
    sl_etcd_op_fail(e, op, status);
}

static void hurry_renewal(struct sl_etcd *e)
{
    struct sl_storage_op *op = e->renewal.op;
    sl_etcd_note_silence(e, e->hurry_since_ms);
    e->renewal.task.abandoned = true;
    e->renewal.op = NULL;
    sl_etcd_op_fail(e, op, SLUICE_EIO);
}

void sl_etcd_term_hurry(struct sl_etcd *e, sl_ms now)
{
    if (e->claim.op != NULL && sl_etcd_task_is_overdue(&e->claim.task, now))
        hurry_claim(e);
    if (e->renewal.op != NULL && sl_etcd_task_is_overdue(&e->renewal.task, now))
        hurry_renewal(e);
}

void sl_etcd_term_init(struct sl_etcd *e)
{
    sl_etcd_task_init(e, &e->claim.task, "/v3/kv/txn", on_claim, e);
    sl_etcd_task_init(e, &e->renewal.task, "/v3/kv/txn", on_renewal, e);
    e->claim.task.writes = e->renewal.task.writes = true;
}

void sl_etcd_term_free(struct sl_etcd *e)
{
    sl_etcd_text_free(&e->claim.task.body);
    sl_etcd_text_free(&e->renewal.task.body);
}
