#include "cli/text.h"

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include "base/utf8.h"

/* A NUL follows the text, so the length of a character is known without its end. */
static size_t length_at(const unsigned char *s)
{
    return sl_utf8_length(s, 4);
}

const char *cli_safe_text(const char *name, char *out, size_t size)
{
    const unsigned char *s = (const unsigned char *)name;
    size_t at = 0;
    while (*s != '\0') {
        char piece[8];
        size_t n = length_at(s), len = n;
        if (sl_utf8_is_safe(s, n)) memcpy(piece, s, n);
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

/* Print one character, or the escape of its first byte. Returns the number of bytes
 * that it has consumed. */
static size_t put_safe(FILE *out, const unsigned char *s)
{
    size_t n = length_at(s);
    if (sl_utf8_is_safe(s, n)) return fwrite(s, 1, n, out), n;
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

void cli_json_string(FILE *out, const char *text)
{
    cli_json_bytes(out, text, strlen(text));
}

void cli_json_bytes(FILE *out, const char *text, size_t count)
{
    const unsigned char *s = (const unsigned char *)text, *end = s + count;
    fputc('"', out);
    while (s < end) {
        size_t n = length_at(s);
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
        size_t n = length_at(s);
        exact = n > 0;
        s += n;
    }
    if (exact) return;
    fprintf(out, ",\"%s_hex\":\"", name);
    for (const char *s = text; *s != '\0'; s++) fprintf(out, "%02x", (unsigned char)*s);
    fputc('"', out);
}
