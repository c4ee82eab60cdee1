/* reaping.h - what it costs to give back what one killed holder of many keys had.
 *
 *     fork --> holds a unit of each key --> SIGKILL --> gone --> another has a unit
 *                                           |...... kill to permit ............|
 *
 * With ours the first one that would be told "full" gives back all that the dead one
 * held: that acquire is what takes time. With SEM_UNDO the kernel does it while the
 * process exits; its share is what the exit takes longer than that of a process that
 * holds nothing. */
#ifndef BENCH_REAPING_H
#define BENCH_REAPING_H

#include "report.h"

#define REAPING_KEYS 10000u

/* Fill the cells of NAME and SYSV, in ns per key: variant 0 is the whole time, variant
 * 1 the giving back. NULL, or what went wrong. */
const char *reaping_measure(struct section *s, uint32_t rounds);

#endif /* BENCH_REAPING_H */
