/* test_waits.c - locks in the order of their oldest waits (base/waits.h, sl_table_scan_waited()), and
 * the clients that grants refer to (locks/client.h). */
#include <stdio.h>
#include <string.h>

#include "failing_alloc.h"
#include "table_stage.h"
#include "test.h"

#include "base/random.h"
#include "base/waits.h"
#include "locks/client.h"

/* --- Groups of waits ------------------------------------------------------------- */

enum { GROUPS = 20, WAITS = 200 };

struct crowd {
    struct sl_waits waits;
    struct sl_wait_group group[GROUPS];
    struct sl_wait wait[WAITS];
    int of[WAITS]; /* The group of each wait; -1: none. */
};

static bool is_older(const struct sl_wait *a, const struct sl_wait *b)
{
    return a->since_ms != b->since_ms ? a->since_ms < b->since_ms
                                      : a->number < b->number;
}

/* The oldest wait of a group, by visiting all. */
static const struct sl_wait *oldest_of(const struct crowd *c, int group)
{
    const struct sl_wait *best = NULL;
    for (int i = 0; i < WAITS; i++)
        if (c->of[i] == group && (best == NULL || is_older(&c->wait[i], best)))
            best = &c->wait[i];
    return best;
}

static void check_order(const struct crowd *c)
{
    const struct sl_wait_group *g;
    const struct sl_wait *last = NULL;
    uint64_t cursor = 0;
    int listed = 0, expected = 0;
    for (int i = 0; i < GROUPS; i++) {
        assert_ptr_equal(c->group[i].oldest, oldest_of(c, i));
        sl_wait_group_check(&c->waits, &c->group[i]);
        expected += c->group[i].oldest != NULL;
    }
    for (; (g = sl_waits_after(&c->waits, &cursor)) != NULL; listed++) {
        if (last != NULL) assert_true(is_older(last, g->oldest));
        last = g->oldest;
    }
    assert_int_equal(listed, expected);
}

UNIT_TEST(keys_are_listed_in_the_order_of_their_oldest_waits)
{
    static struct crowd c;
    struct sl_random random;
    uint64_t numbers = 0;
    sl_random_seed(&random, 4711);
    c.waits.seed = 99;
    memset(c.of, -1, sizeof c.of);
    for (int step = 0; step < 20000; step++) {
        uint32_t i = sl_random_below(&random, WAITS);
        if (c.of[i] >= 0) {
            sl_waits_remove(&c.waits, &c.group[c.of[i]], &c.wait[i]);
            c.of[i] = -1;
        } else {
            c.of[i] = (int)sl_random_below(&random, GROUPS);
            c.wait[i].since_ms = sl_random_between(&random, -5, 100);
            c.wait[i].number = ++numbers;
            sl_waits_add(&c.waits, &c.group[c.of[i]], &c.wait[i]);
        }
        if (step % 20 == 0) check_order(&c);
    }
}

/* --- Locks that are waited for ---------------------------------------------------- */

/* The keys with waiters, a page at a time. */
static void say_waited(struct stage *s, size_t page)
{
    struct sl_lock_view found[8];
    uint64_t cursor = 0;
    do {
        size_t n = sl_table_scan_waited(s->table, s->now, &cursor, found, page);
        for (size_t i = 0; i < n; i++)
            say(s, "%.*s %d\n", (int)found[i].key.n, found[i].key.at,
                (int)found[i].waited_ms);
    } while (cursor != 0);
}

UNIT_TEST(the_longest_wait_is_first)
{
    STAGE s = stage_open(100, 0);
    ASK('a', .key = bytes("x"));
    ASK('a', .key = bytes("y"));
    ASK('a', .key = bytes("z"));
    ASK('a', .key = bytes("free"));
    s->said[0] = '\0';
    say_waited(s, 8);
    SAID("");
    ASK('b', .key = bytes("y"), .wait_ms = SL_NEVER);
    pass(s, 10);
    ASK('c', .key = bytes("x"), .wait_ms = SL_NEVER);
    ASK('d', .key = bytes("z"), .wait_ms = SL_NEVER);
    pass(s, 10);
    ASK('e', .key = bytes("y"), .wait_ms = SL_NEVER, .priority = 5);
    s->said[0] = '\0';
    for (size_t page = 1; page < 5; page++) {
        say_waited(s, page);
        SAID("y 20\nx 10\nz 10\n");
    }
    end(s, 'b'); /* The next one of y has waited less than those of x and z. */
    s->said[0] = '\0';
    say_waited(s, 2);
    SAID("x 10\nz 10\ny 0\n");
}

/* A request that came from another keeper has waited before. */
UNIT_TEST(a_wait_counts_from_when_the_request_arrived_at_its_node)
{
    STAGE s = stage_open(100, 0);
    ASK('a', .key = bytes("x"));
    ASK('a', .key = bytes("y"));
    pass(s, 1000);
    ASK('b', .key = bytes("x"), .wait_ms = SL_NEVER);
    ASK('c', .key = bytes("y"), .wait_ms = SL_NEVER, .waited_ms = 700);
    ASK('d', .key = bytes("x"), .wait_ms = SL_NEVER, .waited_ms = 300);
    s->said[0] = '\0';
    say_waited(s, 1);
    SAID("y 700\nx 300\n");
}

UNIT_TEST(a_lock_leaves_the_list_with_its_last_waiter)
{
    STAGE s = stage_open(100, 0);
    ASK('a', .lease_ms = 100);
    ASK('b', .wait_ms = 50);
    ASK('c', .wait_ms = 500);
    s->said[0] = '\0';
    say_waited(s, 8);
    SAID("k 0\n");
    pass(s, 50); /* b gives up. */
    s->said[0] = '\0';
    say_waited(s, 8);
    SAID("k 50\n");
    pass(s, 50); /* The lease expires, and c is granted. */
    s->said[0] = '\0';
    say_waited(s, 8);
    SAID("");
    ASK('b', .wait_ms = 1000);
    sl_table_withdraw(s->table, &s->session[1]);
    sl_table_check(s->table);
    s->said[0] = '\0';
    say_waited(s, 8);
    SAID("");
}

UNIT_TEST(a_page_costs_the_same_however_many_locks_there_are)
{
    enum { MANY = 200000 };
    static const struct sl_table_limits limits = {.keys_max = MANY + 10,
                                                  .waiters_max = 10,
                                                  .key_bytes_max = 100,
                                                  .value_bytes_max = 100};
    struct sl_table *t = sl_table_new(&limits, (struct sl_hash_key){1, 2});
    struct sl_session a, b;
    struct sl_now now = {.wall_us = 1000};
    struct sl_want w = {.per = 1, .buckets = 1, .units = 1, .lease_ms = 1000};
    struct sl_grant g;
    struct sl_lock_view found;
    char text[16];
    sl_session_begin(&a, 1, 1);
    sl_session_begin(&b, 2, 1);
    for (int i = 0; i < MANY; i++) {
        w.key = (struct sl_bytes){text, (size_t)snprintf(text, sizeof text, "%d", i)};
        assert_int_equal(sl_table_acquire(t, now, &a, &w, &g), SLUICE_OK);
    }
    w.wait_ms = SL_NEVER;
    assert_int_equal(sl_table_acquire(t, now, &b, &w, &g), SL_WAITS);
    /* A call that visited every lock would make this last for an hour. */
    for (int i = 0; i < MANY; i++) {
        uint64_t cursor = 0;
        assert_int_equal(sl_table_scan_waited(t, now, &cursor, &found, 1), 1);
        assert_memory_equal(found.key.at, text, found.key.n);
    }
    sl_table_free(t);
}

/* --- Clients ------------------------------------------------------------------------ */

static void assert_bytes(struct sl_bytes b, const char *text)
{
    assert_int_equal(b.n, strlen(text));
    if (b.n > 0) assert_memory_equal(b.at, text, b.n);
}

static void assert_client(struct stage *s, const char *key, uint64_t session,
                          const char *name, const char *address)
{
    struct sl_grant_view v;
    uint64_t cursor = 0;
    assert_true(sl_table_each(s->table, s->now, bytes(key), &cursor, &v));
    assert_int_equal(v.session_id, session);
    assert_bytes(v.name, name);
    assert_bytes(v.address, address);
}

static void describe(struct stage *s, char who, const char *name, const char *address)
{
    assert_int_equal(sl_table_describe(s->table, &s->session[who - 'a'], bytes(name),
                                       bytes(address)),
                     SLUICE_OK);
}

UNIT_TEST(a_grant_remembers_its_client_after_the_session_has_ended)
{
    STAGE s = stage_open(100, 0);
    describe(s, 'a', "backup", "10.0.0.7:1");
    ASK('a', .key = bytes("inline"), .lease_ms = 1000);
    ASK('a', .key = bytes("entry"), .per = 2, .lease_ms = 1000);
    ASK('b', .key = bytes("moved"), .lease_ms = 1000); /* It was not described. */
    ASK('a', .key = bytes("waits"), .lease_ms = 500);
    describe(s, 'c', "", "10.0.0.8:2");
    ASK('c', .key = bytes("waits"), .wait_ms = 900, .lease_ms = 900);
    end(s, 'a');
    assert_client(s, "inline", 1, "backup", "10.0.0.7:1");
    assert_client(s, "entry", 1, "backup", "10.0.0.7:1");
    assert_client(s, "moved", 2, "", "");
    pass(s, 600);
    end(s, 'c');
    assert_client(s, "waits", 3, "", "10.0.0.8:2");
}

/* An inline holder becomes an entry, when its value grows or a thief comes. */
UNIT_TEST(a_client_stays_with_a_grant_that_moves)
{
    STAGE s = stage_open(100, 0);
    sl_ms left;
    describe(s, 'a', "backup", "10.0.0.7:1");
    ASK('a', .lease_ms = 1000);
    end(s, 'a');
    sl_fence fence = s->last[0];
    assert_int_equal(sl_table_extend(s->table, s->now, &s->session[1], bytes("k"),
                                     fence, 1000, bytes("a value"), &left),
                     SLUICE_OK);
    sl_table_check(s->table);
    assert_client(s, "k", 1, "backup", "10.0.0.7:1");
    ASK('b', .wait_ms = 100, .priority = 1, .steal = true, .force_ms = SL_NEVER);
    assert_client(s, "k", 1, "backup", "10.0.0.7:1");
}

UNIT_TEST(another_name_is_of_later_grants)
{
    STAGE s = stage_open(100, 0);
    describe(s, 'a', "one", "10.0.0.7:1");
    ASK('a', .key = bytes("x"), .lease_ms = 1000);
    describe(s, 'a', "two", "10.0.0.7:1");
    ASK('a', .key = bytes("y"), .lease_ms = 1000);
    assert_client(s, "x", 1, "one", "10.0.0.7:1");
    assert_client(s, "y", 1, "two", "10.0.0.7:1");
}

/* The memory of a hundred restored grants. */
static size_t restore_many(const char *name, const char *address)
{
    STAGE s = stage_open(100, 0);
    sl_table_set_fences(s->table, 1000000, SL_FENCE_MAX);
    sl_table_recover(s->table, s->now.ms + 10);
    struct sl_grant_view v = grant(1, 1000);
    v.name = bytes(name);
    v.address = bytes(address);
    char key[8];
    for (int i = 0; i < 100; i++) {
        snprintf(key, sizeof key, "k%d", i);
        v.fence = (sl_fence)i + 1;
        assert_int_equal(sl_table_restore(s->table, s->now, &v, bytes(key)), SLUICE_OK);
        sl_table_check(s->table);
        assert_client(s, key, 0, name, address);
    }
    size_t n = sl_table_bytes(s->table);
    pass(s, 2000);
    return n;
}

UNIT_TEST(restored_grants_share_their_clients)
{
    size_t more = restore_many("backup", "10.0.0.7:1") - restore_many("", "");
    assert_true(more > 16 && more < 1500); /* One client, and the index of clients. */
}

UNIT_TEST(clients_are_counted_in_the_memory_of_the_table)
{
    STAGE s = stage_open(100, 0);
    char address[100];
    memset(address, 'x', sizeof address);
    ASK('a', .lease_ms = 1000); /* So that heap and index have grown. */
    pass(s, 2000);
    size_t before = sl_table_bytes(s->table);
    assert_int_equal(sl_table_describe(s->table, &s->session[0], bytes(""),
                                       (struct sl_bytes){address, sizeof address}),
                     SLUICE_OK);
    assert_true(sl_table_bytes(s->table) >= before + sizeof address);
    ASK('a', .lease_ms = 1000);
    end(s, 'a');
    s->said[0] = '\0';
    assert_true(sl_table_bytes(s->table) >= before + sizeof address);
    pass(s, 2000);
    assert_true(sl_table_bytes(s->table) < before + sizeof address);
}

UNIT_TEST(long_names_are_truncated_and_lack_of_memory_changes_nothing)
{
    STAGE s = stage_open(100, 0);
    char text[1000];
    memset(text, 'x', sizeof text);
    const struct sl_bytes all = {text, sizeof text};
    describe(s, 'a', "one", "10.0.0.7:1");
    memory_ends_after(0);
    assert_int_equal(sl_table_describe(s->table, &s->session[0], all, all),
                     SLUICE_ENOMEM);
    memory_is_back();
    ASK('a', .key = bytes("x"), .lease_ms = 1000);
    assert_client(s, "x", 1, "one", "10.0.0.7:1");
    assert_int_equal(sl_table_describe(s->table, &s->session[0], all, all), SLUICE_OK);
    ASK('a', .key = bytes("y"), .lease_ms = 1000);
    text[SL_CLIENT_ADDRESS_MAX] = '\0';
    assert_client(s, "y", 1, text + SL_CLIENT_ADDRESS_MAX - SL_CLIENT_NAME_MAX, text);
}

int main(void)
{
    return run_unit_tests("waits");
}
