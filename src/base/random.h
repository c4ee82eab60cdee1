/* random.h - a pseudorandom number generator without global state: xoshiro256**,
 * seeded by splitmix64. The same seed gives the same numbers on every machine. Not
 * for secrets. */
#ifndef SL_BASE_RANDOM_H
#define SL_BASE_RANDOM_H

#include <stdbool.h>
#include <stdint.h>

struct sl_random {
    uint64_t s[4];
};

static inline void sl_random_seed(struct sl_random *r, uint64_t seed)
{
    for (int i = 0; i < 4; i++) {
        uint64_t z = (seed += 0x9E3779B97F4A7C15ull);
        z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ull;
        z = (z ^ (z >> 27)) * 0x94D049BB133111EBull;
        r->s[i] = z ^ (z >> 31);
    }
}

static inline uint64_t sl_random_next(struct sl_random *r)
{
    uint64_t *s = r->s, m = s[1] * 5, out = ((m << 7) | (m >> 57)) * 9, t = s[1] << 17;
    s[2] ^= s[0];
    s[3] ^= s[1];
    s[1] ^= s[2];
    s[0] ^= s[3];
    s[2] ^= t;
    s[3] = (s[3] << 45) | (s[3] >> 19);
    return out;
}

/* Returns a number from 0 to n - 1, or 0 if n is 0. */
static inline uint32_t sl_random_below(struct sl_random *r, uint32_t n)
{
    return (uint32_t)(((sl_random_next(r) >> 32) * n) >> 32);
}

/* Returns a number from lo to hi, inclusive. */
static inline int64_t sl_random_between(struct sl_random *r, int64_t lo, int64_t hi)
{
    return lo + (int64_t)(sl_random_next(r) % (uint64_t)(hi - lo + 1));
}

/* Returns true with a probability of of_10000 / 10000. */
static inline bool sl_random_maybe(struct sl_random *r, uint32_t of_10000)
{
    return sl_random_below(r, 10000) < of_10000;
}

#endif /* SL_BASE_RANDOM_H */
