/* show.h - prints the contents of a segment, as text or JSON. */
#ifndef SL_CLI_SHOW_H
#define SL_CLI_SHOW_H

#include <stdbool.h>

#include "sluice.h"

enum cli_form { CLI_FORM_TEXT, CLI_FORM_JSON, CLI_FORM_NAMES };

/* Print the keys of a segment that match a pattern; NULL: all. */
void cli_show_keys(struct sluice_canal *c, const char *pattern, enum cli_form form);

/* Print one key, with a diagram of its held units, its holders and its waiters. Returns
 * false if the key does not exist. */
bool cli_show_key(struct sluice_canal *c, const char *key, enum cli_form form);

#endif /* SL_CLI_SHOW_H */
