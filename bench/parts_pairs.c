/* parts_pairs.c - the cost of a lock and its release, on three servers in turn. */
#include <stdio.h>
#include <string.h>

#include "load.h"
#include "parts.h"
#include "programs.h"

/* How the client sends its commands. */
static const struct shape {
    const char *id, *name;
    uint32_t connections, depth;
} shapes[] = {
    {"1", "1 connection", 1, 1},
    {"50", "50 connections", 50, 1},
    {"1_by_32", "1, pipelined by 32", 1, 32},
    {"50_by_32", "50, pipelined by 32", 50, 32},
};
#define SHAPES (sizeof shapes / sizeof shapes[0])

enum { CPU, RATE, MEDIAN, P99, TABLES };

static void tables_make(struct bench *b, struct table *t[TABLES])
{
    static const char why[] =
        "The empty server only replies +OK: it finds the end of a command and stores "
        "nothing. The difference is the cost of locks: parsing arguments, the table, "
        "the lease, and a reply with five numbers.";
    struct sheet *s = b->sheet;
    t[CPU] = sheet_table(s, "pairs", "cpu", "Server CPU", "us per lock and unlock");
    t[RATE] = sheet_table(s, "pairs", "rate", "Pairs per second",
                          "thousands; the client is one thread on the other CPU");
    t[MEDIAN] = sheet_table(
        s, "pairs", "median", "Time of a pair, median",
        "us; pipelined: of 32 acquires, their replies, and 32 releases");
    t[P99] = sheet_table(s, "pairs", "p99", "Time of a pair, p99", "us, as above");
    for (uint32_t i = 0; i < TABLES; i++) {
        t[i]->better = i == RATE ? MORE : LESS;
        t[i]->why = why;
        t[i]->columns = SUBJECTS;
        memcpy(t[i]->column_names, subject_names, SUBJECTS * sizeof subject_names[0]);
        for (uint32_t n = 0; n < SHAPES; n++) table_row(t[i], "%s", shapes[n].name);
    }
}

static const char *run_one(struct bench *b, struct table *t[TABLES], uint32_t shape,
                           struct subject *s, struct load *l)
{
    struct load_result r;
    struct subject_time before = subject_time(s);
    const char *wrong = load_run(l, b->run_ns, &r);
    if (wrong != NULL) return wrong;
    struct subject_time after = subject_time(s);
    double cpu_us = (double)(after.cpu_ns - before.cpu_ns) / 1e3;
    b->spent.cpu_ns += r.ns;
    b->spent.kept_off_ns += after.kept_off_ns - before.kept_off_ns;
    cell_add(&t[CPU]->cells[shape][s->kind], cpu_us / (double)r.pairs);
    cell_add(&t[RATE]->cells[shape][s->kind], (double)r.pairs * 1e6 / (double)r.ns);
    cell_add(&t[MEDIAN]->cells[shape][s->kind], r.median_us);
    cell_add(&t[P99]->cells[shape][s->kind], r.p99_us);
    return NULL;
}

/* Run all servers in turn; a different one begins each round. */
static const char *run_shape(struct bench *b, struct table *t[TABLES], uint32_t shape,
                             struct subject *subjects)
{
    struct load *loads[SUBJECTS] = {NULL};
    struct load_result warm;
    const char *wrong = NULL;
    for (uint32_t i = 0; i < SUBJECTS && wrong == NULL; i++) {
        if (b->absent[i]) continue;
        wrong = load_open(&loads[i], &subjects[i], shapes[shape].connections,
                          shapes[shape].depth, false);
        if (wrong == NULL) wrong = load_run(loads[i], b->run_ns / 2, &warm);
    }
    for (uint32_t round = 0; round < b->rounds && wrong == NULL; round++)
        for (uint32_t n = 0; n < SUBJECTS && wrong == NULL; n++) {
            uint32_t i = (round + n) % SUBJECTS;
            if (!b->absent[i]) wrong = run_one(b, t, shape, &subjects[i], loads[i]);
        }
    for (uint32_t i = 0; i < SUBJECTS; i++) load_close(loads[i]);
    return wrong;
}

static void goals_make(struct bench *b, const struct table *cpu)
{
    for (uint32_t n = 0; n < SHAPES; n++) {
        static char ids[SHAPES][2][40];
        bool piped = shapes[n].depth > 1;
        const char *how = piped ? "" : ", one at a time";
        snprintf(ids[n][0], sizeof ids[n][0], "cpu_%s_to_redis", shapes[n].id);
        snprintf(ids[n][1], sizeof ids[n][1], "cpu_%s_to_empty", shapes[n].id);
        const struct cell *row = cpu->cells[n];
        sheet_goal(b->sheet, ids[n][0], &row[OURS], &row[REDIS], piped ? 0.5 : 1.0,
                   piped ? 0.4 : 0.9, "CPU of a pair, Sluice / Redis, %s%s",
                   shapes[n].name, how);
        sheet_goal(b->sheet, ids[n][1], &row[OURS], &row[EMPTY], 0, piped ? 0 : 1.1,
                   "CPU of a pair, Sluice / empty server, %s%s", shapes[n].name, how);
    }
}

const char *part_pairs(struct bench *b)
{
    struct subject subjects[SUBJECTS] = {0};
    struct table *t[TABLES];
    const char *wrong = NULL;
    tables_make(b, t);
    goals_make(b, t[CPU]);
    for (uint32_t i = 0; i < SUBJECTS && wrong == NULL; i++)
        if (!b->absent[i]) wrong = subject_start(&subjects[i], i, &b->programs, NULL);
    for (uint32_t n = 0; n < SHAPES && wrong == NULL; n++) {
        progress("pairs: %s", shapes[n].name);
        wrong = run_shape(b, t, n, subjects);
    }
    for (uint32_t i = 0; i < SUBJECTS; i++) subject_stop(&subjects[i]);
    return wrong;
}
