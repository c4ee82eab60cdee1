#include "relay.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/timerfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include "process.h"
#include "subject.h"
#include "times.h"

#define CHUNK_BYTES 16384u
#define STALL_MS 10000

/* ---- in the proxy process ---- */

/* Bytes in transit, ordered by their times. */
struct chunk {
    struct chunk *next;
    int64_t due_ns;
    size_t n;
    char bytes[];
};

/* One direction of a connection. */
struct end {
    int fd; /* Read from here. */
    bool hung_up;
    struct end *other; /* Write to this end; for the echo, to itself. */
    struct chunk *first, **last;
    struct end *next; /* In the list of all. */
};

static int epoll_fd, timer_fd;
static int64_t delay_ns;
static struct end *ends;
static const struct relay *me;
static int listeners[RELAY_WAYS_MAX + 1]; /* One for each way, and the echo. */
static int echo_port;

static struct end *end_new(int fd)
{
    struct end *e = calloc(1, sizeof *e);
    if (e == NULL) _exit(1);
    int one = 1;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    e->fd = fd;
    e->last = &e->first;
    e->next = ends;
    ends = e;
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = e};
    if (epoll_ctl(epoll_fd, EPOLL_CTL_ADD, fd, &event) != 0) _exit(1);
    return e;
}

/* Close both connections without a delay: no delay is measured at that time. */
static void hang_up(struct end *e)
{
    struct end *both[] = {e, e->other};
    for (int i = 0; i < 2; i++) {
        if (both[i]->hung_up) continue;
        both[i]->hung_up = true;
        epoll_ctl(epoll_fd, EPOLL_CTL_DEL, both[i]->fd, NULL);
        shutdown(both[i]->fd, SHUT_RDWR);
    }
}

static void accept_on(uint32_t way)
{
    int fd = accept4(listeners[way], NULL, NULL, SOCK_CLOEXEC);
    if (fd < 0) return;
    if (way == me->ways) {
        struct end *echo = end_new(fd);
        echo->other = echo;
        return;
    }
    int on = line_connect(me->to[way] != 0 ? me->to[way] : echo_port);
    if (on < 0) { /* No server listens there yet. */
        close(fd);
        return;
    }
    struct end *e = end_new(fd), *o = end_new(on);
    e->other = o;
    o->other = e;
}

static void take_in(struct end *e)
{
    struct chunk *c = malloc(sizeof *c + CHUNK_BYTES);
    if (c == NULL) _exit(1);
    ssize_t n = recv(e->fd, c->bytes, CHUNK_BYTES, MSG_DONTWAIT);
    if (n <= 0) {
        free(c);
        if (n == 0 || (errno != EAGAIN && errno != EINTR)) hang_up(e);
        return;
    }
    c->n = (size_t)n;
    c->next = NULL;
    c->due_ns = now_ns() + (e->other == e ? 0 : delay_ns);
    *e->last = c;
    e->last = &c->next;
}

/* Send the data that is due. Returns the time at which the next data is due, or 0. */
static int64_t pass_on(void)
{
    int64_t now = now_ns(), next_ns = 0;
    for (struct end *e = ends; e != NULL; e = e->next) {
        struct chunk *c;
        while ((c = e->first) != NULL && (c->due_ns <= now || e->hung_up)) {
            if (!e->hung_up && line_send(e->other->fd, c->bytes, c->n) != NULL)
                hang_up(e);
            e->first = c->next;
            if (e->first == NULL) e->last = &e->first;
            free(c);
        }
        if (c != NULL && (next_ns == 0 || c->due_ns < next_ns)) next_ns = c->due_ns;
    }
    return next_ns;
}

static void set_timer(int64_t at_ns)
{
    struct itimerspec t = {
        .it_value = {.tv_sec = at_ns / 1000000000, .tv_nsec = at_ns % 1000000000}};
    timerfd_settime(timer_fd, TFD_TIMER_ABSTIME, &t, NULL);
}

/* The pointer of an event is an end of a connection, or one of our own descriptors. */
static bool is_listener(const struct epoll_event *e, uint32_t *way)
{
    for (*way = 0; *way <= me->ways; (*way)++)
        if (e->data.ptr == &listeners[*way]) return true;
    return false;
}

_Noreturn static void relay(void)
{
    struct epoll_event events[64];
    uint64_t expired;
    crew_child();
    for (;;) {
        int n = epoll_wait(epoll_fd, events, 64, -1);
        for (int i = 0; i < n; i++) {
            uint32_t way;
            struct end *e = events[i].data.ptr;
            if (events[i].data.ptr == &timer_fd) {
                if (read(timer_fd, &expired, sizeof expired) < 0) continue;
            } else if (is_listener(&events[i], &way)) accept_on(way);
            else if (!e->hung_up) take_in(e);
        }
        set_timer(pass_on());
    }
}

/* ---- in the benchmark ---- */

static bool watch(int fd, void *as)
{
    struct epoll_event e = {.events = EPOLLIN, .data.ptr = as};
    return fd >= 0 && epoll_ctl(epoll_fd, EPOLL_CTL_ADD, fd, &e) == 0;
}

static int listen_anywhere(int *port)
{
    struct sockaddr_in a = {.sin_family = AF_INET};
    socklen_t size = sizeof a;
    a.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0 || bind(fd, (struct sockaddr *)&a, sizeof a) != 0 ||
        listen(fd, 64) != 0 || getsockname(fd, (struct sockaddr *)&a, &size) != 0)
        return -1;
    *port = ntohs(a.sin_port);
    return fd;
}

const char *relay_start(struct relay *r, int64_t delay)
{
    const char *wrong = NULL;
    me = r;
    delay_ns = delay;
    epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    timer_fd = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK);
    if (epoll_fd < 0 || !watch(timer_fd, &timer_fd)) wrong = strerror(errno);
    for (uint32_t i = 0; i <= r->ways && wrong == NULL; i++) {
        listeners[i] = listen_anywhere(i < r->ways ? &r->from[i] : &echo_port);
        if (!watch(listeners[i], &listeners[i])) wrong = strerror(errno);
    }
    if (wrong == NULL && (r->pid = fork()) == 0) relay();
    if (wrong == NULL && r->pid < 0) wrong = "cannot fork";
    close(epoll_fd);
    close(timer_fd);
    for (uint32_t i = 0; i <= r->ways; i++) close(listeners[i]);
    return wrong;
}

void relay_stop(struct relay *r)
{
    if (r->pid <= 0) return;
    kill(r->pid, SIGKILL);
    while (waitpid(r->pid, NULL, 0) < 0 && errno == EINTR) {}
    r->pid = 0;
}

const char *relay_round_trip(const struct relay *r, uint32_t way, uint32_t bytes,
                             uint32_t times, double *median_us)
{
    static struct times all;
    static char message[1024];
    struct line l = {.fd = line_connect(r->from[way])};
    const char *wrong = l.fd < 0 ? strerror(errno) : NULL;
    if (bytes > sizeof message) bytes = sizeof message;
    times_clear(&all);
    for (uint32_t i = 0; i < times && wrong == NULL; i++) {
        int64_t began_ns = now_ns();
        wrong = line_send(l.fd, message, bytes);
        l.from = l.to = 0;
        while (wrong == NULL && l.to < bytes) wrong = line_more(&l, STALL_MS);
        times_add(&all, now_ns() - began_ns);
    }
    if (l.fd >= 0) close(l.fd);
    free(l.bytes);
    *median_us = times_us(&all, 0.5);
    return wrong;
}
