/* test_resp.c - commands out of bytes that are cut anywhere, and replies into bytes. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "test.h"

#include "resp/reader.h"
#include "resp/writer.h"
#include "sluice.h"

static const struct sl_resp_limits limits = {.args_max = 8,
                                             .bulk_bytes_max = 10000,
                                             .command_bytes_max = 12000,
                                             .inline_bytes_max = 100};

/* What a stream of bytes says, with the bytes coming in pieces of one size: the words of
 * each command in brackets, and how it ended. */
static const char *heard(const char *bytes, size_t n, size_t piece)
{
    static char said[4096];
    struct sl_resp_reader *r = sl_resp_reader_new(&limits);
    struct sl_args args;
    size_t at = 0;
    int status = 0;
    said[0] = '\0';
    while (at < n && status >= 0) {
        char *to;
        size_t room = sl_resp_room(r, &to), step = n - at < piece ? n - at : piece;
        if (step > room) step = room;
        memcpy(to, bytes + at, step);
        sl_resp_filled(r, step);
        at += step;
        while ((status = sl_resp_next(r, &args)) == 1) {
            for (size_t i = 0; i < args.n; i++) {
                size_t len = strlen(said);
                snprintf(said + len, sizeof said - len, "[%.*s]", (int)args.at[i].n,
                         args.at[i].at);
            }
            strcat(said, ".");
        }
    }
    if (status < 0) {
        strcat(said, sluice_status_word(status));
        assert_non_null(sl_resp_error(r));
        assert_int_equal(sl_resp_next(r, &args), SLUICE_EINVAL); /* It stays broken. */
    }
    sl_resp_reader_free(r);
    return said;
}

static void check(const char *bytes, const char *wanted)
{
    size_t n = strlen(bytes);
    for (size_t piece = 1; piece <= n; piece++)
        assert_string_equal(heard(bytes, n, piece), wanted);
}

static void commands_are_read_however_they_are_cut(void **state)
{
    (void)state;
    check("*1\r\n$4\r\nPING\r\n", "[PING].");
    check("*2\r\n$4\r\nECHO\r\n$0\r\n\r\n*1\r\n$4\r\nPING\r\n", "[ECHO][].[PING].");
    check("*0\r\n*-1\r\n*1\r\n$1\r\nx\r\n", "[x].");
    check("*2\r\n$3\r\na\r\n\r\n$1\r\nb\r\n", "[a\r\n][b].");
    check("PING\r\n", "[PING].");
    check("\r\n  PING  a\tb \n", "[PING][a][b].");
    check("SET \"a b\" 'c d' \"\\x41\\n\"\r\n", "[SET][a b][c d][A\n].");
    check("a''b\r\n", "INVALID"); /* As in Redis: a quote ends a word. */
    check("*3\r\n$1\r\na\r\n", "");
}

static void input_that_is_not_a_command_is_rejected(void **state)
{
    (void)state;
    check("*x\r\n", "INVALID");
    check("*1\r\n:4\r\n", "INVALID");
    check("*1\r\n$-1\r\n", "INVALID");
    check("*1\r\n$1x\r\n", "INVALID");
    check("*1\r\n$1\r\nabc", "INVALID");
    check("*9\r\n", "TOOBIG");
    check("*1\r\n$10001\r\n", "TOOBIG");
    check("*99999999999999999999999999\r\n", "INVALID");
    check("say \"it\r\n", "INVALID");
    check("a b c d e f g h i\r\n", "TOOBIG");
    char line[200];
    memset(line, 'a', sizeof line - 1);
    line[sizeof line - 1] = '\0';
    check(line, "TOOBIG");
}

static void a_large_word_takes_memory_only_as_it_comes(void **state)
{
    (void)state;
    struct sl_resp_limits large = limits;
    struct sl_args args;
    char *to;
    large.bulk_bytes_max = large.command_bytes_max = 1u << 30;
    struct sl_resp_reader *r = sl_resp_reader_new(&large);
    const char *head = "*1\r\n$1000000000\r\n";
    assert_true(sl_resp_room(r, &to) >= strlen(head));
    memcpy(to, head, strlen(head));
    sl_resp_filled(r, strlen(head));
    assert_int_equal(sl_resp_next(r, &args), 0);
    assert_true(sl_resp_room(r, &to) > 0);
    assert_true(sl_resp_reader_bytes(r) < 100000);
    sl_resp_reader_free(r);
}

static void random_bytes_end_in_commands_or_in_an_error(void **state)
{
    (void)state;
    static const char letters[] = "*$:+-\r\n0123456789 abPING\"'\\x";
    uint32_t random = 7;
    for (int round = 0; round < 20000; round++) {
        char bytes[64];
        for (size_t i = 0; i < sizeof bytes; i++) {
            random = random * 1664525 + 1013904223;
            bytes[i] = letters[(random >> 16) % (sizeof letters - 1)];
        }
        char whole[4096];
        strcpy(whole, heard(bytes, sizeof bytes, sizeof bytes));
        assert_string_equal(heard(bytes, sizeof bytes, 1 + (random >> 20) % 7), whole);
    }
}

static void replies_are_those_of_both_protocols(void **state)
{
    (void)state;
    for (int version = 2; version <= 3; version++) {
        struct sl_resp_writer w;
        size_t n;
        sl_resp_writer_init(&w, 1000);
        w.resp3 = version == 3;
        sl_resp_simple(&w, "OK");
        sl_resp_problem(&w, "ERR", "two\r\nlines");
        sl_resp_integer(&w, INT64_MIN);
        sl_resp_text(&w, "x");
        sl_resp_decimal(&w, -107);
        sl_resp_null(&w);
        sl_resp_null_array(&w);
        sl_resp_array(&w, 2);
        sl_resp_map(&w, 2);
        sl_resp_push(&w, 3);
        char *bytes = sl_resp_take(&w, &n);
        const char *wanted =
            version == 2
                ? "+OK\r\n-ERR two  lines\r\n:-9223372036854775808\r\n$1\r\nx\r\n"
                  "$4\r\n-107\r\n$-1\r\n*-1\r\n*2\r\n*4\r\n*3\r\n"
                : "+OK\r\n-ERR two  lines\r\n:-9223372036854775808\r\n$1\r\nx\r\n"
                  "$4\r\n-107\r\n_\r\n_\r\n*2\r\n%2\r\n>3\r\n";
        assert_int_equal(n, strlen(wanted));
        assert_memory_equal(bytes, wanted, n);
        free(bytes);
        sl_resp_writer_free(&w);
    }
}

static void unread_output_spills(void **state)
{
    (void)state;
    struct sl_resp_writer w;
    sl_resp_writer_init(&w, 100);
    for (int i = 0; i < 24; i++) sl_resp_integer(&w, 1);
    assert_false(w.spilt);
    assert_int_equal(w.n, 96);
    sl_resp_text(&w, "too much");
    assert_true(w.spilt);
    sl_resp_integer(&w, 1);
    assert_int_equal(w.n, 96); /* Nothing of what came after is there. */
    sl_resp_writer_free(&w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(commands_are_read_however_they_are_cut),
        cmocka_unit_test(input_that_is_not_a_command_is_rejected),
        cmocka_unit_test(a_large_word_takes_memory_only_as_it_comes),
        cmocka_unit_test(random_bytes_end_in_commands_or_in_an_error),
        cmocka_unit_test(replies_are_those_of_both_protocols),
        cmocka_unit_test(unread_output_spills),
    };
    return cmocka_run_group_tests_name("resp", tests, NULL, NULL);
}
