/* link_auth.h - how two nodes prove to each other that they know the secret.
 *
 *     caller                                        callee
 *                         <-- NONCE sluice-node 2 NONCE
 *       HELLO sluice-node 2 ITS-ID YOUR-ID NONCE PROOF -->
 *                         <-- WELCOME 2 ITS-ID PROOF
 *
 * A proof is a keyed hash (HMAC-SHA256, with the secret) over the role, the protocol version, both
 * ids and both nonces, which are random numbers of this handshake. So the secret is not sent, and a
 * proof is of no use in the other role, for another pair of nodes, or at another time.
 *
 * The caller proves itself first, because anybody can call: until its proof is verified, the callee
 * sends nothing that depends on the secret, and not its id. The caller sends its proof only to an
 * address of its membership. */
#ifndef SL_SERVER_NET_LINK_AUTH_H
#define SL_SERVER_NET_LINK_AUTH_H

#include "majority/message.h"

#define SL_LINK_PROTOCOL 2
#define SL_HEX_BYTES 65 /* A nonce or a proof: 64 digits, and the end. */

enum sl_link_role { SL_CALLER, SL_CALLEE };

struct sl_handshake {
    sl_node_id ids[2]; /* By role. */
    char nonces[2][SL_HEX_BYTES];
};

/* Draw a nonce. False: there are no random numbers. */
bool sl_nonce_draw(char out[SL_HEX_BYTES]);

/* Take the nonce of the other side. False: the argument is not a nonce. */
bool sl_nonce_take(char out[SL_HEX_BYTES], struct sl_bytes argument);

/* The proof that the node of this role knows the secret. False: out of memory. */
bool sl_proof_make(const struct sl_handshake *m, enum sl_link_role role,
                   const char *secret, char out[SL_HEX_BYTES]);

/* Whether the argument is that proof. Takes as long for a wrong proof as for the right one. */
bool sl_proof_holds(const struct sl_handshake *m, enum sl_link_role role,
                    const char *secret, struct sl_bytes argument);

#endif /* SL_SERVER_NET_LINK_AUTH_H */
