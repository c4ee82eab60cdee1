/* crowd.h - clients of transactions: one process, one thread, epoll.
 *
 * Each has a connection of its own, and does the same again and again: a round of steps. A
 * step is some commands in one write; the next one goes out when all their replies are
 * there. No client uses a key of another, so nobody waits for a lock. */
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

/* Each client writes so many keys in turns; a key and a value have so many bytes. */
#define CROWD_KEYS 100u
#define CROWD_KEY_BYTES 17
#define CROWD_VALUE_BYTES 22

struct crowd; /* Opaque. */

/* The key and the value that a client writes in its n-th round. */
void crowd_row(uint32_t client, uint64_t n, char key[CROWD_KEY_BYTES + 1],
               char value[CROWD_VALUE_BYTES + 1]);

/* Connect so many. NULL, or what went wrong. */
const char *crowd_open(struct crowd **out, const struct subject *s, uint32_t clients,
                       enum crowd_work work);
void crowd_close(struct crowd *c); /* NULL is allowed. */

/* Run for so long, and to the end of what was begun. NULL, or what went wrong; an error is
 * wrong as well. */
const char *crowd_run(struct crowd *c, int64_t run_ns, struct trial_result *out);

#endif /* BENCH_CROWD_H */
