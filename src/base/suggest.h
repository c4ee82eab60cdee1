/* suggest.h - finds the known name that a misspelled word probably means. */
#ifndef SL_BASE_SUGGEST_H
#define SL_BASE_SUGGEST_H

#include "base/types.h"

/* Longer words and names are not compared. */
#define SL_SUGGEST_BYTES_MAX 40

/* Returns the name that is closest to the word, ignoring case: the name with the
 * fewest typing errors (at most three, fewer for a short word), or else the only
 * name that begins with the word. A typing error is a letter that was inserted,
 * omitted, replaced, or swapped with its neighbour. If two names are equally close,
 * returns the earlier one. Returns NULL if no name is close. */
const char *sl_suggest(struct sl_bytes word, const char *const *names, size_t n);

#endif /* SL_BASE_SUGGEST_H */
