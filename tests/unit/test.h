/* test.h - what every unit test includes: cmocka, and a list of tests that fills itself.
 *
 *     UNIT_TEST(a_positive_number_counts_as_ok)
 *     {
 *         assert_string_equal(sluice_status_word(1), "OK");
 *     }
 *
 *     int main(void)
 *     {
 *         return run_unit_tests("status");
 *     }
 *
 * The name of a test is a sentence about Sluice. Tests run in the order of the file. */
#ifndef SLUICE_TEST_H
#define SLUICE_TEST_H

/* clang-format off */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
/* clang-format on */

#define UNIT_TESTS_MAX 200

static struct CMUnitTest unit_tests[UNIT_TESTS_MAX];
static size_t unit_test_count;

__attribute__((unused)) static void unit_test_add(const char *name,
                                                  CMUnitTestFunction f)
{
    if (unit_test_count == UNIT_TESTS_MAX) __builtin_trap();
    unit_tests[unit_test_count++] = (struct CMUnitTest){.name = name, .test_func = f};
}

/* Constructors of one file run in the order in which they are defined. */
#define UNIT_TEST(sentence)                                             \
    static void sentence(void **);                                      \
    __attribute__((constructor)) static void sentence##_is_a_test(void) \
    {                                                                   \
        unit_test_add(#sentence, sentence);                             \
    }                                                                   \
    static void sentence(__attribute__((unused)) void **state)

__attribute__((unused)) static int run_unit_tests(const char *group)
{
    return _cmocka_run_group_tests(group, unit_tests, unit_test_count, NULL, NULL);
}

/* With a fixture: `setup` and `teardown` run before and after each test; each may be NULL. */
__attribute__((unused)) static int run_unit_tests_with(const char *group,
                                                       CMFixtureFunction setup,
                                                       CMFixtureFunction teardown)
{
    for (size_t i = 0; i < unit_test_count; i++) {
        unit_tests[i].setup_func = setup;
        unit_tests[i].teardown_func = teardown;
    }
    return run_unit_tests(group);
}

#endif /* SLUICE_TEST_H */
