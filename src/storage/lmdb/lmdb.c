/* lmdb.c - the engine of one server: a store (store.h), and two threads that work on it.
 *
 *     submit --> writes --> writer: a group, one transaction, one sync --+--> done --> work
 *            \-> reads  --> reader: what is committed                  --/
 *
 * The writer has the term, the commits, the bars and the outcomes, in the order in which
 * they came. The reader does not wait for its syncs. README.md has the rules. */
#include "storage/kind.h"

#include <errno.h>
#include <limits.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <time.h>
#include <unistd.h>

#include "storage/lmdb/store.h"

_Static_assert(SL_STORAGE_NAME_BYTES_MAX + 2 == SL_STORE_KEY_MAX, "store.h: data");
_Static_assert(SL_STORAGE_REQUEST_BYTES_MAX <= SL_STORE_KEY_MAX, "store.h: requests");

#define BYTES_MIN ((size_t)1 << 20)     /* A smaller store is of no use. */
#define RESERVE_MIN ((size_t)256 << 10) /* Of its bytes, for those who make room; */
#define RESERVE_MAX ((size_t)64 << 20)
#define DISK_LEFT_MIN ((size_t)1 << 20) /* With less than that a disk is full. */
#define FORGET_MORE 2                   /* Requests forgotten, for one that is added. */
#define SETTLE_WAIT_MS 100
#define SETTLE_TRIES_AT_END 20 /* Together. */
#define READ_TRIES 1000        /* A ms each; see begin_reading(). */
#define ROOM_GROWS_MAX 3       /* See make_room(). */

/* How much of the store an operation may use: the last part of it is for those that free
 * something, and the very last for those without which there is no server. Or it may use
 * no page that was never used before. */
enum level { FOR_WRITES, FOR_DELETIONS, FOR_KEEPING, AS_IT_IS };

struct lane {
    pthread_t thread;
    pthread_cond_t came;
    struct sl_list waiting; /* Of struct sl_storage_op. */
};

struct sl_storage {
    struct sl_storage_head head;
    struct sl_storage_settings settings;
    char folder[PATH_MAX];

    /* The writer's. The reader has `map` while it reads, the writer while it opens the
     * store again or maps it anew. */
    struct sl_store store; /* env NULL: it could not be opened again. */
    enum level level;
    sl_ms time_base_ms, boot_base_ms; /* See store_now(). */
    int tries_at_end;                 /* Of settling. */
    int room_may_grow;                /* See make_room(). */
    pthread_mutex_t map;

    pthread_mutex_t lock; /* For all below. */
    struct lane writes, reads;
    struct sl_list done;
    bool closing, hurried;
    struct sl_storage_stats stats;

    int fd; /* Readable while something is in `done`. */
};

/* --- Time -------------------------------------------------------------------- */

static void pause_ms(long ms)
{
    nanosleep(&(struct timespec){0, ms * 1000000L}, NULL);
}

static sl_ms clock_ms(clockid_t id)
{
    struct timespec t;
    clock_gettime(id, &t);
    return (sl_ms)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

/* The time of the store: it never falls, and while it is open it runs as a clock that does
 * not step. What the wall says counts once, at the opening, for the time between. */
static sl_ms store_now(const struct sl_storage *e)
{
#ifdef MUT_WALL
    return clock_ms(CLOCK_REALTIME);
#endif
    return e->time_base_ms + (clock_ms(CLOCK_BOOTTIME) - e->boot_base_ms);
}

static int begin_time(struct sl_storage *e)
{
    MDB_txn *txn;
    sl_ms last = 0, wall = clock_ms(CLOCK_REALTIME);
    int rc = mdb_txn_begin(e->store.env, NULL, MDB_RDONLY, &txn);
    if (rc != 0) return rc;
    rc = sl_store_last_time(&e->store, txn, &last);
    mdb_txn_abort(txn);
    e->time_base_ms = last > wall ? last : wall;
    e->boot_base_ms = clock_ms(CLOCK_BOOTTIME);
    return rc;
}

/* --- The store, its size and its faults -------------------------------------- */

/* All pages that were ever used. */
static size_t file_bytes(const struct sl_storage *e)
{
    MDB_envinfo info;
    MDB_stat pages;
    mdb_env_info(e->store.env, &info);
    mdb_env_stat(e->store.env, &pages);
    return (info.me_last_pgno + 1) * pages.ms_psize;
}

static size_t map_bytes(const struct sl_storage *e, enum level level)
{
    size_t all = e->settings.bytes_max, reserve = all / 8;
    if (reserve < RESERVE_MIN) reserve = RESERVE_MIN;
    if (reserve > RESERVE_MAX) reserve = RESERVE_MAX;
    if (level == FOR_WRITES) all -= reserve;
    if (level == FOR_DELETIONS) all -= reserve / 4;
    return all & ~(size_t)0xffff; /* Whole pages, of any machine. */
}

static int open_store(struct sl_storage *e, char *why, size_t why_bytes)
{
    e->level = FOR_WRITES;
    return sl_store_open(&e->store, e->folder, map_bytes(e, FOR_WRITES), why,
                         why_bytes);
}

static int open_again(struct sl_storage *e)
{
    char why[300];
    pthread_mutex_lock(&e->map);
    sl_store_close(&e->store);
    int status = open_store(e, why, sizeof why);
    pthread_mutex_unlock(&e->map);
    return status == SLUICE_OK ? 0 : EIO;
}

static int set_level(struct sl_storage *e, enum level level)
{
    if (e->level == level && level != AS_IT_IS) return 0;
    size_t bytes = level == AS_IT_IS ? 0 : map_bytes(e, level), least = file_bytes(e);
    if (bytes < least) bytes = least; /* LMDB would leave out the last of its pages. */
    pthread_mutex_lock(&e->map);
    int rc = mdb_env_set_mapsize(e->store.env, bytes);
    if (rc == 0) e->level = level;
    pthread_mutex_unlock(&e->map);
    return rc == 0 ? 0 : open_again(e);
}

/* LMDB calls a short write EIO, and that is how a full disk begins. */
static bool is_full(const struct sl_storage *e)
{
    char path[PATH_MAX];
    struct statvfs disk;
    struct rlimit limit;
    struct stat st;
    if (!sl_store_path(e->folder, SL_STORE_FILE, path, sizeof path)) return false;
    if (statvfs(path, &disk) == 0 &&
        (uint64_t)disk.f_bavail * disk.f_frsize < DISK_LEFT_MIN)
        return true;
    return getrlimit(RLIMIT_FSIZE, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY &&
           stat(path, &st) == 0 && (rlim_t)st.st_size + DISK_LEFT_MIN > limit.rlim_cur;
}

/* What is not known is neither: the caller's status. */
static int status_of(const struct sl_storage *e, int rc)
{
    int status = sl_store_status(rc);
    switch (status) {
        case SLUICE_ENOSPC:
        case SLUICE_ENOMEM:
        case SLUICE_ETOOBIG: return status;
        default: break;
    }
    return rc == EIO && is_full(e) ? SLUICE_ENOSPC : SLUICE_EIO;
}

/* --- What became of a transaction that LMDB calls failed --------------------- */

enum fate { COMMITTED, NOT_COMMITTED, NOT_KNOWN };

/* If LMDB cannot write its first pages, the new ones may be on the disk or not, and it
 * refuses to go on. So the store is opened again, and whatever it says then is made certain
 * by a transaction that is written above it. Its number tells whether ours came before. */
static int settle_once(struct sl_storage *e, size_t number, enum fate *fate)
{
    MDB_txn *txn;
    uint64_t revision;
    int rc = mdb_txn_begin(e->store.env, NULL, 0, &txn);
    if (rc != 0) return rc;
    /* A number above ours says that ours is there at the first look alone: later it may be
     * one of these transactions. One that is not above says at any time that it is not, also
     * if it was: the kernel may forget what it could not write. */
    bool above = mdb_txn_id(txn) > number;
#ifdef MUT_LOOKAGAIN
    *fate = NOT_KNOWN;
#endif
    if (*fate == NOT_KNOWN) *fate = above ? COMMITTED : NOT_COMMITTED;
#ifndef MUT_LOOKONCE
    if (!above) *fate = NOT_COMMITTED;
#endif
    rc = sl_store_number(&e->store, txn, SL_STORE_REVISION, &revision);
    if (rc == 0) rc = sl_store_put_number(&e->store, txn, SL_STORE_REVISION, revision);
    if (rc == 0) return mdb_txn_commit(txn);
    mdb_txn_abort(txn);
    return rc;
}

static bool is_in_a_hurry(struct sl_storage *e)
{
    pthread_mutex_lock(&e->lock);
    bool hurried = e->closing || e->hurried;
    pthread_mutex_unlock(&e->lock);
    return hurried;
}

static enum fate settle(struct sl_storage *e, size_t number)
{
    enum fate fate = NOT_KNOWN;
    MDB_txn *txn;
    /* Where LMDB goes on it has not come to its first pages: nothing is committed. */
    if (mdb_txn_begin(e->store.env, NULL, 0, &txn) == 0) {
        mdb_txn_abort(txn);
        return NOT_COMMITTED;
    }
#ifdef MUT_GUESS
    return open_again(e) == 0 ? NOT_COMMITTED : NOT_KNOWN;
#endif
    for (;;) {
        if (open_again(e) == 0 && settle_once(e, number, &fate) == 0) return fate;
#ifndef MUT_DEAF
        open_again(e); /* For those who read: LMDB refuses them, too. */
#endif
        if (is_in_a_hurry(e) && e->tries_at_end++ >= SETTLE_TRIES_AT_END)
            return NOT_KNOWN;
        pause_ms(SETTLE_WAIT_MS);
    }
}

/* --- One operation of the writer --------------------------------------------- */

/* A transaction of LMDB that is made, and what it has done so far. */
struct work {
    struct sl_storage *e;
    const struct sl_store *store;
    MDB_txn *txn;
    uint64_t term, revision;
    uint64_t commits, duplicates;
    unsigned added; /* Requests. */
    bool dirty;
};

static int say(struct sl_storage_op *op, int status)
{
    op->result.status = status;
    return 0;
}

static int do_claim(struct work *w, struct sl_storage_op *op)
{
    /* What is barred is barred in an older term: that refuses its commits by itself. */
    int rc = mdb_drop(w->txn, w->store->barred, 0);
    if (rc == 0) rc = sl_store_put_number(w->store, w->txn, SL_STORE_TERM, w->term + 1);
    if (rc != 0) return rc;
    w->dirty = true;
    op->result.term = ++w->term;
    return say(op, SLUICE_OK);
}

/* Is this term the current one? Before the first claim there is none. */
static bool is_current(const struct work *w, struct sl_storage_op *op)
{
#ifdef MUT_NOTERM
    return true;
#endif
    if (w->term != 0 && op->term == w->term) return true;
    op->result.term = w->term;
    say(op, SLUICE_ESTALE);
    return false;
}

/* Operations are done in the order in which they come, and after its bar the keeper sends no
 * commit of a transaction: so one that was barred long ago has none on its way. Without a
 * bound, connections that end would fill the store. */
#define BARS_MAX 10000
#define BAR_BYTES 128u /* What one takes, at most, with its share of pages. */

/* In a small store they have to fit into what is left for them alone. */
static size_t bars_max(const struct sl_storage *e)
{
    size_t room = (map_bytes(e, FOR_KEEPING) - map_bytes(e, FOR_DELETIONS)) / 2;
    return room / BAR_BYTES < BARS_MAX ? room / BAR_BYTES : BARS_MAX;
}

static int do_bar(struct work *w, struct sl_storage_op *op)
{
    if (!is_current(w, op)) return 0;
    int rc = sl_store_bar(w->store, w->txn, op->term, op->id);
    if (rc == 0) rc = sl_store_unbar_oldest(w->store, w->txn, bars_max(w->e));
    if (rc != 0) return rc;
    w->dirty = true;
    return say(op, SLUICE_OK);
}

static bool fits(struct sl_bytes table, struct sl_bytes key)
{
    return table.n <= SL_STORAGE_NAME_BYTES_MAX &&
           key.n <= SL_STORAGE_NAME_BYTES_MAX - table.n;
}

static int do_write(struct work *w, const struct sl_storage_write *write)
{
    struct sl_store_key key;
    sl_store_key(&key, write->table, write->key);
    if (write->value.at != NULL)
        return sl_store_put(w->store, w->txn, &key, w->revision + 1, write->value);
    MDB_val k = {key.n, key.bytes};
    int rc = mdb_del(w->txn, w->store->data, &k, NULL);
    return rc == MDB_NOTFOUND ? 0 : rc;
}

static int apply(struct work *w, struct sl_storage_op *op)
{
    int rc = 0;
    for (uint32_t i = 0; i < op->write_count && rc == 0; i++)
        rc = do_write(w, &op->writes[i]);
    if (rc == 0)
        rc = sl_store_put_number(w->store, w->txn, SL_STORE_REVISION, w->revision + 1);
    if (rc == 0 && op->request.n > 0) {
        struct sl_store_request r = {w->revision + 1, store_now(w->e)};
        rc = sl_store_put_request(w->store, w->txn, op->request, r);
        w->added++;
    }
    if (rc != 0) return rc;
    w->revision++;
    w->commits++;
    w->dirty = true;
    op->result.revision = w->revision;
    return say(op, SLUICE_OK);
}

/* Has this request been committed before? Then *known, and that is the answer. */
static int look_up(struct work *w, struct sl_storage_op *op, bool *known)
{
    struct sl_store_request r;
    *known = false;
    if (op->request.n == 0) return 0;
    int rc = sl_store_request(w->store, w->txn, op->request, &r);
    if (rc != 0) return rc == MDB_NOTFOUND ? 0 : rc;
    *known = true;
    op->result.revision = r.revision;
    return say(op, SLUICE_OK);
}

/* May it commit? Else it is said. */
static int look_at_rights(struct work *w, struct sl_storage_op *op, bool *may)
{
    bool barred = false;
    *may = is_current(w, op);
    if (!*may) return 0;
    int rc = sl_store_is_barred(w->store, w->txn, op->term, op->id, &barred);
#ifdef MUT_NOBAR
    barred = false;
#endif
#ifdef MUT_ROBAR
    if (op->write_count == 0) barred = false;
#endif
    if (rc != 0 || !barred) return rc;
    *may = false;
    return say(op, SLUICE_EBARRED);
}

static bool all_fit(const struct sl_storage_op *op)
{
    if (op->request.n > SL_STORAGE_REQUEST_BYTES_MAX) return false;
    for (uint32_t i = 0; i < op->write_count; i++)
        if (!fits(op->writes[i].table, op->writes[i].key)) return false;
    return true;
}

static int do_commit(struct work *w, struct sl_storage_op *op)
{
    bool known = false, may = false;
    int rc;
    if (!all_fit(op)) return say(op, SLUICE_ETOOBIG);
#ifdef MUT_DEDUPAFTER
    rc = look_at_rights(w, op, &may);
    if (rc != 0 || !may) return rc;
#endif
    rc = look_up(w, op, &known);
    if (rc != 0) return rc;
    if (known) {
        w->duplicates++;
        return 0;
    }
    rc = look_at_rights(w, op, &may);
    if (rc != 0 || !may) return rc;
    if (op->write_count > 0) return apply(w, op);
    op->result.revision = w->revision;
    return say(op, SLUICE_OK);
}

static int do_outcome(struct work *w, struct sl_storage_op *op)
{
    if (op->request.n > SL_STORAGE_REQUEST_BYTES_MAX) return say(op, SLUICE_ETOOBIG);
    return look_up(w, op, &op->result.found);
}

/* What LMDB returns; 0: the result is what is to be answered if all is committed. */
static int do_one(struct work *w, struct sl_storage_op *op)
{
    memset(&op->result, 0, sizeof op->result);
    switch (op->type) {
        case SL_STORAGE_CLAIM: return do_claim(w, op);
        case SL_STORAGE_COMMIT: return do_commit(w, op);
        case SL_STORAGE_BAR: return do_bar(w, op);
        case SL_STORAGE_OUTCOME: return do_outcome(w, op);
        case SL_STORAGE_READ_TERM:
        case SL_STORAGE_RENEW: /* Nobody else can be the keeper. */
        case SL_STORAGE_READ:
        case SL_STORAGE_SCAN: break;
    }
    return say(op, SLUICE_EINVAL);
}

/* --- A group ----------------------------------------------------------------- */

/* The one after this, or the first; NULL: there are no more. */
static struct sl_storage_op *op_after(struct sl_list *list, struct sl_storage_op *op)
{
    struct sl_list *next = op != NULL ? op->place.next : list->next;
    return next != list ? sl_container_of(next, struct sl_storage_op, place) : NULL;
}

/* The first ones go to another list, at most so many. */
static void move_ops(struct sl_list *from, struct sl_list *to, size_t most)
{
    while (most-- > 0 && !sl_list_empty(from)) {
        struct sl_list *first = from->next;
        sl_list_remove(first);
        sl_list_append(to, first);
    }
}

/* Requests that are too old, a few for each that comes: then there are fewer and fewer of
 * them, and whatever the clock says the newest go last. */
static int forget(struct work *w, unsigned most)
{
    unsigned removed = 0;
    sl_ms keep = w->e->settings.dedup_keep_ms, now = store_now(w->e);
    if (keep >= now) return 0;
#ifdef MUT_FORGETALL
    most = UINT_MAX;
#endif
    int rc = sl_store_forget_requests(w->store, w->txn, now - keep, most, &removed);
    if (removed > 0) w->dirty = true;
    return rc;
}

static int begin(struct work *w)
{
    int rc = mdb_txn_begin(w->e->store.env, NULL, 0, &w->txn);
    if (rc != 0) return rc;
    rc = sl_store_number(w->store, w->txn, SL_STORE_TERM, &w->term);
    if (rc == 0)
        rc = sl_store_number(w->store, w->txn, SL_STORE_REVISION, &w->revision);
    if (rc != 0) mdb_txn_abort(w->txn);
    return rc;
}

static size_t pages_of(const struct work *w, MDB_dbi dbi, size_t *entries)
{
    MDB_stat s;
    if (mdb_stat(w->txn, dbi, &s) != 0) return 0;
    if (entries != NULL) *entries = s.ms_entries;
    return (s.ms_branch_pages + s.ms_leaf_pages + s.ms_overflow_pages) * s.ms_psize;
}

static void measure(const struct work *w, struct sl_storage_stats *out)
{
    size_t keys = 0;
    out->bytes_used = pages_of(w, w->store->data, &keys) +
                      pages_of(w, w->store->requests, NULL) +
                      pages_of(w, w->store->order, NULL) +
                      pages_of(w, w->store->barred, NULL) +
                      pages_of(w, w->store->meta, NULL);
    out->keys = keys;
    out->term = w->term;
    out->revision = w->revision;
}

static void publish(const struct work *w, const struct sl_storage_stats *measured)
{
    struct sl_storage_stats *s = &w->e->stats;
    pthread_mutex_lock(&w->e->lock);
    s->commits += w->commits;
    s->duplicates += w->duplicates;
    if (w->dirty) {
        s->groups++;
        s->term = measured->term;
        s->revision = measured->revision;
        s->keys = measured->keys;
        s->bytes_used = measured->bytes_used;
    }
    pthread_mutex_unlock(&w->e->lock);
}

/* Commit what was done. *fate says what is so, whatever is returned. */
static int finish(struct work *w, enum fate *fate)
{
    struct sl_storage_stats measured;
    size_t number = mdb_txn_id(w->txn);
    int rc = 0;
    measure(w, &measured);
    *fate = COMMITTED;
    if (w->dirty) rc = mdb_txn_commit(w->txn);
    else mdb_txn_abort(w->txn);
    if (rc != 0) *fate = settle(w->e, number);
    if (*fate == COMMITTED) publish(w, &measured);
    return rc;
}

/* All of them in one transaction. COMMITTED: their results are right. NOT_COMMITTED:
 * nothing was done, and *error says why. */
static enum fate attempt(struct sl_storage *e, struct sl_list *group, enum level level,
                         int *error)
{
    struct work w = {.e = e, .store = &e->store};
    struct sl_storage_op *op;
    enum fate fate;
    int rc = e->store.env != NULL ? 0 : open_again(e);
    if (rc == 0) rc = set_level(e, level);
    if (rc == 0) rc = begin(&w);
    *error = rc;
    if (rc != 0) return NOT_COMMITTED;
    for (op = op_after(group, NULL); rc == 0 && op != NULL; op = op_after(group, op))
        rc = do_one(&w, op);
    if (rc == 0 && w.added > 0) rc = forget(&w, FORGET_MORE * w.added);
    *error = rc;
    if (rc == 0) {
        *error = finish(&w, &fate);
        if (w.dirty && e->room_may_grow == 0) e->room_may_grow = 1;
        return fate;
    }
    mdb_txn_abort(w.txn);
    return NOT_COMMITTED;
}

/* --- One alone --------------------------------------------------------------- */

static enum level level_of(const struct sl_storage_op *op)
{
    if (op->type != SL_STORAGE_COMMIT) return FOR_KEEPING;
    for (uint32_t i = 0; i < op->write_count; i++)
        if (op->writes[i].value.at != NULL) return FOR_WRITES;
    return FOR_DELETIONS;
}

static void fail(struct sl_storage *e, struct sl_storage_op *op, int status)
{
    memset(&op->result, 0, sizeof op->result);
    say(op, status);
    pthread_mutex_lock(&e->lock);
    e->stats.errors++;
    pthread_mutex_unlock(&e->lock);
}

static void do_alone(struct sl_storage *e, struct sl_storage_op *op)
{
    struct sl_list one;
    enum fate fate = NOT_COMMITTED;
    int error = MDB_MAP_FULL;
    sl_list_init(&one);
    sl_list_append(&one, &op->place);
    for (enum level l = FOR_WRITES; error == MDB_MAP_FULL && l <= level_of(op); l++)
        fate = attempt(e, &one, l, &error);
    sl_list_remove(&op->place);
    if (fate == NOT_COMMITTED) fail(e, op, status_of(e, error));
    if (fate == NOT_KNOWN) fail(e, op, SLUICE_ECLOSED);
}

/* A full store holds requests that are too old, and nobody comes whose turn it would be to
 * forget them. And what one transaction has freed LMDB uses from the second after it on, but
 * those that find no room are none: so there has to be one, whether it frees something or
 * not. It may need pages that were never used. Yet while somebody reads (a dump), LMDB keeps
 * all that is freed, and each of these would take new ones from those who need the reserve:
 * after a few that did, the next makes do with what is there, until one can or something
 * else was committed. */
static void make_room(struct sl_storage *e)
{
    struct work w = {.e = e, .store = &e->store};
    enum fate fate = NOT_COMMITTED;
    int dead, rc = e->store.env != NULL ? 0 : EIO;
    bool may_grow = e->room_may_grow > 0;
#ifdef MUT_ROOMGROWS
    may_grow = true;
#endif
    if (rc == 0) rc = mdb_reader_check(e->store.env, &dead);
    if (rc == 0) rc = set_level(e, may_grow ? FOR_DELETIONS : AS_IT_IS);
    if (rc == 0) rc = begin(&w);
    if (rc != 0) return;
    size_t before = file_bytes(e);
    rc = forget(&w, may_grow ? e->settings.group_max * FORGET_MORE : FORGET_MORE);
    if (rc == 0)
        rc = sl_store_put_number(w.store, w.txn, SL_STORE_REVISION, w.revision);
    w.dirty = true;
    if (rc != 0) mdb_txn_abort(w.txn);
    else finish(&w, &fate);
    if (fate != COMMITTED) return;
    if (file_bytes(e) == before) e->room_may_grow = ROOM_GROWS_MAX;
    else if (may_grow) e->room_may_grow--;
}

/* Each stands or falls alone: if they cannot be done together they are done one by one. */
static void do_group(struct sl_storage *e, struct sl_list *group)
{
    struct sl_storage_op *op;
    int error;
    enum fate fate = attempt(e, group, FOR_WRITES, &error);
    if (fate == COMMITTED) return;
#ifdef MUT_GROUPALL
    for (op = op_after(group, NULL); op != NULL; op = op_after(group, op))
        fail(e, op, status_of(e, error));
    return;
#endif
    struct sl_list ended;
    sl_list_init(&ended);
    while ((op = op_after(group, NULL)) != NULL) {
        sl_list_remove(&op->place);
        if (fate == NOT_KNOWN) fail(e, op, SLUICE_ECLOSED);
        else do_alone(e, op);
        sl_list_append(&ended, &op->place);
    }
    move_ops(&ended, group, SIZE_MAX);
    if (error == MDB_MAP_FULL) make_room(e);
}

/* --- Reading ----------------------------------------------------------------- */

static int do_read(struct sl_storage *e, MDB_txn *txn, struct sl_storage_op *op)
{
    struct sl_store_key key;
    struct sl_bytes value;
    uint64_t revision;
    MDB_val v;
    sl_store_key(&key, op->table, op->key);
    MDB_val k = {key.n, key.bytes};
    int rc = mdb_get(txn, e->store.data, &k, &v);
    if (rc == MDB_NOTFOUND) return 0;
    if (rc != 0) return rc;
    if (!sl_store_record(&k, &v, &revision, &value)) return MDB_CORRUPTED;
    char *copy = malloc(value.n + 1); /* Also of nothing there is something. */
    if (copy == NULL) return ENOMEM;
    memcpy(copy, value.at, value.n);
    op->result.found = true;
    op->result.revision = revision;
    op->result.value = (struct sl_bytes){copy, value.n};
    return 0;
}

/* The rows of a table, one after the other. */
struct scan {
    MDB_cursor *cursor;
    struct sl_store_key prefix;
    bool begun;
};

/* 0: a row. MDB_NOTFOUND: no more. */
static int next_row(struct scan *s, struct sl_storage_row *row)
{
    MDB_val k = {s->prefix.n, s->prefix.bytes}, v;
    struct sl_bytes table;
    uint64_t revision;
    int rc = mdb_cursor_get(s->cursor, &k, &v, s->begun ? MDB_NEXT : MDB_SET_RANGE);
    if (rc != 0) return rc;
    s->begun = true;
    if (k.mv_size < s->prefix.n || memcmp(k.mv_data, s->prefix.bytes, s->prefix.n) != 0)
        return MDB_NOTFOUND;
    if (!sl_store_names(&k, &table, &row->key)) return MDB_CORRUPTED;
    return sl_store_record(&k, &v, &revision, &row->value) ? 0 : MDB_CORRUPTED;
}

static char *copy_to(char *to, struct sl_bytes *b)
{
    memcpy(to, b->at, b->n);
    b->at = to;
    return to + b->n;
}

/* First they are counted, then all is copied into one piece of memory: rows, then bytes. */
static int copy_rows(struct scan *s, struct sl_storage_op *op)
{
    struct sl_storage_row row, *rows;
    size_t bytes = 0;
    uint32_t n = 0;
    int rc;
    while ((rc = next_row(s, &row)) == 0) {
        if (n == op->rows_max) return say(op, SLUICE_ETOOBIG);
        bytes += row.key.n + row.value.n;
        if (op->bytes_max > 0 && bytes > op->bytes_max) return say(op, SLUICE_ETOOBIG);
        n++;
    }
    if (rc != MDB_NOTFOUND) return rc;
    rows = malloc(n * sizeof *rows + bytes + 1);
    if (rows == NULL) return ENOMEM;
    char *at = (char *)(rows + n);
    s->begun = false;
    for (uint32_t i = 0; i < n; i++) {
        if ((rc = next_row(s, &rows[i])) != 0) {
            free(rows);
            return rc == MDB_NOTFOUND ? MDB_CORRUPTED : rc;
        }
        at = copy_to(at, &rows[i].key);
        at = copy_to(at, &rows[i].value);
    }
    op->result.rows = rows;
    op->result.row_count = n;
    return 0;
}

static int do_scan(struct sl_storage *e, MDB_txn *txn, struct sl_storage_op *op)
{
    struct scan s = {.begun = false};
    sl_store_key(&s.prefix, op->table, (struct sl_bytes){NULL, 0});
    int rc = mdb_cursor_open(txn, e->store.data, &s.cursor);
    if (rc != 0) return rc;
    rc = copy_rows(&s, op);
    mdb_cursor_close(s.cursor);
    return rc;
}

/* Whatever it returns, the map is ours then. LMDB has no readers between a commit whose end
 * failed and the moment in which the writer opens the store again: at once. */
static int begin_reading(struct sl_storage *e, MDB_txn **txn)
{
    for (int tries = 1;; tries++) {
        pthread_mutex_lock(&e->map);
        int rc = e->store.env != NULL ? 0 : EIO;
        if (rc == 0) rc = mdb_txn_begin(e->store.env, NULL, MDB_RDONLY, txn);
        if (rc != MDB_PANIC || tries == READ_TRIES) return rc;
        pthread_mutex_unlock(&e->map);
        pause_ms(1);
    }
}

static void do_reads(struct sl_storage *e, struct sl_list *group)
{
    struct sl_storage_op *op;
    MDB_txn *txn = NULL;
    int rc = begin_reading(e, &txn);
    for (op = op_after(group, NULL); op != NULL; op = op_after(group, op)) {
        int one = rc;
        memset(&op->result, 0, sizeof op->result);
        if (!fits(op->table, op->key)) op->result.status = SLUICE_ETOOBIG;
        else if (one == 0)
            one = op->type == SL_STORAGE_READ ? do_read(e, txn, op)
                                              : do_scan(e, txn, op);
        if (one != 0) fail(e, op, status_of(e, one));
    }
    mdb_txn_abort(txn);
    pthread_mutex_unlock(&e->map);
}

/* --- The threads ------------------------------------------------------------- */

/* Those that wait, up to so many; at least one. False: there are none and come none. */
static bool take_group(struct sl_storage *e, struct lane *lane, struct sl_list *group)
{
    sl_list_init(group);
    pthread_mutex_lock(&e->lock);
    while (sl_list_empty(&lane->waiting) && !e->closing)
        pthread_cond_wait(&lane->came, &e->lock);
    move_ops(&lane->waiting, group, e->settings.group_max);
    pthread_mutex_unlock(&e->lock);
    return !sl_list_empty(group);
}

static void give_back(struct sl_storage *e, struct sl_list *group)
{
    pthread_mutex_lock(&e->lock);
    bool was_empty = sl_list_empty(&e->done);
    move_ops(group, &e->done, SIZE_MAX);
    if (was_empty) eventfd_write(e->fd, 1);
    pthread_mutex_unlock(&e->lock);
}

static void *write_thread(void *of)
{
    struct sl_storage *e = of;
    struct sl_list group;
    while (take_group(e, &e->writes, &group)) {
        do_group(e, &group);
        give_back(e, &group);
    }
    return NULL;
}

static void *read_thread(void *of)
{
    struct sl_storage *e = of;
    struct sl_list group;
    while (take_group(e, &e->reads, &group)) {
        do_reads(e, &group);
        give_back(e, &group);
    }
    return NULL;
}

/* --- The caller's side ------------------------------------------------------- */

static void submit(struct sl_storage *e, struct sl_storage_op *op)
{
    bool reads = op->type == SL_STORAGE_READ || op->type == SL_STORAGE_SCAN;
    struct lane *lane = reads ? &e->reads : &e->writes;
    pthread_mutex_lock(&e->lock);
    sl_list_append(&lane->waiting, &op->place);
    e->stats.waiting++;
    pthread_cond_signal(&lane->came);
    pthread_mutex_unlock(&e->lock);
}

static int fd_of(const struct sl_storage *e)
{
    return e->fd;
}

static struct sl_storage_op *take_done(struct sl_storage *e, bool *more)
{
    struct sl_list *first = NULL;
    eventfd_t n;
    pthread_mutex_lock(&e->lock);
    if (!sl_list_empty(&e->done)) {
        first = e->done.next;
        sl_list_remove(first);
        e->stats.waiting--;
        if (sl_list_empty(&e->done)) eventfd_read(e->fd, &n);
    }
    *more = !sl_list_empty(&e->done);
    pthread_mutex_unlock(&e->lock);
    return first != NULL ? sl_container_of(first, struct sl_storage_op, place) : NULL;
}

static bool work(struct sl_storage *e, size_t most)
{
    struct sl_storage_op *op;
    bool more = true;
#ifdef MUT_WORKALL
    most = SIZE_MAX;
#endif
    while (more && most-- > 0 && (op = take_done(e, &more)) != NULL) {
        void *value = (void *)op->result.value.at, *rows = (void *)op->result.rows;
        op->done(op); /* Then it may be gone. */
        free(value);
        free(rows);
    }
    return more;
}

static void hurry(struct sl_storage *e)
{
    pthread_mutex_lock(&e->lock);
    e->hurried = true;
    pthread_mutex_unlock(&e->lock);
}

static void watch(struct sl_storage *e,
                  void (*told)(void *owner, const struct sl_storage_term *reign),
                  void *owner)
{
    (void)e, (void)told, (void)owner; /* It changes by nobody else. */
}

static const char *trouble(const struct sl_storage *e)
{
    (void)e;
    return "";
}

static void stats_of(struct sl_storage *e, struct sl_storage_stats *out)
{
    pthread_mutex_lock(&e->lock);
    *out = e->stats;
    pthread_mutex_unlock(&e->lock);
}

/* --- Life -------------------------------------------------------------------- */

static int make_store(struct sl_storage *e, char *why, size_t why_bytes)
{
    struct sl_store s;
    int status = sl_store_begin(&s, e->folder, map_bytes(e, FOR_WRITES), why,
                                why_bytes);
    return status == SLUICE_OK ? sl_store_finish(&s, e->folder, why, why_bytes)
                               : status;
}

/* So that the numbers are right before the first group. */
static int begin_stats(struct sl_storage *e)
{
    struct work w = {.e = e, .store = &e->store};
    int rc = mdb_txn_begin(e->store.env, NULL, MDB_RDONLY, &w.txn);
    if (rc != 0) return rc;
    rc = sl_store_number(w.store, w.txn, SL_STORE_TERM, &w.term);
    if (rc == 0) rc = sl_store_number(w.store, w.txn, SL_STORE_REVISION, &w.revision);
    measure(&w, &e->stats);
    mdb_txn_abort(w.txn);
    e->stats.bytes_max = e->settings.bytes_max;
    return rc;
}

static int find_store(struct sl_storage *e, char *why, size_t why_bytes)
{
    int status = open_store(e, why, why_bytes);
    if (status == SLUICE_ENOENT) {
        status = make_store(e, why, why_bytes);
        if (status == SLUICE_OK) status = open_store(e, why, why_bytes);
    }
    if (status != SLUICE_OK) return status;
    int rc = begin_time(e);
    if (rc == 0) rc = begin_stats(e);
    if (rc != 0)
        snprintf(why, why_bytes, "the store cannot be read: %s", mdb_strerror(rc));
    return sl_store_status(rc);
}

static void end_thread(struct sl_storage *e, struct lane *lane)
{
    pthread_mutex_lock(&e->lock);
    e->closing = true;
    pthread_cond_broadcast(&lane->came);
    pthread_mutex_unlock(&e->lock);
    pthread_join(lane->thread, NULL);
}

/* Signals are for the caller's threads. */
static int start_threads(struct sl_storage *e)
{
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int rc = pthread_create(&e->writes.thread, NULL, write_thread, e);
    if (rc == 0) {
        rc = pthread_create(&e->reads.thread, NULL, read_thread, e);
        if (rc != 0) end_thread(e, &e->writes);
    }
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return rc;
}

static void init(struct sl_storage *e, const struct sl_storage_settings *s)
{
    e->settings = *s;
    e->settings.folder = e->folder;
    e->room_may_grow = ROOM_GROWS_MAX;
    if (e->settings.group_max == 0) e->settings.group_max = 1;
    pthread_mutex_init(&e->map, NULL);
    pthread_mutex_init(&e->lock, NULL);
    pthread_cond_init(&e->writes.came, NULL);
    pthread_cond_init(&e->reads.came, NULL);
    sl_list_init(&e->writes.waiting);
    sl_list_init(&e->reads.waiting);
    sl_list_init(&e->done);
}

static void destroy(struct sl_storage *e)
{
    sl_store_close(&e->store);
    if (e->fd >= 0) close(e->fd);
    pthread_cond_destroy(&e->reads.came);
    pthread_cond_destroy(&e->writes.came);
    pthread_mutex_destroy(&e->lock);
    pthread_mutex_destroy(&e->map);
    free(e);
}

/* False: why says it. */
static bool start(struct sl_storage *e, char *why, size_t why_bytes)
{
    if (find_store(e, why, why_bytes) != SLUICE_OK) return false;
    e->fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    int rc = e->fd >= 0 ? start_threads(e) : errno;
    if (rc == 0) return true;
    snprintf(why, why_bytes, "the store cannot be served: %s", strerror(rc));
    return false;
}

static void close_engine(struct sl_storage *e)
{
    end_thread(e, &e->writes);
    end_thread(e, &e->reads);
    work(e, SIZE_MAX);
    destroy(e);
}

static const struct sl_storage_kind kind = {close_engine, submit,   fd_of, work,
                                            hurry,        stats_of, watch, trouble};

struct sl_storage *sl_storage_open_lmdb(const struct sl_storage_settings *s, char *why,
                                        size_t why_bytes)
{
    if (s->bytes_max < BYTES_MIN) {
        snprintf(why, why_bytes,
                 "a store of less than %zu bytes is of no use; allow more", BYTES_MIN);
        return NULL;
    }
    if (strlen(s->folder) >= PATH_MAX) {
        snprintf(why, why_bytes, "the path of the folder is too long");
        return NULL;
    }
    struct sl_storage *e = calloc(1, sizeof *e);
    if (e == NULL) {
        snprintf(why, why_bytes, "out of memory");
        return NULL;
    }
    e->head.kind = &kind;
    strcpy(e->folder, s->folder);
    e->fd = -1;
    init(e, s);
    if (start(e, why, why_bytes)) return e;
    destroy(e);
    return NULL;
}
