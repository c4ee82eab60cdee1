/* effects.c - what follows from what happened, told to those whom it concerns. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "server/arbiter/state.h"
#include "server/command/dispatch.h"
#include "server/forward/forward.h"
#include "server/net/conn.h"

/* --- Events --------------------------------------------------------------- */

#define CHANNEL "lock:"
#define CHANNEL_BYTES (sizeof CHANNEL - 1)

static bool nobody_listens(const struct server *s)
{
    return sl_pubsub_silent(&s->pubsub) && !sl_forward_listened(s);
}

void sl_event(struct server *s, struct sl_bytes key, const char *event, sl_fence fence,
              const char *more)
{
    char channel[CHANNEL_BYTES + UINT16_MAX], text[160];
    if (nobody_listens(s)) return;
    memcpy(channel, CHANNEL, CHANNEL_BYTES);
    memcpy(channel + CHANNEL_BYTES, key.at, key.n);
    int n = snprintf(text, sizeof text, "%s %" PRIu64 "%s", event, fence, more);
    const struct sl_bytes to = {channel, CHANNEL_BYTES + key.n};
    const struct sl_bytes what = {text, (size_t)n};
    sl_server_spend(s, s->pubsub.pattern_words * to.n);
    size_t heard = sl_pubsub_publish(&s->pubsub, to, what);
    s->stats.events += heard;
    sl_forward_event(s, to, what);
    sl_server_spend(s, 128 * heard);
#ifdef MUT_TWICE
    sl_pubsub_publish(&s->pubsub, to, what);
#endif
}

void sl_event_granted(struct server *s, struct sl_bytes key, const struct sl_grant *g)
{
    char more[120];
    if (nobody_listens(s)) return;
    snprintf(more, sizeof more,
             " held=%" PRIu64 " lease_ms=%" PRId64 " waited_ms=%" PRId64 "%s", g->held,
             g->lease_ms > 0 ? g->lease_ms : -1, g->waited_ms,
             g->overlapping ? " overlapping=1" : "");
    sl_event(s, key, "granted", g->fence, more);
}

void sl_event_to_holder(struct server *s, uint64_t session_id, struct sl_bytes key,
                        const char *event, sl_fence fence)
{
    const struct session *n = sl_server_session(s, session_id);
    if (n == NULL || n->conn == NULL || !n->conn->out.resp3) return;
#ifndef MUT_PUSH
    struct sl_resp_writer *w = sl_conn_out(n->conn);
    sl_resp_push(w, 4);
    sl_resp_text(w, "lock");
    sl_resp_bulk(w, key);
    sl_resp_text(w, event);
    sl_resp_integer(w, (int64_t)fence);
#else
    (void)key;
    (void)event;
    (void)fence;
#endif
}

void sl_event_asked(struct server *s, uint64_t session_id, struct sl_bytes key,
                    sl_fence fence, int32_t priority, sl_ms left_ms)
{
    char more[80];
    snprintf(more, sizeof more, " priority=%" PRId32 " left_ms=%" PRId64, priority,
             left_ms == SL_NEVER ? -1 : left_ms);
    sl_event(s, key, "asked", fence, more);
    sl_event_to_holder(s, session_id, key, "asked", fence);
}

void sl_event_waits(struct server *s, uint64_t thief_id, struct sl_bytes key,
                    sl_fence fence, sl_ms left_ms, struct sl_bytes note)
{
    const struct session *n = sl_server_session(s, thief_id);
    if (n == NULL || n->conn == NULL || !n->conn->out.resp3) return;
    struct sl_resp_writer *w = sl_conn_out(n->conn);
    sl_resp_push(w, 6);
    sl_resp_text(w, "lock");
    sl_resp_bulk(w, key);
    sl_resp_text(w, "waits");
    sl_resp_integer(w, (int64_t)fence);
    sl_resp_integer(w, left_ms == SL_NEVER ? -1 : left_ms);
    sl_resp_bulk(w, note);
}

void sl_event_stolen(struct server *s, struct sl_bytes key, const struct sl_ended *past,
                     bool answered)
{
    if (past->asked_ms < 0) return;
    if (answered) sl_answers_add(&s->stats.answers, past->asked_ms);
    s->stats.steals++;
    sl_event(s, key, "stolen", past->fence, "");
}

/* --- One effect ----------------------------------------------------------- */

/* Nil says that it is taken. While nothing is granted at all nobody knows. */
static bool say_why_nothing(struct server *s, struct conn *c)
{
    struct call call = {.c = c, .s = s, .out = sl_conn_out(c)};
    struct sl_table_stats table;
    sl_table_stats(s->table, &table);
    if (table.authority_until_ms <= s->now.ms) sl_say_status(&call, SLUICE_ENOKEEPER);
    else if (table.recovering_until_ms > s->now.ms)
        sl_say_status(&call, SLUICE_ERECOVERING);
    else return false;
    return true;
}

/* The reply to who waited. */
static void answer_waiter(struct server *s, struct session *n,
                          const struct sl_effect *e)
{
    struct conn *c = n->conn;
    struct sl_resp_writer *w = sl_conn_out(c);
    bool acquire = c->blocked == SL_IN_ACQUIRE;
    sl_conn_unblock(c);
    if (e->type == SL_EFFECT_GRANTED) sl_put_grant(w, &e->grant);
    else if (e->type == SL_EFFECT_SEEN) sl_resp_integer(w, 1);
    else if (e->type == SL_EFFECT_REFUSED)
        sl_resp_problem(w, "DRAINED",
                        "nothing is granted on this key: DRAIN lists the patterns");
    else if (acquire && !say_why_nothing(s, c)) sl_resp_null_array(w);
    else if (!acquire) sl_resp_integer(w, 0);
    if (e->type == SL_EFFECT_TIMED_OUT) s->stats.waits_timed_out++;
}

/* Granted to one who has hung up, though the loop has not come to read it: it will
 * never know. So nobody is told, and the next one has it. */
static bool came_too_late(struct server *s, struct session *n,
                          const struct sl_effect *e)
{
    enum sl_parting how = n->conn != NULL ? sl_conn_hung_up(n->conn) : SL_SAID_BYE;
#ifdef MUT_LATE
    return false;
#endif
    if (how == SL_STAYS) return false;
    sl_table_take_back(s->table, s->now, &n->s, e->key, &e->grant);
    if (n->conn != NULL) sl_conn_close(n->conn, how);
    return true;
}

static void tell_granted(struct server *s, struct session *n, const struct sl_effect *e)
{
    if (came_too_late(s, n, e)) return;
    s->stats.grants++;
    s->stats.grants_after_wait++;
#ifndef MUT_GIVEN
    if (e->grant.lease_ms > 0) sl_state_given(s, e->grant.lease_ms);
#endif
    if (e->grant.lease_ms == 0) sl_input_holds(n->conn);
    sl_histogram_add(&s->stats.wait_ms, e->grant.waited_ms);
    sl_forward_held(n->conn, e->key, e->grant.fence, true);
    answer_waiter(s, n, e);
    sl_event_granted(s, e->key, &e->grant);
}

static void tell_ended(struct server *s, const struct sl_effect *e)
{
    sl_histogram_add(&s->stats.hold_ms, e->past.held_ms);
    if (e->type == SL_EFFECT_EXPIRED) {
        s->stats.expiries++;
        sl_event(s, e->key, "expired", e->past.fence, "");
        sl_event_to_holder(s, e->past.session_id, e->key, "expired", e->past.fence);
    } else {
        s->stats.disconnect_releases++;
        sl_event(s, e->key, "released", e->past.fence, " why=disconnect");
    }
    sl_event_stolen(s, e->key, &e->past, e->type == SL_EFFECT_ENDED);
}

static void tell_thief(struct server *s, const struct sl_effect *e)
{
    sl_event_waits(s, e->session->id, e->key, e->past.fence, e->left_ms, e->note);
}

static void tell_asked(struct server *s, const struct sl_effect *e)
{
    s->stats.asks++;
    if (e->session != NULL) tell_thief(s, e);
    sl_event_asked(s, e->past.session_id, e->key, e->past.fence, e->priority,
                   e->left_ms);
}

static void tell_victim(struct server *s, const struct sl_effect *e)
{
    bool stolen = e->type == SL_EFFECT_STOLEN;
    const char *event = stolen ? "stolen" : "withdrawn";
    if (stolen) {
        s->stats.overlaps++;
        s->stats.steals++;
        sl_forward_gone(s, e->past.fence, true); /* The thief's is reclaimed. */
    } else s->stats.withdrawals++;
    sl_event(s, e->key, event, e->past.fence, stolen ? " overlapping=1" : "");
    sl_event_to_holder(s, e->past.session_id, e->key, event, e->past.fence);
}

static void end_session(struct server *s, struct session *n)
{
    struct conn *c = n->told_when_over;
    if (c != NULL) {
        c->ending = NULL;
        sl_conn_unblock(c);
        sl_resp_simple(sl_conn_out(c), "RESET");
    }
    sl_list_remove(&n->lingering);
    sl_index_remove(&s->by_id, n, s->by_id.kind->hash(n, &s->by_id));
    free(n);
}

static void tell(struct server *s, const struct sl_effect *e)
{
    struct session *n = e->session == NULL
                            ? NULL
                            : sl_container_of(e->session, struct session, s);
    switch (e->type) {
        case SL_EFFECT_NOTHING: break;
        case SL_EFFECT_GRANTED: tell_granted(s, n, e); break;
        case SL_EFFECT_TIMED_OUT:
        case SL_EFFECT_REFUSED:
        case SL_EFFECT_SEEN:
            if (n->conn != NULL) answer_waiter(s, n, e);
            break;
        case SL_EFFECT_EXPIRED:
        case SL_EFFECT_ENDED: tell_ended(s, e); break;
        case SL_EFFECT_ASKED: tell_asked(s, e); break;
        case SL_EFFECT_WITHDRAWN:
        case SL_EFFECT_STOLEN: tell_victim(s, e); break;
        case SL_EFFECT_THIEF_WAITS: tell_thief(s, e); break;
        case SL_EFFECT_SESSION_OVER: end_session(s, n); break;
    }
}

bool sl_effects_tell(struct server *s)
{
    struct sl_effect e;
    while (s->effects_left > 0) {
        if (!sl_table_next(s->table, s->now, &e)) return true;
        bool look = --s->effects_left % 4 == 0 || e.type == SL_EFFECT_NOTHING;
        if (look && sl_server_turn_is_long(s))
            s->effects_left = 0; /* After this one. */
        tell(s, &e);
    }
    return false;
}
