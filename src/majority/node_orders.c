/* node_orders.c - the orders of a node: messages, events, answers, log lines,
 * writes. */
#include <assert.h>
#include <string.h>

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
    struct sl_node_queued_order *o = queue(
        n, SL_NODE_ORDER_SEND, m->key.n + m->value.n + m->note.n + m->client.n);
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

void sl_node_free_orders(struct sl_node *n)
{
    free_order(n, n->fetched);
    while (!sl_list_empty(&n->orders)) {
        struct sl_node_queued_order *o = sl_container_of(
            n->orders.next, struct sl_node_queued_order, link);
        sl_list_remove(&o->link);
        free_order(n, o);
    }
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
    if (sl_list_empty(&n->orders)) return false;
    struct sl_node_queued_order *o = sl_container_of(n->orders.next,
                                                     struct sl_node_queued_order, link);
    *out = (struct sl_node_order){.type = o->type};
    if (o->type == SL_NODE_ORDER_SEND) {
        address(n, o, out);
        if (o->to_done < o->to_count) return true;
    } else if (o->type == SL_NODE_ORDER_EVENT) out->event = &o->u.event;
    else if (o->type == SL_NODE_ORDER_LOG) out->text = o->u.text;
    else {
        struct sl_proposer_request *r = sl_container_of(o, struct sl_proposer_request,
                                                        order);
        out->ticket = r->ticket;
        out->answer = &r->answer;
    }
    sl_list_remove(&o->link);
    n->fetched = o;
    return true;
}
