/* parts_journal.c - the cost of the journal: servers that keep locks in memory only, that write
 * them to a file, and that make them durable before they reply. */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "load.h"
#include "parts.h"
#include "programs.h"

enum { MEMORY, WRITTEN, DURABLE, REDIS_MEMORY, REDIS_SECOND, REDIS_ALWAYS, WAYS };

static const struct way {
    const char *name;
    enum subject_kind kind;
    int64_t lease_ms;
    const char *options[5];
} ways[WAYS] = {
    {"Sluice, data = none", OURS, 30000, {"--data", "none"}},
    {"Sluice, LEASE 30000", OURS, 30000, {NULL}},
    {"Sluice, LEASE 300000", OURS, 300000, {NULL}},
    {"Redis, no persistence", REDIS, 30000, {NULL}},
    {"Redis, AOF everysec", REDIS, 30000, {"--appendonly", "yes"}},
    {"Redis, AOF always",
     REDIS,
     30000,
     {"--appendonly", "yes", "--appendfsync", "always"}},
};

static const struct shape {
    const char *name;
    uint32_t connections, depth;
} shapes[] = {
    {"50 connections", 50, 1},
    {"1, pipelined by 32", 1, 32},
    {"50, pipelined by 32", 50, 32},
};
#define SHAPES (sizeof shapes / sizeof shapes[0])

enum { CPU, RATE, P99, TABLES };

static bool absent(const struct bench *b, uint32_t way)
{
    return b->absent[ways[way].kind];
}

static void tables_make(struct bench *b, struct table *t[TABLES])
{
    struct sheet *s = b->sheet;
    t[CPU] = sheet_table(s, "journal", "journal_cpu", "Server CPU with a journal",
                         "us per lock and unlock");
    t[RATE] = sheet_table(s, "journal", "journal_rate",
                          "Pairs per second with a journal", "thousands");
    t[P99] = sheet_table(s, "journal", "journal_p99",
                         "Time of a pair with a journal, p99",
                         "us; pipelined: of 32 acquires and 32 releases");
    for (uint32_t i = 0; i < TABLES; i++) {
        t[i]->better = i == RATE ? MORE : LESS;
        t[i]->columns = SHAPES;
        for (uint32_t n = 0; n < SHAPES; n++) t[i]->column_names[n] = shapes[n].name;
        for (uint32_t n = 0; n < WAYS; n++) table_row(t[i], "%s", ways[n].name);
    }
}

static void goals_make(struct bench *b, const struct table *cpu)
{
    static const char *const ids[SHAPES] = {"journal_50", "journal_1_by_32",
                                            "journal_50_by_32"};
    for (uint32_t n = 0; n < SHAPES; n++)
        sheet_goal(b->sheet, ids[n], &cpu->cells[WRITTEN][n], &cpu->cells[MEMORY][n], 0,
                   shapes[n].depth > 1 ? 1.15 : 1.05,
                   "CPU of a pair, journal / data = none, %s", shapes[n].name);
}

static const char *run_one(struct bench *b, struct table *t[TABLES], uint32_t shape,
                           uint32_t way, struct subject *s, struct load *l)
{
    struct load_result r;
    struct subject_time before = subject_time(s);
    const char *wrong = load_run(l, b->run_ns, &r);
    if (wrong != NULL) return wrong;
    struct subject_time after = subject_time(s);
    b->spent.cpu_ns += r.ns;
    b->spent.kept_off_ns += after.kept_off_ns - before.kept_off_ns;
    cell_add(&t[CPU]->cells[way][shape],
             (double)(after.cpu_ns - before.cpu_ns) / 1e3 / (double)r.pairs);
    cell_add(&t[RATE]->cells[way][shape], (double)r.pairs * 1e6 / (double)r.ns);
    cell_add(&t[P99]->cells[way][shape], r.p99_us);
    return NULL;
}

static const char *run_shape(struct bench *b, struct table *t[TABLES], uint32_t shape,
                             struct subject *subjects)
{
    struct load *loads[WAYS] = {NULL};
    struct load_result warm;
    const char *wrong = NULL;
    for (uint32_t i = 0; i < WAYS && wrong == NULL; i++) {
        if (absent(b, i)) continue;
        wrong = load_open(&loads[i], &subjects[i], shapes[shape].connections,
                          shapes[shape].depth, false);
        if (wrong != NULL) break;
        load_lease(loads[i], ways[i].lease_ms);
        wrong = load_run(loads[i], b->run_ns / 2, &warm);
    }
    for (uint32_t round = 0; round < b->rounds && wrong == NULL; round++)
        for (uint32_t n = 0; n < WAYS && wrong == NULL; n++) {
            uint32_t i = (round + n) % WAYS;
            if (!absent(b, i)) wrong = run_one(b, t, shape, i, &subjects[i], loads[i]);
        }
    for (uint32_t i = 0; i < WAYS; i++) load_close(loads[i]);
    return wrong;
}

/* ---- compaction under load ---- */

/* Runs pairs while a server with many leases rewrites its journal. */
static const char *rewrite(struct bench *b, struct table *t, struct subject *s)
{
    struct load *l = NULL;
    struct load_result r;
    uint64_t leases = b->quick ? 20000 : 1000000;
    const struct load_fill fill = {.from = 0, .to = leases, .lease_ms = 60000};
    const char *wrong = load_fill(s, &fill);
    if (wrong == NULL) wrong = load_open(&l, s, 50, 32, false);
    int64_t began = subject_info(s, "persistence", "journal_copies");
    for (int i = 0; i < 100 && wrong == NULL; i++) {
        wrong = load_run(l, 100000000, &r);
        if (subject_info(s, "persistence", "journal_copies") > began) break;
    }
    load_close(l);
    if (wrong != NULL) return wrong;
    int64_t count = subject_info(s, "persistence", "journal_copies") - began;
    cell_add(&t->cells[0][0], (double)count);
    cell_add(&t->cells[1][0],
             (double)subject_info(s, "latency", "loop_cpu_us_max_10s"));
    cell_add(&t->cells[2][0],
             (double)subject_info(s, "persistence", "journal_bytes") / 1e6);
    cell_add(&t->cells[3][0],
             (double)subject_info(s, "persistence", "journal_live_bytes") / 1e6);
    return NULL;
}

static const char *measure_rewrite(struct bench *b)
{
    struct table *t = sheet_table(b->sheet, "journal", "journal_rewrite",
                                  "The journal is rewritten under load",
                                  "as the rows say; one run");
    t->better = NEITHER;
    t->columns = 1;
    t->column_names[0] = subject_names[OURS];
    table_row(t, "rewrites");
    table_row(t, "longest turn, us of CPU");
    table_row(t, "size of the file, MB");
    table_row(t, "live content, MB");
    sheet_goal(b->sheet, "journal_rewrite_turn", &t->cells[1][0], NULL, 0, 5000,
               "longest turn while the journal is rewritten, us of CPU");
    struct subject s = {0};
    static const char *const options[] = {"--keys-max", "2000000", "--keep-alive", "0",
                                          NULL};
    progress("journal: rewriting");
    const char *wrong = subject_start(&s, OURS, &b->programs, options);
    if (wrong == NULL) wrong = rewrite(b, t, &s);
    subject_stop(&s);
    return wrong;
}

const char *part_journal(struct bench *b)
{
    struct subject subjects[WAYS] = {0};
    struct table *t[TABLES];
    const char *wrong = NULL;
    tables_make(b, t);
    goals_make(b, t[CPU]);
    for (uint32_t i = 0; i < WAYS && wrong == NULL; i++)
        if (!absent(b, i))
            wrong = subject_start(&subjects[i], ways[i].kind, &b->programs,
                                  ways[i].options);
    for (uint32_t n = 0; n < SHAPES && wrong == NULL; n++) {
        progress("journal: %s", shapes[n].name);
        wrong = run_shape(b, t, n, subjects);
    }
    for (uint32_t i = 0; i < WAYS; i++) subject_stop(&subjects[i]);
    return wrong != NULL ? wrong : measure_rewrite(b);
}
