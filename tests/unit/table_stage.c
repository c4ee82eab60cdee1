/* table_stage.c - see table_stage.h. */
#include "table_stage.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* --- What was said ---------------------------------------------------------------- */

struct sl_bytes bytes(const char *s)
{
    return (struct sl_bytes){s, strlen(s)};
}

char name_of(const struct stage *s, const struct sl_session *session)
{
    return (char)('a' + (session - s->session));
}

void say(struct stage *s, const char *format, ...)
{
    size_t n = strlen(s->said);
    va_list args;
    va_start(args, format);
    vsnprintf(s->said + n, sizeof s->said - n, format, args);
    va_end(args);
}

static const char *word_of(enum sl_effect_type type)
{
    switch (type) {
        case SL_EFFECT_NOTHING: return "nothing";
        case SL_EFFECT_THIEF_WAITS: return "waits for";
        case SL_EFFECT_GRANTED: return "granted";
        case SL_EFFECT_TIMED_OUT: return "timed out";
        case SL_EFFECT_EXPIRED: return "expired";
        case SL_EFFECT_ENDED: return "ended";
        case SL_EFFECT_REFUSED: return "refused";
        case SL_EFFECT_CANCELLED: return "cancelled";
        case SL_EFFECT_SEEN: return "sees";
        case SL_EFFECT_ASKED: return "asked";
        case SL_EFFECT_WITHDRAWN: return "withdrawn";
        case SL_EFFECT_STOLEN: return "stolen";
        case SL_EFFECT_SESSION_OVER: return "over";
    }
    return "?";
}

void tell_word(struct stage *s, const struct sl_effect *e)
{
    say(s, "%c %s %.*s\n", e->session != NULL ? name_of(s, e->session) : '-',
        word_of(e->type), (int)e->key.n, e->key.at);
}

void tell_release(struct stage *s, char who, int answer, const struct sl_ended *past)
{
    (void)past;
    say(s, "%c releases %d\n", who, answer);
}

/* --- Life ----------------------------------------------------------------------- */

struct stage *stage_open(uint32_t waiters_max, sl_ms grain_ms)
{
    const struct sl_table_limits limits = {.keys_max = 1000,
                                           .waiters_max = waiters_max,
                                           .key_bytes_max = 100,
                                           .value_bytes_max = 100,
                                           .drains_max = 2,
                                           .requests_max = 20,
                                           .request_keep_ms = 1000,
                                           .linger_ms = 100,
                                           .grain_ms = grain_ms};
    struct stage *s = calloc(1, sizeof *s);
    s->table = sl_table_new(&limits, (struct sl_hash_key){42, 0});
    s->now.wall_us = 1000;
    s->tell = tell_word;
    s->tell_release = tell_release;
    for (uint32_t i = 0; i < SESSIONS; i++)
        sl_session_begin(&s->session[i], i + 1, i < 6 ? 1 : 2);
    return s;
}

void stage_end(struct stage *s)
{
    struct sl_table_stats stats;
    for (int i = 0; i < SESSIONS; i++) sl_table_session_end(s->table, &s->session[i]);
    s->now.ms += 1000000;
    settle(s);
    sl_table_stats(s->table, &stats);
    assert_int_equal(stats.entries, 0);
    assert_int_equal(stats.keys, 0);
    sl_table_free(s->table);
    free(s);
}

/* --- Steps ---------------------------------------------------------------------- */

void settle(struct stage *s)
{
    struct sl_effect e;
    while (sl_table_next(s->table, s->now, &e)) {
        if (e.type == SL_EFFECT_GRANTED)
            s->last[e.session - s->session] = e.grant.fence;
        if (e.type != SL_EFFECT_NOTHING) s->tell(s, &e);
    }
    sl_table_check(s->table);
}

static struct sl_want whole(struct sl_want w)
{
    if (w.per == 0 && !w.shared) w.per = 1;
    if (w.buckets == 0 && !w.shared) w.buckets = 1;
    if (w.units == 0) w.units = 1;
    if (w.key.n == 0) w.key = bytes("k");
    return w;
}

void ask_only(struct stage *s, char who, struct sl_want w)
{
    struct sl_session *session = &s->session[who - 'a'];
    struct sl_grant g;
    w = whole(w);
    int judged = s->judges ? sl_table_judge(s->table, s->now, session, &w) : 0;
    int status = sl_table_acquire(s->table, s->now, session, &w, &g);
    if (s->judges && status != SLUICE_EDEADLOCK) assert_int_equal(judged, status);
    if (status == SLUICE_OK) {
        s->last[who - 'a'] = g.fence;
        say(s, "%c held %d%s\n", who, (int)g.held, g.overlapping ? " overlapping" : "");
    } else if (status == SL_WAITS) say(s, "%c waits\n", who);
    else say(s, "%c %s\n", who, sluice_status_word(status));
}

void ask(struct stage *s, char who, struct sl_want w)
{
    ask_only(s, who, w);
    settle(s);
}

void release_only(struct stage *s, char who, sl_fence fence)
{
    struct sl_ended past;
    int answer = sl_table_release(s->table, s->now, &s->session[who - 'a'], bytes("k"),
                                  fence, &past);
    s->tell_release(s, who, answer, &past);
}

void release(struct stage *s, char who, sl_fence fence)
{
    release_only(s, who, fence);
    settle(s);
}

void end(struct stage *s, char who)
{
    sl_table_session_end(s->table, &s->session[who - 'a']);
    settle(s);
}

void pass(struct stage *s, sl_ms ms)
{
    s->now.ms += ms;
    s->now.wall_us += (uint64_t)ms * 1000;
    if (s->says_time) say(s, "[%d]\n", (int)s->now.ms);
    settle(s);
}

struct sl_grant_view grant(sl_fence fence, sl_ms left_ms)
{
    return (struct sl_grant_view){.leased = true,
                                  .fence = fence,
                                  .user = 1,
                                  .units = 1,
                                  .per = 1,
                                  .buckets = 1,
                                  .left_ms = left_ms};
}

void stage_leave(struct stage **s)
{
    stage_end(*s);
}
