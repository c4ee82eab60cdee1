/* oracle.h - the lock table a second time, as simply as possible: two arrays, and every question is
 * answered by visiting all elements. It sees everything that the table does, and aborts where that
 * differs from the rules of src/locks/README.md.
 *
 * It does not know when exactly the waiters of an ended session leave their queues, because no
 * effect reports that. Until SL_EFFECT_SESSION_OVER it counts them as *unsure*, and checks nothing
 * that depends on them. */
#ifndef TESTS_FUZZ_ORACLE_H
#define TESTS_FUZZ_ORACLE_H

#include "locks/table.h"

enum { KEYS = 3, GRANTS = 40, SESSIONS = 6, PATTERNS = 4 };

/* A holder; also after its lease has ended, until its expiry was reported. */
struct grant {
    sl_fence fence; /* 0: none. */
    int key;
    uint64_t session_id;
    int session; /* -1: leased. */
    uint32_t user, units;
    bool shared, broken;
    sl_ms granted_ms, end_ms, lease_ms;
};

/* A session that waits, or watches, or neither. */
struct wait {
    enum { AT_NOTHING, IN_LINE, WATCHES } what;
    int key;
    bool shared, want_free;
    uint64_t capacity, arrival;
    uint32_t units;
    int32_t priority;
    sl_ms asked_ms, end_ms, lease_ms;
};

struct oracle {
    struct grant grants[GRANTS];
    struct wait waits[SESSIONS];
    struct sl_session session[SESSIONS];
    bool ended[SESSIONS];
    sl_ms marked_until[KEYS]; /* The next grant is to be marked before that. */
    bool drains[PATTERNS];    /* Which patterns are on. */
    sl_fence fence;
    uint64_t arrivals;
    struct sl_now now;
    sl_ms grain_ms;
};

struct sl_bytes oracle_key(int key);
struct sl_bytes oracle_pattern(int pattern);

/* --- Operations, with the answers of the table ---------------------- */

bool oracle_has_place(const struct oracle *o); /* For one grant more. */
void oracle_acquired(struct oracle *o, int session, int key, const struct sl_want *w,
                     int status, const struct sl_grant *g);
void oracle_awaited(struct oracle *o, int session, int key, bool want_free,
                    sl_ms wait_ms, int status);
void oracle_released(struct oracle *o, int session, int key, sl_fence fence, int answer,
                     const struct sl_ended *past);
void oracle_extended(struct oracle *o, int session, int key, sl_fence fence, sl_ms ms,
                     int status, sl_ms lease_ms);
void oracle_broke(struct oracle *o, int key, sl_fence fence, bool at_once, int answer,
                  const struct sl_ended *past);
void oracle_drained(struct oracle *o, int pattern, bool on, int status);
void oracle_withdrew(struct oracle *o, int session);
void oracle_ended(struct oracle *o, int session);
void oracle_told(struct oracle *o, const struct sl_effect *e);

/* --- Comparisons ----------------------------------- */

/* After any step. */
void oracle_compare(const struct oracle *o, struct sl_table *t);

/* Once sl_table_next() has nothing more to tell. */
void oracle_settled(const struct oracle *o);

#endif /* TESTS_FUZZ_ORACLE_H */
