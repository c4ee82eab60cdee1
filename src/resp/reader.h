/* reader.h - commands out of bytes, without a socket.
 *
 *     char *at;
 *     size_t n = sl_resp_room(r, &at);         // where to read to
 *     sl_resp_filled(r, read(fd, at, n));
 *     while ((status = sl_resp_next(r, &args)) == 1) handle(&args);
 *
 * What came may be cut anywhere: a command is looked at once, not from its beginning with
 * every byte. Inline commands (words on a line) are taken too, as people type them. What a
 * peer can make us keep is bounded by the limits, and grows only with what it has sent:
 * an announced length is believed when the bytes are there. */
#ifndef SL_RESP_READER_H
#define SL_RESP_READER_H

#include "base/types.h"

struct sl_resp_limits {
    size_t args_max;          /* Words of a command. */
    size_t bulk_bytes_max;    /* Of one word. */
    size_t command_bytes_max; /* Of all of them together. */
    size_t inline_bytes_max;  /* Of a line. */
    size_t room_bytes;        /* Of one read; 0: 4096. */
    bool before_auth;         /* The errors name the limits that hold before AUTH. */
};

/* A command: borrowed until the next call on its reader. */
struct sl_args {
    struct sl_bytes *at;
    size_t n;
};

struct sl_resp_reader; /* Opaque. */

/* Copies limits. NULL when out of memory. */
struct sl_resp_reader *sl_resp_reader_new(const struct sl_resp_limits *limits);
void sl_resp_reader_free(struct sl_resp_reader *r); /* NULL is allowed. */

/* Other limits from the next command on. Copies. */
void sl_resp_reader_limit(struct sl_resp_reader *r,
                          const struct sl_resp_limits *limits);

/* Room for more bytes: where, and how many; 0 when out of memory. */
size_t sl_resp_room(struct sl_resp_reader *r, char **at);

/* So many bytes were put there. */
void sl_resp_filled(struct sl_resp_reader *r, size_t n);

/* 1: *out is the next whole command (never empty). 0: more bytes are needed.
 * SLUICE_EINVAL: the stream is broken, sl_resp_error() says how; SLUICE_ETOOBIG: a limit;
 * SLUICE_ENOMEM. After one of these the connection is of no use. */
int sl_resp_next(struct sl_resp_reader *r, struct sl_args *out);

/* Bytes that came and are not yet part of a command that was handed out. 0: the reader is
 * as good as new, and may serve another stream. */
size_t sl_resp_unread(const struct sl_resp_reader *r);

/* What was wrong, for the peer. */
const char *sl_resp_error(const struct sl_resp_reader *r);

/* Bytes that it keeps. */
size_t sl_resp_reader_bytes(const struct sl_resp_reader *r);

#endif /* SL_RESP_READER_H */
