/* conn_output.c - the output of a connection, which is buffered during a loop iteration and sent
 * at its end. */
#include <stdlib.h>
#include <string.h>

#include "server/forward/proxy.h"
#include "server/net/conn_internal.h"
#include "server/observe/log.h"

/* Check memory-max each time the buffers have grown by this many bytes. */
#define CHECK_BYTES 16384u

size_t sl_conn_output_max(const struct server *s)
{
    return (size_t)s->settings->output_bytes_max;
}

void sl_conn_count_buffers(struct conn *c)
{
    struct server *s = c->server;
    size_t bytes = c->sending != NULL ? c->sending_bytes + c->out.size : 0;
    if (c->reader != NULL) bytes += sl_resp_reader_bytes(c->reader);
    if (bytes == c->counted_bytes) return;
    s->memory_due |= bytes > c->counted_bytes + CHECK_BYTES;
    s->buffer_bytes += bytes - c->counted_bytes;
    c->counted_bytes = bytes;
}

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
    if (s->spare_buffer == NULL && size <= SL_SPARE_BYTES_MAX) {
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
    c->out.bytes_max = sl_conn_output_max(c->server);
    if (c->closing) return;
    sl_conn_count_buffers(c);
    sl_server_read_clock(c->server);
    if (status < 0) sl_conn_close(c, SL_WAS_CUT);
    else {
        sl_conn_flush(c);
        if (!c->closing) sl_conn_work_later(c);
    }
    sl_server_settle(c->server);
}

/* Send the remaining output later, because the socket accepted only `done` bytes. */
static void send_rest(struct conn *c, size_t done)
{
    size_t n;
    char *all = sl_resp_take(&c->out, &n), *rest = NULL;
    c->sending_bytes = n - done;
    /* Drop the part that was sent. Otherwise a client that does not read could make the server hold
     * megabytes for a few unsent bytes, and only those are counted. */
    memmove(all, all + done, c->sending_bytes);
    rest = realloc(all, c->sending_bytes);
    c->sending = rest != NULL ? rest : all;
    c->out.bytes_max -= c->sending_bytes;
    sl_conn_count_buffers(c);
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
    sl_log_often(
        &kind, c->server->now.ms, SL_LOG_WARN,
        "closed a connection: the client does not read its output (output-bytes-max)",
        "address", address, NULL);
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
    if (c->sending != NULL) { /* on_written() sends the rest. */
        sl_conn_count_buffers(c);
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

void sl_conn_cut_dirty(struct server *s)
{
    struct sl_list *next;
    for (struct sl_list *n = s->dirty.next; n != &s->dirty; n = next) {
        struct conn *c = sl_container_of(n, struct conn, dirty);
        next = n->next;
        if (c->proxy == NULL) sl_conn_close(c, SL_WAS_CUT);
    }
}
