/* explain.h - `sluice explain`: shows the holders and waiters of a lock, and why they wait. */
#ifndef SL_CLI_EXPLAIN_H
#define SL_CLI_EXPLAIN_H

#include "cli/table.h"

/* Run the command. Returns an exit status. */
int cli_explain(const struct cli_command *command, int argc, char **argv);

#endif /* SL_CLI_EXPLAIN_H */
