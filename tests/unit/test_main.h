/* test_main.h - tests that register themselves.
 *
 *     TEST(a_grant_is_exclusive)
 *     {
 *         assert_true(...);
 *     }
 *
 *     TEST_MAIN(NULL, NULL)
 *
 * A program runs its tests in the order of its file; or, with an argument, those whose names
 * match it (* and ? are allowed). */
#ifndef SLUICE_TEST_MAIN_H
#define SLUICE_TEST_MAIN_H

#include <stdlib.h>

#include "test.h"

static struct CMUnitTest test_list[256];
static size_t test_count;

static inline void test_add(const char *name, CMUnitTestFunction test)
{
    if (test_count == sizeof test_list / sizeof test_list[0]) abort();
    test_list[test_count++] = (struct CMUnitTest){.name = name, .test_func = test};
}

#define TEST(name)                                            \
    static void name(void **state);                           \
    __attribute__((constructor)) static void add_##name(void) \
    {                                                         \
        test_add(#name, name);                                \
    }                                                         \
    static void name(__attribute__((unused)) void **state)

static inline int test_run(int argc, char **argv, const char *group,
                           CMFixtureFunction group_setup, CMFixtureFunction test_setup)
{
    for (size_t i = 0; i < test_count; i++) test_list[i].setup_func = test_setup;
    if (argc > 1) cmocka_set_test_filter(argv[1]);
    return _cmocka_run_group_tests(group, test_list, test_count, group_setup, NULL);
}

/* The setup functions run before the first test, and before each test; NULL: none. */
#define TEST_MAIN(group_setup, test_setup)                                   \
    int main(int argc, char **argv)                                          \
    {                                                                        \
        return test_run(argc, argv, __BASE_FILE__, group_setup, test_setup); \
    }

#endif /* SLUICE_TEST_MAIN_H */
