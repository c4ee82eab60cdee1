/* test_duration.c - durations in text: accepted forms, limits, and how they are printed. */
#include <stdio.h>
#include <string.h>

#include "test.h"

#include "base/duration.h"

#define REJECTED (-1)

/* Parse a text that is followed by bytes which do not belong to it. */
static sl_ms parse(const char *text, sl_ms plain_ms, sl_ms min, sl_ms max)
{
    char bytes[80];
    sl_ms ms = REJECTED;
    snprintf(bytes, sizeof bytes, "%s99", text);
    bool good = sl_parse_duration((struct sl_bytes){bytes, strlen(text)}, plain_ms, min,
                                  max, &ms);
    return good ? ms : REJECTED;
}

static sl_ms in_ms(const char *text)
{
    return parse(text, 1, 0, INT64_MAX);
}

UNIT_TEST(a_time_after_another_does_not_overflow)
{
    assert_int_equal(sl_ms_after(5, 7), 12);
    assert_int_equal(sl_ms_after(-5, 7), 2);
    assert_int_equal(sl_ms_after(-5, 3), -2);
    assert_int_equal(sl_ms_after(-5, SL_NEVER - 1), SL_NEVER - 6);
    assert_int_equal(sl_ms_after(-5, SL_NEVER), SL_NEVER);
    assert_int_equal(sl_ms_after(5, SL_NEVER - 6), SL_NEVER - 1);
    assert_int_equal(sl_ms_after(5, SL_NEVER - 4), SL_NEVER);
    assert_int_equal(sl_ms_after(5, SL_NEVER), SL_NEVER);
    assert_int_equal(sl_ms_after(SL_NEVER, 0), SL_NEVER);
    assert_int_equal(sl_ms_after(SL_NEVER, SL_NEVER), SL_NEVER);
}

UNIT_TEST(a_duration_is_a_number_and_a_unit)
{
    assert_int_equal(in_ms("500ms"), 500);
    assert_int_equal(in_ms("30s"), 30000);
    assert_int_equal(in_ms("5m"), 300000);
    assert_int_equal(in_ms("1h"), 3600000);
    assert_int_equal(in_ms("0s"), 0);
    assert_int_equal(in_ms("007s"), 7000);
}

UNIT_TEST(a_plain_number_has_the_unit_of_its_place)
{
    assert_int_equal(in_ms("1500"), 1500);
    assert_int_equal(in_ms("0"), 0);
    assert_int_equal(parse("5", 1000, 0, INT64_MAX), 5000);
    assert_int_equal(parse("0.5", 1000, 0, INT64_MAX), 500);
    assert_int_equal(parse(".5", 1000, 0, INT64_MAX), 500);
    assert_int_equal(parse("5ms", 1000, 0, INT64_MAX), 5);
}

UNIT_TEST(a_fraction_is_rounded_up_to_milliseconds)
{
    assert_int_equal(in_ms("1.5s"), 1500);
    assert_int_equal(in_ms("0.25h"), 900000);
    assert_int_equal(in_ms("0.0001s"), 1);
    assert_int_equal(in_ms("1.0010s"), 1001);
    assert_int_equal(in_ms("0.00000000000000000000000000000000001h"), 1);
    assert_int_equal(in_ms("0.00000000000000000000000000000000000h"), 0);
    assert_int_equal(in_ms("0.99999999999999999999999999999999999s"), 1000);
}

UNIT_TEST(a_fraction_of_a_millisecond_is_rejected)
{
    assert_int_equal(in_ms("0.5"), REJECTED);
    assert_int_equal(in_ms("0.5ms"), REJECTED);
    assert_int_equal(parse("0.5ms", 1000, 0, INT64_MAX), REJECTED);
}

UNIT_TEST(other_forms_are_rejected)
{
    static const char *const texts[] = {
        "",     " ",   "s",   "ms",  "h",    "-5s", "-5",    "-0",     "+5s",  "5 s",
        " 5s",  "5s ", "5S",  "5MS", "5Ms",  "5H",  "1e3",   "1e3s",   "0x10", "0x10s",
        "inf",  "nan", "1.s", "1.",  ".",    ".s",  "1..5s", "1.5.5s", "1m30", "1m30s",
        "5sec", "5d",  "5us", "5ns", "5,5s", "5s5", "5mm",   "5sm",    "ms5",  "1_000"};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        if (in_ms(texts[i]) != REJECTED) fail_msg("accepted \"%s\" in ms", texts[i]);
        if (parse(texts[i], 1000, 0, INT64_MAX) != REJECTED)
            fail_msg("accepted \"%s\" in s", texts[i]);
    }
    sl_ms ms;
    assert_false(sl_parse_duration((struct sl_bytes){"5s\0", 3}, 1, 0, INT64_MAX, &ms));
}

UNIT_TEST(a_duration_is_within_its_limits)
{
    assert_int_equal(parse("1s", 1, 1000, 2000), 1000);
    assert_int_equal(parse("2000", 1, 1000, 2000), 2000);
    assert_int_equal(parse("2s", 1, 1000, 2000), 2000);
    assert_int_equal(parse("999", 1, 1000, 2000), REJECTED);
    assert_int_equal(parse("999ms", 1, 1000, 2000), REJECTED);
    assert_int_equal(parse("2001", 1, 1000, 2000), REJECTED);
    assert_int_equal(parse("2001ms", 1, 1000, 2000), REJECTED);
    assert_int_equal(parse("2.0001s", 1, 1000, 2000), REJECTED);
    assert_int_equal(parse("3s", 1, 1000, 2000), REJECTED);
    assert_int_equal(parse("1m", 1, 1000, 2000), REJECTED);
}

UNIT_TEST(a_duration_does_not_overflow)
{
    assert_int_equal(in_ms("9223372036854775807"), INT64_MAX);
    assert_int_equal(in_ms("9223372036854775807ms"), INT64_MAX);
    assert_int_equal(in_ms("9223372036854775.807s"), INT64_MAX);
    assert_int_equal(in_ms("9223372036854775808"), REJECTED);
    assert_int_equal(in_ms("9223372036854775808ms"), REJECTED);
    assert_int_equal(in_ms("9223372036854775.808s"), REJECTED);
    assert_int_equal(in_ms("9223372036854776s"), REJECTED);
    assert_int_equal(in_ms("5124095576031h"), REJECTED);
    assert_int_equal(in_ms("18446744073709551616ms"), REJECTED);
    assert_int_equal(in_ms("99999999999999999999999999999h"), REJECTED);
}

static void check_text(sl_ms ms, const char *wanted)
{
    char buffer[SL_DURATION_BYTES];
    assert_string_equal(sl_duration_text(ms, buffer), wanted);
    assert_int_equal(in_ms(buffer), ms);
}

UNIT_TEST(a_duration_is_printed_in_its_longest_unit)
{
    check_text(0, "0");
    check_text(1, "1ms");
    check_text(1000, "1s");
    check_text(1500, "1500ms");
    check_text(90000, "90s");
    check_text(300000, "5m");
    check_text(86400000, "24h");
    check_text((sl_ms)366 * 24 * 3600000, "8784h");
}

static void check_years(sl_ms ms, const char *wanted)
{
    char buffer[SL_DURATION_BYTES];
    assert_string_equal(sl_duration_text(ms, buffer), wanted);
}

UNIT_TEST(a_duration_of_years_is_printed_in_years)
{
    const sl_ms year = (sl_ms)365 * 24 * 3600000;
    check_text(2 * year - 1, "63071999999ms");
    check_years(2 * year, "2 years");
    check_years(3 * year - 1, "2 years");
    check_years((sl_ms)1 << 52, "142808 years");
    check_years(INT64_MAX, "292471208 years");
}

int main(void)
{
    return run_unit_tests("duration");
}
