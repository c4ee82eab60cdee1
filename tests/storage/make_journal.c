/* make_journal.c - make_journal DIRECTORY server|node: writes a journal as a server would, for tests
 * of `sluice journal`. Standard input has one instruction per line; texts are in hexadecimal, "-"
 * is an empty one:
 *
 *     life BOOT WAIT_MS             BOOT "-": this boot; new grants wait for so long from now
 *     volatile MS
 *     fences LIMIT
 *     grant KEY FENCE MS long|short UNITS CAPACITY NAME ADDRESS NOTE FLAGS
 *                                   MS: how long the lease lasts; FLAGS: letters of "sbov" (shared,
 *                                   broken, overlapping, stolen), or "-"
 *     end KEY FENCE
 *     mark KEY MS
 *     drain PATTERN
 *     key KEY MS BYTES              the state of a key at an acceptor
 *     clean                         the mark of a clean stop
 *     frame                         writes the records so far as a frame
 *     sync                          the same, and syncs the file
 *
 * The records before the first "frame" or "sync" are written as those of a new file are. */
#include <assert.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/hex.h"
#include "journal/file.h"
#include "locks/grant_record.h"

static struct sl_journal_file *file;
static struct sl_buffer records;
static uint64_t position;
static bool is_named;
static sl_ms now_ms;

static char *next_word(void)
{
    char *word = strtok(NULL, " \n");
    assert(word != NULL);
    return word;
}

static int64_t next_number(void)
{
    return strtoll(next_word(), NULL, 10);
}

/* Decode in place. */
static struct sl_bytes next_text(void)
{
    char *word = next_word();
    struct sl_bytes b = {word, 0};
    if (strcmp(word, "-") == 0) return b;
    for (; word[2 * b.n] != '\0'; b.n++)
        word[b.n] = (char)(sl_hex_digit(word[2 * b.n]) << 4 |
                           sl_hex_digit(word[2 * b.n + 1]));
    return b;
}

static void put(struct sl_item item)
{
    if (item.bound_ms < item.expiry_ms) item.bound_ms = item.expiry_ms;
    int status = sl_record_put(&records, &item);
    assert(status == 0);
    (void)status;
}

static void put_about_file(enum sl_item_kind kind, const char *value, size_t n)
{
    put((struct sl_item){.kind = kind, .expiry_ms = SL_NEVER, .value = {value, n}});
}

static void put_number(enum sl_item_kind kind)
{
    char value[SL_VALUE_BYTES];
    sl_value_write(value, (uint64_t)next_number());
    put_about_file(kind, value, sizeof value);
}

static void put_life(void)
{
    struct sl_life life;
    char value[SL_LIFE_BYTES];
    const char *boot = next_word();
    sl_ms wait_ms = next_number();
    sl_journal_file_life(file, &life);
    if (strcmp(boot, "-") != 0) snprintf(life.boot, sizeof life.boot, "%s", boot);
    life.wait_until_ms = wait_ms > 0 ? now_ms + wait_ms : 0;
    sl_life_write(value, &life);
    put_about_file(SL_ITEM_LIFE, value, sizeof value);
}

static void put_grant(void)
{
    char value[1024];
    struct sl_item item = {.kind = SL_ITEM_GRANT, .key = next_text()};
    struct sl_grant_view v = {.buckets = 1};
    item.fence = (sl_fence)next_number();
    item.expiry_ms = now_ms + next_number();
    item.is_long = strcmp(next_word(), "long") == 0;
    v.units = (uint32_t)next_number();
    v.per = (uint32_t)next_number();
    v.name = next_text();
    v.address = next_text();
    v.note = next_text();
    const char *flags = next_word();
    v.shared = strchr(flags, 's') != NULL;
    v.broken = strchr(flags, 'b') != NULL;
    v.overlapping = strchr(flags, 'o') != NULL;
    v.stolen = strchr(flags, 'v') != NULL;
    assert(sl_grant_bytes_max(&v) <= sizeof value);
    item.value = (struct sl_bytes){value, (size_t)(sl_grant_write(value, &v) - value)};
    put(item);
}

static void put_end(void)
{
    struct sl_bytes key = next_text();
    int status = sl_record_end(&records, SL_ITEM_GRANT, key, (sl_fence)next_number());
    assert(status == 0);
    (void)status;
}

static void put_mark(void)
{
    struct sl_bytes key = next_text();
    put((struct sl_item){
        .kind = SL_ITEM_OVERLAP, .key = key, .expiry_ms = now_ms + next_number()});
}

static void put_drain(void)
{
    put((struct sl_item){.kind = SL_ITEM_DRAIN,
                         .key = next_text(),
                         .expiry_ms = SL_NEVER,
                         .is_long = true});
}

static void put_key(void)
{
    static char zeros[1000];
    struct sl_item item = {.kind = SL_ITEM_KEY, .key = next_text(), .is_long = true};
    item.expiry_ms = now_ms + next_number();
    item.value = (struct sl_bytes){zeros, (size_t)next_number()};
    assert(item.value.n <= sizeof zeros);
    put(item);
}

static void write_frame(bool sync)
{
    struct sl_bytes b = {records.at, records.n};
    int error;
    if (is_named) error = sl_journal_file_write(file, b, ++position, now_ms);
    else {
        error = sl_journal_file_copy(file, b, now_ms);
        if (error == 0) error = sl_journal_file_commit(file);
        if (error == 0) sl_journal_file_switch(file);
        is_named = true;
    }
    if (error == 0 && sync) error = sl_journal_file_sync(file);
    records.n = 0;
    if (error == 0) return;
    fprintf(stderr, "make_journal: %s\n", strerror(error));
    exit(1);
}

static void run(const char *what)
{
    if (strcmp(what, "life") == 0) put_life();
    else if (strcmp(what, "volatile") == 0) put_number(SL_ITEM_VOLATILE);
    else if (strcmp(what, "fences") == 0) put_number(SL_ITEM_FENCES);
    else if (strcmp(what, "grant") == 0) put_grant();
    else if (strcmp(what, "end") == 0) put_end();
    else if (strcmp(what, "mark") == 0) put_mark();
    else if (strcmp(what, "drain") == 0) put_drain();
    else if (strcmp(what, "key") == 0) put_key();
    else if (strcmp(what, "clean") == 0) put_about_file(SL_ITEM_CLEAN, NULL, 0);
    else if (strcmp(what, "frame") == 0) write_frame(false);
    else if (strcmp(what, "sync") == 0) write_frame(true);
    else exit(64);
}

int main(int argc, char **argv)
{
    char line[4096];
    struct timespec t;
    if (argc != 3) return 64;
    clock_gettime(CLOCK_BOOTTIME, &t);
    now_ms = (sl_ms)t.tv_sec * 1000 + t.tv_nsec / 1000000;
    int directory = open(argv[1], O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    enum sl_journal_use use = strcmp(argv[2], "node") == 0 ? SL_JOURNAL_OF_NODE
                                                           : SL_JOURNAL_OF_SERVER;
    if (directory < 0 || sl_journal_file_new(directory, use, 0, &file) != 0) return 1;
    while (fgets(line, sizeof line, stdin) != NULL) run(strtok(line, " \n"));
    sl_journal_file_close(file);
    sl_buffer_free(&records);
    return 0;
}
