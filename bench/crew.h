/* crew.h - the processes that are measured.
 *
 * Each measured lock has a crew of one or two processes, each pinned to a CPU. They sleep until it
 * is their turn, meet at a barrier in shared memory, and run for a fixed time. The main process of
 * the benchmark only waits, so it takes no CPU time from them, and it alone cleans up. */
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
    int orders[SEATS_MAX];  /* Pipes to the processes. */
    int tallies[SEATS_MAX]; /* Pipes from the processes. */
    struct crew_barrier *barrier;
    bool inexact; /* As in struct rival: not every pair must be granted. */
};

/* Fork a process for each seat of a place. Borrows both until crew_end(). cpus has
 * one CPU for each seat; -1: do not pin. Returns NULL, or an error message. */
const char *crew_start(struct crew *c, const struct rival *r, struct place *p,
                       const int *cpus);

/* Run all processes. *ns_per_pair is the time from the first start to the last end,
 * divided by the number of all pairs. *disturbed says whether one of them was
 * preempted. Returns NULL, or an error message. */
const char *crew_run(struct crew *c, int64_t run_ns, double *ns_per_pair,
                     bool *disturbed);

/* Kill the processes, in whatever state they are. */
void crew_end(struct crew *c);

/* Read exactly this many bytes within this many ms. Returns NULL, or an error
 * message. */
const char *crew_read(int fd, void *out, size_t size, int64_t wait_ms);

#endif /* BENCH_CREW_H */
