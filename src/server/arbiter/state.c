/* state.c - the durable limits while the server runs, and the requests that wait for them or for
 * the journal. */
#include "server/arbiter/state.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "server/arbiter/local.h"
#include "server/arbiter/state_internal.h"
#include "server/observe/log.h"

/* --- Start --------------------------------------------------------------------- */

struct sl_state *sl_state_new(struct server *s)
{
    struct sl_state *st = calloc(1, sizeof *st);
    s->state = st;
    if (st == NULL) {
        sl_log(SL_LOG_ERROR, "cannot start", "error", "out of memory", NULL);
        return NULL;
    }
    st->lease_cap_ms = s->settings->lease_ms_max;
    sl_list_init(&st->deferred);
    sl_list_init(&st->parked);
    sl_list_init(&st->noting);
    sl_list_init(&st->next_turn);
    sl_list_init(&st->resuming);
    return st;
}

int sl_state_start_without(struct server *s)
{
    return sl_state_new(s) == NULL ? -1 : 0;
}

/* --- The longest lease ------------------------------------------------------ */

sl_ms sl_state_longest(const struct sl_state *st, struct sl_now now)
{
    sl_ms most = st->lease_wanted_ms;
    sl_ms given = sl_longest_now(&st->longest, now.ms);
    if (given > most) most = given;
    if (st->inherited_ms > most) most = st->inherited_ms;
    for (size_t i = 0; i < SL_LENGTHS; i++)
        if (st->waiting[i] > 0 && sl_length_ms(i) > most) most = sl_length_ms(i);
    return sl_longest_round_up(most, st->lease_cap_ms);
}

/* Return the part of a lease for which a limit is needed. The journal of the keeper has the rest. */
static sl_ms unrecorded_ms(const struct server *s, sl_ms lease_ms)
{
    sl_ms volatile_ms = s->settings->lease_volatile_ms;
    return s->state->keeper == NULL || lease_ms <= volatile_ms ? lease_ms : volatile_ms;
}

void sl_state_given(struct server *s, sl_ms lease_ms)
{
    if (!s->state->limits_leases) return;
    lease_ms = unrecorded_ms(s, lease_ms);
    sl_ms end_ms = sl_ms_after(s->now.ms, lease_ms);
    /* Allow for rounded clocks. */
    sl_longest_given(&s->state->longest, lease_ms, sl_ms_after(end_ms, 4));
}

void sl_state_count_waiter(struct request *r, sl_ms lease_ms)
{
    if (!r->s->state->limits_leases) return;
    size_t step = sl_length_of(unrecorded_ms(r->s, lease_ms));
    assert(r->kept && r->lease_step == 0 && step < SL_LENGTHS);
    r->s->state->waiting[step]++;
    r->lease_step = (uint8_t)(step + 1);
}

void sl_state_uncount_waiter(struct request *r)
{
    if (r->lease_step == 0) return;
    assert(r->s->state->waiting[r->lease_step - 1] > 0);
    r->s->state->waiting[r->lease_step - 1]--;
    r->lease_step = 0;
}

/* --- Writing ---------------------------------------------------------------- */

static sl_fence last_fence(const struct server *s)
{
    struct sl_table_stats stats;
    sl_table_stats(s->table, &stats);
    return stats.fence_last;
}

static void written(struct server *s)
{
    struct sl_state *st = s->state;
    if (st->failed != 0 && st->explain == NULL)
        sl_log(SL_LOG_INFO, "etcd answers again", NULL);
    st->failed = 0;
    st->writes++;
    st->kept = st->next;
    sl_table_set_fences(s->table, 0, st->kept.fence_limit);
}

static void log_failure(const struct server *s)
{
    static struct sl_log_kind kind;
    if (s->state->explain != NULL) return; /* The recorder has logged it. */
    sl_log_often(&kind, s->now.ms, SL_LOG_ERROR,
                 "etcd does not answer; the server rejects longer leases, and all "
                 "grants when no fences are left; it retries every second",
                 NULL);
}

/* Handle a failed write. The file may contain the old limit or the new one, so rely on the lower of
 * the two. */
static void not_written(struct server *s, int error)
{
    struct sl_state *st = s->state;
    sl_ms was = st->kept.lease_longest_ms, would = st->next.lease_longest_ms;
    st->failed = error;
    st->errors++;
    st->kept.lease_longest_ms = sl_longest_sure(was, would);
    if (would > was && would > st->lease_wanted_ms) st->lease_wanted_ms = would;
    log_failure(s);
}

static void let_resume(struct sl_state *st, struct sl_list *list)
{
    while (!sl_list_empty(list)) {
        struct sl_list *n = list->next;
        sl_list_remove(n);
        sl_list_append(&st->resuming, n);
    }
}

void sl_state_retry(struct server *s)
{
    struct sl_state *st = s->state;
    let_resume(st, &st->deferred);
    if (!sl_list_empty(&st->resuming)) sl_server_go_on(s);
}

void sl_state_end_writing(struct server *s, int error)
{
    s->state->writing = false;
    if (error == 0) written(s);
    else not_written(s, error);
    sl_state_retry(s);
}

/* What remains of a recovery whose end is not known, because the journal is still being read. */
#define JOURNAL_READ_MS 1000

sl_ms sl_state_quiet_ms(const struct server *s)
{
    struct sl_table_stats stats;
    sl_table_stats(s->table, &stats);
    if (stats.recovering_until_ms <= s->now.ms) return 0;
    return stats.recovering_until_ms != SL_NEVER ? stats.recovering_until_ms - s->now.ms
                                                 : JOURNAL_READ_MS;
}

void sl_state_start_writing(struct server *s)
{
    struct sl_state *st = s->state;
    assert(st->write != NULL && st->current && !st->writing);
    st->next = st->kept;
    sl_fence limit = sl_fence_limit_above(last_fence(s), s->now.wall_us);
    if (limit > st->next.fence_limit) st->next.fence_limit = limit;
    st->next.fence_last = st->next.fence_limit;
    st->next.lease_longest_ms = sl_state_longest(st, s->now);
    st->next.quiet_ms = sl_state_quiet_ms(s);
    st->next.at_ms = s->now.ms;
    st->lease_wanted_ms = 0;
    st->writing = true;
    if (!st->write(s, st->next.fence_limit, st->next.lease_longest_ms))
        sl_state_end_writing(s, EAGAIN);
}

/* Whether the server may begin a write now. */
static bool may_write(const struct server *s)
{
    const struct sl_state *st = s->state;
    return st->write != NULL && st->current && !st->writing && !s->stopping;
}

void sl_state_write_ahead(struct server *s)
{
    struct sl_state *st = s->state;
    if (!may_write(s) || st->failed != 0) return;
    if (sl_table_fences_left(s->table) < SL_FENCE_BLOCK / 2) sl_state_start_writing(s);
}

void sl_state_write_again(struct server *s)
{
    if (!may_write(s) || s->state->failed == 0) return;
    s->state->failed = 0; /* Requests that need the limit wait for it again. */
    sl_state_start_writing(s);
}

/* Whether the clock approaches the fence limit although no lock was granted for some seconds. Then
 * a write now saves the next client from waiting for it. */
static bool limit_is_near(struct server *s)
{
    struct sl_state *st = s->state;
    struct sl_table_stats stats;
    sl_table_stats(s->table, &stats);
    if (stats.fence_last != st->fence_seen) {
        st->fence_seen = stats.fence_last;
        st->granted_ms = s->now.ms;
    }
    return sl_fence_limit_follows(s->now, st->granted_ms) &&
           sl_fence_limit_is_low(stats.fence_limit, s->now.wall_us);
}

void sl_state_second(struct server *s)
{
    struct sl_state *st = s->state;
    if (sl_state_quiet_ms(s) == 0) st->inherited_ms = 0;
    if (!may_write(s)) return;
    bool less = sl_state_longest(st, s->now) < st->kept.lease_longest_ms;
    if (st->failed != 0 || less || limit_is_near(s)) sl_state_start_writing(s);
}

/* --- Requests that wait for a write ----------------------------------------- */

static void refuse(struct request *r)
{
    const struct sl_state *st = r->s->state;
    char text[PATH_MAX + 300];
    if (st->explain != NULL) st->explain(r->s, text, sizeof text);
    else
        snprintf(text, sizeof text,
                 "etcd does not answer, so this lease cannot be granted; retry, or use "
                 "a shorter lease");
    r->s->stats.refusals++;
    const struct answer a = {.status = SLUICE_EIO, .text = text};
    sl_request_answer(r, &a);
}

/* Keep a request on a list until it runs again. Returns the kept request, or NULL if out of
 * memory; then the request has been answered with an error. */
static struct request *park(struct request *r, struct sl_list *list)
{
    struct request *k = sl_request_keep(r);
    if (k == NULL) return NULL;
    k->lease_step = 0;
    k->in_table = false;
    k->on_disk = true;
    k->outcome = SL_PARKED_TO_RUN;
    k->position = 0;
    k->parks = 0;
    k->noted = false;
    assert(sl_list_empty(&k->place));
    sl_list_append(list, &k->place);
    k->s->state->deferred_count++;
    return k;
}

struct request *sl_state_park(struct request *r, uint64_t position,
                              enum sl_parked outcome)
{
    struct sl_state *st = r->s->state;
    bool noted = (position & SL_STATE_NOTE) != 0;
    struct request *k = park(r, noted ? &st->noting : &st->parked);
    if (k == NULL) return NULL;
    k->position = position;
    k->outcome = (uint8_t)outcome;
    k->noted = noted;
    return k;
}

void sl_state_noted(struct server *s, uint64_t number)
{
    struct sl_state *st = s->state;
    bool any = false;
    while (!sl_list_empty(&st->noting)) {
        struct request *r = sl_container_of(st->noting.next, struct request, place);
        if (r->position > SL_STATE_NOTE + number) break;
        any = true;
        if (r->outcome == SL_PARKED_LEFT) {
            sl_state_drop_left(r);
            continue;
        }
        r->position = 0;
        sl_list_remove(&r->place);
        sl_list_append(&st->resuming, &r->place);
    }
    if (any) sl_state_resume(s);
}

void sl_state_durable(struct server *s, uint64_t position)
{
    struct sl_state *st = s->state;
    for (struct sl_list *n = st->parked.next, *next; n != &st->parked; n = next) {
        struct request *r = sl_container_of(n, struct request, place);
        next = n->next;
        bool is_event = r->outcome == SL_PARKED_EVENT;
        if (r->position > position && !(is_event && r->position == SL_STATE_FAILED))
            continue;
        if (r->outcome == SL_PARKED_LEFT) {
            sl_state_drop_left(r);
            continue;
        }
        r->position = 0;
        sl_list_remove(n);
        sl_list_append(&st->resuming, n);
    }
    if (!sl_list_empty(&st->resuming)) sl_server_go_on(s);
}

void sl_state_lost(struct server *s)
{
    struct sl_state *st = s->state;
    /* Undo the changes before any other request runs, which would show them, and the last change
     * first. The replies may leave in a later loop iteration. */
    for (struct sl_list *n = st->parked.prev; n != &st->parked; n = n->prev)
        sl_local_undo(sl_container_of(n, struct request, place));
    for (struct sl_list *n = st->parked.next, *next; n != &st->parked; n = next) {
        struct request *r = sl_container_of(n, struct request, place);
        next = n->next;
        if (r->outcome == SL_PARKED_LEFT) {
            sl_state_drop_left(r);
            continue;
        }
        if (sl_state_keeps_event(r)) continue;
        sl_list_remove(n); /* Its position is not 0. */
        sl_list_append(&st->resuming, n);
    }
    if (!sl_list_empty(&s->state->resuming)) sl_server_go_on(s);
}

void sl_state_run_next_turn(struct request *r)
{
    park(r, &r->s->state->next_turn);
}

static void defer(struct request *r)
{
    struct server *s = r->s;
    struct sl_state *st = s->state;
    if (!st->current) {
        const struct answer a = {.status = SLUICE_ENOKEEPER,
                                 .text = sl_local_why_not(s, SLUICE_ENOKEEPER)};
        sl_request_answer(r, &a);
    } else if (st->failed != 0) refuse(r);
    else if (park(r, &st->deferred) != NULL && !st->writing) sl_state_start_writing(s);
}

bool sl_state_knows_lease(const struct server *s, sl_ms lease_ms)
{
    const struct sl_state *st = s->state;
    if (!st->limits_leases) return true;
    if (!st->current) return false;
    sl_ms most = st->kept.lease_longest_ms;
    if (st->writing) most = sl_longest_sure(most, st->next.lease_longest_ms);
    return unrecorded_ms(s, lease_ms) <= most;
}

bool sl_state_may_lease(struct request *r, sl_ms lease_ms)
{
    struct sl_state *st = r->s->state;
    if (sl_state_knows_lease(r->s, lease_ms)) return true;
    lease_ms = unrecorded_ms(r->s, lease_ms);
    if (lease_ms > st->lease_wanted_ms) st->lease_wanted_ms = lease_ms;
    defer(r);
    return false;
}

bool sl_state_keeps(const struct server *s)
{
    return s->state->write != NULL && !s->state->is_lost;
}

void sl_state_refuse(struct request *r)
{
    refuse(r);
}

void sl_state_lack_fence(struct request *r)
{
    if (r->s->state->write != NULL) defer(r);
    else sl_request_answer_status(r, SLUICE_EFENCES);
}

void sl_state_forget(struct request *r)
{
    assert(r->on_disk && !sl_list_empty(&r->place) && r->s->state->deferred_count > 0);
    sl_list_remove(&r->place);
    r->on_disk = false;
    r->s->state->deferred_count--;
}

bool sl_state_has_more(const struct server *s)
{
    return !sl_list_empty(&s->state->resuming) || !sl_list_empty(&s->state->next_turn);
}

void sl_state_resume(struct server *s)
{
    struct sl_list *list = &s->state->resuming;
    let_resume(s->state, &s->state->next_turn);
    while (!sl_list_empty(list) && s->commands_left > 0) {
        struct request *r = sl_container_of(list->next, struct request, place);
        s->commands_left--;
        if (r->outcome == SL_PARKED_EVENT) {
            sl_state_deliver_event(s, r);
            continue;
        }
        sl_state_forget(r);
        if (r->outcome == SL_PARKED_TO_RUN) sl_request_resume(r);
        else sl_local_deliver(r, r->position == 0);
    }
}

/* --- Inspection -------------------------------------------------------------- */

void sl_state_inspect(const struct server *s, struct sl_state_view *out)
{
    const struct sl_state *st = s->state;
    *out = (struct sl_state_view){
        .directory = s->has_directory ? s->directory.path : "",
        .recovering_ms = sl_state_quiet_ms(s),
        .fence_limit = st->write == NULL ? 0 : st->kept.fence_limit,
        .lease_longest_ms = st->limits_leases ? st->kept.lease_longest_ms : -1,
        .writes = st->writes,
        .errors = st->errors,
        .restored = st->restored,
        .deferred = st->deferred_count};
}
