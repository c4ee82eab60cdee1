/* test_journal_file.c - the journal in a real file: a start, frames, replacing the file, errors
 * of names, and a worker thread that syncs while the loop writes. */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "test.h"

#include "journal/file.h"
#include "sluice.h"

#define NOW 1000
#define FAR 1000000

static char path[40];
static int directory;
static const struct sl_hash_key hash_key = {1, 2};

static void clear_directory(void)
{
    unlinkat(directory, SL_JOURNAL_NAME, 0);
    unlinkat(directory, SL_JOURNAL_NEXT, 0);
    unlinkat(directory, SL_JOURNAL_ERROR, 0);
    unlinkat(directory, "elsewhere", 0);
}

static int make_directory(void **state)
{
    (void)state;
    snprintf(path, sizeof path, "/tmp/sluice-unit.XXXXXX");
    if (mkdtemp(path) == NULL) return -1;
    directory = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    return directory < 0 ? -1 : 0;
}

static int remove_directory(void **state)
{
    (void)state;
    clear_directory();
    close(directory);
    return rmdir(path);
}

static bool exists(const char *name)
{
    struct stat st;
    return fstatat(directory, name, &st, AT_SYMLINK_NOFOLLOW) == 0;
}

static struct stat status_of(const char *name)
{
    struct stat st;
    assert_int_equal(fstatat(directory, name, &st, AT_SYMLINK_NOFOLLOW), 0);
    return st;
}

/* --- An owner of a journal: it puts items whose keys are numbers -------------------------- */

static struct sl_bytes record_of(struct sl_buffer *b, uint64_t number, bool put)
{
    char key[24];
    int n = snprintf(key, sizeof key, "key-%" PRIu64, number);
    const struct sl_item item = {.kind = SL_ITEM_GRANT,
                                 .key = {key, (size_t)n},
                                 .fence = number,
                                 .expiry_ms = FAR,
                                 .bound_ms = FAR,
                                 .is_long = true,
                                 .value = {"value", 5}};
    b->n = 0;
    int status = put ? sl_record_put(b, &item)
                     : sl_record_end(b, SL_ITEM_GRANT, item.key, number);
    assert_int_equal(status, SLUICE_OK);
    return (struct sl_bytes){b->at, b->n};
}

static int write_one(struct sl_journal_file *f, uint64_t number, uint64_t position)
{
    struct sl_buffer b = {0};
    int error = sl_journal_file_write(f, record_of(&b, number, true), position, NOW);
    sl_buffer_free(&b);
    return error;
}

static int end_one(struct sl_journal_file *f, uint64_t number, uint64_t position)
{
    struct sl_buffer b = {0};
    int error = sl_journal_file_write(f, record_of(&b, number, false), position, NOW);
    sl_buffer_free(&b);
    return error;
}

static int copy_one(struct sl_journal_file *f, uint64_t number)
{
    struct sl_buffer b = {0};
    int error = sl_journal_file_copy(f, record_of(&b, number, true), NOW);
    sl_buffer_free(&b);
    return error;
}

static void copy_life(struct sl_journal_file *f)
{
    char value[SL_LIFE_BYTES];
    struct sl_buffer b = {0};
    struct sl_life life;
    sl_journal_file_life(f, &life);
    sl_life_write(value, &life);
    const struct sl_item item = {.kind = SL_ITEM_LIFE,
                                 .expiry_ms = SL_NEVER,
                                 .bound_ms = SL_NEVER,
                                 .value = {value, sizeof value}};
    assert_int_equal(sl_record_put(&b, &item), SLUICE_OK);
    assert_int_equal(sl_journal_file_copy(f, (struct sl_bytes){b.at, b.n}, NOW), 0);
    sl_buffer_free(&b);
}

/* Create a journal that contains its life, in an empty directory. */
static struct sl_journal_file *create(void)
{
    struct sl_journal_file *f;
    clear_directory();
    assert_int_equal(sl_journal_file_new(directory, SL_JOURNAL_OF_SERVER, 0, &f), 0);
    copy_life(f);
    assert_int_equal(sl_journal_file_commit(f), 0);
    sl_journal_file_switch(f);
    return f;
}

/* Recover the journal and return the numbers of its items as text, such as "1 2 5". */
static struct sl_recovery recovery;
static const char *recover(void)
{
    static char text[4000];
    struct sl_bytes file;
    struct sl_life life;
    struct sl_item item;
    uint64_t cursor = 0;
    bool held[500] = {false};
    size_t n = 0;
    sl_journal_probe(directory);
    sl_journal_life(directory, &life);
    assert_int_equal(sl_journal_map(directory, &file), 0);
    sl_recovery_begin(&recovery, file, &life, NOW, hash_key);
    assert_int_equal(recovery.result, SL_RECOVERY_OK);
    while (sl_recovery_next(&recovery, &cursor, &item)) {
        assert_true(item.fence < sizeof held);
        held[item.fence] = true;
    }
    text[0] = '\0';
    for (size_t i = 0; i < sizeof held && n < sizeof text; i++)
        if (held[i])
            n += (size_t)snprintf(text + n, sizeof text - n, n > 0 ? " %zu" : "%zu", i);
    sl_recovery_end(&recovery);
    sl_journal_unmap(file);
    return text;
}

static struct sl_journal_file *reopen(void)
{
    struct sl_journal_file *f;
    recover();
    assert_true(recovery.same_life);
    assert_int_equal(sl_journal_file_continue(directory, &recovery, &f), 0);
    return f;
}

/* --- Start ----------------------------------------------------------------------------- */

UNIT_TEST(a_directory_without_a_journal_is_ENOENT)
{
    struct sl_bytes file;
    struct sl_life life;
    clear_directory();
    sl_journal_probe(directory);
    assert_int_equal(sl_journal_map(directory, &file), ENOENT);
    sl_journal_life(directory, &life);
    assert_true(life.inode == 0);
    assert_false(life.had_error);
    assert_true(life.boot[0] != '\0');
}

UNIT_TEST(a_new_file_gets_its_name_when_it_is_committed)
{
    struct sl_journal_file *f;
    clear_directory();
    assert_int_equal(sl_journal_file_new(directory, SL_JOURNAL_OF_SERVER, 7, &f), 0);
    copy_life(f);
    assert_int_equal(copy_one(f, 3), 0);
    assert_false(exists(SL_JOURNAL_NAME));
    assert_false(sl_journal_file_in_place(f));
    assert_int_equal(sl_journal_file_commit(f), 0);
    assert_true(sl_journal_file_in_place(f));
    sl_journal_file_switch(f);
    assert_true(exists(SL_JOURNAL_NAME));
    assert_false(exists(SL_JOURNAL_NEXT));
    assert_int_equal(status_of(SL_JOURNAL_NAME).st_mode & 07777, 0600);
    assert_int_equal(write_one(f, 4, 8), 0);
    sl_journal_file_close(f);
    assert_string_equal(recover(), "3 4");
    assert_true(recovery.same_life);
    assert_true(recovery.chain.position == 8);
}

UNIT_TEST(a_new_file_that_is_not_committed_leaves_the_old_one)
{
    struct sl_journal_file *f = create(), *g;
    assert_int_equal(write_one(f, 1, 1), 0);
    assert_int_equal(sl_journal_file_new(directory, SL_JOURNAL_OF_SERVER, 1, &g), 0);
    assert_int_equal(copy_one(g, 2), 0);
    sl_journal_file_close(g);
    assert_false(exists(SL_JOURNAL_NEXT));
    assert_int_equal(write_one(f, 3, 2), 0);
    sl_journal_file_close(f);
    assert_string_equal(recover(), "1 3");
}

UNIT_TEST(a_journal_continues_after_a_kill)
{
    struct sl_journal_file *f = create();
    assert_int_equal(write_one(f, 1, 1), 0);
    sl_journal_file_close(f);
    for (uint64_t i = 2; i < 20; i++) {
        f = reopen();
        assert_int_equal(write_one(f, i, i), 0);
        sl_journal_file_close(f);
    }
    assert_string_equal(recover(), "1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19");
}

/* The file fills its space with zeros in pieces, some frames ahead. */
UNIT_TEST(zeros_do_not_replace_frames)
{
    static char bytes[1000];
    const struct sl_item large = {.kind = SL_ITEM_GRANT,
                                  .expiry_ms = FAR,
                                  .bound_ms = FAR,
                                  .value = {bytes, sizeof bytes}};
    struct sl_journal_file *f = create();
    struct sl_buffer b = {0};
    char numbers[4000];
    size_t n = 0;
    for (uint64_t i = 1; i <= 300; i++) { /* Frames of 1 KB to 20 KB; 3 MB in all. */
        b.n = 0;
        for (uint64_t k = i % 20; k > 0; k--) {
            struct sl_item item = large;
            item.fence = i;
            assert_int_equal(sl_record_put(&b, &item), SLUICE_OK);
        }
        assert_int_equal(sl_journal_file_write(f, (struct sl_bytes){b.at, b.n}, i, NOW),
                         0);
        if (i % 20 != 0)
            n += (size_t)snprintf(numbers + n, sizeof numbers - n,
                                  i > 1 ? " %" PRIu64 : "%" PRIu64, i);
        if (i % 70 != 0) continue;
        sl_journal_file_close(f);
        f = reopen();
    }
    sl_journal_file_close(f);
    sl_buffer_free(&b);
    assert_string_equal(recover(), numbers);
    assert_true(recovery.chain.position == 300);
}

UNIT_TEST(the_rest_of_a_file_is_cleared_when_it_continues)
{
    static char rest[200000]; /* Longer than the space that the next write fills. */
    struct sl_bytes file;
    struct sl_journal_file *f = create();
    assert_int_equal(write_one(f, 1, 1), 0);
    uint64_t end = sl_journal_file_bytes(f);
    sl_journal_file_close(f);
    /* The server was killed while it wrote a large frame. */
    memset(rest, 0x55, sizeof rest);
    int fd = openat(directory, SL_JOURNAL_NAME, O_RDWR | O_CLOEXEC);
    assert_int_equal(pwrite(fd, rest, sizeof rest, (off_t)end), sizeof rest);
    close(fd);
    off_t size = status_of(SL_JOURNAL_NAME).st_size;
    f = reopen();
    assert_true(sl_journal_file_bytes(f) == end);
    assert_int_equal(write_one(f, 2, 2), 0);
    end = sl_journal_file_bytes(f);
    sl_journal_file_close(f);
    assert_true(status_of(SL_JOURNAL_NAME).st_size == size);
    assert_int_equal(sl_journal_map(directory, &file), 0);
    for (size_t i = (size_t)end; i < file.n; i++) assert_int_equal(file.at[i], 0);
    sl_journal_unmap(file);
    assert_string_equal(recover(), "1 2");
}

UNIT_TEST(the_file_left_by_a_killed_replacement_is_removed)
{
    struct sl_journal_file *f = create(), *g;
    sl_journal_file_close(f);
    int fd = openat(directory, SL_JOURNAL_NEXT, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    close(fd);
    g = reopen();
    assert_false(exists(SL_JOURNAL_NEXT));
    sl_journal_file_close(g);
}

UNIT_TEST(space_is_allocated_before_it_is_used)
{
    struct sl_journal_file *f = create();
    for (uint64_t i = 1; i <= 30000; i++) {
        assert_int_equal(write_one(f, i % 400, i), 0);
        struct stat st = status_of(SL_JOURNAL_NAME);
        assert_true((uint64_t)st.st_size >= sl_journal_file_bytes(f));
        /* At least the size is allocated, in units of 512 bytes. */
        assert_true((uint64_t)st.st_blocks * 512 >= sl_journal_file_bytes(f));
    }
    assert_true(sl_journal_file_bytes(f) > 2u << 20);
    sl_journal_file_close(f);
}

/* --- Names ------------------------------------------------------------------------------ */

UNIT_TEST(links_are_not_followed)
{
    struct sl_bytes file;
    struct sl_journal_file *f = create(), *g;
    sl_journal_file_close(f);
    recover();
    assert_int_equal(renameat(directory, SL_JOURNAL_NAME, directory, "elsewhere"), 0);
    assert_int_equal(symlinkat("elsewhere", directory, SL_JOURNAL_NAME), 0);
    assert_int_equal(symlinkat("elsewhere", directory, SL_JOURNAL_NEXT), 0);
    assert_int_equal(symlinkat("elsewhere", directory, SL_JOURNAL_ERROR), 0);
    off_t size = status_of("elsewhere").st_size;
    assert_int_equal(sl_journal_map(directory, &file), ELOOP);
    assert_int_equal(sl_journal_file_continue(directory, &recovery, &f), ELOOP);
    sl_journal_file_note_error(directory);
    assert_int_equal(sl_journal_file_new(directory, SL_JOURNAL_OF_SERVER, 0, &g), 0);
    assert_true(S_ISREG(status_of(SL_JOURNAL_NEXT).st_mode));
    assert_int_equal(sl_journal_file_commit(g), 0);
    sl_journal_file_close(g);
    assert_true(S_ISREG(status_of(SL_JOURNAL_NAME).st_mode));
    assert_true(status_of("elsewhere").st_size == size);
}

UNIT_TEST(a_journal_that_is_not_a_regular_file_is_EINVAL)
{
    struct sl_bytes file;
    clear_directory();
    assert_int_equal(mkfifoat(directory, SL_JOURNAL_NAME, 0600), 0);
    assert_int_equal(sl_journal_map(directory, &file), EINVAL);
    sl_journal_probe(directory);
}

UNIT_TEST(an_empty_file_is_not_a_journal)
{
    struct sl_bytes file;
    struct sl_recovery r;
    struct sl_life life;
    clear_directory();
    close(openat(directory, SL_JOURNAL_NAME, O_RDWR | O_CREAT | O_CLOEXEC, 0600));
    assert_int_equal(sl_journal_map(directory, &file), 0);
    assert_int_equal(file.n, 0);
    sl_journal_life(directory, &life);
    sl_recovery_begin(&r, file, &life, NOW, hash_key);
    assert_int_equal(r.result, SL_RECOVERY_NOT_A_JOURNAL);
    sl_recovery_end(&r);
    sl_journal_unmap(file);
}

UNIT_TEST(a_journal_that_was_moved_away_is_not_in_place)
{
    struct sl_journal_file *f = create();
    assert_true(sl_journal_file_in_place(f));
    assert_int_equal(renameat(directory, SL_JOURNAL_NAME, directory, "elsewhere"), 0);
    assert_false(sl_journal_file_in_place(f));
    close(openat(directory, SL_JOURNAL_NAME, O_RDWR | O_CREAT | O_CLOEXEC, 0600));
    assert_false(sl_journal_file_in_place(f));
    assert_int_equal(renameat(directory, "elsewhere", directory, SL_JOURNAL_NAME), 0);
    assert_true(sl_journal_file_in_place(f));
    sl_journal_file_close(f);
}

UNIT_TEST(each_file_has_its_own_life)
{
    struct sl_life a, b, c;
    struct sl_journal_file *f = create();
    sl_journal_life(directory, &a);
    sl_journal_file_life(f, &b);
    assert_true(a.inode == b.inode && a.device == b.device);
    assert_int_equal(sl_journal_file_replace(f), 0);
    sl_journal_file_life(f, &b);
    assert_true(a.inode != b.inode);
    assert_int_equal(sl_journal_file_commit(f), 0);
    sl_journal_file_switch(f);
    sl_journal_life(directory, &a);
    sl_journal_file_life(f, &c);
    assert_true(a.inode == b.inode && a.inode == c.inode);
    sl_journal_file_close(f);
}

UNIT_TEST(a_copy_of_the_file_is_another_life)
{
    struct sl_journal_file *f = create();
    assert_int_equal(write_one(f, 1, 1), 0);
    sl_journal_file_close(f);
    recover();
    assert_true(recovery.same_life);
    char command[200];
    snprintf(command, sizeof command,
             "cd %s && cp journal elsewhere && mv elsewhere journal", path);
    assert_int_equal(system(command), 0);
    recover();
    assert_false(recovery.same_life);
}

/* --- Replacing the file ------------------------------------------------------------------ */

UNIT_TEST(frames_go_to_both_files_until_the_switch)
{
    struct sl_journal_file *f = create();
    for (uint64_t i = 1; i <= 100; i++) assert_int_equal(write_one(f, 1, i), 0);
    assert_int_equal(write_one(f, 2, 101), 0);
    uint64_t bytes = sl_journal_file_bytes(f);
    assert_int_equal(sl_journal_file_replace(f), 0);
    copy_life(f);
    assert_int_equal(copy_one(f, 1), 0);
    assert_int_equal(write_one(f, 3, 102), 0);
    assert_int_equal(copy_one(f, 2), 0);
    assert_int_equal(end_one(f, 1, 103), 0);
    assert_string_equal(recover(), "2 3"); /* The old file. */
    assert_int_equal(sl_journal_file_commit(f), 0);
    assert_string_equal(recover(), "2 3"); /* The new file. */
    assert_int_equal(write_one(f, 4, 104), 0);
    assert_string_equal(recover(), "2 3 4");
    sl_journal_file_switch(f);
    assert_true(sl_journal_file_bytes(f) < bytes);
    assert_int_equal(write_one(f, 5, 105), 0);
    assert_int_equal(sl_journal_file_sync(f), 0);
    assert_string_equal(recover(), "2 3 4 5");
    assert_true(recovery.same_life);
    assert_true(recovery.chain.position == 105);
    sl_journal_file_close(f);
    f = reopen();
    assert_int_equal(write_one(f, 6, 106), 0);
    assert_string_equal(recover(), "2 3 4 5 6");
    sl_journal_file_close(f);
}

UNIT_TEST(a_replacement_that_is_dropped_leaves_the_old_file)
{
    struct sl_journal_file *f = create();
    assert_int_equal(write_one(f, 1, 1), 0);
    for (uint64_t i = 2; i < 10; i++) {
        assert_int_equal(sl_journal_file_replace(f), 0);
        assert_int_equal(write_one(f, i, i), 0);
        sl_journal_file_drop(f);
        assert_int_equal(sl_journal_file_sync(f), 0);
        assert_false(exists(SL_JOURNAL_NEXT));
    }
    assert_string_equal(recover(), "1 2 3 4 5 6 7 8 9");
    sl_journal_file_close(f);
}

UNIT_TEST(a_replacement_never_renames_the_file_of_another_one)
{
    struct sl_journal_file *f = create(), *g;
    assert_int_equal(sl_journal_file_replace(f), 0);
    assert_int_equal(sl_journal_file_new(directory, SL_JOURNAL_OF_SERVER, 0, &g), 0);
    copy_life(g);
    assert_int_equal(copy_one(g, 1), 0);
    assert_int_equal(sl_journal_file_commit(f), ESTALE);
    sl_journal_file_drop(f);
    sl_journal_file_close(f);
    assert_true(exists(SL_JOURNAL_NEXT)); /* It belongs to the other one. */
    assert_int_equal(sl_journal_file_commit(g), 0);
    sl_journal_file_close(g);
    assert_string_equal(recover(), "1");
}

UNIT_TEST(a_new_file_removes_the_note_of_an_error)
{
    struct sl_life life;
    struct sl_journal_file *f = create();
    assert_int_equal(write_one(f, 1, 1), 0);
    sl_journal_file_note_error(directory);
    sl_journal_file_note_error(directory);
    sl_journal_life(directory, &life);
    assert_true(life.had_error);
    recover();
    assert_false(recovery.same_life);
    assert_int_equal(sl_journal_file_replace(f), 0);
    copy_life(f);
    assert_int_equal(sl_journal_file_commit(f), 0);
    sl_journal_life(directory, &life);
    assert_false(life.had_error);
    sl_journal_file_close(f);
    recover();
    assert_true(recovery.same_life);
}

/* --- Limits ----------------------------------------------------------------------------- */

UNIT_TEST(a_file_does_not_exceed_its_limit)
{
    struct sl_journal_file *f = create();
    sl_journal_file_limit(f, 8192);
    uint64_t i = 1;
    int error;
    while ((error = write_one(f, i, i)) == 0) i++;
    assert_int_equal(error, EFBIG);
    assert_true(sl_journal_file_bytes(f) <= 8192);
    assert_true(i > 10);
    /* Nothing more is written, because the position of the lost frame would be missing. */
    sl_journal_file_limit(f, UINT64_MAX);
    assert_int_equal(write_one(f, i + 1, i + 1), EFBIG);
    assert_int_equal(sl_journal_file_sync(f), 0);
    assert_false(exists(SL_JOURNAL_ERROR));
    sl_journal_file_close(f);
    recover();
    assert_true(recovery.chain.position == i - 1);
}

UNIT_TEST(space_can_be_reserved_before_a_frame_is_built)
{
    struct sl_journal_file *f = create();
    assert_int_equal(sl_journal_file_reserve(f, 3u << 20), 0);
    off_t size = status_of(SL_JOURNAL_NAME).st_size;
    assert_true(size >= 3 << 20);
    for (uint64_t i = 1; i <= 1000; i++) assert_int_equal(write_one(f, i % 400, i), 0);
    assert_true(status_of(SL_JOURNAL_NAME).st_size == size);
    /* Without space, nothing more is written. */
    sl_journal_file_limit(f, sl_journal_file_bytes(f) + 1000);
    assert_int_equal(sl_journal_file_reserve(f, 1000), 0);
    assert_int_equal(sl_journal_file_reserve(f, 1001), EFBIG);
    assert_int_equal(write_one(f, 1, 1001), EFBIG);
    assert_int_equal(sl_journal_file_sync(f), 0);
    sl_journal_file_close(f);
    recover();
    assert_true(recovery.chain.position == 1000);
}

UNIT_TEST(a_file_allocates_no_space_beyond_its_limit)
{
    const uint64_t limit = (3u << 20) + 100;
    struct sl_journal_file *f = create();
    uint64_t i = 1;
    sl_journal_file_limit(f, limit);
    while (write_one(f, i, i) == 0) i++;
    assert_true(sl_journal_file_bytes(f) > limit - 1000);
    assert_true((uint64_t)status_of(SL_JOURNAL_NAME).st_size <= limit);
    sl_journal_file_close(f);
}

UNIT_TEST(a_replacement_that_exceeds_the_limit_leaves_the_old_file)
{
    struct sl_journal_file *f = create();
    assert_int_equal(write_one(f, 1, 1), 0);
    assert_int_equal(sl_journal_file_replace(f), 0);
    sl_journal_file_limit(f, sl_journal_file_bytes(f));
    while (copy_one(f, 1) == 0) {}
    assert_int_equal(copy_one(f, 1), EFBIG);
    sl_journal_file_limit(f, UINT64_MAX);
    assert_int_equal(write_one(f, 2, 2), 0);
    assert_int_equal(sl_journal_file_commit(f), EFBIG);
    sl_journal_file_drop(f);
    assert_int_equal(write_one(f, 3, 3), 0);
    assert_int_equal(sl_journal_file_sync(f), 0);
    assert_string_equal(recover(), "1 2 3");
    assert_true(recovery.same_life);
    sl_journal_file_close(f);
}

/* --- File systems ------------------------------------------------------------------------ */

static enum sl_journal_place place_of(const char *name)
{
    int fd = open(name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    enum sl_journal_place place = fd < 0 ? SL_PLACE_UNKNOWN : sl_journal_place(fd);
    if (fd >= 0) close(fd);
    return place;
}

UNIT_TEST(shared_memory_is_no_place_for_durable_files)
{
    assert_int_equal(place_of("/dev/shm"), SL_PLACE_MEMORY);
    assert_int_equal(place_of("/proc"), SL_PLACE_UNKNOWN);
    assert_int_equal(sl_journal_place(-1), SL_PLACE_UNKNOWN);
}

/* --- Threads ----------------------------------------------------------------------------- */

struct worker {
    struct sl_journal_file *f;
    int error;
    bool commits;
    atomic_bool done;
};

static void *work(void *of)
{
    struct worker *w = of;
    w->error = w->commits ? sl_journal_file_commit(w->f) : sl_journal_file_sync(w->f);
    atomic_store_explicit(&w->done, true, memory_order_release);
    return NULL;
}

/* Write frames while a worker syncs or commits. Returns the next position. */
static uint64_t write_during(struct sl_journal_file *f, bool commits, uint64_t position)
{
    struct worker w = {.f = f, .commits = commits};
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, work, &w), 0);
    do {
        assert_int_equal(write_one(f, position % 100, position), 0);
        position++;
        assert_true(sl_journal_file_in_place(f));
    } while (!atomic_load_explicit(&w.done, memory_order_acquire));
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_int_equal(w.error, 0);
    return position;
}

UNIT_TEST(the_loop_writes_while_a_worker_syncs_and_commits)
{
    struct sl_journal_file *f = create();
    uint64_t position = 1;
    for (int i = 0; i < 20; i++) {
        position = write_during(f, false, position);
        assert_int_equal(sl_journal_file_replace(f), 0);
        copy_life(f);
        for (uint64_t n = 0; n < 100 && n < position; n++)
            if (n > 0 || position > 100) assert_int_equal(copy_one(f, n), 0);
        position = write_during(f, true, position);
        sl_journal_file_switch(f);
        recover();
        assert_true(recovery.same_life);
        assert_true(recovery.chain.position == position - 1);
    }
    sl_journal_file_close(f);
}

int main(void)
{
    return run_unit_tests_with("journal_file", make_directory, remove_directory);
}
