/* find.h - which command is meant. */
#ifndef SL_CLI_FIND_H
#define SL_CLI_FIND_H

#include <stdbool.h>

#include "cli/table.h"

/* The command that the first words name, and how many words that took; or NULL. */
const struct cli_command *cli_find(int argc, char **argv, int *words);

/* Do commands of several words begin with this one, as with "canal"? */
bool cli_is_group(const char *word);

/* Say that there is no such command, and which may be meant. Returns EXIT_USAGE. */
int cli_unknown(int argc, char **argv);

#endif /* SL_CLI_FIND_H */
