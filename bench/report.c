#include "report.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "print.h"

/* ---- numbers ---- */

static int by_size(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

void series_close(struct series *s, uint32_t rounds)
{
    double sorted[ROUNDS_MAX];
    memcpy(sorted, s->runs, rounds * sizeof sorted[0]);
    qsort(sorted, rounds, sizeof sorted[0], by_size);
    s->min = sorted[0];
    s->median = (sorted[(rounds - 1) / 2] + sorted[rounds / 2]) / 2;
    s->measured = true;
}

bool ratio_reached(const struct ratio *r)
{
    return r->at_least ? r->value >= r->goal : r->value <= r->goal;
}

static bool is_ours(uint32_t rival)
{
    return rivals[rival].why == NULL;
}

static bool listed(const struct section *s, uint32_t rival)
{
    for (uint32_t v = 0; v < s->variants; v++)
        if (s->cells[rival][v].measured || s->cells[rival][v].skipped[0] != '\0')
            return true;
    return false;
}

/* Count the runs, and those that other processes disturbed. */
static void count_disturbed(const struct report *r, uint32_t *disturbed, uint32_t *runs)
{
    *disturbed = *runs = 0;
    for (uint32_t i = 0; i < r->section_count; i++)
        for (uint32_t n = 0; n < RIVALS; n++)
            for (uint32_t v = 0; v < VARIANTS_MAX; v++) {
                const struct series *c = &r->sections[i].cells[n][v];
                if (!c->measured) continue;
                *disturbed += c->disturbed;
                *runs += c->watched;
            }
}

/* ---- where Sluice is slower ---- */

/* Rival `rival` was faster than Sluice by name, by handle, or both. */
struct loss {
    const struct section *section;
    uint32_t rival;
    uint32_t variant;
    double rival_median;
    double ours[RIVALS]; /* Medians of NAME and HANDLE that it beat; 0: not that one. */
};

static bool find_loss(const struct section *s, uint32_t rival, uint32_t v,
                      struct loss *out)
{
    const struct series *its = &s->cells[rival][v];
    *out = (struct loss){
        .section = s, .rival = rival, .variant = v, .rival_median = its->median};
    if (is_ours(rival) || !its->measured) return false;
    bool found = false;
    for (uint32_t ours = NAME; ours <= HANDLE; ours++) {
        const struct series *mine = &s->cells[ours][v];
        if (!mine->measured || mine->median <= its->median) continue;
        out->ours[ours] = mine->median;
        found = true;
    }
    return found;
}

/* ---- text ---- */

static const char method[] =
    "Method: Processes. Each lock has one or two processes of its own, each pinned "
    "to a CPU. The process that runs the benchmark only waits. Rounds. In each "
    "round every lock runs once, for the same time, so that disturbances of the "
    "machine affect all locks alike. A warm-up round comes first. The results are "
    "the median and the minimum of the rounds. Pair. A pair is an acquire of one "
    "unit and its release, by one thread, without waiters. Capacities are so large "
    "that every acquire succeeds. The benchmark checks this, and that no unit is "
    "held afterwards. Two processes start at a barrier in shared memory. The time "
    "from the first start to the last end is divided by the number of pairs of "
    "both processes. With only one CPU these sections are skipped.";
static const char method_rivals[] =
    "Bare compare-and-swap is the minimum work of such a lock: load, compare with "
    "the capacity, compare-and-swap, inlined into the loop. One variant uses 8 "
    "bytes, the other 16 bytes as Sluice does. The 16-byte variant loads two "
    "halves, which is faster than one 16-byte load, and swaps with the instruction "
    "that the library uses (x86-64: lock cmpxchg16b). Shared libraries. Sluice, the "
    "POSIX semaphore and the system calls go through shared libraries, as in a "
    "user's program. Other locks. POSIX: sem_trywait and sem_post. SysV: one semop "
    "each way, with IPC_NOWAIT and SEM_UNDO, and a fixed capacity, which needs one "
    "operation instead of two. flock: LOCK_EX and LOCK_NB; for two processes with "
    "one key LOCK_SH, because a rejected call would be faster than a grant. Canal "
    "lock's buckets: the algorithm of canal lock (an Erlang library) in C, without "
    "ETS and without the process that monitors the holders. Each lock that consists "
    "of plain memory has 128 bytes. Of all locks, only \"Sluice by name\" looks up "
    "a name; \"Sluice by handle\" looks it up once, before the measurement "
    "(sluice_key_resolve()). Killed holder. A process holds one unit of each of 10000 "
    "keys and is killed. The time ends when another process has a unit of the first "
    "key. In Sluice, that acquire releases everything that the killed process held. "
    "With SEM_UNDO the kernel releases the units during the exit; the benchmark "
    "subtracts the exit time of a process that holds nothing.";

static void print_head(const struct report *r)
{
    const struct machine *m = &r->machine;
    printf("Sluice %s%s%s: the cost of an acquire and its release\n\n", SLUICE_VERSION,
           r->commit[0] != '\0' ? ", commit " : "", r->commit);
    print_machine(m);
    printf("compiler  %s; measured through %s\n", m->compiler, m->library);
    uint32_t disturbed, runs;
    count_disturbed(r, &disturbed, &runs);
    printf("runs      %u rounds of %.0f ms%s\n", r->rounds, r->run_ms,
           r->quick ? "; --quick, so do not rely on the numbers" : "");
    printf("          in %u of %u runs other processes used our CPUs%s\n\n", disturbed,
           runs, disturbed > runs / 4 ? ";\n          repeat on an idle machine" : "");
    print_wrapped(method, 0, 88);
    putchar('\n');
    print_wrapped(method_rivals, 0, 88);
}

static void print_cell(const struct series *s)
{
    if (s->measured) printf(" %9.1f %9.1f", s->median, s->min);
    else printf(" %9s %9s", "-", "-");
}

/* One variant: the ratio to Sluice, and what happens to the permits of a killed
 * holder. */
static void print_single(const struct section *s)
{
    const struct series *handle = &s->cells[HANDLE][0];
    printf("%-34s %9s %9s %10s   %s\n", s->unit, "median", "min", "vs. handle",
           "a killed holder's permits");
    for (uint32_t i = 0; i < RIVALS; i++) {
        const struct series *c = &s->cells[i][0];
        if (!listed(s, i)) continue;
        printf("  %-32s", rivals[i].name);
        if (!c->measured) {
            printf(" not measured: %s\n", c->skipped);
            continue;
        }
        print_cell(c);
        if (handle->measured) printf(" %8.2f x", c->median / handle->median);
        printf("   %s\n", rivals[i].killed);
    }
}

static void print_several(const struct section *s)
{
    printf("%-34s", s->unit);
    for (uint32_t v = 0; v < s->variants; v++) printf(" %19s", s->labels[v]);
    printf("\n%-34s", "");
    for (uint32_t v = 0; v < s->variants; v++) printf(" %9s %9s", "median", "min");
    putchar('\n');
    for (uint32_t i = 0; i < RIVALS; i++) {
        if (!listed(s, i)) continue;
        printf("  %-32s", rivals[i].name);
        for (uint32_t v = 0; v < s->variants; v++) print_cell(&s->cells[i][v]);
        putchar('\n');
        for (uint32_t v = 0; v < s->variants; v++)
            if (s->cells[i][v].skipped[0] != '\0')
                printf("      %s: not measured: %s\n", s->labels[v],
                       s->cells[i][v].skipped);
    }
}

static void print_section(const struct section *s)
{
    printf("\n---- %s ----\n\n", s->title);
    if (s->skipped[0] != '\0') {
        print_wrapped(s->skipped, 0, 88);
        return;
    }
    if (s->variants == 1) print_single(s);
    else print_several(s);
    if (s->note[0] != '\0') {
        putchar('\n');
        print_wrapped(s->note, 0, 88);
    }
}

static void print_ratios(const struct report *r)
{
    printf("\n---- Ratios, of the medians above ----\n\n");
    for (uint32_t i = 0; i < r->ratio_count; i++) {
        const struct ratio *q = &r->ratios[i];
        printf("  %s\n", q->what);
        if (!q->measured) {
            printf("      not measured\n");
            continue;
        }
        printf("      %8.1f / %-8.1f = %6.2f   ", q->over, q->under, q->value);
        if (q->goal == 0) printf("%-24s", "no goal");
        else
            printf("%-8s %5.2f  %-8s", q->at_least ? "at least" : "at most", q->goal,
                   ratio_reached(q) ? "reached" : "missed");
        printf("   (of the minima: %.2f)\n", q->of_minima);
    }
}

/* A short name of the section or variant. */
static const char *where(const struct section *s, uint32_t v)
{
    return s->variants > 1 ? s->labels[v] : s->title;
}

static void print_losses_to(const struct report *r, uint32_t rival)
{
    bool said = false;
    for (uint32_t i = 0; i < r->section_count; i++)
        for (uint32_t v = 0; v < r->sections[i].variants; v++) {
            struct loss l;
            if (!find_loss(&r->sections[i], rival, v, &l)) continue;
            if (!said) {
                printf("\n  %s\n", rivals[rival].name);
                print_wrapped(rivals[rival].why, 4, 88);
            }
            said = true;
            printf("      %-22s %8.1f", where(l.section, v), l.rival_median);
            for (uint32_t ours = HANDLE; ours >= NAME; ours--)
                if (l.ours[ours] > 0)
                    printf("   by %s %.1f (%.2f x)", rivals[ours].id, l.ours[ours],
                           l.ours[ours] / l.rival_median);
            putchar('\n');
        }
}

void report_text(const struct report *r)
{
    print_head(r);
    for (uint32_t i = 0; i < r->section_count; i++) print_section(&r->sections[i]);
    print_ratios(r);
    printf("\n---- Where Sluice is slower ----\n\n");
    print_wrapped(
        "The locks that were faster than Sluice in this run: their median, Sluice's "
        "median, and the reason.",
        0, 88);
    for (uint32_t i = 0; i < RIVALS; i++) print_losses_to(r, i);
}

/* ---- JSON ---- */

static void json_series(const struct report *r, const struct section *s, uint32_t rival,
                        uint32_t v, bool *first)
{
    const struct series *c = &s->cells[rival][v];
    if (!c->measured && c->skipped[0] == '\0') return;
    printf("%s\n        {", *first ? "" : ",");
    *first = false;
    json_pair("lock", rivals[rival].id, ", ");
    if (s->variants > 1) json_pair("variant", s->labels[v], ", ");
    if (!c->measured) {
        json_pair("skipped", c->skipped, "}");
        return;
    }
    printf("\"median\": %.3f, \"min\": %.3f, \"runs\": [", c->median, c->min);
    for (uint32_t i = 0; i < r->rounds; i++)
        printf("%s%.3f", i > 0 ? ", " : "", c->runs[i]);
    printf("]}");
}

static void json_section(const struct report *r, const struct section *s)
{
    bool first = true;
    printf("    {\n      ");
    json_pair("id", s->id, ",\n      ");
    json_pair("title", s->title, ",\n      ");
    json_pair("unit", s->unit, ",\n      ");
    if (s->note[0] != '\0') json_pair("note", s->note, ",\n      ");
    if (s->skipped[0] != '\0') json_pair("skipped", s->skipped, ",\n      ");
    printf("\"results\": [");
    for (uint32_t i = 0; i < RIVALS; i++)
        for (uint32_t v = 0; v < s->variants; v++) json_series(r, s, i, v, &first);
    printf("%s]\n    }", first ? "" : "\n      ");
}

static void json_ratio(const struct ratio *q)
{
    printf("    {");
    json_pair("id", q->id, ", ");
    json_pair("what", q->what, ", ");
    if (q->measured)
        printf(
            "\"over\": %.3f, \"under\": %.3f, \"value\": %.4f, \"of_minima\": %.4f, ",
            q->over, q->under, q->value, q->of_minima);
    if (q->goal != 0)
        printf("\"goal\": %.2f, \"bound\": \"%s\", ", q->goal,
               q->at_least ? "at least" : "at most");
    if (q->goal != 0 && q->measured)
        printf("\"reached\": %s, ", ratio_reached(q) ? "true" : "false");
    printf("\"measured\": %s}", q->measured ? "true" : "false");
}

static void json_losses(const struct report *r)
{
    bool first = true;
    for (uint32_t i = 0; i < r->section_count; i++)
        for (uint32_t rival = 0; rival < RIVALS; rival++)
            for (uint32_t v = 0; v < r->sections[i].variants; v++) {
                const struct section *s = &r->sections[i];
                struct loss l;
                if (!find_loss(s, rival, v, &l)) continue;
                printf("%s\n    {", first ? "" : ",");
                first = false;
                json_pair("section", s->id, ", ");
                if (s->variants > 1) json_pair("variant", s->labels[v], ", ");
                json_pair("lock", rivals[rival].id, ", ");
                printf("\"median\": %.3f, ", l.rival_median);
                if (l.ours[NAME] > 0) printf("\"name\": %.3f, ", l.ours[NAME]);
                if (l.ours[HANDLE] > 0) printf("\"handle\": %.3f, ", l.ours[HANDLE]);
                json_pair("why", rivals[rival].why, "}");
            }
    printf("%s]\n", first ? "" : "\n  ");
}

void report_json(const struct report *r)
{
    printf("{\n  ");
    json_pair("version", SLUICE_VERSION, ",\n  ");
    json_pair("commit", r->commit, ",\n");
    json_machine(&r->machine);
    printf("  \"rounds\": %u,\n  \"run_ms\": %.1f,\n  \"quick\": %s,\n  ", r->rounds,
           r->run_ms, r->quick ? "true" : "false");
    uint32_t disturbed, runs;
    count_disturbed(r, &disturbed, &runs);
    printf("\"runs\": %u,\n  \"runs_disturbed\": %u,\n  ", runs, disturbed);
    json_pair("method", method, ",\n  ");
    json_pair("method_locks", method_rivals, ",\n  ");
    printf("\"locks\": [\n");
    for (uint32_t i = 0; i < RIVALS; i++) {
        printf("    {");
        json_pair("id", rivals[i].id, ", ");
        json_pair("name", rivals[i].name, ", ");
        json_pair("killed", rivals[i].killed, i + 1 < RIVALS ? "},\n" : "}\n");
    }
    printf("  ],\n  \"sections\": [\n");
    for (uint32_t i = 0; i < r->section_count; i++) {
        json_section(r, &r->sections[i]);
        printf("%s\n", i + 1 < r->section_count ? "," : "");
    }
    printf("  ],\n  \"ratios\": [\n");
    for (uint32_t i = 0; i < r->ratio_count; i++) {
        json_ratio(&r->ratios[i]);
        printf("%s\n", i + 1 < r->ratio_count ? "," : "");
    }
    printf("  ],\n  \"where_we_lose\": [");
    json_losses(r);
    printf("}\n");
}
