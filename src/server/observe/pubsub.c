#include "server/observe/pubsub.h"

#include <stdlib.h>
#include <string.h>

#include "base/glob.h"
#include "server/net/conn.h"

struct topic {
    struct sl_list subscriptions;
    struct sl_list place; /* A pattern's place in the list of patterns. */
    bool pattern;
    struct sl_glob *glob; /* The compiled pattern; NULL: a channel. */
    size_t count;
    size_t n;
    char name[];
};

struct pair {
    struct topic *topic;
    struct conn *conn;
};

struct subscription {
    struct sl_list of_topic, of_conn;
    struct pair pair;
};

/* --- Topics --------------------------------------------------------------- */

static struct sl_bytes name_of(const struct topic *t)
{
    return (struct sl_bytes){t->name, t->n};
}

static bool same_bytes(struct sl_bytes a, struct sl_bytes b)
{
    return a.n == b.n && (a.n == 0 || memcmp(a.at, b.at, a.n) == 0);
}

static uint64_t hash_bytes(struct sl_bytes b, const struct sl_index *x)
{
    return sl_hash(x->key, b.at, b.n);
}

static uint64_t hash_topic(const void *item, const struct sl_index *x)
{
    return hash_bytes(name_of(item), x);
}

static bool same_topic(const void *item, struct sl_bytes key)
{
    return same_bytes(name_of(item), key);
}

static uint64_t hash_pair(const void *item, const struct sl_index *x)
{
    const struct subscription *s = item;
    return hash_bytes((struct sl_bytes){(const char *)&s->pair, sizeof s->pair}, x);
}

static bool same_pair(const void *item, struct sl_bytes key)
{
    return memcmp(&((const struct subscription *)item)->pair, key.at, key.n) == 0;
}

static const struct sl_index_kind pairs = {.hash = hash_pair, .same = same_pair};
static const struct sl_index_kind topics = {.hash = hash_topic, .same = same_topic};

static struct topic *find(const struct sl_pubsub *p, struct sl_bytes name, bool pattern)
{
    if (!pattern) {
        if (p->channels.count == 0) return NULL;
        return sl_index_find(&p->channels, name, hash_bytes(name, &p->channels));
    }
    for (struct sl_list *n = p->patterns.next; n != &p->patterns; n = n->next) {
        struct topic *t = sl_container_of(n, struct topic, place);
        if (same_bytes(name_of(t), name)) return t;
    }
    return NULL;
}

static struct topic *make(struct sl_pubsub *p, struct sl_bytes name, bool pattern)
{
    if (!pattern && sl_index_reserve(&p->channels) != SLUICE_OK) return NULL;
    struct topic *t = malloc(sizeof *t + name.n);
    if (t == NULL) return NULL;
    *t = (struct topic){.pattern = pattern, .n = name.n};
    if (pattern && (t->glob = sl_glob_new(name)) == NULL) {
        free(t);
        return NULL;
    }
    if (name.n > 0) memcpy(t->name, name.at, name.n);
    sl_list_init(&t->subscriptions);
    sl_list_init(&t->place);
    if (pattern) {
        sl_list_append(&p->patterns, &t->place);
        p->pattern_count++;
        p->pattern_words += sl_glob_words(t->n);
    } else sl_index_put(&p->channels, t, hash_topic(t, &p->channels));
    p->name_bytes += t->n;
    return t;
}

static void tidy(struct sl_pubsub *p, struct topic *t)
{
    if (t->count > 0) return;
    if (t->pattern) {
        sl_list_remove(&t->place);
        p->pattern_count--;
        p->pattern_words -= sl_glob_words(t->n);
    } else sl_index_remove(&p->channels, t, hash_topic(t, &p->channels));
    sl_glob_free(t->glob);
    p->name_bytes -= t->n;
    free(t);
}

/* --- Initialization ------------------------------------------------------- */

void sl_pubsub_init(struct sl_pubsub *p, struct sl_hash_key key)
{
    *p = (struct sl_pubsub){0};
    sl_index_init(&p->channels, &topics, key);
    sl_index_init(&p->pairs, &pairs, key);
    sl_list_init(&p->patterns);
}

/* --- Subscriptions -------------------------------------------------------- */

static struct subscription *find_in(const struct sl_pubsub *p, struct conn *c,
                                    struct topic *t)
{
    const struct pair pair = {t, c};
    const struct sl_bytes key = {(const char *)&pair, sizeof pair};
    return sl_index_find(&p->pairs, key, hash_bytes(key, &p->pairs));
}

int sl_pubsub_subscribe(struct sl_pubsub *p, struct conn *c, struct sl_bytes name,
                        bool pattern, size_t of_one_max, size_t patterns_max)
{
    struct topic *t = find(p, name, pattern);
    if (t != NULL && find_in(p, c, t) != NULL) return SLUICE_OK;
    if (c->subscriber.channel_count + c->subscriber.pattern_count >= of_one_max)
        return SLUICE_EFULL;
    if (t == NULL && pattern && p->pattern_count >= patterns_max) return SLUICE_EKEYS;
    if (sl_index_reserve(&p->pairs) != SLUICE_OK) return SLUICE_ENOMEM;
    struct subscription *s = malloc(sizeof *s);
    if (s == NULL) return SLUICE_ENOMEM;
    if (t == NULL) t = make(p, name, pattern);
    if (t == NULL) {
        free(s);
        return SLUICE_ENOMEM;
    }
    s->pair = (struct pair){t, c};
    sl_index_put(&p->pairs, s, hash_pair(s, &p->pairs));
    sl_list_append(&t->subscriptions, &s->of_topic);
    sl_list_append(&c->subscriber.subscriptions, &s->of_conn);
    t->count++;
    if (pattern) c->subscriber.pattern_count++;
    else c->subscriber.channel_count++;
    return SLUICE_OK;
}

static void end(struct sl_pubsub *p, struct subscription *s)
{
    struct topic *t = s->pair.topic;
    if (t->pattern) s->pair.conn->subscriber.pattern_count--;
    else s->pair.conn->subscriber.channel_count--;
    sl_index_remove(&p->pairs, s, hash_pair(s, &p->pairs));
    sl_list_remove(&s->of_topic);
    sl_list_remove(&s->of_conn);
    free(s);
    t->count--;
    tidy(p, t);
}

void sl_pubsub_unsubscribe(struct sl_pubsub *p, struct conn *c, struct sl_bytes name,
                           bool pattern)
{
    struct topic *t = find(p, name, pattern);
    struct subscription *s = t == NULL ? NULL : find_in(p, c, t);
    if (s != NULL) end(p, s);
}

bool sl_pubsub_drop_one(struct sl_pubsub *p, struct conn *c, bool pattern,
                        void (*told)(struct conn *c, struct sl_bytes name))
{
    for (struct sl_list *n = c->subscriber.subscriptions.next;
         n != &c->subscriber.subscriptions; n = n->next) {
        struct subscription *s = sl_container_of(n, struct subscription, of_conn);
        struct topic *t = s->pair.topic;
        if (t->pattern != pattern) continue;
        t->count++; /* Keep end() from freeing the name. */
        end(p, s);
        told(c, name_of(t));
        t->count--;
        tidy(p, t);
        return true;
    }
    return false;
}

void sl_pubsub_drop_all(struct sl_pubsub *p, struct conn *c)
{
    while (!sl_list_empty(&c->subscriber.subscriptions))
        end(p, sl_container_of(c->subscriber.subscriptions.next, struct subscription,
                               of_conn));
}

/* --- Messages ------------------------------------------------------------- */

static void write_to(struct conn *c, const struct topic *t, struct sl_bytes channel,
                     struct sl_bytes text)
{
    struct sl_resp_writer *w = sl_conn_out(c);
    sl_resp_push(w, t->pattern ? 4 : 3);
    sl_resp_text(w, t->pattern ? "pmessage" : "message");
    if (t->pattern) sl_resp_bulk(w, name_of(t));
    sl_resp_bulk(w, channel);
    sl_resp_bulk(w, text);
}

static size_t write_to_all(const struct topic *t, struct sl_bytes channel,
                           struct sl_bytes text)
{
    const struct sl_list *all = &t->subscriptions;
    for (const struct sl_list *n = all->next; n != all; n = n->next)
        write_to(sl_container_of(n, struct subscription, of_topic)->pair.conn, t,
                 channel, text);
    return t->count;
}

size_t sl_pubsub_publish(struct sl_pubsub *p, struct sl_bytes channel,
                         struct sl_bytes text)
{
    size_t n = 0;
    const struct topic *t = find(p, channel, false);
    if (t != NULL) n += write_to_all(t, channel, text);
    for (struct sl_list *i = p->patterns.next; i != &p->patterns; i = i->next) {
        t = sl_container_of(i, struct topic, place);
        if (sl_glob_matches(t->glob, channel)) n += write_to_all(t, channel, text);
    }
    return n;
}

size_t sl_pubsub_publish_to_all(struct sl_pubsub *p, struct sl_bytes prefix,
                                struct sl_bytes text)
{
    void *some[64];
    uint64_t cursor = 0;
    size_t heard = 0;
    do {
        size_t n = sl_index_scan(&p->channels, &cursor, some, 64);
        for (size_t i = 0; i < n; i++) {
            struct sl_bytes name = name_of(some[i]);
            if (name.n >= prefix.n && memcmp(name.at, prefix.at, prefix.n) == 0)
                heard += write_to_all(some[i], name, text);
        }
    } while (cursor != 0);
    for (struct sl_list *i = p->patterns.next; i != &p->patterns; i = i->next)
        heard += write_to_all(sl_container_of(i, struct topic, place), prefix, text);
    return heard;
}

/* Bytes per word of a compiled pattern. */
#define PATTERN_WORD_BYTES (256 * sizeof(uint64_t))

size_t sl_pubsub_bytes(const struct sl_pubsub *p)
{
    return p->name_bytes + p->pattern_words * PATTERN_WORD_BYTES +
           (p->channels.count + p->pattern_count) *
               (sizeof(struct topic) + SL_MALLOC_BYTES) +
           p->pairs.count * (sizeof(struct subscription) + SL_MALLOC_BYTES) +
           sl_index_bytes(&p->channels) + sl_index_bytes(&p->pairs);
}

size_t sl_pubsub_count(const struct sl_pubsub *p, struct sl_bytes channel)
{
    const struct topic *t = find(p, channel, false);
    return t == NULL ? 0 : t->count;
}

/* Count the channels that match, and write them if there is a writer. A NULL glob matches all
 * channels. Stops after SL_STEPS_MAX steps. */
static size_t each_channel(const struct sl_pubsub *p, const struct sl_glob *glob,
                           size_t *steps, struct sl_resp_writer *out)
{
    void *some[64];
    uint64_t cursor = 0;
    size_t found = 0;
    if (p->channels.count == 0) return 0;
    do {
        size_t n = sl_index_scan(&p->channels, &cursor, some, 64);
        uint64_t before = glob == NULL ? 0 : sl_glob_steps(glob);
        for (size_t i = 0; i < n; i++) {
            struct sl_bytes name = name_of(some[i]);
            if (glob != NULL && !sl_glob_matches(glob, name)) continue;
            found++;
            if (out != NULL) sl_resp_bulk(out, name);
        }
        *steps += n * 250; /* Writing a name costs this much. */
        if (glob != NULL) *steps += sl_glob_steps(glob) - before;
    } while (cursor != 0 && *steps <= SL_STEPS_MAX);
    return found;
}

int sl_pubsub_list(const struct sl_pubsub *p, struct sl_bytes pattern,
                   struct sl_resp_writer *out, size_t *steps)
{
    struct sl_glob *compiled = NULL;
    *steps = SL_GLOB_COMPILE_STEPS * pattern.n;
    if (pattern.at != NULL && (compiled = sl_glob_new(pattern)) == NULL)
        return SLUICE_ENOMEM;
    size_t n = each_channel(p, compiled, steps, NULL);
    bool all = *steps <= SL_STEPS_MAX;
    if (all) {
        /* Both calls find the same channels, because nothing changes in between. */
        size_t again = 0;
        sl_resp_array(out, n);
        each_channel(p, compiled, &again, out);
    }
    sl_glob_free(compiled);
    return all ? SLUICE_OK : SLUICE_EFULL;
}
