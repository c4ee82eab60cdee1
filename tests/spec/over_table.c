/* over_table.c - the interleavings of .spec files, over the lock table itself.
 *
 *     over_table FILE.spec...                 TAP: a line for each permutation(s)
 *     over_table --unchecked FILE.spec...     the same; the table does not check itself
 *     over_table --update FILE.spec...        write the results into the files
 *     over_table --transcripts N FILE.spec    N interleavings of `permutations: all`
 *
 * Without threads, sockets and clocks: it plays every order in which the sessions can do their
 * steps, each from an empty table. README.md has the format. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "play.h"

enum {
    CHOICES_MAX = 2 * TURNS_MAX,
    ROWS_MAX = 2000,
    ROW_BYTES = 320,
    ORDER_BYTES = 256
};

#define DEADLINE_S 300

/* --- Every way to choose -------------------------------------------------- */

/* A run is the list of its choices. The next run changes the last one that can be. */
struct choices {
    int count, at;
    int taken[CHOICES_MAX], of[CHOICES_MAX];
};

static int choose(struct choices *c, int of)
{
    if (c->at == CHOICES_MAX) abort();
    if (c->at == c->count) {
        c->taken[c->count] = 0;
        c->of[c->count++] = of;
    }
    return c->taken[c->at++];
}

static bool next_run(struct choices *c)
{
    c->at = 0;
    while (c->count > 0 && c->taken[c->count - 1] + 1 == c->of[c->count - 1])
        c->count--;
    if (c->count == 0) return false;
    c->taken[c->count - 1]++;
    return true;
}

/* --- One run -------------------------------------------------------------- */

/* Shows where an invariant of the table was broken. */
static const struct play *playing;

static void on_abort(int number)
{
    char order[ORDER_BYTES];
    (void)number;
    if (playing == NULL) return;
    play_order(playing, order, sizeof order);
    printf("# aborted in %s after: %s\nBail out!\n", playing->spec->path, order);
    fflush(stdout);
}

/* Only after these can something follow that is not the step's own answer. */
static bool may_be_untold(const struct step *s)
{
    return s->deed == RELEASE || s->deed == BREAK || s->deed == DRAIN ||
           s->deed == HANG_UP || s->deed == TIME;
}

/* One interleaving, by choices. */
static void run_chosen(struct play *p, const struct trial *t, struct choices *c)
{
    int steps[SESSIONS_MAX];
    while (p->model.wrong[0] == '\0') {
        int n = play_can(p, steps);
        if (n > 0) {
            int step = steps[choose(c, n)];
            bool choice = t->untold && may_be_untold(&p->spec->step[step]);
            play_step(p, step, choice && choose(c, 2) == 1);
        } else if (p->pending) play_tell(p);
        else if (!p->spec->timed || !play_pass_time(p)) break;
    }
}

static bool can(const struct play *p, int step)
{
    int steps[SESSIONS_MAX];
    for (int i = play_can(p, steps); i > 0; i--)
        if (steps[i - 1] == step) return true;
    return false;
}

/* One that the file names. */
static void run_named(struct play *p, const struct trial *t)
{
    for (int i = 0; i < t->turns && p->model.wrong[0] == '\0'; i++) {
        int step = t->turn[i].step;
        while (p->spec->timed && !can(p, step) && play_pass_time(p)) {}
        if (!can(p, step))
            spec_wrong(p->spec, t->line, "it is not %s's turn",
                       p->spec->step[step].name);
        play_step(p, step, t->turn[i].untold);
    }
    while (p->spec->timed && p->model.wrong[0] == '\0' && play_pass_time(p)) {}
}

static void run(struct play *p, const struct spec *s, const struct trial *t,
                struct choices *c)
{
    play_begin(p, s);
    playing = p;
    if (t->all) run_chosen(p, t, c);
    else run_named(p, t);
    if (p->pending) play_tell(p);
    play_end(p);
    playing = NULL;
}

/* --- Outcomes -------------------------------------------------- */

/* Interleavings in which each step was answered the same. */
struct row {
    char outcome[ROW_BYTES];
    long count;
    uint32_t digest;         /* Of their transcripts. */
    char order[ORDER_BYTES]; /* The first of them. */
};

struct result {
    long runs;
    int rows;
    struct row *row;
    char *block; /* What should stand in the file. */
    char wrong[200];
    char order[ORDER_BYTES], said[SAID_BYTES]; /* Of what is wrong. */
};

static uint32_t digest(uint32_t d, const char *text)
{
    for (; *text != '\0'; text++) d = (d ^ (uint8_t)*text) * 16777619u;
    return d;
}

static void count_run(struct result *r, const struct play *p)
{
    char outcome[ROW_BYTES];
    int i = 0;
    play_outcome(p, outcome, sizeof outcome);
    while (i < r->rows && strcmp(r->row[i].outcome, outcome) != 0) i++;
    if (i == ROWS_MAX) spec_wrong(p->spec, 0, "too many outcomes");
    struct row *row = &r->row[i];
    if (i == r->rows) {
        r->rows++;
        *row = (struct row){.digest = 2166136261u};
        snprintf(row->outcome, sizeof row->outcome, "%s", outcome);
        play_order(p, row->order, sizeof row->order);
    }
    row->count++;
    row->digest = digest(row->digest, p->said);
    r->runs++;
}

static int by_outcome(const void *a, const void *b)
{
    const struct row *x = a, *y = b;
    return strcmp(x->outcome, y->outcome);
}

static void note_wrong(struct result *r, const struct play *p)
{
    snprintf(r->wrong, sizeof r->wrong, "%s", p->model.wrong);
    snprintf(r->said, sizeof r->said, "%s", p->said);
    play_order(p, r->order, sizeof r->order);
}

static void write_rows(struct result *r, FILE *f)
{
    qsort(r->row, (size_t)r->rows, sizeof *r->row, by_outcome);
    fprintf(f, "    %ld interleavings, %d outcomes\n", r->runs, r->rows);
    for (int i = 0; i < r->rows; i++)
        fprintf(f, "    %6ld  %08x  %s\n", r->row[i].count, r->row[i].digest,
                r->row[i].outcome);
}

static struct result try(const struct spec *s, const struct trial *t)
{
    struct result r = {.row = calloc(ROWS_MAX, sizeof *r.row)};
    struct choices c = {0};
    static struct play p;
    size_t bytes;
    FILE *f = open_memstream(&r.block, &bytes);
    if (r.row == NULL || f == NULL) abort();
    do {
        run(&p, s, t, &c);
        count_run(&r, &p);
        if (p.model.wrong[0] != '\0') note_wrong(&r, &p);
    } while (t->all && r.wrong[0] == '\0' && next_run(&c));
    if (t->all) write_rows(&r, f);
    else fputs(p.said, f);
    fclose(f);
    return r;
}

static void result_free(struct result *r)
{
    free(r->row);
    free(r->block);
}

/* --- TAP ------------------------------------------------------------------ */

/* What the file expects, as one text. */
static char *expected(const struct spec *s, const struct trial *t)
{
    char *text;
    size_t bytes;
    FILE *f = open_memstream(&text, &bytes);
    if (f == NULL) abort();
    for (int i = 0; i < t->lines; i++) fprintf(f, "%s\n", s->line[t->line + i]);
    fclose(f);
    return text;
}

static void comment(const char *head, const char *text)
{
    printf("# %s\n", head);
    while (*text != '\0') {
        int n = (int)strcspn(text, "\n");
        printf("#   %.*s\n", n, text);
        text += n + (text[n] == '\n');
    }
}

/* The rows that the file does not have, each with an interleaving that shows it. */
static void show_new_rows(const struct result *r, const char *wanted)
{
    for (int i = 0; i < r->rows; i++) {
        char line[ROW_BYTES + 32];
        const struct row *row = &r->row[i];
        snprintf(line, sizeof line, "    %6ld  %08x  %s\n", row->count, row->digest,
                 row->outcome);
        if (strstr(wanted, line) == NULL)
            printf("# new or changed:%s#   the first is %s\n", line, row->order);
    }
}

static bool report(const struct spec *s, const struct trial *t, const struct result *r,
                   int number)
{
    char *wanted = expected(s, t);
    bool good = r->wrong[0] == '\0' && strcmp(wanted, r->block) == 0;
    printf("%s %d - %s: %s", good ? "ok" : "not ok", number, s->name, t->name);
    if (t->all) printf(", %ld permutations", r->runs);
    printf("\n");
    if (r->wrong[0] != '\0') {
        printf("# %s:%d: %s\n# in %s\n", s->path, t->line, r->wrong, r->order);
        comment("where this was said:", r->said);
    } else if (!good) {
        printf("# %s:%d: not as expected\n", s->path, t->line);
        comment("expected:", wanted);
        comment("got:", r->block);
        if (t->all) show_new_rows(r, wanted);
    }
    free(wanted);
    return good;
}

static bool test_file(const char *path, int *number, long *runs)
{
    struct spec *s = spec_read(path);
    bool good = true;
    for (int i = 0; i < s->trials; i++) {
        struct result r = try(s, &s->trial[i]);
        if (!report(s, &s->trial[i], &r, ++*number)) good = false;
        *runs += r.runs;
        result_free(&r);
    }
    spec_free(s);
    return good;
}

/* --- Writing expectations ------------------------------------------------- */

static bool update_file(const char *path)
{
    struct spec *s = spec_read(path);
    char *text;
    size_t bytes;
    bool good = true;
    FILE *f = open_memstream(&text, &bytes);
    if (f == NULL) abort();
    int line = 0;
    for (int i = 0; i < s->trials; i++) {
        const struct trial *t = &s->trial[i];
        struct result r = try(s, t);
        while (line < t->line) fprintf(f, "%s\n", s->line[line++]);
        fputs(r.block, f);
        line += t->lines;
        if (r.wrong[0] != '\0') good = report(s, t, &r, i + 1);
        result_free(&r);
    }
    while (line < s->lines) fprintf(f, "%s\n", s->line[line++]);
    fclose(f);
    FILE *out = good ? fopen(path, "w") : NULL; /* What is wrong is not expected. */
    if (good && (out == NULL || fputs(text, out) < 0 || fclose(out) != 0))
        spec_wrong(s, 0, "it cannot be written");
    free(text);
    spec_free(s);
    return good;
}

/* --- Samples, for the live server ----------------------------------------- */

static void print_run(const struct spec *s, const struct trial *t, struct choices *c,
                      long number)
{
    static struct play p;
    char order[ORDER_BYTES];
    run(&p, s, t, c);
    play_order(&p, order, sizeof order);
    if (number >= 0) printf("permutation #%ld: %s\n%s", number, order, p.said);
}

/* `wanted` of them, evenly, or all if there are not more. */
static void print_samples(const char *path, long wanted)
{
    struct spec *s = spec_read(path);
    for (int i = 0; i < s->trials; i++) {
        const struct trial *t = &s->trial[i];
        if (!t->all || t->untold) continue;
        struct result r = try(s, t);
        struct choices c = {0};
        long taken = 0, number = 0;
        do {
            bool take = number * wanted >= taken * r.runs && taken < wanted;
            print_run(s, t, &c, take ? number : -1);
            taken += take;
            number++;
        } while (next_run(&c));
        result_free(&r);
    }
    spec_free(s);
}

/* --- The program ---------------------------------------------------------- */

static int usage(void)
{
    fprintf(
        stderr,
        "usage: over_table [--unchecked | --update | --transcripts N] FILE.spec...\n");
    return 2;
}

int main(int argc, char **argv)
{
    bool good = true, update = false;
    int number = 0, first = 1;
    long runs = 0, samples = 0;
    if (argc > 1 && strcmp(argv[1], "--update") == 0) update = true, first = 2;
    else if (argc > 1 && strcmp(argv[1], "--unchecked") == 0)
        play_unchecked = true, first = 2;
    else if (argc > 2 && strcmp(argv[1], "--transcripts") == 0)
        samples = atol(argv[2]), first = 3;
    if (first >= argc || argv[first][0] == '-') return usage();
    signal(SIGABRT, on_abort);
    alarm(DEADLINE_S);
    for (int i = first; i < argc; i++) {
        if (samples > 0) print_samples(argv[i], samples);
        else if (update) good = update_file(argv[i]) && good;
        else good = test_file(argv[i], &number, &runs) && good;
    }
    if (!update && samples == 0) printf("1..%d\n# %ld permutations\n", number, runs);
    return good ? 0 : 1;
}
