/* guesses.h - counts wrong passwords by address, and computes how long to delay AUTH.
 *
 * Each wrong password adds one to the count of its address; each `max_ms` without a wrong
 * password subtracts one. The first few wrong passwords cause no delay. After that, the server
 * delays AUTH before it compares the password. The delay doubles with each failure, up to max_ms.
 * A correct password is delayed as well; otherwise a fast reply would reveal that the password is
 * correct.
 *
 * The table has a fixed size. A new address replaces the one with the fewest failures among those
 * that hash to the same set, so the table can track a few thousand addresses at a time. */
#ifndef SL_SERVER_NET_GUESSES_H
#define SL_SERVER_NET_GUESSES_H

#include "base/hash.h"
#include "base/types.h"

#define SL_GUESS_SETS 1024u
#define SL_GUESS_WAYS 4u

/* An IPv4 address, the first 64 bits of an IPv6 address, or a user of the Unix socket. */
struct sl_guess_address {
    uint8_t kind; /* 0: no address. */
    uint8_t at[8];
};

struct sl_guess {
    struct sl_guess_address address;
    uint8_t failures;
    uint32_t waiting; /* Number of delayed AUTH commands. */
    sl_ms last_ms;    /* When `failures` last changed. */
};

struct sl_guesses {
    struct sl_hash_key key;
    sl_ms max_ms; /* The longest delay; 0: no delay. */
    struct sl_guess table[SL_GUESS_SETS][SL_GUESS_WAYS];
};

/* Return the current delay for AUTH from this address. Sets *out to the entry of the address, or to
 * NULL if it has none. */
sl_ms sl_guesses_delay(struct sl_guesses *g, const struct sl_guess_address *address,
                       sl_ms now_ms, struct sl_guess **out);

/* Count a wrong password from this address. */
void sl_guesses_failed(struct sl_guesses *g, const struct sl_guess_address *address,
                       sl_ms now_ms);

#endif /* SL_SERVER_NET_GUESSES_H */
