#include "client/remote/socket.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "client/kind.h"

#define READ_BYTES 16384u

static void fail(struct sl_socket *k, int status, const char *why)
{
    k->status = status;
    size_t used = strlen(k->error); /* "host:port: " */
    snprintf(k->error + used, sizeof k->error - used, "%s", why);
}

void sl_socket_init(struct sl_socket *k, int epoll, uint32_t number)
{
    *k = (struct sl_socket){.epoll = epoll, .number = number, .fd = -1};
}

/* --- Names ------------------------------------------------------------------ */

/* getaddrinfo() can block for seconds, so a thread calls it. The thread and the socket share
 * this struct. The last one that lets go of it frees it. */
struct sl_resolver {
    atomic_int users;
    int done; /* An eventfd. */
    int error;
    struct addrinfo *found;
    char host[SL_CLIENT_HOST_SIZE];
    char port[SL_CLIENT_PORT_SIZE];
};

static void let_go(struct sl_resolver *r)
{
    /* Acquire and release: the last user sees what the other one wrote. */
    if (atomic_fetch_sub_explicit(&r->users, 1, memory_order_acq_rel) > 1) return;
    if (r->found != NULL) freeaddrinfo(r->found);
    close(r->done);
    free(r);
}

static void *resolve(void *arg)
{
    struct sl_resolver *r = arg;
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM};
    r->error = getaddrinfo(r->host, r->port, &hints, &r->found);
    if (r->error != 0) r->found = NULL;
    /* The write makes the fields visible to the reader of the eventfd. */
    (void)!write(r->done, &(uint64_t){1}, sizeof(uint64_t));
    let_go(r);
    return NULL;
}

static bool watch(struct sl_socket *k, int fd, uint32_t events, int how)
{
    struct epoll_event e = {.events = events, .data.u32 = k->number};
    return epoll_ctl(k->epoll, how, fd, &e) == 0;
}

static void set_wants_write(struct sl_socket *k, bool wants)
{
    if (wants == k->wants_write) return;
    watch(k, k->fd, wants ? EPOLLIN | EPOLLOUT : EPOLLIN, EPOLL_CTL_MOD);
    k->wants_write = wants;
}

static enum sl_socket_state start_resolver(struct sl_socket *k)
{
    pthread_t thread;
    struct sl_resolver *r = calloc(1, sizeof *r);
    if (r != NULL) r->done = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (r == NULL || r->done < 0) {
        if (r == NULL) fail(k, SLUICE_ENOMEM, "cannot resolve the name: out of memory");
        else fail(k, SLUICE_EUNREACHABLE, strerror(errno)); /* Too many open files. */
        free(r);
        return SL_SOCKET_CLOSED;
    }
    atomic_init(&r->users, 2);
    strcpy(r->host, k->address->host);
    strcpy(r->port, k->address->port);
    if (!watch(k, r->done, EPOLLIN, EPOLL_CTL_ADD) ||
        sl_client_start_thread(&thread, resolve, r, "sluice-resolve") != SLUICE_OK) {
        fail(k, SLUICE_ENOMEM, "cannot start a thread to resolve the name");
        let_go(r);
        let_go(r);
        return SL_SOCKET_CLOSED;
    }
    pthread_detach(thread);
    k->resolver = r;
    return k->state = SL_SOCKET_RESOLVES;
}

static void stop_resolver(struct sl_socket *k)
{
    if (k->resolver == NULL) return;
    epoll_ctl(k->epoll, EPOLL_CTL_DEL, k->resolver->done, NULL);
    let_go(k->resolver);
    k->resolver = NULL;
}

/* --- Connecting --------------------------------------------------------------- */

static void close_fd(struct sl_socket *k)
{
    if (k->fd >= 0) close(k->fd); /* This also removes it from epoll. */
    k->fd = -1;
}

/* Begin to connect to one address. */
static bool begin(struct sl_socket *k, int family, const struct sockaddr *to,
                  socklen_t n)
{
    k->fd = socket(family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (k->fd < 0) return false;
    if (family != AF_UNIX) sl_client_tune(k->fd);
    bool begun = connect(k->fd, to, n) == 0 || errno == EINPROGRESS;
    if (begun && watch(k, k->fd, EPOLLIN | EPOLLOUT, EPOLL_CTL_ADD)) {
        k->wants_write = true;
        return true;
    }
    int why = errno;
    close_fd(k);
    errno = why;
    return false;
}

/* Try the next address of the host. */
static enum sl_socket_state try_next(struct sl_socket *k, int why)
{
    while (k->next != NULL) {
        const struct addrinfo *a = k->next;
        k->next = a->ai_next;
        if (begin(k, a->ai_family, a->ai_addr, a->ai_addrlen))
            return k->state = SL_SOCKET_CONNECTS;
        why = errno;
    }
    fail(k, SLUICE_EUNREACHABLE, strerror(why));
    return SL_SOCKET_CLOSED;
}

static enum sl_socket_state connect_unix(struct sl_socket *k)
{
    struct sockaddr_un to = {.sun_family = AF_UNIX};
    if (strlen(k->address->path) >= sizeof to.sun_path) errno = ENAMETOOLONG;
    else {
        strcpy(to.sun_path, k->address->path);
        if (begin(k, AF_UNIX, (const struct sockaddr *)&to, sizeof to))
            return k->state = SL_SOCKET_CONNECTS;
    }
    fail(k, SLUICE_EUNREACHABLE, strerror(errno));
    return SL_SOCKET_CLOSED;
}

enum sl_socket_state sl_socket_connect(struct sl_socket *k,
                                       const struct sl_client_address *address,
                                       const char *text)
{
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_NUMERICHOST};
    sl_socket_close(k);
    k->address = address;
    snprintf(k->error, sizeof k->error, "%.200s: ", text);
    enum sl_socket_state state;
    if (address->path != NULL) state = connect_unix(k);
    else if (getaddrinfo(address->host, address->port, &hints, &k->found) == 0) {
        k->next = k->found;
        state = try_next(k, ECONNREFUSED);
    } else {
        k->found = NULL;
        state = start_resolver(k);
    }
    if (state == SL_SOCKET_CLOSED) sl_socket_close(k);
    return state;
}

static enum sl_socket_state resolved(struct sl_socket *k)
{
    uint64_t count;
    if (read(k->resolver->done, &count, sizeof count) < 0) return k->state;
    int error = k->resolver->error;
    k->found = k->next = k->resolver->found;
    k->resolver->found = NULL;
    stop_resolver(k);
    if (error == 0) return try_next(k, ECONNREFUSED);
    fail(k, SLUICE_EUNREACHABLE, gai_strerror(error));
    return SL_SOCKET_CLOSED;
}

static enum sl_socket_state connected(struct sl_socket *k)
{
    int error = 0;
    socklen_t size = sizeof error;
    if (getsockopt(k->fd, SOL_SOCKET, SO_ERROR, &error, &size) != 0) error = errno;
    if (error != 0) {
        close_fd(k);
        return try_next(k, error);
    }
    /* Not connected yet: the event was for another reason. */
    struct sockaddr_storage peer;
    size = sizeof peer;
    if (getpeername(k->fd, (struct sockaddr *)&peer, &size) != 0) return k->state;
    set_wants_write(k, false);
    return k->state = SL_SOCKET_OPEN;
}

enum sl_socket_state sl_socket_continue(struct sl_socket *k)
{
    enum sl_socket_state state = k->state;
    if (state == SL_SOCKET_RESOLVES) state = resolved(k);
    else if (state == SL_SOCKET_CONNECTS) state = connected(k);
    if (state == SL_SOCKET_CLOSED) sl_socket_close(k);
    return state;
}

/* --- Sending and receiving -------------------------------------------------------- */

void sl_socket_writable(struct sl_socket *k)
{
    set_wants_write(k, false);
}

ptrdiff_t sl_socket_send(struct sl_socket *k, struct sl_bytes bytes)
{
    size_t sent = 0;
    while (sent < bytes.n) {
        ssize_t n = send(k->fd, bytes.at + sent, bytes.n - sent, MSG_NOSIGNAL);
        if (n >= 0) sent += (size_t)n;
        else if (errno == EAGAIN) break;
        else if (errno != EINTR) {
            fail(k, SLUICE_EUNREACHABLE, strerror(errno));
            return -1;
        }
    }
    set_wants_write(k, sent < bytes.n);
    return (ptrdiff_t)sent;
}

static bool reserve(struct sl_socket *k)
{
    if (k->in_from == k->in_used) k->in_from = k->in_used = 0;
    if (k->in_size - k->in_used >= READ_BYTES) return true;
    if (k->in_from > 0) {
        k->in_used -= k->in_from;
        memmove(k->in, k->in + k->in_from, k->in_used);
        k->in_from = 0;
        if (k->in_size - k->in_used >= READ_BYTES) return true;
    }
    size_t size = k->in_size > READ_BYTES ? 2 * k->in_size : 2 * READ_BYTES;
    char *in = realloc(k->in, size);
    if (in == NULL) return false;
    k->in = in;
    k->in_size = size;
    return true;
}

int sl_socket_receive(struct sl_socket *k)
{
    if (!reserve(k)) {
        fail(k, SLUICE_ENOMEM, "out of memory");
        return -1;
    }
    for (;;) {
        ssize_t n = recv(k->fd, k->in + k->in_used, k->in_size - k->in_used, 0);
        if (n > 0) {
            k->in_used += (size_t)n;
            return 1;
        }
        if (n < 0 && errno == EINTR) continue;
        if (n < 0 && errno == EAGAIN) return 0;
        fail(k, SLUICE_EUNREACHABLE,
             n == 0 ? "the server closed the connection" : strerror(errno));
        return -1;
    }
}

int sl_socket_next(struct sl_socket *k, struct sluice_reply **out)
{
    if (k->in_from == k->in_used) return 0;
    const char *data = k->in + k->in_from;
    int whole = sl_client_reply_scan(&k->scan, data, k->in_used - k->in_from);
    if (whole == 0) return 0;
    if (whole < 0) {
        fail(k, SLUICE_EPROTOCOL, "the reply is not valid Redis protocol");
        return -1;
    }
    if (sl_client_reply_build(data, &k->scan, out) != SLUICE_OK) {
        fail(k, SLUICE_ENOMEM, "out of memory");
        return -1;
    }
    k->in_from += k->scan.at;
    k->scan = (struct sl_client_reply_scan){0};
    return 1;
}

void sl_socket_close(struct sl_socket *k)
{
    stop_resolver(k);
    close_fd(k);
    if (k->found != NULL) freeaddrinfo(k->found);
    free(k->in);
    k->found = k->next = NULL;
    k->in = NULL;
    k->in_size = k->in_from = k->in_used = 0;
    k->scan = (struct sl_client_reply_scan){0};
    k->wants_write = false;
    k->state = SL_SOCKET_CLOSED;
}
