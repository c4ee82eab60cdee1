#include "base/number.h"

bool sl_parse_u64(struct sl_bytes text, uint64_t max, uint64_t *out)
{
    uint64_t n = 0;
    if (text.n == 0) return false;
    for (size_t i = 0; i < text.n; i++) {
        uint64_t digit = (uint64_t)(unsigned char)text.at[i] - '0';
        if (digit > 9 || n > max / 10 || digit > max - n * 10) return false;
        n = n * 10 + digit;
    }
    *out = n;
    return true;
}

bool sl_parse_number(struct sl_bytes text, int64_t min, int64_t max, int64_t *out)
{
    uint64_t size;
    const bool minus = text.n > 0 && text.at[0] == '-';
    if (minus) text = (struct sl_bytes){text.at + 1, text.n - 1};
    if (text.n > SL_NUMBER_DIGITS_MAX || !sl_parse_u64(text, INT64_MAX, &size))
        return false;
    *out = minus ? -(int64_t)size : (int64_t)size;
    return *out >= min && *out <= max;
}
