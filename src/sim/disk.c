#include "sim/disk.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* --- The file --------------------------------------------------------------------- */

static void append(struct sim_disk *d, const char *at, size_t n)
{
    if (d->bytes + n > d->size) {
        d->size = 2 * (d->bytes + n);
        d->file = realloc(d->file, d->size);
        if (d->file == NULL) abort();
    }
    memcpy(d->file + d->bytes, at, n);
    d->bytes += n;
}

static void append_frame(struct sim_disk *d, struct sl_bytes records, uint64_t position,
                         sl_ms now_ms)
{
    char header[SL_FRAME_HEADER_BYTES];
    const struct sl_frame frame = {.position = position,
                                   .durable = d->durable,
                                   .now_ms = now_ms,
                                   .records = records};
    sl_frame_seal(header, &d->chain, &frame);
    append(d, header, sizeof header);
    append(d, records.at, records.n);
}

/* Begin a new file. */
static void begin_file(struct sim_disk *d, uint64_t position)
{
    char header[SL_HEADER_BYTES];
    uint8_t id[SL_JOURNAL_ID_BYTES] = {0};
    d->inode = ++d->files;
    memcpy(id, &d->files, sizeof d->files);
    memcpy(id + 8, &d->boot, sizeof d->boot);
    sl_header_write(header, SL_JOURNAL_OF_NODE, id, position, &d->chain);
    d->bytes = d->durable = 0;
    append(d, header, sizeof header);
}

static struct sl_life life_of(const struct sim_disk *d, sl_ms wait_until_ms)
{
    struct sl_life life = {.clock = "a clock",
                           .machine = "a machine",
                           .device = 1,
                           .inode = d->inode,
                           .wait_until_ms = wait_until_ms,
                           .boot_ms = d->boot_ms,
                           .keeps_writes = true};
    snprintf(life.boot, sizeof life.boot, "boot %llu", (unsigned long long)d->boot);
    return life;
}

/* --- Start ------------------------------------------------------------------------ */

void sim_disk_open(struct sim_disk *d, struct sl_now now, sl_ms volatile_ms,
                   struct sl_recovery *r)
{
    const struct sl_life life = life_of(d, 0);
    *r = (struct sl_recovery){.result = SL_RECOVERY_OK};
    if (d->bytes > 0)
        sl_recovery_begin(r, (struct sl_bytes){d->file, d->bytes}, &life, now.ms,
                          (struct sl_hash_key){1, 2});
    d->journal = sl_journal_new((struct sl_hash_key){1, 2}, r->chain.position,
                                volatile_ms);
    if (d->journal == NULL) abort();
    if (r->volatile_ms > volatile_ms)
        sl_journal_inherit(d->journal, r->volatile_ms, now.ms);
    d->is_syncing = false;
}

void sim_disk_start(const struct sim_disk *d, const struct sl_recovery *r,
                    struct sl_node_start *out)
{
    out->journal = d->journal;
    out->same_life = r->same_life;
    out->wait_until_ms = r->wait_until_ms;
    out->wait_ms = r->volatile_ms;
}

int sim_disk_restore(struct sim_disk *d, struct sl_now now, const struct sl_recovery *r,
                     struct sl_node *n)
{
    struct sl_item item;
    uint64_t cursor = 0;
    while (sl_recovery_next(r, &cursor, &item)) {
        int status = sl_node_restore(n, now, &item, r->shift_ms);
        if (status != SLUICE_OK) return status;
        if (r->same_life) sl_journal_restore(d->journal, &item);
    }
    return SLUICE_OK;
}

static void copy_items(struct sim_disk *d, struct sl_now now, struct sl_node *n)
{
    struct sl_buffer records = {0};
    struct sl_item item;
    uint64_t cursor = 0;
    while (sl_node_item(n, &cursor, &item))
        if (sl_record_put(&records, &item) != SLUICE_OK) abort();
    append_frame(d, (struct sl_bytes){records.at, records.n}, d->chain.position,
                 now.ms);
    sl_buffer_free(&records);
}

/* Append an item that every file must have. */
static void put_number(struct sl_buffer *out, enum sl_item_kind kind, uint64_t number)
{
    char value[SL_VALUE_BYTES];
    sl_value_write(value, number);
    const struct sl_item item = {.kind = kind,
                                 .expiry_ms = SL_NEVER,
                                 .bound_ms = SL_NEVER,
                                 .value = {value, sizeof value}};
    if (sl_record_put(out, &item) != SLUICE_OK) abort();
}

static void put_life(struct sim_disk *d, struct sl_now now, sl_ms wait_until_ms)
{
    char value[SL_LIFE_BYTES];
    struct sl_buffer records = {0};
    const struct sl_life life = life_of(d, wait_until_ms);
    sl_life_write(value, &life);
    const struct sl_item item = {.kind = SL_ITEM_LIFE,
                                 .expiry_ms = SL_NEVER,
                                 .bound_ms = SL_NEVER,
                                 .value = {value, sizeof value}};
    if (sl_record_put(&records, &item) != SLUICE_OK) abort();
    put_number(&records, SL_ITEM_VOLATILE,
               (uint64_t)sl_journal_copied_volatile_ms(d->journal, now.ms));
    append_frame(d, (struct sl_bytes){records.at, records.n}, d->chain.position,
                 now.ms);
    sl_buffer_free(&records);
}

/* Return the time until which the node waits since its last start. */
static sl_ms wait_of(const struct sim_disk *d, struct sl_now now)
{
    struct sl_recovery r;
    const struct sl_life life = life_of(d, 0);
    sl_recovery_begin(&r, (struct sl_bytes){d->file, d->bytes}, &life, now.ms,
                      (struct sl_hash_key){1, 2});
    sl_ms wait_until_ms = r.wait_until_ms;
    sl_recovery_end(&r);
    return wait_until_ms;
}

void sim_disk_begin(struct sim_disk *d, struct sl_now now, const struct sl_recovery *r,
                    struct sl_node *n)
{
    uint64_t position = sl_journal_position(d->journal);
    if (r->same_life) {
        d->bytes = r->bytes;
        if (d->durable > d->bytes)
            d->durable = d->bytes; /* An incomplete frame followed. */
        d->chain = r->chain;
    } else begin_file(d, position);
    put_life(d, now, r->wait_until_ms);
    sl_node_restored(n);
    if (!r->same_life) copy_items(d, now, n);
    sim_disk_write(d, now);
    d->durable = d->bytes;
    sl_journal_sync_begin(d->journal);
    sl_journal_sync_end(d->journal, true);
}

/* --- The next file ------------------------------------------------------------------- */

static void drop_next(struct sim_disk *d)
{
    if (d->next != NULL) free(d->next->file);
    free(d->next);
    d->next = NULL;
    d->is_copied = d->is_commit = false;
}

/* The next file becomes the journal; this many of its bytes are durable. */
static void switch_files(struct sim_disk *d, size_t durable)
{
    struct sim_disk *next = d->next;
    free(d->file);
    d->file = next->file;
    d->bytes = next->bytes;
    d->size = next->size;
    d->chain = next->chain;
    d->inode = next->inode;
    d->durable = durable;
    next->file = NULL;
    drop_next(d);
}

void sim_disk_replace(struct sim_disk *d, struct sl_now now)
{
    struct sim_disk *next = calloc(1, sizeof *next);
    if (next == NULL) abort();
    next->boot = d->boot;
    next->boot_ms = d->boot_ms;
    next->files = d->files;
    next->journal = d->journal;
    begin_file(next, sl_journal_position(d->journal));
    d->files = next->files;
    d->next = next;
    d->copy_cursor = 0;
    d->is_copied = d->is_commit = false;
    put_life(next, now, wait_of(d, now));
}

#define ITEMS_A_COPY 2

void sim_disk_copy_some(struct sim_disk *d, struct sl_now now, struct sl_node *n)
{
    struct sl_buffer records = {0};
    struct sl_item item;
    for (int i = 0; i < ITEMS_A_COPY && !d->is_copied; i++) {
        d->is_copied = !sl_node_item(n, &d->copy_cursor, &item);
        if (!d->is_copied && sl_record_put(&records, &item) != SLUICE_OK) abort();
    }
    if (records.n > 0)
        append_frame(d->next, (struct sl_bytes){records.at, records.n},
                     d->next->chain.position, now.ms);
    sl_buffer_free(&records);
}

void sim_disk_end_commit(struct sim_disk *d, struct sl_random *r)
{
    if (d->is_commit && sl_random_maybe(r, 5000)) switch_files(d, d->sync_bytes);
    drop_next(d);
}

/* --- Writing ----------------------------------------------------------------------- */

void sim_disk_write(struct sim_disk *d, struct sl_now now)
{
    struct sl_bytes records;
    uint64_t position;
    while (sl_journal_take(d->journal, &records, &position)) {
        append_frame(d, records, position, now.ms);
        if (d->next != NULL) append_frame(d->next, records, position, now.ms);
    }
}

void sim_disk_write_fails(struct sim_disk *d, struct sl_now now, struct sl_random *r)
{
    struct sl_bytes records;
    uint64_t position;
    size_t before = d->bytes;
    if (sl_journal_take(d->journal, &records, &position)) {
        append_frame(d, records, position, now.ms);
        d->bytes = before + sl_random_below(r, (uint32_t)(d->bytes - before + 1));
    }
    if (!d->is_commit) drop_next(d);
    sl_journal_fail(d->journal);
}

void sim_disk_sync_begin(struct sim_disk *d)
{
    d->is_syncing = true;
    d->is_commit = d->next != NULL && d->is_copied;
    d->sync_bytes = d->is_commit ? d->next->bytes : d->bytes;
    sl_journal_sync_begin(d->journal);
}

void sim_disk_sync_end(struct sim_disk *d, bool ok)
{
    d->is_syncing = false;
    if (d->is_commit) {
        /* If a write has failed meanwhile, the next file is not complete. */
        if (ok && !sl_journal_failed(d->journal)) switch_files(d, d->sync_bytes);
        else drop_next(d);
    } else if (ok && d->sync_bytes > d->durable) d->durable = d->sync_bytes;
    if (!ok) drop_next(d);
    /* A write may have failed meanwhile. */
    sl_journal_sync_end(d->journal, ok && !sl_journal_failed(d->journal));
}

void sim_disk_mend(struct sim_disk *d, struct sl_now now, struct sl_node *n)
{
    uint64_t position = sl_journal_position(d->journal);
    sl_journal_mend_begin(d->journal);
    sl_ms wait_until_ms = wait_of(d, now);
    begin_file(d, position);
    put_life(d, now, wait_until_ms);
    copy_items(d, now, n);
    d->durable = d->bytes;
    sl_journal_mend(d->journal, position);
}

/* --- The end of a process ------------------------------------------------------------- */

void sim_disk_kill(struct sim_disk *d)
{
    drop_next(d);
    sl_journal_free(d->journal);
    d->journal = NULL;
    d->is_syncing = false;
}

void sim_disk_lose_power(struct sim_disk *d, struct sl_random *r, sl_ms boot_ms)
{
    size_t left = d->bytes - d->durable;
    /* Often everything, or nothing, was written back. */
    if (r == NULL || sl_random_maybe(r, 4000)) d->bytes = d->durable;
    else if (left > 0 && sl_random_maybe(r, 6000))
        d->bytes = d->durable + sl_random_below(r, (uint32_t)left);
    d->boot++;
    d->boot_ms = boot_ms;
}

/* --- Copies --------------------------------------------------------------------------- */

struct sim_disk sim_disk_copy(const struct sim_disk *d)
{
    struct sim_disk copy = *d;
    copy.journal = NULL;
    copy.next = NULL;
    copy.file = NULL;
    copy.bytes = copy.size = 0;
    append(&copy, d->file, d->bytes);
    return copy;
}

void sim_disk_put_back(struct sim_disk *d, const struct sim_disk *copy, bool in_place)
{
    d->bytes = 0;
    append(d, copy->file, copy->bytes);
    d->durable = d->bytes;
    d->inode = in_place ? copy->inode : ++d->files;
}

void sim_disk_erase(struct sim_disk *d)
{
    free(d->file);
    *d = (struct sim_disk){.boot = d->boot, .boot_ms = d->boot_ms, .files = d->files};
}
