/* wire.c - one connection to a server: sends commands, receives replies.
 *
 * The socket is nonblocking. poll() waits, with one deadline for the whole call. After
 * a failure the connection cannot be used any more, because the next reply might belong
 * to an earlier command. So every later call returns the status of the first
 * failure. */
#include "client/wire.h"

#include <assert.h>
#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include "client/reply.h"
#include "sluice.h"

#define CONNECT_MS 5000
#define READ_BYTES 16384u
#define KEPT_MAX 1024u /* Push messages kept for sluice_wire_next(). */
#define ERROR_SIZE 512

struct kept {
    struct kept *next;
    struct sluice_reply *reply;
};

struct sluice_wire {
    int fd;
    int broken; /* The status of the first failure; SLUICE_OK: none. */
    int64_t reply_ms;
    char *in; /* Bytes received and not yet returned. */
    size_t in_size, in_from, in_used;
    struct sl_client_reply_scan scan;
    struct kept *first, **last;
    size_t kept;
    char error[ERROR_SIZE];
};

/* --- Time and errors ------------------------------------------------------ */

static int64_t now_ms(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

static int64_t deadline_of(int64_t ms)
{
    int64_t now = now_ms();
    return ms < 0 || ms > INT64_MAX - now ? INT64_MAX : now + ms;
}

/* Wait until the socket is ready. Returns 1 if it is ready, 0 if the deadline has
 * passed, even if the socket is ready, or -1 with errno. */
static int wait_for(int fd, short events, int64_t deadline)
{
    for (;;) {
        int64_t left = deadline == INT64_MAX ? -1 : deadline - now_ms();
        if (deadline != INT64_MAX && left <= 0) return 0;
        struct pollfd p = {.fd = fd, .events = events};
        int n = poll(&p, 1, left > INT32_MAX ? INT32_MAX : (int)left);
        if (n > 0) return 1;
        if (n < 0 && errno != EINTR) return -1;
    }
}

/* Record a failure and its message. Returns the status. */
__attribute__((format(printf, 3, 4))) static int fail(struct sluice_wire *w, int status,
                                                      const char *format, ...)
{
    va_list args;
    va_start(args, format);
    vsnprintf(w->error, sizeof w->error, format, args);
    va_end(args);
    w->broken = status;
    return status;
}

/* --- Addresses ------------------------------------------------------------ */

static bool is_port(const char *s)
{
    size_t n = strspn(s, "0123456789");
    return n > 0 && n < SL_CLIENT_PORT_SIZE && s[n] == '\0' && atoi(s) > 0 &&
           atoi(s) <= UINT16_MAX;
}

bool sl_client_address_parse(const char *text, struct sl_client_address *out)
{
    static const char unix_prefix[] = "unix:";
    const char *host = text, *port = SLUICE_SERVER_PORT, *end = text + strlen(text);
    *out = (struct sl_client_address){0};
    if (strncmp(text, unix_prefix, strlen(unix_prefix)) == 0) {
        out->path = text + strlen(unix_prefix);
        return out->path[0] != '\0';
    }
    const char *colon = strchr(text, ':');
    if (text[0] == '[') {
        host = text + 1;
        end = strchr(host, ']');
        if (end == NULL || (end[1] != '\0' && end[1] != ':')) return false;
        if (end[1] == ':') port = end + 2;
    } else if (colon != NULL && strchr(colon + 1, ':') == NULL) {
        end = colon;
        port = colon + 1;
    } /* Two colons and no brackets: an IPv6 address without a port. */
    size_t n = (size_t)(end - host);
    if (n == 0 || n >= sizeof out->host || !is_port(port)) return false;
    memcpy(out->host, host, n);
    strcpy(out->port, port);
    return true;
}

/* --- Connecting ----------------------------------------------------------- */

/* Connect to one address. On failure, returns -1 and sets errno. */
static int connect_one(int family, const struct sockaddr *to, socklen_t n,
                       int64_t deadline)
{
    int error = 0;
    socklen_t size = sizeof error;
    int fd = socket(family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0) return -1;
    if (connect(fd, to, n) != 0) {
        if (errno != EINPROGRESS) goto failed;
        int ready = wait_for(fd, POLLOUT, deadline);
        if (ready == 0) errno = ETIMEDOUT;
        if (ready <= 0) goto failed;
        if (getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &size) != 0) goto failed;
        errno = error;
        if (error != 0) goto failed;
    }
    return fd;
failed:
    error = errno;
    close(fd);
    errno = error;
    return -1;
}

static int connect_unix(struct sluice_wire *w, const char *path, int64_t deadline)
{
    struct sockaddr_un to = {.sun_family = AF_UNIX};
    if (strlen(path) >= sizeof to.sun_path) {
        errno = ENAMETOOLONG;
        return fail(w, SLUICE_EUNREACHABLE, "%s", strerror(errno));
    }
    strcpy(to.sun_path, path);
    for (;;) {
        w->fd = connect_one(AF_UNIX, (const struct sockaddr *)&to, sizeof to, deadline);
        if (w->fd >= 0) return SLUICE_OK;
        /* If the backlog is full, connect() fails at once instead of waiting, so try
         * again. */
        if (errno != EAGAIN || now_ms() >= deadline) break;
        poll(NULL, 0, 10);
    }
    return fail(w, SLUICE_EUNREACHABLE, "%s", strerror(errno));
}

void sl_client_tune(int fd)
{
    const struct {
        int level, name, value;
    } options[] = {{IPPROTO_TCP, TCP_NODELAY, 1},
                   {SOL_SOCKET, SO_KEEPALIVE, 1},
                   {IPPROTO_TCP, TCP_KEEPIDLE, 10},
                   {IPPROTO_TCP, TCP_KEEPINTVL, 5},
                   {IPPROTO_TCP, TCP_KEEPCNT, 3}};
    for (size_t i = 0; i < sizeof options / sizeof *options; i++)
        setsockopt(fd, options[i].level, options[i].name, &options[i].value,
                   sizeof options[i].value);
}

/* Try each address of the host, with a share of the remaining time for each. */
static int connect_tcp(struct sluice_wire *w, const struct sl_client_address *a,
                       int64_t deadline)
{
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM}, *found;
    int unknown = getaddrinfo(a->host, a->port, &hints, &found);
    if (unknown != 0) return fail(w, SLUICE_EUNREACHABLE, "%s", gai_strerror(unknown));
    int addresses = 0;
    for (const struct addrinfo *i = found; i != NULL; i = i->ai_next) addresses++;
    for (const struct addrinfo *i = found; i != NULL && w->fd < 0; i = i->ai_next) {
        int64_t now = now_ms(), end = deadline;
        if (deadline != INT64_MAX && deadline > now)
            end = now + (deadline - now) / addresses;
        w->fd = connect_one(i->ai_family, i->ai_addr, i->ai_addrlen, end);
        addresses--;
    }
    int error = errno;
    freeaddrinfo(found);
    if (w->fd < 0) return fail(w, SLUICE_EUNREACHABLE, "%s", strerror(error));
    sl_client_tune(w->fd);
    return SLUICE_OK;
}

/* --- Sending -------------------------------------------------------------- */

/* Encode a command: n arguments, each preceded by its length. Returns NULL if out of
 * memory. */
static char *encode(const char *const *args, const size_t *lengths, size_t n,
                    size_t *bytes)
{
    enum { HEAD = 32 }; /* "$", a length, "\r\n" twice. */
    size_t size = HEAD;
    for (size_t i = 0; i < n; i++) {
        size_t length = lengths != NULL ? lengths[i] : strlen(args[i]);
        if (length > SIZE_MAX / 2 - size - HEAD) return NULL;
        size += length + HEAD;
    }
    char *out = malloc(size);
    if (out == NULL) return NULL;
    size_t at = (size_t)snprintf(out, size, "*%zu\r\n", n);
    for (size_t i = 0; i < n; i++) {
        size_t length = lengths != NULL ? lengths[i] : strlen(args[i]);
        at += (size_t)snprintf(out + at, size - at, "$%zu\r\n", length);
        memcpy(out + at, args[i], length);
        memcpy(out + at + length, "\r\n", 2);
        at += length + 2;
    }
    *bytes = at;
    return out;
}

/* Send all bytes. If the server has closed the connection, this still returns success,
 * because the server may have sent a reason, which the next read finds. */
static int write_all(struct sluice_wire *w, const char *data, size_t n,
                     int64_t deadline)
{
    while (n > 0) {
        ssize_t sent = send(w->fd, data, n, MSG_NOSIGNAL);
        if (sent >= 0) {
            data += sent;
            n -= (size_t)sent;
            continue;
        }
        if (errno == EPIPE || errno == ECONNRESET) return SLUICE_OK;
        if (errno == EINTR) continue;
        if (errno != EAGAIN) return fail(w, SLUICE_ECLOSED, "%s", strerror(errno));
        int ready = wait_for(w->fd, POLLOUT, deadline);
        if (ready == 0)
            return fail(w, SLUICE_ECLOSED,
                        "the server did not read the command in time");
        if (ready < 0) return fail(w, SLUICE_ECLOSED, "%s", strerror(errno));
    }
    return SLUICE_OK;
}

static int send_until(struct sluice_wire *w, const char *const *args,
                      const size_t *lengths, size_t n, int64_t deadline)
{
    size_t bytes;
    if (w->broken != SLUICE_OK) return w->broken;
    if (n == 0 || n > INT32_MAX) return SLUICE_EINVAL;
    char *data = encode(args, lengths, n, &bytes);
    if (data == NULL) return SLUICE_ENOMEM;
    int status = write_all(w, data, bytes, deadline);
    explicit_bzero(data, bytes); /* The data may contain a password. */
    free(data);
    return status;
}

/* --- Receiving ------------------------------------------------------------ */

static bool reserve_input(struct sluice_wire *w)
{
    if (w->in_size - w->in_used >= READ_BYTES) return true;
    if (w->in_from > 0) {
        w->in_used -= w->in_from;
        memmove(w->in, w->in + w->in_from, w->in_used);
        w->in_from = 0;
        return reserve_input(w);
    }
    size_t size = w->in_size * 2 < READ_BYTES * 2 ? READ_BYTES * 2 : w->in_size * 2;
    char *in = realloc(w->in, size);
    if (in == NULL) return false;
    w->in = in;
    w->in_size = size;
    return true;
}

/* Receive more bytes before the deadline. Waits before each read, because a server that sends without
 * a pause must not keep the caller beyond the deadline. */
static int receive(struct sluice_wire *w, int64_t deadline)
{
    if (!reserve_input(w)) return fail(w, SLUICE_ENOMEM, "out of memory");
    for (;;) {
        int ready = wait_for(w->fd, POLLIN, deadline);
        if (ready == 0)
            return fail(w, SLUICE_ECLOSED, "the server did not answer in time");
        if (ready < 0) return fail(w, SLUICE_ECLOSED, "%s", strerror(errno));
        ssize_t n = recv(w->fd, w->in + w->in_used, w->in_size - w->in_used, 0);
        if (n > 0) {
            w->in_used += (size_t)n;
            return SLUICE_OK;
        }
        if (n == 0) return fail(w, SLUICE_ECLOSED, "the server closed the connection");
        if (errno != EINTR && errno != EAGAIN)
            return fail(w, SLUICE_ECLOSED, "%s", strerror(errno));
    }
}

/* Read the next reply or push message from the socket. */
static int read_until(struct sluice_wire *w, int64_t deadline,
                      struct sluice_reply **out)
{
    if (w->broken != SLUICE_OK) return w->broken;
    for (;;) {
        const char *data = w->in != NULL ? w->in + w->in_from : "";
        int whole = sl_client_reply_scan(&w->scan, data, w->in_used - w->in_from);
        if (whole < 0) return fail(w, whole, "the reply is not valid Redis protocol");
        if (whole == 1) break;
        int status = receive(w, deadline);
        if (status != SLUICE_OK) return status;
    }
    if (sl_client_reply_build(w->in + w->in_from, &w->scan, out) != SLUICE_OK)
        return fail(w, SLUICE_ENOMEM, "out of memory");
    assert(w->scan.at <= w->in_used - w->in_from);
    w->in_from += w->scan.at;
    if (w->in_from == w->in_used) w->in_from = w->in_used = 0;
    w->scan = (struct sl_client_reply_scan){0};
    return SLUICE_OK;
}

/* Keep a push message for sluice_wire_next(), unless there are too many. */
static int keep(struct sluice_wire *w, struct sluice_reply *push)
{
    assert(push->type == SLUICE_REPLY_PUSH && w->kept <= KEPT_MAX);
    struct kept *k = malloc(sizeof *k);
    if (k == NULL || w->kept == KEPT_MAX) {
        free(k);
        sluice_reply_free(push);
        return k == NULL ? fail(w, SLUICE_ENOMEM, "out of memory") : SLUICE_OK;
    }
    *k = (struct kept){.reply = push};
    *w->last = k;
    w->last = &k->next;
    w->kept++;
    return SLUICE_OK;
}

static int call_until(struct sluice_wire *w, const char *const *args,
                      const size_t *lengths, size_t n, int64_t deadline,
                      struct sluice_reply **out)
{
    struct sluice_reply *reply;
    int status = send_until(w, args, lengths, n, deadline);
    while (status == SLUICE_OK) {
        status = read_until(w, deadline, &reply);
        if (status != SLUICE_OK) break;
        if (reply->type != SLUICE_REPLY_PUSH) {
            *out = reply;
            return SLUICE_OK;
        }
        status = keep(w, reply);
    }
    return status;
}

/* --- Greeting ------------------------------------------------------------- */

static bool begins(const char *text, const char *word)
{
    size_t n = strlen(word);
    return strncmp(text, word, n) == 0 && (text[n] == ' ' || text[n] == '\0');
}

static int greet(struct sluice_wire *w, const struct sluice_wire_options *o,
                 int64_t deadline)
{
    const char *hello[] = {"HELLO", "3", "AUTH", "default", o->password};
    const char *login[] = {"AUTH", o->password};
    struct sluice_reply *reply;
    int status;
    if (o->resp != 2)
        status = call_until(w, hello, NULL, o->password != NULL ? 5 : 2, deadline,
                            &reply);
    else if (o->password != NULL)
        status = call_until(w, login, NULL, 2, deadline, &reply);
    else return SLUICE_OK;
    if (status != SLUICE_OK) return status;
    if (reply->type == SLUICE_REPLY_ERROR) {
        bool denied = begins(reply->text, "WRONGPASS") ||
                      begins(reply->text, "NOAUTH") || begins(reply->text, "NOPERM");
        status = fail(w, denied ? SLUICE_EDENIED : SLUICE_EUNREACHABLE, "%s",
                      reply->text);
    } else if (o->resp != 2 && reply->type != SLUICE_REPLY_MAP)
        status = fail(w, SLUICE_EPROTOCOL,
                      "the server does not support version 3 of the Redis protocol");
    sluice_reply_free(reply);
    return status;
}

/* --- Public functions ----------------------------------------------------- */

static int connect_to(struct sluice_wire *w, const struct sl_client_address *a,
                      const struct sluice_wire_options *o)
{
    int64_t deadline = deadline_of(o->connect_ms != 0 ? o->connect_ms : CONNECT_MS);
    int status = a->path != NULL ? connect_unix(w, a->path, deadline)
                                 : connect_tcp(w, a, deadline);
    if (status == SLUICE_OK) status = greet(w, o, deadline);
    /* If the server closes the connection during the greeting, report that it is
     * unreachable. */
    return status == SLUICE_ECLOSED ? SLUICE_EUNREACHABLE : status;
}

int sluice_wire_open(const char *address, const struct sluice_wire_options *options,
                     struct sluice_wire **out)
{
    static const struct sluice_wire_options defaults;
    const struct sluice_wire_options *o = options != NULL ? options : &defaults;
    struct sl_client_address a;
    if (o->error != NULL && o->error_size > 0) o->error[0] = '\0';
    if (out == NULL || (o->resp != 0 && o->resp != 2 && o->resp != 3))
        return SLUICE_EINVAL;
    if (!sl_client_address_parse(address != NULL ? address : SLUICE_SERVER_DEFAULT, &a))
        return SLUICE_EINVAL;
    struct sluice_wire *w = calloc(1, sizeof *w);
    if (w == NULL) return SLUICE_ENOMEM;
    w->fd = -1;
    w->last = &w->first;
    w->reply_ms = o->reply_ms != 0 ? o->reply_ms : SLUICE_FOREVER;
    int status = connect_to(w, &a, o);
    if (status == SLUICE_OK) {
        *out = w;
        return SLUICE_OK;
    }
    if (o->error != NULL && o->error_size > 0)
        snprintf(o->error, o->error_size, "%s", w->error);
    sluice_wire_close(w);
    return status;
}

int sluice_wire_send(struct sluice_wire *w, const char *const *args,
                     const size_t *lengths, size_t n)
{
    if (w == NULL || args == NULL) return SLUICE_EINVAL;
    return send_until(w, args, lengths, n, deadline_of(w->reply_ms));
}

int sluice_wire_next(struct sluice_wire *w, struct sluice_reply **out)
{
    if (w == NULL || out == NULL) return SLUICE_EINVAL;
    struct kept *k = w->first;
    if (k == NULL) return read_until(w, deadline_of(w->reply_ms), out);
    w->first = k->next;
    if (w->first == NULL) w->last = &w->first;
    w->kept--;
    *out = k->reply;
    free(k);
    return SLUICE_OK;
}

int sluice_wire_call(struct sluice_wire *w, const char *const *args,
                     const size_t *lengths, size_t n, struct sluice_reply **out)
{
    if (w == NULL || args == NULL || out == NULL) return SLUICE_EINVAL;
    return call_until(w, args, lengths, n, deadline_of(w->reply_ms), out);
}

const char *sluice_wire_error(const struct sluice_wire *w)
{
    return w != NULL ? w->error : "";
}

void sluice_wire_close(struct sluice_wire *w)
{
    if (w == NULL) return;
    for (struct kept *k = w->first, *next; k != NULL; k = next) {
        next = k->next;
        sluice_reply_free(k->reply);
        free(k);
    }
    if (w->fd >= 0) close(w->fd);
    free(w->in);
    free(w);
}
