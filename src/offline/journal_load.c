#include "offline/journal_load.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/random.h>
#include <sysexits.h>
#include <time.h>
#include <unistd.h>

#include "offline/offline.h"
#include "offline/text.h"

/* How often to read the journal of a running server until its frames are complete. */
#define ATTEMPTS_MAX 50
#define ATTEMPT_US 20000

sl_ms offline_now_ms(void)
{
    struct timespec t;
    clock_gettime(CLOCK_BOOTTIME, &t);
    return (sl_ms)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

/* --- The directory ------------------------------------------------------------- */

/* Whether a server has locked this file or directory. We must not hold the lock for long: a server that
 * starts meanwhile would fail. */
static bool has_lock(int directory, const char *name)
{
    int fd = openat(directory, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    if (fd < 0) return false;
    bool locked = flock(fd, LOCK_SH | LOCK_NB) != 0 && errno == EWOULDBLOCK;
    close(fd);
    return locked;
}

static bool is_locked(int directory)
{
    return has_lock(directory, "lock") || has_lock(directory, ".");
}

int offline_journal_open(struct offline_journal *j, const char *path)
{
    *j = (struct offline_journal){.directory = -1};
    j->directory = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (j->directory < 0) {
        int error = errno;
        char shown[OFFLINE_TEXT_BYTES];
        offline_text(offline_bytes(path), shown);
        if (error == ENOENT) offline_say("the directory %s does not exist", shown);
        else offline_say("cannot open the directory %s: %s", shown, strerror(error));
        return offline_exit_status_of_errno(error);
    }
    j->in_use = is_locked(j->directory);
    return 0;
}

static void forget_file(struct offline_journal *j)
{
    sl_recovery_end(&j->start);
    sl_recovery_end(&j->all);
    sl_journal_unmap(j->file);
    j->file = (struct sl_bytes){0};
}

void offline_journal_close(struct offline_journal *j)
{
    forget_file(j);
    if (j->directory >= 0) close(j->directory);
    j->directory = -1;
}

/* --- Counting -------------------------------------------------------------------- */

/* Check the value of a record that a server would read. */
static bool is_valid(const struct sl_item *item)
{
    struct sl_grant_view v;
    return item->kind != SL_ITEM_GRANT || sl_grant_read(item->value, &v);
}

/* Count the records of a frame. Returns false if one of them is invalid. */
static bool count_records(struct offline_journal *j, const struct sl_frame *f)
{
    struct sl_item item;
    size_t at = 0;
    for (;;) {
        int type = sl_record_next(f->records, &at, &item);
        if (type == 0) return true;
        if (type < 0 || (type == 1 && !is_valid(&item))) return false;
        if (type == 1 && item.kind == SL_ITEM_LIFE)
            sl_life_read(item.value, &j->written);
        j->counts.records++;
    }
}

/* Find the position of the last frame that ends at or before this offset. */
static uint64_t position_before(const struct offline_journal *j, struct sl_chain chain,
                                size_t offset)
{
    struct sl_frame f;
    uint64_t position = chain.position;
    for (size_t at = SL_HEADER_BYTES; sl_frame_next(j->intact, at, &chain, &f);
         at = f.at + f.bytes) {
        if (f.at + f.bytes > offset) break;
        position = f.position;
    }
    return position;
}

static uint64_t torn_bytes(const struct offline_journal *j, size_t from)
{
    size_t end = j->file.n;
    if (j->is_damaged) return 0;
    while (end > from && j->file.at[end - 1] == 0) end--;
    return end - from;
}

static void set_damage(struct offline_journal *j, size_t offset, const char *what)
{
    j->is_damaged = true;
    j->damaged_at = offset;
    j->damage = what;
    j->intact.n = offset;
}

/* Walk over all intact frames. An invalid record is damage as well. */
static void count(struct offline_journal *j)
{
    struct sl_header header;
    struct sl_frame f;
    uint64_t durable = 0;
    size_t at = SL_HEADER_BYTES;
    j->counts = (struct offline_journal_counts){0};
    j->written = (struct sl_life){0};
    if (sl_header_read(j->intact, &header) != 0) return;
    for (struct sl_chain chain = header.chain; sl_frame_next(j->intact, at, &chain, &f);
         at = f.at + f.bytes) {
        if (!count_records(j, &f)) {
            set_damage(j, f.at, "a record of this frame is invalid");
            break;
        }
        j->counts.frames++;
        if (f.durable > durable) durable = f.durable;
    }
    j->counts.durable_position = position_before(j, header.chain, (size_t)durable);
    j->counts.torn_bytes = torn_bytes(j, at);
}

/* --- Replaying ------------------------------------------------------------------- */

static struct sl_hash_key random_key(void)
{
    struct sl_hash_key key = {1, 2};
    if (getrandom(&key, sizeof key, 0) < 0) return key;
    return key;
}

/* Replay the intact part as in the life in which it was written, so that no item is ignored. */
static void replay_all(struct offline_journal *j)
{
    struct sl_life life = j->written;
    life.keeps_writes = true;
    sl_recovery_begin(&j->all, j->intact, &life, j->start.last_ms, random_key());
    j->counts.live = j->all.items;
}

static void replay(struct offline_journal *j)
{
    j->intact = j->file;
    j->is_damaged = false;
    j->now_ms = offline_now_ms();
    sl_recovery_begin(&j->start, j->file, &j->present, j->now_ms, random_key());
    j->has_header = j->start.result == SL_RECOVERY_OK ||
                    j->start.result == SL_RECOVERY_DAMAGED;
    if (j->start.result == SL_RECOVERY_NOT_A_JOURNAL)
        set_damage(j, 0, "the header is not that of a journal");
    else if (j->start.result == SL_RECOVERY_DAMAGED)
        set_damage(j, j->start.damaged_at,
                   "the frame there is not intact, although later ones are");
    if (!j->has_header) return;
    count(j);
    if (j->is_damaged) {
        sl_recovery_end(&j->start);
        sl_recovery_begin(&j->start, j->intact, &j->present, j->now_ms, random_key());
    }
    /* The rest is not intact. In the same life it would count as damage. */
    j->intact.n = j->start.bytes;
    if (j->start.result == SL_RECOVERY_OK) replay_all(j);
}

/* Read the file once. Returns 0 or an errno. */
static int read_once(struct offline_journal *j)
{
    forget_file(j);
    sl_journal_life(j->directory, &j->present);
    int error = sl_journal_map(j->directory, &j->file);
    if (error == 0) replay(j);
    return error;
}

/* Read the file. A running server may write two frames while we read the place of the first one.
 * That looks like damage, but not at the same place the next time. The server may also replace the
 * file; then its inode changes. */
static int read_often(struct offline_journal *j)
{
    uint64_t seed = 0;
    size_t damaged_at = 0;
    for (int i = 0; i < ATTEMPTS_MAX; i++) {
        int error = read_once(j);
        if (error != 0 || !j->in_use) return error;
        if (!j->is_damaged) {
            struct sl_life life;
            sl_journal_life(j->directory, &life);
            if (life.inode == j->present.inode) return 0;
        } else if (i > 0 && seed == j->start.chain.seed && damaged_at == j->damaged_at)
            return 0;
        seed = j->start.chain.seed;
        damaged_at = j->damaged_at;
        usleep(ATTEMPT_US);
    }
    j->is_damaged = false; /* It was at another place each time. */
    return 0;
}

static int fail_to_read(const char *path, int error)
{
    char shown[OFFLINE_TEXT_BYTES];
    offline_text(offline_bytes(path), shown);
    if (error == ENOENT) {
        offline_say("the directory %s contains no journal", shown);
        return EX_NOINPUT;
    }
    if (error == EINVAL || error == ELOOP) {
        offline_say("%s/" SL_JOURNAL_NAME " is not a regular file", shown);
        return EX_DATAERR;
    }
    offline_say("cannot read %s/" SL_JOURNAL_NAME ": %s", shown, strerror(error));
    return offline_exit_status_of_errno(error);
}

int offline_journal_read(struct offline_journal *j, const char *path)
{
    char shown[OFFLINE_TEXT_BYTES];
    struct sl_header header;
    int error = read_often(j);
    if (error != 0) return fail_to_read(path, error);
    offline_text(offline_bytes(path), shown);
    if (j->start.result == SL_RECOVERY_FORMAT) {
        sl_header_read(j->file, &header);
        offline_say("%s/" SL_JOURNAL_NAME " has format %" PRIu32
                    ", and this version of Sluice reads format %u; use the version "
                    "that wrote the file",
                    shown, header.format, SL_JOURNAL_FORMAT);
        return EX_DATAERR;
    }
    if (j->start.result == SL_RECOVERY_NO_MEMORY ||
        (j->has_header && j->all.result != SL_RECOVERY_OK)) {
        offline_say("out of memory: cannot replay %s/" SL_JOURNAL_NAME, shown);
        return EX_OSERR;
    }
    return 0;
}

int offline_journal_report_damage(const struct offline_journal *j, const char *path)
{
    char shown[OFFLINE_TEXT_BYTES];
    offline_text(offline_bytes(path), shown);
    offline_say("%s/" SL_JOURNAL_NAME " is damaged at offset %zu: %s", shown,
                j->damaged_at, j->damage);
    offline_say("a server does not start with this journal; restore the file, or run "
                "\"sluice journal forget\", which keeps the damaged file and begins a "
                "journal without leases");
    return EX_DATAERR;
}

/* --- Results ----------------------------------------------------------------------- */

bool offline_journal_next(const struct offline_journal *j, struct offline_cursor *c,
                          struct offline_item *out)
{
    if (!c->has_begun) c->has_held = sl_recovery_next(&j->start, &c->start, &c->held);
    c->has_begun = true;
    if (!sl_recovery_next(&j->all, &c->all, &out->item)) return false;
    /* Both replays refer to the same bytes, in the same order. */
    out->is_held = c->has_held && c->held.key.at == out->item.key.at;
    if (out->is_held) {
        out->item = c->held;
        c->has_held = sl_recovery_next(&j->start, &c->start, &c->held);
    }
    sl_ms left_ms = out->item.expiry_ms - j->now_ms;
    if (out->item.expiry_ms == SL_NEVER) out->left_ms = SL_NEVER;
    else out->left_ms = left_ms > 0 ? left_ms : 0;
    return true;
}

/* The file "node" says for how long a node does not vote, because of leases that are not in its
 * journal. The format is in server/data/node_file.h. */
static sl_ms silence_of_node(const struct offline_journal *j)
{
    char text[1024];
    sl_ms ms = 0;
    if (j->start.use != SL_JOURNAL_OF_NODE) return 0;
    int fd = openat(j->directory, "node",
                    O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    if (fd < 0) return 0;
    ssize_t n = pread(fd, text, sizeof text - 1, 0);
    close(fd);
    text[n > 0 ? n : 0] = '\0';
    const char *line = strstr(text, "\nlease_longest_ms ");
    if (line == NULL || sscanf(line, " lease_longest_ms %18" SCNd64, &ms) != 1)
        return 0;
    return ms > 0 ? ms : 0;
}

sl_ms offline_journal_wait_ms(const struct offline_journal *j)
{
    sl_ms left_ms = j->start.wait_until_ms - j->now_ms;
    sl_ms silence_ms = silence_of_node(j);
    if (silence_ms > left_ms) left_ms = silence_ms;
    return left_ms > 0 ? left_ms : 0;
}

sl_ms offline_journal_setting_ms(const struct offline_journal *j)
{
    sl_ms ms = j->start.volatile_ms;
    return ms > 0 ? ms - SL_VOLATILE_EXTRA_MS : 0;
}

const char *offline_journal_owner(const struct offline_journal *j)
{
    return j->start.use == SL_JOURNAL_OF_NODE ? "node" : "server";
}
