/* pairs.h - who meets whom, in stop.c. */
#ifndef TESTS_KILL_PAIRS_H
#define TESTS_KILL_PAIRS_H

#include "scene.h"
#include "stepped.h"

/* The led processes of a scene. */
extern struct stepped pairs_victim; /* Dies before the two meet. */
extern struct stepped pairs_first;  /* The one that stands. */
extern struct stepped pairs_third;  /* Another, if the pair needs one. */

struct pair {
    const char *name;
    const char *sentence;
    const struct sluice_canal_options *options;
    bool unmade;
    const char *key;                     /* What the survivors ask for. */
    void (*arrange)(struct scene *s);    /* Before they meet. */
    void (*prepare)(void *arg);          /* In the first, at full speed. */
    void (*script)(void *arg);           /* In the first, led. */
    void (*others)(struct scene *s);     /* While the first stands. */
    void (*afterwards)(struct scene *s); /* When it has come to its end. */
    bool to_its_sleep;                   /* Only the points before its first sleep. */
};

extern const struct pair pairs[];
extern const size_t pair_count;

/* Find the moments at which victims die and the spots where a third stands. Once, before
 * any pair. */
void pairs_prepare(void);

/* Before a scene's arrange(). */
void pairs_begin(void);

/* A scene with two keys: Alice holds one of "kept", nobody uses "old". */
void pairs_reclaimable(struct scene *s);

/* A script: take a unit of "new". */
void pairs_make_new(void *scene);

extern const struct sluice_canal_options pairs_small;
extern const struct sluice_canal_options pairs_two_keys;

#endif /* TESTS_KILL_PAIRS_H */
