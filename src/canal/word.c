#include "canal/word.h"

#if defined(__x86_64__)

#include <cpuid.h>

bool sl_canal_word_sse_load = false;

bool sl_canal_word_is_supported(void)
{
    unsigned a, b, c, d;
    if (!__get_cpuid(1, &a, &b, &c, &d)) return false;
    sl_canal_word_sse_load = (c & bit_AVX) != 0;
    return (c & bit_CMPXCHG16B) != 0;
}

#else

/* Every arm64 processor has ldaxp and stlxp. A program built for caspal does not
 * start on a processor without it. */
bool sl_canal_word_is_supported(void)
{
    return true;
}

#endif
