/* reader.h - parses bytes into commands, without a socket.
 *
 *     char *at;
 *     size_t n = sl_resp_room(r, &at);         // where to read to
 *     sl_resp_filled(r, read(fd, at, n));
 *     while ((status = sl_resp_next(r, &args)) == 1) handle(&args);
 *
 * Input may be cut anywhere: the reader parses each byte once, not from the beginning for
 * every piece. It also accepts inline commands, which people type on a line. The limits bound
 * the memory that a peer can make us use. That memory grows only with the bytes that have
 * arrived: an announced length costs nothing. */
#ifndef SL_RESP_READER_H
#define SL_RESP_READER_H

#include "base/types.h"

struct sl_resp_limits {
    size_t args_max;          /* Arguments of a command, with its name. */
    size_t bulk_bytes_max;    /* Of one argument. */
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

/* Set the limits from the next command on. Copies limits. */
void sl_resp_reader_limit(struct sl_resp_reader *r,
                          const struct sl_resp_limits *limits);

/* Where the caller may put more bytes. Returns how many; 0 when out of memory. */
size_t sl_resp_room(struct sl_resp_reader *r, char **at);

/* The caller has put n bytes there. */
void sl_resp_filled(struct sl_resp_reader *r, size_t n);

/* 1: *out is the next whole command (never empty). 0: more bytes are needed.
 * SLUICE_EINVAL: the stream is broken, sl_resp_error() says how; SLUICE_ETOOBIG: a limit;
 * SLUICE_ENOMEM. After an error the connection cannot be used. */
int sl_resp_next(struct sl_resp_reader *r, struct sl_args *out);

/* Bytes that have arrived and belong to no command that was returned. 0: the reader can be
 * used for another stream. */
size_t sl_resp_unread(const struct sl_resp_reader *r);

/* The error message for the peer. */
const char *sl_resp_error(const struct sl_resp_reader *r);

/* Bytes of memory that the reader uses. */
size_t sl_resp_reader_bytes(const struct sl_resp_reader *r);

#endif /* SL_RESP_READER_H */
