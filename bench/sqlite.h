/* sqlite.h - the same transactions with SQLite: WAL, synchronous=FULL, one statement each.
 *
 * A client is a thread with its own connection to one file, and writes the same rows as a
 * client of crowd.h. SQLite allows one writer at a time; the others sleep and retry. So there
 * are two modes: SQLITE_LINE, in which a mutex of the program lets the threads write one after
 * the other, so that none sleeps longer than necessary; and SQLITE_ALONE, as between separate
 * programs, with SQLite's own busy handler. */
#ifndef BENCH_SQLITE_H
#define BENCH_SQLITE_H

#include "crowd.h"

enum sqlite_way { SQLITE_LINE, SQLITE_ALONE };

struct sqlite; /* Opaque. */

/* Its version; NULL: the bench was built without it. */
const char *sqlite_version(void);

/* Open this many connections to a file in this directory. Returns NULL, or an error message. */
const char *sqlite_open(struct sqlite **out, const char *directory, uint32_t clients,
                        enum sqlite_way way);
void sqlite_close(struct sqlite *s); /* NULL is allowed. */

/* Run for this time, and complete the transactions in progress. Returns NULL, or an error
 * message. */
const char *sqlite_run(struct sqlite *s, int64_t run_ns, struct trial_result *out);

#endif /* BENCH_SQLITE_H */
