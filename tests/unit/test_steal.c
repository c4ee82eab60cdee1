/* test_steal.c - stealing in the lock table, by transcripts: thieves, victims, and grants.
 *
 * The names P1 to P25 are edge cases of stealing, PR1 to PR6 bugs of a library that replaced the
 * holder's record at once (docs/stealing.md). */
#include "table_stage.h"

static char holder_of(const struct sl_ended *p)
{
    return (char)('a' + p->session_id - 1);
}

static void say_asked(struct stage *s, const struct sl_effect *e)
{
    say(s, "%c asked by %c priority %d", holder_of(&e->past), name_of(s, e->session),
        (int)e->priority);
    if (e->left_ms != SL_NEVER) say(s, " left %d", (int)e->left_ms);
    if (e->note.n > 0) say(s, " '%.*s'", (int)e->note.n, e->note.at);
    say(s, "\n");
}

/* How a grant ended, and how long after it was asked. */
static void say_past(struct stage *s, const struct sl_ended *p, const char *how)
{
    say(s, "%c %s", holder_of(p), how);
    if (p->asked_ms >= 0) say(s, " %d after it was asked", (int)p->asked_ms);
    say(s, "\n");
}

static void say_granted(struct stage *s, const struct sl_effect *e)
{
    say(s, "%c granted held %d waited %d%s\n", name_of(s, e->session),
        (int)e->grant.held, (int)e->grant.waited_ms,
        e->grant.overlapping ? " overlapping" : "");
}

static void tell(struct stage *s, const struct sl_effect *e)
{
    switch (e->type) {
        case SL_EFFECT_NOTHING: break;
        case SL_EFFECT_THIEF_WAITS: break;
        case SL_EFFECT_GRANTED: say_granted(s, e); break;
        case SL_EFFECT_TIMED_OUT:
            say(s, "%c timed out\n", name_of(s, e->session));
            break;
        case SL_EFFECT_REFUSED: say(s, "%c refused\n", name_of(s, e->session)); break;
        case SL_EFFECT_CANCELLED: fail(); break;
        case SL_EFFECT_SEEN: say(s, "%c sees it\n", name_of(s, e->session)); break;
        case SL_EFFECT_SESSION_OVER: say(s, "%c over\n", name_of(s, e->session)); break;
        case SL_EFFECT_EXPIRED: say_past(s, &e->past, "expired"); break;
        case SL_EFFECT_ENDED: say_past(s, &e->past, "ended"); break;
        case SL_EFFECT_ASKED: say_asked(s, e); break;
        case SL_EFFECT_WITHDRAWN: say_past(s, &e->past, "withdrawn"); break;
        case SL_EFFECT_STOLEN: say_past(s, &e->past, "stolen"); break;
    }
}

static void tell_end(struct stage *s, char who, int answer, const struct sl_ended *past)
{
    if (answer == 1) say_past(s, past, "released");
    else say(s, "%c had nothing to release\n", who);
}

/* With a clock that may be late by so much. */
static struct stage *stage_with(sl_ms grain_ms)
{
    struct stage *s = stage_open(16, grain_ms);
    s->tell = tell;
    s->tell_release = tell_end;
    s->says_time = true;
    return s;
}

static struct stage *stage_new(void)
{
    return stage_with(0);
}

/* A thief that waits for so long, or for a second, and never enters early. */
#define THIEF_FOR(ms) .wait_ms = ms, .steal = true, .force_ms = SL_NEVER
#define THIEF THIEF_FOR(1000)

/* One that enters after so long of its second. */
#define FORCE(ms) .wait_ms = 1000, .steal = true, .force_ms = ms

static void extend(struct stage *s, char who, sl_ms ms)
{
    const struct sl_bytes none = {0};
    sl_ms left;
    int status = sl_table_extend(s->table, s->now, &s->session[who - 'a'], bytes("k"),
                                 s->last[who - 'a'], ms, none, &left);
    if (status == SLUICE_OK) say(s, "%c extended to %d\n", who, (int)left);
    else say(s, "%c %s\n", who, sluice_status_word(status));
    settle(s);
}

/* Whether a session's newest grant is held and asked. */
static bool is_asked(const struct stage *s, char who)
{
    struct sl_grant_view v;
    uint64_t cursor = 0;
    while (sl_table_each(s->table, s->now, bytes("k"), &cursor, &v))
        if (!v.waits && v.fence == s->last[who - 'a']) return v.asked;
    return false;
}

static bool is_reserved(const struct stage *s)
{
    struct sl_lock_view v;
    return sl_table_inspect(s->table, s->now, bytes("k"), &v) && v.reserved;
}

static bool holds(const struct stage *s, char who)
{
    return sl_table_holds(s->table, s->now, bytes("k"), s->last[who - 'a']);
}

/* --- The handshake --------------------------------------------------------- */

UNIT_TEST(a_holder_is_asked_releases_and_the_thief_is_in)
{
    STAGE s = stage_new();
    ASK('a', .lease_ms = 500, .note = bytes("backup"));
    sl_fence first = s->last[0];
    pass(s, 100);
    ASK('b', THIEF, .priority = 5, .lease_ms = 500);
    SAID("a held 1\n[100]\nb waits\na asked by b priority 5 left 400 'backup'\n");
    assert_true(is_asked(s, 'a'));
    assert_true(is_reserved(s));
    extend(s, 'a', 500);
    pass(s, 20);
    release(s, 'a', first);
    SAID("a ASKED\n[120]\na released 20 after it was asked\nb granted held 1 waited "
         "20\n");
    assert_true(s->last[1] > first);
    assert_false(is_asked(s, 'b'));
    assert_false(is_reserved(s));
    extend(s, 'b', 600); /* It is as any grant now. */
    SAID("b extended to 600\n");
}

/* The holder is inline, or one of several; with a lease or without. */
UNIT_TEST(a_holder_without_a_lease_is_asked_and_waited_for)
{
    STAGE s = stage_new();
    ASK('a', .priority = -1);
    ASK('b', THIEF, .priority = 0);
    pass(s, 999);
    SAID("a held 1\nb waits\na asked by b priority 0\n[999]\n");
    pass(s, 1);
    SAID("[1000]\nb timed out\na withdrawn\n");
    ASK('b', THIEF);
    end(s, 'a');
    SAID("b waits\na asked by b priority 0\na ended 0 after it was asked\n"
         "b granted held 1 waited 0\na over\n");
}

UNIT_TEST(priority_alone_does_not_steal)
{
    STAGE s = stage_new();
    ASK('a', .lease_ms = 100);
    ASK('b', .wait_ms = 1000, .priority = 5);
    assert_false(is_asked(s, 'a'));
    assert_false(is_reserved(s));
    extend(s, 'a', 200);
    SAID("a held 1\nb waits\na extended to 200\n");
}

UNIT_TEST(a_request_without_wait_revokes_nobody)
{
    STAGE s = stage_new();
    ASK('a', .lease_ms = 100);
    ASK('b', .steal = true, .force_ms = SL_NEVER, .priority = 5);
    SAID("a held 1\nb FULL\n");
    assert_false(is_asked(s, 'a'));
}

UNIT_TEST(a_thief_finds_a_free_lock_as_anybody_does)
{
    STAGE s = stage_new();
    ASK('a', THIEF, .priority = 5, .lease_ms = 100);
    extend(s, 'a', 200);
    SAID("a held 1\na extended to 200\n");
}

UNIT_TEST(its_own_session_is_never_a_victim)
{
    STAGE s = stage_new();
    ASK('a', .lease_ms = 100);
    ASK('a', THIEF, .priority = 5);
    SAID("a held 1\na waits\n");
    assert_false(is_asked(s, 'a'));
    pass(s, 100);
    SAID("[100]\na expired\na granted held 1 waited 100\n");
}

/* What is its own does not go, so the others are asked only if they suffice. */
UNIT_TEST(with_some_of_its_own_it_asks_the_others_if_they_suffice)
{
    STAGE s = stage_new();
    ASK('a', .per = 3, .lease_ms = 100);
    ASK('b', .per = 3, .lease_ms = 100);
    ASK('b', .per = 3, .lease_ms = 100);
    ASK('a', THIEF, .per = 3, .units = 3, .priority = 5);
    SAID("a held 1\nb held 2\nb held 3\na waits\n");
    sl_table_withdraw(s->table, &s->session[0]);
    ASK('a', THIEF, .per = 3, .units = 2, .priority = 5);
    SAID("a waits\nb asked by a priority 5 left 100\nb asked by a priority 5 left "
         "100\n");
}

UNIT_TEST(its_own_grants_are_among_the_revoked)
{
    STAGE s = stage_new();
    ASK('b', .per = 3, .lease_ms = 100);
    ASK('a', .per = 3, .lease_ms = 100); /* Between them in every order. */
    ASK('c', .per = 3, .lease_ms = 100);
    ASK('a', THIEF, .per = 3, .units = 2, .priority = 5);
    SAID("b held 1\na held 2\nc held 3\na waits\nc asked by a priority 5 left 100\n"
         "b asked by a priority 5 left 100\n");
    release(s, 'c', s->last[2]);
    release(s, 'b', s->last[1]);
    SAID("c released 0 after it was asked\nb released 0 after it was asked\n"
         "a granted held 3 waited 0\n");
}

UNIT_TEST(a_waiter_ahead_of_the_thief_is_served_first)
{
    STAGE s = stage_new();
    ASK('a', .lease_ms = 500);
    ASK('b', .wait_ms = 2000, .priority = 9); /* Higher, and does not steal. */
    ASK('c', THIEF, .priority = 5);
    SAID("a held 1\nb waits\nc waits\n");
    extend(s, 'a', 600);
    release(s, 'a', 0);
    SAID("a extended to 600\na released\nb granted held 1 waited 0\n");
}

UNIT_TEST(the_one_before_it_goes_and_the_thief_asks)
{
    STAGE s = stage_new();
    ASK('a', .lease_ms = 5000);
    ASK('b', .wait_ms = 100, .priority = 9);
    ASK('c', THIEF, .priority = 5);
    pass(s, 100);
    SAID("a held 1\nb waits\nc waits\n[100]\nb timed out\n"
         "a asked by c priority 5 left 4900\n");
    ASK('d', .wait_ms = 100, .priority = 9); /* And another comes before it. */
    SAID("d waits\na withdrawn\n");
    pass(s, 100);
    SAID("[200]\nd timed out\na asked by c priority 5 left 4800\n");
}

UNIT_TEST(a_drain_rejects_the_thief_and_withdraws_its_revocation)
{
    STAGE s = stage_new();
    ASK('a', .lease_ms = 500);
    ASK('b', THIEF, .priority = 5);
    assert_int_equal(sl_table_drain(s->table, bytes("k"), true), SLUICE_OK);
    settle(s);
    extend(s, 'a', 600);
    SAID("a held 1\nb waits\na asked by b priority 5 left 500\nb refused\na withdrawn\n"
         "a extended to 600\n");
}

/* --- Shared and counting --------------------------------------------------- */

UNIT_TEST(a_writer_asks_all_readers)
{
    STAGE s = stage_new();
    ASK('a', .shared = true, .lease_ms = 500);
    ASK('b', .shared = true, .lease_ms = 600);
    ASK('c', THIEF, .priority = 5);
    SAID("a held 1\nb held 2\nc waits\nb asked by c priority 5 left 600\n"
         "a asked by c priority 5 left 500\n");
    release(s, 'a', s->last[0]);
    SAID("a released 0 after it was asked\n");
    pass(s, 600);
    SAID("[600]\nb expired 600 after it was asked\nc granted held 1 waited 600\n");
}

UNIT_TEST(a_writer_asks_no_reader_if_one_is_not_lower)
{
    STAGE s = stage_new();
    ASK('a', .shared = true, .lease_ms = 500);
    ASK('b', .shared = true, .lease_ms = 600, .priority = 5);
    ASK('c', THIEF, .priority = 5);
    SAID("a held 1\nb held 2\nc waits\n");
    assert_false(is_asked(s, 'a'));
    assert_false(is_reserved(s));
    release(s, 'b', s->last[1]); /* Now all remaining clients are lower. */
    SAID("b released\na asked by c priority 5 left 500\n");
}

UNIT_TEST(a_reader_revokes_all_unit_holders_and_no_reader)
{
    STAGE s = stage_new();
    ASK('a', .per = 2, .lease_ms = 500);
    ASK('b', .per = 2, .lease_ms = 500);
    ASK('c', THIEF, .shared = true, .priority = 5);
    SAID("a held 1\nb held 2\nc waits\nb asked by c priority 5 left 500\n"
         "a asked by c priority 5 left 500\n");
    release(s, 'b', s->last[1]);
    release(s, 'a', s->last[0]);
    SAID("b released 0 after it was asked\na released 0 after it was asked\n"
         "c granted held 1 waited 0\n");
    ASK('d', THIEF, .shared = true, .priority = 7);
    SAID("d held 2\n"); /* Next to c: no holder has to release. */
}

UNIT_TEST(of_units_as_few_are_asked_as_suffice)
{
    STAGE s = stage_new();
    ASK('a', .per = 4, .units = 1, .lease_ms = 500, .priority = 2);
    ASK('b', .per = 4, .units = 2, .lease_ms = 500, .priority = 1);
    ASK('c', .per = 4, .units = 1, .lease_ms = 500, .priority = 1);
    ASK('d', THIEF, .per = 4, .units = 1, .priority = 5);
    /* Lowest priority first, then newest. */
    SAID("a held 1\nb held 3\nc held 4\nd waits\nc asked by d priority 5 left 500\n");
    ASK('e', THIEF, .per = 4, .units = 3, .priority = 6); /* Needs more. */
    SAID("e waits\nb asked by e priority 6 left 500\n");
    release(s, 'a', s->last[0]); /* Who was not asked; c alone is still too little. */
    SAID("a released\n");
    assert_true(is_asked(s, 'b'));
    assert_true(is_asked(s, 'c'));
    end(s, 'e'); /* For d, the next waiter, one unit is free now. */
    SAID("d granted held 4 waited 0\nc withdrawn\nb withdrawn\ne over\n");
}

UNIT_TEST(a_holder_that_is_no_longer_revoked_is_notified)
{
    STAGE s = stage_new();
    ASK('a', .per = 3, .units = 1, .lease_ms = 500, .priority = 2);
    ASK('b', .per = 3, .units = 1, .lease_ms = 500, .priority = 1);
    ASK('c', .per = 3, .units = 1, .lease_ms = 500, .priority = 0);
    ASK('d', THIEF, .per = 3, .units = 2, .priority = 5);
    SAID("a held 1\nb held 2\nc held 3\nd waits\nc asked by d priority 5 left 500\n"
         "b asked by d priority 5 left 500\n");
    release(s, 'a', s->last[0]);
    SAID("a released\nb withdrawn\n");
    extend(s, 'b', 600);
    extend(s, 'c', 600);
    release(s, 'c', s->last[2]);
    SAID("b extended to 600\nc ASKED\nc released 0 after it was asked\n"
         "d granted held 3 waited 0\n");
}

UNIT_TEST(when_the_largest_of_them_has_gone_others_may_stay)
{
    STAGE s = stage_new();
    ASK('a', .per = 5, .units = 3, .lease_ms = 500, .priority = 2);
    ASK('b', .per = 5, .units = 1, .lease_ms = 500, .priority = 1);
    ASK('c', .per = 5, .units = 1, .lease_ms = 500);
    ASK('d', THIEF, .per = 2, .priority = 5);
    SAID("a held 3\nb held 4\nc held 5\nd waits\nc asked by d priority 5 left 500\n"
         "b asked by d priority 5 left 500\na asked by d priority 5 left 500\n");
    release(s, 'a', s->last[0]);
    SAID("a released 0 after it was asked\nb withdrawn\n");
}

UNIT_TEST(no_holder_is_revoked_if_all_lower_ones_do_not_suffice)
{
    STAGE s = stage_new();
    ASK('a', .per = 3, .units = 2, .lease_ms = 500, .priority = 5);
    ASK('b', .per = 3, .units = 1, .lease_ms = 500);
    ASK('c', THIEF, .per = 3, .units = 2, .priority = 5);
    SAID("a held 2\nb held 3\nc waits\n");
    assert_false(is_asked(s, 'b'));
    assert_false(is_reserved(s));
    extend(s, 'b', 600);
    SAID("b extended to 600\n");
}

UNIT_TEST(freed_units_go_to_the_thief_whatever_capacity_others_declare)
{
    STAGE s = stage_new();
    ASK('a', .per = 2, .lease_ms = 500);
    ASK('b', .per = 2, .lease_ms = 500);
    ASK('c', THIEF, .per = 2, .units = 2, .priority = 5);
    s->said[0] = '\0';
    release(s, 'a', s->last[0]);
    ASK('d', .per = 2);                  /* One unit is free, and it is not d's. */
    ASK('e', .per = 100);                /* Nor does a higher capacity help. */
    ASK('f', .per = 100, .priority = 5); /* Nor as much priority as the thief's. */
    SAID("a released 0 after it was asked\nd FULL\ne FULL\nf FULL\n");
    ASK('f', .per = 100, .priority = 6); /* More is more; and now b is too little. */
    SAID("f held 2\nb withdrawn\n");
    release(s, 'f', 0);
    release(s, 'b', s->last[1]);
    SAID("f released\nb asked by c priority 5 left 500\n"
         "b released 0 after it was asked\nc granted held 2 waited 0\n");
    ASK('e', .per = 100); /* The reservation is over. */
    SAID("e held 3\n");
}

UNIT_TEST(the_last_of_what_is_freed_goes_to_the_thief_too)
{
    STAGE s = stage_new();
    ASK('a', .per = 3, .units = 3, .lease_ms = 500);
    ASK('b', .wait_ms = 1000, .priority = 5); /* Before c, and with a lower capacity. */
    ASK('c', THIEF, .per = 3, .units = 3, .priority = 5);
    SAID("a held 3\nb waits\nc waits\na asked by c priority 5 left 500\n");
    release(s, 'a', s->last[0]);
    SAID("a released 0 after it was asked\nc granted held 3 waited 0\n");
}

UNIT_TEST(when_a_plan_comes_to_nothing_others_are_let_in)
{
    STAGE s = stage_new();
    ASK('a', .per = 2, .lease_ms = 500);
    ASK('b', .per = 2, .lease_ms = 500);
    ASK('c', THIEF, .per = 2, .units = 2, .priority = 5);
    ASK('d', .per = 100, .wait_ms = 1000, .priority = 5); /* Held back by c alone. */
    release(s, 'a', s->last[0]);
    s->said[0] = '\0';
    release_only(s, 'b', s->last[1]);
    ask_only(s, 'e', (struct sl_want){.per = 100, .priority = 6});
    settle(s); /* The current holder is not lower than c: there is no one to ask. */
    SAID("b released 0 after it was asked\ne held 1\nd granted held 2 waited 0\n");
}

UNIT_TEST(other_grants_do_not_come_between_a_theft_and_its_event)
{
    STAGE s = stage_new();
    ASK('a', .lease_ms = 500);
    ASK('b', FORCE(100), .priority = 5);
    ASK('c', .per = 100, .wait_ms = 1000, .priority = 5); /* Held back by b alone. */
    s->said[0] = '\0';
    pass(s, 100);
    SAID("[100]\nb granted held 2 waited 100 overlapping\na stolen\n"
         "c granted held 3 waited 100\n");
}

/* A request that looked at all of them would make this last for minutes. */
UNIT_TEST(however_many_are_asked_each_answer_costs_the_same)
{
    enum { MANY = 50000 };
    STAGE s = stage_new();
    struct sl_grant g;
    struct sl_ended p;
    struct sl_effect e;
    struct sl_want reader = {.key = bytes("k"), .shared = true};
    struct sl_want late = {
        .key = bytes("k"), .per = 1, .buckets = 1, .units = 1, .wait_ms = 1000};
    sl_fence first = 0;
    for (int i = 0; i < MANY; i++) {
        assert_int_equal(sl_table_acquire(s->table, s->now, s->session, &reader, &g),
                         SLUICE_OK);
        if (first == 0) first = g.fence;
    }
    ask_only(s, 'b', (struct sl_want){THIEF, .priority = 5});
    for (int i = 0; i < MANY; i++) {
        assert_true(sl_table_next(s->table, s->now, &e));
        assert_int_equal(e.type, SL_EFFECT_ASKED);
    }
    for (int i = 0; i < MANY; i++) { /* Others come and go; the oldest answer first. */
        assert_int_equal(sl_table_acquire(s->table, s->now, &s->session[2], &late, &g),
                         SL_WAITS);
        assert_false(sl_table_next(s->table, s->now, &e));
        sl_table_withdraw(s->table, &s->session[2]);
        assert_false(sl_table_next(s->table, s->now, &e));
        assert_int_equal(sl_table_release(s->table, s->now, s->session, bytes("k"),
                                          first + (sl_fence)i, &p),
                         1);
        assert_true(sl_table_next(s->table, s->now, &e) == (i == MANY - 1));
    }
    assert_int_equal(e.type, SL_EFFECT_GRANTED);
}

/* --- The edge cases -------------------------------------------------------- */

UNIT_TEST(P1_a_thief_dies_before_anything_and_the_victim_goes_on)
{
    STAGE s = stage_new();
    ASK('a', .lease_ms = 500);
    ASK('b', THIEF, .priority = 5, .lease_ms = 50);
    ASK('c', .wait_ms = 10000);
    SAID("a held 1\nb waits\na asked by b priority 5 left 500\nc waits\n");
    extend(s, 'a', 500);
    end(s, 'b');
    extend(s, 'a', 700);
    SAID("a ASKED\na withdrawn\nb over\na extended to 700\n");
    pass(s, 699); /* Nobody is in before the victim's lease is over. */
    assert_true(holds(s, 'a'));
    SAID("[699]\n");
    pass(s, 1);
    SAID("[700]\na expired\nc granted held 1 waited 700\n");
}

UNIT_TEST(P2_a_thief_dies_after_the_release_and_the_lock_is_free)
{
    STAGE s = stage_new();
    ASK('a', .lease_ms = 500);
    ASK('b', THIEF, .priority = 5);
    s->said[0] = '\0';
    release_only(s, 'a', s->last[0]);
    sl_table_session_end(s->table, &s->session[1]); /* Before it was told. */
    settle(s);
    SAID("a released 0 after it was asked\nb over\n");
    ASK('a', .lease_ms = 500);
    extend(s, 'a', 600);
    SAID("a held 1\na extended to 600\n");
}

UNIT_TEST(P3_a_thief_dies_with_the_grant_and_its_lease_ends_it)
{
    STAGE s = stage_new();
    ASK('a', .lease_ms = 500);
    ASK('b', THIEF, .priority = 5, .lease_ms = 50);
    s->said[0] = '\0';
    release(s, 'a', s->last[0]);
    end(s, 'b');
    ASK('c', .wait_ms = 1000);
    SAID("a released 0 after it was asked\nb granted held 1 waited 0\nb over\nc "
         "waits\n");
    pass(s, 50);
    SAID("[50]\nb expired\nc granted held 1 waited 50\n");
}

UNIT_TEST(P4_a_victim_that_does_not_answer_is_waited_out)
{
    STAGE s = stage_new();
    ASK('a', .lease_ms = 500);
    pass(s, 200);
    ASK('b', THIEF, .priority = 5);
    pass(s, 299);
    SAID("a held 1\n[200]\nb waits\na asked by b priority 5 left 300\n[499]\n");
    assert_true(holds(s, 'a'));
    pass(s, 1);
    SAID("[500]\na expired 300 after it was asked\nb granted held 1 waited 300\n");
    extend(s, 'a', 500); /* It wakes. */
    release(s, 'a', s->last[0]);
    SAID("a LOST\na had nothing to release\n");
    assert_true(holds(s, 'b'));
}

UNIT_TEST(P5_what_was_not_heard_is_asked_again_when_the_thief_tries_again)
{
    STAGE s = stage_new();
    ASK('a', .lease_ms = 5000);
    ASK('b', THIEF, .priority = 5);
    pass(s, 1000);
    SAID("a held 1\nb waits\na asked by b priority 5 left 5000\n[1000]\nb timed out\n"
         "a withdrawn\n");
    ASK('b', THIEF_FOR(10000), .priority = 5);
    SAID("b waits\na asked by b priority 5 left 4000\n");
    pass(s, 4000); /* Heard or not, its lease is the bound. */
    SAID("[5000]\na expired 4000 after it was asked\nb granted held 1 waited 4000\n");
}

UNIT_TEST(P8_a_higher_thief_takes_the_reservation_over)
{
    STAGE s = stage_new();
    ASK('a', .lease_ms = 500);
    ASK('b', THIEF, .priority = 5);
    ASK('c', THIEF, .priority = 7);
    ASK('d', THIEF, .priority = 6);
    /* The victim hears of it once. */
    SAID("a held 1\nb waits\na asked by b priority 5 left 500\nc waits\nd waits\n");
    pass(s, 30);
    release(s, 'a', s->last[0]);
    SAID("[30]\na released 30 after it was asked\nc granted held 1 waited 30\n");
    /* The others wait on, and c is nobody's victim. */
    extend(s, 'c', 10);
    release(s, 'c', 0);
    SAID("c NOLEASE\nc released\nd granted held 1 waited 30\n");
}

UNIT_TEST(P8_the_higher_thief_goes_and_the_victim_stays_asked)
{
    STAGE s = stage_new();
    ASK('a', .lease_ms = 500);
    ASK('b', THIEF, .priority = 5);
    ASK('c', THIEF, .priority = 7);
    s->said[0] = '\0';
    end(s, 'c');
    extend(s, 'a', 500);
    SAID("c over\na ASKED\n"); /* b has it again. Nothing changed for a. */
    end(s, 'b');
    SAID("a withdrawn\nb over\n");
}

UNIT_TEST(P9_a_victim_releases_before_it_was_asked)
{
    STAGE s = stage_new();
    ASK('a', .lease_ms = 500);
    ask_only(s, 'b', (struct sl_want){THIEF, .priority = 5});
    release_only(s, 'a', s->last[0]); /* Before anybody asked what follows. */
    release_only(s, 'a', s->last[0]);
    settle(s);
    /* Nobody is asked for what is gone; releasing twice changes nothing. */
    SAID("a held 1\nb waits\na released\na had nothing to release\n"
         "b granted held 1 waited 0\n");
    release(s, 'a', s->last[0]);
    SAID("a had nothing to release\n");
    assert_true(holds(s, 'b'));
}

UNIT_TEST(P10_a_later_grant_of_the_victim_is_not_asked)
{
    STAGE s = stage_new();
    ASK('a', .lease_ms = 500);
    sl_fence first = s->last[0];
    ASK('b', THIEF, .priority = 5);
    release(s, 'a', first);
    release(s, 'b', 0);
    ASK('a', .lease_ms = 500);
    s->said[0] = '\0';
    assert_false(is_asked(s, 'a'));
    extend(s, 'a', 600);
    release(s, 'a', first); /* An answer that comes late is for the old one. */
    SAID("a extended to 600\na had nothing to release\n");
    assert_true(holds(s, 'a'));
}

UNIT_TEST(P10_while_the_thief_waits_the_victim_cannot_come_back)
{
    STAGE s = stage_new();
    ASK('a', .per = 2, .lease_ms = 500);
    ASK('b', .per = 2, .lease_ms = 500);
    ASK('c', THIEF, .per = 2, .units = 2, .priority = 5);
    s->said[0] = '\0';
    release(s, 'a', s->last[0]);
    ASK('a', .per = 2, .lease_ms = 500);
    ASK('a', .per = 2, .lease_ms = 500, .wait_ms = 1000);
    SAID("a released 0 after it was asked\na FULL\na waits\n");
    release(s, 'b', s->last[1]);
    SAID("b released 0 after it was asked\nc granted held 2 waited 0\n");
}

UNIT_TEST(P11_a_lease_that_ends_during_the_handshake_is_told_once)
{
    STAGE s = stage_new();
    ASK('a', .lease_ms = 100);
    ASK('b', THIEF, .priority = 5);
    s->said[0] = '\0';
    pass(s, 100);
    pass(s, 100);
    SAID("[100]\na expired 100 after it was asked\nb granted held 1 waited "
         "100\n[200]\n");
}

UNIT_TEST(P12_a_thief_that_times_out_withdraws_its_request)
{
    STAGE s = stage_new();
    ASK('a', .lease_ms = 5000);
    ASK('b', THIEF_FOR(100), .priority = 5);
    pass(s, 99);
    extend(s, 'a', 5000);
    SAID("a held 1\nb waits\na asked by b priority 5 left 5000\n[99]\na ASKED\n");
    pass(s, 1);
    assert_false(is_asked(s, 'a'));
    assert_false(is_reserved(s));
    extend(s, 'a', 5000);
    SAID("[100]\nb timed out\na withdrawn\na extended to 5000\n");
    pass(s, 10);
    release(s, 'a', s->last[0]); /* What was withdrawn was not asked. */
    SAID("[110]\na released\n");
}

UNIT_TEST(P13_P14_equal_and_lower_priority_steal_nothing)
{
    STAGE s = stage_new();
    ASK('a', .lease_ms = 500, .priority = 5);
    ASK('b', THIEF, .priority = 5);
    ASK('c', THIEF, .priority = 4);
    assert_false(is_asked(s, 'a'));
    assert_false(is_reserved(s));
    extend(s, 'a', 600);
    SAID("a held 1\nb waits\nc waits\na extended to 600\n");
    ASK('d', .steal = true, .force_ms = 0, .priority = 5); /* Nor by force. */
    pass(s, 1);
    SAID("d waits\n[1]\nd timed out\n");
}

UNIT_TEST(P19_an_extension_in_the_same_instant_is_before_or_after)
{
    STAGE s = stage_new();
    ASK('a', .lease_ms = 100);
    pass(s, 50);
    extend(s, 'a', 300);
    ASK('b', THIEF, .priority = 5);
    SAID("a held 1\n[50]\na extended to 300\nb waits\na asked by b priority 5 left "
         "300\n");
    extend(s, 'a', 900); /* The same instant, and behind the thief. */
    SAID("a ASKED\n");
    pass(s, 300);
    SAID("[350]\na expired 300 after it was asked\nb granted held 1 waited 300\n");
}

UNIT_TEST(P22_priority_sinks_only_by_release_and_acquire)
{
    STAGE s = stage_new();
    ASK('a', .lease_ms = 500, .per = 2, .priority = 5);
    ASK('a', .lease_ms = 500, .per = 2,
        .priority = 0); /* One more grant; not a change. */
    ASK('b', THIEF, .per = 2, .units = 2, .priority = 3);
    SAID("a held 1\na held 2\nb waits\n");
    sl_table_withdraw(s->table, &s->session[1]);
    ASK('b', THIEF, .per = 2, .units = 1, .priority = 3);
    SAID("b waits\na asked by b priority 3 left 500\n");
    assert_true(is_asked(s, 'a')); /* The newer, which has 0. */
}

UNIT_TEST(P23_a_slow_victim_holds_until_its_lease_ends_and_harms_nobody)
{
    STAGE s = stage_new();
    ASK('a', .lease_ms = 100);
    ASK('b', THIEF, .priority = 5);
    s->said[0] = '\0';
    assert_true(holds(s, 'a')); /* Asked, and it still may work. */
    pass(s, 99);
    assert_true(holds(s, 'a'));
    pass(s, 1);
    assert_false(holds(s, 'a'));
    release(s, 'a', s->last[0]); /* At last. */
    SAID("[99]\n[100]\na expired 100 after it was asked\nb granted held 1 waited 100\n"
         "a had nothing to release\n");
    assert_true(holds(s, 'b'));
}

/* Low priorities may starve; nobody overlaps, and when the storm is over they are next. */
UNIT_TEST(P25_a_storm_of_thieves_starves_others_and_harms_nobody)
{
    STAGE s = stage_new();
    int high = 0;
    ASK('a', .lease_ms = 100);
    ASK('d', .wait_ms = 100000);
    ASK('e', .wait_ms = 100000);
    char holder = 'a';
    for (int i = 0; i < 50; i++) {
        char thief = i % 2 == 0 ? 'b' : 'c';
        ASK(thief, THIEF, .lease_ms = 100, .priority = i + 1);
        assert_true(is_asked(s, holder));
        release(s, holder, s->last[holder - 'a']);
        assert_true(holds(s, thief));
        struct sl_lock_view v;
        assert_true(sl_table_inspect(s->table, s->now, bytes("k"), &v));
        assert_int_equal(v.held, 1);
        assert_int_equal(v.waiters, 2);
        holder = thief;
        high++;
        s->said[0] = '\0';
        pass(s, 1);
    }
    assert_int_equal(high, 50);
    s->said[0] = '\0';
    release(s, holder, s->last[holder - 'a']);
    release(s, 'd', 0);
    SAID("c released\nd granted held 1 waited 50\nd released\ne granted held 1 waited "
         "50\n");
}

/* --- The bugs of a library that replaced records ---------------------------- */

UNIT_TEST(PR1_the_lowest_priority_steals_from_nobody)
{
    STAGE s = stage_new();
    ASK('a', .lease_ms = 500);
    ASK('b', THIEF, .priority = INT32_MIN);
    SAID("a held 1\nb waits\n");
    ASK('c', THIEF, .priority = INT32_MAX);
    SAID("c waits\na asked by c priority 2147483647 left 500\n");
    release(s, 'a', s->last[0]);
    release(s, 'c', 0);
    SAID("a released 0 after it was asked\nc granted held 1 waited 0\nc released\n"
         "b granted held 1 waited 0\n");
    ASK('d', THIEF, .priority = INT32_MIN + 1); /* One above it is above it. */
    SAID("d waits\nb asked by d priority -2147483647\n");
}

/* The thief gives up after 50 ms; the victim's lease is of 10 s. */
UNIT_TEST(PR2_a_victim_that_cannot_be_reached_is_not_overlapped_by_a_third)
{
    STAGE s = stage_new();
    ASK('a', .lease_ms = 10000);
    ASK('b', THIEF_FOR(50), .lease_ms = 50, .priority = 5);
    ASK('c', .lease_ms = 50);
    pass(s, 50);
    ASK('c', .lease_ms = 50);
    ASK('c', .wait_ms = 20000);
    SAID("a held 1\nb waits\na asked by b priority 5 left 10000\nc FULL\n[50]\n"
         "b timed out\na withdrawn\nc FULL\nc waits\n");
    pass(s, 9949);
    SAID("[9999]\n");
    pass(s, 1);
    SAID("[10000]\na expired\nc granted held 1 waited 9950\n");
}

UNIT_TEST(PR3_a_thief_that_dies_leaves_the_victims_record_alone)
{
    STAGE s = stage_new();
    ASK('a', .lease_ms = 10000);
    ASK('b', THIEF, .lease_ms = 50, .priority = 5);
    end(s, 'b');
    pass(s, 60);
    ASK('c', .lease_ms = 50);
    SAID("a held 1\nb waits\na asked by b priority 5 left 10000\na withdrawn\nb over\n"
         "[60]\nc FULL\n");
    assert_true(holds(s, 'a'));
}

UNIT_TEST(PR4_releasing_one_grant_leaves_the_other)
{
    STAGE s = stage_new();
    ASK('a', .per = 2, .lease_ms = 500);
    sl_fence first = s->last[0];
    ASK('a', .per = 2, .lease_ms = 500);
    ASK('b', THIEF, .per = 2, .priority = 5);
    s->said[0] = '\0';
    release(s, 'a', s->last[0]); /* The newest was asked. */
    SAID("a released 0 after it was asked\nb granted held 2 waited 0\n");
    assert_true(sl_table_holds(s->table, s->now, bytes("k"), first));
}

UNIT_TEST(PR5_a_victim_releases_during_the_handshake_and_the_thief_is_in)
{
    STAGE s = stage_new();
    ASK('a', .lease_ms = 10000);
    ASK('b', THIEF, .priority = 5);
    pass(s, 5);
    s->said[0] = '\0';
    release(s, 'a',
            s->last[0]); /* That is the answer; there is no other to wait for. */
    SAID("a released 5 after it was asked\nb granted held 1 waited 5\n");
}

UNIT_TEST(PR6_a_thief_waits_as_long_as_it_said_and_no_longer)
{
    STAGE s = stage_new();
    ASK('a', .lease_ms = 10000);
    ASK('b', THIEF_FOR(100), .priority = 5);
    s->said[0] = '\0';
    assert_int_equal(sl_table_due(s->table), 100);
    pass(s, 99);
    pass(s, 1);
    SAID("[99]\n[100]\nb timed out\na withdrawn\n");
}

/* --- Early entry: f x WAIT -------------------------------------------------- */

UNIT_TEST(STEAL_without_f_never_enters_early)
{
    STAGE s = stage_new();
    ASK('a', .lease_ms = 10000);
    ASK('b', THIEF, .priority = 5);
    pass(s, 999);
    assert_false(holds(s, 'b'));
    pass(s, 1);
    SAID("a held 1\nb waits\na asked by b priority 5 left 10000\n[999]\n[1000]\n"
         "b timed out\na withdrawn\n");
}

UNIT_TEST(STEAL_with_f_enters_early_and_its_grant_is_marked)
{
    STAGE s = stage_new();
    ASK('a', .lease_ms = 10000);
    ASK('b', FORCE(500), .priority = 5);
    assert_int_equal(sl_table_due(s->table), 500);
    pass(s, 499);
    SAID("a held 1\nb waits\na asked by b priority 5 left 10000\n[499]\n");
    pass(s, 1);
    SAID("[500]\nb granted held 2 waited 500 overlapping\n"
         "a stolen\n");
    assert_true(s->last[1] > s->last[0]);
    assert_true(holds(s, 'a')); /* Until it releases, or its lease expires. */
    extend(s, 'a', 20000);
    SAID("a ASKED\n");
    pass(s, 100);
    release(s, 'a', s->last[0]);
    SAID("[600]\na released\n"); /* That is no answer any more. */
}

UNIT_TEST(f_half_is_not_overlapping_if_the_victim_answers)
{
    STAGE s = stage_new();
    ASK('a', .lease_ms = 10000);
    ASK('b', FORCE(500), .priority = 5);
    pass(s, 499);
    s->said[0] = '\0';
    release(s, 'a', s->last[0]);
    pass(s, 1);
    SAID("a released 499 after it was asked\nb granted held 1 waited 499\n[500]\n");
}

UNIT_TEST(f_half_is_not_overlapping_if_the_lease_expires_at_that_moment)
{
    STAGE s = stage_new();
    ASK('a', .lease_ms = 500);
    ASK('b', FORCE(500), .priority = 5);
    s->said[0] = '\0';
    pass(s, 500);
    SAID("[500]\na expired 500 after it was asked\nb granted held 1 waited 500\n");
}

UNIT_TEST(f_zero_enters_at_once)
{
    STAGE s = stage_new();
    ASK('a', .lease_ms = 10000);
    ASK('b', FORCE(0), .priority = 5);
    assert_true(holds(s, 'a'));
    assert_true(holds(s, 'b'));
    SAID("a held 1\nb waits\na asked by b priority 5 left 10000\n"
         "b granted held 2 waited 0 overlapping\na stolen\n");
}

UNIT_TEST(f_zero_enters_at_once_without_a_wait_and_with_a_late_clock)
{
    STAGE s = stage_with(1);
    ASK('a', .lease_ms = 10000);
    ASK('b', .steal = true, .force_ms = 0, .priority = 5);
    SAID("a held 1\nb waits\na asked by b priority 5 left 10000\n"
         "b granted held 2 waited 0 overlapping\na stolen\n");
}

UNIT_TEST(by_force_only_with_a_reservation)
{
    STAGE s = stage_new();
    ASK('a', .per = 2, .lease_ms = 10000, .priority = 5);
    ASK('b', .per = 2, .lease_ms = 10000);
    ASK('c', FORCE(500), .per = 2, .units = 2, .priority = 5);
    pass(s, 600); /* a is not lower, so c has no reservation and does not enter. */
    SAID("a held 1\nb held 2\nc waits\n[600]\n");
    release(s, 'a', s->last[0]); /* Now it has one, and has waited for long enough. */
    SAID("a released\nb asked by c priority 5 left 9400\n"
         "c granted held 3 waited 600 overlapping\nb stolen\n");
}

UNIT_TEST(a_forced_grant_joins_readers_and_units)
{
    STAGE s = stage_new();
    ASK('a', .shared = true, .lease_ms = 10000);
    ASK('b', .shared = true, .lease_ms = 10000);
    ASK('c', FORCE(500), .priority = 5);
    s->said[0] = '\0';
    release(s, 'a', s->last[0]);
    pass(s, 500);
    SAID("a released 0 after it was asked\n[500]\nc granted held 1 waited 500 "
         "overlapping\n"
         "b stolen\n");
    release(s, 'b', s->last[1]);
    SAID("b released\n");
    release(s, 'c', 0);
    ASK('a', .per = 2, .lease_ms = 10000);
    ASK('b', .per = 2, .lease_ms = 10000);
    ASK('d', FORCE(500), .per = 2, .priority = 5);
    s->said[0] = '\0';
    pass(s, 500); /* Only the newer of the two was asked. */
    SAID("[1000]\nd granted held 3 waited 500 overlapping\nb stolen\n");
    extend(s, 'a', 20000);
    extend(s, 'b', 20000);
    SAID("a extended to 20000\nb ASKED\n");
}

UNIT_TEST(what_was_overlapped_stays_so_when_the_thief_goes)
{
    STAGE s = stage_new();
    ASK('a', .lease_ms = 10000);
    ASK('b', FORCE(0), .priority = 5);
    s->said[0] = '\0';
    release(s, 'b', 0); /* Its victim is told nothing: it has lost its extensions. */
    extend(s, 'a', 20000);
    SAID("b released\na ASKED\n");
    ASK('c'); /* But it holds. */
    SAID("c FULL\n");
    pass(s, 10000);
    SAID("[10000]\na expired\n");
}

int main(void)
{
    return run_unit_tests("steal");
}
