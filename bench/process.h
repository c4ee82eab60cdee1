/* process.h - time, signals and child processes, for all benchmarks. */
#ifndef BENCH_PROCESS_H
#define BENCH_PROCESS_H

#include <stdbool.h>
#include <stdint.h>

/* CLOCK_MONOTONIC. */
int64_t now_ns(void);

/* Time of all CPUs since the boot, in seconds: busy, and in total. */
struct cpus {
    double used_s, all_s;
};
struct cpus cpus_look(void);

/* CPU time of this process, in seconds. */
double own_s(void);

/* From now on SIGINT, SIGTERM and SIGHUP do not end the process; instead, waiting
 * functions fail. */
void interrupt_catch(void);
bool interrupted(void);
int interrupt_signal(void);

/* Every child calls this first: it is killed when the parent dies, and signals have
 * their default effect. */
void crew_child(void);

/* Pin the process to this CPU; -1: any. */
void process_pin(int cpu);

#endif /* BENCH_PROCESS_H */
