#include "cli/top_draw.h"

#include <inttypes.h>
#include <stdarg.h>
#include <string.h>

#include "cli/cells.h"
#include "cli/clock.h"
#include "cli/hold.h"
#include "cli/text.h"

#define LINE_SIZE 1024
#define HEAD_MAX 6         /* Lines above the table. */
#define ROWS_MIN 3         /* The table gets this many, before the lines above it. */
#define FLEXIBLE_MIN 12    /* Columns of a key, and of a holder. */
#define PLAIN_WIDTH_MAX 80 /* The same in plain text; longer ones are not aligned. */
#define LONG_WAIT_MS 10000 /* Shown in red. */

#define BOLD "\033[1m"
#define REVERSE "\033[7m"
#define RED "\033[31m"
#define GREEN "\033[32m"
#define YELLOW "\033[33m"

/* --- The lines above the table ---------------------------------------------------- */

struct top_lines {
    char line[HEAD_MAX][LINE_SIZE];
    const char *style[HEAD_MAX];
    size_t count;
};

__attribute__((format(printf, 3, 4))) static void add(struct top_lines *h,
                                                      const char *style,
                                                      const char *format, ...)
{
    va_list args;
    if (h->count == HEAD_MAX) return;
    va_start(args, format);
    vsnprintf(h->line[h->count], LINE_SIZE, format, args);
    va_end(args);
    h->style[h->count++] = style;
}

/* Format a number of events per second. */
static const char *rate(double value, char out[32])
{
    if (value < 0) return "-";
    snprintf(out, 32, value < 10 ? "%.1f" : "%.0f", value);
    return out;
}

static uint64_t holders_of(const struct top_update *u)
{
    uint64_t n = 0;
    for (size_t i = 0; i < u->count; i++) n += u->locks[i].holders;
    return n;
}

static uint64_t waiters_of(const struct top_update *u)
{
    uint64_t n = 0;
    for (size_t i = 0; i < u->count; i++) n += u->locks[i].waiters;
    return n;
}

static void add_cluster(struct top_lines *h, const struct top_info *i)
{
    if (i->nodes == 0) return;
    char keeper[64] = "";
    if (strcmp(i->deployment, "etcd") == 0) {
        if (i->keeper_node > 0)
            snprintf(keeper, sizeof keeper, "  keeper: node %" PRId64, i->keeper_node);
        else strcpy(keeper, "  no keeper");
    }
    if (i->term > 0)
        add(h, "",
            "node %" PRId64 " of %" PRId64 " (%" PRId64 " others up)%s  term %" PRId64,
            i->node, i->nodes, i->nodes_up, keeper, i->term);
    else
        add(h, "", "node %" PRId64 " of %" PRId64 " (%" PRId64 " others up)%s", i->node,
            i->nodes, i->nodes_up, keeper);
}

static const char *deployment_text(const struct top_info *i)
{
    if (strcmp(i->deployment, "etcd") == 0) return "cluster on etcd";
    return strcmp(i->deployment, "majority") == 0 ? "majority cluster"
                                                  : "single server";
}

static void add_server(struct top_lines *h, const struct top_update *u)
{
    const struct top_info *i = &u->info;
    char up[32], a[32], b[32], c[32];
    if (i->deployment == NULL) { /* Not connected. */
        add(h, BOLD, "%s", u->source);
        return;
    }
    add(h, BOLD, "%s  Sluice %s  %s  up %s  %s", u->source, i->version,
        deployment_text(i), cli_format_duration(i->uptime_s * 1000, up, sizeof up),
        i->ready ? "READY" : "NOT READY");
    add(h, "",
        "clients %" PRId64 "  locks %" PRId64 "  holders %" PRIu64
        "%s  waiters %" PRId64,
        i->clients, i->locks, holders_of(u), u->complete ? "" : "+", i->waiters);
    add(h, "", "per second: grants %s  releases %s  expiries %s", rate(u->grants_s, a),
        rate(u->releases_s, b), rate(u->expiries_s, c));
    add_cluster(h, i);
    if (!i->ready) add(h, RED, "%s", i->unready);
}

/* Make the lines above the table of locks. The first is the most important. */
static void make_head(struct top_lines *h, const struct top_update *u)
{
    h->count = 0;
    if (u->local) {
        add(h, BOLD, "%s", u->source);
        add(h, "", "locks %zu  holders %" PRIu64 "  waiters %" PRIu64, u->count,
            holders_of(u), waiters_of(u));
    } else add_server(h, u);
    if (u->trouble[0] != '\0')
        add(h, RED, "%s: %s",
            u->local || u->info.deployment != NULL ? "NO DATA" : "NOT CONNECTED",
            u->trouble);
}

/* --- Columns ------------------------------------------------------------------------ */

enum column { KEY, HELD, WAITERS, WAITED, HOLDER, SINCE, LEASE, COLUMNS };

static const struct {
    const char *title;
    int width; /* 0: takes what is left. */
    bool right;
} columns[COLUMNS] = {
    [KEY] = {"KEY", 0, false},        [HELD] = {"HELD/CAP", 10, true},
    [WAITERS] = {"WAITERS", 7, true}, [WAITED] = {"WAIT", 7, true},
    [HOLDER] = {"HOLDER", 0, false},  [SINCE] = {"HELD", 7, true},
    [LEASE] = {"LEASE", 7, true},
};

/* What a narrow terminal does not show: the first column first. */
static const enum column drops[] = {LEASE, SINCE, HOLDER, HELD, WAITED, WAITERS};

/* Set the width of each column, with a space between two; 0: it is not shown. `key` is the width
 * of the longest key. */
static void lay_out(int total, int key, int widths[COLUMNS])
{
    bool shown[COLUMNS];
    memset(shown, true, sizeof shown);
    for (size_t drop = 0;; drop++) {
        int fixed = -1, flexible = 0;
        for (size_t i = 0; i < COLUMNS; i++) {
            if (!shown[i]) continue;
            fixed += columns[i].width + 1;
            flexible += columns[i].width == 0;
        }
        int left = total - fixed;
        if (left < flexible * FLEXIBLE_MIN && drop < sizeof drops / sizeof *drops) {
            shown[drops[drop]] = false;
            continue;
        }
        for (size_t i = 0; i < COLUMNS; i++)
            widths[i] = shown[i] ? columns[i].width : 0;
        widths[HOLDER] = 0;
        if (shown[HOLDER]) {
            widths[HOLDER] = left - key < left / 2 ? left - key : left / 2;
            if (widths[HOLDER] < FLEXIBLE_MIN) widths[HOLDER] = FLEXIBLE_MIN;
        }
        widths[KEY] = left > widths[HOLDER] ? left - widths[HOLDER] : 0;
        return;
    }
}

static const char *holder_of(const struct top_lock *l, char out[LINE_SIZE])
{
    const char *who = l->name[0] != '\0' ? l->name : l->address;
    if (l->holders > 1)
        snprintf(out, LINE_SIZE, "%s and %" PRIu64 " more", who, l->holders - 1);
    else snprintf(out, LINE_SIZE, "%s", l->holders > 0 ? who : "-");
    return out;
}

static const char *held_of(const struct top_lock *l, char out[LINE_SIZE])
{
    /* `sluice run` takes all units of a large capacity for an exclusive lock. */
    bool whole = l->explained && l->capacity == CLI_WHOLE_CAPACITY;
    if (whole && l->held >= CLI_WHOLE_CAPACITY) return "exclusive";
    if (l->shared) snprintf(out, LINE_SIZE, "%" PRIu64 " shared", l->holders);
    else if (whole) snprintf(out, LINE_SIZE, "%" PRIu64 " shared", l->held);
    else if (l->explained && l->capacity > 0)
        snprintf(out, LINE_SIZE, "%" PRIu64 "/%" PRIu64, l->held, l->capacity);
    else snprintf(out, LINE_SIZE, "%" PRIu64, l->held);
    return out;
}

static const char *time_of(int64_t ms, char out[LINE_SIZE])
{
    if (ms < 0) return "-";
    if (ms >= 1000) return cli_format_duration(ms, out, LINE_SIZE);
    snprintf(out, LINE_SIZE, "%d ms", (int)ms);
    return out;
}

/* Return the text of a cell, and its length. */
static const char *cell(const struct top_lock *l, enum column c, char out[LINE_SIZE],
                        size_t *bytes)
{
    const char *text;
    switch (c) {
        case KEY: *bytes = l->key_bytes; return l->key;
        case HELD: text = held_of(l, out); break;
        case WAITERS:
            snprintf(out, LINE_SIZE, "%" PRIu64, l->waiters);
            text = out;
            break;
        case WAITED: text = time_of(l->waited_ms, out); break;
        case HOLDER: text = holder_of(l, out); break;
        case SINCE: text = time_of(l->held_ms, out); break;
        case LEASE:
            text = l->holders > 0 && !l->lease_known ? "?" : time_of(l->lease_ms, out);
            break;
        case COLUMNS:
        default: text = ""; break;
    }
    *bytes = strlen(text);
    return text;
}

/* --- Lines on the terminal -------------------------------------------------------- */

struct pen {
    FILE *out;
    const struct top_view *v;
    int row; /* The next one, from 1. */
};

static const char *style_of(const struct top_view *v, const char *style)
{
    bool colour = style[0] != '\0' && strcmp(style, BOLD) != 0 &&
                  strcmp(style, REVERSE) != 0;
    return colour && !v->colours ? "" : style;
}

/* Go to the next line, and clear it. Returns false if there is none. */
static bool begin_line(struct pen *p, const char *style)
{
    if (p->row > p->v->rows) return false;
    fprintf(p->out, "\033[%d;1H\033[0m\033[K%s", p->row++, style_of(p->v, style));
    return true;
}

static void put_line(struct pen *p, const char *style, const char *text)
{
    if (begin_line(p, style))
        cli_put_cell(p->out, text, strlen(text), p->v->columns, false);
}

/* Put a cell at a column, whatever the terminal thinks of the width of the cells before it. */
static void put_at(struct pen *p, int column, const char *text, size_t bytes, int width,
                   bool right)
{
    fprintf(p->out, "\033[%dG", column + 1);
    cli_put_cell(p->out, text, bytes, width, right);
}

/* Put a lock, or the titles if it is NULL. */
static void put_lock(struct pen *p, const int widths[COLUMNS], const struct top_lock *l,
                     const char *style)
{
    char text[LINE_SIZE];
    int at = 0;
    if (!begin_line(p, style)) return;
    for (size_t i = 0; i < COLUMNS; i++) {
        size_t bytes = strlen(columns[i].title);
        const char *s = columns[i].title;
        if (widths[i] == 0) continue;
        if (l != NULL) s = cell(l, (enum column)i, text, &bytes);
        put_at(p, at, s, bytes, widths[i], columns[i].right);
        at += widths[i];
        if (at < p->v->columns) fputc(' ', p->out);
        at++;
    }
}

static const char *lock_style(const struct top_view *v, const struct top_lock *l,
                              size_t index)
{
    if (index == v->selected) return REVERSE;
    if (l->waited_ms >= LONG_WAIT_MS) return RED;
    return l->waiters > 0 ? YELLOW : "";
}

/* --- The pages --------------------------------------------------------------------- */

/* Lines of a page that are not locks: those above the table, its titles, the state and the keys. */
static int head_lines(const struct top_view *v, const struct top_lines *h)
{
    int most = v->rows - 3 - ROWS_MIN, n = (int)h->count;
    return n <= most ? n : most > 0 ? most : 0;
}

static size_t rows_under(const struct top_view *v, const struct top_lines *h)
{
    int n = v->rows - head_lines(v, h) - 3;
    return n > 0 ? (size_t)n : 0;
}

size_t top_rows(const struct top_view *v, const struct top_update *u)
{
    struct top_lines h = {0};
    if (u != NULL) make_head(&h, u);
    return rows_under(v, &h);
}

static void put_state(struct pen *p, const struct top_update *u)
{
    static const char *const orders[] = {[TOP_BY_WAIT] = "wait time",
                                         [TOP_BY_WAITERS] = "waiters",
                                         [TOP_BY_HELD] = "time held",
                                         [TOP_BY_KEY] = "key"};
    const struct top_view *v = p->v;
    char line[LINE_SIZE], late[64] = "", duration[32];
    if (u->locks_ms < u->at_ms)
        snprintf(
            late, sizeof late, "AS OF %s AGO  ",
            cli_format_duration(u->at_ms - u->locks_ms, duration, sizeof duration));
    if (v->late_ms > 0)
        snprintf(late, sizeof late, "NO REPLY for %s  ",
                 cli_format_duration(v->late_ms, duration, sizeof duration));
    snprintf(line, sizeof line, "%s%s%zu locks%s  by %s%s%s%s%s", late,
             v->paused ? "PAUSED  " : "", u->count,
             u->complete ? "" : " (not all of them)", orders[v->want.order],
             v->want.reversed ? ", reversed" : "",
             v->want.filter[0] != '\0' ? "  filter \"" : "", v->want.filter,
             v->want.filter[0] != '\0' ? "\"" : "");
    put_line(p, v->late_ms > 0 ? RED : v->paused ? YELLOW : "", line);
}

static void put_keys(struct pen *p, const char *keys)
{
    const struct top_view *v = p->v;
    char line[LINE_SIZE];
    p->row = v->rows;
    snprintf(line, sizeof line, "%s%s", v->typing ? "filter: " : keys,
             v->typing ? v->typed : "");
    put_line(p, v->typing ? BOLD : "", line);
}

/* Choose the first lock on the page, so that the cursor is on it. */
static void scroll_to_cursor(struct top_view *v, const struct top_update *u)
{
    size_t rows = v->want.rows;
    if (u->count == 0) v->selected = 0;
    else if (v->selected >= u->count) v->selected = u->count - 1;
    if (v->want.first > v->selected) v->want.first = v->selected;
    if (rows > 0 && v->selected - v->want.first >= rows)
        v->want.first = v->selected - rows + 1;
    if (v->want.first + rows > u->count)
        v->want.first = u->count > rows ? u->count - rows : 0;
}

/* Return the width of the longest key on the page, or of those before, so that the columns do not
 * move with each update. */
static int longest_key(struct top_view *v, const struct top_update *u)
{
    for (size_t i = v->want.first; i < u->count && i - v->want.first < v->want.rows;
         i++) {
        int width = cli_cell_width(u->locks[i].key, u->locks[i].key_bytes);
        if (width > v->key_columns) v->key_columns = width;
    }
    return v->key_columns;
}

static void draw_list(struct pen *p, struct top_view *v, const struct top_update *u)
{
    struct top_lines h;
    int widths[COLUMNS];
    make_head(&h, u);
    v->want.rows = rows_under(v, &h);
    scroll_to_cursor(v, u);
    for (int i = 0; i < head_lines(v, &h); i++) put_line(p, h.style[i], h.line[i]);
    put_state(p, u);
    lay_out(v->columns, longest_key(v, u), widths);
    put_lock(p, widths, NULL, REVERSE);
    for (size_t i = v->want.first; i < u->count && i - v->want.first < v->want.rows;
         i++)
        put_lock(p, widths, &u->locks[i], lock_style(v, &u->locks[i], i));
    fprintf(p->out, "\033[0m\033[J");
    put_keys(
        p,
        "q quit  ? help  / filter  w t h k sort  r reverse  Enter show  space pause");
}

/* Put a line of the detail, unless it is scrolled out of the page. */
static void put_scrolled(struct pen *p, size_t *nth, const char *style,
                         const char *text)
{
    size_t n = (*nth)++;
    if (n < p->v->scroll || p->row >= p->v->rows) return;
    put_line(p, style, text);
}

static void put_party(struct pen *p, size_t *nth, const struct top_party *h)
{
    char line[LINE_SIZE], who[2 * TOP_NAME_SIZE + 4], since[32], left[32],
        fence[32] = "";
    bool both = h->name[0] != '\0' && h->address[0] != '\0';
    snprintf(who, sizeof who, "%s%s%s%s", h->name, both ? " (" : "", h->address,
             both ? ")" : "");
    if (h->fence > 0) snprintf(fence, sizeof fence, "fence %" PRIu64 "  ", h->fence);
    if (h->waits && h->priority != 0)
        snprintf(fence, sizeof fence, "priority %" PRId64 "  ", h->priority);
    snprintf(line, sizeof line, "%s %s%s  %s%s%s  %s%s", h->waits ? "waits" : "holds",
             who, h->shared ? "  shared" : "",
             cli_format_duration(h->since_ms, since, sizeof since),
             h->left_ms < 0 ? "" : ", left ",
             h->left_ms < 0 ? "" : cli_format_duration(h->left_ms, left, sizeof left),
             fence, h->text);
    put_scrolled(p, nth, h->waits ? YELLOW : h->gone ? RED : GREEN, line);
}

/* Put a sentence on several lines, each of which has at most as many bytes as the terminal has
 * columns. */
static void put_sentence(struct pen *p, size_t *nth, const char *text)
{
    char line[LINE_SIZE];
    size_t width = p->v->columns > FLEXIBLE_MIN ? (size_t)p->v->columns : FLEXIBLE_MIN;
    while (strlen(text) > width) {
        size_t n = width;
        while (n > 0 && text[n] != ' ') n--;
        if (n == 0) break; /* A word that is longer than a line is cut. */
        top_copy(line, sizeof line, text, n);
        put_scrolled(p, nth, "", line);
        text += n + 1;
    }
    put_scrolled(p, nth, "", text);
}

/* Put the lines of the detail. Returns their number. */
static size_t put_detail(struct pen *p, const struct top_detail *d)
{
    char line[LINE_SIZE];
    size_t nth = 0;
    for (size_t i = 0; i < d->sentences; i++) put_sentence(p, &nth, d->summary[i]);
    for (size_t i = 0; i < d->count; i++) put_party(p, &nth, &d->parties[i]);
    if (d->count < d->holders + d->waiters) {
        snprintf(line, sizeof line,
                 "%" PRIu64 " holders and %" PRIu64 " waiters in all", d->holders,
                 d->waiters);
        put_scrolled(p, &nth, "", line);
    }
    return nth;
}

static void draw_detail(struct pen *p, struct top_view *v, const struct top_update *u)
{
    const struct top_detail *d = u->detail;
    if (begin_line(p, REVERSE))
        cli_put_cell(p->out, v->want.detail, v->want.detail_bytes, v->columns, false);
    if (u->trouble[0] != '\0') put_line(p, RED, u->trouble);
    if (d != NULL && d->key_bytes == v->want.detail_bytes &&
        memcmp(d->key, v->want.detail, d->key_bytes) == 0) {
        struct pen none = {.out = p->out, .v = v, .row = v->rows};
        size_t lines = put_detail(&none, d); /* This only counts them. */
        size_t page = v->rows > p->row ? (size_t)(v->rows - p->row) : 0;
        size_t most = lines > page ? lines - page : 0;
        if (v->scroll > most) v->scroll = most;
        put_detail(p, d);
    }
    fprintf(p->out, "\033[0m\033[J");
    put_keys(p, v->paused ? "PAUSED  Esc back  up and down scroll  q quit"
                          : "Esc back  up and down scroll  q quit");
}

static void draw_help(struct pen *p)
{
    static const char *const lines[] = {
        "sluice top",
        "",
        "w t h k     sort by waiters, wait time, time held, key",
        "r           reverse the order",
        "/           show only keys that contain a text; empty: all keys",
        "up down     move the cursor; Page Up, Page Down, Home, End",
        "Enter       show the holders and waiters of a lock",
        "Esc         go back",
        "space       pause, or continue",
        "q           quit",
        "",
        "WAIT: how long the oldest waiter has waited",
        "HELD, LEASE: of the oldest holder",
    };
    for (size_t i = 0; i < sizeof lines / sizeof *lines; i++)
        if (p->row < p->v->rows) put_line(p, i == 0 ? BOLD : "", lines[i]);
    fprintf(p->out, "\033[0m\033[J");
    put_keys(p, "Esc back  q quit");
}

void top_draw(FILE *out, struct top_view *v, const struct top_update *u)
{
    struct pen p = {.out = out, .v = v, .row = 1};
    if (v->page == TOP_HELP) draw_help(&p);
    else if (u == NULL) fputs("\033[H\033[2J", out);
    else if (v->page == TOP_DETAIL) draw_detail(&p, v, u);
    else draw_list(&p, v, u);
    fputs("\033[0m", out);
}

/* --- Plain text --------------------------------------------------------------------- */

static void print_row(FILE *out, const int widths[COLUMNS], const struct top_lock *l)
{
    char text[LINE_SIZE];
    for (size_t i = 0; i < COLUMNS; i++) {
        size_t bytes = strlen(columns[i].title);
        const char *s = columns[i].title;
        if (l != NULL) s = cell(l, (enum column)i, text, &bytes);
        if (i > 0) fputc(' ', out);
        int width = cli_cell_width(s, bytes);
        cli_put_cell(out, s, bytes, width > widths[i] ? width : widths[i],
                     columns[i].right);
    }
    fputc('\n', out);
}

void top_print_text(FILE *out, const struct top_update *u)
{
    struct top_lines h;
    char text[LINE_SIZE];
    int widths[COLUMNS];
    make_head(&h, u);
    for (size_t i = 0; i < h.count; i++) {
        cli_put_line(out, h.line[i], strlen(h.line[i]));
        fputc('\n', out);
    }
    for (size_t c = 0; c < COLUMNS; c++) {
        widths[c] = columns[c].width > 0 ? columns[c].width
                                         : (int)strlen(columns[c].title);
        for (size_t i = 0; i < u->count && i < TOP_EXPLAINS_MAX; i++) {
            size_t bytes;
            const char *s = cell(&u->locks[i], (enum column)c, text, &bytes);
            int width = cli_cell_width(s, bytes);
            if (width > widths[c] && width <= PLAIN_WIDTH_MAX) widths[c] = width;
        }
    }
    if (u->count > 0) print_row(out, widths, NULL);
    for (size_t i = 0; i < u->count && i < TOP_EXPLAINS_MAX; i++)
        print_row(out, widths, &u->locks[i]);
    if (u->count > TOP_EXPLAINS_MAX || !u->complete)
        fprintf(out, "(%zu locks%s; this list has at most %u)\n", u->count,
                u->complete ? "" : " and more", TOP_EXPLAINS_MAX);
    fputc('\n', out);
}

/* --- JSON ---------------------------------------------------------------------------- */

static void json_text(FILE *out, const char *name, const char *text)
{
    fprintf(out, ",\"%s\":", name);
    cli_json_string(out, text);
}

static void json_rate(FILE *out, const char *name, double value)
{
    if (value < 0) fprintf(out, ",\"%s\":null", name);
    else fprintf(out, ",\"%s\":%.1f", name, value);
}

static void json_server(FILE *out, const struct top_update *u)
{
    const struct top_info *i = &u->info;
    json_text(out, "version", i->version);
    json_text(out, "deployment", i->deployment);
    fprintf(out,
            ",\"uptime_s\":%" PRId64 ",\"ready\":%s,\"clients\":%" PRId64
            ",\"locks\":%" PRId64 ",\"waiters\":%" PRId64 ",\"node\":%" PRId64
            ",\"nodes\":%" PRId64 ",\"nodes_up\":%" PRId64 ",\"keeper_node\":%" PRId64
            ",\"term\":%" PRId64,
            i->uptime_s, i->ready ? "true" : "false", i->clients, i->locks, i->waiters,
            i->node, i->nodes, i->nodes_up, i->keeper_node, i->term);
    if (!i->ready) json_text(out, "reason", i->unready);
    json_rate(out, "grants_per_second", u->grants_s);
    json_rate(out, "releases_per_second", u->releases_s);
    json_rate(out, "expiries_per_second", u->expiries_s);
}

static void json_lock(FILE *out, const struct top_lock *l)
{
    fputs("{\"key\":", out);
    cli_json_bytes(out, l->key, l->key_bytes);
    fprintf(out, ",\"held\":%" PRIu64, l->held);
    if (l->explained) fprintf(out, ",\"capacity\":%" PRIu64, l->capacity);
    fprintf(out,
            ",\"shared\":%s,\"drained\":%s,\"holders\":%" PRIu64 ",\"waiters\":%" PRIu64
            ",\"waited_ms\":%" PRId64 ",\"holder\":",
            l->shared ? "true" : "false", l->drained ? "true" : "false", l->holders,
            l->waiters, l->waited_ms);
    if (l->holders == 0) fputs("null", out);
    else {
        fputs("{\"name\":", out);
        cli_json_string(out, l->name);
        json_text(out, "address", l->address);
        fprintf(out, ",\"fence\":%" PRIu64 ",\"held_ms\":%" PRId64, l->fence,
                l->held_ms);
        if (l->lease_known) fprintf(out, ",\"lease_ms\":%" PRId64, l->lease_ms);
        fputc('}', out);
    }
    fputc('}', out);
}

void top_print_json(FILE *out, const struct top_update *u)
{
    fprintf(out, "{\"time_ms\":%" PRId64, u->wall_ms);
    json_text(out, u->local ? "segment" : "server", u->source);
    if (u->trouble[0] != '\0') {
        json_text(out, "error", u->trouble);
        fputs("}\n", out);
        return;
    }
    if (!u->local) json_server(out, u);
    fprintf(out, ",\"complete\":%s,\"keys\":[", u->complete ? "true" : "false");
    for (size_t i = 0; i < u->count; i++) {
        if (i > 0) fputc(',', out);
        json_lock(out, &u->locks[i]);
    }
    fputs("]}\n", out);
}
