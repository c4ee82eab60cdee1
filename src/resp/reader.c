#include "resp/reader.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/hex.h"
#include "sluice.h"

#define ROOM_BYTES 4096u /* Free bytes for each read, if limits.room_bytes is 0. */
#define ARGS_FIRST 16u   /* Initial capacity for arguments. */
#define DIGITS_MAX 18    /* Digits of a length; any such number fits into 64 bits. */
#define NONE SIZE_MAX

/* An argument, stored as offsets because the buffer may move. */
struct span {
    size_t at, n;
};

struct sl_resp_reader {
    struct sl_resp_limits limits;
    char *buffer;
    size_t size, end;
    size_t begin;     /* Where the current command begins. */
    size_t at;        /* The first byte that is not yet parsed. */
    size_t left;      /* Arguments that are still missing. */
    size_t bulk;      /* Bytes of the current argument. */
    bool in_command;  /* The number of arguments is known. */
    bool in_bulk;     /* The length of the argument is known. */
    size_t count;     /* Arguments that were parsed. */
    size_t total;     /* Bytes of these arguments. */
    size_t words_max; /* Allocated length of spans and words. */
    struct span *spans;
    struct sl_bytes *words;
    const char *error;
};

/* --- Creating and freeing ------------------------------------------------- */

struct sl_resp_reader *sl_resp_reader_new(const struct sl_resp_limits *limits)
{
    struct sl_resp_reader *r = calloc(1, sizeof *r);
    if (r == NULL) return NULL;
    sl_resp_reader_limit(r, limits);
    return r;
}

void sl_resp_reader_limit(struct sl_resp_reader *r, const struct sl_resp_limits *limits)
{
    r->limits = *limits;
    if (r->limits.room_bytes == 0) r->limits.room_bytes = ROOM_BYTES;
}

void sl_resp_reader_free(struct sl_resp_reader *r)
{
    if (r == NULL) return;
    free(r->buffer);
    free(r->spans);
    free(r->words);
    free(r);
}

size_t sl_resp_reader_bytes(const struct sl_resp_reader *r)
{
    return sizeof *r + r->size + r->words_max * (sizeof *r->spans + sizeof *r->words);
}

size_t sl_resp_unread(const struct sl_resp_reader *r)
{
    return r->end - (r->in_command ? r->begin : r->at);
}

const char *sl_resp_error(const struct sl_resp_reader *r)
{
    return r->error;
}

/* --- Receiving bytes ------------------------------------------------------ */

/* Move the bytes of the current command to the front. */
static void compact(struct sl_resp_reader *r)
{
    if (r->begin == 0) return;
    memmove(r->buffer, r->buffer + r->begin, r->end - r->begin);
    for (size_t i = 0; i < r->count; i++) r->spans[i].at -= r->begin;
    r->at -= r->begin;
    r->end -= r->begin;
    r->begin = 0;
}

size_t sl_resp_room(struct sl_resp_reader *r, char **at)
{
    if (r->begin == r->end && r->count == 0) r->begin = r->end = r->at = 0;
    /* Read a large argument in as few pieces as possible. */
    size_t rest = r->in_bulk && r->at + r->bulk + 2 > r->end
                      ? r->at + r->bulk + 2 - r->end
                      : 0;
    size_t room = r->limits.room_bytes, want = rest > room ? rest : room;
    if (r->size - r->end < want) compact(r);
    if (r->size - r->end < room) {
        /* Double the buffer; do not trust the announced length. */
        size_t size = r->size > room ? r->size * 2 : room * 2;
        char *bigger = realloc(r->buffer, size);
        if (bigger == NULL) return 0;
        r->buffer = bigger;
        r->size = size;
    }
    *at = r->buffer + r->end;
    return r->size - r->end;
}

void sl_resp_filled(struct sl_resp_reader *r, size_t n)
{
    assert(n <= r->size - r->end);
    r->end += n;
}

/* --- Arguments ------------------------------------------------------------ */

static int fail(struct sl_resp_reader *r, int status, const char *error)
{
    r->error = error;
    return status;
}

static int too_many_words(struct sl_resp_reader *r)
{
    return fail(r, SLUICE_ETOOBIG,
                r->limits.before_auth
                    ? "protocol error: too many arguments before AUTH (auth-args-max)"
                    : "protocol error: too many arguments in a command (args-max)");
}

static int too_large(struct sl_resp_reader *r, const char *error)
{
    return fail(
        r, SLUICE_ETOOBIG,
        r->limits.before_auth
            ? "protocol error: the command is too long before AUTH (auth-bytes-max)"
            : error);
}

static int more_words(struct sl_resp_reader *r)
{
    size_t max = r->words_max == 0 ? ARGS_FIRST : 2 * r->words_max;
    struct span *spans = realloc(r->spans, max * sizeof *spans);
    if (spans == NULL) return fail(r, SLUICE_ENOMEM, "out of memory");
    r->spans = spans;
    struct sl_bytes *words = realloc(r->words, max * sizeof *words);
    if (words == NULL) return fail(r, SLUICE_ENOMEM, "out of memory");
    r->words = words;
    r->words_max = max;
    return 1;
}

static inline int add_word(struct sl_resp_reader *r, size_t at, size_t n)
{
    if (r->count == r->words_max) {
        int status = more_words(r);
        if (status != 1) return status;
    }
    r->spans[r->count++] = (struct span){.at = at, .n = n};
    r->total += n;
    if (r->total > r->limits.command_bytes_max)
        return too_large(r,
                         "protocol error: the command is too long (command-bytes-max)");
    return 1;
}

/* Find the end of the line that begins at r->at. Returns NONE if it has not arrived
 * yet. */
static size_t line_end(const struct sl_resp_reader *r)
{
    const char *nl = memchr(r->buffer + r->at, '\n', r->end - r->at);
    return nl == NULL ? NONE : (size_t)(nl - r->buffer);
}

/* Parse a line that consists of a type character and a number. Returns 1 and sets *out,
 * 0 if more bytes are needed, or an error. */
static __attribute__((noinline)) int read_long_number(struct sl_resp_reader *r,
                                                      const char *error, int64_t *out)
{
    const char *begin = r->buffer + r->at + 1, *end = r->buffer + r->end;
    const char *at = begin;
    int64_t n = 0;
    bool negative = at < end && *at == '-';
    if (negative) at++;
    const char *first = at;
    while (at < end && *at >= '0' && *at <= '9' && at - first < DIGITS_MAX)
        n = n * 10 + (*at++ - '0');
    bool digits = at > first;
    if (at < end && *at == '\r') at++;
    if (at >= end) return 0; /* Too short to be invalid. */
    if (*at != '\n' || !digits) return fail(r, SLUICE_EINVAL, error);
    *out = negative ? -n : n;
    r->at = (size_t)(at + 1 - r->buffer);
    return 1;
}

static bool is_digit(char c)
{
    return (unsigned char)(c - '0') <= 9;
}

/* Parse a type character and a number. Numbers of one or two digits, which are the most
 * common, take a fast path. */
static inline int read_number(struct sl_resp_reader *r, const char *error, int64_t *out)
{
    const char *at = r->buffer + r->at + 1;
    size_t n = r->end - r->at;
    if (n >= 5 && at[1] == '\r' && at[2] == '\n' && is_digit(at[0])) {
        *out = at[0] - '0';
        r->at += 4;
        return 1;
    }
    if (n >= 6 && at[2] == '\r' && at[3] == '\n' && is_digit(at[0]) &&
        is_digit(at[1])) {
        *out = (at[0] - '0') * 10 + (at[1] - '0');
        r->at += 5;
        return 1;
    }
    return read_long_number(r, error, out);
}

/* --- Commands as arrays ---------------------------------------------------- */

static int read_count(struct sl_resp_reader *r)
{
    int64_t n;
    int status = read_number(r, "protocol error: invalid multibulk length", &n);
    if (status != 1) return status;
    if (n > 0 && (uint64_t)n > r->limits.args_max) return too_many_words(r);
    r->left = n > 0 ? (size_t)n : 0; /* An empty or null array has no arguments. */
    r->in_command = true;
    return 1;
}

static int read_length(struct sl_resp_reader *r)
{
    int64_t n;
    if (r->at == r->end) return 0;
    if (r->buffer[r->at] != '$')
        return fail(r, SLUICE_EINVAL, "protocol error: expected '$'");
    int status = read_number(r, "protocol error: invalid bulk length", &n);
    if (status != 1) return status;
    if (n < 0) return fail(r, SLUICE_EINVAL, "protocol error: invalid bulk length");
    if ((uint64_t)n > r->limits.bulk_bytes_max)
        return too_large(
            r, "protocol error: an argument is too long (argument-bytes-max)");
    r->bulk = (size_t)n;
    r->in_bulk = true;
    return 1;
}

static int read_bulk(struct sl_resp_reader *r)
{
    if (r->end - r->at < r->bulk + 2) return 0;
    const char *close = r->buffer + r->at + r->bulk;
    if (close[0] != '\r' || close[1] != '\n')
        return fail(r, SLUICE_EINVAL,
                    "protocol error: an argument does not end with CRLF");
    int status = add_word(r, r->at, r->bulk);
    if (status != 1) return status;
    r->at += r->bulk + 2;
    r->in_bulk = false;
    r->left--;
    return 1;
}

/* Parse the next arguments, as long as they have arrived completely and have less than 100 bytes, like
 * most. Stops at an argument that is not like that, or not valid: read_length() and read_bulk() parse
 * it. The state is in local variables, which makes this fast. */
static void read_short_ones(struct sl_resp_reader *r)
{
    const char *at = r->buffer + r->at, *end = r->buffer + r->end;
    size_t count = r->count, total = r->total;
    size_t most = r->left < r->words_max - count ? count + r->left : r->words_max;
    while (count < most && end - at >= 6 && at[0] == '$' && is_digit(at[1])) {
        size_t n = (size_t)(at[1] - '0');
        const char *bulk = at + 4;
        if (is_digit(at[2])) {
            n = 10 * n + (size_t)(at[2] - '0');
            bulk++;
        }
        if (bulk[-2] != '\r' || bulk[-1] != '\n' || (size_t)(end - bulk) < n + 2 ||
            bulk[n] != '\r' || bulk[n + 1] != '\n' || n > r->limits.bulk_bytes_max ||
            total + n > r->limits.command_bytes_max)
            break;
        r->spans[count++] = (struct span){.at = (size_t)(bulk - r->buffer), .n = n};
        total += n;
        at = bulk + n + 2;
    }
    r->left -= count - r->count;
    r->count = count;
    r->total = total;
    r->at = (size_t)(at - r->buffer);
}

static int read_array(struct sl_resp_reader *r)
{
    int status = r->in_command ? 1 : read_count(r);
    while (status == 1 && r->left > 0) {
        if (!r->in_bulk) read_short_ones(r);
        if (r->left > 0) status = r->in_bulk ? read_bulk(r) : read_length(r);
    }
    return status;
}

/* --- Inline commands ------------------------------------------------------- */

static bool is_blank(char c)
{
    return c == ' ' || c == '\t' || c == '\r' || c == '\n' || c == '\0';
}

/* Decode one character in "double quotes" and store it in *c. Returns its length in the
 * input. */
static size_t unescape(const char *s, size_t n, char *c)
{
    *c = s[0];
    if (s[0] != '\\' || n < 2) return 1;
    if (s[1] == 'x' && n >= 4 && sl_hex_digit(s[2]) >= 0 && sl_hex_digit(s[3]) >= 0) {
        *c = (char)(sl_hex_digit(s[2]) << 4 | sl_hex_digit(s[3]));
        return 4;
    }
    switch (s[1]) {
        case 'n': *c = '\n'; break;
        case 'r': *c = '\r'; break;
        case 't': *c = '\t'; break;
        case 'b': *c = '\b'; break;
        case 'a': *c = '\a'; break;
        default: *c = s[1]; break;
    }
    return 2;
}

/* Parse one argument of a line, starting at `at`, and remove its quotes in place.
 * Returns the position of its end, or NONE if a quote is not closed. */
static size_t read_word(struct sl_resp_reader *r, size_t at, size_t end, size_t *n)
{
    char *line = r->buffer;
    size_t to = at, from = at;
    while (from < end && !is_blank(line[from])) {
        char quote = line[from];
        if (quote != '"' && quote != '\'') {
            line[to++] = line[from++];
            continue;
        }
        from++;
        for (;;) {
            if (from >= end) return NONE;
            if (line[from] == quote) break;
            char c = line[from];
            size_t step = 1;
            if (quote == '"') step = unescape(line + from, end - from, &c);
            else if (c == '\\' && from + 1 < end && line[from + 1] == '\'')
                c = '\'', step = 2;
            line[to++] = c;
            from += step;
        }
        from++;
        if (from < end && !is_blank(line[from])) return NONE;
    }
    *n = to - at;
    return from;
}

static int read_line(struct sl_resp_reader *r)
{
    size_t end = line_end(r), at = r->at;
    size_t so_far = (end == NONE ? r->end : end) - r->at;
    if (so_far > r->limits.inline_bytes_max)
        return too_large(
            r, "protocol error: the inline command is too long (command-bytes-max)");
    if (end == NONE) return 0;
    for (;;) {
        while (at < end && is_blank(r->buffer[at])) at++;
        if (at >= end) break;
        size_t n, next = read_word(r, at, end, &n);
        if (next == NONE)
            return fail(r, SLUICE_EINVAL,
                        "protocol error: unbalanced quotes in the command");
        if (r->count >= r->limits.args_max) return too_many_words(r);
        int status = add_word(r, at, n);
        if (status != 1) return status;
        at = next;
    }
    r->at = end + 1;
    return 1;
}

/* --- Commands --------------------------------------------------------------- */

/* Begin the next command, after the current one was returned. */
static void begin_next(struct sl_resp_reader *r)
{
    r->begin = r->at;
    r->in_command = false;
    r->count = 0;
    r->total = 0;
}

int sl_resp_next(struct sl_resp_reader *r, struct sl_args *out)
{
    if (r->error != NULL) return SLUICE_EINVAL;
    for (;;) {
        if (!r->in_command) begin_next(r);
        if (r->at == r->end) return 0;
        bool array = r->in_command || r->buffer[r->at] == '*';
        int status = array ? read_array(r) : read_line(r);
        if (status != 1) return status;
        r->in_command = false;
        if (r->count == 0) continue; /* An empty line, or an empty array. */
        for (size_t i = 0; i < r->count; i++)
            r->words[i] = (struct sl_bytes){r->buffer + r->spans[i].at, r->spans[i].n};
        *out = (struct sl_args){.at = r->words, .n = r->count};
        return 1;
    }
}
