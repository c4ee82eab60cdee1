#include "sim/keeper_etcd.h"

#include <stdlib.h>
#include <string.h>

#include "sim/keeper.h"

#define AGAIN_US 200000 /* How soon an operation is sent again. */
#define RENEW_REPEATS_MAX 3

void ksim_etcd_init(struct ksim_etcd *e)
{
    memset(e, 0, sizeof *e);
    sl_list_init(&e->ops);
}

static void end(struct ksim_op *op)
{
    sl_list_remove(&op->all);
    free(op->copy);
    free(op->rows);
    free(op);
}

void ksim_etcd_free(struct ksim_etcd *e)
{
    while (e->ops.next != NULL && !sl_list_empty(&e->ops))
        end(sl_container_of(e->ops.next, struct ksim_op, all));
    ksim_map_free(&e->rows);
    ksim_map_free(&e->requests);
    ksim_map_free(&e->bars);
    ksim_map_free(&e->journal);
}

bool ksim_etcd_reaches(const struct ksim_world *w, uint32_t node)
{
    return w->now_us >= w->etcd.down_us && w->now_us >= w->nodes[node].away_us;
}

static int64_t delay(struct ksim_world *w)
{
    struct sl_random *r = &w->random;
    if (w->now_us < w->etcd.slow_us) return sl_random_between(r, 1000, 1500000);
    return 100 + sl_random_below(r, (uint32_t)w->etcd_us);
}

/* Return the delay of an operation, or of its answer. Some take long even if etcd is not slow. */
static int64_t delay_of(struct ksim_world *w, const struct ksim_op *op)
{
    struct ksim_node *n = &w->nodes[op->node];
    bool flaps = w->now_us < w->flaps_us && op->op.type != SL_STORAGE_CLAIM;
    if (!ksim_has_fault(w, KSIM_FAULT_SLOW) ||
        !sl_random_maybe(&w->random, flaps ? 2000 : 100))
        return delay(w);
    int64_t us = sl_random_between(&w->random, 200000, 4000000);
    if (w->now_us + us > n->straggles_us) n->straggles_us = w->now_us + us;
    return us;
}

static void schedule(struct ksim_world *w, const struct ksim_op *op, int64_t delay_us)
{
    ksim_schedule(w, delay_us,
                  (struct sim_event){.type = SIM_EVENT_STORAGE,
                                     .node = op->node,
                                     .number = op->number});
}

struct ksim_op *ksim_etcd_submit(struct ksim_world *w, uint32_t node,
                                 const struct sl_storage_op *op, sl_ms asked_ms)
{
    struct ksim_op *x = calloc(1, sizeof *x);
    if (x == NULL) abort();
    x->op = *op;
    x->number = ++w->etcd.numbers;
    x->node = node;
    x->life = w->nodes[node].life;
    x->asked_ms = asked_ms;
    x->asked_us = w->now_us;
    x->expected = w->nodes[node].heartbeat;
    sl_list_append(&w->etcd.ops, &x->all);
    ksim_op_copy(x);
    schedule(w, x, delay_of(w, x));
    return x;
}

/* ---- the watch ---- */

/* The term has changed: report it to all nodes that watch. */
static void report(struct ksim_world *w)
{
    struct sl_random *r = &w->random;
    for (uint32_t i = 0; i < w->node_count; i++) {
        struct ksim_node *n = &w->nodes[i];
        if (!ksim_etcd_reaches(w, i) ||
            (ksim_has_fault(w, KSIM_FAULT_WATCH) && sl_random_maybe(r, 4000))) {
            n->watch_missed = true;
            continue;
        }
        int64_t at = w->now_us + delay(w);
        if (at <= n->watch_us) at = n->watch_us + 1;
        n->watch_us = at;
        char *copy = malloc(sizeof w->etcd.term);
        if (copy == NULL) abort();
        memcpy(copy, &w->etcd.term, sizeof w->etcd.term);
        ksim_schedule(w, at - w->now_us,
                      (struct sim_event){.type = SIM_EVENT_WATCH,
                                         .node = i,
                                         .number = n->life,
                                         .bytes = copy,
                                         .byte_count = sizeof w->etcd.term});
    }
}

void ksim_etcd_watched(struct ksim_world *w, const struct sim_event *e)
{
    struct sl_storage_term term;
    const struct ksim_node *n = &w->nodes[e->node];
    if (!n->up || n->life != e->number) return;
    memcpy(&term, e->bytes, sizeof term);
    ksim_rules_told(w, e->node, term.term);
    ksim_node_term_changed(w, e->node, &term);
}

void ksim_etcd_poll(struct ksim_world *w, uint32_t node)
{
    struct ksim_node *n = &w->nodes[node];
    if (!n->watch_missed || !ksim_etcd_reaches(w, node)) return;
    if (!w->healed && !sl_random_maybe(&w->random, 5000)) return;
    n->watch_missed = false;
    ksim_node_term_changed(w, node, &w->etcd.term);
}

/* ---- execution ---- */

static void claim(struct ksim_world *w, struct ksim_op *x)
{
    struct sl_storage_term *t = &w->etcd.term;
    struct sl_storage_result *r = &x->op.result;
    if (x->op.term != t->term ||
        (x->op.heartbeat != 0 && x->op.heartbeat != t->heartbeat)) {
        r->status = SLUICE_ESTALE;
        r->term_record = *t;
        r->term = t->term;
        return;
    }
    ksim_audit_claim(w, x->node);
    ksim_rules_claim(w, x);
    t->term++;
    if (t->term < KSIM_TERMS) w->etcd.claimed_us[t->term] = w->now_us;
    r->term_record = *t;
    t->node = x->op.node;
    t->clock_ms = x->op.clock_ms;
    t->ledgers = 0;
    t->resigned = false;
    ksim_map_free(&w->etcd.bars);
    ksim_rules_renewed(w, x);
    r->term = t->term;
    w->counts.changes++;
    KSIM_TRACE(w, "etcd: n%u claims term %llu", x->node + 1,
               (unsigned long long)t->term);
    report(w);
}

/* Returns false if the heartbeat is not the expected one, so the storage client tries again. */
static bool renew(struct ksim_world *w, struct ksim_op *x)
{
    struct sl_storage_term *t = &w->etcd.term;
    struct sl_storage_result *r = &x->op.result;
    bool resigns = x->op.type == SL_STORAGE_RESIGN;
    if (x->op.term != t->term || t->node != x->node + 1 || (t->resigned && !resigns)) {
        r->status = SLUICE_ESTALE;
    } else if (x->expected != t->heartbeat) {
        x->expected = t->heartbeat;
        return false;
    } else {
        t->heartbeat = ++w->etcd.revision;
        t->fence_limit = x->op.fence_limit;
        t->longest_ms = x->op.longest_ms;
        t->clock_ms = x->op.clock_ms;
        t->ledgers = x->op.ledgers;
        if (resigns) t->resigned = true;
        ksim_rules_renewed(w, x);
        if (resigns && t->term < KSIM_TERMS) w->etcd.resigned[t->term] = true;
        report(w);
    }
    r->term_record = *t;
    r->term = t->term;
    return true;
}

static void execute(struct ksim_world *w, struct ksim_op *x)
{
    x->executed = true;
    x->op.result = (struct sl_storage_result){.status = SLUICE_OK};
    switch (x->op.type) {
        case SL_STORAGE_CLAIM: claim(w, x); break;
        case SL_STORAGE_RENEW:
        case SL_STORAGE_RESIGN: x->executed = renew(w, x); break;
        case SL_STORAGE_READ_TERM:
            x->op.result.term_record = w->etcd.term;
            x->op.result.term = w->etcd.term.term;
            break;
        default:
            if (!ksim_etcd_data(w, x)) KSIM_WRONG(w, "etcd: unknown operation");
            break;
    }
}

/* Whether the outcome must be known before the operation is reported. */
static bool is_certain(const struct ksim_op *x)
{
    return x->op.type == SL_STORAGE_CLAIM || x->op.type == SL_STORAGE_COMMIT ||
           x->op.type == SL_STORAGE_BAR || x->op.type == SL_STORAGE_RECORD;
}

static bool may_be_late(const struct ksim_op *x)
{
    return x->op.type == SL_STORAGE_RENEW || x->op.type == SL_STORAGE_RESIGN;
}

/* Whether an earlier operation of the node must be executed first. */
static bool waits_for_earlier(const struct ksim_world *w, const struct ksim_op *x)
{
    const struct sl_list *all = &w->etcd.ops;
    if (!is_certain(x) || x->op.type == SL_STORAGE_CLAIM) return false;
    for (const struct sl_list *i = all->next; i != all; i = i->next) {
        const struct ksim_op *o = sl_container_of(i, const struct ksim_op, all);
        if (o->number < x->number && o->node == x->node && o->life == x->life &&
            is_certain(o) && o->op.type != SL_STORAGE_CLAIM && !o->answered)
            return true;
    }
    return false;
}

/* The operation fails, or its answer is lost. It may still execute later. */
static void fail(struct ksim_world *w, struct ksim_op *x)
{
    x->op.result = (struct sl_storage_result){.status = SLUICE_EIO};
    x->answered = true;
    w->nodes[x->node].failed_us = w->now_us;
    /* A keeper whose renewals fail may be deposed, unless the storage fails for all. */
    if (w->now_us >= w->etcd.down_us) w->nodes[x->node].unwell_us = w->now_us;
    schedule(w, x, sl_random_between(&w->random, 1000, 1000000));
}

/* Try to execute an operation. */
static void run(struct ksim_world *w, struct ksim_op *x)
{
    struct sl_random *r = &w->random;
    bool loses = ksim_has_fault(w, KSIM_FAULT_LOST) &&
                 sl_random_maybe(r, may_be_late(x) ? 1000 : 500);
    bool alive = w->nodes[x->node].up && w->nodes[x->node].life == x->life;
    if (waits_for_earlier(w, x)) {
        schedule(w, x, 1000);
        return;
    }
    if (!alive && !ksim_etcd_reaches(w, x->node)) {
        end(x); /* Nobody sends it again. */
        return;
    }
    if (!ksim_etcd_reaches(w, x->node)) {
        if (is_certain(x) && sl_random_maybe(r, 5000)) schedule(w, x, AGAIN_US);
        else fail(w, x);
        return;
    }
    if (loses && !is_certain(x) && sl_random_maybe(r, 5000)) {
        fail(w, x); /* The request is late; it may execute after the failure. */
        return;
    }
    execute(w, x);
    if (!x->executed) { /* The heartbeat has changed: once more. */
        if (++x->repeats > RENEW_REPEATS_MAX) fail(w, x);
        else schedule(w, x, delay_of(w, x));
        return;
    }
    if (loses && !is_certain(x)) {
        fail(w, x);
        return;
    }
    x->answered = true;
    schedule(w, x, loses ? AGAIN_US + delay(w) : delay_of(w, x));
}

/* A renewal that was reported as failed arrives at etcd after all. */
static void arrive_late(struct ksim_world *w, struct ksim_op *x)
{
    if (ksim_etcd_reaches(w, x->node) && may_be_late(x)) {
        uint64_t before = w->etcd.term.heartbeat;
        renew(w, x);
        if (w->etcd.term.heartbeat != before)
            KSIM_TRACE(w, "etcd: a renewal of n%u is executed late", x->node + 1);
    }
    end(x);
}

static struct ksim_op *find(struct ksim_world *w, uint64_t number)
{
    for (struct sl_list *i = w->etcd.ops.next; i != &w->etcd.ops; i = i->next) {
        struct ksim_op *x = sl_container_of(i, struct ksim_op, all);
        if (x->number == number) return x;
    }
    return NULL;
}

static void answer(struct ksim_world *w, struct ksim_op *x)
{
    struct ksim_node *n = &w->nodes[x->node];
    bool alive = n->up && n->life == x->life;
    bool late = may_be_late(x) && !x->executed;
    if (alive && w->now_us < n->paused_us) {
        schedule(w, x, n->paused_us - w->now_us);
        return;
    }
    if (alive) {
        const struct sl_storage_result *r = &x->op.result;
        bool of_term = may_be_late(x) || x->op.type == SL_STORAGE_CLAIM ||
                       x->op.type == SL_STORAGE_READ_TERM;
        if (of_term && (r->status == SLUICE_OK || r->status == SLUICE_ESTALE))
            n->heartbeat = r->term_record.heartbeat;
        bool told = of_term
                        ? r->status == SLUICE_OK
                        : x->op.type == SL_STORAGE_RECORD && r->status == SLUICE_ESTALE;
        if (told) ksim_rules_told(w, x->node, r->term);
        ksim_mix(w, (uint64_t)r->status ^ x->number << 8);
        x->reported = true;
        ksim_node_storage(w, x->node, x);
    }
    if (late && sl_random_maybe(&w->random, 5000)) {
        x->reported = true;
        schedule(w, x, sl_random_between(&w->random, 0, 3000000));
        return;
    }
    end(x);
}

void ksim_etcd_event(struct ksim_world *w, const struct sim_event *e)
{
    struct ksim_op *x = find(w, e->number);
    if (x == NULL) return;
    if (x->reported) arrive_late(w, x);
    else if (x->answered) answer(w, x);
    else run(w, x);
}
