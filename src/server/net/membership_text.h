/* membership_text.h - addresses of nodes and memberships as text: "1=a:5627,2=[::1]:5627".
 *
 * The setting `peers` and the messages of nodes have this form. */
#ifndef SL_SERVER_NET_MEMBERSHIP_TEXT_H
#define SL_SERVER_NET_MEMBERSHIP_TEXT_H

#include "majority/message.h"

/* The size of a membership as text. */
#define SL_MEMBERS_TEXT (SL_NODES_MAX * (SL_ADDRESS_BYTES + 8))

/* NULL: it is "host:port" or "[address]:port". Otherwise the reason why not. */
const char *sl_address_wrong(struct sl_bytes address);

/* The two parts of a valid address. */
void sl_address_split(const char *address, char host[SL_ADDRESS_BYTES], char port[8]);

/* NULL: *out is the list, by id, with neither version nor added. Else what is wrong, and
 * *where, in the text. */
const char *sl_membership_read(struct sl_membership *out, struct sl_bytes text,
                               struct sl_bytes *where);

/* Returns its length, without the end. */
size_t sl_membership_write(const struct sl_membership *list, char out[SL_MEMBERS_TEXT]);

#endif /* SL_SERVER_NET_MEMBERSHIP_TEXT_H */
