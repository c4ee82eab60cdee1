#include "core/glob.h"

/* One set, [...], whose first character is at *p; leaves *p behind the bracket. A set that
 * is not closed ends with the pattern. */
static bool in_set(struct sl_bytes pattern, size_t *p, char c)
{
    bool not = *p < pattern.n && pattern.at[*p] == '^', found = false;
    if (not ) ++*p;
    for (; *p < pattern.n && pattern.at[*p] != ']'; ++*p) {
        if (pattern.at[*p] == '\\' && *p + 1 < pattern.n) ++*p;
        unsigned char from = (unsigned char)pattern.at[*p], to = from;
        if (*p + 2 < pattern.n && pattern.at[*p + 1] == '-' &&
            pattern.at[*p + 2] != ']') {
            to = (unsigned char)pattern.at[*p + 2];
            *p += 2;
        }
        unsigned char low = from < to ? from : to, high = from < to ? to : from;
        if ((unsigned char)c >= low && (unsigned char)c <= high) found = true;
    }
    if (*p < pattern.n) ++*p;
    return found != not ;
}

/* Match one character of the text; leaves *p behind what was used. */
static bool match_one(struct sl_bytes pattern, size_t *p, char c)
{
    char m = pattern.at[(*p)++];
    if (m == '?') return true;
    if (m == '[') return in_set(pattern, p, c);
    if (m == '\\' && *p < pattern.n) m = pattern.at[(*p)++];
    return m == c;
}

bool sl_glob(struct sl_bytes pattern, struct sl_bytes text)
{
    size_t p = 0, t = 0;
    size_t star = SIZE_MAX, star_text = 0; /* Where the last * was, and what it has. */
    while (t < text.n) {
        if (p < pattern.n && pattern.at[p] == '*') {
            star = ++p;
            star_text = t;
            continue;
        }
        if (p < pattern.n && match_one(pattern, &p, text.at[t])) {
            t++;
            continue;
        }
        /* The last * takes one more; what it took before it need not give back. */
        if (star == SIZE_MAX) return false;
        p = star;
        t = ++star_text;
    }
    while (p < pattern.n && pattern.at[p] == '*') p++;
    return p == pattern.n;
}
