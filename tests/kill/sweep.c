#include "sweep.h"

#include "options.h"

#define COMPLAINTS_MAX 3 /* That are printed of a sweep. */

struct sweep_options sweep_options = {.to = SIZE_MAX};

void sweep_read_options(int argc, char **argv, const char *selector, const char *usage,
                        uint64_t enough, uint64_t short_ms)
{
    struct sweep_options *o = &sweep_options;
    bool limited = false;
    o->program = argv[0];
    o->selector = selector;
    o->enough = enough;
    const struct test_option options[] = {
        {"--long", .given = &o->is_long},
        {selector, .text = &o->only},
        {"--from", .number = &o->from},
        {"--to", .number = &o->to},
        {"--stride", .number = &o->stride},
        {"--enough", .number = &o->enough},
        {"--limit-ms", .number = &o->limit_ms, .given = &limited},
        {.name = NULL}};
    options_read(argc, argv, usage, options);
    /* A single sweep is not limited. */
    if (!limited && !o->is_long && o->only == NULL) o->limit_ms = short_ms;
}

struct sweep sweep_begin(const char *name)
{
    return (struct sweep){.name = name, .began_ms = stage_now_ms()};
}

bool sweep_has_time(struct sweep *w, int64_t began_ms, uint64_t limit_ms, size_t points,
                    size_t min)
{
    if (sweep_options.limit_ms == 0 || points < min ||
        stage_now_ms() - began_ms <= (int64_t)limit_ms)
        return true;
    w->left_out++;
    return false;
}

bool sweep_next(struct sweep *w, struct tour *tour, size_t min, size_t *out)
{
    while (w->wrong < sweep_options.enough && tour_next(tour, out))
        if (sweep_has_time(w, w->began_ms, sweep_options.limit_ms, w->points, min))
            return true;
    return false;
}

void sweep_report(struct sweep *w, size_t point, size_t replay_at, const char *more,
                  const struct scene *s)
{
    if (!s->wrong || w->wrong++ >= COMPLAINTS_MAX) return;
    stage_note("point %zu: %s", point, s->why);
    stage_note("replay: %s%s %s %s --from %zu --to %zu%s", sweep_options.program,
               sweep_options.is_long ? " --long" : "", sweep_options.selector, w->name,
               replay_at, replay_at, more != NULL ? more : "");
}

void sweep_end(const struct sweep *w, bool learned, const char *noun, const char *title)
{
    double took = (double)(stage_now_ms() - w->began_ms) / 1000.0;
    if (w->missed > 0) stage_note("%zu points were not reached again", w->missed);
    if (w->left_out > 0)
        stage_note("no time for all of them: %zu more points were left out",
                   w->left_out);
    /* If it missed too many, the sweep has not tested what it says. */
    bool reached = w->missed * 10 <= w->points;
    stage_ok(learned && reached && w->wrong == 0 && w->points > 0,
             "%s: %zu %s, %zu wrong, %.1f s", title, w->points, noun, w->wrong, took);
}
