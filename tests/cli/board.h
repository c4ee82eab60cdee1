/* board.h - what the processes of one scene tell each other, in a file that they map.
 *
 * A scene is many runs of `sluice run`. Each has a line here: the driver writes what the
 * run is and asks for, then starts it; its witness, the command under the lock, writes
 * that it lives. Both are judged by evidence of life:
 *
 *   E1  a time that a process writes about itself: it was alive then
 *   E2  a time that the driver takes before it kills a process which had not ended: it
 *       was alive then
 *
 * From its first to its last evidence a run held its permit for certain, and a little
 * longer than that. So what the evidence says of too many at once is never a false alarm,
 * and it misses no more than the moments before the first and after the last.
 *
 * E2 needs to know who ended by itself. Therefore a process's state changes once more
 * after ALIVE, by a swap: to ENDED by itself, or to DOOMED by the driver, who then kills
 * it. */
#ifndef TESTS_CLI_BOARD_H
#define TESTS_CLI_BOARD_H

#include <stdbool.h>
#include <stdint.h>
#include <time.h>

#define BOARD_RUNS_MAX 8192u
#define BOARD_TEXT_MAX 160

enum { WITNESS, HEIR, PROCESSES }; /* The heir is a child that the witness leaves. */

enum board_state { ABSENT, ALIVE, ENDED, DOOMED };

struct board_process {
    uint32_t state;
    int32_t pid;
    int64_t begin_ns;
    int64_t end_ns;
};

struct board_run {
    /* By the driver, before it starts the run. */
    uint32_t key;
    uint32_t units;
    uint32_t capacity;
    uint32_t spoiled; /* Later: it may be killed without its state telling so. */
    int64_t live_ns;
    int64_t heir_ns; /* How long the heir lives; 0: no heir. */

    /* By the processes. */
    struct board_process process[PROCESSES];
    int32_t session; /* SLUICE_LOCK_SESSION. */
    uint32_t slot;   /* SLUICE_LOCK_SLOT; 0: none. */
};

struct board {
    int32_t driver;
    uint32_t runs;
    /* What witnesses saw while it happened. */
    uint32_t looks;
    uint32_t crowds;
    char crowd[BOARD_TEXT_MAX];
    struct board_run run[BOARD_RUNS_MAX];
};

static inline int64_t board_now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

static inline uint32_t board_state(const struct board_process *p)
{
    return __atomic_load_n(&p->state, __ATOMIC_SEQ_CST);
}

/* From ALIVE to what it ends as. False if the other one was faster. */
static inline bool board_finish(struct board_process *p, uint32_t to)
{
    uint32_t from = ALIVE;
    return __atomic_compare_exchange_n(&p->state, &from, to, false, __ATOMIC_SEQ_CST,
                                       __ATOMIC_SEQ_CST);
}

/* Whether runs may hold one key at the same time. Each was granted when it fitted into
 * the capacity that it declares itself; of any of them the last one granted found the others
 * there. So for each capacity, those that declare that much or less fit into it. */
static inline bool board_fit(const struct board_run *const runs[], uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        uint64_t units = 0;
        for (uint32_t j = 0; j < count; j++)
            if (runs[j]->capacity <= runs[i]->capacity) units += runs[j]->units;
        if (units > runs[i]->capacity) return false;
    }
    return true;
}

#endif /* TESTS_CLI_BOARD_H */
