/* hash.c - SipHash-1-3. */
#include "base/hash.h"

#include <string.h>

struct state {
    uint64_t a, b, c, d;
};

static inline uint64_t rotate(uint64_t x, unsigned by)
{
    return x << by | x >> (64 - by);
}

static inline void mix(struct state *s)
{
    s->a += s->b;
    s->c += s->d;
    s->b = rotate(s->b, 13) ^ s->a;
    s->d = rotate(s->d, 16) ^ s->c;
    s->a = rotate(s->a, 32);
    s->c += s->b;
    s->a += s->d;
    s->b = rotate(s->b, 17) ^ s->c;
    s->d = rotate(s->d, 21) ^ s->a;
    s->c = rotate(s->c, 32);
}

static inline void add(struct state *s, uint64_t word)
{
    s->d ^= word;
    mix(s);
    s->a ^= word;
}

/* Words are little-endian, so that hashes are the same on every machine. */
static inline uint64_t word_at(const unsigned char *at)
{
    uint64_t word;
    memcpy(&word, at, sizeof word);
#if __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
    word = __builtin_bswap64(word);
#endif
    return word;
}

static inline uint64_t half_at(const unsigned char *at)
{
    uint32_t half;
    memcpy(&half, at, sizeof half);
#if __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
    half = __builtin_bswap32(half);
#endif
    return half;
}

/* Load the last n % 8 bytes with overlapping loads instead of a loop. */
static inline uint64_t rest_of(const unsigned char *at, size_t n)
{
    size_t rest = n % 8;
    if (rest == 0) return 0;
    if (n >= 8) return word_at(at + n - 8) >> (64 - 8 * rest);
    if (n >= 4) return half_at(at) | half_at(at + n - 4) << (8 * n - 32);
    /* One to three bytes are left: load the first, the middle and the last. */
    return (uint64_t)at[0] | (uint64_t)at[n / 2] << (n / 2 * 8) |
           (uint64_t)at[n - 1] << ((n - 1) * 8);
}

uint64_t sl_hash(struct sl_hash_key key, const void *at, size_t n)
{
    const unsigned char *p = at;
    struct state s = {key.a ^ 0x736f6d6570736575u, key.b ^ 0x646f72616e646f6du,
                      key.a ^ 0x6c7967656e657261u, key.b ^ 0x7465646279746573u};
    for (size_t i = 0; i + 8 <= n; i += 8) add(&s, word_at(p + i));
    add(&s, rest_of(p, n) | (uint64_t)n << 56);
    s.c ^= 0xff;
    mix(&s);
    mix(&s);
    mix(&s);
    return s.a ^ s.b ^ s.c ^ s.d;
}
