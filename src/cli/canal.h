/* canal.h - `sluice canal ...`: lists, shows and maintains segments. */
#ifndef SL_CLI_CANAL_H
#define SL_CLI_CANAL_H

#include "cli/table.h"

/* Run one of the canal commands. Returns an exit status. */
int cli_canal(const struct cli_command *command, int argc, char **argv);

#endif /* SL_CLI_CANAL_H */
