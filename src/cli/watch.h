/* watch.h - `sluice watch`: prints the events of locks. */
#ifndef SL_CLI_WATCH_H
#define SL_CLI_WATCH_H

#include "cli/table.h"

/* Run the command. Returns an exit status. */
int cli_watch(const struct cli_command *command, int argc, char **argv);

#endif /* SL_CLI_WATCH_H */
