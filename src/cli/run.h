/* run.h - `sluice run`: runs a command under a lock. */
#ifndef SL_CLI_RUN_H
#define SL_CLI_RUN_H

#include "cli/table.h"

/* Run `sluice run`. Returns an exit status. With -F, returns only if the command could
 * not be executed. */
int cli_run(const struct cli_command *command, int argc, char **argv);

#endif /* SL_CLI_RUN_H */
