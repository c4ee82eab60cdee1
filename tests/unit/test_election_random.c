/* test_election_random.c - clusters of three and five elections over one storage, with many faults:
 * answers that are lost or late, a storage that some or all nodes cannot reach, links that close or
 * fall silent, nodes that sleep, crash and return, clocks that differ.
 *
 * history.h says how to choose and replay histories; each is one cluster. The test has the real
 * time, and its own records:
 *
 *   one per term   terms rise by one; the leader of a term has claimed it, and no other node has
 *   one at a time  a leader may grant until its authority ends, leases up to the longest that it
 *                  has recorded; no later leader may grant before the last of these could have
 *                  ended
 *   reasons        a claim that does not compare the heartbeat has the doubts of a majority; one
 *                  that does comes from a node that has seen no other heartbeat for silence_ms, from
 *                  a storage that answered. In calm clusters, where a minority loses its links,
 *                  others crash and sleep, and the storage is away for all, the first keeper stays
 *   liveness       after the faults there is one keeper within HEALED_MS, all nodes know it, it
 *                  stays, and it grants
 *   no spinning    an election that has had its tick is not due again at once */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/random.h"
#include "election_stage.h"
#include "history.h"
#include "sim/clock.h"

enum {
    NODES = 5,
    TERMS = 2048,
    OPS = 1 << 15,
    EVENTS = 1 << 12,
    CLUSTERS = 1000,
    FAULTS_MS = 40000,
    HEALED_MS = 10000,
    LONGEST_MS = 20000,
    END_MS = FAULTS_MS + HEALED_MS + LONGEST_MS + 5000,
    MESSAGE_MS = 1000, /* The longest that one is under way, */
    SLEEP_MS = 8000,   /* and that a node sleeps. */
};

typedef int64_t real; /* Microseconds. */
#define MS ((real)1000)

/* ---- the world ---- */

enum op_type { LOOK, CLAIM, RENEW, COMMIT };

struct op {
    enum op_type type;
    uint32_t node, life;
    uint64_t term, beat;
    sl_ms longest_ms, asked_ms;
    bool answered;
    struct sl_storage_result done;
};

enum event_type {
    TICK,
    ARRIVES, /* An operation, at the engine; */
    ANSWER,  /* and what it says at the node; */
    NO_ANSWER,
    TOLD,
    SEES,
    HEARS,
    WORKS, /* A node is used. */
    FAULT,
    LINK_BACK,
    ENGINE_BACK,
    RESTARTS,
    WAKES,
    HEALS,
    LOOKED_AT, /* The world, by us. */
};

struct event {
    real at;
    uint64_t turn;
    enum event_type type;
    uint32_t node, other; /* From 1. Of 0 nobody is asleep. */
    uint32_t life;        /* Of the node; 0: whatever it is. */
    uint64_t number;      /* Of an operation, a tick, the epoch of a link; a term. */
    enum sl_peer_state sight;
    struct sl_storage_term current;
};

/* What node a is told of its link with b, and when that was. */
struct link {
    uint32_t epoch;
    enum sl_peer_state sight;
    real left_up, closed, long_silent; /* When it was last so; -1: never. */
};

struct node {
    struct sl_election *election;
    struct sim_clock clock;
    uint32_t life;
    bool alive;
    real asleep; /* Until then. */
    bool engine_cut, engine_refuses;
    real cut_at, back_at; /* back_at: of an absence that was long; -1: none. */
    real told_at;         /* The watch keeps its order. */
    uint64_t ticks;
    bool busy[COMMIT + 1];
    uint32_t keeper; /* As it was told. */
    uint64_t keeper_term;
    /* While it leads: */
    uint64_t term;
    sl_ms lead_ms, quiet_ms, longest_ms, wish_ms;
};

enum link_state { LINK_UP, LINK_CLOSED, LINK_CUT };

struct book {
    uint32_t node, led_by;
    sl_ms longest_ms; /* What the engine had when it was claimed. */
    real may_begin;   /* The first that may be granted; -1: nobody leads; */
    real may_end;     /* and when the last has ended. */
    bool granted;
};

struct world {
    bool calm, patient, sleeps, healed;
    struct sl_random random;
    real now;
    uint32_t nodes;
    struct node node[NODES + 1];
    struct link link[NODES + 1][NODES + 1];
    enum link_state state[NODES + 1][NODES + 1];
    struct sl_storage_term engine;
    uint64_t revision;
    real beat_at;
    struct op op[OPS];
    uint64_t ops;
    const struct op *last_renewal; /* That was done. */
    struct book book[TERMS];
    struct event heap[EVENTS];
    uint32_t events;
    uint64_t turns;
    sl_ms answer_ms;
    uint32_t loss; /* Of 10,000. */
    sl_ms fault_ms;
    uint64_t healed_term;
    /* Of all worlds: */
    uint64_t terms, grants, by_doubt, by_beat, refused, deposed;
};

static struct world world;

static void __attribute__((format(printf, 2, 3)))
show(struct world *w, const char *format, ...)
{
    va_list args;
    if (!history.shown) return;
    printf("[%9.3f] ", (double)w->now / 1e6);
    va_start(args, format);
    vprintf(format, args);
    va_end(args);
    printf("\n");
}

/* ---- chance ---- */

static real between_ms(struct world *w, int64_t lo, int64_t hi)
{
    return sl_random_between(&w->random, lo * MS, hi * MS);
}

static bool one_in(struct world *w, uint32_t n)
{
    return sl_random_below(&w->random, n) == 0;
}

/* Now and then it takes long. */
static real delay(struct world *w, int64_t longest_ms)
{
    if (!w->calm && !w->healed && one_in(w, 30)) return between_ms(w, 1, longest_ms);
    return sl_random_between(&w->random, 200, 20 * MS);
}

static bool is_lost(struct world *w)
{
    return !w->healed && sl_random_maybe(&w->random, w->loss);
}

/* ---- events ---- */

static bool before(const struct event *a, const struct event *b)
{
    return a->at != b->at ? a->at < b->at : a->turn < b->turn;
}

static void push(struct world *w, struct event e)
{
    assert_true(w->events < EVENTS);
    uint32_t i = w->events++;
    for (; i > 0 && before(&e, &w->heap[(i - 1) / 2]); i = (i - 1) / 2)
        w->heap[i] = w->heap[(i - 1) / 2];
    w->heap[i] = e;
}

static struct event pop(struct world *w)
{
    struct event first = w->heap[0], last = w->heap[--w->events];
    uint32_t i = 0;
    for (;;) {
        uint32_t child = 2 * i + 1;
        if (child + 1 < w->events && before(&w->heap[child + 1], &w->heap[child]))
            child++;
        if (child >= w->events || !before(&w->heap[child], &last)) break;
        w->heap[i] = w->heap[child];
        i = child;
    }
    w->heap[i] = last;
    return first;
}

static void later(struct world *w, real in, struct event e)
{
    e.at = w->now + in;
    e.turn = ++w->turns;
    push(w, e);
}

/* ---- time ---- */

static sl_ms clock_ms(const struct world *w, uint32_t n)
{
    return sim_clock_us(&w->node[n].clock, w->now) / MS;
}

/* ---- books ---- */

/* Nothing is granted under a later term before that. */
static void may_grant_until(struct world *w, uint64_t term, real end)
{
    struct book *b = &w->book[term];
    if (end <= b->may_end) return;
    b->may_end = end;
    for (uint64_t t = term + 1; t <= w->engine.term; t++)
        CHECK(w->book[t].may_begin < 0 || w->book[t].may_begin >= end);
}

static void may_grant_from(struct world *w, uint64_t term, real begin)
{
    begin -= 3; /* sim_clock_when() is rather late than early. */
    w->book[term].may_begin = begin;
    for (uint64_t t = 1; t < term; t++) CHECK(w->book[t].may_end <= begin);
}

static void grants(struct world *w, uint64_t term, real end)
{
    struct book *b = &w->book[term];
    w->grants++;
    if (!b->granted) show(w, "the first grant under %" PRIu64, term);
    b->granted = true;
    CHECK(w->now >= b->may_begin && end <= b->may_end);
}

/* What it could still grant, if it did nothing else. */
static void count_on(struct world *w, uint32_t n)
{
    struct node *x = &w->node[n];
    struct sl_election_view v;
    sl_election_view(x->election, &v);
    if (v.state != SL_ELECTION_LEADING || x->term == 0) return;
    if (v.authority_end_ms <= x->lead_ms + x->quiet_ms || x->longest_ms == 0) return;
    may_grant_until(
        w, x->term,
        sim_clock_when(&x->clock, (v.authority_end_ms + x->longest_ms) * MS));
}

static bool did_not_see(const struct world *w, uint32_t a, uint32_t k)
{
    const struct link *l = &w->link[a][k];
    sl_ms silence = sl_election_settings_default.silence_ms;
    real since = w->now - (2100 + MESSAGE_MS + (w->sleeps ? SLEEP_MS : 0)) * MS;
    if (l->sight == SL_PEER_CLOSED || (l->closed >= 0 && l->closed >= since))
        return true;
    if (l->sight != SL_PEER_UP && w->now - l->left_up >= silence * 997) return true;
    return l->long_silent >= 0 && l->long_silent >= since;
}

/* Whether it has seen no other beat for long, of an engine that it could reach. */
static bool saw_silence(struct world *w, uint32_t n)
{
    const struct node *x = &w->node[n];
    return x->back_at < 0 ||
           w->now - x->back_at >= sl_election_settings_default.silence_ms * 998;
}

static void check_claim(struct world *w, uint32_t n, const struct sl_election_order *x)
{
    uint32_t count = 0, k = w->book[x->term].node;
    struct sl_election_view v;
    CHECK(x->term <= w->engine.term && x->heartbeat <= w->engine.heartbeat);
    CHECK(!w->calm || x->term == 0);
    if (x->term == 0 || k == n) return;
    for (uint32_t a = 1; a <= w->nodes; a++)
        if (a != k && did_not_see(w, a, k)) count++;
    sl_election_view(w->node[n].election, &v);
    /* One that has not renewed at all has no beat that could be compared. */
    if (x->heartbeat != 0 || v.current.heartbeat == 0)
        CHECK(saw_silence(w, n) || (x->heartbeat == 0 && count > w->nodes / 2));
    else CHECK(count > w->nodes / 2);
    if (x->heartbeat != 0) w->by_beat++;
    else w->by_doubt++;
}

/* ---- the engine ---- */

static void submit(struct world *w, uint32_t n, struct op op)
{
    struct node *x = &w->node[n];
    assert_true(w->ops < OPS - 1);
    CHECK(op.type == COMMIT || !x->busy[op.type]); /* One of each kind at a time. */
    x->busy[op.type] = true;
    uint64_t number = ++w->ops;
    op.node = n;
    op.life = x->life;
    op.asked_ms = clock_ms(w, n);
    w->op[number] = op;
    if (x->engine_cut && x->engine_refuses && !w->patient) {
        w->op[number].done.status = SLUICE_EIO;
        later(w, delay(w, 100), (struct event){.type = ANSWER, .number = number});
        return;
    }
    later(w, delay(w, 2000), (struct event){.type = ARRIVES, .number = number});
    if (!w->patient)
        later(w, w->answer_ms * MS,
              (struct event){.type = NO_ANSWER, .number = number});
}

static void tell(struct world *w, uint32_t n, real in)
{
    struct node *x = &w->node[n];
    real at = w->now + in;
    if (x->engine_cut || !x->alive) return;
    if (at < x->told_at) at = x->told_at;
    x->told_at = at;
    later(
        w, at - w->now,
        (struct event){.type = TOLD, .node = n, .life = x->life, .current = w->engine});
}

static void tell_all(struct world *w)
{
    for (uint32_t n = 1; n <= w->nodes; n++) tell(w, n, delay(w, 1000));
}

static int apply_claim(struct world *w, struct op *op)
{
    struct sl_storage_term *e = &w->engine;
    op->done.term_record = *e;
    if (op->term != e->term || (op->beat != 0 && op->beat != e->heartbeat))
        return SLUICE_ESTALE;
    if (op->beat != 0)
        CHECK(w->now - w->beat_at >= sl_election_settings_default.silence_ms * 998);
    op->done.term_record.term = 0;
    op->done.term = ++e->term;
    e->node = op->node;
    w->beat_at = w->now;
    assert_true(e->term < TERMS);
    w->book[e->term] = (struct book){
        .node = op->node, .longest_ms = e->longest_ms, .may_end = -1, .may_begin = -1};
    w->terms++;
    show(w, "term %" PRIu64 " is of %u%s", e->term, e->node, op->beat ? " (beat)" : "");
    tell_all(w);
    return SLUICE_OK;
}

static int apply(struct world *w, struct op *op)
{
    struct sl_storage_term *e = &w->engine;
    op->done = (struct sl_storage_result){.term = e->term, .term_record = *e};
    if (op->type == LOOK) return SLUICE_OK;
    if (op->type == CLAIM) return apply_claim(w, op);
    if (op->term != e->term || op->node != e->node) return SLUICE_ESTALE;
    if (op->type == COMMIT) return SLUICE_OK;
    if (op < w->last_renewal) return SLUICE_EIO; /* Too late: it must not undo that. */
    w->last_renewal = op;
    e->heartbeat = ++w->revision;
    CHECK(op->longest_ms >= e->longest_ms);
    e->longest_ms = op->longest_ms;
    w->beat_at = w->now;
    tell_all(w);
    return SLUICE_OK;
}

/* A patient engine sends again what may be sent again, until it is answered. */
static void arrives(struct world *w, uint64_t number)
{
    struct op *op = &w->op[number];
    struct event again = {.type = ARRIVES, .number = number};
    bool is_cut = w->node[op->node].engine_cut;
    if (is_cut || is_lost(w)) {
        if (w->patient) later(w, between_ms(w, 50, 300), again);
        return;
    }
    op->done.status = apply(w, op);
    w->revision++;
    if (op->done.status == SLUICE_ESTALE && op->type == CLAIM) w->refused++;
    if (is_lost(w)) {
        if (!w->patient) return;
        if (op->type != CLAIM) {
            later(w, between_ms(w, 50, 300), again);
            return;
        }
        op->done.status = SLUICE_EIO;
    }
    later(w, delay(w, 2000), (struct event){.type = ANSWER, .number = number});
}

/* ---- elections ---- */

static void settle(struct world *w, uint32_t n);

static void tells_doubt(struct world *w, uint32_t n, const struct sl_election_order *x)
{
    for (uint32_t b = 1; b <= w->nodes; b++) {
        if (b == n || w->state[n][b] != LINK_UP || is_lost(w)) continue;
        later(w, delay(w, MESSAGE_MS),
              (struct event){.type = HEARS,
                             .node = b,
                             .life = w->node[b].life,
                             .other = n,
                             .number = x->term,
                             .sight = x->sight});
    }
}

static void leads(struct world *w, uint32_t n, const struct sl_election_order *x)
{
    struct book *b = &w->book[x->term];
    struct node *me = &w->node[n];
    CHECK(x->term <= w->engine.term && b->node == n && b->led_by == 0);
    CHECK(x->before.term == x->term - 1);
    CHECK(x->before.longest_ms == b->longest_ms);
    CHECK(x->term == 1 || x->before.node == w->book[x->term - 1].node);
    b->led_by = n;
    me->term = x->term;
    me->lead_ms = clock_ms(w, n);
    me->quiet_ms = x->quiet_ms;
    me->longest_ms = me->wish_ms = x->before.longest_ms;
    may_grant_from(w, x->term,
                   sim_clock_when(&me->clock, (me->lead_ms + me->quiet_ms) * MS));
    show(w, "%u leads %" PRIu64 ", quiet for %d", n, x->term, (int)x->quiet_ms);
}

static void obey(struct world *w, uint32_t n, const struct sl_election_order *x)
{
    struct node *me = &w->node[n];
    switch (x->type) {
        case SL_ELECTION_ORDER_READ_TERM:
            submit(w, n, (struct op){.type = LOOK});
            break;
        case SL_ELECTION_ORDER_CLAIM:
            show(w, "%u claims after %" PRIu64 " beat %" PRIu64, n, x->term,
                 x->heartbeat);
            check_claim(w, n, x);
            submit(w, n,
                   (struct op){.type = CLAIM, .term = x->term, .beat = x->heartbeat});
            break;
        case SL_ELECTION_ORDER_RENEW:
            submit(
                w, n,
                (struct op){.type = RENEW, .term = x->term, .longest_ms = me->wish_ms});
            break;
        case SL_ELECTION_ORDER_RESIGN: break;
        case SL_ELECTION_ORDER_DOUBT: tells_doubt(w, n, x); break;
        case SL_ELECTION_ORDER_LEAD: leads(w, n, x); break;
        case SL_ELECTION_ORDER_STOP:
            show(w, "%u stops %" PRIu64, n, x->term);
            CHECK(me->term == x->term);
            me->term = 0;
            w->deposed++;
            break;
        case SL_ELECTION_ORDER_KEEPER:
            me->keeper = x->node;
            me->keeper_term = x->term;
            break;
    }
}

/* What it orders is done; or, now and then, only when it is called the next time. */
static void settle(struct world *w, uint32_t n)
{
    struct node *x = &w->node[n];
    struct sl_election_order order;
    sl_election_check(x->election);
    if (!one_in(w, 10))
        while (sl_election_next(x->election, &order)) obey(w, n, &order);
    count_on(w, n);
    sl_ms due = sl_election_due(x->election);
    if (due == SL_NEVER) return;
    real at = sim_clock_when(&x->clock, due * MS);
    if (at < w->now) at = w->now;
    later(
        w, at - w->now + sl_random_between(&w->random, 0, 2 * MS),
        (struct event){.type = TICK, .node = n, .life = x->life, .number = ++x->ticks});
}

static void ticks(struct world *w, uint32_t n)
{
    struct node *x = &w->node[n];
    struct sl_election_order order;
    sl_ms now = clock_ms(w, n);
    sl_election_tick(x->election, now);
    while (sl_election_next(x->election, &order)) obey(w, n, &order);
    CHECK(sl_election_due(x->election) > now);
    settle(w, n);
}

static void answered(struct world *w, uint64_t number, bool in_time)
{
    struct op *op = &w->op[number];
    struct node *x = &w->node[op->node];
    sl_ms now = clock_ms(w, op->node);
    if (op->answered || !x->alive || op->life != x->life) return;
    if (in_time && x->engine_cut && op->done.status != SLUICE_EIO) {
        if (w->patient)
            later(w, between_ms(w, 50, 300),
                  (struct event){.type = ANSWER, .number = number});
        return;
    }
    op->answered = true;
    x->busy[op->type] = false;
    if (!in_time) op->done = (struct sl_storage_result){.status = SLUICE_EIO};
    switch (op->type) {
        case LOOK:
            sl_election_term_read(x->election, now, op->asked_ms, &op->done);
            break;
        case CLAIM:
            sl_election_claimed(x->election, now, op->asked_ms, &op->done);
            break;
        case RENEW:
            if (op->done.status == SLUICE_OK && op->term == x->term)
                x->longest_ms = op->longest_ms;
            sl_election_renewed(x->election, now, op->asked_ms, op->term, &op->done);
            break;
        case COMMIT:
            if (op->done.status == SLUICE_ESTALE)
                sl_election_refused(x->election, now, op->done.term);
            break;
    }
    settle(w, op->node);
}

/* ---- links ---- */

static void note_sight(struct world *w, uint32_t a, uint32_t b,
                       enum sl_peer_state sight)
{
    struct link *l = &w->link[a][b];
    sl_ms silence = sl_election_settings_default.silence_ms;
    if (l->sight == SL_PEER_CLOSED) l->closed = w->now;
    if (l->sight != SL_PEER_UP && w->now - l->left_up >= silence * 997)
        l->long_silent = w->now;
    if (l->sight == SL_PEER_UP || sight == SL_PEER_UP) l->left_up = w->now;
    l->sight = sight;
}

static void will_see(struct world *w, uint32_t a, uint32_t b, enum sl_peer_state sight,
                     real in)
{
    later(w, in,
          (struct event){.type = SEES,
                         .node = a,
                         .life = w->node[a].life,
                         .other = b,
                         .number = w->link[a][b].epoch,
                         .sight = sight});
}

/* Something has happened to the link of a with b: what will a see? */
static void changes(struct world *w, uint32_t a, uint32_t b)
{
    if (a == b || !w->node[a].alive) return;
    w->link[a][b].epoch++;
    if (w->state[a][b] == LINK_CLOSED ||
        (w->state[a][b] == LINK_UP && !w->node[b].alive))
        will_see(w, a, b, SL_PEER_CLOSED, between_ms(w, 1, 30));
    else if (w->state[a][b] == LINK_CUT || w->node[b].asleep > w->now) {
        will_see(w, a, b, SL_PEER_SILENT, between_ms(w, 500, 1500));
        if (one_in(w, 3)) will_see(w, a, b, SL_PEER_CLOSED, between_ms(w, 2000, 4000));
    } else will_see(w, a, b, SL_PEER_UP, between_ms(w, 1, 200));
}

static void all_see(struct world *w, uint32_t b)
{
    for (uint32_t a = 1; a <= w->nodes; a++) changes(w, a, b);
}

static void set_link(struct world *w, uint32_t a, uint32_t b, enum link_state state)
{
    if (a == b) return;
    w->state[a][b] = w->state[b][a] = state;
    changes(w, a, b), changes(w, b, a);
}

/* ---- life and death ---- */

static void starts(struct world *w, uint32_t n)
{
    struct node *x = &w->node[n];
    uint32_t ids[NODES];
    struct sl_election_settings s = sl_election_settings_default;
    sl_ms now = clock_ms(w, n);
    show(w, "%u starts", n);
    s.self = n;
    x->alive = true;
    x->life++;
    x->asleep = x->told_at = 0;
    memset(x->busy, 0, sizeof x->busy);
    x->keeper = 0, x->keeper_term = x->term = 0;
    x->election = sl_election_new(&s, now);
    for (uint32_t i = 0; i < w->nodes; i++) ids[i] = i + 1;
    sl_election_members(x->election, now, ids, w->nodes);
    for (uint32_t b = 1; b <= w->nodes; b++) {
        note_sight(w, n, b, SL_PEER_UP), note_sight(w, n, b, SL_PEER_SILENT);
        changes(w, n, b);
    }
    all_see(w, n);
    tell(w, n, delay(w, 1000));
    settle(w, n);
    later(w, between_ms(w, 1, 300),
          (struct event){.type = WORKS, .node = n, .life = x->life});
}

static void dies(struct world *w, uint32_t n)
{
    struct node *x = &w->node[n];
    if (!x->alive) return;
    show(w, "%u dies", n);
    x->alive = false;
    x->term = 0;
    sl_election_free(x->election);
    x->election = NULL;
    all_see(w, n);
}

/* ---- what a node does ---- */

static void works(struct world *w, uint32_t n)
{
    static const sl_ms leases[] = {500, 2000, 5000, LONGEST_MS};
    struct node *x = &w->node[n];
    struct sl_election_view v;
    sl_ms now = clock_ms(w, n), lease = leases[sl_random_below(&w->random, 4)];
    sl_election_view(x->election, &v);
    if (x->term == 0) {
        if (one_in(w, 3)) sl_election_read_soon(x->election, now);
    } else if (one_in(w, 4)) {
        submit(w, n, (struct op){.type = COMMIT, .term = x->term});
    } else if (lease > x->longest_ms) {
        if (lease > x->wish_ms) x->wish_ms = lease;
        sl_election_hurries(x->election, now);
    } else if (v.state == SL_ELECTION_LEADING && now < v.authority_end_ms &&
               now >= x->lead_ms + x->quiet_ms) {
        grants(w, x->term, sim_clock_when(&x->clock, (now + lease) * MS));
    }
    settle(w, n);
    later(w, between_ms(w, 20, 300),
          (struct event){.type = WORKS, .node = n, .life = x->life});
}

/* ---- faults ---- */

static void cut_engine(struct world *w, uint32_t n, real in, bool refuses)
{
    struct node *x = &w->node[n];
    if (x->engine_cut) return;
    show(w, "%u does not reach the engine for %d ms", n, (int)(in / MS));
    x->engine_cut = true;
    x->engine_refuses = refuses;
    x->cut_at = w->now;
    later(w, in, (struct event){.type = ENGINE_BACK, .other = n});
}

static void engine_back(struct world *w, uint32_t n)
{
    struct node *x = &w->node[n];
    if (!x->engine_cut) return;
    show(w, "%u reaches the engine", n);
    x->engine_cut = false;
    x->back_at = w->now - x->cut_at > 2100 * MS ? w->now : -1;
    tell(w, n, delay(w, 1000));
}

static void break_link(struct world *w, uint32_t a, uint32_t b, real in)
{
    if (a == b || w->state[a][b] != LINK_UP) return;
    show(w, "%u and %u are apart for %d ms", a, b, (int)(in / MS));
    set_link(w, a, b, one_in(w, 2) ? LINK_CUT : LINK_CLOSED);
    later(w, in, (struct event){.type = LINK_BACK, .other = a, .number = b});
}

static void sleeps(struct world *w, uint32_t n, real in)
{
    struct node *x = &w->node[n];
    if (!x->alive || x->asleep > w->now) return;
    show(w, "%u sleeps for %d ms", n, (int)(in / MS));
    x->asleep = w->now + in;
    all_see(w, n);
    later(w, in, (struct event){.type = WAKES, .other = n});
}

static void kill_for(struct world *w, uint32_t n, real in)
{
    if (!w->node[n].alive) return;
    dies(w, n);
    later(w, in, (struct event){.type = RESTARTS, .other = n});
}

static void fault(struct world *w)
{
    uint32_t n = 1 + sl_random_below(&w->random, w->nodes);
    uint32_t other = 1 + sl_random_below(&w->random, w->nodes);
    bool refuses = one_in(w, 2);
    real in = between_ms(w, 100, 9000);
    if (one_in(w, 2) && w->engine.node != 0) n = w->engine.node;
    switch (sl_random_below(&w->random, 7)) {
        case 0:
        case 1: break_link(w, n, other, in); break;
        case 2:
            for (uint32_t b = 1; b <= w->nodes; b++) break_link(w, n, b, in);
            break;
        case 3: cut_engine(w, n, in, refuses); break;
        case 4:
            for (uint32_t b = 1; b <= w->nodes; b++) cut_engine(w, b, in, refuses);
            break;
        case 5:
            if (w->sleeps) sleeps(w, n, between_ms(w, 100, SLEEP_MS));
            break;
        case 6: kill_for(w, n, between_ms(w, 10, 5000)); break;
        default: break;
    }
}

/* The keeper is well, and is seen by a majority of nodes: all but one of three. */
static void calm_fault(struct world *w)
{
    uint32_t k = w->engine.node, cut = k % w->nodes + 1, n = cut % w->nodes + 1;
    bool refuses = one_in(w, 2);
    real in = between_ms(w, 100, 9000);
    if (k == 0 || w->node[k].term == 0) return;
    switch (sl_random_below(&w->random, 4)) {
        case 0: break_link(w, k, cut, in); break;
        case 1: /* Not so soon again that it would be away all the time. */
            for (uint32_t b = 1; b <= w->nodes; b++)
                if (w->now - w->node[b].cut_at > 15000 * MS)
                    cut_engine(w, b, in, refuses);
            break;
        case 2: sleeps(w, n, in); break;
        case 3: kill_for(w, n, in); break;
        default: break;
    }
}

static void heals(struct world *w)
{
    show(w, "all is well");
    w->healed = true;
    for (uint32_t n = 1; n <= w->nodes; n++) {
        w->node[n].asleep = 0;
        if (!w->node[n].alive) starts(w, n);
        engine_back(w, n);
    }
    for (uint32_t a = 1; a <= w->nodes; a++)
        for (uint32_t b = 1; b < a; b++) set_link(w, a, b, LINK_UP);
}

/* One keeper, and all know it. */
static void check_peace(struct world *w)
{
    uint32_t k = w->engine.node;
    struct sl_election_view v;
    CHECK(k != 0 && w->node[k].term == w->engine.term);
    sl_election_view(w->node[k].election, &v);
    CHECK(v.state == SL_ELECTION_LEADING && clock_ms(w, k) < v.authority_end_ms);
    for (uint32_t n = 1; n <= w->nodes; n++) {
        CHECK(w->node[n].keeper == k && w->node[n].keeper_term == w->engine.term);
        CHECK(n == k || w->node[n].term == 0);
    }
    if (w->healed_term == 0) w->healed_term = w->engine.term;
    else CHECK(w->book[w->engine.term].granted);
    CHECK(w->healed_term == w->engine.term);
    CHECK(!w->calm || w->engine.term == 1);
}

/* ---- a world ---- */

/* What concerns a node that is asleep waits until it wakes, in its order. */
static bool waits(struct world *w, const struct event *e)
{
    uint32_t n = e->type == ANSWER || e->type == NO_ANSWER ? w->op[e->number].node
                                                           : e->node;
    real until = n == 0 ? 0 : w->node[n].asleep;
    if (until <= w->now) return false;
    struct event again = *e;
    again.at = until;
    push(w, again);
    return true;
}

static void happens(struct world *w, const struct event *e)
{
    struct node *x = &w->node[e->node];
    if (waits(w, e)) return;
    if (e->node != 0 && (!x->alive || x->life != e->life)) return;
    switch (e->type) {
        case TICK:
            if (e->number == x->ticks) ticks(w, e->node);
            break;
        case ARRIVES: arrives(w, e->number); break;
        case ANSWER: answered(w, e->number, true); break;
        case NO_ANSWER: answered(w, e->number, false); break;
        case TOLD:
            if (x->engine_cut) break;
            sl_election_term_changed(x->election, clock_ms(w, e->node), &e->current);
            settle(w, e->node);
            break;
        case SEES:
            if (e->number != w->link[e->node][e->other].epoch) break;
            note_sight(w, e->node, e->other, e->sight);
            sl_election_peer_changed(x->election, clock_ms(w, e->node), e->other,
                                     e->sight);
            settle(w, e->node);
            break;
        case HEARS:
            sl_election_peer_doubts(x->election, clock_ms(w, e->node), e->other,
                                    e->number, e->sight);
            settle(w, e->node);
            break;
        case WORKS: works(w, e->node); break;
        case FAULT:
            if (w->healed) break;
            if (w->calm) calm_fault(w);
            else fault(w);
            later(w, between_ms(w, 10, w->fault_ms), *e);
            break;
        case LINK_BACK:
            if (!w->healed) set_link(w, e->other, (uint32_t)e->number, LINK_UP);
            break;
        case ENGINE_BACK: engine_back(w, e->other); break;
        case RESTARTS:
            if (!w->node[e->other].alive) starts(w, e->other);
            break;
        case WAKES:
            show(w, "%u wakes", e->other);
            all_see(w, e->other);
            break;
        case HEALS: heals(w); break;
        case LOOKED_AT: check_peace(w); break;
    }
}

static int64_t rate(struct world *w)
{
    static const int64_t ends[] = {-SIM_DRIFT_PPM, 0, SIM_DRIFT_PPM};
    return ends[sl_random_below(&w->random, 3)];
}

static void begin(struct world *w, uint64_t number)
{
    sl_random_seed(&w->random, history.seed * 1000003 + number);
    w->now = 0;
    w->nodes = one_in(w, 2) ? 3 : 5;
    w->calm = number % 4 == 3;
    w->patient = one_in(w, 3);
    w->sleeps = w->calm || one_in(w, 2);
    w->healed = false;
    w->healed_term = 0;
    w->engine = (struct sl_storage_term){0};
    w->revision = 0;
    w->ops = w->turns = 0;
    w->last_renewal = w->op;
    w->events = 0;
    w->loss = w->calm || one_in(w, 3)
                  ? 0
                  : (uint32_t)sl_random_between(&w->random, 10, 500);
    w->answer_ms = w->calm ? 500 : sl_random_between(&w->random, 300, 3000);
    w->fault_ms = sl_random_between(&w->random, 500, 6000);
    memset(w->link, 0, sizeof w->link);
    memset(w->state, 0, sizeof w->state);
    memset(w->book, 0, sizeof w->book);
    for (uint32_t n = 1; n <= w->nodes; n++) {
        w->node[n] = (struct node){
            .clock = {.began_us = sl_random_between(&w->random, 0, 1000000 * MS),
                      .ppm = rate(w)},
            .cut_at = -15000 * MS,
            .back_at = -1};
        for (uint32_t b = 1; b <= w->nodes; b++)
            w->link[n][b].closed = w->link[n][b].long_silent = -1;
    }
}

static void play(uint64_t number)
{
    struct world *w = &world;
    begin(w, number);
    show(w, "%u nodes%s%s", w->nodes, w->calm ? ", calm" : "",
         w->patient ? ", patient" : "");
    for (uint32_t n = 1; n <= w->nodes; n++) starts(w, n);
    later(w, between_ms(w, 500, 3000), (struct event){.type = FAULT});
    later(w, FAULTS_MS * MS, (struct event){.type = HEALS});
    later(w, (FAULTS_MS + HEALED_MS) * MS, (struct event){.type = LOOKED_AT});
    later(w, END_MS * MS - 1, (struct event){.type = LOOKED_AT});
    while (w->heap[0].at < END_MS * MS) {
        struct event e = pop(w);
        w->now = e.at;
        happens(w, &e);
    }
    for (uint32_t n = 1; n <= w->nodes; n++) sl_election_free(w->node[n].election);
}

UNIT_TEST(one_keeper_at_a_time)
{
    struct world *w = &world;
    bool all = play_histories("test_election_random", CLUSTERS, play);
    printf("# %" PRIu64 " terms, %" PRIu64 " grants; claims: %" PRIu64
           " for doubts, %" PRIu64 " for silence, %" PRIu64 " refused; %" PRIu64
           " deposed\n",
           w->terms, w->grants, w->by_doubt, w->by_beat, w->refused, w->deposed);
    if (!all) return;
    /* Otherwise the histories tried too little. */
    assert_true(w->terms > 3000 && w->grants > 10000 && w->by_doubt > 1000 &&
                w->by_beat > 200 && w->refused > 200 && w->deposed > 200);
}

int main(void)
{
    return run_unit_tests("election_random");
}
