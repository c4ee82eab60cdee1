/* crew.h - the processes that do the work.
 *
 * For each lock that is measured there is a crew of one or two processes of its own,
 * each pinned to a CPU. They sleep until it is their turn, meet at a barrier in shared
 * memory, and run for a fixed time. The process that runs the bench only waits, so it
 * takes no CPU from them, and it alone cleans up. */
#ifndef BENCH_CREW_H
#define BENCH_CREW_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "process.h"
#include "rivals.h"

struct crew {
    uint32_t size;
    pid_t pids[SEATS_MAX];
    int orders[SEATS_MAX];  /* Pipes, to write to. */
    int tallies[SEATS_MAX]; /* Pipes, to read from. */
    struct crew_barrier *barrier;
    bool inexact; /* As its lock: not each of its pairs need be granted. */
};

/* Fork a process for each seat of a place. Borrows both until crew_end(). cpus has one
 * for each seat; -1: do not pin. NULL, or what went wrong. */
const char *crew_start(struct crew *c, const struct rival *r, struct place *p,
                       const int *cpus);

/* Let them run: *ns_per_pair is the time from the first one's start to the last one's
 * end, divided by the pairs of all; *disturbed says whether one of them had to give its
 * CPU to somebody else meanwhile. NULL, or what went wrong. */
const char *crew_run(struct crew *c, int64_t run_ns, double *ns_per_pair,
                     bool *disturbed);

/* End the processes, however far they are. */
void crew_end(struct crew *c);

/* Read exactly this many bytes, within this many ms. NULL, or what went wrong. */
const char *crew_read(int fd, void *out, size_t size, int64_t wait_ms);

#endif /* BENCH_CREW_H */
