/* journal_stage.h - a file in memory, for tests of the journal.
 *
 *     struct disk d = {0};
 *     disk_begin(&d, 0);                  a header, no frames
 *     disk_write(&d, j, now_ms);          all records of a journal, in frames
 *     disk_recover(&d, &life, now_ms);    replay; d.r has the result
 *     disk_end(&d); */
#ifndef SLUICE_TEST_JOURNAL_STAGE_H
#define SLUICE_TEST_JOURNAL_STAGE_H

#include "journal/journal.h"
#include "journal/recovery.h"

struct disk {
    char *at;
    size_t n, size;
    uint64_t durable; /* The offset that the frames of disk_write() contain. */
    struct sl_chain chain;
    struct sl_recovery r;
};

extern const struct sl_hash_key stage_key;

/* Begin a file whose id depends on `id`. The frames continue after this position. */
void disk_begin_as(struct disk *d, uint8_t id, uint64_t position);
void disk_begin(struct disk *d, uint64_t position);
void disk_end(struct disk *d);

/* Append raw bytes, or a frame. */
void disk_append(struct disk *d, const void *at, size_t n);
void disk_frame(struct disk *d, struct sl_bytes records, uint64_t position,
                uint64_t durable, sl_ms now_ms);

/* Write all records that the journal has. */
void disk_write(struct disk *d, struct sl_journal *j, sl_ms now_ms);

/* Replay the file. Ends the recovery before. */
enum sl_recovery_result disk_recover(struct disk *d, const struct sl_life *life,
                                     sl_ms now_ms);

struct sl_bytes bytes_of(const char *text);

/* A life on this boot of a machine, with a file of inode 1. */
struct sl_life life_of(const char *boot);

/* A grant with a lease, a number, a life, the mark of a clean stop. */
struct sl_item grant_of(const char *key, sl_fence fence, sl_ms expiry_ms);
struct sl_item number_of(enum sl_item_kind kind, uint64_t number,
                         char value[SL_VALUE_BYTES]);

#endif /* SLUICE_TEST_JOURNAL_STAGE_H */
