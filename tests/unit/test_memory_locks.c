/* test_memory_locks.c - sluice_open("memory:"): locks, stealing and callbacks between the
 * threads of one process. The thread sanitizer watches. */
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "failing_alloc.h"
#include "test.h"

#include "client/answers.h"
#include "client/memory/memory.h"
#include "sluice.h"

#define DEADLINE_S 120
#define LONG_MS 60000 /* A wait that is never over, in a test that passes. */

static int64_t now_ms(void)
{
    struct timespec t;
    clock_gettime(CLOCK_BOOTTIME, &t);
    return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

static void pause_ms(long ms)
{
    nanosleep(&(struct timespec){.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000},
              NULL);
}

static struct sluice *service(void)
{
    struct sluice *s;
    assert_int_equal(sluice_open("memory:", NULL, &s), SLUICE_OK);
    return s;
}

static void service_close(struct sluice **s)
{
    sluice_close(*s);
    *s = NULL;
}

/* A service that is closed at the end of its block. */
#define SERVICE(s) __attribute__((cleanup(service_close))) struct sluice *s = service()

/* Check the invariants, after a step. */
static void check(struct sluice *s)
{
    struct sl_memory *m = sl_memory_of(s);
    pthread_mutex_lock(&m->mutex);
    sl_client_check(s);
    pthread_mutex_unlock(&m->mutex);
}

/* How many wait for a key. */
static int waiters(struct sluice *s, const char *key)
{
    static struct sluice_view v[64];
    check(s);
    int64_t n = sluice_inspect(s, key, v, 64);
    int count = 0;
    for (int64_t i = 0; i < n; i++) count += (int)v[i].waits;
    return count;
}

static void until_waiters(struct sluice *s, const char *key, int n)
{
    while (waiters(s, key) != n) pause_ms(1);
}

/* --- A thread that does what it is told --------------------------------------- */

struct actor {
    struct sluice *s;
    const char *key;
    struct sluice_request request;
    uint64_t fence; /* To be released, if it is not 0. */

    pthread_t thread;
    pthread_mutex_t mutex;
    pthread_cond_t turn;
    int orders; /* Given and not yet done. */
    bool leave;
    int status;
    struct sluice_grant grant;
    int64_t at_ms; /* When it was done. */
};

static void *act(void *arg)
{
    struct actor *a = arg;
    pthread_mutex_lock(&a->mutex);
    while (!a->leave) {
        if (a->orders == 0) {
            pthread_cond_wait(&a->turn, &a->mutex);
            continue;
        }
        pthread_mutex_unlock(&a->mutex);
        int status = a->fence != 0
                         ? sluice_release(a->s, a->key, a->fence)
                         : sluice_acquire(a->s, a->key, &a->request, &a->grant);
        if (status != SLUICE_ECLOSED) check(a->s);
        pthread_mutex_lock(&a->mutex);
        a->status = status;
        a->at_ms = now_ms();
        a->orders--;
        pthread_cond_broadcast(&a->turn);
    }
    pthread_mutex_unlock(&a->mutex);
    return NULL;
}

static void actor_start(struct actor *a, struct sluice *s, const char *key)
{
    *a = (struct actor){.s = s, .key = key};
    pthread_mutex_init(&a->mutex, NULL);
    pthread_cond_init(&a->turn, NULL);
    assert_int_equal(pthread_create(&a->thread, NULL, act, a), 0);
}

static void order(struct actor *a)
{
    pthread_mutex_lock(&a->mutex);
    a->orders++;
    pthread_cond_broadcast(&a->turn);
    pthread_mutex_unlock(&a->mutex);
}

static void actor_asks(struct actor *a, struct sluice_request r)
{
    a->request = r;
    a->fence = 0;
    order(a);
}

static int answer(struct actor *a)
{
    pthread_mutex_lock(&a->mutex);
    while (a->orders > 0) pthread_cond_wait(&a->turn, &a->mutex);
    int status = a->status;
    pthread_mutex_unlock(&a->mutex);
    return status;
}

static int actor_acquires(struct actor *a, struct sluice_request r)
{
    actor_asks(a, r);
    return answer(a);
}

static int actor_releases(struct actor *a, uint64_t fence)
{
    a->fence = fence;
    order(a);
    return answer(a);
}

static void actor_end(struct actor *a)
{
    if (a->leave) return;
    pthread_mutex_lock(&a->mutex);
    a->leave = true;
    pthread_cond_broadcast(&a->turn);
    pthread_mutex_unlock(&a->mutex);
    pthread_join(a->thread, NULL);
    pthread_cond_destroy(&a->turn);
    pthread_mutex_destroy(&a->mutex);
}

/* An actor that ends at the end of its block. */
#define ACTOR(a, ...)                                   \
    __attribute__((cleanup(actor_end))) struct actor a; \
    actor_start(&a, __VA_ARGS__)

/* --- A diary of what a holder was told ------------------------------------------ */

struct diary {
    pthread_mutex_t mutex;
    pthread_cond_t more;
    int count;
    enum sluice_event_type what[32];
    struct sluice_event last;
    struct sluice *release_in; /* Answer ASKED by a release; NULL: do nothing. */
    int release_status;
    pthread_t by;
};

#define DIARY                                                                \
    {                                                                        \
        .mutex = PTHREAD_MUTEX_INITIALIZER, .more = PTHREAD_COND_INITIALIZER \
    }

static void note_down(void *arg, const struct sluice_event *e)
{
    struct diary *d = arg;
    if (e->type == SLUICE_EVENT_ASKED && d->release_in != NULL) {
        int status = sluice_release(d->release_in, e->key, e->fence);
        pthread_mutex_lock(&d->mutex);
        d->release_status = status;
        pthread_mutex_unlock(&d->mutex);
    }
    pthread_mutex_lock(&d->mutex);
    d->what[d->count++ % 32] = e->type;
    d->last = *e;
    d->by = pthread_self();
    pthread_cond_broadcast(&d->more);
    pthread_mutex_unlock(&d->mutex);
}

static void until_told(struct diary *d, int count)
{
    pthread_mutex_lock(&d->mutex);
    while (d->count < count) pthread_cond_wait(&d->more, &d->mutex);
    pthread_mutex_unlock(&d->mutex);
}

static int told(struct diary *d)
{
    pthread_mutex_lock(&d->mutex);
    int count = d->count;
    pthread_mutex_unlock(&d->mutex);
    return count;
}

/* --- Opening, arguments ----------------------------------------------------------- */

UNIT_TEST(each_service_has_its_own_locks)
{
    struct sluice *s;
    assert_int_equal(sluice_open("memory:x", NULL, &s), SLUICE_EINVAL);
    assert_int_equal(sluice_open("memory:", NULL, NULL), SLUICE_EINVAL);
    sluice_close(NULL);
    struct sluice *one = service(), *other = service();
    struct sluice_grant g;
    assert_int_equal(sluice_acquire(one, "db", NULL, &g), SLUICE_OK);
    assert_int_equal(sluice_acquire(other, "db", NULL, &g), SLUICE_OK); /* Its own. */
    sluice_close(one);
    sluice_close(other);
}

static int with(struct sluice *s, struct sluice_request r)
{
    struct sluice_grant g;
    return sluice_acquire(s, "with", &r, &g);
}

UNIT_TEST(impossible_requests_are_rejected)
{
    SERVICE(s);
    struct sluice_grant g;
    char text[SLUICE_VALUE_BYTES_MAX + 2];
    memset(text, 'k', sizeof text - 1);
    text[sizeof text - 1] = '\0';
    assert_int_equal(sluice_acquire(s, text, NULL, &g), SLUICE_EINVAL);
    assert_int_equal(sluice_acquire(s, "", NULL, &g), SLUICE_EINVAL);
    assert_int_equal(sluice_acquire(s, NULL, NULL, &g), SLUICE_EINVAL);
    assert_int_equal(sluice_acquire(s, "k", NULL, NULL), SLUICE_EINVAL);
    assert_int_equal(sluice_acquire(NULL, "k", NULL, &g), SLUICE_EINVAL);
    assert_int_equal(with(s, (struct sluice_request){.value = text}), SLUICE_ETOOBIG);
    assert_int_equal(with(s, (struct sluice_request){.units = 2}), SLUICE_ETOOBIG);
    assert_int_equal(with(s, (struct sluice_request){.wait_ms = -2}), SLUICE_EINVAL);
    assert_int_equal(with(s, (struct sluice_request){.lease_ms = -1}), SLUICE_EINVAL);
    assert_int_equal(with(s, (struct sluice_request){.shared = 1, .units = 1}),
                     SLUICE_EINVAL);
    assert_int_equal(with(s, (struct sluice_request){.steal = 1, .steal_early = 1.5}),
                     SLUICE_EINVAL);
    assert_int_equal(sluice_release(s, "", 0), SLUICE_EINVAL);
    assert_int_equal(sluice_release(NULL, "k", 0), SLUICE_EINVAL);
    assert_int_equal(sluice_release(s, "k", 0), SLUICE_ENOTHELD);
    assert_int_equal(sluice_release(s, "k", 7), SLUICE_ELOST);
    assert_int_equal(sluice_extend(s, "k", 7, 0), SLUICE_EINVAL);
    assert_int_equal(sluice_extend(s, "k", 7, 10), SLUICE_ELOST);
    assert_int_equal(sluice_check(s, "k", 7), SLUICE_ELOST);
    assert_int_equal(sluice_break(s, "k", 7, 0), SLUICE_ELOST);
    assert_int_equal(sluice_inspect(s, "", NULL, 0), SLUICE_EINVAL);
    assert_int_equal(sluice_inspect(s, "k", NULL, 1), SLUICE_EINVAL);
    assert_int_equal(sluice_inspect(s, "k", NULL, 0), 0);
}

UNIT_TEST(limits_of_a_service_are_its_options)
{
    struct sluice *s;
    struct sluice_grant g;
    struct sluice_options o = {.keys = 2, .waiters = 1};
    assert_int_equal(sluice_open("memory:", &o, &s), SLUICE_OK);
    assert_int_equal(sluice_acquire(s, "a", NULL, &g), SLUICE_OK);
    assert_int_equal(sluice_acquire(s, "b", NULL, &g), SLUICE_OK);
    assert_int_equal(sluice_acquire(s, "c", NULL, &g), SLUICE_EKEYS);
    ACTOR(a, s, "a");
    ACTOR(b, s, "a");
    actor_asks(&a, (struct sluice_request){.wait_ms = LONG_MS});
    until_waiters(s, "a", 1);
    assert_int_equal(actor_acquires(&b, (struct sluice_request){.wait_ms = LONG_MS}),
                     SLUICE_EWAITERS);
    assert_int_equal(sluice_release(s, "a", 0), SLUICE_OK);
    assert_int_equal(answer(&a), SLUICE_OK);
    actor_end(&a);
    actor_end(&b);
    sluice_close(s);
}

/* --- Locks -------------------------------------------------------------------------- */

UNIT_TEST(a_waiter_is_next_and_has_a_higher_fence)
{
    SERVICE(s);
    struct sluice_grant g;
    ACTOR(a, s, "db");
    assert_int_equal(sluice_acquire(s, "db", NULL, &g), SLUICE_OK);
    assert_int_equal(g.held, 1);
    assert_int_equal(actor_acquires(&a, (struct sluice_request){0}), SLUICE_EFULL);
    int64_t began = now_ms();
    assert_int_equal(actor_acquires(&a, (struct sluice_request){.wait_ms = 30}),
                     SLUICE_EFULL);
    assert_true(a.at_ms - began >= 29);
    actor_asks(&a, (struct sluice_request){.wait_ms = SLUICE_FOREVER});
    until_waiters(s, "db", 1);
    assert_int_equal(sluice_check(s, "db", g.fence), SLUICE_OK);
    assert_int_equal(sluice_release(s, "db", g.fence), SLUICE_OK);
    assert_int_equal(answer(&a), SLUICE_OK);
    assert_true(a.grant.fence > g.fence);
    assert_int_equal(sluice_check(s, "db", g.fence), SLUICE_ELOST);
    assert_int_equal(sluice_release(s, "db", g.fence), SLUICE_ELOST);
    /* Without a lease it is the thread's own. */
    assert_int_equal(sluice_release(s, "db", a.grant.fence), SLUICE_ETHREAD);
    assert_int_equal(sluice_extend(s, "db", a.grant.fence, 10), SLUICE_ELOST);
    assert_int_equal(actor_releases(&a, a.grant.fence), SLUICE_OK);
}

/* P15: re-entrance is the caller's to count. */
UNIT_TEST(a_second_acquire_of_a_thread_asks_for_more_units)
{
    SERVICE(s);
    struct sluice_grant g, h;
    struct sluice_request two = {.per = 2, .wait_ms = LONG_MS};
    struct sluice_request one = {.wait_ms = LONG_MS};
    assert_int_equal(sluice_acquire(s, "p", &two, &g), SLUICE_OK);
    assert_int_equal(sluice_acquire(s, "p", &two, &h), SLUICE_OK);
    assert_int_equal(h.held, 2);
    assert_true(h.fence > g.fence);
    assert_int_equal(sluice_acquire(s, "p", &two, &h), SLUICE_EDEADLOCK);
    assert_int_equal(sluice_acquire(s, "m", &one, &h), SLUICE_OK);
    assert_int_equal(sluice_acquire(s, "m", &one, &h), SLUICE_EDEADLOCK);
    /* A fence of 0 is the newest one of this thread. */
    assert_int_equal(sluice_release(s, "p", 0), SLUICE_OK);
    assert_int_equal(sluice_check(s, "p", g.fence), SLUICE_OK);
    assert_int_equal(sluice_release(s, "p", 0), SLUICE_OK);
    assert_int_equal(sluice_release(s, "p", 0), SLUICE_ENOTHELD);
}

/* P16 */
UNIT_TEST(a_thread_never_steals_from_itself)
{
    SERVICE(s);
    struct sluice_grant g;
    struct diary d = DIARY;
    struct sluice_request low = {.on_event = note_down, .arg = &d, .lease_ms = LONG_MS};
    struct sluice_request high = {.priority = 9, .steal = 1, .wait_ms = 20};
    assert_int_equal(sluice_acquire(s, "m", &low, &g), SLUICE_OK);
    uint64_t fence = g.fence;
    assert_int_equal(sluice_acquire(s, "m", &high, &g), SLUICE_EFULL);
    assert_int_equal(sluice_extend(s, "m", fence, LONG_MS), SLUICE_OK);
    assert_int_equal(sluice_release(s, "m", fence), SLUICE_OK);
    assert_int_equal(told(&d), 0);
}

UNIT_TEST(readers_share_and_a_writer_waits_for_them)
{
    SERVICE(s);
    struct sluice_grant g;
    struct sluice_request share = {.shared = 1};
    ACTOR(a, s, "data");
    ACTOR(w, s, "data");
    assert_int_equal(sluice_acquire(s, "data", &share, &g), SLUICE_OK);
    assert_int_equal(actor_acquires(&a, share), SLUICE_OK);
    actor_asks(&w, (struct sluice_request){.wait_ms = LONG_MS});
    until_waiters(s, "data", 1);
    assert_int_equal(sluice_release(s, "data", 0), SLUICE_OK);
    assert_int_equal(waiters(s, "data"), 1);
    assert_int_equal(actor_releases(&a, a.grant.fence), SLUICE_OK);
    assert_int_equal(answer(&w), SLUICE_OK);
}

UNIT_TEST(holders_and_waiters_are_visible)
{
    SERVICE(s);
    struct sluice_grant g;
    struct sluice_view v[3];
    struct sluice_request r = {
        .per = 3, .units = 2, .lease_ms = LONG_MS, .value = "here", .note = "why"};
    ACTOR(a, s, "db");
    assert_int_equal(sluice_acquire(s, "db", &r, &g), SLUICE_OK);
    actor_asks(&a,
               (struct sluice_request){.priority = 4, .steal = 1, .wait_ms = LONG_MS});
    until_waiters(s, "db", 1);
    assert_int_equal(sluice_inspect(s, "db", v, 3), 2);
    assert_true(v[0].fence == g.fence && v[0].waits == 0 && v[0].asked == 1);
    assert_true(v[0].units == 2 && v[0].capacity.per == 3 &&
                v[0].capacity.buckets == 1);
    assert_true(v[0].left_ms > 0 && v[0].left_ms <= LONG_MS);
    assert_int_equal(v[0].tid, gettid());
    assert_string_equal(v[0].value, "here");
    assert_string_equal(v[0].note, "why");
    assert_true(v[1].waits == 1 && v[1].steals == 1 && v[1].priority == 4);
    assert_true(v[1].tid != v[0].tid && v[1].value[0] == '\0');
    assert_int_equal(sluice_inspect(s, "db", v, 1), 2);
    assert_int_equal(sluice_release(s, "db", 0), SLUICE_OK);
}

/* --- Leases --------------------------------------------------------------------------- */

UNIT_TEST(a_lease_expires_even_if_nobody_checks)
{
    SERVICE(s);
    struct sluice_grant g;
    struct diary d = DIARY;
    struct sluice_request r = {.lease_ms = 30, .on_event = note_down, .arg = &d};
    int64_t began = now_ms();
    assert_int_equal(sluice_acquire(s, "db", &r, &g), SLUICE_OK);
    assert_int_equal(g.lease_ms, 30);
    until_told(&d, 1);
    assert_true(now_ms() - began >= 30);
    assert_int_equal(d.what[0], SLUICE_EVENT_EXPIRED);
    assert_true(d.last.fence == g.fence);
    assert_int_equal(sluice_extend(s, "db", g.fence, 100), SLUICE_ELOST);
    assert_int_equal(sluice_release(s, "db", g.fence), SLUICE_ELOST);
    assert_int_equal(told(&d), 1);
}

UNIT_TEST(a_lease_is_extended_and_released_by_any_thread)
{
    SERVICE(s);
    ACTOR(a, s, "db");
    assert_int_equal(actor_acquires(&a, (struct sluice_request){.lease_ms = LONG_MS}),
                     SLUICE_OK);
    actor_end(&a); /* It outlives its thread. */
    assert_int_equal(sluice_extend(s, "db", a.grant.fence, 2 * LONG_MS), SLUICE_OK);
    assert_int_equal(sluice_check(s, "db", a.grant.fence), SLUICE_OK);
    assert_int_equal(sluice_release(s, "db", a.grant.fence), SLUICE_OK);
}

UNIT_TEST(no_lease_to_extend)
{
    SERVICE(s);
    struct sluice_grant g;
    assert_int_equal(sluice_acquire(s, "db", NULL, &g), SLUICE_OK);
    assert_int_equal(g.lease_ms, 0);
    assert_int_equal(sluice_extend(s, "db", g.fence, 100), SLUICE_ENOLEASE);
}

UNIT_TEST(the_permits_of_a_thread_are_released_when_it_ends)
{
    SERVICE(s);
    struct sluice_grant g;
    struct diary d = DIARY;
    ACTOR(a, s, "db");
    assert_int_equal(
        actor_acquires(&a, (struct sluice_request){.on_event = note_down, .arg = &d}),
        SLUICE_OK);
    assert_int_equal(sluice_acquire(s, "db", NULL, &g), SLUICE_EFULL);
    actor_end(&a);
    assert_int_equal(sluice_acquire(s, "db", NULL, &g), SLUICE_OK);
    assert_true(g.fence > a.grant.fence);
    assert_int_equal(told(&d), 0); /* It knows. */
}

/* --- Stealing --------------------------------------------------------------------------- */

UNIT_TEST(a_victim_that_releases_is_followed_by_the_thief)
{
    SERVICE(s);
    struct diary d = DIARY;
    d.release_in = s;
    ACTOR(v, s, "db");
    ACTOR(t, s, "db");
    assert_int_equal(actor_acquires(&v, (struct sluice_request){.lease_ms = LONG_MS,
                                                                .on_event = note_down,
                                                                .arg = &d}),
                     SLUICE_OK);
    int status = actor_acquires(
        &t, (struct sluice_request){
                .priority = 5, .steal = 1, .wait_ms = LONG_MS, .lease_ms = LONG_MS});
    assert_int_equal(status, SLUICE_OK);
    assert_true(t.grant.fence > v.grant.fence);
    assert_int_equal(t.grant.overlapping, 0);
    until_told(&d, 1);
    assert_int_equal(d.release_status, SLUICE_OK);
    assert_int_equal(d.what[0], SLUICE_EVENT_ASKED);
    assert_int_equal(d.last.priority, 5);
    assert_true(d.last.fence == v.grant.fence);
    assert_true(d.last.left_ms > 0 && d.last.left_ms <= LONG_MS);
    assert_false(pthread_equal(d.by, v.thread) || pthread_equal(d.by, t.thread));
    actor_end(&v);
    actor_end(&t);
    service_close(&s);
    assert_int_equal(told(&d), 1);
}

/* P4, P11: not before the expiry of the lease, and soon after it. */
UNIT_TEST(a_victim_that_does_nothing_keeps_it_to_the_end_of_its_lease)
{
    SERVICE(s);
    struct sluice_grant g;
    struct diary d = DIARY;
    ACTOR(t, s, "db");
    for (int i = 0; i < 3; i++) {
        struct sluice_request r = {.lease_ms = 300, .on_event = note_down, .arg = &d};
        int64_t began = now_ms();
        assert_int_equal(sluice_acquire(s, "db", &r, &g), SLUICE_OK);
        actor_asks(
            &t, (struct sluice_request){.priority = 1, .steal = 1, .wait_ms = LONG_MS});
        until_told(&d, 2 * i + 1);
        assert_int_equal(d.what[2 * i], SLUICE_EVENT_ASKED);
        assert_int_equal(sluice_extend(s, "db", g.fence, LONG_MS), SLUICE_EASKED);
        assert_int_equal(sluice_check(s, "db", g.fence), SLUICE_EASKED);
        assert_int_equal(answer(&t), SLUICE_OK);
        assert_true(t.at_ms - began >= 300);
        assert_int_equal(t.grant.overlapping, 0);
        until_told(&d, 2 * i + 2);
        assert_int_equal(d.what[2 * i + 1], SLUICE_EVENT_EXPIRED);
        assert_int_equal(actor_releases(&t, t.grant.fence), SLUICE_OK);
    }
    actor_end(&t);
    service_close(&s);
    assert_int_equal(told(&d), 6);
}

/* P12 */
UNIT_TEST(a_thief_that_times_out_leaves_the_victim_unchanged)
{
    SERVICE(s);
    struct sluice_grant g;
    struct diary d = DIARY;
    ACTOR(t, s, "db");
    struct sluice_request r = {.lease_ms = LONG_MS, .on_event = note_down, .arg = &d};
    assert_int_equal(sluice_acquire(s, "db", &r, &g), SLUICE_OK);
    for (int i = 0; i < 2; i++) {
        actor_asks(&t,
                   (struct sluice_request){.priority = 1, .steal = 1, .wait_ms = 1000});
        until_told(&d, 2 * i + 1); /* Asked again, and told again. */
        assert_int_equal(answer(&t), SLUICE_EFULL);
        until_told(&d, 2 * i + 2);
        assert_int_equal(d.what[2 * i], SLUICE_EVENT_ASKED);
        assert_int_equal(d.what[2 * i + 1], SLUICE_EVENT_WITHDRAWN);
        assert_int_equal(sluice_extend(s, "db", g.fence, LONG_MS), SLUICE_OK);
        assert_int_equal(sluice_check(s, "db", g.fence), SLUICE_OK);
    }
    actor_end(&t);
    service_close(&s);
    assert_int_equal(told(&d), 4);
}

/* P13, P14 */
UNIT_TEST(equal_and_lower_priorities_do_not_steal)
{
    SERVICE(s);
    struct sluice_grant g;
    struct diary d = DIARY;
    ACTOR(t, s, "db");
    struct sluice_request r = {.priority = 3, .on_event = note_down, .arg = &d};
    assert_int_equal(sluice_acquire(s, "db", &r, &g), SLUICE_OK);
    for (int32_t p = 2; p <= 3; p++) {
        struct sluice_request steal = {.priority = p, .steal = 1, .wait_ms = 20};
        assert_int_equal(actor_acquires(&t, steal), SLUICE_EFULL);
    }
    assert_int_equal(told(&d), 0);
}

/* P8: and there is one handshake, however many come. */
UNIT_TEST(the_highest_of_fifty_thieves_is_next_and_none_overlaps)
{
    enum { THIEVES = 50 };
    static struct actor t[THIEVES];
    SERVICE(s);
    struct sluice_grant g;
    struct diary d = DIARY;
    struct sluice_request r = {.lease_ms = LONG_MS, .on_event = note_down, .arg = &d};
    assert_int_equal(sluice_acquire(s, "db", &r, &g), SLUICE_OK);
    unsigned seed = 20261115;
    int best = 0;
    for (int i = 0; i < THIEVES; i++) {
        int32_t priority = 1 + rand_r(&seed) % 1000000;
        actor_start(&t[i], s, "db");
        /* Each of them may be a victim of those after it. */
        actor_asks(&t[i], (struct sluice_request){
                              .priority = priority, .steal = 1, .wait_ms = LONG_MS});
        if (priority > t[best].request.priority) best = i;
    }
    until_waiters(s, "db", THIEVES);
    until_told(&d, 1);
    assert_int_equal(told(&d), 1);
    assert_int_equal(d.what[0], SLUICE_EVENT_ASKED);
    assert_int_equal(sluice_release(s, "db", g.fence), SLUICE_OK);
    uint64_t last = g.fence;
    int32_t before = INT32_MAX;
    assert_int_equal(answer(&t[best]), SLUICE_OK);
    for (int turn = 0; turn < THIEVES; turn++) {
        struct sluice_view v[2];
        int who = 0;
        assert_true(sluice_inspect(s, "db", v, 2) == THIEVES - turn);
        assert_true(v[0].waits == 0 && (turn == THIEVES - 1 || v[1].waits == 1));
        while (who < THIEVES && t[who].request.priority != v[0].priority) who++;
        assert_int_equal(answer(&t[who]), SLUICE_OK);
        assert_true(t[who].grant.fence > last && t[who].request.priority <= before);
        assert_int_equal(t[who].grant.overlapping, 0);
        last = t[who].grant.fence;
        before = t[who].request.priority;
        assert_int_equal(actor_releases(&t[who], last), SLUICE_OK);
    }
    for (int i = 0; i < THIEVES; i++) actor_end(&t[i]);
    service_close(&s);
    assert_int_equal(told(&d), 1);
}

UNIT_TEST(a_thief_may_say_that_it_enters_early)
{
    SERVICE(s);
    struct sluice_grant g;
    struct diary d = DIARY;
    ACTOR(t, s, "db");
    struct sluice_request r = {.lease_ms = 2000, .on_event = note_down, .arg = &d};
    assert_int_equal(sluice_acquire(s, "db", &r, &g), SLUICE_OK);
    struct sluice_request early = {
        .priority = 1, .steal = 1, .steal_early = 0.75, .wait_ms = 400};
    int64_t began = now_ms();
    assert_int_equal(actor_acquires(&t, early), SLUICE_OK);
    assert_true(t.at_ms - began >= 99);
    assert_true(t.grant.waited_ms < 1900); /* Not at the expiry of the lease. */
    assert_int_equal(t.grant.overlapping, 1);
    assert_true(t.grant.fence > g.fence);
    until_told(&d, 2);
    assert_int_equal(d.what[0], SLUICE_EVENT_ASKED);
    assert_int_equal(d.what[1], SLUICE_EVENT_STOLEN);
    assert_int_equal(sluice_extend(s, "db", g.fence, LONG_MS), SLUICE_EASKED);
    until_told(&d, 3);
    assert_int_equal(d.what[2], SLUICE_EVENT_EXPIRED);
    actor_end(&t);
    service_close(&s);
    assert_int_equal(told(&d), 3);
}

UNIT_TEST(a_thief_in_a_hurry_enters_at_once)
{
    SERVICE(s);
    struct sluice_grant g;
    ACTOR(t, s, "db");
    assert_int_equal(sluice_acquire(s, "db", NULL, &g), SLUICE_OK);
    struct sluice_request now = {
        .priority = 1, .steal = 1, .steal_early = 1, .wait_ms = LONG_MS};
    assert_int_equal(actor_acquires(&t, now), SLUICE_OK);
    assert_int_equal(t.grant.overlapping, 1);
    assert_int_equal(sluice_check(s, "db", g.fence), SLUICE_EASKED);
    assert_int_equal(sluice_release(s, "db", g.fence), SLUICE_OK);
}

UNIT_TEST(auto_goes_by_the_answers_of_late)
{
    struct sl_answers a = {0};
    for (sl_ms i = 1; i < SL_ANSWERS_MIN; i++) {
        sl_answers_add(&a, 10);
        assert_true(sl_answers_force_ms(&a) == SL_NEVER);
    }
    sl_answers_add(&a, 10);
    assert_int_equal(sl_answers_force_ms(&a), 20);
    for (sl_ms i = 1; i <= 100; i++) sl_answers_add(&a, 1000);
    for (sl_ms i = 1; i <= 256; i++) sl_answers_add(&a, i); /* The old are forgotten. */
    assert_int_equal(sl_answers_at(&a, 99), 254);
    assert_int_equal(sl_answers_force_ms(&a), 254 + 127 + 5);

    SERVICE(s);
    struct sluice_grant g;
    struct diary d = DIARY;
    d.release_in = s;
    ACTOR(t, s, "db");
    struct sluice_request victim = {
        .lease_ms = LONG_MS, .on_event = note_down, .arg = &d};
    struct sluice_request thief = {.priority = 1,
                                   .steal = 1,
                                   .steal_early = SLUICE_STEAL_AUTO,
                                   .wait_ms = LONG_MS};
    for (unsigned i = 0; i < SL_ANSWERS_MIN; i++) {
        assert_int_equal(sluice_acquire(s, "db", &victim, &g), SLUICE_OK);
        assert_int_equal(actor_acquires(&t, thief), SLUICE_OK);
        assert_int_equal(t.grant.overlapping, 0);
        assert_int_equal(actor_releases(&t, t.grant.fence), SLUICE_OK);
    }
    victim.on_event = NULL; /* One that does not answer as the others did. */
    assert_int_equal(sluice_acquire(s, "db", &victim, &g), SLUICE_OK);
    assert_int_equal(actor_acquires(&t, thief), SLUICE_OK);
    assert_int_equal(t.grant.overlapping, 1);
}

/* --- Callbacks ---------------------------------------------------------------------------- */

struct slow {
    struct sluice *s;
    atomic_bool entered, let_go, left;
    int status;
};

static void be_slow(void *arg, const struct sluice_event *e)
{
    struct slow *slow = arg;
    (void)e;
    slow->entered = true;
    while (!slow->let_go) pause_ms(1);
    slow->left = true;
}

static void *release_newest(void *arg)
{
    struct sluice_grant *g = arg;
    struct sluice *s = *(struct sluice **)(void *)(g + 1);
    return (void *)(intptr_t)sluice_release(s, "db", g->fence);
}

UNIT_TEST(a_release_returns_when_the_callback_has)
{
    struct {
        struct sluice_grant g;
        struct sluice *s;
    } held = {.s = service()};
    struct sluice *s = held.s;
    struct slow slow = {.s = s};
    pthread_t releaser;
    void *status;
    struct sluice_request r = {.lease_ms = LONG_MS, .on_event = be_slow, .arg = &slow};
    assert_int_equal(sluice_acquire(s, "db", &r, &held.g), SLUICE_OK);
    ACTOR(t, s, "db");
    ACTOR(u, s, "other");
    actor_asks(&t, (struct sluice_request){
                       .priority = 1, .steal = 1, .wait_ms = LONG_MS, .lease_ms = 50});
    while (!slow.entered) pause_ms(1);
    assert_int_equal(pthread_create(&releaser, NULL, release_newest, &held), 0);
    /* The thief need not wait for that, and its lease expires meanwhile: the clock continues. */
    assert_int_equal(answer(&t), SLUICE_OK);
    while (sluice_check(s, "db", t.grant.fence) == SLUICE_OK) pause_ms(1);
    assert_int_equal(actor_acquires(&u, (struct sluice_request){.wait_ms = 10}),
                     SLUICE_OK);
    assert_false(slow.left);
    slow.let_go = true;
    pthread_join(releaser, &status);
    assert_true(slow.left);
    assert_int_equal((intptr_t)status, SLUICE_OK);
    actor_end(&t);
    actor_end(&u);
    sluice_close(s);
}

UNIT_TEST(a_holder_that_came_and_went_is_not_reported)
{
    SERVICE(s);
    struct slow slow = {.s = s};
    struct sluice_grant g, h;
    struct diary d = DIARY;
    ACTOR(t, s, "db");
    struct sluice_request busy = {.lease_ms = 1, .on_event = be_slow, .arg = &slow};
    struct sluice_request r = {.lease_ms = LONG_MS, .on_event = note_down, .arg = &d};
    assert_int_equal(sluice_acquire(s, "db", &r, &g), SLUICE_OK);
    assert_int_equal(sluice_acquire(s, "busy", &busy, &h), SLUICE_OK);
    while (!slow.entered) pause_ms(1);
    struct sluice_request steal = {.priority = 1, .steal = 1, .wait_ms = 20};
    assert_int_equal(actor_acquires(&t, steal), SLUICE_EFULL);
    slow.let_go = true;
    assert_int_equal(sluice_release(s, "busy", h.fence), SLUICE_ELOST);
    assert_true(slow.left); /* Also of one that is lost it is over then. */
    assert_int_equal(sluice_break(s, "db", g.fence, 1), 2);
    until_told(&d, 1);
    assert_int_equal(d.what[0], SLUICE_EVENT_BROKEN);
    actor_end(&t);
    service_close(&s);
    assert_int_equal(told(&d), 1);
}

/* Waits in the callback itself, for what only the clock brings. */
static void wait_for_another(void *arg, const struct sluice_event *e)
{
    struct slow *slow = arg;
    struct sluice_grant g;
    struct sluice_request r = {.wait_ms = LONG_MS};
    if (e->type != SLUICE_EVENT_EXPIRED) return;
    slow->status = sluice_acquire(slow->s, "other", &r, &g);
    slow->left = true;
}

UNIT_TEST(a_callback_may_wait_for_a_lock)
{
    SERVICE(s);
    struct slow slow = {.s = s, .status = -1};
    struct sluice_grant g;
    struct sluice_request other = {.lease_ms = 100};
    struct sluice_request r = {
        .lease_ms = 20, .on_event = wait_for_another, .arg = &slow};
    assert_int_equal(sluice_acquire(s, "other", &other, &g), SLUICE_OK);
    assert_int_equal(sluice_acquire(s, "db", &r, &g), SLUICE_OK);
    while (!slow.left) pause_ms(1);
    assert_int_equal(slow.status, SLUICE_OK);
    assert_int_equal(sluice_acquire(s, "other", NULL, &g), SLUICE_EFULL);
}

static void close_it(void *arg, const struct sluice_event *e)
{
    struct slow *slow = arg;
    (void)e;
    sluice_close(slow->s);
    slow->left = true;
}

UNIT_TEST(it_may_be_closed_in_a_callback)
{
    struct slow slow = {.s = service()};
    struct sluice_grant g;
    struct sluice_request r = {.lease_ms = 20, .on_event = close_it, .arg = &slow};
    ACTOR(a, slow.s, "x");
    assert_int_equal(sluice_acquire(slow.s, "x", NULL, &g), SLUICE_OK);
    actor_asks(&a, (struct sluice_request){.wait_ms = SLUICE_FOREVER});
    until_waiters(slow.s, "x", 1);
    assert_int_equal(sluice_acquire(slow.s, "db", &r, &g), SLUICE_OK);
    assert_int_equal(answer(&a), SLUICE_ECLOSED);
    while (!slow.left) pause_ms(1);
    actor_end(&a);
}

UNIT_TEST(the_holder_of_a_broken_grant_is_notified)
{
    SERVICE(s);
    struct sluice_grant g;
    struct diary d = DIARY;
    struct sluice_request r = {.on_event = note_down, .arg = &d};
    assert_int_equal(sluice_acquire(s, "db", &r, &g), SLUICE_OK);
    assert_int_equal(sluice_break(s, "db", g.fence, 0), 2); /* It has no lease. */
    until_told(&d, 1);
    assert_int_equal(d.what[0], SLUICE_EVENT_BROKEN);
    r.lease_ms = 500;
    assert_int_equal(sluice_acquire(s, "db", &r, &g), SLUICE_OK);
    assert_int_equal(g.overlapping, 1);
    assert_int_equal(sluice_break(s, "db", g.fence, 0), 1);
    assert_int_equal(sluice_break(s, "db", g.fence, 0), 1); /* Told once. */
    assert_int_equal(sluice_extend(s, "db", g.fence, 1000), SLUICE_ELOST);
    until_told(&d, 3);
    assert_int_equal(d.what[1], SLUICE_EVENT_BROKEN);
    assert_int_equal(d.what[2], SLUICE_EVENT_EXPIRED);
    service_close(&s);
    assert_int_equal(told(&d), 3);
}

/* --- The end ---------------------------------------------------------------------------------- */

UNIT_TEST(a_waiter_is_notified_when_the_table_closes)
{
    enum { WAITERS = 8 };
    static struct actor a[WAITERS];
    SERVICE(s);
    struct sluice_grant g;
    struct diary d = DIARY;
    struct sluice_request r = {.lease_ms = LONG_MS, .on_event = note_down, .arg = &d};
    assert_int_equal(sluice_acquire(s, "db", &r, &g), SLUICE_OK);
    for (int i = 0; i < WAITERS; i++) {
        actor_start(&a[i], s, "db");
        actor_asks(&a[i], (struct sluice_request){.priority = i % 2,
                                                  .steal = 1,
                                                  .wait_ms = SLUICE_FOREVER,
                                                  .on_event = note_down,
                                                  .arg = &d});
    }
    until_waiters(s, "db", WAITERS);
    service_close(&s);
    int after = told(&d);
    for (int i = 0; i < WAITERS; i++) {
        assert_int_equal(answer(&a[i]), SLUICE_ECLOSED);
        actor_end(&a[i]);
    }
    assert_int_equal(told(&d), after);
}

UNIT_TEST(a_thread_may_outlive_many_services)
{
    struct sluice *s = service();
    ACTOR(a, s, "db");
    for (int i = 0; i < 20; i++) {
        assert_int_equal(actor_acquires(&a, (struct sluice_request){0}), SLUICE_OK);
        sluice_close(s);
        s = service();
        a.s = s;
    }
    actor_end(&a);
    sluice_close(s);
}

UNIT_TEST(the_child_of_a_fork_makes_its_own)
{
    struct sluice *s = service();
    struct sluice_grant g;
    assert_int_equal(sluice_acquire(s, "db", NULL, &g), SLUICE_OK);
    pid_t pid = fork();
    if (pid == 0) {
        struct sluice *own;
        bool well = sluice_acquire(s, "x", NULL, &g) == SLUICE_EFORKED &&
                    sluice_release(s, "db", 0) == SLUICE_EFORKED &&
                    sluice_check(s, "db", g.fence) == SLUICE_EFORKED &&
                    sluice_inspect(s, "db", NULL, 0) == SLUICE_EFORKED;
        sluice_close(s);
#ifndef __SANITIZE_THREAD__ /* It does not start threads after a fork. */
        well = well && sluice_open("memory:", NULL, &own) == SLUICE_OK &&
               sluice_acquire(own, "db", NULL, &g) == SLUICE_OK;
        if (well) sluice_close(own);
#else
        (void)own;
#endif
        _exit(well ? 0 : 1);
    }
    int status;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    assert_int_equal(sluice_release(s, "db", g.fence), SLUICE_OK);
    sluice_close(s);
}

/* --- Many at once ------------------------------------------------------------------------------ */

enum { CREW = 6, ROUNDS = 400 };

struct sailor {
    struct sluice *s;
    unsigned seed;
    int64_t *guarded; /* Plain memory that the lock protects. */
    atomic_int *losses;
};

static void count_losses(void *arg, const struct sluice_event *e)
{
    (void)e;
    (*(atomic_int *)arg)++;
}

/* Returns NULL if all went well. Nobody's lease ends, and nobody enters early. */
static void *sail(void *arg)
{
    struct sailor *me = arg;
    struct sluice_grant g;
    for (int i = 0; i < ROUNDS; i++) {
        struct sluice_request r = {.priority = (int32_t)(rand_r(&me->seed) % 5),
                                   .steal = (uint32_t)(rand_r(&me->seed) % 2),
                                   .lease_ms = rand_r(&me->seed) % 2 ? LONG_MS : 0,
                                   .wait_ms = rand_r(&me->seed) % 3 ? LONG_MS : 1};
        if (rand_r(&me->seed) % 2) r.on_event = count_losses, r.arg = me->losses;
        int status = sluice_acquire(me->s, "guard", &r, &g);
        if (status == SLUICE_EFULL) continue;
        if (status != SLUICE_OK || g.overlapping) return me;
        ++*me->guarded; /* The sanitizer sees it if two are here at once. */
        if (sluice_release(me->s, "guard", g.fence) != SLUICE_OK) return me;
        check(me->s);
    }
    return NULL;
}

UNIT_TEST(a_lock_orders_its_threads_even_when_stolen)
{
    SERVICE(s);
    int64_t guarded = 0;
    atomic_int losses = 0;
    pthread_t t[CREW];
    struct sailor sailors[CREW];
    for (unsigned i = 0; i < CREW; i++) {
        sailors[i] = (struct sailor){s, i + 1, &guarded, &losses};
        assert_int_equal(pthread_create(&t[i], NULL, sail, &sailors[i]), 0);
    }
    for (unsigned i = 0; i < CREW; i++) {
        void *bad;
        pthread_join(t[i], &bad);
        assert_null(bad);
    }
    assert_true(guarded > CREW * ROUNDS / 4);
    assert_int_equal(sluice_inspect(s, "guard", NULL, 0), 0);
}

/* --- Without memory ------------------------------------------------------------------------------ */

UNIT_TEST(without_memory_nothing_is_opened)
{
    struct sluice *s = NULL;
    int status = SLUICE_ENOMEM;
    long n = 0;
    for (; status == SLUICE_ENOMEM; n++) {
        memory_ends_after(n);
        status = sluice_open("memory:", NULL, &s);
        memory_is_back();
    }
    assert_int_equal(status, SLUICE_OK);
    assert_true(n > 2);
    sluice_close(s);
}

UNIT_TEST(without_memory_nothing_has_changed)
{
    struct diary d = DIARY;
    size_t refused = 0;
    for (long n = 0, done = 0; !done; n++) {
        SERVICE(s);
        struct sluice_grant g, h = {0};
        struct sluice_request r = {.lease_ms = LONG_MS,
                                   .value = "a value",
                                   .note = "a note",
                                   .per = 2,
                                   .on_event = note_down,
                                   .arg = &d};
        assert_int_equal(sluice_acquire(s, "x", NULL, &g), SLUICE_OK);
        memory_ends_after(n);
        int status = sluice_acquire(s, "db", &r, &h);
        memory_is_back();
        if (status == SLUICE_ENOMEM) {
            refused++;
            assert_int_equal(sluice_inspect(s, "db", NULL, 0), 0);
        } else {
            assert_int_equal(status, SLUICE_OK);
            done = 1;
        }
        memory_ends_after(0); /* What follows needs none. */
        assert_int_equal(sluice_check(s, "x", g.fence), SLUICE_OK);
        assert_int_equal(sluice_release(s, "x", g.fence), SLUICE_OK);
        if (h.fence != 0) assert_int_equal(sluice_release(s, "db", h.fence), SLUICE_OK);
        memory_is_back();
        service_close(&s);
    }
    assert_true(refused > 1);
    assert_int_equal(told(&d), 0);
}

int main(void)
{
    alarm(DEADLINE_S);
    return run_unit_tests("memory_locks");
}
