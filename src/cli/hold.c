#include "cli/hold.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/fnv.h"
#include "cli/clock.h"
#include "cli/exits.h"
#include "cli/message.h"
#include "cli/tether.h"
#include "cli/text.h"

/* How long to wait before printing a message, and how often to check that the
 * segment still exists. */
#define CHECK_MS 1000

/* The maximum number of holders that the message names. */
#define NAMED_MAX 3u

/* The number of the tether's file descriptor: higher than scripts use, but below the
 * limit of open files. */
#define TETHER_FD 1000u
#define TETHER_FD_BELOW_LIMIT 24u

/* A numbered slot is a locked byte of the segment's file, far above the bytes that the
 * library locks. The hash of a key determines its range of bytes. */
#define SLOT_BYTES ((off_t)1 << 61)
#define SLOT_KEY_BITS 40
#define SLOT_CAPACITY_BITS 20

/* --- The holders ---------------------------------------------------------- */

/* Return whether a process is an ancestor of this one. */
static bool is_ancestor(int32_t pid)
{
    char path[64], line[512];
    int32_t at = (int32_t)getpid();
    if (getenv("SLUICE_LOCK_SESSION") == NULL)
        return false; /* `sluice run` has not started us. */
    for (int depth = 0; depth < 64 && at > 1; depth++) {
        snprintf(path, sizeof path, "/proc/%d/stat", (int)at);
        FILE *f = fopen(path, "re");
        if (f == NULL) return false;
        char *got = fgets(line, sizeof line, f);
        fclose(f);
        /* The program's name can contain parentheses, so search for the last one. */
        char *after = got != NULL ? strrchr(line, ')') : NULL;
        if (after == NULL || sscanf(after + 1, " %*c %d", &at) != 1) return false;
        if (at == pid) return true;
    }
    return false;
}

static void describe(const struct sluice_holder *h, const char *path, char *out,
                     size_t size)
{
    char program[80], ago[32], clock[32], comm[80], holder[320];
    int32_t pids[1];
    cli_safe_text(h->program, program, sizeof program);
    cli_format_duration(cli_wall_ms() - h->since_ms, ago, sizeof ago);
    cli_format_time(h->since_ms, clock, sizeof clock);
    if (!h->inherited)
        snprintf(holder, sizeof holder, "pid %d (%s)", (int)h->pid, program);
    else if (cli_tether_pids(path, h->slot, pids, 1) > 0)
        snprintf(holder, sizeof holder, "pid %d (%s), started by pid %d (%s),",
                 (int)pids[0], cli_tether_program(pids[0], comm, sizeof comm),
                 (int)h->pid, program);
    else
        snprintf(holder, sizeof holder, "a process started by pid %d (%s)", (int)h->pid,
                 program);
    snprintf(out, size, "%s for %s, since %s%s", holder, ago, clock,
             is_ancestor(h->pid) ? "; it is waiting for this command: deadlock" : "");
}

/* Print a message that names the holders and counts the waiters, including us. */
static void report_holders(struct sluice_canal *c, const char *key)
{
    char who[NAMED_MAX * 512] = "", one[512], shown[CLI_SAFE_SIZE], more[64] = "";
    struct sluice_holder h;
    uint32_t holders = 0, waiters = 1;
    for (uint64_t cursor = 0; sluice_canal_next_holder(c, key, &cursor, &h) == 1;) {
        if (h.waits) waiters++;
        if (h.waits || h.dead || holders++ >= NAMED_MAX) continue;
        describe(&h, sluice_canal_path(c), one, sizeof one);
        size_t n = strlen(who);
        snprintf(who + n, sizeof who - n, "%s%s", n > 0 ? "; " : "", one);
    }
    if (holders == 0) snprintf(who, sizeof who, "a process that has just released it");
    if (holders > NAMED_MAX)
        snprintf(more, sizeof more, " and %u more", (unsigned)(holders - NAMED_MAX));
    cli_message("waiting for \"%s\": held by %s%s; %u %s",
                cli_safe_text(key, shown, sizeof shown), who, more, (unsigned)waiters,
                waiters == 1 ? "waiter" : "waiters");
}

/* --- Waiting -------------------------------------------------------------- */

/* Return the time left of a wait that ends at `until`. */
static int64_t left_ms(int64_t until)
{
    if (until == SLUICE_FOREVER) return SLUICE_FOREVER;
    int64_t left = until - cli_now_ms();
    return left > 0 ? left : 0;
}

/* Acquire the lock. After CHECK_MS, print the holders that we wait for. We set no
 * signal handler while we wait: a signal that kills this process also removes it from
 * the waiters. Returns SLUICE_EFULL early if the segment was removed. */
static int64_t acquire(struct sluice_canal *c, const struct cli_request *w,
                       int64_t until, bool *noted)
{
    struct sluice_want want = {.units = w->units};
    for (;;) {
        int64_t left = left_ms(until);
        /* Do not print a message shortly before the timeout. */
        bool last = left != SLUICE_FOREVER && left <= CHECK_MS + CHECK_MS / 10;
        want.wait_ms = last ? left : CHECK_MS;
        int64_t nth = sluice_canal_acquire(c, w->key, w->capacity, &want);
        if (nth != SLUICE_EFULL || last || sluice_canal_removed(c) == 1) return nth;
        if (!w->quiet && !*noted) report_holders(c, w->key);
        *noted = true;
        want.continues_wait = 1;
    }
}

/* --- The tether ----------------------------------------------------------- */

/* Hash a key. Keys with the same hash share their numbers. That wastes some numbers,
 * but assigns no number twice. */
static uint64_t hash_of(const char *key)
{
    uint64_t h = sl_fnv_add_bytes(SL_FNV_START, key, strlen(key));
    return h ^ h >> SLOT_KEY_BITS;
}

/* Take the lowest free number from 1 to the capacity. The number is a lock that belongs
 * to the tether's open file description. So the kernel frees the number together with
 * the tether, and never after the units are released. */
static uint32_t take_number(int fd, const char *key, uint64_t capacity)
{
    const uint64_t mask = ((uint64_t)1 << SLOT_KEY_BITS) - 1;
    off_t base = SLOT_BYTES + (off_t)((hash_of(key) & mask) << SLOT_CAPACITY_BITS);
    for (uint32_t i = 0; i < capacity && i < CLI_SLOTS_MAX; i++) {
        struct flock l = {.l_type = F_WRLCK,
                          .l_whence = SEEK_SET,
                          .l_start = base + (off_t)i,
                          .l_len = 1};
        if (fcntl(fd, F_OFD_SETLK, &l) == 0) return i + 1;
    }
    return 0;
}

static void move_up(int *fd)
{
    struct rlimit limit;
    rlim_t wish = TETHER_FD;
    if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
    if (limit.rlim_cur <= TETHER_FD_BELOW_LIMIT) return;
    if (wish > limit.rlim_cur - TETHER_FD_BELOW_LIMIT)
        wish = limit.rlim_cur - TETHER_FD_BELOW_LIMIT;
    int high = fcntl(*fd, F_DUPFD, (int)wish);
    if (high < 0) return;
    close(*fd);
    *fd = high;
}

static int tie(struct cli_hold *h, const struct cli_request *w)
{
    int status = sluice_canal_tether(h->canal, &h->tether);
    if (status != SLUICE_OK)
        return cli_status_error("cannot pass the lock on to the command", status);
    move_up(&h->tether);
    uint64_t capacity = (uint64_t)w->capacity.per * w->capacity.buckets;
    if (w->numbered) h->slot = take_number(h->tether, w->key, capacity);
    return 0;
}

/* --- Acquiring and ending ------------------------------------------------- */

static void show_as(const char *program)
{
    prctl(PR_SET_NAME, program, 0, 0, 0);
}

int cli_hold(const struct cli_request *w, struct cli_hold *h, bool *full)
{
    const struct sluice_canal_options options = {.mode = w->mode};
    const char *place = w->segment != NULL ? w->segment : "default segment";
    int64_t until = w->wait_ms;
    bool noted = false;
    char own[16] = "sluice", shown[CLI_SAFE_SIZE];
    if (until > 0)
        until += cli_now_ms() + 1; /* Part of the current millisecond has passed. */
    *h = (struct cli_hold){.tether = -1};
    *full = false;
    prctl(PR_GET_NAME, own, 0, 0, 0);
    for (;;) {
        int status = sluice_canal_open(w->segment, &options, &h->canal);
        if (status == SLUICE_ENOENT) { /* A missing segment would have been created. */
            cli_message("%s: the directory does not exist; create it first",
                        cli_safe_text(place, shown, sizeof shown));
            return CLI_EXIT_NO_INPUT;
        }
        if (status != SLUICE_OK) return cli_status_error(place, status);
        /* The library records the thread's name with its first request. Waiters see
         * that name. We restore the old name afterwards, for ps(1). */
        show_as(w->program);
        h->nth = sluice_canal_acquire(h->canal, w->key, w->capacity,
                                      &(struct sluice_want){.units = w->units});
        show_as(own);
        if (h->nth == SLUICE_EFULL && left_ms(until) != 0)
            h->nth = acquire(h->canal, w, until, &noted);
        bool lost = cli_hold_lost(h);
        if (h->nth > 0 && !lost) return tie(h, w);
        /* A grant in a removed segment protects nothing: start again in the new
         * segment. */
        if (h->nth < 0 && !(h->nth == SLUICE_EFULL && lost && left_ms(until) != 0)) {
            *full = h->nth == SLUICE_EFULL;
            sluice_canal_close(h->canal);
            return *full ? CLI_EXIT_TAKEN : cli_status_error(w->key, h->nth);
        }
        sluice_canal_close(h->canal);
    }
}

bool cli_hold_lost(const struct cli_hold *h)
{
    return sluice_canal_removed(h->canal) == 1;
}

void cli_hold_end(struct cli_hold *h)
{
    /* Do not access a truncated segment. We exit soon, and the kernel then releases the
     * units. */
    bool lost = cli_hold_lost(h);
    if (h->tether >= 0) close(h->tether);
    if (!lost) sluice_canal_close(h->canal);
}
