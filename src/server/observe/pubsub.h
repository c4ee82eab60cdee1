/* pubsub.h - which connections subscribe to which channels and patterns.
 *
 * A topic is a channel, found by its name, or a pattern, compared with every event; so the number
 * of patterns is limited. A subscription connects a connection with a topic and is on the lists of
 * both. A topic without subscriptions is freed. */
#ifndef SL_SERVER_OBSERVE_PUBSUB_H
#define SL_SERVER_OBSERVE_PUBSUB_H

#include "base/index.h"
#include "resp/writer.h"

struct conn;
struct server;

struct sl_pubsub {
    struct sl_index channels;
    struct sl_index pairs; /* Subscriptions, by topic and connection. */
    struct sl_list patterns;
    size_t pattern_count;
    size_t
        pattern_words; /* Steps to compare one byte of a channel with all patterns. */
    size_t name_bytes; /* Of the names of all topics. */
    /* Sends an event to subscribers of other nodes; NULL: they have none. */
    void (*elsewhere)(struct server *s, struct sl_bytes channel, struct sl_bytes text);
};

/* The subscriptions of one connection. */
struct sl_subscriber {
    struct sl_list subscriptions;
    size_t channel_count, pattern_count;
};

static inline bool sl_subscriber_listens(const struct sl_subscriber *s)
{
    return s->channel_count + s->pattern_count > 0;
}

void sl_pubsub_init(struct sl_pubsub *p, struct sl_hash_key key);

/* SLUICE_OK, also if it has subscribed before; SLUICE_EFULL: the connection has of_one_max
 * subscriptions; SLUICE_EKEYS: there are patterns_max patterns; SLUICE_ENOMEM. */
int sl_pubsub_subscribe(struct sl_pubsub *p, struct conn *c, struct sl_bytes name,
                        bool pattern, size_t of_one_max, size_t patterns_max);
void sl_pubsub_unsubscribe(struct sl_pubsub *p, struct conn *c, struct sl_bytes name,
                           bool pattern);

/* End one of the connection's subscriptions to channels, or to patterns, and call `told` with its
 * name. False: there is none. */
bool sl_pubsub_drop_one(struct sl_pubsub *p, struct conn *c, bool pattern,
                        void (*told)(struct conn *c, struct sl_bytes name));
void sl_pubsub_drop_all(struct sl_pubsub *p, struct conn *c);

static inline bool sl_pubsub_silent(const struct sl_pubsub *p)
{
    return p->channels.count == 0 && p->pattern_count == 0;
}

/* Whether an event would reach nobody, here or on other nodes. */
static inline bool sl_pubsub_unheard(const struct sl_pubsub *p)
{
    return sl_pubsub_silent(p) && p->elsewhere == NULL;
}

/* Write a message to all subscribers. Returns how many there are. */
size_t sl_pubsub_publish(struct sl_pubsub *p, struct sl_bytes channel,
                         struct sl_bytes text);

/* Bytes of all topics and subscriptions. */
size_t sl_pubsub_bytes(const struct sl_pubsub *p);

/* Subscribers of a channel. */
size_t sl_pubsub_count(const struct sl_pubsub *p, struct sl_bytes channel);

/* Write the channels that match (all, if glob.at is NULL) as an array of bulks. *steps is what that
 * costs. SLUICE_EFULL: more than SL_STEPS_MAX; SLUICE_ENOMEM. On failure nothing is written. */
int sl_pubsub_list(const struct sl_pubsub *p, struct sl_bytes pattern,
                   struct sl_resp_writer *out, size_t *steps);
#define SL_STEPS_MAX 1000000u /* About two milliseconds. */

#endif /* SL_SERVER_OBSERVE_PUBSUB_H */
