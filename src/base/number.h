/* number.h - parses decimal numbers in text that need not end with a zero byte. */
#ifndef SL_BASE_NUMBER_H
#define SL_BASE_NUMBER_H

#include "base/types.h"

/* Both functions parse the whole text and accept leading zeros. They return false if
 * the text is not a number or the number is out of range. */

/* Parse an unsigned decimal number that is not larger than max. */
bool sl_parse_u64(struct sl_bytes text, uint64_t max, uint64_t *out);

/* Parse a number from min to max. It has at most SL_NUMBER_DIGITS_MAX digits and may
 * begin with a minus sign. */
#define SL_NUMBER_DIGITS_MAX 18
bool sl_parse_number(struct sl_bytes text, int64_t min, int64_t max, int64_t *out);

#endif /* SL_BASE_NUMBER_H */
