/* bench.c - the cost of an acquire and its release: Sluice and other locks, in one run.
 *
 * measure_all() lists the sections. Only the ratios of a measurement apply to other machines, so
 * all locks are measured side by side (crew.h), and the goals are ratios.
 * docs/bench.md explains how to read the output. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "commit.h"
#include "crew.h"
#include "machine.h"
#include "reaping.h"
#include "report.h"
#include "rivals.h"

#define ORDER_LENGTH (1u << 20)

static const struct sluice_capacity wide = {.per = 1000, .buckets = 1};

/* The values of the options. */
struct settings {
    bool json;
    bool quick;
    uint32_t rounds;
    int64_t run_ns;
};

/* One lock in one variant, and its running processes. */
struct entry {
    bool open;
    struct place place;
    struct crew crew;
};

/* ---- one section ---- */

/* The locks and the variants to measure. */
struct plan {
    struct section *section;
    uint32_t locks; /* Bits of enum rival_number. */
    struct site sites[VARIANTS_MAX];
};

static const char *start(struct entry *e, const struct rival *r,
                         const struct site *site, const int *cpus)
{
    const char *refused = place_open(&e->place, r, site);
    if (refused != NULL) return refused;
    refused = crew_start(&e->crew, r, &e->place, cpus);
    if (refused != NULL) r->close(&e->place);
    e->open = refused == NULL;
    return refused;
}

/* Locks that are not available on this machine are skipped. Sluice is required. */
static const char *start_all(const struct plan *p,
                             struct entry entries[RIVALS][VARIANTS_MAX],
                             const int *cpus)
{
    static char said[120];
    for (uint32_t i = 0; i < RIVALS; i++)
        for (uint32_t v = 0; v < p->section->variants; v++) {
            struct series *c = &p->section->cells[i][v];
            if ((p->locks & 1u << i) == 0) continue;
            if (interrupted()) return "interrupted";
            const char *refused = start(&entries[i][v], &rivals[i], &p->sites[v], cpus);
            if (refused == NULL) continue;
            snprintf(c->skipped, sizeof c->skipped, "%s", refused);
            if (rivals[i].why != NULL) continue;
            snprintf(said, sizeof said, "%s: %.80s", rivals[i].name, refused);
            return said;
        }
    return NULL;
}

/* An error message that names the lock. */
static const char *of_lock(const struct rival *r, const char *wrong)
{
    static char said[256];
    snprintf(said, sizeof said, "%s: %s", r->name, wrong);
    return said;
}

/* Measure all locks in turn, in every round. */
static const char *run_all(const struct plan *p,
                           struct entry entries[RIVALS][VARIANTS_MAX],
                           const struct settings *o)
{
    double warm;
    for (uint32_t n = 0; n <= o->rounds; n++)
        for (uint32_t i = 0; i < RIVALS; i++)
            for (uint32_t v = 0; v < p->section->variants; v++) {
                struct entry *e = &entries[i][v];
                if (!e->open) continue;
                double *out = n == 0 ? &warm : &p->section->cells[i][v].runs[n - 1];
                bool disturbed;
                const char *wrong = crew_run(&e->crew, o->run_ns, out, &disturbed);
                if (wrong != NULL) return of_lock(&rivals[i], wrong);
                if (n == 0) continue;
                p->section->cells[i][v].watched++;
                p->section->cells[i][v].disturbed += disturbed;
            }
    for (uint32_t i = 0; i < RIVALS; i++)
        for (uint32_t v = 0; v < p->section->variants; v++)
            if (entries[i][v].open) series_close(&p->section->cells[i][v], o->rounds);
    return NULL;
}

/* Stop all processes, and check that no unit is held that was not held before. */
static const char *end_all(struct entry entries[RIVALS][VARIANTS_MAX])
{
    const char *wrong = NULL;
    for (uint32_t i = 0; i < RIVALS; i++)
        for (uint32_t v = 0; v < VARIANTS_MAX; v++) {
            struct entry *e = &entries[i][v];
            if (!e->open) continue;
            const struct site *site = &e->place.site;
            for (uint32_t k = 0; k < site->keys && k < SEATS_MAX; k++) {
                int64_t held = k == 0 ? site->held : 0;
                if (!rivals[i].inexact && rivals[i].count(&e->place, k) != held)
                    wrong = "a unit is still held";
            }
            crew_end(&e->crew);
            rivals[i].close(&e->place);
        }
    return wrong;
}

static const char *measure(const struct plan *p, const struct settings *o,
                           const struct machine *m)
{
    static struct entry entries[RIVALS][VARIANTS_MAX];
    memset(entries, 0, sizeof entries);
    const char *wrong = start_all(p, entries, m->pair);
    if (wrong == NULL) wrong = run_all(p, entries, o);
    const char *left = end_all(entries);
    return wrong != NULL ? wrong : left;
}

/* ---- the order of keys ---- */

/* The same for all locks and in every run. Random, so that neither a cache nor a
 * predictor can guess the next key. */
static uint32_t *order_make(uint32_t keys)
{
    uint32_t *order = calloc(ORDER_LENGTH, sizeof *order);
    uint64_t x = 0x9e3779b97f4a7c15ull;
    for (uint32_t i = 0; order != NULL && i < ORDER_LENGTH; i++) {
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
        order[i] = (uint32_t)((x >> 32) * keys >> 32);
    }
    return order;
}

/* ---- ratios ---- */

/* One cell of the report. */
struct cell_name {
    uint32_t section;
    uint32_t rival;
    uint32_t variant;
};

static struct ratio ratio_of(const struct section *sections, struct cell_name over,
                             struct cell_name under)
{
    const struct series *a = &sections[over.section].cells[over.rival][over.variant];
    const struct series *b = &sections[under.section].cells[under.rival][under.variant];
    struct ratio r = {.measured = a->measured && b->measured};
    if (!r.measured) return r;
    r.over = a->median;
    r.under = b->median;
    r.value = a->median / b->median;
    r.of_minima = a->min / b->min;
    return r;
}

/* ---- all sections ---- */

enum section_number {
    ONE,
    PAIR_ONE,
    PAIR_TWO,
    BUCKET_ROW,
    MANY_KEYS,
    REAPING,
    SECTIONS
};

static struct section sections[SECTIONS] = {
    [ONE] = {.id = "one_process",
             .title = "1 process, 1 key",
             .unit = "ns per pair",
             .variants = 1},
    [PAIR_ONE] =
        {.id = "two_processes_one_key",
         .title = "2 processes, 1 key",
         .unit = "ns per pair",
         .variants = 1,
         .note = "The time is divided by the pairs of both processes. If they do not "
                 "disturb each other, the time per pair is half that of a single "
                 "process. After a failed swap the bare variants retry at once; "
                 "Sluice waits first."},
    [PAIR_TWO] = {.id = "two_processes_two_keys",
                  .title = "2 processes, 2 keys",
                  .unit = "ns per pair",
                  .variants = 1,
                  .note = "The keys are adjacent in the table."},
    [BUCKET_ROW] = {.id = "buckets",
                    .title = "1 process, 1 bucket and 100",
                    .variants = 2,
                    .unit = "ns per pair",
                    .labels = {"1 bucket", "100, 99 full"},
                    .note =
                        "10 units per bucket. Another process holds 990 units of the "
                        "lock with 100 buckets, so that the pair uses the last one."},
    [MANY_KEYS] =
        {.id = "keys",
         .title = "1 process, many keys in random order",
         .unit = "ns per pair",
         .variants = 3,
         .labels = {"1 key", "1000 keys", "100000 keys"},
         .note = "The order is the same for all. Only Sluice by name looks up names; "
                 "the others know the address of each lock."},
    [REAPING] = {.id = "reaping",
                 .title = "A killed holder of 10000 keys",
                 .variants = 2,
                 .unit = "ns per key",
                 .labels = {"kill to permit", "release"}},
};

static const char *measure_all(const struct settings *o, const struct machine *m)
{
    static const uint32_t key_counts[VARIANTS_MAX] = {1, 1000, 100000};
    const uint32_t all = (1u << RIVALS) - 1u, no_files = all & ~(1u << FLOCK);
    const uint32_t with_buckets = 1u << BUCKETS | 1u << NAME | 1u << HANDLE;
    struct plan plans[REAPING] = {
        [ONE] = {.locks = all, .sites = {{.keys = 1, .capacity = wide, .seats = 1}}},
        [PAIR_ONE] = {.locks = all,
                      .sites = {{.keys = 1, .capacity = wide, .seats = 2}}},
        [PAIR_TWO] =
            {.locks = all,
             .sites = {{.keys = 2, .capacity = wide, .seats = 2, .apart = true}}},
        [BUCKET_ROW] =
            {.locks = with_buckets,
             .sites = {{.keys = 1, .capacity = {10, 1}, .seats = 1},
                       {.keys = 1, .capacity = {10, 100}, .seats = 1, .held = 990}}},
        [MANY_KEYS] = {.locks = no_files},
    };
    uint32_t *orders[VARIANTS_MAX];
    const char *wrong = NULL;
    for (uint32_t v = 0; v < VARIANTS_MAX; v++) {
        orders[v] = order_make(key_counts[v]);
        if (orders[v] == NULL) wrong = "no memory";
        plans[MANY_KEYS].sites[v] = (struct site){.keys = key_counts[v],
                                                  .capacity = wide,
                                                  .seats = 1,
                                                  .order = orders[v],
                                                  .order_mask = ORDER_LENGTH - 1};
    }
    for (uint32_t i = 0; i < REAPING && wrong == NULL; i++) {
        struct section *s = &sections[i];
        plans[i].section = s;
        if (isatty(STDERR_FILENO)) fprintf(stderr, "%s ...\n", s->title);
        if (plans[i].sites[0].seats > 1 && m->pair[1] < 0)
            snprintf(
                s->skipped, sizeof s->skipped,
                "Skipped: there is only one CPU, and two processes on one CPU would "
                "measure the scheduler.");
        else wrong = measure(&plans[i], o, m);
    }
    if (wrong == NULL) wrong = reaping_measure(&sections[REAPING], o->rounds);
    for (uint32_t v = 0; v < VARIANTS_MAX; v++) free(orders[v]);
    return wrong;
}

static void note_pinning(const struct machine *m)
{
    char *out = sections[PAIR_ONE].note;
    size_t used = strlen(out);
    if (m->pair[1] < 0) return;
    snprintf(out + used, sizeof sections[PAIR_ONE].note - used,
             " Pinned to CPUs %d and %d%s.", m->pair[0], m->pair[1],
             m->same_core ? ", which are threads of one core" : "");
}

static void note_reaping(void)
{
    struct section *s = &sections[REAPING];
    const struct series *c = &s->cells[NAME][0];
    if (!c->measured) return;
    snprintf(
        s->note, sizeof s->note,
        "Sluice: %.2f ms in total from the kill to the permit, of which %.2f ms for "
        "the acquire that releases everything. With SEM_UNDO the kernel releases the "
        "units while the process exits. The value is the extra time of that exit, "
        "compared with the exit of a process that holds nothing.",
        c->median * REAPING_KEYS / 1e6, s->cells[NAME][1].median * REAPING_KEYS / 1e6);
}

static uint32_t compute_ratios(struct ratio *out)
{
    /* The numerator, the denominator, and the goal. */
    static const struct {
        const char *id, *what;
        struct cell_name over, under;
        double goal;
        bool at_least;
    } table[] = {
        /* clang-format off */
        {"handle_to_cas16", "Sluice by handle / bare 16-byte pair, 1 process",
         {ONE, HANDLE, 0}, {ONE, CAS16, 0}, 1.6, false},
        {"handle_to_cas8", "Sluice by handle / bare 8-byte pair, 1 process",
         {ONE, HANDLE, 0}, {ONE, CAS8, 0}, 4, false},
        {"sysv_to_handle", "SysV with SEM_UNDO / Sluice by handle, 1 process",
         {ONE, SYSV, 0}, {ONE, HANDLE, 0}, 40, true},
        {"sysv_to_cas8", "SysV with SEM_UNDO / bare 8-byte pair, 1 process, for comparison",
         {ONE, SYSV, 0}, {ONE, CAS8, 0}, 0, true},
        {"buckets_100_to_1", "Sluice by handle, 100 buckets / 1 bucket",
         {BUCKET_ROW, HANDLE, 1}, {BUCKET_ROW, HANDLE, 0}, 1.1, false},
        {"contended_handle_to_cas16", "Sluice by handle / bare 16-byte pair, 2 processes, 1 key",
         {PAIR_ONE, HANDLE, 0}, {PAIR_ONE, CAS16, 0}, 2.5, false},
        {"contended_handle_to_cas8", "Sluice by handle / bare 8-byte pair, 2 processes, 1 key",
         {PAIR_ONE, HANDLE, 0}, {PAIR_ONE, CAS8, 0}, 0, false},
        {"name_to_handle", "Sluice by name / by handle, 1 process",
         {ONE, NAME, 0}, {ONE, HANDLE, 0}, 0, false},
        /* clang-format on */
    };
    uint32_t count = sizeof table / sizeof table[0];
    for (uint32_t i = 0; i < count; i++) {
        out[i] = ratio_of(sections, table[i].over, table[i].under);
        out[i].id = table[i].id;
        out[i].what = table[i].what;
        out[i].goal = table[i].goal;
        out[i].at_least = table[i].at_least;
    }
    return count;
}

/* ---- main ---- */

static const char usage[] =
    "usage: bench [--json] [--quick]\n"
    "\n"
    "Measures the cost of an acquire and its release on one machine, in nanoseconds:\n"
    "Sluice, other locks, and a bare compare-and-swap. Takes about a minute.\n"
    "\n"
    "  --json   print one JSON object\n"
    "  --quick  run for a few seconds, to test the benchmark; the numbers mean little\n"
    "  --help   print this help\n"
    "\n"
    "Exit status: 0 success, whatever the numbers; 1 failure; 2 wrong usage.\n";

static int parse(int argc, char **argv, struct settings *o)
{
    *o = (struct settings){.rounds = ROUNDS_MAX, .run_ns = 100000000};
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--json") == 0) o->json = true;
        else if (strcmp(argv[i], "--quick") == 0) o->quick = true;
        else if (strcmp(argv[i], "--help") == 0) {
            fputs(usage, stdout);
            return -1;
        } else {
            fprintf(stderr, "bench: unknown option: %s\n\n%s", argv[i], usage);
            return 2;
        }
    }
    if (o->quick) {
        o->rounds = 3;
        o->run_ns = 4000000;
    }
    return 0;
}

int main(int argc, char **argv)
{
    struct settings o;
    struct ratio ratios[16];
    int status = parse(argc, argv, &o);
    if (status != 0) return status < 0 ? 0 : status;
    struct report r = {.commit = BENCH_COMMIT,
                       .rounds = o.rounds,
                       .quick = o.quick,
                       .run_ms = (double)o.run_ns / 1e6,
                       .sections = sections,
                       .section_count = SECTIONS,
                       .ratios = ratios};
    machine_look(&r.machine);
    interrupt_catch();
    signal(SIGPIPE, SIG_IGN);
    const char *wrong = measure_all(&o, &r.machine);
    if (interrupted()) {
        fprintf(stderr, "bench: interrupted; nothing was left behind\n");
        return 128 + interrupt_signal();
    }
    if (wrong != NULL) {
        fprintf(stderr, "bench: %s\n", wrong);
        return 1;
    }
    signal(SIGPIPE, SIG_DFL); /* From here on, it only writes its own output. */
    note_pinning(&r.machine);
    note_reaping();
    r.ratio_count = compute_ratios(ratios);
    if (o.json) report_json(&r);
    else report_text(&r);
    return fflush(stdout) == 0 ? 0 : 1;
}
