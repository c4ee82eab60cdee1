/* pubsub.h - who listens to what.
 *
 * A topic is a channel (found by its name) or a pattern (compared with every event, which
 * is why there is a bound on them). A subscription ties a connection to a topic and is on
 * the lists of both; a topic without subscriptions is gone. */
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
    size_t pattern_words; /* Of all: steps that a byte of an event's channel takes. */
    size_t name_bytes;    /* Of the names of all topics. */
    /* Sends an event to subscribers of other nodes; NULL: they have none. */
    void (*elsewhere)(struct server *s, struct sl_bytes channel, struct sl_bytes text);
};

/* What a connection listens to. */
struct sl_subscriber {
    struct sl_list subscriptions;
    size_t channel_count, pattern_count;
};

static inline bool sl_subscriber_listens(const struct sl_subscriber *s)
{
    return s->channel_count + s->pattern_count > 0;
}

void sl_pubsub_init(struct sl_pubsub *p, struct sl_hash_key key);

/* SLUICE_OK, also if it is so already; SLUICE_EFULL: the connection listens to enough;
 * SLUICE_EKEYS: there are enough patterns; SLUICE_ENOMEM. */
int sl_pubsub_subscribe(struct sl_pubsub *p, struct conn *c, struct sl_bytes name,
                        bool pattern, size_t of_one_max, size_t patterns_max);
void sl_pubsub_unsubscribe(struct sl_pubsub *p, struct conn *c, struct sl_bytes name,
                           bool pattern);

/* One of a connection's topics of a kind is given up, and `told` which. False: there is
 * none. */
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

/* Write a message to everybody who listens. Returns how many. */
size_t sl_pubsub_publish(struct sl_pubsub *p, struct sl_bytes channel,
                         struct sl_bytes text);

/* Bytes of all topics and subscriptions. */
size_t sl_pubsub_bytes(const struct sl_pubsub *p);

/* Subscribers of a channel. */
size_t sl_pubsub_count(const struct sl_pubsub *p, struct sl_bytes channel);

/* Channels that match (all, if glob.at is NULL), as an array of bulks; and how many
 * steps that takes. SLUICE_EFULL: more than SL_STEPS_MAX, SLUICE_ENOMEM; then nothing is
 * written. */
int sl_pubsub_list(const struct sl_pubsub *p, struct sl_bytes glob,
                   struct sl_resp_writer *out, size_t *steps);
#define SL_STEPS_MAX 1000000u /* About two milliseconds. */

#endif /* SL_SERVER_OBSERVE_PUBSUB_H */
