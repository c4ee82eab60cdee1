#include "cli/show.h"

#include <fnmatch.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "cli/clock.h"
#include "cli/hold.h"
#include "cli/tether.h"
#include "cli/text.h"

#define PIDS_MAX 64

/* --- Cells of a table ----------------------------------------------------- */

static bool is_whole(struct sluice_capacity r)
{
    return (uint64_t)r.per * r.buckets == CLI_WHOLE_CAPACITY;
}

/* Return the kind of a lock. `sluice run` implements all three kinds with one count, so
 * the kind follows from the count. */
static const char *kind_of(const struct sluice_key_info *k)
{
    if (!is_whole(k->capacity)) return "counting";
    return k->held >= CLI_WHOLE_CAPACITY ? "exclusive" : "shared";
}

static const char *held_text(const struct sluice_key_info *k, char *out, size_t size)
{
    if (k->held >= CLI_WHOLE_CAPACITY && is_whole(k->capacity))
        snprintf(out, size, "exclusive");
    else if (is_whole(k->capacity)) snprintf(out, size, "%" PRIu64 " shared", k->held);
    else snprintf(out, size, "%" PRIu64, k->held);
    return out;
}

static const char *capacity_text(struct sluice_capacity r, char *out, size_t size)
{
    if (is_whole(r)) snprintf(out, size, "-");
    else if (r.buckets == 1) snprintf(out, size, "%u", (unsigned)r.per);
    else snprintf(out, size, "%u x %u", (unsigned)r.per, (unsigned)r.buckets);
    return out;
}

static const char *state_of(const struct sluice_holder *h)
{
    if (h->waits) return "waits";
    if (h->inherited) return "inherited";
    return h->dead ? "dead" : "holds";
}

static const char *units_text(const struct sluice_holder *h, char *out, size_t size)
{
    if (h->units == CLI_WHOLE_CAPACITY && is_whole(h->capacity))
        snprintf(out, size, "all");
    else snprintf(out, size, "%" PRIu64, h->units);
    return out;
}

/* --- Keys ----------------------------------------------------------------- */

static void json_key(const struct sluice_key_info *k)
{
    fputs("{", stdout);
    cli_json_member(stdout, "key", k->key);
    printf(",\"held\":%" PRIu64 ",\"per\":%u,\"buckets\":%u,\"kind\":\"%s\","
           "\"capacities_differ\":%s,\"holders\":%u,\"waiters\":%u}",
           k->held, (unsigned)k->capacity.per, (unsigned)k->capacity.buckets,
           kind_of(k), k->capacities_differ ? "true" : "false", (unsigned)k->holders,
           (unsigned)k->waiters);
}

/* Return whether a key has no holders and no waiters. Such a key keeps its entry until
 * another key needs the entry. */
static bool is_idle(const struct sluice_key_info *k)
{
    return k->held == 0 && k->holders == 0 && k->waiters == 0;
}

static void text_key(const struct sluice_key_info *k)
{
    char key[CLI_SAFE_SIZE], held[64], capacity[64];
    printf("%-24s %-12s %-12s %7u %7u%s\n", cli_safe_text(k->key, key, sizeof key),
           held_text(k, held, sizeof held),
           capacity_text(k->capacity, capacity, sizeof capacity), (unsigned)k->holders,
           (unsigned)k->waiters, k->capacities_differ ? "  (capacities differ)" : "");
}

void cli_show_keys(struct sluice_canal *c, const char *pattern, enum cli_form form)
{
    struct sluice_key_info k;
    const char *between = "";
    if (form == CLI_FORM_JSON) {
        fputs("{\"segment\":", stdout);
        cli_json_string(stdout, sluice_canal_path(c));
        fputs(",\"keys\":[", stdout);
    } else if (form == CLI_FORM_TEXT)
        printf("%-24s %-12s %-12s %7s %7s\n", "KEY", "HELD", "CAPACITY", "HOLDERS",
               "WAITERS");
    for (uint64_t cursor = 0; sluice_canal_next_key(c, &cursor, &k) == 1;) {
        if (pattern != NULL && fnmatch(pattern, k.key, 0) != 0) continue;
        if (form == CLI_FORM_NAMES) {
            char key[CLI_SAFE_SIZE];
            puts(cli_safe_text(k.key, key, sizeof key));
        } else if (is_idle(&k)) continue;
        else if (form == CLI_FORM_JSON) {
            fputs(between, stdout);
            json_key(&k);
            between = ",";
        } else text_key(&k);
    }
    if (form == CLI_FORM_JSON) puts("]}");
}

/* --- One key -------------------------------------------------------------- */

static void json_holder(const char *path, const struct sluice_holder *h)
{
    int32_t pids[PIDS_MAX];
    printf("{\"pid\":%d,\"tid\":%d,\"program\":", (int)h->pid, (int)h->tid);
    cli_json_string(stdout, h->program);
    printf(",\"units\":%" PRIu64 ",\"per\":%u,\"buckets\":%u,\"since_ms\":%" PRId64
           ",\"state\":\"%s\"",
           h->units, (unsigned)h->capacity.per, (unsigned)h->capacity.buckets,
           h->since_ms, state_of(h));
    fputs(",\"inherited_by\":[", stdout);
    size_t n = h->inherited ? cli_tether_pids(path, h->slot, pids, PIDS_MAX) : 0;
    for (size_t i = 0; i < n && i < PIDS_MAX; i++)
        printf("%s%d", i > 0 ? "," : "", (int)pids[i]);
    fputs("]", stdout);
    fputs("}", stdout);
}

static void json_holders(struct sluice_canal *c, const char *key, bool waits)
{
    struct sluice_holder h;
    const char *between = "";
    for (uint64_t cursor = 0; sluice_canal_next_holder(c, key, &cursor, &h) == 1;) {
        if ((h.waits != 0) != waits) continue;
        fputs(between, stdout);
        json_holder(sluice_canal_path(c), &h);
        between = ",";
    }
}

static void show_key_json(struct sluice_canal *c, const struct sluice_key_info *k)
{
    char picture[256];
    fputs("{\"segment\":", stdout);
    cli_json_string(stdout, sluice_canal_path(c));
    fputs(",", stdout);
    cli_json_member(stdout, "key", k->key);
    sluice_canal_picture(k->held, k->capacity, picture, sizeof picture);
    printf(",\"held\":%" PRIu64 ",\"per\":%u,\"buckets\":%u,\"kind\":\"%s\","
           "\"picture\":\"%s\",\"held_by\":[",
           k->held, (unsigned)k->capacity.per, (unsigned)k->capacity.buckets,
           kind_of(k), picture);
    json_holders(c, k->key, false);
    fputs("],\"pending\":[", stdout);
    json_holders(c, k->key, true);
    puts("]}");
}

static void text_holder(const char *path, const struct sluice_holder *h)
{
    char program[CLI_SAFE_SIZE], units[32], capacity[64], clock[32], ago[32], comm[32];
    int32_t pids[PIDS_MAX];
    printf("%-9s %8d %8d %-15s %8s %-10s %s, %s ago\n", state_of(h), (int)h->pid,
           (int)h->tid, cli_safe_text(h->program, program, sizeof program),
           units_text(h, units, sizeof units),
           capacity_text(h->capacity, capacity, sizeof capacity),
           cli_format_time(h->since_ms, clock, sizeof clock),
           cli_format_duration(cli_wall_ms() - h->since_ms, ago, sizeof ago));
    if (!h->inherited) return;
    size_t n = cli_tether_pids(path, h->slot, pids, PIDS_MAX);
    for (size_t i = 0; i < n && i < PIDS_MAX; i++)
        printf("          %8d %8s %s\n", (int)pids[i], "",
               cli_tether_program(pids[i], comm, sizeof comm));
}

static void show_key_text(struct sluice_canal *c, const struct sluice_key_info *k)
{
    char key[CLI_SAFE_SIZE], held[64], capacity[64], picture[256];
    struct sluice_holder h;
    cli_safe_text(k->key, key, sizeof key);
    held_text(k, held, sizeof held);
    if (is_whole(k->capacity)) printf("%s: %s\n", key, is_idle(k) ? "free" : held);
    else {
        sluice_canal_picture(k->held, k->capacity, picture, sizeof picture);
        printf("%s: held %s, capacity %s  %s%s\n", key, held,
               capacity_text(k->capacity, capacity, sizeof capacity), picture,
               k->capacities_differ ? "  (capacities differ)" : "");
    }
    bool headed = false;
    for (uint64_t cursor = 0; sluice_canal_next_holder(c, k->key, &cursor, &h) == 1;) {
        if (!headed)
            printf("%-9s %8s %8s %-15s %8s %-10s %s\n", "STATE", "PID", "TID",
                   "PROGRAM", "UNITS", "CAPACITY", "SINCE");
        headed = true;
        text_holder(sluice_canal_path(c), &h);
    }
}

static void show_key_pids(struct sluice_canal *c, const char *key)
{
    struct sluice_holder h;
    for (uint64_t cursor = 0; sluice_canal_next_holder(c, key, &cursor, &h) == 1;)
        if (!h.waits) printf("%d\n", (int)h.pid);
}

bool cli_show_key(struct sluice_canal *c, const char *key, enum cli_form form)
{
    struct sluice_key_info k;
    for (uint64_t cursor = 0; sluice_canal_next_key(c, &cursor, &k) == 1;) {
        if (strcmp(k.key, key) != 0) continue;
        if (form == CLI_FORM_JSON) show_key_json(c, &k);
        else if (form == CLI_FORM_NAMES) show_key_pids(c, key);
        else show_key_text(c, &k);
        return true;
    }
    return false;
}
