/* glob.c - compiles patterns and matches texts against them. */
#include "base/glob.h"

#include <stdlib.h>
#include <string.h>

/* A pattern is a sequence of elements, with a * between some of them. Each element
 * matches one byte of the text. Elements before the first * match at fixed offsets
 * from the beginning of the text, and elements after the last * at fixed offsets
 * from its end. For the elements between the first and the last *, we keep a bit set
 * of the elements that may match the next byte. When an element matches, the
 * following element enters the set. An element after a * also stays in the set. The
 * text matches as soon as the last of these elements has matched.
 *
 * A mask is the bit set of the elements that match a byte. Bytes that no element
 * distinguishes form a class and share a mask. */

#define WORD 64u
#define BYTES 256u

struct sl_glob {
    size_t count;    /* Number of elements. */
    size_t head;     /* Number of elements before the first *. */
    size_t tail;     /* Number of elements after the last *. */
    bool has_star;   /* False: all elements are in head. */
    size_t words;    /* Number of words in a mask. */
    uint64_t *stays; /* The elements that follow a *. */
    uint64_t *may;   /* During a match: the elements that may match the next byte. */
    uint64_t *steps; /* The steps that all matches have taken. */
    unsigned classes;
    uint8_t class[BYTES]; /* The class of each byte. */
    uint64_t masks[];     /* The mask of each class; then stays, may, steps. */
};

/* --- Parsing a pattern ------------------------------------------------------ */

/* The set of bytes that one element matches, one bit per byte value. */
struct bytes_set {
    uint64_t bits[BYTES / WORD];
};

static bool has(const struct bytes_set *s, unsigned byte)
{
    return (s->bits[byte / WORD] >> byte % WORD & 1) != 0;
}

static void add(struct bytes_set *s, unsigned from, unsigned to)
{
    for (unsigned b = from; b <= to; b++) s->bits[b / WORD] |= 1ull << b % WORD;
}

static void invert(struct bytes_set *s)
{
    for (size_t i = 0; i < BYTES / WORD; i++) s->bits[i] = ~s->bits[i];
}

/* Parse a set, [...], whose first character is at *p, and move *p past the closing
 * bracket. A set without a closing bracket extends to the end of the pattern. */
static void read_set(struct sl_bytes pattern, size_t *p, struct bytes_set *out)
{
    bool inverted = *p < pattern.n && pattern.at[*p] == '^';
    if (inverted) ++*p;
    for (; *p < pattern.n && pattern.at[*p] != ']'; ++*p) {
        if (pattern.at[*p] == '\\' && *p + 1 < pattern.n) ++*p;
        unsigned char from = (unsigned char)pattern.at[*p], to = from;
        if (*p + 2 < pattern.n && pattern.at[*p + 1] == '-' &&
            pattern.at[*p + 2] != ']') {
            to = (unsigned char)pattern.at[*p + 2];
            *p += 2;
        }
        add(out, from < to ? from : to, from < to ? to : from);
    }
    if (*p < pattern.n) ++*p;
    if (inverted) invert(out);
}

enum { A_SET = -1, ANY = -2 };

/* Parse the next element, which must exist and must not be a *, and move *p past it.
 * Returns the only byte that the element matches, or ANY, or A_SET after filling in
 * *set. */
static int read_element(struct sl_bytes pattern, size_t *p, struct bytes_set *set)
{
    char c = pattern.at[(*p)++];
    if (c == '?') return ANY;
    if (c == '[') {
        *set = (struct bytes_set){{0}};
        read_set(pattern, p, set);
        return A_SET;
    }
    if (c == '\\' && *p < pattern.n) c = pattern.at[(*p)++];
    return (unsigned char)c;
}

static bool skip_stars(struct sl_bytes pattern, size_t *p)
{
    size_t before = *p;
    while (*p < pattern.n && pattern.at[*p] == '*') ++*p;
    return *p > before;
}

/* --- Compiling ---------------------------------------------------------------- */

/* Split each class of which the set contains some bytes but not all. */
static void split(struct sl_glob *g, const struct bytes_set *s)
{
    uint16_t inside[BYTES] = {
        0}; /* The new class of a class's bytes in the set, plus 1; 0: none. */
    bool outside[BYTES] = {false};
    for (unsigned b = 0; b < BYTES; b++)
        if (!has(s, b)) outside[g->class[b]] = true;
    for (unsigned b = 0; b < BYTES; b++) {
        uint8_t old = g->class[b];
        if (!has(s, b) || !outside[old]) continue;
        if (inside[old] == 0) inside[old] = (uint16_t)++g->classes; /* At most BYTES. */
        g->class[b] = (uint8_t)(inside[old] - 1);
    }
}

/* Count the elements and build the classes. */
static void survey(struct sl_glob *g, struct sl_bytes pattern)
{
    struct bytes_set set, alone = {{0}}; /* Bytes with a class of their own. */
    size_t last_star = 0;
    g->classes = 1;
    for (size_t p = 0; p < pattern.n;) {
        if (skip_stars(pattern, &p)) {
            if (!g->has_star) g->head = g->count;
            g->has_star = true;
            last_star = g->count;
            continue;
        }
        int byte = read_element(pattern, &p, &set);
        g->count++;
        if (byte == A_SET) split(g, &set);
        if (byte < 0 || has(&alone, (unsigned)byte)) continue;
        add(&alone, (unsigned)byte, (unsigned)byte);
        set = (struct bytes_set){{0}};
        add(&set, (unsigned)byte, (unsigned)byte);
        split(g, &set);
    }
    if (g->has_star) g->tail = g->count - last_star;
    else g->head = g->count;
    g->words = sl_glob_words(g->count);
}

static void fill(struct sl_glob *g, struct sl_bytes pattern)
{
    struct bytes_set set;
    size_t i = 0;
    for (size_t p = 0; p < pattern.n; i++) {
        uint64_t bit = 1ull << i % WORD;
        if (skip_stars(pattern, &p)) {
            if (p == pattern.n) break;
            g->stays[i / WORD] |= bit;
        }
        uint64_t *masks = g->masks + i / WORD;
        int byte = read_element(pattern, &p, &set);
        if (byte >= 0) masks[g->class[byte] * g -> words] |= bit;
        for (unsigned c = 0; byte == ANY && c < g->classes; c++)
            masks[c * g->words] |= bit;
        for (unsigned b = 0; byte == A_SET && b < BYTES; b++)
            if (has(&set, b)) masks[g->class[b] * g -> words] |= bit;
    }
}

struct sl_glob *sl_glob_new(struct sl_bytes pattern)
{
    struct sl_glob rough = {0};
    survey(&rough, pattern);
    size_t masks = (rough.classes + 2) * rough.words + 1;
    struct sl_glob *g = calloc(1, sizeof *g + masks * sizeof *g->masks);
    if (g == NULL) return NULL;
    *g = rough;
    g->stays = g->masks + g->classes * g->words;
    g->may = g->stays + g->words;
    g->steps = g->may + g->words;
    fill(g, pattern);
    return g;
}

void sl_glob_free(struct sl_glob *g)
{
    free(g);
}

uint64_t sl_glob_steps(const struct sl_glob *g)
{
    return *g->steps;
}

/* --- Matching ----------------------------------------------------------------- */

static const uint64_t *mask_of(const struct sl_glob *g, char byte)
{
    return g->masks + g->class[(unsigned char)byte] * g->words;
}

/* Match n elements, beginning with `first`, against n bytes of the text. */
static bool row_matches(const struct sl_glob *g, size_t first, size_t n, const char *at)
{
    for (size_t i = 0; i < n; i++) {
        size_t element = first + i;
        ++*g->steps;
        if ((mask_of(g, at[i])[element / WORD] >> element % WORD & 1) == 0)
            return false;
    }
    return true;
}

/* Match the elements between the first and the last *. */
static bool middle_matches(const struct sl_glob *g, size_t n, const char *at)
{
    const size_t end = g->count - g->tail; /* One past the last of these elements. */
    const size_t from = g->head / WORD, to = (end - 1) / WORD;
    const uint64_t goal = 1ull << (end - 1) % WORD;
    const uint64_t *stays = g->stays + from;
    const size_t words = to - from + 1;
    uint64_t *may = g->may;
    memset(may, 0, words * sizeof *may);
    may[0] = 1ull << g->head % WORD;
    for (size_t i = 0; i < n; i++) {
        const uint64_t *mask = mask_of(g, at[i]) + from;
        uint64_t carry = 0;
        *g->steps += words;
        for (size_t w = 0; w < words; w++) {
            uint64_t took = may[w] & mask[w];
            if (w == words - 1 && (took & goal) != 0) return true;
            may[w] = (may[w] & stays[w]) | took << 1 | carry;
            carry = took >> (WORD - 1);
        }
    }
    return false;
}

bool sl_glob_matches(const struct sl_glob *g, struct sl_bytes text)
{
    if (!g->has_star) return text.n == g->count && row_matches(g, 0, g->count, text.at);
    if (text.n < g->head + g->tail) return false;
    if (!row_matches(g, 0, g->head, text.at) ||
        !row_matches(g, g->count - g->tail, g->tail, text.at + text.n - g->tail))
        return false;
    return g->head + g->tail == g->count ||
           middle_matches(g, text.n - g->head - g->tail, text.at + g->head);
}
