/* lmdb_internal.h - internals of the storage of a single server.
 *
 *     submit --> writes --> writer: a group, one transaction, one sync --+--> done --> work
 *            \-> reads  --> reader: committed data only                --/
 *
 *     lmdb.c      the queues between the caller and the two threads; open and close
 *     writer.c    the writing thread: terms, commits, bars, outcomes
 *     reader.c    the reading thread: rows and scans
 *     space.c     how much of the file an operation may use; reopens the file
 *     settle.c    finds out whether a transaction whose commit failed is on the disk
 *
 * The writer handles its operations in the order of submission. The reader has a thread
 * of its own, so that reads do not wait for syncs. README.md has the rules. */
#ifndef SL_STORAGE_LMDB_LMDB_INTERNAL_H
#define SL_STORAGE_LMDB_LMDB_INTERNAL_H

#include <limits.h>
#include <pthread.h>

#include "storage/kind.h"
#include "storage/lmdb/store.h"

/* How much of the store an operation may use. One part of the store is reserved for
 * operations that free space, and another for operations without which the server
 * cannot run. At NO_GROWTH, a transaction uses only pages that were used before, so
 * that the file does not grow. */
enum sl_lmdb_level {
    SL_LMDB_FOR_WRITES,
    SL_LMDB_FOR_DELETIONS,
    SL_LMDB_FOR_KEEPING,
    SL_LMDB_NO_GROWTH,
};

/* The outcome of a transaction of LMDB. */
enum sl_lmdb_fate { SL_LMDB_COMMITTED, SL_LMDB_NOT_COMMITTED, SL_LMDB_NOT_KNOWN };

struct sl_lmdb_lane {
    pthread_t thread;
    pthread_cond_t came;
    struct sl_list waiting; /* List of struct sl_storage_op. */
};

struct sl_lmdb {
    struct sl_storage base;
    struct sl_storage_settings settings;
    char directory[PATH_MAX];

    /* Fields of the writer. The reader holds the mutex `map` while it reads. The writer
     * holds `map` while it reopens the store or maps it with another size. */
    struct sl_store store; /* env is NULL if the writer could not reopen the store. */
    enum sl_lmdb_level level;
    sl_ms time_base_ms, boot_base_ms; /* See store_now() in writer.c. */
    int settle_tries_at_end;
    int growths_left; /* See make_room() in writer.c. */
    pthread_mutex_t map;

    pthread_mutex_t lock; /* Guards everything below. */
    struct sl_lmdb_lane writes, reads;
    struct sl_list done;
    bool closing, hurried;
    struct sl_storage_stats stats;

    int fd; /* Readable while `done` is not empty. */
};

/* --- lmdb.c ------------------------------------------------------------------ */

void sl_lmdb_sleep_ms(long ms);
sl_ms sl_lmdb_clock_ms(clockid_t id);
bool sl_lmdb_is_in_a_hurry(struct sl_lmdb *l);

/* Set the result of an operation to a status without data. sl_lmdb_fail() also counts
 * the operation as an error. */
int sl_lmdb_answer(struct sl_storage_op *op, int status); /* Returns 0. */
void sl_lmdb_fail(struct sl_lmdb *l, struct sl_storage_op *op, int status);

/* --- space.c ----------------------------------------------------------------- */

/* Total size of all pages that were ever used. */
size_t sl_lmdb_file_bytes(const struct sl_lmdb *l);
size_t sl_lmdb_map_bytes(const struct sl_lmdb *l, enum sl_lmdb_level level);
int sl_lmdb_open_store(struct sl_lmdb *l, char *why, size_t why_bytes);

/* Both functions return 0 or an errno. sl_lmdb_set_level() may reopen the store. */
int sl_lmdb_reopen(struct sl_lmdb *l);
int sl_lmdb_set_level(struct sl_lmdb *l, enum sl_lmdb_level level);

/* Convert an error of LMDB, after which the operation has had no effect, to a status of
 * sluice.h. */
int sl_lmdb_status(const struct sl_lmdb *l, int rc);

/* --- settle.c ---------------------------------------------------------------- */

/* Find out whether the transaction with this number, whose commit failed, is on the
 * disk. Waits until this is known, unless sl_storage_hurry() was called. */
enum sl_lmdb_fate sl_lmdb_settle(struct sl_lmdb *l, size_t number);

/* --- The threads ------------------------------------------------------------- */

/* Initializes the writer's clock and statistics. */
int sl_lmdb_writer_start(struct sl_lmdb *l);
void sl_lmdb_write_group(struct sl_lmdb *l, struct sl_list *group);
void sl_lmdb_read_group(struct sl_lmdb *l, struct sl_list *group);

#endif /* SL_STORAGE_LMDB_LMDB_INTERNAL_H */
