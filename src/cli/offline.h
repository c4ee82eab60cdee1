/* offline.h - `sluice store` and `sluice journal`. */
#ifndef SL_CLI_OFFLINE_H
#define SL_CLI_OFFLINE_H

#include "cli/table.h"

/* Execute sluice-offline. Returns only on failure or after printing the help: an exit
 * status. */
int cli_offline(const struct cli_command *command, int argc, char **argv);

#endif /* SL_CLI_OFFLINE_H */
