/* wire.h - parses the address of a server; options of its socket. */
#ifndef SL_CLIENT_WIRE_H
#define SL_CLIENT_WIRE_H

#include <stdbool.h>

#define SL_CLIENT_HOST_SIZE 256
#define SL_CLIENT_PORT_SIZE 6

/* "host", "host:port", "[::1]:port", "::1", or "unix:/path". */
struct sl_client_address {
    const char *path; /* Path of a Unix socket, borrowed; NULL: use host and port. */
    char host[SL_CLIENT_HOST_SIZE];
    char port[SL_CLIENT_PORT_SIZE];
};

/* Parse an address. Returns false if it is invalid. */
bool sl_client_address_parse(const char *text, struct sl_client_address *out);

/* Set the options of a TCP socket. Keepalive detects a dead peer even on an idle connection. */
void sl_client_tune(int fd);

#endif /* SL_CLIENT_WIRE_H */
