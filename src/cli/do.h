/* do.h - `sluice do`. */
#ifndef SL_CLI_DO_H
#define SL_CLI_DO_H

#include "cli/table.h"

/* Send one command to a server and print the reply. Returns an exit status. */
int cli_do(const struct cli_command *command, int argc, char **argv);

#endif /* SL_CLI_DO_H */
