/* suggest.h - finds the known name that a misspelled word probably means. */
#ifndef SL_BASE_SUGGEST_H
#define SL_BASE_SUGGEST_H

#include "base/types.h"

/* Words and names that are longer are not compared. */
#define SL_SUGGEST_BYTES_MAX 40

/* The name that is closest to the word, without regard to upper and lower case: a name that
 * differs by at most three typing errors (fewer for a short word), or the only name that begins
 * with the word. A typing error is a letter that was inserted, left out, replaced, or swapped with
 * its neighbour. If two names are equally close, the earlier one is returned. NULL: no name is
 * close. */
const char *sl_suggest(struct sl_bytes word, const char *const *names, size_t n);

#endif /* SL_BASE_SUGGEST_H */
