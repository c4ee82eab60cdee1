/* actor.h - a process that uses a canal as it is told, one order at a time.
 *
 * The tests need company for the process that they stop or kill: others that hold, take
 * over, wait and look. An actor is one of these: it lives from actor_start() until
 * actor_kill(), and may open one segment after the other. It goes through <sluice.h>
 * only. */
#ifndef TESTS_KILL_ACTOR_H
#define TESTS_KILL_ACTOR_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "sluice.h"
#include "stage.h"

#define ACTOR_KEY_MAX 32

enum actor_verb {
    ACTOR_OPEN,  /* path, options. Closes what is open. */
    ACTOR_CLOSE, /* Always 0. */
    ACTOR_ACQUIRE, /* key, capacity, units, wait_ms; through the handle if it was resolved. */
    ACTOR_RELEASE, /* key, units; the same. */
    ACTOR_RESOLVE, /* key. One handle at a time. */
    ACTOR_COUNT,   /* key. */
    ACTOR_REAP,
    ACTOR_INFO, /* The answer has it. */
};

struct actor_order {
    enum actor_verb verb;
    uint32_t units;
    struct sluice_capacity capacity;
    int64_t wait_ms;
    struct sluice_canal_options options;
    char path[STAGE_PATH_MAX];
    char key[ACTOR_KEY_MAX];
};

struct actor_answer {
    int64_t result;
    int64_t at_ms; /* When it was known, by stage_now_ms(). */
    struct sluice_canal_info info;
};

struct actor {
    pid_t pid;
    int fd;
};

/* No answer within the time given. Nothing that the library answers. */
#define ACTOR_SILENT INT64_MIN

/* --- Life ----------------------------------------------------------------- */

struct actor actor_start(void);

/* SIGKILL, and wait until the kernel has done all that follows from it. */
void actor_kill(struct actor *a);

/* --- Orders --------------------------------------------------------------- */

/* Give an order, and fetch its answer: one after the other. */
void actor_order(struct actor *a, const struct actor_order *order);
int64_t actor_answer(struct actor *a, int64_t within_ms, struct actor_answer *out);

/* Both. An actor that does not answer in time has been killed and started again. */
int64_t actor_do(struct actor *a, const struct actor_order *order);

/* The orders in short. */
int64_t actor_open(struct actor *a, const char *path,
                   struct sluice_canal_options options);
int64_t actor_close(struct actor *a);
int64_t actor_acquire(struct actor *a, const char *key, uint32_t capacity,
                      uint32_t units);
int64_t actor_release(struct actor *a, const char *key, uint32_t units);
int64_t actor_resolve(struct actor *a, const char *key);
int64_t actor_count(struct actor *a, const char *key);
int64_t actor_reap(struct actor *a);
int64_t actor_info(struct actor *a, struct sluice_canal_info *out);

/* Ask for units and wait for them; the answer is fetched later. */
void actor_acquire_later(struct actor *a, const char *key, uint32_t capacity,
                         uint32_t units, int64_t wait_ms);

#endif /* TESTS_KILL_ACTOR_H */
