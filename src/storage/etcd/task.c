/* task.c - sends a request to etcd again until its outcome is known, and interprets
 * etcd's answers. */
#include <assert.h>
#include <stdio.h>
#include <string.h>

#include "storage/etcd/etcd_internal.h"

#define PAUSE_MS 20
#define PAUSE_MS_MAX 1000

void sl_etcd_task_init(struct sl_etcd *e, struct sl_etcd_task *a, const char *path,
                       void (*done)(struct sl_etcd_call *call), void *owner)
{
    a->e = e;
    a->call.path = path;
    a->call.done = done;
    a->call.owner = owner;
    a->retry_at_ms = SL_NEVER;
}

void sl_etcd_task_begin(struct sl_etcd_task *a)
{
    assert(!a->busy && !a->in_flight);
    a->busy = true;
    a->lost = a->abandoned = false;
    a->tries = 0;
    a->since_ms = sl_etcd_now();
    a->retry_at_ms = SL_NEVER;
}

void sl_etcd_task_send(struct sl_etcd_task *a)
{
    assert(a->busy && !a->in_flight && !a->body.failed);
    a->in_flight = true;
    a->retry_at_ms = SL_NEVER;
    a->call.body = (struct sl_bytes){a->body.at, a->body.n};
    sl_etcd_client_send(a->e->client, &a->call);
}

void sl_etcd_task_later(struct sl_etcd_task *a)
{
    assert(a->busy && !a->in_flight);
    sl_ms pause = PAUSE_MS << (a->tries < 6 ? a->tries : 6);
    a->tries++;
    a->retry_at_ms = sl_etcd_now() + (pause < PAUSE_MS_MAX ? pause : PAUSE_MS_MAX);
    sl_etcd_wake(a->e, a->retry_at_ms);
}

void sl_etcd_task_end(struct sl_etcd_task *a)
{
    assert(!a->in_flight);
    a->busy = a->lost = a->abandoned = false;
    a->retry_at_ms = SL_NEVER;
}

bool sl_etcd_task_is_due(const struct sl_etcd_task *a, sl_ms now)
{
    if (!a->busy || a->in_flight) return false;
    if (a->retry_at_ms > now) {
        sl_etcd_wake(a->e, a->retry_at_ms);
        return false;
    }
    return true;
}

bool sl_etcd_task_is_overdue(const struct sl_etcd_task *a, sl_ms now)
{
    sl_ms hurry = a->e->hurry_since_ms;
    return a->busy &&
           now >= (a->since_ms > hurry ? a->since_ms : hurry) + SL_ETCD_HURRY_MS;
}

/* --- What an answer means ---------------------------------------------------- */

static bool says(const struct sl_etcd_call *call, const char *text)
{
    return call->answer.n > 0 &&
           memmem(call->answer.at, call->answer.n, text, strlen(text)) != NULL;
}

/* Return whether this gRPC code means that etcd has not executed the request. After any
 * other error, etcd may have executed it. */
static bool was_not_done(int code)
{
    switch (code) {
        case 3:  /* Invalid argument. */
        case 5:  /* Not found. */
        case 7:  /* Permission denied. */
        case 8:  /* Resource exhausted. */
        case 9:  /* Failed precondition. */
        case 11: /* Out of range: a revision that was compacted or is in the future. */
        case 12: /* Unimplemented. */
        case 16: /* Unauthenticated. */ return true;
        default: return false;
    }
}

static enum sl_etcd_outcome refusal(const struct sl_etcd_call *call, int *status)
{
    *status = SLUICE_EIO;
    if (says(call, "lease not found")) return SL_ETCD_OUTCOME_NO_LEASE;
    if (says(call, "too many requests")) return SL_ETCD_OUTCOME_BUSY;
    if (says(call, "space exceeded")) *status = SLUICE_ENOSPC;
    if (says(call, "too large") || says(call, "larger than max"))
        *status = SLUICE_ETOOBIG;
    if (says(call, "too many operations")) *status = SLUICE_EWRITES;
    return SL_ETCD_OUTCOME_REFUSED;
}

static void note_trouble(struct sl_etcd *e, const struct sl_etcd_task *a)
{
    const struct sl_etcd_call *call = &a->call;
    if (call->too_big || e->format == SL_ETCD_FORMAT_OTHER) return;
    e->write_trouble = a->writes;
    if (call->answer.n > 0)
        snprintf(e->trouble, sizeof e->trouble, "etcd: %.*s",
                 (int)(call->answer.n < 200 ? call->answer.n : 200), call->answer.at);
    else
        snprintf(e->trouble, sizeof e->trouble, "etcd: HTTP status %d",
                 call->http_status);
}

enum sl_etcd_outcome sl_etcd_outcome_of(struct sl_etcd_task *a, int *status)
{
    struct sl_etcd_call *call = &a->call;
    struct sl_etcd *e = a->e;
    assert(a->in_flight);
    a->in_flight = false;
    *status = SLUICE_EIO;
    if (call->fate != SL_ETCD_ANSWERED) {
        sl_etcd_note_silence(e, sl_etcd_now());
        return call->fate == SL_ETCD_UNSENT ? SL_ETCD_OUTCOME_UNSENT
                                            : SL_ETCD_OUTCOME_UNKNOWN;
    }
    if (call->code == 0 && call->http_status == 200 && !call->too_big) {
        e->silent_since_ms = 0;
        if (a->writes && !a->only_reads) e->write_trouble = false;
        if (e->format != SL_ETCD_FORMAT_OTHER && !e->write_trouble)
            e->trouble[0] = '\0';
        return SL_ETCD_OUTCOME_ANSWER;
    }
    note_trouble(e, a);
    if (!was_not_done(call->code)) {
        if (!call->too_big) sl_etcd_note_silence(e, sl_etcd_now());
        return SL_ETCD_OUTCOME_UNKNOWN;
    }
    e->silent_since_ms = 0;
    return refusal(call, status);
}

/* --- Silence ----------------------------------------------------------------- */

void sl_etcd_note_silence(struct sl_etcd *e, sl_ms since_ms)
{
    if (e->silent_since_ms == 0) e->silent_since_ms = since_ms;
}

bool sl_etcd_is_silent(const struct sl_etcd *e, sl_ms now)
{
    sl_ms patience = e->settings.answer_ms * e->members, since = e->silent_since_ms;
    if (since == 0) return false;
    if (e->hurry_since_ms != 0) {
        if (since < e->hurry_since_ms) since = e->hurry_since_ms;
        if (patience > SL_ETCD_HURRY_MS) patience = SL_ETCD_HURRY_MS;
    }
    return now >= since + patience;
}

/* --- The format -------------------------------------------------------------- */

bool sl_etcd_format_is_ours(struct sl_etcd *e, const json_t *keys)
{
    char format[32];
    bool was_other = e->format == SL_ETCD_FORMAT_OTHER;
    sl_etcd_json_text(json_array_get(keys, 0), format, sizeof format);
    if (json_array_size(keys) == 0) e->format = SL_ETCD_FORMAT_NONE;
    else if (strcmp(format, SL_ETCD_FORMAT) == 0) e->format = SL_ETCD_FORMAT_OURS;
    else e->format = SL_ETCD_FORMAT_OTHER;
    if (e->format != SL_ETCD_FORMAT_OTHER) {
        if (was_other) e->trouble[0] = '\0';
        return true;
    }
    snprintf(
        e->trouble, sizeof e->trouble,
        "etcd: the data under the prefix %.*s has the format %s, but this version of "
        "Sluice uses %s; choose another etcd-prefix, or run the matching version",
        (int)e->prefix.n, e->prefix.at, format, SL_ETCD_FORMAT);
    return false;
}
