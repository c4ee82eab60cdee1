/* auth.h - delays AUTH after wrong passwords from the same address (guesses.h).
 *
 * Only the connection of a delayed AUTH is blocked. At most auth-waiting-max commands from an
 * address wait at a time. The server rejects more without comparing the password. */
#ifndef SL_SERVER_NET_AUTH_H
#define SL_SERVER_NET_AUTH_H

#include "server/command/dispatch.h"

/* 0, or -1: out of memory. */
int sl_auth_start(struct server *s);

/* Whether this AUTH, or HELLO with AUTH, must not run now, because it was delayed or
 * rejected. */
bool sl_auth_must_wait(struct call *call);

/* Count a wrong password. */
void sl_auth_failed(struct conn *c);

/* When the first delay ends; SL_NEVER if there is none. */
sl_ms sl_auth_due(const struct server *s);

/* Run the commands whose delay has ended. */
void sl_auth_resume(struct server *s);

#endif /* SL_SERVER_NET_AUTH_H */
