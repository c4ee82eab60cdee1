/* bench_client.h - one client of `sluice bench`: a connection, and a thread that acquires and
 * releases locks on it. */
#ifndef SL_CLI_BENCH_CLIENT_H
#define SL_CLI_BENCH_CLIENT_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/random.h"
#include "cli/latency.h"
#include "sluice.h"

#define BENCH_CLIENTS_MAX 1000u
#define BENCH_PIPELINE_MAX 1000u
#define BENCH_KEYS_MAX 100000000u
#define BENCH_PREFIX_BYTES_MAX 200u
#define BENCH_KINDS_MAX 16u /* Kinds of errors that a client counts separately. */
#define BENCH_KIND_SIZE 24u

/* What each client does. */
struct bench_work {
    const char *prefix; /* Of each key. */
    uint32_t keys, pipeline;
    uint32_t per; /* The capacity that each request declares. */
    bool shared;
    int64_t lease_ms; /* 0: the locks belong to the connection. */
    int64_t wait_ms;  /* 0: do not wait. */
    int64_t (*now_us)(void);
};

/* Errors of one kind: the first word of the reply, or the word of the status. */
struct bench_error {
    char kind[BENCH_KIND_SIZE];
    uint64_t count;
};

struct bench_results {
    uint64_t grants, pairs;
    uint64_t taken;   /* Requests that were not granted, because the lock was taken. */
    uint64_t expired; /* Grants that had ended before they were released. */
    struct bench_error errors[BENCH_KINDS_MAX];
    struct cli_latency acquire, release, wait;
};

struct bench_slot;

struct bench_client {
    const struct bench_work *work;
    struct sluice_wire *wire;
    const atomic_bool *stop; /* Start no more pairs; release the locks. */
    pthread_t thread;
    struct sl_random random;
    struct bench_slot *slots;
    struct bench_results results; /* Read it only if `ended`. */
    bool lost; /* The connection was lost. Read it only if `ended`. */

    /* Only this client writes them; others read them while it runs. */
    _Atomic uint64_t pairs_so_far, errors_so_far;
    atomic_bool ended; /* Release: pairs with the acquire of the reader of `results`. */
};

/* Start the thread. The caller has set work, wire, stop and random. Returns false if the system
 * has no memory or no thread for it. */
bool bench_client_start(struct bench_client *c);

/* Count an error. */
void bench_add_error(struct bench_results *r, const char *kind, size_t n,
                     uint64_t count);

#endif /* SL_CLI_BENCH_CLIENT_H */
