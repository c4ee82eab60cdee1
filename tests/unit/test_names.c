/* test_names.c - names come and go: more of them than the table has places for, never
 * losing or inventing a permit. */
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "test.h"

#include "canal/counter.h"
#include "canal/keys.h"
#include "canal/thread.h"
#include "sluice.h"
#include "world.h"

static const struct sluice_capacity one = {.per = 1, .buckets = 1};

static const char *name_of(int i)
{
    static char name[32];
    snprintf(name, sizeof name, "name-%d", i);
    return name;
}

UNIT_TEST(a_canal_of_ten_thousand_keys_serves_a_million_names)
{
    enum { NAMES = 1000000, KEYS = 10000, HELD = 5000 };
    WORLD w = world_new(
        &(struct sluice_canal_options){.keys = KEYS, .slots = 4, .records = KEYS});
    for (int i = 0; i < HELD; i++) /* Half of the places stay in use throughout. */
        assert_int_equal(sluice_canal_acquire(w.canal, name_of(i), one, NULL), 1);
    for (int i = HELD; i < NAMES; i++) {
        if (sluice_canal_acquire(w.canal, name_of(i), one, NULL) != 1)
            fail_msg("%d", i);
        if (sluice_canal_release(w.canal, name_of(i), 1) != SLUICE_OK)
            fail_msg("%d", i);
        if (i % 5000 == 0) canal_check(w.canal);
    }
    for (int i = 0; i < HELD; i++) {
        assert_int_equal(sluice_canal_acquire(w.canal, name_of(i), one, NULL),
                         SLUICE_EFULL);
        assert_int_equal(sluice_canal_release(w.canal, name_of(i), 1), SLUICE_OK);
    }
    struct sluice_canal_info info;
    sluice_canal_info(w.canal, &info);
    assert_int_equal(info.keys_used, 0);
}

UNIT_TEST(a_full_key_table_is_a_status_until_a_key_is_released)
{
    WORLD w = world_new(
        &(struct sluice_canal_options){.keys = 8, .slots = 4, .records = 64});
    struct sluice_key *resolved;
    for (int i = 0; i < 6; i++)
        assert_int_equal(sluice_canal_acquire(w.canal, name_of(i), one, NULL), 1);
    assert_int_equal(sluice_key_resolve(w.canal, name_of(6), &resolved), SLUICE_OK);
    struct actor waiter = actor_start(&w);
    assert_int_equal(sluice_canal_acquire(w.canal, name_of(7), one, NULL), 1);
    actor_send(&waiter, (struct command){.deed = ACQUIRE,
                                         .key = "name-0",
                                         .capacity = one,
                                         .want = {.wait_ms = 60000}});
    assert_int_equal(sluice_canal_acquire(w.canal, "more", one, NULL), SLUICE_EKEYS);
    assert_int_equal(sluice_key_resolve(w.canal, "more", &(struct sluice_key *){NULL}),
                     SLUICE_EKEYS);
    assert_int_equal(sluice_canal_count(w.canal, "more"), 0);
    /* Held, waited for and resolved: each keeps its place, and gives it up. */
    assert_int_equal(sluice_canal_release(w.canal, "name-7", 1), SLUICE_OK);
    assert_int_equal(sluice_canal_acquire(w.canal, "more", one, NULL), 1);
    assert_int_equal(sluice_canal_acquire(w.canal, "and more", one, NULL),
                     SLUICE_EKEYS);
    assert_int_equal(sluice_key_free(resolved), SLUICE_OK);
    assert_int_equal(sluice_canal_acquire(w.canal, "and more", one, NULL), 1);
    assert_int_equal(sluice_canal_acquire(w.canal, "still more", one, NULL),
                     SLUICE_EKEYS);
    assert_int_equal(sluice_canal_release(w.canal, "name-0", 1), SLUICE_OK);
    assert_int_equal(actor_answer(&waiter), 1);
    actor_kill(&waiter); /* The keys of the dead are let go too. */
    assert_int_equal(sluice_canal_acquire(w.canal, "still more", one, NULL), 1);
}

UNIT_TEST(a_name_that_comes_back_begins_at_nothing_and_old_handles_stay_true)
{
    WORLD w = world_new(
        &(struct sluice_canal_options){.keys = 4, .slots = 4, .records = 64});
    struct sluice_key *k;
    assert_int_equal(sluice_key_resolve(w.canal, "kept", &k), SLUICE_OK);
    for (int round = 0; round < 1000; round++) {
        assert_int_equal(sluice_canal_acquire(w.canal, "back", one, NULL), 1);
        assert_int_equal(sluice_canal_release(w.canal, "back", 1), SLUICE_OK);
        for (int i = 0; i < 5; i++) { /* Push it out of its place. */
            assert_int_equal(sluice_canal_acquire(w.canal, name_of(i), one, NULL), 1);
            assert_int_equal(sluice_canal_release(w.canal, name_of(i), 1), SLUICE_OK);
        }
        assert_int_equal(sluice_key_acquire(k, one, NULL), 1);
        assert_int_equal(sluice_canal_count(w.canal, "kept"), 1);
        assert_int_equal(sluice_key_release(k, 1), SLUICE_OK);
    }
    assert_int_equal(sluice_key_free(k), SLUICE_OK);
}

/* Three processes and a table much too small, each with its own idea of the names. */
UNIT_TEST(processes_that_replace_keys_never_misplace_a_permit)
{
    enum { ACTORS = 3, ROUNDS = 20000 };
    WORLD w = world_new(
        &(struct sluice_canal_options){.keys = 8, .slots = 8, .records = 64});
    pid_t pids[ACTORS];
    fflush(NULL);
    for (unsigned a = 0; a < ACTORS; a++) {
        pids[a] = fork();
        if (pids[a] != 0) continue;
        unsigned seed = a + 1;
        for (int i = 0; i < ROUNDS; i++) {
            char key[16];
            int n = rand_r(&seed) % 20;
            snprintf(key, sizeof key, "n%d", n);
            /* Names below 10 are everybody's, with capacity for all; the others are
             * claimed by one at a time. */
            struct sluice_capacity capacity = {.per = n < 10 ? ACTORS : 1,
                                               .buckets = 1};
            int64_t nth = sluice_canal_acquire(w.canal, key, capacity, NULL);
            if (nth == SLUICE_EFULL && n >= 10) continue;
            if (nth < 1 || nth > ACTORS) _exit(1);
            if (sluice_canal_count(w.canal, key) < 1) _exit(2);
            if (sluice_canal_release(w.canal, key, 1) != SLUICE_OK) _exit(3);
        }
        _exit(0);
    }
    for (int a = 0; a < ACTORS; a++) {
        int status;
        waitpid(pids[a], &status, 0);
        assert_int_equal(status, 0);
    }
    sluice_canal_reap(w.canal);
    for (uint32_t k = 0; k < w.canal->seg.key_count; k++)
        assert_int_equal(
            sl_canal_word_count(sl_canal_word_load(&w.canal->seg.keys[k].word)), 0);
}

/* A process stopped inside the mutex of the key table keeps new names out, for a time
 * that is bounded; names that are there go on as ever. */
UNIT_TEST(a_process_stopped_while_it_adds_a_key_is_reported)
{
    WORLD w = world_new(
        &(struct sluice_canal_options){.keys = 8, .slots = 8, .records = 64});
    assert_int_equal(sluice_canal_acquire(w.canal, "there", one, NULL), 1);
    pid_t pid = fork();
    if (pid == 0) {
        pthread_mutex_lock(&w.canal->seg.header->key_mutex);
        raise(SIGSTOP);
        _exit(0);
    }
    int status;
    waitpid(pid, &status, WUNTRACED);
    assert_true(WIFSTOPPED(status));
    assert_int_equal(sluice_canal_acquire(w.canal, "new", one, NULL), SLUICE_EBUSY);
    assert_int_equal(sluice_canal_release(w.canal, "there", 1), SLUICE_OK);
    assert_int_equal(sluice_canal_acquire(w.canal, "there", one, NULL), 1);
    assert_int_equal(sluice_canal_count(w.canal, "new"), 0);
    kill(pid, SIGKILL);
    waitpid(pid, NULL, 0);
    assert_int_equal(sluice_canal_acquire(w.canal, "new", one, NULL), 1);
}

UNIT_TEST(the_index_is_mended_after_a_death_in_the_middle)
{
    WORLD w = world_new(
        &(struct sluice_canal_options){.keys = 16, .slots = 8, .records = 64});
    struct sl_canal_segment *seg = &w.canal->seg;
    for (int i = 0; i < 10; i++)
        assert_int_equal(sluice_canal_acquire(w.canal, name_of(i), one, NULL), 1);
    pid_t pid = fork();
    if (pid == 0) { /* Die with the mutex, the index in ruins and a key half closed. */
        pthread_mutex_lock(&seg->header->key_mutex);
        seg->header->changes++;
        memset(seg->index, 0, (seg->index_mask + 1) * sizeof *seg->index / 2);
        seg->keys[3].state = sl_canal_key_state_make(seg->keys[3].state >> 2,
                                                     SL_CANAL_KEY_CLOSING);
        kill(getpid(), SIGKILL);
    }
    waitpid(pid, NULL, 0);
    for (int i = 0; i < 10; i++)
        assert_int_equal(sluice_canal_count(w.canal, name_of(i)), 1);
    assert_int_equal(sluice_canal_acquire(w.canal, "new", one, NULL), 1);
    for (int i = 0; i < 10; i++) {
        assert_int_equal(sluice_canal_acquire(w.canal, name_of(i), one, NULL),
                         SLUICE_EFULL);
        assert_int_equal(sluice_canal_release(w.canal, name_of(i), 1), SLUICE_OK);
    }
}

int main(void)
{
    return run_unit_tests("names");
}
