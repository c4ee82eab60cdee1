/* pairs.h - the pairs of processes of stop.c. */
#ifndef TESTS_KILL_PAIRS_H
#define TESTS_KILL_PAIRS_H

#include "scene.h"
#include "stepped.h"

/* The stepped processes of a scene. */
extern struct stepped pairs_victim; /* Killed before the first process starts. */
extern struct stepped pairs_first;  /* The process that is stopped. */
extern struct stepped pairs_third;  /* A further process, if the pair needs one. */

struct pair {
    const char *name;
    const char *sentence;
    const struct sluice_canal_options *options;
    bool unmade;
    const char *key;                  /* The key that the survivors acquire. */
    void (*arrange)(struct scene *s); /* Before the first process starts. */
    void (*prepare)(void *arg);       /* In the first process, at full speed. */
    void (*script)(void *arg);        /* In the first process, step by step. */
    void (*others)(struct scene *s);  /* While the first process is stopped. */
    void (*afterwards)(
        struct scene *s); /* When the first process has ended its script. */
    bool to_its_sleep;    /* Use only the points before its first sleep. */
};

extern const struct pair pairs[];
extern const size_t pair_count;

/* Find the points at which victims are killed and at which a third process is stopped. Call this
 * once, before any pair. */
void pairs_prepare(void);

/* Call this before arrange() of a scene. */
void pairs_begin(void);

/* A scene with two keys: Alice holds a unit of "kept", and "old" is not in use. */
void pairs_reclaimable(struct scene *s);

/* A script: take a unit of "new". */
void pairs_make_new(void *scene);

extern const struct sluice_canal_options pairs_small;
extern const struct sluice_canal_options pairs_two_keys;

#endif /* TESTS_KILL_PAIRS_H */
