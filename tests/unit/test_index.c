/* test_index.c - the index of keys: found, removed, scanned, while it grows and shrinks. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "test.h"

#include "core/glob.h"
#include "core/index.h"
#include "sluice.h"

enum { ITEMS = 20000 };

struct item {
    _Alignas(16) uint32_t number;
    bool in;
    unsigned seen;
};

static struct item items[ITEMS];

/* A hash that is worse than any real one: many collide. */
static uint64_t hash_number(uint32_t number, uint64_t seed)
{
    return (uint64_t)(number / 3) * 0x9e3779b97f4a7c15u + seed;
}

static uint64_t hash_item(const void *item, uint64_t seed)
{
    return hash_number(((const struct item *)item)->number, seed);
}

static bool same_item(const void *item, struct sl_bytes key)
{
    return memcmp(&((const struct item *)item)->number, key.at, key.n) == 0;
}

static const struct sl_index_kind kind = {.hash = hash_item, .same = same_item};

static void put(struct sl_index *x, uint32_t n)
{
    items[n] = (struct item){.number = n, .in = true};
    assert_int_equal(sl_index_reserve(x), SLUICE_OK);
    sl_index_put(x, &items[n], hash_number(n, x->seed));
}

static void take(struct sl_index *x, uint32_t n)
{
    items[n].in = false;
    sl_index_remove(x, &items[n], hash_number(n, x->seed));
}

static void look_all_up(const struct sl_index *x)
{
    for (uint32_t n = 0; n < ITEMS; n++) {
        struct sl_bytes key = {(const char *)&n, sizeof n};
        void *found = sl_index_find(x, key, hash_number(n, x->seed));
        assert_ptr_equal(found, items[n].in ? &items[n] : NULL);
    }
}

static void what_is_put_is_found_while_it_grows_and_shrinks(void **state)
{
    (void)state;
    struct sl_index x;
    uint32_t random = 1;
    memset(items, 0, sizeof items);
    sl_index_init(&x, &kind, 12345);
    for (int i = 0; i < 200000; i++) {
        random = random * 1664525 + 1013904223;
        uint32_t n = (random >> 8) % ITEMS;
        /* Waves: fuller, and emptier again. */
        bool fill = i / 40000 % 2 == 0 ? random % 4 != 0 : random % 4 == 0;
        if (fill && !items[n].in) put(&x, n);
        else if (!fill && items[n].in) take(&x, n);
        if (i % 20000 == 0) look_all_up(&x);
    }
    look_all_up(&x);
    size_t large = sl_index_bytes(&x);
    for (uint32_t n = 0; n < ITEMS; n++)
        if (items[n].in) take(&x, n);
    assert_int_equal(x.count, 0);
    look_all_up(&x);
    for (int i = 0; i < 100000; i++) sl_index_step(&x);
    assert_true(sl_index_bytes(&x) < large / 4);
    sl_index_free(&x);
}

static void a_scan_sees_all_that_stays_whatever_comes_and_goes(void **state)
{
    (void)state;
    struct sl_index x;
    uint64_t cursor = 0;
    void *found[10];
    uint32_t coming = ITEMS / 2, rounds = 0;
    memset(items, 0, sizeof items);
    sl_index_init(&x, &kind, 999);
    for (uint32_t n = 0; n < ITEMS / 2; n++) put(&x, n); /* These stay. */
    do {
        size_t n = sl_index_scan(&x, &cursor, found, 10);
        assert_true(n <= 10);
        for (size_t i = 0; i < n; i++) ((struct item *)found[i])->seen++;
        for (int i = 0; i < 3 && coming < ITEMS; i++) put(&x, coming++);
        if (coming >= ITEMS && rounds % 2 == 0)
            for (uint32_t k = ITEMS / 2; k < ITEMS; k++)
                if (items[k].in) {
                    take(&x, k);
                    break;
                }
        assert_true(++rounds < 100000);
    } while (cursor != 0);
    for (uint32_t n = 0; n < ITEMS / 2; n++) assert_true(items[n].seen >= 1);
    sl_index_free(&x);
}

static bool matches(const char *pattern, const char *text)
{
    return sl_glob((struct sl_bytes){pattern, strlen(pattern)},
                   (struct sl_bytes){text, strlen(text)});
}

static void patterns_match_as_in_redis(void **state)
{
    (void)state;
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
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_put_is_found_while_it_grows_and_shrinks),
        cmocka_unit_test(a_scan_sees_all_that_stays_whatever_comes_and_goes),
        cmocka_unit_test(patterns_match_as_in_redis),
    };
    return cmocka_run_group_tests_name("index", tests, NULL, NULL);
}
