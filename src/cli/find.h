/* find.h - finds the command that the command line names. */
#ifndef SL_CLI_FIND_H
#define SL_CLI_FIND_H

#include <stdbool.h>

#include "cli/table.h"

/* Find a command by the first arguments; *words is the number of words in its name.
 * Returns NULL if there is none. */
const struct cli_command *cli_find_command(int argc, char **argv, int *words);

/* Whether commands of several words begin with this word, such as "canal". */
bool cli_is_group(const char *word);

/* Report that there is no such command, and suggest one. Returns CLI_EXIT_USAGE. */
int cli_unknown_command(int argc, char **argv);

#endif /* SL_CLI_FIND_H */
