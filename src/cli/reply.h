/* reply.h - prints a reply of a server for people, shells or programs. */
#ifndef SL_CLI_REPLY_H
#define SL_CLI_REPLY_H

#include <stdbool.h>
#include <stdio.h>

#include "sluice.h"

/* Print as redis-cli does on a terminal, except that characters other than ASCII are
 * printed as they are. With `lines`, print a text on several lines. */
void cli_reply_text(FILE *out, const struct sluice_reply *r, bool lines);

/* Print the values alone, each on its own line. A nil in a list is an empty line; a
 * nil reply prints nothing. */
void cli_reply_values(FILE *out, const struct sluice_reply *r, bool lines);

/* Print one JSON document on one line. An error is {"error":"LOST ..."}. */
void cli_reply_json(FILE *out, const struct sluice_reply *r);

#endif /* SL_CLI_REPLY_H */
