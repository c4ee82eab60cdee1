/* grid.h - prints a table on a terminal or into a pipe, and colours lines on a terminal.
 *
 * A grid collects cells, so that each column is as wide as its widest cell. On a terminal, columns
 * that may shrink are cut until the line fits. Colours appear only on a terminal. */
#ifndef SL_CLI_GRID_H
#define SL_CLI_GRID_H

#include <stdbool.h>
#include <stdio.h>

enum cli_colour {
    CLI_PLAIN,
    CLI_BOLD,
    CLI_RED,
    CLI_GREEN,
    CLI_YELLOW,
    CLI_MAGENTA,
};

/* Return whether standard output shows colours: it is a terminal, NO_COLOR is not set or
 * empty, and TERM is neither empty nor "dumb". */
bool cli_has_colours(void);

/* Begin or end (with CLI_PLAIN) a colour on standard output, if it shows colours. */
void cli_put_colour(enum cli_colour colour);

/* Return the width of the terminal on standard output; 0: it is not a terminal. */
size_t cli_screen_width(void);

/* A column: its title, and how it may change. */
struct cli_column {
    const char *title;
    bool right;   /* Align cells to the right. */
    size_t least; /* The column may be cut to this width; 0: never. */
};

#define CLI_COLUMNS_MAX 12

struct cli_grid; /* Opaque. */

/* Return a grid with columns; the last one has no title. Borrows the columns. Returns NULL if out
 * of memory. Free it with cli_grid_free(). */
struct cli_grid *cli_grid_new(const struct cli_column *columns);
void cli_grid_free(struct cli_grid *g); /* NULL is allowed. */

/* Begin a row in a colour. */
void cli_grid_row(struct cli_grid *g, enum cli_colour colour);

/* Return a stream for the next cell of the row, from left to right. Write only text that is safe
 * to print, on one line. The stream is valid until the next call with this grid. */
FILE *cli_grid_cell(struct cli_grid *g);

/* Print the titles and all rows, without columns that are empty in all rows. Returns false if out of
 * memory; then it has printed nothing. */
bool cli_grid_print(struct cli_grid *g);

#endif /* SL_CLI_GRID_H */
