/* test_election.c - elections, by transcripts: results of the storage, states of other
 * nodes, and orders. The rules are those of src/failover/README.md. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "election_stage.h"

/* Node 1 of 3, or of this many, that watches the keeper 2 of term 5, to which it is connected,
 * and has said so. */
static struct election_stage *watcher_of(uint32_t nodes)
{
    struct election_stage *s = election_stage_new(1, nodes);
    for (uint32_t i = 2; i <= nodes; i++) SEES(i, UP);
    TERM_READ(2, 5, 9);
    SAID("read\nkeeper 2 of 5\ndoubt up of 5\n");
    return s;
}

static struct election_stage *watcher(void)
{
    return watcher_of(3);
}

/* Node 1 of 3, keeper of term 6: it asked for it at 10000, and was answered 10 ms later. */
static struct election_stage *keeper(void)
{
    struct election_stage *s = election_stage_new(1, 3);
    SEES(2, UP), SEES(3, UP);
    TERM_READ(1, 5, 9);
    election_passes(s, 10);
    CLAIMED(1, 5, 9);
    UNHEARD;
    return s;
}

/* Time passes, and the keeper sends heartbeats. */
static void renewing_passes(struct election_stage *s, uint64_t *beat, sl_ms ms)
{
    for (sl_ms i = 0; i < ms; i += 500) {
        election_passes(s, 500);
        TOLD(2, 5, ++*beat);
    }
}

/* The storage answers every read: the term is unchanged. */
static void silence_passes(struct election_stage *s, sl_ms ms)
{
    for (sl_ms i = 0; i < ms; i++) {
        election_passes(s, 1);
        if (!election_said(s, "read\n")) continue;
        UNHEARD;
        TERM_READ(2, 5, 9);
    }
}

/* --- There is none ---------------------------------------------------------------- */

UNIT_TEST(the_first_of_all_claims_term_one)
{
    ELECTION s = election_stage_new(1, 3);
    SAID("read\n");
    election_passes(s, 10);
    TERM_READ(0, 0, 0);
    SAID("claim after 0\n");
    assert_int_equal(election_view(s).state, SL_ELECTION_CLAIMING);
    election_passes(s, 7);
    election_claimed(s, SLUICE_OK, NOREIGN);
    SAID("lead 1 after 0 of 0, fences to 0, quiet 0\nkeeper 1 of 1\ndoubt up of 1\n");
    assert_int_equal(election_view(s).state, SL_ELECTION_LEADING);
    assert_int_equal(election_view(s).authority_end_ms, 10010 + 1995);
    assert_int_equal(election_view(s).claims, 1);
}

UNIT_TEST(of_two_that_are_the_first_one_watches)
{
    ELECTION s = election_stage_new(1, 3);
    SEES(2, UP);
    TERM_READ(0, 0, 0);
    SAID("read\nclaim after 0\n");
    election_claimed(s, SLUICE_ESTALE, election_reign(2, 1, 4));
    SAID("keeper 2 of 1\ndoubt up of 1\n");
    assert_int_equal(election_view(s).refused, 1);
    election_passes(s, 900);
    SAID("");
    assert_int_equal(election_view(s).state, SL_ELECTION_WATCHING);
}

UNIT_TEST(a_node_that_was_restarted_as_keeper_claims_the_next)
{
    ELECTION s = election_stage_new(1, 3);
    TERM_READ(1, 5, 9);
    SAID("read\nkeeper none of 5\nclaim after 5\n");
    CLAIMED(1, 5, 9);
    /* 2000 and 5000, lengthened. */
    SAID("lead 6 after 5 of 1, fences to 1000, quiet 7016\nkeeper 1 of 6\ndoubt up of "
         "6\n");
}

UNIT_TEST(a_node_outside_the_membership_claims_nothing)
{
    ELECTION s = election_stage_new(4, 3);
    TERM_READ(0, 0, 0);
    SAID("read\n");
    election_passes(s, 10000);
    SAID("");
    election_members(s, (uint32_t[]){1, 2, 3, 4}, 4);
    SAID("claim after 0\n");
}

/* --- Doubts ------------------------------------------------------------------------ */

UNIT_TEST(a_node_that_cannot_reach_the_keeper_does_not_depose_it)
{
    ELECTION s = watcher();
    uint64_t beat = 9;
    SEES(2, CLOSED);
    SAID("doubt closed of 5\n");
    for (int i = 0; i < 600; i++) {
        election_needs(s);
        renewing_passes(s, &beat, 500);
        if (election_said(s, "read\n")) TERM_READ(2, 5, beat);
        HEARS(3, 5, UP);
        assert_false(election_said(s, "claim"));
        UNHEARD;
    }
    assert_int_equal(election_view(s).claims, 0);
}

/* Nor does its silence, in a cluster of five, with one that agrees. */
UNIT_TEST(a_minority_does_not_depose_the_keeper)
{
    ELECTION s = watcher_of(5);
    uint64_t beat = 9;
    SEES(2, SILENT);
    for (int i = 0; i < 100; i++) {
        renewing_passes(s, &beat, 500);
        HEARS(3, 5, CLOSED), HEARS(4, 5, UP);
        assert_false(election_said(s, "claim"));
        UNHEARD;
    }
}

UNIT_TEST(a_keeper_that_a_majority_cannot_reach_is_deposed_at_once)
{
    ELECTION s = watcher_of(5);
    SEES(2, CLOSED);
    HEARS(3, 5, CLOSED);
    SAID("doubt closed of 5\n");
    HEARS(4, 5, CLOSED);
    SAID("claim after 5\n"); /* Its heartbeats do not help it. */
    CLAIMED(2, 5, 99);
    SAID("lead 6 after 5 of 2, fences to 1000, quiet 7016\nkeeper 1 of 6\ndoubt up of "
         "6\n");
}

/* The keeper counts for the size of the cluster, but nobody asks it. */
UNIT_TEST(what_the_keeper_says_of_itself_does_not_count)
{
    ELECTION s = watcher();
    SEES(2, CLOSED), HEARS(2, 5, CLOSED), HEARS(1, 5, CLOSED), HEARS(9, 5, CLOSED);
    HEARS(77, 5, CLOSED), SEES(77, CLOSED), HEARS(19, 5, CLOSED);
    SAID("doubt closed of 5\n");
}

UNIT_TEST(a_node_that_sees_the_keeper_does_not_claim)
{
    ELECTION s = watcher();
    HEARS(3, 5, CLOSED), HEARS(2, 5, CLOSED);
    SAID("");
}

UNIT_TEST(silence_for_a_majority_is_a_reason_after_a_while)
{
    ELECTION s = watcher();
    uint64_t beat = 9;
    election_passes(s, 100);
    SEES(2, SILENT);
    SAID("doubt up of 5\n"); /* Too short to be worth a word. */
    renewing_passes(s, &beat, 2500);
    HEARS(3, 5, SILENT);
    election_passes(s, 499);
    SAID("");
    election_passes(s, 1);
    SAID("doubt silent of 5\nclaim after 5\n");
}

UNIT_TEST(a_long_silence_is_reported_and_so_is_its_end)
{
    ELECTION s = watcher();
    uint64_t beat = 9;
    SEES(2, SILENT);
    renewing_passes(s, &beat, 4000);
    SAID("doubt up of 5\ndoubt silent of 5\ndoubt silent of 5\ndoubt silent of 5\n");
    SEES(2, CLOSED);
    SAID("doubt closed of 5\n");
    SEES(2, UP);
    SAID("doubt up of 5\n");
    renewing_passes(s, &beat, 4000);
    SAID("");
}

/* It has heard of nobody; with one that cannot reach the keeper it would be a majority. */
UNIT_TEST(a_node_that_has_just_started_is_no_doubt)
{
    ELECTION s = election_stage_new(1, 3);
    TERM_READ(2, 5, 9);
    HEARS(3, 5, SILENT);
    SAID("read\nkeeper 2 of 5\ndoubt up of 5\n");
    SEES(2, UP);
    SAID("doubt up of 5\n");
}

/* Since when it is silent is since it was last up. */
UNIT_TEST(silent_and_then_closed_is_one_silence)
{
    ELECTION s = watcher();
    uint64_t beat = 9;
    SEES(2, SILENT);
    renewing_passes(s, &beat, 2500);
    SEES(2, CLOSED);
    renewing_passes(s, &beat, 1000);
    UNHEARD;
    HEARS(3, 5, SILENT);
    SAID("claim after 5\n");
}

UNIT_TEST(doubts_are_good_for_a_while)
{
    ELECTION s = watcher();
    uint64_t beat = 9;
    HEARS(3, 5, CLOSED);
    renewing_passes(s, &beat, 2000);
    election_passes(s, 1);
    SEES(2, CLOSED);
    SAID("doubt closed of 5\n");
    HEARS(3, 5, CLOSED);
    SAID("claim after 5\n");
}

UNIT_TEST(a_node_that_sees_the_keeper_again_withdraws_its_doubt)
{
    ELECTION s = watcher();
    HEARS(3, 5, CLOSED), HEARS(3, 5, UP), SEES(2, CLOSED);
    SAID("doubt closed of 5\n");
}

UNIT_TEST(doubts_of_an_old_term_do_not_count)
{
    ELECTION s = watcher();
    HEARS(3, 5, CLOSED);
    TOLD(2, 6, 10);
    SAID("keeper 2 of 6\ndoubt up of 6\n");
    SEES(2, CLOSED);
    HEARS(3, 5, CLOSED); /* That was on its way. */
    SAID("doubt closed of 6\n");
    HEARS(3, 6, CLOSED);
    HEARS(3, 5, UP);
    SAID("claim after 6\n");
}

/* A node that reports about an unknown term knows more. */
UNIT_TEST(a_doubt_of_a_newer_term_triggers_a_read)
{
    ELECTION s = watcher();
    HEARS(3, 6, UP), HEARS(3, 6, UP);
    SAID("read\n");
    TERM_READ(3, 6, 12);
    SAID("keeper 3 of 6\ndoubt up of 6\n");
}

UNIT_TEST(a_new_keeper_is_doubted_at_once_by_nodes_that_cannot_see_it)
{
    ELECTION s = watcher();
    SEES(3, CLOSED);
    TOLD(3, 6, 10);
    SAID("keeper 3 of 6\ndoubt closed of 6\n");
}

UNIT_TEST(members_that_go_do_not_count)
{
    ELECTION s = watcher_of(5);
    SEES(2, CLOSED), HEARS(3, 5, CLOSED);
    SAID("doubt closed of 5\n");
    election_members(s, (uint32_t[]){1, 2, 4, 5, 6}, 5); /* 3 has gone, */
    HEARS(4, 5, CLOSED);
    SAID("");
    election_members(s, (uint32_t[]){1, 2, 4}, 3); /* and now two are enough. */
    SAID("claim after 5\n");
}

UNIT_TEST(a_keeper_that_no_cluster_can_have_is_closed)
{
    ELECTION s = watcher();
    TOLD(4000, 6, 10);
    SAID("keeper 4000 of 6\ndoubt closed of 6\n");
    HEARS(3, 6, CLOSED);
    SAID("claim after 6\n");
}

/* --- Heartbeats --------------------------------------------------------------------- */

UNIT_TEST(a_keeper_without_heartbeats_is_deposed_after_three_seconds)
{
    ELECTION s = watcher();
    election_passes(s, 1000); /* Does the storage answer at all? */
    SAID("read\n");
    TERM_READ(2, 5, 9);
    election_passes(s, 1000);
    SAID("read\n");
    TERM_READ(2, 5, 9);
    election_passes(s, 999);
    SAID("");
    election_passes(s, 1);
    SAID("read\n");
    TERM_READ(2, 5, 9);
    SAID("claim after 5 beat 9\n");
    CLAIMED(2, 5, 9);
    SAID("lead 6 after 5 of 2, fences to 1000, quiet 7016\nkeeper 1 of 6\ndoubt up of "
         "6\n");
}

UNIT_TEST(a_read_that_finds_a_new_heartbeat_is_no_reason)
{
    ELECTION s = watcher();
    silence_passes(s, 2999);
    UNHEARD;
    election_passes(s, 1);
    SAID("read\n");
    TERM_READ(2, 5, 10);
    SAID("");
    election_passes(s, 999);
    SAID("");
}

/* What it compares has changed since it looked. */
UNIT_TEST(a_renewal_at_the_last_moment_prevents_a_takeover)
{
    ELECTION s = watcher();
    silence_passes(s, 3000);
    SAID("claim after 5 beat 9\n");
    election_claimed(s, SLUICE_ESTALE, election_reign(2, 5, 10));
    SAID("");
    assert_int_equal(election_view(s).refused, 1);
    election_passes(s, 999);
    SAID("");
}

UNIT_TEST(an_older_heartbeat_that_arrives_late_changes_nothing)
{
    ELECTION s = watcher();
    TOLD(2, 5, 12), TOLD(2, 5, 11);
    assert_int_equal(election_view(s).current.heartbeat, 12);
}

UNIT_TEST(a_heartbeat_is_found_by_a_read_where_no_watch_reports_it)
{
    ELECTION s = watcher();
    uint64_t beat = 9;
    for (int i = 0; i < 10000; i++) {
        election_passes(s, 1);
        if (i % 500 == 0) beat++;
        if (!election_said(s, "read\n")) continue;
        SAID("read\n");
        TERM_READ(2, 5, beat);
        SAID("");
    }
}

/* --- The storage does not answer ----------------------------------------------------- */

UNIT_TEST(a_node_without_the_engine_does_not_claim)
{
    ELECTION s = watcher();
    election_passes(s, 1000);
    for (int i = 0; i < 100; i++) {
        SAID("read\n");
        election_term_read(s, SLUICE_EIO, NOREIGN);
        election_passes(s, 249);
        SAID("");
        election_passes(s, 1);
    }
    SAID("read\n");
    TERM_READ(2, 5, 9); /* Now it answers; and the keeper had no more luck before. */
    SAID("");
    silence_passes(s, 2999);
    SAID("");
    silence_passes(s, 1);
    SAID("claim after 5 beat 9\n");
}

/* A look that waits for it all the time is answered when it is back: that is not at once
 * a reason, either. */
UNIT_TEST(an_engine_that_was_away_is_given_time)
{
    ELECTION s = watcher();
    election_passes(s, 60000);
    SAID("read\n");
    TERM_READ(2, 5, 9);
    SAID("");
    silence_passes(s, 2999);
    SAID("");
    silence_passes(s, 1);
    SAID("claim after 5 beat 9\n");
}

/* A read is executed before an outage, and its answer arrives during the outage. When the storage is back, the
 * keeper is given time. */
UNIT_TEST(a_late_answer_does_not_hide_an_outage)
{
    ELECTION s = election_stage_new(1, 3);
    SEES(2, UP), SEES(3, UP);
    TERM_READ(2, 5, 7);
    UNHEARD;
    election_needs(s);
    election_passes(s, 500);
    SAID("read\n");
    TOLD(2, 5, 8);
    election_passes(s, 500);
    TOLD(2, 5, 9);
    election_passes(s, 1900);
    SAID("");
    TERM_READ(2, 5, 8);
    SAID("read\n"); /* Does it still answer? */
    election_passes(s, 1000);
    SAID("");
    TERM_READ(2, 5, 9);
    SAID("");
    silence_passes(s, 2999);
    SAID("");
    silence_passes(s, 1);
    SAID("claim after 5 beat 9\n");
}

/* It is asleep for a minute; when it wakes the clock is the first it looks at. */
UNIT_TEST(a_node_that_slept_reads_and_waits)
{
    ELECTION s = watcher();
    s->now += 60000;
    election_passes(s, 0);
    SAID("read\n");
    TERM_READ(2, 5, 9);
    SAID("");
    silence_passes(s, 2999);
    SAID("");
}

/* What it did not hear then is no silence of the keeper's. */
UNIT_TEST(a_node_that_was_asleep_does_not_doubt)
{
    ELECTION s = watcher();
    SEES(2, SILENT);
    SAID("doubt up of 5\n");
    s->now += 60000;
    HEARS(3, 5, SILENT);
    election_passes(s, 0);
    SAID("read\ndoubt up of 5\n");
    SEES(2, UP);
    SAID("doubt up of 5\n");
}

/* The keeper may have been started again meanwhile. */
UNIT_TEST(a_connection_that_was_closed_before_a_sleep_is_silent_after_it)
{
    ELECTION s = watcher();
    SEES(2, CLOSED);
    SAID("doubt closed of 5\n");
    s->now += 60000;
    election_passes(s, 0);
    SAID("doubt up of 5\nread\n");
    TERM_READ(2, 6, 9);
    SAID("keeper 2 of 6\ndoubt up of 6\n");
    SEES(2, CLOSED);
    SAID("");
    election_passes(s, 500);
    SEES(2, CLOSED);
    SAID("doubt closed of 6\n");
}

/* Two nodes are suspended for a moment. The keeper hears nothing from them, and closes their connections. */
UNIT_TEST(a_connection_that_closes_just_after_a_short_sleep_is_silent)
{
    ELECTION s = watcher();
    election_passes(s, 0);
    s->now += 450;
    SEES(2, CLOSED);
    HEARS(3, 5, CLOSED);
    SAID("doubt up of 5\n");
    SEES(2, UP);
    SAID("doubt up of 5\n");
    election_passes(s, 499);
    assert_int_equal(election_view(s).claims, 0);
}

/* It waits for the answer to a read, so no other time is due. */
UNIT_TEST(a_node_that_was_asleep_during_a_read_does_not_doubt)
{
    ELECTION s = watcher();
    SEES(2, SILENT);
    election_passes(s, 1000);
    SAID("doubt up of 5\nread\n");
    s->now += 2500;
    HEARS(3, 5, SILENT);
    SAID("");
    TERM_READ(2, 5, 9);
    HEARS(3, 5, SILENT);
    SAID("");
}

/* The report may have been sent long ago. If it is true, it is repeated. */
UNIT_TEST(a_report_that_arrived_during_a_sleep_does_not_count)
{
    ELECTION s = watcher();
    s->now += 60000;
    HEARS(3, 5, CLOSED);
    election_passes(s, 0);
    SAID("read\n");
    TERM_READ(2, 5, 9);
    election_passes(s, 500);
    s->said[0] = '\0';
    SEES(2, CLOSED);
    SAID("doubt closed of 5\n");
    HEARS(3, 5, CLOSED);
    SAID("claim after 5\n");
}

UNIT_TEST(at_the_start_it_asks_until_the_engine_answers)
{
    ELECTION s = election_stage_new(1, 3);
    SAID("read\n");
    for (int i = 0; i < 20; i++) {
        election_needs(s);
        election_term_read(s, i % 2 ? SLUICE_EIO : SLUICE_ENOMEM, NOREIGN);
        election_needs(s);
        SEES(2, CLOSED), HEARS(3, 1, CLOSED), SEES(2, UP);
        election_passes(s, 249);
        SAID("");
        election_passes(s, 1);
        SAID("read\n");
    }
    TERM_READ(2, 5, 9);
    SAID("keeper 2 of 5\ndoubt up of 5\n");
}

UNIT_TEST(a_claim_that_failed_is_made_again)
{
    ELECTION s = election_stage_new(1, 3);
    TERM_READ(0, 0, 0);
    SAID("read\nclaim after 0\n");
    election_passes(s, 5000);
    SAID("");
    election_claimed(s, SLUICE_EIO, NOREIGN);
    election_passes(s, 249);
    SAID("");
    election_passes(s, 1);
    SAID("read\nclaim after 0\n");
}

/* It was done, though nobody said so: then there is one more, and one wait more. */
UNIT_TEST(a_claim_whose_answer_was_lost_is_followed_by_the_next)
{
    ELECTION s = watcher();
    SEES(2, CLOSED), HEARS(3, 5, CLOSED), UNHEARD;
    election_claimed(s, SLUICE_EIO, NOREIGN);
    TOLD(1, 6, 9);
    SAID("keeper none of 6\n");
    election_passes(s, 250);
    SAID("read\nclaim after 6\n");
    TERM_READ(1, 6, 9);
    SAID("");
    CLAIMED(1, 6, 9);
    SAID("lead 7 after 6 of 1, fences to 1000, quiet 7016\nkeeper 1 of 7\ndoubt up of "
         "7\n");
}

/* Others need its word, or they would be no majority. */
UNIT_TEST(a_claiming_node_keeps_reporting_what_it_sees)
{
    ELECTION s = watcher();
    SEES(2, CLOSED), HEARS(3, 5, CLOSED);
    SAID("doubt closed of 5\nclaim after 5\n");
    election_passes(s, 1000);
    SAID("doubt closed of 5\ndoubt closed of 5\n");
}

/* --- It leads ------------------------------------------------------------------------- */

UNIT_TEST(the_authority_of_a_keeper_counts_from_its_request)
{
    ELECTION s = keeper();
    assert_int_equal(election_view(s).authority_end_ms, 10000 + 1995);
    election_passes(s, 490);
    SAID("renew 6\n");
    election_passes(s, 400);
    RENEWED();
    assert_int_equal(election_view(s).authority_end_ms, 10500 + 1995);
    election_passes(s, 99);
    SAID("");
    election_passes(s, 1);
    SAID("renew 6\n");
}

UNIT_TEST(authority_ends_and_returns_with_an_answer)
{
    ELECTION s = keeper();
    election_passes(s, 490);
    for (int i = 0; i < 40; i++) {
        SAID("renew 6\n");
        election_renewed(s, SLUICE_EIO, NOREIGN);
        election_passes(s, 250);
        assert_int_equal(election_view(s).authority_end_ms, 10000 + 1995);
    }
    assert_int_equal(s->now, 20500);
    SAID("renew 6\n"); /* It does not stop: it may be the keeper still. */
    election_passes(s, 10);
    RENEWED();
    assert_int_equal(election_view(s).state, SL_ELECTION_LEADING);
    assert_int_equal(election_view(s).authority_end_ms, 20500 + 1995);
    election_passes(s, 490);
    SAID("renew 6\n");
}

UNIT_TEST(what_is_to_be_kept_is_kept_at_once)
{
    ELECTION s = keeper();
    election_hurries(s);
    election_passes(s, 0);
    SAID("renew 6\n");
    election_hurries(s); /* It may be too late for that one. */
    election_passes(s, 100);
    SAID("");
    RENEWED();
    election_passes(s, 0);
    SAID("renew 6\n");
    RENEWED();
    election_passes(s, 499);
    SAID("");
}

/* That would be a loop without end against a storage that fails. */
UNIT_TEST(haste_waits_where_the_engine_fails)
{
    ELECTION s = keeper();
    election_hurries(s), election_passes(s, 0), election_hurries(s);
    SAID("renew 6\n");
    election_renewed(s, SLUICE_EIO, NOREIGN);
    election_passes(s, 249);
    SAID("");
    election_passes(s, 1);
    SAID("renew 6\n");
}

UNIT_TEST(a_rejected_renewal_is_final)
{
    ELECTION s = keeper();
    election_passes(s, 490);
    election_renewed(s, SLUICE_ESTALE, election_reign(3, 7, 20));
    SAID("renew 6\nstop 6\nkeeper 3 of 7\ndoubt up of 7\n");
    assert_int_equal(election_view(s).authority_end_ms, 0);
}

UNIT_TEST(a_rejection_without_a_reason_is_final_and_read_again)
{
    ELECTION s = keeper();
    election_passes(s, 490);
    election_renewed(s, SLUICE_ESTALE, NOREIGN);
    SAID("renew 6\nstop 6\nread\n");
    SEES(2, CLOSED), election_needs(s), election_passes(s, 900);
    SAID(""); /* Its own old term is no reason to claim. */
    TERM_READ(3, 8, 20);
    SAID("keeper 3 of 8\ndoubt up of 8\n");
}

UNIT_TEST(a_rejected_commit_is_final)
{
    ELECTION s = keeper();
    election_refused(s, 6);
    election_refused(s, 5);
    SAID("");
    election_refused(s, 7);
    SAID("stop 6\nread\n");
    TOLD(1, 6, 9); /* The watch is slow. */
    election_passes(s, 100);
    SAID("");
    TERM_READ(1, 6, 9); /* A storage that forgets is asked again, not believed. */
    election_passes(s, 250);
    SAID("read\n");
    TERM_READ(3, 7, 20);
    SAID("keeper 3 of 7\ndoubt up of 7\n");
}

UNIT_TEST(the_watch_reports_its_end)
{
    ELECTION s = keeper();
    TOLD(1, 6, 10), TOLD(2, 5, 99), TOLD(1, 6, 11);
    SAID("");
    TOLD(3, 7, 12);
    SAID("stop 6\nkeeper 3 of 7\ndoubt up of 7\n");
    election_passes(s, 900);
    SAID("");
}

UNIT_TEST(a_read_reports_the_end)
{
    ELECTION s = keeper();
    HEARS(3, 7, UP);
    SAID("read\n");
    TERM_READ(3, 7, 12);
    SAID("stop 6\nkeeper 3 of 7\ndoubt up of 7\n");
}

UNIT_TEST(what_others_see_does_not_stop_a_keeper)
{
    ELECTION s = keeper();
    SEES(2, CLOSED), SEES(3, CLOSED), HEARS(2, 6, CLOSED), HEARS(3, 6, CLOSED);
    election_needs(s);
    SAID("");
    assert_int_equal(election_view(s).state, SL_ELECTION_LEADING);
}

UNIT_TEST(the_longest_lease_is_respected_even_if_it_never_expires)
{
    ELECTION s = election_stage_new(1, 3);
    struct sl_storage_term r = election_reign(1, 5, 9);
    struct sl_election_order x = {.type = SL_ELECTION_ORDER_READ_TERM};
    TERM_READ(1, 5, 9);
    r.longest_ms = SL_NEVER;
    struct sl_storage_result d = {.status = SLUICE_OK, .term = 6, .term_record = r};
    sl_election_claimed(s->election, s->now, s->now, &d);
    while (x.type != SL_ELECTION_ORDER_LEAD)
        assert_true(sl_election_next(s->election, &x));
    assert_true(x.quiet_ms == SL_NEVER);
}

/* --- Answers in another order --------------------------------------------------------- */

UNIT_TEST(its_claim_is_announced_before_it_is_answered)
{
    ELECTION s = watcher();
    SEES(2, CLOSED), HEARS(3, 5, CLOSED);
    SAID("doubt closed of 5\nclaim after 5\n");
    TOLD(1, 6, 9);
    SAID("keeper none of 6\n");
    CLAIMED(2, 5, 9);
    SAID("lead 6 after 5 of 2, fences to 1000, quiet 7016\nkeeper 1 of 6\ndoubt up of "
         "6\n");
    TOLD(1, 6, 9);
    SAID("");
}

UNIT_TEST(a_claim_that_was_overtaken_does_not_lead)
{
    ELECTION s = watcher();
    SEES(2, CLOSED), HEARS(3, 5, CLOSED);
    SAID("doubt closed of 5\nclaim after 5\n");
    TOLD(3, 7, 15); /* Ours was 6, but that is over. */
    SAID("keeper 3 of 7\ndoubt up of 7\n");
    CLAIMED(2, 5, 9);
    SAID("");
    assert_int_equal(election_view(s).state, SL_ELECTION_WATCHING);
    assert_int_equal(election_view(s).current.term, 7);
    election_passes(s, 900);
    SAID("");
}

UNIT_TEST(a_rejected_claim_does_not_restore_an_old_keeper)
{
    ELECTION s = watcher();
    SEES(2, CLOSED), HEARS(3, 5, CLOSED), UNHEARD;
    TOLD(3, 7, 15);
    SAID("keeper 3 of 7\ndoubt up of 7\n");
    election_claimed(s, SLUICE_ESTALE, election_reign(2, 6, 12));
    SAID("");
    assert_int_equal(election_view(s).current.node, 3);
}

UNIT_TEST(a_read_from_before_its_term_changes_nothing)
{
    ELECTION s = watcher();
    HEARS(3, 6, UP);
    SEES(2, CLOSED), HEARS(4, 5, CLOSED);
    UNHEARD;
    TOLD(1, 6, 9); /* Of a former life of this node. */
    SAID("keeper none of 6\nclaim after 6\n");
    CLAIMED(1, 6, 9);
    SAID("lead 7 after 6 of 1, fences to 1000, quiet 7016\nkeeper 1 of 7\ndoubt up of "
         "7\n");
    TERM_READ(2, 5, 9);
    SAID("");
    assert_int_equal(election_view(s).current.term, 7);
}

/* It was deposed, and leads again, before its old renewal is answered. */
UNIT_TEST(a_renewal_of_an_old_term_changes_nothing)
{
    ELECTION s = keeper();
    election_passes(s, 490);
    SAID("renew 6\n");
    sl_ms old_ms = s->renew_ms;
    TOLD(2, 7, 20);
    election_passes(s, 10);
    SEES(2, CLOSED), HEARS(3, 7, CLOSED);
    election_passes(s, 10);
    CLAIMED(2, 7, 20);
    SAID("stop 6\nkeeper 2 of 7\ndoubt up of 7\ndoubt closed of 7\nclaim after 7\n"
         "lead 8 after 7 of 2, fences to 1000, quiet 7016\nkeeper 1 of 8\ndoubt up of "
         "8\n");
    election_hurries(s), election_passes(s, 10);
    SAID(""); /* One at a time. */
    struct sl_storage_result d = {.status = SLUICE_ESTALE,
                                  .term_record = election_reign(1, 8, 20)};
    sl_election_renewed(s->election, s->now, old_ms, 6, &d);
    election_settle(s);
    election_passes(s, 0);
    SAID("renew 8\n");
    RENEWED();
    election_passes(s, 500);
    SAID("renew 8\n");
}

/* It was suspended after it had sent the renewal, and continues when all answers have arrived. */
UNIT_TEST(a_renewal_of_an_old_term_of_the_same_millisecond_changes_nothing)
{
    ELECTION s = keeper();
    election_passes(s, 490);
    SAID("renew 6\n");
    struct sl_storage_term next = election_reign(2, 7, 20);
    next.resigned = true;
    election_told(s, next);
    SAID("stop 6\nkeeper 2 of 7\ndoubt up of 7\nclaim after 7\n");
    election_claimed(s, SLUICE_OK, next);
    UNHEARD;
    election_renewed(s, SLUICE_ESTALE, election_reign(2, 7, 20));
    assert_int_equal(election_view(s).state, SL_ELECTION_LEADING);
}

UNIT_TEST(an_old_answer_does_not_shorten_authority)
{
    ELECTION s = keeper();
    election_passes(s, 490);
    RENEWED();
    sl_ms end = election_view(s).authority_end_ms;
    struct sl_storage_result d = {.status = SLUICE_OK};
    sl_election_renewed(s->election, s->now, s->now - 400, 6, &d);
    assert_int_equal(election_view(s).authority_end_ms, end);
}

/* A renewal that fails after the end leaves nobody but this node to ask the storage. */
UNIT_TEST(an_engine_that_fails_a_deposed_keeper_is_asked_again)
{
    ELECTION s = keeper();
    election_passes(s, 490);
    TOLD(2, 7, 20);
    UNHEARD;
    election_renewed(s, SLUICE_EIO, NOREIGN);
    election_passes(s, 250);
    SAID("read\n");
}

/* --- Resignation ---------------------------------------------------------------------- */

static struct sl_storage_term resigned(uint32_t node, uint64_t term, uint64_t beat)
{
    struct sl_storage_term r = election_reign(node, term, beat);
    r.resigned = true;
    return r;
}

UNIT_TEST(a_term_that_is_resigned_is_claimed_at_once)
{
    ELECTION s = watcher();
    election_told(s, resigned(2, 5, 10)); /* Although node 2 is connected. */
    SAID("claim after 5\n");
    election_claimed(s, SLUICE_OK, resigned(2, 5, 10));
    /* 2000, lengthened, without the longest lease. */
    SAID("lead 6 after 5 of 2, fences to 1000, quiet 2006\nkeeper 1 of 6\ndoubt up of "
         "6\n");
    TOLD(3, 7, 12); /* A later term is not resigned. */
    SAID("stop 6\nkeeper 3 of 7\ndoubt up of 7\n");
}

UNIT_TEST(a_node_that_reads_a_resigned_term_claims_the_next)
{
    ELECTION s = election_stage_new(1, 3);
    SEES(2, UP);
    election_term_read(s, SLUICE_OK, resigned(2, 5, 9));
    SAID("read\nkeeper 2 of 5\ndoubt up of 5\nclaim after 5\n");
    election_claimed(s, SLUICE_ESTALE, election_reign(3, 6, 10));
    SAID("keeper 3 of 6\ndoubt up of 6\n");
    assert_int_equal(election_view(s).claims, 1);
}

UNIT_TEST(a_keeper_that_resigns_stops_at_once_and_lets_others_claim)
{
    ELECTION s = keeper();
    sl_election_resign(s->election, s->now, true);
    election_settle(s);
    SAID("resign 6\nstop 6\nkeeper none of 6\n");
    election_told(s, resigned(1, 6, 20));
    for (int i = 0; i < 299; i++) {
        election_passes(s, 10);
        if (election_said(s, "read\n"))
            election_term_read(s, SLUICE_OK, resigned(1, 6, 20));
    }
    assert_false(election_said(s, "claim"));
    UNHEARD;
    TOLD(3, 7, 21);
    SAID("keeper 3 of 7\ndoubt up of 7\n");
}

/* Nobody else has claimed it. */
UNIT_TEST(a_node_that_has_resigned_claims_after_a_silence)
{
    ELECTION s = keeper();
    sl_election_resign(s->election, s->now, false);
    election_settle(s);
    SAID("stop 6\nkeeper none of 6\n");
    for (int i = 0; i < 400 && !election_said(s, "claim"); i++) {
        election_passes(s, 10);
        if (!election_said(s, "read\n")) continue;
        UNHEARD;
        TERM_READ(1, 6, 20);
    }
    SAID("claim after 6 beat 20\n");
}

UNIT_TEST(a_node_that_has_resigned_never_leads_in_that_term_again)
{
    ELECTION s = keeper();
    election_passes(s, 500);
    SAID("renew 6\n");
    sl_election_resign(s->election, s->now, true);
    election_settle(s);
    UNHEARD;
    RENEWED(); /* The heartbeat was under way. */
    assert_int_equal(election_view(s).state, SL_ELECTION_WATCHING);
    assert_int_equal(election_view(s).authority_end_ms, 0);
    election_refused(s, 6);
    TERM_READ(1, 6, 20); /* The mark was lost. */
    SAID("");
    sl_election_resign(s->election, s->now, true); /* It does not lead. */
    election_settle(s);
    SAID("");
}

UNIT_TEST(a_node_that_has_resigned_and_was_restarted_claims_at_once)
{
    ELECTION s = election_stage_new(1, 3);
    election_term_read(s, SLUICE_OK, resigned(1, 5, 9));
    SAID("read\nkeeper none of 5\nclaim after 5\n");
}

/* --- Orders -------------------------------------------------------------------------- */

UNIT_TEST(orders_that_nobody_fetches_do_not_add_up)
{
    ELECTION s = keeper();
    election_passes(s, 490);
    UNHEARD;
    for (uint64_t i = 0; i < 1000; i++) {
        struct sl_storage_term r = election_reign(2 + i % 2, 7 + i, 20 + i);
        sl_election_term_changed(s->election, s->now, &r);
        sl_election_peer_changed(s->election, s->now, 2,
                                 i % 3 ? SL_PEER_CLOSED : SL_PEER_UP);
        sl_election_peer_doubts(s->election, s->now, 3, 7 + i, SL_PEER_CLOSED);
        sl_election_read_soon(s->election, s->now);
        sl_election_hurries(s->election, s->now);
        sl_election_tick(s->election, ++s->now);
    }
    election_settle(s);
    assert_true(election_said(s, "stop 6\n"));
    assert_true(strlen(s->said) < 200);
}

UNIT_TEST(an_order_that_waits_is_due)
{
    ELECTION s = watcher();
    sl_election_peer_changed(s->election, s->now, 2, SL_PEER_CLOSED);
    assert_true(sl_election_due(s->election) <= s->now);
    election_settle(s);
    assert_true(sl_election_due(s->election) > s->now);
}

UNIT_TEST(numbers_of_nodes_have_a_limit)
{
    struct sl_election_settings settings = sl_election_settings_default;
    assert_null(sl_election_new(&settings, 0));
    settings.self = SL_ELECTION_NODES_MAX;
    assert_null(sl_election_new(&settings, 0));
    settings.self--;
    struct sl_election *o = sl_election_new(&settings, 0);
    assert_non_null(o);
    sl_election_free(o);
    sl_election_free(NULL);
}

int main(void)
{
    return run_unit_tests("election");
}
