#include "server/net/input.h"

#include <errno.h>
#include <sys/epoll.h>

#include "server/net/conn.h"

#define SLOW_A_TURN 16 /* Maximum connections of the slow set per loop iteration. */
/* How long one loop iteration takes connections from the prompt set. */
#define PROMPT_NS 500000u
/* After this many connections, write the journal and send the replies. One write for several
 * connections costs less than one for each, and no client waits long for its reply. */
#define CONNS_A_SETTLE 16u

/* Discard the events that were already fetched for this connection. */
static void leave_batch(struct sl_input_set *set, const struct conn *c)
{
    for (uint32_t i = set->at; i < set->n; i++)
        if (set->batch[i].conn == c) set->batch[i].conn = NULL;
}

static bool change(struct conn *c, int what)
{
    struct epoll_event e = {.events = EPOLLIN | EPOLLRDHUP, .data.ptr = c};
    return epoll_ctl(c->server->input[c->input.class].fd, what, c->fd, &e) == 0;
}

bool sl_input_watch(struct conn *c, bool yes)
{
    c->input.watched = yes;
    if (yes) return change(c, EPOLL_CTL_ADD);
    leave_batch(&c->server->input[c->input.class], c);
    change(c, EPOLL_CTL_DEL);
    return true;
}

bool sl_input_move(struct conn *c, enum sl_input_class to)
{
    bool reading = c->input.watched;
    if (c->input.class == to) return true;
    if (reading) sl_input_watch(c, false);
    c->input.class = (uint8_t)to;
    return !reading || sl_input_watch(c, true);
}

/* If the kernel is out of memory, the server notices the close when it reads from the socket. */
void sl_input_holds(struct conn *c)
{
    struct epoll_event e = {.events = EPOLLRDHUP | EPOLLET, .data.ptr = c};
    if (c->proxy != NULL || c->input.holds) return;
    c->input.holds = true;
    epoll_ctl(c->server->holders_fd, EPOLL_CTL_ADD, c->fd, &e);
}

bool sl_input_holders_left(struct server *s)
{
    struct epoll_event events[SL_INPUT_BATCH];
    int n = SL_INPUT_BATCH;
    /* Nothing was read since the last poll. If a peer closed its connection before the current
     * request was sent, that was before the poll. */
    if (s->holders_asked == s->inputs) n = 0;
    s->holders_asked = s->inputs;
    while (n == SL_INPUT_BATCH) {
        n = epoll_wait(s->holders_fd, events, SL_INPUT_BATCH, 0);
        for (int i = 0; i < n; i++) {
            struct conn *c = events[i].data.ptr;
            if (!c->input.left) s->left_count++;
            c->input.left = true;
        }
    }
    return s->left_count > 0;
}

/* The kernel removes the socket from the set when it is closed. */
void sl_input_forget(struct conn *c)
{
    if (c->input.left) c->server->left_count--;
    c->input.left = false;
    c->server->all_stay = UINT64_MAX;
    if (c->input.watched) leave_batch(&c->server->input[c->input.class], c);
    c->input.watched = false;
}

static void fetch(struct sl_input_set *set)
{
    struct epoll_event events[SL_INPUT_BATCH];
    int n = epoll_wait(set->fd, events, (int)set->batch_max, 0);
    set->at = set->n = 0;
    for (int i = 0; i < n; i++, set->n++) {
        set->batch[i].conn = events[i].data.ptr;
        set->batch[i].ended = (events[i].events & (EPOLLRDHUP | EPOLLHUP | EPOLLERR)) !=
                              0;
    }
}

/* Connections that do not fit into this loop iteration stay in the batch. The set is then still
 * readable, so this is called again in the next loop iteration. */
static void on_readable(uv_poll_t *watch, int status, int events)
{
    struct server *s = watch->data;
    struct sl_input_set *set = (struct sl_input_set *)watch;
    (void)status;
    (void)events;
    if (set->at == set->n) fetch(set);
    uint64_t begin_ns = 0; /* When the first connection was served. */
    uint32_t served = 0;   /* Since the last call of sl_server_settle(). */
    while (set->at < set->n &&
           (begin_ns == 0 || s->now_ns - begin_ns < set->share_ns)) {
        struct conn *c = set->batch[set->at].conn;
        bool ended = set->batch[set->at++].ended;
        if (c == NULL) continue;
        sl_conn_has_input(c, ended);
        if (begin_ns == 0) begin_ns = s->now_ns;
        if (++served < CONNS_A_SETTLE) continue;
        sl_server_settle(s);
        served = 0;
    }
    if (served > 0) sl_server_settle(s);
}

int sl_input_start(struct server *s)
{
    s->holders_fd = epoll_create1(EPOLL_CLOEXEC);
    if (s->holders_fd < 0) return uv_translate_sys_error(errno);
    for (int i = 0; i < SL_INPUT_CLASSES; i++) {
        struct sl_input_set *set = &s->input[i];
        set->batch_max = i == SL_SLOW ? SLOW_A_TURN : SL_INPUT_BATCH;
        set->share_ns = i == SL_SLOW ? SL_SHARE_NS : PROMPT_NS;
        set->fd = epoll_create1(EPOLL_CLOEXEC);
        if (set->fd < 0) return uv_translate_sys_error(errno);
        int status = uv_poll_init(s->loop, &set->watch, set->fd);
        if (status != 0) return status;
        set->watch.data = s;
        uv_poll_start(&set->watch, UV_READABLE, on_readable);
    }
    return 0;
}
