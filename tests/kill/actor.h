/* actor.h - a process that executes orders on a canal, one at a time.
 *
 * The tests need processes in addition to the one that they stop or kill, which hold, take over,
 * wait and inspect. An actor is such a process. It runs from actor_start() until actor_kill(), and
 * can open several segments one after the other. It uses only <sluice.h>. */
#ifndef TESTS_KILL_ACTOR_H
#define TESTS_KILL_ACTOR_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "sluice.h"
#include "stage.h"

#define ACTOR_KEY_MAX 32

enum actor_verb {
    ACTOR_OPEN,  /* path, options. Closes the open segment first. */
    ACTOR_CLOSE, /* Always 0. */
    ACTOR_ACQUIRE, /* key, capacity, units, wait_ms; through the handle if it was resolved. */
    ACTOR_RELEASE, /* key, units; the same. */
    ACTOR_RESOLVE, /* key. One handle at a time. */
    ACTOR_COUNT,   /* key. */
    ACTOR_REAP,
    ACTOR_INFO, /* The result is in `info` of the answer. */
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
    int64_t at_ms; /* The time of the result, by stage_now_ms(). */
    struct sluice_canal_info info;
};

struct actor {
    pid_t pid;
    int fd;
};

/* There was no answer in time. The library never returns this value. */
#define ACTOR_SILENT INT64_MIN

/* --- Life ----------------------------------------------------------------- */

struct actor actor_start(void);

/* Send SIGKILL, and wait until the kernel has cleaned up after the process. */
void actor_kill(struct actor *a);

/* --- Orders --------------------------------------------------------------- */

/* Send an order, and receive its answer. Only one order can be in progress. */
void actor_order(struct actor *a, const struct actor_order *order);
int64_t actor_answer(struct actor *a, int64_t within_ms, struct actor_answer *out);

/* Do both. An actor that does not answer in time is killed and started again. */
int64_t actor_do(struct actor *a, const struct actor_order *order);

/* Short forms of the orders. */
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

/* Order an acquire that waits; the caller receives the answer later. */
void actor_acquire_later(struct actor *a, const char *key, uint32_t capacity,
                         uint32_t units, int64_t wait_ms);

#endif /* TESTS_KILL_ACTOR_H */
