/* state_file.h - the file "state" in the data directory: how it is written and read.
 *
 *     sluice state 2                    the format; 1 has no clients
 *     fence_limit 1794752554123456      no grant has a fence above it
 *     fence_last 1794752544123456       after a clean stop: the last fence
 *     lease_longest_ms 60000            no lease that may still run is longer
 *     clean 1                           0: while a server runs, and after a crash
 *     quiet_ms 0                        the server grants nothing for so long from at_ms on
 *     boot 1d5e...:[4026531834]         the boot of the machine that at_ms belongs to
 *     at_ms 123456789                   CLOCK_BOOTTIME, when this was written
 *     client NAME ADDRESS               of the grants that follow, in hex
 *     grant FENCE LEFT_MS USER SHARED PER BUCKETS UNITS PRIORITY BROKEN ASKED KEY VALUE NOTE
 *     grants 1                          the number of grants; KEY, VALUE and NOTE are in hex
 *     checksum 0123456789abcdef         XXH64 of all before
 *
 * If writing fails, the old file or the new one is there, and both are safe to start from. */
#ifndef SL_SERVER_DATA_STATE_FILE_H
#define SL_SERVER_DATA_STATE_FILE_H

#include "locks/table.h"
#include "server/data/text_file.h"

#define SL_STATE_FORMAT 2
#define SL_STATE_FORMAT_OLDEST 1
#define SL_BOOT_BYTES 96

struct sl_kept {
    sl_fence fence_limit, fence_last;
    sl_ms lease_longest_ms;
    sl_ms quiet_ms;
    sl_ms at_ms;
    bool clean;
    char boot[SL_BOOT_BYTES];
};

/* --- Writing --------------------------------------------------------------- */

struct sl_state_writer; /* Opaque. */

/* With all the memory that writing needs. NULL: out of memory. */
struct sl_state_writer *sl_state_writer_new(void);

/* Begin a new file in the directory, add grants, and replace the old file. Errors are returned by
 * sl_state_commit(). */
void sl_state_begin(struct sl_state_writer *w, int directory, const struct sl_kept *k);
void sl_state_put(struct sl_state_writer *w, struct sl_bytes key,
                  const struct sl_grant_view *v);

/* 0, or an errno. */
int sl_state_commit(struct sl_state_writer *w);

/* --- Reading --------------------------------------------------------------- */

struct sl_state_reading {
    struct sl_kept kept;
    struct sl_textfile_reader text; /* At the next grant. */
    int64_t grants;                 /* How many were read. */
    struct sl_bytes name, address;  /* Of the client of the next grants. */
};

/* Check the file and read its head. After SL_FOUND, call sl_state_read_end(). */
enum sl_found sl_state_read(struct sl_state_reading *r, int directory);

/* The next grant: 1; 0: there is none; -1: its values are invalid. Bytes are borrowed until
 * sl_state_read_end(). */
int sl_state_next(struct sl_state_reading *r, struct sl_bytes *key,
                  struct sl_grant_view *out);
void sl_state_read_end(struct sl_state_reading *r);

/* Identifies the boot of the machine and the time namespace. Times of another one cannot be compared
 * with ours. */
void sl_boot_id(char out[SL_BOOT_BYTES]);

#endif /* SL_SERVER_DATA_STATE_FILE_H */
