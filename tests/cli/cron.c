/* cron.c - an hour of cron jobs in a minute: `sluice run` as it is used, and misused.
 *
 *     cron [--short | --long] [--runs N] [--seed N] [--sluice PATH]
 *
 * Thousands of runs over a few keys, with all kinds of capacities and of waiting. Most end by
 * themselves; of others the wrapper, the command or both are killed, or stopped for a
 * while. Some commands leave a child behind, which then has the lock. As in real life two
 * keys are always busier than the others, though not always the same two.
 *
 * Judged by evidence (board.h): never more in than fit; everybody's exit status has its
 * reason; nobody is refused for nothing; at the end nothing is held. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "crew.h"
#include "options.h"
#include "stage.h"

#define KEYS 20u
#define AT_ONCE 16u
#define BUSY 2u /* Keys. */
#define ROUND_RUNS 5000u
#define LIVE_MAX_MS 12
#define KILL_MAX_MS 25

static int64_t pick_ms_ns(uint32_t below_ms)
{
    return (int64_t)crew_pick(below_ms * 1000) * 1000;
}

/* What a key is used for. Each use has four keys. */
static void draw_capacity(struct crew_order *o)
{
    uint32_t n = o->key % 4;
    o->kind = COUNTING;
    switch (o->key / 4) {
        case 0:
            o->per = 1 + n;
            break; /* Always the same capacity: slots are numbered. */
        case 1: o->kind = EXCLUSIVE; break;
        case 2: o->kind = crew_pick(4) == 0 ? EXCLUSIVE : SHARED; break;
        case 3: /* The capacity changes. */
            o->per = 1 + crew_pick(2 + n);
            o->buckets = crew_pick(3) == 0 ? 2 : 0;
            break;
        default: /* Everything. */
            o->kind = (enum crew_kind)crew_pick(3);
            o->per = 1 + crew_pick(4);
    }
}

static void draw_fate(struct crew_order *o)
{
    int64_t in_life = pick_ms_ns(LIVE_MAX_MS);
    switch (crew_pick(20)) {
        case 0:
        case 1:
        case 2: crew_act(o, KILL_WRAPPER, false, pick_ms_ns(KILL_MAX_MS)); break;
        case 3:
        case 4: crew_act(o, KILL_WITNESS, true, in_life); break;
        case 5: crew_act(o, KILL_GROUP, true, in_life); break;
        case 6: /* Both at once, in either order. */
            crew_act(o, KILL_WRAPPER, true, in_life);
            crew_act(o, KILL_GROUP, true, in_life);
            break;
        case 7:
            crew_act(o, KILL_GROUP, true, in_life);
            crew_act(o, KILL_WRAPPER, true, in_life);
            break;
        case 8: /* The wrapper, and what it left some time later. */
            crew_act(o, KILL_WRAPPER, true, in_life);
            crew_act(o, KILL_WITNESS, true, in_life + pick_ms_ns(LIVE_MAX_MS));
            break;
        case 9: crew_act(o, STOP_WRAPPER, false, pick_ms_ns(KILL_MAX_MS)); break;
        case 10: crew_act(o, STOP_WITNESS, true, in_life); break;
        case 11: /* Stopped, and killed while it is or afterwards. */
            crew_act(o, STOP_WRAPPER, false, pick_ms_ns(KILL_MAX_MS));
            crew_act(o, KILL_WRAPPER, false, pick_ms_ns(2 * KILL_MAX_MS));
            break;
        case 12:
            crew_act(o, STOP_WITNESS, true, in_life);
            crew_act(o, KILL_GROUP, true, in_life + pick_ms_ns(LIVE_MAX_MS));
            break;
        default: break; /* Nothing happens to it. */
    }
}

static struct crew_order draw(void)
{
    uint32_t time = crew.board->runs / (ROUND_RUNS * BUSY / KEYS);
    struct crew_order o = {.key = crew_pick(4) == 0
                                      ? crew_pick(KEYS)
                                      : (time * BUSY + crew_pick(BUSY)) % KEYS,
                           .live_ns = pick_ms_ns(LIVE_MAX_MS),
                           .wait_ms = CREW_FOREVER,
                           .in_place = crew_pick(10) == 0};
    draw_capacity(&o);
    draw_fate(&o);
    switch (crew_pick(10)) {
        case 0:
        case 1:
        case 2: o.wait_ms = 0; break;
        case 3:
        case 4:
        case 5: o.wait_ms = 1 + crew_pick(50); break;
    }
    if (crew_pick(12) == 0) o.heir_ns = 1 + pick_ms_ns(2 * LIVE_MAX_MS);
    return o;
}

static void play(uint32_t runs)
{
    crew_scene(NULL);
    while (crew.board->runs < runs) {
        while (crew.running < AT_ONCE && crew.board->runs < runs) {
            struct crew_order o = draw();
            crew_start(&o);
        }
        if (!crew_turn(board_now_ns() + CREW_MS)) break;
    }
    crew_drain();
}

/* True: all was well. */
static bool judge(uint32_t round)
{
    judge_settled(round % 2 == 1);
    stage_ok(crew.wrong == 0,
             "when all are gone nothing is held or in use, every key is "
             "granted, the segment is in order");
    uint32_t before = crew.wrong;
    judge_together();
    stage_ok(crew.wrong == before,
             "never more in than fit, at most %u at once on one key",
             crew.now.together_max);
    before = crew.wrong;
    judge_ends();
    stage_ok(crew.wrong == before, "of %u runs the exit status is accounted for",
             crew.now.runs);
    before = crew.wrong;
    judge_refusals();
    stage_ok(crew.wrong == before, "%u were refused, none of them for nothing",
             crew.now.refused);
    for (uint32_t key = 1; key < 4; key++)
        stage_note("capacity of %u: %u at once", key + 1, crew.together[key]);
    crew_scene_end();
    return crew.wrong == 0;
}

static void report(void)
{
    const struct crew_count *n = &crew.all;
    stage_note("%u runs: %u ended (0), %u refused (1), %u of a killed command (137)",
               n->runs, n->ended, n->refused, n->killed_commands);
    stage_note("%u wrappers killed, %u commands, %u of them with their group; %u stops",
               n->killed_wrappers, n->killed_witnesses + n->killed_groups,
               n->killed_groups, n->stops);
    stage_note("%u orphans, of whom %u had not begun and never did; %u heirs",
               n->orphans, n->unbegun, n->heirs);
    for (int s = 0; s < STAGES; s++)
        stage_note("wrappers killed, %-14s %6u", crew_stage_names[s], n->stage[s]);
    bool tried = n->ended > 0 && n->refused > 0 && n->killed_commands > 0 &&
                 n->killed_wrappers > 0 && n->killed_groups > 0 && n->stops > 0 &&
                 n->heirs > 0 && n->orphans > 0 && n->together_max > 1;
    stage_ok(tried, "of everything there was some");
}

int main(int argc, char **argv)
{
    uint64_t runs = ROUND_RUNS, seed = options_seed();
    const char *sluice = NULL;
    const struct test_option options[] = {{"--long", .number = &runs, .preset = 500000},
                                          {"--runs", .number = &runs},
                                          {"--seed", .number = &seed},
                                          {"--sluice", .text = &sluice},
                                          {.name = NULL}};
    options_read(argc, argv,
                 "cron [--short | --long] [--runs N] [--seed N] [--sluice PATH]",
                 options);
    /* Generous: a twentieth of a second for each run. */
    stage_open((unsigned)(1100 + runs / 20));
    stage_note("cron --runs %" PRIu64 " --seed %" PRIu64, runs, seed);
    crew_open(sluice, seed);
    for (uint64_t round = 0, left = runs; left > 0; round++) {
        uint32_t share = left < ROUND_RUNS ? (uint32_t)left : ROUND_RUNS;
        play(share);
        if (!judge((uint32_t)round)) break;
        left -= share;
    }
    report();
    stage_close();
}
