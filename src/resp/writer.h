/* writer.h - formats replies as bytes, for RESP2 and RESP3. It does not write to a
 * socket itself.
 *
 * A writer is a buffer that grows up to a limit. If a reply exceeds the limit, or if
 * memory runs out, the writer is *spilt*: it drops all further bytes, and its owner
 * closes the connection, because a partial reply is worse than none. So these functions
 * need not return a status. */
#ifndef SL_RESP_WRITER_H
#define SL_RESP_WRITER_H

#include "base/types.h"

struct sl_resp_writer {
    char *buffer;
    size_t n, size, bytes_max;
    bool resp3;
    bool spilt;
};

void sl_resp_writer_init(struct sl_resp_writer *w, size_t bytes_max);
void sl_resp_writer_free(struct sl_resp_writer *w);

/* Take the buffer out of the writer, which is then empty. The caller frees the
 * buffer. */
char *sl_resp_take(struct sl_resp_writer *w, size_t *n);

void sl_resp_simple(struct sl_resp_writer *w, const char *text);
/* Write an error, "-WORD text". The text may contain input from a client, so line
 * breaks become spaces. */
void sl_resp_problem(struct sl_resp_writer *w, const char *word, const char *text);
void sl_resp_integer(struct sl_resp_writer *w, int64_t n);
void sl_resp_bulk(struct sl_resp_writer *w, struct sl_bytes b);
void sl_resp_text(struct sl_resp_writer *w, const char *text); /* As a bulk string. */
void sl_resp_decimal(struct sl_resp_writer *w, int64_t n);     /* As a bulk string. */
void sl_resp_null(struct sl_resp_writer *w);       /* Instead of a string. */
void sl_resp_null_array(struct sl_resp_writer *w); /* Instead of an array. */
void sl_resp_array(struct sl_resp_writer *w, size_t n);
void sl_resp_map(struct sl_resp_writer *w, size_t pairs);
void sl_resp_push(struct sl_resp_writer *w, size_t n);
void sl_resp_raw(struct sl_resp_writer *w, const char *at, size_t n);

#endif /* SL_RESP_WRITER_H */
