/* address.h - parses the address of the server that `sluice do` connects to. */
#ifndef SL_CLI_ADDRESS_H
#define SL_CLI_ADDRESS_H

#include <stdbool.h>

#define CLI_ADDRESS_SIZE 512
#define CLI_PASSWORD_SIZE 4096

struct cli_address {
    char text[CLI_ADDRESS_SIZE];      /* The argument for sluice_wire_open(). */
    char password[CLI_PASSWORD_SIZE]; /* From the URL. */
    bool has_password;
};

/* Each of these functions returns 0; or prints a message and returns CLI_EXIT_USAGE. */

/* Accept host, host:port, [::1]:port, unix:/path and redis://[:password@]host:port[/0].
 * sluice_wire_open() checks the forms that are not URLs. */
int cli_address_of_text(const char *text, struct cli_address *out);

/* Combine a host and a port; NULL means the default. */
int cli_address_of_host(const char *host, const char *port, struct cli_address *out);

/* Report an invalid address. */
int cli_address_invalid(const char *text);

#endif /* SL_CLI_ADDRESS_H */
