/* test_undo.c - grants and extensions of the lock table that are undone, because their records could
 * not be written. */
#include <string.h>

#include "failing_alloc.h"
#include "locks/undo.h"
#include "table_stage.h"

static struct sl_undo undo;

/* A server answers the last grant of a session. */
static void answer_grant(const struct stage *s, char who)
{
    const struct sl_undo_change c = {.key = bytes("k"), .fence = s->last[who - 'a']};
    assert_int_equal(sl_undo_add(&undo, &c), SLUICE_OK);
}

static bool holds(const struct stage *s, char who)
{
    return sl_table_holds(s->table, s->now, bytes("k"), s->last[who - 'a']);
}

static struct sl_grant_view view_of(const struct stage *s, char who)
{
    struct sl_grant_view v;
    assert_true(
        sl_table_inspect_grant(s->table, s->now, bytes("k"), s->last[who - 'a'], &v));
    return v;
}

/* A session extends its last grant, and a server answers that. */
static void extend(const struct stage *s, char who, sl_ms ms, struct sl_bytes value)
{
    struct sl_grant_view v = view_of(s, who);
    char old[100];
    sl_ms left;
    if (v.value.n > 0) memcpy(old, v.value.at, v.value.n);
    const struct sl_undo_change c = {
        .key = bytes("k"),
        .fence = v.fence,
        .before_ms = v.end_ms,
        .value = {value.at != NULL ? old : NULL, value.at != NULL ? v.value.n : 0}};
    int status = sl_table_extend(s->table, s->now, &s->session[who - 'a'], bytes("k"),
                                 v.fence, ms, value, &left);
    assert_int_equal(status, SLUICE_OK);
    assert_int_equal(sl_undo_add(&undo, &c), SLUICE_OK);
}

static const struct sl_bytes same = {0}; /* The value does not change. */

/* The write has failed. */
static void undo_all(struct stage *s)
{
    sl_undo_all(&undo, s->table, s->now);
    sl_table_check(s->table);
    assert_int_equal(undo.n, 0);
    settle(s);
}

static void check_lease(const struct stage *s, char who, sl_ms end_ms,
                        const char *value)
{
    struct sl_grant_view v = view_of(s, who);
    assert_int_equal(v.end_ms, end_ms);
    assert_int_equal(v.value.n, strlen(value));
    assert_memory_equal(v.value.at, value, v.value.n);
}

UNIT_TEST(a_grant_that_is_undone_has_ended_and_the_next_waiter_is_granted)
{
    for (uint32_t per = 1; per <= 2; per++) { /* One of a mutex, one that is counted. */
        STAGE s = stage_open(100, 0);
        ASK('a', .lease_ms = 10, .per = per, .units = per);
        answer_grant(s, 'a');
        ASK('b', .lease_ms = 10, .wait_ms = 50);
        s->said[0] = '\0';
        undo_all(s);
        SAID("b granted k\n");
        assert_false(holds(s, 'a'));
        assert_true(holds(s, 'b'));
    }
    sl_undo_free(&undo);
}

UNIT_TEST(an_extension_that_is_undone_has_its_old_expiry_and_value)
{
    for (uint32_t per = 1; per <= 2; per++) {
        STAGE s = stage_open(100, 0);
        ASK('a', .lease_ms = 10, .per = per, .value = bytes("old"));
        extend(s, 'a', 20, bytes("a longer value"));
        extend(s, 'a', 30, same);
        extend(s, 'a', 5, bytes("third")); /* Changes the value only. */
        check_lease(s, 'a', 30, "third");
        undo_all(s);
        check_lease(s, 'a', 10, "old");
        pass(s, 10);
        assert_false(holds(s, 'a'));
    }
    sl_undo_free(&undo);
}

UNIT_TEST(an_empty_value_is_restored)
{
    STAGE s = stage_open(100, 0);
    ASK('a', .lease_ms = 10);
    extend(s, 'a', 20, bytes("new"));
    undo_all(s);
    check_lease(s, 'a', 10, "");
    sl_undo_free(&undo);
}

UNIT_TEST(a_new_grant_that_was_extended_has_ended)
{
    STAGE s = stage_open(100, 0);
    ASK('a', .lease_ms = 10);
    answer_grant(s, 'a');
    extend(s, 'a', 20, bytes("new"));
    undo_all(s);
    assert_false(holds(s, 'a'));
    sl_undo_free(&undo);
}

UNIT_TEST(a_released_grant_stays_released_and_the_grant_that_followed_ends)
{
    STAGE s = stage_open(100, 0);
    ASK('a', .lease_ms = 10);
    extend(s, 'a', 20, same);
    release(s, 'a', s->last[0]);
    ASK('b', .lease_ms = 10);
    answer_grant(s, 'b');
    s->said[0] = '\0';
    undo_all(s);
    assert_false(holds(s, 'a') || holds(s, 'b'));
    sl_fence fence = s->last[1];
    ASK('c', .lease_ms = 10);
    SAID("c held 1\n");
    assert_true(s->last[2] > fence); /* No fence is used twice. */
    sl_undo_free(&undo);
}

UNIT_TEST(a_broken_grant_stays_broken_when_its_extension_is_undone)
{
    STAGE s = stage_open(100, 0);
    struct sl_ended past;
    sl_ms left;
    ASK('a', .lease_ms = 10);
    extend(s, 'a', 20, same);
    sl_table_break(s->table, s->now, bytes("k"), s->last[0], false, &past);
    undo_all(s);
    check_lease(s, 'a', 10, "");
    assert_int_equal(sl_table_extend(s->table, s->now, &s->session[0], bytes("k"),
                                     s->last[0], 20, same, &left),
                     SLUICE_ELOST);
    sl_undo_free(&undo);
}

UNIT_TEST(the_grant_after_an_overlapping_one_that_is_undone_overlaps_too)
{
    STAGE s = stage_open(100, 0);
    struct sl_ended past;
    ASK('a', .lease_ms = 1000);
    sl_table_break(s->table, s->now, bytes("k"), s->last[0], true, &past);
    ASK('b', .lease_ms = 10);
    answer_grant(s, 'b');
    SAID("a held 1\nb held 1 overlapping\n");
    undo_all(s);
    ASK('c', .lease_ms = 10);
    SAID(
        "c held 1 overlapping\n"); /* The holder of the broken grant may still use the lock. */
    sl_undo_free(&undo);
}

UNIT_TEST(a_thief_that_is_undone_holds_nothing_and_its_victim_still_holds)
{
    STAGE s = stage_open(100, 0);
    ASK('a', .lease_ms = 1000);
    ASK('b', .lease_ms = 10, .wait_ms = 50, .steal = true, .force_ms = 0,
        .priority = 5);
    answer_grant(s, 'b');
    SAID("a held 1\nb waits\nb asked k\nb granted k\n- stolen k\n");
    undo_all(s);
    assert_true(holds(s, 'a'));
    assert_false(holds(s, 'b'));
    sl_undo_free(&undo);
}

UNIT_TEST(a_change_that_was_forgotten_is_not_undone)
{
    STAGE s = stage_open(100, 0);
    ASK('a', .lease_ms = 10);
    answer_grant(s, 'a');
    extend(s, 'a', 20, bytes("new"));
    sl_undo_forget(&undo); /* They are written. */
    extend(s, 'a', 30, bytes("newer"));
    undo_all(s);
    check_lease(s, 'a', 20, "new");
    sl_undo_free(&undo);
}

UNIT_TEST(many_changes_are_undone)
{
    enum { EXTENSIONS = 50000 }; /* More than the memory that is kept. */
    STAGE s = stage_open(100, 0);
    ASK('a', .lease_ms = 10);
    for (sl_ms ms = 11; ms <= EXTENSIONS; ms++) extend(s, 'a', ms, same);
    undo_all(s);
    check_lease(s, 'a', 10, "");
    assert_int_equal(undo.size, 0);
    sl_undo_free(&undo);
}

UNIT_TEST(without_memory_a_change_is_not_added_and_earlier_ones_are_undone)
{
    STAGE s = stage_open(100, 0);
    const struct sl_undo_change c = {.key = bytes("k"), .fence = 1};
    ASK('a', .lease_ms = 10);
    answer_grant(s, 'a');
    memory_ends_after(0);
    while (sl_undo_add(&undo, &c) == SLUICE_OK) continue;
    memory_is_back();
    assert_int_equal(memory_failures(), 1);
    undo_all(s);
    assert_false(holds(s, 'a'));
    sl_undo_free(&undo);
}

int main(void)
{
    return run_unit_tests("undo");
}
