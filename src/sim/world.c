#include "sim/world.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LINKS_US 30000 /* How often links are updated. */

void sim_schedule(struct sim_world *w, int64_t delay_us, struct sim_event e)
{
    e.at_us = w->now_us + delay_us;
    sim_queue_put(&w->queue, &e);
}

/* ---- orders of a node ---- */

static void mix(struct sim_world *w, uint64_t x)
{
    w->hash = (w->hash ^ x) * 0x9FB21C651E98DF25ull;
    w->hash ^= w->hash >> 29;
}

static void do_write(struct sim_world *w, uint32_t m, const struct sl_node_durable *d)
{
    struct sim_machine *x = &w->machines[m];
    struct sl_random *r = &w->random;
    if (x->writing)
        sim_checker_wrong(&w->checker, "n%u writes two things at once", m + 1);
    if (d->fence_limit < x->disk.fence_limit)
        sim_checker_wrong(&w->checker, "n%u writes a lower limit of fences", m + 1);
    x->writing = true;
    x->ahead = *d;
    int64_t takes_us = sl_random_between(r, 100, 10000);
    if (w->now_us < x->slow_us) takes_us += sl_random_between(r, 0, 1000000);
    if (w->setup.trace) sim_trace_write(w, m, d);
    mix(w, d->fence_limit ^ (uint64_t)d->lease_longest_ms ^ d->force.version << 32);
    sim_schedule(
        w, takes_us,
        (struct sim_event){.type = SIM_EVENT_WRITTEN, .node = m, .number = x->life});
    /* A crash before the write has ended exposes nodes that rely on it too early. */
    if (sim_has_fault(w, SIM_FAULT_CRASH) && sl_random_maybe(r, 500))
        sim_schedule(w, sl_random_between(r, 0, takes_us),
                     (struct sim_event){.type = SIM_EVENT_CRASH, .node = m});
}

/* Everything that a node has recorded must be written before it shows anything. */
static void check_written(struct sim_world *w, uint32_t m,
                          const struct sl_node_order *o)
{
    struct sl_bytes records;
    uint64_t position;
    bool shows = o->type == SL_NODE_ORDER_SEND || o->type == SL_NODE_ORDER_ANSWER ||
                 o->type == SL_NODE_ORDER_EVENT;
    if (shows && sl_journal_take(w->machines[m].journal.journal, &records, &position))
        sim_checker_wrong(&w->checker, "n%u shows something before it is written",
                          m + 1);
}

/* Write the journal, or let the write fail. A server writes the journal after the last order of a
 * loop iteration and before it sends anything. If the write fails, the server closes all
 * connections that have output. */
static void do_record(struct sim_world *w, uint32_t m)
{
    struct sim_machine *x = &w->machines[m];
    if (!sl_journal_failed(x->journal.journal) && w->now_us < x->failing_us &&
        sl_random_maybe(&w->random, 5000))
        x->write_fails = true;
    if (!x->write_fails) sim_disk_write(&x->journal, sim_machine_now(w, m));
    mix(w, x->journal.bytes);
}

/* Returns whether an order is lost because the write before it fails. */
static bool is_lost(struct sim_world *w, uint32_t m, const struct sl_node_order *o)
{
    struct sim_machine *x = &w->machines[m];
    if (!x->write_fails) return false;
    if (o->type == SL_NODE_ORDER_SEND) x->cut_links |= 1u << (o->to - 1);
    else if (o->type == SL_NODE_ORDER_ANSWER) return sim_client_cut(w, o->ticket);
    else return o->type == SL_NODE_ORDER_EVENT;
    return true;
}

/* The orders have been carried out; now the write fails. */
static void fail_write(struct sim_world *w, uint32_t m)
{
    struct sim_machine *x = &w->machines[m];
    uint32_t links = x->cut_links;
    SIM_TRACE(w, "n%u cannot write its journal", m + 1);
    w->counts.failed_writes++;
    x->write_fails = false;
    x->cut_links = 0;
    sim_disk_write_fails(&x->journal, sim_machine_now(w, m), &w->random);
    sim_net_cut(w, m, links);
}

static void do_order(struct sim_world *w, uint32_t m, const struct sl_node_order *o)
{
    if (is_lost(w, m, o)) return;
    if (!w->machines[m].write_fails) {
        check_written(w, m, o);
        sim_audit_order(w, m, o);
    }
    mix(w, (uint64_t)w->now_us << 8 ^ (uint64_t)o->type << 4 ^ m);
    switch (o->type) {
        case SL_NODE_ORDER_SEND:
            mix(w, o->message->fence ^ (uint64_t)o->message->type << 56 ^
                       (uint64_t)o->message->verdict << 48 ^ o->to);
            sim_net_send(w, m, o->to, o->message);
            break;
        case SL_NODE_ORDER_ANSWER:
            mix(w, o->ticket << 16 ^ (uint64_t)o->answer->status);
            sim_client_answer(w, m, o->ticket, o->answer);
            break;
        case SL_NODE_ORDER_EVENT:
            mix(w, o->event->fence << 4 ^ (uint64_t)o->event->type);
            sim_client_event(w, m, o->event);
            break;
        case SL_NODE_ORDER_WRITE: do_write(w, m, o->durable); break;
        case SL_NODE_ORDER_RECORD: do_record(w, m); break;
        case SL_NODE_ORDER_LINKS: sim_machine_update_peers(w, m); break;
        case SL_NODE_ORDER_LOG: SIM_TRACE(w, "n%u says: %s", m + 1, o->text); break;
    }
}

/* Schedule the next tick. Real timers are a little late. */
static void set_alarm(struct sim_world *w, uint32_t m)
{
    struct sim_machine *x = &w->machines[m];
    sl_ms due = sl_node_due(x->node), sync_ms = sl_journal_sync_due(x->journal.journal);
    if (sync_ms < due) due = sync_ms;
    if (due == SL_NEVER || due >= x->due_ms) return;
    int64_t at = sim_clock_when(&x->clock, due * 1000);
    if (at < w->now_us + 20) at = w->now_us + 20;
    at += sl_random_below(&w->random, w->slack_us);
    if (at >= x->tick_us) return;
    x->due_ms = due;
    x->tick_us = at;
    sim_schedule(
        w, at - w->now_us,
        (struct sim_event){.type = SIM_EVENT_TICK, .node = m, .number = x->life});
}

/* Call all functions that inspect a node. They must not crash, and must not change the
 * node's behaviour. */
static void inspect(struct sim_world *w, uint32_t m)
{
    struct sl_node *n = w->machines[m].node;
    struct sl_now now = sim_machine_now(w, m);
    struct sl_lease_view views[SIM_KEYS];
    struct sl_waiter_view waiter;
    struct sl_node_stats stats;
    struct sl_peer_view peer;
    uint64_t cursor = 0;
    size_t n_views = sl_node_scan(n, now, &cursor, views, SIM_KEYS);
    for (size_t i = 0; i < n_views; i++) mix(w, views[i].copy.fence);
    for (uint32_t k = 0; k < w->key_count; k++) {
        if (sl_node_waiter(n, now, sim_key_bytes(k), 0, &waiter))
            mix(w, waiter.session);
    }
    sl_node_stats(n, now, &stats);
    sl_node_peer(n, sim_node_id((m + 1) % SIM_NODES), &peer);
    mix(w, stats.requests ^ (uint64_t)peer.rtt_ms);
}

/* Begin a sync of the journal if one is due. After a failure, replace the file later. */
static void sync_journal(struct sim_world *w, uint32_t m)
{
    struct sim_machine *x = &w->machines[m];
    struct sl_random *r = &w->random;
    struct sl_journal *j = x->journal.journal;
    if (sl_journal_failed(j) && !x->mends && !x->journal.is_syncing) {
        x->mends = true;
        sim_schedule(
            w, 1000000,
            (struct sim_event){.type = SIM_EVENT_MEND, .node = m, .number = x->life});
    }
    bool commits = x->journal.next != NULL && x->journal.is_copied &&
                   !sl_journal_failed(j) && !x->journal.is_syncing;
    if (sl_journal_sync_due(j) > sim_machine_now(w, m).ms && !commits) return;
    sim_disk_sync_begin(&x->journal);
    /* After the faults, requests must be decided within a few answer times. */
    int64_t takes_us = sl_random_between(r, 100,
                                         w->heal == SIM_HEAL_NOT ? 10000 : 1000);
    if (w->now_us < x->slow_us) takes_us += sl_random_between(r, 0, 1000000);
    sim_schedule(
        w, takes_us,
        (struct sim_event){.type = SIM_EVENT_SYNCED, .node = m, .number = x->life});
    /* A crash before the sync has ended exposes nodes that rely on it too early. */
    if (sim_has_fault(w, SIM_FAULT_CRASH) && sl_random_maybe(r, 200))
        sim_schedule(w, sl_random_between(r, 0, takes_us),
                     (struct sim_event){.type = SIM_EVENT_CRASH, .node = m});
}

/* In some seeds, nodes replace their journals all the time. */
static void copy_journal(struct sim_world *w, uint32_t m)
{
    struct sim_machine *x = &w->machines[m];
    struct sl_now now = sim_machine_now(w, m);
    if (!w->replaces || sl_journal_failed(x->journal.journal)) return;
    if (x->journal.next == NULL) {
        if (!x->journal.is_syncing && sl_random_maybe(&w->copies, 500))
            sim_disk_replace(&x->journal, now);
    } else if (!x->journal.is_copied && sl_random_maybe(&w->copies, 3000))
        sim_disk_copy_some(&x->journal, now, x->node);
}

#define ORDERS_MAX 100000
#define INSPECT_EVERY 64 /* Not at every event, because inspecting is slow. */

void sim_machine_settle(struct sim_world *w, uint32_t m)
{
    struct sim_machine *x = &w->machines[m];
    struct sl_node_order o;
    uint32_t orders = 0;
    if (++x->settled % INSPECT_EVERY == 0) inspect(w, m);
    copy_journal(w, m);
    while (sl_node_next(x->node, &o)) {
        do_order(w, m, &o);
        if (++orders < ORDERS_MAX) continue;
        sim_checker_wrong(&w->checker, "n%u orders without end", m + 1);
        return;
    }
    if (orders > 0) x->idle_ticks = 0;
    if (x->write_fails) fail_write(w, m);
    sim_checker_membership(&w->checker, m, sl_node_membership(x->node));
    sl_node_check(x->node);
    sl_journal_check(x->journal.journal);
    sync_journal(w, m);
    set_alarm(w, m);
}

/* ---- events ---- */

static void tick(struct sim_world *w, const struct sim_event *e)
{
    struct sim_machine *x = &w->machines[e->node];
    if (e->at_us != x->tick_us) return; /* Another tick was scheduled meanwhile. */
    x->due_ms = SL_NEVER;
    x->tick_us = SIM_NEVER;
    sl_node_tick(x->node, sim_machine_now(w, e->node));
    if (x->idle_ticks++ == 0 || w->now_us - x->idle_us > 1000000) {
        x->idle_ticks = 1;
        x->idle_us = w->now_us;
    }
    if (x->idle_ticks > 1000)
        sim_checker_wrong(&w->checker, "n%u wants to be woken, and does nothing",
                          e->node + 1);
    sim_machine_settle(w, e->node);
}

static void written(struct sim_world *w, const struct sim_event *e)
{
    struct sim_machine *x = &w->machines[e->node];
    bool ok = w->now_us >= x->failing_us;
    x->writing = false;
    /* After an error, the write may or may not be on disk. */
    if (ok || sl_random_maybe(&w->random, 5000)) x->disk = x->ahead;
    SIM_TRACE(w, "n%u %s", e->node + 1, ok ? "has written" : "could not write");
    sl_node_written(x->node, sim_machine_now(w, e->node), ok);
    sim_machine_settle(w, e->node);
}

static void synced(struct sim_world *w, const struct sim_event *e)
{
    struct sim_machine *x = &w->machines[e->node];
    bool ok = w->now_us >= x->failing_us;
    if (!ok) SIM_TRACE(w, "n%u cannot sync its journal", e->node + 1);
    sim_disk_sync_end(&x->journal, ok);
    sl_node_synced(x->node, sim_machine_now(w, e->node));
    sim_machine_settle(w, e->node);
}

static void mend(struct sim_world *w, const struct sim_event *e)
{
    struct sim_machine *x = &w->machines[e->node];
    x->mends = false;
    if (w->now_us >= x->failing_us && sl_journal_failed(x->journal.journal)) {
        SIM_TRACE(w, "n%u writes a new journal", e->node + 1);
        sim_disk_mend(&x->journal, sim_machine_now(w, e->node), x->node);
        sl_node_synced(x->node, sim_machine_now(w, e->node));
    }
    sim_machine_settle(w, e->node);
}

static void request(struct sim_world *w, const struct sim_event *e)
{
    struct sim_machine *x = &w->machines[e->node];
    const struct sl_node_request *ask = &e->packet->ask;
    if (w->setup.trace) sim_trace_ask(w, e->other, e->node, e->number, ask);
    sim_checker_arrived(&w->checker, e->number, e->node, x->life, w->now_us);
    sl_node_submit(x->node, sim_machine_now(w, e->node), e->number, ask);
    sim_machine_settle(w, e->node);
}

static void hangup(struct sim_world *w, const struct sim_event *e)
{
    if (!sim_checker_withdraw(&w->checker, e->number)) return;
    SIM_TRACE(w, "n%u withdraws request %llu of c%u", e->node + 1,
              (unsigned long long)e->number, e->other + 1);
    sl_node_withdraw(w->machines[e->node].node, sim_machine_now(w, e->node), e->number);
    sim_machine_settle(w, e->node);
}

/* Return whether a node can handle an event now: the node is up, is not paused, and is
 * still in the life that the event is for (messages may outlive that life). Postpones
 * the event if the node is paused. */
static bool is_ready(struct sim_world *w, struct sim_event *e)
{
    const struct sim_machine *x = &w->machines[e->node];
    if (x->node == NULL) return false;
    bool of_a_life = e->type == SIM_EVENT_TICK || e->type == SIM_EVENT_WRITTEN ||
                     e->type == SIM_EVENT_SYNCED || e->type == SIM_EVENT_MEND;
    if (of_a_life && e->number != x->life) return false;
    if ((e->type == SIM_EVENT_REQUEST || e->type == SIM_EVENT_HANGUP) &&
        e->link != x->life)
        return false;
    if (w->now_us >= x->paused_us) return true;
    if (e->type == SIM_EVENT_TICK && e->at_us == x->tick_us)
        w->machines[e->node].tick_us = x->paused_us;
    e->at_us = x->paused_us;
    sim_queue_put(&w->queue, e);
    e->packet = NULL;
    return false;
}

static void node_event(struct sim_world *w, struct sim_event *e)
{
    if (!is_ready(w, e)) return;
    switch (e->type) {
        case SIM_EVENT_MESSAGE: sim_net_deliver(w, e); break;
        case SIM_EVENT_TICK: tick(w, e); break;
        case SIM_EVENT_WRITTEN: written(w, e); break;
        case SIM_EVENT_SYNCED: synced(w, e); break;
        case SIM_EVENT_MEND: mend(w, e); break;
        case SIM_EVENT_REQUEST: request(w, e); break;
        case SIM_EVENT_HANGUP: hangup(w, e); break;
        default: break;
    }
}

static void handle(struct sim_world *w, struct sim_event *e)
{
    switch (e->type) {
        case SIM_EVENT_MESSAGE:
        case SIM_EVENT_TICK:
        case SIM_EVENT_WRITTEN:
        case SIM_EVENT_SYNCED:
        case SIM_EVENT_MEND:
        case SIM_EVENT_REQUEST:
        case SIM_EVENT_HANGUP: node_event(w, e); break;
        case SIM_EVENT_ANSWER: sim_client_answered(w, e->other, e); break;
        case SIM_EVENT_NOTICE: sim_client_notified(w, e->other, e); break;
        case SIM_EVENT_CLIENT:
            if (e->number == w->clients[e->other].wake) sim_client_act(w, e->other);
            break;
        case SIM_EVENT_OPERATOR: sim_operator_act(w, e->other); break;
        case SIM_EVENT_NEMESIS: sim_nemesis_act(w); break;
        case SIM_EVENT_CRASH: sim_nemesis_crash(w, e->node); break;
        case SIM_EVENT_START:
            if (!sim_machine_runs(w, e->node)) sim_machine_start(w, e->node);
            break;
        case SIM_EVENT_LINKS:
            sim_net_update(w);
            sim_schedule(w, LINKS_US, (struct sim_event){.type = SIM_EVENT_LINKS});
            break;
        default: break; /* Only keeper clusters have the others. */
    }
}

/* ---- a run ---- */

/* Draw the offsets of the wall clocks. One clock may be days ahead, and the nodes must
 * not trust it. */
static void draw_walls(struct sim_world *w)
{
    for (uint32_t m = 0; m < SIM_NODES; m++)
        w->machines[m].wall_off_us = sl_random_between(&w->random, -3600, 3600) *
                                     1000000;
    /* But a majority of clocks must be right, even without a node that lost its data
     * directory. */
    bool others = w->node_count > 2 && !sim_has_fault(w, SIM_FAULT_EMPTY);
    if (others && sl_random_maybe(&w->random, 1500))
        w->machines[sl_random_below(&w->random, SIM_NODES)].wall_off_us += 3 *
                                                                           86400000000;
}

static void begin(struct sim_world *w)
{
    for (uint32_t m = 0; m < SIM_NODES; m++) {
        struct sim_machine *x = &w->machines[m];
        x->clock = sim_draw_clock(w);
        for (uint32_t o = 0; o < SIM_NODES; o++) x->links[o].broken_us = -1;
        if (m < w->node_count)
            sim_schedule(w, sl_random_between(&w->random, 0, 100000),
                         (struct sim_event){.type = SIM_EVENT_START, .node = m});
    }
    if (sim_has_fault(w, SIM_FAULT_WALL)) draw_walls(w);
    for (uint32_t c = 0; c < w->client_count; c++) {
        w->clients[c].clock = sim_draw_clock(w);
        sim_client_init(
            w, c, sim_has_fault(w, SIM_FAULT_ROLLING) ? SIM_ROLE_KEEPS : SIM_ROLE_USER);
    }
    sim_schedule(w, 1000, (struct sim_event){.type = SIM_EVENT_LINKS});
    sim_schedule(w, w->nemesis_us, (struct sim_event){.type = SIM_EVENT_NEMESIS});
    for (uint32_t o = 0; sim_has_fault(w, SIM_FAULT_NODES) && o < w->operator_count;
         o++)
        sim_schedule(w, w->operator_us,
                     (struct sim_event){.type = SIM_EVENT_OPERATOR, .other = o});
}

static void end_run(struct sim_world *w)
{
    for (uint32_t m = 0; m < SIM_NODES; m++) {
        struct sim_machine *x = &w->machines[m];
        sl_node_free(x->node);
        x->node = NULL;
        sim_disk_kill(&x->journal);
        sim_disk_erase(&x->journal);
        sim_disk_erase(&x->backup.journal);
    }
    sim_queue_clear(&w->queue);
}

static void reset(struct sim_world *w, const struct sim_setup *setup)
{
    struct sim_queue queue = w->queue;
    struct sim_checker checker = w->checker;
    memset(w, 0, sizeof *w);
    w->queue = queue;
    w->checker = checker;
    w->setup = *setup;
    sim_checker_clear(&w->checker);
}

/* Return whether the run continues. */
static bool goes_on(struct sim_world *w)
{
    if (w->over || w->checker.wrong[0] != '\0') return false;
    if (w->setup.until > 0 && w->steps >= w->setup.until) return false;
    if (w->heal_at == 0) return w->steps < w->setup.events;
    if (w->heal == SIM_HEAL_NOT && w->steps >= w->heal_at) sim_heal_begin(w);
    return true;
}

void sim_world_run(struct sim_world *w, const struct sim_setup *setup)
{
    struct sim_event e;
    reset(w, setup);
    sim_draw(w);
    if (setup->trace) sim_trace_setup(w);
    begin(w);
    while (goes_on(w) && sim_queue_take(&w->queue, &e)) {
        w->now_us = e.at_us;
        w->steps++;
        handle(w, &e);
        sim_packet_free(&w->queue, e.packet);
        if (w->heal != SIM_HEAL_NOT) sim_heal_step(w);
    }
    w->counts.seeds = 1;
    w->counts.events = w->steps;
    w->counts.changes = w->checker.membership_count > 1
                            ? w->checker.membership_count - 1
                            : 0;
    w->counts.healed = w->heal == SIM_HEAL_DONE;
    if (w->checker.wrong[0] != '\0') w->counts.wrong = 1;
    if (w->checker.wrong[0] != '\0' && w->checker.is_stuck) w->counts.stuck = 1;
    end_run(w);
}

void sim_world_free(struct sim_world *w)
{
    sim_queue_free(&w->queue);
    sim_checker_free(&w->checker);
}
