/* hash.h - hashes of bytes that clients choose, and of numbers that Sluice chooses.
 *
 * Clients choose the keys of our hash tables. A fast hash with a seed is not enough:
 * an attacker could compute the seed from what the server reveals, and then send
 * keys that all fall into one slot. SipHash-1-3 was designed for this case.
 *
 * Written for Sluice after the description by Jean-Philippe Aumasson and Daniel J.
 * Bernstein ("SipHash: a fast short-input PRF", 2012), with one round per word and
 * three final rounds. Their reference code is in the public domain (CC0); none of it
 * is used here. */
#ifndef SL_BASE_HASH_H
#define SL_BASE_HASH_H

#include "base/types.h"

/* A hash key. It must be random and secret. */
struct sl_hash_key {
    uint64_t a, b;
};

uint64_t sl_hash(struct sl_hash_key key, const void *at, size_t n);

/* Hash a number that no client chooses: a session id, a ticket or a fence. This is
 * cheaper than sl_hash(), and with one seed no two numbers have the same hash. */
static inline uint64_t sl_hash_u64(uint64_t x, uint64_t seed)
{
    x = (x ^ seed) * 0x9e3779b97f4a7c15u;
    x = (x ^ (x >> 32)) * 0xd6e8feb86659fd93u;
    return x ^ (x >> 32);
}

#endif /* SL_BASE_HASH_H */
