/* state_file.h - the file FOLDER/state: how it is written, and read again.
 *
 *     sluice state 1                    the format
 *     fence_limit 1794752554123456      no fence above it was given
 *     fence_last 1794752544123456       of a clean stop: the last that was given
 *     lease_longest_ms 60000            no lease that still runs was given for longer
 *     clean 1                           0: while a server runs, and after a crash
 *     quiet_ms 0                        so long from then on nothing is granted
 *     boot 1d5e...:[4026531834]         of which boot at_ms is
 *     at_ms 123456789                   CLOCK_BOOTTIME, when this was written
 *     grant FENCE LEFT_MS USER SHARED PER BUCKETS UNITS PRIORITY BROKEN ASKED KEY VALUE NOTE
 *     grants 1                          so many lines of them; texts are in hex, - is none
 *     checksum 0123456789abcdef         XXH64 of all before
 *
 * text_file.h tells how. When writing fails, the old file stands, or the new one, and neither
 * says too little. */
#ifndef SL_SERVER_DATA_STATE_FILE_H
#define SL_SERVER_DATA_STATE_FILE_H

#include "locks/table.h"
#include "server/data/text_file.h"

#define SL_STATE_FORMAT 1
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

/* All the memory that writing needs, until the end; NULL when out of memory. */
struct sl_state_writer *sl_state_writer_new(void);

/* Begin a new file in the folder; put grants; put it in the place of the old one. What goes
 * wrong is told by the last. */
void sl_state_begin(struct sl_state_writer *w, int folder, const struct sl_kept *k);
void sl_state_put(struct sl_state_writer *w, struct sl_bytes key,
                  const struct sl_grant_view *v);

/* 0, or an errno. */
int sl_state_commit(struct sl_state_writer *w);

/* --- Reading --------------------------------------------------------------- */

struct sl_state_reading {
    struct sl_kept kept;
    struct sl_textfile_reader text; /* It stands before the next grant; */
    int64_t grants;                 /* so many were before it. */
};

/* Read the head, and check all of it. After SL_FOUND, sl_state_read_end() is due. */
enum sl_found sl_state_read(struct sl_state_reading *r, int folder);

/* The next grant: 1; 0: that was all; -1: nonsense. Bytes are borrowed until the end. */
int sl_state_next(struct sl_state_reading *r, struct sl_bytes *key,
                  struct sl_grant_view *out);
void sl_state_read_end(struct sl_state_reading *r);

/* Which boot, and in which namespace of its clock: times of another one mean nothing. */
void sl_boot_id(char out[SL_BOOT_BYTES]);

#endif /* SL_SERVER_DATA_STATE_FILE_H */
