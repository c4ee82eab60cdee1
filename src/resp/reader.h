/* reader.h - parses bytes into commands. It does not read from a socket itself.
 *
 *     char *at;
 *     size_t n = sl_resp_room(r, &at);         // where to read to
 *     sl_resp_filled(r, read(fd, at, n));
 *     while ((status = sl_resp_next(r, &args)) == 1) handle(&args);
 *
 * Input may be split anywhere: the reader continues where it stopped and parses each
 * byte once. It also accepts inline commands, which people type as a line of text. The
 * limits bound the memory that a peer can make us allocate. Memory grows only with the
 * bytes that have arrived: an announced length allocates nothing. */
#ifndef SL_RESP_READER_H
#define SL_RESP_READER_H

#include "base/types.h"

struct sl_resp_limits {
    size_t args_max;          /* Arguments of a command, including its name. */
    size_t bulk_bytes_max;    /* Bytes of one argument. */
    size_t command_bytes_max; /* Bytes of all arguments together. */
    size_t inline_bytes_max;  /* Bytes of an inline command. */
    size_t room_bytes;        /* Free bytes for one read; 0: 4096. */
    bool before_auth; /* Error messages name the limits that apply before AUTH. */
};

/* A command. Valid until the next call on its reader. */
struct sl_args {
    struct sl_bytes *at;
    size_t n;
};

struct sl_resp_reader; /* Opaque. */

/* Create a reader. Copies `limits`. Returns NULL if out of memory. */
struct sl_resp_reader *sl_resp_reader_new(const struct sl_resp_limits *limits);
void sl_resp_reader_free(struct sl_resp_reader *r); /* NULL is allowed. */

/* Change the limits, starting with the next command. Copies `limits`. */
void sl_resp_reader_limit(struct sl_resp_reader *r,
                          const struct sl_resp_limits *limits);

/* Set *at to the place where the caller may put more bytes. Returns the number of free
 * bytes there, or 0 if out of memory. */
size_t sl_resp_room(struct sl_resp_reader *r, char **at);

/* Tell the reader that the caller has put n bytes there. */
void sl_resp_filled(struct sl_resp_reader *r, size_t n);

/* Parse the next command. Returns 1 and sets *out to a complete command, which is never
 * empty; or 0 if more bytes are needed. Returns SLUICE_EINVAL if the stream is invalid,
 * SLUICE_ETOOBIG if a limit is exceeded, or SLUICE_ENOMEM; sl_resp_error() then returns
 * the message. After an error the connection cannot be used any more. */
int sl_resp_next(struct sl_resp_reader *r, struct sl_args *out);

/* Return the number of bytes that have arrived but do not belong to a returned command.
 * If it is 0, the reader can be used for another stream. */
size_t sl_resp_unread(const struct sl_resp_reader *r);

/* Return the error message for the peer. */
const char *sl_resp_error(const struct sl_resp_reader *r);

/* Return how many bytes of memory the reader uses. */
size_t sl_resp_reader_bytes(const struct sl_resp_reader *r);

#endif /* SL_RESP_READER_H */
