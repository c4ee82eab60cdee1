/* sqlite.h - the same transactions with SQLite: WAL, synchronous=FULL, one statement each.
 *
 * A client is a thread with a connection of its own to one file, and writes the rows that
 * a client of crowd.h writes. SQLite lets one write at a time, and who has to wait looks again
 * after a sleep, if it is left to itself. So there are two ways: SQLITE_LINE, in which a mutex
 * of the program lets one after the other to it, and nobody sleeps longer than it must; and
 * SQLITE_ALONE, as separate programs would do it, with SQLite's own busy handler. */
#ifndef BENCH_SQLITE_H
#define BENCH_SQLITE_H

#include "crowd.h"

enum sqlite_way { SQLITE_LINE, SQLITE_ALONE };

struct sqlite; /* Opaque. */

/* Its version; NULL: the bench was built without it. */
const char *sqlite_version(void);

/* Open so many connections to a file in this directory. NULL, or what went wrong. */
const char *sqlite_open(struct sqlite **out, const char *directory, uint32_t clients,
                        enum sqlite_way way);
void sqlite_close(struct sqlite *s); /* NULL is allowed. */

/* Run for so long, and to the end of what was begun. NULL, or what went wrong. */
const char *sqlite_run(struct sqlite *s, int64_t run_ns, struct trial_result *out);

#endif /* BENCH_SQLITE_H */
