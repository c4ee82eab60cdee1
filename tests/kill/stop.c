/* stop.c - K4, K5, K6: stop after every instruction, let others run, then go on.
 *
 *     stop [--short | --long] [--pair X] [--from N] [--to N] [--stride N]
 *
 * A pair is two processes that meet. One is led to an instruction of its script and
 * stands there, for as long as the other needs for all it has to do; then it goes on.
 * Done for every instruction this is every schedule of the two with one change each
 * way, which is where most races are. Afterwards the living must find exactly what they
 * hold, as in step.c, and the one that stood is among the living. */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <linux/futex.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "audit.h"
#include "canal/counter.h"
#include "canal/slot.h"
#include "scene.h"
#include "stage.h"
#include "stepped.h"

#define DEADLINE_SHORT_S 280
#define DEADLINE_LONG_S 14000
#define COMPLAINTS_MAX 3
#define WRONG_MAX 100 /* After so many a pair has made its point, */
#define SLOW_MAX 5    /* and earlier if each lasts long. */

/* How long somebody is waited for who may be waiting for the one that stands. */
#define MAYBE_BLOCKED_MS 4

#define PAIR_MS 4000 /* That the short run gives a pair. */

/* A woken sleeper may also just have been about to wake by itself. Not so often. */
#define WAKE_TRIES 5

static const struct sluice_canal_options small = {.keys = 8, .slots = 4, .records = 32};
static const struct sluice_canal_options two_keys = {
    .keys = 2, .slots = 4, .records = 32};
static const struct sluice_canal_options three_slots = {
    .keys = 8, .slots = 3, .records = 32};
static const struct sluice_canal_options many_keys = {
    .keys = 16, .slots = 4, .records = 32};

static struct stepped victim; /* Dies before the two meet. */
static struct stepped first;  /* The one that stands. */
static struct stepped third;  /* Another, if the pair needs one. */

struct pair {
    const char *name;
    const char *sentence;
    const struct sluice_canal_options *options;
    bool unmade;
    const char *key;                     /* What the survivors ask for. */
    void (*arrange)(struct scene *s);    /* Before they meet. */
    void (*prepare)(void *arg);          /* In the first, at full speed. */
    void (*script)(void *arg);           /* In the first, led. */
    void (*others)(struct scene *s);     /* While the first stands. */
    void (*afterwards)(struct scene *s); /* When it has come to its end. */
    bool to_its_sleep;                   /* Only the points before its first sleep. */
};

static struct {
    bool is_long;
    const char *only;
    size_t from, to, stride;
    const char *program;
} run = {.to = SIZE_MAX};

struct tally {
    size_t points, missed, wrong;
    size_t left_out; /* Points that the time did not suffice for. */
    size_t slow;     /* Of the wrong ones, those that lasted. */
};

static struct tally tally;

/* ---- scripts ---- */

static struct sluice_canal *canal;
static struct sluice_key *handle;

static struct sluice_room room_of(uint32_t units)
{
    return (struct sluice_room){.per = units, .buckets = 1};
}

static void open_it(void *arg)
{
    const struct scene *s = arg;
    if (sluice_canal_open(s->path, &s->options, &canal) != SLUICE_OK) _exit(3);
}

static void open_and_resolve(void *arg)
{
    open_it(arg);
    if (sluice_key_resolve(canal, "main", &handle) != SLUICE_OK) _exit(3);
}

static void acquire(const char *key, uint32_t room, uint32_t units)
{
    struct sluice_want want = {.units = units};
    stepped_tell(sluice_canal_acquire(canal, key, room_of(room), &want));
}

static void acquire_by_handle(uint32_t room, uint32_t units, int64_t wait_ms)
{
    struct sluice_want want = {.units = units, .wait_ms = wait_ms};
    stepped_tell(sluice_key_acquire(handle, room_of(room), &want));
}

static void script_open(void *arg)
{
    const struct scene *s = arg;
    stepped_tell(sluice_canal_open(s->path, &s->options, &canal));
}

static void script_reap(void *arg)
{
    (void)arg;
    stepped_tell(sluice_canal_reap(canal));
}

static void script_take_three(void *arg)
{
    (void)arg;
    acquire_by_handle(SCENE_ROOMY, 3, 0);
}

static void script_take_and_give(void *arg)
{
    (void)arg;
    acquire_by_handle(SCENE_ROOMY, 3, 0);
    stepped_tell(sluice_key_release(handle, 2));
}

static void hold_one(void *arg)
{
    open_and_resolve(arg);
    if (sluice_key_acquire(handle, room_of(1), NULL) != 1) _exit(3);
}

static void hold_two(void *arg)
{
    struct sluice_want two = {.units = 2};
    open_and_resolve(arg);
    if (sluice_key_acquire(handle, room_of(SCENE_ROOMY), &two) < 2) _exit(3);
}

static void script_release(void *arg)
{
    (void)arg;
    stepped_tell(sluice_key_release(handle, 1));
}

static void script_wait(void *arg)
{
    (void)arg;
    acquire_by_handle(1, 1, 20000);
}

static void script_close(void *arg)
{
    (void)arg;
    sluice_canal_close(canal);
    stepped_tell(0);
}

static void script_main(void *arg)
{
    (void)arg;
    acquire("main", SCENE_ROOMY, 1);
}

static void script_old(void *arg)
{
    (void)arg;
    acquire("old", SCENE_ROOMY, 1);
}

static void script_new(void *arg)
{
    (void)arg;
    acquire("new", SCENE_ROOMY, 1);
}

static void bind_all(void *arg)
{
    char name[ACTOR_KEY_MAX];
    open_it(arg);
    for (unsigned i = 0; i < SL_CHUNK_RECORDS; i++) {
        snprintf(name, sizeof name, "n%u", i);
        if (sluice_canal_acquire(canal, name, room_of(SCENE_ROOMY), NULL) < 1) _exit(3);
        if (sluice_canal_release(canal, name, 1) != SLUICE_OK) _exit(3);
    }
}

static void script_rebind(void *arg)
{
    (void)arg;
    acquire("n8", SCENE_ROOMY, 2);
    acquire("n0", SCENE_ROOMY, 1);
    stepped_tell(sluice_canal_release(canal, "n8", 1));
}

/* ---- victims: how they die ---- */

/* A moment in the life of a victim, and the way there. Found once. */
struct moment {
    void (*script)(void *arg);
    enum sl_pend pending; /* Dies when this has taken place and is not completed. */
    struct trace way;
    size_t point;
};

static struct moment took_three = {.script = script_take_three,
                                   .pending = SL_PEND_ACQUIRE};
static struct moment gave_two = {.script = script_take_and_give,
                                 .pending = SL_PEND_RELEASE};

/* The script's process is the first to come: its slot and its record are number 0. */
struct waiting {
    const struct scene *s;
    enum sl_pend pending;
};

static bool has_taken_place(void *arg)
{
    const struct waiting *w = arg;
    const struct sl_segment *seg = &w->s->seg;
    struct sl_pair state = sl_word_load(&seg->records[0].state);
    struct sl_pair word = sl_word_load(&seg->keys[0].word);
    return sl_record_pend(state.lo) == w->pending && sl_word_tag(word) == 1 &&
           word.hi == state.hi;
}

static void find_moment(struct moment *m)
{
    struct scene s;
    if (m->way.count != 0) return;
    scene_open(&s, small, true);
    stepped_start(&victim, (struct stepped_role){open_and_resolve, m->script, &s});
    stepped_trace(&victim, &m->way, NULL, NULL);
    stepped_kill(&victim);
    scene_judge(&s, "main", true);
    scene_close(&s);
    scene_open(&s, small, true);
    stepped_start(&victim, (struct stepped_role){open_and_resolve, m->script, &s});
    struct waiting w = {&s, m->pending};
    for (m->point = 0; !has_taken_place(&w); m->point++)
        if (!stepped_step(&victim)) stage_bail("a victim's moment did not come");
    stepped_kill(&victim);
    scene_judge(&s, "main", true);
    scene_close(&s);
}

static void victim_dies(struct scene *s, struct moment *m)
{
    stepped_start(&victim, (struct stepped_role){open_and_resolve, m->script, s});
    if (!stepped_reach(&victim, &m->way, 0, m->point))
        scene_wrong(s, "the victim lost its way");
    stepped_kill(&victim);
}

static void it_died_taking_three(struct scene *s)
{
    victim_dies(s, &took_three);
}

static void it_died_giving_two(struct scene *s)
{
    victim_dies(s, &gave_two);
}

/* ---- what is known of the one that stood ---- */

/* The n-th thing it was answered. */
static int64_t answer(uint32_t n)
{
    return first.board->count > n ? first.board->results[n] : ACTOR_SILENT;
}

/* It was to be granted something, and holds it now. */
static void it_holds(struct scene *s, const char *key, uint32_t units)
{
    if (answer(0) <= 0)
        scene_wrong(s, "the one that stood was answered %s",
                    sluice_status_word(answer(0)));
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

/* ---- a reaper and somebody who overwrites ---- */

static void overwrite(struct scene *s)
{
    scene_acquire(s, ALICE, "main", SCENE_ROOMY, 1);
}

/* ---- K5: a reaper stands, and others must not need it ---- */

static void k5_others(struct scene *s)
{
    int64_t nth = scene_acquire(s, BOB, "main", 1, 1);
    if (nth != 1)
        scene_wrong(s, "with a reaper standing, an acquire was answered %s",
                    sluice_status_word(nth));
    if (nth != 1) return;
    scene_acquire(s, ALICE, "main", SCENE_ROOMY, 2);
    scene_release(s, BOB, "main", 1);
}

/* ---- K6: a reaper stands, and its work is done without it ---- */

/* Where the third stands while the two meet, and the way there. Found once. */
struct spot {
    void (*arrange)(struct scene *s);
    void (*script)(void *arg);
    bool (*is_there)(const struct scene *s);
    struct trace way;
    size_t point;
};

static uint32_t locked_by(const struct scene *s)
{
    const struct sl_shm_slot *slot = &s->seg.slots[0];
    uint32_t word = (uint32_t)__atomic_load_n(&slot->mutex.__data.__lock,
                                              __ATOMIC_ACQUIRE);
    return word & FUTEX_TID_MASK;
}

/* It is the exclusive reaper and has said so; who comes now is one that helps. */
static bool has_said_so(const struct scene *s)
{
    return __atomic_load_n(&s->seg.slots[0].dying, __ATOMIC_ACQUIRE) != 0;
}

/* It is the exclusive reaper, or the new owner, and nobody was told. */
static bool has_not_said_so(const struct scene *s)
{
    return locked_by(s) == (uint32_t)third.pid && !has_said_so(s);
}

static struct spot reaper_says = {
    .arrange = it_died_taking_three, .script = script_reap, .is_there = has_said_so};
static struct spot reaper_silent = {.arrange = it_died_taking_three,
                                    .script = script_reap,
                                    .is_there = has_not_said_so};
static struct spot claimer_silent = {
    .arrange = NULL, .script = script_main, .is_there = has_not_said_so};

static void start_third(const struct spot *spot, struct scene *s)
{
    stepped_start(&third, (struct stepped_role){open_it, spot->script, s});
}

static void end_search(struct scene *s)
{
    stepped_kill(&third);
    scene_judge(s, "main", true);
    scene_close(s);
}

static void find_spot(struct spot *spot)
{
    struct scene s;
    scene_open(&s, small, true);
    if (spot->arrange != NULL) spot->arrange(&s);
    start_third(spot, &s);
    stepped_trace(&third, &spot->way, NULL, NULL);
    end_search(&s);
    scene_open(&s, small, true);
    if (spot->arrange != NULL) spot->arrange(&s);
    start_third(spot, &s);
    for (spot->point = 0; !spot->is_there(&s); spot->point++)
        if (!stepped_step(&third)) stage_bail("the third did not come by its spot");
    end_search(&s);
}

static void third_stands(struct scene *s, const struct spot *spot)
{
    start_third(spot, s);
    if (!stepped_reach(&third, &spot->way, 0, spot->point) || !spot->is_there(s))
        scene_wrong(s, "the third lost its way");
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
    if (!stepped_finish(&third)) scene_wrong(s, "the third did not finish");
    stepped_kill(&third);
}

/* A new process takes slot and record over, and its writing overwrites the drain's. */
static void k6_take_over(struct scene *s)
{
    third_finishes(s);
    scene_acquire(s, BOB, "main", SCENE_ROOMY, 2);
    if (s->seg.chunks[0] != 1 || scene_held(s, "main") != 2)
        scene_wrong(s, "nobody took the record over");
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
    if (third.pid != 0) third_finishes(s); /* When nobody else had a turn. */
}

/* The third is no reaper but a new owner, and holds a unit at the end. */
static void claim_arrange(struct scene *s)
{
    third_stands(s, &claimer_silent);
}

static void claim_others(struct scene *s)
{
    if (!stepped_finish(&third)) scene_wrong(s, "the third did not finish");
}

static void claim_afterwards(struct scene *s)
{
    it_reaped(s);
    if (!third.done) claim_others(s);
    if (third.board->results[0] != 1) scene_wrong(s, "the third was not granted");
    scene_besides(s, "main", 1);
    s->others = 1;
}

/* ---- somebody binds a name that somebody else reclaims ---- */

static void bind_arrange(struct scene *s)
{
    scene_touch(s, BOB, "old");
    scene_besides(s, "x1", 0);
    scene_besides(s, "x2", 0);
}

/* As scene_acquire(), where "no key left" is an answer. */
static int64_t acquire_if_there_is_a_key(struct scene *s, const char *key)
{
    int64_t nth = actor_acquire(&scene_cast[BOB], key, SCENE_ROOMY, 1);
    if (nth != SLUICE_EKEYS && nth <= 0)
        scene_wrong(s, "an acquire of %s: %s", key, sluice_status_word(nth));
    return nth;
}

static void bind_others(struct scene *s)
{
    /* Bob holds what he is granted; noted by name, as the first knows nothing of it. */
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

/* ---- somebody reclaims a name that somebody else binds ---- */

static bool bob_waits;

static void bob_later(const char *key)
{
    actor_acquire_later(&scene_cast[BOB], key, SCENE_ROOMY, 1, 0);
    bob_waits = true;
}

/* Bob's answer, if it comes; he may be waiting for the one that stands. */
static int64_t bob_now(int64_t within_ms)
{
    int64_t nth = actor_answer(&scene_cast[BOB], within_ms, NULL);
    if (nth != ACTOR_SILENT) bob_waits = false;
    return nth;
}

static int64_t bob_at_last(struct scene *s, const char *key)
{
    int64_t nth = bob_now(10000);
    /* The one that stands stood for longer than he waits: then he asks again. */
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
        bare += sl_slot_used(&s->seg, i) && chunks == 0;
    }
    return bare;
}

static void reclaim_arrange(struct scene *s)
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
        scene_wrong(s, "Bob was answered %s", sluice_status_word(bobs_answer));
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

/* ---- somebody leaves ---- */

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

/* What a creator leaves behind that was killed early: a signature. */
static void leave_a_signature(struct scene *s)
{
    const struct sl_shm_header h = {.magic = SL_MAGIC, .format = SL_FORMAT};
    int fd = open(s->path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (fd < 0 || write(fd, &h, sizeof h) != (ssize_t)sizeof h)
        stage_bail("%s: %s", s->path, strerror(errno));
    close(fd);
}

/* What one leaves that was killed late: all of it, but not ready. */
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
        scene_wrong(s, "the one that stood was answered %s",
                    sluice_status_word(answer(0)));
    if (!s->entered[BOB]) return;
    if (bob_waits) bobs_answer = bob_now(10000);
    if (bobs_answer != SLUICE_OK) {
        scene_wrong(s, "Bob was answered %s", sluice_status_word(bobs_answer));
        return;
    }
    if (scene_acquire(s, BOB, "main", 2, 1) != 1)
        scene_wrong(s, "Bob is not the first");
}

/* ---- somebody waits, somebody releases ---- */

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
static const struct pair pairs[] = {
    {"k4", "K4 an acquire and a release stand; others are not kept", &small, false, "main",
     NULL, open_and_resolve, script_take_and_give, k4_others, k4_afterwards, false},
    {"mark", "a reaper stands; the dead's acquire is overwritten", &small, false, "main",
     it_died_taking_three, open_it, script_reap, overwrite, it_reaped, false},
    {"mark2", "a reaper stands; the dead's release is overwritten", &small, false, "main",
     it_died_giving_two, open_it, script_reap, overwrite, it_reaped, false},
    {"k5", "K5 a reaper stands; others reap and are granted", &small, false, "main",
     it_died_taking_three, open_it, script_reap, k5_others, it_reaped, false},
    {"k5b", "K5 the same after a release", &small, false, "main",
     it_died_giving_two, open_it, script_reap, k5_others, it_reaped, false},
    {"k6", "K6 a late reaper; slot and record have a new owner", &small, false, "main",
     k6_arrange_take, open_it, script_reap, k6_take_over, k6_afterwards, false},
    {"k6b", "K6 the same after a release", &small, false, "main",
     k6_arrange_give, open_it, script_reap, k6_take_over, k6_afterwards, false},
    {"k6c", "K6 a late reaper; the record is bound to another key", &small, false, "main",
     k6_arrange_take, open_it, script_reap, k6_rebind, k6_afterwards, false},
    {"k6d", "K6 a late reaper; the other one had not said so", &small, false, "main",
     k6_arrange_silent, open_it, script_reap, k6_take_over, k6_afterwards, false},
    {"claim", "a reaper stands; a new owner is about to sign", &small, false, "main",
     claim_arrange, open_it, script_reap, claim_others, claim_afterwards, false},
    {"bind", "a binder stands; its key is reclaimed", &two_keys, false, "old",
     bind_arrange, open_it, script_old, bind_others, bind_afterwards, false},
    {"reclaim", "a reclaimer stands; its key is bound", &two_keys, false, "kept",
     reclaim_arrange, open_it, script_new, reclaim_others, reclaim_afterwards, false},
    {"make", "a maker of a name stands; another makes it", &small, false, "new",
     make_arrange, open_it, script_new, make_others, make_afterwards, false},
    {"slots", "a claimer stands; another claims", &three_slots, false, "main",
     slots_arrange, open_it, script_main, slots_others, slots_afterwards, false},
    {"leave", "a holder stands in its close; others come", &small, false, "main",
     NULL, hold_two, script_close, leave_others, NULL, false},
    {"rebind", "records are being rebound; others use the keys", &many_keys, false, "n8",
     rebind_arrange, bind_all, script_rebind, rebind_others, rebind_afterwards, false},
    {"open", "two open a new segment", &small, true, "main",
     NULL, NULL, script_open, open_others, open_afterwards, false},
    {"open2", "two open what an early kill left", &small, true, "main",
     leave_a_signature, NULL, script_open, open_others, open_afterwards, false},
    {"open3", "two open what a late kill left", &small, false, "main",
     leave_it_unready, NULL, script_open, open_others, open_afterwards, false},
    {"wait", "a waiter stands before its sleep; room comes", &small, false, "main",
     wait_arrange, open_and_resolve, script_wait, wait_others, it_holds_main, true},
};
/* clang-format on */

/* ---- one point ---- */

static void begin(const struct pair *p, struct scene *s)
{
    scene_open(s, *p->options, !p->unmade);
    bob_waits = false;
    if (p->arrange != NULL) p->arrange(s);
    stepped_start(&first, (struct stepped_role){p->prepare, p->script, s});
}

/* The first is at its end and among the living; then it dies too. */
static void judge(const struct pair *p, struct scene *s, size_t point)
{
    if (!first.done) scene_wrong(s, "the one that stood did not come to its end");
    if (p->afterwards != NULL) p->afterwards(s);
    scene_judge(s, p->key, point % 2 == 0);
    stepped_kill(&first);
    stepped_kill(&third);
    s->others = s->bare = 0;
    s->no_spare_key = false;
    for (uint32_t i = 0; i < s->key_count; i++) s->keys[i].besides = 0;
    if (s->entered[BOB]) scene_leave(s, BOB); /* Some of what he held was besides. */
    scene_judge(s, p->key, point % 2 != 0);
    scene_close(s);
}

static void report(const char *name, size_t point, const struct scene *s)
{
    if (!s->wrong || tally.wrong++ >= COMPLAINTS_MAX) return;
    stage_note("point %zu: %s", point, s->why);
    stage_note("replay: %s --pair %s --from %zu --to %zu", run.program, name, point,
               point);
}

static void one_point(const struct pair *p, const struct trace *t, size_t point)
{
    struct scene s;
    begin(p, &s);
    tally.points++;
    if (!stepped_reach(&first, t, 0, point)) tally.missed++;
    p->others(&s);
    if (p->to_its_sleep) {
        uint32_t timeouts = 0;
        if (!first.done) stepped_finish_counting(&first, &timeouts);
        if (timeouts != 0) {
            scene_wrong(&s, "it slept, though there was room");
            tally.slow++;
        }
    } else if (!first.done) {
        stepped_finish(&first);
    }
    judge(p, &s, point);
    report(p->name, point, &s);
}

/* ---- one pair ---- */

static void alice_leaves_early(void *arg)
{
    scene_release(arg, ALICE, "main", 1);
}

static bool learn(const struct pair *p, struct trace *out)
{
    struct scene s;
    begin(p, &s);
    stepped_trace(&first, out, p->to_its_sleep ? alice_leaves_early : NULL, &s);
    judge(p, &s, 0);
    if (s.wrong) stage_note("with nobody else: %s", s.why);
    return !s.wrong;
}

static void close_pair(const char *name, const char *sentence, bool learned,
                       int64_t began)
{
    double took = (double)(stage_now_ms() - began) / 1000.0;
    if (tally.missed > 0) stage_note("%zu points were not come by again", tally.missed);
    if (tally.left_out > 0)
        stage_note("no time for all of them: %zu more points were left out",
                   tally.left_out);
    bool enough = tally.missed * 10 <= tally.points;
    stage_ok(learned && enough && tally.wrong == 0 && tally.points > 0,
             "%s: %s: %zu stops, %zu wrong, %.1f s", name, sentence, tally.points,
             tally.wrong, took);
}

/* Whether the short run must go on to another. Who asks for one pair gets all of it. */
static bool out_of_time(int64_t began_ms)
{
    return !run.is_long && run.only == NULL && stage_now_ms() - began_ms > PAIR_MS;
}

static void run_pair(const struct pair *p)
{
    int64_t began = stage_now_ms();
    struct trace t;
    tally = (struct tally){0};
    bool learned = learn(p, &t);
    size_t last = p->to_its_sleep ? t.sleep : t.count - 1;
    if (t.count == 0 || last >= t.count) learned = false, last = 0;
    struct tour tour = tour_of(run.from, last < run.to ? last : run.to, run.stride);
    for (size_t i; tour_next(&tour, &i);) {
        if (tally.wrong >= WRONG_MAX || tally.slow >= SLOW_MAX) break;
        if (out_of_time(began)) tally.left_out++;
        else one_point(p, &t, i);
    }
    trace_free(&t);
    close_pair(p->name, p->sentence, learned, began);
}

/* ---- a releaser stands, a waiter sleeps ---- */

/* The third waits for what the first holds. It must be woken, not wake by itself. */
static uint32_t wake_once(struct scene *s, const struct trace *t, size_t point)
{
    uint32_t timeouts = 0;
    scene_open(s, small, true);
    stepped_start(&first, (struct stepped_role){hold_one, script_release, s});
    stepped_start(&third, (struct stepped_role){open_and_resolve, script_wait, s});
    if (!stepped_reach(&first, t, 0, point)) tally.missed++;
    bool sleeps = stepped_run_to_sleep(&third);
    if (!first.done) stepped_finish(&first);
    if (sleeps) {
        stepped_wake(&third);
        if (!third.done) stepped_finish_counting(&third, &timeouts);
    }
    if (!third.done || third.board->results[0] != 1)
        scene_wrong(s, "the waiter was answered %s",
                    sluice_status_word(third.board->results[0]));
    scene_besides(s, "main", 1);
    s->others = 2;
    scene_judge(s, "main", point % 2 == 0);
    stepped_kill(&first);
    stepped_kill(&third);
    s->others = 0;
    scene_besides(s, "main", 0);
    scene_judge(s, "main", point % 2 != 0);
    scene_close(s);
    return timeouts;
}

static void run_wake(void)
{
    int64_t began = stage_now_ms();
    struct trace t;
    struct scene s;
    tally = (struct tally){0};
    scene_open(&s, small, true);
    stepped_start(&first, (struct stepped_role){hold_one, script_release, &s});
    stepped_trace(&first, &t, NULL, NULL);
    stepped_kill(&first);
    scene_judge(&s, "main", true);
    scene_close(&s);
    struct tour tour = tour_of(run.from, t.count - 1 < run.to ? t.count - 1 : run.to,
                               0);
    for (size_t i; tour_next(&tour, &i) && tally.wrong < WRONG_MAX;) {
        if (out_of_time(began)) {
            tally.left_out++;
            continue;
        }
        uint32_t timeouts = 1;
        tally.points++;
        for (int tries = 0; tries < WAKE_TRIES && timeouts != 0; tries++)
            timeouts = wake_once(&s, &t, i);
        if (timeouts != 0)
            scene_wrong(&s, "the waiter was not woken, it woke by itself");
        report("wake", i, &s);
        if (timeouts != 0 && tally.wrong >= COMPLAINTS_MAX)
            break; /* Each lasts long. */
    }
    trace_free(&t);
    close_pair("wake", "a releaser stands; a waiter falls asleep", !s.wrong, began);
}

/* ---- the count of a name that somebody tries to reclaim ---- */

/* Just before it closes the key, the reclaimer stands, and Bob takes a unit of it. Then
 * the reclaimer goes on, and stands again when the key is closing. The unit counts. */
static void count_once(struct scene *s, const struct trace *t, size_t point)
{
    scene_open(s, two_keys, true);
    reclaim_arrange(s);
    uint32_t key = scene_key(s, "old");
    stepped_start(&first, (struct stepped_role){open_it, script_new, s});
    if (!stepped_reach(&first, t, 0, point)) tally.missed++;
    scene_acquire(s, BOB, "old", SCENE_ROOMY, 1);
    for (int i = 0; i < 400 && !first.done && key < two_keys.keys; i++) {
        uint64_t state = __atomic_load_n(&s->seg.keys[key].state, __ATOMIC_ACQUIRE);
        if (sl_key_state(state) == SL_KEY_CLOSING) {
            tally.points++;
            scene_judge_counts(s);
            break;
        }
        if (!stepped_step(&first)) break;
    }
    if (!first.done) stepped_finish(&first);
    s->others = s->bare = 1;
    s->no_spare_key = true;
    scene_judge(s, "kept", true);
    stepped_kill(&first);
    s->others = s->bare = 0;
    scene_judge(s, "kept", true);
    scene_close(s);
}

static void run_count(void)
{
    int64_t began = stage_now_ms();
    struct trace t = {0};
    struct scene s;
    tally = (struct tally){0};
    scene_open(&s, two_keys, true);
    reclaim_arrange(&s);
    stepped_start(&first, (struct stepped_role){open_it, script_new, &s});
    stepped_trace(&first, &t, NULL, NULL);
    stepped_kill(&first);
    scene_judge(&s, "kept", true);
    scene_close(&s);

    /* Where does it close the key? */
    scene_open(&s, two_keys, true);
    reclaim_arrange(&s);
    uint32_t key = scene_key(&s, "old");
    stepped_start(&first, (struct stepped_role){open_it, script_new, &s});
    size_t closing = 0;
    while (sl_key_state(__atomic_load_n(&s.seg.keys[key].state, __ATOMIC_ACQUIRE)) !=
           SL_KEY_CLOSING) {
        closing++;
        if (!stepped_step(&first)) stage_bail("the key was not closed");
    }
    stepped_kill(&first);
    scene_judge(&s, "kept", true);
    scene_close(&s);
    for (size_t i = closing > 60 ? closing - 60 : 0; i < closing; i++) {
        if (i < run.from || i > run.to) continue;
        count_once(&s, &t, i);
        report("count", i, &s);
    }
    trace_free(&t);
    close_pair("count", "a key is being closed; a unit of it counts", true, began);
}

/* ---- the run ---- */

static _Noreturn void usage(void)
{
    fprintf(stderr, "usage: stop [--short | --long] [--pair X] [--from N] [--to N] "
                    "[--stride N]\npairs:");
    for (size_t i = 0; i < sizeof pairs / sizeof pairs[0]; i++)
        fprintf(stderr, " %s", pairs[i].name);
    fprintf(stderr, " wake count\n");
    exit(2);
}

static void read_options(int argc, char **argv)
{
    run.program = argv[0];
    for (int i = 1; i < argc; i++) {
        const char *value = i + 1 < argc ? argv[i + 1] : NULL;
        if (strcmp(argv[i], "--short") == 0) continue;
        if (strcmp(argv[i], "--long") == 0) {
            run.is_long = true;
            continue;
        }
        if (value == NULL) usage();
        if (strcmp(argv[i], "--pair") == 0) run.only = value;
        else if (strcmp(argv[i], "--from") == 0) run.from = strtoul(value, NULL, 10);
        else if (strcmp(argv[i], "--to") == 0) run.to = strtoul(value, NULL, 10);
        else if (strcmp(argv[i], "--stride") == 0)
            run.stride = strtoul(value, NULL, 10);
        else usage();
        i++;
    }
}

static bool chosen(const char *name)
{
    return run.only == NULL || strcmp(name, run.only) == 0;
}

int main(int argc, char **argv)
{
    read_options(argc, argv);
    stage_open(run.is_long ? DEADLINE_LONG_S : DEADLINE_SHORT_S);
    scene_cast_start();
    find_moment(&took_three);
    find_moment(&gave_two);
    find_spot(&reaper_says);
    find_spot(&reaper_silent);
    find_spot(&claimer_silent);
    for (size_t i = 0; i < sizeof pairs / sizeof pairs[0]; i++)
        if (chosen(pairs[i].name)) run_pair(&pairs[i]);
    if (chosen("wake")) run_wake();
    if (chosen("count")) run_count();
    stage_close();
}
