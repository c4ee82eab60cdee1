/* client.h - the names and addresses of clients.
 *
 * A grant with a lease outlives the connection of its client, and operators want to
 * know which client holds it. So each grant refers to a struct sl_client, which all
 * grants of a session share. A struct sl_client never changes: if a connection gets
 * a new name, its later requests use a new struct. */
#ifndef SL_LOCKS_CLIENT_H
#define SL_LOCKS_CLIENT_H

#include "base/index.h"
#include "base/types.h"

#define SL_CLIENT_NAME_MAX 63u
#define SL_CLIENT_ADDRESS_MAX 159u

/* All clients of a table. */
struct sl_clients {
    struct sl_list all;
    struct sl_index
        shared; /* Clients without a session, by name, address and origin. */
    size_t count, text_bytes;
};

struct sl_client {
    struct sl_list all;
    struct sl_clients *of;
    uint64_t session_id; /* 0: the session is not in this table. */
    uint64_t origin;     /* struct sl_session */
    uint32_t refs;
    uint8_t name_bytes, address_bytes;
    char text[]; /* The name, then the address. */
};

void sl_clients_init(struct sl_clients *cs, struct sl_hash_key key);
void sl_clients_free(struct sl_clients *cs); /* Frees all clients, referenced or not. */
size_t sl_clients_bytes(const struct sl_clients *cs);

/* Returns a client with one more reference, which the caller owns. If session_id is
 * 0, all calls with the same name, address and origin return the same client. Truncates
 * a name or address that is too long. Returns NULL when out of memory. */
struct sl_client *sl_client_get(struct sl_clients *cs, uint64_t session_id,
                                uint64_t origin, struct sl_bytes name,
                                struct sl_bytes address);

/* sl_client_ref() adds a reference. sl_client_unref() drops one, and frees the
 * client with the last one. NULL is allowed. */
static inline struct sl_client *sl_client_ref(struct sl_client *c)
{
    if (c != NULL) c->refs++;
    return c;
}
void sl_client_unref(struct sl_client *c);

static inline uint64_t sl_client_origin(const struct sl_client *c)
{
    return c == NULL ? 0 : c->origin;
}

static inline struct sl_bytes sl_client_name(const struct sl_client *c)
{
    return c == NULL ? (struct sl_bytes){NULL, 0}
                     : (struct sl_bytes){c->text, c->name_bytes};
}

static inline struct sl_bytes sl_client_address(const struct sl_client *c)
{
    return c == NULL ? (struct sl_bytes){NULL, 0}
                     : (struct sl_bytes){c->text + c->name_bytes, c->address_bytes};
}

#endif /* SL_LOCKS_CLIENT_H */
