/* grant_record.h - a grant as the value of an item of the journal (journal/record.h). Key, fence
 * and expiry are fields of the item itself. All numbers are little-endian:
 *
 *      0  u16    flags: 1 shared, 2 broken, 4 overlapping, 8 stolen, 16 numbers, 32 note,
 *                64 origin, 128 unsure, 256 request
 *      2  u8     the number of bytes of the client's name
 *      3  u8     the number of bytes of its address
 *      4  u16    the number of bytes of the value
 *     only with flag 16; otherwise user and priority are 0, and the others 1:
 *         u32    user
 *         u32    units
 *         u32    per
 *         u32    buckets
 *         i32    priority
 *     only with flag 32:
 *         u16    the number of bytes of the note
 *     only with flag 64; otherwise the origin is 0:
 *         u64    the origin of the client (table.h)
 *     only with flag 128; otherwise the lease is certainly valid until its expiry:
 *         u8     for how long before that it may have expired (sl_unsure_ms())
 *     only with flag 256; otherwise the acquisition has no id:
 *         u64    the digest of its options (table.h)
 *         u8     the number of bytes of its id
 *     name, address, value, note, id
 *
 * The format of the journal is also the version of this layout. */
#ifndef SL_LOCKS_GRANT_RECORD_H
#define SL_LOCKS_GRANT_RECORD_H

#include "locks/table.h"

#define SL_GRANT_RECORD_BYTES 46u /* At most, without the texts. */

/* Returns how many bytes sl_grant_write() writes at most. */
size_t sl_grant_bytes_max(const struct sl_grant_view *v);

/* Write a grant with a lease. Returns the end of the bytes. */
char *sl_grant_write(char *out, const struct sl_grant_view *v);

/* Read a grant. Sets all fields but fence, times and is_long; bytes are borrowed. Returns false if
 * the bytes are invalid. */
bool sl_grant_read(struct sl_bytes value, struct sl_grant_view *out);

#endif /* SL_LOCKS_GRANT_RECORD_H */
