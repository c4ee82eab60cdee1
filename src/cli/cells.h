/* cells.h - text in columns: cut and padded to a width on the terminal. */
#ifndef SL_CLI_CELLS_H
#define SL_CLI_CELLS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

/* Prepare this thread for characters that are not ASCII. Call it once, before the others. */
void cli_cells_begin(void);

/* Return how many columns a text takes on the terminal, when it is printed safely (text.h). */
int cli_cell_width(const char *text, size_t bytes);

/* Print a text safely. If it has more columns than `width`, cut it and end it with "+". If it has
 * fewer, fill them with spaces: before the text if `right`. Never prints more than `width`
 * columns. */
void cli_put_cell(FILE *out, const char *text, size_t bytes, int width, bool right);

#endif /* SL_CLI_CELLS_H */
