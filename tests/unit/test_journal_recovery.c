/* test_journal_recovery.c - the rules of a start (J5 to J9): which items are held, how long new
 * grants wait, and which files are damaged. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "test.h"

#include "base/random.h"
#include "failing_alloc.h"
#include "journal_stage.h"
#include "sluice.h"

#define SECOND ((sl_ms)1000)
#define MINUTE (60 * SECOND)

/* The time of the last frame, unless a test says otherwise. */
#define LAST (100 * MINUTE)

static struct disk d;
static struct sl_buffer b;
static struct sl_life life; /* The present. */

static int setup(void **state)
{
    (void)state;
    disk_begin(&d, 0);
    life = life_of("boot 1");
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    sl_buffer_free(&b);
    disk_end(&d);
    return 0;
}

static void put(struct sl_item item)
{
    assert_int_equal(sl_record_put(&b, &item), SLUICE_OK);
}

static void end(const char *key, sl_fence fence)
{
    assert_int_equal(sl_record_end(&b, SL_ITEM_GRANT, bytes_of(key), fence), SLUICE_OK);
}

static void put_long(const char *key, sl_fence fence, sl_ms expiry_ms, sl_ms bound_ms)
{
    struct sl_item item = grant_of(key, fence, expiry_ms);
    item.is_long = true;
    item.bound_ms = bound_ms;
    put(item);
}

static void put_life(const struct sl_life *l)
{
    char value[SL_LIFE_BYTES];
    sl_life_write(value, l);
    put((struct sl_item){.kind = SL_ITEM_LIFE,
                         .expiry_ms = SL_NEVER,
                         .bound_ms = SL_NEVER,
                         .is_long = true,
                         .value = {value, sizeof value}});
}

static void put_number(enum sl_item_kind kind, uint64_t number)
{
    char value[SL_VALUE_BYTES];
    put(number_of(kind, number, value));
}

static void put_clean(void)
{
    put((struct sl_item){
        .kind = SL_ITEM_CLEAN, .expiry_ms = SL_NEVER, .bound_ms = SL_NEVER});
}

/* Write the records as a frame. */
static void frame_at(sl_ms now_ms, uint64_t durable)
{
    disk_frame(&d, (struct sl_bytes){b.at, b.n}, d.chain.position + 1, durable, now_ms);
    b.n = 0;
}

static void frame(void)
{
    frame_at(LAST, 0);
}

/* Life 1 with a lease-volatile of one minute. */
static void begin(void)
{
    struct sl_life first = life_of("boot 1");
    put_number(SL_ITEM_VOLATILE, (uint64_t)MINUTE);
    put_life(&first);
    frame_at(LAST - MINUTE, 0);
}

static void recover(sl_ms now_ms)
{
    assert_int_equal(disk_recover(&d, &life, now_ms), SL_RECOVERY_OK);
}

/* Write the items that are held, as "key fence expiry" with a * if it is long, sorted as
 * returned. */
static const char *held(void)
{
    static char text[4096];
    struct sl_item item;
    uint64_t cursor = 0;
    size_t n = 0;
    text[0] = '\0';
    while (sl_recovery_next(&d.r, &cursor, &item)) {
        n += (size_t)snprintf(text + n, sizeof text - n, "%s%.*s %d %lld%s",
                              n == 0 ? "" : ", ", (int)item.key.n, item.key.at,
                              (int)item.fence, (long long)item.expiry_ms,
                              item.is_long ? "*" : "");
    }
    return text;
}

static double ms_between(struct timespec from, struct timespec to)
{
    return (double)(to.tv_sec - from.tv_sec) * 1e3 +
           (double)(to.tv_nsec - from.tv_nsec) / 1e6;
}

/* --- What a file contains -------------------------------------------------------------- */

UNIT_TEST(the_last_record_of_an_item_counts)
{
    begin();
    put(grant_of("a", 1, LAST + 1));
    put(grant_of("b", 2, LAST + 2));
    frame();
    put(grant_of("a", 1, LAST + 3));
    end("b", 2);
    put(grant_of("b", 3, LAST + 4));
    frame();
    recover(LAST);
    assert_string_equal(held(), "a 1 6000003, b 3 6000004");
    assert_int_equal(d.r.items, 2);
    assert_int_equal(d.r.bytes, d.n);
    assert_memory_equal(&d.r.chain, &d.chain, sizeof d.chain);
    assert_int_equal(d.r.last_ms, LAST);
    assert_int_equal(d.r.use, SL_JOURNAL_OF_SERVER);
}

UNIT_TEST(items_of_another_kind_key_or_fence_are_others)
{
    begin();
    struct sl_item item = grant_of("a", 1, LAST + 1);
    put(item);
    item.fence = 2;
    put(item);
    item.kind = SL_ITEM_KEY;
    put(item);
    item.key = bytes_of("ab");
    put(item);
    item.key = bytes_of("");
    put(item);
    end("a", 3); /* Unknown. */
    end("b", 1);
    end("a", 2);
    frame();
    recover(LAST);
    assert_int_equal(d.r.items, 4);
    assert_string_equal(held(), "a 1 6000001, a 2 6000001, ab 2 6000001,  2 6000001");
}

/* SLUICE_JOURNAL_ITEMS=n chooses the number of items, to measure a large journal. */
UNIT_TEST(many_items_are_found_again_among_many_that_have_ended)
{
    const char *setting = getenv("SLUICE_JOURNAL_ITEMS");
    int items = setting != NULL ? atoi(setting) : 50000;
    char key[48];
    begin();
    for (int i = 0; i < 2 * items + 1000; i++) {
        if (i < 2 * items) {
            snprintf(key, sizeof key, "a key of usual length %d", i);
            struct sl_item item = grant_of(key, (sl_fence)i + 1, LAST + 1 + i);
            item.value = bytes_of("the name and the address of the client");
            put(item);
        }
        if (i >= 1000 && i % 2 == 0) { /* Every other one ends some time later. */
            snprintf(key, sizeof key, "a key of usual length %d", i - 1000);
            end(key, (sl_fence)i - 999);
        }
        if (i % 100 == 99) frame();
    }

    struct timespec from, replayed, read;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &from);
    recover(LAST);
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &replayed);
    assert_int_equal(d.r.items, items);
    struct sl_item item;
    uint64_t cursor = 0, count = 0, sum = 0;
    for (; sl_recovery_next(&d.r, &cursor, &item); count++) sum += item.fence;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &read);
    printf("# %d items and %d ends in %zu MB: CPU time %.0f ms to replay, %.0f ms to "
           "read\n",
           items, items, d.n >> 20, ms_between(from, replayed),
           ms_between(replayed, read));
    assert_int_equal(count, items);
    assert_int_equal(sum, (uint64_t)items * ((uint64_t)items + 1)); /* 2 + 4 + ... */
}

/* A file gets its name when its first frame is durable. */
UNIT_TEST(j9_a_file_without_its_first_frame_is_damaged)
{
    assert_int_equal(disk_recover(&d, &life, LAST), SL_RECOVERY_DAMAGED);
    assert_int_equal(d.r.damaged_at, SL_HEADER_BYTES);
    begin();
    d.at[SL_HEADER_BYTES] ^= 1;
    assert_int_equal(disk_recover(&d, &life, LAST), SL_RECOVERY_DAMAGED);
    assert_int_equal(d.r.damaged_at, SL_HEADER_BYTES);
}

UNIT_TEST(other_files_are_not_journals)
{
    d.at[3] = 'X';
    assert_int_equal(disk_recover(&d, &life, LAST), SL_RECOVERY_NOT_A_JOURNAL);
    assert_string_equal(held(), "");
    disk_begin(&d, 0);
    d.at[16] = SL_JOURNAL_FORMAT + 1;
    assert_int_equal(disk_recover(&d, &life, LAST), SL_RECOVERY_FORMAT);
    d.n = 0;
    assert_int_equal(disk_recover(&d, &life, LAST), SL_RECOVERY_NOT_A_JOURNAL);
}

/* --- J6 ------------------------------------------------------------------------------------ */

UNIT_TEST(j6_the_largest_limit_of_fences_counts)
{
    begin();
    put_number(SL_ITEM_FENCES, 1000);
    put_number(SL_ITEM_FENCES, 5000);
    put_number(SL_ITEM_FENCES, 4000);
    frame();
    recover(LAST);
    assert_int_equal(d.r.fence_limit, 5000);
    life = life_of("boot 2");
    recover(LAST);
    assert_int_equal(d.r.fence_limit, 5000);
}

/* --- J7: the same life --------------------------------------------------------------------- */

UNIT_TEST(j7_in_the_same_life_items_are_held_to_their_exact_expiry)
{
    begin();
    put(grant_of("short", 1, LAST + SECOND));
    put_long("long", 2, LAST + 100 * SECOND, LAST + 120 * SECOND);
    put((struct sl_item){.kind = SL_ITEM_DRAIN,
                         .key = bytes_of("jobs:*"),
                         .expiry_ms = SL_NEVER,
                         .bound_ms = SL_NEVER});
    frame();
    recover(LAST + 10);
    assert_true(d.r.same_life);
    assert_null(d.r.why_other);
    assert_int_equal(d.r.wait_until_ms, 0);
    assert_int_equal(d.r.shift_ms, 0);
    assert_string_equal(
        held(), "short 1 6001000, long 2 6100000*, jobs:* 0 9223372036854775807");
}

/* Their ends must be recorded, or they would return after a power failure. */
UNIT_TEST(j7_in_the_same_life_expired_items_are_returned)
{
    begin();
    put_long("long", 2, LAST + 100 * SECOND, LAST + 120 * SECOND);
    frame();
    recover(LAST + 110 * SECOND);
    assert_string_equal(held(), "long 2 6100000*");
}

UNIT_TEST(j7_every_difference_makes_another_life)
{
    begin();
    put(grant_of("short", 1, LAST + SECOND));
    frame();
    recover(LAST);
    assert_true(d.r.same_life);
    const struct sl_life same = life;
    struct sl_life other[10];
    for (int i = 0; i < 10; i++) other[i] = same;
    strcpy(other[0].boot, "boot 2");
    strcpy(other[1].boot, "");
    strcpy(other[2].clock, "time 2");
    strcpy(other[3].clock, "");
    other[4].device++;
    other[5].inode++;
    other[6].keeps_writes = false;
    other[7].had_error = true;
    other[8].mount++;
    for (int i = 0; i < 10; i++) {
        life = other[i];
        recover(i == 9 ? LAST - 1 : LAST);
        assert_false(d.r.same_life);
        assert_non_null(d.r.why_other);
        assert_string_equal(held(), "");
        assert_true(d.r.wait_until_ms != 0 || i == 0);
    }
}

UNIT_TEST(j7_an_unknown_boot_is_never_the_same)
{
    life.boot[0] = '\0';
    put_life(&life);
    frame();
    recover(LAST);
    assert_false(d.r.same_life);
}

UNIT_TEST(j7_in_the_same_life_the_wait_of_the_previous_start_continues)
{
    begin();
    struct sl_life waits = life;
    waits.wait_until_ms = LAST + 30 * SECOND;
    put_life(&waits);
    frame();
    recover(LAST + SECOND);
    assert_true(d.r.same_life);
    assert_int_equal(d.r.wait_until_ms, LAST + 30 * SECOND);
    recover(LAST + 30 * SECOND);
    assert_int_equal(d.r.wait_until_ms, 0);
}

/* --- J8: another life ------------------------------------------------------------------------ */

UNIT_TEST(j8_in_another_life_long_leases_are_held_to_their_bounds)
{
    begin();
    put_long("long", 2, LAST + 100 * SECOND, LAST + 120 * SECOND);
    put(grant_of("short", 1, LAST + SECOND));
    put_long("over", 3, LAST - 20 * SECOND, LAST);
    put_long("almost", 4, LAST - 20 * SECOND, LAST + 1);
    put(grant_of("always", 5, SL_NEVER));
    frame();
    life = life_of("boot 2");
    recover(5 * SECOND);
    assert_false(d.r.same_life);
    assert_string_equal(held(),
                        "long 2 125000*, almost 4 5001*, always 5 9223372036854775807");
    assert_int_equal(d.r.shift_ms, 5 * SECOND - LAST);
    assert_int_equal(d.r.items, 5);
}

UNIT_TEST(j8_new_grants_wait_from_the_boot_of_the_same_machine)
{
    begin();
    life = life_of("boot 2");
    recover(5 * SECOND);
    assert_int_equal(d.r.wait_until_ms, MINUTE);
    recover(MINUTE - 1);
    assert_int_equal(d.r.wait_until_ms, MINUTE);
    recover(MINUTE);
    assert_int_equal(d.r.wait_until_ms, 0);
    life.boot_ms = 1000 * MINUTE; /* The clock has an offset. */
    recover(1000 * MINUTE + SECOND);
    assert_int_equal(d.r.wait_until_ms, 1001 * MINUTE);
    life.boot_ms = -30 * SECOND;
    recover(SECOND);
    assert_int_equal(d.r.wait_until_ms, 30 * SECOND);
    life.boot_ms = -1000 * MINUTE;
    recover(SECOND);
    assert_int_equal(d.r.wait_until_ms, 0);
}

UNIT_TEST(j8_new_grants_wait_from_the_start_on_another_machine)
{
    begin();
    life = life_of("boot 2");
    strcpy(life.machine, "machine 2");
    recover(1000 * MINUTE);
    assert_int_equal(d.r.wait_until_ms, 1001 * MINUTE);
    strcpy(life.machine, "");
    recover(1000 * MINUTE);
    assert_int_equal(d.r.wait_until_ms, 1001 * MINUTE);
}

/* Machines that were made from one image may share the id of the machine. */
UNIT_TEST(j8_new_grants_wait_from_the_start_if_the_file_was_copied)
{
    begin();
    life = life_of("boot 2");
    life.inode++;
    recover(1000 * MINUTE);
    assert_int_equal(d.r.wait_until_ms, 1001 * MINUTE);
    life = life_of("boot 2");
    life.device++;
    recover(1000 * MINUTE);
    assert_int_equal(d.r.wait_until_ms, 1001 * MINUTE);
}

/* The previous server may have granted a lease a moment ago. */
UNIT_TEST(j8_new_grants_wait_from_the_start_if_the_machine_was_not_booted)
{
    begin();
    life.inode++;
    recover(LAST + 10 * MINUTE);
    assert_int_equal(d.r.wait_until_ms, LAST + 11 * MINUTE);
    life = life_of("boot 1");
    life.had_error = true;
    recover(LAST + 10 * MINUTE);
    assert_int_equal(d.r.wait_until_ms, LAST + 11 * MINUTE);
    life = life_of("boot 1");
    strcpy(life.clock, "time 2");
    recover(10 * MINUTE);
    assert_int_equal(d.r.wait_until_ms, 11 * MINUTE);
}

UNIT_TEST(j5_new_grants_wait_for_the_largest_lease_volatile_in_the_file)
{
    begin();
    put_number(SL_ITEM_VOLATILE, (uint64_t)(10 * MINUTE));
    frame();
    put_number(SL_ITEM_VOLATILE, (uint64_t)(2 * MINUTE));
    frame();
    life = life_of("boot 2");
    recover(SECOND);
    assert_int_equal(d.r.volatile_ms, 10 * MINUTE);
    assert_int_equal(d.r.wait_until_ms, 10 * MINUTE);
}

UNIT_TEST(j5_in_another_life_the_rest_of_a_longer_wait_counts)
{
    begin();
    struct sl_life waits = life_of("boot 1");
    waits.wait_until_ms = LAST + 3 * MINUTE;
    put_life(&waits);
    frame();
    life = life_of("boot 2");
    recover(SECOND);
    assert_int_equal(d.r.wait_until_ms, 3 * MINUTE);
    life.boot[0] = '\0';
    recover(SECOND);
    assert_int_equal(d.r.wait_until_ms, 3 * MINUTE + SECOND);
}

UNIT_TEST(j8_after_a_clean_stop_nothing_is_ignored_and_nobody_waits)
{
    begin();
    put(grant_of("short", 1, LAST + SECOND));
    put_long("long", 2, LAST + 100 * SECOND, LAST + 120 * SECOND);
    put(grant_of("over", 3, LAST));
    put_clean();
    frame();
    life = life_of("boot 2");
    recover(SECOND);
    assert_true(d.r.clean);
    assert_int_equal(d.r.wait_until_ms, 0);
    assert_string_equal(held(), "short 1 2000, long 2 121000*");
}

UNIT_TEST(j8_after_a_clean_stop_during_a_wait_the_rest_of_the_wait_counts)
{
    begin();
    struct sl_life waits = life_of("boot 1");
    waits.wait_until_ms = LAST + 10 * SECOND;
    put_life(&waits);
    put_clean();
    frame();
    life = life_of("boot 2");
    recover(SECOND);
    assert_int_equal(d.r.wait_until_ms, 10 * SECOND);
}

UNIT_TEST(j8_a_mark_of_a_clean_stop_counts_only_as_the_last_record)
{
    begin();
    put_clean();
    frame();
    recover(LAST);
    assert_true(d.r.clean);
    put_life(&life);
    frame();
    recover(LAST);
    assert_false(d.r.clean);
    life = life_of("boot 2");
    recover(SECOND);
    assert_int_equal(d.r.wait_until_ms, MINUTE);
    put_clean();
    end("a", 1);
    frame();
    recover(SECOND);
    assert_false(d.r.clean);
}

UNIT_TEST(a_life_is_read_as_it_was_written)
{
    char value[SL_LIFE_BYTES];
    struct sl_life l = life_of("boot 1"), got;
    l.device = 0x0102030405060708;
    l.inode = 99;
    l.mount = 77;
    l.wait_until_ms = 123;
    memset(l.machine, 'm', sizeof l.machine); /* Too long. */
    sl_life_write(value, &l);
    assert_true(sl_life_read((struct sl_bytes){value, sizeof value}, &got));
    assert_string_equal(got.boot, "boot 1");
    assert_string_equal(got.clock, "time");
    assert_int_equal(strlen(got.machine), SL_LIFE_TEXT_BYTES - 1);
    assert_int_equal(got.device, l.device);
    assert_int_equal(got.inode, 99);
    assert_int_equal(got.mount, 77);
    assert_int_equal(got.wait_until_ms, 123);
    assert_false(sl_life_read((struct sl_bytes){value, sizeof value - 1}, &got));
    value[SL_LIFE_TEXT_BYTES - 1] = 'x';
    assert_false(sl_life_read((struct sl_bytes){value, sizeof value}, &got));
}

/* --- J9: damage ------------------------------------------------------------------------------ */

/* Frames with the grants 1 to 5, at positions 2 to 6, and where each begins. */
static size_t places[8];

static void put_five(uint64_t durable)
{
    begin();
    for (sl_fence i = 1; i <= 5; i++) {
        places[i] = d.n;
        put_long("k", i, LAST + MINUTE, LAST + MINUTE);
        frame_at(LAST + (sl_ms)i, i == 5 ? durable : 0);
    }
    places[6] = d.n;
}

UNIT_TEST(j9_a_torn_last_frame_is_not_damage)
{
    put_five(0);
    for (size_t n = places[5]; n < places[6]; n++) {
        d.n = n;
        recover(2 * LAST);
        assert_true(d.r.same_life);
        assert_int_equal(d.r.items, 4);
        assert_int_equal(d.r.bytes, places[5]);
        assert_int_equal(d.r.last_ms, LAST + 4);
    }
}

UNIT_TEST(j9_space_that_is_not_used_yet_is_not_damage)
{
    put_five(0);
    size_t n = d.n;
    static const char zeros[1 << 16];
    disk_append(&d, zeros, sizeof zeros);
    recover(2 * LAST);
    assert_int_equal(d.r.items, 5);
    assert_int_equal(d.r.bytes, n);
}

UNIT_TEST(j9_in_the_same_life_a_bad_frame_before_an_intact_one_is_damage)
{
    put_five(0);
    d.at[places[4] + 50] ^= 1;
    assert_int_equal(disk_recover(&d, &life, 2 * LAST), SL_RECOVERY_DAMAGED);
    assert_int_equal(d.r.damaged_at, places[4]);
    assert_string_equal(held(), "");
}

UNIT_TEST(j9_in_another_life_frames_that_were_not_durable_may_be_lost)
{
    put_five(0);
    d.at[places[2] + 50] ^= 1;
    life = life_of("boot 2");
    recover(SECOND);
    assert_int_equal(d.r.items, 1);
    assert_int_equal(d.r.bytes, places[2]);
}

UNIT_TEST(j9_in_another_life_the_loss_of_a_durable_frame_is_damage)
{
    life = life_of("boot 2");
    put_five(SL_HEADER_BYTES); /* To measure, */
    uint64_t durable = places[3];
    disk_begin(&d, 0);
    put_five(durable); /* and with the knowledge that grants 1 and 2 were durable. */
    d.at[places[3] + 50] ^= 1;
    recover(SECOND);
    assert_int_equal(d.r.items, 2);
    d.at[places[2] + 50] ^= 1;
    assert_int_equal(disk_recover(&d, &life, SECOND), SL_RECOVERY_DAMAGED);
    assert_int_equal(d.r.damaged_at, places[2]);
}

/* A file gets its name after all frames with copied items are durable. */
UNIT_TEST(j9_the_loss_of_a_frame_before_copied_items_is_damage)
{
    put_five(0);
    put(grant_of("copied", 9, LAST));
    disk_frame(&d, (struct sl_bytes){b.at, b.n}, 6, d.n, LAST);
    life = life_of("boot 2");
    recover(SECOND);
    d.at[places[5] + 50] ^= 1;
    assert_int_equal(disk_recover(&d, &life, SECOND), SL_RECOVERY_DAMAGED);
}

UNIT_TEST(j9_an_intact_frame_with_an_invalid_record_is_damage)
{
    begin();
    put(grant_of("k", 1, LAST));
    b.at[0] = 15; /* There is no such kind. */
    frame();
    assert_int_equal(disk_recover(&d, &life, LAST), SL_RECOVERY_DAMAGED);
    assert_true(d.r.damaged_at > SL_HEADER_BYTES);
}

/* The lock table cannot continue above such a fence. */
UNIT_TEST(j9_a_fence_limit_above_the_largest_fence_is_damage)
{
    begin();
    put_number(SL_ITEM_FENCES, SL_FENCE_MAX);
    frame();
    recover(LAST);
    assert_int_equal(d.r.fence_limit, SL_FENCE_MAX);
    size_t place = d.n;
    put_number(SL_ITEM_FENCES, SL_FENCE_MAX + 1);
    frame();
    assert_int_equal(disk_recover(&d, &life, LAST), SL_RECOVERY_DAMAGED);
    assert_int_equal(d.r.damaged_at, place);
}

UNIT_TEST(j9_an_item_above_the_largest_fence_is_damage)
{
    begin();
    put(grant_of("k", SL_FENCE_MAX, LAST + 1));
    frame();
    recover(LAST);
    assert_int_equal(d.r.items, 1);
    size_t place = d.n;
    put(grant_of("k", SL_FENCE_MAX, LAST + 1));
    b.at[7] = 0x20; /* The highest byte of the fence. */
    frame();
    assert_int_equal(disk_recover(&d, &life, LAST), SL_RECOVERY_DAMAGED);
    assert_int_equal(d.r.damaged_at, place);
}

/* Change random bytes. Replay must not crash, and must accept no item that was not written. */
UNIT_TEST(j9_random_damage_is_noticed)
{
    struct sl_random r;
    sl_random_seed(&r, 7);
    put_five(SL_HEADER_BYTES + 1);
    char *copy = malloc(d.n);
    memcpy(copy, d.at, d.n);
    size_t n = d.n;
    for (int i = 0; i < 20000; i++) {
        memcpy(d.at, copy, n);
        d.n = n;
        size_t first = SL_HEADER_BYTES;
        for (uint32_t k = 1 + sl_random_below(&r, 6); k > 0; k--) {
            size_t at = SL_HEADER_BYTES +
                        sl_random_below(&r, (uint32_t)(n - SL_HEADER_BYTES));
            d.at[at] = (char)sl_random_next(&r);
        }
        while (first < n && d.at[first] == copy[first]) first++;
        if (sl_random_maybe(&r, 2000)) {
            d.n = SL_HEADER_BYTES +
                  sl_random_below(&r, (uint32_t)(n - SL_HEADER_BYTES));
            if (d.n < first) first = d.n;
        }
        life = life_of(sl_random_maybe(&r, 5000) ? "boot 1" : "boot 2");
        enum sl_recovery_result result = disk_recover(&d, &life, 2 * LAST);
        if (result == SL_RECOVERY_OK) {
            struct sl_item item;
            uint64_t cursor = 0;
            size_t count = 0;
            while (sl_recovery_next(&d.r, &cursor, &item)) {
                count++;
                assert_int_equal(item.fence, count);
            }
            assert_true(count <= 5);
            assert_true(d.r.bytes <=
                        first); /* No frame was accepted that has changed. */
        } else assert_int_equal(result, SL_RECOVERY_DAMAGED);
    }
    free(copy);
}

/* The checksum is correct, but what it covers is not: the file was written by a program with a bug,
 * or by an attacker. */
UNIT_TEST(j9_random_records_in_intact_frames_do_no_harm)
{
    struct sl_random r;
    sl_random_seed(&r, 11);
    int damaged = 0;
    for (int i = 0; i < 20000; i++) {
        disk_begin(&d, 0);
        begin();
        for (int frames = 0; frames < 3; frames++) {
            char value[SL_VALUE_BYTES];
            put(grant_of("a", 1 + sl_random_below(&r, 3), LAST));
            put(number_of(SL_ITEM_VOLATILE, sl_random_next(&r) >> 1, value));
            put_life(&life);
            end("a", 1 + sl_random_below(&r, 3));
            for (uint32_t n = sl_random_below(&r, 4); n > 0; n--)
                b.at[sl_random_below(&r, (uint32_t)b.n)] = (char)sl_random_next(&r);
            frame_at((sl_ms)(sl_random_next(&r) >> (1 + sl_random_below(&r, 60))), 0);
        }
        life = life_of(sl_random_maybe(&r, 5000) ? "boot 1" : "boot 2");
        sl_ms now_ms = (sl_ms)(sl_random_next(&r) >> (1 + sl_random_below(&r, 60)));
        enum sl_recovery_result result = disk_recover(&d, &life, now_ms);
        damaged += result == SL_RECOVERY_DAMAGED;
        assert_true(result == SL_RECOVERY_OK || result == SL_RECOVERY_DAMAGED);
        struct sl_item item;
        for (uint64_t cursor = 0; sl_recovery_next(&d.r, &cursor, &item);)
            assert_true(item.key.at > d.at && item.key.at + item.key.n <= d.at + d.n);
    }
    assert_true(damaged > 1000 && damaged < 19000);
}

UNIT_TEST(without_memory_nothing_is_recovered)
{
    begin();
    char key[16];
    for (int i = 0; i < 3000; i++) {
        snprintf(key, sizeof key, "%d", i);
        put(grant_of(key, 1, LAST + 1));
    }
    frame();
    for (long n = 0;; n++) {
        memory_fails_after(n);
        enum sl_recovery_result result = disk_recover(&d, &life, LAST);
        memory_is_back();
        if (memory_failures() == 0) {
            assert_int_equal(result, SL_RECOVERY_OK);
            assert_true(n > 2); /* The table has grown. */
            break;
        }
        assert_int_equal(result, SL_RECOVERY_NO_MEMORY);
        assert_string_equal(held(), "");
    }
    assert_int_equal(d.r.items, 3000);
}

int main(void)
{
    return run_unit_tests_with("journal_recovery", setup, teardown);
}
