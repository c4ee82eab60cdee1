#include "process.h"

#include <sched.h>
#include <signal.h>
#include <sys/prctl.h>
#include <time.h>

int64_t now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
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
