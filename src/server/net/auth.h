/* auth.h - delays AUTH after wrong passwords from the same address (guesses.h).
 *
 * A delayed AUTH blocks only its own connection. At most auth-waiting-max AUTH commands from one
 * address are delayed at a time. The server rejects any more of them without comparing the
 * password. */
#ifndef SL_SERVER_NET_AUTH_H
#define SL_SERVER_NET_AUTH_H

#include "server/command/dispatch.h"

/* Allocate the table of wrong passwords. Returns 0, or -1 if out of memory. */
int sl_auth_start(struct server *s);

/* Whether this AUTH, or HELLO with AUTH, must not run now. If so, this function has delayed or
 * rejected it. */
bool sl_auth_must_wait(struct call *call);

/* Count a wrong password from the address of this connection. */
void sl_auth_failed(struct conn *c);

/* Return when the first delay ends, or SL_NEVER if there is no delay. */
sl_ms sl_auth_due(const struct server *s);

/* Run the AUTH commands whose delay has ended. */
void sl_auth_resume(struct server *s);

#endif /* SL_SERVER_NET_AUTH_H */
