/* kind.h - the kinds of clusters that the simulator can run, as main.c sees them. */
#ifndef SL_SIM_KIND_H
#define SL_SIM_KIND_H

#include <stdbool.h>
#include <stdint.h>

#include "sim/faults.h"

/* The options of a run. Everything else is drawn from the seed. */
struct sim_setup {
    uint64_t seed;
    uint64_t events;
    uint64_t faults;
    bool faults_given; /* False: draw `faults` from the seed. */
    uint32_t clients;  /* 0: drawn from the seed. */
    uint64_t until;    /* Stop after this many events; 0: no limit. */
    bool trace;
};

struct sim_counts {
    uint64_t seeds, events, grants, extends, steals, crashes, healed;
    uint64_t changes;      /* Of the membership, or of the keeper. */
    uint64_t resignations; /* Keepers that began to resign. */
    uint64_t early; /* New keepers whose wait ended before short leases had expired. */
    uint64_t failed_writes; /* Majority clusters. */
    /* Keeper clusters: requests that one node forwarded to another; grants without a lease that
     * overlapped another grant; commits; entries written to the journal. */
    uint64_t forwarded, overlaps, commits, records;
    uint64_t breaks, drains; /* Keeper clusters: acknowledged commands of operators. */
    uint64_t members;        /* Keeper clusters: nodes that were added or removed. */
    uint64_t wrong, stuck, twice;
};

/* What a run has done so far. */
struct sim_result {
    uint64_t hash, steps;
    int64_t now_us;
    uint64_t faults;
    uint32_t clients;
    const char *wrong; /* Borrowed; empty: no violation. */
    bool is_stuck;
    struct sim_counts counts;
};

struct sim_kind {
    const char *option; /* The option that selects this kind, with a space; or "". */
    const struct sim_fault_list *faults;
    uint64_t events;       /* The default number of events of a seed. */
    void *(*create)(void); /* Aborts if out of memory. */
    void (*destroy)(void *w);
    void (*run)(void *w, const struct sim_setup *setup); /* A world can be reused. */
    void (*look)(const void *w, struct sim_result *out);
    void (*print_setup)(const void *w);
    void (*print_counts)(const struct sim_counts *c);
};

extern const struct sim_kind sim_kind_majority, sim_kind_keeper;

#endif /* SL_SIM_KIND_H */
