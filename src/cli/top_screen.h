/* top_screen.h - the terminal of `sluice top`: it is changed on entry, and restored on every end
 * of the process that a program can notice. */
#ifndef SL_CLI_TOP_SCREEN_H
#define SL_CLI_TOP_SCREEN_H

#include <stdbool.h>
#include <stddef.h>

/* Return whether standard input and output are a terminal on which the cursor can be moved. */
bool top_screen_usable(void);

/* Use the alternate screen, without a cursor, line editing and echo. Signals that report a bug, or
 * a truncated segment, restore the terminal. Returns false if the terminal is gone. */
bool top_screen_enter(void);

/* Restore the terminal. Does nothing if it was not changed. */
void top_screen_leave(void);

/* Return the size of the terminal. */
void top_screen_size(int *rows, int *columns);

/* Write to the terminal. Returns false if it is gone. */
bool top_screen_write(const char *text, size_t bytes);

#endif /* SL_CLI_TOP_SCREEN_H */
