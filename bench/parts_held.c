/* parts_held.c - many held locks: their memory, and the cost of a pair while they
 * are held. Compares Sluice with Redis; the empty server holds no locks. */
#include <stdio.h>
#include <string.h>

#include "load.h"
#include "parts.h"
#include "programs.h"

#define LEASE_MS 36000000 /* No lease expires during the run. */
#define HOLDERS 2u        /* OURS and REDIS. */

/* Do not sync the journal for each of the millions of leases. */
static const char *const *options_of(uint32_t kind)
{
    static const char *const ours[] = {"--lease-volatile", "10h", NULL};
    return kind == OURS ? ours : NULL;
}

/* ---- memory per lock ---- */

static const char *memory_once(struct bench *b, struct table *t, uint32_t kind,
                               uint64_t locks)
{
    struct subject s = {0};
    const char *wrong = subject_start(&s, kind, &b->programs, options_of(kind));
    /* The memory that the server allocates for its first locks is mostly buffers and
     * arenas, so do not count it. */
    struct load_fill warm = {.from = locks, .to = locks + 1000, .lease_ms = LEASE_MS};
    struct load_fill all = {.from = 0, .to = locks, .lease_ms = LEASE_MS};
    if (wrong == NULL) wrong = load_fill(&s, &warm);
    uint64_t before = subject_resident(&s);
    if (wrong == NULL) wrong = load_fill(&s, &all);
    uint64_t after = subject_resident(&s);
    if (wrong == NULL && (before == 0 || after <= before))
        wrong = "cannot read the RSS";
    if (wrong == NULL) {
        cell_add(&t->cells[0][kind], (double)(after - before) / (double)locks);
        cell_add(&t->cells[1][kind], (double)before / 1e6);
    }
    subject_stop(&s);
    return wrong;
}

const char *part_memory(struct bench *b)
{
    uint64_t locks = b->quick ? 100000 : 1000000;
    const char *wrong = NULL;
    struct table *t = sheet_table(
        b->sheet, "memory", "memory", "Held locks",
        "17-byte key, 22-byte value, a lease; of the server's RSS");
    t->better = LESS;
    t->why = "Redis starts with less memory, or needs less for a key and its value.";
    t->columns = HOLDERS;
    memcpy(t->column_names, subject_names, HOLDERS * sizeof subject_names[0]);
    table_row(t, "bytes each of %.0e", (double)locks);
    table_row(t, "MB with 1000 locks");
    sheet_goal(b->sheet, "memory_to_redis", &t->cells[0][OURS], &t->cells[0][REDIS],
               0.9, 0.8, "Bytes of a held lock, Sluice / Redis");
    for (uint32_t round = 0; round < b->rounds && round < 3; round++)
        for (uint32_t kind = 0; kind < HOLDERS && wrong == NULL; kind++) {
            if (b->absent[kind]) continue;
            progress("memory: %s, round %u", subject_names[kind], round + 1);
            wrong = memory_once(b, t, kind, locks);
        }
    return wrong;
}

/* ---- a pair with many held locks ---- */

/* Available memory in bytes; 0 if it is unknown. */
static uint64_t memory_available(void)
{
    char line[128];
    unsigned long long kib = 0;
    FILE *f = fopen("/proc/meminfo", "re");
    while (f != NULL && fgets(line, sizeof line, f) != NULL)
        if (sscanf(line, "MemAvailable: %llu kB", &kib) == 1) break;
    if (f != NULL) fclose(f);
    return kib * 1024;
}

static const char *keys_run(struct bench *b, struct table *t, uint32_t row,
                            struct subject *subjects)
{
    struct load *loads[HOLDERS] = {NULL};
    const char *wrong = NULL;
    for (uint32_t i = 0; i < HOLDERS && wrong == NULL; i++)
        if (!b->absent[i]) wrong = load_open(&loads[i], &subjects[i], 50, 32, true);
    for (uint32_t round = 0; round <= b->rounds && wrong == NULL; round++)
        for (uint32_t n = 0; n < HOLDERS && wrong == NULL; n++) {
            uint32_t i = (round + n) % HOLDERS;
            struct load_result r;
            if (b->absent[i]) continue;
            struct subject_time before = subject_time(&subjects[i]);
            wrong = load_run(loads[i], b->run_ns / 2, &r);
            struct subject_time after = subject_time(&subjects[i]);
            if (wrong != NULL || round == 0) continue; /* Round 0 is the warm-up. */
            cell_add(&t->cells[row][i],
                     (double)(after.cpu_ns - before.cpu_ns) / 1e3 / (double)r.pairs);
        }
    for (uint32_t i = 0; i < HOLDERS; i++) load_close(loads[i]);
    return wrong;
}

static const char *keys_fill(struct bench *b, struct subject *subjects, uint64_t from,
                             uint64_t to)
{
    const char *wrong = NULL;
    struct load_fill f = {.from = from, .to = to, .lease_ms = LEASE_MS};
    for (uint32_t i = 0; i < HOLDERS && wrong == NULL; i++) {
        if (b->absent[i]) continue;
        progress("keys: %s acquires %.0e locks", subject_names[i], (double)to);
        wrong = load_fill(&subjects[i], &f);
    }
    return wrong;
}

static const char *keys_levels(struct bench *b, struct table *t,
                               struct subject *subjects)
{
    static const uint64_t levels[] = {1000, 100000, 10000000};
    const char *wrong = NULL;
    uint64_t held = 0;
    for (uint32_t n = 0; n < 3 && wrong == NULL; n++) {
        uint64_t level = b->quick ? levels[n] / 100 : levels[n];
        uint32_t row = table_row(t, "%.0e held", (double)level);
        if (level >= 10000000 && memory_available() < 4000000000) {
            cell_skip(&t->cells[row][OURS], "less than 4 GB of memory is available");
            continue;
        }
        wrong = keys_fill(b, subjects, held, level);
        held = level;
        if (wrong == NULL) wrong = keys_run(b, t, row, subjects);
    }
    return wrong;
}

const char *part_keys(struct bench *b)
{
    struct subject subjects[HOLDERS] = {0};
    const char *wrong = NULL;
    struct table *t = sheet_table(
        b->sheet, "keys", "keys", "Server CPU, many locks",
        "us per lock and unlock; 50 connections, pipelined by 32");
    t->better = LESS;
    t->why = "Redis looked up less, or more of it was in a cache.";
    t->columns = HOLDERS;
    memcpy(t->column_names, subject_names, HOLDERS * sizeof subject_names[0]);
    snprintf(
        t->note, sizeof t->note,
        "Each key is new, so that neither its position in the table nor its memory is "
        "in a cache.");
    for (uint32_t i = 0; i < HOLDERS && wrong == NULL; i++)
        if (!b->absent[i])
            wrong = subject_start(&subjects[i], i, &b->programs, options_of(i));
    if (wrong == NULL) wrong = keys_levels(b, t, subjects);
    sheet_goal(b->sheet, "keys_many_to_few", &t->cells[2][OURS], &t->cells[0][OURS], 0,
               0, "CPU of a pair, Sluice, with the most locks / with the fewest");
    sheet_goal(b->sheet, "keys_many_to_redis", &t->cells[2][OURS], &t->cells[2][REDIS],
               0, 0, "CPU of a pair with the most locks, Sluice / Redis");
    for (uint32_t i = 0; i < HOLDERS; i++) subject_stop(&subjects[i]);
    return wrong;
}
