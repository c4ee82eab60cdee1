/* longest.h - how long the longest lease is that may still run.
 *
 * After a crash a server must wait for so long before it grants. So the duration is made durable
 * before a lease of that length is granted. It is rounded up to one of a few lengths (2, 5, 10, 30
 * seconds, ...), so that writes are rare, and it falls when the leases of a length have ended. */
#ifndef SL_BASE_LONGEST_H
#define SL_BASE_LONGEST_H

#include "base/types.h"

#define SL_LENGTHS 18

/* For so long after the end of a lease, another one as long is expected: then a client that
 * acquires a lock every minute never waits for the disk. */
#define SL_FOLLOW_MS 60000

struct sl_longest {
    sl_ms ends_ms[SL_LENGTHS]; /* Until when leases of each length may run; 0: none. */
};

/* The class of a length, and the length of a class. */
size_t sl_length_of(sl_ms lease_ms);
sl_ms sl_length_ms(size_t i);

/* A length rounded up to that of its class; 0 stays 0. */
sl_ms sl_longest_round_up(sl_ms lease_ms);

/* A lease of this length was granted, and ends at end_ms at the latest. */
void sl_longest_given(struct sl_longest *x, sl_ms lease_ms, sl_ms end_ms);

/* The longest time for which a lease may run or is expected; not rounded. */
sl_ms sl_longest_now(const struct sl_longest *x, sl_ms now_ms);

#endif /* SL_BASE_LONGEST_H */
