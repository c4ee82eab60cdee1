/* test_record.c - a grant as words between nodes: the same comes out again, and what is not
 * exactly that is refused. */
#include <stdio.h>
#include <string.h>

#include "test.h"

#include "base/number.h"
#include "failover/record.h"
#include "resp/reader.h"
#include "sluice.h"

static uint64_t draw(void)
{
    static uint64_t x = 0x9e3779b97f4a7c15u;
    x ^= x << 13;
    x ^= x >> 7;
    x ^= x << 17;
    return x;
}

/* Small ones, large ones, and the last one. */
static uint64_t draw_to(uint64_t max)
{
    switch (draw() % 4) {
        case 0: return 0;
        case 1: return max;
        case 2: return draw() % (max < 1000 ? max + 1 : 1000);
        default: return draw() % (max + 1);
    }
}

static char bytes[4][5000];

static struct sl_bytes draw_bytes(char to[5000])
{
    size_t n = draw() % 4 == 0 ? 4096 : draw() % 20;
    for (size_t i = 0; i < n; i++) to[i] = (char)draw();
    return (struct sl_bytes){to, n};
}

/* The id of an acquisition, or none. */
static struct sl_bytes draw_id(void)
{
    struct sl_bytes id = {bytes[3], draw() % 2 == 0 ? 0 : 16 + draw() % 113};
    for (size_t i = 0; i < id.n; i++) bytes[3][i] = (char)draw();
    return id;
}

static struct sl_grant_view draw_view(void)
{
    bool leased = draw() % 2 == 0;
    sl_ms left_ms = leased ? (sl_ms)draw_to(SL_FENCE_MAX) : SL_NEVER;
    return (struct sl_grant_view){
        .fence = draw_to(SL_FENCE_MAX),
        .origin = draw_to(SL_FENCE_MAX),
        .shared = draw() % 2 == 0,
        .leased = leased,
        .units = (uint32_t)draw_to(UINT32_MAX),
        .per = (uint32_t)draw_to(UINT32_MAX),
        .buckets = (uint32_t)draw_to(UINT32_MAX),
        .priority = (int32_t)((int64_t)draw_to(UINT32_MAX) + INT32_MIN),
        .left_ms = left_ms,
        .unsure_ms = leased ? (sl_ms)draw_to((uint64_t)left_ms) : 0,
        .value = draw_bytes(bytes[1]),
        .note = draw_bytes(bytes[2]),
        .request = draw_id(),
        .digest = draw_to(SL_FENCE_MAX)};
}

static bool same_bytes(struct sl_bytes a, struct sl_bytes b)
{
    return a.n == b.n && (a.n == 0 || memcmp(a.at, b.at, a.n) == 0);
}

static void assert_same(const struct sl_grant_view *a, const struct sl_grant_view *b)
{
    assert_true(a->fence == b->fence && a->shared == b->shared &&
                a->leased == b->leased && a->units == b->units && a->per == b->per &&
                a->buckets == b->buckets && a->priority == b->priority &&
                a->left_ms == b->left_ms && a->origin == b->origin &&
                a->unsure_ms == b->unsure_ms && a->digest == b->digest);
    assert_true(same_bytes(a->request, b->request));
    assert_true(same_bytes(a->value, b->value) && same_bytes(a->note, b->note));
}

/* Over the wire, as a frame of these words alone. */
static void a_record_comes_back_the_same(void **state)
{
    static const struct sl_resp_limits limits = {.args_max = 64,
                                                 .bulk_bytes_max = 65536,
                                                 .command_bytes_max = 1 << 20,
                                                 .inline_bytes_max = 64};
    (void)state;
    struct sl_resp_reader *reader = sl_resp_reader_new(&limits);
    assert_non_null(reader);
    for (int i = 0; i < 20000; i++) {
        const struct sl_grant_view v = draw_view();
        const struct sl_bytes key = draw_bytes(bytes[0]);
        struct sl_resp_writer w;
        struct sl_args args;
        struct sl_grant_view got;
        struct sl_bytes got_key;
        char *at;
        sl_resp_writer_init(&w, SIZE_MAX / 2);
        sl_resp_array(&w, SL_RECORD_FIELDS);
        sl_record_write(&w, key, &v);
        for (size_t n, done = 0; done < w.n; done += n) {
            n = sl_resp_room(reader, &at);
            assert_true(n > 0);
            if (n > w.n - done) n = w.n - done;
            memcpy(at, w.buffer + done, n);
            sl_resp_filled(reader, n);
        }
        assert_int_equal(sl_resp_next(reader, &args), 1);
        assert_int_equal(args.n, SL_RECORD_FIELDS);
        assert_true(sl_record_read(args.at, &got, &got_key));
        assert_same(&v, &got);
        assert_true(same_bytes(key, got_key));
        sl_resp_writer_free(&w);
    }
    sl_resp_reader_free(reader);
}

static struct sl_bytes text(const char *at)
{
    return (struct sl_bytes){at, strlen(at)};
}

static bool reads(size_t at, const char *word)
{
    static const char *const good[SL_RECORD_FIELDS] = {
        "k", "5", "7", "0", "1", "1", "1", "-3", "1000", "20", "", "", "", "0"};
    struct sl_bytes words[SL_RECORD_FIELDS];
    struct sl_grant_view v;
    struct sl_bytes key;
    for (size_t i = 0; i < SL_RECORD_FIELDS; i++) words[i] = text(good[i]);
    words[at] = text(word);
    return sl_record_read(words, &v, &key);
}

static void an_invalid_record_is_rejected(void **state)
{
    static const char *const never[] = {
        "",    "-",   "x",  "1x",          " 1",
        "1.5", "--1", "+1", "-2147483649", "99999999999999999999"};
    (void)state;
    assert_true(reads(0, "k"));
    for (size_t at = 1; at <= 9; at++)
        for (size_t i = 0; i < sizeof never / sizeof *never; i++)
            assert_false(reads(at, never[i]));
    assert_true(reads(3, "1"));
    assert_false(reads(3, "2"));
    for (size_t at = 4; at <= 6; at++) {
        assert_true(reads(at, "4294967295"));
        assert_false(reads(at, "4294967296"));
        assert_false(reads(at, "-1"));
    }
    assert_true(reads(1, "9007199254740991"));
    assert_false(reads(1, "9007199254740992"));
    assert_false(reads(2, "9007199254740992"));
    assert_true(reads(7, "-2147483648"));
    assert_true(reads(7, "2147483647"));
    assert_false(reads(7, "2147483648"));
    assert_true(reads(8, "-1"));
    assert_false(reads(8, "-2"));
    assert_false(reads(9, "-1"));
    assert_true(reads(10, "anything"));
    assert_false(reads(12, "fifteen bytes.."));
    assert_true(reads(12, "sixteen bytes..."));
    assert_false(reads(13, ""));
}

static void a_number_is_digits_alone(void **state)
{
    uint64_t n = 1;
    int64_t i = 1;
    (void)state;
    assert_true(sl_parse_u64(text("0"), SL_FENCE_MAX, &n));
    assert_int_equal(n, 0);
    assert_true(sl_parse_u64(text("9007199254740991"), SL_FENCE_MAX, &n));
    assert_true(n == SL_FENCE_MAX);
    assert_false(sl_parse_u64(text("-1"), SL_FENCE_MAX, &n));
    assert_false(sl_parse_u64(text(""), SL_FENCE_MAX, &n));
    assert_false(sl_parse_u64((struct sl_bytes){"1\0", 2}, SL_FENCE_MAX, &n));
    assert_true(sl_parse_number(text("-9"), -9, -9, &i));
    assert_int_equal(i, -9);
    assert_true(sl_parse_number(text("999999999999999999"), 0, INT64_MAX, &i));
    assert_true(i == 999999999999999999);
    assert_false(sl_parse_number(text("1000000000000000000"), 0, INT64_MAX, &i));
    assert_false(sl_parse_number(text("-10"), -9, 9, &i));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_record_comes_back_the_same),
        cmocka_unit_test(an_invalid_record_is_rejected),
        cmocka_unit_test(a_number_is_digits_alone),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
