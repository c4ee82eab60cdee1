/* route.c - the requests, sessions and ledger of a node, while another node is the keeper. */
#include "failover/route_internal.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#define SWEPT_A_SECOND 4096u

/* For this long after a route has ended, its keeper may still grant a lease for a request. (Its link
 * or its authority ends much earlier.) */
#define LATE_GRANT_MS 60000

/* The keeper releases grants without a lease no earlier than two seconds after it has lost the
 * link to their node. Without the report of that node, the next keeper grants their locks to others
 * no earlier than two seconds after its claim. Neither happens while the storage shows the same term
 * and heartbeat. The limit is less than two seconds because a node may notice the end of its link up
 * to half a second late. A node that was the keeper always counts from the moment when it stepped down
 * (sl_route_step_down()). */
#define CUT_OFF_MS 1200
#define READ_AGAIN_MS 300

#define QUIET_KNOWN_MS 2000 /* After this time without QUIET, the keeper grants. */

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
    sl_list_init(&n->asked);
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

void sl_route_close_session(struct sl_route *r, struct sl_route_session *n,
                            enum sl_route_close why)
{
    n->close = why;
    is_due(r, n);
}

static void answer(struct sl_route *r, struct sl_route_request *q,
                   enum sl_route_answer why)
{
    assert(sl_list_empty(&q->place));
    q->answer = why;
    sl_list_append(&r->answering, &q->place);
}

/* --- The queue ------------------------------------------------------------------------------- */

void sl_route_unlist(struct sl_route *r, struct sl_route_request *q)
{
    if (sl_list_empty(&q->place)) return;
    sl_list_remove(&q->place);
    sl_list_remove(&q->asked);
    if (q->answer != SL_ROUTE_NO_ANSWER) return;
    size_t *count = q->queued ? &r->waiting_count
                    : q->sent ? &r->sent_count
                              : &r->queued_count;
    assert(*count > 0);
    --*count;
    q->sent = q->queued = false;
}

static bool is_older(const struct sl_route_request *a, const struct sl_route_request *b)
{
    return a->arrived_ms < b->arrived_ms ||
           (a->arrived_ms == b->arrived_ms && a->number < b->number);
}

/* Insert a request into a list, in order of arrival. Search from the end, because most requests are
 * newer than all others in the list. */
static void insert(struct sl_list *list, struct sl_route_request *q)
{
    struct sl_list *at = list->prev;
    while (at != list &&
           is_older(q, sl_container_of(at, struct sl_route_request, place)))
        at = at->prev;
    sl_list_append(at->next, &q->place);
}

/* Add a request to the queue. */
static void enqueue(struct sl_route *r, struct sl_route_request *q)
{
    sl_route_unlist(r, q);
    q->sent_bytes = 0;
    r->queued_count++;
    insert(&r->queued, q);
}

/* A request is no longer one of its session. */
static void detach(struct sl_route_session *n, const struct sl_route_request *q)
{
    assert(n->requests > 0);
    n->requests--;
    if (n->request != q) return;
    n->request = NULL;
    n->settle = false;
}

void sl_route_end_request(struct sl_route *r, struct sl_route_request *q)
{
    sl_route_unlist(r, q);
    q->answer = SL_ROUTE_NO_ANSWER;
    detach(q->session, q);
}

void sl_route_queued(struct sl_route *r, struct sl_route_request *q)
{
    sl_route_unlist(r, q);
    q->queued = true;
    sl_list_append(&r->waiting, &q->place);
    r->waiting_count++;
}

sl_ms sl_route_quiet_ms(const struct sl_route *r, sl_ms now_ms)
{
    if (r->quiet_until_ms <= now_ms || now_ms - r->quiet_at_ms > QUIET_KNOWN_MS)
        return 0;
    return r->quiet_until_ms - now_ms;
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
    assert(n->known && (q->notify || n->request == NULL));
    q->session = n;
    q->sent = q->queued = q->had_record = false;
    q->unanswered = 0;
    q->answer = SL_ROUTE_NO_ANSWER;
    q->number = ++r->submitted;
    sl_list_init(&q->place);
    sl_list_init(&q->asked);
    n->requests++;
    if (!q->notify) n->request = q;
    enqueue(r, q);
}

void sl_route_knows(struct sl_route_session *n, sl_fence fence)
{
    if (fence > n->known_fence) n->known_fence = fence;
}

/* Withdraw the grants of a request whose fence is above this one. The session gets another origin, so the
 * withdrawal never matches a later grant. */
static void withdraw_above(struct sl_route *r, sl_ms now_ms, struct sl_route_request *q,
                           sl_fence fence)
{
    struct sl_route_session *n = q->session;
    if (n->origin == 0) return;
    sl_withdrawn_add(&r->withdrawn, n->origin, q->key, fence,
                     sl_ms_after(now_ms + LATE_GRANT_MS, q->lease_ms));
    n->origin = n->origin_route = n->described_route = 0;
}

/* The node will not learn the outcome of an ACQUIRE that it has sent. If the keeper has reported a
 * grant, forget it; if the keeper may have granted a lease, withdraw it. A lease with an id stays: the
 * client may receive it in the reply to another attempt. */
static void withdraw_grant(struct sl_route *r, sl_ms now_ms, struct sl_route_request *q)
{
    struct sl_route_session *n = q->session;
    if (q->verb != SL_ROUTE_ACQUIRE || (!q->sent && !q->queued)) return;
    struct sl_record *x = q->unanswered == 0
                              ? NULL
                              : sl_ledger_find(&r->ledger, q->unanswered);
    q->unanswered = 0;
    /* If it has no lease, another attempt may have moved it to its own session. */
    if (x != NULL && !q->named && x->session == n->id) sl_ledger_drop(&r->ledger, x);
    if (!q->named && q->lease_ms > 0) withdraw_above(r, now_ms, q, n->known_fence);
}

void sl_route_withdraw_own(struct sl_route *r, sl_ms now_ms, struct sl_session *s,
                           struct sl_bytes key, sl_fence fence, sl_ms lease_ms)
{
    if (lease_ms == 0 || s->origin == 0) return;
    sl_withdrawn_add(&r->withdrawn, s->origin, key, fence - 1,
                     sl_ms_after(now_ms + LATE_GRANT_MS, lease_ms));
    s->origin = sl_route_draw_origin(r);
}

void sl_route_withdraw(struct sl_route *r, sl_ms now_ms, struct sl_route_request *q)
{
    withdraw_grant(r, now_ms, q);
    sl_route_end_request(r, q);
}

void sl_route_take_back(struct sl_route *r, sl_ms now_ms, struct sl_route_request *q,
                        sl_fence fence)
{
    if (fence == 0 || q->lease_ms == 0) return;
    struct sl_record *x = sl_ledger_find(&r->ledger, fence);
    if (x != NULL) sl_ledger_drop(&r->ledger, x); /* Or there was no memory for it. */
    withdraw_above(r, now_ms, q, fence - 1);
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
    assert(n->requests == 0);
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

/* `known`: the keeper knew the ledger. If it did not, the keeper may have counted the time without a route
 * since an earlier route ended. */
static void lose_route(struct sl_route *r, sl_ms now_ms, bool known)
{
    struct sl_election_view v;
    r->without_since_ms = r->read_again_ms = now_ms;
    if (!known) return;
    sl_election_view(r->settings.election, &v);
    r->certain_ms = now_ms;
    r->lost = v.current;
}

/* Handle a commit that was sent to a keeper that failed. If the transaction has a REQUEST id, ask
 * the next keeper with TX.OUTCOME; otherwise the outcome is unknown. */
static void settle_commit(struct sl_route *r, struct sl_route_request *q)
{
    struct sl_route_session *n = q->session;
    sl_route_unlist(r, q);
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
static void settle_or_requeue(struct sl_route *r, sl_ms now_ms,
                              struct sl_route_request *q)
{
    bool commits = q->verb == SL_ROUTE_TX_COMMIT;
    if (commits && q->session->tx != 0) {
        settle_commit(r, q);
        return;
    }
    withdraw_grant(r, now_ms, q);
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
        sl_route_unlist(r, q);
        answer(r, q, q->verb == SL_ROUTE_TX_ABORT ? SL_ROUTE_ABORTED : SL_ROUTE_STALE);
    }
}

void sl_route_end(struct sl_route *r, sl_ms now_ms)
{
    assert(!r->leads);
    bool known = r->confirmed;
    r->number++;
    r->open = r->confirmed = r->handing = r->listens = false;
    r->quiet_until_ms = 0;
    r->come_due = r->clock_due = r->listen_due = false;
    r->mark = 0;
    r->described = NULL;
    /* The grant of that client did not arrive. */
    r->noted = (struct sl_noted_client){0};
    r->again_ms = SL_NEVER;
    if (r->without_since_ms == SL_NEVER) lose_route(r, now_ms, known);
    while (!sl_list_empty(&r->sent))
        settle_or_requeue(
            r, now_ms, sl_container_of(r->sent.next, struct sl_route_request, place));
    while (!sl_list_empty(&r->waiting))
        settle_or_requeue(
            r, now_ms,
            sl_container_of(r->waiting.next, struct sl_route_request, place));
    for (struct sl_list *i = r->sessions.next; i != &r->sessions; i = i->next) {
        struct sl_route_session *n = sl_container_of(i, struct sl_route_session, all);
        if (n->half_replied) sl_route_close_session(r, n, SL_ROUTE_HALF_REPLIED);
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
    detach(n, n->request); /* The caller has freed it. */
    next->settles = true;
    sl_route_submit(r, n, next);
}

/* --- Beginning a route ----------------------------------------------------------------------- */

static void begin_route(struct sl_route *r)
{
    r->again_ms = SL_NEVER;
    r->come_due = !r->leads && !r->exporting && r->keeper != 0;
    r->listens = false;
    r->listen_due = r->come_due && r->heard; /* So few events are missing. */
}

void sl_route_link(struct sl_route *r, sl_ms now_ms)
{
    if (r->leads) return;
    sl_route_end(r, now_ms);
    begin_route(r);
}

void sl_route_keeper(struct sl_route *r, sl_ms now_ms, uint32_t keeper, uint64_t term)
{
    if (r->leads) return;
    r->keeper = keeper;
    r->keeper_term = term;
    sl_route_end(r, now_ms);
    begin_route(r);
}

void sl_route_lead(struct sl_route *r, sl_ms now_ms, uint32_t self, uint64_t term)
{
    assert(!r->exporting);
    sl_route_end(r, now_ms); /* End the route to the previous keeper. */
    r->leads = true;
    r->keeper = self;
    r->keeper_term = term;
    r->without_since_ms = SL_NEVER;
    r->leads_since_ms = now_ms;
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
    r->cut_off = false;
    r->keeper = 0;
    lose_route(r, now_ms, true);
    /* The next keeper does not wait for the report of this node, so an unchanged heartbeat proves nothing. No term
     * is 0, so note_certain() does not postpone the cut-off. */
    r->lost = (struct sl_storage_term){0};
    while (!sl_list_empty(&r->resuming))
        enqueue(r, sl_container_of(r->resuming.next, struct sl_route_request, place));
}

void sl_route_exported(struct sl_route *r)
{
    r->exporting = false;
    begin_route(r);
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
    bool holds = r->ledger.unleased > 0 || (r->exporting && !r->cut_off);
    if (r->leads || r->confirmed || !holds) return SL_NEVER;
    sl_ms cut = r->certain_ms + CUT_OFF_MS;
    return r->read_again_ms < cut ? r->read_again_ms : cut;
}

/* Until the keeper knows the ledger, it may soon grant to others the locks that clients here hold
 * without a lease. Close the connections of those clients in time. */
static void cut_off_unleased(struct sl_route *r, sl_ms now_ms)
{
    if (!r->leads) note_certain(r);
    if (cut_off_due(r) > now_ms) return;
    r->read_again_ms = now_ms + READ_AGAIN_MS;
    sl_election_read_soon(r->settings.election, now_ms);
    if (r->certain_ms + CUT_OFF_MS > now_ms) return;
    /* While the table is copied, the ledger lacks some grants. So also close every session that still has a grant
     * without a lease in the table. */
    for (struct sl_list *i = r->sessions.next; i != &r->sessions; i = i->next) {
        struct sl_route_session *n = sl_container_of(i, struct sl_route_session, all);
        bool holds = sl_route_holds_unleased(n) ||
                     (r->exporting && !sl_list_empty(&n->session->mine));
        if (holds) sl_route_close_session(r, n, SL_ROUTE_CUT_OFF);
    }
    r->cut_off = true;
}

/* Answer requests that have waited longer than keeper-wait for a keeper. At a new keeper, requests wait
 * longer by this time, because it answers none before it has read the journal and the reports of the nodes. The
 * time for which they have waited at an earlier keeper does not count. */
#define REPORTS_MS 5000

static void give_up_waiting(struct sl_route *r, sl_ms now_ms)
{
    if (r->without_since_ms == SL_NEVER && !r->leads) return;
    sl_ms patience_ms = r->settings.keeper_wait_ms + (r->leads ? REPORTS_MS : 0);
    while (!sl_list_empty(&r->queued)) {
        struct sl_route_request *q = sl_container_of(r->queued.next,
                                                     struct sl_route_request, place);
        sl_ms since = r->leads ? r->leads_since_ms : r->without_since_ms;
        if (q->arrived_ms > since) since = q->arrived_ms;
        if (now_ms - since < patience_ms) break;
        sl_route_unlist(r, q);
        answer(r, q, q->settles ? SL_ROUTE_ASK_LATER : SL_ROUTE_NO_KEEPER);
    }
}

void sl_route_second(struct sl_route *r, sl_ms now_ms, bool listens)
{
    /* Handing over the ledger relies on the order of records. */
    if (!r->handing) sl_ledger_sweep(&r->ledger, now_ms, SWEPT_A_SECOND);
    sl_withdrawn_sweep(&r->withdrawn, now_ms);
    give_up_waiting(r, now_ms);
    r->heard = listens;
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

/* --- Life ------------------------------------------------------------------------------------ */

void sl_route_init(struct sl_route *r, const struct sl_route_settings *s, sl_ms now_ms)
{
    *r = (struct sl_route){.settings = *s,
                           .without_since_ms = now_ms,
                           .again_ms = SL_NEVER,
                           .complete_ms = now_ms};
    sl_ledger_init(&r->ledger, s->hash_key);
    sl_withdrawn_init(&r->withdrawn, s->hash_key);
    sl_index_init(&r->by_id, &by_id, s->hash_key);
    sl_list_init(&r->sessions);
    sl_list_init(&r->due);
    sl_list_init(&r->queued);
    sl_list_init(&r->sent);
    sl_list_init(&r->resuming);
    sl_list_init(&r->waiting);
    sl_list_init(&r->answering);
}

void sl_route_free(struct sl_route *r)
{
    while (!sl_list_empty(&r->ledger.all))
        sl_ledger_drop(&r->ledger,
                       sl_container_of(r->ledger.all.next, struct sl_record, all));
    sl_withdrawn_free(&r->withdrawn);
    sl_index_free(&r->ledger.by_fence);
    sl_index_free(&r->by_id);
}

#define must(so, what) assert((so) && what)

static size_t check_list(const struct sl_route *r, const struct sl_list *list)
{
    size_t n = 0;
    for (const struct sl_list *i = list->next; i != list; i = i->next, n++) {
        const struct sl_route_request *q = sl_container_of(
            i, const struct sl_route_request, place);
        must(q->sent == (list == &r->sent), "a request knows whether it was sent");
        must(q->queued == (list == &r->waiting),
             "a request knows whether the keeper has queued it");
        must((q->answer != SL_ROUTE_NO_ANSWER) == (list == &r->answering),
             "a request that is answered has a reason");
        must(sl_list_empty(&q->asked) == (list != &r->sent),
             "a request that was sent waits for a reply");
        must(q->notify != (q->session->request == q),
             "a session has one request without NOTIFY");
        must(!q->queued || q->notify, "only NOTIFY is queued");
        if (list == &r->queued && i->prev != list)
            must(!is_older(
                     q, sl_container_of(i->prev, const struct sl_route_request, place)),
                 "requests are queued in order of arrival");
    }
    return n;
}

void sl_route_check(const struct sl_route *r)
{
    size_t queued = check_list(r, &r->queued) + check_list(r, &r->resuming);
    check_list(r, &r->answering);
    must(check_list(r, &r->sent) == r->sent_count, "sent requests are counted");
    must(check_list(r, &r->waiting) == r->waiting_count,
         "waiting requests are counted");
    must(r->open || r->sent_count + r->waiting_count == 0,
         "a sent request has a route");
    must(!r->open || !r->handing, "a route opens after the handover");
    must(r->open || r->handing || r->noted.name_bytes + r->noted.address_bytes == 0,
         "a keeper names clients on a route");
    must(!r->confirmed || r->open, "a keeper confirms what was sent");
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
        must(!n->settle || n->request != NULL, "only a request is settled");
        must(n->request == NULL || n->requests > 0,
             "the requests of a session are counted");
    }
    must(queued == r->queued_count, "queued requests are counted");
    must(sessions == r->by_id.count, "sessions are counted");
}
