/* reaping.h - the cost of releasing the units of a killed holder of many keys.
 *
 *     fork --> holds a unit of each key --> SIGKILL --> gone --> another has a unit
 *                                           |...... kill to permit ............|
 *
 * In Sluice the first caller that would get FULL releases everything that the killed process
 * held: the time is that of this acquire. With SEM_UNDO the kernel does it while the process
 * exits; its share is the time by which this exit is longer than that of a process that holds
 * nothing. */
#ifndef BENCH_REAPING_H
#define BENCH_REAPING_H

#include "report.h"

#define REAPING_KEYS 10000u

/* Fill the cells of NAME and SYSV, in ns per key: variant 0 is the whole time, variant
 * 1 the release. Returns NULL, or an error message. */
const char *reaping_measure(struct section *s, uint32_t rounds);

#endif /* BENCH_REAPING_H */
