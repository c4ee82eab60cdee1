#include "server/command/number.h"

bool sl_parse_number(struct sl_bytes b, int64_t min, int64_t max, int64_t *out)
{
    size_t at = b.n > 0 && b.at[0] == '-' ? 1 : 0;
    int64_t n = 0;
    if (b.n == at || b.n - at > 18) return false;
    for (size_t i = at; i < b.n; i++) {
        if (b.at[i] < '0' || b.at[i] > '9') return false;
        n = n * 10 + (b.at[i] - '0');
    }
    if (at > 0) n = -n;
    *out = n;
    return n >= min && n <= max;
}
