#include "sim/world.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define WALL_START_US 1700000000000000
#define LINKS_US 30000 /* How often links are updated. */

void sim_schedule(struct sim_world *w, int64_t delay_us, struct sim_event e)
{
    e.at_us = w->now_us + delay_us;
    sim_queue_put(&w->queue, &e);
}

/* ---- drawing from the seed ---- */

static sl_ms pick(struct sl_random *r, const sl_ms *from, uint32_t n)
{
    return from[sl_random_below(r, n)];
}

static void draw_limits(struct sim_world *w)
{
    struct sl_random *r = &w->random;
    static const sl_ms longest[] = {200, 400, 1000, 2000};
    w->lease_max_ms = pick(r, longest, 4);
    w->lease_min_ms = 100;
    w->limits = sl_node_limits_default;
    w->limits.keys_max = 64;
    w->limits.waiters_max = sl_random_maybe(r, 1000) ? 2 : 16;
    w->limits.key_bytes_max = w->limits.value_bytes_max = 64;
    w->limits.lease_min_ms = 50;
    w->limits.lease_max_ms = w->lease_max_ms;
    w->limits.heartbeat_ms = sl_random_between(r, 100, 500);
    w->limits.answer_ms = sl_random_between(r, 20, 150);
    w->limits.answer_min_ms = sl_random_between(r, 5, 20);
    w->limits.answer_max_ms = sl_random_between(r, 150, 500);
    w->limits.forget_ms = sl_random_between(r, w->lease_max_ms / 2,
                                            3 * w->lease_max_ms);
    w->limits.waiting_messages_max = sl_random_maybe(r, 1000) ? 4 : 64;
    /* Some leases are longer, and some are not; or all must be durable. */
    w->volatile_ms = sl_random_maybe(r, 1000)
                         ? 0
                         : sl_random_between(r, w->lease_min_ms, w->lease_max_ms);
}

static void draw_counts(struct sim_world *w)
{
    struct sl_random *r = &w->random;
    uint32_t dice = sl_random_below(r, 100);
    w->node_count = dice < 60 ? 3 : dice < 90 ? 5 : dice < 95 ? 4 : dice < 98 ? 2 : 1;
    w->key_count = 1 + sl_random_below(r, sl_random_maybe(r, 5000) ? 1 : SIM_KEYS);
    w->client_count = 2 + sl_random_below(r, 7);
    if (w->setup.clients > 0) w->client_count = w->setup.clients;
    w->operator_count = 1 + sl_random_below(r, 2);
}

static enum sl_message_type draw_aged(struct sl_random *r)
{
    static const enum sl_message_type often[] = {SL_MESSAGE_NONE,    SL_MESSAGE_NONE,
                                                 SL_MESSAGE_ACQUIRE, SL_MESSAGE_RELEASE,
                                                 SL_MESSAGE_TEACH,   SL_MESSAGE_VOTE};
    if (sl_random_maybe(r, 3000)) return 1 + sl_random_below(r, SL_MESSAGE_COUNT - 1);
    return often[sl_random_below(r, sizeof often / sizeof often[0])];
}

static void draw_speeds(struct sim_world *w)
{
    struct sl_random *r = &w->random;
    w->loss = (uint32_t)sl_random_between(r, 50, sl_random_maybe(r, 5000) ? 500 : 3000);
    w->doubles = (uint32_t)sl_random_between(r, 200, 3000);
    w->short_us = sl_random_between(r, 200, sl_random_maybe(r, 5000) ? 2000 : 20000);
    w->tail_us = 2000 * w->lease_max_ms;
    w->ages_us = 20000 * w->lease_max_ms;
    w->nemesis_us = sl_random_between(r, 20, 400) * 1000;
    w->operator_us = sl_random_between(r, 20, sl_random_maybe(r, 7000) ? 200 : 1500) *
                     1000;
    w->think_ms = sl_random_between(r, 1,
                                    pick(r, (sl_ms[]){20, 20, 500, 500, 3000}, 5));
    w->long_leases = sl_random_maybe(r, 3000);
    w->aged = draw_aged(r);
    w->growing = true;
    w->slack_us = sl_random_maybe(r, 8000) ? 1000 : 30000;
    w->heal_at = sl_random_maybe(r, 3000) ? w->setup.events * 6 / 10 : 0;
}

static void draw(struct sim_world *w)
{
    sl_random_seed(&w->random, w->setup.seed);
    sl_random_seed(&w->copies, ~w->setup.seed);
    w->replaces = sl_random_maybe(&w->copies, 2000);
    w->faults = sim_faults_draw(&w->random);
    if (w->setup.faults_given) w->faults = w->setup.faults;
    if ((w->faults & 1u << SIM_FAULT_STEAL) == 0) w->faults &= ~(1u << SIM_FAULT_FORCE);
    draw_limits(w);
    draw_counts(w);
    draw_speeds(w);
    if (sim_has_fault(w, SIM_FAULT_ROLLING)) sim_rolling_draw(w);
}

static struct sim_clock draw_clock(struct sim_world *w)
{
    struct sl_random *r = &w->random;
    struct sim_clock c = {.since_us = w->now_us,
                          .began_us = sl_random_between(r, 1000000, 100000000000),
                          .ppm = sl_random_between(r, -50, 50)};
    int64_t most = sl_random_maybe(r, 5000) ? SIM_DRIFT_PPM : -SIM_DRIFT_PPM;
    if (sim_has_fault(w, SIM_FAULT_DRIFT)) c.ppm = most;
    return c;
}

/* ---- machines ---- */

bool sim_machine_runs(const struct sim_world *w, uint32_t m)
{
    return w->machines[m].node != NULL;
}

struct sl_now sim_machine_now(const struct sim_world *w, uint32_t m)
{
    const struct sim_machine *x = &w->machines[m];
    int64_t us = sim_clock_us(&x->clock, w->now_us);
    return (struct sl_now){
        .ms = us / 1000,
        .wall_us = (uint64_t)(WALL_START_US + w->now_us + x->wall_off_us)};
}

static void first_list(const struct sim_world *w, struct sl_membership *out)
{
    *out = (struct sl_membership){.version = 1, .count = w->node_count};
    for (uint32_t i = 0; i < w->node_count; i++) {
        out->at[i].id = sim_node_id(i);
        snprintf(out->at[i].address, sizeof out->at[i].address, "n%u:1", i + 1);
    }
}

/* Update the set of nodes that a node wants to be connected to. */
static void update_peers(struct sim_world *w, uint32_t m)
{
    struct sl_member peers[2 * SL_NODES_MAX];
    uint32_t n = sl_node_peers(w->machines[m].node, peers);
    w->machines[m].peers = 0;
    for (uint32_t i = 0; i < n; i++) w->machines[m].peers |= 1u << peers[i].id;
}

/* Write the state of a node to x->remembered. Returns the first key whose state is not the same as
 * before, or SIM_KEYS. */
static uint32_t remember(struct sim_machine *x, struct sl_now now)
{
    struct sim_remembered was = x->remembered, *is = &x->remembered;
    struct sl_item item;
    uint64_t cursor = 0;
    memset(is, 0, sizeof *is);
    is->is = true;
    is->now = was.is ? was.now : now; /* Compare the states at the same time. */
    while (sl_node_item(x->node, &cursor, &item)) {
        if (item.kind != SL_ITEM_KEY) continue;
        uint32_t k = (uint32_t)(item.key.at[1] - '0');
        if (item.value.n > SIM_STATE_BYTES) abort();
        is->keys[k].bytes = item.value.n;
        memcpy(is->keys[k].at, item.value.at, item.value.n);
    }
    uint32_t differs = SIM_KEYS;
    for (uint32_t k = SIM_KEYS; k-- > 0;) {
        struct sl_node_copy copy = {0};
        sl_node_copy(x->node, is->now, sim_key_bytes(k), &copy);
        is->keys[k].fence = copy.fence;
        is->keys[k].agreed = copy.agreed;
        is->keys[k].reserved = copy.reserved;
        is->keys[k].wanted = copy.reserved ? copy.wanted : 0;
        if (was.is && memcmp(&was.keys[k], &is->keys[k], sizeof is->keys[k]) != 0)
            differs = k;
    }
    return differs;
}

/* Read the journal, and create the node. */
static void recover(struct sim_world *w, uint32_t m, struct sl_node_start *start)
{
    struct sim_machine *x = &w->machines[m];
    struct sl_now now = sim_machine_now(w, m);
    struct sl_recovery r;
    sim_disk_open(&x->journal, now, w->volatile_ms, &r);
    if (r.result != SL_RECOVERY_OK)
        sim_checker_wrong(&w->checker, "n%u cannot read its journal: %d", m + 1,
                          (int)r.result);
    sim_disk_start(&x->journal, &r, start);
    x->node = sl_node_new(start, now);
    if (x->node == NULL) abort();
    int status = sim_disk_restore(&x->journal, now, &r, x->node);
    if (status != SLUICE_OK)
        sim_checker_wrong(&w->checker, "n%u cannot restore its journal: status %d",
                          m + 1, status);
    sim_disk_begin(&x->journal, now, &r, x->node);
    uint32_t forgot = r.same_life && !x->is_old ? remember(x, now) : SIM_KEYS;
    if (forgot < SIM_KEYS)
        sim_checker_wrong(&w->checker,
                          "n%u has forgotten the state of k%u in the same life", m + 1,
                          forgot);
    x->remembered.is = false;
    SIM_TRACE(w, "n%u recovers %zu items in %s life, and waits until %lld", m + 1,
              r.items, r.same_life ? "the same" : "another",
              (long long)r.wait_until_ms);
    sl_recovery_end(&r);
}

void sim_machine_start(struct sim_world *w, uint32_t m)
{
    struct sim_machine *x = &w->machines[m];
    struct sl_node_start start = {.id = sim_node_id(m),
                                  .epoch = sl_random_next(&w->random) | 1,
                                  .birth = sl_random_next(&w->random) | 1,
                                  .seed = sl_random_next(&w->random),
                                  .kept = x->disk,
                                  .limits = w->limits};
    if (m < w->node_count && x->disk.birth == 0 && !x->is_emptied)
        first_list(w, &start.bootstrap);
    recover(w, m, &start);
    x->written = x->durable = (struct sim_replay){0};
    memset(x->heard, 0, sizeof x->heard);
    x->lost_power = false;
    x->life = ++w->lives;
    sim_checker_started(&w->checker, m);
    x->writing = x->mends = x->write_fails = false;
    x->cut_links = 0;
    x->due_ms = SL_NEVER;
    x->tick_us = SIM_NEVER;
    x->idle_ticks = 0;
    SIM_TRACE(w, "n%u starts%s", m + 1,
              start.bootstrap.version > 0 ? " for the first time"
              : x->disk.birth == 0        ? " with nothing on its disk"
                                          : "");
    update_peers(w, m);
    sim_audit_started(w, m);
    sim_machine_settle(w, m);
}

/* Simulate a loss of power. The machine boots at once, and its clock begins at 0. */
static void lose_power(struct sim_world *w, struct sim_machine *x)
{
    sim_disk_lose_power(&x->journal, &w->random, 0);
    x->clock = draw_clock(w);
    x->clock.began_us = 0;
    x->written = x->durable = (struct sim_replay){0};
    x->lost_power = true;
    x->power_us = w->now_us;
    x->remembered.is = false;
}

void sim_machine_kill(struct sim_world *w, uint32_t m, bool power)
{
    struct sim_machine *x = &w->machines[m];
    SIM_TRACE(w, "n%u %s%s", m + 1, power ? "loses power" : "is killed",
              x->writing ? ", while it writes" : "");
    x->remembered.is = false;
    if (!sl_journal_failed(x->journal.journal)) remember(x, sim_machine_now(w, m));
    sl_node_free(x->node);
    x->node = NULL;
    sim_disk_end_commit(&x->journal, &w->copies);
    sim_disk_kill(&x->journal);
    /* A pending write may or may not be on disk. */
    if (x->writing && sl_random_maybe(&w->random, 5000)) x->disk = x->ahead;
    x->writing = false;
    if (power) lose_power(w, x);
    for (uint32_t c = 0; c < SIM_CLIENTS; c++) {
        /* The clients of the node notice after a while. In a rolling restart, clients
         * detect this themselves. */
        if (w->clients[c].life == x->life && w->clients[c].role != SIM_ROLE_KEEPS)
            sim_client_wake(w, c,
                            sim_client_clock(w, c) +
                                sl_random_between(&w->random, 0, 300000));
    }
    x->life = 0;
    sim_net_drop(w, m);
    w->counts.crashes++;
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
        case SL_NODE_ORDER_LINKS: update_peers(w, m); break;
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
        x->clock = draw_clock(w);
        for (uint32_t o = 0; o < SIM_NODES; o++) x->links[o].broken_us = -1;
        if (m < w->node_count)
            sim_schedule(w, sl_random_between(&w->random, 0, 100000),
                         (struct sim_event){.type = SIM_EVENT_START, .node = m});
    }
    if (sim_has_fault(w, SIM_FAULT_WALL)) draw_walls(w);
    for (uint32_t c = 0; c < w->client_count; c++) {
        w->clients[c].clock = draw_clock(w);
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
    draw(w);
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
