/* test_guesses.c - how long AUTH waits after wrong passwords: guesses.h. */
#include <stdlib.h>
#include <string.h>

#include "test.h"

#include "server/net/guesses.h"

static struct sl_guesses *g;

static int begin(void **state)
{
    (void)state;
    g = calloc(1, sizeof *g);
    g->key = (struct sl_hash_key){7, 8};
    g->max_ms = 2000;
    return 0;
}

static int end(void **state)
{
    (void)state;
    free(g);
    return 0;
}

static struct sl_guess_address address(uint32_t number)
{
    struct sl_guess_address a = {.kind = 1};
    memcpy(a.at, &number, sizeof number);
    return a;
}

static void fail_often(uint32_t number, int times, sl_ms now_ms)
{
    const struct sl_guess_address a = address(number);
    for (int i = 0; i < times; i++) sl_guesses_failed(g, &a, now_ms);
}

static sl_ms delay(uint32_t number, sl_ms now_ms)
{
    struct sl_guess *row;
    const struct sl_guess_address a = address(number);
    return sl_guesses_delay(g, &a, now_ms, &row);
}

static void the_delay_doubles_with_each_failure_up_to_its_limit(void **state)
{
    static const sl_ms wanted[] = {0,   0,   0,   0,    25,   50,  100,
                                   200, 400, 800, 1600, 2000, 2000};
    (void)state;
    for (size_t i = 0; i < sizeof wanted / sizeof *wanted; i++) {
        assert_int_equal(delay(1, 1000), wanted[i]);
        fail_often(1, 1, 1000);
    }
}

static void an_address_does_not_wait_for_the_failures_of_another(void **state)
{
    (void)state;
    fail_often(1, 100, 0);
    assert_int_equal(delay(1, 0), 2000);
    assert_int_equal(delay(2, 0), 0);
}

static void failures_are_forgiven_one_by_one(void **state)
{
    (void)state;
    fail_often(1, 1000, 0);
    assert_int_equal(delay(1, 1999), 2000);
    assert_int_equal(delay(1, 2000), 1600);
    assert_int_equal(delay(1, 4000), 800);
    assert_int_equal(delay(1, 60000), 0);
    fail_often(1, 1, 60000);
    assert_int_equal(delay(1, 60000), 0); /* As the first one. */
}

static void without_a_limit_nobody_waits(void **state)
{
    (void)state;
    g->max_ms = 0;
    fail_often(1, 100, 0);
    assert_int_equal(delay(1, 0), 0);
}

/* The one that guesses most is remembered, however many others fail once. */
static void many_addresses_do_not_push_out_the_one_that_guesses_most(void **state)
{
    (void)state;
    fail_often(1, 100, 0);
    for (uint32_t i = 2; i < 100000; i++) fail_often(i, 1, 0);
    assert_int_equal(delay(1, 0), 2000);
}

static void a_row_on_which_AUTH_waits_is_not_given_to_another(void **state)
{
    struct sl_guess *row;
    const struct sl_guess_address a = address(1);
    (void)state;
    fail_often(1, 4, 0);
    sl_guesses_delay(g, &a, 0, &row);
    row->waiting = 1;
    for (uint32_t i = 2; i < 100000; i++) fail_often(i, 5, 0);
    assert_int_equal(row->waiting, 1);
    assert_memory_equal(&row->address, &a, sizeof a);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
#define T(f) cmocka_unit_test_setup_teardown(f, begin, end)
        T(the_delay_doubles_with_each_failure_up_to_its_limit),
        T(an_address_does_not_wait_for_the_failures_of_another),
        T(failures_are_forgiven_one_by_one),
        T(without_a_limit_nobody_waits),
        T(many_addresses_do_not_push_out_the_one_that_guesses_most),
        T(a_row_on_which_AUTH_waits_is_not_given_to_another),
#undef T
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
