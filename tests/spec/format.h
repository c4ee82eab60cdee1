/* format.h - a .spec file, as read. README.md has the format.
 *
 * A spec is a value that does not change after it was read. An error in a file ends the program
 * with the file, the line and the reason: a spec that is not understood must not pass. */
#ifndef SLUICE_TEST_FORMAT_H
#define SLUICE_TEST_FORMAT_H

#include <stdbool.h>
#include <stdint.h>

#include "locks/table.h"

enum {
    SESSIONS_MAX = 6,
    STEPS_MAX = 24, /* Of all sessions of a file. */
    KEYS_MAX = 4,
    IDS_MAX = 4,
    TURNS_MAX = 32,
    TRIALS_MAX = 16,
    PROPERTIES_MAX = 16,
    LINES_MAX = 400,
    NAME_BYTES = 16,
};

enum deed {
    ACQUIRE,
    RELEASE,
    EXTEND,
    CHECK,
    AWAIT,
    BREAK,
    CANCEL,
    DRAIN,
    HANG_UP,
    TIME
};

struct step {
    char name[NAME_BYTES];
    int session;
    enum deed deed;
    int key; /* In spec.keys; of DRAIN, a pattern, -1. */
    char pattern[NAME_BYTES];
    struct sl_want want; /* Of ACQUIRE, but for the key and the id. */
    int id;              /* In spec.ids: of ACQUIRE .. REQUEST and CANCEL; -1: none. */
    int fence_of;        /* The step whose fence it names, or -1. */
    sl_ms ms;            /* Of EXTEND, AWAIT and TIME. */
    bool yes;            /* AWAIT .. FREE, BREAK .. NOW, DRAIN .. ON */
};

/* One turn of an interleaving. Untold: its effects are fetched after the next step. */
struct turn {
    int step;
    bool untold;
};

/* A `permutation` or `permutations` of a file and what is expected of it. */
struct trial {
    int line; /* Of its head; what is expected stands in the `lines` after it. */
    int lines;
    bool all, untold;
    char name[80];
    int turns;
    struct turn turn[TURNS_MAX];
};

enum property_kind {
    TWO_HOLD,     /* never: two hold KEY */
    MORE_UNITS,   /* never: more than N units of KEY */
    STEP_IS,      /* never: STEP is ANSWER */
    NOBODY_HOLDS, /* at the end: nobody holds [KEY] */
    NOBODY_WAITS, /* at the end: nobody waits */
};

struct property {
    enum property_kind kind;
    int key; /* -1: any. */
    int step;
    uint64_t units;
    char answer[32];
    char text[80]; /* As it stands in the file. */
};

struct spec {
    const char *path;
    char name[64]; /* Of the file, without directory and extension. */
    bool timed;    /* Time passes by itself when no session can continue. */
    int sessions, steps, keys, ids, trials, properties, lines;
    char session[SESSIONS_MAX][NAME_BYTES];
    char key[KEYS_MAX][NAME_BYTES];
    char id[IDS_MAX][NAME_BYTES];
    struct step step[STEPS_MAX];
    struct trial trial[TRIALS_MAX];
    struct property property[PROPERTIES_MAX];
    char *line[LINES_MAX]; /* The file itself, without ends of lines. */
};

/* Reads a file. Borrows the path for the life of the spec. */
struct spec *spec_read(const char *path);
void spec_free(struct spec *s);

/* Ends the program. Line 0: of no line. */
_Noreturn void spec_wrong(const struct spec *s, int line, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

#endif /* SLUICE_TEST_FORMAT_H */
