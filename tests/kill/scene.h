/* scene.h - a segment, the processes that use it, and the units that they hold.
 *
 * A scene starts with a new segment. Its processes are actors, and usually a stepped process that
 * is killed or stopped. The scene records the units that the living processes were granted. At the
 * end the segment must count exactly these units, be consistent, and still work. */
#ifndef TESTS_KILL_SCENE_H
#define TESTS_KILL_SCENE_H

#include "actor.h"
#include "canal/layout.h"
#include "sluice.h"

#define SCENE_NAMES_MAX 16
#define SCENE_ROOMY 100u /* A capacity that is never full. */

/* The actors. Alice and Bob run during the scene. Carol checks the segment at the end. Dave is
 * killed. All except Dave are the same processes in every scene. */
enum { ALICE, BOB, CAROL, DAVE, CAST };

struct scene {
    char path[STAGE_PATH_MAX];
    struct sluice_canal_options options;
    struct sl_canal_segment
        seg;             /* The mapping of the test; seg.header NULL: not mapped yet. */
    bool entered[CAST];  /* It has the segment open. */
    bool attached[CAST]; /* It has a slot. */
    uint32_t others;     /* Living threads with a slot that are not actors. */
    uint32_t bare;       /* Those whose slots have no records. */
    bool no_spare_key;   /* All keys are in use, so no new key can be created. */
    uint32_t resolved;   /* Keys that are resolved but not held. */
    struct {
        char name[ACTOR_KEY_MAX];
        uint32_t held[CAST];
        uint32_t besides; /* Held by a process that is not an actor. */
    } keys[SCENE_NAMES_MAX];
    uint32_t key_count;
    bool wrong;
    char why[256];
};

extern struct actor scene_cast[CAST];

/* --- Life ----------------------------------------------------------------- */

/* Start the actors. Call this once. */
void scene_cast_start(void);

/* Begin a scene. make_it: create the segment now. */
void scene_open(struct scene *s, struct sluice_canal_options options, bool make_it);

/* Close the segment in all processes. Nothing may be left behind. */
void scene_close(struct scene *s);

/* --- Operations of actors, which the scene records ------------------------ */

void scene_enter(struct scene *s, int who);
void scene_leave(struct scene *s, int who);
int64_t scene_acquire(struct scene *s, int who, const char *key, uint32_t capacity,
                      uint32_t units);
void scene_release(struct scene *s, int who, const char *key, uint32_t units);

/* Acquire and release, so that the name exists and is not in use. */
void scene_touch(struct scene *s, int who, const char *key);

/* Dave opens the segment if necessary and acquires units; Dave is killed. */
void scene_dave_takes(struct scene *s, const char *key, uint32_t units);
void scene_dave_dies(struct scene *s);

/* The units of a key that living processes hold. */
uint32_t scene_held(const struct scene *s, const char *key);

/* Record that a process that is not an actor holds this many units of the key. */
void scene_besides(struct scene *s, const char *key, uint32_t units);

/* --- Checks --------------------------------------------------------------- */

/* Record an error, unless there is one already. */
void scene_wrong(struct scene *s, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* Map the segment in the test itself. */
void scene_map(struct scene *s);

/* The key's number, or UINT32_MAX. */
uint32_t scene_key(const struct scene *s, const char *key);

/* Let Carol reap the dead processes: with an acquire of `key` that would be FULL (`asking`), or with
 * sluice_canal_reap(). Then check that the counts are those of the living processes, that everything
 * else is free, that the segment is consistent, and that a new key can be filled to its capacity. */
void scene_judge(struct scene *s, const char *key, bool asking);

/* Check that every count that Carol reads is exactly what living processes hold. */
void scene_judge_counts(struct scene *s);

#endif /* TESTS_KILL_SCENE_H */
