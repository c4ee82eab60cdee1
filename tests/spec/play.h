/* play.h - one interleaving over the lock table, with simulated time.
 *
 *     struct play p;
 *     play_begin(&p, spec);
 *     while ((n = play_can(&p, steps)) > 0) play_step(&p, steps[choose(n)], true);
 *     play_end(&p);
 *
 * After each step all effects are fetched, the invariants of the table are checked, and all answers
 * are compared with the model. */
#ifndef SLUICE_TEST_PLAY_H
#define SLUICE_TEST_PLAY_H

#include "model.h"

enum { SAID_BYTES = 8192, EVENTS_BYTES = 1024, ANSWER_BYTES = 40 };

struct play {
    const struct spec *spec;
    struct sl_table *table;
    struct sl_session session[SESSIONS_MAX];
    struct sl_now now;
    struct model model;
    int next[SESSIONS_MAX];    /* Its next step, or `steps` of the spec. */
    int waiting[SESSIONS_MAX]; /* The step in which it waits, or -1. */
    bool pending;              /* Effects were not fetched yet. */
    uint64_t held[STEPS_MAX];
    sl_fence fence[STEPS_MAX];            /* That each step received; 0: none. */
    bool waited[STEPS_MAX];               /* It was not answered at once. */
    char answer[STEPS_MAX][ANSWER_BYTES]; /* Empty: none yet. */
    bool later[STEPS_MAX];                /* Answered since the last step. */
    int turns;
    struct turn turn[TURNS_MAX]; /* What has been done so far. */
    char said[SAID_BYTES];
    char events[KEYS_MAX][EVENTS_BYTES];
};

/* Do not call sl_table_check(): then the specs alone find a bug. */
extern bool play_unchecked;

void play_begin(struct play *p, const struct spec *s);

/* The steps that could be next, one a session; how many. */
int play_can(const struct play *p, int steps[SESSIONS_MAX]);

void play_step(struct play *p, int step, bool untold);

/* Fetch all effects. */
void play_tell(struct play *p);

/* Let time pass until something is due, if a session waits. False: nothing is ever due. */
bool play_pass_time(struct play *p);

/* The last lines of the transcript. Then all sessions end, and the table must be empty. */
void play_end(struct play *p);

/* The answers to all steps, in one line. */
void play_outcome(const struct play *p, char *out, size_t bytes);

/* The steps in their order: "a1 b1+ a2". */
void play_order(const struct play *p, char *out, size_t bytes);

#endif /* SLUICE_TEST_PLAY_H */
