/* conn.c - creates and closes connections, and closes those that are idle. */
#include "server/net/conn.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <sys/socket.h>

#include "server/forward/proxy.h"
#include "server/net/conn_internal.h"
#include "server/observe/log.h"
#include "server/request.h"

#define HANG_UP_MS 5000 /* How long the server tries to send the last output. */

/* --- Creating and closing a connection ------------------------------------ */

static void free_conn(struct conn *c)
{
    sl_resp_reader_free(c->reader);
    sl_resp_writer_free(&c->out);
    free(c->sending);
    sl_proxy_free(c->proxy);
    free(c->tx);
    sl_forward_free_session(c);
    free(c);
}

static void on_closed(uv_handle_t *handle)
{
    free_conn(handle->data);
}

struct conn *sl_conn_new(struct server *s)
{
    struct conn *c = calloc(1, sizeof *c);
    if (c == NULL) return NULL;
    c->server = s;
    c->fd = -1;
    c->since_ms = c->heard_ms = c->unauthed_ms = s->now.ms;
    c->authed = *s->settings->password == '\0';
    sl_list_init(&c->all);
    sl_list_init(&c->dirty);
    sl_list_init(&c->ready);
    sl_list_init(&c->leaving);
    sl_list_init(&c->unauthed);
    sl_list_init(&c->subscriber.subscriptions);
    sl_list_init(&c->requests);
    sl_list_init(&c->notifies);
    sl_resp_writer_init(&c->out, sl_conn_output_max(s));
    return c;
}

void sl_conn_abandon(struct conn *c)
{
    c->closing = true;
    uv_close(&c->uv.handle, on_closed);
}

struct conn *sl_conn_new_proxy(struct server *s, struct sl_proxy *proxy)
{
    struct session *old;
    struct conn *c = sl_conn_new(s);
    if (c == NULL) return NULL;
    /* The loop needs a handle to close; on_closed() then frees the connection. */
    uv_timer_init(s->loop, &c->uv.timer);
    c->uv.handle.data = c;
    c->authed = true; /* The client's node has authenticated the client. */
    if (sl_conn_begin_session(c, &old) != SLUICE_OK) {
        sl_conn_abandon(c);
        return NULL;
    }
    c->proxy = proxy;
    /* The client's node runs all other commands. */
    c->requests_only = SL_PROXY_REFUSAL;
    sl_list_append(&s->conns, &c->all);
    return c;
}

void sl_conn_watch(struct conn *c, bool read)
{
    if (c->closing || c->input.watched == read || c->proxy != NULL) return;
    if (!sl_input_watch(c, read)) sl_conn_close(c, SL_WAS_CUT);
}

bool sl_conn_is_local(const struct conn *c)
{
    if (c->peer.sin6_family == AF_INET)
        return ntohl(((const struct sockaddr_in *)(const void *)&c->peer)
                         ->sin_addr.s_addr) >>
                   24 ==
               127;
    if (c->peer.sin6_family == AF_INET6)
        return IN6_IS_ADDR_LOOPBACK(&c->peer.sin6_addr);
    return true; /* A Unix socket is always local. */
}

void sl_conn_close(struct conn *c, enum sl_parting how)
{
    if (c->closing) return;
    c->closing = true;
    sl_pubsub_drop_all(&c->server->pubsub, c);
    sl_conn_end_session(c, how);
    if (c->proxy != NULL) sl_proxy_closed(c);
    sl_list_remove(&c->all);
    sl_list_remove(&c->dirty);
    sl_list_remove(&c->ready);
    sl_list_remove(&c->leaving);
    sl_list_remove(&c->unauthed);
    c->server->buffer_bytes -= c->counted_bytes;
    c->counted_bytes = 0;
    if (c->proxy == NULL) c->server->conn_count--;
    if (c->server->reserved == c) c->server->reserved = NULL;
    sl_input_forget(c);
    uv_close(&c->uv.handle, on_closed);
}

void sl_conn_hang_up(struct conn *c, enum sl_parting how)
{
    if (c->hang_up != SL_STAYS) return;
    c->hang_up = how;
    c->hang_up_ms = c->server->now.ms;
    sl_conn_watch(c, false);
    sl_conn_out(c); /* The connection closes at the end of this callback. */
}

void sl_conn_close_in_turn(struct conn *c, enum sl_parting how)
{
    struct server *s = c->server;
    if (s->closes_left > 0) {
        s->closes_left--;
        sl_conn_close(c, how);
    } else if (c->leaves == SL_STAYS) {
        c->leaves = how;
        sl_conn_watch(c, false);
        sl_list_append(&s->leaving, &c->leaving);
        sl_server_go_on(s);
    }
}

void sl_conn_close_leaving(struct server *s)
{
    while (s->closes_left > 0 && !sl_list_empty(&s->leaving)) {
        struct conn *c = sl_container_of(s->leaving.next, struct conn, leaving);
        s->closes_left--;
        sl_conn_close(c, c->leaves);
    }
}

enum sl_parting sl_conn_hung_up(const struct conn *c)
{
    struct pollfd p = {.fd = c->fd, .events = POLLRDHUP};
    if (c->proxy != NULL) return SL_STAYS; /* Only the client's node knows. */
    if (poll(&p, 1, 0) <= 0) return SL_STAYS;
    if ((p.revents & POLLERR) != 0) return SL_WAS_CUT;
    return (p.revents & (POLLRDHUP | POLLHUP)) != 0 ? SL_SAID_BYE : SL_STAYS;
}

bool sl_conn_gives_back(struct conn *c)
{
    char byte;
    if (c->leaves == SL_SAID_BYE) return true;
    if (!c->input.left || c->closing) return false;
    ssize_t n = recv(c->fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT);
    if (n < 0) return false; /* The connection broke, so its locks linger. */
    if (n == 0 && !sl_conn_has_more(c)) {
        sl_conn_close(c, SL_SAID_BYE);
        return true;
    }
    /* True if the server is still reading or running earlier commands of this client: they come
     * first. */
    return c->input.watched || !sl_list_empty(&c->ready);
}

/* --- Connections that are idle, or do not close ---------------------------- */

static bool is_idle(const struct conn *c, const struct sl_settings *set, sl_ms now_ms)
{
    if (set->idle_ms == 0 || now_ms - c->heard_ms < set->idle_ms) return false;
    if (!sl_list_empty(&c->requests) || c->notify_count > 0 ||
        sl_subscriber_listens(&c->subscriber))
        return false;
    if (sl_session_holds(&c->session->s) || sl_forward_holds_unleased(c)) return false;
    return true;
}

static void check(struct conn *c)
{
    static struct sl_log_kind kind;
    struct server *s = c->server;
    const struct sl_settings *set = s->settings;
    if (c->proxy != NULL || c->leaves != SL_STAYS)
        /* The node of a proxy does these checks; a leaving connection closes soon. */
        return;
    bool silent = !c->authed && set->auth_ms > 0 &&
                  s->now.ms - c->unauthed_ms >= set->auth_ms;
    if (c->hang_up != SL_STAYS) {
        if (s->now.ms - c->hang_up_ms >= HANG_UP_MS)
            sl_conn_close_in_turn(c, c->hang_up);
    } else if (silent || is_idle(c, set, s->now.ms)) {
        s->stats.idle_closes++;
        sl_log_often(
            &kind, s->now.ms, SL_LOG_INFO,
            silent ? "closed a connection: it did not authenticate in time (auth-time)"
                   : "closed a connection: it was idle (idle-time)",
            NULL);
        sl_conn_close_in_turn(c, SL_WAS_CUT);
    } else if (!sl_list_empty(&c->requests) && !c->input.watched && !c->ended) {
        /* While a client waits, the server does not read its input. So if the client sent more
         * input and then closed the connection, the server has not noticed the close yet. */
        enum sl_parting how = sl_conn_hung_up(c);
        if (how != SL_STAYS) sl_conn_close_in_turn(c, how);
    }
}

void sl_conn_check_all(struct server *s)
{
    struct sl_list *next;
    for (struct sl_list *n = s->conns.next; n != &s->conns; n = next) {
        next = n->next;
        check(sl_container_of(n, struct conn, all));
    }
}

/* --- Addresses ------------------------------------------------------------ */

bool sl_address_text(const struct sockaddr_in6 *a, char *out, size_t n)
{
    char text[64];
    if (a->sin6_family == AF_INET6) {
        uv_ip6_name(a, text, sizeof text);
        snprintf(out, n, "[%s]:%u", text, ntohs(a->sin6_port));
    } else if (a->sin6_family == AF_INET) {
        const struct sockaddr_in *in = (const void *)a;
        uv_ip4_name(in, text, sizeof text);
        snprintf(out, n, "%s:%u", text, ntohs(in->sin_port));
    } else return false;
    return true;
}

void sl_conn_address(const struct conn *c, char *out, size_t n)
{
    if (c->proxy != NULL) snprintf(out, n, "node %u", c->session->guest->node);
    else if (!sl_address_text(&c->peer, out, n))
        snprintf(out, n, "%s", c->server->settings->socket);
}
