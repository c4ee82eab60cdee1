/* pubsub.h - which connections subscribe to which channels and patterns.
 *
 * A topic is a channel or a pattern. A channel is found by its name. Every pattern is compared
 * with every event, so the number of patterns is limited. A subscription joins a connection and a
 * topic, and is on the lists of both. A topic without subscriptions is freed. */
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
    /* The cost of matching one byte of a channel name against all patterns. */
    size_t pattern_words;
    size_t name_bytes; /* Bytes of the names of all topics. */
    /* Sends an event to other nodes that have subscribers; NULL: no node has any. */
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

/* Subscribe a connection to a channel or pattern. Returns SLUICE_OK, even if the connection is
 * already subscribed; SLUICE_EFULL if the connection already has of_one_max subscriptions;
 * SLUICE_EKEYS if there are already patterns_max patterns; or SLUICE_ENOMEM. */
int sl_pubsub_subscribe(struct sl_pubsub *p, struct conn *c, struct sl_bytes name,
                        bool pattern, size_t of_one_max, size_t patterns_max);
void sl_pubsub_unsubscribe(struct sl_pubsub *p, struct conn *c, struct sl_bytes name,
                           bool pattern);

/* End one of the connection's subscriptions to channels (or to patterns), and call `told` with its
 * name. Returns false if there is none. */
bool sl_pubsub_drop_one(struct sl_pubsub *p, struct conn *c, bool pattern,
                        void (*told)(struct conn *c, struct sl_bytes name));
void sl_pubsub_drop_all(struct sl_pubsub *p, struct conn *c);

static inline bool sl_pubsub_silent(const struct sl_pubsub *p)
{
    return p->channels.count == 0 && p->pattern_count == 0;
}

/* Whether an event has no subscribers, neither here nor on other nodes. */
static inline bool sl_pubsub_unheard(const struct sl_pubsub *p)
{
    return sl_pubsub_silent(p) && p->elsewhere == NULL;
}

/* Write a message to all subscribers. Returns the number of subscribers. */
size_t sl_pubsub_publish(struct sl_pubsub *p, struct sl_bytes channel,
                         struct sl_bytes text);

/* Write a message to the subscribers of all patterns, and of all channels whose name begins with
 * `prefix`. For a pattern, the channel of the message is `prefix`. Returns the number of messages. */
size_t sl_pubsub_publish_to_all(struct sl_pubsub *p, struct sl_bytes prefix,
                                struct sl_bytes text);

/* Return the number of bytes of all topics and subscriptions. */
size_t sl_pubsub_bytes(const struct sl_pubsub *p);

/* Return the number of subscribers of a channel. */
size_t sl_pubsub_count(const struct sl_pubsub *p, struct sl_bytes channel);

/* Write the channels that match the pattern (all channels, if pattern.at is NULL) as an array of
 * bulk strings. Sets *steps to the cost. Returns SLUICE_OK; SLUICE_EFULL if the cost exceeds
 * SL_STEPS_MAX; or SLUICE_ENOMEM. On failure nothing is written. */
int sl_pubsub_list(const struct sl_pubsub *p, struct sl_bytes pattern,
                   struct sl_resp_writer *out, size_t *steps);
#define SL_STEPS_MAX 1000000u /* This many steps take about two milliseconds. */

#endif /* SL_SERVER_OBSERVE_PUBSUB_H */
