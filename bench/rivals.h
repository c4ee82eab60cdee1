/* rivals.h - the locks that are measured, including Sluice.
 *
 * Every lock is measured through the same few functions: opened by the process that
 * runs the bench, used by one or two others that it forks. What is timed is `pairs`, a
 * loop around one acquire and its release, written out for each lock so that nothing
 * stands between the loop and the lock but what its users pay as well: for ours the
 * call into the shared library, for the bare ones nothing. */
#ifndef BENCH_RIVALS_H
#define BENCH_RIVALS_H

#include <stdbool.h>
#include <stdint.h>

#include "sluice.h"

#define SEATS_MAX 2u

/* What a lock is to be measured with. */
struct site {
    uint32_t keys; /* Locks of this kind. */
    struct sluice_capacity capacity;
    uint32_t held;  /* Units of the first key that the opener holds throughout. */
    uint32_t seats; /* Processes that use it. */
    bool apart; /* Each process has a key of its own; otherwise all have the first. */
    const uint32_t *order; /* Which key is next; NULL: always the same. Borrowed. */
    uint32_t order_mask;   /* Its length, a power of two, less 1. */
};

/* A lock as the opener has it, and after the fork every seat. */
struct place {
    struct site site;
    char *cells; /* Shared memory: CELL_BYTES for each key. */
    size_t cell_bytes;
    size_t cells_bytes;
    int *sets; /* SysV: semaphore sets. */
    uint32_t set_count;
    int files[SEATS_MAX]; /* flock: one for each key, at most SEATS_MAX. */
    struct sluice_canal *canal;
    char (*names)[16];
    struct sluice_key **handles; /* Of this process. */
};

/* One process's place at a lock. */
struct seat {
    struct place *place;
    uint32_t key;  /* When it has one only. */
    uint32_t next; /* Where it stands in the order. */
};

struct rival {
    const char *id;
    const char *name;
    const char *killed; /* What becomes of the permits of a killed holder. */
    const char *why;    /* Why it can be faster than ours; NULL for ours. */
    /* NULL, or why it cannot be had here. In the opener. */
    const char *(*open)(struct place *p);
    /* The same, in a process that is about to use it. */
    const char *(*sit)(struct place *p, uint32_t seat);
    /* This many pairs; the number of those that were granted. */
    uint32_t (*one)(struct seat *s, uint32_t pairs);
    uint32_t (*many)(struct seat *s, uint32_t pairs);
    /* Units of the first keys that are held now. In the opener. */
    int64_t (*count)(struct place *p, uint32_t key);
    void (*close)(struct place *p);
    bool inexact; /* Two that use a fresh key at once may be answered wrongly. */
};

enum rival_number { CAS8, CAS16, POSIX, SYSV, FLOCK, BUCKETS, NAME, HANDLE, RIVALS };

extern const struct rival rivals[RIVALS];

/* Open a lock of that kind; copies the site. NULL, or why it cannot be had: then there
 * is nothing to close. */
const char *place_open(struct place *p, const struct rival *r, const struct site *site);

/* Open a canal for the benchmark: in an unlinked file if there is space for one. Returns
 * NULL, or an error message. */
const char *canal_open(struct sluice_canal **out, uint32_t keys);

/* Names for this many keys; NULL when memory is out. To be freed by free(). */
char (*names_make(uint32_t keys))[16];

#endif /* BENCH_RIVALS_H */
