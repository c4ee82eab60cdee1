/* store.h - the file of a server's storage: its format, record by record, and how to open it.
 *
 *     DIRECTORY/store       one LMDB file; DIRECTORY/store-lock is LMDB's own
 *
 *     meta       name                     -> number      "sluice format", "term", "revision"
 *     data       bytes(2) table key       -> sum(8) revision(8) value
 *     requests   request                  -> revision(8) time_ms(8)
 *     order      revision(8)              -> request
 *     barred     term(8) id(8)            -> nothing
 *
 * Numbers are unsigned and big-endian, so that LMDB sorts them. `bytes` is the length of the
 * table's name: so no two names collide, and a table is a range of keys. `sum` is the XXH3 of the
 * rest of the record, seeded with that of its key. sl_store_check() checks the invariants:
 *
 *     the revision of a record or request is from 1 to "revision"
 *     `requests` and `order` have the same pairs; time does not go back in `order`
 *     every bar is of the current term
 *     before the first term the store is empty
 *
 * A new store has another name until it is complete, so a file "store" that is not complete is
 * damaged. Functions that take a transaction return what LMDB returns: 0, an errno, or MDB_...;
 * functions with `why` return a status of sluice.h, and `why` says what is wrong and what to do. */
#ifndef SL_STORAGE_LMDB_STORE_H
#define SL_STORAGE_LMDB_STORE_H

#include <lmdb.h>

#include "base/types.h"

#define SL_STORE_FORMAT 1u
#define SL_STORE_FILE "store"
#define SL_STORE_KEY_MAX 511 /* LMDB's. */

#define SL_STORE_TERM "term"
#define SL_STORE_REVISION "revision"

struct sl_store {
    MDB_env *env;
    MDB_dbi meta, data, requests, order, barred;
};

/* --- Life -------------------------------------------------------------------- */

/* Open the store in a directory. bytes_max 0: read-only, even while a server uses it; then
 * reading a truncated file raises SIGBUS. ENOENT: there is none; EFOREIGN, EVERSION, ETRUNCATED
 * (damaged in any way), EACCES, ENOSPC, ENOMEM, EIO. */
int sl_store_open(struct sl_store *s, const char *directory, size_t bytes_max,
                  char *why, size_t why_bytes);
void sl_store_close(struct sl_store *s);

/* Create an empty store, open for writing, under another name. When it is filled,
 * sl_store_finish() closes it and gives it its name; sl_store_forget() removes it instead. */
int sl_store_begin(struct sl_store *s, const char *directory, size_t bytes_max,
                   char *why, size_t why_bytes);
int sl_store_finish(struct sl_store *s, const char *directory, char *why,
                    size_t why_bytes);
void sl_store_forget(struct sl_store *s, const char *directory);

/* The path of a file in the directory. False: too long. */
bool sl_store_path(const char *directory, const char *name, char *out,
                   size_t out_bytes);

/* The index of our database with this name, or -1; and the number of our databases. */
int sl_store_database(struct sl_bytes name);
int sl_store_database_count(void);

/* The status of sluice.h for an error of LMDB or the system. */
int sl_store_status(int rc);

/* --- Records ----------------------------------------------------------------- */

int sl_store_get_number(const struct sl_store *s, MDB_txn *txn, const char *name,
                        uint64_t *out);
int sl_store_put_number(const struct sl_store *s, MDB_txn *txn, const char *name,
                        uint64_t n);

/* The key in `data` of a key of a table. Both together have at most
 * SL_STORAGE_NAME_BYTES_MAX bytes. */
struct sl_store_key {
    size_t n;
    char bytes[SL_STORE_KEY_MAX];
};
void sl_store_key_of(struct sl_store_key *out, struct sl_bytes table,
                     struct sl_bytes key);

/* The reverse. False: not such a key. */
bool sl_store_names_of(const MDB_val *of, struct sl_bytes *table, struct sl_bytes *key);

int sl_store_put_record(const struct sl_store *s, MDB_txn *txn,
                        const struct sl_store_key *key, uint64_t revision,
                        struct sl_bytes value);

/* What a record contains; *value points into it. False: the record is damaged. */
bool sl_store_read_record(const MDB_val *key, const MDB_val *of, uint64_t *revision,
                          struct sl_bytes *value);

struct sl_store_request {
    uint64_t revision;
    sl_ms time_ms;
};

/* MDB_NOTFOUND: there is no such request. */
int sl_store_get_request(const struct sl_store *s, MDB_txn *txn,
                         struct sl_bytes request, struct sl_store_request *out);
int sl_store_put_request(const struct sl_store *s, MDB_txn *txn,
                         struct sl_bytes request, struct sl_store_request what);

/* The time of the newest request; 0: there is none. */
int sl_store_last_time(const struct sl_store *s, MDB_txn *txn, sl_ms *out);

/* Remove requests of this time and before, the oldest first, but at most this many. */
int sl_store_forget_requests(const struct sl_store *s, MDB_txn *txn, sl_ms until,
                             unsigned most, unsigned *removed);

/* If there are more bars than that, remove the one with the lowest id. */
int sl_store_unbar_oldest(const struct sl_store *s, MDB_txn *txn, size_t most);

int sl_store_bar(const struct sl_store *s, MDB_txn *txn, uint64_t term, uint64_t id);
int sl_store_is_barred(const struct sl_store *s, MDB_txn *txn, uint64_t term,
                       uint64_t id, bool *out);

/* Numbers as they are in the file. */
uint64_t sl_store_get_u64(const void *at);
void sl_store_set_u64(void *at, uint64_t n);

/* --- Checks ------------------------------------------------------------------ */

struct sl_store_counts {
    uint64_t term, revision;
    uint64_t tables, keys, value_bytes, requests, barred;
};

/* Check every invariant. SLUICE_OK, or `why` names the first one that is violated. */
int sl_store_check(const struct sl_store *s, struct sl_store_counts *out, char *why,
                   size_t why_bytes);

/* Check every page without LMDB, while nobody writes to the file (store_pages.c). */
int sl_store_check_pages(const char *directory, char *why, size_t why_bytes);

#endif /* SL_STORAGE_LMDB_STORE_H */
