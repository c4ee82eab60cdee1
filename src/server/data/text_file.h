/* text_file.h - a text file that is replaced as a whole, with a checksum at its end.
 *
 *     sluice state 1                    the kind of file and the version of its format
 *     name value ...
 *     checksum 0123456789abcdef         XXH64 of all preceding bytes
 *
 * The writer writes a second file and renames it, so a reader always finds a complete file, the
 * old or the new one. sl_textfile_commit() returns when both the file and its name are on the
 * disk. */
#ifndef SL_SERVER_DATA_TEXT_FILE_H
#define SL_SERVER_DATA_TEXT_FILE_H

#include "base/types.h"

/* The name of the file, and its first line. */
struct sl_textfile_kind {
    /* "state", and "state.new" while it is being written. */
    const char *name, *name_new;
    const char *magic; /* "sluice state ". */
    int64_t format_oldest,
        format; /* The oldest format that can be read, and the one that is written. */
};

/* --- Writing --------------------------------------------------------------- */

struct sl_textfile_writer; /* Opaque. */

/* Create a writer, with all the memory that it will need. Returns NULL if out of memory. */
struct sl_textfile_writer *sl_textfile_writer_new(void);

/* Begin a file, add text to it, and replace the old file with it. sl_textfile_commit() returns 0,
 * or the errno of the first failure; then either the old file or the new one exists. */
void sl_textfile_begin(struct sl_textfile_writer *w, int directory,
                       const struct sl_textfile_kind *kind);
__attribute__((format(printf, 2, 3))) void sl_textfile_put(struct sl_textfile_writer *w,
                                                           const char *format, ...);
#define SL_TEXT_PUT_BYTES 400 /* The maximum length of one call's text. */
void sl_textfile_put_hex(struct sl_textfile_writer *w,
                         struct sl_bytes b); /* Writes " -" if b is empty. */
void sl_textfile_fail(struct sl_textfile_writer *w, int error);
int sl_textfile_commit(struct sl_textfile_writer *w);

/* --- Reading --------------------------------------------------------------- */

enum sl_found {
    SL_FOUND,
    SL_FOUND_NOTHING,    /* The file does not exist. */
    SL_FOUND_UNREADABLE, /* errno says why. */
    SL_FOUND_FOREIGN,    /* Another program wrote the file. */
    SL_FOUND_VERSION,    /* The version of its format is not supported. */
    SL_FOUND_CUT,        /* The file is truncated. */
    SL_FOUND_DAMAGED,    /* Its checksum is wrong. */
    SL_FOUND_NONSENSE,   /* Its checksum is correct, but its values are invalid. */
};

struct sl_textfile_reader {
    char *text;
    size_t n; /* The length of the text without the checksum line. */
    char *at; /* The next byte to read. */
    int64_t format;
};

/* Check the whole file, and move to its second line. After SL_FOUND, call sl_textfile_close(). */
enum sl_found sl_textfile_open(struct sl_textfile_reader *r, int directory,
                               const struct sl_textfile_kind *kind);
void sl_textfile_close(struct sl_textfile_reader *r);

/* Each of these functions reads one item and moves past it. Returns false if the text does not
 * match. */

/* Read exactly this text. */
bool sl_textfile_skip(struct sl_textfile_reader *r, const char *word);

/* Read a number from min to max, followed by the character `end`. */
bool sl_textfile_number(struct sl_textfile_reader *r, int64_t min, int64_t max,
                        char end, int64_t *out);

/* Read a line that consists of this name and a number from 0 to max. */
bool sl_textfile_field(struct sl_textfile_reader *r, const char *name, int64_t max,
                       int64_t *out);

/* Read 16 hexadecimal digits, followed by the character `end`. */
bool sl_textfile_word64(struct sl_textfile_reader *r, char end, uint64_t *out);

/* Read the rest of the line, which must have fewer than n bytes. */
bool sl_textfile_rest(struct sl_textfile_reader *r, char *out, size_t n);

/* Read bytes that sl_textfile_put_hex() wrote. They are borrowed until sl_textfile_close(). */
bool sl_textfile_hex(struct sl_textfile_reader *r, char end, struct sl_bytes *out);

bool sl_textfile_at_end(const struct sl_textfile_reader *r);

#endif /* SL_SERVER_DATA_TEXT_FILE_H */
