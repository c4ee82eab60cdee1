#include "resp/writer.h"

#include <stdlib.h>
#include <string.h>

#define SIZE_MIN 512u

void sl_resp_writer_init(struct sl_resp_writer *w, size_t bytes_max)
{
    *w = (struct sl_resp_writer){.bytes_max = bytes_max};
}

void sl_resp_writer_free(struct sl_resp_writer *w)
{
    free(w->buffer);
    w->buffer = NULL;
    w->n = w->size = 0;
}

char *sl_resp_take(struct sl_resp_writer *w, size_t *n)
{
    char *buffer = w->buffer;
    *n = w->n;
    w->buffer = NULL;
    w->n = w->size = 0;
    return buffer;
}

/* Make the buffer large enough for n more bytes. Returns false if out of memory. */
static __attribute__((noinline)) bool grow(struct sl_resp_writer *w, size_t n)
{
    size_t size = w->size < SIZE_MIN ? SIZE_MIN : 2 * w->size;
    if (size < w->n + n) size = w->n + n;
    char *bigger = realloc(w->buffer, size);
    w->spilt = bigger == NULL;
    if (bigger == NULL) return false;
    w->buffer = bigger;
    w->size = size;
    return true;
}

/* Return the place for n more bytes, or NULL. */
static inline char *room(struct sl_resp_writer *w, size_t n)
{
    if (w->spilt) return NULL;
    if (n > w->bytes_max - w->n) {
        w->spilt = true;
        return NULL;
    }
    if (n > w->size - w->n && !grow(w, n)) return NULL;
    char *at = w->buffer + w->n;
    w->n += n;
    return at;
}

void sl_resp_raw(struct sl_resp_writer *w, const char *bytes, size_t n)
{
    char *at = room(w, n);
    if (at != NULL && n > 0) memcpy(at, bytes, n);
}

/* Format two digits at a time, for speed: fences have sixteen digits, and every reply
 * has numbers. */
static const char two_digits[] =
    "00010203040506070809101112131415161718192021222324252627282930"
    "31323334353637383940414243444546474849505152535455565758596061"
    "62636465666768697071727374757677787980818283848586878889909192"
    "93949596979899";

/* Write two digits. This is not memcpy(), because the compiler would check its bounds at run time. */
static inline void put_two(char *at, uint64_t number)
{
    at[0] = two_digits[2 * number];
    at[1] = two_digits[2 * number + 1];
}

/* Format a number and a line break before `at`. Returns a pointer to their beginning. */
static char *format_line(char *at, int64_t number)
{
    uint64_t rest = number < 0 ? (uint64_t)0 - (uint64_t)number : (uint64_t)number;
    *--at = '\n';
    *--at = '\r';
    for (; rest >= 100; rest /= 100) put_two(at -= 2, rest % 100);
    if (rest >= 10) put_two(at -= 2, rest);
    else *--at = (char)('0' + rest);
    if (number < 0) *--at = '-';
    return at;
}

/* Format a type character, a number and a line break at the end of `line`. Returns a
 * pointer to their beginning. */
static const char *format(char line[32], char sign, int64_t number)
{
    char *at = format_line(line + 32, number);
    *--at = sign;
    return at;
}

static void header(struct sl_resp_writer *w, char sign, int64_t n)
{
    char line[32];
    if (n >= 0 && n <= 9) {
        char *short_one = room(w, 4);
        if (short_one == NULL) return;
        short_one[0] = sign;
        short_one[1] = (char)('0' + n);
        memcpy(short_one + 2, "\r\n", 2);
        return;
    }
    const char *at = format(line, sign, n);
    sl_resp_raw(w, at, (size_t)(line + sizeof line - at));
}

void sl_resp_simple(struct sl_resp_writer *w, const char *text)
{
    sl_resp_raw(w, "+", 1);
    sl_resp_raw(w, text, strlen(text));
    sl_resp_raw(w, "\r\n", 2);
}

void sl_resp_problem(struct sl_resp_writer *w, const char *word, const char *text)
{
    size_t a = strlen(word), b = strlen(text);
    char *at = room(w, 1 + a + 1 + b + 2);
    if (at == NULL) return;
    *at++ = '-';
    memcpy(at, word, a);
    at += a;
    *at++ = ' ';
    for (size_t i = 0; i < b; i++)
        *at++ = text[i] == '\r' || text[i] == '\n' ? ' ' : text[i];
    memcpy(at, "\r\n", 2);
}

void sl_resp_integer(struct sl_resp_writer *w, int64_t n)
{
    header(w, ':', n);
}

/* Write an argument of less than 100 bytes, without a copy of its header: most are that short. */
static void short_bulk(struct sl_resp_writer *w, struct sl_bytes b)
{
    size_t header_bytes = b.n < 10 ? 4 : 5;
    char *at = room(w, header_bytes + b.n + 2);
    if (at == NULL) return;
    at[0] = '$';
    if (b.n < 10) at[1] = (char)('0' + b.n);
    else put_two(at + 1, b.n);
    at += header_bytes;
    memcpy(at - 2, "\r\n", 2);
    if (b.n > 0) memcpy(at, b.at, b.n);
    memcpy(at + b.n, "\r\n", 2);
}

void sl_resp_bulk(struct sl_resp_writer *w, struct sl_bytes b)
{
    char line[32];
    if (b.n < 100) {
        short_bulk(w, b);
        return;
    }
    const char *length = format(line, '$', (int64_t)b.n);
    size_t n = (size_t)(line + sizeof line - length);
    char *at = room(w, n + b.n + 2);
    if (at == NULL) return;
    memcpy(at, length, n);
    if (b.n > 0) memcpy(at + n, b.at, b.n);
    memcpy(at + n + b.n, "\r\n", 2);
}

void sl_resp_text(struct sl_resp_writer *w, const char *text)
{
    sl_resp_bulk(w, (struct sl_bytes){text, strlen(text)});
}

void sl_resp_decimal(struct sl_resp_writer *w, int64_t n)
{
    char line[40], *end = line + sizeof line, *at;
    if (n >= 0 && n <= 9) {
        char *short_one = room(w, 7);
        if (short_one == NULL) return;
        memcpy(short_one, "$1\r\n0\r\n", 7);
        short_one[4] = (char)('0' + n);
        return;
    }
    at = format_line(end, n);
    at = format_line(at, end - at - 2); /* The number of digits. */
    *--at = '$';
    sl_resp_raw(w, at, (size_t)(end - at));
}

void sl_resp_null(struct sl_resp_writer *w)
{
    if (w->resp3) sl_resp_raw(w, "_\r\n", 3);
    else sl_resp_raw(w, "$-1\r\n", 5);
}

void sl_resp_null_array(struct sl_resp_writer *w)
{
    if (w->resp3) sl_resp_raw(w, "_\r\n", 3);
    else sl_resp_raw(w, "*-1\r\n", 5);
}

void sl_resp_array(struct sl_resp_writer *w, size_t n)
{
    header(w, '*', (int64_t)n);
}

void sl_resp_map(struct sl_resp_writer *w, size_t pairs)
{
    if (w->resp3) header(w, '%', (int64_t)pairs);
    else header(w, '*', 2 * (int64_t)pairs);
}

void sl_resp_push(struct sl_resp_writer *w, size_t n)
{
    header(w, w->resp3 ? '>' : '*', (int64_t)n);
}
