/* store.h - `sluice store`. */
#ifndef SL_CLI_STORE_H
#define SL_CLI_STORE_H

#include "cli/table.h"

/* Become sluice-store. An exit status if that failed, or if help was all that was asked
 * for. */
int cli_store(const struct cli_command *command, int argc, char **argv);

#endif /* SL_CLI_STORE_H */
