/* report.h - what was measured, and how it is said: as text or as JSON.
 *
 * The ratios and the list of faster locks are computed from the sections, and text and JSON
 * are made from the same structs. */
#ifndef BENCH_REPORT_H
#define BENCH_REPORT_H

#include <stdbool.h>
#include <stdint.h>

#include "machine.h"
#include "rivals.h"

#define ROUNDS_MAX 7u
#define VARIANTS_MAX 3u

/* What one lock did in all rounds. */
struct series {
    bool measured;
    double runs[ROUNDS_MAX];
    double median;
    double min;
    uint32_t watched;   /* Runs of which is known whether they were disturbed, */
    uint32_t disturbed; /* and those of them in which other processes used our CPUs. */
    char skipped[120];  /* Why there is nothing; "" if it was not to be measured. */
};

/* A table: the locks, each in one or several variants. */
struct section {
    const char *id;
    const char *title;
    const char *unit;
    char note[512];    /* "" for none. */
    char skipped[160]; /* Why all of it was left out; "". */
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
    double of_minima; /* The same of the two minima: how much noise there was. */
    double goal;      /* 0: none. */
    bool at_least;    /* The goal is a lower bound. */
    bool measured;
};

struct report {
    struct machine machine;
    const char *commit; /* "" if it is not known. */
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
