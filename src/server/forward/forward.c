/* forward.c - on a node: forwards requests to the keeper, and handles the frames that the keeper
 * sends back. */
#include "server/forward/forward.h"

#include <assert.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "server/arbiter/arbiter.h"
#include "server/arbiter/transactions.h"
#include "server/forward/forward_internal.h"
#include "server/observe/log.h"

/* --- Messages ------------------------------------------------------------------------- */

bool sl_forward_send(struct server *s, sl_node_id to,
                     const struct sl_failover_message *m)
{
    struct sl_resp_writer *w = sl_links_frame(s, to);
    if (w != NULL) sl_failover_write(w, m);
    return w != NULL;
}

/* --- Sessions ----------------------------------------------------------------------------- */

struct sl_forward_session *sl_forward_session_make(struct conn *c)
{
    if (c->forwarded != NULL) return c->forwarded;
    struct sl_forward_session *f = calloc(1, sizeof *f);
    if (f == NULL) return NULL;
    sl_list_init(&f->held);
    c->forwarded = f;
    return f;
}

void sl_forward_free_session(struct conn *c)
{
    if (c->forwarded == NULL) return;
    free((char *)c->forwarded->request.at);
    free(c->forwarded);
    c->forwarded = NULL;
}

void sl_forward_renamed(struct conn *c)
{
    if (c->forwarded != NULL) c->forwarded->described_route = 0;
}

bool sl_forward_holds_unleased(const struct conn *c)
{
    return c->forwarded != NULL && sl_ledger_holds_unleased(&c->forwarded->held);
}

void sl_forward_tx_ended(struct conn *c)
{
    struct sl_forward_session *f = c->forwarded;
    if (f == NULL) return;
    free((char *)f->request.at);
    f->request = (struct sl_bytes){NULL, 0};
    f->tx = 0;
}

void sl_forward_tx_lost(struct conn *c)
{
    bool here = c->tx != NULL && c->tx->id != 0;
    if (!here && (c->forwarded == NULL || c->forwarded->tx == 0)) return;
    sl_forward_tx_ended(c);
    sl_transactions_lost(c);
}

/* Record the transaction of a connection. Each reply of the keeper contains its id. If the id is
 * new, this TX.BEGIN has begun the transaction, so the node keeps its REQUEST id. A rejected
 * TX.BEGIN changes nothing. */
static void note_transaction(const struct request *r, uint64_t tx)
{
    struct conn *c = r->c;
    struct sl_forward_session *f = c->forwarded;
    bool begins = (r->command->flags & SL_BEGINS) != 0;
    if (tx == f->tx) return;
    sl_forward_tx_ended(c);
    if (tx == 0 || !begins) return;
    f->tx = tx;
    char *id = r->n == 3 ? malloc(r->at[2].n) : NULL;
    /* Out of memory: if the reply to the commit is lost, the outcome will be
     * unknown. */
    if (id == NULL) return;
    memcpy(id, r->at[2].at, r->at[2].n);
    f->request = (struct sl_bytes){id, r->at[2].n};
}

/* --- Requests and their queue -------------------------------------------------------------- */

struct request *sl_forward_request_of(const struct conn *c)
{
    const struct arbiter *remote = c->server->arbiters.remote;
    for (const struct sl_list *i = c->requests.next; i != &c->requests; i = i->next) {
        struct request *r = sl_container_of(i, struct request, of_conn);
        if (r->arbiter == remote) return r;
    }
    return NULL;
}

void sl_forward_unlist(struct request *r)
{
    struct sl_forward *f = r->s->forward;
    if (sl_list_empty(&r->place)) return;
    assert((r->sent ? f->sent_count : f->queued_count) > 0);
    sl_list_remove(&r->place);
    if (r->sent) f->sent_count--;
    else f->queued_count--;
    r->sent = false;
}

/* Search from the end, because most requests are newer than all others in the queue. */
void sl_forward_enqueue(struct request *r)
{
    struct sl_forward *f = r->s->forward;
    struct sl_list *at = f->queued.prev;
    assert(r->kept && !r->answered && r->arbiter == r->s->arbiters.remote);
    assert(r->c->forwarded != NULL);
    sl_forward_unlist(r);
    while (at != &f->queued &&
           sl_container_of(at, struct request, place)->arrived_ms > r->arrived_ms)
        at = at->prev;
    sl_list_append(at->next, &r->place);
    f->queued_count++;
}

void sl_forward_answer_problem(struct request *r, const char *code, const char *text)
{
    sl_forward_unlist(r);
    sl_resp_problem(sl_conn_out(r->c), code, text);
    sl_request_end(r);
}

/* --- Messages to the keeper ----------------------------------------------------------------- */

bool sl_forward_link_has_space(struct server *s)
{
    return sl_links_unsent(s, s->forward->keeper) < SL_FORWARD_HIGH;
}

/* Drop the record of a grant when its RELEASE is sent, so that the node does not report the grant
 * to the next keeper. */
static void note_release(struct request *r)
{
    struct sl_ledger *l = &r->s->forward->ledger;
    struct sl_record *x = r->released_fence == 0 ? NULL
                                                 : sl_ledger_find(l, r->released_fence);
    if (x == NULL) return;
    r->had_record = true;
    sl_ledger_drop(l, x);
}

void sl_forward_send_client(struct server *s, sl_node_id to, uint64_t session,
                            struct sl_bytes name, struct sl_bytes address)
{
    const struct sl_failover_message m = {.type = SL_FAILOVER_CLIENT,
                                          .session = session,
                                          .name = name,
                                          .address = address};
    sl_forward_send(s, to, &m);
}

void sl_forward_describe(struct conn *c)
{
    char where[SL_WHERE_BYTES];
    struct sl_forward *f = c->server->forward;
    if (c->forwarded->described_route == f->route) return;
    c->forwarded->described_route = f->route;
    sl_conn_where(c, where);
    sl_forward_send_client(c->server, f->keeper, sl_conn_id(c),
                           (struct sl_bytes){c->name, strlen(c->name)},
                           (struct sl_bytes){where, strlen(where)});
}

static void send_one(struct server *s, struct request *r)
{
    struct sl_forward *f = s->forward;
    assert(f->open && !f->leads && f->keeper != 0 && !r->sent);
    sl_forward_unlist(r);
    if (r->verb == SL_VERB_RELEASE) note_release(r);
    sl_forward_describe(r->c);
    for (size_t at = 0; at < r->bytes.n; at += SL_FORWARD_PIECE) {
        size_t left = r->bytes.n - at;
        size_t n = left < SL_FORWARD_PIECE ? left : SL_FORWARD_PIECE;
        const struct sl_failover_message m = {.type = SL_FAILOVER_DO,
                                              .session = sl_conn_id(r->c),
                                              .ms = sl_request_age_ms(r),
                                              .yes = r->c->out.resp3,
                                              .last = at + n == r->bytes.n,
                                              .bytes = {r->bytes.at + at, n}};
        if (!sl_forward_send(s, f->keeper, &m)) break; /* The route is about to end. */
    }
    r->c->forwarded->route = f->route;
    r->sent_ms = s->now.ms;
    r->sent = true;
    sl_list_append(&f->sent, &r->place);
    f->sent_count++;
    f->counts.forwarded++;
}

void sl_forward_send_queued(struct server *s)
{
    struct sl_forward *f = s->forward;
    while (f->open && !sl_list_empty(&f->queued) && sl_forward_link_has_space(s))
        send_one(s, sl_container_of(f->queued.next, struct request, place));
}

void sl_forward_drop(struct server *s, struct sl_record *x)
{
    const struct sl_failover_message m = {.type = SL_FAILOVER_DROP,
                                          .session = x->session,
                                          .key = x->key,
                                          .fence = x->fence};
    sl_forward_send(s, s->forward->keeper, &m);
    sl_ledger_drop(&s->forward->ledger, x);
}

/* --- The arbiter ----------------------------------------------------------------------------- */

bool sl_forward_must_decide(const struct request *r)
{
    const struct sl_forward *f = r->s->forward;
    if (!f->leads) return r->c->proxy == NULL;
    return f->reports_until_ms != 0 && (r->command->flags & SL_COMPLETE) != 0;
}

/* Return the fence of the grant that the keeper will release for a RELEASE; 0: unknown. Without a
 * fence, this is the newest grant of the connection. A given fence may belong to another key, or to
 * a grant without a lease of another connection. The keeper does not release such a grant, so its
 * record stays in the ledger. */
static sl_fence released(const struct request *r)
{
    const struct sl_record *x = r->fence != 0
                                    ? sl_ledger_find(&r->s->forward->ledger, r->fence)
                                    : sl_ledger_newest(&r->c->forwarded->held, r->key);
    if (x == NULL || x->key.n != r->key.n ||
        memcmp(x->key.at, r->key.at, r->key.n) != 0)
        return 0;
    return x->leased || x->session == sl_conn_id(r->c) ? x->fence : 0;
}

static bool is_without_keeper(struct server *s)
{
    const struct sl_forward *f = s->forward;
    if (f->leads || f->without_since_ms == SL_NEVER) return false;
    sl_election_read_soon(f->election, s->now.ms);
    return s->now.ms - f->without_since_ms >= s->settings->keeper_wait_ms;
}

void sl_forward_submit(struct arbiter *a, struct request *r)
{
    struct server *s = a->s;
    assert(r->arbiter == a && (r->c->proxy == NULL || s->forward->leads));
    if (sl_transactions_answers_lost(r)) return;
    if (is_without_keeper(s)) {
        const struct answer none = {.status = SLUICE_ENOKEEPER,
                                    .text = sl_forward_why_not(s)};
        sl_request_answer(r, &none);
        return;
    }
    if (sl_forward_session_make(r->c) == NULL) {
        sl_request_answer_status(r, SLUICE_ENOMEM);
        return;
    }
    sl_fence releases = r->verb == SL_VERB_RELEASE ? released(r) : 0;
    struct request *k = sl_request_keep(r);
    if (k == NULL) return;
    k->sent = k->had_record = false;
    k->released_fence = releases;
    sl_forward_enqueue(k);
    if (!s->forward->leads) sl_forward_send_queued(s);
}

void sl_forward_withdraw(struct arbiter *a, struct request *r)
{
    assert(r->kept && r->arbiter == a);
    sl_forward_unlist(r);
}

void sl_forward_take_back(struct arbiter *a, struct request *r,
                          const struct sl_grant *g)
{
    struct sl_record *x = g->fence == 0
                              ? NULL
                              : sl_ledger_find(&a->s->forward->ledger, g->fence);
    sl_forward_unlist(r);
    if (x != NULL && x->leased) sl_forward_drop(a->s, x);
}

bool sl_forward_is_brief(const struct arbiter *a, const struct request *r)
{
    (void)a;
    return !r->waits;
}

void sl_forward_leave(struct arbiter *a, struct conn *c, enum sl_parting how)
{
    struct server *s = a->s;
    struct sl_forward *f = s->forward;
    if (c->forwarded == NULL) return;
    sl_ledger_leave(&f->ledger, &c->forwarded->held);
    sl_forward_tx_ended(c);
    if (c->proxy != NULL || c->forwarded->route == 0 || f->leads ||
        (!f->open && !f->handing))
        return;
    const struct sl_failover_message m = {
        .type = SL_FAILOVER_END, .session = sl_conn_id(c), .yes = how == SL_WAS_CUT};
    sl_forward_send(s, f->keeper, &m);
}

void sl_forward_failed(struct arbiter *a, struct conn *c, const char *name,
                       const char *code)
{
    struct sl_forward *f = a->s->forward;
    (void)code;
    if (c->forwarded == NULL || c->forwarded->tx == 0 ||
        c->forwarded->route != f->route || !f->open)
        return; /* The connection has no transaction at the keeper. */
    const struct sl_failover_message m = {.type = SL_FAILOVER_FAIL,
                                          .session = sl_conn_id(c),
                                          .bytes = {name, strlen(name)}};
    sl_forward_send(a->s, f->keeper, &m);
}

/* --- Messages from the keeper ----------------------------------------------------------------- */

static struct conn *conn_of(struct server *s, uint64_t id)
{
    struct session *n = sl_server_session(s, id);
    return n == NULL || n->conn == NULL || n->conn->proxy != NULL ? NULL : n->conn;
}

/* Convert the reply to TX.OUTCOME into a reply to TX.COMMIT. The node sent TX.OUTCOME instead of a
 * TX.COMMIT whose reply was lost. */
static void reply_settled(struct conn *c, struct sl_bytes reply)
{
    if (reply.n > 0 && reply.at[0] == ':')
        sl_resp_raw(sl_conn_out(c), reply.at, reply.n);
    else if (reply.n > 0 && reply.at[0] == '-')
        sl_resp_problem(sl_conn_out(c), sluice_status_word(SLUICE_ECLOSED),
                        "the keeper failed during the commit, and the outcome is "
                        "unknown; send TX.OUTCOME id to find out");
    else sl_resp_problem(sl_conn_out(c), sluice_status_word(SLUICE_ESTALE), SL_LOST_TX);
}

static bool is_grant(struct sl_bytes reply)
{
    return reply.n >= 2 && memcmp(reply.at, "*5", 2) == 0;
}

static void receive_reply(struct request *r, uint64_t tx, struct sl_bytes reply)
{
    struct conn *c = r->c;
    const struct sl_grant g = {.fence = c->forwarded->unanswered};
    if (r->waits && r->verb == SL_VERB_ACQUIRE && is_grant(reply) &&
        sl_request_came_too_late(r, &g))
        return;
    c->forwarded->unanswered = 0;
    if (r->settles) reply_settled(c, reply);
    else if (r->had_record && reply.n == 4 && memcmp(reply.at, ":0\r\n", 4) == 0)
        /* The grant ended when the last keeper failed. */
        sl_resp_integer(sl_conn_out(c), 1);
    else sl_resp_raw(sl_conn_out(c), reply.at, reply.n);
    note_transaction(r, tx);
    sl_forward_unlist(r);
    sl_request_end(r);
}

static void receive_say(struct server *s, const struct sl_failover_message *m)
{
    struct conn *c = conn_of(s, m->session);
    if (c == NULL || c->forwarded == NULL)
        return; /* The client has left, so nobody waits for the reply. */
    struct request *r = sl_forward_request_of(c);
    c->forwarded->half_replied = m->what == SL_SAY_MORE;
    if (r != NULL && m->what == SL_SAY_LAST) receive_reply(r, m->tx, m->bytes);
    /* A push, or a part of a reply. */
    else sl_resp_raw(sl_conn_out(c), m->bytes.at, m->bytes.n);
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
 * records. */
static void put_record(struct sl_forward *f, sl_ms now_ms, const struct sl_record *x,
                       struct sl_list *of_conn)
{
    sl_ledger_put(&f->ledger, x, of_conn);
    if (!f->handing) sl_ledger_sweep(&f->ledger, now_ms, 2);
}

static void receive_held(struct server *s, const struct sl_failover_message *m)
{
    struct sl_forward *f = s->forward;
    struct conn *c = conn_of(s, m->session);
    struct request *r = c == NULL ? NULL : sl_forward_request_of(c);
    struct sl_grant_view v = m->grant;
    if (!m->yes) sl_noted_client_take(&f->noted, &v);
    /* The client has left, so nobody waits for the reply. */
    if (r == NULL || !r->sent) return;
    sl_ms end_ms = end_after(r->sent_ms, m->ms, v.left_ms);
    char where[SL_WHERE_BYTES];
    if (m->yes) {
        sl_conn_where(c, where);
        v.name = (struct sl_bytes){c->name, strlen(c->name)};
        v.address = (struct sl_bytes){where, strlen(where)};
    }
    struct sl_record x = sl_record_of(m->key, &v, m->yes ? sl_conn_id(c) : 0, end_ms);
    x.route = f->route;
    /* If there is no memory for the record, the grant will be lost when the keeper fails. */
    put_record(f, s->now.ms, &x, m->yes ? &c->forwarded->held : NULL);
    if (m->yes) c->forwarded->unanswered = v.fence;
}

/* Handle NOTE: a grant of a client of the keeper's own node. */
static void receive_note(struct server *s, const struct sl_failover_message *m)
{
    struct sl_forward *f = s->forward;
    struct sl_grant_view v = m->grant;
    if (!v.leased) return;
    sl_noted_client_take(&f->noted, &v);
    struct sl_record x = sl_record_of(m->key, &v, 0, end_after(m->ms, 0, v.left_ms));
    x.route = f->route;
    put_record(f, s->now.ms, &x, NULL);
}

static void receive_gone(struct server *s, const struct sl_failover_message *m)
{
    struct sl_ledger *l = &s->forward->ledger;
    for (size_t i = 0; i < m->gone_count; i++) {
        struct sl_record *x = sl_ledger_find(l, m->gone[i]);
        if (x != NULL) sl_ledger_drop(l, x);
    }
}

/* Handle LOST: the keeper rejects a grant of a client of this node. If the grant has no lease,
 * close the connection of the client, which would otherwise believe that it still holds the
 * lock. */
static void receive_lost(struct server *s, const struct sl_failover_message *m)
{
    static struct sl_log_kind kind;
    struct conn *c = conn_of(s, m->session);
    struct sl_record *x = sl_ledger_find(&s->forward->ledger, m->fence);
    if (x == NULL) return;
    bool leased = x->leased;
    sl_log_often(&kind, s->now.ms, SL_LOG_WARN,
                 "the keeper no longer holds a grant of a client of this node", NULL);
    s->forward->counts.refused++;
    sl_ledger_drop(&s->forward->ledger, x);
    if (!leased && c != NULL) sl_conn_close(c, SL_WAS_CUT);
}

static void receive_cut(struct server *s, const struct sl_failover_message *m)
{
    struct conn *c = conn_of(s, m->session);
    if (c != NULL) sl_conn_close(c, SL_WAS_CUT);
}

void sl_forward_from_keeper(struct server *s, const struct sl_failover_message *m)
{
    if (m->type == SL_FAILOVER_HERE) {
        sl_forward_welcomed(s, m->term);
        return;
    }
    if (!s->forward->open && !s->forward->handing)
        return; /* The message belongs to an old route. */
    switch (m->type) {
        case SL_FAILOVER_SAY: receive_say(s, m); break;
        case SL_FAILOVER_HELD: receive_held(s, m); break;
        case SL_FAILOVER_NOTE: receive_note(s, m); break;
        case SL_FAILOVER_CLIENT: sl_noted_client_keep(&s->forward->noted, m); break;
        case SL_FAILOVER_GONE: receive_gone(s, m); break;
        case SL_FAILOVER_LOST: receive_lost(s, m); break;
        case SL_FAILOVER_CUT: receive_cut(s, m); break;
        case SL_FAILOVER_EVENT:
            s->stats.events += sl_pubsub_publish(&s->pubsub, m->channel, m->bytes);
            break;
        default: break; /* Only a keeper receives the other messages. */
    }
}
