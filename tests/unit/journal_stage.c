/* journal_stage.c - a file in memory, for tests of the journal. */
#include "journal_stage.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const struct sl_hash_key stage_key = {0x0123456789abcdef, 0xfedcba9876543210};

void disk_append(struct disk *d, const void *at, size_t n)
{
    if (n > d->size - d->n) {
        d->size = 2 * (d->n + n);
        d->at = realloc(d->at, d->size);
        assert(d->at != NULL);
    }
    if (n > 0) memcpy(d->at + d->n, at, n);
    d->n += n;
}

void disk_begin_as(struct disk *d, uint8_t id, uint64_t position)
{
    uint8_t all[SL_JOURNAL_ID_BYTES];
    char header[SL_HEADER_BYTES];
    memset(all, id, sizeof all);
    d->n = d->durable = 0;
    sl_header_write(header, SL_JOURNAL_OF_SERVER, all, position, &d->chain);
    disk_append(d, header, sizeof header);
}

void disk_begin(struct disk *d, uint64_t position)
{
    disk_begin_as(d, 1, position);
}

void disk_end(struct disk *d)
{
    sl_recovery_end(&d->r);
    free(d->at);
    *d = (struct disk){0};
}

void disk_frame(struct disk *d, struct sl_bytes records, uint64_t position,
                uint64_t durable, sl_ms now_ms)
{
    char header[SL_FRAME_HEADER_BYTES];
    struct sl_frame frame = {.at = d->n,
                             .position = position,
                             .durable = durable,
                             .now_ms = now_ms,
                             .records = records};
    sl_frame_seal(header, &d->chain, &frame);
    disk_append(d, header, sizeof header);
    disk_append(d, records.at, records.n);
}

void disk_write(struct disk *d, struct sl_journal *j, sl_ms now_ms)
{
    struct sl_bytes records;
    uint64_t position;
    while (sl_journal_take(j, &records, &position))
        disk_frame(d, records, position, d->durable, now_ms);
}

enum sl_recovery_result disk_recover(struct disk *d, const struct sl_life *life,
                                     sl_ms now_ms)
{
    sl_recovery_end(&d->r);
    sl_recovery_begin(&d->r, (struct sl_bytes){d->at, d->n}, life, now_ms, stage_key);
    return d->r.result;
}

struct sl_bytes bytes_of(const char *text)
{
    return (struct sl_bytes){text, strlen(text)};
}

struct sl_life life_of(const char *boot)
{
    struct sl_life life = {.device = 1, .inode = 1, .keeps_writes = true};
    snprintf(life.boot, sizeof life.boot, "%s", boot);
    snprintf(life.clock, sizeof life.clock, "time");
    snprintf(life.machine, sizeof life.machine, "machine");
    return life;
}

struct sl_item grant_of(const char *key, sl_fence fence, sl_ms expiry_ms)
{
    return (struct sl_item){.kind = SL_ITEM_GRANT,
                            .key = bytes_of(key),
                            .fence = fence,
                            .expiry_ms = expiry_ms,
                            .bound_ms = expiry_ms};
}

struct sl_item number_of(enum sl_item_kind kind, uint64_t number,
                         char value[SL_VALUE_BYTES])
{
    sl_value_write(value, number);
    return (struct sl_item){.kind = kind,
                            .expiry_ms = SL_NEVER,
                            .bound_ms = SL_NEVER,
                            .is_long = true,
                            .value = {value, SL_VALUE_BYTES}};
}
