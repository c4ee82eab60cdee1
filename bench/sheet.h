/* sheet.h - the tables of a benchmark of servers, its goals, and the report as text or JSON.
 *
 * The results of the goals and the list of cases in which Sluice is slower are computed from the
 * tables. Text and JSON are made from the same structs. */
#ifndef BENCH_SHEET_H
#define BENCH_SHEET_H

#include <stdbool.h>
#include <stdint.h>

#include "machine.h"

#define SHEET_ROUNDS_MAX 31u
#define SHEET_ROWS_MAX 10u
#define SHEET_COLUMNS_MAX 3u
#define SHEET_TABLES_MAX 16u
#define SHEET_GOALS_MAX 48u

/* All measurements of one number. */
struct cell {
    uint32_t n;
    double runs[SHEET_ROUNDS_MAX];
    double median, min, max;
    char skipped[100]; /* The reason if there is none; "" if none was requested. */
};

/* Which values are better in a table. */
enum better { NEITHER, LESS, MORE };

struct table {
    const char *part; /* Of --only. */
    const char *id;
    const char *title;
    const char *unit;
    enum better better; /* Used to find columns that are better than the first. */
    const char *why;    /* The reason if others are better; NULL: do not list them. */
    uint32_t ours;      /* The number of columns of Sluice; 0: one. */
    uint32_t rows, columns;
    char row_names[SHEET_ROWS_MAX][48];
    const char *column_names[SHEET_COLUMNS_MAX];
    struct cell cells[SHEET_ROWS_MAX][SHEET_COLUMNS_MAX];
    char note[900];
};

/* A limit for a median, or for the quotient of two medians. */
struct goal {
    const char *id;
    char what[100];
    const struct cell *over, *under; /* No `under`: the number itself. */
    double limit, goal; /* Upper bounds; 0: none. The limit is mandatory. */
    double least;       /* Lower bound; 0: none. */
};

struct sheet {
    struct machine machine;
    const char *commit;
    const char *title; /* Its subject. */
    bool quick;
    uint32_t rounds;
    double run_ms;
    double load_after;  /* Load of the last minute, at the end. */
    double kept_off;    /* Share of time in which other processes used... */
    const char *whose;  /* ...this, as text: "the CPU of the measured server". */
    const char *method; /* Some sentences. */
    struct table tables[SHEET_TABLES_MAX];
    uint32_t table_count;
    struct goal goals[SHEET_GOALS_MAX];
    uint32_t goal_count;
};

/* Add an empty table to the sheet. */
struct table *sheet_table(struct sheet *s, const char *part, const char *id,
                          const char *title, const char *unit);

/* Add a row; returns its number. */
uint32_t table_row(struct table *t, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* Add a measurement to a cell. */
void cell_add(struct cell *c, double value);
void cell_skip(struct cell *c, const char *why);

void sheet_goal(struct sheet *s, const char *id, const struct cell *over,
                const struct cell *under, double limit, double goal, const char *format,
                ...) __attribute__((format(printf, 7, 8)));

/* A goal with a lower bound. */
void sheet_least(struct sheet *s, const char *id, const struct cell *over,
                 const struct cell *under, double least, const char *format, ...)
    __attribute__((format(printf, 6, 7)));

void sheet_text(const struct sheet *s);
void sheet_json(const struct sheet *s);

#endif /* BENCH_SHEET_H */
