/* engine.h - what lasts: which keeper is current, what was committed, which transactions
 * commit no more.
 *
 * One interface, two engines: LMDB in a file of the data folder, for one server; etcd, for a
 * cluster. Everything is asked for with an operation and answered later, on the
 * caller's thread, in sl_storage_work(): an engine works on threads of its own or waits for
 * a network, and its caller has a loop that must not wait.
 *
 *     commit:  was this request committed before?   then it is: nothing is done again
 *              is the term the current one?          else ESTALE, with the one that is
 *              is the transaction barred?            then EBARRED
 *              else it is applied, with its request, under the next revision
 *
 * in this order (R1, R2). Operations are done in the order in which they were submitted;
 * those that wait together are done together, with one sync, and each stands or falls alone.
 * What is answered is on the disk. Revisions never fall; on etcd they are etcd's own, and
 * those that were done together have the same. READ and SCAN wait for none of this: they see
 * what was answered before they were submitted, and perhaps more. */
#ifndef SL_STORAGE_STORAGE_H
#define SL_STORAGE_STORAGE_H

#include "base/hash.h"
#include "base/types.h"
#include "sluice.h"

struct sl_storage; /* Opaque. */

/* More than that is ETOOBIG: table and key together; a request. */
#define SL_STORAGE_NAME_BYTES_MAX 509
#define SL_STORAGE_REQUEST_BYTES_MAX 511

enum sl_storage_op_type {
    SL_STORAGE_CLAIM, /* The next term, for this node: if `term` is the current one still,
                    * and, unless it is 0, `beat` too; then bars of old terms go. LMDB, which
                    * nobody shares, compares nothing. */
    SL_STORAGE_READ_TERM, /* Who is the keeper? Only etcd is asked this, and the next. */
    SL_STORAGE_RENEW, /* term, fence_limit, longest_ms: it is still the keeper, at this moment;
                    * then both numbers are kept, and the beat is another. */
    SL_STORAGE_COMMIT,  /* term, id, request, writes; without writes it only checks. */
    SL_STORAGE_BAR,     /* term, id */
    SL_STORAGE_OUTCOME, /* request: what became of it? */
    SL_STORAGE_READ,    /* table, key */
    SL_STORAGE_SCAN,    /* table, rows_max */
};

struct sl_storage_write {
    struct sl_bytes table, key;
    struct sl_bytes value; /* at NULL: it is deleted. */
};

struct sl_storage_row {
    struct sl_bytes key, value;
};

/* Who is the keeper, as the storage has it. */
struct sl_storage_term {
    uint64_t term; /* 0: there was none yet. */
    uint32_t node;
    uint64_t heartbeat;   /* A higher number each time that it is renewed. */
    sl_fence fence_limit; /* No fence was given above it, */
    sl_ms longest_ms;     /* and no longer lease. */
};

/* The result of an operation. */
struct sl_storage_result {
    int status; /* OK; ESTALE: term says which is current; EBARRED; ENOSPC, EIO, ENOMEM. */
    uint64_t term;
    uint64_t revision; /* COMMIT, OUTCOME. */
    bool found;        /* READ, OUTCOME. */
    struct sl_bytes value;
    const struct sl_storage_row
        *rows; /* SCAN, by key: by its bytes, and then the shorter first. */
    uint32_t row_count;
    struct sl_storage_term
        term_record; /* READ_TERM; of CLAIM that is done, what was before, but the term;
                            * of ESTALE, the one that is. */
};

/* An operation: the caller's, with all that it points to, until `done` is called. ENOSPC,
 * EIO, ENOMEM, ETOOBIG: it was not done, and will not be. ECLOSED, of an engine that is in a
 * hurry and whose disk fails: nobody knows; SL_STORAGE_OUTCOME will tell. */
struct sl_storage_op {
    enum sl_storage_op_type type;
    uint64_t term, id;
    struct sl_bytes request; /* n 0: none. */
    struct sl_bytes table, key;
    const struct sl_storage_write *writes;
    uint32_t write_count;
    uint32_t rows_max;    /* SCAN: one more than that is ETOOBIG, */
    size_t bytes_max;     /* and so are more bytes; 0: any number. */
    uint32_t node;        /* CLAIM: who; */
    uint64_t heartbeat;   /* and see there. */
    sl_fence fence_limit; /* RENEW: no fence is given above it, */
    sl_ms longest_ms;     /* and no longer lease. */

    void (*done)(struct sl_storage_op *op);
    void *owner;
    struct sl_storage_result
        result;           /* Its bytes are the engine's, until `done` returns. */
    struct sl_list place; /* The engine's. */
};

struct sl_storage_settings {
    const char *folder;  /* Of the store. */
    size_t bytes_max;    /* The store grows up to that; then ENOSPC. */
    sl_ms dedup_keep_ms; /* What became of a request can be asked for so long. */
    uint32_t group_max;  /* Commits with one sync. 1: each has its own. */
};

/* How to reach an etcd. Texts are copied. */
struct sl_etcd_settings {
    const char *members;         /* "http://a:2379,http://b:2379"; one is enough. */
    const char *prefix;          /* Of all keys: several clusters may share an etcd. */
    const char *user, *password; /* "": none. */
    const char *ca, *cert, *key; /* Files, for https; "": none. */
    sl_ms answer_ms;             /* A member that is silent for so long is given up. */
    uint32_t ops_max;            /* Of one transaction of etcd's (--max-txn-ops), */
    size_t request_bytes_max;    /* and its bytes (--max-request-bytes). */
    sl_ms dedup_keep_ms;         /* As below. */
    uint32_t group_max;
};

/* Nothing is asked yet: an etcd that cannot be reached is no reason to fail. NULL: why says
 * what is wrong with the settings. */
struct sl_storage *sl_storage_open_etcd(const struct sl_etcd_settings *s, char *why,
                                        size_t why_bytes);

/* Check each page and each record of the store in a directory, within most_ms. The check runs in a
 * child process, which a damaged file may kill. Call it before the store is opened, and before
 * the caller has threads. SLUICE_OK; ENOENT: there is no store; ETRUNCATED: it is damaged, or
 * could not be checked in time; EFOREIGN, EVERSION, EACCES, ENOMEM, EIO. Unless it is OK or
 * ENOENT, why says what is wrong, and what to do. */
#define SL_STORAGE_WHY_BYTES 400u
int sl_storage_try_lmdb(const char *folder, sl_ms most_ms, char *why, size_t why_bytes);

/* NULL: why says what is wrong, and what to do. */
struct sl_storage *sl_storage_open_lmdb(const struct sl_storage_settings *s, char *why,
                                        size_t why_bytes);

/* The end is near: what cannot be found out within about two seconds is ECLOSED from now on.
 * Before, who asked waits until the disk is well again. */
void sl_storage_hurry(struct sl_storage *e);

/* What was submitted is done first, in a hurry. */
void sl_storage_close(struct sl_storage *e); /* NULL is allowed. */

void sl_storage_submit(struct sl_storage *e, struct sl_storage_op *op);

/* Readable while something is done; then this calls `done` of so many of them, at most.
 * True: there are more. */
int sl_storage_fd(const struct sl_storage *e);
bool sl_storage_work(struct sl_storage *e, size_t most);

/* From now on `told` is called, in sl_storage_work(), with whoever is the keeper, when that or
 * its beat changes, and again after the way to etcd was lost and is back. */
void sl_storage_watch(struct sl_storage *e,
                      void (*told)(void *owner, const struct sl_storage_term *reign),
                      void *owner);

/* Why it cannot do what it is asked to, in words for an operator: "" where it can. Also
 * when operations are not answered: a commit that may have been done is asked for again
 * until that is known. */
const char *sl_storage_trouble(const struct sl_storage *e);

struct sl_storage_stats {
    uint64_t term, revision;
    uint64_t commits, duplicates, groups, errors;
    uint64_t keys, bytes_used, bytes_max;
    size_t waiting; /* Operations. */
};
void sl_storage_stats(struct sl_storage *e, struct sl_storage_stats *out);

#endif /* SL_STORAGE_STORAGE_H */
