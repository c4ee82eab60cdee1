/* store.h - the file of a server's storage: its format, and functions to open, read and
 * write it.
 *
 *     DIRECTORY/store       one LMDB file; DIRECTORY/store-lock is LMDB's own
 *
 *     meta       name                     -> number      "sluice format", "term", "revision"
 *     data       bytes(2) table key       -> sum(8) revision(8) value
 *     requests   request                  -> revision(8) time_ms(8)
 *     order      revision(8)              -> request
 *     barred     term(8) id(8)            -> nothing
 *
 * Numbers are unsigned and big-endian, so that LMDB sorts them. `bytes` is the length
 * of the table's name; it makes keys unambiguous, and makes each table a range of keys.
 * `sum` is the XXH3 hash of the rest of the record, seeded with the hash of the key.
 * sl_store_check() checks these invariants:
 *
 *     the revision of a record or request is from 1 to "revision"
 *     `requests` and `order` contain the same pairs; times never decrease along `order`
 *     every bar belongs to the current term
 *     before the first term the store is empty
 *
 * A new store has a temporary name until it is complete. So if a file named "store" is
 * incomplete, it is damaged. Functions with a parameter `txn` return what LMDB returns:
 * 0, an errno, or MDB_.... Functions with a parameter `why` return a status of
 * sluice.h; on failure, `why` contains the reason and the remedy. */
#ifndef SL_STORAGE_LMDB_STORE_H
#define SL_STORAGE_LMDB_STORE_H

#include <lmdb.h>

#include "base/types.h"

#define SL_STORE_FORMAT 1u
#define SL_STORE_FILE "store"
#define SL_STORE_KEY_MAX 511 /* LMDB's limit. */

#define SL_STORE_TERM "term"
#define SL_STORE_REVISION "revision"

struct sl_store {
    MDB_env *env;
    MDB_dbi meta, data, requests, order, barred;
};

/* --- Opening and creating ---------------------------------------------------- */

/* Open the store in a directory. If bytes_max is 0, open it read-only; this works even
 * while a server uses it, but then reading a truncated file raises SIGBUS. Returns OK,
 * ENOENT if there is no store, EFOREIGN, EVERSION, ETRUNCATED (damaged in any way),
 * EACCES, ENOSPC, ENOMEM or EIO. */
int sl_store_open(struct sl_store *s, const char *directory, size_t bytes_max,
                  char *why, size_t why_bytes);
void sl_store_close(struct sl_store *s);

/* Create an empty store under a temporary name, and open it for writing. When you have
 * filled the store, call sl_store_finish(), which closes it and renames it. To discard
 * the store, call sl_store_forget(). */
int sl_store_begin(struct sl_store *s, const char *directory, size_t bytes_max,
                   char *why, size_t why_bytes);
int sl_store_finish(struct sl_store *s, const char *directory, char *why,
                    size_t why_bytes);
void sl_store_forget(struct sl_store *s, const char *directory);

/* Write the path of a file in the directory to `out`. Returns false if the path is too
 * long. */
bool sl_store_path(const char *directory, const char *name, char *out,
                   size_t out_bytes);

/* sl_store_database() returns the index of our database with this name, or -1.
 * sl_store_database_count() returns the number of our databases. */
int sl_store_database(struct sl_bytes name);
int sl_store_database_count(void);

/* Convert an error of LMDB or an errno to a status of sluice.h. */
int sl_store_status(int rc);

/* --- Records ----------------------------------------------------------------- */

int sl_store_get_number(const struct sl_store *s, MDB_txn *txn, const char *name,
                        uint64_t *out);
int sl_store_put_number(const struct sl_store *s, MDB_txn *txn, const char *name,
                        uint64_t n);

/* The key in the database `data` for a table and a key. The table name and the key
 * together have at most SL_STORAGE_NAME_BYTES_MAX bytes. */
struct sl_store_key {
    size_t n;
    char bytes[SL_STORE_KEY_MAX];
};
void sl_store_key_of(struct sl_store_key *out, struct sl_bytes table,
                     struct sl_bytes key);

/* Split a key of the database `data` into table and key. Returns false if it is
 * malformed. */
bool sl_store_names_of(const MDB_val *of, struct sl_bytes *table, struct sl_bytes *key);

int sl_store_put_record(const struct sl_store *s, MDB_txn *txn,
                        const struct sl_store_key *key, uint64_t revision,
                        struct sl_bytes value);

/* Read a record; *value then points into it. Returns false if the record is damaged. */
bool sl_store_read_record(const MDB_val *key, const MDB_val *of, uint64_t *revision,
                          struct sl_bytes *value);

struct sl_store_request {
    uint64_t revision;
    sl_ms time_ms;
};

/* Find a request. Returns MDB_NOTFOUND if the store does not contain it. */
int sl_store_get_request(const struct sl_store *s, MDB_txn *txn,
                         struct sl_bytes request, struct sl_store_request *out);
int sl_store_put_request(const struct sl_store *s, MDB_txn *txn,
                         struct sl_bytes request, struct sl_store_request what);

/* Read the time of the newest request; 0 if there is no request. */
int sl_store_last_time(const struct sl_store *s, MDB_txn *txn, sl_ms *out);

/* Remove requests with times up to `until`, oldest first, but at most `most` of
 * them. */
int sl_store_forget_requests(const struct sl_store *s, MDB_txn *txn, sl_ms until,
                             unsigned most, unsigned *removed);

/* If there are more than `most` bars, remove the bar with the lowest id. */
int sl_store_unbar_oldest(const struct sl_store *s, MDB_txn *txn, size_t most);

int sl_store_bar(const struct sl_store *s, MDB_txn *txn, uint64_t term, uint64_t id);
int sl_store_is_barred(const struct sl_store *s, MDB_txn *txn, uint64_t term,
                       uint64_t id, bool *out);

/* Read and write a number in the format of the file. */
uint64_t sl_store_get_u64(const void *at);
void sl_store_set_u64(void *at, uint64_t n);

/* --- Checks ------------------------------------------------------------------ */

struct sl_store_counts {
    uint64_t term, revision;
    uint64_t tables, keys, value_bytes, requests, barred;
};

/* Check every invariant. On failure, `why` names the first violated invariant. */
int sl_store_check(const struct sl_store *s, struct sl_store_counts *out, char *why,
                   size_t why_bytes);

/* Check every page without using LMDB (store_pages.c). No process may write to the file
 * meanwhile. */
int sl_store_check_pages(const char *directory, char *why, size_t why_bytes);

#endif /* SL_STORAGE_LMDB_STORE_H */
