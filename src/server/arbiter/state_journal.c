/* state_journal.c - the journal of a single server: records the changes of the lock table, and
 * restores the table at a start. */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "locks/grant_record.h"
#include "server/arbiter/local.h"
#include "server/arbiter/state_internal.h"
#include "server/observe/log.h"
#include "server/recorder.h"

/* How many items a loop iteration copies. */
#define ITEMS_A_TURN 256u

struct sl_state_journal {
    struct sl_table_recorder table; /* Records changes of the table. */
    struct sl_table_recorder copy;  /* Copies the table to a new file. */
    uint64_t fences_position;       /* Where the next limit of fences is. */
    /* Changes that were answered since the last write. While a change waits for its position, later
     * changes of the same key wait, too. So no change in here follows one that waits. */
    struct sl_undo unwritten;
    struct sl_table_walk walk;
    char *text; /* A buffer for the value of an item. */
    size_t text_bytes;
};

/* --- Items ---------------------------------------------------------------------- */

/* Build the item of a grant; its value is valid until the next call. Returns false if out of
 * memory. */
static bool grant_item(struct server *s, const struct sl_grant_change *c,
                       struct sl_item *out)
{
    struct sl_state_journal *j = s->state->journal;
    size_t n = sl_grant_bytes_max(&c->grant);
    if (n > j->text_bytes) {
        char *text = realloc(j->text, n);
        if (text == NULL) return false;
        j->text = text;
        j->text_bytes = n;
    }
    n = (size_t)(sl_grant_write(j->text, &c->grant) - j->text);
    *out = (struct sl_item){.kind = SL_ITEM_GRANT,
                            .key = c->key,
                            .fence = c->grant.fence,
                            .expiry_ms = c->grant.end_ms,
                            .is_long = c->grant.is_long,
                            .value = {j->text, n}};
    return true;
}

static struct sl_item mark_item(struct sl_bytes key, sl_ms end_ms, bool is_long)
{
    return (struct sl_item){
        .kind = SL_ITEM_OVERLAP, .key = key, .expiry_ms = end_ms, .is_long = is_long};
}

static struct sl_item drain_item(struct sl_bytes glob)
{
    return (struct sl_item){
        .kind = SL_ITEM_DRAIN, .key = glob, .expiry_ms = SL_NEVER, .is_long = true};
}

/* --- Recording -------------------------------------------------------------------- */

static void need(struct server *s, uint64_t position)
{
    if (position > s->state->need) s->state->need = position;
}

static bool put_item(struct server *s, struct sl_item *item, sl_ms before_ms)
{
    need(s,
         sl_recorder_put(s, item, (struct sl_item_before){before_ms, item->is_long}));
    return item->is_long;
}

static bool put_grant(void *arg, const struct sl_grant_change *c)
{
    struct server *s = arg;
    struct sl_item item;
    if (grant_item(s, c, &item)) return put_item(s, &item, c->before_ms);
    need(s, SL_STATE_FAILED);
    return c->grant.is_long;
}

static void end_grant(void *arg, struct sl_bytes key, sl_fence fence, sl_ms end_ms,
                      bool is_long)
{
    (void)end_ms;
    sl_recorder_end(arg, SL_ITEM_GRANT, key, fence, is_long);
}

static void unleased_grant(void *arg, struct sl_bytes key, sl_fence fence)
{
    struct server *s = arg;
    (void)fence;
    need(s, sl_journal_need(sl_recorder_journal(s->recorder), key));
}

static bool put_mark(void *arg, struct sl_bytes key, sl_ms end_ms, sl_ms before_ms,
                     bool is_long)
{
    struct sl_item item = mark_item(key, end_ms, is_long);
    return put_item(arg, &item, before_ms);
}

static void end_mark(void *arg, struct sl_bytes key, bool is_long)
{
    sl_recorder_end(arg, SL_ITEM_OVERLAP, key, 0, is_long);
}

static void put_drain(void *arg, struct sl_bytes glob, bool on)
{
    struct sl_item item = drain_item(glob);
    if (on) put_item(arg, &item, 0);
    else sl_recorder_end(arg, SL_ITEM_DRAIN, glob, 0, true);
}

/* --- Copying ------------------------------------------------------------------------ */

static bool copy_grant(void *arg, const struct sl_grant_change *c)
{
    struct sl_item item;
    if (grant_item(arg, c, &item)) sl_recorder_copy(arg, &item);
    else sl_recorder_copy(arg, NULL);
    return c->grant.is_long;
}

static bool copy_mark(void *arg, struct sl_bytes key, sl_ms end_ms, sl_ms before_ms,
                      bool is_long)
{
    struct sl_item item = mark_item(key, end_ms, is_long);
    (void)before_ms;
    sl_recorder_copy(arg, &item);
    return is_long;
}

static void copy_drain(void *arg, struct sl_bytes glob, bool on)
{
    struct sl_item item = drain_item(glob);
    (void)on;
    sl_recorder_copy(arg, &item);
}

static int copy_some(struct server *s, bool first)
{
    struct sl_state_journal *j = s->state->journal;
    if (first) {
        sl_table_walk_end(&j->walk);
        j->walk = (struct sl_table_walk){0};
    }
    return sl_table_walk(s->table, s->now, &j->walk, &j->copy, ITEMS_A_TURN);
}

/* --- What the journal reports ---------------------------------------------------------- */

static void has_become_durable(struct server *s)
{
    struct sl_state *st = s->state;
    uint64_t position = sl_journal_durable(sl_recorder_journal(s->recorder));
    bool was_lost = st->is_lost;
    st->is_lost = false;
    if (st->writing && st->journal->fences_position <= position)
        sl_state_end_writing(s, 0);
    sl_state_durable(s, position);
    if (was_lost) sl_state_write_again(s);
}

static void has_failed(struct server *s)
{
    s->state->is_lost = true;
    if (s->state->writing) sl_state_end_writing(s, EIO);
    /* The last change first: of the changes of one key, those that wait are the last. Then all that
     * were answered since the last write, also if their frame was written and only a later one was
     * not: no reply of the iteration leaves, so no client would know such a lease. */
    sl_state_lost(s);
    sl_undo_all(&s->state->journal->unwritten, s->table, s->now);
}

static void has_written(struct server *s)
{
    sl_undo_forget(&s->state->journal->unwritten);
}

static const struct sl_recorder_owner owner = {.durable = has_become_durable,
                                               .failed = has_failed,
                                               .written = has_written,
                                               .copy = copy_some};

static bool write_fences(struct server *s, sl_fence fence_limit, sl_ms longest_ms)
{
    (void)longest_ms;
    uint64_t position = sl_recorder_put_fences(s, fence_limit);
    s->state->journal->fences_position = position;
    return position != SL_JOURNAL_FAILED;
}

/* --- Changes that were answered ----------------------------------------------------------- */

uint64_t sl_state_answers(struct server *s, const struct sl_undo_change *c)
{
    struct sl_state_journal *j = s->state->journal;
    if (j == NULL || sl_undo_add(&j->unwritten, c) == SLUICE_OK) return 0;
    return SL_STATE_FAILED;
}

/* --- Start -------------------------------------------------------------------------------- */

static int fail(const struct server *s, const char *what, const char *why)
{
    return sl_directory_fail(&s->directory, what, why);
}

/* Restore an item of the journal. Returns SLUICE_OK, SLUICE_ENOMEM or SLUICE_EINVAL. */
static int restore(struct server *s, const struct sl_item *item)
{
    struct sl_grant_view v;
    switch (item->kind) {
        case SL_ITEM_GRANT:
            if (!sl_grant_read(item->value, &v)) return SLUICE_EINVAL;
            v.fence = item->fence;
            v.end_ms = item->expiry_ms;
            v.is_long = item->is_long;
            s->state->restored++;
            return sl_table_restore(s->table, s->now, &v, item->key);
        case SL_ITEM_OVERLAP:
            return sl_table_restore_mark(s->table, s->now, item->key, item->expiry_ms,
                                         item->is_long);
        case SL_ITEM_DRAIN:
            s->drain_words += sl_local_drain_words(item->key);
            return sl_table_restore_drain(s->table, item->key);
        default: return SLUICE_EINVAL;
    }
}

static void log_start(const struct server *s)
{
    const struct sl_recovery *r = sl_recorder_recovery(s->recorder);
    char grants[24], wait[24];
    sl_ms wait_ms = sl_state_quiet_ms(s);
    snprintf(grants, sizeof grants, "%" PRIu64, s->state->restored);
    snprintf(wait, sizeof wait, "%" PRId64, wait_ms);
    if (r->same_life || r->clean)
        sl_log(SL_LOG_INFO,
               r->clean ? "data: restored the leases after a clean stop"
                        : "data: restored the leases after a crash of the server",
               "directory", s->directory.path, "grants", grants, NULL);
    else
        sl_log(SL_LOG_WARN,
               wait_ms > 0
                   ? "data: restored the long leases; leases of at most lease-volatile "
                     "may be lost, so no lock is granted until they have expired"
                   : "data: restored the long leases; other leases have expired",
               "directory", s->directory.path, "reason", r->why_other, "grants", grants,
               "ms", wait, NULL);
}

/* Restore everything from the journal. */
static int restore_all(struct server *s)
{
    const struct sl_recovery *r = sl_recorder_recovery(s->recorder);
    struct sl_item item;
    uint64_t cursor = 0;
    sl_table_set_fences(s->table, r->fence_limit, SL_FENCE_MAX);
    while (sl_recorder_next(s, &cursor, &item)) {
        int status = restore(s, &item);
        if (status == SLUICE_ENOMEM)
            return fail(s, "data: cannot restore the leases", "out of memory");
        if (status != SLUICE_OK)
            return fail(s,
                        "data: the journal has an invalid record; start the version of "
                        "Sluice that wrote it",
                        sluice_status_word(status));
    }
    if (r->wait_until_ms > s->now.ms) sl_table_recover(s->table, r->wait_until_ms);
    log_start(s);
    return 0;
}

#define AS_IF_LOST                                                                    \
    "when the longest lease that you use has expired, and the clock in microseconds " \
    "is above the last fence that your resources remember, remove the file "          \
    "\"lock\", and start the server again (docs/restart.md)"

/* Continue from the state of the last server. Sets *wait_until_ms. */
static int take_over(struct server *s, sl_ms *wait_until_ms)
{
    enum sl_directory_use use = sl_directory_use(&s->directory);
    sl_fence floor = 0;
    *wait_until_ms = 0;
    if (sl_recorder_found(s->recorder)) {
        if (restore_all(s) != 0) return -1;
        *wait_until_ms = sl_recorder_recovery(s->recorder)->wait_until_ms;
        return 0;
    }
    if (use == SL_DIRECTORY_OF_NODE)
        return fail(s,
                    "data: this directory belongs to a node of a cluster; start the "
                    "server with --node, or choose another --data",
                    "other kind of server");
    int imported = sl_state_import(s, &floor, wait_until_ms);
    if (imported != 0) return imported < 0 ? -1 : 0;
    if (use == SL_DIRECTORY_IS_NEW) return 0;
    return sl_directory_refuse(&s->directory, "journal", SL_FOUND_NOTHING, AS_IF_LOST);
}

static int begin(struct server *s)
{
    struct sl_state *st = s->state;
    struct sl_table_stats stats;
    sl_ms wait_until_ms;
    sl_server_read_clock(s);
    if (take_over(s, &wait_until_ms) != 0) return -1;
    sl_table_stats(s->table, &stats);
    st->kept.fence_limit = sl_fence_limit_above(stats.fence_last, s->now.wall_us);
    if (sl_recorder_begin(s, st->kept.fence_limit, wait_until_ms) != 0) return -1;
    unlinkat(s->directory.fd, "state", 0); /* The journal has its content now. */
    sl_table_set_fences(s->table, 0, st->kept.fence_limit);
    sl_table_set_recorder(s->table, &st->journal->table);
    st->fence_seen = stats.fence_last;
    st->write = write_fences;
    st->explain = sl_recorder_explain;
    st->current = true;
    return sl_directory_mark(&s->directory, SL_DIRECTORY_OF_SERVER);
}

int sl_state_start(struct server *s)
{
    struct sl_state *st = sl_state_new(s);
    if (st == NULL) return -1;
    if (!s->has_directory) {
        sl_log(
            SL_LOG_WARN,
            strcmp(s->settings->data, "auto") == 0
                ? "data: no data directory, so leases and fences are lost at a "
                  "restart; set --data DIRECTORY"
                : "data: no data directory, because it is turned off (--data none), so "
                  "leases and fences are lost at a restart",
            NULL);
        return 0;
    }
    struct sl_state_journal *j = calloc(1, sizeof *j);
    if (j == NULL) return fail(s, "cannot start", "out of memory");
    j->table = (struct sl_table_recorder){.arg = s,
                                          .put = put_grant,
                                          .end = end_grant,
                                          .unleased = unleased_grant,
                                          .mark = put_mark,
                                          .unmark = end_mark,
                                          .drain = put_drain};
    j->copy = (struct sl_table_recorder){
        .arg = s, .put = copy_grant, .mark = copy_mark, .drain = copy_drain};
    if (sl_recorder_open(s, SL_JOURNAL_OF_SERVER, &owner) != 0) return -1;
    st->journal = j;
    return begin(s);
}

/* --- Stop --------------------------------------------------------------------------------- */

int sl_state_stop(struct server *s)
{
    struct sl_state *st = s->state;
    struct sl_state_journal *j = st->journal;
    if (j == NULL) return 0;
    uv_signal_stop(&s->sigterm); /* From here on, another signal kills the process. */
    uv_signal_stop(&s->sigint);
    sl_server_read_clock(s);
    int status = sl_recorder_stop(s, true);
    sl_table_set_recorder(s->table, NULL);
    sl_state_free_events(s);
    st->journal = NULL;
    st->write = NULL;
    sl_table_walk_end(&j->walk);
    sl_undo_free(&j->unwritten);
    free(j->text);
    free(j);
    if (status == 0)
        sl_log(SL_LOG_INFO, "data: the journal has all leases", "directory",
               s->directory.path, NULL);
    return status;
}
