#include "cli/grid.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "base/utf8.h"

#define GAP 2 /* Blanks between two columns. */

struct grid_row {
    struct grid_row *next;
    enum cli_colour colour;
    char *cells[CLI_COLUMNS_MAX]; /* NULL: empty. */
};

struct cli_grid {
    const struct cli_column *columns;
    size_t count;
    struct grid_row *first, **last, *current;
    size_t filled; /* The number of cells of the current row that were begun. */
    FILE *cell;    /* The open cell, or NULL. */
    char *text;    /* The text of the open cell. */
    size_t bytes;
    FILE *nowhere; /* For cells of a row that could not be allocated. */
    bool failed;
};

/* --- The terminal --------------------------------------------------------- */

bool cli_has_colours(void)
{
    const char *no = getenv("NO_COLOR"), *term = getenv("TERM");
    return (no == NULL || no[0] == '\0') && term != NULL && term[0] != '\0' &&
           strcmp(term, "dumb") != 0 && isatty(STDOUT_FILENO);
}

void cli_put_colour(enum cli_colour colour)
{
    static const char *const codes[] = {
        [CLI_PLAIN] = "\033[0m",   [CLI_BOLD] = "\033[1m",
        [CLI_RED] = "\033[31m",    [CLI_GREEN] = "\033[32m",
        [CLI_YELLOW] = "\033[33m", [CLI_MAGENTA] = "\033[35m"};
    if (cli_has_colours()) fputs(codes[colour], stdout);
}

size_t cli_screen_width(void)
{
    struct winsize size;
    if (!isatty(STDOUT_FILENO) || ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) != 0)
        return 0;
    return size.ws_col;
}

/* --- The width of text ---------------------------------------------------- */

static uint32_t code_of(const unsigned char *s, size_t n)
{
    static const unsigned char masks[] = {0, 0x7f, 0x1f, 0x0f, 0x07};
    uint32_t c = s[0] & masks[n];
    for (size_t i = 1; i < n; i++) c = c << 6 | (s[i] & 0x3fu);
    return c;
}

/* Return the number of columns that most terminals use for a character. */
static size_t width_of(uint32_t c)
{
    static const struct {
        uint32_t from, to;
        size_t width;
    } ranges[] = {
        {0x300, 0x36f, 0},   {0x200b, 0x200f, 0},   {0xfe00, 0xfe0f, 0},
        {0x1100, 0x115f, 2}, {0x2e80, 0xa4cf, 2},   {0xac00, 0xd7a3, 2},
        {0xf900, 0xfaff, 2}, {0xfe30, 0xfe6f, 2},   {0xff00, 0xff60, 2},
        {0xffe0, 0xffe6, 2}, {0x1f300, 0x1faff, 2}, {0x20000, 0x3fffd, 2},
    };
    for (size_t i = 0; i < sizeof ranges / sizeof *ranges; i++)
        if (c >= ranges[i].from && c <= ranges[i].to) return ranges[i].width;
    return 1;
}

/* Return the length of the character at s, and its width in *width. */
static size_t step(const char *s, size_t *width)
{
    const unsigned char *u = (const unsigned char *)s;
    size_t n = sl_utf8_length(u, 4);
    *width = n == 0 ? 1 : width_of(code_of(u, n));
    return n == 0 ? 1 : n;
}

static size_t columns_of(const char *s)
{
    size_t sum = 0, width;
    while (*s != '\0') {
        s += step(s, &width);
        sum += width;
    }
    return sum;
}

/* Print text, cut to `most` columns. */
static void put_cut(const char *s, size_t most)
{
    static const char dots[] = "...";
    size_t space = most, sum = 0, width, n;
    bool cut = columns_of(s) > most;
    if (cut) space = most > strlen(dots) ? most - strlen(dots) : 0;
    for (; *s != '\0'; s += n, sum += width) {
        n = step(s, &width);
        if (sum + width > space) break;
        fwrite(s, 1, n, stdout);
    }
    if (cut) printf("%.*s", (int)most, dots);
}

/* --- Cells ---------------------------------------------------------------- */

struct cli_grid *cli_grid_new(const struct cli_column *columns)
{
    struct cli_grid *g = calloc(1, sizeof *g);
    if (g == NULL) return NULL;
    g->columns = columns;
    while (columns[g->count].title != NULL) g->count++;
    g->last = &g->first;
    return g;
}

/* Store the text of the open cell in the row. */
static void close_cell(struct cli_grid *g)
{
    if (g->cell == NULL) return;
    if (fclose(g->cell) != 0) g->failed = true;
    g->cell = NULL;
    if (g->current != NULL && g->filled <= g->count)
        g->current->cells[g->filled - 1] = g->text;
    else free(g->text);
    g->text = NULL;
}

void cli_grid_free(struct cli_grid *g)
{
    if (g == NULL) return;
    close_cell(g);
    for (struct grid_row *r = g->first, *next; r != NULL; r = next) {
        next = r->next;
        for (size_t i = 0; i < g->count; i++) free(r->cells[i]);
        free(r);
    }
    if (g->nowhere != NULL) fclose(g->nowhere);
    free(g);
}

void cli_grid_row(struct cli_grid *g, enum cli_colour colour)
{
    close_cell(g);
    g->filled = 0;
    g->current = calloc(1, sizeof *g->current);
    if (g->current == NULL) {
        g->failed = true;
        return;
    }
    g->current->colour = colour;
    *g->last = g->current;
    g->last = &g->current->next;
}

FILE *cli_grid_cell(struct cli_grid *g)
{
    close_cell(g);
    g->filled++;
    g->cell = open_memstream(&g->text, &g->bytes);
    if (g->cell != NULL) return g->cell;
    g->failed = true;
    g->filled--;
    /* The caller writes somewhere, and cli_grid_print() reports the failure. */
    if (g->nowhere == NULL) g->nowhere = fopen("/dev/null", "we");
    return g->nowhere != NULL ? g->nowhere : stderr;
}

/* --- Printing ------------------------------------------------------------- */

/* Find the width of each column; 0: no row has text in it, so it is not printed. */
static void measure(const struct cli_grid *g, size_t *widths)
{
    for (size_t i = 0; i < g->count; i++) {
        size_t title = columns_of(g->columns[i].title);
        widths[i] = g->first == NULL ? title : 0;
        for (const struct grid_row *r = g->first; r != NULL; r = r->next) {
            size_t n = r->cells[i] != NULL ? columns_of(r->cells[i]) : 0;
            if (n > 0 && n < title) n = title;
            if (n > widths[i]) widths[i] = n;
        }
    }
}

/* Cut the widest column that may shrink, again and again, until a line fits. */
static void fit(const struct cli_grid *g, size_t *widths, size_t screen)
{
    size_t sum = 0;
    for (size_t i = 0; i < g->count; i++)
        if (widths[i] > 0) sum += widths[i] + (sum > 0 ? GAP : 0);
    while (sum > screen) {
        size_t widest = g->count;
        for (size_t i = 0; i < g->count; i++)
            if (g->columns[i].least > 0 && widths[i] > g->columns[i].least &&
                (widest == g->count || widths[i] > widths[widest]))
                widest = i;
        if (widest == g->count) return; /* The terminal wraps the line. */
        widths[widest]--;
        sum--;
    }
}

typedef const char *cell_fn(const struct cli_grid *g, const void *row, size_t i);

static void put_line(const struct cli_grid *g, const size_t *widths, cell_fn *cell,
                     const void *row, enum cli_colour colour)
{
    size_t blanks = 0; /* Still to be printed, if text follows. */
    if (colour != CLI_PLAIN) cli_put_colour(colour);
    for (size_t i = 0; i < g->count; i++) {
        if (widths[i] == 0) continue;
        const char *text = cell(g, row, i);
        size_t n = columns_of(text), pad = n < widths[i] ? widths[i] - n : 0;
        bool right = g->columns[i].right;
        if (n > 0) {
            printf("%*s", (int)(blanks + (right ? pad : 0)), "");
            put_cut(text, widths[i]);
            blanks = right ? 0 : pad;
        } else blanks += pad;
        blanks += GAP;
    }
    if (colour != CLI_PLAIN) cli_put_colour(CLI_PLAIN);
    putchar('\n');
}

static const char *title_of(const struct cli_grid *g, const void *unused, size_t i)
{
    (void)unused;
    return g->columns[i].title;
}

static const char *cell_of(const struct cli_grid *g, const void *from, size_t i)
{
    const struct grid_row *r = from;
    (void)g;
    return r->cells[i] != NULL ? r->cells[i] : "";
}

bool cli_grid_print(struct cli_grid *g)
{
    size_t widths[CLI_COLUMNS_MAX], screen = cli_screen_width();
    close_cell(g);
    if (g->failed) return false;
    measure(g, widths);
    if (screen > 0) fit(g, widths, screen);
    put_line(g, widths, title_of, NULL, CLI_BOLD);
    for (const struct grid_row *r = g->first; r != NULL; r = r->next)
        put_line(g, widths, cell_of, r, r->colour);
    return true;
}
