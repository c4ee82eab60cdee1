/* input.h - finds the clients that have sent something, in batches.
 *
 * libuv reads every readable socket before a loop iteration ends, however many there are. To
 * bound the work of a loop iteration, the server watches the sockets of clients with two epoll
 * sets of its own, and libuv watches only these two sets. A loop iteration takes a bounded number
 * of connections from each set, starting with the connection that has waited longest.
 *
 *     prompt   connections whose commands have all been answered so far
 *     slow     connections that have left unprocessed input twice in a row: part of a
 *              command, or more commands than their share
 *
 * A loop iteration takes far fewer connections from the slow set. So a client that sends a
 * command now and then does not wait for thousands of clients that send without pause. A slow
 * connection becomes prompt when it has left no unprocessed input twice in a row.
 *
 * A third epoll set contains the clients that hold a lock without a lease. The server only polls
 * it, to learn which of them have closed their connections before it has read the end of the
 * stream. */
#ifndef SL_SERVER_NET_INPUT_H
#define SL_SERVER_NET_INPUT_H

#include <stdbool.h>
#include <stdint.h>
#include <uv.h>

#define SL_INPUT_BATCH 64

struct conn;
struct server;

struct sl_input_set {
    uv_poll_t watch; /* Watches the epoll set. */
    int fd;
    uint32_t batch_max;
    /* A loop iteration stops taking connections of this set after this time. */
    uint64_t share_ns;
    uint32_t at, n; /* The unprocessed part of the batch. */
    struct {
        struct conn *conn; /* Borrowed; NULL: the connection has left the set. */
        bool ended;        /* The peer closed the connection, or it failed. */
    } batch[SL_INPUT_BATCH];
};

enum sl_input_class { SL_PROMPT, SL_SLOW, SL_INPUT_CLASSES };

/* The input state of one connection. */
struct sl_input {
    uint8_t class; /* An enum sl_input_class. */
    bool watched;  /* The server reads from the connection. */
    bool busy;     /* The last read left unprocessed input. */
    bool holds;    /* The client has held a lock without a lease. */
    bool left;     /* If `holds`: the client has closed the connection. */
};

/* Create the sets. Returns 0, or a negative libuv error. */
int sl_input_start(struct server *s);

/* Start or stop watching the connection for input, in the set of its class. Returns false if a
 * system call failed. */
bool sl_input_watch(struct conn *c, bool yes);

/* Move the connection to another class. Returns false if a system call failed. */
bool sl_input_move(struct conn *c, enum sl_input_class to);

/* Add a connection that holds a lock without a lease to the third set. */
void sl_input_holds(struct conn *c);

/* Whether any peers of such connections have closed them. Sets input.left of those connections.
 * Queries the system once after each input from a client. */
bool sl_input_holders_left(struct server *s);

/* Remove a connection from all sets, before its socket is closed. */
void sl_input_forget(struct conn *c);

#endif /* SL_SERVER_NET_INPUT_H */
