/* utf8.h - characters in UTF-8, for programs that print text from untrusted sources. */
#ifndef SL_BASE_UTF8_H
#define SL_BASE_UTF8_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Returns the length of the character at s, which has at most n bytes; 0 if it is invalid. */
static inline size_t sl_utf8_length(const unsigned char *s, size_t n)
{
    uint32_t c, least;
    size_t length;
    if (n == 0) return 0;
    if (s[0] < 0x80) return 1;
    if ((s[0] & 0xe0) == 0xc0) length = 2, c = s[0] & 0x1fu, least = 0x80;
    else if ((s[0] & 0xf0) == 0xe0) length = 3, c = s[0] & 0x0fu, least = 0x800;
    else if ((s[0] & 0xf8) == 0xf0) length = 4, c = s[0] & 0x07u, least = 0x10000;
    else return 0;
    if (length > n) return 0;
    for (size_t i = 1; i < length; i++) {
        if ((s[i] & 0xc0) != 0x80) return 0;
        c = c << 6 | (s[i] & 0x3fu);
    }
    bool surrogate = c >= 0xd800 && c <= 0xdfff;
    return c >= least && c <= 0x10ffff && !surrogate ? length : 0;
}

/* Whether a character of this length is safe to print as it is. Control characters (ASCII and
 * U+0080 to U+009F) and characters that change the writing direction are not safe. A backslash is
 * not either, because it begins an escape. */
static inline bool sl_utf8_is_safe(const unsigned char *s, size_t length)
{
    if (length == 0) return false;
    if (length == 1) return s[0] >= 0x20 && s[0] != 0x7f && s[0] != '\\';
    if (length == 2) return !(s[0] == 0xc2 && s[1] < 0xa0);
    if (length == 3 && s[0] == 0xe2 && s[1] == 0x80) return s[2] < 0x8b || s[2] > 0xae;
    if (length == 3 && s[0] == 0xe2 && s[1] == 0x81) return s[2] < 0xa6 || s[2] > 0xa9;
    return true;
}

#endif /* SL_BASE_UTF8_H */
