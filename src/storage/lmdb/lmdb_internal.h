/* lmdb_internal.h - the storage of one server, from inside.
 *
 *     submit --> writes --> writer: a group, one transaction, one sync --+--> done --> work
 *            \-> reads  --> reader: what is committed                  --/
 *
 *     lmdb.c      the queues between the caller and the two threads; open and close
 *     writer.c    the writing thread: terms, commits, bars, outcomes
 *     reader.c    the reading thread: rows and scans
 *     space.c     how much of the file an operation may use; the file is opened again
 *     settle.c    whether a transaction that failed to commit is on the disk
 *
 * The writer handles its operations in the order of submission. The reader is a thread of its
 * own so that it does not wait for syncs. README.md has the rules. */
#ifndef SL_STORAGE_LMDB_LMDB_INTERNAL_H
#define SL_STORAGE_LMDB_LMDB_INTERNAL_H

#include <limits.h>
#include <pthread.h>

#include "storage/kind.h"
#include "storage/lmdb/store.h"

/* How much of the store an operation may use. The last part of the store is reserved for
 * operations that free something, and the very last part for those without which there is no
 * server. At NO_GROWTH, a transaction uses only pages that were used before. */
enum sl_lmdb_level {
    SL_LMDB_FOR_WRITES,
    SL_LMDB_FOR_DELETIONS,
    SL_LMDB_FOR_KEEPING,
    SL_LMDB_NO_GROWTH,
};

/* What became of a transaction of LMDB. */
enum sl_lmdb_fate { SL_LMDB_COMMITTED, SL_LMDB_NOT_COMMITTED, SL_LMDB_NOT_KNOWN };

struct sl_lmdb_lane {
    pthread_t thread;
    pthread_cond_t came;
    struct sl_list waiting; /* Of struct sl_storage_op. */
};

struct sl_lmdb {
    struct sl_storage base;
    struct sl_storage_settings settings;
    char directory[PATH_MAX];

    /* The writer's. The reader holds `map` while it reads; the writer holds it while it opens
     * the store again or maps it with another size. */
    struct sl_store store; /* env NULL: it could not be opened again. */
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

/* Set the result of an operation: the status only. The second one counts it as an error. */
int sl_lmdb_answer(struct sl_storage_op *op, int status); /* Returns 0. */
void sl_lmdb_fail(struct sl_lmdb *l, struct sl_storage_op *op, int status);

/* --- space.c ----------------------------------------------------------------- */

size_t sl_lmdb_file_bytes(const struct sl_lmdb *l); /* Of all pages ever used. */
size_t sl_lmdb_map_bytes(const struct sl_lmdb *l, enum sl_lmdb_level level);
int sl_lmdb_open_store(struct sl_lmdb *l, char *why, size_t why_bytes);

/* These return 0 or an errno; the second one may open the store again. */
int sl_lmdb_reopen(struct sl_lmdb *l);
int sl_lmdb_set_level(struct sl_lmdb *l, enum sl_lmdb_level level);

/* The status of sluice.h for an error after which nothing was done. */
int sl_lmdb_status(const struct sl_lmdb *l, int rc);

/* --- settle.c ---------------------------------------------------------------- */

/* Whether the transaction of this number, whose commit failed, is on the disk. Waits until
 * that is known, unless the storage is in a hurry. */
enum sl_lmdb_fate sl_lmdb_settle(struct sl_lmdb *l, size_t number);

/* --- The threads ------------------------------------------------------------- */

int sl_lmdb_writer_start(struct sl_lmdb *l); /* Its clock and statistics. */
void sl_lmdb_write_group(struct sl_lmdb *l, struct sl_list *group);
void sl_lmdb_read_group(struct sl_lmdb *l, struct sl_list *group);

#endif /* SL_STORAGE_LMDB_LMDB_INTERNAL_H */
