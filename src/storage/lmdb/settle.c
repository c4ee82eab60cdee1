/* settle.c - finds out whether a transaction that LMDB failed to commit is on the disk.
 *
 * If LMDB fails while it writes one of its first two pages, the transaction may be on the disk
 * or not, and LMDB refuses to continue. So the storage opens the store again and writes another
 * transaction on top of what it finds, which makes that state certain. The number of that
 * transaction tells whether ours came before it. */
#include <assert.h>

#include "storage/lmdb/lmdb_internal.h"

#define PAUSE_MS 100
#define TRIES_AT_END \
    20 /* Of all transactions together, while the storage is in a hurry. */

/* One try. Returns 0 when *fate is certain, or an error of LMDB. */
static int settle_once(struct sl_lmdb *l, size_t number, enum sl_lmdb_fate *fate)
{
    MDB_txn *txn;
    uint64_t revision;
    int rc = mdb_txn_begin(l->store.env, NULL, 0, &txn);
    if (rc != 0) return rc;
    /* At the first try, a number above ours means that our transaction is there. At a later
     * try it may be one of our own tries. A number that is not above ours always means that our
     * transaction is not there, even if it was: the kernel may drop what it cannot write. */
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
    /* If LMDB begins a transaction, it failed before it reached its first pages. */
    if (mdb_txn_begin(l->store.env, NULL, 0, &txn) == 0) {
        mdb_txn_abort(txn);
        return SL_LMDB_NOT_COMMITTED;
    }
    for (;;) {
        if (sl_lmdb_reopen(l) == 0 && settle_once(l, number, &fate) == 0) return fate;
        sl_lmdb_reopen(l); /* LMDB rejects readers as well until it is opened again. */
        if (sl_lmdb_is_in_a_hurry(l) && l->settle_tries_at_end++ >= TRIES_AT_END)
            return SL_LMDB_NOT_KNOWN;
        sl_lmdb_sleep_ms(PAUSE_MS);
    }
}
