#include "cli/ls.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/canal.h"
#include "cli/exits.h"
#include "cli/grid.h"
#include "cli/message.h"
#include "cli/ops.h"
#include "cli/reply.h"
#include "cli/text.h"

#define PAGE "1000" /* COUNT: the number of locks that the server visits for a page. */
/* The list ends after this number of locks or pages, even if the server sends more. */
#define LOCKS_MAX 200000u
#define PAGES_MAX 100000u

struct list {
    struct sluice_reply **pages;       /* Owned. */
    const struct sluice_reply **locks; /* In the pages. */
    size_t page_count, lock_count;     /* With -q, there are no pages. */
    bool cut;                          /* There are more locks. */
};

static void free_list(struct list *l)
{
    for (size_t i = 0; i < l->page_count; i++) sluice_reply_free(l->pages[i]);
    free(l->pages);
    free(l->locks);
}

/* --- Reading -------------------------------------------------------------- */

/* Return whether a reply is a page of LOCKS: a cursor and a list of maps. */
static bool is_page(const struct sluice_reply *r)
{
    if (r->type != SLUICE_REPLY_LIST || r->count != 2) return false;
    if (r->items[0].type != SLUICE_REPLY_TEXT || r->items[1].type != SLUICE_REPLY_LIST)
        return false;
    for (size_t i = 0; i < r->items[1].count; i++)
        if (cli_field(&r->items[1].items[i], "key") == NULL) return false;
    return true;
}

/* Add a page to the list; the list then owns it. Returns false if out of memory. */
static bool add_page(struct list *l, struct sluice_reply *page)
{
    const struct sluice_reply *found = &page->items[1];
    size_t sum = l->lock_count + found->count;
    void *pages = realloc(l->pages, (l->page_count + 1) * sizeof *l->pages);
    if (pages != NULL) l->pages = pages;
    void *locks = realloc(l->locks, (sum + 1) * sizeof *l->locks);
    if (locks != NULL) l->locks = locks;
    if (pages == NULL || locks == NULL) return false;
    l->pages[l->page_count++] = page;
    for (size_t i = 0; i < found->count; i++)
        l->locks[l->lock_count++] = &found->items[i];
    return true;
}

static void put_key(FILE *out, const struct sluice_reply *lock)
{
    size_t n;
    const char *key = cli_field_text(lock, "key", &n);
    cli_put_line(out, key, n);
}

/* Print the keys of each page at once, so that a completion whose timeout is shorter shows some. */
static void put_keys(const struct sluice_reply *page)
{
    cli_ops_no_deadline(); /* A process that reads the keys may be slow. */
    for (size_t i = 0; i < page->items[1].count; i++) {
        put_key(stdout, &page->items[1].items[i]);
        putchar('\n');
    }
    fflush(stdout);
}

/* Take a page. Stores its cursor. Returns 0; or prints a message and returns an exit status. */
static int take_page(const struct cli_ops *o, struct list *l, struct sluice_reply *page,
                     char *cursor, size_t size)
{
    if (!is_page(page)) {
        sluice_reply_free(page);
        return cli_ops_unexpected(o, "LOCKS");
    }
    snprintf(cursor, size, "%s", page->items[0].text);
    if (o->quiet || page->items[1].count == 0) {
        if (o->quiet) {
            put_keys(page);
            l->lock_count += page->items[1].count;
        }
        sluice_reply_free(page);
        return 0;
    }
    if (add_page(l, page)) return 0;
    sluice_reply_free(page);
    return cli_status_error("LOCKS", SLUICE_ENOMEM);
}

/* Read all pages. Returns 0; or prints a message and returns an exit status. */
static int read_locks(struct cli_ops *o, const char *pattern, struct list *l)
{
    char cursor[32] = "0";
    for (size_t pages = 0;; pages++) {
        const char *args[8] = {"LOCKS"};
        size_t n = 1;
        struct sluice_reply *page;
        if (o->majority) args[n++] = "MAJORITY";
        if (pattern != NULL) args[n++] = "MATCH", args[n++] = pattern;
        args[n++] = "COUNT", args[n++] = PAGE;
        if (pages > 0) args[n++] = "CURSOR", args[n++] = cursor;
        int failed = cli_ops_call(o, args, n, &page);
        if (failed == 0) failed = take_page(o, l, page, cursor, sizeof cursor);
        if (failed != 0 || strcmp(cursor, "0") == 0) return failed;
        if (l->lock_count >= LOCKS_MAX || pages == PAGES_MAX) {
            l->cut = true;
            return 0;
        }
        cli_ops_extend(o);
    }
}

/* --- Order ---------------------------------------------------------------- */

static int compare_numbers(int64_t a, int64_t b)
{
    return a > b ? -1 : a < b ? 1 : 0; /* The larger number is first. */
}

static int compare_texts(const struct sluice_reply *a, const struct sluice_reply *b)
{
    size_t n, m;
    const char *x = cli_field_text(a, "key", &n), *y = cli_field_text(b, "key", &m);
    int order = memcmp(x, y, n < m ? n : m);
    return order != 0 ? order : compare_numbers((int64_t)m, (int64_t)n);
}

/* Locks with the most waiters are first, then those with the longest wait. */
static int compare(const void *a, const void *b)
{
    const struct sluice_reply *x = *(const struct sluice_reply *const *)a;
    const struct sluice_reply *y = *(const struct sluice_reply *const *)b;
    static const char *const fields[] = {"waiters", "waited_ms"};
    for (size_t i = 0; i < sizeof fields / sizeof *fields; i++) {
        int order = compare_numbers(cli_field_number(x, fields[i], 0),
                                    cli_field_number(y, fields[i], 0));
        if (order != 0) return order;
    }
    return compare_texts(x, y);
}

/* --- Printing ------------------------------------------------------------- */

static const struct cli_column columns[] = {
    {"KEY", false, 12},    {"HELD", true, 0},       {"HOLDER", false, 12},
    {"HELD FOR", true, 0}, {"LEASE LEFT", true, 0}, {"WAITERS", true, 0},
    {"LONGEST", true, 0},  {"STATE", false, 0},     {NULL, false, 0}};

static void add_row(struct cli_grid *g, const struct sluice_reply *lock)
{
    const struct sluice_reply *holder = cli_field(lock, "holder");
    int64_t holders = cli_field_number(lock, "holders", 0);
    int64_t waiters = cli_field_number(lock, "waiters", 0);
    bool drained = cli_field_number(lock, "drained", 0) != 0;
    FILE *out;
    cli_grid_row(g, waiters > 0 ? CLI_YELLOW : CLI_PLAIN);
    put_key(cli_grid_cell(g), lock);
    cli_put_held(cli_grid_cell(g), lock, holder);
    out = cli_grid_cell(g);
    if (holders > 0) cli_put_client(out, holder);
    else fputc('-', out);
    if (holders > 1) fprintf(out, " and %" PRId64 " more", holders - 1);
    cli_put_ms(cli_grid_cell(g), cli_field_number(holder, "held_ms", -1));
    cli_put_ms(cli_grid_cell(g), cli_field_number(holder, "lease_ms", -1));
    out = cli_grid_cell(g);
    fprintf(out, "%" PRId64, waiters);
    cli_put_ms(cli_grid_cell(g),
               waiters > 0 ? cli_field_number(lock, "waited_ms", -1) : -1);
    fputs(drained ? "drained" : "", cli_grid_cell(g));
}

static int print_table(const struct list *l)
{
    struct cli_grid *g = cli_grid_new(columns);
    for (size_t i = 0; g != NULL && i < l->lock_count; i++) add_row(g, l->locks[i]);
    bool printed = g != NULL && cli_grid_print(g);
    cli_grid_free(g);
    return printed ? 0 : cli_status_error("LOCKS", SLUICE_ENOMEM);
}

static void print_json(const struct cli_ops *o, const struct list *l)
{
    fputs("{\"server\":", stdout);
    cli_json_string(stdout, o->address);
    fputs(",\"locks\":[", stdout);
    for (size_t i = 0; i < l->lock_count; i++) {
        if (i > 0) putchar(',');
        cli_reply_json_value(stdout, l->locks[i]);
    }
    printf("],\"complete\":%s}\n", l->cut ? "false" : "true");
}

static int print(const struct cli_ops *o, struct list *l)
{
    if (l->page_count > 0) qsort(l->locks, l->lock_count, sizeof *l->locks, compare);
    if (o->json) print_json(o, l);
    int failed = o->json || o->quiet ? 0 : print_table(l);
    if (l->cut && !o->json)
        cli_message(
            "listed %zu locks, but there are more; use PATTERN to select some of them",
            l->lock_count);
    return cli_flush_output(failed);
}

/* --- The command ---------------------------------------------------------- */

int cli_ls(const struct cli_command *command, int argc, char **argv)
{
    struct cli_ops o;
    struct list l = {0};
    int rest;
    int status = cli_ops_parse(command, argc, argv, 0, 1, &o, &rest);
    if (status >= 0) return status;
    const char *pattern = rest < argc ? argv[rest] : NULL;
    if (o.local) return cli_canal_list(o.segment, pattern, o.json, o.quiet);
    status = cli_ops_connect(&o);
    if (status != 0) return status;
    status = read_locks(&o, pattern, &l);
    cli_ops_no_deadline(); /* A pager may read slowly. */
    if (status == 0) status = print(&o, &l);
    free_list(&l);
    sluice_wire_close(o.wire);
    return status;
}
