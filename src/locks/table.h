/* table.h - the lock table: holders, waiters, and which waiter is next.
 *
 * The table has no side effects. It reads no clock, opens no file, sends no data and
 * draws no random number. The time is an argument of each call, and sl_table_next()
 * returns the effects one by one. The same code runs in the server, in the keeper of
 * a cluster and in the simulator. README.md states the rules for granting and why
 * they are fair.
 *
 *     acquire --fits--> HOLDING --release, expiry, end of the session, break--> (gone)
 *        |                 ^
 *        +--WAIT--> WAITING+--timeout, end of the session--> (gone)
 *
 * Invariants, which sl_table_check() checks:
 *
 *   I1  the units counted on a lock are the sum of its holders' units
 *   I2  shared holders and other holders never hold a lock at the same time, unless a thief
 *       got the lock by force or another table granted one of them
 *   I3  each wait queue is in order of arrival, and the queues of one priority are in the
 *       order in which their heads arrived
 *   I4  when sl_table_next() has no more effects, no waiter could get its lock. Exception:
 *       while the table may not grant (no fences, no authority, or a recovery); when that
 *       ends, the table rechecks all waiters
 *   I5  fences increase over the whole table and stay below 2^53
 *   I6  a lock without holders, waiters and watchers is not in the table, unless it has an
 *       overlap mark, which lasts for a limited time
 *   I7  an entry is in the table's heap if and only if it has an end or a force time; a
 *       holder with an end is also in its roster's heap
 *   I8  the list of a session contains its grants without a lease, its waiters and its
 *       watchers; and the counters of entries and memory are exact
 *   I9  a holder that is asked to release has a lower priority than the thief, and belongs
 *       to another session, unless the thief has `notify`
 *   I10 a lock with waiters is in the order of waits, at the position of its oldest waiter
 *   I11 every grant and every waiter refers to its client, and all references are counted
 *   I12 an entry and the acquisition that it belongs to (requests.h) refer to each other; attempts
 *       have joined only an acquisition that waits, or that sl_table_next() answers next
 *
 * Not thread-safe: use a table from one thread only. */
#ifndef SL_LOCKS_TABLE_H
#define SL_LOCKS_TABLE_H

#include "base/hash.h"
#include "base/types.h"
#include "sluice.h"

struct sl_table;      /* Opaque. */
struct sl_client;     /* client.h */
struct sl_grant_view; /* Defined below. */
struct sl_table_recorder;

/* Limits on what clients can store in the table. */
struct sl_table_limits {
    uint32_t keys_max;
    uint32_t waiters_max;     /* Waiters and watchers of one key. */
    uint32_t key_bytes_max;   /* At most 65535, like value_bytes_max. */
    uint32_t value_bytes_max; /* The limit for a value, and for a note. */
    uint32_t drains_max;
    uint32_t
        requests_max; /* Acquisitions with an id, including those that have ended. */
    sl_ms request_keep_ms; /* How long the id of an ended acquisition is kept. */
    sl_ms
        linger_ms; /* How long a position is kept for a request with an id (sl_table_lose()). */
    sl_ms grain_ms; /* `now` may lag by less than this. 0: it is exact. */
};

/* A client's session. The caller keeps it at one address from sl_session_begin()
 * until sl_table_next() has returned SL_EFFECT_SESSION_OVER. */
struct sl_session {
    uint64_t id;   /* Never reused. */
    uint32_t user; /* All sessions of a user may use its grants with a lease. */
    bool ended;
    /* The client of another node: a random number that its node has given to it, under which
     * every keeper knows the grants of this client (failover/README.md). 0: none. Set it before
     * sl_table_describe(). */
    uint64_t origin;
    struct sl_client *client; /* Name and address; NULL: not described yet. */
    struct sl_list mine;      /* Grants without a lease, waiters and watchers. */
    struct sl_list over;      /* In the table's list of ended sessions. */
};

struct sl_want {
    struct sl_bytes key; /* The table copies this and the other bytes. */
    bool shared;
    uint32_t per, buckets; /* The capacity is per * buckets; 1 * 1 is a mutex. */
    uint32_t units;
    int32_t priority;
    sl_ms wait_ms;   /* 0: do not wait. SL_NEVER: no timeout. */
    sl_ms waited_ms; /* Time since the client sent the request; wait_ms is the rest. The
                      * position in the queue counts from then. */
    uint64_t
        number; /* From sl_table_next_number(), when the request arrived: its position among
                       * those of the same millisecond. 0: after those that are queued. */
    sl_ms lease_ms; /* 0: no lease; the grant ends with its session. */
    struct sl_bytes value, note;
    bool steal;     /* While waiting, ask lower-priority holders to release. */
    sl_ms force_ms; /* With steal: grant by force after this time, or SL_NEVER. */
    struct sl_bytes request; /* The id of this acquisition (requests.h); n 0: none. */
    uint64_t digest; /* Of all options that each attempt must have; below 2^53. */
    uint64_t ticket; /* The caller's number of this attempt, for its effects. */
    bool
        notify; /* While the attempt waits, the session can release its other grants. */
    struct sl_acquisition *named; /* Private. */
};

/* A grant, as its holder sees it. */
struct sl_grant {
    sl_fence fence;
    uint64_t held; /* Units held, including this grant; or shared holders. */
    sl_ms lease_ms;
    sl_ms waited_ms;
    bool overlapping; /* A broken or stolen grant may still be in use. */
    bool replay;      /* An earlier attempt with the same id acquired it. */
    /* A replay without a lease: the session that held it before this attempt; 0: none. */
    uint64_t moved_from;
};

/* A grant that has ended. */
struct sl_ended {
    sl_fence fence;
    uint64_t session_id; /* The session that acquired it. */
    sl_ms held_ms;
    bool broken;    /* BREAK was called for it before it ended. */
    bool leased;    /* It had a lease. Only set for a release. */
    sl_ms asked_ms; /* How long ago it was asked to release; -1: never. */
};

enum sl_effect_type {
    SL_EFFECT_NOTHING,   /* The table did internal work; call again. */
    SL_EFFECT_GRANTED,   /* A waiter was granted the lock. */
    SL_EFFECT_TIMED_OUT, /* A waiter or watcher has timed out. */
    SL_EFFECT_EXPIRED,   /* A lease expired. */
    SL_EFFECT_ENDED,     /* A grant without a lease ended with its session. */
    SL_EFFECT_REFUSED,   /* A waiter is rejected because its key is drained. */
    SL_EFFECT_CANCELLED, /* The acquisition of a waiter has ended: it was cancelled. */
    SL_EFFECT_SEEN,      /* The condition of a watcher is true. */
    SL_EFFECT_ASKED,     /* A holder is asked to release for a thief. */
    SL_EFFECT_WITHDRAWN, /* The holder need not release any more. */
    SL_EFFECT_STOLEN,    /* A thief got the lock by force; tell the holder. */
    SL_EFFECT_THIEF_WAITS,  /* Another thief took over the reservation. */
    SL_EFFECT_SESSION_OVER, /* An ended session has nothing left: free it. */
};

struct sl_effect {
    enum sl_effect_type type;
    struct sl_bytes key;        /* Borrowed from the table until the next call. */
    struct sl_session *session; /* GRANTED, TIMED_OUT, REFUSED, CANCELLED, SEEN,
                            * SESSION_OVER; ASKED, THIEF_WAITS: the thief's session. */
    uint64_t ticket;            /* GRANTED, TIMED_OUT, REFUSED, CANCELLED, SEEN. */
    struct sl_grant grant;      /* GRANTED. */
    struct sl_ended past; /* EXPIRED, ENDED, ASKED, WITHDRAWN, STOLEN: the grant. */
    struct sl_bytes note; /* ASKED: the holder's note. */
    sl_ms left_ms;        /* ASKED: the rest of the lease; SL_NEVER: no lease. */
    int32_t priority;     /* ASKED: the thief's priority. */
};

/* --- Creation, destruction and sessions ----------------------------------- */

/* Create an empty table. Returns NULL when out of memory. The hash key must be random
 * and secret; otherwise clients could choose names of locks that collide. */
struct sl_table *sl_table_new(const struct sl_table_limits *limits,
                              struct sl_hash_key key);
void sl_table_free(struct sl_table *t); /* NULL is allowed. */

void sl_session_begin(struct sl_session *s, uint64_t id, uint32_t user);

/* Set the client's name and address for the grants and waits that begin from now on.
 * Copies both. Returns SLUICE_OK or SLUICE_ENOMEM. */
int sl_table_describe(struct sl_table *t, struct sl_session *s, struct sl_bytes name,
                      struct sl_bytes address);

/* End a session. sl_table_next() then withdraws its requests and releases its grants
 * without a lease, one in each call, and finally returns SL_EFFECT_SESSION_OVER. */
void sl_table_session_end(struct sl_table *t, struct sl_session *s);

/* Withdraw the session's pending request (a waiter or a watcher) immediately,
 * without an effect. The session keeps its grants. The table forgets the id of the request. */
void sl_table_withdraw(struct sl_table *t, struct sl_session *s);

/* Withdraw the request of the session with this ticket, because nobody can receive the answer. If the
 * request has an id (n > 0), its position in the queue is kept for linger_ms, for the next attempt. If no
 * attempt follows, its acquisition ends. */
void sl_table_lose(struct sl_table *t, struct sl_now now, struct sl_session *s,
                   uint64_t ticket, struct sl_bytes key, struct sl_bytes id);

/* Whether there are ended sessions that sl_table_next() has not completely removed
 * yet. */
bool sl_table_ends_sessions(const struct sl_table *t);

/* Whether the session has a grant without a lease. */
bool sl_session_holds(const struct sl_session *s);

/* --- Changes -------------------------------------------------------------- */

/* Return the position of a request that arrives now, if the caller makes it later. */
uint64_t sl_table_next_number(struct sl_table *t);

/* Request units of a key. Returns
 *
 *     SLUICE_OK       granted; *out is filled in
 *     SL_WAITS        queued; SL_EFFECT_GRANTED, SL_EFFECT_TIMED_OUT or SL_EFFECT_REFUSED
 *                     follows, unless the session ends
 *     SLUICE_EFULL    the request does not fit, and wait_ms is 0
 *     EDEADLOCK       the session would wait for a lock that it alone holds, and the
 *                     request has no `notify`
 *
 * With an id (want->request), also
 *
 *     SLUICE_OK       an earlier attempt was granted the lock; out->replay is set. A grant
 *                     without a lease belongs to this session now
 *     SL_WAITS        the attempt waits together with earlier ones that still wait. When the
 *                     lock is granted, SL_EFFECT_GRANTED follows for each of them
 *     EENDED          the acquisition has ended
 *     EMISMATCH       an earlier attempt had other options
 *     EREQUESTS       the table remembers too many ids
 *
 * or ETOOBIG, EINVAL, EDRAINED, EKEYS, EWAITERS, EFENCES, ERECOVERING, ENOKEEPER,
 * ENOMEM. */
int sl_table_acquire(struct sl_table *t, struct sl_now now, struct sl_session *s,
                     const struct sl_want *want, struct sl_grant *out);
#define SL_WAITS 1

/* Whether the request repeats an acquisition that is held, so that sl_table_acquire() returns its grant. */
bool sl_table_repeats(const struct sl_table *t, const struct sl_session *s,
                      const struct sl_want *want);

/* Returns the status that sl_table_acquire() would return, except EDEADLOCK, EKEYS,
 * EWAITERS and ENOMEM. Grants and queues nothing. */
int sl_table_judge(struct sl_table *t, struct sl_now now, const struct sl_session *s,
                   const struct sl_want *want);

/* Cancel the acquisition of the session's user with this id, so that no later attempt is granted the
 * lock. Returns 1 if the acquisition waited or was absent (sl_table_lose()); SL_EFFECT_CANCELLED follows
 * for each attempt that waits. Returns 2 if it was held: the grant has ended, and *out is filled in.
 * Returns 0 if it had already ended, or is unknown; ENOKEEPER or ERECOVERING if it is unknown, and
 * another table may know it; or EREQUESTS, EINVAL, ENOMEM. */
int sl_table_cancel(struct sl_table *t, struct sl_now now, const struct sl_session *s,
                    struct sl_bytes key, struct sl_bytes id, struct sl_ended *out);

/* Release the grant with this fence, if the session acquired it, or if it has a
 * lease and belongs to the session's user. With fence 0, release the newest grant
 * that the session acquired. Returns 1 and fills in *out, or 0 if there is no such
 * grant. */
int sl_table_release(struct sl_table *t, struct sl_now now, const struct sl_session *s,
                     struct sl_bytes key, sl_fence fence, struct sl_ended *out);

/* Extend a lease to now + ms. A lease never becomes shorter. If value.at is NULL,
 * the value does not change. Returns SLUICE_OK and sets *lease_ms to the remaining
 * time; ELOST if the session's user does not hold the key under this fence, or the
 * grant was broken; EASKED if a thief waits for the grant; ENOKEEPER if the table
 * has no authority; or ENOLEASE, ETOOBIG, EINVAL, ENOMEM. */
int sl_table_extend(struct sl_table *t, struct sl_now now, const struct sl_session *s,
                    struct sl_bytes key, sl_fence fence, sl_ms ms,
                    struct sl_bytes value, sl_ms *lease_ms);

/* Undo an extension that its holder was not told of: if the lease still expires at
 * end_ms, it expires at before_ms again, and, unless value.at is NULL, has this value
 * again (if there is memory for it). */
void sl_table_undo_extend(struct sl_table *t, struct sl_now now, struct sl_bytes key,
                          sl_fence fence, sl_ms end_ms, sl_ms before_ms,
                          struct sl_bytes value);

/* Take back a grant that the last SL_EFFECT_GRANTED reported, because its client has
 * disconnected. The next grant is the same as if this one had never been made. If the grant has an
 * id, and other attempts wait for it, or a client knows it, it stays. Otherwise the table keeps
 * the position as in sl_table_lose(). Returns whether the grant has ended. */
bool sl_table_take_back(struct sl_table *t, struct sl_now now, struct sl_session *s,
                        struct sl_bytes key, const struct sl_grant *grant);

/* A repeated attempt has received this grant. So the grant does not end because the reply to the first
 * attempt cannot be delivered. */
void sl_table_known(struct sl_table *t, struct sl_now now, struct sl_bytes key,
                    sl_fence fence);

/* Like sl_table_take_back(), but for a grant that any session has acquired. */
void sl_table_undo_grant(struct sl_table *t, struct sl_now now, struct sl_bytes key,
                         sl_fence fence);

/* Take a grant away from its holder, for an operator. If the grant has no lease, or
 * at_once is set, it ends immediately, and an overlap mark is set: a grant that
 * follows before the lease would have expired (without a lease: within SL_MARK_MS)
 * is marked as overlapping. Otherwise the grant ends when its lease expires, and the
 * lease cannot be extended. Returns 2 if the grant has ended and 1 if it ends with
 * its lease, with the grant in *out; 0 if there is no such grant. */
int sl_table_break(struct sl_table *t, struct sl_now now, struct sl_bytes key,
                   sl_fence fence, bool at_once, struct sl_ended *out);

#define SL_MARK_MS 600000

/* Wait until a key is free, or held. Returns SLUICE_OK if it already is; SL_WAITS if
 * SL_EFFECT_SEEN or SL_EFFECT_TIMED_OUT follows; SLUICE_EFULL if it is not, and
 * wait_ms is 0; ERECOVERING if the table does not know yet which keys are free;
 * ENOKEEPER if the table has no authority to say that a key is free, and wait_ms is
 * 0; or EINVAL, ETOOBIG, EKEYS, EWAITERS, ENOMEM. */
int sl_table_await(struct sl_table *t, struct sl_now now, struct sl_session *s,
                   struct sl_bytes key, bool free, sl_ms wait_ms, uint64_t ticket);

/* Start or stop draining the keys that match a pattern. The table grants no request
 * for a drained key and rejects its waiters. Returns SLUICE_OK; ENOENT if nothing
 * changed; EINVAL or ETOOBIG if the pattern is invalid; EFULL if there are too many
 * patterns; or ENOMEM. */
int sl_table_drain(struct sl_table *t, struct sl_bytes glob, bool on);

/* Set the range of new fences: above floor, and not above limit, which the caller
 * has stored durably. If a grant needs a fence above the limit, sl_table_acquire()
 * returns EFENCES, and waiters stay queued until the limit is raised. Initially
 * there is no limit. */
void sl_table_set_fences(struct sl_table *t, sl_fence floor, sl_fence limit);

/* Grant nothing before this time, because a lost table may have granted leases that
 * are valid until then. Requests with wait_ms 0 get ERECOVERING; other requests are
 * queued. 0 ends the recovery now. */
void sl_table_recover(struct sl_table *t, sl_ms until_ms);

/* Until this time, another table may let the leases in this table expire, and grant their locks to
 * others. Until then, sl_table_extend() returns ERECOVERING for a lease that may expire before this
 * time. */
void sl_table_set_rival(struct sl_table *t, sl_ms until_ms);

/* Grant and extend nothing at or after this time (compared with the `now` of each
 * call), because another table may have the authority from then on. SL_NEVER, the
 * initial value, means no end. Without authority, requests with wait_ms 0 get
 * ENOKEEPER, even during a recovery; other requests are queued until a later time is
 * set. Watchers are not told that a key is free. Expiry, timeouts, release, break
 * and queries continue. */
void sl_table_set_authority(struct sl_table *t, sl_ms until_ms);

/* Add a grant that another table made, under its old fence, which must not be above
 * the floor. Call this during a recovery. The grant belongs to the session; if the
 * session is NULL, the grant must have a lease, and its session id is 0. Grants may
 * be added in any order. Capacity and the limits of the table do not apply to them,
 * but no request is granted until all holders together fit. If the grant is already
 * in the table, the later expiry applies, and the grant becomes broken or stolen if
 * the record says so. The lease expires at most v->left_ms from now, and is certainly valid until
 * v->unsure_ms before that: until then it can be extended. (The table may hold the
 * lock for a little longer than v->left_ms.)
 *
 * Returns SLUICE_OK; EINVAL if no such grant is possible, or it is in the table with
 * another user, or without a lease and with another session, or without a session
 * and is now added with one; or ETOOBIG, ENOMEM. */
int sl_table_reclaim(struct sl_table *t, struct sl_now now, struct sl_session *s,
                     const struct sl_grant_view *v, struct sl_bytes key);

/* Make a grant without a lease belong to this session. Returns SLUICE_OK; ENOENT if
 * there is no such grant; EINVAL if the session has ended; or ENOMEM. */
int sl_table_rebind(struct sl_table *t, struct sl_now now, struct sl_session *s,
                    struct sl_bytes key, sl_fence fence);

/* Like sl_table_reclaim() without a session, for a grant from a record. It expires exactly
 * at v->end_ms, unless that is 0. sl_table_restore_mark() restores an overlap mark, and
 * sl_table_restore_drain() a drained pattern. They ignore the limits of the table, which may have
 * been lowered. Call them before sl_table_set_recorder(). */
int sl_table_restore(struct sl_table *t, struct sl_now now,
                     const struct sl_grant_view *v, struct sl_bytes key);
int sl_table_restore_mark(struct sl_table *t, struct sl_now now, struct sl_bytes key,
                          sl_ms end_ms, bool is_long);
int sl_table_restore_drain(struct sl_table *t, struct sl_bytes glob);

/* Returns the next effect of time and of earlier changes in *out. Returns false if
 * there is none: then no waiter could get its lock, and no expired lease is left. A
 * caller that must not block for long may stop earlier and continue later. */
bool sl_table_next(struct sl_table *t, struct sl_now now, struct sl_effect *out);

/* Returns the time at which sl_table_next() will have an effect if nothing else
 * changes, or SL_NEVER. */
sl_ms sl_table_due(const struct sl_table *t);

/* Drop all holders, waiters, watchers, drains and overlap marks, without effects.
 * Afterwards the lists of all sessions are empty. For sessions that have ended,
 * SL_EFFECT_SESSION_OVER still follows. Limits, fences, recovery and authority do not
 * change. */
void sl_table_reset(struct sl_table *t);

/* --- Queries -------------------------------------------------------------- */

/* Returns the number of fences left below the limit. Returns 0 if a request could
 * not be granted because the clock is beyond the limit. */
sl_fence sl_table_fences_left(const struct sl_table *t);

/* Whether the key is currently held under this fence, and its lease is certainly valid
 * (sl_grant_view.unsure_ms). */
bool sl_table_holds(const struct sl_table *t, struct sl_now now, struct sl_bytes key,
                    sl_fence fence);

/* Whether the table may grant, extend, or report a key as free now, even if `now`
 * lags. */
bool sl_table_has_authority(const struct sl_table *t, struct sl_now now);

/* Get the drained pattern at position i (0 is the oldest). *out is borrowed until the
 * next change. Returns false if there are no more. */
bool sl_table_drains(const struct sl_table *t, uint32_t i, struct sl_bytes *out);

/* Whether a key matches a drained pattern. */
bool sl_table_drained(const struct sl_table *t, struct sl_bytes key);

/* A holder or a waiter. Bytes are borrowed until the next change. */
struct sl_grant_view {
    bool waits, shared, leased, broken;
    bool overlapping; /* Granted while another holder may still use the lock. */
    bool asked;       /* A thief waits for a release, or got the lock by force. */
    bool stolen;      /* A thief got the lock by force. */
    bool is_long;     /* What the recorder returned for its last record. */
    bool steals;      /* A waiter that steals. */
    sl_fence fence;
    uint64_t session_id;
    uint64_t origin; /* struct sl_session */
    uint32_t user;
    uint32_t units, per, buckets;
    int32_t priority;
    sl_ms end_ms;  /* When the lease expires or the wait times out, or SL_NEVER. */
    sl_ms left_ms; /* Time until expiry or timeout, or SL_NEVER. */
    /* For this long before its end, a lease that another table granted may already have expired; so
     * it cannot be extended. SL_NEVER: it cannot be extended at all. */
    sl_ms unsure_ms;
    sl_ms since_ms; /* How long it has held or waited. */
    struct sl_bytes value, note;
    struct sl_bytes name, address; /* The client's; empty if unknown. */
    struct sl_bytes request;       /* The id of the acquisition; empty: none. */
    uint64_t digest;               /* As in struct sl_want. */
};

struct sl_lock_view {
    struct sl_bytes key;
    uint64_t held;
    uint32_t holders, waiters, watchers;
    uint32_t asked;  /* Holders that have been asked to release. */
    sl_ms waited_ms; /* How long the oldest waiter has waited; -1: no waiters. */
    struct sl_grant_view holder; /* The oldest holder, if there are holders. */
    bool shared, drained, next_overlaps;
    bool reserved; /* A thief has reserved the lock. */
    int32_t reserved_priority;
};

/* Fill in *out. Returns false if there is no lock for the key. */
bool sl_table_inspect(struct sl_table *t, struct sl_now now, struct sl_bytes key,
                      struct sl_lock_view *out);

/* Iterate over the holders by fence, then over the waiters in the order of their
 * queues. Set *cursor to 0 before the first call. Returns false at the end. Do not
 * change the table meanwhile. */
bool sl_table_each(const struct sl_table *t, struct sl_now now, struct sl_bytes key,
                   uint64_t *cursor, struct sl_grant_view *out);

/* The cursor of the first waiter. */
#define SL_EACH_WAITER (1ull << 32)

/* Get the grant with this fence. Returns false if the key is not held under it. */
bool sl_table_inspect_grant(const struct sl_table *t, struct sl_now now,
                            struct sl_bytes key, sl_fence fence,
                            struct sl_grant_view *out);

/* Get the grant with the highest fence. Returns false if the key is not held. */
bool sl_table_newest(struct sl_table *t, struct sl_now now, struct sl_bytes key,
                     struct sl_grant_view *out);

/* Iterate over all keys. Set *cursor to 0 before the first call; the scan is
 * complete when *cursor is 0 again. A key that exists during the whole scan is
 * returned at least once. Returns the number of entries written to out. */
size_t sl_table_scan(const struct sl_table *t, struct sl_now now, uint64_t *cursor,
                     struct sl_lock_view *out, size_t max);

/* Iterate over the keys with waiters, longest wait first, like sl_table_scan(). A
 * key whose oldest waiter changes during the scan may be returned twice or not at
 * all. */
size_t sl_table_scan_waited(const struct sl_table *t, struct sl_now now,
                            uint64_t *cursor, struct sl_lock_view *out, size_t max);

/* --- Recording --------------------------------------------------------------- */

/* A grant with a lease, as a recorder sees it. */
struct sl_grant_change {
    struct sl_bytes key;
    sl_ms before_ms; /* The expiry in the last record of the grant; 0: it has none. */
    struct sl_grant_view grant;
};

/* The table calls a recorder for every change that must survive a restart, at the moment of
 * the change. So the end of a grant comes before the grant that uses its capacity: the recorder
 * learns of an expiry when the table stops counting the holder, even if sl_table_next() reports it
 * later. The functions must not call the table, and borrow all bytes. A request to release is not
 * recorded: its thief waits, and no waiter survives a restart. A grant that overlaps a forced
 * grant (`stolen`) is recorded.
 *
 * A record is *long* if it had to be durable before the change was reported (journal/journal.h).
 * The table stores this for the recorder. */
struct sl_table_recorder {
    void *arg;
    /* A grant with a lease begins or changes. Returns whether it is long. */
    bool (*put)(void *arg, const struct sl_grant_change *c);
    /* A grant with a lease ends, which would have expired at end_ms. */
    void (*end)(void *arg, struct sl_bytes key, sl_fence fence, sl_ms end_ms,
                bool is_long);
    /* A grant without a lease begins. It needs no record, because it ends with the server. */
    void (*unleased)(void *arg, struct sl_bytes key, sl_fence fence);
    /* An overlap mark is set, or lasts longer. `before_ms` is its end in the last record; 0: it has
     * none. Returns whether it is long. */
    bool (*mark)(void *arg, struct sl_bytes key, sl_ms end_ms, sl_ms before_ms,
                 bool is_long);
    void (*unmark)(void *arg, struct sl_bytes key, bool is_long);
    /* A pattern is drained, or not drained any more. */
    void (*drain)(void *arg, struct sl_bytes glob, bool on);
};

/* Set the recorder, which the table borrows. NULL: none. */
void sl_table_set_recorder(struct sl_table *t, const struct sl_table_recorder *r);

/* The position of a walk over everything that the recorder has. Zero-initialize it. */
struct sl_table_walk {
    uint32_t drains; /* The number of drained patterns visited. */
    bool in_keys;
    uint64_t cursor;
    char *key; /* The key of a lock of which some holders were visited; NULL: none. */
    size_t key_bytes;
    sl_fence fence; /* The last holder visited of that lock. */
};

/* Call put(), mark() and drain() of `to` for about `max` grants, marks and patterns. Its before_ms
 * is the expiry itself, and its results are ignored. The table may change between two calls;
 * whatever exists during the whole walk is visited. Returns 1 if there is more, 0 at the end, or
 * SLUICE_ENOMEM. Call sl_table_walk_end() in any case. */
int sl_table_walk(const struct sl_table *t, struct sl_now now, struct sl_table_walk *w,
                  const struct sl_table_recorder *to, size_t max);
void sl_table_walk_end(struct sl_table_walk *w);

struct sl_table_stats {
    size_t keys;
    size_t entries;  /* Waiters, watchers, and holders that are not inline. */
    size_t requests; /* Acquisitions with an id. */
    size_t waiters;  /* Not counting watchers. */
    size_t drains;
    size_t bytes; /* Memory of the index and the heap. */
    sl_fence fence_last, fence_limit;
    sl_ms recovering_until_ms; /* 0: no recovery. */
    sl_ms authority_until_ms;  /* SL_NEVER: no end. */
};
void sl_table_stats(const struct sl_table *t, struct sl_table_stats *out);

/* Returns the approximate memory of the table, including the overhead of malloc(). */
size_t sl_table_bytes(const struct sl_table *t);

/* Abort and name the invariant if one is violated. For tests: this visits the whole
 * table. */
void sl_table_check(const struct sl_table *t);

#endif /* SL_LOCKS_TABLE_H */
