/* ops.h - what the commands for operators share: options, calls to a server with a deadline, and
 * safe access to the fields of a reply. */
#ifndef SL_CLI_OPS_H
#define SL_CLI_OPS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "cli/server.h"
#include "cli/table.h"
#include "sluice.h"

/* The default of --timeout. */
#define CLI_OPS_TIMEOUT_MS 10000

#define CLI_OPS_ERROR_SIZE 512

struct cli_ops {
    struct cli_server server;
    bool json, quiet, local, majority, now, yes;
    uint64_t count, fence; /* 0: not given. */
    int64_t timeout_ms;
    const char *segment; /* NULL: not given. */

    struct sluice_wire *wire;       /* The connection, from cli_ops_connect(). */
    char address[CLI_ADDRESS_SIZE]; /* Of the connection, or of the last attempt. */
    char error[CLI_OPS_ERROR_SIZE]; /* Why no server answered; "": one did. */
};

/* Parse the options and count the arguments. Sets *rest to the index of the first argument.
 * Returns -1; or prints a message and returns an exit status. */
int cli_ops_parse(const struct cli_command *command, int argc, char **argv, int least,
                  int most, struct cli_ops *o, int *rest);

/* --- The server ----------------------------------------------------------- */

/* Find the server and connect to it. From now on, the process ends with CLI_EXIT_UNAVAILABLE if
 * the server does not answer in time. Returns 0; or prints a message and returns an exit
 * status. */
int cli_ops_connect(struct cli_ops *o);

/* Count the time of --timeout from now. */
void cli_ops_extend(const struct cli_ops *o);

/* Stop the deadline, for example while the user reads. */
void cli_ops_no_deadline(void);

/* Send a command and store its reply in *out; free it with sluice_reply_free(). Returns 0; or
 * prints a message and returns an exit status. An error reply is a failure. */
int cli_ops_call(struct cli_ops *o, const char *const *args, size_t n,
                 struct sluice_reply **out);

/* Print the error reply of a command: with --json, as JSON. Returns its exit status. */
int cli_ops_error(const struct cli_ops *o, const struct sluice_reply *r);

/* Report a reply that no Sluice server sends. Returns CLI_EXIT_UNAVAILABLE. */
int cli_ops_unexpected(const struct cli_ops *o, const char *command);

/* Report that the connection was lost. Returns CLI_EXIT_UNAVAILABLE. */
int cli_ops_lost(const struct cli_ops *o);

/* --- Fields of a reply ---------------------------------------------------- */

/* Return the value of a field of a map, or NULL. `map` may be NULL or of another type. */
const struct sluice_reply *cli_field(const struct sluice_reply *map, const char *name);

/* Return the number in a field, or `other` if there is none. */
int64_t cli_field_number(const struct sluice_reply *map, const char *name,
                         int64_t other);

/* Return the text in a field, or "". Stores its length in *n. */
const char *cli_field_text(const struct sluice_reply *map, const char *name, size_t *n);

/* Return the list in a field, or an empty list. */
const struct sluice_reply *cli_field_list(const struct sluice_reply *map,
                                          const char *name);

/* --- Clients -------------------------------------------------------------- */

/* Print a client of LOCKS or EXPLAIN safely: "backup-7 (10.0.0.7:51152)", or "client 9
 * (10.0.0.7:51152)" if it has no name. */
void cli_put_client(FILE *out, const struct sluice_reply *map);

/* A longer time means that there is no limit: the library sends such a timeout for
 * SLUICE_FOREVER. */
#define CLI_NO_LIMIT_MS (INT64_C(100) * 365 * 86400 * 1000)

/* Print a duration in ms: "350 ms", "12 s", "5 min"; "-" if it is negative. */
void cli_put_ms(FILE *out, int64_t ms);

/* Print the number of held units and the capacity: "1/4". `lock` is a map of LOCKS or EXPLAIN, and
 * `holder` the map of its oldest holder, or NULL. Print "2 shared" for a shared lock, and
 * "exclusive" for an exclusive `sluice run`. */
void cli_put_held(FILE *out, const struct sluice_reply *lock,
                  const struct sluice_reply *holder);

/* Print the units of a holder or a waiter: "1/4" or "shared". */
void cli_put_units(FILE *out, const struct sluice_reply *client);

#endif /* SL_CLI_OPS_H */
