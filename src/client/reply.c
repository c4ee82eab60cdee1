#include "client/reply.h"

#include <assert.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "base/number.h"

/* --- Lines ---------------------------------------------------------------- */

/* The first line of a value, split into its type and the rest of the line. */
struct reply_line {
    char kind;
    const char *rest;
    size_t n;
    size_t end; /* Where the next line begins. */
};

/* Parse an integer that takes up all n bytes and fits into *out. */
static bool number_of(const char *s, size_t n, int64_t *out)
{
    bool minus = n > 0 && s[0] == '-';
    uint64_t value, most = minus ? (uint64_t)INT64_MAX + 1 : (uint64_t)INT64_MAX;
    if (minus || (n > 0 && s[0] == '+')) s++, n--;
    if (!sl_parse_u64((struct sl_bytes){s, n}, most, &value)) return false;
    *out = minus ? (int64_t)(0 - value) : (int64_t)value;
    return true;
}

/* Return whether the text has only characters of a number, inf or nan: signs, digits,
 * points and letters. */
static bool is_decimal(const char *s, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (strchr("0123456789+-.eEinfa", s[i]) == NULL || s[i] == '\0') return false;
    return n > 0;
}

/* Parse the line at the current position. Returns 1, 0 if the line is incomplete, or
 * SLUICE_EPROTOCOL. */
static int line_at(struct sl_client_reply_scan *s, const char *data, size_t n,
                   struct reply_line *out)
{
    if (s->searched < s->at) s->searched = s->at;
    const char *end = n > s->searched
                          ? memchr(data + s->searched, '\n', n - s->searched)
                          : NULL;
    size_t length = (end != NULL ? (size_t)(end - data) : n) - s->at;
    if (length > SL_CLIENT_REPLY_LINE_MAX) return SLUICE_EPROTOCOL;
    if (end == NULL) {
        s->searched = n;
        return 0;
    }
    if (length < 2 || end[-1] != '\r') return SLUICE_EPROTOCOL;
    *out = (struct reply_line){data[s->at], data + s->at + 1, length - 2,
                               (size_t)(end - data) + 1};
    return memchr(out->rest, '\r', out->n) == NULL ? 1 : SLUICE_EPROTOCOL;
}

/* --- Scanning ------------------------------------------------------------- */

/* End a value. After the last value of a list, end the list too. */
static int value_ends(struct sl_client_reply_scan *s, size_t end)
{
    s->at = end;
    while (s->depth > 0 && --s->left[s->depth - 1] == 0) s->depth--;
    return s->depth == 0 ? 1 : 0;
}

/* Scan a value of one line. */
static int scan_short(struct sl_client_reply_scan *s, const struct reply_line *line)
{
    int64_t number;
    bool good = false;
    switch (line->kind) {
        case '+':
        case '-': good = true; break;
        case ':': good = number_of(line->rest, line->n, &number); break;
        case ',':
        case '(': good = is_decimal(line->rest, line->n); break;
        case '#':
            good = line->n == 1 && (line->rest[0] == 't' || line->rest[0] == 'f');
            break;
        case '_': good = line->n == 0; break;
    }
    if (!good) return SLUICE_EPROTOCOL;
    s->text_bytes += line->n + 1;
    return value_ends(s, line->end);
}

/* Scan a text that follows its length. */
static int scan_text(struct sl_client_reply_scan *s, const struct reply_line *line,
                     const char *data, size_t n)
{
    int64_t length;
    if (!number_of(line->rest, line->n, &length)) return SLUICE_EPROTOCOL;
    if (length == -1 && line->kind == '$') return value_ends(s, line->end);
    if (length < (line->kind == '=' ? 4 : 0) || length > SL_CLIENT_REPLY_BYTES_MAX)
        return SLUICE_EPROTOCOL;
    size_t end = line->end + (size_t)length;
    if (end + 2 > SL_CLIENT_REPLY_BYTES_MAX) return SLUICE_EPROTOCOL;
    if (n < end + 2) return 0; /* Scan this line again when the text is complete. */
    if (memcmp(data + end, "\r\n", 2) != 0) return SLUICE_EPROTOCOL;
    s->text_bytes += (size_t)length + 1;
    return value_ends(s, end + 2);
}

static int scan_list(struct sl_client_reply_scan *s, const struct reply_line *line)
{
    int64_t count;
    if (!number_of(line->rest, line->n, &count)) return SLUICE_EPROTOCOL;
    if (count == -1 && line->kind == '*') return value_ends(s, line->end);
    if (count < 0 || count > SL_CLIENT_REPLY_ITEMS_MAX) return SLUICE_EPROTOCOL;
    if (line->kind == '%') count *= 2;
    if (count == 0) return value_ends(s, line->end);
    s->items += (size_t)count;
    if (s->items > SL_CLIENT_REPLY_ITEMS_MAX || s->depth == SL_CLIENT_REPLY_DEPTH_MAX)
        return SLUICE_EPROTOCOL;
    s->left[s->depth++] = (size_t)count;
    s->at = line->end;
    return 0;
}

int sl_client_reply_scan(struct sl_client_reply_scan *s, const char *data, size_t n)
{
    for (;;) {
        struct reply_line line;
        size_t before = s->at;
        int status = line_at(s, data, n, &line);
        if (status != 1) return status;
        if (line.end > SL_CLIENT_REPLY_BYTES_MAX) return SLUICE_EPROTOCOL;
        if (s->items == 0) s->items = 1;
        switch (line.kind) {
            case '$':
            case '=':
            case '!': status = scan_text(s, &line, data, n); break;
            case '*':
            case '~':
            case '>':
            case '%': status = scan_list(s, &line); break;
            default: status = scan_short(s, &line); break;
        }
        if (status != 0 || s->at == before) return status;
    }
}

/* --- Building ------------------------------------------------------------- */

/* The memory of one tree: values first, then texts. */
struct building {
    const char *at, *end;      /* The received bytes. */
    struct sluice_reply *free; /* The next unused value, */
    char *text;                /* and where to put the next text. */
};

static void build_text(struct building *b, struct sluice_reply *r, const char *from,
                       size_t n)
{
    memcpy(b->text, from, n);
    b->text[n] = '\0';
    r->text = b->text;
    r->text_bytes = n;
    b->text += n + 1;
}

static struct reply_line next_line(struct building *b)
{
    const char *start = b->at, *end = memchr(start, '\r', (size_t)(b->end - start));
    b->at = end + 2;
    return (struct reply_line){start[0], start + 1, (size_t)(end - start) - 1, 0};
}

static void build_long_text(struct building *b, struct sluice_reply *r,
                            const struct reply_line *line)
{
    int64_t length = 0;
    number_of(line->rest, line->n, &length);
    if (length < 0) return; /* Nil. */
    /* Skip "txt:", the format of the text; our server sends no other format. */
    size_t skip = line->kind == '=' ? 4 : 0;
    r->type = line->kind == '!'   ? SLUICE_REPLY_ERROR
              : line->kind == '=' ? SLUICE_REPLY_LINES
                                  : SLUICE_REPLY_TEXT;
    build_text(b, r, b->at + skip, (size_t)length - skip);
    b->at += length + 2;
}

static void build_value(struct building *b, struct sluice_reply *r);

/* Build a list recursively. The scan has limited the depth. */
static void build_list(struct building *b, struct sluice_reply *r,
                       const struct reply_line *line)
{
    int64_t count = 0;
    number_of(line->rest, line->n, &count);
    if (count < 0) return; /* Nil. */
    r->type = line->kind == '%'   ? SLUICE_REPLY_MAP
              : line->kind == '~' ? SLUICE_REPLY_SET
              : line->kind == '>' ? SLUICE_REPLY_PUSH
                                  : SLUICE_REPLY_LIST;
    r->count = (size_t)count * (line->kind == '%' ? 2 : 1);
    r->items = b->free;
    b->free += r->count;
    for (size_t i = 0; i < r->count; i++) build_value(b, &r->items[i]);
}

static void build_value(struct building *b, struct sluice_reply *r)
{
    struct reply_line line = next_line(b);
    *r = (struct sluice_reply){.type = SLUICE_REPLY_NIL, .text = ""};
    switch (line.kind) {
        case '$':
        case '=':
        case '!': build_long_text(b, r, &line); return;
        case '*':
        case '~':
        case '>':
        case '%': build_list(b, r, &line); return;
        case '_': return;
        case '#':
            r->type = SLUICE_REPLY_BOOL;
            r->number = line.rest[0] == 't';
            return;
        case '+': r->type = SLUICE_REPLY_STATUS; break;
        case '-': r->type = SLUICE_REPLY_ERROR; break;
        case ':':
            r->type = SLUICE_REPLY_NUMBER;
            number_of(line.rest, line.n, &r->number);
            break;
        default: r->type = SLUICE_REPLY_DECIMAL; break;
    }
    build_text(b, r, line.rest, line.n);
}

int sl_client_reply_build(const char *data, const struct sl_client_reply_scan *s,
                          struct sluice_reply **out)
{
    assert(s->depth == 0 && s->items > 0); /* The scan must be complete. */
    struct sluice_reply *root = malloc(s->items * sizeof *root + s->text_bytes);
    if (root == NULL) return SLUICE_ENOMEM;
    struct building b = {data, data + s->at, root + 1, (char *)(root + s->items)};
    build_value(&b, root);
    /* The tree uses exactly the values that the scan counted, and at most as much text:
     * nil and booleans have no text. */
    assert(b.at == b.end && b.free == root + s->items);
    assert(b.text <= (char *)(root + s->items) + s->text_bytes);
    *out = root;
    return SLUICE_OK;
}

void sluice_reply_free(struct sluice_reply *reply)
{
    free(reply);
}
