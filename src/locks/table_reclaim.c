/* table_reclaim.c - adds the grants of another table to this one.
 *
 * Two nodes may report the same grant, and a node may report a grant that was
 * released without its knowledge. The table keeps all of them; README.md explains
 * why. */
#include <stdlib.h>

#include "locks/table_internal.h"

static uint32_t user_of(const struct sl_session *s, const struct sl_grant_view *v)
{
    return s != NULL ? s->user : v->user;
}

/* Returns SLUICE_OK if such a grant is possible, or an error. */
static int check_record(const struct sl_table *t, const struct sl_session *s,
                        const struct sl_grant_view *v, struct sl_bytes key)
{
    if (v->waits || key.n == 0) return SLUICE_EINVAL;
    if (s == NULL && !v->leased) return SLUICE_EINVAL;
    if (s != NULL && s->ended) return SLUICE_EINVAL;
    if (v->leased && v->left_ms < 0) return SLUICE_EINVAL;
    if (v->fence == 0 || v->fence > t->fence) return SLUICE_EINVAL;
    if (!v->shared && (v->units == 0 || v->units > SLUICE_UNITS_MAX))
        return SLUICE_EINVAL;
    if (key.n > UINT16_MAX || v->value.n > UINT16_MAX || v->note.n > UINT16_MAX ||
        v->request.n > SL_REQUEST_ID_MAX)
        return SLUICE_ETOOBIG;
    return SLUICE_OK;
}

/* Returns until when the lease holds the lock. Only a record of this server has the exact time. Sets
 * *unsure so that the lease is certainly valid until sl_unsure_ms(*unsure) before that. */
static sl_ms end_of_record(const struct sl_table *t, struct sl_now now,
                           const struct sl_grant_view *v, uint8_t *unsure)
{
    *unsure = sl_unsure_code(v->unsure_ms);
    if (v->end_ms != 0) return v->end_ms;
    sl_ms end = sl_end_after(t, now, v->left_ms);
    if (v->unsure_ms == 0 || end == SL_NEVER) return end;
    if (v->unsure_ms >= v->left_ms) {
        *unsure = SL_UNSURE_NEVER;
        return end;
    }
    sl_ms gap = end - (now.ms + v->left_ms - v->unsure_ms);
    *unsure = sl_unsure_code(gap);
    return *unsure == SL_UNSURE_NEVER ? end : end - gap + sl_unsure_ms(*unsure);
}

/* Merge two reports of a lease. It has expired when both reports say so, and it can be extended while
 * one of them says that it is certainly valid. */
static void merge_end(struct sl_table *t, const struct sl_grant_ref *p,
                      struct sl_now now, const struct sl_grant_view *v)
{
    uint8_t unsure;
    sl_ms end = end_of_record(t, now, v, &unsure), sure = sl_grant_sure_end(p);
    sl_ms other = unsure == SL_UNSURE_NEVER ? 0 : end - sl_unsure_ms(unsure);
    if (other > sure) sure = other;
    if (sl_grant_end(p) > end) end = sl_grant_end(p);
    unsure = sure == 0 ? SL_UNSURE_NEVER : sl_unsure_code(end - sure);
    if (unsure != SL_UNSURE_NEVER) end = sure + sl_unsure_ms(unsure);
    sl_table_move_end(t, p, end);
    sl_grant_set_unsure(p, unsure);
}

/* If a report says that a lease was broken or stolen (`asked`), it cannot be extended. An inline holder cannot be
 * marked as stolen. If there is no memory to move it, it is marked as broken, so EXTEND replies LOST instead of
 * ASKED. */
static void bar_extension(struct sl_table *t, struct sl_now now, struct sl_grant_ref *p,
                          const struct sl_grant_view *v)
{
    struct sl_lock *l = p->lock;
    if (v->asked && p->entry == NULL && sl_table_move_inline(t, now, l) == SLUICE_OK)
        sl_lock_find_grant(l, now, v->fence, p);
    struct sl_entry *e = p->entry;
    if (e == NULL) {
        if (v->broken || v->asked) l->flags |= SL_INLINE_BROKEN;
        return;
    }
    if (v->broken) e->broken = true;
    if (!v->asked || e->stolen) return;
    e->stolen = true;
    e->victim_ms = -1;
    l->roster->stolen++;
    sl_roster_set_victim(l->roster, e, SL_VICTIM_NONE);
}

/* Handle a grant that is reported again. If only one of the reporters knows that the
 * lease was extended, the holder relies on the later expiry. */
static int reclaim_again(struct sl_table *t, struct sl_now now, struct sl_grant_ref *p,
                         const struct sl_session *s, const struct sl_grant_view *v)
{
    const struct sl_entry *e = p->entry;
    const struct sl_lock *l = p->lock;
    bool leased = e == NULL || e->lease_ms > 0;
    if (leased != v->leased) return SLUICE_EINVAL;
    if (!leased) return e->session == s ? SLUICE_OK : SLUICE_EINVAL;
    if ((e == NULL ? l->user : e->user) != user_of(s, v)) return SLUICE_EINVAL;
    if ((e == NULL ? sl_inline_session_id(l) : e->session_id) == 0 && s != NULL)
        return SLUICE_EINVAL;
    bar_extension(t, now, p, v);
    merge_end(t, p, now, v);
    return SLUICE_OK;
}

static int reclaim_inline(struct sl_table *t, struct sl_now now,
                          const struct sl_session *s, const struct sl_grant_view *v,
                          struct sl_bytes key)
{
    struct sl_lock *l = sl_lock_new(key, v->value, v->note);
    if (l == NULL || sl_heap_reserve(&t->heap, (uint32_t)t->waiting + 1) != SLUICE_OK) {
        free(l);
        return SLUICE_ENOMEM;
    }
    l->fence = v->fence;
    l->client = sl_client_ref(s->client);
    l->user = s->user;
    l->flags = (uint16_t)((v->broken ? SL_INLINE_BROKEN : 0) |
                          (v->is_long ? SL_INLINE_LONG : 0));
    uint8_t unsure;
    l->end_ms = end_of_record(t, now, v, &unsure);
    sl_grant_set_unsure(&(struct sl_grant_ref){.lock = l}, unsure);
    if (l->end_ms != SL_NEVER) sl_heap_put(&t->heap, l->end_ms, sl_inline_owner(l));
    sl_table_put_lock(t, l);
    return SLUICE_OK;
}

/* Drop a grant that has expired in this table and is now reported with a later
 * expiry. So the table does not report that it expired. */
static void drop_expired(struct sl_table *t, struct sl_lock *l, sl_fence fence)
{
    if (l->fence == fence) {
        if (l->timer != SL_HEAP_NONE) sl_heap_remove(&t->heap, l->timer);
        sl_inline_clear(l);
    }
    for (struct sl_list *n = l->roster->expired.next; n != &l->roster->expired;
         n = n->next) {
        struct sl_entry *e = sl_container_of(n, struct sl_entry, in_list);
        if (e->fence != fence) continue;
        sl_list_remove(&e->in_list);
        sl_table_retire_entry(t, e);
        sl_table_free_retired(t);
        return;
    }
}

/* Find or add the acquisition of a reported grant. Sets *out to NULL if the grant has no id. If another
 * grant with a higher fence has the same id, that one keeps it. Returns SLUICE_OK; EENDED if a
 * client has cancelled the acquisition; or ENOMEM. */
static int name_record(struct sl_table *t, const struct sl_session *s,
                       const struct sl_grant_view *v, struct sl_bytes key,
                       struct sl_acquisition **out)
{
    *out = NULL;
    if (v->request.n == 0) return SLUICE_OK;
    struct sl_acquisition *a = sl_requests_find(&t->requests, s->user, key, v->request);
    if (a == NULL)
        a = sl_requests_add(&t->requests, s->user, key, v->request, v->digest);
    if (a == NULL) return SLUICE_ENOMEM;
    if (a->cancelled) return SLUICE_EENDED;
    if (a->entry != NULL && a->entry->state == SL_HOLDING && a->entry->fence > v->fence)
        return SLUICE_OK;
    *out = a;
    return SLUICE_OK;
}

/* Connect a reported grant with its acquisition. Attempts that wait for it get the grant. */
static void take_name(struct sl_table *t, struct sl_entry *e, struct sl_acquisition *a)
{
    struct sl_entry *before = a->entry;
    if (before != NULL && before->state == SL_HOLDING) before->named = NULL;
    else if (before != NULL) sl_table_leave_queue(t, before);
    sl_requests_revive(a);
    a->entry = e;
    sl_table_answer_joined(t, a);
}

static int reclaim_entry(struct sl_table *t, struct sl_now now, struct sl_session *s,
                         const struct sl_grant_view *v, struct sl_lock *l,
                         const struct sl_want *w)
{
    struct sl_entry *e = sl_entry_new(s, w);
    /* The inline holder must have the lowest fence. */
    bool moves = e != NULL && l->fence > v->fence;
    if (e == NULL || (moves && sl_table_move_inline(t, now, l) != SLUICE_OK) ||
        sl_table_reserve_entry(t, l, v->leased) != SLUICE_OK) {
        sl_entry_free(e);
        sl_table_drop_unused(t, l);
        return SLUICE_ENOMEM;
    }
    struct sl_roster *r = l->roster;
    sl_ms age = now.wall_us > v->fence ? (sl_ms)((now.wall_us - v->fence) / 1000) : 0;
    drop_expired(t, l, v->fence);
    e->lock = l;
    e->state = SL_HOLDING;
    e->fence = v->fence;
    e->broken = v->broken;
    e->overlaps = v->overlapping;
    e->wait.since_ms = e->granted_ms = now.ms - age;
    e->is_long = v->is_long;
    sl_table_set_end(t, e, v->leased ? end_of_record(t, now, v, &e->unsure) : SL_NEVER);
    if (!v->leased) {
        e->session = s;
        sl_list_append(s->mine.next, &e->of_session); /* Before its waiters. */
    }
    sl_holders_insert(&r->holders, e);
    sl_roster_add_holder(r, e, t->index.seed);
    e->reclaimed = true;
    r->reclaimed++;
    /* A reported grant is marked `asked` only if it was stolen. */
    e->stolen = v->asked;
    r->stolen += v->asked;
    sl_table_count_entry(t, e);
    if (e->named != NULL) take_name(t, e, e->named);
    sl_table_recheck(t, r);
    return SLUICE_OK;
}

/* Whether name_record() has added this acquisition. */
static bool is_unused(const struct sl_acquisition *a)
{
    return a->entry == NULL && sl_list_empty(&a->in_list);
}

/* Add a grant that is not in the table yet. */
static int reclaim_new(struct sl_table *t, struct sl_now now, struct sl_session *s,
                       const struct sl_grant_view *v, struct sl_bytes key,
                       struct sl_lock *l)
{
    struct sl_want w = {.key = key,
                        .shared = v->shared,
                        .per = v->per,
                        .buckets = v->buckets,
                        .units = v->units,
                        .priority = v->priority,
                        .lease_ms = !v->leased       ? 0
                                    : v->left_ms > 0 ? v->left_ms
                                                     : 1,
                        .value = v->value,
                        .note = v->note};
    if (l == NULL && sl_index_reserve(&t->index) != SLUICE_OK) return SLUICE_ENOMEM;
    int status = name_record(t, s, v, key, &w.named);
    if (status != SLUICE_OK) return status;
    if (l == NULL && sl_want_is_plain(&w) && !v->asked && !v->overlapping)
        return reclaim_inline(t, now, s, v, key);
    if (l == NULL) l = sl_table_add_lock(t, key);
    status = l == NULL ? SLUICE_ENOMEM : reclaim_entry(t, now, s, v, l, &w);
    if (status != SLUICE_OK && w.named != NULL && is_unused(w.named))
        sl_requests_forget(&t->requests, w.named);
    return status;
}

/* Like reclaim_new(), for the client that the record names. The session may have a
 * different name now. */
static int reclaim_named(struct sl_table *t, struct sl_now now, struct sl_session *s,
                         const struct sl_grant_view *v, struct sl_bytes key,
                         struct sl_lock *l)
{
    struct sl_client *own = s->client;
    s->client = sl_client_get(&t->clients, s->id, s->origin, v->name, v->address);
    int status = s->client == NULL ? SLUICE_ENOMEM : reclaim_new(t, now, s, v, key, l);
    sl_client_unref(s->client); /* The grant has its own reference. */
    s->client = own;
    return status;
}

static int reclaim(struct sl_table *t, struct sl_now now, struct sl_session *s,
                   const struct sl_grant_view *v, struct sl_bytes key)
{
    struct sl_grant_ref p;
    sl_table_free_retired(t);
    int status = check_record(t, s, v, key);
    if (status != SLUICE_OK) return status;
    struct sl_lock *l = sl_table_look_up(t, key);
    if (l != NULL) sl_table_expire_lock(t, now, l);
    if (sl_lock_find_grant(l, now, v->fence, &p))
        return reclaim_again(t, now, &p, s, v);
    /* The session is not in this table. */
    struct sl_session other = {.user = v->user, .origin = v->origin};
    bool named = v->name.n + v->address.n > 0 || (s == NULL && v->origin != 0);
    if (named) return reclaim_named(t, now, s != NULL ? s : &other, v, key, l);
    if (s == NULL) return reclaim_new(t, now, &other, v, key, l);
    status = sl_table_know_client(t, s);
    return status == SLUICE_OK ? reclaim_new(t, now, s, v, key, l) : status;
}

int sl_table_reclaim(struct sl_table *t, struct sl_now now, struct sl_session *s,
                     const struct sl_grant_view *v, struct sl_bytes key)
{
    struct sl_grant_view known = *v;
    known.end_ms = 0; /* It counts in the clock of another server. */
    known.is_long = false;
    struct sl_grant_ref p;
    bool held = sl_table_find(t, now, key, v->fence, &p);
    sl_ms before_ms = held ? sl_grant_end(&p) : 0;
    int status = reclaim(t, now, s, &known, key);
    /* The next keeper must know that it was broken or stolen: the ledgers do not tell. */
    if (status == SLUICE_OK && (v->broken || v->asked) &&
        sl_table_find(t, now, key, v->fence, &p) && sl_grant_end(&p) > before_ms)
        sl_table_note_grant(t, now, p, before_ms);
    return status;
}

int sl_table_rebind(struct sl_table *t, struct sl_now now, struct sl_session *s,
                    struct sl_bytes key, sl_fence fence)
{
    struct sl_grant_ref p;
    sl_table_free_retired(t);
    if (s->ended) return SLUICE_EINVAL;
    if (!sl_table_find(t, now, key, fence, &p) || p.entry == NULL ||
        p.entry->lease_ms > 0)
        return SLUICE_ENOENT;
    if (sl_table_know_client(t, s) != SLUICE_OK) return SLUICE_ENOMEM;
    struct sl_entry *e = p.entry;
    sl_list_remove(&e->of_session);
    e->session = s;
    e->user = s->user;
    sl_client_unref(e->client);
    e->client = sl_client_ref(s->client);
    sl_list_append(s->mine.next, &e->of_session); /* Before its waiters. */
    sl_roster_rebind(p.lock->roster, e, s->id, t->index.seed);
    sl_table_recheck(t, p.lock->roster); /* Thieves do not ask their own session. */
    return SLUICE_OK;
}

int sl_table_restore(struct sl_table *t, struct sl_now now,
                     const struct sl_grant_view *v, struct sl_bytes key)
{
    return reclaim(t, now, NULL, v, key);
}

int sl_table_restore_mark(struct sl_table *t, struct sl_now now, struct sl_bytes key,
                          sl_ms end_ms, bool is_long)
{
    sl_table_free_retired(t);
    if (key.n == 0 || key.n > UINT16_MAX || end_ms <= 0) return SLUICE_EINVAL;
    struct sl_lock *l = sl_table_look_up(t, key);
    if (sl_heap_reserve(&t->heap, (uint32_t)t->waiting + 1) != SLUICE_OK)
        return SLUICE_ENOMEM;
    if (l == NULL) {
        if (sl_index_reserve(&t->index) != SLUICE_OK ||
            (l = sl_table_add_lock(t, key)) == NULL)
            return SLUICE_ENOMEM;
    }
    /* The mark needs the timer of the inline holder. */
    if (sl_table_move_inline(t, now, l) != SLUICE_OK) return SLUICE_ENOMEM;
    if (is_long) l->flags |= SL_MARK_LONG;
    sl_table_mark_next(t, l, end_ms);
    return SLUICE_OK;
}
