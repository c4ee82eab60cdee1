/* audit.h - whether a segment is in order, seen from outside.
 *
 * The auditor keeps no books of its own; it walks the segment and compares what must
 * agree. While nothing moves (all processes stopped or dead) this is true at every
 * instruction:
 *
 *   N1  a key's count is the sum of what its records effectively hold
 *   B1  a set bit (key, slot): some record of the slot names the key
 *   B2  a record that holds something belongs to a slot that is in use, and the bit of
 *       its slot in the bitmap of its key is set
 *   C1  a chunk belongs to nobody or to a slot that is in use
 *
 * and when besides nobody is changing the key table and the dead have been reaped:
 *
 *   I1  every name is found, at one place of the index, and no two keys have one name
 *   I2  no key is closing, and the index leads to no key without a name
 *   D1  no slot is dying
 *   D2  every slot was filled in by the creator of the segment */
#ifndef TESTS_KILL_AUDIT_H
#define TESTS_KILL_AUDIT_H

#include <stdbool.h>
#include <stddef.h>

#include "canal/layout.h"

/* True if all of it holds; else why[] says what does not. `settled`: also the second
 * half. */
bool audit(const struct sl_canal_segment *seg, bool settled, char *why, size_t size);

#endif /* TESTS_KILL_AUDIT_H */
