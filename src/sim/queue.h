/* queue.h - future events, by time. Events of the same time happen in the order in which they
 * were put. */
#ifndef SL_SIM_QUEUE_H
#define SL_SIM_QUEUE_H

#include <stddef.h>
#include <stdint.h>

#include "sim/packet.h"

enum sim_event_type {
    SIM_EVENT_MESSAGE,  /* A packet arrives at a node. */
    SIM_EVENT_TICK,     /* A node is due. */
    SIM_EVENT_WRITTEN,  /* A write is done. */
    SIM_EVENT_REQUEST,  /* A client's request arrives at a node. */
    SIM_EVENT_HANGUP,   /* A node notices that a client disconnected. */
    SIM_EVENT_ANSWER,   /* An answer arrives at a client. */
    SIM_EVENT_NOTICE,   /* A holder is asked to release, or has lost its lease. */
    SIM_EVENT_CLIENT,   /* A client acts without an event. */
    SIM_EVENT_OPERATOR, /* An operator changes the membership. */
    SIM_EVENT_NEMESIS,  /* Something breaks. */
    SIM_EVENT_LINKS,    /* Connections are made and given up. */
    SIM_EVENT_CRASH,    /* A node dies at the worst moment. */
    SIM_EVENT_START,    /* A node is started, or started again. */
};

struct sim_event {
    int64_t at_us;
    enum sim_event_type type;
    uint32_t node;   /* Index of a machine. */
    uint32_t other;  /* The node that sent, or the client. */
    uint64_t number; /* Of a life, a request or an alarm. */
    uint64_t link;   /* MESSAGE: the connection that it was sent over. */
    struct sim_packet *packet;
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
    struct sim_packet *packets; /* Unused ones. */
};

void sim_queue_free(struct sim_queue *q);
void sim_queue_clear(struct sim_queue *q);

/* Copies *e; takes its packet. */
void sim_queue_put(struct sim_queue *q, const struct sim_event *e);

/* The next event; gives its packet to the caller. False: there is none. */
bool sim_queue_take(struct sim_queue *q, struct sim_event *out);

/* An empty packet; and its return. */
struct sim_packet *sim_packet_new(struct sim_queue *q);
void sim_packet_free(struct sim_queue *q, struct sim_packet *p);

#endif /* SL_SIM_QUEUE_H */
