/* test_storage_store.c - the storage of one server and its file: what is refused, a disk that
 * does not say what became of a write, clocks that jump, and no memory. */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "test.h"

#include "storage_stage.h"

#include "storage/lmdb/store.h"

#if defined(__SANITIZE_ADDRESS__)
#define OWN_MEMORY 0 /* The sanitizer has its own. */
#else
#define OWN_MEMORY 1
#endif

static struct stage stage;

static int begin(void **state)
{
    stage_begin(&stage, &lmdb_kind);
    *state = &stage;
    return 0;
}

static int end(void **state)
{
    memset(&disk, 0, sizeof disk);
    stage_end(*state);
    return 0;
}

static const char *path_of(const struct stage *s, const char *name)
{
    static char path[200];
    assert_true(sl_store_path(s->directory, name, path, sizeof path));
    return path;
}

/* --- Refused ----------------------------------------------------------------- */

static void refused(struct stage *s, const char *words)
{
    char why[400] = "";
    assert_null(sl_storage_open_lmdb(&s->settings, why, sizeof why));
    if (strstr(why, words) == NULL) fail_msg("it says: %s", why);
}

/* The file is this instead. */
static void write_file(struct stage *s, const void *bytes, size_t n)
{
    const char *path = path_of(s, SL_STORE_FILE);
    unlink(path);
    int fd = open(path, O_WRONLY | O_CREAT, 0600);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, bytes, n), n);
    close(fd);
}

static void close_and_remove(struct stage *s)
{
    sl_storage_close(s->storage);
    s->storage = NULL;
    unlink(path_of(s, SL_STORE_FILE));
    unlink(path_of(s, SL_STORE_FILE "-lock"));
}

UNIT_TEST(a_file_of_another_program_is_rejected)
{
    static char noise[65536];
    struct stage *s = *state;
    close_and_remove(s);
    write_file(s, "hello\n", 6);
    refused(s, "not a store of Sluice");
    for (size_t i = 0; i < sizeof noise; i++) noise[i] = (char)(i * 7);
    write_file(s, noise, sizeof noise);
    refused(s, "not a store of Sluice");
    unlink(path_of(s, SL_STORE_FILE));
    assert_int_equal(mkdir(path_of(s, SL_STORE_FILE), 0700), 0);
    refused(s, "not a store of Sluice");
}

UNIT_TEST(an_lmdb_file_of_others_is_rejected)
{
    struct stage *s = *state;
    MDB_env *env;
    MDB_txn *txn;
    MDB_dbi dbi;
    MDB_val v = {1, "x"};
    close_and_remove(s);
    assert_int_equal(mdb_env_create(&env), 0);
    mdb_env_set_maxdbs(env, 5);
    assert_int_equal(mdb_env_open(env, path_of(s, SL_STORE_FILE), MDB_NOSUBDIR, 0600),
                     0);
    assert_int_equal(mdb_txn_begin(env, NULL, 0, &txn), 0);
    assert_int_equal(mdb_dbi_open(txn, "meta", MDB_CREATE, &dbi), 0);
    assert_int_equal(mdb_put(txn, dbi, &v, &v, 0), 0);
    assert_int_equal(mdb_txn_commit(txn), 0);
    mdb_env_close(env);
    refused(s, "not a store of Sluice");
}

/* Change a number of the store, from below. */
static void set_number(struct stage *s, const char *name, uint64_t n)
{
    struct sl_store store;
    char why[300];
    MDB_txn *txn;
    assert_int_equal(sl_store_open(&store, s->directory, 1 << 20, why, sizeof why), 0);
    assert_int_equal(mdb_txn_begin(store.env, NULL, 0, &txn), 0);
    assert_int_equal(sl_store_put_number(&store, txn, name, n), 0);
    assert_int_equal(mdb_txn_commit(txn), 0);
    sl_store_close(&store);
}

UNIT_TEST(a_store_of_another_version_is_rejected)
{
    struct stage *s = *state;
    stage_close(s);
    set_number(s, "sluice format", SL_STORE_FORMAT + 1);
    refused(s, "another version");
    struct stat st;
    assert_int_equal(stat(path_of(s, SL_STORE_FILE), &st), 0);
}

/* Bars do not fill the store: above a bound the oldest goes. */
UNIT_TEST(the_oldest_bar_goes_first)
{
    struct stage *s = *state;
    struct sl_store store;
    char why[300];
    MDB_txn *txn;
    bool barred;
    stage_close(s);
    assert_int_equal(sl_store_open(&store, s->directory, 1 << 20, why, sizeof why), 0);
    assert_int_equal(mdb_txn_begin(store.env, NULL, 0, &txn), 0);
    for (uint64_t id = 255; id <= 258; id++) {
        assert_int_equal(sl_store_bar(&store, txn, 1, id), 0);
        assert_int_equal(sl_store_unbar_oldest(&store, txn, 3), 0);
    }
    for (uint64_t id = 255; id <= 258; id++) {
        assert_int_equal(sl_store_is_barred(&store, txn, 1, id, &barred), 0);
        assert_int_equal(barred, id != 255);
    }
    mdb_txn_abort(txn);
    sl_store_close(&store);
}

static void put_many(struct stage *s, int n)
{
    char key[16], value[500];
    uint64_t term = claim(s);
    memset(value, 'v', sizeof value - 1);
    value[sizeof value - 1] = '\0';
    for (int i = 0; i < n; i++) {
        snprintf(key, sizeof key, "%d", i);
        assert_int_equal(put(s, term, 1, key, "t", key, value, NULL), SLUICE_OK);
    }
}

UNIT_TEST(a_truncated_file_is_rejected_and_left_unchanged)
{
    struct stage *s = *state;
    struct stat st;
    put_many(s, 300);
    stage_close(s);
    const char *path = path_of(s, SL_STORE_FILE);
    assert_int_equal(stat(path, &st), 0);
    for (off_t n = st.st_size / 2; n > 8192; n /= 2) {
        n &= ~(off_t)4095;
        assert_int_equal(truncate(path, n), 0);
        refused(s, "damaged");
        assert_int_equal(stat(path, &st), 0);
        assert_int_equal(st.st_size, n);
    }
    assert_int_equal(truncate(path, 100), 0);
    refused(s, "not a store of Sluice");
    assert_int_equal(truncate(path, 0), 0);
    refused(s, "damaged");
    unlink(path);
    stage_open(s);
}

/* The last pages of a good store may be free, and never written. */
UNIT_TEST(a_short_file_of_which_nothing_is_missing_is_opened)
{
    struct stage *s = *state;
    struct stat st;
    char key[16];
    put_many(s, 300);
    uint64_t term = claim(s);
    for (int i = 0; i < 300; i++) {
        snprintf(key, sizeof key, "%d", i);
        assert_int_equal(del(s, term, "t", key), SLUICE_OK);
    }
    stage_close(s);
    const char *path = path_of(s, SL_STORE_FILE);
    char page[4096], zero[4096] = {0};
    assert_int_equal(stat(path, &st), 0);
    /* Cut what may be cut: the last page is free if the store is good without it. */
    int fd = open(path, O_RDWR);
    off_t last = st.st_size - 4096;
    assert_int_equal(pread(fd, page, sizeof page, last), 4096);
    assert_int_equal(pwrite(fd, zero, sizeof zero, last), 4096);
    struct sl_store store;
    struct sl_store_counts counts;
    char why[300];
    assert_int_equal(sl_store_open(&store, s->directory, 0, why, sizeof why), 0);
    bool good = sl_store_check(&store, &counts, why, sizeof why) == SLUICE_OK;
    sl_store_close(&store);
    if (!good) {
        assert_int_equal(pwrite(fd, page, sizeof page, last), 4096);
        close(fd);
        fail_msg("the last page is in use: make another store");
    }
    close(fd);
    assert_int_equal(truncate(path, last), 0);
    stage_open(s);
    assert_int_equal(put(s, claim(s), 1, NULL, "t", "k", "v", NULL), SLUICE_OK);
}

UNIT_TEST(there_must_be_a_directory_and_enough_space)
{
    struct stage *s = *state;
    struct sl_storage_settings before = s->settings;
    stage_close(s);
    s->settings.directory = "/tmp/sluice-test.none/such";
    refused(s, "does not exist");
    s->settings = before;
    s->settings.bytes_max = 1000;
    refused(s, "store-bytes-max must be at least");
    s->settings = before;
}

UNIT_TEST(one_that_did_not_come_to_its_end_leaves_nothing)
{
    struct stage *s = *state;
    struct sl_store store;
    char why[300];
    close_and_remove(s);
    assert_int_equal(sl_store_begin(&store, s->directory, 1 << 20, why, sizeof why), 0);
    sl_store_close(&store); /* And it is killed. */
    assert_int_equal(access(path_of(s, SL_STORE_FILE "-new"), F_OK), 0);
    stage_open(s);
    assert_int_equal(claim(s), 1);
    assert_int_not_equal(access(path_of(s, SL_STORE_FILE "-new"), F_OK), 0);
    assert_int_not_equal(access(path_of(s, SL_STORE_FILE "-new-lock"), F_OK), 0);
}

/* --- Damage ------------------------------------------------------------------ */

UNIT_TEST(a_changed_value_is_noticed_when_it_is_read)
{
    static const char value[] = "a value that stands in one place of the file";
    struct stage *s = *state;
    struct stat st;
    assert_int_equal(put(s, claim(s), 1, NULL, "t", "k", value, NULL), SLUICE_OK);
    assert_int_equal(put(s, 1, 1, NULL, "t", "l", "good", NULL), SLUICE_OK);
    stage_close(s);
    int fd = open(path_of(s, SL_STORE_FILE), O_RDWR);
    assert_int_equal(fstat(fd, &st), 0);
    char *all = malloc((size_t)st.st_size);
    assert_int_equal(pread(fd, all, (size_t)st.st_size, 0), st.st_size);
    for (char *at = all; at != NULL;) {
        at = memmem(at, (size_t)(all + st.st_size - at), value, strlen(value));
        if (at == NULL) break;
        at[3] ^= 1; /* Old pages have it as well. */
    }
    assert_int_equal(pwrite(fd, all, (size_t)st.st_size, 0), st.st_size);
    stage_open(s);
    struct sl_storage_op op = {
        .type = SL_STORAGE_READ, .table = text("t"), .key = text("k")};
    assert_int_equal(do_op(s, &op, NULL), SLUICE_EIO);
    op.type = SL_STORAGE_SCAN;
    op.key = (struct sl_bytes){NULL, 0};
    op.rows_max = 10;
    assert_int_equal(do_op(s, &op, NULL), SLUICE_EIO);
    assert_string_equal(value_of(s, "t", "l"), "good");
    assert_int_equal(put(s, 1, 1, NULL, "t", "k", "new", NULL), SLUICE_OK);
    assert_string_equal(value_of(s, "t", "k"), "new");
    free(all);
    close(fd);
}

typedef int change(struct sl_store *store, MDB_txn *txn);

static int high_revision(struct sl_store *store, MDB_txn *txn)
{
    return sl_store_put_number(store, txn, SL_STORE_REVISION, 1);
}

static int no_term(struct sl_store *store, MDB_txn *txn)
{
    return sl_store_put_number(store, txn, SL_STORE_TERM, 0);
}

static int old_bar(struct sl_store *store, MDB_txn *txn)
{
    return sl_store_bar(store, txn, 77, 1);
}

static int lost_request(struct sl_store *store, MDB_txn *txn)
{
    MDB_val k = {2, "r2"};
    return mdb_del(txn, store->requests, &k, NULL);
}

static int lost_order(struct sl_store *store, MDB_txn *txn)
{
    char one[8] = {0, 0, 0, 0, 0, 0, 0, 1};
    MDB_val k = {8, one};
    return mdb_del(txn, store->order, &k, NULL);
}

static int time_back(struct sl_store *store, MDB_txn *txn)
{
    char bytes[16] = {0, 0, 0, 0, 0, 0, 0, 2};
    MDB_val k = {2, "r2"}, v = {16, bytes};
    return mdb_put(txn, store->requests, &k, &v, 0);
}

static int more_meta(struct sl_store *store, MDB_txn *txn)
{
    return sl_store_put_number(store, txn, "more", 1);
}

static int strange_name(struct sl_store *store, MDB_txn *txn)
{
    MDB_val k = {3, "\0\7x"}, v = {3, "abc"};
    return mdb_put(txn, store->data, &k, &v, 0);
}

static int strange_record(struct sl_store *store, MDB_txn *txn)
{
    struct sl_store_key key;
    sl_store_key_of(&key, text("t"), text("zero"));
    return sl_store_put_record(store, txn, &key, 0, text("v"));
}

UNIT_TEST(a_check_finds_each_broken_invariant)
{
    static const struct {
        change *change;
        const char *words;
    } cases[] = {{high_revision, "invalid revision 2"},
                 {no_term, "there is a revision (2), but no term"},
                 {old_bar, "the wrong term 77"},
                 {lost_request, "has no request"},
                 {lost_order, "is missing in the database \"order\""},
                 {time_back, "an earlier time than"},
                 {more_meta, "4 numbers found"},
                 {strange_name, "has no name"},
                 {strange_record, "invalid revision 0"}};
    struct stage *s = *state;
    uint64_t term = claim(s);
    assert_int_equal(put(s, term, 1, "r1", "t", "a", "v", NULL), SLUICE_OK);
    assert_int_equal(put(s, term, 1, "r2", "t", "b", "v", NULL), SLUICE_OK);
    assert_int_equal(bar(s, term, 5), SLUICE_OK);
    stage_close(s);
    char copy[200], command[500];
    snprintf(copy, sizeof copy, "%s", path_of(s, "copy"));
    snprintf(command, sizeof command, "cp %s %s", path_of(s, SL_STORE_FILE), copy);
    assert_int_equal(system(command), 0);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct sl_store store;
        struct sl_store_counts counts;
        char why[300] = "";
        MDB_txn *txn;
        assert_int_equal(sl_store_open(&store, s->directory, 1 << 20, why, sizeof why),
                         0);
        assert_int_equal(sl_store_check(&store, &counts, why, sizeof why), SLUICE_OK);
        assert_int_equal(mdb_txn_begin(store.env, NULL, 0, &txn), 0);
        assert_int_equal(cases[i].change(&store, txn), 0);
        assert_int_equal(mdb_txn_commit(txn), 0);
        assert_int_equal(sl_store_check(&store, &counts, why, sizeof why),
                         SLUICE_ETRUNCATED);
        if (strstr(why, cases[i].words) == NULL)
            fail_msg("wanted %s, it says: %s", cases[i].words, why);
        sl_store_close(&store);
        snprintf(command, sizeof command, "cp %s %s", copy, path_of(s, SL_STORE_FILE));
        assert_int_equal(system(command), 0);
    }
}

/* --- A disk that does not say what became of it ------------------------------ */

UNIT_TEST(after_a_failed_write_the_storage_reads_whether_it_was_committed)
{
    struct stage *s = *state;
    struct sl_storage_result got;
    uint64_t term = claim(s);
    assert_int_equal(put(s, term, 1, NULL, "t", "a", "v", NULL), SLUICE_OK);
    /* Neither the new nor the old was written: it is not there, and is done again. */
    disk.first_plan = "ff";
    assert_int_equal(put(s, term, 1, NULL, "t", "b", "v", &got), SLUICE_OK);
    assert_int_equal(got.revision, 2);
    /* It was written, and LMDB was told that it was not: it is not done twice. */
    disk.first_plan = "pf";
    assert_int_equal(put(s, term, 1, NULL, "t", "c", "v", &got), SLUICE_OK);
    assert_int_equal(got.revision, 3);
    struct sl_storage_stats stats;
    sl_storage_stats(s->storage, &stats);
    assert_int_equal(stats.revision, 3);
    assert_int_equal(stats.commits, 3);
    assert_int_equal(put(s, term, 1, NULL, "t", "d", "v", &got), SLUICE_OK);
    assert_int_equal(got.revision, 4);
    stage_reopen(s);
    for (char key[] = "a"; key[0] <= 'd'; key[0]++)
        assert_string_equal(value_of(s, "t", key), "v");
}

/* Also while it is looked at the disk fails, and what is there then may be the transaction
 * of who looks. */
UNIT_TEST(a_commit_that_failed_is_never_reported_as_done)
{
    static const char *const plans[] = {"ffpf", "ffpp",   "fopf",   "popf", "popp",
                                        "pfpf", "ppfppf", "ffpfpf", "pfff"};
    struct stage *s = *state;
    struct sl_storage_result got;
    uint64_t term = claim(s), revision = 0;
    for (size_t i = 0; i < sizeof plans / sizeof *plans; i++) {
        disk.first_plan = plans[i];
        assert_int_equal(put(s, term, 1, plans[i], "t", "k", plans[i], &got),
                         SLUICE_OK);
        assert_string_equal(disk.first_plan, "");
        assert_int_equal(got.revision, ++revision);
        assert_string_equal(value_of(s, "t", "k"), plans[i]);
        assert_int_equal(outcome(s, plans[i]), revision);
    }
    stage_reopen(s);
    for (size_t i = 0; i < sizeof plans / sizeof *plans; i++)
        assert_int_equal(outcome(s, plans[i]), i + 1);
}

/* It was there at the first look, and then the kernel forgot it. */
UNIT_TEST(a_forgotten_commit_is_never_reported_as_done)
{
    struct stage *s = *state;
    uint64_t term = claim(s);
    disk.first_plan = "pfvf";
    assert_int_equal(put(s, term, 1, "r", "t", "k", "v", NULL), SLUICE_OK);
    assert_string_equal(disk.first_plan, "");
    assert_string_equal(value_of(s, "t", "k"), "v");
    assert_true(outcome(s, "r") > 0);
    stage_reopen(s);
    assert_string_equal(value_of(s, "t", "k"), "v");
}

UNIT_TEST(no_commit_is_answered_while_its_outcome_is_unknown)
{
    struct stage *s = *state;
    uint64_t term = claim(s);
    struct sl_storage_write w = {text("t"), text("k"), text("v")};
    struct asked a = {.op = commit_of(term, 0, NULL, &w, 1)};
    disk.first_error = EIO;
    submit(s, &a);
    for (int i = 0; i < 30; i++) {
        nanosleep(&(struct timespec){0, 10000000}, NULL);
        stage_work(s);
        assert_false(a.done);
    }
    disk.first_error = 0;
    await(s, &a);
    assert_int_equal(a.got.status, SLUICE_OK);
    assert_int_equal(a.got.revision, 1);
    forget(&a);
    assert_string_equal(value_of(s, "t", "k"), "v");
}

UNIT_TEST(while_it_is_not_known_others_read)
{
    struct stage *s = *state;
    uint64_t term = claim(s);
    assert_int_equal(put(s, term, 1, NULL, "t", "k", "old", NULL), SLUICE_OK);
    struct sl_storage_write w = {text("t"), text("k"), text("new")};
    static struct asked a; /* The storage may have it longer than this test lasts. */
    a = (struct asked){.op = commit_of(term, 0, NULL, &w, 1)};
    disk.first_error = EIO;
    submit(s, &a);
    for (int i = 0; i < 30; i++) {
        nanosleep(&(struct timespec){0, 10000000}, NULL);
        assert_string_equal(value_of(s, "t", "k"), "old");
        assert_false(a.done);
    }
    disk.first_error = 0;
    await(s, &a);
    assert_int_equal(a.got.status, SLUICE_OK);
    forget(&a);
    assert_string_equal(value_of(s, "t", "k"), "new");
}

enum { LATE = 9 };

/* Some commits that can be known only when the disk is well again, in three groups. */
static void submit_late(struct stage *s, struct asked *a, struct sl_storage_write *w)
{
    uint64_t term = claim(s);
    s->settings.group_max = LATE / 3;
    stage_reopen(s);
    disk.first_error = EIO;
    *w = (struct sl_storage_write){text("t"), text("k"), text("v")};
    for (int i = 0; i < LATE; i++) {
        a[i] = (struct asked){.op = commit_of(term, 0, "r", w, 1)};
        submit(s, &a[i]);
    }
}

static void end_late(struct stage *s, struct asked *a)
{
    for (int i = 0; i < LATE; i++) {
        assert_true(a[i].done);
        assert_int_equal(a[i].got.status, SLUICE_ECLOSED);
        forget(&a[i]);
    }
    disk.first_error = 0;
    if (s->storage == NULL) stage_open(s);
    assert_int_equal(outcome(s, "r") != 0, value_of(s, "t", "k") != NULL);
}

UNIT_TEST(at_the_end_what_is_not_known_is_called_so)
{
    struct stage *s = *state;
    struct asked a[LATE];
    struct sl_storage_write w;
    submit_late(s, a, &w);
    sl_storage_close(s->storage);
    s->storage = NULL;
    end_late(s, a);
}

UNIT_TEST(in_a_hurry_what_is_not_known_is_called_so)
{
    struct stage *s = *state;
    struct asked a[LATE];
    struct sl_storage_write w;
    submit_late(s, a, &w);
    nanosleep(&(struct timespec){0, 300000000}, NULL);
    stage_work(s);
    assert_false(a[0].done);
    sl_storage_hurry(s->storage);
    await(s, &a[LATE - 1]);
    end_late(s, a);
    /* And it goes on. */
    assert_int_equal(put(s, 1, 1, NULL, "t", "k", "more", NULL), SLUICE_OK);
    assert_string_equal(value_of(s, "t", "k"), "more");
}

/* --- A full store that somebody reads ---------------------------------------- */

enum { SMALL = 1 << 20, BARS = 8 };

static size_t file_bytes(const struct stage *s)
{
    struct stat st;
    assert_int_equal(stat(path_of(s, SL_STORE_FILE), &st), 0);
    return (size_t)st.st_size;
}

/* Others read what was there when they began: LMDB reuses nothing. Commits find no room, and
 * yet take nothing of what is kept for bars and claims, however many come. */
UNIT_TEST(a_request_without_space_does_not_use_the_reserve)
{
    struct stage *s = *state;
    struct sl_store other;
    MDB_txn *reader;
    char value[2000], why[300];
    memset(value, 'v', sizeof value - 1);
    value[sizeof value - 1] = '\0';
    s->settings.bytes_max = SMALL;
    stage_reopen(s);
    uint64_t term = claim(s), id = 1;
    assert_int_equal(put(s, term, 1, NULL, "t", "k", value, NULL), SLUICE_OK);
    assert_int_equal(sl_store_open(&other, s->directory, 0, why, sizeof why), 0);
    assert_int_equal(mdb_txn_begin(other.env, NULL, MDB_RDONLY, &reader), 0);
    while (put(s, term, 1, NULL, "t", "k", value, NULL) == SLUICE_OK) {}
    for (int i = 0; i < 200; i++)
        assert_int_equal(put(s, term, 1, NULL, "t", "k", value, NULL), SLUICE_ENOSPC);
    size_t bytes = file_bytes(s);
    for (int i = 0; i < 200; i++)
        assert_int_equal(put(s, term, 1, NULL, "t", "k", value, NULL), SLUICE_ENOSPC);
    assert_int_equal(file_bytes(s), bytes);
    for (int i = 0; i < BARS; i++) assert_int_equal(bar(s, term, ++id), SLUICE_OK);
    mdb_txn_abort(reader);
    sl_store_close(&other);
    /* The first that finds no room makes some. */
    if (put(s, term, 1, NULL, "t", "k", "new", NULL) != SLUICE_OK)
        assert_int_equal(put(s, term, 1, NULL, "t", "k", "new", NULL), SLUICE_OK);
    assert_string_equal(value_of(s, "t", "k"), "new");
}

/* --- Clocks ------------------------------------------------------------------ */

static time_t wall_ahead_s;

int __real_clock_gettime(clockid_t id, struct timespec *out);
int __wrap_clock_gettime(clockid_t id, struct timespec *out);

int __wrap_clock_gettime(clockid_t id, struct timespec *out)
{
    int status = __real_clock_gettime(id, out);
    if (id == CLOCK_REALTIME) out->tv_sec += wall_ahead_s;
    return status;
}

UNIT_TEST(a_clock_that_jumps_forgets_nothing_at_once)
{
    struct stage *s = *state;
    char request[16];
    uint64_t term = claim(s);
    for (int i = 0; i < 20; i++) {
        snprintf(request, sizeof request, "r%d", i);
        if (i == 5) wall_ahead_s = 10000000; /* While it runs nobody looks. */
        if (i == 10) wall_ahead_s = 0;
        assert_int_equal(put(s, term, 1, request, "t", "k", "v", NULL), SLUICE_OK);
    }
    for (int i = 0; i < 20; i++) {
        snprintf(request, sizeof request, "r%d", i);
        assert_int_equal(outcome(s, request), i + 1);
    }
    wall_ahead_s = 10000000; /* Between two runs: as if it had been long. */
    stage_reopen(s);
    assert_int_equal(put(s, term, 1, "s", "t", "k", "v", NULL), SLUICE_OK);
    assert_int_equal(outcome(s, "r0"), 0);
    assert_int_equal(outcome(s, "r19"), 20);
    wall_ahead_s = 0; /* Back: time stands still until then, and does not fall. */
    stage_reopen(s);
    assert_int_equal(put(s, term, 1, "u", "t", "k", "v", NULL), SLUICE_OK);
    assert_int_not_equal(outcome(s, "s"), 0);
    assert_int_not_equal(outcome(s, "u"), 0);
}

/* --- Without memory ---------------------------------------------------------- */

/* LMDB's allocations are counted too: so malloc() itself is ours. */
#if OWN_MEMORY
static atomic_bool armed;         /* Some allocation is to fail: */
static atomic_long until_failure; /* this one; */
static atomic_bool and_all_after;
static atomic_long failures;
static _Thread_local bool spared; /* but none of this thread. */

void *__libc_malloc(size_t n);
void *__libc_calloc(size_t n, size_t size);
void *__libc_realloc(void *p, size_t n);
void *__libc_memalign(size_t align, size_t n);

static bool fails(void)
{
    if (!atomic_load(&armed) || spared) return false;
    long left = atomic_fetch_sub(&until_failure, 1);
    bool now = atomic_load(&and_all_after) ? left <= 0 : left == 0;
    if (now) atomic_fetch_add(&failures, 1);
    return now;
}

void *malloc(size_t n)
{
    return fails() ? errno = ENOMEM, NULL : __libc_malloc(n);
}

void *calloc(size_t n, size_t size)
{
    return fails() ? errno = ENOMEM, NULL : __libc_calloc(n, size);
}

void *realloc(void *p, size_t n)
{
    return fails() ? errno = ENOMEM, NULL : __libc_realloc(p, n);
}

int posix_memalign(void **out, size_t align, size_t n)
{
    if (fails()) return ENOMEM;
    *out = __libc_memalign(align, n);
    return *out != NULL ? 0 : ENOMEM;
}

static void arm(long n, bool all)
{
    atomic_store(&failures, 0);
    atomic_store(&until_failure, n);
    atomic_store(&and_all_after, all);
    atomic_store(&armed, true);
}

static int good_or_no_memory(int status)
{
    assert_true(status == SLUICE_OK || status == SLUICE_ENOMEM);
    return status;
}

/* Something of everything; what was answered is so. Is it the n-th time, the values differ. */
static void act(struct stage *s, uint64_t term, int n)
{
    char value[400], request[16];
    memset(value, 'v', sizeof value);
    snprintf(value, 16, "%d", n);
    snprintf(request, sizeof request, "r%d", n);
    struct sl_storage_result got;
    struct sl_storage_op scan = {
        .type = SL_STORAGE_SCAN, .table = text("t"), .rows_max = 100};
    struct sl_storage_op read = {
        .type = SL_STORAGE_READ, .table = text("t"), .key = text("k")};
    struct sl_storage_op look = {.type = SL_STORAGE_OUTCOME, .request = text(request)};
    int written = good_or_no_memory(put(s, term, 1, request, "t", "k", value, &got));
    good_or_no_memory(bar(s, term, 100 + (uint64_t)n));
    good_or_no_memory(do_op(s, &scan, NULL));
    good_or_no_memory(do_op(s, &read, NULL));
    good_or_no_memory(do_op(s, &look, NULL));
    good_or_no_memory(only_read(s, term, 1, NULL));
    good_or_no_memory(del(s, term, "t", "other"));
    atomic_store(&armed, false);
    assert_int_equal(outcome(s, request) != 0, written == SLUICE_OK);
    const char *now = value_of(s, "t", "k");
    assert_int_equal(now != NULL && atoi(now) == n, written == SLUICE_OK);
}

UNIT_TEST(each_allocation_may_fail_while_it_works)
{
    struct stage *s = *state;
    int n = 1;
    spared = true;
    uint64_t term = claim(s);
    for (int all = 0; all < 2; all++) {
        for (long at = 0;; at++) {
            arm(at, all == 1);
            act(s, term, n++);
            if (atomic_load(&failures) == 0) break;
            if (at % 8 == 0) stage_reopen(s);
        }
    }
    spared = false;
    assert_true(n > 6);
}

UNIT_TEST(each_allocation_may_fail_while_it_is_opened)
{
    struct stage *s = *state;
    stage_close(s);
    for (int made = 0; made < 2; made++) {
        bool opened = false;
        for (long at = 0; !opened || atomic_load(&failures) > 0; at++) {
            char why[300] = "";
            if (made == 0) {
                unlink(path_of(s, SL_STORE_FILE));
                unlink(path_of(s, SL_STORE_FILE "-lock"));
            }
            arm(at, false);
            s->storage = lmdb_kind.open(s, why, sizeof why);
            atomic_store(&armed, false);
            opened = s->storage != NULL;
            if (!opened) assert_string_not_equal(why, "");
            sl_storage_close(s->storage);
            s->storage = NULL;
        }
    }
    stage_open(s);
    assert_int_equal(claim(s), 1);
}
#else
UNIT_TEST(each_allocation_may_fail_while_it_works)
{
    skip();
}

UNIT_TEST(each_allocation_may_fail_while_it_is_opened)
{
    skip();
}
#endif

int main(void)
{
    return run_unit_tests_with("storage_store", begin, end);
}
