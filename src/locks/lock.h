/* lock.h - one lock: its holders, its waiters, and which waiter is next.
 *
 * Most locks have one holder, with a lease, and no waiters. Such a lock is a single
 * block of memory: its *inline holder* is stored in the lock itself. All other
 * holders (further holders, shared holders, holders without a lease), waiters and
 * watchers are *entries* of the lock's *roster*. The roster exists only while it has
 * entries.
 *
 *     index --> lock (inline holder) --> roster --> holders: a sorted array by fence, trees
 *                                                   by session and by rank, a heap by
 *                                                   expiry
 *                                               --> wait queues, one for each priority and
 *                                                   capacity
 *                                               --> watchers
 *
 * As soon as the lease of a holder has expired, the holder no longer counts. Until the
 * table has reported the expiry, the holder is *expired*: it is no longer in the array,
 * but in a separate list. */
#ifndef SL_LOCKS_LOCK_H
#define SL_LOCKS_LOCK_H

#include "base/heap.h"
#include "base/tree.h"
#include "base/types.h"
#include "base/waits.h"
#include "locks/client.h"

struct sl_session;

#define SL_UNSURE_SHIFT 8

enum sl_lock_flag {
    SL_INLINE_EXPIRED = 1 << 0, /* The lease of the inline holder has expired. */
    SL_INLINE_BROKEN = 1 << 1,  /* BREAK was called: the lease cannot be extended. */
    SL_NEXT_OVERLAPS = 1 << 2,  /* The next grant may overlap a broken one. */
    SL_INLINE_LONG = 1 << 3,    /* The inline holder's lease exceeds lease-volatile. */
    SL_MARK_LONG = 1 << 4,      /* So does the overlap mark's. */
    SL_INLINE_UNSURE = 255 << SL_UNSURE_SHIFT /* A code of sl_unsure_ms(). */
};

/* For how long before its end a reported lease may have expired, as a code with a precision of four bits;
 * SL_UNSURE_NEVER: it is never certain that the lease is valid. */
#define SL_UNSURE_NEVER 255u
static inline sl_ms sl_unsure_ms(unsigned code)
{
    if (code == 0 || code == SL_UNSURE_NEVER) return code == 0 ? 0 : SL_NEVER;
    return (sl_ms)(16 + (code & 15)) << (code >> 4);
}

/* Return the lowest code for at least this time. */
static inline uint8_t sl_unsure_code(sl_ms ms)
{
    unsigned shift = 0;
    if (ms <= 17) return ms > 0;
    while (shift < 16 && (sl_ms)31 << shift < ms) shift++;
    if (shift == 16) return SL_UNSURE_NEVER;
    sl_ms rounded = (ms + ((sl_ms)1 << shift) - 1) >> shift;
    return (uint8_t)(shift << 4 | (unsigned)(rounded - 16));
}

struct sl_lock {
    struct sl_roster *roster; /* NULL: there is only the inline holder. */
    sl_fence fence;           /* The inline holder's fence; 0: no inline holder. */
    sl_ms end_ms;             /* When the inline holder or the overlap mark expires. */
    struct sl_client *client; /* The inline holder's client; NULL: unknown. */
    uint32_t timer;           /* Slot in the table's heap. */
    uint32_t user;
    uint16_t key_bytes;
    uint16_t value_bytes;
    uint16_t note_bytes;
    uint16_t flags;
    char text[]; /* The key, then the inline holder's value and note. */
};
_Static_assert(sizeof(struct sl_lock) == 48, "memory per lock is a promise");

/* What a thief wants from a holder. Each state except NONE has a list of holders in
 * the roster. */
enum sl_victim {
    SL_VICTIM_NONE,
    SL_VICTIM_TO_ASK,      /* Must release, but has not been asked yet. */
    SL_VICTIM_ASKED,       /* Has been asked to release. */
    SL_VICTIM_TO_WITHDRAW, /* Was asked, but need not release any more. */
    SL_VICTIM_STOLEN,      /* Overlaps a forced grant; not notified yet. */
    SL_VICTIM_STATES,
};

/* A JOINED entry waits together with a WAITING entry of the same acquisition (requests.h). It is in no
 * roster. */
enum sl_entry_state { SL_HOLDING = 1, SL_WAITING, SL_WATCHING, SL_JOINED };

struct sl_entry {
    struct sl_lock *lock;       /* NULL for a JOINED entry. */
    struct sl_session *session; /* NULL for a grant with a lease. */
    struct sl_list of_session;
    struct sl_list in_list; /* In a wait queue, or in a list of the roster. */
    struct sl_wait_queue *queue;
    struct sl_tree_node by_session, by_rank; /* In the trees of holders. */
    struct sl_list asked;                    /* In one of the lists of victims. */
    struct sl_client *client;                /* NULL: unknown. */
    struct sl_acquisition *named;            /* NULL: the request has no id. */
    uint64_t session_id;
    uint64_t ticket;     /* Of the attempt that waits (struct sl_want). */
    struct sl_wait wait; /* When it began to wait or watch, and an arrival number. */
    sl_ms
        came_ms; /* When this attempt arrived; wait.since_ms may be that of an earlier one. */
    sl_fence fence;
    sl_ms end_ms;    /* When the lease expires or the wait times out. */
    sl_ms force_ms;  /* Thief: when it gets the lock without a release. */
    sl_ms victim_ms; /* When the table asked it to release; -1: not asked. */
    uint64_t plan;   /* The last plan that made it a victim. */
    sl_ms granted_ms;
    sl_ms lease_ms;        /* 0: no lease. */
    uint32_t timer;        /* Slot in the table's heap. */
    uint32_t roster_timer; /* Slot in the roster's heap. */
    uint32_t user;
    uint32_t units, per, buckets;
    int32_t priority;
    uint8_t state;
    bool shared, expired, broken;
    bool watch_free;
    bool notify;              /* As in struct sl_want. */
    bool steals, force_timer; /* force_timer: the timer is set to force_ms. */
    bool stolen;              /* A thief got the lock while this one holds it. */
    bool overlaps;            /* Granted while another holder may still use the lock. */
    bool reclaimed;           /* Another table granted it; may exceed the capacity. */
    bool is_long;             /* What the recorder returned for its last record. */
    uint8_t victim;           /* One of enum sl_victim. */
    uint8_t unsure;           /* A code of sl_unsure_ms(). */
    uint16_t value_bytes, note_bytes;
    char *text; /* Value and note; owned; NULL if both are empty. */
};

/* Waiters of one priority that declare the same capacity, in order of arrival. */
struct sl_wait_queue {
    struct sl_list in_roster;
    struct sl_list entries;
    struct sl_list
        *last_inserted; /* The last waiter that was not put at the end, or NULL. */
    uint64_t capacity;
    int32_t priority;
    bool shared;
};

/* Holders sorted by fence. New holders have the highest fence, so they are appended,
 * except for reclaimed holders. When a holder leaves, its slot becomes a hole. */
struct sl_holders {
    struct sl_holder_slot {
        sl_fence fence;
        struct sl_entry *entry; /* NULL: a hole. */
    } * items;
    uint32_t first; /* All slots before this one are holes. */
    uint32_t count, live, size;
};

struct sl_roster {
    struct sl_lock *lock;
    uint64_t held;    /* Units held, including the inline holder's. */
    uint32_t counted; /* Entries that hold and have not expired. */
    uint32_t shared, leased;
    uint32_t waiters, watchers;
    struct sl_holders holders;
    struct sl_tree_node *by_session; /* Holders by session, then by fence. */
    struct sl_tree_node *by_rank; /* Holders in the order in which a thief asks them. */
    struct sl_heap ends;          /* Holders by the expiry of their leases. */
    struct sl_list expired;
    struct sl_entry *thief;          /* The waiter that reserved the lock, or NULL. */
    struct sl_entry *informed_thief; /* The thief whose victims were notified last. */
    struct sl_list victims[SL_VICTIM_STATES];
    uint64_t plan;                      /* The number of the last plan. */
    const struct sl_entry *planned_for; /* The waiter for which the plan was made. */
    bool plan_is_old;                   /* The plan must be checked again. */
    bool holders_changed;               /* Holders outside the plan, or the session of
                                         * `planned_for`, have changed. */
    uint32_t stolen;                    /* Holders that a forced grant overlaps. */
    uint32_t reclaimed;                 /* Holders that another table granted. */
    struct sl_list queues;       /* Sorted by priority, then by arrival of the heads. */
    struct sl_list watching[2];  /* [0] until the key is held, [1] until it is free. */
    struct sl_wait_group by_age; /* The waiters, sorted by the start of the wait. */
    struct sl_list recheck;      /* In the table's list of rosters to recheck. */
    struct sl_list awaited;      /* In the table's list of awaited rosters. */
};

/* --- The array of holders --------------------------------------------------- */

/* Reserve memory for this many simultaneous holders. It suffices however often holders
 * come and go. Returns SLUICE_OK or SLUICE_ENOMEM. */
int sl_holders_reserve(struct sl_holders *h, uint32_t holders);
void sl_holders_insert(struct sl_holders *h, struct sl_entry *e);
void sl_holders_append(struct sl_holders *h,
                       struct sl_entry *e); /* e must have the highest fence. */
void sl_holders_remove(struct sl_holders *h, sl_fence fence);
struct sl_entry *sl_holders_find(const struct sl_holders *h, sl_fence fence);

/* --- The roster ------------------------------------------------------------- */

struct sl_roster *sl_roster_new(struct sl_lock *l); /* NULL: out of memory. */
void sl_roster_free(struct sl_roster *r);           /* It must have no entries. */

/* Whether the roster has entries. */
static inline bool sl_roster_in_use(const struct sl_roster *r)
{
    return r->holders.live + r->waiters + r->watchers > 0 ||
           !sl_list_empty(&r->expired);
}

/* Reserve memory for the expiry of one more lease, even if all waiters are granted the
 * lock. Returns SLUICE_OK or SLUICE_ENOMEM. */
int sl_roster_reserve_end(struct sl_roster *r);

/* sl_roster_add_holder() counts an entry of the array as a holder.
 * sl_roster_expire_holder() moves a holder from the array to the expired list. Pass
 * the table's random seed in every call. */
void sl_roster_add_holder(struct sl_roster *r, struct sl_entry *e, uint64_t seed);
void sl_roster_expire_holder(struct sl_roster *r, struct sl_entry *e, uint64_t seed);

/* Make a holder belong to another session. */
void sl_roster_rebind(struct sl_roster *r, struct sl_entry *e, uint64_t session_id,
                      uint64_t seed);

/* Move a holder to the list of victims for this state. */
void sl_roster_set_victim(struct sl_roster *r, struct sl_entry *e, enum sl_victim v);

/* Returns the newest holder that this session acquired, or NULL. */
struct sl_entry *sl_roster_newest(const struct sl_roster *r, uint64_t session_id);

/* Whether there are holders, all of them belong to this session, and none has a
 * lease. */
bool sl_roster_is_only_of(const struct sl_roster *r, uint64_t session_id);

/* Returns the wait queue for waiters with these attributes, and creates it if
 * necessary. Returns NULL when out of memory. */
struct sl_wait_queue *sl_roster_queue(struct sl_roster *r, int32_t priority,
                                      bool shared, uint64_t capacity);

/* Add a waiter to its queue, in the order of arrival. Set e->wait first. Returns whether it is
 * before a waiter of the same priority. */
bool sl_roster_enqueue(struct sl_roster *r, struct sl_wait_queue *queue,
                       struct sl_entry *e);

/* Remove a waiter from its queue. If the queue becomes empty, frees it. */
void sl_roster_dequeue(struct sl_roster *r, struct sl_entry *e);

/* --- Which request fits, and which waiter is next ---------------------------- */

/* Returns the number of units held. */
uint64_t sl_lock_held(const struct sl_lock *l);

/* Whether a request fits into the capacity that the current holders leave. */
bool sl_lock_fits(const struct sl_lock *l, bool shared, uint64_t capacity,
                  uint32_t units);

/* Whether a new request must wait because earlier waiters go first. */
bool sl_lock_holds_back(const struct sl_lock *l, bool shared, uint64_t capacity,
                        int32_t priority);

/* Returns the waiter to be granted next. Returns NULL if no waiter fits, or earlier
 * waiters block all that fit. */
struct sl_entry *sl_lock_next(const struct sl_lock *l);

/* Returns the first waiter that steals and is not blocked by an earlier waiter, or
 * NULL. */
struct sl_entry *sl_lock_thief(const struct sl_lock *l);

/* --- Holders in the order in which a thief asks them -------------------------- */

/* Lowest priority first, then newest first. Returns NULL at the end. */
struct sl_entry *sl_roster_first_rank(const struct sl_roster *r);
struct sl_entry *sl_roster_next_rank(const struct sl_roster *r,
                                     const struct sl_entry *e);

#endif /* SL_LOCKS_LOCK_H */
