/* test_tx_random.c - random transactions of many sessions over few items, and a storage that answers
 * late, in any order, and sometimes with errors.
 *
 * history.h says how to choose and replay histories. The model remembers what each session saw and
 * wrote, and knows nothing of locks:
 *
 *   serializable     at the end the commits are replayed one after the other, by revision: each
 *                    must find what it saw, and the result is the store
 *   one answer       a transaction is committed, once, if and only if the reply says so
 *   no lost waiter   after each step: the head of a queue does not fit, the wait-for graph has no
 *                    cycle, and a request without an answer is queued or waits for the storage
 *   barred           a session that left keeps its locks until the storage has the bar
 *   RESTART          goes to the youngest of a cycle, with the cycle
 *   no livelock      32 sessions on two keys all commit, the oldest never restarts, and the others
 *                    restart once or twice */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "history.h"
#include "tx_stage.h"

enum {
    TABLES = 2,
    KEYS = 3,
    ITEMS = TABLES * KEYS,
    SESSIONS = 10,
    IDS = 512,
    VIEWS = 64,
    STEPS = 300,
    HISTORIES = 1000
};

static const char *const table_name[TABLES] = {"t", "u"};
static const char *const key_name[KEYS] = {"a", "b", "c"};

/* ---- what is known ---- */

typedef char value[12]; /* "": there is none. */

/* What a transaction has seen and written. */
struct attempt {
    bool saw[ITEMS], wrote[ITEMS];
    value seen[ITEMS], written[ITEMS];
};

struct client {
    uint64_t id;     /* Of its transaction; 0: it has none. */
    uint64_t ticket; /* That is not answered; 0: none. */
    int told;        /* ERESTART, EAGE: until it begins again. */
    int item, table; /* What it asked for. */
    value wants;     /* And wants to write. */
};

struct commit {
    uint64_t id, revision;
    bool writes;
    struct attempt what;
};

struct world {
    uint64_t values;
    bool stopped;
    struct stage *s;
    struct client client[SESSIONS + 1]; /* By session, from 1. */
    struct attempt attempt[IDS];        /* By id. */
    struct commit commit[IDS];          /* In the order in which they were applied. */
    uint32_t commits;
    uint32_t left[IDS]; /* What a transaction had, a bit each, when its session left. */
    uint64_t committed, restarts, refusals, leaves, too_late;
};

static struct world world;

/* Prints the transcript. */
static void show(struct world *w)
{
    if (history.shown) printf("%s", w->s->said);
    w->s->said[0] = '\0';
}

/* ---- what clients see ---- */

static int item_of(const char *table, const char *key)
{
    for (int i = 0; i < ITEMS; i++)
        if (strcmp(table_name[i / KEYS], table) == 0 &&
            strcmp(key_name[i % KEYS], key) == 0)
            return i;
    fail();
    return 0;
}

/* What it wrote itself; or what it has seen before; or what it will see again. */
static void sees(struct attempt *a, int item, const char *v)
{
    if (a->wrote[item]) CHECK(strcmp(a->written[item], v) == 0);
    else if (a->saw[item]) CHECK(strcmp(a->seen[item], v) == 0);
    a->saw[item] = a->saw[item] || !a->wrote[item];
    if (!a->wrote[item]) strcpy(a->seen[item], v);
}

static void sees_rows(struct attempt *a, int table, const char *rows)
{
    char text[256], *next = text;
    const char *found[KEYS] = {"", "", ""};
    int last = -1;
    strcpy(text, rows);
    for (char *row; (row = strsep(&next, " ")) != NULL && *row != '\0';) {
        char *equals = strchr(row, '=');
        *equals = '\0';
        int item = item_of(table_name[table], row);
        CHECK(item > last);
        last = item;
        found[item % KEYS] = equals + 1;
    }
    for (int i = 0; i < KEYS; i++) sees(a, table * KEYS + i, found[i]);
}

/* Whether there was one, of whatever value. */
static void sees_one(const struct attempt *a, int item, bool found)
{
    if (a->wrote[item]) CHECK(found == (a->written[item][0] != '\0'));
    else if (a->saw[item]) CHECK(found == (a->seen[item][0] != '\0'));
}

static void writes(struct attempt *a, int item, const char *v)
{
    a->wrote[item] = true;
    strcpy(a->written[item], v);
}

static const struct commit *commit_of(const struct world *w, uint64_t id)
{
    for (uint32_t i = 0; i < w->commits; i++)
        if (w->commit[i].id == id) return &w->commit[i];
    return NULL;
}

static void check_cycle(const struct asked *a, uint64_t id)
{
    bool there = false;
    CHECK(a->cycle_count >= 2);
    for (uint32_t i = 0; i < a->cycle_count; i++) {
        CHECK(a->cycle[i] <= id);
        there = there || a->cycle[i] == id;
    }
    CHECK(there);
}

static void succeeded(struct world *w, struct client *c, const struct asked *a)
{
    struct attempt *t = &w->attempt[c->id % IDS];
    switch (a->type) {
        case SL_TX_BEGIN:
            CHECK(c->id == 0 || c->id == a->id); /* It keeps its number. */
            c->id = a->id;
            c->told = SLUICE_OK;
            CHECK(c->id < IDS);
            w->attempt[c->id] = (struct attempt){0};
            break;
        case SL_TX_GET: sees(t, c->item, a->found ? a->value : ""); break;
        case SL_TX_PUT: writes(t, c->item, c->wants); break;
        case SL_TX_DEL:
            sees_one(t, c->item, a->found);
            writes(t, c->item, "");
            break;
        case SL_TX_SCAN: sees_rows(t, c->table, a->rows); break;
        case SL_TX_COMMIT:
            CHECK(commit_of(w, c->id) != NULL);
            CHECK(commit_of(w, c->id)->revision == a->revision);
            w->committed++;
            c->id = 0;
            break;
        case SL_TX_ABORT: *c = (struct client){0}; break;
        case SL_TX_LOCK:
        case SL_TX_OUTCOME: break;
    }
}

static void told(struct stage *s, uint64_t ticket)
{
    struct world *w = s->owner;
    const struct asked *a = &s->asked[ticket];
    struct client *c = &w->client[a->session];
    CHECK(c->ticket == ticket || c->ticket == UINT64_MAX);
    bool waited = c->told == SLUICE_OK;
    c->ticket = 0;
    if (a->status == SLUICE_OK) {
        CHECK(waited || a->type == SL_TX_BEGIN || a->type == SL_TX_ABORT);
        succeeded(w, c, a);
        return;
    }
    if (a->type == SL_TX_COMMIT) CHECK(commit_of(w, c->id) == NULL);
    switch (a->status) {
        case SLUICE_ERESTART:
            if (waited) check_cycle(a, c->id);
            w->restarts += waited;
            c->told = a->status;
            break;
        case SLUICE_EAGE: c->told = a->status; break;
        case SLUICE_EFULL:
            CHECK(a->type == SL_TX_LOCK);
            w->too_late++;
            break;
        case SLUICE_EIO:
        case SLUICE_ENOSPC:
            if (a->type == SL_TX_COMMIT) c->id = 0;
            break;
        case SLUICE_ESTALE:
        case SLUICE_ENOKEEPER:
            CHECK(w->stopped);
            *c = (struct client){0};
            break;
        default:
            printf("# %d is told %s\n", (int)a->session, sluice_status_word(a->status));
            CHECK(a->status == SLUICE_OK);
    }
}

/* ---- the storage ---- */

/* What is committed is what was written, all of it. */
static void applied(struct stage *s, const struct ordered *o)
{
    struct world *w = s->owner;
    if (o->type != SL_TX_ORDER_COMMIT || o->done.status != SLUICE_OK) return;
    const struct attempt *a = &w->attempt[o->id % IDS];
    uint32_t count = 0;
    CHECK(commit_of(w, o->id) == NULL && w->commits < IDS);
    for (int i = 0; i < ITEMS; i++) count += a->wrote[i];
    CHECK(count == o->writes);
    for (uint32_t i = 0; i < o->writes; i++) {
        int item = item_of(o->write[i].table, o->write[i].key);
        CHECK(a->wrote[item] && strcmp(a->written[item], o->write[i].value) == 0);
        CHECK(o->deleted[i] == (a->written[item][0] == '\0'));
    }
    w->commit[w->commits++] = (struct commit){
        .id = o->id, .revision = o->done.revision, .writes = count > 0, .what = *a};
}

static struct ordered *any_order(struct world *w)
{
    uint32_t n = orders(w->s), which = n == 0 ? 0 : draw_below(n);
    for (struct ordered *o = w->s->order; o < w->s->order + STAGE_ORDERS; o++)
        if (o->used && which-- == 0) return o;
    return NULL;
}

static void engine_acts(struct world *w, bool well)
{
    struct ordered *o = any_order(w);
    if (o == NULL) return;
    if (!well && !o->applied && draw_one_in(12)) {
        w->refusals++;
        refuses_one(w->s, o, draw_one_in(2) ? SLUICE_EIO : SLUICE_ENOSPC);
    } else if (o->applied) tells(w->s, o);
    else applies(w->s, o);
}

/* ---- the wait-for graph, by definition ---- */

struct scene {
    bool is[SESSIONS + 1][SESSIONS + 1]; /* waits for */
    bool waits[SESSIONS + 1];
};

static bool is_before(const struct sl_tx_view *a, const struct sl_tx_view *b)
{
    bool a_has = a->mode != SL_TX_MODE_NONE, b_has = b->mode != SL_TX_MODE_NONE;
    return a_has != b_has ? a_has : a->id < b->id;
}

/* 0: it has left, though it still has items, and waits for nobody. */
static uint64_t who_is(const struct world *w, const struct sl_tx_view *v)
{
    return w->client[v->session].id == v->id ? v->session : 0;
}

static void look_at(struct world *w, struct scene *scene, const char *table,
                    const char *key)
{
    struct sl_tx_view view[VIEWS];
    struct sl_bytes t = {table, strlen(table)}, k = {key, key ? strlen(key) : 0};
    uint32_t n = 0;
    while (n < VIEWS &&
           sl_tx_manager_holder(w->s->manager, w->s->now, t, k, n, &view[n]))
        n++;
    CHECK(n < VIEWS);
    for (uint32_t i = 0; i < n; i++) {
        const struct sl_tx_view *v = &view[i];
        bool blocked = false, first = true;
        for (uint32_t j = 0; j < n; j++) {
            const struct sl_tx_view *o = &view[j];
            if (i == j) continue;
            CHECK(sl_tx_mode_fits(v->mode, o->mode));
            if (v->wanted == SL_TX_MODE_NONE) continue;
            bool before = o->wanted != SL_TX_MODE_NONE && is_before(o, v);
            bool meets = !sl_tx_mode_fits(v->wanted, o->mode);
            first = first && !before;
            blocked = blocked || meets;
            if (meets || before) scene->is[who_is(w, v)][who_is(w, o)] = true;
            if (i < j && v->mode == SL_TX_MODE_NONE) CHECK(v->id < o->id);
        }
        if (v->wanted == SL_TX_MODE_NONE) continue;
        CHECK(blocked || !first);
        uint64_t who = who_is(w, v);
        CHECK(v->waits_for != 0 && who != 0 && !scene->waits[who]);
        scene->waits[who] = true;
    }
}

static void check_no_cycle(const struct scene *scene)
{
    bool leads[SESSIONS + 1][SESSIONS + 1];
    memcpy(leads, scene->is, sizeof leads);
    for (int k = 1; k <= SESSIONS; k++)
        for (int i = 1; i <= SESSIONS; i++)
            for (int j = 1; j <= SESSIONS; j++)
                leads[i][j] = leads[i][j] || (leads[i][k] && leads[k][j]);
    for (int i = 1; i <= SESSIONS; i++) CHECK(!leads[i][i]);
}

static bool engine_has(const struct world *w, uint64_t id)
{
    for (int i = 0; i < STAGE_ORDERS; i++)
        if (w->s->order[i].used && w->s->order[i].id == id) return true;
    return false;
}

/* ---- sessions that have left ---- */

/* What a transaction has, a bit each: tables, then keys. */
static uint32_t items_of(const struct world *w, uint64_t id)
{
    struct sl_tx_view v;
    uint32_t has = 0;
    for (int i = 0; i < TABLES + ITEMS; i++) {
        struct sl_bytes table = {table_name[i < TABLES ? i : (i - TABLES) / KEYS], 1},
                        key = {i < TABLES ? NULL : key_name[(i - TABLES) % KEYS],
                               i < TABLES ? 0 : 1};
        for (uint32_t n = 0;
             sl_tx_manager_holder(w->s->manager, w->s->now, table, key, n, &v); n++)
            if (v.id == id && v.mode != SL_TX_MODE_NONE) has |= 1u << i;
    }
    return has;
}

static void look_at_left(struct world *w)
{
    for (uint64_t id = 1; id < IDS && !w->stopped; id++) {
        if (w->left[id] == 0) continue;
        if (is_barred(w->s->store, 1, id)) w->left[id] = 0;
        else CHECK((items_of(w, id) & w->left[id]) == w->left[id]);
    }
}

static void look(struct world *w)
{
    struct scene scene = {0};
    for (int t = 0; t < TABLES; t++) {
        look_at(w, &scene, table_name[t], NULL);
        for (int k = 0; k < KEYS; k++) look_at(w, &scene, table_name[t], key_name[k]);
    }
    check_no_cycle(&scene);
    look_at_left(w);
    for (int i = 1; i <= SESSIONS; i++) {
        const struct client *c = &w->client[i];
        CHECK(scene.waits[i] == sl_tx_manager_waits(w->s->manager, (uint64_t)i));
        if (c->ticket != 0) CHECK(scene.waits[i] || engine_has(w, c->id));
    }
    show(w);
}

/* ---- what clients do ---- */

static void ask(struct world *w, uint64_t who, enum sl_tx_verb type, int item,
                bool whole, bool write)
{
    struct client *c = &w->client[who];
    struct sl_tx_request a = {.type = type, .session = who, .write = write};
    a.bounded = type == SL_TX_LOCK && draw_one_in(3);
    if (a.bounded && draw_one_in(2)) a.wait_ms = 1 + draw_below(40);
    if (type == SL_TX_PUT) snprintf(c->wants, sizeof c->wants, "%" PRIu64, ++w->values);
    a.table = (struct sl_bytes){table_name[item / KEYS], 1};
    if (!whole) a.key = (struct sl_bytes){key_name[item % KEYS], 1};
    if (type == SL_TX_PUT) a.value = (struct sl_bytes){c->wants, strlen(c->wants)};
    c->item = item;
    c->table = item / KEYS;
    c->ticket = UINT64_MAX; /* It may be answered before it is known. */
    uint64_t ticket = stage_ask(w->s, a);
    if (c->ticket == UINT64_MAX) c->ticket = ticket;
}

static bool commits_now(const struct world *w, uint64_t id)
{
    for (int i = 0; i < STAGE_ORDERS; i++) {
        const struct ordered *o = &w->s->order[i];
        if (o->used && o->id == id && o->type == SL_TX_ORDER_COMMIT) return true;
    }
    return false;
}

static void go(struct world *w, uint64_t who)
{
    uint64_t id = w->client[who].id;
    /* A commit on its way is not barred. */
    if (id != 0 && !commits_now(w, id)) w->left[id] = items_of(w, id);
    leave(w->s, who);
    w->client[who] = (struct client){0};
    w->leaves++;
}

static void act(struct world *w, uint64_t who)
{
    struct client *c = &w->client[who];
    int item = (int)draw_below(ITEMS);
    uint32_t what = draw_below(100);
    if (c->ticket != 0) {
        if (draw_one_in(60)) go(w, who);
    } else if (c->id == 0) ask(w, who, SL_TX_BEGIN, 0, true, false);
    else if (c->told != SLUICE_OK && what < 50)
        ask(w, who, SL_TX_BEGIN, 0, true, false);
    else if (what < 28) ask(w, who, SL_TX_GET, item, false, false);
    else if (what < 53) ask(w, who, SL_TX_PUT, item, false, false);
    else if (what < 59) ask(w, who, SL_TX_DEL, item, false, false);
    else if (what < 65) ask(w, who, SL_TX_SCAN, item, true, false);
    else if (what < 78) ask(w, who, SL_TX_LOCK, item, draw_one_in(4), draw_one_in(2));
    else if (what < 94) ask(w, who, SL_TX_COMMIT, 0, true, false);
    else if (what < 97) ask(w, who, SL_TX_ABORT, 0, true, false);
    else if (draw_one_in(2)) go(w, who);
    else pass(w->s, 1 + draw_below(60));
}

static void step(struct world *w)
{
    if (draw_one_in(2)) engine_acts(w, false);
    else act(w, 1 + draw_below(SESSIONS));
    look(w);
}

static bool all_are_done(const struct world *w)
{
    for (int i = 1; i <= SESSIONS; i++)
        if (w->client[i].id != 0 || w->client[i].ticket != 0) return false;
    return true;
}

/* Nobody does anything new: it has an end. */
static void finish(struct world *w)
{
    for (uint64_t i = 0; !all_are_done(w); i++) {
        CHECK(i < 5000);
        uint64_t who = 1 + i % SESSIONS;
        struct client *c = &w->client[who];
        engine_acts(w, true);
        pass(w->s, 10); /* Refused bars are tried again. */
        if (c->ticket == 0 && c->told != SLUICE_OK)
            ask(w, who, SL_TX_ABORT, 0, true, false);
        else if (c->ticket == 0 && c->id != 0)
            ask(w, who, SL_TX_COMMIT, 0, true, false);
        look(w);
    }
}

/* What was committed, one after the other, by revision. */
static void replay(struct world *w)
{
    value now[ITEMS] = {{0}};
    uint64_t revision = 0;
    for (uint32_t i = 0; i < w->commits; i++) {
        const struct commit *c = &w->commit[i];
        if (c->writes) revision++;
        CHECK(c->revision == revision);
        for (int j = 0; j < ITEMS; j++) {
            if (c->what.saw[j]) CHECK(strcmp(c->what.seen[j], now[j]) == 0);
        }
        for (int j = 0; j < ITEMS; j++)
            if (c->what.wrote[j]) strcpy(now[j], c->what.written[j]);
    }
    for (int j = 0; j < ITEMS; j++)
        CHECK(strcmp(now[j], stored_at(w->s->store, table_name[j / KEYS],
                                       key_name[j % KEYS])) == 0);
}

static void play(uint64_t number)
{
    struct world *w = &world;
    struct sl_tx_manager_limits limits = stage_limits;
    if (number % 3 == 0) limits.age_ms_max = 300;
    w->s = stage_with(&limits);
    w->s->owner = w;
    w->s->told = told;
    w->s->applied = applied;
    w->stopped = false;
    w->commits = 0;
    memset(w->client, 0, sizeof w->client);
    memset(w->left, 0, sizeof w->left);
    by_hand(w->s);
    for (int i = 0; i < STEPS; i++) step(w);
    if (number % 5 == 0) {
        w->stopped = true;
        stop(w->s, 2);
        look(w);
    }
    finish(w);
    replay(w);
    w->s->told = NULL;
    stage_end(w->s);
}

UNIT_TEST(random_committed_transactions_are_serializable)
{
    struct world *w = &world;
    bool all = play_histories("test_tx_random", HISTORIES, play);
    printf("# %" PRIu64 " committed, %" PRIu64 " restarted, %" PRIu64
           " refused by the storage, %" PRIu64 " left, %" PRIu64 " waited too long\n",
           w->committed, w->restarts, w->refusals, w->leaves, w->too_late);
    if (!all) return;
    /* Otherwise the histories tried too little. */
    assert_true(w->committed > 5000 && w->restarts > 500 && w->refusals > 1000 &&
                w->leaves > 1000 && w->too_late > 500);
}

/* ---- no livelock ---- */

enum { CROWD = 32, ROUNDS = 4 };

/* Reads and writes one key, then writes the other, again and again. */
struct runner {
    int step, done;
    uint64_t ticket, id;
};

static void run_on(struct stage *s, struct runner *r, uint64_t who)
{
    const char *one = who % 2 ? "a" : "b", *other = who % 2 ? "b" : "a";
    switch (r->step++) {
        case 0: r->ticket = BEGIN(who); break;
        case 1:
            r->id = s->asked[r->ticket].id;
            r->ticket = GET(who, one);
            break;
        case 2: r->ticket = PUT(who, one, "x"); break;
        case 3: r->ticket = PUT(who, other, "x"); break;
        case 4: r->ticket = COMMIT(who); break;
        default:
            r->done++;
            r->step = 0;
            r->ticket = 0;
            break;
    }
}

/* For each restart there is an older transaction that does not restart. */
static void crowd_told(struct stage *s, uint64_t ticket)
{
    const struct runner *all = s->owner;
    const struct asked *a = &s->asked[ticket];
    bool older = a->status != SLUICE_ERESTART;
    for (int i = 1; i <= CROWD; i++)
        older = older || (all[i].step > 1 && all[i].id < all[a->session].id);
    assert_true(older);
}

/* A session without an answer waits; one that must restart does so at once. */
static void run_crowd(uint64_t seed)
{
    struct stage *s = stage_new();
    struct runner all[CROWD + 1] = {0};
    uint64_t restarts = 0;
    s->silent = true;
    s->owner = all;
    s->told = crowd_told;
    for (int turn = 0; s->store->commits < CROWD * ROUNDS; turn++) {
        assert_true(turn < 200000);
        uint64_t who = 1 + (seed == 0 ? (uint64_t)turn : draw(&seed)) % CROWD;
        struct runner *r = &all[who];
        const struct asked *a = &s->asked[r->ticket];
        if (r->done == ROUNDS || (r->ticket != 0 && !a->answered)) continue;
        if (r->ticket != 0 && a->status == SLUICE_ERESTART) {
            restarts++;
            r->step = 0;
        } else if (r->ticket != 0) assert_int_equal(a->status, SLUICE_OK);
        run_on(s, r, who);
    }
    /* One that restarts has its locks before it does anything else: it rarely does so twice. */
    assert_true(restarts < CROWD * ROUNDS * 3 / 2);
    printf("# %d commits, %d restarts\n", CROWD * ROUNDS, (int)restarts);
    stage_end(s);
}

UNIT_TEST(thirty_two_on_two_keys_all_commit)
{
    for (uint64_t seed = 0; seed < 5; seed++) run_crowd(seed);
}

int main(void)
{
    return run_unit_tests("tx_random");
}
