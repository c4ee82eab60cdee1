/* kills.c - `sluice run` under random kills: never more in than fit, nothing is lost.
 *
 *     kills [--short | --long] [--kills N] [--seed N] [--sluice PATH]
 *
 * In each scene wrappers are started over and over on one key, and killed at a random
 * time: when they start, wait, have the permit and not yet a child, when the child has not
 * yet executed the command, while the command runs, when it has ended. The command goes
 * on; while it lives, nobody else may have its permit. In the later scenes commands are
 * killed as well. What is judged, and why it is never a false alarm: board.h.
 *
 * At random times most wrappers wait or have a command that runs; the moments between are
 * short. So some runs have keys that hardly anybody else uses (solo), and their kills are
 * aimed at the time that a run takes to begin, and at its end. Where each kill fell is
 * counted, and every stage must have been met. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "crew.h"
#include "options.h"
#include "stage.h"

#define SOLO_KEYS 4u /* Keys 1 to 4; key 0 is everybody's. */
#define SOLO_LAST 16u
#define KILL_MAX_MS 40
#define LIVE_MAX_MS 20
#define SCENE_KILLS_MAX 1500u
#define BAD_MAX 3u                 /* Scenes; then it is clear. */
#define MORE_NS (400000 * CREW_MS) /* For stages that were not met often enough. */

struct scene {
    const char *name;
    uint32_t crowd; /* Wrappers at one time. */
    enum crew_kind kind;
    uint32_t per, buckets;
    bool mixed;    /* Shared and exclusive; or every capacity up to per. */
    bool commands; /* Are killed as well. */
    bool made;     /* The segment is there before the first run. */
    uint32_t full; /* So many were in at once, or the scene has shown little. */
};

/* clang-format off */
static const struct scene scenes[] = {
    {"exclusive",                   6, EXCLUSIVE, 0, 0, false, false, true,  1},
    {"-j 1",                        6, COUNTING,  1, 0, false, false, false, 1},
    {"-j 3",                        8, COUNTING,  3, 0, false, false, true,  3},
    {"-j 2 --buckets 2",           10, COUNTING,  2, 2, false, false, false, 4},
    {"-j 1 to 4",                   8, COUNTING,  4, 0, true,  false, true,  2},
    {"-s and -x",                   8, SHARED,    0, 0, true,  false, true,  3},
    {"exclusive, commands killed",  6, EXCLUSIVE, 0, 0, false, true,  false, 1},
    {"-j 3, commands killed",       8, COUNTING,  3, 0, false, true,  true,  3},
    {"-s and -x, commands killed",  8, SHARED,    0, 0, true,  true,  true,  3},
};
/* clang-format on */
#define SCENES (sizeof scenes / sizeof scenes[0])

/* A stage that was met so often has been tried. */
static const uint32_t enough[STAGES] = {
    [STARTING] = 30, [WAITING] = 50,  [GRANTED] = 5,
    [FORKED] = 20,   [RUNNING] = 100, [AFTER] = 10,
};

/* Few slots: those of the dead are needed. */
static const struct sluice_canal_options small = {
    .keys = 64, .slots = 64, .records = 512};

static uint32_t solo[SOLO_LAST]; /* The last solo runs of the scene. */
static uint32_t solos;

static int64_t pick_ns(int64_t below)
{
    return below <= 0 ? 0 : (int64_t)crew_pick((uint32_t)(below / 1000)) * 1000;
}

/* How long a run took of late from its start until its command began. */
static int64_t beginning_ns(void)
{
    int64_t sum = 0, count = 0;
    for (uint32_t i = 0; i < SOLO_LAST && i < solos; i++) {
        const struct board_run *line = &crew.board->run[solo[i]];
        int64_t begin = __atomic_load_n(&line->process[WITNESS].begin_ns,
                                        __ATOMIC_ACQUIRE);
        if (begin == 0) continue;
        sum += begin - crew.run[solo[i]].fork_ns;
        count++;
    }
    return count == 0 ? 4 * CREW_MS : sum / count;
}

/* A run on a key of its own, to be killed at its beginning or at its end. */
static struct crew_order draw_solo(void)
{
    struct crew_order o = {.key = 1 + solos % SOLO_KEYS,
                           .kind = EXCLUSIVE,
                           .wait_ms = CREW_FOREVER,
                           .live_ns = CREW_MS};
    switch (crew_pick(8)) {
        case 0: break; /* Left alone: tells how long a beginning takes. */
        case 1:
        case 2:
            crew_act(&o, KILL_WRAPPER, true, o.live_ns + pick_ns(CREW_MS / 2));
            break;
        default: crew_act(&o, KILL_WRAPPER, false, pick_ns(beginning_ns() * 5 / 4));
    }
    solo[solos++ % SOLO_LAST] = crew.board->runs;
    return o;
}

static struct crew_order draw_crowd(const struct scene *s)
{
    struct crew_order o = {.key = 0,
                           .kind = s->kind,
                           .per = s->per,
                           .buckets = s->buckets,
                           .wait_ms = CREW_FOREVER,
                           .live_ns = pick_ns(LIVE_MAX_MS * CREW_MS)};
    if (s->mixed && s->kind == COUNTING) o.per = 1 + crew_pick(s->per);
    if (s->mixed && s->kind == SHARED && crew_pick(4) == 0) o.kind = EXCLUSIVE;
    switch (crew_pick(8)) {
        case 0: o.wait_ms = 0; break;
        case 1: o.wait_ms = 1 + crew_pick(20); break;
    }
    if (crew_pick(6) == 0) o.heir_ns = 1 + pick_ns(LIVE_MAX_MS * CREW_MS);
    if (crew_pick(8) != 0)
        crew_act(&o, KILL_WRAPPER, false, pick_ns(KILL_MAX_MS * CREW_MS));
    if (!s->commands) return o;
    if (crew_pick(5) == 0) o.in_place = true;
    switch (crew_pick(4)) {
        case 0: crew_act(&o, KILL_WITNESS, true, pick_ns(o.live_ns)); break;
        case 1: crew_act(&o, KILL_GROUP, true, pick_ns(o.live_ns)); break;
    }
    return o;
}

static void play(const struct scene *s, uint32_t kills)
{
    solos = 0;
    crew_scene(s->made ? &small : NULL);
    while (crew.now.killed_wrappers < kills && crew.board->runs < BOARD_RUNS_MAX - 64) {
        while (crew.running < s->crowd) {
            struct crew_order o = crew_pick(3) == 0 ? draw_solo() : draw_crowd(s);
            crew_start(&o);
        }
        if (!crew_turn(board_now_ns() + CREW_MS)) break;
    }
    crew_drain();
}

/* True: all was well. */
static bool judge(const struct scene *s, size_t number)
{
    judge_settled(number % 2 == 0);
    stage_ok(crew.wrong == 0,
             "%s: when all are gone nothing is held, and run -n is granted", s->name);
    uint32_t before = crew.wrong;
    judge_together();
    stage_ok(crew.wrong == before,
             "%s: %u wrappers and %u commands killed, never more in than fit: %u",
             s->name, crew.now.killed_wrappers,
             crew.now.killed_witnesses + crew.now.killed_groups, crew.together[0]);
    before = crew.wrong;
    judge_ends();
    judge_refusals();
    stage_ok(crew.wrong == before,
             "%s: %u runs: %u ended, %u were refused, all as they should", s->name,
             crew.now.runs, crew.now.ended, crew.now.refused);
    crew_scene_end();
    return crew.wrong == 0;
}

/* Repeat a scene until enough processes have held the lock at once, because their number depends on chance.
 * Returns false if a scene failed. */
static bool act(const struct scene *s, uint32_t kills, size_t number)
{
    int64_t until = board_now_ns() + MORE_NS;
    uint32_t most = 0;
    bool good;
    do {
        play(s, kills);
        good = judge(s, number);
        if (crew.together[0] > most) most = crew.together[0];
    } while (good && most < s->full && board_now_ns() < until);
    if (s->full != 0)
        stage_ok(most >= s->full, "%s: at times %u were in at once", s->name, most);
    return good;
}

/* This many more kills would do, at the stages that have had too few. */
static uint32_t missing(void)
{
    uint32_t n = 0;
    for (int s = 0; s < STAGES; s++)
        if (crew.all.stage[s] < enough[s]) n += enough[s] - crew.all.stage[s];
    return n;
}

static void report(void)
{
    const struct crew_count *n = &crew.all;
    stage_note("%u runs: %u ended, %u refused, %u of a killed command", n->runs,
               n->ended, n->refused, n->killed_commands);
    stage_note("%u commands killed, %u of them with their group",
               n->killed_witnesses + n->killed_groups, n->killed_groups);
    stage_note("%u orphans, of whom %u had not begun and never did; %u heirs",
               n->orphans, n->unbegun, n->heirs);
    for (int s = 0; s < STAGES; s++)
        stage_note("wrappers killed, %-14s %6u", crew_stage_names[s], n->stage[s]);
    stage_ok(missing() == 0, "%u wrappers were killed, and at every stage",
             n->killed_wrappers);
}

int main(int argc, char **argv)
{
    uint64_t kills = 1200, seed = options_seed();
    const char *sluice = NULL;
    const struct test_option options[] = {
        {"--long", .number = &kills, .preset = 200000},
        {"--kills", .number = &kills},
        {"--seed", .number = &seed},
        {"--sluice", .text = &sluice},
        {.name = NULL}};
    options_read(argc, argv,
                 "kills [--short | --long] [--kills N] [--seed N] [--sluice PATH]",
                 options);
    /* Generous: a tenth of a second for each kill. */
    stage_open((unsigned)(1100 + kills / 10));
    stage_note("kills --kills %" PRIu64 " --seed %" PRIu64, kills, seed);
    crew_open(sluice, seed);
    uint32_t bad = 0;
    for (size_t n = 0; crew.all.killed_wrappers < kills && bad < BAD_MAX; n++) {
        uint64_t share = kills / SCENES + 1;
        if (share > SCENE_KILLS_MAX) share = SCENE_KILLS_MAX;
        bad += !act(&scenes[n % SCENES], (uint32_t)share, n);
    }
    static const struct scene more = {
        .name = "more", .crowd = 6, .kind = EXCLUSIVE, .made = true};
    int64_t until = board_now_ns() + MORE_NS;
    while (missing() != 0 && bad == 0 && board_now_ns() < until) {
        bad += !act(&more, 100, 0);
    }
    report();
    stage_close();
}
