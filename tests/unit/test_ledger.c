/* test_ledger.c - what clients of a node hold, written down for the next keeper: ledger.h,
 * line by line; without memory; and many at random, compared with a plain list. */
#include <string.h>

#include "failing_alloc.h"
#include "test.h"

#include "failover/ledger.h"

/* --- A ledger, and two connections ------------------------------------------- */

static struct sl_ledger ledger;
static struct sl_list conns[2];

static int begin(void **state)
{
    (void)state;
    memset(&ledger, 0, sizeof ledger);
    sl_ledger_init(&ledger, (struct sl_hash_key){7, 0});
    sl_list_init(&conns[0]);
    sl_list_init(&conns[1]);
    return 0;
}

static int end(void **state)
{
    (void)state;
    memory_is_back();
    while (!sl_list_empty(&ledger.all))
        sl_ledger_drop(&ledger,
                       sl_container_of(ledger.all.next, struct sl_record, all));
    assert_int_equal(ledger.by_fence.count, 0);
    assert_int_equal(ledger.unleased, 0);
    assert_true(sl_list_empty(&conns[0]));
    assert_true(sl_list_empty(&conns[1]));
    sl_index_free(&ledger.by_fence);
    return 0;
}

static struct sl_bytes text(const char *at)
{
    return (struct sl_bytes){at, strlen(at)};
}

static void assert_text(struct sl_bytes b, const char *wanted)
{
    assert_int_equal(b.n, strlen(wanted));
    assert_memory_equal(b.at, wanted, b.n);
}

static struct sl_record record(sl_fence fence, const char *key, sl_ms end_ms)
{
    return (struct sl_record){.fence = fence,
                              .session = 1,
                              .leased = end_ms != SL_NEVER,
                              .units = 1,
                              .per = 1,
                              .buckets = 1,
                              .end_ms = end_ms,
                              .sure_ms = end_ms,
                              .key = text(key),
                              .value = text("v"),
                              .note = text("n")};
}

static void put(sl_fence fence, const char *key, sl_ms end_ms, struct sl_list *of_conn)
{
    const struct sl_record r = record(fence, key, end_ms);
    assert_true(sl_ledger_put(&ledger, &r, of_conn));
}

static size_t length(const struct sl_list *l)
{
    size_t n = 0;
    for (const struct sl_list *x = l->next; x != l; x = x->next) n++;
    return n;
}

/* --- One by one ---------------------------------------------------------------- */

static void what_is_put_is_found_by_its_fence(void **state)
{
    (void)state;
    char bytes[] = "keyvaluenote";
    struct sl_record r = record(5, "", 1000);
    r.key = (struct sl_bytes){bytes, 3};
    r.value = (struct sl_bytes){bytes + 3, 5};
    r.note = (struct sl_bytes){bytes + 8, 4};
    assert_true(sl_ledger_put(&ledger, &r, &conns[0]));
    memset(bytes, 'x', 12); /* They were copied. */
    struct sl_record *x = sl_ledger_find(&ledger, 5);
    assert_non_null(x);
    assert_text(x->key, "key");
    assert_text(x->value, "value");
    assert_text(x->note, "note");
    assert_int_equal(x->end_ms, 1000);
    assert_null(sl_ledger_find(&ledger, 4));
    assert_null(sl_ledger_find(&ledger, 0));
    sl_ledger_drop(&ledger, x);
    assert_null(sl_ledger_find(&ledger, 5));
    assert_true(sl_list_empty(&conns[0]));
}

static void one_that_is_put_again_stays_with_its_connection(void **state)
{
    (void)state;
    put(5, "k", 1000, &conns[0]);
    struct sl_record r = record(5, "k", 3000);
    r.session = 2;
    r.value = text("another");
    assert_true(sl_ledger_put(&ledger, &r, &conns[1]));
    struct sl_record *x = sl_ledger_find(&ledger, 5);
    assert_int_equal(x->session, 1);
    assert_int_equal(x->end_ms, 3000);
    assert_text(x->value, "another");
    assert_int_equal(length(&conns[0]), 1);
    assert_int_equal(length(&conns[1]), 0);
    assert_int_equal(length(&ledger.all), 1);
    assert_int_equal(ledger.by_fence.count, 1);
    assert_true(sl_ledger_put(&ledger, &r, NULL));
    assert_int_equal(sl_ledger_find(&ledger, 5)->session, 1);
    assert_int_equal(length(&conns[0]), 1);
}

static void an_extension_does_not_change_the_client(void **state)
{
    (void)state;
    struct sl_record r = record(5, "k", 1000);
    r.name = text("backup");
    r.address = text("10.0.0.7:1 via node 2");
    assert_true(sl_ledger_put(&ledger, &r, &conns[0]));
    size_t bytes = ledger.bytes;
    put(5, "k", 3000,
        NULL); /* Of another connection, which the record does not name. */
    const struct sl_record *x = sl_ledger_find(&ledger, 5);
    assert_int_equal(x->end_ms, 3000);
    assert_text(x->name, "backup");
    assert_text(x->address, "10.0.0.7:1 via node 2");
    assert_int_equal(ledger.bytes, bytes);
    const struct sl_grant_view v = sl_record_view(x, 0);
    assert_text(v.name, "backup");
    const struct sl_record again = sl_record_of(x->key, &v, 0, 4000, 4000);
    assert_text(again.address, "10.0.0.7:1 via node 2");
}

static void a_late_report_does_not_make_a_record_expire_earlier(void **state)
{
    (void)state;
    put(5, "k", 3000, &conns[0]);
    put(5, "k", 2000, NULL);
    assert_int_equal(sl_ledger_find(&ledger, 5)->end_ms, 3000);
    struct sl_record late = record(5, "k", 2000);
    late.sure_ms = 1000;
    assert_true(sl_ledger_put(&ledger, &late, NULL));
    assert_int_equal(sl_ledger_find(&ledger, 5)->sure_ms, 3000);
}

static void a_grant_without_a_session_stays_so(void **state)
{
    (void)state;
    struct sl_record r = record(5, "k", 1000);
    r.session = 0;
    assert_true(sl_ledger_put(&ledger, &r, NULL));
    put(5, "k", 2000, &conns[0]);
    assert_int_equal(sl_ledger_find(&ledger, 5)->session, 0);
    assert_int_equal(length(&conns[0]), 0);
}

static void the_newest_of_a_key_is_that_of_the_connection(void **state)
{
    (void)state;
    put(6, "k", SL_NEVER, &conns[0]);
    put(9, "k", SL_NEVER, &conns[0]);
    put(7, "k", 1000, &conns[0]);
    put(11, "kk", SL_NEVER, &conns[0]);
    put(12, "k", SL_NEVER, &conns[1]);
    assert_int_equal(sl_ledger_newest(&conns[0], text("k"))->fence, 9);
    assert_int_equal(sl_ledger_newest(&conns[0], text("kk"))->fence, 11);
    assert_null(sl_ledger_newest(&conns[1], text("kk")));
    assert_null(sl_ledger_newest(&conns[0], text("")));
}

static void with_a_connection_goes_what_has_no_lease(void **state)
{
    (void)state;
    put(1, "a", SL_NEVER, &conns[0]);
    put(2, "b", 1000, &conns[0]);
    put(3, "c", SL_NEVER, &conns[1]);
    assert_true(sl_ledger_holds_unleased(&conns[0]));
    assert_int_equal(ledger.unleased, 2);
    sl_ledger_leave(&ledger, &conns[0]);
    assert_true(sl_list_empty(&conns[0]));
    assert_null(sl_ledger_find(&ledger, 1));
    assert_int_equal(sl_ledger_find(&ledger, 2)->session, 0);
    assert_int_equal(sl_ledger_find(&ledger, 3)->session, 1);
    assert_int_equal(ledger.unleased, 1);
    assert_false(sl_ledger_holds_unleased(&conns[0]));
    put(4, "d", 1000, &conns[0]);
    assert_false(sl_ledger_holds_unleased(&conns[0]));
}

static void what_has_ended_is_swept(void **state)
{
    (void)state;
    put(1, "a", 1000, &conns[0]);
    put(2, "b", 1001, &conns[0]);
    put(3, "c", SL_NEVER, &conns[0]);
    sl_ledger_sweep(&ledger, 999, 4096);
    assert_int_equal(ledger.by_fence.count, 3);
    sl_ledger_sweep(&ledger, 1000, 4096);
    assert_null(sl_ledger_find(&ledger, 1));
    assert_non_null(sl_ledger_find(&ledger, 2));
    sl_ledger_sweep(&ledger, SL_NEVER - 1, 4096);
    assert_null(sl_ledger_find(&ledger, 2));
    assert_non_null(sl_ledger_find(&ledger, 3));
    assert_int_equal(length(&conns[0]), 1);
}

/* A bounded number at a time, and all of them at last. */
static void many_are_swept_in_turns(void **state)
{
    enum { MANY = 20000 };
    (void)state;
    for (sl_fence f = 1; f <= MANY; f++) put(f, "k", f % 2 ? 1000 : 5000, &conns[0]);
    sl_ledger_sweep(&ledger, 2000, 4096);
    assert_in_range(ledger.by_fence.count, MANY / 2 + 1, MANY - 1);
    for (int i = 0; i < 10; i++) sl_ledger_sweep(&ledger, 2000, 4096);
    assert_int_equal(ledger.by_fence.count, MANY / 2);
    assert_int_equal(length(&conns[0]), MANY / 2);
}

static void a_record_is_as_the_table_sees_it(void **state)
{
    (void)state;
    const struct sl_grant_view v = {.shared = true,
                                    .leased = true,
                                    .fence = 17,
                                    .units = 2,
                                    .per = 3,
                                    .buckets = 4,
                                    .priority = -5,
                                    .left_ms = 600,
                                    .origin = 99,
                                    .value = text("value"),
                                    .note = text("note")};
    const struct sl_record r = sl_record_of(text("key"), &v, 8, 1600, 1550);
    assert_text(r.key, "key");
    assert_int_equal(r.session, 8);
    assert_true(sl_ledger_put(&ledger, &r, &conns[0]));
    const struct sl_grant_view w = sl_record_view(sl_ledger_find(&ledger, 17), 1000);
    assert_true(w.shared && w.leased && !w.waits && !w.broken);
    assert_int_equal(w.session_id, 8);
    assert_int_equal(w.origin, 99);
    assert_int_equal(w.fence, 17);
    assert_int_equal(w.units * 100 + w.per * 10 + w.buckets, 234);
    assert_int_equal(w.priority, -5);
    assert_int_equal(w.left_ms, 600);
    assert_int_equal(w.unsure_ms, 50);
    assert_text(w.value, "value");
    assert_text(w.note, "note");
    const struct sl_record forever = record(18, "k", SL_NEVER);
    assert_true(sl_record_view(&forever, 1000).left_ms == SL_NEVER);
}

/* --- Without memory --------------------------------------------------------------- */

static void what_cannot_be_written_down_changes_nothing(void **state)
{
    (void)state;
    for (sl_fence f = 1; f <= 300; f++) {
        const struct sl_record r = record(f, "k", f % 3 ? 1000 : SL_NEVER);
        size_t unleased = ledger.unleased;
        for (long n = 0;; n++) {
            memory_ends_after(n);
            bool done = sl_ledger_put(&ledger, &r, &conns[0]);
            memory_is_back();
            if (done) break;
            assert_null(sl_ledger_find(&ledger, f));
            assert_int_equal(ledger.by_fence.count, f - 1);
            assert_int_equal(length(&conns[0]), f - 1);
            assert_int_equal(ledger.unleased, unleased);
        }
        assert_int_equal(sl_ledger_find(&ledger, f)->fence, f);
    }
    struct sl_record again = record(7, "k", 9000);
    memory_ends_after(0);
    assert_false(sl_ledger_put(&ledger, &again, NULL));
    memory_is_back();
    assert_int_equal(sl_ledger_find(&ledger, 7)->end_ms, 1000); /* As it was. */
}

/* --- At random -------------------------------------------------------------------- */

enum { FENCES = 64, STEPS = 200000 };

static struct {
    bool there, leased;
    int conn; /* -1: none. */
    sl_ms end_ms;
} plain[FENCES];

static uint32_t pick(uint32_t below)
{
    static uint64_t x = 0x9e3779b97f4a7c15u;
    x ^= x << 13;
    x ^= x >> 7;
    x ^= x << 17;
    return (uint32_t)(x % below);
}

static void put_some(sl_fence f, sl_ms now)
{
    bool leased = plain[f].there ? plain[f].leased : pick(2) == 0;
    int conn = leased ? (int)pick(3) - 1 : (int)pick(2);
    sl_ms end_ms = leased ? now + 1 + pick(50) : SL_NEVER;
    put(f, "k", end_ms, conn < 0 ? NULL : &conns[conn]);
    if (!plain[f].there) plain[f].conn = conn;
    if (!plain[f].there || end_ms > plain[f].end_ms) plain[f].end_ms = end_ms;
    plain[f].there = true;
    plain[f].leased = leased;
}

static void leave(int conn)
{
    sl_ledger_leave(&ledger, &conns[conn]);
    for (sl_fence f = 0; f < FENCES; f++)
        if (plain[f].there && plain[f].conn == conn) {
            plain[f].conn = -1;
            plain[f].there = plain[f].leased;
        }
}

static void sweep(sl_ms now)
{
    sl_ledger_sweep(&ledger, now, 4096);
    for (sl_fence f = 0; f < FENCES; f++)
        if (plain[f].there && plain[f].end_ms <= now) plain[f].there = false;
}

static void compare(void)
{
    size_t all = 0, unleased = 0, of[2] = {0, 0};
    for (sl_fence f = 0; f < FENCES; f++) {
        const struct sl_record *r = sl_ledger_find(&ledger, f);
        assert_int_equal(r != NULL, plain[f].there);
        if (r == NULL) continue;
        assert_true(r->end_ms == plain[f].end_ms && r->leased == plain[f].leased);
        all++;
        unleased += !r->leased;
        if (plain[f].conn >= 0) of[plain[f].conn]++;
    }
    assert_int_equal(length(&ledger.all), all);
    assert_int_equal(ledger.by_fence.count, all);
    assert_int_equal(ledger.unleased, unleased);
    for (int i = 0; i < 2; i++) assert_int_equal(length(&conns[i]), of[i]);
}

static void it_is_a_plain_list(void **state)
{
    sl_ms now = 1000;
    (void)state;
    for (int i = 0; i < STEPS; i++) {
        sl_fence f = pick(FENCES);
        uint32_t what = pick(100);
        now += pick(3);
        if (what < 70) put_some(f, now);
        else if (what < 90 && plain[f].there) {
            sl_ledger_drop(&ledger, sl_ledger_find(&ledger, f));
            plain[f].there = false;
        } else if (what < 95) sweep(now);
        else if (what < 97) leave((int)pick(2));
        if (i % 16 == 0) compare();
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(what_is_put_is_found_by_its_fence, begin, end),
        cmocka_unit_test_setup_teardown(one_that_is_put_again_stays_with_its_connection,
                                        begin, end),
        cmocka_unit_test_setup_teardown(an_extension_does_not_change_the_client, begin,
                                        end),
        cmocka_unit_test_setup_teardown(
            a_late_report_does_not_make_a_record_expire_earlier, begin, end),
        cmocka_unit_test_setup_teardown(a_grant_without_a_session_stays_so, begin, end),
        cmocka_unit_test_setup_teardown(the_newest_of_a_key_is_that_of_the_connection,
                                        begin, end),
        cmocka_unit_test_setup_teardown(with_a_connection_goes_what_has_no_lease, begin,
                                        end),
        cmocka_unit_test_setup_teardown(what_has_ended_is_swept, begin, end),
        cmocka_unit_test_setup_teardown(many_are_swept_in_turns, begin, end),
        cmocka_unit_test_setup_teardown(a_record_is_as_the_table_sees_it, begin, end),
        cmocka_unit_test_setup_teardown(what_cannot_be_written_down_changes_nothing,
                                        begin, end),
        cmocka_unit_test_setup_teardown(it_is_a_plain_list, begin, end),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
