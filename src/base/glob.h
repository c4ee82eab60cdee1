/* glob.h - glob patterns for keys: * ? [a-z] [^a-z], and \ to escape any of these.
 *
 * A pattern is compiled once. When it is matched, each byte of the text takes at most
 * one step for every 64 bytes of the pattern, whatever the pattern contains: each
 * position in the pattern is one bit, and a step processes one word of bits.
 *
 *     struct sl_glob *g = sl_glob_new((struct sl_bytes){"db:*", 4});
 *     if (sl_glob_matches(g, key)) ...
 *     sl_glob_free(g); */
#ifndef SL_BASE_GLOB_H
#define SL_BASE_GLOB_H

#include "base/types.h"

struct sl_glob;

/* Compile a pattern. Copies what it needs from the pattern. Returns NULL when out of
 * memory. Uses at most 1 KiB, plus 2 KiB for every 64 bytes of the pattern, and
 * takes at most SL_GLOB_COMPILE_STEPS steps for each byte of the pattern. */
#define SL_GLOB_COMPILE_STEPS 128u
struct sl_glob *sl_glob_new(struct sl_bytes pattern);
void sl_glob_free(struct sl_glob *g); /* NULL is allowed. */

/* Whether the whole text matches. Do not call this from two threads at once with the
 * same pattern. Takes at most text.n * sl_glob_words(pattern.n) steps. */
bool sl_glob_matches(const struct sl_glob *g, struct sl_bytes text);

/* Returns the number of steps that all matches of this pattern have taken. The
 * server charges them to the client that scans. */
uint64_t sl_glob_steps(const struct sl_glob *g);

static inline size_t sl_glob_words(size_t pattern_bytes)
{
    return (pattern_bytes + 63) / 64;
}

#endif /* SL_BASE_GLOB_H */
