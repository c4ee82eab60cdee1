/* queue.h - what will happen, by time; what happens at the same time, in the order in which
 * it was put. */
#ifndef SL_SIM_QUEUE_H
#define SL_SIM_QUEUE_H

#include <stddef.h>
#include <stdint.h>

#include "sim/parcel.h"

enum happening_type {
    HAPPENS_MESSAGE,  /* A parcel comes to a node. */
    HAPPENS_TICK,     /* A node wished to be woken. */
    HAPPENS_WRITTEN,  /* A disk is done. */
    HAPPENS_ASK,      /* A client's request comes to a node. */
    HAPPENS_GONE,     /* A node notices that a client hung up. */
    HAPPENS_ANSWER,   /* An answer comes to a client. */
    HAPPENS_NEWS,     /* A holder hears that it is to go, or has lost. */
    HAPPENS_CLIENT,   /* A client does something by itself. */
    HAPPENS_OPERATOR, /* Somebody changes the list of nodes. */
    HAPPENS_NEMESIS,  /* Something breaks. */
    HAPPENS_LINKS,    /* Connections are made and given up. */
    HAPPENS_CRASH,    /* A node dies at the worst moment. */
    HAPPENS_START,    /* A node is started (again). */
};

struct happening {
    int64_t at_us;
    enum happening_type type;
    uint32_t node;   /* Index of a place. */
    uint32_t other;  /* The node that sent, or the client. */
    uint64_t number; /* A life, a request, a generation. */
    uint64_t link;   /* MESSAGE: the connection that it was sent over. */
    struct parcel *parcel;
};

struct queue_item {
    int64_t at_us;
    uint64_t order;
    uint32_t slot;
};

struct queue {
    struct queue_item *items;
    struct happening *slots;
    uint32_t *spare;
    uint32_t count, spare_count, size;
    uint64_t order;
    struct parcel *parcels; /* A heap of used ones. */
};

void sl_queue_free(struct queue *q);
void sl_queue_clear(struct queue *q);

/* Copies *h; takes its parcel. */
void sl_queue_put(struct queue *q, const struct happening *h);

/* The next one; its parcel is the caller's. False: there is none. */
int sl_queue_take(struct queue *q, struct happening *out);

/* An empty parcel, and back. */
struct parcel *sl_parcel_new(struct queue *q);
void sl_parcel_free(struct queue *q, struct parcel *p);

#endif /* SL_SIM_QUEUE_H */
