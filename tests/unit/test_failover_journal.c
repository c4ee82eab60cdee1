/* test_failover_journal.c - the journal of the keeper in etcd: what is recorded before it is acknowledged,
 * what the next keeper restores, and until when. The test plays etcd and two keepers with different
 * clocks. */
#include <stdlib.h>
#include <string.h>

#include "failing_alloc.h"
#include "test.h"

#include "failover/keeper_journal.h"
#include "sluice.h"

/* --- Two keepers, and what etcd has --------------------------------------------------------- */

enum { VOLATILE = 10000, ROWS = 64, ENTRIES = 4 };

static const struct sl_table_limits limits = {.keys_max = 1000,
                                              .waiters_max = 10,
                                              .key_bytes_max = 100,
                                              .value_bytes_max = 100,
                                              .drains_max = 10,
                                              .requests_max = 10};

static struct keeper {
    struct sl_table *table;
    struct sl_keeper_journal k;
    struct sl_session client;
    struct sl_now now;
} keepers[2];

static struct row {
    char key[64], value[256];
    size_t key_bytes, value_bytes;
} rows[ROWS];
static size_t row_count;
static sl_ms stored_ms; /* The journal time that the last renewal stored. */

static struct sl_bytes text(const char *at)
{
    return (struct sl_bytes){at, strlen(at)};
}

static void start(struct keeper *x, sl_ms now_ms, uint32_t entries_max)
{
    *x = (struct keeper){.now = {now_ms, 1000000}};
    x->table = sl_table_new(&limits, (struct sl_hash_key){7, 0});
    const struct sl_keeper_journal_settings s = {.hash_key = {7, 0},
                                                 .table = x->table,
                                                 .volatile_ms = VOLATILE,
                                                 .entries_max = entries_max,
                                                 .bytes_max = 4000};
    assert_true(sl_keeper_journal_init(&x->k, &s));
    sl_session_begin(&x->client, 1, 0);
}

static int setup(void **state)
{
    (void)state;
    row_count = 0;
    stored_ms = 0;
    start(&keepers[0], 1000000, ENTRIES);
    start(&keepers[1], 50000, ENTRIES);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    memory_is_back();
    for (int i = 0; i < 2; i++) {
        sl_keeper_journal_free(&keepers[i].k);
        sl_table_free(keepers[i].table);
    }
    return 0;
}

static int compare_rows(const void *a, const void *b)
{
    const struct row *x = a, *y = b;
    size_t n = x->key_bytes < y->key_bytes ? x->key_bytes : y->key_bytes;
    int order = memcmp(x->key, y->key, n);
    return order != 0 ? order
                      : (x->key_bytes > y->key_bytes) - (x->key_bytes < y->key_bytes);
}

static void store(const struct sl_storage_write *w)
{
    size_t i = 0;
    while (i < row_count && (rows[i].key_bytes != w->key.n ||
                             memcmp(rows[i].key, w->key.at, w->key.n) != 0))
        i++;
    if (w->value.at == NULL) {
        if (i < row_count) rows[i] = rows[--row_count];
    } else {
        assert_true(i < ROWS && w->key.n <= sizeof rows[i].key &&
                    w->value.n <= sizeof rows[i].value);
        if (i == row_count) row_count++;
        memcpy(rows[i].key, w->key.at, w->key.n);
        rows[i].key_bytes = w->key.n;
        memcpy(rows[i].value, w->value.at, w->value.n);
        rows[i].value_bytes = w->value.n;
    }
    qsort(rows, row_count, sizeof rows[0], compare_rows);
}

/* Write what is due, in transactions. Returns how many there were. */
static int write_all(struct keeper *x)
{
    const struct sl_storage_write *w;
    uint32_t n;
    int count = 0;
    while (sl_keeper_journal_next(&x->k, x->now.ms, &w, &n)) {
        assert_true(n <= x->k.settings.entries_max);
        for (uint32_t i = 0; i < n; i++) store(&w[i]);
        sl_keeper_journal_written(&x->k, x->now.ms, true);
        sl_keeper_journal_check(&x->k);
        count++;
    }
    return count;
}

static void renew(const struct keeper *x)
{
    stored_ms = sl_keeper_journal_time(&x->k, x->now.ms);
}

/* Read one page of at most `most` entries. Returns the status. */
static int read_page(struct keeper *x, uint32_t most)
{
    struct sl_storage_row page[ROWS];
    struct sl_bytes after;
    uint32_t n = 0, bad;
    bool more = false;
    assert_true(sl_keeper_journal_reads(&x->k, &after));
    struct row last = {.key_bytes = after.n};
    if (after.n > 0) memcpy(last.key, after.at, after.n);
    for (size_t i = 0; i < row_count; i++) {
        if (after.n > 0 && compare_rows(&rows[i], &last) <= 0) continue;
        if (n == most) {
            more = true;
            break;
        }
        page[n++] = (struct sl_storage_row){{rows[i].key, rows[i].key_bytes},
                                            {rows[i].value, rows[i].value_bytes}};
    }
    return sl_keeper_journal_restore(&x->k, x->now, page, n, more, &bad);
}

/* The keeper of the next term begins, and reads the journal. */
static void begin(struct keeper *x)
{
    struct sl_bytes after;
    assert_true(sl_keeper_journal_begin(&x->k, x->now.ms, stored_ms));
    sl_table_set_fences(x->table, (sl_fence)1 << 40, SL_FENCE_MAX);
    x->now.wall_us = (uint64_t)1 << 41;
    while (sl_keeper_journal_reads(&x->k, &after))
        assert_int_equal(read_page(x, 2), SLUICE_OK);
}

static struct keeper *first(void)
{
    assert_true(sl_keeper_journal_begin(&keepers[0].k, keepers[0].now.ms, stored_ms));
    assert_int_equal(read_page(&keepers[0], ROWS), SLUICE_OK);
    return &keepers[0];
}

/* The first keeper fails, and the second one begins. */
static struct keeper *next(void)
{
    begin(&keepers[1]);
    return &keepers[1];
}

static sl_fence acquire(struct keeper *x, const char *key, sl_ms lease_ms)
{
    struct sl_grant g;
    const struct sl_want want = {
        .key = text(key), .per = 1, .buckets = 1, .units = 1, .lease_ms = lease_ms};
    sl_keeper_journal_change(&x->k, x->now.ms);
    x->now.wall_us += 1000;
    assert_int_equal(sl_table_acquire(x->table, x->now, &x->client, &want, &g),
                     SLUICE_OK);
    return g.fence;
}

static void extend(struct keeper *x, const char *key, sl_fence fence, sl_ms lease_ms)
{
    sl_ms left;
    sl_keeper_journal_change(&x->k, x->now.ms);
    assert_int_equal(sl_table_extend(x->table, x->now, &x->client, text(key), fence,
                                     lease_ms, (struct sl_bytes){NULL, 0}, &left),
                     SLUICE_OK);
}

static void release(struct keeper *x, const char *key, sl_fence fence)
{
    struct sl_ended past;
    sl_keeper_journal_change(&x->k, x->now.ms);
    assert_int_equal(
        sl_table_release(x->table, x->now, &x->client, text(key), fence, &past), 1);
}

/* Whether what the last change needs is durable. */
static bool acknowledged(const struct keeper *x)
{
    return x->k.need <= sl_journal_durable(x->k.rules);
}

static sl_ms left_of(struct keeper *x, const char *key)
{
    struct sl_grant_view v;
    return sl_table_newest(x->table, x->now, text(key), &v) ? v.left_ms : 0;
}

/* --- What is recorded ----------------------------------------------------------------------- */

UNIT_TEST(a_short_lease_needs_no_record)
{
    struct keeper *x = first();
    acquire(x, "k", VOLATILE);
    assert_true(acknowledged(x));
    acquire(x, "l", 0);
    assert_true(acknowledged(x));
    assert_int_equal(sl_keeper_journal_due(&x->k), SL_NEVER);
    assert_int_equal(write_all(x), 0);
}

UNIT_TEST(a_long_lease_is_acknowledged_when_it_is_recorded)
{
    struct keeper *x = first();
    acquire(x, "k", VOLATILE + 1);
    assert_false(acknowledged(x));
    assert_int_equal(write_all(x), 1);
    assert_true(acknowledged(x));
    assert_int_equal(row_count, 1);
}

UNIT_TEST(an_extension_is_recorded_if_it_exceeds_the_bound)
{
    struct keeper *x = first();
    sl_fence fence = acquire(x, "k", 60000);
    write_all(x);
    sl_ms bound = 10000 * 6; /* A multiple of lease-volatile, in journal time. */
    extend(x, "k", fence, bound);
    assert_true(acknowledged(x));
    x->now.ms += 1000;
    extend(x, "k", fence, 60000);
    assert_false(acknowledged(x));
    assert_int_equal(write_all(x), 1);
    assert_true(acknowledged(x));
    x->now.ms += 5000;
    extend(x, "k", fence, 60000); /* The bound is 70 s. */
    assert_true(acknowledged(x));
    assert_int_equal(row_count, 1);
}

UNIT_TEST(an_extension_within_a_bound_that_is_being_written_waits_for_it)
{
    struct keeper *x = first();
    sl_fence fence = acquire(x, "k", 55000);
    extend(x, "k", fence, 58000);
    assert_false(acknowledged(x));
    write_all(x);
    assert_true(acknowledged(x));
}

UNIT_TEST(a_short_extension_of_a_long_lease_needs_no_record)
{
    struct keeper *x = first();
    sl_fence fence = acquire(x, "k", 15000);
    write_all(x);
    x->now.ms += 14000;
    extend(x, "k", fence, 9000);
    assert_true(acknowledged(x));
    release(x, "k", fence);
    x->now.ms += 1000;
    assert_int_equal(write_all(x), 1);
    assert_int_equal(row_count, 0); /* But its end is recorded. */
}

UNIT_TEST(the_next_grant_of_the_key_waits_for_the_end_of_a_long_lease)
{
    struct keeper *x = first();
    sl_fence fence = acquire(x, "k", 60000);
    write_all(x);
    release(x, "k", fence);
    assert_true(acknowledged(x)); /* The release itself does not wait. */
    acquire(x, "l", 5000);
    assert_true(acknowledged(x));
    fence = acquire(x, "k", 5000);
    assert_false(acknowledged(x));
    write_all(x);
    assert_true(acknowledged(x));
    assert_int_equal(row_count, 0);
    release(x, "k", fence);
    fence = acquire(x, "k", 60000);
    write_all(x);
    release(x, "k", fence);
    acquire(x, "k", 0);
    assert_false(acknowledged(x)); /* Also a grant without a lease. */
}

UNIT_TEST(the_end_of_a_long_lease_is_recorded_within_a_second)
{
    struct keeper *x = first();
    sl_fence fence = acquire(x, "k", 60000);
    write_all(x);
    release(x, "k", fence);
    assert_int_equal(write_all(x), 0);
    assert_int_equal(sl_keeper_journal_due(&x->k), x->now.ms + SL_END_SYNC_MS);
    x->now.ms += SL_END_SYNC_MS;
    assert_int_equal(write_all(x), 1);
    assert_int_equal(row_count, 0);
}

UNIT_TEST(a_lease_that_expires_is_removed)
{
    struct keeper *x = first();
    struct sl_effect e;
    acquire(x, "k", 15000);
    write_all(x);
    x->now.ms += 15001;
    sl_keeper_journal_change(&x->k, x->now.ms);
    while (sl_table_next(x->table, x->now, &e)) continue;
    x->now.ms += SL_END_SYNC_MS;
    write_all(x);
    assert_int_equal(row_count, 0);
}

UNIT_TEST(a_write_has_at_most_as_many_entries_as_the_storage_allows)
{
    struct keeper *x = first();
    char key[2] = "a";
    for (int i = 0; i < 2 * ENTRIES + 1; i++, key[0]++) acquire(x, key, 60000);
    assert_int_equal(write_all(x), 3);
    assert_true(acknowledged(x));
    assert_int_equal(row_count, 2 * ENTRIES + 1);
}

UNIT_TEST(an_entry_occurs_once_in_a_write)
{
    struct keeper *x = first();
    sl_fence fence = acquire(x, "k", 60000);
    extend(x, "k", fence, 90000);
    fence = acquire(x, "l", 60000);
    release(x, "l", fence);
    const struct sl_storage_write *w;
    uint32_t n;
    assert_true(sl_keeper_journal_next(&x->k, x->now.ms, &w, &n));
    assert_int_equal(n, 2); /* The put of k, with its last bound, and the end of l. */
    for (uint32_t i = 0; i < n; i++) store(&w[i]);
    sl_keeper_journal_written(&x->k, x->now.ms, true);
    assert_int_equal(row_count, 1);
    renew(x);
    struct keeper *y = next();
    assert_true(left_of(y, "k") >= 90000);
}

UNIT_TEST(a_write_that_fails_is_repeated)
{
    struct keeper *x = first();
    const struct sl_storage_write *w;
    uint32_t n;
    acquire(x, "k", 60000);
    assert_true(sl_keeper_journal_next(&x->k, x->now.ms, &w, &n));
    assert_false(sl_keeper_journal_next(&x->k, x->now.ms, &w, &n)); /* One at a time. */
    assert_false(sl_keeper_journal_written(&x->k, x->now.ms, false));
    assert_false(acknowledged(x));
    assert_false(sl_keeper_journal_next(&x->k, x->now.ms, &w, &n));
    x->now.ms = sl_keeper_journal_due(&x->k);
    assert_int_equal(write_all(x), 1);
    assert_true(acknowledged(x));
    assert_int_equal(row_count, 1);
}

UNIT_TEST(a_grant_that_does_not_fit_into_a_write_is_rejected)
{
    static char note[100];
    struct keeper *x = first();
    struct sl_grant g;
    x->k.settings.bytes_max = 100;
    memset(note, 'n', sizeof note);
    const struct sl_want want = {.key = text("k"),
                                 .per = 1,
                                 .buckets = 1,
                                 .units = 1,
                                 .lease_ms = 60000,
                                 .note = {note, sizeof note}};
    sl_keeper_journal_change(&x->k, x->now.ms);
    sl_table_acquire(x->table, x->now, &x->client, &want, &g);
    assert_true(x->k.need == SL_JOURNAL_FAILED);
    sl_table_take_back(x->table, x->now, &x->client, text("k"), &g);
    x->now.ms += SL_END_SYNC_MS;
    assert_int_equal(write_all(x), 0); /* Nothing was recorded. */
    acquire(x, "l", 60000);
    assert_int_equal(write_all(x), 1); /* Others are not affected. */
    assert_true(acknowledged(x));
}

UNIT_TEST(without_memory_a_long_lease_is_rejected)
{
    struct keeper *x = first();
    acquire(x, "warm up", 60000);
    write_all(x);
    for (int i = 0; i < 20; i++) {
        struct sl_grant g;
        const struct sl_want want = {
            .key = text("k"), .per = 1, .buckets = 1, .units = 1, .lease_ms = 60000};
        sl_keeper_journal_change(&x->k, x->now.ms);
        x->now.wall_us += 1000;
        memory_fails_after(i);
        int status = sl_table_acquire(x->table, x->now, &x->client, &want, &g);
        memory_is_back();
        if (status != SLUICE_OK) continue;
        if (x->k.need != SL_JOURNAL_FAILED) break;
        sl_table_take_back(x->table, x->now, &x->client, text("k"), &g);
        if (sl_journal_failed(x->k.rules)) return;
    }
    write_all(x);
    assert_true(acknowledged(x));
}

/* --- What the next keeper restores ---------------------------------------------------------- */

UNIT_TEST(a_long_lease_is_restored_and_does_not_expire_too_early)
{
    struct keeper *x = first();
    sl_fence fence = acquire(x, "k", 3600000);
    write_all(x);
    renew(x);
    x->now.ms += 400; /* The keeper fails 400 ms after its last renewal. */
    struct keeper *y = next();
    sl_ms left = left_of(y, "k");
    assert_true(left >= 3600000);
    assert_true(left <= 3600000 + VOLATILE + 3600000 / 499 + 1000);
    extend(y, "k", fence, 60000);
    assert_true(acknowledged(y)); /* Within the bound that is recorded. */
}

UNIT_TEST(a_lease_that_is_recorded_again_does_not_become_longer)
{
    struct sl_ended past;
    struct keeper *x = first();
    sl_fence fence = acquire(x, "k", 60000);
    write_all(x);
    renew(x);
    struct keeper *y = next();
    sl_ms left = left_of(y, "k");
    sl_keeper_journal_change(&y->k, y->now.ms);
    assert_int_equal(sl_table_break(y->table, y->now, text("k"), fence, false, &past),
                     1);
    assert_int_equal(write_all(y), 1);
    renew(y);
    sl_keeper_journal_end(&x->k);
    sl_table_reset(x->table);
    begin(x);
    assert_true(left_of(x, "k") >= left);
    assert_true(left_of(x, "k") <= left + left / 499 + 10); /* The clocks may differ. */
}

/* A node has reported the lease: it ends in 9000 ms at most, and 1024 ms earlier at least. */
UNIT_TEST(a_restored_lease_is_extended_only_while_it_is_certainly_valid)
{
    struct keeper *x = first();
    struct sl_table_walk walk = {0};
    struct sl_grant_view v = {.fence = 5,
                              .leased = true,
                              .units = 1,
                              .per = 1,
                              .buckets = 1,
                              .left_ms = 9000,
                              .unsure_ms = 1024};
    sl_table_set_fences(x->table, 1000, SL_FENCE_MAX);
    assert_int_equal(sl_table_reclaim(x->table, x->now, NULL, &v, text("k")),
                     SLUICE_OK);
    assert_int_equal(sl_keeper_journal_record_all(&x->k, x->now.ms, &walk, 10), 0);
    sl_table_walk_end(&walk);
    write_all(x);
    renew(x);
    struct keeper *y = next();
    y->now.ms += 7900;
    assert_true(sl_table_holds(y->table, y->now, text("k"), 5));
    y->now.ms += 76;
    assert_false(sl_table_holds(y->table, y->now, text("k"), 5));
    y->now.ms += 1024;
    assert_true(left_of(y, "k") > 0);
}

#define ID "0123456789abcdef"

/* A node reports a lease of 15 s with an id, and its client repeats its request. So the keeper records the
 * lease. */
static void repeat_reported(struct keeper *x)
{
    const struct sl_want want = {.key = text("k"),
                                 .per = 1,
                                 .buckets = 1,
                                 .units = 1,
                                 .lease_ms = 15000,
                                 .request = text(ID)};
    const struct sl_grant_view v = {.fence = 5,
                                    .leased = true,
                                    .units = 1,
                                    .per = 1,
                                    .buckets = 1,
                                    .left_ms = 15000,
                                    .unsure_ms = 1024,
                                    .request = text(ID)};
    struct sl_grant g;
    sl_table_set_fences(x->table, (sl_fence)1 << 40, SL_FENCE_MAX);
    assert_int_equal(sl_table_reclaim(x->table, x->now, NULL, &v, text("k")),
                     SLUICE_OK);
    sl_keeper_journal_change(&x->k, x->now.ms);
    assert_int_equal(sl_table_acquire(x->table, x->now, &x->client, &want, &g),
                     SLUICE_OK);
    assert_true(g.replay);
    assert_false(acknowledged(x));
    write_all(x);
    assert_true(acknowledged(x));
    renew(x);
}

UNIT_TEST(a_reported_lease_is_not_certainly_valid_until_its_bound)
{
    repeat_reported(first());
    struct keeper *y = next();
    y->now.ms += 15000 - 1024;
    assert_false(sl_table_holds(y->table, y->now, text("k"), 5));
    assert_true(left_of(y, "k") > 1024);
}

UNIT_TEST(what_was_released_is_not_restored)
{
    struct keeper *x = first();
    sl_fence fence = acquire(x, "k", 60000);
    acquire(x, "l", 60000);
    write_all(x);
    release(x, "k", fence);
    x->now.ms += SL_END_SYNC_MS;
    write_all(x);
    struct keeper *y = next();
    assert_int_equal(left_of(y, "k"), 0);
    assert_true(left_of(y, "l") >= 60000);
}

UNIT_TEST(the_clocks_of_keepers_may_differ_in_speed)
{
    struct keeper *x = first();
    acquire(x, "k", 1000000);
    write_all(x);
    /* The clock of this keeper gains 1 in 500, and it renews its term until it fails. */
    x->now.ms += 501000;
    renew(x);
    struct keeper *y = next();
    assert_true(left_of(y, "k") >=
                (1000000 - 500000) + 1000); /* Its clock gains, too. */
    /* A third keeper continues. */
    y->now.ms += 200400;
    renew(y);
    sl_keeper_journal_end(&x->k);
    sl_table_reset(x->table);
    x->now.ms = 77;
    begin(x);
    assert_true(left_of(x, "k") >= (1000000 - 500000 - 200000) + 600);
    assert_true(left_of(x, "k") <= 320000);
}

UNIT_TEST(journal_time_stands_still_without_a_keeper)
{
    struct keeper *x = first();
    acquire(x, "k", 60000);
    write_all(x);
    renew(x);
    keepers[1].now.ms += 10000000; /* The second keeper begins much later. */
    assert_true(left_of(next(), "k") >= 60000);
}

UNIT_TEST(a_lease_that_has_expired_is_removed_instead)
{
    struct keeper *x = first();
    acquire(x, "k", 15000);
    write_all(x);
    x->now.ms += 40000;
    renew(x);
    struct keeper *y = next();
    assert_int_equal(left_of(y, "k"), 0);
    y->now.ms += SL_END_SYNC_MS;
    assert_int_equal(write_all(y), 1);
    assert_int_equal(row_count, 0);
}

static bool is_fence(const void *arg, struct sl_bytes key,
                     const struct sl_grant_view *v)
{
    (void)key;
    return v->fence == *(const sl_fence *)arg;
}

UNIT_TEST(a_grant_that_ends_while_the_journal_is_read_is_not_restored)
{
    struct keeper *x = first(), *y = &keepers[1];
    sl_fence fence = acquire(x, "k", 60000);
    write_all(x);
    /* A node reports the grant to the next keeper, and its client releases it. */
    struct sl_grant_view v;
    assert_true(sl_table_newest(x->table, x->now, text("k"), &v));
    assert_true(sl_keeper_journal_begin(&y->k, y->now.ms, stored_ms));
    sl_table_set_fences(y->table, (sl_fence)1 << 40, SL_FENCE_MAX);
    assert_int_equal(sl_table_reclaim(y->table, y->now, &y->client, &v, text("k")),
                     SLUICE_OK);
    y->k.settings.withdrew =
        is_fence; /* The guests remember which grants have ended. */
    y->k.settings.arg = &fence;
    release(y, "k", fence);
    assert_int_equal(read_page(y, 1), SLUICE_OK);
    assert_int_equal(left_of(y, "k"), 0);
    y->now.ms += SL_END_SYNC_MS;
    write_all(y);
    assert_int_equal(row_count, 0);
    assert_int_equal(y->k.bounds.count, 0);
}

/* A keeper has recorded a lease of 60 s. The next keeper receives a report of the lease by a node that does not
 * know of the last extension: it expires in 100 ms. */
static struct keeper *next_with_earlier_report(void)
{
    struct keeper *x = first(), *y = &keepers[1];
    struct sl_grant_view v;
    acquire(x, "k", 60000);
    write_all(x);
    assert_true(sl_table_newest(x->table, x->now, text("k"), &v));
    v.left_ms = 100;
    assert_true(sl_keeper_journal_begin(&y->k, y->now.ms, stored_ms));
    sl_table_set_fences(y->table, (sl_fence)1 << 40, SL_FENCE_MAX);
    assert_int_equal(sl_table_reclaim(y->table, y->now, &y->client, &v, text("k")),
                     SLUICE_OK);
    return y;
}

/* The keeper reads the journal: the lease is held, and the journal keeps it. */
static void reads_longer_entry(struct keeper *y)
{
    assert_int_equal(read_page(y, 1), SLUICE_OK);
    assert_true(left_of(y, "k") > 50000);
    y->now.ms += SL_END_SYNC_MS;
    write_all(y);
    assert_int_equal(row_count, 1);
    assert_int_equal(y->k.bounds.count, 1);
}

UNIT_TEST(an_entry_that_lasts_longer_than_a_node_reported_is_restored)
{
    struct keeper *y = next_with_earlier_report();
    struct sl_effect e;
    y->now.ms += 200;
    sl_keeper_journal_change(&y->k, y->now.ms);
    while (sl_table_next(y->table, y->now, &e)) continue;
    assert_int_equal(left_of(y, "k"), 0);
    reads_longer_entry(y);
}

UNIT_TEST(an_entry_is_kept_although_its_lease_expires_by_a_report_when_it_is_read)
{
    struct keeper *y = next_with_earlier_report();
    y->now.ms += 200; /* The table has not noticed the expiry yet. */
    reads_longer_entry(y);
}

/* While a keeper waits, a node reports a lease of 100 ms, and an operator breaks it. Then it expires. */
static void break_reported(struct keeper *x)
{
    const struct sl_grant_view v = {
        .fence = 5, .leased = true, .units = 1, .per = 1, .buckets = 1, .left_ms = 100};
    struct sl_ended past;
    struct sl_effect e;
    sl_table_set_fences(x->table, 1000, SL_FENCE_MAX);
    sl_table_recover(x->table, SL_NEVER);
    assert_int_equal(sl_table_reclaim(x->table, x->now, NULL, &v, text("k")),
                     SLUICE_OK);
    sl_keeper_journal_change(&x->k, x->now.ms);
    assert_int_equal(sl_table_break(x->table, x->now, text("k"), 5, false, &past), 1);
    sl_journal_await(x->k.rules, sl_journal_last(x->k.rules));
    assert_int_equal(write_all(x), 1);
    x->now.ms += VOLATILE + 200; /* The bound has passed, too. */
    sl_keeper_journal_change(&x->k, x->now.ms);
    while (sl_table_next(x->table, x->now, &e)) continue;
    x->now.ms += SL_END_SYNC_MS;
    sl_keeper_journal_tidy(&x->k, x->now.ms);
    write_all(x);
}

/* Another node reports a later expiry of that lease. */
static int report_later(struct keeper *x, bool broken)
{
    const struct sl_grant_view v = {.fence = 5,
                                    .leased = true,
                                    .broken = broken,
                                    .units = 1,
                                    .per = 1,
                                    .buckets = 1,
                                    .left_ms = 5000};
    sl_keeper_journal_change(&x->k, x->now.ms);
    return sl_table_reclaim(x->table, x->now, NULL, &v, text("k"));
}

UNIT_TEST(the_entry_of_a_broken_grant_that_has_expired_stays_until_the_wait_ends)
{
    struct keeper *x = first();
    break_reported(x);
    assert_int_equal(row_count, 1);
    sl_table_recover(x->table, 0);
    sl_keeper_journal_tidy(&x->k, x->now.ms);
    x->now.ms += SL_END_SYNC_MS;
    write_all(x);
    assert_int_equal(row_count, 0);
}

UNIT_TEST(the_next_grant_of_a_key_waits_until_the_entry_of_a_broken_one_is_deleted)
{
    struct keeper *x = first();
    break_reported(x);
    sl_table_recover(x->table, 0);
    acquire(x, "k", 5000);
    assert_false(acknowledged(x));
    write_all(x);
    assert_true(acknowledged(x));
    assert_int_equal(row_count, 0);
    assert_true(sl_list_empty(&x->k.kept));
}

UNIT_TEST(the_entry_of_a_broken_grant_that_is_held_again_stays)
{
    struct keeper *x = first();
    break_reported(x);
    assert_int_equal(report_later(x, true), SLUICE_OK);
    sl_table_recover(x->table, 0);
    sl_keeper_journal_tidy(&x->k, x->now.ms);
    x->now.ms += SL_END_SYNC_MS;
    write_all(x);
    assert_int_equal(row_count, 1);
    assert_true(sl_table_holds(x->table, x->now, text("k"), 5));
}

static sl_fence broke;  /* The last grant that an entry says is broken or stolen, */
static bool was_stolen; /* and whether it is stolen, and not broken. */

static void note_broke(void *arg, sl_ms now_ms, sl_fence fence, bool stolen)
{
    (void)arg, (void)now_ms;
    broke = fence;
    was_stolen = stolen;
}

UNIT_TEST(an_expired_entry_says_that_a_grant_was_broken)
{
    for (int reported = 0; reported < 2; reported++) {
        struct keeper *x = first(), *y = &keepers[1];
        struct sl_grant_view v;
        break_reported(x);
        renew(x);
        assert_true(sl_keeper_journal_begin(&y->k, y->now.ms, stored_ms));
        sl_table_set_fences(y->table, (sl_fence)1 << 40, SL_FENCE_MAX);
        sl_table_recover(y->table, SL_NEVER);
        y->k.settings.broke = note_broke;
        if (reported) assert_int_equal(report_later(y, false), SLUICE_OK);
        broke = 0;
        assert_int_equal(read_page(y, ROWS), SLUICE_OK);
        assert_int_equal(broke, 5);
        assert_false(was_stolen);
        assert_int_equal(sl_table_inspect_grant(y->table, y->now, text("k"), 5, &v),
                         reported);
        if (reported) assert_true(v.broken && v.left_ms >= 5000);
        y->now.ms += SL_END_SYNC_MS;
        write_all(y);
        assert_int_equal(row_count, 1);
        teardown(NULL);
        setup(NULL);
    }
}

/* A keeper that has not read all entries receives a later expiry of a stolen lease whose entry it has read. */
UNIT_TEST(the_later_expiry_of_a_stolen_grant_is_recorded_while_entries_are_read)
{
    struct keeper *x = first(), *y = &keepers[1];
    struct sl_grant_view v = {.fence = 5,
                              .leased = true,
                              .asked = true,
                              .stolen = true,
                              .units = 1,
                              .per = 1,
                              .buckets = 1,
                              .left_ms = 100};
    sl_table_set_fences(x->table, 1000, SL_FENCE_MAX);
    assert_int_equal(sl_table_reclaim(x->table, x->now, NULL, &v, text("k")),
                     SLUICE_OK);
    acquire(x, "other", 60000);
    sl_journal_await(x->k.rules, sl_journal_last(x->k.rules));
    write_all(x);
    assert_int_equal(row_count, 2);
    renew(x);
    assert_true(sl_keeper_journal_begin(&y->k, y->now.ms, stored_ms));
    sl_table_set_fences(y->table, (sl_fence)1 << 40, SL_FENCE_MAX);
    y->k.settings.broke = note_broke;
    assert_int_equal(read_page(y, 1), SLUICE_OK);
    assert_int_equal(broke, 5);
    assert_true(was_stolen);
    v.left_ms = 2 * VOLATILE;
    sl_keeper_journal_change(&y->k, y->now.ms);
    assert_int_equal(sl_table_reclaim(y->table, y->now, NULL, &v, text("k")),
                     SLUICE_OK);
    assert_int_equal(read_page(y, ROWS), SLUICE_OK);
    sl_journal_await(y->k.rules, sl_journal_last(y->k.rules));
    assert_int_equal(write_all(y), 1);
    assert_true(sl_table_newest(y->table, y->now, text("k"), &v));
    assert_true(v.stolen && !v.broken && left_of(y, "k") >= 2 * VOLATILE);
}

UNIT_TEST(the_end_of_a_grant_that_a_node_reported_is_recorded)
{
    struct keeper *x = first();
    struct sl_grant_view v;
    sl_fence fence = acquire(x, "k", 60000);
    write_all(x);
    assert_true(sl_table_newest(x->table, x->now, text("k"), &v));
    struct keeper *y = &keepers[1];
    assert_true(sl_keeper_journal_begin(&y->k, y->now.ms, stored_ms));
    sl_table_set_fences(y->table, (sl_fence)1 << 40, SL_FENCE_MAX);
    assert_int_equal(sl_table_reclaim(y->table, y->now, &y->client, &v, text("k")),
                     SLUICE_OK);
    assert_int_equal(read_page(y, ROWS), SLUICE_OK);
    release(y, "k", fence);
    y->now.ms += SL_END_SYNC_MS;
    write_all(y);
    assert_int_equal(row_count, 0);
}

UNIT_TEST(drained_patterns_and_broken_grants_are_restored)
{
    struct keeper *x = first();
    struct sl_ended past;
    struct sl_grant_view v;
    struct sl_lock_view lock;
    sl_fence fence = acquire(x, "short", 5000);
    sl_keeper_journal_change(&x->k, x->now.ms);
    sl_table_break(x->table, x->now, text("short"), fence, false, &past);
    sl_fence other = acquire(x, "gone", 5000);
    sl_keeper_journal_change(&x->k, x->now.ms);
    sl_table_break(x->table, x->now, text("gone"), other, true, &past);
    sl_table_drain(x->table, text("d*"), true);
    sl_table_drain(x->table, text("e*"), true);
    sl_table_drain(x->table, text("e*"), false);
    sl_journal_await(x->k.rules, sl_journal_last(x->k.rules));
    write_all(x);
    renew(x);
    struct keeper *y = next();
    assert_true(sl_table_newest(y->table, y->now, text("short"), &v) && v.broken);
    assert_true(sl_table_inspect(y->table, y->now, text("gone"), &lock));
    assert_true(lock.next_overlaps);
    assert_true(sl_table_drained(y->table, text("door")));
    assert_false(sl_table_drained(y->table, text("east")));
    sl_table_drain(y->table, text("d*"), false);
    y->now.ms += SL_END_SYNC_MS;
    write_all(y);
    for (size_t i = 0; i < row_count; i++) assert_int_not_equal(rows[i].key[0], 'd');
}

UNIT_TEST(an_invalid_entry_is_found)
{
    struct keeper *x = first();
    acquire(x, "k", 60000);
    acquire(x, "l", 60000);
    write_all(x);
    const struct row good = rows[1];
    struct keeper *y = &keepers[1];
    assert_true(sl_keeper_journal_begin(&y->k, y->now.ms, stored_ms));
    sl_table_set_fences(y->table, (sl_fence)1 << 40, SL_FENCE_MAX);
    rows[1].value_bytes -= 8;
    assert_int_equal(read_page(y, ROWS), SLUICE_EINVAL);
    rows[1] = good;
    rows[1].key[14] = (char)(rows[1].key[14] ^ 1); /* The key of another grant. */
    assert_int_equal(read_page(y, ROWS), SLUICE_EINVAL);
    rows[1] = good;
    assert_int_equal(read_page(y, ROWS), SLUICE_OK);
    assert_true(left_of(y, "k") > 0 && left_of(y, "l") > 0);
}

UNIT_TEST(a_write_of_an_earlier_term_does_not_count)
{
    struct keeper *x = first();
    const struct sl_storage_write *w;
    uint32_t n;
    acquire(x, "k", 60000);
    assert_true(sl_keeper_journal_next(&x->k, x->now.ms, &w, &n));
    sl_keeper_journal_end(&x->k);
    sl_table_reset(x->table);
    first();
    acquire(x, "l", 60000);
    assert_false(sl_keeper_journal_next(&x->k, x->now.ms, &w, &n));
    assert_false(sl_keeper_journal_written(&x->k, x->now.ms, true));
    assert_false(acknowledged(x));
    write_all(x);
    assert_true(acknowledged(x));
}

int main(void)
{
    return run_unit_tests_with("failover_journal", setup, teardown);
}
