/* lock.h - a lock as the table keeps it. Of core/ alone.
 *
 * Most locks have one holder, with a lease, and nobody waits. Such a lock is one piece of
 * memory: the holder sits in the lock itself, on its *seat*. Everybody else - who holds
 * beside it, holds without a lease, shares, waits, watches - is an *entry* in the lock's
 * *crowd*, which is there only while somebody is in it.
 *
 *     index --> lock [seat] --> crowd --> holders, by fence (a roll), by session (a tree)
 *                                         and by the end of their leases (a heap)
 *                                    --> lines of waiters, one for each priority and room
 *                                    --> watchers
 *
 * A holder whose lease is over is not counted from that moment on, also if its turn to be
 * told has not come: it leaves the roll and is a *ghost* until the table has got to it. */
#ifndef SL_LOCKS_LOCK_H
#define SL_LOCKS_LOCK_H

#include "base/heap.h"
#include "base/tree.h"
#include "base/types.h"

struct sl_session;

enum sl_lock_flag {
    SL_SEAT_GHOST = 1 << 0,   /* Who sits there is not counted any more. */
    SL_SEAT_BROKEN = 1 << 1,  /* An operator refuses it extensions. */
    SL_NEXT_OVERLAPS = 1 << 2 /* A grant was broken: the next one may not be alone. */
};

struct sl_lock {
    struct sl_crowd *crowd; /* NULL: nobody but who sits on the seat. */
    sl_fence fence;         /* Of the seat; 0: it is empty. */
    sl_ms end_ms;
    uint64_t session_id; /* Who took it. */
    uint32_t timer;      /* Its place in the heap. */
    uint32_t user;
    uint16_t key_bytes;
    uint16_t value_bytes;
    uint16_t note_bytes;
    uint16_t flags;
    char text[]; /* The key; the value and note of the seat. */
};
_Static_assert(sizeof(struct sl_lock) == 48, "memory per lock is a promise");

/* What a holder is to a thief, and on which list of its crowd it stands for that. */
enum sl_victim {
    SL_NO_VICTIM,
    SL_TO_ASK,      /* It is needed, and has not been told. */
    SL_ASKED_TO_GO, /* It has been told. */
    SL_TO_WITHDRAW, /* It was told, and is needed no more. */
    SL_ROBBED,      /* A thief has entered beside it, and it has not been told. */
    SL_VICTIMS,
};

enum sl_entry_state { SL_HOLDS = 1, SL_IN_LINE, SL_WATCHES };

struct sl_entry {
    struct sl_lock *lock;
    struct sl_session *session; /* NULL: a leased grant, which is its user's. */
    struct sl_list of_session;
    struct sl_list place; /* In its line, or among the watchers, or the ghosts. */
    struct sl_line *line;
    struct sl_tree_node by_session, by_rank; /* In the trees of those who hold. */
    struct sl_list asked;                    /* On one of the lists of victims. */
    uint64_t session_id;
    uint64_t arrival;
    sl_fence fence;
    sl_ms end_ms; /* Of the lease, or of the wait. */
    sl_ms asked_ms;
    sl_ms force_ms;  /* Of a thief: when it enters beside its victims. */
    sl_ms victim_ms; /* Since when it is asked to go. */
    uint64_t plan;   /* The last plan in which it is a victim. */
    sl_ms granted_ms;
    sl_ms lease_ms;       /* 0: none. */
    uint32_t timer;       /* Its place in the table's heap. */
    uint32_t crowd_timer; /* And in its crowd's. */
    uint32_t user;
    uint32_t units, per, buckets;
    int32_t priority;
    uint8_t state;
    bool shared, ghost, broken;
    bool watch_free;
    bool steals, force_timer; /* Its timer is for force_ms, not for its end. */
    bool stolen;              /* A thief has entered beside it. */
    bool overlaps;            /* It was granted beside another that may not know. */
    bool reclaimed;           /* Another table gave it, whatever is held beside it. */
    uint8_t victim;           /* enum sl_victim. */
    uint16_t value_bytes, note_bytes;
    char *text; /* Value and note, of its own; NULL: neither. */
};

/* Waiters of one priority who declare the same room, in order of arrival. */
struct sl_line {
    struct sl_list place;
    struct sl_list entries;
    uint64_t room;
    int32_t priority;
    bool shared;
};

/* Holders by fence, which is the order in which they come, unless they are reclaimed. Who
 * leaves leaves a hole. */
struct sl_roll {
    struct sl_roll_item {
        sl_fence fence;
        struct sl_entry *entry; /* NULL: a hole. */
    } * items;
    uint32_t first; /* Before it there are only holes. */
    uint32_t count, live, size;
};

struct sl_crowd {
    struct sl_lock *lock;
    uint64_t held;    /* Units counted, the seat's included. */
    uint32_t counted; /* Entries that hold and are counted; of them */
    uint32_t shared, leased;
    uint32_t waiters, watchers;
    struct sl_roll holders;
    struct sl_tree_node
        *by_session;              /* The counted ones, by session and then by fence. */
    struct sl_tree_node *by_rank; /* The same, in the order in which they are asked. */
    struct sl_heap ends;          /* Of their leases. */
    struct sl_list ghosts;
    struct sl_entry *thief; /* Who has reserved it; NULL: nobody. */
    struct sl_entry *told;  /* The thief that was told whom it waits for. */
    struct sl_list victims[SL_VICTIMS];
    uint64_t plan; /* Who is needed, as a number that they carry. */
    const struct sl_entry *planned_for; /* Who would be the thief, when it was made. */
    bool plan_is_old;                   /* Something has changed since it was made; */
    bool holders_changed;               /* and not only that one of it has gone. */
    uint32_t stolen;                    /* Holders beside whom a thief has entered; */
    uint32_t reclaimed;                 /* and whom this table did not grant it. */
    struct sl_list lines;       /* Higher priority first, then whose head came first. */
    struct sl_list watching[2]; /* For the key to be held; to be free. */
    struct sl_list stirred;     /* Among those to be looked at by sl_table_next(). */
    struct sl_list waited;      /* Among those in which somebody waits or watches. */
};

/* --- The roll -------------------------------------------------------------- */

/* Room for so many holders, whatever comes and goes. SLUICE_ENOMEM. */
int sl_roll_reserve(struct sl_roll *r, uint32_t holders);
void sl_roll_insert(struct sl_roll *r, struct sl_entry *e); /* With any fence, */
void sl_roll_append(struct sl_roll *r, struct sl_entry *e); /* and with the highest. */
void sl_roll_remove(struct sl_roll *r, sl_fence fence);
struct sl_entry *sl_roll_find(const struct sl_roll *r, sl_fence fence);

/* --- Crowds and lines ------------------------------------------------------ */

struct sl_crowd *sl_crowd_new(struct sl_lock *l); /* NULL when out of memory. */
void sl_crowd_free(struct sl_crowd *c);           /* It must be empty. */

/* Whether anybody is in it. */
static inline bool sl_crowd_is_there(const struct sl_crowd *c)
{
    return c->holders.live + c->waiters + c->watchers > 0 || !sl_list_empty(&c->ghosts);
}

/* Memory for the end of one more lease, whatever becomes of those who wait. */
int sl_crowd_reserve_end(struct sl_crowd *c);

/* A holder on the roll is counted; or no more, and a ghost. The seed is a random number
 * that is always the same. */
void sl_crowd_count(struct sl_crowd *c, struct sl_entry *e, uint64_t seed);
void sl_crowd_uncount(struct sl_crowd *c, struct sl_entry *e, uint64_t seed);

/* One that is counted is another session's from now on. */
void sl_crowd_rebind(struct sl_crowd *c, struct sl_entry *e, uint64_t session_id,
                     uint64_t seed);

/* From one list of victims to another. */
void sl_crowd_victim(struct sl_crowd *c, struct sl_entry *e, enum sl_victim v);

/* The newest that is counted of those that a session took; NULL: none. */
struct sl_entry *sl_crowd_newest(const struct sl_crowd *c, uint64_t session_id);

/* Whether all that are counted are of one session, without a lease; and there are some. */
bool sl_crowd_is_of(const struct sl_crowd *c, uint64_t session_id);

/* The line for such a waiter, made if need be; NULL when out of memory. */
struct sl_line *sl_crowd_line(struct sl_crowd *c, int32_t priority, bool shared,
                              uint64_t room);
void sl_crowd_enter(struct sl_crowd *c, struct sl_line *line, struct sl_entry *e);

/* Out of its line, which is freed with the last of it. */
void sl_crowd_leave(struct sl_crowd *c, struct sl_entry *e);

/* --- Who fits -------------------------------------------------------------- */

/* Units counted on a lock. */
uint64_t sl_lock_held(const struct sl_lock *l);

/* Whether a request fits beside those who hold. */
bool sl_lock_fits(const struct sl_lock *l, bool shared, uint64_t room, uint32_t units);

/* Whether a request that comes now has to let waiters go first. */
bool sl_lock_holds_back(const struct sl_lock *l, bool shared, uint64_t room,
                        int32_t priority);

/* The waiter to be granted next; NULL if none fits or all that do are held back. */
struct sl_entry *sl_lock_next(const struct sl_lock *l);

/* The first who would be next if there were room, and steals; NULL: none. */
struct sl_entry *sl_lock_thief(const struct sl_lock *l);

/* --- Those who hold, in the order in which a thief asks them ---------------- */

/* Lowest priority first, then the newest. NULL: there is none (behind that one). */
struct sl_entry *sl_crowd_first_rank(const struct sl_crowd *c);
struct sl_entry *sl_crowd_next_rank(const struct sl_crowd *c, const struct sl_entry *e);

#endif /* SL_LOCKS_LOCK_H */
