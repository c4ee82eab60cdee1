/* table_inside.h - the table as its own files see it. Of core/ alone. */
#ifndef SL_LOCKS_TABLE_INTERNAL_H
#define SL_LOCKS_TABLE_INTERNAL_H

#include "base/heap.h"
#include "base/index.h"
#include "locks/lock.h"
#include "locks/table.h"

struct sl_table {
    struct sl_table_limits limits;
    struct sl_index index;
    struct sl_lock *sought;    /* What sl_table_seek_lock() found last, or NULL; */
    uint64_t sought_hash;      /* and the hash of what it looked for. */
    struct sl_heap heap;       /* Ends of leases and waits; owners as tagged below. */
    sl_fence fence;            /* The last. */
    sl_fence fence_limit;      /* None is above it. */
    bool short_of_fences;      /* Somebody would have been granted, but for that. */
    sl_ms recovering_until_ms; /* Nothing is granted before; 0: granted as always. */
    sl_ms authority_until_ms;  /* Nor from then on; SL_NEVER: always. */
    bool lacks_authority;      /* Somebody would have been heard, but for that. */
    uint64_t arrivals;
    size_t entries;
    size_t crowds_made; /* Locks with a crowd. */
    size_t text_bytes;  /* Of keys, values and notes. */
    size_t waiting;     /* Entries that may need a place in the heap when granted. */
    struct sl_list stirred; /* Crowds in which somebody may be next. */
    struct sl_list waited;  /* Crowds in which somebody waits or watches. */
    size_t crowds;          /* So many are they; */
    size_t to_stir;         /* so many to be stirred, since that changed for all. */
    struct sl_list over;    /* Sessions that have ended. */
    struct sl_list drains;
    uint32_t drain_count;
    /* What the last effect borrowed its bytes from. */
    struct sl_lock *old_lock;
    struct sl_entry *old_entry;
};

/* --- Small things --------------------------------------------------------- */

static inline struct sl_bytes sl_lock_key(const struct sl_lock *l)
{
    return (struct sl_bytes){l->text, l->key_bytes};
}

/* The heap's owners are entries, and locks for their seats: these have the lowest bit. */
static inline void *sl_as_owner(struct sl_lock *l)
{
    return (void *)((uintptr_t)l | 1u);
}

/* NULL: the owner is an entry. */
static inline struct sl_lock *sl_owner_lock(void *owner)
{
    uintptr_t p = (uintptr_t)owner;
    return (p & 1u) != 0 ? (struct sl_lock *)(p & ~(uintptr_t)1) : NULL;
}

static inline bool sl_has_seat(const struct sl_lock *l)
{
    return l->fence != 0;
}

static inline bool sl_seat_counts(const struct sl_lock *l)
{
    return sl_has_seat(l) && (l->flags & SL_SEAT_GHOST) == 0;
}

/* Fences tell when a grant was made, as near as anybody wants to know. */
static inline sl_ms sl_seat_age_ms(const struct sl_lock *l, struct sl_now now)
{
    return now.wall_us > l->fence ? (sl_ms)((now.wall_us - l->fence) / 1000) : 0;
}

/* One grant: an entry, or the seat of its lock. */
struct sl_grant_place {
    struct sl_lock *lock;
    struct sl_entry *entry; /* NULL: the seat. */
};

static inline bool sl_seat_lives(const struct sl_lock *l, struct sl_now now)
{
    return sl_seat_counts(l) && l->end_ms > now.ms;
}

static inline bool sl_entry_lives(const struct sl_entry *e, struct sl_now now)
{
    return e != NULL && !e->ghost && e->end_ms > now.ms;
}

/* Whether a thief waits for it to go, or has entered beside it. */
static inline bool sl_is_victim(const struct sl_entry *e)
{
    return e->stolen || e->victim == SL_TO_ASK || e->victim == SL_ASKED_TO_GO;
}

/* Whether a key is free, or held; as a watcher wants it. */
static inline bool sl_lock_is_so(const struct sl_lock *l, bool want_free)
{
    bool held = l != NULL &&
                (sl_lock_held(l) > 0 || (l->crowd != NULL && l->crowd->shared > 0));
    return held != want_free;
}

/* --- Locks and entries come and go (table.c) ------------------------------- */

/* When a lease or a wait ends that begins now. A clock that is rounded down says too
 * little, by less than its grain; nothing must end early for that. */
static inline sl_ms sl_end_after(const struct sl_table *t, struct sl_now now, sl_ms ms)
{
#ifdef MUT_NOGRAIN
    (void)t;
    return sl_ms_after(now.ms, ms);
#else
    return sl_ms_after(sl_ms_after(now.ms, ms), t->limits.grain_ms);
#endif
}

/* What is left of it at least. */
static inline sl_ms sl_left_at_least(const struct sl_table *t, struct sl_now now,
                                     sl_ms end_ms)
{
    if (end_ms == SL_NEVER) return SL_NEVER;
    sl_ms left = end_ms - now.ms - t->limits.grain_ms;
    return left > 0 ? left : 0;
}

/* How long somebody has waited for certain: its holder adds it to its lease. */
static inline sl_ms sl_waited_ms(const struct sl_table *t, sl_ms ms)
{
    return ms > t->limits.grain_ms ? ms - t->limits.grain_ms : 0;
}

struct sl_lock *sl_table_find_lock(const struct sl_table *t, struct sl_bytes key);

/* The same, and remembers the hash: for whoever may put or drop the lock of this key. */
struct sl_lock *sl_table_seek_lock(struct sl_table *t, struct sl_bytes key);
void sl_table_put_lock(struct sl_table *t, struct sl_lock *l); /* Room was reserved. */

/* A lock with these bytes, in no index; and one with nobody on it, in the index, for which
 * room was reserved. NULL when out of memory. */
struct sl_lock *sl_lock_new(struct sl_bytes key, struct sl_bytes value,
                            struct sl_bytes note);
struct sl_lock *sl_table_found_lock(struct sl_table *t, struct sl_bytes key);

/* Whether a request is so plain that it may have the seat of a new lock. */
bool sl_want_is_plain(const struct sl_want *w);

/* The next fence: the time, or one more than the last. It may be granted with. */
sl_fence sl_table_next_fence(struct sl_table *t, struct sl_now now);

/* A copy of a value and a note, one behind the other; *out NULL if both are empty. */
int sl_copy_text(struct sl_bytes value, struct sl_bytes note, char **out);

/* Free what the last effect borrowed its bytes from. First thing in every change. */
void sl_table_forget_old(struct sl_table *t);

/* Look at a crowd again: somebody may be next, or a watcher see what it waits for. */
void sl_table_stir(struct sl_table *t, struct sl_crowd *c);

/* Somebody waits or watches in a crowd; or one who did has left. */
void sl_table_joined(struct sl_table *t, struct sl_crowd *c);
void sl_table_left(struct sl_table *t, struct sl_crowd *c);

/* After somebody has gone: free what nobody is in. The lock's memory lives until the next
 * call, as its key may have been handed out. */
void sl_table_tidy(struct sl_table *t, struct sl_lock *l);

/* Memory for one more entry on a lock, whatever becomes of it. */
int sl_table_reserve_entry(struct sl_table *t, struct sl_lock *l, bool leased);

/* Of a lock, and of an entry. */
static inline size_t sl_lock_text_bytes(const struct sl_lock *l)
{
    return (size_t)l->key_bytes + l->value_bytes + l->note_bytes;
}

static inline size_t sl_entry_text_bytes(const struct sl_entry *e)
{
    return (size_t)e->value_bytes + e->note_bytes;
}

/* An entry is in the table from now on. */
static inline void sl_table_count_entry(struct sl_table *t, const struct sl_entry *e)
{
    t->entries++;
    t->text_bytes += sl_entry_text_bytes(e);
}

struct sl_entry *sl_entry_new(const struct sl_session *s, const struct sl_want *w);
void sl_entry_free(struct sl_entry *e); /* NULL is allowed. */
void sl_table_set_end(struct sl_table *t, struct sl_entry *e, sl_ms end_ms);

/* Of one who waits, after its end was set: when it is to be looked at before that. */
void sl_table_set_force(struct sl_table *t, struct sl_entry *e, sl_ms force_ms);

/* Let an entry go that is on no roll, line or list of watchers any more. Its bytes live
 * until the next call. */
void sl_table_bury(struct sl_table *t, struct sl_entry *e);

/* Make an entry a holder. All memory for it is there. */
void sl_table_hold(struct sl_table *t, struct sl_now now, struct sl_entry *e,
                   struct sl_session *s, struct sl_grant *out);

/* The next grant is to be marked as overlapping, until a time: when the one that was taken
 * away would have ended. There is a place in the heap for it. And no more. */
void sl_table_mark(struct sl_table *t, struct sl_lock *l, sl_ms end_ms);
void sl_table_unmark(struct sl_table *t, struct sl_lock *l);

static inline bool sl_lock_is_marked(const struct sl_lock *l, struct sl_now now)
{
    if ((l->flags & SL_NEXT_OVERLAPS) == 0) return false;
    return sl_has_seat(l) || l->timer == SL_HEAP_NONE || l->end_ms > now.ms;
}

/* Take a holder off its lock: an entry, or who has the seat. */
void sl_table_unhold(struct sl_table *t, struct sl_now now, struct sl_entry *e,
                     struct sl_ended *out);
void sl_table_unseat(struct sl_table *t, struct sl_now now, struct sl_lock *l,
                     struct sl_ended *out);

/* While the heap has more to tell than it was asked for, leases that are over may still
 * be there: of this lock, count them no more. */
void sl_table_pass_time(struct sl_table *t, struct sl_now now, struct sl_lock *l);

/* --- Whether anything is granted (table_restart.c) -------------------------- */

/* SLUICE_OK; ENOKEEPER: not before there is authority again; ERECOVERING: not before the
 * silence is over; EFENCES: not before the limit of fences is raised. */
int sl_table_may_grant(const struct sl_table *t, struct sl_now now);

/* Of what that says: whoever asks has to stand in line, whether it would fit or not. */
static inline bool sl_is_silence(int may_grant)
{
    return may_grant == SLUICE_ENOKEEPER || may_grant == SLUICE_ERECOVERING;
}

/* Whether the time is one at which something may be granted, extended, or said to be free;
 * for certain, so also if `now` is late. */
bool sl_table_has_authority(const struct sl_table *t, struct sl_now now);

/* If the silence is over, all who wait are to be looked at. */
void sl_table_end_silence(struct sl_table *t, struct sl_now now);

/* --- Drains (table_drain.c) ------------------------------------------------ */

void sl_table_free_drains(struct sl_table *t);

/* --- Stealing (table_steal.c) ----------------------------------------------- */

/* Who was robbed by the last grant and does not know it yet. */
bool sl_table_next_robbed(const struct sl_table *t, struct sl_now now,
                          struct sl_crowd *c, struct sl_effect *out);

/* Look again who steals, and from whom, if something has changed. */
void sl_table_plan(struct sl_crowd *c);

/* The next thing that follows from who steals in a crowd in which nobody is next by
 * itself. True: *out is it, and *granted the thief, if it enters now. */
bool sl_table_next_theft(struct sl_table *t, struct sl_now now, struct sl_crowd *c,
                         struct sl_effect *out, struct sl_entry **enters);

/* A thief enters beside its victims: they are robbed. */
void sl_crowd_rob(struct sl_crowd *c);

/* It did not, after all, and they have not been told. False: there are none. */
bool sl_crowd_unrob(struct sl_crowd *c);

/* --- Grants (table_change.c) ----------------------------------------------- */

/* The living grant of a fence; false: there is none. */
bool sl_table_find(const struct sl_table *t, struct sl_now now, struct sl_bytes key,
                   sl_fence fence, struct sl_grant_place *out);

/* Push the end of a lease back; never forward. */
void sl_table_move_end(struct sl_table *t, const struct sl_grant_place *p,
                       sl_ms end_ms);

/* Turn the seat, if somebody sits there, into an entry, which has a place for more. */
int sl_table_leave_seat(struct sl_table *t, struct sl_now now, struct sl_lock *l);

#endif /* SL_LOCKS_TABLE_INTERNAL_H */
