/* failing_alloc.h - malloc, calloc and realloc that fail when a test says so.
 *
 *     for (long n = 0;; n++) {            every allocation fails once
 *         memory_fails_after(n);
 *         int status = needs_memory();
 *         memory_is_back();
 *         if (memory_failures() == 0) break;
 *         assert_int_equal(status, SLUICE_ENOMEM);
 *     }
 *
 * A program that uses this (failing_alloc_dep has the -Wl,--wrap) calls malloc, calloc and realloc
 * through it: the test and what is linked into it, but not shared libraries. An allocation that
 * fails returns NULL and changes nothing.
 *
 * Each thread has its own settings and counters. Initially nothing fails. */
#ifndef SLUICE_TEST_FAILING_ALLOC_H
#define SLUICE_TEST_FAILING_ALLOC_H

#include <stdbool.h>
#include <stdint.h>

/* The next n allocations succeed, then one fails, and all others succeed. */
void memory_fails_after(long n);

/* The next n allocations succeed, then all fail. */
void memory_ends_after(long n);

/* One allocation in this many fails, at random; the same ones for the same seed, which is not 0. */
void memory_fails_by_chance(uint64_t seed, uint64_t one_in);

/* From now on all succeed. The counters stay. */
void memory_is_back(void);

/* Allocations, and failures of them, since the last memory_fails...(), memory_ends_after() or
 * memory_count_anew(). */
long memory_allocations(void);
long memory_failures(void);
void memory_count_anew(void);

/* Only allocations while *place is true fail and count: so only the code under test lacks
 * memory. NULL, the initial value: all. */
void memory_fails_only_in(const bool *place);

/* Counts an allocation, and returns whether it fails: for other functions that a test wraps. */
bool memory_fails_now(void);

#endif /* SLUICE_TEST_FAILING_ALLOC_H */
