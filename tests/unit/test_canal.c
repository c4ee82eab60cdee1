/* test_canal.c - what callers are told, in one process and in several: the canal's
 * rules and the regressions C1 to C6. (C7 is tests/kill/step, C8 tests/kill/differential.) */
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "test.h"

#include "canal/thread.h"
#include "sluice.h"
#include "world.h"

static const struct sluice_capacity one = {.per = 1, .buckets = 1};

static struct sluice_capacity capacity(uint32_t per, uint32_t buckets)
{
    return (struct sluice_capacity){.per = per, .buckets = buckets};
}

static int64_t count(const struct world *w, const char *key)
{
    return sluice_canal_count(w->canal, key);
}

/* --- The rules ------------------------------------------------------------ */

UNIT_TEST(a_unit_has_its_ordinal_and_the_next_one_is_rejected)
{
    WORLD w = world_new(NULL);
    for (int64_t n = 1; n <= 3; n++)
        assert_int_equal(sluice_canal_acquire(w.canal, "db", capacity(3, 1), NULL), n);
    assert_int_equal(sluice_canal_acquire(w.canal, "db", capacity(3, 1), NULL),
                     SLUICE_EFULL);
    assert_int_equal(count(&w, "db"), 3);
    assert_int_equal(sluice_canal_release(w.canal, "db", 1), SLUICE_OK);
    assert_int_equal(sluice_canal_acquire(w.canal, "db", capacity(3, 1), NULL), 3);
}

UNIT_TEST(a_thread_cannot_release_units_that_it_does_not_hold)
{
    WORLD w = world_new(NULL);
    ACTOR a = actor_start(&w);
    assert_int_equal(sluice_canal_release(w.canal, "db", 1), SLUICE_ENOTHELD);
    assert_int_equal(actor_acquire(&a, "db", 3, 1), 1);
    assert_int_equal(sluice_canal_release(w.canal, "db", 1), SLUICE_ENOTHELD);
    assert_int_equal(sluice_canal_acquire(w.canal, "db", capacity(3, 1), NULL), 2);
    assert_int_equal(sluice_canal_release(w.canal, "db", 2), SLUICE_ENOTHELD);
    assert_int_equal(count(&w, "db"), 2);
    assert_int_equal(sluice_canal_release(w.canal, "db", 1), SLUICE_OK);
    assert_int_equal(sluice_canal_release(w.canal, "db", 1), SLUICE_ENOTHELD);
    assert_int_equal(count(&w, "db"), 1);
}

UNIT_TEST(units_are_taken_all_or_none)
{
    WORLD w = world_new(NULL);
    struct sluice_want three = {.units = 3};
    assert_int_equal(sluice_canal_acquire(w.canal, "db", capacity(5, 1), &three), 3);
    assert_int_equal(sluice_canal_acquire(w.canal, "db", capacity(5, 1), &three),
                     SLUICE_EFULL);
    assert_int_equal(count(&w, "db"), 3);
    assert_int_equal(sluice_canal_acquire(w.canal, "db", capacity(3, 2), &three), 6);
    assert_int_equal(sluice_canal_release(w.canal, "db", 4), SLUICE_OK);
    assert_int_equal(count(&w, "db"), 2);
}

UNIT_TEST(a_capacity_of_nothing_is_always_full)
{
    WORLD w = world_new(NULL);
    struct sluice_want wait = {.wait_ms = SLUICE_FOREVER};
    assert_int_equal(sluice_canal_acquire(w.canal, "db", capacity(3, 0), NULL),
                     SLUICE_EFULL);
    assert_int_equal(sluice_canal_acquire(w.canal, "db", capacity(0, 3), &wait),
                     SLUICE_EFULL);
}

UNIT_TEST(what_can_never_fit_is_too_big)
{
    WORLD w = world_new(NULL);
    struct sluice_want four = {.units = 4, .wait_ms = SLUICE_FOREVER};
    struct sluice_want most = {.units = SLUICE_UNITS_MAX + 1};
    struct sluice_capacity huge = {.per = UINT32_MAX, .buckets = 2};
    assert_int_equal(sluice_canal_acquire(w.canal, "db", capacity(3, 1), &four),
                     SLUICE_ETOOBIG);
    assert_int_equal(
        sluice_canal_acquire(w.canal, "db", capacity(UINT32_MAX, 1), &most),
        SLUICE_ETOOBIG);
    assert_int_equal(sluice_canal_acquire(w.canal, "db", huge, NULL), SLUICE_ETOOBIG);
}

UNIT_TEST(bad_arguments_are_rejected_and_change_nothing)
{
    WORLD w = world_new(NULL);
    char long_key[SLUICE_KEY_BYTES_MAX + 2];
    memset(long_key, 'k', sizeof long_key);
    long_key[SLUICE_KEY_BYTES_MAX + 1] = '\0';
    struct sluice_want past = {.wait_ms = -2};
    struct sluice_key *k;
    assert_int_equal(sluice_canal_acquire(NULL, "db", one, NULL), SLUICE_EINVAL);
    assert_int_equal(sluice_canal_acquire(w.canal, NULL, one, NULL), SLUICE_EINVAL);
    assert_int_equal(sluice_canal_acquire(w.canal, "", one, NULL), SLUICE_EINVAL);
    assert_int_equal(sluice_canal_acquire(w.canal, long_key, one, NULL), SLUICE_EINVAL);
    assert_int_equal(sluice_canal_acquire(w.canal, "db", one, &past), SLUICE_EINVAL);
    assert_int_equal(sluice_canal_acquire(w.canal, "db", one,
                                          &(struct sluice_want){.continues_wait = 2}),
                     SLUICE_EINVAL);
    assert_int_equal(sluice_canal_release(w.canal, "db", 0), SLUICE_EINVAL);
    assert_int_equal(sluice_canal_count(w.canal, ""), SLUICE_EINVAL);
    assert_int_equal(sluice_key_resolve(w.canal, "", &k), SLUICE_EINVAL);
    assert_null(k);
    assert_int_equal(sluice_key_acquire(NULL, one, NULL), SLUICE_EINVAL);
    assert_int_equal(sluice_key_release(NULL, 1), SLUICE_EINVAL);
    assert_int_equal(sluice_key_free(NULL), SLUICE_OK);
    long_key[SLUICE_KEY_BYTES_MAX] = '\0';
    assert_int_equal(sluice_canal_acquire(w.canal, long_key, one, NULL), 1);
    assert_int_equal(count(&w, long_key), 1);
    assert_int_equal(count(&w, "db"), 0);
}

UNIT_TEST(names_of_every_length_are_their_own_locks)
{
    WORLD w = world_new(NULL);
    char key[SLUICE_KEY_BYTES_MAX + 1] = {0};
    for (size_t n = 1; n <= SLUICE_KEY_BYTES_MAX; n++) {
        key[n - 1] = 'x';
        assert_int_equal(sluice_canal_acquire(w.canal, key, one, NULL), 1);
    }
    for (size_t n = SLUICE_KEY_BYTES_MAX; n >= 1; n--) {
        assert_int_equal(count(&w, key), 1);
        assert_int_equal(sluice_canal_release(w.canal, key, 1), SLUICE_OK);
        key[n - 1] = '\0';
    }
}

UNIT_TEST(by_name_and_by_handle_are_one_lock)
{
    WORLD w = world_new(NULL);
    struct sluice_key *k, *again;
    assert_int_equal(sluice_key_resolve(w.canal, "db", &k), SLUICE_OK);
    assert_int_equal(sluice_key_resolve(w.canal, "db", &again), SLUICE_OK);
    assert_int_equal(sluice_key_acquire(k, capacity(3, 1), NULL), 1);
    assert_int_equal(sluice_canal_acquire(w.canal, "db", capacity(3, 1), NULL), 2);
    assert_int_equal(sluice_key_acquire(again, capacity(3, 1), NULL), 3);
    assert_int_equal(sluice_key_acquire(k, capacity(3, 1), NULL), SLUICE_EFULL);
    assert_int_equal(sluice_key_count(k), 3);
    assert_int_equal(sluice_key_free(k), SLUICE_OK);
    assert_int_equal(sluice_key_free(again), SLUICE_OK);
    assert_int_equal(sluice_canal_release(w.canal, "db", 3), SLUICE_OK);
    assert_int_equal(count(&w, "db"), 0);
}

/* --- Regressions of canal lock -------------------------------------------- */

/* The bucket algorithm lowers the counter when a caller with a smaller per is
 * refused, and then admits two more. */
UNIT_TEST(C1_five_at_per_5_then_per_2_refused_then_per_5_refused)
{
    WORLD w = world_new(NULL);
    for (int64_t n = 1; n <= 5; n++)
        assert_int_equal(sluice_canal_acquire(w.canal, "db", capacity(5, 1), NULL), n);
    assert_int_equal(sluice_canal_acquire(w.canal, "db", capacity(2, 1), NULL),
                     SLUICE_EFULL);
    assert_int_equal(count(&w, "db"), 5);
    assert_int_equal(sluice_canal_acquire(w.canal, "db", capacity(5, 1), NULL),
                     SLUICE_EFULL);
    assert_int_equal(count(&w, "db"), 5);
}

/* There the manager dies with it, and all that was held is forgotten. */
UNIT_TEST(C2_a_holder_with_a_larger_per_dies_and_only_its_units_come_back)
{
    WORLD w = world_new(NULL);
    struct actor big = actor_start(&w);
    assert_int_equal(sluice_canal_acquire(w.canal, "db", capacity(2, 1), NULL), 1);
    for (int64_t n = 2; n <= 9; n++)
        assert_int_equal(actor_acquire(&big, "db", 9, 1), n);
    actor_kill(&big);
    assert_int_equal(sluice_canal_acquire(w.canal, "db", capacity(2, 1), NULL), 2);
    assert_int_equal(sluice_canal_acquire(w.canal, "db", capacity(2, 1), NULL),
                     SLUICE_EFULL);
}

/* There A goes past the full bucket 1, P leaves it, A makes bucket 2, and C finds
 * bucket 1 empty: two in a capacity of one. */
UNIT_TEST(C3_per_1_has_no_hole_behind_a_caller_with_two_buckets)
{
    WORLD w = world_new(NULL);
    ACTOR p = actor_start(&w), a = actor_start(&w), c = actor_start(&w);
    assert_int_equal(actor_acquire(&p, "db", 1, 1), 1);
    assert_int_equal(actor_acquire(&a, "db", 1, 2), 2);
    assert_int_equal(actor_release(&p, "db", 1), SLUICE_OK);
    assert_int_equal(actor_acquire(&c, "db", 1, 1), SLUICE_EFULL);
    assert_int_equal(count(&w, "db"), 1);
}

UNIT_TEST(C4_the_transcript_of_canal_locks_readme_value_for_value)
{
    enum { FULL = SLUICE_EFULL, GIVE = 0 };
    /* What steps 3 to 13 do, with how many buckets, and what they are told. */
    static const struct {
        bool acquire;
        uint32_t buckets;
        int64_t answer;
    } steps[] = {{true, 1, 1},     {true, 1, 2},    {true, 1, 3},     {true, 1, FULL},
                 {true, 2, 4},     {true, 1, FULL}, {false, 1, GIVE}, {true, 1, FULL},
                 {false, 2, GIVE}, {true, 1, 3},    {true, 1, FULL}};
    WORLD w = world_new(NULL);
    for (size_t i = 0; i < sizeof steps / sizeof *steps; i++) {
        int64_t answer = steps[i].acquire
                             ? sluice_canal_acquire(w.canal, "db",
                                                    capacity(3, steps[i].buckets), NULL)
                             : sluice_canal_release(w.canal, "db", 1);
        if (answer != steps[i].answer)
            fail_msg("step %zu: %lld, not %lld", i + 3, (long long)answer,
                     (long long)steps[i].answer);
    }
}

UNIT_TEST(C5_the_timeline_of_five_callers_B1_A2_C3_E_full_D4)
{
    WORLD w = world_new(NULL);
    ACTOR a = actor_start(&w), b = actor_start(&w), c = actor_start(&w),
          d = actor_start(&w), e = actor_start(&w);
    assert_int_equal(actor_acquire(&b, "app", 3, 1), 1);
    assert_int_equal(actor_acquire(&a, "app", 3, 1), 2);
    assert_int_equal(actor_acquire(&c, "app", 3, 2), 3);
    assert_int_equal(actor_acquire(&e, "app", 3, 1), SLUICE_EFULL);
    assert_int_equal(actor_acquire(&d, "app", 3, 2), 4);
    assert_int_equal(count(&w, "app"), 4);
    char picture[32];
    sluice_canal_picture((uint64_t)count(&w, "app"), capacity(3, 2), picture,
                         sizeof picture);
    assert_string_equal(picture, "[3,1]");
}

enum { RACERS = 8, FRESH_KEYS = 500 };

static int64_t race_once(struct sluice_canal *c, int key)
{
    char name[32];
    snprintf(name, sizeof name, "fresh%d", key);
    return sluice_canal_acquire(c, name, capacity(RACERS, 1), NULL);
}

struct race {
    struct sluice_canal *canal;
    pthread_barrier_t start;
    int failures;
};

static void *racer(void *arg)
{
    struct race *r = arg;
    for (int key = 0; key < FRESH_KEYS; key++) {
        pthread_barrier_wait(&r->start);
        if (race_once(r->canal, key) <= 0)
            __atomic_add_fetch(&r->failures, 1, __ATOMIC_RELAXED);
    }
    pthread_barrier_wait(&r->start); /* Hold what we have until it was counted. */
    pthread_barrier_wait(&r->start);
    return NULL;
}

/* There acquire crashed on keys that were just being made. */
UNIT_TEST(C6_eight_race_for_fresh_keys_and_all_get_in)
{
    WORLD w = world_new(NULL);
    struct race r = {.canal = w.canal};
    pthread_t threads[RACERS];
    pthread_barrier_init(&r.start, NULL, RACERS + 1);
    for (int i = 0; i < RACERS; i++) pthread_create(&threads[i], NULL, racer, &r);
    for (int key = 0; key <= FRESH_KEYS; key++) pthread_barrier_wait(&r.start);
    assert_int_equal(r.failures, 0);
    for (int key = 0; key < FRESH_KEYS; key++) {
        char name[32];
        snprintf(name, sizeof name, "fresh%d", key);
        assert_int_equal(count(&w, name), RACERS);
    }
    pthread_barrier_wait(&r.start);
    for (int i = 0; i < RACERS; i++) pthread_join(threads[i], NULL);
    pthread_barrier_destroy(&r.start);
    assert_int_equal(count(&w, "fresh0"), 0);
}

/* --- The edges of numbers ------------------------------------------------- */

UNIT_TEST(K11_one_record_holds_two_to_the_31st_units)
{
    WORLD w = world_new(NULL);
    struct sluice_want most = {.units = SLUICE_UNITS_MAX}, two = {.units = 2};
    struct sluice_capacity all = capacity(UINT32_MAX, 1);
    assert_int_equal(sluice_canal_acquire(w.canal, "db", all, &most), SLUICE_UNITS_MAX);
    assert_int_equal(sluice_canal_acquire(w.canal, "db", all, &most),
                     2ll * SLUICE_UNITS_MAX);
    assert_int_equal(sluice_canal_acquire(w.canal, "db", all, &two), 1ll << 31);
    assert_int_equal(sluice_canal_acquire(w.canal, "db", capacity(1u << 31, 1), NULL),
                     SLUICE_EFULL);
    for (int i = 0; i < 2; i++)
        assert_int_equal(sluice_canal_release(w.canal, "db", SLUICE_UNITS_MAX),
                         SLUICE_OK);
    assert_int_equal(count(&w, "db"), 2);
    struct actor a = actor_start(
        &w); /* And a million of them are reclaimed from the dead. */
    struct command many = {
        .deed = ACQUIRE, .key = "db", .capacity = all, .want = {.units = 1000000}};
    assert_int_equal(actor_do(&a, many), 1000002);
    actor_kill(&a);
    assert_int_equal(sluice_canal_acquire(w.canal, "db", capacity(3, 1), NULL), 3);
}

UNIT_TEST(K12_a_count_near_2_to_the_32nd_is_full_and_does_not_wrap)
{
    WORLD w = world_new(NULL);
    struct sluice_key *k;
    struct sluice_want two = {.units = 2};
    assert_int_equal(sluice_key_resolve(w.canal, "db", &k), SLUICE_OK);
    k->key->word.lo = UINT32_MAX - 1; /* As if others held them. */
    assert_int_equal(sluice_key_acquire(k, capacity(UINT32_MAX, 1), &two),
                     SLUICE_EFULL);
    assert_int_equal(sluice_key_acquire(k, capacity(UINT32_MAX, 1), NULL), UINT32_MAX);
    assert_int_equal(sluice_key_acquire(k, capacity(UINT32_MAX, 1), NULL),
                     SLUICE_EFULL);
    assert_int_equal(sluice_key_release(k, 1), SLUICE_OK);
    assert_int_equal(sluice_key_count(k), UINT32_MAX - 1);
    k->key->word.lo = 0;
    sluice_key_free(k);
}

UNIT_TEST(K12_a_record_whose_seq_is_near_2_to_the_64th_is_not_used)
{
    WORLD w = world_new(
        &(struct sluice_canal_options){.keys = 8, .slots = 2, .records = 16});
    for (int i = 0; i < 8; i++) w.canal->seg.records[i].state.hi = UINT64_MAX;
    assert_int_equal(sluice_canal_acquire(w.canal, "db", one, NULL), 1);
    assert_int_equal(sluice_canal_release(w.canal, "db", 1), SLUICE_OK);
    ACTOR a = actor_start(&w); /* The other records are worn out too. */
    for (int i = 8; i < 16; i++) w.canal->seg.records[i].state.hi = UINT64_MAX;
    assert_int_equal(actor_acquire(&a, "db", 1, 1), SLUICE_ERECORDS);
}

int main(void)
{
    return run_unit_tests("canal");
}
