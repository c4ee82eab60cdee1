#include "storage_stage.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#include "test.h"

#include "relay_stage.h"
#include "storage/etcd/client.h"
#include "storage/lmdb/store.h"

/* --- The disk ---------------------------------------------------------------- */

struct disk disk;

static void pause_shortly(void)
{
    nanosleep(&(struct timespec){0, 1000000}, NULL);
}

int fdatasync(int fd)
{
    static int (*real)(int);
    if (real == NULL) real = (int (*)(int))dlsym(RTLD_NEXT, "fdatasync");
    atomic_fetch_add(&disk.syncs, 1);
    atomic_fetch_add(&disk.held_now, 1);
    while (atomic_load(&disk.held)) pause_shortly();
    atomic_fetch_sub(&disk.held_now, 1);
    errno = atomic_load(&disk.sync_error);
    return errno != 0 ? -1 : real(fd);
}

typedef ssize_t pwrite_type(int, const void *, size_t, off_t);

static pwrite_type *real_pwrite(void)
{
    static pwrite_type *real;
    if (real == NULL) real = (pwrite_type *)dlsym(RTLD_NEXT, "pwrite");
    return real;
}

/* The letter of first_plan for this write. */
static char next_of_plan(void)
{
    const char *plan = atomic_load(&disk.first_plan);
    if (atomic_load(&disk.first_error) != 0) return 'f';
    if (plan == NULL || *plan == '\0') return 'o';
    atomic_store(&disk.first_plan, plan + 1);
    return *plan;
}

/* What the last 'p' has overwritten. */
static struct {
    char bytes[512];
    size_t n;
    off_t at;
} before;

/* LMDB has opened the file write-only, so it is opened again. */
static void keep_before(int fd, size_t n, off_t at)
{
    char path[40];
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    int readable = open(path, O_RDONLY | O_CLOEXEC);
    if (readable < 0 || n > sizeof before.bytes ||
        pread(readable, before.bytes, n, at) != (ssize_t)n)
        abort();
    close(readable);
    before.n = n;
    before.at = at;
}

static ssize_t write_first(int fd, const void *from, size_t n, off_t at)
{
    char c = next_of_plan();
    if (c == 'p') keep_before(fd, n, at);
    if (c == 'v') real_pwrite()(fd, before.bytes, before.n, before.at);
    ssize_t written = c == 'o' || c == 'p' ? real_pwrite()(fd, from, n, at) : -1;
    if (c == 'o') return written;
    errno = EIO;
    return -1;
}

/* Under the name that LMDB uses: with a 64-bit off_t ours would have another one. */
ssize_t lmdb_pwrite(int fd, const void *from, size_t n, off_t at) __asm__("pwrite");

ssize_t lmdb_pwrite(int fd, const void *from, size_t n, off_t at)
{
    if (at < 2 * sysconf(_SC_PAGESIZE)) return write_first(fd, from, n, at);
    errno = atomic_load(&disk.write_error);
    return errno != 0 ? -1 : real_pwrite()(fd, from, n, at);
}

ssize_t writev(int fd, const struct iovec *from, int n)
{
    static ssize_t (*real)(int, const struct iovec *, int);
    if (real == NULL)
        real = (ssize_t(*)(int, const struct iovec *, int))dlsym(RTLD_NEXT, "writev");
    errno = atomic_load(&disk.write_error);
    return errno != 0 ? -1 : real(fd, from, n);
}

void stage_work(struct stage *s)
{
    sl_storage_work(s->storage, SIZE_MAX);
    sl_storage_check(s->storage);
}

void hold_disk(struct stage *s, struct asked *first)
{
    if (s->kind->members > 0) {
        submit(s, first);
        return;
    }
    atomic_store(&disk.held, true);
    submit(s, first);
    while (atomic_load(&disk.held_now) == 0) {
        stage_work(s);
        assert_false(first->done); /* It cannot be done without a sync. */
        pause_shortly();
    }
}

void release_disk(void)
{
    atomic_store(&disk.held, false);
}

/* --- A storage --------------------------------------------------------------- */

static void check_store(const char *directory)
{
    struct sl_store store;
    struct sl_store_counts counts;
    char why[300] = "";
    if (sl_store_check_pages(directory, why, sizeof why) != SLUICE_OK)
        fail_msg("%s", why);
    if (sl_store_open(&store, directory, 0, why, sizeof why) != SLUICE_OK)
        fail_msg("%s", why);
    if (sl_store_check(&store, &counts, why, sizeof why) != SLUICE_OK)
        fail_msg("%s", why);
    sl_store_close(&store);
}

static struct sl_storage *open_lmdb(const struct stage *s, char *why, size_t why_bytes)
{
    return sl_storage_open_lmdb(&s->settings, why, why_bytes);
}

struct etcd_stage members;

static struct sl_storage *open_etcd(const struct stage *s, char *why, size_t why_bytes)
{
    struct sl_etcd_settings settings = s->etcd;
    settings.prefix = s->prefix;
    settings.dedup_keep_ms = s->settings.dedup_keep_ms;
    settings.group_max = s->settings.group_max;
    return sl_storage_open_etcd(&settings, why, why_bytes);
}

static void check_nothing(const char *directory)
{
    (void)directory;
}

const struct storage_kind lmdb_kind = {"lmdb", 0, open_lmdb, check_store};
const struct storage_kind etcd_kind = {"etcd", 1, open_etcd, check_nothing};
const struct storage_kind etcd_three_kind = {"etcd of three", 3, open_etcd,
                                             check_nothing};

bool kind_begin(const struct storage_kind *kind)
{
    return kind->members == 0 || etcd_begin(&members, kind->members);
}

void kind_end(const struct storage_kind *kind)
{
    if (kind->members > 0) etcd_end(&members);
}

void stage_open(struct stage *s)
{
    char why[300] = "";
    s->storage = s->kind->open(s, why, sizeof why);
    if (s->storage == NULL) fail_msg("%s", why);
}

void stage_close(struct stage *s)
{
    sl_storage_close(s->storage);
    s->storage = NULL;
    s->kind->check(s->directory);
}

void stage_reopen(struct stage *s)
{
    stage_close(s);
    stage_open(s);
}

void stage_begin(struct stage *s, const struct storage_kind *kind)
{
    memset(s, 0, sizeof *s);
    s->kind = kind;
    const char *where = getenv("TMPDIR");
    int n = snprintf(s->directory, sizeof s->directory, "%s/sluice-test.XXXXXX",
                     where != NULL ? where : "/tmp");
    assert_true(n > 0 && (size_t)n < sizeof s->directory);
    assert_non_null(mkdtemp(s->directory));
    s->settings = (struct sl_storage_settings){.directory = s->directory,
                                               .bytes_max = (size_t)64 << 20,
                                               .dedup_keep_ms = 3600000,
                                               .group_max = 64};
    s->etcd = (struct sl_etcd_settings){.members = members.members,
                                        .user = "",
                                        .password = "",
                                        .ca = "",
                                        .cert = "",
                                        .key = "",
                                        .answer_ms = 10000,
                                        .ops_max = 128,
                                        .request_bytes_max = (size_t)3 << 19};
    snprintf(s->prefix, sizeof s->prefix, "%s/", strrchr(s->directory, '/') + 1);
    stage_open(s);
}

void stage_end(struct stage *s)
{
    char command[200];
    if (s->storage != NULL) stage_close(s);
    snprintf(command, sizeof command, "rm -rf %s", s->directory);
    assert_int_equal(system(command), 0);
}

/* --- Operations -------------------------------------------------------------- */

static void copy(struct sl_bytes *b, char **to)
{
    if (b->at == NULL) return;
    memcpy(*to, b->at, b->n);
    b->at = *to;
    *to += b->n;
    *(*to)++ = '\0';
}

static void on_done(struct sl_storage_op *op)
{
    struct asked *a = op->owner;
    size_t n = op->result.value.n + 1;
    for (uint32_t i = 0; i < op->result.row_count; i++)
        n += op->result.rows[i].key.n + op->result.rows[i].value.n + 2;
    size_t head = op->result.row_count * sizeof(struct sl_storage_row);
    assert_false(a->done);
    a->got = op->result;
    a->bytes = malloc(head + n);
    assert_non_null(a->bytes);
    char *to = a->bytes + head;
    copy(&a->got.value, &to);
    if (op->result.rows != NULL) {
        struct sl_storage_row *rows = (struct sl_storage_row *)(void *)a->bytes;
        memcpy(rows, op->result.rows, head);
        for (uint32_t i = 0; i < op->result.row_count; i++) {
            copy(&rows[i].key, &to);
            copy(&rows[i].value, &to);
        }
        a->got.rows = rows;
    }
    a->done = true;
}

void submit(struct stage *s, struct asked *a)
{
    a->op.done = on_done;
    a->op.owner = a;
    a->done = false;
    a->bytes = NULL;
    sl_storage_submit(s->storage, &a->op);
}

void await(struct stage *s, struct asked *a)
{
    struct pollfd p = {sl_storage_fd(s->storage), POLLIN, 0};
    while (!a->done) {
        assert_int_equal(poll(&p, 1, 60000), 1);
        stage_work(s);
    }
}

void forget(struct asked *a)
{
    free(a->bytes);
    a->bytes = NULL;
}

struct sl_bytes text(const char *s)
{
    return (struct sl_bytes){s, s != NULL ? strlen(s) : 0};
}

struct sl_storage_op commit_of(uint64_t term, uint64_t id, const char *request,
                               const struct sl_storage_write *writes, uint32_t count)
{
    return (struct sl_storage_op){.type = SL_STORAGE_COMMIT,
                                  .term = term,
                                  .id = id,
                                  .request = text(request),
                                  .writes = writes,
                                  .write_count = count};
}

int do_op(struct stage *s, const struct sl_storage_op *op,
          struct sl_storage_result *got)
{
    struct asked a = {.op = *op};
    submit(s, &a);
    await(s, &a);
    forget(&a);
    if (got != NULL) *got = a.got;
    return a.got.status;
}

uint64_t claim(struct stage *s)
{
    struct sl_storage_result got = {0};
    if (s->kind->members > 0) {
        struct sl_storage_op look = {.type = SL_STORAGE_READ_TERM};
        assert_int_equal(do_op(s, &look, &got), SLUICE_OK);
    }
    struct sl_storage_op op = {
        .type = SL_STORAGE_CLAIM, .term = got.term_record.term, .node = 1};
    assert_int_equal(do_op(s, &op, &got), SLUICE_OK);
    return got.term;
}

int put(struct stage *s, uint64_t term, uint64_t id, const char *request,
        const char *table, const char *key, const char *value,
        struct sl_storage_result *got)
{
    struct sl_storage_write w = {text(table), text(key), text(value)};
    struct sl_storage_op op = commit_of(term, id, request, &w, 1);
    return do_op(s, &op, got);
}

int del(struct stage *s, uint64_t term, const char *table, const char *key)
{
    return put(s, term, 1, NULL, table, key, NULL, NULL);
}

int only_read(struct stage *s, uint64_t term, uint64_t id, const char *request)
{
    struct sl_storage_op op = commit_of(term, id, request, NULL, 0);
    return do_op(s, &op, NULL);
}

int bar(struct stage *s, uint64_t term, uint64_t id)
{
    struct sl_storage_op op = {.type = SL_STORAGE_BAR, .term = term, .id = id};
    return do_op(s, &op, NULL);
}

uint64_t outcome(struct stage *s, const char *request)
{
    struct sl_storage_result got;
    struct sl_storage_op op = {.type = SL_STORAGE_OUTCOME, .request = text(request)};
    assert_int_equal(do_op(s, &op, &got), SLUICE_OK);
    return got.found ? got.revision : 0;
}

const char *value_of(struct stage *s, const char *table, const char *key)
{
    static char *kept;
    struct asked a = {
        .op = {.type = SL_STORAGE_READ, .table = text(table), .key = text(key)}};
    free(kept);
    kept = NULL; /* In case the test ends below. */
    submit(s, &a);
    await(s, &a);
    assert_int_equal(a.got.status, SLUICE_OK);
    kept = a.bytes;
    return a.got.found ? kept : NULL;
}

/* --- etcd -------------------------------------------------------------------- */

sl_ms now_ms(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (sl_ms)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

void run_for(struct stage *s, sl_ms ms)
{
    sl_ms until = now_ms() + ms, now;
    struct pollfd p = {sl_storage_fd(s->storage), POLLIN, 0};
    while ((now = now_ms()) < until) {
        poll(&p, 1, (int)(until - now));
        stage_work(s);
    }
}

void run_until_lost(struct stage *s, int count)
{
    struct pollfd p = {sl_storage_fd(s->storage), POLLIN, 0};
    while (relay_lost() < count) {
        poll(&p, 1, 10);
        stage_work(s);
    }
}

uint64_t number_of(const struct stage *s, const char *key, size_t n, const char *name)
{
    char whole[SL_STORAGE_JOURNAL_KEY_BYTES_MAX + 300],
        base64[sizeof whole * 4 / 3 + 8];
    char json[sizeof base64 + 100], wanted[40];
    size_t prefix = strlen(s->prefix);
    memcpy(whole, s->prefix, prefix);
    memcpy(whole + prefix, key, n);
    sl_etcd_base64_write(base64, (struct sl_bytes){whole, prefix + n});
    snprintf(json, sizeof json, "{\"key\":\"%s\"}", base64);
    char *answer = etcd_ask(&members, 0, "/v3/kv/range", json, NULL);
    assert_non_null(answer);
    snprintf(wanted, sizeof wanted, "\"%s\":\"", name);
    const char *at = strstr(answer, wanted);
    uint64_t number = at != NULL ? strtoull(at + strlen(wanted), NULL, 10) : 0;
    free(answer);
    return number;
}
