/* help.h - prints --help, from the table. */
#ifndef SL_CLI_HELP_H
#define SL_CLI_HELP_H

#include "cli/table.h"

void cli_help(const struct cli_command *command);
void cli_help_all(void);

/* Run `sluice help COMMAND`. Returns an exit status. */
int cli_help_on(int argc, char **argv);

#endif /* SL_CLI_HELP_H */
