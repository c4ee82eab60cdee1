/* links.c - connects to other nodes, accepts their connections, and closes silent links. */
#include "server/net/links.h"

#include <netdb.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "server/net/links_internal.h"
#include "server/net/membership_text.h"
#include "server/net/node_wire.h"

#define BACKLOG 128
#define DELAY_MIN_MS 20
#define DELAY_MAX_MS 1000
/* If the timer is late by this much, the machine stalled or the process was stopped. */
#define LATE_MS 50
#define STEADY_MS 1000 /* If the link was up for this long, reconnect quickly. */

/* --- Peers and links ------------------------------------------------------- */

struct peer *sl_links_peer(struct sl_links *l, sl_node_id id)
{
    for (size_t i = 0; i < l->peer_count; i++)
        if (l->peers[i].member.id == id) return &l->peers[i];
    return NULL;
}

static struct link *link_of(struct sl_list *n)
{
    return sl_container_of(n, struct link, all);
}

static bool is_up(const struct link *k)
{
    return k->phase == SL_LINK_UP && !k->replaced;
}

struct link *sl_links_up(struct sl_links *l, sl_node_id id)
{
    for (struct sl_list *n = l->all.next; n != &l->all; n = n->next)
        if (link_of(n)->id == id && is_up(link_of(n))) return link_of(n);
    return NULL;
}

/* Whether a connection attempt to the node is in progress. */
static bool is_called(struct sl_links *l, sl_node_id id)
{
    for (struct sl_list *n = l->all.next; n != &l->all; n = n->next)
        if (link_of(n)->id == id && link_of(n)->role == SL_CALLER &&
            !link_of(n)->replaced)
            return true;
    return false;
}

/* --- Logging --------------------------------------------------------------- */

static void say_about(enum sl_log_level level, const char *what, const struct link *k,
                      const char *why)
{
    char node[16];
    snprintf(node, sizeof node, "%u", k->id);
    if (why == NULL) sl_log(level, what, "node", node, "address", k->address, NULL);
    else sl_log(level, what, "node", node, "address", k->address, "reason", why, NULL);
}

/* Log each reason only once, however often the connection attempt fails. */
static void say_unreachable(struct peer *p, const char *why)
{
    char node[16];
    if (strcmp(p->said, why) == 0) return;
    snprintf(p->said, sizeof p->said, "%s", why);
    snprintf(node, sizeof node, "%u", p->member.id);
    sl_log(SL_LOG_WARN, "cannot connect to a node; this node keeps retrying", "node",
           node, "address", p->member.address, "reason", why, NULL);
}

void sl_links_talks(struct link *k)
{
    struct sl_links *l = k->server->links;
    struct peer *p = sl_links_peer(l, k->id);
    say_about(SL_LOG_INFO, "connected to a node", k, NULL);
    if (p == NULL) return;
    if (p->was_up) l->counts.reconnects++;
    p->was_up = true;
    p->said[0] = '\0';
}

/* --- Connecting to other nodes -------------------------------------------- */

/* Schedule the next connection attempt. The delay grows each time and is random, so that nodes do
 * not connect to each other in lockstep. */
static void call_later(struct sl_links *l, struct peer *p)
{
    sl_ms quarter = p->delay_ms / 4;
    sl_ms pause = p->delay_ms - quarter + sl_random_between(&l->random, 0, 2 * quarter);
    if (pause > DELAY_MAX_MS) pause = DELAY_MAX_MS;
    p->delay_ms = 2 * p->delay_ms < DELAY_MAX_MS ? 2 * p->delay_ms : DELAY_MAX_MS;
    p->call_ms = l->server->now.ms + pause;
    sl_links_wake_by(l, p->call_ms);
}

static void could_not_call(struct sl_links *l, struct peer *p, const char *why)
{
    say_unreachable(p, why);
    call_later(l, p);
}

static void connect_to(struct sl_links *l, struct peer *p, const struct sockaddr *a)
{
    p->calls++;
    if (sl_link_call(l->server, &p->member, a) == NULL)
        could_not_call(l, p, "out of memory");
}

/* A host name lookup, which runs on another thread because it may take a long time. If the address
 * of the peer changes meanwhile, the result is ignored. */
struct lookup {
    uv_getaddrinfo_t req;
    struct server *server;
    sl_node_id id;
    uint64_t number;
};

static const struct sockaddr *choose(const struct addrinfo *found, uint32_t nth)
{
    uint32_t n = 0;
    for (const struct addrinfo *a = found; a != NULL; a = a->ai_next) n++;
    for (nth %= n; nth > 0; nth--) found = found->ai_next;
    return found->ai_addr;
}

static void on_resolved(uv_getaddrinfo_t *req, int status, struct addrinfo *found)
{
    struct lookup *lookup = req->data;
    struct server *s = lookup->server;
    struct sl_links *l = s->links;
    struct peer *p = sl_links_peer(l, lookup->id);
    if (!l->stopped && p != NULL && p->lookup == lookup->number) {
        sl_server_read_clock(s);
        p->lookup = 0;
        if (status != 0) could_not_call(l, p, uv_strerror(status));
        else if (sl_links_up(l, p->member.id) == NULL)
            connect_to(l, p, choose(found, p->calls));
        sl_server_settle(s);
    }
    uv_freeaddrinfo(found);
    free(lookup);
}

static void resolve(struct sl_links *l, struct peer *p, const char *host,
                    const char *port)
{
    const struct addrinfo hints = {.ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM};
    struct lookup *lookup = calloc(1, sizeof *lookup);
    int status = UV_ENOMEM;
    if (lookup != NULL) {
        *lookup = (struct lookup){
            .server = l->server, .id = p->member.id, .number = ++l->last_lookup};
        lookup->req.data = lookup;
        status = uv_getaddrinfo(l->server->loop, &lookup->req, on_resolved, host, port,
                                &hints);
    }
    if (status == 0) p->lookup = lookup->number;
    else {
        free(lookup);
        could_not_call(l, p, uv_strerror(status));
    }
}

static void call(struct sl_links *l, struct peer *p)
{
    char host[SL_ADDRESS_BYTES], port[8];
    struct sockaddr_storage a = {0};
    p->call_ms = SL_NEVER;
    if (p->lookup != 0 || is_called(l, p->member.id) ||
        sl_links_up(l, p->member.id) != NULL)
        return;
    sl_address_split(p->member.address, host, port);
    if (sl_parse_address(host, atoi(port), &a))
        connect_to(l, p, (const struct sockaddr *)&a);
    else resolve(l, p, host, port);
}

/* --- The end of a link ----------------------------------------------------- */

static void say_gone(struct link *k, struct peer *p, const char *why)
{
    static struct sl_log_kind kind;
    char node[16];
    snprintf(node, sizeof node, "%u", k->id);
    if (k->talks) say_about(SL_LOG_WARN, "lost the connection to a node", k, why);
    else if (p != NULL && (k->role == SL_CALLER || k->known)) say_unreachable(p, why);
    else
        sl_log_often(
            &kind, k->server->now.ms, SL_LOG_WARN,
            "a connection to node-port ended before the handshake was complete",
            "address", k->address, "claims_node", node, "reason", why, NULL);
}

static enum sl_link_end end_of(const struct link *k)
{
    if (k->replaced) return SL_END_REPLACED;
    return k->silent ? SL_END_SILENT : SL_END_CLOSED;
}

void sl_links_closed(struct link *k, const char *why)
{
    struct sl_links *l = k->server->links;
    if (l->stopped) return;
    struct peer *p = sl_links_peer(l, k->id);
    bool was_up = is_up(k);
    if (k->replaced) why = NULL;
    if (why != NULL && (was_up || sl_links_up(l, k->id) == NULL)) say_gone(k, p, why);
    if (p != NULL && p->call_ms == SL_NEVER && p->lookup == 0 &&
        (was_up || k->role == SL_CALLER) && sl_links_up(l, k->id) == NULL) {
        if (k->talks && l->server->now.ms - k->up_ms >= STEADY_MS)
            p->delay_ms = DELAY_MIN_MS;
        call_later(l, p);
    }
    if (was_up) l->handler->down(k->server, k->id, end_of(k));
    else if (p != NULL && k->role == SL_CALLER && sl_links_up(l, k->id) == NULL)
        l->handler->unreached(k->server, k->id, end_of(k));
}

/* --- The timer ------------------------------------------------------------ */

static sl_ms due_of(const struct link *k)
{
    if (k->close_why != NULL) return 0;
    if (k->phase != SL_LINK_UP) return k->since_ms + SL_LINK_HANDSHAKE_MS;
    return k->heard_ms + SL_LINK_SILENT_MS;
}

static void check(struct link *k)
{
    if (k->close_why != NULL) sl_link_close(k, k->close_why);
    else if (due_of(k) > k->server->now.ms) return;
    else if (k->phase != SL_LINK_UP) {
        k->silent = true;
        sl_link_close(k, "the node did not answer in time");
    }
    /* A link with pending input is not silent: this process may have been stopped. */
    else if (!sl_link_has_input(k)) {
        k->silent = true;
        sl_link_close(k, "nothing was received for half a second");
    }
}

static void accept_one(struct listener *d);

static void check_all(struct sl_links *l)
{
    sl_ms now = l->server->now.ms, due = SL_NEVER;
    struct sl_list *next;
    for (size_t i = 0; i < l->listener_count; i++)
        if (l->listeners[i]->pending) accept_one(l->listeners[i]);
    for (struct sl_list *n = l->all.next; n != &l->all; n = next) {
        next = n->next;
        check(link_of(n));
    }
    for (size_t i = 0; i < l->peer_count; i++)
        if (l->peers[i].call_ms <= now) call(l, &l->peers[i]);
    for (struct sl_list *n = l->all.next; n != &l->all; n = n->next)
        if (due_of(link_of(n)) < due) due = due_of(link_of(n));
    for (size_t i = 0; i < l->peer_count; i++)
        if (l->peers[i].call_ms < due) due = l->peers[i].call_ms;
    if (due != SL_NEVER) sl_links_wake_by(l, due > now ? due : now + 1);
}

/* Do not count the `ms` for which this process did not run as silence of other nodes. */
static void excuse_silence(struct sl_links *l, sl_ms ms)
{
    for (struct sl_list *n = l->all.next; n != &l->all; n = n->next) {
        struct link *k = link_of(n);
        k->heard_ms = k->heard_ms + ms < l->server->now.ms ? k->heard_ms + ms
                                                           : l->server->now.ms;
    }
}

static void on_timer(uv_timer_t *timer)
{
    struct server *s = timer->data;
    struct sl_links *l = s->links;
    sl_server_read_clock(s);
    if (s->now.ms - l->timer_ms > LATE_MS) excuse_silence(l, s->now.ms - l->timer_ms);
    l->timer_ms = SL_NEVER;
    check_all(l);
    sl_server_settle(s);
}

/* Set the timer again only for an earlier time: the timer may expire too early, but not too
 * late. */
void sl_links_wake_by(struct sl_links *l, sl_ms ms)
{
    if (l->stopped || ms >= l->timer_ms) return;
    l->timer_ms = ms;
    sl_ms in = ms - l->server->now.ms;
    uv_timer_start(&l->timer, on_timer, in > 0 ? (uint64_t)in : 0, 0);
}

/* --- Accepting connections -------------------------------------------------- */

/* If there are too many unauthenticated connections, close the oldest. A node authenticates
 * quickly, so connections that only block the port cannot stay. */
static void close_stranger(struct sl_links *l)
{
    if (l->strangers < SL_LINK_STRANGERS) return;
    for (struct sl_list *n = l->all.next; n != &l->all; n = n->next) {
        if (link_of(n)->role != SL_CALLEE || link_of(n)->known) continue;
        l->counts.refused++;
        sl_link_close(link_of(n),
                      "too many connections to node-port have not authenticated");
        return;
    }
}

static void accept_one(struct listener *d)
{
    struct sl_links *l = d->server->links;
    close_stranger(l);
    d->pending = !sl_link_accept(d->server, (uv_stream_t *)&d->tcp);
    if (d->pending) /* Memory may be available then. */
        sl_links_wake_by(l, d->server->now.ms + 1000);
}

static void on_call(uv_stream_t *stream, int status)
{
    struct listener *d = stream->data;
    struct server *s = d->server;
    if (status != 0) return;
    sl_server_read_clock(s);
    if (s->accepts_left == 0) {
        d->pending = true;
        sl_links_wake_by(s->links, s->now.ms + 1);
        return;
    }
    s->accepts_left--;
    accept_one(d);
    sl_server_settle(s);
}

static void on_listener_closed(uv_handle_t *handle)
{
    free(handle->data);
}

static int cannot_listen(struct listener *d, bool optional, const char *where,
                         int status)
{
    if (d != NULL) uv_close((uv_handle_t *)&d->tcp, on_listener_closed);
    if (optional) return 0;
    sl_log(SL_LOG_ERROR,
           status == UV_EADDRINUSE
               ? "cannot listen for nodes: the port is in use; stop the other program, "
                 "or choose another --node-port"
               : "cannot listen for nodes",
           "where", where, "error", uv_strerror(status), NULL);
    return -1;
}

static int listen_on(void *arg, const char *address)
{
    struct server *s = arg;
    struct sl_links *l = s->links;
    bool optional = *address == '-';
    struct sockaddr_storage a = {0};
    char where[128];
    if (optional) address++;
    /* sl_listen_check() has validated the address. */
    sl_parse_address(address, l->port, &a);
    snprintf(where, sizeof where, a.ss_family == AF_INET6 ? "[%s]:%d" : "%s:%d",
             address, l->port);
    struct listener *d = calloc(1, sizeof *d);
    if (d == NULL || uv_tcp_init(s->loop, &d->tcp) != 0) abort();
    d->server = s;
    d->tcp.data = d;
    int status = uv_tcp_bind(&d->tcp, (const struct sockaddr *)&a,
                             a.ss_family == AF_INET6 ? UV_TCP_IPV6ONLY : 0);
    if (status == 0) status = uv_listen((uv_stream_t *)&d->tcp, BACKLOG, on_call);
    if (status != 0) return cannot_listen(d, optional, where, status);
    l->listeners[l->listener_count++] = d;
    l->port = sl_got_port(&d->tcp);
    return 0;
}

/* --- links.h -------------------------------------------------------------- */

/* Compute a proof at the start, because the first one is slow: libcrypto reads files. */
static bool can_prove(const struct server *s)
{
    const struct sl_handshake none = {0};
    char proof[SL_HEX_BYTES];
    return sl_proof_make(&none, SL_CALLER, s->settings->secret, proof);
}

int sl_links_start(struct server *s, const struct sl_link_handler *handler)
{
    struct sl_links *l = calloc(1, sizeof *l);
    if (l == NULL || !can_prove(s)) {
        sl_log(SL_LOG_ERROR, "cannot start", "error",
               l == NULL ? "out of memory" : "libcrypto has no HMAC-SHA256", NULL);
        free(l);
        return -1;
    }
    s->links = l;
    l->server = s;
    l->handler = handler;
    l->timer_ms = SL_NEVER;
    sl_random_seed(&l->random, s->seed);
    l->port = s->settings->node_port == SL_PORT_AUTO ? 0 : (int)s->settings->node_port;
    sl_list_init(&l->all);
    sl_list_init(&l->dirty);
    uv_timer_init(s->loop, &l->timer);
    l->timer.data = s;
    return sl_each_address(s->settings->node_bind, s, listen_on);
}

void sl_links_log_listening(const struct server *s)
{
    const struct sl_links *l = s->links;
    for (size_t i = 0; i < l->listener_count; i++)
        sl_listen_log_tcp("listening for nodes on", &l->listeners[i]->tcp);
}

void sl_links_stop(struct server *s)
{
    struct sl_links *l = s->links;
    if (l == NULL || l->stopped) return;
    l->stopped = true;
    for (size_t i = 0; i < l->listener_count; i++)
        uv_close((uv_handle_t *)&l->listeners[i]->tcp, on_listener_closed);
    l->listener_count = 0;
    while (!sl_list_empty(&l->all)) sl_link_close(link_of(l->all.next), NULL);
    uv_close((uv_handle_t *)&l->timer, NULL);
}

static bool is_among(const struct sl_member *at, uint32_t n, sl_node_id id)
{
    for (uint32_t i = 0; i < n; i++)
        if (at[i].id == id) return true;
    return false;
}

/* Return a peer of the new list. Copies the state of the existing peer, if there is one. */
static struct peer peer_of(struct sl_links *l, const struct sl_member *m)
{
    struct peer *old = sl_links_peer(l, m->id), p = {0};
    if (old != NULL) p = *old;
    if (old == NULL || strcmp(old->member.address, m->address) != 0) {
        p.call_ms = l->server->now.ms;
        p.delay_ms = DELAY_MIN_MS;
        p.lookup = 0;
    }
    p.member = *m;
    return p;
}

void sl_links_set(struct server *s, const struct sl_member *at, uint32_t n)
{
    struct sl_links *l = s->links;
    struct peer peers[2 * SL_NODES_MAX];
    size_t count = 0;
    if (l->stopped) return;
    for (uint32_t i = 0; i < n && count < 2 * SL_NODES_MAX; i++)
        if (at[i].id != (sl_node_id)s->settings->node)
            peers[count++] = peer_of(l, &at[i]);
    memcpy(l->peers, peers, count * sizeof *peers);
    l->peer_count = count;
    for (struct sl_list *i = l->all.next; i != &l->all; i = i->next) {
        struct link *k = link_of(i);
        if ((k->role == SL_CALLER || k->phase == SL_LINK_UP) && !is_among(at, n, k->id))
            sl_link_close_later(k, "the node is not a member");
    }
    sl_links_wake_by(l, s->now.ms);
}

void sl_links_send(struct server *s, sl_node_id to, const struct sl_message *m)
{
    struct link *k = s->links->stopped ? NULL : sl_links_up(s->links, to);
    if (k != NULL && k->close_why == NULL) sl_message_write(sl_link_out(k), m);
}

struct sl_resp_writer *sl_links_frame(struct server *s, sl_node_id to)
{
    struct link *k = s->links->stopped ? NULL : sl_links_up(s->links, to);
    return k == NULL || k->close_why != NULL ? NULL : sl_link_out(k);
}

bool sl_links_are_up(const struct server *s, sl_node_id to)
{
    const struct link *k = s->links->stopped ? NULL : sl_links_up(s->links, to);
    return k != NULL && k->close_why == NULL;
}

size_t sl_links_unsent(const struct server *s, sl_node_id to)
{
    const struct link *k = sl_links_up(s->links, to);
    return k == NULL ? 0 : k->out.n + k->sending_bytes;
}

void sl_links_flush(struct server *s)
{
    if (s->links == NULL) return;
    while (!sl_list_empty(&s->links->dirty))
        sl_link_flush(sl_container_of(s->links->dirty.next, struct link, dirty));
}

void sl_links_cut_dirty(struct server *s)
{
    if (s->links == NULL) return;
    while (!sl_list_empty(&s->links->dirty)) {
        struct link *k = sl_container_of(s->links->dirty.next, struct link, dirty);
        sl_list_remove(&k->dirty);
        k->out.n = 0;
        sl_link_close(k, "the journal of this node cannot be written");
    }
}

void sl_links_view(const struct server *s, struct sl_links_view *out)
{
    static const struct sl_links_view none;
    *out = s->links == NULL ? none : s->links->counts;
}
