/* test.h - what every unit test includes: cmocka, and what cmocka wants before it. */
#ifndef SLUICE_TEST_H
#define SLUICE_TEST_H

/* clang-format off */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
/* clang-format on */

#endif /* SLUICE_TEST_H */
