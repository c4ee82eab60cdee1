/* store.h - the file of the LMDB engine: what is in it, and how to open it.
 *
 *     FOLDER/store          one LMDB file; FOLDER/store-lock is LMDB's own
 *
 *     meta       name                     -> number      "sluice format", "term", "revision"
 *     data       bytes(2) table key       -> sum(8) revision(8) value
 *     requests   request                  -> revision(8) time_ms(8)
 *     order      revision(8)              -> request
 *     barred     term(8) id(8)            -> nothing
 *
 * Numbers are unsigned and big-endian, so that LMDB's order is theirs. `bytes` is how long
 * the name of the table is: no two names meet, and a table is a range. `sum` is the XXH3 of
 * the rest of the record, with that of its key for a seed. Invariants, which
 * sl_store_check() looks at:
 *
 *     the revision of a record or request is not above "revision", nor 0
 *     `requests` and `order` name the same pairs; time does not fall in `order`
 *     what is barred is barred in the current term
 *     before the first term there is nothing
 *
 * A store is made under another name and renamed when it is whole: a file "store" that is
 * not whole is damaged. Functions that take a transaction return what LMDB does: 0, an
 * errno, or MDB_...; those that have `why` return a status of sluice.h, and say in words
 * what is wrong and what to do. */
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

/* Open the one in a folder. bytes_max 0: only to read, also while a server uses it; where
 * the file was cut that is a SIGBUS. ENOENT: there is none; EFOREIGN,
 * EVERSION, ETRUNCATED (damaged in any way), EACCES, ENOSPC, ENOMEM, EIO. */
int sl_store_open(struct sl_store *s, const char *folder, size_t bytes_max, char *why,
                  size_t why_bytes);
void sl_store_close(struct sl_store *s);

/* Make one that is empty, under another name: s is open for writing. Then, when all is in
 * it, sl_store_finish() closes it and gives it its name; or sl_store_forget() removes it. */
int sl_store_begin(struct sl_store *s, const char *folder, size_t bytes_max, char *why,
                   size_t why_bytes);
int sl_store_finish(struct sl_store *s, const char *folder, char *why,
                    size_t why_bytes);
void sl_store_forget(struct sl_store *s, const char *folder);

/* The path of a file in the folder. False: too long. */
bool sl_store_path(const char *folder, const char *name, char *out, size_t out_bytes);

/* Which of our databases has this name; -1: none. And how many there are. */
int sl_store_database(struct sl_bytes name);
int sl_store_database_count(void);

/* An error of LMDB or the system as a status, and in words. */
int sl_store_status(int rc);

/* --- Records ----------------------------------------------------------------- */

int sl_store_number(const struct sl_store *s, MDB_txn *txn, const char *name,
                    uint64_t *out);
int sl_store_put_number(const struct sl_store *s, MDB_txn *txn, const char *name,
                        uint64_t n);

/* The key of a table's key. The names fit (SL_STORAGE_NAME_BYTES_MAX). */
struct sl_store_key {
    size_t n;
    char bytes[SL_STORE_KEY_MAX];
};
void sl_store_key(struct sl_store_key *out, struct sl_bytes table, struct sl_bytes key);

/* And back. False: that is none. */
bool sl_store_names(const MDB_val *of, struct sl_bytes *table, struct sl_bytes *key);

int sl_store_put(const struct sl_store *s, MDB_txn *txn, const struct sl_store_key *key,
                 uint64_t revision, struct sl_bytes value);

/* What a record says; borrowed from it. False: it is damaged. */
bool sl_store_record(const MDB_val *key, const MDB_val *of, uint64_t *revision,
                     struct sl_bytes *value);

struct sl_store_request {
    uint64_t revision;
    sl_ms time_ms;
};

/* MDB_NOTFOUND: it is not there. */
int sl_store_request(const struct sl_store *s, MDB_txn *txn, struct sl_bytes request,
                     struct sl_store_request *out);
int sl_store_put_request(const struct sl_store *s, MDB_txn *txn,
                         struct sl_bytes request, struct sl_store_request what);

/* The time of the newest request; 0: there is none. */
int sl_store_last_time(const struct sl_store *s, MDB_txn *txn, sl_ms *out);

/* Remove requests of this time and before, the oldest first, at most so many. */
int sl_store_forget_requests(const struct sl_store *s, MDB_txn *txn, sl_ms until,
                             unsigned most, unsigned *removed);

/* If there are more than that, the one with the lowest id is barred no more. */
int sl_store_unbar_oldest(const struct sl_store *s, MDB_txn *txn, size_t most);

int sl_store_bar(const struct sl_store *s, MDB_txn *txn, uint64_t term, uint64_t id);
int sl_store_is_barred(const struct sl_store *s, MDB_txn *txn, uint64_t term,
                       uint64_t id, bool *out);

/* Numbers as they are in the file. */
uint64_t sl_store_get_u64(const void *at);
void sl_store_set_u64(void *at, uint64_t n);

/* --- The whole --------------------------------------------------------------- */

struct sl_store_counts {
    uint64_t term, revision;
    uint64_t tables, keys, value_bytes, requests, barred;
};

/* Every invariant. SLUICE_OK, or `why` names the first that is broken. */
int sl_store_check(const struct sl_store *s, struct sl_store_counts *out, char *why,
                   size_t why_bytes);

/* Every page, without LMDB (store_pages.c): of a file that nobody writes to. */
int sl_store_check_pages(const char *folder, char *why, size_t why_bytes);

#endif /* SL_STORAGE_LMDB_STORE_H */
