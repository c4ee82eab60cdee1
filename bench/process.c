#include "process.h"

#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <time.h>
#include <unistd.h>

int64_t now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

struct cpus cpus_look(void)
{
    double t[8] = {0}; /* user nice system idle iowait irq softirq steal */
    struct cpus c = {0};
    FILE *f = fopen("/proc/stat", "re");
    if (f == NULL) return c;
    if (fscanf(f, "cpu %lf %lf %lf %lf %lf %lf %lf %lf", &t[0], &t[1], &t[2], &t[3],
               &t[4], &t[5], &t[6], &t[7]) != 8)
        memset(t, 0, sizeof t);
    fclose(f);
    for (int i = 0; i < 8; i++) {
        c.all_s += t[i] / (double)sysconf(_SC_CLK_TCK);
        if (i != 3 && i != 4) c.used_s += t[i] / (double)sysconf(_SC_CLK_TCK);
    }
    return c;
}

double own_s(void)
{
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static volatile sig_atomic_t signal_caught;

static void on_signal(int number)
{
    signal_caught = number;
}

void interrupt_catch(void)
{
    struct sigaction a = {.sa_handler = on_signal}; /* Without SA_RESTART: waits end. */
    sigaction(SIGINT, &a, NULL);
    sigaction(SIGTERM, &a, NULL);
    sigaction(SIGHUP, &a, NULL);
}

bool interrupted(void)
{
    return signal_caught != 0;
}

int interrupt_signal(void)
{
    return signal_caught;
}

void crew_child(void)
{
    signal(SIGINT, SIG_DFL);
    signal(SIGTERM, SIG_DFL);
    signal(SIGHUP, SIG_DFL);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
}

void process_pin(int cpu)
{
    cpu_set_t set;
    if (cpu < 0) return;
    CPU_ZERO(&set);
    CPU_SET((size_t)cpu, &set);
    sched_setaffinity(0, sizeof set, &set);
}
