#include "pairs.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "canal/counter.h"
#include "canal/slot.h"
#include "script.h"
#include "stage.h"

/* The timeout for an actor that may be waiting for the stopped process. */
#define MAYBE_BLOCKED_MS 4

const struct sluice_canal_options pairs_small = {.keys = 8, .slots = 4, .records = 32};
const struct sluice_canal_options pairs_two_keys = {
    .keys = 2, .slots = 4, .records = 32};
static const struct sluice_canal_options three_slots = {
    .keys = 8, .slots = 3, .records = 32};
static const struct sluice_canal_options many_keys = {
    .keys = 16, .slots = 4, .records = 32};

struct stepped pairs_victim;
struct stepped pairs_first;
struct stepped pairs_third;

/* ---- scripts ---- */

static void take_three(void *scene)
{
    (void)scene;
    script_take(SCENE_ROOMY, 3);
}

static void take_and_give(void *scene)
{
    (void)scene;
    script_take(SCENE_ROOMY, 3);
    script_give(2);
}

static void hold_two(void *scene)
{
    struct sluice_want two = {.units = 2};
    script_resolve(scene);
    if (sluice_key_acquire(script_handle, script_capacity(SCENE_ROOMY), &two) < 2)
        _exit(3);
}

static void close_it(void *scene)
{
    (void)scene;
    sluice_canal_close(script_canal);
    stepped_tell(0);
}

static void use_main(void *scene)
{
    (void)scene;
    script_acquire("main", SCENE_ROOMY, 1);
}

static void use_old(void *scene)
{
    (void)scene;
    script_acquire("old", SCENE_ROOMY, 1);
}

void pairs_make_new(void *scene)
{
    (void)scene;
    script_acquire("new", SCENE_ROOMY, 1);
}

static void rebind(void *scene)
{
    (void)scene;
    script_acquire("n8", SCENE_ROOMY, 2);
    script_acquire("n0", SCENE_ROOMY, 1);
    stepped_tell(sluice_canal_release(script_canal, "n8", 1));
}

/* ---- victims ---- */

/* The point at which a victim is killed, and the trace to it. Found once. */
struct moment {
    void (*script)(void *arg);
    enum sl_canal_pending
        pending; /* Dies when this has taken place and is not completed. */
    struct trace way;
    size_t point;
};

static struct moment took_three = {.script = take_three,
                                   .pending = SL_CANAL_PENDING_ACQUIRE};
static struct moment gave_two = {.script = take_and_give,
                                 .pending = SL_CANAL_PENDING_RELEASE};

/* The script's process is the first to come: its slot and its record are number 0. */
struct waiting {
    const struct scene *s;
    enum sl_canal_pending pending;
};

static bool has_taken_place(void *arg)
{
    const struct waiting *w = arg;
    const struct sl_canal_segment *seg = &w->s->seg;
    struct sl_canal_pair state = sl_canal_word_load(&seg->records[0].state);
    struct sl_canal_pair word = sl_canal_word_load(&seg->keys[0].word);
    return sl_canal_record_pending(state.lo) == w->pending &&
           sl_canal_word_tag(word) == 1 && word.hi == state.hi;
}

static void find_moment(struct moment *m)
{
    struct scene s;
    if (m->way.count != 0) return;
    scene_open(&s, pairs_small, true);
    stepped_start(&pairs_victim, (struct stepped_role){script_resolve, m->script, &s});
    stepped_trace(&pairs_victim, &m->way, NULL, NULL);
    stepped_kill(&pairs_victim);
    scene_judge(&s, "main", true);
    scene_close(&s);
    scene_open(&s, pairs_small, true);
    stepped_start(&pairs_victim, (struct stepped_role){script_resolve, m->script, &s});
    struct waiting w = {&s, m->pending};
    for (m->point = 0; !has_taken_place(&w); m->point++)
        if (!stepped_step(&pairs_victim)) stage_bail("a victim's moment did not come");
    stepped_kill(&pairs_victim);
    scene_judge(&s, "main", true);
    scene_close(&s);
}

static void victim_dies(struct scene *s, struct moment *m)
{
    stepped_start(&pairs_victim, (struct stepped_role){script_resolve, m->script, s});
    if (!stepped_reach(&pairs_victim, &m->way, 0, m->point))
        scene_wrong(s, "the victim lost its way");
    stepped_kill(&pairs_victim);
}

static void it_died_taking_three(struct scene *s)
{
    victim_dies(s, &took_three);
}

static void it_died_giving_two(struct scene *s)
{
    victim_dies(s, &gave_two);
}

/* ---- results of the stopped process ---- */

/* Its n-th result. */
static int64_t answer(uint32_t n)
{
    return pairs_first.board->count > n ? pairs_first.board->results[n] : ACTOR_SILENT;
}

/* It was to be granted something, and holds it now. */
static void it_holds(struct scene *s, const char *key, uint32_t units)
{
    if (answer(0) <= 0)
        scene_wrong(s, "the stopped process got %s", sluice_status_word(answer(0)));
    scene_besides(s, key, units);
    s->others = 1;
}

static void it_holds_main(struct scene *s)
{
    it_holds(s, "main", 1);
}

static void it_reaped(struct scene *s)
{
    if (answer(0) < 0)
        scene_wrong(s, "the reaper was answered %s", sluice_status_word(answer(0)));
}

/* ---- K4: in the middle of an acquire or a release ---- */

static void k4_others(struct scene *s)
{
    scene_acquire(s, ALICE, "main", SCENE_ROOMY, 2);
    scene_acquire(s, BOB, "main", SCENE_ROOMY, 1);
    scene_release(s, ALICE, "main", 1);
    if (scene_acquire(s, ALICE, "main", 2, 1) != SLUICE_EFULL)
        scene_wrong(s, "granted though full");
}

static void k4_afterwards(struct scene *s)
{
    it_holds(s, "main", 1);
    if (answer(1) != SLUICE_OK) scene_wrong(s, "the release failed");
}

/* ---- a reaper and a process that overwrites ---- */

static void overwrite(struct scene *s)
{
    scene_acquire(s, ALICE, "main", SCENE_ROOMY, 1);
}

/* ---- K5: a reaper is stopped, and others must not need it ---- */

static void k5_others(struct scene *s)
{
    int64_t nth = scene_acquire(s, BOB, "main", 1, 1);
    if (nth != 1)
        scene_wrong(s, "with a stopped reaper, an acquire returned %s",
                    sluice_status_word(nth));
    if (nth != 1) return;
    scene_acquire(s, ALICE, "main", SCENE_ROOMY, 2);
    scene_release(s, BOB, "main", 1);
}

/* ---- K6: a reaper is stopped, and another process does its work ---- */

/* The point at which the third process is stopped, and the trace to it. Found once. */
struct spot {
    void (*arrange)(struct scene *s);
    void (*script)(void *arg);
    bool (*is_there)(const struct scene *s);
    struct trace way;
    size_t point;
};

static uint32_t locked_by(const struct scene *s)
{
    const struct sl_canal_shm_slot *slot = &s->seg.slots[0];
    uint32_t word = (uint32_t)__atomic_load_n(&slot->mutex.__data.__lock,
                                              __ATOMIC_ACQUIRE);
    return word & FUTEX_TID_MASK;
}

/* It is the exclusive reaper and has announced it; a process that arrives now helps. */
static bool has_said_so(const struct scene *s)
{
    return __atomic_load_n(&s->seg.slots[0].dying, __ATOMIC_ACQUIRE) != 0;
}

/* It is the exclusive reaper, or the new owner, and has not announced it. */
static bool has_not_said_so(const struct scene *s)
{
    return locked_by(s) == (uint32_t)pairs_third.pid && !has_said_so(s);
}

static struct spot reaper_says = {
    .arrange = it_died_taking_three, .script = script_reap, .is_there = has_said_so};
static struct spot reaper_silent = {.arrange = it_died_taking_three,
                                    .script = script_reap,
                                    .is_there = has_not_said_so};
static struct spot claimer_silent = {
    .arrange = NULL, .script = use_main, .is_there = has_not_said_so};

static void start_third(const struct spot *spot, struct scene *s)
{
    stepped_start(&pairs_third, (struct stepped_role){script_enter, spot->script, s});
}

static void end_search(struct scene *s)
{
    stepped_kill(&pairs_third);
    scene_judge(s, "main", true);
    scene_close(s);
}

static void find_spot(struct spot *spot)
{
    struct scene s;
    scene_open(&s, pairs_small, true);
    if (spot->arrange != NULL) spot->arrange(&s);
    start_third(spot, &s);
    stepped_trace(&pairs_third, &spot->way, NULL, NULL);
    end_search(&s);
    scene_open(&s, pairs_small, true);
    if (spot->arrange != NULL) spot->arrange(&s);
    start_third(spot, &s);
    for (spot->point = 0; !spot->is_there(&s); spot->point++)
        if (!stepped_step(&pairs_third))
            stage_bail("the third process did not reach its point");
    end_search(&s);
}

static void third_stands(struct scene *s, const struct spot *spot)
{
    start_third(spot, s);
    if (!stepped_reach(&pairs_third, &spot->way, 0, spot->point) || !spot->is_there(s))
        scene_wrong(s, "the third process did not reach its point again");
}

static void k6_arrange_take(struct scene *s)
{
    it_died_taking_three(s);
    third_stands(s, &reaper_says);
}

static void k6_arrange_give(struct scene *s)
{
    it_died_giving_two(s);
    third_stands(s, &reaper_says);
}

static void k6_arrange_silent(struct scene *s)
{
    it_died_taking_three(s);
    third_stands(s, &reaper_silent);
}

static void third_finishes(struct scene *s)
{
    if (!stepped_finish(&pairs_third))
        scene_wrong(s, "the third process did not finish");
    stepped_kill(&pairs_third);
}

/* A new process takes over the slot and the record, and overwrites the write of the drain. */
static void k6_take_over(struct scene *s)
{
    third_finishes(s);
    scene_acquire(s, BOB, "main", SCENE_ROOMY, 2);
    if (s->seg.chunks[0] != 1 || scene_held(s, "main") != 2)
        scene_wrong(s, "the record was not taken over");
}

/* The record goes to another key first. */
static void k6_rebind(struct scene *s)
{
    third_finishes(s);
    scene_acquire(s, BOB, "other", SCENE_ROOMY, 2);
    scene_acquire(s, BOB, "main", SCENE_ROOMY, 1);
}

static void k6_afterwards(struct scene *s)
{
    it_reaped(s);
    if (pairs_third.pid != 0) third_finishes(s); /* If no other process ran. */
}

/* ---- a thread dies while a reaper looks for it ---- */

/* A process whose second thread holds two units. It is killed when a reaper looks for that thread by
 * its id, after the reaper has read everything else and before it gets the result. */
static pid_t doomed;
static int doomed_fd = -1; /* A pidfd; readable when all threads have ended. */

static void *hold_two_and_wait(void *scene)
{
    struct sluice_want two = {.units = 2};
    script_enter(scene);
    if (sluice_canal_acquire(script_canal, "main", script_capacity(SCENE_ROOMY),
                             &two) != 2)
        _exit(3);
    for (;;) pause();
}

static void doomed_begins(struct scene *s)
{
    pthread_t t;
    doomed = fork();
    if (doomed == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (pthread_create(&t, NULL, hold_two_and_wait, s) != 0) _exit(4);
        for (;;) pause();
    }
    doomed_fd = (int)syscall(SYS_pidfd_open, doomed, 0);
    while (sl_canal_word_count(sl_canal_word_load(&s->seg.keys[0].word)) != 2)
        usleep(100);
}

static void doomed_is_buried(void)
{
    kill(doomed, SIGKILL);
    waitpid(doomed, NULL, 0);
    close(doomed_fd);
    doomed = 0;
}

/* Replaces the function of the C library, in this program and in stepped processes. */
int tgkill(pid_t process, pid_t thread, int sig)
{
    if (doomed != 0 && process == doomed) {
        struct pollfd gone = {.fd = doomed_fd, .events = POLLIN};
        kill(doomed, SIGKILL);
        poll(&gone, 1, -1);
    }
    return (int)syscall(SYS_tgkill, process, thread, sig);
}

/* The kernel has marked its mutex, so it is reaped like any other; its slot gets a new owner. */
static void gone_others(struct scene *s)
{
    struct pollfd gone = {.fd = doomed_fd, .events = POLLIN};
    if (poll(&gone, 1, 0) != 1) return; /* Nobody has looked for it yet. */
    sl_canal_slot_reap_all(&s->seg);
    scene_acquire(s, BOB, "main", SCENE_ROOMY, 2);
}

static void gone_afterwards(struct scene *s)
{
    it_reaped(s);
    doomed_is_buried();
    sl_canal_slot_reap_all(&s->seg);
}

/* The third is no reaper but a new owner, and holds a unit at the end. */
static void claim_arrange(struct scene *s)
{
    third_stands(s, &claimer_silent);
}

static void claim_others(struct scene *s)
{
    if (!stepped_finish(&pairs_third))
        scene_wrong(s, "the third process did not finish");
}

static void claim_afterwards(struct scene *s)
{
    it_reaped(s);
    if (!pairs_third.done) claim_others(s);
    if (pairs_third.board->results[0] != 1)
        scene_wrong(s, "the third process was not granted a unit");
    scene_besides(s, "main", 1);
    s->others = 1;
}

/* ---- a process binds a name that another one reclaims ---- */

static void bind_arrange(struct scene *s)
{
    scene_touch(s, BOB, "old");
    scene_besides(s, "x1", 0);
    scene_besides(s, "x2", 0);
}

/* Like scene_acquire(), but "no key left" is a valid result. */
static int64_t acquire_if_there_is_a_key(struct scene *s, const char *key)
{
    int64_t nth = actor_acquire(&scene_cast[BOB], key, SCENE_ROOMY, 1);
    if (nth != SLUICE_EKEYS && nth <= 0)
        scene_wrong(s, "an acquire of %s: %s", key, sluice_status_word(nth));
    return nth;
}

static void bind_others(struct scene *s)
{
    /* Record the units of Bob by name, because the first process does not know them. */
    if (acquire_if_there_is_a_key(s, "x1") <= 0) return;
    if (acquire_if_there_is_a_key(s, "x2") > 0) scene_besides(s, "x2", 1);
    if (actor_release(&scene_cast[BOB], "x1", 1) != SLUICE_OK)
        scene_wrong(s, "the release of x1 failed");
}

static void bind_afterwards(struct scene *s)
{
    it_holds(s, "old", 1);
    s->no_spare_key = true;
}

/* ---- a process reclaims a name that another one binds ---- */

static bool bob_waits;

void pairs_begin(void)
{
    bob_waits = false;
}

static void bob_later(const char *key)
{
    actor_acquire_later(&scene_cast[BOB], key, SCENE_ROOMY, 1, 0);
    bob_waits = true;
}

/* The answer of Bob, if there is one: Bob may be waiting for the stopped process. */
static int64_t bob_now(int64_t within_ms)
{
    int64_t nth = actor_answer(&scene_cast[BOB], within_ms, NULL);
    if (nth != ACTOR_SILENT) bob_waits = false;
    return nth;
}

static int64_t bob_at_last(struct scene *s, const char *key)
{
    int64_t nth = bob_now(10000);
    /* The process was stopped for longer than the timeout of Bob: try again. */
    if (nth == SLUICE_EBUSY) nth = actor_acquire(&scene_cast[BOB], key, SCENE_ROOMY, 1);
    if (nth == ACTOR_SILENT) scene_wrong(s, "Bob got no answer");
    return nth;
}

static int64_t bobs_answer;

static uint32_t slots_without_records(const struct scene *s)
{
    uint32_t bare = 0;
    for (uint32_t i = 0; i < s->seg.slot_count; i++) {
        uint32_t chunks = 0;
        for (uint32_t c = 0; c < s->seg.chunk_count; c++)
            chunks += s->seg.chunks[c] == i + 1;
        bare += sl_canal_slot_in_use(&s->seg, i) && chunks == 0;
    }
    return bare;
}

void pairs_reclaimable(struct scene *s)
{
    scene_acquire(s, ALICE, "kept", SCENE_ROOMY, 1);
    scene_touch(s, BOB, "old");
    scene_besides(s, "new", 0);
    bobs_answer = ACTOR_SILENT;
}

static void reclaim_others(struct scene *s)
{
    (void)s;
    bob_later("old");
    bobs_answer = bob_now(MAYBE_BLOCKED_MS);
}

static void reclaim_afterwards(struct scene *s)
{
    int64_t nth = answer(0);
    if (bob_waits) bobs_answer = bob_at_last(s, "old");
    bool he = bobs_answer > 0, it = nth > 0;
    if (bobs_answer != ACTOR_SILENT && he == it)
        scene_wrong(s, "one key for two names: Bob was answered %s, the other one %s",
                    sluice_status_word(bobs_answer), sluice_status_word(nth));
    scene_besides(s, "old", he);
    scene_besides(s, "new", it);
    s->others = 1; /* The first has a slot, granted or not. */
    if (!it) s->bare = slots_without_records(s); /* It may have come as far as that. */
    s->no_spare_key = true;
}

/* ---- two make the same name, two take slots ---- */

static void make_arrange(struct scene *s)
{
    scene_acquire(s, ALICE, "kept", SCENE_ROOMY, 1);
    scene_enter(s, BOB);
    bobs_answer = ACTOR_SILENT;
}

static void make_others(struct scene *s)
{
    bob_later("new");
    bobs_answer = bob_now(MAYBE_BLOCKED_MS);
    s->attached[BOB] = true;
}

static void make_afterwards(struct scene *s)
{
    bool acted = s->attached[BOB];
    if (bob_waits) bobs_answer = bob_at_last(s, "new");
    if (acted && bobs_answer <= 0)
        scene_wrong(s, "Bob got %s", sluice_status_word(bobs_answer));
    it_holds(s, "new", acted ? 2 : 1);
}

static void slots_arrange(struct scene *s)
{
    scene_acquire(s, ALICE, "main", SCENE_ROOMY, 1);
    scene_dave_takes(s, "main", 2);
    scene_dave_dies(s);
}

static void slots_others(struct scene *s)
{
    scene_acquire(s, BOB, "main", SCENE_ROOMY, 1);
    if (actor_reap(&scene_cast[ALICE]) < 0) scene_wrong(s, "Alice cannot reap");
}

/* Carol has no slot left: Bob makes room for her. */
static void slots_afterwards(struct scene *s)
{
    it_holds_main(s);
    if (s->entered[BOB]) scene_leave(s, BOB);
}

/* ---- a process closes the segment ---- */

static void leave_others(struct scene *s)
{
    scene_acquire(s, BOB, "main", SCENE_ROOMY, 1);
    scene_acquire(s, ALICE, "main", SCENE_ROOMY, 1);
}

/* ---- records are bound to other keys ---- */

static void rebind_arrange(struct scene *s)
{
    char name[ACTOR_KEY_MAX];
    for (unsigned i = 0; i < 9; i++) {
        snprintf(name, sizeof name, "n%u", i);
        scene_touch(s, ALICE, name);
    }
}

static void rebind_others(struct scene *s)
{
    scene_acquire(s, ALICE, "n8", SCENE_ROOMY, 1);
    scene_acquire(s, BOB, "n0", SCENE_ROOMY, 2);
    scene_release(s, ALICE, "n8", 1);
}

static void rebind_afterwards(struct scene *s)
{
    it_holds(s, "n8", 1);
    scene_besides(s, "n0", 1);
}

/* ---- two open the same segment ---- */

/* The file of a creator that was killed early: a signature. */
static void leave_a_signature(struct scene *s)
{
    const struct sl_canal_shm_header h = {.magic = SL_CANAL_MAGIC,
                                          .format = SL_CANAL_FORMAT};
    int fd = open(s->path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (fd < 0 || write(fd, &h, sizeof h) != (ssize_t)sizeof h)
        stage_bail("%s: %s", s->path, strerror(errno));
    close(fd);
}

/* The file of a creator that was killed late: complete, but not marked as ready. */
static void leave_it_unready(struct scene *s)
{
    s->seg.header->ready = 0;
}

static void open_others(struct scene *s)
{
    struct actor_order o = {.verb = ACTOR_OPEN, .options = s->options};
    snprintf(o.path, sizeof o.path, "%s", s->path);
    actor_order(&scene_cast[BOB], &o);
    bob_waits = true;
    s->entered[BOB] = true;
    bobs_answer = bob_now(MAYBE_BLOCKED_MS);
}

static void open_afterwards(struct scene *s)
{
    if (answer(0) != SLUICE_OK)
        scene_wrong(s, "the stopped process got %s", sluice_status_word(answer(0)));
    if (!s->entered[BOB]) return;
    if (bob_waits) bobs_answer = bob_now(10000);
    if (bobs_answer != SLUICE_OK) {
        scene_wrong(s, "Bob got %s", sluice_status_word(bobs_answer));
        return;
    }
    if (scene_acquire(s, BOB, "main", 2, 1) != 1)
        scene_wrong(s, "Bob is not the first");
}

/* ---- a process waits, another one releases ---- */

static void wait_arrange(struct scene *s)
{
    scene_acquire(s, ALICE, "main", 1, 1);
}

static void wait_others(struct scene *s)
{
    scene_release(s, ALICE, "main", 1);
}

/* ---- the pairs ---- */

/* clang-format off */
const struct pair pairs[] = {
    {"k4", "K4 an acquire and a release are stopped; others are not blocked", &pairs_small, false, "main",
     NULL, script_resolve, take_and_give, k4_others, k4_afterwards, false},
    {"mark", "a reaper is stopped; the acquire of a dead holder is overwritten", &pairs_small, false, "main",
     it_died_taking_three, script_enter, script_reap, overwrite, it_reaped, false},
    {"mark2", "a reaper is stopped; the release of a dead holder is overwritten", &pairs_small, false, "main",
     it_died_giving_two, script_enter, script_reap, overwrite, it_reaped, false},
    {"k5", "K5 a reaper is stopped; others reap and are granted", &pairs_small, false, "main",
     it_died_taking_three, script_enter, script_reap, k5_others, it_reaped, false},
    {"k5b", "K5 the same after a release", &pairs_small, false, "main",
     it_died_giving_two, script_enter, script_reap, k5_others, it_reaped, false},
    {"k6", "K6 a late reaper; slot and record have a new owner", &pairs_small, false, "main",
     k6_arrange_take, script_enter, script_reap, k6_take_over, k6_afterwards, false},
    {"k6b", "K6 the same after a release", &pairs_small, false, "main",
     k6_arrange_give, script_enter, script_reap, k6_take_over, k6_afterwards, false},
    {"k6c", "K6 a late reaper; the record is bound to another key", &pairs_small, false, "main",
     k6_arrange_take, script_enter, script_reap, k6_rebind, k6_afterwards, false},
    {"k6d", "K6 a late reaper; the other one had not announced itself", &pairs_small, false, "main",
     k6_arrange_silent, script_enter, script_reap, k6_take_over, k6_afterwards, false},
    {"claim", "a reaper is stopped; a new owner is about to sign", &pairs_small, false, "main",
     claim_arrange, script_enter, script_reap, claim_others, claim_afterwards, false},
    {"gone", "K9 a reaper is stopped; the holder dies, and its slot has a new owner", &pairs_small, false, "main",
     doomed_begins, script_enter, script_reap, gone_others, gone_afterwards, false},
    {"bind", "a process binds a key and is stopped; the key is reclaimed", &pairs_two_keys, false, "old",
     bind_arrange, script_enter, use_old, bind_others, bind_afterwards, false},
    {"reclaim", "a process reclaims a key and is stopped; the key is bound", &pairs_two_keys, false, "kept",
     pairs_reclaimable, script_enter, pairs_make_new, reclaim_others, reclaim_afterwards, false},
    {"make", "a process creates a key and is stopped; another creates it", &pairs_small, false, "new",
     make_arrange, script_enter, pairs_make_new, make_others, make_afterwards, false},
    {"slots", "a process claims a slot and is stopped; another claims it", &three_slots, false, "main",
     slots_arrange, script_enter, use_main, slots_others, slots_afterwards, false},
    {"leave", "a holder is stopped in its close; others acquire", &pairs_small, false, "main",
     NULL, hold_two, close_it, leave_others, NULL, false},
    {"rebind", "records are being rebound; others use the keys", &many_keys, false, "n8",
     rebind_arrange, script_bind_all, rebind, rebind_others, rebind_afterwards, false},
    {"open", "two open a new segment", &pairs_small, true, "main",
     NULL, NULL, script_open, open_others, open_afterwards, false},
    {"open2", "two open the segment of a creator that was killed early", &pairs_small, true, "main",
     leave_a_signature, NULL, script_open, open_others, open_afterwards, false},
    {"open3", "two open the segment of a creator that was killed late", &pairs_small, false, "main",
     leave_it_unready, NULL, script_open, open_others, open_afterwards, false},
    {"wait", "a waiter is stopped before its sleep; capacity becomes free", &pairs_small, false, "main",
     wait_arrange, script_resolve, script_wait, wait_others, it_holds_main, true},
};
/* clang-format on */
const size_t pair_count = sizeof pairs / sizeof pairs[0];

void pairs_prepare(void)
{
    find_moment(&took_three);
    find_moment(&gave_two);
    find_spot(&reaper_says);
    find_spot(&reaper_silent);
    find_spot(&claimer_silent);
}
