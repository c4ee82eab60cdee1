/* test_storage_journal.c - the keeper's journal in etcd: which records are written, in which
 * order, once each, whatever is lost; and reading it page by page. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "test.h"

#include "storage_relay_stage.h"

static struct sl_storage_op record_of(uint64_t term,
                                      const struct sl_storage_write *writes,
                                      uint32_t count)
{
    return (struct sl_storage_op){.type = SL_STORAGE_RECORD,
                                  .term = term,
                                  .writes = writes,
                                  .write_count = count};
}

static struct sl_storage_write row(const char *key, const char *value)
{
    return (struct sl_storage_write){.key = text(key), .value = text(value)};
}

/* `value` may be NULL: the row is deleted. */
static int record(struct stage *s, uint64_t term, const char *key, const char *value)
{
    struct sl_storage_write w = row(key, value);
    struct sl_storage_op op = record_of(term, &w, 1);
    return do_op(s, &op, NULL);
}

/* How often the row was written. */
static uint64_t writes_of(const struct stage *s, const char *key)
{
    char whole[100];
    int n = snprintf(whole, sizeof whole, "journal/%s", key);
    return number_of(s, whole, (size_t)n, "version");
}

static uint64_t revision_of(const struct stage *s, const char *key)
{
    char whole[100];
    int n = snprintf(whole, sizeof whole, "journal/%s", key);
    return number_of(s, whole, (size_t)n, "mod_revision");
}

static uint64_t records(const struct stage *s)
{
    struct sl_storage_stats stats;
    sl_storage_stats(s->storage, &stats);
    return stats.records;
}

/* Some writes of one operation: rows name.0, name.1, ... */
enum { WRITES = 130, OPS = 60 };

struct batch {
    struct asked asked;
    struct sl_storage_write writes[WRITES];
    char names[WRITES][24];
};
static struct batch batches[OPS];

static struct asked *fill(int at, uint64_t term, const char *name, int writes,
                          const char *value)
{
    struct batch *b = &batches[at];
    for (int i = 0; i < writes; i++) {
        snprintf(b->names[i], sizeof b->names[i], "%s.%d", name, i);
        b->writes[i] = row(b->names[i], value);
    }
    b->asked = (struct asked){.op = record_of(term, b->writes, (uint32_t)writes)};
    return &b->asked;
}

static int do_batch(struct stage *s, uint64_t term, const char *name, int writes,
                    const char *value)
{
    return do_op(s, &fill(0, term, name, writes, value)->op, NULL);
}

/* --- Reading the whole journal ---------------------------------------------------- */

enum { ROWS = 2000 };

/* The journal, as it was read page by page. */
struct copy {
    struct {
        char *key, *value;
        size_t key_n, value_n;
    } rows[ROWS];
    uint32_t count, pages;
};
static struct copy copy;

static void forget_copy(void)
{
    for (uint32_t i = 0; i < copy.count; i++) {
        free(copy.rows[i].key);
        free(copy.rows[i].value);
    }
    copy.count = copy.pages = 0;
}

static char *kept(struct sl_bytes b)
{
    char *at = calloc(1, b.n + 1);
    assert_non_null(at);
    if (b.n > 0) memcpy(at, b.at, b.n);
    return at;
}

static void keep_page(const struct sl_storage_result *got, uint32_t rows_max,
                      size_t bytes_max)
{
    size_t bytes = 0;
    assert_int_equal(got->status, SLUICE_OK);
    assert_true(got->row_count <= rows_max);
    assert_true(got->row_count > 0 || !got->more);
    for (uint32_t i = 0; i < got->row_count; i++) {
        const struct sl_storage_row *r = &got->rows[i];
        assert_true(copy.count < ROWS);
        copy.rows[copy.count].key = kept(r->key);
        copy.rows[copy.count].key_n = r->key.n;
        copy.rows[copy.count].value = kept(r->value);
        copy.rows[copy.count].value_n = r->value.n;
        bytes += r->key.n + r->value.n;
        copy.count++;
    }
    if (bytes_max > 0 && got->row_count > 1) assert_true(bytes <= bytes_max);
    copy.pages++;
}

static void read_journal(struct stage *s, uint32_t rows_max, size_t bytes_max)
{
    bool more = true;
    forget_copy();
    while (more) {
        struct asked a = {.op = {.type = SL_STORAGE_JOURNAL,
                                 .rows_max = rows_max,
                                 .bytes_max = bytes_max}};
        if (copy.count > 0)
            a.op.key = (struct sl_bytes){copy.rows[copy.count - 1].key,
                                         copy.rows[copy.count - 1].key_n};
        submit(s, &a);
        await(s, &a);
        keep_page(&a.got, rows_max, bytes_max);
        more = a.got.more;
        forget(&a);
    }
}

/* "key=value key=value", without the test's having read it before. */
static const char *journal(struct stage *s)
{
    static char line[4000];
    size_t n = 0;
    read_journal(s, 10, 0);
    line[0] = '\0';
    for (uint32_t i = 0; i < copy.count; i++)
        n += (size_t)snprintf(line + n, sizeof line - n, "%s%s=%s", i > 0 ? " " : "",
                              copy.rows[i].key, copy.rows[i].value);
    forget_copy();
    return line;
}

/* --- Records ------------------------------------------------------------------------ */

static void a_record_changes_the_rows_of_the_journal(void **state)
{
    struct stage *s = *state;
    struct sl_storage_result got;
    uint64_t term = claim(s);
    assert_string_equal(journal(s), "");
    struct sl_storage_write w[] = {row("b", "2"), row("a", "1"), row("c", "")};
    struct sl_storage_op op = record_of(term, w, 3);
    assert_int_equal(do_op(s, &op, &got), SLUICE_OK);
    assert_int_equal(got.revision, revision_of(s, "b"));
    assert_string_equal(journal(&second), "a=1 b=2 c=");
    struct sl_storage_write next[] = {row("a", NULL), row("b", "3"), row("d", "4"),
                                      row("none", NULL)};
    op = record_of(term, next, 4);
    assert_int_equal(do_op(s, &op, NULL), SLUICE_OK);
    assert_string_equal(journal(&second), "b=3 c= d=4");
    assert_int_equal(records(s), 7);
    /* Rows of tables are other rows. */
    assert_int_equal(put(s, term, 1, NULL, "journal", "b", "row", NULL), SLUICE_OK);
    assert_string_equal(journal(&second), "b=3 c= d=4");
    op = record_of(term, NULL, 0);
    assert_int_equal(do_op(s, &op, NULL), SLUICE_OK);
    assert_int_equal(records(s), 7);
    stage_reopen(s);
    assert_string_equal(journal(s), "b=3 c= d=4");
}

static void keys_and_values_are_any_bytes(void **state)
{
    struct stage *s = *state;
    static char longest[SL_STORAGE_JOURNAL_KEY_BYTES_MAX + 1], prefix[257];
    memset(longest, 0xff, sizeof longest);
    memset(prefix, 'p', 256);
    sl_storage_close(s->storage);
    /* The longest prefix, too. */
    struct sl_etcd_settings settings = s->etcd;
    char why[300];
    settings.prefix = prefix;
    settings.group_max = 64;
    settings.dedup_keep_ms = 60000;
    s->storage = sl_storage_open_etcd(&settings, why, sizeof why);
    assert_non_null(s->storage);
    uint64_t term = claim(s);
    struct sl_storage_write w[] = {
        {.key = {"\0", 1}, .value = {"\xff\0v", 3}},
        {.key = {"\0\0", 2}, .value = {"", 0}},
        {.key = {"a\0b", 3}, .value = {"1", 1}},
        {.key = {"a\x01", 2}, .value = {"2", 1}},
        {.key = {"\xff", 1}, .value = {"3", 1}},
        {.key = {longest, sizeof longest - 1}, .value = {longest, sizeof longest}},
    };
    struct sl_storage_op op = record_of(term, w, 6);
    assert_int_equal(do_op(s, &op, NULL), SLUICE_OK);
    for (uint32_t most = 1; most < 8; most++) {
        read_journal(s, most, 0);
        assert_int_equal(copy.count, 6);
        for (uint32_t i = 0; i < 6; i++) {
            assert_int_equal(copy.rows[i].key_n, w[i].key.n);
            assert_memory_equal(copy.rows[i].key, w[i].key.at, w[i].key.n);
            assert_int_equal(copy.rows[i].value_n, w[i].value.n);
            assert_memory_equal(copy.rows[i].value, w[i].value.at, w[i].value.n);
        }
    }
    forget_copy();
    w[5].key.n++;
    assert_int_equal(do_op(s, &op, NULL), SLUICE_ETOOBIG);
    op = (struct sl_storage_op){
        .type = SL_STORAGE_JOURNAL, .key = w[5].key, .rows_max = 1};
    assert_int_equal(do_op(s, &op, NULL), SLUICE_ETOOBIG);
    for (int i = 0; i < 6; i++) w[i].value.at = NULL;
    w[5].key.n--;
    op = record_of(term, w, 6);
    assert_int_equal(do_op(s, &op, NULL), SLUICE_OK);
    assert_string_equal(journal(s), "");
}

static void a_record_of_another_term_changes_nothing(void **state)
{
    struct stage *s = *state;
    struct sl_storage_result got;
    assert_int_equal(record(s, 0, "k", "v"), SLUICE_ESTALE);
    assert_int_equal(record(s, 1, "k", "v"), SLUICE_ESTALE);
    uint64_t term = claim(s);
    assert_int_equal(record(s, term, "k", "old"), SLUICE_OK);
    assert_int_equal(claim(&second), term + 1);
    struct sl_storage_write w[] = {row("k", "new"), row("l", "new")};
    struct sl_storage_op op = record_of(term, w, 2);
    assert_int_equal(do_op(s, &op, &got), SLUICE_ESTALE);
    assert_int_equal(got.term, term + 1);
    assert_int_equal(got.term_record.term, term + 1);
    assert_int_equal(record(s, term + 2, "k", "new"), SLUICE_ESTALE);
    assert_int_equal(record(s, term, "k", NULL), SLUICE_ESTALE);
    op = record_of(term, NULL, 0);
    assert_int_equal(do_op(s, &op, NULL), SLUICE_ESTALE);
    /* Many in one group, too. */
    for (int i = 0; i < 10; i++) {
        char name[24];
        snprintf(name, sizeof name, "many%d", i);
        submit(s, fill(i, term, name, 3, "v"));
    }
    for (int i = 0; i < 10; i++) {
        await(s, &batches[i].asked);
        assert_int_equal(batches[i].asked.got.status, SLUICE_ESTALE);
        forget(&batches[i].asked);
    }
    assert_string_equal(journal(s), "k=old");
    assert_int_equal(record(&second, term + 1, "k", "new"), SLUICE_OK);
    assert_string_equal(journal(s), "k=new");
}

/* Of a group, some are rejected: then each is an inner transaction. */
static void records_and_commits_share_groups(void **state)
{
    struct stage *s = *state;
    struct sl_storage_stats before, after;
    uint64_t term = claim(s);
    assert_int_equal(bar(s, term, 7), SLUICE_OK);
    for (int barred = 0; barred < 2; barred++) {
        const char *value = barred ? "2" : "1";
        struct sl_storage_write w = {text("t"), text("k"), text(value)};
        struct asked commit = {.op = commit_of(term, barred ? 7 : 1, NULL, &w, 1)};
        sl_storage_stats(s->storage, &before);
        submit(s, fill(0, term, "a", 3, value));
        submit(s, &commit);
        submit(s, fill(1, term, "b", 30, value));
        submit(s, fill(2, term, "c", 0, NULL));
        await(s, &commit);
        forget(&commit);
        assert_int_equal(commit.got.status, barred ? SLUICE_EBARRED : SLUICE_OK);
        for (int i = 0; i < 3; i++) {
            await(s, &batches[i].asked);
            forget(&batches[i].asked);
            assert_int_equal(batches[i].asked.got.status, SLUICE_OK);
        }
        sl_storage_stats(s->storage, &after);
        assert_int_equal(after.groups, before.groups + 1);
        assert_int_equal(after.records, before.records + 33);
        assert_int_equal(revision_of(s, "a.0"), revision_of(s, "b.29"));
        assert_int_equal(writes_of(s, "b.29"), barred + 1);
        assert_string_equal(value_of(s, "t", "k"), "1");
    }
}

/* Two operations with a key in common: the second waits, in whatever way the first is lost. */
static void records_with_a_common_key_keep_their_order(void **state)
{
    static const enum relay_way ways[] = {RELAY_PASS, RELAY_LOSE_ANSWER,
                                          RELAY_LOSE_REQUEST, RELAY_LATE};
    struct stage *s = *state;
    uint64_t term = claim(s);
    assert_int_equal(record(s, term, "same", "0"), SLUICE_OK);
    for (int w = 0; w < 4; w++) {
        char values[OPS][16], others[OPS][16];
        uint64_t before = writes_of(s, "same"), last = 0;
        relay_lose(ways[w], "request_put", 3);
        for (int i = 0; i < OPS; i++) {
            snprintf(values[i], sizeof values[i], "%d", i);
            snprintf(others[i], sizeof others[i], "other%d", i);
            struct batch *b = &batches[i];
            b->writes[0] = row(others[i], values[i]);
            b->writes[1] = row("same", values[i]);
            /* Only each third has the common key. */
            b->asked = (struct asked){
                .op = record_of(term, b->writes, i % 3 == 0 ? 2 : 1)};
            submit(s, &b->asked);
        }
        for (int i = 0; i < OPS; i++) {
            await(s, &batches[i].asked);
            forget(&batches[i].asked);
            assert_int_equal(batches[i].asked.got.status, SLUICE_OK);
            if (i % 3 != 0) continue;
            assert_true(batches[i].asked.got.revision > last);
            last = batches[i].asked.got.revision;
        }
        relay_release();
        relay_lose(RELAY_PASS, "", 0);
        assert_int_equal(writes_of(s, "same"), before + OPS / 3);
        read_journal(s, OPS + 1, 0);
        assert_int_equal(copy.count, OPS + 1);
        assert_string_equal(copy.rows[OPS].key, "same");
        assert_string_equal(copy.rows[OPS].value, "57");
        forget_copy();
    }
}

/* --- Limits ----------------------------------------------------------------------------- */

static void a_record_has_as_many_writes_as_the_limits_say(void **state)
{
    struct stage *s = *state;
    struct sl_storage_record_limits limits;
    sl_storage_record_limits(s->storage, &limits);
    assert_int_equal(limits.writes, 127);
    s->etcd.ops_max = 16;
    stage_reopen(s);
    sl_storage_record_limits(s->storage, &limits);
    assert_int_equal(limits.writes, 15);
    uint64_t term = claim(s);
    assert_int_equal(bar(s, term, 7), SLUICE_OK);
    assert_int_equal(do_batch(s, term, "fits", 15, "v"), SLUICE_OK);
    assert_int_equal(do_batch(s, term, "more", 16, "v"), SLUICE_ETOOBIG);
    read_journal(s, 100, 0);
    assert_int_equal(copy.count, 15);
    forget_copy();
    /* Of all sizes, and one operation that is rejected, so that they are sent one by one. */
    struct sl_storage_write w = {text("t"), text("k"), text("v")};
    struct asked barred = {.op = commit_of(term, 7, NULL, &w, 1)};
    for (int i = 0; i < OPS; i++) {
        char name[24];
        snprintf(name, sizeof name, "n%d", i);
        submit(s, fill(i, term, name, 1 + i % 15, "v"));
        if (i == 0) submit(s, &barred);
    }
    await(s, &barred);
    forget(&barred);
    assert_int_equal(barred.got.status, SLUICE_EBARRED);
    for (int i = 0; i < OPS; i++) {
        await(s, &batches[i].asked);
        forget(&batches[i].asked);
        assert_int_equal(batches[i].asked.got.status, SLUICE_OK);
        assert_int_equal(writes_of(s, batches[i].names[i % 15]), 1);
        assert_int_equal(revision_of(s, batches[i].names[0]),
                         revision_of(s, batches[i].names[i % 15]));
    }
}

static void a_record_has_as_many_bytes_as_the_limits_say(void **state)
{
    enum { N = 20 };
    struct stage *s = *state;
    struct sl_storage_record_limits limits;
    uint64_t term = claim(s);
    sl_storage_record_limits(s->storage, &limits);
    assert_true(limits.bytes > (size_t)1 << 20);
    char *large = malloc(limits.bytes + 1);
    assert_non_null(large);
    memset(large, 'x', limits.bytes + 1);
    fill(0, term, "large", N, "");
    size_t left = limits.bytes;
    struct sl_storage_write *w = batches[0].writes;
    for (int i = 0; i < N; i++) left -= w[i].key.n + limits.bytes_per_write;
    for (int i = 0; i < N; i++)
        w[i].value = (struct sl_bytes){large, i == 0 ? left / N + left % N : left / N};
    assert_int_equal(do_op(s, &batches[0].asked.op, NULL), SLUICE_OK);
    assert_int_equal(writes_of(s, "large.19"), 1);
    w[0].value.n++;
    assert_int_equal(do_op(s, &batches[0].asked.op, NULL), SLUICE_ETOOBIG);
    assert_int_equal(writes_of(s, "large.19"), 1);
    /* etcd takes less than we were told. */
    s->etcd.ops_max = 1000;
    s->etcd.request_bytes_max = (size_t)64 << 20;
    stage_reopen(s);
    w[0].value.n = limits.bytes;
    assert_int_equal(do_op(s, &batches[0].asked.op, NULL), SLUICE_ETOOBIG);
    assert_int_equal(do_batch(s, term, "many", 130, "v"), SLUICE_ETOOBIG);
    assert_int_equal(do_batch(s, term, "few", 100, "v"), SLUICE_OK);
    assert_int_equal(writes_of(s, "many.0"), 0);
    assert_int_equal(writes_of(s, "large.19"), 1);
    /* A page has at least one row, however long it is. */
    read_journal(s, 1000, 1000);
    assert_int_equal(copy.count, 100 + N);
    forget_copy();
    free(large);
}

static void lmdb_has_no_journal(void **state)
{
    struct stage s;
    struct sl_storage_record_limits limits;
    (void)state;
    stage_begin(&s, &lmdb_kind);
    uint64_t term = claim(&s);
    sl_storage_record_limits(s.storage, &limits);
    assert_int_equal(limits.writes, 0);
    assert_int_equal(limits.bytes, 0);
    assert_int_equal(record(&s, term, "k", "v"), SLUICE_EINVAL);
    struct sl_storage_op page = {.type = SL_STORAGE_JOURNAL, .rows_max = 1};
    assert_int_equal(do_op(&s, &page, NULL), SLUICE_EINVAL);
    struct sl_storage_op resign = {.type = SL_STORAGE_RESIGN, .term = term};
    assert_int_equal(do_op(&s, &resign, NULL), SLUICE_EINVAL);
    stage_end(&s);
}

/* --- Answers that are lost ------------------------------------------------------------------ */

static const enum relay_way ways[] = {RELAY_LOSE_ANSWER, RELAY_LOSE_REQUEST,
                                      RELAY_LATE};

static void a_record_whose_answer_is_lost_is_done_once(void **state)
{
    struct stage *s = *state;
    uint64_t term = claim(s);
    for (int w = 0; w < 3; w++) {
        char name[24];
        snprintf(name, sizeof name, "k%d", w);
        uint64_t before = records(s);
        relay_lose(ways[w], "request_put", 1);
        assert_int_equal(do_batch(s, term, name, 5, "first"), SLUICE_OK);
        assert_int_equal(relay_lost(), 1);
        assert_int_equal(records(s), before + 5);
        assert_int_equal(writes_of(s, batches[0].names[4]), 1);
        /* A late one comes when its rows have other values already. */
        assert_int_equal(do_batch(s, term, name, 5, "second"), SLUICE_OK);
        assert_int_equal(relay_release(), ways[w] == RELAY_LATE);
        assert_int_equal(writes_of(s, batches[0].names[4]), 2);
        /* One that deletes rows. */
        relay_lose(ways[w], "request_put", 1);
        assert_int_equal(do_batch(s, term, name, 5, NULL), SLUICE_OK);
        assert_int_equal(do_batch(s, term, name, 4, "third"), SLUICE_OK);
        relay_release();
        assert_int_equal(writes_of(s, batches[0].names[3]), 1);
        assert_int_equal(do_batch(s, term, name, 4, NULL), SLUICE_OK);
        assert_string_equal(journal(s), "");
    }
}

static void the_outcome_of_a_record_from_before_a_term_change_is_reported(void **state)
{
    struct stage *s = *state;
    for (int w = 0; w < 3; w++)
        for (int many = 1; many < 4; many++) {
            uint64_t term = claim(s);
            assert_int_equal(record(s, term, "b0.0", "old"), SLUICE_OK);
            relay_lose(ways[w], "request_put", 1);
            for (int i = 0; i < many; i++) {
                char name[24];
                snprintf(name, sizeof name, "b%d", i);
                submit(s, fill(i, term, name, 2, "new"));
            }
            run_until_lost(s, 1);
            relay_lose(RELAY_LOSE_REQUEST, "", -1);
            for (int i = 0; i < 2; i++) claim(&second);
            uint64_t before = writes_of(s, "b0.0");
            run_for(s, 60);
            assert_false(batches[0].asked.done);
            relay_lose(RELAY_PASS, "", 0);
            bool done = ways[w] == RELAY_LOSE_ANSWER;
            for (int i = 0; i < many; i++) {
                await(s, &batches[i].asked);
                forget(&batches[i].asked);
                assert_int_equal(batches[i].asked.got.status,
                                 done ? SLUICE_OK : SLUICE_ESTALE);
                if (!done) assert_int_equal(batches[i].asked.got.term, term + 2);
            }
            relay_release();
            assert_int_equal(writes_of(s, "b0.0"), before);
            read_journal(s, 100, 0);
            assert_string_equal(copy.rows[0].value, done ? "new" : "old");
            for (uint32_t i = 0; i < copy.count; i++)
                assert_string_equal(copy.rows[i].value, done ? "new" : "old");
            term = claim(s);
            for (uint32_t i = 0; i < copy.count; i++)
                assert_int_equal(record(s, term, copy.rows[i].key, NULL), SLUICE_OK);
            forget_copy();
        }
}

static unsigned pick(uint64_t *random, unsigned below)
{
    *random ^= *random << 13;
    *random ^= *random >> 7;
    *random ^= *random << 17;
    return (unsigned)(*random % below);
}

/* Whatever is lost, and whenever the late ones come: the journal is what the operations
 * make of it, one after the other; those of an old term make nothing. */
static void random_lost_replies_never_disorder_the_journal(void **state)
{
    enum { ROUNDS = 120, MOST = 12, KEYS = 40 };
    static const char *const words[] = {"request_put", "request_delete_range",
                                        "request_txn", "/v3/lease"};
    static char names[KEYS][8], values[MOST][24];
    static int model[KEYS]; /* The number of the value; 0: no row. */
    struct stage *s = *state;
    uint64_t random = 88172645463325252ull, term = claim(s);
    int number = 0;
    for (int i = 0; i < KEYS; i++) {
        snprintf(names[i], sizeof names[i], "k%02d", i);
        model[i] = 0;
    }
    for (int round = 0; round < ROUNDS; round++) {
        int n = 1 + (int)pick(&random, MOST), numbers[MOST], firsts[MOST], counts[MOST];
        relay_lose(ways[pick(&random, 3)], words[pick(&random, 4)],
                   (int)pick(&random, 4));
        for (int i = 0; i < n; i++) {
            struct batch *b = &batches[i];
            numbers[i] = pick(&random, 4) == 0 ? 0 : ++number;
            firsts[i] = (int)pick(&random, KEYS);
            counts[i] = 1 + (int)pick(&random, 6);
            snprintf(values[i], sizeof values[i], "%d", numbers[i]);
            for (int k = 0; k < counts[i]; k++)
                b->writes[k] = row(names[(firsts[i] + k) % KEYS],
                                   numbers[i] != 0 ? values[i] : NULL);
            bool stale = pick(&random, 8) == 0;
            b->asked = (struct asked){.op = record_of(stale ? term - 1 : term,
                                                      b->writes, (uint32_t)counts[i])};
            submit(s, &b->asked);
        }
        for (int i = 0; i < n; i++) {
            struct asked *a = &batches[i].asked;
            bool stale = a->op.term != term;
            await(s, a);
            forget(a);
            assert_int_equal(a->got.status, stale ? SLUICE_ESTALE : SLUICE_OK);
            for (int k = 0; !stale && k < counts[i]; k++)
                model[(firsts[i] + k) % KEYS] = numbers[i];
        }
        if (pick(&random, 4) == 0) relay_release();
        relay_lose(RELAY_PASS, "", 0);
        read_journal(&second, 1 + pick(&random, 50), pick(&random, 100));
        uint32_t at = 0;
        for (int i = 0; i < KEYS; i++) {
            if (model[i] == 0) continue;
            assert_true(at < copy.count);
            assert_string_equal(copy.rows[at].key, names[i]);
            assert_int_equal(atoi(copy.rows[at].value), model[i]);
            at++;
        }
        assert_int_equal(at, copy.count);
        forget_copy();
        if (pick(&random, 15) == 0) term = claim(&second);
        if (pick(&random, 30) == 0) stage_reopen(s);
    }
}

static void in_a_hurry_a_record_that_is_not_known_is_reported_to_be_so(void **state)
{
    struct stage *s = *state;
    uint64_t term = claim(s);
    assert_int_equal(record(s, term, "k", "v"), SLUICE_OK);
    relay_lose(RELAY_LOSE_ANSWER, "request_put", 1);
    submit(s, fill(0, term, "b", 2, "v"));
    run_until_lost(s, 1);
    relay_lose(RELAY_LOSE_REQUEST, "", -1);
    run_for(s, 60);
    assert_false(batches[0].asked.done);
    sl_storage_hurry(s->storage);
    await(s, &batches[0].asked);
    forget(&batches[0].asked);
    assert_int_equal(batches[0].asked.got.status, SLUICE_ECLOSED);
    assert_string_equal(journal(&second), "b.0=v b.1=v k=v");
}

/* --- Pages ------------------------------------------------------------------------------- */

enum { MANY = 1500 };

static void write_many(struct stage *s, uint64_t term, size_t value_bytes)
{
    static char names[100][16], value[9000];
    static struct sl_storage_write w[100];
    memset(value, 'v', sizeof value);
    for (int i = 0; i < MANY; i += 100) {
        for (int k = 0; k < 100; k++) {
            snprintf(names[k], sizeof names[k], "key%06d", i + k);
            w[k] = (struct sl_storage_write){.key = text(names[k]),
                                             .value = {value, value_bytes}};
        }
        struct sl_storage_op op = record_of(term, w, 100);
        assert_int_equal(do_op(s, &op, NULL), SLUICE_OK);
    }
}

static void must_have_many(uint32_t pages)
{
    assert_int_equal(copy.count, MANY);
    if (pages > 0) assert_int_equal(copy.pages, pages);
    for (int i = 0; i < MANY; i++) {
        char name[16];
        snprintf(name, sizeof name, "key%06d", i);
        assert_string_equal(copy.rows[i].key, name);
    }
    forget_copy();
}

static void the_journal_is_read_in_pages(void **state)
{
    struct stage *s = *state;
    uint64_t term = claim(s);
    write_many(s, term, 91);
    /* Other keys of etcd around the journal's. */
    assert_int_equal(put(s, term, 1, "r", "t", "k", "v", NULL), SLUICE_OK);
    static const struct {
        uint32_t rows;
        size_t bytes;
        uint32_t pages;
    } sizes[] = {
        {MANY, 0, 1},         {MANY + 1, 0, 1},     {MANY - 1, 0, 2},
        {100, 0, 15},         {499, 0, 4},          {1000000, 0, 1},
        {1000000, 1000, 150}, {1000000, 1099, 150}, {1000000, MANY * 100, 1},
        {40, 3000, 50},       {1000000, 99999, 2},  {1000000, 250, MANY / 2},
    };
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        read_journal(s, sizes[i].rows, sizes[i].bytes);
        must_have_many(sizes[i].pages);
    }
    /* After a key that is not there, and after the last one. */
    struct asked a = {.op = {.type = SL_STORAGE_JOURNAL, .rows_max = 2}};
    a.op.key = text("key0000");
    submit(s, &a);
    await(s, &a);
    assert_int_equal(a.got.row_count, 2);
    assert_true(a.got.more);
    assert_int_equal(a.got.rows[0].key.n, 9);
    assert_memory_equal(a.got.rows[0].key.at, "key000000", 9);
    forget(&a);
    a.op.key = text("key001499");
    submit(s, &a);
    await(s, &a);
    assert_int_equal(a.got.status, SLUICE_OK);
    assert_int_equal(a.got.row_count, 0);
    assert_false(a.got.more);
    forget(&a);
}

/* Longer than the storage parses at once: it halves its own pages. */
static void long_rows_come_in_shorter_pages(void **state)
{
    struct stage *s = *state;
    uint64_t term = claim(s);
    write_many(s, term, 0);
    read_journal(s, MANY, 0); /* Its own pages become long. */
    must_have_many(1);
    write_many(s, term, 9000);
    read_journal(s, MANY, 0);
    must_have_many(1);
    read_journal(s, MANY, 100000);
    must_have_many(0);
}

/* Each page sees what was reported before it was asked for. */
static void a_page_sees_what_was_recorded_before(void **state)
{
    struct stage *s = *state;
    uint64_t term = claim(s);
    for (int i = 0; i < 50; i++) {
        char value[16];
        snprintf(value, sizeof value, "k=%d", i);
        assert_int_equal(record(s, term, "k", value + 2), SLUICE_OK);
        assert_string_equal(journal(&second), value);
    }
}

/* --- All of them ------------------------------------------------------------------------------ */

#define TEST(name) cmocka_unit_test_setup_teardown(name, begin, end)

int main(void)
{
    static const struct CMUnitTest tests[] = {
        TEST(a_record_changes_the_rows_of_the_journal),
        TEST(keys_and_values_are_any_bytes),
        TEST(a_record_of_another_term_changes_nothing),
        TEST(records_and_commits_share_groups),
        TEST(records_with_a_common_key_keep_their_order),
        TEST(a_record_has_as_many_writes_as_the_limits_say),
        TEST(a_record_has_as_many_bytes_as_the_limits_say),
        cmocka_unit_test(lmdb_has_no_journal),
        TEST(a_record_whose_answer_is_lost_is_done_once),
        TEST(the_outcome_of_a_record_from_before_a_term_change_is_reported),
        TEST(random_lost_replies_never_disorder_the_journal),
        TEST(in_a_hurry_a_record_that_is_not_known_is_reported_to_be_so),
        TEST(the_journal_is_read_in_pages),
        TEST(long_rows_come_in_shorter_pages),
        TEST(a_page_sees_what_was_recorded_before),
    };
    if (!kind_begin(&etcd_kind)) return 0;
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    kind_end(&etcd_kind);
    return failed;
}
