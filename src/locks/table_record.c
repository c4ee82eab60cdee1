/* table_record.c - tells the recorder about changes, and visits everything that it has. */
#include <stdlib.h>
#include <string.h>

#include "locks/table_internal.h"

void sl_table_set_recorder(struct sl_table *t, const struct sl_table_recorder *r)
{
    t->recorder = r;
}

static void view(const struct sl_table *t, struct sl_now now, struct sl_grant_ref p,
                 struct sl_grant_change *out)
{
    out->key = sl_lock_key(p.lock);
    if (p.entry != NULL) sl_table_view_entry(t, p.entry, now, &out->grant);
    else sl_table_view_inline(t, p.lock, now, &out->grant);
}

void sl_table_note_grant(const struct sl_table *t, struct sl_now now,
                         struct sl_grant_ref p, sl_ms before_ms)
{
    const struct sl_table_recorder *to = t->recorder;
    struct sl_grant_change c;
    if (to == NULL) return;
    if (p.entry != NULL && p.entry->lease_ms == 0) {
        to->unleased(to->arg, sl_lock_key(p.lock), p.entry->fence);
        return;
    }
    view(t, now, p, &c);
    c.before_ms = before_ms;
    bool is_long = to->put(to->arg, &c);
    if (p.entry != NULL) p.entry->is_long = is_long;
    else if (is_long) p.lock->flags |= SL_INLINE_LONG;
    else p.lock->flags &= (uint16_t)~SL_INLINE_LONG;
}

void sl_table_note_end(const struct sl_table *t, struct sl_grant_ref p)
{
    const struct sl_table_recorder *to = t->recorder;
    const struct sl_entry *e = p.entry;
    if (to == NULL || (e != NULL && e->lease_ms == 0)) return;
    to->end(to->arg, sl_lock_key(p.lock), e != NULL ? e->fence : p.lock->fence,
            e != NULL ? e->end_ms : p.lock->end_ms,
            e != NULL ? e->is_long : (p.lock->flags & SL_INLINE_LONG) != 0);
}

void sl_table_note_mark(const struct sl_table *t, struct sl_lock *l, sl_ms end_ms,
                        sl_ms before_ms)
{
    const struct sl_table_recorder *to = t->recorder;
    if (to == NULL) return;
    bool was_long = (l->flags & SL_MARK_LONG) != 0;
    if (to->mark(to->arg, sl_lock_key(l), end_ms, before_ms, was_long))
        l->flags |= SL_MARK_LONG;
}

void sl_table_note_unmark(const struct sl_table *t, struct sl_lock *l)
{
    const struct sl_table_recorder *to = t->recorder;
    if ((l->flags & SL_NEXT_OVERLAPS) == 0) return;
    if (to != NULL) to->unmark(to->arg, sl_lock_key(l), (l->flags & SL_MARK_LONG) != 0);
    l->flags &= (uint16_t) ~(SL_NEXT_OVERLAPS | SL_MARK_LONG);
}

/* --- Visiting everything -------------------------------------------------------- */

struct table_visit {
    const struct sl_table *t;
    struct sl_now now;
    const struct sl_table_recorder *to;
    size_t left;
};

/* Returns the slot of the first holder whose fence is above this one. */
static uint32_t slot_after(const struct sl_holders *h, sl_fence fence)
{
    uint32_t low = h->first, high = h->count;
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        if (h->items[middle].fence > fence) high = middle;
        else low = middle + 1;
    }
    return low;
}

static void visit_grant(struct table_visit *v, struct sl_lock *l, struct sl_entry *e)
{
    struct sl_grant_change c;
    view(v->t, v->now, (struct sl_grant_ref){l, e}, &c);
    c.before_ms = c.grant.end_ms;
    v->to->put(v->to->arg, &c);
}

/* Visit the lock, or its holders above *fence; v->left is not 0. Returns false if the budget was not enough; then
 * *fence is the last holder visited. */
static bool visit_lock(struct table_visit *v, struct sl_lock *l, sl_fence *fence)
{
    const struct sl_roster *r = l->roster;
    if (*fence == 0) {
        if (sl_lock_is_marked(l, v->now)) {
            bool is_long = (l->flags & SL_MARK_LONG) != 0;
            v->to->mark(v->to->arg, sl_lock_key(l), l->end_ms, l->end_ms, is_long);
        }
        if (sl_inline_lives(l, v->now)) visit_grant(v, l, NULL);
    }
    if (r == NULL || r->holders.live == 0) {
        v->left--;
        return true;
    }
    for (uint32_t i = slot_after(&r->holders, *fence); i < r->holders.count; i++) {
        struct sl_entry *e = r->holders.items[i].entry;
        if (e == NULL) continue;
        if (v->left == 0) return false;
        v->left--; /* At least one holder is visited in each call. */
        *fence = e->fence;
        if (e->lease_ms > 0 && sl_entry_lives(e, v->now)) visit_grant(v, l, e);
    }
    return true;
}

static int stop_in(struct sl_table_walk *w, const struct sl_lock *l, sl_fence fence)
{
    w->fence = fence;
    if (w->key != NULL) return 1;
    w->key = malloc(l->key_bytes);
    if (w->key == NULL) return SLUICE_ENOMEM;
    memcpy(w->key, l->text, l->key_bytes);
    w->key_bytes = l->key_bytes;
    return 1;
}

int sl_table_walk(const struct sl_table *t, struct sl_now now, struct sl_table_walk *w,
                  const struct sl_table_recorder *to, size_t max)
{
    struct table_visit v = {.t = t, .now = now, .to = to, .left = max};
    struct sl_bytes glob;
    if (!w->in_keys && w->drains == 0) { /* There are few patterns. */
        while (sl_table_drains(t, w->drains, &glob)) {
            to->drain(to->arg, glob, true);
            w->drains++;
        }
        w->in_keys = true;
    }
    if (w->key != NULL) {
        struct sl_lock *l = sl_table_find_lock(t,
                                               (struct sl_bytes){w->key, w->key_bytes});
        if (l != NULL && !visit_lock(&v, l, &w->fence)) return stop_in(w, l, w->fence);
        sl_table_walk_end(w);
        if (w->cursor == 0) return 0;
    }
    while (v.left > 0) {
        void *found = NULL;
        sl_fence fence = 0;
        if (sl_index_scan(&t->index, &w->cursor, &found, 1) == 1 &&
            !visit_lock(&v, found, &fence))
            return stop_in(w, found, fence);
        if (w->cursor == 0) return 0;
    }
    return 1;
}

void sl_table_walk_end(struct sl_table_walk *w)
{
    free(w->key);
    w->key = NULL;
    w->fence = 0;
}
