/* test_glob.c - patterns: what they match, and how many steps that takes. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "test.h"

#include "base/glob.h"

static struct sl_bytes bytes(const char *text)
{
    return (struct sl_bytes){text, strlen(text)};
}

static bool matches(const char *pattern, const char *text)
{
    struct sl_glob *g = sl_glob_new(bytes(pattern));
    assert_non_null(g);
    bool yes = sl_glob_matches(g, bytes(text));
    sl_glob_free(g);
    return yes;
}

/* --- The reference: one character after the other, with all ways of a * ---------- */

static bool set_has(struct sl_bytes pattern, size_t *p, char c)
{
    bool inverted = *p < pattern.n && pattern.at[*p] == '^', found = false;
    if (inverted) ++*p;
    for (; *p < pattern.n && pattern.at[*p] != ']'; ++*p) {
        if (pattern.at[*p] == '\\' && *p + 1 < pattern.n) ++*p;
        unsigned char a = (unsigned char)pattern.at[*p], b = a, at = (unsigned char)c;
        if (*p + 2 < pattern.n && pattern.at[*p + 1] == '-' &&
            pattern.at[*p + 2] != ']') {
            b = (unsigned char)pattern.at[*p + 2];
            *p += 2;
        }
        if ((a <= at && at <= b) || (b <= at && at <= a)) found = true;
    }
    if (*p < pattern.n) ++*p;
    return found != inverted;
}

static bool reference(struct sl_bytes pattern, struct sl_bytes text)
{
    if (pattern.n == 0) return text.n == 0;
    const struct sl_bytes rest = {pattern.at + 1, pattern.n - 1};
    if (pattern.at[0] == '*') {
        for (size_t n = 0; n <= text.n; n++)
            if (reference(rest, (struct sl_bytes){text.at + n, text.n - n}))
                return true;
        return false;
    }
    if (text.n == 0) return false;
    const struct sl_bytes next = {text.at + 1, text.n - 1};
    size_t p = 1;
    bool takes = pattern.at[0] == '?';
    if (pattern.at[0] == '[') takes = set_has(pattern, &p, text.at[0]);
    else if (pattern.at[0] == '\\' && pattern.n > 1)
        takes = pattern.at[p++] == text.at[0];
    else if (pattern.at[0] != '?') takes = pattern.at[0] == text.at[0];
    return takes && reference((struct sl_bytes){pattern.at + p, pattern.n - p}, next);
}

static void compare(const struct sl_glob *g, struct sl_bytes pattern,
                    struct sl_bytes text)
{
    uint64_t before = sl_glob_steps(g);
    bool got = sl_glob_matches(g, text), wanted = reference(pattern, text);
    uint64_t steps = sl_glob_steps(g) - before;
    if (got != wanted || steps > text.n * sl_glob_words(pattern.n))
        fail_msg("\"%.*s\" and \"%.*s\": %d in %" PRIu64 " steps, not %d",
                 (int)pattern.n, pattern.at, (int)text.n, text.at, got, steps, wanted);
}

/* The text of a number in an alphabet; each of the same length once. */
static void spell(char *out, size_t n, const char *alphabet, size_t number)
{
    for (size_t i = 0, letters = strlen(alphabet); i < n; i++, number /= letters)
        out[i] = alphabet[number % letters];
}

static size_t power(size_t base, size_t n)
{
    size_t all = 1;
    while (n-- > 0) all *= base;
    return all;
}

static void compare_all(const char *letters, size_t pattern_max, const char *of_texts,
                        size_t text_max)
{
    char pattern[8], text[8];
    for (size_t n = 0; n <= pattern_max; n++)
        for (size_t i = 0; i < power(strlen(letters), n); i++) {
            spell(pattern, n, letters, i);
            struct sl_glob *g = sl_glob_new((struct sl_bytes){pattern, n});
            assert_non_null(g);
            for (size_t m = 0; m <= text_max; m++)
                for (size_t j = 0; j < power(strlen(of_texts), m); j++) {
                    spell(text, m, of_texts, j);
                    compare(g, (struct sl_bytes){pattern, n},
                            (struct sl_bytes){text, m});
                }
            sl_glob_free(g);
        }
}

UNIT_TEST(all_short_patterns_match_as_the_reference_does)
{
    compare_all("ab*?", 5, "ab", 6);
    compare_all("a[]^-\\*", 5, "a]^", 3);
}

/* Random ones, longer than a word, of which much matches. */
UNIT_TEST(long_patterns_match_as_the_reference_does)
{
    uint32_t random = 12345;
    unsigned matched = 0;
    for (int round = 0; round < 4000; round++) {
        char pattern[300], text[400];
        size_t n = 0, m = 0, stars = 0;
        random = random * 1664525 + 1013904223;
        size_t elements = random >> 16 & 127;
        for (size_t i = 0; i < elements; i++) {
            random = random * 1664525 + 1013904223;
            unsigned draw = random >> 16 & 31;
            char c = "abcd"[random >> 24 & 3];
            if (draw == 0 && stars++ < 4) {
                pattern[n++] = '*';
                for (unsigned k = random >> 26 & 7; k > 0; k--) text[m++] = c;
                continue;
            }
            if (draw == 1) pattern[n++] = '?';
            else if (draw == 2) n += (size_t)sprintf(pattern + n, "[^x-z]");
            else if (draw == 3) n += (size_t)sprintf(pattern + n, "[a-d]");
            else pattern[n++] = c;
            text[m++] = c;
        }
        if (round % 4 == 0 && m > 0) text[m / 2] = 'z';
        struct sl_glob *g = sl_glob_new((struct sl_bytes){pattern, n});
        assert_non_null(g);
        compare(g, (struct sl_bytes){pattern, n}, (struct sl_bytes){text, m});
        if (sl_glob_matches(g, (struct sl_bytes){text, m})) matched++;
        sl_glob_free(g);
    }
    assert_in_range(matched, 2000, 3900);
}

static void count_steps(const char *pattern, size_t n, struct sl_bytes text,
                        bool wanted)
{
    struct sl_glob *g = sl_glob_new((struct sl_bytes){pattern, n});
    assert_non_null(g);
    assert_int_equal(sl_glob_matches(g, text), wanted);
    assert_in_range(sl_glob_steps(g), 1, text.n * ((n + 63) / 64));
    sl_glob_free(g);
}

UNIT_TEST(a_byte_costs_one_step_for_64_bytes_of_the_pattern)
{
    static const size_t lengths[] = {4, 63, 64, 65, 66, 127, 128, 129, 640, 2000};
    enum { TEXT = 1024 };
    char text[TEXT];
    memset(text, 'a', sizeof text);
    for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++) {
        size_t n = lengths[i];
        char *pattern = malloc(n);
        /* *aaa...ab*: of which much is found at every place. */
        memset(pattern, 'a', n);
        pattern[0] = pattern[n - 1] = '*';
        pattern[n - 2] = 'b';
        text[TEXT - 1] = 'a';
        count_steps(pattern, n, (struct sl_bytes){text, TEXT}, false);
        text[TEXT - 1] = 'b';
        count_steps(pattern, n, (struct sl_bytes){text, TEXT}, n - 2 <= TEXT);
        /* *a*a*a*b */
        for (size_t k = 0; k < n; k++) pattern[k] = k % 2 == 0 ? '*' : 'a';
        pattern[n - 1] = 'b';
        count_steps(pattern, n, (struct sl_bytes){text, TEXT}, true);
        text[TEXT - 1] = 'a';
        count_steps(pattern, n, (struct sl_bytes){text, TEXT}, false);
        free(pattern);
    }
}

UNIT_TEST(every_byte_may_be_in_a_pattern)
{
    char pattern[3] = {'\\', 0, '*'};
    for (int b = 0; b < 256; b++) {
        pattern[1] = (char)b;
        struct sl_glob *g = sl_glob_new((struct sl_bytes){pattern, 3});
        assert_non_null(g);
        for (int c = 0; c < 256; c++) {
            const char text[2] = {(char)c, (char)b};
            assert_int_equal(sl_glob_matches(g, (struct sl_bytes){text, 2}), b == c);
        }
        sl_glob_free(g);
    }
    char all[512]; /* As many classes as there are bytes. */
    for (int b = 0; b < 256; b++) {
        all[2 * b] = '\\';
        all[2 * b + 1] = (char)b;
    }
    struct sl_glob *g = sl_glob_new((struct sl_bytes){all, sizeof all});
    char text[256];
    for (int b = 0; b < 256; b++) text[b] = (char)b;
    assert_non_null(g);
    assert_true(sl_glob_matches(g, (struct sl_bytes){text, sizeof text}));
    text[200]++;
    assert_false(sl_glob_matches(g, (struct sl_bytes){text, sizeof text}));
    sl_glob_free(g);
}

UNIT_TEST(patterns_match_as_in_redis)
{
    assert_true(matches("*", "") && matches("*", "abc") && matches("a*c", "abbbc"));
    assert_true(matches("a?c", "abc") && !matches("a?c", "ac"));
    assert_true(matches("h[ae]llo", "hello") && !matches("h[ae]llo", "hillo"));
    assert_true(matches("h[^e]llo", "hallo") && !matches("h[^e]llo", "hello"));
    assert_true(matches("h[a-b]llo", "hbllo") && matches("\\*", "*") &&
                !matches("\\*", "a"));
    assert_true(!matches("", "a") && matches("", "") && !matches("a", ""));
    assert_true(matches("*a*b*c*", "xxaxxbxxcxx") && !matches("*a*b*c*", "xxaxxcxx"));
    assert_true(matches("[", "a") == false && matches("a[", "ab") == false);
    /* What takes exponential time in a careless matcher. */
    char text[1000];
    memset(text, 'a', sizeof text - 1);
    text[sizeof text - 1] = '\0';
    assert_false(matches("*a*a*a*a*a*a*a*a*a*a*a*a*b", text));
}

int main(void)
{
    return run_unit_tests("glob");
}
