/* table_inside.h - the table as its own files see it. Of core/ alone. */
#ifndef SL_CORE_TABLE_INSIDE_H
#define SL_CORE_TABLE_INSIDE_H

#include "core/heap.h"
#include "core/index.h"
#include "core/lock.h"
#include "core/table.h"

struct sl_table {
    struct sl_limits limits;
    struct sl_index index;
    struct sl_heap heap; /* Ends of leases and waits; owners as tagged below. */
    sl_fence fence;      /* The last. */
    uint64_t arrivals;
    size_t entries;
    size_t waiting; /* Entries that may need a place in the heap when granted. */
    struct sl_list stirred; /* Crowds in which somebody may be next. */
    struct sl_list waited;  /* All crowds. */
    size_t crowds;
    size_t to_stir;      /* So many of them are to be stirred, since a drain changed. */
    struct sl_list over; /* Sessions that have ended. */
    struct sl_list drains;
    uint32_t drain_count;
    /* What the last effect borrowed its bytes from. */
    struct sl_lock *old_lock;
    struct sl_entry *old_entry;
};

/* --- Small things --------------------------------------------------------- */

static inline struct sl_bytes sl_key_of(const struct sl_lock *l)
{
    return (struct sl_bytes){l->text, l->key_bytes};
}

/* The heap's owners are entries, and locks for their seats: these have the lowest bit. */
static inline void *sl_as_owner(struct sl_lock *l)
{
    return (void *)((uintptr_t)l | 1u);
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
struct sl_place {
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

struct sl_lock *sl_table_find_lock(const struct sl_table *t, struct sl_bytes key);
bool sl_table_drained(const struct sl_table *t, struct sl_bytes key);

/* The living grant of a fence; false: there is none. */
bool sl_table_find(const struct sl_table *t, struct sl_now now, struct sl_bytes key,
                   sl_fence fence, struct sl_place *out);

#endif /* SL_CORE_TABLE_INSIDE_H */
