/* test_inspect.c - what is seen from outside: keys, holders, waiters, capacities, pictures. */
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <time.h>
#include <unistd.h>

#include "test.h"

#include "canal/counter.h"
#include "canal/thread.h"
#include "sluice.h"
#include "world.h"

static const struct sluice_capacity three = {.per = 3, .buckets = 1};

static bool find_key(const struct world *w, const char *key,
                     struct sluice_key_info *out)
{
    for (uint64_t cursor = 0; sluice_canal_next_key(w->canal, &cursor, out) == 1;)
        if (strcmp(out->key, key) == 0) return true;
    return false;
}

static bool find_holder(const struct world *w, const char *key, int pid, uint32_t waits,
                        struct sluice_holder *out)
{
    for (uint64_t cursor = 0;
         sluice_canal_next_holder(w->canal, key, &cursor, out) == 1;)
        if (out->pid == pid && out->waits == waits) return true;
    return false;
}

UNIT_TEST(a_holder_is_seen_with_all_that_is_known_of_it)
{
    WORLD w = world_new(NULL);
    struct sluice_holder h;
    struct sluice_want two = {.units = 2};
    int64_t before = (int64_t)time(NULL) * 1000;
    prctl(PR_SET_NAME, "looked-at");
    assert_int_equal(sluice_canal_acquire(w.canal, "db", three, &two), 2);
    assert_true(find_holder(&w, "db", getpid(), 0, &h));
    assert_int_equal(h.tid, gettid());
    assert_string_equal(h.program, "looked-at");
    assert_int_equal(h.units, 2);
    assert_int_equal(h.capacity.per, 3);
    assert_int_equal(h.capacity.buckets, 1);
    assert_int_equal(h.dead, 0);
    assert_true(h.since_ms >= before - 1000 && h.since_ms <= before + 60000);
    sluice_canal_release(w.canal, "db", 2);
    assert_false(find_holder(&w, "db", getpid(), 0, &h));
}

/* A record has a pending operation whose swap has taken place: the units that all records
 * hold differ from the count. */
static bool swapped_and_not_completed(void *segment)
{
    const struct sl_canal_segment *seg = segment;
    uint64_t held = 0, count = 0;
    for (uint32_t r = 0; r < seg->record_count; r++)
        held += sl_canal_record_held(seg->records[r].state.lo);
    for (uint32_t k = 0; k < seg->key_count; k++)
        count += sl_canal_word_count(sl_canal_word_load(&seg->keys[k].word));
    return held != count;
}

UNIT_TEST(a_holder_killed_right_after_its_acquire_took_place_is_seen)
{
    WORLD w = world_new(
        &(struct sluice_canal_options){.keys = 8, .slots = 8, .records = 64});
    ACTOR a = actor_start(&w);
    struct sluice_holder h;
    int64_t before = (int64_t)time(NULL) * 1000;
    struct command take = {
        .deed = ACQUIRE, .key = "db", .capacity = three, .want = {.units = 2}};
    assert_true(actor_step_until(&a, take, swapped_and_not_completed, &w.canal->seg));
    int pid = a.pid;
    assert_true(find_holder(&w, "db", pid, 0, &h));
    assert_int_equal(h.units, 2);
    actor_kill(&a);
    assert_true(find_holder(&w, "db", pid, 0, &h));
    assert_int_equal(h.units, 2);
    assert_int_equal(h.capacity.per, 3);
    assert_int_equal(h.dead, 1);
    assert_true(h.since_ms >= before - 1000);
}

UNIT_TEST(a_holder_stopped_in_the_middle_of_a_release_is_seen_with_the_rest)
{
    WORLD w = world_new(
        &(struct sluice_canal_options){.keys = 8, .slots = 8, .records = 64});
    ACTOR a = actor_start(&w);
    struct sluice_holder h;
    assert_int_equal(actor_acquire(&a, "db", 3, 1), 1);
    assert_int_equal(actor_acquire(&a, "db", 3, 1), 2);
    struct command release = {.deed = RELEASE, .key = "db", .want = {.units = 1}};
    assert_true(
        actor_step_until(&a, release, swapped_and_not_completed, &w.canal->seg));
    assert_true(find_holder(&w, "db", a.pid, 0, &h));
    assert_int_equal(h.units, 1);
    actor_continue(&a);
    assert_int_equal(actor_answer(&a), SLUICE_OK);
}

UNIT_TEST(the_last_declared_capacity_is_shown_and_different_ones_are_reported)
{
    WORLD w = world_new(NULL);
    struct actor a = actor_start(&w);
    struct sluice_key_info k;
    struct sluice_holder h;
    assert_int_equal(sluice_canal_acquire(w.canal, "db", three, NULL), 1);
    assert_true(find_key(&w, "db", &k));
    assert_int_equal(k.capacities_differ, 0);
    assert_int_equal(actor_acquire(&a, "db", 3, 2), 2);
    assert_true(find_key(&w, "db", &k));
    assert_int_equal(k.held, 2);
    assert_int_equal(k.holders, 2);
    assert_int_equal(k.capacities_differ, 1);
    assert_int_equal(k.capacity.buckets, 2); /* The larger. */
    assert_int_equal(actor_acquire(&a, "db", 3, 1), 3);
    assert_true(find_holder(&w, "db", a.pid, 0, &h));
    assert_int_equal(h.capacity.buckets, 1);
    assert_int_equal(h.units, 2);
    assert_true(find_key(&w, "db", &k));
    assert_int_equal(k.capacities_differ, 0);
    assert_int_equal(actor_release(&a, "db", 1), SLUICE_OK);
    assert_int_equal(actor_acquire(&a, "db", 1, 3),
                     3); /* The same capacity, but not the same. */
    assert_true(find_key(&w, "db", &k));
    assert_int_equal(k.capacities_differ, 1);
    actor_kill(&a);
    assert_true(find_holder(&w, "db", a.pid == 0 ? h.pid : a.pid, 0, &h));
    assert_int_equal(h.dead, 1);
    assert_int_equal(sluice_canal_reap(w.canal), 2);
    assert_true(find_key(&w, "db", &k));
    assert_int_equal(k.held, 1);
}

UNIT_TEST(waiters_are_seen_while_they_wait)
{
    WORLD w = world_new(NULL);
    ACTOR a = actor_start(&w);
    struct sluice_holder h;
    struct sluice_key_info k;
    struct sluice_want all = {.units = 3};
    sluice_canal_acquire(w.canal, "db", three, &all);
    actor_send(&a, (struct command){.deed = ACQUIRE,
                                    .key = "db",
                                    .capacity = three,
                                    .want = {.units = 2, .wait_ms = 60000}});
    while (!find_holder(&w, "db", a.pid, 1, &h)) pause_ms(1);
    assert_int_equal(h.units, 2);
    assert_int_equal(h.capacity.per, 3);
    assert_true(find_key(&w, "db", &k));
    assert_int_equal(k.waiters, 1);
    assert_int_equal(k.holders, 1);
    sluice_canal_release(w.canal, "db", 3);
    assert_int_equal(actor_answer(&a), 2);
    assert_false(find_holder(&w, "db", a.pid, 1, &h));
}

UNIT_TEST(a_continued_wait_counts_from_its_first_time)
{
    WORLD w = world_new(NULL);
    ACTOR a = actor_start(&w);
    struct sluice_holder first, later;
    struct command take = {
        .deed = ACQUIRE, .key = "db", .capacity = three, .want = {.wait_ms = 100}};
    struct sluice_want all = {.units = 3};
    sluice_canal_acquire(w.canal, "db", three, &all);
    actor_send(&a, take);
    while (!find_holder(&w, "db", a.pid, 1, &first)) pause_ms(1);
    assert_int_equal(actor_answer(&a), SLUICE_EFULL);
    take.want = (struct sluice_want){.wait_ms = 60000, .continues_wait = 1};
    actor_send(&a, take);
    while (!find_holder(&w, "db", a.pid, 1, &later)) pause_ms(1);
    assert_int_equal(later.since_ms, first.since_ms);
}

UNIT_TEST(each_key_in_use_is_seen_once_and_others_not)
{
    enum { KEYS = 100 };
    WORLD w = world_new(NULL);
    char key[16];
    int seen[KEYS] = {0}, n;
    struct sluice_key_info k;
    for (int i = 0; i < KEYS; i++) {
        snprintf(key, sizeof key, "k%d", i);
        assert_int_equal(sluice_canal_acquire(w.canal, key, three, NULL), 1);
        if (i % 2) sluice_canal_release(w.canal, key, 1);
    }
    for (uint64_t cursor = 0; sluice_canal_next_key(w.canal, &cursor, &k) == 1;) {
        assert_int_equal(sscanf(k.key, "k%d", &n), 1);
        assert_int_equal(k.held, 1);
        seen[n]++;
    }
    for (int i = 0; i < KEYS; i++) assert_int_equal(seen[i], i % 2 == 0);
    struct sluice_canal_info info;
    assert_int_equal(sluice_canal_info(w.canal, &info), SLUICE_OK);
    assert_int_equal(info.keys_used, KEYS / 2);
    assert_int_equal(info.keys, 4096);
    assert_int_equal(info.slots, 1024);
    assert_int_equal(info.records, 16384);
    uint64_t cursor = 0;
    assert_int_equal(sluice_canal_next_holder(w.canal, "nobody knows it", &cursor,
                                              &(struct sluice_holder){0}),
                     0);
}

UNIT_TEST(the_picture_is_the_one_canal_locks_users_know)
{
    static const struct {
        uint64_t held;
        struct sluice_capacity capacity;
        size_t size;
        const char *picture;
    } rows[] = {
        {7, {3, 3}, 64, "[3,3,1]"},
        {0, {3, 3}, 64, "[0,0,0]"},
        {3, {3, 1}, 64, "[3]"},
        {4, {3, 1}, 64, "[3,1]"},
        {9, {3, 3}, 64, "[3,3,3]"},
        {2, {0, 0}, 64, "[1,1]"},
        {0, {3, 0}, 64, "[]"},
        {300, {3, 100}, 16, "[3,3,3,3,3...]"},
        {4294967295, {4294967295u, 1}, 64, "[4294967295]"},
        {1, {1, 1}, 3, ""},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        char out[64];
        size_t n = sluice_canal_picture(rows[i].held, rows[i].capacity, out,
                                        rows[i].size);
        assert_string_equal(out, rows[i].picture);
        assert_int_equal(n, strlen(out));
    }
    assert_int_equal(sluice_canal_picture(1, three, NULL, 0), 0);
}

UNIT_TEST(bad_arguments_are_rejected)
{
    WORLD w = world_new(NULL);
    uint64_t cursor = 0;
    assert_int_equal(sluice_canal_next_key(NULL, &cursor, &(struct sluice_key_info){0}),
                     SLUICE_EINVAL);
    assert_int_equal(sluice_canal_next_key(w.canal, NULL, &(struct sluice_key_info){0}),
                     SLUICE_EINVAL);
    assert_int_equal(
        sluice_canal_next_holder(w.canal, "", &cursor, &(struct sluice_holder){0}),
        SLUICE_EINVAL);
    assert_int_equal(sluice_canal_info(w.canal, NULL), SLUICE_EINVAL);
    assert_int_equal(sluice_canal_reap(NULL), SLUICE_EINVAL);
    cursor = UINT64_MAX;
    assert_int_equal(
        sluice_canal_next_key(w.canal, &cursor, &(struct sluice_key_info){0}), 0);
}

int main(void)
{
    return run_unit_tests("inspect");
}
