/* canal.h - `sluice canal ...`: look into segments, and tend them. */
#ifndef SL_CLI_CANAL_H
#define SL_CLI_CANAL_H

#include "cli/table.h"

/* Any of the canal commands; an exit status. */
int cli_canal(const struct cli_command *command, int argc, char **argv);

#endif /* SL_CLI_CANAL_H */
