#include "cli/explain.h"

#include <inttypes.h>
#include <stdio.h>

#include "cli/canal.h"
#include "cli/clock.h"
#include "cli/grid.h"
#include "cli/message.h"
#include "cli/ops.h"
#include "cli/reply.h"
#include "cli/text.h"

/* --- Cells ---------------------------------------------------------------- */

static void put_field(FILE *out, const struct sluice_reply *map, const char *name)
{
    size_t n;
    const char *text = cli_field_text(map, name, &n);
    cli_put_line(out, text, n);
}

/* Print the names of the fields that are 1. */
static void put_flags(FILE *out, const struct sluice_reply *map,
                      const char *const *flags)
{
    const char *between = "";
    for (; *flags != NULL; flags++) {
        if (cli_field_number(map, *flags, 0) != 1) continue;
        fprintf(out, "%s%s", between, *flags);
        between = ", ";
    }
}

/* Print when something began: "14:03:07, 41 s ago". */
static void put_since(FILE *out, int64_t ago_ms)
{
    char clock[32];
    if (ago_ms < 0) {
        fputc('-', out);
        return;
    }
    fprintf(out, "%s, ", cli_format_time(cli_wall_ms() - ago_ms, clock, sizeof clock));
    cli_put_ms(out, ago_ms);
    fputs(" ago", out);
}

/* --- Tables --------------------------------------------------------------- */

static const struct cli_column holder_columns[] = {
    {"HOLDER", false, 16},   {"UNITS", true, 0},  {"SINCE", false, 0},
    {"LEASE LEFT", true, 0}, {"FENCE", false, 0}, {"STATE", false, 0},
    {"NOTE", false, 6},      {NULL, false, 0}};

static void add_holder(struct cli_grid *g, const struct sluice_reply *h)
{
    static const char *const flags[] = {"asked", "broken", "overlapping", NULL};
    bool gone = cli_field_number(h, "connected", -1) == 0;
    bool marked = cli_field_number(h, "asked", 0) != 0 ||
                  cli_field_number(h, "broken", 0) != 0;
    cli_grid_row(g, marked ? CLI_RED : CLI_PLAIN);
    cli_put_client(cli_grid_cell(g), h);
    cli_put_units(cli_grid_cell(g), h);
    put_since(cli_grid_cell(g), cli_field_number(h, "held_ms", -1));
    cli_put_ms(cli_grid_cell(g), cli_field_number(h, "lease_ms", -1));
    fprintf(cli_grid_cell(g), "%" PRId64, cli_field_number(h, "fence", 0));
    FILE *out = cli_grid_cell(g);
    fputs(gone ? "disconnected" : "", out);
    if (gone && (marked || cli_field_number(h, "overlapping", 0) != 0))
        fputs(", ", out);
    put_flags(out, h, flags);
    put_field(cli_grid_cell(g), h, "note");
}

static const struct cli_column waiter_columns[] = {
    {"QUEUE", true, 0},  {"WAITER", false, 16},   {"UNITS", true, 0},
    {"SINCE", false, 0}, {"TIMEOUT IN", true, 0}, {"PRIORITY", true, 0},
    {"STATE", false, 0}, {"NOTE", false, 6},      {"REASON", false, 16},
    {NULL, false, 0}};

static void add_waiter(struct cli_grid *g, const struct sluice_reply *w,
                       size_t position)
{
    static const char *const flags[] = {"steals", NULL};
    cli_grid_row(g, CLI_PLAIN);
    fprintf(cli_grid_cell(g), "%zu", position);
    cli_put_client(cli_grid_cell(g), w);
    cli_put_units(cli_grid_cell(g), w);
    put_since(cli_grid_cell(g), cli_field_number(w, "waited_ms", -1));
    cli_put_ms(cli_grid_cell(g), cli_field_number(w, "left_ms", -1));
    fprintf(cli_grid_cell(g), "%" PRId64, cli_field_number(w, "priority", 0));
    put_flags(cli_grid_cell(g), w, flags);
    put_field(cli_grid_cell(g), w, "note");
    put_field(cli_grid_cell(g), w, "reason");
}

/* Print a table of the holders or of the waiters, and how many of them it does not contain. */
static bool print_clients(const struct sluice_reply *lock, bool waiters)
{
    const char *name = waiters ? "waiters" : "holders";
    const struct sluice_reply *list = cli_field_list(lock, name);
    int64_t all = cli_field_number(lock, waiters ? "waiters_count" : "holders_count",
                                   0);
    if (list->count == 0) return true;
    struct cli_grid *g = cli_grid_new(waiters ? waiter_columns : holder_columns);
    if (g == NULL) return false;
    for (size_t i = 0; i < list->count; i++)
        if (waiters) add_waiter(g, &list->items[i], i + 1);
        else add_holder(g, &list->items[i]);
    putchar('\n');
    bool printed = cli_grid_print(g);
    cli_grid_free(g);
    if (all > (int64_t)list->count)
        printf("and %" PRId64 " more %s\n", all - (int64_t)list->count, name);
    return printed;
}

/* Print why the first waiter waits. */
static void print_reason(const struct sluice_reply *lock)
{
    const struct sluice_reply *list = cli_field_list(lock, "waiters");
    if (list->count == 0) return;
    fputs("\nWhy ", stdout);
    cli_put_client(stdout, &list->items[0]);
    fputs(" waits: ", stdout);
    put_field(stdout, &list->items[0], "reason");
    putchar('\n');
}

static void print_count(const char *name, int64_t n)
{
    if (n > 0) printf(", %" PRId64 " %s%s", n, name, n == 1 ? "" : "s");
}

/* Print the state of the lock, and then each sentence of the server about it. */
static void print_heading(const struct sluice_reply *lock)
{
    const struct sluice_reply *summary = cli_field_list(lock, "summary");
    const struct sluice_reply *holders = cli_field_list(lock, "holders");
    const struct sluice_reply *first = holders->count > 0 ? &holders->items[0] : NULL;
    int64_t count = cli_field_number(lock, "holders_count", 0);
    cli_put_colour(CLI_BOLD);
    put_field(stdout, lock, "key");
    cli_put_colour(CLI_PLAIN);
    fputs(": ", stdout);
    if (count == 0) fputs("free", stdout);
    else {
        fputs("held, ", stdout);
        cli_put_held(stdout, lock, first);
    }
    print_count("holder", count);
    print_count("waiter", cli_field_number(lock, "waiters_count", 0));
    if (cli_field_number(lock, "drained", 0) != 0) fputs(", drained", stdout);
    putchar('\n');
    for (size_t i = 0; i < summary->count; i++) {
        fputs("  ", stdout);
        cli_put_line(stdout, summary->items[i].text, summary->items[i].text_bytes);
        putchar('\n');
    }
}

static int print(const struct cli_ops *o, const struct sluice_reply *lock)
{
    if (o->json) {
        cli_reply_json(stdout, lock);
        return cli_flush_output(0);
    }
    print_heading(lock);
    if (!print_clients(lock, false) || !print_clients(lock, true))
        return cli_status_error("EXPLAIN", SLUICE_ENOMEM);
    print_reason(lock);
    return cli_flush_output(0);
}

/* --- The command ---------------------------------------------------------- */

int cli_explain(const struct cli_command *command, int argc, char **argv)
{
    struct cli_ops o;
    struct sluice_reply *lock;
    int rest;
    int status = cli_ops_parse(command, argc, argv, 1, 1, &o, &rest);
    if (status >= 0) return status;
    const char *const args[] = {"EXPLAIN", argv[rest]};
    if (o.local) return cli_canal_explain(o.segment, argv[rest], o.json);
    status = cli_ops_connect(&o);
    if (status != 0) return status;
    status = cli_ops_call(&o, args, 2, &lock);
    if (status == 0) {
        cli_ops_no_deadline();
        status = cli_field(lock, "key") != NULL ? print(&o, lock)
                                                : cli_ops_unexpected(&o, "EXPLAIN");
        sluice_reply_free(lock);
    }
    sluice_wire_close(o.wire);
    return status;
}
