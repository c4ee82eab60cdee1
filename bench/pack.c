#include "pack.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "http.h"
#include "process.h"

#define REQUEST_BYTES 512u
#define INPUT_BYTES 8192u
#define STALL_MS 60000       /* The timeout for a reply. */
#define ETCD_LEASE_S "86400" /* Longer than any run. */

/* A client. Its requests do not change, except for the fence. */
struct client {
    int fd;
    bool releasing;
    bool again; /* The request is a retry; see too_late(). */
    int64_t began_ns;
    char key[32];
    char acquire[REQUEST_BYTES], release[REQUEST_BYTES];
    size_t acquire_bytes, release_bytes;
    size_t have; /* Bytes of an incomplete reply. */
    char input[INPUT_BYTES];
};

struct pack {
    enum subject_kind kind;
    uint32_t count, active;
    int epoll;
    int64_t until_ns;
    uint64_t pairs, again;
    struct times acquires, whole;
    struct client *clients;
};

static const char *unexpected(const struct pack *p, const struct client *c,
                              const char *reply)
{
    static char said[300];
    snprintf(said, sizeof said, "%s: the reply to %s was %.*s", subject_names[p->kind],
             c->releasing ? "a release" : "an acquire", (int)strcspn(reply, "\r"),
             reply);
    return said;
}

/* ---- Sluice ---- */

static void ours_prepare(struct client *c, uint32_t lease_ms)
{
    char lease[12];
    int digits = snprintf(lease, sizeof lease, "%u", lease_ms);
    c->acquire_bytes = (size_t)snprintf(
        c->acquire, sizeof c->acquire,
        "*6\r\n$7\r\nACQUIRE\r\n$%zu\r\n%s\r\n$5\r\nLEASE\r\n$%d\r\n%s\r\n"
        "$4\r\nWAIT\r\n$5\r\n60000\r\n",
        strlen(c->key), c->key, digits, lease);
}

/* Returns the end of a reply, or NULL if it is incomplete. *good says whether it is
 * the expected one. */
static const char *ours_reply(struct client *c, const char *end, bool *good)
{
    int64_t number = 0;
    char fence[24];
    const char *at = c->input, *next = reply_end(at, end, &number);
    if (next == NULL) return NULL;
    if (c->releasing) {
        *good = at[0] == ':' && (at[1] == '1' || (c->again && at[1] == '0'));
        return next;
    }
    *good = at[0] == '*' && at[1] == '5';
    int digits = snprintf(fence, sizeof fence, "%lld", (long long)number);
    c->release_bytes = (size_t)snprintf(
        c->release, sizeof c->release,
        "*3\r\n$7\r\nRELEASE\r\n$%zu\r\n%s\r\n$%d\r\n%s\r\n", strlen(c->key), c->key,
        digits, fence);
    return next;
}

/* ---- etcd ---- */

/* Each client has a lease for all its locks. Its creation is not measured. */
static const char *etcd_prepare(struct client *c, struct line *l)
{
    char json[256], lease[32], name[64];
    const char *body;
    const char *wrong = http_ask(l, "/v3/lease/grant", "{\"TTL\":" ETCD_LEASE_S "}",
                                 &body);
    if (wrong != NULL) return wrong;
    if (!json_find(body, "ID", lease, sizeof lease)) return "etcd grants no lease";
    base64(name, sizeof name, c->key, strlen(c->key));
    snprintf(json, sizeof json, "{\"name\":\"%s\",\"lease\":\"%s\"}", name, lease);
    c->acquire_bytes = http_post(c->acquire, sizeof c->acquire, "/v3/lock/lock", json);

    /* The name of a held lock consists of the lock and the lease, so it does not
     * change. */
    char key[96], coded[160];
    snprintf(key, sizeof key, "%s/%llx", c->key, strtoull(lease, NULL, 10));
    base64(coded, sizeof coded, key, strlen(key));
    snprintf(json, sizeof json, "{\"key\":\"%s\"}", coded);
    c->release_bytes = http_post(c->release, sizeof c->release, "/v3/lock/unlock",
                                 json);
    return c->acquire_bytes > 0 && c->release_bytes > 0 ? NULL : "a key is too long";
}

static const char *etcd_reply(struct client *c, const char *end, bool *good)
{
    int status;
    const char *body;
    const char *next = http_end(c->input, end, &status, &body);
    if (next == NULL) return NULL;
    *good = status == 200;
    if (*good && !c->releasing) {
        /* The key that the client will release. */
        const char *ours = strstr(c->release, "\r\n\r\n{") + 5;
        *good = memmem(body, (size_t)(next - body), ours, strlen(ours) - 1) != NULL;
    }
    return next;
}

/* ---- a client's turn ---- */

static const char *ask(struct client *c)
{
    if (c->releasing) return line_send(c->fd, c->release, c->release_bytes);
    return line_send(c->fd, c->acquire, c->acquire_bytes);
}

static const char *begin(struct client *c)
{
    c->releasing = c->again = false;
    c->began_ns = now_ns();
    return ask(c);
}

/* A busy node may reply too late, and a busy keeper may renew its authority too
 * late. Then the client sends the command again. */
static bool too_late(const struct client *c)
{
    return strncmp(c->input, "-NOQUORUM", 9) == 0 ||
           strncmp(c->input, "-NOKEEPER", 9) == 0;
}

static const char *go_on(struct pack *p, struct client *c)
{
    int64_t now = now_ns();
    if (!c->releasing) {
        times_add(&p->acquires, now - c->began_ns);
        c->releasing = true;
        c->again = false;
        return ask(c);
    }
    times_add(&p->whole, now - c->began_ns);
    p->pairs++;
    if (now < p->until_ns) return begin(c);
    p->active--;
    return NULL;
}

static const char *receive(struct pack *p, struct client *c)
{
    bool good = false;
    ssize_t n = recv(c->fd, c->input + c->have, INPUT_BYTES - 1 - c->have,
                     MSG_DONTWAIT);
    if (n == 0) return "a server has closed the connection";
    if (n < 0) return errno == EAGAIN || errno == EINTR ? NULL : strerror(errno);
    c->have += (size_t)n;
    c->input[c->have] = '\0';
    const char *end = c->input + c->have;
    const char *next = p->kind == NODE ? ours_reply(c, end, &good)
                                       : etcd_reply(c, end, &good);
    if (next == NULL) return c->have < INPUT_BYTES - 1 ? NULL : "a reply is too long";
    c->have = 0;
    if (next == end && good) return go_on(p, c);
    bool over = now_ns() > p->until_ns + (int64_t)STALL_MS * 1000000;
    if (next != end || !too_late(c) || over) return unexpected(p, c, c->input);
    c->again = true;
    p->again++;
    return ask(c);
}

const char *pack_run(struct pack *p, int64_t run_ns, struct trial_result *out)
{
    struct epoll_event events[64];
    int64_t began_ns = now_ns();
    const char *wrong = NULL;
    times_clear(&p->acquires);
    times_clear(&p->whole);
    p->pairs = p->again = 0;
    p->until_ns = began_ns + run_ns;
    p->active = p->count;
    for (uint32_t i = 0; i < p->count && wrong == NULL; i++)
        wrong = begin(&p->clients[i]);
    while (wrong == NULL && p->active > 0) {
        int n = epoll_wait(p->epoll, events, 64, STALL_MS);
        if (interrupted()) return "interrupted";
        if (n == 0) return unexpected(p, &p->clients[0], "nothing");
        for (int i = 0; i < n && wrong == NULL; i++)
            wrong = receive(p, events[i].data.ptr);
    }
    *out = (struct trial_result){.rounds = p->pairs,
                                 .ns = now_ns() - began_ns,
                                 .acquire_us = times_us(&p->acquires, 0.5),
                                 .median_us = times_us(&p->whole, 0.5),
                                 .p99_us = times_us(&p->whole, 0.99),
                                 .again = p->again};
    return wrong;
}

/* ---- opening ---- */

static const char *open_client(struct pack *p, struct trio *t, struct subject *at,
                               struct client *c, uint32_t lease_ms)
{
    struct epoll_event e = {.events = EPOLLIN, .data.ptr = c};
    const char *wrong = NULL;
    if (t->want.kind == NODE) ours_prepare(c, lease_ms);
    else wrong = etcd_prepare(c, &at->line);
    if (wrong != NULL) return wrong;
    c->fd = line_connect(at->port);
    if (c->fd < 0 || epoll_ctl(p->epoll, EPOLL_CTL_ADD, c->fd, &e) != 0)
        return strerror(errno);
    return NULL;
}

/* The server of the i-th client. */
static uint32_t place_of(const struct trio *t, enum pack_at at, uint32_t i)
{
    switch (at) {
        case PACK_BEST: return t->best;
        case PACK_ANOTHER: return (t->best + 1) % TRIO;
        default: return i % TRIO;
    }
}

const char *pack_open(struct pack **out, struct trio *t, const struct pack_want *want)
{
    static uint32_t number; /* No two packs have a key in common. */
    const char *wrong = NULL;
    struct pack *p = calloc(1, sizeof *p);
    *out = p;
    if (p == NULL) return "no memory";
    number++;
    p->kind = t->want.kind;
    p->clients = calloc(want->clients, sizeof *p->clients);
    p->epoll = epoll_create1(EPOLL_CLOEXEC);
    if (p->clients == NULL || p->epoll < 0) wrong = "no memory";
    else p->count = want->clients;
    for (uint32_t i = 0; i < p->count; i++) p->clients[i].fd = -1;
    for (uint32_t i = 0; i < p->count && wrong == NULL; i++) {
        struct client *c = &p->clients[i];
        snprintf(c->key, sizeof c->key, "lock:%04u%08u", number % 10000,
                 want->one_key ? 0 : i);
        wrong = open_client(p, t, &t->members[place_of(t, want->at, i)], c,
                            want->lease_ms);
    }
    if (wrong == NULL) return NULL;
    pack_close(p);
    *out = NULL;
    return wrong;
}

void pack_close(struct pack *p)
{
    if (p == NULL) return;
    for (uint32_t i = 0; i < p->count; i++)
        if (p->clients[i].fd >= 0) close(p->clients[i].fd);
    if (p->epoll >= 0) close(p->epoll);
    free(p->clients);
    free(p);
}
