/* loop.c - moves bytes between the sockets and the engine, and carries out its orders. */
#include <errno.h>
#include <sys/epoll.h>
#include <sys/timerfd.h>
#include <time.h>
#include <unistd.h>

#include "client/remote/remote.h"

/* The number in the events of the timer. Events of a socket contain the number of its link. */
#define TIMER_NUMBER SL_ENGINE_LINKS
#define EVENTS 8
#define READS 16 /* Reads of one socket before the others have their turn. */

sl_ms sl_remote_now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_BOOTTIME, &t);
    return (sl_ms)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

int sl_remote_open_loop(struct sl_remote *s)
{
    s->timer_ms = SL_NEVER;
    s->epoll = epoll_create1(EPOLL_CLOEXEC);
    s->timer = timerfd_create(CLOCK_BOOTTIME, TFD_CLOEXEC | TFD_NONBLOCK);
    struct epoll_event e = {.events = EPOLLIN, .data.u32 = TIMER_NUMBER};
    for (uint32_t i = 0; i < SL_ENGINE_LINKS; i++)
        sl_socket_init(&s->sockets[i], s->epoll, i);
    if (s->epoll >= 0 && s->timer >= 0 &&
        epoll_ctl(s->epoll, EPOLL_CTL_ADD, s->timer, &e) == 0)
        return SLUICE_OK;
    sl_remote_close_loop(s);
    return SLUICE_EIO;
}

void sl_remote_close_loop(struct sl_remote *s)
{
    int why = errno;
    for (unsigned i = 0; i < SL_ENGINE_LINKS; i++) sl_socket_close(&s->sockets[i]);
    if (s->timer >= 0) close(s->timer);
    if (s->epoll >= 0) close(s->epoll);
    s->timer = s->epoll = -1;
    errno = why;
}

/* --- Orders ------------------------------------------------------------------- */

static void broken(struct sl_remote *s, unsigned link)
{
    struct sl_socket *k = &s->sockets[link];
    sl_socket_close(k);
    sl_engine_disconnected(&s->engine, sl_remote_now(), link, k->status, k->error);
}

static void connect_link(struct sl_remote *s, unsigned link, uint32_t at)
{
    if (sl_socket_connect(&s->sockets[link], &s->addresses[at], s->texts[at]) ==
        SL_SOCKET_CLOSED)
        broken(s, link);
}

/* Returns whether the engine may have new orders. */
static bool settle_link(struct sl_remote *s, unsigned link)
{
    struct sl_socket *k = &s->sockets[link];
    uint32_t at;
    if (sl_engine_wants_close(&s->engine, link)) sl_socket_close(k);
    if (sl_engine_wants_connect(&s->engine, link, &at)) {
        connect_link(s, link, at);
        return true;
    }
    if (k->state != SL_SOCKET_OPEN || k->wants_write) return false;
    /* The time must be read before the bytes are sent. */
    struct sl_bytes out = sl_engine_output(&s->engine, sl_remote_now(), link);
    if (out.n == 0) return false;
    ptrdiff_t sent = sl_socket_send(k, out);
    if (sent < 0) broken(s, link);
    else sl_engine_sent(&s->engine, link, (size_t)sent);
    return true;
}

static void end_calls(struct sl_remote *s)
{
    struct sl_ticket *t;
    while ((t = sl_engine_next_ticket(&s->engine)) != NULL) {
        struct sl_remote_call *c = sl_container_of(t, struct sl_remote_call, ticket);
        if (c->wakes != NULL) {
            sl_ticket_reported(t);
            pthread_cond_signal(c->wakes);
        } else sl_list_append(&s->callbacks, &c->node);
    }
    if (!s->event_loop && sl_remote_has_callbacks(s))
        pthread_cond_signal(&s->callback_ready);
    if (s->closing) pthread_cond_broadcast(&s->changed);
}

static void set_timer(struct sl_remote *s)
{
    sl_ms due = s->stops ? 1 : sl_engine_due(&s->engine);
    if (due == s->timer_ms) return;
    s->timer_ms = due;
    if (due < 1) due = 1; /* 0 would stop the timer. */
    struct itimerspec t = {0};
    if (due != SL_NEVER)
        t.it_value = (struct timespec){.tv_sec = (time_t)(due / 1000),
                                       .tv_nsec = (long)(due % 1000) * 1000000};
    timerfd_settime(s->timer, TFD_TIMER_ABSTIME, &t, NULL);
}

void sl_remote_settle(struct sl_remote *s)
{
    bool more;
    do {
        more = false;
        sl_engine_advance(&s->engine, sl_remote_now());
        for (unsigned i = 0; i < SL_ENGINE_LINKS; i++) more |= settle_link(s, i);
    } while (more);
    end_calls(s);
    set_timer(s);
}

/* --- Input ---------------------------------------------------------------------- */

/* Pass all whole replies to the engine, until it closes the connection. */
static void take_replies(struct sl_remote *s, unsigned link)
{
    struct sluice_reply *reply;
    int n;
    while (!s->engine.links[link].close &&
           (n = sl_socket_next(&s->sockets[link], &reply)) != 0) {
        if (n < 0) {
            broken(s, link);
            return;
        }
        sl_engine_received(&s->engine, sl_remote_now(), link, reply);
    }
}

static void receive(struct sl_remote *s, unsigned link)
{
    struct sl_socket *k = &s->sockets[link];
    for (int i = 0; i < READS && k->state == SL_SOCKET_OPEN; i++) {
        int n = sl_socket_receive(k);
        if (n == 0) return;
        if (n > 0) take_replies(s, link);
        else if (!s->engine.links[link].close) broken(s, link);
        if (n < 0 || s->engine.links[link].close) return;
    }
}

static void on_ready(struct sl_remote *s, unsigned link, uint32_t events)
{
    struct sl_socket *k = &s->sockets[link];
    if (k->state == SL_SOCKET_RESOLVES || k->state == SL_SOCKET_CONNECTS) {
        enum sl_socket_state state = sl_socket_continue(k);
        if (state == SL_SOCKET_OPEN)
            sl_engine_connected(&s->engine, sl_remote_now(), link);
        else if (state == SL_SOCKET_CLOSED) broken(s, link);
        return;
    }
    if (k->state != SL_SOCKET_OPEN || s->engine.links[link].close) return;
    if (events & EPOLLOUT) sl_socket_writable(k);
    if (events & (EPOLLIN | EPOLLHUP | EPOLLERR)) receive(s, link);
}

static void handle(struct sl_remote *s, const struct epoll_event *events, int n)
{
    for (int i = 0; i < n; i++) {
        uint64_t count;
        if (events[i].data.u32 < SL_ENGINE_LINKS)
            on_ready(s, events[i].data.u32, events[i].events);
        else if (read(s->timer, &count, sizeof count) > 0) s->timer_ms = SL_NEVER;
    }
    sl_remote_settle(s);
}

void sl_remote_poll(struct sl_remote *s)
{
    struct epoll_event events[EVENTS];
    handle(s, events, epoll_wait(s->epoll, events, EVENTS, 0));
}

void *sl_remote_io_thread(void *arg)
{
    struct sl_remote *s = arg;
    struct epoll_event events[EVENTS];
    bool stops = false;
    while (!stops) {
        int n = epoll_wait(s->epoll, events, EVENTS, -1);
        pthread_mutex_lock(&s->mutex);
        handle(s, events, n);
        stops = s->stops;
        pthread_mutex_unlock(&s->mutex);
    }
    return NULL;
}
