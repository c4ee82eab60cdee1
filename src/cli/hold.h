/* hold.h - get the lock for `sluice run`, and keep it for whom it is meant.
 *
 * The permit is the wrapper's, and that of whoever has inherited its tether: an open
 * file with a lock on it. When the wrapper is gone, however, the permit comes back only
 * after the last of those. */
#ifndef SL_CLI_HOLD_H
#define SL_CLI_HOLD_H

#include <stdbool.h>
#include <stdint.h>

#include "sluice.h"

/* The room in which "all" and "one of many" are told apart: exclusive takes all of it. */
#define CLI_WHOLE_CAPACITY SLUICE_UNITS_MAX

/* Rooms up to this have numbered slots. */
#define CLI_SLOTS_MAX 4096u

struct cli_wish {
    const char *key;
    const char *segment; /* NULL: the user's own. */
    const char *program; /* Shown to those who wait for us. */
    struct sluice_capacity capacity;
    uint32_t units;
    uint32_t mode;
    int64_t wait_ms;
    bool quiet;
    bool numbered; /* Wants a slot number. */
};

struct cli_hold {
    struct sluice_canal *canal;
    int64_t nth;
    int tether;    /* The descriptor. Inherited unless it is made close-on-exec. */
    uint32_t slot; /* From 1; 0: none. */
};

/* Wait for the lock. 0: *out is filled; else an exit status, and all has been said, but
 * for SLUICE_EFULL, which the caller is told by *full. */
int cli_hold(const struct cli_wish *wish, struct cli_hold *out, bool *full);

/* Whether the lock protects nothing any more: somebody removed its segment. */
bool cli_hold_lost(const struct cli_hold *h);

/* End our part in it. What the tether's other owners hold, they keep. */
void cli_hold_end(struct cli_hold *h);

#endif /* SL_CLI_HOLD_H */
