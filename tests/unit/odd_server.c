#include "odd_server.h"

#include <arpa/inet.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "test.h"

static void *serve(void *at)
{
    struct odd_server *s = *(struct odd_server **)at;
    int *fd = (int *)(void *)((char *)at + offsetof(__typeof__(s->served[0]), fd));
    s->serve(s, *fd);
    shutdown(*fd,
             SHUT_RDWR); /* The descriptor is closed at the end: others may name it. */
    atomic_fetch_sub(&s->open_now, 1);
    return NULL;
}

static void *listen_on(void *owner)
{
    struct odd_server *s = owner;
    for (;;) {
        int fd = accept(s->listener, NULL, NULL);
        if (atomic_load(&s->stops) || fd < 0) {
            if (fd >= 0) close(fd);
            return NULL;
        }
        int i = atomic_load(&s->connections);
        if (i == ODD_CONNECTIONS_MAX) {
            close(fd);
            continue;
        }
        int now = atomic_fetch_add(&s->open_now, 1) + 1;
        if (now > atomic_load(&s->open_most)) atomic_store(&s->open_most, now);
        s->served[i].server = s;
        s->served[i].fd = fd;
        atomic_fetch_add(&s->connections, 1);
        if (pthread_create(&s->served[i].thread, NULL, serve, &s->served[i]) != 0)
            abort();
    }
}

void odd_begin(struct odd_server *s, void (*serve_with)(struct odd_server *s, int fd))
{
    struct sockaddr_in a = {.sin_family = AF_INET,
                            .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t n = sizeof a;
    memset(s, 0, sizeof *s);
    s->serve = serve_with;
    s->listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(bind(s->listener, (struct sockaddr *)&a, n), 0);
    assert_int_equal(listen(s->listener, 256), 0);
    assert_int_equal(getsockname(s->listener, (struct sockaddr *)&a, &n), 0);
    s->port = ntohs(a.sin_port);
    snprintf(s->url, sizeof s->url, "http://127.0.0.1:%d", s->port);
    assert_int_equal(pthread_create(&s->thread, NULL, listen_on, s), 0);
    s->running = true;
}

void odd_end(struct odd_server *s)
{
    if (!s->running) return;
    s->running = false;
    atomic_store(&s->stops, true);
    shutdown(s->listener, SHUT_RDWR);
    pthread_join(s->thread, NULL);
    close(s->listener);
    for (int i = 0; i < atomic_load(&s->connections); i++) {
        shutdown(s->served[i].fd, SHUT_RDWR);
        pthread_join(s->served[i].thread, NULL);
        close(s->served[i].fd);
    }
}

static bool read_byte(int fd, char *c)
{
    return recv(fd, c, 1, 0) == 1;
}

bool odd_read(struct odd_server *s, int fd, struct odd_request *r)
{
    size_t n = 0;
    memset(r, 0, sizeof *r);
    while (strstr(r->head, "\r\n\r\n") == NULL) {
        if (n + 1 == sizeof r->head || !read_byte(fd, &r->head[n])) return false;
        n++;
    }
    const char *length = strcasestr(r->head, "Content-Length:");
    size_t bytes = length != NULL ? strtoul(length + 15, NULL, 10) : 0;
    if (bytes >= sizeof r->body) return false;
    for (size_t i = 0; i < bytes; i++)
        if (!read_byte(fd, &r->body[i])) return false;
    atomic_fetch_add(&s->requests, 1);
    return true;
}

bool odd_asks_for(const struct odd_request *r, const char *path)
{
    size_t n = strlen(path);
    return strncmp(r->head, "POST ", 5) == 0 && strncmp(r->head + 5, path, n) == 0 &&
           r->head[5 + n] == ' ';
}

void odd_send(int fd, const char *text)
{
    size_t n = strlen(text);
    while (n > 0) {
        ssize_t some = send(fd, text, n, MSG_NOSIGNAL);
        if (some <= 0) return;
        text += some;
        n -= (size_t)some;
    }
}

void odd_answer(int fd, int status, const char *body)
{
    char head[200];
    snprintf(head, sizeof head,
             "HTTP/1.1 %d Words\r\nContent-Type: application/json\r\n"
             "Content-Length: %zu\r\n\r\n",
             status, strlen(body));
    odd_send(fd, head);
    odd_send(fd, body);
}

void odd_wait(int fd)
{
    char c;
    while (read_byte(fd, &c)) {}
}
