/* reply.h - replies of a server out of bytes, without a socket.
 *
 *     struct sl_client_reply_scan scan = {0};
 *     while ((whole = sl_client_reply_scan(&scan, data, n)) == 0) n += more(data + n);
 *     if (whole == 1) sl_client_reply_build(data, &scan, &reply);   // scan.at bytes are used up
 *
 * First it is seen whether all of it is there, then the tree is built in one piece of
 * memory. What came may be cut anywhere: a byte is looked at once, not from the beginning
 * with every piece. What a peer can make us take is bounded: an announced length costs
 * nothing until its bytes are there. */
#ifndef SL_CLIENT_REPLY_H
#define SL_CLIENT_REPLY_H

#include <stddef.h>

#include "sluice.h"

#define SL_CLIENT_REPLY_DEPTH_MAX 16u         /* Lists in lists. */
#define SL_CLIENT_REPLY_ITEMS_MAX (1u << 20)  /* Values in all. */
#define SL_CLIENT_REPLY_BYTES_MAX (64u << 20) /* Bytes in all, as they come. */
#define SL_CLIENT_REPLY_LINE_MAX (64u << 10)  /* Bytes of a line. */

/* How far the look at a reply has come. All zero is the beginning. */
struct sl_client_reply_scan {
    size_t at;         /* Bytes that were looked at; at the end, those of the reply. */
    size_t looked;     /* Behind these, bytes without an end of line. */
    size_t items;      /* Values that it has, or has announced. */
    size_t text_bytes; /* What their texts take, each with a NUL. */
    size_t depth;
    size_t left[SL_CLIENT_REPLY_DEPTH_MAX]; /* Values to come, of each open list. */
};

/* 1: the reply is whole. 0: bytes are missing. SLUICE_EPROTOCOL: this is no reply, or one
 * beyond the limits. `data` begins where the reply does, in each call. */
int sl_client_reply_scan(struct sl_client_reply_scan *s, const char *data, size_t n);

/* The tree of a whole reply. Gives *out, to be freed by sluice_reply_free(). ENOMEM. */
int sl_client_reply_build(const char *data, const struct sl_client_reply_scan *s,
                          struct sluice_reply **out);

#endif /* SL_CLIENT_REPLY_H */
