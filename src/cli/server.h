/* server.h - the server that a command uses: its options, address and password, and connections. */
#ifndef SL_CLI_SERVER_H
#define SL_CLI_SERVER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "cli/address.h"
#include "sluice.h"

#define CLI_SERVERS_SIZE 4096

struct cli_server {
    /* The options, as they were given; NULL: not given. */
    const char *address, *host, *port, *password_file;

    /* What cli_server_find() found. */
    char addresses[CLI_SERVERS_SIZE]; /* One address, or several with commas between. */
    char password_text[CLI_PASSWORD_SIZE];
    const char *password; /* NULL: none. */
};

/* Take the value of --server, -h, -p or --password-file. */
void cli_server_option(struct cli_server *s, int id, const char *value);

/* Return whether an option or SLUICE_SERVER names a server. */
bool cli_server_named(const struct cli_server *s);

/* Find the addresses and the password in the options and the environment. Returns 0; or prints a
 * message and returns an exit status. */
int cli_server_find(struct cli_server *s);

/* Connect to the first server that answers. The caller sets the options, except password, error
 * and error_size. Stores the connection in *out; close it with sluice_wire_close(). Returns 0;
 * or prints a message and returns an exit status. */
int cli_server_connect(const struct cli_server *s, struct sluice_wire_options options,
                       struct sluice_wire **out);

/* Connect like cli_server_connect(), but print nothing. Stores the address of the server, or of the
 * last one that did not answer, and the error message. Returns a status of the library. */
int cli_server_try(const struct cli_server *s, struct sluice_wire_options options,
                   struct sluice_wire **out, char *address, size_t address_size,
                   char *error, size_t error_size);

/* Print why a server cannot be used: the status and the message of a failed call. If the status is
 * SLUICE_EIO, errno must be that of the call. Returns an exit status. */
int cli_server_failed(const char *address, int status, const char *error);

/* Return the exit status of an error reply. Its first word is the error code. */
int cli_server_exit_of(const char *error);

/* A request for locks that has failed. */
struct cli_refusal {
    const char *keys; /* One key, or several with commas between them. */
    int status;
    const char *error; /* The message of the server; "": none. */
    int64_t wait_ms;
    bool quiet; /* Print nothing if a lock is taken. */
};

/* Print why locks were not granted. Returns an exit status. */
int cli_server_refused(const struct cli_server *s, const struct cli_refusal *r);

/* Write the name that other clients see: "backup[1234]@host". */
void cli_client_name(const char *program, pid_t pid, char *out, size_t size);

/* Write the name of this machine, without characters that a client's name cannot have. Returns
 * out. */
const char *cli_host_name(char *out, size_t size);

#endif /* SL_CLI_SERVER_H */
