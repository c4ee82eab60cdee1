/* recorder.c - the journal while the server runs: writes records, syncs them, replaces the file. */
#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include "server/net/conn.h"
#include "server/net/links.h"
#include "server/observe/log.h"
#include "server/recorder_internal.h"

/* A copy begins when the size of the file exceeds twice the size of the live items by this, or by a
 * quarter of journal-bytes-max if that is less. */
#define SLACK_BYTES (16u << 20)
/* A copy is written in frames of about this size. */
#define COPY_BYTES 65536u
#define RETRY_MS 1000
/* The server warns about a sync that runs for longer than this. */
#define SYNC_MS_MAX 5000

/* --- Values ---------------------------------------------------------------------- */

static struct sl_item number_item(enum sl_item_kind kind, char value[SL_VALUE_BYTES],
                                  uint64_t number)
{
    sl_value_write(value, number);
    return (struct sl_item){.kind = kind,
                            .expiry_ms = SL_NEVER,
                            .bound_ms = SL_NEVER,
                            .value = {value, SL_VALUE_BYTES}};
}

void sl_recorder_describe_file(const struct sl_recorder *r, sl_ms volatile_ms,
                               struct sl_file_items *out)
{
    struct sl_life life;
    sl_journal_file_life(r->file, &life);
    life.wait_until_ms = r->wait_until_ms;
    sl_life_write(out->life, &life);
    out->at[0] = (struct sl_item){.kind = SL_ITEM_LIFE,
                                  .expiry_ms = SL_NEVER,
                                  .bound_ms = SL_NEVER,
                                  .value = {out->life, SL_LIFE_BYTES}};
    out->at[1] = number_item(SL_ITEM_VOLATILE, out->number[0], (uint64_t)volatile_ms);
    out->at[2] = number_item(SL_ITEM_FENCES, out->number[1], r->fence_limit);
}

/* --- Changes ---------------------------------------------------------------------- */

void sl_recorder_count(struct sl_recorder *r, const struct sl_item *item)
{
    r->items++;
    r->live_bytes += sl_record_bytes(item);
}

uint64_t sl_recorder_put(struct server *s, struct sl_item *item,
                         struct sl_item_before before)
{
    struct sl_recorder *r = s->recorder;
    uint64_t position = sl_journal_put(r->journal, s->now, item, before);
    if (before.expiry_ms == 0) sl_recorder_count(r, item);
    return position;
}

uint64_t sl_recorder_end(struct server *s, enum sl_item_kind kind, struct sl_bytes key,
                         sl_fence fence, bool is_long)
{
    struct sl_recorder *r = s->recorder;
    if (r->items > 0) { /* The size of the item is not known; assume the average. */
        r->live_bytes -= r->live_bytes / r->items;
        r->items--;
    }
    return sl_journal_end(r->journal, s->now, kind, key, fence, is_long);
}

uint64_t sl_recorder_put_fences(struct server *s, sl_fence limit)
{
    struct sl_recorder *r = s->recorder;
    char value[SL_VALUE_BYTES];
    struct sl_item item = number_item(SL_ITEM_FENCES, value, limit);
    uint64_t position = sl_journal_put(r->journal, s->now, &item,
                                       (struct sl_item_before){0});
    if (position != SL_JOURNAL_FAILED && limit > r->fence_limit) r->fence_limit = limit;
    return position;
}

struct sl_journal *sl_recorder_journal(const struct sl_recorder *r)
{
    return r->journal;
}

int sl_recorder_error(const struct sl_recorder *r)
{
    return r->error;
}

/* --- Failure ------------------------------------------------------------------------ */

bool sl_recorder_is_limit_of_process(const struct sl_recorder *r)
{
    struct rlimit limit;
    return getrlimit(RLIMIT_FSIZE, &limit) == 0 && limit.rlim_cur < r->bytes_max;
}

static const char *reason(const struct sl_recorder *r)
{
    if (r->displaced) return "the file was moved or replaced";
    if (r->error == EFBIG && sl_recorder_is_limit_of_process(r))
        return "the file has reached the maximum file size of the process";
    if (r->error == EFBIG) return "the file has reached journal-bytes-max";
    return strerror(r->error);
}

static const char *remedy(const struct sl_recorder *r)
{
    if (r->displaced) return "move the file back, or restart the server";
    if (r->error != EFBIG) return sl_directory_remedy(r->error);
    return sl_recorder_is_limit_of_process(r)
               ? "raise the limit (ulimit -f, or LimitFSIZE of systemd)"
               : "release locks, or raise journal-bytes-max";
}

void sl_recorder_explain(const struct server *s, char *out, size_t size)
{
    const struct sl_recorder *r = s->recorder;
    sl_directory_explain(&s->directory, SL_JOURNAL_NAME, reason(r), remedy(r), out,
                         size);
}

static void log_failure(const struct server *s)
{
    static struct sl_log_kind kind;
    const struct sl_recorder *r = s->recorder;
    sl_log_often(&kind, s->now.ms, SL_LOG_ERROR,
                 r->use == SL_JOURNAL_OF_NODE
                     ? "cannot write the journal; this node does not vote, and tries "
                       "again every second"
                     : "cannot write the journal; the server rejects LEASE, EXTEND, "
                       "BREAK and DRAIN, and tries again every second",
                 "directory", s->directory.path, "error", reason(r), "remedy",
                 remedy(r), NULL);
}

void sl_recorder_stop_copying(struct sl_recorder *r)
{
    r->copying = r->copied = r->mending = false;
    r->copy.n = 0;
}

static void fail(struct server *s, int error)
{
    struct sl_recorder *r = s->recorder;
    r->errors++;
    r->error = error;
    r->retry_ms = sl_ms_after(s->now.ms, RETRY_MS);
    sl_recorder_stop_copying(r);
    sl_journal_fail(r->journal);
    log_failure(s);
    r->owner->failed(s);
}

/* --- Writing ------------------------------------------------------------------------- */

int sl_recorder_write(struct server *s)
{
    struct sl_recorder *r = s->recorder;
    struct sl_bytes records;
    uint64_t position;
    while (sl_journal_take(r->journal, &records, &position)) {
        int error = sl_journal_file_write(r->file, records, position, s->now.ms);
        if (error != 0) return error;
    }
    return 0;
}

void sl_recorder_flush(struct server *s)
{
    struct sl_recorder *r = s->recorder;
    if (r == NULL || r->file == NULL) return;
    uint64_t before = sl_journal_position(r->journal);
    int error = sl_recorder_write(s);
    if (error != 0) {
        /* This comes first, because closing a connection changes the table, too. From now on the
         * journal accepts no record that would follow a lost one, and remembers the keys of all
         * items that end. And the owner undoes changes in the right order, the last one first. */
        fail(s, error);
        /* Close all connections with output, which may show changes that are not recorded. */
        sl_conn_cut_dirty(s);
        sl_links_cut_dirty(s);
        return;
    }
    if (r->owner->written != NULL) r->owner->written(s);
    if (sl_journal_failed(r->journal) && r->error == 0) fail(s, ENOMEM);
    else if (r->error == 0 && sl_journal_position(r->journal) != before) {
        /* Find out now that there is no space left, not when a reply depends on it. */
        error = sl_journal_file_reserve(r->file, SL_ROOM_BYTES);
        if (error != 0) fail(s, error);
    }
}

/* --- Copies --------------------------------------------------------------------------- */

static void add_to_copy(struct sl_recorder *r, const struct sl_item *item)
{
    if (sl_record_put(&r->copy, item) != SLUICE_OK) r->copy_error = ENOMEM;
}

void sl_recorder_copy(struct server *s, struct sl_item *item)
{
    struct sl_recorder *r = s->recorder;
    if (item == NULL) {
        r->copy_error = ENOMEM;
        return;
    }
    if (item->bound_ms < item->expiry_ms) sl_journal_bound(r->journal, item);
    add_to_copy(r, item);
    r->copied_items++;
    r->copied_bytes += sl_record_bytes(item);
}

static int write_copy(struct server *s)
{
    struct sl_recorder *r = s->recorder;
    int error = r->copy_error;
    if (error == 0 && r->copy.n > 0)
        error = sl_journal_file_copy(r->file, (struct sl_bytes){r->copy.at, r->copy.n},
                                     s->now.ms);
    r->copy.n = 0;
    return error;
}

void sl_recorder_begin_copy(struct server *s)
{
    struct sl_recorder *r = s->recorder;
    struct sl_file_items items;
    r->copying = true;
    r->copied = r->copy_begun = false;
    r->copy_error = 0;
    r->copy.n = 0;
    r->copied_items = r->copied_bytes = 0;
    sl_recorder_describe_file(r, sl_journal_copied_volatile_ms(r->journal, s->now.ms),
                              &items);
    for (size_t i = 0; i < sizeof items.at / sizeof *items.at; i++)
        add_to_copy(r, &items.at[i]);
}

int sl_recorder_copy_some(struct server *s)
{
    struct sl_recorder *r = s->recorder;
    int more = r->owner->copy(s, !r->copy_begun);
    r->copy_begun = true;
    if (more < 0) return ENOMEM;
    if (r->copy.n < COPY_BYTES && more == 1 && r->copy_error == 0) return 0;
    int error = write_copy(s);
    if (error == 0 && more == 0) {
        r->copied = true;
        r->items = r->copied_items;
        r->live_bytes = r->copied_bytes;
    }
    return error;
}

/* Give up the copy; the current file stays. */
static void drop_copy(struct server *s, int error)
{
    static struct sl_log_kind kind;
    struct sl_recorder *r = s->recorder;
    sl_recorder_stop_copying(r);
    sl_journal_file_drop(r->file);
    r->retry_ms = sl_ms_after(s->now.ms, RETRY_MS);
    sl_log_often(&kind, s->now.ms, SL_LOG_WARN, "cannot make the journal shorter",
                 "directory", s->directory.path, "error", strerror(error), NULL);
}

/* Whether the file should be replaced by a shorter one. */
static bool is_too_large(const struct sl_recorder *r, sl_ms now_ms)
{
    uint64_t bytes = sl_journal_file_bytes(r->file), slack = r->bytes_max / 4;
    if (slack > SLACK_BYTES) slack = SLACK_BYTES;
    if (now_ms < r->retry_ms) return false;
    if (bytes > 2 * r->live_bytes + slack) return true;
    /* Begin well before the limit: changes are written to both files during the copy. */
    return bytes > r->bytes_max / 4 * 3 && bytes > r->live_bytes + r->bytes_max / 16;
}

/* --- Jobs ------------------------------------------------------------------------------ */

static void in_worker(uv_work_t *work)
{
    struct server *s = work->data;
    struct sl_recorder *r = s->recorder;
    if (r->job == SL_JOB_SYNC) r->result = sl_journal_file_sync(r->file);
    else if (r->job == SL_JOB_COMMIT) r->result = sl_journal_file_commit(r->file);
    else {
        sl_journal_file_close(r->opened);
        r->opened = NULL;
        r->result = sl_journal_file_new(s->directory.fd, r->use, r->job_position,
                                        &r->opened);
    }
}

static void synced(struct server *s, int error)
{
    struct sl_recorder *r = s->recorder;
    bool was_failed = r->error != 0; /* A write has failed meanwhile. */
    sl_journal_sync_end(r->journal, error == 0 && !was_failed);
    r->syncs++;
    if (was_failed) return;
    if (error != 0) fail(s, error);
    else if (sl_journal_failed(r->journal)) fail(s, ENOMEM);
    else r->owner->durable(s);
}

/* The copy has become the journal, or not. */
static void committed(struct server *s, int error)
{
    struct sl_recorder *r = s->recorder;
    bool mends = r->mending;
    if (error == 0) sl_journal_file_switch(r->file);
    else sl_journal_file_drop(r->file);
    r->copies += error == 0;
    if (r->job_syncs) {
        sl_recorder_stop_copying(r);
        synced(s, error);
        return;
    }
    if (!mends) return; /* A write has failed meanwhile. */
    if (error != 0) {
        fail(s, error);
        return;
    }
    sl_recorder_stop_copying(r);
    sl_journal_mend(r->journal, r->job_position);
    r->error = 0;
    sl_log(SL_LOG_INFO, "the journal works again", "directory", s->directory.path,
           NULL);
    r->owner->durable(s);
}

static void opened(struct server *s, int error)
{
    struct sl_recorder *r = s->recorder;
    r->file = error == 0 ? r->opened : NULL;
    r->opened = NULL;
    if (error != 0) {
        r->error = error;
        r->retry_ms = sl_ms_after(s->now.ms, RETRY_MS);
        log_failure(s);
        return;
    }
    sl_journal_file_limit(r->file, r->bytes_max);
    sl_journal_mend_begin(r->journal);
    sl_recorder_begin_copy(s);
    r->mending = true;
}

static void finish_job(struct server *s, int error)
{
    struct sl_recorder *r = s->recorder;
    enum sl_recorder_job job = r->job;
    r->job = SL_JOB_NONE;
    r->result = 0;
    if (job == SL_JOB_SYNC) synced(s, error);
    else if (job == SL_JOB_COMMIT) committed(s, error);
    else if (job == SL_JOB_OPEN) opened(s, error);
}

static void after_work(uv_work_t *work, int status)
{
    struct server *s = work->data;
    sl_server_read_clock(s);
    finish_job(s, status != 0 ? ECANCELED : s->recorder->result);
    sl_server_settle(s);
}

static void start_job(struct server *s, enum sl_recorder_job job)
{
    struct sl_recorder *r = s->recorder;
    assert(r->job == SL_JOB_NONE);
    r->job = job;
    r->work.data = s;
    r->job_position = sl_journal_position(r->journal);
    r->job_begin_ms = s->now.ms;
    r->job_syncs = r->error == 0;
    if (r->job_syncs) sl_journal_sync_begin(r->journal);
    if (job == SL_JOB_OPEN) {
        r->opened = r->file;
        r->file = NULL;
    }
    if (uv_queue_work(s->loop, &r->work, in_worker, after_work) != 0)
        finish_job(s, EAGAIN);
}

bool sl_recorder_pump(struct server *s)
{
    struct sl_recorder *r = s->recorder;
    if (r == NULL) return true;
    if (r->error == 0) {
        if (r->job == SL_JOB_NONE && r->copied)
            start_job(s, SL_JOB_COMMIT); /* A commit is also a sync. */
        else if (r->job == SL_JOB_NONE && sl_journal_sync_due(r->journal) <= s->now.ms)
            start_job(s, SL_JOB_SYNC);
        else if (!r->copying && r->job == SL_JOB_NONE && is_too_large(r, s->now.ms)) {
            int error = sl_journal_file_replace(r->file);
            if (error == 0) sl_recorder_begin_copy(s);
            else r->retry_ms = sl_ms_after(s->now.ms, RETRY_MS);
        }
    } else if (r->copied && r->job == SL_JOB_NONE) start_job(s, SL_JOB_COMMIT);
    if (!r->copying || r->copied) return true;
    int error = sl_recorder_copy_some(s);
    if (error == 0) return false;
    if (r->error == 0) drop_copy(s, error);
    else fail(s, error);
    return true;
}

sl_ms sl_recorder_due(const struct server *s)
{
    const struct sl_recorder *r = s->recorder;
    if (r == NULL || r->job != SL_JOB_NONE || r->error != 0) return SL_NEVER;
    return sl_journal_sync_due(r->journal);
}

sl_ms sl_recorder_slow_ms(const struct server *s)
{
    const struct sl_recorder *r = s->recorder;
    if (r == NULL || r->job == SL_JOB_NONE || r->error != 0) return 0;
    sl_ms ms = s->now.ms - r->job_begin_ms;
    return ms > SYNC_MS_MAX ? ms : 0;
}

/* --- Every second -------------------------------------------------------------------------- */

/* Whether the path of the data directory still leads to the directory, and the name of the journal
 * to our file or to no file. */
static bool is_in_place(const struct server *s)
{
    const struct sl_recorder *r = s->recorder;
    struct stat path, fd, file;
    if (stat(s->directory.path, &path) != 0 || fstat(s->directory.fd, &fd) != 0)
        return false;
    if (path.st_dev != fd.st_dev || path.st_ino != fd.st_ino) return false;
    if (r->file != NULL && sl_journal_file_in_place(r->file)) return true;
    return fstatat(s->directory.fd, SL_JOURNAL_NAME, &file, AT_SYMLINK_NOFOLLOW) != 0 &&
           errno == ENOENT;
}

static void log_slow(const struct server *s)
{
    static struct sl_log_kind kind;
    char ms[24];
    if (sl_recorder_slow_ms(s) == 0) return;
    snprintf(ms, sizeof ms, "%" PRId64, sl_recorder_slow_ms(s));
    sl_log_often(&kind, s->now.ms, SL_LOG_WARN,
                 "a sync of the journal has been running for a long time; long leases "
                 "wait for it; check the disk",
                 "directory", s->directory.path, "ms", ms, NULL);
}

void sl_recorder_second(struct server *s)
{
    struct sl_recorder *r = s->recorder;
    if (r == NULL) return;
    log_slow(s);
    if (r->error == 0 || r->displaced) {
        bool was = r->displaced;
        r->displaced = !is_in_place(s);
        if (r->displaced && !was && r->error == 0) fail(s, ESTALE);
        if (r->displaced) return;
        if (r->error == 0 && r->job != SL_JOB_COMMIT &&
            !sl_journal_file_in_place(r->file))
            fail(s, ENOENT); /* The file was removed; write a new one. */
    }
    if (r->error != 0 && r->job == SL_JOB_NONE && !r->copying &&
        s->now.ms >= r->retry_ms && !s->stopping)
        start_job(s, SL_JOB_OPEN);
}

/* --- Inspection ---------------------------------------------------------------------------- */

void sl_recorder_inspect(const struct server *s, struct sl_recorder_view *out)
{
    const struct sl_recorder *r = s->recorder;
    *out = (struct sl_recorder_view){0};
    if (r == NULL) return;
    *out = (struct sl_recorder_view){
        .bytes = r->file != NULL ? sl_journal_file_bytes(r->file) : 0,
        .live_bytes = r->live_bytes,
        .position = sl_journal_position(r->journal),
        .durable = sl_journal_durable(r->journal),
        .syncs = r->syncs,
        .copies = r->copies,
        .errors = r->errors,
        .copying = r->copying,
        .failed = r->error != 0 ? reason(r) : NULL,
        /* 0 on a file system that is not local (check_place()). */
        .volatile_ms = sl_journal_volatile_ms(r->journal) > 0
                           ? s->settings->lease_volatile_ms
                           : 0};
}
