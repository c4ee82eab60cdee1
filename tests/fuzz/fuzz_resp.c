/* fuzz_resp.c - any bytes, cut at any place, are the same commands as in one piece.
 *
 * The first byte chooses the limits and the second how the rest is cut. Beyond that it
 * asserts that the limits hold, that what the reader keeps is bounded by them and by what
 * came, and that a command which the writer writes down again is read as the same. */
#include <stdlib.h>
#include <string.h>

#include "fuzz.h"

#include "resp/reader.h"
#include "resp/writer.h"
#include "sluice.h"

static const struct sl_resp_limits all_limits[] = {
    {.args_max = 4,
     .bulk_bytes_max = 20,
     .command_bytes_max = 40,
     .inline_bytes_max = 20},
    {.args_max = 64,
     .bulk_bytes_max = 300,
     .command_bytes_max = 1000,
     .inline_bytes_max = 500},
    {.args_max = 1000,
     .bulk_bytes_max = 1 << 30,
     .command_bytes_max = 1 << 30,
     .inline_bytes_max = 1 << 16},
};

/* All that was heard: every word with its length, every command with its end. */
struct heard {
    char *at;
    size_t n, size;
    size_t commands, unread;
    int status;
    const char *error;
};

static void note(struct heard *h, const void *at, size_t n)
{
    if (h->size - h->n < n) {
        h->size = 2 * (h->size + n);
        h->at = realloc(h->at, h->size);
        must(h->at != NULL);
    }
    if (n > 0) memcpy(h->at + h->n, at, n);
    h->n += n;
}

static void note_command(struct heard *h, const struct sl_args *args)
{
    note(h, &args->n, sizeof args->n);
    for (size_t i = 0; i < args->n; i++) {
        note(h, &args->at[i].n, sizeof args->at[i].n);
        note(h, args->at[i].at, args->at[i].n);
    }
    h->commands++;
}

static void check_limits(const struct sl_resp_limits *m, const struct sl_args *args)
{
    size_t total = 0;
    must(args->n > 0 && args->n <= m->args_max);
    for (size_t i = 0; i < args->n; i++) {
        size_t most = m->bulk_bytes_max > m->inline_bytes_max ? m->bulk_bytes_max
                                                              : m->inline_bytes_max;
        must(args->at[i].n <= most);
        total += args->at[i].n;
    }
    must(total <= m->command_bytes_max);
}

/* What a reader may keep: twice what it needs for the largest command, and no more than
 * a few times of what came. Here every command is taken as soon as it is there. */
static void check_memory(const struct sl_resp_limits *m, const struct sl_resp_reader *r,
                         size_t came)
{
    const size_t word = 32, frame = 32, least = 3 * 4096;
    size_t largest = m->command_bytes_max + m->bulk_bytes_max + m->inline_bytes_max +
                     (m->args_max + 1) * frame;
    size_t kept = sl_resp_reader_bytes(r);
    must(kept <= 1024 + 2 * (largest + least) + 2 * (m->args_max + 16) * word);
    must(kept <= 1024 + 2 * (came + least) + 2 * (came + 16) * word);
}

/* How long the next piece is: 0 stands for all that is left. */
static size_t next_piece(uint32_t *cuts, size_t left)
{
    if (*cuts == 0) return left;
    *cuts = *cuts * 1664525u + 1013904223u;
    size_t piece = 1 + (*cuts >> 24) % (*cuts & 0x10000u ? 3 : 40);
    return piece < left ? piece : left;
}

static void read_all(const struct sl_resp_limits *m, const char *bytes, size_t n,
                     uint32_t cuts, struct heard *out)
{
    struct sl_resp_reader *r = sl_resp_reader_new(m);
    struct sl_args args;
    *out = (struct heard){0};
    for (size_t at = 0; at < n && out->status == 0;) {
        char *to;
        size_t room = sl_resp_room(r, &to), piece = next_piece(&cuts, n - at);
        must(room > 0);
        if (piece > room) piece = room;
        memcpy(to, bytes + at, piece);
        sl_resp_filled(r, piece);
        at += piece;
        while ((out->status = sl_resp_next(r, &args)) == 1) {
            check_limits(m, &args);
            note_command(out, &args);
        }
        check_memory(m, r, at);
    }
    out->unread = sl_resp_unread(r);
    must(out->unread <= n);
    out->error = sl_resp_error(r);
    if (out->status != 0) {
        must(out->error != NULL);
        must(sl_resp_next(r, &args) == SLUICE_EINVAL); /* It stays broken. */
    }
    sl_resp_reader_free(r);
}

static void same(const struct heard *a, const struct heard *b)
{
    must(a->commands == b->commands && a->status == b->status);
    must(a->n == b->n && (a->n == 0 || memcmp(a->at, b->at, a->n) == 0));
}

/* The same commands, as the writer writes them. */
static void write_all(const struct heard *h, struct sl_resp_writer *w)
{
    for (size_t at = 0; at < h->n;) {
        size_t words, n;
        memcpy(&words, h->at + at, sizeof words);
        at += sizeof words;
        sl_resp_array(w, words);
        while (words-- > 0) {
            memcpy(&n, h->at + at, sizeof n);
            at += sizeof n;
            sl_resp_bulk(w, (struct sl_bytes){h->at + at, n});
            at += n;
        }
    }
}

static void round_trip(const struct sl_resp_limits *m, const struct heard *h)
{
    struct sl_resp_limits wide = *m; /* A typed word may be longer than a sent one. */
    if (wide.bulk_bytes_max < m->inline_bytes_max)
        wide.bulk_bytes_max = m->inline_bytes_max;
    struct sl_resp_writer w;
    struct heard again;
    sl_resp_writer_init(&w, 1 << 24);
    write_all(h, &w);
    must(!w.spilt);
    read_all(&wide, w.buffer, w.n, 0, &again);
    must(again.status == 0 && again.commands == h->commands && again.unread == 0);
    must(again.n == h->n && (h->n == 0 || memcmp(again.at, h->at, h->n) == 0));
    free(again.at);
    sl_resp_writer_free(&w);
}

/* A problem is one line whatever is in it, and a writer keeps to its limit. */
static void check_problem(const char *bytes, size_t n)
{
    char text[64];
    struct sl_resp_writer w;
    if (n >= sizeof text) n = sizeof text - 1;
    memcpy(text, bytes, n);
    text[n] = '\0';
    sl_resp_writer_init(&w, 40);
    sl_resp_problem(&w, "ERR", text);
    must(w.n <= 40 && w.spilt == (strlen(text) + 7 > 40));
    if (!w.spilt) must(memchr(w.buffer, '\n', w.n) == w.buffer + w.n - 1);
    if (!w.spilt) must(memchr(w.buffer, '\r', w.n) == w.buffer + w.n - 2);
    sl_resp_writer_free(&w);
}

/* Numbers of every length are written as printf() writes them. */
static void check_integer(const char *bytes, size_t n)
{
    int64_t number = 0;
    char wanted[32];
    struct sl_resp_writer w;
    memcpy(&number, bytes, n < sizeof number ? n : sizeof number);
    for (;; number /= 10) {
        int length = snprintf(wanted, sizeof wanted, ":%lld\r\n", (long long)number);
        sl_resp_writer_init(&w, 100);
        sl_resp_integer(&w, number);
        must(w.n == (size_t)length && memcmp(w.buffer, wanted, w.n) == 0);
        sl_resp_writer_free(&w);
        if (number == 0) return;
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    if (n < 2) return 0;
    const struct sl_resp_limits *m =
        &all_limits[data[0] % (sizeof all_limits / sizeof *all_limits)];
    const char *bytes = (const char *)data + 2;
    struct heard whole, cut;
    read_all(m, bytes, n - 2, 0, &whole);
    read_all(m, bytes, n - 2, 1 + data[1], &cut);
    same(&whole, &cut);
    must(whole.error == cut.error); /* The same words, of the same place. */
    if (whole.status == 0) must(whole.unread == cut.unread);
    round_trip(m, &whole);
    check_problem(bytes, n - 2);
    check_integer(bytes, n - 2);
    free(whole.at);
    free(cut.at);
    return 0;
}
