#include "sheet.h"

#include <assert.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "print.h"
#include "sluice.h"

/* ---- filling ---- */

struct table *sheet_table(struct sheet *s, const char *part, const char *id,
                          const char *title, const char *unit)
{
    assert(s->table_count < SHEET_TABLES_MAX);
    struct table *t = &s->tables[s->table_count++];
    t->part = part;
    t->id = id;
    t->title = title;
    t->unit = unit;
    return t;
}

uint32_t table_row(struct table *t, const char *format, ...)
{
    va_list arguments;
    assert(t->rows < SHEET_ROWS_MAX);
    va_start(arguments, format);
    vsnprintf(t->row_names[t->rows], sizeof t->row_names[0], format, arguments);
    va_end(arguments);
    return t->rows++;
}

static int by_size(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

void cell_add(struct cell *c, double value)
{
    double sorted[SHEET_ROUNDS_MAX];
    assert(c->n < SHEET_ROUNDS_MAX);
    c->runs[c->n++] = value;
    memcpy(sorted, c->runs, c->n * sizeof sorted[0]);
    qsort(sorted, c->n, sizeof sorted[0], by_size);
    c->min = sorted[0];
    c->max = sorted[c->n - 1];
    c->median = (sorted[(c->n - 1) / 2] + sorted[c->n / 2]) / 2;
}

void cell_skip(struct cell *c, const char *why)
{
    snprintf(c->skipped, sizeof c->skipped, "%s", why);
}

void sheet_goal(struct sheet *s, const char *id, const struct cell *over,
                const struct cell *under, double limit, double goal, const char *format,
                ...)
{
    va_list arguments;
    assert(s->goal_count < SHEET_GOALS_MAX);
    struct goal *g = &s->goals[s->goal_count++];
    *g = (struct goal){
        .id = id, .over = over, .under = under, .limit = limit, .goal = goal};
    va_start(arguments, format);
    vsnprintf(g->what, sizeof g->what, format, arguments);
    va_end(arguments);
}

void sheet_least(struct sheet *s, const char *id, const struct cell *over,
                 const struct cell *under, double least, const char *format, ...)
{
    va_list arguments;
    assert(s->goal_count < SHEET_GOALS_MAX);
    struct goal *g = &s->goals[s->goal_count++];
    *g = (struct goal){.id = id, .over = over, .under = under, .least = least};
    va_start(arguments, format);
    vsnprintf(g->what, sizeof g->what, format, arguments);
    va_end(arguments);
}

/* ---- derived results ---- */

static bool goal_measured(const struct goal *g)
{
    return g->over->n > 0 && (g->under == NULL || g->under->n > 0);
}

static double goal_value(const struct goal *g)
{
    return g->under == NULL ? g->over->median : g->over->median / g->under->median;
}

/* Another system was better than Sluice in this cell. */
static bool lost(const struct table *t, uint32_t row, uint32_t column)
{
    const struct cell *ours = &t->cells[row][0], *its = &t->cells[row][column];
    if (t->why == NULL || column == 0 || column < t->ours) return false;
    if (ours->n == 0 || its->n == 0) return false;
    return t->better == LESS ? its->median < ours->median : its->median > ours->median;
}

/* ---- text ---- */

/* Four significant digits. */
static const char *number(double x)
{
    static char texts[8][24];
    static unsigned turn;
    char *text = texts[turn++ % 8];
    double size = x < 0 ? -x : x;
    int decimals = size >= 1000 ? 0 : size >= 100 ? 1 : size >= 10 ? 2 : 3;
    snprintf(text, sizeof texts[0], "%.*f", decimals, x);
    return text;
}

static void print_cell(const struct cell *c, int width)
{
    char text[64] = "-";
    if (c->n == 1) snprintf(text, sizeof text, "%s", number(c->median));
    if (c->n > 1)
        snprintf(text, sizeof text, "%s %s..%s", number(c->median), number(c->min),
                 number(c->max));
    printf(" %*s", width, text);
}

static void print_table(const struct table *t)
{
    int width = t->columns > 2 ? 21 : 24;
    printf("\n%-24s", t->title);
    for (uint32_t i = 0; i < t->columns; i++) printf(" %*s", width, t->column_names[i]);
    printf("\n  %s\n", t->unit);
    for (uint32_t row = 0; row < t->rows; row++) {
        printf("  %-22s", t->row_names[row]);
        for (uint32_t i = 0; i < t->columns; i++) print_cell(&t->cells[row][i], width);
        putchar('\n');
    }
    for (uint32_t row = 0; row < t->rows; row++)
        for (uint32_t i = 0; i < t->columns; i++)
            if (t->cells[row][i].skipped[0] != '\0')
                printf("  %s, %s: not measured: %s\n", t->row_names[row],
                       t->column_names[i], t->cells[row][i].skipped);
    if (t->note[0] != '\0') print_wrapped(t->note, 2, 88);
}

static void print_bound(const char *word, double bound, double value)
{
    if (bound > 0)
        printf("   %s %s %s", word, number(bound), value <= bound ? "met" : "missed");
}

static void print_goal(const struct goal *g)
{
    printf("  %s\n", g->what);
    if (!goal_measured(g)) {
        printf("      not measured\n");
        return;
    }
    double value = goal_value(g);
    if (g->under == NULL) printf("      %s", number(value));
    else
        printf("      %s / %s = %.2f", number(g->over->median),
               number(g->under->median), value);
    print_bound("at most", g->limit, value);
    print_bound("goal", g->goal, value);
    if (g->least > 0)
        printf("   at least %s %s", number(g->least),
               value >= g->least ? "met" : "missed");
    if (g->limit == 0 && g->goal == 0 && g->least == 0) printf("   no goal");
    if (g->under != NULL && g->over->n > 1)
        printf("   (of the minima: %.2f)", g->over->min / g->under->min);
    putchar('\n');
}

static void print_losses(const struct sheet *s)
{
    bool any = false;
    const char *why = NULL; /* The reason of the tables above, printed once. */
    printf("\n---- Where Sluice is slower ----\n\n");
    for (uint32_t n = 0; n < s->table_count; n++) {
        const struct table *t = &s->tables[n];
        bool said = false;
        for (uint32_t row = 0; row < t->rows; row++)
            for (uint32_t i = 1; i < t->columns; i++) {
                if (!lost(t, row, i)) continue;
                if (!said && why != NULL && why != t->why) print_wrapped(why, 4, 88);
                if (!said) printf("  %s: %s\n", t->title, t->unit);
                said = any = true;
                printf("    %-22s %-18s %10s   Sluice %10s (%.2f x)\n",
                       t->row_names[row], t->column_names[i],
                       number(t->cells[row][i].median), number(t->cells[row][0].median),
                       t->cells[row][0].median / t->cells[row][i].median);
            }
        if (said) why = t->why;
    }
    if (why != NULL) print_wrapped(why, 4, 88);
    if (!any) printf("  Nowhere, in this run.\n");
}

static void print_head(const struct sheet *s)
{
    const struct machine *m = &s->machine;
    printf("Sluice %s%s%s: %s\n\n", SLUICE_VERSION,
           s->commit[0] != '\0' ? ", commit " : "", s->commit, s->title);
    print_machine(m);
    printf("compiler  %s\n", m->compiler);
    printf("runs      %u rounds of %.0f ms%s\n", s->rounds, s->run_ms,
           s->quick ? "; --quick, so do not rely on the numbers" : "");
    printf("          load %.2f at the end; other processes used %s\n"
           "          for %.1f %% of the time%s\n\n",
           s->load_after, s->whose, 100 * s->kept_off,
           s->kept_off > 0.05 ? "; repeat on an idle machine" : "");
    print_wrapped(s->method, 0, 88);
}

void sheet_text(const struct sheet *s)
{
    const char *part = "";
    print_head(s);
    for (uint32_t i = 0; i < s->table_count; i++) {
        if (strcmp(part, s->tables[i].part) != 0)
            printf("\n---- %s ----\n", s->tables[i].part);
        part = s->tables[i].part;
        print_table(&s->tables[i]);
    }
    printf("\n---- Goals, of the medians above ----\n\n");
    for (uint32_t i = 0; i < s->goal_count; i++) print_goal(&s->goals[i]);
    print_losses(s);
}

/* ---- JSON ---- */

static void json_cell(const struct table *t, uint32_t row, uint32_t column, bool *first)
{
    const struct cell *c = &t->cells[row][column];
    if (c->n == 0 && c->skipped[0] == '\0') return;
    printf("%s\n        {", *first ? "" : ",");
    *first = false;
    json_pair("row", t->row_names[row], ", ");
    json_pair("column", t->column_names[column], ", ");
    if (c->n == 0) {
        json_pair("skipped", c->skipped, "}");
        return;
    }
    printf("\"median\": %.4f, \"min\": %.4f, \"max\": %.4f, \"runs\": [", c->median,
           c->min, c->max);
    for (uint32_t i = 0; i < c->n; i++) printf("%s%.4f", i > 0 ? ", " : "", c->runs[i]);
    printf("]}");
}

static void json_table(const struct table *t)
{
    static const char *const better[] = {"neither", "less", "more"};
    bool first = true;
    printf("    {\n      ");
    json_pair("part", t->part, ",\n      ");
    json_pair("id", t->id, ",\n      ");
    json_pair("title", t->title, ",\n      ");
    json_pair("unit", t->unit, ",\n      ");
    json_pair("better", better[t->better], ",\n      ");
    if (t->note[0] != '\0') json_pair("note", t->note, ",\n      ");
    printf("\"results\": [");
    for (uint32_t row = 0; row < t->rows; row++)
        for (uint32_t i = 0; i < t->columns; i++) json_cell(t, row, i, &first);
    printf("%s]\n    }", first ? "" : "\n      ");
}

static void json_bound(const char *name, const char *met, double bound, double value,
                       bool measured)
{
    if (bound <= 0) return;
    printf("\"%s\": %.4f, ", name, bound);
    if (measured) printf("\"%s\": %s, ", met, value <= bound ? "true" : "false");
}

static void json_goal(const struct goal *g)
{
    bool measured = goal_measured(g);
    double value = measured ? goal_value(g) : 0;
    printf("    {");
    json_pair("id", g->id, ", ");
    json_pair("what", g->what, ", ");
    if (measured) printf("\"value\": %.4f, ", value);
    json_bound("limit", "limit_met", g->limit, value, measured);
    json_bound("goal", "goal_met", g->goal, value, measured);
    if (g->least > 0) printf("\"least\": %.4f, ", g->least);
    if (g->least > 0 && measured)
        printf("\"least_met\": %s, ", value >= g->least ? "true" : "false");
    printf("\"measured\": %s}", measured ? "true" : "false");
}

static void json_losses(const struct sheet *s)
{
    bool first = true;
    for (uint32_t n = 0; n < s->table_count; n++) {
        const struct table *t = &s->tables[n];
        for (uint32_t row = 0; row < t->rows; row++)
            for (uint32_t i = 1; i < t->columns; i++) {
                if (!lost(t, row, i)) continue;
                printf("%s\n    {", first ? "" : ",");
                first = false;
                json_pair("table", t->id, ", ");
                json_pair("row", t->row_names[row], ", ");
                json_pair("to", t->column_names[i], ", ");
                printf("\"its\": %.4f, \"ours\": %.4f, ", t->cells[row][i].median,
                       t->cells[row][0].median);
                json_pair("why", t->why, "}");
            }
    }
    printf("%s]\n", first ? "" : "\n  ");
}

void sheet_json(const struct sheet *s)
{
    printf("{\n  ");
    json_pair("version", SLUICE_VERSION, ",\n  ");
    json_pair("commit", s->commit, ",\n");
    json_machine(&s->machine);
    printf("  \"rounds\": %u,\n  \"run_ms\": %.1f,\n  \"quick\": %s,\n", s->rounds,
           s->run_ms, s->quick ? "true" : "false");
    printf("  \"load_after\": %.2f,\n  \"kept_off\": %.4f,\n  ", s->load_after,
           s->kept_off);
    json_pair("method", s->method, ",\n");
    printf("  \"tables\": [\n");
    for (uint32_t i = 0; i < s->table_count; i++) {
        json_table(&s->tables[i]);
        printf("%s\n", i + 1 < s->table_count ? "," : "");
    }
    printf("  ],\n  \"goals\": [\n");
    for (uint32_t i = 0; i < s->goal_count; i++) {
        json_goal(&s->goals[i]);
        printf("%s\n", i + 1 < s->goal_count ? "," : "");
    }
    printf("  ],\n  \"where_we_lose\": [");
    json_losses(s);
    printf("}\n");
}
