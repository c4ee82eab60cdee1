/* find.h - finds the command that the command line names. */
#ifndef SL_CLI_FIND_H
#define SL_CLI_FIND_H

#include <stdbool.h>

#include "cli/table.h"

/* Find the command that the first arguments name, and set *words to the number of words
 * in its name. Returns NULL if there is no such command. */
const struct cli_command *cli_find_command(int argc, char **argv, int *words);

/* Return whether this word is the first word of longer command names, as "canal" is. */
bool cli_is_group(const char *word);

/* Report that there is no such command, and suggest one. Returns CLI_EXIT_USAGE. */
int cli_unknown_command(int argc, char **argv);

#endif /* SL_CLI_FIND_H */
