/* table_acquire.c - who asks: it is granted, waits in line, or watches. */
#include <stdlib.h>
#include <string.h>

#include "locks/table_internal.h"

struct sl_lock *sl_lock_new(struct sl_bytes key, struct sl_bytes value,
                            struct sl_bytes note)
{
    struct sl_lock *l = malloc(offsetof(struct sl_lock, text) + key.n + value.n +
                               note.n);
    if (l == NULL) return NULL;
    *l = (struct sl_lock){.timer = SL_HEAP_NONE,
                          .key_bytes = (uint16_t)key.n,
                          .value_bytes = (uint16_t)value.n,
                          .note_bytes = (uint16_t)note.n};
    memcpy(l->text, key.at, key.n);
    if (value.n > 0) memcpy(l->text + key.n, value.at, value.n);
    if (note.n > 0) memcpy(l->text + key.n + value.n, note.at, note.n);
    return l;
}

static int check_want(const struct sl_table *t, const struct sl_want *w)
{
    const struct sl_table_limits *m = &t->limits;
    if (w->key.n == 0) return SLUICE_EINVAL;
    if (w->key.n > m->key_bytes_max || w->value.n > m->value_bytes_max ||
        w->note.n > m->value_bytes_max)
        return SLUICE_ETOOBIG;
    if (w->wait_ms < 0 || w->lease_ms < 0) return SLUICE_EINVAL;
    if (w->shared) return SLUICE_OK;
    uint64_t room = (uint64_t)w->per * w->buckets;
    if (w->units == 0) return SLUICE_EINVAL;
    if (room > SLUICE_CAPACITY_MAX || w->units > SLUICE_UNITS_MAX)
        return SLUICE_ETOOBIG;
    if (room == 0) return SLUICE_EFULL; /* No room is room for nobody. */
    return w->units > room ? SLUICE_ETOOBIG : SLUICE_OK;
}

static uint64_t room_of(const struct sl_want *w)
{
    return w->shared ? 0 : (uint64_t)w->per * w->buckets;
}

bool sl_want_is_plain(const struct sl_want *w)
{
    return w->lease_ms > 0 && !w->shared && w->per == 1 && w->buckets == 1 &&
           w->units == 1 && w->priority == 0;
}

/* A lock that nobody had to do with, and its first holder on the seat. */
static int take_seat(struct sl_table *t, struct sl_now now, const struct sl_session *s,
                     const struct sl_want *w, struct sl_grant *out)
{
    struct sl_lock *l = sl_lock_new(w->key, w->value, w->note);
    if (l == NULL || sl_heap_reserve(&t->heap, (uint32_t)t->waiting + 1) != SLUICE_OK) {
        free(l);
        return SLUICE_ENOMEM;
    }
    l->fence = sl_table_next_fence(t, now);
    l->session_id = s->id;
    l->user = s->user;
    l->end_ms = sl_end_after(t, now, w->lease_ms);
    if (l->end_ms != SL_NEVER) sl_heap_put(&t->heap, l->end_ms, sl_as_owner(l));
    sl_table_put_lock(t, l);
    *out = (struct sl_grant){.fence = l->fence,
                             .held = 1,
                             .lease_ms = w->lease_ms,
                             .waited_ms = sl_waited_ms(t, w->waited_ms)};
    return SLUICE_OK;
}

/* Rule 3: all that stands in the way is the session's own, for as long as it lives. */
static bool waits_for_itself(const struct sl_lock *l, const struct sl_session *s)
{
#ifdef MUT_NODEADLOCK
    return false;
#endif
    return l->crowd != NULL && !sl_seat_counts(l) && sl_crowd_is_of(l->crowd, s->id);
}

static int enter_line(struct sl_table *t, struct sl_now now, struct sl_session *s,
                      struct sl_lock *l, const struct sl_want *w)
{
    if (waits_for_itself(l, s)) return SLUICE_EDEADLOCK;
    if (w->steal && sl_table_leave_seat(t, now, l) != SLUICE_OK) return SLUICE_ENOMEM;
    if (l->crowd != NULL &&
        l->crowd->waiters + l->crowd->watchers >= t->limits.waiters_max)
        return SLUICE_EWAITERS;
    struct sl_entry *e = sl_entry_new(s, w);
    struct sl_line *line = NULL;
    if (e != NULL && sl_table_reserve_entry(t, l, w->lease_ms > 0) == SLUICE_OK)
        line = sl_crowd_line(l->crowd, w->priority, w->shared, room_of(w));
    if (line == NULL) {
        sl_entry_free(e);
        sl_table_tidy(t, l);
        return SLUICE_ENOMEM;
    }
    e->lock = l;
    e->state = SL_IN_LINE;
    e->session = s;
    e->asked_ms = now.ms - w->waited_ms;
    e->arrival = ++t->arrivals;
    sl_list_append(&s->mine, &e->of_session);
    sl_table_joined(t, l->crowd);
    sl_crowd_enter(l->crowd, line, e);
    sl_table_count_entry(t, e);
    t->waiting++;
    /* A thief that does not wait for an answer has to be there for a moment, too. */
    sl_table_set_end(t, e, sl_end_after(t, now, w->wait_ms > 0 ? w->wait_ms : 1));
    if (w->steal) /* At once is now, also if the clock is late. */
        sl_table_set_force(
            t, e, w->force_ms == 0 ? now.ms : sl_end_after(t, now, w->force_ms));
    if (w->steal || l->crowd->thief != NULL) sl_table_stir(t, l->crowd);
    return SL_WAITS;
}

/* Beside those who hold, if there are any. */
static int join(struct sl_table *t, struct sl_now now, struct sl_session *s,
                struct sl_lock *l, const struct sl_want *w, struct sl_grant *out)
{
    struct sl_entry *e = sl_entry_new(s, w);
    if (e == NULL || sl_table_reserve_entry(t, l, w->lease_ms > 0) != SLUICE_OK) {
        sl_entry_free(e);
#ifndef MUT_LEFTKEY
        sl_table_tidy(t, l);
#endif
        return SLUICE_ENOMEM;
    }
    e->lock = l;
    e->asked_ms = now.ms - w->waited_ms;
    sl_table_count_entry(t, e);
    sl_table_hold(t, now, e, s, out);
    return SLUICE_OK;
}

struct sl_lock *sl_table_found_lock(struct sl_table *t, struct sl_bytes key)
{
    const struct sl_bytes none = {0};
    struct sl_lock *l = sl_lock_new(key, none, none);
    if (l != NULL) sl_table_put_lock(t, l);
    return l;
}

static int reserve_key(struct sl_table *t)
{
    if (t->index.count >= t->limits.keys_max) return SLUICE_EKEYS;
    return sl_index_reserve(&t->index);
}

/* On a key that nobody had to do with: it is granted, or waits for the table. */
static int acquire_new(struct sl_table *t, struct sl_now now, struct sl_session *s,
                       const struct sl_want *w, bool waits, struct sl_grant *out)
{
    int status = reserve_key(t);
    if (status != SLUICE_OK) return status;
    if (sl_want_is_plain(w) && !waits) return take_seat(t, now, s, w, out);
    struct sl_lock *l = sl_table_found_lock(t, w->key);
    if (l == NULL) return SLUICE_ENOMEM;
    if (waits) return enter_line(t, now, s, l, w);
    return join(t, now, s, l, w, out);
}

/* It would be granted, if there were a fence for it. */
static int lack_fence(struct sl_table *t)
{
    t->short_of_fences = true;
    return SLUICE_EFENCES;
}

/* What is to become of a request: SLUICE_OK, it is granted; SL_WAITS; or a refusal. The
 * lock, if there is one. */
static int judge(struct sl_table *t, struct sl_now now, const struct sl_session *s,
                 const struct sl_want *w, struct sl_lock **l)
{
    int status = check_want(t, w);
    if (status != SLUICE_OK) return status;
    if (t->fence >= SL_FENCE_MAX || s->ended) return SLUICE_EINVAL;
    if (sl_table_drained(t, w->key)) return SLUICE_EDRAINED;
    int may = sl_table_may_grant(t, now);
    if (sl_is_silence(may) && w->wait_ms == 0) return may;
    *l = sl_table_seek_lock(t, w->key);
    if (*l == NULL) return sl_is_silence(may) ? SL_WAITS : may;
    sl_table_pass_time(t, now, *l);
    uint64_t room = room_of(w);
    if (!sl_is_silence(may) && sl_lock_fits(*l, w->shared, room, w->units) &&
        !sl_lock_holds_back(*l, w->shared, room, w->priority))
        return may;
    bool at_once = w->steal && w->force_ms == 0;
    return w->wait_ms == 0 && !at_once ? SLUICE_EFULL : SL_WAITS;
}

int sl_table_judge(struct sl_table *t, struct sl_now now, const struct sl_session *s,
                   const struct sl_want *w)
{
    struct sl_lock *l = NULL;
    return judge(t, now, s, w, &l);
}

int sl_table_acquire(struct sl_table *t, struct sl_now now, struct sl_session *s,
                     const struct sl_want *w, struct sl_grant *out)
{
    struct sl_lock *l = NULL;
    sl_table_forget_old(t);
#ifdef MUT_NOPRIORITY
    struct sl_want flat = *w;
    flat.priority = 0;
    w = &flat;
#endif
    int status = judge(t, now, s, w, &l);
    if (status == SLUICE_EFENCES) return lack_fence(t);
    if (status != SLUICE_OK && status != SL_WAITS) return status;
    bool waits = status == SL_WAITS;
    if (waits && !sl_table_has_authority(t, now)) t->lacks_authority = true;
    if (l == NULL) return acquire_new(t, now, s, w, waits, out);
    return waits ? enter_line(t, now, s, l, w) : join(t, now, s, l, w, out);
}

/* --- Await ----------------------------------------------------------------- */

int sl_table_await(struct sl_table *t, struct sl_now now, struct sl_session *s,
                   struct sl_bytes key, bool want_free, sl_ms wait_ms)
{
    sl_table_forget_old(t);
    if (key.n == 0 || wait_ms < 0 || s->ended) return SLUICE_EINVAL;
    if (key.n > t->limits.key_bytes_max) return SLUICE_ETOOBIG;
    /* Nobody knows what is free before the silence is over. */
    if (want_free && now.ms < t->recovering_until_ms) return SLUICE_ERECOVERING;
    struct sl_lock *l = sl_table_seek_lock(t, key);
    if (l != NULL) sl_table_pass_time(t, now, l);
    /* Without authority what is free here may be held elsewhere: it is told later. */
    bool knows = !want_free || sl_table_has_authority(t, now);
    if (knows && sl_lock_is_so(l, want_free)) return SLUICE_OK;
    if (wait_ms == 0) return knows ? SLUICE_EFULL : SLUICE_ENOKEEPER;
    if (!knows) t->lacks_authority = true;
    if (l != NULL && l->crowd != NULL &&
        l->crowd->waiters + l->crowd->watchers >= t->limits.waiters_max)
        return SLUICE_EWAITERS;
    const struct sl_want w = {.key = key};
    struct sl_entry *e = sl_entry_new(s, &w);
    if (e == NULL) return SLUICE_ENOMEM;
    int status = SLUICE_OK;
    if (l == NULL) {
        status = reserve_key(t);
        if (status == SLUICE_OK) l = sl_table_found_lock(t, key);
        if (status == SLUICE_OK && l == NULL) status = SLUICE_ENOMEM;
    }
    if (status == SLUICE_OK) status = sl_table_reserve_entry(t, l, false);
    if (status != SLUICE_OK) {
        sl_entry_free(e);
        if (l != NULL) sl_table_tidy(t, l);
        return status;
    }
    e->lock = l;
    e->state = SL_WATCHES;
    e->watch_free = want_free;
    e->session = s;
    e->asked_ms = now.ms;
    sl_list_append(&s->mine, &e->of_session);
    sl_list_append(&l->crowd->watching[want_free], &e->place);
    sl_table_joined(t, l->crowd);
    l->crowd->watchers++;
    sl_table_count_entry(t, e);
    sl_table_set_end(t, e, sl_end_after(t, now, wait_ms));
    return SL_WAITS;
}
