#include "base/suggest.h"

#include <string.h>

#define PREFIX_BYTES_MIN 3u /* Shorter words are not treated as abbreviations. */

static char lower(char c)
{
    return c >= 'A' && c <= 'Z' ? (char)(c + 32) : c;
}

static size_t least(size_t a, size_t b)
{
    return a < b ? a : b;
}

/* Returns the number of typing errors between two words of at most
 * SL_SUGGEST_BYTES_MAX bytes. Row i of the table contains the distances between the
 * first i bytes of a and each prefix of b. Only the last three rows are kept. */
static size_t distance(struct sl_bytes a, struct sl_bytes b)
{
    size_t rows[3][SL_SUGGEST_BYTES_MAX + 1];
    for (size_t j = 0; j <= b.n; j++) rows[0][j] = j;
    for (size_t i = 1; i <= a.n; i++) {
        size_t *row = rows[i % 3], *above = rows[(i + 2) % 3];
        const size_t *second = rows[(i + 1) % 3];
        row[0] = i;
        for (size_t j = 1; j <= b.n; j++) {
            char x = lower(a.at[i - 1]), y = lower(b.at[j - 1]);
            row[j] = least(above[j - 1] + (x != y), 1 + least(above[j], row[j - 1]));
            if (i > 1 && j > 1 && x == lower(b.at[j - 2]) && y == lower(a.at[i - 2]))
                row[j] = least(row[j], second[j - 2] + 1);
        }
    }
    return rows[a.n % 3][b.n];
}

/* Returns the number of typing errors that are plausible in a word of this length. */
static size_t errors_max(size_t bytes)
{
    if (bytes <= 3) return 1;
    return bytes <= 8 ? 2 : 3;
}

static bool begins_with(const char *name, struct sl_bytes word)
{
    for (size_t i = 0; i < word.n; i++)
        if (name[i] == '\0' || lower(name[i]) != lower(word.at[i])) return false;
    return true;
}

/* Returns the only name that begins with the word, or NULL if there is none or more
 * than one. */
static const char *completion(struct sl_bytes word, const char *const *names, size_t n)
{
    const char *found = NULL;
    if (word.n < PREFIX_BYTES_MIN) return NULL;
    for (size_t i = 0; i < n; i++) {
        if (!begins_with(names[i], word)) continue;
        if (found != NULL && strcmp(found, names[i]) != 0) return NULL;
        found = names[i];
    }
    return found;
}

const char *sl_suggest(struct sl_bytes word, const char *const *names, size_t n)
{
    const char *best = NULL;
    if (word.n == 0 || word.n > SL_SUGGEST_BYTES_MAX) return NULL;
    size_t limit = errors_max(word.n) + 1;
    for (size_t i = 0; i < n; i++) {
        const struct sl_bytes name = {names[i], strlen(names[i])};
        if (name.n > SL_SUGGEST_BYTES_MAX || name.n >= word.n + limit ||
            word.n >= name.n + limit)
            continue;
        size_t d = distance(word, name);
        if (d >= limit) continue;
        limit = d;
        best = names[i];
    }
    return best != NULL ? best : completion(word, names, n);
}
