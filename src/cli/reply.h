/* reply.h - prints a server's reply for people, shells or programs. */
#ifndef SL_CLI_REPLY_H
#define SL_CLI_REPLY_H

#include <stdbool.h>
#include <stdio.h>

#include "sluice.h"

/* Print a reply as redis-cli does on a terminal, except that non-ASCII characters are
 * printed as they are. With `lines`, keep the line breaks of a text. */
void cli_reply_text(FILE *out, const struct sluice_reply *r, bool lines);

/* Print only the values, each on its own line. A nil in a list becomes an empty line; a
 * nil reply prints nothing. */
void cli_reply_values(FILE *out, const struct sluice_reply *r, bool lines);

/* Print a reply as a JSON document on one line. An error becomes {"error":"LOST
 * ..."}. */
void cli_reply_json(FILE *out, const struct sluice_reply *r);

/* Print a reply as a JSON value that is part of a document. */
void cli_reply_json_value(FILE *out, const struct sluice_reply *r);

#endif /* SL_CLI_REPLY_H */
