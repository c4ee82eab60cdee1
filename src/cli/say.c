#include "cli/say.h"

#include <errno.h>
#include <signal.h>
#include <stdarg.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "cli/exits.h"
#include "sluice.h"

static const char *speaker = "sluice";

void cli_speaker(const char *name)
{
    speaker = name;
}

/* In one write, so that lines of several runs do not mix. */
static void say_line(const char *format, va_list args, const char *hint)
{
    char line[4096];
    int n = snprintf(line, sizeof line, "%s: ", speaker);
    if (n < 0) return;
    int m = vsnprintf(line + n, sizeof line - (size_t)n, format, args);
    if (m < 0) return;
    size_t len = (size_t)n + (size_t)m;
    if (len > sizeof line - 2) len = sizeof line - 2;
    line[len++] = '\n';
    ssize_t written = write(STDERR_FILENO, line, len);
    if (written >= 0 && hint != NULL)
        written = write(STDERR_FILENO, hint, strlen(hint));
    (void)written; /* Where nobody listens nothing can be said. */
}

void cli_say(const char *format, ...)
{
    va_list args;
    va_start(args, format);
    say_line(format, args, NULL);
    va_end(args);
}

int cli_usage(const char *format, ...)
{
    char hint[128];
    const char *topic = strchr(speaker, ' ');
    snprintf(hint, sizeof hint, "Try: sluice help%s\n", topic != NULL ? topic : "");
    va_list args;
    va_start(args, format);
    say_line(format, args, hint);
    va_end(args);
    return EXIT_USAGE;
}

int cli_exit_of(int64_t status)
{
    switch (status) {
        case SLUICE_EFULL: return EXIT_TAKEN;
        case SLUICE_EACCES:
        case SLUICE_EOWNER: return EXIT_NO_PERMISSION;
        case SLUICE_EFOREIGN:
        case SLUICE_EVERSION:
        case SLUICE_EDAMAGED:
        case SLUICE_ETRUNCATED: return EXIT_DATA;
        case SLUICE_ENOENT: return EXIT_NO_INPUT;
        case SLUICE_ETOOBIG:
        case SLUICE_EINVAL: return EXIT_USAGE;
        case SLUICE_EKEYS:
        case SLUICE_ESLOTS:
        case SLUICE_ERECORDS:
        case SLUICE_ESEGMENTS:
        case SLUICE_ESMALLER:
        case SLUICE_ENOCAS:
        case SLUICE_EBUSY: return EXIT_UNAVAILABLE;
        default: return EXIT_SYSTEM;
    }
}

/* What to do about it, in words of the command line. */
static const char *advice(int64_t status)
{
    switch (status) {
        case SLUICE_EKEYS:
        case SLUICE_ESLOTS:
        case SLUICE_ERECORDS: return " (sluice canal make makes a larger segment)";
        case SLUICE_EIO:
            return access("/proc/self", F_OK) == 0 ? "" : " (is /proc mounted?)";
        default: return "";
    }
}

int cli_fail(const char *what, int64_t status)
{
    char shown[CLI_SHOWN_SIZE];
    const char *reason = status == SLUICE_EIO ? strerror(errno)
                                              : sluice_status_text(status);
    cli_say("%s: %s%s", cli_shown(what, shown, sizeof shown), reason, advice(status));
    return cli_exit_of(status);
}

static char cut_line[128];

static void on_cut(int signal)
{
    (void)signal;
    ssize_t written = write(STDERR_FILENO, cut_line, strlen(cut_line));
    (void)written;
    _exit(EXIT_DATA);
}

void cli_expect_cut(void)
{
    struct sigaction now;
    const struct sigaction cut = {.sa_handler = on_cut};
    snprintf(cut_line, sizeof cut_line,
             "%s: the segment was truncated while in use; remove its file when no "
             "process uses it\n",
             speaker);
    /* Nothing else is changed for the command that we execute: a handler is not
     * inherited. */
    if (sigaction(SIGBUS, NULL, &now) == 0 && now.sa_handler == SIG_DFL)
        sigaction(SIGBUS, &cut, NULL);
}

int cli_finish(int status)
{
    if (fflush(stdout) == 0 && !ferror(stdout)) return status;
    cli_say("cannot write to standard output: %s", strerror(errno));
    return EXIT_SYSTEM;
}

/* The length of the UTF-8 character at s, or 0 if that is none. */
static size_t utf8_length(const unsigned char *s)
{
    uint32_t c, least;
    size_t n;
    if (s[0] < 0x80) return 1;
    if ((s[0] & 0xe0) == 0xc0) n = 2, c = s[0] & 0x1fu, least = 0x80;
    else if ((s[0] & 0xf0) == 0xe0) n = 3, c = s[0] & 0x0fu, least = 0x800;
    else if ((s[0] & 0xf8) == 0xf0) n = 4, c = s[0] & 0x07u, least = 0x10000;
    else return 0;
    for (size_t i = 1; i < n; i++) {
        if ((s[i] & 0xc0) != 0x80) return 0;
        c = c << 6 | (s[i] & 0x3fu);
    }
    bool surrogate = c >= 0xd800 && c <= 0xdfff;
    return c >= least && c <= 0x10ffff && !surrogate ? n : 0;
}

/* Whether the character may be shown as it is: no control, neither the ASCII ones nor
 * those of U+0080 to U+009F, nor what turns the direction of writing. */
static bool harmless(const unsigned char *s, size_t n)
{
    if (n == 0) return false;
    if (n == 1) return s[0] >= 0x20 && s[0] != 0x7f && s[0] != '\\';
    if (n == 2) return !(s[0] == 0xc2 && s[1] < 0xa0);
    if (n == 3 && s[0] == 0xe2 && s[1] == 0x80) return s[2] < 0x8b || s[2] > 0xae;
    if (n == 3 && s[0] == 0xe2 && s[1] == 0x81) return s[2] < 0xa6 || s[2] > 0xa9;
    return true;
}

const char *cli_shown(const char *name, char *out, size_t size)
{
    const unsigned char *s = (const unsigned char *)name;
    size_t at = 0;
    while (*s != '\0') {
        char piece[8];
        size_t n = utf8_length(s), len = n;
        if (harmless(s, n)) memcpy(piece, s, n);
        else {
            n = 1;
            len = (size_t)snprintf(piece, sizeof piece, "\\x%02x", s[0]);
        }
        if (at + len + sizeof "..." > size) {
            memcpy(out + at, "...", sizeof "...");
            return out;
        }
        memcpy(out + at, piece, len);
        at += len;
        s += n;
    }
    out[at] = '\0';
    return out;
}

/* One character of n bytes, or what stands for its first byte. How many it was. */
static size_t put_safe(FILE *out, const unsigned char *s)
{
    size_t n = utf8_length(s);
    if (harmless(s, n)) return fwrite(s, 1, n, out), n;
    fprintf(out, "\\x%02x", s[0]);
    return 1;
}

void cli_put_lines(FILE *out, const char *text, size_t n)
{
    while (n > 0 && (text[n - 1] == '\n' || text[n - 1] == '\r')) n--;
    const unsigned char *s = (const unsigned char *)text, *end = s + n;
    while (s < end) {
        if (s[0] == '\r' && s[1] == '\n') s++;
        else if (s[0] == '\n') fputc(*s++, out);
        else s += put_safe(out, s);
    }
}

void cli_put_line(FILE *out, const char *text, size_t n)
{
    const unsigned char *s = (const unsigned char *)text, *end = s + n;
    while (s < end) s += put_safe(out, s);
}

void cli_put_quoted(FILE *out, const char *text, size_t n)
{
    static const char plain[] = "\\\"\n\r\t", letters[] = "\\\"nrt";
    const unsigned char *s = (const unsigned char *)text, *end = s + n;
    fputc('"', out);
    while (s < end) {
        const char *at = memchr(plain, s[0], sizeof plain - 1);
        if (at == NULL) s += put_safe(out, s);
        else fprintf(out, "\\%c", letters[at - plain]), s++;
    }
    fputc('"', out);
}

const char *cli_ago(int64_t ms, char *out, size_t size)
{
    long long s = ms < 0 ? 0 : ms / 1000;
    if (s < 120) snprintf(out, size, "%lld s", s);
    else if (s < 120 * 60) snprintf(out, size, "%lld min", s / 60);
    else if (s < 48 * 3600) snprintf(out, size, "%lld h", s / 3600);
    else snprintf(out, size, "%lld days", s / 86400);
    return out;
}

const char *cli_clock(int64_t since_ms, char *out, size_t size)
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

void cli_json_string(FILE *out, const char *text)
{
    cli_json_bytes(out, text, strlen(text));
}

void cli_json_bytes(FILE *out, const char *text, size_t count)
{
    const unsigned char *s = (const unsigned char *)text, *end = s + count;
    fputc('"', out);
    while (s < end) {
        size_t n = utf8_length(s);
        if (n == 0) fputs("\\ufffd", out), n = 1;
        else if (n > 1) fwrite(s, 1, n, out);
        else if (*s == '"' || *s == '\\') fprintf(out, "\\%c", *s);
        else if (*s < 0x20 || *s == 0x7f) fprintf(out, "\\u%04x", *s);
        else fputc(*s, out);
        s += n;
    }
    fputc('"', out);
}

void cli_json_member(FILE *out, const char *name, const char *text)
{
    bool exact = true;
    fprintf(out, "\"%s\":", name);
    cli_json_string(out, text);
    for (const unsigned char *s = (const unsigned char *)text; *s != '\0' && exact;) {
        size_t n = utf8_length(s);
        exact = n > 0;
        s += n;
    }
    if (exact) return;
    fprintf(out, ",\"%s_hex\":\"", name);
    for (const char *s = text; *s != '\0'; s++) fprintf(out, "%02x", (unsigned char)*s);
    fputc('"', out);
}
