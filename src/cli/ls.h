/* ls.h - `sluice ls`: lists the locks of a server, or of this machine. */
#ifndef SL_CLI_LS_H
#define SL_CLI_LS_H

#include "cli/table.h"

/* Run the command. Returns an exit status. */
int cli_ls(const struct cli_command *command, int argc, char **argv);

#endif /* SL_CLI_LS_H */
