/* trial.h - what the benchmarks of transactions and clusters share: options, runs in turn, the
 * tables that they fill, and the report. */
#ifndef BENCH_TRIAL_H
#define BENCH_TRIAL_H

#include "sheet.h"
#include "subject.h"

#define TRIAL_PARTS_MAX 4u
#define TRIAL_SERVERS_MAX 6u

/* The result of one run. A round is a transaction, or a lock acquired and released. */
struct trial_result {
    uint64_t rounds;
    int64_t ns;
    double median_us, p99_us; /* Of a round. */
    double acquire_us;        /* Median of the acquires alone. */
    uint64_t again;           /* Commands that were sent again; see pack.h. */
};

/* ---- a program ---- */

struct trial;

/* A part of a program, which --only names. It returns NULL, or an error message. */
struct trial_part {
    const char *name;
    const char *(*measure)(struct trial *t);
};

struct trial_program {
    const char *usage, *title, *method;
    const char *whose; /* As in a sheet. */
    struct trial_part parts[TRIAL_PARTS_MAX];
    int64_t run_ns, quick_ns; /* How long a run takes, and with --quick. */
    bool etcd;                /* The program accepts --etcd. */
};

/* The values of the options, and the data that all parts need. */
struct trial {
    const struct trial_program *program;
    struct sheet *sheet;
    char server[512], etcd[512];
    bool without_etcd; /* It is not installed. */
    bool json, quick;
    bool wanted[TRIAL_PARTS_MAX], some; /* --only. */
    uint32_t rounds;
    int64_t run_ns;
    double all_s,
        others_s; /* CPU time in all measured runs; the share of other processes. */
    uint64_t again;
};

/* The whole program; its exit status. */
int trial_main(int argc, char **argv, const struct trial_program *p);

/* ---- tables ---- */

/* In this order on the sheet. */
enum trial_table { RATE, MEDIAN, P99, ACQUIRE, CPU, GROUP, TRIAL_TABLES };

/* An empty id means that there is no such table. */
struct trial_heading {
    const char *id, *title, *unit;
};

/* Create a table for each heading, with these columns and, except for groups, this
 * reason why others may be better. t[] is NULL if there is none. */
void trial_tables(struct sheet *s, const char *part,
                  const struct trial_heading headings[TRIAL_TABLES],
                  const char *const *columns, uint32_t column_count, const char *why,
                  struct table *t[TRIAL_TABLES]);

/* Add a row of this name to each table. */
void trial_row(struct table *t[TRIAL_TABLES], const char *name);

/* ---- runs in turn ---- */

/* One of the systems that are compared: a column. */
struct side {
    void *of; /* The argument of run(); NULL: not measured. */
    const char *(*run)(void *of, int64_t run_ns, struct trial_result *out);
    const struct subject *servers[TRIAL_SERVERS_MAX]; /* Their CPU time counts. */
    uint32_t server_count;
    bool with_clients; /* The CPU time of the clients counts too. */
    struct subject
        *keeper; /* The server that counts the commits of a write; or NULL. */
};

/* Run all once, as a warm-up. Returns NULL, or an error message. */
const char *trial_warm(struct trial *t, struct side *sides, uint32_t count);

/* Run all once and fill a row of the tables; a different one begins each round. Returns NULL,
 * or an error message. */
const char *trial_round(struct trial *t, struct side *sides, uint32_t count,
                        struct table *tables[TRIAL_TABLES], uint32_t row,
                        uint32_t round);

#endif /* BENCH_TRIAL_H */
