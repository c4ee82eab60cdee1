/* listen.c - listens for clients, on TCP and on a Unix socket. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "server/net/conn.h"
#include "server/observe/log.h"

#define BACKLOG 1024
/* Minimum length of the password if other machines can connect. */
#define PASSWORD_BYTES_MIN 8u

/* The loop calls this for each connection in the backlog. If this function does not accept one, the
 * loop calls it again only after sl_listen_go_on() has accepted one. */
static void on_connection(uv_stream_t *listener, int status)
{
    struct server *s = listener->data;
    if (status != 0) return;
    if (s->accepts_left == 0) {
        s->accept_pending = true;
        sl_server_go_on(s);
        return;
    }
    s->accepts_left--;
    sl_server_read_clock(s);
    s->accept_retry = !sl_conn_accept(s, listener, listener->type == UV_TCP);
    sl_server_settle(s);
}

void sl_listen_go_on(struct server *s)
{
    s->accept_pending = s->accept_retry = false;
    for (size_t i = 0; i < s->listener_count; i++) {
        uv_stream_t *listener = (uv_stream_t *)s->listeners[i];
        if (!sl_conn_accept(s, listener, listener->type == UV_TCP))
            s->accept_retry = true;
    }
}

static void free_handle(uv_handle_t *h)
{
    free(h);
}

static int fail(uv_handle_t *h, const char *what, const char *where, const char *why)
{
    sl_log(SL_LOG_ERROR, what, "where", where, "error", why, NULL);
    if (h != NULL) uv_close(h, free_handle);
    return -1;
}

static int add(struct server *s, uv_stream_t *stream, const char *where)
{
    stream->data = s;
    int status = uv_listen(stream, BACKLOG, on_connection);
    if (status != 0)
        return fail((uv_handle_t *)stream,
                    status == UV_EADDRINUSE
                        ? "cannot listen: the port is in use; stop the other server, "
                          "or choose another --port"
                        : "cannot listen",
                    where, uv_strerror(status));
    s->listeners[s->listener_count++] = (uv_handle_t *)stream;
    return 0;
}

/* Set options that connections inherit from their listener. The server notices that a client has
 * vanished after about three times keep-alive. */
static void set_options(const struct server *s, const uv_tcp_t *tcp)
{
    uv_os_fd_t fd;
    int on = 1, seconds = (int)(s->settings->keep_alive_ms / 1000), probes = 10;
    int interval = 1 + seconds / 10;
    unsigned unacknowledged_ms = (unsigned)seconds * 3000u + 3000u;
    if (uv_fileno((const uv_handle_t *)tcp, &fd) != 0) return;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    if (s->settings->keep_alive_ms == 0) return;
    setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on);
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPINTVL, &interval, sizeof interval);
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPCNT, &probes, sizeof probes);
    setsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &unacknowledged_ms,
               sizeof unacknowledged_ms);
}

/* --- TCP ------------------------------------------------------------------ */

bool sl_parse_address(const char *text, int port, struct sockaddr_storage *out)
{
    if (strcmp(text, "*") == 0) text = "0.0.0.0";
    return uv_ip4_addr(text, port, (struct sockaddr_in *)out) == 0 ||
           uv_ip6_addr(text, port, (struct sockaddr_in6 *)out) == 0;
}

static bool is_loopback(const struct sockaddr_storage *a)
{
    static const struct in6_addr loopback = IN6ADDR_LOOPBACK_INIT;
    if (a->ss_family == AF_INET)
        return ntohl(((const struct sockaddr_in *)a)->sin_addr.s_addr) >> 24 == 127;
    return memcmp(&((const struct sockaddr_in6 *)a)->sin6_addr, &loopback,
                  sizeof loopback) == 0;
}

int sl_got_port(const uv_tcp_t *tcp)
{
    struct sockaddr_storage a;
    int n = sizeof a;
    if (uv_tcp_getsockname(tcp, (struct sockaddr *)&a, &n) != 0) return 0;
    return ntohs(a.ss_family == AF_INET ? ((struct sockaddr_in *)&a)->sin_port
                                        : ((struct sockaddr_in6 *)&a)->sin6_port);
}

static int listen_tcp(void *arg, const char *address)
{
    struct server *s = arg;
    bool optional = *address == '-';
    struct sockaddr_storage a = {0};
    char where[128];
    if (optional) address++;
    /* sl_listen_check() has validated the address. */
    sl_parse_address(address, s->port, &a);
    uv_tcp_t *tcp = calloc(1, sizeof *tcp);
    if (tcp == NULL || uv_tcp_init(s->loop, tcp) != 0) abort();
    unsigned flags = a.ss_family == AF_INET6 ? UV_TCP_IPV6ONLY : 0;
    int status = uv_tcp_bind(tcp, (const struct sockaddr *)&a, flags);
    snprintf(where, sizeof where, a.ss_family == AF_INET6 ? "[%s]:%d" : "%s:%d",
             address, s->port);
    set_options(s, tcp);
    if (status != 0 && optional) {
        uv_close((uv_handle_t *)tcp, free_handle);
        return 0;
    }
    if (status != 0)
        return fail((uv_handle_t *)tcp, "cannot bind", where, uv_strerror(status));
    if (optional) {
        /* The port may be in use on this address only. */
        tcp->data = s;
        if (uv_listen((uv_stream_t *)tcp, BACKLOG, on_connection) != 0) {
            uv_close((uv_handle_t *)tcp, free_handle);
            return 0;
        }
        s->listeners[s->listener_count++] = (uv_handle_t *)tcp;
    } else if (add(s, (uv_stream_t *)tcp, where) != 0) return -1;
    s->port = sl_got_port(tcp);
    return 0;
}

static int check_address(void *arg, const char *address)
{
    const struct sl_settings *set = arg;
    struct sockaddr_storage a = {0};
    if (*address == '-') address++;
    if (!sl_parse_address(address, 0, &a))
        return fail(NULL, "bind: invalid address", address,
                    "use an IP address, such as 127.0.0.1");
    if (!is_loopback(&a) && *set->password == '\0')
        return fail(NULL,
                    "bind: to accept connections from other machines, set a password "
                    "(--password-file), or bind to 127.0.0.1",
                    address, "no password");
    if (!is_loopback(&a) && strlen(set->password) < PASSWORD_BYTES_MIN)
        return fail(NULL,
                    "bind: to accept connections from other machines, set a password "
                    "of at least 8 bytes (--password-file), or bind to 127.0.0.1",
                    address, "the password is too short");
    return 0;
}

/* Check an address for nodes. Any address is safe, because nodes prove that they know the
 * secret. */
static int check_node_address(void *unused, const char *address)
{
    struct sockaddr_storage a = {0};
    (void)unused;
    if (*address == '-') address++;
    if (!sl_parse_address(address, 0, &a))
        return fail(NULL, "node-bind: invalid address", address,
                    "use an IP address, such as 127.0.0.1");
    return 0;
}

int sl_each_address(const char *bind_list, void *arg,
                    int (*what)(void *arg, const char *address))
{
    char *list = strdup(bind_list), *rest = list, *address;
    int status = list == NULL ? -1 : 0, n = 0;
    while (status == 0 && (address = strsep(&rest, ", ")) != NULL) {
        if (*address == '\0') continue;
        if (++n == SL_LISTENERS_MAX)
            status = fail(NULL, "bind: too many addresses", address, "the limit is 15");
        else status = what(arg, address);
    }
    free(list);
    if (status == 0 && n == 0)
        return fail(NULL, "bind: the list of addresses is empty", bind_list,
                    "use an IP address, such as 127.0.0.1");
    return status;
}

static int listen_all_tcp(struct server *s)
{
    s->port = s->settings->port == SL_PORT_AUTO ? 0 : (int)s->settings->port;
    return sl_each_address(s->settings->bind, s, listen_tcp);
}

int sl_listen_check(struct sl_settings *set)
{
    if (set->port != 0 && sl_each_address(set->bind, set, check_address) != 0)
        return -1;
    if (set->node != 0) return sl_each_address(set->node_bind, set, check_node_address);
    return 0;
}

/* --- Unix socket ---------------------------------------------------------- */

/* Whether a server answers on this socket. If not, the file is left over from a server that
 * crashed. */
static bool answers(const struct sockaddr_un *a)
{
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0) return true;
    bool yes = connect(fd, (const struct sockaddr *)a, sizeof *a) == 0 ||
               errno == EAGAIN;
    close(fd);
    return yes;
}

static int make_way(const char *path, const struct sockaddr_un *a)
{
    struct stat st;
    if (lstat(path, &st) != 0) return 0;
    if (!S_ISSOCK(st.st_mode))
        return fail(NULL, "socket: a file that is not a socket has this path", path,
                    "choose another path");
    if (answers(a))
        return fail(NULL, "socket: another server listens on this path", path,
                    "stop it, or choose another path");
    if (unlink(path) != 0)
        return fail(NULL, "socket: cannot remove the old socket", path,
                    strerror(errno));
    return 0;
}

static int listen_unix(struct server *s)
{
    const char *path = s->settings->socket;
    struct sockaddr_un a = {.sun_family = AF_UNIX};
    if (strlen(path) >= sizeof a.sun_path)
        return fail(NULL, "socket: the path is too long", path,
                    "the limit is 107 bytes");
    strcpy(a.sun_path, path);
    if (make_way(path, &a) != 0) return -1;
    uv_pipe_t *pipe = calloc(1, sizeof *pipe);
    if (pipe == NULL || uv_pipe_init(s->loop, pipe, 0) != 0) abort();
    /* The umask gives the socket its mode at creation. */
    mode_t before = umask((mode_t)(0777 & ~s->settings->socket_mode));
    int status = uv_pipe_bind(pipe, path);
    umask(before);
    if (status != 0) /* libuv reports EACCES if the directory does not exist. */
        return fail((uv_handle_t *)pipe,
                    "socket: cannot create the socket; check that its directory exists",
                    path, uv_strerror(status));
    return add(s, (uv_stream_t *)pipe, path);
}

/* --- TCP and Unix socket -------------------------------------------------- */

int sl_server_listen(struct server *s)
{
    if (s->settings->port != 0 && listen_all_tcp(s) != 0) return -1;
    if (*s->settings->socket != '\0' && listen_unix(s) != 0) return -1;
    return 0;
}

void sl_server_stop_listening(struct server *s)
{
    for (size_t i = 0; i < s->listener_count; i++)
        uv_close(s->listeners[i], free_handle);
    s->listener_count = 0;
}

void sl_listen_log_tcp(const char *what, const uv_tcp_t *tcp)
{
    char ip[INET6_ADDRSTRLEN], text[128];
    struct sockaddr_storage a = {0};
    int n = sizeof a;
    if (uv_tcp_getsockname(tcp, (struct sockaddr *)&a, &n) != 0) return;
    bool v6 = a.ss_family == AF_INET6;
    if (v6) uv_ip6_name((const struct sockaddr_in6 *)&a, ip, sizeof ip);
    else uv_ip4_name((const struct sockaddr_in *)&a, ip, sizeof ip);
    snprintf(text, sizeof text, v6 ? "%s [%s]:%d" : "%s %s:%d", what, ip,
             sl_got_port(tcp));
    sl_log(SL_LOG_INFO, text, NULL);
}

void sl_server_log_listening(const struct server *s)
{
    for (size_t i = 0; i < s->listener_count; i++) {
        if (s->listeners[i]->type == UV_TCP)
            sl_listen_log_tcp("listening on", (const uv_tcp_t *)s->listeners[i]);
        else
            sl_log(SL_LOG_INFO, "listening on a unix socket", "path",
                   s->settings->socket, NULL);
    }
}
