/* model.h - the rules of the lock table a second time, in the simplest way, for a few grants. It
 * shares no code with src/locks. It predicts each answer, which the table must then give.
 *
 * Effects of the table are recorded and checked, too. `wrong` has the first error; what comes after
 * it means nothing. */
#ifndef SLUICE_TEST_MODEL_H
#define SLUICE_TEST_MODEL_H

#include "format.h"

enum { GRANTS_MAX = STEPS_MAX, DRAINS_MAX = 4 };

struct held {
    sl_fence fence;
    int key, session;
    bool shared, leased, broken, over;
    uint32_t units;
    sl_ms end_ms;
};

/* An acquisition with an id: in one state for all attempts that name it. */
enum named_state { NAMED_NEW, NAMED_WAITS, NAMED_HELD, NAMED_ABSENT, NAMED_ENDED };

struct named {
    enum named_state state;
    uint64_t digest;
    uint64_t arrival; /* Waits, absent: its position in the queue. */
    int grant;        /* Held: in model.held. */
};

/* What a session waits for: a session has at most one. */
struct asker {
    const struct step *step; /* NULL: it does not wait. */
    uint64_t arrival;
    sl_ms end_ms;
};

struct model {
    const struct spec *spec;
    int grants; /* In the order of being granted; fences are named after it. */
    struct held held[GRANTS_MAX];
    struct asker asker[SESSIONS_MAX];
    struct named named[KEYS_MAX][IDS_MAX];
    uint64_t arrivals;
    bool gone[SESSIONS_MAX];
    bool next_overlaps[KEYS_MAX];
    int drains;
    const char *drain[DRAINS_MAX];
    char wrong[200]; /* Empty: nothing. */
};

void model_wrong(struct model *m, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* The expected answer. An acquire or an await that waits is not recorded yet. *replay: the grant of an
 * earlier attempt is the answer. */
int model_acquire(struct model *m, sl_ms now, const struct step *step, bool *replay);
int model_await(const struct model *m, sl_ms now, const struct step *step);

/* These are recorded at once. A release with fence 0 is for the newest grant of the session. */
int model_release(struct model *m, sl_ms now, const struct step *step, sl_fence fence);
int model_extend(struct model *m, sl_ms now, const struct step *step, sl_fence fence,
                 sl_ms *lease_ms);
int model_check(const struct model *m, sl_ms now, const struct step *step,
                sl_fence fence);
int model_break(struct model *m, sl_ms now, const struct step *step, sl_fence fence);
int model_cancel(struct model *m, sl_ms now, const struct step *step);
int model_drain(struct model *m, const struct step *step);
void model_hang_up(struct model *m, int session);

/* Record an effect of the table. */
void model_waits(struct model *m, sl_ms now, const struct step *step);
void model_granted(struct model *m, sl_ms now, const struct step *step,
                   const struct sl_grant *grant);
void model_replayed(struct model *m, sl_ms now, const struct step *step,
                    const struct sl_grant *grant);
void model_cancelled(struct model *m, int session);
void model_timed_out(struct model *m, sl_ms now, int session);
void model_refused(struct model *m, int session);
void model_seen(struct model *m, sl_ms now, int session);
void model_expired(struct model *m, sl_ms now, int key, sl_fence fence);
void model_ended(struct model *m, int key, sl_fence fence);

/* After all effects: no waiter was forgotten. */
void model_quiet(struct model *m, sl_ms now);

/* The number of a fence, in the order of grants; 0: there is none. */
int model_name(const struct model *m, sl_fence fence);

/* Whether it was broken, so that its lease is the last. */
bool model_broken(const struct model *m, sl_fence fence);

/* Of a key, or of all with key -1. */
int model_holders(const struct model *m, sl_ms now, int key);
uint64_t model_units(const struct model *m, sl_ms now, int key);

#endif /* SLUICE_TEST_MODEL_H */
