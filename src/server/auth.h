/* auth.h - AUTH that waits, after wrong passwords from the same address (guesses.h).
 *
 * The connection is blocked meanwhile, and nothing else is. At most auth-waiting-max commands
 * of an address wait at a time; more are rejected, and not compared with the password. */
#ifndef SL_SERVER_AUTH_H
#define SL_SERVER_AUTH_H

#include "server/dispatch.h"

/* 0, or -1: out of memory. */
int sl_auth_start(struct server *s);

/* Whether this AUTH, or HELLO with AUTH, is not to be looked at now: it waits, or was
 * rejected. */
bool sl_auth_must_wait(struct call *call);

/* The password was wrong. */
void sl_auth_failed(struct conn *c);

/* Its connection is gone. */
void sl_auth_forget(struct conn *c);

/* When the first of them has waited long enough; SL_NEVER. */
sl_ms sl_auth_due(const struct server *s);

/* Look at those that have waited long enough. */
void sl_auth_resume(struct server *s);

#endif /* SL_SERVER_AUTH_H */
