/* lmdb.c - the storage of a single server: its queues, its two threads, opening and
 * closing. */
#include <assert.h>
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

#include "storage/lmdb/lmdb_internal.h"

_Static_assert(SL_STORAGE_NAME_BYTES_MAX + 2 == SL_STORE_KEY_MAX, "store.h: data");
_Static_assert(SL_STORAGE_REQUEST_BYTES_MAX <= SL_STORE_KEY_MAX, "store.h: requests");

#define BYTES_MIN ((size_t)1 << 20) /* A smaller store is not useful. */

static struct sl_lmdb *lmdb_of(const struct sl_storage *s)
{
    return sl_container_of(s, struct sl_lmdb, base);
}

void sl_lmdb_sleep_ms(long ms)
{
    nanosleep(&(struct timespec){0, ms * 1000000L}, NULL);
}

sl_ms sl_lmdb_clock_ms(clockid_t id)
{
    struct timespec t;
    clock_gettime(id, &t);
    return (sl_ms)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

int sl_lmdb_answer(struct sl_storage_op *op, int status)
{
    op->result.status = status;
    return 0;
}

void sl_lmdb_fail(struct sl_lmdb *l, struct sl_storage_op *op, int status)
{
    assert(status != SLUICE_OK);
    memset(&op->result, 0, sizeof op->result);
    op->result.status = status;
    pthread_mutex_lock(&l->lock);
    l->stats.errors++;
    pthread_mutex_unlock(&l->lock);
}

bool sl_lmdb_is_in_a_hurry(struct sl_lmdb *l)
{
    pthread_mutex_lock(&l->lock);
    bool hurried = l->closing || l->hurried;
    pthread_mutex_unlock(&l->lock);
    return hurried;
}

/* --- The threads ------------------------------------------------------------- */

/* Wait for operations and take at most group_max of them. Returns false if the storage
 * is closing and no operations are left. */
static bool take_group(struct sl_lmdb *l, struct sl_lmdb_lane *lane,
                       struct sl_list *group)
{
    sl_list_init(group);
    pthread_mutex_lock(&l->lock);
    while (sl_list_empty(&lane->waiting) && !l->closing)
        pthread_cond_wait(&lane->came, &l->lock);
    sl_storage_move_ops(&lane->waiting, group, l->settings.group_max);
    pthread_mutex_unlock(&l->lock);
    return !sl_list_empty(group);
}

static void give_back(struct sl_lmdb *l, struct sl_list *group)
{
    pthread_mutex_lock(&l->lock);
    bool was_empty = sl_list_empty(&l->done);
    sl_storage_move_ops(group, &l->done, SIZE_MAX);
    if (was_empty) eventfd_write(l->fd, 1);
    pthread_mutex_unlock(&l->lock);
}

static void *write_thread(void *of)
{
    struct sl_lmdb *l = of;
    struct sl_list group;
    while (take_group(l, &l->writes, &group)) {
        sl_lmdb_write_group(l, &group);
        give_back(l, &group);
    }
    return NULL;
}

static void *read_thread(void *of)
{
    struct sl_lmdb *l = of;
    struct sl_list group;
    while (take_group(l, &l->reads, &group)) {
        sl_lmdb_read_group(l, &group);
        give_back(l, &group);
    }
    return NULL;
}

/* --- The caller's side ------------------------------------------------------- */

static void submit(struct sl_storage *s, struct sl_storage_op *op)
{
    struct sl_lmdb *l = lmdb_of(s);
    bool reads = op->type == SL_STORAGE_READ || op->type == SL_STORAGE_SCAN;
    struct sl_lmdb_lane *lane = reads ? &l->reads : &l->writes;
    pthread_mutex_lock(&l->lock);
    assert(!l->closing);
    sl_list_append(&lane->waiting, &op->place);
    l->stats.waiting++;
    pthread_cond_signal(&lane->came);
    pthread_mutex_unlock(&l->lock);
}

static int fd_of(const struct sl_storage *s)
{
    return lmdb_of(s)->fd;
}

static struct sl_storage_op *take_done(struct sl_lmdb *l, bool *more)
{
    eventfd_t n;
    pthread_mutex_lock(&l->lock);
    struct sl_storage_op *op = sl_storage_op_after(&l->done, NULL);
    if (op != NULL) {
        sl_list_remove(&op->place);
        assert(l->stats.waiting > 0);
        l->stats.waiting--;
        if (sl_list_empty(&l->done)) eventfd_read(l->fd, &n);
    }
    *more = !sl_list_empty(&l->done);
    pthread_mutex_unlock(&l->lock);
    return op;
}

static bool work(struct sl_storage *s, size_t most)
{
    struct sl_storage_op *op;
    bool more = true;
    while (more && most-- > 0 && (op = take_done(lmdb_of(s), &more)) != NULL)
        sl_storage_deliver(op);
    return more;
}

static void hurry(struct sl_storage *s)
{
    struct sl_lmdb *l = lmdb_of(s);
    pthread_mutex_lock(&l->lock);
    l->hurried = true;
    pthread_mutex_unlock(&l->lock);
}

/* Do nothing: only this server changes the term, so there is no change to report. */
static void watch(struct sl_storage *s,
                  void (*changed)(void *owner, const struct sl_storage_term *term),
                  void *owner)
{
    (void)s, (void)changed, (void)owner;
}

static const char *trouble(const struct sl_storage *s)
{
    (void)s;
    return "";
}

static void stats_of(struct sl_storage *s, struct sl_storage_stats *out)
{
    struct sl_lmdb *l = lmdb_of(s);
    pthread_mutex_lock(&l->lock);
    *out = l->stats;
    pthread_mutex_unlock(&l->lock);
}

/* --- Invariants -------------------------------------------------------------- */

static void check(struct sl_storage *s)
{
    struct sl_lmdb *l = lmdb_of(s);
    struct pollfd p = {.fd = l->fd, .events = POLLIN};
    pthread_mutex_lock(&l->lock);
    size_t done = sl_storage_count_ops(&l->done);
    size_t queued = sl_storage_count_ops(&l->writes.waiting) +
                    sl_storage_count_ops(&l->reads.waiting);
    /* The other operations are in the groups that the threads are working on. */
    assert(queued + done <= l->stats.waiting);
    assert((poll(&p, 1, 0) == 1) == (done > 0));
    pthread_mutex_unlock(&l->lock);
}

/* --- Opening and closing ----------------------------------------------------- */

static int make_store(struct sl_lmdb *l, char *why, size_t why_bytes)
{
    struct sl_store s;
    int status = sl_store_begin(
        &s, l->directory, sl_lmdb_map_bytes(l, SL_LMDB_FOR_WRITES), why, why_bytes);
    return status == SLUICE_OK ? sl_store_finish(&s, l->directory, why, why_bytes)
                               : status;
}

static int find_store(struct sl_lmdb *l, char *why, size_t why_bytes)
{
    int status = sl_lmdb_open_store(l, why, why_bytes);
    if (status == SLUICE_ENOENT) {
        status = make_store(l, why, why_bytes);
        if (status == SLUICE_OK) status = sl_lmdb_open_store(l, why, why_bytes);
    }
    if (status != SLUICE_OK) return status;
    int rc = sl_lmdb_writer_start(l);
    if (rc != 0)
        snprintf(why, why_bytes, "the store cannot be read: %s", mdb_strerror(rc));
    return sl_store_status(rc);
}

static void end_thread(struct sl_lmdb *l, struct sl_lmdb_lane *lane)
{
    pthread_mutex_lock(&l->lock);
    l->closing = true;
    pthread_cond_broadcast(&lane->came);
    pthread_mutex_unlock(&l->lock);
    pthread_join(lane->thread, NULL);
}

/* Start both threads with all signals blocked, so that the caller's threads receive
 * them. */
static int start_threads(struct sl_lmdb *l)
{
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int rc = pthread_create(&l->writes.thread, NULL, write_thread, l);
    if (rc == 0) {
        rc = pthread_create(&l->reads.thread, NULL, read_thread, l);
        if (rc != 0) end_thread(l, &l->writes);
    }
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return rc;
}

static void destroy(struct sl_lmdb *l)
{
    sl_store_close(&l->store);
    if (l->fd >= 0) close(l->fd);
    pthread_cond_destroy(&l->reads.came);
    pthread_cond_destroy(&l->writes.came);
    pthread_mutex_destroy(&l->lock);
    pthread_mutex_destroy(&l->map);
    free(l);
}

/* Open the store and start the threads. On failure, returns false and writes the reason
 * to `why`. */
static bool start(struct sl_lmdb *l, char *why, size_t why_bytes)
{
    if (find_store(l, why, why_bytes) != SLUICE_OK) return false;
    l->fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    int rc = l->fd >= 0 ? start_threads(l) : errno;
    if (rc == 0) return true;
    snprintf(why, why_bytes, "the store cannot be opened: %s", strerror(rc));
    return false;
}

static void close_lmdb(struct sl_storage *s)
{
    struct sl_lmdb *l = lmdb_of(s);
    end_thread(l, &l->writes);
    end_thread(l, &l->reads);
    work(s, SIZE_MAX);
    assert(l->stats.waiting == 0);
    destroy(l);
}

static const struct sl_storage_kind kind = {
    .close = close_lmdb,
    .submit = submit,
    .fd = fd_of,
    .work = work,
    .hurry = hurry,
    .stats = stats_of,
    .watch = watch,
    .trouble = trouble,
    .check = check,
};

static void init(struct sl_lmdb *l, const struct sl_storage_settings *s)
{
    l->base.kind = &kind;
    l->settings = *s;
    strcpy(l->directory, s->directory);
    l->settings.directory = l->directory;
    if (l->settings.group_max == 0) l->settings.group_max = 1;
    l->fd = -1;
    pthread_mutex_init(&l->map, NULL);
    pthread_mutex_init(&l->lock, NULL);
    pthread_cond_init(&l->writes.came, NULL);
    pthread_cond_init(&l->reads.came, NULL);
    sl_list_init(&l->writes.waiting);
    sl_list_init(&l->reads.waiting);
    sl_list_init(&l->done);
}

struct sl_storage *sl_storage_open_lmdb(const struct sl_storage_settings *s, char *why,
                                        size_t why_bytes)
{
    assert(s->directory != NULL && why_bytes > 0);
    if (s->bytes_max < BYTES_MIN) {
        snprintf(why, why_bytes, "store-bytes-max must be at least %zu bytes",
                 BYTES_MIN);
        return NULL;
    }
    if (strlen(s->directory) >= PATH_MAX) {
        snprintf(why, why_bytes, "the path of the directory is too long");
        return NULL;
    }
    struct sl_lmdb *l = calloc(1, sizeof *l);
    if (l == NULL) {
        snprintf(why, why_bytes, "out of memory");
        return NULL;
    }
    init(l, s);
    if (start(l, why, why_bytes)) return &l->base;
    destroy(l);
    return NULL;
}
