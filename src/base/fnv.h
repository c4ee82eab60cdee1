/* fnv.h - the 64-bit FNV-1a hash, for names that no attacker chooses. The hash
 * values are the same on every machine and in every version. */
#ifndef SL_BASE_FNV_H
#define SL_BASE_FNV_H

#include <stddef.h>
#include <stdint.h>

#define SL_FNV_START 0xcbf29ce484222325u

/* Add one byte, or another small number, to a hash. */
static inline uint64_t sl_fnv_add(uint64_t hash, uint64_t number)
{
    return (hash ^ number) * 0x100000001b3u;
}

static inline uint64_t sl_fnv_add_bytes(uint64_t hash, const char *at, size_t n)
{
    for (size_t i = 0; i < n; i++) hash = sl_fnv_add(hash, (unsigned char)at[i]);
    return hash;
}

#endif /* SL_BASE_FNV_H */
