/* journal_show.c - `sluice-offline journal show`: prints what a journal contains, and what the next
 * start of the server would do with it. It only reads, so a server may use the journal at the same
 * time. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "offline/journal_load.h"
#include "offline/offline.h"
#include "offline/text.h"

/* Call a function for all items of a kind. Returns how many there are. */
typedef void show_fn(const struct offline_item *i);

static uint64_t each(const struct offline_journal *j, enum sl_item_kind kind,
                     show_fn *show)
{
    struct offline_cursor cursor = {0};
    struct offline_item i;
    uint64_t count = 0;
    while (offline_journal_next(j, &cursor, &i)) {
        if (i.item.kind != kind) continue;
        if (show != NULL) show(&i);
        count++;
    }
    return count;
}

/* The capacity of a grant, 0 if it is shared. */
static uint64_t capacity_of(const struct sl_grant_view *v)
{
    return v->shared ? 0 : (uint64_t)v->per * v->buckets;
}

static void count_leases(const struct offline_journal *j, uint64_t *held,
                         uint64_t *ignored)
{
    struct offline_cursor cursor = {0};
    struct offline_item i;
    enum sl_item_kind kind = j->start.use == SL_JOURNAL_OF_NODE ? SL_ITEM_KEY
                                                                : SL_ITEM_GRANT;
    *held = *ignored = 0;
    while (offline_journal_next(j, &cursor, &i)) {
        if (i.item.kind != kind) continue;
        if (!i.is_held) ++*ignored;
        else if (i.left_ms > 0) ++*held;
    }
}

/* --- Text --------------------------------------------------------------------------- */

static void put_flags(const struct offline_item *i, const struct sl_grant_view *v)
{
    const char *const flags[] = {
        i->is_held ? NULL : "ignored", i->is_held && i->left_ms == 0 ? "expired" : NULL,
        v->broken ? "broken" : NULL, v->overlapping ? "overlapping" : NULL,
        v->stolen ? "stolen" : NULL};
    size_t n = 0;
    for (size_t f = 0; f < sizeof flags / sizeof *flags; f++)
        if (flags[f] != NULL) n += (size_t)printf("%s%s", n > 0 ? "," : "", flags[f]);
    if (n == 0) n = (size_t)printf("-");
    offline_put_gap(n, 11);
}

static void put_client(const struct sl_grant_view *v)
{
    size_t n = 0;
    if (v->name.n > 0) n += offline_put_text(v->name);
    if (v->name.n > 0 && v->address.n > 0) putchar(' '), n++;
    if (v->address.n > 0) n += offline_put_text(v->address);
    if (n == 0) putchar('-'), n++;
    offline_put_gap(n, 24);
}

static void put_remaining(const struct offline_item *i)
{
    char time[OFFLINE_TIME_BYTES];
    /* The times of an item that is ignored belong to the clock of another boot. */
    printf("%-10s ", i->is_held ? offline_time_text(i->left_ms, time) : "-");
}

static void put_lease(const struct offline_item *i)
{
    struct sl_grant_view v;
    char units[48];
    if (!sl_grant_read(i->item.value, &v)) return;
    offline_put_gap(offline_put_text(i->item.key), 24);
    printf("%-17" PRIu64 " ", i->item.fence);
    put_remaining(i);
    if (v.shared) strcpy(units, "shared");
    else if (capacity_of(&v) == 1) strcpy(units, "1");
    else
        snprintf(units, sizeof units, "%" PRIu32 " of %" PRIu64, v.units,
                 capacity_of(&v));
    printf("%-5s %-10s ", i->item.is_long ? "long" : "short", units);
    put_client(&v);
    put_flags(i, &v);
    if (v.note.n == 0) putchar('-');
    offline_put_text(v.note);
    putchar('\n');
}

static void put_drain(const struct offline_item *i)
{
    fputs("drained         ", stdout);
    offline_put_text(i->item.key);
    putchar('\n');
}

static void put_overlap(const struct offline_item *i)
{
    char time[OFFLINE_TIME_BYTES];
    if (!i->is_held || i->left_ms == 0) return;
    fputs("overlap         ", stdout);
    offline_put_text(i->item.key);
    printf(" (%s)\n", offline_time_text(i->left_ms, time));
}

static void put_key(const struct offline_item *i)
{
    offline_put_gap(offline_put_text(i->item.key), 24);
    put_remaining(i);
    printf("%-5s %zu\n", i->item.is_long ? "long" : "short", i->item.value.n);
}

static void put_start(const struct offline_journal *j)
{
    char time[OFFLINE_TIME_BYTES];
    uint64_t held, ignored;
    sl_ms wait_ms = offline_journal_wait_ms(j);
    bool is_node = j->start.use == SL_JOURNAL_OF_NODE;
    const char *what = is_node ? "key" : "lease";
    fputs("start           ", stdout);
    if (j->is_damaged) {
        printf("impossible: the journal is damaged at offset %zu\n", j->damaged_at);
        return;
    }
    count_leases(j, &held, &ignored);
    if (!j->start.same_life) printf("%s: ", j->start.why_other);
    printf("holds %" PRIu64 " %s%s", held, what, held == 1 ? "" : "s");
    if (ignored > 0)
        printf(", ignores %" PRIu64 " short %s%s", ignored, what,
               ignored == 1 ? "" : "s");
    if (wait_ms > 0)
        printf(", and waits %s before it %s\n", offline_time_text(wait_ms, time),
               is_node ? "votes" : "grants a lock");
    else puts(is_node ? ", and votes at once" : ", and grants locks at once");
}

static void put_life(const struct offline_journal *j)
{
    const struct sl_life *l = &j->written;
    bool known = l->boot[0] != '\0';
    printf("journal         of a %s, %s\n", offline_journal_owner(j),
           j->in_use ? "in use by a running server" : "not in use");
    fputs("boot            ", stdout);
    offline_put_text(offline_bytes(known ? l->boot : "unknown"));
    puts(known && strcmp(l->boot, j->present.boot) == 0 ? " (this boot)" : "");
    fputs("machine         ", stdout);
    offline_put_text(offline_bytes(l->machine[0] != '\0' ? l->machine : "unknown"));
    puts(l->machine[0] != '\0' && strcmp(l->machine, j->present.machine) == 0
             ? " (this machine)"
             : "");
    if (!j->in_use)
        printf("stopped         %s\n", j->start.clean ? "cleanly" : "not cleanly");
}

static void show_text(const struct offline_journal *j)
{
    char time[OFFLINE_TIME_BYTES];
    put_life(j);
    put_start(j);
    if (j->start.fence_limit > 0)
        printf("fence limit     %" PRIu64 "\n", j->start.fence_limit);
    printf("lease-volatile  %s\n",
           offline_time_text(offline_journal_setting_ms(j), time));
    each(j, SL_ITEM_DRAIN, put_drain);
    each(j, SL_ITEM_OVERLAP, put_overlap);
    if (each(j, SL_ITEM_GRANT, NULL) > 0) {
        printf("\n%-24s %-17s %-10s %-5s %-10s %-24s %-11s %s\n", "KEY", "FENCE",
               "REMAINING", "LEASE", "UNITS", "CLIENT", "FLAGS", "NOTE");
        each(j, SL_ITEM_GRANT, put_lease);
    }
    if (each(j, SL_ITEM_KEY, NULL) > 0) {
        printf("\n%-24s %-10s %-5s %s\n", "KEY", "REMAINING", "LEASE", "BYTES");
        each(j, SL_ITEM_KEY, put_key);
    }
}

/* --- JSON --------------------------------------------------------------------------- */

static const char *json_bool(bool b)
{
    return b ? "true" : "false";
}

static const char *comma; /* What precedes the next element of a list. */

/* Print what all elements have. */
static void begin_element(const struct offline_item *i, const char *name)
{
    printf("%s{", comma);
    comma = ",";
    offline_json_member(name, i->item.key);
}

/* Print whether the item is held, and for how long. The times of an item that is ignored belong to
 * the clock of another boot. */
static void json_remaining(const struct offline_item *i)
{
    printf(",\"held\":%s,\"remaining_ms\":", json_bool(i->is_held));
    if (i->is_held && i->left_ms != SL_NEVER) printf("%" PRId64, i->left_ms);
    else fputs("null", stdout);
    printf(",\"long\":%s", json_bool(i->item.is_long));
}

static void json_lease(const struct offline_item *i)
{
    struct sl_grant_view v;
    if (!sl_grant_read(i->item.value, &v)) return;
    begin_element(i, "key");
    printf(",\"fence\":%" PRIu64, i->item.fence);
    json_remaining(i);
    printf(",\"shared\":%s,\"units\":%" PRIu32 ",\"capacity\":%" PRIu64
           ",\"priority\":%" PRId32 ",",
           json_bool(v.shared), v.units, (uint64_t)v.per * v.buckets, v.priority);
    offline_json_member("client", v.name);
    putchar(',');
    offline_json_member("address", v.address);
    putchar(',');
    offline_json_member("note", v.note);
    printf(",\"broken\":%s,\"overlapping\":%s,\"stolen\":%s}", json_bool(v.broken),
           json_bool(v.overlapping), json_bool(v.stolen));
}

static void json_overlap(const struct offline_item *i)
{
    begin_element(i, "key");
    json_remaining(i);
    putchar('}');
}

static void json_drain(const struct offline_item *i)
{
    printf("%s", comma);
    comma = ",";
    offline_json_text(i->item.key);
}

static void json_key(const struct offline_item *i)
{
    begin_element(i, "key");
    json_remaining(i);
    printf(",\"bytes\":%zu}", i->item.value.n);
}

static void json_list(const struct offline_journal *j, const char *name,
                      enum sl_item_kind kind, show_fn *show)
{
    comma = "";
    printf(",\"%s\":[", name);
    each(j, kind, show);
    putchar(']');
}

static void json_start(const struct offline_journal *j)
{
    uint64_t held, ignored;
    fputs(",\"start\":", stdout);
    if (j->is_damaged) {
        fputs("null", stdout);
        return;
    }
    count_leases(j, &held, &ignored);
    printf("{\"same_life\":%s,\"reason\":", json_bool(j->start.same_life));
    if (j->start.same_life) fputs("null", stdout);
    else offline_json_text(offline_bytes(j->start.why_other));
    printf(",\"held\":%" PRIu64 ",\"ignored\":%" PRIu64 ",\"wait_ms\":%" PRId64 "}",
           held, ignored, offline_journal_wait_ms(j));
}

static void show_json(const struct offline_journal *j)
{
    printf("{\"format\":%u,\"owner\":\"%s\",\"in_use\":%s,\"clean\":%s,"
           "\"damaged_at\":",
           SL_JOURNAL_FORMAT, offline_journal_owner(j), json_bool(j->in_use),
           json_bool(j->start.clean));
    if (j->is_damaged) printf("%zu", j->damaged_at);
    else fputs("null", stdout);
    fputs(",\"life\":{", stdout);
    offline_json_member("boot", offline_bytes(j->written.boot));
    putchar(',');
    offline_json_member("machine", offline_bytes(j->written.machine));
    printf(",\"this_boot\":%s}",
           json_bool(j->written.boot[0] != '\0' &&
                     strcmp(j->written.boot, j->present.boot) == 0));
    json_start(j);
    printf(",\"fence_limit\":%" PRIu64 ",\"lease_volatile_ms\":%" PRId64,
           j->start.fence_limit, offline_journal_setting_ms(j));
    json_list(j, "drained", SL_ITEM_DRAIN, json_drain);
    json_list(j, "overlaps", SL_ITEM_OVERLAP, json_overlap);
    json_list(j, "leases", SL_ITEM_GRANT, json_lease);
    json_list(j, "keys", SL_ITEM_KEY, json_key);
    puts("}");
}

/* --- The command ---------------------------------------------------------------------- */

int offline_journal_show(const struct offline_arguments *a)
{
    struct offline_journal j;
    int status = offline_journal_open(&j, a->directory);
    if (status == 0) status = offline_journal_read(&j, a->directory);
    if (status == 0) {
        if (j.has_header && a->json) show_json(&j);
        else if (j.has_header) show_text(&j);
        status = offline_flush();
        if (j.is_damaged) status = offline_journal_report_damage(&j, a->directory);
    }
    offline_journal_close(&j);
    return status;
}
