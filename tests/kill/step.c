/* step.c - K1, K2: kills a process after every instruction, and checks the state of the segment.
 *
 *     step [--short | --long] [--phase X] [--from N] [--to N] [--stride N]
 *          [--enough N] [--limit-ms N]
 *
 * --limit-ms skips the remaining points of a phase after that time, but never the first
 * POINTS_MIN.
 *
 * A phase is a script that calls the library in a separate process, the victim. For each
 * instruction of the script the test runs a victim to that instruction, may let other processes
 * use the segment, and kills the victim with SIGKILL, so that the kernel marks its robust mutexes
 * as for any dead owner. Afterwards the segment must count exactly the units that the surviving
 * processes hold, be consistent, and still work (scene.h). */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "canal/counter.h"
#include "scene.h"
#include "script.h"
#include "stage.h"
#include "stepped.h"
#include "sweep.h"

#define DEADLINE_SHORT_S 1500 /* The usual time is about 20 s. */
#define DEADLINE_LONG_S 14000
#define RESULTS_MAX 8
#define PHASE_MS 5000 /* The limit of the short run. It does not apply to phase c. */
#define POINTS_MIN 25 /* The minimum of each phase, however long it takes. */
#define NESTED_MIN 2  /* The same for each moment of phase n. */
#define MOMENTS 25    /* Each moment of phase n gets limit_ms / MOMENTS. */
#define NESTED_STRIDE 11
#define GRANT_WITHIN_MS 2000 /* The guarantee is 150 ms; a busy machine needs more. */
#define SLEEP_MS 6000        /* The timeout of a sleeper that is not woken. */

static const struct sluice_canal_options small = {.keys = 8, .slots = 4, .records = 32};
static const struct sluice_canal_options two_slots = {
    .keys = 8, .slots = 2, .records = 32};
static const struct sluice_canal_options many_keys = {
    .keys = 16, .slots = 4, .records = 32};

struct phase {
    const char *letter;
    const char *sentence;
    const struct sluice_canal_options *options;
    bool unmade;                        /* The script creates the segment. */
    const char *key;                    /* The key that the survivors acquire. */
    void (*arrange)(struct scene *s);   /* Before the victim starts. */
    void (*prepare)(void *arg);         /* In the victim, at full speed. */
    void (*script)(void *arg);          /* In the victim, step by step. */
    void (*meanwhile)(struct scene *s); /* While the victim is stopped. */
    void (*on_sleep)(void *scene);      /* While the victim sleeps. */
    int64_t results[RESULTS_MAX];       /* The replies if the script runs to its end. */
    uint32_t result_count;
};

/* ---- scripts, which run in the victim ---- */

static void b_first_use(void *scene)
{
    (void)scene;
    script_acquire("main", 5, 2);
    stepped_tell(sluice_canal_release(script_canal, "main", 1));
}

static void c_by_handle(void *scene)
{
    (void)scene;
    script_take(5, 1);
    script_take(5, 3);
    script_give(1);
    script_take(5, 3);
    script_give(2);
    script_take(5, 3);
}

static void d_take_over(void *scene)
{
    (void)scene;
    script_acquire("main", 5, 1);
    stepped_tell(sluice_canal_release(script_canal, "main", 1));
}

static void f_hold(void *scene)
{
    struct sluice_want two = {.units = 2};
    script_resolve(scene);
    if (sluice_key_acquire(script_handle, script_capacity(5), &two) < 2) _exit(3);
    if (sluice_canal_acquire(script_canal, "other", script_capacity(5), NULL) != 1)
        _exit(3);
}

static void f_leave(void *scene)
{
    (void)scene;
    sluice_canal_close(script_canal);
    stepped_tell(0);
}

static void g_reclaim(void *scene)
{
    (void)scene;
    script_acquire("new", 2, 1);
    script_acquire("newer", 2, 1);
    stepped_tell(sluice_canal_release(script_canal, "new", 1));
}

static void h_rebind(void *scene)
{
    (void)scene;
    script_acquire("n8", 5, 2);
    script_acquire("n0", 5, 1);
    stepped_tell(sluice_canal_release(script_canal, "n8", 2));
    script_acquire("n9", 5, 1);
}

/* ---- other processes ---- */

static void alice_holds_one(struct scene *s)
{
    scene_acquire(s, ALICE, "main", SCENE_ROOMY, 1);
}

static void a_another_boot(struct scene *s)
{
    alice_holds_one(s);
    scene_leave(s, ALICE);
    s->seg.header->boot[0] ^= 1u;
}

static void b_somebody_else(struct scene *s)
{
    scene_acquire(s, ALICE, "other", SCENE_ROOMY, 1);
}

static void c_overwrite(struct scene *s)
{
    scene_acquire(s, ALICE, "main", SCENE_ROOMY, 1);
}

static void c_overwrite_often(struct scene *s)
{
    scene_acquire(s, ALICE, "main", SCENE_ROOMY, 1);
    scene_acquire(s, BOB, "main", SCENE_ROOMY, 2);
    scene_release(s, ALICE, "main", 1);
    scene_acquire(s, ALICE, "main", SCENE_ROOMY, 3);
    scene_release(s, BOB, "main", 1);
}

static void c_dave_holds(struct scene *s)
{
    scene_dave_takes(s, "main", 1);
}

static void c_dave_is_reaped(struct scene *s)
{
    scene_dave_dies(s);
    scene_enter(s, ALICE);
    int64_t freed = actor_reap(&scene_cast[ALICE]);
    if (freed != 1) scene_wrong(s, "reaping Dave freed %" PRId64, freed);
}

static void c_nearly_full(struct scene *s)
{
    scene_acquire(s, ALICE, "main", SCENE_ROOMY, 4);
}

static void d_dave_is_dead(struct scene *s)
{
    alice_holds_one(s);
    scene_dave_takes(s, "main", 2);
    scene_dave_takes(s, "other", 1);
    scene_dave_dies(s);
}

static void e_alice_has_all(struct scene *s)
{
    scene_acquire(s, ALICE, "main", 1, 1);
}

static void e_alice_releases(void *arg)
{
    scene_release(arg, ALICE, "main", 1);
}

static void g_fill_the_table(struct scene *s)
{
    char name[ACTOR_KEY_MAX];
    scene_acquire(s, ALICE, "kept", SCENE_ROOMY, 1);
    for (unsigned i = 1; i < small.keys; i++) {
        snprintf(name, sizeof name, "idle%u", i);
        scene_touch(s, ALICE, name);
    }
    scene_besides(s, "new", 0);
    scene_besides(s, "newer", 0);
}

static void h_make_names(struct scene *s)
{
    char name[ACTOR_KEY_MAX];
    for (unsigned i = 0; i < 10; i++) {
        snprintf(name, sizeof name, "n%u", i);
        scene_touch(s, ALICE, name);
    }
    scene_acquire(s, ALICE, "n0", SCENE_ROOMY, 1);
}

static void h_overwrite(struct scene *s)
{
    scene_acquire(s, ALICE, "n8", SCENE_ROOMY, 1);
    scene_acquire(s, ALICE, "n0", SCENE_ROOMY, 1);
}

/* clang-format off */
static const struct phase phases[] = {
    {.letter = "a1", .sentence = "open of a new segment", .options = &small, .unmade = true,
     .key = "main", .script = script_open,
     .results = {0}, .result_count = 1},
    {.letter = "a2", .sentence = "open over another boot's segment", .options = &small,
     .key = "main", .arrange = a_another_boot, .script = script_open,
     .results = {0}, .result_count = 1},
    {.letter = "b", .sentence = "attach and first use of a key", .options = &small,
     .key = "main", .arrange = b_somebody_else, .prepare = script_enter, .script = b_first_use,
     .results = {2, 0}, .result_count = 2},
    {.letter = "c1", .sentence = "acquire and release, alone", .options = &small,
     .key = "main", .prepare = script_resolve, .script = c_by_handle,
     .results = {1, 4, 0, SLUICE_EFULL, 0, 4}, .result_count = 6},
    {.letter = "c2", .sentence = "acquire and release, overwritten", .options = &small,
     .key = "main", .prepare = script_resolve, .script = c_by_handle,
     .meanwhile = c_overwrite,
     .results = {1, 4, 0, SLUICE_EFULL, 0, 4}, .result_count = 6},
    {.letter = "c3", .sentence = "acquire and release, overwritten often", .options = &small,
     .key = "main", .prepare = script_resolve, .script = c_by_handle,
     .meanwhile = c_overwrite_often,
     .results = {1, 4, 0, SLUICE_EFULL, 0, 4}, .result_count = 6},
    {.letter = "c4", .sentence = "acquire and release, overwritten by a drain", .options = &small,
     .key = "main", .arrange = c_dave_holds, .prepare = script_resolve,
     .script = c_by_handle, .meanwhile = c_dave_is_reaped,
     .results = {2, 5, 0, SLUICE_EFULL, 0, 5}, .result_count = 6},
    {.letter = "c5", .sentence = "acquire and release, nearly full", .options = &small,
     .key = "main", .arrange = c_nearly_full, .prepare = script_resolve,
     .script = c_by_handle,
     .results = {5, SLUICE_EFULL, 0, SLUICE_EFULL, SLUICE_ENOTHELD, SLUICE_EFULL},
     .result_count = 6},
    {.letter = "d", .sentence = "taking the slot of a dead holder over", .options = &two_slots,
     .key = "main", .arrange = d_dave_is_dead, .prepare = script_enter, .script = d_take_over,
     .results = {2, 0}, .result_count = 2},
    {.letter = "e1", .sentence = "a sleeping acquire and its wake", .options = &small,
     .key = "main", .arrange = e_alice_has_all, .prepare = script_resolve,
     .script = script_wait, .on_sleep = e_alice_releases,
     .results = {1}, .result_count = 1},
    {.letter = "f", .sentence = "closing while holding", .options = &small,
     .key = "main", .arrange = alice_holds_one, .prepare = f_hold, .script = f_leave,
     .results = {0}, .result_count = 1},
    {.letter = "g", .sentence = "reclaiming keys for new names", .options = &small,
     .key = "kept", .arrange = g_fill_the_table, .prepare = script_enter, .script = g_reclaim,
     .results = {1, 1, 0}, .result_count = 3},
    {.letter = "h", .sentence = "rebinding records", .options = &many_keys,
     .key = "n8", .arrange = h_make_names, .prepare = script_bind_all, .script = h_rebind,
     .meanwhile = h_overwrite,
     .results = {2, 2, 0, 1}, .result_count = 4},
};
/* clang-format on */

/* ---- one point ---- */

static void begin(const struct phase *p, struct scene *s, struct stepped *victim)
{
    scene_open(s, *p->options, !p->unmade);
    if (p->arrange != NULL) p->arrange(s);
    stepped_start(victim, (struct stepped_role){p->prepare, p->script, s});
}

/* Run the victim to a point. If the point is after the sleep of the script, wake it first. */
static bool lead(const struct phase *p, struct scene *s, struct stepped *victim,
                 const struct trace *t, size_t point)
{
    if (p->on_sleep == NULL || point <= t->sleep)
        return stepped_reach(victim, t, 0, point);
    if (!stepped_reach(victim, t, 0, t->sleep)) return false;
    stepped_sleep(victim);
    if (point == t->count) return true; /* The last point: killed while it sleeps. */
    p->on_sleep(s);
    stepped_wake(victim);
    return stepped_reach(victim, t, t->sleep + 1, point);
}

static void one_point(const struct phase *p, const struct trace *t, size_t point,
                      struct sweep *w)
{
    static struct stepped victim;
    struct scene s;
    begin(p, &s, &victim);
    w->points++;
    if (!lead(p, &s, &victim, t, point)) w->missed++;
    if (p->meanwhile != NULL) p->meanwhile(&s);
    stepped_kill(&victim);
    scene_judge(&s, p->key, point % 2 == 0);
    scene_close(&s);
    sweep_report(w, point, point, NULL, &s);
}

/* ---- one phase ---- */

/* Run a victim through the whole script to record its trace, and check the replies. */
static bool learn(const struct phase *p, struct trace *out)
{
    static struct stepped victim;
    struct scene s;
    begin(p, &s, &victim);
    stepped_trace(&victim, out, p->on_sleep, &s);
    if (!victim.done) scene_wrong(&s, "the script did not come to its end");
    for (uint32_t i = 0; i < p->result_count; i++)
        if (victim.board->count != p->result_count ||
            victim.board->results[i] != p->results[i])
            scene_wrong(&s, "answer %u of %u: %" PRId64 ", not %" PRId64, i + 1,
                        victim.board->count, victim.board->results[i], p->results[i]);
    stepped_kill(&victim);
    scene_judge(&s, p->key, true);
    scene_close(&s);
    if (s.wrong) stage_note("let run to its end: %s", s.why);
    return !s.wrong;
}

static void end_phase(const struct sweep *w, const char *sentence, bool learned)
{
    char title[128];
    snprintf(title, sizeof title, "%s phase %s, %s", w->name[0] == 'n' ? "K2" : "K1",
             w->name, sentence);
    sweep_end(w, learned, "kill points", title);
}

static void run_phase(const struct phase *p)
{
    struct sweep w = sweep_begin(p->letter);
    struct trace t;
    bool learned = learn(p, &t);
    size_t last = t.sleep == SIZE_MAX ? t.count - 1 : t.count;
    if (last > sweep_options.to) last = sweep_options.to;
    if (sweep_options.is_long) stage_note("phase %s: %zu points", p->letter, last + 1);
    struct tour tour = tour_of(sweep_options.from, last, sweep_options.stride);
    size_t min = p->letter[0] == 'c' ? SIZE_MAX : POINTS_MIN;
    for (size_t i; sweep_next(&w, &tour, min, &i);) one_point(p, &t, i, &w);
    trace_free(&t);
    end_phase(&w, p->sentence, learned);
}

/* ---- phase e2: the releaser dies while a waiter sleeps ---- */

/* The number of scenes that run at once, since each takes as long as a sleep. */
#define SLEEPERS 16

static struct actor sleepers[SLEEPERS];

struct bedroom {
    struct scene scene;
    struct stepped victim;
    struct actor *sleeper;
    size_t point;
    int64_t died_ms;
};

static const struct phase e2 = {
    .letter = "e2",
    .sentence = "a release and its wake, while another sleeps",
    .options = &small,
    .key = "main",
    .prepare = script_hold_one,
    .script = script_release,
    .results = {0},
    .result_count = 1,
};

/* Let the sleeper wait for the key. It announces its sleep in `wake` and sleeps a moment later. The
 * victim may move before it sleeps, which is a valid case too. */
static void go_to_bed(struct bedroom *b)
{
    struct scene *s = &b->scene;
    int64_t until = stage_now_ms() + 10000;
    if (actor_open(b->sleeper, s->path, s->options) != SLUICE_OK)
        scene_wrong(s, "the sleeper cannot open");
    actor_acquire_later(b->sleeper, "main", 1, 1, SLEEP_MS);
    uint32_t key = scene_key(s, "main");
    if (key == UINT32_MAX) {
        scene_wrong(s, "no key to sleep for");
        return;
    }
    while ((__atomic_load_n(&s->seg.keys[key].wake, __ATOMIC_ACQUIRE) & 1u) == 0) {
        if (stage_now_ms() > until) {
            scene_wrong(s, "the sleeper does not sleep");
            return;
        }
        usleep(50);
    }
    usleep(200);
}

static void get_up(struct bedroom *b, struct sweep *w, int64_t *slowest_ms)
{
    struct scene *s = &b->scene;
    struct actor_answer answer;
    int64_t nth = actor_answer(b->sleeper, 2 * SLEEP_MS, &answer);
    int64_t took = (nth == ACTOR_SILENT ? stage_now_ms() : answer.at_ms) - b->died_ms;
    if (took > *slowest_ms) *slowest_ms = took;
    if (nth != 1) scene_wrong(s, "the sleeper was answered %" PRId64, nth);
    if (took > GRANT_WITHIN_MS)
        scene_wrong(s, "the sleeper was granted %" PRId64 " ms after the kill", took);
    if (nth == ACTOR_SILENT) {
        actor_kill(b->sleeper);
        *b->sleeper = actor_start();
    } else {
        scene_besides(s, "main", 1);
        s->others = 1;
        scene_judge(s, "main", b->point % 2 == 0);
        actor_close(b->sleeper);
    }
    scene_close(s);
    sweep_report(w, b->point, b->point, NULL, s);
}

static void run_e2(void)
{
    static struct bedroom bedrooms[SLEEPERS];
    int64_t slowest = 0;
    struct sweep w = sweep_begin(e2.letter);
    struct trace t;
    if (sleepers[0].pid == 0)
        for (int i = 0; i < SLEEPERS; i++) sleepers[i] = actor_start();

    /* Record the trace with a sleeper. */
    struct bedroom *first = &bedrooms[0];
    begin(&e2, &first->scene, &first->victim);
    first->sleeper = &sleepers[0];
    go_to_bed(first);
    stepped_trace(&first->victim, &t, NULL, NULL);
    stepped_kill(&first->victim);
    first->died_ms = stage_now_ms();
    get_up(first, &w, &slowest);
    bool learned = !first->scene.wrong;

    size_t at = sweep_options.from;
    while (at < t.count && at <= sweep_options.to && w.wrong == 0) {
        int n = 0;
        for (; n < SLEEPERS && at < t.count && at <= sweep_options.to; n++, at++) {
            struct bedroom *b = &bedrooms[n];
            b->point = at;
            b->sleeper = &sleepers[n];
            begin(&e2, &b->scene, &b->victim);
            go_to_bed(b);
            w.points++;
            if (!stepped_reach(&b->victim, &t, 0, at)) w.missed++;
            stepped_kill(&b->victim);
            b->died_ms = stage_now_ms();
        }
        for (int i = 0; i < n; i++) get_up(&bedrooms[i], &w, &slowest);
    }
    trace_free(&t);
    stage_note("the slowest grant came %" PRId64 " ms after the kill", slowest);
    end_phase(&w, e2.sentence, learned);
}

/* ---- phase n: the first reaper is killed too ---- */

/* The points of a victim at which the content of the segment has changed. */
struct moments {
    size_t points[2048];
    size_t count;
};

static uint64_t fingerprint(const struct sl_canal_segment *seg)
{
    const uint64_t *words = (const uint64_t *)(const void *)seg->header;
    uint64_t h = 0;
    for (size_t i = 0; i < seg->bytes / sizeof *words; i++)
        h = (h ^ words[i]) * 0x100000001b3ull;
    return h;
}

static struct moments find_moments(const struct phase *p)
{
    static struct stepped victim;
    struct scene s;
    struct moments m = {0};
    uint64_t last = 0;
    begin(p, &s, &victim);
    for (size_t i = 0;; i++) {
        uint64_t now = fingerprint(&s.seg);
        if (i == 0 || now != last) {
            if (m.count == sizeof m.points / sizeof m.points[0])
                stage_bail("too many moments");
            m.points[m.count++] = i;
        }
        last = now;
        if (!stepped_step(&victim)) break;
    }
    stepped_kill(&victim);
    scene_close(&s);
    return m;
}

/* Kill the victim at one of its moments, and start the reaper. */
static void begin_nested(const struct phase *p, const struct trace *t, size_t moment,
                         struct scene *s, struct stepped *reaper)
{
    static struct stepped victim;
    begin(p, s, &victim);
    lead(p, s, &victim, t, moment);
    if (p->meanwhile != NULL) p->meanwhile(s);
    stepped_kill(&victim);
    stepped_start(reaper, (struct stepped_role){script_enter, script_reap, s});
}

static void nested_moment(const struct phase *p, const struct trace *t, size_t moment,
                          size_t stride, struct sweep *w)
{
    static struct stepped reaper;
    struct scene s;
    struct trace way;
    begin_nested(p, t, moment, &s, &reaper);
    stepped_trace(&reaper, &way, NULL, NULL);
    stepped_kill(&reaper);
    scene_judge(&s, p->key, true);
    scene_close(&s);
    sweep_report(w, moment, moment, NULL, &s);
    int64_t began = stage_now_ms();
    size_t before = w->points;
    /* A different offset for each moment, so that the moments together cover all points. */
    size_t offset = moment % stride;
    struct tour tour = tour_of(0, way.count / stride, 0);
    for (size_t i; tour_next(&tour, &i) && w->wrong < sweep_options.enough;) {
        size_t j = offset + i * stride;
        if (j >= way.count) continue;
        if (!sweep_has_time(w, began, sweep_options.limit_ms / MOMENTS,
                            w->points - before, NESTED_MIN))
            continue;
        begin_nested(p, t, moment, &s, &reaper);
        w->points++;
        if (!stepped_reach(&reaper, &way, 0, j)) w->missed++;
        stepped_kill(&reaper);
        scene_judge(&s, p->key, j % 2 == 0);
        scene_close(&s);
        sweep_report(w, j, moment, " --stride 1", &s);
    }
    trace_free(&way);
}

static void run_nested(void)
{
    struct sweep w = sweep_begin("n");
    bool learned = true;
    size_t moments = 0;
    size_t stride = sweep_options.stride != 0 ? sweep_options.stride
                    : sweep_options.is_long   ? 1
                                              : NESTED_STRIDE;
    for (size_t i = 0; i < sizeof phases / sizeof phases[0]; i++) {
        const struct phase *p = &phases[i];
        bool in_short = strcmp(p->letter, "c1") == 0 || strcmp(p->letter, "c2") == 0 ||
                        strcmp(p->letter, "f") == 0;
        /* A reaper has nothing to do in a segment that is being created. Phases with a sleep
         * would take too long. */
        bool in_long = p->letter[0] != 'a' && p->on_sleep == NULL;
        bool in = sweep_options.is_long ? in_long : in_short;
        if (!in) continue;
        struct trace t;
        learned &= learn(p, &t);
        static struct moments m;
        m = find_moments(p);
        for (size_t k = 0; k < m.count && w.wrong < sweep_options.enough; k++) {
            if (m.points[k] < sweep_options.from || m.points[k] > sweep_options.to)
                continue;
            moments++;
            if (m.points[k] < t.count) nested_moment(p, &t, m.points[k], stride, &w);
        }
        if (sweep_options.is_long)
            stage_note("after %s: %zu nested points", p->letter, w.points);
        trace_free(&t);
    }
    stage_note("%zu moments of victims", moments);
    end_phase(&w, "the first reaper is killed too", learned);
}

/* ---- the run ---- */

/* "c" selects c1, c2 and so on. */
static bool chosen(const char *letter)
{
    return sweep_options.only == NULL ||
           strncmp(letter, sweep_options.only, strlen(sweep_options.only)) == 0;
}

int main(int argc, char **argv)
{
    sweep_read_options(
        argc, argv, "--phase",
        "step [--short | --long] [--phase a1|...|e2|n] [--from N] [--to N] "
        "[--stride N] [--enough N] [--limit-ms N]",
        200, PHASE_MS);
    stage_open(sweep_options.is_long ? DEADLINE_LONG_S : DEADLINE_SHORT_S);
    scene_cast_start();
    for (size_t i = 0; i < sizeof phases / sizeof phases[0]; i++)
        if (chosen(phases[i].letter)) run_phase(&phases[i]);
    if (chosen("e2")) run_e2();
    if (chosen("n")) run_nested();
    stage_close();
}
