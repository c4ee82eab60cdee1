#include "play.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct sl_bytes bytes(const char *s)
{
    return (struct sl_bytes){s, strlen(s)};
}

/* Appends as much as fits. */
static void add(const struct spec *s, char *to, size_t room, const char *format, ...)
    __attribute__((format(printf, 4, 5)));

static void add(const struct spec *s, char *to, size_t room, const char *format, ...)
{
    size_t n = strlen(to);
    va_list args;
    va_start(args, format);
    int more = vsnprintf(to + n, room - n, format, args);
    va_end(args);
    if (more < 0 || (size_t)more >= room - n) spec_wrong(s, 0, "too much is said");
}

bool play_unchecked;

static void check(const struct play *p)
{
    if (!play_unchecked) sl_table_check(p->table);
}

#define SAY(p, ...) add((p)->spec, (p)->said, SAID_BYTES, __VA_ARGS__)

/* The events of the lock, as a subscriber receives them. */
static void event(struct play *p, int key, const char *what, sl_fence fence,
                  const char *why)
{
    char *to = p->events[key];
    add(p->spec, to, EVENTS_BYTES, "%s%s f%d%s", to[0] == '\0' ? "" : ", ", what,
        model_name(&p->model, fence), why);
}

/* --- Answers -------------------------------------------------------------- */

/* The whole answer is for the transcript; `token` is it without numbers, for the table of
 * outcomes. */
static void answer(struct play *p, int step, const char *token)
{
    snprintf(p->answer[step], ANSWER_BYTES, "%s%s", p->waited[step] ? "waited," : "",
             token);
    p->waiting[p->spec->step[step].session] = -1;
    if (p->waited[step]) p->later[step] = true;
}

static void answer_grant(struct play *p, int step, const struct sl_grant *g)
{
    const struct step *s = &p->spec->step[step];
    (g->replay ? model_replayed : model_granted)(&p->model, p->now.ms, s, g);
    p->fence[step] = g->fence;
    p->held[step] = g->held;
    answer(p, step,
           g->replay        ? "got,replay"
           : g->overlapping ? "got,overlapping"
                            : "got");
    if (!g->replay) event(p, s->key, "granted", g->fence, "");
}

/* As it stands in the transcript. */
static const char *words_of(const struct play *p, int step, char out[64])
{
    const char *token = p->answer[step];
    const int i = model_name(&p->model, p->fence[step]) - 1;
    const char *got = strstr(token, "got");
    if (got != NULL && i >= 0)
        snprintf(out, 64, "f%d held=%llu%s%s", i + 1, (unsigned long long)p->held[step],
                 got[3] == ',' ? " " : "", got[3] == ',' ? got + 4 : "");
    else if (strncmp(token, "waited,", 7) == 0) snprintf(out, 64, "%s", token + 7);
    else snprintf(out, 64, "%s", token);
    return out;
}

static void say_later(struct play *p)
{
    char words[64];
    for (int i = 0; i < p->spec->steps; i++) {
        if (!p->later[i]) continue;
        p->later[i] = false;
        SAY(p, "        %-4s  %s\n", p->spec->step[i].name, words_of(p, i, words));
    }
}

/* --- Effects ----------------------------------------------------- */

static int key_index(const struct play *p, struct sl_bytes key)
{
    for (int i = 0; i < p->spec->keys; i++)
        if (key.n == strlen(p->spec->key[i]) &&
            memcmp(key.at, p->spec->key[i], key.n) == 0)
            return i;
    abort(); /* A key that nobody has named. */
}

static void told(struct play *p, const struct sl_effect *e)
{
    struct model *m = &p->model;
    int who = e->session == NULL ? -1 : (int)(e->session - p->session);
    int step = who < 0 ? -1 : p->waiting[who];
    if (e->type == SL_EFFECT_SESSION_OVER || e->type == SL_EFFECT_NOTHING) return;
    if (who >= 0 && step < 0) {
        model_wrong(m, "%s is answered, and does not wait", p->spec->session[who]);
        return;
    }
    bool awaits = step >= 0 && p->spec->step[step].deed == AWAIT;
    int key = key_index(p, e->key);
    switch (e->type) {
        case SL_EFFECT_NOTHING:
        case SL_EFFECT_ASKED: /* No spec steals. */
        case SL_EFFECT_WITHDRAWN:
        case SL_EFFECT_STOLEN:
        case SL_EFFECT_THIEF_WAITS: break;
        case SL_EFFECT_GRANTED: answer_grant(p, step, &e->grant); break;
        case SL_EFFECT_TIMED_OUT:
            model_timed_out(m, p->now.ms, who);
            answer(p, step, awaits ? "0" : "nil");
            break;
        case SL_EFFECT_REFUSED:
            model_refused(m, who);
            answer(p, step, "DRAINED");
            break;
        case SL_EFFECT_CANCELLED:
            model_cancelled(m, who);
            answer(p, step, "ENDED");
            break;
        case SL_EFFECT_SEEN:
            model_seen(m, p->now.ms, who);
            answer(p, step, "1");
            break;
        case SL_EFFECT_EXPIRED:
            model_expired(m, p->now.ms, key, e->past.fence);
            event(p, key, "expired", e->past.fence, "");
            break;
        case SL_EFFECT_ENDED:
            model_ended(m, key, e->past.fence);
            event(p, key, "released", e->past.fence, " why=disconnect");
            break;
        case SL_EFFECT_SESSION_OVER: break;
    }
}

/* The properties of the file that hold at any time. */
static void look(struct play *p)
{
    for (int i = 0; i < p->spec->properties; i++) {
        const struct property *q = &p->spec->property[i];
        bool broken = (q->kind == TWO_HOLD &&
                       model_holders(&p->model, p->now.ms, q->key) > 1) ||
                      (q->kind == MORE_UNITS &&
                       model_units(&p->model, p->now.ms, q->key) > q->units) ||
                      (q->kind == STEP_IS &&
                       strcmp(p->answer[q->step], q->answer) == 0);
        if (broken) model_wrong(&p->model, "not so: %s", q->text);
    }
}

void play_tell(struct play *p)
{
    struct sl_effect e;
    while (sl_table_next(p->table, p->now, &e)) {
        told(p, &e);
        look(p);
        check(p);
    }
    p->pending = false;
    say_later(p);
    if (p->model.wrong[0] == '\0') model_quiet(&p->model, p->now.ms);
}

static void advance(struct play *p, sl_ms ms)
{
    p->now.ms += ms;
    p->now.wall_us += (uint64_t)ms * 1000;
}

bool play_pass_time(struct play *p)
{
    bool somebody = false;
    for (int i = 0; i < p->spec->sessions; i++) somebody |= p->waiting[i] >= 0;
    sl_ms due = sl_table_due(p->table);
    if (!somebody || due == SL_NEVER) return false;
    SAY(p, "    time passes: %lld ms\n", (long long)(due - p->now.ms));
    advance(p, due - p->now.ms);
    play_tell(p);
    return true;
}

/* --- Steps ---------------------------------------------------------------- */

/* Compares the answer of the table with the expected one. */
static void compare(struct play *p, const struct step *s, int64_t got, int64_t wanted)
{
    if (got != wanted)
        model_wrong(&p->model, "%s: the table answered %lld (%s), not %lld (%s)",
                    s->name, (long long)got, sluice_status_word(got), (long long)wanted,
                    sluice_status_word(wanted));
}

static void wait_in(struct play *p, int step)
{
    model_waits(&p->model, p->now.ms, &p->spec->step[step]);
    p->waiting[p->spec->step[step].session] = step;
    p->waited[step] = true;
    snprintf(p->answer[step], ANSWER_BYTES, "waits");
}

/* The id of a step, long enough for the table; n 0: none. */
static struct sl_bytes id_of(const struct play *p, const struct step *s)
{
    static char out[NAME_BYTES + 32];
    if (s->id < 0) return (struct sl_bytes){0};
    snprintf(out, sizeof out, "%s-the-id-of-a-spec", p->spec->id[s->id]);
    return bytes(out);
}

static void acquire(struct play *p, int step)
{
    const struct step *s = &p->spec->step[step];
    struct sl_want want = s->want;
    struct sl_grant grant = {0};
    bool replay;
    want.key = bytes(p->spec->key[s->key]);
    want.request = id_of(p, s);
    want.ticket = (uint64_t)step + 1;
    int wanted = model_acquire(&p->model, p->now.ms, s, &replay);
    int got = sl_table_acquire(p->table, p->now, &p->session[s->session], &want,
                               &grant);
    compare(p, s, got, wanted);
    compare(p, s, grant.replay, replay);
    if (got == SLUICE_OK) answer_grant(p, step, &grant);
    else if (got == SL_WAITS) wait_in(p, step);
    else answer(p, step, got == SLUICE_EFULL ? "nil" : sluice_status_word(got));
}

static void await(struct play *p, int step)
{
    const struct step *s = &p->spec->step[step];
    int wanted = model_await(&p->model, p->now.ms, s);
    int got = sl_table_await(p->table, p->now, &p->session[s->session],
                             bytes(p->spec->key[s->key]), s->yes, s->ms, 0);
    compare(p, s, got, wanted);
    if (got == SL_WAITS) wait_in(p, step);
    else if (got == SLUICE_OK || got == SLUICE_EFULL)
        answer(p, step, got == SLUICE_OK ? "1" : "0");
    else answer(p, step, sluice_status_word(got));
}

static void answer_number(struct play *p, int step, int64_t got, int64_t wanted)
{
    char text[ANSWER_BYTES];
    compare(p, &p->spec->step[step], got, wanted);
    snprintf(text, sizeof text, "%lld", (long long)got);
    answer(p, step, text);
}

static void release(struct play *p, int step, sl_fence fence)
{
    const struct step *s = &p->spec->step[step];
    struct sl_ended past;
    int wanted = model_release(&p->model, p->now.ms, s, fence);
    int got = sl_table_release(p->table, p->now, &p->session[s->session],
                               bytes(p->spec->key[s->key]), fence, &past);
    answer_number(p, step, got, wanted);
    if (got == 1) event(p, s->key, "released", past.fence, "");
}

static void extend(struct play *p, int step, sl_fence fence)
{
    const struct step *s = &p->spec->step[step];
    sl_ms left = 0, wanted_left = 0;
    int wanted = model_extend(&p->model, p->now.ms, s, fence, &wanted_left);
    int got = sl_table_extend(p->table, p->now, &p->session[s->session],
                              bytes(p->spec->key[s->key]), fence, s->ms,
                              (struct sl_bytes){0}, &left);
    compare(p, s, got, wanted);
    if (got != SLUICE_OK) {
        answer(p, step, sluice_status_word(got));
        return;
    }
    compare(p, s, left, wanted_left);
    /* A lease that already ends later: how much is left depends on the clock. */
    answer(p, step, left == s->ms ? "extended" : "longer");
    event(p, s->key, "extended", fence, "");
}

static void break_grant(struct play *p, int step, sl_fence fence)
{
    const struct step *s = &p->spec->step[step];
    struct sl_ended past;
    bool again = model_broken(&p->model, fence);
    int wanted = model_break(&p->model, p->now.ms, s, fence);
    int got = sl_table_break(p->table, p->now, bytes(p->spec->key[s->key]), fence,
                             s->yes, &past);
    answer_number(p, step, got, wanted);
    if (got == 2) event(p, s->key, "broken", fence, "");
    if (got == 1 && !again) event(p, s->key, "broken", fence, " why=last-lease");
}

static void cancel(struct play *p, int step)
{
    const struct step *s = &p->spec->step[step];
    struct sl_ended past;
    int wanted = model_cancel(&p->model, p->now.ms, s);
    int got = sl_table_cancel(p->table, p->now, &p->session[s->session],
                              bytes(p->spec->key[s->key]), id_of(p, s), &past);
    answer_number(p, step, got, wanted);
    if (got == 2) event(p, s->key, "released", past.fence, "");
}

static void drain(struct play *p, int step)
{
    const struct step *s = &p->spec->step[step];
    int wanted = model_drain(&p->model, s);
    int got = sl_table_drain(p->table, bytes(s->pattern), s->yes);
    answer_number(p, step,
                  got == SLUICE_OK       ? 1
                  : got == SLUICE_ENOENT ? 0
                                         : got,
                  wanted);
}

static void hang_up(struct play *p, int step)
{
    int session = p->spec->step[step].session, waited = p->waiting[session];
    model_hang_up(&p->model, session);
    if (waited >= 0 && p->spec->step[waited].id >= 0) {
        const struct step *w = &p->spec->step[waited];
        sl_table_lose(p->table, p->now, &p->session[session], (uint64_t)waited + 1,
                      bytes(p->spec->key[w->key]), id_of(p, w));
    }
    if (waited >= 0) snprintf(p->answer[waited], ANSWER_BYTES, "waited,gone");
    sl_table_session_end(p->table, &p->session[session]);
    answer(p, step, "gone");
}

static void pass(struct play *p, int step)
{
    char text[ANSWER_BYTES];
    advance(p, p->spec->step[step].ms);
    snprintf(text, sizeof text, "+%lld ms", (long long)p->spec->step[step].ms);
    answer(p, step, text);
}

static void carry_out(struct play *p, int step)
{
    const struct step *s = &p->spec->step[step];
    sl_fence fence = s->fence_of < 0 ? 0 : p->fence[s->fence_of];
    if (s->fence_of >= 0 && fence == 0) {
        answer(p, step, "unnamed"); /* No step has received such a fence. */
        return;
    }
    switch (s->deed) {
        case ACQUIRE: acquire(p, step); break;
        case RELEASE: release(p, step, fence); break;
        case EXTEND: extend(p, step, fence); break;
        case CHECK:
            answer_number(
                p, step,
                sl_table_holds(p->table, p->now, bytes(p->spec->key[s->key]), fence),
                model_check(&p->model, p->now.ms, s, fence));
            break;
        case AWAIT: await(p, step); break;
        case BREAK: break_grant(p, step, fence); break;
        case CANCEL: cancel(p, step); break;
        case DRAIN: drain(p, step); break;
        case HANG_UP: hang_up(p, step); break;
        case TIME: pass(p, step); break;
    }
}

static int step_after(const struct spec *s, int session, int step)
{
    do step++;
    while (step < s->steps && s->step[step].session != session);
    return step;
}

void play_step(struct play *p, int step, bool untold)
{
    const struct step *s = &p->spec->step[step];
    char words[64];
    if (p->turns == TURNS_MAX) spec_wrong(p->spec, 0, "too many turns");
    p->turn[p->turns++] = (struct turn){.step = step, .untold = untold};
    p->next[s->session] = step_after(p->spec, s->session, step);
    carry_out(p, step);
    SAY(p, "    %s%-*s  %s\n", s->name, 4 - (int)strlen(s->name), untold ? "+" : "",
        words_of(p, step, words));
    look(p);
    check(p);
    p->pending = untold;
    if (!untold) play_tell(p);
}

int play_can(const struct play *p, int steps[SESSIONS_MAX])
{
    int n = 0;
    for (int i = 0; i < p->spec->sessions; i++) {
        int step = p->next[i];
        if (step >= p->spec->steps || p->model.gone[i]) continue;
        if (p->waiting[i] >= 0 && p->spec->step[step].deed != HANG_UP) continue;
        steps[n++] = step;
    }
    return n;
}

/* --- Beginning and end ---------------------------------------------------- */

void play_begin(struct play *p, const struct spec *s)
{
    const struct sl_table_limits limits = {.keys_max = 100,
                                           .waiters_max = 100,
                                           .key_bytes_max = 100,
                                           .value_bytes_max = 100,
                                           .drains_max = DRAINS_MAX,
                                           .requests_max = 100,
                                           .request_keep_ms = 3600000,
                                           .linger_ms = 3600000};
    *p = (struct play){.spec = s, .model = {.spec = s}};
    p->now = (struct sl_now){.ms = 1000000, .wall_us = 1700000000000000};
    p->table = sl_table_new(&limits, (struct sl_hash_key){42, 0});
    if (p->table == NULL) abort();
    for (int i = 0; i < s->sessions; i++) {
        sl_session_begin(&p->session[i], (uint64_t)i + 1, 1);
        p->next[i] = step_after(s, i, -1);
        p->waiting[i] = -1;
    }
}

static void look_at_end(struct play *p)
{
    int waiting = 0;
    for (int i = 0; i < p->spec->sessions; i++) waiting += p->waiting[i] >= 0;
    for (int i = 0; i < p->spec->properties; i++) {
        const struct property *q = &p->spec->property[i];
        bool broken = (q->kind == NOBODY_WAITS && waiting > 0) ||
                      (q->kind == NOBODY_HOLDS &&
                       model_holders(&p->model, p->now.ms, q->key) > 0);
        if (broken) model_wrong(&p->model, "not so: %s", q->text);
    }
}

/* All sessions end, all leases expire, and every key can be granted again. */
static void leave(struct play *p)
{
    struct sl_effect e;
    struct sl_table_stats stats;
    for (int i = 0; i < p->model.drains; i++)
        sl_table_drain(p->table, bytes(p->model.drain[i]), false);
    for (int i = 0; i < p->spec->sessions; i++)
        sl_table_session_end(p->table, &p->session[i]);
    while (sl_table_next(p->table, p->now, &e)) {}
    while (sl_table_due(p->table) != SL_NEVER) {
        advance(p, sl_table_due(p->table) - p->now.ms);
        while (sl_table_next(p->table, p->now, &e)) {}
    }
    check(p);
    sl_table_stats(p->table, &stats);
    if (stats.entries > 0 || stats.keys > 0)
        model_wrong(&p->model, "%zu keys and %zu entries are left of nobody",
                    stats.keys, stats.entries);
}

void play_end(struct play *p)
{
    look_at_end(p);
    for (int i = 0; i < p->spec->keys; i++)
        if (p->events[i][0] != '\0')
            SAY(p, "    lock:%s  %s\n", p->spec->key[i], p->events[i]);
    for (int i = 0; i < p->spec->sessions; i++)
        if (p->waiting[i] >= 0)
            SAY(p, "    still waiting: %s\n", p->spec->step[p->waiting[i]].name);
    if (p->model.wrong[0] == '\0') leave(p);
    sl_table_free(p->table);
    p->table = NULL;
}

void play_outcome(const struct play *p, char *out, size_t room)
{
    out[0] = '\0';
    for (int i = 0; i < p->spec->steps; i++) {
        const char *a = p->answer[i];
        if (p->spec->step[i].deed == TIME) continue;
        add(p->spec, out, room, "%s%s=%s", i == 0 ? "" : " ", p->spec->step[i].name,
            a[0] == '\0' ? "-" : a);
    }
}

void play_order(const struct play *p, char *out, size_t room)
{
    out[0] = '\0';
    for (int i = 0; i < p->turns; i++)
        add(p->spec, out, room, "%s%s%s", i == 0 ? "" : " ",
            p->spec->step[p->turn[i].step].name, p->turn[i].untold ? "+" : "");
}
