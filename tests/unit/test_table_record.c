/* test_table_record.c - what the lock table tells its recorder. The recorder here is a journal in
 * memory: a map of items. After every step the map must equal what the table holds, and no record
 * may come before the end of a grant whose capacity it uses. */
#include <stdlib.h>
#include <string.h>

#include "base/random.h"
#include "locks/grant_record.h"
#include "table_stage.h"

enum { ITEMS_MAX = 64, VALUE_MAX = 256 };

struct item {
    char kind; /* 'g', 'm' or 'd'. */
    char key[32];
    sl_fence fence;
    sl_ms end_ms;
    bool is_long, stolen;
    uint32_t units, capacity;
    char value[VALUE_MAX];
    size_t value_bytes;
};

struct map {
    struct item items[ITEMS_MAX];
    size_t count;
    uint32_t puts, ends, unleased;
    bool copies; /* The map receives a walk: puts and marks may not exist yet. */
};

static struct item *find(struct map *m, char kind, struct sl_bytes key, sl_fence fence)
{
    for (size_t i = 0; i < m->count; i++) {
        struct item *x = &m->items[i];
        if (x->kind == kind && x->fence == fence && strlen(x->key) == key.n &&
            memcmp(x->key, key.at, key.n) == 0)
            return x;
    }
    return NULL;
}

static struct item *add(struct map *m, char kind, struct sl_bytes key, sl_fence fence)
{
    assert_true(m->count < ITEMS_MAX && key.n < sizeof m->items[0].key);
    struct item *x = &m->items[m->count++];
    *x = (struct item){.kind = kind, .fence = fence};
    memcpy(x->key, key.at, key.n);
    return x;
}

static void drop(struct map *m, struct item *x)
{
    assert_non_null(x);
    *x = m->items[--m->count];
}

/* Leases above this are long, as in the journal. */
#define VOLATILE_MS 60

static bool put(void *arg, const struct sl_grant_change *c)
{
    struct map *m = arg;
    const struct sl_grant_view *v = &c->grant;
    struct item *x = find(m, 'g', c->key, v->fence);
    m->puts++;
    if (!m->copies) {
        /* The table knows what the last record said. */
        assert_int_equal(c->before_ms, x == NULL ? 0 : x->end_ms);
        assert_int_equal(v->is_long, x != NULL && x->is_long);
    }
    if (x == NULL) x = add(m, 'g', c->key, v->fence);
    x->end_ms = v->end_ms;
    x->is_long = v->is_long || (!m->copies && v->end_ms > VOLATILE_MS);
    x->stolen = v->stolen;
    x->units = v->units;
    x->capacity = v->per * v->buckets;
    x->value_bytes = (size_t)(sl_grant_write(x->value, v) - x->value);
    assert_true(x->value_bytes <= sl_grant_bytes_max(v));
    if (m->copies || v->overlapping || v->stolen || v->shared) return x->is_long;
    uint32_t held = 0; /* The end of a grant comes before the grant that replaces it. */
    for (size_t i = 0; i < m->count; i++)
        if (m->items[i].kind == 'g' && strcmp(m->items[i].key, x->key) == 0)
            held += m->items[i].stolen ? 0 : m->items[i].units;
    if (c->before_ms == 0) assert_true(held <= x->capacity);
    return x->is_long;
}

static void put_end(void *arg, struct sl_bytes key, sl_fence fence, sl_ms end_ms,
                    bool is_long)
{
    struct map *m = arg;
    struct item *x = find(m, 'g', key, fence);
    assert_non_null(x);
    assert_int_equal(x->end_ms, end_ms);
    assert_int_equal(x->is_long, is_long);
    m->ends++;
    drop(m, x);
}

static void unleased(void *arg, struct sl_bytes key, sl_fence fence)
{
    assert_true(key.n > 0 && fence > 0);
    ((struct map *)arg)->unleased++;
}

static bool mark(void *arg, struct sl_bytes key, sl_ms end_ms, sl_ms before_ms,
                 bool is_long)
{
    struct map *m = arg;
    struct item *x = find(m, 'm', key, 0);
    if (!m->copies) assert_int_equal(before_ms, x == NULL ? 0 : x->end_ms);
    if (x == NULL) x = add(m, 'm', key, 0);
    x->end_ms = end_ms;
    x->is_long = is_long || (!m->copies && end_ms > VOLATILE_MS);
    return x->is_long;
}

static void unmark(void *arg, struct sl_bytes key, bool is_long)
{
    struct item *x = find(arg, 'm', key, 0);
    assert_non_null(x);
    assert_int_equal(x->is_long, is_long);
    drop(arg, x);
}

static void drain(void *arg, struct sl_bytes glob, bool on)
{
    if (on) add(arg, 'd', glob, 0);
    else drop(arg, find(arg, 'd', glob, 0));
}

static struct sl_table_recorder recorder_of(struct map *m)
{
    return (struct sl_table_recorder){.arg = m,
                                      .put = put,
                                      .end = put_end,
                                      .unleased = unleased,
                                      .mark = mark,
                                      .unmark = unmark,
                                      .drain = drain};
}

/* A stage whose table records. */
struct recorded {
    struct stage *s;
    struct map map;
    struct sl_table_recorder recorder;
};

static struct recorded *begin(void)
{
    struct recorded *r = calloc(1, sizeof *r);
    r->s = stage_open(100, 1);
    r->recorder = recorder_of(&r->map);
    sl_table_set_recorder(r->s->table, &r->recorder);
    return r;
}

static void finish(struct recorded *r)
{
    struct sl_table *t = r->s->table;
    sl_table_drain(t, bytes("d*"), false);
    stage_end(r->s);
    assert_int_equal(r->map.count, 0);
    free(r);
}

static int order(const void *a, const void *b)
{
    const struct item *x = a, *y = b;
    int n = strcmp(x->key, y->key);
    if (n != 0 || x->kind != y->kind) return n != 0 ? n : x->kind - y->kind;
    return x->fence < y->fence ? -1 : x->fence > y->fence;
}

static void walk(const struct stage *s, struct map *out, size_t step)
{
    struct sl_table_walk w = {0};
    *out = (struct map){.copies = true};
    const struct sl_table_recorder to = recorder_of(out);
    while (sl_table_walk(s->table, s->now, &w, &to, step) == 1) continue;
    sl_table_walk_end(&w);
}

/* Compare the records with the table. */
static void check(struct recorded *r)
{
    struct map table, map = r->map;
    settle(r->s);
    map = r->map;
    walk(r->s, &table, 1 + (size_t)r->map.puts % 3);
    assert_int_equal(table.count, map.count);
    qsort(table.items, table.count, sizeof *table.items, order);
    qsort(map.items, map.count, sizeof *map.items, order);
    for (size_t i = 0; i < map.count; i++) {
        const struct item *a = &map.items[i], *b = &table.items[i];
        assert_int_equal(order(a, b), 0);
        assert_int_equal(a->end_ms, b->end_ms);
        assert_int_equal(a->is_long, b->is_long);
        assert_int_equal(a->value_bytes, b->value_bytes);
        assert_memory_equal(a->value, b->value, a->value_bytes);
    }
}

static const struct item *only(const struct recorded *r)
{
    assert_int_equal(r->map.count, 1);
    return &r->map.items[0];
}

UNIT_TEST(a_grant_its_extension_and_its_release_are_recorded)
{
    struct recorded *r = begin();
    struct stage *s = r->s;
    sl_ms left;
    ASK('a', .lease_ms = 10);
    check(r);
    assert_int_equal(only(r)->end_ms, 11);
    assert_false(only(r)->is_long);
    int status = sl_table_extend(s->table, s->now, &s->session[0], bytes("k"),
                                 s->last[0], 100, bytes("v"), &left);
    assert_int_equal(status, SLUICE_OK);
    check(r);
    assert_int_equal(only(r)->end_ms, 101);
    assert_true(only(r)->is_long);
    release(s, 'a', s->last[0]);
    check(r);
    assert_int_equal(r->map.count, 0);
    finish(r);
}

static sl_ms extend_with(struct stage *s, sl_ms ms, struct sl_bytes value)
{
    struct sl_grant_view v;
    sl_ms left;
    int status = sl_table_extend(s->table, s->now, &s->session[0], bytes("k"),
                                 s->last[0], ms, value, &left);
    assert_int_equal(status, SLUICE_OK);
    assert_true(sl_table_inspect_grant(s->table, s->now, bytes("k"), s->last[0], &v));
    return v.end_ms;
}

/* Check the expiry and the value of the grant. */
static void check_lease(const struct recorded *r, sl_ms end_ms, const char *value)
{
    const struct stage *s = r->s;
    struct sl_grant_view v;
    assert_true(sl_table_inspect_grant(s->table, s->now, bytes("k"), s->last[0], &v));
    assert_int_equal(v.end_ms, end_ms);
    assert_int_equal(v.value.n, strlen(value));
    assert_memory_equal(v.value.at, value, v.value.n);
}

static void undo_extensions(uint32_t per)
{
    struct recorded *r = begin();
    struct stage *s = r->s;
    const struct sl_bytes key = bytes("k"), none = {0};
    ASK('a', .lease_ms = 10, .per = per, .value = bytes("old"));
    sl_fence fence = s->last[0];
    sl_ms first = extend_with(s, 100, bytes("a longer value"));
    sl_ms second = extend_with(s, 200, none);
    assert_int_equal(first, 101);
    sl_table_undo_extend(s->table, s->now, key, fence, first, 11, bytes("old"));
    check_lease(r, second, "a longer value"); /* A later extension applies. */
    sl_table_undo_extend(s->table, s->now, key, fence, second, first, none);
    check_lease(r, first, "a longer value");
    sl_table_undo_extend(s->table, s->now, key, fence, first, 11, bytes("old"));
    check_lease(r, 11, "old");
    check(r);
    assert_int_equal(only(r)->end_ms, 11);
    s->now.ms = 20;
    check(r);
    assert_int_equal(r->map.count, 0); /* It has expired. */
    sl_table_undo_extend(s->table, s->now, key, fence, 11, 5, none);
    finish(r);
}

UNIT_TEST(an_extension_that_is_undone_has_its_old_expiry_and_value)
{
    undo_extensions(1);
    undo_extensions(3);
}

UNIT_TEST(an_extension_that_changes_nothing_is_not_recorded)
{
    struct recorded *r = begin();
    struct stage *s = r->s;
    const struct sl_bytes none = {0};
    sl_ms left;
    ASK('a', .lease_ms = 100);
    sl_table_extend(s->table, s->now, &s->session[0], bytes("k"), s->last[0], 50, none,
                    &left);
    assert_int_equal(r->map.puts, 1);
    check(r);
    finish(r);
}

UNIT_TEST(an_expiry_is_recorded_when_the_table_stops_counting_the_holder)
{
    struct recorded *r = begin();
    struct stage *s = r->s;
    ASK('a', .lease_ms = 10);
    s->now.ms += 20;
    ask_only(s, 'b', (struct sl_want){.lease_ms = 10});
    assert_int_equal(r->map.ends, 1); /* Before the effect EXPIRED. */
    assert_int_equal(only(r)->fence, s->last[1]);
    check(r);
    assert_int_equal(r->map.ends, 1);
    finish(r);
}

UNIT_TEST(a_release_is_recorded_before_the_grant_that_follows)
{
    struct recorded *r = begin();
    struct stage *s = r->s;
    ASK('a', .lease_ms = 10);
    ASK('b', .lease_ms = 10, .wait_ms = 50);
    release(s, 'a', s->last[0]);
    check(r);
    assert_int_equal(only(r)->fence, s->last[1]);
    finish(r);
}

UNIT_TEST(a_grant_without_a_lease_has_no_record)
{
    struct recorded *r = begin();
    struct stage *s = r->s;
    ASK('a', .wait_ms = 0);
    assert_int_equal(r->map.unleased, 1);
    check(r);
    assert_int_equal(r->map.count, 0);
    release(s, 'a', 0);
    assert_int_equal(r->map.ends, 0);
    finish(r);
}

/* The holder relies on the expiry from then on, although the expiry does not change. */
UNIT_TEST(an_extension_of_a_lease_that_may_have_expired_is_recorded)
{
    struct recorded *r = begin();
    struct stage *s = r->s;
    struct sl_grant_view v = {.fence = 5,
                              .leased = true,
                              .units = 1,
                              .per = 1,
                              .buckets = 1,
                              .user = s->session[0].user,
                              .left_ms = 500,
                              .unsure_ms = 100};
    sl_ms left;
    r->map.copies = true; /* A reclaimed grant has no record yet. */
    sl_table_set_fences(s->table, 1000, SL_FENCE_MAX);
    assert_int_equal(sl_table_reclaim(s->table, s->now, NULL, &v, bytes("k")),
                     SLUICE_OK);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(sl_table_extend(s->table, s->now, &s->session[0], bytes("k"),
                                         5, 50, (struct sl_bytes){NULL, 0}, &left),
                         SLUICE_OK);
        assert_int_equal(r->map.puts, 1); /* The second one changes nothing. */
    }
    assert_true(
        sl_grant_read((struct sl_bytes){only(r)->value, only(r)->value_bytes}, &v));
    assert_int_equal(v.unsure_ms, 0);
    finish(r);
}

UNIT_TEST(a_break_is_recorded)
{
    struct recorded *r = begin();
    struct stage *s = r->s;
    struct sl_ended past;
    struct sl_grant_view v;
    ASK('a', .lease_ms = 100);
    assert_int_equal(
        sl_table_break(s->table, s->now, bytes("k"), s->last[0], false, &past), 1);
    check(r);
    assert_true(
        sl_grant_read((struct sl_bytes){only(r)->value, only(r)->value_bytes}, &v));
    assert_true(v.broken);
    assert_int_equal(
        sl_table_break(s->table, s->now, bytes("k"), s->last[0], true, &past), 2);
    check(r);
    assert_int_equal(only(r)->kind, 'm');
    assert_true(only(r)->is_long);
    ASK('b', .lease_ms = 10);
    check(r);
    assert_int_equal(only(r)->kind, 'g');
    finish(r);
}

UNIT_TEST(an_overlap_mark_that_expires_is_removed)
{
    struct recorded *r = begin();
    struct stage *s = r->s;
    struct sl_ended past;
    ASK('a', .lease_ms = 10);
    sl_table_break(s->table, s->now, bytes("k"), s->last[0], true, &past);
    assert_int_equal(only(r)->kind, 'm');
    pass(s, 20);
    check(r);
    assert_int_equal(r->map.count, 0);
    finish(r);
}

UNIT_TEST(a_forced_grant_and_its_victim_are_recorded)
{
    struct recorded *r = begin();
    struct stage *s = r->s;
    struct sl_grant_view v;
    ASK('a', .lease_ms = 100);
    ASK('b', .lease_ms = 100, .wait_ms = 50, .priority = 5, .steal = true,
        .force_ms = 0);
    check(r);
    assert_int_equal(r->map.count, 2);
    for (size_t i = 0; i < 2; i++) {
        const struct item *x = &r->map.items[i];
        assert_true(sl_grant_read((struct sl_bytes){x->value, x->value_bytes}, &v));
        assert_int_equal(v.stolen, x->fence == s->last[0]);
        assert_int_equal(v.overlapping, x->fence == s->last[1]);
    }
    finish(r);
}

UNIT_TEST(a_grant_that_is_taken_back_is_ended)
{
    struct recorded *r = begin();
    struct stage *s = r->s;
    const struct sl_want w = {
        .key = bytes("k"), .per = 1, .buckets = 1, .units = 1, .lease_ms = 100};
    struct sl_grant g;
    assert_int_equal(sl_table_acquire(s->table, s->now, &s->session[0], &w, &g),
                     SLUICE_OK);
    sl_table_take_back(s->table, s->now, &s->session[0], bytes("k"), &g);
    check(r);
    assert_int_equal(r->map.ends, 1);
    finish(r);
}

UNIT_TEST(drained_patterns_are_recorded)
{
    struct recorded *r = begin();
    struct stage *s = r->s;
    sl_table_drain(s->table, bytes("d*"), true);
    sl_table_drain(s->table, bytes("d*"), true);
    assert_string_equal(only(r)->key, "d*");
    check(r);
    sl_table_drain(s->table, bytes("d*"), false);
    assert_int_equal(r->map.count, 0);
    finish(r);
}

UNIT_TEST(a_reported_grant_that_was_broken_is_recorded)
{
    struct recorded *r = begin();
    struct stage *s = r->s;
    struct sl_grant_view v = grant(40, 500), got;
    sl_table_set_fences(s->table, 100, SL_FENCE_MAX);
    sl_table_recover(s->table, 10000);
    v.broken = true;
    assert_int_equal(sl_table_reclaim(s->table, s->now, NULL, &v, bytes("k")),
                     SLUICE_OK);
    check(r);
    assert_int_equal(r->map.count, 1);
    const struct item *x = &r->map.items[0];
    assert_true(sl_grant_read((struct sl_bytes){x->value, x->value_bytes}, &got));
    assert_true(got.broken);
    v.left_ms = 900; /* Another node knows a later expiry. */
    assert_int_equal(sl_table_reclaim(s->table, s->now, NULL, &v, bytes("k")),
                     SLUICE_OK);
    check(r);
    assert_int_equal(r->map.items[0].end_ms, s->now.ms + 901);
    finish(r);
}

UNIT_TEST(a_grant_with_all_its_fields_is_written_and_read)
{
    char text[VALUE_MAX];
    struct sl_grant_view v = {.leased = true,
                              .shared = true,
                              .overlapping = true,
                              .user = 0xfedcba98,
                              .origin = 0x1fedcba987654321u >> 8,
                              .units = 7,
                              .per = 70000,
                              .buckets = 3,
                              .priority = -5,
                              .value = bytes("value"),
                              .note = bytes("a note"),
                              .name = bytes("worker"),
                              .address = bytes("127.0.0.1:5"),
                              .request = bytes("an id of 18 bytes."),
                              .digest = 0x1edcba98765432},
                         got;
    size_t n = (size_t)(sl_grant_write(text, &v) - text);
    assert_true(sl_grant_read((struct sl_bytes){text, n}, &got));
    assert_true(got.leased && got.shared && got.overlapping);
    assert_false(got.broken || got.stolen);
    assert_int_equal(got.user, v.user);
    assert_true(got.origin == v.origin);
    assert_int_equal(got.units, 7);
    assert_int_equal(got.per, 70000);
    assert_int_equal(got.buckets, 3);
    assert_int_equal(got.priority, -5);
    assert_memory_equal(got.value.at, "value", got.value.n);
    assert_memory_equal(got.note.at, "a note", got.note.n);
    assert_memory_equal(got.name.at, "worker", got.name.n);
    assert_memory_equal(got.address.at, "127.0.0.1:5", got.address.n);
    assert_int_equal(got.request.n, 18);
    assert_memory_equal(got.request.at, v.request.at, 18);
    assert_true(got.digest == v.digest);
    for (size_t i = 0; i < n; i++)
        assert_false(sl_grant_read((struct sl_bytes){text, i}, &got));
    text[1] = 3; /* 512 is not a flag. */
    assert_false(sl_grant_read((struct sl_bytes){text, n}, &got));
}

/* Most records are of this kind, and the server writes them all the time. */
UNIT_TEST(an_ordinary_grant_is_written_without_its_numbers_and_without_a_note)
{
    char text[VALUE_MAX];
    struct sl_grant_view got, v = {.leased = true,
                                   .units = 1,
                                   .per = 1,
                                   .buckets = 1,
                                   .value = bytes("value"),
                                   .address = bytes("127.0.0.1:5")};
    size_t n = (size_t)(sl_grant_write(text, &v) - text);
    assert_int_equal(n, 6 + 11 + 5);
    assert_true(sl_grant_read((struct sl_bytes){text, n}, &got));
    assert_true(got.user == 0 && got.units == 1 && got.per == 1 && got.buckets == 1);
    assert_int_equal(got.origin, 0);
    assert_true(got.priority == 0 && got.note.n == 0 && got.name.n == 0);
    assert_int_equal(got.request.n, 0);
    assert_int_equal(got.value.n, 5);
    assert_memory_equal(got.value.at, "value", 5);
    assert_int_equal(got.address.n, 11);
    for (size_t i = 0; i < n; i++)
        assert_false(sl_grant_read((struct sl_bytes){text, i}, &got));
    uint32_t *numbers[] = {&v.user, &v.units, &v.per, &v.buckets,
                           (uint32_t *)&v.priority};
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
        uint32_t was = *numbers[i];
        *numbers[i] = 9;
        n = (size_t)(sl_grant_write(text, &v) - text);
        assert_true(sl_grant_read((struct sl_bytes){text, n}, &got));
        assert_true(got.user == v.user && got.units == v.units && got.per == v.per);
        assert_true(got.buckets == v.buckets && got.priority == v.priority);
        *numbers[i] = was;
    }
}

/* Restore every record in another table. */
static struct stage *restore(const struct stage *from, const struct map *m)
{
    struct stage *s = stage_open(100, 1);
    struct sl_table_stats stats;
    struct sl_grant_view v;
    s->now = from->now;
    sl_table_stats(from->table, &stats);
    sl_table_set_fences(s->table, stats.fence_last, SL_FENCE_MAX);
    for (size_t i = 0; i < m->count; i++) {
        const struct item *x = &m->items[i];
        int status = SLUICE_OK;
        if (x->kind == 'd') status = sl_table_drain(s->table, bytes(x->key), true);
        else if (x->kind == 'm')
            status = sl_table_restore_mark(s->table, s->now, bytes(x->key), x->end_ms,
                                           x->is_long);
        else {
            assert_true(sl_grant_read((struct sl_bytes){x->value, x->value_bytes}, &v));
            v.fence = x->fence;
            v.end_ms = x->end_ms;
            v.is_long = x->is_long;
            status = sl_table_restore(s->table, s->now, &v, bytes(x->key));
        }
        assert_int_equal(status, SLUICE_OK);
        sl_table_check(s->table);
    }
    return s;
}

/* A table that is restored from the records equals the table that wrote them. */
static void check_restored(struct recorded *r)
{
    struct map before, after;
    struct stage *s = restore(r->s, &r->map);
    walk(r->s, &before, 100);
    walk(s, &after, 100);
    assert_int_equal(before.count, after.count);
    qsort(before.items, before.count, sizeof *before.items, order);
    qsort(after.items, after.count, sizeof *after.items, order);
    for (size_t i = 0; i < before.count; i++) {
        const struct item *a = &before.items[i], *b = &after.items[i];
        assert_int_equal(order(a, b), 0);
        assert_int_equal(a->end_ms, b->end_ms);
        assert_int_equal(a->is_long, b->is_long);
        assert_int_equal(a->value_bytes, b->value_bytes);
        assert_memory_equal(a->value, b->value, a->value_bytes);
    }
    sl_table_drain(s->table, bytes("d*"), false);
    stage_end(s);
}

static void one_step(struct recorded *r, struct sl_random *random)
{
    static const char *const keys[] = {"k", "l", "d"};
    struct stage *s = r->s;
    char who = (char)('a' + sl_random_below(random, 6));
    struct sl_bytes key = bytes(keys[sl_random_below(random, 3)]);
    struct sl_session *session = &s->session[who - 'a'];
    struct sl_ended past;
    struct sl_grant_view v;
    struct sl_grant g;
    sl_ms left;
    bool held = sl_table_newest(s->table, s->now, key, &v);
    switch (sl_random_below(random, 8)) {
        case 0:
        case 1:
        case 2: {
            bool shared = sl_random_below(random, 6) == 0;
            const struct sl_want w = {
                .key = key,
                .shared = shared,
                .per = shared ? 0 : 1 + (uint32_t)sl_random_below(random, 2),
                .buckets = shared ? 0 : 1,
                .units = 1,
                .priority = (int32_t)sl_random_below(random, 3),
                .lease_ms = (sl_ms)(sl_random_below(random, 4) * 40),
                .wait_ms = (sl_ms)(sl_random_below(random, 2) * 100),
                .steal = sl_random_below(random, 3) == 0,
                .force_ms = 0,
                .value = bytes("x"),
                .note = bytes("n")};
            if (session->mine.next == &session->mine)
                sl_table_acquire(s->table, s->now, session, &w, &g);
            break;
        }
        case 3:
            if (held) sl_table_release(s->table, s->now, session, key, v.fence, &past);
            break;
        case 4:
            if (held)
                sl_table_extend(s->table, s->now, session, key, v.fence,
                                (sl_ms)(1 + sl_random_below(random, 150)),
                                sl_random_below(random, 2) == 0 ? bytes("longer")
                                                                : (struct sl_bytes){0},
                                &left);
            break;
        case 5:
            if (held)
                sl_table_break(s->table, s->now, key, v.fence,
                               sl_random_below(random, 2) == 0, &past);
            break;
        case 6:
            sl_table_drain(s->table, bytes("d*"), sl_random_below(random, 2) == 0);
            break;
        default: s->now.ms += (sl_ms)sl_random_below(random, 60); break;
    }
    s->now.wall_us += 1000;
}

UNIT_TEST(the_records_of_random_steps_equal_the_table)
{
    for (uint64_t seed = 1; seed <= 60; seed++) {
        struct sl_random random;
        struct recorded *r = begin();
        sl_random_seed(&random, seed);
        for (int i = 0; i < 150; i++) {
            one_step(r, &random);
            check(r);
            if (i % 10 == 0) check_restored(r);
        }
        finish(r);
    }
}

UNIT_TEST(a_walk_visits_many_holders_of_one_lock_a_few_at_a_time)
{
    struct recorded *r = begin();
    struct stage *s = r->s;
    struct sl_table_walk w = {0};
    struct map seen = {.copies = true};
    const struct sl_table_recorder to = recorder_of(&seen);
    for (int i = 0; i < 40; i++) ASK('a', .per = 50, .lease_ms = 100);
    size_t calls = 0, before = 0;
    while (sl_table_walk(s->table, s->now, &w, &to, 4) == 1) {
        assert_true(seen.puts - before <= 5);
        before = seen.puts;
        /* Holders come and go meanwhile. */
        release(s, 'a', seen.items[0].fence + (calls == 0 ? 0 : 1000000));
        ASK('b', .per = 60, .lease_ms = 100);
        calls++;
    }
    sl_table_walk_end(&w);
    assert_true(calls >= 9 && seen.puts >= 40);
    check(r);
    finish(r);
}

int main(void)
{
    return run_unit_tests("table_record");
}
