#include "load.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "process.h"
#include "times.h"

#define COMMAND_BYTES_MAX 256u
#define INPUT_BYTES 16384u
#define FILL_DEPTH 256u
#define STALL_MS 60000 /* The timeout for a reply. */

/* One command: its bytes, and the position of the digits of its key. */
struct command {
    char bytes[COMMAND_BYTES_MAX];
    size_t n;
};

/* A connection and its current batch. */
struct lane {
    int fd;
    bool releasing;
    uint32_t replies; /* Missing replies. */
    int64_t began_ns;
    int64_t fences[LOAD_DEPTH_MAX];
    uint32_t number; /* Of the connection, 0 is the first. */
    uint64_t next;   /* Number of its next key. */
    uint64_t base;   /* Number of the first key of the current batch. */
    size_t have;     /* Bytes of an incomplete reply. */
    char input[INPUT_BYTES];
};

struct load {
    enum subject_kind kind;
    char script[48];
    uint32_t connections, depth;
    bool fresh;
    int64_t lease_ms;
    int epoll;
    uint32_t active;
    int64_t until_ns;
    uint64_t pairs;
    uint64_t random;
    struct times *times; /* Of pairs. */
    struct lane *lanes;
    char output[LOAD_DEPTH_MAX * COMMAND_BYTES_MAX];
};

/* ---- commands ---- */

void load_key(char out[LOAD_KEY_BYTES + 1], uint64_t number)
{
    memcpy(out, "lock:000000000000", LOAD_KEY_BYTES + 1);
    for (char *at = out + LOAD_KEY_BYTES; number > 0; number /= 10)
        *--at = (char)('0' + number % 10);
}

static void value_of(char out[LOAD_VALUE_BYTES + 1], uint64_t number)
{
    memcpy(out, "holder-000000000000000", LOAD_VALUE_BYTES + 1);
    for (char *at = out + LOAD_VALUE_BYTES; number > 0; number /= 10)
        *--at = (char)('0' + number % 10);
}

static char *put(char *at, const char *bytes, size_t n)
{
    memcpy(at, bytes, n);
    return at + n;
}

#define PUT(at, text) put(at, text, sizeof(text) - 1)

/* A number as an argument of a command. */
static char *put_number(char *at, int64_t number)
{
    char digits[24];
    int n = 0;
    do digits[sizeof digits - (size_t)++n] = (char)('0' + number % 10);
    while ((number /= 10) > 0);
    *at++ = '$';
    if (n >= 10) *at++ = (char)('0' + n / 10);
    *at++ = (char)('0' + n % 10);
    at = PUT(at, "\r\n");
    at = put(at, digits + sizeof digits - n, (size_t)n);
    return PUT(at, "\r\n");
}

/* ACQUIRE key LEASE ms VALUE v, or SET key v NX PX ms. */
static char *put_acquire(char *at, enum subject_kind kind, uint64_t key,
                         int64_t lease_ms)
{
    char name[LOAD_KEY_BYTES + 1], value[LOAD_VALUE_BYTES + 1];
    load_key(name, key);
    value_of(value, key);
    at = kind == REDIS ? PUT(at, "*6\r\n$3\r\nSET\r\n$17\r\n")
                       : PUT(at, "*6\r\n$7\r\nACQUIRE\r\n$17\r\n");
    at = put(at, name, LOAD_KEY_BYTES);
    if (kind == REDIS) {
        at = PUT(at, "\r\n$22\r\n");
        at = put(at, value, LOAD_VALUE_BYTES);
        at = PUT(at, "\r\n$2\r\nNX\r\n$2\r\nPX\r\n");
        return put_number(at, lease_ms);
    }
    at = PUT(at, "\r\n$5\r\nLEASE\r\n");
    at = put_number(at, lease_ms);
    at = PUT(at, "$5\r\nVALUE\r\n$22\r\n");
    at = put(at, value, LOAD_VALUE_BYTES);
    return PUT(at, "\r\n");
}

/* RELEASE key fence, or EVALSHA script 1 key v. */
static char *put_release(char *at, const struct load *l, uint64_t key, int64_t fence)
{
    char name[LOAD_KEY_BYTES + 1], value[LOAD_VALUE_BYTES + 1];
    load_key(name, key);
    if (l->kind != REDIS) {
        at = PUT(at, "*3\r\n$7\r\nRELEASE\r\n$17\r\n");
        at = put(at, name, LOAD_KEY_BYTES);
        at = PUT(at, "\r\n");
        return put_number(at, fence);
    }
    value_of(value, key);
    at = PUT(at, "*5\r\n$7\r\nEVALSHA\r\n$40\r\n");
    at = put(at, l->script, 40);
    at = PUT(at, "\r\n$1\r\n1\r\n$17\r\n");
    at = put(at, name, LOAD_KEY_BYTES);
    at = PUT(at, "\r\n$22\r\n");
    at = put(at, value, LOAD_VALUE_BYTES);
    return PUT(at, "\r\n");
}

/* The expected reply: the lock was granted, or released. */
static bool acquired(enum subject_kind kind, const char *reply)
{
    return kind == OURS ? reply[0] == '*' && reply[1] == '5' : reply[0] == '+';
}

static bool released(enum subject_kind kind, const char *reply)
{
    return kind == EMPTY ? reply[0] == '+' : reply[0] == ':' && reply[1] == '1';
}

static const char *unexpected(enum subject_kind kind, const char *what,
                              const char *reply)
{
    static char said[200];
    snprintf(said, sizeof said, "%s: the reply to %s was %.*s", subject_names[kind],
             what, (int)strcspn(reply, "\r\n"), reply);
    return said;
}

/* ---- a connection's turn ---- */

/* Each connection has its own keys: 32 keys that it uses repeatedly, or always new
 * ones. */
static uint64_t key_of(const struct lane *lane, uint32_t i)
{
    return lane->base + i;
}

static const char *send_acquires(struct load *l, struct lane *lane)
{
    char *at = l->output;
    lane->base = (uint64_t)(lane->number + 1) * 10000000 + 900000000000;
    if (l->fresh) {
        l->random ^= l->random << 13;
        l->random ^= l->random >> 7;
        l->random ^= l->random << 17;
        lane->base += l->random % 9000000;
    } else if (l->depth == 1) lane->base += lane->next++ % LOAD_DEPTH_MAX;
    for (uint32_t i = 0; i < l->depth; i++)
        at = put_acquire(at, l->kind, key_of(lane, i), l->lease_ms);
    lane->releasing = false;
    lane->replies = l->depth;
    lane->began_ns = now_ns();
    return line_send(lane->fd, l->output, (size_t)(at - l->output));
}

static const char *send_releases(struct load *l, struct lane *lane)
{
    char *at = l->output;
    for (uint32_t i = 0; i < l->depth; i++)
        at = put_release(at, l, key_of(lane, i), lane->fences[i]);
    lane->releasing = true;
    lane->replies = l->depth;
    return line_send(lane->fd, l->output, (size_t)(at - l->output));
}

/* All replies of a write have arrived. */
static const char *go_on(struct load *l, struct lane *lane)
{
    if (!lane->releasing) return send_releases(l, lane);
    int64_t now = now_ns();
    times_add(l->times, now - lane->began_ns);
    l->pairs += l->depth;
    if (now < l->until_ns) return send_acquires(l, lane);
    l->active--;
    return NULL;
}

static const char *take_reply(struct load *l, struct lane *lane, const char *reply,
                              int64_t number)
{
    if (lane->replies == 0) return unexpected(l->kind, "nothing", reply);
    uint32_t i = l->depth - lane->replies--;
    if (lane->releasing) {
        if (!released(l->kind, reply)) return unexpected(l->kind, "a release", reply);
        return NULL;
    }
    if (!acquired(l->kind, reply)) return unexpected(l->kind, "an acquire", reply);
    /* The empty server returns no fence, so use one of the usual length. */
    lane->fences[i] = l->kind == OURS ? number : 1700000000000000;
    return NULL;
}

static const char *receive(struct load *l, struct lane *lane)
{
    ssize_t n = recv(lane->fd, lane->input + lane->have, INPUT_BYTES - lane->have,
                     MSG_DONTWAIT);
    if (n == 0) return "a server has closed the connection";
    if (n < 0) return errno == EAGAIN || errno == EINTR ? NULL : strerror(errno);
    lane->have += (size_t)n;
    const char *at = lane->input, *end = at + lane->have, *next;
    int64_t number = 0;
    while ((next = reply_end(at, end, &number)) != NULL) {
        const char *wrong = take_reply(l, lane, at, number);
        if (wrong != NULL) return wrong;
        at = next;
    }
    lane->have = (size_t)(end - at);
    if (lane->have > 0) memmove(lane->input, at, lane->have);
    return lane->replies == 0 ? go_on(l, lane) : NULL;
}

static const char *begin_all(struct load *l)
{
    const char *wrong = NULL;
    l->active = l->connections;
    for (uint32_t i = 0; i < l->connections && wrong == NULL; i++)
        wrong = send_acquires(l, &l->lanes[i]);
    return wrong;
}

const char *load_run(struct load *l, int64_t run_ns, struct load_result *out)
{
    struct epoll_event events[64];
    int64_t began_ns = now_ns();
    times_clear(l->times);
    l->pairs = 0;
    l->until_ns = began_ns + run_ns;
    const char *wrong = begin_all(l);
    while (wrong == NULL && l->active > 0) {
        int n = epoll_wait(l->epoll, events, 64, STALL_MS);
        if (interrupted()) return "interrupted";
        if (n == 0) return unexpected(l->kind, "a command", "nothing");
        for (int i = 0; i < n && wrong == NULL; i++)
            wrong = receive(l, events[i].data.ptr);
    }
    *out = (struct load_result){.pairs = l->pairs,
                                .ns = now_ns() - began_ns,
                                .median_us = times_us(l->times, 0.5),
                                .p99_us = times_us(l->times, 0.99)};
    return wrong;
}

/* ---- opening ---- */

static const char *open_lane(struct load *l, const struct subject *s, uint32_t i)
{
    struct lane *lane = &l->lanes[i];
    struct epoll_event e = {.events = EPOLLIN, .data.ptr = lane};
    lane->number = i;
    lane->fd = line_connect(s->port);
    if (lane->fd < 0) return strerror(errno);
    return epoll_ctl(l->epoll, EPOLL_CTL_ADD, lane->fd, &e) == 0 ? NULL
                                                                 : strerror(errno);
}

const char *load_open(struct load **out, const struct subject *s, uint32_t connections,
                      uint32_t depth, bool fresh)
{
    const char *wrong = NULL;
    struct load *l = calloc(1, sizeof *l);
    *out = l;
    if (l == NULL) return "no memory";
    *l = (struct load){
        .kind = s->kind, .depth = depth, .fresh = fresh, .lease_ms = 30000};
    memcpy(l->script, s->script, sizeof l->script);
    l->random = 0x9e3779b97f4a7c15ull;
    l->epoll = epoll_create1(EPOLL_CLOEXEC);
    l->times = calloc(1, sizeof *l->times);
    l->lanes = calloc(connections, sizeof *l->lanes);
    if (l->epoll < 0 || l->times == NULL || l->lanes == NULL) wrong = "no memory";
    for (; wrong == NULL && l->connections < connections; l->connections++)
        wrong = open_lane(l, s, l->connections);
    if (wrong == NULL) return NULL;
    load_close(l);
    *out = NULL;
    return wrong;
}

void load_lease(struct load *l, int64_t lease_ms)
{
    l->lease_ms = lease_ms;
}

void load_close(struct load *l)
{
    if (l == NULL) return;
    for (uint32_t i = 0; i < l->connections; i++) close(l->lanes[i].fd);
    if (l->epoll >= 0) close(l->epoll);
    free(l->times);
    free(l->lanes);
    free(l);
}

/* ---- filling ---- */

static const char *fill_replies(struct subject *s, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++) {
        const char *reply;
        size_t bytes;
        const char *wrong = line_reply(&s->line, STALL_MS, &reply, &bytes);
        if (wrong != NULL) return wrong;
        if (!acquired(s->kind, reply)) return unexpected(s->kind, "an acquire", reply);
    }
    return NULL;
}

/* Send the next batch before the replies of the previous one are read. */
const char *load_fill(struct subject *s, const struct load_fill *f)
{
    static char output[FILL_DEPTH * COMMAND_BYTES_MAX];
    const char *wrong = NULL;
    uint32_t before = 0, n = 0;
    for (uint64_t key = f->from; wrong == NULL && (key < f->to || before > 0);
         key += n) {
        int64_t lease_ms = f->until_ns != 0 ? (f->until_ns - now_ns()) / 1000000
                                            : f->lease_ms;
        char *at = output;
        for (n = 0; n < FILL_DEPTH && key + n < f->to; n++)
            at = put_acquire(at, s->kind, key + n, lease_ms);
        wrong = line_send(s->line.fd, output, (size_t)(at - output));
        if (wrong == NULL) wrong = fill_replies(s, before);
        before = n;
    }
    return wrong;
}
