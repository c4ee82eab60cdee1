#include "server/net/link_auth.h"

#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>

#define DIGITS (SL_HEX_BYTES - 1)

static void to_hex(const unsigned char bytes[DIGITS / 2], char out[SL_HEX_BYTES])
{
    static const char digits[] = "0123456789abcdef";
    for (size_t i = 0; i < DIGITS; i++)
        out[i] = digits[bytes[i / 2] >> (i % 2 == 0 ? 4 : 0) & 15];
    out[DIGITS] = '\0';
}

bool sl_nonce_draw(char out[SL_HEX_BYTES])
{
    unsigned char bytes[DIGITS / 2];
    if (getrandom(bytes, sizeof bytes, 0) != sizeof bytes) return false;
    to_hex(bytes, out);
    return true;
}

bool sl_nonce_take(char out[SL_HEX_BYTES], struct sl_bytes argument)
{
    if (argument.n != DIGITS) return false;
    for (size_t i = 0; i < DIGITS; i++) {
        char c = argument.at[i];
        if (!((c >= '0' && c <= '9') || (c >= 'a' && c <= 'f'))) return false;
    }
    memcpy(out, argument.at, DIGITS);
    out[DIGITS] = '\0';
    return true;
}

bool sl_proof_make(const struct sl_handshake *m, enum sl_link_role role,
                   const char *secret, char out[SL_HEX_BYTES])
{
    unsigned char text[256], hash[EVP_MAX_MD_SIZE];
    unsigned size = 0;
    const char *who = role == SL_CALLER ? "caller" : "callee";
    const char *nonce = m->nonces[SL_CALLEE];
    /* The fields are unambiguous: there are two roles, ids have no blanks, and nonces have a fixed
     * length. */
    int n = snprintf((char *)text, sizeof text, "sluice-node %d %s %u %u %s %s",
                     SL_LINK_PROTOCOL, who, m->ids[SL_CALLER], m->ids[SL_CALLEE],
                     m->nonces[SL_CALLER], nonce);
    if (HMAC(EVP_sha256(), secret, (int)strlen(secret), text, (size_t)n, hash, &size) ==
            NULL ||
        size != DIGITS / 2)
        return false;
    to_hex(hash, out);
    return true;
}

bool sl_proof_holds(const struct sl_handshake *m, enum sl_link_role role,
                    const char *secret, struct sl_bytes argument)
{
    char wanted[SL_HEX_BYTES];
    return argument.n == DIGITS && sl_proof_make(m, role, secret, wanted) &&
           CRYPTO_memcmp(wanted, argument.at, DIGITS) == 0;
}
