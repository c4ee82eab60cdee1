/* test_death.c - threads and processes that stop, exit, fork, execute and die.
 * K4, K5, K7 to K10, K13. (K1, K2, K6 are tests/kill/step, K3 tests/kill/torture.) */
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "test.h"

#include "canal/counter.h"
#include "canal/slot.h"
#include "canal/thread.h"
#include "sluice.h"
#include "world.h"

static const struct sluice_capacity one = {.per = 1, .buckets = 1};
static const struct sluice_capacity two = {.per = 2, .buckets = 1};
static const struct sluice_capacity hundred = {.per = 100, .buckets = 1};

/* --- Stopped at a bad moment ---------------------------------------------- */

/* Any record says that an acquire is announced and not complete. */
static bool somebody_announced(void *segment)
{
    const struct sl_canal_segment *seg = segment;
    for (uint32_t r = 0; r < seg->record_count; r++)
        if (sl_canal_record_pending(seg->records[r].state.lo) ==
            SL_CANAL_PENDING_ACQUIRE)
            return true;
    return false;
}

UNIT_TEST(K4_a_process_stopped_between_announce_and_swap_is_in_nobodys_way)
{
    WORLD w = world_new(
        &(struct sluice_canal_options){.keys = 8, .slots = 8, .records = 64});
    ACTOR a = actor_start(&w);
    assert_int_equal(actor_acquire(&a, "db", 100, 1), 1);
    struct command take = {.deed = ACQUIRE, .key = "db", .capacity = hundred};
    assert_true(actor_step_until(&a, take, somebody_announced, &w.canal->seg));
    for (int i = 0; i < 1000; i++) {
        assert_int_equal(sluice_canal_acquire(w.canal, "db", hundred, NULL), 2);
        assert_int_equal(sluice_canal_acquire(w.canal, "db", two, NULL), SLUICE_EFULL);
        assert_int_equal(sluice_canal_release(w.canal, "db", 1), SLUICE_OK);
    }
    actor_continue(&a);
    assert_int_equal(actor_answer(&a), 2);
    assert_int_equal(sluice_canal_count(w.canal, "db"), 2);
}

static bool somebody_is_dying(void *segment)
{
    const struct sl_canal_segment *seg = segment;
    for (uint32_t s = 0; s < seg->slot_count; s++)
        if (seg->slots[s].dying != 0) return true;
    return false;
}

UNIT_TEST(K5_permits_come_back_though_the_first_reaper_is_stopped)
{
    WORLD w = world_new(
        &(struct sluice_canal_options){.keys = 8, .slots = 8, .records = 64});
    ACTOR victim = actor_start(&w), reaper = actor_start(&w);
    assert_int_equal(actor_acquire(&victim, "db", 2, 1), 1);
    assert_int_equal(actor_acquire(&victim, "db", 2, 1), 2);
    actor_kill(&victim);
    struct command reap = {.deed = REAP};
    assert_true(actor_step_until(&reaper, reap, somebody_is_dying, &w.canal->seg));
    assert_int_equal(sluice_canal_count(w.canal, "db"), 2);
    assert_int_equal(sluice_canal_acquire(w.canal, "db", two, NULL), 1);
    assert_int_equal(sluice_canal_acquire(w.canal, "db", two, NULL), 2);
    actor_continue(&reaper);
    assert_int_equal(actor_answer(&reaper), 0); /* It came too late to free any. */
    assert_int_equal(sluice_canal_count(w.canal, "db"), 2);
}

/* --- Ways to go ----------------------------------------------------------- */

static void *take_two_and_exit(void *canal)
{
    struct sluice_key *k;
    sluice_canal_acquire(canal, "db", two, NULL);
    sluice_key_resolve(canal, "db", &k);
    sluice_key_acquire(k, two, NULL);
    return k;
}

UNIT_TEST(K7_a_thread_exits_and_what_it_held_is_back)
{
    WORLD w = world_new(NULL);
    struct sluice_canal_info info;
    pthread_t t;
    void *handle;
    pthread_create(&t, NULL, take_two_and_exit, w.canal);
    pthread_join(t, &handle);
    assert_int_equal(sluice_canal_count(w.canal, "db"), 0);
    assert_int_equal(sluice_canal_acquire(w.canal, "db", one, NULL), 1);
    sluice_canal_info(w.canal, &info);
    assert_int_equal(info.slots_used, 1);
    assert_int_equal(sluice_key_acquire(handle, two, NULL), SLUICE_ETHREAD);
    assert_int_equal(sluice_key_free(handle), SLUICE_OK);
}

static void *release_by_handle(void *handle)
{
    return (void *)(intptr_t)sluice_key_release(handle, 1);
}

static void *release_by_name(void *canal)
{
    return (void *)(intptr_t)sluice_canal_release(canal, "db", 1);
}

static void *free_handle(void *handle)
{
    return (void *)(intptr_t)sluice_key_free(handle);
}

static int in_a_thread(void *(*f)(void *), void *arg)
{
    pthread_t t;
    void *result;
    pthread_create(&t, NULL, f, arg);
    pthread_join(t, &result);
    return (int)(intptr_t)result;
}

UNIT_TEST(a_permit_belongs_to_its_thread_and_others_get_an_error)
{
    WORLD w = world_new(NULL);
    struct sluice_key *k;
    assert_int_equal(sluice_key_resolve(w.canal, "db", &k), SLUICE_OK);
    assert_int_equal(sluice_key_acquire(k, one, NULL), 1);
    assert_int_equal(in_a_thread(release_by_handle, k), SLUICE_ETHREAD);
    assert_non_null(strstr(sluice_status_text(SLUICE_ETHREAD), "another thread"));
    assert_int_equal(in_a_thread(release_by_name, w.canal), SLUICE_ENOTHELD);
    assert_int_equal(in_a_thread(free_handle, k), SLUICE_ETHREAD);
    assert_int_equal(sluice_key_release(k, 1), SLUICE_OK);
    assert_int_equal(sluice_key_free(k), SLUICE_OK);
}

/* Run f in a forked child and return its exit status, or -1. */
static int in_a_child(int (*f)(void *), void *arg)
{
    int status;
    pid_t pid = fork();
    if (pid == 0) _exit(f(arg));
    waitpid(pid, &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

struct forked {
    struct sluice_canal *canal;
    struct sluice_key *key;
};

/* Returns the number of the first line that was not as it should be. */
static int child_of_a_holder(void *arg)
{
    struct forked *f = arg;
    if (sluice_key_acquire(f->key, two, NULL) != SLUICE_EFORKED) return 1;
    if (sluice_key_release(f->key, 1) != SLUICE_EFORKED) return 2;
    if (sluice_canal_release(f->canal, "db", 1) != SLUICE_ENOTHELD) return 3;
    if (sluice_canal_acquire(f->canal, "db", one, NULL) != SLUICE_EFULL) return 4;
    if (sluice_canal_acquire(f->canal, "db", two, NULL) != 2) return 5;
    if (sluice_key_free(f->key) != SLUICE_OK) return 6;
    if (sluice_canal_count(f->canal, "db") != 2) return 7;
    return 0; /* Holds one, and exits with it. */
}

UNIT_TEST(K8_a_forked_child_holds_nothing_and_takes_nothing_with_it)
{
    WORLD w = world_new(NULL);
    struct forked f = {.canal = w.canal};
    assert_int_equal(sluice_key_resolve(w.canal, "db", &f.key), SLUICE_OK);
    assert_int_equal(sluice_key_acquire(f.key, two, NULL), 1);
    assert_int_equal(in_a_child(child_of_a_holder, &f), 0);
    assert_int_equal(sluice_canal_acquire(w.canal, "db", two, NULL), 2);
    assert_int_equal(sluice_key_release(f.key, 2), SLUICE_OK);
    assert_int_equal(sluice_canal_count(w.canal, "db"), 0);
    sluice_key_free(f.key);
}

UNIT_TEST(K8_a_holder_dies_while_its_child_lives_and_its_permit_is_back)
{
    WORLD w = world_new(NULL);
    int gate[2];
    assert_int_equal(pipe(gate), 0);
    pid_t holder = fork();
    if (holder == 0) {
        if (sluice_canal_acquire(w.canal, "db", one, NULL) != 1) _exit(1);
        if (fork() == 0) {
            char c;
            close(gate[1]);
            _exit((int)read(gate[0], &c, 1)); /* Lives as long as the test. */
        }
        kill(getpid(), SIGKILL);
    }
    waitpid(holder, NULL, 0);
    assert_int_equal(sluice_canal_acquire(w.canal, "db", one, NULL), 1);
    close(gate[0]);
    close(gate[1]);
}

UNIT_TEST(K9_a_holder_that_executes_another_program_has_given_up)
{
    WORLD w = world_new(NULL);
    int gate[2], ready[2];
    assert_int_equal(pipe(gate), 0);
    assert_int_equal(pipe(ready), 0);
    pid_t pid = fork();
    if (pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (sluice_canal_acquire(w.canal, "db", one, NULL) != 1) _exit(1);
        dup2(gate[0], STDIN_FILENO);
        dup2(ready[1], STDOUT_FILENO);
        close(gate[1]);
        execlp("sh", "sh", "-c", "echo x; read line", (char *)NULL);
        _exit(2);
    }
    char c;
    assert_int_equal(read(ready[0], &c, 1), 1); /* The other program runs. */
    assert_int_equal(sluice_canal_acquire(w.canal, "db", one, NULL), 1);
    close(gate[0]), close(gate[1]), close(ready[0]), close(ready[1]);
    waitpid(pid, NULL, 0);
}

static void *take_and_execute(void *arg)
{
    struct forked *f = arg;
    if (sluice_canal_acquire(f->canal, "db", one, NULL) != 1) _exit(1);
    execlp("sh", "sh", "-c", "echo x; read line", (char *)NULL);
    _exit(2);
}

/* The kernel does not mark the mutexes of a thread that executes and is not the first
 * of its process. */
/* A process whose second thread took the lock and then executed another program, which
 * runs until it is let go. */
struct executed {
    pid_t pid;
    int gate[2];
};

static struct executed execute_in_a_second_thread(const struct world *w)
{
    struct executed e;
    int ready[2];
    char c;
    assert_int_equal(pipe(e.gate), 0);
    assert_int_equal(pipe(ready), 0);
    e.pid = fork();
    if (e.pid == 0) {
        struct forked f = {.canal = w->canal};
        pthread_t t;
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        dup2(e.gate[0], STDIN_FILENO);
        dup2(ready[1], STDOUT_FILENO);
        close(e.gate[1]);
        pthread_create(&t, NULL, take_and_execute, &f);
        pthread_join(t, NULL);
        _exit(3);
    }
    assert_int_equal(read(ready[0], &c, 1), 1); /* The other program runs. */
    close(ready[0]), close(ready[1]);
    return e;
}

static void let_go(const struct executed *e)
{
    close(e->gate[0]), close(e->gate[1]);
    waitpid(e->pid, NULL, 0);
}

static uint32_t slots_used(const struct world *w)
{
    struct sluice_canal_info info;
    assert_int_equal(sluice_canal_info(w->canal, &info), SLUICE_OK);
    return info.slots_used;
}

UNIT_TEST(K9_also_if_it_was_not_the_first_thread_of_its_process)
{
    WORLD w = world_new(NULL);
    struct executed e = execute_in_a_second_thread(&w);
    assert_int_equal(sluice_canal_acquire(w.canal, "db", one, NULL), 1);
    assert_int_equal(slots_used(&w), 1);
    let_go(&e);
}

UNIT_TEST(K9_also_while_somebody_is_stopped_in_the_middle_of_marking_it)
{
    WORLD w = world_new(NULL);
    struct executed e = execute_in_a_second_thread(&w);
    pthread_mutex_t *marking = &w.canal->seg.header->mark_mutex;
    assert_int_equal(pthread_mutex_lock(marking), 0); /* As a stopped process has it. */
    assert_int_equal(sluice_canal_acquire(w.canal, "db", one, NULL), 1);
    assert_int_equal(slots_used(&w), 2); /* The permit is back, the slot is not. */
    assert_int_equal(sluice_canal_reap(w.canal), 0);
    assert_int_equal(slots_used(&w), 2);
    pthread_mutex_unlock(marking);
    assert_int_equal(sluice_canal_reap(w.canal), 0);
    assert_int_equal(slots_used(&w), 1);
    let_go(&e);
}

UNIT_TEST(K9_a_slot_is_marked_once_for_each_of_its_owners)
{
    WORLD w = world_new(NULL);
    struct executed e = execute_in_a_second_thread(&w);
    struct sl_canal_shm_slot *s = &w.canal->seg.slots[0];
    uint32_t word = (uint32_t)s->mutex.__data.__lock;
    assert_int_equal(word, s->tid);
    /* Somebody else has marked it, and reaps it now; by chance under the same id. */
    s->dying = s->generation;
    assert_int_equal(sluice_canal_acquire(w.canal, "db", one, NULL), 1);
    assert_int_equal(s->mutex.__data.__lock, word);
    s->dying = 0;
    assert_int_equal(sluice_canal_reap(w.canal), 0);
    assert_int_not_equal(s->mutex.__data.__lock, word);
    let_go(&e);
}

UNIT_TEST(K10_a_zombie_holds_nothing)
{
    WORLD w = world_new(NULL);
    ACTOR a = actor_start(&w);
    siginfo_t info;
    assert_int_equal(actor_acquire(&a, "db", 1, 1), 1);
    kill(a.pid, SIGKILL);
    /* Dead, and left as it is: its parent has not waited for it. */
    assert_int_equal(waitid(P_PID, (id_t)a.pid, &info, WEXITED | WNOWAIT), 0);
    assert_int_equal(sluice_canal_acquire(w.canal, "db", one, NULL), 1);
}

UNIT_TEST(close_releases_the_permits_of_the_thread)
{
    WORLD w = world_new(NULL);
    ACTOR a = actor_start(&w);
    assert_int_equal(actor_acquire(&a, "db", 1, 1), 1);
    assert_int_equal(actor_do(&a, (struct command){.deed = CLOSE}), 0);
    assert_int_equal(sluice_canal_count(w.canal, "db"), 0);
}

struct other {
    struct sluice_canal *canal;
    pthread_barrier_t step;
};

static void *hold_over_a_close(void *arg)
{
    struct other *o = arg;
    sluice_canal_acquire(o->canal, "db", one, NULL);
    pthread_barrier_wait(&o->step);
    pthread_barrier_wait(&o->step); /* The main thread has closed the canal. */
    return NULL;
}

UNIT_TEST(a_thread_keeps_what_it_holds_when_another_closes_the_canal)
{
    WORLD w = world_new(NULL);
    struct other o;
    pthread_t t;
    assert_int_equal(sluice_canal_open(w.path, NULL, &o.canal), SLUICE_OK);
    pthread_barrier_init(&o.step, NULL, 2);
    pthread_create(&t, NULL, hold_over_a_close, &o);
    pthread_barrier_wait(&o.step);
    sluice_canal_close(o.canal);
    assert_int_equal(sluice_canal_acquire(w.canal, "db", one, NULL), SLUICE_EFULL);
    pthread_barrier_wait(&o.step);
    pthread_join(t, NULL);
    assert_int_equal(sluice_canal_acquire(w.canal, "db", one, NULL), 1);
    pthread_barrier_destroy(&o.step);
}

static void *use_many_keys(void *canal)
{
    for (int i = 0; i < 100; i++) {
        char key[16];
        snprintf(key, sizeof key, "k%d", i);
        if (sluice_canal_acquire(canal, key, hundred, NULL) <= 0) return canal;
    }
    return NULL;
}

static int use_it_once(void *canal)
{
    return sluice_canal_acquire(canal, "child", hundred, NULL) > 0 ? 0 : 1;
}

UNIT_TEST(a_fork_amid_other_threads_work_leaves_the_child_whole)
{
    WORLD w = world_new(NULL);
    for (int i = 0; i < 200; i++) {
        pthread_t t[2];
        void *bad;
        for (int n = 0; n < 2; n++) pthread_create(&t[n], NULL, use_many_keys, w.canal);
        assert_int_equal(in_a_child(use_it_once, w.canal), 0);
        for (int n = 0; n < 2; n++) {
            pthread_join(t[n], &bad);
            assert_null(bad);
        }
    }
}

UNIT_TEST(a_handle_whose_thread_is_gone_is_freed_by_one_that_never_took_part)
{
    WORLD w = world_new(NULL);
    pthread_t t;
    void *handle;
    pthread_create(&t, NULL, take_two_and_exit, w.canal);
    pthread_join(t, &handle);
    assert_int_equal(sluice_key_release(handle, 1), SLUICE_ETHREAD);
    assert_int_equal(sluice_key_free(handle), SLUICE_OK);
}

/* A reaper of the dead sleeps; the slot is freed by another, and its records go to a
 * thread with *another* slot. */
UNIT_TEST(K6_a_late_reaper_leaves_records_alone_that_went_to_another_slot)
{
    WORLD w = world_new(
        &(struct sluice_canal_options){.keys = 8, .slots = 4, .records = 16});
    struct sl_canal_segment *seg = &w.canal->seg;
    struct actor victim = actor_start(&w);
    int fd;
    assert_int_equal(sluice_canal_tether(w.canal, &fd),
                     SLUICE_OK); /* A slot, no record. */
    assert_int_equal(actor_acquire(&victim, "db", 2, 1), 1);
    uint32_t slot = seg->chunks[0] - 1;
    uint64_t generation = seg->slots[slot].generation;
    actor_kill(&victim);
    assert_int_equal(sluice_canal_reap(w.canal), 1);
    assert_int_equal(sluice_canal_acquire(w.canal, "db", two, NULL), 1);
    assert_int_not_equal(seg->chunks[0] - 1, slot); /* The same record, another slot. */
    assert_int_equal(sl_canal_counter_reap(seg, 0, &seg->slots[slot], generation), 0);
    assert_int_equal(sluice_canal_count(w.canal, "db"), 1);
    close(fd);
}

/* --- Many keys, many segments --------------------------------------------- */

UNIT_TEST(K13_the_dead_leave_ten_thousand_keys_in_each_of_two_segments)
{
    enum { KEYS = 10000 };
    struct sluice_canal_options big = {.keys = KEYS, .slots = 8, .records = 2 * KEYS};
    struct world w[2] = {world_new(&big), world_new(&big)};
    pid_t pid = fork();
    if (pid == 0) {
        for (int i = 0; i < 2 * KEYS; i++) {
            char key[16];
            snprintf(key, sizeof key, "k%d", i / 2);
            if (sluice_canal_acquire(w[i % 2].canal, key, one, NULL) != 1) _exit(1);
        }
        kill(getpid(), SIGKILL);
    }
    int status;
    waitpid(pid, &status, 0);
    assert_true(WIFSIGNALED(status));
    for (int s = 0; s < 2; s++) {
        struct sluice_canal_info info;
        assert_int_equal(sluice_canal_acquire(w[s].canal, "k7", one, NULL), 1);
        sluice_canal_info(w[s].canal, &info);
        assert_int_equal(info.slots_used, 1);
        assert_int_equal(info.keys_used, 1);
        assert_int_equal(info.records_used, SL_CANAL_CHUNK_RECORDS);
    }
    world_end(&w[0]), world_end(&w[1]);
}

UNIT_TEST(a_thread_may_use_a_limited_number_of_segments)
{
    struct sluice_canal *c[SLUICE_SEGMENTS_MAX + 1];
    struct sluice_canal_options tiny = {
        .keys = 1, .slots = 1, .records = 1, .anonymous = 1};
    for (uint32_t i = 0; i <= SLUICE_SEGMENTS_MAX; i++) {
        assert_int_equal(sluice_canal_open(NULL, &tiny, &c[i]), SLUICE_OK);
        assert_int_equal(sluice_canal_acquire(c[i], "db", one, NULL),
                         i < SLUICE_SEGMENTS_MAX ? 1 : SLUICE_ESEGMENTS);
    }
    sluice_canal_close(c[0]);
    assert_int_equal(sluice_canal_acquire(c[SLUICE_SEGMENTS_MAX], "db", one, NULL), 1);
    for (uint32_t i = 1; i <= SLUICE_SEGMENTS_MAX; i++) sluice_canal_close(c[i]);
}

UNIT_TEST(the_slots_of_the_dead_are_used_again)
{
    WORLD w = world_new(
        &(struct sluice_canal_options){.keys = 8, .slots = 2, .records = 16});
    for (int i = 0; i < 20; i++) {
        struct actor a = actor_start(&w), b = actor_start(&w), c = actor_start(&w);
        assert_int_equal(actor_acquire(&a, "db", 2, 1), 1);
        assert_int_equal(actor_acquire(&b, "db", 2, 1), 2);
        assert_int_equal(actor_acquire(&c, "db", 2, 1), SLUICE_ESLOTS);
        actor_kill(&a);
        assert_int_equal(actor_acquire(&c, "db", 2, 1), 2);
        actor_kill(&b), actor_kill(&c);
        assert_int_equal(sluice_canal_reap(w.canal), 2);
    }
}

UNIT_TEST(the_records_of_the_dead_are_used_again)
{
    WORLD w = world_new(
        &(struct sluice_canal_options){.keys = 32, .slots = 4, .records = 16});
    ACTOR a = actor_start(&w), b = actor_start(&w);
    for (int i = 0; i < 16; i++) {
        char key[8];
        snprintf(key, sizeof key, "k%d", i);
        assert_int_equal(actor_acquire(&a, key, 1, 1), 1);
    }
    assert_int_equal(actor_acquire(&b, "k16", 1, 1), SLUICE_ERECORDS);
    assert_int_equal(actor_acquire(&a, "k16", 1, 1), SLUICE_ERECORDS);
    assert_int_equal(sluice_canal_count(w.canal, "k16"), 0);
    actor_kill(&a);
    assert_int_equal(actor_acquire(&b, "k16", 1, 1), 1);
}

/* --- Tethers -------------------------------------------------------------- */

UNIT_TEST(a_tethered_permit_stays_while_a_descendant_lives)
{
    WORLD w = world_new(NULL);
    int gate[2];
    assert_int_equal(pipe(gate), 0);
    pid_t holder = fork();
    if (holder == 0) {
        int fd;
        if (sluice_canal_tether(w.canal, &fd) != SLUICE_OK) _exit(1);
        if (sluice_canal_acquire(w.canal, "db", one, NULL) != 1) _exit(2);
        if (fork() == 0) {
            dup2(gate[0], STDIN_FILENO);
            close(gate[0]);
            close(gate[1]);
            execlp("sh", "sh", "-c", "read line", (char *)NULL);
            _exit(3);
        }
        kill(getpid(), SIGKILL);
    }
    int status;
    waitpid(holder, &status, 0);
    assert_true(WIFSIGNALED(status));
    for (int i = 0; i < 5; i++) { /* Also as an orphan: the first look leaves one. */
        assert_int_equal(sluice_canal_acquire(w.canal, "db", one, NULL), SLUICE_EFULL);
        assert_int_equal(sluice_canal_reap(w.canal), 0);
    }
    close(gate[0]);
    close(gate[1]); /* The descendant reads the end of its input, and exits. */
    int64_t nth = SLUICE_EFULL;
    for (int i = 0; i < 1000 && nth == SLUICE_EFULL; i++) {
        nth = sluice_canal_acquire(w.canal, "db", one, NULL);
        if (nth == SLUICE_EFULL) pause_ms(10);
    }
    assert_int_equal(nth, 1);
}

UNIT_TEST(a_permit_survives_closing_the_canal_while_a_child_has_the_tether)
{
    WORLD w = world_new(NULL);
    struct sluice_canal *c;
    struct sluice_holder h;
    int gate[2], fd;
    assert_int_equal(pipe(gate), 0);
    assert_int_equal(sluice_canal_open(w.path, NULL, &c), SLUICE_OK);
    assert_int_equal(sluice_canal_tether(c, &fd), SLUICE_OK);
    assert_int_equal(sluice_canal_acquire(c, "db", one, NULL), 1);
    pid_t pid = fork();
    if (pid == 0) {
        char end;
        close(gate[1]);
        ssize_t n = read(gate[0], &end, 1);
        _exit(n == 0 ? 0 : 1);
    }
    close(fd);
    sluice_canal_close(c);
    assert_int_equal(sluice_canal_acquire(w.canal, "db", one, NULL), SLUICE_EFULL);
    uint64_t cursor = 0;
    assert_int_equal(sluice_canal_next_holder(w.canal, "db", &cursor, &h), 1);
    assert_int_equal(h.inherited, 1);
    assert_int_equal(h.dead, 0);
    close(gate[0]), close(gate[1]);
    waitpid(pid, NULL, 0);
    assert_int_equal(sluice_canal_acquire(w.canal, "db", one, NULL), 1);
}

UNIT_TEST(closing_the_canal_after_the_tether_releases_at_once)
{
    WORLD w = world_new(NULL);
    struct sluice_canal *c;
    int fd;
    assert_int_equal(sluice_canal_open(w.path, NULL, &c), SLUICE_OK);
    assert_int_equal(sluice_canal_tether(c, &fd), SLUICE_OK);
    assert_int_equal(sluice_canal_acquire(c, "db", one, NULL), 1);
    close(fd);
    sluice_canal_close(c);
    assert_int_equal(sluice_canal_count(w.canal, "db"), 0); /* Nobody had to reap it. */
    assert_int_equal(slots_used(&w), 0);
}

static void *tether_and_take(void *arg)
{
    struct other *o = arg;
    static int fd;
    if (sluice_canal_tether(o->canal, &fd) != SLUICE_OK) return NULL;
    return sluice_canal_acquire(o->canal, "db", one, NULL) == 1 ? &fd : NULL;
}

UNIT_TEST(a_tethered_permit_outlives_the_exit_of_its_thread)
{
    WORLD w = world_new(NULL);
    struct other o = {.canal = w.canal};
    pthread_t t;
    void *fd;
    pthread_create(&t, NULL, tether_and_take, &o);
    pthread_join(t, &fd);
    assert_non_null(fd);
    assert_int_equal(sluice_canal_acquire(w.canal, "db", one, NULL), SLUICE_EFULL);
    close(*(int *)fd);
    assert_int_equal(sluice_canal_acquire(w.canal, "db", one, NULL), 1);
}

UNIT_TEST(a_tether_of_an_anonymous_segment_is_rejected)
{
    struct sluice_canal *c;
    struct sluice_canal_options o = {.anonymous = 1};
    int fd;
    assert_int_equal(sluice_canal_open(NULL, &o, &c), SLUICE_OK);
    assert_int_equal(sluice_canal_tether(c, &fd), SLUICE_EINVAL);
    sluice_canal_close(c);
}

int main(void)
{
    return run_unit_tests("death");
}
