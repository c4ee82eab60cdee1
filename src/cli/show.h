/* show.h - what is in a segment, for people and as JSON. */
#ifndef SL_CLI_SHOW_H
#define SL_CLI_SHOW_H

#include <stdbool.h>

#include "sluice.h"

enum cli_form { FORM_TEXT, FORM_JSON, FORM_NAMES };

/* The keys of a segment. */
void cli_show_keys(struct sluice_canal *c, enum cli_form form);

/* One key: its picture, who holds it, who waits. False if it is not there. */
bool cli_show_key(struct sluice_canal *c, const char *key, enum cli_form form);

#endif /* SL_CLI_SHOW_H */
