/* etcd_read.c - what only reads: rows, outcomes, looks; many in one transaction of etcd's,
 * which is linearizable. Scans go alone, in pages of one revision. */
#include "storage/etcd/etcd.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define TOGETHER_MAX 64
#define PAGE_ROWS 32 /* The first; if it is too much for an answer, half of it. */
#define PAGE_ROWS_MAX 4096
#define PAGE_BYTES 262144 /* About: read in a few milliseconds, and all wait so long. */
#define ANEW_MAX 5 /* So often a scan begins again if its revision was compacted. */

static bool name_fits(const struct sl_storage_op *op)
{
    return op->table.n <= SL_STORAGE_NAME_BYTES_MAX &&
           op->key.n <= SL_STORAGE_NAME_BYTES_MAX - op->table.n &&
           op->request.n <= SL_STORAGE_REQUEST_BYTES_MAX;
}

static void fail(struct sl_storage *e, struct sl_storage_op *op, int status)
{
    memset(&op->result, 0, sizeof op->result);
    e->stats.errors++;
    sl_etcd_op_done(e, op, status);
}

/* A value, in memory of its own. ENOMEM, or EIO if it is none. */
static int value_of(const json_t *kv, struct sl_bytes *out)
{
    const char *text = json_string_value(json_object_get(kv, "value"));
    if (text == NULL) text = "";
    char *bytes = malloc(strlen(text) + 1); /* Also of nothing there is something. */
    if (bytes == NULL) return SLUICE_ENOMEM;
    if (!sl_base64_read(text, bytes, &out->n)) {
        free(bytes);
        return SLUICE_EIO;
    }
    out->at = bytes;
    return SLUICE_OK;
}

/* --- Many at a time -------------------------------------------------------------- */

static void build_reads(struct sl_etcd_reading *r)
{
    struct sl_storage *e = r->ask.e;
    struct sl_etcd_text *t = &r->ask.body;
    struct sl_etcd_key k;
    sl_etcd_text_clear(t);
    sl_etcd_txn_begin(t);
    sl_etcd_txn_then(t);
    for (struct sl_storage_op *op = NULL;
         (op = sl_etcd_op_after(&r->ops, op)) != NULL;) {
        if (op->type == SL_STORAGE_READ_TERM) {
            sl_etcd_op_reign(t, e);
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
    struct sl_storage_op *op;
    while ((op = sl_etcd_op_after(&r->ops, NULL)) != NULL) fail(r->ask.e, op, status);
    sl_etcd_task_end(&r->ask);
}

static void answer_look(struct sl_storage *e, struct sl_storage_op *op,
                        const json_t *txn, size_t at)
{
    sl_etcd_json_reign(e, sl_etcd_json_keys(txn, at), &op->result.term_record, NULL);
    if (!sl_etcd_format_is_ours(e, sl_etcd_json_keys(txn, at + 1))) {
        fail(e, op, SLUICE_EIO);
        return;
    }
    op->result.term = op->result.term_record.term;
    sl_etcd_note_reign(e, &op->result.term_record);
    sl_etcd_op_done(e, op, SLUICE_OK);
}

static void answer_read(struct sl_storage *e, struct sl_storage_op *op,
                        const json_t *txn, size_t at)
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
    else fail(e, op, status);
}

static void answer_reads(struct sl_etcd_reading *r, const json_t *txn)
{
    struct sl_storage_op *op;
    size_t at = 0;
    sl_etcd_note_revision(r->ask.e, sl_etcd_json_revision(txn));
    while ((op = sl_etcd_op_after(&r->ops, NULL)) != NULL) {
        bool look = op->type == SL_STORAGE_READ_TERM;
        if (look) answer_look(r->ask.e, op, txn, at);
        else answer_read(r->ask.e, op, txn, at);
        at += look ? 2 : 1;
    }
    sl_etcd_task_end(&r->ask);
}

/* Together they are more than an answer holds. */
static void ask_one_by_one(struct sl_etcd_reading *r)
{
    struct sl_storage *e = r->ask.e;
    while (!sl_list_empty(&r->ops)) { /* The last one first: to the head. */
        struct sl_list *last = r->ops.prev;
        sl_list_remove(last);
        sl_list_append(e->reads.next, last);
        e->reads_alone++;
    }
    sl_etcd_task_end(&r->ask);
}

static void on_reads(struct sl_etcd_call *call)
{
    struct sl_etcd_reading *r = call->owner;
    int status = SLUICE_EIO;
    enum sl_etcd_outcome verdict = sl_etcd_outcome_of(&r->ask, &status);
    json_t *txn = NULL;
    if (call->too_big && r->count > 1) {
        ask_one_by_one(r);
        return;
    }
    if (call->too_big) status = SLUICE_ETOOBIG;
    else if (verdict == SL_ETCD_OUTCOME_ANSWER) {
        txn = sl_etcd_json_of(call->answer);
        if (txn != NULL) answer_reads(r, txn);
        json_decref(txn);
    }
    if (txn == NULL) end_reading(r, status);
}

static void start_reading(struct sl_storage *e, struct sl_etcd_reading *r)
{
    struct sl_storage_op *op;
    uint32_t most = e->settings.ops_max / 2;
    if (most > TOGETHER_MAX) most = TOGETHER_MAX;
    if (e->reads_alone > 0) {
        e->reads_alone--;
        most = 1;
    }
    r->count = 0;
    while (r->count < most && (op = sl_etcd_op_after(&e->reads, NULL)) != NULL) {
        sl_list_remove(&op->place);
        sl_list_append(&r->ops, &op->place);
        r->count++;
    }
    sl_etcd_task_begin(&r->ask);
    build_reads(r);
    if (r->ask.body.failed) end_reading(r, SLUICE_ENOMEM);
    else sl_etcd_task_send(&r->ask);
}

/* --- Scans ------------------------------------------------------------------------ */

static void clear_scan(struct sl_etcd_scanning *s)
{
    free(s->rows);
    free(s->bytes);
    s->rows = NULL;
    s->bytes = NULL;
    s->count = s->room = 0;
    s->n = s->bytes_room = 0;
    s->revision = 0;
}

static void end_scan(struct sl_etcd_scanning *s, int status)
{
    struct sl_storage_op *op = s->op;
    clear_scan(s);
    s->op = NULL;
    sl_etcd_task_end(&s->ask);
    if (op == NULL) return;
    if (status == SLUICE_OK || status == SLUICE_ETOOBIG)
        sl_etcd_op_done(s->ask.e, op, status);
    else fail(s->ask.e, op, status);
}

/* An answer that is longer has more than bytes_max in it, whatever the rest is. */
static size_t page_bytes(const struct sl_etcd_scanning *s)
{
    if (s->op->bytes_max == 0) return 0;
    size_t row = (s->ask.e->prefix.n + SL_STORAGE_NAME_BYTES_MAX) * 4 / 3 + 256;
    return s->op->bytes_max / 3 * 4 + s->page * row + 4096;
}

static void build_page(struct sl_etcd_scanning *s)
{
    struct sl_etcd_text *t = &s->ask.body;
    struct sl_etcd_key end;
    char words[120];
    size_t n;
    sl_etcd_key_data(s->ask.e, &end, s->op->table, (struct sl_bytes){NULL, 0});
    struct sl_bytes prefix = {end.at, end.n};
    sl_prefix_end(prefix, end.at, &n);
    end.n = n;
    /* An operation of a transaction, without what is around it. */
    sl_etcd_text_clear(t);
    sl_etcd_op_range(t, &s->next, &end, SL_ETCD_RANGE_ALL);
    if (t->failed) return;
    size_t around = strlen("{\"request_range\":");
    t->n -= around + 2;
    memmove(t->at, t->at + around, t->n);
    t->at[t->n] = '\0';
    uint32_t limit = s->page;
    if (s->op->rows_max - s->count < limit) limit = s->op->rows_max - s->count + 1;
    snprintf(words, sizeof words,
             ",\"limit\":\"%" PRIu32 "\",\"revision\":\"%" PRIu64 "\"}", limit,
             s->revision);
    sl_etcd_text_add(t, words);
}

static void send_page(struct sl_etcd_scanning *s)
{
    build_page(s);
    s->ask.call.answer_bytes_max = page_bytes(s);
    if (s->ask.body.failed) end_scan(s, SLUICE_ENOMEM);
    else sl_etcd_task_send(&s->ask);
}

static void begin_scan(struct sl_etcd_scanning *s)
{
    clear_scan(s);
    sl_etcd_key_data(s->ask.e, &s->next, s->op->table, (struct sl_bytes){NULL, 0});
    send_page(s);
}

/* Room for one row more, and its bytes. */
static bool room_for(struct sl_etcd_scanning *s, size_t bytes)
{
    if (s->count == s->room) {
        uint32_t room = s->room > 0 ? 2 * s->room : 64;
        struct sl_storage_row *rows = realloc(s->rows, room * sizeof *rows);
        if (rows == NULL) return false;
        s->rows = rows;
        s->room = room;
    }
    if (s->n + bytes > s->bytes_room) {
        size_t room = 2 * (s->n + bytes);
        char *at = realloc(s->bytes, room);
        if (at == NULL) return false;
        s->bytes = at;
        s->bytes_room = room;
    }
    return true;
}

static int add_row(struct sl_etcd_scanning *s, const json_t *kv)
{
    const char *key = json_string_value(json_object_get(kv, "key"));
    const char *value = json_string_value(json_object_get(kv, "value"));
    size_t before = s->ask.e->prefix.n + 2 + 2 + s->op->table.n, key_n, value_n = 0;
    if (value == NULL) value = "";
    if (key == NULL || strlen(key) >= sizeof s->next.at) return SLUICE_EIO;
    if (!room_for(s, strlen(key) + strlen(value) + 2)) return SLUICE_ENOMEM;
    char *at = s->bytes + s->n;
    if (!sl_base64_read(key, at, &key_n) || key_n < before ||
        key_n >= sizeof s->next.at - 1)
        return SLUICE_EIO;
    memcpy(s->next.at, at, key_n);
    s->next.at[key_n] = '\0'; /* The next page begins behind it. */
    s->next.n = key_n + 1;
    memmove(at, at + before, key_n - before);
    key_n -= before;
    if (!sl_base64_read(value, at + key_n, &value_n)) return SLUICE_EIO;
    s->rows[s->count++] = (struct sl_storage_row){{NULL, key_n}, {NULL, value_n}};
    s->n += key_n + value_n;
    if (s->count > s->op->rows_max) return SLUICE_ETOOBIG;
    return s->op->bytes_max > 0 && s->n > s->op->bytes_max ? SLUICE_ETOOBIG : SLUICE_OK;
}

/* All of it into one piece of memory: rows, then bytes. */
static int give_rows(struct sl_etcd_scanning *s)
{
    struct sl_storage_row *rows = malloc(s->count * sizeof *rows + s->n + 1);
    if (rows == NULL) return SLUICE_ENOMEM;
    char *at = (char *)(rows + s->count);
    if (s->n > 0) memcpy(at, s->bytes, s->n);
    for (uint32_t i = 0; i < s->count; i++) {
        rows[i].key = (struct sl_bytes){at, s->rows[i].key.n};
        at += rows[i].key.n;
        rows[i].value = (struct sl_bytes){at, s->rows[i].value.n};
        at += rows[i].value.n;
    }
    s->op->result.rows = rows;
    s->op->result.row_count = s->count;
    return SLUICE_OK;
}

static void answer_page(struct sl_etcd_scanning *s, const json_t *page)
{
    const json_t *keys = json_object_get(page, "kvs");
    int status = SLUICE_OK;
    size_t before = s->n;
    sl_etcd_note_revision(s->ask.e, sl_etcd_json_revision(page));
    if (s->revision == 0) s->revision = sl_etcd_json_revision(page);
    for (size_t i = 0; status == SLUICE_OK && i < json_array_size(keys); i++)
        status = add_row(s, json_array_get(keys, i));
    bool more = json_is_true(json_object_get(page, "more"));
    if (status == SLUICE_OK && more) {
        size_t bytes = s->n - before;
        if (bytes > PAGE_BYTES && s->page > 1) s->page /= 2;
        else if (bytes < PAGE_BYTES / 2 && s->page < PAGE_ROWS_MAX) s->page *= 2;
        send_page(s);
        return;
    }
    if (status == SLUICE_OK) status = give_rows(s);
    end_scan(s, status);
}

/* A page of fewer rows; one alone that is too big is. */
static void on_too_big(struct sl_etcd_scanning *s)
{
    if (s->op->bytes_max > 0 || s->page == 1) {
        end_scan(s, SLUICE_ETOOBIG);
        return;
    }
    s->page /= 2;
    send_page(s);
}

static void on_page(struct sl_etcd_call *call)
{
    struct sl_etcd_scanning *s = call->owner;
    int status = SLUICE_EIO;
    enum sl_etcd_outcome verdict = sl_etcd_outcome_of(&s->ask, &status);
    if (s->ask.gone || s->op == NULL) {
        end_scan(s, SLUICE_EIO);
        return;
    }
    if (call->too_big) {
        on_too_big(s);
        return;
    }
    if (verdict == SL_ETCD_OUTCOME_ANSWER) {
        json_t *page = sl_etcd_json_of(call->answer);
        if (page != NULL) answer_page(s, page);
        else end_scan(s, SLUICE_EIO);
        json_decref(page);
        return;
    }
    bool compacted = verdict == SL_ETCD_OUTCOME_REFUSED && call->answer.n > 0 &&
                     memmem(call->answer.at, call->answer.n, "compacted", 9) != NULL;
    if (compacted && s->anew++ < ANEW_MAX) begin_scan(s);
    else end_scan(s, status);
}

/* --- Both --------------------------------------------------------------------------- */

static void start_scans(struct sl_storage *e)
{
    for (int i = 0; i < SL_READ_SLOTS; i++) {
        struct sl_etcd_scanning *s = &e->scannings[i];
        struct sl_storage_op *op = sl_etcd_op_after(&e->scans, NULL);
        if (op == NULL) return;
        if (s->ask.busy) continue;
        sl_list_remove(&op->place);
        s->op = op;
        s->page = PAGE_ROWS;
        s->anew = 0;
        sl_etcd_task_begin(&s->ask);
        begin_scan(s);
    }
}

/* Outcomes wait for the commit that they ask for. */
static void sort_out(struct sl_storage *e)
{
    struct sl_storage_op *op, *after;
    for (op = sl_etcd_op_after(&e->held, NULL); op != NULL; op = after) {
        after = sl_etcd_op_after(&e->held, op);
        if (sl_etcd_request_in_flight(e, op->request)) continue;
        sl_list_remove(&op->place);
        sl_list_append(&e->reads, &op->place);
    }
}

void sl_etcd_reads_submit(struct sl_storage *e, struct sl_storage_op *op)
{
    struct sl_list *to = &e->reads;
    if (op->type == SL_STORAGE_SCAN) to = &e->scans;
    if (op->type == SL_STORAGE_OUTCOME) to = &e->held;
    sl_list_append(to, &op->place);
    if (!name_fits(op)) sl_etcd_op_done(e, op, SLUICE_ETOOBIG);
    else if (op->type == SL_STORAGE_OUTCOME && op->request.n == 0)
        sl_etcd_op_done(e, op, SLUICE_OK); /* Nobody committed that. */
}

void sl_etcd_reads_pump(struct sl_storage *e, sl_ms now)
{
    struct sl_storage_op *op;
    sort_out(e);
    for (int i = 0; i < SL_READ_SLOTS && !sl_list_empty(&e->reads); i++)
        if (!e->readings[i].ask.busy) start_reading(e, &e->readings[i]);
    start_scans(e);
    if (!sl_etcd_is_silent(e, now)) return;
    while ((op = sl_etcd_op_after(&e->reads, NULL)) != NULL) fail(e, op, SLUICE_EIO);
    while ((op = sl_etcd_op_after(&e->scans, NULL)) != NULL) fail(e, op, SLUICE_EIO);
    while ((op = sl_etcd_op_after(&e->held, NULL)) != NULL) fail(e, op, SLUICE_EIO);
    e->reads_alone = 0;
}

void sl_etcd_reads_hurry(struct sl_storage *e, sl_ms now)
{
    for (int i = 0; i < SL_READ_SLOTS; i++) {
        struct sl_etcd_reading *r = &e->readings[i];
        sl_ms since = r->ask.since > e->hurry_since ? r->ask.since : e->hurry_since;
        struct sl_storage_op *op;
        if (r->ask.busy && now >= since + SL_HURRY_MS) {
            sl_etcd_note_silence(e, e->hurry_since);
            while ((op = sl_etcd_op_after(&r->ops, NULL)) != NULL)
                fail(e, op, SLUICE_EIO);
        }
        struct sl_etcd_scanning *s = &e->scannings[i];
        since = s->ask.since > e->hurry_since ? s->ask.since : e->hurry_since;
        if (s->op != NULL && now >= since + SL_HURRY_MS) {
            op = s->op;
            s->op = NULL;
            s->ask.gone = true;
            sl_etcd_note_silence(e, e->hurry_since);
            fail(e, op, SLUICE_EIO);
        }
    }
}

void sl_etcd_reads_init(struct sl_storage *e)
{
    for (int i = 0; i < SL_READ_SLOTS; i++) {
        struct sl_etcd_reading *r = &e->readings[i];
        sl_etcd_task_init(e, &r->ask, "/v3/kv/txn", on_reads, r);
        r->ask.call.repeatable = true;
        sl_list_init(&r->ops);
        struct sl_etcd_scanning *s = &e->scannings[i];
        sl_etcd_task_init(e, &s->ask, "/v3/kv/range", on_page, s);
        s->ask.call.repeatable = true;
    }
}

void sl_etcd_reads_free(struct sl_storage *e)
{
    for (int i = 0; i < SL_READ_SLOTS; i++) {
        sl_etcd_text_free(&e->readings[i].ask.body);
        clear_scan(&e->scannings[i]);
        sl_etcd_text_free(&e->scannings[i].ask.body);
    }
}
