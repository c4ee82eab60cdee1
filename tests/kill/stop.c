/* stop.c - K4, K5, K6: stop after every instruction, let others run, then go on.
 *
 *     stop [--short | --long] [--pair X] [--from N] [--to N] [--stride N]
 *          [--enough N] [--limit-ms N]
 *
 * --limit-ms leaves out points of a pair after that time, but never the first POINTS_MIN.
 *
 * A pair is two processes that meet. One is led to an instruction of its script and
 * stands there, for as long as the other needs for all it has to do; then it goes on.
 * Done for every instruction this is every schedule of the two with one change each
 * way, which is where most races are. Afterwards the living must find exactly what they
 * hold, as in step.c, and the one that stood is among the living. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "pairs.h"
#include "script.h"
#include "stage.h"

#define DEADLINE_SHORT_S 1500 /* Some forty seconds are usual. */
#define DEADLINE_LONG_S 14000
#define COMPLAINTS_MAX 3
#define SLOW_MAX 5 /* A pair is left after so many wrong points that last long. */

#define PAIR_MS 2200  /* The limit of the short run. */
#define POINTS_MIN 25 /* So many points a pair has, however long that takes. */

/* A woken sleeper may also just have been about to wake by itself. Not so often. */
#define WAKE_TRIES 5

static struct {
    bool is_long;
    const char *only;
    size_t from, to, stride;
    size_t enough;    /* After so many wrong points a pair has made its point. */
    int64_t limit_ms; /* The time for a pair; 0: no limit. */
    const char *program;
} run = {.to = SIZE_MAX, .enough = 100};

struct tally {
    size_t points, missed, wrong;
    size_t left_out; /* Points that the time did not suffice for. */
    size_t slow;     /* Of the wrong ones, those that lasted. */
};

static struct tally tally;

/* ---- one point ---- */

static void begin(const struct pair *p, struct scene *s)
{
    scene_open(s, *p->options, !p->unmade);
    pairs_begin();
    if (p->arrange != NULL) p->arrange(s);
    stepped_start(&pairs_first, (struct stepped_role){p->prepare, p->script, s});
}

/* The first is at its end and among the living; then it dies too. */
static void judge(const struct pair *p, struct scene *s, size_t point)
{
    if (!pairs_first.done) scene_wrong(s, "the one that stood did not come to its end");
    if (p->afterwards != NULL) p->afterwards(s);
    scene_judge(s, p->key, point % 2 == 0);
    stepped_kill(&pairs_first);
    stepped_kill(&pairs_third);
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
    if (!stepped_reach(&pairs_first, t, 0, point)) tally.missed++;
    p->others(&s);
    if (p->to_its_sleep) {
        uint32_t timeouts = 0;
        if (!pairs_first.done) stepped_finish_counting(&pairs_first, &timeouts);
        if (timeouts != 0) {
            scene_wrong(&s, "it slept, though there was room");
            tally.slow++;
        }
    } else if (!pairs_first.done) {
        stepped_finish(&pairs_first);
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
    stepped_trace(&pairs_first, out, p->to_its_sleep ? alice_leaves_early : NULL, &s);
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

static bool out_of_time(int64_t began_ms)
{
    return run.limit_ms != 0 && tally.points >= POINTS_MIN &&
           stage_now_ms() - began_ms > run.limit_ms;
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
        if (tally.wrong >= run.enough || tally.slow >= SLOW_MAX) break;
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
    scene_open(s, pairs_small, true);
    stepped_start(&pairs_first,
                  (struct stepped_role){script_hold_one, script_release, s});
    stepped_start(&pairs_third, (struct stepped_role){script_resolve, script_wait, s});
    if (!stepped_reach(&pairs_first, t, 0, point)) tally.missed++;
    bool sleeps = stepped_run_to_sleep(&pairs_third);
    if (!pairs_first.done) stepped_finish(&pairs_first);
    if (sleeps) {
        stepped_wake(&pairs_third);
        if (!pairs_third.done) stepped_finish_counting(&pairs_third, &timeouts);
    }
    if (!pairs_third.done || pairs_third.board->results[0] != 1)
        scene_wrong(s, "the waiter was answered %s",
                    sluice_status_word(pairs_third.board->results[0]));
    scene_besides(s, "main", 1);
    s->others = 2;
    scene_judge(s, "main", point % 2 == 0);
    stepped_kill(&pairs_first);
    stepped_kill(&pairs_third);
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
    scene_open(&s, pairs_small, true);
    stepped_start(&pairs_first,
                  (struct stepped_role){script_hold_one, script_release, &s});
    stepped_trace(&pairs_first, &t, NULL, NULL);
    stepped_kill(&pairs_first);
    scene_judge(&s, "main", true);
    scene_close(&s);
    struct tour tour = tour_of(run.from, t.count - 1 < run.to ? t.count - 1 : run.to,
                               0);
    for (size_t i; tour_next(&tour, &i) && tally.wrong < run.enough;) {
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
    scene_open(s, pairs_two_keys, true);
    pairs_reclaimable(s);
    uint32_t key = scene_key(s, "old");
    stepped_start(&pairs_first, (struct stepped_role){script_enter, pairs_make_new, s});
    if (!stepped_reach(&pairs_first, t, 0, point)) tally.missed++;
    scene_acquire(s, BOB, "old", SCENE_ROOMY, 1);
    for (int i = 0; i < 400 && !pairs_first.done && key < pairs_two_keys.keys; i++) {
        uint64_t state = __atomic_load_n(&s->seg.keys[key].state, __ATOMIC_ACQUIRE);
        if (sl_canal_key_state(state) == SL_CANAL_KEY_CLOSING) {
            tally.points++;
            scene_judge_counts(s);
            break;
        }
        if (!stepped_step(&pairs_first)) break;
    }
    if (!pairs_first.done) stepped_finish(&pairs_first);
    s->others = s->bare = 1;
    s->no_spare_key = true;
    scene_judge(s, "kept", true);
    stepped_kill(&pairs_first);
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
    scene_open(&s, pairs_two_keys, true);
    pairs_reclaimable(&s);
    stepped_start(&pairs_first,
                  (struct stepped_role){script_enter, pairs_make_new, &s});
    stepped_trace(&pairs_first, &t, NULL, NULL);
    stepped_kill(&pairs_first);
    scene_judge(&s, "kept", true);
    scene_close(&s);

    /* Where does it close the key? */
    scene_open(&s, pairs_two_keys, true);
    pairs_reclaimable(&s);
    uint32_t key = scene_key(&s, "old");
    stepped_start(&pairs_first,
                  (struct stepped_role){script_enter, pairs_make_new, &s});
    size_t closing = 0;
    while (sl_canal_key_state(__atomic_load_n(
               &s.seg.keys[key].state, __ATOMIC_ACQUIRE)) != SL_CANAL_KEY_CLOSING) {
        closing++;
        if (!stepped_step(&pairs_first)) stage_bail("the key was not closed");
    }
    stepped_kill(&pairs_first);
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
                    "[--stride N] [--enough N] [--limit-ms N]\npairs:");
    for (size_t i = 0; i < pair_count; i++) fprintf(stderr, " %s", pairs[i].name);
    fprintf(stderr, " wake count\n");
    exit(2);
}

static void read_options(int argc, char **argv)
{
    bool limited = false;
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
        else if (strcmp(argv[i], "--enough") == 0)
            run.enough = strtoul(value, NULL, 10);
        else if (strcmp(argv[i], "--limit-ms") == 0)
            run.limit_ms = strtol(value, NULL, 10), limited = true;
        else usage();
        i++;
    }
    /* Who asks for one pair gets all of it. */
    if (!limited && !run.is_long && run.only == NULL) run.limit_ms = PAIR_MS;
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
    pairs_prepare();
    for (size_t i = 0; i < pair_count; i++)
        if (chosen(pairs[i].name)) run_pair(&pairs[i]);
    if (chosen("wake")) run_wake();
    if (chosen("count")) run_count();
    stage_close();
}
