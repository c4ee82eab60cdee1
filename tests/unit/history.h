/* history.h - random histories, each replayed by two numbers.
 *
 *     static void play(uint64_t number)      one history: everything in it is drawn
 *     {
 *         if (draw_one_in(3)) ...
 *         CHECK(is_as_it_must_be());
 *     }
 *
 *     UNIT_TEST(the_rule_holds)
 *     {
 *         if (!play_histories("test_rule", 1000, play)) return;
 *         assert_true(enough_was_tried);
 *     }
 *
 * The environment chooses other histories:
 *
 *     SLUICE_SEED=n                       others than the usual ones
 *     SLUICE_SEED=n SLUICE_HISTORY=h      only history h of seed n; history.shown is true
 *     SLUICE_HISTORIES=n                  this many, instead of the usual number
 *
 * A failure, also of an assertion in the code under test, prints the line that replays it. */
#ifndef SLUICE_TEST_HISTORY_H
#define SLUICE_TEST_HISTORY_H

#include <inttypes.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "test.h"

static struct {
    const char *program;
    uint64_t seed, number, chance;
    bool shown;
} history;

/* Safe in a signal handler. */
static void history_print_replay(int number)
{
    char line[160];
    int n = snprintf(line, sizeof line,
                     "# replay: SLUICE_SEED=%" PRIu64 " SLUICE_HISTORY=%" PRIu64
                     " %s\n",
                     history.seed, history.number, history.program);
    if (write(STDOUT_FILENO, line, (size_t)n) < 0) _exit(1);
    if (number != 0) signal(number, SIG_DFL);
}

#define CHECK(condition)                                     \
    do {                                                     \
        if (!(condition)) {                                  \
            history_print_replay(0);                         \
            fail_msg("%s", "this is not true: " #condition); \
        }                                                    \
    } while (0)

/* splitmix64. */
static inline uint64_t draw(uint64_t *state)
{
    uint64_t z = (*state += 0x9e3779b97f4a7c15u);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

static inline uint32_t draw_below(uint32_t n)
{
    return (uint32_t)(draw(&history.chance) % n);
}

static inline bool draw_one_in(uint32_t n)
{
    return draw_below(n) == 0;
}

static inline uint64_t history_setting(const char *variable, uint64_t otherwise)
{
    const char *text = getenv(variable);
    return text != NULL && *text != '\0' ? strtoull(text, NULL, 0) : otherwise;
}

/* Returns whether it has played at least the usual number. */
static inline bool play_histories(const char *program, uint64_t usual,
                                  void (*play)(uint64_t number))
{
    uint64_t first = 0, count = history_setting("SLUICE_HISTORIES", usual);
    history.program = program;
    history.seed = history_setting("SLUICE_SEED", 1);
    if (getenv("SLUICE_HISTORY") != NULL) {
        first = history_setting("SLUICE_HISTORY", 0);
        count = 1;
        history.shown = true;
    }
    printf("# seed %" PRIu64 ", %" PRIu64 " histories\n", history.seed, count);
    fflush(stdout);
    signal(SIGABRT, history_print_replay);
    for (uint64_t i = first; i < first + count; i++) {
        uint64_t base = history.seed;
        history.number = i;
        history.chance = draw(&base) ^ i;
        play(i);
    }
    signal(SIGABRT, SIG_DFL);
    return count >= usual;
}

#endif /* SLUICE_TEST_HISTORY_H */
