/* route.c - the requests, sessions and ledger of a node, while another node is the keeper. */
#include "failover/route.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#define AGAIN_MS 20
#define SWEPT_A_SECOND 4096u

/* The keeper releases grants without a lease no earlier than two seconds after it has lost the
 * link to their node. The next keeper grants their locks to others only after the authority of the
 * last keeper has ended, which also takes two seconds. Neither happens while the storage shows the
 * same term and heartbeat. The limit is less than two seconds because a node may notice the end of
 * its link up to half a second late. */
#define CUT_OFF_MS 1200
#define READ_AGAIN_MS 300

/* --- Sessions ------------------------------------------------------------------------------ */

static uint64_t hash_session(const void *item, const struct sl_index *x)
{
    return sl_hash_u64(((const struct sl_route_session *)item)->id, x->seed);
}

static bool same_session(const void *item, struct sl_bytes key)
{
    return memcmp(&((const struct sl_route_session *)item)->id, key.at, key.n) == 0;
}

static const struct sl_index_kind by_id = {.hash = hash_session, .same = same_session};

struct sl_route_session *sl_route_session_find(const struct sl_route *r, uint64_t id)
{
    const struct sl_bytes key = {(const char *)&id, sizeof id};
    return sl_index_find(&r->by_id, key, sl_hash_u64(id, r->by_id.seed));
}

int sl_route_session_begin(struct sl_route *r, struct sl_route_session *n,
                           struct sl_session *session)
{
    assert(session->id != 0 && (!n->known || n->session == session));
    if (n->known) return SLUICE_OK;
    if (sl_index_reserve(&r->by_id) != SLUICE_OK) return SLUICE_ENOMEM;
    *n = (struct sl_route_session){
        .id = session->id, .session = session, .known = true};
    sl_list_init(&n->held);
    sl_list_init(&n->due);
    sl_list_append(&r->sessions, &n->all);
    sl_index_put(&r->by_id, n, hash_session(n, &r->by_id));
    return SLUICE_OK;
}

void sl_route_renamed(struct sl_route_session *n)
{
    n->described_route = 0;
}

bool sl_route_holds_unleased(const struct sl_route_session *n)
{
    return n->known && sl_ledger_holds_unleased(&n->held);
}

bool sl_route_tx_ended(struct sl_route_session *n)
{
    bool had = n->tx != 0;
    free((char *)n->tx_request.at);
    n->tx_request = (struct sl_bytes){NULL, 0};
    n->tx = 0;
    return had;
}

static void is_due(struct sl_route *r, struct sl_route_session *n)
{
    if (sl_list_empty(&n->due)) sl_list_append(&r->due, &n->due);
}

static void close_session(struct sl_route *r, struct sl_route_session *n,
                          enum sl_route_close why)
{
    n->close = why;
    is_due(r, n);
}

static void answer(struct sl_route *r, struct sl_route_request *q,
                   enum sl_route_answer why)
{
    q->session->answer = why;
    is_due(r, q->session);
}

/* --- The queue ------------------------------------------------------------------------------- */

static void unlist(struct sl_route *r, struct sl_route_request *q)
{
    if (sl_list_empty(&q->place)) return;
    assert((q->sent ? r->sent_count : r->queued_count) > 0);
    sl_list_remove(&q->place);
    if (q->sent) r->sent_count--;
    else r->queued_count--;
    q->sent = false;
}

/* Insert a request into the queue, in order of arrival. Search from the end, because most requests
 * are newer than all others in the queue. */
static void enqueue(struct sl_route *r, struct sl_route_request *q)
{
    struct sl_list *at = r->queued.prev;
    unlist(r, q);
    q->sent_bytes = 0;
    while (at != &r->queued &&
           sl_container_of(at, struct sl_route_request, place)->arrived_ms >
               q->arrived_ms)
        at = at->prev;
    sl_list_append(at->next, &q->place);
    r->queued_count++;
}

/* Remove a request that has ended from its session and from its list. */
static void end_request(struct sl_route *r, struct sl_route_request *q)
{
    struct sl_route_session *n = q->session;
    unlist(r, q);
    if (n->request == q) n->request = NULL;
    n->answer = SL_ROUTE_NO_ANSWER;
    n->settle = false;
}

bool sl_route_gives_up(struct sl_route *r, sl_ms now_ms)
{
    if (r->leads || r->without_since_ms == SL_NEVER) return false;
    sl_election_read_soon(r->settings.election, now_ms);
    return now_ms - r->without_since_ms >= r->settings.keeper_wait_ms;
}

/* Without a fence, this is the newest grant of the session. A given fence may belong to another
 * key, or to a grant without a lease of another session. The keeper does not release such a grant,
 * so its record stays in the ledger. */
sl_fence sl_route_released(const struct sl_route *r, const struct sl_route_session *n,
                           struct sl_bytes key, sl_fence fence)
{
    const struct sl_record *x = fence != 0 ? sl_ledger_find(&r->ledger, fence)
                                           : sl_ledger_newest(&n->held, key);
    if (x == NULL || x->key.n != key.n || memcmp(x->key.at, key.at, key.n) != 0)
        return 0;
    return x->leased || x->session == n->id ? x->fence : 0;
}

void sl_route_submit(struct sl_route *r, struct sl_route_session *n,
                     struct sl_route_request *q)
{
    assert(n->known && n->request == NULL);
    n->request = q;
    q->session = n;
    q->sent = q->had_record = false;
    sl_list_init(&q->place);
    enqueue(r, q);
}

void sl_route_withdraw(struct sl_route *r, struct sl_route_request *q)
{
    end_request(r, q);
}

/* Take a record out of the ledger, and make the message that asks the keeper to release the grant.
 * The record is freed at the next call, because the message borrows its key. */
static void drop(struct sl_route *r, struct sl_record *x,
                 struct sl_failover_message *out)
{
    *out = (struct sl_failover_message){.type = SL_FAILOVER_DROP,
                                        .session = x->session,
                                        .key = x->key,
                                        .fence = x->fence};
    free(r->spent);
    sl_ledger_take(&r->ledger, x);
    r->spent = x;
}

bool sl_route_take_back(struct sl_route *r, sl_fence fence,
                        struct sl_failover_message *out)
{
    struct sl_record *x = fence == 0 ? NULL : sl_ledger_find(&r->ledger, fence);
    if (x == NULL || !x->leased) return false;
    drop(r, x, out);
    return true;
}

bool sl_route_failed(const struct sl_route *r, const struct sl_route_session *n,
                     const char *name, struct sl_failover_message *out)
{
    if (!n->known || n->tx == 0 || n->route != r->number || !r->open) return false;
    *out = (struct sl_failover_message){
        .type = SL_FAILOVER_FAIL, .session = n->id, .bytes = {name, strlen(name)}};
    return true;
}

bool sl_route_leave(struct sl_route *r, struct sl_route_session *n, bool cut,
                    struct sl_failover_message *out)
{
    if (!n->known) return false;
    assert(n->request == NULL);
    sl_ledger_leave(&r->ledger, &n->held);
    sl_route_tx_ended(n);
    sl_index_remove(&r->by_id, n, hash_session(n, &r->by_id));
    sl_list_remove(&n->all);
    sl_list_remove(&n->due);
    n->known = false;
    if (n->route == 0 || r->leads || (!r->open && !r->handing)) return false;
    *out = (struct sl_failover_message){
        .type = SL_FAILOVER_END, .session = n->id, .yes = cut};
    return true;
}

/* --- Ending a route -------------------------------------------------------------------------- */

static void lose_route(struct sl_route *r, sl_ms now_ms)
{
    struct sl_election_view v;
    sl_election_view(r->settings.election, &v);
    r->without_since_ms = r->read_again_ms = r->certain_ms = now_ms;
    r->lost = v.current;
}

/* Forget a grant whose reply was lost. The node sends the ACQUIRE again, so no client will use the
 * first grant. */
static void forget_unanswered(struct sl_route *r, struct sl_route_session *n)
{
    struct sl_record *x = n->unanswered == 0
                              ? NULL
                              : sl_ledger_find(&r->ledger, n->unanswered);
    n->unanswered = 0;
    if (x == NULL) return;
    /* The grant may still be in the keeper's table. */
    if (x->leased) x->unwanted = true;
    else sl_ledger_drop(&r->ledger, x);
}

/* Handle a commit that was sent to a keeper that failed. If the transaction has a REQUEST id, ask
 * the next keeper with TX.OUTCOME; otherwise the outcome is unknown. */
static void settle_commit(struct sl_route *r, struct sl_route_request *q)
{
    struct sl_route_session *n = q->session;
    unlist(r, q);
    if (n->tx_request.n > 0) {
        n->settle = true;
        is_due(r, n);
        return;
    }
    sl_route_tx_ended(n);
    answer(r, q, SL_ROUTE_UNKNOWN);
}

/* Handle a request that was sent on the old route and not answered: answer it, or queue it to be
 * sent again. */
static void settle_or_requeue(struct sl_route *r, struct sl_route_request *q)
{
    bool commits = q->verb == SL_ROUTE_TX_COMMIT;
    if (commits && q->session->tx != 0) {
        settle_commit(r, q);
        return;
    }
    if (q->verb == SL_ROUTE_ACQUIRE) forget_unanswered(r, q->session);
    enqueue(r, q);
}

/* Abort the transaction that a session had on the old route, and answer its request. */
static void leave_old_route(struct sl_route *r, struct sl_route_session *n)
{
    struct sl_route_request *q = n->request;
    if (n->tx == 0 || n->settle) return;
    sl_route_tx_ended(n);
    if (q == NULL || q->verb < SL_ROUTE_TX_BEGIN) {
        n->tx_lost = true;
        is_due(r, n);
    } else if (q->verb != SL_ROUTE_TX_BEGIN) {
        /* The old keeper's failure has already aborted the transaction. */
        unlist(r, q);
        answer(r, q, q->verb == SL_ROUTE_TX_ABORT ? SL_ROUTE_ABORTED : SL_ROUTE_STALE);
    }
}

static void end_route(struct sl_route *r, sl_ms now_ms)
{
    assert(!r->leads);
    r->number++;
    r->open = r->handing = r->listens = false;
    r->come_due = r->clock_due = r->listen_due = false;
    r->described = NULL;
    r->again_ms = SL_NEVER;
    if (r->without_since_ms == SL_NEVER) lose_route(r, now_ms);
    while (!sl_list_empty(&r->sent))
        settle_or_requeue(
            r, sl_container_of(r->sent.next, struct sl_route_request, place));
    for (struct sl_list *i = r->sessions.next; i != &r->sessions; i = i->next) {
        struct sl_route_session *n = sl_container_of(i, struct sl_route_session, all);
        if (n->half_replied) close_session(r, n, SL_ROUTE_HALF_REPLIED);
        leave_old_route(r, n);
    }
}

void sl_route_settle(struct sl_route *r, struct sl_route_session *n,
                     struct sl_route_request *next)
{
    sl_route_tx_ended(n);
    if (next == NULL) {
        answer(r, n->request, SL_ROUTE_UNKNOWN);
        return;
    }
    n->request = NULL;
    next->settles = true;
    sl_route_submit(r, n, next);
}

/* --- Beginning a route ----------------------------------------------------------------------- */

static void begin_route(struct sl_route *r)
{
    r->again_ms = SL_NEVER;
    r->come_due = !r->leads && !r->exporting && r->keeper != 0;
}

void sl_route_link(struct sl_route *r, sl_ms now_ms)
{
    if (r->leads) return;
    end_route(r, now_ms);
    begin_route(r);
}

void sl_route_keeper(struct sl_route *r, sl_ms now_ms, uint32_t keeper, uint64_t term)
{
    if (r->leads) return;
    r->keeper = keeper;
    r->keeper_term = term;
    end_route(r, now_ms);
    begin_route(r);
}

void sl_route_lead(struct sl_route *r, sl_ms now_ms, uint32_t self, uint64_t term)
{
    assert(!r->exporting);
    end_route(r, now_ms); /* End the route to the last keeper. */
    r->leads = true;
    r->keeper = self;
    r->keeper_term = term;
    r->without_since_ms = SL_NEVER;
}

void sl_route_resume(struct sl_route *r)
{
    while (!sl_list_empty(&r->queued)) {
        struct sl_list *i = r->queued.next;
        sl_list_remove(i);
        sl_list_append(&r->resuming, i);
    }
}

void sl_route_step_down(struct sl_route *r, sl_ms now_ms)
{
    assert(r->leads);
    r->leads = false;
    r->exporting = true;
    r->keeper = 0;
    lose_route(r, now_ms);
    while (!sl_list_empty(&r->resuming))
        enqueue(r, sl_container_of(r->resuming.next, struct sl_route_request, place));
}

void sl_route_exported(struct sl_route *r)
{
    r->exporting = false;
    begin_route(r);
}

/* --- Messages from the keeper ---------------------------------------------------------------- */

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
        /* The grant ended when the last keeper failed. */
        o.bytes = (struct sl_bytes){":1\r\n", 4};
    else if (q->verb == SL_ROUTE_ACQUIRE && q->waits && is_grant(reply)) {
        o.late = true;
        o.fence = n->unanswered;
    }
    n->unanswered = 0;
    note_transaction(q, tx);
    end_request(r, q);
    order(r, o);
}

static void receive_say(struct sl_route *r, const struct sl_failover_message *m)
{
    struct sl_route_session *n = sl_route_session_find(r, m->session);
    if (n == NULL) return; /* The client has left, so nobody waits for the reply. */
    n->half_replied = m->what == SL_SAY_MORE;
    if (n->request != NULL && m->what == SL_SAY_LAST)
        receive_reply(r, n->request, m->tx, m->bytes);
    else /* A push, or a part of a reply. */
        order(r, (struct sl_route_order){
                     .type = SL_ROUTE_ORDER_PUSH, .session = n, .bytes = m->bytes});
}

/* Return when a lease expires by this node's clock. This must not be later than at the keeper. The
 * node counts from the time when it sent the request, and allows for clocks whose rates differ by 1
 * in 500. If it counted from the time when it read the reply, and the reply was late, the record
 * could outlive the lease, and the next keeper could restore a grant although the lock already has
 * a new holder. */
static sl_ms end_after(sl_ms since_ms, sl_ms age_ms, sl_ms left_ms)
{
    sl_ms ms = sl_ms_after(age_ms, left_ms);
    return ms == SL_NEVER ? SL_NEVER : since_ms + ms - ms / 500 - 1;
}

/* Add a record. For each new record, check two old ones for expiry, so that few expired records
 * remain. Skip this while the ledger is being handed over, because that relies on the order of
 * records. If there is no memory for the record, the grant will be lost when the keeper fails. */
static void put_record(struct sl_route *r, sl_ms now_ms, struct sl_record *x,
                       struct sl_list *held)
{
    x->route = r->number;
    sl_ledger_put(&r->ledger, x, held);
    if (!r->handing) sl_ledger_sweep(&r->ledger, now_ms, 2);
}

static void receive_held(struct sl_route *r, sl_ms now_ms,
                         const struct sl_failover_message *m, struct sl_bytes name,
                         struct sl_bytes address)
{
    struct sl_route_session *n = sl_route_session_find(r, m->session);
    struct sl_route_request *q = n == NULL ? NULL : n->request;
    struct sl_grant_view v = m->grant;
    bool fresh = m->yes;
    if (!fresh) sl_noted_client_take(&r->noted, &v);
    /* The client has left, so nobody waits for the reply. */
    if (q == NULL || !q->sent) return;
    if (fresh) {
        v.name = name;
        v.address = address;
    }
    struct sl_record x = sl_record_of(m->key, &v, fresh ? n->id : 0,
                                      end_after(q->sent_ms, m->ms, v.left_ms));
    put_record(r, now_ms, &x, fresh ? &n->held : NULL);
    if (fresh) n->unanswered = v.fence;
}

/* Handle NOTE: a grant of a client of the keeper's own node. */
static void receive_note(struct sl_route *r, sl_ms now_ms,
                         const struct sl_failover_message *m)
{
    struct sl_grant_view v = m->grant;
    if (!v.leased) return;
    sl_noted_client_take(&r->noted, &v);
    struct sl_record x = sl_record_of(m->key, &v, 0, end_after(m->ms, 0, v.left_ms));
    put_record(r, now_ms, &x, NULL);
}

static void receive_gone(struct sl_route *r, const struct sl_failover_message *m)
{
    for (size_t i = 0; i < m->gone_count; i++) {
        struct sl_record *x = sl_ledger_find(&r->ledger, m->gone[i]);
        if (x != NULL) sl_ledger_drop(&r->ledger, x);
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
    if (!leased && n != NULL) close_session(r, n, SL_ROUTE_CLOSED);
    order(r, (struct sl_route_order){.type = SL_ROUTE_ORDER_LOST});
}

static void receive_here(struct sl_route *r, uint64_t term)
{
    if (term != r->keeper_term || r->open || r->handing) return;
    r->without_since_ms = r->again_ms = SL_NEVER;
    r->handing = r->clock_due = true;
}

static void receive_not(struct sl_route *r, sl_ms now_ms, uint64_t term)
{
    if (term != r->keeper_term) return;
    if (r->open || r->handing) end_route(r, now_ms);
    r->again_ms = now_ms + AGAIN_MS; /* The other node may become the keeper soon. */
    sl_election_read_soon(r->settings.election, now_ms);
}

void sl_route_receive(struct sl_route *r, sl_ms now_ms, uint32_t from,
                      const struct sl_failover_message *m, struct sl_bytes name,
                      struct sl_bytes address)
{
    struct sl_route_session *n;
    if (from != r->keeper || r->leads) return;
    if (m->type == SL_FAILOVER_HERE) receive_here(r, m->term);
    if (m->type == SL_FAILOVER_NOT) receive_not(r, now_ms, m->term);
    if (!r->open && !r->handing) return; /* The message belongs to an old route. */
    switch (m->type) {
        case SL_FAILOVER_SAY: receive_say(r, m); break;
        case SL_FAILOVER_HELD: receive_held(r, now_ms, m, name, address); break;
        case SL_FAILOVER_NOTE: receive_note(r, now_ms, m); break;
        case SL_FAILOVER_CLIENT: sl_noted_client_keep(&r->noted, m); break;
        case SL_FAILOVER_GONE: receive_gone(r, m); break;
        case SL_FAILOVER_LOST: receive_lost(r, m); break;
        case SL_FAILOVER_CUT:
            n = sl_route_session_find(r, m->session);
            if (n != NULL) close_session(r, n, SL_ROUTE_CLOSED);
            break;
        case SL_FAILOVER_EVENT:
            order(r, (struct sl_route_order){.type = SL_ROUTE_ORDER_PUBLISH,
                                             .message = *m});
            break;
        default: break; /* Only a keeper receives the other messages. */
    }
}

/* --- Time ------------------------------------------------------------------------------------ */

static void note_certain(struct sl_route *r)
{
    struct sl_election_view v;
    sl_election_view(r->settings.election, &v);
    bool same = v.current.term == r->lost.term &&
                v.current.heartbeat == r->lost.heartbeat;
    if (same && v.known_ms > r->certain_ms) r->certain_ms = v.known_ms;
}

static sl_ms cut_off_due(const struct sl_route *r)
{
    if (r->leads || r->without_since_ms == SL_NEVER || r->ledger.unleased == 0)
        return SL_NEVER;
    sl_ms cut = r->certain_ms + CUT_OFF_MS;
    return r->read_again_ms < cut ? r->read_again_ms : cut;
}

/* While there is no route, a keeper may soon grant to others the locks that clients here hold
 * without a lease. Close the connections of those clients in time. */
static void cut_off_unleased(struct sl_route *r, sl_ms now_ms)
{
    if (!r->leads) note_certain(r);
    if (cut_off_due(r) > now_ms) return;
    r->read_again_ms = now_ms + READ_AGAIN_MS;
    sl_election_read_soon(r->settings.election, now_ms);
    if (r->certain_ms + CUT_OFF_MS > now_ms) return;
    for (struct sl_list *i = r->sessions.next; i != &r->sessions; i = i->next) {
        struct sl_route_session *n = sl_container_of(i, struct sl_route_session, all);
        if (sl_route_holds_unleased(n)) close_session(r, n, SL_ROUTE_CUT_OFF);
    }
}

/* Answer requests that have waited longer than keeper-wait for a keeper. */
static void give_up_waiting(struct sl_route *r, sl_ms now_ms)
{
    if (r->without_since_ms == SL_NEVER || r->leads) return;
    while (!sl_list_empty(&r->queued)) {
        struct sl_route_request *q = sl_container_of(r->queued.next,
                                                     struct sl_route_request, place);
        sl_ms since = q->arrived_ms > r->without_since_ms ? q->arrived_ms
                                                          : r->without_since_ms;
        if (now_ms - since < r->settings.keeper_wait_ms) break;
        unlist(r, q);
        answer(r, q, q->settles ? SL_ROUTE_ASK_LATER : SL_ROUTE_NO_KEEPER);
    }
}

void sl_route_second(struct sl_route *r, sl_ms now_ms, bool listens)
{
    /* Handing over the ledger relies on the order of records. */
    if (!r->handing) sl_ledger_sweep(&r->ledger, now_ms, SWEPT_A_SECOND);
    give_up_waiting(r, now_ms);
    if (!r->open) return;
    r->clock_due = true;
    r->listen_due = listens != r->listens;
}

void sl_route_tick(struct sl_route *r, sl_ms now_ms)
{
    if (r->again_ms <= now_ms) begin_route(r);
    cut_off_unleased(r, now_ms);
}

sl_ms sl_route_due(const struct sl_route *r)
{
    sl_ms cut = cut_off_due(r);
    return r->again_ms < cut ? r->again_ms : cut;
}

/* --- Orders ---------------------------------------------------------------------------------- */

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
    } else if (n->answer != SL_ROUTE_NO_ANSWER) {
        out->type = SL_ROUTE_ORDER_ANSWER;
        out->answer = n->answer;
        end_request(r, q);
    } else {
        sl_list_remove(&n->due);
        return next_of_session(r, out);
    }
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
    } else if (r->listen_due) {
        r->listen_due = false;
        r->listens = !r->listens;
        *out = send((struct sl_failover_message){.type = SL_FAILOVER_LISTEN,
                                                 .yes = r->listens});
    } else return false;
    return true;
}

/* If CLIENT was not sent for this session on this route, order that. */
static bool describe(struct sl_route *r, struct sl_route_session *n,
                     struct sl_route_order *out)
{
    if (n->described_route == r->number) return false;
    n->described_route = r->number;
    *out = (struct sl_route_order){.type = SL_ROUTE_ORDER_DESCRIBE, .session = n};
    return true;
}

/* Hand over the next record. The records that were handed over are at the end of the list. */
static void next_record(struct sl_route *r, sl_ms now_ms, struct sl_route_order *out)
{
    struct sl_record *x = sl_list_empty(&r->ledger.all)
                              ? NULL
                              : sl_container_of(r->ledger.all.next, struct sl_record,
                                                all);
    if (x == NULL || x->route == r->number) {
        *out = send((struct sl_failover_message){.type = SL_FAILOVER_READY});
        r->handing = false;
        r->open = true;
        return;
    }
    struct sl_route_session *n = x->session == 0 ? NULL
                                                 : sl_route_session_find(r, x->session);
    if (n != NULL) {
        n->route = r->number; /* The keeper knows this session, so report its end. */
        if (describe(r, n, out)) return;
    }
    if (x->unwanted) {
        struct sl_failover_message m;
        drop(r, x, &m);
        *out = send(m);
        return;
    }
    bool expired = x->end_ms <= now_ms;
    if (!expired && x->session == 0 && x->name.n + x->address.n > 0 &&
        r->described != x) {
        *out = send((struct sl_failover_message){
            .type = SL_FAILOVER_CLIENT, .name = x->name, .address = x->address});
        r->described = x;
        return;
    }
    r->described = NULL;
    x->route = r->number;
    sl_list_remove(&x->all);
    sl_list_append(&r->ledger.all, &x->all);
    if (expired) *out = (struct sl_route_order){.type = SL_ROUTE_ORDER_NONE};
    else
        *out = send((struct sl_failover_message){.type = SL_FAILOVER_RECLAIM,
                                                 .session = x->session,
                                                 .key = x->key,
                                                 .grant = sl_record_view(x, now_ms)});
}

/* Drop the record of a grant when its RELEASE is sent, so that the node does not report the grant
 * to the next keeper. */
static void note_release(struct sl_route *r, struct sl_route_request *q)
{
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
    unlist(r, q);
    q->session->route = r->number;
    q->sent_ms = now_ms;
    q->sent = true;
    sl_list_append(&r->sent, &q->place);
    r->sent_count++;
    r->forwarded++;
    return true;
}

static bool next_resumed(struct sl_route *r, struct sl_route_order *out)
{
    if (!r->leads || sl_list_empty(&r->resuming)) return false;
    struct sl_route_request *q = sl_container_of(r->resuming.next,
                                                 struct sl_route_request, place);
    end_request(r, q);
    *out = (struct sl_route_order){.type = SL_ROUTE_ORDER_RESUME, .request = q};
    return true;
}

bool sl_route_next(struct sl_route *r, sl_ms now_ms, bool has_space,
                   struct sl_route_order *out)
{
    free(r->spent);
    r->spent = NULL;
    if (r->has_order) {
        r->has_order = false;
        *out = r->order;
        return true;
    }
    if (next_of_session(r, out) || next_resumed(r, out)) return true;
    if (!r->leads && next_message(r, now_ms, out)) return true;
    if (r->handing) {
        if (!has_space) return false;
        next_record(r, now_ms, out);
        return true;
    }
    return next_request(r, now_ms, has_space, out);
}

/* --- Life ------------------------------------------------------------------------------------ */

void sl_route_init(struct sl_route *r, const struct sl_route_settings *s, sl_ms now_ms)
{
    *r = (struct sl_route){
        .settings = *s, .without_since_ms = now_ms, .again_ms = SL_NEVER};
    sl_ledger_init(&r->ledger, s->hash_key);
    sl_index_init(&r->by_id, &by_id, s->hash_key);
    sl_list_init(&r->sessions);
    sl_list_init(&r->due);
    sl_list_init(&r->queued);
    sl_list_init(&r->sent);
    sl_list_init(&r->resuming);
}

void sl_route_free(struct sl_route *r)
{
    while (!sl_list_empty(&r->ledger.all))
        sl_ledger_drop(&r->ledger,
                       sl_container_of(r->ledger.all.next, struct sl_record, all));
    free(r->spent);
    sl_index_free(&r->ledger.by_fence);
    sl_index_free(&r->by_id);
}

#define must(so, what) assert((so) && what)

static size_t check_list(const struct sl_list *list, bool sent)
{
    size_t n = 0;
    for (const struct sl_list *i = list->next; i != list; i = i->next, n++) {
        const struct sl_route_request *q = sl_container_of(
            i, const struct sl_route_request, place);
        must(q->sent == sent, "a request knows whether it was sent");
        must(q->session->request == q, "a session knows its request");
    }
    return n;
}

void sl_route_check(const struct sl_route *r)
{
    size_t queued = check_list(&r->queued, false) + check_list(&r->resuming, false);
    must(queued == r->queued_count, "queued requests are counted");
    must(check_list(&r->sent, true) == r->sent_count, "sent requests are counted");
    must(r->open || r->sent_count == 0, "a sent request has a route");
    must(!r->open || !r->handing, "a route opens after the handover");
    must((!r->open && !r->handing) || !r->leads, "a keeper has no route");
    must((!r->open && !r->handing) || r->without_since_ms == SL_NEVER,
         "a route ends the time without one");
    size_t sessions = 0;
    for (const struct sl_list *i = r->sessions.next; i != &r->sessions; i = i->next) {
        const struct sl_route_session *n = sl_container_of(
            i, const struct sl_route_session, all);
        sessions++;
        must(n->known && sl_route_session_find(r, n->id) == n,
             "a session is found by its id");
        must(n->request == NULL || n->request->session == n,
             "a request knows its session");
        must(n->tx != 0 || n->tx_request.n == 0, "only a transaction has a REQUEST id");
        must((n->answer == SL_ROUTE_NO_ANSWER && !n->settle) || n->request != NULL,
             "only a request is answered");
    }
    must(sessions == r->by_id.count, "sessions are counted");
}
