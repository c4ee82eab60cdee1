#include "client/answers.h"

#include <stdlib.h>
#include <string.h>

void sl_answers_add(struct sl_answers *a, sl_ms ms)
{
    a->ms[a->count++ % SL_ANSWERS] = ms;
}

static int by_size(const void *x, const void *y)
{
    sl_ms a = *(const sl_ms *)x, b = *(const sl_ms *)y;
    return a < b ? -1 : a > b;
}

sl_ms sl_answers_at(const struct sl_answers *a, unsigned percent)
{
    sl_ms sorted[SL_ANSWERS];
    size_t n = a->count < SL_ANSWERS ? (size_t)a->count : SL_ANSWERS;
    if (n == 0) return 0;
    memcpy(sorted, a->ms, n * sizeof *sorted);
    qsort(sorted, n, sizeof *sorted, by_size);
    size_t at = (n * percent + 99) / 100; /* The rank of the percentile. */
    return sorted[at > 0 ? at - 1 : 0];
}

sl_ms sl_answers_force_ms(const struct sl_answers *a)
{
    if (a->count < SL_ANSWERS_MIN) return SL_NEVER;
    sl_ms p99 = sl_answers_at(a, 99);
    return p99 + p99 / 2 + 5; /* A margin. */
}
