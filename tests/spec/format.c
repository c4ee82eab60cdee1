#include "format.h"

#include <ctype.h>
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void spec_wrong(const struct spec *s, int line, const char *format, ...)
{
    char why[200];
    va_list args;
    va_start(args, format);
    vsnprintf(why, sizeof why, format, args);
    va_end(args);
    printf("Bail out! %s:%d: %s\n", s->path, line, why);
    exit(2);
}

/* --- Words ---------------------------------------------------------------- */

/* The words of a line, one after the other. */
struct words {
    const struct spec *spec;
    int line;
    char text[200];
    char *at;
};

static struct words words_of(const struct spec *s, int line, const char *text)
{
    struct words w = {.spec = s, .line = line};
    if (strlen(text) >= sizeof w.text) spec_wrong(s, line, "this line is too long");
    snprintf(w.text, sizeof w.text, "%s", text);
    return w;
}

/* The next word, or NULL. */
static const char *word(struct words *w)
{
    if (w->at == NULL) w->at = w->text;
    w->at += strspn(w->at, " ");
    if (*w->at == '\0') return NULL;
    char *start = w->at;
    w->at += strcspn(start, " ");
    if (*w->at != '\0') *w->at++ = '\0';
    return start;
}

static const char *need_word(struct words *w, const char *what)
{
    const char *found = word(w);
    if (found == NULL) spec_wrong(w->spec, w->line, "%s is missing", what);
    return found;
}

static void no_more(struct words *w)
{
    const char *more = word(w);
    if (more != NULL) spec_wrong(w->spec, w->line, "what is \"%s\"?", more);
}

static int64_t number(struct words *w, const char *what)
{
    const char *text = need_word(w, what);
    char *end;
    errno = 0;
    long long n = strtoll(text, &end, 10);
    if (errno != 0 || *end != '\0' || end == text)
        spec_wrong(w->spec, w->line, "%s is \"%s\", and not a number", what, text);
    return n;
}

static void copy_name(struct words *w, char out[NAME_BYTES], const char *name)
{
    if (strlen(name) >= NAME_BYTES)
        spec_wrong(w->spec, w->line, "\"%s\" is too long", name);
    snprintf(out, NAME_BYTES, "%s", name);
}

static int find_step(const struct spec *s, const char *name)
{
    for (int i = 0; i < s->steps; i++)
        if (strcmp(s->step[i].name, name) == 0) return i;
    return -1;
}

static int need_step(struct words *w, const char *name)
{
    int step = find_step(w->spec, name);
    if (step < 0) spec_wrong(w->spec, w->line, "there is no step \"%s\"", name);
    return step;
}

static int key_of(struct spec *s, struct words *w)
{
    const char *name = need_word(w, "the key");
    for (int i = 0; i < s->keys; i++)
        if (strcmp(s->key[i], name) == 0) return i;
    if (s->keys == KEYS_MAX) spec_wrong(s, w->line, "too many keys");
    copy_name(w, s->key[s->keys], name);
    return s->keys++;
}

static int id_of(struct spec *s, struct words *w)
{
    const char *name = need_word(w, "the id");
    for (int i = 0; i < s->ids; i++)
        if (strcmp(s->id[i], name) == 0) return i;
    if (s->ids == IDS_MAX) spec_wrong(s, w->line, "too many ids");
    copy_name(w, s->id[s->ids], name);
    return s->ids++;
}

/* --- Steps ---------------------------------------------------------------- */

/* $a1: the fence that step a1 received. That step may come later in the file. */
static void read_fence(struct words *w, const char *text, char later[NAME_BYTES])
{
    if (text[0] != '$') spec_wrong(w->spec, w->line, "\"%s\" is not a fence", text);
    copy_name(w, later, text + 1);
}

static void read_acquire(struct spec *s, struct words *w, struct step *step)
{
    struct sl_want *want = &step->want;
    *want = (struct sl_want){.per = 1, .buckets = 1, .units = 1};
    for (const char *o; (o = word(w)) != NULL;) {
        if (strcmp(o, "SHARED") == 0) want->shared = true;
        else if (strcmp(o, "PER") == 0) want->per = (uint32_t)number(w, o);
        else if (strcmp(o, "BUCKETS") == 0) want->buckets = (uint32_t)number(w, o);
        else if (strcmp(o, "UNITS") == 0) want->units = (uint32_t)number(w, o);
        else if (strcmp(o, "WAIT") == 0) want->wait_ms = number(w, o);
        else if (strcmp(o, "LEASE") == 0) want->lease_ms = number(w, o);
        else if (strcmp(o, "PRIORITY") == 0) want->priority = (int32_t)number(w, o);
        else if (strcmp(o, "REQUEST") == 0) step->id = id_of(s, w);
        else spec_wrong(w->spec, w->line, "ACQUIRE has no option %s", o);
    }
    /* All options but WAIT. */
    want->digest = (uint64_t)want->lease_ms * 64 + want->units * 8 + want->per * 2 +
                   want->shared;
}

/* One of two words. */
static bool yes_or_no(struct words *w, const char *yes, const char *no)
{
    const char *found = need_word(w, yes);
    if (strcmp(found, yes) != 0 && strcmp(found, no) != 0)
        spec_wrong(w->spec, w->line, "\"%s\" is neither %s nor %s", found, yes, no);
    return strcmp(found, yes) == 0;
}

static enum deed deed_of(struct words *w, const char *name)
{
    static const char *const names[] = {
        [ACQUIRE] = "ACQUIRE", [RELEASE] = "RELEASE", [EXTEND] = "EXTEND",
        [CHECK] = "CHECK",     [AWAIT] = "AWAIT",     [BREAK] = "BREAK",
        [CANCEL] = "CANCEL",   [DRAIN] = "DRAIN",     [HANG_UP] = "hang",
        [TIME] = "time",
    };
    for (int i = 0; i <= TIME; i++)
        if (strcmp(names[i], name) == 0) return (enum deed)i;
    spec_wrong(w->spec, w->line, "there is no command %s", name);
}

/* What follows the name of the command; `later` is the step of its fence, if any. */
static void read_arguments(struct spec *s, struct words *w, struct step *step,
                           char later[NAME_BYTES])
{
    const char *text;
    switch (step->deed) {
        case ACQUIRE: read_acquire(s, w, step); break;
        case RELEASE:
            if ((text = word(w)) != NULL) read_fence(w, text, later);
            break;
        case EXTEND:
            read_fence(w, need_word(w, "the fence"), later);
            step->ms = number(w, "the lease");
            break;
        case CHECK: read_fence(w, need_word(w, "the fence"), later); break;
        case AWAIT:
            step->yes = yes_or_no(w, "FREE", "HELD");
            step->ms = number(w, "the wait");
            break;
        case BREAK:
            read_fence(w, need_word(w, "the fence"), later);
            if ((text = word(w)) != NULL) step->yes = strcmp(text, "NOW") == 0;
            break;
        case CANCEL: step->id = id_of(s, w); break;
        case DRAIN:
            copy_name(w, step->pattern, need_word(w, "the pattern"));
            step->yes = yes_or_no(w, "ON", "OFF");
            break;
        case HANG_UP: yes_or_no(w, "up", "up"); break;
        case TIME:
            step->ms = number(w, "the time");
            if (!s->timed) spec_wrong(s, w->line, "time passes in a timed file only");
            break;
    }
}

static void read_step(struct spec *s, struct words *w, char later[NAME_BYTES])
{
    if (s->sessions == 0) spec_wrong(s, w->line, "a step without a session");
    if (s->steps == STEPS_MAX) spec_wrong(s, w->line, "too many steps");
    struct step *step = &s->step[s->steps];
    *step = (struct step){
        .session = s->sessions - 1, .key = -1, .id = -1, .fence_of = -1};
    const char *name = need_word(w, "the name");
    if (find_step(s, name) >= 0) spec_wrong(s, w->line, "a second step %s", name);
    if (name[0] == 'f' && isdigit((unsigned char)name[1]))
        spec_wrong(s, w->line, "%s is the name of a fence", name);
    copy_name(w, step->name, name);
    step->deed = deed_of(w, need_word(w, "the command"));
    if (step->deed < DRAIN) step->key = key_of(s, w);
    read_arguments(s, w, step, later);
    no_more(w);
    s->steps++;
}

/* --- Properties and trials ------------------------------------------------ */

static void read_property(struct spec *s, int line, const char *text)
{
    if (s->properties == PROPERTIES_MAX) spec_wrong(s, line, "too many properties");
    struct property *p = &s->property[s->properties++];
    *p = (struct property){.key = -1, .step = -1};
    snprintf(p->text, sizeof p->text, "%s", text);
    struct words w = words_of(s, line, strchr(text, ':') + 1);
    const char *first = need_word(&w, "the property");
    bool never = strncmp(text, "never:", 6) == 0;
    if (never && strcmp(first, "two") == 0) {
        p->kind = TWO_HOLD;
        yes_or_no(&w, "hold", "hold");
        p->key = key_of(s, &w);
    } else if (never && strcmp(first, "more") == 0) {
        p->kind = MORE_UNITS;
        yes_or_no(&w, "than", "than");
        p->units = (uint64_t)number(&w, "how many");
        yes_or_no(&w, "units", "units");
        yes_or_no(&w, "of", "of");
        p->key = key_of(s, &w);
    } else if (never) {
        p->kind = STEP_IS;
        p->step = need_step(&w, first);
        yes_or_no(&w, "is", "is");
        snprintf(p->answer, sizeof p->answer, "%s", need_word(&w, "the answer"));
    } else {
        if (strcmp(first, "nobody") != 0) spec_wrong(s, line, "write nobody");
        p->kind = yes_or_no(&w, "holds", "waits") ? NOBODY_HOLDS : NOBODY_WAITS;
        char rest[200];
        snprintf(rest, sizeof rest, "%s", w.at != NULL ? w.at : "");
        if (p->kind == NOBODY_HOLDS && rest[strspn(rest, " ")] != '\0')
            p->key = key_of(s, &w);
    }
    no_more(&w);
}

static struct trial *new_trial(struct spec *s, int line)
{
    if (s->trials == TRIALS_MAX) spec_wrong(s, line, "too many permutations");
    struct trial *t = &s->trial[s->trials++];
    *t = (struct trial){.line = line};
    return t;
}

/* permutation NAME: STEP STEP+ STEP */
static void read_named(struct spec *s, int line, const char *text)
{
    struct trial *t = new_trial(s, line);
    const char *name = text + strlen("permutation "), *colon = strrchr(text, ':');
    if (colon == NULL || colon <= name) spec_wrong(s, line, "permutation NAME: STEPS");
    snprintf(t->name, sizeof t->name, "%.*s", (int)(colon - name), name);
    struct words w = words_of(s, line, colon + 1);
    for (const char *found; (found = word(&w)) != NULL;) {
        char step[NAME_BYTES];
        copy_name(&w, step, found);
        size_t n = strlen(step);
        if (t->turns == TURNS_MAX) spec_wrong(s, line, "too many steps");
        struct turn *turn = &t->turn[t->turns++];
        turn->untold = step[n - 1] == '+';
        if (turn->untold) step[n - 1] = '\0';
        turn->step = need_step(&w, step);
    }
    if (t->turns == 0) spec_wrong(s, line, "no steps");
    if (t->turn[t->turns - 1].untold) spec_wrong(s, line, "the last must be told");
}

static void read_all(struct spec *s, int line, const char *text)
{
    struct trial *t = new_trial(s, line);
    const char *which = text + strlen("permutations: ");
    t->all = true;
    t->untold = strcmp(which, "untold") == 0;
    if (!t->untold && strcmp(which, "all") != 0)
        spec_wrong(s, line, "permutations are all or untold");
    snprintf(t->name, sizeof t->name, "%s", which);
}

/* --- Files ---------------------------------------------------------------- */

static bool begins(const char *text, const char *with)
{
    return strncmp(text, with, strlen(with)) == 0;
}

/* A line that does not begin with a space. */
static void read_head(struct spec *s, int line, const char *text)
{
    if (strcmp(text, "timed") == 0) s->timed = true;
    else if (begins(text, "session ")) {
        if (s->sessions == SESSIONS_MAX) spec_wrong(s, line, "too many sessions");
        struct words w = words_of(s, line, text + strlen("session "));
        copy_name(&w, s->session[s->sessions++], need_word(&w, "the name"));
        no_more(&w);
    } else if (begins(text, "never: ") || begins(text, "at the end: "))
        read_property(s, line, text);
    else if (begins(text, "permutation ")) read_named(s, line, text);
    else if (begins(text, "permutations: ")) read_all(s, line, text);
    else spec_wrong(s, line, "what is \"%s\"?", text);
}

static void read_lines(struct spec *s)
{
    char later[STEPS_MAX][NAME_BYTES] = {{0}};
    int at[STEPS_MAX] = {0};
    for (int i = 0; i < s->lines; i++) {
        const char *text = s->line[i];
        if (text[0] == '\0' || text[0] == '#') continue;
        if (text[0] != ' ') read_head(s, i + 1, text);
        else if (s->trials > 0) {
            struct trial *t = &s->trial[s->trials - 1];
            if (t->line + t->lines++ != i)
                spec_wrong(s, i + 1, "to what belongs this?");
        } else {
            struct words w = words_of(s, i + 1, text);
            at[s->steps] = i + 1;
            read_step(s, &w, later[s->steps]);
        }
    }
    for (int i = 0; i < s->steps; i++) {
        if (later[i][0] == '\0') continue;
        s->step[i].fence_of = find_step(s, later[i]);
        if (s->step[i].fence_of < 0) spec_wrong(s, at[i], "no step %s", later[i]);
    }
}

static void read_text(struct spec *s, FILE *f)
{
    char text[512];
    while (fgets(text, sizeof text, f) != NULL) {
        size_t n = strlen(text);
        while (n > 0 && isspace((unsigned char)text[n - 1])) text[--n] = '\0';
        if (s->lines == LINES_MAX) spec_wrong(s, s->lines, "too many lines");
        s->line[s->lines++] = strdup(text);
    }
}

struct spec *spec_read(const char *path)
{
    struct spec *s = calloc(1, sizeof *s);
    if (s == NULL) abort();
    s->path = path;
    const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path;
    snprintf(s->name, sizeof s->name, "%.*s", (int)strcspn(name, "."), name);
    FILE *f = fopen(path, "r");
    if (f == NULL) spec_wrong(s, 0, "%s", strerror(errno));
    read_text(s, f);
    fclose(f);
    read_lines(s);
    if (s->trials == 0) spec_wrong(s, 0, "there is nothing to try");
    return s;
}

void spec_free(struct spec *s)
{
    for (int i = 0; i < s->lines; i++) free(s->line[i]);
    free(s);
}
