/* renewer.h - the process that acquires the locks of `sluice run` on a server, extends their leases,
 * and releases them when the command has ended.
 *
 * It is a process of its own, so that the leases are extended while the user's job is stopped
 * (Ctrl-Z), and after the wrapper was killed. */
#ifndef SL_CLI_RENEWER_H
#define SL_CLI_RENEWER_H

#include <stdbool.h>

#include "cli/server.h"
#include "cli/shared.h"

struct cli_lease_request {
    const struct cli_server *server; /* After cli_server_find(). */
    const char *const *keys;
    size_t count;                  /* Of keys: 1 to SLUICE_KEYS_AT_ONCE_MAX. */
    struct sluice_request request; /* Without callbacks. */
    int64_t kill_margin_ms;        /* From the first SIGKILL to the expiry, at least. */
    bool quiet;
    bool whole;    /* Exclusive: the request has all units that a lock can have. */
    bool numbered; /* Take the number of a slot; only with one key. */
    int conflict;  /* The exit status if a lock is taken. */
    const char *program; /* The name that other clients see. */
};

/* Do the work of the renewer, in a process of its own. `life` becomes readable when the wrapper and
 * the guard have both ended. SIGTERM ends the wait for the locks. Returns its exit status: 0 after
 * the grant; otherwise the exit status of `sluice run`, after a message. */
int cli_renewer(const struct cli_lease_request *r, struct cli_shared *shared,
                pid_t wrapper, int life);

#endif /* SL_CLI_RENEWER_H */
