/* store_text.h - a store as text: one line for each record. The same store is always the same
 * text.
 *
 *     sluice store 1
 *     term 5
 *     revision 42
 *     data "table" "key" 41 "value"        its revision
 *     request "name" 42 1763190000000      its revision, and the time of the store in ms
 *     barred 5 9                           term and transaction
 *     end 3                                number of lines of the last three kinds
 *
 * The lines come in this order. Quotes contain bytes: printable ASCII as it is, and all other
 * bytes, quotes and backslashes as \xNN. */
#ifndef SL_OFFLINE_STORE_TEXT_H
#define SL_OFFLINE_STORE_TEXT_H

#include <stdio.h>

#include "storage/lmdb/store.h"

/* Write the store as text. Damaged records are skipped, and *lost counts them. Unless the status
 * is SLUICE_OK, `why` explains it. */
int offline_store_write_text(const struct sl_store *s, FILE *to, uint64_t *lost,
                             char *why, size_t why_bytes);

/* Read such a text into an empty store. Unless the status is SLUICE_OK, `why` explains it, for
 * SLUICE_EINVAL (not such a text) with the number of the line. */
int offline_store_read_text(const struct sl_store *s, FILE *from, char *why,
                            size_t why_bytes);

#endif /* SL_OFFLINE_STORE_TEXT_H */
