/* test_index.c - the index of keys: found, removed, scanned, while it grows and shrinks. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "test.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "locks/table_internal.h"
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

static uint64_t hash_item(const void *item, const struct sl_index *x)
{
    return hash_number(((const struct item *)item)->number, x->seed);
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

UNIT_TEST(what_is_put_is_found_while_it_grows_and_shrinks)
{
    struct sl_index x;
    uint32_t random = 1;
    memset(items, 0, sizeof items);
    sl_index_init(&x, &kind, (struct sl_hash_key){12345, 0});
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

UNIT_TEST(a_scan_sees_all_that_stays_whatever_comes_and_goes)
{
    struct sl_index x;
    uint64_t cursor = 0;
    void *found[10];
    uint32_t coming = ITEMS / 2, rounds = 0;
    memset(items, 0, sizeof items);
    sl_index_init(&x, &kind, (struct sl_hash_key){999, 0});
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
    for (uint32_t n = 0; n < ITEMS / 2; n++) assert_int_equal(items[n].seen, 1);
    cursor = UINT64_MAX; /* Clients send any number. */
    assert_int_equal(sl_index_scan(&x, &cursor, found, 10), 0);
    assert_int_equal(cursor, 0);
    sl_index_free(&x);
}

/* Returns the length of the longest run of slots that are not empty. No search visits more slots. */
static size_t longest_search(const struct sl_index *x)
{
    size_t most = 0, run = 0;
    assert_null(x->before.slots);
    for (size_t i = 0; i < 2 * x->now.size; i++) { /* Twice: a run may pass the end. */
        run = x->now.slots[i % x->now.size] == 0 ? 0 : run + 1;
        if (run > most) most = run;
    }
    return most;
}

UNIT_TEST(keys_that_are_often_added_and_removed_do_not_make_searches_longer)
{
    enum { HOT = 300, CHANGES = 200000 };
    struct sl_index x;
    uint64_t random = 88172645463325252ull;
    sl_index_init(&x, &kind, (struct sl_hash_key){1, 2});
    for (uint32_t n = 0; n < ITEMS; n++) put(&x, n);
    while (x.before.slots != NULL) sl_index_step(&x);
    const uint64_t *slots = x.now.slots;
    size_t before = longest_search(&x);
    for (int i = 0; i < CHANGES; i++) {
        random ^= random << 13, random ^= random >> 7, random ^= random << 17;
        uint32_t n = (uint32_t)(random % HOT);
        if (items[n].in) take(&x, n);
        else put(&x, n);
    }
    assert_ptr_equal(x.now.slots, slots); /* No new table was needed. */
    assert_true(longest_search(&x) <= 2 * before);
    assert_true(x.now.used <= ITEMS);
    look_all_up(&x);
    sl_index_free(&x);
}

UNIT_TEST(chunks_of_numbers_are_freed_and_used_again)
{
    struct sl_index x;
    memset(items, 0, sizeof items);
    sl_index_init(&x, &kind, (struct sl_hash_key){7, 0});
    for (uint32_t n = 0; n < ITEMS; n++) put(&x, n);
    assert_int_equal(x.chunks_live, (ITEMS + SL_INDEX_CHUNK - 1) / SL_INDEX_CHUNK);
    /* All but a few of the last, so that the empty ones are before them. */
    for (uint32_t n = 0; n < ITEMS - 10; n++) take(&x, n);
    assert_in_range(x.chunks_live, 1, 3);
    uint64_t cursor = 0;
    void *found[64];
    size_t seen = 0, rounds = 0;
    do seen += sl_index_scan(&x, &cursor, found, 64);
    while (cursor != 0 && ++rounds < 100);
    assert_int_equal(seen, 10);
    uint32_t high = x.chunk_count;
    for (uint32_t n = 0; n < ITEMS - 10; n++) put(&x, n);
    assert_int_equal(x.chunk_count, high);
    look_all_up(&x);
    for (uint32_t n = 0; n < ITEMS; n++) take(&x, n);
    assert_int_equal(x.chunks_live, 1);
    assert_in_range(x.chunk_max, 1, 4);
    sl_index_free(&x);
}

/* --- What others learn of hashes --------------------------------------------- */

/* The vectors of the reference: message 00 01 02 ..., key 00 01 ... 0f. */
static const uint64_t sip_1_3[64] = {
    // clang-format off
    0xabac0158050fc4dcu, 0xc9f49bf37d57ca93u, 0x82cb9b024dc7d44du, 0x8bf80ab8e7ddf7fbu,
    0xcf75576088d38328u, 0xdef9d52f49533b67u, 0xc50d2b50c59f22a7u, 0xd3927d989bb11140u,
    0x369095118d299a8eu, 0x25a48eb36c063de4u, 0x79de85ee92ff097fu, 0x70c118c1f94dc352u,
    0x78a384b157b4d9a2u, 0x306f760c1229ffa7u, 0x605aa111c0f95d34u, 0xd320d86d2a519956u,
    0xcc4fdd1a7d908b66u, 0x9cf2689063dbd80cu, 0x8ffc389cb473e63eu, 0xf21f9de58d297d1cu,
    0xc0dc2f46a6cce040u, 0xb992abfe2b45f844u, 0x7ffe7b9ba320872eu, 0x525a0e7fdae6c123u,
    0xf464aeb267349c8cu, 0x45cd5928705b0979u, 0x3a3e35e3ca9913a5u, 0xa91dc74e4ade3b35u,
    0xfb0bed02ef6cd00du, 0x88d93cb44ab1e1f4u, 0x540f11d643c5e663u, 0x2370dd1f8c21d1bcu,
    0x81157b6c16a7b60du, 0x4d54b9e57a8ff9bfu, 0x759f12781f2a753eu, 0xcea1a3bebf186b91u,
    0x2cf508d3ada26206u, 0xb6101c2da3c33057u, 0xb3f47496ae3a36a1u, 0x626b57547b108392u,
    0xc1d2363299e41531u, 0x667cc1923f1ad944u, 0x65704ffec8138825u, 0x24f280d1c28949a6u,
    0xc2ca1cedfaf8876bu, 0xc2164bfc9f042196u, 0xa16e9c9368b1d623u, 0x49fb169c8b5114fdu,
    0x9f3143f8df074c46u, 0xc6fdaf2412cc86b3u, 0x7eaf49d10a52098fu, 0x1cf313559d292f9au,
    0xc44a30dda2f41f12u, 0x36fae98943a71ed0u, 0x318fb34c73f0bce6u, 0xa27abf3670a7e980u,
    0xb4bcc0db243c6d75u, 0x23f8d852fdb71513u, 0x8f035f4da67d8a08u, 0xd89cd0e5b7e8f148u,
    0xf6f4e6bcf7a644eeu, 0xaec59ad80f1837f2u, 0xc3b2f6154b6694e0u, 0x9d199062b7bbb3a8u,
    // clang-format on
};

UNIT_TEST(hashes_are_those_of_the_reference)
{
    const struct sl_hash_key key = {0x0706050403020100u, 0x0f0e0d0c0b0a0908u};
    for (size_t n = 0; n < 64; n++) {
        /* Exactly this many bytes, so that a sanitizer sees one that is read beyond. */
        unsigned char *bytes = malloc(n > 0 ? n : 1);
        for (size_t i = 0; i < n; i++) bytes[i] = (unsigned char)i;
        assert_int_equal(sl_hash(key, bytes, n), sip_1_3[n]);
        free(bytes);
    }
}

/* Two tables with other keys for their hashes, and the same history. */
UNIT_TEST(a_scan_says_nothing_about_hashes)
{
    struct sl_index x[2];
    memset(items, 0, sizeof items);
    uint64_t cursors[2] = {0, 0};
    void *found[2][7];
    for (int i = 0; i < 2; i++) {
        sl_index_init(&x[i], &kind, (struct sl_hash_key){99, (uint64_t)i});
        for (uint32_t n = 0; n < 3000; n++) put(&x[i], n);
        for (uint32_t n = 0; n < 3000; n += 3) take(&x[i], n);
        for (uint32_t n = 3000; n < 3500; n++) put(&x[i], n);
    }
    assert_int_not_equal(x[0].seed, x[1].seed);
    do {
        size_t n = sl_index_scan(&x[0], &cursors[0], found[0], 7);
        assert_int_equal(sl_index_scan(&x[1], &cursors[1], found[1], 7), n);
        assert_int_equal(cursors[0], cursors[1]);
        assert_memory_equal(found[0], found[1], n * sizeof found[0][0]);
    } while (cursors[0] != 0);
    sl_index_free(&x[0]);
    sl_index_free(&x[1]);
}

/* Not inlined, where gcc 12 warns of bytes that are not read. */
__attribute__((noinline)) static uint64_t old_hash(const char *key, size_t n)
{
    return XXH3_64bits_withSeed(key, n, 42);
}

/* As many keys as a client needs to make others slow, chosen as one did who had computed
 * the seed of the hash of release 0.1: XXH3, of which the first bits are all the same. */
UNIT_TEST(keys_that_collide_in_xxh3_do_not_collide_here)
{
    enum { KEYS = 3000, SAME_BITS = 7 };
    const struct sl_table_limits limits = {
        .keys_max = KEYS, .waiters_max = 1, .key_bytes_max = 32, .value_bytes_max = 1};
    struct sl_table *t = sl_table_new(&limits, (struct sl_hash_key){42, 0});
    struct sl_session s;
    sl_session_begin(&s, 1, 0);
    int put = 0;
    for (uint64_t i = 0; put < KEYS; i++) {
        char key[32];
        size_t n = (size_t)snprintf(key, sizeof key, "k%016" PRIx64, i);
        if (old_hash(key, n) >> (64 - SAME_BITS) != 0) continue;
        const struct sl_want w = {
            .key = {key, n}, .per = 1, .buckets = 1, .units = 1, .lease_ms = 1000};
        struct sl_grant g;
        assert_int_equal(sl_table_acquire(t, (struct sl_now){0, 1}, &s, &w, &g),
                         SLUICE_OK);
        put++;
    }
    /* The longest row of slots that a search may have to go through. */
    const struct sl_index_table *now = &t->index.now;
    size_t run = 0, longest = 0;
    for (size_t at = 0; at < now->size; at++) {
        run = now->slots[at] == 0 ? 0 : run + 1;
        if (run > longest) longest = run;
    }
    assert_in_range(longest, 1, 200);
    sl_table_free(t);
}

int main(void)
{
    return run_unit_tests("index");
}
