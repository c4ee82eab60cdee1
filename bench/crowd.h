/* crowd.h - clients of transactions: one process, one thread, epoll.
 *
 * Each client has its own connection and repeats a round of steps. A step is one or more
 * commands in one write; the next step starts when all their replies have arrived. No two
 * clients use the same key, so none waits for a lock. */
#ifndef BENCH_CROWD_H
#define BENCH_CROWD_H

#include "times.h"
#include "trial.h"

enum crowd_work {
    CROWD_TOGETHER, /* TX.BEGIN, TX.PUT and TX.COMMIT in one write. */
    CROWD_SINGLY,   /* The same, a command at a time. */
    CROWD_LOCKS,    /* TX.BEGIN, CROWD_LOCKS_EACH locks one at a time, TX.ABORT. */
    CROWD_LOCKS_BY, /* The same locks, CROWD_BY in one write. */
};

#define CROWD_LOCKS_EACH 128u
#define CROWD_BY 32u

/* The number of keys that each client writes in turn, and the sizes of a key and a value. */
#define CROWD_KEYS 100u
#define CROWD_KEY_BYTES 17
#define CROWD_VALUE_BYTES 22

struct crowd; /* Opaque. */

/* The key and the value that a client writes in its n-th round. */
void crowd_row(uint32_t client, uint64_t n, char key[CROWD_KEY_BYTES + 1],
               char value[CROWD_VALUE_BYTES + 1]);

/* Connect this many clients. Returns NULL, or an error message. */
const char *crowd_open(struct crowd **out, const struct subject *s, uint32_t clients,
                       enum crowd_work work);
void crowd_close(struct crowd *c); /* NULL is allowed. */

/* Run for this time, and complete the rounds in progress. Returns NULL, or an error message;
 * an error reply is an error too. */
const char *crowd_run(struct crowd *c, int64_t run_ns, struct trial_result *out);

#endif /* BENCH_CROWD_H */
