/* info.h - the reply to INFO: sections of lines "name:value".
 *
 * info.c writes the sections about the server itself, and the arbiters those about locks, data,
 * nodes and transactions (arbiter/info.c). Monitoring reads this text, so names of lines stay. */
#ifndef SL_SERVER_OBSERVE_INFO_H
#define SL_SERVER_OBSERVE_INFO_H

#include <stdio.h>

#include "server/server.h"

/* The text, of any length. */
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
extern const struct sl_info_section sl_info_sections[]; /* Ends with name NULL. */

/* Sections that the arbiters write (arbiter/info.c). */
void sl_info_put_locks(const struct server *s, struct sl_info *i);
void sl_info_put_persistence(const struct server *s, struct sl_info *i);
void sl_info_put_cluster(const struct server *s, struct sl_info *i);
void sl_info_put_keeper(const struct server *s, struct sl_info *i);

#endif /* SL_SERVER_OBSERVE_INFO_H */
