/* state_storage.c - the durable limits of a keeper. The storage of the cluster keeps them for the
 * next keeper. */
#include <errno.h>

#include "server/arbiter/local.h"
#include "server/arbiter/state_internal.h"

int sl_state_start_storage(struct server *s, sl_state_write *write)
{
    struct sl_state *st = sl_state_new(s);
    if (st == NULL) return -1;
    st->write = write;
    st->limits_leases = true;
    sl_table_set_authority(s->table, 0);
    return 0;
}

void sl_state_set_keeper(struct server *s, struct sl_keeper_journal *k)
{
    s->state->keeper = k;
}

void sl_state_begin_term(struct server *s, sl_fence fence_limit, sl_ms longest_ms)
{
    struct sl_state *st = s->state;
    struct sl_table_stats stats;
    st->kept = (struct sl_kept){.fence_limit = fence_limit,
                                .lease_longest_ms = longest_ms};
    st->inherited_ms = longest_ms;
    if (longest_ms > st->lease_cap_ms) st->lease_cap_ms = longest_ms;
    st->longest = (struct sl_longest){0};
    st->lease_wanted_ms = 0;
    st->failed = 0;
    st->current = true;
    sl_table_set_fences(s->table, fence_limit, fence_limit);
    sl_table_stats(s->table, &stats);
    st->fence_seen = stats.fence_last;
    st->granted_ms = s->now.ms; /* A client may request a lock soon. */
    sl_state_start_writing(s);
}

void sl_state_written(struct server *s, bool ok)
{
    if (s->state->writing) sl_state_end_writing(s, ok ? 0 : EIO);
}

/* This node is no longer the keeper: run a request again that waits for its journal or its witness. Do
 * not undo an extension that was not acknowledged. If the next keeper knows of it, the lease lasts
 * longer than its holder knows. */
static void requeue(struct request *r,
                    void (*unwanted)(struct request *r, const struct sl_grant *g))
{
    struct sl_state *st = r->s->state;
    const struct sl_grant g = r->grant;
    bool granted = r->outcome == SL_PARKED_GRANT;
    if (r->outcome == SL_PARKED_LEFT) {
        sl_state_drop_left(r);
        return;
    }
    r->position = 0;
    sl_list_remove(&r->place);
    sl_list_append(&st->resuming, &r->place);
    if (r->outcome == SL_PARKED_EVENT) return;
    if (granted) sl_local_undo(r);
    if (granted && g.lease_ms > 0) unwanted(r, &g);
    r->outcome = SL_PARKED_TO_RUN;
}

void sl_state_end_term(struct server *s,
                       void (*unwanted)(struct request *r, const struct sl_grant *g))
{
    struct sl_state *st = s->state;
    st->current = st->writing = false;
    st->failed = 0;
    st->all_position = 0;
    st->kept = (struct sl_kept){0};
    sl_table_set_authority(s->table, 0);
    while (!sl_list_empty(&st->parked))
        requeue(sl_container_of(st->parked.next, struct request, place), unwanted);
    while (!sl_list_empty(&st->noting))
        requeue(sl_container_of(st->noting.next, struct request, place), unwanted);
    sl_state_retry(s);
}
