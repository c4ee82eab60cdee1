/* types.h - types that all modules share: bytes, fences, lists, times. */
#ifndef SL_BASE_TYPES_H
#define SL_BASE_TYPES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/list.h"
#include "base/time.h"

/* Borrowed bytes. They need not end with a zero byte. */
struct sl_bytes {
    const char *at;
    size_t n;
};

/* A fencing token: a number that rises with every grant, made from the microseconds of a
 * hybrid clock. It stays below 2^53, because JavaScript, Lua and many JSON parsers round
 * larger integers. */
typedef uint64_t sl_fence;
#define SL_FENCE_MAX ((1ull << 53) - 1)

/* A wall clock beyond this, in the year 2112, is not believed: even if the clock jumps to
 * it, enough fences must be left. */
#define SL_WALL_US_MAX (SL_FENCE_MAX / 2)

/* The approximate overhead of malloc() for one block. */
#define SL_MALLOC_BYTES 16u

#endif /* SL_BASE_TYPES_H */
