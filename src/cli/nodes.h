/* nodes.h - `sluice nodes` and `sluice ready`: the state of a cluster and of a server. */
#ifndef SL_CLI_NODES_H
#define SL_CLI_NODES_H

#include "cli/table.h"

/* Run the command. Returns an exit status. */
int cli_nodes(const struct cli_command *command, int argc, char **argv);
int cli_ready(const struct cli_command *command, int argc, char **argv);

#endif /* SL_CLI_NODES_H */
