#include "offline/text.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/utf8.h"

struct sl_bytes offline_bytes(const char *text)
{
    return (struct sl_bytes){text, strlen(text)};
}

/* Write one character, or the escape of its first byte. Returns how many bytes of b it took. */
static size_t next_piece(struct sl_bytes b, char piece[8], size_t *piece_bytes)
{
    const unsigned char *s = (const unsigned char *)b.at;
    size_t n = sl_utf8_length(s, b.n);
    if (sl_utf8_is_safe(s, n)) {
        memcpy(piece, s, n);
        *piece_bytes = n;
        return n;
    }
    *piece_bytes = (size_t)snprintf(piece, 8, "\\x%02x", s[0]);
    return 1;
}

static struct sl_bytes after(struct sl_bytes b, size_t n)
{
    return (struct sl_bytes){b.at + n, b.n - n};
}

size_t offline_put_text(struct sl_bytes b)
{
    size_t count = 0, bytes;
    char piece[8];
    while (b.n > 0) {
        b = after(b, next_piece(b, piece, &bytes));
        fwrite(piece, 1, bytes, stdout);
        count += piece[0] == '\\' ? bytes : 1;
    }
    return count;
}

void offline_put_gap(size_t n, size_t width)
{
    printf("%*s", n < width ? (int)(width - n) + 1 : 1, "");
}

const char *offline_text(struct sl_bytes b, char out[OFFLINE_TEXT_BYTES])
{
    size_t at = 0, bytes;
    char piece[8];
    while (b.n > 0) {
        b = after(b, next_piece(b, piece, &bytes));
        if (at + bytes + sizeof "..." > OFFLINE_TEXT_BYTES) {
            memcpy(out + at, "...", sizeof "...");
            return out;
        }
        memcpy(out + at, piece, bytes);
        at += bytes;
    }
    out[at] = '\0';
    return out;
}

void offline_json_text(struct sl_bytes b)
{
    putchar('"');
    while (b.n > 0) {
        const unsigned char *s = (const unsigned char *)b.at;
        size_t n = sl_utf8_length(s, b.n);
        if (n == 0) fputs("\\ufffd", stdout), n = 1;
        else if (n > 1) fwrite(s, 1, n, stdout);
        else if (*s == '"' || *s == '\\') printf("\\%c", *s);
        else if (*s < 0x20 || *s == 0x7f) printf("\\u%04x", *s);
        else putchar(*s);
        b = after(b, n);
    }
    putchar('"');
}

static bool is_utf8(struct sl_bytes b)
{
    while (b.n > 0) {
        size_t n = sl_utf8_length((const unsigned char *)b.at, b.n);
        if (n == 0) return false;
        b = after(b, n);
    }
    return true;
}

void offline_json_member(const char *name, struct sl_bytes b)
{
    printf("\"%s\":", name);
    offline_json_text(b);
    if (is_utf8(b)) return;
    printf(",\"%s_hex\":\"", name);
    for (size_t i = 0; i < b.n; i++) printf("%02x", (unsigned char)b.at[i]);
    putchar('"');
}

const char *offline_time_text(sl_ms ms, char out[OFFLINE_TIME_BYTES])
{
    static const struct {
        sl_ms ms;
        const char *name;
    } units[] = {{86400000, "d"}, {3600000, "h"}, {60000, "m"}, {1000, "s"}};
    if (ms == SL_NEVER) return strcpy(out, "forever");
    if (ms < 1000) {
        snprintf(out, OFFLINE_TIME_BYTES, "%" PRId64 "ms", ms < 0 ? 0 : ms);
        return out;
    }
    size_t i = 0;
    while (ms < units[i].ms) i++;
    int n = snprintf(out, OFFLINE_TIME_BYTES, "%" PRId64 "%s", ms / units[i].ms,
                     units[i].name);
    if (i == 3) return out;
    sl_ms rest = ms % units[i].ms / units[i + 1].ms;
    if (rest > 0)
        snprintf(out + n, OFFLINE_TIME_BYTES - (size_t)n, "%" PRId64 "%s", rest,
                 units[i + 1].name);
    return out;
}
