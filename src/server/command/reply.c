/* reply.c - writes the replies to requests, one function per verb. */
#include "server/command/reply.h"

#include <inttypes.h>

#include "server/observe/inspection.h"

static void put_grant(struct sl_resp_writer *w, const struct request *r,
                      const struct sl_grant *g)
{
    bool has_id = r->want.request.n > 0;
    sl_resp_array(w, has_id ? 6 : 5);
    sl_resp_integer(w, (int64_t)g->fence);
    sl_resp_integer(w, (int64_t)g->held);
    sl_resp_integer(w, g->lease_ms > 0 ? g->lease_ms : -1);
    sl_resp_integer(w, g->waited_ms);
    sl_resp_integer(w, g->overlapping ? 1 : 0);
    if (has_id) sl_resp_integer(w, g->replay ? 1 : 0);
}

static void put_newest(struct sl_resp_writer *w, const struct sl_grant_view *v)
{
    if (v == NULL) {
        sl_resp_null_array(w);
        return;
    }
    sl_resp_array(w, 3);
    sl_resp_bulk(w, v->value);
    sl_resp_integer(w, (int64_t)v->fence);
    sl_resp_integer(w, v->leased ? v->left_ms : -1);
}

static void reply_capacity(struct call *call, const struct sl_want *w)
{
    uint64_t capacity = (uint64_t)w->per * w->buckets;
    if (capacity > SLUICE_CAPACITY_MAX)
        sl_say_format(call, "TOOBIG",
                      "PER times BUCKETS must be at most %" PRIu64 " (got %" PRIu64 ")",
                      (uint64_t)SLUICE_CAPACITY_MAX, capacity);
    else
        sl_say_format(
            call, "TOOBIG",
            "UNITS must not exceed the capacity, PER times BUCKETS (got %" PRIu32
            " units, capacity %" PRIu64 ")",
            w->units, capacity);
}

static void reply_drains_max(struct call *call)
{
    sl_say_format(call, "LIMIT",
                  "the server has reached its limit of %" PRId64
                  " DRAIN patterns (drains-max); remove one with DRAIN pattern OFF",
                  call->s->settings->drains_max);
}

static void reply_error(struct call *call, const struct request *r,
                        const struct answer *a)
{
    if (a->text != NULL)
        sl_say(call, a->code != NULL ? a->code : sluice_status_word(a->status),
               a->text);
    else if (r->verb == SL_VERB_ACQUIRE && a->status == SLUICE_ETOOBIG)
        reply_capacity(call, &r->want);
    else if (r->verb == SL_VERB_DRAIN && a->status == SLUICE_EFULL)
        reply_drains_max(call);
    else sl_say_status(call, a->status);
}

void sl_reply(struct call *call, const struct request *r, const struct answer *a)
{
    struct sl_resp_writer *w = call->out;
    sl_call_begin(call);
    if (a->tx != NULL) sl_reply_tx(call, r, a);
    else if (a->status != SLUICE_OK) {
        if (r->verb == SL_VERB_ACQUIRE && a->status == SLUICE_EFULL)
            sl_resp_null_array(w);
        else reply_error(call, r, a);
    } else if (r->verb == SL_VERB_ACQUIRE) put_grant(w, r, a->grant);
    else if (a->inspection != NULL) sl_inspection_write(call, r, a->inspection);
    else if (r->verb == SL_VERB_READ) put_newest(w, a->newest);
    else sl_resp_integer(w, a->number);
}
