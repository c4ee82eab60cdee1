/* Replies of a server out of bytes: any cut, any nonsense, the limits. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/reply.h"
#include "client/wire.h"
#include "test.h"

/* In memory of exactly that size, so that the sanitizer sees who looks beyond. */
static int scan_exactly(struct sl_client_reply_scan *s, const char *data, size_t n)
{
    char *copy = malloc(n > 0 ? n : 1);
    memcpy(copy, data, n);
    int status = sl_client_reply_scan(s, copy, n);
    free(copy);
    return status;
}

static struct sluice_reply *reply_of(const char *data, size_t n)
{
    struct sl_client_reply_scan s = {0};
    struct sluice_reply *r = NULL;
    char *copy = malloc(n);
    memcpy(copy, data, n);
    assert_int_equal(sl_client_reply_scan(&s, copy, n), 1);
    assert_int_equal(s.at, n);
    assert_int_equal(sl_client_reply_build(copy, &s, &r), SLUICE_OK);
    free(copy);
    return r;
}

static void check_text(const char *data, enum sluice_reply_type type, const char *text)
{
    struct sluice_reply *r = reply_of(data, strlen(data));
    assert_int_equal(r->type, type);
    assert_string_equal(r->text, text);
    assert_int_equal(r->text_bytes, strlen(text));
    sluice_reply_free(r);
}

static void check_number(const char *data, enum sluice_reply_type type, int64_t number)
{
    struct sluice_reply *r = reply_of(data, strlen(data));
    assert_int_equal(r->type, type);
    assert_true(r->number == number);
    sluice_reply_free(r);
}

UNIT_TEST(each_kind_of_value_is_what_it_is)
{
    check_text("+OK\r\n", SLUICE_REPLY_STATUS, "OK");
    check_text("+\r\n", SLUICE_REPLY_STATUS, "");
    check_text("-LOST it is\r\n", SLUICE_REPLY_ERROR, "LOST it is");
    check_text("!6\r\nERR \n!\r\n", SLUICE_REPLY_ERROR, "ERR \n!");
    check_text("$0\r\n\r\n", SLUICE_REPLY_TEXT, "");
    check_text("$4\r\na\r\nb\r\n", SLUICE_REPLY_TEXT, "a\r\nb");
    check_text("=7\r\ntxt:a\nb\r\n", SLUICE_REPLY_LINES, "a\nb");
    check_text(",-1.5e3\r\n", SLUICE_REPLY_DECIMAL, "-1.5e3");
    check_text(",inf\r\n", SLUICE_REPLY_DECIMAL, "inf");
    check_text("(123456789012345678901234567890\r\n", SLUICE_REPLY_DECIMAL,
               "123456789012345678901234567890");
    check_text("$-1\r\n", SLUICE_REPLY_NIL, "");
    check_text("*-1\r\n", SLUICE_REPLY_NIL, "");
    check_text("_\r\n", SLUICE_REPLY_NIL, "");
    check_number(":0\r\n", SLUICE_REPLY_NUMBER, 0);
    check_number(":9223372036854775807\r\n", SLUICE_REPLY_NUMBER, INT64_MAX);
    check_number(":-9223372036854775808\r\n", SLUICE_REPLY_NUMBER, INT64_MIN);
    check_number("#t\r\n", SLUICE_REPLY_BOOL, 1);
    check_number("#f\r\n", SLUICE_REPLY_BOOL, 0);
}

UNIT_TEST(a_tree_has_its_items_in_order)
{
    const char data[] =
        "%2\r\n$1\r\na\r\n*3\r\n:1\r\n*0\r\n~1\r\n_\r\n+b\r\n>1\r\n:7\r\n";
    struct sluice_reply *r = reply_of(data, sizeof data - 1);
    assert_int_equal(r->type, SLUICE_REPLY_MAP);
    assert_int_equal(r->count, 4);
    assert_string_equal(r->items[0].text, "a");
    const struct sluice_reply *list = &r->items[1];
    assert_int_equal(list->type, SLUICE_REPLY_LIST);
    assert_int_equal(list->count, 3);
    assert_true(list->items[0].number == 1);
    assert_int_equal(list->items[1].count, 0);
    assert_int_equal(list->items[2].type, SLUICE_REPLY_SET);
    assert_int_equal(list->items[2].items[0].type, SLUICE_REPLY_NIL);
    assert_string_equal(r->items[2].text, "b");
    assert_int_equal(r->items[3].type, SLUICE_REPLY_PUSH);
    assert_true(r->items[3].items[0].number == 7);
    sluice_reply_free(r);
}

UNIT_TEST(a_nul_is_a_byte_as_any_other)
{
    struct sluice_reply *r = reply_of("$3\r\na\0b\r\n", 9);
    assert_int_equal(r->text_bytes, 3);
    assert_memory_equal(r->text, "a\0b", 4);
    sluice_reply_free(r);
    r = reply_of("+a\0b\r\n", 6);
    assert_int_equal(r->text_bytes, 3);
    sluice_reply_free(r);
}

UNIT_TEST(it_may_be_cut_anywhere_and_more_may_follow)
{
    const char data[] = "*3\r\n$5\r\nab\r\nc\r\n%1\r\n+k\r\n:12\r\n-E x\r\n+next\r\n";
    size_t whole = sizeof data - 1 - strlen("+next\r\n");
    for (size_t first = 0; first <= whole; first++) {
        struct sl_client_reply_scan s = {0};
        for (size_t n = first; n < whole; n++)
            assert_int_equal(scan_exactly(&s, data, n), 0);
        assert_int_equal(scan_exactly(&s, data, sizeof data - 1), 1);
        assert_int_equal(s.at, whole);
    }
}

UNIT_TEST(nonsense_is_rejected)
{
    static const char *const bad[] = {
        "\r\n",
        "\n",
        "OK\r\n",
        "+OK\n",
        ":\r\n",
        ":1x\r\n",
        ": 1\r\n",
        ":--1\r\n",
        ":-\r\n",
        "$1\r\nabc\r\n",
        "$-2\r\n",
        "*-2\r\n",
        "%-1\r\n",
        "~-1\r\n",
        "$x\r\n",
        "*\r\n",
        "#x\r\n",
        "#tt\r\n",
        "_x\r\n",
        ",\r\n",
        ",1,5\r\n",
        "=3\r\nabc\r\n",
        "!-1\r\n",
        "|1\r\n+a\r\n+b\r\n",
        "$?\r\n",
        "*?\r\n",
        "+a\rb\r\n",
        "*1\r\nHTTP\r\n",
        ":9223372036854775808\r\n",
        "$99999999999999999999\r\n",
        ":-9223372036854775809\r\n",
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        struct sl_client_reply_scan s = {0};
        int status = scan_exactly(&s, bad[i], strlen(bad[i]));
        if (status != SLUICE_EPROTOCOL) fail_msg("%d for %s", status, bad[i]);
    }
}

UNIT_TEST(input_above_the_limits_is_rejected_before_it_arrives)
{
    char data[256];
    struct sl_client_reply_scan s = {0};
    snprintf(data, sizeof data, "$%u\r\n", SL_CLIENT_REPLY_BYTES_MAX);
    assert_int_equal(scan_exactly(&s, data, strlen(data)), SLUICE_EPROTOCOL);
    s = (struct sl_client_reply_scan){0};
    snprintf(data, sizeof data, "$%u\r\n", SL_CLIENT_REPLY_BYTES_MAX - 64);
    assert_int_equal(scan_exactly(&s, data, strlen(data)), 0);
    s = (struct sl_client_reply_scan){0};
    snprintf(data, sizeof data, "*%u\r\n", SL_CLIENT_REPLY_ITEMS_MAX);
    assert_int_equal(scan_exactly(&s, data, strlen(data)), SLUICE_EPROTOCOL);
    s = (struct sl_client_reply_scan){0};
    snprintf(data, sizeof data, "*2\r\n%%%u\r\n", SL_CLIENT_REPLY_ITEMS_MAX / 2 - 1);
    assert_int_equal(scan_exactly(&s, data, strlen(data)), SLUICE_EPROTOCOL);
    s = (struct sl_client_reply_scan){0};
    data[0] = '\0';
    for (unsigned i = 0; i < SL_CLIENT_REPLY_DEPTH_MAX; i++) strcat(data, "*1\r\n");
    assert_int_equal(scan_exactly(&s, data, strlen(data)), 0);
    strcat(data, "*1\r\n");
    assert_int_equal(scan_exactly(&s, data, strlen(data)), SLUICE_EPROTOCOL);
}

UNIT_TEST(an_unterminated_line_is_rejected)
{
    size_t n = SL_CLIENT_REPLY_LINE_MAX + 2;
    char *data = malloc(n);
    memset(data, 'a', n);
    data[0] = '+';
    struct sl_client_reply_scan s = {0};
    assert_int_equal(sl_client_reply_scan(&s, data, SL_CLIENT_REPLY_LINE_MAX), 0);
    assert_int_equal(sl_client_reply_scan(&s, data, n), SLUICE_EPROTOCOL);
    free(data);
}

/* Whatever bytes: no look beyond them, and what is whole can be built. */
UNIT_TEST(random_bytes_do_no_harm)
{
    static const char *const pieces[] = {
        "*2\r\n",     "%1\r\n",          "~1\r\n",  ">3\r\n", "$3\r\nabc\r\n",
        "$0\r\n\r\n", "+OK\r\n",         ":12\r\n", "_\r\n",  "#t\r\n",
        "-ERR\r\n",   "=5\r\ntxt:x\r\n", "$-1\r\n", "\r\n",   "*0\r\n"};
    const size_t count = sizeof pieces / sizeof *pieces;
    unsigned seed = 20261115, built = 0, refused = 0;
    print_message("# seed %u\n", seed);
    srand(seed);
    for (int round = 0; round < 20000; round++) {
        char data[256];
        size_t n = 0;
        for (int i = 0; i < 10; i++) {
            const char *piece = pieces[(size_t)rand() % count];
            memcpy(data + n, piece, strlen(piece));
            n += strlen(piece);
        }
        if (round % 2 == 0) data[(size_t)rand() % n] = (char)rand();
        char *copy = malloc(n);
        memcpy(copy, data, n);
        struct sl_client_reply_scan s = {0};
        struct sluice_reply *r;
        int status = sl_client_reply_scan(&s, copy, n);
        if (status == 1) {
            assert_true(s.at <= n);
            assert_int_equal(sl_client_reply_build(copy, &s, &r), SLUICE_OK);
            sluice_reply_free(r);
            built++;
        } else if (status < 0) refused++;
        free(copy);
    }
    assert_true(built > 1000 && refused > 1000);
}

UNIT_TEST(addresses_are_read)
{
    static const struct {
        const char *text, *host, *port;
    } good[] = {{"db7", "db7", "5625"},
                {"db7:7000", "db7", "7000"},
                {"127.0.0.1:1", "127.0.0.1", "1"},
                {"[::1]:65535", "::1", "65535"},
                {"[::1]", "::1", "5625"},
                {"::1", "::1", "5625"},
                {"fe80::1:7000", "fe80::1:7000", "5625"}};
    static const char *const bad[] = {
        "",       ":7000",   "db7:",  "db7:0",  "db7:65536", "db7:x", "[::1",
        "[::1]x", "[]:7000", "unix:", "db7:+1", "db7: 1",    "[::1]:"};
    struct sl_client_address a;
    for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
        assert_true(sl_client_address_parse(good[i].text, &a));
        assert_null(a.path);
        assert_string_equal(a.host, good[i].host);
        assert_string_equal(a.port, good[i].port);
    }
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        if (sl_client_address_parse(bad[i], &a)) fail_msg("it took \"%s\"", bad[i]);
    assert_true(sl_client_address_parse("unix:/run/a:b", &a));
    assert_string_equal(a.path, "/run/a:b");
    char *lengthy = malloc(1000);
    memset(lengthy, 'a', 999);
    lengthy[999] = '\0';
    assert_false(sl_client_address_parse(lengthy, &a));
    free(lengthy);
}

int main(void)
{
    return run_unit_tests("reply");
}
