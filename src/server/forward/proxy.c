/* proxy.c - on the keeper: connections that represent clients of other nodes. Passes the messages
 * of these nodes to the guests (failover/guests.h), and carries out their orders. */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "server/arbiter/local.h"
#include "server/arbiter/state.h"
#include "server/arbiter/transactions.h"
#include "server/forward/forward_internal.h"

/* --- Creating and closing a proxy --------------------------------------------------------- */

static struct session *session_of(const struct sl_guest *n)
{
    return sl_container_of(n->session, struct session, s);
}

static struct conn *conn_of(const struct sl_guest *n)
{
    return session_of(n)->conn;
}

/* Create a proxy for a client of another node. Returns false if that is not possible. */
static bool make(struct server *s, sl_node_id node, uint64_t session)
{
    struct sl_guest *n = calloc(1, sizeof *n);
    struct sl_proxy *p = n == NULL ? NULL : calloc(1, sizeof *p);
    struct conn *c = p == NULL ? NULL : sl_conn_new_proxy(s, p);
    if (c == NULL) {
        free(p);
        free(n);
        return false;
    }
    p->c = c;
    sl_list_init(&p->stalled);
    sl_list_init(&p->outcomes);
    if (sl_guests_open(&s->forward->node.guests, n, node, session, &c->session->s) !=
        SLUICE_OK) {
        free(n);
        sl_conn_close(c, SL_SAID_BYE);
        return false;
    }
    c->session->guest = n;
    return true;
}

void sl_proxy_closed(struct conn *c)
{
    struct sl_guest *n = c->session->guest;
    struct sl_failover_message m;
    sl_list_remove(&c->proxy->stalled);
    if (n != NULL && sl_guests_closed(&c->server->forward->node.guests, n, &m))
        sl_forward_send(c->server, n->node, &m);
}

void sl_proxy_session_over(struct server *s, struct session *n)
{
    if (n->guest == NULL) return;
    sl_guests_over(&s->forward->node.guests, n->guest);
    free(n->guest);
}

/* --- Output ------------------------------------------------------------------------------- */

/* The outcome of a request with NOTIFY. Its bytes follow. */
struct outcome {
    struct sl_list all;
    size_t key_bytes, id_bytes, reply_bytes;
    char bytes[];
};

static void send_outcome(const struct conn *c, struct sl_bytes key, struct sl_bytes id,
                         struct sl_bytes reply)
{
    const struct sl_guest *guest = c->session->guest;
    const struct sl_failover_message m = {.type = SL_FAILOVER_OUTCOME,
                                          .session = guest->id,
                                          .key = key,
                                          .name = id,
                                          .bytes = reply};
    sl_forward_send(c->server, guest->node, &m);
}

/* Keep an outcome until the output has been sent. Returns false if out of memory. */
static bool keep_outcome(struct sl_proxy *p, struct sl_bytes key, struct sl_bytes id,
                         struct sl_bytes reply)
{
    struct outcome *x = malloc(sizeof *x + key.n + id.n + reply.n);
    if (x == NULL) return false;
    x->key_bytes = key.n;
    x->id_bytes = id.n;
    x->reply_bytes = reply.n;
    memcpy(x->bytes, key.at, key.n);
    memcpy(x->bytes + key.n, id.at, id.n);
    memcpy(x->bytes + key.n + id.n, reply.at, reply.n);
    sl_list_init(&x->all);
    sl_list_append(&p->outcomes, &x->all);
    return true;
}

/* Send, or forget, the outcomes that were kept. */
static void end_outcomes(struct sl_proxy *p, bool sends)
{
    while (!sl_list_empty(&p->outcomes)) {
        struct outcome *x = sl_container_of(p->outcomes.next, struct outcome, all);
        const char *id = x->bytes + x->key_bytes, *reply = id + x->id_bytes;
        if (sends)
            send_outcome(p->c, (struct sl_bytes){x->bytes, x->key_bytes},
                         (struct sl_bytes){id, x->id_bytes},
                         (struct sl_bytes){reply, x->reply_bytes});
        sl_list_remove(&x->all);
        free(x);
    }
}

void sl_proxy_free(struct sl_proxy *p)
{
    if (p == NULL) return;
    end_outcomes(p, false);
    free(p->arrivals);
    free(p);
}

/* Keep the output after the first `sent` bytes, until the link has space again. */
static void stall(struct conn *c, size_t sent)
{
    struct sl_proxy *p = c->proxy;
    c->out.n -= sent;
    if (sent > 0) memmove(c->out.buffer, c->out.buffer + sent, c->out.n);
    if (sl_list_empty(&p->stalled))
        sl_list_append(&c->server->forward->stalled, &p->stalled);
}

void sl_proxy_flush(struct conn *c)
{
    struct server *s = c->server;
    struct sl_guest *guest = c->session->guest;
    bool done = c->proxy->ran && sl_list_empty(&c->requests);
    size_t at = 0;
    if (c->closing || guest->gone) return;
    while (at < c->out.n || done) {
        if (sl_links_unsent(s, guest->node) >= SL_FORWARD_HIGH) {
            stall(c, at);
            return;
        }
        size_t left = c->out.n - at,
               n = left < SL_FORWARD_PIECE ? left : SL_FORWARD_PIECE;
        const struct sl_failover_message m = {.type = SL_FAILOVER_SAY,
                                              .session = guest->id,
                                              .what = at + n < c->out.n ? SL_SAY_MORE
                                                      : done            ? SL_SAY_LAST
                                                                        : 0,
                                              .tx = c->tx == NULL ? 0 : c->tx->id,
                                              .bytes = {c->out.buffer + at, n}};
        if (!sl_forward_send(s, guest->node, &m))
            return; /* The link is about to end. */
        at += n;
        if (at == c->out.n) break;
    }
    c->out.n = 0;
    if (done) c->proxy->ran = false;
    end_outcomes(c->proxy, true);
}

void sl_proxy_ran(struct conn *c)
{
    c->proxy->ran = true;
    /* The node knows which request a reply answers by the order of the replies. */
    if (!c->closing && !c->out.spilt) sl_proxy_flush(c);
}

/* An outcome comes after the reply QUEUED, and not in the middle of another reply. */
void sl_proxy_outcome(const struct request *r)
{
    struct conn *c = r->c;
    size_t from = c->proxy->outcome;
    struct sl_bytes reply = {c->out.buffer + from, c->out.n - from};
    assert(from <= c->out.n);
    c->out.n = from;
    if (c->closing || c->session->guest->gone || c->out.spilt) return;
    if (from == 0 && sl_proxy_may_run(c)) {
        send_outcome(c, r->key, r->id, reply);
        return;
    }
    /* The output is sent at the end of this callback, or when the link has space. */
    if (!keep_outcome(c->proxy, r->key, r->id, reply)) c->out.spilt = true;
}

void sl_proxy_flush_stalled(struct server *s)
{
    struct sl_list stalled;
    sl_list_init(&stalled);
    while (!sl_list_empty(&s->forward->stalled)) {
        struct sl_list *n = s->forward->stalled.next;
        sl_list_remove(n);
        sl_list_append(&stalled, n);
    }
    while (!sl_list_empty(&stalled)) {
        struct sl_proxy *p = sl_container_of(stalled.next, struct sl_proxy, stalled);
        sl_list_remove(&p->stalled);
        sl_proxy_flush(p->c);
        if (sl_proxy_may_run(p->c)) sl_conn_unblock(p->c);
    }
}

/* Send an event to other nodes. Skip links with much unsent output: events may be lost. */
static void send_event(struct server *s, struct sl_bytes channel, struct sl_bytes text)
{
    const struct sl_failover_message m = {
        .type = SL_FAILOVER_EVENT, .channel = channel, .bytes = text};
    for (sl_node_id i = 1; i <= SL_NODE_ID_MAX; i++)
        if (s->forward->node.guests.nodes[i].listens &&
            sl_links_unsent(s, i) < SL_FORWARD_HIGH)
            sl_forward_send(s, i, &m);
}

/* --- Orders ------------------------------------------------------------------------------- */

/* Update the event callback, because the set of nodes with subscribers has changed. */
static void note_listening(struct server *s)
{
    bool any = false;
    for (size_t i = 1; i <= SL_NODE_ID_MAX; i++)
        any |= s->forward->node.guests.nodes[i].listens;
    s->pubsub.elsewhere = any ? send_event : NULL;
}

/* Remember when a command arrived, because the proxy may run it later. Returns false if out of
 * memory. */
static bool add_arrival(struct conn *c)
{
    struct sl_proxy *p = c->proxy;
    const struct sl_guest *n = c->session->guest;
    if (p->arrivals_end == p->arrivals_space && p->arrivals_first > 0) {
        p->arrivals_end -= p->arrivals_first;
        memmove(p->arrivals, p->arrivals + p->arrivals_first,
                p->arrivals_end * sizeof *p->arrivals);
        p->arrivals_first = 0;
    }
    if (p->arrivals_end == p->arrivals_space) {
        size_t space = p->arrivals_space == 0 ? 2 : 2 * p->arrivals_space;
        struct sl_arrival *more = realloc(p->arrivals, space * sizeof *more);
        if (more == NULL) return false;
        p->arrivals = more;
        p->arrivals_space = space;
    }
    p->arrivals[p->arrivals_end++] = (struct sl_arrival){
        n->came_ms, n->arrived_ms, sl_table_next_number(c->server->table)};
    return true;
}

void sl_proxy_begins(struct conn *c)
{
    struct sl_proxy *p = c->proxy;
    p->arrival.number = 0; /* A malicious node may send two commands as one. */
    if (p->arrivals_first == p->arrivals_end) return;
    p->arrival = p->arrivals[p->arrivals_first++];
    if (p->arrivals_first == p->arrivals_end) p->arrivals_first = p->arrivals_end = 0;
}

static void run(struct conn *c, const struct sl_failover_message *m)
{
    c->out.resp3 = m->yes;
    c->heard_ms = c->server->now.ms;
    if (!sl_conn_feed(c, m->bytes) || (m->last && !add_arrival(c)))
        sl_conn_close(c, SL_WAS_CUT);
    else if (m->last) sl_conn_work(c);
}

static void set_name(struct conn *c, struct sl_bytes name)
{
    assert(name.n < sizeof c->name);
    memcpy(c->name, name.at, name.n);
    c->name[name.n] = '\0';
}

/* Record that the client's node has rejected a command of the transaction. */
static void fail_transaction(struct conn *c, struct sl_bytes name)
{
    if (c->tx == NULL || c->tx->id == 0 || c->tx->error != NULL) return;
    const struct command *command = sl_command_find(name);
    bool known = command != NULL && (command->flags & SL_TX) != 0;
    c->tx->failed = known ? command->name : "an unknown command";
    c->tx->error = "ERR";
}

static void end_session(struct server *s, struct session *n)
{
    sl_list_remove(&n->lingering);
    sl_table_session_end(s->table, &n->s);
}

static void carry_out(struct server *s, const struct sl_guests_order *o)
{
    const struct sl_failover_message *m = &o->message;
    switch (o->type) {
        case SL_GUESTS_ORDER_SEND: sl_forward_send(s, o->to, m); break;
        case SL_GUESTS_ORDER_RUN: run(conn_of(o->guest), m); break;
        case SL_GUESTS_ORDER_NAME: set_name(conn_of(o->guest), m->name); break;
        case SL_GUESTS_ORDER_FAIL: fail_transaction(conn_of(o->guest), m->bytes); break;
        case SL_GUESTS_ORDER_CLOSE:
            sl_conn_close(conn_of(o->guest), o->cut ? SL_WAS_CUT : SL_SAID_BYE);
            break;
        case SL_GUESTS_ORDER_END: end_session(s, session_of(o->guest)); break;
        case SL_GUESTS_ORDER_RELEASE:
            sl_local_end_unanswered(s, m->key, m->fence);
            break;
        case SL_GUESTS_ORDER_GIVEN: sl_state_given(s, o->ms); break;
        case SL_GUESTS_ORDER_LISTEN: note_listening(s); break;
    }
}

uint32_t sl_proxy_linked(const struct server *s)
{
    uint32_t linked = 0;
    for (sl_node_id i = 1; i <= SL_NODE_ID_MAX; i++)
        if (sl_links_are_up(s, i)) linked |= 1u << i;
    return linked;
}

void sl_proxy_carry_out(struct server *s)
{
    struct sl_guests *g = &s->forward->node.guests;
    struct sl_guests_order o;
    for (;;) {
        /* `linked` is needed only if reports are due. */
        uint32_t linked = sl_witness_is_due(&g->witness, s->now.ms) ? sl_proxy_linked(s)
                                                                    : 0;
        if (!sl_guests_next(g, s->now, linked, &o)) return;
        carry_out(s, &o);
    }
}

/* --- Calls from the local arbiter and from links -------------------------------------------- */

uint64_t sl_forward_held(struct conn *c, sl_ms came_ms, struct sl_bytes key,
                         sl_fence fence, bool fresh)
{
    struct server *s = c->server;
    struct sl_failover_message m[2];
    struct sl_guest *guest = c->session->guest;
    if (s->forward == NULL) return 0;
    if (guest == NULL) { /* sl_forward_pump() sends the notes of this loop iteration. */
        uint64_t number = sl_failover_note(&s->forward->node, s->now, key, fence);
        return number == 0                ? 0
               : number == SL_NOTE_FAILED ? SL_STATE_FAILED
                                          : SL_STATE_NOTE + number;
    }
    size_t n = sl_guests_held(&s->forward->node.guests, s->now, guest, came_ms, key,
                              fence, fresh, m);
    for (size_t i = 0; i < n; i++) sl_forward_send(s, guest->node, &m[i]);
    sl_proxy_carry_out(s);
    return 0;
}

void sl_forward_moved(struct server *s, uint64_t session, sl_fence fence)
{
    const struct session *n = sl_server_session(s, session);
    if (s->forward == NULL || n == NULL || n->guest == NULL) return;
    const struct sl_failover_message m = {
        .type = SL_FAILOVER_GONE, .gone = &fence, .gone_count = 1};
    sl_forward_send(s, n->guest->node, &m);
}

void sl_forward_gone(struct server *s, sl_fence fence, bool at_once)
{
    if (s->forward == NULL) return;
    sl_guests_gone(&s->forward->node.guests, s->now.ms, fence, at_once);
    sl_proxy_carry_out(s);
}

void sl_forward_broke(struct server *s, sl_fence fence, bool ended)
{
    if (s->forward == NULL) return;
    sl_guests_broke(&s->forward->node.guests, s->now.ms, fence, ended);
}

bool sl_proxy_prepare(struct server *s, sl_node_id from,
                      const struct sl_failover_message *m)
{
    struct sl_guests *g = &s->forward->node.guests;
    g->stopping = s->stopping;
    /* The node's clock shows at least the time in the message when ours is read. */
    if (m->type == SL_FAILOVER_CLOCK) sl_server_read_clock(s);
    if (!sl_guests_lacks(g, from, m) || make(s, from, m->session)) return true;
    const struct sl_failover_message cut = {.type = SL_FAILOVER_CUT,
                                            .session = m->session};
    sl_forward_send(s, from, &cut);
    return false;
}
