/* table_change.c - changes to a grant: release, extend, break. */
#include <stdlib.h>
#include <string.h>

#include "locks/table_internal.h"

bool sl_lock_find_grant(struct sl_lock *l, struct sl_now now, sl_fence fence,
                        struct sl_grant_ref *out)
{
    if (l == NULL || fence == 0) return false;
    *out = (struct sl_grant_ref){.lock = l};
    if (l->fence == fence) return sl_inline_lives(l, now);
    if (l->roster == NULL) return false;
    out->entry = sl_holders_find(&l->roster->holders, fence);
    return sl_entry_lives(out->entry, now);
}

bool sl_table_find(const struct sl_table *t, struct sl_now now, struct sl_bytes key,
                   sl_fence fence, struct sl_grant_ref *out)
{
    return sl_lock_find_grant(sl_table_find_lock(t, key), now, fence, out);
}

/* Find the newest grant that a session acquired and still holds. The inline holder
 * is the oldest. */
static bool find_newest(struct sl_table *t, struct sl_now now, struct sl_bytes key,
                        uint64_t session_id, struct sl_grant_ref *out)
{
    struct sl_lock *l = sl_table_look_up(t, key);
    if (l == NULL) return false;
    sl_table_expire_lock(t, now, l);
    *out = (struct sl_grant_ref){.lock = l};
    if (l->roster != NULL) out->entry = sl_roster_newest(l->roster, session_id);
    if (out->entry != NULL) return true;
    return sl_inline_counts(l) && sl_inline_session_id(l) == session_id;
}

/* Whether a session may use a grant: the session acquired it, or it has a lease and
 * belongs to the session's user. */
static bool may_use(const struct sl_grant_ref *p, const struct sl_session *s)
{
    const struct sl_entry *e = p->entry;
    if (e == NULL) return p->lock->user == s->user;
    return e->session == s || (e->lease_ms > 0 && e->user == s->user);
}

static void end_grant(struct sl_table *t, struct sl_now now,
                      const struct sl_grant_ref *p, struct sl_ended *out)
{
    if (p->entry != NULL) sl_table_end_entry(t, now, p->entry, out);
    else sl_table_end_inline(t, now, p->lock, out);
}

int sl_table_release(struct sl_table *t, struct sl_now now, const struct sl_session *s,
                     struct sl_bytes key, sl_fence fence, struct sl_ended *out)
{
    struct sl_grant_ref p;
    sl_table_free_retired(t);
    bool found = fence != 0
                     ? sl_lock_find_grant(sl_table_look_up(t, key), now, fence, &p) &&
                           may_use(&p, s)
                     : find_newest(t, now, key, s->id, &p);
    if (!found) return 0;
    end_grant(t, now, &p, out);
    return 1;
}

/* Turn the inline holder into an entry, so that it can store more. */
static int move_inline(struct sl_table *t, struct sl_now now, struct sl_grant_ref *p,
                       struct sl_bytes value)
{
    struct sl_lock *l = p->lock;
    const struct sl_session s = {
        .id = sl_inline_session_id(l), .user = l->user, .client = l->client};
    const struct sl_want w = {
        .per = 1,
        .buckets = 1,
        .units = 1,
        .lease_ms = 1,
        .value = value,
        .note = {l->text + l->key_bytes + l->value_bytes, l->note_bytes}};
    struct sl_entry *e = sl_entry_new(&s, &w);
    if (e == NULL || sl_table_reserve_entry(t, l, true) != SLUICE_OK) {
        sl_entry_free(e);
        sl_table_drop_unused(t, l);
        return SLUICE_ENOMEM;
    }
    e->lock = l;
    e->state = SL_HOLDING;
    e->fence = l->fence;
    e->broken = (l->flags & SL_INLINE_BROKEN) != 0;
    e->is_long = (l->flags & SL_INLINE_LONG) != 0;
    e->unsure = sl_grant_unsure(p);
    e->wait.since_ms = e->granted_ms = now.ms - sl_inline_age_ms(l, now);
    e->end_ms = l->end_ms;
    sl_table_count_entry(t, e);
    if (l->timer != SL_HEAP_NONE) sl_heap_remove(&t->heap, l->timer);
    sl_table_set_end(t, e, e->end_ms);
    sl_holders_insert(&l->roster->holders, e);
    l->roster->held--;
    sl_roster_add_holder(l->roster, e, t->index.seed);
    sl_inline_clear(l);
    p->entry = e;
    return SLUICE_OK;
}

int sl_table_move_inline(struct sl_table *t, struct sl_now now, struct sl_lock *l)
{
    struct sl_grant_ref p = {.lock = l};
    if (!sl_inline_counts(l)) return SLUICE_OK;
    return move_inline(t, now, &p,
                       (struct sl_bytes){l->text + l->key_bytes, l->value_bytes});
}

static int set_value(struct sl_table *t, struct sl_now now, struct sl_grant_ref *p,
                     struct sl_bytes value)
{
    struct sl_entry *e = p->entry;
    struct sl_lock *l = p->lock;
    if (e == NULL && value.n == l->value_bytes) {
        memcpy(l->text + l->key_bytes, value.at, value.n);
        return SLUICE_OK;
    }
    if (e == NULL) return move_inline(t, now, p, value);
    char *text;
    struct sl_bytes note = {0};
    if (e->note_bytes > 0)
        note = (struct sl_bytes){e->text + e->value_bytes, e->note_bytes};
    int status = sl_copy_text(value, note, &text);
    if (status != SLUICE_OK) return status;
    free(e->text);
    e->text = text;
    t->text_bytes += value.n - e->value_bytes; /* The sum wraps around and back. */
    e->value_bytes = (uint16_t)value.n;
    return SLUICE_OK;
}

/* Returns SLUICE_OK if the grant has a lease that can be extended, or an error. */
static int may_extend(const struct sl_table *t, const struct sl_grant_ref *p,
                      struct sl_now now)
{
    const struct sl_entry *e = p->entry;
    if (sl_grant_sure_end(p) <= now.ms) return SLUICE_ELOST;
    if (now.ms < t->rival_until_ms && sl_grant_sure_end(p) <= t->rival_until_ms)
        return SLUICE_ERECOVERING;
    if (e == NULL) return p->lock->flags & SL_INLINE_BROKEN ? SLUICE_ELOST : SLUICE_OK;
    if (e->lease_ms == 0) return SLUICE_ENOLEASE;
    if (e->broken) return SLUICE_ELOST;
    return sl_is_victim(e) ? SLUICE_EASKED : SLUICE_OK;
}

static void set_end(struct sl_table *t, const struct sl_grant_ref *p, sl_ms end_ms)
{
    struct sl_lock *l = p->lock;
    if (p->entry != NULL) {
        sl_table_set_end(t, p->entry, end_ms);
        return;
    }
    l->end_ms = end_ms;
    if (end_ms != SL_NEVER) sl_heap_move(&t->heap, l->timer, end_ms);
    else sl_heap_remove(&t->heap, l->timer);
}

void sl_table_move_end(struct sl_table *t, const struct sl_grant_ref *p, sl_ms end_ms)
{
    if (end_ms > sl_grant_end(p)) set_end(t, p, end_ms);
}

int sl_table_extend(struct sl_table *t, struct sl_now now, const struct sl_session *s,
                    struct sl_bytes key, sl_fence fence, sl_ms ms,
                    struct sl_bytes value, sl_ms *lease_ms)
{
    struct sl_grant_ref p;
    sl_table_free_retired(t);
    if (ms <= 0) return SLUICE_EINVAL;
    if (value.n > t->limits.value_bytes_max) return SLUICE_ETOOBIG;
    /* Check this first: a grant that is lost in this table may be held longer in
     * another. */
    if (!sl_table_has_authority(t, now)) return SLUICE_ENOKEEPER;
    if (!sl_table_find(t, now, key, fence, &p) || !may_use(&p, s)) return SLUICE_ELOST;
    int status = may_extend(t, &p, now);
    if (status == SLUICE_OK && value.at != NULL) status = set_value(t, now, &p, value);
    if (status != SLUICE_OK) return status;
    sl_ms before_ms = sl_grant_end(&p);
    /* From now on the holder relies on this expiry, so it needs a record, even if it is not later. */
    bool was_unsure = sl_grant_unsure(&p) != 0;
    sl_grant_set_unsure(&p, 0);
    sl_table_move_end(t, &p, sl_end_after(t, now, ms));
    if (sl_grant_end(&p) > before_ms || was_unsure || value.at != NULL)
        sl_table_note_grant(t, now, p, before_ms);
    *lease_ms = sl_left_at_least(t, now, sl_grant_end(&p));
    return SLUICE_OK;
}

void sl_table_undo_extend(struct sl_table *t, struct sl_now now, struct sl_bytes key,
                          sl_fence fence, sl_ms end_ms, sl_ms before_ms,
                          struct sl_bytes value)
{
    struct sl_grant_ref p;
    sl_table_free_retired(t);
    if (!sl_table_find(t, now, key, fence, &p) || sl_grant_end(&p) != end_ms) return;
    if (value.at != NULL) set_value(t, now, &p, value);
    if (end_ms != SL_NEVER) set_end(t, &p, before_ms); /* Else it has no timer. */
    sl_table_note_grant(t, now, p, end_ms);
}

static struct sl_ended past_of(const struct sl_grant_ref *p, struct sl_now now)
{
    const struct sl_entry *e = p->entry;
    const struct sl_lock *l = p->lock;
    if (e == NULL)
        return (struct sl_ended){.fence = l->fence,
                                 .session_id = sl_inline_session_id(l),
                                 .held_ms = sl_inline_age_ms(l, now),
                                 .broken = (l->flags & SL_INLINE_BROKEN) != 0,
                                 .asked_ms = -1};
    return (struct sl_ended){.fence = e->fence,
                             .session_id = e->session_id,
                             .held_ms = now.ms - e->granted_ms,
                             .broken = e->broken,
                             .asked_ms = e->victim_ms < 0 ? -1 : now.ms - e->victim_ms};
}

/* End the grant, and mark the next one as overlapping. The mark needs the timer of
 * the inline holder, so turn the inline holder into an entry first, if there is
 * memory for it. */
static void mark_and_end(struct sl_table *t, struct sl_now now,
                         const struct sl_grant_ref *p, sl_ms end_ms,
                         struct sl_ended *out)
{
    struct sl_lock *l = p->lock;
    struct sl_grant_ref inlined = {.lock = l};
    const struct sl_bytes value = {l->text + l->key_bytes, l->value_bytes};
    if (p->entry == NULL) { /* The mark takes over the timer of the inline holder. */
        bool place = l->timer != SL_HEAP_NONE ||
                     sl_heap_reserve(&t->heap, (uint32_t)t->waiting + 1) == SLUICE_OK;
        *out = past_of(p, now);
        if (sl_inline_counts(l)) {
            sl_table_note_end(t, *p);
            if (l->roster != NULL) l->roster->held--;
        }
        sl_inline_clear(l);
        if (place) sl_table_mark_next(t, l, end_ms);
        sl_table_drop_unused(t, l);
        return;
    }
    if (sl_has_inline(l)) move_inline(t, now, &inlined, value);
    if (sl_heap_reserve(&t->heap, (uint32_t)t->waiting + 1) == SLUICE_OK)
        sl_table_mark_next(t, l, end_ms);
    end_grant(t, now, p, out);
}

static void take_back(struct sl_table *t, struct sl_now now,
                      const struct sl_grant_ref *p, bool overlapping)
{
    struct sl_ended past;
    /* If the victims of a forced grant have not been notified yet, it is enough to
     * withdraw the requests to release. */
    bool forced = p->entry != NULL && sl_table_undo_steal(t, now, p->lock->roster);
    if (overlapping && !forced)
        mark_and_end(t, now, p, sl_end_after(t, now, SL_MARK_MS), &past);
    else end_grant(t, now, p, &past);
}

/* If other attempts of the same acquisition wait for their replies, the grant is theirs. */
static bool keep_for_joined(struct sl_table *t, struct sl_now now,
                            const struct sl_grant_ref *p, struct sl_bytes key)
{
    struct sl_entry *e = p->entry;
    if (e == NULL || e->named == NULL || sl_list_empty(&e->named->joined)) return false;
    const struct sl_entry *j = sl_container_of(e->named->joined.next, struct sl_entry,
                                               in_list);
    return e->lease_ms > 0 ||
           sl_table_rebind(t, now, j->session, key, e->fence) == SLUICE_OK;
}

bool sl_table_take_back(struct sl_table *t, struct sl_now now, struct sl_session *s,
                        struct sl_bytes key, const struct sl_grant *grant)
{
    struct sl_grant_ref p;
    sl_table_free_retired(t);
    if (!sl_table_find(t, now, key, grant->fence, &p) || !may_use(&p, s)) return false;
    if (keep_for_joined(t, now, &p, key)) return false;
    if (p.entry != NULL && p.entry->named != NULL && p.entry->named->known)
        return false;
    if (p.entry != NULL) sl_table_lose_named(t, now, p.entry);
    take_back(t, now, &p, grant->overlapping);
    return true;
}

void sl_table_known(struct sl_table *t, struct sl_now now, struct sl_bytes key,
                    sl_fence fence)
{
    struct sl_grant_ref p;
    if (sl_table_find(t, now, key, fence, &p) && p.entry != NULL &&
        p.entry->named != NULL)
        p.entry->named->known = true;
}

void sl_table_undo_grant(struct sl_table *t, struct sl_now now, struct sl_bytes key,
                         sl_fence fence)
{
    struct sl_grant_ref p;
    sl_table_free_retired(t);
    if (!sl_table_find(t, now, key, fence, &p)) return;
    if (p.entry != NULL && p.entry->named != NULL &&
        sl_list_empty(&p.entry->named->joined))
        sl_table_forget_named(t, p.entry);
    take_back(t, now, &p, p.entry != NULL && p.entry->overlaps);
}

int sl_table_break(struct sl_table *t, struct sl_now now, struct sl_bytes key,
                   sl_fence fence, bool at_once, struct sl_ended *out)
{
    struct sl_grant_ref p;
    sl_table_free_retired(t);
    if (!sl_table_find(t, now, key, fence, &p)) return 0;
    bool leased = p.entry == NULL || p.entry->lease_ms > 0;
    if (leased && !at_once) {
        *out = past_of(&p, now);
        if (p.entry != NULL) p.entry->broken = true;
        else p.lock->flags |= SL_INLINE_BROKEN;
        sl_table_note_grant(t, now, p, sl_grant_end(&p));
        return 1;
    }
    sl_ms end_ms = sl_grant_end(&p); /* By then the holder knows that it expired. */
    if (end_ms == SL_NEVER) end_ms = sl_end_after(t, now, SL_MARK_MS);
    mark_and_end(t, now, &p, end_ms, out);
    return 2;
}
