/* text_file.h - a text in a folder that is replaced whole, with a checksum at its end.
 *
 *     sluice state 1                    what it is, and its format
 *     name value ...
 *     checksum 0123456789abcdef         XXH64 of all before
 *
 * It is written to a file beside it, which then takes its place: whoever reads finds the
 * old one or the new one. Nothing is relied on before both the file and its name are on
 * the disk. */
#ifndef SL_SERVER_DATA_TEXT_FILE_H
#define SL_SERVER_DATA_TEXT_FILE_H

#include "base/types.h"

/* Which file, and the first word and number in it. */
struct sl_textfile_kind {
    const char *name, *name_new; /* "state", and that of the one beside. */
    const char *magic;           /* "sluice state ". */
    int64_t format;
};

/* --- Writing --------------------------------------------------------------- */

struct sl_textfile_writer; /* Opaque. */

/* All the memory that writing needs, until the end; NULL when out of memory. */
struct sl_textfile_writer *sl_textfile_writer_new(void);

/* Begin; put; put it in the place of the old one. What goes wrong is told by the last: 0, or
 * an errno; then the old file stands, or the new one. */
void sl_textfile_begin(struct sl_textfile_writer *w, int folder,
                       const struct sl_textfile_kind *kind);
__attribute__((format(printf, 2, 3))) void sl_textfile_put(struct sl_textfile_writer *w,
                                                           const char *format, ...);
#define SL_TEXT_PUT_BYTES 400 /* At most that many in one call. */
void sl_textfile_put_hex(struct sl_textfile_writer *w,
                         struct sl_bytes b); /* " -": none. */
void sl_textfile_fail(struct sl_textfile_writer *w, int error);
int sl_textfile_commit(struct sl_textfile_writer *w);

/* --- Reading --------------------------------------------------------------- */

enum sl_found {
    SL_FOUND,
    SL_FOUND_NOTHING,    /* There is no such file. */
    SL_FOUND_UNREADABLE, /* errno says why. */
    SL_FOUND_FOREIGN,    /* It is none of ours. */
    SL_FOUND_VERSION,    /* Of another format. */
    SL_FOUND_CUT,        /* Its end is missing. */
    SL_FOUND_DAMAGED,    /* Its checksum is not that of its text. */
    SL_FOUND_NONSENSE,   /* It is as it was written, and cannot be. */
};

struct sl_textfile_reader {
    char *text;
    size_t n; /* Without the checksum. */
    char *at; /* What comes next. */
};

/* Check all of it, and stand behind its first line. After SL_FOUND, sl_textfile_close() is
 * due. */
enum sl_found sl_textfile_open(struct sl_textfile_reader *r, int folder,
                               const struct sl_textfile_kind *kind);
void sl_textfile_close(struct sl_textfile_reader *r);

/* What is to stand here stands here, and is passed. False, as in those below: it does not. */
bool sl_textfile_skip(struct sl_textfile_reader *r, const char *word);

/* A number and the character behind it. */
bool sl_textfile_number(struct sl_textfile_reader *r, int64_t min, int64_t max,
                        char end, int64_t *out);

/* A name, and a number from 0 that ends the line. */
bool sl_textfile_field(struct sl_textfile_reader *r, const char *name, int64_t max,
                       int64_t *out);

/* 16 digits of hex and the character behind. */
bool sl_textfile_word64(struct sl_textfile_reader *r, char end, uint64_t *out);

/* The rest of the line, less than n bytes of it, without its end. */
bool sl_textfile_rest(struct sl_textfile_reader *r, char *out, size_t n);

/* Bytes in hex, as they were put; borrowed until the end. */
bool sl_textfile_hex(struct sl_textfile_reader *r, char end, struct sl_bytes *out);

bool sl_textfile_at_end(const struct sl_textfile_reader *r);

#endif /* SL_SERVER_DATA_TEXT_FILE_H */
