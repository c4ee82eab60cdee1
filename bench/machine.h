/* machine.h - describes the machine of a measurement. Every report contains it. */
#ifndef BENCH_MACHINE_H
#define BENCH_MACHINE_H

#include <stdbool.h>

struct machine {
    char cpu[128];    /* Its model, as the kernel names it. */
    char kernel[160]; /* Name, release and machine. */
    char compiler[160];
    char libc[64];
    char library[64]; /* The file that the measured functions came from. */
    bool virtual;     /* The machine is virtual. */
    int online;       /* CPUs. */
    int allowed;      /* CPUs that this process may use. */
    int pair[2];      /* Two of them, on different cores if possible; or -1. */
    bool same_core;   /* Both are threads of one core. */
    double load;      /* Load of the last minute, at the start. */
};

void machine_look(struct machine *m);

#endif /* BENCH_MACHINE_H */
