/* local_parked.c - requests that wait for the journal, or for another node: parks a request until its
 * change, or the changes that it shows, are durable; then answers it, or undoes its change. */
#include <assert.h>
#include <string.h>

#include "server/arbiter/local_internal.h"

/* --- Requests that would show changes of others --------------------------------------- */

/* How many times a request is parked because of changes by other clients. After that the request
 * runs, and its reply is parked. So a key that changes all the time does not delay it forever. */
#define PARKS_MAX 8

bool sl_local_waits_for_others(struct request *r)
{
    uint64_t position = sl_state_pending(r->s, r->key);
    if (position == 0) return false;
    uint8_t parks = r->call != NULL && r->call->resumed != NULL
                        ? r->call->resumed->parks
                        : 0;
    if (parks >= PARKS_MAX) {
        r->position = position; /* submit() parks the reply. */
        return false;
    }
    struct request *k = sl_state_park(r, position, SL_PARKED_TO_RUN);
    if (k != NULL) k->parks = (uint8_t)(parks + 1);
    return true;
}

void sl_local_park_reply(struct request *r, size_t from)
{
    struct sl_resp_writer *out = &r->c->out;
    if (out->spilt) return; /* The connection will be closed. */
    r->extra = (struct sl_bytes){out->buffer + from, out->n - from};
    r->begun = r->call->begun;
    r->call->begun = false;
    out->n = from;
    r->answered = false;
    sl_state_park(r, r->position, SL_PARKED_REPLY);
}

void sl_local_answer_durably(struct request *r, uint64_t position,
                             enum sl_parked outcome, int64_t number)
{
    if (position == SL_STATE_FAILED) {
        sl_state_refuse(r);
        return;
    }
    struct request *k = sl_state_park(r, position, outcome);
    if (k != NULL) k->number = number;
}

/* --- Grants ---------------------------------------------------------------------------- */

/* Returns the position for which the reply must wait. */
static uint64_t notify_held(struct request *r, sl_fence fence, bool fresh)
{
    const struct sl_local_observer *o = sl_local_of(r->s)->observer;
    return o != NULL ? o->held(r->c, r->came_ms, r->key, fence, fresh) : 0;
}

/* The same for a grant. If it has no lease and an earlier attempt acquired it, its record moves to
 * the node of this client. */
static uint64_t notify_granted(struct request *r, const struct sl_grant *g)
{
    const struct sl_local_observer *o = sl_local_of(r->s)->observer;
    bool moved = g->replay && g->lease_ms == 0;
    if (o == NULL || (moved && g->moved_from == 0)) return 0;
    if (moved) o->moved(r->s, g->moved_from, g->fence);
    uint64_t position = notify_held(r, g->fence, !g->replay || moved);
    /* Now another node may report the grant to the next keeper, and a repeated request then gets it. So
     * this keeper does not take it back and grant the lock to another client. */
    if (r->id.n > 0 && g->lease_ms > 0 && position != SL_STATE_FAILED)
        sl_table_known(r->s->table, r->s->now, r->key, g->fence);
    return position;
}

void sl_local_take_back(const struct request *r, const struct sl_grant *g)
{
    struct server *s = r->s;
    if (g->replay) return; /* The client may know it from an earlier reply. */
    if (sl_table_take_back(s->table, s->now, &r->c->session->s, r->key, g))
        sl_local_notify_gone(s, g->fence, false);
}

/* Return the key of a request, for an event that is published after the answer. The answer frees a
 * kept request, so its key is copied. */
static struct sl_bytes key_for_event(const struct request *r)
{
    static char copy[UINT16_MAX];
    if (!r->kept || r->key.n == 0 || sl_pubsub_unheard(&r->s->pubsub)) return r->key;
    assert(r->key.n <= sizeof copy);
    memcpy(copy, r->key.at, r->key.n);
    return (struct sl_bytes){copy, r->key.n};
}

/* Acknowledge a grant. */
static void answer_grant(struct request *r, const struct sl_grant *g)
{
    struct server *s = r->s;
    const struct answer a = {.status = SLUICE_OK, .grant = g};
    if (g->replay) {
        sl_table_known(s->table, s->now, r->key, g->fence);
        sl_request_answer(r, &a);
        return;
    }
    s->stats.grants++;
    struct sl_bytes key = key_for_event(r);
    sl_request_answer(r, &a);
    sl_event_granted(s, key, g);
}

/* Acknowledge a grant when this position allows it. */
static void answer_grant_at(struct request *r, const struct sl_grant *g, uint64_t need)
{
    if (need == 0) {
        answer_grant(r, g);
        return;
    }
    if (need == SL_STATE_FAILED) {
        sl_local_take_back(r, g);
        sl_state_refuse(r);
        return;
    }
    const struct request given = *r;
    struct request *k = sl_state_park(r, need, SL_PARKED_GRANT);
    if (k == NULL) {
        sl_local_take_back(&given, g);
        return;
    }
    k->grant = *g;
}

void sl_local_granted(struct request *r, const struct sl_grant *g)
{
    uint64_t need = sl_state_need(r->s);
    /* Also if the reply fails, the grant may stay for another attempt. */
    if (!g->replay && g->lease_ms > 0) sl_state_given(r->s, g->lease_ms);
    /* The grant that an attempt shares with an earlier one may not be durable yet. */
    if (need == 0 && g->replay) need = sl_state_pending(r->s, r->key);
    /* If the write fails, the connection is closed, and a grant without a lease ends with it. */
    if (g->lease_ms == 0) sl_input_holds(r->c);
    else if (need == 0 && !g->replay)
        need = sl_state_answers(
            r->s, &(struct sl_undo_change){.key = r->key, .fence = g->fence});
    /* If the keeper fails before the reply, the client's node must know of the grant, to drop it. */
    if (need == 0 || (need != SL_STATE_FAILED && r->c->proxy != NULL)) {
        uint64_t note = notify_granted(r, g);
        if (need == 0) need = note;
    }
    answer_grant_at(r, g, need);
}

/* --- Extensions ------------------------------------------------------------------------ */

/* Acknowledge an extension. */
static void answer_extended(struct request *r, sl_ms left)
{
    struct server *s = r->s;
    struct sl_bytes key = key_for_event(r);
    sl_fence fence = r->fence;
    s->stats.extends++;
    sl_request_answer_number(r, left);
    sl_local_publish(s, &(struct sl_event){.type = SL_EVENT_EXTENDED,
                                           .key = key,
                                           .fence = fence,
                                           .lease_ms = left});
}

static void undo_extension(struct request *r)
{
    sl_table_undo_extend(r->s->table, r->s->now, r->key, r->fence, r->end_ms,
                         r->before_ms, r->extra);
}

/* Whether the lease still lasts as long as the reply says. If the journal was slow, the lease may
 * have ended. */
static bool is_extended(const struct request *r)
{
    struct sl_grant_view v;
    return sl_table_inspect_grant(r->s->table, r->s->now, r->key, r->fence, &v) &&
           v.end_ms >= r->end_ms;
}

/* Acknowledge an extension when this position allows it. */
static void answer_extended_at(struct request *r, uint64_t position, sl_ms left)
{
    struct sl_grant_view v;
    if (position == 0) {
        answer_extended(r, left);
        return;
    }
    sl_table_inspect_grant(r->s->table, r->s->now, r->key, r->fence, &v);
    r->end_ms = v.end_ms;
    struct request extended = *r;
    if (position == SL_STATE_FAILED) {
        undo_extension(&extended);
        sl_state_refuse(r);
        return;
    }
    struct request *k = sl_state_park(r, position, SL_PARKED_EXTENSION);
    if (k != NULL) k->number = left;
    else undo_extension(&extended);
}

void sl_local_extended(struct request *r, uint64_t position, sl_ms left)
{
    if (position == 0)
        position = sl_state_answers(r->s,
                                    &(struct sl_undo_change){.key = r->key,
                                                             .fence = r->fence,
                                                             .before_ms = r->before_ms,
                                                             .value = r->extra});
    if (position == 0) position = notify_held(r, r->fence, false);
    answer_extended_at(r, position, left);
}

/* --- The outcome ------------------------------------------------------------------------ */

void sl_local_undo(struct request *r)
{
    if (r->outcome == SL_PARKED_GRANT) sl_local_take_back(r, &r->grant);
    else if (r->outcome == SL_PARKED_EXTENSION || r->outcome == SL_PARKED_LEFT)
        undo_extension(r);
    else return;
    if (r->outcome != SL_PARKED_LEFT) r->outcome = SL_PARKED_UNDONE;
}

void sl_local_deliver(struct request *r, bool durable)
{
    switch ((enum sl_parked)r->outcome) {
        case SL_PARKED_TO_RUN: assert(false); break;
        case SL_PARKED_GRANT: {
            const struct sl_grant g = r->grant;
            bool noted = r->noted;
            assert(durable);
            r->outcome = SL_PARKED_TO_RUN;
            /* If the journal was slow, the lease may have expired. */
            if (!sl_table_holds(r->s->table, r->s->now, r->key, g.fence))
                sl_request_resume(r);
            else answer_grant_at(r, &g, noted ? 0 : notify_granted(r, &g));
            break;
        }
        case SL_PARKED_EXTENSION:
            assert(durable);
            if (!is_extended(r)) sl_request_resume(r); /* The grant has ended. */
            else if (r->noted) answer_extended(r, r->number);
            else answer_extended_at(r, notify_held(r, r->fence, false), r->number);
            break;
        case SL_PARKED_NUMBER:
            if (durable) sl_request_answer_number(r, r->number);
            else if (r->verb == SL_VERB_AWAIT)
                sl_request_resume(
                    r); /* The change that ended its wait has been undone. */
            else sl_state_refuse(r);
            break;
        case SL_PARKED_REPLY:
            if (durable) {
                sl_resp_raw(sl_request_out(r), r->extra.at, r->extra.n);
                sl_request_end(r);
            } else
                sl_request_resume(
                    r); /* A change that the reply shows has been undone. */
            break;
        case SL_PARKED_UNDONE: sl_state_refuse(r); break;
        case SL_PARKED_EVENT:
        case SL_PARKED_LEFT: assert(false); break;
    }
}
