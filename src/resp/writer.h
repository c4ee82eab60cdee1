/* writer.h - formats replies as bytes, for RESP2 and RESP3, without a socket.
 *
 * A writer is a buffer that grows up to a limit. Above the limit, or without memory, it is
 * *spilt*: it drops all further bytes, and its owner closes the connection, since a part of a
 * reply is worse than none. So no function here returns a status. */
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

/* Gives the buffer, which the caller must free; the writer is empty then. */
char *sl_resp_take(struct sl_resp_writer *w, size_t *n);

void sl_resp_simple(struct sl_resp_writer *w, const char *text);
/* "-WORD text". The text may come from a client, so line breaks become blanks. */
void sl_resp_problem(struct sl_resp_writer *w, const char *word, const char *text);
void sl_resp_integer(struct sl_resp_writer *w, int64_t n);
void sl_resp_bulk(struct sl_resp_writer *w, struct sl_bytes b);
void sl_resp_text(struct sl_resp_writer *w, const char *text); /* As a bulk. */
void sl_resp_null(struct sl_resp_writer *w);       /* Instead of a string. */
void sl_resp_null_array(struct sl_resp_writer *w); /* Instead of an array. */
void sl_resp_array(struct sl_resp_writer *w, size_t n);
void sl_resp_map(struct sl_resp_writer *w, size_t pairs);
void sl_resp_push(struct sl_resp_writer *w, size_t n);
void sl_resp_raw(struct sl_resp_writer *w, const char *at, size_t n);

#endif /* SL_RESP_WRITER_H */
