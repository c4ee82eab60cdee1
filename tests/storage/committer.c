/* committer.c - commits to a storage as fast as it can, and says what it was told, until it
 * is killed. For test_kills.py, which compares that with what is in the store.
 *
 *     committer DIRECTORY [BYTES_MAX [VALUE_BYTES [GROUP_MAX]]]
 *
 * says, a line each:
 *
 *     term T
 *     sent R          before it is submitted; R is T.n, and unique
 *     ok R REVISION   it is committed
 *     no R WORD       it was refused: NOSPACE, IO
 *     read WORD       what became of a read, from time to time
 *
 * A commit writes key R of table "log", and its n into one of a few keys of table "last".
 * SIGTERM ends it: what was sent is answered first.
 *
 *     committer DIRECTORY --again TERM R...
 *
 * sends requests of an older term again, and says "ok R REVISION" or "no R STALE". */
#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "storage/storage.h"

enum { FLIGHT = 24, LAST_KEYS = 7, NAME_BYTES = 48 };

struct commit {
    struct sl_storage_op op;
    struct sl_storage_write writes[2];
    char name[NAME_BYTES], last[NAME_BYTES], number[NAME_BYTES];
    bool busy;
};

static struct sl_storage *storage;
static volatile sig_atomic_t stop;
static unsigned in_flight, errors;
static char *value;

/* At once, and whole: we may be killed at any time. */
__attribute__((format(printf, 1, 2))) static void say(const char *format, ...)
{
    char line[200];
    va_list args;
    va_start(args, format);
    int n = vsnprintf(line, sizeof line, format, args);
    va_end(args);
    if (write(STDOUT_FILENO, line, (size_t)n) != n) _exit(3);
}

static void work(void)
{
    struct pollfd p = {sl_storage_fd(storage), POLLIN, 0};
    if (poll(&p, 1, 1000) > 0) sl_storage_work(storage, SIZE_MAX);
}

static const char *word_of(int status)
{
    switch (status) {
        case SLUICE_OK: return "OK";
        case SLUICE_ENOSPC: return "NOSPACE";
        case SLUICE_ESTALE: return "STALE";
        case SLUICE_EBARRED: return "BARRED";
        case SLUICE_ENOMEM: return "NOMEM";
        case SLUICE_EIO: return "IO";
        default: return "OTHER";
    }
}

static void on_commit(struct sl_storage_op *op)
{
    struct commit *c = op->owner;
    c->busy = false;
    in_flight--;
    if (op->result.status == SLUICE_OK)
        say("ok %s %" PRIu64 "\n", c->name, op->result.revision);
    else {
        say("no %s %s\n", c->name, word_of(op->result.status));
        errors++;
    }
}

static void send_commit(struct commit *c, uint64_t term, uint64_t id,
                        size_t value_bytes)
{
    struct sl_bytes name = {c->name, strlen(c->name)};
    snprintf(c->last, sizeof c->last, "%" PRIu64, id % LAST_KEYS);
    snprintf(c->number, sizeof c->number, "%" PRIu64, id);
    c->writes[0] = (struct sl_storage_write){{"log", 3}, name, {value, value_bytes}};
    c->writes[1] = (struct sl_storage_write){
        {"last", 4}, {c->last, strlen(c->last)}, {c->number, strlen(c->number)}};
    c->op = (struct sl_storage_op){.type = SL_STORAGE_COMMIT,
                                   .term = term,
                                   .id = id,
                                   .request = name,
                                   .writes = c->writes,
                                   .write_count = 2,
                                   .done = on_commit,
                                   .owner = c};
    c->busy = true;
    in_flight++;
    say("sent %s\n", c->name);
    sl_storage_submit(storage, &c->op);
}

static void on_other(struct sl_storage_op *op)
{
    *(bool *)op->owner = true;
}

static int wait_for(struct sl_storage_op *op)
{
    bool done = false;
    op->done = on_other;
    op->owner = &done;
    sl_storage_submit(storage, op);
    while (!done) work();
    return op->result.status;
}

static uint64_t claim(void)
{
    struct sl_storage_op op = {.type = SL_STORAGE_CLAIM};
    int status;
    while ((status = wait_for(&op)) != SLUICE_OK) {
        say("no claim %s\n", word_of(status));
        nanosleep(&(struct timespec){0, 20000000}, NULL);
    }
    say("term %" PRIu64 "\n", op.result.term);
    return op.result.term;
}

static void on_stop(int number)
{
    (void)number;
    stop = 1;
}

static void commit_on_and_on(size_t value_bytes)
{
    static struct commit commits[FLIGHT];
    uint64_t term = claim();
    unsigned seen = 0;
    for (uint64_t n = 1; !stop; n++) {
        struct commit *c = &commits[n % FLIGHT];
        while (c->busy) work();
        snprintf(c->name, sizeof c->name, "%" PRIu64 ".%" PRIu64, term, n);
        send_commit(c, term, n, value_bytes);
        if (n % 64 == 0) {
            struct sl_storage_op op = {
                .type = SL_STORAGE_READ, .table = {"last", 4}, .key = {"1", 1}};
            say("read %s\n", word_of(wait_for(&op)));
        }
        /* A disk that is full is not asked a thousand times a second. */
        if (errors != seen) nanosleep(&(struct timespec){0, 5000000}, NULL);
        seen = errors;
    }
    while (in_flight > 0) work();
}

static void send_again(uint64_t term, char **names)
{
    static struct commit c;
    claim();
    for (; *names != NULL; names++) {
        snprintf(c.name, sizeof c.name, "%s", *names);
        const char *dot = strchr(c.name, '.');
        send_commit(&c, term, dot != NULL ? strtoull(dot + 1, NULL, 10) : 0, 8);
        while (c.busy) work();
    }
}

static size_t number(int argc, char **argv, int i, size_t otherwise)
{
    return argc > i ? strtoull(argv[i], NULL, 10) : otherwise;
}

int main(int argc, char **argv)
{
    char why[400];
    bool again = argc > 3 && strcmp(argv[2], "--again") == 0;
    if (argc < 2) return 2;
    size_t value_bytes = again ? 8 : number(argc, argv, 3, 40);
    struct sl_storage_settings s = {
        .directory = argv[1],
        .bytes_max = again ? (size_t)1 << 30 : number(argc, argv, 2, (size_t)1 << 30),
        .dedup_keep_ms = 3600000,
        .group_max = again ? 16 : (uint32_t)number(argc, argv, 4, 16)};
    value = malloc(value_bytes + 1);
    if (value == NULL) return 3;
    memset(value, 'v', value_bytes);
    signal(SIGXFSZ, SIG_IGN);
    signal(SIGTERM, on_stop);
    storage = sl_storage_open_lmdb(&s, why, sizeof why);
    if (storage == NULL) {
        fprintf(stderr, "%s\n", why);
        return 1;
    }
    if (again) send_again(strtoull(argv[3], NULL, 10), argv + 4);
    else commit_on_and_on(value_bytes);
    sl_storage_close(storage);
    free(value);
    return 0;
}
