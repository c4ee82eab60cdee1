/* reply.h - parses the replies of a server. It does not read from a socket itself.
 *
 *     struct sl_client_reply_scan scan = {0};
 *     while ((whole = sl_client_reply_scan(&scan, data, n)) == 0) n += more(data + n);
 *     if (whole == 1) sl_client_reply_build(data, &scan, &reply);   // uses scan.at bytes
 *
 * The scan finds out whether the reply is complete. sl_client_reply_build() then builds
 * the tree in one block of memory. Input may be split anywhere: the scan continues
 * where it stopped and examines each byte once. The memory that a peer can make us
 * allocate is limited: an announced length allocates nothing until its bytes have
 * arrived. */
#ifndef SL_CLIENT_REPLY_H
#define SL_CLIENT_REPLY_H

#include <stddef.h>

#include "sluice.h"

#define SL_CLIENT_REPLY_DEPTH_MAX 16u         /* Depth of nested lists. */
#define SL_CLIENT_REPLY_ITEMS_MAX (1u << 20)  /* Values in a reply. */
#define SL_CLIENT_REPLY_BYTES_MAX (64u << 20) /* Bytes of a reply, as received. */
#define SL_CLIENT_REPLY_LINE_MAX (64u << 10)  /* Bytes in a line. */

/* The progress of a scan. Initialize it with zeros. */
struct sl_client_reply_scan {
    size_t at;         /* Bytes scanned; at the end, the bytes of the reply. */
    size_t searched;   /* Bytes up to here contain no further end of line. */
    size_t items;      /* Values received or announced. */
    size_t text_bytes; /* Memory for their texts, each with a NUL. */
    size_t depth;
    /* Values still to come in each open list. */
    size_t left[SL_CLIENT_REPLY_DEPTH_MAX];
};

/* Scan more bytes. Returns 1 if the reply is complete, 0 if bytes are missing, or
 * SLUICE_EPROTOCOL if the data is not a reply or exceeds a limit. In each call, `data`
 * must begin at the start of the reply. */
int sl_client_reply_scan(struct sl_client_reply_scan *s, const char *data, size_t n);

/* Build the tree of a complete reply and store it in *out; free it with
 * sluice_reply_free(). Returns SLUICE_OK or SLUICE_ENOMEM. */
int sl_client_reply_build(const char *data, const struct sl_client_reply_scan *s,
                          struct sluice_reply **out);

#endif /* SL_CLIENT_REPLY_H */
