/* memory.h - how much memory clients make the server use, and what the server does at memory-max.
 *
 * Each module counts the bytes that it uses for clients: the lock table, transactions,
 * subscriptions, and the buffers of connections. The server adds them up only every few
 * iterations of the event loop, because this costs as much as a small command. At memory-max the
 * server rejects commands that create state until memory is released. If memory use exceeds
 * memory-max by 1/16, the server closes connections: first those with the most unread output,
 * then those with the largest partial commands. */
#ifndef SL_SERVER_OBSERVE_MEMORY_H
#define SL_SERVER_OBSERVE_MEMORY_H

#include "server/command/dispatch.h"

/* Return the number of bytes used for clients. */
size_t sl_memory_used(const struct server *s);

/* Return the number of bytes that the arbiters use in addition to the lock table
 * (arbiter/info.c). */
size_t sl_arbiters_bytes(const struct server *s);

/* Compare the memory use with memory-max, and close connections if necessary. */
void sl_memory_check(struct server *s);

/* Whether the command is rejected because it would create state while memory is full. If so, this
 * function has replied with the error. */
bool sl_memory_rejects(struct call *call);

/* Return unused memory to the system. Call this once a second. */
void sl_memory_second(struct server *s);

/* Configure malloc, before the first thread starts. */
void sl_memory_setup(void);

/* Return the default of memory-max: a quarter of the machine's memory, or of the memory limit of the
 * server's control group if that is lower. */
int64_t sl_memory_auto(void);

#endif /* SL_SERVER_OBSERVE_MEMORY_H */
