/* table_stage.h - a fixture for the lock table: sessions, a clock that the test moves, and a
 * transcript.
 *
 *     STAGE s = stage_open(100, 0);
 *     ASK('a', .lease_ms = 10);
 *     ASK('b', .wait_ms = 50);
 *     pass(s, 10);
 *     SAID("a held 1\nb waits\n- expired k\nb granted k\n");
 *
 * `said` has what each session was told, in that order. A test may set `tell` and the functions
 * below it to word effects in its own way. Every step ends with sl_table_check(). */
#ifndef SLUICE_TEST_TABLE_STAGE_H
#define SLUICE_TEST_TABLE_STAGE_H

#include "test.h"

#include "locks/table.h"

enum { SESSIONS = 8 };

struct stage {
    struct sl_table *table;
    struct sl_session session[SESSIONS]; /* "a", "b", ... with the ids 1, 2, ... */
    struct sl_now now;
    sl_fence last[SESSIONS]; /* The last fence that each was told. */
    /* Says an effect, unless it is SL_EFFECT_NOTHING; if not set, tell_word(). */
    void (*tell)(struct stage *s, const struct sl_effect *e);
    /* Says what became of a release: 1, and what was held, or 0; if not set,
     * tell_release(). */
    void (*tell_release)(struct stage *s, char who, int answer,
                         const struct sl_ended *past);
    bool says_time; /* pass() says what time it is. */
    bool judges;    /* Compare each acquire with sl_table_judge() before it. */
    char said[4096];
};

/* With at most this many waiters of a key, and a clock that may be late by so much. "g" and "h" are
 * of another user than the others. */
struct stage *stage_open(uint32_t waiters_max, sl_ms grain_ms);

/* All leave, and all leases expire; then nothing may be left. */
void stage_end(struct stage *s);

/* A stage that ends with its block. */
#define STAGE __attribute__((cleanup(stage_leave))) struct stage *
void stage_leave(struct stage **s);

/* --- Steps ---------------------------------------------------------------------- */

/* Defaults of the request: one unit, a capacity of one, the key "k". */
void ask(struct stage *s, char who, struct sl_want w);
#define ASK(who, ...) ask(s, who, (struct sl_want){__VA_ARGS__})

/* Releases a grant of "k"; 0: the newest. */
void release(struct stage *s, char who, sl_fence fence);

/* Without settling: what follows has not been asked for yet. */
void ask_only(struct stage *s, char who, struct sl_want w);
void release_only(struct stage *s, char who, sl_fence fence);

/* The session ends. */
void end(struct stage *s, char who);
void pass(struct stage *s, sl_ms ms);
/* Tell all that follows. */
void settle(struct stage *s);

/* A record of a grant: one unit of a mutex, leased to the first user. */
struct sl_grant_view grant(sl_fence fence, sl_ms left_ms);

/* --- Transcript ------------------------------------------------------------ */

struct sl_bytes bytes(const char *s);
char name_of(const struct stage *s, const struct sl_session *session);
void say(struct stage *s, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* The session ("-": none), a word, and the key. */
void tell_word(struct stage *s, const struct sl_effect *e);
void tell_release(struct stage *s, char who, int answer, const struct sl_ended *past);

/* This was said since the last SAID(). */
#define SAID(text)                          \
    do {                                    \
        assert_string_equal(s->said, text); \
        s->said[0] = '\0';                  \
    } while (0)

#endif /* SLUICE_TEST_TABLE_STAGE_H */
