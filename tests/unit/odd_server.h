/* odd_server.h - for tests of clients: a server of HTTP that misbehaves on purpose. Each
 * connection has a thread, which runs the `serve` of the test. */
#ifndef SLUICE_ODD_SERVER_H
#define SLUICE_ODD_SERVER_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>

#define ODD_CONNECTIONS_MAX 256

struct odd_server {
    void (*serve)(struct odd_server *s, int fd); /* Then the connection is closed. */
    void *owner;
    int port, listener;
    char url[64];
    pthread_t thread;
    bool running;
    atomic_bool stops;
    atomic_int connections, open_now, open_most; /* There were, are, were at once. */
    atomic_int requests;                         /* That were read to their end. */
    struct {
        struct odd_server *server;
        int fd;
        pthread_t thread;
    } served[ODD_CONNECTIONS_MAX];
};

/* A request, read to its end. */
struct odd_request {
    char head[4096]; /* With its first line. */
    char body[65536];
};

void odd_begin(struct odd_server *s, void (*serve)(struct odd_server *s, int fd));
void odd_end(struct odd_server *s); /* Shuts down connections; may be called twice. */

/* False: the other side has closed. */
bool odd_read(struct odd_server *s, int fd, struct odd_request *r);
bool odd_asks_for(const struct odd_request *r, const char *path);
void odd_send(int fd, const char *text);
void odd_answer(int fd, int status, const char *body);

/* Until the test ends, or the other side has closed. */
void odd_wait(int fd);

#endif /* SLUICE_ODD_SERVER_H */
