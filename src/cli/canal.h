/* canal.h - `sluice canal ...`: lists, shows and maintains segments. */
#ifndef SL_CLI_CANAL_H
#define SL_CLI_CANAL_H

#include <stdbool.h>
#include <stdint.h>

#include "cli/table.h"

/* Run one of the canal commands. Returns an exit status. */
int cli_canal(const struct cli_command *command, int argc, char **argv);

/* The commands `ls`, `explain` and `watch` with --local. `segment` is the value of --segment; NULL:
 * not given. `pattern` selects keys; NULL: all. `count` is the number of updates; 0: no limit. Each
 * returns an exit status. */
int cli_canal_list(const char *segment, const char *pattern, bool json, bool quiet);
int cli_canal_explain(const char *segment, const char *key, bool json);
int cli_canal_watch(const char *segment, const char *pattern, bool json,
                    uint64_t count);

#endif /* SL_CLI_CANAL_H */
