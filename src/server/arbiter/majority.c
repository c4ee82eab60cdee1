/* majority.c - the arbiter `majority`: passes requests to the node, and turns the orders of the
 * node into replies, events, messages and writes. */
#include "server/arbiter/majority.h"

#include <assert.h>
#include <inttypes.h>
#include <string.h>

#include "base/duration.h"
#include "locks/requests.h"
#include "server/arbiter/majority_internal.h"
#include "server/forward/forward.h"
#include "server/net/links.h"
#include "server/observe/events.h"
#include "server/observe/inspection.h"
#include "server/observe/log.h"

struct sl_node *sl_majority_node(const struct server *s)
{
    return s->majority == NULL ? NULL : s->majority->node;
}

static struct sl_node *node_of(const struct request *r)
{
    return r->s->majority->node;
}

/* --- Requests that a majority cannot decide --------------------------------------- */

static void refuse(struct request *r, const char *text)
{
    const struct answer a = {.status = SLUICE_EMAJORITY, .text = text};
    r->s->stats.refusals++;
    sl_request_answer(r, &a);
}

/* Return why a majority cannot grant this request, or NULL if it can. */
static const char *unsupported(const struct sl_want *w)
{
    if (w->shared) return "SHARED needs a single server or a cluster on etcd";
    if (w->units != 1 || (uint64_t)w->per * w->buckets != 1)
        return "PER, BUCKETS and UNITS need a single server or a cluster on etcd";
    if (w->lease_ms == 0)
        return "ACQUIRE needs LEASE in a cluster without etcd; add LEASE time, and "
               "EXTEND the lease before it expires";
    return NULL;
}

/* Whether the lease is long enough for the nodes to agree on it. Returns false after replying with
 * an error. */
static bool is_long_enough(struct request *r, sl_ms lease_ms)
{
    char text[120], min[SL_DURATION_BYTES], got[SL_DURATION_BYTES];
    sl_ms least = r->s->settings->lease_ms_min;
    if (lease_ms == 0 || lease_ms >= least) return true;
    snprintf(text, sizeof text,
             "LEASE must be at least %s (lease-min) in a cluster without etcd (got %s)",
             sl_duration_text(least, min), sl_duration_text(lease_ms, got));
    const struct answer a = {.status = SLUICE_EINVAL, .code = "ERR", .text = text};
    sl_request_answer(r, &a);
    return false;
}

/* --- Requests -------------------------------------------------------------------- */

static void submit_to_node(struct request *r, struct sl_node_request q)
{
    struct request *k = sl_request_keep(r);
    if (k == NULL) return;
    assert(k->verb < SL_VERB_TX && k->arbiter == &k->s->majority->arbiter);
    q.session = sl_conn_id(k->c);
    q.key = k->key;
    int status = sl_node_submit(node_of(k), k->s->now, sl_request_ticket(k), &q);
    if (status != SLUICE_OK) sl_request_answer_status(k, status);
}

/* Return the name of a client, a zero byte, and its address, as nodes store them with a lease. */
static struct sl_bytes client_of(const struct conn *c, char *out)
{
    size_t n = strlen(c->name) + 1;
    memcpy(out, c->name, n);
    sl_conn_where(c, out + n);
    return (struct sl_bytes){out, n + strlen(out + n)};
}

/* Write what identifies an acquisition, together with its key: the user, who has the same number at
 * all nodes, and the REQUEST id. Returns no bytes if the request has no id. */
#define REQUEST_BYTES (4 + SL_REQUEST_ID_MAX)

static struct sl_bytes name_of(const struct request *r, char out[REQUEST_BYTES])
{
    uint32_t user = r->c->session->s.user;
    assert(r->id.n <= SL_REQUEST_ID_MAX);
    if (r->id.n == 0) return (struct sl_bytes){NULL, 0};
    for (int i = 0; i < 4; i++) out[i] = (char)(user >> 8 * i);
    memcpy(out + 4, r->id.at, r->id.n);
    return (struct sl_bytes){out, 4 + r->id.n};
}

static void acquire(struct request *r)
{
    const struct sl_want *w = &r->want;
    if (!is_long_enough(r, w->lease_ms)) return;
    const char *why = unsupported(w);
    if (why != NULL) {
        refuse(r, why);
        return;
    }
    char client[sizeof r->c->name + SL_WHERE_BYTES], name[REQUEST_BYTES];
    submit_to_node(r, (struct sl_node_request){.type = SL_NODE_ACQUIRE,
                                               .lease_ms = w->lease_ms,
                                               .wait_ms = w->wait_ms,
                                               .priority = w->priority,
                                               .steal = w->steal,
                                               .force_ms = w->force_ms,
                                               .value = w->value,
                                               .note = w->note,
                                               .client = client_of(r->c, client),
                                               .request = name_of(r, name),
                                               .digest = w->digest});
}

/* If this connection waits for the acquisition with NOTIFY, the reply to CANCEL is the outcome. */
static void cancel(struct request *r)
{
    char name[REQUEST_BYTES];
    sl_request_cancelled(r);
    submit_to_node(r, (struct sl_node_request){.type = SL_NODE_CANCEL,
                                               .request = name_of(r, name)});
}

static struct sl_grant_view view_of(const struct sl_node_copy *copy)
{
    return (struct sl_grant_view){.leased = true,
                                  .fence = copy->fence,
                                  .left_ms = copy->left_ms,
                                  .value = copy->value};
}

static void read_copy(struct request *r, const struct sl_node_copy *copy)
{
    const struct sl_grant_view v = copy != NULL ? view_of(copy)
                                                : (struct sl_grant_view){0};
    const struct answer a = {.status = SLUICE_OK,
                             .newest = copy != NULL && copy->held ? &v : NULL};
    sl_request_answer(r, &a);
}

/* Answer READ from this node, and READ MAJORITY from a majority. */
static void read_lease(struct request *r)
{
    struct sl_node_copy copy;
    if (r->yes) submit_to_node(r, (struct sl_node_request){.type = SL_NODE_READ});
    else
        read_copy(r, sl_node_copy(node_of(r), r->s->now, r->key, &copy) ? &copy : NULL);
}

static void resign(struct request *r)
{
    struct sl_forward_view v;
    sl_forward_view(r->s, &v);
    const char *why = sl_forward_resign(r->s);
    const struct answer a = {.status = why == NULL ? SLUICE_OK : SLUICE_ENODES,
                             .text = why,
                             .number = (int64_t)v.term};
    sl_request_answer(r, &a);
}

static void change_nodes(struct request *r)
{
    if (r->add) {
        char address[SL_ADDRESS_BYTES];
        memcpy(address, r->address.at, r->address.n);
        address[r->address.n] = '\0';
        submit_to_node(r, (struct sl_node_request){.type = SL_NODE_ADD,
                                                   .node = r->node,
                                                   .address = address});
    } else if (r->remove)
        submit_to_node(
            r, (struct sl_node_request){.type = SL_NODE_REMOVE, .node = r->node});
    else if (r->resign) resign(r);
    else {
        struct sl_inspection *i = sl_inspection_new(r->s, SL_INSPECT_NODES);
        i->node = node_of(r);
        const struct answer a = {.status = SLUICE_OK, .inspection = i};
        sl_request_answer(r, &a);
    }
}

static void drain(struct request *r)
{
    if (r->key.n == 0) {
        struct sl_inspection *i = sl_inspection_new(r->s, SL_INSPECT_DRAINS);
        i->node = node_of(r);
        const struct answer a = {.status = SLUICE_OK, .inspection = i};
        sl_request_answer(r, &a);
    } else
        submit_to_node(r,
                       (struct sl_node_request){.type = SL_NODE_DRAIN, .on = r->yes});
}

static void submit(struct arbiter *a, struct request *r)
{
    (void)a;
    switch (r->verb) {
        case SL_VERB_ACQUIRE: acquire(r); break;
        case SL_VERB_RELEASE:
            submit_to_node(r, (struct sl_node_request){.type = SL_NODE_RELEASE,
                                                       .fence = r->fence});
            break;
        case SL_VERB_CANCEL: cancel(r); break;
        case SL_VERB_EXTEND:
            if (is_long_enough(r, r->ms))
                submit_to_node(r, (struct sl_node_request){.type = SL_NODE_EXTEND,
                                                           .fence = r->fence,
                                                           .lease_ms = r->ms,
                                                           .value = r->value});
            break;
        case SL_VERB_CHECK:
            submit_to_node(
                r, (struct sl_node_request){.type = SL_NODE_CHECK, .fence = r->fence});
            break;
        case SL_VERB_READ: read_lease(r); break;
        case SL_VERB_AWAIT:
            submit_to_node(r, (struct sl_node_request){.type = SL_NODE_AWAIT,
                                                       .want_free = r->yes,
                                                       .wait_ms = r->ms});
            break;
        case SL_VERB_EXPLAIN:
            submit_to_node(r, (struct sl_node_request){.type = SL_NODE_VOTES});
            break;
        case SL_VERB_LOCKS: sl_inspection_list(r); break;
        case SL_VERB_BREAK:
            submit_to_node(r, (struct sl_node_request){.type = SL_NODE_BREAK,
                                                       .fence = r->fence,
                                                       .at_once = r->yes});
            break;
        case SL_VERB_DRAIN: drain(r); break;
        case SL_VERB_NODES: change_nodes(r); break;
        /* The router chooses another arbiter for these verbs. */
        default: assert(false); break;
    }
}

static void withdraw(struct arbiter *a, struct request *r)
{
    assert(r->kept && r->arbiter == a);
    /* A release continues even if the client has left. */
    if (r->verb != SL_VERB_RELEASE && r->verb != SL_VERB_CANCEL &&
        r->verb != SL_VERB_BREAK && r->verb != SL_VERB_DRAIN)
        sl_node_withdraw(a->s->majority->node, a->s->now, r->ticket);
}

/* Release a grant. If there is no memory for the release, the grant ends when its lease expires. If
 * the request has an id, the client may repeat it for a while, through any node. */
static void take_back(struct arbiter *a, struct request *r, const struct sl_grant *g)
{
    const struct sl_node_request q = {
        .type = r->id.n > 0 ? SL_NODE_TAKE_BACK : SL_NODE_RELEASE,
        .key = r->key,
        .fence = g->fence,
        .wait_ms = r->id.n > 0 ? a->s->settings->linger_ms : 0};
    sl_node_submit(a->s->majority->node, a->s->now, 0, &q);
}

static bool is_brief(const struct arbiter *a, const struct request *r)
{
    (void)a;
    return !r->waits;
}

/* --- Answers ---------------------------------------------------------------------- */

#define TEXT_BYTES 240

static void write_no_quorum(enum sl_verb verb, const struct sl_node_answer *a,
                            char text[TEXT_BYTES])
{
    bool held = verb == SL_VERB_EXTEND || verb == SL_VERB_CHECK;
    if (a->members == 0)
        snprintf(text, TEXT_BYTES,
                 "this node is not a member of a cluster; send NODES ADD to a member, "
                 "or start a new cluster with --bootstrap");
    else if (held && a->answered >= a->needed)
        snprintf(text, TEXT_BYTES,
                 "%" PRIu32 " of %" PRIu32 " nodes have this lease, and %" PRIu32
                 " are needed; %" PRIu32 " do not have it, and the rest did not answer "
                 "in time; retry, or use another node",
                 a->have, a->members, a->needed, a->lack);
    else
        snprintf(text, TEXT_BYTES,
                 "%" PRIu32 " of %" PRIu32 " nodes answered in time, and %" PRIu32
                 " are needed; retry, or use another node",
                 a->answered, a->members, a->needed);
}

void sl_majority_write_recovering(const struct sl_node_answer *a, char *out,
                                  size_t size)
{
    if (a->silent == 0)
        snprintf(out, size,
                 "this node started recently and may not know all leases yet; retry in "
                 "%" PRId64 " ms, or use another node",
                 a->left_ms);
    else
        snprintf(out, size,
                 "%s%" PRIu32 " of %" PRIu32 " nodes can vote now, and %" PRIu32
                 " are needed; %" PRIu32
                 " started or joined recently and cannot vote for %" PRId64
                 " ms; retry then, or use WAIT",
                 a->can_vote > 0 ? "at most " : "", a->can_vote, a->members, a->needed,
                 a->silent, a->left_ms);
}

/* Return the text of an error; NULL: the text of its status. */
static const char *error_text(enum sl_verb verb, const struct sl_node_answer *a,
                              char text[TEXT_BYTES])
{
    if (a->status == SLUICE_ENOQUORUM && *a->reason == '\0')
        write_no_quorum(verb, a, text);
    else if (a->status == SLUICE_ENODES && a->left_ms > 0)
        snprintf(text, TEXT_BYTES, "%s; retry in %" PRId64 " ms", a->reason,
                 a->left_ms);
    else if (*a->reason != '\0') snprintf(text, TEXT_BYTES, "%s", a->reason);
    else if (a->status == SLUICE_ERECOVERING)
        sl_majority_write_recovering(a, text, TEXT_BYTES);
    else return NULL;
    return text;
}

static void count(const struct request *r, const struct sl_node_answer *a)
{
    struct sl_stats *st = &r->s->stats;
    bool ok = a->status == SLUICE_OK;
    if (r->verb == SL_VERB_EXTEND && ok) st->extends++;
    if (r->verb == SL_VERB_RELEASE && ok && a->number == 1) st->releases++;
    if (r->verb == SL_VERB_CANCEL && ok && a->number == 2) st->releases++;
    if (r->verb == SL_VERB_BREAK && ok && a->number > 0) st->breaks++;
    if (r->verb != SL_VERB_ACQUIRE || (ok && a->grant.replay)) return;
    bool timed_out = a->status == SLUICE_EFULL && r->waits;
    bool waited = timed_out || (ok && a->grant.waited_ms > 0);
    if (ok) st->grants++;
    else if (!timed_out) st->refusals++;
    if (waited) st->waits++;
    if (timed_out) st->waits_timed_out++;
    if (!ok || !waited) return;
    st->grants_after_wait++;
    sl_histogram_add(&st->wait_ms, a->grant.waited_ms);
}

static void answer(struct server *s, uint64_t ticket, const struct sl_node_answer *a)
{
    struct request *r = sl_request_find(s, ticket);
    char text[TEXT_BYTES];
    if (r == NULL) return; /* The client has left, so nobody waits for the answer. */
    assert(r->arbiter == &s->majority->arbiter);
    bool ok = a->status == SLUICE_OK;
    if (r->verb == SL_VERB_ACQUIRE && ok && sl_request_came_too_late(r, &a->grant))
        return;
    count(r, a);
    if (ok && r->verb == SL_VERB_READ)
        read_copy(r, a->copy_count > 0 ? a->copies : NULL);
    else if (ok && r->verb == SL_VERB_EXPLAIN) sl_majority_explain(r, a);
    else {
        const struct answer reply = {.status = a->status,
                                     .text = ok ? NULL : error_text(r->verb, a, text),
                                     .number = a->number,
                                     .grant = &a->grant};
        sl_request_answer(r, &reply);
    }
}

/* --- Events ------------------------------------------------------------------------- */

/* Count an event. Only the node whose client took the grant counts it. */
static void count_event(struct server *s, const struct sl_node_event *e)
{
    struct sl_stats *st = &s->stats;
    if (e->type == SL_NODE_EVENT_RELEASED && e->asked_ms >= 0)
        sl_answers_add(&st->answers, e->asked_ms);
    if (e->session == 0) return;
    if (e->type == SL_NODE_EVENT_EXPIRED) st->expiries++;
    else if (e->type == SL_NODE_EVENT_ASKED) st->asks++;
    else if (e->type == SL_NODE_EVENT_WITHDRAWN) st->withdrawals++;
    else if (e->type == SL_NODE_EVENT_STOLEN) st->steals++;
    if (e->type == SL_NODE_EVENT_STOLEN && e->overlapping) st->overlaps++;
}

/* The event that the server publishes for an event of the node, and whether the server pushes it to
 * the session. */
static const struct {
    enum sl_event_type type;
    bool pushed;
} events[] = {
    [SL_NODE_EVENT_GRANTED] = {SL_EVENT_GRANTED, false},
    [SL_NODE_EVENT_EXTENDED] = {SL_EVENT_EXTENDED, false},
    [SL_NODE_EVENT_RELEASED] = {SL_EVENT_RELEASED, false},
    [SL_NODE_EVENT_EXPIRED] = {SL_EVENT_EXPIRED, true},
    [SL_NODE_EVENT_ASKED] = {SL_EVENT_ASKED, true},
    [SL_NODE_EVENT_WITHDRAWN] = {SL_EVENT_WITHDRAWN, true},
    [SL_NODE_EVENT_STOLEN] = {SL_EVENT_STOLEN, true},
    [SL_NODE_EVENT_BROKEN] = {SL_EVENT_BROKEN, true},
    [SL_NODE_EVENT_WAITS] = {SL_EVENT_WAITS, true},
};

/* Return what BREAK has to do with an event, as events state it; NULL: nothing. */
static const char *why_of(const struct sl_node_event *e)
{
    if (e->type == SL_NODE_EVENT_BROKEN) return e->at_once ? NULL : "last-lease";
    return e->type == SL_NODE_EVENT_RELEASED && e->at_once ? "break" : NULL;
}

static void publish(struct server *s, const struct sl_node_event *e)
{
    bool pushed = events[e->type].pushed;
    if (e->type == SL_NODE_EVENT_STOLEN && !e->overlapping) pushed = false;
    count_event(s, e);
    sl_event_publish(s, &(struct sl_event){.type = events[e->type].type,
                                           .key = e->key,
                                           .fence = e->fence,
                                           .session = pushed ? e->session : 0,
                                           .held = 1,
                                           .lease_ms = e->lease_ms,
                                           .waited_ms = e->waited_ms,
                                           .overlapping = e->overlapping,
                                           .why = why_of(e),
                                           .ends = e->at_once,
                                           .priority = e->priority,
                                           .left_ms = e->left_ms,
                                           .note = e->note});
}

/* --- Orders ------------------------------------------------------------------------- */

void sl_majority_set_links(struct server *s)
{
    struct sl_member peers[2 * SL_NODES_MAX];
    uint32_t n = sl_node_peers(s->majority->node, peers);
    sl_links_set(s, peers, n);
    sl_forward_members(s);
}

static void carry_out(struct server *s, const struct sl_node_order *o)
{
    switch (o->type) {
        case SL_NODE_ORDER_SEND: sl_links_send(s, o->to, o->message); break;
        case SL_NODE_ORDER_ANSWER: answer(s, o->ticket, o->answer); break;
        case SL_NODE_ORDER_EVENT: publish(s, o->event); break;
        case SL_NODE_ORDER_WRITE: sl_majority_write(s, o->durable); break;
        case SL_NODE_ORDER_RECORD:
            break; /* sl_server_settle() writes before it sends. */
        case SL_NODE_ORDER_LINKS: sl_majority_set_links(s); break;
        case SL_NODE_ORDER_LOG: sl_log(SL_LOG_INFO, o->text, NULL); break;
    }
}

static sl_ms due(const struct arbiter *a)
{
    return sl_node_due(a->s->majority->node);
}

static bool pump(struct arbiter *a)
{
    struct server *s = a->s;
    struct sl_node *n = s->majority->node;
    struct sl_node_order o;
    if (sl_node_due(n) <= s->now.ms) sl_node_tick(n, s->now);
    while (s->effects_left > 0) {
        if (!sl_node_next(n, &o)) return sl_node_due(n) > s->now.ms;
        sl_server_count_effect(s, false);
        carry_out(s, &o);
    }
    return false;
}

static const struct arbiter_kind majority = {.name = "majority",
                                             .submit = submit,
                                             .withdraw = withdraw,
                                             .take_back = take_back,
                                             .is_brief = is_brief,
                                             .due = due,
                                             .pump = pump,
                                             .inspect = sl_majority_inspect};

void sl_majority_init(struct sl_majority *m, struct server *s)
{
    m->arbiter = (struct arbiter){.kind = &majority, .s = s};
}

struct arbiter *sl_majority_arbiter(struct server *s)
{
    return &s->majority->arbiter;
}

/* --- Links to other nodes -------------------------------------------------- */

/* Output limit for frames; forwarding stops before it is reached. */
#define FORWARD_BYTES ((size_t)4 << 20)

static const struct sl_node_identity *identity(const struct server *s)
{
    return sl_node_identity(s->majority->node);
}

/* Write the settings that must be the same on all nodes, because each node must accept the requests
 * that another node has accepted. */
static void settings(const struct server *s, char *out, size_t n)
{
    const struct sl_settings *set = s->settings;
    snprintf(out, n,
             "lease-min=%" PRId64 "ms\nlease-max=%" PRId64 "ms\nkey-bytes-max=%" PRId64
             "\nvalue-bytes-max=%" PRId64 "\nkeys-max=%" PRId64
             "\nengine=%s\netcd-prefix=%s\nmajority-keys=%s\n",
             set->lease_ms_min, set->lease_ms_max, set->key_bytes_max,
             set->value_bytes_max, set->keys_max,
             set->engine == SL_ENGINE_ETCD ? "etcd" : "none",
             set->engine == SL_ENGINE_ETCD ? set->etcd_prefix : "", set->majority_keys);
}

static bool link_up(struct server *s, sl_node_id id,
                    const struct sl_node_identity *states, const char **why)
{
    if (!sl_node_link(s->majority->node, s->now, id, true, states, why)) return false;
    sl_forward_linked(s, id);
    return true;
}

static void link_down(struct server *s, sl_node_id id, enum sl_link_end how)
{
    const char *why;
    sl_node_link(s->majority->node, s->now, id, false, NULL, &why);
    sl_forward_unlinked(s, id, how);
}

static void message(struct server *s, sl_node_id from, const struct sl_message *m)
{
    sl_node_receive(s->majority->node, s->now, from, m);
}

static bool is_frame(const struct server *s, const struct sl_args *args)
{
    return s->forward != NULL && sl_forward_is_frame(args);
}

static size_t frame_bytes(const struct server *s)
{
    return s->forward == NULL ? 0
                              : (size_t)s->settings->command_bytes_max + FORWARD_BYTES;
}

const struct sl_link_handler sl_majority_links = {.identity = identity,
                                                  .settings = settings,
                                                  .up = link_up,
                                                  .down = link_down,
                                                  .unreached = sl_forward_unreached,
                                                  .message = message,
                                                  .is_frame = is_frame,
                                                  .frame = sl_forward_received,
                                                  .frame_bytes = frame_bytes,
                                                  .drained = sl_forward_drained};
