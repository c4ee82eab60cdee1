#include "server/observe/log.h"

#include <inttypes.h>
#include <poll.h>
#include <stdarg.h>
#include <time.h>
#include <unistd.h>

static enum sl_log_format format;
static enum sl_log_level least = SL_LOG_INFO;

void sl_log_setup(enum sl_log_format f, enum sl_log_level level)
{
    format = f;
    least = level;
}

bool sl_log_wanted(enum sl_log_level level)
{
    return level >= least;
}

/* A message is written with a single call, so that messages of several processes are not
 * interleaved. */
struct message {
    char text[2048];
    size_t n;
};

static void add(struct message *l, const char *text)
{
    for (; *text != '\0' && l->n < sizeof l->text - 8; text++) l->text[l->n++] = *text;
}

/* Add text in quotes, as in JSON. Bytes that are not ASCII become \u00XX, because the bytes of a
 * client need not be valid UTF-8. */
static void add_quoted(struct message *l, const char *text)
{
    char code[8];
    add(l, "\"");
    for (; *text != '\0'; text++) {
        unsigned char c = (unsigned char)*text;
        if (c == '"' || c == '\\') snprintf(code, sizeof code, "\\%c", c);
        else if (c < 32 || c > 126) snprintf(code, sizeof code, "\\u%04x", c);
        else snprintf(code, sizeof code, "%c", c);
        if (l->n + 12 > sizeof l->text) break;
        add(l, code);
    }
    add(l, "\"");
}

static void add_time(struct message *l)
{
    struct timespec now;
    struct tm utc;
    char text[40];
    clock_gettime(CLOCK_REALTIME, &now);
    gmtime_r(&now.tv_sec, &utc);
    size_t n = strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%S", &utc);
    snprintf(text + n, sizeof text - n, ".%03ldZ", now.tv_nsec / 1000000);
    add(l, text);
}

static void add_pair(struct message *l, const char *name, const char *value)
{
    if (format == SL_LOG_JSON) {
        add(l, ",");
        add_quoted(l, name);
        add(l, ":");
    } else {
        add(l, " ");
        add(l, name);
        add(l, "=");
    }
    add_quoted(l, value);
}

static uint64_t lost; /* Number of messages that could not be written. */

static void write_message(enum sl_log_level level, const char *message,
                          uint64_t left_out, va_list pairs)
{
    static const char *levels[] = {"debug", "info", "warn", "error"};
    struct message l = {.n = 0};
    const char *name;
    char number[24];
    if (format == SL_LOG_JSON) {
        add(&l, "{\"time\":\"");
        add_time(&l);
        add(&l, "\",\"level\":\"");
        add(&l, levels[level]);
        add(&l, "\",\"message\":");
        add_quoted(&l, message);
    } else {
        add_time(&l);
        add(&l, " ");
        add(&l, levels[level]);
        add(&l, " ");
        add(&l, message);
    }
    while ((name = va_arg(pairs, const char *)) != NULL)
        add_pair(&l, name, va_arg(pairs, const char *));
    if (lost > 0) {
        snprintf(number, sizeof number, "%" PRIu64, lost);
        add_pair(&l, "lost_before", number);
        lost = 0; /* If this message is lost too, the count starts again at 1. */
    }
    if (left_out > 0) {
        snprintf(number, sizeof number, "%" PRIu64, left_out);
        add_pair(&l, "left_out", number);
    }
    add(&l, format == SL_LOG_JSON ? "}\n" : "\n");
    /* A log that nobody reads must not block the server: if the pipe is full, the message is lost.
     * A pipe accepts a whole message or nothing. */
    struct pollfd p = {.fd = STDERR_FILENO, .events = POLLOUT};
    if (poll(&p, 1, 0) != 1 || (p.revents & POLLOUT) == 0 ||
        write(STDERR_FILENO, l.text, l.n) < 0)
        lost++;
}

void sl_log(enum sl_log_level level, const char *message, ...)
{
    va_list pairs;
    if (!sl_log_wanted(level)) return;
    va_start(pairs, message);
    write_message(level, message, 0, pairs);
    va_end(pairs);
}

void sl_log_often(struct sl_log_kind *kind, sl_ms now_ms, enum sl_log_level level,
                  const char *message, ...)
{
    va_list pairs;
    if (!sl_log_wanted(level)) return;
    if (kind->last_ms != 0 && now_ms - kind->last_ms < 1000) {
        kind->left_out++;
        return;
    }
    va_start(pairs, message);
    write_message(level, message, kind->left_out, pairs);
    va_end(pairs);
    kind->last_ms = now_ms;
    kind->left_out = 0;
}
