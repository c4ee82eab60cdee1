#include "times.h"

#include <string.h>

static uint32_t class_of(uint64_t ns)
{
    if (ns < 1u << TIMES_BITS) return (uint32_t)ns;
    uint32_t shift = 63u - (uint32_t)__builtin_clzll(ns) - TIMES_BITS;
    return (shift << TIMES_BITS) + (uint32_t)(ns >> shift);
}

static double class_ns(uint32_t class)
{
    if (class < 2u << TIMES_BITS) return class;
    uint32_t shift = (class >> TIMES_BITS) - 1;
    return (double)(((uint64_t)(class & ((1u << TIMES_BITS) - 1)) | 1u << TIMES_BITS)
                    << shift) +
           (double)(1ull << shift) / 2;
}

void times_clear(struct times *t)
{
    memset(t, 0, sizeof *t);
}

void times_add(struct times *t, int64_t ns)
{
    t->classes[class_of(ns > 0 ? (uint64_t)ns : 0)]++;
}

void times_join(struct times *t, const struct times *more)
{
    for (uint32_t i = 0; i < TIMES_CLASSES; i++) t->classes[i] += more->classes[i];
}

double times_us(const struct times *t, double share)
{
    uint64_t all = 0, seen = 0;
    for (uint32_t i = 0; i < TIMES_CLASSES; i++) all += t->classes[i];
    for (uint32_t i = 0; i < TIMES_CLASSES; i++) {
        seen += t->classes[i];
        if (seen > 0 && (double)seen >= share * (double)all) return class_ns(i) / 1e3;
    }
    return 0;
}
