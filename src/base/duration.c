#include "base/duration.h"

#include <assert.h>
#include <string.h>

#include "base/number.h"

#define FRACTION_DIGITS 9 /* Further digits only affect rounding. */

static const struct unit {
    const char *name;
    sl_ms ms;
} units[] = {{"h", 3600000}, {"m", 60000}, {"s", 1000}, {"ms", 1}};
#define UNITS (sizeof units / sizeof *units)

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

/* Returns the unit in milliseconds, or 0 if it is unknown. */
static sl_ms unit_ms(struct sl_bytes name, sl_ms plain_ms)
{
    if (name.n == 0) return plain_ms;
    for (size_t i = 0; i < UNITS; i++)
        if (strlen(units[i].name) == name.n &&
            memcmp(units[i].name, name.at, name.n) == 0)
            return units[i].ms;
    return 0;
}

/* Returns the decimal fraction of a unit in milliseconds, rounded up. */
static sl_ms fraction_ms(struct sl_bytes digits, sl_ms unit)
{
    sl_ms n = 0, scale = 1;
    bool more = false;
    for (size_t i = 0; i < digits.n; i++)
        if (i < FRACTION_DIGITS) {
            n = n * 10 + (digits.at[i] - '0');
            scale *= 10;
        } else more = more || digits.at[i] != '0';
    n = n * unit + (more ? 1 : 0);
    return n / scale + (n % scale != 0);
}

/* Parse a duration that has a unit or a fraction. */
static bool parse_long_form(struct sl_bytes text, sl_ms plain_ms, sl_ms max, sl_ms *out)
{
    const char *at = text.at, *end = text.at + text.n;
    struct sl_bytes whole = {at, 0}, fraction = {NULL, 0};
    uint64_t n = 0;
    while (at < end && is_digit(*at)) at++;
    whole.n = (size_t)(at - text.at);
    bool point = at < end && *at == '.';
    if (point) {
        fraction.at = ++at;
        while (at < end && is_digit(*at)) at++;
        fraction.n = (size_t)(at - fraction.at);
    }
    sl_ms unit = unit_ms((struct sl_bytes){at, (size_t)(end - at)}, plain_ms);
    if (unit == 0 || (point ? fraction.n == 0 || unit == 1 : whole.n == 0))
        return false;
    if (whole.n > 0 && !sl_parse_u64(whole, (uint64_t)(max / unit), &n)) return false;
    sl_ms rest = fraction_ms(fraction, unit);
    *out = (sl_ms)n * unit;
    if (rest > max - *out) return false;
    *out += rest;
    return true;
}

bool sl_parse_duration(struct sl_bytes text, sl_ms plain_ms, sl_ms min, sl_ms max,
                       sl_ms *out)
{
    uint64_t n;
    assert(plain_ms > 0 && min >= 0 && max >= min);
    /* Almost all commands use plain milliseconds. */
    if (plain_ms == 1 && text.n > 0 && is_digit(text.at[text.n - 1])) {
        if (!sl_parse_u64(text, (uint64_t)max, &n)) return false;
        *out = (sl_ms)n;
        return *out >= min;
    }
    return parse_long_form(text, plain_ms, max, out) && *out >= min;
}

const char *sl_duration_text(sl_ms ms, char buffer[SL_DURATION_BYTES])
{
    static const struct unit years = {" years", (sl_ms)365 * 24 * 3600000};
    const struct unit *u = units;
    char *at = buffer + SL_DURATION_BYTES;
    assert(ms >= 0);
    if (ms == 0) return strcpy(buffer, "0");
    if (ms >= 2 * years.ms) u = &years;
    else
        while (ms % u->ms != 0) u++;
    size_t n = strlen(u->name) + 1;
    memcpy(at -= n, u->name, n);
    for (sl_ms left = ms / u->ms; left > 0; left /= 10) *--at = (char)('0' + left % 10);
    return memmove(buffer, at, (size_t)(buffer + SL_DURATION_BYTES - at));
}
