/* bench.h - `sluice bench`: puts load on a server, and measures it. */
#ifndef SL_CLI_BENCH_H
#define SL_CLI_BENCH_H

#include "cli/table.h"

int cli_bench(const struct cli_command *command, int argc, char **argv);

#endif /* SL_CLI_BENCH_H */
