/* writer.c - the writing thread: terms, commits, bars and outcomes, in groups.
 *
 * The writer executes all operations of a group in one LMDB transaction, with one sync.
 * If that transaction fails, the writer tries each operation alone, so that an
 * operation that does not fit does not make the others fail. */
#include <assert.h>
#include <errno.h>
#include <string.h>
#include <time.h>

#include "storage/lmdb/lmdb_internal.h"

#define FORGET_PER_REQUEST 2 /* Old requests removed per new request. */
#define GROWTHS_MAX 3        /* See make_room(). */

/* A transaction of LMDB, and its effects so far. */
struct txn {
    struct sl_lmdb *lmdb;
    const struct sl_store *store;
    MDB_txn *mdb;
    uint64_t term, revision;
    uint64_t commits, duplicates;
    unsigned requests_added;
    bool dirty;
};

/* --- Time -------------------------------------------------------------------- */

/* Return the time of the store, which never decreases. While the store is open, this
 * time follows a clock that does not step. The wall clock is read only once, when the
 * store is opened, to account for the time while it was closed. */
static sl_ms store_now(const struct sl_lmdb *l)
{
    return l->time_base_ms + (sl_lmdb_clock_ms(CLOCK_BOOTTIME) - l->boot_base_ms);
}

/* --- One operation ----------------------------------------------------------- */

/* Each of these functions returns 0 or an error of LMDB. After 0, op->result is the
 * answer, provided that the whole transaction commits. */

static int do_claim(struct txn *t, struct sl_storage_op *op)
{
    /* All bars belong to older terms, whose commits the storage rejects anyway. */
    int rc = mdb_drop(t->mdb, t->store->barred, 0);
    if (rc == 0) rc = sl_store_put_number(t->store, t->mdb, SL_STORE_TERM, t->term + 1);
    if (rc != 0) return rc;
    t->dirty = true;
    op->result.term = ++t->term;
    return sl_lmdb_answer(op, SLUICE_OK);
}

/* Return whether the operation's term is the current one. Before the first claim there
 * is no current term. */
static bool is_current(const struct txn *t, struct sl_storage_op *op)
{
    if (t->term != 0 && op->term == t->term) return true;
    op->result.term = t->term;
    sl_lmdb_answer(op, SLUICE_ESTALE);
    return false;
}

/* The keeper sends no commit of a transaction after its bar, and the writer keeps the
 * order of operations. So it is safe to remove old bars: the commits that they would
 * stop have already been handled. Without this limit, clients that disconnect would
 * fill the store with bars. */
#define BARS_MAX 10000
#define BAR_BYTES 128u /* Upper bound, including page overhead. */

/* Return the limit for the number of bars. In a small store, all bars must fit into the
 * space that is reserved for them. */
static size_t bars_max(const struct sl_lmdb *l)
{
    size_t reserved = sl_lmdb_map_bytes(l, SL_LMDB_FOR_KEEPING) -
                      sl_lmdb_map_bytes(l, SL_LMDB_FOR_DELETIONS);
    size_t fit = reserved / 2 / BAR_BYTES;
    return fit < BARS_MAX ? fit : BARS_MAX;
}

static int do_bar(struct txn *t, struct sl_storage_op *op)
{
    if (!is_current(t, op)) return 0;
    int rc = sl_store_bar(t->store, t->mdb, op->term, op->id);
    if (rc == 0) rc = sl_store_unbar_oldest(t->store, t->mdb, bars_max(t->lmdb));
    if (rc != 0) return rc;
    t->dirty = true;
    return sl_lmdb_answer(op, SLUICE_OK);
}

static int do_write(struct txn *t, const struct sl_storage_write *write)
{
    struct sl_store_key key;
    sl_store_key_of(&key, write->table, write->key);
    if (write->value.at != NULL)
        return sl_store_put_record(t->store, t->mdb, &key, t->revision + 1,
                                   write->value);
    MDB_val k = {key.n, key.bytes};
    int rc = mdb_del(t->mdb, t->store->data, &k, NULL);
    return rc == MDB_NOTFOUND ? 0 : rc;
}

static int apply(struct txn *t, struct sl_storage_op *op)
{
    int rc = 0;
    for (uint32_t i = 0; i < op->write_count && rc == 0; i++)
        rc = do_write(t, &op->writes[i]);
    if (rc == 0)
        rc = sl_store_put_number(t->store, t->mdb, SL_STORE_REVISION, t->revision + 1);
    if (rc == 0 && op->request.n > 0) {
        struct sl_store_request r = {t->revision + 1, store_now(t->lmdb)};
        rc = sl_store_put_request(t->store, t->mdb, op->request, r);
        t->requests_added++;
    }
    if (rc != 0) return rc;
    t->revision++;
    t->commits++;
    t->dirty = true;
    op->result.revision = t->revision;
    return sl_lmdb_answer(op, SLUICE_OK);
}

/* If this request was committed before, set *known and answer with the revision of that
 * commit. */
static int find_request(struct txn *t, struct sl_storage_op *op, bool *known)
{
    struct sl_store_request r;
    *known = false;
    if (op->request.n == 0) return 0;
    int rc = sl_store_get_request(t->store, t->mdb, op->request, &r);
    if (rc != 0) return rc == MDB_NOTFOUND ? 0 : rc;
    *known = true;
    op->result.revision = r.revision;
    return sl_lmdb_answer(op, SLUICE_OK);
}

/* Set *may to whether the operation may commit. If it may not, the operation's result
 * gives the reason. */
static int check_permission(struct txn *t, struct sl_storage_op *op, bool *may)
{
    bool barred = false;
    *may = is_current(t, op);
    if (!*may) return 0;
    int rc = sl_store_is_barred(t->store, t->mdb, op->term, op->id, &barred);
    if (rc != 0 || !barred) return rc;
    *may = false;
    return sl_lmdb_answer(op, SLUICE_EBARRED);
}

static int do_commit(struct txn *t, struct sl_storage_op *op)
{
    bool known = false, may = false;
    int rc;
    rc = find_request(t, op, &known);
    if (rc != 0) return rc;
    if (known) {
        t->duplicates++;
        return 0;
    }
    rc = check_permission(t, op, &may);
    if (rc != 0 || !may) return rc;
    if (op->write_count > 0) return apply(t, op);
    op->result.revision = t->revision;
    return sl_lmdb_answer(op, SLUICE_OK);
}

static int do_op(struct txn *t, struct sl_storage_op *op)
{
    memset(&op->result, 0, sizeof op->result);
    if (!sl_storage_names_fit(op)) return sl_lmdb_answer(op, SLUICE_ETOOBIG);
    switch (op->type) {
        case SL_STORAGE_CLAIM: return do_claim(t, op);
        case SL_STORAGE_COMMIT: return do_commit(t, op);
        case SL_STORAGE_BAR: return do_bar(t, op);
        case SL_STORAGE_OUTCOME: return find_request(t, op, &op->result.found);
        /* Not used: the only server that uses the store knows its term. */
        case SL_STORAGE_READ_TERM:
        case SL_STORAGE_RENEW:
        case SL_STORAGE_RESIGN:
        case SL_STORAGE_RECORD:
        case SL_STORAGE_JOURNAL: return sl_lmdb_answer(op, SLUICE_EINVAL);
        case SL_STORAGE_READ:
        case SL_STORAGE_SCAN: break;
    }
    assert(false && "reads belong to the reader");
    return EINVAL;
}

/* --- One transaction --------------------------------------------------------- */

/* Remove a few old requests for each new one. So the number of old requests falls, and
 * the newest requests are removed last even if the clock is wrong. */
static int forget_requests(struct txn *t, unsigned most)
{
    unsigned removed = 0;
    sl_ms keep = t->lmdb->settings.dedup_keep_ms, now = store_now(t->lmdb);
    if (keep >= now) return 0;
    int rc = sl_store_forget_requests(t->store, t->mdb, now - keep, most, &removed);
    if (removed > 0) t->dirty = true;
    return rc;
}

static int begin(struct txn *t, unsigned flags)
{
    int rc = mdb_txn_begin(t->store->env, NULL, flags, &t->mdb);
    if (rc != 0) return rc;
    rc = sl_store_get_number(t->store, t->mdb, SL_STORE_TERM, &t->term);
    if (rc == 0)
        rc = sl_store_get_number(t->store, t->mdb, SL_STORE_REVISION, &t->revision);
    if (rc != 0) mdb_txn_abort(t->mdb);
    return rc;
}

static size_t pages_of(const struct txn *t, MDB_dbi dbi, size_t *entries)
{
    MDB_stat s;
    if (mdb_stat(t->mdb, dbi, &s) != 0) return 0;
    if (entries != NULL) *entries = s.ms_entries;
    return (s.ms_branch_pages + s.ms_leaf_pages + s.ms_overflow_pages) * s.ms_psize;
}

static void measure(const struct txn *t, struct sl_storage_stats *out)
{
    size_t keys = 0;
    out->bytes_used = pages_of(t, t->store->data, &keys) +
                      pages_of(t, t->store->requests, NULL) +
                      pages_of(t, t->store->order, NULL) +
                      pages_of(t, t->store->barred, NULL) +
                      pages_of(t, t->store->meta, NULL);
    out->keys = keys;
    out->term = t->term;
    out->revision = t->revision;
}

static void publish(const struct txn *t, const struct sl_storage_stats *measured)
{
    struct sl_storage_stats *s = &t->lmdb->stats;
    pthread_mutex_lock(&t->lmdb->lock);
    s->commits += t->commits;
    s->duplicates += t->duplicates;
    if (t->dirty) {
        s->groups++;
        s->term = measured->term;
        s->revision = measured->revision;
        s->keys = measured->keys;
        s->bytes_used = measured->bytes_used;
    }
    pthread_mutex_unlock(&t->lmdb->lock);
}

/* Commit the transaction. Sets *fate even if it returns an error. */
static int finish(struct txn *t, enum sl_lmdb_fate *fate)
{
    struct sl_storage_stats measured;
    size_t number = mdb_txn_id(t->mdb);
    int rc = 0;
    measure(t, &measured);
    *fate = SL_LMDB_COMMITTED;
    if (t->dirty) rc = mdb_txn_commit(t->mdb);
    else mdb_txn_abort(t->mdb);
    if (rc != 0) *fate = sl_lmdb_settle(t->lmdb, number);
    if (*fate == SL_LMDB_COMMITTED) publish(t, &measured);
    return rc;
}

/* Execute all operations of a list in one transaction. After COMMITTED, their results
 * are valid. After NOT_COMMITTED, nothing has changed, and *error is the reason. */
static enum sl_lmdb_fate attempt(struct sl_lmdb *l, struct sl_list *group,
                                 enum sl_lmdb_level level, int *error)
{
    struct txn t = {.lmdb = l, .store = &l->store};
    struct sl_storage_op *op = NULL;
    enum sl_lmdb_fate fate;
    int rc = l->store.env != NULL ? 0 : sl_lmdb_reopen(l);
    if (rc == 0) rc = sl_lmdb_set_level(l, level);
    if (rc == 0) rc = begin(&t, 0);
    *error = rc;
    if (rc != 0) return SL_LMDB_NOT_COMMITTED;
    while (rc == 0 && (op = sl_storage_op_after(group, op)) != NULL) rc = do_op(&t, op);
    if (rc == 0 && t.requests_added > 0)
        rc = forget_requests(&t, FORGET_PER_REQUEST * t.requests_added);
    *error = rc;
    if (rc == 0) {
        *error = finish(&t, &fate);
        if (t.dirty && l->growths_left == 0) l->growths_left = 1;
        return fate;
    }
    mdb_txn_abort(t.mdb);
    return SL_LMDB_NOT_COMMITTED;
}

/* --- A group ----------------------------------------------------------------- */

static enum sl_lmdb_level level_of(const struct sl_storage_op *op)
{
    if (op->type != SL_STORAGE_COMMIT) return SL_LMDB_FOR_KEEPING;
    for (uint32_t i = 0; i < op->write_count; i++)
        if (op->writes[i].value.at != NULL) return SL_LMDB_FOR_WRITES;
    return SL_LMDB_FOR_DELETIONS;
}

/* Execute one operation alone. If the store is full, the operation may use as much of
 * the reserve as its level allows. */
static void do_alone(struct sl_lmdb *l, struct sl_storage_op *op)
{
    struct sl_list one;
    enum sl_lmdb_fate fate = SL_LMDB_NOT_COMMITTED;
    enum sl_lmdb_level level = SL_LMDB_FOR_WRITES, last = level_of(op);
    int error = MDB_MAP_FULL;
    sl_list_init(&one);
    sl_list_append(&one, &op->place);
    for (; error == MDB_MAP_FULL && level <= last; level++)
        fate = attempt(l, &one, level, &error);
    sl_list_remove(&op->place);
    if (fate == SL_LMDB_NOT_COMMITTED) sl_lmdb_fail(l, op, sl_lmdb_status(l, error));
    if (fate == SL_LMDB_NOT_KNOWN) sl_lmdb_fail(l, op, SLUICE_ECLOSED);
}

/* Free space in a full store by a transaction that forgets old requests.
 *
 * New commits would forget old requests, but find no space for themselves. LMDB reuses
 * a freed page only after two more transactions, so the writer must run transactions
 * even if they free nothing. Such a transaction may need pages that were never used.
 * But while a reader (a dump) is active, LMDB reuses no freed page at all, and each of
 * these transactions would use up part of the reserve. So after GROWTHS_MAX
 * transactions that made the file grow, the next ones must not let it grow. This ends
 * when one of them succeeds without growth, or when another operation commits. */
static void make_room(struct sl_lmdb *l)
{
    struct txn t = {.lmdb = l, .store = &l->store};
    enum sl_lmdb_fate fate = SL_LMDB_NOT_COMMITTED;
    int dead, rc = l->store.env != NULL ? 0 : EIO;
    bool may_grow = l->growths_left > 0;
    if (rc == 0) rc = mdb_reader_check(l->store.env, &dead);
    if (rc == 0)
        rc = sl_lmdb_set_level(l, may_grow ? SL_LMDB_FOR_DELETIONS : SL_LMDB_NO_GROWTH);
    if (rc == 0) rc = begin(&t, 0);
    if (rc != 0) return;
    size_t before = sl_lmdb_file_bytes(l);
    rc = forget_requests(&t, may_grow ? l->settings.group_max * FORGET_PER_REQUEST
                                      : FORGET_PER_REQUEST);
    if (rc == 0)
        rc = sl_store_put_number(t.store, t.mdb, SL_STORE_REVISION, t.revision);
    t.dirty = true;
    if (rc != 0) mdb_txn_abort(t.mdb);
    else finish(&t, &fate);
    if (fate != SL_LMDB_COMMITTED) return;
    if (sl_lmdb_file_bytes(l) == before) l->growths_left = GROWTHS_MAX;
    else if (may_grow) l->growths_left--;
}

void sl_lmdb_write_group(struct sl_lmdb *l, struct sl_list *group)
{
    struct sl_storage_op *op;
    int error;
    enum sl_lmdb_fate fate = attempt(l, group, SL_LMDB_FOR_WRITES, &error);
    if (fate == SL_LMDB_COMMITTED) return;
    struct sl_list ended;
    sl_list_init(&ended);
    while ((op = sl_storage_op_after(group, NULL)) != NULL) {
        sl_list_remove(&op->place);
        if (fate == SL_LMDB_NOT_KNOWN) sl_lmdb_fail(l, op, SLUICE_ECLOSED);
        else do_alone(l, op);
        sl_list_append(&ended, &op->place);
    }
    sl_storage_move_ops(&ended, group, SIZE_MAX);
    if (error == MDB_MAP_FULL) make_room(l);
}

/* --- Start ------------------------------------------------------------------- */

int sl_lmdb_writer_start(struct sl_lmdb *l)
{
    struct txn t = {.lmdb = l, .store = &l->store};
    sl_ms last = 0, wall = sl_lmdb_clock_ms(CLOCK_REALTIME);
    int rc = begin(&t, MDB_RDONLY);
    if (rc != 0) return rc;
    rc = sl_store_last_time(t.store, t.mdb, &last);
    measure(&t, &l->stats);
    mdb_txn_abort(t.mdb);
    l->stats.bytes_max = l->settings.bytes_max;
    l->time_base_ms = last > wall ? last : wall;
    l->boot_base_ms = sl_lmdb_clock_ms(CLOCK_BOOTTIME);
    l->growths_left = GROWTHS_MAX;
    return rc;
}
