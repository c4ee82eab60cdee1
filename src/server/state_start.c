/* state_start.c - the folder; where a server begins, and what it leaves behind. */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "server/log.h"
#include "server/state_inside.h"

/* A stop that takes its time says so, every so many grants. */
#define GRANTS_A_LINE 250000u
#define KEYS_A_STEP 64

static int fail(const char *what, const char *folder, const char *why)
{
    sl_log(SL_LOG_ERROR, what, "folder", folder, "error", why, NULL);
    return -1;
}

/* --- The folder ------------------------------------------------------------- */

/* The folder and those above it. False: errno says why. */
static bool make_folders(char *path)
{
    for (char *slash = path + 1; (slash = strchr(slash, '/')) != NULL; slash++) {
        *slash = '\0';
        int status = mkdir(path, 0700);
        *slash = '/';
        if (status != 0 && errno != EEXIST && errno != EROFS) return false;
    }
    return mkdir(path, 0700) == 0 || errno == EEXIST;
}

/* Where to keep things if nobody has said it. False: there is no name for it. */
static bool name_folder(const struct server *s, char path[PATH_MAX])
{
    const char *of_service = getenv("STATE_DIRECTORY");
    const char *of_user = getenv("XDG_STATE_HOME"), *home = getenv("HOME");
    int n = -1;
    if (of_service != NULL && *of_service == '/') {
        n = (int)strcspn(of_service, ":"); /* There may be several. */
        if (n < PATH_MAX) snprintf(path, PATH_MAX, "%.*s", n, of_service);
    } else if (s->settings->port <= 0) return false;
    else if (of_user != NULL && *of_user == '/')
        n = snprintf(path, PATH_MAX, "%s/sluice/%" PRId64, of_user, s->settings->port);
    else if (home != NULL && *home == '/')
        n = snprintf(path, PATH_MAX, "%s/.local/state/sluice/%" PRId64, home,
                     s->settings->port);
    return n > 0 && n < PATH_MAX;
}

static int no_folder(const char *path)
{
    return fail(
        "data: cannot make the folder; choose another with --data FOLDER, or say "
        "--data none and restarts are not safe",
        path, strerror(errno));
}

/* The folder's path; "": there is none. 0, or -1. */
static int choose_folder(const struct server *s, char path[PATH_MAX])
{
    const char *data = s->settings->data;
    *path = '\0';
    if (strcmp(data, "auto") == 0) {
        /* One that has a name and cannot be used may have been in use a moment ago: to go
         * on without it would be to forget its leases. */
        if (name_folder(s, path)) return make_folders(path) ? 0 : no_folder(path);
        *path = '\0';
        sl_log(SL_LOG_WARN,
               "restarts are not safe: nothing is kept of leases and fences; name a "
               "folder with --data",
               NULL);
        return 0;
    }
    if (*data == '\0' || strcmp(data, "none") == 0) {
        sl_log(SL_LOG_INFO, "restarts are not safe: nothing is kept (data: none)",
               NULL);
        return 0;
    }
    if (strlen(data) >= PATH_MAX) return fail("data: no such path", data, "too long");
    strcpy(path, data);
    if (mkdir(path, 0700) != 0 && errno != EEXIST)
        return fail("data: cannot make the folder", path, strerror(errno));
    return 0;
}

/* What to do about an error of the disk, in words. */
static const char *advice(int error)
{
    switch (error) {
        case EROFS:
            return "data: the disk is read-only; mount it for writing, or choose "
                   "another "
                   "--data";
        case ENOSPC:
        case EDQUOT:
        case EFBIG:
            return "data: the disk is full; make room, or choose another --data";
        case EACCES:
        case EPERM:
            return "data: this user may not write there; give it the folder, or choose "
                   "another --data";
        default: return "data: cannot write there";
    }
}

/* One server to a folder: two would both believe what is in it. */
static int lock_folder(struct sl_state *st)
{
    st->folder = open(st->path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (st->folder < 0)
        return fail("data: cannot open the folder", st->path, strerror(errno));
    st->lock = openat(st->folder, "lock", O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (st->lock < 0) return fail(advice(errno), st->path, strerror(errno));
    if (flock(st->lock, LOCK_EX | LOCK_NB) != 0)
        return fail("data: another server uses this folder; stop it, or choose another "
                    "--data",
                    st->path, strerror(errno));
    return 0;
}

/* The lock's file is empty until the state has been written once: so that it can be told
 * from a folder that lost its state. */
static bool was_in_use(const struct sl_state *st)
{
    struct stat lock;
    return fstat(st->lock, &lock) == 0 && lock.st_size > 0;
}

static int mark_in_use(const struct sl_state *st)
{
    static const char text[] =
        "This folder is a server's of Sluice. What it has to know "
        "after a restart is in the file state.\n";
    if (was_in_use(st)) return 0;
    ssize_t n = pwrite(st->lock, text, sizeof text - 1, 0);
    if (n == (ssize_t)(sizeof text - 1) && fsync(st->lock) == 0) return 0;
    return fail(advice(errno), st->path, strerror(errno));
}

/* --- Start ------------------------------------------------------------------ */

#define AS_IF_LOST                                                                  \
    "When the longest lease that you use has ended, remove \"state\" and \"lock\" " \
    "there "                                                                        \
    "and start again (docs/restart.md)"

static int refuse_state(const struct sl_state *st, enum sl_found found)
{
    static const char *const words[] = {
        [SL_FOUND_NOTHING] =
            "data: this folder was in use, and its file \"state\" is gone: which "
            "leases "
            "run, and which fences were given, is not known. Put it back, if it was "
            "moved. " AS_IF_LOST,
        [SL_FOUND_UNREADABLE] = "data: the file \"state\" cannot be read",
        [SL_FOUND_FOREIGN] =
            "data: the file \"state\" there is none of Sluice's; choose another --data",
        [SL_FOUND_VERSION] =
            "data: the file \"state\" is of another version of Sluice; start that one. "
            "Or: " AS_IF_LOST,
        [SL_FOUND_CUT] = "data: the end of the file \"state\" is missing. " AS_IF_LOST,
        [SL_FOUND_DAMAGED] =
            "data: the file \"state\" is damaged: its checksum is wrong. " AS_IF_LOST,
        [SL_FOUND_NONSENSE] =
            "data: the file \"state\" says what cannot be. " AS_IF_LOST,
    };
    if (found == SL_FOUND_UNREADABLE)
        return fail(words[found], st->path, strerror(errno));
    sl_log(SL_LOG_ERROR, words[found], "folder", st->path, NULL);
    return -1;
}

/* How long ago that was, if it can be told; else no time has passed. */
static sl_ms since(const struct sl_kept *k, struct sl_now now)
{
    char boot[SL_BOOT_BYTES];
    sl_boot_id(boot);
    if (strncmp(boot, "unknown", 7) == 0 || strcmp(boot, k->boot) != 0) return 0;
    return now.ms > k->at_ms ? now.ms - k->at_ms : 0;
}

static void be_quiet(struct server *s, sl_ms ms)
{
    sl_ms until = sl_ms_after(s->now.ms, ms) + 2; /* Clocks are rounded down. */
#ifdef MUT_NOQUIET
    return;
#endif
    if (ms <= 0) return;
    sl_table_be_quiet(s->table, until);
    sl_state_leased(s, ms, until);
}

/* The grants of a clean stop. SLUICE_OK, or what is wrong. */
static int restore_all(struct server *s, struct sl_state_reading *r)
{
    struct sl_state *st = s->state;
    struct sl_bytes key;
    struct sl_view v;
    sl_ms ago = since(&r->kept, s->now);
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

static int go_on_after_stop(struct server *s, struct sl_state_reading *r)
{
    struct sl_state *st = s->state;
    char count[24];
    sl_table_set_fences(s->table, r->kept.fence_last, SL_FENCE_MAX);
    if (r->kept.lease_longest_ms > 0)
        sl_state_leased(s, r->kept.lease_longest_ms, s->now.ms);
    int status = restore_all(s, r);
    if (status == SLUICE_ENOMEM)
        return fail("data: cannot put the grants back", st->path, "out of memory");
    if (status != SLUICE_OK) return refuse_state(st, SL_FOUND_NONSENSE);
    be_quiet(s, r->kept.quiet_ms - since(&r->kept, s->now));
    snprintf(count, sizeof count, "%" PRIu64, st->restored);
    sl_log(SL_LOG_INFO, "data: after a clean stop, grants with leases are held again",
           "folder", st->path, "grants", count, NULL);
    return 0;
}

/* How long old leases may run. If the last server has died in its own silence, it has
 * given none, and the rest of that is enough. */
static sl_ms silence_after_crash(const struct sl_kept *k, struct sl_now now)
{
    sl_ms ago = since(k, now);
    bool silent = ago > 0 && ago < k->quiet_ms;
    return silent ? k->quiet_ms - ago : k->lease_longest_ms;
}

static void go_on_after_crash(struct server *s, const struct sl_kept *k)
{
    char ms[24];
    sl_ms quiet_ms = silence_after_crash(k, s->now);
    snprintf(ms, sizeof ms, "%" PRId64, quiet_ms);
#ifndef MUT_FLOOR
    sl_table_set_fences(s->table, k->fence_limit, SL_FENCE_MAX);
#endif
    be_quiet(s, quiet_ms);
    sl_log(
        SL_LOG_WARN,
        "data: the last server here did not stop by itself; nothing is granted until "
        "the longest lease it gave has ended",
        "folder", s->state->path, "ms", ms, NULL);
}

/* Begin where the last server ended. */
static int take_over(struct server *s)
{
    struct sl_state *st = s->state;
    struct sl_state_reading r;
    int status = 0;
    enum sl_found found = sl_state_read(&r, st->folder);
    if (found == SL_FOUND_NOTHING && !was_in_use(st)) {
        sl_log(SL_LOG_INFO, "data: a first start", "folder", st->path, NULL);
        return 0;
    }
    if (found != SL_FOUND) return refuse_state(st, found);
    st->kept = r.kept;
    if (r.kept.lease_longest_ms > st->lease_cap_ms)
        st->lease_cap_ms = r.kept.lease_longest_ms;
    if (r.kept.clean) status = go_on_after_stop(s, &r);
    else go_on_after_crash(s, &r.kept);
    sl_state_read_end(&r);
    return status;
}

/* From here on a crash is a crash. */
static int write_first(struct server *s)
{
    struct sl_state *st = s->state;
    struct sl_table_stats stats;
    struct sl_kept *k = &st->kept;
    sl_ms needed = sl_state_longest(st, s->now);
    sl_table_stats(s->table, &stats);
    k->fence_limit = k->fence_last = sl_state_limit_above(stats.fence_last,
                                                          s->now.wall_us);
    if (needed > k->lease_longest_ms) k->lease_longest_ms = needed;
    k->clean = false;
    k->quiet_ms = sl_state_quiet_ms(s);
    k->at_ms = s->now.ms;
    sl_boot_id(k->boot);
#ifndef MUT_STILLCLEAN
    sl_state_begin(st->writer, st->folder, k);
    int error = sl_state_commit(st->writer);
    if (error != 0) return fail(advice(error), st->path, strerror(error));
#endif
    st->writes++;
    sl_table_set_fences(s->table, 0, k->fence_limit);
    st->fence_seen = stats.fence_last;
    return mark_in_use(st);
}

int sl_state_start(struct server *s)
{
    struct sl_state *st = calloc(1, sizeof *st);
    if (st == NULL) return fail("cannot start", "", "out of memory");
    s->state = st;
    st->folder = st->lock = -1;
    st->lease_cap_ms = s->settings->lease_ms_max;
    sl_list_init(&st->deferred);
    sl_list_init(&st->resuming);
    if (choose_folder(s, st->path) != 0) return -1;
    if (*st->path == '\0') return 0;
    st->writer = sl_state_writer_new();
    if (st->writer == NULL) return fail("cannot start", st->path, "out of memory");
    signal(SIGXFSZ, SIG_IGN);             /* A limit is an error as others are. */
    setenv("UV_THREADPOOL_SIZE", "1", 0); /* There is one write at a time. */
    if (lock_folder(st) != 0) return -1;
    sl_server_look_at_clock(s);
    return take_over(s) == 0 && write_first(s) == 0 ? 0 : -1;
}

/* --- Stop ------------------------------------------------------------------- */

bool sl_state_keeps(const struct server *s)
{
    return s->state->folder >= 0 && s->state->failed == 0;
}

/* Returns how many there are by now. */
static uint64_t put_leased(struct server *s, struct sl_bytes key, uint64_t count)
{
    struct sl_view v;
    uint64_t cursor = 0;
    char text[24];
    while (sl_table_each(s->table, s->now, key, &cursor, &v) && !v.waits) {
        if (!v.leased) continue;
        sl_state_put(s->state->writer, key, &v);
        if (++count % GRANTS_A_LINE != 0) continue;
        snprintf(text, sizeof text, "%" PRIu64, count);
        sl_log(SL_LOG_INFO, "writing down what is held", "grants", text, NULL);
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
    if (st->folder < 0) return 0;
    while (st->writing) uv_run(s->loop, UV_RUN_ONCE);
    uv_signal_stop(&s->sigterm); /* From here on one more of them is the end. */
    uv_signal_stop(&s->sigint);
    sl_server_look_at_clock(s);
    do { /* Nobody waits any more: so nobody is asked to go. */
        s->effects_left = UINT32_MAX;
    } while (!sl_effects_tell(s));
    sl_table_stats(s->table, &stats);
    st->kept.fence_last = stats.fence_last;
    st->kept.quiet_ms = stats.quiet_until_ms > s->now.ms
                            ? stats.quiet_until_ms - s->now.ms
                            : 0;
    st->kept.clean = true;
    st->kept.at_ms = s->now.ms;
    sl_state_begin(st->writer, st->folder, &st->kept);
    snprintf(count, sizeof count, "%" PRIu64, put_all(s));
    int error = sl_state_commit(st->writer);
    if (error != 0)
        return fail("data: what is held could not be written down; the next start will "
                    "wait as after a crash",
                    st->path, strerror(error));
    sl_log(SL_LOG_INFO, "data: written down", "folder", st->path, "grants", count,
           NULL);
    return 0;
}
