/* address.h - the server that `sluice do` connects to, in the forms that users write. */
#ifndef SL_CLI_ADDRESS_H
#define SL_CLI_ADDRESS_H

#include <stdbool.h>

#define CLI_ADDRESS_SIZE 512
#define CLI_PASSWORD_SIZE 4096

struct cli_address {
    char text[CLI_ADDRESS_SIZE];      /* For sluice_wire_open(). */
    char password[CLI_PASSWORD_SIZE]; /* From the URL. */
    bool has_password;
};

/* Each of these returns 0, or CLI_EXIT_USAGE after a message. */

/* Accept host, host:port, [::1]:port, unix:/path and redis://[:password@]host:port[/0].
 * sluice_wire_open() checks the forms that are not URLs. */
int cli_address_of_text(const char *text, struct cli_address *out);

/* Accept a host and a port; NULL is the default. */
int cli_address_of_host(const char *host, const char *port, struct cli_address *out);

/* Report an invalid address. */
int cli_address_invalid(const char *text);

#endif /* SL_CLI_ADDRESS_H */
