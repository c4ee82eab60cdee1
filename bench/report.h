/* report.h - the results of the lock benchmark, and the report as text or JSON.
 *
 * The ratios and the list of faster locks are computed from the sections. Text and JSON are made
 * from the same structs. */
#ifndef BENCH_REPORT_H
#define BENCH_REPORT_H

#include <stdbool.h>
#include <stdint.h>

#include "machine.h"
#include "rivals.h"

#define ROUNDS_MAX 7u
#define VARIANTS_MAX 3u

/* The results of one lock in all rounds. */
struct series {
    bool measured;
    double runs[ROUNDS_MAX];
    double median;
    double min;
    uint32_t watched;   /* Runs for which it is known whether they were disturbed, */
    uint32_t disturbed; /* and those in which other processes used our CPUs. */
    char skipped[120]; /* The reason if there is no result; "" if none was requested. */
};

/* A table: the locks, each in one or several variants. */
struct section {
    const char *id;
    const char *title;
    const char *unit;
    char note[512];    /* "" for none. */
    char skipped[160]; /* The reason if the section was skipped; otherwise "". */
    uint32_t variants;
    const char *labels[VARIANTS_MAX];
    struct series cells[RIVALS][VARIANTS_MAX];
};

/* A quotient of two medians, with a goal if it has one. */
struct ratio {
    const char *id;
    const char *what;
    double over, under; /* The two medians. */
    double value;
    double of_minima; /* The ratio of the two minima, which shows the noise. */
    double goal;      /* 0: none. */
    bool at_least;    /* The goal is a lower bound. */
    bool measured;
};

struct report {
    struct machine machine;
    const char *commit; /* "" if unknown. */
    uint32_t rounds;
    double run_ms;
    bool quick;
    struct section *sections;
    uint32_t section_count;
    struct ratio *ratios;
    uint32_t ratio_count;
};

/* Median and minimum of the first `rounds` runs. */
void series_close(struct series *s, uint32_t rounds);

bool ratio_reached(const struct ratio *r);

void report_text(const struct report *r);
void report_json(const struct report *r);

#endif /* BENCH_REPORT_H */
