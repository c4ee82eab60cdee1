/* link_auth.h - how two nodes prove to each other that they know the secret.
 *
 *     caller                                        callee
 *                         <-- NONCE sluice-node 2 NONCE
 *       HELLO sluice-node 2 ITS-ID YOUR-ID NONCE PROOF -->
 *                         <-- WELCOME 2 ITS-ID PROOF
 *
 * The caller is the node that opens the connection; the callee accepts it. A proof is a keyed
 * hash (HMAC-SHA256, with the secret) over the role, the protocol version, both ids and both
 * nonces, which are random numbers of this handshake. So the secret is never sent, and a proof
 * cannot be reused in the other role, for another pair of nodes, or in another handshake.
 *
 * The caller proves itself first, because anybody can connect to the callee. Until the callee has
 * verified that proof, it sends neither its id nor anything that depends on the secret. The
 * caller sends its proof only to an address in its membership. */
#ifndef SL_SERVER_NET_LINK_AUTH_H
#define SL_SERVER_NET_LINK_AUTH_H

#include "majority/message.h"

#define SL_LINK_PROTOCOL 6
#define SL_HEX_BYTES 65 /* A nonce or a proof: 64 hex digits and a terminating zero. */

enum sl_link_role { SL_CALLER, SL_CALLEE };

struct sl_handshake {
    sl_node_id ids[2]; /* The ids of both nodes, by role. */
    char nonces[2][SL_HEX_BYTES];
};

/* Generate a nonce. Returns false if the system has no random numbers. */
bool sl_nonce_draw(char out[SL_HEX_BYTES]);

/* Copy the nonce that the other side sent. Returns false if the argument is not a nonce. */
bool sl_nonce_take(char out[SL_HEX_BYTES], struct sl_bytes argument);

/* Compute the proof that the node in this role knows the secret. Returns false if out of memory. */
bool sl_proof_make(const struct sl_handshake *m, enum sl_link_role role,
                   const char *secret, char out[SL_HEX_BYTES]);

/* Whether the argument is the correct proof. Runs in constant time, so that timing does not reveal
 * the proof. */
bool sl_proof_holds(const struct sl_handshake *m, enum sl_link_role role,
                    const char *secret, struct sl_bytes argument);

#endif /* SL_SERVER_NET_LINK_AUTH_H */
