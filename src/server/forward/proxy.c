/* proxy.c - on the keeper: connections that represent clients of other nodes, and the frames from
 * these nodes. */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "server/arbiter/majority.h"
#include "server/arbiter/state.h"
#include "server/arbiter/transactions.h"
#include "server/forward/forward_internal.h"
#include "server/observe/log.h"

#define PROXIES_MAX 200000u /* Maximum proxies for clients of one node. */

/* --- Index by node and session ------------------------------------------------------------ */

struct proxy_key {
    uint64_t node, session;
};

static uint64_t hash_key(struct proxy_key n, uint64_t seed)
{
    return sl_hash_u64(n.session * 31 + n.node, seed);
}

static struct proxy_key key_of(const struct conn *c)
{
    return (struct proxy_key){c->proxy->node, c->proxy->session};
}

static uint64_t hash_conn(const void *item, const struct sl_index *x)
{
    return hash_key(key_of(item), x->seed);
}

static bool same_key(const void *item, struct sl_bytes key)
{
    const struct proxy_key n = key_of(item);
    return memcmp(&n, key.at, key.n) == 0;
}

static const struct sl_index_kind proxies = {.hash = hash_conn, .same = same_key};

void sl_proxy_init(struct server *s)
{
    sl_index_init(&s->forward->proxies, &proxies, s->hash_key);
    sl_list_init(&s->forward->stalled);
}

static struct conn *find(const struct server *s, sl_node_id node, uint64_t session)
{
    const struct proxy_key n = {node, session};
    const struct sl_index *x = &s->forward->proxies;
    return sl_index_find(x, (struct sl_bytes){(const char *)&n, sizeof n},
                         hash_key(n, x->seed));
}

/* --- Creating and closing a proxy --------------------------------------------------------- */

static void send_cut(struct server *s, sl_node_id node, uint64_t session)
{
    const struct sl_failover_message m = {.type = SL_FAILOVER_CUT, .session = session};
    sl_forward_send(s, node, &m);
}

static struct conn *make(struct server *s, sl_node_id node, uint64_t session)
{
    struct sl_forward *f = s->forward;
    assert(f->route.leads && node != 0 && node <= SL_NODE_ID_MAX && session != 0);
    if (f->nodes[node].count >= PROXIES_MAX ||
        sl_index_reserve(&f->proxies) != SLUICE_OK)
        return NULL;
    struct sl_proxy *p = calloc(1, sizeof *p);
    struct conn *c = p == NULL ? NULL : sl_conn_new_proxy(s, p);
    if (c == NULL) {
        free(p);
        return NULL;
    }
    *p = (struct sl_proxy){.c = c, .node = node, .session = session};
    sl_list_init(&p->stalled);
    c->session->proxy_node = node;
    c->session->proxy_id = session;
    sl_index_put(&f->proxies, c, hash_conn(c, &f->proxies));
    f->nodes[node].count++;
    return c;
}

static struct conn *find_or_make(struct server *s, sl_node_id node, uint64_t session)
{
    struct conn *c = find(s, node, session);
    if (c == NULL) c = make(s, node, session);
    if (c == NULL) send_cut(s, node, session);
    return c;
}

void sl_proxy_closed(struct conn *c)
{
    struct server *s = c->server;
    struct sl_forward *f = s->forward;
    struct sl_proxy *p = c->proxy;
    sl_index_remove(&f->proxies, c, hash_conn(c, &f->proxies));
    sl_list_remove(&p->stalled);
    assert(f->nodes[p->node].count > 0);
    f->nodes[p->node].count--;
    if (!p->gone) send_cut(s, p->node, p->session);
}

/* Send an event to other nodes. Skip links with much unsent output: events may be lost. */
static void send_event(struct server *s, struct sl_bytes channel, struct sl_bytes text)
{
    const struct sl_failover_message m = {
        .type = SL_FAILOVER_EVENT, .channel = channel, .bytes = text};
    for (sl_node_id i = 1; i <= SL_NODE_ID_MAX; i++)
        if (s->forward->nodes[i].listens && sl_links_unsent(s, i) < SL_FORWARD_HIGH)
            sl_forward_send(s, i, &m);
}

/* Update the event callback, because the set of nodes with subscribers has changed. */
static void note_listening(struct server *s)
{
    bool any = false;
    for (size_t i = 1; i <= SL_NODE_ID_MAX; i++) any |= s->forward->nodes[i].listens;
    s->pubsub.elsewhere = any ? send_event : NULL;
}

void sl_proxy_close_all(struct server *s, sl_node_id node)
{
    struct sl_list *next;
    s->forward->nodes[node] = (struct sl_guest_node){
        .count = s->forward->nodes[node].count};
    for (struct sl_list *n = s->conns.next; n != &s->conns; n = next) {
        struct conn *c = sl_container_of(n, struct conn, all);
        next = n->next;
        if (c->proxy == NULL || (node != 0 && c->proxy->node != node)) continue;
        c->proxy->gone = c->proxy->adrift = true;
        sl_conn_close(c, SL_WAS_CUT);
    }
    for (size_t i = 0; node == 0 && i <= SL_NODE_ID_MAX; i++)
        s->forward->nodes[i] = (struct sl_guest_node){0};
    note_listening(s);
}

/* --- Messages to nodes ---------------------------------------------------------------------- */

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
    struct sl_proxy *p = c->proxy;
    bool done = p->busy && p->ran && sl_list_empty(&c->requests);
    size_t at = 0;
    if (c->closing || p->gone || (c->out.n == 0 && !done)) return;
    do {
        if (sl_links_unsent(s, p->node) >= SL_FORWARD_HIGH) {
            stall(c, at);
            return;
        }
        size_t left = c->out.n - at,
               n = left < SL_FORWARD_PIECE ? left : SL_FORWARD_PIECE;
        const struct sl_failover_message m = {.type = SL_FAILOVER_SAY,
                                              .session = p->session,
                                              .what = at + n < c->out.n ? SL_SAY_MORE
                                                      : done            ? SL_SAY_LAST
                                                                        : 0,
                                              .tx = c->tx == NULL ? 0 : c->tx->id,
                                              .bytes = {c->out.buffer + at, n}};
        if (!sl_forward_send(s, p->node, &m)) return; /* The link is about to end. */
        at += n;
    } while (at < c->out.n);
    c->out.n = 0;
    if (done) p->busy = p->ran = false;
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
    }
}

static void send_held(struct conn *c, struct sl_bytes key,
                      const struct sl_grant_view *v, bool fresh)
{
    struct server *s = c->server;
    /* A client extends a grant that another client took. */
    if (!fresh && v->name.n + v->address.n > 0)
        sl_forward_send_client(s, c->proxy->node, 0, v->name, v->address);
    const struct sl_failover_message m = {.type = SL_FAILOVER_HELD,
                                          .session = c->proxy->session,
                                          .yes = fresh,
                                          .ms = s->now.ms - c->proxy->came_ms,
                                          .key = key,
                                          .grant = *v};
    sl_forward_send(s, c->proxy->node, &m);
}

void sl_forward_held(struct conn *c, struct sl_bytes key, sl_fence fence, bool fresh)
{
    struct server *s = c->server;
    struct sl_grant_view v;
    if (s->forward == NULL || !sl_table_inspect_grant(s->table, s->now, key, fence, &v))
        return;
    if (c->proxy != NULL) send_held(c, key, &v, fresh);
    else if (v.leased && s->forward->route.leads) {
        sl_witness_note(&s->forward->witness, s->now.ms, key, fence);
        sl_forward_send_reports(s);
    }
}

void sl_forward_gone(struct server *s, sl_fence fence, bool at_once)
{
    if (s->forward == NULL || !s->forward->route.leads) return;
    sl_witness_gone(&s->forward->witness, s->now.ms, fence, at_once);
    sl_forward_send_reports(s);
}

void sl_forward_send_reports(struct server *s)
{
    struct sl_witness *w = &s->forward->witness;
    struct sl_failover_message m;
    uint32_t to, linked = 0;
    if (w->due_ms > s->now.ms) return;
    for (sl_node_id i = 1; i <= SL_NODE_ID_MAX; i++)
        if (sl_links_are_up(s, i)) linked |= 1u << i;
    while (sl_witness_next(w, s->now, s->table, s->forward->nodes, linked, &to, &m))
        sl_forward_send(s, to, &m);
}

/* Handle CLOCK. Read our clock after the message has arrived: at that time, the node's clock shows
 * at least the time in the message. */
static void receive_clock(struct server *s, sl_node_id from, sl_ms ms)
{
    struct sl_guest_node *node = &s->forward->nodes[from];
    sl_server_read_clock(s);
    node->clock_ms = ms;
    node->clock_at_ms = s->now.ms;
}

bool sl_proxy_all_ready(const struct server *s)
{
    struct sl_member peers[2 * SL_NODES_MAX];
    uint32_t n = sl_node_peers(sl_majority_node(s), peers);
    for (uint32_t i = 0; i < n; i++)
        if (peers[i].id != (sl_node_id)s->settings->node &&
            sl_links_are_up(s, peers[i].id) && !s->forward->nodes[peers[i].id].ready)
            return false;
    return true;
}

/* --- Reclaims ------------------------------------------------------------------------------- */

static bool is_quiet(const struct server *s)
{
    struct sl_table_stats stats;
    sl_table_stats(s->table, &stats);
    return stats.recovering_until_ms > s->now.ms;
}

/* Handle a reported grant that is already in the table. Its holder is the same connection, or the
 * session that lingered when the link broke. */
static bool reclaim_held(struct server *s, struct session *n,
                         const struct sl_grant_view *held,
                         const struct sl_grant_view *v, struct sl_bytes key)
{
    const struct session *old = sl_server_session(s, held->session_id);
    /* One node may know of an extension that another does not know of. */
    if (held->leased) {
        if (is_quiet(s) && v->leased) sl_table_reclaim(s->table, s->now, NULL, v, key);
        return true;
    }
    if (n == NULL || old == NULL) return false;
    if (old == n) return true;
    if (old->conn != NULL || old->proxy_node == 0 || old->proxy_node != n->proxy_node ||
        old->proxy_id != n->proxy_id)
        return false;
    return sl_table_rebind(s->table, s->now, &n->s, key, held->fence) == SLUICE_OK;
}

bool sl_forward_reclaim(struct server *s, struct session *n,
                        const struct sl_grant_view *v, struct sl_bytes key)
{
    struct sl_grant_view held;
    bool good;
    if (sl_table_inspect_grant(s->table, s->now, key, v->fence, &held))
        good = reclaim_held(s, n, &held, v, key);
    else {
        good = is_quiet(s) && (v->leased || n != NULL) &&
               sl_table_reclaim(s->table, s->now, n == NULL ? NULL : &n->s, v, key) ==
                   SLUICE_OK;
        if (good && v->leased) sl_state_given(s, v->left_ms);
    }
    if (good) s->forward->counts.reclaimed++;
    else s->forward->counts.refused++;
    return good;
}

static void receive_reclaim(struct server *s, sl_node_id from,
                            const struct sl_failover_message *m)
{
    struct sl_grant_view v = m->grant;
    struct conn *c = NULL;
    if (m->session == 0) sl_noted_client_take(&s->forward->nodes[from].noted, &v);
    else if ((c = find_or_make(s, from, m->session)) == NULL) return;
    if (sl_forward_reclaim(s, c == NULL ? NULL : c->session, &v, m->key)) return;
    const struct sl_failover_message lost = {
        .type = SL_FAILOVER_LOST, .session = m->session, .fence = v.fence};
    sl_forward_send(s, from, &lost);
}

/* Release the grants of sessions that the node has not reported, because their clients left while
 * the link was down. */
static void end_unnamed(struct server *s, sl_node_id node)
{
    struct sl_list *next;
    for (struct sl_list *i = s->lingering.next; i != &s->lingering; i = next) {
        struct session *n = sl_container_of(i, struct session, lingering);
        next = i->next;
        if (n->proxy_node != node) continue;
        sl_list_remove(&n->lingering);
        sl_table_session_end(s->table, &n->s);
    }
}

static void receive_ready(struct server *s, sl_node_id from)
{
    s->forward->nodes[from].ready = true;
    end_unnamed(s, from);
    if (s->forward->reports_until_ms != 0 && sl_proxy_all_ready(s))
        s->forward->reports_until_ms = s->now.ms;
}

/* --- Messages from nodes ---------------------------------------------------------------------- */

static void receive_come(struct server *s, sl_node_id from, uint64_t term)
{
    struct sl_forward *f = s->forward;
    bool yes = f->route.leads && term == f->term && !s->stopping;
    const struct sl_failover_message m = {
        .type = yes ? SL_FAILOVER_HERE : SL_FAILOVER_NOT, .term = term};
    sl_forward_send(s, from, &m);
    if (!yes) return;
    sl_proxy_close_all(s, from); /* The node begins a new route. */
    f->nodes[from].open = true;
    f->nodes[from].ready = false;
}

static void receive_do(struct server *s, sl_node_id from,
                       const struct sl_failover_message *m)
{
    struct conn *c = m->session == 0 ? NULL : find_or_make(s, from, m->session);
    if (c == NULL) return;
    c->out.resp3 = m->yes;
    c->heard_ms = s->now.ms;
    if (!c->proxy->busy) {
        c->proxy->came_ms = s->now.ms;
        c->proxy->arrived_ms = s->now.ms - m->ms;
    }
    c->proxy->busy = true;
    if (!sl_conn_feed(c, m->bytes)) {
        sl_conn_close(c, SL_WAS_CUT);
        return;
    }
    if (!m->last) return;
    s->forward->counts.served++;
    sl_conn_work(c);
}

static void receive_client(struct server *s, sl_node_id from,
                           const struct sl_failover_message *m)
{
    struct sl_bytes name = m->name;
    if (m->session == 0) {
        sl_noted_client_keep(&s->forward->nodes[from].noted, m);
        return;
    }
    struct conn *c = find_or_make(s, from, m->session);
    if (c == NULL || name.n >= sizeof c->name) return;
    memcpy(c->name, name.at, name.n);
    c->name[name.n] = '\0';
    /* If this runs out of memory, the client is shown with the address of its node. */
    sl_table_describe(s->table, &c->session->s, name, m->address);
}

static void receive_drop(struct server *s, sl_node_id from,
                         const struct sl_failover_message *m)
{
    struct sl_ended past;
    struct conn *c = m->session == 0 ? NULL : find_or_make(s, from, m->session);
    if (c != NULL)
        sl_table_release(s->table, s->now, &c->session->s, m->key, m->fence, &past);
}

static void receive_fail(struct server *s, sl_node_id from,
                         const struct sl_failover_message *m)
{
    struct conn *c = find(s, from, m->session);
    if (c == NULL || c->tx == NULL || c->tx->id == 0 || c->tx->error != NULL) return;
    const struct command *command = sl_command_find(m->bytes);
    bool known = command != NULL && (command->flags & SL_TX) != 0;
    c->tx->failed = known ? command->name : "an unknown command";
    c->tx->error = "ERR";
}

static void receive_end(struct server *s, sl_node_id from,
                        const struct sl_failover_message *m)
{
    struct conn *c = find(s, from, m->session);
    if (c == NULL) return;
    c->proxy->gone = true;
    sl_conn_close(c, m->yes ? SL_WAS_CUT : SL_SAID_BYE);
}

void sl_proxy_received(struct server *s, sl_node_id from,
                       const struct sl_failover_message *m)
{
    struct sl_forward *f = s->forward;
    if (m->type == SL_FAILOVER_COME) {
        receive_come(s, from, m->term);
        return;
    }
    if (!f->route.leads || !f->nodes[from].open || s->stopping)
        return; /* The node knows, or will learn, that this node is not the keeper. */
    switch (m->type) {
        case SL_FAILOVER_DO: receive_do(s, from, m); break;
        case SL_FAILOVER_RECLAIM: receive_reclaim(s, from, m); break;
        case SL_FAILOVER_CLIENT: receive_client(s, from, m); break;
        case SL_FAILOVER_READY: receive_ready(s, from); break;
        case SL_FAILOVER_END: receive_end(s, from, m); break;
        case SL_FAILOVER_FAIL: receive_fail(s, from, m); break;
        case SL_FAILOVER_DROP: receive_drop(s, from, m); break;
        case SL_FAILOVER_CLOCK: receive_clock(s, from, m->ms); break;
        case SL_FAILOVER_LISTEN:
            f->nodes[from].listens = m->yes;
            note_listening(s);
            break;
        default: break; /* Only a keeper sends the other messages. */
    }
}
