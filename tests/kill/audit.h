/* audit.h - checks that a segment is consistent.
 *
 * The audit has no state of its own; it compares the structures of the segment with each other.
 * While all processes are stopped or dead, these invariants hold at every instruction:
 *
 *   N1  the count of a key is the sum of the units that its records effectively hold
 *   B1  a set bit (key, slot): some record of the slot names the key
 *   B2  a record that holds something belongs to a slot that is in use, and the bit of
 *       its slot in the bitmap of its key is set
 *   C1  a chunk is free, or belongs to a slot that is in use
 *
 * These hold if, in addition, no process is changing the key table and dead processes are reaped:
 *
 *   I1  every name is found at one position of the index, and no two keys have the same name
 *   I2  no key is closing, and the index contains no key without a name
 *   D1  no slot is dying
 *   D2  every slot was filled in by the creator of the segment */
#ifndef TESTS_KILL_AUDIT_H
#define TESTS_KILL_AUDIT_H

#include <stdbool.h>
#include <stddef.h>

#include "canal/layout.h"

/* Returns true if all invariants hold; otherwise why[] names the one that does not. `settled`: also
 * check the second list. */
bool audit(const struct sl_canal_segment *seg, bool settled, char *why, size_t size);

#endif /* TESTS_KILL_AUDIT_H */
