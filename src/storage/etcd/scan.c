/* scan.c - scans a table page by page, all pages at the same revision. It also reads the
 * next rows of the journal in the same way. If there are more rows than it may return, a
 * scan fails, but reading the journal returns the rows so far. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "storage/etcd/etcd_internal.h"

#define PAGE_ROWS 32 /* Rows of the first page; halved if the answer is too long. */
#define PAGE_ROWS_MAX 4096
/* Approximate limit of the bytes of a page. There is a limit because parsing a page of this
 * size already blocks the event loop for a few ms. */
#define PAGE_BYTES 262144
/* etcd visits all rows after the first one for each page, so many small pages of a long
 * journal take long. The caller may choose longer ones, up to this size. */
#define JOURNAL_PAGE_BYTES_MAX ((size_t)4 << 20)
#define JOURNAL_PAGE_ROWS_MAX 65536
/* A longer answer is read again, as a page with fewer rows. */
#define JOURNAL_ANSWER_BYTES_MAX (4 * JOURNAL_PAGE_BYTES_MAX)
#define RESTARTS_MAX 5 /* Restarts of a scan whose revision was compacted. */

static void clear_scan(struct sl_etcd_scanning *s)
{
    free(s->rows);
    free(s->bytes);
    s->rows = NULL;
    s->bytes = NULL;
    s->count = s->capacity = 0;
    s->n = s->bytes_capacity = 0;
    s->revision = 0;
    s->cut = false;
}

static bool reads_journal(const struct sl_etcd_scanning *s)
{
    return s->op->type == SL_STORAGE_JOURNAL;
}

/* Write what all keys of the table or of the journal begin with. */
static void root_of(const struct sl_etcd_scanning *s, struct sl_etcd_key *k)
{
    struct sl_bytes none = {NULL, 0};
    if (reads_journal(s)) sl_etcd_key_journal(s->task.e, k, none);
    else sl_etcd_key_data(s->task.e, k, s->op->table, none);
}

static void end_scan(struct sl_etcd_scanning *s, int status)
{
    struct sl_storage_op *op = s->op;
    clear_scan(s);
    s->op = NULL;
    sl_etcd_task_end(&s->task);
    if (op == NULL) return;
    if (status == SLUICE_OK || status == SLUICE_ETOOBIG)
        sl_etcd_op_done(s->task.e, op, status);
    else sl_etcd_op_fail(s->task.e, op, status);
}

/* Return the length of the longest answer that contains at most bytes_max bytes of
 * data. */
static size_t answer_bytes_max(const struct sl_etcd_scanning *s)
{
    if (reads_journal(s)) return s->page_rows > 1 ? JOURNAL_ANSWER_BYTES_MAX : 0;
    if (s->op->bytes_max == 0) return 0;
    size_t row = (s->task.e->prefix.n + SL_STORAGE_NAME_BYTES_MAX) * 4 / 3 + 256;
    return s->op->bytes_max / 3 * 4 + s->page_rows * row + 4096;
}

/* Choose the number of rows of the next page of the journal: about as many as fit into
 * the result. */
static void choose_journal_page(struct sl_etcd_scanning *s)
{
    size_t row = s->task.e->journal_row_bytes, bytes = PAGE_BYTES, rows;
    if (s->op->bytes_max > 0) bytes = s->op->bytes_max - s->n;
    if (bytes > JOURNAL_PAGE_BYTES_MAX) bytes = JOURNAL_PAGE_BYTES_MAX;
    rows = row > 0 ? bytes / row + 1 : PAGE_ROWS;
    if (rows > JOURNAL_PAGE_ROWS_MAX) rows = JOURNAL_PAGE_ROWS_MAX;
    s->page_rows = (uint32_t)rows;
}

/* Choose the number of rows of the next page. The last page had this many bytes. */
static void choose_page(struct sl_etcd_scanning *s, size_t bytes)
{
    if (reads_journal(s)) choose_journal_page(s);
    else if (bytes > PAGE_BYTES && s->page_rows > 1) s->page_rows /= 2;
    else if (bytes < PAGE_BYTES / 2 && s->page_rows < PAGE_ROWS_MAX) s->page_rows *= 2;
}

static uint32_t rows_of_page(const struct sl_etcd_scanning *s)
{
    uint32_t left = s->op->rows_max - s->count;
    if (left >= s->page_rows) return s->page_rows;
    return reads_journal(s) ? left : left + 1; /* A scan must notice a row too many. */
}

static void build_page(struct sl_etcd_scanning *s)
{
    struct sl_etcd_text *t = &s->task.body;
    struct sl_etcd_key end;
    char rest[120];
    size_t n;
    root_of(s, &end);
    struct sl_bytes prefix = {end.at, end.n};
    sl_etcd_prefix_end(prefix, end.at, &n);
    end.n = n;
    /* Write a range operation, then remove the text around it that makes it a part of a
     * transaction. */
    sl_etcd_text_clear(t);
    sl_etcd_op_range(t, &s->next, &end, SL_ETCD_RANGE_ALL);
    if (t->failed) return;
    size_t around = strlen("{\"request_range\":");
    t->n -= around + 2;
    memmove(t->at, t->at + around, t->n);
    t->at[t->n] = '\0';
    snprintf(rest, sizeof rest,
             ",\"limit\":\"%" PRIu32 "\",\"revision\":\"%" PRIu64 "\"}",
             rows_of_page(s), s->revision);
    sl_etcd_text_add(t, rest);
}

static void send_page(struct sl_etcd_scanning *s)
{
    build_page(s);
    s->task.call.answer_bytes_max = answer_bytes_max(s);
    if (s->task.body.failed) end_scan(s, SLUICE_ENOMEM);
    else sl_etcd_task_send(&s->task);
}

static void begin_scan(struct sl_etcd_scanning *s)
{
    clear_scan(s);
    root_of(s, &s->next);
    if (reads_journal(s) && s->op->key.n > 0) {
        sl_etcd_key_journal(s->task.e, &s->next, s->op->key);
        s->next.at[s->next.n++] = '\0'; /* The first key after op->key. */
    }
    send_page(s);
}

/* Allocate memory for one more row and its bytes. */
static bool reserve_row(struct sl_etcd_scanning *s, size_t bytes)
{
    if (s->count == s->capacity) {
        uint32_t capacity = s->capacity > 0 ? 2 * s->capacity : 64;
        struct sl_storage_row *rows = realloc(s->rows, capacity * sizeof *rows);
        if (rows == NULL) return false;
        s->rows = rows;
        s->capacity = capacity;
    }
    if (s->n + bytes > s->bytes_capacity) {
        size_t capacity = 2 * (s->n + bytes);
        char *at = realloc(s->bytes, capacity);
        if (at == NULL) return false;
        s->bytes = at;
        s->bytes_capacity = capacity;
    }
    return true;
}

/* Apply the limits of the operation after a row was added. */
static int check_limits(struct sl_etcd_scanning *s)
{
    const struct sl_storage_op *op = s->op;
    bool too_long = op->bytes_max > 0 && s->n > op->bytes_max;
    if (!reads_journal(s))
        return s->count > op->rows_max || too_long ? SLUICE_ETOOBIG : SLUICE_OK;
    if (too_long && s->count > 1) {
        const struct sl_storage_row *last = &s->rows[--s->count];
        s->n -= last->key.n + last->value.n;
        s->cut = true;
    }
    return SLUICE_OK;
}

static int add_row(struct sl_etcd_scanning *s, const json_t *kv)
{
    const char *key = json_string_value(json_object_get(kv, "key"));
    const char *value = json_string_value(json_object_get(kv, "value"));
    size_t key_n, value_n = 0;
    struct sl_etcd_key root;
    root_of(s, &root);
    if (value == NULL) value = "";
    if (key == NULL) return SLUICE_EIO;
    if (!reserve_row(s, strlen(key) + strlen(value) + 2)) return SLUICE_ENOMEM;
    char *at = s->bytes + s->n;
    if (!sl_etcd_base64_read(key, at, &key_n) || key_n < root.n ||
        key_n >= sizeof s->next.at - 1)
        return SLUICE_EIO;
    memcpy(s->next.at, at, key_n);
    s->next.at[key_n] = '\0'; /* The next page begins after this key. */
    s->next.n = key_n + 1;
    memmove(at, at + root.n, key_n - root.n);
    key_n -= root.n;
    if (!sl_etcd_base64_read(value, at + key_n, &value_n)) return SLUICE_EIO;
    s->rows[s->count++] = (struct sl_storage_row){{NULL, key_n}, {NULL, value_n}};
    s->n += key_n + value_n;
    return check_limits(s);
}

/* Copy everything into one allocation: rows, then bytes. */
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

/* Return whether the operation that reads the journal has all its rows. */
static bool is_full(const struct sl_etcd_scanning *s)
{
    const struct sl_storage_op *op = s->op;
    return reads_journal(s) && (s->cut || s->count == op->rows_max ||
                                (op->bytes_max > 0 && s->n >= op->bytes_max));
}

static void note_row_bytes(struct sl_etcd_scanning *s)
{
    if (s->count > 0) s->task.e->journal_row_bytes = s->n / s->count + 1;
}

static void answer_page(struct sl_etcd_scanning *s, const json_t *page)
{
    const json_t *keys = json_object_get(page, "kvs");
    int status = SLUICE_OK;
    size_t before = s->n;
    sl_etcd_note_revision(s->task.e, sl_etcd_json_revision(page));
    if (s->revision == 0) s->revision = sl_etcd_json_revision(page);
    for (size_t i = 0; status == SLUICE_OK && !s->cut && i < json_array_size(keys); i++)
        status = add_row(s, json_array_get(keys, i));
    bool more = s->cut || json_is_true(json_object_get(page, "more"));
    if (status == SLUICE_OK && more && !is_full(s)) {
        if (reads_journal(s)) note_row_bytes(s);
        choose_page(s, s->n - before);
        send_page(s);
        return;
    }
    if (reads_journal(s)) {
        note_row_bytes(s);
        s->op->result.more = more;
    }
    if (status == SLUICE_OK) status = give_rows(s);
    end_scan(s, status);
}

/* Try a page with fewer rows. */
static void on_too_big(struct sl_etcd_scanning *s)
{
    uint32_t rows = rows_of_page(s);
    if ((s->op->bytes_max > 0 && !reads_journal(s)) || rows == 1) {
        end_scan(s, SLUICE_ETOOBIG);
        return;
    }
    s->page_rows = rows / 2;
    send_page(s);
}

static void on_page(struct sl_etcd_call *call)
{
    struct sl_etcd_scanning *s = call->owner;
    int status = SLUICE_EIO;
    enum sl_etcd_outcome outcome = sl_etcd_outcome_of(&s->task, &status);
    if (s->task.abandoned || s->op == NULL) {
        end_scan(s, SLUICE_EIO);
        return;
    }
    if (call->too_big) {
        on_too_big(s);
        return;
    }
    if (outcome == SL_ETCD_OUTCOME_ANSWER) {
        json_t *page = sl_etcd_json_of(call->answer);
        if (page != NULL) answer_page(s, page);
        else end_scan(s, SLUICE_EIO);
        json_decref(page);
        return;
    }
    bool compacted = outcome == SL_ETCD_OUTCOME_REFUSED && call->answer.n > 0 &&
                     memmem(call->answer.at, call->answer.n, "compacted", 9) != NULL;
    if (compacted && s->restarts++ < RESTARTS_MAX) begin_scan(s);
    else end_scan(s, status);
}

/* --- The queue --------------------------------------------------------------- */

void sl_etcd_scans_pump(struct sl_etcd *e, sl_ms now)
{
    struct sl_storage_op *op;
    for (int i = 0; i < SL_ETCD_READ_SLOTS; i++) {
        struct sl_etcd_scanning *s = &e->scannings[i];
        if (s->task.busy || (op = sl_storage_op_after(&e->scans, NULL)) == NULL)
            continue;
        sl_list_remove(&op->place);
        s->op = op;
        s->page_rows = PAGE_ROWS;
        if (reads_journal(s)) choose_journal_page(s);
        s->restarts = 0;
        sl_etcd_task_begin(&s->task);
        begin_scan(s);
    }
    if (sl_etcd_is_silent(e, now)) sl_etcd_ops_fail(e, &e->scans, SLUICE_EIO);
}

void sl_etcd_scans_hurry(struct sl_etcd *e, sl_ms now)
{
    for (int i = 0; i < SL_ETCD_READ_SLOTS; i++) {
        struct sl_etcd_scanning *s = &e->scannings[i];
        struct sl_storage_op *op = s->op;
        if (op == NULL || !sl_etcd_task_is_overdue(&s->task, now)) continue;
        s->op = NULL;
        s->task.abandoned = true;
        sl_etcd_note_silence(e, e->hurry_since_ms);
        sl_etcd_op_fail(e, op, SLUICE_EIO);
    }
}

void sl_etcd_scans_init(struct sl_etcd *e)
{
    for (int i = 0; i < SL_ETCD_READ_SLOTS; i++) {
        struct sl_etcd_scanning *s = &e->scannings[i];
        sl_etcd_task_init(e, &s->task, "/v3/kv/range", on_page, s);
        s->task.call.repeatable = true;
    }
}

void sl_etcd_scans_free(struct sl_etcd *e)
{
    for (int i = 0; i < SL_ETCD_READ_SLOTS; i++) {
        clear_scan(&e->scannings[i]);
        sl_etcd_text_free(&e->scannings[i].task.body);
    }
}
