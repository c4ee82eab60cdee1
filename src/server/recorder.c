#include "server/recorder.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include "server/net/conn.h"
#include "server/net/links.h"
#include "server/observe/log.h"

/* A copy begins when the file is larger than twice the live items and this, or a quarter of
 * journal-bytes-max if that is less. */
#define SLACK_BYTES (16u << 20)
/* A copy is written in frames of about this size. */
#define COPY_BYTES 65536u
#define RETRY_MS 1000
/* The space that the file has for the records of the next loop iterations. */
#define ROOM_BYTES 262144u
/* A sync that runs for longer is reported. */
#define SYNC_MS_MAX 5000

enum recorder_job { IDLE, SYNCING, COMMITTING, OPENING };

struct sl_recorder {
    const struct sl_recorder_owner *owner;
    enum sl_journal_use use;
    struct sl_journal *journal;
    struct sl_journal_file *file; /* NULL: after an error. */
    /* Only at the start: */
    struct sl_bytes map;
    struct sl_recovery recovery;
    bool found;
    bool converts; /* The journal is that of a single server, and this is a node. */

    sl_fence fence_limit;
    sl_ms wait_until_ms;
    uint64_t bytes_max;
    uint64_t items, live_bytes; /* Of all items that are live, approximately. */
    int error;                  /* Why the journal has failed; 0: it works. */
    bool displaced;             /* Another file has the name of the journal. */
    sl_ms retry_ms;             /* Begin no copy before this time. */

    bool copying, copy_begun;
    bool copied;  /* All items have been copied. */
    bool mending; /* The copy replaces a file that failed. */
    int copy_error;
    struct sl_buffer copy;
    uint64_t copied_items, copied_bytes;

    enum recorder_job job;
    uv_work_t work;
    int result;
    struct sl_journal_file *opened; /* OPENING: the old file, then the new one. */
    uint64_t job_position;          /* The position when the job began. */
    sl_ms job_begin_ms;
    bool job_syncs; /* sl_journal_sync_begin() was called for this job. */
    uint64_t syncs, copies, errors;
};

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

static struct sl_item life_item(const struct sl_recorder *r, char value[SL_LIFE_BYTES])
{
    struct sl_life life;
    sl_journal_file_life(r->file, &life);
    life.wait_until_ms = r->wait_until_ms;
    sl_life_write(value, &life);
    return (struct sl_item){.kind = SL_ITEM_LIFE,
                            .expiry_ms = SL_NEVER,
                            .bound_ms = SL_NEVER,
                            .value = {value, SL_LIFE_BYTES}};
}

/* --- Changes ---------------------------------------------------------------------- */

static void count_item(struct sl_recorder *r, const struct sl_item *item)
{
    r->items++;
    r->live_bytes += sl_record_bytes(item->key.n, item->value.n);
}

uint64_t sl_recorder_put(struct server *s, struct sl_item *item,
                         struct sl_item_before before)
{
    struct sl_recorder *r = s->recorder;
    if (before.expiry_ms == 0) count_item(r, item);
    return sl_journal_put(r->journal, s->now, item, before);
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

/* Whether EFBIG comes from the kernel: its limit is lower than journal-bytes-max. */
static bool is_limit_of_process(const struct sl_recorder *r)
{
    struct rlimit limit;
    return getrlimit(RLIMIT_FSIZE, &limit) == 0 && limit.rlim_cur < r->bytes_max;
}

static const char *reason(const struct sl_recorder *r)
{
    if (r->displaced) return "the file was moved or replaced";
    if (r->error == EFBIG && is_limit_of_process(r))
        return "the file has reached the maximum file size of the process";
    if (r->error == EFBIG) return "the file has reached journal-bytes-max";
    return strerror(r->error);
}

static const char *remedy(const struct sl_recorder *r)
{
    if (r->displaced) return "move the file back, or restart the server";
    switch (r->error) {
        case EFBIG:
            return is_limit_of_process(r)
                       ? "raise the limit (ulimit -f, or LimitFSIZE of systemd)"
                       : "release locks, or raise journal-bytes-max";
        case ENOSPC:
        case EDQUOT: return "free some space on the disk";
        default: return "check the disk";
    }
}

void sl_recorder_explain(const struct server *s, char *out, size_t size)
{
    const struct sl_recorder *r = s->recorder;
    snprintf(out, size,
             "cannot write the file %s/" SL_JOURNAL_NAME
             " (%s); %s; the server tries again every second",
             s->directory.path, reason(r), remedy(r));
}

static void log_failure(const struct server *s)
{
    static struct sl_log_kind kind;
    const struct sl_recorder *r = s->recorder;
    sl_log_often(&kind, s->now.ms, SL_LOG_ERROR,
                 "cannot write the journal; the server rejects LEASE, EXTEND, BREAK "
                 "and DRAIN, and tries again every second",
                 "directory", s->directory.path, "error", reason(r), "remedy",
                 remedy(r), NULL);
}

static void stop_copying(struct sl_recorder *r)
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
    stop_copying(r);
    sl_journal_fail(r->journal);
    log_failure(s);
    r->owner->failed(s);
}

/* --- Writing ------------------------------------------------------------------------- */

/* Write all records. Returns 0 or an errno. */
static int write_records(struct server *s)
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
    int error = write_records(s);
    if (error != 0) {
        /* First, because closing a connection changes the table, too. From here on the journal takes
         * no record that would come after lost ones, and remembers the keys of all ends. */
        sl_journal_fail(r->journal);
        /* Their output may show changes that are not recorded. */
        sl_conn_cut_dirty(s);
        sl_links_cut_dirty(s);
        fail(s, error);
    } else if (sl_journal_failed(r->journal) && r->error == 0) fail(s, ENOMEM);
    else if (r->error == 0 && sl_journal_position(r->journal) != before) {
        /* Find out now that there is no space left, not when a reply depends on it. */
        error = sl_journal_file_reserve(r->file, ROOM_BYTES);
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
    r->copied_bytes += sl_record_bytes(item->key.n, item->value.n);
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

static void begin_copy(struct server *s)
{
    struct sl_recorder *r = s->recorder;
    char life[SL_LIFE_BYTES], number[2][SL_VALUE_BYTES];
    r->copying = true;
    r->copied = r->copy_begun = false;
    r->copy_error = 0;
    r->copy.n = 0;
    r->copied_items = r->copied_bytes = 0;
    const struct sl_item items[] = {
        life_item(r, life),
        number_item(SL_ITEM_VOLATILE, number[0],
                    (uint64_t)sl_journal_copied_volatile_ms(r->journal, s->now.ms)),
        number_item(SL_ITEM_FENCES, number[1], r->fence_limit)};
    for (size_t i = 0; i < sizeof items / sizeof *items; i++) add_to_copy(r, &items[i]);
}

/* Copy a few more items. Returns 0 or an errno. */
static int copy_some(struct server *s)
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
    stop_copying(r);
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
    if (r->job == SYNCING) r->result = sl_journal_file_sync(r->file);
    else if (r->job == COMMITTING) r->result = sl_journal_file_commit(r->file);
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
        stop_copying(r);
        synced(s, error);
        return;
    }
    if (!mends) return; /* A write has failed meanwhile. */
    if (error != 0) {
        fail(s, error);
        return;
    }
    stop_copying(r);
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
    begin_copy(s);
    r->mending = true;
}

static void finish_job(struct server *s, int error)
{
    struct sl_recorder *r = s->recorder;
    enum recorder_job job = r->job;
    r->job = IDLE;
    r->result = 0;
    if (job == SYNCING) synced(s, error);
    else if (job == COMMITTING) committed(s, error);
    else if (job == OPENING) opened(s, error);
}

static void after_work(uv_work_t *work, int status)
{
    struct server *s = work->data;
    sl_server_read_clock(s);
    finish_job(s, status != 0 ? ECANCELED : s->recorder->result);
    sl_server_settle(s);
}

static void start_job(struct server *s, enum recorder_job job)
{
    struct sl_recorder *r = s->recorder;
    assert(r->job == IDLE);
    r->job = job;
    r->work.data = s;
    r->job_position = sl_journal_position(r->journal);
    r->job_begin_ms = s->now.ms;
    r->job_syncs = r->error == 0;
    if (r->job_syncs) sl_journal_sync_begin(r->journal);
    if (job == OPENING) {
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
        if (r->job == IDLE && r->copied) start_job(s, COMMITTING); /* Syncs, too. */
        else if (r->job == IDLE && sl_journal_sync_due(r->journal) <= s->now.ms)
            start_job(s, SYNCING);
        else if (!r->copying && r->job == IDLE && is_too_large(r, s->now.ms)) {
            int error = sl_journal_file_replace(r->file);
            if (error == 0) begin_copy(s);
            else r->retry_ms = sl_ms_after(s->now.ms, RETRY_MS);
        }
    } else if (r->copied && r->job == IDLE) start_job(s, COMMITTING);
    if (!r->copying || r->copied) return true;
    int error = copy_some(s);
    if (error == 0) return false;
    if (r->error == 0) drop_copy(s, error);
    else fail(s, error);
    return true;
}

sl_ms sl_recorder_due(const struct server *s)
{
    const struct sl_recorder *r = s->recorder;
    if (r == NULL || r->job != IDLE || r->error != 0) return SL_NEVER;
    return sl_journal_sync_due(r->journal);
}

sl_ms sl_recorder_slow_ms(const struct server *s)
{
    const struct sl_recorder *r = s->recorder;
    if (r == NULL || r->job == IDLE || r->error != 0) return 0;
    sl_ms ms = s->now.ms - r->job_begin_ms;
    return ms > SYNC_MS_MAX ? ms : 0;
}

/* --- Every second -------------------------------------------------------------------------- */

/* Whether the path of the data directory still leads to the directory, and the name of the journal
 * to our file or to none. */
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
        if (r->error == 0 && r->job != COMMITTING && !sl_journal_file_in_place(r->file))
            fail(s, ENOENT); /* The file was removed; write a new one. */
    }
    if (r->error != 0 && r->job == IDLE && !r->copying && s->now.ms >= r->retry_ms &&
        !s->stopping)
        start_job(s, OPENING);
}

/* --- Start --------------------------------------------------------------------------------- */

static int fail_start(const struct server *s, const char *what, const char *why)
{
    return sl_directory_fail(&s->directory, what, why);
}

#define DAMAGED "data: the file \"journal\" is damaged; "
#define NOT_A_JOURNAL                                                                  \
    "data: the file \"journal\" in this directory is not a journal of Sluice, or its " \
    "header is damaged; if another program uses this directory, choose another "       \
    "--data; otherwise "
#define FORGET                                                                     \
    "when the longest lease that you use has expired, or its holder has stopped, " \
    "run `sluice journal forget DIRECTORY`, and start the server again "           \
    "(docs/restart.md)"
#define ADD_AGAIN                                                               \
    "send NODES REMOVE to another node, empty the directory, start this node, " \
    "and send NODES ADD (docs/commands/nodes.md)"

/* Explain why the journal cannot be used. */
static int refuse(const struct server *s, const struct sl_recorder *r)
{
    char at[64];
    switch (r->recovery.result) {
        case SL_RECOVERY_OK: break;
        case SL_RECOVERY_NOT_A_JOURNAL:
            return fail_start(s,
                              r->use == SL_JOURNAL_OF_NODE ? NOT_A_JOURNAL ADD_AGAIN
                                                           : NOT_A_JOURNAL FORGET,
                              "invalid header");
        case SL_RECOVERY_FORMAT:
            return fail_start(s,
                              "data: the file \"journal\" was written by a newer "
                              "version of Sluice; start that version",
                              "unknown format");
        case SL_RECOVERY_DAMAGED:
            snprintf(at, sizeof at, "damaged at offset %zu", r->recovery.damaged_at);
            return fail_start(
                s, r->use == SL_JOURNAL_OF_NODE ? DAMAGED ADD_AGAIN : DAMAGED FORGET,
                at);
        case SL_RECOVERY_NO_MEMORY:
            return fail_start(s, "data: cannot read the journal", "out of memory");
    }
    return 0;
}

/* Decide what the file system can be used for. Returns -1 after logging why it cannot. */
static int check_place(const struct server *s, sl_ms *volatile_ms)
{
    const struct sl_settings *set = s->settings;
    /* Clocks are rounded down, so a lease expires up to 1 ms later than its length says. */
    *volatile_ms = set->lease_volatile_ms > 0 ? set->lease_volatile_ms + 1 : 0;
    switch (sl_journal_place(s->directory.fd)) {
        case SL_PLACE_LOCAL: return 0;
        case SL_PLACE_MEMORY:
            if (set->data_volatile) return 0;
            if (strcmp(set->data, "auto") != 0)
                return fail_start(
                    s,
                    "data: this directory is on tmpfs or overlay, so its files may be "
                    "lost with the machine or the container; choose another --data, or "
                    "accept this with --data-volatile",
                    "volatile file system");
            sl_log(
                SL_LOG_WARN,
                "data: the default directory is on tmpfs or overlay: leases are lost "
                "with the machine or the container; set --data to a directory on a "
                "disk",
                "directory", s->directory.path, NULL);
            return 0;
        case SL_PLACE_NETWORK:
        case SL_PLACE_UNKNOWN: break;
    }
    *volatile_ms = 0;
    sl_log(SL_LOG_INFO,
           "data: not a local file system: the server syncs every lease before it "
           "replies",
           "directory", s->directory.path, NULL);
    return 0;
}

int sl_recorder_open(struct server *s, enum sl_journal_use use,
                     const struct sl_recorder_owner *owner)
{
    struct sl_life life;
    sl_ms volatile_ms;
    struct sl_recorder *r = calloc(1, sizeof *r);
    s->recorder = r;
    if (r == NULL) return fail_start(s, "cannot start", "out of memory");
    r->owner = owner;
    r->use = use;
    r->bytes_max = (uint64_t)s->settings->journal_bytes_max;
    if (check_place(s, &volatile_ms) != 0) return -1;
    sl_journal_probe(s->directory.fd);
    sl_journal_life(s->directory.fd, &life);
    int error = sl_journal_map(s->directory.fd, &r->map);
    if (error != 0 && error != ENOENT)
        return fail_start(s, "data: cannot read the journal", strerror(error));
    r->found = error == 0;
    if (r->found) {
        sl_server_read_clock(s);
        sl_recovery_begin(&r->recovery, r->map, &life, s->now.ms, s->hash_key);
        if (refuse(s, r) != 0) return -1;
        if (r->recovery.use != use && use == SL_JOURNAL_OF_SERVER)
            return fail_start(s,
                              "data: this directory belongs to a node of a cluster; "
                              "start the server with --node, or choose another --data",
                              "other kind of server");
        r->converts = r->recovery.use != use;
        r->found = !r->converts;
    }
    r->journal = sl_journal_new(s->hash_key, r->recovery.chain.position, volatile_ms);
    if (r->journal == NULL) return fail_start(s, "cannot start", "out of memory");
    if (r->found) sl_journal_inherit(r->journal, r->recovery.volatile_ms, s->now.ms);
    return 0;
}

const struct sl_recovery *sl_recorder_recovery(const struct sl_recorder *r)
{
    return &r->recovery;
}

bool sl_recorder_found(const struct sl_recorder *r)
{
    return r->found;
}

bool sl_recorder_converts(const struct sl_recorder *r)
{
    return r->converts;
}

bool sl_recorder_next(struct server *s, uint64_t *cursor, struct sl_item *out)
{
    struct sl_recorder *r = s->recorder;
    while (r->found && sl_recovery_next(&r->recovery, cursor, out)) {
        if (out->expiry_ms > s->now.ms) {
            if (r->recovery.same_life) sl_journal_restore(r->journal, out);
            count_item(r, out);
            return true;
        }
        if (r->recovery.same_life)
            sl_journal_end(r->journal, s->now, out->kind, out->key, out->fence,
                           out->is_long);
    }
    return false;
}

/* Write a new file with all items, and make it the journal. Returns 0 or an errno. */
static int begin_new(struct server *s)
{
    struct sl_recorder *r = s->recorder;
    int error = sl_journal_file_new(s->directory.fd, r->use,
                                    sl_journal_position(r->journal), &r->file);
    if (error != 0) return error;
    sl_journal_file_limit(r->file, r->bytes_max);
    begin_copy(s);
    while (!r->copied && error == 0) error = copy_some(s);
    if (error == 0) error = sl_journal_file_commit(r->file);
    if (error != 0) return error;
    stop_copying(r);
    sl_journal_file_switch(r->file);
    return 0;
}

/* Continue the file of the last server, in the same life. Returns 0 or an errno. */
static int continue_file(struct server *s)
{
    struct sl_recorder *r = s->recorder;
    char life[SL_LIFE_BYTES], number[2][SL_VALUE_BYTES];
    int error = sl_journal_file_continue(s->directory.fd, &r->recovery, &r->file);
    if (error != 0) return error;
    struct sl_item items[] = {life_item(r, life),
                              number_item(SL_ITEM_VOLATILE, number[0],
                                          (uint64_t)sl_journal_volatile_ms(r->journal)),
                              number_item(SL_ITEM_FENCES, number[1], r->fence_limit)};
    for (size_t i = 0; i < sizeof items / sizeof *items; i++)
        if (sl_journal_put(r->journal, s->now, &items[i], (struct sl_item_before){0}) ==
            SL_JOURNAL_FAILED)
            return ENOMEM;
    error = write_records(s);
    if (error != 0) return error;
    sl_journal_sync_begin(r->journal);
    error = sl_journal_file_sync(r->file);
    sl_journal_sync_end(r->journal, error == 0);
    sl_journal_file_limit(r->file, r->bytes_max);
    return error;
}

int sl_recorder_begin(struct server *s, sl_fence fence_limit, sl_ms wait_until_ms)
{
    struct sl_recorder *r = s->recorder;
    r->fence_limit = fence_limit;
    r->wait_until_ms = wait_until_ms;
    /* If journal-bytes-max has been lowered, a shorter file may be within it. */
    bool continues = r->found && r->recovery.same_life &&
                     r->recovery.bytes + ROOM_BYTES <= r->bytes_max;
    int error = continues ? continue_file(s) : begin_new(s);
    if (r->found || r->converts) {
        sl_recovery_end(&r->recovery);
        sl_journal_unmap(r->map);
        r->map = (struct sl_bytes){0};
    }
    if (error == EFBIG && !is_limit_of_process(r))
        return fail_start(
            s, "data: the leases in the journal exceed journal-bytes-max; raise it",
            strerror(error));
    return error == 0 ? 0 : sl_directory_fail_disk(&s->directory, error);
}

/* --- Stop and inspection ------------------------------------------------------------------- */

int sl_recorder_stop(struct server *s, bool clean)
{
    struct sl_recorder *r = s->recorder;
    struct sl_item item = {.kind = SL_ITEM_CLEAN, .expiry_ms = SL_NEVER};
    if (r == NULL) return 0;
    while (r->job != IDLE) uv_run(s->loop, UV_RUN_ONCE);
    int error = r->error;
    if (error == 0 && r->file != NULL) {
        if (r->copying) sl_journal_file_drop(r->file);
        if (clean)
            sl_journal_put(r->journal, s->now, &item, (struct sl_item_before){0});
        error = write_records(s);
        if (error == 0) error = sl_journal_file_sync(r->file);
    }
    sl_journal_file_close(r->file);
    sl_journal_free(r->journal);
    sl_buffer_free(&r->copy);
    free(r);
    s->recorder = NULL;
    if (error == 0) return 0;
    return fail_start(s,
                      "data: cannot write the mark of a clean stop; the next start "
                      "proceeds as after a crash",
                      strerror(error));
}

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
