/* test_state_storage.c - a keeper's fences and the length of its leases, kept by a storage: by
 * transcripts. The table and the state are the server's own; commands, connections and the
 * storage are ours. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "test.h"

#include "server/arbiter/local.h"
#include "server/arbiter/state_internal.h"

/* --- The stage ------------------------------------------------------------- */

enum { CONNS = 3, BLOCK = 20000000 };

static struct server s;
static struct sl_settings settings;
static struct conn conns[CONNS]; /* "a", "b", ... */
static struct session sessions[CONNS];
static char said[4096];
static bool storage_is_full; /* Nothing can be ordered. */
static bool answers_at_once;
static bool leads; /* As far as the dispatcher knows. */

static void say(const char *format, ...)
{
    size_t n = strlen(said);
    va_list args;
    va_start(args, format);
    vsnprintf(said + n, sizeof said - n, format, args);
    va_end(args);
}

#define SAID(text)                       \
    do {                                 \
        assert_string_equal(said, text); \
        said[0] = '\0';                  \
    } while (0)

static char name_of(const struct conn *c)
{
    return (char)('a' + (c - conns));
}

/* What is ordered: the limit as so much above the clock. */
static bool write_to_storage(struct server *server, sl_fence fence_limit,
                             sl_ms longest_ms)
{
    assert_ptr_equal(server, &s);
    if (storage_is_full) return false;
    say("write clock+%lld longest %lld\n",
        (long long)fence_limit - (long long)s.now.wall_us, (long long)longest_ms);
    if (answers_at_once) sl_state_written(&s, true);
    return true;
}

/* --- In the place of the rest of the server --------------------------------- */

void sl_server_go_on(struct server *server)
{
    (void)server;
}

void sl_local_undo(struct request *r)
{
    (void)r;
    assert_true(false); /* As below. */
}

void sl_local_deliver(struct request *r, bool durable)
{
    (void)r;
    (void)durable;
    assert_true(false); /* A keeper on etcd has no journal. */
}

bool sl_state_keeps_event(const struct request *r)
{
    (void)r;
    assert_true(false); /* So no event waits for it. */
    return false;
}

void sl_state_deliver_event(struct server *of, struct request *r)
{
    (void)of;
    (void)r;
    assert_true(false);
}

void sl_state_drop_left(struct request *r)
{
    (void)r;
    assert_true(false);
}

const char *sl_local_why_not(const struct server *server, int status)
{
    (void)server;
    (void)status;
    return NULL;
}

/* A connection has one request at a time; its words are the test's own. */
static struct request kept[CONNS];

struct request *sl_request_keep(struct request *r)
{
    struct request *k = &kept[r->c - conns];
    *k = *r;
    k->kept = true;
    sl_list_init(&k->place);
    return k;
}

void sl_request_answer(struct request *r, const struct answer *a)
{
    if (a->text == NULL) say("%c %s\n", name_of(r->c), sluice_status_word(a->status));
    else say("%c %s %s\n", name_of(r->c), sluice_status_word(a->status), a->text);
}

void sl_request_answer_status(struct request *r, int status)
{
    const struct answer a = {.status = status};
    sl_request_answer(r, &a);
}

/* The one command: ACQUIRE KEY LEASE. */
static void dispatch(struct conn *c, const struct sl_bytes *at)
{
    struct request r = {.c = c, .s = &s, .at = at, .n = 2, .key = at[0]};
    struct sl_grant g;
    char lease[20] = "";
    if (!leads) {
        say("%c forwarded %.*s\n", name_of(c), (int)at[0].n, at[0].at);
        return;
    }
    memcpy(lease, at[1].at, at[1].n);
    struct sl_want w = {
        .key = at[0], .per = 1, .buckets = 1, .units = 1, .lease_ms = atoll(lease)};
    if (w.lease_ms > 0 && !sl_state_may_lease(&r, w.lease_ms)) return;
    int status = sl_table_acquire(s.table, s.now, &c->session->s, &w, &g);
    if (status == SLUICE_EFENCES) sl_state_lack_fence(&r);
    else if (status != SLUICE_OK) sl_request_answer_status(&r, status);
    else {
        if (w.lease_ms > 0) sl_state_given(&s, w.lease_ms);
        say("%c granted %.*s clock%+lld\n", name_of(c), (int)w.key.n, w.key.at,
            (long long)g.fence - (long long)s.now.wall_us);
    }
}

void sl_request_resume(struct request *r)
{
    struct request before = *r;
    dispatch(before.c, before.at);
}

static void acquire(char who, const char *key, const char *lease)
{
    static struct sl_bytes words[CONNS][2];
    struct sl_bytes *at = words[who - 'a'];
    at[0] = (struct sl_bytes){key, strlen(key)};
    at[1] = (struct sl_bytes){lease, strlen(lease)};
    dispatch(&conns[who - 'a'], at);
    if (kept[who - 'a'].on_disk) say("%c is deferred\n", who);
}

static void turn(void)
{
    s.commands_left = 1000;
    sl_state_resume(&s);
    sl_state_write_ahead(&s);
    assert_false(sl_state_has_more(&s));
    sl_table_check(s.table);
}

/* The storage has answered. */
static void written(bool ok)
{
    sl_state_written(&s, ok);
    turn();
}

static void pass(sl_ms seconds)
{
    struct sl_effect e;
    for (; seconds > 0; seconds--) {
        s.now.ms += 1000;
        s.now.wall_us += 1000000;
        while (sl_table_next(s.table, s.now, &e)) {}
        sl_state_second(&s);
        turn();
    }
}

/* The keeper, of which the storage knows this, and the clock; quiet for so long. */
static void begin_term(long long limit_above_clock, sl_ms longest_ms, sl_ms quiet_ms)
{
    leads = true;
    sl_state_begin_term(&s, (sl_fence)((long long)s.now.wall_us + limit_above_clock),
                        longest_ms);
    if (quiet_ms > 0) sl_table_recover(s.table, s.now.ms + quiet_ms);
    sl_table_set_authority(s.table, SL_NEVER);
    turn();
}

static void resign(void)
{
    leads = false;
    sl_state_end_term(&s, NULL);
    sl_table_reset(s.table);
    turn();
}

static int begin(void **state)
{
    const struct sl_table_limits limits = {.keys_max = 100,
                                           .waiters_max = 100,
                                           .key_bytes_max = 100,
                                           .value_bytes_max = 100};
    (void)state;
    memset(&s, 0, sizeof s);
    memset(conns, 0, sizeof conns);
    memset(kept, 0, sizeof kept);
    s.settings = &settings;
    settings.lease_ms_max = 86400000;
    s.table = sl_table_new(&limits, (struct sl_hash_key){42, 0});
    s.now = (struct sl_now){.ms = 5000, .wall_us = 1000000000};
    for (uint32_t i = 0; i < CONNS; i++) {
        sl_session_begin(&sessions[i].s, i + 1, 0);
        conns[i].server = &s;
        conns[i].session = &sessions[i];
    }
    said[0] = '\0';
    storage_is_full = answers_at_once = leads = false;
    return sl_state_start_storage(&s, write_to_storage);
}

static int end(void **state)
{
    (void)state;
    for (int i = 0; i < CONNS; i++)
        if (kept[i].on_disk) sl_state_forget(&kept[i]);
    sl_table_free(s.table);
    free(s.state);
    return 0;
}

static struct sl_state_view look(void)
{
    struct sl_state_view v;
    sl_state_inspect(&s, &v);
    return v;
}

/* --- Tests ----------------------------------------------------------------- */

static void nothing_is_granted_before_a_term(void **state)
{
    (void)state;
    leads = true;
    acquire('a', "k", "0");
    acquire('a', "k", "5000");
    SAID("a NOKEEPER\na NOKEEPER\n");
    pass(3);
    SAID(""); /* And nothing is written. */
    assert_true(sl_state_keeps(&s));
}

static void a_term_begins_with_a_write_and_above_the_limit(void **state)
{
    (void)state;
    begin_term(500, 2000, 0);
    SAID("write clock+20000500 longest 2000\n");
    acquire('a', "k", "0");
    acquire('b', "x", "1500"); /* Known to the storage; but it needs a fence. */
    SAID("a is deferred\nb is deferred\n");
    assert_int_equal(look().deferred, 2);
    written(true);
    SAID("a granted k clock+501\nb granted x clock+502\n");
    assert_int_equal(look().fence_limit, s.now.wall_us + 500 + BLOCK);
    assert_int_equal(look().writes, 1);
}

static void a_longer_lease_is_written_before_it_is_given(void **state)
{
    (void)state;
    begin_term(0, 2000, 0);
    written(true);
    SAID("write clock+20000000 longest 2000\n");
    acquire('a', "k", "7000");
    acquire('b', "x", "2000");
    SAID("write clock+20000000 longest 10000\n"
         "a is deferred\nb granted x clock+1\n");
    written(true);
    SAID("a granted k clock+2\n");
    assert_int_equal(look().lease_longest_ms, 10000);
}

static void while_it_is_quiet_the_longest_does_not_fall(void **state)
{
    (void)state;
    answers_at_once = true;
    begin_term(0, 300000, 30000);
    SAID("write clock+20000000 longest 300000\n");
    pass(29);
    assert_int_equal(look().lease_longest_ms, 300000);
    said[0] = '\0';
    pass(2);
    assert_int_equal(look().lease_longest_ms, 0);
    SAID("write clock+20000000 longest 0\n");
}

static void a_lease_above_this_nodes_maximum_is_respected(void **state)
{
    (void)state;
    settings.lease_ms_max = 10000; /* For all, but the state knows it from its start. */
    s.state = (free(s.state), NULL);
    assert_int_equal(sl_state_start_storage(&s, write_to_storage), 0);
    begin_term(0, 3600000, 3700000);
    SAID("write clock+20000000 longest 3600000\n");
}

static void a_storage_that_does_not_answer_is_named(void **state)
{
    (void)state;
    begin_term(0, 2000, 0);
    written(true);
    said[0] = '\0';
    acquire('a', "k", "7000");
    written(false);
    acquire('b', "x", "1000"); /* What is known can be given. */
    acquire('b', "y", "7000");
    SAID("write clock+20000000 longest 10000\na is deferred\na IO etcd does not "
         "answer, so this lease cannot be granted; retry, or use a shorter lease\nb "
         "granted x clock+1\nb IO etcd does not answer, so this lease cannot be "
         "granted; retry, or use a shorter lease\n");
    assert_int_equal(look().errors, 1);
    pass(1); /* It is tried again. */
    SAID("write clock+20000000 longest 10000\n");
    written(true);
    acquire('a', "k", "7000");
    SAID("a granted k clock+0\n");
}

static void what_cannot_be_ordered_has_failed(void **state)
{
    (void)state;
    storage_is_full = true;
    begin_term(0, 2000, 0);
    acquire('a', "k", "0");
    SAID("a IO etcd does not answer, so this lease cannot be granted; retry, or use a "
         "shorter lease\n");
    storage_is_full = false;
    pass(1);
    written(true);
    SAID("write clock+20000000 longest 0\n"); /* Nobody has one, and it is not quiet. */
    acquire('a', "k", "0");
    SAID("a granted k clock+0\n");
    storage_is_full = true; /* While somebody waits for it. */
    acquire('b', "x", "7000");
    turn();
    SAID("b is deferred\nb IO etcd does not answer, so this lease cannot be granted; "
         "retry, or use a shorter lease\n");
}

static void a_deferred_request_is_returned_when_the_term_ends(void **state)
{
    (void)state;
    begin_term(0, 2000, 0);
    acquire('a', "k", "0");
    acquire('b', "x", "9000");
    SAID("write clock+20000000 longest 2000\na is deferred\nb is deferred\n");
    resign();
    SAID("a forwarded k\nb forwarded x\n");
    assert_int_equal(look().deferred, 0);
    assert_int_equal(s.blocked_count, 0);
    assert_int_equal(s.stats.commands, 2 - 2); /* Dispatched again is not once more. */
    sl_state_written(&s, true);                /* Too late: it is not believed. */
    assert_int_equal(look().fence_limit, 0);
    leads = true;
    acquire('a', "k", "0");
    SAID("a NOKEEPER\n");
    pass(2);
    SAID("");
}

static void a_second_term_begins_where_the_storage_is(void **state)
{
    (void)state;
    answers_at_once = true;
    begin_term(0, 0, 0);
    acquire('a', "k", "50000");
    resign();
    said[0] = '\0';
    begin_term(90000000, 2000, 0); /* Other keepers had later terms meanwhile. */
    acquire('a', "k", "0");
    SAID("write clock+110000000 longest 2000\na granted k clock+90000001\n");
}

static void the_next_block_is_written_while_grants_continue(void **state)
{
    (void)state;
    begin_term(0, 0, 0);
    written(true);
    said[0] = '\0';
    pass(9);
    SAID("");
    pass(2); /* Half of it has passed. */
    SAID("write clock+20000000 longest 0\n");
    acquire('a', "k", "0");
    SAID("a granted k clock+0\n");
    written(true);
    SAID("");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
#define TEST(name) cmocka_unit_test_setup_teardown(name, begin, end)
        TEST(nothing_is_granted_before_a_term),
        TEST(a_term_begins_with_a_write_and_above_the_limit),
        TEST(a_longer_lease_is_written_before_it_is_given),
        TEST(while_it_is_quiet_the_longest_does_not_fall),
        TEST(a_lease_above_this_nodes_maximum_is_respected),
        TEST(a_storage_that_does_not_answer_is_named),
        TEST(what_cannot_be_ordered_has_failed),
        TEST(a_deferred_request_is_returned_when_the_term_ends),
        TEST(a_second_term_begins_where_the_storage_is),
        TEST(the_next_block_is_written_while_grants_continue),
    };
    return cmocka_run_group_tests_name("state_storage", tests, NULL, NULL);
}
