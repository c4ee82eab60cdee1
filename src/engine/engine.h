/* engine.h - what lasts: which keeper is current, what was committed, which transactions
 * commit no more.
 *
 * One interface, two engines: LMDB in a file of the data folder, for one server; etcd, for a
 * cluster, later. Everything is asked for with an operation and answered later, on the
 * caller's thread, in sl_engine_work(): an engine works on threads of its own or waits for
 * a network, and its caller has a loop that must not wait.
 *
 *     commit:  was this request committed before?   then it is: nothing is done again
 *              is the term the current one?          else ESTALE, with the one that is
 *              is the transaction barred?            then EBARRED
 *              else it is applied, with its request, under the next revision
 *
 * in this order (R1, R2). Operations are done in the order in which they were submitted;
 * those that wait together are done together, with one sync, and each stands or falls alone.
 * What is answered is on the disk. READ and SCAN wait for none of this: they see what was
 * answered before they were submitted, and perhaps more. */
#ifndef SL_ENGINE_ENGINE_H
#define SL_ENGINE_ENGINE_H

#include "keeper/keeper.h"

struct sl_engine; /* Opaque. */

/* More than that is ETOOBIG: table and key together; a request. */
#define SL_ENGINE_NAME_BYTES_MAX 509
#define SL_ENGINE_REQUEST_BYTES_MAX 511

enum sl_op_type {
    SL_OP_CLAIM,   /* The next term, for this keeper. */
    SL_OP_COMMIT,  /* term, id, request, writes; without writes it only checks. */
    SL_OP_BAR,     /* term, id */
    SL_OP_OUTCOME, /* request: what became of it? */
    SL_OP_READ,    /* table, key */
    SL_OP_SCAN,    /* table, rows_max */
};

/* An operation: the caller's, with all that it points to, until `done` is called. ENOSPC,
 * EIO, ENOMEM, ETOOBIG: it was not done, and will not be. ECLOSED, of an engine that is in a
 * hurry and whose disk fails: nobody knows; SL_OP_OUTCOME will tell. */
struct sl_engine_op {
    enum sl_op_type type;
    uint64_t term, id;
    struct sl_bytes request; /* n 0: none. */
    struct sl_bytes table, key;
    const struct sl_write *writes;
    uint32_t write_count;
    uint32_t rows_max; /* SCAN: one more than that is ETOOBIG, */
    size_t bytes_max;  /* and so are more bytes; 0: any number. */

    void (*done)(struct sl_engine_op *op);
    void *owner;
    struct sl_done result; /* Its bytes are the engine's, until `done` returns. */
    struct sl_list place;  /* The engine's. */
};

struct sl_engine_settings {
    const char *folder;  /* Of the store. */
    size_t bytes_max;    /* The store grows up to that; then ENOSPC. */
    sl_ms dedup_keep_ms; /* What became of a request can be asked for so long. */
    uint32_t group_max;  /* Commits with one sync. 1: each has its own. */
};

/* NULL: why says what is wrong, and what to do. */
struct sl_engine *sl_engine_open_lmdb(const struct sl_engine_settings *s, char *why,
                                      size_t why_bytes);

/* The end is near: what cannot be found out within about two seconds is ECLOSED from now on.
 * Before, who asked waits until the disk is well again. */
void sl_engine_hurry(struct sl_engine *e);

/* What was submitted is done first, in a hurry. */
void sl_engine_close(struct sl_engine *e); /* NULL is allowed. */

void sl_engine_submit(struct sl_engine *e, struct sl_engine_op *op);

/* Readable while something is done; then this calls `done` of so many of them, at most.
 * True: there are more. */
int sl_engine_fd(const struct sl_engine *e);
bool sl_engine_work(struct sl_engine *e, size_t most);

struct sl_engine_stats {
    uint64_t term, revision;
    uint64_t commits, duplicates, groups, errors;
    uint64_t keys, bytes_used, bytes_max;
    size_t waiting; /* Operations. */
};
void sl_engine_stats(struct sl_engine *e, struct sl_engine_stats *out);

#endif /* SL_ENGINE_ENGINE_H */
