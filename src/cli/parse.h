/* parse.h - parses options, as the table defines them, and numbers. */
#ifndef SL_CLI_PARSE_H
#define SL_CLI_PARSE_H

#include <stdbool.h>
#include <stdint.h>

#include "cli/table.h"

/* Handle one option. Returns 0 to continue, or an exit status. */
typedef int cli_option_fn(void *into, int id, const char *value);

/* Parse the options of a command; argv[0] is its name. With `in_front`, options end at
 * the first argument that is not an option; otherwise they may appear anywhere. Returns
 * -1 on success, and sets *rest to the index of the first argument that is not an
 * option. On failure, prints a message and returns an exit status. This function also
 * handles --help. */
int cli_parse(const struct cli_command *command, int argc, char **argv, bool in_front,
              cli_option_fn *take, void *into, int *rest);

/* Report an invalid value: "-w must be a time (got \"1x\")". Returns CLI_EXIT_USAGE. */
int cli_bad_value(const char *option, const char *value, const char *wanted);

/* Parse a number in the range from `least` to `most`. */
bool cli_number(const char *text, uint64_t least, uint64_t most, uint64_t *out);

/* Parse the value of an option: a duration of at least `least` ms. A number without a
 * unit means seconds. Returns 0; or prints a message and returns CLI_EXIT_USAGE. */
int cli_duration(const char *option, const char *value, int64_t least, int64_t *out);

/* Parse permissions in octal, such as "0660", from 1 to 0777. */
bool cli_mode(const char *text, uint32_t *out);

/* Parse the value of -j: a number, "50%" of the processor cores, "+1" or "-1". The result is at least
 * 1. Returns 0; or prints a message and returns CLI_EXIT_USAGE. */
int cli_per(const char *value, uint64_t *out);

/* Parse the value of --priority. Returns as cli_per(). */
int cli_priority(const char *value, int32_t *out);

/* Take the value of --note or --value, which a server limits to SLUICE_VALUE_BYTES_MAX bytes. Borrows
 * the value. Returns as cli_per(). */
int cli_short_text(const char *option, const char *value, const char **out);

#endif /* SL_CLI_PARSE_H */
