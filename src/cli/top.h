/* top.h - `sluice top`: shows the locks of a server, or of a segment, as they change. */
#ifndef SL_CLI_TOP_H
#define SL_CLI_TOP_H

#include "cli/table.h"

int cli_top(const struct cli_command *command, int argc, char **argv);

#endif /* SL_CLI_TOP_H */
