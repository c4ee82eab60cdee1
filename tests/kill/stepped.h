/* stepped.h - a process that is led instruction by instruction.
 *
 * A stepped process runs prepare() at full speed, stops, and from there on executes
 * script() only as far as it is told. Its trace is the list of the instructions that
 * it came by; to reach the n-th of them again, another process of the same script runs
 * to a breakpoint there, which is as exact as n single steps and far cheaper. Where the
 * way differs from one run to the next (a hash with a random seed) it may not come by:
 * then stepped_reach() says so. */
#ifndef TESTS_KILL_STEPPED_H
#define TESTS_KILL_STEPPED_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#define STEPPED_RESULTS_MAX 24

/* Where a stepped process tells what it was answered. In shared memory. */
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
    bool done; /* The script has come to its end; the process is stopped behind it. */
    bool gone; /* The process is. */
};

struct trace {
    uintptr_t *at; /* Before which instruction it stood, at each point. */
    size_t count;
    size_t sleep; /* The point of its (first) futex sleep; SIZE_MAX: none. */
};

/* --- Life ----------------------------------------------------------------- */

/* Start one; it stands before the first instruction of its script. */
void stepped_start(struct stepped *p, struct stepped_role role);

/* SIGKILL, and wait until it is gone. NULL pid allowed. */
void stepped_kill(struct stepped *p);

/* In the stepped process: tell a result. */
void stepped_tell(int64_t result);

/* --- Moving --------------------------------------------------------------- */

/* One instruction, from point to point. False when the script is done or the process gone. */
bool stepped_step(struct stepped *p);

/* Step until told(arg) is true: true; or to the end: false. */
bool stepped_until(struct stepped *p, bool (*told)(void *arg), void *arg);

/* To the end of the script, at full speed. True if it got there. */
bool stepped_finish(struct stepped *p);

/* To the end of the script, as stepped_finish(), and count how many futex sleeps ended
 * because their time was over: nobody had woken them. */
bool stepped_finish_counting(struct stepped *p, uint32_t *timeouts);

/* Whether it is about to sleep in a futex; and sleep, until the kernel says so. */
bool stepped_would_sleep(const struct stepped *p);
void stepped_sleep(struct stepped *p);

/* Run until it sleeps in a futex. False if it came to its end before. */
bool stepped_run_to_sleep(struct stepped *p);

/* After stepped_sleep(): stand behind it, once it was woken. */
void stepped_wake(struct stepped *p);

/* --- Traces --------------------------------------------------------------- */

/* Lead p to the end of its script and note the way. Where it would sleep, on_sleep(arg)
 * is called when it does. */
void stepped_trace(struct stepped *p, struct trace *out, void (*on_sleep)(void *arg),
                   void *arg);

/* From point `from`, where p stands, to point `to` of the trace. False if it did not
 * come by: then it is at its end, or stands in a sleep. */
bool stepped_reach(struct stepped *p, const struct trace *t, size_t from, size_t to);

void trace_free(struct trace *t);

/* --- Tours ---------------------------------------------------------------- */

/* An order in which to visit points: first some far apart, then those between them, so
 * that a tour which must be cut short has been everywhere. With a stride it just goes
 * from the first to the last. */
struct tour {
    size_t first, last;
    size_t stride; /* 0: as said above. */
    size_t pass;
    size_t next;
};

struct tour tour_of(size_t first, size_t last, size_t stride);

/* The next point; false when all were visited. */
bool tour_next(struct tour *t, size_t *out);

#endif /* TESTS_KILL_STEPPED_H */
