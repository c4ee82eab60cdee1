/* text.h - a store as text: one line a record, the same text for the same store.
 *
 *     sluice store 1
 *     term 5
 *     revision 42
 *     data "table" "key" 41 "value"        its revision
 *     request "name" 42 1763190000000      its revision, and the time of the store in ms
 *     barred 5 9                           term and transaction
 *     end 3                                so many lines of the last three kinds
 *
 * They come in this order. Between quotes stand bytes: what is not printable ASCII, and
 * quotes and backslashes, as \xNN. */
#ifndef SL_OFFLINE_STORE_TEXT_H
#define SL_OFFLINE_STORE_TEXT_H

#include <stdio.h>

#include "storage/lmdb/store.h"

/* Write it. Damaged records are left out, and counted: *lost. A status; why: in words. */
int sl_store_text_dump(const struct sl_store *s, FILE *to, uint64_t *lost, char *why,
                       size_t why_bytes);

/* Read it into a store that is empty. A status; EINVAL: that is no such text; why says it,
 * with its line. */
int sl_store_text_load(const struct sl_store *s, FILE *from, char *why,
                       size_t why_bytes);

#endif /* SL_OFFLINE_STORE_TEXT_H */
