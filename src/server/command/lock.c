/* commands_lock.c - the commands about locks: take, give back, wait, look, operate. */
#include <inttypes.h>
#include <string.h>

#include "base/glob.h"
#include "server/arbiter/cluster.h"
#include "server/arbiter/state.h"
#include "server/command/dispatch.h"
#include "server/forward/forward.h"
#include "server/observe/memory.h"

/* --- Words ---------------------------------------------------------------- */

#define FENCE_MAX ((int64_t)SL_FENCE_MAX)
#define WAIT_MS_MAX ((int64_t)1 << 52)

static void say_too_big(struct call *call, const char *what, int64_t most,
                        const char *setting)
{
    char text[120];
    snprintf(text, sizeof text, "a %s has at most %" PRId64 " bytes (%s)", what, most,
             setting);
    sl_say(call, "TOOBIG", text);
}

bool sl_good_key(struct call *call)
{
    const struct sl_settings *set = call->s->settings;
    size_t n = call->at[1].n;
    if (n == 0) sl_say(call, "ERR", "a key has at least one byte");
    else if (n > (size_t)set->key_bytes_max)
        say_too_big(call, "key", set->key_bytes_max, "key-bytes-max");
    else return true;
    return false;
}

static bool good_value(struct call *call, struct sl_bytes v)
{
    const struct sl_settings *set = call->s->settings;
    if (v.n <= (size_t)set->value_bytes_max) return true;
    say_too_big(call, "value or note", set->value_bytes_max, "value-bytes-max");
    return false;
}

/* The word at i as a number; else it was said what is wrong. */
static bool number_at(struct call *call, size_t i, const char *name, int64_t min,
                      int64_t max, int64_t *out)
{
    char text[120];
    if (i < call->n && sl_parse_number(call->at[i], min, max, out)) return true;
    snprintf(text, sizeof text, "%s is a number from %" PRId64 " to %" PRId64, name,
             min, max);
    sl_say_syntax(call, text);
    return false;
}

static bool lease_at(struct call *call, size_t i, const char *name, int64_t *out)
{
    const struct sl_settings *set = call->s->settings;
    char text[120];
    if (!number_at(call, i, name, 1, FENCE_MAX, out)) return false;
    if (sl_by_majority(call->s, call->at[1]) && *out < set->lease_ms_min) {
        snprintf(text, sizeof text,
                 "a lease from a majority has at least %" PRId64 " ms (lease-min)",
                 set->lease_ms_min);
        sl_say(call, "ERR", text);
        return false;
    }
    if (*out <= set->lease_ms_max) return true;
    snprintf(text, sizeof text, "a lease has at most %" PRId64 " ms (lease-max)",
             set->lease_ms_max);
    sl_say(call, "TOOBIG", text);
    return false;
}

static bool fence_at(struct call *call, size_t i, sl_fence *out)
{
    int64_t n;
    if (!number_at(call, i, "a fence", 1, FENCE_MAX, &n)) return false;
    *out = (sl_fence)n;
    return true;
}

/* --- ACQUIRE -------------------------------------------------------------- */

void sl_put_grant(struct sl_resp_writer *w, const struct sl_grant *g)
{
    sl_resp_array(w, 5);
    sl_resp_integer(w, (int64_t)g->fence);
    sl_resp_integer(w, (int64_t)g->held);
    sl_resp_integer(w, g->lease_ms > 0 ? g->lease_ms : -1);
#ifdef MUT_WAITED
    sl_resp_integer(w, 0);
#else
    sl_resp_integer(w, g->waited_ms);
#endif
    sl_resp_integer(w, g->overlapping ? 1 : 0);
}

/* Which words were there, so that none is there twice. */
enum {
    W_SHARED = 1,
    W_PER = 2,
    W_BUCKETS = 4,
    W_UNITS = 8,
    W_WAIT = 16,
    W_LEASE = 32,
    W_PRIORITY = 64,
    W_VALUE = 128,
    W_NOTE = 256,
    W_STEAL = 512
};

struct wish {
    struct sl_want want;
    unsigned seen;
    int64_t millionths; /* STEAL f: of the wait. */
    bool by_experience; /* STEAL AUTO. */
};

static bool take_number(struct call *call, size_t i, unsigned word, struct wish *w)
{
    struct sl_want *want = &w->want;
    int64_t n;
    switch (word) {
        case W_PER:
            if (!number_at(call, i, "PER", 0, UINT32_MAX, &n)) return false;
            want->per = (uint32_t)n;
            return true;
        case W_BUCKETS:
            if (!number_at(call, i, "BUCKETS", 0, UINT32_MAX, &n)) return false;
            want->buckets = (uint32_t)n;
            return true;
        case W_UNITS:
            if (!number_at(call, i, "UNITS", 1, SLUICE_UNITS_MAX, &n)) return false;
            want->units = (uint32_t)n;
            return true;
        case W_WAIT:
            if (!number_at(call, i, "WAIT", 0, WAIT_MS_MAX, &n)) return false;
            want->wait_ms = n;
            return true;
        case W_LEASE: return lease_at(call, i, "LEASE", &want->lease_ms);
        default:
            if (!number_at(call, i, "PRIORITY", INT32_MIN, INT32_MAX, &n)) return false;
            want->priority = (int32_t)n;
            return true;
    }
}

static bool take_text(struct call *call, size_t i, unsigned word, struct wish *w)
{
    if (i >= call->n) {
        sl_say_syntax(call, "a text is missing at the end");
        return false;
    }
    if (!good_value(call, call->at[i])) return false;
    if (word == W_VALUE) w->want.value = call->at[i];
    else w->want.note = call->at[i];
    return true;
}

static unsigned word_of(struct sl_bytes b)
{
    static const struct {
        const char *text;
        unsigned word;
    } words[] = {{"LEASE", W_LEASE},   {"WAIT", W_WAIT},         {"VALUE", W_VALUE},
                 {"PER", W_PER},       {"BUCKETS", W_BUCKETS},   {"UNITS", W_UNITS},
                 {"SHARED", W_SHARED}, {"PRIORITY", W_PRIORITY}, {"NOTE", W_NOTE},
                 {"STEAL", W_STEAL}};
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (sl_word_is(b, words[i].text)) return words[i].word;
    return 0;
}

static bool say_unknown_word(struct call *call, struct sl_bytes b)
{
    char text[120];
    snprintf(text, sizeof text, "'%.*s' is not a word of it",
             (int)(b.n < 40 ? b.n : 40), b.at);
    sl_say_syntax(call, text);
    return false;
}

#define WHOLE 1000000 /* Of a fraction, in millionths. */

/* A fraction from 0 to 1, with a point. */
static bool parse_fraction(struct sl_bytes b, int64_t *millionths)
{
    int64_t n = 0, unit = WHOLE;
    bool digits = false, point = false;
    for (size_t i = 0; i < b.n; i++) {
        if (b.at[i] == '.' && !point) {
            point = true;
            continue;
        }
        if (b.at[i] < '0' || b.at[i] > '9' || (!point && n > WHOLE)) return false;
        digits = true;
        if (point) unit /= 10;
        n = point ? n + (b.at[i] - '0') * unit : n * 10 + (b.at[i] - '0') * WHOLE;
    }
    *millionths = n;
    return digits && n <= WHOLE;
}

/* What may follow STEAL: a fraction, or AUTO. False: it is another word. */
static bool take_steal(struct sl_bytes b, struct wish *w)
{
    w->by_experience = sl_word_is(b, "AUTO");
    return w->by_experience || parse_fraction(b, &w->millionths);
}

/* When a thief enters without an answer, if ever. */
static void set_force(const struct server *s, struct wish *w)
{
    sl_ms wait_ms = w->want.wait_ms;
    w->want.steal = (w->seen & W_STEAL) != 0;
    w->want.force_ms = SL_NEVER;
    if (w->by_experience) w->want.force_ms = sl_answers_force_ms(&s->stats.answers);
    else if (w->millionths == 0) w->want.force_ms = 0;
    else if (w->millionths < WHOLE && wait_ms > 0) /* Rounded up: only 0 is at once. */
        w->want.force_ms = 1 + (sl_ms)((double)wait_ms * (double)w->millionths / WHOLE);
}

/* An option of ACQUIRE. */
struct option {
    unsigned word;   /* 0: unknown option. */
    size_t argument; /* Where its argument is, or should be; 0: it has none. */
};

/* The option at *i; then *i is behind it and its argument. False: there are no more. */
static bool next_option(const struct call *call, size_t *i, struct option *o)
{
    struct wish unused;
    if (*i >= call->n) return false;
    o->word = word_of(call->at[(*i)++]);
    bool has = o->word != 0 && o->word != W_SHARED;
    if (o->word == W_STEAL) has = *i < call->n && take_steal(call->at[*i], &unused);
    o->argument = has ? (*i)++ : 0;
    return true;
}

sl_ms sl_acquire_wait_ms(const struct call *call)
{
    struct option o;
    int64_t ms;
    for (size_t i = 2; next_option(call, &i, &o);)
        if (o.word == W_WAIT && o.argument < call->n &&
            sl_parse_number(call->at[o.argument], 0, WAIT_MS_MAX, &ms))
            return ms;
    return 0;
}

static bool read_wish(struct call *call, struct wish *w)
{
    struct option o;
    for (size_t i = 2; next_option(call, &i, &o);) {
        if (o.word == 0) return say_unknown_word(call, call->at[i - 1]);
        if ((w->seen & o.word) != 0) {
            sl_say_syntax(call, "a word is there twice");
            return false;
        }
        w->seen |= o.word;
        if (o.word == W_SHARED) w->want.shared = true;
        else if (o.word == W_STEAL) {
            if (o.argument != 0) take_steal(call->at[o.argument], w);
        } else if (!((o.word & (W_VALUE | W_NOTE)) != 0
                         ? take_text(call, o.argument, o.word, w)
                         : take_number(call, o.argument, o.word, w)))
            return false;
    }
    if (w->want.shared && (w->seen & (W_PER | W_BUCKETS | W_UNITS)) != 0) {
        sl_say_syntax(call, "SHARED has no room and no units");
        return false;
    }
    if ((w->seen & W_BUCKETS) != 0 && (w->seen & W_PER) == 0) {
        sl_say_syntax(call, "BUCKETS needs PER");
        return false;
    }
    return true;
}

static void say_room(struct call *call, const struct sl_want *w)
{
    char text[160];
    uint64_t room = (uint64_t)w->per * w->buckets;
    if (room > SLUICE_CAPACITY_MAX)
        snprintf(text, sizeof text, "PER times BUCKETS is at most %" PRIu64,
                 (uint64_t)SLUICE_CAPACITY_MAX);
    else
        snprintf(text, sizeof text,
                 "%" PRIu32 " units never fit into a room of %" PRIu64
                 ": declare more with PER and BUCKETS",
                 w->units, room);
    sl_say(call, "TOOBIG", text);
}

static void block(struct call *call, enum sl_blocked how)
{
    call->c->blocked = how;
    call->s->blocked_count++;
    call->s->stats.waits++;
}

/* What is given, or may be given to who waits, has to be known after a crash. */
static void note_lease(struct call *call, const struct sl_want *w, int status)
{
    if (w->lease_ms == 0) return;
    if (status == SL_WAITS) sl_state_waits(call->c, w->lease_ms);
    else sl_state_given(call->s, w->lease_ms);
}

/* The time that it waited for the disk is part of its wait. */
static void count_deferral(const struct call *call, struct sl_want *w)
{
    if (call->c->deferred_since_ms == 0) return;
    w->waited_ms = call->s->now.ms - call->c->deferred_since_ms;
    if (w->wait_ms > 0 && w->wait_ms != SL_NEVER)
        w->wait_ms = w->wait_ms > w->waited_ms ? w->wait_ms - w->waited_ms : 0;
}

/* A lease longer than any before is written down first; but not for one that is refused. */
static bool may_lease(struct call *call, const struct sl_want *w)
{
    if (sl_state_knows_lease(call->s, w->lease_ms)) return true;
    int status = sl_table_judge(call->s->table, call->s->now, &call->c->session->s, w);
    if (status != SLUICE_OK && status != SL_WAITS) return true;
    return sl_state_may_lease(call, w->lease_ms);
}

#define STEPS_A_HOLDER 64 /* The cost of checking one holder. */

/* Whether a holder without a lease has closed its connection, so that we will release its
 * grant. */
static bool holder_gives_back(const struct call *call, struct sl_bytes key)
{
    struct server *s = call->s;
    struct sl_grant_view v;
    uint64_t cursor = 0;
    while (sl_table_each(s->table, s->now, key, &cursor, &v) && !v.waits) {
        sl_server_spend(s, STEPS_A_HOLDER);
        if (v.leased) continue;
        const struct session *n = sl_server_session(s, v.session_id);
        if (n == NULL || n->conn == call->c) continue;
        if (n->s.ended) return true;
        if (n->conn != NULL && sl_conn_gives_back(n->conn)) return true;
    }
    return false;
}

/* The key is held. If the holder has closed its connection, but we have not read that or have
 * not released its grants yet, dispatch the request again in the next turn. So no client is told
 * that a key is held although its holder has closed its connection. */
static bool ask_again(struct call *call, struct sl_bytes key)
{
    struct server *s = call->s;
    if (s->all_stay == s->inputs) return false;
    if (!sl_input_holders_left(s) && sl_list_empty(&s->leaving) &&
        !sl_table_ends_sessions(s->table)) {
        s->all_stay = s->inputs;
        return false;
    }
#ifdef MUT_HOLDERLEFT
    return false;
#endif
    return holder_gives_back(call, key) && sl_state_again(call);
}

void sl_do_acquire(struct call *call)
{
    struct server *s = call->s;
    struct wish w = {.want = {.key = call->at[1], .per = 1, .buckets = 1, .units = 1},
                     .millionths = WHOLE};
    struct sl_grant grant;
    if (!sl_good_key(call) || !read_wish(call, &w)) return;
    set_force(s, &w);
    if (sl_by_majority(s, w.want.key)) {
        sl_cluster_acquire(call, &w.want);
        return;
    }
    count_deferral(call, &w.want);
    if (!may_lease(call, &w.want)) return;
    sl_server_spend(s, s->drain_words * w.want.key.n);
    int status = sl_table_acquire(s->table, s->now, &call->c->session->s, &w.want,
                                  &grant);
    if (status == SLUICE_OK || status == SL_WAITS) note_lease(call, &w.want, status);
    if (status == SLUICE_OK) {
        s->stats.grants++;
        if (w.want.lease_ms == 0) sl_input_holds(call->c);
        sl_forward_held(call->c, w.want.key, grant.fence, true);
        sl_put_grant(call->out, &grant);
        sl_event_granted(s, w.want.key, &grant);
    } else if (status == SL_WAITS) block(call, SL_IN_ACQUIRE);
    else if (status == SLUICE_EFENCES) sl_state_lack_fence(call);
    else if (status == SLUICE_EFULL && ask_again(call, w.want.key)) return;
    else {
        s->stats.refusals++;
        if (status == SLUICE_EFULL) sl_resp_null_array(call->out);
        else if (status == SLUICE_ETOOBIG) say_room(call, &w.want);
        else sl_say_status(call, status);
    }
}

/* A new keeper does not know a grant, but a node that it has not heard of may have it: then
 * nobody can say that it is not held, and that is what was said. */
static bool may_come(struct call *call, sl_fence fence)
{
    struct sl_table_stats table;
#ifdef MUT_RELAYQUIET
    return false;
#endif
    if (call->s->relay == NULL || fence == 0) return false;
    sl_table_stats(call->s->table, &table);
    if (table.recovering_until_ms <= call->s->now.ms ||
        sl_table_holds(call->s->table, call->s->now, call->at[1], fence))
        return false;
    sl_say_status(call, SLUICE_ERECOVERING);
    return true;
}

/* --- RELEASE, EXTEND, CHECK, READ ----------------------------------------- */

void sl_do_release(struct call *call)
{
    struct server *s = call->s;
    struct sl_ended past;
    sl_fence fence = 0;
    if (!sl_good_key(call)) return;
    if (call->n > 2 && !fence_at(call, 2, &fence)) return;
    if (sl_by_majority(s, call->at[1])) {
        sl_cluster_release(call, fence);
        return;
    }
    int n = sl_table_release(s->table, s->now, &call->c->session->s, call->at[1], fence,
                             &past);
    if (n == 0 && may_come(call, fence)) return;
    if (n == 1) {
        s->stats.releases++;
        sl_histogram_add(&s->stats.hold_ms, past.held_ms);
        sl_event(s, call->at[1], "released", past.fence, "");
        sl_event_stolen(s, call->at[1], &past, true);
        /* Who took it knows; who has extended it does not, and who does not name it may
         * not know which it was. */
        if (past.leased || past.session_id != sl_conn_id(call->c) || fence == 0)
            sl_forward_gone(s, past.fence, false);
    }
    sl_resp_integer(call->out, n);
}

void sl_do_extend(struct call *call)
{
    struct server *s = call->s;
    struct sl_bytes value = {0};
    sl_fence fence;
    int64_t ms, left;
    char more[40];
    if (!sl_good_key(call) || !fence_at(call, 2, &fence) ||
        !lease_at(call, 3, "the lease", &ms))
        return;
    if (call->n > 4) {
        if (call->n != 6 || !sl_word_is(call->at[4], "VALUE")) {
            sl_say_syntax(call, "VALUE and a text may follow");
            return;
        }
        if (!good_value(call, call->at[5]) || sl_memory_rejects(call)) return;
        value = call->at[5];
    }
    if (sl_by_majority(s, call->at[1])) {
        sl_cluster_extend(call, fence, ms, value);
        return;
    }
    /* Who holds nothing is told so without a look at the disk. */
    if (sl_table_holds(s->table, s->now, call->at[1], fence) &&
        !sl_state_may_lease(call, ms))
        return;
    int status = sl_table_extend(s->table, s->now, &call->c->session->s, call->at[1],
                                 fence, ms, value, &left);
    if (status == SLUICE_ELOST && may_come(call, fence)) return;
    if (status != SLUICE_OK) {
        sl_say_status(call, status);
        return;
    }
    s->stats.extends++;
#ifndef MUT_EXTENDED
    sl_state_given(s, ms);
#endif
    sl_forward_held(call->c, call->at[1], fence, false);
    sl_resp_integer(call->out, left);
    snprintf(more, sizeof more, " lease_ms=%" PRId64, left);
    sl_event(s, call->at[1], "extended", fence, more);
}

void sl_do_check(struct call *call)
{
    sl_fence fence;
    if (!sl_good_key(call) || !fence_at(call, 2, &fence)) return;
    if (sl_by_majority(call->s, call->at[1])) {
        sl_cluster_check(call, fence);
        return;
    }
    bool held = sl_table_holds(call->s->table, call->s->now, call->at[1], fence);
    if (!held && may_come(call, fence)) return;
    sl_resp_integer(call->out, held ? 1 : 0);
}

void sl_do_read(struct call *call)
{
    struct sl_grant_view v;
    if (!sl_good_key(call)) return;
    /* One server is a majority of one. */
    if (call->n > 2 && !sl_word_is(call->at[2], "MAJORITY")) {
        sl_say_syntax(call, "only MAJORITY may follow");
        return;
    }
    if (sl_by_majority(call->s, call->at[1])) {
        sl_cluster_read(call, call->n > 2);
        return;
    }
    if (!sl_table_newest(call->s->table, call->s->now, call->at[1], &v)) {
        sl_resp_null_array(call->out);
        return;
    }
    sl_resp_array(call->out, 3);
    sl_resp_bulk(call->out, v.value);
    sl_resp_integer(call->out, (int64_t)v.fence);
    sl_resp_integer(call->out, v.leased ? v.left_ms : -1);
}

/* --- AWAIT ---------------------------------------------------------------- */

void sl_do_await(struct call *call)
{
    struct server *s = call->s;
    int64_t ms;
    bool want_free = sl_word_is(call->at[2], "FREE");
    if (!sl_good_key(call)) return;
    if (!want_free && !sl_word_is(call->at[2], "HELD")) {
        sl_say_syntax(call, "HELD or FREE is expected");
        return;
    }
    if (!number_at(call, 3, "ms", 0, WAIT_MS_MAX, &ms)) return;
    if (sl_by_majority(s, call->at[1])) {
        sl_cluster_await(call, want_free, ms);
        return;
    }
    int status = sl_table_await(s->table, s->now, &call->c->session->s, call->at[1],
                                want_free, ms);
    if (status == SLUICE_EFULL && want_free && ask_again(call, call->at[1])) return;
    if (status == SL_WAITS) block(call, SL_IN_AWAIT);
    else if (status == SLUICE_OK || status == SLUICE_EFULL)
        sl_resp_integer(call->out, status == SLUICE_OK ? 1 : 0);
    else sl_say_status(call, status);
}

/* --- BREAK, DRAIN --------------------------------------------------------- */

void sl_do_break(struct call *call)
{
    struct server *s = call->s;
    struct sl_ended past;
    sl_fence fence;
    bool at_once = call->n > 3 && sl_word_is(call->at[3], "NOW");
    if (sl_by_majority(s, call->at[1])) {
        sl_cluster_refuse(call);
        return;
    }
    if (!sl_good_key(call) || !fence_at(call, 2, &fence)) return;
    if (call->n > 3 && !at_once) {
        sl_say_syntax(call, "only NOW may follow");
        return;
    }
    int n = sl_table_break(s->table, s->now, call->at[1], fence, at_once, &past);
    if (n == 2) sl_histogram_add(&s->stats.hold_ms, past.held_ms);
    if (n > 0) sl_forward_gone(s, fence, true);
    if (n == 2 && past.broken)
        sl_event(s, call->at[1], "released", fence, " why=break");
    if (n > 0 && !past.broken) {
        s->stats.breaks++;
        sl_event(s, call->at[1], "broken", fence, n == 1 ? " why=last-lease" : "");
        sl_event_to_holder(s, past.session_id, call->at[1], "broken", fence);
        if (n == 2) sl_event_stolen(s, call->at[1], &past, false);
    }
    sl_resp_integer(call->out, n);
}

static void list_drains(struct call *call)
{
    struct sl_table_stats stats;
    struct sl_bytes glob;
    sl_table_stats(call->s->table, &stats);
    sl_resp_array(call->out, stats.drains);
    for (uint32_t i = 0; sl_table_drains(call->s->table, i, &glob); i++)
        sl_resp_bulk(call->out, glob);
}

static void count_drain(struct server *s, size_t n, bool on)
{
    if (on) s->drain_words += sl_glob_words(n);
    else s->drain_words -= sl_glob_words(n);
}

void sl_do_drain(struct call *call)
{
    const struct sl_settings *set = call->s->settings;
    char text[80];
    if (call->s->cluster != NULL && call->s->relay == NULL) {
        sl_cluster_refuse(call);
        return;
    }
    if (call->n == 1) {
        list_drains(call);
        return;
    }
    bool on = call->n == 3 && sl_word_is(call->at[2], "ON");
    if (call->n != 3 || (!on && !sl_word_is(call->at[2], "OFF"))) {
        sl_say_syntax(call, "ON or OFF is expected");
        return;
    }
    if (call->at[1].n > (size_t)set->pattern_bytes_max) {
        say_too_big(call, "pattern", set->pattern_bytes_max, "pattern-bytes-max");
        return;
    }
    if (!sl_good_key(call)) return;
    sl_server_spend(call->s, SL_GLOB_COMPILE_STEPS * call->at[1].n);
    int status = sl_table_drain(call->s->table, call->at[1], on);
    if (status == SLUICE_OK) count_drain(call->s, call->at[1].n, on);
    if (status == SLUICE_EFULL) {
        snprintf(text, sizeof text,
                 "there are %" PRId64 " patterns already (drains-max)",
                 set->drains_max);
        sl_say(call, "LIMIT", text);
    } else if (status == SLUICE_OK || status == SLUICE_ENOENT)
        sl_resp_integer(call->out, status == SLUICE_OK ? 1 : 0);
    else sl_say_status(call, status);
}
