/* state_start.c - reads the durable state when the server starts, and writes it at a clean stop. */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "server/arbiter/local.h"
#include "server/arbiter/state_internal.h"
#include "server/observe/log.h"

/* During a long stop, log the progress each time this many grants are written. */
#define GRANTS_A_LINE 250000u
#define KEYS_A_STEP 64

static int fail(const struct sl_state *st, const char *what, const char *why)
{
    return sl_directory_fail(&st->directory, what, why);
}

/* --- Start ------------------------------------------------------------------ */

#define AS_IF_LOST                                                                     \
    "when the longest lease that you use has expired, remove the files \"state\" and " \
    "\"lock\", and start the server again (docs/restart.md)"

static int refuse_state(const struct sl_state *st, enum sl_found found)
{
    return sl_directory_refuse(&st->directory, "state", found, AS_IF_LOST);
}

/* Refuse a directory that a node has used. A lease of the majority may still be valid, and the
 * directory does not contain its holder. */
static int refuse_node(const struct sl_state *st)
{
    sl_log(SL_LOG_ERROR,
           "data: this directory belongs to a node of a cluster; start the server with "
           "--node, or choose another --data",
           "directory", st->directory.path, NULL);
    return -1;
}

/* Return how long ago the file was written, or 0 if the machine has rebooted since, because then
 * its clock has restarted. */
static sl_ms age_ms(const struct sl_kept *k, struct sl_now now)
{
    char boot[SL_BOOT_BYTES];
    sl_boot_id(boot);
    if (strncmp(boot, "unknown", 7) == 0 || strcmp(boot, k->boot) != 0) return 0;
    return now.ms > k->at_ms ? now.ms - k->at_ms : 0;
}

static void be_quiet(struct server *s, sl_ms ms)
{
    /* Allow for clocks that are rounded down. */
    sl_ms until = sl_ms_after(s->now.ms, ms) + 2;
    if (ms <= 0) return;
    sl_table_recover(s->table, until);
    sl_state_leased(s, ms, until);
}

/* Restore the grants of a clean stop. Returns SLUICE_OK, SLUICE_ENOMEM, or SLUICE_EINVAL if the
 * file is invalid. */
static int restore_all(struct server *s, struct sl_state_reading *r)
{
    struct sl_state *st = s->state;
    struct sl_bytes key;
    struct sl_grant_view v;
    sl_ms ago = age_ms(&r->kept, s->now);
    int more;
    while ((more = sl_state_next(r, &key, &v)) == 1) {
        v.left_ms -= ago;
        if (v.left_ms < 0 || sl_table_holds(s->table, s->now, key, v.fence)) continue;
        int status = sl_table_restore(s->table, s->now, &v, key);
        if (status != SLUICE_OK) return status;
        if (v.left_ms > st->lease_cap_ms) st->lease_cap_ms = v.left_ms;
        sl_state_leased(s, v.left_ms, s->now.ms + v.left_ms + 2);
        st->restored++;
    }
    return more == 0 ? SLUICE_OK : SLUICE_EINVAL;
}

static int continue_after_stop(struct server *s, struct sl_state_reading *r)
{
    struct sl_state *st = s->state;
    char count[24];
    sl_table_set_fences(s->table, r->kept.fence_last, SL_FENCE_MAX);
    if (r->kept.lease_longest_ms > 0)
        sl_state_leased(s, r->kept.lease_longest_ms, s->now.ms);
    int status = restore_all(s, r);
    if (status == SLUICE_ENOMEM)
        return fail(st, "data: cannot restore the grants", "out of memory");
    if (status != SLUICE_OK) return refuse_state(st, SL_FOUND_NONSENSE);
    be_quiet(s, r->kept.quiet_ms - age_ms(&r->kept, s->now));
    snprintf(count, sizeof count, "%" PRIu64, st->restored);
    sl_log(SL_LOG_INFO, "data: restored the grants with leases after a clean stop",
           "directory", st->directory.path, "grants", count, NULL);
    return 0;
}

/* Return for how long leases of the last server may still be valid. If that server crashed while it
 * was still waiting for older leases to expire, it has granted none itself, so the rest of that
 * wait is enough. */
static sl_ms silence_after_crash(const struct sl_kept *k, struct sl_now now)
{
    sl_ms ago = age_ms(k, now);
    bool silent = ago > 0 && ago < k->quiet_ms;
    return silent ? k->quiet_ms - ago : k->lease_longest_ms;
}

static void continue_after_crash(struct server *s, const struct sl_kept *k)
{
    char ms[24];
    sl_ms quiet_ms = silence_after_crash(k, s->now);
    snprintf(ms, sizeof ms, "%" PRId64, quiet_ms);
    sl_table_set_fences(s->table, k->fence_limit, SL_FENCE_MAX);
    be_quiet(s, quiet_ms);
    sl_log(SL_LOG_WARN,
           "data: the previous server did not stop cleanly; nothing is granted until "
           "the longest lease that it granted has expired",
           "directory", s->state->directory.path, "ms", ms, NULL);
}

/* Continue from the state of the last server. */
static int take_over(struct server *s)
{
    struct sl_state *st = s->state;
    struct sl_state_reading r;
    int status = 0;
    enum sl_directory_use use = sl_directory_use(&st->directory);
    if (use == SL_DIRECTORY_OF_NODE) return refuse_node(st);
    enum sl_found found = sl_state_read(&r, st->directory.fd);
    if (found == SL_FOUND_NOTHING && use == SL_DIRECTORY_IS_NEW) {
        sl_log(SL_LOG_INFO, "data: the directory contains no earlier state",
               "directory", st->directory.path, NULL);
        return 0;
    }
    if (found != SL_FOUND) return refuse_state(st, found);
    st->kept = r.kept;
    if (r.kept.lease_longest_ms > st->lease_cap_ms)
        st->lease_cap_ms = r.kept.lease_longest_ms;
    if (r.kept.clean) status = continue_after_stop(s, &r);
    else continue_after_crash(s, &r.kept);
    sl_state_read_end(&r);
    return status;
}

/* Write the file before the server accepts requests. The file does not say "clean", so the next
 * start assumes a crash unless this server stops cleanly. */
static int write_first(struct server *s)
{
    struct sl_state *st = s->state;
    struct sl_table_stats stats;
    struct sl_kept *k = &st->kept;
    sl_ms needed = sl_state_longest(st, s->now);
    sl_table_stats(s->table, &stats);
    k->fence_limit = k->fence_last = sl_fence_limit_above(stats.fence_last,
                                                          s->now.wall_us);
    if (needed > k->lease_longest_ms) k->lease_longest_ms = needed;
    k->clean = false;
    k->quiet_ms = sl_state_quiet_ms(s);
    k->at_ms = s->now.ms;
    sl_boot_id(k->boot);
    sl_state_begin(st->writer, st->directory.fd, k);
    int error = sl_state_commit(st->writer);
    if (error != 0) return sl_directory_fail_disk(&st->directory, error);
    st->writes++;
    sl_table_set_fences(s->table, 0, k->fence_limit);
    st->fence_seen = stats.fence_last;
    return sl_directory_mark(&st->directory, SL_DIRECTORY_OF_SERVER);
}

static void log_no_data(const struct server *s)
{
    if (strcmp(s->settings->data, "auto") == 0)
        sl_log(SL_LOG_WARN,
               "data: no data directory, so leases and fences are lost at a restart; "
               "set --data DIRECTORY",
               NULL);
    else
        sl_log(SL_LOG_INFO,
               "data: no data directory (none), so leases and fences are lost at a "
               "restart",
               NULL);
}

struct sl_state *sl_state_new(struct server *s)
{
    struct sl_state *st = calloc(1, sizeof *st);
    s->state = st;
    if (st == NULL) {
        sl_log(SL_LOG_ERROR, "cannot start", "error", "out of memory", NULL);
        return NULL;
    }
    st->directory.fd = st->directory.lock = -1;
    st->lease_cap_ms = s->settings->lease_ms_max;
    sl_list_init(&st->deferred);
    sl_list_init(&st->next_turn);
    sl_list_init(&st->resuming);
    return st;
}

int sl_state_start_without(struct server *s)
{
    return sl_state_new(s) == NULL ? -1 : 0;
}

int sl_state_start(struct server *s)
{
    struct sl_state *st = sl_state_new(s);
    if (st == NULL) return -1;
    if (!s->has_directory) {
        log_no_data(s);
        return 0;
    }
    st->directory = s->directory;
    st->writer = sl_state_writer_new();
    if (st->writer == NULL) return fail(st, "cannot start", "out of memory");
    st->write = sl_state_write_file;
    st->current = true;
    sl_server_read_clock(s);
    return take_over(s) == 0 && write_first(s) == 0 ? 0 : -1;
}

/* --- Stop ------------------------------------------------------------------- */

bool sl_state_keeps(const struct server *s)
{
    const struct sl_state *st = s->state;
    if (st->directory.fd < 0) return st->write != NULL;
    return st->failed == 0;
}

/* Write the leased grants of a key. Returns `count` plus their number. */
static uint64_t put_leased(struct server *s, struct sl_bytes key, uint64_t count)
{
    struct sl_grant_view v;
    uint64_t cursor = 0;
    char text[24];
    while (sl_table_each(s->table, s->now, key, &cursor, &v) && !v.waits) {
        if (!v.leased) continue;
        sl_state_put(s->state->writer, key, &v);
        if (++count % GRANTS_A_LINE != 0) continue;
        snprintf(text, sizeof text, "%" PRIu64, count);
        sl_log(SL_LOG_INFO, "saving the grants with leases", "grants", text, NULL);
    }
    return count;
}

static uint64_t put_all(struct server *s)
{
    struct sl_lock_view locks[KEYS_A_STEP];
    uint64_t cursor = 0, count = 0;
    do {
        size_t n = sl_table_scan(s->table, s->now, &cursor, locks, KEYS_A_STEP);
        for (size_t i = 0; i < n; i++) count = put_leased(s, locks[i].key, count);
    } while (cursor != 0);
    return count;
}

int sl_state_stop(struct server *s)
{
    struct sl_state *st = s->state;
    struct sl_table_stats stats;
    char count[24];
    if (st->directory.fd < 0) return 0;
    while (st->writing) uv_run(s->loop, UV_RUN_ONCE);
    uv_signal_stop(&s->sigterm); /* From here on, another signal kills the process. */
    uv_signal_stop(&s->sigint);
    sl_server_read_clock(s);
    do { /* All waiters are gone, so no holder is asked to release. */
        s->effects_left = UINT32_MAX;
    } while (!sl_local_pump_table(s));
    sl_table_stats(s->table, &stats);
    st->kept.fence_last = stats.fence_last;
    st->kept.quiet_ms = stats.recovering_until_ms > s->now.ms
                            ? stats.recovering_until_ms - s->now.ms
                            : 0;
    st->kept.clean = true;
    st->kept.at_ms = s->now.ms;
    sl_state_begin(st->writer, st->directory.fd, &st->kept);
    snprintf(count, sizeof count, "%" PRIu64, put_all(s));
    int error = sl_state_commit(st->writer);
    if (error != 0)
        return fail(st,
                    "data: cannot save the grants with leases; the next start will "
                    "wait as after a crash",
                    strerror(error));
    sl_log(SL_LOG_INFO, "data: saved the grants with leases", "directory",
           st->directory.path, "grants", count, NULL);
    return 0;
}
