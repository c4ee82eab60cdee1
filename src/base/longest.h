/* longest.h - how long the longest lease is that may still run.
 *
 * After a crash, for so long nobody can be sure of anything: so it is written down before it
 * is relied on. It is rounded up to one of a few lengths (2, 5, 10, 30 seconds, ...), so that
 * this is rare, and it falls again when the leases of a length have ended. */
#ifndef SL_BASE_LONGEST_H
#define SL_BASE_LONGEST_H

#include "base/types.h"

#define SL_LENGTHS 18

/* After the end of a lease another one as long is expected: who takes a lock every minute
 * never waits for the disk. */
#define SL_FOLLOW_MS 60000

struct sl_longest {
    sl_ms ends_ms[SL_LENGTHS]; /* Until when leases of each length may run; 0: none. */
};

/* Which of the lengths this one is rounded up to, and how long that is. */
size_t sl_length_of(sl_ms lease_ms);
sl_ms sl_length_ms(size_t i);

/* The length to which this one is rounded up; 0 stays 0. */
sl_ms sl_longest_round_up(sl_ms lease_ms);

/* A lease of this length was given, and ends by then. */
void sl_longest_given(struct sl_longest *x, sl_ms lease_ms, sl_ms end_ms);

/* How long the longest is that may run, or is expected; not rounded. */
sl_ms sl_longest_now(const struct sl_longest *x, sl_ms now_ms);

#endif /* SL_BASE_LONGEST_H */
