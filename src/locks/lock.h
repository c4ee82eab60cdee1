/* lock.h - one lock: its holders, its waiters, and which waiter is next.
 *
 * Most locks have one holder, with a lease, and no waiters. Such a lock is one block of memory:
 * its *inline holder* is stored in the lock itself. All others are *entries* of the lock's
 * *roster*, which exists only while it has entries: further holders, holders without a lease,
 * shared holders, waiters and watchers.
 *
 *     index --> lock (inline holder) --> roster --> holders by fence (a sorted array), by
 *                                                   session and by rank (trees), by the end of
 *                                                   their leases (a heap)
 *                                              --> wait queues, one for each priority and
 *                                                   capacity
 *                                              --> watchers
 *
 * A holder whose lease has ended is not counted from that moment on. If the table has not
 * reported it yet, it is *expired*: it has left the array and stays in a list of its own. */
#ifndef SL_LOCKS_LOCK_H
#define SL_LOCKS_LOCK_H

#include "base/heap.h"
#include "base/tree.h"
#include "base/types.h"
#include "base/waits.h"
#include "locks/client.h"

struct sl_session;

enum sl_lock_flag {
    SL_INLINE_EXPIRED = 1 << 0, /* The lease of the inline holder has ended. */
    SL_INLINE_BROKEN = 1 << 1,  /* An operator broke it: it cannot be extended. */
    SL_NEXT_OVERLAPS = 1 << 2   /* A grant was broken: the next one may overlap it. */
};

struct sl_lock {
    struct sl_roster *roster; /* NULL: there is only the inline holder. */
    sl_fence fence; /* Of the inline holder, as what follows; 0: there is none. */
    sl_ms end_ms;   /* Without an inline holder: of the overlap mark. */
    struct sl_client *client; /* Of the session that acquired it; NULL: unknown. */
    uint32_t timer;           /* Its slot in the table's heap. */
    uint32_t user;
    uint16_t key_bytes;
    uint16_t value_bytes;
    uint16_t note_bytes;
    uint16_t flags;
    char text[]; /* The key; the value and the note of the inline holder. */
};
_Static_assert(sizeof(struct sl_lock) == 48, "memory per lock is a promise");

/* What a holder is to the thief, and in which list of its roster it is for that. */
enum sl_victim {
    SL_VICTIM_NONE,
    SL_VICTIM_TO_ASK,      /* It must release, and has not been asked yet. */
    SL_VICTIM_ASKED,       /* It has been asked to release. */
    SL_VICTIM_TO_WITHDRAW, /* It was asked, and need not release any more. */
    SL_VICTIM_STOLEN, /* A thief was granted next to it; it has not been notified yet. */
    SL_VICTIM_STATES,
};

enum sl_entry_state { SL_HOLDING = 1, SL_WAITING, SL_WATCHING };

struct sl_entry {
    struct sl_lock *lock;
    struct sl_session *session; /* NULL: a leased grant, which belongs to its user. */
    struct sl_list of_session;
    struct sl_list
        in_list; /* In its wait queue, or of the watchers, or of the expired. */
    struct sl_wait_queue *queue;
    struct sl_tree_node by_session, by_rank; /* In the trees of holders. */
    struct sl_list asked;                    /* In one of the lists of victims. */
    struct sl_client *client;                /* NULL: unknown. */
    uint64_t session_id;
    struct sl_wait wait; /* Since when it waits or watches, and a number by arrival. */
    sl_fence fence;
    sl_ms end_ms;    /* Of the lease, or of the wait. */
    sl_ms force_ms;  /* Of a thief: when it is granted without a release. */
    sl_ms victim_ms; /* Since when it has been asked to release. */
    uint64_t plan;   /* The last plan in which it is a victim. */
    sl_ms granted_ms;
    sl_ms lease_ms;        /* 0: none. */
    uint32_t timer;        /* Its slot in the table's heap. */
    uint32_t roster_timer; /* Its slot in the roster's heap. */
    uint32_t user;
    uint32_t units, per, buckets;
    int32_t priority;
    uint8_t state;
    bool shared, expired, broken;
    bool watch_free;
    bool steals, force_timer; /* force_timer: its timer is for force_ms, not end_ms. */
    bool stolen;              /* A thief was granted next to it. */
    bool overlaps;            /* It was granted next to a holder that may not know. */
    bool reclaimed;           /* Another table granted it, whatever else is held. */
    uint8_t victim;           /* enum sl_victim. */
    uint16_t value_bytes, note_bytes;
    char *text; /* Value and note; owned; NULL: neither. */
};

/* Waiters of one priority that declare the same capacity, in the order of arrival. */
struct sl_wait_queue {
    struct sl_list in_roster;
    struct sl_list entries;
    uint64_t capacity;
    int32_t priority;
    bool shared;
};

/* Holders sorted by fence. That is the order in which they come, unless they are reclaimed. A
 * holder that leaves leaves a hole. */
struct sl_holders {
    struct sl_holder_slot {
        sl_fence fence;
        struct sl_entry *entry; /* NULL: a hole. */
    } * items;
    uint32_t first; /* Before it there are only holes. */
    uint32_t count, live, size;
};

struct sl_roster {
    struct sl_lock *lock;
    uint64_t held;    /* Units held, with the inline holder's. */
    uint32_t counted; /* Entries that hold and have not expired; of these: */
    uint32_t shared, leased;
    uint32_t waiters, watchers;
    struct sl_holders holders;
    struct sl_tree_node *by_session; /* Holders, by session and then by fence. */
    struct sl_tree_node *by_rank; /* Holders, in the order in which they are asked. */
    struct sl_heap ends;          /* Of their leases. */
    struct sl_list expired;
    struct sl_entry *thief;          /* The waiter that has reserved the lock; NULL. */
    struct sl_entry *informed_thief; /* The thief that was notified of its victims. */
    struct sl_list victims[SL_VICTIM_STATES];
    uint64_t plan;                      /* The number of the last plan. */
    const struct sl_entry *planned_for; /* The waiter for which it was made. */
    bool plan_is_old;                   /* Something has changed since then. */
    bool holders_changed;        /* And not only that a victim of the plan has left. */
    uint32_t stolen;             /* Holders next to which a thief was granted. */
    uint32_t reclaimed;          /* Holders that another table granted. */
    struct sl_list queues;       /* By priority, then by the arrival of their heads. */
    struct sl_list watching[2];  /* Watchers until the key is held; until it is free. */
    struct sl_wait_group by_age; /* The waiters, in the table's order of waits. */
    struct sl_list recheck;      /* In the table's list for sl_table_next(). */
    struct sl_list awaited; /* In the table's list of those with waiters or watchers. */
};

/* --- The array of holders --------------------------------------------------- */

/* Memory for this many holders, whichever come and go. SLUICE_ENOMEM. */
int sl_holders_reserve(struct sl_holders *h, uint32_t holders);
void sl_holders_insert(struct sl_holders *h, struct sl_entry *e);
void sl_holders_append(struct sl_holders *h,
                       struct sl_entry *e); /* The highest fence. */
void sl_holders_remove(struct sl_holders *h, sl_fence fence);
struct sl_entry *sl_holders_find(const struct sl_holders *h, sl_fence fence);

/* --- The roster ------------------------------------------------------------- */

struct sl_roster *sl_roster_new(struct sl_lock *l); /* NULL when out of memory. */
void sl_roster_free(struct sl_roster *r);           /* It has no entries. */

/* Whether it has entries. */
static inline bool sl_roster_in_use(const struct sl_roster *r)
{
    return r->holders.live + r->waiters + r->watchers > 0 ||
           !sl_list_empty(&r->expired);
}

/* Memory for the end of one more lease, even if all waiters are granted. */
int sl_roster_reserve_end(struct sl_roster *r);

/* Count an entry of the array as a holder; or move it from there to the expired. The seed is a
 * random number that is always the same. */
void sl_roster_add_holder(struct sl_roster *r, struct sl_entry *e, uint64_t seed);
void sl_roster_expire_holder(struct sl_roster *r, struct sl_entry *e, uint64_t seed);

/* A holder belongs to another session from now on. */
void sl_roster_rebind(struct sl_roster *r, struct sl_entry *e, uint64_t session_id,
                      uint64_t seed);

/* Move a holder from one list of victims to another. */
void sl_roster_set_victim(struct sl_roster *r, struct sl_entry *e, enum sl_victim v);

/* The newest holder that this session acquired; NULL: none. */
struct sl_entry *sl_roster_newest(const struct sl_roster *r, uint64_t session_id);

/* Whether all holders are of this session, without a lease; and there is one. */
bool sl_roster_is_only_of(const struct sl_roster *r, uint64_t session_id);

/* The wait queue for such a waiter, made if necessary; NULL when out of memory. */
struct sl_wait_queue *sl_roster_queue(struct sl_roster *r, int32_t priority,
                                      bool shared, uint64_t capacity);
void sl_roster_enqueue(struct sl_roster *r, struct sl_wait_queue *queue,
                       struct sl_entry *e);

/* Frees the queue with its last waiter. */
void sl_roster_dequeue(struct sl_roster *r, struct sl_entry *e);

/* --- Which request fits, and which waiter is next ---------------------------- */

/* Units held. */
uint64_t sl_lock_held(const struct sl_lock *l);

/* Whether a request fits next to the holders. */
bool sl_lock_fits(const struct sl_lock *l, bool shared, uint64_t capacity,
                  uint32_t units);

/* Whether a new request must let waiters go first. */
bool sl_lock_holds_back(const struct sl_lock *l, bool shared, uint64_t capacity,
                        int32_t priority);

/* The waiter to be granted next; NULL: none fits, or those that fit are held back. */
struct sl_entry *sl_lock_next(const struct sl_lock *l);

/* The first waiter that is not held back, and steals; NULL: none. */
struct sl_entry *sl_lock_thief(const struct sl_lock *l);

/* --- Holders in the order in which a thief asks them -------------------------- */

/* Lowest priority first, then the newest. NULL: there are no more. */
struct sl_entry *sl_roster_first_rank(const struct sl_roster *r);
struct sl_entry *sl_roster_next_rank(const struct sl_roster *r,
                                     const struct sl_entry *e);

#endif /* SL_LOCKS_LOCK_H */
