/* test_canal_lock.c - canal lock's own examples and its known defects, C1 to C7: what
 * its buckets answer, and what ours must.
 *
 * The examples (C4, C5) are equal value for value. The defects are shown on the
 * buckets, access by access, so that each is known to be one and not a misreading of
 * ours; interleave.c finds them again among all schedules. */
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "test.h"

#include "buckets.h"
#include "sluice.h"

/* ---- a lock of each kind ---- */

struct locks {
    struct buckets *buckets;
    struct sluice_canal *canal;
};

static int open_locks(void **state)
{
    static struct locks locks;
    static struct buckets buckets;
    struct sluice_canal_options options = {.anonymous = 1};
    locks.buckets = &buckets;
    buckets_init(&buckets, 3);
    *state = &locks;
    return sluice_canal_open(NULL, &options, &locks.canal);
}

static int close_locks(void **state)
{
    sluice_canal_close(((struct locks *)*state)->canal);
    return 0;
}

static int64_t acquire(struct locks *l, uint32_t per, uint32_t buckets)
{
    struct sluice_capacity capacity = {.per = per, .buckets = buckets};
    return sluice_canal_acquire(l->canal, "db", capacity, NULL);
}

static int release(struct locks *l)
{
    return sluice_canal_release(l->canal, "db", 1);
}

static int64_t count(struct locks *l)
{
    return sluice_canal_count(l->canal, "db");
}

/* Canal lock's answer in our numbers: what may stand side by side. */
static int64_t in_our_words(struct buckets_answer answer)
{
    switch (answer.word) {
        case BUCKETS_ACQUIRED: return answer.nth;
        case BUCKETS_FULL: return SLUICE_EFULL;
        case BUCKETS_OK: return SLUICE_OK;
        case BUCKETS_OUT_OF_BUCKETS: return SLUICE_ENOTHELD;
        case BUCKETS_BADARG:
        case BUCKETS_NO_CASE: break;
    }
    return INT64_MIN; /* A crash: we have no word for that. */
}

/* Both answer this. */
static void both_acquire(struct locks *l, uint32_t per, uint32_t buckets,
                         int64_t answer)
{
    assert_int_equal(in_our_words(buckets_acquire(l->buckets, per, buckets)), answer);
    assert_int_equal(acquire(l, per, buckets), answer);
}

static void both_release(struct locks *l, uint32_t per, int64_t answer)
{
    assert_int_equal(in_our_words(buckets_release(l->buckets, per)), answer);
    assert_int_equal(release(l), answer);
}

/* ---- the documents' examples ---- */

static void C4_the_readme_transcript_line_by_line(void **state)
{
    struct locks *l = *state;
    both_acquire(l, 3, 1, 1);            /*  3 */
    both_acquire(l, 3, 1, 2);            /*  4 */
    both_acquire(l, 3, 1, 3);            /*  5 */
    both_acquire(l, 3, 1, SLUICE_EFULL); /*  6 */
    both_acquire(l, 3, 2, 4);            /*  7 */
    both_acquire(l, 3, 1, SLUICE_EFULL); /*  8 */
    both_release(l, 3, SLUICE_OK);       /*  9 */
    both_acquire(l, 3, 1, SLUICE_EFULL); /* 10 */
    both_release(l, 3, SLUICE_OK);       /* 11 */
    both_acquire(l, 3, 1, 3);            /* 12 */
    both_acquire(l, 3, 1, SLUICE_EFULL); /* 13 */
}

static void C5_the_timeline_B1_A2_C3_E_full_D4(void **state)
{
    struct locks *l = *state;
    char picture[16];
    both_acquire(l, 3, 1, 1);            /* B */
    both_acquire(l, 3, 1, 2);            /* A */
    both_acquire(l, 3, 2, 3);            /* C */
    both_acquire(l, 3, 1, SLUICE_EFULL); /* E */
    both_acquire(l, 3, 2, 4);            /* D */

    /* "[4,1]": the 4 is a full bucket of 3 at whose door somebody was refused. */
    assert_int_equal(l->buckets->bucket[0], 4);
    assert_int_equal(l->buckets->bucket[1], 1);
    /* Ours keeps no trace of a refusal. */
    sluice_canal_picture((uint64_t)count(l), (struct sluice_capacity){3, 2}, picture,
                         sizeof picture);
    assert_string_equal(picture, "[3,1]");
}

/* "[4,4,1] 7 locks ... [0,0,0] 0 locks", and once more than that. */
static void seven_units_up_and_down_again(void **state)
{
    struct locks *l = *state;
    for (int64_t nth = 1; nth <= 7; nth++) both_acquire(l, 3, 3, nth);
    assert_int_equal(l->buckets->bucket[0], 4);
    assert_int_equal(l->buckets->bucket[1], 4);
    assert_int_equal(l->buckets->bucket[2], 1);
    for (int64_t nth = 7; nth >= 1; nth--) both_release(l, 3, SLUICE_OK);
    both_release(l, 3, SLUICE_ENOTHELD);
    for (int i = 0; i < 3; i++) assert_int_equal(l->buckets->bucket[i], 0);
    assert_int_equal(count(l), 0);
}

/* ---- the defects ---- */

static void C1_a_caller_with_another_per_does_not_move_the_count(void **state)
{
    struct locks *l = *state;
    for (int64_t nth = 1; nth <= 5; nth++) both_acquire(l, 5, 1, nth);
    both_acquire(l, 2, 1, SLUICE_EFULL);

    /* The refused one has set 5 to its own mark of full, so two more get in. */
    assert_int_equal(l->buckets->bucket[0], 3);
    assert_int_equal(buckets_acquire(l->buckets, 5, 1).word, BUCKETS_ACQUIRED);
    assert_int_equal(buckets_acquire(l->buckets, 5, 1).word, BUCKETS_ACQUIRED);
    assert_int_equal(buckets_acquire(l->buckets, 5, 1).word, BUCKETS_FULL);

    assert_int_equal(count(l), 5);
    assert_int_equal(acquire(l, 5, 1), SLUICE_EFULL);
    assert_int_equal(count(l), 5);
    assert_int_equal(release(l), SLUICE_OK);
    assert_int_equal(acquire(l, 2, 1), SLUICE_EFULL);
    assert_int_equal(acquire(l, 5, 1), 5);
    assert_int_equal(acquire(l, 6, 1), 6);
    assert_int_equal(count(l), 6);
}

/* Start a process that holds some units, and kill it when it has them. */
static void hold_and_die(struct locks *l, uint32_t per, uint32_t units)
{
    int ready[2];
    char byte = 0;
    int64_t nth = 0;
    assert_int_equal(pipe(ready), 0);
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        for (uint32_t i = 0; i < units && nth >= 0; i++) nth = acquire(l, per, 1);
        byte = nth > 0 ? '+' : '-';
        if (write(ready[1], &byte, 1) != 1) _exit(1);
        for (;;) pause();
    }
    assert_int_equal(read(ready[0], &byte, 1), 1);
    kill(pid, SIGKILL);
    assert_int_equal(waitpid(pid, NULL, 0), pid);
    close(ready[0]);
    close(ready[1]);
    assert_int_equal(byte, '+');
}

static void C2_the_death_of_a_holder_with_a_larger_per_gives_back_exactly(void **state)
{
    struct locks *l = *state;
    /* The manager was started with 2; the holders declared 5. */
    struct buckets *b = l->buckets;
    buckets_init(b, 2);
    for (int i = 0; i < 4; i++) buckets_acquire(b, 5, 1);
    assert_int_equal(buckets_down(b).word, BUCKETS_NO_CASE); /* It crashes. */

    assert_int_equal(acquire(l, 5, 1), 1);
    hold_and_die(l, 5, 3);
    assert_int_equal(acquire(l, 2, 1), 2); /* Would be refused at 4: reaps instead. */
    assert_int_equal(acquire(l, 2, 1), SLUICE_EFULL);
    assert_int_equal(count(l), 2);
}

static void C3_there_is_no_hole_below(void **state)
{
    struct locks *l = *state;
    struct buckets *b = l->buckets;
    buckets_init(b, 1);
    assert_int_equal(buckets_acquire(b, 1, 1).nth, 1); /* P is in bucket 1. */
    struct buckets_op a;
    buckets_begin_acquire(&a, BUCKETS_UNWATCHED, 1, 2);
    assert_false(buckets_step(b, &a)); /* A finds bucket 1 full; about to go on, */
    assert_int_equal(buckets_release(b, 1).word, BUCKETS_OK); /* when P releases. */
    while (!buckets_step(b, &a)) continue;
    assert_int_equal(a.answer.word, BUCKETS_ACQUIRED);
    assert_int_equal(buckets_acquire(b, 1, 1).word, BUCKETS_ACQUIRED); /* C: 2 of 1. */

    assert_int_equal(acquire(l, 1, 1), 1);
    assert_int_equal(acquire(l, 1, 2), 2);
    assert_int_equal(release(l), SLUICE_OK);
    assert_int_equal(acquire(l, 1, 1), SLUICE_EFULL);
}

/* ---- many at once ---- */

#define RACERS 8
#define FRESH_KEYS 500

struct race {
    struct locks *locks;
    pthread_barrier_t start;
    atomic_int granted[FRESH_KEYS];
    atomic_int odd; /* Answers that are neither granted nor full. */
};

static void *racer(void *argument)
{
    struct race *r = argument;
    for (int i = 0; i < FRESH_KEYS; i++) {
        char key[32];
        snprintf(key, sizeof key, "fresh %d", i);
        pthread_barrier_wait(&r->start);
        int64_t nth = sluice_canal_acquire(r->locks->canal, key,
                                           (struct sluice_capacity){1, 2}, NULL);
        if (nth == 1 || nth == 2) {
            atomic_fetch_add(&r->granted[i], 1);
        } else if (nth != SLUICE_EFULL) {
            atomic_fetch_add(&r->odd, 1);
        }
        /* No process may exit, and so release, before all have called. */
        pthread_barrier_wait(&r->start);
    }
    return NULL;
}

static void C6_racers_on_a_fresh_key_are_granted_or_refused(void **state)
{
    static struct race race;
    pthread_t threads[RACERS];
    race.locks = *state;
    pthread_barrier_init(&race.start, NULL, RACERS);
    for (int i = 0; i < RACERS; i++) {
        assert_int_equal(pthread_create(&threads[i], NULL, racer, &race), 0);
    }
    for (int i = 0; i < RACERS; i++) pthread_join(threads[i], NULL);
    pthread_barrier_destroy(&race.start);
    assert_int_equal(race.odd, 0);
    for (int i = 0; i < FRESH_KEYS; i++) assert_int_equal(race.granted[i], 2);
}

#define KILLS 200

static void C7_a_kill_inside_acquire_or_release_loses_and_invents_nothing(void **state)
{
    struct locks *l = *state;
    /* Rounds of the child, so that it is killed at work and not while it starts. */
    _Atomic uint32_t *rounds = mmap(NULL, sizeof *rounds, PROT_READ | PROT_WRITE,
                                    MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_true(rounds != MAP_FAILED);
    assert_int_equal(acquire(l, 2, 1), 1);
    for (uint32_t i = 0; i < KILLS; i++) {
        *rounds = 0;
        pid_t pid = fork();
        assert_true(pid >= 0);
        while (pid == 0) {
            if (acquire(l, 2, 1) != 2 || release(l) != SLUICE_OK) {
                *rounds = UINT32_MAX;
                _exit(1); /* So it did not die of the kill, which is looked at below. */
            }
            ++*rounds;
        }
        while (*rounds < 10 + i * 7) sched_yield();
        kill(pid, SIGKILL);
        int status;
        assert_int_equal(waitpid(pid, &status, 0), pid);
        assert_true(WIFSIGNALED(status));
        /* There is room for one more, whatever it held; and for one more only. */
        assert_int_equal(acquire(l, 2, 1), 2);
        assert_int_equal(acquire(l, 2, 1), SLUICE_EFULL);
        assert_int_equal(release(l), SLUICE_OK);
    }
    assert_int_equal(count(l), 1);
    munmap(rounds, sizeof *rounds);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, open_locks, close_locks)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(C4_the_readme_transcript_line_by_line),
        TEST(C5_the_timeline_B1_A2_C3_E_full_D4),
        TEST(seven_units_up_and_down_again),
        TEST(C1_a_caller_with_another_per_does_not_move_the_count),
        TEST(C2_the_death_of_a_holder_with_a_larger_per_gives_back_exactly),
        TEST(C3_there_is_no_hole_below),
        TEST(C6_racers_on_a_fresh_key_are_granted_or_refused),
        TEST(C7_a_kill_inside_acquire_or_release_loses_and_invents_nothing),
    };
    return cmocka_run_group_tests_name("canal lock", tests, NULL, NULL);
}
