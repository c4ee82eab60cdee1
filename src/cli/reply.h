/* reply.h - what a server replied, printed: for people, for shells, for programs. */
#ifndef SL_CLI_REPLY_H
#define SL_CLI_REPLY_H

#include <stdbool.h>
#include <stdio.h>

#include "sluice.h"

/* As redis-cli prints on a terminal, but for letters that are not ASCII: these are shown.
 * lines: a text is one of several lines, and printed so. */
void cli_reply_text(FILE *out, const struct sluice_reply *r, bool lines);

/* Values alone, each on a line of its own; nil is an empty one, but alone it is nothing. */
void cli_reply_values(FILE *out, const struct sluice_reply *r, bool lines);

/* One JSON document on a line. An error is {"error":"WORD ..."}. */
void cli_reply_json(FILE *out, const struct sluice_reply *r);

#endif /* SL_CLI_REPLY_H */
