/* text_file.h - a text file that is replaced as a whole, with a checksum at its end.
 *
 *     sluice state 1                    its kind and its format
 *     name value ...
 *     checksum 0123456789abcdef         XXH64 of all before
 *
 * The writer writes a second file and renames it, so a reader finds the old file or the new one.
 * sl_textfile_commit() returns when both the file and its name are on the disk. */
#ifndef SL_SERVER_DATA_TEXT_FILE_H
#define SL_SERVER_DATA_TEXT_FILE_H

#include "base/types.h"

/* The name of the file, and its first line. */
struct sl_textfile_kind {
    const char *name, *name_new; /* "state", and "state.new" while it is written. */
    const char *magic;           /* "sluice state ". */
    int64_t format_oldest,
        format; /* It reads formats from the oldest on, and writes the last. */
};

/* --- Writing --------------------------------------------------------------- */

struct sl_textfile_writer; /* Opaque. */

/* With all the memory that writing needs. NULL: out of memory. */
struct sl_textfile_writer *sl_textfile_writer_new(void);

/* Begin a file, add text, and replace the old file. sl_textfile_commit() returns 0, or the errno of
 * the first failure; then the old file or the new one is there. */
void sl_textfile_begin(struct sl_textfile_writer *w, int directory,
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
    SL_FOUND_FOREIGN,    /* Another program wrote it. */
    SL_FOUND_VERSION,    /* It has another format. */
    SL_FOUND_CUT,        /* Its end is missing. */
    SL_FOUND_DAMAGED,    /* Its checksum is wrong. */
    SL_FOUND_NONSENSE,   /* Its checksum is right, and its values are invalid. */
};

struct sl_textfile_reader {
    char *text;
    size_t n; /* Without the checksum. */
    char *at; /* The next byte. */
};

/* Check the whole file, and go to its second line. After SL_FOUND, call sl_textfile_close(). */
enum sl_found sl_textfile_open(struct sl_textfile_reader *r, int directory,
                               const struct sl_textfile_kind *kind);
void sl_textfile_close(struct sl_textfile_reader *r);

/* Each of these reads one thing and moves past it. False: the text is different. */

/* This text. */
bool sl_textfile_skip(struct sl_textfile_reader *r, const char *word);

/* A number and the character after it. */
bool sl_textfile_number(struct sl_textfile_reader *r, int64_t min, int64_t max,
                        char end, int64_t *out);

/* A name and a number from 0 to max, up to the end of the line. */
bool sl_textfile_field(struct sl_textfile_reader *r, const char *name, int64_t max,
                       int64_t *out);

/* 16 hexadecimal digits and the character behind them. */
bool sl_textfile_word64(struct sl_textfile_reader *r, char end, uint64_t *out);

/* The rest of the line, if it has less than n bytes. */
bool sl_textfile_rest(struct sl_textfile_reader *r, char *out, size_t n);

/* Bytes that sl_textfile_put_hex() wrote; borrowed until sl_textfile_close(). */
bool sl_textfile_hex(struct sl_textfile_reader *r, char end, struct sl_bytes *out);

bool sl_textfile_at_end(const struct sl_textfile_reader *r);

#endif /* SL_SERVER_DATA_TEXT_FILE_H */
