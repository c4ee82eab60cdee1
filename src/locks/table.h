/* table.h - the lock table: holders, waiters, and which waiter is next.
 *
 * The table is a value. It reads no clock, opens no file, sends no byte and draws no random
 * number: the time is an argument, and sl_table_next() returns what follows from it. The same
 * code runs in the server, in the keeper of a cluster and in the simulator. README.md states
 * the rules of granting and why they are fair.
 *
 *     acquire --fits--> HOLDING --release, expiry, end of the session, break--> (gone)
 *        |                 ^
 *        +--WAIT--> WAITING+--timeout, end of the session--> (gone)
 *
 * Invariants, which sl_table_check() checks:
 *
 *   I1  the units counted on a lock are the sum of its holders' units
 *   I2  shared holders and others never hold one lock together, except next to a holder that
 *       was stolen from, or that another table granted
 *   I3  a wait queue is in the order of arrival, and queues of one priority in that of their heads
 *   I4  no waiter could be granted, once sl_table_next() has nothing to tell; unless the table may
 *       not grant, for lack of fences or of authority, or during a recovery: then all waiters are
 *       rechecked when that ends
 *   I5  fences rise over the whole table and stay below 2^53
 *   I6  a lock without holders, waiters and watchers is not in the table, unless its next grant is
 *       to be marked as overlapping, for a time
 *   I7  an entry is in the table's heap if and only if it has an end or a force time; and in its
 *       roster's heap, if it also holds
 *   I8  what a session holds without a lease, waits for or watches is in its list; and memory
 *       is counted
 *   I9  a holder that is asked to release has a lower priority than the thief, and another session
 *   I10 a lock with waiters is in the order of waits, at the place of its oldest waiter
 *   I11 every grant and every waiter refers to its client, and all references are counted
 *
 * Not thread-safe: one table, one thread. */
#ifndef SL_LOCKS_TABLE_H
#define SL_LOCKS_TABLE_H

#include "base/hash.h"
#include "base/types.h"
#include "sluice.h"

struct sl_table;      /* Opaque. */
struct sl_client;     /* client.h */
struct sl_grant_view; /* Below. */

/* Limits on what clients can make the table store. */
struct sl_table_limits {
    uint32_t keys_max;
    uint32_t waiters_max;     /* Waiters and watchers of one key. */
    uint32_t key_bytes_max;   /* At most 65535, as the next one. */
    uint32_t value_bytes_max; /* Of a value, and of a note. */
    uint32_t drains_max;
    sl_ms grain_ms; /* `now` may be late by less than this. 0: it is exact. */
};

/* A client. The caller keeps it, at one address, from sl_session_begin() until sl_table_next()
 * has returned SL_EFFECT_SESSION_OVER. */
struct sl_session {
    uint64_t id;   /* Never used twice. */
    uint32_t user; /* Leased grants may be used by every session of their user. */
    bool ended;
    struct sl_client *client; /* Its name and address; NULL: not described yet. */
    struct sl_list mine; /* What it holds without a lease, waits for and watches. */
    struct sl_list over; /* Of sessions that have ended. */
};

struct sl_want {
    struct sl_bytes key; /* The table copies it, and the other bytes. */
    bool shared;
    uint32_t per, buckets; /* The capacity is per * buckets; 1 and 1 make a mutex. */
    uint32_t units;
    int32_t priority;
    sl_ms wait_ms;   /* 0: do not wait. SL_NEVER: no timeout. */
    sl_ms waited_ms; /* How long it was on its way here. wait_ms is what is left. */
    sl_ms lease_ms;  /* 0: none; the grant ends with its session. */
    struct sl_bytes value, note;
    bool
        steal; /* While it waits, holders with a lower priority are asked to release. */
    sl_ms
        force_ms; /* With steal: after so long it is granted next to them; SL_NEVER. */
};

/* A grant, as the holder sees it. */
struct sl_grant {
    sl_fence fence;
    uint64_t held; /* Units held on the lock, with this grant; or shared holders. */
    sl_ms lease_ms;
    sl_ms waited_ms;
    bool overlapping; /* Another holder was broken or stolen from, and may not know. */
};

/* A grant that has ended. */
struct sl_ended {
    sl_fence fence;
    uint64_t session_id; /* The session that had acquired it. */
    sl_ms held_ms;
    bool broken;    /* It had been broken before. */
    bool leased;    /* Of a release. */
    sl_ms asked_ms; /* Since when it had been asked to release; -1: it had not. */
};

enum sl_effect_type {
    SL_EFFECT_NOTHING,      /* The table did internal work, and may have more. */
    SL_EFFECT_GRANTED,      /* A waiter was granted. */
    SL_EFFECT_TIMED_OUT,    /* The timeout of a waiter or watcher. */
    SL_EFFECT_EXPIRED,      /* A lease expired. */
    SL_EFFECT_ENDED,        /* A grant without a lease ended with its session. */
    SL_EFFECT_REFUSED,      /* A waiter is rejected, because its key is drained. */
    SL_EFFECT_SEEN,         /* The condition of a watcher is true. */
    SL_EFFECT_ASKED,        /* A holder is asked to release: a thief waits for it. */
    SL_EFFECT_WITHDRAWN,    /* The holder need not release any more. */
    SL_EFFECT_STOLEN,       /* A thief was granted next to the holder. */
    SL_EFFECT_THIEF_WAITS,  /* Another thief took over the reservation. */
    SL_EFFECT_SESSION_OVER, /* Nothing is left of an ended session: free it. */
};

struct sl_effect {
    enum sl_effect_type type;
    struct sl_bytes key; /* Borrowed from the table until the next call. */
    struct sl_session
        *session;          /* GRANTED, TIMED_OUT, REFUSED, SEEN, SESSION_OVER; ASKED
                                 * and THIEF_WAITS: the thief's. */
    struct sl_grant grant; /* GRANTED. */
    struct sl_ended past;  /* EXPIRED, ENDED; ASKED, WITHDRAWN, STOLEN: so far. */
    struct sl_bytes note;  /* ASKED: the holder's note, */
    sl_ms left_ms;         /* what is left of its lease (SL_NEVER: it has none), */
    int32_t priority;      /* and the thief's priority. */
};

/* --- Life ----------------------------------------------------------------- */

/* A new, empty table; NULL when out of memory. The key must be random and secret: otherwise
 * clients can choose keys that collide. */
struct sl_table *sl_table_new(const struct sl_table_limits *limits,
                              struct sl_hash_key key);
void sl_table_free(struct sl_table *t); /* NULL is allowed. */

void sl_session_begin(struct sl_session *s, uint64_t id, uint32_t user);

/* Set the name and address of the client, for the grants and waits that begin from now on. Copies.
 * SLUICE_ENOMEM. */
int sl_table_describe(struct sl_table *t, struct sl_session *s, struct sl_bytes name,
                      struct sl_bytes address);

/* The session ends: sl_table_next() withdraws its requests and releases what it holds without a
 * lease, one in each call. SL_EFFECT_SESSION_OVER is the last. */
void sl_table_session_end(struct sl_table *t, struct sl_session *s);

/* The session keeps what it holds. The request for which it waits or watches is withdrawn at
 * once, without an effect. */
void sl_table_withdraw(struct sl_table *t, struct sl_session *s);

/* Whether something is left of sessions that have ended; sl_table_next() removes it. */
bool sl_table_ends_sessions(const struct sl_table *t);

/* Whether the session holds something without a lease. */
bool sl_session_holds(const struct sl_session *s);

/* --- Change --------------------------------------------------------------- */

/* Request units of a key. SLUICE_OK: granted, *out is filled. SL_WAITS: it waits, and one of
 * SL_EFFECT_GRANTED, SL_EFFECT_TIMED_OUT, SL_EFFECT_REFUSED follows, or the session ends.
 * SLUICE_EFULL: it does not fit, and wait_ms is 0. ETOOBIG, EINVAL, EDRAINED, EDEADLOCK (it would
 * wait for what it alone holds), EKEYS, EWAITERS, EFENCES, ERECOVERING, ENOKEEPER, ENOMEM. */
int sl_table_acquire(struct sl_table *t, struct sl_now now, struct sl_session *s,
                     const struct sl_want *want, struct sl_grant *out);
#define SL_WAITS 1

/* What sl_table_acquire() would return, except for EKEYS, EWAITERS and ENOMEM. Changes nothing. */
int sl_table_judge(struct sl_table *t, struct sl_now now, const struct sl_session *s,
                   const struct sl_want *want);

/* Release the grant with this fence, if it is this session's or leased to its user; with fence 0,
 * the newest that this session acquired. 1: *out is that grant; 0: there is none. */
int sl_table_release(struct sl_table *t, struct sl_now now, const struct sl_session *s,
                     struct sl_bytes key, sl_fence fence, struct sl_ended *out);

/* Extend a lease to now + ms; a lease never becomes shorter. If value.at is NULL, the old value
 * stays. SLUICE_OK, and *lease_ms is what is left; ELOST: this user does not hold it under this
 * fence, or it was broken; EASKED: a thief waits for it; ENOKEEPER: the table has no authority;
 * ENOLEASE; ETOOBIG; EINVAL; ENOMEM. */
int sl_table_extend(struct sl_table *t, struct sl_now now, const struct sl_session *s,
                    struct sl_bytes key, sl_fence fence, sl_ms ms,
                    struct sl_bytes value, sl_ms *lease_ms);

/* Take back a grant that the last SL_EFFECT_GRANTED reported, because its client is gone. The next
 * grant is as it would have been without it. */
void sl_table_take_back(struct sl_table *t, struct sl_now now, struct sl_session *s,
                        struct sl_bytes key, const struct sl_grant *grant);

/* An operator takes a grant away. If it has no lease, or with at_once, it ends at once, and the
 * next grant is marked, if it comes before the broken one would have ended (without a lease:
 * within SL_MARK_MS). Otherwise its lease cannot be extended any more. 2: it has ended, *out is
 * that grant. 1: it ends with its lease, *out is the grant so far. 0: there is none. */
int sl_table_break(struct sl_table *t, struct sl_now now, struct sl_bytes key,
                   sl_fence fence, bool at_once, struct sl_ended *out);

#define SL_MARK_MS 600000

/* Wait until a key is free, or held. SLUICE_OK: it is. SL_WAITS: SL_EFFECT_SEEN or
 * SL_EFFECT_TIMED_OUT follows. SLUICE_EFULL: it is not, and wait_ms is 0. ERECOVERING: it is not
 * known yet which keys are free. ENOKEEPER: nor now, and wait_ms is 0. EINVAL, ETOOBIG, EKEYS,
 * EWAITERS, ENOMEM. */
int sl_table_await(struct sl_table *t, struct sl_now now, struct sl_session *s,
                   struct sl_bytes key, bool free, sl_ms wait_ms);

/* Drain keys that match: grant nothing more there, and reject waiters; or end that. SLUICE_OK;
 * ENOENT: no change; EINVAL, ETOOBIG: invalid pattern; EFULL: too many patterns; ENOMEM. */
int sl_table_drain(struct sl_table *t, struct sl_bytes glob, bool on);

/* New fences are above the floor, and never above the limit, which the caller has made durable.
 * If a grant needs a fence above the limit, acquire returns EFENCES, and waiters wait until the
 * limit is raised. Initially there is no limit. */
void sl_table_set_fences(struct sl_table *t, sl_fence floor, sl_fence limit);

/* Grant nothing before this time: a table that was lost may have granted leases until then.
 * Requests with wait_ms 0 get ERECOVERING; others are queued until then. 0: end it now. */
void sl_table_recover(struct sl_table *t, sl_ms until_ms);

/* Grant and extend nothing at or after this time, by the `now` of each call: from then on another
 * table may have the authority. SL_NEVER, the initial value: there is no end. Requests with
 * wait_ms 0 get ENOKEEPER; others are queued until a later time is set. No watcher is notified
 * that a key is free meanwhile. Expiry, timeouts, release, break and queries continue. During a
 * recovery without authority, the status is ENOKEEPER. */
void sl_table_set_authority(struct sl_table *t, sl_ms until_ms);

/* Add a grant of another table, with its own fence, which is not above the floor. It belongs to
 * the session; without a session (NULL) it must be leased, and its session is 0. Grants may come
 * in any order, whatever is held: capacity and the limits of the table do not apply, and until
 * all that is held fits, no request is granted. If the grant is here already, the later end of
 * its lease counts, and nothing else changes. To be called during a recovery. EINVAL: no such
 * grant is possible; or it has no lease and is another session's; or it is another user's; or it
 * was added without a session and now comes with one. ETOOBIG, ENOMEM. */
int sl_table_reclaim(struct sl_table *t, struct sl_now now, struct sl_session *s,
                     const struct sl_grant_view *v, struct sl_bytes key);

/* A grant without a lease belongs to this session from now on. ENOENT: there is none; EINVAL: the
 * session has ended; ENOMEM. */
int sl_table_rebind(struct sl_table *t, struct sl_now now, struct sl_session *s,
                    struct sl_bytes key, sl_fence fence);

/* As sl_table_reclaim(), without a session: for a table that was stored in a file. */
int sl_table_restore(struct sl_table *t, struct sl_now now,
                     const struct sl_grant_view *v, struct sl_bytes key);

/* The next effect of time and of earlier changes. False: there is none; then no waiter could be
 * granted, and all leases that have ended are gone. A caller that must not block may stop early
 * and continue later. */
bool sl_table_next(struct sl_table *t, struct sl_now now, struct sl_effect *out);

/* When sl_table_next() next has an effect without another change, or SL_NEVER. */
sl_ms sl_table_due(const struct sl_table *t);

/* Drop all holders, waiters, watchers, drains and marks, without effects. The lists of sessions are
 * empty then; SL_EFFECT_SESSION_OVER follows for those that have ended. Limits, fences, recovery
 * and authority stay as they are. */
void sl_table_reset(struct sl_table *t);

/* --- Queries -------------------------------------------------------------- */

/* How many fences are left below the limit; 0 also if a request lacks one because the clock is
 * beyond the limit. */
sl_fence sl_table_fences_left(const struct sl_table *t);

/* Whether the key is held now under this fence. */
bool sl_table_holds(const struct sl_table *t, struct sl_now now, struct sl_bytes key,
                    sl_fence fence);

/* The drained pattern at position i, from 0, oldest first, borrowed until the next change;
 * false: there are no more. */
bool sl_table_drains(const struct sl_table *t, uint32_t i, struct sl_bytes *out);

/* Whether a key matches a drained pattern. */
bool sl_table_drained(const struct sl_table *t, struct sl_bytes key);

/* A holder or a waiter. Bytes are borrowed until the next change. */
struct sl_grant_view {
    bool waits, shared, leased, broken;
    bool overlapping; /* It was granted next to a holder that may not know. */
    bool asked;       /* A thief waits for its release, or was granted next to it. */
    bool steals;      /* A waiter that steals. */
    sl_fence fence;
    uint64_t session_id;
    uint32_t user;
    uint32_t units, per, buckets;
    int32_t priority;
    sl_ms
        left_ms; /* Until the lease expires, or the wait times out; SL_NEVER: never. */
    sl_ms since_ms; /* How long it has held or waited. */
    struct sl_bytes value, note;
    struct sl_bytes name, address; /* Of its client; empty: unknown. */
};

struct sl_lock_view {
    struct sl_bytes key;
    uint64_t held;
    uint32_t holders, waiters, watchers;
    uint32_t asked;  /* Holders that are asked to release. */
    sl_ms waited_ms; /* How long the oldest waiter has waited; -1: there is none. */
    struct sl_grant_view holder; /* The oldest one, if there are holders. */
    bool shared, drained, next_overlaps;
    bool reserved; /* By a waiter that steals, with this priority: */
    int32_t reserved_priority;
};

/* False: the key has no lock. */
bool sl_table_inspect(struct sl_table *t, struct sl_now now, struct sl_bytes key,
                      struct sl_lock_view *out);

/* Holders by fence, then waiters in the order of the queues. Set *cursor to 0 first; false: that
 * was all. Not across changes of the table. */
bool sl_table_each(const struct sl_table *t, struct sl_now now, struct sl_bytes key,
                   uint64_t *cursor, struct sl_grant_view *out);

/* A cursor before the first waiter. */
#define SL_EACH_WAITER (1ull << 32)

/* The grant with this fence; false: it is not held. */
bool sl_table_inspect_grant(const struct sl_table *t, struct sl_now now,
                            struct sl_bytes key, sl_fence fence,
                            struct sl_grant_view *out);

/* The grant with the highest fence; false: the key is not held. */
bool sl_table_newest(struct sl_table *t, struct sl_now now, struct sl_bytes key,
                     struct sl_grant_view *out);

/* All keys: set *cursor to 0 first; when it is 0 again, that was all. Returns at least once each
 * key that exists all the time. Returns how many it has filled. */
size_t sl_table_scan(const struct sl_table *t, struct sl_now now, uint64_t *cursor,
                     struct sl_lock_view *out, size_t max);

/* Keys with waiters, the longest wait first. Works like sl_table_scan(). A key whose oldest waiter
 * changes meanwhile may be returned again, or not at all. */
size_t sl_table_scan_waited(const struct sl_table *t, struct sl_now now,
                            uint64_t *cursor, struct sl_lock_view *out, size_t max);

struct sl_table_stats {
    size_t keys;
    size_t entries; /* Waiters, watchers, and holders that are not inline. */
    size_t waiters; /* Without watchers. */
    size_t drains;
    size_t bytes; /* Of the index and the heap. */
    sl_fence fence_last, fence_limit;
    sl_ms recovering_until_ms; /* 0: no recovery. */
    sl_ms authority_until_ms;  /* SL_NEVER: no end. */
};
void sl_table_stats(const struct sl_table *t, struct sl_table_stats *out);

/* The approximate memory of the table, with the overhead of malloc(). */
size_t sl_table_bytes(const struct sl_table *t);

/* Aborts, naming the invariant, if one is broken. For tests: it visits everything. */
void sl_table_check(const struct sl_table *t);

#endif /* SL_LOCKS_TABLE_H */
