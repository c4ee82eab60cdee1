/* settle.c - finds out whether a transaction whose commit failed is on the disk.
 *
 * If LMDB fails while it writes one of its first two pages, the transaction may or may
 * not be on the disk, and LMDB rejects all further operations. So the storage reopens
 * the store and commits another transaction on top of the state that it finds, which
 * makes that state durable. The number of the new transaction shows whether ours is
 * part of that state. */
#include <assert.h>

#include "storage/lmdb/lmdb_internal.h"

#define PAUSE_MS 100
#define TRIES_AT_END 20 /* For all transactions together, after sl_storage_hurry(). */

/* Try once to find out the outcome. Returns 0 and sets *fate, or returns an error of
 * LMDB. */
static int settle_once(struct sl_lmdb *l, size_t number, enum sl_lmdb_fate *fate)
{
    MDB_txn *txn;
    uint64_t revision;
    int rc = mdb_txn_begin(l->store.env, NULL, 0, &txn);
    if (rc != 0) return rc;
    /* On the first try, a number above ours means that our transaction is on the disk.
     * On a later try, the higher number may come from an earlier try of this function.
     * A number that is not above ours always means that our transaction is not on the
     * disk, even if an earlier read found it there: the kernel may discard data that it
     * cannot write. */
    bool above = mdb_txn_id(txn) > number;
    if (*fate == SL_LMDB_NOT_KNOWN)
        *fate = above ? SL_LMDB_COMMITTED : SL_LMDB_NOT_COMMITTED;
    if (!above) *fate = SL_LMDB_NOT_COMMITTED;
    rc = sl_store_get_number(&l->store, txn, SL_STORE_REVISION, &revision);
    if (rc == 0) rc = sl_store_put_number(&l->store, txn, SL_STORE_REVISION, revision);
    if (rc == 0) return mdb_txn_commit(txn);
    mdb_txn_abort(txn);
    return rc;
}

enum sl_lmdb_fate sl_lmdb_settle(struct sl_lmdb *l, size_t number)
{
    enum sl_lmdb_fate fate = SL_LMDB_NOT_KNOWN;
    MDB_txn *txn;
    assert(l->store.env != NULL && number > 0);
    /* If LMDB can begin a transaction, the commit failed before LMDB wrote one of its
     * first two pages. */
    if (mdb_txn_begin(l->store.env, NULL, 0, &txn) == 0) {
        mdb_txn_abort(txn);
        return SL_LMDB_NOT_COMMITTED;
    }
    for (;;) {
        if (sl_lmdb_reopen(l) == 0 && settle_once(l, number, &fate) == 0) return fate;
        sl_lmdb_reopen(l); /* Until then, LMDB rejects readers as well. */
        if (sl_lmdb_is_in_a_hurry(l) && l->settle_tries_at_end++ >= TRIES_AT_END)
            return SL_LMDB_NOT_KNOWN;
        sl_lmdb_sleep_ms(PAUSE_MS);
    }
}
