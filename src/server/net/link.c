/* link.c - one link between two nodes: reads and writes its messages, and closes it. */
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "server/net/conn.h"
#include "server/net/links_internal.h"
#include "server/net/node_wire.h"
#include "sluice.h"

/* Large enough for every message of another node, whatever its settings: for a key, a value and a
 * note of the maximum length that the settings allow. */
#define ARGUMENT_BYTES_MAX 65536u
#define FRAME_BYTES_MAX (4 * ARGUMENT_BYTES_MAX)
#define ARGUMENTS_MAX 64u
#define BUFFER_KEPT 65536u

/* --- Creating and closing a link ------------------------------------------ */

static void on_closed(uv_handle_t *handle)
{
    struct link *k = handle->data;
    sl_resp_reader_free(k->reader);
    sl_resp_writer_free(&k->out);
    free(k->sending);
    free(k);
}

static size_t output_max(const struct server *s)
{
    size_t set = (size_t)s->settings->output_bytes_max;
    set += s->links->handler->frame_bytes(s);
    /* The limit must fit at least one message. */
    return set > FRAME_BYTES_MAX ? set : FRAME_BYTES_MAX;
}

static struct sl_resp_reader *new_reader(void)
{
    const struct sl_resp_limits limits = {
        .args_max = ARGUMENTS_MAX,
        .bulk_bytes_max = ARGUMENT_BYTES_MAX,
        .command_bytes_max = FRAME_BYTES_MAX,
        .inline_bytes_max = 0, /* Inline commands are only for people at a terminal. */
    };
    return sl_resp_reader_new(&limits);
}

static struct link *new_link(struct server *s, enum sl_link_role role,
                             enum sl_link_phase phase)
{
    struct link *k = calloc(1, sizeof *k);
    struct sl_resp_reader *reader = k == NULL ? NULL : new_reader();
    if (reader == NULL || uv_tcp_init(s->loop, &k->uv.tcp) != 0) {
        sl_resp_reader_free(reader);
        free(k);
        return NULL;
    }
    k->server = s;
    k->role = role;
    k->phase = phase;
    k->reader = reader;
    k->since_ms = k->heard_ms = s->now.ms;
    sl_resp_writer_init(&k->out, output_max(s));
    sl_list_init(&k->dirty);
    sl_list_append(&s->links->all, &k->all);
    k->uv.handle.data = k->connect.data = k->write.data = k;
    if (role == SL_CALLEE) s->links->strangers++;
    sl_links_wake_by(s->links, s->now.ms + SL_LINK_HANDSHAKE_MS);
    return k;
}

void sl_link_close(struct link *k, const char *why)
{
    struct sl_links *l = k->server->links;
    if (k->closing) return;
    k->closing = true;
    if (k->role == SL_CALLEE && !k->known) l->strangers--;
    sl_list_remove(&k->all);
    sl_list_remove(&k->dirty);
    uv_close(&k->uv.handle, on_closed);
    sl_links_closed(k, why);
}

void sl_link_close_later(struct link *k, const char *why)
{
    if (k->closing || k->close_why != NULL) return;
    snprintf(k->why, sizeof k->why, "%s", why);
    k->close_why = k->why;
    sl_list_remove(&k->dirty);
    sl_links_wake_by(k->server->links, k->server->now.ms);
}

bool sl_link_has_input(const struct link *k)
{
    struct pollfd p = {.events = POLLIN};
    return uv_fileno(&k->uv.handle, &p.fd) == 0 && poll(&p, 1, 0) > 0;
}

/* --- Input ---------------------------------------------------------------- */

static void on_alloc(uv_handle_t *handle, size_t n, uv_buf_t *buf)
{
    struct link *k = handle->data;
    (void)n;
    *buf = uv_buf_init(NULL, 0);
    buf->len = sl_resp_room(k->reader, &buf->base);
}

static void take_command(struct link *k, const struct sl_args *args)
{
    static struct sl_log_kind kind;
    struct server *s = k->server;
    const struct sl_link_handler *handler = s->links->handler;
    struct sl_message m;
    if (sl_link_is_refusal(args)) sl_link_refused(k, args);
    else if (handler->is_frame(s, args)) {
        if (!k->replaced) handler->frame(s, k->id, args);
    } else if (sl_message_read(&m, args->at, args->n)) {
        if (!k->talks && !k->replaced) sl_links_talks(k);
        k->talks = true;
        handler->message(s, k->id, &m);
        /* Drop the unknown message. A newer version may have more kinds of messages. */
    } else {
        char node[16], name[24];
        snprintf(node, sizeof node, "%u", k->id);
        snprintf(name, sizeof name, "%.*s",
                 (int)(args->at[0].n < 20 ? args->at[0].n : 20), args->at[0].at);
        s->links->counts.unread++;
        sl_log_often(&kind, s->now.ms, SL_LOG_WARN,
                     "a node sent an invalid message, which is ignored", "node", node,
                     "begins", name, NULL);
    }
}

static void work(struct link *k)
{
    struct sl_args args;
    int status = 0;
    while (!k->closing && k->close_why == NULL &&
           (status = sl_resp_next(k->reader, &args)) == 1) {
        if (k->phase == SL_LINK_UP) take_command(k, &args);
        else sl_link_shake(k, &args);
    }
    if (k->closing || k->close_why != NULL) return;
    if (status < 0)
        sl_link_close(k, status == SLUICE_ENOMEM ? "out of memory"
                                                 : sl_resp_error(k->reader));
    else if (!k->known && k->came > SL_LINK_STRANGER_BYTES)
        sl_link_close(k, "the other side sent too much before it authenticated");
}

static void on_read(uv_stream_t *stream, ssize_t n, const uv_buf_t *buf)
{
    struct link *k = stream->data;
    struct server *s = k->server;
    (void)buf;
    if (k->closing) return;
    sl_server_read_clock(s);
    if (n > 0) {
        k->heard_ms = s->now.ms;
        k->came += (size_t)n;
        sl_resp_filled(k->reader, (size_t)n);
        work(k);
    } else if (n < 0) {
        sl_link_close(k, n == UV_EOF       ? "the other side closed the connection"
                         : n == UV_ENOBUFS ? "out of memory"
                                           : uv_strerror((int)n));
    }
    sl_server_settle(s);
}

/* --- Connecting and accepting --------------------------------------------- */

/* Start reading from the link. Returns false if the link was closed. */
static bool begin_reading(struct link *k)
{
    uv_tcp_nodelay(&k->uv.tcp, 1);
    int status = uv_read_start(&k->uv.stream, on_alloc, on_read);
    if (status != 0) sl_link_close(k, uv_strerror(status));
    return status == 0;
}

static void on_connected(uv_connect_t *req, int status)
{
    struct link *k = req->data;
    struct server *s = k->server;
    if (k->closing) return;
    sl_server_read_clock(s);
    if (status != 0) sl_link_close(k, uv_strerror(status));
    else if (begin_reading(k)) k->phase = SL_LINK_AWAITS_NONCE;
    sl_server_settle(s);
}

struct link *sl_link_call(struct server *s, const struct sl_member *to,
                          const struct sockaddr *a)
{
    struct link *k = new_link(s, SL_CALLER, SL_LINK_CALLS);
    if (k == NULL) return NULL;
    k->id = to->id;
    memcpy(k->address, to->address, sizeof k->address);
    int status = uv_tcp_connect(&k->connect, &k->uv.tcp, a, on_connected);
    if (status != 0) sl_link_close_later(k, uv_strerror(status));
    return k;
}

bool sl_link_accept(struct server *s, uv_stream_t *listener)
{
    struct link *k = new_link(s, SL_CALLEE, SL_LINK_AWAITS_HELLO);
    struct sockaddr_in6 a = {0};
    int size = sizeof a;
    if (k == NULL) return false;
    if (uv_accept(listener, &k->uv.stream) != 0) {
        sl_link_close(k, NULL); /* For example, the caller has already gone. */
        return true;
    }
    uv_tcp_getpeername(&k->uv.tcp, (struct sockaddr *)&a, &size);
    if (!sl_address_text(&a, k->address, sizeof k->address))
        strcpy(k->address, "unknown");
    if (begin_reading(k)) sl_link_challenge(k);
    return true;
}

/* --- Output --------------------------------------------------------------- */

struct sl_resp_writer *sl_link_out(struct link *k)
{
    if (sl_list_empty(&k->dirty) && !k->closing && k->close_why == NULL)
        sl_list_append(&k->server->links->dirty, &k->dirty);
    return &k->out;
}

static void on_written(uv_write_t *req, int status)
{
    struct link *k = req->data;
    struct server *s = k->server;
    free(k->sending);
    k->sending = NULL;
    k->sending_bytes = 0;
    k->out.bytes_max = output_max(s);
    if (k->closing) return;
    sl_server_read_clock(s);
    if (status < 0) sl_link_close(k, uv_strerror(status));
    else {
        sl_link_flush(k);
        if (k->sending == NULL && k->phase == SL_LINK_UP)
            s->links->handler->drained(s, k->id);
    }
    sl_server_settle(s);
}

/* Send the remaining output later, because the socket accepted only `done` bytes. */
static void send_rest(struct link *k, size_t done)
{
    size_t n;
    k->sending = sl_resp_take(&k->out, &n);
    k->sending_bytes = n - done;
    k->out.bytes_max -= k->sending_bytes;
    uv_buf_t buf = {.base = k->sending + done, .len = n - done};
    int status = uv_write(&k->write, &k->uv.stream, &buf, 1, on_written);
    if (status != 0) sl_link_close_later(k, uv_strerror(status));
}

static void all_sent(struct link *k)
{
    if (k->out.size <= BUFFER_KEPT)
        k->out.n = 0; /* Reuse the buffer for the next messages. */
    else {
        size_t n;
        free(sl_resp_take(&k->out, &n));
    }
    if (k->phase == SL_LINK_UP) k->server->links->handler->drained(k->server, k->id);
}

void sl_link_flush(struct link *k)
{
    sl_list_remove(&k->dirty);
    if (k->closing || k->close_why != NULL) return;
    if (k->out.spilt) {
        sl_link_close_later(k, "the node does not read its input (output-bytes-max)");
        return;
    }
    if (k->sending != NULL || k->out.n == 0) return;
    uv_buf_t buf = {.base = k->out.buffer, .len = k->out.n};
    int n = uv_try_write(&k->uv.stream, &buf, 1);
    if (n < 0 && n != UV_EAGAIN) sl_link_close_later(k, uv_strerror(n));
    else if (n < 0 || (size_t)n < k->out.n) send_rest(k, n < 0 ? 0 : (size_t)n);
    else all_sent(k);
}
