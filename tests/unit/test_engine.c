/* test_engine.c - the client of a server, without a server: commands, repetitions, leases, and the
 * events of grants. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "test.h"

#include "base/random.h"
#include "engine_stage.h"

static struct stage s;

static int setup(void **state)
{
    (void)state;
    stage_begin(&s, 1, 7);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    stage_end(&s);
    return 0;
}

static struct sl_ticket new_ticket(void)
{
    struct sl_ticket t = {0};
    return t;
}

static void acquire(unsigned client, const char *key, const struct sluice_request *r,
                    struct sl_ticket *t)
{
    *t = new_ticket();
    sl_list_init(&t->node);
    assert_int_equal(
        sl_engine_acquire(&s.clients[client].engine, s.now_ms, key, r, 0, 1, t),
        SLUICE_OK);
}

static int release(unsigned client, const char *key, uint64_t fence)
{
    struct sl_ticket t = new_ticket();
    sl_list_init(&t.node);
    assert_int_equal(
        sl_engine_release(&s.clients[client].engine, s.now_ms, key, fence, 1, &t),
        SLUICE_OK);
    stage_pass(&s, 100);
    assert_true(t.done);
    return t.status;
}

static int64_t left(unsigned client, const char *key, uint64_t fence)
{
    return sl_engine_left(&s.clients[client].engine, s.now_ms, key, fence);
}

/* The events of a client, in order, as text. */
static const char *events(unsigned client)
{
    static const char *const names[] = {"",        "asked",  "withdrawn",  "stolen",
                                        "expired", "broken", "unreachable"};
    static char text[200];
    struct sl_client_watch *w;
    text[0] = '\0';
    while ((w = sl_engine_next_event(&s.clients[client].engine)) != NULL) {
        struct sluice_event e = sl_client_watch_next_event(w, s.now_ms);
        if (text[0] != '\0') strcat(text, " ");
        strcat(text, names[e.type]);
        sl_engine_reported(&s.clients[client].engine, w);
    }
    return text;
}

static void nothing(void *arg, const struct sluice_event *e)
{
    (void)arg;
    (void)e;
}

static const struct sluice_request leased = {
    .wait_ms = 60000, .lease_ms = 3000, .on_event = nothing, .keep_alive = 1};
static const struct sluice_request once = {
    .wait_ms = 60000, .lease_ms = 3000, .on_event = nothing};
static const struct sluice_request session = {.wait_ms = 60000, .on_event = nothing};

/* --- Requests ------------------------------------------------------------------------ */

UNIT_TEST(a_free_lock_is_granted)
{
    struct sl_ticket t;
    acquire(0, "k", &leased, &t);
    stage_run(&s);
    assert_true(t.done);
    assert_int_equal(t.status, SLUICE_OK);
    assert_int_equal(stage_holder(&s, "k")->fence, t.grant.fence);
    assert_int_equal(left(0, "k", t.grant.fence), 3000 - 6 - 1 - 300);
    assert_int_equal(release(0, "k", t.grant.fence), SLUICE_OK);
    assert_null(stage_holder(&s, "k"));
    assert_int_equal(left(0, "k", t.grant.fence), SLUICE_ELOST);
}

UNIT_TEST(a_waiter_gets_the_lock_after_the_holder)
{
    struct sl_ticket a, b;
    acquire(0, "k", &leased, &a);
    stage_run(&s);
    acquire(1, "k", &leased, &b);
    stage_pass(&s, 10000);
    assert_false(b.done);
    assert_int_equal(release(0, "k", a.grant.fence), SLUICE_OK);
    assert_true(b.done);
    assert_int_equal(b.status, SLUICE_OK);
    assert_true(b.grant.fence > a.grant.fence);
    assert_true(b.grant.waited_ms >= 10000);
}

UNIT_TEST(a_request_times_out)
{
    struct sl_ticket a, b;
    acquire(0, "k", &leased, &a);
    stage_run(&s);
    struct sluice_request r = leased;
    r.wait_ms = 500;
    acquire(1, "k", &r, &b);
    stage_pass(&s, 490);
    assert_false(b.done);
    stage_pass(&s, 50);
    assert_true(b.done);
    assert_int_equal(b.status, SLUICE_EFULL);
}

UNIT_TEST(a_lost_reply_to_acquire_is_repeated_with_the_same_id)
{
    struct sl_ticket t;
    acquire(0, "k", &leased, &t);
    stage_settle(&s);
    stage_serve(&s, 0, SL_ENGINE_LEASES); /* Granted, but the reply is lost. */
    stage_break(&s, 0, SL_ENGINE_LEASES);
    uint64_t fence = stage_holder(&s, "k")->fence;
    stage_pass(&s, 200);
    assert_true(t.done);
    assert_int_equal(t.status, SLUICE_OK);
    assert_int_equal(t.grant.fence, fence);
}

UNIT_TEST(a_lease_is_counted_from_the_attempt_whose_reply_arrived)
{
    struct sl_ticket t;
    acquire(0, "k", &once, &t);
    stage_settle(&s);
    stage_serve(&s, 0, SL_ENGINE_LEASES);
    s.now_ms += 1000;
    stage_break(&s, 0, SL_ENGINE_LEASES);
    stage_pass(&s, 200);
    /* The server has the lease until 3000 after the first attempt. */
    int64_t server_left = stage_holder(&s, "k")->end_ms - s.now_ms;
    assert_true(left(0, "k", t.grant.fence) > 0);
    assert_true(left(0, "k", t.grant.fence) + 300 <= server_left);
}

UNIT_TEST(a_lost_reply_to_release_counts_as_released)
{
    struct sl_ticket t, released = new_ticket();
    acquire(0, "k", &leased, &t);
    stage_run(&s);
    sl_list_init(&released.node);
    assert_int_equal(sl_engine_release(&s.clients[0].engine, s.now_ms, "k",
                                       t.grant.fence, 1, &released),
                     SLUICE_OK);
    stage_settle(&s);
    stage_serve(&s, 0, SL_ENGINE_LEASES);
    stage_break(&s, 0, SL_ENGINE_LEASES);
    stage_pass(&s, 200);
    assert_true(released.done);
    assert_int_equal(released.status, SLUICE_OK);
}

UNIT_TEST(a_second_release_finds_no_grant)
{
    struct sl_ticket t;
    acquire(0, "k", &leased, &t);
    stage_run(&s);
    assert_int_equal(release(0, "k", t.grant.fence), SLUICE_OK);
    assert_int_equal(release(0, "k", t.grant.fence), SLUICE_ELOST);
    assert_int_equal(sl_engine_release(&s.clients[0].engine, s.now_ms, "k", 0, 1, NULL),
                     SLUICE_ENOTHELD);
}

UNIT_TEST(a_release_of_a_grant_that_was_broken_is_not_reported_as_a_success)
{
    struct sl_ticket t;
    acquire(0, "k", &leased, &t);
    stage_run(&s);
    stage_holder(&s, "k")->state = STAGE_ENDED;
    assert_int_equal(release(0, "k", t.grant.fence), SLUICE_ELOST);
}

UNIT_TEST(a_repeated_release_after_the_lease_is_not_reported_as_a_success)
{
    struct sl_ticket t, released = new_ticket();
    acquire(0, "k", &once, &t);
    stage_pass(&s, 4000);
    sl_list_init(&released.node);
    assert_int_equal(sl_engine_release(&s.clients[0].engine, s.now_ms, "k",
                                       t.grant.fence, 1, &released),
                     SLUICE_OK);
    stage_settle(&s);
    stage_break(&s, 0, SL_ENGINE_LEASES);
    stage_pass(&s, 200);
    assert_int_equal(released.status, SLUICE_ELOST);
}

UNIT_TEST(a_wait_keeps_its_id_when_the_connection_is_lost)
{
    struct sl_ticket a, b;
    acquire(1, "k", &leased, &a);
    stage_run(&s);
    acquire(0, "k", &leased, &b);
    stage_run(&s);
    size_t requests = s.count;
    stage_break(&s, 0, SL_ENGINE_LEASES);
    stage_pass(&s, 200);
    assert_int_equal(s.count, requests);
    assert_int_equal(release(1, "k", a.grant.fence), SLUICE_OK);
    assert_true(b.done);
    assert_int_equal(b.status, SLUICE_OK);
}

UNIT_TEST(without_a_fence_release_finds_the_newest_grant_of_the_thread)
{
    struct sl_ticket t, other = new_ticket();
    acquire(0, "k", &leased, &t);
    stage_run(&s);
    sl_list_init(&other.node);
    assert_int_equal(
        sl_engine_release(&s.clients[0].engine, s.now_ms, "k", 0, 2, &other),
        SLUICE_ENOTHELD);
    assert_int_equal(release(0, "k", 0), SLUICE_OK);
    assert_null(stage_holder(&s, "k"));
}

UNIT_TEST(a_request_that_was_cancelled_leaves_nothing_behind)
{
    struct sluice_cancel token = {0};
    struct sluice_request r = leased;
    struct sl_ticket t;
    r.cancel = &token;
    acquire(0, "k", &r, &t);
    stage_settle(&s);
    stage_serve(&s, 0, SL_ENGINE_LEASES); /* Granted; the reply is under way. */
    sl_engine_cancel(&s.clients[0].engine, s.now_ms, &token);
    assert_true(t.done);
    assert_int_equal(t.status, SLUICE_ECANCELLED);
    stage_break(&s, 0, SL_ENGINE_LEASES);
    assert_non_null(stage_holder(&s, "k"));
    stage_pass(&s, 200);
    assert_null(stage_holder(&s, "k"));
    assert_true(sl_engine_is_closed(&s.clients[0].engine));
}

UNIT_TEST(cancel_ends_only_requests_with_its_token)
{
    struct sluice_cancel token = {0}, other = {0};
    struct sluice_request r = leased;
    struct sl_ticket holder, a, b;
    acquire(1, "k", &leased, &holder);
    stage_run(&s);
    r.cancel = &token;
    acquire(0, "k", &r, &a);
    r.cancel = &other;
    acquire(0, "k", &r, &b);
    stage_run(&s);
    sl_engine_cancel(&s.clients[0].engine, s.now_ms, &token);
    stage_run(&s);
    assert_true(a.done);
    assert_false(b.done);
    assert_int_equal(release(1, "k", holder.grant.fence), SLUICE_OK);
    assert_true(b.done);
}

UNIT_TEST(a_request_fails_when_no_server_answers)
{
    struct sl_ticket t;
    struct sluice_request r = leased;
    s.down = true;
    r.wait_ms = 0;
    acquire(0, "k", &r, &t);
    stage_pass(&s, 4990);
    assert_false(t.done);
    stage_pass(&s, 20);
    assert_true(t.done);
    assert_int_equal(t.status, SLUICE_EUNREACHABLE);
    assert_true(s.connects > 3 && s.connects < 40); /* With growing pauses. */
    assert_true(sl_engine_is_closed(&s.clients[0].engine));
}

UNIT_TEST(a_wrong_password_is_reported_at_once)
{
    struct sl_ticket t;
    s.denied = "WRONGPASS";
    acquire(0, "k", &leased, &t);
    stage_run(&s);
    assert_true(t.done);
    assert_int_equal(t.status, SLUICE_EDENIED);
}

UNIT_TEST(an_error_that_may_pass_is_retried)
{
    struct sl_ticket t;
    s.error = "NOKEEPER";
    acquire(0, "k", &leased, &t);
    stage_pass(&s, 3000);
    assert_false(t.done);
    s.error = NULL;
    stage_pass(&s, 3000);
    assert_true(t.done);
    assert_int_equal(t.status, SLUICE_OK);
}

UNIT_TEST(an_error_that_lasts_is_the_result)
{
    struct sl_ticket t;
    struct sluice_request r = leased;
    r.wait_ms = 0;
    s.error = "NOQUORUM";
    acquire(0, "k", &r, &t);
    stage_pass(&s, 5100);
    assert_true(t.done);
    assert_int_equal(t.status, SLUICE_ENOQUORUM);
    /* It may have been granted, so it is cancelled when the server answers again. */
    assert_false(sl_engine_is_closed(&s.clients[0].engine));
    s.error = NULL;
    stage_pass(&s, 3000);
    assert_true(sl_engine_is_closed(&s.clients[0].engine));
}

UNIT_TEST(an_error_of_the_request_is_the_result_at_once)
{
    struct sl_ticket t;
    s.error = "DRAINED";
    acquire(0, "k", &leased, &t);
    stage_run(&s);
    assert_true(t.done);
    assert_int_equal(t.status, SLUICE_EDRAINED);
}

UNIT_TEST(a_request_begins_again_if_the_server_has_ended_its_id)
{
    struct sl_ticket a, b;
    acquire(1, "k", &leased, &a);
    stage_run(&s);
    acquire(0, "k", &session, &b);
    stage_run(&s);
    s.requests[s.count - 1].state =
        STAGE_ENDED; /* Its connection was lost for too long. */
    stage_break(&s, 0, SL_ENGINE_SESSIONS);
    stage_pass(&s, 200);
    assert_false(b.done);
    assert_int_equal(release(1, "k", a.grant.fence), SLUICE_OK);
    stage_pass(&s, 200);
    assert_true(b.done);
    assert_int_equal(b.status, SLUICE_OK);
}

/* --- Attempts without a reply ---------------------------------------------------------- */

/* Client 1 holds "k". The first attempt of client 0 is delayed; the second one has no grant. */
static void delay_first_attempt(struct sl_ticket *holder, struct sl_ticket *t)
{
    struct sluice_request r = leased;
    r.wait_ms = 0;
    acquire(1, "k", &leased, holder);
    stage_run(&s);
    acquire(0, "k", &r, t);
    stage_settle(&s);
    stage_delay(&s, 0);
}

UNIT_TEST(an_attempt_that_was_delayed_is_cancelled_after_nil)
{
    struct sl_ticket holder, t;
    delay_first_attempt(&holder, &t);
    stage_pass(&s, 100);
    assert_true(t.done);
    assert_int_equal(t.status, SLUICE_EFULL);
    assert_int_equal(release(1, "k", holder.grant.fence), SLUICE_OK);
    stage_arrive(&s);
    assert_null(stage_holder(&s, "k"));
    assert_true(sl_engine_is_closed(&s.clients[0].engine));
}

UNIT_TEST(an_attempt_that_was_delayed_is_cancelled_although_it_was_granted)
{
    struct sl_ticket holder, t;
    delay_first_attempt(&holder, &t);
    while (!t.done) { /* Nil; CANCEL is not sent yet. */
        s.now_ms++;
        stage_settle(&s);
        stage_serve(&s, 0, SL_ENGINE_LEASES);
        stage_deliver(&s, 0, SL_ENGINE_LEASES);
    }
    stage_holder(&s, "k")->state = STAGE_ENDED;
    stage_arrive(&s);
    assert_non_null(stage_holder(&s, "k"));
    stage_run(&s);
    assert_null(stage_holder(&s, "k"));
}

UNIT_TEST(an_attempt_that_was_delayed_is_cancelled_after_an_error)
{
    struct sl_ticket holder, t;
    delay_first_attempt(&holder, &t);
    s.error = "DRAINED";
    stage_pass(&s, 100);
    assert_true(t.done);
    assert_int_equal(t.status, SLUICE_EDRAINED);
    s.error = NULL;
    stage_pass(&s, 3000);
    assert_int_equal(release(1, "k", holder.grant.fence), SLUICE_OK);
    stage_arrive(&s);
    assert_null(stage_holder(&s, "k"));
}

UNIT_TEST(a_request_that_may_hold_the_lock_is_cancelled_after_nil)
{
    struct sl_ticket holder, t;
    struct sluice_request r = leased;
    r.wait_ms = 0;
    acquire(1, "k", &leased, &holder);
    stage_run(&s);
    s.error = "NOQUORUM";
    acquire(0, "k", &r, &t);
    stage_run(&s);
    s.error = NULL;
    unsigned before = s.commands;
    stage_pass(&s, 200);
    assert_int_equal(t.status, SLUICE_EFULL);
    assert_int_equal(s.commands, before + 2); /* ACQUIRE and CANCEL. */
}

UNIT_TEST(a_request_whose_outcome_is_certain_is_not_cancelled)
{
    struct sl_ticket holder, t;
    struct sluice_request r = leased;
    r.wait_ms = 0;
    acquire(1, "k", &leased, &holder);
    stage_run(&s);
    unsigned before = s.commands;
    acquire(0, "k", &r, &t);
    stage_pass(&s, 200);
    assert_int_equal(t.status, SLUICE_EFULL);
    assert_int_equal(s.commands, before + 2); /* HELLO and ACQUIRE. */
}

UNIT_TEST(a_cancel_that_the_server_rejects_is_sent_again)
{
    struct sluice_cancel token = {0};
    struct sluice_request r = leased;
    struct sl_ticket t;
    r.cancel = &token;
    acquire(0, "k", &r, &t);
    stage_settle(&s);
    stage_serve(&s, 0, SL_ENGINE_LEASES); /* Granted; the reply is under way. */
    sl_engine_cancel(&s.clients[0].engine, s.now_ms, &token);
    s.error = "REQUESTS";
    stage_run(&s);
    assert_false(sl_engine_is_closed(&s.clients[0].engine));
    s.error = NULL;
    stage_pass(&s, 200);
    assert_null(stage_holder(&s, "k"));
    assert_true(sl_engine_is_closed(&s.clients[0].engine));
}

UNIT_TEST(a_server_that_is_not_sluice_is_reported_at_once)
{
    struct sl_ticket t;
    s.denied = "NOPROTO";
    acquire(0, "k", &leased, &t);
    stage_run(&s);
    assert_true(t.done);
    assert_int_equal(t.status, SLUICE_EPROTOCOL);
}

UNIT_TEST(a_server_that_is_not_sluice_is_left_for_the_next_address)
{
    struct sl_ticket t;
    stage_end(&s);
    stage_begin(&s, 3, 9);
    s.denied = "ERR";
    acquire(0, "k", &leased, &t);
    stage_run(&s);
    assert_int_equal(s.connects, 1);
    assert_false(t.done);
    s.denied = NULL;
    stage_pass(&s, 100);
    assert_true(t.done);
    assert_int_equal(t.status, SLUICE_OK);
}

UNIT_TEST(a_command_with_an_invalid_reply_is_not_repeated)
{
    struct sl_ticket holder, t, asks = new_ticket();
    acquire(1, "k", &leased, &holder);
    acquire(0, "l", &leased, &t);
    stage_run(&s);
    sl_list_init(&asks.node);
    assert_int_equal(sl_engine_ask(&s.clients[0].engine, s.now_ms, SL_CALL_INSPECT, "k",
                                   0, false, &asks),
                     SLUICE_OK);
    stage_settle(&s);
    acquire(0, "k", &leased, &t);
    stage_settle(&s);
    stage_fail(&s, 0, SL_ENGINE_LEASES, SLUICE_EPROTOCOL);
    assert_true(asks.done);
    assert_int_equal(asks.status, SLUICE_EPROTOCOL);
    assert_false(t.done); /* Its reply was not the invalid one. */
    stage_pass(&s, 100);
    stage_fail(&s, 0, SL_ENGINE_LEASES, SLUICE_EPROTOCOL);
    assert_false(t.done);
    assert_int_equal(release(1, "k", holder.grant.fence), SLUICE_OK);
    stage_pass(&s, 200);
    assert_int_equal(t.status, SLUICE_OK);
}

UNIT_TEST(many_requests_wait_on_one_connection)
{
    static struct sl_ticket held[50], waits[50];
    char key[8];
    for (int i = 0; i < 50; i++) {
        snprintf(key, sizeof key, "k%d", i);
        acquire(1, key, &leased, &held[i]);
        stage_run(&s);
        acquire(0, key, &leased, &waits[i]);
    }
    stage_pass(&s, 5000); /* The holder extends all leases. */
    assert_int_equal(s.connects, 2);
    for (int i = 0; i < 50; i++) {
        snprintf(key, sizeof key, "k%d", i);
        assert_false(waits[i].done);
        assert_int_equal(release(1, key, held[i].grant.fence), SLUICE_OK);
        assert_int_equal(waits[i].status, SLUICE_OK);
    }
    assert_int_equal(s.connects, 2);
}

/* --- Leases ------------------------------------------------------------------------------ */

UNIT_TEST(keep_alive_extends_a_lease_after_a_third)
{
    struct sl_ticket t;
    acquire(0, "k", &leased, &t);
    stage_pass(&s, 20000);
    assert_true(left(0, "k", t.grant.fence) > 1500);
    assert_string_equal(events(0), "");
    /* HELLO, ACQUIRE, and an extension each second. */
    assert_in_range(s.commands, 2 + 18, 2 + 21);
}

UNIT_TEST(extensions_are_sent_before_requests)
{
    struct sl_ticket t, others[3];
    acquire(0, "k", &leased, &t);
    stage_run(&s);
    s.clients[0].conns[SL_ENGINE_LEASES].full = true;
    for (int i = 0; i < 3; i++) acquire(0, "l", &leased, &others[i]);
    stage_pass(&s, 1010);
    s.clients[0].conns[SL_ENGINE_LEASES].full = false;
    stage_run(&s);
    assert_string_equal(s.log + sizeof s.log - 5, "EAAA");
}

UNIT_TEST(without_keep_alive_a_lease_expires_after_its_event)
{
    struct sl_ticket t;
    acquire(0, "k", &once, &t);
    stage_pass(&s, 2690);
    assert_string_equal(events(0), "");
    stage_pass(&s, 10);
    assert_string_equal(events(0), "expired");
    assert_non_null(stage_holder(&s, "k")); /* The server still has it. */
    assert_int_equal(left(0, "k", t.grant.fence), SLUICE_ELOST);
}

UNIT_TEST(the_event_comes_before_the_lease_expires_if_the_server_is_silent)
{
    struct sl_ticket t;
    acquire(0, "k", &leased, &t);
    stage_run(&s);
    s.clients[0].conns[SL_ENGINE_LEASES].cut = true;
    s.down = true;
    sl_ms end_ms = stage_holder(&s, "k")->end_ms;
    stage_pass(&s, 2650);
    assert_string_equal(events(0), "");
    stage_pass(&s, 50);
    assert_string_equal(events(0), "unreachable");
    assert_true(s.now_ms + 250 < end_ms);
}

UNIT_TEST(the_margin_can_be_set)
{
    struct sl_ticket t;
    struct sluice_request r = once;
    r.margin_ms = 2000;
    acquire(0, "k", &r, &t);
    stage_pass(&s, 1000);
    assert_string_equal(events(0), "expired");
}

UNIT_TEST(a_lease_is_not_extended_beyond_max_hold)
{
    struct sl_ticket t;
    struct sluice_request r = leased;
    r.max_hold_ms = 10000;
    acquire(0, "k", &r, &t);
    stage_pass(&s, 9600);
    assert_string_equal(events(0), "");
    stage_pass(&s, 200);
    assert_string_equal(events(0), "expired");
    stage_pass(&s, 300);
    assert_null(stage_holder(&s, "k"));
}

UNIT_TEST(a_node_that_does_not_answer_an_extension_is_left_in_time)
{
    struct sl_ticket t;
    stage_end(&s);
    stage_begin(&s, 3, 9);
    acquire(0, "k", &leased, &t);
    stage_run(&s);
    s.clients[0].conns[SL_ENGINE_LEASES].cut = true; /* The next connection works. */
    stage_pass(&s, 10000);
    assert_string_equal(events(0), "");
    assert_true(left(0, "k", t.grant.fence) > 0);
    assert_int_equal(s.connects, 2);
}

UNIT_TEST(a_node_that_does_not_read_is_left_in_time)
{
    struct sl_ticket t;
    stage_end(&s);
    stage_begin(&s, 3, 9);
    acquire(0, "k", &leased, &t);
    stage_run(&s);
    s.clients[0].conns[SL_ENGINE_LEASES].full = true;
    stage_pass(&s, 10000);
    assert_string_equal(events(0), "");
    assert_int_equal(s.connects, 2);
}

UNIT_TEST(a_node_without_a_keeper_is_left)
{
    struct sl_ticket t;
    stage_end(&s);
    stage_begin(&s, 3, 9);
    s.error = "NOKEEPER";
    acquire(0, "k", &leased, &t);
    stage_pass(&s, 3000);
    assert_true(s.connects >= 3 && s.connects <= 7); /* At most twice a second. */
    s.error = NULL;
    stage_pass(&s, 3000);
    assert_int_equal(t.status, SLUICE_OK);
}

UNIT_TEST(after_a_long_wait_the_lease_is_extended_before_the_program_learns_of_it)
{
    struct sl_ticket a, b;
    struct sluice_request r = once;
    r.lease_ms = 100;
    r.wait_ms = SLUICE_FOREVER;
    r.keep_alive = 1;
    acquire(1, "k", &r, &a);
    stage_run(&s);
    r.keep_alive = 0;
    acquire(0, "k", &r, &b);
    stage_pass(&s, 60000); /* 600 leases: 1/500 of it is more than one. */
    assert_false(b.done);
    unsigned before = s.commands;
    assert_int_equal(release(1, "k", a.grant.fence), SLUICE_OK);
    assert_true(b.done);
    assert_int_equal(b.status, SLUICE_OK);
    assert_int_equal(s.commands, before + 2); /* RELEASE and EXTEND. */
}

UNIT_TEST(a_grant_that_arrives_too_late_is_not_used)
{
    struct sl_ticket t;
    acquire(0, "k", &once, &t);
    stage_settle(&s);
    stage_serve(&s, 0, SL_ENGINE_LEASES);
    s.now_ms += 3500; /* The reply was under way for longer than the lease. */
    stage_deliver(&s, 0, SL_ENGINE_LEASES);
    assert_false(t.done);
    stage_pass(&s, 200);
    assert_true(t.done);
    assert_int_equal(t.status, SLUICE_OK);
    assert_int_equal(stage_holder(&s, "k")->fence, t.grant.fence);
    assert_true(left(0, "k", t.grant.fence) > 2000);
}

UNIT_TEST(a_late_grant_that_cannot_be_extended_is_released)
{
    struct sl_ticket t;
    acquire(0, "k", &once, &t);
    stage_settle(&s);
    stage_serve(&s, 0, SL_ENGINE_LEASES);
    uint64_t fence = stage_holder(&s, "k")->fence;
    stage_holder(&s, "k")->asked = true;
    s.now_ms += 2000;
    stage_deliver(&s, 0, SL_ENGINE_LEASES);
    stage_pass(&s, 200); /* Less than the rest of that lease. */
    assert_true(t.done);
    assert_true(t.grant.fence > fence);
    assert_string_equal(events(0), "");
}

/* --- Events ---------------------------------------------------------------------------------- */

UNIT_TEST(a_holder_that_is_asked_learns_it_from_a_push_message)
{
    struct sl_ticket t;
    acquire(0, "k", &leased, &t);
    stage_run(&s);
    stage_holder(&s, "k")->asked = true;
    stage_push(&s, stage_holder(&s, "k"), "asked");
    stage_run(&s);
    assert_string_equal(events(0), "asked");
    stage_pass(&s, 1100);
    assert_string_equal(events(0), "");
    assert_true(left(0, "k", t.grant.fence) > 0); /* It still holds the lock. */
    stage_holder(&s, "k")->asked = false;
    stage_pass(&s, 1100);
    assert_string_equal(events(0), "withdrawn");
}

UNIT_TEST(a_holder_that_is_asked_learns_it_from_its_extension)
{
    struct sl_ticket t;
    acquire(0, "k", &leased, &t);
    stage_run(&s);
    stage_break(&s, 0, SL_ENGINE_LEASES); /* The push message was lost. */
    stage_holder(&s, "k")->asked = true;
    stage_pass(&s, 1200);
    assert_string_equal(events(0), "asked");
    stage_pass(&s, 2000);
    assert_string_equal(events(0), "expired");
}

UNIT_TEST(a_holder_whose_grant_is_broken_learns_it)
{
    struct sl_ticket a, b;
    acquire(0, "k", &leased, &a);
    acquire(0, "l", &leased, &b);
    stage_run(&s);
    stage_push(&s, stage_holder(&s, "k"), "broken");
    stage_run(&s);
    assert_string_equal(events(0), "broken");
    assert_int_equal(left(0, "k", a.grant.fence), SLUICE_ELOST);
    stage_holder(&s, "l")->broken = true; /* Without a push message. */
    stage_pass(&s, 1200);
    assert_string_equal(events(0), "broken");
}

UNIT_TEST(a_program_learns_of_a_grant_before_its_events)
{
    struct sl_engine *e = &s.clients[0].engine;
    struct sl_ticket t;
    acquire(0, "k", &leased, &t);
    stage_settle(&s);
    stage_serve(&s, 0, SL_ENGINE_LEASES);
    stage_push(&s, stage_holder(&s, "k"), "broken");
    stage_deliver(&s, 0, SL_ENGINE_LEASES);
    struct sl_client_watch *w = sl_engine_next_event(e);
    assert_non_null(w);
    assert_ptr_equal(w->ticket, &t);
    sl_ticket_reported(&t);
    assert_null(w->ticket);
    sl_client_watch_next_event(w, s.now_ms);
    sl_engine_reported(e, w);
}

UNIT_TEST(a_holder_can_be_reminded_that_it_was_asked)
{
    struct sl_ticket t;
    acquire(0, "k", &leased, &t);
    stage_run(&s);
    sl_engine_remind(&s.clients[0].engine, "k", t.grant.fence);
    assert_string_equal(events(0), "");
    stage_push(&s, stage_holder(&s, "k"), "asked");
    stage_run(&s);
    assert_string_equal(events(0), "asked");
    sl_engine_remind(&s.clients[0].engine, "k", t.grant.fence);
    assert_string_equal(events(0), "asked");
    stage_push(&s, stage_holder(&s, "k"), "withdrawn");
    stage_run(&s);
    sl_engine_remind(&s.clients[0].engine, "k", t.grant.fence);
    assert_string_equal(events(0), "");
}

UNIT_TEST(after_release_there_is_no_event)
{
    struct sl_ticket t;
    acquire(0, "k", &leased, &t);
    stage_run(&s);
    stage_push(&s, stage_holder(&s, "k"), "asked");
    stage_run(&s);
    assert_int_equal(release(0, "k", t.grant.fence), SLUICE_OK);
    assert_string_equal(events(0), "");
}

UNIT_TEST(a_release_after_the_loss_silences_the_event)
{
    struct sl_ticket t;
    acquire(0, "k", &once, &t);
    stage_pass(&s, 2750);
    assert_int_equal(release(0, "k", t.grant.fence), SLUICE_OK);
    assert_string_equal(events(0), "");
}

/* --- Grants without a lease ---------------------------------------------------------------------- */

UNIT_TEST(a_grant_without_a_lease_is_lost_with_its_connection)
{
    struct sl_ticket t;
    acquire(0, "k", &session, &t);
    stage_run(&s);
    assert_int_equal(left(0, "k", t.grant.fence), SLUICE_FOREVER);
    stage_break(&s, 0, SL_ENGINE_SESSIONS);
    assert_string_equal(events(0), "unreachable");
    assert_int_equal(left(0, "k", t.grant.fence), SLUICE_ELOST);
}

UNIT_TEST(a_connection_with_grants_is_given_up_when_the_server_is_silent)
{
    struct sl_ticket t;
    acquire(0, "k", &session, &t);
    stage_pass(&s, 60000);
    assert_string_equal(events(0), ""); /* PING is answered. */
    s.clients[0].conns[SL_ENGINE_SESSIONS].cut = true;
    stage_pass(&s, SL_ENGINE_PING_MS + SL_ENGINE_REPLY_MS + SL_ENGINE_PING_MS);
    assert_string_equal(events(0), "unreachable");
}

UNIT_TEST(leases_and_grants_without_one_have_different_connections)
{
    struct sl_ticket a, b;
    acquire(0, "k", &session, &a);
    acquire(0, "l", &leased, &b);
    stage_run(&s);
    stage_break(&s, 0, SL_ENGINE_LEASES);
    stage_pass(&s, 5000);
    assert_string_equal(events(0), "");
    assert_int_equal(left(0, "k", a.grant.fence), SLUICE_FOREVER);
    assert_non_null(stage_holder(&s, "k"));
    assert_true(left(0, "l", b.grant.fence) > 0);
}

/* --- The end --------------------------------------------------------------------------------------- */

UNIT_TEST(a_client_that_closes_leaves_only_leases_without_keep_alive)
{
    struct sl_ticket a, b, c, d;
    acquire(0, "a", &leased, &a);
    acquire(0, "b", &once, &b);
    acquire(0, "c", &session, &c);
    stage_run(&s);
    acquire(0, "a", &leased, &d);
    stage_run(&s);
    sl_engine_close(&s.clients[0].engine, s.now_ms);
    assert_true(d.done);
    assert_int_equal(d.status, SLUICE_ECLOSED);
    assert_false(sl_engine_is_closed(&s.clients[0].engine));
    stage_run(&s);
    assert_true(sl_engine_is_closed(&s.clients[0].engine));
    assert_null(stage_holder(&s, "a"));
    assert_non_null(stage_holder(&s, "b"));
    assert_null(stage_holder(&s, "c"));
}

/* --- Random clients, and connections that fail ------------------------------------------------------- */

#define KEYS 3
#define SLOTS 6 /* Requests of a client at the same time. */

/* What a program does with one request. */
struct slot {
    enum { IDLE, ASKING, HOLDING, RELEASING } state;
    struct sl_ticket ticket;
    struct sluice_cancel token;
    int key;
    bool leased;
    uint64_t fence;
};

static struct slot slots[STAGE_CLIENTS][SLOTS];
static const char *const keys[KEYS] = {"a", "b", "c"};

static void begin_slot(struct sl_random *rnd, unsigned client, struct slot *p)
{
    struct sluice_request r = {.wait_ms = sl_random_below(rnd, 4) * 1000,
                               .cancel = &p->token,
                               .on_event = nothing};
    p->key = (int)sl_random_below(rnd, KEYS);
    p->leased = sl_random_maybe(rnd, 7000);
    if (p->leased) {
        r.lease_ms = 200 << sl_random_below(rnd, 6);
        r.keep_alive = sl_random_maybe(rnd, 6000);
    }
    p->token = (struct sluice_cancel){0};
    acquire(client, keys[p->key], &r, &p->ticket);
    p->state = ASKING;
}

static void step_slot(struct sl_random *rnd, unsigned client, struct slot *p)
{
    struct sl_engine *e = &s.clients[client].engine;
    if (p->state == IDLE) begin_slot(rnd, client, p);
    else if (p->state == ASKING && sl_random_maybe(rnd, 500))
        sl_engine_cancel(e, s.now_ms, &p->token);
    else if (p->state == HOLDING) {
        p->ticket = new_ticket();
        sl_list_init(&p->ticket.node);
        assert_int_equal(
            sl_engine_release(e, s.now_ms, keys[p->key], p->fence, 1, &p->ticket),
            SLUICE_OK);
        p->state = RELEASING;
    }
}

static bool is_expected(int status)
{
    return status == SLUICE_EFULL || status == SLUICE_ECANCELLED ||
           status == SLUICE_EUNREACHABLE || status == SLUICE_ENOKEEPER;
}

static void collect(unsigned client)
{
    struct sl_engine *e = &s.clients[client].engine;
    while (sl_engine_next_ticket(e) != NULL) {}
    (void)events(client);
    for (int i = 0; i < SLOTS; i++) {
        struct slot *p = &slots[client][i];
        if ((p->state != ASKING && p->state != RELEASING) || !p->ticket.done) continue;
        bool granted = p->state == ASKING && p->ticket.status == SLUICE_OK;
        if (p->state == ASKING && !granted && !is_expected(p->ticket.status))
            fail_msg("the request failed with %s: %s",
                     sluice_status_word(p->ticket.status), e->last_error);
        p->fence = p->ticket.grant.fence;
        p->state = granted ? HOLDING : IDLE;
    }
}

/* A grant on which a program relies is held at the server: so there are never two. A grant without
 * a lease may have ended when the server closed its connection, before the client noticed. */
static void check_beliefs(void)
{
    for (unsigned c = 0; c < STAGE_CLIENTS; c++)
        for (int i = 0; i < SLOTS; i++) {
            struct slot *p = &slots[c][i];
            if (p->state != HOLDING || left(c, keys[p->key], p->fence) == SLUICE_ELOST)
                continue;
            const struct stage_request *r = stage_holder(&s, keys[p->key]);
            assert_non_null(r);
            assert_int_equal(r->fence, p->fence);
        }
}

static void disturb(struct sl_random *rnd)
{
    unsigned client = sl_random_below(rnd, STAGE_CLIENTS),
             link = sl_random_below(rnd, 2);
    uint32_t what = sl_random_below(rnd, 100);
    if (what < 25) stage_break(&s, client, link);
    else if (what < 50) stage_delay(&s, client);
    else if (what < 70) s.clients[client].conns[link].cut = true;
    else if (what < 80) s.down = !s.down;
    else if (what < 90) s.error = s.error == NULL ? "NOKEEPER" : NULL;
    else s.now_ms += sl_random_between(rnd, 0, 3000);
}

static void random_step(struct sl_random *rnd)
{
    unsigned client = sl_random_below(rnd, STAGE_CLIENTS),
             link = sl_random_below(rnd, 2);
    uint32_t what = sl_random_below(rnd, 1000);
    if (what < 200) step_slot(rnd, client, &slots[client][sl_random_below(rnd, SLOTS)]);
    else if (what < 450) stage_serve(&s, client, link);
    else if (what < 750) stage_deliver(&s, client, link);
    else if (what < 988) s.now_ms += sl_random_between(rnd, 1, 20);
    else if (what < 990) stage_arrive(&s);
    else disturb(rnd);
    stage_settle(&s);
    for (unsigned i = 0; i < STAGE_CLIENTS; i++) collect(i);
    check_beliefs();
}

/* When nothing fails any more, every call ends, and nothing is left behind. */
static void heal(void)
{
    s.down = false;
    s.error = NULL;
    for (unsigned i = 0; i < STAGE_CLIENTS; i++)
        for (unsigned link = 0; link < SL_ENGINE_LINKS; link++)
            if (s.clients[i].conns[link].cut) stage_break(&s, i, link);
    for (int round = 0; round < 400; round++) {
        stage_pass(&s, 50);
        for (unsigned i = 0; i < STAGE_CLIENTS; i++) {
            collect(i);
            for (int n = 0; n < SLOTS; n++)
                if (slots[i][n].state == HOLDING) step_slot(NULL, i, &slots[i][n]);
        }
    }
    for (unsigned i = 0; i < STAGE_CLIENTS; i++) {
        assert_true(sl_engine_is_closed(&s.clients[i].engine));
        for (int n = 0; n < SLOTS; n++) assert_int_equal(slots[i][n].state, IDLE);
    }
    for (int i = 0; i < KEYS; i++) assert_null(stage_holder(&s, keys[i]));
    /* A copy of a request that has ended is not granted. */
    stage_arrive(&s);
    for (int i = 0; i < KEYS; i++) assert_null(stage_holder(&s, keys[i]));
}

UNIT_TEST(random_clients_never_rely_on_a_grant_that_the_server_does_not_have)
{
    const char *text = getenv("SLUICE_SEED");
    uint64_t first = text != NULL ? strtoull(text, NULL, 10) : 1,
             seeds = text != NULL ? 1 : 60;
    for (uint64_t seed = first; seed < first + seeds; seed++) {
        struct sl_random rnd;
        print_message("# SLUICE_SEED=%llu\n", (unsigned long long)seed);
        stage_end(&s);
        stage_begin(&s, 1 + (uint32_t)(seed % 3), seed);
        memset(slots, 0, sizeof slots);
        sl_random_seed(&rnd, seed);
        for (int i = 0; i < 8000 && s.count < STAGE_IDS - 200; i++) random_step(&rnd);
        heal();
    }
}

int main(void)
{
    return run_unit_tests_with("engine", setup, teardown);
}
