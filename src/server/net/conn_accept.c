/* conn_accept.c - accepts connections up to connections-max. Above that limit, it decides which
 * connections to close when new ones arrive. */
#include <stdlib.h>

#include "server/net/conn_internal.h"
#include "server/observe/log.h"

/* A new connection may replace a connection that has been idle for this long. */
#define IDLE_MS 1000

static struct conn *new_socket(struct server *s, bool tcp)
{
    struct conn *c = sl_conn_new(s);
    if (c == NULL) return NULL;
    int status = tcp ? uv_tcp_init(s->loop, &c->uv.tcp)
                     : uv_pipe_init(s->loop, &c->uv.pipe, 0);
    if (status != 0) {
        free(c);
        return NULL;
    }
    c->uv.handle.data = c;
    return c;
}

/* Vary the keep-alive times between connections. A machine drops packets when thousands arrive at
 * once. With equal times, it would drop those of the same connections each time. */
static void vary_keep_alive(struct conn *c)
{
    uv_os_fd_t fd;
    int s = (int)(c->server->settings->keep_alive_ms / 1000);
    if (c->server->settings->keep_alive_ms == 0 || uv_fileno(&c->uv.handle, &fd) != 0)
        return;
    if (s < 1) s = 1;
    int number = (int)(sl_conn_id(c) % 1000000);
    int idle = s + number % s, interval = 1 + s / 10 + number % 3;
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &idle, sizeof idle);
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPINTVL, &interval, sizeof interval);
}

/* Reply that connections-max is reached, and close the connection. */
static void reject(struct conn *c)
{
    static struct sl_log_kind kind;
    struct server *s = c->server;
    s->stats.rejected++;
    sl_log_often(
        &kind, s->now.ms, SL_LOG_WARN,
        "rejected a connection: the server has reached its limit (connections-max)",
        NULL);
    sl_resp_problem(sl_conn_out(c), "LIMIT",
                    "the server has reached its limit of connections "
                    "(connections-max); retry later");
    sl_conn_hang_up(c, SL_SAID_BYE);
}

static size_t connections_max(const struct server *s)
{
    return (size_t)s->settings->connections_max;
}

/* Return the oldest connection that has not authenticated, if it has had enough time to do so. */
static struct conn *unauthed(const struct server *s)
{
    struct conn *oldest = sl_container_of(s->unauthed.next, struct conn, unauthed);
    if (sl_list_empty(&s->unauthed) || s->now.ms - oldest->unauthed_ms < IDLE_MS)
        return NULL;
    return oldest;
}

/* Accept one connection from this machine above connections-max, for an administrator. A new one
 * replaces it if it is idle. */
static bool take_reserve(struct conn *c)
{
    struct server *s = c->server;
    if (!sl_conn_is_local(c)) return false;
    if (s->reserved != NULL && s->now.ms - s->reserved->heard_ms >= IDLE_MS)
        sl_conn_close(s->reserved, SL_WAS_CUT);
    if (s->reserved != NULL || s->conn_count > connections_max(s) + 1) return false;
    s->reserved = c;
    return true;
}

/* Close a connection that has not authenticated, because connections-max others are open. So
 * clients without a password cannot keep others out. */
static bool make_way(struct conn *c)
{
    struct server *s = c->server;
    /* Other connections have closed, so this one counts as one of connections-max now. */
    if (s->conn_count <= connections_max(s) + 1) s->reserved = NULL;
    struct conn *oldest = unauthed(s);
    if (oldest == NULL) return take_reserve(c);
    bool reserved = oldest == s->reserved;
    s->stats.idle_closes++;
    sl_conn_close(oldest, SL_WAS_CUT);
    return !reserved || take_reserve(c);
}

bool sl_conn_accept(struct server *s, uv_stream_t *listener, bool tcp)
{
    static struct sl_log_kind kind;
    struct session *old;
    struct conn *c = new_socket(s, tcp);
    if (c == NULL) {
        sl_log_often(&kind, s->now.ms, SL_LOG_ERROR,
                     "out of memory: cannot accept a connection", NULL);
        return false;
    }
    /* For example, the client has already gone. */
    if (uv_accept(listener, &c->uv.stream) != 0 ||
        sl_conn_begin_session(c, &old) != SLUICE_OK) {
        sl_conn_abandon(c);
        return true;
    }
    uv_fileno(&c->uv.handle, &c->fd);
    sl_list_append(&s->conns, &c->all);
    if (!c->authed) sl_list_append(&s->unauthed, &c->unauthed);
    s->conn_count++;
    s->stats.connections++;
    if (tcp) {
        int size = sizeof c->peer;
        uv_tcp_getpeername(&c->uv.tcp, (struct sockaddr *)&c->peer, &size);
        vary_keep_alive(c);
    }
    if (s->conn_count <= connections_max(s) || make_way(c)) sl_conn_watch(c, true);
    else reject(c);
    return true;
}
