/* table_internal.h - the lock table, as the files that implement it see it. */
#ifndef SL_LOCKS_TABLE_INTERNAL_H
#define SL_LOCKS_TABLE_INTERNAL_H

#include "base/heap.h"
#include "base/index.h"
#include "locks/lock.h"
#include "locks/requests.h"
#include "locks/table.h"

struct sl_table {
    struct sl_table_limits limits;
    struct sl_index index;
    struct sl_lock *found_lock; /* The last lock that was looked up, or NULL. */
    uint64_t found_hash;        /* The hash of the last key that was looked up. */
    struct sl_heap heap;        /* Expiry and timeouts; see sl_inline_owner(). */
    sl_fence fence;             /* The last fence granted. */
    sl_fence fence_limit;       /* The table grants no fence above this. */
    bool short_of_fences;       /* A request was not granted for lack of a fence. */
    sl_ms recovering_until_ms;  /* Grant nothing before this time; 0: no recovery. */
    sl_ms rival_until_ms;       /* Another table may grant until this time. */
    sl_ms authority_until_ms;   /* Grant nothing from this time on; SL_NEVER: no end. */
    bool lacks_authority;       /* A request waits for authority. */
    uint64_t arrivals;
    struct sl_waits waits; /* Rosters with waiters, by the start of the oldest wait. */
    struct sl_clients clients;
    size_t entries;
    size_t roster_count;    /* Locks that have a roster. */
    size_t text_bytes;      /* Total size of keys, values and notes. */
    size_t waiting;         /* Entries that may need a slot in the heap when granted. */
    struct sl_list recheck; /* Rosters that sl_table_next() must recheck. */
    struct sl_list awaited; /* Rosters with waiters or watchers. */
    size_t awaited_count;   /* The number of these rosters. */
    size_t recheck_left;    /* How many awaited rosters must still be rechecked. */
    struct sl_list ended_sessions;
    struct sl_requests requests;
    struct sl_list to_answer; /* Acquisitions whose joined attempts must be answered. */
    struct sl_list drains;
    uint32_t drain_count;
    const struct sl_table_recorder *recorder; /* Borrowed; NULL: none. */
    /* The last effect borrows bytes from these two. */
    struct sl_lock *retired_lock;
    struct sl_entry *retired_entry;
};

/* --- Helpers ------------------------------------------------------------------ */

static inline struct sl_bytes sl_lock_key(const struct sl_lock *l)
{
    return (struct sl_bytes){l->text, l->key_bytes};
}

/* An owner in the heap is an entry; or a lock, for its inline holder or its overlap
 * mark. A pointer to a lock has the lowest bit set. */
static inline void *sl_inline_owner(struct sl_lock *l)
{
    return (void *)((uintptr_t)l | 1u);
}

/* Returns the lock, or NULL if the owner is an entry. */
static inline struct sl_lock *sl_owner_lock(void *owner)
{
    uintptr_t p = (uintptr_t)owner;
    return (p & 1u) != 0 ? (struct sl_lock *)(p & ~(uintptr_t)1) : NULL;
}

static inline bool sl_has_inline(const struct sl_lock *l)
{
    return l->fence != 0;
}

static inline bool sl_inline_counts(const struct sl_lock *l)
{
    return sl_has_inline(l) && (l->flags & SL_INLINE_EXPIRED) == 0;
}

/* Returns the session that acquired the inline holder's grant, or 0 if it is
 * unknown. */
static inline uint64_t sl_inline_session_id(const struct sl_lock *l)
{
    return l->client == NULL ? 0 : l->client->session_id;
}

/* Clear the inline holder after it has ended or has become an entry. */
static inline void sl_inline_clear(struct sl_lock *l)
{
    l->fence = 0;
    l->flags &= (uint16_t) ~(SL_INLINE_EXPIRED | SL_INLINE_BROKEN | SL_INLINE_LONG |
                             SL_INLINE_UNSURE);
    sl_client_unref(l->client);
    l->client = NULL;
}

/* Returns the approximate age of the inline holder's grant. Its fence is the time of
 * the grant. */
static inline sl_ms sl_inline_age_ms(const struct sl_lock *l, struct sl_now now)
{
    return now.wall_us > l->fence ? (sl_ms)((now.wall_us - l->fence) / 1000) : 0;
}

/* A reference to a grant: an entry, or the inline holder of its lock. */
struct sl_grant_ref {
    struct sl_lock *lock;
    struct sl_entry *entry; /* NULL: the inline holder. */
};

static inline uint8_t sl_grant_unsure(const struct sl_grant_ref *p)
{
    return p->entry != NULL
               ? p->entry->unsure
               : (uint8_t)((p->lock->flags & SL_INLINE_UNSURE) >> SL_UNSURE_SHIFT);
}

static inline void sl_grant_set_unsure(const struct sl_grant_ref *p, uint8_t code)
{
    struct sl_lock *l = p->lock;
    if (p->entry != NULL) p->entry->unsure = code;
    else
        l->flags = (uint16_t)((l->flags & ~(unsigned)SL_INLINE_UNSURE) |
                              (unsigned)code << SL_UNSURE_SHIFT);
}

static inline sl_ms sl_grant_end(const struct sl_grant_ref *p)
{
    return p->entry != NULL ? p->entry->end_ms : p->lock->end_ms;
}

/* Return until when the lease is certainly valid. */
static inline sl_ms sl_grant_sure_end(const struct sl_grant_ref *p)
{
    uint8_t code = sl_grant_unsure(p);
    return code == SL_UNSURE_NEVER ? 0 : sl_grant_end(p) - sl_unsure_ms(code);
}

static inline bool sl_inline_lives(const struct sl_lock *l, struct sl_now now)
{
    return sl_inline_counts(l) && l->end_ms > now.ms;
}

static inline bool sl_entry_lives(const struct sl_entry *e, struct sl_now now)
{
    return e != NULL && !e->expired && e->end_ms > now.ms;
}

/* Whether a thief waits for this holder's release, or was granted the lock by force. */
static inline bool sl_is_victim(const struct sl_entry *e)
{
    return e->stolen || e->victim == SL_VICTIM_TO_ASK || e->victim == SL_VICTIM_ASKED;
}

/* Whether the key is in the state that a watcher waits for: free if want_free, otherwise
 * held. */
static inline bool sl_lock_is_so(const struct sl_lock *l, bool want_free)
{
    bool held = l != NULL &&
                (sl_lock_held(l) > 0 || (l->roster != NULL && l->roster->shared > 0));
    return held != want_free;
}

/* --- Locks and entries (table.c) ------------------------------------------- */

/* Returns the time at which a lease or a wait that begins now will expire. `now` may lag by less
 * than grain_ms, and nothing may end early because of that. */
static inline sl_ms sl_end_after(const struct sl_table *t, struct sl_now now, sl_ms ms)
{
    return sl_ms_after(sl_ms_after(now.ms, ms), t->limits.grain_ms);
}

/* Returns a lower bound of the time that is left of a lease or a wait. */
static inline sl_ms sl_left_at_least(const struct sl_table *t, struct sl_now now,
                                     sl_ms end_ms)
{
    if (end_ms == SL_NEVER) return SL_NEVER;
    sl_ms left = end_ms - now.ms - t->limits.grain_ms;
    return left > 0 ? left : 0;
}

/* Returns a lower bound of the time that a waiter has waited. When the waiter becomes
 * the holder, it adds this time to its lease. */
static inline sl_ms sl_waited_ms(const struct sl_table *t, sl_ms ms)
{
    return ms > t->limits.grain_ms ? ms - t->limits.grain_ms : 0;
}

struct sl_lock *sl_table_find_lock(const struct sl_table *t, struct sl_bytes key);

/* Find a lock, and remember its hash for a call that adds or drops the lock of this
 * key. */
struct sl_lock *sl_table_look_up(struct sl_table *t, struct sl_bytes key);
void sl_table_put_lock(struct sl_table *t,
                       struct sl_lock *l); /* Reserve a slot in the index first. */

/* Create a lock that is not in the index. Returns NULL when out of memory. */
struct sl_lock *sl_lock_new(struct sl_bytes key, struct sl_bytes value,
                            struct sl_bytes note);

/* Create a lock without holders and add it to the index, where the caller has
 * reserved a slot. Returns NULL when out of memory. */
struct sl_lock *sl_table_add_lock(struct sl_table *t, struct sl_bytes key);

/* Whether a request can be the inline holder of a new lock. */
bool sl_want_is_plain(const struct sl_want *w);

/* Returns the next fence: the time, or the last fence plus one. Call this only after
 * sl_table_may_grant() has returned SLUICE_OK. */
sl_fence sl_table_next_fence(struct sl_table *t, struct sl_now now);

/* Copy a value and a note into one block. Sets *out to NULL if both are empty.
 * Returns SLUICE_OK or SLUICE_ENOMEM. */
int sl_copy_text(struct sl_bytes value, struct sl_bytes note, char **out);

/* Make sure that the session has a client; create one without a name if not. Returns
 * SLUICE_OK or SLUICE_ENOMEM. */
int sl_table_know_client(struct sl_table *t, struct sl_session *s);

/* Free the memory from which the last effect borrowed bytes. Every change calls this
 * first. */
void sl_table_free_retired(struct sl_table *t);

/* Have sl_table_next() look at this roster again, because something has changed. */
void sl_table_recheck(struct sl_table *t, struct sl_roster *r);

/* Call these after a waiter or watcher has joined or left a roster. */
void sl_table_waiter_joined(struct sl_table *t, struct sl_roster *r);
void sl_table_waiter_left(struct sl_table *t, struct sl_roster *r);

/* Free the roster and the lock if they are unused, after a holder, waiter or watcher
 * has left. The memory of the lock stays valid until the next call, because an
 * effect may borrow its key. */
void sl_table_drop_unused(struct sl_table *t, struct sl_lock *l);

/* Reserve memory for one more entry of a lock, even if all waiters are granted the
 * lock. Returns SLUICE_OK or SLUICE_ENOMEM. */
int sl_table_reserve_entry(struct sl_table *t, struct sl_lock *l, bool leased);

static inline size_t sl_lock_text_bytes(const struct sl_lock *l)
{
    return (size_t)l->key_bytes + l->value_bytes + l->note_bytes;
}

static inline size_t sl_entry_text_bytes(const struct sl_entry *e)
{
    return (size_t)e->value_bytes + e->note_bytes;
}

static inline void sl_table_count_entry(struct sl_table *t, const struct sl_entry *e)
{
    t->entries++;
    t->text_bytes += sl_entry_text_bytes(e);
}

struct sl_entry *sl_entry_new(const struct sl_session *s, const struct sl_want *w);
void sl_entry_free(struct sl_entry *e); /* NULL is allowed. */
void sl_table_set_end(struct sl_table *t, struct sl_entry *e, sl_ms end_ms);

/* Set the time at which a thief is granted the lock by force. Set its end first. */
void sl_table_set_force(struct sl_table *t, struct sl_entry *e, sl_ms force_ms);

/* Remove an entry that is in no list of its roster any more. Its memory stays valid
 * until the next call. */
void sl_table_retire_entry(struct sl_table *t, struct sl_entry *e);

/* Make an entry a holder. The caller has reserved the memory. */
void sl_table_grant_entry(struct sl_table *t, struct sl_now now, struct sl_entry *e,
                          struct sl_session *s, struct sl_grant *out);

/* Set or remove an overlap mark. The mark says that the next grant of the lock
 * overlaps a grant that was taken away, if the next grant comes before end_ms, when
 * the old one would have ended. The caller has reserved a slot in the heap. */
void sl_table_mark_next(struct sl_table *t, struct sl_lock *l, sl_ms end_ms);
void sl_table_unmark_next(struct sl_table *t, struct sl_lock *l);

static inline bool sl_lock_is_marked(const struct sl_lock *l, struct sl_now now)
{
    if ((l->flags & SL_NEXT_OVERLAPS) == 0) return false;
    return sl_has_inline(l) || l->timer == SL_HEAP_NONE || l->end_ms > now.ms;
}

/* End a grant, which is an entry or the inline holder. */
void sl_table_end_entry(struct sl_table *t, struct sl_now now, struct sl_entry *e,
                        struct sl_ended *out);
void sl_table_end_inline(struct sl_table *t, struct sl_now now, struct sl_lock *l,
                         struct sl_ended *out);

/* Stop counting the holders of this lock whose leases have expired, even if
 * sl_table_next() has not reported them yet. */
void sl_table_expire_lock(struct sl_table *t, struct sl_now now, struct sl_lock *l);

/* --- Whether anything may be granted (table_restart.c) ----------------------- */

/* Whether the table may grant. Returns SLUICE_OK; ENOKEEPER if it has no authority;
 * ERECOVERING during a recovery; EFENCES until the limit of fences is raised. */
int sl_table_may_grant(const struct sl_table *t, struct sl_now now);

/* Whether, with this status, every request must wait even if it fits. */
static inline bool sl_must_wait(int may_grant)
{
    return may_grant == SLUICE_ENOKEEPER || may_grant == SLUICE_ERECOVERING;
}

/* If the recovery has ended, recheck all rosters. */
void sl_table_end_recovery(struct sl_table *t, struct sl_now now);

/* --- Queries (table_inspect.c) ----------------------------------------------- */

/* Show the inline holder, or an entry. */
void sl_table_view_inline(const struct sl_table *t, const struct sl_lock *l,
                          struct sl_now now, struct sl_grant_view *out);
void sl_table_view_entry(const struct sl_table *t, const struct sl_entry *e,
                         struct sl_now now, struct sl_grant_view *out);

/* --- Recording (table_record.c) ---------------------------------------------- */

/* Tell the recorder that a grant begins (before_ms is 0) or has changed. */
void sl_table_note_grant(const struct sl_table *t, struct sl_now now,
                         struct sl_grant_ref p, sl_ms before_ms);

/* Tell the recorder that a grant ends. Call this when the table stops counting it. */
void sl_table_note_end(const struct sl_table *t, struct sl_grant_ref p);

void sl_table_note_mark(const struct sl_table *t, struct sl_lock *l, sl_ms end_ms,
                        sl_ms before_ms);
void sl_table_note_unmark(const struct sl_table *t, struct sl_lock *l);

/* --- Drains (table_drain.c) ------------------------------------------------ */

void sl_table_free_drains(struct sl_table *t);

/* --- Acquisitions with an id (table_request.c) ------------------------------- */

/* Handle an attempt with an id. Returns SL_IS_NEW if it must be decided like a request without an id;
 * then *found is an absent acquisition (requests.h), or NULL. Otherwise returns the result of
 * sl_table_acquire(). */
#define SL_IS_NEW 2
int sl_table_repeat(struct sl_table *t, struct sl_now now, struct sl_session *s,
                    const struct sl_want *w, struct sl_acquisition **found,
                    struct sl_grant *out);

/* Whether other attempts have joined this waiter. */
bool sl_table_is_joined(const struct sl_entry *e);

/* Exchange this waiter, which others have joined, with the newest of them. Returns the JOINED entry
 * that now belongs to the session of the waiter. */
struct sl_entry *sl_table_pass_on(struct sl_table *t, struct sl_entry *e);

/* Remove a waiter with an id from the queue, and make it a JOINED entry. */
void sl_table_leave_queue(struct sl_table *t, struct sl_entry *e);

/* The acquisition is held or has ended: have sl_table_next() answer the attempts that have joined. */
void sl_table_answer_joined(struct sl_table *t, struct sl_acquisition *a);

/* Answer the next of these attempts. Returns false if there is no effect. */
bool sl_table_next_joined(struct sl_table *t, struct sl_now now, struct sl_effect *out);

/* The grant or wait of this entry has ended. If it has an id, remember the id, or forget it. */
void sl_table_end_named(struct sl_table *t, struct sl_now now, struct sl_entry *e);
void sl_table_forget_named(struct sl_table *t, struct sl_entry *e);

/* The connection of this entry was lost: keep its position for the next attempt, if it has an id. */
void sl_table_lose_named(struct sl_table *t, struct sl_now now, struct sl_entry *e);

/* --- Waits (table_next.c) ------------------------------------------------------ */

/* Remove a waiter from its queue. */
void sl_table_dequeue(struct sl_table *t, struct sl_entry *e);

/* Remove a waiter or watcher. */
void sl_table_stop_waiting(struct sl_table *t, struct sl_entry *e);

/* --- Stealing (table_steal.c) ----------------------------------------------- */

/* Report STOLEN for the next victim whose lock was granted to a thief by force. Returns
 * false if there is no such victim. */
bool sl_table_next_stolen(const struct sl_table *t, struct sl_now now,
                          struct sl_roster *r, struct sl_effect *out);

/* Choose the thief and its victims again if something has changed. */
void sl_roster_plan(struct sl_roster *r);

/* Returns the next effect of stealing, in a roster where no waiter can be granted
 * the lock without stealing. Returns true with an effect in *out, or with the thief
 * in *enters if it must be granted the lock by force. Returns false if there is none. */
bool sl_table_next_steal(struct sl_table *t, struct sl_now now, struct sl_roster *r,
                         struct sl_effect *out, struct sl_entry **enters);

/* Mark the victims of a thief as stolen from, before the thief is granted the lock by
 * force. */
void sl_table_steal(const struct sl_table *t, struct sl_now now, struct sl_roster *r);

/* Undo sl_table_steal() before the victims were notified. Returns false if there are
 * no victims. */
bool sl_table_undo_steal(const struct sl_table *t, struct sl_now now,
                         struct sl_roster *r);

/* --- Grants (table_change.c) ----------------------------------------------- */

/* Find the grant of this lock, which may be NULL, with this fence. */
bool sl_lock_find_grant(struct sl_lock *l, struct sl_now now, sl_fence fence,
                        struct sl_grant_ref *out);

/* Find the grant with this fence. Returns false if there is none or its lease has
 * expired. */
bool sl_table_find(const struct sl_table *t, struct sl_now now, struct sl_bytes key,
                   sl_fence fence, struct sl_grant_ref *out);

/* Set the expiry of a lease, unless it already expires later. */
void sl_table_move_end(struct sl_table *t, const struct sl_grant_ref *p, sl_ms end_ms);

/* Turn the inline holder, if there is one, into an entry, so that it can store more.
 * Returns SLUICE_OK or SLUICE_ENOMEM. */
int sl_table_move_inline(struct sl_table *t, struct sl_now now, struct sl_lock *l);

#endif /* SL_LOCKS_TABLE_INTERNAL_H */
