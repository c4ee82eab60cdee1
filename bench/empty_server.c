/* empty_server.c - the minimum that a server on libuv can do: it replies +OK to every RESP
 * command. Its cost is that of the kernel and libuv; the difference to another server is that
 * server's own cost.
 *
 * It must count commands exactly, however the network splits them, or a client that pipelines
 * waits forever. So it finds the end of each command, but does not interpret it. It closes a
 * connection whose stream is not RESP.
 *
 *     empty_server        prints "listening on 127.0.0.1:PORT" to stderr; the system chooses */
#include <netinet/in.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <uv.h>

#define READ_BYTES 65536u
#define REPLY "+OK\r\n"
#define REPLY_BYTES 5u

/* The position of the stream within a command. */
enum state {
    AT_ARRAY,  /* Before the '*'. */
    IN_ARRAY,  /* In the digits after it. */
    AT_STRING, /* Before a '$'. */
    IN_STRING, /* In the digits after it. */
    IN_BYTES,  /* In a string and the line end after it. */
};

struct parser {
    enum state state;
    uint64_t number;  /* Digits so far. */
    uint64_t strings; /* Arguments of this command that are missing. */
    uint64_t bytes;   /* Missing bytes of this string, including the line end. */
};

struct peer {
    uv_tcp_t tcp;
    struct parser parser;
};

/* A write that the socket did not accept at once. */
struct rest {
    uv_write_t request;
    char bytes[];
};

/* There is one thread: it replies to a read before it starts the next one. */
static char input[READ_BYTES];
static char output[READ_BYTES]; /* A command has at least 10 bytes, its reply 5. */

/* ---- counting ---- */

/* Digits, then \r\n. 1: the number is complete; 0: it is incomplete; -1: not a
 * number. */
static int digits(struct parser *p, const char **at, const char *end)
{
    while (*at < end) {
        char c = *(*at)++;
        if (c == '\n') return 1;
        if (c == '\r') continue;
        if (c < '0' || c > '9' || p->number > 1u << 28) return -1;
        p->number = p->number * 10 + (uint64_t)(c - '0');
    }
    return 0;
}

/* One step of the stream. 1: a command is complete; 0: continue; -1: not RESP. */
static int step(struct parser *p, const char **at, const char *end)
{
    int whole;
    uint64_t skip;
    switch (p->state) {
        case AT_ARRAY:
        case AT_STRING:
            if (*(*at)++ != (p->state == AT_ARRAY ? '*' : '$')) return -1;
            p->number = 0;
            p->state = p->state == AT_ARRAY ? IN_ARRAY : IN_STRING;
            return 0;
        case IN_ARRAY:
            if ((whole = digits(p, at, end)) != 1) return whole;
            p->strings = p->number;
            p->state = p->strings > 0 ? AT_STRING : AT_ARRAY;
            return 0;
        case IN_STRING:
            if ((whole = digits(p, at, end)) != 1) return whole;
            p->bytes = p->number + 2;
            p->state = IN_BYTES;
            return 0;
        case IN_BYTES:
            skip = (uint64_t)(end - *at) < p->bytes ? (uint64_t)(end - *at) : p->bytes;
            *at += skip;
            p->bytes -= skip;
            if (p->bytes > 0) return 0;
            p->state = --p->strings > 0 ? AT_STRING : AT_ARRAY;
            return p->strings == 0;
    }
    return -1;
}

/* How many commands end in these bytes; -1: the stream is broken. */
static ssize_t count(struct parser *p, const char *at, size_t n)
{
    const char *end = at + n;
    ssize_t commands = 0;
    while (at < end) {
        int ended = step(p, &at, end);
        if (ended < 0) return -1;
        commands += ended;
    }
    return commands;
}

/* ---- reading and writing ---- */

static void on_closed(uv_handle_t *h)
{
    free(h);
}

static void hang_up(struct peer *p)
{
    uv_handle_t *h = (uv_handle_t *)&p->tcp;
    if (!uv_is_closing(h)) uv_close(h, on_closed);
}

static void on_written(uv_write_t *w, int status)
{
    if (status < 0) hang_up((struct peer *)w->handle);
    free(w);
}

static void answer(struct peer *p, size_t commands)
{
    uv_stream_t *s = (uv_stream_t *)&p->tcp;
    size_t n = commands * REPLY_BYTES;
    for (size_t i = 0; i < commands; i++)
        memcpy(output + i * REPLY_BYTES, REPLY, REPLY_BYTES);
    uv_buf_t all = uv_buf_init(output, (unsigned)n);
    int sent = uv_try_write(s, &all, 1);
    if (sent == UV_EAGAIN) sent = 0;
    if (sent < 0) {
        hang_up(p);
        return;
    }
    if ((size_t)sent == n) return;
    size_t left = n - (size_t)sent;
    struct rest *r = malloc(sizeof *r + left);
    if (r == NULL) {
        hang_up(p);
        return;
    }
    memcpy(r->bytes, output + sent, left);
    uv_buf_t rest = uv_buf_init(r->bytes, (unsigned)left);
    if (uv_write(&r->request, s, &rest, 1, on_written) < 0) {
        free(r);
        hang_up(p);
    }
}

static void on_room(uv_handle_t *h, size_t wish, uv_buf_t *out)
{
    (void)h;
    (void)wish;
    *out = uv_buf_init(input, sizeof input);
}

static void on_read(uv_stream_t *s, ssize_t n, const uv_buf_t *b)
{
    struct peer *p = (struct peer *)s;
    ssize_t commands = n < 0 ? -1 : count(&p->parser, b->base, (size_t)n);
    if (commands < 0) hang_up(p);
    else if (commands > 0) answer(p, (size_t)commands);
}

static void on_connection(uv_stream_t *listener, int status)
{
    struct peer *p = calloc(1, sizeof *p);
    if (status < 0 || p == NULL) {
        free(p);
        return;
    }
    uv_tcp_init(listener->loop, &p->tcp);
    if (uv_accept(listener, (uv_stream_t *)&p->tcp) < 0) {
        hang_up(p);
        return;
    }
    uv_tcp_nodelay(&p->tcp, 1);
    uv_read_start((uv_stream_t *)&p->tcp, on_room, on_read);
}

int main(void)
{
    uv_loop_t *loop = uv_default_loop();
    uv_tcp_t listener;
    struct sockaddr_in a;
    struct sockaddr_storage got;
    int size = sizeof got;
    signal(SIGPIPE, SIG_IGN);
    uv_ip4_addr("127.0.0.1", 0, &a);
    uv_tcp_init(loop, &listener);
    int status = uv_tcp_bind(&listener, (const struct sockaddr *)&a, 0);
    if (status == 0) status = uv_listen((uv_stream_t *)&listener, 511, on_connection);
    if (status == 0)
        status = uv_tcp_getsockname(&listener, (struct sockaddr *)&got, &size);
    if (status < 0) {
        fprintf(stderr, "empty_server: cannot listen: %s\n", uv_strerror(status));
        return 1;
    }
    memcpy(&a, &got, sizeof a);
    fprintf(stderr, "listening on 127.0.0.1:%d\n", ntohs(a.sin_port));
    return uv_run(loop, UV_RUN_DEFAULT);
}
