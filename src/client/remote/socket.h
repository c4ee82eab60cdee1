/* socket.h - a connection that never blocks: resolves a name, connects, sends, and receives
 * whole replies. Registers its descriptor with epoll. */
#ifndef SL_CLIENT_SOCKET_H
#define SL_CLIENT_SOCKET_H

#include <netdb.h>

#include "base/types.h"
#include "client/reply.h"
#include "client/wire.h"

enum sl_socket_state {
    SL_SOCKET_CLOSED,
    SL_SOCKET_RESOLVES,
    SL_SOCKET_CONNECTS,
    SL_SOCKET_OPEN
};

struct sl_resolver; /* A thread that resolves a name. */

struct sl_socket {
    enum sl_socket_state state;
    int epoll;       /* Borrowed. */
    uint32_t number; /* The data of its events. */
    int fd;
    bool wants_write;                        /* The socket's buffer is full. */
    const struct sl_client_address *address; /* Borrowed while it is not closed. */
    struct sl_resolver *resolver;
    struct addrinfo *found, *next; /* The resolved addresses that were not tried yet. */
    char *in;                      /* Bytes received and not yet returned. */
    size_t in_size, in_from, in_used;
    struct sl_client_reply_scan scan;
    int status; /* Of the last failure, and its message. */
    char error[320];
};

void sl_socket_init(struct sl_socket *k, int epoll, uint32_t number);

/* Begin to connect. Returns the state: CLOSED after a failure. */
enum sl_socket_state sl_socket_connect(struct sl_socket *k,
                                       const struct sl_client_address *address,
                                       const char *text);

/* The descriptor is ready: continue to connect. Returns the state. */
enum sl_socket_state sl_socket_continue(struct sl_socket *k);

/* Send bytes. Returns how many were sent, or -1 after a failure. */
ptrdiff_t sl_socket_send(struct sl_socket *k, struct sl_bytes bytes);

/* The socket can send again. */
void sl_socket_writable(struct sl_socket *k);

/* Receive more bytes. Returns 1 if there were some, 0 if there are none now, -1 after a
 * failure. */
int sl_socket_receive(struct sl_socket *k);

/* Take the next whole reply out of the bytes received. Returns 1, 0 if it is not complete, or
 * -1 after a failure. */
int sl_socket_next(struct sl_socket *k, struct sluice_reply **out);

void sl_socket_close(struct sl_socket *k);

#endif /* SL_CLIENT_SOCKET_H */
