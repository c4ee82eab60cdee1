/* route.c - on a node: begins its route to the keeper by handing over the ledger, ends the route,
 * and handles the change when the node becomes the keeper or steps down. */
#include <assert.h>
#include <inttypes.h>
#include <string.h>

#include "server/arbiter/local.h"
#include "server/arbiter/majority.h"
#include "server/arbiter/transactions.h"
#include "server/forward/forward_internal.h"
#include "server/observe/log.h"

#define AGAIN_MS 20
#define SWEPT_A_SECOND 4096u

/* --- Beginning a route: hand over the ledger --------------------------------------------- */

/* Record that the keeper knows this session, so that the node reports its end. */
static void note_route(struct server *s, uint64_t session)
{
    const struct session *n = session == 0 ? NULL : sl_server_session(s, session);
    if (n == NULL || n->conn == NULL) return;
    struct sl_forward_session *f = sl_forward_session_make(n->conn);
    if (f == NULL) return;
    f->route = s->forward->route;
    sl_forward_describe(n->conn);
}

static void write_reclaim(struct server *s, const struct sl_record *x)
{
    if (x->session == 0 && x->name.n + x->address.n > 0)
        sl_forward_send_client(s, s->forward->keeper, 0, x->name, x->address);
    const struct sl_failover_message m = {.type = SL_FAILOVER_RECLAIM,
                                          .session = x->session,
                                          .key = x->key,
                                          .grant = sl_record_view(x, s->now.ms)};
    sl_forward_send(s, s->forward->keeper, &m);
}

/* Hand over one record, and move it behind the records that are still to be handed over. */
static void hand_over_one(struct server *s, struct sl_record *x)
{
    struct sl_forward *f = s->forward;
    assert(f->handing && !f->leads && x->route != f->route);
    x->route = f->route;
    note_route(s, x->session);
    sl_list_remove(&x->all);
    sl_list_append(&f->ledger.all, &x->all);
    if (x->unwanted) sl_forward_drop(s, x);
    else if (x->end_ms > s->now.ms) write_reclaim(s, x);
}

static struct sl_record *first_record(const struct sl_ledger *l)
{
    return sl_list_empty(&l->all) ? NULL
                                  : sl_container_of(l->all.next, struct sl_record, all);
}

bool sl_forward_hand_over(struct server *s)
{
    struct sl_forward *f = s->forward;
    while (f->handing && sl_forward_link_has_space(s)) {
        struct sl_record *x = first_record(&f->ledger);
        if (x == NULL || x->route == f->route) {
            static const struct sl_failover_message ready = {.type = SL_FAILOVER_READY};
            sl_forward_send(s, f->keeper, &ready);
            f->handing = false;
            f->open = true;
            break;
        }
        if (s->effects_left == 0) return false;
        s->effects_left--;
        hand_over_one(s, x);
    }
    sl_forward_send_queued(s);
    return true;
}

void sl_forward_send_listening(struct server *s)
{
    struct sl_forward *f = s->forward;
    bool listens = !sl_pubsub_silent(&s->pubsub);
    if (!f->open || listens == f->listens) return;
    const struct sl_failover_message m = {.type = SL_FAILOVER_LISTEN, .yes = listens};
    if (sl_forward_send(s, f->keeper, &m)) f->listens = listens;
}

void sl_forward_begin_route(struct server *s)
{
    struct sl_forward *f = s->forward;
    f->again_ms = SL_NEVER;
    if (f->leads || f->exporting || f->keeper == 0) return;
    const struct sl_failover_message m = {.type = SL_FAILOVER_COME,
                                          .term = f->keeper_term};
    sl_forward_send(s, f->keeper, &m);
}

/* Send our clock to the keeper, which uses it in NOTE to say when a lease expires. */
void sl_forward_send_clock(struct server *s)
{
    const struct sl_failover_message m = {.type = SL_FAILOVER_CLOCK, .ms = s->now.ms};
    sl_forward_send(s, s->forward->keeper, &m);
}

void sl_forward_welcomed(struct server *s, uint64_t term)
{
    struct sl_forward *f = s->forward;
    if (term != f->keeper_term || f->open || f->handing) return;
    f->without_since_ms = f->again_ms = SL_NEVER;
    f->handing = true;
    sl_forward_send_clock(s);
    sl_server_go_on(s); /* The event loop hands over the ledger in batches. */
}

/* --- Ending a route ----------------------------------------------------------------------- */

/* Handle a commit that was sent to a keeper that failed. If the transaction has a REQUEST id, ask
 * the next keeper with TX.OUTCOME; otherwise the outcome is unknown. */
static void settle_commit(struct request *r)
{
    struct conn *c = r->c;
    struct sl_bytes id = c->forwarded->request;
    const struct sl_bytes at[] = {{"TX.OUTCOME", 10}, id};
    struct request *k = id.n == 0 ? NULL : sl_request_replace(r, at, 2);
    sl_forward_tx_ended(c);
    if (k == NULL) {
        sl_forward_answer_problem(
            r, sluice_status_word(SLUICE_ECLOSED),
            "the keeper failed during the commit, and the outcome is unknown; to "
            "be able to ask for it with TX.OUTCOME id, use TX.BEGIN REQUEST id");
        return;
    }
    k->sent = k->had_record = false;
    k->settles = true;
    sl_forward_enqueue(k);
}

/* Forget a grant whose reply was lost. The node sends the ACQUIRE again, so no client will use the
 * first grant. */
static void forget_unanswered(struct server *s, struct conn *c)
{
    struct sl_forward_session *f = c->forwarded;
    struct sl_record *x = f->unanswered == 0
                              ? NULL
                              : sl_ledger_find(&s->forward->ledger, f->unanswered);
    f->unanswered = 0;
    if (x == NULL) return;
    /* The grant may still be in the keeper's table. */
    if (x->leased) x->unwanted = true;
    else sl_ledger_drop(&s->forward->ledger, x);
}

/* Handle a request that was sent on the old route and not answered: answer it, or queue it to be
 * sent again. */
static void settle_or_requeue(struct request *r)
{
    struct server *s = r->s;
    bool commits = (r->command->flags & SL_COMMITS) != 0;
    if (commits && r->c->forwarded->tx != 0) settle_commit(r);
    else {
        if (r->verb == SL_VERB_ACQUIRE) forget_unanswered(s, r->c);
        sl_forward_enqueue(r);
    }
}

/* Abort the transaction that a connection had on the old route, and answer its request. */
static void leave_old_route(struct conn *c)
{
    struct request *r = sl_forward_request_of(c);
    unsigned flags = r == NULL ? 0 : r->command->flags;
    if (c->forwarded == NULL || c->forwarded->tx == 0) return;
    if ((flags & SL_TX) == 0) {
        sl_forward_tx_lost(c);
        return;
    }
    sl_forward_tx_ended(c);
    if ((flags & SL_ABORTS) != 0) {
        sl_forward_unlist(r);
        /* The old keeper's failure has already aborted the transaction. */
        sl_resp_simple(sl_conn_out(c), "OK");
        sl_request_end(r);
    } else if ((flags & SL_BEGINS) == 0)
        sl_forward_answer_problem(r, sluice_status_word(SLUICE_ESTALE), SL_LOST_TX);
}

static void lose_route(struct server *s)
{
    struct sl_forward *f = s->forward;
    struct sl_election_view v;
    sl_election_view(f->election, &v);
    f->without_since_ms = f->read_again_ms = f->certain_ms = s->now.ms;
    f->lost = v.current;
}

/* Close the connections of clients that have received part of a reply. Such a client would take the
 * next reply for the rest. */
static void close_half_replied(struct server *s)
{
    struct sl_list *next;
    for (struct sl_list *n = s->conns.next; n != &s->conns; n = next) {
        struct conn *c = sl_container_of(n, struct conn, all);
        next = n->next;
        if (c->forwarded != NULL && c->forwarded->half_replied)
            sl_conn_close(c, SL_WAS_CUT);
    }
}

/* Remove all requests from a list and call `what` for each. Requests that `what` adds to the list
 * stay there. */
static void each_request(struct sl_list *list, void (*what)(struct request *r))
{
    struct sl_list old;
    sl_list_init(&old);
    while (!sl_list_empty(list)) {
        struct request *r = sl_container_of(list->next, struct request, place);
        sl_forward_unlist(r);
        sl_list_append(&old, &r->place);
    }
    while (!sl_list_empty(&old)) {
        struct request *r = sl_container_of(old.next, struct request, place);
        sl_list_remove(&r->place);
        what(r);
    }
}

void sl_forward_end_route(struct server *s)
{
    struct sl_forward *f = s->forward;
    struct sl_list *next;
    assert(!f->leads);
    f->route++;
    f->open = f->handing = f->listens = false;
    if (f->without_since_ms == SL_NEVER) lose_route(s);
    close_half_replied(s);
    each_request(&f->sent, settle_or_requeue);
    for (struct sl_list *n = s->conns.next; n != &s->conns; n = next) {
        next = n->next;
        leave_old_route(sl_container_of(n, struct conn, all));
    }
}

void sl_forward_change_route(struct server *s)
{
    sl_forward_end_route(s);
    sl_forward_begin_route(s);
}

/* --- This node becomes the keeper, or steps down ---------------------------------------------- */

bool sl_forward_reclaim_own(struct server *s)
{
    struct sl_ledger *l = &s->forward->ledger;
    struct sl_record *x;
    while ((x = first_record(l)) != NULL) {
        struct session *n = x->session == 0 ? NULL : sl_server_session(s, x->session);
        const struct sl_grant_view v = sl_record_view(x, s->now.ms);
        if (s->effects_left == 0) return false;
        s->effects_left--;
        if (x->end_ms > s->now.ms && !x->unwanted &&
            (x->leased || (n != NULL && n->conn != NULL)))
            sl_forward_reclaim(s, n, &v, x->key);
        sl_ledger_drop(l, x);
    }
    return true;
}

void sl_forward_take_over(struct server *s)
{
    s->forward->without_since_ms = SL_NEVER;
    /* Requests that need the reports are queued again. */
    sl_forward_reports_complete(s);
    sl_server_go_on(s);
}

void sl_forward_reports_complete(struct server *s)
{
    each_request(&s->forward->queued, sl_request_resume);
}

/* Forward a request that waited in the table of this node, which is no longer the keeper. */
static void move_out(struct request *r)
{
    struct server *s = r->s;
    if (sl_forward_session_make(r->c) == NULL) {
        sl_request_answer_status(r, SLUICE_ENOMEM);
        return;
    }
    r->arbiter = s->arbiters.remote;
    r->sent = r->had_record = false;
    r->released_fence = 0;
    sl_forward_enqueue(r);
}

static bool has_tx_request(const struct conn *c)
{
    for (const struct sl_list *i = c->requests.next; i != &c->requests; i = i->next) {
        const struct request *r = sl_container_of(i, const struct request, of_conn);
        if (r->verb == SL_VERB_TX && r->arbiter == c->server->arbiters.local)
            return true; /* sl_transactions_depose() answers this request. */
    }
    return false;
}

void sl_forward_step_down(struct server *s)
{
    lose_route(s);
    for (struct sl_list *n = s->conns.next; n != &s->conns; n = n->next) {
        struct conn *c = sl_container_of(n, struct conn, all);
        if (c->proxy == NULL && !has_tx_request(c)) sl_forward_tx_lost(c);
    }
    sl_local_move_waiters(s, move_out);
}

/* --- Messages ------------------------------------------------------------------------------- */

static void receive_not(struct server *s, sl_node_id from, uint64_t term)
{
    struct sl_forward *f = s->forward;
    if (from != f->keeper || f->leads || term != f->keeper_term) return;
    if (f->open || f->handing) sl_forward_end_route(s);
    f->again_ms = s->now.ms + AGAIN_MS; /* The other node may become the keeper soon. */
    sl_election_read_soon(f->election, s->now.ms);
}

bool sl_forward_is_frame(const struct sl_args *args)
{
    return sl_failover_is_message(args);
}

void sl_forward_received(struct server *s, sl_node_id from, const struct sl_args *a)
{
    struct sl_forward *f = s->forward;
    struct sl_failover_message m;
    if (f == NULL || !sl_failover_read(a, &m)) return;
    if (m.type == SL_FAILOVER_DOUBT)
        sl_election_peer_doubts(f->election, s->now.ms, from, m.term, m.sight);
    else if (m.type == SL_FAILOVER_NOT) receive_not(s, from, m.term);
    else if (from == f->keeper && !f->leads) sl_forward_from_keeper(s, &m);
    else sl_proxy_received(s, from, &m);
}

/* --- Links ------------------------------------------------------------------------------------ */

void sl_forward_linked(struct server *s, sl_node_id id)
{
    struct sl_forward *f = s->forward;
    if (f == NULL) return;
    sl_election_peer_changed(f->election, s->now.ms, id, SL_PEER_UP);
    if (id == f->keeper && !f->leads) sl_forward_change_route(s);
}

void sl_forward_unlinked(struct server *s, sl_node_id id, enum sl_link_end how)
{
    struct sl_forward *f = s->forward;
    if (f == NULL) return;
    sl_proxy_close_all(s, id);
    if (id == f->keeper && !f->leads) sl_forward_change_route(s);
    if (how != SL_END_REPLACED) sl_forward_unreached(s, id, how);
}

void sl_forward_unreached(struct server *s, sl_node_id id, enum sl_link_end how)
{
    enum sl_peer_state sight = how == SL_END_CLOSED ? SL_PEER_CLOSED : SL_PEER_SILENT;
    if (s->forward != NULL)
        sl_election_peer_changed(s->forward->election, s->now.ms, id, sight);
}

void sl_forward_drained(struct server *s, sl_node_id id)
{
    struct sl_forward *f = s->forward;
    struct sl_list stalled;
    if (f == NULL) return;
    if (id == f->keeper && !f->leads) {
        sl_forward_send_queued(s);
        if (f->handing) sl_server_go_on(s);
    }
    sl_list_init(&stalled);
    while (!sl_list_empty(&f->stalled)) {
        struct sl_list *n = f->stalled.next;
        sl_list_remove(n);
        sl_list_append(&stalled, n);
    }
    while (!sl_list_empty(&stalled)) {
        struct sl_proxy *p = sl_container_of(stalled.next, struct sl_proxy, stalled);
        sl_list_remove(&p->stalled);
        sl_proxy_flush(p->c);
    }
}

/* The keeper releases grants without a lease no earlier than SL_ADRIFT_MS after it has lost the
 * link to their node. The next keeper grants their locks to others only after the authority of the
 * last keeper has ended, which takes as long. Neither happens while the storage shows the same term
 * and heartbeat. A node may notice the end of its link up to half a second late. */
#define CUT_OFF_MS 1200
#define READ_AGAIN_MS 300

static void note_certain(struct server *s)
{
    struct sl_forward *f = s->forward;
    struct sl_election_view v;
    sl_election_view(f->election, &v);
    bool same = v.current.term == f->lost.term &&
                v.current.heartbeat == f->lost.heartbeat;
    if (same && v.known_ms > f->certain_ms) f->certain_ms = v.known_ms;
}

sl_ms sl_forward_close_due(const struct server *s)
{
    const struct sl_forward *f = s->forward;
    if (f->leads || f->without_since_ms == SL_NEVER || f->ledger.unleased == 0)
        return SL_NEVER;
    sl_ms cut = f->certain_ms + CUT_OFF_MS;
    return f->read_again_ms < cut ? f->read_again_ms : cut;
}

void sl_forward_close_unleased(struct server *s)
{
    static struct sl_log_kind kind;
    struct sl_forward *f = s->forward;
    struct sl_list *next;
    if (!f->leads) note_certain(s);
    if (sl_forward_close_due(s) > s->now.ms) return;
    f->read_again_ms = s->now.ms + READ_AGAIN_MS;
    sl_election_read_soon(f->election, s->now.ms);
    if (f->certain_ms + CUT_OFF_MS > s->now.ms) return;
    sl_log_often(&kind, s->now.ms, SL_LOG_WARN,
                 "cannot reach the keeper; closing the connections of clients that "
                 "hold locks without LEASE",
                 NULL);
    for (struct sl_list *n = s->conns.next; n != &s->conns; n = next) {
        struct conn *c = sl_container_of(n, struct conn, all);
        next = n->next;
        if (sl_forward_holds_unleased(c)) sl_conn_close(c, SL_WAS_CUT);
    }
}

/* Answer requests that have waited longer than keeper-wait for a keeper. */
static void give_up_waiting(struct server *s)
{
    struct sl_forward *f = s->forward;
    if (f->without_since_ms == SL_NEVER || f->leads) return;
    while (!sl_list_empty(&f->queued)) {
        struct request *r = sl_container_of(f->queued.next, struct request, place);
        sl_ms since = r->arrived_ms > f->without_since_ms ? r->arrived_ms
                                                          : f->without_since_ms;
        if (s->now.ms - since < s->settings->keeper_wait_ms) break;
        if (r->settles)
            sl_forward_answer_problem(
                r, sluice_status_word(SLUICE_ECLOSED),
                "the keeper failed during the commit, and there is no new keeper yet, "
                "so the outcome is unknown; send TX.OUTCOME id to find out");
        else
            sl_forward_answer_problem(r, sluice_status_word(SLUICE_ENOKEEPER),
                                      sl_forward_why_not(s));
    }
}

void sl_forward_second(struct arbiter *a)
{
    struct server *s = a->s;
    /* Handing over the ledger relies on the order of records. */
    if (!s->forward->handing)
        sl_ledger_sweep(&s->forward->ledger, s->now.ms, SWEPT_A_SECOND);
    give_up_waiting(s);
    sl_forward_send_listening(s);
    if (s->forward->open) sl_forward_send_clock(s);
}
