/* node_orders.c - the orders of a node: messages, events, answers, log lines,
 * writes. */
#include <assert.h>
#include <string.h>

#include "majority/acceptor.h"
#include "majority/proposer.h"

static struct sl_node_queued_order *queue(struct sl_node *n,
                                          enum sl_node_order_type type, size_t bytes)
{
    struct sl_node_queued_order *o = sl_node_block_new(n, sizeof *o + bytes);
    if (o == NULL) return NULL;
    o->type = type;
    o->bytes = bytes;
    sl_list_append(&n->orders, &o->link);
    return o;
}

/* Queue a copy of a message. Returns NULL when out of memory; then the message is
 * lost. */
static struct sl_node_queued_order *queue_message(struct sl_node *n,
                                                  const struct sl_message *m)
{
    struct sl_node_queued_order *o = queue(n, SL_NODE_ORDER_SEND,
                                           m->key.n + m->value.n + m->note.n +
                                               m->client.n + m->request.n);
    if (o == NULL) return NULL;
    o->u.message = *m;
    o->u.message.cluster = n->kept.force.cluster;
    o->u.message.version = n->kept.force.version;
    sl_node_put_message((char *)(o + 1), &o->u.message);
    return o;
}

/* Add the last reading of the receiver's clock that this node has. A message to a
 * single node gets the reading when it is queued, which is never later than when it
 * is sent. */
static void stamp(const struct sl_node *n, struct sl_message *m, sl_node_id to)
{
    const struct sl_node_peer *p = sl_node_find_peer(n, to);
    m->heard_epoch = p != NULL ? p->epoch : 0;
    m->heard_ms = p != NULL ? p->stamp_ms : 0;
}

static void send_to_itself(struct sl_node *n, struct sl_now now, struct sl_message *m)
{
    m->cluster = n->kept.force.cluster;
    m->version = n->kept.force.version;
    m->epoch = m->heard_epoch = n->epoch;
    m->sent_ms = m->heard_ms = now.ms;
    sl_node_dispatch(n, now, n->id, m);
}

void sl_node_send(struct sl_node *n, struct sl_now now, sl_node_id to,
                  struct sl_message *m)
{
    if (to == n->id) {
        send_to_itself(n, now, m);
        return;
    }
    if (!sl_node_can_reach(n, to)) return;
    struct sl_node_queued_order *o = queue_message(n, m);
    if (o == NULL) return;
    o->to[o->to_count++] = to;
    stamp(n, &o->u.message, to);
}

void sl_node_broadcast(struct sl_node *n, struct sl_now now, struct sl_message *m)
{
    const struct sl_membership list = n->kept.force;
    bool self = false;
    struct sl_node_queued_order *o = NULL;
    for (uint32_t i = 0; i < list.count; i++) {
        if (list.at[i].id == n->id) {
            self = true;
            continue;
        }
        if (!sl_node_can_reach(n, list.at[i].id)) continue;
        if (o == NULL) o = queue_message(n, m);
        if (o != NULL) o->to[o->to_count++] = list.at[i].id;
    }
    if (self) send_to_itself(n, now, m);
}

void sl_node_send_heartbeat(struct sl_node *n)
{
    struct sl_message m = {.type = SL_MESSAGE_BEAT,
                           .left_ms = sl_node_max_ms(n->silent_ms - n->now_ms, 0)};
    struct sl_node_queued_order *o = NULL;
    sl_node_report_journal(n, &m);
    for (size_t i = 0; i < SL_NODE_PEERS_MAX; i++) {
        if (n->peers[i].id == 0 || !n->peers[i].linked) continue;
        if (o == NULL) o = queue_message(n, &m);
        if (o != NULL) o->to[o->to_count++] = n->peers[i].id;
    }
}

void sl_node_publish(struct sl_node *n, const struct sl_node_event *e)
{
    struct sl_node_queued_order *o = queue(n, SL_NODE_ORDER_EVENT,
                                           e->key.n + e->note.n);
    if (o == NULL) return;
    o->u.event = *e;
    sl_node_put_bytes(sl_node_put_bytes((char *)(o + 1), &o->u.event.key),
                      &o->u.event.note);
}

void sl_node_log(struct sl_node *n, const char *text)
{
    struct sl_node_queued_order *o = queue(n, SL_NODE_ORDER_LOG, 0);
    size_t most = sizeof o->u.text - 1;
    if (o == NULL) return;
    size_t length = strlen(text);
    memcpy(o->u.text, text, length < most ? length : most);
}

void sl_node_queue_answer(struct sl_node *n, struct sl_proposer_request *r)
{
    if (r->ticket == 0) sl_proposer_request_free(n, r);
    else sl_list_append(&n->orders, &r->order.link);
}

/* --- Fetching orders -------------------------------------------------------------- */

static void free_order(struct sl_node *n, struct sl_node_queued_order *o)
{
    if (o == NULL) return;
    if (o->is_request)
        sl_proposer_request_free(n,
                                 sl_container_of(o, struct sl_proposer_request, order));
    else sl_node_block_free(n, o, sizeof *o + o->bytes);
}

/* Fill in a message for its next receiver. */
static void address(struct sl_node *n, struct sl_node_queued_order *o,
                    struct sl_node_order *out)
{
    struct sl_message *m = &o->u.message;
    assert(o->to_done < o->to_count && o->to_count <= SL_NODE_PEERS_MAX);
    out->to = o->to[o->to_done++];
    m->epoch = n->epoch;
    m->sent_ms = n->now_ms;
    m->wall_us = n->own_wall_us;
    if (o->to_count > 1) stamp(n, m, out->to);
    out->message = m;
}

static struct sl_node_queued_order *first_of(const struct sl_list *list)
{
    return sl_container_of(list->next, struct sl_node_queued_order, link);
}

static void free_list(struct sl_node *n, struct sl_list *list)
{
    while (!sl_list_empty(list)) {
        struct sl_node_queued_order *o = first_of(list);
        sl_list_remove(&o->link);
        free_order(n, o);
    }
}

void sl_node_free_orders(struct sl_node *n)
{
    free_order(n, n->fetched);
    free_list(n, &n->orders);
    free_list(n, &n->held);
}

/* Returns the position that must be durable before an order is carried out. Requests to acceptors
 * do not depend on the journal: they show nothing of this acceptor. The position of an answer is
 * known already. */
static uint64_t position_of(struct sl_node *n, const struct sl_node_queued_order *o)
{
    if (o->type == SL_NODE_ORDER_ANSWER) return o->position;
    if (sl_node_shows_all(n)) return 0;
    if (o->type == SL_NODE_ORDER_EVENT)
        return sl_node_position(n, sl_node_key_find(n, o->u.event.key));
    if (o->type != SL_NODE_ORDER_SEND || o->to_done > 0) return 0;
    const struct sl_message *m = &o->u.message;
    if (m->type == SL_MESSAGE_VOTE && m->key.n == 0) return sl_node_drain_position(n);
    if (m->type == SL_MESSAGE_VOTE || m->type == SL_MESSAGE_TEACH)
        return sl_node_position(n, sl_node_key_find(n, m->key));
    /* After all leases that were taught. */
    return m->type == SL_MESSAGE_TAUGHT ? sl_node_position_of_all(n) : 0;
}

/* Returns the next order that can be carried out, or NULL. */
static struct sl_node_queued_order *next_order(struct sl_node *n)
{
    uint64_t durable = sl_journal_durable(n->journal);
    if (!sl_list_empty(&n->held) && first_of(&n->held)->position <= durable)
        return first_of(&n->held);
    while (!sl_list_empty(&n->orders)) {
        struct sl_node_queued_order *o = first_of(&n->orders);
        o->position = position_of(n, o);
        if (o->position <= durable) return o;
        sl_list_remove(&o->link);
        /* What cannot be recorded is not shown: the message is lost. */
        if (o->position == SL_JOURNAL_FAILED) free_order(n, o);
        else sl_list_append(&n->held, &o->link);
    }
    return NULL;
}

struct sl_proposer_request *sl_node_take_held(struct sl_node *n, uint64_t ticket)
{
    for (struct sl_list *i = n->held.next; i != &n->held; i = i->next) {
        struct sl_node_queued_order *o = sl_container_of(i, struct sl_node_queued_order,
                                                         link);
        if (!o->is_request) continue;
        struct sl_proposer_request *r = sl_container_of(o, struct sl_proposer_request,
                                                        order);
        if (r->ticket != ticket) continue;
        sl_list_remove(i);
        return r;
    }
    return NULL;
}

/* An answer that waited for the journal until the lease was over comes too late. The client would
 * not use the lease, but another client may have been granted the key meanwhile, with a higher
 * fence. */
static void fail_if_late(const struct sl_node *n, struct sl_proposer_request *r)
{
    static const char why[] =
        "the journal of this node was written too slowly; retry, or "
        "use another node";
    bool leased = r->type == SL_NODE_ACQUIRE || r->type == SL_NODE_EXTEND;
    if (r->order.position == 0 || !leased || r->answer.status != SLUICE_OK ||
        n->now_ms < r->end_ms)
        return;
    r->answer.status = SLUICE_ENOQUORUM;
    memcpy(r->answer.reason, why, sizeof why);
}

/* The acquisition was cancelled while its grant waited for the journal. */
static void fail_if_cancelled(const struct sl_node *n, struct sl_proposer_request *r)
{
    if (r->type == SL_NODE_ACQUIRE && r->answer.status == SLUICE_OK &&
        r->held_key != NULL &&
        sl_acceptor_is_cancelled(n, sl_node_text_bytes(r->held_key),
                                 sl_node_text_bytes(r->request)))
        r->answer.status = SLUICE_EENDED;
}

/* Fill in an order. */
static void fill_order(struct sl_node *n, struct sl_node_queued_order *o,
                       struct sl_node_order *out)
{
    *out = (struct sl_node_order){.type = o->type};
    if (o->type == SL_NODE_ORDER_SEND) address(n, o, out);
    else if (o->type == SL_NODE_ORDER_EVENT) out->event = &o->u.event;
    else if (o->type == SL_NODE_ORDER_LOG) out->text = o->u.text;
    else {
        struct sl_proposer_request *r = sl_container_of(o, struct sl_proposer_request,
                                                        order);
        fail_if_late(n, r);
        fail_if_cancelled(n, r);
        out->ticket = r->ticket;
        out->answer = &r->answer;
    }
}

bool sl_node_order_file(struct sl_node *n, struct sl_node_order *out)
{
    return sl_node_order_write(n, out);
}

void sl_node_rewrite(struct sl_node *n)
{
    sl_node_want_write(n);
}

bool sl_node_next(struct sl_node *n, struct sl_node_order *out)
{
    free_order(n, n->fetched);
    n->fetched = NULL;
    if (sl_node_order_write(n, out)) return true;
    if (n->links_due) {
        n->links_due = false;
        *out = (struct sl_node_order){.type = SL_NODE_ORDER_LINKS};
        return true;
    }
    sl_node_record(n);
    if (n->record_due) {
        n->record_due = false;
        *out = (struct sl_node_order){.type = SL_NODE_ORDER_RECORD};
        return true;
    }
    struct sl_node_queued_order *o = next_order(n);
    if (o == NULL) return false;
    fill_order(n, o, out);
    if (o->type == SL_NODE_ORDER_SEND && o->to_done < o->to_count) return true;
    sl_list_remove(&o->link);
    n->fetched = o;
    return true;
}
