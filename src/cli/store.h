/* store.h - `sluice store`. */
#ifndef SL_CLI_STORE_H
#define SL_CLI_STORE_H

#include "cli/table.h"

/* Execute sluice-offline. Returns an exit status if that failed, or if the user asked for
 * help. */
int cli_store(const struct cli_command *command, int argc, char **argv);

#endif /* SL_CLI_STORE_H */
