/* table.h - the lock table: who holds what, who waits, who is next.
 *
 * The table is a value. It reads no clock, opens no file, sends no byte and draws no
 * random number: time comes in as an argument, and what follows from it is asked for with
 * sl_table_next(). The same code runs in the server, in the keeper of a cluster and in
 * the simulator. src/locks/README.md has the rules of granting and why they are fair.
 *
 *     acquire --fits--> HOLDS --release, end of lease, end of session, break--> (gone)
 *        |                ^
 *        +--WAIT--> WAITS-+--time is over, session ended--> (gone)
 *
 * Invariants, checked by sl_table_check() and named in tests:
 *
 *   I1  the units counted on a lock are the sum of its holders'
 *   I2  shared holders and others are never on one lock together, but beside one that was
 *       robbed, or given by another table
 *   I3  a line is in order of arrival, and lines of one priority in that of their first
 *   I4  nobody waits who could be granted, once sl_table_next() has nothing to tell; unless
 *       nothing is granted at all, for lack of fences, of authority or of the end of a
 *       silence, and then all are looked at when that is over
 *   I5  fences rise over the whole table and stay below 2^53
 *   I6  a lock that nobody holds, waits for or watches is not in the table, unless its
 *       next grant is to be marked as overlapping, for a time
 *   I7  an entry has a place in the heap if and only if its end is not SL_NEVER; in that
 *       of its crowd, if it is also counted there
 *   I8  what a session holds without a lease, waits for or watches is on its list
 *   I9  who is asked to go has less priority than the thief, and is not of its session
 *
 * Not thread-safe: one table, one thread. */
#ifndef SL_LOCKS_TABLE_H
#define SL_LOCKS_TABLE_H

#include "base/hash.h"
#include "base/types.h"
#include "sluice.h"

struct sl_table;      /* Opaque. */
struct sl_grant_view; /* Below. */

/* Bounds on what peers can make us keep. */
struct sl_table_limits {
    uint32_t keys_max;
    uint32_t waiters_max;     /* Of one key; watchers count as well. */
    uint32_t key_bytes_max;   /* At most 65535; so are the next. */
    uint32_t value_bytes_max; /* Of a value, and of a note. */
    uint32_t drains_max;
    sl_ms grain_ms; /* `now` may be late by less than this. 0: it is exact. */
};

/* Who asks. The caller keeps it, at one place, from sl_session_begin() until
 * sl_table_next() has told SL_EFFECT_SESSION_OVER. */
struct sl_session {
    uint64_t id;   /* Never used twice. */
    uint32_t user; /* Leased grants may be used by every session of their user. */
    bool ended;
    struct sl_list mine; /* What it holds without a lease, waits for and watches. */
    struct sl_list over; /* Among those that have ended. */
};

struct sl_want {
    struct sl_bytes key; /* Borrowed for the call, as all bytes; the table copies. */
    bool shared;
    uint32_t per, buckets; /* The room; 1 and 1 make a mutex. */
    uint32_t units;
    int32_t priority;
    sl_ms wait_ms;   /* 0: answer now. SL_NEVER: without end. */
    sl_ms waited_ms; /* So long it was on its way here; wait_ms is what is left. */
    sl_ms lease_ms;  /* 0: none; it ends with its session. */
    struct sl_bytes value, note;
    bool steal;     /* While it waits: holders of lower priority are asked to go. */
    sl_ms force_ms; /* With steal: after so long it enters beside them; SL_NEVER. */
};

/* A grant, as its holder is told. */
struct sl_grant {
    sl_fence fence;
    uint64_t held; /* Units now counted on the lock: this is the how-manieth. */
    sl_ms lease_ms;
    sl_ms waited_ms;
    bool overlapping; /* Another was broken or robbed, and its holder may not know. */
};

/* A grant that is over. */
struct sl_ended {
    sl_fence fence;
    uint64_t session_id; /* Who had taken it. */
    sl_ms held_ms;
    bool broken;    /* It had been broken before. */
    bool leased;    /* Of RELEASE. */
    sl_ms asked_ms; /* For how long a thief had been waiting for it to go; -1: none. */
};

/* What became of something without being asked for in this moment. */
enum sl_effect_type {
    SL_EFFECT_NOTHING, /* Of interest to anybody; but there was work, and may be more. */
    SL_EFFECT_GRANTED,     /* A waiter holds now. */
    SL_EFFECT_TIMED_OUT,   /* A waiter or watcher has waited as long as it wished to. */
    SL_EFFECT_EXPIRED,     /* A lease ran out. */
    SL_EFFECT_ENDED,       /* A grant without a lease ended with its session. */
    SL_EFFECT_REFUSED,     /* A waiter is told that its key is drained. */
    SL_EFFECT_SEEN,        /* What a watcher waited for is so. */
    SL_EFFECT_ASKED,       /* A holder is to go: a thief waits for it. */
    SL_EFFECT_WITHDRAWN,   /* It is not to go any more. */
    SL_EFFECT_STOLEN,      /* A thief has entered beside it. */
    SL_EFFECT_THIEF_WAITS, /* A thief has taken a reservation over: for whom it waits. */
    SL_EFFECT_SESSION_OVER, /* Nothing is left of an ended session; it may be freed. */
};

struct sl_effect {
    enum sl_effect_type type;
    struct sl_bytes key; /* Borrowed from the table until the next call. */
    struct sl_session
        *session;          /* Of GRANTED, TIMED_OUT, REFUSED, SEEN, SESSION_OVER; of
                                   ASKED and THIEF_WAITS the thief's. */
    struct sl_grant grant; /* Of GRANTED. */
    struct sl_ended past;  /* Of EXPIRED, ENDED; of ASKED, WITHDRAWN, STOLEN so far. */
    struct sl_bytes note;  /* Of ASKED: the holder's, */
    sl_ms left_ms;         /* what is left of its lease (SL_NEVER: it has none), */
    int32_t priority;      /* and the thief's priority. */
};

/* --- Life ----------------------------------------------------------------- */

/* A new, empty table, owned by the caller; NULL when out of memory. Copies limits. The
 * key must be random and secret, or clients can choose keys that collide. */
struct sl_table *sl_table_new(const struct sl_table_limits *limits,
                              struct sl_hash_key key);
void sl_table_free(struct sl_table *t); /* NULL is allowed. */

void sl_session_begin(struct sl_session *s, uint64_t id, uint32_t user);

/* The session is gone: what it waits for is withdrawn and what it holds without a lease
 * is given back, piece by piece, by sl_table_next(). SL_EFFECT_SESSION_OVER is the last of it. */
void sl_table_session_end(struct sl_table *t, struct sl_session *s);

/* The session's connection is gone, but what it holds stays for now: what it waits for or
 * watches (the last thing it asked for) is withdrawn at once, without a word. Who was held
 * back by it may be next, which sl_table_next() tells. */
void sl_table_withdraw(struct sl_table *t, struct sl_session *s);

/* Whether it holds something without a lease. */
/* Whether something is left of sessions that have ended; sl_table_next() removes it. */
bool sl_table_ends_sessions(const struct sl_table *t);

bool sl_session_holds(const struct sl_session *s);

/* --- Change --------------------------------------------------------------- */

/* Ask for units of a key. SLUICE_OK: granted, *out is filled. SL_WAITS: it waits, and
 * one of SL_EFFECT_GRANTED, SL_EFFECT_TIMED_OUT, SL_EFFECT_REFUSED follows, or the session ends. SLUICE_EFULL:
 * taken, and no wish to wait. ETOOBIG, EINVAL, EDRAINED, EDEADLOCK (it would wait for what
 * it alone holds), EKEYS, EWAITERS, EFENCES, ERECOVERING, ENOKEEPER, ENOMEM. */
int sl_table_acquire(struct sl_table *t, struct sl_now now, struct sl_session *s,
                     const struct sl_want *want, struct sl_grant *out);
#define SL_WAITS 1

/* What sl_table_acquire() would say, but for a lack of memory or of places. Nothing is
 * changed. */
int sl_table_judge(struct sl_table *t, struct sl_now now, const struct sl_session *s,
                   const struct sl_want *want);

/* Give a grant back: that of the fence, if it is this session's or leased to its user;
 * with fence 0 the newest that this session took. 1, and *out is what it was; 0: there is
 * none. */
int sl_table_release(struct sl_table *t, struct sl_now now, const struct sl_session *s,
                     struct sl_bytes key, sl_fence fence, struct sl_ended *out);

/* Push the end of a lease back to now + ms; never forward. With a value that has at ==
 * NULL the old one stays. SLUICE_OK, and *lease_ms is what is left; ELOST: not held under
 * this fence by this user, or broken; EASKED: a thief waits for it; ENOKEEPER: the table has
 * no authority; ENOLEASE; ETOOBIG; EINVAL; ENOMEM. */
int sl_table_extend(struct sl_table *t, struct sl_now now, const struct sl_session *s,
                    struct sl_bytes key, sl_fence fence, sl_ms ms,
                    struct sl_bytes value, sl_ms *lease_ms);

/* A grant that SL_EFFECT_GRANTED has just told of goes back, since nobody can be told: the next
 * one is as it would have been without it. */
void sl_table_take_back(struct sl_table *t, struct sl_now now, struct sl_session *s,
                        struct sl_bytes key, const struct sl_grant *grant);

/* An operator takes a grant away: at once if it has no lease or `at_once`, and the next
 * grant is then marked, if it comes before the broken one would have ended (SL_MARK_MS
 * without a lease); else it is only not extended any more. 2: gone, *out is what it
 * was. 1: its lease is its last, *out is what it has been so far. 0: there is none. */
int sl_table_break(struct sl_table *t, struct sl_now now, struct sl_bytes key,
                   sl_fence fence, bool at_once, struct sl_ended *out);

#define SL_MARK_MS 600000

/* Wait until a key is free (or held). SLUICE_OK: it is so. SL_WAITS: SL_EFFECT_SEEN or
 * SL_EFFECT_TIMED_OUT follows. SLUICE_EFULL: it is not so, and no wish to wait. EINVAL, ETOOBIG,
 * EKEYS, EWAITERS, ERECOVERING (what is free is not known yet), ENOKEEPER (nor now, and no
 * wish to wait), ENOMEM. */
int sl_table_await(struct sl_table *t, struct sl_now now, struct sl_session *s,
                   struct sl_bytes key, bool free, sl_ms wait_ms);

/* Grant nothing more on keys that match, or do again. Who waits there is refused.
 * SLUICE_OK: that is a change; ENOENT: it was so already; EINVAL, ETOOBIG: no such pattern;
 * EFULL: too many of them; ENOMEM. */
int sl_table_drain(struct sl_table *t, struct sl_bytes glob, bool on);

/* Fences are above the floor from now on, and never above the limit: what is to survive a
 * crash is written down before. Where a grant would need one above it, acquire says EFENCES
 * and who waits goes on waiting, until the limit is raised. At first there is no limit. */
void sl_table_set_fences(struct sl_table *t, sl_fence floor, sl_fence limit);

/* Nothing is granted before this time, as a table that was lost may have given leases until
 * then. Who asks without waiting is told ERECOVERING; others stand in line, and are looked at
 * when it is over. 0: now. */
void sl_table_recover(struct sl_table *t, sl_ms until_ms);

/* Nothing is granted, and no lease extended, at or after this time, by the `now` of each call:
 * from then on another table may have the authority to. SL_NEVER, as at first: it has no end.
 * Who asks without waiting is told ENOKEEPER; others stand in line, and are looked at when
 * the time is set to a later one. Nobody is told that a key is free meanwhile. Leases and
 * waits end, and grants are given back, broken and looked at as ever. A silence goes on beside
 * it; and if both hold, ENOKEEPER is what is said. */
void sl_table_set_authority(struct sl_table *t, sl_ms until_ms);

/* A grant that another table gave is held in this one, as it was seen, with its own fence,
 * which is not above the floor. It is the session's; with NULL it must be leased, and nobody
 * has taken it (session 0). It may come in any order, whoever holds, waits, or has room: until
 * all that is held fits, nobody else is granted. Nor do the limits of the table apply. If it
 * is held already, of two ends of its lease the later one counts, and nothing else changes.
 * To be called while the table is quiet. EINVAL: there is no such grant; or it has no lease
 * and is another session's; or it is another user's; or nobody has taken it and now a session
 * says so. ETOOBIG, ENOMEM. */
int sl_table_reclaim(struct sl_table *t, struct sl_now now, struct sl_session *s,
                     const struct sl_grant_view *v, struct sl_bytes key);

/* A grant without a lease is this session's from now on. ENOENT: there is none; EINVAL: the
 * session has ended. */
int sl_table_rebind(struct sl_table *t, struct sl_now now, struct sl_session *s,
                    struct sl_bytes key, sl_fence fence);

/* As sl_table_reclaim(), of a table that was written down: nobody has taken it. */
int sl_table_restore(struct sl_table *t, struct sl_now now,
                     const struct sl_grant_view *v, struct sl_bytes key);

/* What follows from the time and from earlier changes, one thing a call, until it
 * returns false: then nobody waits who could be granted, and no lease lives that is over.
 * A caller that must not be kept may stop early and come back. */
bool sl_table_next(struct sl_table *t, struct sl_now now, struct sl_effect *out);

/* When sl_table_next() next has something to tell by itself, or SL_NEVER. */
sl_ms sl_table_due(const struct sl_table *t);

/* All that is held, waited for, watched, drained or marked is gone, and nobody is told. Nothing
 * is left on the lists of sessions; SL_EFFECT_SESSION_OVER follows for those that have ended. Limits,
 * fences, the silence and the authority stay as they are. */
void sl_table_reset(struct sl_table *t);

/* --- Ask ------------------------------------------------------------------ */

/* How many fences there are before the limit; 0 also if somebody lacks one because the
 * clock is beyond it. */
sl_fence sl_table_fences_left(const struct sl_table *t);

/* Whether a grant is held now. */
bool sl_table_holds(const struct sl_table *t, struct sl_now now, struct sl_bytes key,
                    sl_fence fence);

/* The i-th pattern of the drains, from 0, oldest first, borrowed until the next change;
 * false: there are no more. */
bool sl_table_drains(const struct sl_table *t, uint32_t i, struct sl_bytes *out);

/* Whether a key matches one of them. */
bool sl_table_drained(const struct sl_table *t, struct sl_bytes key);

/* One who holds or waits. All is borrowed until the next change. */
struct sl_grant_view {
    bool waits, shared, leased, broken;
    bool overlapping; /* It was granted beside another whose holder may not know. */
    bool asked;       /* A thief waits for it to go, or has entered beside it. */
    bool steals;      /* Of one who waits. */
    sl_fence fence;
    uint64_t session_id;
    uint32_t user;
    uint32_t units, per, buckets;
    int32_t priority;
    sl_ms left_ms;  /* Of the lease, or of the wait; SL_NEVER: no end. */
    sl_ms since_ms; /* For how long it has held or waited. */
    struct sl_bytes value, note;
};

struct sl_lock_view {
    struct sl_bytes key;
    uint64_t held;
    uint32_t holders, waiters, watchers;
    uint32_t asked; /* Holders who are asked to go. */
    bool shared, drained, next_overlaps;
    bool reserved; /* By one who waits and steals, */
    int32_t reserved_priority;
};

/* False if nobody has to do with the key. */
bool sl_table_inspect(struct sl_table *t, struct sl_now now, struct sl_bytes key,
                      struct sl_lock_view *out);

/* Holders by fence, then waiters in the order in which they are considered. Set *cursor
 * to 0 first; false: that was all. No change may come between. */
bool sl_table_each(const struct sl_table *t, struct sl_now now, struct sl_bytes key,
                   uint64_t *cursor, struct sl_grant_view *out);

/* A cursor that stands before the first waiter. */
#define SL_EACH_WAITER (1ull << 32)

/* The grant of a fence; false: it is not held. */
bool sl_table_inspect_grant(const struct sl_table *t, struct sl_now now,
                            struct sl_bytes key, sl_fence fence,
                            struct sl_grant_view *out);

/* The grant with the highest fence; false if nobody holds the key. */
bool sl_table_newest(struct sl_table *t, struct sl_now now, struct sl_bytes key,
                     struct sl_grant_view *out);

/* All keys: *cursor 0 first, and when it is 0 again that was all. What is there all the
 * while is seen at least once. Returns how many. */
size_t sl_table_scan(const struct sl_table *t, struct sl_now now, uint64_t *cursor,
                     struct sl_lock_view *out, size_t max);

struct sl_table_stats {
    size_t keys;
    size_t entries; /* Waiters, watchers, and holders that need more than a seat. */
    size_t waiters; /* Without watchers. */
    size_t drains;
    size_t bytes; /* Of indexes, not of what malloc adds. */
    sl_fence fence_last, fence_limit;
    sl_ms recovering_until_ms; /* 0: it grants; */
    sl_ms authority_until_ms;  /* until then, that is. SL_NEVER: it has no end. */
};
void sl_table_stats(const struct sl_table *t, struct sl_table_stats *out);

/* Bytes of all that is in it, what malloc adds included, as near as it is known at once. */
size_t sl_table_bytes(const struct sl_table *t);

/* Abort, naming the invariant, if one is broken. O(entries). */
void sl_table_check(const struct sl_table *t);

#endif /* SL_LOCKS_TABLE_H */
