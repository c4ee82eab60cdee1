/* types.h - types that all modules share: bytes, fences, lists and times. */
#ifndef SL_BASE_TYPES_H
#define SL_BASE_TYPES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "base/list.h"
#include "base/time.h"

/* Borrowed bytes, not necessarily terminated by a zero byte. */
struct sl_bytes {
    const char *at;
    size_t n;
};

static inline bool sl_bytes_equal(struct sl_bytes a, struct sl_bytes b)
{
    return a.n == b.n && (a.n == 0 || memcmp(a.at, b.at, a.n) == 0);
}

/* A fencing token: a number that increases with every grant, taken from a hybrid
 * clock in microseconds. It stays below 2^53, because JavaScript, Lua and many JSON
 * parsers round larger integers. */
typedef uint64_t sl_fence;
#define SL_FENCE_MAX ((1ull << 53) - 1)

/* We ignore a wall clock that is later than this (the year 2112). So even if the
 * clock jumps far ahead, enough fences are left. */
#define SL_WALL_US_MAX (SL_FENCE_MAX / 2)

/* Approximate overhead of malloc() per block. */
#define SL_MALLOC_BYTES 16u

#endif /* SL_BASE_TYPES_H */
