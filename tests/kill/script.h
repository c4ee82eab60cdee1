/* script.h - functions that the scripts of stepped processes share.
 *
 * They run inside the stepped process, and store the results of the library with stepped_tell(), in
 * the order of the calls. A function that only prepares ends the process if it fails. `scene` is the
 * struct scene of the process. */
#ifndef TESTS_KILL_SCRIPT_H
#define TESTS_KILL_SCRIPT_H

#include "sluice.h"

/* The canal of the process, and its handle of the key "main". */
extern struct sluice_canal *script_canal;
extern struct sluice_key *script_handle;

struct sluice_capacity script_capacity(uint32_t units);

/* --- Preparation ---------------------------------------------------------- */

void script_enter(void *scene);   /* Open the segment. */
void script_resolve(void *scene); /* The same, and resolve the handle. */
void script_hold_one(
    void *scene); /* The same, and acquire main with a capacity of 1. */

/* Acquire and release a unit of each of n0, n1, ..., so that all records of a chunk are bound. */
void script_bind_all(void *scene);

/* --- Scripts -------------------------------------------------------------- */

void script_open(void *scene);
void script_reap(void *scene);
void script_release(void *scene); /* One unit, by handle. */
void script_wait(void *scene); /* Wait long for a unit of main, with a capacity of 1. */

/* By name, and by handle. */
void script_acquire(const char *key, uint32_t capacity, uint32_t units);
void script_take(uint32_t capacity, uint32_t units);
void script_give(uint32_t units);

#endif /* TESTS_KILL_SCRIPT_H */
