#include "cli/clock.h"

#include <stdbool.h>
#include <stdio.h>
#include <time.h>

const char *cli_format_duration(int64_t ms, char *out, size_t size)
{
    long long s = ms < 0 ? 0 : ms / 1000;
    if (s < 120) snprintf(out, size, "%lld s", s);
    else if (s < 120 * 60) snprintf(out, size, "%lld min", s / 60);
    else if (s < 48 * 3600) snprintf(out, size, "%lld h", s / 3600);
    else snprintf(out, size, "%lld days", s / 86400);
    return out;
}

const char *cli_format_time(int64_t since_ms, char *out, size_t size)
{
    time_t now = time(NULL), then = (time_t)(since_ms / 1000);
    struct tm a, b;
    if (localtime_r(&now, &a) == NULL || localtime_r(&then, &b) == NULL) {
        snprintf(out, size, "?");
        return out;
    }
    bool today = a.tm_year == b.tm_year && a.tm_yday == b.tm_yday;
    if (strftime(out, size, today ? "%H:%M:%S" : "%Y-%m-%d %H:%M", &b) == 0)
        snprintf(out, size, "?");
    return out;
}

static int64_t clock_ms(clockid_t clock)
{
    struct timespec t;
    clock_gettime(clock, &t);
    return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

int64_t cli_wall_ms(void)
{
    return clock_ms(CLOCK_REALTIME);
}

int64_t cli_now_ms(void)
{
    return clock_ms(CLOCK_MONOTONIC);
}

int64_t cli_boot_ms(void)
{
    return clock_ms(CLOCK_BOOTTIME);
}
