/* route_orders.c - the orders of the route: messages to the keeper, and replies to clients. */
#include "failover/route_internal.h"

#include <stdlib.h>
#include <string.h>

static struct sl_route_order send(struct sl_failover_message m)
{
    return (struct sl_route_order){.type = SL_ROUTE_ORDER_SEND, .message = m};
}

/* Get the next order about a session that has one. */
static bool next_of_session(struct sl_route *r, struct sl_route_order *out)
{
    if (sl_list_empty(&r->due)) return false;
    struct sl_route_session *n = sl_container_of(r->due.next, struct sl_route_session,
                                                 due);
    struct sl_route_request *q = n->request;
    *out = (struct sl_route_order){.session = n, .request = q};
    if (n->close != SL_ROUTE_STAYS) {
        out->type = SL_ROUTE_ORDER_CLOSE;
        out->close = n->close;
        n->close = SL_ROUTE_STAYS;
    } else if (n->tx_lost) {
        out->type = SL_ROUTE_ORDER_TX_LOST;
        n->tx_lost = false;
    } else if (n->settle) {
        out->type = SL_ROUTE_ORDER_SETTLE;
        out->bytes = n->tx_request;
        n->settle = false;
    } else {
        sl_list_remove(&n->due);
        return next_of_session(r, out);
    }
    return true;
}

/* Answer the next request that is answered without the keeper. */
static bool next_answer(struct sl_route *r, struct sl_route_order *out)
{
    if (sl_list_empty(&r->answering)) return false;
    struct sl_route_request *q = sl_container_of(r->answering.next,
                                                 struct sl_route_request, place);
    *out = (struct sl_route_order){.type = SL_ROUTE_ORDER_ANSWER,
                                   .session = q->session,
                                   .request = q,
                                   .answer = q->answer};
    sl_route_end_request(r, q);
    return true;
}

/* Get a message that is about neither a record nor a request. */
static bool next_message(struct sl_route *r, sl_ms now_ms, struct sl_route_order *out)
{
    if (r->come_due) {
        r->come_due = false;
        *out = send((struct sl_failover_message){.type = SL_FAILOVER_COME,
                                                 .term = r->keeper_term});
    } else if (r->clock_due) { /* The keeper uses our clock in NOTE. */
        r->clock_due = false;
        *out = send(
            (struct sl_failover_message){.type = SL_FAILOVER_CLOCK, .ms = now_ms});
    } else if (r->mark != 0) {
        *out = send(
            (struct sl_failover_message){.type = SL_FAILOVER_NOTED, .fence = r->mark});
        r->mark = 0;
    } else if (r->listen_due) {
        r->listen_due = false;
        r->listens = !r->listens;
        *out = send((struct sl_failover_message){.type = SL_FAILOVER_LISTEN,
                                                 .yes = r->listens});
    } else return false;
    return true;
}

uint64_t sl_route_draw_origin(struct sl_route *r)
{
    r->origins++;
    uint64_t drawn = sl_hash(r->settings.hash_key, &r->origins, sizeof r->origins);
    drawn &= SL_FENCE_MAX;
    return drawn != 0 ? drawn : 1;
}

/* If ORIGIN or CLIENT was not sent for this session on this route, order that. */
static bool describe(struct sl_route *r, struct sl_route_session *n,
                     struct sl_route_order *out)
{
    if (n->origin_route != r->number) {
        if (n->origin == 0) n->origin = sl_route_draw_origin(r);
        n->origin_route = r->number;
        *out = send((struct sl_failover_message){
            .type = SL_FAILOVER_ORIGIN, .session = n->id, .origin = n->origin});
        return true;
    }
    if (n->described_route == r->number) return false;
    n->described_route = r->number;
    *out = (struct sl_route_order){.type = SL_ROUTE_ORDER_DESCRIBE, .session = n};
    return true;
}

/* Send a withdrawal that was not sent on this route. Those that were are at the end of the list. */
static bool next_withdrawal(struct sl_route *r, struct sl_route_order *out)
{
    struct sl_list *all = &r->withdrawn.all;
    if (sl_list_empty(all)) return false;
    struct sl_withdrawal *x = sl_container_of(all->next, struct sl_withdrawal, all);
    if (x->route == r->number) return false;
    x->route = r->number;
    sl_list_remove(&x->all);
    sl_list_append(all, &x->all);
    *out = send((struct sl_failover_message){.type = SL_FAILOVER_WITHDRAW,
                                             .origin = x->origin,
                                             .key = {x->key, x->key_bytes},
                                             .fence = x->fence});
    return true;
}

/* Introduce the client of a record that has no session here. Returns false if that is done. */
static bool introduce(struct sl_route *r, struct sl_record *x,
                      struct sl_route_order *out)
{
    if (x->name.n + x->address.n == 0 || r->described == x) return false;
    *out = send((struct sl_failover_message){
        .type = SL_FAILOVER_CLIENT, .name = x->name, .address = x->address});
    r->described = x;
    return true;
}

/* Hand over the next record. The records that were handed over are at the end of the list. The keeper may
 * not have acknowledged a grant that no client here has received, so drop its record. */
static void next_record(struct sl_route *r, sl_ms now_ms, struct sl_route_order *out)
{
    struct sl_record *x = sl_list_empty(&r->ledger.all)
                              ? NULL
                              : sl_container_of(r->ledger.all.next, struct sl_record,
                                                all);
    if (x == NULL || x->route == r->number) {
        *out = send((struct sl_failover_message){.type = SL_FAILOVER_READY,
                                                 .ms = now_ms - r->complete_ms});
        r->handing = r->has_lost = false;
        r->open = true;
        return;
    }
    if (x->unanswered) {
        sl_ledger_drop(&r->ledger, x);
        *out = (struct sl_route_order){.type = SL_ROUTE_ORDER_NONE};
        return;
    }
    struct sl_route_session *n = x->session == 0 ? NULL
                                                 : sl_route_session_find(r, x->session);
    if (n != NULL) {
        n->route = r->number; /* The keeper knows this session, so report its end. */
        if (describe(r, n, out)) return;
    }
    bool expired = x->end_ms <= now_ms;
    if (!expired && x->session == 0 && introduce(r, x, out)) return;
    r->described = NULL;
    x->route = r->number;
    sl_list_remove(&x->all);
    sl_list_append(&r->ledger.all, &x->all);
    if (expired) *out = (struct sl_route_order){.type = SL_ROUTE_ORDER_NONE};
    else
        *out = send((struct sl_failover_message){.type = SL_FAILOVER_RECLAIM,
                                                 .session = x->session,
                                                 .ms = now_ms - r->here_ms,
                                                 .key = x->key,
                                                 .grant = sl_record_view(x, now_ms)});
}

/* Drop the record of a grant when its RELEASE is sent, so that the node does not report the grant
 * to the next keeper. */
static void note_release(struct sl_route *r, struct sl_route_request *q)
{
    /* If this node was the keeper when the request arrived, the ledger has the grant only now. */
    if (q->released_fence == 0)
        q->released_fence = sl_route_released(r, q->session, q->key, q->fence);
    struct sl_record *x = q->released_fence == 0
                              ? NULL
                              : sl_ledger_find(&r->ledger, q->released_fence);
    if (x == NULL) return;
    q->had_record = true;
    sl_ledger_drop(&r->ledger, x);
}

/* Send the first request of the queue, in pieces. */
static bool next_request(struct sl_route *r, sl_ms now_ms, bool has_space,
                         struct sl_route_order *out)
{
    struct sl_route_request *q = sl_container_of(r->queued.next,
                                                 struct sl_route_request, place);
    if (!r->open || r->leads || sl_list_empty(&r->queued)) return false;
    if (q->sent_bytes == 0 && !has_space) return false;
    if (q->verb == SL_ROUTE_RELEASE) note_release(r, q);
    if (describe(r, q->session, out)) return true;
    size_t left = q->bytes.n - q->sent_bytes;
    size_t n = left < SL_ROUTE_PIECE ? left : SL_ROUTE_PIECE;
    *out = send(
        (struct sl_failover_message){.type = SL_FAILOVER_DO,
                                     .session = q->session->id,
                                     .ms = now_ms - q->arrived_ms,
                                     .yes = q->resp3,
                                     .last = n == left,
                                     .bytes = {q->bytes.at + q->sent_bytes, n}});
    q->sent_bytes += n;
    if (n < left) return true;
    sl_route_unlist(r, q);
    q->session->route = r->number;
    q->sent_ms = now_ms;
    q->sent = true;
    sl_list_append(&r->sent, &q->place);
    sl_list_append(&q->session->asked, &q->asked);
    r->sent_count++;
    r->forwarded++;
    return true;
}

static bool next_resumed(struct sl_route *r, struct sl_route_order *out)
{
    if (!r->leads || sl_list_empty(&r->resuming)) return false;
    struct sl_route_request *q = sl_container_of(r->resuming.next,
                                                 struct sl_route_request, place);
    sl_route_end_request(r, q);
    *out = (struct sl_route_order){.type = SL_ROUTE_ORDER_RESUME, .request = q};
    return true;
}

bool sl_route_next(struct sl_route *r, sl_ms now_ms, bool has_space,
                   struct sl_route_order *out)
{
    if (r->has_order) {
        r->has_order = false;
        *out = r->order;
        return true;
    }
    if (next_of_session(r, out) || next_answer(r, out) || next_resumed(r, out))
        return true;
    if (!r->leads && next_message(r, now_ms, out)) return true;
    if ((r->handing || r->open) && has_space && next_withdrawal(r, out)) return true;
    if (r->handing) {
        if (!has_space) return false;
        next_record(r, now_ms, out);
        return true;
    }
    return next_request(r, now_ms, has_space, out);
}
