#include "server/observe/events.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "server/net/conn.h"

#define CHANNEL "lock:"
#define CHANNEL_BYTES (sizeof CHANNEL - 1)
#define MORE_BYTES 120

/* --- The table --------------------------------------------------------------- */

static void more_of_granted(const struct sl_event *e, char more[MORE_BYTES])
{
    snprintf(more, MORE_BYTES,
             " held=%" PRIu64 " lease_ms=%" PRId64 " waited_ms=%" PRId64 "%s", e->held,
             e->lease_ms > 0 ? e->lease_ms : -1, e->waited_ms,
             e->overlapping ? " overlapping=1" : "");
}

static void more_of_extended(const struct sl_event *e, char more[MORE_BYTES])
{
    snprintf(more, MORE_BYTES, " lease_ms=%" PRId64, e->lease_ms);
}

static void more_of_asked(const struct sl_event *e, char more[MORE_BYTES])
{
    snprintf(more, MORE_BYTES, " priority=%" PRId32 " left_ms=%" PRId64, e->priority,
             e->left_ms == SL_NEVER ? -1 : e->left_ms);
}

static void more_of_stolen(const struct sl_event *e, char more[MORE_BYTES])
{
    snprintf(more, MORE_BYTES, "%s", e->overlapping ? " overlapping=1" : "");
}

static void more_of_why(const struct sl_event *e, char more[MORE_BYTES])
{
    snprintf(more, MORE_BYTES, "%s%s", e->why != NULL ? " why=" : "",
             e->why != NULL ? e->why : "");
}

static const struct {
    const char *name;
    bool published;
    /* NULL: nothing to add. */
    void (*more)(const struct sl_event *e, char more[MORE_BYTES]);
} events[SL_EVENTS] = {
    [SL_EVENT_GRANTED] = {"granted", true, more_of_granted},
    [SL_EVENT_EXTENDED] = {"extended", true, more_of_extended},
    [SL_EVENT_RELEASED] = {"released", true, more_of_why},
    [SL_EVENT_EXPIRED] = {"expired", true, NULL},
    [SL_EVENT_BROKEN] = {"broken", true, more_of_why},
    [SL_EVENT_ASKED] = {"asked", true, more_of_asked},
    [SL_EVENT_WITHDRAWN] = {"withdrawn", true, NULL},
    [SL_EVENT_STOLEN] = {"stolen", true, more_of_stolen},
    [SL_EVENT_WAITS] = {"waits", false, NULL},
};

/* --- Publishing --------------------------------------------------------------- */

static void publish(struct server *s, const struct sl_event *e)
{
    char channel[CHANNEL_BYTES + UINT16_MAX], text[160], more[MORE_BYTES] = "";
    memcpy(channel, CHANNEL, CHANNEL_BYTES);
    memcpy(channel + CHANNEL_BYTES, e->key.at, e->key.n);
    if (events[e->type].more != NULL) events[e->type].more(e, more);
    int n = snprintf(text, sizeof text, "%s %" PRIu64 "%s", events[e->type].name,
                     e->fence, more);
    const struct sl_bytes to = {channel, CHANNEL_BYTES + e->key.n};
    const struct sl_bytes what = {text, (size_t)n};
    sl_server_spend(s, s->pubsub.pattern_words * to.n);
    size_t heard = sl_pubsub_publish(&s->pubsub, to, what);
    s->stats.events += heard;
    if (s->pubsub.elsewhere != NULL) s->pubsub.elsewhere(s, to, what);
    sl_server_spend(s, 128 * heard);
}

static void push(struct server *s, const struct sl_event *e)
{
    const struct session *n = sl_server_session(s, e->session);
    bool waits = e->type == SL_EVENT_WAITS;
    if (n == NULL || n->conn == NULL || !n->conn->out.resp3) return;
    struct sl_resp_writer *w = sl_conn_out(n->conn);
    sl_resp_push(w, waits ? 6 : 4);
    sl_resp_text(w, "lock");
    sl_resp_bulk(w, e->key);
    sl_resp_text(w, events[e->type].name);
    sl_resp_integer(w, (int64_t)e->fence);
    if (!waits) return;
    sl_resp_integer(w, e->left_ms == SL_NEVER ? -1 : e->left_ms);
    sl_resp_bulk(w, e->note);
}

void sl_event_publish(struct server *s, const struct sl_event *e)
{
    if (events[e->type].published && !sl_pubsub_unheard(&s->pubsub)) publish(s, e);
    if (e->session != 0) push(s, e);
}

void sl_event_keeper_changed(struct server *s, uint64_t term, uint32_t node)
{
    char text[80];
    int n = snprintf(text, sizeof text, "keeper-changed %" PRIu64 " node=%" PRIu32,
                     term, node);
    size_t heard = sl_pubsub_publish_to_all(&s->pubsub,
                                            (struct sl_bytes){CHANNEL, CHANNEL_BYTES},
                                            (struct sl_bytes){text, (size_t)n});
    s->stats.events += heard;
    sl_server_spend(s, 128 * heard);
}

void sl_event_granted(struct server *s, struct sl_bytes key, const struct sl_grant *g)
{
    if (sl_pubsub_unheard(&s->pubsub)) return;
    const struct sl_event e = {.type = SL_EVENT_GRANTED,
                               .key = key,
                               .fence = g->fence,
                               .held = g->held,
                               .lease_ms = g->lease_ms,
                               .waited_ms = g->waited_ms,
                               .overlapping = g->overlapping};
    publish(s, &e);
}
