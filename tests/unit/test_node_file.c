/* test_node_file.c - what a node keeps on its disk: the same comes out again; and a file that
 * was cut, or has another byte, is never taken for a good one. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "test.h"

#include "server/data/node_file.h"

static char path[] = "/tmp/sluice-unit.XXXXXX";
static int directory;
static bool has_journal;

static int make_directory(void **state)
{
    (void)state;
    if (mkdtemp(path) == NULL) return -1;
    directory = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    return directory < 0 ? -1 : 0;
}

static int remove_directory(void **state)
{
    (void)state;
    unlinkat(directory, "node", 0);
    unlinkat(directory, "node.new", 0);
    close(directory);
    return rmdir(path);
}

static struct sl_membership list_of(uint64_t version, uint32_t count)
{
    struct sl_membership l = {.version = version, .count = count};
    for (uint32_t i = 0; i < count; i++) {
        l.at[i].id = i + 3;
        snprintf(l.at[i].address, sizeof l.at[i].address, "host-%u.example:%u", i,
                 5627 + i);
    }
    return l;
}

static struct sl_node_durable a_full_one(void)
{
    struct sl_node_durable d = {.id = SL_NODE_ID_MAX,
                                .birth = UINT64_MAX,
                                .fence_limit = SL_FENCE_MAX,
                                .lease_longest_ms = 86400000,
                                .force = list_of(7, SL_NODES_MAX),
                                .promised = {UINT64_MAX, SL_NODE_ID_MAX},
                                .accepted = {3, 2},
                                .vote = list_of(8, 3),
                                .stored = list_of(8, 3)};
    d.vote.added = 4;
    d.vote.at[1].birth = 0x8000000000000001u;
    for (uint32_t i = 0; i < SL_NODES_MAX; i++)
        d.births[i] = (struct sl_node_birth){i + 1, UINT64_MAX - i};
    memset(d.force.at[0].address, 'a', SL_ADDRESS_BYTES - 1); /* The longest. */
    return d;
}

static void write_it(const struct sl_node_durable *d)
{
    struct sl_textfile_writer *w = sl_textfile_writer_new();
    assert_non_null(w);
    assert_int_equal(sl_node_file_write(w, directory, d), 0);
    free(w);
}

static void write_raw(const char *text, size_t n)
{
    int fd = openat(directory, "node", O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    assert_int_equal(write(fd, text, n), (ssize_t)n);
    close(fd);
}

static size_t read_raw(char *text, size_t max)
{
    int fd = openat(directory, "node", O_RDONLY | O_CLOEXEC);
    ssize_t n = read(fd, text, max);
    assert_true(n > 0 && (size_t)n < max);
    close(fd);
    return (size_t)n;
}

static void what_is_written_is_read_again(void **state)
{
    (void)state;
    struct sl_node_durable full = a_full_one(), got;
    struct sl_node_durable first = {.id = 1, .birth = 1};
    write_it(&full);
    assert_int_equal(sl_node_file_read(directory, &got, &has_journal), SL_FOUND);
    assert_memory_equal(&got, &full, sizeof got);
    write_it(&first);
    assert_int_equal(sl_node_file_read(directory, &got, &has_journal), SL_FOUND);
    assert_memory_equal(&got, &first, sizeof got);
    assert_int_equal(faccessat(directory, "node.new", F_OK, 0), -1);
}

static void without_a_file_nothing_is_found(void **state)
{
    (void)state;
    struct sl_node_durable got;
    unlinkat(directory, "node", 0);
    assert_int_equal(sl_node_file_read(directory, &got, &has_journal),
                     SL_FOUND_NOTHING);
    assert_int_equal(mkdirat(directory, "node", 0700), 0);
    assert_int_equal(sl_node_file_read(directory, &got, &has_journal),
                     SL_FOUND_UNREADABLE);
    assert_int_equal(errno, EISDIR);
    assert_int_equal(unlinkat(directory, "node", AT_REMOVEDIR), 0);
}

static void a_file_that_was_cut_is_not_good(void **state)
{
    (void)state;
    struct sl_node_durable full = a_full_one(), got;
    char text[8192];
    write_it(&full);
    size_t n = read_raw(text, sizeof text);
    for (size_t i = 0; i < n; i++) {
        write_raw(text, i);
        enum sl_found found = sl_node_file_read(directory, &got, &has_journal);
        assert_true(found == SL_FOUND_CUT || found == SL_FOUND_DAMAGED);
    }
}

static void a_file_with_another_byte_is_not_good(void **state)
{
    (void)state;
    struct sl_node_durable full = a_full_one(), got;
    char text[8192];
    write_it(&full);
    size_t n = read_raw(text, sizeof text);
    for (size_t i = 0; i < n; i++) {
        text[i] ^= 1;
        write_raw(text, n);
        assert_int_not_equal(sl_node_file_read(directory, &got, &has_journal),
                             SL_FOUND);
        text[i] ^= 1;
    }
}

static void an_address_that_could_not_be_read_again_is_not_written(void **state)
{
    (void)state;
    struct sl_node_durable good = {.id = 1, .birth = 5}, bad = a_full_one(), got;
    struct sl_textfile_writer *w = sl_textfile_writer_new();
    strcpy(bad.stored.at[1].address, "two\nlines:1");
    write_it(&good);
    assert_int_equal(sl_node_file_write(w, directory, &bad), EINVAL);
    assert_int_equal(sl_node_file_read(directory, &got, &has_journal), SL_FOUND);
    assert_int_equal(got.birth, 5);
    free(w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_written_is_read_again),
        cmocka_unit_test(without_a_file_nothing_is_found),
        cmocka_unit_test(a_file_that_was_cut_is_not_good),
        cmocka_unit_test(a_file_with_another_byte_is_not_good),
        cmocka_unit_test(an_address_that_could_not_be_read_again_is_not_written),
    };
    return cmocka_run_group_tests(tests, make_directory, remove_directory);
}
