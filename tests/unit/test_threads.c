/* test_threads.c - threads of one process on an anonymous segment: the part that the
 * thread sanitizer watches. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "test.h"
#include "world.h"

#include "sluice.h"

enum { THREADS = 6, ROUNDS = 3000 };

struct work {
    struct sluice_canal *canal;
    unsigned seed;
    int64_t *guarded; /* Plain memory that the lock protects. */
};

static struct sluice_canal *anonymous(uint32_t keys)
{
    struct sluice_canal *c;
    struct sluice_canal_options o = {
        .keys = keys, .slots = 64, .records = 4096, .anonymous = 1};
    assert_int_equal(sluice_canal_open(NULL, &o, &c), SLUICE_OK);
    return c;
}

static void in_threads(void *(*f)(void *), struct work *w)
{
    pthread_t t[THREADS];
    struct work own[THREADS];
    for (unsigned i = 0; i < THREADS; i++) {
        own[i] = *w;
        own[i].seed = i + 1;
        pthread_create(&t[i], NULL, f, &own[i]);
    }
    for (unsigned i = 0; i < THREADS; i++) {
        void *bad;
        pthread_join(t[i], &bad);
        assert_null(bad);
    }
}

/* Returns NULL if all went well, as all below. */
static void *count_under_the_lock(void *arg)
{
    struct work *w = arg;
    struct sluice_want wait = {.wait_ms = SLUICE_FOREVER};
    struct sluice_capacity one = {.per = 1, .buckets = 1};
    struct sluice_key *k;
    if (sluice_key_resolve(w->canal, "guard", &k) != SLUICE_OK) return w;
    for (int i = 0; i < ROUNDS; i++) {
        /* By turns by name and by handle: it is one lock. */
        int64_t nth = i % 2 ? sluice_key_acquire(k, one, &wait)
                            : sluice_canal_acquire(w->canal, "guard", one, &wait);
        if (nth != 1) return w;
        ++*w->guarded; /* The sanitizer sees it if two are here at once. */
        if (sluice_canal_release(w->canal, "guard", 1) != SLUICE_OK) return w;
    }
    return sluice_key_free(k) == SLUICE_OK ? NULL : w;
}

UNIT_TEST(a_lock_with_capacity_one_orders_what_threads_do_under_it)
{
    int64_t guarded = 0;
    struct work w = {.canal = anonymous(16), .guarded = &guarded};
    in_threads(count_under_the_lock, &w);
    assert_int_equal(guarded, THREADS * ROUNDS);
    assert_int_equal(sluice_canal_count(w.canal, "guard"), 0);
    sluice_canal_close(w.canal);
}

static void *names_come_and_go(void *arg)
{
    struct work *w = arg;
    struct sluice_capacity capacity = {.per = THREADS, .buckets = 1};
    for (int i = 0; i < ROUNDS; i++) {
        char key[16];
        snprintf(key, sizeof key, "n%d", rand_r(&w->seed) % 500);
        int64_t nth = sluice_canal_acquire(w->canal, key, capacity, NULL);
        if (nth < 1 || nth > THREADS) return w;
        if (sluice_canal_release(w->canal, key, 1) != SLUICE_OK) return w;
        if (sluice_canal_count(w->canal, key) < 0) return w;
        canal_check(w->canal);
    }
    return NULL;
}

UNIT_TEST(names_come_and_go_under_many_threads)
{
    struct work w = {.canal = anonymous(16)}; /* 500 names through 16 places. */
    in_threads(names_come_and_go, &w);
    struct sluice_canal_info info;
    sluice_canal_info(w.canal, &info);
    assert_int_equal(info.keys_used, 0);
    assert_int_equal(info.slots_used, 0);
    assert_int_equal(info.records_used, 0);
    sluice_canal_close(w.canal);
}

static void *look_around(void *arg)
{
    struct work *w = arg;
    for (int i = 0; i < ROUNDS / 10; i++) {
        struct sluice_key_info k;
        for (uint64_t c = 0; sluice_canal_next_key(w->canal, &c, &k) == 1;) {
            struct sluice_holder h;
            for (uint64_t d = 0;
                 sluice_canal_next_holder(w->canal, k.key, &d, &h) == 1;)
                if (h.pid != getpid() && h.pid != 0) return w;
        }
        struct sluice_capacity capacity = {.per = 2, .buckets = 1};
        struct sluice_want wait = {.wait_ms = 5};
        if (sluice_canal_acquire(w->canal, "busy", capacity, &wait) > 0 &&
            sluice_canal_release(w->canal, "busy", 1) != SLUICE_OK)
            return w;
    }
    return NULL;
}

UNIT_TEST(inspection_disturbs_nobody)
{
    struct work w = {.canal = anonymous(16)};
    in_threads(look_around, &w);
    assert_int_equal(sluice_canal_count(w.canal, "busy"), 0);
    sluice_canal_close(w.canal);
}

static void *come_and_go(void *arg)
{
    struct work *w = arg;
    struct sluice_capacity capacity = {.per = THREADS, .buckets = 1};
    return sluice_canal_acquire(w->canal, "left", capacity, NULL) > 0 ? NULL : w;
}

UNIT_TEST(threads_that_exit_leave_nothing_behind)
{
    struct work w = {.canal = anonymous(16)};
    for (int i = 0; i < 50; i++) in_threads(come_and_go, &w);
    assert_int_equal(sluice_canal_count(w.canal, "left"), 0);
    sluice_canal_close(w.canal);
}

int main(void)
{
    alarm(300);
    return run_unit_tests("threads");
}
