/* etcd_office.c - who is the keeper: claims and renewals. A renewal compares the beat, too:
 * one that was lost and comes late would put back the limits of an older one. */
#include "storage/etcd/etcd.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define RENEW_AGAIN_MAX 3

/* --- Claims -------------------------------------------------------------------- */

static void build_look(struct sl_etcd_text *t, const struct sl_storage *e)
{
    struct sl_etcd_key k;
    sl_etcd_key_of(e, &k, "format");
    sl_etcd_text_clear(t);
    sl_etcd_txn_begin(t);
    sl_etcd_txn_then(t);
    sl_etcd_op_range(t, &k, NULL, SL_ETCD_RANGE_ALL);
    sl_etcd_txn_end(t);
}

static void claim_ifs(struct sl_etcd_text *t, const struct sl_storage *e,
                      const struct sl_storage_op *op)
{
    struct sl_etcd_key k;
    sl_etcd_key_of(e, &k, "format");
    if (e->format == SL_ETCD_FORMAT_NONE) sl_etcd_if_absent(t, &k);
    else sl_etcd_if_value(t, &k, "EQUAL", (struct sl_bytes){SL_ETCD_FORMAT, 1});
#ifdef MUT_ECLAIM
    return;
#endif
    sl_etcd_key_of(e, &k, "keeper");
    if (op->term == 0) sl_etcd_if_absent(t, &k);
    else sl_etcd_if_term(t, e, op->term);
    sl_etcd_key_of(e, &k, "keeper/beat");
    if (op->heartbeat != 0) sl_etcd_if_revision(t, &k, op->heartbeat);
}

/* What is barred is barred in an older term: that refuses its commits by itself. */
static void drop_bars(struct sl_etcd_text *t, const struct sl_storage *e, uint64_t term)
{
    struct sl_etcd_key from, end;
    char name[32];
    sl_etcd_key_of(e, &from, "b/");
    snprintf(name, sizeof name, "b/%016" PRIx64, term);
    sl_etcd_key_of(e, &end, name);
    sl_etcd_op_delete(t, &from, &end);
}

static void build_claim(struct sl_etcd_text *t, const struct sl_storage *e)
{
    const struct sl_storage_op *op = e->claim.op;
    struct sl_etcd_key k;
    char words[100];
    int n = snprintf(words, sizeof words, "%" PRIu64 " %" PRIu32 " %s", op->term + 1,
                     op->node, e->claim.nonce);
    sl_etcd_text_clear(t);
    sl_etcd_txn_begin(t);
    claim_ifs(t, e, op);
    sl_etcd_txn_then(t);
    sl_etcd_op_reign(t, e); /* Before it is ours. */
    sl_etcd_key_of(e, &k, "keeper");
    sl_etcd_op_put(t, &k, (struct sl_bytes){words, (size_t)n}, 0);
    sl_etcd_key_of(e, &k, "format");
    sl_etcd_op_put(t, &k, (struct sl_bytes){SL_ETCD_FORMAT, 1}, 0);
    drop_bars(t, e, op->term + 1);
    sl_etcd_txn_else(t);
    sl_etcd_op_reign(t, e);
    sl_etcd_op_range(t, &k, NULL, SL_ETCD_RANGE_ALL);
    sl_etcd_txn_end(t);
}

static void build_settling(struct sl_etcd_text *t, const struct sl_storage *e)
{
    sl_etcd_text_clear(t);
    sl_etcd_txn_begin(t);
    sl_etcd_txn_then(t);
    sl_etcd_op_reign(t, e);
    sl_etcd_txn_end(t);
}

static void end_claim(struct sl_storage *e, int status)
{
    struct sl_storage_op *op = e->claim.op;
    e->claim.op = NULL;
    sl_etcd_task_end(&e->claim.ask);
    if (op == NULL) return; /* It was told before. */
    if (status != SLUICE_OK && status != SLUICE_ESTALE) e->stats.errors++;
    sl_etcd_op_done(e, op, status);
}

static void send_claim(struct sl_storage *e)
{
    struct sl_etcd_claim *c = &e->claim;
    c->looking = e->format != SL_ETCD_FORMAT_NONE && e->format != SL_ETCD_FORMAT_OURS;
    if (c->settling) build_settling(&c->ask.body, e);
    else if (c->looking) build_look(&c->ask.body, e);
    else build_claim(&c->ask.body, e);
    c->ask.looks = c->settling || c->looking;
    if (!c->ask.body.failed) sl_etcd_task_send(&c->ask);
    else if (c->ask.lost || c->settling) sl_etcd_task_later(&c->ask);
    else end_claim(e, SLUICE_ENOMEM);
}

void sl_etcd_term_claim(struct sl_storage *e, struct sl_storage_op *op)
{
    e->claim.op = op;
    e->claim.settling = false;
    snprintf(e->claim.nonce, sizeof e->claim.nonce, "%s.%" PRIu64, e->nonce,
             ++e->number);
    sl_etcd_task_begin(&e->claim.ask);
    send_claim(e);
}

/* It is ours. `before` has another term. */
static void claimed(struct sl_storage *e, const struct sl_storage_term *before)
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
    sl_etcd_note_reign(e, &now);
    sl_etcd_lease_take(e, 0); /* It will be needed. */
    end_claim(e, SLUICE_OK);
}

/* By an earlier try? */
static bool is_ours(struct sl_storage *e, const json_t *txn,
                    struct sl_storage_term *now)
{
    const struct sl_storage_op *op = e->claim.op;
    char nonce[SL_NONCE_BYTES];
    sl_etcd_json_reign(e, sl_etcd_json_keys(txn, 0), now, nonce);
    if (now->term != op->term + 1 || strcmp(nonce, e->claim.nonce) != 0) return false;
    now->node = e->seen.term == op->term ? e->seen.node : 0;
    claimed(e, now);
    return true;
}

static void claim_failed(struct sl_storage *e, const json_t *txn)
{
    struct sl_storage_op *op = e->claim.op;
    struct sl_storage_term now;
    if (is_ours(e, txn, &now)) return;
    enum sl_etcd_format before = e->format;
    bool ours = sl_etcd_format_is_ours(e, sl_etcd_json_keys(txn, 1));
    sl_etcd_note_reign(e, &now);
    if (!ours) {
        end_claim(e, SLUICE_EIO);
        return;
    }
    if (now.term == op->term &&
        (op->heartbeat == 0 || now.heartbeat == op->heartbeat) && e->format != before) {
        send_claim(e); /* It was only that. */
        return;
    }
    op->result.term = now.term;
    op->result.term_record = now;
    end_claim(e, SLUICE_ESTALE);
}

static void on_claim_answer(struct sl_storage *e, const json_t *txn)
{
    struct sl_storage_term now;
    sl_etcd_note_revision(e, sl_etcd_json_revision(txn));
    if (e->claim.settling) {
        e->claim.settling = false;
        if (is_ours(e, txn, &now)) return;
        if (!e->claim.ask.lost) end_claim(e, SLUICE_ENOSPC);
        else sl_etcd_task_later(&e->claim.ask);
        return;
    }
    if (e->claim.looking) {
        if (sl_etcd_format_is_ours(e, sl_etcd_json_keys(txn, 0))) send_claim(e);
        else end_claim(e, SLUICE_EIO);
        return;
    }
    if (sl_etcd_json_succeeded(txn)) {
        struct sl_storage_term before;
        sl_etcd_json_reign(e, sl_etcd_json_keys(txn, 0), &before, NULL);
        claimed(e, &before);
    } else claim_failed(e, txn);
}

/* Whether it was done has to be known: it is sent again. What only looks is not done. */
static void claim_is_unknown(struct sl_storage *e)
{
    if (e->claim.settling) {
        sl_etcd_task_later(&e->claim.ask);
        return;
    }
    if (e->claim.looking) {
        end_claim(e, SLUICE_EIO);
        return;
    }
    e->claim.ask.lost = true;
    sl_etcd_task_later(&e->claim.ask);
}

static void on_claim(struct sl_etcd_call *call)
{
    struct sl_storage *e = call->owner;
    struct sl_etcd_task *a = &e->claim.ask;
    int status = SLUICE_EIO;
    enum sl_etcd_outcome verdict = sl_etcd_outcome_of(a, &status);
    if (a->gone) {
        end_claim(e, status);
        return;
    }
    if (verdict == SL_ETCD_OUTCOME_ANSWER) {
        json_t *txn = sl_etcd_json_of(call->answer);
        if (txn != NULL) on_claim_answer(e, txn);
        else claim_is_unknown(e);
        json_decref(txn);
    } else if (verdict == SL_ETCD_OUTCOME_UNKNOWN || e->claim.settling)
        claim_is_unknown(e);
    else if (status == SLUICE_ENOSPC) {
        e->claim.settling = true; /* It may be done all the same: see etcd_group.c. */
        send_claim(e);
    } else if (a->lost || verdict == SL_ETCD_OUTCOME_BUSY) sl_etcd_task_later(a);
    else end_claim(e, status);
}

/* --- Renewals ------------------------------------------------------------------- */

static void build_renewal(struct sl_etcd_text *t, struct sl_storage *e)
{
    const struct sl_storage_op *op = e->renewal.op;
    struct sl_etcd_key beat;
    char words[100];
    int n = snprintf(words, sizeof words, "%" PRIu64 " %" PRIu64 " %" PRId64,
                     ++e->number, op->fence_limit, op->longest_ms);
    sl_etcd_key_of(e, &beat, "keeper/beat");
    sl_etcd_text_clear(t);
    sl_etcd_txn_begin(t);
    sl_etcd_if_term(t, e, op->term);
#ifndef MUT_EBEAT
    sl_etcd_if_revision(t, &beat, e->heartbeat);
#endif
    sl_etcd_txn_then(t);
    sl_etcd_op_put(t, &beat, (struct sl_bytes){words, (size_t)n}, 0);
    sl_etcd_op_reign(t, e);
    sl_etcd_txn_else(t);
    sl_etcd_op_reign(t, e);
    sl_etcd_txn_end(t);
}

static void end_renewal(struct sl_storage *e, int status)
{
    struct sl_storage_op *op = e->renewal.op;
    e->renewal.op = NULL;
    sl_etcd_task_end(&e->renewal.ask);
    if (op == NULL) return;
    if (status != SLUICE_OK && status != SLUICE_ESTALE) e->stats.errors++;
    sl_etcd_op_done(e, op, status);
}

static void send_renewal(struct sl_storage *e)
{
    build_renewal(&e->renewal.ask.body, e);
    if (e->renewal.ask.body.failed) end_renewal(e, SLUICE_ENOMEM);
    else sl_etcd_task_send(&e->renewal.ask);
}

static void on_renewal_answer(struct sl_storage *e, const json_t *txn)
{
    struct sl_storage_op *op = e->renewal.op;
    struct sl_storage_term *reign = &op->result.term_record;
    bool done = sl_etcd_json_succeeded(txn);
    sl_etcd_note_revision(e, sl_etcd_json_revision(txn));
    sl_etcd_json_reign(e, sl_etcd_json_keys(txn, done ? 1 : 0), reign, NULL);
    sl_etcd_note_reign(e, reign);
    e->heartbeat = reign->heartbeat;
    op->result.term = reign->term;
    if (done) end_renewal(e, SLUICE_OK);
    else if (reign->term != op->term || op->term == 0) end_renewal(e, SLUICE_ESTALE);
    else if (e->renewal.again++ < RENEW_AGAIN_MAX) {
        memset(&op->result, 0, sizeof op->result);
        send_renewal(e); /* One of ours that was lost was done: from its beat on. */
    } else end_renewal(e, SLUICE_EIO);
}

/* One that is not known to be done is not: who asked will ask again. */
static void on_renewal(struct sl_etcd_call *call)
{
    struct sl_storage *e = call->owner;
    int status = SLUICE_EIO;
    enum sl_etcd_outcome verdict = sl_etcd_outcome_of(&e->renewal.ask, &status);
    json_t *txn = NULL;
    if (verdict == SL_ETCD_OUTCOME_ANSWER && !e->renewal.ask.gone)
        txn = sl_etcd_json_of(call->answer);
    if (txn != NULL) on_renewal_answer(e, txn);
    else end_renewal(e, verdict == SL_ETCD_OUTCOME_REFUSED ? status : SLUICE_EIO);
    json_decref(txn);
}

static void next_renewal(struct sl_storage *e)
{
    struct sl_storage_op *op = sl_etcd_op_after(&e->renewals, NULL);
    if (op == NULL || e->renewal.ask.busy || e->claim.ask.busy) return;
    sl_list_remove(&op->place);
    e->renewal.op = op;
    e->renewal.again = 0;
    sl_etcd_task_begin(&e->renewal.ask);
    send_renewal(e);
}

/* --- Life ------------------------------------------------------------------------ */

void sl_etcd_term_pump(struct sl_storage *e, sl_ms now)
{
    if (e->claim.op != NULL && sl_etcd_task_is_due(&e->claim.ask, now)) {
        send_claim(e); /* The same again, nonce and all. */
    }
    next_renewal(e);
    struct sl_storage_op *op;
    while (sl_etcd_is_silent(e, now) &&
           (op = sl_etcd_op_after(&e->renewals, NULL)) != NULL) {
        e->stats.errors++;
        sl_etcd_op_done(e, op, SLUICE_EIO);
    }
}

void sl_etcd_term_hurry(struct sl_storage *e, sl_ms now)
{
    struct sl_etcd_claim *c = &e->claim;
    sl_ms since = c->ask.since > e->hurry_since ? c->ask.since : e->hurry_since;
    if (c->op != NULL && now >= since + SL_HURRY_MS) {
        struct sl_storage_op *op = c->op;
        bool unknown = c->ask.lost || c->ask.flying || c->settling;
        int status = unknown ? SLUICE_ECLOSED : SLUICE_EIO;
        sl_etcd_note_silence(e, e->hurry_since);
        if (c->ask.flying) {
            c->ask.gone = true;
            c->op = NULL;
            e->stats.errors++;
            sl_etcd_op_done(e, op, status);
        } else end_claim(e, status);
    }
    since = e->renewal.ask.since > e->hurry_since ? e->renewal.ask.since
                                                  : e->hurry_since;
    if (e->renewal.op != NULL && now >= since + SL_HURRY_MS) {
        struct sl_storage_op *op = e->renewal.op;
        sl_etcd_note_silence(e, e->hurry_since);
        e->renewal.ask.gone = true;
        e->renewal.op = NULL;
        e->stats.errors++;
        sl_etcd_op_done(e, op, SLUICE_EIO);
    }
}

void sl_etcd_term_init(struct sl_storage *e)
{
    sl_etcd_task_init(e, &e->claim.ask, "/v3/kv/txn", on_claim, e);
    sl_etcd_task_init(e, &e->renewal.ask, "/v3/kv/txn", on_renewal, e);
    e->claim.ask.writes = e->renewal.ask.writes = true;
}

void sl_etcd_term_free(struct sl_storage *e)
{
    sl_etcd_text_free(&e->claim.ask.body);
    sl_etcd_text_free(&e->renewal.ask.body);
}
