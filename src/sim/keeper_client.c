/* keeper_client.c - clients of a keeper cluster. Each uses one lock at a time, through a connection
 * to one node, and sometimes extends or releases its lease through another node. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "sim/keeper.h"

int64_t ksim_client_clock(const struct ksim_world *w, uint32_t c)
{
    return sim_clock_us(&w->clients[c].clock, w->now_us);
}

bool ksim_client_is_busy(const struct ksim_client *c)
{
    return c->ways[0].busy || c->ways[1].busy || ksim_notify_waits(c);
}

/* Wake the client after this time; an earlier timer stays. */
void ksim_client_wake(struct ksim_world *w, uint32_t c, int64_t delay_us)
{
    ksim_schedule(w, delay_us,
                  (struct sim_event){.type = SIM_EVENT_CLIENT,
                                     .other = c,
                                     .number = ++w->clients[c].wake});
}

void ksim_client_init(struct ksim_world *w, uint32_t c)
{
    struct ksim_client *x = &w->clients[c];
    struct sl_random *r = &w->random;
    *x = (struct ksim_client){.clock = ksim_clock(w, 0)};
    x->runs_tx = ksim_has_fault(w, KSIM_FAULT_TX) && sl_random_maybe(r, 4000);
    if (ksim_has_fault(w, KSIM_FAULT_STEAL)) {
        x->priority = (int32_t)sl_random_below(r, 3);
        x->ignores = sl_random_maybe(r, 3000);
    }
    ksim_operator_init(w, c);
    x->notifies = ksim_has_fault(w, KSIM_FAULT_NOTIFY) && !x->runs_tx &&
                  !x->operator.is && sl_random_maybe(r, 7000);
    ksim_client_wake(w, c, sl_random_between(r, 0, 1000000));
}

int64_t ksim_client_think_us(struct ksim_world *w, const struct ksim_client *x)
{
    sl_ms most = w->think_ms;
    if (x->operator.is && !w->healed) most = ksim_takeover_hurries(w) ? 300 : 1500;
    return sl_random_between(&w->random, 0, 1000 * most);
}

/* ---- connections ---- */

static void send_event(struct ksim_world *w, uint32_t c, uint32_t way,
                       struct sim_event e)
{
    struct ksim_way *x = &w->clients[c].ways[way];
    int64_t at = w->now_us + ksim_net_delay(w);
    /* A node may notice late that a client has left. */
    if (e.type == SIM_EVENT_HANGUP && ksim_has_fault(w, KSIM_FAULT_HANGUP) &&
        sl_random_maybe(&w->random, 3000))
        at += sl_random_between(&w->random, 0, 2000000);
    if (at <= x->out_us) at = x->out_us + 1;
    x->out_us = at;
    e.node = x->node;
    e.other = c * 2 + way;
    e.number = x->dial;
    e.link = x->life;
    ksim_schedule(w, at - w->now_us, e);
}

/* The client does not use its connection any more: its grants without a lease end. */
static void forget_way(struct ksim_world *w, uint32_t c, uint32_t way)
{
    struct ksim_client *x = &w->clients[c];
    struct ksim_way *y = &x->ways[way];
    if (x->hold.is && x->hold.lease_ms == 0 && x->hold.dial == y->dial) {
        ksim_checker_doubt(&w->checker, x->hold.fence, true);
        x->hold.is = false;
    }
    if (x->runs_tx) ksim_tx_client_cut(w, c);
    if (x->operator.is) ksim_operator_cut(w, c);
    if (x->notifies) ksim_notify_cut(w, c, way);
    y->dial = 0;
    y->busy = false;
    y->part[0] = '\0';
}

void ksim_client_hang_up(struct ksim_world *w, uint32_t c, uint32_t way, bool cut)
{
    struct ksim_way *y = &w->clients[c].ways[way];
    if (y->dial == 0) return;
    KSIM_TRACE(w, "c%u closes its connection to n%u", c + 1, y->node + 1);
    send_event(w, c, way,
               (struct sim_event){.type = SIM_EVENT_HANGUP, .byte_count = cut});
    forget_way(w, c, way);
}

bool ksim_client_dial(struct ksim_world *w, uint32_t c, uint32_t way)
{
    struct ksim_way *y = &w->clients[c].ways[way];
    uint32_t node = sl_random_below(&w->random, w->node_count);
    if (y->dial != 0) return true;
    /* After the faults, some nodes may not be members, and do not run. */
    for (uint32_t k = 0; k < w->node_count && w->healed && !w->nodes[node].up; k++)
        node = (node + 1) % w->node_count;
    if (!w->nodes[node].up) return false;
    *y = (struct ksim_way){
        .dial = ++w->dials, .node = node, .life = w->nodes[node].life};
    return true;
}

static void close_hold(struct ksim_world *w, const struct ksim_hold *h, uint64_t dial)
{
    if (h->is && h->lease_ms == 0 && h->dial == dial)
        ksim_checker_closing(&w->checker, h->fence);
}

void ksim_client_closing(struct ksim_world *w, uint32_t c, uint64_t dial)
{
    struct ksim_client *x = &w->clients[c];
    for (uint32_t way = 0; way < 2; way++)
        if (x->ways[way].dial == dial) x->ways[way].closing = true;
    close_hold(w, &x->hold, dial);
    for (uint32_t k = 0; k < KSIM_WAITS; k++) close_hold(w, &x->waits[k].hold, dial);
}

void ksim_client_cut(struct ksim_world *w, uint32_t client, uint32_t way, uint64_t d)
{
    struct ksim_way *x = &w->clients[client].ways[way];
    if (x->dial != d) return;
    ksim_client_closing(w, client, d);
    int64_t at = w->now_us + ksim_net_delay(w);
    if (at <= x->in_us) at = x->in_us + 1;
    x->in_us = at;
    ksim_schedule(w, at - w->now_us,
                  (struct sim_event){.type = SIM_EVENT_CLOSED,
                                     .other = client * 2 + way,
                                     .number = d});
}

void ksim_client_closed(struct ksim_world *w, const struct sim_event *e)
{
    uint32_t c = e->other / 2, way = e->other % 2;
    if (w->clients[c].ways[way].dial != e->number) return;
    KSIM_TRACE(w, "c%u: its connection to n%u is closed", c + 1,
               w->clients[c].ways[way].node + 1);
    forget_way(w, c, way);
    ksim_client_wake(w, c, sl_random_between(&w->random, 0, 300000));
    ksim_repeats_doubt(w, c, 300000);
}

void ksim_client_send(struct ksim_world *w, const struct ksim_conn *c,
                      struct sl_bytes bytes, bool more)
{
    struct ksim_way *x = &w->clients[c->client].ways[c->way];
    if (bytes.n > 5 && memcmp(bytes.at, "*5", 2) == 0)
        ksim_audit_delivered(w, strtoull(bytes.at + 5, NULL, 10));
    if (x->dial != c->dial) return;
    struct sim_event e = {.type = SIM_EVENT_ANSWER,
                          .other = c->client * 2 + c->way,
                          .number = c->dial,
                          .link = more,
                          .byte_count = bytes.n};
    e.bytes = malloc(bytes.n + 1);
    if (e.bytes == NULL) abort();
    memcpy(e.bytes, bytes.at, bytes.n);
    e.bytes[bytes.n] = '\0';
    int64_t at = w->now_us + ksim_net_delay(w);
    if (at <= x->in_us) at = x->in_us + 1;
    x->in_us = at;
    ksim_schedule(w, at - w->now_us, e);
}

/* ---- at the node ---- */

void ksim_client_request(struct ksim_world *w, const struct sim_event *e)
{
    uint32_t client = e->other / 2, way = e->other % 2;
    if (!w->nodes[e->node].up || w->nodes[e->node].life != e->link) {
        ksim_client_cut(w, client, way, e->number);
        return;
    }
    struct ksim_conn *c = ksim_conn_find(w, e->node, e->number);
    struct ksim_command m;
    memcpy(&m, e->bytes, sizeof m);
    if (c == NULL) {
        /* The first request of a connection opens it. */
        if (m.first == 0) {
            ksim_client_cut(w, client, way, e->number);
            return;
        }
        c = ksim_conn_new(w, e->node);
        c->client = client;
        c->way = way;
        c->dial = e->number;
    }
    if (c->request != NULL) {
        KSIM_WRONG(w, "c%u sends two requests at once", client + 1);
        return;
    }
    w->arrived_us[m.number % KSIM_REQUESTS] = w->now_us;
    w->arrived_life[m.number % KSIM_REQUESTS] = w->nodes[e->node].life;
    sl_ms now_ms = ksim_node_now(w, e->node).ms;
    ksim_serve(w, e->node, ksim_request_new(&w->nodes[e->node], c, &m, now_ms, now_ms));
    ksim_node_settle(w, e->node);
}

void ksim_client_hung_up(struct ksim_world *w, const struct sim_event *e)
{
    if (!w->nodes[e->node].up || w->nodes[e->node].life != e->link) return;
    struct ksim_conn *c = ksim_conn_find(w, e->node, e->number);
    if (c == NULL) return;
    ksim_conn_close(w, e->node, c, e->byte_count != 0);
    ksim_node_settle(w, e->node);
}

/* ---- requests ---- */

void ksim_client_ask(struct ksim_world *w, uint32_t c, uint32_t way,
                     const struct ksim_command *command)
{
    struct ksim_way *y = &w->clients[c].ways[way];
    const struct ksim_checker *k = &w->checker;
    y->command = *command;
    y->command.number = ++w->requests;
    y->command.first = !y->used;
    y->used = true;
    y->busy = true;
    y->cancelled = false;
    y->sent_us = ksim_client_clock(w, c);
    y->give_up_us = w->now_us + 1000 * (command->wait_ms + w->keeper_wait_ms) +
                    sl_random_between(&w->random, 1000000, 10000000);
    if (command->verb == KSIM_BREAK) ksim_admin_asked(w, command);
    y->floor = k->highest[command->key];
    uint8_t *attempts = &w->attempts[strtoull(command->id, NULL, 16) % KSIM_REQUESTS];
    if (command->verb == KSIM_ACQUIRE && *attempts < 2) ++*attempts;
    if (command->verb == KSIM_ACQUIRE && command->id[0] != '\0')
        y->floor = w->clients[c].notifies
                       ? ksim_notify_find(&w->clients[c], command->id)->floor
                       : w->clients[c].repeat.floor;
    y->floor_alone = k->highest_alone[command->key];
    if (w->setup.trace) ksim_trace_command(w, c, y->node, &y->command);
    struct sim_event e = {.type = SIM_EVENT_REQUEST, .byte_count = sizeof y->command};
    e.bytes = malloc(sizeof y->command);
    if (e.bytes == NULL) abort();
    memcpy(e.bytes, &y->command, sizeof y->command);
    send_event(w, c, way, e);
}

static sl_ms draw_lease(struct ksim_world *w)
{
    return sl_random_between(&w->random, w->lease_min_ms, w->lease_max_ms);
}

struct ksim_command ksim_client_draw(struct ksim_world *w, uint32_t c)
{
    const struct ksim_client *x = &w->clients[c];
    struct sl_random *r = &w->random;
    struct ksim_command m = {.verb = KSIM_ACQUIRE,
                             .key = sl_random_below(r, w->key_count),
                             .lease_ms = draw_lease(w),
                             .per = 1,
                             .units = 1,
                             .priority = x->priority,
                             .force_ms = SL_NEVER};
    if (x->role == KSIM_ROLE_TRIES) {
        m.key = x->key;
        m.wait_ms = 60000;
    } else {
        if (ksim_has_fault(w, KSIM_FAULT_LOOSE) && sl_random_maybe(r, 3000))
            m.lease_ms = 0;
        if (sl_random_maybe(r, 6000))
            m.wait_ms = sl_random_between(r, 1, w->wait_max_ms);
        m.steal = m.wait_ms > 0 && x->priority > 0 && sl_random_maybe(r, 5000);
        if (m.steal && ksim_has_fault(w, KSIM_FAULT_FORCE) && sl_random_maybe(r, 5000))
            m.force_ms = sl_random_between(r, 0, w->wait_max_ms);
    }
    /* Some clients hold two units, or two shared locks, of one key. */
    if (x->extra.is && ksim_kind_of(x->extra.key) != KSIM_MUTEX &&
        x->role == KSIM_ROLE_USER && sl_random_maybe(r, 5000))
        m.key = x->extra.key;
    if (ksim_kind_of(m.key) == KSIM_COUNTS) {
        m.per = KSIM_CAPACITY;
        m.units = 1 + sl_random_below(r, 2);
    }
    if (ksim_kind_of(m.key) == KSIM_SHARES) m.shared = sl_random_maybe(r, 7000);
    return m;
}

static void acquire(struct ksim_world *w, uint32_t c)
{
    struct ksim_command m = ksim_client_draw(w, c);
    if (w->clients[c].role == KSIM_ROLE_USER) ksim_repeats_begin(w, c, &m);
    ksim_client_ask(w, c, 0, &m);
}

static void extend(struct ksim_world *w, uint32_t c, uint32_t way,
                   const struct ksim_hold *h)
{
    const struct ksim_command m = {.verb = KSIM_EXTEND,
                                   .key = h->key,
                                   .fence = h->fence,
                                   .lease_ms = draw_lease(w)};
    ksim_client_ask(w, c, way, &m);
}

static void keep_old(struct ksim_world *w, uint32_t c, const struct ksim_hold *h)
{
    if (h->lease_ms == 0) return;
    w->clients[c].old[sl_random_below(&w->random, KSIM_OLD)] = *h;
}

static void reset(struct ksim_world *w, uint32_t c)
{
    ksim_client_ask(w, c, 0, &(struct ksim_command){.verb = KSIM_RESET});
}

/* The client stops using its lock, and sends RELEASE or RESET, or lets the lease expire. */
static void release(struct ksim_world *w, uint32_t c, uint32_t way, struct ksim_hold *h)
{
    const struct ksim_client *x = &w->clients[c];
    struct ksim_command m = {.verb = KSIM_RELEASE, .key = h->key, .fence = h->fence};
    if (h->moves || (h->id[0] != '\0' && sl_random_maybe(&w->random, 2000))) {
        m.verb = KSIM_CANCEL;
        strcpy(m.id, h->id);
    }
    bool expires = h->lease_ms > 0 && x->role == KSIM_ROLE_USER &&
                   sl_random_maybe(&w->random, 1000);
    /* A known gap: if the keeper fails, or is cut off from a node, before it has reported the
     * release, that node may hand over the released lease although the keeper has granted the lock
     * to another client. Both grants are in the table of the next keeper, and both can be extended. */
    if (expires || ksim_has_fault(w, KSIM_FAULT_REUSE)) keep_old(w, c, h);
    struct ksim_grant *g = ksim_checker_find(&w->checker, h->fence);
    if (g != NULL && !expires) g->given_up = true;
    ksim_checker_doubt(&w->checker, h->fence, !expires);
    h->is = false;
    bool resets = h->lease_ms == 0 && way == 0 && !x->notifies &&
                  sl_random_maybe(&w->random, 2000);
    if (resets) reset(w, c);
    else if (!expires) ksim_client_ask(w, c, way, &m);
}

#define LONG_US \
    30000000ll /* Clients extend and release long leases earlier than necessary. */

/* Return after which time a client extends its lease. Some are late. */
static int64_t extend_after(struct ksim_world *w, sl_ms lease_ms)
{
    int64_t most_us = (w->breaks ? 300 : 1100) * lease_ms;
    return sl_random_between(&w->random, 0, most_us < LONG_US ? most_us : LONG_US);
}

static void plan(struct ksim_world *w, uint32_t c, struct ksim_hold *h)
{
    struct sl_random *r = &w->random;
    int64_t now_us = ksim_client_clock(w, c);
    int64_t lease_us = h->lease_ms * 1000;
    h->extend_us = lease_us == 0 ? INT64_MAX : now_us + extend_after(w, h->lease_ms);
    int64_t most_us = sl_random_maybe(r, 3000) ? 8000000 : 1000 * w->lease_max_ms;
    if (most_us > LONG_US || w->breaks) most_us = LONG_US;
    if (lease_us == 0 && sl_random_maybe(r, 3000)) most_us = 30000000;
    h->release_us = now_us + sl_random_between(r, 0, most_us);
    if (w->healed) h->release_us = now_us; /* Nobody uses locks any more. */
}

/* Let the client hold its lease, and acquire another lock meanwhile. */
static void set_aside(struct ksim_world *w, uint32_t c)
{
    struct ksim_client *x = &w->clients[c];
    if (!ksim_has_fault(w, KSIM_FAULT_SEVERAL) || x->extra.is || !x->hold.is ||
        x->hold.lease_ms == 0 || !sl_random_maybe(&w->random, 7000))
        return;
    x->extra = x->hold;
    x->hold.is = false;
}

/* ---- answers ---- */

/* Return when a client stops acting as holder, as docs/leases.md defines it. */
static int64_t deadline(int64_t sent_us, sl_ms ms)
{
    return sent_us + ms * 998;
}

bool ksim_client_read(struct ksim_world *w, uint32_t c, uint32_t way,
                      const struct ksim_command *m, int64_t sent_us, const char *text,
                      struct ksim_grant *g)
{
    const struct ksim_client *x = &w->clients[c];
    const struct ksim_way *y = &x->ways[way];
    uint64_t fence, number, term;
    int64_t lease_ms, waited_ms;
    int count, overlaps, replay;
    if (sscanf(text,
               "*%d\r\n:%" SCNu64 "\r\n:%" SCNd64 "\r\n:%" SCNd64 "\r\n:%d\r\n:%" SCNu64
               "\r\n:%d\r\n %" SCNu64,
               &count, &fence, &lease_ms, &waited_ms, &overlaps, &number, &replay,
               &term) != 8 ||
        number != m->number || m->verb != KSIM_ACQUIRE) {
        KSIM_WRONG(w, "c%u receives a grant for another request", c + 1);
        return false;
    }
    if (replay != 0 ? m->id[0] == '\0' || (lease_ms > 0) != (m->lease_ms > 0)
                    : lease_ms != m->lease_ms)
        KSIM_WRONG(w, "c%u receives a lease of another length", c + 1);
    *g = (struct ksim_grant){.key = m->key,
                             .client = c,
                             .fence = fence,
                             .id = strtoull(m->id, NULL, 16),
                             .units = m->units,
                             .shared = m->shared != 0,
                             .leased = lease_ms > 0,
                             .overlapping = overlaps != 0,
                             .held = true,
                             .closing = y->closing ||
                                        ksim_conn_find(w, y->node, y->dial) == NULL,
                             .received_us = w->now_us,
                             .clock = &x->clock,
                             .until_us = deadline(sent_us, waited_ms + lease_ms),
                             .lease_ms = lease_ms,
                             .term = term,
                             .node = y->node,
                             .life = y->life,
                             .at_keeper = w->nodes[y->node].f.route.leads,
                             .elsewhere = w->nodes[y->node].f.route.leads};
    return true;
}

void ksim_client_hold(struct ksim_world *w, uint32_t c, uint32_t way,
                      struct ksim_hold *h, const struct ksim_grant *g,
                      const struct ksim_command *m, sl_fence floor)
{
    w->counts.grants++;
    *h = (struct ksim_hold){.is = true,
                            .key = g->key,
                            .fence = g->fence,
                            .lease_ms = g->lease_ms,
                            .dial = w->clients[c].ways[way].dial,
                            .until_us = g->until_us,
                            .asked = *m};
    strcpy(h->id, m->id);
    ksim_checker_granted(&w->checker, g, floor, w->now_us);
    plan(w, c, h);
}

static void granted(struct ksim_world *w, uint32_t c, uint32_t way, const char *text)
{
    struct ksim_client *x = &w->clients[c];
    const struct ksim_way *y = &x->ways[way];
    const struct ksim_command *m = &y->command;
    struct ksim_grant g;
    if (!ksim_client_read(w, c, way, m, y->sent_us, text, &g)) return;
    if (m->id[0] != '\0' && !ksim_repeats_granted(w, c, way, &g)) return;
    if (m->steal) w->counts.steals++;
    const struct ksim_command asked = *m;
    ksim_client_hold(w, c, way, &x->hold, &g, &asked, y->floor);
    if (x->role == KSIM_ROLE_TRIES) x->role = KSIM_ROLE_DONE;
    set_aside(w, c);
}

/* Return the grant with this fence that the client uses, or NULL. */
static struct ksim_hold *hold_of(struct ksim_client *x, sl_fence fence)
{
    return x->hold.is && x->hold.fence == fence ? &x->hold : ksim_notify_hold(x, fence);
}

static void extended(struct ksim_world *w, uint32_t c, uint32_t way, const char *text)
{
    struct ksim_client *x = &w->clients[c];
    const struct ksim_way *y = &x->ways[way];
    int64_t left_ms;
    uint64_t term;
    if (sscanf(text, ":%" SCNd64 "\r\n %" SCNu64, &left_ms, &term) != 2) {
        KSIM_WRONG(w, "c%u receives no extension, but %s", c + 1, text);
        return;
    }
    w->counts.extends++;
    struct ksim_hold *h = hold_of(x, y->command.fence);
    const struct ksim_grant g = {.fence = y->command.fence,
                                 .until_us = deadline(y->sent_us, left_ms),
                                 .lease_ms = y->command.lease_ms,
                                 .term = term,
                                 .node = y->node,
                                 .life = y->life,
                                 .at_keeper = w->nodes[y->node].f.route.leads,
                                 .elsewhere = w->nodes[y->node].f.route.leads};
    ksim_checker_extended(&w->checker, &g, h != NULL, y->floor_alone, w->now_us);
    if (h == NULL) return;
    if (g.until_us > h->until_us) h->until_us = g.until_us;
    h->lease_ms = g.lease_ms;
    h->extend_us = ksim_client_clock(w, c) + extend_after(w, g.lease_ms);
}

#define RETRY_US 300000

/* An error: NOKEEPER, RECOVERING, LOST or another one. */
static void failed(struct ksim_world *w, uint32_t c, uint32_t way, const char *text)
{
    struct ksim_client *x = &w->clients[c];
    const struct ksim_command *m = &x->ways[way].command;
    struct ksim_hold *h = m->verb == KSIM_EXTEND ? hold_of(x, m->fence) : NULL;
    uint64_t term;
    if (h != NULL)
        h->extend_us = ksim_client_clock(w, c) +
                       sl_random_between(&w->random, 0, RETRY_US);
    if (m->verb == KSIM_ACQUIRE && m->id[0] != '\0') ksim_repeats_failed(w, c, m, text);
    /* A lock without a lease ends with its connection. */
    if (m->verb == KSIM_RELEASE && m->wrong == 0) ksim_client_hang_up(w, c, way, false);
    if (m->verb == KSIM_ACQUIRE && sscanf(text, "-DRAINED %" SCNu64, &term) == 1)
        ksim_admin_refused(w, m, term);
    if (m->verb != KSIM_EXTEND || sscanf(text, "-LOST %" SCNu64, &term) != 1) return;
    ksim_checker_lost(&w->checker, m->fence, term, w->now_us);
    if (h == NULL) return;
    if (ksim_has_fault(w, KSIM_FAULT_OPERATE))
        keep_old(w, c, h); /* It may be broken. */
    ksim_checker_doubt(&w->checker, m->fence, false);
    h->is = false;
}

static void pushed(struct ksim_world *w, uint32_t c, uint32_t way, const char *text)
{
    struct ksim_client *x = &w->clients[c];
    if (strncmp(text, ">OUTCOME ", 9) == 0) {
        ksim_notify_outcome(w, c, way, text + 9);
        return;
    }
    bool stolen = strncmp(text, ">STOLEN", 7) == 0;
    uint64_t fence = strtoull(strchr(text, ' '), NULL, 10);
    if (stolen) ksim_checker_doubt(&w->checker, fence, true);
    if (stolen && x->extra.fence == fence) x->extra.is = false;
    struct ksim_hold *h = hold_of(x, fence);
    if (h == NULL) return;
    if (stolen) {
        bool loose = h->lease_ms == 0;
        h->is = false;
        if (loose)
            ksim_client_hang_up(w, c, way, false); /* It ends with the connection. */
    } else if (!x->ignores)
        h->release_us = ksim_client_clock(w, c) +
                        sl_random_between(&w->random, 0, 200000);
}

static void handle_reply(struct ksim_world *w, uint32_t c, uint32_t way,
                         const char *text)
{
    struct ksim_way *y = &w->clients[c].ways[way];
    if (w->clients[c].runs_tx) {
        ksim_tx_client_answered(w, c, text);
        return;
    }
    if (w->clients[c].operator.is) {
        ksim_operator_answered(w, c, text);
        return;
    }
    if (y->command.verb == KSIM_RESET) {
        if (strcmp(text, "+OK\r\n") != 0)
            KSIM_WRONG(w, "c%u receives the reply to another request", c + 1);
        if (w->clients[c].notifies) ksim_notify_cut(w, c, way);
        return;
    }
    if (w->clients[c].notifies && y->command.verb == KSIM_ACQUIRE) {
        ksim_notify_answered(w, c, way, text);
        return;
    }
    if (w->clients[c].notifies && y->command.verb == KSIM_CANCEL) {
        ksim_notify_cancelled(w, c, way, text);
        return;
    }
    if (y->command.verb == KSIM_CANCEL) {
        ksim_repeats_cancelled(w, c, way, text);
        return;
    }
    if (text[0] == '$') ksim_repeats_failed(w, c, &y->command, text);
    if (y->command.verb == KSIM_READ && text[0] != '-') {
        char expected[96];
        snprintf(expected, sizeof expected, "*2\r\n:%" PRIu64 "\r\n:%" PRIu64 "\r\n",
                 y->command.number, y->command.number);
        if (strcmp(text, expected) != 0)
            KSIM_WRONG(w, "c%u receives another reply than that to its READ", c + 1);
    } else if (text[0] == '*') granted(w, c, way, text);
    else if (text[0] == '-') failed(w, c, way, text);
    else if (text[0] == ':' && y->command.verb == KSIM_EXTEND)
        extended(w, c, way, text);
    else if (text[0] == '$' ? y->command.verb != KSIM_ACQUIRE
                            : y->command.verb != KSIM_RELEASE)
        KSIM_WRONG(w, "c%u receives the reply to another request", c + 1);
    else if (strcmp(text, ":1\r\n") == 0 && y->command.wrong != 0)
        KSIM_WRONG(w, "c%u releases a lock with another key, or of another client",
                   c + 1);
    else if (strcmp(text, ":1\r\n") == 0)
        ksim_checker_released(&w->checker, y->command.fence, y->node, y->life);
}

void ksim_client_received(struct ksim_world *w, const struct sim_event *e)
{
    uint32_t c = e->other / 2, way = e->other % 2;
    struct ksim_client *x = &w->clients[c];
    struct ksim_way *y = &x->ways[way];
    char whole[sizeof y->part + 160];
    if (y->dial != e->number) return;
    if (e->bytes[0] == '>') {
        pushed(w, c, way, e->bytes);
        ksim_client_act(w, c);
        return;
    }
    if (e->link != 0) { /* A part of a reply. */
        snprintf(y->part, sizeof y->part, "%s", e->bytes);
        return;
    }
    if (!y->busy) {
        KSIM_WRONG(w, "c%u receives a reply without a request", c + 1);
        return;
    }
    snprintf(whole, sizeof whole, "%s%s", y->part, e->bytes);
    y->part[0] = '\0';
    KSIM_TRACE(w, "c%u hears from n%u: %.*s", c + 1, y->node + 1,
               (int)strcspn(whole, "\n"), whole);
    y->busy = false;
    handle_reply(w, c, way, whole);
    x->next_us = ksim_client_clock(w, c) + ksim_client_think_us(w, x);
    ksim_client_act(w, c);
}

/* ---- what a client does next ---- */

static void check_patience(struct ksim_world *w, uint32_t c)
{
    struct ksim_client *x = &w->clients[c];
    for (uint32_t way = 0; way < 2; way++) {
        struct ksim_way *y = &x->ways[way];
        if (!y->busy) continue;
        bool leaves = ksim_has_fault(w, KSIM_FAULT_HANGUP) &&
                      sl_random_maybe(&w->random, 500);
        /* After the faults, every request must be answered. */
        if (w->now_us > y->give_up_us && w->healed)
            ksim_heal_unanswered(w, c, &y->command);
        else if (w->now_us > y->give_up_us || leaves)
            ksim_client_hang_up(w, c, way, sl_random_maybe(&w->random, 5000));
    }
}

void ksim_client_use(struct ksim_world *w, uint32_t c, struct ksim_hold *h)
{
    struct ksim_client *x = &w->clients[c];
    int64_t now_us = ksim_client_clock(w, c);
    if (h->lease_ms > 0 && now_us >= h->until_us) {
        keep_old(w, c, h);
        ksim_checker_doubt(&w->checker, h->fence, false);
        h->is = false;
        return;
    }
    bool loose = h->lease_ms == 0;
    uint32_t way = !loose && ksim_has_fault(w, KSIM_FAULT_SIDE) &&
                           sl_random_maybe(&w->random, 5000)
                       ? 1
                       : 0;
    if (x->notifies && loose && !h->moves) way = x->ways[0].dial == h->dial ? 0 : 1;
    else if (x->notifies && x->ways[way].busy) way = 1 - way;
    if (x->ways[way].busy || (now_us < h->release_us && now_us < h->extend_us)) return;
    if (!ksim_client_dial(w, c, way)) return;
    if (now_us >= h->release_us || x->role != KSIM_ROLE_USER) release(w, c, way, h);
    else extend(w, c, way, h);
}

/* The lease that was set aside expires; or the client uses it again. */
static void use_extra(struct ksim_world *w, uint32_t c)
{
    struct ksim_client *x = &w->clients[c];
    if (!x->extra.is) return;
    if (ksim_client_clock(w, c) >= x->extra.until_us) {
        ksim_checker_doubt(&w->checker, x->extra.fence, false);
        x->extra.is = false;
    } else if (!x->hold.is && !ksim_client_is_busy(x) &&
               (x->role != KSIM_ROLE_USER || sl_random_maybe(&w->random, 3000))) {
        x->hold = x->extra;
        x->extra.is = false;
    }
}

static void try_old(struct ksim_world *w, uint32_t c)
{
    struct ksim_client *x = &w->clients[c];
    const struct ksim_hold *h = &x->old[sl_random_below(&w->random, KSIM_OLD)];
    if (h->fence == 0 || x->ways[1].busy || !ksim_client_dial(w, c, 1)) return;
    extend(w, c, 1, h);
}

/* The client sends a RELEASE that the keeper must reject: with another key, or of the lock of another
 * client, without a lease. */
static void release_wrong(struct ksim_world *w, uint32_t c)
{
    const struct ksim_checker *k = &w->checker;
    uint32_t count = k->count < 8 ? k->count : 8;
    struct ksim_command m = {.verb = KSIM_RELEASE};
    if (count == 0) return;
    const struct ksim_grant *g =
        &k->grants[k->count - 1 - sl_random_below(&w->random, count)];
    m.fence = g->fence;
    m.key = g->leased || g->client == c ? (g->key + 1) % KSIM_KEYS : g->key;
    m.wrong = 1;
    ksim_client_ask(w, c, 0, &m);
}

static void make_request(struct ksim_world *w, uint32_t c)
{
    struct ksim_client *x = &w->clients[c];
    struct sl_random *r = &w->random;
    bool user = x->role == KSIM_ROLE_USER;
    if (x->ways[0].dial != 0 && ksim_has_fault(w, KSIM_FAULT_MOVE) &&
        sl_random_maybe(r, 1000))
        ksim_client_hang_up(w, c, 0, sl_random_maybe(r, 5000));
    if (x->ways[1].dial != 0 && !x->ways[1].busy && sl_random_maybe(r, 2000))
        ksim_client_hang_up(w, c, 1, false);
    bool stale = ksim_has_fault(w, KSIM_FAULT_STALE) ||
                 ksim_has_fault(w, KSIM_FAULT_OPERATE);
    if (user && stale && sl_random_maybe(r, 1000)) try_old(w, c);
    if (x->operator.is) {
        if (ksim_client_dial(w, c, 0)) ksim_operator_act(w, c);
    } else if ((user || x->role == KSIM_ROLE_TRIES) && ksim_client_dial(w, c, 0)) {
        if (x->runs_tx) ksim_tx_client_act(w, c);
        else if (user && sl_random_maybe(r, 200)) release_wrong(w, c);
        else if (user && sl_random_maybe(r, 100)) reset(w, c);
        else if (user && sl_random_maybe(r, 500))
            ksim_client_ask(w, c, 0, &(struct ksim_command){.verb = KSIM_READ});
        else if (x->repeat.command.verb != 0) ksim_repeats_act(w, c);
        else acquire(w, c);
    }
    x->next_us = ksim_client_clock(w, c) + ksim_client_think_us(w, x);
}

/* Return when the client has something to do next. */
static int64_t sleep_us(struct ksim_world *w, uint32_t c)
{
    const struct ksim_client *x = &w->clients[c];
    bool busy = ksim_client_is_busy(x);
    int64_t now_us = ksim_client_clock(w, c), due_us = now_us + 2000000;
    if (busy && ksim_has_fault(w, KSIM_FAULT_HANGUP))
        due_us = now_us + sl_random_between(&w->random, 0, 500000);
    if (x->hold.is) {
        if (x->hold.release_us < due_us) due_us = x->hold.release_us;
        if (x->hold.extend_us < due_us) due_us = x->hold.extend_us;
        if (x->hold.lease_ms > 0 && x->hold.until_us < due_us)
            due_us = x->hold.until_us;
    } else if (x->notifies) due_us = ksim_notify_due_us(x, due_us);
    else if (!busy && x->next_us < due_us) due_us = x->next_us;
    /* A client that cannot send now tries again soon. */
    int64_t soon_us = sl_random_between(&w->random, 1000, 50000);
    return due_us > now_us ? due_us - now_us + 1 : soon_us;
}

/* What a client does that uses one lock at a time. */
static void act_alone(struct ksim_world *w, uint32_t c)
{
    struct ksim_client *x = &w->clients[c];
    ksim_repeats_hurry(w, c);
    use_extra(w, c);
    int64_t now_us = ksim_client_clock(w, c);
    if (x->hold.is && ksim_repeats_again(w, c)) return;
    if (x->hold.is) ksim_client_use(w, c, &x->hold);
    else if (!x->ways[0].busy && now_us >= x->next_us) make_request(w, c);
}

void ksim_client_act(struct ksim_world *w, uint32_t c)
{
    struct ksim_client *x = &w->clients[c];
    if (w->now_us < x->paused_us) {
        ksim_client_wake(w, c, x->paused_us - w->now_us);
        return;
    }
    check_patience(w, c);
    /* A transaction holds its locks until it ends. */
    if (x->runs_tx && x->role == KSIM_ROLE_QUIET && !x->ways[0].busy)
        ksim_client_hang_up(w, c, 0, false);
    if (x->notifies) ksim_notify_act(w, c);
    else act_alone(w, c);
    ksim_client_wake(w, c, sleep_us(w, c));
}
