/* store_text.h - the text format of a dump: one line for each record. Dumping the same
 * store always produces the same text.
 *
 *     sluice store 1
 *     term 5
 *     revision 42
 *     data "table" "key" 41 "value"        its revision
 *     request "name" 42 1763190000000      its revision, and the time of its commit in ms
 *     barred 5 9                           term and transaction
 *     end 3                                number of lines of the last three kinds
 *
 * The lines appear in this order. Strings in quotes contain printable ASCII as it is;
 * all other bytes, quotes and backslashes appear as \xNN. */
#ifndef SL_OFFLINE_STORE_TEXT_H
#define SL_OFFLINE_STORE_TEXT_H

#include <stdio.h>

#include "storage/lmdb/store.h"

/* Write the store as text. This skips damaged records and counts them in *lost. If it
 * returns a status other than SLUICE_OK, `why` contains the reason. */
int offline_store_write_text(const struct sl_store *s, FILE *to, uint64_t *lost,
                             char *why, size_t why_bytes);

/* Read such a text into an empty store. If this returns a status other than SLUICE_OK,
 * `why` contains the reason. For SLUICE_EINVAL (the text is invalid), `why` includes
 * the line number. */
int offline_store_read_text(const struct sl_store *s, FILE *from, char *why,
                            size_t why_bytes);

#endif /* SL_OFFLINE_STORE_TEXT_H */
