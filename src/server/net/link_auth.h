/* link_auth.h - how two nodes prove to each other that they know the secret.
 *
 *     caller                                        callee
 *                         <-- NONCE sluice-node 2 NONCE
 *       HELLO sluice-node 2 ITS-ID YOUR-ID NONCE PROOF -->
 *                         <-- WELCOME 2 ITS-ID PROOF
 *
 * A proof is a keyed hash (HMAC-SHA256, with the secret) over the role, the number of the
 * protocol, both ids and both nonces, which are drawn anew for every meeting. So the secret
 * is not sent, and a proof is worth nothing in the other role, for another pair of nodes, or
 * at another time.
 *
 * The caller proves itself first, because anybody can call: until the proof holds, the callee
 * sends nothing that depends on the secret, and not its id. The caller sends its proof only
 * to an address of its own list of nodes. */
#ifndef SL_SERVER_NET_LINK_AUTH_H
#define SL_SERVER_NET_LINK_AUTH_H

#include "majority/message.h"

#define SL_LINK_PROTOCOL 2
#define SL_HEX_BYTES 65 /* A nonce or a proof: 64 digits, and the end. */

enum sl_role { SL_CALLER, SL_CALLEE };

struct sl_meeting {
    sl_node_id ids[2]; /* By role. */
    char nonces[2][SL_HEX_BYTES];
};

/* A nonce of one's own. False: there are no random numbers. */
bool sl_nonce_draw(char out[SL_HEX_BYTES]);

/* One of the other side's. False: it is none. */
bool sl_nonce_take(char out[SL_HEX_BYTES], struct sl_bytes word);

/* What shows that the node of this role knows the secret. False: out of memory. */
bool sl_proof_make(const struct sl_meeting *m, enum sl_role role, const char *secret,
                   char out[SL_HEX_BYTES]);

/* Whether the word is that. Takes as long for a wrong one as for the right one. */
bool sl_proof_holds(const struct sl_meeting *m, enum sl_role role, const char *secret,
                    struct sl_bytes word);

#endif /* SL_SERVER_NET_LINK_AUTH_H */
