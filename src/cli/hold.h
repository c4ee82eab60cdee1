/* hold.h - acquires the lock for `sluice run` and holds it for the command.
 *
 * The units belong to the wrapper and to every process that has inherited its tether,
 * an open file with a lock on it. If the wrapper dies, the units remain held until the
 * last of these processes has closed the tether. */
#ifndef SL_CLI_HOLD_H
#define SL_CLI_HOLD_H

#include <stdbool.h>
#include <stdint.h>

#include "sluice.h"

/* The capacity of exclusive and shared locks. An exclusive run takes the whole
 * capacity, a shared run takes one unit. */
#define CLI_WHOLE_CAPACITY SLUICE_UNITS_MAX

/* Locks with at most this capacity have numbered slots. */
#define CLI_SLOTS_MAX 4096u

struct cli_request {
    const char *key;
    const char *segment; /* NULL: the user's default segment. */
    const char *program; /* The name that waiters see. */
    struct sluice_capacity capacity;
    uint32_t units;
    uint32_t mode;
    int64_t wait_ms;
    bool quiet;
    bool numbered; /* Assign a slot number. */
};

struct cli_hold {
    struct sluice_canal *canal;
    int64_t nth;
    int tether;    /* Its descriptor, inherited unless close-on-exec is set. */
    uint32_t slot; /* From 1; 0: none. */
};

/* Acquire the lock. Returns 0 and fills *out. On failure, prints a message and returns
 * an exit status. If the lock is taken, sets *full and prints no message. */
int cli_hold(const struct cli_request *request, struct cli_hold *out, bool *full);

/* Return whether the lock no longer has an effect, because its segment was removed or
 * truncated. */
bool cli_hold_lost(const struct cli_hold *h);

/* Release the wrapper's hold on the lock. The lock stays held while other processes
 * have the inherited tether open. */
void cli_hold_end(struct cli_hold *h);

#endif /* SL_CLI_HOLD_H */
