/* base64.c - base64, which etcd's gateway uses for bytes in JSON (RFC 4648, section 4),
 * and the end of a range of keys. */
#include <string.h>

#include "storage/etcd/client.h"

static const char letters[65] =
    "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

size_t sl_etcd_base64_bytes(size_t n)
{
    return (n + 2) / 3 * 4 + 1;
}

void sl_etcd_base64_write(char *out, struct sl_bytes b)
{
    for (size_t i = 0; i < b.n; i += 3) {
        size_t left = b.n - i;
        uint32_t v = (uint32_t)(uint8_t)b.at[i] << 16;
        if (left > 1) v |= (uint32_t)(uint8_t)b.at[i + 1] << 8;
        if (left > 2) v |= (uint8_t)b.at[i + 2];
        *out++ = letters[v >> 18];
        *out++ = letters[v >> 12 & 63];
        *out++ = left > 1 ? letters[v >> 6 & 63] : '=';
        *out++ = left > 2 ? letters[v & 63] : '=';
    }
    *out = '\0';
}

static int value_of(char letter)
{
    if (letter >= 'A' && letter <= 'Z') return letter - 'A';
    if (letter >= 'a' && letter <= 'z') return letter - 'a' + 26;
    if (letter >= '0' && letter <= '9') return letter - '0' + 52;
    return letter == '+' ? 62 : letter == '/' ? 63 : -1;
}

/* Decode four characters. Returns the number of bytes, or 0 if the characters are not
 * base64. `out` may be `text`. */
static size_t read_four(const char *text, char *out)
{
    uint32_t v = 0;
    size_t n = 3;
    if (text[2] == '=' && text[3] == '=') n = 1;
    else if (text[3] == '=') n = 2;
    for (size_t i = 0; i <= n; i++) {
        int value = value_of(text[i]);
        if (value < 0) return 0;
        v |= (uint32_t)value << (18 - 6 * i);
    }
    /* Unused bits must be 0, so that every value has only one encoding. */
    if ((v & (0xffffffu >> (8 * n))) != 0) return 0;
    out[0] = (char)(v >> 16);
    if (n > 1) out[1] = (char)(v >> 8);
    if (n > 2) out[2] = (char)v;
    return n;
}

bool sl_etcd_base64_read(const char *text, char *out, size_t *n)
{
    size_t length = strlen(text), bytes = 0;
    if (length % 4 != 0) return false;
    for (size_t i = 0; i < length; i += 4) {
        size_t some = read_four(text + i, out + bytes);
        if (some == 0 || (some < 3 && i + 4 < length)) return false;
        bytes += some;
    }
    *n = bytes;
    return true;
}

bool sl_etcd_prefix_end(struct sl_bytes prefix, char *out, size_t *n)
{
    size_t last = prefix.n;
    while (last > 0 && (uint8_t)prefix.at[last - 1] == 255) last--;
    if (last == 0) return false;
    memmove(out, prefix.at, last);
    out[last - 1] = (char)((uint8_t)out[last - 1] + 1);
    *n = last;
    return true;
}
