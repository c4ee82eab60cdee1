/* world.h - a segment of its own for each test, and processes that act in it.
 *
 *     WORLD w = world_new(NULL);
 *     ACTOR a = actor_start(&w);
 *     assert_int_equal(actor_acquire(&a, "db", 3, 1), 1);
 *
 * An actor is a real process with the segment open; it executes one command at a time and
 * answers with the result of the library. Everything is in a directory that world_end()
 * removes. An actor dies with the test. An alarm ends a test that hangs. */
#ifndef SLUICE_TEST_WORLD_H
#define SLUICE_TEST_WORLD_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "sluice.h"

/* One deadline for a whole test program; generous, as machines are busy. */
#define WORLD_DEADLINE_S 300

struct world {
    char directory[64];
    char path[80];              /* Of the segment. */
    struct sluice_canal *canal; /* Open in the test itself. */
};

struct world world_new(const struct sluice_canal_options *options);
void world_end(struct world *w);

/* WORLD w = world_new(NULL) ends with its block; so does ACTOR a = actor_start(&w). */
#define WORLD __attribute__((cleanup(world_end))) struct world
#define ACTOR __attribute__((cleanup(actor_kill))) struct actor

/* Check the invariants of the calling thread's part of a canal. Actors do so after each
 * command. */
void canal_check(const struct sluice_canal *c);

/* Make an empty directory; directory_remove() removes it with its files. */
void directory_make(char out[64]);
void directory_remove(const char *directory);

struct actor {
    pid_t pid;
    int in, out;
};

enum deed {
    ACQUIRE = 1,
    RELEASE,
    RESOLVE,
    KEY_ACQUIRE,
    KEY_RELEASE,
    REAP,
    CLOSE,
    TETHER
};

struct command {
    enum deed deed;
    char key[32];
    struct sluice_capacity capacity;
    struct sluice_want want; /* RELEASE takes its units from here. */
};

struct actor actor_start(const struct world *w);
int64_t actor_do(struct actor *a, struct command c);

/* The same in two halves, for what takes time. */
void actor_send(struct actor *a, struct command c);
int64_t actor_answer(struct actor *a);
bool actor_answered(struct actor *a, int within_ms);

int64_t actor_acquire(struct actor *a, const char *key, uint32_t per, uint32_t buckets);
int64_t actor_release(struct actor *a, const char *key, uint32_t units);

void actor_kill(struct actor *a); /* SIGKILL, and wait for it. */

/* Run the actor's next command one instruction at a time until `seen` says true of the
 * shared memory, and leave it stopped there. False: the command ended before. */
bool actor_step_until(struct actor *a, struct command c, bool (*seen)(void *),
                      void *arg);

/* Let an actor that was stepped go on. */
void actor_continue(struct actor *a);

/* Milliseconds of CLOCK_MONOTONIC. */
int64_t now_ms(void);

/* A short pause for waits on other processes. */
void pause_ms(int ms);

#endif /* SLUICE_TEST_WORLD_H */
