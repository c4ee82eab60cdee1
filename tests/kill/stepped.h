/* stepped.h - a process that the test executes instruction by instruction.
 *
 * A stepped process runs prepare() at full speed, stops, and then executes script() under the
 * control of the test. Its trace is the list of the instructions that it executes. To reach the n-th
 * of them again, another process of the same script runs to a breakpoint, which is as exact as n
 * single steps and much faster. If two runs differ, for example because a hash has a random seed, the
 * process may not reach the breakpoint; then stepped_reach() returns false. */
#ifndef TESTS_KILL_STEPPED_H
#define TESTS_KILL_STEPPED_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#define STEPPED_RESULTS_MAX 24

/* The results of a stepped process, in shared memory. */
struct stepped_board {
    uint32_t count;
    int64_t results[STEPPED_RESULTS_MAX];
};

struct stepped_role {
    void (*prepare)(void *arg);
    void (*script)(void *arg);
    void *arg;
};

struct stepped {
    pid_t pid;
    struct stepped_board *board;
    bool done; /* The script has ended; the process is stopped after it. */
    bool gone; /* The process has ended. */
};

struct trace {
    uintptr_t *at; /* The address of the next instruction at each point. */
    size_t count;
    size_t sleep; /* The point of its (first) futex sleep; SIZE_MAX: none. */
};

/* --- Life ----------------------------------------------------------------- */

/* Start a process; it stops before the first instruction of its script. */
void stepped_start(struct stepped *p, struct stepped_role role);

/* Send SIGKILL, and wait until the process has ended. A pid of 0 is allowed. */
void stepped_kill(struct stepped *p);

/* In the stepped process: store a result. */
void stepped_tell(int64_t result);

/* --- Execution ------------------------------------------------------------ */

/* Execute one instruction. Returns false if the script or the process has ended. */
bool stepped_step(struct stepped *p);

/* Step until told(arg) is true. Returns false if the script ends before. */
bool stepped_until(struct stepped *p, bool (*told)(void *arg), void *arg);

/* Run to the end of the script, at full speed. Returns whether it was reached. */
bool stepped_finish(struct stepped *p);

/* Like stepped_finish(), and count the futex sleeps that timed out because no process woke the
 * sleeper. */
bool stepped_finish_counting(struct stepped *p, uint32_t *timeouts);

/* Whether it is about to sleep in a futex; and let it sleep, until the kernel reports the sleep. */
bool stepped_would_sleep(const struct stepped *p);
void stepped_sleep(struct stepped *p);

/* Run until it sleeps in a futex. Returns false if the script ends before. */
bool stepped_run_to_sleep(struct stepped *p);

/* After stepped_sleep(): when the process was woken, stop it after the sleep. */
void stepped_wake(struct stepped *p);

/* --- Traces --------------------------------------------------------------- */

/* Step p to the end of its script and record the trace. While it sleeps, call on_sleep(arg). */
void stepped_trace(struct stepped *p, struct trace *out, void (*on_sleep)(void *arg),
                   void *arg);

/* Run p from point `from`, where it is stopped, to point `to` of the trace. Returns false if it did
 * not reach that point: then it is at its end, or stopped in a sleep. */
bool stepped_reach(struct stepped *p, const struct trace *t, size_t from, size_t to);

void trace_free(struct trace *t);

/* --- Tours ---------------------------------------------------------------- */

/* An order in which to visit points: first some that are far apart, then those between them, so that
 * a tour that ends early has covered the whole range. With a stride, the tour goes from the first to
 * the last point. */
struct tour {
    size_t first, last;
    size_t stride; /* 0: none. */
    size_t pass;
    size_t next;
};

struct tour tour_of(size_t first, size_t last, size_t stride);

/* The next point; false when all were visited. */
bool tour_next(struct tour *t, size_t *out);

#endif /* TESTS_KILL_STEPPED_H */
