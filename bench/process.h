/* process.h - time, signals and children, for both programs of the bench. */
#ifndef BENCH_PROCESS_H
#define BENCH_PROCESS_H

#include <stdbool.h>
#include <stdint.h>

/* CLOCK_MONOTONIC. */
int64_t now_ns(void);

/* Time of all CPUs since the machine began, in seconds: in use, and in all. */
struct cpus {
    double used_s, all_s;
};
struct cpus cpus_look(void);

/* CPU time of this process, in seconds. */
double own_s(void);

/* From now on SIGINT, SIGTERM and SIGHUP do not end the process but make waiting
 * functions fail. */
void interrupt_catch(void);
bool interrupted(void);
int interrupt_signal(void);

/* What every child of the bench does first: die with it, and by signals. */
void crew_child(void);

/* Use this CPU alone; -1: any. */
void process_pin(int cpu);

#endif /* BENCH_PROCESS_H */
