/* glob.h - patterns over keys: * ? [a-z] [^a-z] and \ before any of these.
 *
 * A pattern is compiled once. Then each byte of a text costs at most one step forevery 64 bytes of
 * the pattern, whatever the pattern is: positions in the pattern are bits of words, and a step
 * processes one word.
 *
 *     struct sl_glob *g = sl_glob_new((struct sl_bytes){"db:*", 4});
 *     if (sl_glob_matches(g, key)) ...
 *     sl_glob_free(g);
 */
#ifndef SL_BASE_GLOB_H
#define SL_BASE_GLOB_H

#include "base/types.h"

struct sl_glob;

/* Copies what it needs of the pattern. NULL when out of memory. Takes at most 1 KiB, 2 KiB more for
 * every 64 bytes of the pattern, and SL_GLOB_COMPILE_STEPS for each byte. */
#define SL_GLOB_COMPILE_STEPS 128u
struct sl_glob *sl_glob_new(struct sl_bytes pattern);
void sl_glob_free(struct sl_glob *g); /* NULL is allowed. */

/* Whether all of the text matches. Not from two threads at once. Takes at most text.n * sl_glob_words(pattern.n) steps. */
bool sl_glob_matches(const struct sl_glob *g, struct sl_bytes text);

/* The steps that all matches of this pattern have taken. The server charges a scan for them. */
uint64_t sl_glob_steps(const struct sl_glob *g);

static inline size_t sl_glob_words(size_t pattern_bytes)
{
    return (pattern_bytes + 63) / 64;
}

#endif /* SL_BASE_GLOB_H */
