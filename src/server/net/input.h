/* input.h - which clients have sent something, a few of them at a time.
 *
 * libuv reads every readable socket before a turn ends, however many there are. So two epoll
 * sets of our own watch the sockets of clients, and libuv watches these sets. A turn takes a
 * bounded number of connections from each of them, the one that has waited longest first.
 *
 *     prompt   connections whose commands have all been answered so far
 *     slow     connections that keep us busy: there was something left of what they sent,
 *              a part of a command or more commands than their share, twice in a row
 *
 * A turn takes far fewer connections from the slow set. So a client that sends a command
 * now and then does not wait for thousands that send bytes without end. A slow connection
 * becomes prompt when nothing was left twice in a row.
 *
 * We only query a third set: it tells which clients that hold a lock without a lease have
 * closed their connections, though we have not read that yet. */
#ifndef SL_SERVER_NET_INPUT_H
#define SL_SERVER_NET_INPUT_H

#include <stdbool.h>
#include <stdint.h>
#include <uv.h>

#define SL_INPUT_BATCH 64

struct conn;
struct server;

struct sl_input_set {
    uv_poll_t watch; /* Of the set itself. */
    int fd;
    uint32_t batch_max;
    uint64_t share_ns; /* A turn takes no more of them after this time. */
    uint32_t at, n;    /* What is left of the batch. */
    struct {
        struct conn *conn; /* Borrowed; NULL: it has left the set. */
        bool ended;        /* The peer closed it, or it failed. */
    } batch[SL_INPUT_BATCH];
};

enum sl_input_class { SL_PROMPT, SL_SLOW, SL_INPUT_CLASSES };

/* Of one connection. */
struct sl_input {
    uint8_t class; /* An enum sl_input_class. */
    bool watched;  /* The server reads what comes. */
    bool busy;     /* There was unprocessed input after the last read. */
    bool holds;    /* It has held a lock without a lease, */
    bool left;     /* and its peer has closed it. */
};

/* 0, or a negative error of libuv. */
int sl_input_start(struct server *s);

/* Watch the connection for input, in the set of its class, or do not. False: the system
 * refused. */
bool sl_input_watch(struct conn *c, bool yes);

/* Move it into another class. False: as above. */
bool sl_input_move(struct conn *c, enum sl_input_class to);

/* Add a connection that holds a lock without a lease. */
void sl_input_holds(struct conn *c);

/* Whether the peers of such connections have closed them; these have input.left set. Asks the
 * system once after each input from a client. */
bool sl_input_holders_left(struct server *s);

/* Forget a connection before its socket is closed. */
void sl_input_forget(struct conn *c);

#endif /* SL_SERVER_NET_INPUT_H */
