/* sweep.h - a sweep over the instructions of a script: its options, its count, its report.
 *
 *     struct sweep w = sweep_begin("c1");
 *     for (size_t i; sweep_next(&w, &tour, POINTS_MIN, &i);) one_point(&w, i);
 *     sweep_end(&w, learned, "kill points", "K1 phase c1, an acquire");
 */
#ifndef TESTS_KILL_SWEEP_H
#define TESTS_KILL_SWEEP_H

#include "scene.h"
#include "stepped.h"

/* The options of the program. */
struct sweep_options {
    bool is_long;
    const char *only; /* The sweep that is wanted; NULL: all. */
    uint64_t from, to, stride;
    uint64_t enough;   /* A sweep ends after this many wrong points. */
    uint64_t limit_ms; /* The time for a sweep; 0: no limit. */
    const char *program;
    const char *selector; /* "--phase": the option that names a sweep. */
};

extern struct sweep_options sweep_options;

/* Read the options. `enough` is their default, and so is `short_ms`, the limit of a short
 * run of all sweeps. */
void sweep_read_options(int argc, char **argv, const char *selector, const char *usage,
                        uint64_t enough, uint64_t short_ms);

/* One sweep. */
struct sweep {
    const char *name;
    int64_t began_ms;
    size_t points, wrong;
    size_t missed;   /* Points that a stepped process did not reach again. */
    size_t left_out; /* Points for which there was no time. */
    size_t slow;     /* Wrong points that took long. */
};

struct sweep sweep_begin(const char *name);

/* Whether there is time for another point. The time limit skips points only after the first `min`
 * points, so that the test is useful on a busy machine too. */
bool sweep_has_time(struct sweep *w, int64_t began_ms, uint64_t limit_ms, size_t points,
                    size_t min);

/* The next point; false at the end. */
bool sweep_next(struct sweep *w, struct tour *tour, size_t min, size_t *out);

/* Print what is wrong with a point, if anything is, and the command that replays it. `more`
 * are further options of that command, or NULL. */
void sweep_report(struct sweep *w, size_t point, size_t replay_at, const char *more,
                  const struct scene *s);

/* Print the result: `title`, and the number of points, which are called `noun`. */
void sweep_end(const struct sweep *w, bool learned, const char *noun,
               const char *title);

#endif /* TESTS_KILL_SWEEP_H */
