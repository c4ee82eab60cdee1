/* store.h - `sluice store`. */
#ifndef SL_CLI_STORE_H
#define SL_CLI_STORE_H

#include "cli/table.h"

/* Execute sluice-offline. Returns only on failure or after printing the help: an exit
 * status. */
int cli_store(const struct cli_command *command, int argc, char **argv);

#endif /* SL_CLI_STORE_H */
