/* top_draw.h - the text of `sluice top`: pages for a terminal, and plain text or JSON. */
#ifndef SL_CLI_TOP_DRAW_H
#define SL_CLI_TOP_DRAW_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "cli/top_data.h"

enum top_page { TOP_LIST, TOP_DETAIL, TOP_HELP };

/* What the user sees. */
struct top_view {
    int rows, columns; /* The size of the terminal. */
    bool colours;
    enum top_page page;
    struct top_want want; /* top_draw() sets `first` and `rows`. */
    size_t selected;      /* The lock that the cursor is on. */
    size_t scroll;        /* The first line of the detail; top_draw() limits it. */
    bool paused;
    bool typing; /* The user types a filter: */
    char typed[TOP_FILTER_SIZE];
    int key_columns; /* The width of the longest key so far. */
    int64_t late_ms; /* For how long the server has not replied; 0: it has. */
};

/* Print escape sequences and text that draw the page. `u` may be NULL: there is no data yet. */
void top_draw(FILE *out, struct top_view *v, const struct top_update *u);

/* Return the number of locks on a page. */
size_t top_rows(const struct top_view *v, const struct top_update *u);

/* Print an update as plain text, or as one line of JSON. */
void top_print_text(FILE *out, const struct top_update *u);
void top_print_json(FILE *out, const struct top_update *u);

#endif /* SL_CLI_TOP_DRAW_H */
