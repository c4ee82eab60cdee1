/* pages.h - shared by pages.c and pages_completion.c. */
#ifndef SL_CLI_PAGES_H
#define SL_CLI_PAGES_H

#include <stdbool.h>
#include <stddef.h>

#include "cli/table.h"

#define PAGES_NAME_SIZE 64

/* Print an error, and end the build step. */
__attribute__((format(printf, 1, 2), noreturn)) void pages_fail(const char *format,
                                                                ...);

/* Return a command by its name. */
const struct cli_command *pages_find(const char *name);

/* Return the next word of a list separated by spaces, set *n to its length, and advance
 * *at. Returns NULL at the end. */
const char *pages_next_word(const char **at, size_t *n);

/* Get the group of a command: "canal" for "canal ls". Returns false for a command of
 * one word. */
bool pages_group_of(const struct cli_command *c, char group[PAGES_NAME_SIZE]);

/* Return whether a command is the first of its group. The group is listed at that
 * place. */
bool pages_begins_group(const struct cli_command *c, char group[PAGES_NAME_SIZE]);

/* Return the next command of a group, starting with c; NULL if there is none. */
const struct cli_command *pages_next_of(const char *group, const struct cli_command *c);

/* Return the last word of a command's name: "ls" for "canal ls". */
const char *pages_last_word(const struct cli_command *c);

/* Return the name of a kind, for the completions. */
const char *pages_kind_name(enum cli_arg_kind kind);

/* Return the number of arguments of a command. Sets *again if the last one can be
 * repeated ("NAME..."). */
size_t pages_count_words(const struct cli_command *c, bool *again);

/* Fill in the markers of the completions. */
void pages_bash_server(const char *argument);
void pages_zsh_server(const char *argument);
void pages_bash_commands(const char *argument);
void pages_bash_options_of(const char *argument);
void pages_bash_table(const char *argument);
void pages_zsh_commands(const char *argument);
void pages_zsh_options_of(const char *argument);
void pages_zsh_table(const char *argument);

#endif /* SL_CLI_PAGES_H */
