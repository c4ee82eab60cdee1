/* script.h - what a led process does, in pieces that several scripts share.
 *
 * All of it runs inside the stepped process. What it was answered it tells by
 * stepped_tell(), in the order of asking. A piece that only prepares ends the process if
 * it does not succeed. `scene` is the struct scene that the process is in. */
#ifndef TESTS_KILL_SCRIPT_H
#define TESTS_KILL_SCRIPT_H

#include "sluice.h"

/* Its canal, and its handle on the key "main". */
extern struct sluice_canal *script_canal;
extern struct sluice_key *script_handle;

struct sluice_capacity script_capacity(uint32_t units);

/* --- To prepare ----------------------------------------------------------- */

void script_enter(void *scene);    /* Open the segment. */
void script_resolve(void *scene);  /* And have a handle. */
void script_hold_one(void *scene); /* And one unit of main, in a capacity of one. */

/* Take a unit of each of n0, n1, ... and release it, so that all records of a chunk are
 * bound. */
void script_bind_all(void *scene);

/* --- To be led through ---------------------------------------------------- */

void script_open(void *scene);
void script_reap(void *scene);
void script_release(void *scene); /* One unit, by handle. */
void script_wait(void *scene);    /* For one unit of main in a capacity of one, long. */

/* By name, and by handle. */
void script_acquire(const char *key, uint32_t capacity, uint32_t units);
void script_take(uint32_t capacity, uint32_t units);
void script_give(uint32_t units);

#endif /* TESTS_KILL_SCRIPT_H */
