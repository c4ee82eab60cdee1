/* election_stage.c - see election_stage.h. */
#include "election_stage.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *const sights[] = {"up", "silent", "closed"};

static void __attribute__((format(printf, 2, 3)))
say(struct election_stage *s, const char *format, ...)
{
    size_t n = strlen(s->said);
    va_list args;
    va_start(args, format);
    vsnprintf(s->said + n, sizeof s->said - n, format, args);
    va_end(args);
    assert_true(strlen(s->said) < sizeof s->said - 1);
}

static void say_order(struct election_stage *s, const struct sl_election_order *x)
{
    switch (x->type) {
        case SL_ELECTION_ORDER_READ_TERM: say(s, "read\n"); break;
        case SL_ELECTION_ORDER_CLAIM:
            say(s, "claim after %" PRIu64, x->term);
            if (x->heartbeat != 0) say(s, " beat %" PRIu64, x->heartbeat);
            say(s, "\n");
            break;
        case SL_ELECTION_ORDER_RENEW: say(s, "renew %" PRIu64 "\n", x->term); break;
        case SL_ELECTION_ORDER_RESIGN: say(s, "resign %" PRIu64 "\n", x->term); break;
        case SL_ELECTION_ORDER_DOUBT:
            say(s, "doubt %s of %" PRIu64 "\n", sights[x->sight], x->term);
            break;
        case SL_ELECTION_ORDER_LEAD:
            say(s, "lead %" PRIu64 " after %" PRIu64 " of %u, fences to %d, quiet %d\n",
                x->term, x->before.term, x->before.node, (int)x->before.fence_limit,
                (int)x->quiet_ms);
            break;
        case SL_ELECTION_ORDER_STOP: say(s, "stop %" PRIu64 "\n", x->term); break;
        case SL_ELECTION_ORDER_KEEPER:
            if (x->node == 0) say(s, "keeper none of %" PRIu64 "\n", x->term);
            else say(s, "keeper %u of %" PRIu64 "\n", x->node, x->term);
            break;
    }
}

void election_settle(struct election_stage *s)
{
    struct sl_election_order x;
    sl_election_check(s->election);
    while (sl_election_next(s->election, &x)) {
        if (x.type == SL_ELECTION_ORDER_READ_TERM) s->read_ms = s->now;
        if (x.type == SL_ELECTION_ORDER_CLAIM) s->claim_ms = s->now;
        if (x.type == SL_ELECTION_ORDER_RENEW) {
            s->renew_ms = s->now;
            s->renew_term = x.term;
        }
        say_order(s, &x);
    }
    sl_election_check(s->election);
}

void election_passes(struct election_stage *s, sl_ms ms)
{
    sl_ms end = s->now + ms;
    for (;;) {
        sl_ms due = sl_election_due(s->election);
        s->now = due > end ? end : due > s->now ? due : s->now;
        sl_election_tick(s->election, s->now);
        election_settle(s);
        assert_true(sl_election_due(s->election) > s->now);
        if (due >= end) return;
    }
}

struct sl_election_view election_view(const struct election_stage *s)
{
    struct sl_election_view v;
    sl_election_view(s->election, &v);
    return v;
}

/* --- The storage --------------------------------------------------------------- */

struct sl_storage_term election_reign(uint32_t node, uint64_t term, uint64_t beat)
{
    return (struct sl_storage_term){.term = term,
                                    .node = node,
                                    .heartbeat = beat,
                                    .fence_limit = 1000,
                                    .longest_ms = 5000};
}

void election_term_read(struct election_stage *s, int status, struct sl_storage_term r)
{
    struct sl_storage_result d = {.status = status, .term = r.term, .term_record = r};
    sl_election_term_read(s->election, s->now, s->read_ms, &d);
    election_settle(s);
}

void election_claimed(struct election_stage *s, int status, struct sl_storage_term r)
{
    struct sl_storage_result d = {.status = status, .term = r.term, .term_record = r};
    if (status == SLUICE_OK) d.term++, d.term_record.term = 0;
    sl_election_claimed(s->election, s->now, s->claim_ms, &d);
    election_settle(s);
}

void election_renewed(struct election_stage *s, int status, struct sl_storage_term r)
{
    struct sl_storage_result d = {.status = status, .term = r.term, .term_record = r};
    sl_election_renewed(s->election, s->now, s->renew_ms, s->renew_term, &d);
    election_settle(s);
}

void election_told(struct election_stage *s, struct sl_storage_term r)
{
    sl_election_term_changed(s->election, s->now, &r);
    election_settle(s);
}

/* --- The other nodes ----------------------------------------------------------------- */

void election_sees(struct election_stage *s, uint32_t node, enum sl_peer_state sight)
{
    sl_election_peer_changed(s->election, s->now, node, sight);
    election_settle(s);
}

void election_hears(struct election_stage *s, uint32_t from, uint64_t term,
                    enum sl_peer_state sight)
{
    sl_election_peer_doubts(s->election, s->now, from, term, sight);
    election_settle(s);
}

void election_needs(struct election_stage *s)
{
    sl_election_read_soon(s->election, s->now);
    election_settle(s);
}

void election_refused(struct election_stage *s, uint64_t term)
{
    sl_election_refused(s->election, s->now, term);
    election_settle(s);
}

void election_hurries(struct election_stage *s)
{
    sl_election_hurries(s->election, s->now);
    election_settle(s);
}

void election_members(struct election_stage *s, const uint32_t *ids, size_t n)
{
    sl_election_members(s->election, s->now, ids, n);
    election_settle(s);
}

bool election_said(const struct election_stage *s, const char *part)
{
    return strstr(s->said, part) != NULL;
}

/* --- Life --------------------------------------------------------------------------- */

struct election_stage *election_stage_new(uint32_t self, uint32_t nodes)
{
    struct election_stage *s = calloc(1, sizeof *s);
    uint32_t ids[SL_ELECTION_NODES_MAX];
    for (uint32_t i = 0; i < nodes; i++) ids[i] = i + 1;
    s->settings = sl_election_settings_default;
    s->settings.self = self;
    s->now = 10000;
    s->election = sl_election_new(&s->settings, s->now);
    assert_non_null(s->election);
    election_members(s, ids, nodes);
    election_passes(s, 0);
    return s;
}

void election_stage_end(struct election_stage *s)
{
    sl_election_free(s->election);
    free(s);
}

void election_stage_leave(struct election_stage **s)
{
    election_stage_end(*s);
}
