/* test_suggest.c - which name is suggested for a misspelled word. */
#include <string.h>

#include "test.h"

#include "base/suggest.h"

static const char *const names[] = {"ACQUIRE", "RELEASE",  "EXTEND", "CHECK",
                                    "LOCKS",   "PRIORITY", "PER",    "PING"};

static const char *suggest(const char *word)
{
    return sl_suggest((struct sl_bytes){word, strlen(word)}, names,
                      sizeof names / sizeof *names);
}

static void suggests(const char *word, const char *name)
{
    const char *got = suggest(word);
    if (name == NULL) assert_null(got);
    else {
        assert_non_null(got);
        assert_string_equal(got, name);
    }
}

UNIT_TEST(one_typing_error)
{
    suggests("AQUIRE", "ACQUIRE");   /* left out */
    suggests("ACQUUIRE", "ACQUIRE"); /* inserted */
    suggests("ACWUIRE", "ACQUIRE");  /* replaced */
    suggests("PRE", "PER");          /* swapped: one error, so it is close enough */
    suggests("LOCK", "LOCKS");
}

UNIT_TEST(upper_and_lower_case_are_equal)
{
    suggests("aquire", "ACQUIRE");
    suggests("acquire", "ACQUIRE");
    suggests("Relaese", "RELEASE");
}

UNIT_TEST(several_typing_errors_only_in_long_words)
{
    suggests("AQUIER", "ACQUIRE");
    suggests("XXTEND", "EXTEND");
    suggests("RELEXYZ", NULL);
    suggests("PRIORITISE", "PRIORITY");
    suggests("PXX", NULL);
    suggests("PRIO", "PRIORITY");
}

UNIT_TEST(an_abbreviation_of_one_name)
{
    static const char *const settings[] = {"listen", "lease-max", "lease-min"};
    const struct sl_bytes unique = {"list", 4}, common = {"lea", 3};
    suggests("ACQ", "ACQUIRE");
    suggests("AC", NULL);
    assert_string_equal(sl_suggest(unique, settings, 3), "listen");
    assert_null(sl_suggest(common, settings, 3));
}

UNIT_TEST(the_closest_name_wins)
{
    static const char *const near[] = {"waiters-max", "waits-max", "writers-max"};
    const struct sl_bytes word = {"waits-mex", 9};
    assert_string_equal(sl_suggest(word, near, 3), "waits-max");
}

UNIT_TEST(long_words_and_names_are_not_compared)
{
    char name[SL_SUGGEST_BYTES_MAX + 2] = "", word[SL_SUGGEST_BYTES_MAX + 2] = "";
    const char *const one[] = {name};
    memset(name, 'a', SL_SUGGEST_BYTES_MAX);
    memset(word, 'a', SL_SUGGEST_BYTES_MAX + 1);
    word[7] = 'b';
    assert_ptr_equal(sl_suggest((struct sl_bytes){word, SL_SUGGEST_BYTES_MAX}, one, 1),
                     name);
    assert_null(sl_suggest((struct sl_bytes){word, SL_SUGGEST_BYTES_MAX + 1}, one, 1));
    name[SL_SUGGEST_BYTES_MAX] = 'a';
    assert_null(sl_suggest((struct sl_bytes){word, SL_SUGGEST_BYTES_MAX}, one, 1));
}

UNIT_TEST(nothing_is_suggested_for_a_distant_word)
{
    suggests("", NULL);
    suggests("WHAT", NULL);
    assert_null(sl_suggest((struct sl_bytes){"PING", 4}, names, 0));
}

int main(void)
{
    return run_unit_tests("suggest");
}
