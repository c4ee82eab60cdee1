/* test_tx.c - the rules of src/tx/README.md, one by one, by transcripts. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tx_stage.h"

/* --- Candidate, leader, stopped ------------------------------------------------ */

UNIT_TEST(a_candidate_claims_and_does_nothing_else)
{
    STAGE s = stage_candidate(&stage_limits, NULL);
    by_hand(s);
    assert_true(sl_tx_manager_due(s->manager) <= s->now);
    BEGIN(1), GET(1, "a"), COMMIT(1), ABORT(1), OUTCOME(1, "r");
    SAID("1 NOKEEPER\n1 NOKEEPER\n1 NOKEEPER\n1 NOKEEPER\n1 NOKEEPER\n");
    pass(s, 0), pass(s, 0);
    SAID("> claim\n");
    BEGIN(1);
    SAID("1 NOKEEPER\n");
    does(s), BEGIN(1);
    SAID("1 began 1\n");
    assert_int_equal(stats_of(s).term, 1);
}

UNIT_TEST(a_claim_that_failed_is_made_again)
{
    STAGE s = stage_candidate(&stage_limits, NULL);
    by_hand(s);
    pass(s, 0), refuses(s, SLUICE_ENOSPC);
    SAID("> claim\n");
    pass(s, 99);
    SAID("");
    assert_int_equal(sl_tx_manager_due(s->manager), s->now + 1);
    pass(s, 1), does(s), BEGIN(1);
    SAID("> claim\n1 began 1\n");
    assert_int_equal(sl_tx_manager_due(s->manager), SL_NEVER);
}

UNIT_TEST(a_rejected_claim_is_final)
{
    STAGE s = stage_candidate(&stage_limits, NULL);
    by_hand(s);
    pass(s, 0), refuses(s, SLUICE_ESTALE), pass(s, 1000), BEGIN(1);
    SAID("> claim\n1 NOKEEPER\n");
    assert_int_equal(stats_of(s).state, SL_TX_MANAGER_STOPPED);
    assert_int_equal(sl_tx_manager_due(s->manager), SL_NEVER);
}

UNIT_TEST(one_that_was_stopped_does_not_lead_any_more)
{
    STAGE s = stage_candidate(&stage_limits, NULL);
    by_hand(s);
    pass(s, 0), stop(s, 7), does(s), BEGIN(1), pass(s, 1000);
    SAID("> claim\n1 NOKEEPER\n");
    assert_int_equal(stats_of(s).state, SL_TX_MANAGER_STOPPED);
}

/* Nor does a claim go out that nobody has fetched. */
UNIT_TEST(one_that_was_stopped_claims_no_more)
{
    STAGE s = stage_candidate(&stage_limits, NULL);
    struct sl_tx_order order;
    sl_tx_manager_tick(s->manager, s->now);
    sl_tx_manager_stop(s->manager, s->now, 7);
    assert_false(sl_tx_manager_next(s->manager, &order));
}

UNIT_TEST(every_keeper_has_a_term_of_its_own)
{
    struct stage *s = stage_new(), *t = stage_beside(s);
    uint64_t a = BEGIN(1), b;
    assert_int_equal(s->asked[a].term, 1);
    struct stage *first = s;
    s = t;
    b = BEGIN(1);
    assert_int_equal(s->asked[b].term, 2);
    stage_end(s);
    stage_end(first);
}

/* Waiting requests are answered, later ones as well; nothing that is released is granted. */
UNIT_TEST(when_it_stops_nothing_is_granted)
{
    STAGE s = stage_new();
    BEGIN(1), BEGIN(2), BEGIN(3), WRITE(1, "a"), WRITE(2, "a"), READ(3, "a");
    UNHEARD;
    stop(s, 9);
    SAID("2 STALE 9\n3 STALE 9\n");
    assert_int_equal(stats_of(s).locks, 0);
    GET(1, "a"), GET(2, "a"), BEGIN(4), OUTCOME(5, "r");
    SAID("1 NOKEEPER\n2 NOKEEPER\n4 NOKEEPER\n5 NOKEEPER\n");
    stop(s, 10);
    leave(s, 1);
    SAID("");
}

/* A read on its way is for nobody. */
UNIT_TEST(when_it_stops_reads_are_stale)
{
    STAGE s = stage_new();
    BEGIN(1), BEGIN(2), by_hand(s), GET(1, "a"), SCAN(2, "*");
    UNHEARD;
    stop(s, 9);
    SAID("1 STALE 9\n2 STALE 9\n");
    does(s), does(s);
    SAID("");
}

/* STALE says that nothing was committed: of a commit on its way nobody knows that. */
UNIT_TEST(when_it_stops_a_commit_on_its_way_is_waited_for)
{
    STAGE s = stage_new();
    BEGIN(1), PUT(1, "a", "x"), BEGIN(2), PUT(2, "b", "y"), BEGIN(3), GET(3, "c");
    by_hand(s), COMMIT(1), COMMIT(2);
    UNHEARD;
    applies(s, oldest(s));
    stop(s, 2);
    SAID("");
    assert_int_equal(stats_of(s).transactions, 2);
    tells(s, oldest(s));
    SAID("1 committed 1\n");
    s->store->term = 2;
    does(s);
    SAID("2 STALE 2\n");
    assert_int_equal(stats_of(s).transactions, 0);
}

/* But one that nobody has fetched is not ordered, least of all without its writes. */
UNIT_TEST(when_it_stops_a_commit_that_was_not_fetched_is_not_ordered)
{
    STAGE s = stage_new();
    struct sl_tx_order order;
    const struct sl_tx_request commit = {.type = SL_TX_COMMIT, .session = 1};
    BEGIN_AS(1, "r"), PUT(1, "a", "x");
    UNHEARD;
    assert_int_equal(sl_tx_manager_submit(s->manager, s->now, 77, &commit), SLUICE_OK);
    sl_tx_manager_stop(s->manager, s->now, 2);
    assert_true(sl_tx_manager_next(s->manager, &order));
    assert_int_equal(order.type, SL_TX_ORDER_ANSWER);
    assert_int_equal(order.answer->status, SLUICE_ESTALE);
    assert_false(sl_tx_manager_next(s->manager, &order));
}

UNIT_TEST(a_keeper_whose_commit_is_stale_stops)
{
    struct stage *s = stage_new(), *old = s, *new = stage_beside(s);
    BEGIN(1), PUT(1, "a", "old"), BEGIN(2), GET(2, "b"), BEGIN(3), WRITE(3, "a");
    SAID("1 began 1\n1 put\n2 began 2\n2 got nothing\n3 began 3\n3 waits\n");
    s = new;
    BEGIN(1), PUT(1, "a", "new"), COMMIT(1);
    SAID("1 began 1\n1 put\n1 committed 1\n");
    s = old;
    /* It goes on granting, but nothing of that is committed. */
    GET(2, "c"), COMMIT(2);
    SAID("2 got nothing\n3 STALE 2\n2 STALE 2\n");
    COMMIT(1);
    SAID("1 NOKEEPER\n");
    assert_string_equal(stored_at(s->store, "t", "a"), "new");
    assert_int_equal(stats_of(s).state, SL_TX_MANAGER_STOPPED);
    stage_end(old);
    stage_end(new);
}

/* --- Modes ------------------------------------------------------------------------- */

/* What a mode allows: to read something below, all below, to write something, all. */
enum { SOME = 1, ALL = 2, WRITES = 4, WRITES_ALL = 8 };
static const int allows[] = {0,
                             SOME,
                             SOME | WRITES,
                             SOME | ALL,
                             SOME | ALL | WRITES,
                             SOME | ALL | WRITES | WRITES_ALL};

static bool meets(int a, int b)
{
    return ((a & ALL) && (b & WRITES)) || ((a & WRITES_ALL) && b != 0);
}

UNIT_TEST(modes_fit_if_what_they_allow_does_not_meet)
{
    for (int a = 0; a < 6; a++)
        for (int b = 0; b < 6; b++)
            assert_int_equal(sl_tx_mode_fits((enum sl_tx_mode)a, (enum sl_tx_mode)b),
                             !meets(allows[a], allows[b]) &&
                                 !meets(allows[b], allows[a]));
}

UNIT_TEST(two_modes_are_the_least_that_is_both)
{
    for (int a = 0; a < 6; a++)
        for (int b = 0; b < 6; b++) {
            int least = SL_TX_MODE_W;
            for (int m = 0; m < 6; m++)
                if ((allows[m] & (allows[a] | allows[b])) == (allows[a] | allows[b]) &&
                    (allows[m] & allows[least]) == allows[m])
                    least = m;
            assert_int_equal(sl_tx_mode_both((enum sl_tx_mode)a, (enum sl_tx_mode)b),
                             least);
        }
}

UNIT_TEST(every_mode_has_a_name)
{
    for (int a = 0; a < 6; a++)
        for (int b = 0; b < a; b++)
            assert_string_not_equal(sl_tx_mode_name((enum sl_tx_mode)a),
                                    sl_tx_mode_name((enum sl_tx_mode)b));
}

/* Two transactions, three items, two modes. The first holds the row, the second requests the
 * column: "x" if it waits. */
UNIT_TEST(of_all_pairs_of_locks_exactly_the_conflicting_ones_wait)
{
    static const char *const item[] = {"a", "b", "*"};
    static const char *const expected[] = {
        /* read a, b, table; write a, b, table */
        "...x.x", "....xx", "...xxx", /* read a, b, table */
        "x.xx.x", ".xx.xx", "xxxxxx", /* write a, b, table */
    };
    for (int first = 0; first < 6; first++)
        for (int second = 0; second < 6; second++) {
            struct stage *s = stage_new();
            BEGIN(1), BEGIN(2);
            stage_item(s, SL_TX_LOCK, 1, item[first % 3], "", first >= 3);
            SAID("1 began 1\n2 began 2\n1 locked\n");
            stage_item(s, SL_TX_LOCK, 2, item[second % 3], "", second >= 3);
            bool waits = expected[first][second] == 'x';
            SAID(waits ? "2 waits\n" : "2 locked\n");
            COMMIT(1);
            SAID(waits ? "1 committed 0\n2 locked\n" : "1 committed 0\n");
            stage_end(s);
        }
}

/* What to ask for to have a mode of the table, with a key that is nobody else's. */
static uint64_t take_mode(struct stage *s, uint64_t who, enum sl_tx_mode m,
                          const char *key)
{
    switch (m) {
        case SL_TX_MODE_IR: return READ(who, key);
        case SL_TX_MODE_IW: return WRITE(who, key);
        case SL_TX_MODE_R: return READ(who, "*");
        case SL_TX_MODE_W: return WRITE(who, "*");
        default: break;
    }
    uint64_t ticket = READ(who, "*");
    return s->asked[ticket].answered ? WRITE(who, key) : ticket;
}

static enum sl_tx_mode mode_of(struct stage *s, uint64_t who)
{
    struct sl_tx_view v;
    for (uint32_t i = 0;
         sl_tx_manager_holder(s->manager, s->now, (struct sl_bytes){"t", 1},
                              (struct sl_bytes){NULL, 0}, i, &v);
         i++)
        if (v.session == who) return v.mode;
    return SL_TX_MODE_NONE;
}

/* A transaction holds a mode and requests another, next to a holder of a third. */
static void upgrade(enum sl_tx_mode has, enum sl_tx_mode wants, enum sl_tx_mode other)
{
    struct stage *s = stage_new();
    enum sl_tx_mode both = sl_tx_mode_both(has, wants);
    BEGIN(1), BEGIN(2), BEGIN(3);
    take_mode(s, 1, has, "a");
    take_mode(s, 2, other, "b");
    assert_int_equal(mode_of(s, 1), has);
    assert_int_equal(mode_of(s, 2), other);
    uint64_t waiter = WRITE(3, "*"); /* It comes first all the same. */
    uint64_t ticket = take_mode(s, 1, wants, "a");
    assert_int_equal(s->asked[ticket].answered, sl_tx_mode_fits(both, other));
    if (!s->asked[ticket].answered) {
        assert_int_equal(mode_of(s, 1) == both, false);
        COMMIT(2);
        assert_true(s->asked[ticket].answered);
        take_mode(s, 1, wants, "a");
    }
    assert_int_equal(mode_of(s, 1), both);
    assert_false(s->asked[waiter].answered);
    stage_end(s);
}

UNIT_TEST(all_modes_are_upgraded_to_all_others)
{
    for (int has = SL_TX_MODE_IR; has <= SL_TX_MODE_W; has++)
        for (int wants = SL_TX_MODE_IR; wants <= SL_TX_MODE_W; wants++)
            for (int other = SL_TX_MODE_IR; other <= SL_TX_MODE_W; other++)
                if (sl_tx_mode_fits((enum sl_tx_mode)has, (enum sl_tx_mode)other))
                    upgrade((enum sl_tx_mode)has, (enum sl_tx_mode)wants,
                            (enum sl_tx_mode)other);
}

UNIT_TEST(a_key_comes_with_an_intention_on_its_table)
{
    STAGE s = stage_new();
    BEGIN(1), BEGIN(2), GET(1, "a"), PUT(2, "b", "x");
    HOLDERS("*", "1 IR, 2 IW");
    HOLDERS("a", "1 R");
    HOLDERS("b", "2 W");
    SCAN(1, "*");
    HOLDERS("*", "1 IR>R for 2, 2 IW");
    COMMIT(2);
    HOLDERS("*", "1 R");
    PUT(1, "c", "y");
    HOLDERS("*", "1 RIW");
    GET(1, "u/a");
    HOLDERS("u/*", "1 IR"); /* Another table. */
}

/* No phantoms: a transaction that has scanned a table sees no row appear or disappear. */
UNIT_TEST(a_table_being_read_is_not_written)
{
    STAGE s = stage_new();
    BEGIN(1), PUT(1, "a", "x"), COMMIT(1), BEGIN(1), SCAN(1, "*");
    UNHEARD;
    BEGIN(2), PUT(2, "b", "y");
    SAID("2 began 3\n2 waits\n");
    BEGIN(3), DEL(3, "a"), SCAN(1, "*");
    SAID("3 began 4\n3 waits\n1 saw a=x\n");
    COMMIT(1);
    SAID("1 committed 1\n2 put\n3 deleted\n");
}

/* --- Lines ------------------------------------------------------------------------- */

UNIT_TEST(a_queue_is_ordered_by_age)
{
    STAGE s = stage_new();
    for (uint64_t i = 1; i <= 5; i++) BEGIN(i);
    WRITE(5, "a"), WRITE(3, "a"), WRITE(4, "a"), WRITE(1, "a"), WRITE(2, "a");
    HOLDERS("a", "5 W, 1 ->W for 5, 2 ->W for 5, 3 ->W for 5, 4 ->W for 5");
    UNHEARD;
    COMMIT(5), COMMIT(1), COMMIT(2), COMMIT(3);
    SAID("5 committed 0\n1 locked\n1 committed 0\n2 locked\n2 committed 0\n3 locked\n"
         "3 committed 0\n4 locked\n");
}

/* From its head, up to the first that does not fit. */
UNIT_TEST(a_queue_is_served_up_to_the_first_that_does_not_fit)
{
    STAGE s = stage_new();
    for (uint64_t i = 1; i <= 6; i++) BEGIN(i);
    WRITE(1, "a"), READ(2, "a"), READ(3, "a"), WRITE(4, "a"), READ(5, "a");
    UNHEARD;
    COMMIT(1);
    SAID("1 committed 0\n2 locked\n3 locked\n");
    READ(6, "a");
    HOLDERS("a", "2 R, 3 R, 4 ->W for 2, 5 ->R for 4, 6 ->R for 4");
    COMMIT(2), COMMIT(3);
    SAID("6 waits\n2 committed 0\n3 committed 0\n4 locked\n");
    COMMIT(4);
    SAID("4 committed 0\n5 locked\n6 locked\n");
}

/* Readers do not pass a waiting writer, unless they are older. */
UNIT_TEST(nobody_overtakes_the_first_waiter)
{
    STAGE s = stage_new();
    for (uint64_t i = 1; i <= 4; i++) BEGIN(i);
    READ(2, "a"), WRITE(3, "a");
    UNHEARD;
    READ(4, "a"), READ(1, "a");
    SAID("4 waits\n1 locked\n");
    COMMIT(1), COMMIT(2), COMMIT(3);
    SAID("1 committed 0\n2 committed 0\n3 locked\n3 committed 0\n4 locked\n");
}

/* Its lesser lock is in the way of all others: behind them it would wait for itself. */
UNIT_TEST(a_partial_holder_comes_before_an_empty_one)
{
    STAGE s = stage_new();
    for (uint64_t i = 1; i <= 4; i++) BEGIN(i);
    READ(3, "a"), READ(4, "a"), WRITE(1, "a"), WRITE(2, "a");
    UNHEARD;
    WRITE(4, "a");
    HOLDERS("a", "3 R, 4 R>W for 3, 1 ->W for 3, 2 ->W for 3");
    COMMIT(3);
    SAID("4 waits\n3 committed 0\n4 locked\n");
    HOLDERS("a", "4 W, 1 ->W for 4, 2 ->W for 4");
}

UNIT_TEST(an_upgrade_that_fits_does_not_wait)
{
    STAGE s = stage_new();
    BEGIN(1), BEGIN(2);
    READ(2, "a"), WRITE(1, "a");
    UNHEARD;
    WRITE(2, "a");
    SAID("2 locked\n");
}

/* First the table, then the key; each has its own queue. */
UNIT_TEST(a_holder_of_the_table_may_wait_for_a_key)
{
    STAGE s = stage_new();
    for (uint64_t i = 1; i <= 3; i++) BEGIN(i);
    WRITE(1, "*");
    UNHEARD;
    PUT(2, "a", "2"), PUT(3, "a", "3");
    HOLDERS("*", "1 W, 2 ->IW for 1, 3 ->IW for 1");
    COMMIT(1);
    SAID("2 waits\n3 waits\n1 committed 0\n2 put\n");
    HOLDERS("*", "2 IW, 3 IW");
    HOLDERS("a", "2 W, 3 ->W for 2");
    assert_int_equal(stats_of(s).waiting, 1);
    COMMIT(2), COMMIT(3);
    SAID("2 committed 1\n3 put\n3 committed 2\n");
}

UNIT_TEST(a_waiter_that_leaves_the_queue_lets_others_continue)
{
    STAGE s = stage_new();
    for (uint64_t i = 1; i <= 3; i++) BEGIN(i);
    READ(1, "a"), WRITE(2, "a"), READ(3, "a");
    UNHEARD;
    leave(s, 2);
    SAID("3 locked\n");
}

/* --- Cycles ------------------------------------------------------------------------ */

/* Two transactions cross. The youngest restarts, with the cycle, without locks, and with its
 * number; both commit. */
UNIT_TEST(two_that_cross_both_commit)
{
    STAGE s = stage_new();
    BEGIN(1), BEGIN(2), PUT(1, "a", "1"), PUT(2, "b", "2");
    UNHEARD;
    PUT(2, "a", "2"), PUT(1, "b", "1");
    SAID("2 waits\n2 RESTART 1 2\n1 put\n");
    HOLDERS("a", "1 W");
    HOLDERS("b", "1 W");
    BEGIN(2), PUT(2, "a", "2"), COMMIT(1), PUT(2, "b", "2"), COMMIT(2);
    SAID("2 began 2\n2 waits\n1 committed 1\n2 put\n2 put\n2 committed 2\n");
    assert_string_equal(stored_at(s->store, "t", "a"), "2");
    assert_int_equal(stats_of(s).cycles, 1);
    assert_int_equal(stats_of(s).restarted, 1);
    assert_int_equal(stats_of(s).committed, 2);
}

/* The youngest may be the one that asks. */
UNIT_TEST(the_closer_of_a_cycle_may_be_its_youngest)
{
    STAGE s = stage_new();
    BEGIN(1), BEGIN(2), WRITE(1, "a"), WRITE(2, "b"), WRITE(1, "b");
    UNHEARD;
    WRITE(2, "a");
    SAID("2 RESTART 2 1\n1 locked\n");
}

UNIT_TEST(a_cycle_of_three)
{
    STAGE s = stage_new();
    for (uint64_t i = 1; i <= 3; i++) BEGIN(i);
    WRITE(1, "a"), WRITE(3, "b"), WRITE(2, "c");
    WRITE(1, "b"), WRITE(3, "c");
    UNHEARD;
    WRITE(2, "a");
    SAID("3 RESTART 2 1 3\n1 locked\n2 waits\n");
}

UNIT_TEST(two_readers_that_want_to_write)
{
    STAGE s = stage_new();
    BEGIN(1), BEGIN(2), GET(1, "a"), GET(2, "a"), PUT(1, "a", "1");
    UNHEARD;
    PUT(2, "a", "2");
    SAID("2 RESTART 2 1\n1 put\n");
}

UNIT_TEST(a_cycle_of_table_and_key)
{
    STAGE s = stage_new();
    BEGIN(1), BEGIN(2), PUT(1, "a", "1"), PUT(2, "u/a", "2");
    UNHEARD;
    SCAN(1, "u/*"), SCAN(2, "*");
    SAID("1 waits\n2 RESTART 2 1\n1 saw nothing\n");
}

/* A queue blocks, too: 3 fits next to 1, but is behind 2, which waits for 1. */
UNIT_TEST(a_deadlock_through_the_queue_is_found)
{
    STAGE s = stage_new();
    for (uint64_t i = 1; i <= 3; i++) BEGIN(i);
    READ(1, "a"), WRITE(3, "b"), WRITE(2, "a"), READ(3, "a");
    HOLDERS("a", "1 R, 2 ->W for 1, 3 ->R for 2");
    UNHEARD;
    READ(1, "b");
    SAID("3 RESTART 1 3 2\n1 locked\n");
    HOLDERS("a", "1 R, 2 ->W for 1");
}

/* A transaction comes before another in the queue, which then waits for it: 3 fits next to 4 and 5,
 * and is behind 2, which waits for 4 alone. Then 1 comes before both, and waits for 5, too, which
 * waits for 3. */
UNIT_TEST(a_deadlock_closed_by_an_earlier_waiter)
{
    STAGE s = stage_new();
    for (uint64_t i = 1; i <= 5; i++) BEGIN(i);
    READ(4, "*"), WRITE(4, "a"), READ(5, "b"), WRITE(3, "u/a");
    READ(2, "*"), READ(3, "c"), READ(5, "u/a");
    HOLDERS("*", "4 RIW, 5 IR, 2 ->R for 4, 3 ->IR for 2");
    UNHEARD;
    WRITE(1, "*");
    SAID("5 RESTART 1 5 3\n1 waits\n");
    HOLDERS("*", "4 RIW, 1 ->W for 4, 2 ->R for 4, 3 ->IR for 1");
}

/* One wait may close several. */
UNIT_TEST(two_deadlocks_closed_by_one_request_are_both_resolved)
{
    STAGE s = stage_new();
    for (uint64_t i = 1; i <= 3; i++) BEGIN(i);
    WRITE(1, "a"), READ(2, "b"), READ(3, "b"), READ(2, "a"), READ(3, "a");
    UNHEARD;
    WRITE(1, "b");
    SAID("2 RESTART 1 2\n3 RESTART 1 3\n1 locked\n");
    assert_int_equal(stats_of(s).cycles, 2);
}

/* A way that was found is not what it was once somebody on it has lost: 1 closes three cycles,
 * by 6, 3 and 7, which all go by 2 and 5. First 6 loses, then 5; then none is left for 7. */
UNIT_TEST(a_way_is_forgotten_when_somebody_on_it_loses)
{
    STAGE s = stage_new();
    for (uint64_t i = 1; i <= 7; i++) BEGIN(i);
    WRITE(1, "a"), WRITE(5, "s"), WRITE(2, "o"), WRITE(4, "w");
    READ(6, "b"), READ(3, "b"), READ(7, "b");
    READ(5, "a"), READ(2, "s"), READ(4, "o"), READ(6, "w"), READ(3, "o"), READ(7, "w");
    UNHEARD;
    WRITE(1, "b");
    SAID("6 RESTART 1 6 4 2 5\n5 RESTART 1 3 2 5\n2 locked\n1 waits\n");
    HOLDERS("b", "3 R, 7 R, 1 ->W for 3");
}

/* If the one that closes them gives way itself, nobody else has to. */
UNIT_TEST(a_transaction_that_closes_cycles_restarts_alone)
{
    STAGE s = stage_new();
    for (uint64_t i = 1; i <= 3; i++) BEGIN(i);
    BEGIN(4);
    WRITE(3, "a"), READ(4, "b"), READ(1, "b"), READ(4, "a"), READ(1, "a");
    UNHEARD;
    WRITE(3, "b");
    SAID("3 RESTART 3 1\n1 locked\n4 locked\n");
    assert_int_equal(stats_of(s).cycles, 1);
}

/* --- Many transactions --------------------------------------------------------------------- */

/* How much is looked at, not how long it takes: a square of MANY is a hundred times what is
 * allowed here. */
enum { MANY = 2000, FEW_STEPS = 20 * MANY, STEPS_OF_A_CALL = 1200 };

static void fetch_all(struct sl_tx_manager *k)
{
    struct sl_tx_order order;
    const struct sl_storage_result done = {.status = SLUICE_OK, .term = 1};
    while (sl_tx_manager_next(k, &order))
        if (order.type != SL_TX_ORDER_ANSWER) sl_tx_manager_done(k, 0, order.op, &done);
}

static struct sl_tx_manager *crowd_new(sl_ms age_ms_max)
{
    struct sl_tx_manager_limits limits = stage_limits;
    limits.transactions_max = 3 * MANY;
    limits.age_ms_max = age_ms_max;
    struct sl_tx_manager *k = sl_tx_manager_new(&limits, (struct sl_hash_key){42, 0});
    sl_tx_manager_tick(k, 0);
    fetch_all(k);
    return k;
}

static void crowd_ask(struct sl_tx_manager *k, uint64_t session, enum sl_tx_verb type,
                      bool write, const char *key)
{
    const struct sl_bytes none = {NULL, 0};
    const struct sl_tx_request ask = {
        .type = type,
        .session = session,
        .write = write,
        .table = type == SL_TX_BEGIN ? none : (struct sl_bytes){"t", 1},
        .key = key == NULL ? none : (struct sl_bytes){key, strlen(key)}};
    assert_int_equal(sl_tx_manager_submit(k, 0, session, &ask), SLUICE_OK);
    fetch_all(k);
}

/* Begin, and lock one key after the other; the last may have to be waited for. */
static void crowd_locks(struct sl_tx_manager *k, uint64_t session, const char *first,
                        bool write_first, const char *second, bool write_second)
{
    crowd_ask(k, session, SL_TX_BEGIN, false, NULL);
    crowd_ask(k, session, SL_TX_LOCK, write_first, first);
    if (second != NULL) crowd_ask(k, session, SL_TX_LOCK, write_second, second);
}

static struct sl_tx_manager_stats crowd_stats(const struct sl_tx_manager *k)
{
    struct sl_tx_manager_stats stats;
    sl_tx_manager_stats(k, &stats);
    return stats;
}

UNIT_TEST(each_new_waiter_of_a_long_queue_visits_few)
{
    struct sl_tx_manager *k = crowd_new(SL_NEVER);
    for (uint64_t i = 1; i <= MANY; i++) crowd_locks(k, i, "a", true, NULL, false);
    assert_int_equal(crowd_stats(k).waiting, MANY - 1);
    assert_true(crowd_stats(k).steps < FEW_STEPS);
    sl_tx_manager_free(k);
}

/* Somebody waits for the one that comes last, so that it does look for a cycle. If it looked
 * at all before each of those before it, that would be the square. */
UNIT_TEST(a_long_queue_is_searched_at_once)
{
    struct sl_tx_manager *k = crowd_new(SL_NEVER);
    for (uint64_t i = 1; i <= MANY; i++) crowd_locks(k, i, "a", true, NULL, false);
    crowd_locks(k, MANY + 1, "b", true, NULL, false);
    crowd_locks(k, MANY + 2, "b", true, NULL, false);
    uint64_t before = crowd_stats(k).steps;
    crowd_ask(k, MANY + 1, SL_TX_LOCK, true, "a");
    assert_int_equal(crowd_stats(k).waiting, MANY + 1);
    assert_int_equal(crowd_stats(k).cycles, 0);
    assert_true(crowd_stats(k).steps - before >= MANY);
    assert_true(crowd_stats(k).steps - before < FEW_STEPS);
    sl_tx_manager_free(k);
}

/* Half of the holders of "b" wait for a transaction that waits for nobody, half for the first. */
UNIT_TEST(many_cycles_closed_at_once_are_found_in_one_search)
{
    struct sl_tx_manager *k = crowd_new(SL_NEVER);
    crowd_locks(k, 1, "a", true, NULL, false);
    crowd_locks(k, 2, "c", true, NULL, false);
    for (uint64_t i = 3; i < MANY; i++) crowd_locks(k, i, "b", false, "c", false);
    for (uint64_t i = MANY; i < 2 * MANY; i++) crowd_locks(k, i, "b", false, "a", true);
    uint64_t before = crowd_stats(k).steps;
    crowd_ask(k, 1, SL_TX_LOCK, true, "b");
    assert_int_equal(crowd_stats(k).cycles, MANY);
    assert_int_equal(crowd_stats(k).waiting, MANY - 3 + 1);
    assert_true(crowd_stats(k).steps - before < FEW_STEPS);
    sl_tx_manager_check(k);
    sl_tx_manager_free(k);
}

/* Many hold "b" and wait for the first of a long chain, whose last waits for the new waiter. */
UNIT_TEST(the_search_for_deadlocks_visits_a_shared_chain_once)
{
    struct sl_tx_manager *k = crowd_new(SL_NEVER);
    char mine[24], next[24];
    crowd_locks(k, 1, "a", true, NULL, false);
    for (uint64_t i = MANY + 1; i > 1; i--) {
        snprintf(mine, sizeof mine, "%llu", (unsigned long long)i);
        snprintf(next, sizeof next, "%llu", (unsigned long long)i + 1);
        crowd_locks(k, i, mine, true, i == MANY + 1 ? "a" : next, true);
    }
    for (uint64_t i = MANY + 2; i <= 2 * MANY + 1; i++)
        crowd_locks(k, i, "b", false, "2", false);
    uint64_t before = crowd_stats(k).steps;
    crowd_ask(k, 1, SL_TX_LOCK, true, "b");
    assert_int_equal(crowd_stats(k).cycles, MANY);
    assert_true(crowd_stats(k).steps - before < FEW_STEPS);
    sl_tx_manager_check(k);
    sl_tx_manager_free(k);
}

/* All of a long chain have "b", and the first of it is the youngest: each loses, one after the
 * other, and nobody walks the rest of the chain again. */
UNIT_TEST(a_chain_that_is_restarted_one_by_one_is_searched_once)
{
    struct sl_tx_manager *k = crowd_new(SL_NEVER);
    char mine[24], next[24];
    crowd_locks(k, 1, "a", true, NULL, false);
    for (uint64_t i = 2; i <= MANY; i++) {
        snprintf(mine, sizeof mine, "%llu", (unsigned long long)i);
        crowd_locks(k, i, mine, true, NULL, false);
    }
    for (uint64_t i = MANY; i > 1; i--) crowd_ask(k, i, SL_TX_LOCK, false, "b");
    for (uint64_t i = MANY; i > 1; i--) {
        snprintf(next, sizeof next, "%llu", (unsigned long long)i - 1);
        crowd_ask(k, i, SL_TX_LOCK, true, i == 2 ? "a" : next);
    }
    uint64_t before = crowd_stats(k).steps;
    crowd_ask(k, 1, SL_TX_LOCK, true, "b");
    assert_int_equal(crowd_stats(k).cycles, MANY - 1);
    assert_true(crowd_stats(k).steps - before < FEW_STEPS);
    sl_tx_manager_check(k);
    sl_tx_manager_free(k);
}

/* They have the table at once, and then all want one key: no call takes long, and all of it
 * is no square. */
UNIT_TEST(many_waiters_continue_in_batches)
{
    struct sl_tx_manager *k = crowd_new(SL_NEVER);
    crowd_locks(k, 1, NULL, true, NULL, false);
    for (uint64_t i = 2; i <= MANY; i++) crowd_locks(k, i, "a", true, NULL, false);
    uint64_t before = crowd_stats(k).steps, calls = 0;
    const struct sl_tx_request end = {.type = SL_TX_ABORT, .session = 1};
    assert_int_equal(sl_tx_manager_submit(k, 7, 1, &end), SLUICE_OK);
    for (uint64_t last = before;; calls++) {
        uint64_t now = crowd_stats(k).steps;
        assert_true(now - last < STEPS_OF_A_CALL);
        last = now;
        sl_tx_manager_check(k);
        if (sl_tx_manager_due(k) == SL_NEVER) break;
        assert_int_equal(sl_tx_manager_due(k), 7);
        sl_tx_manager_tick(k, 7);
    }
    assert_true(calls > 1);
    assert_int_equal(crowd_stats(k).waiting, MANY - 2);
    assert_true(crowd_stats(k).steps - before < FEW_STEPS);
    fetch_all(k);
    sl_tx_manager_free(k);
}

/* A ready transaction may be left by its client, accepts no other request, and its manager may
 * stop. */
UNIT_TEST(a_transaction_whose_turn_came_may_leave_first)
{
    struct sl_tx_manager *k = crowd_new(SL_NEVER);
    crowd_locks(k, 1, NULL, true, NULL, false);
    for (uint64_t i = 2; i <= MANY; i++) crowd_locks(k, i, "a", true, NULL, false);
    const struct sl_tx_request end = {.type = SL_TX_ABORT, .session = 1};
    assert_int_equal(sl_tx_manager_submit(k, 7, 1, &end), SLUICE_OK);
    assert_int_equal(sl_tx_manager_due(k), 7);
    assert_false(sl_tx_manager_waits(k, MANY));
    crowd_ask(k, MANY, SL_TX_COMMIT, false, NULL);
    for (uint64_t i = MANY; i > MANY / 2; i--) sl_tx_manager_leave(k, 7, i);
    sl_tx_manager_check(k);
    sl_tx_manager_stop(k, 7, 2);
    sl_tx_manager_check(k);
    assert_int_equal(sl_tx_manager_due(k), SL_NEVER);
    fetch_all(k);
    assert_int_equal(crowd_stats(k).transactions, 0);
    assert_int_equal(crowd_stats(k).locks, 0);
    sl_tx_manager_free(k);
}

UNIT_TEST(many_old_transactions_end_in_batches)
{
    struct sl_tx_manager *k = crowd_new(1000);
    for (uint64_t i = 1; i <= MANY; i++) crowd_locks(k, i, "a", false, NULL, false);
    uint64_t ticks = 0;
    for (uint64_t last = 0; sl_tx_manager_due(k) <= 1000; ticks++) {
        sl_tx_manager_tick(k, 1000);
        uint64_t now = crowd_stats(k).restarted;
        assert_true(now > last && now - last < STEPS_OF_A_CALL);
        last = now;
        sl_tx_manager_check(k);
    }
    assert_true(ticks > 1);
    assert_int_equal(crowd_stats(k).restarted, MANY);
    assert_int_equal(crowd_stats(k).locks, 0);
    sl_tx_manager_free(k);
}

/* Restarted, it keeps its number and is older than all that begin later. */
UNIT_TEST(a_restarted_transaction_keeps_its_age_and_wins)
{
    STAGE s = stage_new();
    BEGIN(1), BEGIN(2), WRITE(1, "a"), WRITE(2, "b"), WRITE(1, "b"), WRITE(2, "a");
    BEGIN(3), WRITE(3, "c"), COMMIT(1);
    UNHEARD;
    BEGIN(2), WRITE(2, "d");
    WRITE(3, "d"), WRITE(2, "c");
    SAID("2 began 2\n2 locked\n3 waits\n3 RESTART 2 3\n2 locked\n");
}

/* What was sent for the old attempt does not run in the new one. */
UNIT_TEST(a_transaction_to_restart_does_nothing_until_it_begins)
{
    STAGE s = stage_new();
    BEGIN(1), BEGIN(2), WRITE(1, "a"), WRITE(2, "b"), WRITE(1, "b"), PUT(2, "a", "x");
    UNHEARD;
    PUT(2, "c", "x"), GET(2, "c"), DEL(2, "c"), SCAN(2, "u/*"), READ(2, "c"), COMMIT(2);
    SAID("2 RESTART\n2 RESTART\n2 RESTART\n2 RESTART\n2 RESTART\n2 RESTART\n");
    HOLDERS("c", "");
    BEGIN(2), COMMIT(1), GET(2, "c"), COMMIT(2), BEGIN(2);
    SAID("2 began 2\n1 committed 0\n2 got nothing\n2 committed 0\n2 began 3\n");
}

UNIT_TEST(a_transaction_to_restart_may_abort_or_leave)
{
    STAGE s = stage_new();
    BEGIN(1);
    for (uint64_t i = 2; i <= 3; i++) {
        BEGIN(i), WRITE(1, "a"), WRITE(i, "b"), READ(i, "a"), WRITE(1, "b");
        ABORT(1), BEGIN(1);
    }
    BEGIN(4), WRITE(4, "b"), WRITE(1, "a"), WRITE(1, "b"), WRITE(4, "a");
    UNHEARD;
    ABORT(4), GET(4, "a"), BEGIN(4);
    SAID("4 aborted\n4 NOTX\n4 began 7\n");
    by_hand(s);
    leave(s, 4);
    SAID(""); /* It has nothing: nobody is barred. */
    at_once(s);
}

/* A read of the old attempt that comes late is not an answer to the new one. */
UNIT_TEST(a_late_read_reaches_nobody)
{
    struct sl_tx_manager_limits limits = stage_limits;
    limits.age_ms_max = 1000;
    STAGE s = stage_with(&limits);
    BEGIN(1), PUT(1, "a", "old"), COMMIT(1), BEGIN(1), by_hand(s), GET(1, "a");
    applies(s, oldest(s));
    struct ordered *late = oldest(s);
    UNHEARD;
    pass(s, 1000);
    SAID("1 AGE\n");
    BEGIN(2), PUT(2, "a", "new"), COMMIT(2);
    for (int i = 0; i < STAGE_ORDERS; i++)
        if (s->order[i].used && s->order[i].type == SL_TX_ORDER_COMMIT) {
            applies(s, &s->order[i]);
            tells(s, &s->order[i]);
        }
    SAID("2 began 3\n2 put\n> commit 3 t/a=new\n2 committed 2\n");
    BEGIN(1), GET(1, "a");
    SAID("1 began 2\n> read t/a\n");
    tells(s, late);
    SAID("");
    does(s);
    SAID("1 got new\n");
}

/* --- Reading and writing ------------------------------------------------------------- */

UNIT_TEST(a_transaction_sees_its_own_writes)
{
    STAGE s = stage_new();
    BEGIN(1), PUT(1, "b", "1"), PUT(1, "d", "1"), PUT(1, "u/b", "1"), COMMIT(1);
    UNHEARD;
    BEGIN(1), PUT(1, "c", "2"), PUT(1, "b", "2"), PUT(1, "b", "3"), DEL(1, "d");
    SAID("1 began 2\n1 put\n1 put\n1 put\n1 deleted\n");
    GET(1, "b"), GET(1, "c"), GET(1, "d"), GET(1, "e"), SCAN(1, "*");
    SAID("1 got 3\n1 got 2\n1 got nothing\n1 got nothing\n1 saw b=3 c=2\n");
    PUT(1, "d", "4"), DEL(1, "b"), PUT(1, "a", ""), SCAN(1, "*"), SCAN(1, "u/*");
    SAID("1 put\n1 deleted\n1 put\n1 saw a= c=2 d=4\n1 saw b=1\n");
    by_hand(s), COMMIT(1);
    SAID("> commit 2 t/c=2 t/b=- t/d=4 t/a=\n");
    does(s), at_once(s);
    BEGIN(2), SCAN(2, "*");
    SAID("1 committed 2\n2 began 3\n2 saw a= c=2 d=4\n");
}

UNIT_TEST(rows_are_in_the_order_of_their_keys)
{
    STAGE s = stage_new();
    BEGIN(1), PUT(1, "ab", "1"), PUT(1, "b", "2"), COMMIT(1), BEGIN(1);
    PUT(1, "a", "3"), PUT(1, "abc", "4"), PUT(1, "aa", "5");
    UNHEARD;
    SCAN(1, "*");
    SAID("1 saw a=3 aa=5 ab=1 abc=4 b=2\n");
    for (int i = 0; i < 15; i++) {
        char key[3] = {'z', (char)('a' + i * 7 % 15), '\0'};
        PUT(1, key, "");
    }
    UNHEARD;
    SCAN(1, "*");
    SAID("1 saw a=3 aa=5 ab=1 abc=4 b=2 za= zb= zc= zd= ze= zf= zg= zh= zi= zj= zk= "
         "zl= zm= zn= zo=\n");
}

UNIT_TEST(a_deletion_says_whether_there_was_one)
{
    STAGE s = stage_new();
    BEGIN(1), PUT(1, "a", "x"), COMMIT(1), BEGIN(1);
    UNHEARD;
    DEL(1, "a"), DEL(1, "a"), DEL(1, "b"), PUT(1, "b", "y"), DEL(1, "b"), DEL(1, "b");
    SAID("1 deleted\n1 deleted nothing\n1 deleted nothing\n1 put\n1 deleted\n"
         "1 deleted nothing\n");
    COMMIT(1);
    assert_int_equal(s->store->rows, 0);
}

UNIT_TEST(nobody_sees_writes_before_they_are_committed)
{
    STAGE s = stage_new();
    BEGIN(1), BEGIN(2), BEGIN(3), PUT(1, "a", "x");
    UNHEARD;
    GET(2, "a");
    SAID("2 waits\n");
    SCAN(3, "*");
    SAID("3 waits\n");
    ABORT(1); /* The table is freed first. */
    SAID("1 aborted\n3 saw nothing\n2 got nothing\n");
}

/* Locks are held until the storage has answered. */
UNIT_TEST(nothing_continues_before_the_engine_has_answered)
{
    STAGE s = stage_new();
    BEGIN(1), BEGIN(2), PUT(1, "a", "x"), by_hand(s), COMMIT(1), GET(2, "a");
    SAID("1 began 1\n2 began 2\n1 put\n> commit 1 t/a=x\n2 waits\n");
    applies(s, oldest(s));
    settle(s);
    SAID("");
    tells(s, oldest(s));
    SAID("> read t/a\n1 committed 1\n");
    does(s);
    SAID("2 got x\n");
}

UNIT_TEST(an_aborted_transaction_has_written_nothing)
{
    STAGE s = stage_new();
    BEGIN(1), PUT(1, "a", "x"), ABORT(1), COMMIT(1), BEGIN(1), GET(1, "a");
    SAID("1 began 1\n1 put\n1 aborted\n1 NOTX\n1 began 2\n1 got nothing\n");
    assert_int_equal(stats_of(s).aborted, 1);
}

UNIT_TEST(a_restarted_transaction_has_written_nothing)
{
    STAGE s = stage_new();
    BEGIN(1), BEGIN(2), WRITE(1, "a"), PUT(2, "b", "x"), WRITE(1, "b"), WRITE(2, "a");
    ABORT(1), BEGIN(2);
    UNHEARD;
    GET(2, "b"), by_hand(s), COMMIT(2);
    SAID("2 got nothing\n> commit 2\n");
}

UNIT_TEST(a_session_has_one_transaction_and_one_request)
{
    STAGE s = stage_new();
    GET(1, "a"), COMMIT(1), ABORT(1);
    SAID("1 NOTX\n1 NOTX\n1 NOTX\n");
    BEGIN(1), BEGIN(1), BEGIN(2), WRITE(1, "a"), WRITE(2, "a");
    SAID("1 began 1\n1 NOTX\n2 began 2\n1 locked\n2 waits\n");
    GET(2, "b"), BEGIN(2), COMMIT(2), ABORT(2);
    SAID("2 NOTX\n2 NOTX\n2 NOTX\n2 NOTX\n");
    by_hand(s), COMMIT(1), BEGIN(1), GET(1, "a");
    SAID("> commit 1\n1 NOTX\n1 NOTX\n");
    at_once(s);
    SAID("1 committed 0\n2 locked\n");
}

UNIT_TEST(names_are_not_empty)
{
    STAGE s = stage_new();
    BEGIN(1);
    UNHEARD;
    GET(1, ""), PUT(1, "u/", "x"), READ(1, ""), DEL(1, ""), SCAN(1, "/*"), GET(1, "/a");
    SAID("1 INVALID\n1 INVALID\n1 INVALID\n1 INVALID\n1 INVALID\n1 INVALID\n");
    GET(1, "*"), OUTCOME(1, "");
    SAID("1 INVALID\n1 INVALID\n");
    assert_int_equal(stats_of(s).locks, 0);
}

/* --- Limits -------------------------------------------------------------------------- */

UNIT_TEST(a_limit_of_transactions)
{
    struct sl_tx_manager_limits limits = stage_limits;
    limits.transactions_max = 2;
    STAGE s = stage_with(&limits);
    BEGIN(1), BEGIN(2), BEGIN(3), ABORT(1), BEGIN(3);
    SAID("1 began 1\n2 began 2\n3 TRANSACTIONS\n1 aborted\n3 began 3\n");
}

UNIT_TEST(a_limit_of_locks)
{
    struct sl_tx_manager_limits limits = stage_limits;
    limits.locks_max = 3;
    STAGE s = stage_with(&limits);
    BEGIN(1), GET(1, "a"), GET(1, "b");
    UNHEARD;
    GET(1, "c"), PUT(1, "a", "x"), READ(1, "u/*"), SCAN(1, "*"), COMMIT(1);
    SAID("1 LOCKS\n1 put\n1 LOCKS\n1 saw a=x\n1 committed 1\n");
}

UNIT_TEST(a_limit_of_writes)
{
    struct sl_tx_manager_limits limits = stage_limits;
    limits.writes_max = 2;
    limits.bytes_max = 10;
    STAGE s = stage_with(&limits);
    BEGIN(1), PUT(1, "a", "123"), DEL(1, "b");
    UNHEARD;
    PUT(1, "c", "1"), DEL(1, "c"), PUT(1, "a", "1234567"), PUT(1, "a", "123456");
    SAID("1 WRITES\n1 WRITES\n1 WRITES\n1 put\n");
    PUT(1, "b", "1"), PUT(1, "a", ""), PUT(1, "b", "1"), SCAN(1, "*");
    SAID("1 WRITES\n1 put\n1 put\n1 saw a= b=1\n");
}

/* Uncommitted writes of all transactions together. */
UNIT_TEST(a_limit_of_the_bytes_of_all)
{
    struct sl_tx_manager_limits limits = stage_limits;
    limits.total_bytes_max = 12;
    STAGE s = stage_with(&limits);
    BEGIN(1), BEGIN(2), PUT(1, "a", "1234");
    UNHEARD;
    PUT(2, "b", "12345"), PUT(2, "b", "1234"), PUT(2, "b", "12345"), DEL(1, "c");
    SAID("2 TRANSACTIONS\n2 put\n2 TRANSACTIONS\n1 TRANSACTIONS\n");
    PUT(2, "b", "4321"), PUT(2, "b", ""), PUT(1, "c", "12");
    SAID("2 put\n2 put\n1 put\n");
    COMMIT(1), PUT(2, "d", "12345678"), ABORT(2), BEGIN(1), PUT(1, "a", "1234567890");
    SAID("1 committed 1\n2 put\n2 aborted\n1 began 3\n1 put\n");
}

/* A key and its table are two. */
UNIT_TEST(the_locks_of_all_transactions_have_a_limit)
{
    struct sl_tx_manager_limits limits = stage_limits;
    limits.total_locks_max = 5;
    STAGE s = stage_with(&limits);
    BEGIN(1), BEGIN(2), PUT(1, "a", "1"), PUT(2, "b", "1");
    UNHEARD;
    PUT(1, "c", "1"), PUT(2, "d", "1"), PUT(1, "c", "2");
    SAID("1 put\n2 TRANSACTIONS\n1 put\n");
    COMMIT(1), PUT(2, "d", "1");
    SAID("1 committed 1\n2 put\n");
}

UNIT_TEST(a_limit_of_the_bytes_of_a_scan)
{
    struct sl_tx_manager_limits limits = stage_limits;
    limits.scan_bytes_max = 6;
    STAGE s = stage_with(&limits);
    BEGIN(1), PUT(1, "a", "12"), PUT(1, "b", "34"), COMMIT(1), BEGIN(1);
    UNHEARD;
    SCAN(1, "*"), PUT(1, "c", ""), SCAN(1, "*"), DEL(1, "a"), SCAN(1, "*");
    SAID("1 saw a=12 b=34\n1 put\n1 TOOBIG\n1 deleted\n1 saw b=34 c=\n");
    PUT(1, "b", "5"), DEL(1, "c"), DEL(1, "z"), SCAN(1, "*"), DEL(1, "b"), SCAN(1, "*");
    SAID("1 put\n1 deleted\n1 deleted nothing\n1 saw b=5\n1 deleted\n1 saw nothing\n");
}

UNIT_TEST(limits_of_names_values_and_requests)
{
    STAGE s = stage_new();
    BEGIN_AS(1, "1234567890123"), BEGIN_AS(1, "123456789012");
    SAID("1 TOOBIG\n1 began 1\n");
    PUT(1, "12345678901", "x"), PUT(1, "123456789012", "x"), SCAN(1, "1234567890123/*");
    SAID("1 put\n1 TOOBIG\n1 TOOBIG\n");
    PUT(1, "a", "12345678901234567890"), PUT(1, "a", "123456789012345678901");
    SAID("1 put\n1 TOOBIG\n");
    OUTCOME(2, "1234567890123");
    SAID("2 TOOBIG\n");
}

UNIT_TEST(a_limit_of_rows)
{
    struct sl_tx_manager_limits limits = stage_limits;
    limits.rows_max = 2;
    STAGE s = stage_with(&limits);
    BEGIN(1), PUT(1, "a", "1"), PUT(1, "b", "2"), COMMIT(1), BEGIN(1);
    UNHEARD;
    SCAN(1, "*"), PUT(1, "c", "3"), SCAN(1, "*"), DEL(1, "a"), SCAN(1, "*");
    SAID("1 saw a=1 b=2\n1 put\n1 TOOBIG\n1 deleted\n1 saw b=2 c=3\n");
}

/* It loses all, waits no more, and is told when it asks next. */
UNIT_TEST(a_limit_of_age)
{
    struct sl_tx_manager_limits limits = stage_limits;
    limits.age_ms_max = 1000;
    STAGE s = stage_with(&limits);
    BEGIN(1), PUT(1, "a", "x"), pass(s, 500), BEGIN(2), BEGIN(3), WRITE(3, "a");
    assert_int_equal(sl_tx_manager_due(s->manager), 2000);
    UNHEARD;
    pass(s, 499);
    SAID("");
    pass(s, 1);
    SAID("3 locked\n");
    PUT(1, "b", "x"), COMMIT(1);
    SAID("1 AGE\n1 AGE\n");
    BEGIN(4), WRITE(4, "a"), pass(s, 500); /* 3 is too old before 4 is. */
    SAID("4 began 4\n4 waits\n4 locked\n");
    BEGIN(2), pass(s, 400), WRITE(2, "a");
    SAID("2 began 2\n2 waits\n");
    BEGIN(5), WRITE(5, "a"), pass(s, 100);
    SAID("5 began 5\n5 waits\n2 locked\n");
    pass(s, 500), pass(s, 400);
    SAID("5 locked\n");
    pass(s, 0), ABORT(5), BEGIN(5), WRITE(5, "a"), BEGIN(6), WRITE(6, "a");
    UNHEARD;
    pass(s, 999), COMMIT(5), BEGIN(5);
    SAID("5 committed 0\n6 locked\n5 began 8\n");
    WRITE(5, "a"), pass(s, 1), ABORT(5);
    SAID("5 waits\n5 locked\n5 aborted\n");
    BEGIN(7), pass(s, 500), BEGIN(8), WRITE(8, "a"), WRITE(7, "a"), pass(s, 500);
    SAID("7 began 9\n8 began 10\n8 locked\n7 waits\n7 AGE\n"); /* While it waits. */
    pass(s, 500);
    HOLDERS("a", "");
    BEGIN(1), pass(s, 999), PUT(1, "a", "y"), COMMIT(1);
    SAID("1 began 1\n1 put\n1 committed 1\n");
    assert_int_equal(sl_tx_manager_due(s->manager), SL_NEVER);
}

UNIT_TEST(a_commit_on_its_way_has_no_age)
{
    struct sl_tx_manager_limits limits = stage_limits;
    limits.age_ms_max = 1000;
    STAGE s = stage_with(&limits);
    BEGIN(1), PUT(1, "a", "x"), BEGIN(2), PUT(2, "b", "y"), by_hand(s), COMMIT(1);
    leave(s, 2);
    UNHEARD;
    pass(s, 2000);
    SAID("");
    at_once(s);
    SAID("1 committed 1\n");
}

/* --- A connection ends ----------------------------------------------------------------- */

UNIT_TEST(a_transaction_that_leaves_without_locks_just_ends)
{
    STAGE s = stage_new();
    by_hand(s);
    leave(s, 1), BEGIN(1), leave(s, 1), leave(s, 1), GET(1, "a");
    SAID("1 began 1\n1 NOTX\n");
    assert_int_equal(stats_of(s).transactions, 0);
}

UNIT_TEST(a_transaction_that_leaves_with_locks_is_barred_first)
{
    STAGE s = stage_new();
    BEGIN(1), PUT(1, "a", "x"), BEGIN(2), by_hand(s), GET(2, "a");
    UNHEARD;
    leave(s, 1);
    SAID("> bar 1\n");
    pass(s, 1000), leave(s, 1);
    applies(s, oldest(s));
    settle(s);
    SAID("");
    HOLDERS("a", "1 W, 2 ->R for 1");
    assert_true(is_barred(s->store, 1, 1));
    tells(s, oldest(s));
    SAID("> read t/a\n");
    does(s);
    SAID("2 got nothing\n");
    assert_int_equal(stats_of(s).barred, 1);
}

UNIT_TEST(a_client_that_leaves_while_it_waits)
{
    STAGE s = stage_new();
    for (uint64_t i = 1; i <= 4; i++) BEGIN(i);
    READ(1, "a"), WRITE(2, "b"), WRITE(2, "a"), READ(3, "a"), READ(4, "b");
    by_hand(s);
    UNHEARD;
    leave(s, 2); /* What it waited for is free at once, what it has later. */
    SAID("> bar 2\n3 locked\n");
    HOLDERS("b", "2 W, 4 ->R for 2");
    does(s);
    SAID("4 locked\n");
    leave(s, 3); /* With an intention on the table, at least. */
    SAID("> bar 3\n");
}

UNIT_TEST(a_client_that_leaves_while_it_upgrades)
{
    STAGE s = stage_new();
    BEGIN(1), BEGIN(2), BEGIN(3), READ(1, "a"), READ(2, "a"), WRITE(2, "a");
    READ(3, "a"), by_hand(s);
    UNHEARD;
    leave(s, 2);
    SAID("> bar 2\n3 locked\n");
    HOLDERS("a", "1 R, 2 R, 3 R");
    does(s);
    HOLDERS("a", "1 R, 3 R");
}

UNIT_TEST(a_client_that_leaves_while_it_reads)
{
    STAGE s = stage_new();
    BEGIN(1), by_hand(s), GET(1, "a"), leave(s, 1);
    SAID("1 began 1\n> read t/a\n> bar 1\n");
    does(s), does(s);
    SAID("");
    assert_int_equal(stats_of(s).transactions, 0);
}

/* The storage has the commit: the transaction is not barred, and the manager waits for it. */
UNIT_TEST(a_client_that_leaves_while_it_commits)
{
    STAGE s = stage_new();
    BEGIN(1), PUT(1, "a", "x"), BEGIN(2), by_hand(s), COMMIT(1), GET(2, "a");
    UNHEARD;
    leave(s, 1);
    SAID("");
    HOLDERS("a", "1 W, 2 ->R for 1");
    does(s), does(s);
    SAID("> read t/a\n2 got x\n");
    assert_int_equal(stats_of(s).committed, 1);
}

UNIT_TEST(a_client_that_left_is_not_answered)
{
    STAGE s = stage_new();
    struct sl_tx_order order;
    const struct sl_tx_request begin = {.type = SL_TX_BEGIN, .session = 1},
                               outcome = {.type = SL_TX_OUTCOME,
                                          .session = 1,
                                          .request = {"r", 1}};
    assert_int_equal(sl_tx_manager_submit(s->manager, s->now, 77, &begin), SLUICE_OK);
    assert_int_equal(sl_tx_manager_submit(s->manager, s->now, 78, &outcome), SLUICE_OK);
    assert_int_equal(sl_tx_manager_submit(s->manager, s->now, 79, &begin), SLUICE_OK);
    sl_tx_manager_leave(s->manager, s->now, 1);
    assert_true(sl_tx_manager_next(s->manager, &order));
    assert_int_equal(order.type, SL_TX_ORDER_OUTCOME);
    const struct sl_storage_result done = {.status = SLUICE_OK, .found = true};
    sl_tx_manager_done(s->manager, s->now, order.op, &done);
    assert_false(sl_tx_manager_next(s->manager, &order));
}

/* A bar is for the transaction, not for the next one of the session; also several at once. */
UNIT_TEST(a_bar_is_for_one_transaction)
{
    STAGE s = stage_new();
    BEGIN(1), WRITE(1, "a"), BEGIN(2), WRITE(2, "b"), BEGIN(3), WRITE(3, "c");
    by_hand(s), leave(s, 1), leave(s, 2), leave(s, 3);
    struct ordered *first = oldest(s);
    UNHEARD;
    BEGIN(1), PUT(1, "d", "x"), BEGIN(4);
    applies(s, first), tells(s, first);
    HOLDERS("a", "");
    HOLDERS("b", "2 W");
    HOLDERS("d", "1 W");
    WRITE(4, "b");
    SAID("1 began 4\n1 put\n4 began 5\n4 waits\n");
    does(s), does(s);
    SAID("4 locked\n");
    HOLDERS("c", "");
    COMMIT(1), does(s);
    SAID("> commit 4 t/d=x\n1 committed 1\n");
}

/* The server took the client for gone: its transaction has ended, and it learns that. */
UNIT_TEST(a_client_that_seemed_to_leave_has_no_transaction)
{
    STAGE s = stage_new();
    BEGIN(1), PUT(1, "a", "x"), leave(s, 1), BEGIN(2), GET(2, "a"), GET(1, "a");
    SAID("1 began 1\n1 put\n2 began 2\n2 got nothing\n1 NOTX\n");
    COMMIT(1);
    SAID("1 NOTX\n");
}

/* --- The storage refuses -------------------------------------------------------------- */

static const int errors[] = {SLUICE_ENOSPC, SLUICE_EIO, SLUICE_ENOMEM};

UNIT_TEST(a_read_that_failed_changes_nothing)
{
    for (int i = 0; i < 3; i++) {
        struct stage *s = stage_new();
        char expected[64];
        const char *word = sluice_status_word(errors[i]);
        BEGIN(1), PUT(1, "a", "x"), by_hand(s);
        UNHEARD;
        GET(1, "b"), refuses(s, errors[i]), SCAN(1, "*"), refuses(s, errors[i]);
        DEL(1, "c"), refuses(s, errors[i]);
        snprintf(expected, sizeof expected,
                 "> read t/b\n1 %s\n> scan t\n1 %s\n> read t/c\n1 %s\n", word, word,
                 word);
        SAID(expected);
        COMMIT(1);
        SAID("> commit 1 t/a=x\n");
        stage_end(s);
    }
}

UNIT_TEST(a_commit_that_failed_is_the_end)
{
    for (int i = 0; i < 3; i++) {
        struct stage *s = stage_new();
        char expected[64];
        BEGIN(1), PUT(1, "a", "x"), BEGIN(2), by_hand(s), COMMIT(1), GET(2, "a");
        UNHEARD;
        refuses(s, errors[i]);
        snprintf(expected, sizeof expected, "> read t/a\n1 %s\n",
                 sluice_status_word(errors[i]));
        SAID(expected);
        does(s), COMMIT(1);
        SAID("2 got nothing\n1 NOTX\n");
        assert_int_equal(stats_of(s).aborted, 1);
        stage_end(s);
    }
}

UNIT_TEST(a_commit_that_is_barred_is_the_end)
{
    STAGE s = stage_new();
    BEGIN(1), PUT(1, "a", "x"), BEGIN(2), GET(2, "b");
    s->store->bars = 2;
    s->store->barred[0].term = s->store->barred[1].term = 1;
    s->store->barred[0].id = 1, s->store->barred[1].id = 2;
    UNHEARD;
    COMMIT(1), COMMIT(2), COMMIT(1); /* Also one that only read. */
    SAID("1 BARRED\n2 BARRED\n1 NOTX\n");
    assert_int_equal(s->store->rows, 0);
}

/* A commit without writes goes to the storage, too, and the locks are held until then. */
UNIT_TEST(a_transaction_that_only_read_commits)
{
    struct stage *s = stage_new();
    BEGIN(1), GET(1, "a"), BEGIN(2), by_hand(s), COMMIT(1), PUT(2, "a", "x");
    SAID("1 began 1\n1 got nothing\n2 began 2\n> commit 1\n2 waits\n");
    does(s);
    SAID("1 committed 0\n2 put\n");
    stage_end(s);
    s = stage_new();
    BEGIN(1), GET(1, "a"), s->store->term = 2, COMMIT(1);
    SAID("1 began 1\n1 got nothing\n1 STALE 2\n");
    stage_end(s);
}

UNIT_TEST(a_bar_that_failed_is_ordered_again)
{
    for (int i = 0; i < 3; i++) {
        struct stage *s = stage_new();
        BEGIN(1), WRITE(1, "a"), BEGIN(2), BEGIN(3), WRITE(3, "b"), WRITE(2, "a");
        by_hand(s), leave(s, 1), pass(s, 60), leave(s, 3);
        UNHEARD;
        refuses(s, errors[i]);
        pass(s, 60), refuses(s, errors[i]);
        SAID("");
        HOLDERS("a", "1 W, 2 ->W for 1");
        assert_int_equal(sl_tx_manager_due(s->manager), s->now + 40);
        pass(s, 39);
        SAID("");
        pass(s, 1);
        SAID("> bar 1\n> bar 3\n");
        does(s);
        SAID("2 locked\n");
        does(s), pass(s, 1000);
        SAID("");
        stage_end(s);
    }
}

UNIT_TEST(a_bar_that_is_stale_stops_the_keeper)
{
    STAGE s = stage_new();
    BEGIN(1), WRITE(1, "a"), BEGIN(2), WRITE(2, "a"), s->store->term = 2;
    UNHEARD;
    leave(s, 1);
    SAID("2 STALE 2\n");
}

UNIT_TEST(a_read_that_is_stale_stops_the_keeper)
{
    STAGE s = stage_new();
    BEGIN(1), BEGIN(2), by_hand(s), GET(1, "a"), s->store->term = 2;
    UNHEARD;
    refuses(s, SLUICE_ESTALE);
    SAID("1 STALE 2\n");
    BEGIN(3);
    SAID("3 NOKEEPER\n");
}

UNIT_TEST(an_outcome_may_fail)
{
    STAGE s = stage_new();
    by_hand(s), OUTCOME(1, "r"), refuses(s, SLUICE_EIO), OUTCOME(1, "r"), does(s);
    SAID("> outcome r\n1 IO\n> outcome r\n1 outcome none\n");
}

UNIT_TEST(what_is_done_twice_or_was_not_ordered_is_nothing)
{
    STAGE s = stage_new();
    const struct sl_storage_result done = {
        .status = SLUICE_OK, .found = true, .value = {"x", 1}};
    BEGIN(1), by_hand(s), GET(1, "a");
    uint64_t op = oldest(s)->op;
    sl_tx_manager_done(s->manager, s->now, op + 1, &done);
    sl_tx_manager_done(s->manager, s->now, 0, &done);
    settle(s);
    SAID("1 began 1\n> read t/a\n");
    does(s);
    sl_tx_manager_done(s->manager, s->now, op, &done);
    settle(s);
    SAID("1 got nothing\n");
}

/* --- Answers that are lost ------------------------------------------------------------------ */

/* Committed, but the answer is lost with the manager; and again, over three managers. */
UNIT_TEST(a_request_is_committed_once)
{
    struct stage *s = stage_new(), *keepers[4] = {s};
    for (int i = 1; i < 4; i++) {
        s = keepers[i - 1];
        BEGIN_AS(1, "r"), PUT(1, "a", i == 1 ? "first" : "again");
        by_hand(s), COMMIT(1), applies(s, oldest(s));
        assert_int_equal(s->store->commits, 1);
        keepers[i] = stage_beside(s);
    }
    s = keepers[3];
    BEGIN_AS(1, "r"), PUT(1, "a", "again"), COMMIT(1), OUTCOME(2, "r"), OUTCOME(2, "q");
    SAID("1 began 1\n1 put\n1 committed 1\n2 outcome 1\n2 outcome none\n");
    assert_string_equal(stored_at(s->store, "t", "a"), "first");
    assert_int_equal(s->store->term, 4);
    for (int i = 0; i < 4; i++) stage_end(keepers[i]);
}

/* Its name is that of the last attempt. */
UNIT_TEST(a_request_goes_with_the_commit)
{
    STAGE s = stage_new();
    BEGIN_AS(1, "one"), BEGIN(2), WRITE(2, "a");
    BEGIN_AS(3, "two"), WRITE(3, "b"), WRITE(2, "b"), WRITE(3, "a");
    UNHEARD;
    ABORT(2), BEGIN_AS(3, "three"), PUT(3, "a", "x"), by_hand(s), COMMIT(3), COMMIT(1);
    SAID("2 aborted\n3 began 3\n3 put\n> commit 3 t/a=x as three\n> commit 1 as one\n");
}

/* --- Questions ------------------------------------------------------------------------------ */

UNIT_TEST(holders_of_a_row_can_be_listed)
{
    STAGE s = stage_new();
    struct sl_tx_item_view items[8];
    struct sl_tx_view v;
    uint64_t cursor = 0;
    BEGIN(1), BEGIN(2), WRITE(1, "a"), pass(s, 50), READ(2, "a"), READ(2, "u/b");
    size_t n = sl_tx_manager_scan(s->manager, &cursor, items, 8);
    assert_int_equal(n, 2);
    for (size_t i = 0; i < n; i++) {
        bool table = items[i].key.at == NULL;
        assert_int_equal(items[i].holders, table ? 2 : 1);
        assert_int_equal(items[i].waiters, table ? 0 : 1);
    }
    assert_true(sl_tx_manager_item(s->manager, (struct sl_bytes){"t", 1},
                                   (struct sl_bytes){"a", 1}, &items[0]));
    assert_int_equal(items[0].waiters, 1);
    assert_false(sl_tx_manager_item(s->manager, (struct sl_bytes){"u", 1},
                                    (struct sl_bytes){NULL, 0}, &items[0]));
    assert_true(sl_tx_manager_holder(s->manager, s->now, (struct sl_bytes){"t", 1},
                                     (struct sl_bytes){"a", 1}, 1, &v));
    assert_int_equal(v.id, 2);
    assert_int_equal(v.since_ms, 50);
    assert_int_equal(v.waits_for, 1);
    assert_true(sl_tx_manager_waits(s->manager, 2) &&
                !sl_tx_manager_waits(s->manager, 1));
    struct sl_tx_manager_stats stats = stats_of(s);
    assert_int_equal(stats.transactions, 2);
    assert_int_equal(stats.locks, 4);
    assert_int_equal(stats.waiting, 1);
    assert_int_equal(stats.begun, 2);
}

int main(void)
{
    return run_unit_tests("tx");
}
