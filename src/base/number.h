/* number.h - decimal numbers in text that need not end with a zero byte. */
#ifndef SL_BASE_NUMBER_H
#define SL_BASE_NUMBER_H

#include "base/types.h"

/* Both read the whole text, accept leading zeros, and return false if the text is not a
 * number or is out of range. */

/* Digits without a sign, at most max. */
bool sl_parse_u64(struct sl_bytes text, uint64_t max, uint64_t *out);

/* Up to SL_NUMBER_DIGITS_MAX digits, after a minus sign or without one, from min to max. */
#define SL_NUMBER_DIGITS_MAX 18
bool sl_parse_number(struct sl_bytes text, int64_t min, int64_t max, int64_t *out);

#endif /* SL_BASE_NUMBER_H */
