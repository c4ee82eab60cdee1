/* route_receive.c - the messages that a node receives from the keeper. */
#include "failover/route_internal.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#define AGAIN_MS 20
#define LONG_AGO_MS ((sl_ms)1 << 40) /* Older than any lease. */

static void order(struct sl_route *r, struct sl_route_order o)
{
    assert(!r->has_order); /* The caller fetches all orders after each message. */
    r->order = o;
    r->has_order = true;
}

/* Record the transaction of a session. Each reply of the keeper contains its id. If the id is new,
 * this TX.BEGIN has begun the transaction, so the node keeps its REQUEST id. A rejected TX.BEGIN
 * changes nothing. */
static void note_transaction(const struct sl_route_request *q, uint64_t tx)
{
    struct sl_route_session *n = q->session;
    bool begins = q->verb == SL_ROUTE_TX_BEGIN;
    if (tx == n->tx) return;
    sl_route_tx_ended(n);
    if (tx == 0 || !begins) return;
    n->tx = tx;
    char *id = q->id.n > 0 ? malloc(q->id.n) : NULL;
    /* Out of memory: if the reply to the commit is lost, the outcome will be unknown. */
    if (id == NULL) return;
    memcpy(id, q->id.at, q->id.n);
    n->tx_request = (struct sl_bytes){id, q->id.n};
}

static bool is_grant(struct sl_bytes reply)
{
    return reply.n >= 2 && memcmp(reply.at, "*5", 2) == 0;
}

/* The same; or the reply to an attempt with an id, which also says whether it is a replay. */
static bool shows_grant(struct sl_bytes reply)
{
    return is_grant(reply) || (reply.n >= 2 && memcmp(reply.at, "*6", 2) == 0);
}

/* Convert the reply to TX.OUTCOME into a reply to TX.COMMIT. The node sent TX.OUTCOME instead of a
 * TX.COMMIT whose reply was lost. */
static struct sl_route_order settled(struct sl_route_request *q, struct sl_bytes reply)
{
    if (reply.n > 0 && reply.at[0] == ':')
        return (struct sl_route_order){
            .type = SL_ROUTE_ORDER_REPLY, .request = q, .bytes = reply};
    return (struct sl_route_order){
        .type = SL_ROUTE_ORDER_ANSWER,
        .request = q,
        .answer = reply.n > 0 && reply.at[0] == '-' ? SL_ROUTE_ASK : SL_ROUTE_STALE};
}

static void receive_reply(struct sl_route *r, struct sl_route_request *q, uint64_t tx,
                          struct sl_bytes reply)
{
    struct sl_route_session *n = q->session;
    struct sl_route_order o = {
        .type = SL_ROUTE_ORDER_REPLY, .request = q, .bytes = reply};
    if (q->settles) o = settled(q, reply);
    else if (q->had_record && reply.n == 4 && memcmp(reply.at, ":0\r\n", 4) == 0)
        /* The grant ended when the previous keeper failed. */
        o.bytes = (struct sl_bytes){":1\r\n", 4};
    else if (q->verb == SL_ROUTE_ACQUIRE && q->waits && is_grant(reply)) {
        o.late = true;
        o.fence = q->unanswered;
    }
    /* After an error, the client does not know of the grant that the keeper has reported, and the
     * keeper may have taken it back. So the record stays unanswered, and no keeper learns of it. */
    if (shows_grant(reply)) {
        struct sl_record *x = sl_ledger_find(&r->ledger, q->unanswered);
        if (x != NULL) x->unanswered = false;
        sl_route_knows(n, q->unanswered);
    }
    /* HELD for an EXTEND on another connection may have arrived after this node sent the RELEASE, and added the
     * record again. */
    if (q->had_record && reply.n > 0 && reply.at[0] == ':') {
        struct sl_record *x = sl_ledger_find(&r->ledger, q->released_fence);
        /* A grant without a lease may have moved to another session. */
        if (x != NULL && (x->leased || x->session == n->id))
            sl_ledger_drop(&r->ledger, x);
    }
    q->unanswered = 0;
    note_transaction(q, tx);
    sl_route_end_request(r, q);
    order(r, o);
}

static bool is_queued(struct sl_bytes reply)
{
    static const char queued[] = "+QUEUED\r\n";
    return sl_bytes_equal(reply, (struct sl_bytes){queued, sizeof queued - 1});
}

/* Handle the reply to a command of a session. */
static void receive_last(struct sl_route *r, struct sl_route_request *q,
                         const struct sl_failover_message *m)
{
    if (!q->notify || !is_queued(m->bytes)) {
        receive_reply(r, q, m->tx, m->bytes);
        return;
    }
    sl_route_queued(r, q);
    order(r, (struct sl_route_order){.type = SL_ROUTE_ORDER_QUEUED, .request = q});
}

static void receive_outcome(struct sl_route *r, const struct sl_failover_message *m)
{
    struct sl_route_request *q = m->request;
    if (q == NULL || !q->queued) return; /* The client has left, or has sent CANCEL. */
    receive_reply(r, q, q->session->tx, m->bytes);
}

static void receive_say(struct sl_route *r, const struct sl_failover_message *m)
{
    struct sl_route_session *n = sl_route_session_find(r, m->session);
    if (n == NULL) return; /* The client has left, so nobody waits for the reply. */
    n->half_replied = m->what == SL_SAY_MORE;
    if (m->what == SL_SAY_LAST && !sl_list_empty(&n->asked))
        receive_last(r, sl_container_of(n->asked.next, struct sl_route_request, asked),
                     m);
    else /* A push, or a part of a reply. */
        order(r, (struct sl_route_order){
                     .type = SL_ROUTE_ORDER_PUSH, .session = n, .bytes = m->bytes});
}

/* Return until when a lease is certainly valid, by this node's clock. The node counts from the time when
 * it sent the request, and allows for clocks whose rates differ by 1 in 500. If it counted from the time
 * when it read the reply, and the reply was late, the next keeper could extend the lease although the
 * lock already had another holder. */
static sl_ms sure_end(sl_ms since_ms, sl_ms age_ms, sl_ms left_ms)
{
    sl_ms ms = sl_ms_after(age_ms, left_ms);
    return ms == SL_NEVER ? SL_NEVER : since_ms + ms - ms / 500 - 1;
}

#define ROUNDED_MS 5 /* Times in messages are rounded down. */

/* Return when a lease has certainly expired. The message was sent before now. */
static sl_ms last_end(sl_ms now_ms, sl_ms left_ms)
{
    return sl_ms_after(now_ms, sl_ms_after(left_ms, left_ms / 499 + ROUNDED_MS));
}

/* Add a record. For each new record, check two old ones for expiry, so that few expired records
 * remain. Skip this while the ledger is being handed over, because that relies on the order of
 * records. If there is no memory for the record, the ledger is incomplete. */
static void put_record(struct sl_route *r, sl_ms now_ms, struct sl_record *x,
                       struct sl_list *held)
{
    x->route = r->number;
    if (!sl_ledger_put(&r->ledger, x, held)) {
        r->complete_ms = now_ms;
        r->has_lost = true;
    }
    if (!r->handing) sl_ledger_sweep(&r->ledger, now_ms, 2);
}

/* Whether the current request of the session is an EXTEND of this grant. If so, the client knows the grant. */
static bool extends(const struct sl_route_session *n, sl_fence fence)
{
    const struct sl_route_request *q = n->request;
    return q != NULL && q->verb == SL_ROUTE_EXTEND && q->fence == fence;
}

static void receive_held(struct sl_route *r, sl_ms now_ms,
                         const struct sl_failover_message *m, struct sl_bytes name,
                         struct sl_bytes address)
{
    struct sl_route_session *n = sl_route_session_find(r, m->session);
    struct sl_route_request *q = n == NULL            ? NULL
                                 : m->request != NULL ? m->request
                                                      : n->request;
    struct sl_grant_view v = m->grant;
    bool fresh = m->yes;
    if (!fresh) sl_noted_client_take(&r->noted, &v);
    /* The client has left, so nobody waits for the reply. */
    if (q == NULL || (!q->sent && !q->queued)) return;
    if (fresh) {
        v.name = name;
        v.address = address;
    }
    struct sl_record x = sl_record_of(m->key, &v, fresh ? n->id : 0,
                                      last_end(now_ms, v.left_ms),
                                      sure_end(q->sent_ms, m->ms, v.left_ms));
    /* HELD for an extension has the REQUEST id of the ACQUIRE. So if the client has repeated the ACQUIRE with
     * NOTIFY, HELD may be for either request. */
    bool acquires = q->verb == SL_ROUTE_ACQUIRE;
    x.unanswered = acquires && !extends(n, v.fence);
    put_record(r, now_ms, &x, fresh ? &n->held : NULL);
    if (acquires) q->unanswered = v.fence;
}

/* Handle NOTE: a grant of a client of the keeper's own node, or one that this ledger lacks. */
static void receive_note(struct sl_route *r, sl_ms now_ms,
                         const struct sl_failover_message *m)
{
    struct sl_grant_view v = m->grant;
    if (!v.leased) return;
    sl_noted_client_take(&r->noted, &v);
    struct sl_record x = sl_record_of(m->key, &v, 0, last_end(now_ms, v.left_ms),
                                      sure_end(m->ms, 0, v.left_ms - v.unsure_ms));
    put_record(r, now_ms, &x, NULL);
}

static void receive_gone(struct sl_route *r, const struct sl_failover_message *m)
{
    for (size_t i = 0; i < m->gone_count; i++) {
        struct sl_record *x = sl_ledger_find(&r->ledger, m->gone[i]);
        /* A new keeper must learn the expiry of a grant that it has ended. It answers the report of this
         * record with GONE again. */
        if (x == NULL || (r->handing && x->route != r->number)) continue;
        sl_ledger_drop(&r->ledger, x);
    }
}

/* Handle LOST: the keeper rejects a grant of a client of this node. If the grant has no lease,
 * close the connection of the client, which would otherwise believe that it still holds the
 * lock. */
static void receive_lost(struct sl_route *r, const struct sl_failover_message *m)
{
    struct sl_route_session *n = sl_route_session_find(r, m->session);
    struct sl_record *x = sl_ledger_find(&r->ledger, m->fence);
    if (x == NULL) return;
    bool leased = x->leased;
    r->refused++;
    sl_ledger_drop(&r->ledger, x);
    if (!leased && n != NULL) sl_route_close_session(r, n, SL_ROUTE_CLOSED);
    order(r, (struct sl_route_order){.type = SL_ROUTE_ORDER_LOST});
}

static void receive_here(struct sl_route *r, sl_ms now_ms, uint64_t term)
{
    if (term != r->keeper_term || r->handing) return;
    if (r->open) {
        r->confirmed = true;
        return;
    }
    r->without_since_ms = r->again_ms = SL_NEVER;
    r->handing = r->clock_due = true;
    r->here_ms = now_ms;
    order(r, (struct sl_route_order){.type = SL_ROUTE_ORDER_BEGUN});
}

static void receive_not(struct sl_route *r, sl_ms now_ms, uint64_t term)
{
    if (term != r->keeper_term) return;
    if (r->open || r->handing) sl_route_end(r, now_ms);
    r->again_ms = now_ms + AGAIN_MS; /* The other node may become the keeper soon. */
    sl_election_read_soon(r->settings.election, now_ms);
}

void sl_route_receive(struct sl_route *r, sl_ms now_ms, uint32_t from,
                      const struct sl_failover_message *m, struct sl_bytes name,
                      struct sl_bytes address)
{
    struct sl_route_session *n;
    if (from != r->keeper || r->leads) return;
    if (m->type == SL_FAILOVER_HERE) receive_here(r, now_ms, m->term);
    if (m->type == SL_FAILOVER_NOT) receive_not(r, now_ms, m->term);
    if (!r->open && !r->handing) return; /* The message belongs to an old route. */
    switch (m->type) {
        case SL_FAILOVER_SAY: receive_say(r, m); break;
        case SL_FAILOVER_OUTCOME: receive_outcome(r, m); break;
        case SL_FAILOVER_HELD: receive_held(r, now_ms, m, name, address); break;
        case SL_FAILOVER_NOTE: receive_note(r, now_ms, m); break;
        case SL_FAILOVER_MARK: r->mark = m->fence; break;
        case SL_FAILOVER_COMPLETE:
            if (!r->has_lost) r->complete_ms = now_ms - LONG_AGO_MS;
            break;
        case SL_FAILOVER_CLIENT: sl_noted_client_keep(&r->noted, m); break;
        case SL_FAILOVER_GONE: receive_gone(r, m); break;
        case SL_FAILOVER_QUIET:
            r->quiet_at_ms = now_ms;
            r->quiet_until_ms = sl_ms_after(now_ms, m->ms);
            r->quiet_node = m->what;
            break;
        case SL_FAILOVER_LOST: receive_lost(r, m); break;
        case SL_FAILOVER_CUT:
            n = sl_route_session_find(r, m->session);
            if (n != NULL) sl_route_close_session(r, n, SL_ROUTE_CLOSED);
            break;
        case SL_FAILOVER_EVENT:
            order(r, (struct sl_route_order){.type = SL_ROUTE_ORDER_PUBLISH,
                                             .message = *m});
            break;
        default: break; /* Only a keeper receives the other messages. */
    }
}
