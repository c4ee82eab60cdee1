/* filter.c - makes a program of tests/unit run only some of its tests.
 *
 * tests/mutants/run links it into such a program and names the test in the environment. Each line
 * is flushed, so that the log names the test in which a failed assertion ends the program. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

__attribute__((constructor)) static void choose_tests(void)
{
    const char *pattern = getenv("SLUICE_UNIT_TEST");
    setvbuf(stdout, NULL, _IOLBF, 0);
    if (pattern != NULL) cmocka_set_test_filter(pattern);
}
