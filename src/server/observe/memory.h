/* memory.h - how much memory clients make the server use, and what it does at memory-max.
 *
 * Each module counts the bytes of what it keeps for clients: the lock table, transactions,
 * subscriptions, and the buffers of connections. The server adds them up only every few turns of
 * the loop, since this costs as much as a small command. At memory-max the server rejects
 * commands that create state until memory is released. A sixteenth above it, the
 * server closes connections: first those with the most unread output, then those with the
 * largest partial commands. */
#ifndef SL_SERVER_OBSERVE_MEMORY_H
#define SL_SERVER_OBSERVE_MEMORY_H

#include "server/command/dispatch.h"

/* Bytes used for clients. */
size_t sl_memory_used(const struct server *s);

/* Those that the arbiters keep besides the lock table (arbiter/info.c). */
size_t sl_arbiters_bytes(const struct server *s);

/* Compare them with memory-max, and close connections if necessary. */
void sl_memory_check(struct server *s);

/* Whether the command must not create state now; if so, the reply says why. */
bool sl_memory_rejects(struct call *call);

/* Call it once a second: it returns unused memory to the system. */
void sl_memory_second(struct server *s);

/* Configure malloc, before the first thread starts. */
void sl_memory_setup(void);

/* The default of memory-max: a quarter of the memory of the machine or its control group. */
int64_t sl_memory_auto(void);

#endif /* SL_SERVER_OBSERVE_MEMORY_H */
