#include "relay_stage.h"

#include <arpa/inet.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "test.h"

enum { CONNECTIONS_MAX = 512, LATE_MAX = 16 };

static struct {
    int port, fd;
    char url[64];
    atomic_bool ends;
    pthread_t accepter, threads[CONNECTIONS_MAX];
    int thread_count;

    pthread_mutex_t lock;
    enum relay_way way;
    char words[64];
    int count, lost;
    char *late[LATE_MAX];
    size_t late_bytes[LATE_MAX];
    int late_count;
} relay = {.lock = PTHREAD_MUTEX_INITIALIZER};

static int connect_to_member(void)
{
    struct sockaddr_in a = {.sin_family = AF_INET,
                            .sin_port = htons((uint16_t)relay.port),
                            .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (connect(fd, (struct sockaddr *)&a, sizeof a) == 0) return fd;
    close(fd);
    return -1;
}

static bool send_all(int fd, const char *at, size_t n)
{
    while (n > 0) {
        ssize_t some = send(fd, at, n, MSG_NOSIGNAL);
        if (some <= 0) return false;
        at += some;
        n -= (size_t)some;
    }
    return true;
}

/* A connection: its requests come whole, answers go as they come. */
struct pair {
    int client, member;
    char *request;
    size_t n, room;
    bool loses; /* The answer that comes next. */
};

/* How long the request is; 0: it is not whole yet. */
static size_t whole(const struct pair *p)
{
    char *end = memmem(p->request, p->n, "\r\n\r\n", 4);
    if (end == NULL) return 0;
    size_t head = (size_t)(end - p->request) + 4, body = 0;
    *end = '\0';
    const char *length = strcasestr(p->request, "content-length:");
    if (length != NULL) body = strtoul(length + 15, NULL, 10);
    *end = '\r';
    return p->n >= head + body ? head + body : 0;
}

static enum relay_way way_of(const struct pair *p, size_t n)
{
    enum relay_way way = RELAY_PASS;
    pthread_mutex_lock(&relay.lock);
    if (relay.way != RELAY_PASS && relay.count != 0 &&
        memmem(p->request, n, relay.words, strlen(relay.words)) != NULL) {
        way = relay.way;
        if (relay.count > 0) relay.count--;
        if (way != RELAY_LOSE_ANSWER) relay.lost++; /* That has to come first. */
    }
    if (way == RELAY_LATE && relay.late_count < LATE_MAX) {
        char *copy = malloc(n);
        memcpy(copy, p->request, n);
        relay.late[relay.late_count] = copy;
        relay.late_bytes[relay.late_count++] = n;
    }
    pthread_mutex_unlock(&relay.lock);
    return way;
}

/* False: the connection ends. */
static bool take_requests(struct pair *p)
{
    size_t n;
    if (p->room - p->n < 65536) p->request = realloc(p->request, p->room += 1 << 20);
    ssize_t some = recv(p->client, p->request + p->n, p->room - p->n - 1, 0);
    if (some <= 0) return false;
    p->n += (size_t)some;
    while ((n = whole(p)) > 0) {
        enum relay_way way = way_of(p, n);
        if (way == RELAY_LOSE_REQUEST || way == RELAY_LATE) return false;
        if (way == RELAY_LOSE_ANSWER) p->loses = true;
        if (way != RELAY_SILENT && !send_all(p->member, p->request, n)) return false;
        memmove(p->request, p->request + n, p->n - n);
        p->n -= n;
    }
    return true;
}

static bool take_answer(struct pair *p)
{
    char bytes[65536];
    ssize_t some = recv(p->member, bytes, sizeof bytes, 0);
    if (p->loses) {
        pthread_mutex_lock(&relay.lock);
        relay.lost++;
        pthread_mutex_unlock(&relay.lock);
    }
    if (some <= 0 || p->loses) return false;
    return send_all(p->client, bytes, (size_t)some);
}

static void *serve(void *of)
{
    struct pair p = {.client = (int)(intptr_t)of, .member = connect_to_member()};
    struct pollfd f[2] = {{p.client, POLLIN, 0}, {p.member, POLLIN, 0}};
    bool goes_on = p.member >= 0;
    while (goes_on && !atomic_load(&relay.ends)) {
        if (poll(f, 2, 20) <= 0) continue;
        if (f[1].revents != 0) goes_on = take_answer(&p);
        if (goes_on && f[0].revents != 0) goes_on = take_requests(&p);
    }
    close(p.client);
    if (p.member >= 0) close(p.member);
    free(p.request);
    return NULL;
}

static void *accept_all(void *of)
{
    struct pollfd f = {relay.fd, POLLIN, 0};
    (void)of;
    while (!atomic_load(&relay.ends)) {
        if (poll(&f, 1, 20) <= 0) continue;
        int fd = accept4(relay.fd, NULL, NULL, SOCK_CLOEXEC);
        if (fd < 0) continue;
        if (relay.thread_count == CONNECTIONS_MAX) close(fd);
        else
            pthread_create(&relay.threads[relay.thread_count++], NULL, serve,
                           (void *)(intptr_t)fd);
    }
    return NULL;
}

const char *relay_begin(int port)
{
    struct sockaddr_in a = {.sin_family = AF_INET,
                            .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t n = sizeof a;
    relay.port = port;
    relay.thread_count = 0;
    atomic_store(&relay.ends, false);
    relay_lose(RELAY_PASS, "", 0);
    relay.fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(bind(relay.fd, (struct sockaddr *)&a, n), 0);
    assert_int_equal(listen(relay.fd, 64), 0);
    assert_int_equal(getsockname(relay.fd, (struct sockaddr *)&a, &n), 0);
    snprintf(relay.url, sizeof relay.url, "http://127.0.0.1:%d", ntohs(a.sin_port));
    assert_int_equal(pthread_create(&relay.accepter, NULL, accept_all, NULL), 0);
    return relay.url;
}

void relay_end(void)
{
    atomic_store(&relay.ends, true);
    pthread_join(relay.accepter, NULL);
    for (int i = 0; i < relay.thread_count; i++) pthread_join(relay.threads[i], NULL);
    close(relay.fd);
    while (relay.late_count > 0) free(relay.late[--relay.late_count]);
}

void relay_lose(enum relay_way way, const char *words, int count)
{
    pthread_mutex_lock(&relay.lock);
    relay.way = way;
    snprintf(relay.words, sizeof relay.words, "%s", words);
    relay.count = count;
    relay.lost = 0;
    pthread_mutex_unlock(&relay.lock);
}

int relay_lost(void)
{
    pthread_mutex_lock(&relay.lock);
    int lost = relay.lost;
    pthread_mutex_unlock(&relay.lock);
    return lost;
}

int relay_release(void)
{
    char bytes[65536];
    int n = relay.late_count;
    for (int i = 0; i < n; i++) {
        int fd = connect_to_member();
        assert_true(fd >= 0);
        assert_true(send_all(fd, relay.late[i], relay.late_bytes[i]));
        assert_true(recv(fd, bytes, sizeof bytes, 0) > 0);
        close(fd);
        free(relay.late[i]);
    }
    relay.late_count = 0;
    return n;
}
