/* rivals.h - the locks that are measured, including Sluice.
 *
 * Every lock is measured through the same few functions. The main process of the benchmark opens
 * it, and one or two child processes use it. The measured code is a loop around one acquire and its
 * release, which is written for each lock, so that the loop adds only the cost that users have too:
 * for Sluice the call into the shared library, for the bare locks nothing. */
#ifndef BENCH_RIVALS_H
#define BENCH_RIVALS_H

#include <stdbool.h>
#include <stdint.h>

#include "sluice.h"

#define SEATS_MAX 2u

/* The parameters of a measurement. */
struct site {
    uint32_t keys; /* Locks of this kind. */
    struct sluice_capacity capacity;
    uint32_t held;  /* Units of the first key that the opener holds throughout. */
    uint32_t seats; /* Processes that use it. */
    bool apart;     /* Each process has its own key; otherwise all use the first. */
    const uint32_t *order; /* Which key is next; NULL: always the same. Borrowed. */
    uint32_t order_mask;   /* Its length minus 1; the length is a power of two. */
};

/* A lock as seen by the opener and, after the fork, by every seat. */
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

/* One process that uses a lock. */
struct seat {
    struct place *place;
    uint32_t key;  /* If it uses one key only. */
    uint32_t next; /* Its position in the order of keys. */
};

struct rival {
    const char *id;
    const char *name;
    const char *killed; /* What happens to the permits of a killed holder. */
    const char *why;    /* Why it can be faster than Sluice; NULL for Sluice. */
    /* Open the lock, in the opener. Returns NULL, or why it is not available. */
    const char *(*open)(struct place *p);
    /* The same, in a process that uses the lock. */
    const char *(*sit)(struct place *p, uint32_t seat);
    /* Run this many pairs; returns the number of grants. */
    uint32_t (*one)(struct seat *s, uint32_t pairs);
    uint32_t (*many)(struct seat *s, uint32_t pairs);
    /* The units of the first keys that are held now; in the opener. */
    int64_t (*count)(struct place *p, uint32_t key);
    void (*close)(struct place *p);
    bool inexact; /* Two processes may get wrong results for a fresh key. */
};

enum rival_number { CAS8, CAS16, POSIX, SYSV, FLOCK, BUCKETS, NAME, HANDLE, RIVALS };

extern const struct rival rivals[RIVALS];

/* Open a lock of that kind; copies the site. Returns NULL, or why it is not
 * available: then there is nothing to close. */
const char *place_open(struct place *p, const struct rival *r, const struct site *site);

/* Open a canal for the benchmark: in an unlinked file if there is space for one. Returns
 * NULL, or an error message. */
const char *canal_open(struct sluice_canal **out, uint32_t keys);

/* Names for this many keys; NULL if there is no memory. The caller frees them with
 * free(). */
char (*names_make(uint32_t keys))[16];

#endif /* BENCH_RIVALS_H */
