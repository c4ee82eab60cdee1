/* watch.c - reports changes of the term. It reads the term, then follows a stream of
 * changes from that revision. When the stream ends or is silent, it reads the term
 * again. */
#include <assert.h>
#include <string.h>

#include "storage/etcd/etcd_internal.h"

#define SILENCE_MS 2000
#define PAUSE_MS 100
#define PAUSE_MS_MAX 1000

static void poll_in(struct sl_etcd *e, sl_ms ms)
{
    e->watching.poll_at_ms = sl_etcd_now() + ms;
}

static void poll_after_failure(struct sl_etcd *e)
{
    struct sl_etcd_watching *w = &e->watching;
    sl_ms pause = PAUSE_MS << (w->failures < 4 ? w->failures : 4);
    w->failures++;
    w->report = true;
    poll_in(e, pause < PAUSE_MS_MAX ? pause : PAUSE_MS_MAX);
}

static bool same(const struct sl_storage_term *a, const struct sl_storage_term *b)
{
    return a->term == b->term && a->node == b->node && a->heartbeat == b->heartbeat &&
           a->fence_limit == b->fence_limit && a->longest_ms == b->longest_ms &&
           a->clock_ms == b->clock_ms && a->ledgers == b->ledgers &&
           a->resigned == b->resigned;
}

static void report(struct sl_etcd *e, const struct sl_storage_term *term,
                   uint64_t revision)
{
    struct sl_etcd_watching *w = &e->watching;
    assert(w->changed != NULL);
    w->term = *term;
    w->revision = revision;
    w->report = false;
    sl_etcd_note_term(e, term);
    w->changed(w->owner, term);
}

/* --- The stream -------------------------------------------------------------------- */

static void restart(struct sl_etcd *e)
{
    if (e->watching.streaming) sl_etcd_client_unwatch(e->client);
    e->watching.streaming = false;
    e->watching.report = true;
    poll_in(e, 0);
}

/* Update the term from the events. Returns false if the events do not contain the new
 * term, so that it must be read. */
static bool take_events(struct sl_etcd *e, const json_t *result)
{
    const json_t *events = json_object_get(result, "events");
    struct sl_storage_term term = e->watching.term;
    uint64_t revision = sl_etcd_json_revision(result);
    if (json_is_true(json_object_get(result, "canceled"))) return false;
    if (json_array_size(events) == 0) return true;
    for (size_t i = 0; i < json_array_size(events); i++) {
        const json_t *event = json_array_get(events, i);
        const char *type = json_string_value(json_object_get(event, "type"));
        if (type != NULL && strcmp(type, "DELETE") == 0) return false;
        sl_etcd_json_term_key(e, json_object_get(event, "kv"), &term, NULL);
    }
    poll_in(e, SILENCE_MS);
    if (revision > e->watching.revision) report(e, &term, revision);
    return true;
}

static void on_event(void *owner, struct sl_bytes json)
{
    struct sl_etcd *e = owner;
    json_t *o = sl_etcd_json_of(json);
    if (o == NULL || !take_events(e, json_object_get(o, "result"))) restart(e);
    json_decref(o);
}

static void on_ended(void *owner, const char *why)
{
    struct sl_etcd *e = owner;
    (void)why;
    e->watching.streaming = false;
    poll_after_failure(e);
}

static void begin_stream(struct sl_etcd *e, uint64_t from)
{
    struct sl_etcd_watching *w = &e->watching;
    struct sl_etcd_watch watch = {.key = {w->key.at, w->key.n},
                                  .end = {w->end.at, w->end.n},
                                  .from = from,
                                  .on_object = on_event,
                                  .on_end = on_ended,
                                  .owner = e};
    w->streaming = sl_etcd_client_watch(e->client, &watch) == SLUICE_OK;
}

/* --- Reading the term -------------------------------------------------------- */

static void on_term(struct sl_etcd *e, const json_t *txn)
{
    struct sl_etcd_watching *w = &e->watching;
    struct sl_storage_term term;
    uint64_t revision = sl_etcd_json_revision(txn);
    sl_etcd_json_term(e, sl_etcd_json_keys(txn, 0), &term, NULL);
    poll_in(e, SILENCE_MS);
    w->failures = 0;
    /* The stream has already reported a newer revision. */
    if (w->streaming && revision < w->revision) return;
    bool changed = !same(&term, &w->term);
    if (changed && w->streaming) {
        sl_etcd_client_unwatch(e->client); /* The stream missed this change. */
        w->streaming = false;
    }
    if (!w->streaming) begin_stream(e, revision + 1);
    if (changed || w->report) report(e, &term, revision);
    w->revision = revision;
}

static void on_read(struct sl_etcd_call *call)
{
    struct sl_etcd *e = call->owner;
    int status;
    json_t *txn = NULL;
    if (sl_etcd_outcome_of(&e->watching.task, &status) == SL_ETCD_OUTCOME_ANSWER)
        txn = sl_etcd_json_of(call->answer);
    sl_etcd_task_end(&e->watching.task);
    if (e->watching.changed == NULL) {
    } /* The storage is closing. */
    else if (txn != NULL)
        on_term(e, txn);
    else poll_after_failure(e);
    json_decref(txn);
}

static void read_term(struct sl_etcd *e)
{
    struct sl_etcd_text *t = &e->watching.task.body;
    sl_etcd_task_begin(&e->watching.task);
    sl_etcd_text_clear(t);
    sl_etcd_txn_begin(t);
    sl_etcd_txn_then(t);
    sl_etcd_op_read_term(t, e);
    sl_etcd_txn_end(t);
    if (!t->failed) {
        sl_etcd_task_send(&e->watching.task);
        return;
    }
    sl_etcd_task_end(&e->watching.task);
    poll_after_failure(e);
}

void sl_etcd_watching_pump(struct sl_etcd *e, sl_ms now)
{
    struct sl_etcd_watching *w = &e->watching;
    if (w->changed == NULL || w->task.busy) return;
    if (now >= w->poll_at_ms) read_term(e);
    if (!w->task.busy) sl_etcd_wake(e, w->poll_at_ms);
}

void sl_etcd_watching_init(struct sl_etcd *e)
{
    struct sl_etcd_watching *w = &e->watching;
    sl_etcd_task_init(e, &w->task, "/v3/kv/txn", on_read, e);
    w->task.call.repeatable = true;
    sl_etcd_key_of(e, &w->key, "keeper");
    sl_etcd_key_of(e, &w->end, "keeper0");
    w->report = true;
}

void sl_etcd_watching_free(struct sl_etcd *e)
{
    sl_etcd_text_free(&e->watching.task.body);
}
