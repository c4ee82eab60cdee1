/* test_status.c - every status has a word and a sentence of its own. */
#include <string.h>

#include "test.h"

#include "sluice.h"

struct row {
    int64_t number;
    const char *word, *text;
};

static const struct row rows[] = {
#define ROW(name, number, word, text) {number, word, text},
    SLUICE_STATUS_MAP(ROW)
#undef ROW
};
#define ROWS (sizeof rows / sizeof *rows)

static void every_status_says_its_own_word_and_sentence(void **state)
{
    (void)state;
    for (size_t i = 0; i < ROWS; i++) {
        assert_string_equal(sluice_status_word(rows[i].number), rows[i].word);
        assert_string_equal(sluice_status_text(rows[i].number), rows[i].text);
    }
}

static void numbers_are_0_minus_1_minus_2_and_so_on(void **state)
{
    (void)state;
    for (size_t i = 0; i < ROWS; i++) assert_int_equal(rows[i].number, -(int64_t)i);
}

static void no_two_statuses_share_a_word(void **state)
{
    (void)state;
    for (size_t i = 0; i < ROWS; i++)
        for (size_t j = 0; j < i; j++)
            if (strcmp(rows[i].word, rows[j].word) == 0) fail_msg("%s", rows[i].word);
}

static void a_positive_number_counts_as_ok(void **state)
{
    (void)state;
    assert_string_equal(sluice_status_word(1), "OK");
    assert_string_equal(sluice_status_word(INT64_MAX), "OK");
}

static void an_unknown_status_has_a_word_too(void **state)
{
    (void)state;
    assert_string_equal(sluice_status_word(-(int64_t)ROWS), "UNKNOWN");
    assert_string_equal(sluice_status_word(INT64_MIN), "UNKNOWN");
    assert_non_null(sluice_status_text(INT64_MIN));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_status_says_its_own_word_and_sentence),
        cmocka_unit_test(numbers_are_0_minus_1_minus_2_and_so_on),
        cmocka_unit_test(no_two_statuses_share_a_word),
        cmocka_unit_test(a_positive_number_counts_as_ok),
        cmocka_unit_test(an_unknown_status_has_a_word_too),
    };
    return cmocka_run_group_tests_name("status", tests, NULL, NULL);
}
