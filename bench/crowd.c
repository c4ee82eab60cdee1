#include "crowd.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "process.h"

#define OUTPUT_BYTES 8192u
#define INPUT_BYTES 8192u
#define STALL_MS 60000 /* The timeout for a reply. */

struct member {
    int fd;
    uint32_t number;
    uint64_t round; /* The number of rounds that it has started. */
    uint32_t step;
    uint32_t awaited; /* Replies. */
    int64_t began_ns;
    size_t have; /* Bytes of an incomplete reply. */
    char input[INPUT_BYTES];
};

struct crowd {
    enum crowd_work work;
    uint32_t count, active;
    int epoll;
    int64_t until_ns;
    uint64_t rounds;
    struct times times;
    struct member *members;
};

void crowd_row(uint32_t client, uint64_t n, char key[CROWD_KEY_BYTES + 1],
               char value[CROWD_VALUE_BYTES + 1])
{
    snprintf(key, CROWD_KEY_BYTES + 1, "row:%05u%08u", client % 100000u,
             (uint32_t)(n % CROWD_KEYS));
    snprintf(value, CROWD_VALUE_BYTES + 1, "value:%016llu", (unsigned long long)n);
}

/* ---- steps ---- */

/* The data to write. */
struct output {
    size_t n;
    uint32_t commands;
    char bytes[OUTPUT_BYTES];
};

static void put(struct output *o, int count, const char *const *at)
{
    char *end = o->bytes + OUTPUT_BYTES;
    char *to = o->bytes + o->n;
    to += snprintf(to, (size_t)(end - to), "*%d\r\n", count);
    for (int i = 0; i < count; i++)
        to += snprintf(to, (size_t)(end - to), "$%zu\r\n%s\r\n", strlen(at[i]), at[i]);
    o->n = (size_t)(to - o->bytes);
    o->commands++;
}

#define PUT(o, ...)                                                       \
    put(o, (int)(sizeof((const char *[]){__VA_ARGS__}) / sizeof(char *)), \
        (const char *[]){__VA_ARGS__})

/* The three commands of a transaction that writes one row; `which` of them as bits. */
static void put_commit(struct output *o, const struct member *m, uint32_t which)
{
    char key[CROWD_KEY_BYTES + 1], value[CROWD_VALUE_BYTES + 1];
    crowd_row(m->number, m->round, key, value);
    if (which & 1) PUT(o, "TX.BEGIN");
    if (which & 2) PUT(o, "TX.PUT", "t", key, value);
    if (which & 4) PUT(o, "TX.COMMIT");
}

/* This many lock commands, starting with this one. */
static void put_locks(struct output *o, const struct member *m, uint32_t from,
                      uint32_t count)
{
    char key[CROWD_KEY_BYTES + 1];
    for (uint32_t i = from; i < from + count; i++) {
        snprintf(key, sizeof key, "row:%05u%08u", m->number % 100000u, i % 100000000u);
        PUT(o, "TX.LOCK", "WRITE", "t", key);
    }
}

/* Write the client's current step; nothing if its round is complete. */
static void put_step(enum crowd_work work, const struct member *m, struct output *o)
{
    uint32_t by = work == CROWD_LOCKS ? 1 : CROWD_BY;
    o->n = o->commands = 0;
    if (work == CROWD_TOGETHER) {
        if (m->step == 0) put_commit(o, m, 7);
    } else if (work == CROWD_SINGLY) {
        if (m->step < 3) put_commit(o, m, 1u << m->step);
    } else if (m->step == 0) PUT(o, "TX.BEGIN");
    else if ((m->step - 1) * by < CROWD_LOCKS_EACH)
        put_locks(o, m, (m->step - 1) * by, by);
    else if ((m->step - 1) * by == CROWD_LOCKS_EACH) PUT(o, "TX.ABORT");
}

/* ---- a client's turn ---- */

static const char *send_step(struct crowd *c, struct member *m)
{
    static struct output o; /* One thread. */
    put_step(c->work, m, &o);
    m->awaited = o.commands;
    return o.commands > 0 ? line_send(m->fd, o.bytes, o.n) : NULL;
}

static const char *begin(struct crowd *c, struct member *m)
{
    m->round++;
    m->step = 0;
    m->began_ns = now_ns();
    return send_step(c, m);
}

/* All replies of a step have arrived. */
static const char *go_on(struct crowd *c, struct member *m)
{
    m->step++;
    const char *wrong = send_step(c, m);
    if (wrong != NULL || m->awaited > 0) return wrong;
    int64_t now = now_ns();
    times_add(&c->times, now - m->began_ns);
    c->rounds++;
    if (now < c->until_ns) return begin(c, m);
    c->active--;
    return NULL;
}

static const char *unexpected(const char *reply)
{
    static char said[300];
    snprintf(said, sizeof said, "Sluice: the reply to a command was %.*s",
             (int)strcspn(reply, "\r"), reply);
    return said;
}

/* Remove complete replies from the input. */
static const char *take_replies(struct member *m)
{
    const char *at = m->input, *end = m->input + m->have;
    for (const char *next; at < end; at = next) {
        int64_t number;
        next = reply_end(at, end, &number);
        if (next == NULL) break;
        if (*at == '-' || m->awaited == 0) return unexpected(at);
        m->awaited--;
    }
    m->have = (size_t)(end - at);
    memmove(m->input, at, m->have);
    return NULL;
}

static const char *receive(struct crowd *c, struct member *m)
{
    ssize_t n = recv(m->fd, m->input + m->have, INPUT_BYTES - 1 - m->have,
                     MSG_DONTWAIT);
    if (n == 0) return "Sluice: the server has closed the connection";
    if (n < 0) return errno == EAGAIN || errno == EINTR ? NULL : strerror(errno);
    m->have += (size_t)n;
    m->input[m->have] = '\0';
    const char *wrong = take_replies(m);
    if (wrong != NULL || m->awaited > 0) return wrong;
    return go_on(c, m);
}

const char *crowd_run(struct crowd *c, int64_t run_ns, struct trial_result *out)
{
    struct epoll_event events[64];
    int64_t began_ns = now_ns();
    const char *wrong = NULL;
    times_clear(&c->times);
    c->rounds = 0;
    c->until_ns = began_ns + run_ns;
    c->active = c->count;
    for (uint32_t i = 0; i < c->count && wrong == NULL; i++)
        wrong = begin(c, &c->members[i]);
    while (wrong == NULL && c->active > 0) {
        int n = epoll_wait(c->epoll, events, 64, STALL_MS);
        if (interrupted()) return "interrupted";
        if (n == 0) return "Sluice: the server does not respond";
        for (int i = 0; i < n && wrong == NULL; i++)
            wrong = receive(c, events[i].data.ptr);
    }
    *out = (struct trial_result){.rounds = c->rounds,
                                 .ns = now_ns() - began_ns,
                                 .median_us = times_us(&c->times, 0.5),
                                 .p99_us = times_us(&c->times, 0.99)};
    return wrong;
}

/* ---- opening ---- */

static const char *open_member(struct crowd *c, const struct subject *s, uint32_t i)
{
    struct member *m = &c->members[i];
    struct epoll_event e = {.events = EPOLLIN, .data.ptr = m};
    m->number = i;
    m->fd = line_connect(s->port);
    if (m->fd < 0 || epoll_ctl(c->epoll, EPOLL_CTL_ADD, m->fd, &e) != 0)
        return strerror(errno);
    return NULL;
}

const char *crowd_open(struct crowd **out, const struct subject *s, uint32_t clients,
                       enum crowd_work work)
{
    const char *wrong = NULL;
    struct crowd *c = calloc(1, sizeof *c);
    *out = c;
    if (c == NULL) return "no memory";
    c->work = work;
    c->members = calloc(clients, sizeof *c->members);
    c->epoll = epoll_create1(EPOLL_CLOEXEC);
    if (c->members == NULL || c->epoll < 0) wrong = "no memory";
    else c->count = clients;
    for (uint32_t i = 0; i < c->count; i++) c->members[i].fd = -1;
    for (uint32_t i = 0; i < c->count && wrong == NULL; i++)
        wrong = open_member(c, s, i);
    if (wrong == NULL) return NULL;
    crowd_close(c);
    *out = NULL;
    return wrong;
}

void crowd_close(struct crowd *c)
{
    if (c == NULL) return;
    for (uint32_t i = 0; i < c->count; i++)
        if (c->members[i].fd >= 0) close(c->members[i].fd);
    if (c->epoll >= 0) close(c->epoll);
    free(c->members);
    free(c);
}
