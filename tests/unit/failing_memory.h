/* failing_memory.h - memory that ends when a test says so.
 *
 *     for (long n = 0;; n++) {            every allocation fails in its turn
 *         memory_fails_after(n);
 *         int status = what_needs_some();
 *         memory_is_back();
 *         if (memory_failures() == 0) break;
 *         assert_int_equal(status, SLUICE_ENOMEM);
 *     }
 *
 * A program linked with this (failing_memory_dep, which has the -Wl,--wrap) calls malloc,
 * calloc and realloc through it: the test and what is linked into it, not the shared
 * libraries. An allocation that fails returns NULL and changes nothing.
 *
 * All of it is each thread's own: what one says and counts is about its allocations alone,
 * and a thread that has said nothing has memory. */
#ifndef SLUICE_TEST_FAILING_MEMORY_H
#define SLUICE_TEST_FAILING_MEMORY_H

#include <stdbool.h>
#include <stdint.h>

/* The next n succeed, then one fails, and all others succeed. */
void memory_fails_after(long n);

/* The next n succeed, then all fail. */
void memory_ends_after(long n);

/* One in so many fails, by chance; the same ones with the same seed, which is not 0. */
void memory_fails_by_chance(uint64_t seed, uint64_t one_in);

/* From now on all succeed. What was counted can still be asked for. */
void memory_is_back(void);

/* How many were asked for, and failed, since it was last said here that some should fail, or
 * to count anew. */
long memory_allocations(void);
long memory_failures(void);
void memory_count_anew(void);

/* Only those while this is true fail and count: a test has memory, and what it tests has
 * not. NULL, and from the beginning: all. */
void memory_fails_only_in(const bool *place);

/* Whether this one, which is counted now, fails: for what a test wraps besides. */
bool memory_fails_now(void);

#endif /* SLUICE_TEST_FAILING_MEMORY_H */
