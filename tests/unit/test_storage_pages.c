/* test_storage_pages.c - the check of a store's file before LMDB maps it: each rule finds a file
 * that breaks it, and no content of the file crashes the check. */
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "test.h"

#include "storage_stage.h"

#include "storage/lmdb/store.h"

#define SEED 20261116u
#define TRIALS 1500

static struct stage stage;

/* A store with large values, and with pages that are free again. */
static int begin(void **state)
{
    static char large[20000];
    char key[16];
    memset(large, 'l', sizeof large - 1);
    stage_begin(&stage, &lmdb_kind);
    uint64_t term = claim(&stage);
    for (int i = 0; i < 60; i++) {
        snprintf(key, sizeof key, "%d", i);
        const char *value = i % 20 == 0 ? large : large + sizeof large - 300;
        assert_int_equal(put(&stage, term, 1, key, "t", key, value, NULL), SLUICE_OK);
    }
    for (int i = 0; i < 20; i += 2) {
        snprintf(key, sizeof key, "%d", i);
        assert_int_equal(del(&stage, term, "t", key), SLUICE_OK);
    }
    stage_close(&stage);
    *state = &stage;
    return 0;
}

static int end(void **state)
{
    stage_open(*state);
    stage_end(*state);
    return 0;
}

/* --- The file ------------------------------------------------------------------ */

struct file {
    int fd;
    size_t n, page;
    char *bytes; /* As it was. */
};

static struct file open_file(const struct stage *s)
{
    char path[200];
    struct stat st;
    struct file f = {.page = (size_t)sysconf(_SC_PAGESIZE)};
    assert_true(sl_store_path(s->directory, SL_STORE_FILE, path, sizeof path));
    f.fd = open(path, O_RDWR);
    assert_true(f.fd >= 0);
    assert_int_equal(fstat(f.fd, &st), 0);
    f.n = (size_t)st.st_size;
    f.bytes = malloc(f.n);
    assert_non_null(f.bytes);
    assert_int_equal(pread(f.fd, f.bytes, f.n, 0), f.n);
    return f;
}

static void close_file(struct file *f)
{
    close(f->fd);
    free(f->bytes);
}

static size_t number_at(const struct file *f, size_t at)
{
    size_t n;
    memcpy(&n, f->bytes + at, sizeof n);
    return n;
}

static size_t short_at(const struct file *f, size_t at)
{
    uint16_t n;
    memcpy(&n, f->bytes + at, sizeof n);
    return n;
}

/* Where the roots of the trees are, in the newer of both metas. */
enum { MAP = 32, FREE = 40, MAIN = 88, LAST = 136, TXN = 144, ENTRIES = 32, ROOT = 40 };

static size_t meta_of(const struct file *f)
{
    return number_at(f, TXN) < number_at(f, f->page + TXN) ? f->page : 0;
}

static size_t node_of(const struct file *f, size_t page, size_t i)
{
    return page * f->page + short_at(f, page * f->page + 16 + 2 * i);
}

/* The root of a database, as it is in the main tree. */
static size_t database(const struct file *f, const char *name)
{
    size_t main = number_at(f, meta_of(f) + MAIN + ROOT);
    for (size_t i = 0; i < 5; i++) {
        size_t node = node_of(f, main, i);
        if (short_at(f, node + 6) == strlen(name) &&
            memcmp(f->bytes + node + 8, name, strlen(name)) == 0)
            return node + 8 + strlen(name);
    }
    fail_msg("there is no %s", name);
    return 0;
}

/* Writes these bytes, expects this message from the check, and restores the file. */
static void damaged(const struct stage *s, const struct file *f, size_t at,
                    const void *bytes, size_t n, const char *words)
{
    char why[SL_STORAGE_WHY_BYTES];
    assert_int_equal(pwrite(f->fd, bytes, n, (off_t)at), n);
    assert_int_equal(sl_store_check_pages(s->directory, why, sizeof why),
                     SLUICE_ETRUNCATED);
    if (strstr(why, words) == NULL) fail_msg("it says: %s", why);
    assert_int_equal(sl_storage_try_lmdb(s->directory, 60000, why, sizeof why),
                     SLUICE_ETRUNCATED);
    assert_non_null(strstr(why, "is damaged; restore a copy"));
    assert_int_equal(pwrite(f->fd, f->bytes + at, n, (off_t)at), n);
    assert_int_equal(sl_store_check_pages(s->directory, why, sizeof why), SLUICE_OK);
}

static void damaged_number(const struct stage *s, const struct file *f, size_t at,
                           size_t n, const char *words)
{
    damaged(s, f, at, &n, sizeof n, words);
}

/* --- Rules --------------------------------------------------------------------- */

static void each_page_has_one_owner(void **state)
{
    struct file f = open_file(*state);
    size_t meta = meta_of(&f), free_root = number_at(&f, meta + FREE + ROOT);
    size_t main_root = number_at(&f, meta + MAIN + ROOT);
    size_t data = database(&f, "data"), data_root = number_at(&f, data + ROOT);
    assert_int_equal(short_at(&f, free_root * f.page + 10), 2); /* It is a leaf, */
    assert_int_equal(short_at(&f, data_root * f.page + 10), 1); /* and this a branch. */
    /* A page that is in use is said to be free: LMDB would overwrite it. */
    size_t list = node_of(&f, free_root, 0) + 8 + 8;
    assert_true(number_at(&f, list) > 0);
    damaged_number(*state, &f, list + 8, main_root, "used twice");
    damaged_number(*state, &f, list + 8, 1, "page 1 does not exist");
    /* LMDB would use the pages of transaction 0 again and again. */
    damaged_number(*state, &f, list - 8, 0, "the list of transaction 0");
    /* A branch leads back to itself. */
    uint16_t self = (uint16_t)data_root;
    damaged(*state, &f, node_of(&f, data_root, 1), &self, sizeof self, "used twice");
    damaged_number(*state, &f, data_root * f.page, data_root + 1, "wrong page number");
    close_file(&f);
}

static void page_numbers_are_within_the_file(void **state)
{
    struct file f = open_file(*state);
    size_t meta = meta_of(&f), last = number_at(&f, meta + LAST);
    size_t data = database(&f, "data");
    damaged_number(*state, &f, data + ROOT, last + 1, "does not exist");
    damaged_number(*state, &f, data + ROOT, SIZE_MAX / 2, "does not exist");
    damaged_number(*state, &f, meta + LAST, SIZE_MAX / 2, "meta page");
    damaged_number(*state, &f, meta + LAST, 4, "does not exist");
    /* The map may be as large as that page needs. */
    size_t map = (size_t)1 << 40;
    assert_int_equal(pwrite(f.fd, &map, sizeof map, (off_t)(meta + MAP)), sizeof map);
    damaged_number(*state, &f, meta + LAST, 1 << 20, "far beyond the end");
    map = number_at(&f, meta + MAP);
    assert_int_equal(pwrite(f.fd, &map, sizeof map, (off_t)(meta + MAP)), sizeof map);
    close_file(&f);
}

static void overlapping_nodes_of_a_page_are_reported(void **state)
{
    struct file f = open_file(*state);
    size_t root = number_at(&f, database(&f, "meta") + ROOT);
    const uint16_t behind = (uint16_t)(f.page - 4), odd = 4001, long_key = 511,
                   longer = 600, first = (uint16_t)(node_of(&f, root, 0) % f.page);
    size_t pointer = root * f.page + 16, node = node_of(&f, root, 0);
    damaged(*state, &f, pointer, &behind, 2, "has an invalid offset");
    damaged(*state, &f, pointer, &odd, 2, "has an invalid offset");
    damaged(*state, &f, pointer + 2, &first, 2,
            "is too long or overlaps"); /* The same twice. */
    damaged(*state, &f, node + 6, &long_key, 2, "is too long or overlaps");
    damaged(*state, &f, node + 6, &longer, 2,
            "key 0 has an invalid length of 600 bytes");
    damaged(*state, &f, node + 4, "\4", 1, "has invalid flags 4");
    damaged(*state, &f, root * f.page + 10, "\1", 1, "has invalid flags 1");
    damaged(*state, &f, root * f.page + 12, "\2\0", 2, "has invalid bounds");
    close_file(&f);
}

static void keys_are_in_order_and_counts_match(void **state)
{
    struct file f = open_file(*state);
    size_t data = database(&f, "data"), meta = meta_of(&f);
    size_t root = number_at(&f, database(&f, "meta") + ROOT);
    size_t pointers = root * f.page + 16;
    char swapped[4];
    memcpy(swapped, f.bytes + pointers + 2, 2);
    memcpy(swapped + 2, f.bytes + pointers, 2);
    damaged(*state, &f, pointers, swapped, 4, "out of order");
    damaged_number(*state, &f, data + ENTRIES, number_at(&f, data + ENTRIES) + 1,
                   "wrong count of pages");
    damaged(*state, &f, data + 6, "\1", 1, "has invalid flags"); /* Its depth. */
    damaged(*state, &f, data + 4, "\4", 1, "invalid flags 4");
    damaged_number(*state, &f, meta + TXN, number_at(&f, meta + TXN) + 1, "meta page");
    damaged(*state, &f, meta + 16, "x", 1, "meta page"); /* LMDB's mark. */
    damaged(*state, &f, database(&f, "data") - 1, "x", 1, "a database is missing");
    close_file(&f);
}

/* --- All of it ------------------------------------------------------------------- */

/* Of the records. */
static size_t first_leaf(const struct file *f)
{
    size_t root = number_at(f, database(f, "data") + ROOT);
    size_t node = node_of(f, root, 0);
    return short_at(f, node); /* There are few pages. */
}

static void a_store_is_checked_in_a_child_process(void **state)
{
    struct stage *s = *state;
    struct file f = open_file(s);
    char why[SL_STORAGE_WHY_BYTES];
    assert_int_equal(sl_storage_try_lmdb(s->directory, 60000, why, sizeof why),
                     SLUICE_OK);
    assert_int_equal(sl_storage_try_lmdb("/nonexistent", 60000, why, sizeof why),
                     SLUICE_ENOENT);
    assert_int_equal(sl_storage_try_lmdb(s->directory, -1, why, sizeof why),
                     SLUICE_ETRUNCATED);
    assert_non_null(strstr(why, "could not be checked in time"));
    /* The value of a record that is in use has another byte. */
    size_t leaf = first_leaf(&f), node = node_of(&f, leaf, 0);
    size_t value = node + 8 + short_at(&f, node + 6) + 16;
    assert_int_equal(f.bytes[value], 'l');
    assert_int_equal(pwrite(f.fd, "L", 1, (off_t)value), 1);
    assert_int_equal(sl_storage_try_lmdb(s->directory, 60000, why, sizeof why),
                     SLUICE_ETRUNCATED);
    assert_non_null(strstr(why, "wrong checksum"));
    assert_int_equal(ftruncate(f.fd, (off_t)(f.n / 2)), 0);
    assert_int_equal(sl_storage_try_lmdb(s->directory, 60000, why, sizeof why),
                     SLUICE_ETRUNCATED);
    assert_int_equal(ftruncate(f.fd, 0), 0);
    assert_int_equal(sl_storage_try_lmdb(s->directory, 60000, why, sizeof why),
                     SLUICE_ETRUNCATED);
    assert_int_equal(pwrite(f.fd, "hello\n", 6, 0), 6);
    assert_int_equal(sl_storage_try_lmdb(s->directory, 60000, why, sizeof why),
                     SLUICE_EFOREIGN);
    assert_int_equal(pwrite(f.fd, f.bytes, f.n, 0), f.n);
    close_file(&f);
}

static uint64_t drawn(uint64_t *seed)
{
    *seed = *seed * 6364136223846793005u + 1442695040888963407u;
    return *seed >> 33;
}

/* What it finds is another matter: it comes to an end, within the file. */
static void random_damage_never_crashes_the_check(void **state)
{
    struct stage *s = *state;
    struct file f = open_file(s);
    uint64_t seed = SEED;
    int found = 0;
    char why[SL_STORAGE_WHY_BYTES], bytes[8];
    for (int i = 0; i < TRIALS; i++) {
        size_t at = i % 3 == 0 ? drawn(&seed) % f.n
                               : drawn(&seed) % (f.n / f.page) * f.page +
                                     drawn(&seed) % (i % 3 == 1 ? 64 : f.page);
        size_t n = 1 + drawn(&seed) % sizeof bytes;
        if (at + n > f.n) n = f.n - at;
        for (size_t j = 0; j < n; j++) bytes[j] = (char)drawn(&seed);
        assert_int_equal(pwrite(f.fd, bytes, n, (off_t)at), n);
        if (sl_store_check_pages(s->directory, why, sizeof why) != SLUICE_OK) found++;
        assert_int_equal(pwrite(f.fd, f.bytes + at, n, (off_t)at), n);
    }
    assert_int_equal(sl_store_check_pages(s->directory, why, sizeof why), SLUICE_OK);
    if (found < TRIALS / 50) fail_msg("only %d of %d were found", found, TRIALS);
    close_file(&f);
}

#define TEST(name) cmocka_unit_test(name)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(each_page_has_one_owner),
        TEST(page_numbers_are_within_the_file),
        TEST(overlapping_nodes_of_a_page_are_reported),
        TEST(keys_are_in_order_and_counts_match),
        TEST(a_store_is_checked_in_a_child_process),
        TEST(random_damage_never_crashes_the_check),
    };
    return cmocka_run_group_tests(tests, begin, end);
}
