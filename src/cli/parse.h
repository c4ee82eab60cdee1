/* parse.h - from words to options and numbers, by the table. */
#ifndef SL_CLI_PARSE_H
#define SL_CLI_PARSE_H

#include <stdbool.h>
#include <stdint.h>

#include "cli/table.h"

/* Takes one option. 0 to go on, or the exit status to end with. */
typedef int cli_take(void *into, int id, const char *value);

/* Parse the options of a command; argv[0] is its name. Options end at the first word
 * that is none (`in_front`), or may stand anywhere. On success *rest is the first word
 * that is not an option, and -1 is returned; otherwise an exit status, and all has been
 * said. --help is seen to here. */
int cli_parse(const struct cli_command *command, int argc, char **argv, bool in_front,
              cli_take *take, void *into, int *rest);

/* Say that a value is not what is wanted: "-w 1x: not a time". Returns EXIT_USAGE. */
int cli_bad_value(const char *option, const char *value, const char *wanted);

/* A number from least to most. */
bool cli_number(const char *text, uint64_t least, uint64_t most, uint64_t *out);

/* "5", "0.5", "500ms", "30s", "2m", "1h": in ms, rounded up to one. */
bool cli_duration_ms(const char *text, int64_t *out);

/* Permissions in octal, "0660", not above 0777 and not 0. */
bool cli_mode(const char *text, uint32_t *out);

#endif /* SL_CLI_PARSE_H */
