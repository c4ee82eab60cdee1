/* serve.h - `sluice serve`. */
#ifndef SL_CLI_SERVE_H
#define SL_CLI_SERVE_H

#include "cli/table.h"

/* Execute sluice-server with the same options. Returns only on failure or after
 * printing the help: an exit status. */
int cli_serve(const struct cli_command *command, int argc, char **argv);

#endif /* SL_CLI_SERVE_H */
