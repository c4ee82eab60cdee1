/* scene.h - a segment, the living who use it, and what they hold.
 *
 * A scene begins with a new segment. Its cast are actors, and perhaps a stepped process
 * that is going to be killed or stopped. The scene notes what the living were granted;
 * at the end the segment must count exactly that, be in order, and still be of use. */
#ifndef TESTS_KILL_SCENE_H
#define TESTS_KILL_SCENE_H

#include "actor.h"
#include "canal/layout.h"
#include "sluice.h"

#define SCENE_NAMES_MAX 16
#define SCENE_ROOMY 100u /* A capacity that nobody fills. */

/* The cast. Alice and Bob live through the scene; Carol comes when it is over; Dave is
 * there to die. They are the same processes from scene to scene, but for Dave. */
enum { ALICE, BOB, CAROL, DAVE, CAST };

struct scene {
    char path[STAGE_PATH_MAX];
    struct sluice_canal_options options;
    struct sl_canal_segment
        seg;             /* As the test itself sees it; seg.header NULL: not yet. */
    bool entered[CAST];  /* Has it open. */
    bool attached[CAST]; /* Has a slot. */
    uint32_t others;     /* Living threads with a slot that are not of the cast. */
    uint32_t bare;       /* Slots among these without records. */
    bool no_spare_key;   /* The living use all of them: no new one can be made. */
    uint32_t resolved;   /* Keys that nobody holds and somebody has resolved. */
    struct {
        char name[ACTOR_KEY_MAX];
        uint32_t held[CAST];
        uint32_t besides; /* Held by a process outside of the cast. */
    } keys[SCENE_NAMES_MAX];
    uint32_t key_count;
    bool wrong;
    char why[256];
};

extern struct actor scene_cast[CAST];

/* --- Life ----------------------------------------------------------------- */

/* Start the cast. Once. */
void scene_cast_start(void);

/* A new scene. With make_it the segment is made now. */
void scene_open(struct scene *s, struct sluice_canal_options options, bool make_it);

/* Everybody leaves; nothing may remain. */
void scene_close(struct scene *s);

/* --- The cast acts, and it is noted --------------------------------------- */

void scene_enter(struct scene *s, int who);
void scene_leave(struct scene *s, int who);
int64_t scene_acquire(struct scene *s, int who, const char *key, uint32_t capacity,
                      uint32_t units);
void scene_release(struct scene *s, int who, const char *key, uint32_t units);

/* Both, so that the name exists and nobody uses it. */
void scene_touch(struct scene *s, int who, const char *key);

/* Dave takes units (he enters if need be), and dies. */
void scene_dave_takes(struct scene *s, const char *key, uint32_t units);
void scene_dave_dies(struct scene *s);

/* What the living hold of a key. */
uint32_t scene_held(const struct scene *s, const char *key);

/* A process outside of the cast holds this many units of it. */
void scene_besides(struct scene *s, const char *key, uint32_t units);

/* --- Judgement ------------------------------------------------------------ */

/* Write down what is wrong, if it is the first thing. */
void scene_wrong(struct scene *s, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* Look at the segment from the test itself. */
void scene_map(struct scene *s);

/* The key's number, or UINT32_MAX. */
uint32_t scene_key(const struct scene *s, const char *key);

/* The dead are reaped (by Carol: as a caller that would get FULL for `key`, or
 * by sluice_canal_reap()), the counts are those of the living, everything else is free,
 * the segment is in order and a new key can be filled to its capacity. */
void scene_judge(struct scene *s, const char *key, bool asking);

/* Every count is exactly what the living hold; asked by Carol. */
void scene_judge_counts(struct scene *s);

#endif /* TESTS_KILL_SCENE_H */
