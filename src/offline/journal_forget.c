/* journal_forget.c - `sluice-offline journal forget`: ends leases in the journal of a stopped server.
 *
 * It writes a new journal without these leases, and replaces the old one by it. The new journal
 * belongs to the present life, and is durable before it gets its name, so it ends with the mark of
 * a clean stop: the next start ignores nothing, even after a power failure. A wait that is kept
 * is part of the life (recovery.h). */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sysexits.h>
#include <time.h>
#include <unistd.h>

#include "base/durable.h"
#include "offline/journal_load.h"
#include "offline/offline.h"
#include "offline/text.h"
#include "sluice.h"

#define COPY_BYTES 65536u
#define DAMAGED_NAME "journal.damaged"
#define DAMAGED_NAMES_MAX 100
#define NOT_DONE 1 /* The exit status if there was nothing to do, or no confirmation. */

/* lease-volatile if the journal does not say it: the default of the setting. */
#define VOLATILE_MS (60000 + SL_VOLATILE_EXTRA_MS)

struct forget {
    const struct offline_arguments *args;
    char shown[OFFLINE_TEXT_BYTES]; /* The directory, safe to print. */
    struct offline_journal journal;
    int lock;
    struct stat owner; /* Of the directory. */

    /* The plan. */
    uint64_t leases; /* The number of leases that end. */
    sl_ms wait_until_ms, volatile_ms;
    sl_fence fence_limit;
    bool found_fences, found_volatile;
    char damaged_name[32]; /* What the damaged file is called now. */

    /* The new journal. */
    struct sl_journal_file *file;
    struct sl_buffer records;
};

/* --- The lock of the directory ------------------------------------------------------ */

/* root may run this command: then the files must belong to the server's user. */
static void give_to_owner(const struct forget *f, const char *name)
{
    if (geteuid() != 0) return;
    if (fchownat(f->journal.directory, name, f->owner.st_uid, f->owner.st_gid,
                 AT_SYMLINK_NOFOLLOW) != 0)
        offline_say("cannot change the owner of %s/%s: %s", f->shown, name,
                    strerror(errno));
}

static bool has_journal(const struct forget *f)
{
    struct stat st;
    return fstatat(f->journal.directory, SL_JOURNAL_NAME, &st, AT_SYMLINK_NOFOLLOW) ==
           0;
}

static int lock_directory(struct forget *f)
{
    int flags = O_RDWR | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC;
    f->lock = openat(f->journal.directory, "lock", flags);
    if (f->lock < 0 && errno == ENOENT && has_journal(f)) {
        f->lock = openat(f->journal.directory, "lock", flags | O_CREAT, 0600);
        if (f->lock >= 0) give_to_owner(f, "lock");
    }
    if (f->lock < 0) {
        int error = errno;
        if (error == ENOENT)
            offline_say("the directory %s contains no journal", f->shown);
        else offline_say("cannot open %s/lock: %s", f->shown, strerror(error));
        return offline_exit_status_of_errno(error);
    }
    /* As in server/data/directory.c. */
    if (flock(f->lock, LOCK_EX | LOCK_NB) == 0 &&
        (flock(f->journal.directory, LOCK_EX | LOCK_NB) == 0 || errno != EWOULDBLOCK)) {
        f->journal.in_use = false;
        return 0;
    }
    offline_say("a server uses %s; stop it first, or end a lease with the command "
                "BREAK of the server",
                f->shown);
    return EX_UNAVAILABLE;
}

/* The file "lock" says what kind of server uses the directory. Its text is in
 * server/data/directory.c. */
static bool is_of_node(const struct forget *f)
{
    char text[200];
    ssize_t n = pread(f->lock, text, sizeof text - 1, 0);
    text[n > 0 ? n : 0] = '\0';
    return strstr(text, "node") != NULL ||
           (f->journal.has_header && f->journal.start.use == SL_JOURNAL_OF_NODE);
}

/* --- The plan ------------------------------------------------------------------------- */

static bool is_forgotten(const struct forget *f, const struct sl_item *item)
{
    const char *key = f->args->key;
    if (item->kind != SL_ITEM_GRANT) return false;
    return key == NULL ||
           (item->key.n == strlen(key) && memcmp(item->key.at, key, item->key.n) == 0);
}

static void plan(struct forget *f)
{
    const struct offline_journal *j = &f->journal;
    struct offline_cursor cursor = {0};
    struct offline_item i;
    while (offline_journal_next(j, &cursor, &i))
        if (i.is_held && i.left_ms > 0 && is_forgotten(f, &i.item)) f->leases++;
    f->fence_limit = j->start.fence_limit;
    f->volatile_ms = j->start.volatile_ms;
    f->wait_until_ms = f->args->key != NULL ? j->start.wait_until_ms : 0;
}

/* Collect the limits from a frame of a damaged file. */
static void salvage_frame(struct forget *f, const struct sl_frame *frame)
{
    struct sl_item item;
    uint64_t number;
    size_t at = 0;
    for (int type; (type = sl_record_next(frame->records, &at, &item)) > 0;) {
        if (item.fence > f->fence_limit && item.fence <= SL_FENCE_MAX)
            f->fence_limit = item.fence;
        if (type != 1 || !sl_value_read(item.value, &number)) continue;
        if (item.kind == SL_ITEM_FENCES && number <= SL_FENCE_MAX) {
            f->found_fences = true;
            if (number > f->fence_limit) f->fence_limit = number;
        } else if (item.kind == SL_ITEM_VOLATILE && number <= INT64_MAX) {
            f->found_volatile = true;
            if ((sl_ms)number > f->volatile_ms) f->volatile_ms = (sl_ms)number;
        }
    }
}

static uint64_t wall_us(struct timespec t)
{
    return (uint64_t)t.tv_sec * 1000000 + (uint64_t)t.tv_nsec / 1000;
}

/* Find the limits in all intact frames of a damaged file. If its header is damaged, the id may still
 * be intact: the checksums of the frames depend on it. A higher limit may have been lost, but
 * fences follow the clock, so the new limit is above the clock, and above the clock of the last
 * write. */
static void plan_from_damaged(struct forget *f)
{
    const struct offline_journal *j = &f->journal;
    struct sl_frame frame;
    struct stat st;
    struct timespec now;
    if (j->file.n > SL_HEADER_BYTES) {
        uint8_t id[SL_JOURNAL_ID_BYTES];
        memcpy(id, j->file.at + 24, sizeof id); /* Its place in record.h. */
        uint64_t seed = sl_journal_seed(id);
        for (size_t at = SL_HEADER_BYTES; sl_frame_search(j->file, at, seed, &frame);
             at = frame.at + frame.bytes)
            salvage_frame(f, &frame);
    }
    if (!f->found_volatile) f->volatile_ms = VOLATILE_MS;
    clock_gettime(CLOCK_REALTIME, &now);
    f->fence_limit = sl_fence_limit_above(f->fence_limit, wall_us(now));
    if (fstatat(j->directory, SL_JOURNAL_NAME, &st, AT_SYMLINK_NOFOLLOW) == 0)
        f->fence_limit = sl_fence_limit_above(f->fence_limit, wall_us(st.st_mtim));
    f->wait_until_ms = sl_ms_after(j->now_ms, f->volatile_ms);
    if (j->has_header && j->start.wait_until_ms > f->wait_until_ms)
        f->wait_until_ms = j->start.wait_until_ms;
}

/* --- The confirmation ------------------------------------------------------------------ */

static void print_risk(const struct forget *f)
{
    char time[OFFLINE_TIME_BYTES];
    const struct offline_journal *j = &f->journal;
    sl_ms wait_ms = offline_journal_wait_ms(j);
    if (j->is_damaged) {
        fprintf(
            stderr,
            "The journal is damaged at offset %zu. This command ends all its leases "
            "at once, including those that cannot be read. A client that still "
            "holds one of them is not protected any more: another client can be "
            "granted the same lock. Drained patterns that cannot be read are lost; "
            "check them with DRAIN after the start.\n",
            j->damaged_at);
        return;
    }
    if (f->leases > 0)
        fprintf(stderr,
                "This ends %" PRIu64
                " lease%s at once. A client that still holds %s is not protected any "
                "more: another client can be granted the same lock.\n",
                f->leases, f->leases == 1 ? "" : "s",
                f->leases == 1 ? "it" : "one of them");
    if (f->args->key == NULL && wait_ms > 0)
        fprintf(stderr,
                "The server will grant locks at once instead of waiting another %s. A "
                "client whose lease is missing from the journal is then no longer "
                "protected.\n",
                offline_time_text(wait_ms, time));
}

/* Returns 0 or an exit status. */
static int confirm(const struct forget *f)
{
    char answer[16] = "";
    if (f->args->yes) return 0;
    print_risk(f);
    if (!isatty(STDIN_FILENO)) {
        offline_say("standard input is not a terminal; use --yes to confirm. Nothing "
                    "was changed");
        return EX_USAGE;
    }
    fputs("Type yes to continue: ", stderr);
    if (fgets(answer, sizeof answer, stdin) != NULL && strcmp(answer, "yes\n") == 0)
        return 0;
    offline_say("not confirmed; nothing was changed");
    return NOT_DONE;
}

/* --- The new journal ------------------------------------------------------------------ */

/* Each of these functions returns 0 or an errno. */

static int flush_records(struct forget *f)
{
    if (f->records.n == 0) return 0;
    int error = sl_journal_file_copy(
        f->file, (struct sl_bytes){f->records.at, f->records.n}, f->journal.now_ms);
    f->records.n = 0;
    return error;
}

static int add(struct forget *f, const struct sl_item *item)
{
    if (sl_record_put(&f->records, item) != SLUICE_OK) return ENOMEM;
    return f->records.n < COPY_BYTES ? 0 : flush_records(f);
}

/* Add an item about the whole file. */
static int add_about_file(struct forget *f, enum sl_item_kind kind, const char *value,
                          size_t bytes)
{
    return add(f, &(struct sl_item){.kind = kind,
                                    .expiry_ms = SL_NEVER,
                                    .bound_ms = SL_NEVER,
                                    .value = {value, bytes}});
}

static int add_number(struct forget *f, enum sl_item_kind kind, uint64_t number)
{
    char value[SL_VALUE_BYTES];
    sl_value_write(value, number);
    return add_about_file(f, kind, value, sizeof value);
}

static int add_life(struct forget *f)
{
    struct sl_life life;
    char value[SL_LIFE_BYTES];
    sl_journal_file_life(f->file, &life);
    life.wait_until_ms = f->wait_until_ms;
    sl_life_write(value, &life);
    return add_about_file(f, SL_ITEM_LIFE, value, sizeof value);
}

/* Copy everything that is held and not forgotten. From a damaged file, only drained patterns are
 * copied. */
static int add_items(struct forget *f)
{
    struct offline_cursor cursor = {0};
    struct offline_item i;
    int error = 0;
    while (error == 0 && offline_journal_next(&f->journal, &cursor, &i)) {
        if (!i.is_held || i.left_ms == 0 || is_forgotten(f, &i.item)) continue;
        if (f->journal.is_damaged && i.item.kind != SL_ITEM_DRAIN) continue;
        error = add(f, &i.item);
    }
    return error;
}

static int fill(struct forget *f)
{
    int error = add_life(f);
    if (error == 0) error = add_number(f, SL_ITEM_VOLATILE, (uint64_t)f->volatile_ms);
    if (error == 0 && f->fence_limit > 0)
        error = add_number(f, SL_ITEM_FENCES, f->fence_limit);
    if (error == 0) error = add_items(f);
    if (error == 0) error = add_about_file(f, SL_ITEM_CLEAN, NULL, 0);
    return error == 0 ? flush_records(f) : error;
}

/* Give the damaged file a second name, which is free. */
static int keep_damaged(struct forget *f)
{
    int directory = f->journal.directory;
    char *name = f->damaged_name;
    strcpy(name, DAMAGED_NAME);
    for (int i = 2; i <= DAMAGED_NAMES_MAX; i++) {
        if (linkat(directory, SL_JOURNAL_NAME, directory, name, 0) == 0) return 0;
        if (errno != EEXIST) return errno;
        snprintf(name, sizeof f->damaged_name, DAMAGED_NAME ".%d", i);
    }
    return EEXIST;
}

static int write_journal(struct forget *f)
{
    int error = sl_journal_file_new(f->journal.directory, SL_JOURNAL_OF_SERVER,
                                    f->journal.start.chain.position, &f->file);
    if (error != 0) return error;
    give_to_owner(f, SL_JOURNAL_NEXT);
    error = fill(f);
    if (error == 0) error = sl_journal_file_commit(f->file);
    if (error == 0) sl_journal_file_switch(f->file);
    return error;
}

static int replace(struct forget *f)
{
    if (f->journal.is_damaged) {
        int error = keep_damaged(f);
        if (error != 0) {
            offline_say(
                "cannot keep the damaged file as %s/%s: %s; nothing was changed",
                f->shown, f->damaged_name, strerror(error));
            return offline_exit_status_of_errno(error);
        }
    }
    int error = write_journal(f);
    sl_journal_file_close(f->file);
    sl_buffer_free(&f->records);
    if (error == 0) return 0;
    if (f->journal.is_damaged) unlinkat(f->journal.directory, f->damaged_name, 0);
    offline_say(
        "cannot write a new journal in %s: %s; the old journal is still in place",
        f->shown, strerror(error));
    return offline_exit_status_of_errno(error);
}

/* --- The command ---------------------------------------------------------------------- */

static void print_result(const struct forget *f)
{
    char time[OFFLINE_TIME_BYTES];
    if (!f->journal.is_damaged) {
        printf("ended %" PRIu64 " lease%s\n", f->leases, f->leases == 1 ? "" : "s");
        return;
    }
    printf(
        "kept the damaged file as %s; the new journal has no leases\n"
        "the next start waits %s before it grants a lock%s\n"
        "fences continue above %" PRIu64 "%s\n",
        f->damaged_name, offline_time_text(f->wait_until_ms - f->journal.now_ms, time),
        f->found_volatile
            ? ""
            : "; lease-volatile was not found in the file, so this is its default",
        f->fence_limit,
        f->found_fences ? ""
                        : "; the limit was not found in the file, so it was chosen "
                          "above the clock. If the clock has been set back since the "
                          "server ran, set it right and run this command again");
}

/* Reject what this command cannot do. Returns 0 or an exit status. */
static int check(const struct forget *f)
{
    const struct offline_journal *j = &f->journal;
    char key[OFFLINE_TEXT_BYTES];
    if (is_of_node(f)) {
        offline_say(
            "%s belongs to a node of a majority cluster, whose other nodes know "
            "the leases, too; wait until the lease expires, or RELEASE it with its "
            "fence through a running node. To replace a node that lost its "
            "journal, see NODES REMOVE and NODES ADD",
            f->shown);
        return EX_DATAERR;
    }
    if (f->args->key == NULL) return 0;
    if (j->is_damaged) {
        offline_say("the journal is damaged at offset %zu, so the leases of one key "
                    "cannot be ended; run the command without a key to end all leases",
                    j->damaged_at);
        return EX_DATAERR;
    }
    if (f->leases > 0) return 0;
    offline_say("the key \"%s\" has no lease in the journal; nothing was changed",
                offline_text(offline_bytes(f->args->key), key));
    return NOT_DONE;
}

static int forget(struct forget *f)
{
    const char *directory = f->args->directory;
    int status = offline_journal_open(&f->journal, directory);
    if (status != 0) return status;
    if (fstat(f->journal.directory, &f->owner) != 0) return EX_OSERR;
    status = lock_directory(f);
    if (status == 0) status = offline_journal_read(&f->journal, directory);
    if (status != 0) return status;
    if (f->journal.is_damaged) plan_from_damaged(f);
    else plan(f);
    status = check(f);
    if (status != 0) return status;
    if (f->leases == 0 && !f->journal.is_damaged &&
        offline_journal_wait_ms(&f->journal) == 0) {
        puts("the journal has no leases, and new grants do not wait");
        return offline_flush();
    }
    status = confirm(f);
    if (status == 0) status = replace(f);
    if (status != 0) return status;
    print_result(f);
    return offline_flush();
}

int offline_journal_forget(const struct offline_arguments *a)
{
    struct forget f = {.args = a, .journal = {.directory = -1}, .lock = -1};
    offline_text(offline_bytes(a->directory), f.shown);
    int status = forget(&f);
    offline_journal_close(&f.journal);
    if (f.lock >= 0) close(f.lock);
    return status;
}
