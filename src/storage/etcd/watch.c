/* etcd_watching.c - who is the keeper, told when it changes: a look, then a stream from
 * there on. A stream that has ended, or that is silent, is followed by a look. */
#include "storage/etcd/etcd.h"

#include <string.h>

#define SILENCE_MS 2000
#define PAUSE_MS 100
#define PAUSE_MS_MAX 1000

static void look_in(struct sl_storage *e, sl_ms ms)
{
    e->watching.look_at = sl_etcd_now() + ms;
}

static void look_after_failure(struct sl_storage *e)
{
    struct sl_etcd_watching *w = &e->watching;
    sl_ms pause = PAUSE_MS << (w->failures < 4 ? w->failures : 4);
    w->failures++;
    w->tell = true;
    look_in(e, pause < PAUSE_MS_MAX ? pause : PAUSE_MS_MAX);
}

static bool same(const struct sl_storage_term *a, const struct sl_storage_term *b)
{
    return a->term == b->term && a->node == b->node && a->heartbeat == b->heartbeat &&
           a->fence_limit == b->fence_limit && a->longest_ms == b->longest_ms;
}

static void tell(struct sl_storage *e, const struct sl_storage_term *reign,
                 uint64_t revision)
{
    struct sl_etcd_watching *w = &e->watching;
    w->reign = *reign;
    w->revision = revision;
    w->tell = false;
    sl_etcd_note_reign(e, reign);
    w->told(w->owner, reign);
}

/* --- The stream -------------------------------------------------------------------- */

static void begin_anew(struct sl_storage *e)
{
    if (e->watching.streams) sl_etcd_unwatch(e->client);
    e->watching.streams = false;
    e->watching.tell = true;
    look_in(e, 0);
}

/* False: it cannot be made out, so a look has to. */
static bool take_events(struct sl_storage *e, const json_t *result)
{
    const json_t *events = json_object_get(result, "events");
    struct sl_storage_term reign = e->watching.reign;
    uint64_t revision = sl_etcd_json_revision(result);
    if (json_is_true(json_object_get(result, "canceled"))) return false;
    if (json_array_size(events) == 0) return true;
    for (size_t i = 0; i < json_array_size(events); i++) {
        const json_t *event = json_array_get(events, i);
        const char *type = json_string_value(json_object_get(event, "type"));
        if (type != NULL && strcmp(type, "DELETE") == 0) return false;
        sl_etcd_json_reign_key(e, json_object_get(event, "kv"), &reign, NULL);
    }
    look_in(e, SILENCE_MS);
    if (revision > e->watching.revision) tell(e, &reign, revision);
    return true;
}

static void on_event(void *owner, struct sl_bytes json)
{
    struct sl_storage *e = owner;
    json_t *o = sl_etcd_json_of(json);
    if (o == NULL || !take_events(e, json_object_get(o, "result"))) begin_anew(e);
    json_decref(o);
}

static void on_ended(void *owner, const char *why)
{
    struct sl_storage *e = owner;
    (void)why;
    e->watching.streams = false;
    look_after_failure(e);
}

static void begin_stream(struct sl_storage *e, uint64_t from)
{
    struct sl_etcd_watching *w = &e->watching;
    struct sl_etcd_watch watch = {.key = {w->key.at, w->key.n},
                                  .end = {w->end.at, w->end.n},
                                  .from = from,
                                  .told = on_event,
                                  .ended = on_ended,
                                  .owner = e};
    w->streams = sl_etcd_watch(e->client, &watch) == SLUICE_OK;
}

/* --- Looks -------------------------------------------------------------------------- */

static void on_seen(struct sl_storage *e, const json_t *txn)
{
    struct sl_etcd_watching *w = &e->watching;
    struct sl_storage_term reign;
    uint64_t revision = sl_etcd_json_revision(txn);
    sl_etcd_json_reign(e, sl_etcd_json_keys(txn, 0), &reign, NULL);
    look_in(e, SILENCE_MS);
    w->failures = 0;
    if (w->streams && revision < w->revision) return; /* The stream was quicker. */
    bool changed = !same(&reign, &w->reign);
    if (changed && w->streams) {
        sl_etcd_unwatch(e->client); /* It should have told. */
        w->streams = false;
    }
    if (!w->streams) begin_stream(e, revision + 1);
    if (changed || w->tell) tell(e, &reign, revision);
    w->revision = revision;
}

static void on_look(struct sl_etcd_call *call)
{
    struct sl_storage *e = call->owner;
    int status;
    json_t *txn = NULL;
    if (sl_etcd_outcome_of(&e->watching.ask, &status) == SL_ETCD_OUTCOME_ANSWER)
        txn = sl_etcd_json_of(call->answer);
    sl_etcd_task_end(&e->watching.ask);
    if (txn != NULL) on_seen(e, txn);
    else look_after_failure(e);
    json_decref(txn);
}

static void look(struct sl_storage *e)
{
    struct sl_etcd_text *t = &e->watching.ask.body;
    sl_etcd_task_begin(&e->watching.ask);
    sl_etcd_text_clear(t);
    sl_etcd_txn_begin(t);
    sl_etcd_txn_then(t);
    sl_etcd_op_reign(t, e);
    sl_etcd_txn_end(t);
    if (!t->failed) {
        sl_etcd_task_send(&e->watching.ask);
        return;
    }
    sl_etcd_task_end(&e->watching.ask);
    look_after_failure(e);
}

void sl_etcd_watching_pump(struct sl_storage *e, sl_ms now)
{
    struct sl_etcd_watching *w = &e->watching;
    if (w->told == NULL || w->ask.busy) return;
    if (now >= w->look_at) look(e);
    if (!w->ask.busy) sl_etcd_wake(e, w->look_at);
}

void sl_etcd_watching_init(struct sl_storage *e)
{
    struct sl_etcd_watching *w = &e->watching;
    sl_etcd_task_init(e, &w->ask, "/v3/kv/txn", on_look, e);
    w->ask.call.repeatable = true;
    sl_etcd_key_of(e, &w->key, "keeper");
    sl_etcd_key_of(e, &w->end, "keeper0");
    w->tell = true;
}

void sl_etcd_watching_free(struct sl_storage *e)
{
    sl_etcd_text_free(&e->watching.ask.body);
}
