/* test_steal_random.c - random holders, thieves, releases, departures and expiries: after
 * each step the holders that are asked to release are those that the definition names.
 *
 * history.h says how to choose and replay histories. The definition, computed here as simply as
 * possible from what sl_table_each() shows:
 *
 *   A waiter is held back by a waiter of higher priority; and by an earlier one of the same
 *   priority, unless it declares a higher capacity. The thief is the first waiter, by priority
 *   and then by arrival, that steals and is not held back. Its victims are holders of lower
 *   priority and of other sessions, lowest priority and then newest first: as few as possible
 *   so that the thief would fit without them; none, if it would not fit without all of them.
 *
 * Besides: each holder is told of a change once, freed capacity does not pass the thief, no
 * waiter could be granted, and a grant is marked as overlapping if and only if it does not
 * fit. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "history.h"

#include "locks/table.h"

enum {
    KEYS = 2,
    SESSIONS = 10,
    GRANTS = 64,
    VIEWS = 96,
    STEPS = 250,
    HISTORIES = 2000
};

/* ---- what is known ---- */

enum told { NOTHING, ASKED, STOLEN };

struct grant {
    sl_fence fence; /* 0: none. */
    int key;
    bool leased, broken;
    enum told told; /* The last that its holder heard. */
    sl_ms asked_at;
};

struct waiter {
    bool waits;
    int key;
    uint64_t arrival;
    sl_ms force_at; /* SL_NEVER: it never enters by force. */
};

struct world {
    struct sl_table *table;
    struct sl_now now;
    sl_ms grain_ms;
    struct sl_session session[SESSIONS];
    struct waiter waiter[SESSIONS];
    struct grant grant[GRANTS];
    uint64_t ids, arrivals;
    uint32_t ending; /* Sessions that have ended and are not over. */
    bool settled;    /* Nothing more follows from what was done. */
    int robber_key;  /* A thief has entered by force: its victims are told next. -1. */
    uint64_t asks, withdrawals, thefts, grants;
};

static struct world world;

static const struct sl_bytes keys[KEYS] = {{"one", 3}, {"two", 3}};

#define SHOW(...)                                    \
    do {                                             \
        if (history.shown) printf("# " __VA_ARGS__); \
    } while (0)

static struct grant *grant_of(struct world *w, sl_fence fence)
{
    for (int i = 0; i < GRANTS; i++)
        if (w->grant[i].fence == fence) return &w->grant[i];
    return NULL;
}

/* The session of an id that is in use; -1: there is none. */
static int session_of(const struct world *w, uint64_t id)
{
    for (int i = 0; i < SESSIONS; i++)
        if (w->session[i].id == id) return i;
    return -1;
}

static int key_of(struct sl_bytes key)
{
    return memcmp(key.at, keys[0].at, key.n) == 0 ? 0 : 1;
}

/* ---- the definition ---- */

struct scene {
    struct sl_grant_view holder[VIEWS], waiter[VIEWS];
    uint64_t arrival[VIEWS]; /* Of the waiters. */
    sl_ms force_at[VIEWS];
    int holders, waiters;
    int thief; /* Among the waiters; -1: there is no reservation. */
    bool asked[VIEWS];
};

static uint64_t room_of(const struct sl_grant_view *v)
{
    return v->shared ? 0 : (uint64_t)v->per * v->buckets;
}

static bool is_held_back(const struct scene *s, int i)
{
    const struct sl_grant_view *w = &s->waiter[i];
    for (int j = 0; j < s->waiters; j++) {
        const struct sl_grant_view *v = &s->waiter[j];
        if (v->priority > w->priority) return true;
        if (v->priority < w->priority || s->arrival[j] >= s->arrival[i]) continue;
        if (v->shared || w->shared || room_of(w) <= room_of(v)) return true;
    }
    return false;
}

/* In addition to holders that are not gone. */
static bool would_fit(const struct scene *s, const struct sl_grant_view *w,
                      const bool *gone)
{
    uint64_t held = 0, shared = 0;
    for (int i = 0; i < s->holders; i++) {
        if (gone[i]) continue;
        if (s->holder[i].shared) shared++;
        else held += s->holder[i].units;
    }
    if (w->shared) return held == 0;
    return shared == 0 && held + w->units <= room_of(w);
}

/* The next to be asked; -1: there is none. */
static int lowest(const struct scene *s, const struct sl_grant_view *thief)
{
    int found = -1;
    for (int i = 0; i < s->holders; i++) {
        const struct sl_grant_view *h = &s->holder[i];
        if (s->asked[i] || h->priority >= thief->priority ||
            h->session_id == thief->session_id)
            continue;
        const struct sl_grant_view *f = &s->holder[found < 0 ? i : found];
        if (h->priority < f->priority ||
            (h->priority == f->priority && h->fence >= f->fence))
            found = i;
    }
    return found;
}

static bool is_before(const struct scene *s, int a, int b)
{
    if (s->waiter[a].priority != s->waiter[b].priority)
        return s->waiter[a].priority > s->waiter[b].priority;
    return s->arrival[a] < s->arrival[b];
}

static void find_victims(struct scene *s)
{
    int thief = -1;
    for (int i = 0; i < s->waiters; i++)
        if (s->waiter[i].steals && !is_held_back(s, i) &&
            (thief < 0 || is_before(s, i, thief)))
            thief = i;
    s->thief = -1;
    if (thief < 0 || would_fit(s, &s->waiter[thief], s->asked)) return;
    for (;;) {
        int i = lowest(s, &s->waiter[thief]);
        if (i < 0) break;
        s->asked[i] = true;
        if (!would_fit(s, &s->waiter[thief], s->asked)) continue;
        s->thief = thief;
        return;
    }
    memset(s->asked, 0, sizeof s->asked); /* All together do not suffice. */
}

static void look(struct world *w, int key, struct scene *s)
{
    struct sl_grant_view v;
    uint64_t cursor = 0;
    memset(s, 0, sizeof *s);
    while (sl_table_each(w->table, w->now, keys[key], &cursor, &v)) {
        assert_true(s->holders < VIEWS && s->waiters < VIEWS);
        if (!v.waits) {
            s->holder[s->holders++] = v;
            continue;
        }
        int who = session_of(w, v.session_id);
        assert_true(who >= 0);
        s->arrival[s->waiters] = w->waiter[who].arrival;
        s->force_at[s->waiters] = w->waiter[who].force_at;
        s->waiter[s->waiters++] = v;
    }
    find_victims(s);
}

/* ---- what is compared with it ---- */

static void compare_holders(struct world *w, const struct scene *s,
                            const struct sl_lock_view *l)
{
    uint32_t asked = 0;
    for (int i = 0; i < s->holders; i++) {
        const struct grant *g = grant_of(w, s->holder[i].fence);
        CHECK(g != NULL);
        CHECK(s->holder[i].asked == (g->told != NOTHING));
        if (g->told == STOLEN) continue; /* That is not taken back. */
        if (s->asked[i] != (g->told == ASKED))
            SHOW("fence %" PRIu64 ": %s asked\n", g->fence,
                 s->asked[i] ? "should be" : "should not be");
        CHECK(s->asked[i] == (g->told == ASKED));
        asked += g->told == ASKED;
    }
    CHECK(l->asked == asked);
}

/* Once nothing more follows. */
static void compare(struct world *w, int key)
{
    static struct scene s;
    static const bool none[VIEWS];
    struct sl_lock_view l = {0};
    look(w, key, &s);
    sl_table_inspect(w->table, w->now, keys[key], &l);
    compare_holders(w, &s, &l);
    CHECK(l.reserved == (s.thief >= 0));
    if (s.thief >= 0) {
        CHECK(l.reserved_priority == s.waiter[s.thief].priority);
        CHECK(s.force_at[s.thief] > w->now.ms); /* Else it would be in. */
    }
    for (int i = 0; i < s.waiters; i++) {
        bool kept = is_held_back(&s, i) ||
                    (s.thief >= 0 &&
                     s.waiter[i].priority <= s.waiter[s.thief].priority);
        CHECK(kept || !would_fit(&s, &s.waiter[i], none));
    }
}

/* ---- what is told ---- */

/* A grant has begun: `before` is how the key was. The reservation is looked at only if
 * everybody is known to be there who seems to be. */
static void granted(struct world *w, int key, int who, const struct sl_grant *g,
                    const struct scene *before, bool sure)
{
    static struct scene s;
    static bool alone[VIEWS];
    int mine = -1;
    look(w, key, &s);
    for (int i = 0; i < s.holders; i++) {
        alone[i] = s.holder[i].fence == g->fence;
        if (alone[i]) mine = i;
    }
    CHECK(mine >= 0);
    CHECK(g->overlapping == !would_fit(&s, &s.holder[mine], alone));
    if (g->overlapping) {
        CHECK(w->waiter[who].force_at <= w->now.ms);
        w->robber_key = key;
    }
    if (sure && before->thief >= 0 &&
        before->waiter[before->thief].session_id != w->session[who].id)
        CHECK(s.holder[mine].priority > before->waiter[before->thief].priority);
    struct grant *new = grant_of(w, 0);
    CHECK(new != NULL);
    *new = (struct grant){
        .fence = g->fence, .key = key, .leased = s.holder[mine].leased};
    w->waiter[who].waits = false;
    w->grants++;
}

static void ended(struct world *w, const struct sl_ended *p)
{
    struct grant *g = grant_of(w, p->fence);
    CHECK(g != NULL);
    CHECK(p->asked_ms == (g->told == ASKED ? w->now.ms - g->asked_at : -1));
    CHECK(p->broken == g->broken);
    g->fence = 0;
}

static void asked(struct world *w, const struct sl_effect *e,
                  const struct scene *before)
{
    struct grant *g = grant_of(w, e->past.fence);
    CHECK(g != NULL && g->told == NOTHING);
    g->told = ASKED;
    g->asked_at = w->now.ms;
    w->asks++;
    for (int i = 0; i < before->holders; i++) {
        const struct sl_grant_view *h = &before->holder[i];
        if (h->fence != e->past.fence) continue;
        CHECK(e->left_ms == h->left_ms && e->past.session_id == h->session_id);
        CHECK(e->note.n == h->note.n);
        CHECK(e->note.n == 0 || memcmp(e->note.at, "note", e->note.n) == 0);
        CHECK(e->priority > h->priority);
    }
}

static void withdrawn(struct world *w, const struct sl_effect *e)
{
    struct grant *g = grant_of(w, e->past.fence);
    CHECK(g != NULL && g->told == ASKED);
    g->told = NOTHING;
    w->withdrawals++;
}

static void stolen(struct world *w, const struct sl_effect *e)
{
    struct grant *g = grant_of(w, e->past.fence);
    CHECK(g != NULL && g->told == ASKED && w->robber_key == g->key);
    g->told = STOLEN;
    w->thefts++;
}

/* Nothing comes between a grant by force and those whom it robs. */
static void check_robbed(struct world *w, enum sl_effect_type type)
{
    if (w->robber_key < 0 || type == SL_EFFECT_STOLEN) return;
    for (int i = 0; i < GRANTS; i++)
        CHECK(w->grant[i].fence == 0 || w->grant[i].key != w->robber_key ||
              w->grant[i].told != ASKED);
    w->robber_key = -1;
}

/* Whether all who wait are there still, if somebody is granted something now. */
static bool is_sure(const struct world *w, const struct scene *s)
{
    if (w->ending > 0) return false;
    for (int i = 0; i < s->waiters; i++)
        if (s->waiter[i].left_ms == 0) return false;
    return true;
}

static void told(struct world *w, const struct sl_effect *e,
                 const struct scene before[KEYS])
{
    static const char *const names[] = {
        [SL_EFFECT_GRANTED] = "granted",     [SL_EFFECT_TIMED_OUT] = "timed out",
        [SL_EFFECT_EXPIRED] = "expired",     [SL_EFFECT_ENDED] = "ended",
        [SL_EFFECT_REFUSED] = "refused",     [SL_EFFECT_ASKED] = "asked",
        [SL_EFFECT_WITHDRAWN] = "withdrawn", [SL_EFFECT_STOLEN] = "stolen",
        [SL_EFFECT_SESSION_OVER] = "over"};
    if (e->type == SL_EFFECT_NOTHING || e->type == SL_EFFECT_THIEF_WAITS) return;
    int who = e->session == NULL ? -1 : (int)(e->session - w->session);
    int key = e->type == SL_EFFECT_SESSION_OVER ? 0 : key_of(e->key);
    SHOW("      %s %s session %d fence %" PRIu64 "\n", keys[key].at, names[e->type],
         who, e->type == SL_EFFECT_GRANTED ? e->grant.fence : e->past.fence);
    check_robbed(w, e->type);
    switch (e->type) {
        case SL_EFFECT_NOTHING:
        case SL_EFFECT_THIEF_WAITS: break;
        case SL_EFFECT_GRANTED:
            granted(w, key, who, &e->grant, &before[key], is_sure(w, &before[key]));
            break;
        case SL_EFFECT_TIMED_OUT:
        case SL_EFFECT_REFUSED: w->waiter[who].waits = false; break;
        case SL_EFFECT_EXPIRED:
        case SL_EFFECT_ENDED: ended(w, &e->past); break;
        case SL_EFFECT_ASKED: asked(w, e, &before[key]); break;
        case SL_EFFECT_WITHDRAWN: withdrawn(w, e); break;
        case SL_EFFECT_STOLEN: stolen(w, e); break;
        case SL_EFFECT_CANCELLED:
        case SL_EFFECT_SEEN: fail(); break;
        case SL_EFFECT_SESSION_OVER:
            w->ending--;
            sl_session_begin(&w->session[who], ++w->ids, 1);
            w->waiter[who].waits = false;
            break;
    }
}

static void settle(struct world *w)
{
    static struct scene before[KEYS];
    struct sl_effect e;
    for (;;) {
        for (int key = 0; key < KEYS; key++) look(w, key, &before[key]);
        if (!sl_table_next(w->table, w->now, &e)) break;
        told(w, &e, before);
    }
    check_robbed(w, SL_EFFECT_SESSION_OVER);
    sl_table_check(w->table);
    for (int key = 0; key < KEYS; key++) compare(w, key);
}

/* ---- what is done ---- */

static struct sl_want any_want(void)
{
    struct sl_want want = {.shared = draw_one_in(4),
                           .per = 1 + draw_below(4),
                           .buckets = 1 + draw_below(2),
                           .priority = (int32_t)draw_below(5) - 2,
                           .wait_ms = draw_one_in(5) ? 0 : 1 + draw_below(60),
                           .lease_ms = draw_one_in(3) ? 0 : 1 + draw_below(80),
                           .steal = !draw_one_in(3),
                           .force_ms = SL_NEVER};
    if (draw_one_in(3)) want.per = want.buckets = 1;
    if (draw_one_in(6)) want.wait_ms = SL_NEVER;
    if (draw_one_in(2)) want.note = (struct sl_bytes){"note", 4};
    want.units = draw_one_in(2) ? 1 : 1 + draw_below(want.per * want.buckets);
    if (draw_one_in(4)) want.force_ms = draw_one_in(3) ? 0 : draw_below(40);
    return want;
}

static bool has_place(struct world *w)
{
    int free = 0;
    for (int i = 0; i < GRANTS; i++) free += w->grant[i].fence == 0;
    return free > SESSIONS + 1; /* Every waiter may be granted. */
}

static void acquire(struct world *w)
{
    static struct scene before;
    int who = (int)draw_below(SESSIONS), key = (int)draw_below(KEYS);
    struct sl_want want = any_want();
    struct sl_grant g;
    if (w->waiter[who].waits || !has_place(w)) return;
    look(w, key, &before);
    want.key = keys[key];
    int status = sl_table_acquire(w->table, w->now, &w->session[who], &want, &g);
    SHOW("session %d %s%s per %u buckets %u units %u priority %d wait %" PRId64
         " lease %" PRId64 "%s force %" PRId64 ": %d\n",
         who, keys[key].at, want.shared ? " shared" : "", want.per, want.buckets,
         want.units, want.priority, want.wait_ms, want.lease_ms,
         want.steal ? " steals" : "", want.force_ms, status);
    if (status == SLUICE_OK) {
        CHECK(!g.overlapping);
        granted(w, key, who, &g, &before, w->settled);
    } else if (status == SL_WAITS) {
        sl_ms force = sl_ms_after(w->now.ms, want.force_ms);
        if (want.force_ms > 0) force = sl_ms_after(force, w->grain_ms);
        w->waiter[who] = (struct waiter){.waits = true,
                                         .key = key,
                                         .arrival = ++w->arrivals,
                                         .force_at = want.steal ? force : SL_NEVER};
    } else
        CHECK(status == SLUICE_EFULL || status == SLUICE_EDEADLOCK ||
              status == SLUICE_EDRAINED);
}

/* A grant that is held, or NULL. */
static struct grant *any_grant(struct world *w)
{
    for (uint32_t i = draw_below(GRANTS), n = 0; n < GRANTS;
         n++, i = (i + 1) % GRANTS) {
        struct grant *g = &w->grant[i];
        if (g->fence != 0 && sl_table_holds(w->table, w->now, keys[g->key], g->fence))
            return g;
    }
    return NULL;
}

static void release(struct world *w)
{
    struct grant *g = any_grant(w);
    struct sl_ended past;
    if (g == NULL) return;
    for (int i = 0; i < SESSIONS; i++) { /* One of them may. */
        if (sl_table_release(w->table, w->now, &w->session[i], keys[g->key], g->fence,
                             &past) != 1)
            continue;
        SHOW("release %s %" PRIu64 "\n", keys[g->key].at, g->fence);
        ended(w, &past);
        return;
    }
    fail();
}

static void extend(struct world *w)
{
    const struct sl_bytes none = {0};
    struct grant *g = any_grant(w);
    sl_ms left;
    if (g == NULL || !g->leased) return;
    int status = sl_table_extend(w->table, w->now, &w->session[0], keys[g->key],
                                 g->fence, 1 + draw_below(80), none, &left);
    SHOW("extend %s %" PRIu64 ": %d\n", keys[g->key].at, g->fence, status);
    if (g->told != NOTHING) CHECK(status == SLUICE_EASKED || g->broken);
    else CHECK(status == (g->broken ? SLUICE_ELOST : SLUICE_OK));
}

/* Its lease is its last. */
static void break_one(struct world *w)
{
    struct grant *g = any_grant(w);
    struct sl_ended past;
    if (g == NULL || !g->leased) return;
    SHOW("break %s %" PRIu64 "\n", keys[g->key].at, g->fence);
    CHECK(sl_table_break(w->table, w->now, keys[g->key], g->fence, false, &past) == 1);
    g->broken = true;
}

static void leave(struct world *w)
{
    int who = (int)draw_below(SESSIONS);
    if (draw_one_in(2)) {
        SHOW("session %d withdraws\n", who);
        sl_table_withdraw(w->table, &w->session[who]);
        w->waiter[who].waits = false;
        return;
    }
    SHOW("session %d ends\n", who);
    sl_table_session_end(w->table, &w->session[who]);
    w->ending++;
}

static void pass(struct world *w)
{
    sl_ms ms = 1 + draw_below(draw_one_in(4) ? 60 : 8);
    w->now.ms += ms;
    w->now.wall_us += (uint64_t)ms * 1000;
    SHOW("[%" PRId64 "]\n", w->now.ms);
}

static void drain(struct world *w)
{
    int key = (int)draw_below(KEYS);
    SHOW("drain %s\n", keys[key].at);
    if (sl_table_drain(w->table, keys[key], true) == SLUICE_OK) settle(w);
    sl_table_drain(w->table, keys[key], false);
}

static void step(struct world *w)
{
    uint32_t what = draw_below(100);
    if (what < 50) acquire(w);
    else if (what < 68) release(w);
    else if (what < 76) extend(w);
    else if (what < 78) break_one(w);
    else if (what < 84) leave(w);
    else if (what < 85) drain(w);
    else pass(w);
    /* What follows is mostly asked for at once, as the server does; but a caller may stop
     * early and return. */
    w->settled = !draw_one_in(8) || w->ending > 0;
    if (w->settled) settle(w);
}

static void play(uint64_t number)
{
    struct world *w = &world;
    const struct sl_table_limits limits = {.keys_max = 10,
                                           .waiters_max = 100,
                                           .key_bytes_max = 10,
                                           .value_bytes_max = 10,
                                           .drains_max = 2,
                                           .grain_ms = (sl_ms)(number % 2)};
    w->grain_ms = limits.grain_ms;
    w->table = sl_table_new(&limits, (struct sl_hash_key){draw(&history.chance), 0});
    w->now = (struct sl_now){0, 1000};
    w->robber_key = -1;
    memset(w->grant, 0, sizeof w->grant);
    memset(w->waiter, 0, sizeof w->waiter);
    for (int i = 0; i < SESSIONS; i++) sl_session_begin(&w->session[i], ++w->ids, 1);
    for (int i = 0; i < STEPS; i++) step(w);
    settle(w);
    sl_table_free(w->table);
}

UNIT_TEST(the_revoked_holders_are_those_of_the_definition)
{
    struct world *w = &world;
    bool all = play_histories("test_steal_random", HISTORIES, play);
    printf("# %" PRIu64 " grants, %" PRIu64 " asked, %" PRIu64 " withdrawn, %" PRIu64
           " stolen\n",
           w->grants, w->asks, w->withdrawals, w->thefts);
    if (!all) return;
    /* Otherwise the histories tried too little. */
    assert_true(w->asks > 1000 && w->withdrawals > 300 && w->thefts > 300);
}

int main(void)
{
    return run_unit_tests("steal_random");
}
