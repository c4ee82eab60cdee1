/* keeper_conn.c - connections to nodes, their requests, and the replies. Follows src/server/request.c and
 * src/server/forward/proxy.c. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "sim/keeper.h"

/* ---- connections ---- */

struct ksim_conn *ksim_conn_new(struct ksim_world *w, uint32_t i)
{
    struct ksim_node *n = &w->nodes[i];
    struct ksim_conn *c = calloc(1, sizeof *c);
    if (c == NULL) abort();
    c->open = true;
    c->linger_ms = SL_NEVER;
    sl_list_init(&c->requests);
    sl_session_begin(&c->s, ++n->last_id, 0);
    sl_list_append(&n->conns, &c->all);
    return c;
}

struct ksim_conn *ksim_conn_find(const struct ksim_world *w, uint32_t i, uint64_t dial)
{
    const struct sl_list *all = &w->nodes[i].conns;
    for (struct sl_list *x = all->next; x != all; x = x->next) {
        struct ksim_conn *c = sl_container_of(x, struct ksim_conn, all);
        if (c->open && !c->is_guest && c->dial == dial) return c;
    }
    return NULL;
}

struct ksim_conn *ksim_conn_of_session(const struct ksim_world *w, uint32_t i,
                                       uint64_t id)
{
    const struct sl_list *all = &w->nodes[i].conns;
    for (struct sl_list *x = all->next; x != all; x = x->next) {
        struct ksim_conn *c = sl_container_of(x, struct ksim_conn, all);
        if (c->open && c->s.id == id) return c;
    }
    return NULL;
}

bool ksim_conn_hung_up(const struct ksim_world *w, const struct ksim_conn *c)
{
    return !c->is_guest && w->clients[c->client].ways[c->way].dial != c->dial;
}

/* ---- requests ---- */

struct ksim_request *ksim_request_new(struct ksim_node *n, struct ksim_conn *c,
                                      const struct ksim_command *command,
                                      sl_ms arrived_ms, sl_ms came_ms)
{
    struct ksim_request *q = calloc(1, sizeof *q);
    if (q == NULL) abort();
    q->c = c;
    q->command = *command;
    q->arrived_ms = arrived_ms;
    q->came_ms = came_ms;
    sl_list_append(&c->requests, &q->of_conn);
    if (c->request == NULL) c->request = q;
    else {
        q->place = KSIM_UNREAD;
        n->unread_count++;
    }
    return q;
}

struct ksim_request *ksim_request_read(struct ksim_node *n)
{
    struct ksim_request *q = n->unread_count > 0 ? ksim_request_next(n, NULL) : NULL;
    while (q != NULL && (q->place != KSIM_UNREAD || q->c->request != NULL))
        q = ksim_request_next(n, q);
    if (q == NULL) return NULL;
    n->unread_count--;
    q->c->request = q;
    q->place = KSIM_NOWHERE;
    return q;
}

/* The request has ended. Its memory stays valid, because the caller may still use it. */
static void end(struct ksim_world *w, uint32_t i, struct ksim_request *q)
{
    if (q->over) abort();
    if (q->place == KSIM_UNREAD) w->nodes[i].unread_count--;
    q->over = true;
    q->place = KSIM_NOWHERE;
    if (q->c->request == q) q->c->request = NULL;
    w->nodes[i].over_count++;
}

struct ksim_request *ksim_conn_next(const struct ksim_conn *c,
                                    const struct ksim_request *q)
{
    struct sl_list *x = q == NULL ? c->requests.next : q->of_conn.next;
    for (; x != &c->requests; x = x->next) {
        struct ksim_request *next = sl_container_of(x, struct ksim_request, of_conn);
        if (!next->over) return next;
    }
    return NULL;
}

struct ksim_request *ksim_request_next(const struct ksim_node *n,
                                       const struct ksim_request *q)
{
    const struct sl_list *x = q == NULL ? &n->conns : &q->c->all;
    struct ksim_request *next = q == NULL ? NULL : ksim_conn_next(q->c, q);
    while (next == NULL && x->next != &n->conns) {
        x = x->next;
        next = ksim_conn_next(sl_container_of(x, const struct ksim_conn, all), NULL);
    }
    return next;
}

struct ksim_request *ksim_request_find(const struct ksim_conn *c, struct sl_bytes key,
                                       struct sl_bytes id)
{
    struct ksim_request *q = ksim_conn_next(c, NULL);
    while (q != NULL &&
           (q->command.notify == 0 || !sl_bytes_equal(ksim_key(q->command.key), key) ||
            !sl_bytes_equal(ksim_id_of(&q->command), id)))
        q = ksim_conn_next(c, q);
    return q;
}

void ksim_request_drop(struct ksim_world *w, uint32_t i, struct ksim_request *q)
{
    ksim_serve_withdraw(w, i, q);
    end(w, i, q);
}

static void free_requests(struct ksim_node *n, const struct ksim_conn *c, bool all)
{
    struct sl_list *next;
    for (struct sl_list *x = c->requests.next; x != &c->requests; x = next) {
        struct ksim_request *q = sl_container_of(x, struct ksim_request, of_conn);
        next = x->next;
        if (!all && !q->over) continue;
        if (q->over) n->over_count--;
        sl_list_remove(x);
        free(q);
    }
}

void ksim_request_sweep(struct ksim_node *n)
{
    for (struct sl_list *x = n->conns.next; x != &n->conns && n->over_count > 0;
         x = x->next)
        free_requests(n, sl_container_of(x, const struct ksim_conn, all), false);
}

/* ---- the end of a connection ---- */

void ksim_conn_free(struct ksim_node *n, struct ksim_conn *c)
{
    free_requests(n, c, true);
    sl_list_remove(&c->all);
    free(c);
}

void ksim_conn_close(struct ksim_world *w, uint32_t i, struct ksim_conn *c, bool cut)
{
    struct ksim_node *n = &w->nodes[i];
    struct sl_failover_message m;
    if (!c->open) return;
    c->open = false;
    struct ksim_request *q;
    while ((q = ksim_conn_next(c, NULL)) != NULL) ksim_request_drop(w, i, q);
    c->rest[0] = '\0';
    ksim_tx_leave(w, i, c);
    if (sl_route_leave(&n->f.route, &c->route, cut, &m))
        ksim_net_send(w, i, n->f.route.keeper, &m);
    ksim_rules_left(w, i, c);
    sl_ms linger = w->linger_ms;
    if (c->is_guest) {
        linger = sl_guest_linger_ms(&c->guest, linger);
        if (sl_guests_closed(&n->f.guests, &c->guest, &m))
            ksim_net_send(w, i, c->guest.node, &m);
    } else if (c->dial != 0) ksim_client_cut(w, c->client, c->way, c->dial);
    if (!cut || linger == 0 || !sl_session_holds(&c->s))
        sl_table_session_end(n->table, &c->s);
    else c->linger_ms = ksim_node_now(w, i).ms + linger + 1;
}

void ksim_conn_reset(struct ksim_world *w, uint32_t i, struct ksim_request *q)
{
    struct ksim_conn *old = q->c, *c = ksim_conn_new(w, i);
    c->client = old->client;
    c->way = old->way;
    c->dial = old->dial;
    old->dial = 0;
    ksim_conn_close(w, i, old, false);
    ksim_client_send(w, c, (struct sl_bytes){"+OK\r\n", 5}, false);
}

void ksim_conn_over(struct ksim_world *w, uint32_t i, struct ksim_conn *c)
{
    if (c->is_guest) sl_guests_over(&w->nodes[i].f.guests, &c->guest);
    ksim_conn_free(&w->nodes[i], c);
}

/* ---- replies ---- */

static void say(struct ksim_world *w, uint32_t i, const struct ksim_conn *c,
                struct sl_bytes bytes, uint32_t what)
{
    const struct sl_failover_message m = {.type = SL_FAILOVER_SAY,
                                          .session = c->guest.id,
                                          .what = what,
                                          .tx = c->tx_id,
                                          .bytes = bytes};
    ksim_net_send(w, i, c->guest.node, &m);
}

static void send_rest(struct ksim_world *w, uint32_t i, struct ksim_conn *c);

/* Send the reply to the command that keeps a connection busy. */
static void send_reply(struct ksim_world *w, uint32_t i, struct ksim_conn *c,
                       struct sl_bytes reply)
{
    c->request = NULL;
    if (!c->is_guest) {
        ksim_client_send(w, c, reply, false);
        return;
    }
    say(w, i, c, reply, SL_SAY_LAST);
}

/* Send the outcome of a request that was queued. */
static void send_outcome(struct ksim_world *w, uint32_t i, const struct ksim_request *q,
                         struct sl_bytes reply)
{
    struct ksim_conn *c = q->c;
    char text[256];
    const struct sl_failover_message m = {.type = SL_FAILOVER_OUTCOME,
                                          .session = c->guest.id,
                                          .key = ksim_key(q->command.key),
                                          .name = ksim_id_of(&q->command),
                                          .bytes = reply};
    send_rest(w, i, c); /* A push is never in the middle of a reply. */
    if (c->is_guest) {
        ksim_net_send(w, i, c->guest.node, &m);
        return;
    }
    int n = snprintf(text, sizeof text, ">OUTCOME %s %.*s", q->command.id, (int)reply.n,
                     reply.at);
    ksim_client_send(w, c, (struct sl_bytes){text, (size_t)n}, false);
}

void ksim_request_queue(struct ksim_world *w, uint32_t i, struct ksim_request *q)
{
    if (q->command.notify == 0 || q->queued) return;
    q->queued = true;
    send_reply(w, i, q->c, (struct sl_bytes){"+QUEUED\r\n", 9});
}

void ksim_request_wait(struct ksim_world *w, uint32_t i, struct ksim_request *q,
                       enum ksim_place place)
{
    q->place = place;
    ksim_request_queue(w, i, q);
}

void ksim_reply(struct ksim_world *w, uint32_t i, struct ksim_request *q,
                struct sl_bytes reply)
{
    end(w, i, q);
    if (q->queued) send_outcome(w, i, q, reply);
    else send_reply(w, i, q->c, reply);
}

void ksim_reply_text(struct ksim_world *w, uint32_t i, struct ksim_request *q,
                     const char *text)
{
    ksim_reply(w, i, q, (struct sl_bytes){text, strlen(text)});
}

void ksim_reply_status(struct ksim_world *w, uint32_t i, struct ksim_request *q,
                       int status)
{
    char text[64];
    if (status == SLUICE_EFULL) {
        ksim_reply_text(w, i, q, "$-1\r\n");
        return;
    }
    snprintf(text, sizeof text, "-%s %" PRIu64 "\r\n", sluice_status_word(status),
             w->nodes[i].f.guests.term);
    ksim_reply_text(w, i, q, text);
}

void ksim_reply_in_parts(struct ksim_world *w, uint32_t i, struct ksim_request *q)
{
    struct ksim_conn *c = q->c;
    char text[64];
    snprintf(c->rest, sizeof c->rest, ":%" PRIu64 "\r\n", q->command.number);
    snprintf(text, sizeof text, "*2\r\n:%" PRIu64 "\r\n", q->command.number);
    if (!c->is_guest) {
        strcat(text, c->rest);
        c->rest[0] = '\0';
        ksim_reply_text(w, i, q, text);
        return;
    }
    say(w, i, c, (struct sl_bytes){text, strlen(text)}, SL_SAY_MORE);
    c->rest_ms = ksim_node_now(w, i).ms + sl_random_below(&w->random, 100);
}

static void send_rest(struct ksim_world *w, uint32_t i, struct ksim_conn *c)
{
    char rest[sizeof c->rest];
    if (c->rest[0] == '\0') return;
    strcpy(rest, c->rest);
    c->rest[0] = '\0';
    ksim_reply_text(w, i, c->request, rest);
}

void ksim_reply_rests(struct ksim_world *w, uint32_t i)
{
    struct ksim_node *n = &w->nodes[i];
    for (struct sl_list *x = n->conns.next; x != &n->conns; x = x->next) {
        struct ksim_conn *c = sl_container_of(x, struct ksim_conn, all);
        if (c->rest_ms <= ksim_node_now(w, i).ms) send_rest(w, i, c);
    }
}

void ksim_push(struct ksim_world *w, uint32_t i, struct ksim_conn *c,
               struct sl_bytes bytes, bool more)
{
    send_rest(w, i, c); /* A push is never in the middle of a reply. */
    if (c->is_guest) say(w, i, c, bytes, 0);
    else ksim_client_send(w, c, bytes, more);
}
