/* local_effects.c - the effects of changes in the table: answers waiters and publishes events. */
#include <assert.h>
#include <stdlib.h>

#include "server/arbiter/local_internal.h"
#include "server/forward/proxy.h"

/* --- Events ------------------------------------------------------------------------------ */

void sl_local_notify_gone(struct server *s, sl_fence fence, bool at_once)
{
    const struct sl_local_observer *o = sl_local_of(s)->observer;
    if (o != NULL) o->gone(s, fence, at_once);
}

void sl_local_notify_broke(struct server *s, sl_fence fence, bool ended)
{
    const struct sl_local_observer *o = sl_local_of(s)->observer;
    if (o != NULL) o->broke(s, fence, ended);
}

void sl_local_publish(struct server *s, const struct sl_event *e)
{
    if (e->session == 0 && sl_pubsub_unheard(&s->pubsub)) return;
    sl_state_publish(s, e, sl_state_pending(s, e->key));
}

void sl_local_count_stolen(struct server *s, struct sl_bytes key,
                           const struct sl_ended *past, bool answered,
                           uint64_t position)
{
    if (past->asked_ms < 0) return;
    if (answered) sl_answers_add(&s->stats.answers, past->asked_ms);
    s->stats.steals++;
    sl_state_publish(
        s,
        &(struct sl_event){.type = SL_EVENT_STOLEN, .key = key, .fence = past->fence},
        position);
}

/* --- Waiters ----------------------------------------------------------------------------- */

/* Return the request that waits in the table and has this effect, or NULL. */
static struct request *waiter_of(const struct server *s, const struct sl_effect *e)
{
    struct request *r = sl_request_find(s, e->ticket);
    assert(r == NULL || (r->arbiter == s->arbiters.local && r->in_table));
    return r;
}

/* Return the status of a request that has timed out. A null reply would say that the lock is held;
 * while the table grants nothing at all, the server does not know that. */
static int status_of_timeout(const struct server *s)
{
    struct sl_table_stats table;
    sl_table_stats(s->table, &table);
    if (table.authority_until_ms <= s->now.ms) return SLUICE_ENOKEEPER;
    if (table.recovering_until_ms > s->now.ms) return SLUICE_ERECOVERING;
    return SLUICE_EFULL;
}

static void answer_waiter(struct server *s, const struct sl_effect *e)
{
    struct request *r = waiter_of(s, e);
    if (r == NULL) return;
    sl_state_uncount_waiter(r);
    if (e->type == SL_EFFECT_TIMED_OUT) s->stats.waits_timed_out++;
    uint64_t pending = sl_state_pending(s, e->key);
    if (e->type == SL_EFFECT_SEEN && pending != 0)
        sl_local_answer_durably(r, pending, SL_PARKED_NUMBER, 1);
    else if (e->type == SL_EFFECT_SEEN) sl_request_answer_number(r, 1);
    else if (e->type == SL_EFFECT_REFUSED && pending != 0)
        sl_state_park(r, pending, SL_PARKED_TO_RUN); /* DRAIN is not durable yet. */
    else if (e->type == SL_EFFECT_REFUSED) sl_local_refuse(r, SLUICE_EDRAINED);
    else if (e->type == SL_EFFECT_CANCELLED) sl_local_refuse(r, SLUICE_EENDED);
    else if (r->verb == SL_VERB_AWAIT) sl_request_answer_number(r, 0);
    else sl_local_refuse(r, status_of_timeout(s));
}

static void answer_granted(struct server *s, struct session *n,
                           const struct sl_effect *e)
{
    struct request *r = waiter_of(s, e);
    if (r == NULL && e->grant.replay) return;
    if (r == NULL) {
        sl_table_take_back(s->table, s->now, &n->s, e->key, &e->grant);
        return;
    }
    assert(r->verb == SL_VERB_ACQUIRE);
    sl_state_uncount_waiter(r);
    /* If the client has left, the grant may stay for another attempt. */
    if (!e->grant.replay && e->grant.lease_ms > 0) sl_state_given(s, e->grant.lease_ms);
    if (sl_request_came_too_late(r, &e->grant)) return;
    s->stats.grants_after_wait++;
    sl_histogram_add(&s->stats.wait_ms, e->grant.waited_ms);
    sl_local_granted(r, &e->grant);
}

static void publish_ended(struct server *s, const struct sl_effect *e)
{
    struct sl_event event = {.key = e->key, .fence = e->past.fence};
    sl_histogram_add(&s->stats.hold_ms, e->past.held_ms);
    if (e->type == SL_EFFECT_EXPIRED) {
        s->stats.expiries++;
        event.type = SL_EVENT_EXPIRED;
        event.session = e->past.session_id;
    } else {
        s->stats.disconnect_releases++;
        event.type = SL_EVENT_RELEASED;
        event.why = "disconnect";
    }
    sl_local_publish(s, &event);
    sl_local_count_stolen(s, e->key, &e->past, e->type == SL_EFFECT_ENDED,
                          sl_state_pending(s, e->key));
}

void sl_local_end_unanswered(struct server *s, struct sl_bytes key, sl_fence fence)
{
    struct sl_grant_view v;
    struct sl_ended past;
    sl_state_change(s);
    if (!sl_table_inspect_grant(s->table, s->now, key, fence, &v) || !v.leased) return;
    const struct sl_session any = {.user = v.user};
    if (sl_table_release(s->table, s->now, &any, key, fence, &past) != 1) return;
    sl_local_publish(s, &(struct sl_event){.type = SL_EVENT_RELEASED,
                                           .key = key,
                                           .fence = fence,
                                           .why = "unanswered"});
    sl_local_count_stolen(s, key, &past, false, sl_state_pending(s, key));
    sl_local_notify_gone(s, fence, false);
}

static void publish_waits(struct server *s, const struct sl_effect *e)
{
    sl_local_publish(s, &(struct sl_event){.type = SL_EVENT_WAITS,
                                           .key = e->key,
                                           .fence = e->past.fence,
                                           .session = e->session->id,
                                           .left_ms = e->left_ms,
                                           .note = e->note});
}

static void publish_asked(struct server *s, const struct sl_effect *e)
{
    s->stats.asks++;
    if (e->session != NULL) publish_waits(s, e);
    sl_local_publish(s, &(struct sl_event){.type = SL_EVENT_ASKED,
                                           .key = e->key,
                                           .fence = e->past.fence,
                                           .session = e->past.session_id,
                                           .priority = e->priority,
                                           .left_ms = e->left_ms});
}

static void publish_victim(struct server *s, const struct sl_effect *e)
{
    bool stolen = e->type == SL_EFFECT_STOLEN;
    if (stolen) {
        s->stats.overlaps++;
        s->stats.steals++;
        /* Until its lease expires, the next keeper holds the lock for the victim, too. */
        sl_local_notify_broke(s, e->past.fence, false);
    } else s->stats.withdrawals++;
    sl_local_publish(
        s, &(struct sl_event){.type = stolen ? SL_EVENT_STOLEN : SL_EVENT_WITHDRAWN,
                              .key = e->key,
                              .fence = e->past.fence,
                              .session = e->past.session_id,
                              .overlapping = stolen});
}

static void end_session(struct server *s, struct session *n)
{
    struct request *r = n->resets;
    if (r != NULL) {
        sl_resp_simple(sl_conn_out(r->c), "RESET");
        sl_request_end(r);
    }
    sl_list_remove(&n->lingering);
    sl_proxy_session_over(s, n);
    sl_index_remove(&s->by_id, n, s->by_id.kind->hash(n, &s->by_id));
    free(n);
}

static void apply(struct server *s, const struct sl_effect *e)
{
    struct session *n = e->session == NULL
                            ? NULL
                            : sl_container_of(e->session, struct session, s);
    switch (e->type) {
        case SL_EFFECT_NOTHING: break;
        case SL_EFFECT_GRANTED: answer_granted(s, n, e); break;
        case SL_EFFECT_TIMED_OUT:
        case SL_EFFECT_REFUSED:
        case SL_EFFECT_CANCELLED:
        case SL_EFFECT_SEEN: answer_waiter(s, e); break;
        case SL_EFFECT_EXPIRED:
        case SL_EFFECT_ENDED: publish_ended(s, e); break;
        case SL_EFFECT_ASKED: publish_asked(s, e); break;
        case SL_EFFECT_WITHDRAWN:
        case SL_EFFECT_STOLEN: publish_victim(s, e); break;
        case SL_EFFECT_THIEF_WAITS: publish_waits(s, e); break;
        case SL_EFFECT_SESSION_OVER: end_session(s, n); break;
    }
}

bool sl_local_pump_table(struct server *s)
{
    struct sl_effect e;
    while (s->effects_left > 0) {
        sl_state_change(s);
        if (!sl_table_next(s->table, s->now, &e)) return true;
        sl_server_count_effect(s, e.type == SL_EFFECT_NOTHING);
        apply(s, &e);
    }
    return false;
}
