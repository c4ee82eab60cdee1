/* stop.c - K4, K5, K6: stops a process after every instruction, lets others run, and continues it.
 *
 *     stop [--short | --long] [--pair X] [--from N] [--to N] [--stride N]
 *          [--enough N] [--limit-ms N]
 *
 * --limit-ms skips the remaining points of a pair after that time, but never the first POINTS_MIN.
 *
 * A pair is two processes that use the same segment. The test stops the first process at an
 * instruction of its script, lets the second one run its whole script, and continues the first one.
 * Over all instructions this covers every schedule of the two with one switch each way, which finds
 * most races. Afterwards the segment must count exactly the units that the living processes hold,
 * as in step.c; the first process is one of them. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "pairs.h"
#include "script.h"
#include "stage.h"
#include "sweep.h"

#define DEADLINE_SHORT_S 1500 /* The usual time is about 40 s. */
#define DEADLINE_LONG_S 14000
#define SLOW_MAX 5 /* Skip the rest of a pair after this many slow failures. */

#define PAIR_MS 1200  /* The limit of the short run. */
#define POINTS_MIN 25 /* The minimum of each pair, however long it takes. */

/* A sleeper may time out just before it is woken. That does not happen this many times in a row. */
#define WAKE_TRIES 5

/* ---- one point ---- */

static void begin(const struct pair *p, struct scene *s)
{
    scene_open(s, *p->options, !p->unmade);
    pairs_begin();
    if (p->arrange != NULL) p->arrange(s);
    stepped_start(&pairs_first, (struct stepped_role){p->prepare, p->script, s});
}

/* The first process has finished its script and is alive. Check the segment; kill it; check again. */
static void judge(const struct pair *p, struct scene *s, size_t point)
{
    if (!pairs_first.done) scene_wrong(s, "the stopped process did not finish");
    if (p->afterwards != NULL) p->afterwards(s);
    scene_judge(s, p->key, point % 2 == 0);
    stepped_kill(&pairs_first);
    stepped_kill(&pairs_third);
    s->others = s->bare = 0;
    s->no_spare_key = false;
    for (uint32_t i = 0; i < s->key_count; i++) s->keys[i].besides = 0;
    if (s->entered[BOB]) scene_leave(s, BOB); /* Some of its units were in `besides`. */
    scene_judge(s, p->key, point % 2 != 0);
    scene_close(s);
}

static void one_point(const struct pair *p, const struct trace *t, size_t point,
                      struct sweep *w)
{
    struct scene s;
    begin(p, &s);
    w->points++;
    if (!stepped_reach(&pairs_first, t, 0, point)) w->missed++;
    p->others(&s);
    if (p->to_its_sleep) {
        uint32_t timeouts = 0;
        if (!pairs_first.done) stepped_finish_counting(&pairs_first, &timeouts);
        if (timeouts != 0) {
            scene_wrong(&s, "it slept although capacity was free");
            w->slow++;
        }
    } else if (!pairs_first.done) {
        stepped_finish(&pairs_first);
    }
    judge(p, &s, point);
    sweep_report(w, point, point, NULL, &s);
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
    if (s.wrong) stage_note("without another process: %s", s.why);
    return !s.wrong;
}

static void end_pair(const struct sweep *w, const char *sentence, bool learned)
{
    char title[128];
    snprintf(title, sizeof title, "%s: %s", w->name, sentence);
    sweep_end(w, learned, "stops", title);
}

static void run_pair(const struct pair *p)
{
    struct sweep w = sweep_begin(p->name);
    struct trace t;
    bool learned = learn(p, &t);
    size_t last = p->to_its_sleep ? t.sleep : t.count - 1;
    if (t.count == 0 || last >= t.count) learned = false, last = 0;
    if (last > sweep_options.to) last = sweep_options.to;
    struct tour tour = tour_of(sweep_options.from, last, sweep_options.stride);
    for (size_t i; w.slow < SLOW_MAX && sweep_next(&w, &tour, POINTS_MIN, &i);)
        one_point(p, &t, i, &w);
    trace_free(&t);
    end_pair(&w, p->sentence, learned);
}

/* ---- a releaser is stopped, a waiter sleeps ---- */

/* The third process waits for the unit of the first. It must be woken, not time out. */
static uint32_t wake_once(struct scene *s, const struct trace *t, size_t point,
                          struct sweep *w)
{
    uint32_t timeouts = 0;
    scene_open(s, pairs_small, true);
    stepped_start(&pairs_first,
                  (struct stepped_role){script_hold_one, script_release, s});
    stepped_start(&pairs_third, (struct stepped_role){script_resolve, script_wait, s});
    if (!stepped_reach(&pairs_first, t, 0, point)) w->missed++;
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
    struct sweep w = sweep_begin("wake");
    struct trace t;
    struct scene s;
    scene_open(&s, pairs_small, true);
    stepped_start(&pairs_first,
                  (struct stepped_role){script_hold_one, script_release, &s});
    stepped_trace(&pairs_first, &t, NULL, NULL);
    stepped_kill(&pairs_first);
    scene_judge(&s, "main", true);
    scene_close(&s);
    size_t last = t.count - 1 < sweep_options.to ? t.count - 1 : sweep_options.to;
    struct tour tour = tour_of(sweep_options.from, last, 0);
    for (size_t i; w.slow < SLOW_MAX && sweep_next(&w, &tour, POINTS_MIN, &i);) {
        uint32_t timeouts = 1;
        w.points++;
        for (int tries = 0; tries < WAKE_TRIES && timeouts != 0; tries++)
            timeouts = wake_once(&s, &t, i, &w);
        if (timeouts != 0) {
            scene_wrong(&s, "the waiter was not woken; its sleep timed out");
            w.slow++;
        }
        sweep_report(&w, i, i, NULL, &s);
    }
    trace_free(&t);
    end_pair(&w, "a releaser is stopped; a waiter sleeps", !s.wrong);
}

/* ---- the count of a key that is being reclaimed ---- */

/* The reclaimer stops just before it closes the key, and Bob acquires a unit of the key. Then the
 * reclaimer continues, and stops again when the key is closing. The unit must count. */
static void count_once(struct scene *s, const struct trace *t, size_t point,
                       struct sweep *w)
{
    scene_open(s, pairs_two_keys, true);
    pairs_reclaimable(s);
    uint32_t key = scene_key(s, "old");
    stepped_start(&pairs_first, (struct stepped_role){script_enter, pairs_make_new, s});
    if (!stepped_reach(&pairs_first, t, 0, point)) w->missed++;
    scene_acquire(s, BOB, "old", SCENE_ROOMY, 1);
    for (int i = 0; i < 400 && !pairs_first.done && key < pairs_two_keys.keys; i++) {
        uint64_t state = __atomic_load_n(&s->seg.keys[key].state, __ATOMIC_ACQUIRE);
        if (sl_canal_key_state(state) == SL_CANAL_KEY_CLOSING) {
            w->points++;
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
    struct sweep w = sweep_begin("count");
    struct trace t = {0};
    struct scene s;
    scene_open(&s, pairs_two_keys, true);
    pairs_reclaimable(&s);
    stepped_start(&pairs_first,
                  (struct stepped_role){script_enter, pairs_make_new, &s});
    stepped_trace(&pairs_first, &t, NULL, NULL);
    stepped_kill(&pairs_first);
    scene_judge(&s, "kept", true);
    scene_close(&s);

    /* Find the step that closes the key. */
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
        if (i < sweep_options.from || i > sweep_options.to) continue;
        count_once(&s, &t, i, &w);
        sweep_report(&w, i, i, NULL, &s);
    }
    trace_free(&t);
    end_pair(&w, "a key is being closed; a unit of it counts", true);
}

/* ---- the run ---- */

static bool chosen(const char *name)
{
    return sweep_options.only == NULL || strcmp(name, sweep_options.only) == 0;
}

int main(int argc, char **argv)
{
    sweep_read_options(
        argc, argv, "--pair",
        "stop [--short | --long] [--pair X|wake|count] [--from N] [--to N] "
        "[--stride N] [--enough N] [--limit-ms N]",
        100, PAIR_MS);
    stage_open(sweep_options.is_long ? DEADLINE_LONG_S : DEADLINE_SHORT_S);
    scene_cast_start();
    pairs_prepare();
    for (size_t i = 0; i < pair_count; i++)
        if (chosen(pairs[i].name)) run_pair(&pairs[i]);
    if (chosen("wake")) run_wake();
    if (chosen("count")) run_count();
    stage_close();
}
