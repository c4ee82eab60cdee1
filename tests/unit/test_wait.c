/* test_wait.c - waiting for capacity: woken by a release, by a death, by nothing. What is
 * timed here has bounds far from what happens, as the machine may be busy. */
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "test.h"

#include "canal/sleep.h"
#include "canal/thread.h"
#include "sluice.h"
#include "world.h"

static const struct sluice_capacity one = {.per = 1, .buckets = 1};

/* Long for a machine, short for a test. */
#define LONG_MS 60000

static struct command wait_for(const char *key, uint32_t per, int64_t wait_ms)
{
    struct command c = {.deed = ACQUIRE,
                        .capacity = {.per = per, .buckets = 1},
                        .want = {.wait_ms = wait_ms}};
    snprintf(c.key, sizeof c.key, "%s", key);
    return c;
}

/* Until this many threads wait for a key. */
static void until_waiters(const struct world *w, const char *key, uint32_t wanted)
{
    for (;;) {
        uint32_t waiting = 0;
        struct sluice_holder h;
        for (uint64_t cursor = 0;
             sluice_canal_next_holder(w->canal, key, &cursor, &h) == 1;)
            waiting += h.waits;
        if (waiting == wanted) return;
        pause_ms(1);
    }
}

UNIT_TEST(a_wait_that_times_out_takes_its_time_and_returns_full)
{
    WORLD w = world_new(NULL);
    ACTOR a = actor_start(&w);
    assert_int_equal(sluice_canal_acquire(w.canal, "db", one, NULL), 1);
    int64_t before = now_ms();
    assert_int_equal(actor_do(&a, wait_for("db", 1, 250)), SLUICE_EFULL);
    assert_true(now_ms() - before >= 250);
}

UNIT_TEST(a_release_wakes_a_waiter_long_before_its_sleep_ends)
{
    WORLD w = world_new(NULL);
    ACTOR a = actor_start(&w);
    int64_t shortest = LONG_MS;
    for (int i = 0; i < 20; i++) {
        assert_int_equal(sluice_canal_acquire(w.canal, "db", one, NULL), 1);
        actor_send(&a, wait_for("db", 1, LONG_MS));
        until_waiters(&w, "db", 1);
        int64_t before = now_ms();
        assert_int_equal(sluice_canal_release(w.canal, "db", 1), SLUICE_OK);
        assert_int_equal(actor_answer(&a), 1);
        int64_t took = now_ms() - before;
        if (took < shortest) shortest = took;
        assert_int_equal(actor_release(&a, "db", 1), SLUICE_OK);
    }
    /* Without a wake each would take up to SL_CANAL_SLEEP_MS_MAX; one of twenty is not slow
     * because the machine is. */
    assert_true(shortest < SL_CANAL_SLEEP_MS_MAX / 4);
}

UNIT_TEST(a_holders_death_is_noticed_by_a_sleeping_waiter)
{
    WORLD w = world_new(NULL);
    ACTOR waiter = actor_start(&w);
    int64_t shortest = LONG_MS;
    for (int i = 0; i < 10; i++) {
        struct actor holder = actor_start(&w);
        assert_int_equal(actor_acquire(&holder, "db", 1, 1), 1);
        actor_send(&waiter, wait_for("db", 1, LONG_MS));
        until_waiters(&w, "db", 1);
        int64_t before = now_ms();
        actor_kill(&holder);
        assert_int_equal(actor_answer(&waiter), 1);
        int64_t took = now_ms() - before;
        if (took < shortest) shortest = took;
        assert_int_equal(actor_release(&waiter, "db", 1), SLUICE_OK);
    }
    assert_true(shortest <= 150);
}

UNIT_TEST(a_woken_waiter_that_is_killed_takes_no_wake_with_it)
{
    WORLD w = world_new(NULL);
    for (int i = 0; i < 20; i++) {
        struct actor a = actor_start(&w), b = actor_start(&w);
        assert_int_equal(sluice_canal_acquire(w.canal, "db", one, NULL), 1);
        actor_send(&a, wait_for("db", 1, LONG_MS));
        actor_send(&b, wait_for("db", 1, LONG_MS));
        until_waiters(&w, "db", 2);
        sluice_canal_release(w.canal, "db", 1);
        kill(a.pid, SIGKILL); /* Wherever it is by now: asleep, woken, or a holder. */
        int64_t answer = actor_answer(&b);
        assert_true(answer == 1);
        actor_kill(&a), actor_kill(&b);
        sluice_canal_reap(w.canal);
    }
}

UNIT_TEST(more_capacity_admits_a_new_caller_before_waiters)
{
    WORLD w = world_new(NULL);
    ACTOR a = actor_start(&w), b = actor_start(&w);
    assert_int_equal(sluice_canal_acquire(w.canal, "db", one, NULL), 1);
    actor_send(&a, wait_for("db", 1, LONG_MS));
    until_waiters(&w, "db", 1);
    assert_int_equal(actor_acquire(&b, "db", 2, 1), 2);
    assert_false(actor_answered(&a, 0));
    sluice_canal_release(w.canal, "db", 1);
    actor_release(&b, "db", 1);
    assert_int_equal(actor_answer(&a), 1);
}

UNIT_TEST(waiters_of_different_capacities_and_units_are_all_served)
{
    enum { WAITERS = 12 };
    WORLD w = world_new(NULL);
    struct actor a[WAITERS];
    struct sluice_want all = {.units = 4};
    assert_int_equal(
        sluice_canal_acquire(w.canal, "db", (struct sluice_capacity){4, 1}, &all), 4);
    for (int i = 0; i < WAITERS; i++) {
        a[i] = actor_start(&w);
        struct command c = wait_for("db", 1 + (uint32_t)i % 4, LONG_MS);
        c.want.units = 1 + (uint32_t)i % (1 + (uint32_t)i % 4);
        actor_send(&a[i], c);
    }
    until_waiters(&w, "db", WAITERS);
    sluice_canal_release(w.canal, "db", 4);
    for (int served = 0; served < WAITERS;) {
        for (int i = 0; i < WAITERS; i++) {
            if (a[i].pid == 0 || !actor_answered(&a[i], 5)) continue;
            assert_true(actor_answer(&a[i]) > 0);
            actor_kill(&a[i]); /* Its units are released by its death. */
            served++;
        }
    }
}

UNIT_TEST(wait_forever_is_a_wait_without_end)
{
    WORLD w = world_new(NULL);
    ACTOR a = actor_start(&w);
    sluice_canal_acquire(w.canal, "db", one, NULL);
    actor_send(&a, wait_for("db", 1, SLUICE_FOREVER));
    assert_false(actor_answered(&a, 300)); /* Three sleeps. */
    sluice_canal_release(w.canal, "db", 1);
    assert_int_equal(actor_answer(&a), 1);
}

UNIT_TEST(a_signal_does_not_end_a_wait)
{
    WORLD w = world_new(NULL);
    ACTOR a = actor_start(&w);
    sluice_canal_acquire(w.canal, "db", one, NULL);
    actor_send(&a, wait_for("db", 1, LONG_MS));
    until_waiters(&w, "db", 1);
    kill(a.pid, SIGSTOP);
    kill(a.pid, SIGCONT);
    assert_false(actor_answered(&a, 50));
    sluice_canal_release(w.canal, "db", 1);
    assert_int_equal(actor_answer(&a), 1);
}

int main(void)
{
    return run_unit_tests("wait");
}
