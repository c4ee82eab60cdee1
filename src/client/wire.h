/* wire.h - an address of a server, in words. The rest of the wire is in sluice.h. */
#ifndef SL_CLIENT_WIRE_H
#define SL_CLIENT_WIRE_H

#include <stdbool.h>

#define SL_WIRE_HOST_SIZE 256
#define SL_WIRE_PORT_SIZE 6

/* "host", "host:port", "[::1]:port", "::1", or "unix:/path". */
struct sl_wire_address {
    const char *path; /* Of a unix socket, borrowed; NULL: host and port count. */
    char host[SL_WIRE_HOST_SIZE];
    char port[SL_WIRE_PORT_SIZE];
};

/* False: it is none of these. */
bool sl_wire_address(const char *text, struct sl_wire_address *out);

#endif /* SL_CLIENT_WIRE_H */
