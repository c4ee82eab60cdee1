/* state_import.c - reads the file "state" of an earlier version, once. The journal replaces it. */
#include <inttypes.h>
#include <string.h>

#include "server/arbiter/state_internal.h"
#include "server/observe/log.h"

/* Return how long ago the file was written, or 0 if the machine has rebooted since, because then
 * its clock has restarted. */
static sl_ms age_ms(const struct sl_kept *k, struct sl_now now)
{
    char boot[SL_BOOT_BYTES];
    sl_boot_id(boot);
    if (strncmp(boot, "unknown", 7) == 0 || strcmp(boot, k->boot) != 0) return 0;
    return now.ms > k->at_ms ? now.ms - k->at_ms : 0;
}

/* Restore the grants of a clean stop. Returns SLUICE_OK, SLUICE_ENOMEM, or SLUICE_EINVAL if the
 * file is invalid. */
static int restore_all(struct server *s, struct sl_state_reading *r)
{
    struct sl_bytes key;
    struct sl_grant_view v;
    sl_ms ago = age_ms(&r->kept, s->now);
    int more;
    while ((more = sl_state_next(r, &key, &v)) == 1) {
        v.left_ms -= ago;
        if (v.left_ms < 0 || sl_table_holds(s->table, s->now, key, v.fence)) continue;
        v.is_long = true; /* The journal does not know how it was written. */
        int status = sl_table_restore(s->table, s->now, &v, key);
        if (status != SLUICE_OK) return status;
        s->state->restored++;
    }
    return more == 0 ? SLUICE_OK : SLUICE_EINVAL;
}

/* Return for how long leases of the last server may still be valid. If that server crashed while it
 * was still waiting for older leases to expire, it has granted none itself, so the rest of that
 * wait is enough. */
static sl_ms silence_ms(const struct sl_kept *k, struct sl_now now)
{
    sl_ms ago = age_ms(k, now);
    if (k->clean) return k->quiet_ms - ago;
    bool silent = ago > 0 && ago < k->quiet_ms;
    return silent ? k->quiet_ms - ago : k->lease_longest_ms;
}

#define AS_IF_LOST                                                                     \
    "when the longest lease that you use has expired, remove the files \"state\" and " \
    "\"lock\", and start the server again (docs/restart.md)"

static int refuse(const struct server *s, enum sl_found found)
{
    return sl_directory_refuse(&s->directory, "state", found, AS_IF_LOST);
}

int sl_state_import(struct server *s, sl_fence *floor, sl_ms *wait_until_ms)
{
    struct sl_state_reading r;
    char count[24], ms[24];
    int status = SLUICE_OK;
    enum sl_found found = sl_state_read(&r, s->directory.fd);
    if (found == SL_FOUND_NOTHING) return 0;
    if (found != SL_FOUND) return refuse(s, found);
    *floor = r.kept.clean ? r.kept.fence_last : r.kept.fence_limit;
    sl_table_set_fences(s->table, *floor, SL_FENCE_MAX);
    if (r.kept.clean) status = restore_all(s, &r);
    sl_ms wait_ms = silence_ms(&r.kept, s->now);
    sl_state_read_end(&r);
    if (status == SLUICE_ENOMEM)
        return sl_directory_fail(&s->directory, "data: cannot restore the grants",
                                 "out of memory");
    if (status != SLUICE_OK) return refuse(s, SL_FOUND_NONSENSE);
    if (wait_ms > 0) { /* Allow for clocks that are rounded down. */
        *wait_until_ms = sl_ms_after(s->now.ms, wait_ms) + 2;
        sl_table_recover(s->table, *wait_until_ms);
    }
    snprintf(count, sizeof count, "%" PRIu64, s->state->restored);
    snprintf(ms, sizeof ms, "%" PRId64, wait_ms > 0 ? wait_ms : 0);
    sl_log(
        SL_LOG_INFO,
        "data: imported the file \"state\" of an earlier version; no lock is granted "
        "for the given time",
        "directory", s->directory.path, "grants", count, "ms", ms, NULL);
    return 1;
}
