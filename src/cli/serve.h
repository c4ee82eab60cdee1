/* serve.h - `sluice serve`. */
#ifndef SL_CLI_SERVE_H
#define SL_CLI_SERVE_H

#include "cli/table.h"

/* Become sluice-server, with the same options. An exit status if that failed, or if help
 * was all that was asked for. */
int cli_serve(const struct cli_command *command, int argc, char **argv);

#endif /* SL_CLI_SERVE_H */
