/* spec.h - the specification: what a counting lock with declared capacity must answer.
 *
 *     held is a number, 0 at first
 *     acquire(capacity, units):  if units <= capacity - held: held += units, granted as held
 *                            else refused, and held stays
 *     release(units):        held -= units; who does not hold them is refused
 *
 * That is all. Whole operations serve as the oracle of sequential histories. Step by
 * step it is the machine that a compare-and-swap makes of it: read held, decide, swap
 * if nobody has changed it, else read again. There is no marker for "full", so there is
 * nothing to repair on release; interleave.c runs it next to canal lock's buckets. */
#ifndef TESTS_ORACLE_SPEC_H
#define TESTS_ORACLE_SPEC_H

#include <stdbool.h>
#include <stdint.h>

struct spec {
    int64_t held;
};

#define SPEC_REFUSED ((int64_t)-1)

/* An operation on its way. Plain data: may be copied between two steps. */
struct spec_op {
    uint32_t place;   /* What spec_step() does next; see spec.c. */
    int64_t capacity; /* Acquire only. */
    int64_t change;   /* Units: above 0 acquire, below 0 release. */
    int64_t seen;
    int64_t answer; /* When spec_step() has returned true: as the whole operations. */
};

/* --- One operation, whole ------------------------------------------------- */

/* The number of units now held by all, or SPEC_REFUSED. Units at least 1. */
int64_t spec_acquire(struct spec *s, int64_t capacity, int64_t units);

/* 0, or SPEC_REFUSED if fewer are held. Whether by the caller is for it to know. */
int64_t spec_release(struct spec *s, int64_t units);

/* --- One operation, step by step ------------------------------------------ */

void spec_begin_acquire(struct spec_op *op, int64_t capacity, int64_t units);
void spec_begin_release(struct spec_op *op, int64_t units);

/* Read, or compare and swap. True: that was the last step, and op->answer is there. */
bool spec_step(struct spec *s, struct spec_op *op);

#endif /* TESTS_ORACLE_SPEC_H */
