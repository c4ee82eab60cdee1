#include "base/number.h"

#include <stddef.h>

#define SAFE_DIGITS 19u /* Any number of this many digits fits into 64 bits. */

/* Commands contain many numbers. Almost all are short and need no overflow check. */
static inline bool parse(struct sl_bytes text, uint64_t max, uint64_t *out)
{
    const char *at = text.at, *end = text.at + text.n;
    uint64_t n = 0;
    if (text.n == 0) return false;
    while (end - at > (ptrdiff_t)SAFE_DIGITS && *at == '0') at++;
    if (end - at > (ptrdiff_t)SAFE_DIGITS + 1) return false;
    const char *safe = end - at > (ptrdiff_t)SAFE_DIGITS ? end - 1 : end;
    for (; at < safe; at++) {
        unsigned digit = (unsigned)(unsigned char)*at - '0';
        if (digit > 9) return false;
        n = n * 10 + digit;
    }
    if (at < end) {
        unsigned digit = (unsigned)(unsigned char)*at - '0';
        if (digit > 9 || n > (UINT64_MAX - digit) / 10) return false;
        n = n * 10 + digit;
    }
    *out = n;
    return n <= max;
}

bool sl_parse_u64(struct sl_bytes text, uint64_t max, uint64_t *out)
{
    return parse(text, max, out);
}

bool sl_parse_number(struct sl_bytes text, int64_t min, int64_t max, int64_t *out)
{
    uint64_t size;
    const bool minus = text.n > 0 && text.at[0] == '-';
    if (minus) text = (struct sl_bytes){text.at + 1, text.n - 1};
    if (text.n > SL_NUMBER_DIGITS_MAX || !parse(text, INT64_MAX, &size)) return false;
    *out = minus ? -(int64_t)size : (int64_t)size;
    return *out >= min && *out <= max;
}
