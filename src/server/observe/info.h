/* info.h - the reply to INFO: sections of lines "name:value".
 *
 * info.c writes the sections about the server itself, and the arbiters write the sections about
 * locks, data, nodes and transactions (arbiter/info.c). Monitoring tools parse this text, so do
 * not rename its lines. */
#ifndef SL_SERVER_OBSERVE_INFO_H
#define SL_SERVER_OBSERVE_INFO_H

#include <stdio.h>

#include "server/server.h"

/* The text of the reply, which grows as needed. */
struct sl_info {
    FILE *file;
    char *at;
    size_t n;
};

__attribute__((format(printf, 2, 3))) void sl_info_put(struct sl_info *i,
                                                       const char *format, ...);

struct sl_info_section {
    const char *name, *title;
    void (*put)(const struct server *s, struct sl_info *i);
};
/* The last entry has the name NULL. */
extern const struct sl_info_section sl_info_sections[];

/* Sections that the arbiters write (arbiter/info.c). */
void sl_info_put_locks(const struct server *s, struct sl_info *i);
void sl_info_put_persistence(const struct server *s, struct sl_info *i);
void sl_info_put_cluster(const struct server *s, struct sl_info *i);
void sl_info_put_keeper(const struct server *s, struct sl_info *i);

/* Whether this server can grant locks now. If not, writes the reason (arbiter/ready.c). */
bool sl_server_is_ready(const struct server *s, char *out, size_t size);

#endif /* SL_SERVER_OBSERVE_INFO_H */
