/* queue.h - a priority queue of future events, ordered by time. Events with the same
 * time happen in the order in which they were added. */
#ifndef SL_SIM_QUEUE_H
#define SL_SIM_QUEUE_H

#include <stddef.h>
#include <stdint.h>

#include "sim/packet.h"

enum sim_event_type {
    SIM_EVENT_MESSAGE,  /* A packet arrives at a node. */
    SIM_EVENT_TICK,     /* The timer of a node fires. */
    SIM_EVENT_WRITTEN,  /* A write of the node's file has ended. */
    SIM_EVENT_SYNCED,   /* A sync of the journal has ended. */
    SIM_EVENT_MEND,     /* A failed journal is replaced. */
    SIM_EVENT_REQUEST,  /* A client's request arrives at a node. */
    SIM_EVENT_HANGUP,   /* A node notices that a client disconnected. */
    SIM_EVENT_ANSWER,   /* An answer arrives at a client. */
    SIM_EVENT_NOTICE,   /* A holder is asked to release, or has lost its lease. */
    SIM_EVENT_CLIENT,   /* The timer of a client fires. */
    SIM_EVENT_OPERATOR, /* An operator changes the membership. */
    SIM_EVENT_NEMESIS,  /* The nemesis injects a fault. */
    SIM_EVENT_LINKS,    /* Links are connected and closed. */
    SIM_EVENT_CRASH,    /* A node is killed at a critical moment. */
    SIM_EVENT_START,    /* A node is started or restarted. */
    /* Only in keeper clusters: */
    SIM_EVENT_RESIGN,  /* A keeper resigns. */
    SIM_EVENT_PAUSE,   /* A node pauses. */
    SIM_EVENT_STORAGE, /* The storage executes an operation, or answers it. */
    SIM_EVENT_WATCH,   /* A node learns that the term in the storage has changed. */
    SIM_EVENT_SECOND,  /* A second has passed on a node. */
    SIM_EVENT_CLOSED,  /* A client notices that its connection is closed. */
};

struct sim_event {
    int64_t at_us;
    enum sim_event_type type;
    uint32_t node;   /* Index of a machine. */
    uint32_t other;  /* The sending node, or the client. */
    uint64_t number; /* Number of a life, a request or a timer. */
    uint64_t link;   /* MESSAGE: the connection that carried it. */
    struct sim_packet *packet;
    char *bytes;     /* Keeper clusters: a message; owned. */
    uint32_t forged; /* The type of a message that no correct node would send; 0. */
    size_t byte_count;
};

struct sim_queue_item {
    int64_t at_us;
    uint64_t order;
    uint32_t slot;
};

struct sim_queue {
    struct sim_queue_item *items;
    struct sim_event *slots;
    uint32_t *spare;
    uint32_t count, spare_count, size;
    uint64_t order;
    struct sim_packet *packets; /* Unused packets. */
};

void sim_queue_free(struct sim_queue *q);
void sim_queue_clear(struct sim_queue *q);

/* Add an event. Copies *e, and takes ownership of its packet and bytes. */
void sim_queue_put(struct sim_queue *q, const struct sim_event *e);

/* Remove the next event; the caller then owns its packet and bytes. Returns false if the queue is
 * empty. */
bool sim_queue_take(struct sim_queue *q, struct sim_event *out);

/* Get an empty packet; put it back. */
struct sim_packet *sim_packet_new(struct sim_queue *q);
void sim_packet_free(struct sim_queue *q, struct sim_packet *p);

#endif /* SL_SIM_QUEUE_H */
