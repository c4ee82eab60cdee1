/* state_file.h - reads the file "state" that earlier versions wrote to the data directory. The
 * journal has replaced it.
 *
 *     sluice state 2                    the format; 1 has no clients
 *     fence_limit 1794752554123456      no grant has a fence above it
 *     fence_last 1794752544123456       after a clean stop: the last fence
 *     lease_longest_ms 60000            no lease that may still be valid is longer
 *     clean 1                           1: clean stop; 0: a server runs, or has crashed
 *     quiet_ms 0                        from at_ms on, the server grants nothing for this long
 *     boot 1d5e...:[4026531834]         the boot of the machine in which at_ms was measured
 *     at_ms 123456789                   CLOCK_BOOTTIME when the file was written
 *     client NAME ADDRESS               the client of the following grants, in hex
 *     grant FENCE LEFT_MS USER SHARED PER BUCKETS UNITS PRIORITY BROKEN ASKED KEY VALUE NOTE
 *     grants 1                          the number of grants; KEY, VALUE and NOTE are in hex
 *     checksum 0123456789abcdef         XXH64 of all preceding bytes
 *
 * (A server wrote "clean 0" when it started, and "clean 1" when it stopped.) */
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

/* --- Reading --------------------------------------------------------------- */

struct sl_state_reading {
    struct sl_kept kept;
    struct sl_textfile_reader text; /* Positioned at the next grant. */
    int64_t grants;                 /* The number of grants read so far. */
    struct sl_bytes name, address;  /* The client of the following grants. */
};

/* Check the whole file and read the fields before the grants. After SL_FOUND, call
 * sl_state_read_end(). */
enum sl_found sl_state_read(struct sl_state_reading *r, int directory);

/* Read the next grant. Returns 1 on success, 0 at the end, or -1 if its values are invalid. Bytes
 * are borrowed until sl_state_read_end(). */
int sl_state_next(struct sl_state_reading *r, struct sl_bytes *key,
                  struct sl_grant_view *out);
void sl_state_read_end(struct sl_state_reading *r);

/* Write an id of the current boot and time namespace. Times that were measured under another id
 * cannot be compared with ours. */
void sl_boot_id(char out[SL_BOOT_BYTES]);

#endif /* SL_SERVER_DATA_STATE_FILE_H */
