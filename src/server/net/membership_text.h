/* membership_text.h - addresses of nodes and memberships as text: "1=a:5627,2=[::1]:5627".
 *
 * The setting `peers` and the messages between nodes use this form. */
#ifndef SL_SERVER_NET_MEMBERSHIP_TEXT_H
#define SL_SERVER_NET_MEMBERSHIP_TEXT_H

#include "majority/message.h"

/* The maximum size of a membership as text. */
#define SL_MEMBERS_TEXT (SL_NODES_MAX * (SL_ADDRESS_BYTES + 8))

/* Check that an address is "host:port" or "[address]:port". Returns NULL if so, otherwise the
 * error. */
const char *sl_address_wrong(struct sl_bytes address);

/* Split a valid address into host and port. */
void sl_address_split(const char *address, char host[SL_ADDRESS_BYTES], char port[8]);

/* Parse a membership, and sort it by id. Does not set version and added. Returns NULL, or an error;
 * then *where is the invalid part of the text. */
const char *sl_membership_read(struct sl_membership *out, struct sl_bytes text,
                               struct sl_bytes *where);

/* Write a membership as text. Returns its length without the terminating zero. */
size_t sl_membership_write(const struct sl_membership *list, char out[SL_MEMBERS_TEXT]);

#endif /* SL_SERVER_NET_MEMBERSHIP_TEXT_H */
