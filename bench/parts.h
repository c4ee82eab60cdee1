/* parts.h - the parts of the server's benchmark, one function each. --only names them. */
#ifndef BENCH_PARTS_H
#define BENCH_PARTS_H

#include "sheet.h"
#include "subject.h"

/* The values of the options, and the data that all parts need. */
struct bench {
    struct sheet *sheet;
    struct subject_programs programs;
    bool absent[SUBJECTS]; /* A server that is not installed. */
    bool quick;
    uint32_t rounds;
    int64_t run_ns;
    uint32_t files_max;        /* RLIMIT_NOFILE, which limits the connections. */
    struct subject_time spent; /* Of the measured servers, in all runs. */
};

/* Each returns NULL, or an error message. */
const char *part_pairs(struct bench *b);   /* parts_pairs.c */
const char *part_journal(struct bench *b); /* parts_journal.c */
const char *part_memory(struct bench *b);  /* parts_held.c */
const char *part_keys(struct bench *b);    /* parts_held.c */
const char *part_turns(struct bench *b);   /* parts_waiting.c */
const char *part_waiters(struct bench *b); /* parts_waiting.c */
const char *part_notify(struct bench *b);  /* parts_notify.c */

/* The same operations on the lock table alone, in this process (parts_table.c). */
struct table_ends {
    uint64_t leases, waiters;
    double ns_per_effect; /* CPU time. */
    double longest_us; /* CPU time of the longest stretch of TABLE_STRETCH effects. */
    uint64_t grants;
};
#define TABLE_STRETCH 64u
const char *table_leases_end(uint64_t leases, uint64_t waiters, struct table_ends *out);

/* This many sessions wait for one key, which its holder releases repeatedly. The CPU time is
 * that of one grant, the release before it, and the request that joins the end of the queue. */
const char *table_grants(uint64_t waiters, uint64_t grants, double *ns_per_grant);

#endif /* BENCH_PARTS_H */
