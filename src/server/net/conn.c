#include "server/net/conn.h"

#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "server/arbiter/arbiter.h"
#include "server/command/dispatch.h"
#include "server/forward/proxy.h"
#include "server/net/auth.h"
#include "server/observe/log.h"

#define SPARE_BYTES_MAX 65536u /* Larger buffers are not kept. */
#define OUT_BYTES_HIGH 65536u  /* So much is sent before more is made. */
#define HANG_UP_MS 5000        /* So long we try to send our last words. */
#define READ_BYTES 16384u      /* The size of one read. */
#define SHARE 64u              /* Commands at a time, of one connection of many; */
#define SHARE_ALONE 256u       /* of one that does not keep another from its share; */
#define PROMPT_MIN 16u         /* and at least, of one that sends little. */

/* --- Sessions ------------------------------------------------------------- */

int sl_conn_begin_session(struct conn *c, struct session **old)
{
    struct server *s = c->server;
    struct session *n = calloc(1, sizeof *n);
    if (n == NULL || sl_index_reserve(&s->by_id) != SLUICE_OK) {
        free(n);
        return SLUICE_ENOMEM;
    }
    sl_session_begin(&n->s, ++s->last_id, 0);
    sl_list_init(&n->lingering);
    sl_index_put(&s->by_id, n, s->by_id.kind->hash(n, &s->by_id));
    n->conn = c;
    *old = c->session;
    if (c->session != NULL) {
#ifndef MUT_TXRESET
        sl_arbiters_leave(c, SL_SAID_BYE);
#endif
        c->session->conn = NULL;
        sl_table_session_end(s->table, &c->session->s);
    }
    c->session = n;
    return SLUICE_OK;
}

#define ADRIFT_MS 2000 /* So long a link between nodes may be down, at least. */

static sl_ms linger_of(const struct conn *c)
{
    sl_ms ms = c->server->settings->linger_ms;
    return c->proxy != NULL && c->proxy->adrift && ms < ADRIFT_MS ? ADRIFT_MS : ms;
}

/* In the order in which they end. */
static void linger(struct server *s, struct session *n)
{
    struct sl_list *at = s->lingering.prev;
    while (at != &s->lingering &&
           sl_container_of(at, struct session, lingering)->linger_end_ms >
               n->linger_end_ms)
        at = at->prev;
    sl_list_append(at->next, &n->lingering);
}

static void part(struct conn *c, enum sl_parting how)
{
    struct server *s = c->server;
    struct session *old = c->session;
    sl_request_withdraw_all(c);
#ifndef MUT_TXLEAVE
    sl_arbiters_leave(c, how);
#endif
    old->conn = NULL;
#ifdef MUT_LINGER
    how = SL_SAID_BYE;
#endif
    sl_ms linger_ms = linger_of(c);
    if (how == SL_SAID_BYE || linger_ms == 0 || !sl_session_holds(&old->s)) {
        sl_table_session_end(s->table, &old->s);
        return;
    }
    old->linger_end_ms = s->now.ms + linger_ms + 1; /* Not early for rounding. */
    linger(s, old);
}

/* --- Life ----------------------------------------------------------------- */

static void free_conn(struct conn *c)
{
    sl_resp_reader_free(c->reader);
    sl_resp_writer_free(&c->out);
    free(c->sending);
    free(c->proxy);
    free(c->tx);
    sl_forward_free_session(c);
    free(c);
}

static void on_closed(uv_handle_t *handle)
{
    free_conn(handle->data);
}

static size_t output_max(const struct server *s)
{
#ifdef MUT_OUTPUT
    (void)s;
    return SIZE_MAX;
#else
    return (size_t)s->settings->output_bytes_max;
#endif
}

static struct conn *new_conn(struct server *s)
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
    sl_list_init(&c->subscriptions);
    sl_list_init(&c->requests);
    sl_resp_writer_init(&c->out, output_max(s));
    return c;
}

static struct conn *new_near(struct server *s, bool tcp)
{
    struct conn *c = new_conn(s);
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

struct conn *sl_conn_new_proxy(struct server *s, struct sl_proxy *proxy)
{
    struct session *old;
    struct conn *c = new_conn(s);
    if (c == NULL) return NULL;
    /* Something for the loop to close, so that it is freed when nobody has it any more. */
    uv_timer_init(s->loop, &c->uv.timer);
    c->uv.handle.data = c;
    c->authed = true; /* By its node. */
    if (sl_conn_begin_session(c, &old) != SLUICE_OK) {
        c->closing = true;
        uv_close(&c->uv.handle, on_closed);
        return NULL;
    }
    c->proxy = proxy;
    sl_list_append(&s->conns, &c->all);
    return c;
}

/* Not all connections are asked at the same moment whether they are there, nor in the same
 * rhythm: a machine drops what comes to it by the thousand at once, and would drop the same
 * ones again and again. */
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

/* If there is no memory to watch it, the connection is closed. */
static void read_or_not(struct conn *c, bool read)
{
    if (c->closing || c->reading == read || c->proxy != NULL) return;
    if (!sl_input_watch(c, read)) sl_conn_close(c, SL_WAS_CUT);
}

/* One too many: it is told so, and closed. */
static void turn_away(struct conn *c)
{
    static struct sl_log_kind kind;
    struct server *s = c->server;
    s->stats.rejected++;
    sl_log_often(&kind, s->now.ms, SL_LOG_WARN,
                 "turned a connection away: connections-max are open", NULL);
    sl_resp_problem(sl_conn_out(c), "LIMIT",
                    "there are as many connections as the server takes "
                    "(connections-max)");
    sl_conn_hang_up(c, SL_SAID_BYE);
}

static size_t connections_max(const struct server *s)
{
    return (size_t)s->settings->connections_max;
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
    return true; /* A unix socket. */
}

#define IDLE_MS 1000 /* Idle time after which a new connection may replace this one. */

/* The oldest one that has not authenticated, if it had time to. */
static struct conn *unauthed(const struct server *s)
{
    struct conn *oldest = sl_container_of(s->unauthed.next, struct conn, unauthed);
#ifdef MUT_UNAUTHED
    return NULL;
#endif
    if (sl_list_empty(&s->unauthed) || s->now.ms - oldest->unauthed_ms < IDLE_MS)
        return NULL;
    return oldest;
}

/* One connection from this machine is accepted above connections-max, for an administrator.
 * A new one replaces it if it is idle. */
static bool take_reserve(struct conn *c)
{
    struct server *s = c->server;
    if (!sl_conn_is_local(c)) return false;
#ifndef MUT_RESERVEKEPT
    if (s->reserved != NULL && s->now.ms - s->reserved->heard_ms >= IDLE_MS)
        sl_conn_close(s->reserved, SL_WAS_CUT);
#endif
    if (s->reserved != NULL || s->conn_count > connections_max(s) + 1) return false;
    s->reserved = c;
    return true;
}

/* connections-max are open besides this one. Clients that have not authenticated make way,
 * so that they cannot keep others out. */
static bool make_place(struct conn *c)
{
    struct server *s = c->server;
    /* Others have closed since: it is one of connections-max now. */
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
    struct conn *c = new_near(s, tcp);
    if (c == NULL) {
        sl_log_often(&kind, s->now.ms, SL_LOG_ERROR,
                     "out of memory: somebody waits to be let in", NULL);
        return false;
    }
    if (uv_accept(listener, &c->uv.stream) != 0 || /* Nobody is there, say. */
        sl_conn_begin_session(c, &old) != SLUICE_OK) {
        c->closing = true;
        uv_close(&c->uv.handle, on_closed);
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
    if (s->conn_count <= connections_max(s) || make_place(c)) read_or_not(c, true);
    else turn_away(c);
    return true;
}

void sl_conn_close(struct conn *c, enum sl_parting how)
{
    if (c->closing) return;
    c->closing = true;
    sl_pubsub_drop_all(&c->server->pubsub, c);
    part(c, how);
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
    read_or_not(c, false);
    sl_conn_out(c); /* So that it is looked at when this callback ends. */
}

enum sl_parting sl_conn_hung_up(const struct conn *c)
{
    struct pollfd p = {.fd = c->fd, .events = POLLRDHUP};
    if (c->proxy != NULL) return SL_STAYS; /* Its node knows. */
    if (poll(&p, 1, 0) <= 0) return SL_STAYS;
    if ((p.revents & POLLERR) != 0) return SL_WAS_CUT;
    return (p.revents & (POLLRDHUP | POLLHUP)) != 0 ? SL_SAID_BYE : SL_STAYS;
}

/* --- In ------------------------------------------------------------------- */

#define EARLY_ROOM_BYTES 512u /* Of one read before AUTH. */
#define LOOK_BYTES 16384u     /* Check the memory after this many more bytes. */

static size_t smaller(int64_t a, int64_t b)
{
    return (size_t)(a < b ? a : b);
}

void sl_conn_setup(struct server *s)
{
    const struct sl_settings *set = s->settings;
    s->limits = (struct sl_resp_limits){
        .args_max = (size_t)set->args_max,
        .bulk_bytes_max = (size_t)set->argument_bytes_max,
        .command_bytes_max = (size_t)set->command_bytes_max,
        .inline_bytes_max = (size_t)set->command_bytes_max,
    };
    s->early_limits = (struct sl_resp_limits){
        .args_max = smaller(set->auth_args_max, set->args_max),
        .bulk_bytes_max = smaller(set->auth_bytes_max, set->argument_bytes_max),
        .command_bytes_max = smaller(set->auth_bytes_max, set->command_bytes_max),
        .inline_bytes_max = smaller(set->auth_bytes_max, set->command_bytes_max),
        .room_bytes = EARLY_ROOM_BYTES,
        .before_auth = true,
    };
#ifdef MUT_EARLYLIMITS
    s->early_limits = s->limits;
#endif
}

static const struct sl_resp_limits *limits_of(const struct conn *c)
{
    return c->authed ? &c->server->limits : &c->server->early_limits;
}

/* A client that has not authenticated gets a small reader of its own: the spare one may
 * be large. */
static struct sl_resp_reader *get_reader(struct conn *c)
{
    struct server *s = c->server;
    struct sl_resp_reader *r = s->spare_reader;
    if (r == NULL || !c->authed) return sl_resp_reader_new(limits_of(c));
    s->spare_reader = NULL;
    return r;
}

void sl_conn_authed(struct conn *c, bool yes)
{
    /* RESET does not give more time to a client that had not authenticated. */
#ifndef MUT_RESETAUTH
    if (c->authed && !yes)
#endif
        c->unauthed_ms = c->server->now.ms;
    c->authed = yes;
    if (yes) sl_list_remove(&c->unauthed);
    else if (sl_list_empty(&c->unauthed))
        sl_list_append(&c->server->unauthed, &c->unauthed);
    if (c->reader != NULL) sl_resp_reader_limit(c->reader, limits_of(c));
}

/* Where to put what comes, and how much of it; 0: out of memory. */
static size_t find_room(struct conn *c, char **at)
{
    if (c->reader == NULL) c->reader = get_reader(c);
    return c->reader == NULL ? 0 : sl_resp_room(c->reader, at);
}

/* Count the connection's buffers for the server. Most connections have none between turns. */
static inline void count_buffers(struct conn *c)
{
    struct server *s = c->server;
    size_t bytes = c->sending != NULL ? c->sending_bytes + c->out.size : 0;
    if (c->reader != NULL) bytes += sl_resp_reader_bytes(c->reader);
    if (bytes == c->counted_bytes) return;
    s->memory_due |= bytes > c->counted_bytes + LOOK_BYTES;
    s->buffer_bytes += bytes - c->counted_bytes;
    c->counted_bytes = bytes;
}

bool sl_conn_feed(struct conn *c, struct sl_bytes b)
{
    c->server->inputs++;
    while (b.n > 0) {
        char *at;
        size_t room = find_room(c, &at);
        if (room == 0) return false;
        size_t n = b.n < room ? b.n : room;
        memcpy(at, b.at, n);
        sl_resp_filled(c->reader, n);
        b = (struct sl_bytes){b.at + n, b.n - n};
    }
    return true;
}

/* A reader with nothing in it goes back to the server. */
static void give_reader_back(struct conn *c)
{
    struct server *s = c->server;
    if (c->reader == NULL || sl_resp_unread(c->reader) > 0) return;
    bool good = sl_resp_error(c->reader) == NULL; /* A broken one stays broken. */
    if (good && c->authed && s->spare_reader == NULL &&
        sl_resp_reader_bytes(c->reader) <= 2 * SPARE_BYTES_MAX)
        s->spare_reader = c->reader;
    else sl_resp_reader_free(c->reader);
    c->reader = NULL;
}

static void broken(struct conn *c, int status)
{
    static struct sl_log_kind kind;
    char address[80];
    const char *error = status == SLUICE_ENOMEM ? "out of memory"
                                                : sl_resp_error(c->reader);
    sl_conn_address(c, address, sizeof address);
    sl_log_often(&kind, c->server->now.ms, SL_LOG_WARN, "hung up: broken stream",
                 "address", address, "error", error, NULL);
    sl_resp_problem(sl_conn_out(c), status == SLUICE_ETOOBIG ? "TOOBIG" : "ERR", error);
    sl_conn_hang_up(c, SL_WAS_CUT);
}

/* It has more to say than there is time for in this turn. */
static void later(struct conn *c)
{
    if (sl_list_empty(&c->ready)) sl_list_append(&c->server->ready, &c->ready);
    sl_server_go_on(c->server);
}

static bool may_act(const struct conn *c)
{
    return !c->closing && c->hang_up == SL_STAYS && c->leaves == SL_STAYS &&
           sl_list_empty(&c->requests) && c->sending == NULL;
}

/* Charge reads and writes to the turn as well. */
static void charge(struct server *s, size_t bytes)
{
#ifdef MUT_FLATCOST
    bytes = 0;
#endif
    if (bytes >= SL_STEPS_A_COMMAND) sl_server_spend(s, bytes);
}

/* How much a connection may do at a time: less while others have sent too much as well. */
static uint32_t share_of_commands(const struct server *s)
{
    uint32_t share = sl_list_empty(&s->ready) ? SHARE_ALONE : SHARE;
#ifdef MUT_SHARE
    share = s->commands_left;
#endif
    return share < s->commands_left ? share : s->commands_left;
}

void sl_conn_work(struct conn *c)
{
    struct sl_args args;
    uint32_t stop = c->server->commands_left - share_of_commands(c->server);
    while (c->reader != NULL && may_act(c)) {
        if (c->server->commands_left <= stop) {
            if (sl_resp_unread(c->reader) > 0) later(c);
            break;
        }
        size_t written = c->out.n;
        int status = sl_resp_next(c->reader, &args);
        if (status == 0) break;
        if (--c->server->commands_left % 32 == 0 && sl_server_turn_is_long(c->server))
            c->server->commands_left = 0; /* After this one. */
        if (status < 0) broken(c, status);
        else sl_dispatch(c, &args);
        if (c->proxy != NULL) c->proxy->ran = true;
        if (c->out.n > written) charge(c->server, c->out.n - written);
        if (c->out.n > OUT_BYTES_HIGH) sl_conn_flush(c);
    }
    if (c->closing) return;
    if (c->ended && sl_list_empty(&c->ready) && !sl_request_all_brief(c))
        sl_conn_hang_up(c, SL_SAID_BYE);
    give_reader_back(c);
    count_buffers(c);
    read_or_not(c, c->hang_up == SL_STAYS && c->leaves == SL_STAYS &&
                       c->sending == NULL && !c->ended &&
                       (c->reading || sl_list_empty(&c->ready)) &&
                       (c->reader == NULL ||
                        sl_resp_unread(c->reader) <= limits_of(c)->command_bytes_max));
}

/* It waits for something that will be done soon, even if the client closes its side. */
static bool has_more_to_do(const struct conn *c)
{
    return !sl_list_empty(&c->ready) || sl_request_all_brief(c);
}

/* Close it now or in a later turn, since thousands may close at once. Until it is closed, the
 * server grants it nothing. */
static void close_in_turn(struct conn *c, enum sl_parting how)
{
    struct server *s = c->server;
#ifdef MUT_CLOSES
    s->closes_left = 1;
#endif
    if (s->closes_left > 0) {
        s->closes_left--;
        sl_conn_close(c, how);
    } else if (c->leaves == SL_STAYS) {
        c->leaves = how;
        read_or_not(c, false);
        sl_list_append(&s->leaving, &c->leaving);
        sl_server_go_on(s);
    }
}

static void end_of_stream(struct conn *c, bool proper)
{
    if (proper && has_more_to_do(c)) {
        c->ended = true; /* First run the commands that it sent. */
        read_or_not(c, false);
    } else close_in_turn(c, proper ? SL_SAID_BYE : SL_WAS_CUT);
}

void sl_conn_close_leaving(struct server *s)
{
    while (s->closes_left > 0 && !sl_list_empty(&s->leaving)) {
        struct conn *c = sl_container_of(s->leaving.next, struct conn, leaving);
        s->closes_left--;
        sl_conn_close(c, c->leaves);
    }
}

static void read_some(struct conn *c)
{
    struct server *s = c->server;
    char *at;
    size_t room = find_room(c, &at);
    ssize_t n = room == 0 ? -1
                          : recv(c->fd, at, room < READ_BYTES ? room : READ_BYTES, 0);
    s->stats.reads++;
    s->inputs++;
    if (n > 0) {
        c->heard_ms = s->now.ms;
        sl_resp_filled(c->reader, (size_t)n);
        charge(s, (size_t)n);
        sl_conn_work(c);
    } else if (n == 0) end_of_stream(c, true);
    else if (room > 0 && (errno == EAGAIN || errno == EINTR)) give_reader_back(c);
    else end_of_stream(c, false);
}

/* A connection is slow while it leaves something behind each time we read from it. */
static void classify(struct conn *c)
{
    bool was_busy = c->busy;
    c->busy = c->reader != NULL;
#ifndef MUT_PROMPT
    if (c->busy == was_busy && c->input_class != (c->busy ? SL_SLOW : SL_PROMPT) &&
        !sl_input_move(c, c->busy ? SL_SLOW : SL_PROMPT))
        sl_conn_close(c, SL_WAS_CUT);
#else
    (void)was_busy;
#endif
}

void sl_conn_has_input(struct conn *c, bool ended)
{
    struct server *s = c->server;
    sl_server_read_clock(s);
    if (!sl_list_empty(&c->ready)) {
        read_or_not(c, false); /* First run the commands that it sent. */
        return;
    }
    if (ended && s->closes_left == 0 && c->input_class == SL_PROMPT) {
        if (!sl_input_move(c, SL_SLOW)) sl_conn_close(c, SL_WAS_CUT);
        return; /* Thousands may close at once: serve other clients first. */
    }
    if (c->input_class == SL_PROMPT && s->commands_left < PROMPT_MIN)
        s->commands_left = PROMPT_MIN;
    read_some(c);
    if (!c->closing) classify(c);
    sl_server_settle(s);
}

void sl_conn_unblock(struct conn *c)
{
    c->heard_ms = c->server->now.ms;
    if (c->reader != NULL || c->ended) later(c);
}

/* --- Out ------------------------------------------------------------------ */

struct sl_resp_writer *sl_conn_out(struct conn *c)
{
    struct server *s = c->server;
    if (c->out.buffer == NULL && s->spare_buffer != NULL) {
        c->out.buffer = s->spare_buffer;
        c->out.size = s->spare_size;
        s->spare_buffer = NULL;
    }
    if (sl_list_empty(&c->dirty) && !c->closing) sl_list_append(&s->dirty, &c->dirty);
    return &c->out;
}

static void give_buffer_back(struct conn *c)
{
    struct server *s = c->server;
    size_t size = c->out.size, n;
    char *buffer = sl_resp_take(&c->out, &n);
    if (s->spare_buffer == NULL && size <= SPARE_BYTES_MAX) {
        s->spare_buffer = buffer;
        s->spare_size = size;
    } else free(buffer);
}

static void on_written(uv_write_t *req, int status)
{
    struct conn *c = req->data;
    free(c->sending);
    c->sending = NULL;
    c->sending_bytes = 0;
    c->out.bytes_max = output_max(c->server);
    if (c->closing) return;
    count_buffers(c);
    sl_server_read_clock(c->server);
    if (status < 0) sl_conn_close(c, SL_WAS_CUT);
    else {
        sl_conn_flush(c);
        if (!c->closing) later(c);
    }
    sl_server_settle(c->server);
}

/* What the socket did not take now. */
static void send_rest(struct conn *c, size_t done)
{
    size_t n;
    char *all = sl_resp_take(&c->out, &n), *rest = NULL;
    c->sending_bytes = n - done;
    /* The part that was sent is not kept: a client that does not read would make the server
     * keep megabytes for a few bytes that are counted. */
    memmove(all, all + done, c->sending_bytes);
#ifndef MUT_SENTKEPT
    rest = realloc(all, c->sending_bytes);
#endif
    c->sending = rest != NULL ? rest : all;
    c->out.bytes_max -= c->sending_bytes;
    count_buffers(c);
    c->write.data = c;
    uv_buf_t buf = {.base = c->sending, .len = c->sending_bytes};
    if (uv_write(&c->write, &c->uv.stream, &buf, 1, on_written) != 0)
        sl_conn_close(c, SL_WAS_CUT);
}

static void too_much(struct conn *c)
{
    static struct sl_log_kind kind;
    char address[80];
    c->server->stats.output_closes++;
    sl_conn_address(c, address, sizeof address);
    sl_log_often(&kind, c->server->now.ms, SL_LOG_WARN,
                 "hung up: output is not read (output-bytes-max)", "address", address,
                 NULL);
    sl_conn_close(c, SL_WAS_CUT);
}

void sl_conn_flush(struct conn *c)
{
    sl_list_remove(&c->dirty);
    if (c->closing) return;
    if (c->out.spilt) {
        too_much(c);
        return;
    }
    if (c->sending != NULL) { /* It is looked at again when that is done. */
        count_buffers(c);
        return;
    }
    if (c->proxy != NULL) {
        sl_proxy_flush(c);
        if (c->hang_up != SL_STAYS) sl_conn_close(c, c->hang_up);
        return;
    }
    if (c->out.n > 0) {
        uv_buf_t buf = {.base = c->out.buffer, .len = c->out.n};
        int n = uv_try_write(&c->uv.stream, &buf, 1);
        if (n < 0 && n != UV_EAGAIN) {
            sl_conn_close(c, c->hang_up != SL_STAYS ? c->hang_up : SL_WAS_CUT);
            return;
        }
        if (n < 0) n = 0;
        if ((size_t)n < c->out.n) send_rest(c, (size_t)n);
        else give_buffer_back(c);
    } else if (c->out.buffer != NULL) give_buffer_back(c);
    if (c->hang_up != SL_STAYS && c->sending == NULL) sl_conn_close(c, c->hang_up);
}

bool sl_conn_gives_back(struct conn *c)
{
    char byte;
    if (c->leaves == SL_SAID_BYE) return true;
    if (!c->left || c->closing) return false;
    ssize_t n = recv(c->fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT);
    if (n < 0) return false; /* It is broken: what it holds stays for a while. */
    if (n == 0 && !has_more_to_do(c)) {
        sl_conn_close(c, SL_SAID_BYE);
        return true;
    }
    /* What it sent before comes first, if it is being looked at. */
    return c->reading || !sl_list_empty(&c->ready);
}

/* --- Those that are silent, or do not go ---------------------------------- */

static bool is_idle(const struct conn *c, const struct sl_settings *set, sl_ms now_ms)
{
    if (set->idle_ms == 0 || now_ms - c->heard_ms < set->idle_ms) return false;
    if (!sl_list_empty(&c->requests) || c->channel_count + c->pattern_count > 0)
        return false;
#ifndef MUT_IDLE
    if (sl_session_holds(&c->session->s) || sl_forward_holds_unleased(c)) return false;
#endif
    return true;
}

static void look_after(struct conn *c)
{
    static struct sl_log_kind kind;
    struct server *s = c->server;
    const struct sl_settings *set = s->settings;
    if (c->proxy != NULL || c->leaves != SL_STAYS) return; /* Its node does; it goes. */
    bool mute = !c->authed && set->auth_ms > 0 &&
                s->now.ms - c->unauthed_ms >= set->auth_ms;
    if (c->hang_up != SL_STAYS) {
        if (s->now.ms - c->hang_up_ms >= HANG_UP_MS) close_in_turn(c, c->hang_up);
    } else if (mute || is_idle(c, set, s->now.ms)) {
        s->stats.idle_closes++;
        sl_log_often(&kind, s->now.ms, SL_LOG_INFO,
                     mute ? "hung up: no password in time (auth-time)"
                          : "hung up: idle (idle-time)",
                     NULL);
        close_in_turn(c, SL_WAS_CUT);
    } else if (!sl_list_empty(&c->requests) && !c->reading && !c->ended) {
        /* Its end may stand behind more than we read while it waits. */
        enum sl_parting how = sl_conn_hung_up(c);
        if (how != SL_STAYS) close_in_turn(c, how);
    }
}

void sl_conn_check_all(struct server *s)
{
    struct sl_list *next;
    for (struct sl_list *n = s->conns.next; n != &s->conns; n = next) {
        next = n->next;
        look_after(sl_container_of(n, struct conn, all));
    }
}

/* --- Ask ------------------------------------------------------------------ */

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
    if (c->proxy != NULL) snprintf(out, n, "node %u", c->proxy->node);
    else if (!sl_address_text(&c->peer, out, n))
        snprintf(out, n, "%s", c->server->settings->socket);
}
