/* guesses.h - counts wrong passwords by address, and says how long to delay AUTH.
 *
 * Each wrong password adds one to the count of its address; each `max_ms` without one takes
 * one away. The first few cause no delay. After them the server delays AUTH before it compares
 * the password, twice as long with each failure, at most max_ms. It delays a correct password as
 * well: otherwise a quick reply would give it away.
 *
 * The table has a fixed size. A new address replaces the one with the fewest failures among
 * those that hash to the same set, so it can follow a few thousand addresses at a time. */
#ifndef SL_SERVER_NET_GUESSES_H
#define SL_SERVER_NET_GUESSES_H

#include "base/hash.h"
#include "base/types.h"

#define SL_GUESS_SETS 1024u
#define SL_GUESS_WAYS 4u

/* An IPv4 address, the first 64 bits of an IPv6 address, or a user of the unix socket. */
struct sl_guess_address {
    uint8_t kind; /* 0: none. */
    uint8_t at[8];
};

struct sl_guess {
    struct sl_guess_address address;
    uint8_t failures;
    uint32_t waiting; /* Delayed AUTH commands. */
    sl_ms last_ms;    /* When `failures` last changed. */
};

struct sl_guesses {
    struct sl_hash_key key;
    sl_ms max_ms; /* The longest delay; 0: no delay. */
    struct sl_guess table[SL_GUESS_SETS][SL_GUESS_WAYS];
};

/* The delay of AUTH from this address now. *out is its row; NULL: it has none. */
sl_ms sl_guesses_delay(struct sl_guesses *g, const struct sl_guess_address *address,
                       sl_ms now_ms, struct sl_guess **out);

/* Count a wrong password from this address. */
void sl_guesses_failed(struct sl_guesses *g, const struct sl_guess_address *address,
                       sl_ms now_ms);

#endif /* SL_SERVER_NET_GUESSES_H */
