/* test_journal.c - the rules of the journal while a server runs (J1 to J6), positions and syncs,
 * failure, and lack of memory. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "test.h"

#include "failing_alloc.h"
#include "journal_stage.h"
#include "sluice.h"

#define SECOND ((sl_ms)1000)
#define MINUTE (60 * SECOND)
#define VOLATILE MINUTE

static struct sl_journal *journal;
static struct sl_now now;

static int setup(void **state)
{
    (void)state;
    now = (struct sl_now){.ms = 1000 * MINUTE + 1};
    journal = sl_journal_new(stage_key, 100, VOLATILE);
    return journal == NULL;
}

static int teardown(void **state)
{
    (void)state;
    sl_journal_check(journal);
    sl_journal_free(journal);
    return 0;
}

static void restart(sl_ms volatile_ms)
{
    sl_journal_free(journal);
    journal = sl_journal_new(stage_key, 100, volatile_ms);
}

/* A grant, as its server remembers it. */
struct grant {
    const char *key;
    sl_fence fence;
    struct sl_item_before before;
    sl_ms bound_ms;
};

static uint64_t extend(struct grant *g, sl_ms lease_ms)
{
    struct sl_item item = grant_of(g->key, g->fence, now.ms + lease_ms);
    uint64_t position = sl_journal_put(journal, now, &item, g->before);
    g->before = (struct sl_item_before){item.expiry_ms, item.is_long};
    g->bound_ms = item.bound_ms;
    sl_journal_check(journal);
    return position;
}

static struct grant new_grant(const char *key)
{
    static sl_fence fence;
    return (struct grant){.key = key, .fence = ++fence};
}

static uint64_t acquire(struct grant *g, const char *key, sl_ms lease_ms)
{
    *g = new_grant(key);
    return extend(g, lease_ms);
}

static uint64_t release(const struct grant *g)
{
    uint64_t position = sl_journal_end(journal, now, SL_ITEM_GRANT, bytes_of(g->key),
                                       g->fence, g->before.is_long);
    sl_journal_check(journal);
    return position;
}

/* Write all records. Returns the number of frames. */
static int write_all(void)
{
    struct sl_bytes records;
    uint64_t position;
    int frames = 0;
    while (sl_journal_take(journal, &records, &position)) {
        assert_int_equal(position, sl_journal_position(journal));
        frames++;
    }
    sl_journal_check(journal);
    return frames;
}

static void sync_all(void)
{
    write_all();
    sl_journal_sync_begin(journal);
    sl_journal_check(journal);
    sl_journal_sync_end(journal, true);
    sl_journal_check(journal);
    assert_int_equal(sl_journal_durable(journal), sl_journal_position(journal));
}

static uint64_t need(const char *key)
{
    return sl_journal_need(journal, bytes_of(key));
}

static uint64_t pending(const char *key)
{
    return sl_journal_pending(journal, bytes_of(key));
}

/* --- J1 and J2: records and positions ------------------------------------------------- */

UNIT_TEST(j1_all_records_of_an_iteration_form_one_frame)
{
    struct grant a, b;
    assert_int_equal(write_all(), 0);
    assert_int_equal(acquire(&a, "a", 5 * MINUTE), 101);
    assert_int_equal(acquire(&b, "b", 5 * MINUTE), 101);
    assert_int_equal(sl_journal_position(journal), 100);
    assert_int_equal(write_all(), 1);
    assert_int_equal(sl_journal_position(journal), 101);
    assert_int_equal(write_all(), 0);
    assert_int_equal(extend(&b, 10 * MINUTE), 102);
}

UNIT_TEST(j2_records_are_in_the_order_of_the_changes)
{
    struct grant a, b;
    struct sl_bytes records;
    struct sl_item item;
    uint64_t position;
    size_t at = 0;
    acquire(&a, "k", SECOND);
    release(&a);
    acquire(&b, "k", SECOND);
    assert_true(sl_journal_take(journal, &records, &position));
    assert_int_equal(sl_record_next(records, &at, &item), 1);
    assert_int_equal(item.fence, a.fence);
    assert_int_equal(sl_record_next(records, &at, &item), 2);
    assert_int_equal(item.fence, a.fence);
    assert_int_equal(sl_record_next(records, &at, &item), 1);
    assert_int_equal(item.fence, b.fence);
    assert_int_equal(sl_record_next(records, &at, &item), 0);
}

UNIT_TEST(records_that_do_not_fit_into_one_frame_are_divided)
{
    size_t n = SL_ITEM_VALUE_BYTES_MAX;
    char *value = calloc(1, n);
    struct sl_item item = grant_of("k", 1, now.ms + 5 * MINUTE);
    item.value = (struct sl_bytes){value, n};
    /* Two such records are larger than a frame. */
    assert_int_equal(sl_journal_put(journal, now, &item, (struct sl_item_before){0}),
                     101);
    item.fence = 2;
    assert_int_equal(sl_journal_put(journal, now, &item, (struct sl_item_before){0}),
                     102);
    struct grant g;
    assert_int_equal(acquire(&g, "other", 5 * MINUTE), 102);
    struct sl_life life = life_of("boot");
    char bytes[SL_LIFE_BYTES];
    sl_life_write(bytes, &life);
    struct sl_item its = {
        .kind = SL_ITEM_LIFE, .expiry_ms = SL_NEVER, .value = {bytes, sizeof bytes}};
    assert_int_equal(sl_journal_put(journal, now, &its, (struct sl_item_before){0}),
                     102);
    struct disk d = {0};
    disk_begin(&d, 100);
    disk_write(&d, journal, now.ms);
    sl_journal_check(journal);
    assert_int_equal(d.chain.position, 102);
    assert_int_equal(disk_recover(&d, &life, now.ms), SL_RECOVERY_OK);
    assert_int_equal(d.r.items, 3);
    disk_end(&d);
    free(value);
    assert_int_equal(acquire(&g, "other", 5 * MINUTE), 103);
}

/* --- J3: bounds -------------------------------------------------------------------------- */

UNIT_TEST(j3_the_bound_of_a_short_lease_is_its_expiry)
{
    struct grant g;
    assert_int_equal(acquire(&g, "k", VOLATILE), 0);
    assert_false(g.before.is_long);
    assert_int_equal(g.bound_ms, now.ms + VOLATILE);
}

UNIT_TEST(j3_the_bound_of_a_long_lease_is_less_than_one_step_later)
{
    for (sl_ms lease_ms = VOLATILE + 1; lease_ms < 3 * MINUTE; lease_ms += 7777) {
        struct grant g;
        acquire(&g, "k", lease_ms);
        sl_ms slack_ms = g.bound_ms - g.before.expiry_ms;
        assert_true(g.before.is_long);
        assert_in_range(slack_ms, 0, SL_BOUND_STEP_MS - 1);
        assert_int_equal(g.bound_ms % SL_BOUND_STEP_MS, 0);
    }
}

UNIT_TEST(j3_the_bound_of_a_lease_is_less_than_one_lease_later)
{
    restart(5 * SECOND);
    for (sl_ms lease_ms = 5001; lease_ms < MINUTE; lease_ms += 777) {
        struct grant g;
        now.ms += 33;
        acquire(&g, "k", lease_ms);
        assert_true(g.before.is_long);
        assert_in_range(g.bound_ms, g.before.expiry_ms,
                        g.before.expiry_ms + lease_ms - 1);
    }
}

UNIT_TEST(j3_a_lease_stays_long_until_it_ends)
{
    struct grant g;
    acquire(&g, "k", 2 * MINUTE);
    sync_all();
    now.ms += 119 * SECOND;
    extend(&g, 2 * SECOND);
    assert_true(g.before.is_long);
    assert_true(g.bound_ms >= g.before.expiry_ms);
}

/* --- J4: what must be durable --------------------------------------------------------------- */

UNIT_TEST(j4a_a_short_lease_need_not_be_durable)
{
    struct grant g;
    assert_int_equal(acquire(&g, "k", VOLATILE), 0);
    assert_int_equal(extend(&g, VOLATILE), 0);
    assert_int_equal(sl_journal_sync_due(journal), SL_NEVER);
    assert_int_equal(pending("k"), 0);
}

UNIT_TEST(j4a_a_long_lease_must_be_durable)
{
    struct grant g;
    assert_int_equal(acquire(&g, "k", VOLATILE + 1), 101);
    assert_int_equal(sl_journal_sync_due(journal), 0);
    assert_int_equal(pending("k"), 101);
    assert_int_equal(pending("other"), 0);
    assert_int_equal(sl_journal_pending_any(journal), 101);
    sync_all();
    assert_int_equal(pending("k"), 0);
    assert_int_equal(sl_journal_pending_any(journal), 0);
    assert_int_equal(sl_journal_sync_due(journal), SL_NEVER);
}

UNIT_TEST(j4a_an_extension_must_be_durable_if_its_bound_is_new)
{
    struct grant g;
    now.ms = 1000 * MINUTE + 1;
    acquire(&g, "k", 5 * MINUTE);
    sync_all();
    sl_ms bound_ms = g.bound_ms;
    int syncs = 0;
    for (int i = 0; i < 600; i++) {
        now.ms += SECOND;
        uint64_t position = extend(&g, 5 * MINUTE);
        assert_int_equal(position != 0, g.bound_ms != bound_ms);
        bound_ms = g.bound_ms;
        if (position != 0) {
            sync_all();
            syncs++;
        }
    }
    assert_int_equal(syncs, 600 * SECOND / SL_BOUND_STEP_MS);
}

UNIT_TEST(j4a_a_short_lease_that_becomes_long_must_be_durable)
{
    struct grant g;
    assert_int_equal(acquire(&g, "k", SECOND), 0);
    assert_int_equal(extend(&g, 2 * MINUTE), 101);
    assert_true(g.before.is_long);
}

/* A lost record of such an extension does no harm: the wait of lease-volatile after a power
 * failure is longer. */
UNIT_TEST(j4a_a_new_bound_within_lease_volatile_need_not_be_durable)
{
    struct grant g;
    acquire(&g, "k", 61 * SECOND);
    sync_all();
    sl_ms bound_ms = g.bound_ms;
    now.ms = g.before.expiry_ms - 1;
    assert_int_equal(extend(&g, 35 * SECOND), 0);
    assert_true(g.bound_ms > bound_ms && g.bound_ms <= now.ms + VOLATILE);
}

UNIT_TEST(j4a_an_earlier_bound_of_a_long_lease_must_be_durable)
{
    struct grant g;
    acquire(&g, "k", 10 * MINUTE);
    sync_all();
    assert_int_equal(extend(&g, SECOND), 102);
}

UNIT_TEST(j4a_an_extension_waits_for_the_grant_that_is_not_durable)
{
    struct grant g;
    assert_int_equal(acquire(&g, "k", 5 * MINUTE), 101);
    write_all();
    now.ms++;
    assert_int_equal(extend(&g, 5 * MINUTE - 1), 101);
}

UNIT_TEST(j4a_without_lease_volatile_every_record_must_be_durable)
{
    restart(0);
    struct grant g;
    assert_int_equal(acquire(&g, "k", 1), 101);
    assert_int_equal(g.bound_ms, g.before.expiry_ms);
    sync_all();
    assert_int_equal(extend(&g, 1), 102);
}

UNIT_TEST(j4a_an_item_that_does_not_expire_must_be_durable)
{
    struct sl_item item = {
        .kind = SL_ITEM_DRAIN, .key = bytes_of("jobs:*"), .expiry_ms = SL_NEVER};
    assert_int_equal(sl_journal_put(journal, now, &item, (struct sl_item_before){0}),
                     101);
    assert_true(item.is_long);
    assert_int_equal(item.bound_ms, SL_NEVER);
    sync_all();
    assert_int_equal(
        sl_journal_put(journal, now, &item, (struct sl_item_before){SL_NEVER, true}),
        102);
}

UNIT_TEST(j4b_a_short_lease_waits_for_the_end_of_a_long_one)
{
    struct grant a, b, other;
    acquire(&a, "k", 5 * MINUTE);
    sync_all();
    assert_int_equal(release(&a), 102);
    write_all();
    assert_int_equal(acquire(&other, "other", SECOND), 0);
    assert_int_equal(acquire(&b, "k", SECOND), 102);
    assert_int_equal(pending("k"), 102);
    assert_int_equal(sl_journal_sync_due(journal), 0);
    sync_all();
    release(&b);
    assert_int_equal(acquire(&b, "k", SECOND), 0);
}

UNIT_TEST(j4b_a_grant_without_a_lease_waits_for_the_end_of_a_long_one)
{
    struct grant a;
    acquire(&a, "k", 5 * MINUTE);
    sync_all();
    assert_int_equal(need("k"), 0);
    release(&a);
    assert_int_equal(need("other"), 0);
    assert_int_equal(need("k"), 102);
    assert_int_equal(pending("k"), 102);
    assert_int_equal(sl_journal_sync_due(journal), 0);
    sync_all();
    assert_int_equal(need("k"), 0);
    assert_int_equal(pending("k"), 0);
}

UNIT_TEST(j4b_an_end_that_a_sync_in_progress_covers_is_waited_for)
{
    struct grant a, b;
    acquire(&a, "k", 5 * MINUTE);
    acquire(&b, "later", 5 * MINUTE);
    sync_all();
    release(&a);
    write_all();
    sl_journal_sync_begin(journal);
    release(&b); /* Not covered. */
    assert_int_equal(need("k"), 102);
    assert_int_equal(need("later"), 103);
    write_all();
    sl_journal_sync_end(journal, true);
    assert_int_equal(need("k"), 0);
    assert_int_equal(need("later"), 103);
    sync_all();
    assert_int_equal(need("later"), 0);
}

UNIT_TEST(j4b_an_end_that_is_not_written_when_a_sync_begins_is_waited_for)
{
    struct grant a;
    acquire(&a, "k", 5 * MINUTE);
    sync_all();
    release(&a);
    sl_journal_sync_begin(journal);
    sl_journal_check(journal);
    sl_journal_sync_end(journal, true);
    assert_int_equal(need("k"), 102);
    assert_true(sl_journal_sync_due(journal) != SL_NEVER);
}

UNIT_TEST(j4b_the_end_of_a_short_lease_is_not_waited_for)
{
    struct grant a, b;
    acquire(&a, "k", SECOND);
    assert_int_equal(release(&a), 101);
    assert_int_equal(acquire(&b, "k", SECOND), 0);
    assert_int_equal(need("k"), 0);
    assert_int_equal(sl_journal_sync_due(journal), SL_NEVER);
}

UNIT_TEST(j4_ends_of_long_leases_become_durable_within_a_second)
{
    struct grant a, b;
    acquire(&a, "a", 5 * MINUTE);
    acquire(&b, "b", 5 * MINUTE);
    sync_all();
    sl_ms due_ms = now.ms + SL_END_SYNC_MS;
    release(&a);
    now.ms += 300;
    release(&b);
    assert_int_equal(sl_journal_sync_due(journal), due_ms);
    write_all();
    sl_journal_sync_begin(journal);
    assert_int_equal(sl_journal_sync_due(journal), SL_NEVER); /* One at a time. */
    sl_journal_sync_end(journal, true);
    assert_int_equal(sl_journal_sync_due(journal), SL_NEVER);
}

UNIT_TEST(an_end_is_synced_at_once_if_a_request_waits_for_it)
{
    struct grant a;
    acquire(&a, "k", SECOND);
    uint64_t position = release(&a);
    assert_int_equal(sl_journal_sync_due(journal), SL_NEVER);
    sl_journal_await(journal, position);
    assert_int_equal(sl_journal_sync_due(journal), 0);
    sync_all();
    assert_int_equal(sl_journal_sync_due(journal), SL_NEVER);
}

UNIT_TEST(requests_about_a_key_wait_for_an_end_that_is_awaited)
{
    struct grant a;
    acquire(&a, "k", SECOND);
    uint64_t position = release(&a);
    assert_int_equal(pending("k"), 0);
    assert_int_equal(sl_journal_await_key(journal, bytes_of("k"), position), position);
    assert_int_equal(pending("k"), position);
    assert_int_equal(pending("other"), 0);
    assert_int_equal(sl_journal_sync_due(journal), 0);
    sync_all();
    assert_int_equal(pending("k"), 0);
}

UNIT_TEST(what_is_put_during_a_sync_is_synced_by_the_next_one)
{
    struct grant a, b;
    assert_int_equal(acquire(&a, "a", 5 * MINUTE), 101);
    write_all();
    sl_journal_sync_begin(journal);
    assert_int_equal(acquire(&b, "b", 5 * MINUTE), 102);
    write_all();
    sl_journal_sync_end(journal, true);
    assert_int_equal(sl_journal_durable(journal), 101);
    assert_int_equal(pending("a"), 0);
    assert_int_equal(pending("b"), 102);
    assert_int_equal(sl_journal_sync_due(journal), 0);
    sync_all();
    assert_int_equal(pending("b"), 0);
}

UNIT_TEST(many_keys_can_wait_at_once)
{
    enum { KEYS = 5000 };
    static char names[KEYS][16];
    for (int round = 0; round < 3; round++) {
        struct grant g[KEYS];
        for (int i = 0; i < KEYS; i++) {
            snprintf(names[i], sizeof names[i], "key %d", i);
            g[i] = new_grant(names[i]);
            struct sl_item item = grant_of(names[i], g[i].fence, now.ms + 5 * MINUTE);
            assert_true(
                sl_journal_put(journal, now, &item, (struct sl_item_before){0}) > 100);
        }
        sl_journal_check(journal);
        for (int i = 0; i < KEYS; i++) assert_true(pending(names[i]) != 0);
        sync_all();
        for (int i = 0; i < KEYS; i++) assert_int_equal(pending(names[i]), 0);
    }
}

/* --- J5 ----------------------------------------------------------------------------------- */

UNIT_TEST(j5_a_copy_keeps_the_larger_lease_volatile_until_its_leases_have_expired)
{
    sl_journal_inherit(journal, 10 * MINUTE, now.ms);
    assert_int_equal(sl_journal_volatile_ms(journal), VOLATILE);
    assert_int_equal(sl_journal_copied_volatile_ms(journal, now.ms + 10 * MINUTE - 1),
                     10 * MINUTE);
    assert_int_equal(sl_journal_copied_volatile_ms(journal, now.ms + 10 * MINUTE),
                     VOLATILE);
    sl_journal_inherit(journal, SECOND, now.ms);
    assert_int_equal(sl_journal_copied_volatile_ms(journal, now.ms), VOLATILE);
}

/* Otherwise the journal would assume that the file contains a bound which it does not. */
UNIT_TEST(j3_after_a_change_of_lease_volatile_earlier_bounds_are_written_again)
{
    struct sl_item item = grant_of("k", 1, now.ms + 5 * MINUTE);
    item.is_long = true;
    restart(5 * SECOND);
    sl_journal_bound(journal, &item);
    sl_journal_restore(journal, &item);
    assert_int_equal(write_all(), 0);
    restart(VOLATILE);
    sl_journal_restore(journal, &item);
    assert_int_equal(write_all(), 1);
    assert_int_equal(item.bound_ms % SL_BOUND_STEP_MS, 0);
    restart(5 * SECOND); /* The file has a later bound, which is not wrong. */
    sl_journal_restore(journal, &item);
    assert_int_equal(write_all(), 0);
}

/* --- Failure ------------------------------------------------------------------------------- */

UNIT_TEST(after_a_failed_write_nothing_is_accepted)
{
    struct grant a;
    acquire(&a, "k", 5 * MINUTE);
    write_all();
    sl_journal_fail(journal);
    sl_journal_check(journal);
    assert_true(sl_journal_failed(journal));
    assert_int_equal(acquire(&a, "x", SECOND), SL_JOURNAL_FAILED);
    assert_int_equal(pending("k"), 0);
    assert_int_equal(sl_journal_pending_any(journal), 0);
    assert_int_equal(sl_journal_sync_due(journal), SL_NEVER);
    assert_int_equal(write_all(), 0);
    assert_int_equal(need("x"), 0);
}

UNIT_TEST(after_a_failed_sync_the_journal_has_failed)
{
    struct grant a;
    acquire(&a, "k", 5 * MINUTE);
    write_all();
    sl_journal_sync_begin(journal);
    sl_journal_sync_end(journal, false);
    sl_journal_check(journal);
    assert_true(sl_journal_failed(journal));
    assert_int_equal(sl_journal_durable(journal), 100);
}

/* The file shows the lease, and a new server would hold it. */
UNIT_TEST(while_the_journal_is_failed_a_released_key_is_not_granted)
{
    struct grant a, b;
    acquire(&a, "a", SECOND);
    acquire(&b, "b", SECOND);
    write_all();
    release(&a);
    write_all();
    sl_journal_fail(journal); /* The write failed. */
    assert_int_equal(release(&b), SL_JOURNAL_FAILED);
    assert_int_equal(need("a"), SL_JOURNAL_FAILED);
    assert_int_equal(need("b"), SL_JOURNAL_FAILED);
    assert_int_equal(need("c"), 0);
}

/* A client may disconnect between the failed write and the failure of the journal. */
UNIT_TEST(records_appended_after_a_failed_write_do_not_hide_its_ends)
{
    struct grant a, b;
    acquire(&a, "a", SECOND);
    acquire(&b, "b", SECOND);
    write_all();
    release(&a);
    write_all(); /* This write failed. */
    release(&b);
    sl_journal_fail(journal);
    assert_int_equal(need("a"), SL_JOURNAL_FAILED);
    assert_int_equal(need("b"), SL_JOURNAL_FAILED);
    assert_int_equal(write_all(), 0);
}

UNIT_TEST(a_new_file_mends_a_failed_journal)
{
    struct grant a, b, c;
    acquire(&a, "a", SECOND);
    acquire(&b, "b", 5 * MINUTE);
    acquire(&c, "c", SECOND);
    write_all();
    sl_journal_fail(journal);
    release(&a);
    sl_journal_mend_begin(journal);
    sl_journal_check(journal);
    assert_int_equal(release(&b), 102);
    assert_int_equal(write_all(), 1);
    assert_int_equal(release(&c), 103);
    assert_int_equal(write_all(), 1);
    assert_int_equal(need("a"), SL_JOURNAL_FAILED);
    assert_int_equal(need("b"), SL_JOURNAL_FAILED);
    assert_int_equal(acquire(&a, "x", SECOND), SL_JOURNAL_FAILED);
    sl_journal_mend(journal, 102);
    sl_journal_check(journal);
    assert_false(sl_journal_failed(journal));
    assert_int_equal(sl_journal_durable(journal), 102);
    assert_int_equal(need("a"), 0);
    assert_int_equal(need("b"), 0);
    assert_int_equal(need("c"), 103);
    assert_int_equal(acquire(&a, "x", SECOND), 0);
}

UNIT_TEST(a_failed_attempt_to_mend_changes_nothing)
{
    struct grant a, b;
    acquire(&a, "a", SECOND);
    acquire(&b, "b", SECOND);
    write_all();
    sl_journal_fail(journal);
    release(&a);
    sl_journal_mend_begin(journal);
    release(&b);
    write_all();
    sl_journal_fail(journal);
    sl_journal_check(journal);
    assert_int_equal(need("a"), SL_JOURNAL_FAILED);
    assert_int_equal(need("b"), SL_JOURNAL_FAILED);
    sl_journal_mend_begin(journal);
    sl_journal_mend(journal, sl_journal_position(journal));
    assert_int_equal(need("a"), 0);
    assert_int_equal(need("b"), 0);
}

UNIT_TEST(a_sync_that_succeeds_after_a_failed_write_counts)
{
    struct grant a, b;
    acquire(&a, "a", 5 * MINUTE);
    acquire(&b, "b", 5 * MINUTE);
    sync_all();
    release(&a);
    write_all();
    sl_journal_sync_begin(journal);
    release(&b);
    write_all();
    sl_journal_fail(journal);
    sl_journal_check(journal);
    sl_journal_sync_end(journal, true);
    sl_journal_check(journal);
    assert_int_equal(sl_journal_durable(journal), 102);
    assert_int_equal(need("a"), 0);
    assert_int_equal(need("b"), SL_JOURNAL_FAILED);
}

/* --- Lack of memory -------------------------------------------------------------------------- */

UNIT_TEST(without_memory_the_journal_fails_and_earlier_records_can_be_written)
{
    for (long n = 0;; n++) {
        struct grant a, b, c;
        restart(VOLATILE);
        memory_fails_after(n);
        uint64_t got = acquire(&a, "a", 5 * MINUTE);
        uint64_t ended = got == SL_JOURNAL_FAILED ? got : release(&a);
        uint64_t needed = need("a");
        uint64_t more = 0;
        for (int i = 0; i < 200 && more != SL_JOURNAL_FAILED; i++)
            more = acquire(&b, i % 2 == 0 ? "b" : "c", 5 * MINUTE);
        memory_is_back();
        if (memory_failures() == 0) break;
        assert_true(sl_journal_failed(journal));
        assert_true(more == SL_JOURNAL_FAILED);
        if (ended != SL_JOURNAL_FAILED && needed != 101)
            assert_true(needed == SL_JOURNAL_FAILED);
        assert_int_equal(write_all(), got == SL_JOURNAL_FAILED && n == 0 ? 0 : 1);
        if (got != SL_JOURNAL_FAILED) assert_int_equal(need("a"), SL_JOURNAL_FAILED);
        sl_journal_mend_begin(journal);
        sl_journal_mend(journal, sl_journal_position(journal));
        assert_int_equal(acquire(&c, "a", SECOND), 0);
    }
}

UNIT_TEST(without_memory_a_mark_of_a_failed_journal_is_not_forgotten)
{
    struct grant a;
    acquire(&a, "a", SECOND);
    write_all();
    sl_journal_fail(journal);
    memory_fails_after(0);
    assert_int_equal(release(&a), SL_JOURNAL_FAILED);
    memory_is_back();
    assert_int_equal(need("a"), SL_JOURNAL_FAILED);
}

UNIT_TEST(without_memory_there_is_no_journal)
{
    memory_fails_after(0);
    assert_null(sl_journal_new(stage_key, 0, VOLATILE));
    memory_is_back();
    sl_journal_free(NULL);
}

int main(void)
{
    return run_unit_tests_with("journal", setup, teardown);
}
