/* forward.c - the remote arbiter: passes requests, links and messages to the route
 * (failover/route.h), and carries out its orders. */
#include "server/forward/forward.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "server/arbiter/arbiter.h"
#include "server/arbiter/transactions.h"
#include "server/forward/forward_internal.h"
#include "server/observe/events.h"
#include "server/observe/log.h"

/* --- Messages ------------------------------------------------------------------------- */

bool sl_forward_send(struct server *s, sl_node_id to,
                     const struct sl_failover_message *m)
{
    struct sl_resp_writer *w = sl_links_frame(s, to);
    if (w != NULL) sl_failover_write(w, m);
    return w != NULL;
}

void sl_forward_send_client(struct server *s, sl_node_id to, uint64_t session,
                            struct sl_bytes name, struct sl_bytes address)
{
    const struct sl_failover_message m = {.type = SL_FAILOVER_CLIENT,
                                          .session = session,
                                          .name = name,
                                          .address = address};
    sl_forward_send(s, to, &m);
}

static void send_to_keeper(struct server *s, const struct sl_failover_message *m)
{
    sl_forward_send(s, s->forward->node.route.keeper, m);
}

/* --- Sessions and requests --------------------------------------------------------------- */

struct sl_route_session *sl_forward_session_make(struct conn *c)
{
    struct sl_forward_session *f = c->forwarded;
    if (f == NULL) {
        char where[SL_WHERE_BYTES];
        sl_conn_where(c, where);
        size_t n = strlen(where);
        f = calloc(1, sizeof *f + n);
        if (f == NULL) return NULL;
        f->c = c;
        f->where_bytes = n;
        memcpy(f->where, where, n);
        c->forwarded = f;
    }
    if (sl_route_session_begin(&c->server->forward->node.route, &f->route,
                               &c->session->s) != SLUICE_OK)
        return NULL;
    return &f->route;
}

void sl_forward_free_session(struct conn *c)
{
    assert(c->forwarded == NULL || !c->forwarded->route.known);
    free(c->forwarded);
    c->forwarded = NULL;
}

void sl_forward_renamed(struct conn *c)
{
    if (c->forwarded != NULL) sl_route_renamed(&c->forwarded->route);
}

bool sl_forward_holds_unleased(const struct conn *c)
{
    return c->forwarded != NULL && sl_route_holds_unleased(&c->forwarded->route);
}

static struct conn *conn_of(const struct sl_route_session *n)
{
    return sl_container_of(n, const struct sl_forward_session, route)->c;
}

static struct sl_bytes name_of(const struct sl_route_session *n)
{
    const struct conn *c = conn_of(n);
    return (struct sl_bytes){c->name, strlen(c->name)};
}

static struct sl_bytes where_of(const struct sl_route_session *n)
{
    const struct sl_forward_session *f = sl_container_of(
        n, const struct sl_forward_session, route);
    return (struct sl_bytes){f->where, f->where_bytes};
}

static struct request *request_of(struct sl_route_request *q)
{
    return sl_container_of(q, struct request, remote);
}

static enum sl_route_verb verb_of(const struct request *r)
{
    unsigned flags = r->command->flags;
    if (r->verb == SL_VERB_ACQUIRE) return SL_ROUTE_ACQUIRE;
    if (r->verb == SL_VERB_EXTEND) return SL_ROUTE_EXTEND;
    if (r->verb == SL_VERB_RELEASE) return SL_ROUTE_RELEASE;
    if ((flags & SL_BEGINS) != 0) return SL_ROUTE_TX_BEGIN;
    if ((flags & SL_COMMITS) != 0) return SL_ROUTE_TX_COMMIT;
    if ((flags & SL_ABORTS) != 0) return SL_ROUTE_TX_ABORT;
    return (flags & SL_TX) != 0 ? SL_ROUTE_TX : SL_ROUTE_OTHER;
}

/* Set up the part of a kept request that the route uses. */
static void describe_request(struct request *r)
{
    bool has_id = r->n == 3 && (r->command->flags & SL_BEGINS) != 0;
    bool has_fence = r->verb == SL_VERB_EXTEND || r->verb == SL_VERB_RELEASE;
    r->remote = (struct sl_route_request){
        .verb = verb_of(r),
        .waits = r->waits,
        .resp3 = r->c->out.resp3,
        .settles = r->settles,
        .arrived_ms = r->arrived_ms,
        .bytes = r->bytes,
        .key = r->key,
        .fence = has_fence ? r->fence : 0,
        .lease_ms = r->verb == SL_VERB_ACQUIRE ? r->want.lease_ms : 0,
        .named = r->verb == SL_VERB_ACQUIRE && r->id.n > 0 && r->want.lease_ms > 0,
        .notify = r->notify,
        .id = has_id ? r->at[2] : (struct sl_bytes){NULL, 0}};
}

void sl_forward_enqueue(struct request *r, struct sl_route_session *n)
{
    assert(r->kept && !r->answered && r->arbiter == r->s->arbiters.remote);
    describe_request(r);
    sl_route_submit(&r->s->forward->node.route, n, &r->remote);
}

/* --- The arbiter ----------------------------------------------------------------------------- */

bool sl_forward_must_decide(const struct request *r)
{
    const struct sl_forward *f = r->s->forward;
    if (!f->node.route.leads) return r->c->proxy == NULL;
    /* The next keeper answers it. A transaction ends with this keeper, and needs no authority. */
    if (f->node.resigning && r->verb < SL_VERB_TX) return true;
    /* If a node has reported the grant of a repeated ACQUIRE, its journal may know a later expiry. */
    bool repeats = r->verb == SL_VERB_ACQUIRE && r->id.n > 0;
    return f->node.guests.reports_until_ms != 0 &&
           (repeats || (r->command->flags & SL_COMPLETE) != 0);
}

void sl_forward_submit(struct arbiter *a, struct request *r)
{
    struct server *s = a->s;
    struct sl_route *route = &s->forward->node.route;
    assert(r->arbiter == a && (r->c->proxy == NULL || route->leads));
    if (sl_transactions_answers_lost(r)) return;
    if (sl_route_gives_up(route, s->now.ms)) {
        const struct answer none = {.status = SLUICE_ENOKEEPER,
                                    .text = sl_forward_why_not(s)};
        sl_request_answer(r, &none);
        return;
    }
    struct sl_route_session *n = sl_forward_session_make(r->c);
    if (n == NULL) {
        sl_request_answer_status(r, SLUICE_ENOMEM);
        return;
    }
    sl_fence releases = r->verb == SL_VERB_RELEASE
                            ? sl_route_released(route, n, r->key, r->fence)
                            : 0;
    struct request *k = sl_request_keep(r);
    if (k == NULL) return;
    describe_request(k);
    k->remote.released_fence = releases;
    sl_route_submit(route, n, &k->remote);
    sl_forward_carry_out(s);
}

void sl_forward_withdraw(struct arbiter *a, struct request *r)
{
    assert(r->kept && r->arbiter == a);
    sl_route_withdraw(&a->s->forward->node.route, a->s->now.ms, &r->remote);
}

void sl_forward_take_back(struct arbiter *a, struct request *r,
                          const struct sl_grant *g)
{
    sl_route_take_back(&a->s->forward->node.route, a->s->now.ms, &r->remote, g->fence);
}

bool sl_forward_is_brief(const struct arbiter *a, const struct request *r)
{
    (void)a;
    return !r->waits;
}

void sl_forward_leave(struct arbiter *a, struct conn *c, enum sl_parting how)
{
    struct sl_failover_message m;
    if (c->forwarded != NULL &&
        sl_route_leave(&a->s->forward->node.route, &c->forwarded->route,
                       how == SL_WAS_CUT, &m))
        send_to_keeper(a->s, &m);
}

void sl_forward_failed(struct arbiter *a, struct conn *c, const char *name,
                       const char *code)
{
    struct sl_failover_message m;
    (void)code;
    if (c->forwarded != NULL &&
        sl_route_failed(&a->s->forward->node.route, &c->forwarded->route, name, &m))
        send_to_keeper(a->s, &m);
}

/* --- Orders ------------------------------------------------------------------------------- */

static void answer_problem(struct request *r, int status, const char *text)
{
    sl_resp_problem(sl_request_out(r), sluice_status_word(status), text);
    sl_request_end(r);
}

static void answer(struct request *r, enum sl_route_answer why)
{
    switch (why) {
        case SL_ROUTE_NO_ANSWER: assert(false && "an answer has a reason"); break;
        case SL_ROUTE_ABORTED:
            sl_resp_simple(sl_conn_out(r->c), "OK");
            sl_request_end(r);
            break;
        case SL_ROUTE_STALE: answer_problem(r, SLUICE_ESTALE, SL_LOST_TX); break;
        case SL_ROUTE_UNKNOWN:
            answer_problem(
                r, SLUICE_ECLOSED,
                "the keeper failed during the commit, and the outcome is unknown; to "
                "be able to ask for it with TX.OUTCOME id, use TX.BEGIN REQUEST id");
            break;
        case SL_ROUTE_ASK:
            answer_problem(r, SLUICE_ECLOSED,
                           "the keeper failed during the commit, and the outcome is "
                           "unknown; send TX.OUTCOME id to find out");
            break;
        case SL_ROUTE_ASK_LATER:
            answer_problem(
                r, SLUICE_ECLOSED,
                "the keeper failed during the commit, and there is no new keeper yet, "
                "so the outcome is unknown; send TX.OUTCOME id to find out");
            break;
        case SL_ROUTE_NO_KEEPER:
            answer_problem(r, SLUICE_ENOKEEPER, sl_forward_why_not(r->s));
            break;
    }
}

static void reply(struct request *r, const struct sl_route_order *o)
{
    const struct sl_grant g = {.fence = o->fence};
    if (o->late && sl_request_came_too_late(r, &g)) return;
    if (r->verb == SL_VERB_CANCEL && o->bytes.n > 0 && o->bytes.at[0] == ':')
        sl_request_cancelled(r);
    sl_resp_raw(sl_request_out(r), o->bytes.at, o->bytes.n);
    sl_request_end(r);
}

/* Ask for the outcome of a commit instead of sending the commit again. */
static void settle(struct request *r, struct sl_route_session *n, struct sl_bytes id)
{
    const struct sl_bytes at[] = {{"TX.OUTCOME", 10}, id};
    struct sl_route *route = &r->s->forward->node.route;
    struct request *k = sl_request_replace(r, at, 2);
    if (k != NULL) {
        k->settles = true;
        describe_request(k);
    }
    sl_route_settle(route, n, k == NULL ? NULL : &k->remote);
}

static void describe(struct server *s, const struct sl_route_session *n)
{
    sl_forward_send_client(s, s->forward->node.route.keeper, n->id, name_of(n),
                           where_of(n));
}

static void close_client(struct server *s, struct conn *c, enum sl_route_close why)
{
    static struct sl_log_kind kind;
    if (why == SL_ROUTE_CUT_OFF)
        sl_log_often(&kind, s->now.ms, SL_LOG_WARN,
                     "cannot reach the keeper; closing the connections of clients that "
                     "hold locks without LEASE",
                     NULL);
    sl_conn_close(c, SL_WAS_CUT);
}

static void log_lost(const struct server *s)
{
    static struct sl_log_kind kind;
    sl_log_often(&kind, s->now.ms, SL_LOG_WARN,
                 "the keeper has rejected a grant of a client of this node", NULL);
}

static void carry_out(struct server *s, const struct sl_route_order *o)
{
    const struct sl_failover_message *m = &o->message;
    switch (o->type) {
        case SL_ROUTE_ORDER_NONE: break;
        case SL_ROUTE_ORDER_SEND: send_to_keeper(s, m); break;
        case SL_ROUTE_ORDER_DESCRIBE: describe(s, o->session); break;
        case SL_ROUTE_ORDER_REPLY: reply(request_of(o->request), o); break;
        case SL_ROUTE_ORDER_QUEUED: sl_request_queue(request_of(o->request)); break;
        case SL_ROUTE_ORDER_ANSWER: answer(request_of(o->request), o->answer); break;
        case SL_ROUTE_ORDER_SETTLE:
            settle(request_of(o->request), o->session, o->bytes);
            break;
        case SL_ROUTE_ORDER_RESUME: sl_request_resume(request_of(o->request)); break;
        case SL_ROUTE_ORDER_PUSH:
            sl_resp_raw(sl_conn_out(conn_of(o->session)), o->bytes.at, o->bytes.n);
            break;
        case SL_ROUTE_ORDER_TX_LOST: sl_transactions_lost(conn_of(o->session)); break;
        case SL_ROUTE_ORDER_CLOSE:
            close_client(s, conn_of(o->session), o->close);
            break;
        case SL_ROUTE_ORDER_BEGUN:
            sl_event_keeper_changed(s, s->forward->node.route.keeper_term,
                                    s->forward->node.route.keeper);
            break;
        case SL_ROUTE_ORDER_LOST: log_lost(s); break;
        case SL_ROUTE_ORDER_PUBLISH:
            s->stats.events += sl_pubsub_publish(&s->pubsub, m->channel, m->bytes);
            break;
    }
}

/* An order may run commands, which call this function again. Such a nested call returns at once, and
 * the first call carries out the new orders. */
bool sl_forward_carry_out(struct server *s)
{
    struct sl_forward *f = s->forward;
    struct sl_route_order o;
    if (f->carrying) return true;
    f->carrying = true;
    for (;;) {
        bool has_space = sl_links_unsent(s, f->node.route.keeper) < SL_FORWARD_HIGH;
        bool spends = f->node.route.handing && has_space;
        if (spends && s->effects_left == 0) break;
        if (!sl_route_next(&f->node.route, s->now.ms, has_space, &o)) break;
        if (spends) s->effects_left--;
        carry_out(s, &o);
    }
    f->carrying = false;
    bool more = f->node.route.handing && s->effects_left == 0;
    if (more) sl_server_go_on(s);
    return !more;
}

/* Find the request with NOTIFY that a message is about. Returns NULL if there is none. */
static struct sl_route_request *notified(const struct server *s,
                                         const struct sl_failover_message *m)
{
    struct sl_bytes id = m->type == SL_FAILOVER_OUTCOME ? m->name : m->grant.request;
    const struct sl_route_session *n = sl_route_session_find(&s->forward->node.route,
                                                             m->session);
    struct request *r = n == NULL ? NULL
                                  : sl_request_find_notify(conn_of(n), m->key, id);
    return r == NULL || r->arbiter != s->arbiters.remote ? NULL : &r->remote;
}

/* --- Calls from links ------------------------------------------------------------------------- */

bool sl_forward_is_frame(const struct sl_args *args)
{
    return sl_failover_is_message(args);
}

void sl_forward_received(struct server *s, sl_node_id from, const struct sl_args *a)
{
    struct sl_forward *f = s->forward;
    struct sl_failover_message m;
    sl_fence gone[SL_GONE_MAX];
    struct sl_bytes name = {NULL, 0}, address = {NULL, 0};
    if (f == NULL || !sl_failover_read(a, gone, &m) || !sl_proxy_prepare(s, from, &m))
        return;
    if (m.type == SL_FAILOVER_HELD || m.type == SL_FAILOVER_OUTCOME)
        m.request = notified(s, &m);
    if (m.type == SL_FAILOVER_HELD && m.yes) {
        const struct sl_route_session *n = sl_route_session_find(&f->node.route,
                                                                 m.session);
        if (n == NULL) return; /* The client has left. */
        name = name_of(n);
        address = where_of(n);
    }
    sl_failover_receive(&f->node, s->now, from, &m, name, address,
                        m.type == SL_FAILOVER_READY || m.type == SL_FAILOVER_CLOCK
                            ? sl_proxy_linked(s)
                            : 0);
    sl_proxy_carry_out(s);
    sl_forward_carry_out(s);
}

void sl_forward_linked(struct server *s, sl_node_id id)
{
    if (s->forward == NULL) return;
    sl_failover_linked(&s->forward->node, s->now.ms, id);
    sl_forward_carry_out(s);
}

void sl_forward_unlinked(struct server *s, sl_node_id id, enum sl_link_end how)
{
    if (s->forward == NULL) return;
    sl_failover_unlinked(&s->forward->node, s->now.ms, id);
    sl_proxy_carry_out(s);
    sl_forward_carry_out(s);
    if (how != SL_END_REPLACED) sl_forward_unreached(s, id, how);
}

void sl_forward_unreached(struct server *s, sl_node_id id, enum sl_link_end how)
{
    enum sl_peer_state sight = how == SL_END_CLOSED ? SL_PEER_CLOSED : SL_PEER_SILENT;
    if (s->forward != NULL) sl_failover_sight(&s->forward->node, s->now.ms, id, sight);
}

void sl_forward_drained(struct server *s, sl_node_id id)
{
    if (s->forward == NULL) return;
    if (id == s->forward->node.route.keeper) sl_forward_carry_out(s);
    sl_proxy_flush_stalled(s);
}

void sl_forward_second(struct arbiter *a)
{
    struct server *s = a->s;
    sl_route_second(&s->forward->node.route, s->now.ms, !sl_pubsub_silent(&s->pubsub));
    sl_forward_carry_out(s);
}
