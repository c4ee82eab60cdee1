/* test_chain.c - how long a chain of thieves is: the numbers of docs/stealing.md.
 *
 * If every thief took the lock from the one before it, the clients that hold it one after the
 * other would be the records of a random order: who has a higher priority than all before.
 * Their number N is a sum of independent chances: the k-th to come is a record with 1/k.
 * The table has no such chain, and the last tests count its handshakes.
 *
 * The seed is fixed, so what is within three sigma today is so tomorrow. */
#include <stdio.h>
#include <string.h>

#include "test.h"

#include "locks/table.h"

enum { PRIORITIES_MAX = 1000, ROUNDS = 20000 };

/* splitmix64. */
static uint64_t draw(uint64_t *state)
{
    uint64_t z = (*state += 0x9e3779b97f4a7c15u);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

static uint32_t below(uint64_t *state, uint32_t n)
{
    return (uint32_t)(draw(state) % n);
}

/* 1 .. count in a random order. */
static void shuffle(int32_t *order, uint32_t count, uint64_t *state)
{
    for (uint32_t i = 0; i < count; i++) {
        uint32_t at = below(state, i + 1);
        order[i] = order[at];
        order[at] = (int32_t)i + 1;
    }
}

/* The sum of 1/k^power, k from 1 to n. */
static double harmonic(uint32_t n, int power)
{
    double sum = 0;
    for (uint32_t k = n; k > 0; k--) sum += power == 1 ? 1.0 / k : 1.0 / k / k;
    return sum;
}

/* chance[n] is that of N = n, exactly. */
static void distribution(uint32_t priorities, double chance[PRIORITIES_MAX + 1])
{
    memset(chance, 0, (PRIORITIES_MAX + 1) * sizeof *chance);
    chance[0] = 1;
    for (uint32_t k = 1; k <= priorities; k++) {
        for (uint32_t n = k; n > 0; n--)
            chance[n] = chance[n] * (1 - 1.0 / k) + chance[n - 1] / k;
        chance[0] *= 1 - 1.0 / k;
    }
}

/* The least n with so much of all chance at n or before it. */
static uint32_t quantile(const double *chance, double part)
{
    double sum = 0;
    uint32_t n = 0;
    while ((sum += chance[n]) < part) n++;
    return n;
}

static bool near(double a, double b, double by)
{
    return a - b < by && b - a < by;
}

/* --- The chain that is not there ------------------------------------------ */

/* What an earlier note took for the chance of a chain of N, and for its mean. The chances do
 * not even sum to one, so the mean is none. */
static void the_number_0_0102_is_the_mean_of_no_distribution(void **state)
{
    (void)state;
    const uint32_t priorities = 100;
    double chance = 1, sum = 0, mean = 0;
    for (uint32_t n = 1; n <= priorities; n++) {
        chance /= priorities - (n - 1);
        sum += chance;
        mean += n * chance;
    }
    assert_true(near(mean, 0.010205, 0.0000005));
    assert_true(near(sum, 0.0101, 0.00005));
    assert_true(near(harmonic(100, 1), 5.187, 0.0005));
}

static void the_quantiles_of_the_page_are_exact(void **state)
{
    (void)state;
    static const struct {
        uint32_t priorities;
        double mean, sigma;
        uint32_t q50, q90, q99, q999, q9999;
    } rows[] = {
        {10, 2.929, 1.17, 3, 4, 6, 7, 8},
        {100, 5.187, 1.88, 5, 8, 10, 12, 14},
        {1000, 7.485, 2.42, 7, 11, 14, 16, 18},
    };
    static double chance[PRIORITIES_MAX + 1];
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        uint32_t p = rows[i].priorities;
        double sum = 0, mean = 0, square = 0;
        distribution(p, chance);
        for (uint32_t n = 0; n <= p; n++) {
            sum += chance[n];
            mean += n * chance[n];
            square += (double)n * n * chance[n];
        }
        double variance = square - mean * mean;
        assert_true(near(sum, 1, 1e-9));
        assert_true(near(mean, harmonic(p, 1), 1e-9));
        assert_true(near(variance, harmonic(p, 1) - harmonic(p, 2), 1e-9));
        assert_true(near(mean, rows[i].mean, 0.0005001));
        assert_true(near(variance, rows[i].sigma * rows[i].sigma, 0.025));
        assert_int_equal(quantile(chance, 0.5), rows[i].q50);
        assert_int_equal(quantile(chance, 0.9), rows[i].q90);
        assert_int_equal(quantile(chance, 0.99), rows[i].q99);
        assert_int_equal(quantile(chance, 0.999), rows[i].q999);
        assert_int_equal(quantile(chance, 0.9999), rows[i].q9999);
    }
    double twelve_or_more = 0;
    distribution(100, chance);
    for (uint32_t n = 12; n <= 100; n++) twelve_or_more += chance[n];
    assert_true(near(twelve_or_more, 0.0017, 0.00005));
}

/* The sequence of holders if each takes the lock from the current holder. */
static uint32_t records(const int32_t *order, uint32_t count)
{
    uint32_t found = 0;
    int32_t highest = 0;
    for (uint32_t i = 0; i < count; i++)
        if (order[i] > highest) {
            highest = order[i];
            found++;
        }
    return found;
}

/* With a new priority drawn by each client that arrives, until the highest has arrived. */
static uint32_t records_of_any(uint32_t priorities, uint64_t *state)
{
    uint32_t found = 0, highest = 0;
    while (highest < priorities) {
        uint32_t priority = below(state, priorities) + 1;
        if (priority > highest) {
            highest = priority;
            found++;
        }
    }
    return found;
}

/* The mean of this many rounds is within three sigma of H_P, and the variance near its own. */
static void check_rounds(const char *what, uint32_t p, double sum, double square)
{
    double mean = sum / ROUNDS, variance = square / ROUNDS - mean * mean;
    double wanted = harmonic(p, 1) - harmonic(p, 2);
    double off = mean - harmonic(p, 1);
    print_message("# P = %u, %s: N is %.3f on average, H_P is %.3f\n", p, what, mean,
                  harmonic(p, 1));
    assert_true(off * off < 9 * wanted / ROUNDS);
    assert_true(near(variance, wanted, wanted / 20));
}

static void N_of_a_random_order_is_H_P_within_three_sigma(void **state)
{
    (void)state;
    static int32_t order[PRIORITIES_MAX];
    uint64_t seed = 2;
    for (uint32_t p = 10; p <= PRIORITIES_MAX; p *= 10) {
        double sum = 0, square = 0, any_sum = 0, any_square = 0;
        for (int i = 0; i < ROUNDS; i++) {
            shuffle(order, p, &seed);
            double n = records(order, p);
            sum += n, square += n * n;
        }
        check_rounds("each comes once", p, sum, square);
        if (p > 100)
            continue; /* A round takes P draws on average; it is the same law. */
        for (int i = 0; i < ROUNDS; i++) {
            double n = records_of_any(p, &seed);
            any_sum += n, any_square += n * n;
        }
        check_rounds("any comes again", p, any_sum, any_square);
    }
}

/* --- The table's ----------------------------------------------------------- */

enum { THIEVES = 100 };

struct round {
    struct sl_table *table;
    struct sl_session session[THIEVES + 1]; /* The first is the holder. */
    struct sl_now now;
    uint32_t asked, withdrawn, grants;
    int32_t first; /* The priority of the first to be granted. */
};

static void settle(struct round *r)
{
    struct sl_effect e;
    while (sl_table_next(r->table, r->now, &e)) {
        if (e.type == SL_EFFECT_ASKED) r->asked++;
        if (e.type == SL_EFFECT_WITHDRAWN) r->withdrawn++;
        if (e.type == SL_EFFECT_GRANTED && r->grants++ == 0)
            r->first = (int32_t)(e.session - r->session);
    }
}

static struct sl_want want_of(int32_t priority)
{
    return (struct sl_want){.key = {"k", 1},
                            .per = 1,
                            .buckets = 1,
                            .units = 1,
                            .priority = priority,
                            .wait_ms = priority == 0 ? 0 : 1000,
                            .lease_ms = 10000,
                            .steal = priority > 0,
                            .force_ms = SL_NEVER};
}

/* The thief of priority p is session p. */
static void play(struct round *r, const int32_t *order)
{
    const struct sl_table_limits limits = {.keys_max = 10,
                                           .waiters_max = 2 * THIEVES,
                                           .key_bytes_max = 10,
                                           .value_bytes_max = 10,
                                           .drains_max = 1};
    struct sl_grant g;
    struct sl_ended past;
    *r = (struct round){.table = sl_table_new(&limits, (struct sl_hash_key){42, 0}),
                        .now = {0, 1000}};
    for (uint32_t i = 0; i <= THIEVES; i++) sl_session_begin(&r->session[i], i + 1, 1);
    struct sl_want w = want_of(0);
    assert_int_equal(sl_table_acquire(r->table, r->now, &r->session[0], &w, &g),
                     SLUICE_OK);
    for (uint32_t i = 0; i < THIEVES; i++) {
        w = want_of(order[i]);
        assert_int_equal(
            sl_table_acquire(r->table, r->now, &r->session[order[i]], &w, &g),
            SL_WAITS);
        settle(r);
    }
    sl_table_check(r->table);
    assert_int_equal(
        sl_table_release(r->table, r->now, &r->session[0], w.key, g.fence, &past), 1);
    settle(r);
    sl_table_check(r->table);
}

static void a_holder_is_asked_once_in_whatever_order_thieves_arrive(void **state)
{
    (void)state;
    static struct round r;
    int32_t order[THIEVES];
    uint64_t seed = 3;
    for (int i = 0; i < 200; i++) {
        shuffle(order, THIEVES, &seed);
        play(&r, order);
        assert_int_equal(r.asked, 1);
        assert_int_equal(r.withdrawn, 0);
        assert_int_equal(r.grants, 1);
        assert_int_equal(r.first, THIEVES);
        sl_table_free(r.table);
    }
}

static void a_holder_is_asked_once_when_each_thief_has_a_higher_priority(void **state)
{
    (void)state;
    static struct round r;
    int32_t order[THIEVES];
    for (int32_t i = 0; i < THIEVES; i++) order[i] = i + 1;
    assert_int_equal(records(order, THIEVES), THIEVES); /* The worst of all orders. */
    play(&r, order);
    assert_int_equal(r.asked, 1);
    assert_int_equal(r.grants, 1);
    assert_int_equal(r.first, THIEVES);
    sl_table_free(r.table);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_number_0_0102_is_the_mean_of_no_distribution),
        cmocka_unit_test(the_quantiles_of_the_page_are_exact),
        cmocka_unit_test(N_of_a_random_order_is_H_P_within_three_sigma),
        cmocka_unit_test(a_holder_is_asked_once_in_whatever_order_thieves_arrive),
        cmocka_unit_test(a_holder_is_asked_once_when_each_thief_has_a_higher_priority),
    };
    return cmocka_run_group_tests_name("chain", tests, NULL, NULL);
}
