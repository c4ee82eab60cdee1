/* serve.h - `sluice serve`. */
#ifndef SL_CLI_SERVE_H
#define SL_CLI_SERVE_H

#include "cli/table.h"

/* Execute sluice-server with the same options. Returns an exit status if that
 * failed, or after printing the help. */
int cli_serve(const struct cli_command *command, int argc, char **argv);

#endif /* SL_CLI_SERVE_H */
